/* Inside the data half of the client core: block daemons, write-back and read
 * ahead. core->lock protects all of it except where a field says otherwise.
 *
 * A write goes: write.c (copy, insert) -> wbuf.c (order, states) -> wb_io.c
 * (frames out, answers in) -> blk_client.c (which daemon). flush.c decides
 * when: age, pressure, fsync.
 */
#ifndef FUSE_CORE_BLK_PRIV_H
#define FUSE_CORE_BLK_PRIV_H

#include "fuse/core/core_priv.h"
#include "fuse/core/wbuf.h"

#include "common/wire_blk.h"

/* A refused flush or SYNC is tried again after this. */
#define WB_RETRY_MS 500u
/* The same where it was memory that lacked. */
#define WB_NOMEM_MS 10u
/* META_RETURN of the size may wait this long for others to join it. */
#define RETURN_DELAY_MS 500u
/* SYNC of all at a daemon when this share of the bound is unsynced there. */
#define WB_SYNC_SHARE 4u
/* Buffers of clean files that are open for writing are kept for the next write,
 * up to this share: any number of files may be open. */
#define WB_KEPT_SHARE 8u
/* Answers with wrong checksums before a read fails. */
#define READ_BAD_MAX 3u
/* -ESTALE answers (a cut ran ahead of us) before an operation fails. */
#define STALE_MAX 200u
#define STALE_DELAY_MS 10u

struct blk_dev {
	struct core *c;
	uint32_t id; /* daemon id */
	uint32_t index; /* in blk_client.devs, for ever */
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	uint8_t state; /* enum cmap_state */
	struct rpc_peer *peer; /* blk_client.peers_lock; NULL: closed */
	bool up;
	uint64_t boot_id; /* 0: none known */
	bool free_known;
	uint64_t units_total, units_free;
	uint64_t units_more, disk; /* common/disk_share.h */
	int down_err; /* why it is not up */
	uint32_t flight; /* writes sent and not answered */
	uint64_t flight_bytes;
	struct dlist unsynced; /* wb_io.dev_node, in order of acknowledgement */
	uint64_t unsynced_bytes;
	uint32_t unsynced_count;
	struct wb_sync *sync_all; /* in flight, or NULL */
	bool sync_wanted; /* another SYNC of all when that one is back */
	uint64_t sync_hold_ms; /* failed: none of our own accord before this */
	uint64_t mark; /* scratch of one pass */
	bool stat_busy;
	struct rpc_call stat_call;
	uint8_t stat_body[8];
	uint64_t boots; /* changes of boot id seen */
};

struct blk_client {
	struct core *c;
	struct rpc_peer_ops ops;
	struct cmap *map; /* NULL: none yet */
	struct blk_dev *devs[DAEMON_COUNT_MAX]; /* only grows */
	uint32_t dev_count;
	struct blk_dev *by_map[DAEMON_COUNT_MAX]; /* index in map->daemons */
	/* Held for reading from the look at dev->peer until the send is done,
	 * so that a peer is not closed and freed in between. A leaf. */
	pthread_rwlock_t peers_lock;
	struct wbuf_mem mem;
	uint64_t wb_count; /* inodes with a wb_inode */
	uint64_t clock; /* orders acknowledgements and SYNCs */
	uint64_t mark;
	struct dlist unclean; /* wb_inode.unclean_node */
	struct dlist dirty; /* wb_inode.dirty_node, by dirty_ms */
	struct dlist stale; /* stale.c */
	struct dlist cuts; /* cut.c: in progress */
	struct core_waiter **wait_tail; /* of core->wb_waiters */
	bool wake_wanted; /* the flusher lets waiting writers go on */
	struct core_deferred fenced; /* closes the peers */
	struct {
		uint64_t writes, write_bytes, syncs, syncs_all, sync_flags;
		uint64_t syncs_ahead;
		uint64_t reads, read_bytes, resent, errors, waits;
		uint64_t bad_sums, stale;
		uint64_t prefetched, prefetch_hits, prefetch_dropped;
	} n;
};

