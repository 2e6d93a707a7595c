/* The store's inside, for blockd/store*.c and its parts. All of it belongs to
 * the loop's thread; only index_apply() and the making of segments run on the
 * worker.
 *
 * A unit's way: an op (op.h order) puts it into a unit buffer (ubuf.c) or a
 * fresh extent (write.c) and marks its block dirty twice: for the journal
 * (jdirty, commit.c) and for the checkpoint (ckpt.c).
 *
 * Versions: every change of a block takes the next number of the store's
 * counter. A journal item replays only onto an image of a smaller version
 * (ARIES' page LSN), so the index may run ahead of the journal's tail.
 *
 * Overwriting in place: only a unit whose content is, whole, in a journal
 * record newer than the block's image in the index (ubuf.in_journal); all
 * else goes to fresh units.
 *
 * Freed units: those freed before a checkpoint began are given out again when
 * it is on disk (free_next -> free_now -> allocator). So nothing that a restart
 * may read names a free unit: no image in the index, and no record from the
 * tail on (what they say is superseded, but a replay may lack what superseded
 * it: a checkpoint that was cut off may have removed a block from the index
 * for a cut that is not in the journal).
 */
#ifndef BLOCKD_STORE_PRIV_H
#define BLOCKD_STORE_PRIV_H

#include "blockd/extent.h"
#include "blockd/image.h"
#include "blockd/index.h"
#include "blockd/jrec.h"
#include "blockd/slist.h"
#include "blockd/store.h"
#include "blockd/worker.h"

/* A write of at least this many whole units goes to fresh extents. */
#define LARGE_UNITS 16u
#define OP_SMALL_MAX (LARGE_UNITS + 2) /* units an op buffers */
#define OP_IO_MAX 8u
#define BLOCK_HASH_SIZE 16384u
#define INODE_HASH_SIZE 4096u
#define OBJECT_BYTES_DEFAULT (40u << 20)
#define OBJECT_BYTES_TYPICAL 4096u /* a block of the default size */
#define DIRTY_BLOCKS_WAIT 64u
#define COMMIT_UNITS_MAX 256u /* inline units of a record */
#define COMMIT_META_MAX (128u << 10)
#define CKPT_ARENA_UNITS BLOCK_UNITS_MAX
#define CKPT_IO_DEPTH 16u
#define CKPT_VALUES_MAX (2u << 20)
#define CKPT_PUTS_MAX 4096u
#define CKPT_CUTS_MAX 32768u /* that wait; 10 MiB with their inodes */
#define CKPT_SLICE_BLOCKS 64u
#define EDGE_TRIES_KEPT 16u
#define EDGE_TRIES_MAX 20u
#define CKPT_IDLE_MS 3000u
#define CKPT_AGE_MS 30000u
#define RESERVE_UNITS_MIN 256u
#define CACHE_BYTES_MIN (512u << 10)
#define READ_RETRY_MAX 8u

struct super {
	uint64_t store_id_hi;
	uint64_t store_id_lo;
	uint64_t nonce;
	uint64_t cluster_id;
	uint64_t journal_bytes;
	uint32_t daemon_id;
};

/* A unit's newest content in memory. */
struct ubuf {
	struct slist lru; /* clean ones */
	struct block *b;
	uint32_t next_free;
	uint16_t unit;
	bool dirty; /* newer than what a checkpoint has taken */
	bool flying; /* taken by a checkpoint that is not on disk yet */
	bool in_journal; /* see above */
	bool reserved; /* holds a promise of one unit */
	bool held; /* an op will change it */
};

struct block {
	struct slist hash;
	struct slist in_inode;
	struct slist lru; /* clean and unpinned */
	struct slist clink; /* s->dirty or ckpt.todo */
	struct slist flink; /* ckpt.flying */
	struct slist jlink; /* inode->jblocks or commit.todo */
	struct slist ops; /* op.in_block: changes in the order of calls */
	struct inode *in;
	uint64_t index;
	struct image m;
	uint64_t encoded; /* version of the last image for the index */
	uint64_t record; /* number of the last one with this block */
	uint32_t units; /* allocated */
	uint32_t pins;
	uint32_t ubuf_count;
	uint32_t dirty_ubufs;
	uint32_t size; /* of this object */
	bool dirty; /* differs from what the last checkpoint took */
	bool flying;
	bool gone; /* flying, and deleted from the index */
	bool jmeta; /* end or cut changed without a unit */
	bool on_jlist; /* on some journal list */
	uint64_t *jdirty; /* units changed since last journalled */
	uint64_t *cdirty; /* units of the checkpoint under way */
	uint32_t *ubuf; /* [unit]: number + 1 in the pool; 0 none */
};

