/* What time brings to logs: destaging, replacing peers that are away, and the
 * end of a log that nobody needs any more. */
#include "fuse/core/log_priv.h"

#include "common/diag.h"

/* ---- destaging ---- */

static void drop_maybe(struct log_file *lf);

struct destage {
	struct log_file *lf;
	uint64_t seq;
};

/* What is durable in the blocks need not stay, if a majority had it: a record
 * that a recovery may miss must not be in front of one that it finds. */
static void log_trim(struct log_file *lf)
{
	uint8_t *base;

	while ((base = log_writer_trim(&lf->w, lf->destaged_seq)))
		log_region_drop(lf, base);
}

/* It is tried again, unless the mount ends: then what the peers have is for the
 * next one to recover. Writers that have no other way are told. */
static void destage_failed(struct log_file *lf, int err)
{
	uint64_t waiting_ms = lf->waiting_ms;

	diag_warn("log", "event=destage_failed ino=%llu error=\"%s\"",
		  (unsigned long long)lf->in->ino, strerror(-err));
	if (err == -ENOMEM) {
		log_wake(lf); /* with the next tick */
		return;
	}
	lf->destage_retry_ms = core_now_ms() + LOG_RETRY_MS;
	log_order_step(lf, err);
	if (lf->c->log->stopping) {
		lf->fenced = true;
		log_end(lf);
		return;
	}
	lf->destage_err = err;
	if (lf->giving_up)
		log_settle(lf, UINT64_MAX, err);
	log_wake(lf);
	if (lf->waiters)
		lf->waiting_ms = waiting_ms;
}

static void destaged(void *arg, int err)
{
	struct destage *d = arg;
	struct log_file *lf = d->lf;
	struct core *c = lf->c;

	core_lock(c);
	lf->destaging = false;
	if (lf->state == LOG_ACTIVE && !err) {
		lf->covers = true;
		lf->destage_err = 0;
		lf->destaged_seq = d->seq;
		log_trim(lf);
		log_step(lf);
		log_wake(lf);
		log_order_step(lf, 0);
		if (lf->destage_again)
			log_destage(lf);
		drop_maybe(lf);
	} else if (lf->state == LOG_ACTIVE) {
		destage_failed(lf, err);
	}
	log_put(lf);
	core_unlock(c);
	free(d);
}

/* A truncate in the log that metad has not heard of yet stays there, unless it
 * waits for the log to end. */
uint64_t log_destage_end(const struct log_file *lf)
{
	return lf->held && !lf->giving_up ? lf->held_seq : lf->w.seq;
}

bool log_destage_begin(struct log_file *lf)
{
	struct destage *d = malloc(sizeof(*d));

	if (!d)
		return false;
	d->lf = lf;
	d->seq = log_destage_end(lf);
	lf->destaged_ms = core_now_ms();
	if (fsync_blocks(lf->c, lf->in, destaged, d)) {
		free(d);
		return false;
	}
	log_get(lf);
	lf->destaging = true;
	lf->destage_again = false;
	lf->c->log->n.destages++;
	return true;
}

void log_destage(struct log_file *lf)
{
	if (lf->state != LOG_ACTIVE)
		return;
	if (log_in_order(lf))
		log_order_want(lf->c);
	else if (lf->destaging)
		lf->destage_again = true;
	else
		(void)log_destage_begin(lf); /* the tick comes again */
}

/* ---- the end ---- */

/* It was given up not for peers that are away or hang, and may be back any
 * moment: another would fare no better now. */
static bool log_is_hopeless(const struct log_file *lf)
{
	uint32_t failed = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		failed += lf->w.peers[i].state == LOG_PEER_FAILED;
	return lf->giving_up &&
	       (lf->starved || failed > lf->w.peer_count / 2u);
}

