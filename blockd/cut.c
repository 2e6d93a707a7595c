/* Cut, purge and alloc.
 *
 * A cut is alone behind its inode's gate. Its parts of units become zeros by
 * ordinary small writes, then whole units go: at once from blocks in memory,
 * by the next checkpoint from those only in the index; until then the cut
 * stays in memory (struct cut) and is applied to what is loaded. The journal
 * holds it as one item, after the blocks it touched. A purge is a cut of
 * everything that also forgets the cut number.
 */
#include "blockd/mem.h"
#include "blockd/op.h"
#include "common/crc32c.h"
#include "common/diag.h"

#define SCAN_SLICE_BLOCKS 512u

static void cut_start(struct op *op);
static void cut_edges(struct op *op);
static void cut_scan(struct op *op);
static void purge_next(struct op *op);

/* ---- the record of a cut ---- */
static int cut_room(struct store *s)
{
	size_t cap = s->cut_cap == 0 ? 64 : s->cut_cap;
	void *p;

	while (cap < s->cut_count + 1)
		cap *= 2;
	if (cap == s->cut_cap)
		return 0;
	p = mem_grow(s->cut_buf, cap * sizeof(*s->cut_buf));
	if (p == NULL)
		return -ENOMEM;
	s->cut_buf = p;
	s->cut_cap = cap;
	return 0;
}

struct cut *cut_new(struct store *s, struct inode *in,
		    const struct image_cut *c)
{
	struct cut *cut;

	if (cut_room(s) != 0)
		return NULL;
	cut = mem_alloc(sizeof(*cut));
	if (cut == NULL)
		return NULL;
	cut->c = *c;
	cut->in = in;
	in->refs++;
	s->cut_count++;
	slist_push(&in->cuts, &cut->in_inode);
	slist_push(&s->cuts, &cut->in_store);
	if (c->cut == IMAGE_CUT_PURGE) {
		in->purged = true;
		in->cut = 0;
	} else if (c->cut > in->cut) {
		in->cut = c->cut;
	}
	return cut;
}

void cut_blocks(struct store *s, struct inode *in, const struct image_cut *c)
{
	struct slist *e = in->blocks.next;

	while (e != &in->blocks) {
		struct block *b = container_of(e, struct block, in_inode);
		struct image_hit hit;

		e = e->next;
		if (block_evictable(b) &&
		    image_cut_hit(c, b->index, &b->m, &hit)) {
			/* As if it were not in memory: the worker does it. */
			block_free(s, b);
			continue;
		}
		/* Settling may free it; it is on no list yet. */
		b->pins++;
		(void)block_cut(s, b, c);
		if (c->cut == IMAGE_CUT_PURGE && b->on_jlist) {
			/* The purge's own item says it all. */
			size_t size = (image_units(&b->m) + 63) / 64 * 8;

			memset(b->jdirty, 0, size);
			memset(b->cdirty, 0, size);
			block_unlist_journal(s, b);
		}
		block_put(s, b);
	}
}

/* ---- cut ---- */
void store_cut(struct store *s, struct store_req *r, const struct blk_cut *c)
{
	struct op *op;

	store_enter(s);
	r->units_delta = 0;
	op = op_new(s, r);
	if (op != NULL) {
		op->excl = true;
		op->u.c.c = (struct image_cut){
			.ino = c->ino,
			.cut = c->cut,
			.from = c->from,
			.to = c->to,
			.block_log2 = c->block_log2,
		};
		op_enter(op, c->ino, cut_start);
	}
	store_leave(s, true);
}

static void cut_start(struct op *op)
{
	struct op_cut *c = &op->u.c;

	if (op->s->error != 0) {
		op_done(op, -EROFS);
		return;
	}
	op->sync = true;
	if (op->in->purged || c->c.cut <= op->in->cut) {
		op_done(op, 0);
		return;
	}
	cut_edges(op);
}

/* Bytes [*from, *to) of the file that are a part of one unit; edge 0 is at
 * the cut's start, 1 at its end. */
