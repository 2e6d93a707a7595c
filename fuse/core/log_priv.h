/* Inside the log half of the client core. core->lock protects all of it except
 * where a field says otherwise.
 *
 * A log file is an ordinary file whose writes are, beside the write-back
 * buffer, appended to a log in the memory of log peers; a write is answered
 * when a majority has it (log_writer.h). Blocks get the same content when the
 * log is destaged: an ordinary flush of the file, after which the log's records
 * up to then are not needed any more.
 *
 *	log_open.c     how a log begins, or why not
 *	log_file.c     a log's life: appending, commitment, the end
 *	log_link.c     one log at one peer: lent regions, posts, answers
 *	log_xport_verbs.c, log_verbs_dev.c  posts written into a peer's memory
 *	log_lag.c      which peers are sent a write at once, and which later
 *	log_dev.c      log daemons as this mount knows them
 *	log_order.c    which block writes wait for logs, and destaging in order
 *	log_journal.c  where records are made durable before that
 *	log_tick.c     what time brings: destaging, replacement, the end
 *	log_recover.c  logs that a dead mount left behind; log_fence.c
 *	log_redo.c     what its journal has of them
 *	log_heir.c     the same of one that dies beside others
 */
#ifndef FUSE_CORE_LOG_PRIV_H
#define FUSE_CORE_LOG_PRIV_H

#include "common/log_opts.h"
#include "common/wire_log.h"
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_writer.h"
#include "fuse/core/log_xport.h"
#include "fuse/core/meta_priv.h"

/* The tick of the logs; only while there are any. */
#define LOG_TICK_MS 50u
/* A peer that a majority can do without may be so far behind. */
#define LOG_LAG_MS 1u
#define LOG_LAG_BYTES (32u << 10)
/* A peer that is away, or has not answered, for so long is replaced. */
#define LOG_REPLACE_MS 750u
#define LOG_RETRY_MS 1000u
#define LOG_SHUN_MAX 8u
/* Connections over RDMA that may be lost before a post was complete. */
#define LOG_BREAKS_MAX 3u
#define LOG_PING_MS 1000u
/* A mount that begins waits so long for peers of logs to recover. */
#define LOG_RECOVER_MS 30000u
/* A closed file's log ends after this: it may soon be opened again. */
#define LOG_LINGER_MS 500u
/* As the time when it was closed: its memory is wanted. */
#define LOG_HURRY_MS 1u
/* Without peers: ordinary writes for so long, then they are asked for anew. */
#define LOG_FALLBACK_MS 2000u
/* Another mount wanted it: an ordinary file for so long, twice as long each
 * time; once it was left alone for the longest, as if for the first time. */
#define LOG_RECALLED_MS 50u
#define LOG_RECALLED_MAX_MS 5000u
/* A majority that is not there is waited for so long. */
#define LOG_MINORITY_MS 500u
/* The same of one that is connected and does not answer, or has no memory. */
#define LOG_STALL_MS 2000u
/* Share of the write-back bound that one mount's logs may fill before they are
 * destaged, and before their writers wait. */
#define LOG_DESTAGE_SHARE 4u
#define LOG_WAIT_SHARE 2u
/* Of a larger bound they do not use more: a log's section of the journal is
 * walked with 32 bits. */
#define LOG_MIRROR_MAX ((uint64_t)4 << 30)

struct ibv_mr;

/* A region at a peer, for one-sided writes. */
struct log_mirror_at {
	uint64_t addr;
	uint32_t rkey;
};

struct log_mirror {
	uint32_t refs;
	size_t bytes;
	struct log_mirror_at at[LOG_WRITER_PEER_MAX];
	struct ibv_mr *mr[LOG_VERBS_DEV_MAX]; /* NULL: not registered there */
	uint8_t base[] __attribute__((aligned(64)));
};

struct log_dev {
	struct core *c;
	uint32_t id;
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	struct rpc_peer *peer; /* until rpc_net_free() */
	bool up;
	bool away; /* it was lost, or could not be reached */
	bool ended; /* nobody listens there: what it held is lost */
	uint64_t boot_id; /* 0: none known */
	struct rpc_call ping;
	bool ping_busy;
	uint64_t ping_sent_ms;
};

struct log_file;

