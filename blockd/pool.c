#include "blockd/pool.h"

#include <sys/mman.h>

#define HUGE_SIZE (2u << 20)

static unsigned order_of(size_t len)
{
	unsigned o = 0;

	assert(len > 0 && len <= FRAME_DATA_MAX);
	while ((size_t)UNIT_SIZE << o < len)
		o++;
	return o;
}

static size_t order_size(unsigned order)
{
	return (size_t)UNIT_SIZE << order;
}

static size_t bit_count(const struct pool *p, unsigned order)
{
	return (size_t)(p->limit_bytes / order_size(order));
}

static bool bit_test(const struct pool *p, unsigned order, size_t i)
{
	return p->free[order][i / 64] >> i % 64 & 1;
}

static void bit_set(struct pool *p, unsigned order, size_t i)
{
	p->free[order][i / 64] |= UINT64_C(1) << i % 64;
	p->free_count[order]++;
}

static void bit_clear(struct pool *p, unsigned order, size_t i)
{
	p->free[order][i / 64] &= ~(UINT64_C(1) << i % 64);
	p->free_count[order]--;
}

/* The lowest free buffer of exactly @order; there is one. */
static size_t bit_first(const struct pool *p, unsigned order)
{
	size_t w = 0;

	while (p->free[order][w] == 0)
		w++;
	return w * 64 + (size_t)__builtin_ctzll(p->free[order][w]);
}

int pool_init(struct pool *p, uint64_t limit_bytes)
{
	uint8_t *map;
	size_t size;

	memset(p, 0, sizeof(*p));
	p->limit_bytes = u64_round_up(limit_bytes, FRAME_DATA_MAX);
	for (unsigned o = 0; o < POOL_ORDER_COUNT; o++) {
		p->free[o] = calloc(bit_count(p, o) / 64 + 1,
				    sizeof(*p->free[o]));
		if (!p->free[o])
			goto out_free;
	}
	size = (size_t)p->limit_bytes + HUGE_SIZE;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		goto out_free;
	/* Keep what is aligned to huge pages, give the ends back. */
	p->base = (uint8_t *)(uintptr_t)u64_round_up((uintptr_t)map, HUGE_SIZE);
	if (p->base > map)
		munmap(map, (size_t)(p->base - map));
	munmap(p->base + p->limit_bytes,
	       (size_t)(map + size - p->base) - (size_t)p->limit_bytes);
	/* Where there are none, small pages do. */
	(void)madvise(p->base, (size_t)p->limit_bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bit_count(p, POOL_ORDER_COUNT - 1); i++)
		bit_set(p, POOL_ORDER_COUNT - 1, i);
	return 0;
out_free:
	for (unsigned o = 0; o < POOL_ORDER_COUNT; o++)
		free(p->free[o]);
	return -ENOMEM;
}

void pool_fini(struct pool *p)
{
	assert(p->used_bytes == 0);
	munmap(p->base, (size_t)p->limit_bytes);
	for (unsigned o = 0; o < POOL_ORDER_COUNT; o++)
		free(p->free[o]);
}

void *pool_get(struct pool *p, size_t len)
{
	unsigned want = order_of(len), o = want;
	size_t i;

	if (p->used_bytes + order_size(want) > p->limit_bytes)
		return NULL;
	while (o < POOL_ORDER_COUNT && p->free_count[o] == 0)
		o++;
	if (o == POOL_ORDER_COUNT)
		return NULL;
	i = bit_first(p, o);
	bit_clear(p, o, i);
	while (o > want) {
		o--;
		i *= 2;
		bit_set(p, o, i + 1);
	}
	p->used_bytes += order_size(want);
	p->touched = true;
	return p->base + i * order_size(want);
}

void pool_put(struct pool *p, void *buf, size_t len)
{
	unsigned o;
	size_t i;

	if (!buf)
		return;
	o = order_of(len);
	i = (size_t)((uint8_t *)buf - p->base) / order_size(o);
	assert(p->used_bytes >= order_size(o) && !bit_test(p, o, i));
	p->used_bytes -= order_size(o);
	while (o + 1 < POOL_ORDER_COUNT && bit_test(p, o, i ^ 1)) {
		bit_clear(p, o, i ^ 1);
		i /= 2;
		o++;
	}
	bit_set(p, o, i);
}

void pool_charge(struct pool *p, size_t len)
{
	p->used_bytes += len;
}

void pool_discharge(struct pool *p, size_t len)
{
	assert(p->used_bytes >= len);
	p->used_bytes -= len;
}

bool pool_is_full(const struct pool *p)
{
	return p->used_bytes >= p->limit_bytes;
}

void pool_trim(struct pool *p)
{
	if (!p->touched || p->used_bytes > 0)
		return;
	(void)madvise(p->base, (size_t)p->limit_bytes, MADV_DONTNEED);
	p->touched = false;
}
