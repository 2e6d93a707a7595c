#include "blockd/ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"

#define RING_SQ_ENTRIES 512u
#define RING_CQ_ENTRIES 4096u
/* Completions handled before the queue is submitted again, so that a flood of
 * requests does not starve the disk. */
#define RING_TURN_MAX 256u
#define RING_DEFER_ROUNDS 16
/* Before spinning, how often to look whether others want the cores. */
#define RING_CROWD_CHECK_NS 1000000u
/* What sleeping itself adds to a wait that is measured. */
#define RING_WAKE_NS 40000u
/* How long spinning stays off after another task wanted the core. */
#define RING_SPIN_PENALTY_NS (5u * 1000000u)

struct ring_posted {
	void (*fn)(void *arg);
	void *arg;
	struct ring_posted *next;
};

/* More posts than are ever on their way at once but in a flood. */
#define RING_SPARE_COUNT 64u

struct ring {
	struct io_uring u;
	pthread_t owner;
	bool stop;
	struct ring_timer *timers; /* by due time */
	struct ring_defer *deferred, **deferred_tail;
	struct ring_stats stats;

	/* Spinning: see wait_awake(). */
	uint64_t spin_ns;
	/* Average wait for the next completion: [1] while the disk is at work,
	 * [0] when only peers are waited for. */
	uint64_t gap_ns[2];
	uint64_t spin_off_until_ns;
	uint64_t crowd_checked_ns;
	int crowd_fd; /* /proc/loadavg; -1: no spinning */
	int core_count;

	int event_fd;
	uint64_t event_value;
	struct ring_op event_op;
	pthread_mutex_t lock; /* protects posted*, spare* */
	struct ring_posted *posted, **posted_tail;
	/* For when there is no memory: losing a completion would hang somebody
	 * for ever. */
	struct ring_posted spares[RING_SPARE_COUNT], *spare;
	struct ring_posted *own, **own_tail; /* from the loop's thread */
};

uint64_t ring_now_ns(void)
{
	return clock_now_ns(CLOCK_MONOTONIC);
}

uint64_t ring_now_ms(void)
{
	return ring_now_ns() / 1000000u;
}

static void assert_owner(const struct ring *r)
{
#ifdef HAIL_DEBUG
	assert(pthread_equal(r->owner, pthread_self()));
#else
	(void)r;
#endif
}

/* ---- wake-ups from other threads ---- */

static void event_arm(struct ring *r)
{
	struct io_uring_sqe *sqe = ring_sqe(r, &r->event_op);

	io_uring_prep_read(sqe, r->event_fd, &r->event_value,
			   sizeof(r->event_value), 0);
}

static struct ring_posted *posted_new(struct ring *r, void (*fn)(void *arg),
				      void *arg)
{
	struct ring_posted *p = malloc(sizeof(*p));

	if (!p) {
		pthread_mutex_lock(&r->lock);
		p = r->spare;
		if (!p)
			abort();
		r->spare = p->next;
		pthread_mutex_unlock(&r->lock);
	}
	*p = (struct ring_posted){ .fn = fn, .arg = arg };
	return p;
}

static void posted_free(struct ring *r, struct ring_posted *p)
{
	if (p < r->spares || p >= r->spares + RING_SPARE_COUNT) {
		free(p);
		return;
	}
	pthread_mutex_lock(&r->lock);
	p->next = r->spare;
	r->spare = p;
	pthread_mutex_unlock(&r->lock);
}

static void event_done(struct ring_op *op, int res, uint32_t flags)
{
	struct ring *r = container_of(op, struct ring, event_op);
	struct ring_posted *p, *next;

	(void)flags;
	if (res == -ECANCELED)
		return;
	/* Armed before the queue is taken: what is posted from here on
	 * finds the queue empty and writes again. */
	event_arm(r);
	pthread_mutex_lock(&r->lock);
	p = r->posted;
	r->posted = NULL;
	r->posted_tail = &r->posted;
	pthread_mutex_unlock(&r->lock);
	for (; p; p = next) {
		next = p->next;
		p->fn(p->arg);
		posted_free(r, p);
	}
}

