/* Who waits for buffered content, what a refusal does, the memory bound. */
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"

#include "common/diag.h"

/* ---- operations waiting for an inode ---- */

void wb_op_add(struct core_inode *in, struct wb_op *op)
{
	op->refused_len = 0;
	op->perhaps = false;
	op->err = 0;
	dlist_add(&in->wb->ops, &op->node);
	if (in->log && op->kind != WB_OP_IDLE)
		log_order_asked(in->log->c, in);
}

void wb_op_covered(struct core_inode *in, uint64_t from, uint64_t to)
{
	struct dlist *l, *save;

	dlist_for(l, save, &in->wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_ACKED && op->through && op->off < to &&
		    op->off + op->len > from) {
			op->through = false;
			in->wb->size_sure = u64_max(in->wb->size_sure,
						    op->off + op->len);
		}
	}
}

uint64_t wb_refusable_end(const struct wb_inode *wb)
{
	uint64_t end = 0;

	for (const struct dlist *l = wb->ops.next; l != &wb->ops; l = l->next) {
		const struct wb_op *op = (const void *)
			((const char *)l - offsetof(struct wb_op, node));

		if (op->kind == WB_OP_ACKED && op->through)
			end = u64_max(end, op->off + op->len);
	}
	return end;
}

static void op_end(struct wb_op *op, int err)
{
	dlist_del(&op->node);
	op->fn(op, err);
}

static bool being_synced(const struct wb_inode *wb, const struct wb_io *io)
{
	const struct dlist *l;

	if (io->dev->sync_all && io->dev->sync_all->stamp > io->acked_stamp)
		return true;
	for (l = wb->syncs.next; l != &wb->syncs; l = l->next) {
		const struct wb_sync *s =
			(const void *)((const char *)l -
				       offsetof(struct wb_sync, node));

		if (s->dev == io->dev && s->stamp > io->acked_stamp)
			return true;
	}
	return false;
}

/* All that @op waits for is acknowledged: SYNC where none is under way. */
static void op_sync(struct core *c, struct core_inode *in,
		    const struct wb_op *op)
{
	struct wb_inode *wb = in->wb;
	uint64_t mark = ++c->blk->mark;
	struct dlist *l, *save;

	dlist_for(l, save, &wb->buf.ios) {
		struct wb_io *io = wb_io_of(l);

		if (io->io.in_flight || io->io.gen->number > op->gen ||
		    io->dev->mark == mark || being_synced(wb, io))
			continue;
		io->dev->mark = mark;
		if (op->global)
			wb_sync_all(c, io->dev);
		else
			wb_sync_inode(c, in, io->dev);
	}
}

static void op_step(struct core *c, struct core_inode *in, struct wb_op *op)
{
	struct wb_inode *wb = in->wb;
	struct wbuf_pending p;

	switch (op->kind) {
	case WB_OP_ACKED:
		if (!wbuf_unacked(&wb->buf, op->off, op->len))
			op_end(op, op->err);
		break;
	case WB_OP_IDLE:
		if (wb->buf.flight_count == 0)
			op_end(op, 0);
		break;
	case WB_OP_DURABLE:
		wbuf_gen_pending(&wb->buf, op->gen, &p);
		if (p.count == 0)
			op_end(op, 0);
		else if (p.flight == 0 && p.dirty == 0)
			op_sync(c, in, op);
		break;
	}
}

static void wb_release(struct core *c, struct core_inode *in);

/* Shall a clean buffer stay? */
static bool wb_keep(const struct core *c, const struct core_inode *in)
{
	const struct wb_inode *wb = in->wb;
	uint64_t kept = c->blk->wb_count * sizeof(*wb);

	if (wb->last_error || !dlist_empty(&wb->ops) ||
	    !dlist_empty(&wb->syncs))
		return true;
	return in->write_open_count > 0 &&
	       kept <= c->opt.wb_bytes_max / WB_KEPT_SHARE;
}

static void became_clean(struct core *c, struct core_inode *in)
{
	struct wb_inode *wb = in->wb;

	in->wb_error = 0;
	dlist_del(&wb->dirty_node);
	if (!dlist_empty(&wb->unclean_node)) {
		dlist_del(&wb->unclean_node);
		if (!c->stopping && (in->size_dirty || in->orphan ||
				     (in->leased && in->write_open_count == 0)))
			ret_queue(c, in, RETURN_DELAY_MS);
		inode_unpin(c, in); /* the caller has another */
	}
	if (!wb_keep(c, in))
		wb_release(c, in);
}

