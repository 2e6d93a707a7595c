/* The store's heap and its fault point. */
#include "blockd/mem.h"

#include <stdatomic.h>

#include "common/limits.h"

/* The index thread allocates too. */
static _Atomic uint64_t fail_countdown;

static bool fails(void)
{
	if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
		return false;
	return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

void *mem_alloc(size_t size)
{
	return fails() ? NULL : calloc(1, size);
}

void *mem_alloc_io(size_t size)
{
	assert(size % UNIT_SIZE == 0);
	return fails() ? NULL : aligned_alloc(UNIT_SIZE, size);
}

void *mem_grow(void *p, size_t size)
{
	return fails() ? NULL : realloc(p, size);
}

void mem_free(void *p)
{
	free(p);
}

uint64_t mem_fail_at(uint64_t k)
{
	return atomic_exchange(&fail_countdown, k);
}