/* A cut or purge the index does not have yet. */
struct cut {
	struct slist in_inode;
	struct slist in_store; /* s->cuts, by version */
	struct inode *in;
	struct image_cut c;
	bool armed; /* its inode's blocks are in the commit under way */
	bool journalled;
	bool flying; /* in the checkpoint under way */
};

struct op;

struct inode {
	struct slist hash;
	struct slist blocks; /* in memory */
	struct slist jblocks; /* changed since journalled */
	struct slist jlink; /* s->jinodes */
	struct slist cuts;
	struct slist waitq; /* ops at the gate */
	uint64_t ino;
	uint64_t cut;
	uint32_t refs; /* blocks, ops, cuts */
	uint32_t running; /* ops behind the gate */
	struct op *excl; /* alone behind the gate */
	bool purged;
};

struct segment {
	int file;
	uint32_t ios; /* under way: the file stays open */
	uint64_t written; /* completed writes */
	uint64_t flushed; /* of them on disk */
	struct slist commit_link; /* in commit.segs: flush before the record */
	struct slist ckpt_link; /* in ckpt.segs */
	struct seg_flush {
		struct dev_io io;
		uint64_t covers;
	} commit_flush, ckpt_flush;
};

struct run_list {
	struct extent_run *runs;
	size_t count;
	size_t cap;
};

struct commit {
	enum commit_state {
		COMMIT_IDLE,
		COMMIT_NEXT, /* a record is to be built */
		COMMIT_FLUSH,
		COMMIT_WRITE,
	} state;
	bool posted;
	struct slist waiting; /* requests for the next commit */
	struct slist current;
	struct slist todo; /* blocks */
	struct slist segs; /* that the record points into */
	uint8_t *buf; /* the record */
	struct wire_out meta;
	struct jrec_header h;
	struct dev_io io;
	uint32_t flush_pending;
	uint32_t cuts_armed;
	uint64_t off; /* of the record in the file */
	struct commit_mark {
		struct block *b;
		uint64_t version;
		uint32_t unit;
	} marks[COMMIT_UNITS_MAX];
	uint32_t mark_count;
	uint32_t inline_count;
	uint32_t inlines[COMMIT_UNITS_MAX]; /* ubufs */
};

struct ckpt {
	enum ckpt_state {
		CKPT_IDLE,
		CKPT_FILL, /* taking blocks, writing their units */
		CKPT_FLUSH,
		CKPT_INDEX,
		CKPT_FULL, /* as INDEX, until the disk has room */
	} state;
	bool want;
	bool posted;
	struct slist todo; /* blocks not taken yet */
	struct slist flying; /* blocks taken, not on disk */
	struct slist segs; /* written since the last flush */
	uint64_t started; /* count */
	uint64_t finished;
	uint64_t tail_off;
	uint64_t tail_seq;
	uint8_t *arena;
	uint32_t arena_used; /* units */
	struct dev_io *ios; /* [CKPT_ARENA_UNITS] */
	uint32_t io_count;
	uint32_t io_next;
	uint32_t io_pending;
	uint32_t flush_pending;
	struct index_batch batch;
	size_t values_len;
	size_t batch_cut_cap;
	struct worker_job job;
	int job_err;
	bool full; /* the disk has no room for the index: tried again */
};

struct grow {
	struct worker_job job;
	bool running;
	bool failed; /* until a checkpoint or a second has passed */
	int file;
	uint32_t unit_count;
	int err;
	uint64_t failed_ms;
};

/* The last segment on its way out: in no list of the store any more. */
struct shrink {
	struct worker_job job;
	struct segment *seg; /* NULL: none */
	uint32_t number;
	uint32_t unit_count;
	bool running; /* on the worker */
	bool failed; /* no more until a restart */
	bool gone; /* unlinked */
	int err;
};

