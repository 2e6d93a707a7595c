/* The log daemon's loop: descriptors, timers, what other threads want done.
 *
 * Invariants
 * - One thread owns a loop: the one that runs it. Everything here is called on
 *   it, except loop_post().
 * - A turn: events, posts, timers, then the turn's end (loop_new()), then it
 *   waits. So what a turn's requests are answered leaves in one call each.
 */
#ifndef LOGD_LOOP_H
#define LOGD_LOOP_H

#include "common/base.h"

struct loop;

/* A watched descriptor; the caller's memory while it is. */
struct loop_fd {
	/* @events: EPOLL*. May delete any descriptor, its own too: events of
	 * deleted ones do not come any more. */
	void (*fn)(struct loop_fd *f, uint32_t events);
	int fd;
	bool priv_there;
};

struct loop_timer {
	void (*fn)(struct loop_timer *t);
	uint64_t priv_due_ms;
	struct loop_timer *priv_next;
	bool priv_armed;
};

struct loop_stats {
	uint64_t turns, sleeps, spins, spin_hits;
};

/* @spin_us: how long a wait may stay awake while requests come that fast; 0:
 * never. @turn_end: see above. 0 or -errno. */
int loop_new(uint32_t spin_us, void (*turn_end)(void *arg), void *arg,
	     struct loop **ret) must_check;
void loop_free(struct loop *l); /* NULL: no-op */
/* Turns until loop_stop(). 0 or -errno. */
int loop_run(struct loop *l) must_check;
void loop_stop(struct loop *l);
const struct loop_stats *loop_stats(const struct loop *l);

/* @events: EPOLLIN, EPOLLOUT. 0 or -errno. */
int loop_add(struct loop *l, struct loop_fd *f, uint32_t events) must_check;
void loop_change(struct loop *l, struct loop_fd *f, uint32_t events);
void loop_del(struct loop *l, struct loop_fd *f); /* before close() */

void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t delay_ms);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

/* Runs @fn(@arg) on the loop's thread, in the order of the posts, never before
 * return. Any thread. @p: the caller's until @fn begins. */
struct loop_post {
	void (*fn)(void *arg);
	void *arg;
	struct loop_post *priv_next;
	bool priv_queued;
};
/* One that is queued already stays where it is. */
void loop_post(struct loop *l, struct loop_post *p);

/* CLOCK_MONOTONIC, as of the turn's begin. */
uint64_t loop_now_ms(const struct loop *l);
uint64_t loop_now_ns(const struct loop *l);

#endif
