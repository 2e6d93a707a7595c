/* Write-back frames: DIRTY content out as BLK_WRITE, BLK_SYNC, and what their
 * answers mean (design section 3, boot ids).
 *
 * What a SYNC (or a write flagged so) covers: content whose acknowledgement had
 * come before the SYNC was made, if acknowledged with the boot id of the SYNC's
 * answer. A daemon works on several requests at once, so frames sent shortly
 * before it are not covered.
 */
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"

#include "common/crc32c.h"

#include <endian.h>

static void io_done(struct rpc_call *call, int status,
		    const struct rpc_frame *f);

/* ---- collecting ---- */

void wb_send_init(struct core *c, struct wb_send *s)
{
	(void)c;
	s->head = NULL;
	s->tail = &s->head;
}

static void io_free(struct core *c, struct wb_io *io)
{
	c->blk->mem.bytes -= sizeof(*io);
	free(io);
}

/* One frame from @e on. Returns 0, -ENOMEM, -EBUSY (will be sent later) or
 * the error that refuses it. */
static int collect_one(struct core *c, struct core_inode *in,
		       struct wbuf_ext *e, struct wb_send *s,
		       struct wbuf_ext **next)
{
	uint8_t log2 = in->wb->buf.block_log2;
	struct blk_dev *d;
	struct wb_io *io;
	int err = 0;

	*next = e->next;
	d = blk_dev_of(c, in->ino, e->off >> log2, &err);
	if (!d)
		return err;
	io = calloc(1, sizeof(*io));
	if (!io)
		return -ENOMEM;
	err = wbuf_io_start(&in->wb->buf, e, &io->io, next);
	if (err) {
		free(io);
		return err;
	}
	c->blk->mem.bytes += sizeof(*io);
	io->c = c;
	io->in = in;
	io->dev = d;
	io->cut = in->attr.cut;
	io->mtime_ns = in->attr.mtime_ns;
	io->block_log2 = log2;
	io->data_len = io->io.len;
	dlist_init(&io->dev_node);
	d->flight++;
	d->flight_bytes += io->data_len;
	*s->tail = io;
	s->tail = &io->chain;
	return 0;
}

static void lease_durable(struct core_waiter *w, int err)
{
	struct core_inode *in =
		container_of(w, struct core_inode, lease_wait);
	struct core *c = w->c;

	in->lease_waiting = false;
	/* An error ends the session, or the lease's own answer said it. */
	if (!err)
		in->lease_seq = 0;
	if (in->wb && !wb_inode_clean(in)) {
		struct wb_inode *wb = in->wb;

		wb_dirtied(c, in);
		wb->reflush = true;
		if (!err) {
			wb->dirty_ms = 0; /* due */
			wb_step(c, in, 0, UINT64_MAX);
			flusher_kick(c);
		} else if (err == -ETIMEDOUT) {
			wb_held_up(c, in, err);
			wb_step(c, in, 0, UINT64_MAX);
		}
	}
	inode_unpin(c, in);
}

/* May blocks be written? If not, they are when the lease is durable. */
static bool lease_settled(struct core *c, struct core_inode *in)
{
	if (in->lease_seq == 0)
		return true;
	if (in->lease_waiting)
		return false;
	in->lease_wait.fn = lease_durable;
	in->lease_wait.c = c;
	in->lease_waiting = true;
	inode_pin(in);
	if (!meta_durable(c, in->lease_seq, &in->lease_wait))
		return false; /* the waiter runs, or ran */
	in->lease_waiting = false;
	in->lease_seq = 0;
	inode_unpin(c, in);
	return true;
}

void wb_collect(struct core *c, struct core_inode *in, uint64_t from,
		uint64_t to, struct wb_send *s)
{
	struct wbuf_ext *e, *next;
	uint64_t bad_from = UINT64_MAX, bad_to = 0;
	int bad = 0;

	if (in->cut_busy || c->fenced || c->freeing || !lease_settled(c, in) ||
	    log_order_keeps(c, in))
		return;
	for (e = wbuf_find(&in->wb->buf, from); e && e->off < to; e = next) {
		uint64_t off = e->off, end = off + e->len;
		int err;

		next = e->next;
		if (e->state != WBUF_DIRTY)
			continue;
		err = collect_one(c, in, e, s, &next);
		if (err == -ENOMEM) {
			/* Whoever called took it off the flusher's list. */
			in->wb->reflush = true;
			wb_dirtied(c, in);
			in->wb->dirty_ms = core_now_ms() + WB_NOMEM_MS;
			flusher_kick(c);
			break;
		}
		if (err == 0 || err == -EBUSY)
			continue;
		bad = err;
		bad_from = u64_min(bad_from, off);
		bad_to = u64_max(bad_to, end);
	}
	if (bad)
		wb_refused(c, in, bad_from, bad_to, bad);
}

