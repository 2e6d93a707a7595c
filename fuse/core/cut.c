/* Explicit changes of a file's extent: truncate, punch, zero range, allocate.
 *
 * What removes content is ordered by metad (META_CUT) and raises the cut
 * number that block writes carry. While one is under way the inode has
 * cut_busy: no frame of it is sent and nobody reads or writes it.
 *
 * A truncate does not make the user wait: it is applied here and answered, and
 * is in the stream before anything that follows. New content is buffered until
 * the daemons have cut; fsync waits for both.
 */
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include "common/diag.h"

#include <linux/falloc.h>

struct cut_op {
	struct core *c;
	struct core_inode *in; /* pinned */
	/* what is asked */
	bool truncate;
	bool undo; /* of a write that failed: it waits for no lease */
	bool recovery; /* share_recovers() */
	int mode; /* fallocate */
	uint64_t off, end; /* fallocate's range; truncate: off is the size */
	bool killpriv;
	core_attr_cb attr_cb; /* truncate */
	core_cb cb; /* fallocate */
	void *arg;
	/* on the way */
	struct core_waiter wait;
	struct log_wait log;
	bool logged; /* the log has it: writes are held up */
	bool ordered; /* logs before it are in the blocks */
	struct wb_op idle;
	struct core_deferred def;
	struct dlist node; /* blk_client.cuts, while cut_busy is ours */
	struct meta_call *call; /* META_CUT; memory for it, before it is sent */
	struct wire_out call_out;
	bool ahead; /* applied and answered before metad knows */
	bool told; /* answered: ahead, or a soft mount waits no longer */
	uint64_t due_ms; /* of a soft mount */
	int64_t mtime_ns; /* given then */
	uint64_t size_now; /* truncate: before the cut */
	uint64_t size; /* and after it */
	int err;
	struct meta_attr attr;
};

static void cut_start(struct cut_op *o);
static void cut_done(struct cut_op *o, int err);

/* ---- waiting for a cut ---- */

void cut_wait(struct core_inode *in, struct core_waiter *w)
{
	struct core_waiter **at = &in->cut_waiters;

	while (*at)
		at = &(*at)->next;
	w->next = NULL;
	*at = w;
}

static void cut_leave(struct core *c, struct core_inode *in)
{
	struct core_waiter *w = in->cut_waiters;

	assert(in->cut_busy == 1);
	in->cut_busy = 0;
	in->cut_applied = false;
	in->cut_waiters = NULL;
	/* Who finds another cut begun waits again, in the same order. */
	core_waiters_run(w, 0);
	if (in->wb) {
		in->wb->reflush = true;
		wb_dirtied(c, in);
		wb_step(c, in, 0, UINT64_MAX);
	}
	log_order_again(c);
	if (!c->stopping)
		ret_queue(c, in, RETURN_DELAY_MS);
	wb_wake(c);
}

void cut_each(struct core *c, void (*fn)(void *arg, struct core_inode *in),
	      void *arg)
{
	struct dlist *l, *save;

	dlist_for(l, save, &c->blk->cuts)
		fn(arg, dlist_entry(l, struct cut_op, node)->in);
}

/* ---- an answer before the end ---- */

struct cut_answer {
	struct core_deferred def;
	core_attr_cb attr_cb;
	core_cb cb;
	void *arg;
	int err;
	struct meta_attr attr;
};

static void cut_answer_tell(struct core_deferred *d)
{
	struct cut_answer *t = container_of(d, struct cut_answer, def);

	if (t->attr_cb)
		t->attr_cb(t->arg, t->err, t->err ? NULL : &t->attr);
	else
		t->cb(t->arg, t->err);
	free(t);
}

/* The kernel is going to have @a: with the units of what is still buffered. */
static void attr_told(struct cut_op *o, int err, struct meta_attr *a)
{
	if (o->truncate && !err)
		a->units = wb_units_tell(o->in);
}

static void cut_answer_set(struct cut_op *o, struct cut_answer *t, int err)
{
	*t = (struct cut_answer){
		.def.fn = cut_answer_tell,
		.attr_cb = o->attr_cb,
		.cb = o->cb,
		.arg = o->arg,
		.err = err,
		.attr = o->in->attr,
	};
	attr_told(o, err, &t->attr);
	o->told = true;
	core_defer(o->c, &t->def);
}

