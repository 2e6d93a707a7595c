/* Giving back to metad what this session knows or holds: sizes and times of
 * leased files, the leases themselves, orphans nobody has open, atimes. Many
 * in one command, when enough have come together or the oldest has waited.
 *
 * A size goes only when every byte under it is durable at the block daemons
 * (else metad could promise bytes that a crash takes away), so a file that is
 * dirty again by then is left out; the flusher queues it anew.
 */
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include "common/diag.h"

#include <sys/stat.h>

#define RET_BATCH_MAX 512u
#define RET_BATCH_NOW 256u /* so many waiting are sent without the timer */
#define RET_RETRY_MS 20u
#define RET_ORPHAN_MS 20u
#define RET_SLACK_MS 100u /* what is due soon goes along */
_Static_assert(RET_BATCH_MAX <= RETURN_COUNT_MAX, "a batch is one command");

struct ret {
	struct core *c;
	/* inodes by ret_next; protected by core->lock */
	struct core_inode *head, **tail;
	size_t count;
	struct rpc_timer timer; /* set up when first used */
	bool armed;
	uint64_t armed_ms;
	struct core_deferred arm; /* rpc_timer_start() after the unlock */
	bool arm_queued;
};

static void ret_tick(struct rpc_timer *t);
static void ret_arm_deferred(struct core_deferred *d);

int ret_new(struct core *c, struct ret **ret)
{
	struct ret *r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->c = c;
	r->tail = &r->head;
	r->timer.fn = ret_tick;
	r->arm.fn = ret_arm_deferred;
	*ret = r;
	return 0;
}

void ret_free(struct ret *r)
{
	free(r);
}

/* ---- one batch ---- */

/* One that another mount wants goes though handles are open, or operations
 * under way: these have put what they write into the buffer, or wait to ask for
 * it again. */
static bool may_return_lease(const struct core_inode *in)
{
	if (!in->leased || in->lease_pending || in->alloc_busy > 0 ||
	    in->log || in->recovering)
		return false;
	return in->recalled ||
	       (in->write_open_count == 0 && in->pin_count == 0);
}

/* Where other mounts may have the orphan open, it does not end with this. */
static uint32_t orphan_what(const struct core *c, const struct core_inode *in)
{
	uint32_t what = META_RETURN_ORPHAN;

	if (c->opt.shared && (in->size_dirty || in->units_delta != 0))
		what |= META_RETURN_SIZE;
	if (c->opt.shared && in->leased)
		what |= META_RETURN_LEASE;
	return what;
}

/* What can be said of @in now. 0: nothing. */
static uint32_t ret_what(const struct core *c, const struct core_inode *in)
{
	bool clean = !in->wb || wb_inode_clean(in);
	uint32_t what = 0;

	if (in->orphan && !inode_held(in) && !in->orphan_returned)
		return clean && in->pin_count == 0 ? orphan_what(c, in) : 0;
	if (in->orphan_returned || in->cut_busy)
		return 0;
	/* Of what is wrong here others need not wait. */
	if (in->bad)
		return clean && may_return_lease(in) && in->recalled ?
			       META_RETURN_LEASE : 0;
	if (in->atime_dirty)
		what |= META_RETURN_ATIME;
	if (!clean || in->units_unsure)
		return what;
	if (in->size_dirty || in->units_delta != 0)
		what |= META_RETURN_SIZE;
	if (may_return_lease(in))
		what |= META_RETURN_LEASE;
	return what;
}

/* Something is left to say of @in that only operations in flight hold up. */
static bool ret_later(const struct core_inode *in)
{
	if (in->orphan && !inode_held(in))
		return !in->orphan_returned;
	if ((in->bad && !in->recalled) || (in->wb && !wb_inode_clean(in)))
		return false; /* the flusher will queue it */
	if (in->units_unsure)
		return false; /* recount.c will */
	return (in->leased && (in->write_open_count == 0 || in->recalled)) ||
	       in->size_dirty;
}

