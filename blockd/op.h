/* An operation inside the store, and the order of operations.
 *
 * 1. The inode's gate: a cut or purge is alone behind it; all else passes in
 *    the order of the calls.
 * 2. The block's list: a change waits for every earlier change that overlaps
 *    it; a read waits, too, but nobody waits for reads (one that met a change
 *    notices by the checksum and reads again; after many it is as a change).
 * 3. Buffers and space: granted at once or waited for on s->waiting.
 */
#ifndef BLOCKD_OP_H
#define BLOCKD_OP_H

#include "blockd/store_priv.h"

struct op {
	struct slist link; /* gate, s->ready or s->waiting */
	struct slist in_block;
	struct op *next_all;
	struct op *next_free;
	struct store *s;
	struct store_req *req;
	struct inode *in;
	struct block *b;
	void (*run)(struct op *op); /* when it is its turn */
	/* After the last step, in place of the answer to @req: inner ops. */
	void (*finish)(struct op *op, int err);
	struct op *parent;
	uint32_t first, last; /* units [first, last) */
	bool excl;
	bool behind_gate;
	bool queued; /* on the block's list */
	bool blocked; /* by an earlier one there */
	bool is_read;
	bool sync;
	int err;
	uint32_t pending; /* I/Os */
	uint64_t wait_ckpt; /* checkpoints started when it began to wait */
	bool waited;
	void *mem[2]; /* freed with the op */

	union {
		struct op_write {
			struct blk_write w;
			const uint8_t *data;
			uint32_t mid_first, mid_last; /* large part */
			uint64_t granted;
			struct ubuf *fresh[OP_SMALL_MAX];
			struct extent_run one;
			struct extent_run *runs; /* of the large part */
			uint32_t run_count;
			uint32_t run_next; /* to be issued */
			uint32_t issued; /* units of the large part */
			bool read; /* old units asked for */
			bool inner; /* zeros of a cut: no end, no time */
		} w;
		struct op_read {
			struct blk_read rd;
			struct store_read_out *out;
			uint64_t version;
			uint32_t next; /* unit to issue from */
			uint32_t tries;
			uint64_t disk[BLOCK_UNITS_MAX / 64];
		} r;
		struct op_cut {
			struct image_cut c;
			struct cut *rec;
			uint32_t edge;
			struct image_key scan;
			const uint64_t *inos; /* purge */
			size_t ino_count;
			size_t ino_next;
			uint64_t removed;
		} c;
		struct blk_alloc a;
		struct op_scrub {
			uint64_t bytes_per_s;
			uint64_t *units_read;
			uint64_t *units_bad;
			struct scrub *state;
		} s;
	} u;
	struct dev_io io[OP_IO_MAX];
};

/* NULL: out of memory (the request is then answered). */
struct op *op_new(struct store *s, struct store_req *r);
/* Leaves list and gate, wakes who waits, answers. */
void op_done(struct op *op, int err);
/* Frees what op_new() and op_enter() took, without an answer. */
void op_drop(struct op *op);
void op_free_all(struct store *s);

/* Passes the gate of @ino when it may and then runs @run; at once or later. */
void op_enter(struct op *op, uint64_t ino, void (*run)(struct op *op));
/* Puts the op with its units on @b's list. True: go on; false: @run is called
 * when it is its turn. */
bool op_order(struct op *op, void (*run)(struct op *op));
/* The same for a read that was ordered before: it is as a change now, which
 * later changes wait for. */
bool op_order_as_change(struct op *op, void (*run)(struct op *op));
void op_ready(struct op *op, void (*run)(struct op *op));
/* @run in a later round of the loop. */
void op_post(struct op *op, void (*run)(struct op *op));
/* A read inside another op, @op->u.r set. */
void read_inner(struct op *op);
/* A write inside a cut, which is behind the gate already. */
void write_inner(struct op *op, struct inode *in);
void op_wait_space(struct op *op, void (*run)(struct op *op));
/* May an op change a block and take @ubufs buffers? As space_ask(). */
int memory_ask(struct store *s, uint32_t ubufs);

/* Reads/writes through the dev, counted in op->pending; @done as dev's. */
void op_io(struct op *op, struct dev_io *io);

#endif
