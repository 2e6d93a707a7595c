#include "fuse/core/lock_shared.h"

#include "common/diag.h"
#include "fuse/core/meta_priv.h"

/* A cancellation that found no wait is sent again: over a new connection it may
 * have come first. */
#define CANCEL_AGAIN_MS 50u

/* A request for a lock. Protected by the core's lock. */
struct shared_lock {
	struct core *c;
	struct core_lock_wait *w; /* the user's; NULL: answered */
	unsigned refs; /* the request's, the cancellation's */
	uint64_t id; /* of its LOCK_WAIT; 0: there is none yet */
	struct meta_lock m;
	bool wait;
	bool cancelled;
	bool cancelling; /* a LOCK_CANCEL, or the timer, is out */
	struct rpc_timer again;
};

static struct meta_lock as_meta(const struct lock_range *r)
{
	return (struct meta_lock){ .ino = r->ino, .kind = (uint8_t)r->kind,
				   .type = (uint8_t)r->type, .start = r->start,
				   .end = r->end, .owner = r->owner,
				   .pid = r->pid };
}

static struct meta_call *lock_call(struct core *c, uint16_t op,
				   const struct meta_lock *m,
				   struct wire_out *o)
{
	struct meta_call *mc = meta_call_new(c, op, meta_lock_size(m) + 8, o);

	if (mc)
		meta_lock_encode(o, m);
	return mc;
}

/* ---- taking ---- */

/* Lock held. */
static void put(struct shared_lock *s)
{
	if (--s->refs == 0)
		free(s);
}

/* Lock held; it is given up. */
static void finish(struct shared_lock *s, int err)
{
	struct core_lock_wait *w = s->w;
	struct core *c = s->c;

	s->w = NULL;
	w->priv_shared = NULL;
	put(s);
	core_unlock(c);
	w->cb(w->arg, err);
}

static void waited(struct meta_call *mc, int err, const uint8_t *body,
		   uint32_t len)
{
	(void)body;
	(void)len;
	core_lock(mc->c);
	finish(mc->arg, err);
}

/* Lock held. */
static int wait_send(struct shared_lock *s)
{
	struct wire_out o;
	struct meta_call *mc = lock_call(s->c, WIRE_OP_META_LOCK_WAIT, &s->m,
					 &o);

	if (!mc)
		return -ENOMEM;
	s->id = ++s->c->lock_waits;
	wire_put_u64(&o, s->id);
	mc->done = waited;
	mc->arg = s;
	/* Were it given up, the lock might be granted to nobody. */
	mc->patient = true;
	meta_call_queue(mc, &o);
	return -EINPROGRESS;
}

static void tried(struct meta_call *mc, int err, const uint8_t *body,
		  uint32_t len)
{
	struct shared_lock *s = mc->arg;
	struct meta_lock_reply got = { .taken = 0 };

	if (!err && meta_lock_reply_parse(body, len, &got))
		err = -EIO;
	core_lock(mc->c);
	if (!err && !got.taken)
		err = !s->wait ? -EAGAIN :
		      s->cancelled ? -EINTR : wait_send(s);
	if (err == -EINPROGRESS)
		core_unlock(mc->c);
	else
		finish(s, err);
}

int lock_shared_set(struct core *c, struct core_lock_wait *w, bool wait)
{
	struct shared_lock *s = calloc(1, sizeof(*s));
	struct meta_call *mc;
	struct wire_out o;

	if (!s)
		return -ENOMEM;
	s->c = c;
	s->w = w;
	s->refs = 1;
	s->m = as_meta(&w->w.r);
	s->wait = wait;
	mc = lock_call(c, WIRE_OP_META_LOCK, &s->m, &o);
	if (!mc) {
		free(s);
		return -ENOMEM;
	}
	mc->done = tried;
	mc->arg = s;
	core_lock(c);
	w->priv_shared = s;
	meta_call_queue(mc, &o);
	core_unlock(c);
	return -EINPROGRESS;
}