/* Takes the state that is being told. */
static void ret_take(struct core *c, struct core_inode *in, uint32_t what,
		     struct wire_out *o)
{
	struct meta_return r = {
		.ino = in->ino,
		.what = what,
		.size = in->attr.size,
		.units_delta = in->units_delta,
		.atime_ns = in->attr.atime_ns,
		.mtime_ns = in->attr.mtime_ns,
		.ctime_ns = in->attr.ctime_ns,
	};
	meta_return_encode(o, &r);
	if (what & META_RETURN_SIZE) {
		in->size_dirty = false;
		in->units_delta = 0;
	}
	if (what & META_RETURN_LEASE) {
		in->leased = false;
		in->lease_back_seq = meta_last_seq(c) + 1;
		share_returned(c, in);
	}
	if (what & META_RETURN_ATIME)
		in->atime_dirty = false;
	if (what & META_RETURN_ORPHAN) {
		in->orphan_returned = true;
		in->leased = false;
		in->size_dirty = false;
		in->atime_dirty = false;
		in->units_delta = 0;
		in->attr_valid = false;
	}
	in->ret_inflight++;
}

static void ret_done(struct meta_call *mc, int err, const uint8_t *body,
		     uint32_t len)
{
	struct core *c = mc->c;
	struct wire_in in;
	(void)body;
	(void)len;

	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	if (err && !c->stopping)
		diag_err("meta", "event=return_failed error=\"%s\"",
			 strerror(-err));
	core_lock(c);
	while (in.len > 0 && !in.bad) {
		struct meta_return r;
		meta_return_decode(&in, &r);
		struct core_inode *ci = inode_find(c, r.ino);
		if (!ci || ci->ret_inflight == 0)
			continue;
		ci->ret_inflight--;
		if (err && (r.what & META_RETURN_SIZE))
			ci->bad = true; /* fsync had promised this size */
		/* Who asked while it was buffered was told an estimate, which
		 * may be wrong also where nothing was added. */
		if ((r.what & META_RETURN_SIZE) && wb_units_stale(ci)) {
			ci->units_kept = false;
			inode_tell_changed(c, r.ino);
		}
		inode_maybe_free(c, ci);
	}
	core_unlock(c);
}

static struct core_inode *ret_pop(struct ret *r)
{
	struct core_inode *in = r->head;
	r->head = in->ret_next;
	if (!r->head)
		r->tail = &r->head;
	r->count--;
	in->ret_next = NULL;
	in->ret_queued = false;
	return in;
}

static void ret_push(struct ret *r, struct core_inode *in, uint64_t due_ms)
{
	assert(!in->ret_queued); /* twice on the list would cut it short */
	in->ret_queued = true;
	in->ret_due_ms = due_ms;
	in->ret_next = NULL;
	*r->tail = in;
	r->tail = &in->ret_next;
	r->count++;
}

/* Fills one command from the first @left entries of the queue. Returns how
 * many of them were looked at. */
static size_t ret_fill(struct ret *r, size_t left, uint64_t now, bool all,
		       struct wire_out *o, unsigned *items)
{
	size_t seen = 0;
	while (seen < left && *items < RET_BATCH_MAX) {
		struct core_inode *in = ret_pop(r);
		seen++;
		if (!all && in->ret_due_ms > now + RET_SLACK_MS &&
		    r->count < RET_BATCH_NOW) {
			ret_push(r, in, in->ret_due_ms);
			continue;
		}
		/* Another mount may have it open. */
		bool drop = in->orphan && !inode_held(in) && in->wb &&
			    !wb_inode_clean(in) && !r->c->opt.shared;
		if (drop)
			wb_inode_discard(r->c, in);
		uint32_t what = ret_what(r->c, in);
		if (what) {
			ret_take(r->c, in, what, o);
			(*items)++;
		}
		/* At the end the lease stays, and metad counts itself. */
		if (in->units_unsure && !in->orphan && !in->bad &&
		    !in->recounting && !r->c->stopping &&
		    (!in->wb || wb_inode_clean(in)))
			recount_start(r->c, in);
		/* Operations in flight, and writes before a purge, must end.
		 * What became clean by being dropped is queued already. */
		if (in->ret_queued)
			continue;
		if (ret_later(in))
			ret_push(r, in, now + RET_RETRY_MS);
		else
			inode_maybe_free(r->c, in);
	}
	return seen;
}

/* Lock held. @all: without regard to due times. */
static void ret_send(struct ret *r, bool all)
{
	const struct meta_return none = { 0 };
	const size_t item_size = meta_return_size(&none);
	uint64_t now = core_now_ms();
	size_t left = r->count;

	while (left > 0) {
		size_t room = left < RET_BATCH_MAX ? left : RET_BATCH_MAX;
		struct wire_out o;
		struct meta_call *mc = meta_call_new(r->c, WIRE_OP_META_RETURN,
						     room * item_size, &o);
		unsigned count = 0;
		if (!mc)
			return; /* they stay queued; the timer comes again */
		left -= ret_fill(r, room, now, all, &o, &count);
		if (count == 0) {
			meta_call_free(mc);
			continue;
		}
		mc->done = ret_done;
		r->c->count.returns++;
		meta_call_queue(mc, &o);
	}
}

