/* Checkpoints: units from memory to segments, images to the index, and then
 * the journal's tail forward. In the background, in batches.
 *
 * A block is taken whole at one moment: its buffers are copied into the
 * arena, its image is encoded; later changes belong to the next checkpoint.
 * It starts only when no record is built and not on disk: each record is
 * either before the new tail or was built after all that this one contains.
 */
#include "blockd/mem.h"
#include "blockd/store_priv.h"
#include "common/diag.h"

#define FILL_SLICE_UNITS 512u

static void fill(struct store *s);
static void flush(struct store *s);

void ckpt_request(struct store *s)
{
	s->ckpt.want = true;
}

static bool due(const struct store *s)
{
	uint64_t size = s->super.journal_bytes;

	/* Free units that wait are worth one when space gets tight; who needs
	 * them asks. Here: journal, buffers, block objects, cuts. */
	return journal_used(s) > size / 2 ||
	       s->ubuf_used - s->ubuf_clean > s->ubuf_limit / 2 ||
	       s->cut_count > CKPT_CUTS_MAX ||
	       s->dirty_blocks >
	       s->o.object_bytes / OBJECT_BYTES_TYPICAL / 2;
}

void ckpt_tick(void *arg)
{
	struct store *s = arg;
	uint64_t now = s->dev->vt->now_ms(s->dev);

	store_enter(s);
	if (s->ckpt.full && s->ckpt.state == CKPT_FULL) {
		s->ckpt.state = CKPT_INDEX;
		worker_submit(s->worker, &s->ckpt.job);
	}
	if (!store_clean(s) && (now - s->active_ms >= CKPT_IDLE_MS ||
				now - s->dirty_since_ms >= CKPT_AGE_MS))
		ckpt_request(s);
	store_leave(s, false);
}

static void start(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	c->want = false;
	c->started++;
	c->state = CKPT_FILL;
	c->tail_off = s->head;
	c->tail_seq = s->seq;
	slist_splice(&c->todo, &s->dirty);
	/* Cuts may take more than one transaction, and then a crash between
	 * them leaves the numbers of some in the index, and in the journal the
	 * records of blocks that they took. So those that are in the journal,
	 * too, which is as good as done; others are the next checkpoint's. */
	for (struct slist *e = s->cuts.next; e != &s->cuts; e = e->next) {
		struct cut *cut = container_of(e, struct cut, in_store);

		cut->flying = cut->journalled;
	}
	/* What was freed until now is gone from every image taken below. */
	struct run_list l = s->free_now;

	assert(l.count == 0);
	s->free_now = s->free_next;
	s->free_next = l;
	c->batch.put_count = 0;
	c->values_len = 0;
	fill(s);
}

void ckpt_kick(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	if (c->state != CKPT_IDLE || s->error != 0)
		return;
	if (!c->want && (!due(s) || store_clean(s)))
		return;
	if (!commit_quiet(s)) {
		c->want = true; /* commit.c leaves a gap for us */
		return;
	}
	if (store_clean(s) && s->free_next.count == 0 &&
	    s->tail_seq == s->seq) {
		c->want = false;
		space_wake(s);
		return;
	}
	start(s);
}

/* ---- taking a block ---- */
static void seg_needs_flush(struct store *s, struct segment *seg)
{
	if (slist_empty(&seg->ckpt_link))
		slist_push(&s->ckpt.segs, &seg->ckpt_link);
}

static void io_done(struct dev_io *io, int res)
{
	struct segment *seg = io->priv[0];
	struct store *s = io->priv[1];

	store_enter(s);
	s->ckpt.io_pending--;
	seg->written++;
	segment_put(s, seg);
	seg_needs_flush(s, seg);
	if (res != 0)
		store_fail(s, res, "write of a segment");
	fill(s);
	store_leave(s, false);
}

/* Copies a unit into the arena; joins the last I/O if it follows it. */
static void arena_add(struct store *s, const struct ubuf *ub, uint32_t loc)
{
	struct ckpt *c = &s->ckpt;
	struct segment *seg = s->segs[loc >> SEG_SHIFT];
	uint64_t off = (uint64_t)(loc % SEG_UNITS) << UNIT_SHIFT;
	uint8_t *p = c->arena + (size_t)c->arena_used++ * UNIT_SIZE;
	struct dev_io *io = c->io_count > 0 ? &c->ios[c->io_count - 1] : NULL;

	memcpy(p, ubuf_mem(s, ub), UNIT_SIZE);
	if (c->io_count > c->io_next && io->file == seg->file &&
	    io->off + io->len == off) {
		io->len += UNIT_SIZE;
		return;
	}
	c->ios[c->io_count++] = (struct dev_io){
		.op = DEV_WRITE,
		.file = seg->file,
		.off = off,
		.buf = p,
		.len = UNIT_SIZE,
		.done = io_done,
		.priv = { seg, s },
	};
}

