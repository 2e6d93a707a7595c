/* The cluster map: who is there, and where each slot's blocks lie. Pure.
 *
 * Owned by metad, pushed by epoch: who sees a frame with a larger epoch than
 * its own map's fetches the map before it answers.
 */
#ifndef COMMON_CMAP_H
#define COMMON_CMAP_H

#include "common/limits.h"
#include "common/wire.h"

#define CMAP_ADDR_LEN_MAX 63u
#define CMAP_SLOT_NONE UINT16_MAX

struct cmap_daemon {
	uint32_t id; /* > 0 */
	char addr[CMAP_ADDR_LEN_MAX + 1]; /* numeric IPv4 or IPv6, or name */
	uint16_t port;
	uint64_t store_id_hi; /* 0,0: has not registered yet */
	uint64_t store_id_lo;
	uint8_t state; /* enum cmap_state */
};

enum cmap_state {
	CMAP_STATE_NEW = 0, /* expected, never seen */
	CMAP_STATE_UP = 1,
	CMAP_STATE_LOST = 2, /* came back older, or with another store */
};

/* A log daemon: lends memory to logs (common/wire_log.h). */
struct cmap_log {
	uint32_t id; /* > 0 */
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	char rdma_addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t rdma_port; /* 0: no RDMA */
	char domain[CMAP_ADDR_LEN_MAX + 1]; /* failure domain */
	uint64_t boot_id; /* 0: has not registered yet */
};

struct cmap {
	uint64_t epoch;
	uint64_t cluster_id;
	uint32_t daemon_count;
	uint32_t replica_count; /* 1 */
	struct cmap_daemon *daemons; /* [daemon_count] */
	/* slots[s][r]: index into daemons, CMAP_SLOT_NONE when unused */
	uint16_t slots[SLOT_COUNT][REPLICA_COUNT_MAX];
	uint32_t session_count;
	uint64_t *sessions; /* live ones, ascending */
	uint32_t log_count;
	struct cmap_log *logs; /* by id, ascending */
};

/* An empty map (epoch 0, no daemons, every slot NONE). NULL: out of memory. */
struct cmap *cmap_new(void);
void cmap_free(struct cmap *m);
/* Deep copy or NULL. */
struct cmap *cmap_dup(const struct cmap *m);

/* Adds a daemon. Returns its index or -EEXIST, -EINVAL (id 0), -ENOSPC,
 * -ENOMEM. */
int cmap_add_daemon(struct cmap *m, const struct cmap_daemon *d);
/* Fills the slot table so that consecutive slots cycle through all daemons. */
void cmap_fill_slots(struct cmap *m);
int cmap_find_daemon(const struct cmap *m, uint32_t id); /* index or -ENOENT */
bool cmap_session_live(const struct cmap *m, uint64_t session);
/* Adds a log daemon, or replaces the one of that id. Returns 0, -EINVAL (id 0),
 * -ENOSPC, -ENOMEM. */
int cmap_set_log(struct cmap *m, const struct cmap_log *l);
const struct cmap_log *cmap_find_log(const struct cmap *m, uint32_t id);

size_t cmap_encoded_size(const struct cmap *m);
void cmap_encode(struct wire_out *o, const struct cmap *m);
/* Returns 0 and a new map the caller frees, or -EBADMSG, -ENOMEM. Every
 * index and count is checked. */
int cmap_decode(const void *p, size_t len, struct cmap **ret) must_check;

#endif