/* Lock held. Without memory it is told some time later. */
static void cut_tell(struct cut_op *o, int err)
{
	struct cut_answer *t = o->told ? NULL : malloc(sizeof(*t));

	if (t)
		cut_answer_set(o, t, err);
}

/* Who waits for frames that go only behind the cut is told, too. */
static void cut_held_up(struct core *c, struct core_inode *in)
{
	struct dlist *l, *save;
	bool any = false;

	if (!in->wb)
		return;
	dlist_for(l, save, &in->wb->ops)
		any |= dlist_entry(l, struct wb_op, node)->kind != WB_OP_IDLE;
	if (!any)
		return;
	wb_held_up(c, in, -ETIMEDOUT);
	wb_step(c, in, 0, UINT64_MAX);
}

void cut_expire(struct core *c, uint64_t now_ms)
{
	struct dlist *l, *save;

	dlist_for(l, save, &c->blk->cuts) {
		struct cut_op *o = dlist_entry(l, struct cut_op, node);
		struct core_waiter *w = o->in->cut_waiters;

		if (o->due_ms > now_ms)
			continue;
		cut_tell(o, -ETIMEDOUT);
		o->in->cut_waiters = NULL;
		core_waiters_run(w, -ETIMEDOUT);
		cut_held_up(c, o->in);
	}
}

/* ---- the end ---- */

static void cut_callback(struct core_deferred *d)
{
	struct cut_op *o = container_of(d, struct cut_op, def);

	if (o->told)
		; /* answered before */
	else if (o->truncate)
		o->attr_cb(o->arg, o->err, o->err ? NULL : &o->attr);
	else
		o->cb(o->arg, o->err);
	free(o);
}

/* It was said to have failed, and is done now, or a part of it. Lock held. */
static void cut_seen_late(struct cut_op *o)
{
	const int removes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;

	if (o->truncate || !(o->mode & removes))
		inode_tell_changed(o->c, o->in->ino);
	else
		inode_tell_content(o->c, o->in->ino, o->off, o->end - o->off);
}

/* Lock held. */
static void cut_done(struct cut_op *o, int err)
{
	if (o->told && !o->ahead)
		cut_seen_late(o);
	o->err = err;
	o->attr = o->in->attr;
	if (!o->told)
		attr_told(o, err, &o->attr);
	dlist_del(&o->node);
	inode_unpin(o->c, o->in);
	o->def.fn = cut_callback;
	core_defer(o->c, &o->def);
}

/* ---- META_SETATTR: growth and times ---- */

static void setattr_done(struct meta_call *mc, int err, const uint8_t *body,
			 uint32_t body_len)
{
	struct cut_op *o = mc->arg;
	struct core *c = o->c;
	struct meta_attr a;

	if (!err)
		err = meta_reply_attr_of(o->in->ino, body, body_len, &a);
	core_lock(c);
	o->in->size_inflight--;
	if (!err)
		inode_merge(c, o->in, &a, NULL);
	else if (!inode_owns(o->in))
		o->in->attr_valid = false; /* what we took for true is not */
	cut_done(o, err);
	core_unlock(c);
}

static void setattr_late(struct meta_call *mc)
{
	struct cut_op *o = mc->arg;

	core_lock(o->c);
	cut_tell(o, -ETIMEDOUT);
	core_unlock(o->c);
}

/* Lock held. The new size (if larger) and times, in the stream. */
static void setattr_send(struct cut_op *o, uint64_t size)
{
	struct core *c = o->c;
	struct core_inode *in = o->in;
	int64_t now = core_now_ns();
	struct meta_setattr s = {
		.ino = in->ino,
		.valid = META_SET_MTIME | META_SET_CTIME,
		.size = size,
		.mtime_ns = now,
		.ctime_ns = now,
	};
	struct meta_call *mc;
	struct wire_out w;

	/* As of a write in its cache the kernel tells the times of an
	 * allocation; a later ctime of ours would be seen when it forgets. */
	if (!o->truncate && c->opt.kernel_writeback) {
		s.mtime_ns = in->attr.mtime_ns;
		s.ctime_ns = in->attr.ctime_ns;
	}
	if (size > in->attr.size)
		s.valid |= META_SET_SIZE;
	if (o->killpriv)
		s.valid |= META_SET_KILLPRIV;
	mc = meta_call_new(c, WIRE_OP_META_SETATTR, meta_setattr_size(&s), &w);
	if (!mc) {
		cut_done(o, -ENOMEM);
		return;
	}
	meta_setattr_encode(&w, &s);
	mc->done = setattr_done;
	mc->arg = o;
	/* The order of the stream makes it true at once, and ours: a write that
	 * starts before the answer must build on it, and an answer that is on
	 * its way must not take it back. */
	in->size_inflight++;
	in->attr.size = u64_max(in->attr.size, size);
	in->attr.mtime_ns = s.mtime_ns;
	in->attr.ctime_ns = s.ctime_ns;
	mc->timed_out = setattr_late;
	meta_call_queue(mc, &w);
	inode_mutated(in, mc->seq);
}

