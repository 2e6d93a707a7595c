/* The mini block daemon inside: mini_blockd.c answers requests, mini_blocks.c
 * has the blocks, mini_blockd_test.c is what a test does to it and asks.
 */
#ifndef TESTS_LIB_MINI_BLOCKD_PRIV_H
#define TESTS_LIB_MINI_BLOCKD_PRIV_H

#include "tests/lib/mini_blockd.h"
#include "tests/lib/mini_serve.h"

#define HASH_SIZE 4096u
#define CUTS_MAX 256u

enum unit_kind { UNIT_HOLE, UNIT_UNWRITTEN, UNIT_DATA };

/* Content now, or what is safe. */
struct mb_state {
	uint8_t *bytes;
	uint8_t *units; /* enum unit_kind each */
	uint32_t end; /* of what was written */
	bool there;
};

struct mb_block {
	struct mb_block *next;
	uint64_t ino, index;
	uint8_t log2;
	struct mb_state now, safe;
};

/* A request that is not answered yet, because the test holds it. */
struct mb_pend {
	struct mb_pend *next;
	uint64_t conn_id;
	struct frame *f; /* not executed */
	bool late; /* will be when the next connection comes */
	struct wire_header h;
	struct blk_write w; /* of an executed WRITE; len 0: none */
	uint8_t *reply; /* executed: the whole frame */
	size_t reply_len;
};

struct mini_blockd {
	struct mini_serve s; /* its lock is of all below */
	uint32_t id;
	uint64_t cluster_id, boot_id;
	bool fenced;
	uint64_t fenced_session; /* it, and all before */
	struct mb_block *hash[HASH_SIZE];
	struct mb_pend *pend, **pend_tail;
	struct {
		uint64_t ino, cut;
	} cuts[CUTS_MAX];
	uint32_t cut_count;
	uint64_t free_units;
	uint16_t hold_op, hold_reply_op, lose_op, fail_op;
	bool hold, hold_replies;
	int lose_count, fail_err, fail_count, corrupt_count;
	uint64_t executed[256], received[256];
	uint64_t violations;
};

/* Executes what is late; forgets it. Lock held. */
void mb_late_run(struct mini_blockd *b);
void mb_late_forget(struct mini_blockd *b);

/* ---- blocks; lock held ---- */
/* NULL: not there. */
struct mb_block *mb_find(struct mini_blockd *b, uint64_t ino, uint64_t index);
/* Makes it if it is not there. */
struct mb_block *mb_get(struct mini_blockd *b, uint64_t ino, uint64_t index,
			uint8_t log2);
void mb_all_free(struct mini_blockd *b);
/* Of @ino; 0: all. */
void mb_each(struct mini_blockd *b, uint64_t ino,
	     void (*fn)(struct mini_blockd *b, struct mb_block *k));
/* For mb_each(): what was answered is durable; what is not durable is lost. */
void mb_sync(struct mini_blockd *b, struct mb_block *k);
void mb_lose(struct mini_blockd *b, struct mb_block *k);
/* -ESTALE: @cut is older than the last one of the inode. */
int mb_cut_check(struct mini_blockd *b, uint64_t ino, uint64_t cut);
/* Makes the units of [off, off+len) at least @kind. Returns the delta or
 * -ENOSPC. */
int64_t mb_units_take(struct mini_blockd *b, struct mb_block *k, uint32_t off,
		      uint32_t len, uint8_t kind);
bool mb_overlaps(const struct blk_write *a, const struct blk_write *w);
/* As mini_blockd_end(). */
uint64_t mb_end(struct mini_blockd *b, uint64_t ino, uint64_t *units);

#endif
