/* A copy-on-write B+tree of byte strings in memory. [pure]
 *
 * A snapshot freezes the present pages in O(1). Whoever writes afterwards
 * copies a frozen page before changing it, so that the snapshot can be read
 * by another thread while the owner goes on. A page replaced that way goes
 * back to the pool when the last snapshot that can see it has ended: page
 * generations, as in LMDB, instead of reference counts, so that copying a
 * page does not touch its children.
 *
 * Memory is taken beforehand: after cow_reserve(n) the next n changes cannot
 * fail. One thread owns a tree.
 */
#ifndef METAD_COW_H
#define METAD_COW_H

#include "common/base.h"

#define COW_PAGE_SIZE 4080u /* with malloc's header: 4 KiB */
#define COW_KEY_MAX 300u
#define COW_VALUE_MAX 1024u
#define COW_HEIGHT_MAX 16u

struct cow;
struct cow_page;
struct cow_snap;

/* Where pages come from; tests make it fail. */
struct cow_mem {
	void *(*alloc)(void *ctx, size_t size);
	void (*release)(void *ctx, void *p);
	void *ctx;
};

/* @mem: copied; NULL: malloc and free. NULL: out of memory. */
struct cow *cow_new(const struct cow_mem *mem);
/* Ends all snapshots too. */
void cow_free(struct cow *t);

/* Makes sure that the next @changes calls of cow_put(), cow_del() and
 * cow_del_range() succeed. Returns 0 or -ENOMEM. */
int cow_reserve(struct cow *t, uint32_t changes) must_check;
/* Gives some unused pages back to the allocator; a little at each call, so
 * call it between commands. Spoils reservations. False: nothing to give. */
bool cow_trim(struct cow *t);

/* Inserts or replaces. Needs a reservation. @klen: 1..COW_KEY_MAX, @vlen:
 * 0..COW_VALUE_MAX. Neither may point into the tree. */
void cow_put(struct cow *t, const void *key, uint32_t klen, const void *val,
	     uint32_t vlen);
/* Needs a reservation. False: there was no such key. */
bool cow_del(struct cow *t, const void *key, uint32_t klen);
/* Removes every key in [@from, @to), counting as one change. Returns how many
 * there were. */
uint64_t cow_del_range(struct cow *t, const void *from, uint32_t from_len,
		       const void *to, uint32_t to_len);

/* *val points into the tree until its next change. */
bool cow_get(const struct cow *t, const void *key, uint32_t klen,
	     const uint8_t **val, uint32_t *vlen);

uint64_t cow_count(const struct cow *t); /* keys */
uint64_t cow_payload(const struct cow *t); /* bytes of keys and values */
/* Bytes of all pages held: the tree's, snapshots', the pool's. */
uint64_t cow_memory(const struct cow *t);

/* ---- iteration in key order ---- */
struct cow_iter {
	/* private: path from the root, and the cell in the leaf */
	const struct cow_page *page[COW_HEIGHT_MAX];
	uint32_t at[COW_HEIGHT_MAX];
	uint32_t height; /* 0: past the end */
	/* the present entry; valid while height > 0 */
	const uint8_t *key;
	const uint8_t *val;
	uint32_t klen;
	uint32_t vlen;
};
/* Goes to the first key >= @key. Returns false at the end. The iterator is
 * spoiled by the tree's next change. */
bool cow_seek(const struct cow *t, struct cow_iter *it, const void *key,
	      uint32_t klen);
bool cow_next(struct cow_iter *it);

/* ---- snapshots ---- */
/* NULL: out of memory. Any number may be out at once. */
struct cow_snap *cow_snap_begin(struct cow *t);
uint64_t cow_snap_count(const struct cow_snap *s);
uint64_t cow_snap_payload(const struct cow_snap *s);
/* May run on another thread, until cow_snap_end(). */
bool cow_snap_seek(const struct cow_snap *s, struct cow_iter *it,
		   const void *key, uint32_t klen);
void cow_snap_end(struct cow *t, struct cow_snap *s);
/* Makes the tree what it was at @s and ends @s, which must be the newest. */
void cow_rollback(struct cow *t, struct cow_snap *s);

/* Checks order, sizes and counts of the whole tree (tests). */
bool cow_check(const struct cow *t);

#endif