/* Unit @u moves: its old place is free with this checkpoint, or with the next
 * if a record that stays in the journal then may name it. */
static void unit_leave(struct store *s, const struct block *b, uint32_t u)
{
	struct run_list *l = b->record >= s->ckpt.tail_seq ? &s->free_next :
							     &s->free_now;

	(void)run_list_add(l, b->m.loc[u], 1);
}

/* Fresh units for all of the block's buffers that may not be overwritten in
 * place, in runs as long as can be had. */
static int locate(struct store *s, struct block *b)
{
	uint32_t units = image_units(&b->m);
	uint32_t need = 0, got = 0, loc = 0, hint = 0;

	for (uint32_t u = 0; u < units; u++) {
		struct ubuf *ub = block_ubuf(s, b, u);

		if (ub != NULL && ub->dirty &&
		    !(ub->in_journal && loc_is_disk(b->m.loc[u])))
			need++;
	}
	for (uint32_t u = 0; u < units && need > 0; u++) {
		struct ubuf *ub = block_ubuf(s, b, u);

		if (ub == NULL || !ub->dirty ||
		    (ub->in_journal && loc_is_disk(b->m.loc[u])))
			continue;
		if (got == 0) {
			if (u > 0 && loc_is_disk(b->m.loc[u - 1]))
				hint = b->m.loc[u - 1] + 1;
			got = extent_alloc(&s->map, hint, need, &loc);
			if (got == 0)
				return -ENOSPC;
			hint = 0;
		}
		if (loc_is_disk(b->m.loc[u]))
			unit_leave(s, b, u);
		b->m.loc[u] = loc++;
		got--;
		need--;
	}
	return 0;
}

static void take_units(struct store *s, struct block *b)
{
	uint32_t units = image_units(&b->m);

	for (uint32_t u = 0; u < units && b->ubuf_count > 0; u++) {
		struct ubuf *ub = block_ubuf(s, b, u);

		if (ub == NULL)
			continue;
		ub->in_journal = false;
		if (!ub->dirty)
			continue;
		ubuf_set_dirty(s, ub, false);
		ub->flying = true;
		if (ub->reserved)
			s->promised--;
		ub->reserved = false;
		arena_add(s, ub, b->m.loc[u]);
	}
}

static void take_block(struct store *s, struct block *b)
{
	struct ckpt *c = &s->ckpt;
	struct index_put *p = &c->batch.puts[c->batch.put_count++];
	struct wire_out o;

	take_units(s, b);
	for (uint32_t w = 0; w < (image_units(&b->m) + 63) / 64; w++) {
		b->cdirty[w] = b->jdirty[w];
		b->jdirty[w] = 0;
	}
	b->encoded = b->m.version;
	b->dirty = false;
	b->flying = true;
	b->gone = b->units == 0;
	s->dirty_blocks--;
	slist_del(&b->clink);
	slist_push(&c->flying, &b->flink);
	*p = (struct index_put){
		.key = { b->in->ino, b->index },
		.off = c->values_len,
	};
	if (b->units == 0)
		return;
	wire_out_init(&o, c->batch.values + c->values_len, IMAGE_ENCODED_MAX);
	image_encode(&o, &p->key, &b->m);
	assert(!o.overflow);
	p->len = o.len;
	c->values_len += o.len;
}

/* A large write that is not flushed may be in the image. */
static void needs_flush(struct store *s, const struct block *b)
{
	for (uint32_t u = 0; u < image_units(&b->m); u++) {
		struct segment *seg;

		if (!loc_is_disk(b->m.loc[u]))
			continue;
		seg = s->segs[b->m.loc[u] >> SEG_SHIFT];
		if (seg->written != seg->flushed)
			seg_needs_flush(s, seg);
	}
}

static bool batch_full(const struct store *s)
{
	return s->ckpt.batch.put_count == s->o.batch_blocks ||
	       s->ckpt.values_len > CKPT_VALUES_MAX;
}

