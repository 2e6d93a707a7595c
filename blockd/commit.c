/* Group commit: what waits for durability shares journal records.
 *
 * A commit takes the changed blocks of all inodes somebody waits for. Each
 * record is built at once, the segments it points into are flushed, then it
 * is written with DSYNC. Whoever comes meanwhile is in the next commit.
 */
#include "blockd/op.h"
#include "blockd/mem.h"

static void record_build(struct store *s);
static void record_write(struct store *s);

void commit_join(struct store *s, struct store_req *r, uint64_t ino)
{
	struct req_priv *p = req_priv(r);

	if (s->error != 0) {
		store_answer(s, r, -EROFS);
		return;
	}
	p->ino = ino;
	slist_init(&p->link);
	slist_push(&s->commit.waiting, &p->link);
}

void store_sync(struct store *s, struct store_req *r, uint64_t ino)
{
	store_enter(s);
	r->units_delta = 0;
	commit_join(s, r, ino);
	store_leave(s, true);
}

static void answer_all(struct store *s, struct slist *l, int err)
{
	while (!slist_empty(l)) {
		struct req_priv *p = container_of(l->next, struct req_priv,
						  link);

		slist_del(&p->link);
		store_answer(s, container_of((void *)p, struct store_req,
					     priv), err);
	}
}

static void commit_answer(struct store *s, int err)
{
	answer_all(s, &s->commit.current, err);
	answer_all(s, &s->commit.waiting, err);
}

void commit_fail(struct store *s)
{
	commit_answer(s, -EIO);
}

/* ---- what is to be journalled ---- */
static void arm(struct store *s, struct cut *cut)
{
	if (cut->armed || cut->journalled)
		return;
	cut->armed = true;
	s->commit.cuts_armed++;
}

/* All cuts of an inode: they go in their order. */
static void arm_inode(struct store *s, struct inode *in)
{
	for (struct slist *e = in->cuts.next; e != &in->cuts; e = e->next)
		arm(s, container_of(e, struct cut, in_inode));
}

static void take_inode(struct store *s, struct inode *in)
{
	arm_inode(s, in);
	slist_splice(&s->commit.todo, &in->jblocks);
	slist_del(&in->jlink);
}

static void take_all(struct store *s)
{
	for (struct slist *e = s->cuts.next; e != &s->cuts; e = e->next)
		arm(s, container_of(e, struct cut, in_store));
	while (!slist_empty(&s->jinodes))
		take_inode(s, container_of(s->jinodes.next, struct inode,
					   jlink));
}

static void take_purges(struct store *s)
{
	for (struct slist *e = s->cuts.next; e != &s->cuts; e = e->next) {
		struct cut *cut = container_of(e, struct cut, in_store);

		/* It says all that its blocks would. */
		if (cut->c.cut == IMAGE_CUT_PURGE)
			arm_inode(s, cut->in);
	}
}

static void take_waiting(struct store *s)
{
	struct commit *c = &s->commit;
	bool all = false;

	for (struct slist *e = c->waiting.next; e != &c->waiting; e = e->next) {
		struct req_priv *p = container_of(e, struct req_priv, link);
		struct inode *in;

		all |= p->ino == 0;
		if (p->ino == COMMIT_PURGES)
			take_purges(s);
		in = all ? NULL : store_inode_find(s, p->ino);
		if (in != NULL)
			take_inode(s, in);
	}
	slist_splice(&c->current, &c->waiting);
	if (all)
		take_all(s);
}

static void commit_begin(void *arg)
{
	struct store *s = arg;

	store_enter(s);
	s->commit.posted = false;
	if (s->commit.state == COMMIT_IDLE && s->error == 0) {
		take_waiting(s);
		s->commit.state = COMMIT_NEXT;
	}
	store_leave(s, false);
}

void commit_kick(struct store *s)
{
	struct commit *c = &s->commit;

	/* A checkpoint that wants to start goes between two records. */
	if (c->state == COMMIT_NEXT && s->error == 0 &&
	    !(s->ckpt.want && s->ckpt.state == CKPT_IDLE))
		record_build(s);
	if (c->state == COMMIT_IDLE && !c->posted && s->error == 0 &&
	    !slist_empty(&c->waiting)) {
		/* By way of the loop: all that came in this round share. */
		c->posted = true;
		s->dev->vt->post(s->dev, commit_begin, s);
	}
}

