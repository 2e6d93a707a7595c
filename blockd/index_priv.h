/* Private to index*.c. */
#ifndef BLOCKD_INDEX_PRIV_H
#define BLOCKD_INDEX_PRIV_H

#include <lmdb.h>

#include "blockd/index.h"
#include "common/crc32c.h"

#define INDEX_KEY_SIZE 16u
#define INDEX_CUT_SIZE 12u
#define INDEX_STATE_MAX 128u
/* mdb_put() takes it as void *. */
#define INDEX_STATE_KEY ((void *)(uintptr_t)"state")

/* More than the pages of one transaction. */
#define INDEX_AHEAD (256u << 20)
/* A transaction writes no more than twice the pages there are, and what is
 * new; of a large index, than this. */
#define INDEX_TXN_NEW (8u << 20)
#define INDEX_TXN_MAX (40u << 20)
/* No store that was written by any build lacks more pages at its end. */
#define INDEX_SHORT_MAX (1u << 30)

struct index {
	MDB_env *env;
	MDB_dbi blocks;
	MDB_dbi cuts;
	MDB_dbi meta;
	MDB_txn *reader; /* the loop's; reset between reads */
	MDB_cursor *walk;
	struct image_key walk_from;
	bool walk_started;
	uint64_t allocated; /* the file's bytes up to here are */
	/* The store's thread: arrays for one image. */
	uint32_t loc[BLOCK_UNITS_MAX];
	uint32_t crc[BLOCK_UNITS_MAX];
	uint8_t value[IMAGE_ENCODED_MAX];
};

void index_key_put(uint8_t *k, const struct image_key *key);
int index_key_get(const MDB_val *k, struct image_key *key);
/* The value of "cuts" (INDEX_CUT_SIZE bytes): the number, and a checksum of it
 * and the inode. 0 or -EBADMSG. */
void index_cut_put(uint8_t *v, uint64_t ino, uint64_t cut);
int index_cut_get(const MDB_val *v, uint64_t ino, uint64_t *cut);
size_t index_state_encode(uint8_t *buf, const struct index_state *st);
/* 0, -EBADMSG or, of a later format, -EPROTONOSUPPORT. */
int index_state_decode(const MDB_val *v, struct index_state *st);

/* Before a transaction that writes. Returns 0 or -errno; -ENOSPC: there may
 * not be room on the disk for all that it writes. */
int index_make_room(struct index *x);

#endif
