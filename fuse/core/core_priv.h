/* Inside the client core: the state and its one lock.
 *
 * core->lock protects everything reachable from struct core except where a
 * field says otherwise. The critical sections are short: no system call, no
 * copy of more than a few KiB... bulk copies are done before or after. What
 * must happen without the lock (callbacks to the user, writing to sockets) is
 * deferred: core_defer() and core_kick_later() queue it, core_unlock() does
 * it. RPC callbacks run on the net's thread with no lock held; they lock.
 */
#ifndef FUSE_CORE_CORE_PRIV_H
#define FUSE_CORE_CORE_PRIV_H

#include "common/cmap.h"
#include "common/rpc.h"
#include "fuse/core/core.h"
#include "fuse/core/dlist.h"

#include <pthread.h>

struct meta_client; /* meta_client.c */
struct blk_client; /* blk_client.c: peers of the block daemons, the map */
struct wb_inode; /* write.c: an inode's write-back state */
struct flusher; /* flush.c */
struct prefetch; /* read.c */
struct ret; /* ret.c: what is to be given back */
struct share; /* share.c: other mounts */
struct dir_pages; /* readdir.c */
struct name_cache; /* name_cache.c */
struct dir_known; /* dir_known.c */
struct core_note; /* core_status.c */
struct log_client; /* log_file.c */
struct log_file;

/* Work for after the unlock; embedded in what it works on. */
struct core_deferred {
	void (*fn)(struct core_deferred *d);
	struct core_deferred *next;
};

/* Somebody waiting for something of an inode or of the core. */
struct core_waiter {
	void (*fn)(struct core_waiter *w, int err); /* lock held */
	struct core_waiter *next;
	struct core *c; /* for fn's own use */
	uint64_t seq, due_ms; /* private to meta_durable() */
};
/* All of a list that is nobody's any more; each may wait again. */
void core_waiters_run(struct core_waiter *w, int err);

struct core_inode {
	uint64_t ino;
	struct core_inode *hash_next;
	uint64_t nlookup;
	uint32_t open_count; /* handles */
	uint32_t write_open_count;
	uint32_t rdwr_open_count; /* of those */
	uint32_t direct_open_count; /* of those that write: O_DIRECT */
	bool direct_written; /* there were such since core_file_cache() */
	uint32_t pin_count; /* operations in flight; keeps it in memory */
	bool attr_valid;
	/* The truth as this mount knows it. While @leased, size, mtime and
	 * units are ours and newer than metad's. */
	struct meta_attr attr;
	bool leased; /* write lease asked for (and in the stream) */
	/* With core_options.shared: see share.h. */
	bool lease_pending, recalled, acquiring, share_flushing;
	bool recovering; /* a dead mount's log is being put into it */
	struct core_waiter *share_waiters; /* for it to be writable */
	bool orphan; /* no name left: give back when nobody holds it */
	bool handles_only; /* and whether the kernel knows it says nothing */
	bool size_dirty; /* size, mtime or units to be told to metad */
	bool units_kept; /* the kernel may have units_told */
	uint64_t units_told;
	/* The lease must be durable before a block is written under it: else a
	 * crash of everything leaves blocks that nobody asks for. 0: it is. */
	uint64_t lease_seq;
	/* It was given back no earlier than this in the stream: one that came
	 * before is gone. */
	uint64_t lease_back_seq;
	bool lease_waiting;
	struct core_waiter lease_wait;
	uint32_t ctime_inflight; /* set, and metad has not answered */
	uint32_t mode_inflight; /* set-id bits cleared here and under way to
				 * metad: older answers do not undo it */
	uint32_t size_inflight; /* growths (META_SETATTR) under way to metad */
	bool bad; /* the lease or the data were lost: EIO until truncated */
	int64_t units_delta; /* to be told to metad */
	/* A write was sent twice: the second answer does not say what the
	 * first allocated. The daemons are asked before metad is told. */
	bool units_unsure;
	bool recounting;
	uint32_t alloc_busy; /* fallocates whose units are not all known */
	uint32_t units_version; /* grows with every answer that counts */
	/* Of the last early change that metad has not answered; 0 (early.h). */
	uint64_t early_seq;
	uint32_t early_what; /* EARLY_*: what such changes are about */
	int early_error; /* -errno of one it refused, for the next fsync; 0 */
	uint64_t meta_pos_seq; /* our seq of the last mutation on it */
	uint64_t meta_need_seq; /* the same without those of times only: what
				 * fdatasync waits for */
	uint32_t wb_error; /* -errno of a failed flush, as positive; sticky
			    * until the data is durable */
	uint32_t error_count; /* grows with each new error: handles compare */
	struct wb_inode *wb; /* NULL: never written here */
	struct core_inode *dirty_next, *dirty_prev; /* flusher's list */
	struct core_inode *ret_next; /* return queue (ret.c) */
	bool ret_queued;
	uint64_t ret_due_ms;
	/* RETURNs in the stream that are not answered: until then a reply may
	 * have been computed before them, so our values go on winning. */
	uint32_t ret_inflight;
	bool orphan_returned;
	bool atime_dirty; /* ours is newer than metad's */
	bool listing_same; /* no name changed since core_listing_begins() */
	uint8_t clock_ref; /* used since the eviction hand passed */
	uint32_t cut_busy; /* truncate or punch in progress: writes, reads and
			    * flushes of the inode wait on cut_waiters */
	struct core_waiter *cut_waiters;
	/* A truncate that was answered before metad knows of it: size and
	 * buffer are as after it, so it is only frames that wait (and reads
	 * below @cut_from). */
	bool cut_applied;
	uint64_t cut_from;
	/* Truncated to nothing: the last writer's close sends what replaces
	 * the content to the disks, so a crash does not leave it empty for
	 * long. */
	bool emptied;
	struct log_file *log; /* of a log file that is written; NULL */
	uint64_t log_retry_ms; /* no log before this */
	uint32_t log_recalled_ms; /* it had none for so long, when another
				   * mount wanted it last; 0: never */
	int log_refused; /* and no writing, either: -errno; 0 */
	uint64_t log_lost; /* epoch of one that could not be recovered; 0 */
	struct pf_entry *pf; /* blocks read ahead (prefetch.c) */
	/* sequential read detection is per handle: struct core_file */
};