/* How often the edge of a cut could not be read. */
struct edge_tries {
	uint64_t ino;
	uint64_t cut;
	uint32_t count;
};

struct store {
	struct dev *dev;
	struct store_options o;
	char *dir;
	struct super super;
	struct index *index;
	struct worker *worker;
	int journal_file;

	/* entry, exit and answers: store.c */
	uint32_t depth;
	bool deliver_posted;
	bool closing;
	uint32_t scrubs; /* at work; they stop when they see @closing */
	bool close_done;
	struct slist ready; /* op.link */
	struct slist done; /* requests */
	void (*close_cb)(void *arg, int err);
	void *close_arg;
	struct store_req close_req;
	int error;
	char error_text[160];

	/* objects */
	struct slist block_hash[BLOCK_HASH_SIZE];
	struct slist inode_hash[INODE_HASH_SIZE];
	struct slist block_lru;
	struct slist dirty; /* blocks for the next checkpoint */
	struct slist jinodes;
	struct slist cuts;
	struct image_cut *cut_buf; /* room for all of cuts */
	size_t cut_count;
	struct edge_tries edge_tries[EDGE_TRIES_KEPT];
	size_t cut_cap;
	uint64_t block_bytes;
	uint64_t dirty_blocks;
	uint64_t dirty_since_ms;
	uint64_t active_ms;
	struct op *op_free;
	struct op *op_all;

	/* unit buffers */
	uint8_t *pool;
	size_t pool_bytes;
	struct ubuf *ubufs;
	uint32_t ubuf_cap; /* in the pool */
	uint32_t ubuf_limit; /* in use beside recovery */
	uint32_t ubuf_used;
	uint32_t ubuf_clean;
	uint32_t ubuf_next; /* never used yet from here */
	uint32_t ubuf_free; /* number + 1 */
	struct slist ubuf_lru;

	/* space */
	struct extent_map map;
	struct segment **segs;
	uint32_t seg_cap;
	uint64_t promised; /* units */
	uint64_t reserve; /* units */
	struct run_list free_next;
	struct run_list free_now;
	struct run_list releasing; /* free, on their way to the allocator */
	bool release_posted;
	struct slist waiting; /* ops for buffers or units */
	struct grow grow;
	struct shrink shrink;
	uint64_t fs_units_free;
	uint64_t fs_checked_ms;

	/* journal */
	uint64_t head; /* next record's place */
	uint64_t seq; /* next record's number */
	uint64_t tail;
	uint64_t tail_seq;
	uint64_t record_max;
	uint64_t version;
	uint64_t ino_max;
	uint64_t session_max;
	struct commit commit;
	struct ckpt ckpt;

	uint32_t walk_loc[BLOCK_UNITS_MAX];
	uint32_t walk_crc[BLOCK_UNITS_MAX];
	struct store_stat st; /* counters only */
};

struct req_priv {
	struct slist link;
	struct op *op;
	uint64_t ino;
	int err;
};
_Static_assert(sizeof(struct req_priv) <=
	       sizeof(((struct store_req *)0)->priv), "fits");

static inline struct req_priv *req_priv(struct store_req *r)
{
	return (struct req_priv *)(void *)r->priv;
}

/* ---- store.c ---- */
/* Around everything that comes from outside: API calls (@api) and dev's
 * callbacks. The last leave runs what became ready and gives answers. */
void store_enter(struct store *s);
void store_leave(struct store *s, bool api);
/* Answers later, never from inside. */
void store_answer(struct store *s, struct store_req *r, int err);
/* The first failure stops the store. */
void store_fail(struct store *s, int err, const char *what)
	__attribute__((cold));
struct store *store_new(struct dev *d, const struct store_options *o);
void store_free(struct store *s);

/* ---- super.c ---- */
/* @buf: UNIT_SIZE bytes. */
void super_encode(uint8_t *buf, const struct super *sp);
/* 0 and *format, also of a later one; or -EBADMSG. */
int super_decode(const uint8_t *buf, struct super *sp, uint32_t *format);
int super_read(struct dev *d, const struct store_options *o,
	       struct super *sp, char *why, size_t why_size) must_check;
