/* Page-aligned data buffers with a limit on their sum: the daemon's memory
 * for requests and replies on their way. One thread.
 *
 * A buddy allocator over one mapping of huge pages (fewer page faults, and a
 * block goes to the disk in a few segments instead of 256), lowest address
 * first, so that little of it is ever touched. What has been touched stays
 * until pool_trim().
 */
#ifndef BLOCKD_POOL_H
#define BLOCKD_POOL_H

#include "common/base.h"
#include "common/limits.h"

/* Sizes: a unit, doubling up to a block. */
#define POOL_ORDER_COUNT (BLOCK_LOG2_MAX - UNIT_SHIFT + 1)

_Static_assert(UNIT_SIZE << (POOL_ORDER_COUNT - 1) == FRAME_DATA_MAX,
	       "the largest buffer holds a block");

struct pool {
	uint64_t limit_bytes; /* multiple of FRAME_DATA_MAX */
	uint64_t used_bytes; /* handed out, plus pool_charge() */
	uint8_t *base;
	/* Bit i of order o: the buffer of UNIT_SIZE << o at i times that size
	 * is free, and not part of a larger free one. */
	uint64_t *free[POOL_ORDER_COUNT];
	size_t free_count[POOL_ORDER_COUNT];
	bool touched;
};

/* @limit_bytes: rounded up to whole blocks. Returns 0 or -ENOMEM. */
int pool_init(struct pool *p, uint64_t limit_bytes) must_check;
/* Everything must have come back. */
void pool_fini(struct pool *p);
/* @len: 1..FRAME_DATA_MAX. NULL: the limit is reached. */
void *pool_get(struct pool *p, size_t len);
/* @len: as asked for. NULL @buf: no-op. */
void pool_put(struct pool *p, void *buf, size_t len);
/* Counts other memory of requests against the limit. Never fails: who
 * receives looks at pool_is_full() before it receives more. */
void pool_charge(struct pool *p, size_t len);
void pool_discharge(struct pool *p, size_t len);
bool pool_is_full(const struct pool *p);
/* Gives touched memory to the kernel, when nothing is handed out. */
void pool_trim(struct pool *p);

#endif
