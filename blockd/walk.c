/* Blocks in order, memory merged over the index. */
#include "blockd/mem.h"
#include "blockd/store_priv.h"

static int key_compare(const struct image_key *a, const struct image_key *b)
{
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	return 0;
}

static struct image_key block_key(const struct block *b)
{
	return (struct image_key){ b->in->ino, b->index };
}

static int block_compare(const void *a, const void *b)
{
	struct image_key ka = block_key(*(struct block *const *)a);
	struct image_key kb = block_key(*(struct block *const *)b);

	return key_compare(&ka, &kb);
}

static int mem_add(struct store_walk *w, struct block *b, size_t *cap)
{
	if (w->mem_count == *cap) {
		size_t n = *cap == 0 ? 64 : *cap * 2;
		void *p = mem_grow(w->mem, n * sizeof(struct block *));

		if (p == NULL)
			return -ENOMEM;
		w->mem = p;
		*cap = n;
	}
	w->mem[w->mem_count++] = b;
	return 0;
}

static int mem_collect(struct store_walk *w, struct slist *l, bool by_hash,
		       const struct image_key *from, size_t *cap)
{
	int err = 0;

	for (struct slist *e = l->next; e != l && err == 0; e = e->next) {
		struct block *b = by_hash ?
				  container_of(e, struct block, hash) :
				  container_of(e, struct block, in_inode);
		struct image_key key = block_key(b);

		if (key_compare(&key, from) >= 0)
			err = mem_add(w, b, cap);
	}
	return err;
}

static int index_step(struct store_walk *w)
{
	int n = index_walk_next(w->s->index, &w->index_key, &w->val, &w->len);

	w->index_more = n == 1;
	if (n == 1 && w->only != NULL && w->index_key.ino != w->only->ino)
		w->index_more = false;
	return n < 0 ? n : 0;
}

int walk_begin(struct store *s, struct store_walk *w,
	       const struct image_key *from, struct inode *only)
{
	size_t cap = 0;
	int err = 0;

	*w = (struct store_walk){ .s = s, .only = only };
	w->scratch.loc = s->walk_loc;
	w->scratch.crc = s->walk_crc;
	if (only != NULL)
		err = mem_collect(w, &only->blocks, false, from, &cap);
	for (uint32_t i = 0; only == NULL && i < BLOCK_HASH_SIZE && err == 0;
	     i++)
		err = mem_collect(w, &s->block_hash[i], true, from, &cap);
	if (err == 0 && w->mem_count > 0)
		qsort(w->mem, w->mem_count, sizeof(*w->mem), block_compare);
	if (err == 0)
		err = index_walk_begin(s->index, from);
	if (err == 0)
		err = index_step(w);
	return err;
}

void walk_end(struct store_walk *w)
{
	index_walk_end(w->s->index);
	mem_free(w->mem);
	w->mem = NULL;
}

/* The index's image less the cuts that it has not seen. */
static int from_index(struct store_walk *w)
{
	struct inode *in = store_inode_find(w->s, w->key.ino);
	int err = image_decode(&w->key, w->val, w->len, &w->scratch);

	if (err != 0)
		return -EIO;
	for (struct slist *e = in == NULL ? NULL : in->cuts.next;
	     e != NULL && e != &in->cuts; e = e->next) {
		struct cut *c = container_of(e, struct cut, in_inode);
		struct image_hit hit;

		if (!image_cut_hit(&c->c, w->key.index, &w->scratch, &hit))
			continue;
		for (uint32_t u = hit.first; u < hit.last; u++)
			w->scratch.loc[u] = LOC_HOLE;
		w->scratch.end = hit.end;
		w->scratch.version = c->c.version;
	}
	w->m = &w->scratch;
	w->b = NULL;
	return 0;
}

int walk_next(struct store_walk *w)
{
	for (;;) {
		struct block *b = w->mem_next < w->mem_count ?
				  w->mem[w->mem_next] : NULL;
		struct image_key bk = { 0, 0 };
		int order, err = 0;

		if (b == NULL && !w->index_more)
			return 0;
		if (b != NULL)
			bk = block_key(b);
		order = b == NULL ? 1 : !w->index_more ? -1 :
			key_compare(&bk, &w->index_key);
		if (order <= 0) {
			w->key = bk;
			w->m = &b->m;
			w->b = b;
			w->mem_next++;
		} else {
			w->key = w->index_key;
			err = from_index(w);
		}
		if (err == 0 && order >= 0)
			err = index_step(w);
		if (err != 0)
			return err;
		if (image_allocated(w->m) > 0)
			return 1;
	}
}