/* ---- a record ---- */
/* A run for the record: same kind, and in memory or not, from @u. */
static struct image_run run_at(struct store *s, struct block *b, uint32_t u,
			       bool *inlined)
{
	uint32_t units = image_units(&b->m);
	uint32_t end = u + 1;
	struct image_run r;

	*inlined = loc_is_data(b->m.loc[u]) && b->ubuf[u] != 0;
	while (end < units && bits_get(b->jdirty, end) &&
	       (loc_is_data(b->m.loc[end]) && b->ubuf[end] != 0) == *inlined)
		end++;
	r = image_run_at(&b->m, u, end);
	if (*inlined) {
		uint32_t room = COMMIT_UNITS_MAX - s->commit.inline_count;

		r.count = r.count < room ? r.count : room;
	}
	return r;
}

static void run_inline(struct store *s, struct block *b,
		       const struct image_run *r)
{
	struct commit *c = &s->commit;

	for (uint32_t u = r->first; u < r->first + r->count; u++) {
		c->marks[c->mark_count++] =
			(struct commit_mark){ b, b->m.version, u };
		c->inlines[c->inline_count++] = b->ubuf[u] - 1;
		b->pins++;
	}
}

static bool room_for(const struct store *s, size_t meta, uint32_t units)
{
	const struct commit *c = &s->commit;
	uint64_t len = u64_round_up(c->meta.len + meta, UNIT_SIZE) +
		       ((uint64_t)c->inline_count + units) * UNIT_SIZE;

	return c->meta.len + meta <= c->meta.cap &&
	       c->inline_count + units <= COMMIT_UNITS_MAX &&
	       len <= s->record_max;
}

/* Fits as much of @r as there is room for. Returns its new count. */
static uint32_t run_fit(struct store *s, const struct image_run *r,
			bool inlined)
{
	uint32_t count = r->count;

	while (count > 0 && !room_for(s, JREC_RUN_MAX(count) + 1,
				      inlined ? count : 0))
		count /= 2;
	return count;
}

static void needs_flush(struct store *s, uint32_t loc)
{
	struct segment *seg = s->segs[loc >> SEG_SHIFT];

	if (slist_empty(&seg->commit_link))
		slist_push(&s->commit.segs, &seg->commit_link);
}

/* Puts @b's changes into the record. False: not all fitted. */
static bool block_put_changes(struct store *s, struct block *b)
{
	struct commit *c = &s->commit;
	struct image_key key = { b->in->ino, b->index };
	uint32_t units = image_units(&b->m);
	uint32_t u;

	/* What the checkpoint under way has taken is not on disk yet. */
	for (u = 0; u < (units + 63) / 64; u++) {
		b->jdirty[u] |= b->cdirty[u];
		b->cdirty[u] = 0;
	}
	if (!room_for(s, JREC_BLOCK_MAX + JREC_RUN_MAX(1) + 1, 1))
		return false;
	jrec_put_block(&c->meta, &key, &b->m);
	b->record = s->seq;
	u = bits_next(b->jdirty, 0, units);
	while (u < units) {
		bool inlined;
		struct image_run r = run_at(s, b, u, &inlined);

		r.count = run_fit(s, &r, inlined);
		if (r.count == 0)
			break;
		jrec_put_run(&c->meta, &r, inlined, &b->m.crc[u]);
		if (inlined)
			run_inline(s, b, &r);
		else if (loc_is_disk(r.loc))
			needs_flush(s, r.loc);
		for (uint32_t k = 0; k < r.count; k++)
			bits_put(b->jdirty, u + k, false);
		u = bits_next(b->jdirty, u + r.count, units);
	}
	jrec_put_block_end(&c->meta);
	return u >= units;
}

static void put_cuts(struct store *s)
{
	/* Those that wait for a checkpoint may be many. */
	if (s->commit.cuts_armed == 0)
		return;
	for (struct slist *e = s->cuts.next; e != &s->cuts; e = e->next) {
		struct cut *cut = container_of(e, struct cut, in_store);

		if (cut->journalled || !cut->armed)
			continue;
		if (!room_for(s, JREC_CUT_MAX, 0))
			return;
		jrec_put_cut(&s->commit.meta, &cut->c);
		cut->journalled = true;
		s->commit.cuts_armed--;
	}
}

static void record_fill(struct store *s)
{
	struct commit *c = &s->commit;
	size_t cap = u64_min(COMMIT_META_MAX, s->record_max / 4);

	c->mark_count = 0;
	c->inline_count = 0;
	wire_out_init(&c->meta, c->buf, cap);
	jrec_begin(&c->meta);
	while (!slist_empty(&c->todo)) {
		struct block *b = container_of(c->todo.next, struct block,
					       jlink);

		if (!block_put_changes(s, b))
			return;
		b->jmeta = false;
		b->on_jlist = false;
		slist_del(&b->jlink);
		block_settle(s, b);
	}
	/* After the last block: a cut counts as done only with the blocks
	 * whose edges it needed. */
	put_cuts(s);
}

