/* Log daemons as metad sees them: registration, heartbeats, serving leases.
 * What of it is durable is in the cluster map.
 */
#ifndef METAD_LOG_PEERS_H
#define METAD_LOG_PEERS_H

#include "metad/request.h"

/* Volatile; of the last registration or heartbeat since metad started. */
struct log_peer {
	uint32_t id;
	uint64_t boot_id;
	uint64_t total_bytes, free_bytes;
	bool draining;
	uint64_t heard_ms; /* uv_now() */
	uint64_t conn_id; /* over which that came */
	uint64_t lease_ms; /* it may serve until then, uv_now() */
};

int log_peers_new(struct metad *md, struct log_peers **ret);
void log_peers_free(struct log_peers *p);
/* NULL: not heard of since metad started. */
const struct log_peer *log_peers_find(struct log_peers *p, uint32_t id);
/* Does it live, as far as is known? */
bool log_peers_is_up(struct log_peers *p, uint32_t id);

/* Handlers. */
void log_peers_register(struct request *r);
void log_peers_heartbeat(struct request *r);
void log_peers_query(struct request *r);

#endif