/* ---- META_CUT ---- */

static uint64_t cut_from(const struct cut_op *o)
{
	return o->off;
}

static uint64_t cut_to(const struct cut_op *o)
{
	return o->truncate ? BLK_CUT_TO_END : o->end;
}

/* The daemons have cut: our view and our buffer follow. Lock held. */
static int cut_apply(struct cut_op *o, const struct meta_attr *a)
{
	struct core *c = o->c;
	struct core_inode *in = o->in;
	int err = 0;

	inode_merge(c, in, a, NULL);
	in->attr.cut = a->cut;
	/* and ours that metad has not been told: see wb_units_add() */
	if (in->units_delta < -(int64_t)a->units)
		in->units_delta = -(int64_t)a->units;
	in->attr.units = a->units + (uint64_t)in->units_delta;
	in->units_version++; /* a count under way is of before */
	if (o->ahead) {
		/* Size, content and later times are newer than that. */
		if (in->attr.mtime_ns == o->mtime_ns)
			in->attr.mtime_ns = a->mtime_ns;
		if (in->attr.ctime_ns == o->mtime_ns)
			in->attr.ctime_ns = a->ctime_ns;
		return 0;
	}
	if (o->truncate)
		in->attr.size = o->size;
	in->attr.mtime_ns = a->mtime_ns;
	in->attr.ctime_ns = a->ctime_ns;
	if (in->wb)
		err = wbuf_cut(&in->wb->buf, cut_from(o), cut_to(o));
	if (in->pf)
		prefetch_drop(c, in, cut_from(o), cut_to(o));
	if (o->truncate && o->size == 0 && !c->fenced) {
		/* Whatever was lost is not part of the file any more. */
		in->bad = false;
		in->wb_error = 0;
	}
	return err;
}

/* A truncate that the user was told of has failed. */
static void ahead_failed(struct core_inode *in, int err)
{
	diag_err("core", "event=truncate-failed ino=%llu err=%d "
		 "next=\"truncate it to 0 to use it again\"",
		 (unsigned long long)in->ino, -err);
	in->bad = true;
	in->wb_error = (uint32_t)-err;
	in->error_count++;
}

static void cut_alloc(struct cut_op *o);

/* The cut is over, and the attributes are in o->attr. Lock held. */
static void cut_over(struct cut_op *o, int err)
{
	struct core *c = o->c;
	struct core_inode *in = o->in;

	if (!err)
		err = cut_apply(o, &o->attr);
	if (err && o->ahead)
		ahead_failed(in, err);
	inode_pin(in);
	/* Who looks for cuts under way must not wait for the allocation: with
	 * the cut's end nobody wakes him. */
	dlist_del(&o->node);
	if (!err && !o->truncate && (o->mode & FALLOC_FL_ZERO_RANGE))
		cut_alloc(o);
	else
		cut_done(o, err);
	cut_leave(c, in);
	inode_unpin(c, in);
}

static void cut_asked(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t body_len)
{
	struct cut_op *o = mc->arg;
	struct core *c = o->c;
	struct meta_attr a;

	core_lock(c);
	if (!err && meta_reply_attr_of(o->in->ino, body, body_len, &a) == 0)
		o->attr = a;
	cut_over(o, 0);
	core_unlock(c);
}

/* Lock held. Returns false without memory. */
static bool cut_ask(struct cut_op *o)
{
	struct wire_out w;
	struct meta_call *mc = meta_call_new(o->c, WIRE_OP_META_GETATTR, 8, &w);

	if (!mc)
		return false;
	wire_put_u64(&w, o->in->ino);
	mc->done = cut_asked;
	mc->arg = o;
	meta_call_queue(mc, &w);
	return true;
}

