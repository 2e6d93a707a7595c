/* Inside the metadata half of the client core: the connection to metad, and
 * what the files of this half share. See core_priv.h for the lock.
 */
#ifndef FUSE_CORE_META_PRIV_H
#define FUSE_CORE_META_PRIV_H

#include "fuse/core/core_priv.h"

#define META_MHDR_LEN 24u
#define META_RHDR_LEN 24u
/* Answered mutations we keep for replay may hold this much memory before the
 * stream waits for them to become durable. */
#define META_KEPT_BYTES_MAX (16u << 20)
/* metad may give our leases away when it heard nothing for longer; we stop
 * using them earlier (design section 6). */
#define META_SERVE_MS 6000u
#define META_FENCED_REST_MS 60000u
#define META_SYNC_COUNT_MAX 4u /* META_SYNCs in flight */

/* Of a mutation. In the order of sequence: ANSWERED, SENT and RESET mixed,
 * then LOCAL. */
enum meta_state {
	META_QUERY, /* no mutation */
	META_LOCAL, /* waits for room in the window */
	META_SENT, /* in the rpc layer */
	META_RESET, /* the connection broke: sent again on the next */
	META_ANSWERED, /* kept until durable */
	META_DEAD, /* never sent; freed by its deferred end */
};

struct meta_root_wait {
	core_cb cb;
	void *arg;
};

struct meta_sync_call {
	struct rpc_call rpc;
	struct meta_client *m;
	uint8_t body[16];
	uint64_t target; /* position, of boot_id's count */
	uint64_t boot_id;
	bool busy;
};

/* Protected by core->lock unless said otherwise. */
struct meta_client {
	struct core *c;
	struct rpc_peer *peer; /* set by meta_client_start() */
	struct rpc_peer_ops ops;
	uint64_t session; /* 0: none yet */
	uint64_t boot_id; /* of the metad that is connected */
	bool up;
	bool fenced;
	bool resetting; /* the connection is dropped by ourselves */
	bool closing; /* SESSION_CLOSE is on its way */
	bool gone; /* metad has refused the session since @closing */
	bool closed; /* and was answered, or given up */
	uint32_t keepalive_ms;

	/* the stream */
	uint64_t seq; /* last given out */
	struct meta_call *head, *tail; /* kept mutations, by sequence */
	struct meta_call *local; /* first LOCAL one */
	uint64_t kept_count, kept_bytes;
	struct meta_call *queries; /* in flight */

	/* durability */
	uint64_t durable; /* position, of boot_id's count */
	uint64_t durable_seq; /* all of our stream up to it is durable */
	/* the largest answered with success; the last, of boot_id's count */
	uint64_t answered_seq;
	uint64_t ok_seq, ok_pos;
	struct core_waiter *waiters; /* for durable_seq to grow */
	struct meta_sync_call sync[META_SYNC_COUNT_MAX];

	/* session.c: these run on the net's thread */
	struct rpc_timer keepalive_timer, tick_timer, map_timer;
	struct rpc_call keepalive;
	uint8_t *keepalive_body;
	uint64_t keepalive_sent_ms;
	bool keepalive_busy, suspect;
	uint64_t alive_ms; /* when the last answered keepalive was sent */
	struct rpc_call map_call;
	bool map_busy;
	bool started; /* meta_client_start() is over */
	int down_err; /* why it was not connected last, until @started */
	uint64_t map_epoch, map_wanted;

	struct {
		uint64_t mutations, queries, replays, resent, syncs;
		uint64_t connects, boots, window_full, timeouts, differ;
		uint64_t keepalives, kept_max;
	} count;
};

static inline bool meta_is_mutation(uint16_t op)
{
	return op >= WIRE_OP_META_CREATE && op < WIRE_OP_SM_SESSION_OPEN;
}

/* core.c: starts @start and waits until @deadline_ms (0: for ever). */
int core_call_wait(struct core *c,
		   void (*start)(struct core *c, core_cb cb, void *arg),
		   uint64_t deadline_ms);

/* meta_client.c */
int meta_client_new(struct core *c, struct meta_client **ret);
/* The net has stopped: whoever still waits gets -EIO. */
void meta_client_cancel(struct meta_client *m);
void meta_client_free(struct meta_client *m);
/* Lock held: what waits is sent as far as the window lets it. */
void meta_stream_push(struct meta_client *m);
/* Lock held, net's thread: the session is dead. */
void meta_fence(struct meta_client *m, const char *why);
void meta_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg);
void meta_down(struct rpc_peer *p, int err, void *arg);
/* Answers users whose soft timeout has passed. Lock held. */
void meta_expire(struct meta_client *m, uint64_t now_ms);

/* meta_durable.c; lock held */
/* Takes a reply's header. */
void meta_note_reply(struct meta_client *m, const struct meta_rhdr *rh);
/* @mc has been answered with success. */
void meta_note_answer(struct meta_client *m, const struct meta_call *mc);
/* Takes @mc out of the stream, to the list @gone. */
void meta_kept_remove(struct meta_client *m, struct meta_call *mc,
		      struct meta_call **gone);