struct wb_inode {
	struct wbuf buf;
	struct core_inode *in;
	struct dlist unclean_node; /* while not clean; pins the inode */
	struct dlist dirty_node; /* waits for the flusher */
	uint64_t dirty_ms;
	bool reflush; /* content came back or an operation wants all sent */
	bool lost; /* scratch: a daemon restarted without our content */
	struct dlist touch_node; /* scratch of one pass */
	/* The file's, had all that may still be refused been; of moment while
	 * there is such. */
	uint64_t size_sure;
	int last_error; /* -errno, for handles that have not seen it */
	/* what an fsync usually follows, see sync_ahead() */
	uint32_t writes; /* since the last fsync */
	uint32_t writes_usual; /* between the last two */
	uint32_t usual_count; /* how often in a row */
	struct dlist ops; /* wb_op.node */
	struct dlist syncs; /* wb_sync.node of this inode */
};

/* One BLK_WRITE, from sending until it is durable. */
struct wb_io {
	struct rpc_call call;
	struct wbuf_io io;
	struct core *c;
	struct core_inode *in;
	struct blk_dev *dev;
	struct dlist dev_node;
	struct core_deferred send; /* of the first of a chain */
	struct wb_io *chain; /* sent in this order */
	uint64_t sent_stamp, acked_stamp;
	uint64_t acked_ms;
	uint64_t boot_id; /* who has it, once acknowledged */
	int64_t units; /* it added */
	uint64_t cut;
	int64_t mtime_ns;
	bool sync; /* BLK_WRITE_SYNC */
	uint32_t data_len; /* io.len outlives it; accounting */
	uint8_t block_log2;
	uint8_t *body;
	uint8_t body_small[80];
};

/* One BLK_SYNC. */
struct wb_sync {
	struct rpc_call call;
	struct core *c;
	struct core_inode *in; /* NULL: of all */
	struct blk_dev *dev;
	struct dlist node;
	struct core_deferred send;
	uint64_t stamp;
	uint8_t body[8];
};

/* Somebody waiting for an inode's buffer. */
enum wb_op_kind {
	WB_OP_ACKED, /* [off, off+len) is at its daemons */
	WB_OP_DURABLE, /* all up to generation @gen is durable */
	WB_OP_IDLE, /* nothing is in flight (during a cut) */
};
struct wb_op {
	struct dlist node;
	enum wb_op_kind kind;
	/* ACKED: refused content is dropped, not kept. Not any more when others
	 * have written to the range. */
	bool through;
	bool global; /* DURABLE: with SYNCs of all, shared with others */
	uint64_t off, len;
	uint64_t gen;
	uint64_t refused_len; /* ACKED: how much of the range was refused */
	bool perhaps; /* ACKED: a daemon may have what is refused, or get it */
	int err;
	void (*fn)(struct wb_op *op, int err); /* lock held, once */
};

/* DIRTY content on its way out of one critical section. */
struct wb_send {
	struct wb_io *head, **tail;
};

/* ---- blk_client.c ---- */
/* The daemon of a block, or NULL with *err (-EIO: lost, -ENODEV: no map). */
struct blk_dev *blk_dev_of(struct core *c, uint64_t ino, uint64_t index,
			   int *err);
/* Queues / kicks without the lock. A closed peer answers -ECANCELED at once,
 * from inside. */
void blk_queue(struct blk_dev *d, struct rpc_call *call);
void blk_kick(struct blk_dev *d);
void blk_send(struct blk_dev *d, struct rpc_call *call);
/* What every reply of a block daemon says. Lock held. */
void blk_dev_heard(struct blk_dev *d, uint64_t boot_id, uint64_t free_units);
void blk_dev_stat(struct blk_dev *d, const struct blk_stat_reply *r);
/* So little space that buffering would promise too much. */
bool blk_dev_low(const struct blk_dev *d);
/* A call's status after which sending it again may help: the peer was
 * replaced, and the core neither stops nor is fenced. */