static bool edge_range(const struct image_cut *c, uint32_t edge,
		       uint64_t *from, uint64_t *to)
{
	uint64_t up = c->from > UINT64_MAX - UNIT_SIZE ?
		      UINT64_MAX : u64_round_up(c->from, UNIT_SIZE);

	if (c->from >= c->to)
		return false;
	if (edge == 0) {
		*from = c->from;
		*to = u64_min(up, c->to);
		return c->from % UNIT_SIZE != 0;
	}
	if (c->to == BLK_CUT_TO_END || c->to % UNIT_SIZE == 0)
		return false;
	*from = u64_max(u64_round_down(c->to, UNIT_SIZE), c->from);
	*to = c->to;
	/* One unit holds both ends: edge 0 has done it. */
	return u64_round_down(c->from, UNIT_SIZE) !=
	       u64_round_down(c->to, UNIT_SIZE) || c->from % UNIT_SIZE == 0;
}

/* The unit at the edge is damaged: what the cut leaves of it is lost, and so is
 * said of it until it is written anew. Were the cut refused for it, it would be
 * asked for again and again, and the file wait with it. */
static int edge_lost(struct op *op)
{
	struct store *s = op->s;
	uint64_t from, to, size = (uint64_t)1 << op->u.c.c.block_log2;
	struct block *b;
	uint32_t u;
	int err;

	if (!edge_range(&op->u.c.c, op->u.c.edge, &from, &to))
		return -EIO;
	err = block_get(s, op->in, from / size, op->u.c.c.block_log2, false,
			&b);
	if (err != 0)
		return err;
	u = (uint32_t)(from % size) >> UNIT_SHIFT;
	if (loc_is_disk(b->m.loc[u]) && b->ubuf[u] == 0) {
		/* The disk may yet find it again, with what is cut off: no
		 * content has this sum, nor the next cut's. */
		b->m.crc[u] = crc32c(b->m.crc[u], "lost", 4);
		diag_err("store", "event=unit-lost ino=%llu block=%llu unit=%u",
			 (unsigned long long)op->in->ino,
			 (unsigned long long)b->index, u);
		block_mark(s, b, u);
		block_touch(s, b);
	} else {
		err = -EIO;
	}
	block_put(s, b);
	return err;
}

/* Where the tries of this cut are counted. With more cuts than places the
 * others wait for those that were tried most. */
static struct edge_tries *edge_tries(struct op *op)
{
	struct edge_tries *t = op->s->edge_tries, *least = t;

	for (uint32_t i = 0; i < EDGE_TRIES_KEPT; i++, t++) {
		if (t->ino == op->in->ino && t->cut == op->u.c.c.cut)
			return t;
		if (t->count < least->count)
			least = t;
	}
	*least = (struct edge_tries){ .ino = op->in->ino,
				      .cut = op->u.c.c.cut };
	return least;
}

/* Has the disk failed to read what the edge of this cut needs often enough, a
 * time for each time that metad asks, not to be asked again? */
static bool edge_hopeless(struct op *op)
{
	return ++edge_tries(op)->count >= EDGE_TRIES_MAX;
}

static void edge_tries_end(struct store *s, uint64_t ino)
{
	for (uint32_t i = 0; i < EDGE_TRIES_KEPT; i++)
		if (s->edge_tries[i].ino == ino)
			s->edge_tries[i] = (struct edge_tries){ 0 };
}

static void edge_done(struct op *op, int err)
{
	if (op->s->error == 0 && (err == -EBADMSG ||
				  (err == -EIO && edge_hopeless(op))))
		err = edge_lost(op);
	if (err == -EBADMSG)
		err = -EIO;
	if (err != 0) {
		op->sync = false;
		op_done(op, err);
		return;
	}
	op->u.c.edge++;
	cut_edges(op);
}

/* Writes zeros to a part of a unit that holds data. 1: begun, edge_done()
 * follows; 0: nothing to do; -errno. */
