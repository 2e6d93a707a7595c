/* Inode and block objects in memory. */
#include "blockd/mem.h"
#include "blockd/store_priv.h"
#include "common/diag.h"

static uint64_t mix(uint64_t v)
{
	v *= 0x9e3779b97f4a7c15u;
	return v ^ v >> 29;
}

static struct slist *inode_bucket(struct store *s, uint64_t ino)
{
	return &s->inode_hash[mix(ino) % INODE_HASH_SIZE];
}

static struct slist *block_bucket(struct store *s, uint64_t ino,
				  uint64_t index)
{
	return &s->block_hash[mix(mix(ino) + index) % BLOCK_HASH_SIZE];
}

struct inode *store_inode_find(struct store *s, uint64_t ino)
{
	struct slist *l = inode_bucket(s, ino);

	for (struct slist *e = l->next; e != l; e = e->next) {
		struct inode *in = container_of(e, struct inode, hash);

		if (in->ino == ino)
			return in;
	}
	return NULL;
}

struct inode *store_inode_get(struct store *s, uint64_t ino, int *err)
{
	struct inode *in = store_inode_find(s, ino);
	uint64_t cut;

	if (in != NULL) {
		in->refs++;
		return in;
	}
	if (index_get_cut(s->index, ino, &cut) != 0) {
		s->st.checksum_errors++;
		*err = -EIO;
		return NULL;
	}
	in = mem_alloc(sizeof(*in));
	if (in == NULL) {
		*err = -ENOMEM;
		return NULL;
	}
	in->ino = ino;
	in->cut = cut;
	in->refs = 1;
	slist_init(&in->blocks);
	slist_init(&in->jblocks);
	slist_init(&in->jlink);
	slist_init(&in->cuts);
	slist_init(&in->waitq);
	slist_push(inode_bucket(s, ino), &in->hash);
	return in;
}

void inode_put(struct store *s, struct inode *in)
{
	(void)s;
	assert(in->refs > 0);
	if (--in->refs > 0)
		return;
	assert(slist_empty(&in->blocks) && slist_empty(&in->cuts));
	slist_del(&in->hash);
	slist_del(&in->jlink);
	mem_free(in);
}

struct block *block_find(struct store *s, uint64_t ino, uint64_t index)
{
	struct slist *l = block_bucket(s, ino, index);

	for (struct slist *e = l->next; e != l; e = e->next) {
		struct block *b = container_of(e, struct block, hash);

		if (b->in->ino == ino && b->index == index)
			return b;
	}
	return NULL;
}

/* One allocation: the object and its arrays. */
static struct block *block_new(struct store *s, struct inode *in,
			       uint64_t index, uint8_t block_log2)
{
	uint32_t units = 1u << (block_log2 - UNIT_SHIFT);
	uint32_t words = (units + 63) / 64;
	size_t size = sizeof(struct block) + words * 16u + units * 12u;
	struct block *b = mem_alloc(size);

	if (b == NULL)
		return NULL;
	b->size = (uint32_t)size;
	b->jdirty = (uint64_t *)(void *)(b + 1);
	b->cdirty = b->jdirty + words;
	b->m.loc = (uint32_t *)(void *)(b->cdirty + words);
	b->m.crc = b->m.loc + units;
	b->ubuf = b->m.crc + units;
	b->m.block_log2 = block_log2;
	b->index = index;
	b->in = in;
	in->refs++;
	slist_init(&b->lru);
	slist_init(&b->clink);
	slist_init(&b->flink);
	slist_init(&b->jlink);
	slist_init(&b->ops);
	slist_push(&in->blocks, &b->in_inode);
	slist_push(block_bucket(s, in->ino, index), &b->hash);
	s->block_bytes += size;
	return b;
}

void block_free(struct store *s, struct block *b)
{
	for (uint32_t u = 0; b->ubuf_count > 0; u++)
		ubuf_drop(s, b, u);
	slist_del(&b->lru);
	slist_del(&b->clink);
	slist_del(&b->flink);
	slist_del(&b->jlink);
	slist_del(&b->in_inode);
	slist_del(&b->hash);
	s->block_bytes -= b->size;
	inode_put(s, b->in);
	mem_free(b);
}

static bool evict_one(struct store *s)
{
	if (slist_empty(&s->block_lru))
		return false;
	block_free(s, container_of(s->block_lru.next, struct block, lru));
	return true;
}

bool block_room(struct store *s)
{
	while (s->block_bytes > s->o.object_bytes && evict_one(s))
		;
	return s->block_bytes <= s->o.object_bytes;
}

/* What cuts that the index does not have yet take from a block just loaded.
 * The worker frees the units of a cut it is applying; of one that waits, we
 * do, and our image then comes before the cut. */