bool blk_retry(struct core *c, int status);

/* ---- wb_io.c; lock held ---- */
/* Collects DIRTY content of [from, to) into frames. */
void wb_collect(struct core *c, struct core_inode *in, uint64_t from,
		uint64_t to, struct wb_send *s);
void wb_send_init(struct core *c, struct wb_send *s);
/* Sends it after the unlock. @sync: somebody waits for it to be durable;
 * frames are flagged SYNC where that is fastest. */
void wb_submit(struct core *c, struct wb_send *s, bool sync);
/* The parts of wb_submit(): what is sent from now on counts as sent... */
void wb_stamp(struct core *c, struct wb_send *s, bool sync);
/* ... and goes after the unlock. */
void wb_send_chain(struct core *c, struct wb_io *head);
/* The same for one that cannot be sent. Without the lock. */
void wb_send_failed(struct wb_io *head, int err);
/* One that was not sent is dirty again. Lock held, inode pinned. */
void wb_send_back(struct core *c, struct wb_io *io);
/* The daemon has another boot id: takes back what it has not synced. */
void wb_boot_changed(struct core *c, struct blk_dev *d);
/* A daemon says that the inode has @delta more units. */
void wb_units_add(struct core_inode *in, int64_t delta);
/* Forgets an acknowledged io and its content. */
void wb_io_forget(struct core *c, struct wb_io *io);
/* Does a SYNC made at @stamp and answered by @boot_id cover @io? */
bool wb_io_covered(const struct wb_io *io, uint64_t boot_id, uint64_t stamp);
/* Forgets all of @in at @d that such a SYNC covers. */
void wb_cover_inode(struct core *c, struct core_inode *in,
		    const struct blk_dev *d, uint64_t boot_id, uint64_t stamp);
static inline struct wb_io *wb_io_of(struct dlist *inode_node)
{
	return container_of(dlist_entry(inode_node, struct wbuf_io, inode_node),
			    struct wb_io, io);
}

/* ---- wb_sync.c; lock held ---- */
/* SYNC of everything at @d, now or after the one in flight. */
void wb_sync_all(struct core *c, struct blk_dev *d);
/* The same if enough has gathered or memory is short. */
void wb_sync_maybe(struct core *c, struct blk_dev *d);
void wb_sync_inode(struct core *c, struct core_inode *in, struct blk_dev *d);

/* ---- flush.c; lock held ---- */
/* Adds an operation; op->fn runs later, at the earliest from wb_step(). */
void wb_op_add(struct core_inode *in, struct wb_op *op);
/* New content of [from, to): what was written there before and is refused from
 * now on must not take it along. */
void wb_op_covered(struct core_inode *in, uint64_t from, uint64_t to);
/* The end of the last write that is dropped when it is refused; 0: none. */
uint64_t wb_refusable_end(const struct wb_inode *wb);
/* Something of @in changed in [from, to): ends operations, or sends what they
 * wait for. May clear the inode (and with the last pin free it: the caller
 * holds one). */
void wb_step(struct core *c, struct core_inode *in, uint64_t from, uint64_t to);
/* A daemon refused content of [from, to). */
void wb_refused(struct core *c, struct core_inode *in, uint64_t from,
		uint64_t to, int err);
/* Nothing of @in may be sent, and a soft mount waits no longer: who waits is
 * told; the content stays, and is tried again. */
void wb_held_up(struct core *c, struct core_inode *in, int err);
void wb_dirtied(struct core *c, struct core_inode *in);
/* Sends everything of @in; content that is refused at once may leave it
 * clean. */
