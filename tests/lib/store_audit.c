/* A quiet store's books. */
#include "tests/lib/store_audit.h"

#include "blockd/mem.h"
#include "blockd/store_priv.h"

struct audit {
	struct store *s;
	struct extent_map map;
	uint64_t promised;
	int defects;
	bool leaks_ok;
};

static void bad(struct audit *a, const struct image_key *key, const char *what,
		uint64_t x, uint64_t y)
{
	a->defects++;
	(void)fprintf(stderr, "audit: ino %llu block %llu: %s %llu %llu\n",
		      (unsigned long long)key->ino,
		      (unsigned long long)key->index, what,
		      (unsigned long long)x, (unsigned long long)y);
}

static void take_image(struct audit *a, const struct image_key *key,
		       const struct image *m)
{
	struct image_run r;

	for (uint32_t u = 0; u < image_units(m); u += r.count) {
		r = image_run_at(m, u, image_units(m));
		if (r.loc == LOC_UNWRITTEN)
			a->promised += r.count;
		if (loc_is_disk(r.loc) &&
		    extent_mark(&a->map, r.loc, r.count) != 0)
			bad(a, key, "unit used twice", u, r.loc);
	}
}

static void take_block(struct audit *a, struct block *b)
{
	struct image_key key = { b->in->ino, b->index };
	uint32_t ubufs = 0, dirty = 0;

	take_image(a, &key, &b->m);
	for (uint32_t u = 0; u < image_units(&b->m); u++) {
		struct ubuf *ub = block_ubuf(a->s, b, u);

		if (ub == NULL && b->m.loc[u] == LOC_MEMORY)
			bad(a, &key, "in memory without a buffer", u, 0);
		if (ub == NULL)
			continue;
		ubufs++;
		dirty += ub->dirty;
		a->promised += ub->reserved;
		if (ub->b != b || ub->unit != u)
			bad(a, &key, "buffer of another unit", u, ub->unit);
		if (ub->held || ub->flying)
			bad(a, &key, "buffer held", u, 0);
		if (ub->reserved && !ub->dirty)
			bad(a, &key, "promise without need", u, 0);
		if (ub->dirty && !ub->reserved &&
		    !(ub->in_journal && loc_is_disk(b->m.loc[u])))
			bad(a, &key, "need without promise", u, 0);
	}
	if (ubufs != b->ubuf_count || dirty != b->dirty_ubufs)
		bad(a, &key, "buffers miscounted", ubufs, b->ubuf_count);
	if (b->units != image_allocated(&b->m))
		bad(a, &key, "units miscounted", b->units,
		    image_allocated(&b->m));
	if (b->pins != 0 || b->flying || !slist_empty(&b->ops))
		bad(a, &key, "pinned", b->pins, b->flying);
	if (dirty > 0 && !b->dirty)
		bad(a, &key, "dirty buffers in a clean block", dirty, 0);
}

static void take_memory(struct audit *a)
{
	for (uint32_t i = 0; i < BLOCK_HASH_SIZE; i++) {
		struct slist *l = &a->s->block_hash[i];

		for (struct slist *e = l->next; e != l; e = e->next)
			take_block(a, container_of(e, struct block, hash));
	}
}

/* Of blocks only in the index; what waiting cuts will take is still used. */
static void take_index(struct audit *a)
{
	struct image_key key = { 0, 0 };
	struct image m = { .loc = a->s->walk_loc, .crc = a->s->walk_crc };
	const void *val;
	size_t len;

	if (index_walk_begin(a->s->index, &key) != 0)
		abort();
	while (index_walk_next(a->s->index, &key, &val, &len) == 1) {
		if (image_decode(&key, val, len, &m) != 0)
			bad(a, &key, "value damaged", 0, 0);
		else if (block_find(a->s, key.ino, key.index) == NULL)
			take_image(a, &key, &m);
	}
	index_walk_end(a->s->index);
}

static void take_freed(struct audit *a)
{
	const struct run_list *l = &a->s->free_next;
	struct image_key key = { 0, 0 };

	for (size_t i = 0; i < l->count; i++) {
		if (extent_mark(&a->map, l->runs[i].loc, l->runs[i].count) != 0)
			bad(a, &key, "freed unit in use", l->runs[i].loc,
			    l->runs[i].count);
	}
}

