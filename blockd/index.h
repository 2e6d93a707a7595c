/* The index: block images in LMDB, behind the journal.
 *
 * Databases: "blocks" (be64 ino, be64 block index -> image.h value), "cuts"
 * (be64 ino -> u64 last cut, u32 checksum), "meta" ("state" -> struct
 * index_state).
 *
 * A transaction is on disk when index_apply() returns: LMDB runs with its own
 * syncs (pages, then the meta page), because without them a power cut may
 * keep a meta page whose tree it lost. They cost nothing here: only the
 * store's thread waits for them.
 *
 * Reads run on the loop, index_apply() on the store's thread.
 */
#ifndef BLOCKD_INDEX_H
#define BLOCKD_INDEX_H

#include "blockd/extent.h"
#include "blockd/image.h"

struct index;

/* What the last checkpoint said. */
struct index_state {
	uint64_t tail_off; /* journal replay begins here */
	uint64_t tail_seq; /* with this record */
	uint64_t version; /* largest change counter */
	uint64_t ino_max;
	uint64_t session_max;
	uint64_t store_id_hi;
	uint64_t store_id_lo;
};

/* Makes an empty index under @dir, over what an interrupted format left. */
int index_format(const char *dir, const struct index_state *st,
		 uint64_t map_bytes);
/* Reads everything in a child process, whose crash (LMDB trusts its file) is
 * an answer. 0, -EBADMSG or -EPROTONOSUPPORT (from the future) with a sentence
 * in @why, or -errno. */
int index_probe(const char *dir, uint64_t map_bytes, char *why,
		size_t why_size) must_check;
/* Only of an index that index_probe() found good. */
int index_open(const char *dir, uint64_t map_bytes, bool read_only,
	       struct index **ret, struct index_state *st, char *why,
	       size_t why_size) must_check;
void index_close(struct index *x);

/* ---- reads; pointers are valid until the next read call, or until ---- */
void index_reads_over(struct index *x);
int index_get_block(struct index *x, const struct image_key *key,
		    const void **val, size_t *len) must_check;
/* 0 when there is none. */
int index_get_cut(struct index *x, uint64_t ino, uint64_t *cut) must_check;

/* Blocks in order. One walk at a time, and no other read during it. */
int index_walk_begin(struct index *x, const struct image_key *from)
	must_check;
/* 1: an entry; 0: end; -errno. */
int index_walk_next(struct index *x, struct image_key *key, const void **val,
		    size_t *len) must_check;
void index_walk_end(struct index *x);

/* ---- the checkpoint's transaction ---- */
struct index_put {
	struct image_key key;
	size_t off; /* in @values */
	size_t len; /* 0: delete */
};

struct index_batch {
	struct index_put *puts;
	size_t put_count;
	uint8_t *values;
	struct image_cut *cuts; /* applied after the puts, in order */
	size_t cut_count;
	bool last; /* then @state, too */
	uint32_t cut_blocks; /* changed by cuts in this transaction */
	/* in and out: the puts are on disk, of a call that returned -ENOSPC */
	bool put_done;
	struct index_state state;
	/* out: what the cuts freed of blocks in the index */
	struct extent_run *freed;
	size_t freed_count;
	size_t freed_cap;
	uint64_t freed_lost; /* units not listed for want of memory */
	uint64_t unwritten; /* units promised that the cuts removed */
};

/* Durable when it returned 0. Else -errno: nothing, or with cuts a part.
 * -ENOSPC: the same call goes on when the disk has room; after any other the
 * batch is of no use. */
int index_apply(struct index *x, struct index_batch *b) must_check;

#endif