/* One log at one peer of its writer, by the same index. */
struct log_link {
	struct log_dev *dev;
	uint32_t life; /* grows when what is on its way stops to count */
	/* How posts go; NULL: over verbs, once there is a connection. */
	const struct log_xport *xport;
	struct log_conn *conn; /* verbs; NULL: none */
	bool connecting; /* it is being made */
	uint32_t breaks; /* connections lost since a post was complete */
	bool leaves; /* it wants its memory back */
	uint64_t trouble_ms; /* since when it has been away or silent; 0: not */
	uint64_t starved_ms; /* since when it has had no memory; 0: it has */
	uint64_t post_ms[LOG_WRITER_POST_MAX]; /* when sent, oldest first */
};

enum log_state {
	LOG_OPENING, /* metad is asked for peers and an epoch */
	LOG_ACTIVE,
	LOG_DROPPING, /* metad is told that it is not needed any more */
	LOG_DEAD, /* only calls in flight keep it */
};

/* Somebody waiting for records up to @seq to be committed. */
struct log_wait {
	struct log_wait *next;
	uint64_t seq;
	void (*fn)(struct log_wait *w, int err); /* lock held */
};

struct log_file {
	struct core *c;
	struct core_inode *in; /* pinned; in->log until DEAD */
	struct dlist node; /* log_client.files */
	enum log_state state;
	uint32_t refs; /* calls in flight, and one until DEAD */
	struct log_writer w; /* from ACTIVE on */
	struct log_link links[LOG_WRITER_PEER_MAX];
	uint64_t mirror_bytes; /* w.regions[].base are of struct log_mirror */
	struct log_wait *waits, **wait_tail; /* by seq */
	struct core_waiter *waiters, **waiter_tail; /* for it to go on */
	uint64_t waiting_ms; /* since when there are some */
	/* All that is not durable in the blocks is in the log (or is on its way
	 * there). Not yet, where the file was dirty when the log was made. */
	bool covers;
	/* Its peers can all lose power at once: the blocks follow in order. */
	bool ordered;
	/* A round of log_order.c waits for the records below; 0. */
	uint64_t order_seq;
	uint64_t snap_seq; /* in the journal up to here; 0: not in it */
	uint64_t journaled_seq; /* durable in a journal or the blocks */
	/* In the region of this base the record jour_seq is at jour_off. */
	const uint8_t *jour_base;
	uint32_t jour_off;
	uint64_t jour_seq;
	bool held; /* a truncate is being put into the log: writes wait */
	uint64_t held_seq; /* the last record before that */
	bool fenced; /* another owns it */
	/* Peers may lag until the timer says otherwise; w.seq when it did. */
	bool lagging;
	uint64_t lag_seq;
	/* destaging */
	bool destaging, destage_again;
	uint64_t destaged_seq; /* durable in the blocks up to here */
	uint64_t destaged_ms; /* the last one began */
	int destage_err; /* it failed, */
	uint64_t destage_retry_ms; /* and is not tried again before this */
	/* No majority can be had: writers wait till all is in the blocks and
	 * metad knows that this log is not needed. */
	bool giving_up;
	uint64_t stalled_ms; /* writers wait, nothing is committed since; 0 */
	uint64_t stalled_at; /* committed then */
	bool starved; /* the last peer asked had no memory */
	uint64_t closed_ms; /* nobody has it open for writing since; 0 */
	/* replacing a peer */
	bool peers_busy; /* candidates are asked for */
	bool set_busy; /* the new list is being published */
	uint64_t retry_ms; /* nothing of the kind before this */
	uint64_t replace_ms; /* the one under way began, or got on */
	uint64_t replace_seq; /* to here, at the new peer */
	/* The last that could not take over: others are asked for, until there
	 * are none. */
	struct log_writer_peer_id shunned[LOG_SHUN_MAX];
	uint32_t shun_count; /* ever */
	/* opening */
	struct log_opts opts; /* of its directory */
	struct log_writer_peer_id ids[LOG_PEER_COUNT_MAX];
	uint32_t id_count;
	bool waited; /* for memory of others, until retry_ms */
	uint64_t epoch;
	uint32_t version;
	struct core_waiter durable;
	struct core_deferred def;
};

/* log_journal.c */
struct log_journal_job;

