/* What is written into a write-back buffer, cut from it and seen in it. */
#include "fuse/core/wbuf_priv.h"

/* An io that would be cut into more frames than this is left to the flusher. */
#define FULL_EXTS_MAX (4u * WBUF_IOV_MAX)

/* ---- life ---- */

int wbuf_init(struct wbuf *b, struct wbuf_mem *m, uint8_t block_log2)
{
	*b = (struct wbuf){
		.mem = m,
		.seed = 0x9e3779b9u,
		.block_log2 = block_log2,
	};
	dlist_init(&b->ios);
	b->gen_first = b->gen_last = wbuf_gen_new(1);
	return b->gen_first ? 0 : -ENOMEM;
}

void wbuf_fini(struct wbuf *b)
{
	assert(dlist_empty(&b->ios));
	while (b->head)
		wbuf_ext_drop(b, b->head);
	while (b->gen_first) {
		struct wbuf_gen *g = b->gen_first;

		b->gen_first = g->next;
		free(g);
	}
}

bool wbuf_clean(const struct wbuf *b)
{
	return b->gen_first == b->gen_last && b->gen_last->count == 0;
}

/* ---- writing ---- */

/* What new content takes over from DIRTY content it replaces. */
struct carved {
	struct wbuf_gen *gen; /* counted once, lest it vanish */
	bool behind, wanted;
};

static void carved_init(struct wbuf *b, struct carved *c)
{
	*c = (struct carved){ .gen = b->gen_last };
	c->gen->count++;
}

static void carved_gen(struct wbuf *b, struct carved *c, struct wbuf_gen *g)
{
	if (g->number >= c->gen->number)
		return;
	g->count++;
	wbuf_gen_put(b, c->gen);
	c->gen = g;
}

/* Takes [from, to) away from all extents. May need one reserved extent. */
static void carve(struct wbuf *b, uint64_t from, uint64_t to, struct carved *c)
{
	struct wbuf_ext *e = wbuf_find(b, from), *next;

	for (; e && e->off < to; e = next) {
		if (e->state == WBUF_DIRTY) {
			carved_gen(b, c, e->gen);
			c->behind |= e->behind;
			c->wanted |= e->wanted;
		} else if (e->state == WBUF_FLIGHT) {
			c->behind = true;
		}
		if (e->off < from && wbuf_ext_end(e) > to)
			wbuf_ext_split(b, e, to);
		next = e->next;
		if (e->off < from)
			wbuf_ext_trim(b, e, (uint32_t)(wbuf_ext_end(e) - from),
				      false);
		else if (wbuf_ext_end(e) > to)
			wbuf_ext_trim(b, e, (uint32_t)(to - e->off), true);
		else
			wbuf_ext_drop(b, e);
	}
}

static bool cuts_inside(const struct wbuf *b, uint64_t from, uint64_t to)
{
	const struct wbuf_ext *e = wbuf_find(b, from);

	return e && e->off < from && wbuf_ext_end(e) > to;
}

int wbuf_write(struct wbuf *b, uint64_t off, struct wbuf_data *data,
	       uint32_t data_off, uint32_t len)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t end = off + len, first = off >> b->block_log2;
	uint32_t pieces = (uint32_t)(((end - 1) >> b->block_log2) - first + 1);
	struct carved c;

	assert(len > 0 && data_off + len <= data->used);
	if (wbuf_ext_reserve(b->mem, pieces + 1))
		return -ENOMEM;
	carved_init(b, &c);
	carve(b, off, end, &c);
	wbuf_data_charge(b->mem, data);
	while (off < end) {
		uint64_t to = u64_min(end, u64_round_down(off, block) + block);
		struct wbuf_ext *e = wbuf_ext_new(b);

		*e = (struct wbuf_ext){
			.off = off,
			.len = (uint32_t)(to - off),
			.data = data,
			.data_off = data_off,
			.behind = c.behind,
			.wanted = c.wanted,
		};
		wbuf_data_get(data);
		wbuf_dirty_enter(b, e, c.gen);
		wbuf_ext_insert(b, e);
		data_off += e->len;
		off = to;
	}
	wbuf_gen_put(b, c.gen);
	return 0;
}

/* Bytes that may be appended to DIRTY @e at @off without touching another
 * extent or block. */
