/* Who may lag. A majority commits, so while writes follow each other closely
 * only a majority is sent each of them at once; the others get what has come
 * together after LOG_LAG_MS, in one message: a write costs a peer that is there
 * for safety alone next to nothing. Those in front are the ones whose answers
 * reach furthest: one that stops answering is overtaken with the next message
 * to the others, and lags from then on.
 *
 * The first write after a pause goes to all, and so does everything while a
 * peer is being replaced. Posts over verbs cost a peer nothing: they do not
 * lag. */
#include "fuse/core/log_priv.h"

bool log_may_lag(const struct log_file *lf, uint32_t peer)
{
	return lf->lagging && lf->links[peer].xport == &log_xport_tcp &&
	       log_writer_spare(&lf->w, peer) &&
	       log_writer_behind(&lf->w, peer) < LOG_LAG_BYTES;
}

/* Nobody is kept waiting longer than this. */
static void lag_end(struct log_file *lf)
{
	lf->lagging = false;
	log_step(lf);
	lf->lagging = lf->lag_seq < lf->w.seq;
	lf->lag_seq = lf->w.seq;
}

static void lag_over(struct rpc_timer *t)
{
	struct log_client *l = container_of(t, struct log_client, lag);
	struct core *c = l->c;
	struct dlist *n, *save;
	bool any = false;

	core_lock(c);
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (lf->state != LOG_ACTIVE || !lf->lagging)
			continue;
		lag_end(lf);
		any |= lf->lagging;
	}
	l->lag_armed = any;
	core_unlock(c);
	if (any)
		rpc_timer_start(c->net, t, LOG_LAG_MS);
}

static void lag_begin(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, lag_start);

	rpc_timer_start(l->c->net, &l->lag, LOG_LAG_MS);
}

void log_lag_want(struct log_file *lf)
{
	struct log_client *l = lf->c->log;

	if (lf->lagging || lf->c->freeing)
		return;
	lf->lagging = true;
	if (l->lag_armed)
		return;
	l->lag_armed = true;
	l->lag.fn = lag_over;
	l->lag_start.fn = lag_begin;
	core_defer(lf->c, &l->lag_start);
}