uint64_t store_index_bytes(const struct store_options *o);

/* ---- bitmap of a block's units ---- */
static inline bool bits_get(const uint64_t *b, uint32_t u)
{
	return b[u / 64] >> (u % 64) & 1;
}
static inline void bits_put(uint64_t *b, uint32_t u, bool v)
{
	uint64_t bit = (uint64_t)1 << (u % 64);

	b[u / 64] = v ? b[u / 64] | bit : b[u / 64] & ~bit;
}
/* First set bit in [@u, @count) or @count. */
static inline uint32_t bits_next(const uint64_t *b, uint32_t u,
				 uint32_t count)
{
	while (u < count) {
		uint64_t w = b[u / 64] >> (u % 64);

		if (w != 0) {
			u += (uint32_t)__builtin_ctzll(w);
			return u < count ? u : count;
		}
		u = (u / 64 + 1) * 64;
	}
	return count;
}

/* ---- ubuf.c ---- */
int ubuf_pool_init(struct store *s, uint64_t bytes, uint64_t limit);
void ubuf_pool_fini(struct store *s);
static inline uint32_t ubuf_id(const struct store *s, const struct ubuf *ub)
{
	return (uint32_t)(ub - s->ubufs);
}
static inline uint8_t *ubuf_mem(const struct store *s, const struct ubuf *ub)
{
	return s->pool + (size_t)ubuf_id(s, ub) * UNIT_SIZE;
}
static inline struct ubuf *block_ubuf(const struct store *s,
				      const struct block *b, uint32_t u)
{
	return b->ubuf[u] == 0 ? NULL : &s->ubufs[b->ubuf[u] - 1];
}
/* Whether @count more can be had without waiting. */
bool ubuf_can(const struct store *s, uint32_t count);
/* @beyond: recovery may pass the limit. NULL: none. */
struct ubuf *ubuf_get(struct store *s, bool beyond);
/* Not attached. */
void ubuf_put(struct store *s, struct ubuf *ub);
void ubuf_attach(struct store *s, struct block *b, uint32_t u,
		 struct ubuf *ub);
/* Frees a unit's buffer with its promise. */
void ubuf_drop(struct store *s, struct block *b, uint32_t u);
void ubuf_set_dirty(struct store *s, struct ubuf *ub, bool dirty);
/* On the list of those that may be taken away, if it may. */
void ubuf_settle(struct store *s, struct ubuf *ub);
/* Off that list. */
void ubuf_claim(struct store *s, struct ubuf *ub);

/* ---- block.c ---- */
/* With a reference. NULL and *err. */
struct inode *store_inode_get(struct store *s, uint64_t ino, int *err);
struct inode *store_inode_find(struct store *s, uint64_t ino);
void inode_put(struct store *s, struct inode *in);
/* The block, pinned; from memory, the index, or (@create) new.
 * -ENOENT, -EINVAL (other block size), -ENOMEM, -EIO (index damaged). */
int block_get(struct store *s, struct inode *in, uint64_t index,
	      uint8_t block_log2, bool create, struct block **ret) must_check;
struct block *block_find(struct store *s, uint64_t ino, uint64_t index);
void block_put(struct store *s, struct block *b);
static inline bool block_evictable(const struct block *b)
{
	return b->pins == 0 && !b->dirty && !b->flying && !b->on_jlist;
}
/* Room for another block object without waiting. */
bool block_room(struct store *s);
/* The block changed: a new version and both lists. */
void block_touch(struct store *s, struct block *b);
void block_set_version(struct store *s, struct block *b, uint64_t version);
void block_mark(struct store *s, struct block *b, uint32_t u);
/* Unit @u becomes a hole; what it had is freed. */
void block_punch_unit(struct store *s, struct block *b, uint32_t u);
/* Applies a cut to the object. Returns units that went. */
uint32_t block_cut(struct store *s, struct block *b,
		   const struct image_cut *c);
/* Off the dirty lists, evictable. */
void block_settle(struct store *s, struct block *b);
void block_free(struct store *s, struct block *b);
void block_unlist_journal(struct store *s, struct block *b);