static void submit_ios(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	while (c->io_next < c->io_count && c->io_pending < CKPT_IO_DEPTH &&
	       s->error == 0) {
		struct dev_io *io = &c->ios[c->io_next++];

		c->io_pending++;
		segment_hold(io->priv[0]);
		s->dev->vt->submit(s->dev, io);
	}
}

static void fill_more(void *arg)
{
	struct store *s = arg;

	store_enter(s);
	s->ckpt.posted = false;
	fill(s);
	store_leave(s, false);
}

/* The store stopped: nothing more, once all I/O has come back. */
static void give_up(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	if (c->io_pending == 0 && c->flush_pending == 0 && !c->posted)
		c->state = CKPT_IDLE;
}

/* Takes blocks while there is room, a slice at a time. */
static void fill(struct store *s)
{
	struct ckpt *c = &s->ckpt;
	uint32_t blocks = 0, units = 0;

	if (c->state != CKPT_FILL)
		return;
	if (s->error != 0) {
		give_up(s);
		return;
	}
	if (c->io_pending == 0 && c->io_next == c->io_count) {
		c->arena_used = 0;
		c->io_count = 0;
		c->io_next = 0;
	}
	while (!slist_empty(&c->todo) && !batch_full(s)) {
		struct block *b = container_of(c->todo.next, struct block,
					       clink);

		if (c->arena_used + b->dirty_ubufs > CKPT_ARENA_UNITS)
			break;
		if (blocks++ == s->o.slice_blocks ||
		    (units > 0 && units + b->dirty_ubufs > FILL_SLICE_UNITS)) {
			if (!c->posted)
				s->dev->vt->post(s->dev, fill_more, s);
			c->posted = true;
			break;
		}
		units += b->dirty_ubufs;
		if (locate(s, b) != 0) {
			store_fail(s, -ENOSPC, "allocation of promised space");
			give_up(s);
			return;
		}
		needs_flush(s, b);
		take_block(s, b);
	}
	submit_ios(s);
	if (c->io_pending == 0 && c->io_next == c->io_count && !c->posted)
		flush(s);
}

/* ---- flush, index ---- */
static void index_run(struct worker_job *j)
{
	struct ckpt *c = container_of(j, struct ckpt, job);
	struct store *s = container_of(c, struct store, ckpt);

	c->job_err = index_apply(s->index, &c->batch);
}

/* Blocks that are on disk now. */
static void settle_blocks(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	while (!slist_empty(&c->flying)) {
		struct block *b = container_of(c->flying.next, struct block,
					       flink);
		uint32_t words = (image_units(&b->m) + 63) / 64;

		slist_del(&b->flink);
		b->flying = false;
		/* Of what is gone the index has no version that keeps older
		 * records off it: the journal must say so, too. */
		for (uint32_t w = 0; w < words && b->gone; w++)
			b->jdirty[w] |= b->cdirty[w];
		memset(b->cdirty, 0, words * sizeof(uint64_t));
		for (uint32_t u = 0; u < image_units(&b->m); u++) {
			struct ubuf *ub = block_ubuf(s, b, u);

			if (ub == NULL || !ub->flying)
				continue;
			ub->flying = false;
			ubuf_settle(s, ub);
		}
		if (b->m.version == b->encoded && b->on_jlist && !b->gone) {
			b->jmeta = false;
			memset(b->jdirty, 0, words * sizeof(uint64_t));
			block_unlist_journal(s, b);
		}
		block_settle(s, b);
	}
}

static void settle_cuts(struct store *s)
{
	struct slist *e = s->cuts.next;

	while (e != &s->cuts) {
		struct cut *cut = container_of(e, struct cut, in_store);

		e = e->next;
		if (!cut->flying)
			continue;
		slist_del(&cut->in_store);
		slist_del(&cut->in_inode);
		s->cut_count--;
		if (cut->c.cut == IMAGE_CUT_PURGE)
			cut->in->purged = false;
		inode_put(s, cut->in);
		mem_free(cut);
	}
}

/* The larger of the two buffers holds all cuts that are left. */
static void cut_buf_back(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	if (c->batch_cut_cap > s->cut_cap) {
		mem_free(s->cut_buf);
		s->cut_buf = c->batch.cuts;
		s->cut_cap = c->batch_cut_cap;
	} else {
		mem_free(c->batch.cuts);
	}
	c->batch.cuts = NULL;
	c->batch_cut_cap = 0;
}

