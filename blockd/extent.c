/* Allocator of 4 KiB units: one bitmap a segment. */
#include "blockd/extent.h"

#include "blockd/mem.h"

#define WORD_BITS 64u
#define SEG_WORDS (SEG_UNITS / WORD_BITS)
#define RUN_LOOK_UNITS 64u

void extent_map_init(struct extent_map *m)
{
	*m = (struct extent_map){ 0 };
}

void extent_map_fini(struct extent_map *m)
{
	for (uint32_t i = 0; i < m->seg_count; i++)
		mem_free(m->segs[i].used);
	mem_free(m->segs);
	*m = (struct extent_map){ 0 };
}

static bool bit_get(const struct extent_seg *s, uint32_t u)
{
	return s->used[u / WORD_BITS] >> (u % WORD_BITS) & 1;
}

/* Bits of word @w that lie in [@from, @to). */
static uint64_t word_mask(uint32_t w, uint32_t from, uint32_t to)
{
	uint64_t mask = UINT64_MAX;
	uint32_t base = w * WORD_BITS;

	if (from > base)
		mask &= UINT64_MAX << (from - base);
	if (to < base + WORD_BITS)
		mask &= UINT64_MAX >> (base + WORD_BITS - to);
	return mask;
}

static void bits_set(struct extent_seg *s, uint32_t u, uint32_t count,
		     bool used)
{
	uint32_t end = u + count;

	for (uint32_t w = u / WORD_BITS; w * WORD_BITS < end; w++) {
		uint64_t mask = word_mask(w, u, end);

		if (used)
			s->used[w] |= mask;
		else
			s->used[w] &= ~mask;
	}
}

/* First unit >= @u whose bit equals @used, or SEG_UNITS. */
static uint32_t bit_find(const struct extent_seg *s, uint32_t u, bool used)
{
	uint64_t flip = used ? 0 : UINT64_MAX;
	uint32_t w = u / WORD_BITS;
	uint64_t word;

	if (u >= SEG_UNITS)
		return SEG_UNITS;
	word = (s->used[w] ^ flip) & (UINT64_MAX << (u % WORD_BITS));
	while (word == 0) {
		if (++w == SEG_WORDS)
			return SEG_UNITS;
		word = s->used[w] ^ flip;
	}
	return w * WORD_BITS + (uint32_t)__builtin_ctzll(word);
}

static void seg_open(struct extent_map *m, uint32_t seg, uint32_t from,
		     uint32_t to)
{
	struct extent_seg *s = &m->segs[seg];

	if (seg == 0 && from < EXTENT_LOC_MIN)
		from = EXTENT_LOC_MIN;
	if (to <= from)
		return;
	bits_set(s, from, to - from, false);
	s->free_count += to - from;
	s->run_max = s->free_count;
	m->free_count += to - from;
	m->unit_count += to - from;
}

int extent_add_segment(struct extent_map *m, uint32_t unit_count)
{
	struct extent_seg *s;

	assert(unit_count <= SEG_UNITS);
	if (m->seg_count == SEG_COUNT_MAX)
		return -ENOSPC;
	if (m->seg_count == m->seg_cap) {
		uint32_t cap = m->seg_cap == 0 ? 16 : m->seg_cap * 2;
		void *p = mem_grow(m->segs, cap * sizeof(*m->segs));

		if (p == NULL)
			return -ENOMEM;
		m->segs = p;
		m->seg_cap = cap;
	}
	s = &m->segs[m->seg_count];
	*s = (struct extent_seg){ .unit_count = unit_count };
	s->used = mem_alloc(SEG_WORDS * sizeof(uint64_t));
	if (s->used == NULL)
		return -ENOMEM;
	memset(s->used, 0xff, SEG_WORDS * sizeof(uint64_t));
	seg_open(m, m->seg_count, 0, unit_count);
	m->seg_count++;
	return 0;
}

void extent_grow_last(struct extent_map *m, uint32_t unit_count)
{
	struct extent_seg *s = &m->segs[m->seg_count - 1];
	uint32_t old = s->unit_count;

	assert(m->seg_count > 0 && unit_count <= SEG_UNITS);
	if (unit_count <= old)
		return;
	s->unit_count = unit_count;
	seg_open(m, m->seg_count - 1, old, unit_count);
}

bool extent_last_free(const struct extent_map *m)
{
	const struct extent_seg *s = &m->segs[m->seg_count - 1];

	return m->seg_count > 1 && s->free_count == s->unit_count;
}

void extent_drop_last(struct extent_map *m)
{
	struct extent_seg *s = &m->segs[m->seg_count - 1];

	assert(extent_last_free(m));
	m->free_count -= s->unit_count;
	m->unit_count -= s->unit_count;
	mem_free(s->used);
	m->seg_count--;
	if (m->cursor >> SEG_SHIFT >= m->seg_count)
		m->cursor = 0;
}

void extent_rewind(struct extent_map *m)
{
	uint32_t here = m->cursor >> SEG_SHIFT;

	for (uint32_t i = 0; i < here; i++) {
		if (m->segs[i].free_count > m->segs[i].unit_count / 8) {
			m->cursor = i << SEG_SHIFT;
			return;
		}
	}
}