void wb_collect_all(struct core *c, struct core_inode *in, struct wb_send *s);
/* Memory was released: lets writers go on, from the flusher. */
void wb_wake(struct core *c);
void wb_wake_now(struct core *c);
void wb_fail_waiters(struct core *c, int err);
/* Fails writers that wait for memory which no daemon takes. */
void wb_fail_stuck(struct core *c);
/* Too much is dirty: sends the oldest. */
void wb_pressure(struct core *c);
bool wb_full(struct core *c);
void wb_fail_all(struct core *c, int err);

/* ---- fsync.c; lock held ---- */
/* fdatasync of a log file's blocks. @cb as core_fsync()'s. 0 or -ENOMEM. */
int fsync_blocks(struct core *c, struct core_inode *in, core_cb cb, void *arg);
/* A write of @len bytes was buffered: does it, and what was before it, go to
 * stable storage at once? */
void sync_ahead(struct core *c, struct core_inode *in, uint32_t len);

/* ---- flusher.c; lock held ---- */
void flusher_kick(struct core *c);
/* Something is dirty: it may sleep no longer than the flush age. */
void flusher_note(struct core *c);

/* ---- write.c ---- */
/* core_write() without a handle. @in: pinned until @cb. */
struct write_place {
	struct core_inode *in;
	uint64_t off;
	uint32_t flags;
	void *asker; /* whom core_options.wanted is asked for */
};
void write_at(struct core *c, const struct write_place *to,
	      const struct iovec *iov, int iov_count, size_t len, core_cb cb,
	      void *arg);

/* The rest: lock held. */
/* NULL: no memory. */
struct wb_inode *wb_get(struct core *c, struct core_inode *in);
/* First error that forbids any data operation on @in: -EIO or 0. */
int data_check(struct core *c, const struct core_inode *in);
/* Mode without set-id bits, as KILLPRIV does it. */
uint32_t mode_killed(uint32_t mode);
/* Queues "clear set-id bits and capabilities" if there is something. */
void killpriv(struct core *c, struct core_inode *in);

/* ---- recount.c; lock held ---- */
/* metad must count the units before the cut takes some of them away: a count
 * does not go below zero. Without memory they are told behind it, and then the
 * daemons are asked for the count. */
void units_send(struct core *c, struct core_inode *in);

/* ---- cut.c; lock held ---- */
/* Truncates to @size, now. Returns false when that cannot be; then @cb does
 * not run. */
bool cut_back(struct core *c, struct core_inode *in, uint64_t size,
	      core_attr_cb cb, void *arg);
/* core_fallocate() of what may fit. Takes the lock itself. */
void cut_fallocate(struct core *c, uint64_t ino, int mode, uint64_t off,
		   uint64_t len, bool kill, core_cb cb, void *arg);
/* Runs @w after the cut in progress. */
void cut_wait(struct core_inode *in, struct core_waiter *w);
/* Must a write wait for it? */
static inline bool cut_holds_writes(const struct core_inode *in)
{
	return in->cut_busy && !in->cut_applied;
}
/* Runs @fn(@arg, in) for every inode with a cut in progress. */
void cut_each(struct core *c, void (*fn)(void *arg, struct core_inode *in),
	      void *arg);

/* ---- alloc.c; lock held ---- */
/* Allocates [off, end) of @in, durably. @done: with the lock, possibly before
 * it returns. Returns 0, or -ENOMEM and @done does not run. */
int alloc_start(struct core *c, struct core_inode *in, uint64_t off,
		uint64_t end, void (*done)(void *arg, int err), void *arg);

/* ---- stale.c ---- */
/* Lock held: runs @fn, without it, when the inode's cut number has been asked
 * of metad. Returns 0, or -ENOMEM and @fn does not run. */
int stale_learn(struct core *c, struct core_inode *in, void (*fn)(void *arg),
		void *arg);
/* The core stops: lets all run now. No lock. */
void stale_end_all(struct core *c);

/* ---- read.c, prefetch.c ---- */
/* Drops what was read ahead of [from, to). Lock held. */
void prefetch_drop(struct core *c, struct core_inode *in, uint64_t from,
		   uint64_t to);

#endif
