/* Answers that a caller takes in itself.
 *
 * A peer that is "helped" is watched by an epoll of its own, which the loop's
 * epoll watches in turn. A caller that is about to send there may say so
 * (rpc_help_begin), and polls for the answers after it (rpc_help), so that the
 * loop's thread need not wake for them: the inner epoll is "quiet" then.
 *
 * Whoever handles events holds net->turn: the loop except while it waits, a
 * helper for one look. What ends connections is left to the loop.
 *
 * Nobody's answer is forgotten: who has sent, who has ceased to help, and the
 * loop before it waits, each end the quiet when something is in flight and
 * nobody helps. A sender writes helped_in_flight and then reads helping, a
 * helper does it the other way round (sequentially consistent), so one of them
 * sees what the other did.
 */
#include "common/rpc_priv.h"

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"

#define HELP_EVENTS 8
#define HELP_CREDIT_MAX 16u
/* Without credit every 64th chance is tried: conditions change. */
#define HELP_RETRY 64u

int help_open(struct rpc_net *n)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = n };

	n->help_epfd = epoll_create1(EPOLL_CLOEXEC);
	if (n->help_epfd < 0 ||
	    epoll_ctl(n->epfd, EPOLL_CTL_ADD, n->help_epfd, &ev) < 0)
		return -errno;
	n->help_credit = HELP_CREDIT_MAX;
	return 0;
}

void help_watch(struct rpc_peer *p)
{
	struct rpc_net *n = p->net;
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = p,
	};

	/* What is there already is an event of the new place. Where that
	 * cannot be, the loop goes on to be told. */
	if (epoll_ctl(n->help_epfd, EPOLL_CTL_ADD, p->fd, &ev) == 0)
		(void)epoll_ctl(n->epfd, EPOLL_CTL_DEL, p->fd, NULL);
}

/* The caller has the turn. */
static void quiet_set(struct rpc_net *n, bool quiet)
{
	struct epoll_event ev = {
		.events = quiet ? 0 : EPOLLIN,
		.data.ptr = n,
	};

	if (atomic_load(&n->quiet) == quiet)
		return;
	/* Cannot fail: it is there, and memory is not needed. */
	if (epoll_ctl(n->epfd, EPOLL_CTL_MOD, n->help_epfd, &ev) == 0)
		atomic_store(&n->quiet, quiet);
}

static bool is_alone(struct rpc_net *n)
{
	return atomic_load(&n->quiet) && !atomic_load(&n->helping) &&
	       atomic_load(&n->helped_in_flight) > 0;
}

void help_loop_waits(struct rpc_net *n)
{
	if (is_alone(n))
		quiet_set(n, false);
}

void help_sent(struct rpc_net *n)
{
	/* The loop sees to it before it waits. */
	if (!is_alone(n) || net_is_self(n))
		return;
	/* The caller may hold a lock that who has the turn waits for. */
	if (pthread_mutex_trylock(&n->turn) != 0) {
		rpc_net_poke(n);
		return;
	}
	help_loop_waits(n);
	pthread_mutex_unlock(&n->turn);
}

void help_look(struct rpc_net *n)
{
	struct epoll_event ev[HELP_EVENTS];
	int count = epoll_wait(n->help_epfd, ev, HELP_EVENTS, 0);

	for (int i = 0; i < count; i++)
		conn_event(ev[i].data.ptr, ev[i].events);
}

void rpc_peer_helped(struct rpc_peer *p)
{
	p->helped = true;
}

/* If nobody else has the turn. */
static void helper_look(struct rpc_net *n, bool look)
{
	if (pthread_mutex_trylock(&n->turn) != 0)
		return;
	quiet_set(n, true);
	if (look)
		help_look(n);
	pthread_mutex_unlock(&n->turn);
}

bool rpc_help_begin(struct rpc_net *n)
{
	if (atomic_load(&n->spin_us) == 0 || atomic_load(&n->helping) ||
	    net_is_self(n))
		return false;
	if (atomic_load_explicit(&n->help_credit, memory_order_relaxed) == 0 &&
	    atomic_fetch_add(&n->help_skipped, 1) % HELP_RETRY != 0)
		return false;
	if (atomic_exchange(&n->helping, true))
		return false;
	helper_look(n, false);
	return true;
}

void rpc_help(struct rpc_net *n)
{
	uint64_t end_ns = clock_now_ns(CLOCK_MONOTONIC) +
			  2000u * atomic_load(&n->spin_us);
	uint32_t credit = atomic_load(&n->help_credit);
	bool late = false, any = false;

	while (!late && atomic_load(&n->helped_in_flight) > 0) {
		if (any)
			sched_yield();
		any = true;
		helper_look(n, true);
		/* What came while somebody else had the core is a hit, too. */
		late = atomic_load(&n->helped_in_flight) > 0 &&
		       clock_now_ns(CLOCK_MONOTONIC) > end_ns;
	}
	atomic_store(&n->helping, false);
	help_sent(n); /* what is left is the loop's */
	if (!any)
		return;
	count(&n->n.helps, 1);
	if (!late)
		count(&n->n.help_hits, 1);
	if (late && credit > 0)
		atomic_store(&n->help_credit, credit - 1);
	else if (!late && credit < HELP_CREDIT_MAX)
		atomic_store(&n->help_credit, credit + 1);
}