/* ---- the timer ---- */

/* Lock held: the timer shall come at @due_ms, or before. */
static void ret_arm(struct ret *r, uint64_t due_ms)
{
	if ((r->armed && r->armed_ms <= due_ms) || r->c->stopping)
		return;
	r->armed = true;
	r->armed_ms = due_ms;
	if (r->arm_queued)
		return;
	r->arm_queued = true;
	core_defer(r->c, &r->arm);
}

static void ret_arm_deferred(struct core_deferred *d)
{
	struct ret *r = container_of(d, struct ret, arm);
	uint64_t now = core_now_ms(), due;
	core_lock(r->c);
	r->arm_queued = false;
	due = r->armed_ms;
	core_unlock(r->c);
	rpc_timer_start(r->c->net, &r->timer, due > now ? due - now : 0);
}

static void ret_tick(struct rpc_timer *t)
{
	struct ret *r = container_of(t, struct ret, timer);
	core_lock(r->c);
	r->armed = false;
	if (!r->c->stopping) {
		uint64_t due = UINT64_MAX;
		ret_send(r, false);
		for (const struct core_inode *in = r->head; in;
		     in = in->ret_next)
			due = u64_min(due, in->ret_due_ms);
		if (r->head)
			ret_arm(r, due);
	}
	core_unlock(r->c);
}

/* ---- queueing ---- */

void ret_queue(struct core *c, struct core_inode *in, uint64_t delay_ms)
{
	struct ret *r = c->ret;
	uint64_t now = core_now_ms();

	if (!in->ret_queued)
		ret_push(r, in, now + delay_ms);
	else if (now + delay_ms < in->ret_due_ms)
		in->ret_due_ms = now + delay_ms;
	/* Not from here: the caller still uses its inode. */
	if (r->count >= RET_BATCH_NOW)
		in->ret_due_ms = now;
	ret_arm(r, in->ret_due_ms);
}

void ret_unheld(struct core *c, struct core_inode *in)
{
	if (!in->orphan || in->orphan_returned || inode_held(in))
		return;
	if (in->wb && !wb_inode_clean(in) && !c->opt.shared)
		wb_inode_discard(c, in);
	ret_queue(c, in, RET_ORPHAN_MS);
}

void ret_orphan(struct core *c, uint64_t ino)
{
	struct core_inode *in = inode_get(c, ino);
	if (!in)
		return; /* stays an orphan until the session ends */
	in->orphan = true;
	/* A directory has one name, which the kernel knows to be gone. */
	if (c->opt.shared && !(in->attr_valid && S_ISDIR(in->attr.mode)))
		in->handles_only = true;
	if (in->attr_valid)
		in->attr.nlink = 0;
	c->count.orphans++;
	ret_unheld(c, in);
}

void ret_flush_all(struct core *c)
{
	for (size_t i = 0; i < c->inode_hash_size; i++)
		for (struct core_inode *in = c->inode_hash[i]; in;
		     in = in->hash_next)
			if (!in->ret_queued && ret_what(c, in))
				ret_push(c->ret, in, 0);
	ret_send(c->ret, true);
}

/* ---- the write lease ---- */

static void lease_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct meta_attr a;
	struct wire_in in;

	if (!err)
		err = meta_reply_attr(body, len, &a, &in);
	core_lock(c);
	struct core_inode *ci = inode_find(c, mc->arg64);
	if (ci && err) {
		diag_err("meta", "event=lease_failed ino=%llu error=\"%s\"",
			 (unsigned long long)ci->ino, strerror(-err));
		ci->bad = true;
		ci->leased = false;
	} else if (ci) {
		inode_merge(c, ci, &a, NULL);
	}
	core_unlock(c);
}

int lease_want(struct core *c, struct core_inode *in)
{
	struct wire_out o;
	if (in->leased)
		return 0;
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_LEASE, 8, &o);
	if (!mc)
		return -ENOMEM;
	wire_put_u64(&o, in->ino);
	mc->done = lease_done;
	mc->arg64 = in->ino;
	in->leased = true;
	c->count.leases++;
	meta_call_queue(mc, &o);
	in->lease_seq = meta_last_seq(c);
	inode_mutated(in, in->lease_seq);
	return 0;
}
