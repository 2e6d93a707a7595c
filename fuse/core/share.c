/* Leases that several mounts want (share.h). */
#include "fuse/core/share.h"

#include "common/diag.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

/* Too many wait at metad, or it has no memory for one more. */
#define SHARE_RETRY_MS 50u

struct share {
	struct core *c;
	struct rpc_call events;
	struct rpc_timer again;
	uint64_t recalls, orphans, acquired, waited;
};

static void acquire_want(struct core *c, struct core_inode *in);
static void give_back(struct core *c, struct core_inode *in);

/* ---- getting it ---- */

/* Lock held. */
static void acquire_end(struct core *c, struct core_inode *in, int err)
{
	struct core_waiter *w = in->share_waiters;
	bool early = in->recalled;

	in->acquiring = false;
	in->share_waiters = NULL;
	in->recalled = false;
	core_waiters_run(w, err);
	/* Told of before the answer came: who waited has had its turn. */
	if (early && in->leased) {
		in->recalled = true;
		give_back(c, in);
	}
	inode_unpin(c, in);
}

struct retry {
	struct rpc_timer t;
	struct core *c;
	struct core_inode *in; /* pinned by the acquisition */
	struct core_deferred d;
};

static void retry_due(struct rpc_timer *t)
{
	struct retry *r = container_of(t, struct retry, t);
	struct core *c = r->c;

	core_lock(c);
	acquire_want(c, r->in);
	core_unlock(c);
	free(r);
}

static void retry_arm(struct core_deferred *d)
{
	struct retry *r = container_of(d, struct retry, d);

	rpc_timer_start(r->c->net, &r->t, SHARE_RETRY_MS);
}

static void acquire_later(struct core *c, struct core_inode *in)
{
	struct retry *r = calloc(1, sizeof(*r));

	if (!r || c->stopping) {
		free(r);
		acquire_end(c, in, -ENOMEM);
		return;
	}
	r->c = c;
	r->in = in;
	r->t.fn = retry_due;
	r->d.fn = retry_arm;
	core_defer(c, &r->d);
}

static void acquire_leased(struct meta_call *mc, int err, const uint8_t *body,
			   uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in = mc->arg;
	struct meta_attr a;

	if (!err && meta_reply_attr_of(in->ino, body, len, &a))
		err = -EIO;
	core_lock(c);
	/* Or else it came with a recovery (log_heir.c) meanwhile. */
	if (in->lease_pending)
		in->leased = in->lease_pending = false;
	if (err == -EBUSY) {
		/* Another one was quicker. */
		acquire_want(c, in);
	} else if (err) {
		acquire_end(c, in, err);
	} else {
		/* What was known before the lease is not better than this. */
		inode_merge(c, in, &a, NULL);
		in->leased = true;
		c->share->acquired++;
		acquire_end(c, in, 0);
	}
	core_unlock(c);
}

static void acquire_wanted(struct meta_call *mc, int err, const uint8_t *body,
			   uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in = mc->arg;
	struct meta_call *lease;
	struct wire_out o;

	(void)body;
	(void)len;
	core_lock(c);
	if (err == -EBUSY || err == -EAGAIN) {
		acquire_later(c, in);
	} else if (!err && in->leased) {
		acquire_end(c, in, 0); /* it was recovered here meanwhile */
	} else if (err) {
		acquire_end(c, in, err);
	} else if (!(lease = meta_call_new(c, WIRE_OP_META_LEASE, 8, &o))) {
		acquire_end(c, in, -ENOMEM);
	} else {
		wire_put_u64(&o, in->ino);
		lease->done = acquire_leased;
		lease->arg = in;
		in->leased = in->lease_pending = true;
		in->recalled = false;
		c->count.leases++;
		meta_call_queue(lease, &o);
		in->lease_seq = meta_last_seq(c);
		inode_mutated(in, in->lease_seq);
	}
	core_unlock(c);
}

