/* SEEK_DATA and SEEK_HOLE: what is buffered here, and the units that daemons
 * have written (BLK_MAP). Unwritten (allocated) units are holes.
 *
 * Data: each daemon names its next stored blocks, however far; the nearest
 * written unit wins. Hole: windows of consecutive blocks, until a unit is
 * nobody's.
 */
#include "fuse/core/blk_priv.h"
#include "fuse/core/share.h"

#include <unistd.h>

#define MAP_COUNT 64u /* blocks asked of a daemon at once, for data */
#define HOLE_BLOCKS 256u /* a window, for holes */

struct seek_op;

struct seek_part {
	struct rpc_call call;
	struct seek_op *op;
	struct blk_dev *dev;
	uint64_t first; /* to ask from */
	bool done; /* this daemon has nothing more before op->last */
	uint8_t body[40];
};

struct seek_op {
	struct core *c;
	struct core_inode *in; /* pinned */
	int whence;
	uint64_t off, size;
	uint64_t *ret;
	core_cb cb;
	void *arg;
	uint8_t log2;
	uint64_t last; /* block index asked up to, inclusive */
	uint64_t found; /* nearest data so far */
	struct core_waiter wait;
	struct core_deferred def;
	_Atomic uint32_t pending;
	int err; /* lock */
	bool proved; /* metad has answered us since we last waited */
	uint8_t *bits; /* written or buffered units of the window; lock */
	uint64_t window; /* its first block */
	uint32_t part_count;
	struct seek_part parts[];
};

static void seek_round(struct seek_op *op);
static void seek_begin(struct seek_op *op);

static uint32_t units_per_block(const struct seek_op *op)
{
	return 1u << (op->log2 - UNIT_SHIFT);
}

static void seek_end(struct seek_op *op, int err, uint64_t off)
{
	struct core *c = op->c;

	core_lock(c);
	inode_unpin(c, op->in);
	core_unlock(c);
	if (!err)
		*op->ret = off;
	op->cb(op->arg, err);
	free(op->bits);
	free(op);
}

/* ---- one BLK_MAP's answer; lock held ---- */

static bool bit_of(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* A stored block, for SEEK_DATA. */
static void data_block(struct seek_op *op, uint64_t index, const uint8_t *bits)
{
	uint64_t start = index << op->log2;

	if (start >= op->found)
		return;
	for (uint32_t i = 0; i < units_per_block(op); i++) {
		uint64_t unit = start + (uint64_t)i * UNIT_SIZE;

		if (!bit_of(bits, i) || unit + UNIT_SIZE <= op->off)
			continue;
		op->found = u64_min(op->found, u64_max(unit, op->off));
		return;
	}
}

/* A stored block, for SEEK_HOLE. */
static void hole_block(struct seek_op *op, uint64_t index, const uint8_t *bits)
{
	uint32_t base;

	if (index < op->window || index > op->last)
		return;
	base = (uint32_t)(index - op->window) * units_per_block(op);
	for (uint32_t i = 0; i < units_per_block(op); i++)
		if (bit_of(bits, i))
			op->bits[(base + i) / 8] |=
				(uint8_t)(1u << ((base + i) % 8));
}

static int map_parse(struct seek_part *p, const struct rpc_frame *f)
{
	struct seek_op *op = p->op;
	uint32_t bits_len = (units_per_block(op) + 7) / 8;
	struct blk_map_reply r;
	struct wire_in in;
	uint64_t prev = 0;

	if (blk_map_reply_parse(f->body, f->h.body_len, &r) ||
	    r.entries.len != (uint64_t)r.count * (8 + bits_len))
		return -EBADMSG;
	wire_in_init(&in, r.entries.p, r.entries.len);
	for (uint32_t i = 0; i < r.count; i++) {
		uint64_t index = wire_get_u64(&in);
		const uint8_t *bits = in.p;

		in.p += bits_len;
		in.len -= bits_len;
		if (index < p->first || index > op->last ||
		    (i > 0 && index <= prev))
			return -EBADMSG;
		prev = index;
		if (op->whence == SEEK_DATA)
			data_block(op, index, bits);
		else
			hole_block(op, index, bits);
	}
	/* Going back would never end. */
	if (r.next != UINT64_MAX && r.next <= p->first)
		return -EBADMSG;
	p->done = r.next > op->last;
	p->first = r.next;
	return 0;
}

static void map_answered(struct rpc_call *call, int status,
			 const struct rpc_frame *f)
{
	struct seek_part *p = container_of(call, struct seek_part, call);
	struct seek_op *op = p->op;
	struct core *c = op->c;

	core_lock(c);
	if (!status)
		status = map_parse(p, f);
	if (status && !blk_retry(c, status) && !op->err)
		op->err = status;
	core_unlock(c);
	if (--op->pending == 0)
		seek_round(op);
}

/* ---- rounds; no lock ---- */

static void map_send(struct seek_part *p)
{
	struct seek_op *op = p->op;
	struct blk_map m = {
		.ino = op->in->ino,
		.first = p->first,
		.last = op->last,
		.count_max = op->whence == SEEK_DATA ? MAP_COUNT : HOLE_BLOCKS,
		.block_log2 = op->log2,
	};
	struct wire_out o;

	wire_out_init(&o, p->body, sizeof(p->body));
	blk_map_encode(&o, &m);
	p->call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_MAP,
		.flags = RPC_F_RETRY,
		.timeout_ms = op->c->opt.timeout_ms,
		.body = p->body,
		.body_len = (uint32_t)o.len,
		.cb = map_answered,
	};
	blk_send(p->dev, &p->call);
}