void ring_post_last(struct ring *r, void (*fn)(void *arg), void *arg)
{
	struct ring_posted *p = posted_new(r, fn, arg);
	uint64_t one = 1;
	bool first;

	pthread_mutex_lock(&r->lock);
	first = !r->posted;
	*r->posted_tail = p;
	r->posted_tail = &p->next;
	pthread_mutex_unlock(&r->lock);
	if (first && write(r->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN); /* counter full: it is readable */
}

void ring_post(struct ring *r, void (*fn)(void *arg), void *arg)
{
	struct ring_posted *p;

	if (!pthread_equal(r->owner, pthread_self())) {
		ring_post_last(r, fn, arg);
		return;
	}
	p = posted_new(r, fn, arg);
	*r->own_tail = p;
	r->own_tail = &p->next;
}

/* ---- life ---- */

static int queue_init(struct ring *r, char *why, size_t why_size)
{
	/* The best a kernel has: completions run only when we enter, on our
	 * thread, and a flag in shared memory tells that some wait (6.1);
	 * else without interrupts for them (5.19); else plain. */
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	struct io_uring_params p;
	int rv = -EINVAL;

	for (size_t i = 0; i < array_count(flags) && rv == -EINVAL; i++) {
		memset(&p, 0, sizeof(p));
		p.flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
		p.cq_entries = RING_CQ_ENTRIES;
		rv = io_uring_queue_init_params(RING_SQ_ENTRIES, &r->u, &p);
	}
	if (rv == -EPERM || rv == -ENOSYS || rv == -EACCES)
		snprintf(why, why_size,
			 "io_uring is forbidden here (%s): set the sysctl "
			 "kernel.io_uring_disabled to 0, or allow "
			 "io_uring_setup(2) in the seccomp profile of the "
			 "container or service", strerror(-rv));
	else if (rv < 0)
		snprintf(why, why_size, "io_uring cannot be set up: %s",
			 strerror(-rv));
	return rv;
}

static void spin_init(struct ring *r, unsigned spin_us)
{
	cpu_set_t cores;

	r->gap_ns[0] = r->gap_ns[1] = UINT32_MAX;
	r->crowd_fd = -1;
	if (spin_us == 0 || sched_getaffinity(0, sizeof(cores), &cores) < 0)
		return;
	r->core_count = CPU_COUNT(&cores);
	/* The only core has something better to do than to wait. */
	if (r->core_count < 2)
		return;
	r->crowd_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	if (r->crowd_fd >= 0)
		r->spin_ns = (uint64_t)spin_us * 1000u;
}

int ring_new(unsigned spin_us, struct ring **ret, char *why, size_t why_size)
{
	struct ring *r = calloc(1, sizeof(*r));
	int rv = -ENOMEM;

	if (!r) {
		snprintf(why, why_size, "out of memory");
		return rv;
	}
	r->owner = pthread_self();
	spin_init(r, spin_us);
	r->deferred_tail = &r->deferred;
	r->posted_tail = &r->posted;
	r->own_tail = &r->own;
	pthread_mutex_init(&r->lock, NULL);
	for (unsigned i = 0; i < RING_SPARE_COUNT; i++)
		posted_free(r, &r->spares[i]);
	r->event_fd = eventfd(0, EFD_CLOEXEC);
	if (r->event_fd < 0) {
		rv = -errno;
		snprintf(why, why_size, "eventfd: %s", strerror(-rv));
		goto out_free;
	}
	rv = queue_init(r, why, why_size);
	if (rv < 0)
		goto out_close;
	r->event_op.done = event_done;
	event_arm(r);
	*ret = r;
	return 0;
out_close:
	close(r->event_fd);
out_free:
	if (r->crowd_fd >= 0)
		close(r->crowd_fd);
	pthread_mutex_destroy(&r->lock);
	free(r);
	return rv;
}

void ring_free(struct ring *r)
{
	struct ring_posted *p;

	if (!r)
		return;
	io_uring_queue_exit(&r->u);
	close(r->event_fd);
	if (r->crowd_fd >= 0)
		close(r->crowd_fd);
	*r->own_tail = r->posted;
	while ((p = r->own)) {
		r->own = p->next;
		posted_free(r, p);
	}
	pthread_mutex_destroy(&r->lock);
	free(r);
}

struct ring_stats *ring_stats(struct ring *r)
{
	return &r->stats;
}

/* ---- submission ---- */

struct io_uring_sqe *ring_sqe(struct ring *r, struct ring_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->u);

	assert_owner(r);
	while (!sqe) {
		/* -EBUSY: completions must be taken first; they are, into the
		 * kernel's overflow list, and the entries are consumed. */
		int rv = io_uring_submit(&r->u);

		r->stats.enters++;
		assert(rv >= 0 || rv == -EBUSY || rv == -EAGAIN ||
		       rv == -EINTR);
		sqe = io_uring_get_sqe(&r->u);
	}
	io_uring_sqe_set_data(sqe, op);
	return sqe;
}

