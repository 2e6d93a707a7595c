/* The blocks of the mini block daemon: in memory, as they are now and as they
 * would survive.
 */
#include "tests/lib/mini_blockd_priv.h"

struct mb_block *mb_find(struct mini_blockd *b, uint64_t ino,
				   uint64_t index)
{
	struct mb_block *k = b->hash[(ino * 31 + index) % HASH_SIZE];

	while (k && (k->ino != ino || k->index != index))
		k = k->next;
	return k;
}

struct mb_block *mb_get(struct mini_blockd *b, uint64_t ino,
				  uint64_t index, uint8_t log2)
{
	struct mb_block **head = &b->hash[(ino * 31 + index) % HASH_SIZE];
	struct mb_block *k = mb_find(b, ino, index);
	size_t size = (size_t)1 << log2;

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	must(k);
	k->ino = ino;
	k->index = index;
	k->log2 = log2;
	k->now.bytes = calloc(1, size);
	k->safe.bytes = calloc(1, size);
	k->now.units = calloc(1, size >> UNIT_SHIFT);
	k->safe.units = calloc(1, size >> UNIT_SHIFT);
	must(k->now.bytes && k->safe.bytes && k->now.units && k->safe.units);
	k->next = *head;
	*head = k;
	return k;
}

static void mb_free(struct mb_block *k)
{
	free(k->now.bytes);
	free(k->safe.bytes);
	free(k->now.units);
	free(k->safe.units);
	free(k);
}

void mb_all_free(struct mini_blockd *b)
{
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		while (b->hash[i]) {
			struct mb_block *k = b->hash[i];

			b->hash[i] = k->next;
			mb_free(k);
		}
}

static void state_copy(struct mb_block *k, struct mb_state *to,
		       const struct mb_state *from)
{
	memcpy(to->bytes, from->bytes, (size_t)1 << k->log2);
	memcpy(to->units, from->units, ((size_t)1 << k->log2) >> UNIT_SHIFT);
	to->end = from->end;
	to->there = from->there;
}

void mb_each(struct mini_blockd *b, uint64_t ino,
		       void (*fn)(struct mini_blockd *b, struct mb_block *k))
{
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next)
			if (ino == 0 || k->ino == ino)
				fn(b, k);
}

/* What is executed but not answered is not promised. But a write is durable
 * with its end or not at all: the one that the block's end comes from is. */
void mb_sync(struct mini_blockd *b, struct mb_block *k)
{
	uint8_t *old = malloc((size_t)1 << k->log2);

	must(old);
	memcpy(old, k->safe.bytes, (size_t)1 << k->log2);
	state_copy(k, &k->safe, &k->now);
	for (struct mb_pend *p = b->pend; p; p = p->next)
		if (p->w.len && p->w.ino == k->ino && p->w.index == k->index &&
		    p->w.off + p->w.len != k->now.end)
			memcpy(k->safe.bytes + p->w.off, old + p->w.off,
			       p->w.len);
	free(old);
}

void mb_lose(struct mini_blockd *b, struct mb_block *k)
{
	(void)b;
	state_copy(k, &k->now, &k->safe);
}

int mb_cut_check(struct mini_blockd *b, uint64_t ino, uint64_t cut)
{
	for (uint32_t i = 0; i < b->cut_count; i++)
		if (b->cuts[i].ino == ino)
			return cut < b->cuts[i].cut ? -ESTALE : 0;
	return 0;
}

static void cut_note(struct mini_blockd *b, uint64_t ino, uint64_t cut)
{
	uint32_t i = 0;

	while (i < b->cut_count && b->cuts[i].ino != ino)
		i++;
	if (i == b->cut_count) {
		must(b->cut_count < CUTS_MAX);
		b->cuts[b->cut_count++].ino = ino;
	}
	b->cuts[i].cut = cut;
}

int64_t mb_units_take(struct mini_blockd *b, struct mb_block *k,
			  uint32_t off, uint32_t len, uint8_t kind)
{
	uint32_t first = off / UNIT_SIZE, last = (off + len - 1) / UNIT_SIZE;
	int64_t need = 0;

	for (uint32_t u = first; u <= last; u++)
		need += k->now.units[u] == UNIT_HOLE;
	if (b->free_units != UINT64_MAX) {
		if ((uint64_t)need > b->free_units)
			return -ENOSPC;
		b->free_units -= (uint64_t)need;
	}
	for (uint32_t u = first; u <= last; u++)
		if (k->now.units[u] < kind)
			k->now.units[u] = kind;
	k->now.there = true;
	return need;
}

