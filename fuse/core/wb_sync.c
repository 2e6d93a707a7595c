/* BLK_SYNC: of one inode for those who wait, of everything at a daemon to get
 * memory back. What it covers: wb_io.c. */
#include "fuse/core/blk_priv.h"

static void sync_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f);

static void send_sync(struct core_deferred *def)
{
	struct wb_sync *s = container_of(def, struct wb_sync, send);

	blk_send(s->dev, &s->call);
}

static struct wb_sync *sync_new(struct core *c, struct core_inode *in,
				struct blk_dev *d)
{
	struct wb_sync *s = calloc(1, sizeof(*s));
	struct blk_sync msg = { .ino = in ? in->ino : 0 };
	struct wire_out o;

	if (!s)
		return NULL;
	s->c = c;
	s->in = in;
	s->dev = d;
	s->stamp = ++c->blk->clock;
	dlist_init(&s->node);
	wire_out_init(&o, s->body, sizeof(s->body));
	blk_sync_encode(&o, &msg);
	s->call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_SYNC,
		.flags = RPC_F_RETRY,
		.timeout_ms = c->opt.timeout_ms,
		.body = s->body,
		.body_len = (uint32_t)o.len,
		.cb = sync_done,
	};
	s->send.fn = send_sync;
	core_defer(c, &s->send);
	return s;
}

void wb_sync_inode(struct core *c, struct core_inode *in, struct blk_dev *d)
{
	struct wb_sync *s = sync_new(c, in, d);

	if (!s)
		return; /* the flusher's SYNC of all comes some time */
	inode_pin(in);
	dlist_add(&in->wb->syncs, &s->node);
	c->blk->n.syncs++;
}

void wb_sync_all(struct core *c, struct blk_dev *d)
{
	if (d->sync_all) {
		d->sync_wanted = true;
		return;
	}
	d->sync_wanted = false;
	d->sync_all = sync_new(c, NULL, d);
	c->blk->n.syncs_all++;
}

void wb_sync_maybe(struct core *c, struct blk_dev *d)
{
	struct blk_client *b = c->blk;
	uint64_t max = c->opt.wb_bytes_max, enough;

	if (d->sync_all || d->unsynced_count == 0 || c->fenced)
		return;
	if (d->sync_hold_ms > 0 && core_now_ms() < d->sync_hold_ms)
		return;
	enough = max / WB_SYNC_SHARE / (b->dev_count ? b->dev_count : 1);
	/* Writers that wait need room, but a flush for each block they get
	 * costs more than it gives: what is in flight comes along. */
	if (d->unsynced_bytes >= enough ||
	    ((c->wb_waiters || b->mem.bytes > max - max / 4) &&
	     d->flight == 0))
		wb_sync_all(c, d);
}

/* A soft mount gives up what a daemon acknowledged and does not sync: the file
 * is bad until truncated. */
static void sync_give_up(struct core *c, struct core_inode *in,
			 const struct blk_dev *d)
{
	struct dlist *l, *save;

	in->bad = true;
	dlist_for(l, save, &in->wb->buf.ios) {
		struct wb_io *io = wb_io_of(l);

		if (io->dev == d && !io->io.in_flight)
			wb_io_forget(c, io);
	}
}

/* An error of SYNC: the content stays, who waits is told. */
static void sync_refused(struct core *c, struct core_inode *in,
			 const struct blk_dev *d, int err)
{
	struct wb_op *op;
	struct dlist *l, *save;

	if (!in->wb)
		return;
	if (err == -ETIMEDOUT)
		sync_give_up(c, in, d);
	in->wb_error = (uint32_t)-err;
	in->wb->last_error = err;
	in->error_count++;
	dlist_for(l, save, &in->wb->ops) {
		op = dlist_entry(l, struct wb_op, node);
		if (op->kind != WB_OP_DURABLE)
			continue;
		dlist_del(&op->node);
		op->fn(op, err);
	}
}

static void touch(struct dlist *touched, struct core_inode *in)
{
	if (dlist_empty(&in->wb->touch_node)) {
		dlist_add(touched, &in->wb->touch_node);
		inode_pin(in);
	}
}

/* All inodes with content at @d that a SYNC of all spoke about. */
static void all_done(struct core *c, struct wb_sync *s, int status,
		     uint64_t boot_id)
{
	struct blk_dev *d = s->dev;
	struct dlist *l, *save, touched;

	dlist_init(&touched);
	dlist_for(l, save, &d->unsynced) {
		struct wb_io *io = dlist_entry(l, struct wb_io, dev_node);

		if (status) {
			touch(&touched, io->in);
		} else if (wb_io_covered(io, boot_id, s->stamp)) {
			touch(&touched, io->in);
			wb_io_forget(c, io);
		}
	}
	while (!dlist_empty(&touched)) {
		struct wb_inode *wb = dlist_entry(touched.next,
						  struct wb_inode, touch_node);
		struct core_inode *in = wb->in;

		dlist_del(&wb->touch_node);
		if (status && !blk_retry(c, status))
			sync_refused(c, in, d, status);
		wb_step(c, in, 0, 0);
		inode_unpin(c, in);
	}
}

static void sync_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct wb_sync *s = container_of(call, struct wb_sync, call);
	struct core *c = s->c;
	struct blk_dev *d = s->dev;
	struct core_inode *in = s->in;
	struct blk_reply r = { 0 };

	if (status == 0 && blk_reply_parse(f->body, f->h.body_len, &r))
		status = -EIO;
	core_lock(c);
	if (in)
		dlist_del(&s->node);
	else
		d->sync_all = NULL;
	if (status == 0)
		blk_dev_heard(d, r.boot_id, r.free_units);
	else if (!blk_retry(c, status))
		d->sync_hold_ms = core_now_ms() + WB_RETRY_MS;
	if (status == 0)
		d->sync_hold_ms = 0;
	if (!in) {
		all_done(c, s, status, r.boot_id);
		if (d->sync_wanted && !c->fenced && !c->stopping)
			wb_sync_all(c, d);
	} else {
		if (status == 0)
			wb_cover_inode(c, in, d, r.boot_id, s->stamp);
		else if (!blk_retry(c, status))
			sync_refused(c, in, d, status);
		wb_step(c, in, 0, 0);
		inode_unpin(c, in);
	}
	wb_sync_maybe(c, d);
	wb_wake(c);
	core_unlock(c);
	free(s);
}
