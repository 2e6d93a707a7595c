/* The replicated log under the state machine: libraft with one voter, or with
 * a group of them, of which one leads.
 *
 * A command is executed by the leader the moment it is proposed, in the order
 * of proposals, and appended to the open batch; a batch becomes one log entry.
 * It is durable when the entry is written, by a majority. The log is the order
 * of execution, so replaying it gives the same state; what was executed but
 * never became durable is lost with the leader, and whoever was told about it
 * keeps it until it is durable (wire_meta.h: meta_rhdr). A leader that is one
 * no longer has executed what may never be: its state is not to be used, it
 * begins anew as a process would that crashed. Followers execute what is
 * committed.
 *
 * Everything runs on the thread of the uv loop, except the encoding of
 * snapshots.
 */
#ifndef METAD_RAFT_H
#define METAD_RAFT_H

#include "metad/sm.h"

#include <uv.h>

struct metaraft;

struct raft_uv_transport;

struct metaraft_config {
	const char *dir; /* libraft's own, exists */
	uint32_t id; /* of this voter, > 0 */
	/* To the others of its group; borrowed. NULL: it is alone. */
	struct raft_uv_transport *transport;
	/* A snapshot is taken when the log has grown by as much as the last
	 * snapshot was long, and by at least this. */
	uint64_t snapshot_bytes;
};

struct metaraft_ops {
	/* Everything up to stream position @pos, and batch @batch, is durable.
	 * May propose. */
	void (*durable)(void *arg, uint64_t pos, uint64_t batch);
	/* A batch goes to the log, each in order. NULL: nobody wants them. */
	void (*batch)(void *arg, const void *buf, size_t len);
	/* Nothing becomes durable any more; stop. Runs at most once; @why is a
	 * sentence for the administrator. */
	void (*failed)(void *arg, const char *why);
	/* It led and does not any more, see above; begin anew. Until it is
	 * closed it votes and stores what the next leader sends. Runs at most
	 * once. Of a group only, as is the next. */
	void (*deposed)(void *arg);
	/* A follower has executed @batch, which is on its disk. */
	void (*applied)(void *arg, uint64_t batch);
};

/* Seals the open batch and freezes the state, which has all batches up to its
 * sm_batch(). NULL: it is being closed, or out of memory. */
struct sm_snap *metaraft_freeze(struct metaraft *m);
/* Memory of a snapshot that ended is given back, piece by piece. */
void metaraft_trim(struct metaraft *m);

struct metaraft_stats {
	uint64_t commands, batches, bytes; /* appended since the start */
	uint64_t snapshots, snapshots_failed;
	uint64_t snapshot_last_bytes, snapshot_last_ms;
	uint64_t append_us_sum, append_us_max; /* of batches */
	uint64_t log_bytes; /* since the last snapshot */
};

/* raft_heap.c, before all else: where an allocation of libraft fails, the
 * process ends with METARAFT_EXIT. */
#define METARAFT_EXIT 3
void metaraft_heap_start(void);

/* @sm, @ops, @arg: borrowed until metaraft_free(). Reads nothing yet.
 * Returns 0 or -errno with a sentence in @why. */
int metaraft_new(uv_loop_t *loop, struct sm *sm,
		 const struct metaraft_config *config,
		 const struct metaraft_ops *ops, void *arg,
		 struct metaraft **ret, char *why, size_t why_size);
/* Makes an empty log, durably, when there is none: of a group of these voters.
 * Returns 0, or -errno with a sentence in @why. Blocks. */
int metaraft_bootstrap(struct metaraft *m, const uint32_t *ids, uint32_t count,
		       char *why, size_t why_size);
/* Loads the snapshot and the log; who is alone has executed it then, and leads.
 * Returns 0, or -errno with a sentence in @why (-EBADMSG: damaged;
 * -EPROTONOSUPPORT: written by a later version). Blocks. */
int metaraft_start(struct metaraft *m, char *why, size_t why_size);
/* Of a group: it was elected, and has executed all that was committed before:
 * metaraft_lead() is next, after which it executes and nobody else does. */
