#include "logd/loop.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/stats.h"

#define EVENTS_MAX 64
/* What sleeping itself adds to a wait that is measured. */
#define WAKE_NS 40000u
/* A look at the events that took so long: somebody else wanted this core, and
 * he may be the one we wait for. */
#define SHARED_NS 6000u
/* How long spinning stays off then. */
#define SHARED_PENALTY_NS 5000000u
/* A miss costs the whole spin, a hit wins a wake-up; both are alike. Without
 * credit every 64th chance is tried: conditions change. */
#define SPIN_CREDIT_MAX 16u
#define SPIN_RETRY 64u

struct loop {
	int epfd;
	bool stop;
	void (*turn_end)(void *arg);
	void *arg;
	struct loop_timer *timers; /* by due time */
	uint64_t now_ns;
	struct loop_stats n;

	/* the events of this turn, for loop_del() */
	struct epoll_event ev[EVENTS_MAX];
	int event_count;

	uint64_t spin_ns;
	uint64_t gap_ns; /* average of the last waits */
	uint64_t spin_off_until_ns;
	unsigned spin_credit, spin_skipped;

	struct loop_fd wake;
	pthread_mutex_t lock; /* protects what follows */
	struct loop_post *posts, **posts_tail;
};

/* ---- posts ---- */

static void on_wake(struct loop_fd *f, uint32_t events)
{
	struct loop *l = container_of(f, struct loop, wake);
	struct loop_post *p, *next;
	uint64_t drop;

	(void)events;
	if (read(f->fd, &drop, sizeof(drop)) < 0)
		return; /* merged with another wake-up */
	pthread_mutex_lock(&l->lock);
	p = l->posts;
	l->posts = NULL;
	l->posts_tail = &l->posts;
	pthread_mutex_unlock(&l->lock);
	for (; p; p = next) {
		void (*fn)(void *arg) = p->fn;
		void *arg = p->arg;

		pthread_mutex_lock(&l->lock);
		next = p->priv_next;
		p->priv_queued = false;
		pthread_mutex_unlock(&l->lock);
		fn(arg);
	}
}

void loop_post(struct loop *l, struct loop_post *p)
{
	uint64_t one = 1;
	bool first = false;

	pthread_mutex_lock(&l->lock);
	if (!p->priv_queued) {
		p->priv_queued = true;
		p->priv_next = NULL;
		first = !l->posts;
		*l->posts_tail = p;
		l->posts_tail = &p->priv_next;
	}
	pthread_mutex_unlock(&l->lock);
	/* Cannot fail but for a full counter, which wakes as well. */
	if (first && write(l->wake.fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- life ---- */

int loop_new(uint32_t spin_us, void (*turn_end)(void *arg), void *arg,
	     struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	cpu_set_t cores;
	int rv;

	if (!l)
		return -ENOMEM;
	l->turn_end = turn_end;
	l->arg = arg;
	l->gap_ns = UINT32_MAX;
	/* The only core has something better to do than to wait. */
	if (sched_getaffinity(0, sizeof(cores), &cores) == 0 &&
	    CPU_COUNT(&cores) > 1)
		l->spin_ns = (uint64_t)spin_us * 1000u;
	l->posts_tail = &l->posts;
	l->now_ns = clock_now_ns(CLOCK_MONOTONIC);
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	l->wake.fn = on_wake;
	l->wake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rv = l->epfd < 0 || l->wake.fd < 0 ? -errno :
	     loop_add(l, &l->wake, EPOLLIN);
	if (rv < 0) {
		if (l->epfd >= 0)
			close(l->epfd);
		if (l->wake.fd >= 0)
			close(l->wake.fd);
		free(l);
		return rv;
	}
	pthread_mutex_init(&l->lock, NULL);
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	close(l->epfd);
	close(l->wake.fd);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

const struct loop_stats *loop_stats(const struct loop *l)
{
	return &l->n;
}

uint64_t loop_now_ns(const struct loop *l)
{
	return l->now_ns;
}

uint64_t loop_now_ms(const struct loop *l)
{
	return l->now_ns / 1000000u;
}

/* ---- descriptors ---- */

int loop_add(struct loop *l, struct loop_fd *f, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = f };

	if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, f->fd, &ev) < 0)
		return -errno;
	f->priv_there = true;
	return 0;
}

void loop_change(struct loop *l, struct loop_fd *f, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = f };

	/* Of one that is watched it cannot fail. */
	(void)epoll_ctl(l->epfd, EPOLL_CTL_MOD, f->fd, &ev);
}

void loop_del(struct loop *l, struct loop_fd *f)
{
	if (!f->priv_there)
		return;
	f->priv_there = false;
	(void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, f->fd, NULL);
	for (int i = 0; i < l->event_count; i++)
		if (l->ev[i].data.ptr == f)
			l->ev[i].data.ptr = NULL;
}

