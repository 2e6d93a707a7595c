/* Writes.
 *
 * Small: units merge into unit buffers; a part of a unit that is not in
 * memory is first read and checked. Large (LARGE_UNITS whole units): straight
 * from the caller's buffer to fresh units; the block's map changes when all
 * is written. An unaligned large write is large in its middle. Everything a
 * write changes, it changes at once, after its last I/O.
 */
#include "blockd/mem.h"
#include "blockd/op.h"
#include "common/crc32c.h"
#include "common/diag.h"

static void write_start(struct op *op);
static void write_claim(struct op *op);
static void write_io(struct op *op);

static bool is_small(const struct op_write *w, uint32_t u)
{
	return u < w->mid_first || u >= w->mid_last;
}

/* Byte range of unit @u that is written: [*from, *to) in the unit. */
static void unit_range(const struct op_write *w, uint32_t u, uint32_t *from,
		       uint32_t *to)
{
	uint32_t base = u << UNIT_SHIFT;
	uint32_t end = w->w.off + w->w.len;

	*from = w->w.off > base ? w->w.off - base : 0;
	*to = end - base < UNIT_SIZE ? end - base : UNIT_SIZE;
}

static bool is_whole(const struct op_write *w, uint32_t u)
{
	uint32_t from, to;

	unit_range(w, u, &from, &to);
	return from == 0 && to == UNIT_SIZE;
}

static uint32_t sum_of(const struct op *op, uint32_t u)
{
	struct wire_in i;

	wire_in_init(&i, (const uint8_t *)op->u.w.w.sums.p +
		     (size_t)(u - op->first) * 4, 4);
	return wire_get_u32(&i);
}

void store_write(struct store *s, struct store_req *r,
		 const struct blk_write *w, const void *data)
{
	struct op *op;

	store_enter(s);
	s->st.writes++;
	r->units_delta = 0;
	op = op_new(s, r);
	if (op != NULL) {
		op->u.w.w = *w;
		op->u.w.data = data;
		op->sync = (w->flags & BLK_WRITE_SYNC) != 0;
		op_enter(op, w->ino, write_start);
	}
	store_leave(s, true);
}

void write_inner(struct op *op, struct inode *in)
{
	op->in = in;
	in->refs++;
	write_start(op);
}

static void set_range(struct op *op)
{
	struct op_write *w = &op->u.w;
	uint32_t off = w->w.off, end = w->w.off + w->w.len;

	op->first = off >> UNIT_SHIFT;
	op->last = (end + UNIT_SIZE - 1) >> UNIT_SHIFT;
	w->mid_first = (off + UNIT_SIZE - 1) >> UNIT_SHIFT;
	w->mid_last = end >> UNIT_SHIFT;
	if (w->mid_last < w->mid_first + LARGE_UNITS) {
		w->mid_first = op->last;
		w->mid_last = op->last;
	}
}

static int check(const struct op *op)
{
	if (op->s->error != 0)
		return -EROFS;
	if (op->in->purged || op->u.w.w.cut < op->in->cut)
		return -ESTALE;
	return 0;
}

/* Behind the gate. */
static void write_start(struct op *op)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;
	int err = check(op);

	if (err == 0)
		err = block_get(s, op->in, w->w.index, w->w.block_log2, true,
				&op->b);
	if (err != 0) {
		op_done(op, err);
		return;
	}
	s->ino_max = u64_max(s->ino_max, w->w.ino);
	set_range(op);
	if (op_order(op, write_claim))
		write_claim(op);
}

/* A part of the unit is kept, which only the disk has. */
static bool needs_old(const struct op *op, uint32_t u)
{
	return !is_whole(&op->u.w, u) && loc_is_disk(op->b->m.loc[u]) &&
	       block_ubuf(op->s, op->b, u) == NULL;
}

static bool waits_for_io(const struct op *op)
{
	return op->u.w.mid_first < op->u.w.mid_last ||
	       needs_old(op, op->first) || needs_old(op, op->last - 1);
}

/* What a unit needs promised before it may be changed. @later: after I/O, when
 * a checkpoint may have taken its buffer, with the promise or the right to be
 * overwritten in place. */
