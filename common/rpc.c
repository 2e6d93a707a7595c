/* The net: its thread, and the life of nets and peers. */
#include "common/rpc_priv.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"

#define EVENTS_MAX 64
#define SPIN_CREDIT_MAX 16u
/* A miss costs the whole spin, a hit wins a wake-up; both are alike. Without
 * credit every 64th chance is tried: conditions change. */
#define SPIN_RETRY 64u
#define SPIN_TURN_NS 4000u

void rpc_net_wake(struct rpc_net *n, uint64_t due_ms)
{
	uint64_t one = 1;

	if (due_ms >= atomic_load(&n->wake_ms))
		return;
	/* Cannot fail but for a full counter, which wakes as well. */
	if (write(n->wakefd, &one, sizeof(one)) < 0)
		return;
}

void rpc_net_poke(struct rpc_net *n)
{
	atomic_store(&n->poked, true);
	rpc_net_wake(n, 0);
}

/* ---- the loop ---- */

static void run_deadlines(struct rpc_net *n, uint64_t now_ms)
{
	uint64_t earliest = RPC_FOREVER, old;
	struct rpc_peer *p;

	if (atomic_load(&n->deadline_ms) > now_ms)
		return;
	/* Calls sent from here on lower it by themselves. */
	atomic_store(&n->deadline_ms, RPC_FOREVER);
	pthread_mutex_lock(&n->lock);
	p = n->peers;
	pthread_mutex_unlock(&n->lock);
	/* Peers are added at the front and go away only on this thread. */
	for (; p; p = p->next)
		conn_expire(p, now_ms, &earliest);
	old = atomic_load(&n->deadline_ms);
	while (earliest < old)
		if (atomic_compare_exchange_weak(&n->deadline_ms, &old,
						 earliest))
			break;
}