struct core_file {
	struct dlist node; /* on core->files from file_attach() on */
	struct core_inode *in;
	int flags; /* open flags */
	uint32_t error_seen; /* in->error_count at open or last report */
	uint64_t ra_next; /* byte where a sequential reader comes next */
	uint64_t ra_done; /* prefetch was asked for up to here */
	uint32_t ra_run; /* sequential reads seen */
};

#define CORE_KICK_MAX 16u /* more are kicked with the lock held */

struct core {
	pthread_mutex_t lock;
	struct core_deferred *deferred_head, **deferred_tail;
	struct core_options opt;
	struct rpc_net *net;
	struct meta_client *meta;
	struct blk_client *blk;
	struct flusher *flusher;
	struct prefetch *prefetch;
	struct log_client *log;
	struct lock_table *locks; /* protected by locks_mutex, a leaf */
	pthread_mutex_t locks_mutex;
	uint64_t lock_waits; /* lock_shared.c: LOCK_WAITs ever sent */
	pthread_t recoverer; /* the heir's thread (log_heir.c), if it is one */
	struct core_inode **inode_hash; /* power of two, grows */
	size_t inode_hash_size, inode_count;
	bool stopping;
	struct dlist files; /* open */
	/* core_free() is ending the peers: what comes back from one must not be
	 * sent to another, which may be gone. */
	_Atomic bool freeing;
	bool fenced; /* the session is dead: every operation is -EIO; set by
		      * blk_client_fence() */
	struct core_waiter *wb_waiters; /* writers over the bound */
	/* inode.c: eviction */
	size_t inode_hand;
	struct ret *ret;
	struct share *share;
	struct dir_pages *dir_pages;
	struct name_cache *names;
	struct dir_known *known;
	struct early *early;
	struct core_note *notes;
	/* peers queued to since core_lock() */
	struct rpc_peer *kick[CORE_KICK_MAX];
	unsigned kick_count;
	struct {
		uint64_t lookups, lookups_local, getattrs, getattrs_local;
		uint64_t creates, unlinks, renames, links, setattrs, opens;
		uint64_t setattrs_local;
		uint64_t xattrs, xattrs_local, readdirs, dir_pages;
		uint64_t returns, leases, evicted, orphans;
	} count;
};

