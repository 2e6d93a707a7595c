#include "metad/cow_page.h"

static uint16_t get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void put_u16(uint8_t *p, uint32_t v)
{
	uint16_t w = (uint16_t)v;

	memcpy(p, &w, sizeof(w));
}

static uint8_t *page_bytes(struct cow_page *p)
{
	return (uint8_t *)p;
}

static const uint8_t *cell_at(const struct cow_page *p, uint32_t i)
{
	return (const uint8_t *)p + p->slots[i];
}

void cow_page_init(struct cow_page *p, uint32_t level)
{
	p->count = 0;
	p->heap = COW_PAGE_SIZE;
	p->garbage = 0;
	p->level = (uint16_t)level;
	p->next = NULL;
}

struct cow_cell cow_page_cell(const struct cow_page *p, uint32_t i)
{
	const uint8_t *at = cell_at(p, i);
	struct cow_cell c;

	c.klen = get_u16(at);
	c.vlen = get_u16(at + 2);
	c.key = at + 4;
	c.val = at + 4 + c.klen;
	return c;
}

struct cow_page *cow_page_child(const struct cow_page *p, uint32_t i)
{
	const uint8_t *at = cell_at(p, i);
	struct cow_page *child;

	memcpy(&child, at + 4 + get_u16(at), sizeof(child));
	return child;
}

void cow_page_set_child(struct cow_page *p, uint32_t i,
			const struct cow_page *child)
{
	uint8_t *at = page_bytes(p) + p->slots[i];

	memcpy(at + 4 + get_u16(at), &child, sizeof(child));
}

static int key_compare(const uint8_t *a, uint32_t alen, const uint8_t *b,
		       uint32_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	if (c != 0)
		return c;
	return alen < blen ? -1 : alen > blen;
}

uint32_t cow_page_find(const struct cow_page *p, const void *key,
		       uint32_t klen, bool *found)
{
	uint32_t low = 0, high = p->count;

	*found = false;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		const uint8_t *at = cell_at(p, mid);
		int c = key_compare(at + 4, get_u16(at), key, klen);

		if (c < 0) {
			low = mid + 1;
		} else {
			high = mid;
			if (c == 0) {
				*found = true;
				return mid;
			}
		}
	}
	return low;
}