static void peer_free(struct rpc_peer *p)
{
	free(atomic_load(&p->place));
	free(p->places);
	free(p->cipher.p);
	resolve_free(p->lookup);
	pthread_cond_destroy(&p->send_cond);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static void peer_end(struct rpc_peer *p)
{
	struct rpc_net *n = p->net;
	struct rpc_peer **at;

	conn_end(p);
	pthread_mutex_lock(&n->lock);
	for (at = &n->peers; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	pthread_mutex_unlock(&n->lock);
	peer_free(p);
}

void peer_place(struct rpc_peer *p, const struct rpc_place *at)
{
	resolve_free(p->lookup);
	p->lookup = NULL;
	memcpy(p->host, at->host, sizeof(p->host));
	p->port = at->port;
	p->addrs = (struct resolved_list){ .count = 0 };
	p->addrs_chosen = false;
	p->addr_at = 0;
	p->lookup_end_ms = 0;
	p->is_name = !resolve_numeric(p->host, p->port, &p->addrs);
	snprintf(p->label, sizeof(p->label), "%s:%u", p->host, p->port);
}

static void peer_reset(struct rpc_peer *p)
{
	struct rpc_place *at = atomic_exchange(&p->place, NULL);

	if (at)
		peer_place(p, at);
	free(at);
	conn_reset(p, atomic_exchange(&p->next_wanted, false));
}

/* What other threads asked for. */
static void run_pokes(struct rpc_net *n)
{
	struct rpc_peer *p, *next;

	if (!atomic_exchange(&n->poked, false))
		return;
	pthread_mutex_lock(&n->lock);
	p = n->peers;
	pthread_mutex_unlock(&n->lock);
	for (; p; p = next) {
		next = p->next;
		if (atomic_load(&p->closing))
			peer_end(p);
		else if (atomic_exchange(&p->reset_wanted, false))
			peer_reset(p);
		else if (p->bad)
			conn_lose(p, p->bad);
	}
}

static void run_readable(struct rpc_net *n)
{
	struct rpc_peer *p;

	if (!n->more)
		return;
	n->more = false;
	pthread_mutex_lock(&n->lock);
	p = n->peers;
	pthread_mutex_unlock(&n->lock);
	for (; p; p = p->next)
		if (p->readable)
			conn_read(p);
}

static bool spin_allowed(struct rpc_net *n)
{
	uint64_t in_flight = atomic_load_explicit(&n->in_flight,
						  memory_order_relaxed);

	if (!atomic_load(&n->quiet))
		in_flight += atomic_load(&n->helped_in_flight);
	if (atomic_load(&n->spin_us) == 0 || in_flight == 0)
		return false;
	if (n->spin_credit > 0)
		return true;
	if (++n->spin_skipped < SPIN_RETRY)
		return false;
	n->spin_skipped = 0;
	return true;
}

/* Polls for a short time. Returns what epoll_wait() does. */
static int spin(struct rpc_net *n, struct epoll_event *ev)
{
	uint64_t turn_ns = clock_now_ns(CLOCK_MONOTONIC), t_ns;
	uint64_t end_ns = turn_ns + atomic_load(&n->spin_us) * 1000u;
	int event_count;
	bool shared;

	count(&n->n.spins, 1);
	do {
		sched_yield();
		event_count = epoll_wait(n->epfd, ev, EVENTS_MAX, 0);
		t_ns = clock_now_ns(CLOCK_MONOTONIC);
		/* A turn that took long: somebody else wanted this core, and
		 * he may be the daemon we wait for. */
		shared = t_ns - turn_ns > SPIN_TURN_NS;
		turn_ns = t_ns;
	} while (event_count == 0 && !shared && t_ns < end_ns);
	if (event_count != 0)
		count(&n->n.spin_hits, 1);
	if (shared)
		n->spin_credit = 0;
	else if (event_count == 0 && n->spin_credit > 0)
		n->spin_credit--;
	else if (event_count != 0 && n->spin_credit < SPIN_CREDIT_MAX)
		n->spin_credit++;
	return event_count;
}

/* How long the loop may sleep; publishes it, see rpc_net_wake(). */
static int sleep_ms(struct rpc_net *n)
{
	uint64_t due_ms, now_ms = rpc_now_ms();

	/* From here on everything new wakes us, whatever is computed below
	 * from what was there before. */
	atomic_store(&n->wake_ms, RPC_FOREVER);
	due_ms = u64_min(rpc_timers_due(n), atomic_load(&n->deadline_ms));
	if (atomic_load(&n->poked) || atomic_load(&n->stopping) || n->more)
		due_ms = 0;
	atomic_store(&n->wake_ms, due_ms);
	if (due_ms == RPC_FOREVER)
		return -1;
	if (due_ms <= now_ms)
		return 0;
	return (int)u64_min(due_ms - now_ms, 1u << 30);
}

static int wait_without_turn(struct rpc_net *n, struct epoll_event *ev)
{
	int event_count = 0, timeout_ms;

	if (!n->more && spin_allowed(n))
		event_count = spin(n, ev);
	if (event_count != 0)
		return event_count;
	timeout_ms = sleep_ms(n);
	if (timeout_ms != 0)
		count(&n->n.sleeps, 1);
	event_count = epoll_wait(n->epfd, ev, EVENTS_MAX, timeout_ms);
	atomic_store(&n->wake_ms, 0);
	return event_count;
}

static int wait_events(struct rpc_net *n, struct epoll_event *ev)
{
	int event_count;

	help_loop_waits(n);
	pthread_mutex_unlock(&n->turn);
	event_count = wait_without_turn(n, ev);
	pthread_mutex_lock(&n->turn);
	return event_count;
}

static void handle_events(struct rpc_net *n, struct epoll_event *ev,
			  int event_count)
{
	uint64_t drop;

	for (int i = 0; i < event_count; i++) {
		if (ev[i].data.ptr == n)
			help_look(n);
		else if (ev[i].data.ptr)
			conn_event(ev[i].data.ptr, ev[i].events);
		else if (read(n->wakefd, &drop, sizeof(drop)) < 0)
			continue; /* somebody's wake-up was merged */
	}
}

static void *loop(void *arg)
{
	struct rpc_net *n = arg;
	struct epoll_event ev[EVENTS_MAX];
	uint64_t now_ms;

	pthread_mutex_lock(&n->turn);
	while (!atomic_load(&n->stopping)) {
		now_ms = rpc_now_ms();
		rpc_timers_run(n, now_ms);
		run_deadlines(n, now_ms);
		run_pokes(n);
		run_readable(n);
		handle_events(n, ev, wait_events(n, ev));
	}
	while (n->peers)
		peer_end(n->peers);
	pthread_mutex_unlock(&n->turn);
	return NULL;
}

/* ---- life ---- */

static uint32_t spin_default(void)
{
	const char *s = getenv("HAILFS_SPIN_US");
	unsigned long v;
	char *end;

	if (!s || !*s)
		return RPC_SPIN_US;
	v = strtoul(s, &end, 10);
	return *end || v > 1000 ? RPC_SPIN_US : (uint32_t)v;
}

static int net_open(struct rpc_net *n)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rv;

	n->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (n->epfd < 0)
		return -errno;
	n->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (n->wakefd < 0)
		return -errno;
	if (epoll_ctl(n->epfd, EPOLL_CTL_ADD, n->wakefd, &ev) < 0)
		return -errno;
	rv = help_open(n);
	if (rv < 0)
		return rv;
	return -pthread_create(&n->thread, NULL, loop, n);
}

static void net_destroy(struct rpc_net *n)
{
	if (n->wakefd >= 0)
		close(n->wakefd);
	if (n->help_epfd >= 0)
		close(n->help_epfd);
	if (n->epfd >= 0)
		close(n->epfd);
	pthread_mutex_destroy(&n->turn);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

int rpc_net_new(const struct rpc_identity *id, struct rpc_net **ret)
{
	struct rpc_net *n = calloc(1, sizeof(*n));
	int rv;

	if (!n)
		return -ENOMEM;
	n->epfd = n->wakefd = n->help_epfd = -1;
	n->role = id->role;
	n->peer_id = id->peer_id;
	snprintf(n->name, sizeof(n->name), "%s", id->name ? id->name : "");
	n->gate = id->gate;
	atomic_store(&n->session, id->session);
	atomic_store(&n->cluster_id, id->cluster_id);
	atomic_store(&n->spin_us, spin_default());
	atomic_store(&n->deadline_ms, RPC_FOREVER);
	n->spin_credit = SPIN_CREDIT_MAX;
	pthread_mutex_init(&n->lock, NULL);
	pthread_mutex_init(&n->turn, NULL);
	rv = net_open(n);
	if (rv < 0) {
		net_destroy(n);
		return rv;
	}
	*ret = n;
	return 0;
}

void rpc_net_free(struct rpc_net *n)
{
	if (!n)
		return;
	assert(!net_is_self(n));
	atomic_store(&n->stopping, true);
	rpc_net_wake(n, 0);
	pthread_join(n->thread, NULL);
	net_destroy(n);
}

void rpc_set_session(struct rpc_net *n, uint64_t session)
{
	atomic_store(&n->session, session);
}

void rpc_set_cluster(struct rpc_net *n, uint64_t cluster_id)
{
	atomic_store(&n->cluster_id, cluster_id);
}

void rpc_set_epoch(struct rpc_net *n, uint64_t epoch)
{
	atomic_store(&n->epoch, epoch);
}

void rpc_set_spin(struct rpc_net *n, uint32_t spin_us)
{
	atomic_store(&n->spin_us, spin_us);
}

void rpc_net_stats(const struct rpc_net *n, struct rpc_stats *ret)
{
	const struct rpc_counters *c = &n->n;

	ret->calls = atomic_load(&c->calls);
	ret->replies = atomic_load(&c->replies);
	ret->timeouts = atomic_load(&c->timeouts);
	ret->resent = atomic_load(&c->resent);
	ret->unknown_replies = atomic_load(&c->unknown_replies);
	ret->bytes_out = atomic_load(&c->bytes_out);
	ret->bytes_in = atomic_load(&c->bytes_in);
	ret->connects = atomic_load(&c->connects);
	ret->losses = atomic_load(&c->losses);
	ret->bad_frames = atomic_load(&c->bad_frames);
	ret->spins = atomic_load(&c->spins);
	ret->spin_hits = atomic_load(&c->spin_hits);
	ret->sleeps = atomic_load(&c->sleeps);
	ret->helps = atomic_load(&c->helps);
	ret->help_hits = atomic_load(&c->help_hits);
}

int rpc_peer_new(struct rpc_net *n, const char *addr, uint16_t port,
		 const struct rpc_peer_ops *ops, void *arg,
		 struct rpc_peer **ret)
{
	struct rpc_at at = { addr, port };

	return rpc_peer_new_any(n, &at, 1, ops, arg, ret);
}

int rpc_peer_new_any(struct rpc_net *n, const struct rpc_at *at, uint32_t count,
		     const struct rpc_peer_ops *ops, void *arg,
		     struct rpc_peer **ret)
{
	struct rpc_peer *p = calloc(1, sizeof(*p));

	assert(count > 0 && count <= RPC_PLACES_MAX);
	if (p)
		p->places = calloc(count, sizeof(*p->places));
	if (!p || !p->places) {
		free(p);
		return -ENOMEM;
	}
	p->place_count = count;
	for (uint32_t i = 0; i < count; i++) {
		p->places[i].port = at[i].port;
		snprintf(p->places[i].host, sizeof(p->places[i].host), "%s",
			 at[i].addr);
	}
	peer_place(p, &p->places[0]);
	p->net = n;
	p->ops = ops;
	p->arg = arg;
	p->fd = -1;
	p->id_next = 1;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->send_cond, NULL);
	conn_init(p);
	*ret = p;
	pthread_mutex_lock(&n->lock);
	p->next = n->peers;
	n->peers = p;
	pthread_mutex_unlock(&n->lock);
	rpc_timer_start(n, &p->timer, 0);
	return 0;
}

int rpc_peer_new_metad(struct rpc_net *n, const struct conf *conf,
		       const struct rpc_peer_ops *ops, void *arg,
		       struct rpc_peer **ret)
{
	struct rpc_at at[RPC_PLACES_MAX];

	assert(conf->metad_count <= RPC_PLACES_MAX);
	for (uint32_t i = 0; i < conf->metad_count; i++)
		at[i] = (struct rpc_at){ conf->metads[i].addr,
					 conf->metads[i].port };
	return rpc_peer_new_any(n, at, conf->metad_count, ops, arg, ret);
}

void rpc_peer_close(struct rpc_peer *p)
{
	struct rpc_net *n = p->net;

	atomic_store(&p->closing, true);
	/* @p may be gone from here on. */
	rpc_net_poke(n);
}

bool rpc_peer_is_up(struct rpc_peer *p)
{
	bool up;

	pthread_mutex_lock(&p->lock);
	up = p->conn == CONN_UP;
	pthread_mutex_unlock(&p->lock);
	return up;
}

struct proto rpc_peer_proto(const struct rpc_peer *p)
{
	return p->proto;
}

void rpc_peer_reset(struct rpc_peer *p)
{
	atomic_store(&p->reset_wanted, true);
	rpc_net_poke(p->net);
}

void rpc_peer_next(struct rpc_peer *p)
{
	if (p->place_count == 1)
		return;
	atomic_store(&p->next_wanted, true);
	rpc_peer_reset(p);
}

int rpc_peer_move(struct rpc_peer *p, const char *addr, uint16_t port)
{
	struct rpc_place *at = malloc(sizeof(*at));

	assert(p->place_count == 1);
	if (!at)
		return -ENOMEM;
	snprintf(at->host, sizeof(at->host), "%s", addr);
	at->port = port;
	free(atomic_exchange(&p->place, at));
	rpc_peer_reset(p);
	return 0;
}

/* ---- frames ---- */

struct rpc_frame *rpc_take_frame(const struct rpc_frame *f)
{
	struct frame *frame = f->priv_;
	struct rpc_held *held = frame->extra;

	*held->taken = true;
	return &held->f;
}

void rpc_frame_free(struct rpc_frame *f)
{
	if (f)
		frame_free(f->priv_);
}

/* ---- blocking call ---- */

struct waited {
	struct rpc_call call;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int status;
	struct rpc_frame *frame;
};

static void waited_done(struct rpc_call *call, int status,
			const struct rpc_frame *f)
{
	struct waited *w = container_of(call, struct waited, call);

	pthread_mutex_lock(&w->lock);
	w->status = status;
	w->frame = f ? rpc_take_frame(f) : NULL;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int rpc_call_wait(struct rpc_peer *p, uint16_t opcode, const void *body,
		  uint32_t body_len, uint64_t timeout_ms,
		  struct rpc_frame **ret)
{
	struct waited w = {
		.call = { .opcode = opcode, .timeout_ms = timeout_ms,
			  .body = body, .body_len = body_len,
			  .cb = waited_done },
	};

	assert(!net_is_self(p->net));
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.cond, NULL);
	rpc_send(p, &w.call);
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	if (w.status == 0 && ret)
		*ret = w.frame;
	else
		rpc_frame_free(w.frame);
	return w.status;
}
