/* The pool of unit buffers: one mapping, touched only as far as used. */
#include <sys/mman.h>

#include "blockd/mem.h"
#include "blockd/store_priv.h"

int ubuf_pool_init(struct store *s, uint64_t bytes, uint64_t limit)
{
	slist_init(&s->ubuf_lru);
	s->ubuf_cap = (uint32_t)u64_min(bytes / UNIT_SIZE, UINT32_MAX / 2);
	s->ubuf_limit = (uint32_t)u64_min(limit / UNIT_SIZE, s->ubuf_cap);
	s->pool_bytes = (size_t)s->ubuf_cap * UNIT_SIZE;
	s->ubufs = mem_alloc(s->ubuf_cap * sizeof(*s->ubufs));
	if (s->ubufs == NULL)
		return -ENOMEM;
	s->pool = mmap(NULL, s->pool_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->pool == MAP_FAILED) {
		s->pool = NULL;
		return -ENOMEM;
	}
	return 0;
}

void ubuf_pool_fini(struct store *s)
{
	if (s->pool != NULL)
		(void)munmap(s->pool, s->pool_bytes);
	mem_free(s->ubufs);
}

bool ubuf_can(const struct store *s, uint32_t count)
{
	/* After recovery more than the limit may be in use. */
	return s->ubuf_used - s->ubuf_clean + count <= s->ubuf_limit;
}

static void evict(struct store *s)
{
	struct ubuf *ub = container_of(s->ubuf_lru.next, struct ubuf, lru);
	struct block *b = ub->b;
	uint32_t unit = ub->unit;

	ubuf_drop(s, b, unit);
}

struct ubuf *ubuf_get(struct store *s, bool beyond)
{
	uint32_t limit = beyond ? s->ubuf_cap : s->ubuf_limit;
	struct ubuf *ub;

	while (s->ubuf_used >= limit && s->ubuf_clean > 0)
		evict(s);
	if (s->ubuf_used >= limit)
		return NULL;
	if (s->ubuf_free != 0) {
		ub = &s->ubufs[s->ubuf_free - 1];
		s->ubuf_free = ub->next_free;
	} else {
		ub = &s->ubufs[s->ubuf_next++];
	}
	memset(ub, 0, sizeof(*ub));
	slist_init(&ub->lru);
	s->ubuf_used++;
	return ub;
}

void ubuf_put(struct store *s, struct ubuf *ub)
{
	assert(ub->b == NULL);
	ub->next_free = s->ubuf_free;
	s->ubuf_free = ubuf_id(s, ub) + 1;
	s->ubuf_used--;
	/* What recovery needed beyond the limit goes back to the system. */
	if (ubuf_id(s, ub) >= s->ubuf_limit)
		(void)madvise(ubuf_mem(s, ub), UNIT_SIZE, MADV_DONTNEED);
}

void ubuf_attach(struct store *s, struct block *b, uint32_t u,
		 struct ubuf *ub)
{
	assert(b->ubuf[u] == 0 && ub->b == NULL);
	b->ubuf[u] = ubuf_id(s, ub) + 1;
	b->ubuf_count++;
	ub->b = b;
	ub->unit = (uint16_t)u;
}

void ubuf_claim(struct store *s, struct ubuf *ub)
{
	if (slist_empty(&ub->lru))
		return;
	slist_del(&ub->lru);
	s->ubuf_clean--;
}

void ubuf_settle(struct store *s, struct ubuf *ub)
{
	if (ub->dirty || ub->flying || ub->held || !slist_empty(&ub->lru))
		return;
	slist_push(&s->ubuf_lru, &ub->lru);
	s->ubuf_clean++;
}

void ubuf_set_dirty(struct store *s, struct ubuf *ub, bool dirty)
{
	if (ub->dirty == dirty)
		return;
	if (dirty)
		ubuf_claim(s, ub);
	ub->dirty = dirty;
	if (dirty)
		ub->b->dirty_ubufs++;
	else
		ub->b->dirty_ubufs--;
}

void ubuf_drop(struct store *s, struct block *b, uint32_t u)
{
	struct ubuf *ub = block_ubuf(s, b, u);

	if (ub == NULL)
		return;
	ubuf_claim(s, ub);
	ubuf_set_dirty(s, ub, false);
	if (ub->reserved)
		s->promised--;
	b->ubuf[u] = 0;
	b->ubuf_count--;
	ub->b = NULL;
	ubuf_put(s, ub);
}
