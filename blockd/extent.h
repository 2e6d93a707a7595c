/* Allocator of 4 KiB units in segments. Pure.
 *
 * A location is a unit's number: segment << SEG_SHIFT | unit in the segment.
 * The first EXTENT_LOC_MIN locations are never given out: block images use
 * them for units without a location. Next-fit in a segment, with a hint, so
 * what is written together lies together; from a segment that has nothing more
 * to the lowest that has, so that the last ones come free. A location has 32
 * bits: 16 TiB a store.
 */
#ifndef BLOCKD_EXTENT_H
#define BLOCKD_EXTENT_H

#include "common/limits.h"

#define SEG_COUNT_MAX (1u << (32 - SEG_SHIFT))
#define EXTENT_LOC_MIN 16u

struct extent_seg {
	uint64_t *used; /* bit set: used or beyond the segment's end */
	uint32_t unit_count;
	uint32_t free_count;
	uint32_t run_max; /* no free run is longer */
};

struct extent_map {
	struct extent_seg *segs;
	uint32_t seg_count;
	uint32_t seg_cap;
	uint64_t free_count;
	uint64_t unit_count; /* that can be given out */
	uint32_t cursor;
};

struct extent_run {
	uint32_t loc;
	uint32_t count;
};

void extent_map_init(struct extent_map *m);
void extent_map_fini(struct extent_map *m);

/* Appends a segment of @unit_count <= SEG_UNITS free units. Returns 0,
 * -ENOMEM, or -ENOSPC when there are SEG_COUNT_MAX. */
int extent_add_segment(struct extent_map *m, uint32_t unit_count) must_check;
/* Nothing of the last segment is given out, and it is not the only one. */
bool extent_last_free(const struct extent_map *m);
/* Takes it away. */
void extent_drop_last(struct extent_map *m);
/* Goes on at the lowest segment a good part of which is free. */
void extent_rewind(struct extent_map *m);
/* Lengthens the last segment. */
void extent_grow_last(struct extent_map *m, uint32_t unit_count);

/* Gives out one run of at most @want units, the whole if some run is as long,
 * else a long one. @hint: preferred location, 0: none. Returns the count,
 * 0 when nothing is free. Runs do not cross segments. */
uint32_t extent_alloc(struct extent_map *m, uint32_t hint, uint32_t want,
		      uint32_t *loc_ret) must_check;
/* The units were given out. */
void extent_free(struct extent_map *m, uint32_t loc, uint32_t count);
/* Takes a given run, at start-up. Returns 0; -EEXIST: some unit is taken
 * already (none was then changed); -ERANGE: outside every segment. */
int extent_mark(struct extent_map *m, uint32_t loc, uint32_t count) must_check;
bool extent_used(const struct extent_map *m, uint32_t loc);

#endif