static int edge_zero(struct op *op, uint64_t from, uint64_t to)
{
	static const uint8_t zeros[UNIT_SIZE];
	uint8_t log2 = op->u.c.c.block_log2;
	uint32_t off = (uint32_t)(from & (((uint64_t)1 << log2) - 1));
	struct blk_write w = {
		.ino = op->in->ino,
		.index = from >> log2,
		.cut = op->in->cut,
		.off = off,
		.len = (uint32_t)(to - from),
		.block_log2 = log2,
	};
	struct block *b;
	struct op *inner;
	bool data;
	int err = block_get(op->s, op->in, w.index, log2, false, &b);

	if (err != 0)
		return err == -ENOENT ? 0 : err;
	/* A block written with this cut number already is not its prey. */
	data = loc_is_data(b->m.loc[off >> UNIT_SHIFT]) &&
	       b->m.cut < op->u.c.c.cut && off < b->m.end;
	block_put(op->s, b);
	if (!data)
		return 0;
	inner = op_new(op->s, NULL);
	if (inner == NULL)
		return -ENOMEM;
	inner->req = op->req;
	inner->parent = op;
	inner->finish = edge_done;
	inner->u.w.w = w;
	inner->u.w.data = zeros;
	inner->u.w.inner = true;
	write_inner(inner, op->in);
	return 1;
}

static void cut_edges(struct op *op)
{
	uint64_t from, to;

	for (; op->u.c.edge < 2; op->u.c.edge++) {
		int n = 0;

		if (edge_range(&op->u.c.c, op->u.c.edge, &from, &to))
			n = edge_zero(op, from, to);
		if (n == 1)
			return;
		if (n < 0) {
			op->sync = false;
			op_done(op, n);
			return;
		}
	}
	op->u.c.scan.ino = op->in->ino;
	op->u.c.c.version = UINT64_MAX; /* hits every block while counting */
	cut_scan(op);
}

static void cut_apply(struct op *op)
{
	struct op_cut *c = &op->u.c;
	struct store *s = op->s;

	c->c.version = ++s->version;
	if (cut_new(s, op->in, &c->c) == NULL) {
		op->sync = false;
		op_done(op, -ENOMEM);
		return;
	}
	edge_tries_end(s, op->in->ino);
	cut_blocks(s, op->in, &c->c);
	if (c->c.to == BLK_CUT_TO_END)
		s->active_ms = s->dev->vt->now_ms(s->dev);
	op->req->units_delta -= (int64_t)c->removed;
	op_done(op, 0);
}

static uint64_t count_removed(const struct image_cut *c, uint64_t index,
			      const struct image *m)
{
	struct image_hit hit;
	uint64_t count = 0;

	if (!image_cut_hit(c, index, m, &hit))
		return 0;
	for (uint32_t u = hit.first; u < hit.last; u++)
		count += m->loc[u] != LOC_HOLE;
	return count;
}

/* Counts what will go, a slice at a time: the inode is ours meanwhile. */
static void cut_scan(struct op *op)
{
	struct op_cut *c = &op->u.c;
	uint64_t first, last;
	struct store_walk w;
	int n = 0;

	if (!image_cut_blocks(&c->c, &first, &last)) {
		cut_apply(op);
		return;
	}
	c->scan.index = u64_max(c->scan.index, first);
	n = walk_begin(op->s, &w, &c->scan, op->in);
	for (uint32_t i = 0; n == 0 || n == 1; i++) {
		n = walk_next(&w);
		if (n != 1 || w.key.ino != op->in->ino || w.key.index > last)
			break;
		if (i == SCAN_SLICE_BLOCKS) {
			c->scan = w.key;
			walk_end(&w);
			op_post(op, cut_scan);
			return;
		}
		c->removed += count_removed(&c->c, w.key.index, w.m);
	}
	walk_end(&w);
	if (n < 0) {
		op->sync = false;
		op_done(op, n);
		return;
	}
	cut_apply(op);
}

/* ---- purge ---- */
void store_purge(struct store *s, struct store_req *r, const uint64_t *inos,
		 size_t count)
{
	struct op *op;

	store_enter(s);
	r->units_delta = 0;
	op = op_new(s, r);
	if (op != NULL) {
		op->u.c.inos = inos;
		op->u.c.ino_count = count;
		purge_next(op);
	}
	store_leave(s, true);
}