static void unit_need(struct op *op, uint32_t u, bool later, uint64_t *holes,
		      uint64_t *temp)
{
	struct ubuf *ub = block_ubuf(op->s, op->b, u);
	uint32_t loc = op->b->m.loc[u];

	if (!is_small(&op->u.w, u)) {
		if (loc == LOC_HOLE)
			(*holes)++;
		else
			(*temp)++;
		return;
	}
	if (loc == LOC_HOLE)
		(*holes)++;
	else if (later ? loc != LOC_UNWRITTEN :
			 loc_is_disk(loc) &&
			 (ub == NULL || (!ub->reserved && !ub->in_journal)))
		(*temp)++;
}

static int large_alloc(struct op *op)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;
	uint32_t left = w->mid_last - w->mid_first;
	uint32_t cap = 1, hint = 0;

	w->runs = &w->one;
	if (w->mid_first > 0 && loc_is_disk(op->b->m.loc[w->mid_first - 1]))
		hint = op->b->m.loc[w->mid_first - 1] + 1;
	while (left > 0) {
		struct extent_run r;

		if (w->run_count == cap) {
			cap = cap == 1 ? 16 : cap * 4;
			void *p = mem_grow(op->mem[1], cap * sizeof(r));

			if (p == NULL)
				return -ENOMEM;
			if (op->mem[1] == NULL)
				memcpy(p, &w->one, sizeof(r));
			op->mem[1] = p;
			w->runs = p;
		}
		r.count = extent_alloc(&s->map, hint, left, &r.loc);
		if (r.count == 0)
			return -ENOSPC;
		w->runs[w->run_count++] = r;
		left -= r.count;
		hint = 0;
	}
	return 0;
}

static int large_prepare(struct op *op)
{
	struct op_write *w = &op->u.w;
	size_t len = (size_t)(w->mid_last - w->mid_first) << UNIT_SHIFT;
	const uint8_t *p = w->data + ((w->mid_first << UNIT_SHIFT) - w->w.off);

	if (len == 0)
		return 0;
	if ((uintptr_t)p % UNIT_SIZE != 0) {
		op->mem[0] = mem_alloc_io(len);
		if (op->mem[0] == NULL)
			return -ENOMEM;
		memcpy(op->mem[0], p, len);
	}
	return large_alloc(op);
}

/* Undoes what write_claim() took; units that were allocated were never
 * mapped, so they are free at once. */
static void write_fail(struct op *op, int err)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;

	for (uint32_t i = 0; i < OP_SMALL_MAX; i++) {
		if (w->fresh[i] != NULL)
			ubuf_put(s, w->fresh[i]);
	}
	for (uint32_t i = 0; i < w->run_count; i++)
		extent_free(&s->map, w->runs[i].loc, w->runs[i].count);
	for (uint32_t u = op->first; u < op->last; u++) {
		struct ubuf *ub = block_ubuf(s, op->b, u);

		if (ub != NULL && is_small(w, u)) {
			ub->held = false;
			ubuf_settle(s, ub);
		}
	}
	s->promised -= w->granted;
	space_wake(s);
	op_done(op, err);
}

/* Slot of a small unit in w->fresh. */
static uint32_t small_slot(const struct op *op, uint32_t u)
{
	const struct op_write *w = &op->u.w;

	return u < w->mid_first ? u - op->first : 1 + u - w->mid_last;
}

static void claim_ubufs(struct op *op)
{
	for (uint32_t u = op->first; u < op->last; u++) {
		struct ubuf *ub = block_ubuf(op->s, op->b, u);

		if (is_small(&op->u.w, u) && ub != NULL) {
			ubuf_claim(op->s, ub);
			ub->held = true;
		}
	}
	for (uint32_t u = op->first; u < op->last; u++) {
		if (!is_small(&op->u.w, u) ||
		    block_ubuf(op->s, op->b, u) != NULL)
			continue;
		op->u.w.fresh[small_slot(op, u)] = ubuf_get(op->s, false);
	}
}

