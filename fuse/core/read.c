/* Reads: what is buffered here comes first, then what was read ahead, and the
 * rest from the daemons in parallel. The received frames are handed to the
 * user as they are.
 */
#include "fuse/core/blk_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/read_priv.h"
#include "fuse/core/share.h"

#include <fcntl.h>

#include "common/crc32c.h"
#include "common/diag.h"

/* With more buffered extents than this in its range, a read is assembled in a
 * buffer of its own. */
#define READ_EXTS_MAX 128u

/* What holes are made of: untouched pages of zeros. */
static const uint8_t zeros[FRAME_DATA_MAX];

struct read_gap {
	uint32_t at, len; /* in the read */
};

struct read_op {
	struct core *c;
	struct core_inode *in; /* pinned */
	uint64_t off;
	uint32_t len;
	core_data_cb cb;
	void *arg;
	_Atomic uint32_t pending; /* pieces without their bytes, and one */
	_Atomic int err;
	uint32_t stale; /* answers of -ESTALE so far */
	bool proved; /* metad has answered us since we last waited */
	bool recovery; /* share_recovers() */
	struct core_waiter wait;
	struct core_deferred def;
	uint8_t *flat; /* assembled here; else NULL */
	struct read_gap *gaps;
	uint32_t gap_count;
	uint32_t piece_count;
	struct read_piece *pieces;
	struct iovec *iov;
	/* A small read needs no more than these. */
	struct read_piece piece_one;
	struct iovec iov_one;
};

static void read_begin(struct read_op *op);
static void piece_answered(struct rpc_call *call, int status,
			   const struct rpc_frame *f);

/* ---- the end ---- */

/* Lock held. */
static void read_release(struct read_op *op)
{
	for (uint32_t i = 0; i < op->piece_count; i++) {
		struct read_piece *p = &op->pieces[i];

		if (p->data)
			wbuf_data_put(&op->c->blk->mem, p->data);
		if (p->pf)
			pf_put(op->c, p->pf, p->len);
	}
	wb_wake(op->c); /* writers may have waited for it */
}

static void read_clear(struct read_op *op)
{
	for (uint32_t i = 0; i < op->piece_count; i++)
		if (op->pieces[i].frame)
			rpc_frame_free(op->pieces[i].frame);
	if (op->pieces != &op->piece_one)
		free(op->pieces);
	free(op->flat);
	free(op->gaps);
	op->pieces = NULL;
	op->flat = NULL;
	op->gaps = NULL;
	op->piece_count = 0;
	op->gap_count = 0;
}

static void read_answer(struct read_op *op, int err)
{
	struct core *c = op->c;

	if (err)
		op->cb(op->arg, err, NULL, 0, 0);
	else if (op->flat)
		op->cb(op->arg, 0,
		       &(struct iovec){ op->flat, op->len }, 1, op->len);
	else
		op->cb(op->arg, 0, op->iov, (int)op->piece_count, op->len);
	core_lock(c);
	read_release(op);
	inode_unpin(c, op->in);
	core_unlock(c);
	read_clear(op);
	free(op);
}

/* Bytes of the gaps into the buffer that has all the others. */
static void fill_gaps(struct read_op *op)
{
	uint32_t i = 0;

	for (uint32_t g = 0; g < op->gap_count; g++) {
		struct read_gap *gap = &op->gaps[g];
		const uint8_t *from;

		while (gap->at >= op->pieces[i].at + op->pieces[i].len)
			i++;
		from = op->iov[i].iov_base;
		memcpy(op->flat + gap->at, from + (gap->at - op->pieces[i].at),
		       gap->len);
	}
}

static void read_again(void *arg)
{
	read_begin(arg);
}

/* A cut ran ahead of what we knew: once more, with the new number. */
static void read_stale(struct read_op *op)
{
	struct core *c = op->c;
	int err;

	core_lock(c);
	read_release(op);
	op->proved = false;
	err = stale_learn(c, op->in, read_again, op);
	read_clear(op);
	op->stale++;
	core_unlock(c);
	if (err)
		read_answer(op, err);
}

/* Every piece has its bytes or an error. No lock. */
static void read_end(struct read_op *op)
{
	int err = op->err;

	if (err == -ESTALE && op->stale < STALE_MAX && !op->c->stopping) {
		read_stale(op);
		return;
	}
	if (!err && op->flat)
		fill_gaps(op);
	read_answer(op, err == -ESTALE || err == -ECANCELED ? -EIO : err);
}

/* @err: of one piece. No lock. */
static void piece_end(struct read_piece *p, int err)
{
	struct read_op *op = p->op;

	if (err)
		op->err = err;
	if (--op->pending == 0)
		read_end(op);
}