/* Lock held; @in is pinned. */
static void acquire_want(struct core *c, struct core_inode *in)
{
	struct meta_call *mc;
	struct wire_out o;

	mc = meta_call_new(c, WIRE_OP_META_WANT, 9, &o);
	if (!mc) {
		acquire_end(c, in, -ENOMEM);
		return;
	}
	wire_put_u64(&o, in->ino);
	wire_put_u8(&o, 1);
	mc->done = acquire_wanted;
	mc->arg = in;
	meta_call_queue(mc, &o);
}

struct begin {
	struct core_deferred d;
	struct core *c;
	struct core_inode *in; /* pinned */
};

static void acquire_begin(struct core_deferred *d)
{
	struct begin *b = container_of(d, struct begin, d);

	core_lock(b->c);
	acquire_want(b->c, b->in);
	core_unlock(b->c);
	free(b);
}

/* Later, so that it comes behind what is being put into the stream: metad would
 * find the lease still ours, and let us pass who waits for it. */
static void acquire(struct core *c, struct core_inode *in)
{
	struct begin *b = malloc(sizeof(*b));

	inode_pin(in);
	in->acquiring = true;
	if (!b) {
		acquire_end(c, in, -ENOMEM);
		return;
	}
	b->d.fn = acquire_begin;
	b->c = c;
	b->in = in;
	core_defer(c, &b->d);
}

void share_wait(struct core *c, struct core_inode *in, struct core_waiter *w)
{
	struct core_waiter **p = &in->share_waiters;

	assert(!share_writable(c, in));
	c->share->waited++;
	while (*p)
		p = &(*p)->next;
	w->next = NULL;
	*p = w;
	/* One that is recalled has to be returned first. */
	if (!in->acquiring && !in->leased && !in->recovering)
		acquire(c, in);
}

void share_recovered(struct core_inode *in)
{
	struct core_waiter *w = in->share_waiters;

	in->recovering = false;
	if (in->acquiring || !w)
		return;
	in->share_waiters = NULL;
	core_waiters_run(w, 0);
}

/* ---- giving it back ---- */

void share_returned(struct core *c, struct core_inode *in)
{
	in->recalled = false;
	if (in->share_waiters && !in->acquiring)
		acquire(c, in);
}

struct giving {
	struct core_deferred d;
	struct core *c;
	struct core_inode *in; /* pinned */
};

static void given(void *arg, int err)
{
	struct giving *g = arg;
	struct core *c = g->c;

	(void)err; /* what is not durable keeps the lease: told again */
	core_lock(c);
	g->in->share_flushing = false;
	if (g->in->leased && g->in->recalled)
		ret_queue(c, g->in, 0);
	inode_unpin(c, g->in);
	core_unlock(c);
	free(g);
}

static void give(struct core_deferred *d)
{
	struct giving *g = container_of(d, struct giving, d);

	core_fsync(g->c, g->in->ino, true, given, g);
}

static void give_back(struct core *c, struct core_inode *in)
{
	struct giving *g;

	if (in->log) {
		log_recalled(in); /* share_log_ended() follows */
		return;
	}
	if (!in->wb || wb_inode_clean(in)) {
		ret_queue(c, in, 0);
		return;
	}
	g = in->share_flushing ? NULL : malloc(sizeof(*g));
	if (!g)
		return; /* told again */
	in->share_flushing = true;
	inode_pin(in);
	g->d.fn = give;
	g->c = c;
	g->in = in;
	core_defer(c, &g->d);
}

void share_log_ended(struct core *c, struct core_inode *in)
{
	if (in->leased && in->recalled && !in->lease_pending && !c->fenced)
		give_back(c, in);
}

static void lone_done(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t len)
{
	(void)mc;
	(void)err; /* told again */
	(void)body;
	(void)len;
}

/* Metad has a lease of ours that is not known here: what asked for it was
 * given up, or the inode was returned as an orphan. */
static void return_unknown(struct core *c, uint64_t ino)
{
	struct meta_return r = { .ino = ino, .what = META_RETURN_LEASE };
	struct wire_out o;
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_RETURN,
					     meta_return_size(&r), &o);

	if (!mc)
		return;
	meta_return_encode(&o, &r);
	mc->done = lone_done;
	meta_call_queue(mc, &o);
}