/* ---- giving up ---- */

static void cancel_send(struct shared_lock *s);

static void cancel_again(struct rpc_timer *t)
{
	struct shared_lock *s = container_of(t, struct shared_lock, again);
	struct core *c = s->c;

	core_lock(c);
	s->cancelling = false;
	if (s->w)
		cancel_send(s);
	put(s);
	core_unlock(c);
}

static void cancel_replied(struct meta_call *mc, int err, const uint8_t *body,
			   uint32_t len)
{
	struct shared_lock *s = mc->arg;
	struct core *c = s->c;
	bool again;

	(void)err;
	(void)body;
	(void)len;
	core_lock(c);
	again = s->w && !c->stopping && !c->fenced;
	if (!again) {
		s->cancelling = false;
		put(s);
	}
	core_unlock(c);
	if (again)
		rpc_timer_start(c->net, &s->again, CANCEL_AGAIN_MS);
}

/* Lock held. */
static void cancel_send(struct shared_lock *s)
{
	struct wire_out o;
	struct meta_call *mc = meta_call_new(s->c, WIRE_OP_META_LOCK_CANCEL, 8,
					     &o);

	if (!mc)
		return; /* the wait goes on, as if no signal had come */
	wire_put_u64(&o, s->id);
	mc->done = cancel_replied;
	mc->arg = s;
	s->again.fn = cancel_again;
	s->cancelling = true;
	s->refs++;
	meta_call_queue(mc, &o);
}

void lock_shared_cancel(struct core *c, struct core_lock_wait *w)
{
	struct shared_lock *s;

	core_lock(c);
	s = w->priv_shared;
	if (s) {
		s->cancelled = true;
		if (s->id && !s->cancelling)
			cancel_send(s);
	}
	core_unlock(c);
}

/* ---- dropping, asking ---- */

static void dropped(struct meta_call *mc, int err, const uint8_t *body,
		    uint32_t len)
{
	(void)body;
	(void)len;
	if (mc->u.cb)
		mc->u.cb(mc->u_arg, err);
}

int lock_shared_drop(struct core *c, uint64_t ino, enum lock_kind kind,
		     uint64_t owner, core_cb cb, void *arg)
{
	struct meta_lock m = { .ino = ino, .kind = (uint8_t)kind,
			       .type = LOCK_TYPE_UNLOCK, .end = UINT64_MAX,
			       .owner = owner };
	struct wire_out o;
	struct meta_call *mc = lock_call(c, WIRE_OP_META_LOCK, &m, &o);

	if (!mc) {
		/* They end with the session. */
		diag_err("core", "event=locks-not-dropped ino=%llu "
			 "error=\"%s\"", (unsigned long long)ino,
			 strerror(ENOMEM));
		return -ENOMEM;
	}
	mc->done = dropped;
	mc->timed_out = meta_cb_timed_out; /* it is done all the same */
	mc->u.cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
	return cb ? -EINPROGRESS : 0;
}

static void asked(struct meta_call *mc, int err, const uint8_t *body,
		  uint32_t len)
{
	struct lock_range *r = mc->arg;
	struct meta_lock m;

	if (!err && (meta_lock_parse(body, len, &m) ||
		     m.type > LOCK_TYPE_UNLOCK || m.start > m.end))
		err = -EIO;
	if (!err) {
		r->type = m.type;
		r->start = m.start;
		r->end = m.end;
		r->owner = m.owner;
		r->pid = m.pid;
	}
	mc->u.cb(mc->u_arg, err);
}

int lock_shared_get(struct core *c, struct lock_range *r, core_cb cb,
		    void *arg)
{
	struct meta_lock m = as_meta(r);
	struct wire_out o;
	struct meta_call *mc = lock_call(c, WIRE_OP_META_LOCK_GET, &m, &o);

	if (!mc)
		return -ENOMEM;
	mc->done = asked;
	mc->arg = r;
	mc->u.cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
	return -EINPROGRESS;
}