void read_piece_ready(struct read_piece *p, const void *bytes)
{
	p->op->iov[p - p->op->pieces].iov_base = (void *)(uintptr_t)bytes;
	piece_end(p, 0);
}

/* ---- one BLK_READ ---- */

/* No lock. */
static void piece_send(struct read_piece *p)
{
	struct read_op *op = p->op;
	struct blk_read m = {
		.ino = op->in->ino,
		.index = p->index,
		.cut = p->cut,
		.off = p->off,
		.len = p->len,
		.block_log2 = p->block_log2,
	};
	struct wire_out o;

	wire_out_init(&o, p->body, sizeof(p->body));
	blk_read_encode(&o, &m);
	p->call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_READ,
		.flags = RPC_F_RETRY,
		.timeout_ms = op->c->opt.timeout_ms,
		.body = p->body,
		.body_len = (uint32_t)o.len,
		.cb = piece_answered,
	};
	blk_send(p->dev, &p->call);
}

void read_piece_fetch(struct read_piece *p)
{
	struct core *c = p->op->c;
	int err = -EIO;

	core_lock(c);
	p->dev = blk_dev_of(c, p->op->in->ino, p->index, &err);
	p->cut = p->op->in->attr.cut;
	if (c->fenced)
		p->dev = NULL;
	core_unlock(c);
	if (p->dev)
		piece_send(p);
	else
		piece_end(p, err);
}

int read_reply_check(const struct rpc_frame *f, uint32_t off, uint32_t len,
		     const uint8_t **bytes)
{
	struct blk_read_reply r;

	if (blk_read_reply_parse(f->body, f->h.body_len, &r))
		return -EBADMSG;
	if (r.hole) {
		*bytes = zeros;
		return f->h.data_len == 0 ? 0 : -EBADMSG;
	}
	*bytes = f->data;
	if (f->h.data_len != len)
		return -EBADMSG;
	return crc32c_check(off, f->data, len, r.sums.p, r.sums.len);
}

static void piece_bad(struct read_piece *p)
{
	struct read_op *op = p->op;

	core_lock(op->c);
	op->c->blk->n.bad_sums++;
	core_unlock(op->c);
	diag_err("core", "event=bad-checksum ino=%llu index=%llu blockd=%u "
		 "next=\"hailctl why shows the daemon; check its disk and "
		 "memory\"", (unsigned long long)op->in->ino,
		 (unsigned long long)p->index, p->dev->id);
	if (++p->bad < READ_BAD_MAX)
		read_piece_fetch(p);
	else
		piece_end(p, -EIO);
}

static void piece_answered(struct rpc_call *call, int status,
			   const struct rpc_frame *f)
{
	struct read_piece *p = container_of(call, struct read_piece, call);
	struct read_op *op = p->op;
	const uint8_t *bytes;

	if (status) {
		if (blk_retry(op->c, status))
			read_piece_fetch(p);
		else
			piece_end(p, status);
		return;
	}
	if (read_reply_check(f, p->off, p->len, &bytes)) {
		piece_bad(p);
		return;
	}
	/* The last one is answered from here, while the frame is there. */
	if (op->pending > 1 && bytes == f->data)
		p->frame = rpc_take_frame(f);
	read_piece_ready(p, bytes);
}

/* ---- planning; lock held ---- */

static struct read_piece *piece_add(struct read_op *op, uint64_t pos,
				    uint32_t len)
{
	struct read_piece *p = &op->pieces[op->piece_count];
	uint8_t log2 = op->in->attr.block_log2;

	*p = (struct read_piece){
		.op = op,
		.at = (uint32_t)(pos - op->off),
		.len = len,
		.index = pos >> log2,
		.off = (uint32_t)(pos & (((uint64_t)1 << log2) - 1)),
		.block_log2 = log2,
	};
	op->iov[op->piece_count++].iov_len = len;
	return p;
}

/* [pos, to) is not buffered and lies in one block. */
static void plan_gap(struct read_op *op, uint64_t pos, uint64_t to)
{
	struct core *c = op->c;

	while (pos < to) {
		uint64_t end = to;
		struct pf_entry *e = op->in->pf && !op->flat ?
				     pf_find(op->in, pos, &end) : NULL;
		uint64_t stop = u64_min(end, to);
		struct read_piece *p = piece_add(op, pos,
						 (uint32_t)(stop - pos));
		int err = 0;

		if (op->in->cut_busy) {
			/* Behind a truncate that the daemons do not know. */
			op->iov[op->piece_count - 1].iov_base =
				(void *)(uintptr_t)zeros;
			pos = stop;
			continue;
		}
		op->pending++;
		if (e) {
			pf_use(c, e, p, pos);
		} else {
			p->dev = blk_dev_of(c, op->in->ino, p->index, &err);
			p->cut = op->in->attr.cut;
			p->err = err;
			c->blk->n.reads++;
			c->blk->n.read_bytes += stop - pos;
		}
		pos = stop;
	}
}

