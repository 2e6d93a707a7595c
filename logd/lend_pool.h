/* Regions out of one piece of memory: buddy allocation of powers of two, from
 * 1 << LOG_REGION_LOG2_MIN to 1 << LOG_REGION_LOG2_MAX bytes. [pure]
 *
 * What it knows lies beside the memory, which it never touches.
 */
#ifndef LOGD_LEND_POOL_H
#define LOGD_LEND_POOL_H

#include "common/limits.h"

#define LEND_POOL_ORDERS (LOG_REGION_LOG2_MAX - LOG_REGION_LOG2_MIN + 1)

/* All fields private. Granules are the smallest regions, counted from 0. */
struct lend_pool {
	uint8_t *base;
	uint32_t count; /* granules */
	uint8_t *state; /* [count]: of the first granule of a block */
	uint32_t *next, *prev; /* [count]: free blocks of one order */
	uint32_t heads[LEND_POOL_ORDERS];
	uint64_t free_bytes;
};

/* @base: @bytes of memory, of which whole granules are used (at least one, at
 * most UINT32_MAX - 1); borrowed until lend_pool_fini(). Regions lie at
 * multiples of their size from @base. Returns 0, -EINVAL, -ENOMEM. */
int lend_pool_init(struct lend_pool *p, void *base, uint64_t bytes) must_check;
void lend_pool_fini(struct lend_pool *p);

/* 1 << @log2 bytes; NULL: there is no such piece. */
uint8_t *lend_pool_get(struct lend_pool *p, uint8_t log2);
/* @region: of lend_pool_get(). */
void lend_pool_put(struct lend_pool *p, uint8_t *region);

uint64_t lend_pool_total(const struct lend_pool *p);
/* Bytes; a region may be larger than the largest piece of them. */
static inline uint64_t lend_pool_free(const struct lend_pool *p)
{
	return p->free_bytes;
}

#endif