static uint32_t append_room(const struct wbuf *b, const struct wbuf_ext *e,
			    uint64_t off)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t limit = u64_round_down(e->off, block) + block;
	const struct wbuf_data *d = e->data;

	if (e->state != WBUF_DIRTY || wbuf_ext_end(e) != off ||
	    e->data_off + e->len != d->used)
		return 0;
	if (e->next)
		limit = u64_min(limit, e->next->off);
	return (uint32_t)u64_min(limit - off, d->cap - d->used);
}

/* The extent that contains the byte before @off, or NULL. */
static struct wbuf_ext *ext_before(struct wbuf *b, uint64_t off)
{
	struct wbuf_ext *e = b->hint;

	if (off == 0)
		return NULL;
	if (e && e->off < off && off <= wbuf_ext_end(e))
		return e;
	e = wbuf_ext_floor(b, off - 1);
	return e && off <= wbuf_ext_end(e) ? e : NULL;
}

/* Overwrites inside one DIRTY extent that nobody else reads. */
static bool overwrite_in_place(struct wbuf *b, uint64_t off, const void *src,
			       uint32_t len)
{
	struct wbuf_ext *e = wbuf_ext_floor(b, off);

	if (!e || e->state != WBUF_DIRTY || off + len > wbuf_ext_end(e) ||
	    e->data->refs != 1)
		return false;
	memcpy(e->data->bytes + e->data_off + (off - e->off), src, len);
	return true;
}

/* Capacity for content at @off that begins a new extent behind @before. */
static uint32_t new_cap(const struct wbuf *b, const struct wbuf_ext *before,
			uint64_t off, uint32_t len)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t cap = len;

	/* Doubling: many small appends make few extents, one makes no waste. */
	if (before && wbuf_ext_end(before) == off)
		cap = u64_max(len, u64_min(WBUF_APPEND_MAX,
					   2 * (uint64_t)before->data->cap));
	cap = u64_min(cap, u64_round_down(off, block) + block - off);
	return (uint32_t)u64_round_up(u64_max(cap, len), 64);
}

int wbuf_write_small(struct wbuf *b, uint64_t off, const void *src,
		     uint32_t len)
{
	struct wbuf_ext *before = ext_before(b, off);
	struct wbuf_data *d;
	int err;

	assert(len > 0 && len <= WBUF_SMALL_MAX);
	if (before && append_room(b, before, off) >= len) {
		d = before->data;
		memcpy(d->bytes + d->used, src, len);
		d->used += len;
		before->len += len;
		b->mem->dirty_bytes += len;
		b->hint = before;
		return 0;
	}
	if (overwrite_in_place(b, off, src, len))
		return 0;
	d = wbuf_data_new(new_cap(b, before, off, len));
	if (!d)
		return -ENOMEM;
	memcpy(d->bytes, src, len);
	d->used = len;
	err = wbuf_write(b, off, d, 0, len);
	wbuf_data_put(b->mem, d);
	if (!err)
		b->hint = wbuf_ext_floor(b, off + len - 1);
	return err;
}

int wbuf_cut(struct wbuf *b, uint64_t from, uint64_t to)
{
	struct carved c;

	if (from >= to)
		return 0;
	if (cuts_inside(b, from, to) && wbuf_ext_reserve(b->mem, 1))
		return -ENOMEM;
	carved_init(b, &c);
	carve(b, from, to, &c);
	wbuf_gen_put(b, c.gen);
	return 0;
}

/* ---- looking ---- */

bool wbuf_unacked(const struct wbuf *b, uint64_t off, uint64_t len)
{
	const struct wbuf_ext *e = wbuf_find(b, off);

	for (; e && e->off < off + len; e = e->next)
		if (e->state != WBUF_UNSYNCED)
			return true;
	return false;
}

bool wbuf_block_full(const struct wbuf *b, uint64_t end)
{
	uint64_t start = end - ((uint64_t)1 << b->block_log2);
	const struct wbuf_ext *e = wbuf_ext_floor(b, end - 1);

	for (uint32_t i = 0; i < FULL_EXTS_MAX; i++) {
		if (!e || e->state != WBUF_DIRTY || wbuf_ext_end(e) != end)
			return false;
		if (e->off == start)
			return true;
		end = e->off;
		e = e->prev;
	}
	return false;
}