/* In the block's order: take space and buffers, or wait. */
static void write_claim(struct op *op)
{
	struct store *s = op->s;
	uint64_t holes = 0, temp = 0;
	uint32_t small = 0;
	bool later = waits_for_io(op);
	int err = check(op);

	for (uint32_t u = op->first; u < op->last && err == 0; u++) {
		unit_need(op, u, later, &holes, &temp);
		small += is_small(&op->u.w, u);
	}
	if (err == 0)
		err = space_ask(s, op, holes, temp);
	if (err == SPACE_OK)
		err = memory_ask(s, small);
	if (err == SPACE_WAIT) {
		op_wait_space(op, write_claim);
		return;
	}
	if (err != 0) {
		op_done(op, err);
		return;
	}
	err = large_prepare(op);
	if (err != 0) {
		write_fail(op, err);
		return;
	}
	/* The large part's units are taken, not promised. */
	op->u.w.granted = holes + temp -
			  (op->u.w.mid_last - op->u.w.mid_first);
	s->promised += op->u.w.granted;
	claim_ubufs(op);
	write_io(op);
}

/* ---- I/O: old content of partial units, and the large part ---- */
static void old_unit_read(struct dev_io *io, int res)
{
	struct op *op = io->priv[0];
	uint32_t u = (uint32_t)(uintptr_t)io->priv[1];
	struct store *s = op->s;

	store_enter(s);
	segment_put(s, io->priv[2]);
	if (res != 0) {
		res = -EIO;
	} else if (crc32c(0, io->buf, UNIT_SIZE) != op->b->m.crc[u]) {
		s->st.checksum_errors++;
		diag_err("store", "event=bad-checksum ino=%llu block=%llu "
			 "unit=%u", (unsigned long long)op->in->ino,
			 (unsigned long long)op->b->index, u);
		/* To a cut it is another thing. */
		res = op->u.w.inner ? -EBADMSG : -EIO;
	}
	if (op->err == 0)
		op->err = res;
	io->priv[0] = NULL;
	op->pending--;
	write_io(op);
	store_leave(s, false);
}

static struct dev_io *io_slot(struct op *op)
{
	for (uint32_t i = 0; i < OP_IO_MAX; i++) {
		if (op->io[i].priv[0] == NULL)
			return &op->io[i];
	}
	return NULL;
}

static void old_units(struct op *op)
{
	struct store *s = op->s;
	uint32_t ends[2] = { op->first, op->last - 1 };

	for (uint32_t i = 0; i < (ends[0] == ends[1] ? 1u : 2u); i++) {
		uint32_t u = ends[i], loc = op->b->m.loc[u];
		struct segment *seg;
		struct dev_io *io;

		if (!needs_old(op, u))
			continue;
		io = io_slot(op);
		seg = s->segs[loc >> SEG_SHIFT];
		segment_hold(seg);
		*io = (struct dev_io){
			.op = DEV_READ,
			.file = seg->file,
			.off = (uint64_t)(loc % SEG_UNITS) << UNIT_SHIFT,
			.buf = ubuf_mem(s, op->u.w.fresh[small_slot(op, u)]),
			.len = UNIT_SIZE,
			.done = old_unit_read,
			.priv = { op, (void *)(uintptr_t)u, seg },
		};
		op_io(op, io);
	}
}

static void large_written(struct dev_io *io, int res)
{
	struct op *op = io->priv[0];
	struct segment *seg = io->priv[1];
	struct store *s = op->s;

	store_enter(s);
	seg->written++;
	segment_put(s, seg);
	if (res != 0 && op->err == 0)
		op->err = res;
	io->priv[0] = NULL;
	op->pending--;
	write_io(op);
	store_leave(s, false);
}

static void large_issue(struct op *op)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;
	const uint8_t *p = op->mem[0];
	struct dev_io *io;

	if (p == NULL)
		p = w->data + ((w->mid_first << UNIT_SHIFT) - w->w.off);
	while (w->run_next < w->run_count && (io = io_slot(op)) != NULL) {
		struct extent_run *r = &w->runs[w->run_next++];
		struct segment *seg = s->segs[r->loc >> SEG_SHIFT];

		segment_hold(seg);
		*io = (struct dev_io){
			.op = DEV_WRITE,
			.file = seg->file,
			.off = (uint64_t)(r->loc % SEG_UNITS) << UNIT_SHIFT,
			/* dev only reads from it. */
			.buf = (void *)((uintptr_t)p +
					((size_t)w->issued << UNIT_SHIFT)),
			.len = r->count << UNIT_SHIFT,
			.done = large_written,
			.priv = { op, seg },
		};
		w->issued += r->count;
		op_io(op, io);
	}
}

