/* What raft.c and fsm.c share. */
#ifndef METAD_RAFT_PRIV_H
#define METAD_RAFT_PRIV_H

#include <raft.h>
#include <raft/uv.h>

#include "metad/raft.h"

#define METARAFT_THRESHOLD_NEVER (1u << 30)

/* A sealed batch, from metaraft_seal() to libraft's answer. */
struct batch {
	struct raft_apply req;
	struct batch *next;
	uint8_t *buf; /* libraft's after raft_apply() */
	size_t len;
	uint64_t number;
	uint64_t pos; /* stream position after its last command */
	uint64_t start_ns;
};

/* A snapshot on the way: made on the loop, filled on a pool thread. */
struct snapshot_job {
	struct sm_snap *snap; /* NULL: none on the way */
	raft_index index; /* libraft counts it as of this entry */
	uint64_t log_bytes; /* what the log had grown by */
	uint64_t size;
	uint64_t start_ns;
};

struct metaraft {
	uv_loop_t *loop;
	struct sm *sm;
	const struct metaraft_ops *ops;
	void *arg;
	char *dir;
	uint32_t id;
	char address[32]; /* libraft wants one; nobody connects to it */

	struct raft raft;
	struct raft_io io;
	struct raft_fsm fsm;
	struct raft_uv_transport transport;
	uv_timer_t window;
	uv_timer_t trim; /* runs after a snapshot */

	struct {
		uint8_t *buf; /* head not filled in yet */
		size_t len, cap;
		uint32_t count;
		uint64_t pos;
		uint64_t since_ms;
	} open;
	struct batch *spare; /* for the open batch */
	struct batch *sealed, **sealed_tail; /* waiting for raft_apply() */
	uint64_t batch_number; /* of the last sealed */
	uint64_t submitted, durable, want; /* positions */
	uint32_t in_flight;
	size_t backlog; /* bytes in flight */

	uint64_t snapshot_bytes; /* least growth of the log */
	uint64_t snapshot_last; /* size of the last one */
	uint64_t snapshot_retry; /* after a failure: log_bytes to wait for */
	bool snapshot_soon;
	struct snapshot_job job;

	int load_error;
	bool inited, started, running, failed, closing, closed;
	void (*close_cb)(void *arg);
	struct metaraft_stats stats;
	struct stats_hist *append_hist; /* NULL: none */
};

/* Closes the open batch: numbers it and queues it for writing. */
void metaraft_seal(struct metaraft *m);
/* Gives memory that a snapshot had pinned back, bit by bit. */
void metaraft_fsm_init(struct metaraft *m);
/* So little room that this is why a write failed. */
bool metaraft_disk_full(const struct metaraft *m);
/* Asks libraft for a snapshot when one is due. */
void metaraft_snapshot_check(struct metaraft *m);

#endif
