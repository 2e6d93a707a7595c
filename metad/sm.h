/* The metadata state machine. [pure] No clock, I/O, thread or randomness:
 * the same commands in the same order give the same state and the same
 * replies on every machine.
 *
 * The whole state is one copy-on-write B+tree of byte strings (metad/cow.h),
 * so that a snapshot is a root pointer and another thread may read it while
 * commands go on. sm_*.c each own one kind of record in it.
 *
 * One thread owns a struct sm; only sm_snap_next() may run on another.
 */
#ifndef METAD_SM_H
#define METAD_SM_H

#include "common/cmap.h"
#include "common/wire_meta.h"

struct sm;
struct sm_snap;

/* Result of a command or query. @body: a complete META_* reply body without
 * the meta_rhdr prefix; owned by the sm, valid until its next call.
 * @status: 0 or -errno (then body_len is 0). */
struct sm_reply {
	int status;
	const uint8_t *body;
	uint32_t body_len;
	uint64_t pos; /* stream position after this command */
	uint64_t cut_job; /* != 0: answer the client when this cut is done */
	uint64_t cut_ino; /* ... of this inode (CUT, LEASE, CREATE with it) */
	bool replayed; /* answered from the session's kept replies */
	bool map_changed; /* the cluster map has a new epoch */
};

/* NULL: out of memory. An empty machine: no root directory before
 * SM_BOOTSTRAP. */
struct sm *sm_new(void);
void sm_free(struct sm *sm);

/* Is @op a command (goes through Raft) / a query? */
bool sm_is_command(uint16_t op);
bool sm_is_query(uint16_t op);
/* The one place where input is checked: body decodes, lengths and values are
 * in range. Needs no state. Returns 0; -EBADMSG: it does not decode; -EINVAL,
 * -ENAMETOOLONG, -EFBIG, -E2BIG, -EOPNOTSUPP (xattr namespace): what the
 * caller of the system call is to be told. */
int sm_validate(uint16_t op, const void *body, size_t len) must_check;
/* How much of the body of a command @minor knows: what is behind was appended
 * by a later one. Not more than @len. */
size_t sm_body_known(uint16_t op, const void *body, size_t len,
		     unsigned minor);

/* Applies a command that sm_validate() accepted. Out of memory: -ENOMEM in
 * the status and nothing changed (metad then stops: replicas must not differ).
 * r->pos is larger than before exactly when something changed, that is, when
 * the command must be in the log: also for a client's command that ended in
 * an error (its reply is kept), not for a replayed or refused one.
 * @session: who asks; 0 for SM_* commands. */
void sm_apply(struct sm *sm, uint16_t op, uint64_t session, const void *body,
	      size_t len, struct sm_reply *r);
void sm_query(struct sm *sm, uint16_t op, uint64_t session, const void *body,
	      size_t len, struct sm_reply *r);

/* Count of commands ever applied that could change something (also those that
 * ended in an error). */
uint64_t sm_pos(const struct sm *sm);
/* Number of the last batch applied; used to skip what a snapshot has. */
uint64_t sm_batch(const struct sm *sm);
void sm_set_batch(struct sm *sm, uint64_t batch);
const struct cmap *sm_map(const struct sm *sm);
/* The number the next inode, the next session gets. */
uint64_t sm_next_ino(const struct sm *sm);
uint64_t sm_next_session(const struct sm *sm);
/* Bytes of memory the tree holds; inodes alive (orphans too). */
uint64_t sm_bytes(const struct sm *sm);
uint64_t sm_inode_count(const struct sm *sm);
/* Gives a little unused memory back, as each command does; for idle times
 * after a snapshot has ended. False: nothing more to give. */
bool sm_trim(struct sm *sm);

/* ---- commands only metad proposes (bodies) ---- */
/* Makes root directory, cluster id, block daemons (cmap blob). */
#define SM_BOOTSTRAP_FIELDS(F) F(i64, now_ns) F(u32, mode) F(blob, map)
WIRE_MESSAGE(sm_bootstrap, SM_BOOTSTRAP_FIELDS);
/* reply: u64 session. The epoch grows. After the fields u32 META_SESSION_*, if
 * there are any. */
#define SM_SESSION_OPEN_FIELDS(F)                                             \
	F(i64, now_ns)                                                        \
	F(u64, client_id)                                                     \
	F(str, host)                                                          \
	F(str, mountpoint)
