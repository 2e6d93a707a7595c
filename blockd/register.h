/* The daemon's standing with metad: registration, heartbeats (which carry the
 * serving lease) and the cluster map.
 *
 * An rpc_net thread does the talking; what comes back is posted to the loop,
 * where everything else here runs.
 */
#ifndef BLOCKD_REGISTER_H
#define BLOCKD_REGISTER_H

#include "blockd/serve.h"
#include "common/conf.h"

struct reg;

struct reg_options {
	struct ring *ring;
	struct store *store;
	struct serve *serve;
	const struct conf *conf;
	uint32_t daemon_id;
	uint64_t boot_id;
	const char *addr; /* where clients reach us */
	uint16_t port;
};

/* Starts to connect. All borrowed until reg_close()'s callback. 0 or -errno. */
int reg_new(const struct reg_options *o, struct reg **ret) must_check;
/* Lets the serving lease lapse; @cb when nothing is on its way; @r is gone. */
void reg_close(struct reg *r, void (*cb)(void *arg), void *arg);
/* Fetches the map soon; blk_serve_set_map() gets it. */
void reg_want_map(struct reg *r);

#endif