static void drop_durable(struct core_waiter *w, int err)
{
	struct log_file *lf = container_of(w, struct log_file, durable);

	if (lf->state != LOG_DROPPING)
		return;
	/* Without an answer it is not known: the peers ask metad. */
	if (!err)
		log_free_all(lf);
	if (log_is_hopeless(lf) && lf->opts.fallback == LOG_FALLBACK_BLOCKS)
		lf->in->log_retry_ms = core_now_ms() + LOG_FALLBACK_MS;
	lf->c->log->n.dropped++;
	log_end(lf);
}

static void drop_done(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;

	(void)body;
	(void)len;
	core_lock(c);
	if (lf->state == LOG_DROPPING && err) {
		/* A recovery would put it over what is newer in the blocks. */
		lf->fenced = true;
		lf->in->bad = true;
		lf->in->log_lost = lf->epoch;
		log_end(lf);
	} else if (lf->state == LOG_DROPPING) {
		lf->durable.fn = drop_durable;
		if (meta_durable(c, mc->seq, &lf->durable))
			drop_durable(&lf->durable, 0);
	}
	log_put(lf);
	core_unlock(c);
}

static void lost_done(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t len)
{
	(void)mc;
	(void)err; /* another has recovered it, or it is gone with the file */
	(void)body;
	(void)len;
}

/* Everything is in the blocks, durably. */
static void drop_send(struct log_file *lf)
{
	struct meta_call *mc = log_drop_new(lf->c, lf->in->ino, lf->epoch);

	if (!mc)
		return;
	mc->done = drop_done;
	mc->arg = lf;
	log_get(lf);
	lf->state = LOG_DROPPING;
	inode_mutated(lf->in, meta_last_seq(lf->c));
}

void log_forget_lost(struct core *c, struct core_inode *in)
{
	struct meta_call *mc;

	if (!in->log_lost)
		return;
	mc = log_drop_new(c, in->ino, in->log_lost);
	if (!mc)
		return; /* with the next */
	mc->done = lost_done;
	in->log_lost = 0;
	inode_mutated(in, meta_last_seq(c));
}

/* The file is gone or going: what metad has of it goes with it, when its last
 * word in the stream is durable. */
static bool log_orphan(const struct log_file *lf)
{
	return lf->in->orphan && !inode_held(lf->in);
}

static bool log_is_over(const struct log_file *lf, uint64_t now_ms)
{
	const struct core_inode *in = lf->in;

	if (lf->c->log->stopping || in->recalled ||
	    !(in->attr.flags & META_ATTR_LOG))
		return true;
	if (in->write_open_count > 0 || !lf->closed_ms)
		return false;
	if (lf->opts.destage == LOG_DESTAGE_OFF)
		return lf->closed_ms == LOG_HURRY_MS;
	return now_ms - lf->closed_ms >= LOG_LINGER_MS;
}

/* Is everything in the blocks? */
static bool log_destaged(const struct log_file *lf)
{
	return lf->covers && lf->destaged_seq >= lf->w.seq;
}

static void drop_maybe(struct log_file *lf)
{
	bool idle = !lf->held && !lf->waits && log_is_over(lf, core_now_ms());

	if (lf->state != LOG_ACTIVE || lf->destaging ||
	    !(idle || lf->giving_up) || !log_destaged(lf) ||
	    !wb_inode_clean(lf->in))
		return;
	drop_send(lf);
}

static void tick_end(struct log_file *lf, uint64_t now_ms)
{
	if (lf->in->write_open_count > 0)
		lf->closed_ms = 0;
	else if (!lf->closed_ms)
		lf->closed_ms = now_ms;
	if (log_orphan(lf) && !lf->destaging && !lf->waits) {
		drop_send(lf);
		return;
	}
	if (!log_is_over(lf, now_ms) && !lf->giving_up)
		return;
	if (log_destaged(lf) && wb_inode_clean(lf->in))
		drop_maybe(lf);
	else if (now_ms >= lf->destage_retry_ms)
		log_destage(lf);
}