static void plan_gap_blocks(struct read_op *op, uint64_t pos, uint64_t to)
{
	uint64_t block = (uint64_t)1 << op->in->attr.block_log2;

	while (pos < to) {
		uint64_t end = u64_min(to, u64_round_down(pos, block) + block);

		plan_gap(op, pos, end);
		pos = end;
	}
}

/* Each buffered extent and each gap is a piece of its own. */
static void plan_pieces(struct read_op *op)
{
	uint64_t pos = op->off, end = op->off + op->len;
	struct wbuf_ext *e = op->in->wb ? wbuf_find(&op->in->wb->buf, pos) :
					  NULL;

	while (pos < end) {
		uint64_t to = e ? u64_min(e->off, end) : end;
		struct read_piece *p;

		if (pos < to) {
			plan_gap_blocks(op, pos, to);
			pos = to;
			continue;
		}
		to = u64_min(e->off + e->len, end);
		p = piece_add(op, pos, (uint32_t)(to - pos));
		p->data = e->data;
		wbuf_data_get(e->data);
		op->iov[op->piece_count - 1].iov_base =
			e->data->bytes + e->data_off + (pos - e->off);
		pos = to;
		e = e->next;
	}
}

/* Gaps of a block are fetched as one, from the first to the last. */
static void plan_flat_gap(struct read_op *op, uint64_t pos, uint64_t to)
{
	uint64_t block = (uint64_t)1 << op->in->attr.block_log2;

	while (pos < to) {
		uint64_t end = u64_min(to, u64_round_down(pos, block) + block);
		struct read_piece *p = op->piece_count == 0 ? NULL :
				       &op->pieces[op->piece_count - 1];

		op->gaps[op->gap_count++] = (struct read_gap){
			.at = (uint32_t)(pos - op->off),
			.len = (uint32_t)(end - pos),
		};
		if (p && p->index == pos >> op->in->attr.block_log2) {
			p->len = (uint32_t)(end - op->off) - p->at;
			op->iov[op->piece_count - 1].iov_len = p->len;
		} else {
			plan_gap(op, pos, end);
		}
		pos = end;
	}
}

static void plan_flat(struct read_op *op)
{
	uint64_t pos = op->off, end = op->off + op->len;
	struct wbuf_ext *e = wbuf_find(&op->in->wb->buf, pos);

	while (pos < end) {
		uint64_t to = e ? u64_min(e->off, end) : end;

		if (pos < to) {
			plan_flat_gap(op, pos, to);
			pos = to;
			continue;
		}
		to = u64_min(e->off + e->len, end);
		memcpy(op->flat + (pos - op->off),
		       e->data->bytes + e->data_off + (pos - e->off),
		       (size_t)(to - pos));
		pos = to;
		e = e->next;
	}
}

static uint32_t exts_in(const struct read_op *op)
{
	const struct wbuf_ext *e;
	uint32_t count = 0;

	if (!op->in->wb)
		return 0;
	e = wbuf_find(&op->in->wb->buf, op->off);
	for (; e && e->off < op->off + op->len; e = e->next)
		count++;
	return count;
}

/* Memory for the worst case: gaps around each extent, cut at blocks and at the
 * ends of what was read ahead. */
static int read_alloc(struct read_op *op, uint32_t exts)
{
	uint8_t log2 = op->in->attr.block_log2;
	uint32_t blocks = (uint32_t)(((op->off + op->len - 1) >> log2) -
				     (op->off >> log2) + 1);
	bool flat = exts > READ_EXTS_MAX;
	uint32_t cuts = op->in->pf ? pf_count(op->in, op->off,
					      op->off + op->len) : 0;
	size_t count = (flat ? 0 : 2 * (size_t)exts) + blocks +
		       2 * (size_t)cuts;

	if (flat) {
		op->flat = malloc(op->len);
		op->gaps = malloc((exts + 1 + (size_t)blocks) *
				  sizeof(*op->gaps));
		if (!op->flat || !op->gaps)
			return -ENOMEM;
	}
	if (count == 1) {
		op->pieces = &op->piece_one;
		op->iov = &op->iov_one;
		return 0;
	}
	op->pieces = malloc(count * (sizeof(*op->pieces) + sizeof(*op->iov)));
	if (!op->pieces)
		return -ENOMEM;
	op->iov = (struct iovec *)(void *)(op->pieces + count);
	return 0;
}

static void read_getattr_done(void *arg, int err, const struct meta_attr *a)
{
	struct read_op *op = arg;

	(void)a;
	op->proved = true;
	if (err)
		read_answer(op, err == -ESTALE ? -EIO : err);
	else
		read_begin(op);
}

