#include "logd/lend_pool.h"

#define NONE UINT32_MAX
#define STATE_FREE 0x80u
#define STATE_USED 0x40u
#define STATE_ORDER 0x3fu

static void push(struct lend_pool *p, uint32_t at, unsigned order)
{
	p->state[at] = (uint8_t)(STATE_FREE | order);
	p->prev[at] = NONE;
	p->next[at] = p->heads[order];
	if (p->next[at] != NONE)
		p->prev[p->next[at]] = at;
	p->heads[order] = at;
}

static void take(struct lend_pool *p, uint32_t at, unsigned order)
{
	if (p->prev[at] == NONE)
		p->heads[order] = p->next[at];
	else
		p->next[p->prev[at]] = p->next[at];
	if (p->next[at] != NONE)
		p->prev[p->next[at]] = p->prev[at];
	p->state[at] = 0;
}

/* The largest blocks that lie at a multiple of their size and fit. */
static void fill(struct lend_pool *p)
{
	uint32_t at = 0;

	while (at < p->count) {
		unsigned order = LEND_POOL_ORDERS - 1;

		while (at & ((1u << order) - 1) || p->count - at < 1u << order)
			order--;
		push(p, at, order);
		at += 1u << order;
	}
}

int lend_pool_init(struct lend_pool *p, void *base, uint64_t bytes)
{
	uint64_t count = bytes >> LOG_REGION_LOG2_MIN;

	memset(p, 0, sizeof(*p));
	if (count == 0 || count >= NONE)
		return -EINVAL;
	p->base = base;
	p->count = (uint32_t)count;
	p->state = calloc(count, sizeof(*p->state));
	p->next = calloc(count, sizeof(*p->next));
	p->prev = calloc(count, sizeof(*p->prev));
	if (!p->state || !p->next || !p->prev) {
		lend_pool_fini(p);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < LEND_POOL_ORDERS; i++)
		p->heads[i] = NONE;
	p->free_bytes = lend_pool_total(p);
	fill(p);
	return 0;
}

void lend_pool_fini(struct lend_pool *p)
{
	free(p->state);
	free(p->next);
	free(p->prev);
	memset(p, 0, sizeof(*p));
}

uint64_t lend_pool_total(const struct lend_pool *p)
{
	return (uint64_t)p->count << LOG_REGION_LOG2_MIN;
}

uint8_t *lend_pool_get(struct lend_pool *p, uint8_t log2)
{
	unsigned want, order;
	uint32_t at;

	if (log2 < LOG_REGION_LOG2_MIN || log2 > LOG_REGION_LOG2_MAX)
		return NULL;
	want = order = log2 - LOG_REGION_LOG2_MIN;
	while (order < LEND_POOL_ORDERS && p->heads[order] == NONE)
		order++;
	if (order == LEND_POOL_ORDERS)
		return NULL;
	at = p->heads[order];
	take(p, at, order);
	while (order > want) {
		order--;
		push(p, at + (1u << order), order);
	}
	p->state[at] = (uint8_t)(STATE_USED | want);
	p->free_bytes -= UINT64_C(1) << log2;
	return p->base + ((size_t)at << LOG_REGION_LOG2_MIN);
}

void lend_pool_put(struct lend_pool *p, uint8_t *region)
{
	uint32_t at = (uint32_t)((size_t)(region - p->base) >>
				 LOG_REGION_LOG2_MIN);
	unsigned order = p->state[at] & STATE_ORDER;
	uint32_t buddy;

	assert(at < p->count && p->state[at] & STATE_USED);
	p->free_bytes += UINT64_C(1) << (order + LOG_REGION_LOG2_MIN);
	p->state[at] = 0;
	while (order < LEND_POOL_ORDERS - 1) {
		buddy = at ^ 1u << order;
		if (buddy >= p->count ||
		    p->state[buddy] != (STATE_FREE | order))
			break;
		take(p, buddy, order);
		at &= ~(1u << order);
		order++;
	}
	push(p, at, order);
}