/* DIRTY content somebody asked for that was behind a frame in flight. */
static void collect_wanted(struct core *c, struct core_inode *in,
			   uint64_t from, uint64_t to, struct wb_send *s)
{
	struct wbuf_ext *e = wbuf_find(&in->wb->buf, from), *next;

	for (; e && e->off < to; e = next) {
		uint64_t end = e->off + e->len;

		next = e->next;
		if (e->state != WBUF_DIRTY || !e->wanted)
			continue;
		wb_collect(c, in, e->off, e->off + 1, s);
		/* A refusal may have dropped any. */
		next = wbuf_find(&in->wb->buf, end);
	}
}

static bool wants_sync(const struct wb_inode *wb)
{
	const struct dlist *l;

	for (l = wb->ops.next; l != &wb->ops; l = l->next) {
		const struct wb_op *op =
			(const void *)((const char *)l -
				       offsetof(struct wb_op, node));

		if (op->kind == WB_OP_DURABLE && !op->global)
			return true;
	}
	return false;
}

void wb_step(struct core *c, struct core_inode *in, uint64_t from, uint64_t to)
{
	struct wb_inode *wb = in->wb;
	struct dlist *l, *save;
	struct wb_send s;

	if (!wb)
		return;
	wb_send_init(c, &s);
	if (wb->reflush && !in->cut_busy && !dlist_empty(&wb->ops)) {
		wb->reflush = false;
		wb_collect(c, in, 0, UINT64_MAX, &s);
	} else if (to > from) {
		collect_wanted(c, in, from, to, &s);
	}
	wb_submit(c, &s, wants_sync(wb));
	dlist_for(l, save, &wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_ACKED && to <= from)
			continue;
		if (op->kind == WB_OP_ACKED &&
		    (op->off >= to || op->off + op->len <= from))
			continue;
		op_step(c, in, op);
	}
	if (wbuf_clean(&wb->buf))
		became_clean(c, in);
}

/* ---- errors ---- */

/* What is in flight goes its way: it is not refused, and a frame that the
 * buffer knows nothing of could meet newer content at the daemon. */
static void drop_dirty(struct wbuf *b, struct wb_op *op, uint64_t from,
		       uint64_t to, int err)
{
	const struct wbuf_ext *e;

	while (from < to && (e = wbuf_find(b, from)) && e->off < to) {
		uint64_t lo = u64_max(e->off, from);

		from = u64_min(e->off + e->len, to);
		if (e->state != WBUF_DIRTY || wbuf_cut(b, lo, from))
			continue; /* no memory: it stays and is sent again */
		op->err = err;
		op->refused_len += from - lo;
	}
}

/* Drops what a write-through write could not place. The write fails. */
static void refuse_through(struct wb_inode *wb, uint64_t from, uint64_t to,
			   int err)
{
	struct dlist *l, *save;

	dlist_for(l, save, &wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_ACKED && op->through)
			drop_dirty(&wb->buf, op, u64_max(op->off, from),
				   u64_min(op->off + op->len, to), err);
	}
}

static bool dirty_in(const struct wbuf *b, uint64_t from, uint64_t to)
{
	const struct wbuf_ext *e = wbuf_find(b, from);

	for (; e && e->off < to; e = e->next)
		if (e->state == WBUF_DIRTY)
			return true;
	return false;
}