/* Asks those that may still have something. Returns false when nobody has. */
static bool ask_all(struct seek_op *op)
{
	uint32_t count = op->part_count;
	bool any = false;
	uint64_t found;

	core_lock(op->c);
	found = op->found; /* answers to the first lower it meanwhile */
	core_unlock(op->c);
	op->pending = 1;
	for (uint32_t i = 0; i < count; i++) {
		struct seek_part *p = &op->parts[i];

		if (p->done || p->first << op->log2 >= found)
			continue;
		op->pending++;
		any = true;
		map_send(p);
	}
	if (!any)
		return false;
	if (--op->pending == 0)
		seek_round(op);
	return true;
}

/* End of the window's data behind @pos. Returns the window's end when there
 * is none. */
static uint64_t hole_in_window(const struct seek_op *op, uint64_t pos)
{
	uint64_t start = op->window << op->log2;
	uint64_t end = (op->last + 1) << op->log2;

	while (pos < end && pos < op->size) {
		if (!bit_of(op->bits, (uint32_t)((pos - start) / UNIT_SIZE)))
			return pos;
		pos = u64_round_down(pos, UNIT_SIZE) + UNIT_SIZE;
	}
	return pos;
}

/* What is buffered counts as written. Taken before daemons are asked: content
 * may go to them, and from here, in between. */
static void window_buffered(struct seek_op *op)
{
	uint64_t start = op->window << op->log2;
	uint64_t end = (op->last + 1) << op->log2;
	struct core *c = op->c;
	const struct wbuf_ext *e;

	core_lock(c);
	e = op->in->wb ? wbuf_find(&op->in->wb->buf, start) : NULL;
	for (; e && e->off < end; e = e->next) {
		uint64_t i = (e->off - start) / UNIT_SIZE;
		uint64_t last = (e->off + e->len - 1 - start) / UNIT_SIZE;

		for (; i <= last; i++)
			op->bits[i / 8] |= (uint8_t)(1u << (i % 8));
	}
	core_unlock(c);
}

static void window_set(struct seek_op *op, uint64_t first)
{
	op->window = first;
	op->last = u64_min(first + HOLE_BLOCKS - 1,
			   (op->size - 1) >> op->log2);
	memset(op->bits, 0, (size_t)HOLE_BLOCKS * units_per_block(op) / 8);
	for (uint32_t i = 0; i < op->part_count; i++) {
		op->parts[i].first = first;
		op->parts[i].done = false;
	}
	window_buffered(op);
}

/* Everybody said all of the window. */
static void hole_window_done(struct seek_op *op)
{
	uint64_t end = (op->last + 1) << op->log2, pos;

	pos = hole_in_window(op, u64_max(op->off, op->window << op->log2));
	if (pos < end || pos >= op->size) {
		seek_end(op, 0, u64_min(pos, op->size));
		return;
	}
	window_set(op, op->last + 1);
	if (!ask_all(op))
		seek_end(op, 0, pos);
}

