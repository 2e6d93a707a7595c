/* Writes: bytes are copied before the lock is taken, inserted under it
 * (wbuf.c), and leave (wb_io.c) when they are old (flusher.c), somebody waits
 * for them or memory is short (flush.c); at once where a whole block is dirty,
 * where the user wants to wait for the daemon, or where one is nearly full. */
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include <sys/stat.h>

/* Buffers from here on are worth reusing (page faults). */
#define POOLED_MIN (64u << 10)

/* Buffered extents looked at for st_blocks; more make it an estimate. */
#define SHOWN_EXTS_MAX 256u

struct write_req {
	struct core *c;
	struct core_inode *in;
	uint64_t off;
	uint32_t len;
	uint32_t flags;
	bool refusable; /* goes through, and goes when it is refused */
	bool recovery; /* share_recovers() */
	struct wbuf_data *data; /* or */
	const void *small; /* up to WBUF_SMALL_MAX bytes */
	void *asker; /* CORE_WRITE_ASK */
	core_cb cb;
	void *arg;
};

/* A write that cannot be answered at once. */
struct write_op {
	struct write_req r;
	struct core_waiter wait;
	struct wb_op op;
	struct log_wait log;
	struct core_deferred done;
	bool proved; /* metad has answered us since we last waited */
	int err;
};

/* ---- helpers ---- */

struct wb_inode *wb_get(struct core *c, struct core_inode *in)
{
	struct wb_inode *wb = in->wb;

	if (wb)
		return wb;
	wb = calloc(1, sizeof(*wb));
	if (!wb)
		return NULL;
	if (wbuf_init(&wb->buf, &c->blk->mem, in->attr.block_log2)) {
		free(wb);
		return NULL;
	}
	wb->in = in;
	dlist_init(&wb->unclean_node);
	dlist_init(&wb->dirty_node);
	dlist_init(&wb->touch_node);
	dlist_init(&wb->ops);
	dlist_init(&wb->syncs);
	c->blk->mem.bytes += sizeof(*wb);
	c->blk->wb_count++;
	in->wb = wb;
	return wb;
}

int data_check(struct core *c, const struct core_inode *in)
{
	return c->fenced || in->bad ? -EIO : 0;
}

static void killpriv_done(struct meta_call *mc, int err, const uint8_t *body,
			  uint32_t body_len)
{
	struct core_inode *in = mc->arg;
	struct core *c = mc->c;
	struct meta_attr a;

	core_lock(c);
	in->mode_inflight--;
	if (!err && meta_reply_attr_of(in->ino, body, body_len, &a) == 0)
		inode_merge(c, in, &a, NULL);
	inode_unpin(c, in);
	core_unlock(c);
}