/* ---- sending ---- */

static void sums_of(const struct wbuf_io *io, uint32_t off, uint8_t *sums)
{
	uint32_t at = 0, crc = 0;

	if (io->iov_count == 1) {
		crc32c_sums(off, io->iov[0].iov_base, io->len, sums);
		return;
	}
	/* Pieces run across iovecs. */
	for (uint32_t i = 0; i < io->iov_count; i++) {
		const uint8_t *p = io->iov[i].iov_base;
		uint32_t left = (uint32_t)io->iov[i].iov_len;

		while (left > 0) {
			uint32_t room = UNIT_SIZE - (off + at) % UNIT_SIZE;
			uint32_t step = left < room ? left : room;
			uint32_t le;

			crc = crc32c(crc, p, step);
			p += step;
			at += step;
			left -= step;
			if (step < room && at < io->len)
				continue;
			le = htole32(crc);
			memcpy(sums, &le, sizeof(le));
			sums += sizeof(le);
			crc = 0;
		}
	}
}

/* Encodes and queues. No lock: the bytes are ours until the answer. */
static int io_encode(struct wb_io *io)
{
	uint32_t off = (uint32_t)(io->io.off &
				  (((uint64_t)1 << io->block_log2) - 1));
	uint32_t sums_len = 4 * crc32c_piece_count(off, io->io.len);
	struct blk_write w = {
		.ino = io->in->ino,
		.index = io->io.off >> io->block_log2,
		.cut = io->cut,
		.off = off,
		.len = io->io.len,
		.block_log2 = io->block_log2,
		.flags = io->sync ? BLK_WRITE_SYNC : 0,
		.mtime_ns = io->mtime_ns,
		.sums.len = sums_len,
	};
	size_t size = blk_write_size(&w);
	struct wire_out o;

	io->body = size <= sizeof(io->body_small) ? io->body_small :
						    malloc(size);
	if (!io->body)
		return -ENOMEM;
	/* The sums are the body's tail: computed in place. */
	sums_of(&io->io, off, io->body + size - sums_len);
	w.sums.len = 0;
	wire_out_init(&o, io->body, size);
	blk_write_encode(&o, &w);
	o.len -= 4;
	wire_put_u32(&o, sums_len);
	io->call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_WRITE,
		.flags = RPC_F_RETRY,
		.timeout_ms = io->c->opt.timeout_ms,
		.body = io->body,
		.body_len = (uint32_t)size,
		.iov = io->io.iov,
		.iov_count = (int)io->io.iov_count,
		.data_len = io->io.len,
		.cb = io_done,
	};
	return 0;
}

#define KICK_BYTES (64u << 10)

static void send_chain(struct core_deferred *def)
{
	struct wb_io *io = container_of(def, struct wb_io, send);
	struct blk_client *b = io->c->blk;
	uint8_t kick[DAEMON_COUNT_MAX] = { 0 };
	uint32_t kick_end = 0;

	while (io) {
		struct wb_io *next = io->chain;
		struct blk_dev *d = io->dev;
		bool big = io->io.len >= KICK_BYTES;

		if (io_encode(io)) {
			io->body = NULL;
			io_done(&io->call, -ENOMEM, NULL);
			io = next;
			continue;
		}
		/* From here on the answer may come and free it. */
		blk_queue(d, &io->call);
		if (big) {
			/* It travels while the next is summed. */
			blk_kick(d);
		} else {
			kick[d->index] = 1;
			kick_end = kick_end > d->index ? kick_end :
							 d->index + 1;
		}
		io = next;
	}
	for (uint32_t i = 0; i < kick_end; i++)
		if (kick[i])
			blk_kick(b->devs[i]);
}

/* Up to so many frames a daemon are flagged SYNC, each: group commit makes them
 * one disk write and one round trip. More, or several big ones, are faster
 * with a BLK_SYNC behind them. */
#define FLAG_FRAMES_MAX 16u

static void flag_sync(struct core *c, struct wb_send *s)
{
	uint8_t count[DAEMON_COUNT_MAX] = { 0 }, big[DAEMON_COUNT_MAX] = { 0 };
	struct wb_io *io;

	for (io = s->head; io; io = io->chain) {
		uint32_t i = io->dev->index;

		if (count[i] <= FLAG_FRAMES_MAX)
			count[i]++;
		if (io->io.len >= KICK_BYTES)
			big[i] = 1;
	}
	for (io = s->head; io; io = io->chain) {
		uint32_t i = io->dev->index;

		if (count[i] > (big[i] ? 1 : FLAG_FRAMES_MAX))
			continue;
		io->sync = true;
		c->blk->n.sync_flags++;
	}
}