WIRE_MESSAGE(sm_session_open, SM_SESSION_OPEN_FIELDS);
/* In two steps: @dead 1 takes it out of the map (epoch grows) and refuses its
 * requests; @dead 2, after fences and size recovery, drops leases, orphans
 * (to the purge queue; journals stay, as nobody's) and the record. */
#define SM_SESSION_CLOSE_FIELDS(F) F(u64, session) F(u8, dead)
WIRE_MESSAGE(sm_session_close, SM_SESSION_CLOSE_FIELDS);
/* A block daemon's address, store id or state. Epoch grows if it changed. A
 * store id that becomes 0 was given up: see sm_store_given_up(). */
#define SM_DAEMON_SET_FIELDS(F)                                               \
	F(u32, id)                                                            \
	F(str, addr)                                                          \
	F(u16, port)                                                          \
	F(u64, store_id_hi)                                                   \
	F(u64, store_id_lo)                                                   \
	F(u8, state)                                                          \
	F(u64, commit)                                                        \
	WIRE_NEXT(F)
WIRE_MESSAGE(sm_daemon_set, SM_DAEMON_SET_FIELDS);
/* Purge or cut job is done at every daemon. */
#define SM_PURGE_DONE_FIELDS(F) F(blob, inos)
WIRE_MESSAGE(sm_purge_done, SM_PURGE_DONE_FIELDS);
#define SM_CUT_DONE_FIELDS(F) F(u64, ino) F(u64, cut) F(i64, units_delta)
WIRE_MESSAGE(sm_cut_done, SM_CUT_DONE_FIELDS);
/* Size recovery of a dead session's leased inode: size and mtime only grow. */
#define SM_SIZE_SET_FIELDS(F)                                                 \
	F(u64, ino)                                                           \
	F(u64, size)                                                          \
	F(u64, units)                                                         \
	F(i64, mtime_ns)
WIRE_MESSAGE(sm_size_set, SM_SIZE_SET_FIELDS);
/* After a restore: the next inode, session, epoch, cut base are at least, and
 * the next log's epoch is above. */
#define SM_RAISE_FIELDS(F)                                                    \
	F(u64, ino)                                                           \
	F(u64, session)                                                       \
	F(u64, epoch)                                                         \
	F(u64, cut)                                                           \
	F(u64, log_epoch)
WIRE_MESSAGE(sm_raise, SM_RAISE_FIELDS);

/* A log daemon as the map has it. Epoch grows if it changed. */
#define SM_LOGD_SET_FIELDS(F)                                                 \
	F(u32, id)                                                            \
	F(u64, boot_id)                                                       \
	F(str, addr)                                                          \
	F(u16, port)                                                          \
	F(str, rdma_addr)                                                     \
	F(u16, rdma_port)                                                     \
	F(str, domain)
WIRE_MESSAGE(sm_logd_set, SM_LOGD_SET_FIELDS);

/* META_LOCK in the name of who waited for it. Reply: meta_lock_reply; -ESTALE:
 * no such session. */
#define SM_LOCK_FIELDS(F) F(u64, session) META_LOCK_FIELDS(F)
WIRE_MESSAGE(sm_lock_grant, SM_LOCK_FIELDS);

/* ---- what the rim drives from the state ---- */
struct sm_cut {
	uint64_t ino, cut, from, to; /* as in blk_cut */
	uint8_t block_log2;
	uint64_t pos; /* position of the command that made it */
};
/* Copies up to @max purge entries (inode and the position that queued it)
 * with ino > @after, in order. Returns how many. */
struct sm_purge {
	uint64_t ino, pos;
};
uint64_t sm_purge_count(const struct sm *sm);
size_t sm_purge_list(struct sm *sm, uint64_t after, struct sm_purge *out,
		     size_t max);
/* Pending cuts with (ino, cut) > (after_ino, after_cut). */
size_t sm_cut_list(struct sm *sm, uint64_t after_ino, uint64_t after_cut,
		   struct sm_cut *out, size_t max);
/* Does this inode have a cut that is not confirmed yet? */
bool sm_cut_pending(struct sm *sm, uint64_t ino);
/* A lock that is held: l.type is not UNLOCK. */
struct sm_lock {
	uint64_t session;
	struct meta_lock l;
};
/* The next lock after @after (of the same inode and kind; NULL: the first) that
 * keeps @session from taking @m. */
