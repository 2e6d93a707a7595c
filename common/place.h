/* Placement (design section 4): a pure function from (inode, block index) and
 * the map to daemons.
 */
#ifndef COMMON_PLACE_H
#define COMMON_PLACE_H

#include "common/cmap.h"

/* slot = (hash64(ino) + index) mod SLOT_COUNT; hash64 is XXH3-64 of the
 * inode's 8 little-endian bytes with seed 0. Part of the disk format. */
uint32_t place_slot(uint64_t ino, uint64_t index);

/* Index into m->daemons of the block's primary, or -ENODEV when its slot has
 * none. */
int place_primary(const struct cmap *m, uint64_t ino, uint64_t index);

#endif