void log_recalled(struct core_inode *in)
{
	struct log_file *lf = in->log;
	uint64_t now_ms = core_now_ms();

	if (now_ms >= in->log_retry_ms) {
		bool anew = now_ms - in->log_retry_ms > LOG_RECALLED_MAX_MS;
		uint64_t ms = anew ? 0 : 2 * (uint64_t)in->log_recalled_ms;

		ms = u64_max(LOG_RECALLED_MS, u64_min(ms, LOG_RECALLED_MAX_MS));
		in->log_recalled_ms = (uint32_t)ms;
		in->log_retry_ms = now_ms + in->log_recalled_ms;
	}
	in->log_refused = 0;
	/* What metad has been asked to enter is found there first. */
	if (lf->state == LOG_OPENING && !lf->set_busy && lf->epoch == 0)
		log_end(lf);
	else if (lf->state == LOG_ACTIVE)
		tick_end(lf, now_ms);
}

/* ---- replacing ---- */

/* What the one that goes still answers is nobody's, and what it has can go when
 * no recovery reads it any more. */
static void replace_end(struct log_file *lf, bool published, uint32_t version)
{
	for (uint32_t i = 0; published && i < LOG_WRITER_PEER_MAX; i++)
		if (lf->w.peers[i].state != LOG_PEER_UNUSED &&
		    !lf->w.peers[i].in_new)
			log_free_peer(lf, i);
	log_writer_replace_end(&lf->w, published, version);
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (lf->w.peers[i].state == LOG_PEER_UNUSED)
			lf->links[i].life++;
}

/* Whether the new list is the log's is not known: both count until all is in
 * the blocks and the log is gone, whichever it was. */
static void replace_unsure(struct log_file *lf, int err)
{
	diag_err("log", "event=replacement_unsure ino=%llu error=\"%s\"",
		 (unsigned long long)lf->in->ino, strerror(-err));
	lf->set_busy = true; /* no other */
	lf->giving_up = true;
	log_destage(lf);
}

static void replace_set_done(struct meta_call *mc, int err, const uint8_t *body,
			     uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;
	struct meta_log_entry e;

	core_lock(c);
	lf->set_busy = false;
	if (!err)
		err = log_entry_take(body, len, mc->arg64, &e);
	if (lf->state == LOG_ACTIVE && err && err != -ENXIO &&
	    err != -ESTALE) {
		replace_unsure(lf, err);
	} else if (lf->state == LOG_ACTIVE) {
		diag_info("log", "event=peer_replaced ino=%llu error=\"%s\"",
			  (unsigned long long)lf->in->ino, strerror(-err));
		replace_end(lf, !err, err ? lf->w.version : e.version);
		lf->retry_ms = err ? core_now_ms() + LOG_RETRY_MS : 0;
		c->log->n.replaced += err == 0;
		log_settle(lf, lf->w.committed, 0);
		log_step(lf);
	}
	log_put(lf);
	core_unlock(c);
}

static void replace_publish(struct log_file *lf)
{
	struct log_writer_peer_id ids[LOG_PEER_COUNT_MAX];
	struct meta_log_set set = {
		.ino = lf->in->ino,
		.epoch = lf->epoch,
		.version = lf->w.version,
	};
	struct meta_call *mc;

	log_writer_list_new(&lf->w, ids);
	mc = log_set_new(lf->c, &set, ids, lf->w.peer_count);
	if (!mc)
		return;
	mc->done = replace_set_done;
	mc->arg = lf;
	mc->arg64 = lf->in->ino;
	log_get(lf);
	lf->set_busy = true;
}

static bool link_bad(const struct log_file *lf, uint32_t i, uint64_t now_ms)
{
	const struct log_writer_peer *p = &lf->w.peers[i];
	const struct log_link *l = &lf->links[i];

	if (p->state == LOG_PEER_UNUSED || !p->in_old)
		return false;
	if (p->state == LOG_PEER_FAILED || l->leaves ||
	    (l->dev && l->dev->ended))
		return true;
	if (l->trouble_ms && now_ms - l->trouble_ms >= LOG_REPLACE_MS)
		return true;
	/* Destaging did not help it, or it has less than metad believes. */
	if (l->starved_ms && now_ms - l->starved_ms >= LOG_STALL_MS)
		return true;
	return p->post_count > 0 && now_ms - l->post_ms[0] >= LOG_REPLACE_MS;
}