void ring_timer_start(struct ring *r, struct ring_timer *t, uint64_t delay_ms)
{
	struct ring_timer **at = &r->timers;

	assert_owner(r);
	ring_timer_stop(r, t);
	t->priv_due_ms = ring_now_ms() + delay_ms;
	t->priv_armed = true;
	while (*at && (*at)->priv_due_ms <= t->priv_due_ms)
		at = &(*at)->priv_next;
	t->priv_next = *at;
	*at = t;
}

void ring_timer_stop(struct ring *r, struct ring_timer *t)
{
	struct ring_timer **at = &r->timers;

	assert_owner(r);
	if (!t->priv_armed)
		return;
	while (*at != t)
		at = &(*at)->priv_next;
	*at = t->priv_next;
	t->priv_armed = false;
}

void ring_defer(struct ring *r, struct ring_defer *d)
{
	assert_owner(r);
	if (d->priv_queued)
		return;
	d->priv_queued = true;
	d->priv_next = NULL;
	*r->deferred_tail = d;
	r->deferred_tail = &d->priv_next;
}

/* ---- the loop ---- */

static void run_timers(struct ring *r)
{
	struct ring_timer *t;
	uint64_t now;

	if (!r->timers)
		return;
	now = ring_now_ms();
	while ((t = r->timers) && t->priv_due_ms <= now) {
		r->timers = t->priv_next;
		t->priv_armed = false;
		t->fn(t);
	}
}

static void run_own_posts(struct ring *r)
{
	struct ring_posted *p = r->own, *next;

	r->own = NULL;
	r->own_tail = &r->own;
	for (; p; p = next) {
		next = p->next;
		p->fn(p->arg);
		posted_free(r, p);
	}
}

static bool has_deferred(const struct ring *r)
{
	return r->deferred || r->own;
}

/* What this turn put off; things that put themselves off again and again do
 * not keep the kernel waiting. */
static void run_deferred(struct ring *r)
{
	struct ring_defer *d;

	for (int i = 0; i < RING_DEFER_ROUNDS && has_deferred(r); i++) {
		run_own_posts(r);
		while (!r->own && (d = r->deferred)) {
			r->deferred = d->priv_next;
			if (!r->deferred)
				r->deferred_tail = &r->deferred;
			d->priv_queued = false;
			d->fn(d);
		}
	}
}

/* Is something done, or would entering the kernel make it so? Looks at shared
 * memory only. */
static bool something_ready(struct ring *r)
{
	unsigned flags = IO_URING_READ_ONCE(*r->u.sq.kflags);

	return io_uring_cq_ready(&r->u) > 0 ||
	       (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW));
}

/* Are more tasks runnable in the machine than it has cores for us? A spinner
 * would take one from somebody, perhaps from who makes what it waits for. */