/* Copies the units behind the items and closes the record. */
static uint64_t record_close(struct store *s)
{
	struct commit *c = &s->commit;
	uint64_t off;

	c->h = (struct jrec_header){
		.nonce = s->super.nonce,
		.seq = s->seq,
		.unit_count = c->inline_count,
		.version = s->version,
		.ino_max = s->ino_max,
		.session_max = s->session_max,
	};
	jrec_finish(&c->meta, &c->h);
	off = u64_round_up(c->h.meta_len, UNIT_SIZE);
	memset(c->buf + c->h.meta_len, 0, off - c->h.meta_len);
	for (uint32_t i = 0; i < c->inline_count; i++, off += UNIT_SIZE)
		memcpy(c->buf + off, ubuf_mem(s, &s->ubufs[c->inlines[i]]),
		       UNIT_SIZE);
	return off;
}

static void commit_finish(struct store *s)
{
	s->commit.state = COMMIT_IDLE;
	answer_all(s, &s->commit.current, 0);
}

static void flush_done(struct dev_io *io, int res)
{
	struct segment *seg = io->priv[0];
	struct store *s = io->priv[1];

	store_enter(s);
	segment_flushed(s, seg, &seg->commit_flush, res);
	if (--s->commit.flush_pending == 0)
		record_write(s);
	store_leave(s, false);
}

/* Data first, the record that points to it after. */
static void flush_needed(struct store *s)
{
	struct commit *c = &s->commit;

	c->state = COMMIT_FLUSH;
	c->flush_pending = 1;
	while (!slist_empty(&c->segs)) {
		struct segment *seg = container_of(c->segs.next,
						   struct segment,
						   commit_link);

		slist_del(&seg->commit_link);
		segment_flush(s, seg, &seg->commit_flush, flush_done,
			      &c->flush_pending);
	}
	if (--c->flush_pending == 0)
		record_write(s);
}

static void record_build(struct store *s)
{
	struct commit *c = &s->commit;
	uint64_t len;

	if (slist_empty(&c->todo) && c->cuts_armed == 0) {
		commit_finish(s);
		return;
	}
	/* Nothing is taken before there is surely room: a record built is a
	 * record written, in order. */
	if (!journal_place(s, s->record_max, &c->off)) {
		if (s->ckpt.state == CKPT_IDLE)
			ckpt_request(s);
		else if (s->ckpt.state == CKPT_FULL)
			commit_answer(s, -ENOSPC);
		return;
	}
	record_fill(s);
	len = record_close(s);
	c->io = (struct dev_io){
		.op = DEV_WRITE_DSYNC,
		.file = s->journal_file,
		.buf = c->buf,
		.len = (uint32_t)len,
	};
	if (!journal_place(s, len, &c->off))
		assert(false);
	c->io.off = c->off;
	flush_needed(s);
}

/* The record is on disk: its units may be overwritten in place from now on,
 * unless a checkpoint took the block after the record was built. */
static void mark_units(struct store *s)
{
	struct commit *c = &s->commit;

	for (uint32_t i = 0; i < c->mark_count; i++) {
		struct block *b = c->marks[i].b;
		uint32_t u = c->marks[i].unit;
		struct ubuf *ub = block_ubuf(s, b, u);

		if (ub != NULL && c->marks[i].version > b->encoded) {
			ub->in_journal = true;
			if (ub->reserved && loc_is_disk(b->m.loc[u])) {
				ub->reserved = false;
				s->promised--;
			}
		}
		block_put(s, b);
	}
	c->mark_count = 0;
}

static void record_done(struct dev_io *io, int res)
{
	struct store *s = io->priv[0];
	struct commit *c = &s->commit;

	store_enter(s);
	c->state = COMMIT_NEXT;
	if (res != 0) {
		store_fail(s, res, "write of the journal");
		c->state = COMMIT_IDLE;
	} else {
		s->st.journal_commits++;
		s->st.journal_bytes += io->len;
		s->head = c->off + io->len;
		if (s->head == s->super.journal_bytes)
			s->head = 0;
		s->seq++;
		mark_units(s);
	}
	store_leave(s, false);
}

static void record_write(struct store *s)
{
	struct commit *c = &s->commit;

	if (s->error != 0) {
		c->state = COMMIT_IDLE;
		return;
	}
	c->state = COMMIT_WRITE;
	c->io.done = record_done;
	c->io.priv[0] = s;
	s->dev->vt->submit(s->dev, &c->io);
}
