/* Immediate questions: map, end, list. */
#include "blockd/store_priv.h"

static void map_entry(struct wire_out *o, uint64_t index,
		      const struct image *m)
{
	uint8_t bits = 0;

	wire_put_u64(o, index);
	for (uint32_t u = 0; u < image_units(m); u++) {
		if (loc_is_data(m->loc[u]))
			bits |= (uint8_t)(1u << (u % 8));
		if (u % 8 == 7 || u + 1 == image_units(m)) {
			wire_put_u8(o, bits);
			bits = 0;
		}
	}
}

static bool map_room(const struct wire_out *o, const struct image *m)
{
	return o->cap - o->len >= 8 + (image_units(m) + 7) / 8;
}

int store_map(struct store *s, const struct blk_map *m, struct wire_out *o,
	      uint64_t *next)
{
	struct image_key from = { m->ino, m->first };
	struct store_walk w;
	uint32_t count = 0;
	int n, err;
	struct inode *in = store_inode_get(s, m->ino, &err);

	if (in == NULL)
		return err;
	*next = UINT64_MAX;
	n = walk_begin(s, &w, &from, in);
	while (n == 0 && (n = walk_next(&w)) == 1) {
		n = 0;
		if (w.key.index > m->last)
			break;
		if (w.m->block_log2 != m->block_log2) {
			n = -EINVAL;
			break;
		}
		if (count == m->count_max || !map_room(o, w.m)) {
			*next = w.key.index;
			break;
		}
		map_entry(o, w.key.index, w.m);
		count++;
	}
	walk_end(&w);
	inode_put(s, in);
	return n < 0 ? n : (int)count;
}

int store_end(struct store *s, const struct blk_end *e,
	      struct blk_end_reply *r)
{
	struct image_key from = { e->ino, 0 };
	struct store_walk w;
	int n, err;
	struct inode *in = store_inode_get(s, e->ino, &err);

	if (in == NULL)
		return err;
	r->end = 0;
	r->units = 0;
	r->mtime_ns = 0;
	n = walk_begin(s, &w, &from, in);
	while (n == 0 && (n = walk_next(&w)) == 1) {
		n = 0;
		if (w.m->end > 0)
			r->end = (w.key.index << w.m->block_log2) + w.m->end;
		r->units += image_allocated(w.m);
		if (w.m->mtime_ns > r->mtime_ns)
			r->mtime_ns = w.m->mtime_ns;
	}
	walk_end(&w);
	inode_put(s, in);
	return n < 0 ? n : 0;
}

int store_list(struct store *s, const struct blk_list *l, struct wire_out *o,
	       bool *done)
{
	struct image_key from = { l->ino, l->index + 1 };
	struct blk_list_entry e;
	struct store_walk w;
	uint32_t count = 0;
	int n;

	if (from.index == 0)
		from.ino++;
	*done = false;
	n = walk_begin(s, &w, &from, NULL);
	while (n == 0 && (n = walk_next(&w)) == 1) {
		n = 0;
		e = (struct blk_list_entry){ .ino = w.key.ino,
					     .index = w.key.index,
					     .end = w.m->end,
					     .units = image_allocated(w.m),
					     .cut = w.m->cut,
					     .block_log2 = w.m->block_log2 };
		if (count == l->count_max ||
		    o->cap - o->len < blk_list_entry_size(&e))
			goto out;
		blk_list_entry_encode(o, &e);
		count++;
	}
	*done = n == 0;
out:
	walk_end(&w);
	return n < 0 ? n : (int)count;
}