static void cut_answered(struct meta_call *mc, int err, const uint8_t *body,
			 uint32_t body_len)
{
	struct cut_op *o = mc->arg;
	struct core *c = o->c;

	if (!err)
		err = meta_reply_attr_of(o->in->ino, body, body_len, &o->attr);
	core_lock(c);
	/* metad answers when the end of the cut is durable, and changes that
	 * are executed until then are answered first: they would be undone by
	 * its attributes. */
	if (err || o->in->meta_pos_seq <= mc->seq || !cut_ask(o))
		cut_over(o, err);
	core_unlock(c);
}

static void cut_failed(struct core_deferred *d)
{
	struct cut_op *o = container_of(d, struct cut_op, def);
	struct core *c = o->c;
	struct core_inode *in = o->in;

	core_lock(c);
	inode_pin(in);
	if (o->ahead)
		ahead_failed(in, o->err);
	cut_done(o, o->err);
	cut_leave(c, in);
	inode_unpin(c, in);
	core_unlock(c);
}

/* NULL: no memory. */
static struct meta_call *cut_call(struct cut_op *o)
{
	const struct meta_cut any = { 0 };

	if (!o->call)
		o->call = meta_call_new(o->c, WIRE_OP_META_CUT,
					meta_cut_size(&any), &o->call_out);
	return o->call;
}

/* Nothing of the inode is in flight. Lock held. */
static void cut_send(struct cut_op *o)
{
	struct core *c = o->c;
	struct core_inode *in = o->in;
	/* Allocation that ended meanwhile may have made the file longer. */
	struct meta_cut m = {
		.ino = in->ino,
		.from = cut_from(o),
		.to = cut_to(o),
		.size_now = o->truncate ? o->size_now : in->attr.size,
		.size = o->truncate ? o->size : in->attr.size,
		.flags = o->killpriv ? META_CUT_KILLPRIV : 0,
	};
	struct meta_call *mc = cut_call(o);

	units_send(c, in);
	if (!mc) {
		/* Not from here: who waits must not run inside wb_step(). */
		o->err = -ENOMEM;
		o->def.fn = cut_failed;
		core_defer(c, &o->def);
		return;
	}
	meta_cut_encode(&o->call_out, &m);
	mc->done = cut_answered;
	mc->arg = o;
	meta_call_queue(mc, &o->call_out);
	inode_mutated(in, mc->seq);
}

static void cut_idle(struct wb_op *op, int err)
{
	(void)err; /* a frame that failed is not in flight either */
	cut_send(container_of(op, struct cut_op, idle));
}

/* Lock held. */
static void cut_begin(struct cut_op *o)
{
	struct core_inode *in = o->in;

	in->cut_busy = 1;
	o->due_ms = core_now_ms() + o->c->opt.timeout_ms;
	/* Nobody knows whether it cuts what is being allocated. */
	if (in->alloc_busy > 0)
		in->units_unsure = true;
	dlist_add(&o->c->blk->cuts, &o->node);
	if (!o->ahead)
		o->size_now = in->attr.size;
	log_order_send_back(o->c, in);
	if (!in->wb || in->wb->buf.flight_count == 0) {
		cut_send(o);
		return;
	}
	o->idle.kind = WB_OP_IDLE;
	o->idle.fn = cut_idle;
	wb_op_add(in, &o->idle);
}

/* ---- allocation ---- */

/* Lock held. */
static void cut_allocated(void *arg, int err)
{
	struct cut_op *o = arg;
	bool grow = !(o->mode & FALLOC_FL_KEEP_SIZE);

	if (err)
		cut_done(o, err);
	else
		setattr_send(o, grow ? o->end : 0);
}

static void cut_alloc(struct cut_op *o)
{
	if (alloc_start(o->c, o->in, o->off, o->end, cut_allocated, o))
		cut_done(o, -ENOMEM);
}

/* ---- deciding ---- */

static void truncate_apply(struct cut_op *o)
{
	struct core_inode *in = o->in;
	struct meta_attr *a = &in->attr;
	uint64_t units = (o->off + UNIT_SIZE - 1) / UNIT_SIZE;

	o->ahead = true;
	o->size_now = a->size;
	in->cut_applied = true;
	in->cut_from = o->off;
	a->size = o->off;
	a->units = u64_min(a->units, units);
	o->mtime_ns = core_now_ns();
	a->mtime_ns = a->ctime_ns = o->mtime_ns;
	if (in->pf)
		prefetch_drop(o->c, in, o->off, UINT64_MAX);
}