uint32_t mode_killed(uint32_t mode)
{
	mode &= ~(uint32_t)S_ISUID;
	if (mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	return mode;
}

/* Here at once; metad is told by @mc. */
static void killpriv_queue(struct core *c, struct core_inode *in,
			   struct meta_call *mc, struct wire_out *o,
			   uint32_t mode)
{
	mc->done = killpriv_done;
	mc->arg = in;
	inode_pin(in);
	in->mode_inflight++;
	in->attr.mode = mode;
	in->attr.flags &= ~META_ATTR_CAPS;
	meta_call_queue(mc, o);
	inode_mutated(in, mc->seq);
	inode_tell_changed(c, in->ino);
}

void killpriv(struct core *c, struct core_inode *in)
{
	struct meta_setattr s = {
		.ino = in->ino,
		.valid = META_SET_KILLPRIV,
	};
	uint32_t mode = mode_killed(in->attr.mode);
	struct meta_call *mc;
	struct wire_out o;

	if (mode == in->attr.mode && !(in->attr.flags & META_ATTR_CAPS))
		return;
	mc = meta_call_new(c, WIRE_OP_META_SETATTR, meta_setattr_size(&s), &o);
	if (!mc)
		return; /* the bits stay for the next write to clear */
	meta_setattr_encode(&o, &s);
	killpriv_queue(c, in, mc, &o, mode);
}

/* Who may keep set-id bits may not keep a capability. Before what it writes
 * through its cache the kernel takes it away itself. */
static void killcap(struct core *c, struct core_inode *in)
{
	static const char name[] = "security.capability";
	struct meta_removexattr x = {
		.ino = in->ino, .name = { name, sizeof(name) - 1 }
	};
	struct meta_call *mc;
	struct wire_out o;

	if (!(in->attr.flags & META_ATTR_CAPS))
		return;
	mc = meta_call_new(c, WIRE_OP_META_REMOVEXATTR,
			   meta_removexattr_size(&x), &o);
	if (!mc)
		return; /* as above */
	meta_removexattr_encode(&o, &x);
	killpriv_queue(c, in, mc, &o, in->attr.mode);
}

static void gather_iov(void *to, const struct iovec *iov, int iov_count,
		       size_t len)
{
	uint8_t *p = to;

	for (int i = 0; i < iov_count && len > 0; i++) {
		size_t step = iov[i].iov_len < len ? iov[i].iov_len : len;

		memcpy(p, iov[i].iov_base, step);
		p += step;
		len -= step;
	}
}

static struct wbuf_data *copy_in(struct core *c, const struct iovec *iov,
				 int iov_count, uint32_t len)
{
	struct wbuf_data *d;

	if (len >= POOLED_MIN) {
		core_lock(c);
		d = wbuf_data_pooled(&c->blk->mem, len);
		core_unlock(c);
	} else {
		d = wbuf_data_new(len);
	}
	if (!d)
		return NULL;
	gather_iov(d->bytes, iov, iov_count, len);
	d->used = len;
	return d;
}

static uint64_t units_shown(const struct core_inode *in)
{
	uint64_t size_units = (in->attr.size + UNIT_SIZE - 1) / UNIT_SIZE;
	uint64_t units = in->attr.units, next = 0;
	const struct wbuf_ext *e = in->wb ? in->wb->buf.head : NULL;

	/* Some of them may be stored already: never more than a file without
	 * holes has. */
	for (uint32_t i = 0; e && units < size_units && i < SHOWN_EXTS_MAX;
	     e = e->next, i++) {
		uint64_t first = u64_max(e->off / UNIT_SIZE, next);

		if (e->state == WBUF_UNSYNCED)
			continue; /* counted with its answer */
		next = (e->off + e->len - 1) / UNIT_SIZE + 1;
		units += next > first ? next - first : 0;
	}
	return u64_max(in->attr.units, u64_min(units, size_units));
}

uint64_t wb_units_tell(struct core_inode *in)
{
	in->units_told = units_shown(in);
	in->units_kept = true;
	return in->units_told;
}

bool wb_units_stale(const struct core_inode *in)
{
	return in->units_kept && in->units_told != units_shown(in);
}

/* ---- applying ---- */

/* Fixes offset and length. Returns 0, or -EFBIG, or 1 when nothing is left to
 * write. */
static int write_bounds(struct write_req *r)
{
	const struct core_inode *in = r->in;

	/* What the kernel took for the end may be another mount's middle. */
	if (r->flags & CORE_WRITE_APPEND)
		r->off = in->attr.size;
	if (r->off > FILE_SIZE_MAX || r->len > FILE_SIZE_MAX - r->off)
		return -EFBIG;
	if ((r->flags & CORE_WRITE_CACHE) && !r->c->opt.kernel_writeback) {
		if (r->off >= in->attr.size)
			return 1;
		r->len = (uint32_t)u64_min(r->len, in->attr.size - r->off);
	}
	return 0;
}

static void send_full_blocks(struct write_req *r)
{
	struct wbuf *b = &r->in->wb->buf;
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t end = u64_round_down(r->off, block) + block;
	struct wb_send s;

	if (end > r->off + r->len)
		return;
	wb_send_init(r->c, &s);
	for (; end <= r->off + r->len; end += block)
		if (wbuf_block_full(b, end))
			wb_collect(r->c, r->in, end - block, end, &s);
	wb_submit(r->c, &s, false);
}

/* Lock held, bounds checked. */
static int write_insert(struct write_req *r)
{
	struct core *c = r->c;
	struct core_inode *in = r->in;
	struct wb_inode *wb;
	int err;

	wb = wb_get(c, in);
	if (!wb)
		return -ENOMEM;
	err = lease_want(c, in);
	if (err)
		return err;
	err = r->data ? wbuf_write(&wb->buf, r->off, r->data, 0, r->len) :
			wbuf_write_small(&wb->buf, r->off, r->small, r->len);
	if (err)
		return err;
	if (!r->refusable)
		wb->size_sure = u64_max(wb->size_sure, r->off + r->len);
	else if (wb_refusable_end(wb) == 0)
		wb->size_sure = in->attr.size;
	if (!dlist_empty(&wb->ops))
		wb_op_covered(in, r->off, r->off + r->len);
	if (r->off + r->len > in->attr.size)
		in->attr.size = r->off + r->len;
	/* In its write-back cache the kernel keeps the times and tells them. */
	if (!(r->flags & CORE_WRITE_CACHE) || !c->opt.kernel_writeback)
		in->attr.mtime_ns = in->attr.ctime_ns = core_now_ns();
	in->size_dirty = true;
	if (r->flags & CORE_WRITE_KILLPRIV)
		killpriv(c, in);
	else if (!(r->flags & CORE_WRITE_CACHE))
		killcap(c, in);
	if (in->pf)
		prefetch_drop(c, in, r->off, r->off + r->len);
	wb_dirtied(c, in);
	return 0;
}

static bool must_go_through(const struct write_req *r)
{
	uint8_t log2 = r->in->attr.block_log2;
	uint64_t last = (r->off + r->len - 1) >> log2;

	if (r->flags & CORE_WRITE_DIRECT)
		return true;
	for (uint64_t i = r->off >> log2; i <= last; i++) {
		int err;
		const struct blk_dev *d = blk_dev_of(r->c, r->in->ino, i, &err);

		if (!d || blk_dev_low(d))
			return true;
	}
	return false;
}

/* ---- writes that wait ---- */

static void write_op_done(struct core_deferred *d)
{
	struct write_op *o = container_of(d, struct write_op, done);

	o->r.cb(o->r.arg, o->err);
	free(o);
}

static void write_op_end(struct write_op *o, int err)
{
	struct core *c = o->r.c;

	o->err = err;
	if (o->r.data)
		wbuf_data_put(&c->blk->mem, o->r.data);
	inode_unpin(c, o->r.in);
	o->done.fn = write_op_done;
	core_defer(c, &o->done);
}

static void write_undone(void *arg, int err, const struct meta_attr *a)
{
	struct write_op *o = arg;
	struct core *c = o->r.c;

	(void)err; /* the write's own is told */
	(void)a;
	core_lock(c);
	write_op_end(o, o->err);
	core_unlock(c);
}

/* Some of it may be with the daemons. */
static bool write_remains(const struct wb_op *op)
{
	return op->perhaps || op->refused_len < op->len;
}

/* A write that failed does not leave the file longer. Nor does it leave bytes
 * behind the file's end, where a block was stored and another refused, or no
 * daemon has said that it did not store it: who makes the file longer would
 * find them. Returns whether write_undone() follows. */
static bool write_undo(struct write_op *o)
{
	struct core_inode *in = o->r.in;
	uint64_t end = o->op.off + o->op.len;
	uint64_t size = u64_max(in->wb->size_sure, wb_refusable_end(in->wb));

	if (size >= end || in->attr.size != end)
		return false; /* it did not, or the file was cut since */
	if (write_remains(&o->op))
		return cut_back(o->r.c, in, size, write_undone, o);
	in->attr.size = size;
	return false;
}

static void write_acked(struct wb_op *op, int err)
{
	struct write_op *o = container_of(op, struct write_op, op);
	struct wb_inode *wb = o->r.in->wb;

	o->err = err;
	if (op->through && op->refused_len > 0 && write_undo(o))
		return;
	/* What remains stays inside the file: a write that is refused later
	 * must not cut it off unseen. */
	if (op->through && write_remains(op))
		wb->size_sure = u64_max(wb->size_sure, op->off + op->len);
	write_op_end(o, err);
}

static bool buffered_in(const struct core_inode *in, uint64_t from, uint64_t to)
{
	const struct wbuf_ext *e = wbuf_find(&in->wb->buf, from);

	return e && e->off < to;
}

static void write_op_go(struct write_op *o);

/* ---- writes of log files ---- */

static void write_logged(struct log_wait *w, int err)
{
	write_op_end(container_of(w, struct write_op, log), err);
}

/* Lock held; log_way() has let it. The write is answered when its log has it.
 * Takes over r->data. */
static int write_log(struct write_req *r, struct write_op *o)
{
	struct core_inode *in = r->in;
	int err = write_insert(r);

	if (err)
		return err;
	o->log.fn = write_logged;
	log_append(in, r->off, r->data ? r->data->bytes : r->small, r->len);
	if (!log_in_order(in->log))
		send_full_blocks(r);
	log_commit_wait(in, &o->log);
	return 0;
}

/* The same without an operation that has waited. */
static int write_log_start(struct write_req *r)
{
	struct write_op *o = malloc(sizeof(*o));
	int err;

	if (!o)
		return -ENOMEM;
	o->r = *r;
	inode_pin(r->in);
	r->data = NULL;
	err = write_log(&o->r, o);
	if (!err)
		return -EINPROGRESS;
	r->data = o->r.data;
	inode_unpin(r->c, r->in);
	free(o);
	return err;
}

static void write_op_proved(void *arg, int err, const struct meta_attr *a)
{
	struct write_op *o = arg;
	struct core *c = o->r.c;

	(void)a;
	core_lock(c);
	o->proved = true;
	if (err)
		write_op_end(o, err == -ESTALE ? -EIO : err);
	else
		write_op_go(o);
	core_unlock(c);
}

/* Metad has not been heard of for long: it says whether we still may. */
static void write_op_prove(struct core_deferred *d)
{
	struct write_op *o = container_of(d, struct write_op, done);

	attr_get(o->r.c, o->r.in->ino, o->r.recovery, write_op_proved, o);
}

/* Lock held. Does it have to wait for the right to change the file? Then it
 * does. */
static bool write_op_waits(struct write_op *o)
{
	struct core *c = o->r.c;
	struct core_inode *in = o->r.in;

	if (cut_holds_writes(in)) {
		o->proved = false;
		cut_wait(in, &o->wait);
	} else if (!o->r.recovery && !share_writable(c, in)) {
		share_wait(c, in, &o->wait);
	} else if (!o->proved && !meta_may_serve(c) && !log_covers(in)) {
		o->done.fn = write_op_prove;
		core_defer(c, &o->done);
	} else {
		return false;
	}
	return true;
}

/* Lock held: goes as far as it can. */
static void write_op_go(struct write_op *o)
{
	struct write_req *r = &o->r;
	struct core *c = r->c;
	struct core_inode *in = r->in;
	struct wb_send s;
	bool through;
	int err = data_check(c, in), way;

	if (!err && (r->flags & CORE_WRITE_ASK) && !c->opt.wanted(r->asker))
		err = -EINTR;
	if (!err && write_op_waits(o))
		return;
	if (!err)
		err = write_bounds(r);
	way = err ? LOG_WAY_BLOCKS : log_way(c, in, r->len);
	if (way == LOG_WAY_WAIT) {
		log_wait_turn(in, &o->wait);
		return;
	}
	if (way == LOG_WAY_LOG)
		err = write_log(r, o);
	else if (way < 0)
		err = way;
	if (err)
		write_op_end(o, err > 0 ? 0 : err);
	if (err || way == LOG_WAY_LOG)
		return;
	through = must_go_through(r);
	/* What was acknowledged before must not go with a write that is
	 * refused: then both stay. */
	r->refusable = through && (!in->wb || !buffered_in(in, r->off,
							   r->off + r->len));
	err = write_insert(r);
	if (err || !through) {
		if (!err)
			send_full_blocks(r);
		write_op_end(o, err);
		return;
	}
	o->op.kind = WB_OP_ACKED;
	o->op.through = r->refusable;
	o->op.off = r->off;
	o->op.len = r->len;
	o->op.fn = write_acked;
	wb_op_add(in, &o->op);
	inode_pin(in);
	wb_send_init(c, &s);
	wb_collect(c, in, r->off, r->off + r->len, &s);
	wb_submit(c, &s, false);
	wb_step(c, in, o->op.off, o->op.off + o->op.len);
	inode_unpin(c, in);
}

static void write_waited(struct core_waiter *w, int err)
{
	struct write_op *o = container_of(w, struct write_op, wait);

	if (err)
		write_op_end(o, err);
	else
		write_op_go(o);
}

/* Lock held. Takes over r->data. */
static int write_op_start(struct write_req *r, bool wait)
{
	struct core *c = r->c;
	struct write_op *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	if (!r->data) {
		r->data = wbuf_data_new(r->len);
		if (!r->data) {
			free(o);
			return -ENOMEM;
		}
		memcpy(r->data->bytes, r->small, r->len);
		r->data->used = r->len;
		r->small = NULL;
	}
	o->r = *r;
	r->data = NULL;
	o->wait.fn = write_waited;
	inode_pin(r->in);
	if (!wait) {
		write_op_go(o);
		return -EINPROGRESS;
	}
	c->blk->n.waits++;
	o->wait.next = NULL;
	*c->blk->wait_tail = &o->wait;
	c->blk->wait_tail = &o->wait.next;
	wb_pressure(c);
	return -EINPROGRESS;
}

/* ---- core_write ---- */

/* Lock held. -EINPROGRESS: the callback comes later. */
static int write_start(struct write_req *r)
{
	struct core *c = r->c;
	struct core_inode *in = r->in;
	int err = data_check(c, in), way;

	if (err)
		return err;
	r->recovery = share_recovers(c, in);
	if (!c->opt.kernel_writeback)
		in->units_kept = false; /* see core_flush_error() */
	/* Writers wait in order, also one that would fit. */
	if (!(r->flags & CORE_WRITE_UNBOUND) && (c->wb_waiters || wb_full(c)))
		return write_op_start(r, true);
	if (cut_holds_writes(in) ||
	    (!r->recovery && !share_writable(c, in)) ||
	    (!meta_may_serve(c) && !log_covers(in)))
		return write_op_start(r, false);
	err = write_bounds(r);
	if (err)
		return err > 0 ? 0 : err;
	way = log_way(c, in, r->len);
	if (way < 0)
		return way;
	if (way == LOG_WAY_LOG)
		return write_log_start(r);
	if (way == LOG_WAY_WAIT || must_go_through(r))
		return write_op_start(r, false);
	err = write_insert(r);
	if (err)
		return err;
	send_full_blocks(r);
	sync_ahead(c, in, r->len);
	if (c->blk->mem.bytes > c->opt.wb_bytes_max / 2)
		wb_pressure(c);
	return 0;
}

void write_at(struct core *c, const struct write_place *to,
	      const struct iovec *iov, int iov_count, size_t len, core_cb cb,
	      void *arg)
{
	struct write_req r = {
		.c = c,
		.in = to->in,
		.off = to->off,
		.len = (uint32_t)len,
		.flags = to->flags,
		.asker = to->asker,
		.cb = cb,
		.arg = arg,
	};
	uint8_t flat[WBUF_SMALL_MAX];
	bool help;
	int err;

	if (len == 0 || len > UINT32_MAX) {
		cb(arg, len ? -EINVAL : 0);
		return;
	}
	if (len > WBUF_SMALL_MAX) {
		r.data = copy_in(c, iov, iov_count, r.len);
		if (!r.data) {
			cb(arg, -ENOMEM);
			return;
		}
	} else if (iov_count == 1) {
		r.small = iov[0].iov_base;
	} else {
		gather_iov(flat, iov, iov_count, len);
		r.small = flat;
	}
	core_lock(c);
	err = write_start(&r);
	if (r.data)
		wbuf_data_put(&c->blk->mem, r.data);
	/* What the unlock sends to log peers is answered before another thread
	 * would be awake. */
	help = err == -EINPROGRESS && to->in->log && rpc_help_begin(c->net);
	core_unlock(c);
	if (err != -EINPROGRESS)
		cb(arg, err);
	if (help)
		rpc_help(c->net);
}

void core_write(struct core *c, struct core_file *f, uint64_t off,
		const struct iovec *iov, int iov_count, size_t len,
		uint32_t flags, core_cb cb, void *arg)
{
	struct write_place to = {
		.in = f->in, .off = off, .flags = flags, .asker = arg,
	};

	write_at(c, &to, iov, iov_count, len, cb, arg);
}