/* ---- the change ---- */
static void apply_small(struct op *op, uint32_t u)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;
	struct block *b = op->b;
	struct ubuf *ub = block_ubuf(s, b, u);
	uint32_t from, to, loc = b->m.loc[u];
	uint8_t *mem;

	unit_range(w, u, &from, &to);
	if (ub == NULL) {
		uint32_t slot = small_slot(op, u);

		ub = w->fresh[slot];
		w->fresh[slot] = NULL;
		ubuf_attach(s, b, u, ub);
		if (!loc_is_disk(loc) && to - from < UNIT_SIZE)
			memset(ubuf_mem(s, ub), 0, UNIT_SIZE);
	}
	ub->held = false;
	mem = ubuf_mem(s, ub);
	memcpy(mem + from, w->data + ((u << UNIT_SHIFT) + from - w->w.off),
	       to - from);
	b->m.crc[u] = to - from == UNIT_SIZE ? sum_of(op, u) :
					       crc32c(0, mem, UNIT_SIZE);
	/* An unwritten unit's promise becomes the buffer's. */
	if (!ub->reserved && !(ub->in_journal && loc_is_disk(loc))) {
		ub->reserved = true;
		if (loc != LOC_UNWRITTEN)
			s->promised++;
	}
	if (!loc_is_disk(loc))
		b->m.loc[u] = LOC_MEMORY;
	b->units += loc == LOC_HOLE;
	op->req->units_delta += loc == LOC_HOLE;
	ubuf_set_dirty(s, ub, true);
	block_mark(s, b, u);
}

static void apply_large(struct op *op)
{
	struct op_write *w = &op->u.w;
	struct block *b = op->b;
	uint32_t before = b->units;
	uint32_t u = w->mid_first;

	for (uint32_t i = 0; i < w->run_count; i++) {
		for (uint32_t k = 0; k < w->runs[i].count; k++, u++) {
			block_punch_unit(op->s, b, u);
			b->m.loc[u] = w->runs[i].loc + k;
			b->m.crc[u] = sum_of(op, u);
			b->units++;
			block_mark(op->s, b, u);
		}
	}
	op->req->units_delta += (int64_t)b->units - before;
}

static void write_apply(struct op *op)
{
	struct op_write *w = &op->u.w;
	struct store *s = op->s;
	struct block *b = op->b;

	/* Promised again one by one, as each unit's case is now. */
	s->promised -= w->granted;
	w->granted = 0;
	for (uint32_t u = op->first; u < op->last; u++) {
		if (is_small(w, u))
			apply_small(op, u);
	}
	apply_large(op);
	if (!w->inner && w->w.off + w->w.len > b->m.end)
		b->m.end = w->w.off + w->w.len;
	if (!w->inner && w->w.cut > b->m.cut)
		b->m.cut = w->w.cut;
	if (!w->inner && w->w.mtime_ns > b->m.mtime_ns)
		b->m.mtime_ns = w->w.mtime_ns;
	block_touch(s, b);
	s->active_ms = s->dev->vt->now_ms(s->dev);
	space_ahead(s);
	op_done(op, 0);
}

/* Issues what is left; the last completion applies. */
static void write_io(struct op *op)
{
	struct op_write *w = &op->u.w;

	if (op->pending == 0 && w->issued == 0 && op->err == 0 && !w->read) {
		w->read = true;
		old_units(op);
	}
	if (op->err == 0)
		large_issue(op);
	if (op->pending > 0)
		return;
	if (op->err != 0)
		write_fail(op, op->err);
	else if (op->s->error != 0)
		write_fail(op, -EROFS);
	else
		write_apply(op);
}
