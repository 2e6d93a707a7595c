/* The store's heap: malloc with a fault point, so that tests can repeat an
 * operation with the k-th allocation failing (after SQLite's method).
 */
#ifndef BLOCKD_MEM_H
#define BLOCKD_MEM_H

#include "common/base.h"

/* Zeroed. NULL: out of memory. */
void *mem_alloc(size_t size) must_check;
/* Multiples of 4096, not zeroed. Freed with mem_free(). */
void *mem_alloc_io(size_t size) must_check;
/* As realloc; new bytes undefined. */
void *mem_grow(void *p, size_t size) must_check;
void mem_free(void *p);

/* Tests: the @k-th allocation from now on fails (1: the next), once. 0: none.
 * Returns what was left of the previous count: 0 when it had failed. */
uint64_t mem_fail_at(uint64_t k);

#endif