struct log_journal {
	enum {
		LOG_JOURNAL_NONE,
		LOG_JOURNAL_MAKING,
		LOG_JOURNAL_READY,
		LOG_JOURNAL_DROPPING, /* metad is told that it goes */
	} state;
	bool kept; /* a log ended that was not destaged */
	struct core_file *f, *gone; /* @gone: being released */
	struct core_inode *in;
	uint64_t ino, epoch;
	uint64_t round; /* written last */
	uint64_t retry_ms; /* none is written before this */
	struct log_journal_job *job; /* under way */
	struct core_waiter durable;
	struct core_deferred def, release;
};

/* Rounds of log_order.c. */
enum log_round {
	LOG_ROUND_NONE,
	LOG_ROUND_SNAPSHOT, /* cannot be taken yet */
	LOG_ROUND_JOURNAL, /* is being written there */
	LOG_ROUND_BLOCKS, /* and to the blocks */
};

struct log_client {
	struct core *c;
	struct rpc_peer_ops ops;
	struct log_dev *devs[LOG_DAEMON_COUNT_MAX];
	uint32_t dev_count;
	struct log_verbs *verbs; /* NULL: not needed yet */
	struct core_deferred verbs_look; /* for what is complete */
	bool verbs_looks;
	struct dlist files;
	struct rpc_timer tick;
	bool ticking;
	bool recovering; /* nobody has a log yet */
	enum {
		HEIR_NONE,
		HEIR_RUNS,
		HEIR_OVER, /* to be joined */
	} heir; /* log_heir.c */
	bool stopping; /* all are to end, and then @stopped is called */
	core_cb stopped;
	void *stopped_arg;
	struct core_deferred stop_tell;
	bool stop_told;
	struct core_deferred tick_start;
	struct rpc_timer lag; /* log_lag.c */
	struct core_deferred lag_start;
	bool lag_armed;
	uint64_t mirror_bytes; /* of all */
	struct core_deferred fenced; /* asks metad whether we still live */
	bool fence_told;
	bool fallback_told; /* until a log is opened again */
	/* log_order.c: frames of this round, and of the next */
	struct wb_io *held, *held_next, **held_tail;
	/* those that wait, likewise */
	struct core_waiter *order_waiters, *order_waiters_next, **order_tail;
	struct core_deferred order_def;
	bool order_deferred;
	enum log_round round;
	bool round_wanted; /* another */
	bool round_timed_out;
	bool round_bare; /* there is no journal of it */
	uint64_t round_ms; /* it began */
	bool snapping; /* frames of log files may be made */
	uint32_t round_left; /* logs that it waits for */
	struct wb_io *snap; /* frames of the round's log files */
	struct log_journal jour;
	struct log_redo *redo; /* log_redo.c; while one recovers */
	bool redo_blind; /* one of them cannot be read */
	bool redo_alive; /* a peer had something: not all power was lost */
	struct wb_io *failed; /* frames that a soft mount gives up */
	struct core_deferred failed_def;
	struct {
		uint64_t rounds, went_back;
		uint64_t journals, journal_failed, redone;
		uint64_t opened, dropped, fallbacks, recovered, lost;
		uint64_t appends, append_bytes, posts, post_bytes;
		uint64_t destages, replaced, failed_peers, waits;
	} n;
};

int log_client_new(struct core *c, struct log_client **ret);
/* The net has stopped: whoever still waits gets -EIO. */
void log_client_cancel(struct log_client *l);
void log_client_free(struct log_client *l);

/* JSON member for the status; the first LOG_STATUS_MAX logs. */
#define LOG_STATUS_MAX 64u
void log_status(struct core *c, FILE *out);
/* A log that cannot be destaged ends from now on, for the next mount. */
void log_stop_begin(struct core *c);
/* Behind it: destages and ends all logs, then @cb(0). */
void log_stop(struct core *c, core_cb cb, void *arg);
/* The session is dead. Lock held. */
void log_fence(struct core *c);

/* ---- log_file.c; lock held ---- */
enum log_way {
	LOG_WAY_BLOCKS, /* no log: as ordinary files */
	LOG_WAY_LOG,
	LOG_WAY_WAIT, /* log_wait_turn(), then ask again */
};
/* Where does a change of @in with so many bytes go? Opens a log where there
 * shall be one. -errno: it cannot be. */