/* Looks what has become durable: drops kept mutations (to *gone, a list by
 * next, for the caller to free after the unlock), runs waiters, syncs. */
void meta_progress(struct meta_client *m, struct meta_call **gone);
void meta_sync_kick(struct meta_client *m);
void meta_waiters_end(struct meta_client *m, int err, uint64_t due_ms);
void meta_calls_free(struct meta_call *list);

/* meta_session.c */
int meta_client_start(struct core *c, uint64_t deadline_ms);
int meta_client_stop(struct core *c, uint64_t deadline_ms);
void meta_epoch(struct rpc_peer *p, uint64_t epoch, void *arg);

/* ret.c */
int ret_new(struct core *c, struct ret **ret);
void ret_free(struct ret *r);
/* Lock held: queues everything this session holds and sends it. */
void ret_flush_all(struct core *c);
/* Lock held: it has no name any more, and is given back when nobody holds it.
 * @ino need not be cached. */
void ret_orphan(struct core *c, uint64_t ino);
/* Lock held: somebody let go of @in: an orphan may be given back now. */
void ret_unheld(struct core *c, struct core_inode *in);

/* readdir.c */
int dir_pages_new(struct dir_pages **ret);
void dir_pages_free(struct dir_pages *d);
/* Lock held: the directory changed: listings that begin now are asked of
 * metad. */
void dir_pages_changed(struct core *c, uint64_t dir);
void dir_pages_drop_all(struct core *c);

/* name_cache.c: what this mount knows of (directory, name). Lock held. */
int name_cache_new(struct name_cache **ret);
void name_cache_free(struct name_cache *n);
/* Remembers; @ino 0: known not to exist. */
void name_cache_set(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t ino);
/* Returns true and *ino (0: no such name) when known. */
bool name_cache_get(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino);
/* What it means is not known any more. */
void name_cache_forget(struct core *c, uint64_t dir, const char *name,
		       size_t len);
void name_cache_drop_all(struct core *c);

/* dir_known.c: names of directories this mount made. Lock held. */
int dir_known_new(struct dir_known **ret);
void dir_known_free(struct dir_known *k);
void dir_known_drop_all(struct core *c);
/* The directory was made (it is empty), or is no more. */
void dir_known_made(struct core *c, uint64_t dir);
void dir_known_gone(struct core *c, uint64_t dir);
/* An operation that may make the name is being queued. */
void dir_known_add(struct core *c, uint64_t dir, const char *name, size_t len);
/* One that removed it, or was expected to make it and did not, is answered. */
void dir_known_del(struct core *c, uint64_t dir, const char *name, size_t len);
/* It certainly does not exist. */
bool dir_known_absent(struct core *c, uint64_t dir, const char *name,
		      size_t len);
/* It certainly has no name in it. */
bool dir_known_empty(struct core *c, uint64_t dir);

/* core_status.c */
void core_notes_free(struct core *c);

/* Are they such as an inode can have? Others are garbage, and refused. */
bool meta_attr_sane(const struct meta_attr *a);
/* Decodes a reply's body that is attributes of @ino. Returns 0 or -EBADMSG. */
int meta_reply_attr_of(uint64_t ino, const uint8_t *body, uint32_t len,
		       struct meta_attr *a);
/* Decodes the attributes that start a reply's body; *in is left after them.
 * Returns 0 or -EIO (and counts it as a bad reply). */
int meta_reply_attr(const uint8_t *body, uint32_t len, struct meta_attr *a,
		    struct wire_in *in);
/* The same of @mc's answer, and takes them into the cache. Lock held. *ret may
 * be NULL. */
int meta_take_attr(const struct meta_call *mc, const uint8_t *body,
		   uint32_t len, struct meta_attr *a, struct core_inode **ret);
/* meta_call.timed_out for u.attr_cb and u.cb. */
void meta_attr_timed_out(struct meta_call *mc);
void meta_cb_timed_out(struct meta_call *mc);
/* core_getattr(). @recovery: for what share_recovers() began; it does not wait
 * for itself. No lock. */
void attr_get(struct core *c, uint64_t ino, bool recovery, core_attr_cb cb,
	      void *arg);

/* namei.c; lock held. Attributes and listings follow a change whose answer
 * is @mc's. */
void dir_changed(struct core *c, uint64_t dir, const struct meta_call *mc,
		 int nlink_delta);
void inode_set_ctime(struct core_inode *in, int64_t now_ns);
void inode_lost_name(struct core *c, uint64_t ino, uint32_t nlink,
		     const struct meta_call *mc);

/* open.c */
/* A handle that is not in use yet; NULL: no memory. */
struct core_file *file_new(int flags);
/* Lock held: the handle is open from now on. */
void file_attach(struct core *c, struct core_file *f, struct core_inode *in);

#endif