static void take(struct extent_map *m, uint32_t seg, uint32_t u,
		 uint32_t count)
{
	struct extent_seg *s = &m->segs[seg];

	bits_set(s, u, count, true);
	s->free_count -= count;
	m->free_count -= count;
	if (s->run_max > s->free_count)
		s->run_max = s->free_count;
}

/* Searches the segment from @from for a run of @want; else its longest.
 * Returns the count found. A search of the whole segment that finds less
 * than wanted teaches run_max. */
static uint32_t seg_search(struct extent_seg *s, uint32_t from, uint32_t want,
			   uint32_t *u_ret)
{
	uint32_t best = 0;
	uint32_t u = bit_find(s, from, false);

	while (u < SEG_UNITS) {
		uint32_t end = bit_find(s, u, true);

		if (end - u > best) {
			best = end - u;
			*u_ret = u;
			if (best >= want)
				return want;
		}
		u = bit_find(s, end, false);
	}
	if (from == 0)
		s->run_max = best;
	return best;
}

static uint32_t alloc_at(struct extent_map *m, uint32_t hint, uint32_t want)
{
	uint32_t seg = hint >> SEG_SHIFT;
	uint32_t u = hint & (SEG_UNITS - 1);
	uint32_t end;

	if (seg >= m->seg_count || bit_get(&m->segs[seg], u))
		return 0;
	end = bit_find(&m->segs[seg], u, true);
	return end - u < want ? end - u : want;
}

/* Tries the cursor's segment from the cursor on, then all from the lowest.
 * @whole: only a run of @want will do. */
static uint32_t alloc_any(struct extent_map *m, uint32_t want, bool whole,
			  uint32_t *loc_ret)
{
	uint32_t u = 0;

	for (uint32_t i = 0; i <= m->seg_count; i++) {
		uint32_t seg = i == 0 ? m->cursor >> SEG_SHIFT : i - 1;
		uint32_t from = i == 0 ? m->cursor & (SEG_UNITS - 1) : 0;
		struct extent_seg *s = &m->segs[seg];
		uint32_t count;

		if (s->free_count == 0 || (whole && s->run_max < want))
			continue;
		count = seg_search(s, from, want, &u);
		if (count == want || (!whole && count > 0)) {
			*loc_ret = seg << SEG_SHIFT | u;
			return count;
		}
	}
	return 0;
}

uint32_t extent_alloc(struct extent_map *m, uint32_t hint, uint32_t want,
		      uint32_t *loc_ret)
{
	uint32_t count;
	uint32_t loc = hint;

	if (want == 0 || m->free_count == 0)
		return 0;
	count = hint == 0 ? 0 : alloc_at(m, hint, want);
	if (count < want) {
		uint32_t n = alloc_any(m, want, true, &loc);

		if (n == 0 && count == 0)
			n = alloc_any(m, want, false, &loc);
		if (n == 0)
			loc = hint;
		else
			count = n;
	}
	assert(count > 0);
	take(m, loc >> SEG_SHIFT, loc & (SEG_UNITS - 1), count);
	m->cursor = loc + count;
	if (m->cursor >> SEG_SHIFT >= m->seg_count)
		m->cursor = 0;
	*loc_ret = loc;
	return count;
}

/* Bounds the free run around units [@u, @end), just freed, for run_max: exact
 * when it is short, so that a segment of crumbs is not searched again for each
 * crumb that comes back; a long one costs no search of its length. */
static uint32_t run_bound(const struct extent_seg *s, uint32_t u, uint32_t end)
{
	uint32_t from = u, to = end;

	while (from > 0 && !bit_get(s, from - 1)) {
		if (u - --from == RUN_LOOK_UNITS)
			return s->free_count;
	}
	while (to < SEG_UNITS && !bit_get(s, to)) {
		if (++to - end == RUN_LOOK_UNITS)
			return s->free_count;
	}
	return to - from;
}

void extent_free(struct extent_map *m, uint32_t loc, uint32_t count)
{
	uint32_t run;
	struct extent_seg *s = &m->segs[loc >> SEG_SHIFT];
	uint32_t u = loc & (SEG_UNITS - 1);

	assert(loc >= EXTENT_LOC_MIN && loc >> SEG_SHIFT < m->seg_count);
	assert(u + count <= s->unit_count);
	assert(bit_find(s, u, false) >= u + count); /* all given out */
	bits_set(s, u, count, false);
	s->free_count += count;
	/* What was freed may join two runs. */
	run = run_bound(s, u, u + count);
	if (run > s->run_max)
		s->run_max = run;
	m->free_count += count;
}

int extent_mark(struct extent_map *m, uint32_t loc, uint32_t count)
{
	uint32_t seg = loc >> SEG_SHIFT;
	uint32_t u = loc & (SEG_UNITS - 1);

	if (loc < EXTENT_LOC_MIN || seg >= m->seg_count || count == 0 ||
	    count > SEG_UNITS || u + count > m->segs[seg].unit_count)
		return -ERANGE;
	if (bit_find(&m->segs[seg], u, true) < u + count)
		return -EEXIST;
	take(m, seg, u, count);
	return 0;
}

bool extent_used(const struct extent_map *m, uint32_t loc)
{
	uint32_t seg = loc >> SEG_SHIFT;

	return seg >= m->seg_count ||
	       bit_get(&m->segs[seg], loc & (SEG_UNITS - 1));
}
