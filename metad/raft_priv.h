/* What raft.c and fsm.c share. */
#ifndef METAD_RAFT_PRIV_H
#define METAD_RAFT_PRIV_H

#include <pthread.h>
#include <raft.h>
#include <raft/uv.h>

#include "metad/raft.h"

#define METARAFT_THRESHOLD_NEVER (1u << 30)
/* Of a group. A member does not vote for another leader, nor is it a candidate,
 * for METARAFT_ELECTION_MS after it heard of one; libraft draws 1 to 2 times
 * that. A leader trusts in three quarters of it, for clocks that run apart. */
#define METARAFT_HEARTBEAT_MS 100u
#define METARAFT_ELECTION_MS 1000u
#define METARAFT_LEASE_MS (METARAFT_ELECTION_MS * 3 / 4)
_Static_assert(METARAFT_PROMISE_MS >= METARAFT_ELECTION_MS, "raft.h");

/* A sealed batch, from metaraft_seal() to libraft's answer. */
struct batch {
	struct raft_apply req;
	struct batch *next;
	uint8_t *buf; /* libraft's after raft_apply() */
	size_t len;
	uint64_t number;
	uint64_t pos; /* stream position after its last command */
	uint64_t start_ns; /* of CLOCK_BOOTTIME */
};

/* What is asked of the others; see raft_group.c. */
struct metaraft_ask {
	struct raft_barrier req;
	uint64_t start_ns; /* of CLOCK_BOOTTIME */
	bool asked;
};

/* A snapshot on the way: made on the loop, filled on a pool thread. */
struct snapshot_job {
	struct sm_snap *snap; /* NULL: none on the way */
	uint64_t batch; /* the last one that it has */
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
	char address[METARAFT_ADDRESS_SIZE];
	bool group; /* there are others */

	struct raft raft;
	struct raft_io io;
	struct raft_fsm fsm;
	struct raft_uv_transport nobody; /* who is alone talks to it */
	/* raft_recv.c */
	int (*io_start)(struct raft_io *io, unsigned msecs,
			raft_io_tick_cb tick, raft_io_recv_cb recv);
	raft_io_recv_cb recv;
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

	/* raft_group.c */
	struct metaraft_ask barrier, confirm;
	uint64_t heard_ns; /* a majority followed us then; CLOCK_BOOTTIME */
	bool elected, deposed;
	struct {
		struct raft_change req;
		struct raft_transfer transfer;
		metaraft_change_cb cb; /* NULL: none is under way */
		void *arg;
		uint32_t id;
	} change;
	/* What a snapshot waits for, on its thread. */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t committed; /* number of the last batch */
	bool no_more; /* ... and there will not be another */

	int load_error;
	bool inited, started, running, leads, failed, closing, closed;
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
/* Ends it for an error of libraft's. */
void metaraft_fail(struct metaraft *m, int error);

/* raft_recv.c, after raft_uv_init() */
void metaraft_recv_init(struct metaraft *m);

/* raft_group.c */
/* Once a turn. */
void metaraft_group_look(struct metaraft *m);
/* A majority took what was sent at @start_ns. */
void metaraft_heard(struct metaraft *m, uint64_t start_ns);
/* Batches up to @number are committed; 0 and none will be any more. */
void metaraft_committed(struct metaraft *m, uint64_t number);
/* Waits until @number is. False: it will not be. Any thread. */
bool metaraft_await(struct metaraft *m, uint64_t number);
void metaraft_depose(struct metaraft *m);
/* Is it an error that only says that it leads no longer? */
bool metaraft_is_deposing(const struct metaraft *m, int error);

/* Asks libraft for a snapshot when one is due. */
void metaraft_snapshot_check(struct metaraft *m);

#endif
