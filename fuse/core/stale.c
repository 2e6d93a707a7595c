/* A daemon answered -ESTALE: it knows a newer cut of the inode than the
 * request carried. The number is learned from metad before the next try; a
 * little later, since the cut may not be over. */
#include "fuse/core/blk_priv.h"
#include "fuse/core/meta_priv.h"

#include "common/diag.h"

struct stale_wait {
	struct dlist node; /* blk_client.stale, until the timer runs */
	struct core_deferred def;
	struct rpc_timer timer;
	struct core *c;
	struct core_inode *in; /* pinned */
	void (*fn)(void *arg);
	void *arg;
};

static void stale_end(struct stale_wait *w)
{
	struct core *c = w->c;

	w->fn(w->arg);
	core_lock(c);
	inode_unpin(c, w->in);
	core_unlock(c);
	free(w);
}

static void stale_known(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t body_len)
{
	struct stale_wait *w = mc->arg;
	struct core *c = w->c;
	struct meta_attr a;

	core_lock(c);
	if (!err && meta_reply_attr_of(w->in->ino, body, body_len, &a) == 0)
		inode_merge(c, w->in, &a, NULL);
	core_unlock(c);
	stale_end(w);
}

/* No lock. */
static void stale_ask(struct stale_wait *w)
{
	struct core *c = w->c;
	struct meta_call *mc;
	struct wire_out o;

	core_lock(c);
	dlist_del(&w->node);
	c->blk->n.stale++;
	/* A cut of our own tells the number at its end. */
	mc = w->in->cut_busy || c->fenced || c->stopping ? NULL :
	     meta_call_new(c, WIRE_OP_META_GETATTR, 8, &o);
	if (mc) {
		wire_put_u64(&o, w->in->ino);
		mc->done = stale_known;
		mc->arg = w;
		meta_call_queue(mc, &o);
	}
	core_unlock(c);
	if (!mc)
		stale_end(w);
}

static void stale_timer(struct rpc_timer *t)
{
	stale_ask(container_of(t, struct stale_wait, timer));
}

static void stale_start(struct core_deferred *d)
{
	struct stale_wait *w = container_of(d, struct stale_wait, def);

	rpc_timer_start(w->c->net, &w->timer, STALE_DELAY_MS);
}

int stale_learn(struct core *c, struct core_inode *in, void (*fn)(void *arg),
		void *arg)
{
	struct stale_wait *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->c = c;
	w->in = in;
	w->fn = fn;
	w->arg = arg;
	w->timer.fn = stale_timer;
	w->def.fn = stale_start;
	inode_pin(in);
	dlist_add(&c->blk->stale, &w->node);
	core_defer(c, &w->def);
	return 0;
}

void stale_end_all(struct core *c)
{
	for (;;) {
		struct stale_wait *w = NULL;
		struct dlist *l;

		core_lock(c);
		for (l = c->blk->stale.next; l != &c->blk->stale; l = l->next) {
			w = dlist_entry(l, struct stale_wait, node);
			if (rpc_timer_stop(c->net, &w->timer))
				break; /* ours now */
			w = NULL;
		}
		core_unlock(c);
		if (!w)
			return;
		stale_ask(w);
	}
}