/* Has set-id bits or capabilities to lose. Those are metad's to take: an
 * answer that is on its way must not bring them back, nor the cut, which goes
 * later, take away what a chmod() set after it. */
static bool kills(const struct cut_op *o)
{
	const struct meta_attr *a = &o->in->attr;

	return o->killpriv && (mode_killed(a->mode) != a->mode ||
			       (a->flags & META_ATTR_CAPS));
}

/* Applies it here and answers. Returns false when that cannot be. */
static bool truncate_ahead(struct cut_op *o)
{
	struct core_inode *in = o->in;
	struct cut_answer *t = malloc(sizeof(*t));

	/* What was answered must not fail for want of memory. The lease:
	 * answers that were on the way must not bring the old size back. */
	if (!t || !cut_call(o) || lease_want(o->c, in) ||
	    (in->wb && wbuf_cut(&in->wb->buf, o->off, UINT64_MAX))) {
		free(t);
		return false;
	}
	truncate_apply(o);
	cut_answer_set(o, t, 0);
	return true;
}

/* Lock held; nobody else cuts. */
static void truncate_go(struct cut_op *o)
{
	struct core_inode *in = o->in;
	uint64_t units = (o->off + UNIT_SIZE - 1) / UNIT_SIZE;

	o->size = o->off;
	in->emptied = o->off == 0;
	/* Blocks may also have been allocated behind the end. */
	if (o->off < in->attr.size || in->bad ||
	    (o->off == in->attr.size && in->attr.units > units)) {
		if (!o->told && !in->bad && !kills(o) && meta_may_serve(o->c))
			(void)truncate_ahead(o);
		cut_begin(o);
	} else {
		setattr_send(o, o->off);
	}
}