/* @drop: what is refused is given up, and with it the file. */
static void refuse(struct core *c, struct core_inode *in, uint64_t from,
		   uint64_t to, int err, bool drop)
{
	struct wb_inode *wb = in->wb;
	struct dlist *l, *save;

	refuse_through(wb, from, to, err);
	if (!dirty_in(&wb->buf, from, to))
		return;
	diag_warn("core", "event=flush-failed ino=%llu off=%llu err=%d",
		  (unsigned long long)in->ino, (unsigned long long)from, -err);
	in->wb_error = (uint32_t)-err;
	in->error_count++;
	wb->last_error = err;
	wb->reflush = false;
	if (drop) {
		in->bad = true;
		(void)wbuf_cut(&wb->buf, from, to);
	}
	dlist_for(l, save, &wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_DURABLE ||
		    (op->kind == WB_OP_ACKED && !op->through &&
		     op->off < to && op->off + op->len > from))
			op_end(op, err);
	}
	/* Later, not at once: the tail of the list is a flush age away. */
	if (!wbuf_clean(&wb->buf)) {
		dlist_del(&wb->dirty_node);
		wb->dirty_ms = core_now_ms() + WB_RETRY_MS;
		dlist_add(&c->blk->dirty, &wb->dirty_node);
	}
}

void wb_refused(struct core *c, struct core_inode *in, uint64_t from,
		uint64_t to, int err)
{
	/* A soft mount gives up: the file is bad until truncated. */
	refuse(c, in, from, to, err, err == -ETIMEDOUT);
}

void wb_held_up(struct core *c, struct core_inode *in, int err)
{
	refuse(c, in, 0, UINT64_MAX, err, false);
}

/* ---- memory bound ---- */

bool wb_full(struct core *c)
{
	return c->blk->mem.bytes > c->opt.wb_bytes_max;
}

void wb_wake_now(struct core *c)
{
	struct blk_client *b = c->blk;

	b->wake_wanted = false;
	while (c->wb_waiters && !wb_full(c)) {
		struct core_waiter *w = c->wb_waiters;

		c->wb_waiters = w->next;
		if (!c->wb_waiters)
			b->wait_tail = &c->wb_waiters;
		w->fn(w, 0);
	}
	if (c->wb_waiters)
		wb_pressure(c);
}

void wb_wake(struct core *c)
{
	struct blk_client *b = c->blk;

	if (!c->wb_waiters || b->wake_wanted)
		return;
	if (wb_full(c)) {
		wb_pressure(c);
		return;
	}
	/* Not here: what they send is summed and copied by whoever wakes them,
	 * and the net's thread has answers to receive. */
	b->wake_wanted = true;
	flusher_kick(c);
}

static uint64_t outstanding(const struct blk_client *b)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < b->dev_count; i++)
		bytes += b->devs[i]->flight_bytes + b->devs[i]->unsynced_bytes;
	return bytes;
}

void wb_collect_all(struct core *c, struct core_inode *in, struct wb_send *s)
{
	inode_pin(in);
	wb_collect(c, in, 0, UINT64_MAX, s);
	if (wbuf_clean(&in->wb->buf))
		wb_step(c, in, 0, 0);
	inode_unpin(c, in);
}

void wb_pressure(struct core *c)
{
	struct blk_client *b = c->blk;
	uint64_t max = c->opt.wb_bytes_max;
	bool dirty = b->mem.dirty_bytes > max / 2;
	uint64_t now_ms = core_now_ms();
	struct dlist *l, *save;
	struct wb_send s;

	/* Scattered small writes cost more memory than they have bytes. */
	if (wb_full(c) && outstanding(b) < max / 4)
		dirty = true;
	if (dirty) {
		wb_send_init(c, &s);
		dlist_for(l, save, &b->dirty) {
			struct wb_inode *wb = dlist_entry(l, struct wb_inode,
							  dirty_node);

			/* not those just refused, or under a cut */
			if (wb->dirty_ms > now_ms || wb->in->cut_busy)
				continue;
			dlist_del(&wb->dirty_node);
			log_order_asked(c, wb->in);
			wb_collect_all(c, wb->in, &s);
		}
		wb_submit(c, &s, false);
	}
	if (b->mem.bytes > max / 2)
		for (uint32_t i = 0; i < b->dev_count; i++)
			wb_sync_maybe(c, b->devs[i]);
}

void wb_fail_waiters(struct core *c, int err)
{
	while (c->wb_waiters) {
		struct core_waiter *w = c->wb_waiters;

		c->wb_waiters = w->next;
		if (!c->wb_waiters)
			c->blk->wait_tail = &c->wb_waiters;
		w->fn(w, err);
	}
}

