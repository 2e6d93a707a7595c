/* Allocation of blocks (fallocate): BLK_ALLOC block by block, several at once,
 * then SYNC of the daemons touched. Under the write lease, as writing: so the
 * units are counted also when this mount dies before it has told them. */
#include "fuse/core/blk_priv.h"

#include <linux/falloc.h>

#define ALLOC_WINDOW 16u

struct alloc_call {
	struct rpc_call call;
	struct alloc_op *op;
	struct core_deferred send;
	struct blk_dev *dev;
	bool busy;
	uint8_t body[48];
};

/* Allocates block after block, then makes it durable at each daemon; begins
 * anew when a daemon restarted in between. */
struct alloc_op {
	struct core *c;
	struct core_inode *in; /* pinned by the caller */
	uint64_t off, end;
	void (*done)(void *arg, int err);
	void *arg;
	struct core_waiter wait;
	uint64_t next; /* file offset */
	uint32_t busy;
	bool leased; /* durably */
	bool syncing, again, stale_now;
	uint32_t sync_next; /* dev index */
	uint32_t stale;
	int err;
	uint64_t boot[DAEMON_COUNT_MAX]; /* by dev index; 0: not touched */
	struct alloc_call calls[ALLOC_WINDOW];
};

static void alloc_step(struct alloc_op *a);

static void alloc_send(struct core_deferred *d)
{
	struct alloc_call *ac = container_of(d, struct alloc_call, send);

	blk_send(ac->dev, &ac->call);
}

/* Lock held. */
static void alloc_heard(struct alloc_call *ac, const struct blk_reply *r)
{
	struct alloc_op *a = ac->op;
	uint64_t *boot = &a->boot[ac->dev->index];

	wb_units_add(a->in, r->units_delta);
	a->in->units_version++;
	if (ac->call.resent)
		a->in->units_unsure = true;
	if (*boot == 0)
		*boot = r->boot_id;
	else if (*boot != r->boot_id)
		/* What it had counted may be lost, or not. */
		a->again = a->in->units_unsure = true;
	blk_dev_heard(ac->dev, r->boot_id, r->free_units);
}

static void alloc_answered(struct rpc_call *call, int status,
			   const struct rpc_frame *f)
{
	struct alloc_call *ac = container_of(call, struct alloc_call, call);
	struct alloc_op *a = ac->op;
	struct core *c = a->c;
	struct blk_reply r;

	if (status == 0 && blk_reply_parse(f->body, f->h.body_len, &r))
		status = -EIO;
	core_lock(c);
	ac->busy = false;
	a->busy--;
	if (status == 0)
		alloc_heard(ac, &r);
	else if (blk_retry(c, status))
		a->again = true;
	else if (status == -ESTALE && a->stale++ < STALE_MAX)
		a->again = a->stale_now = true; /* a cut ran in between */
	else if (!a->err)
		a->err = status == -ECANCELED ? -EIO : status;
	if (status == -ETIMEDOUT || status == -ECANCELED)
		a->in->units_unsure = true; /* it may be done, or be yet */
	alloc_step(a);
	core_unlock(c);
}

static void alloc_call_send(struct alloc_op *a, struct blk_dev *d,
			    uint16_t op, const struct wire_out *o)
{
	struct alloc_call *ac = a->calls;

	while (ac->busy)
		ac++;
	ac->busy = true;
	a->busy++;
	ac->op = a;
	ac->dev = d;
	memcpy(ac->body, o->p, o->len);
	ac->call = (struct rpc_call){
		.opcode = op,
		.flags = RPC_F_RETRY,
		.timeout_ms = d->c->opt.timeout_ms,
		.body = ac->body,
		.body_len = (uint32_t)o->len,
		.cb = alloc_answered,
	};
	ac->send.fn = alloc_send;
	core_defer(d->c, &ac->send);
}

/* Lock held. The part of one block from a->next on. */
static void alloc_block(struct alloc_op *a)
{
	struct core_inode *in = a->in;
	uint8_t log2 = in->attr.block_log2;
	uint64_t block = (uint64_t)1 << log2;
	uint64_t start = u64_round_down(a->next, block);
	uint64_t to = u64_min(a->end, start + block);
	struct blk_alloc m = {
		.ino = in->ino,
		.index = a->next >> log2,
		.cut = in->attr.cut,
		.off = (uint32_t)(a->next - start),
		.len = (uint32_t)(to - a->next),
		.block_log2 = log2,
	};
	uint8_t body[48];
	struct wire_out o;
	struct blk_dev *d = blk_dev_of(a->c, in->ino, m.index, &a->err);

	if (!d)
		return;
	wire_out_init(&o, body, sizeof(body));
	blk_alloc_encode(&o, &m);
	a->next = to;
	alloc_call_send(a, d, WIRE_OP_BLK_ALLOC, &o);
}