bool mb_overlaps(const struct blk_write *a, const struct blk_write *w)
{
	return a->len && a->ino == w->ino && a->index == w->index &&
	       a->off < w->off + w->len && w->off < a->off + a->len;
}

static int64_t block_cut(struct mb_block *k, struct mb_state *s, uint64_t from,
			 uint64_t to)
{
	uint64_t start = k->index << k->log2;
	int64_t delta = 0;

	if (s->end > 0 && from < start + s->end && to >= start + s->end)
		s->end = from > start ? (uint32_t)(from - start) : 0;
	for (uint32_t u = 0; u < (1u << k->log2) / UNIT_SIZE; u++) {
		uint64_t lo = start + (uint64_t)u * UNIT_SIZE;
		uint64_t hi = lo + UNIT_SIZE;
		uint64_t cf = u64_max(lo, from), ct = u64_min(hi, to);

		if (cf >= ct)
			continue;
		memset(s->bytes + (cf - start), 0, ct - cf);
		if (cf == lo && ct == hi && s->units[u] != UNIT_HOLE) {
			s->units[u] = UNIT_HOLE;
			delta--;
		}
	}
	return delta;
}

int64_t mini_blockd_cut(struct mini_blockd *b, const struct blk_cut *cut)
{
	int64_t delta = 0;

	mini_serve_lock(&b->s);
	if (mb_cut_check(b, cut->ino, cut->cut) == 0) {
		cut_note(b, cut->ino, cut->cut);
		for (uint32_t i = 0; i < HASH_SIZE; i++)
			for (struct mb_block *k = b->hash[i]; k; k = k->next)
				if (k->ino == cut->ino) {
					delta += block_cut(k, &k->now,
							   cut->from, cut->to);
					(void)block_cut(k, &k->safe, cut->from,
							cut->to);
				}
		if (b->free_units != UINT64_MAX)
			b->free_units += (uint64_t)-delta;
	}
	mini_serve_unlock(&b->s);
	return delta;
}

void mini_blockd_purge(struct mini_blockd *b, uint64_t ino)
{
	mini_serve_lock(&b->s);
	for (uint32_t i = 0; i < HASH_SIZE; i++) {
		struct mb_block **at = &b->hash[i];

		while (*at) {
			struct mb_block *k = *at;

			if (k->ino != ino) {
				at = &k->next;
				continue;
			}
			if (b->free_units != UINT64_MAX)
				b->free_units += (uint64_t)-block_cut(
					k, &k->now, 0, UINT64_MAX);
			*at = k->next;
			mb_free(k);
		}
	}
	mini_serve_unlock(&b->s);
}

uint64_t mb_end(struct mini_blockd *b, uint64_t ino, uint64_t *units)
{
	uint64_t end = 0;

	mb_each(b, ino, mb_sync);
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next) {
			if (k->ino != ino)
				continue;
			if (k->now.end > 0)
				end = u64_max(end, (k->index << k->log2) +
						   k->now.end);
			for (uint32_t u = 0; u < (1u << k->log2) / UNIT_SIZE;
			     u++)
				*units += k->now.units[u] != UNIT_HOLE;
		}
	return end;
}

uint64_t mini_blockd_end(struct mini_blockd *b, uint64_t ino, uint64_t *units)
{
	uint64_t end;

	mini_serve_lock(&b->s);
	end = mb_end(b, ino, units);
	mini_serve_unlock(&b->s);
	return end;
}

bool mini_blockd_peek(struct mini_blockd *b, uint64_t ino, uint64_t index,
		      uint32_t off, uint32_t len, bool durable, void *buf)
{
	struct mb_block *k;
	bool there = false;

	mini_serve_lock(&b->s);
	k = mb_find(b, ino, index);
	memset(buf, 0, len);
	if (k) {
		const struct mb_state *s = durable ? &k->safe : &k->now;

		memcpy(buf, s->bytes + off, len);
		there = s->there;
	}
	mini_serve_unlock(&b->s);
	return there;
}

uint64_t mini_blockd_units(struct mini_blockd *b, uint64_t ino)
{
	uint64_t units = 0;

	mini_serve_lock(&b->s);
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next)
			for (uint32_t u = 0; k->ino == ino &&
			     u < (1u << k->log2) / UNIT_SIZE; u++)
				units += k->now.units[u] != UNIT_HOLE;
	mini_serve_unlock(&b->s);
	return units;
}