/* Do enough of its peers stay, with nobody in the place of those that go? */
static bool majority_stays(const struct log_file *lf)
{
	uint32_t stay = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &lf->w.peers[i];

		stay += p->in_old && p->state != LOG_PEER_UNUSED &&
			p->state != LOG_PEER_FAILED && !lf->links[i].leaves;
	}
	return stay > lf->w.peer_count / 2u;
}

/* The blocks are as good, once metad knows that the log is behind them: a
 * recovery would put the log's older records over what is newer there. */
static void give_up(struct log_file *lf)
{
	if (lf->giving_up)
		return;
	diag_warn("log", "event=no_majority ino=%llu epoch=%llu",
		  (unsigned long long)lf->in->ino,
		  (unsigned long long)lf->epoch);
	lf->giving_up = true;
	log_destage(lf);
}

/* While nobody waits for it what it has is put into the blocks first: it goes
 * on when they do not take that, and its peers are back. */
static void leave(struct log_file *lf, uint64_t now_ms)
{
	if (lf->waits || (log_destaged(lf) && wb_inode_clean(lf->in)))
		give_up(lf);
	else if (!lf->destaging && now_ms >= lf->destage_retry_ms)
		log_destage(lf);
}

static int victim_find(const struct log_file *lf, uint64_t now_ms)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (link_bad(lf, i, now_ms))
			return (int)i;
	return -ENOENT;
}

static void candidates_done(struct meta_call *mc, int err, const uint8_t *body,
			    uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;
	uint64_t now_ms = core_now_ms();
	struct log_writer_peer_id id;
	uint32_t count = 0;
	int victim, with;

	core_lock(c);
	lf->peers_busy = false;
	if (!err)
		err = log_ids_take(body, len, 1, &id, &count);
	victim = lf->state == LOG_ACTIVE ? victim_find(lf, now_ms) : -ENOENT;
	if (victim >= 0 && (err || count == 0)) {
		lf->retry_ms = now_ms + LOG_RETRY_MS;
		lf->shun_count = err ? lf->shun_count : 0;
		if (!err && !majority_stays(lf))
			leave(lf, now_ms);
	} else if (victim >= 0) {
		with = log_writer_replace(&lf->w, (uint32_t)victim, id);
		if (with >= 0) {
			log_link_init(lf, (uint32_t)with);
			lf->replace_ms = now_ms;
			lf->replace_seq = 0;
			log_step(lf);
		}
	}
	log_put(lf);
	core_unlock(c);
}

/* The one that replaces is in trouble itself. */
static bool replacement_bad(struct log_file *lf, uint64_t now_ms)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &lf->w.peers[i];
		uint64_t limit = p->state == LOG_PEER_DOWN ? LOG_REPLACE_MS :
							     LOG_STALL_MS;

		if (p->state == LOG_PEER_UNUSED || p->in_old)
			continue;
		if (p->acked.seq != lf->replace_seq) {
			lf->replace_seq = p->acked.seq;
			lf->replace_ms = now_ms;
		}
		return p->state == LOG_PEER_FAILED || lf->links[i].leaves ||
		       now_ms - lf->replace_ms >= limit;
	}
	return false;
}

/* It failed to take over, and is perhaps still the best that metad knows. */
static void replacement_shun(struct log_file *lf)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &lf->w.peers[i];

		if (p->state != LOG_PEER_UNUSED && !p->in_old)
			lf->shunned[lf->shun_count++ % LOG_SHUN_MAX] =
				(struct log_writer_peer_id){ p->id,
							     p->boot_id };
	}
}