/* ---- space.c ---- */
enum { SPACE_OK = 0, SPACE_WAIT = 1 };
/* May @holes new units and @temp passing ones (for overwriting) be promised?
 * SPACE_OK, SPACE_WAIT (ask again when woken), -ENOSPC. */
int space_ask(struct store *s, struct op *op, uint64_t holes, uint64_t temp);
void space_freed(struct store *s, uint32_t loc, uint32_t count);
/* False: no memory. */
bool run_list_add(struct run_list *l, uint32_t loc, uint32_t count);
void space_take_freed(struct store *s, struct run_list *l);
void space_release(struct store *s);
void space_wake(struct store *s);
/* Makes a segment ahead of need. */
void space_ahead(struct store *s);
uint64_t space_growable(struct store *s);
uint32_t space_segment_units(const struct store *s, uint32_t seg);
void space_segment_name(char *buf, size_t size, uint32_t seg);
int space_add_segment(struct store *s, int file, uint32_t units);
/* Around every I/O on a segment's file. */
static inline void segment_hold(struct segment *seg)
{
	seg->ios++;
}
void segment_put(struct store *s, struct segment *seg);
/* Flushes @seg's file by @f, which is the segment's, unless all that was
 * written to it is on disk. Then @done comes, which *pending counts before,
 * and begins with segment_flushed(); io->priv: segment, store. */
void segment_flush(struct store *s, struct segment *seg, struct seg_flush *f,
		   void (*done)(struct dev_io *io, int res), uint32_t *pending);
/* On disk is what the flush covered; or the store has failed. */
void segment_flushed(struct store *s, struct segment *seg,
		     const struct seg_flush *f, int res);
/* Gives the last segment back to the disk when it can be spared. */
void space_shrink(struct store *s);

/* ---- journal.c (positions), commit.c ---- */
/* Where a record of @len would lie. False: no room before a checkpoint. */
bool journal_place(const struct store *s, uint64_t len, uint64_t *off);
uint64_t journal_used(const struct store *s);
void commit_join(struct store *s, struct store_req *r, uint64_t ino);
/* For commit_join(): all purges, and nothing else. */
#define COMMIT_PURGES UINT64_MAX
void commit_kick(struct store *s);
void commit_fail(struct store *s);
/* No record is built and not on disk. */
static inline bool commit_quiet(const struct store *s)
{
	return s->commit.state == COMMIT_IDLE ||
	       s->commit.state == COMMIT_NEXT;
}

/* ---- ckpt.c ---- */
void ckpt_request(struct store *s);
/* Starts one if asked for or due. */
void ckpt_kick(struct store *s);
void ckpt_tick(void *arg);
static inline bool store_clean(const struct store *s)
{
	return slist_empty(&s->dirty) && slist_empty(&s->cuts) &&
	       s->ckpt.state == CKPT_IDLE;
}

/* ---- walk.c: blocks in order, as of now: memory over cuts over index ---- */
struct store_walk {
	struct store *s;
	struct inode *only;
	struct block **mem; /* sorted */
	size_t mem_count, mem_next;
	bool index_more;
	struct image_key index_key;
	const void *val;
	size_t len;
	/* of walk_next() */
	struct image_key key;
	const struct image *m; /* valid until the next call */
	const struct block *b; /* NULL: only in the index */
	struct image scratch;
};
/* From @from on; @only: of that inode. Nothing else may happen before
 * walk_end(), which is due also when this fails. 0 or -errno. */
int walk_begin(struct store *s, struct store_walk *w,
	       const struct image_key *from, struct inode *only) must_check;
/* 1, 0 at the end, -errno. Empty blocks are left out. */
int walk_next(struct store_walk *w) must_check;
void walk_end(struct store_walk *w);

/* ---- cut.c ---- */
/* Takes effect on what is loaded later. NULL: out of memory. */
struct cut *cut_new(struct store *s, struct inode *in,
		    const struct image_cut *c);
/* On blocks in memory. */
void cut_blocks(struct store *s, struct inode *in, const struct image_cut *c);

/* ---- recover.c ---- */
int recover(struct store *s, const struct index_state *st, char *why,
	    size_t why_size) must_check;

#endif
