/* The log daemon's service: who may ask, and the handlers between frames and
 * the table of what is lent (logd/lend.h; design sections 3 and 8).
 *
 * - HELLO of a session is answered when the cluster map has the session and
 *   every older connection of it is closed; what had come over that and was
 *   not dealt with is gone. The first one needs the serving lease, as does
 *   ALLOC of a log's first region; nothing else needs metad.
 * - LOG_FENCE closes the connections of whoever wrote in an older epoch.
 *
 * Everything runs on the loop's thread.
 */
#ifndef LOGD_SERVE_H
#define LOGD_SERVE_H

#include "common/cmap.h"
#include "logd/conn.h"
#include "logd/lend.h"

struct lserve;
struct lverbs;
struct stats;

struct lserve_options {
	struct loop *loop;
	struct lend *lend;
	struct gate *gate; /* NULL: nobody is asked for a key */
	const char *addr; /* to listen at */
	uint16_t port; /* 0: any */
	uint64_t cluster_id;
	uint32_t daemon_id;
	uint64_t boot_id;
	unsigned conn_max;
	bool huge, pinned; /* the memory */
	struct lverbs *verbs; /* NULL: no RDMA */
	/* The map is too old: fetch it, then lserve_set_map(). May be called
	 * again before that. */
	void (*want_map)(void *arg);
	/* ADMIN_STOP came. */
	void (*stop)(void *arg);
	/* ADMIN_DRAIN did its work on @lend. */
	void (*drained)(void *arg);
	void *arg;
};

/* Starts to listen. Strings and objects: borrowed. Returns 0, or -errno with a
 * sentence in @why. */
int lserve_new(const struct lserve_options *o, struct lserve **ret, char *why,
	       size_t why_size) must_check;
void lserve_free(struct lserve *s); /* NULL: no-op */
/* At each turn's end. */
void lserve_flush(struct lserve *s);
/* A log's writer is fenced: his connections close. For lend_ops->fenced(). */
void lserve_fenced(struct lserve *s, const struct lend_log *g);
/* Is the writer of @g connected, and has it heard that memory is wanted back?
 * What was sent to it may still lie in a socket of a process that is stopped:
 * what shows it is that it asks again. */
bool lserve_hears(const struct lserve *s, const struct lend_log *g);

/* @m is taken; an older one than ours is dropped. Also says that the map was
 * fetched just now: sessions that it lacks are dead. */
void lserve_set_map(struct lserve *s, struct cmap *m);
uint64_t lserve_epoch(const struct lserve *s);
/* CLOCK_BOOTTIME, which goes on while the machine sleeps, as metad's does. */
uint64_t lserve_lease_clock_ms(void);
void lserve_set_lease(struct lserve *s, uint64_t until_ms);
/* One word for people about the daemon's place in the cluster; borrowed. */
void lserve_set_state(struct lserve *s, const char *state);

/* ---- serve_stats.c ---- */
/* All counters; they live as long as @s. 0 or -ENOMEM. */
int lserve_stats_fill(struct lserve *s, struct stats *to);
/* The caller's; NULL: out of memory. */
char *lserve_status_json(struct lserve *s);

#endif