static void tick_replace(struct log_file *lf, uint64_t now_ms)
{
	struct log_writer_peer_id have[LOG_WRITER_PEER_MAX + LOG_SHUN_MAX];
	uint32_t count = 0;

	if (lf->set_busy || lf->peers_busy || lf->fenced)
		return;
	if (lf->w.replacing) {
		if (log_writer_replace_ready(&lf->w)) {
			replace_publish(lf);
		} else if (replacement_bad(lf, now_ms)) {
			replacement_shun(lf);
			replace_end(lf, false, lf->w.version);
			lf->retry_ms = now_ms + LOG_RETRY_MS;
		}
		return;
	}
	if (now_ms < lf->retry_ms || victim_find(lf, now_ms) < 0)
		return;
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (lf->w.peers[i].state != LOG_PEER_UNUSED)
			have[count++] = (struct log_writer_peer_id){
				lf->w.peers[i].id,
				lf->w.peers[i].boot_id,
			};
	for (uint32_t i = 0; i < lf->shun_count && i < LOG_SHUN_MAX; i++)
		have[count++] = lf->shunned[i];
	if (log_ask_peers(lf, 1, (uint64_t)1 << lf->w.log2, have, count,
			  candidates_done) == 0)
		lf->peers_busy = true;
}

/* ---- no majority ---- */

/* Writers wait for one, or what it has would not outlive the mount. */
static void tick_majority(struct log_file *lf, uint64_t now_ms)
{
	bool have = log_writer_majority(&lf->w);
	uint64_t limit = lf->waits && (!have || lf->starved) ?
				 LOG_MINORITY_MS : LOG_STALL_MS;

	if ((!lf->waits && have) || lf->w.committed != lf->stalled_at) {
		lf->stalled_ms = 0;
		lf->stalled_at = lf->w.committed;
		return;
	}
	if (lf->stalled_ms == 0)
		lf->stalled_ms = now_ms;
	if (now_ms - lf->stalled_ms >= limit)
		leave(lf, now_ms);
}

/* ---- the tick ---- */

static void tick_file(struct log_file *lf, uint64_t now_ms)
{
	struct core *c = lf->c;

	log_trim(lf);
	log_step(lf); /* what lacked memory before */
	tick_replace(lf, now_ms);
	if (lf->state == LOG_ACTIVE)
		tick_majority(lf, now_ms);
	if (lf->state == LOG_ACTIVE)
		tick_end(lf, now_ms);
	if (lf->state == LOG_ACTIVE && lf->ordered && !lf->destaging &&
	    !log_destaged(lf) && now_ms >= lf->destage_retry_ms &&
	    (lf->order_seq > 0 ||
	     now_ms - lf->destaged_ms >= c->opt.flush_age_ms))
		log_destage(lf);
}

static void log_tick(struct rpc_timer *t)
{
	struct log_client *l = container_of(t, struct log_client, tick);
	struct core *c = l->c;
	uint64_t now_ms = core_now_ms();
	struct dlist *n, *save;
	bool any = false;

	core_lock(c);
	log_order_tick(c);
	dlist_for(n, save, &l->files)
	{
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		any = true;
		if (lf->state == LOG_ACTIVE)
			tick_file(lf, now_ms);
		else if (lf->state == LOG_OPENING && lf->retry_ms &&
			 now_ms >= lf->retry_ms)
			log_open_again(lf);
		log_wake_late(lf, now_ms);
	}
	log_stop_maybe(c);
	any = (any || l->round != LOG_ROUND_NONE ||
	       (l->stopped && !l->stop_told)) && !c->freeing;
	for (uint32_t i = 0; any && i < l->dev_count; i++)
		if (now_ms - l->devs[i]->ping_sent_ms >= LOG_PING_MS)
			log_dev_ping(l->devs[i]);
	l->ticking = any;
	core_unlock(c);
	if (any)
		rpc_timer_start(c->net, t, LOG_TICK_MS);
}

static void tick_begin(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, tick_start);

	rpc_timer_start(l->c->net, &l->tick, LOG_TICK_MS);
}

void log_tick_want(struct core *c)
{
	struct log_client *l = c->log;

	if (l->ticking || c->freeing)
		return;
	l->ticking = true;
	l->tick.fn = log_tick;
	l->tick_start.fn = tick_begin;
	core_defer(c, &l->tick_start);
}