bool sm_lock_conflict(const struct sm *sm, uint64_t session,
		      const struct meta_lock *m, const struct sm_lock *after,
		      struct sm_lock *ret);
/* All, in the order of inodes; those after @after, NULL: from the first. */
size_t sm_lock_list(struct sm *sm, const struct sm_lock *after,
		    struct sm_lock *out, size_t max);
uint64_t sm_lock_count(const struct sm *sm);
/* Grows whenever a lock or a part of one was given up, since the process
 * started: then somebody who waits may go on. */
uint64_t sm_locks_freed(const struct sm *sm);
/* Inodes whose write lease @session holds, ino > @after. */
size_t sm_lease_list(struct sm *sm, uint64_t session, uint64_t after,
		     uint64_t *out, size_t max);
/* The session that holds the write lease; 0: none, or no such inode. */
uint64_t sm_lease_holder(const struct sm *sm, uint64_t ino);
/* Inodes that @session keeps alive as orphans, ino > @after. */
size_t sm_orphan_list(struct sm *sm, uint64_t session, uint64_t after,
		      uint64_t *out, size_t max);
struct sm_session_info {
	uint64_t session, client_id;
	uint8_t dead; /* 1: being fenced and recovered */
	bool shared; /* META_SESSION_SHARED */
	char host[64], mountpoint[256];
};
size_t sm_session_list(struct sm *sm, uint64_t after,
		       struct sm_session_info *out, size_t max);
/* Next attributes after @ino for fsck. */
size_t sm_inode_list(struct sm *sm, uint64_t after, struct meta_attr *out,
		     size_t max);
/* The last commit number and store id recorded of a daemon. */
int sm_daemon_commit(struct sm *sm, uint32_t id, uint64_t *commit);
/* Was this store of the daemon given up? It must not come back: it missed what
 * was cut and deleted since. Of each daemon the last SM_GIVEN_UP_MAX are
 * known. */
#define SM_GIVEN_UP_MAX 16u
bool sm_store_given_up(struct sm *sm, uint32_t id, uint64_t hi, uint64_t lo);

/* An entry of the logs' registry (META_LOG_*); without peers: a journal's. */
struct sm_log {
	uint64_t ino, epoch, data_epoch, session;
	uint32_t version, peer_count;
	uint8_t flags; /* META_LOG_LOST, META_LOG_ORDERED */
	struct meta_log_peer peers[LOG_PEER_COUNT_MAX];
};
bool sm_log_find(const struct sm *sm, uint64_t ino, struct sm_log *l);
/* The last epoch a log was given; entries. */
uint64_t sm_log_epoch(const struct sm *sm);
uint64_t sm_log_count(const struct sm *sm);
/* The session that recovers what dead ones left; 0. */
uint64_t sm_log_heir(const struct sm *sm);
/* May @session use the content of @ino, as far as logs are concerned? */
enum sm_log_way {
	SM_LOG_FREE, /* or it is its owner's affair, as any lease */
	SM_LOG_WAIT, /* until a log is recovered */
	SM_LOG_LOST, /* one that could not be; a live session answers for it */
};
enum sm_log_way sm_log_way(const struct sm *sm, uint64_t ino, uint64_t session);
/* Is there an entry of a session that does not live? Walks them. */
bool sm_log_left(struct sm *sm);

/* ---- snapshots ---- */
/* Freezes the present state; any number may be out. NULL: out of memory. */
struct sm_snap *sm_snap_begin(struct sm *sm);
uint64_t sm_snap_size(const struct sm_snap *s);
/* Copies the next up to @cap bytes of the encoded snapshot to @buf, in order;
 * returns how many, 0 at the end. May run on another thread than the sm's. */
size_t sm_snap_next(struct sm_snap *s, void *buf, size_t cap);
void sm_snap_end(struct sm *sm, struct sm_snap *s);
/* Replaces the state by a snapshot's; no snapshot of @sm may be out.
 * Returns 0; -EBADMSG: checksum, version or structure wrong (state
 * unchanged); -EPROTONOSUPPORT: from the future; -ENOMEM. */
int sm_restore(struct sm *sm, const void *buf, size_t len) must_check;

#endif