static void seek_round(struct seek_op *op)
{
	if (op->err) {
		seek_end(op, op->err == -ECANCELED ? -EIO : op->err, 0);
		return;
	}
	if (ask_all(op))
		return;
	if (op->whence == SEEK_HOLE)
		hole_window_done(op);
	else if (op->found >= op->size)
		seek_end(op, -ENXIO, 0);
	else
		seek_end(op, 0, op->found);
}

/* ---- the beginning ---- */

static void seek_go(struct core_deferred *d)
{
	struct seek_op *op = container_of(d, struct seek_op, def);

	if (op->err)
		seek_end(op, op->err, 0);
	else
		seek_begin(op);
}

static void seek_waited(struct core_waiter *w, int err)
{
	struct seek_op *op = container_of(w, struct seek_op, wait);

	op->err = err;
	op->def.fn = seek_go;
	core_defer(op->c, &op->def);
}

static void seek_known(void *arg, int err, const struct meta_attr *a)
{
	struct seek_op *op = arg;

	(void)a;
	op->proved = true;
	if (err)
		seek_end(op, err == -ESTALE ? -EIO : err, 0);
	else
		seek_begin(op);
}

/* Lock held. Returns 0, -errno, or 1 when it waits. */
static int seek_plan(struct seek_op *op, bool *ask)
{
	struct core *c = op->c;
	struct core_inode *in = op->in;
	const struct wbuf_ext *e;
	int err = data_check(c, in);

	*ask = false;
	if (err)
		return err;
	if (in->cut_busy) {
		op->wait.fn = seek_waited;
		op->proved = false;
		cut_wait(in, &op->wait);
		return 1;
	}
	if (!in->attr_valid || (!op->proved && (!meta_may_serve(c) ||
						!share_readable(c, in)))) {
		*ask = true;
		return 1;
	}
	op->size = in->attr.size;
	op->log2 = in->attr.block_log2;
	if (op->off >= op->size)
		return -ENXIO;
	e = in->wb ? wbuf_find(&in->wb->buf,
			       u64_round_down(op->off, UNIT_SIZE)) : NULL;
	op->found = UINT64_MAX;
	if (e)
		/* As if it were stored: whole units. */
		op->found = u64_max(op->off, u64_round_down(e->off,
							    UNIT_SIZE));
	op->bits = calloc(HOLE_BLOCKS, units_per_block(op) / 8);
	if (!op->bits)
		return -ENOMEM;
	op->part_count = 0;
	for (uint32_t i = 0;
	     c->blk->map && i < c->blk->map->daemon_count; i++) {
		struct seek_part *p = &op->parts[op->part_count++];

		*p = (struct seek_part){
			.op = op,
			.dev = c->blk->by_map[i],
			.first = op->off >> op->log2,
		};
		if (p->dev->state == CMAP_STATE_LOST)
			return -EIO;
	}
	return 0;
}

static void seek_begin(struct seek_op *op)
{
	struct core *c = op->c;
	bool ask;
	int err;

	free(op->bits);
	op->bits = NULL;
	core_lock(c);
	err = seek_plan(op, &ask);
	core_unlock(c);
	if (ask)
		core_getattr(c, op->in->ino, seek_known, op);
	else if (err < 0)
		seek_end(op, err, 0);
	if (err)
		return;
	if (op->whence == SEEK_HOLE) {
		op->found = UINT64_MAX;
		window_set(op, op->off >> op->log2);
	} else {
		op->last = (op->size - 1) >> op->log2;
	}
	seek_round(op);
}

void core_seek(struct core *c, uint64_t ino, uint64_t off, int whence,
	       uint64_t *off_ret, core_cb cb, void *arg)
{
	struct seek_op *op;

	if (whence != SEEK_DATA && whence != SEEK_HOLE) {
		cb(arg, -EINVAL);
		return;
	}
	op = calloc(1, sizeof(*op) + DAEMON_COUNT_MAX * sizeof(op->parts[0]));
	if (!op) {
		cb(arg, -ENOMEM);
		return;
	}
	op->c = c;
	op->off = off;
	op->whence = whence;
	op->ret = off_ret;
	op->cb = cb;
	op->arg = arg;
	core_lock(c);
	op->in = inode_get(c, ino);
	if (op->in)
		inode_pin(op->in);
	core_unlock(c);
	if (op->in) {
		seek_begin(op);
		return;
	}
	free(op);
	cb(arg, -ENOMEM);
}