/* core.c */
void core_lock(struct core *c);
/* Unlocks, kicks the peers queued to, runs what was deferred. */
void core_unlock(struct core *c);
void core_defer(struct core *c, struct core_deferred *d); /* lock held */
/* Lock held, after rpc_queue(): core_unlock() kicks the peer. A peer must not
 * be closed while the core works: only by rpc_net_free(). */
void core_kick_later(struct core *c, struct rpc_peer *p);
int64_t core_now_ns(void); /* CLOCK_REALTIME_COARSE */
uint64_t core_now_ms(void); /* CLOCK_MONOTONIC */

/* inode.c; lock held */
struct core_inode *inode_find(struct core *c, uint64_t ino);
/* Finds or makes; NULL: no memory. */
struct core_inode *inode_get(struct core *c, uint64_t ino);
void inode_pin(struct core_inode *in);
void inode_unpin(struct core *c, struct core_inode *in); /* may free it */
/* Takes what metad said into the cache; keeps our own size, mtime and units
 * while leased. Sets *@out (may be NULL) to the merged truth. */
void inode_merge(struct core *c, struct core_inode *in,
		 const struct meta_attr *from_metad, struct meta_attr *out);
void inode_maybe_free(struct core *c, struct core_inode *in);
/* By a handle, or by the kernel without one: a working directory, O_PATH, a
 * watch. (Beside other mounts the kernel also has names that are wrong by now,
 * and keeps the inode for them until it needs the memory.) */
static inline bool inode_held(const struct core_inode *in)
{
	return in->open_count > 0 || (in->nlookup > 0 && !in->handles_only);
}
int inode_table_init(struct core *c);
void inode_table_fini(struct core *c); /* whatever is in them */
/* Our own value of size, mtime and units wins over metad's. */
bool inode_owns(const struct core_inode *in);
/* A read happened: the atime follows by the rules of relatime, and is told to
 * metad some time (ret.c). */
/* Whether it moved. */
bool inode_touch_atime(struct core *c, struct core_inode *in);
/* Calls core_options.content_changed and attr_changed, or the second alone,
 * after the unlock. */
void inode_tell_content(struct core *c, uint64_t ino, uint64_t off,
			uint64_t len);
void inode_tell_changed(struct core *c, uint64_t ino);
/* What metad told of @in is now known to be of sequence @seq of our stream. */
void inode_mutated(struct core_inode *in, uint64_t seq);
/* The same, when only times changed. */
void inode_times_mutated(struct core_inode *in, uint64_t seq);
/* Nothing may be answered from the cache without asking metad (fence, change
 * of metad's state). */
void inode_invalidate_all(struct core *c);

/* meta_client.c: requests to metad. A call is allocated by meta_call_new(),
 * filled, queued in stream order under the lock. */
struct meta_call {
	struct rpc_call rpc;
	struct core *c;
	uint16_t op;
	uint64_t seq; /* 0: a query */
	/* Runs on the net's thread WITHOUT the lock. @body: after meta_rhdr.
	 * The call is freed after it returned (mutations are kept inside until
	 * durable). */
	void (*done)(struct meta_call *mc, int err, const uint8_t *body,
		     uint32_t body_len);
	void *arg; /* the user's */
	uint64_t arg64, arg64b;
	union {
		core_cb cb;
		core_attr_cb attr_cb;
		core_bytes_cb bytes_cb;
	} u;
	void *u_arg;
	uint8_t *buf; /* encoded body */
	uint32_t buf_len;
	struct meta_call *next, *prev;
	uint64_t pos; /* once answered: stream position */
	bool answered;
	bool patient; /* a query without a time limit, soft mount or not */
	/* Soft mounts: the time is up. Answers the user, clears u, u_arg; done
	 * still runs at the real end. Without the lock. NULL: @done is the only
	 * word (then it may come late). */
	void (*timed_out)(struct meta_call *mc);
	void *arg2;
	int64_t now_ns; /* mutations: as in the mhdr */
	bool early; /* the user has had his answer (early.h) */
	uint64_t after; /* queries: the stream's last sequence before it */
	/* private to meta_client.c */
	uint8_t state; /* enum meta_state */
	bool told; /* done ran */
	bool timed; /* timed_out ran */
	int status;
	uint64_t reply_ino; /* of the first reply, to compare a replay's */
	uint64_t due_ms;
	struct core_deferred def;
};
/* @body_cap: room for the encoded fields after the mhdr. NULL: no memory. */
struct meta_call *meta_call_new(struct core *c, uint16_t op, size_t body_cap,
				struct wire_out *o);