uint32_t cow_page_find_child(const struct cow_page *p, const void *key,
			     uint32_t klen)
{
	uint32_t low = 1, high = p->count; /* cell 0 is below every key */

	while (low < high) {
		uint32_t mid = (low + high) / 2;
		const uint8_t *at = cell_at(p, mid);

		if (key_compare(at + 4, get_u16(at), key, klen) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

uint32_t cow_page_used(const struct cow_page *p)
{
	return (uint32_t)(p->count * sizeof(p->slots[0])) + COW_PAGE_SIZE -
	       p->heap - p->garbage;
}

bool cow_page_fits(const struct cow_page *p, uint32_t cell_size)
{
	return cow_page_used(p) + cell_size <= COW_PAGE_ROOM;
}

/* Moves the live cells together at the end of the page. */
static void page_compact(struct cow_page *p)
{
	uint8_t old[COW_PAGE_SIZE];
	uint32_t heap = COW_PAGE_SIZE;

	memcpy(old + p->heap, page_bytes(p) + p->heap,
	       COW_PAGE_SIZE - p->heap);
	for (uint32_t i = 0; i < p->count; i++) {
		const uint8_t *at = old + p->slots[i];
		uint32_t size = 4u + get_u16(at) + get_u16(at + 2);

		heap -= size;
		memcpy(page_bytes(p) + heap, at, size);
		p->slots[i] = (uint16_t)heap;
	}
	p->heap = (uint16_t)heap;
	p->garbage = 0;
}

void cow_page_insert(struct cow_page *p, uint32_t i, const struct cow_cell *c)
{
	uint32_t size = 4 + c->klen + c->vlen;
	uint32_t slots_end = (uint32_t)(sizeof(*p) + (p->count + 1u) *
					sizeof(p->slots[0]));
	uint8_t *at;

	assert(i <= p->count && cow_page_fits(p, 2 + size));
	if (slots_end + size > p->heap)
		page_compact(p);
	p->heap = (uint16_t)(p->heap - size);
	at = page_bytes(p) + p->heap;
	put_u16(at, c->klen);
	put_u16(at + 2, c->vlen);
	if (c->klen > 0)
		memcpy(at + 4, c->key, c->klen);
	if (c->vlen > 0)
		memcpy(at + 4 + c->klen, c->val, c->vlen);
	memmove(&p->slots[i + 1], &p->slots[i],
		(p->count - i) * sizeof(p->slots[0]));
	p->slots[i] = p->heap;
	p->count++;
}

void cow_page_remove(struct cow_page *p, uint32_t i)
{
	const uint8_t *at = cell_at(p, i);
	uint32_t size = 4u + get_u16(at) + get_u16(at + 2);

	if (p->slots[i] == p->heap)
		p->heap = (uint16_t)(p->heap + size);
	else
		p->garbage = (uint16_t)(p->garbage + size);
	p->count--;
	memmove(&p->slots[i], &p->slots[i + 1],
		(p->count - i) * sizeof(p->slots[0]));
	if (p->count == 0) {
		p->heap = COW_PAGE_SIZE;
		p->garbage = 0;
	}
}

bool cow_page_overwrite(struct cow_page *p, uint32_t i, const void *val,
			uint32_t vlen)
{
	uint8_t *at = page_bytes(p) + p->slots[i];
	uint32_t old = get_u16(at + 2);

	if (vlen > old)
		return false;
	/* A shorter value leaves its tail behind as garbage. */
	put_u16(at + 2, vlen);
	p->garbage = (uint16_t)(p->garbage + (old - vlen));
	if (vlen > 0)
		memcpy(at + 4 + get_u16(at), val, vlen);
	return true;
}

static void page_push(struct cow_page *p, const struct cow_cell *c)
{
	cow_page_insert(p, p->count, c);
}

/* How many of the count + 1 cells stay left: half of the bytes, but all of
 * them when the new one is the last, so that ascending keys fill pages. */
static uint32_t split_point(const struct cow_page *p, uint32_t i,
			    uint32_t cell_size)
{
	uint32_t half = (cow_page_used(p) + cell_size) / 2;
	uint32_t sum = 0, at = 0;

	if (i == p->count)
		return i;
	for (uint32_t k = 0; sum < half; k++) {
		if (k == i) {
			sum += cell_size;
		} else {
			struct cow_cell c = cow_page_cell(p, at++);

			sum += COW_CELL_SIZE(c.klen, c.vlen);
		}
		if (sum >= half)
			return k + 1;
	}
	return 1;
}

void cow_page_split(struct cow_page *p, struct cow_page *right, uint32_t i,
		    const struct cow_cell *c)
{
	_Alignas(struct cow_page) uint8_t copy[COW_PAGE_SIZE];
	const struct cow_page *old = (const struct cow_page *)(void *)copy;
	uint32_t stay = split_point(p, i, COW_CELL_SIZE(c->klen, c->vlen));
	uint32_t at = 0;

	/* Never an empty right page: the new cell may have been the half. */
	if (stay > p->count)
		stay = p->count;
	memcpy(copy, p, COW_PAGE_SIZE);
	cow_page_init(p, old->level);
	for (uint32_t k = 0; k <= old->count; k++) {
		struct cow_page *to = k < stay ? p : right;

		if (k == i) {
			page_push(to, c);
		} else {
			struct cow_cell moved = cow_page_cell(old, at++);

			page_push(to, &moved);
		}
	}
}

void cow_page_append(struct cow_page *p, const struct cow_page *src,
		     const void *first_key, uint32_t first_klen)
{
	for (uint32_t i = 0; i < src->count; i++) {
		struct cow_cell c = cow_page_cell(src, i);

		if (i == 0 && first_key != NULL) {
			c.key = first_key;
			c.klen = first_klen;
		}
		page_push(p, &c);
	}
}