static void load_cuts(struct store *s, struct block *b)
{
	struct slist *e;

	for (e = b->in->cuts.next; e != &b->in->cuts; e = e->next) {
		struct cut *c = container_of(e, struct cut, in_inode);
		struct image_hit hit;

		if (!c->flying) {
			(void)block_cut(s, b, &c->c);
			continue;
		}
		if (!image_cut_hit(&c->c, b->index, &b->m, &hit))
			continue;
		for (uint32_t u = hit.first; u < hit.last; u++) {
			/* A later journal item of the block is newer than the
			 * cut, which then passes it over in replay: it must
			 * say itself what is gone. */
			if (b->m.loc[u] != LOC_HOLE)
				block_mark(s, b, u);
			b->m.loc[u] = LOC_HOLE;
		}
		b->m.end = hit.end;
		b->m.version = c->c.version;
		b->encoded = c->c.version;
		b->units = image_allocated(&b->m);
	}
}

/* Units the index says are unwritten are promised all the time; the count is
 * taken at start-up, not here. */
static int block_load(struct store *s, struct inode *in, uint64_t index,
		      struct block **ret)
{
	struct image_key key = { in->ino, index };
	struct image_head h;
	struct block *b;
	const void *val;
	size_t len;
	int err = index_get_block(s->index, &key, &val, &len);

	if (err == -ENOENT || err == -ENOMEM)
		return err;
	if (err == 0)
		err = image_peek(&key, val, len, &h);
	if (err == 0) {
		b = block_new(s, in, index, h.block_log2);
		if (b == NULL)
			return -ENOMEM;
		err = image_decode(&key, val, len, &b->m);
		if (err != 0)
			block_free(s, b);
	}
	if (err != 0) {
		s->st.checksum_errors++;
		diag_err("store", "event=index-damaged ino=%llu block=%llu",
			 (unsigned long long)in->ino,
			 (unsigned long long)index);
		return -EIO;
	}
	b->units = h.units;
	b->encoded = b->m.version;
	b->pins++;
	load_cuts(s, b);
	*ret = b;
	return 0;
}

int block_get(struct store *s, struct inode *in, uint64_t index,
	      uint8_t block_log2, bool create, struct block **ret)
{
	struct block *b = block_find(s, in->ino, index);
	int err;

	if (b != NULL) {
		if (b->m.block_log2 != block_log2)
			return -EINVAL;
		b->pins++;
		slist_del(&b->lru);
		*ret = b;
		return 0;
	}
	(void)block_room(s);
	err = block_load(s, in, index, &b);
	if (err == 0 && b->m.block_log2 != block_log2) {
		block_put(s, b);
		return -EINVAL;
	}
	if (err == -ENOENT && create) {
		b = block_new(s, in, index, block_log2);
		err = b == NULL ? -ENOMEM : 0;
		if (b != NULL)
			b->pins++;
	}
	if (err == 0)
		*ret = b;
	return err;
}

void block_settle(struct store *s, struct block *b)
{
	if (!block_evictable(b))
		return;
	if (b->units == 0) {
		block_free(s, b);
		return;
	}
	slist_del(&b->lru);
	slist_push(&s->block_lru, &b->lru);
}

void block_put(struct store *s, struct block *b)
{
	assert(b->pins > 0);
	b->pins--;
	block_settle(s, b);
}

void block_set_version(struct store *s, struct block *b, uint64_t version)
{
	b->m.version = version;
	slist_del(&b->lru);
	if (!b->dirty) {
		b->dirty = true;
		if (s->dirty_blocks++ == 0)
			s->dirty_since_ms = s->dev->vt->now_ms(s->dev);
		slist_push(&s->dirty, &b->clink);
	}
	if (!b->on_jlist) {
		b->on_jlist = true;
		slist_push(&b->in->jblocks, &b->jlink);
		if (slist_empty(&b->in->jlink))
			slist_push(&s->jinodes, &b->in->jlink);
	}
}

void block_touch(struct store *s, struct block *b)
{
	block_set_version(s, b, ++s->version);
	b->jmeta = true;
}

void block_mark(struct store *s, struct block *b, uint32_t u)
{
	(void)s;
	bits_put(b->jdirty, u, true);
}

void block_unlist_journal(struct store *s, struct block *b)
{
	(void)s;
	b->on_jlist = false;
	slist_del(&b->jlink);
	if (slist_empty(&b->in->jblocks))
		slist_del(&b->in->jlink);
}

void block_punch_unit(struct store *s, struct block *b, uint32_t u)
{
	uint32_t loc = b->m.loc[u];

	if (loc == LOC_HOLE)
		return;
	ubuf_drop(s, b, u);
	if (loc == LOC_UNWRITTEN)
		s->promised--;
	else if (loc_is_disk(loc))
		space_freed(s, loc, 1);
	b->m.loc[u] = LOC_HOLE;
	b->units--;
	block_mark(s, b, u);
}

uint32_t block_cut(struct store *s, struct block *b,
		   const struct image_cut *c)
{
	struct image_hit hit;
	uint32_t before = b->units;

	if (!image_cut_hit(c, b->index, &b->m, &hit))
		return 0;
	for (uint32_t u = hit.first; u < hit.last; u++)
		block_punch_unit(s, b, u);
	if (b->units == before && b->m.end == hit.end)
		return 0;
	b->m.end = hit.end;
	block_set_version(s, b, c->version);
	b->jmeta = true;
	return before - b->units;
}