/* Takes those out that must not overtake a log. */
static void order_hold(struct core *c, struct wb_send *s)
{
	struct wb_io *io = s->head, *next;

	wb_send_init(c, s);
	for (; io; io = next) {
		next = io->chain;
		if (log_order_hold(c, io))
			continue;
		io->chain = NULL;
		*s->tail = io;
		s->tail = &io->chain;
	}
}

void wb_stamp(struct core *c, struct wb_send *s, bool sync)
{
	if (sync)
		flag_sync(c, s);
	for (struct wb_io *io = s->head; io; io = io->chain) {
		io->sent_stamp = ++c->blk->clock;
		c->blk->n.writes++;
		c->blk->n.write_bytes += io->io.len;
	}
}

void wb_submit(struct core *c, struct wb_send *s, bool sync)
{
	if (!s->head)
		return;
	wb_stamp(c, s, sync);
	order_hold(c, s);
	if (s->head)
		wb_send_chain(c, s->head);
	s->head = NULL;
	s->tail = &s->head;
	log_order_go(c);
}

void wb_send_chain(struct core *c, struct wb_io *head)
{
	head->send.fn = send_chain;
	core_defer(c, &head->send);
}

void wb_send_failed(struct wb_io *io, int err)
{
	while (io) {
		struct wb_io *next = io->chain;

		io->body = NULL;
		io_done(&io->call, err, NULL);
		io = next;
	}
}

/* ---- answers to writes ---- */

void wb_units_add(struct core_inode *in, int64_t delta)
{
	/* What a daemon has forgotten a cut may have taken away before. Then
	 * metad must not subtract it either: a count is of the sum. */
	if (delta < 0 && in->attr.units < (uint64_t)-delta)
		delta = -(int64_t)in->attr.units;
	if (delta == 0)
		return;
	in->attr.units += (uint64_t)delta;
	in->units_delta += delta;
	in->size_dirty = true;
}

static void unsynced_del(struct wb_io *io)
{
	struct blk_dev *d = io->dev;

	dlist_del(&io->dev_node);
	d->unsynced_bytes -= io->data_len;
	d->unsynced_count--;
}

void wb_io_forget(struct core *c, struct wb_io *io)
{
	assert(!io->io.in_flight);
	unsynced_del(io);
	wbuf_io_drop(&io->in->wb->buf, &io->io);
	io_free(c, io);
}

bool wb_io_covered(const struct wb_io *io, uint64_t boot_id, uint64_t stamp)
{
	return !io->io.in_flight && io->boot_id == boot_id &&
	       io->acked_stamp < stamp;
}

/* A SYNC of one inode at one daemon was answered. */
void wb_cover_inode(struct core *c, struct core_inode *in,
			const struct blk_dev *d, uint64_t boot_id,
			uint64_t stamp)
{
	struct dlist *l, *save;

	if (!in->wb)
		return;
	dlist_for(l, save, &in->wb->buf.ios) {
		struct wb_io *io = wb_io_of(l);

		if (io->dev == d && wb_io_covered(io, boot_id, stamp))
			wb_io_forget(c, io);
	}
}

static void io_acked(struct core *c, struct wb_io *io,
		     const struct blk_reply *r)
{
	struct core_inode *in = io->in;
	struct blk_dev *d = io->dev;

	wb_units_add(in, r->units_delta);
	in->units_version++;
	if (io->call.resent)
		in->units_unsure = true;
	io->units = r->units_delta;
	io->boot_id = r->boot_id;
	io->acked_stamp = ++c->blk->clock;
	io->acked_ms = core_now_ms();
	wbuf_io_acked(&in->wb->buf, &io->io);
	dlist_add(&d->unsynced, &io->dev_node);
	d->unsynced_bytes += io->data_len;
	d->unsynced_count++;
	if (io->sync) {
		uint64_t stamp = io->sent_stamp;

		wb_io_forget(c, io);
		wb_cover_inode(c, in, d, r->boot_id, stamp);
	}
	blk_dev_heard(d, r->boot_id, r->free_units);
}

/* What came back may have been replaced, in part or in whole, by newer content
 * that nobody has yet: who waits for it, waits for that too. */
static void wait_for_newer(struct wb_inode *wb)
{
	uint64_t gen = wbuf_gen_close(&wb->buf);
	struct dlist *l, *save;

	dlist_for(l, save, &wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_DURABLE)
			op->gen = gen;
	}
}

