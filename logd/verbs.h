/* One-sided writes into lent memory: a listener of the RDMA manager, a
 * protection domain and one queue pair for each log that is written so, and a
 * registration for each of its regions. Once a connection is there the daemon
 * does nothing for a write.
 *
 * Invariants
 * - A key is good on the queue pairs of its log alone.
 * - A connection is made with a token, good once and for a short time, that was
 *   given to the log's writer; giving one ends the connection before it.
 * - When lverbs_revoke() returns nobody can write to the region; when
 *   lverbs_end() returns no queue pair of the log is left.
 *
 * Everything runs on the loop's thread.
 */
#ifndef LOGD_VERBS_H
#define LOGD_VERBS_H

#include "logd/lend.h"
#include "logd/loop.h"

struct lverbs;

struct lverbs_options {
	struct loop *loop;
	struct lend *lend;
	const char *addr; /* numeric, of one device */
	uint16_t port;
	uint64_t cluster_id;
};

struct lverbs_stats {
	uint64_t tokens, accepted, rejected, disconnected, ended;
	uint64_t errors; /* calls that failed */
	uint64_t events; /* asynchronous ones */
	uint64_t stuck; /* registrations that did not end */
	/* now */
	uint64_t connections, registrations;
	uint64_t device; /* 1: it is there */
};

/* Listens. Returns 0, or -errno with a sentence in @why. */
int lverbs_new(const struct lverbs_options *o, struct lverbs **ret, char *why,
	       size_t why_size) must_check;
/* Ends all connections and registrations. NULL: no-op. */
void lverbs_free(struct lverbs *v);
/* Is the device (still) there? */
bool lverbs_there(const struct lverbs *v);
const struct lverbs_stats *lverbs_stats(const struct lverbs *v);

/* A token for the log's writer, after the connection there was has ended.
 * -EOPNOTSUPP: the device is gone; -EIO. */
int lverbs_token(struct lverbs *v, struct lend_log *g, uint64_t *ret)
	must_check;

/* struct lend_ops, with @v as its owner found. */
int lverbs_grant(struct lverbs *v, struct lend_log *g, struct lend_region *r)
	must_check;
void lverbs_revoke(struct lverbs *v, struct lend_log *g,
		   struct lend_region *r);
void lverbs_end(struct lverbs *v, struct lend_log *g);

#endif
