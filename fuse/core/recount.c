/* How many units an inode has, asked from the daemons: after a write that was
 * sent twice, when the answers no longer add up to the truth. And what the
 * answers add up to, told at once.
 */
#include "fuse/core/blk_priv.h"

struct recount_part {
	struct rpc_call call;
	struct recount *op;
	struct blk_dev *dev;
	uint8_t body[16];
};

struct recount {
	struct core *c;
	struct core_inode *in; /* pinned */
	struct core_deferred def;
	uint32_t version; /* of the inode's units when it began */
	uint64_t units;
	bool failed;
	_Atomic uint32_t pending;
	uint32_t part_count;
	struct recount_part parts[];
};

static bool units_settled(const struct core_inode *in)
{
	return wb_inode_clean(in) && !in->cut_busy && in->alloc_busy == 0;
}

static void recount_end(struct recount *op)
{
	struct core *c = op->c;
	struct core_inode *in = op->in;

	core_lock(c);
	in->recounting = false;
	/* Else something was written meanwhile: it becomes clean again, and
	 * then this is done anew. A daemon may have counted what it has not
	 * answered yet, and the answer counts it, too. */
	if (!op->failed && in->units_version == op->version &&
	    units_settled(in)) {
		wb_units_add(in, (int64_t)(op->units - in->attr.units));
		in->units_unsure = false;
	}
	ret_queue(c, in, op->failed ? 1000 : 0);
	inode_unpin(c, in);
	core_unlock(c);
	free(op);
}

static void recount_part_end(struct recount *op)
{
	if (--op->pending == 0)
		recount_end(op);
}

static void end_answered(struct rpc_call *call, int status,
			 const struct rpc_frame *f)
{
	struct recount_part *p = container_of(call, struct recount_part, call);
	struct recount *op = p->op;
	struct blk_end_reply r;

	core_lock(op->c); /* protects units and failed */
	if (status == 0 &&
	    blk_end_reply_parse(f->body, f->h.body_len, &r) == 0)
		op->units += r.units;
	else
		op->failed = true;
	core_unlock(op->c);
	recount_part_end(op);
}

static void recount_send(struct core_deferred *d)
{
	struct recount *op = container_of(d, struct recount, def);
	struct blk_end m = { .ino = op->in->ino,
			     .block_log2 = op->in->attr.block_log2 };
	uint32_t count = op->part_count; /* the last answer frees it */

	for (uint32_t i = 0; i < count; i++) {
		struct recount_part *p = &op->parts[i];
		struct wire_out o;

		wire_out_init(&o, p->body, sizeof(p->body));
		blk_end_encode(&o, &m);
		p->call = (struct rpc_call){
			.opcode = WIRE_OP_BLK_END,
			.flags = RPC_F_RETRY,
			.timeout_ms = op->c->opt.timeout_ms,
			.body = p->body,
			.body_len = (uint32_t)o.len,
			.cb = end_answered,
		};
		blk_send(p->dev, &p->call);
	}
	recount_part_end(op);
}

void recount_start(struct core *c, struct core_inode *in)
{
	uint32_t count = c->blk->map ? c->blk->map->daemon_count : 0;
	struct recount *op =
		calloc(1, sizeof(*op) + count * sizeof(op->parts[0]));

	if (!op || count == 0 || !units_settled(in)) {
		/* The lease stays until it goes better. Whatever is under way
		 * queues the inode when it ends. */
		free(op);
		return;
	}
	op->c = c;
	op->in = in;
	op->version = in->units_version;
	op->pending = count + 1;
	op->part_count = count;
	for (uint32_t i = 0; i < count; i++) {
		op->parts[i].op = op;
		op->parts[i].dev = c->blk->by_map[i];
	}
	in->recounting = true;
	inode_pin(in);
	op->def.fn = recount_send;
	core_defer(c, &op->def);
}

/* ---- telling ---- */

static void units_told(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t body_len)
{
	(void)mc;
	(void)err; /* the cut behind it fails alike */
	(void)body;
	(void)body_len;
}

void units_send(struct core *c, struct core_inode *in)
{
	struct meta_setattr s = {
		.ino = in->ino,
		.valid = META_SET_UNITS_DELTA | META_SET_CTIME,
		.units_delta = in->units_delta,
		.ctime_ns = in->attr.ctime_ns,
	};
	struct meta_call *mc;
	struct wire_out w;

	if (in->units_delta == 0)
		return;
	mc = meta_call_new(c, WIRE_OP_META_SETATTR, meta_setattr_size(&s), &w);
	if (!mc) {
		in->units_unsure = true;
		return;
	}
	meta_setattr_encode(&w, &s);
	mc->done = units_told;
	in->units_delta = 0;
	meta_call_queue(mc, &w);
}
