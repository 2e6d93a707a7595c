/* statfs: what the daemons have, and what metad knows of inodes. */
#include "fuse/core/blk_priv.h"

#include "common/disk_share.h"

/* A daemon that does not answer is counted with what it said last. */
#define STATFS_WAIT_MS 3000u

struct statfs_op;

struct statfs_part {
	struct rpc_call call;
	struct statfs_op *op;
	struct blk_dev *dev;
	uint8_t body[8];
};

struct statfs_op {
	struct core *c;
	struct statvfs *st;
	core_cb cb;
	void *arg;
	int err;
	struct meta_statfs_reply m;
	_Atomic uint32_t pending;
	uint32_t part_count;
	struct disk_share shares[DAEMON_COUNT_MAX];
	struct statfs_part parts[];
};

static void statfs_fill(struct statfs_op *op)
{
	struct core *c = op->c;
	struct disk_sum sum;
	uint64_t dirty;

	core_lock(c);
	for (uint32_t i = 0; i < op->part_count; i++) {
		const struct blk_dev *d = op->parts[i].dev;

		op->shares[i] = (struct disk_share){
			d->units_total, d->units_free, d->units_more, d->disk,
		};
	}
	dirty = (c->blk->mem.dirty_bytes + UNIT_SIZE - 1) / UNIT_SIZE;
	core_unlock(c);
	disk_share_sum(op->shares, op->part_count, &sum);
	sum.units_avail -= u64_min(sum.units_avail, dirty);
	sum.units_free -= u64_min(sum.units_free, dirty);
	*op->st = (struct statvfs){
		.f_bsize = UNIT_SIZE,
		.f_frsize = UNIT_SIZE,
		.f_blocks = sum.units_total,
		.f_bfree = sum.units_free,
		.f_bavail = sum.units_avail,
		.f_files = op->m.inodes_max,
		.f_namemax = NAME_LEN_MAX,
	};
	op->st->f_ffree = op->m.inodes_max - u64_min(op->m.inodes,
						     op->m.inodes_max);
	op->st->f_favail = op->st->f_ffree;
}

static void statfs_part_end(struct statfs_op *op)
{
	if (--op->pending > 0)
		return;
	if (!op->err)
		statfs_fill(op);
	op->cb(op->arg, op->err);
	free(op);
}

static void stat_answered(struct rpc_call *call, int status,
			  const struct rpc_frame *f)
{
	struct statfs_part *p = container_of(call, struct statfs_part, call);
	struct core *c = p->op->c;
	struct blk_stat_reply r;

	if (status == 0 &&
	    blk_stat_reply_parse(f->body, f->h.body_len, &r) == 0) {
		core_lock(c);
		blk_dev_stat(p->dev, &r);
		core_unlock(c);
	}
	statfs_part_end(p->op);
}

static void meta_answered(struct meta_call *mc, int err, const uint8_t *body,
			  uint32_t body_len)
{
	struct statfs_op *op = mc->arg;

	if (!err && meta_statfs_reply_parse(body, body_len, &op->m))
		err = -EBADMSG;
	op->err = err;
	statfs_part_end(op);
}

static void statfs_send(struct statfs_op *op)
{
	uint32_t count = op->part_count; /* the last answer frees it */

	for (uint32_t i = 0; i < count; i++) {
		struct statfs_part *p = &op->parts[i];

		p->call = (struct rpc_call){
			.opcode = WIRE_OP_BLK_STAT,
			.flags = RPC_F_RETRY,
			.timeout_ms = STATFS_WAIT_MS,
			.body = p->body,
			.cb = stat_answered,
		};
		blk_send(p->dev, &p->call);
	}
	statfs_part_end(op);
}

void core_statfs(struct core *c, struct statvfs *st, core_cb cb, void *arg)
{
	struct statfs_op *op = calloc(1, sizeof(*op) +
				      DAEMON_COUNT_MAX * sizeof(op->parts[0]));
	struct meta_call *mc;
	struct wire_out o;

	if (!op) {
		cb(arg, -ENOMEM);
		return;
	}
	op->c = c;
	op->st = st;
	op->cb = cb;
	op->arg = arg;
	core_lock(c);
	for (uint32_t i = 0;
	     c->blk->map && i < c->blk->map->daemon_count; i++) {
		struct statfs_part *p = &op->parts[op->part_count++];

		p->op = op;
		p->dev = c->blk->by_map[i];
	}
	op->pending = op->part_count + 2; /* metad, and the sending */
	mc = c->fenced ? NULL : meta_call_new(c, WIRE_OP_META_STATFS, 8, &o);
	if (mc) {
		mc->done = meta_answered;
		mc->arg = op;
		meta_call_queue(mc, &o);
	} else {
		op->err = c->fenced ? -EIO : -ENOMEM;
		op->pending--;
	}
	core_unlock(c);
	statfs_send(op);
}
