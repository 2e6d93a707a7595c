/* Inside of serve.c (requests), serve_hello.c (who asks), serve_stats.c. */
#ifndef LOGD_SERVE_PRIV_H
#define LOGD_SERVE_PRIV_H

#include "common/stats.h"
#include "logd/serve.h"
#include "logd/validate.h"

/* A HELLO that may not be answered now waits this long; then the connection is
 * closed, and its peer comes again. */
#define SERVE_WAIT_MS 10000u
/* Who asks each second and has not asked for so long may be stopped. */
#define SERVE_TOLD_MS 3000u
/* A wish for a newer map is repeated, as the answer may have been older. */
#define SERVE_MAP_AGAIN_MS 200u

enum serve_class {
	CLASS_WRITE,
	CLASS_ALLOC,
	CLASS_FENCE,
	CLASS_READ,
	CLASS_OTHER,
	CLASS_COUNT,
};

/* Who lies behind connections: a session, or a daemon. Remembers the largest
 * incarnation for as long as the session lives. */
struct lpeer {
	uint8_t role;
	uint64_t session; /* clients */
	uint32_t id; /* daemons */
	uint64_t incarnation;
	struct lconn *conn; /* NULL: none now */
	/* Over this connection: its last LOG_PING was answered while memory was
	 * wanted back; one came after such an answer, lately (0: none). */
	bool told;
	uint64_t told_ms;
	struct lpeer *next;
};

/* The owner's part of a connection. */
struct lserve_conn {
	struct lend_who who;
	struct lpeer *peer; /* NULL: not yet, or a tool */
	uint64_t wait_since_ms; /* 0: does not wait */
	uint64_t map_fetches; /* of serve when HELLO came first */
	bool map_asked;
};

struct lserve {
	struct lserve_options o;
	struct lconn_set *conns;
	struct cmap *map; /* NULL: not fetched yet */
	uint64_t map_fetches;
	uint64_t lease_until_ms;
	const char *state;
	struct lpeer *peers;
	const struct lconn *asker; /* whose request is dealt with */
	struct loop_timer wait_timer; /* while something waits */
	uint64_t start_ms;
	struct stats *stats; /* what answers ADMIN_STATS */
	struct {
		uint64_t invalid, corrupt, hello_refused, replaced, fenced;
		uint64_t waits_map, waits_lease, wait_timeouts, no_lease;
		uint64_t errors[CLASS_COUNT];
		struct stats_hist *latency[CLASS_COUNT]; /* NULL: not yet */
	} n;
};

/* A request that is dealt with. */
struct lreq {
	struct lserve *s;
	struct lconn *c;
	const struct frame *f;
	struct lend_msg m;
	uint64_t start_ns;
};

/* serve.c */
bool lserve_lease_ok(const struct lserve *s);
/* Answers with @len bytes of body and @data_len of data. */
void lserve_reply(struct lreq *q, int err, const void *body, size_t len,
		  const void *data, size_t data_len);
/* The usual body, log_reply. */
void lserve_reply_plain(struct lreq *q, int err, uint32_t flags);
/* Its frame waits. Returns false, for ops->frame. */
bool lserve_wait(struct lserve *s, struct lconn *c, bool for_map);

/* serve_hello.c */
bool lserve_hello(struct lreq *q); /* as ops->frame */
/* Refuses one of another major. True, as ops->frame. */
bool lserve_hello_other_version(struct lreq *q);
void lserve_conn_gone(struct lserve *s, struct lserve_conn *sc);
/* A LOG_PING of its is being answered. */
void lserve_told(struct lserve *s, const struct lserve_conn *sc);
/* The map changed: connections of dead sessions are closed. */
void lserve_map_changed(struct lserve *s);
void lserve_peers_free(struct lserve *s);

#endif