static void recall(struct core *c, uint64_t ino)
{
	struct core_inode *in = inode_find(c, ino);

	c->share->recalls++;
	if (in && in->recovering)
		return; /* told again */
	if (in && in->leased) {
		in->recalled = true;
		if (!in->lease_pending)
			give_back(c, in);
	} else if (!in || (!in->acquiring && in->ret_inflight == 0)) {
		return_unknown(c, ino);
	}
}

/* Another mount has taken its last name away. */
static void orphan(struct core *c, uint64_t ino)
{
	struct core_inode *in = inode_get(c, ino);

	c->share->orphans++;
	if (!in || in->orphan)
		return; /* without memory it stays until the session ends */
	in->attr.nlink = 0;
	in->handles_only = true;
	ret_orphan(c, ino);
}

void share_fence(struct core *c)
{
	for (size_t i = 0; c->opt.shared && i < c->inode_hash_size; i++)
		for (struct core_inode *in = c->inode_hash[i]; in;
		     in = in->hash_next) {
			struct core_waiter *w = in->share_waiters;

			/* An acquisition ends with its call. */
			if (in->acquiring || !w)
				continue;
			in->share_waiters = NULL;
			core_waiters_run(w, -EIO);
		}
}

/* ---- events ---- */

static void events_send(struct share *s);

static int events_take(struct core *c, const uint8_t *body, uint32_t len)
{
	struct meta_events_reply m;
	struct meta_rhdr rh;
	struct meta_event e;
	struct wire_in in;
	uint32_t i;

	wire_in_init(&in, body, len);
	meta_rhdr_decode(&in, &rh);
	meta_events_reply_decode(&in, &m);
	if (wire_in_known(&in))
		return -EBADMSG;
	wire_in_init(&in, m.events.p, m.events.len);
	for (i = 0; i < m.count && !in.bad; i++) {
		meta_event_decode(&in, &e);
		if (in.bad || e.ino == 0)
			break;
		core_lock(c);
		if (c->fenced || c->stopping)
			;
		else if (e.kind == META_EVENT_RECALL)
			recall(c, e.ino);
		else if (e.kind == META_EVENT_ORPHAN)
			orphan(c, e.ino);
		else if (e.kind == META_EVENT_LOGS)
			log_heir_begin(c);
		core_unlock(c);
	}
	return wire_in_end(&in);
}

static void events_replied(struct rpc_call *rc, int status,
			   const struct rpc_frame *f)
{
	struct share *s = container_of(rc, struct share, events);
	struct core *c = s->c;
	bool stop;

	if (f && status == 0)
		status = events_take(c, f->body, f->h.body_len);
	core_lock(c);
	stop = c->fenced || c->stopping || c->meta->closing ||
	       (!f && status == -ECANCELED);
	core_unlock(c);
	if (stop)
		return;
	if (status == -EBADMSG)
		diag_err("share", "event=bad_events");
	if (status == 0)
		events_send(s);
	else
		rpc_timer_start(c->net, &s->again, SHARE_RETRY_MS);
}

static void events_send(struct share *s)
{
	struct meta_client *m = s->c->meta;

	core_lock(s->c);
	memset(&s->events, 0, sizeof(s->events));
	s->events.opcode = WIRE_OP_META_EVENTS;
	s->events.flags = RPC_F_RETRY;
	s->events.cb = events_replied;
	rpc_queue(m->peer, &s->events);
	core_kick_later(s->c, m->peer);
	core_unlock(s->c);
}

static void events_again(struct rpc_timer *t)
{
	events_send(container_of(t, struct share, again));
}

void share_start(struct core *c)
{
	if (c->opt.shared)
		events_send(c->share);
}

int share_new(struct core *c, struct share **ret)
{
	struct share *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->c = c;
	s->again.fn = events_again;
	*ret = s;
	return 0;
}

void share_free(struct share *s)
{
	free(s);
}

void share_status(struct core *c, FILE *out)
{
	const struct share *s = c->share;

	fprintf(out, "\"share\":{\"acquired\":%llu,\"waited\":%llu,"
		"\"recalls\":%llu,\"orphans\":%llu}",
		(unsigned long long)s->acquired,
		(unsigned long long)s->waited, (unsigned long long)s->recalls,
		(unsigned long long)s->orphans);
}