void wb_fail_stuck(struct core *c)
{
	struct blk_client *b = c->blk;
	struct dlist *l, *save;
	int err = 0;

	if (!c->wb_waiters || outstanding(b) > 0)
		return;
	dlist_for(l, save, &b->unclean) {
		struct wb_inode *wb = dlist_entry(l, struct wb_inode,
						  unclean_node);

		if (wb->in->wb_error)
			err = -(int)wb->in->wb_error;
	}
	if (err)
		wb_fail_waiters(c, err);
}

void wb_fail_all(struct core *c, int err)
{
	struct blk_client *b = c->blk;
	struct dlist *l, *save, *o, *osave;

	dlist_for(l, save, &b->unclean) {
		struct wb_inode *wb = dlist_entry(l, struct wb_inode,
						  unclean_node);
		struct core_inode *in = wb->in;

		inode_pin(in);
		in->bad = true;
		in->error_count++;
		in->wb_error = (uint32_t)-err;
		wb->last_error = err;
		dlist_for(o, osave, &wb->ops) {
			struct wb_op *op = dlist_entry(o, struct wb_op, node);

			if (op->kind != WB_OP_IDLE)
				op_end(op, err);
		}
		wb_inode_discard(c, in);
		inode_unpin(c, in);
	}
	wb_fail_waiters(c, err);
}

/* ---- inodes ---- */

void wb_dirtied(struct core *c, struct core_inode *in)
{
	struct blk_client *b = c->blk;
	struct wb_inode *wb = in->wb;

	if (dlist_empty(&wb->unclean_node)) {
		dlist_add(&b->unclean, &wb->unclean_node);
		inode_pin(in);
	}
	if (!dlist_empty(&wb->dirty_node))
		return;
	wb->dirty_ms = core_now_ms();
	dlist_add(&b->dirty, &wb->dirty_node);
	flusher_note(c);
}

bool wb_inode_clean(const struct core_inode *in)
{
	return !in->wb || wbuf_clean(&in->wb->buf);
}

bool wb_clean(const struct core *c)
{
	return dlist_empty(&c->blk->unclean);
}

void wb_inode_discard(struct core *c, struct core_inode *in)
{
	struct dlist *l, *save;

	if (!in->wb)
		return;
	inode_pin(in);
	log_order_send_back(c, in);
	/* Frames in flight are waited for: a daemon may still apply them. */
	dlist_for(l, save, &in->wb->buf.ios) {
		struct wb_io *io = wb_io_of(l);

		if (!io->io.in_flight)
			wb_io_forget(c, io);
	}
	/* Removing all needs no memory. */
	(void)wbuf_cut(&in->wb->buf, 0, UINT64_MAX);
	wb_step(c, in, 0, UINT64_MAX);
	wb_wake(c);
	inode_unpin(c, in);
}

static void wb_release(struct core *c, struct core_inode *in)
{
	struct wb_inode *wb = in->wb;
	struct dlist *l, *save;

	in->wb = NULL;
	dlist_for(l, save, &wb->buf.ios) {
		struct wb_io *io = wb_io_of(l);

		/* Only a core that stops has any left; the net is gone. */
		dlist_del(&io->dev_node);
		wbuf_io_redirty(&wb->buf, &io->io);
		c->blk->mem.bytes -= sizeof(*io);
		free(io);
	}
	dlist_del(&wb->dirty_node);
	dlist_del(&wb->unclean_node);
	dlist_del(&wb->touch_node);
	wbuf_fini(&wb->buf);
	free(wb);
	c->blk->mem.bytes -= sizeof(*wb);
	c->blk->wb_count--;
}

void wb_inode_free(struct core *c, struct core_inode *in)
{
	if (in->pf)
		prefetch_drop(c, in, 0, UINT64_MAX);
	if (in->wb)
		wb_release(c, in);
}

int core_flush_error(struct core *c, struct core_file *f)
{
	int err = 0;

	core_lock(c);
	/* With its write-back cache the kernel asks for st_blocks anew after
	 * this, without it after each write. */
	if (c->opt.kernel_writeback)
		f->in->units_kept = false;
	if (f->error_seen != f->in->error_count) {
		f->error_seen = f->in->error_count;
		err = f->in->wb ? f->in->wb->last_error : 0;
		if (err == 0)
			err = f->in->wb_error ? -(int)f->in->wb_error : -EIO;
	}
	core_unlock(c);
	return err;
}
