/* The block daemon's loop: one io_uring that carries sockets, disk and
 * wake-ups, and the real struct dev on top of it.
 *
 * Invariants
 * - One thread owns a ring: the one that called ring_new(). Everything here is
 *   called on it, except ring_post() and the vtable's post().
 * - A callback never runs inside the call that started its operation.
 * - A turn of the loop: completions, then timers, then what was put off with
 *   ring_defer(), then one io_uring_enter() that submits all of it and waits.
 *   So a reply made by a completion leaves in the same turn.
 */
#ifndef BLOCKD_RING_H
#define BLOCKD_RING_H

#include "blockd/dev.h"
#include "common/limits.h"

struct io_uring_sqe;
struct ring;

/* One operation; the caller's memory until @done. */
struct ring_op {
	/* @res: count or -errno; @flags: IORING_CQE_F_*. */
	void (*done)(struct ring_op *op, int res, uint32_t flags);
};

struct ring_timer {
	void (*fn)(struct ring_timer *t);
	uint64_t priv_due_ms;
	struct ring_timer *priv_next;
	bool priv_armed;
};

/* Work for the end of this turn, before the kernel is entered. */
struct ring_defer {
	void (*fn)(struct ring_defer *d);
	struct ring_defer *priv_next;
	bool priv_queued;
};

struct ring_stats {
	uint64_t turns; /* of the loop */
	uint64_t enters; /* system calls */
	uint64_t blocked; /* turns that went to sleep */
	uint64_t spins; /* turns that waited awake */
	uint64_t spin_hits; /* ... and were rewarded */
	uint64_t dev_reads, dev_writes, dev_flushes;
	uint64_t dev_errors;
	uint64_t dev_in_flight;
};

/* @spin_us: how long a wait may stay awake after recent activity; 0: never.
 * Returns 0, or -errno with a sentence for the user in @why (io_uring may be
 * forbidden: -EPERM, -ENOSYS). */
int ring_new(unsigned spin_us, struct ring **ret, char *why, size_t why_size)
	must_check;
/* No operation may be in flight. NULL: no-op. */
void ring_free(struct ring *r);

/* Turns until ring_stop(). Returns 0, or -errno when the kernel refuses. */
int ring_run(struct ring *r) must_check;
void ring_stop(struct ring *r);
/* Turns until *flag is true (start-up, tests). */
int ring_run_until(struct ring *r, const bool *flag) must_check;

/* An entry to prepare with io_uring_prep_*(); its completion goes to @op.
 * Never NULL: a full queue is submitted first. */
struct io_uring_sqe *ring_sqe(struct ring *r, struct ring_op *op);

void ring_timer_start(struct ring *r, struct ring_timer *t, uint64_t delay_ms);
void ring_timer_stop(struct ring *r, struct ring_timer *t);
void ring_defer(struct ring *r, struct ring_defer *d);

/* Milliseconds and nanoseconds of CLOCK_MONOTONIC, now. */
uint64_t ring_now_ms(void);
uint64_t ring_now_ns(void);

/* Runs @fn(@arg) on the loop's thread, never before return. Any thread; from
 * the loop's own it costs no system call and runs in the same turn, before
 * what other threads posted earlier. */
void ring_post(struct ring *r, void (*fn)(void *arg), void *arg);
/* The same, but behind everything that was posted before by any thread. */
void ring_post_last(struct ring *r, void (*fn)(void *arg), void *arg);

struct ring_stats *ring_stats(struct ring *r);

/* ---- the device: numbered files under @dir (blockd/dev.h) ---- */
/* @read_only: nothing will be written, as the disk may be read-only. Returns 0
 * or -errno (the directory cannot be opened). */
int ring_dev_new(struct ring *r, const char *dir, bool read_only,
		 struct dev **ret) must_check;
/* Closes its files; nothing may be in flight. NULL: no-op. */
void ring_dev_free(struct dev *d);

#endif