/* Lock held. Gives a mutation the next sequence (and writes its mhdr), queues
 * it. Waits inside when the window is full (queued locally, in order). */
void meta_call_queue(struct meta_call *mc, struct wire_out *o);
/* Lock held: has everything of our stream up to @seq been made durable? If
 * not, @w->fn(0) runs when it is (or with an error). Returns true when
 * already durable (then @w is not used). */
bool meta_durable(struct core *c, uint64_t seq, struct core_waiter *w);
uint64_t meta_last_seq(struct core *c); /* last sequence given out */
void meta_call_free(struct meta_call *mc); /* one that was never queued */
/* Have keepalives been answered lately enough that metad cannot have given
 * our leases away? If not, nothing is answered from a cache. Lock held. */
bool meta_may_serve(struct core *c);
/* The session is dead (another mount took over): everything is EIO. */
bool meta_fenced(struct core *c);
/* Somebody answered -ESTALE: asks metad whether our session still lives. Any
 * thread, lock not held. */
void meta_suspect(struct core *c);
/* A map with at least this epoch is wanted (a daemon told of it). */
void meta_map_wanted(struct core *c, uint64_t epoch);
uint64_t meta_session(struct core *c);

/* ret.c (lock held): queue "what the session knows better" for one inode:
 * called by flush.c when an inode's data became clean, on last close, when an
 * orphan has no handle left. Batched into META_RETURN. */
void ret_queue(struct core *c, struct core_inode *in, uint64_t delay_ms);

/* recount.c (lock held): asks every daemon for the inode's units, which are
 * unsure, and queues the inode for return when they are known. Not while
 * something is dirty, cut or allocated; what comes meanwhile makes it begin
 * again. */
void recount_start(struct core *c, struct core_inode *in);

/* Asks for the write lease if it is not held. Lock held. Puts META_LEASE into
 * the stream and sets in->leased at once; its failure marks the inode bad.
 * Returns 0 or -ENOMEM. */
int lease_want(struct core *c, struct core_inode *in);

/* blk_client.c */
int blk_client_new(struct core *c, struct blk_client **ret);
void blk_client_free(struct blk_client *b); /* after the net has stopped */
/* A new map from metad; borrowed. Not under the lock. */
int blk_client_set_map(struct core *c, const struct cmap *m);
uint64_t blk_client_epoch(struct core *c);
/* The data half's part of meta_fence(): sets c->fenced, fails what waits,
 * drops buffered data, closes the peers. Lock held; any number of times. */
void blk_client_fence(struct core *c);

/* cut.c (lock held): a soft mount waits for cuts no longer than it said. */
void cut_expire(struct core *c, uint64_t now_ms);

/* write.c / flush.c / read.c / cut.c
 * They have core_write; core_fsync, core_sync_all, core_flush_error;
 * core_read; core_truncate, core_fallocate; core_seek; core_statfs.
 * (core_fsync_dir is metadata only: the other half's.) */
/* Lock held, inode's last reference is going: nothing may be dirty (orphans:
 * dirty data is dropped). */
void wb_inode_free(struct core *c, struct core_inode *in);
bool wb_inode_clean(const struct core_inode *in); /* nothing left to sync */
bool wb_clean(const struct core *c); /* the same of all inodes */
/* The inode's units, with those that buffered bytes will take: programs take
 * a file without any for one that is a hole. The first is for an answer that
 * the kernel may keep; the second tells whether it keeps another one. */
uint64_t wb_units_tell(struct core_inode *in);
bool wb_units_stale(const struct core_inode *in);
/* Drops dirty data of an orphan nobody has open. Lock held. */
void wb_inode_discard(struct core *c, struct core_inode *in);
int flusher_new(struct core *c, struct flusher **ret);
/* Ends its thread; before rpc_net_free(). */
void flusher_stop(struct flusher *f);
void flusher_free(struct flusher *f);
int prefetch_new(struct core *c, struct prefetch **ret);
void prefetch_free(struct prefetch *p);
/* JSON members (no braces) for the status. */
void blk_client_status(struct core *c, FILE *out);
void meta_client_status(struct core *c, FILE *out);

#endif