static void purge_done(struct op *op, int err)
{
	if (err != 0) {
		op_done(op, err);
		return;
	}
	op->u.c.ino_next++;
	/* Not from here: each would stand on the stack of the one before. */
	op_ready(op, purge_next);
}

static void purge_one(struct op *op)
{
	struct store *s = op->s;
	struct image_cut c = {
		.ino = op->in->ino,
		.cut = IMAGE_CUT_PURGE,
		.to = BLK_CUT_TO_END,
		.version = s->version + 1,
	};

	if (s->error != 0) {
		op_done(op, -EROFS);
		return;
	}
	if (!op->in->purged) {
		if (cut_new(s, op->in, &c) == NULL) {
			op_done(op, -ENOMEM);
			return;
		}
		s->version++;
		edge_tries_end(s, op->in->ino);
		cut_blocks(s, op->in, &c);
	}
	op_done(op, 0);
}

/* One inode after the other passes its gate; all share the commit. */
static void purge_next(struct op *op)
{
	struct op_cut *c = &op->u.c;
	struct store *s = op->s;
	struct store_req *r = op->req;
	struct op *inner;

	if (c->ino_next == c->ino_count) {
		op_drop(op);
		commit_join(s, r, COMMIT_PURGES);
		return;
	}
	inner = op_new(s, NULL);
	if (inner == NULL) {
		op_done(op, -ENOMEM);
		return;
	}
	inner->req = r;
	inner->parent = op;
	inner->finish = purge_done;
	inner->excl = true;
	op_enter(inner, c->inos[c->ino_next], purge_one);
}

/* ---- alloc ---- */
static void alloc_claim(struct op *op)
{
	struct store *s = op->s;
	struct block *b = op->b;
	uint64_t holes = 0;
	int err = s->error != 0 ? -EROFS : 0;

	for (uint32_t u = op->first; u < op->last; u++)
		holes += b->m.loc[u] == LOC_HOLE;
	if (err == 0)
		err = space_ask(s, op, holes, 0);
	if (err == SPACE_OK && holes > 0)
		err = memory_ask(s, 0);
	if (err == SPACE_WAIT) {
		op_wait_space(op, alloc_claim);
		return;
	}
	if (err == 0 && holes > 0) {
		for (uint32_t u = op->first; u < op->last; u++) {
			if (b->m.loc[u] != LOC_HOLE)
				continue;
			b->m.loc[u] = LOC_UNWRITTEN;
			block_mark(s, b, u);
		}
		s->promised += holes;
		b->units += (uint32_t)holes;
		op->req->units_delta = (int64_t)holes;
		if (op->u.a.cut > b->m.cut)
			b->m.cut = op->u.a.cut;
		block_touch(s, b);
		s->active_ms = s->dev->vt->now_ms(s->dev);
		space_ahead(s);
	}
	op_done(op, err);
}

static void alloc_start(struct op *op)
{
	struct blk_alloc *a = &op->u.a;
	struct store *s = op->s;
	int err = 0;

	if (s->error != 0)
		err = -EROFS;
	else if (op->in->purged || a->cut < op->in->cut)
		err = -ESTALE;
	if (err == 0)
		err = block_get(s, op->in, a->index, a->block_log2, true,
				&op->b);
	if (err != 0) {
		op_done(op, err);
		return;
	}
	s->ino_max = u64_max(s->ino_max, a->ino);
	op->first = a->off >> UNIT_SHIFT;
	op->last = (a->off + a->len + UNIT_SIZE - 1) >> UNIT_SHIFT;
	if (op_order(op, alloc_claim))
		alloc_claim(op);
}

void store_alloc(struct store *s, struct store_req *r,
		 const struct blk_alloc *a)
{
	struct op *op;

	store_enter(s);
	r->units_delta = 0;
	op = op_new(s, r);
	if (op != NULL) {
		op->u.a = *a;
		op_enter(op, a->ino, alloc_start);
	}
	store_leave(s, true);
}