bool metaraft_elected(const struct metaraft *m);
void metaraft_lead(struct metaraft *m);
bool metaraft_leads(const struct metaraft *m);
/* The number of the last batch on disk, executed or not. */
uint64_t metaraft_last_batch(const struct metaraft *m);
/* Is it certain that nobody else leads? Else asks the others, and is to be
 * asked again in a later turn; before that nothing may be told of the state,
 * which may be an old one. */
bool metaraft_confirmed(struct metaraft *m);
/* Before a member that took part before starts again, so long must have passed:
 * a leader may count on it. */
#define METARAFT_PROMISE_MS 1000u
/* Who leads, as far as it is known here; 0: nobody. */
uint32_t metaraft_leader(struct metaraft *m);
uint64_t metaraft_term(const struct metaraft *m);
/* Is the log loaded, so that the next ones are known? */
bool metaraft_is_started(const struct metaraft *m);
bool metaraft_is_voter(const struct metaraft *m, uint32_t id);
bool metaraft_is_member(const struct metaraft *m, uint32_t id); /* or not yet */
/* Changes of the group, by who leads; one at a time. Return 0, and @cb runs
 * with 0 or -errno from the loop; or -errno, and it does not.
 * add: also of one that is a member but no voter yet. transfer: @id 0: to any;
 * -ETIMEDOUT: it did not take over; else it is being deposed. */
typedef void (*metaraft_change_cb)(void *arg, int status);
int metaraft_add(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		 void *arg);
int metaraft_remove(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		    void *arg);
int metaraft_transfer(struct metaraft *m, uint32_t id, metaraft_change_cb cb,
		      void *arg);
/* A member's name in the log. */
#define METARAFT_ADDRESS_SIZE 32u
void metaraft_address(char address[METARAFT_ADDRESS_SIZE], uint32_t id);
/* Finishes what is submitted, then calls @cb, from the loop or before return.
 * What is in the open batch is dropped: wait for it before. Also after a
 * metaraft_start() that failed. */
void metaraft_close(struct metaraft *m, void (*cb)(void *arg));
/* After @cb of metaraft_close(). NULL: no-op. */
void metaraft_free(struct metaraft *m);

/* While it leads: executes a command that sm_validate() accepted and appends it
 * to the log.
 * @r: as of sm_apply(). A command that changed nothing is not appended. */
void metaraft_propose(struct metaraft *m, uint16_t op, uint64_t session,
		      const void *body, size_t len, struct sm_reply *r);
/* Somebody waits for position @pos: write without gathering any longer. */
void metaraft_want(struct metaraft *m, uint64_t pos);
/* Ends a turn of the loop: submits what should be written now. */
void metaraft_turn(struct metaraft *m);
/* Everything up to this position is durable. */
uint64_t metaraft_durable(const struct metaraft *m);
/* So much waits for the disk that no more should be proposed. */
bool metaraft_busy(const struct metaraft *m);
/* Is a write, or somebody waiting for one, on the way? */
bool metaraft_writing(const struct metaraft *m);
/* Takes a snapshot with the next entry (there is one when something is
 * proposed). */
void metaraft_snapshot_soon(struct metaraft *m);
const struct metaraft_stats *metaraft_stats(const struct metaraft *m);
/* From now on the time of each append is counted in @h, too; borrowed. */
struct stats_hist;
void metaraft_time_appends(struct metaraft *m, struct stats_hist *h);

/* ---- one batch as it lies in the log [pure] ---- */
/* u64 number, u32 count, then per command: u16 op, u16 0, u32 len, u64 session,
 * body; zeros up to a multiple of METARAFT_BATCH_ALIGN, without which libraft
 * cannot read its own segments. All of it little-endian. */
#define METARAFT_BATCH_ALIGN 8u
#define METARAFT_BATCH_HEAD 12u
#define METARAFT_COMMAND_HEAD 16u
/* Executes the batch in @buf unless @sm has it already (sm_batch()). Returns 0;
 * -EBADMSG: malformed, or a number is missing; -EPROTONOSUPPORT: a command this
 * version does not know; -ENOMEM. After an error @sm is not to be used. */
int metaraft_batch_apply(struct sm *sm, const void *buf, size_t len) must_check;

#endif
