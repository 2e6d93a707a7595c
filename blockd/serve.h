/* The block daemon's service: who may ask, when it may be answered, and the
 * handlers between frames and the store (design sections 3 and 5).
 *
 * Rules kept here
 * - A client is served only under the serving lease and with a map at least as
 *   new as the one its frames name; otherwise its frames wait, for a bounded
 *   time.
 * - A connection of a session is answered only when every older connection of
 *   it is closed and whatever had begun over it has ended in the store. So
 *   nothing that was delayed can come after what the session sends next.
 * - After FENCE is answered nothing of that session has any effect.
 *
 * Everything runs on the loop's thread.
 */
#ifndef BLOCKD_SERVE_H
#define BLOCKD_SERVE_H

#include "blockd/conn.h"
#include "blockd/store.h"
#include "common/cmap.h"

struct serve;

struct serve_options {
	struct ring *ring;
	struct store *store;
	struct pool *pool;
	struct gate *gate; /* NULL: nobody is asked for a key */
	const char *addr; /* to listen at */
	uint16_t port; /* 0: any */
	uint64_t cluster_id;
	uint32_t daemon_id;
	uint64_t boot_id;
	uint64_t disk; /* common/disk_share.h */
	unsigned conn_max;
	uint64_t conn_bytes_max;
	uint64_t scrub_bytes_per_s;
	uint64_t scrub_interval_ms; /* 0: only when asked for */
	const char *dir; /* of the store: notes of scrubs */
	/* The map is too old: fetch it, then blk_serve_set_map(). May be called
	 * again before that. */
	void (*want_map)(void *arg);
	/* ADMIN_STOP came. */
	void (*stop)(void *arg);
	void *arg;
};

/* Starts to listen. Strings and objects: borrowed. Returns 0, or -errno with a
 * sentence in @why. */
int blk_serve_new(const struct serve_options *o, struct serve **ret, char *why,
	      size_t why_size) must_check;
/* Closes every connection; @cb when all requests have left the store, but a
 * scrub, which ends when the store is closed. */
void blk_serve_close(struct serve *s, void (*cb)(void *arg), void *arg);
/* After blk_serve_close()'s and store_close()'s callbacks. NULL: no-op. */
void blk_serve_free(struct serve *s);

uint16_t blk_serve_port(const struct serve *s);
/* @m is taken; an older one than ours is dropped. Also says that the map was
 * fetched just now: sessions that it lacks are dead. */
void blk_serve_set_map(struct serve *s, struct cmap *m);
uint64_t blk_serve_epoch(const struct serve *s);
/* The clock of leases: it goes on while the machine sleeps, as metad's does.
 * CLOCK_BOOTTIME. */
uint64_t blk_serve_lease_clock_ms(void);
/* Clients are served until @until_ms of that clock. */
void blk_serve_set_lease(struct serve *s, uint64_t until_ms);
/* One word for people about the daemon's place in the cluster; borrowed. */
void blk_serve_set_state(struct serve *s, const char *state);

/* Counters for people and collectors. Returned text is the caller's to free;
 * NULL: out of memory. */
char *blk_serve_status_json(struct serve *s);
char *blk_serve_stats_json(struct serve *s);
char *blk_serve_openmetrics(struct serve *s);

#endif
