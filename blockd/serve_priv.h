/* Inside of serve.c (gates, answers), serve_ops.c (handlers), peer.c (HELLO,
 * fence), serve_scrub.c and serve_stats.c. */
#ifndef BLOCKD_SERVE_PRIV_H
#define BLOCKD_SERVE_PRIV_H

#include "blockd/serve.h"
#include "blockd/serve_validate.h"

#define SERVE_FENCE_MAX SESSION_COUNT_MAX
/* Frames that may not be served now wait this long; then the connection is
 * closed, and its peer comes again or gives up by its own deadline. */
#define SERVE_WAIT_MS 10000u
/* A wish for a newer map is repeated, as the answer may have been older. */
#define SERVE_MAP_AGAIN_MS 200u
/* Header and body of most answers. */
#define SERVE_HEAD_SIZE 256u

#define HIST_BUCKET_COUNT 24u /* of 2^i microseconds */
struct hist {
	uint64_t buckets[HIST_BUCKET_COUNT];
	uint64_t count, sum_us;
};

enum serve_class {
	CLASS_READ,
	CLASS_WRITE, /* acknowledged from memory */
	CLASS_WRITE_SYNC,
	CLASS_SYNC,
	CLASS_OTHER,
	CLASS_COUNT,
};

struct serve_counters {
	struct hist latency[CLASS_COUNT];
	uint64_t errors[CLASS_COUNT];
	uint64_t invalid; /* requests refused by serve_validate() */
	uint64_t corrupt; /* ... with wrong sums or fields: closed */
	uint64_t hello_stale; /* older incarnations, dead sessions */
	uint64_t fences, replaced; /* connections closed by them */
	uint64_t waits_lease, waits_map, wait_timeouts;
	uint64_t bytes_read, bytes_written;
};

/* Who lies behind connections: a session, or a daemon. Remembers the largest
 * incarnation for as long as the session lives. */
struct peer {
	uint8_t role;
	uint64_t session; /* clients */
	uint32_t id; /* daemons */
	uint64_t incarnation;
	unsigned conns; /* attached and not drained */
	struct peer *next;
};

/* The owner's part of a connection. */
struct serve_conn {
	struct serve_who who;
	struct peer *peer; /* attached; NULL: not yet, or a tool */
	uint64_t wait_since_ms; /* 0: does not wait */
	uint64_t map_fetches; /* of serve when HELLO came first */
	bool map_asked;
};

struct serve_fence {
	uint64_t session, epoch;
};

/* A request on its way, in its frame's extra room. */
struct serve_req {
	struct store_req store;
	struct conn_out out;
	struct serve *s;
	struct conn *c;
	struct frame *f;
	struct serve_msg m;
	bool checked; /* serve_validate() was done */
	bool stop; /* the daemon stops when this is answered */
	uint64_t start_ns;
	struct store_read_out rd;
	uint8_t *heap; /* header and body that are too large for @head */
	size_t heap_len;
	uint64_t *inos; /* of BLK_PURGE */
	struct serve_req *next; /* fences that wait */
	uint8_t head[SERVE_HEAD_SIZE];
};

struct serve {
	struct serve_options o;
	struct conn_set *conns;
	struct cmap *map; /* NULL: not fetched yet */
	uint64_t map_fetches;
	uint64_t lease_until_ms; /* 0: metad has not accepted the store yet */
	const char *state;
	struct peer *peers;
	struct serve_fence fences[SERVE_FENCE_MAX];
	unsigned fence_count;
	struct serve_req *fence_waits;
	struct ring_timer wait_timer; /* while something waits */
	struct {
		struct store_req store;
		bool running;
		struct serve_req *asker; /* NULL: its connection went */
		uint64_t units_read, units_bad; /* of this run */
		struct ring_timer timer;
		uint64_t since_s; /* the interval's begin, UNIX time */
		/* Of the last one that came to its end; 0: there was none. */
		uint64_t last_s, last_read, last_bad;
	} scrub;
	struct serve_counters n;
	uint64_t start_ms;
};

/* serve.c */
/* @c's frame cannot be handled now; returns false for ops->frame. */
bool blk_serve_wait(struct serve *s, struct conn *c, bool for_map);
bool blk_serve_lease_ok(const struct serve *s);
void blk_serve_resume_all(struct serve *s);
/* Begins an answer whose body takes at most @cap bytes. NULL: out of memory
 * (the connection was closed and the request freed). */
uint8_t *blk_serve_body(struct serve_req *q, size_t cap);
/* Gives back what it took. */
void blk_serve_body_free(struct serve_req *q);
/* Sends it: @len bytes of what blk_serve_body() gave. */
void blk_serve_reply(struct serve_req *q, int err, size_t len, const void *data,
		 uint32_t data_len);
/* The usual body, blk_reply. */
void blk_serve_reply_plain(struct serve_req *q, int err);

/* serve_ops.c: a valid request whose time has come; as ops->frame */
bool serve_dispatch(struct serve_req *q);

/* serve_scrub.c */
void serve_scrub(struct serve_req *q); /* it was asked for */
/* @c was closed: nobody waits for the scrub that it asked for. */
void serve_scrub_forget(struct serve *s, const struct conn *c);
void serve_scrub_begin(struct serve *s);
void serve_scrub_stop(struct serve *s); /* no further one begins */

/* peer.c */
bool peer_hello(struct serve_req *q); /* as ops->frame */
/* Refuses one of another major. True, as ops->frame. */
bool peer_hello_other_version(struct serve_req *q);
void peer_fence(struct serve_req *q);
void peer_conn_drained(struct serve *s, struct conn *c);
/* The map changed: connections of dead sessions are closed. */
void peer_map_changed(struct serve *s);
/* Has a session that is over operations that have not ended? */
bool peer_dead_busy(const struct serve *s);
void peer_free_all(struct serve *s);

/* serve_stats.c */
void hist_add(struct hist *h, uint64_t ns);

#endif