static void read_waited_go(struct core_deferred *d)
{
	struct read_op *op = container_of(d, struct read_op, def);

	if (op->err)
		read_answer(op, op->err);
	else
		read_begin(op);
}

static void read_waited(struct core_waiter *w, int err)
{
	struct read_op *op = container_of(w, struct read_op, wait);

	op->err = err;
	op->def.fn = read_waited_go;
	core_defer(op->c, &op->def);
}

/* Lock held. Returns 0 when the pieces are planned, 1 when the operation waits
 * or asks for attributes (*@ask), or -errno. */
static int read_plan(struct read_op *op, bool *ask)
{
	struct core *c = op->c;
	struct core_inode *in = op->in;
	uint32_t exts;
	int err = data_check(c, in);

	*ask = false;
	if (err)
		return err;
	if (in->cut_busy && (!in->cut_applied || op->off < in->cut_from)) {
		op->wait.fn = read_waited;
		op->proved = false;
		cut_wait(in, &op->wait);
		return 1;
	}
	if (!in->attr_valid ||
	    (!op->proved && (!meta_may_serve(c) ||
			     (!op->recovery && !share_readable(c, in))))) {
		*ask = true;
		return 1;
	}
	if (op->off >= in->attr.size)
		op->len = 0;
	else
		op->len = (uint32_t)u64_min(op->len, in->attr.size - op->off);
	op->err = 0;
	op->pending = 1;
	if (op->len == 0)
		return 0;
	exts = exts_in(op);
	err = read_alloc(op, exts);
	if (err)
		return err;
	if (op->flat)
		plan_flat(op);
	else
		plan_pieces(op);
	return 0;
}

/* No lock. */
static void read_begin(struct read_op *op)
{
	struct core *c = op->c;
	bool ask;
	int err;

	core_lock(c);
	err = read_plan(op, &ask);
	core_unlock(c);
	if (ask) {
		attr_get(c, op->in->ino, op->recovery, read_getattr_done, op);
		return;
	}
	if (err > 0)
		return;
	if (err < 0) {
		read_answer(op, err);
		return;
	}
	/* "and one" of pending keeps it alive over this loop. */
	for (uint32_t i = 0; i < op->piece_count; i++) {
		struct read_piece *p = &op->pieces[i];

		/* Somebody else fetches what it waits for in @pf; what is
		 * buffered here is not pending. */
		if (p->pf) {
			if (p->pf_bytes)
				read_piece_ready(p, p->pf_bytes);
		} else if (p->err) {
			piece_end(p, p->err);
		} else if (p->dev) {
			piece_send(p);
		}
	}
	if (--op->pending == 0)
		read_end(op);
}

/* Lock held. */
static struct read_op *read_new(struct core *c, struct core_inode *in,
				uint64_t off, size_t len, core_data_cb cb,
				void *arg)
{
	struct read_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->c = c;
	op->in = in;
	op->off = off;
	op->len = (uint32_t)u64_min(u64_min(len, FILE_SIZE_MAX - off),
				    1u << 30);
	op->cb = cb;
	op->arg = arg;
	inode_pin(in);
	return op;
}

void core_read_again(struct core *c, uint64_t ino, uint64_t off, size_t len,
		     core_data_cb cb, void *arg)
{
	struct core_inode *in;
	struct read_op *op = NULL;

	core_lock(c);
	in = inode_find(c, ino);
	if (in)
		op = read_new(c, in, off, len, cb, arg);
	core_unlock(c);
	if (op)
		read_begin(op);
	else
		cb(arg, in ? -ENOMEM : -ESTALE, NULL, 0, 0);
}

void core_read(struct core *c, struct core_file *f, uint64_t off, size_t len,
	       core_data_cb cb, void *arg)
{
	struct pf_entry *ahead;
	struct read_op *op;

	if (len == 0 || off > FILE_SIZE_MAX) {
		cb(arg, 0, NULL, 0, 0);
		return;
	}
	core_lock(c);
	op = read_new(c, f->in, off, len, cb, arg);
	if (!op) {
		core_unlock(c);
		cb(arg, -ENOMEM, NULL, 0, 0);
		return;
	}
	op->recovery = share_recovers(c, op->in);
	/* What may only write is read by the kernel, for a part of a page. */
	if (!(f->flags & O_NOATIME) && (f->flags & O_ACCMODE) != O_WRONLY)
		(void)inode_touch_atime(c, op->in);
	ahead = prefetch_note(c, f, off, op->len);
	core_unlock(c);
	read_begin(op);
	/* After what somebody waits for. */
	if (ahead)
		prefetch_send(c, ahead);
}