static bool is_crowded(const struct ring *r)
{
	char text[128];
	unsigned running;
	ssize_t len = pread(r->crowd_fd, text, sizeof(text) - 1, 0);

	if (len <= 0)
		return true;
	text[len] = 0;
	/* "0.20 0.18 0.12 1/80 11206": the fourth, us included. */
	return sscanf(text, "%*s %*s %*s %u/", &running) != 1 ||
	       running > (unsigned)r->core_count;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Stays awake for the next completion, for a while. True: there is one. */
static bool wait_awake(struct ring *r, uint64_t start_ns)
{
	uint64_t now = start_ns;

	r->stats.spins++;
	while (now - start_ns < r->spin_ns) {
		for (int i = 0; i < 16; i++) {
			if (something_ready(r)) {
				r->stats.spin_hits++;
				return true;
			}
			cpu_relax();
		}
		now = ring_now_ns();
	}
	return false;
}

/* Averages the last few waits, each counted at most as a few spins so that a
 * pause is forgotten soon after work begins again. */
static void note_gap(struct ring *r, bool disk, uint64_t gap_ns)
{
	uint64_t top = 4 * r->spin_ns;
	uint64_t *avg = &r->gap_ns[disk];

	*avg = (3 * u64_min(*avg, top) + u64_min(gap_ns, top)) / 4;
}

static int enter_and_sleep(struct ring *r)
{
	struct __kernel_timespec ts, *tsp = NULL;
	struct io_uring_cqe *cqe;
	uint64_t now;
	int rv;

	if (r->timers) {
		now = ring_now_ms();
		if (r->timers->priv_due_ms > now)
			now = r->timers->priv_due_ms - now;
		else
			now = 0;
		ts.tv_sec = (int64_t)(now / 1000);
		ts.tv_nsec = (int64_t)(now % 1000) * 1000000;
		tsp = &ts;
	}
	r->stats.enters++;
	r->stats.blocked++;
	rv = io_uring_submit_and_wait_timeout(&r->u, &cqe, 1, tsp, NULL);
	return rv;
}

/* A sleeping core of a virtual machine takes 20-40 us to wake, more than the
 * work it wakes for. So when completions have lately come sooner than that,
 * it is worth staying awake for the next one; an idle daemon's average gap is
 * far above and it sleeps at once. */
static bool may_spin(struct ring *r, bool disk, uint64_t now_ns)
{
	if (r->gap_ns[disk] > r->spin_ns + RING_WAKE_NS ||
	    now_ns < r->spin_off_until_ns)
		return false;
	if (now_ns - r->crowd_checked_ns < RING_CROWD_CHECK_NS)
		return true;
	r->crowd_checked_ns = now_ns;
	if (!is_crowded(r))
		return true;
	r->spin_off_until_ns = now_ns + RING_SPIN_PENALTY_NS;
	return false;
}

static int enter(struct ring *r)
{
	r->stats.enters++;
	return io_uring_submit_and_get_events(&r->u);
}

static int wait_turn(struct ring *r)
{
	bool disk = r->stats.dev_in_flight > 0;
	uint64_t start;
	int rv = 0;

	if (r->stop || something_ready(r) || has_deferred(r)) {
		note_gap(r, disk, 0);
		return enter(r);
	}
	if (r->spin_ns == 0)
		return enter_and_sleep(r);
	start = ring_now_ns();
	if (may_spin(r, disk, start)) {
		if (io_uring_sq_ready(&r->u) > 0)
			rv = enter(r);
		if (rv >= 0 && wait_awake(r, start))
			rv = enter(r);
		else if (rv >= 0)
			rv = enter_and_sleep(r);
	} else {
		rv = enter_and_sleep(r);
	}
	note_gap(r, disk, ring_now_ns() - start);
	return rv;
}

static void run_completions(struct ring *r)
{
	struct io_uring_cqe *cqe;
	struct ring_op *op;
	unsigned count = 0;
	uint32_t flags;
	int res;

	/* One by one and not in a batch: a callback that fills the submission
	 * queue enters the kernel, which may move the completion queue. */
	while (count++ < RING_TURN_MAX && io_uring_cq_ready(&r->u) > 0 &&
	       io_uring_peek_cqe(&r->u, &cqe) == 0) {
		op = io_uring_cqe_get_data(cqe);
		res = cqe->res;
		flags = cqe->flags;
		io_uring_cqe_seen(&r->u, cqe);
		if (op)
			op->done(op, res, flags);
	}
}

static int turn(struct ring *r)
{
	int rv = wait_turn(r);

	r->stats.turns++;
	/* -ETIME: a timer is due. -EBUSY, -EAGAIN: completions first. */
	if (rv < 0 && rv != -ETIME && rv != -EINTR && rv != -EBUSY &&
	    rv != -EAGAIN)
		return rv;
	run_completions(r);
	run_timers(r);
	run_deferred(r);
	return 0;
}

int ring_run_until(struct ring *r, const bool *flag)
{
	int rv = 0;

	assert_owner(r);
	run_deferred(r);
	while (!*flag && rv == 0)
		rv = turn(r);
	return rv;
}

int ring_run(struct ring *r)
{
	r->stop = false;
	return ring_run_until(r, &r->stop);
}

void ring_stop(struct ring *r)
{
	r->stop = true;
}