int log_way(struct core *c, struct core_inode *in, uint32_t len);
void log_wait_turn(struct core_inode *in, struct core_waiter *w);
/* After LOG_WAY_LOG, within the same critical section: cannot fail. */
void log_append(struct core_inode *in, uint64_t off, const void *p,
		uint32_t len);
/* SIZE or ZERO. */
void log_append_other(struct core_inode *in, enum log_rec_kind kind,
		      uint64_t off, uint64_t arg);
/* A program has set it: a recovery that finds the records before shall not put
 * back what they say. Where that cannot be, or what they say waits, it may. */
void log_mtime(struct core *c, struct core_inode *in, int64_t mtime_ns);
/* Runs w->fn when all that was appended so far is committed. */
void log_commit_wait(struct core_inode *in, struct log_wait *w);
/* Need an fsync of it not look at the blocks? */
bool log_covers(const struct core_inode *in);
bool log_committed_all(const struct core_inode *in);
/* Holds writes up (with true), or lets them go on. */
void log_hold(struct core_inode *in, bool hold);
/* Somebody closed it, its last name went, or it is not a log file any more. */
void log_unheld(struct core *c, struct core_inode *in);

/* Those who wait for records up to @seq are told. */
void log_settle(struct log_file *lf, uint64_t seq, int err);
void log_wake(struct log_file *lf);
/* Those of a soft mount that have waited for its time. */
void log_wake_late(struct log_file *lf, uint64_t now_ms);
/* When all has come to its end: tells log_stop()'s caller. */
void log_stop_maybe(struct core *c);
/* Memory lacks: logs that nobody writes any more go at once, others give back
 * what they can. */
void log_hurry(struct core *c);
/* Another mount wants the file: its log ends, and no other begins for a while;
 * share_log_ended() follows. */
void log_recalled(struct core_inode *in);
/* What opening it waited for may be there. */
void log_open_again(struct log_file *lf);
/* A region's mirror is not needed any more; posts may still send from it. */
void log_region_drop(struct log_file *lf, uint8_t *base);
void log_get(struct log_file *lf);
void log_put(struct log_file *lf);
void log_mirror_put(struct log_mirror *m);
static inline struct log_mirror *log_mirror_of(uint8_t *base)
{
	return container_of(base, struct log_mirror, base);
}
/* It ends here: calls in flight apart, nothing is left of it. */
void log_end(struct log_file *lf);
/* Its memory at the peers goes, if they can be reached; if not, they ask
 * metad. */
void log_free_all(struct log_file *lf);
/* The same of one that is on no list any more, in this boot of it. */
void log_free_peer(struct log_file *lf, uint32_t peer);

/* ---- log_open.c; lock held ---- */
/* The file's first write: in->log is there then, and opening. */
int log_open(struct core *c, struct core_inode *in);
/* Parses a meta_log_entry of @ino: 0 or -EBADMSG. */
int log_entry_take(const uint8_t *body, uint32_t len, uint64_t ino,
		   struct meta_log_entry *e);
/* Encoded meta_log_peer's. */
int log_ids_put(struct wire_out *o, const struct log_writer_peer_id *ids,
		uint32_t count);
int log_ids_take(const uint8_t *body, uint32_t len, uint32_t max,
		 struct log_writer_peer_id *ids, uint32_t *count);
/* META_LOG_PEERS, of those with @bytes free, answered to @done with arg @lf,
 * which has a reference. @have: LOG_WRITER_PEER_MAX + LOG_SHUN_MAX at most. */
int log_ask_peers(struct log_file *lf, uint32_t count, uint64_t bytes,
		  const struct log_writer_peer_id *without, uint32_t have,
		  void (*done)(struct meta_call *mc, int err,
			       const uint8_t *body, uint32_t len));
/* META_LOG_SET, queued: the caller sets done. NULL: no memory. */
struct meta_call *log_set_new(struct core *c, const struct meta_log_set *want,
			      const struct log_writer_peer_id *ids,
			      uint32_t count);
/* META_LOG_DROP, likewise. */
struct meta_call *log_drop_new(struct core *c, uint64_t ino, uint64_t epoch);

