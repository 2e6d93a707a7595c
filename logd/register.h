/* The daemon's standing with metad: registration, heartbeats (which carry the
 * serving lease, and ask which logs nobody owns) and the cluster map.
 *
 * An rpc_net thread does the talking; what comes back is posted to the loop,
 * where everything else here runs.
 */
#ifndef LOGD_REGISTER_H
#define LOGD_REGISTER_H

#include "common/conf.h"
#include "logd/serve.h"

struct lreg;
struct lverbs;

struct lreg_options {
	struct loop *loop;
	struct lend *lend;
	struct lserve *serve;
	const struct conf *conf;
	uint32_t daemon_id;
	uint64_t boot_id;
	const char *addr; /* where clients reach us */
	uint16_t port;
	const char *rdma_addr;
	uint16_t rdma_port;
	const struct lverbs *verbs; /* NULL: no RDMA */
	const char *domain;
};

/* Starts to connect. All borrowed until lreg_free(). 0 or -errno. */
int lreg_new(const struct lreg_options *o, struct lreg **ret) must_check;
void lreg_free(struct lreg *r); /* NULL: no-op */
/* Fetches the map soon; lserve_set_map() gets it. */
void lreg_want_map(struct lreg *r);
/* A heartbeat now: things have changed. */
void lreg_tell(struct lreg *r);

#endif