static void fallocate_go(struct cut_op *o)
{
	if (o->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		cut_begin(o);
	else
		cut_alloc(o);
}

static void cut_attr(void *arg, int err, const struct meta_attr *a)
{
	struct cut_op *o = arg;
	struct core *c = o->c;

	(void)a;
	core_lock(c);
	if (err)
		cut_done(o, err);
	else
		cut_start(o);
	core_unlock(c);
}

static void cut_getattr(struct core_deferred *d)
{
	struct cut_op *o = container_of(d, struct cut_op, def);

	attr_get(o->c, o->in->ino, o->recovery, cut_attr, o);
}

/* Like any other cut it follows all log writes before it. */
static void cut_in_order(struct cut_op *o)
{
	if (!o->in->log || !log_in_order(o->in->log) ||
	    !log_order_wait(o->c, &o->wait))
		cut_start(o);
}

static void cut_waited(struct core_waiter *w, int err)
{
	struct cut_op *o = container_of(w, struct cut_op, wait);

	if (!err) {
		cut_start(o);
	} else if (err == -ETIMEDOUT && o->logged && !o->c->fenced) {
		/* Only the caller does not wait longer: a recovery would do
		 * what the log has, whatever came later. */
		cut_tell(o, err);
		cut_in_order(o);
	} else {
		if (o->logged && o->in->log)
			log_hold(o->in, false);
		cut_done(o, err);
	}
}

static void cut_logged(struct log_wait *w, int err)
{
	struct cut_op *o = container_of(w, struct cut_op, log);
	struct core_inode *in = o->in;

	o->wait.fn = cut_waited;
	if (!err) {
		cut_in_order(o);
		return;
	}
	if (in->log)
		log_hold(in, false);
	cut_done(o, err);
}

/* In a log it has its place between the writes before and after it: a recovery
 * must not bring back what it took away. Metad does not hear of it before the
 * log has it. Returns whether the cut goes on later. */
static bool cut_log(struct cut_op *o)
{
	struct core_inode *in = o->in;
	bool zero = o->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
	bool grows = !o->truncate && !(o->mode & FALLOC_FL_KEEP_SIZE) &&
		     o->end > in->attr.size;
	int way;

	if (!in->log && !o->ordered && in != o->c->log->jour.in &&
	    (o->truncate || zero)) {
		o->ordered = true;
		o->wait.fn = cut_waited;
		return log_order_wait(o->c, &o->wait);
	}
	if (!in->log || o->logged || (!o->truncate && !zero && !grows))
		return false;
	/* Room for two records without data: a hole that grows the file. */
	way = log_way(o->c, in, LOG_REC_HEADER + 1);
	if (way == LOG_WAY_WAIT) {
		o->wait.fn = cut_waited;
		log_wait_turn(in, &o->wait);
		return true;
	}
	if (way < 0 && !in->bad) {
		/* The log has what is older, and would bring it back. */
		cut_done(o, way);
		return true;
	}
	if (way != LOG_WAY_LOG)
		return false;
	log_hold(in, true);
	if (zero)
		log_append_other(in, LOG_REC_ZERO, o->off, o->end - o->off);
	if (o->truncate || grows)
		log_append_other(in, LOG_REC_SIZE, o->truncate ? o->off :
				 o->end, 0);
	o->logged = true;
	o->log.fn = cut_logged;
	log_commit_wait(in, &o->log);
	return true;
}

/* Lock held. */
static void cut_start(struct cut_op *o)
{
	struct core *c = o->c;
	struct core_inode *in = o->in;
	bool cures = o->truncate && o->off == 0, logged = o->logged;

	if (c->fenced || (in->bad && !cures)) {
		cut_done(o, -EIO);
	} else if (o->undo && !share_readable(c, in)) {
		cut_done(o, -ESTALE); /* the end of file is others' by now */
	} else if (!o->undo && !o->logged && !o->recovery &&
		   !share_writable(c, in)) {
		o->wait.fn = cut_waited;
		share_wait(c, in, &o->wait);
	} else if (in->cut_busy) {
		o->wait.fn = cut_waited;
		cut_wait(in, &o->wait);
	} else if (!in->attr_valid) {
		o->def.fn = cut_getattr;
		core_defer(c, &o->def);
	} else if (cut_log(o)) {
		return;
	} else if (o->truncate) {
		if (cures)
			log_forget_lost(c, in);
		truncate_go(o);
	} else {
		fallocate_go(o);
	}
	/* From here on in->cut_busy holds writes up, or it is applied. */
	if (logged && in->log && in->log->held)
		log_hold(in, false);
}

static int cut_enter(struct core *c, uint64_t ino, const struct cut_op *want)
{
	struct core_inode *in;
	struct cut_op *o;

	o = malloc(sizeof(*o));
	if (!o)
		return -ENOMEM;
	*o = *want;
	dlist_init(&o->node);
	core_lock(c);
	in = inode_get(c, ino);
	if (in) {
		o->in = in;
		o->recovery = share_recovers(c, in);
		inode_pin(in);
		cut_start(o);
	}
	core_unlock(c); /* may end it */
	if (in)
		return 0;
	free(o);
	return -ENOMEM;
}

void core_truncate(struct core *c, uint64_t ino, uint64_t size, bool kill,
		   core_attr_cb cb, void *arg)
{
	struct cut_op o = {
		.c = c,
		.truncate = true,
		.off = size,
		.killpriv = kill,
		.attr_cb = cb,
		.arg = arg,
	};
	int err = size > FILE_SIZE_MAX ? -EFBIG : cut_enter(c, ino, &o);

	if (err)
		cb(arg, err, NULL);
}

bool cut_back(struct core *c, struct core_inode *in, uint64_t size,
	      core_attr_cb cb, void *arg)
{
	struct cut_op *o;

	if (in->cut_busy || !in->attr_valid)
		return false;
	o = malloc(sizeof(*o));
	if (!o)
		return false;
	*o = (struct cut_op){
		.c = c,
		.in = in,
		.truncate = true,
		.undo = true,
		.off = size,
		.attr_cb = cb,
		.arg = arg,
	};
	dlist_init(&o->node);
	inode_pin(in);
	cut_start(o);
	return true;
}

void cut_fallocate(struct core *c, uint64_t ino, int mode, uint64_t off,
		   uint64_t len, bool kill, core_cb cb, void *arg)
{
	struct cut_op o = {
		.c = c,
		.mode = mode,
		.off = off,
		.end = off + len,
		.killpriv = kill,
		.cb = cb,
		.arg = arg,
	};
	const int known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE |
			  FALLOC_FL_ZERO_RANGE;
	int err = 0;

	if ((mode & ~known) || ((mode & FALLOC_FL_PUNCH_HOLE) &&
				mode != (FALLOC_FL_PUNCH_HOLE |
					 FALLOC_FL_KEEP_SIZE)))
		err = -EOPNOTSUPP;
	else if (len == 0)
		err = -EINVAL;
	else if (off > FILE_SIZE_MAX || len > FILE_SIZE_MAX - off)
		err = -EFBIG;
	else
		err = cut_enter(c, ino, &o);
	if (err)
		cb(arg, err);
}