static void alloc_sync(struct alloc_op *a)
{
	struct core *c = a->c;
	struct blk_sync m = { .ino = a->in->ino };

	while (a->sync_next < c->blk->dev_count && a->busy < ALLOC_WINDOW) {
		uint32_t i = a->sync_next++;
		uint8_t body[8];
		struct wire_out o;

		if (a->boot[i] == 0)
			continue;
		wire_out_init(&o, body, sizeof(body));
		blk_sync_encode(&o, &m);
		alloc_call_send(a, c->blk->devs[i], WIRE_OP_BLK_SYNC, &o);
	}
}

static void alloc_restart(struct alloc_op *a)
{
	a->next = a->off;
	a->again = false;
	a->syncing = false;
	a->sync_next = 0;
	memset(a->boot, 0, sizeof(a->boot));
}

/* Lock held. */
static void alloc_end(struct alloc_op *a)
{
	void (*done)(void *arg, int err) = a->done;
	struct core_inode *in = a->in;
	void *arg = a->arg;
	int err = a->err;

	in->alloc_busy--;
	if (!a->c->stopping)
		ret_queue(a->c, in, RETURN_DELAY_MS);
	free(a);
	done(arg, err);
}

static void alloc_learned(void *arg)
{
	struct alloc_op *a = arg;
	struct core *c = a->c;

	core_lock(c);
	alloc_restart(a);
	alloc_step(a);
	core_unlock(c);
}

static void alloc_leased(struct core_waiter *w, int err)
{
	struct alloc_op *a = container_of(w, struct alloc_op, wait);

	a->err = err ? err : data_check(a->c, a->in);
	alloc_step(a);
}

/* Is the lease durable? Else alloc_leased() follows, or has been called. */
static bool alloc_may(struct alloc_op *a)
{
	if (a->leased)
		return true;
	a->leased = true; /* when it is asked again */
	if (a->in->lease_seq == 0)
		return true;
	a->wait.fn = alloc_leased;
	return meta_durable(a->c, a->in->lease_seq, &a->wait);
}

static void alloc_waited(struct core_waiter *w, int err)
{
	struct alloc_op *a = container_of(w, struct alloc_op, wait);

	a->err = err;
	alloc_step(a);
}

/* Lock held. */
static void alloc_step(struct alloc_op *a)
{
	if (a->err) {
		if (a->busy == 0)
			alloc_end(a);
		return;
	}
	if (a->again) {
		if (a->busy > 0)
			return;
		if (a->in->cut_busy) {
			a->wait.fn = alloc_waited;
			cut_wait(a->in, &a->wait);
			return;
		}
		if (a->stale_now) {
			a->stale_now = false;
			a->err = stale_learn(a->c, a->in, alloc_learned, a);
			if (a->err)
				alloc_end(a);
			return;
		}
		alloc_restart(a);
	}
	if (!alloc_may(a))
		return;
	if (!a->syncing) {
		while (a->next < a->end && a->busy < ALLOC_WINDOW && !a->err)
			alloc_block(a);
		if (a->busy > 0)
			return;
		a->syncing = true;
	}
	if (!a->err)
		alloc_sync(a);
	if (a->busy == 0)
		alloc_end(a);
}

int alloc_start(struct core *c, struct core_inode *in, uint64_t off,
		uint64_t end, void (*done)(void *arg, int err), void *arg)
{
	struct alloc_op *a = calloc(1, sizeof(*a));

	if (!a || lease_want(c, in)) {
		free(a);
		return -ENOMEM;
	}
	in->alloc_busy++;
	a->c = c;
	a->in = in;
	a->off = off;
	a->end = end;
	a->done = done;
	a->arg = arg;
	alloc_restart(a);
	alloc_step(a);
	return 0;
}

/* ---- what cannot be had at all ---- */

/* From here on the daemons are asked how large they are first: a length by
 * mistake would fill them, for everybody, before it fails. */
#define FIT_BYTES (64u << 20)

struct fit_op {
	struct core *c;
	uint64_t ino, off, len;
	int mode;
	bool kill;
	core_cb cb;
	void *arg;
	struct statvfs st;
};

static void fit_answered(void *arg, int err)
{
	struct fit_op *f = arg;

	if (!err && f->len / f->st.f_frsize > f->st.f_blocks)
		err = -ENOSPC;
	if (err)
		f->cb(f->arg, err);
	else
		cut_fallocate(f->c, f->ino, f->mode, f->off, f->len, f->kill,
			      f->cb, f->arg);
	free(f);
}

void core_fallocate(struct core *c, uint64_t ino, int mode, uint64_t off,
		    uint64_t len, bool kill, core_cb cb, void *arg)
{
	struct fit_op *f;

	if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE)) ||
	    len < FIT_BYTES || off > FILE_SIZE_MAX ||
	    len > FILE_SIZE_MAX - off) {
		cut_fallocate(c, ino, mode, off, len, kill, cb, arg);
		return;
	}
	f = malloc(sizeof(*f));
	if (!f) {
		cb(arg, -ENOMEM);
		return;
	}
	*f = (struct fit_op){ .c = c, .ino = ino, .off = off, .len = len,
			      .mode = mode, .kill = kill, .cb = cb,
			      .arg = arg };
	core_statfs(c, &f->st, fit_answered, f);
}