/* ---- timers ---- */

void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
	struct loop_timer **at = &l->timers;

	loop_timer_stop(l, t);
	t->priv_due_ms = clock_now_ms(CLOCK_MONOTONIC) + delay_ms;
	while (*at && (*at)->priv_due_ms <= t->priv_due_ms)
		at = &(*at)->priv_next;
	t->priv_next = *at;
	t->priv_armed = true;
	*at = t;
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	struct loop_timer **at = &l->timers;

	if (!t->priv_armed)
		return;
	while (*at != t)
		at = &(*at)->priv_next;
	*at = t->priv_next;
	t->priv_armed = false;
}

static void run_timers(struct loop *l)
{
	uint64_t now_ms = loop_now_ms(l);
	struct loop_timer *t;

	/* One that starts itself again is later than now. */
	while ((t = l->timers) && t->priv_due_ms <= now_ms) {
		loop_timer_stop(l, t);
		t->fn(t);
	}
}

static int sleep_ms(const struct loop *l)
{
	uint64_t now_ms;

	if (l->stop)
		return 0;
	if (!l->timers)
		return -1;
	now_ms = clock_now_ms(CLOCK_MONOTONIC);
	if (l->timers->priv_due_ms <= now_ms)
		return 0;
	return (int)u64_min(l->timers->priv_due_ms - now_ms, 1u << 30);
}

/* ---- waiting ---- */

/* A sleeping core of a virtual machine takes 20-40 us to wake, more than a
 * request takes to serve. So while requests come that fast it is worth staying
 * awake for the next; an idle daemon's average wait is far above, and it
 * sleeps at once. Returns what epoll_wait() does. */
static int spin(struct loop *l, uint64_t start_ns)
{
	uint64_t turn_ns = start_ns, t_ns;
	int count;

	stats_count(&l->n.spins, 1);
	do {
		sched_yield();
		count = epoll_wait(l->epfd, l->ev, EVENTS_MAX, 0);
		t_ns = clock_now_ns(CLOCK_MONOTONIC);
		if (t_ns - turn_ns > SHARED_NS) {
			l->spin_off_until_ns = t_ns + SHARED_PENALTY_NS;
			break;
		}
		turn_ns = t_ns;
	} while (count == 0 && t_ns - start_ns < l->spin_ns);
	if (count > 0)
		stats_count(&l->n.spin_hits, 1);
	if (count > 0 && l->spin_credit < SPIN_CREDIT_MAX)
		l->spin_credit++;
	else if (count == 0 && l->spin_credit > 0)
		l->spin_credit--;
	return count;
}

static bool may_spin(struct loop *l, uint64_t now_ns)
{
	if (l->spin_ns == 0 || l->stop || now_ns < l->spin_off_until_ns ||
	    l->gap_ns > l->spin_ns + WAKE_NS)
		return false;
	if (l->spin_credit > 0)
		return true;
	if (++l->spin_skipped < SPIN_RETRY)
		return false;
	l->spin_skipped = 0;
	return true;
}

/* Each wait counts at most as a few spins, so that a pause is forgotten soon
 * after work begins again. */
static void note_gap(struct loop *l, uint64_t gap_ns)
{
	uint64_t top = 4 * l->spin_ns;

	l->gap_ns = (3 * u64_min(l->gap_ns, top) + u64_min(gap_ns, top)) / 4;
}

static int wait_events(struct loop *l)
{
	uint64_t start_ns = clock_now_ns(CLOCK_MONOTONIC);
	int count = 0, timeout_ms;

	if (may_spin(l, start_ns))
		count = spin(l, start_ns);
	if (count == 0) {
		timeout_ms = sleep_ms(l);
		stats_count(&l->n.sleeps, timeout_ms != 0);
		count = epoll_wait(l->epfd, l->ev, EVENTS_MAX, timeout_ms);
	}
	l->now_ns = clock_now_ns(CLOCK_MONOTONIC);
	if (l->spin_ns > 0)
		note_gap(l, l->now_ns - start_ns);
	return count;
}

int loop_run(struct loop *l)
{
	int rv = 0;

	l->turn_end(l->arg);
	while (!l->stop) {
		l->event_count = wait_events(l);
		if (l->event_count < 0 && errno != EINTR) {
			rv = -errno;
			break;
		}
		stats_count(&l->n.turns, 1);
		for (int i = 0; i < l->event_count; i++) {
			struct loop_fd *f = l->ev[i].data.ptr;

			if (f)
				f->fn(f, l->ev[i].events);
		}
		l->event_count = 0;
		run_timers(l);
		l->turn_end(l->arg);
	}
	l->turn_end(l->arg);
	return rv;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}