static void finish(struct store *s)
{
	struct ckpt *c = &s->ckpt;
	struct run_list l;

	s->tail = c->tail_off;
	s->tail_seq = c->tail_seq;
	settle_cuts(s);
	cut_buf_back(s);
	space_take_freed(s, &s->free_now);
	l = (struct run_list){ c->batch.freed, c->batch.freed_count,
			       c->batch.freed_cap };
	space_take_freed(s, &l);
	c->batch.freed = l.runs;
	c->batch.freed_count = l.count;
	c->batch.freed_cap = l.cap;
	/* Before the release, which asks how much is promised: nothing else
	 * may come that would ask again. */
	s->promised -= c->batch.unwritten;
	c->batch.unwritten = 0;
	space_release(s);
	c->state = CKPT_IDLE;
	c->finished++;
	s->st.checkpoints++;
	s->dirty_since_ms = s->dev->vt->now_ms(s->dev);
}

/* All that it would put into the index is in the journal and in segments: it
 * waits for room. Who wants units hears that there are none. */
static void index_full(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	if (!c->full)
		diag_warn("store", "event=index-full error=\"no room on the "
			  "disk for the index: deletes take effect, and what "
			  "is written goes on, when there is\"");
	c->full = true;
	c->state = CKPT_FULL;
	space_wake(s);
}

static void index_done(struct worker_job *j)
{
	struct ckpt *c = container_of(j, struct ckpt, job);
	struct store *s = container_of(c, struct store, ckpt);

	store_enter(s);
	if (c->job_err == -ENOSPC && !s->closing) {
		index_full(s);
	} else if (c->job_err != 0) {
		store_fail(s, c->job_err, "commit of the index");
		c->state = CKPT_IDLE;
	} else {
		if (c->full)
			diag_info("store", "event=index-has-room");
		c->full = false;
		settle_blocks(s);
		c->batch.put_count = 0;
		c->values_len = 0;
		c->state = CKPT_FILL;
		if (c->batch.last)
			finish(s);
		else
			fill(s);
		space_wake(s);
	}
	store_leave(s, false);
}

static void to_index(struct store *s)
{
	struct ckpt *c = &s->ckpt;
	size_t n = 0;

	c->state = CKPT_INDEX;
	c->batch.last = slist_empty(&c->todo);
	c->batch.put_done = false;
	c->batch.cut_count = 0;
	if (c->batch.last) {
		for (struct slist *e = s->cuts.next; e != &s->cuts;
		     e = e->next) {
			struct cut *cut = container_of(e, struct cut,
						       in_store);

			if (cut->flying)
				s->cut_buf[n++] = cut->c;
		}
		/* The worker's until finish(); new cuts get their own. */
		c->batch.cuts = s->cut_buf;
		c->batch.cut_count = n;
		c->batch_cut_cap = s->cut_cap;
		s->cut_buf = NULL;
		s->cut_cap = 0;
		c->batch.state = (struct index_state){
			.tail_off = c->tail_off,
			.tail_seq = c->tail_seq,
			.version = s->version,
			.ino_max = s->ino_max,
			.session_max = s->session_max,
			.store_id_hi = s->super.store_id_hi,
			.store_id_lo = s->super.store_id_lo,
		};
	}
	c->job.run = index_run;
	c->job.done = index_done;
	/* With all blocks in memory there may be no next read, and the index
	 * would grow with each checkpoint. */
	index_reads_over(s->index);
	worker_submit(s->worker, &c->job);
}

static void flush_done(struct dev_io *io, int res)
{
	struct segment *seg = io->priv[0];
	struct store *s = io->priv[1];
	struct ckpt *c = &s->ckpt;

	store_enter(s);
	segment_flushed(s, seg, &seg->ckpt_flush, res);
	if (--c->flush_pending == 0) {
		if (s->error != 0)
			give_up(s);
		else
			to_index(s);
	}
	store_leave(s, false);
}

/* Protects all units the batch's images point to. */
static void flush(struct store *s)
{
	struct ckpt *c = &s->ckpt;

	c->state = CKPT_FLUSH;
	c->flush_pending = 1;
	while (!slist_empty(&c->segs)) {
		struct segment *seg = container_of(c->segs.next,
						   struct segment, ckpt_link);

		slist_del(&seg->ckpt_link);
		segment_flush(s, seg, &seg->ckpt_flush, flush_done,
			      &c->flush_pending);
	}
	if (--c->flush_pending == 0)
		to_index(s);
}