static void must_be_used(struct audit *a, const struct image_key *key,
			 const struct image_run *r, const char *where)
{
	for (uint32_t i = 0; loc_is_disk(r->loc) && i < r->count; i++) {
		if (!extent_used(&a->s->map, r->loc + i)) {
			bad(a, key, where, r->first + i, r->loc + i);
			return;
		}
	}
}

/* What the index says, also where memory is newer: a restart may take it. */
static void index_holds(struct audit *a)
{
	struct image_key key = { 0, 0 };
	struct image m = { .loc = a->s->walk_loc, .crc = a->s->walk_crc };
	struct image_run r;
	const void *val;
	size_t len;

	if (index_walk_begin(a->s->index, &key) != 0)
		abort();
	while (index_walk_next(a->s->index, &key, &val, &len) == 1) {
		if (image_decode(&key, val, len, &m) != 0)
			continue;
		for (uint32_t u = 0; u < image_units(&m); u += r.count) {
			r = image_run_at(&m, u, image_units(&m));
			must_be_used(a, &key, &r, "index has a free unit");
		}
	}
	index_walk_end(a->s->index);
}

static void record_holds(struct audit *a, const uint8_t *p,
			 const struct jrec_header *h)
{
	struct jrec_item item;
	struct jrec_iter it;
	struct jrec_run r;

	jrec_iter_init(&it, p, h);
	while (jrec_next(&it, &item) == 1) {
		if (item.kind != JREC_BLOCK)
			continue;
		while (jrec_next_run(&it, &r) == 1)
			must_be_used(a, &item.key, &r.run,
				     "journal has a free unit");
	}
}

/* The record of number @seq at @off. */
static bool record_get(struct store *s, uint8_t *buf, uint64_t off,
		       uint64_t seq, struct jrec_header *h)
{
	uint64_t len = u64_min(s->record_max, s->super.journal_bytes - off);

	return len > 0 &&
	       s->dev->vt->read_now(s->dev, s->journal_file, off, buf, len) ==
	       0 && jrec_peek(buf, s->super.nonce, len, h) == 0 &&
	       h->seq == seq && jrec_check(buf, h) == 0;
}

/* Every unit that a record names which a restart would replay. */
static void journal_holds(struct audit *a)
{
	struct store *s = a->s;
	uint8_t *buf = aligned_alloc(UNIT_SIZE, s->record_max);
	struct jrec_header h;
	uint64_t off = s->tail;

	for (uint64_t seq = s->tail_seq; seq < s->seq; seq++) {
		if (!record_get(s, buf, off, seq, &h)) {
			off = 0;
			if (!record_get(s, buf, off, seq, &h))
				abort();
		}
		record_holds(a, buf, &h);
		off += jrec_size(&h);
	}
	free(buf);
}

static void compare_maps(struct audit *a)
{
	struct image_key key = { 0, 0 };

	for (uint32_t i = 0; i < a->map.seg_count; i++) {
		for (uint32_t u = 0; u < a->map.segs[i].unit_count; u++) {
			uint32_t loc = i << SEG_SHIFT | u;

			if (extent_used(&a->map, loc) ==
			    extent_used(&a->s->map, loc))
				continue;
			if (a->leaks_ok && extent_used(&a->s->map, loc))
				continue;
			bad(a, &key, "unit leaked or lost", loc,
			    extent_used(&a->s->map, loc));
			return;
		}
	}
}

int store_audit(struct store *s, bool leaks_ok)
{
	struct audit a = { .s = s, .leaks_ok = leaks_ok };
	struct image_key key = { 0, 0 };
	uint64_t fail_at = mem_fail_at(0);

	extent_map_init(&a.map);
	for (uint32_t i = 0; i < s->map.seg_count; i++) {
		if (extent_add_segment(&a.map, s->map.segs[i].unit_count) != 0)
			abort();
	}
	take_memory(&a);
	take_index(&a);
	take_freed(&a);
	if (a.promised != s->promised)
		bad(&a, &key, "promised", a.promised, s->promised);
	compare_maps(&a);
	index_holds(&a);
	journal_holds(&a);
	extent_map_fini(&a.map);
	(void)mem_fail_at(fail_at);
	return a.defects;
}
