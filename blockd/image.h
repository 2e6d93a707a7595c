/* A block's image: what is stored of it, as memory, the index and the journal
 * know it, and its encodings. Pure; part of the disk format.
 *
 * Each unit is a hole, unwritten (space is promised, reads as zeros), data
 * without a location (in memory and journal only) or data at a location.
 * Encoded as runs: units in order whose locations follow each other.
 */
#ifndef BLOCKD_IMAGE_H
#define BLOCKD_IMAGE_H

#include "common/wire.h"

/* Values of image.loc[]; from EXTENT_LOC_MIN on: a location. */
#define LOC_HOLE 0u
#define LOC_UNWRITTEN 1u
#define LOC_MEMORY 2u

struct image {
	uint8_t block_log2;
	uint32_t end; /* bytes; last byte written + 1 */
	uint64_t cut; /* newest cut number a writer carried */
	int64_t mtime_ns;
	uint64_t version; /* of the store's change counter */
	uint32_t *loc; /* [1 << (block_log2 - UNIT_SHIFT)] */
	uint32_t *crc;
};

struct image_key {
	uint64_t ino;
	uint64_t index;
};

static inline uint32_t image_units(const struct image *m)
{
	return 1u << (m->block_log2 - UNIT_SHIFT);
}

static inline bool image_log2_ok(uint32_t log2)
{
	return log2 >= BLOCK_LOG2_MIN && log2 <= BLOCK_LOG2_MAX;
}

static inline bool loc_is_disk(uint32_t loc)
{
	return loc > LOC_MEMORY;
}

static inline bool loc_is_data(uint32_t loc)
{
	return loc >= LOC_MEMORY;
}

/* Units that are not holes. */
uint32_t image_allocated(const struct image *m);

/* An upper bound of image_encode()'s output. */
#define IMAGE_ENCODED_MAX (64u + BLOCK_UNITS_MAX * 13u)
/* The index's value of @key. No unit may be LOC_MEMORY. */
void image_encode(struct wire_out *o, const struct image_key *key,
		  const struct image *m);

/* What can be told of an encoded image without arrays. */
struct image_head {
	uint8_t block_log2;
	uint32_t end;
	uint32_t units; /* allocated */
	uint64_t cut;
	int64_t mtime_ns;
	uint64_t version;
};
/* Checks the value's own checksum, too. 0 or -EBADMSG. */
int image_peek(const struct image_key *key, const void *p, size_t len,
	       struct image_head *h) must_check;
/* @m: arrays for image_peek()'s block_log2. 0 or -EBADMSG (@m undefined). */
int image_decode(const struct image_key *key, const void *p, size_t len,
		 struct image *m) must_check;

/* ---- logical removal: cut and purge ---- */
struct image_cut {
	uint64_t ino;
	uint64_t cut; /* UINT64_MAX: purge */
	uint64_t from; /* bytes in the file */
	uint64_t to; /* BLK_CUT_TO_END: blocks' ends shrink to @from */
	uint8_t block_log2; /* 0: of any size (purge) */
	uint64_t version;
};
#define IMAGE_CUT_PURGE UINT64_MAX

/* What @c removes of a block: units [first, last), and the end it leaves.
 * False: it does not concern the block (older version, newer writer, other
 * place). */
struct image_hit {
	uint32_t first;
	uint32_t last;
	uint32_t end;
};
bool image_cut_hit(const struct image_cut *c, uint64_t index,
		   const struct image *m, struct image_hit *hit);
/* Block indices @c can concern: [*first, *last]. False: none. */
bool image_cut_blocks(const struct image_cut *c, uint64_t *first,
		      uint64_t *last);

/* ---- runs ---- */
struct image_run {
	uint32_t first;
	uint32_t count;
	uint32_t loc; /* of the first unit, or LOC_HOLE, _UNWRITTEN, _MEMORY */
};
/* The run of equal kind (locations following) that begins at @u, at most up
 * to unit @limit. */
struct image_run image_run_at(const struct image *m, uint32_t u,
			      uint32_t limit);

#endif