/* Should it be refused from now on, its daemon may have it nevertheless. */
static void perhaps_there(const struct wb_io *io)
{
	struct dlist *l, *save;

	dlist_for(l, save, &io->in->wb->ops) {
		struct wb_op *op = dlist_entry(l, struct wb_op, node);

		if (op->kind == WB_OP_ACKED &&
		    op->off < io->io.off + io->io.len &&
		    op->off + op->len > io->io.off)
			op->perhaps = true;
	}
}

/* Sends what came back once more, when it is not hopeless. */
static void redirty(struct core *c, struct wb_io *io)
{
	struct core_inode *in = io->in;

	wbuf_io_redirty(&in->wb->buf, &io->io);
	wait_for_newer(in->wb);
	io_free(c, io);
	in->units_unsure = true;
	in->wb->reflush = true;
	c->blk->n.resent++;
	wb_dirtied(c, in);
}

void wb_send_back(struct core *c, struct wb_io *io)
{
	io->dev->flight--;
	io->dev->flight_bytes -= io->data_len;
	redirty(c, io);
}

struct stale_io {
	struct core *c;
	struct core_inode *in; /* pinned */
};

static void stale_resend(void *arg)
{
	struct stale_io *w = arg;
	struct core *c = w->c;

	core_lock(c);
	if (w->in->wb) {
		w->in->wb->reflush = true;
		wb_step(c, w->in, 0, UINT64_MAX);
	}
	inode_unpin(c, w->in);
	core_unlock(c);
	free(w);
}

/* A cut that we have not heard of ran ahead: learn the number, then resend.
 * Out of memory: the flusher comes some time. */
static void io_stale(struct core *c, struct wb_io *io)
{
	struct core_inode *in = io->in;
	struct stale_io *w = malloc(sizeof(*w));

	redirty(c, io);
	in->wb->reflush = false; /* not at once */
	if (!w)
		return;
	*w = (struct stale_io){ c, in };
	inode_pin(in);
	if (stale_learn(c, in, stale_resend, w)) {
		inode_unpin(c, in);
		free(w);
	}
}

static void io_failed(struct core *c, struct wb_io *io, int status)
{
	struct core_inode *in = io->in;
	uint64_t from = io->io.off, to = from + io->io.len;

	if (status == -ESTALE) {
		io_stale(c, io);
		return;
	}
	redirty(c, io);
	if (status == -ENOMEM || blk_retry(c, status))
		return;
	if (c->fenced) {
		(void)wbuf_cut(&in->wb->buf, 0, UINT64_MAX);
		return;
	}
	c->blk->n.errors++;
	wb_refused(c, in, from, to, status == -ECANCELED ? -EIO : status);
}

static void io_done(struct rpc_call *call, int status,
		    const struct rpc_frame *f)
{
	struct wb_io *io = container_of(call, struct wb_io, call);
	struct core *c = io->c;
	struct core_inode *in = io->in;
	struct blk_dev *d = io->dev;
	uint64_t from = io->io.off, to = from + io->io.len;
	struct blk_reply r = { 0 };
	bool said = f && blk_reply_parse(f->body, f->h.body_len, &r) == 0;

	if (status == 0 && !said)
		status = -EIO;
	if (io->body != io->body_small)
		free(io->body);
	io->body = NULL;
	core_lock(c);
	inode_pin(in);
	d->flight--;
	d->flight_bytes -= io->data_len;
	if (status == 0) {
		io_acked(c, io, &r);
	} else {
		if (!f || call->resent)
			perhaps_there(io);
		io_failed(c, io, status);
		if (said)
			blk_dev_heard(d, r.boot_id, r.free_units);
	}
	wb_step(c, in, from, to);
	if (in->log)
		log_order_again(c);
	wb_sync_maybe(c, d);
	wb_wake(c);
	inode_unpin(c, in);
	core_unlock(c);
}

/* ---- boot ids ---- */

void wb_boot_changed(struct core *c, struct blk_dev *d)
{
	struct dlist *l, *save;
	bool any = false;

	dlist_for(l, save, &d->unsynced) {
		struct wb_io *io = dlist_entry(l, struct wb_io, dev_node);
		struct core_inode *in = io->in;

		if (io->boot_id == d->boot_id)
			continue;
		/* Its units are counted when it is written again. */
		wb_units_add(in, -io->units);
		unsynced_del(io);
		perhaps_there(io);
		redirty(c, io);
		in->wb->lost = true;
		any = true;
	}
	if (!any)
		return;
	dlist_for(l, save, &c->blk->unclean) {
		struct wb_inode *wb = dlist_entry(l, struct wb_inode,
						  unclean_node);

		if (!wb->lost)
			continue;
		wb->lost = false;
		/* Oldest content first. */
		wb->dirty_ms = 0;
		dlist_del(&wb->dirty_node);
		dlist_add(c->blk->dirty.next, &wb->dirty_node);
	}
	flusher_kick(c);
}