/* ---- log_link.c; lock held ---- */
/* Does at each peer what is next. */
void log_step(struct log_file *lf);
void log_links_init(struct log_file *lf);
void log_link_init(struct log_file *lf, uint32_t peer);
/* A connection of @d is there, or gone. */
void log_links_up(struct log_dev *d);
void log_links_down(struct log_dev *d);
/* The log ends: nothing is posted any more. */
void log_links_close(struct log_file *lf);
void log_peer_failed(struct log_file *lf, uint32_t peer, const char *why);
/* It wants the log's memory back: it counts until it is replaced. */
void log_peer_leaves(struct log_file *lf, const struct log_dev *d);

/* ---- log_lag.c; lock held ---- */
/* May what is next for this peer wait? */
bool log_may_lag(const struct log_file *lf, uint32_t peer);
/* Writes are being answered: more are likely to follow. */
void log_lag_want(struct log_file *lf);

/* ---- log_dev.c; lock held ---- */
/* NULL: not in the map, or no memory. */
struct log_dev *log_dev_of(struct core *c, uint32_t id);
void log_dev_ping(struct log_dev *d);
/* Those known not to be there: a log shall not begin with them. Returns how
 * many; @ids: [LOG_WRITER_PEER_MAX]. */
uint32_t log_devs_away(struct core *c, struct log_writer_peer_id *ids);
/* There is another map: daemons may be elsewhere. Not under the lock. */
void log_devs_move(struct core *c);

/* ---- log_tick.c; lock held ---- */
void log_tick_want(struct core *c);
void log_destage(struct log_file *lf);
/* The last record that can be called durable when what @lf has now is in the
 * blocks. */
uint64_t log_destage_end(const struct log_file *lf);
/* The flush of that. False: no memory. */
bool log_destage_begin(struct log_file *lf);
/* The file begins anew: the log that could not be recovered is not waited for
 * any more. */
void log_forget_lost(struct core *c, struct core_inode *in);

/* ---- log_order.c; lock held ---- */
/* Has this frame to wait? Then it is taken, and log_order_go() follows. */
bool log_order_hold(struct core *c, struct wb_io *io);
void log_order_go(struct core *c);
/* Has what takes names or content away to wait? Then @w->fn runs later. */
bool log_order_wait(struct core *c, struct core_waiter *w);
bool log_order_due(const struct core *c);
/* Is the file's content sent in rounds alone? */
bool log_in_order(const struct log_file *lf);
/* Then one shall begin, now or behind the one under way. */
void log_order_want(struct core *c);
/* May frames of @in not be made now? */
bool log_order_keeps(const struct core *c, const struct core_inode *in);
/* Somebody waits for content of @in: then a round is wanted, if that is not
 * how it comes about. */
void log_order_asked(struct core *c, const struct core_inode *in);
/* The journal of the round is durable, or is not to be had. */
void log_order_written(struct core *c, int err);
void log_order_tick(struct core *c);
/* Are frames of @in held back? */
bool log_order_holds(const struct core *c, const struct core_inode *in);
/* They are dirty again: content of it is taken away. */
void log_order_send_back(struct core *c, const struct core_inode *in);
/* The mount goes: who waits is told. */
void log_order_cancel(struct core *c);
/* What the round may have waited for is over: a cut, frames in flight. */
void log_order_again(struct core *c);
/* Something of the log has become durable in the blocks, could not, or it has
 * ended. */
void log_order_step(struct log_file *lf, int err);

/* ---- log_journal.c; lock held ---- */
/* What its file is made with. */
extern const struct core_create log_journal_create;
/* What the journal of this round is to have; NULL: no memory. */
struct log_journal_job *log_journal_new(struct core *c);
/* log_order_written() follows, perhaps at once. Takes @j. */
void log_journal_write(struct core *c, struct log_journal_job *j);
/* What memory lacked for. */
void log_journal_tick(struct core *c);
/* Gives the file up. False: something is under way; the tick asks again. */
bool log_journal_end(struct core *c);
void log_journal_free(struct log_client *l);

/* ---- log_recover.c ---- */
/* Blocks; before the mount serves. Returns 0, also when some could not be
 * recovered (their files answer -EIO), or why metad could not be asked. */
int log_recover_all(struct core *c, uint64_t deadline_ms);

/* ---- log_heir.c ---- */
/* Dead mounts left logs that nobody recovers. Lock held. */
void log_heir_begin(struct core *c);
/* After log_stop_begin(): it comes to its end, where it is not done yet for the
 * next one. Blocks. */
void log_heir_end(struct core *c);

#endif
