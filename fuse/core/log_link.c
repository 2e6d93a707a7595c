/* One log at one peer: regions are asked for, records are sent, answers taken.
 * What is next is the writer's word (log_writer.h).
 *
 * A call outlives the connection that it was made for, and the log, too: it
 * knows in which life of the link it was made, and its answer counts only
 * there. The bytes that it sends are the mirror's, which it keeps. */
#include "fuse/core/log_priv.h"

#include "common/diag.h"

struct log_call {
	struct rpc_call call;
	struct log_file *lf;
	uint32_t peer;
	uint32_t life;
	struct log_post post;
	struct log_mirror *mirror;
	struct iovec iov;
	uint32_t index; /* ALLOC's */
	uint8_t body[128];
};

static struct log_call *call_new(struct log_file *lf, uint32_t peer,
				 uint16_t op, rpc_cb cb, struct wire_out *o)
{
	struct log_call *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->lf = lf;
	k->peer = peer;
	k->life = lf->links[peer].life;
	k->call.opcode = op;
	k->call.body = k->body;
	k->call.cb = cb;
	log_get(lf);
	wire_out_init(o, k->body, sizeof(k->body));
	return k;
}

static void call_queue(struct log_call *k, const struct wire_out *o)
{
	struct log_dev *d = k->lf->links[k->peer].dev;

	assert(!o->overflow);
	k->call.body_len = (uint32_t)o->len;
	rpc_queue(d->peer, &k->call);
	core_kick_later(d->c, d->peer);
}

static void call_free(struct log_call *k)
{
	if (k->mirror)
		log_mirror_put(k->mirror);
	log_put(k->lf);
	free(k);
}

static bool call_counts(const struct log_call *k)
{
	const struct log_file *lf = k->lf;

	return (lf->state == LOG_ACTIVE || lf->state == LOG_DROPPING) &&
	       lf->links[k->peer].life == k->life;
}

/* What is on its way stops to count. */
static void link_close(struct log_link *l)
{
	l->life++;
	if (l->conn) {
		log_verbs_close(l->conn);
		l->conn = NULL;
	}
	if (l->xport == &log_xport_verbs)
		l->xport = NULL;
	l->connecting = false;
}

void log_links_close(struct log_file *lf)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		link_close(&lf->links[i]);
}

/* ---- trouble ---- */

static void fence_tell(struct core_deferred *d)
{
	struct core *c = container_of(d, struct log_client, fenced)->c;

	core_lock(c);
	c->log->fence_told = false;
	core_unlock(c);
	meta_suspect(c);
}

/* A peer says that somebody else owns the log, or that our session is dead:
 * metad knows which. Nothing more is acknowledged. What was is for a recovery,
 * by the next mount; or the file is emptied. */
static void log_fenced(struct log_file *lf)
{
	struct core *c = lf->c;

	lf->fenced = true;
	diag_err("log", "event=fenced ino=%llu epoch=%llu",
		 (unsigned long long)lf->in->ino,
		 (unsigned long long)lf->epoch);
	lf->in->bad = true;
	lf->in->log_lost = lf->epoch;
	log_end(lf);
	if (c->log->fence_told)
		return;
	c->log->fence_told = true;
	c->log->fenced.fn = fence_tell;
	core_defer(c, &c->log->fenced);
}

void log_peer_failed(struct log_file *lf, uint32_t peer, const char *why)
{
	struct log_link *k = &lf->links[peer];

	if (lf->w.peers[peer].state == LOG_PEER_FAILED)
		return;
	diag_warn("log", "event=peer_failed ino=%llu epoch=%llu logd=%u "
		  "why=\"%s\"", (unsigned long long)lf->in->ino,
		  (unsigned long long)lf->epoch, lf->w.peers[peer].id, why);
	lf->c->log->n.failed_peers++;
	link_close(k);
	log_writer_fail(&lf->w, peer);
	if (k->trouble_ms == 0)
		k->trouble_ms = core_now_ms();
	log_tick_want(lf->c);
}

void log_peer_leaves(struct log_file *lf, const struct log_dev *d)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (lf->w.peers[i].state != LOG_PEER_UNUSED &&
		    lf->links[i].dev == d)
			lf->links[i].leaves = true;
}

static void link_tcp(struct log_file *lf, uint32_t peer, const char *why);

static void answer_bad(struct log_call *k, int status)
{
	struct log_file *lf = k->lf;

	if (status == -ESTALE)
		log_fenced(lf);
	else if (status == -EAGAIN || status == -ENOSPC)
		; /* not now: with the next tick */
	else if (status != -ECONNRESET && status != -ECANCELED)
		log_peer_failed(lf, k->peer, strerror(-status));
}

static int reply_take(const struct rpc_frame *f, struct wire_in *in,
		      struct log_reply *lr)
{
	wire_in_init(in, f->body, f->h.body_len);
	log_reply_decode(in, lr);
	return in->bad ? -EBADMSG : 0;
}

/* ---- regions ---- */

/* Where the region lies at the peer. */
static void region_keep_key(struct log_file *lf, uint32_t peer, uint32_t index,
			    const struct log_alloc_reply *r)
{
	struct log_mirror *m;

	if (index < lf->w.region_first ||
	    index - lf->w.region_first >= lf->w.region_count)
		return;
	m = log_mirror_of(lf->w.regions[index - lf->w.region_first].base);
	m->at[peer] = (struct log_mirror_at){ r->addr, r->rkey };
}

static void alloc_done(struct rpc_call *call, int status,
		       const struct rpc_frame *f)
{
	struct log_call *k = container_of(call, struct log_call, call);
	struct log_file *lf = k->lf;
	struct core *c = lf->c;
	struct log_alloc_reply r = { .addr = 0 };
	struct log_reply lr;
	struct wire_in in;

	core_lock(c);
	if (status == 0)
		status = reply_take(f, &in, &lr);
	if (status == 0) {
		log_alloc_reply_decode(&in, &r);
		status = wire_in_known(&in);
	}
	if (call_counts(k)) {
		if (status == 0)
			region_keep_key(lf, k->peer, k->index, &r);
		log_writer_alloc_done(&lf->w, k->peer, k->index, status);
		if (status == -EOPNOTSUPP && !lf->links[k->peer].xport)
			link_tcp(lf, k->peer, "its memory is not for it");
		else if (status)
			answer_bad(k, status);
		lf->starved = status == -ENOSPC;
		if (!lf->starved)
			lf->links[k->peer].starved_ms = 0;
		else if (lf->links[k->peer].starved_ms == 0)
			lf->links[k->peer].starved_ms = core_now_ms();
		if (lf->starved)
			log_hurry(c);
		if (status != -EAGAIN && status != -ENOSPC)
			log_step(lf);
	}
	call_free(k);
	core_unlock(c);
}

static void alloc_send(struct log_file *lf, uint32_t peer)
{
	struct log_alloc a = {
		.ino = lf->in->ino,
		.epoch = lf->epoch,
		.data_epoch = lf->epoch,
		.log2 = lf->w.log2,
		.flags = lf->links[peer].xport == &log_xport_tcp ?
				 0 : (uint8_t)LOG_ALLOC_VERBS,
	};
	struct log_call *k;
	struct wire_out o;

	if (!log_writer_alloc_next(&lf->w, peer, &a.index))
		return;
	k = call_new(lf, peer, WIRE_OP_LOG_ALLOC, alloc_done, &o);
	if (!k) {
		log_writer_alloc_done(&lf->w, peer, a.index, -ENOMEM);
		return; /* the tick comes again */
	}
	k->index = a.index;
	log_alloc_encode(&o, &a);
	call_queue(k, &o);
}

/* ---- records ---- */

void log_link_posted(struct log_file *lf, uint32_t peer,
		     const struct log_post *p)
{
	struct log_link *l = &lf->links[peer];

	/* It may have been replaced since. */
	if (lf->w.peers[peer].state != LOG_PEER_UP)
		return;
	l->post_ms[0] = l->post_ms[1];
	l->trouble_ms = 0;
	l->breaks = 0;
	log_writer_acked(&lf->w, p);
	log_lag_want(lf);
	log_settle(lf, lf->w.committed, 0);
}

static void post_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct log_call *k = container_of(call, struct log_call, call);
	struct log_file *lf = k->lf;
	struct core *c = lf->c;
	struct log_reply lr = { 0 };
	struct wire_in in;

	core_lock(c);
	if (status == 0)
		status = reply_take(f, &in, &lr);
	if (call_counts(k) && status == 0) {
		lf->links[k->peer].leaves |=
			(lr.flags & LOG_REPLY_WANTED) != 0;
		log_link_posted(lf, k->peer, &k->post);
	} else if (call_counts(k)) {
		answer_bad(k, status);
	}
	if (lf->state == LOG_ACTIVE)
		log_step(lf);
	call_free(k);
	core_unlock(c);
}

/* Returns whether something was sent. */
static bool post_send(struct log_file *lf, uint32_t peer)
{
	struct log_link *l = &lf->links[peer];
	struct log_region_mirror *m;
	struct log_write w;
	struct log_call *k;
	struct wire_out o;

	k = call_new(lf, peer, WIRE_OP_LOG_WRITE, post_done, &o);
	if (!k)
		return false; /* the tick comes again */
	if (!log_writer_post_next(&lf->w, peer, &k->post)) {
		call_free(k);
		return false;
	}
	m = &lf->w.regions[k->post.index - lf->w.region_first];
	k->mirror = log_mirror_of(m->base);
	k->mirror->refs++;
	w = (struct log_write){
		.ino = lf->in->ino,
		.epoch = lf->epoch,
		.data_epoch = lf->epoch,
		.index = k->post.index,
		.off = k->post.off,
		.slot = { k->post.slot, LOG_SLOT_SIZE },
	};
	log_write_encode(&o, &w);
	k->iov.iov_base = m->base + k->post.off;
	k->iov.iov_len = k->post.len;
	k->call.iov = &k->iov;
	k->call.iov_count = 1;
	k->call.data_len = k->post.len;
	l->post_ms[lf->w.peers[peer].post_count - 1] = core_now_ms();
	lf->c->log->n.posts++;
	lf->c->log->n.post_bytes += k->post.len;
	call_queue(k, &o);
	return true;
}

const struct log_xport log_xport_tcp = { "tcp", post_send };

/* ---- giving back ---- */

static void free_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct log_call *k = container_of(call, struct log_call, call);
	struct core *c = k->lf->c;

	(void)status; /* what is not freed now is collected by the peer */
	(void)f;
	core_lock(c);
	call_free(k);
	core_unlock(c);
}

static void free_send(struct log_file *lf, uint32_t peer, uint32_t below)
{
	struct log_free r = {
		.ino = lf->in->ino,
		.epoch = lf->epoch,
		.data_epoch = lf->epoch,
		.below = below,
	};
	struct wire_out o;
	struct log_call *k = call_new(lf, peer, WIRE_OP_LOG_FREE, free_done,
				      &o);

	if (!k)
		return;
	log_free_encode(&o, &r);
	call_queue(k, &o);
}

void log_free_all(struct log_file *lf)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_link *l = &lf->links[i];

		if (lf->w.peers[i].state != LOG_PEER_UNUSED && l->dev &&
		    l->dev->up)
			free_send(lf, i, LOG_FREE_ALL);
	}
}

/* Behind all that was sent to it, and before all that will be, also over a
 * later connection: a daemon ends the older one before it answers there. */
void log_free_peer(struct log_file *lf, uint32_t peer)
{
	const struct log_dev *d = lf->links[peer].dev;

	if (d && d->up && d->boot_id == lf->w.peers[peer].boot_id)
		free_send(lf, peer, LOG_FREE_ALL);
}

/* ---- connecting over verbs ---- */

/* Is there a way to write into its memory? */
static const struct cmap_log *verbs_peer(const struct log_dev *d)
{
	const struct core *c = d->c;
	const struct cmap_log *m;

	if (c->opt.log_transport == CORE_LOG_TCP || !c->blk->map ||
	    !log_verbs_maybe(d->c))
		return NULL;
	m = cmap_find_log(c->blk->map, d->id);
	return m && m->rdma_port ? m : NULL;
}

/* What was on its way over another transport is sent again. */
static void link_again(struct log_file *lf, uint32_t peer)
{
	struct log_writer_peer *p = &lf->w.peers[peer];

	link_close(&lf->links[peer]);
	if (p->state == LOG_PEER_UP)
		log_writer_up(&lf->w, peer, p->boot_id);
}

/* For as long as this peer has this log. */
static void link_tcp(struct log_file *lf, uint32_t peer, const char *why)
{
	if (lf->c->opt.log_transport == CORE_LOG_VERBS) {
		log_peer_failed(lf, peer, why);
		return;
	}
	diag_info("log", "event=verbs_given_up ino=%llu epoch=%llu logd=%u "
		  "why=\"%s\" action=\"tcp\"",
		  (unsigned long long)lf->in->ino,
		  (unsigned long long)lf->epoch, lf->w.peers[peer].id, why);
	link_again(lf, peer);
	lf->links[peer].xport = &log_xport_tcp;
	if (lf->w.peers[peer].state == LOG_PEER_UP)
		lf->links[peer].trouble_ms = 0; /* it is there this way */
}

static void connect_done(struct rpc_call *call, int status,
			 const struct rpc_frame *f)
{
	struct log_call *k = container_of(call, struct log_call, call);
	struct log_file *lf = k->lf;
	struct core *c = lf->c;
	struct log_connect_reply r = { .token = 0 };
	struct log_reply lr;
	struct wire_in in;

	core_lock(c);
	if (status == 0)
		status = reply_take(f, &in, &lr);
	if (status == 0) {
		log_connect_reply_decode(&in, &r);
		status = wire_in_known(&in);
	}
	if (call_counts(k) && status == 0) {
		struct log_link *l = &lf->links[k->peer];
		const struct cmap_log *m = verbs_peer(l->dev);

		l->conn = m ? log_verbs_connect(lf, k->peer, m->rdma_addr,
						m->rdma_port, r.token) : NULL;
		if (!l->conn)
			link_tcp(lf, k->peer, "no connection can be made");
	} else if (call_counts(k)) {
		if (status == -ESTALE || status == -EIDRM ||
		    status == -ECONNRESET || status == -ECANCELED)
			answer_bad(k, status);
		else
			link_tcp(lf, k->peer, strerror(-status));
	}
	if (lf->state == LOG_ACTIVE)
		log_step(lf);
	call_free(k);
	core_unlock(c);
}

/* Once the peer has the log. */
static void connect_send(struct log_file *lf, uint32_t peer)
{
	struct log_connect m = { .ino = lf->in->ino, .epoch = lf->epoch };
	struct log_call *k;
	struct wire_out o;

	if (lf->w.peers[peer].alloc_next == 0)
		return;
	k = call_new(lf, peer, WIRE_OP_LOG_CONNECT, connect_done, &o);
	if (!k)
		return; /* the tick comes again */
	lf->links[peer].connecting = true;
	log_connect_encode(&o, &m);
	call_queue(k, &o);
}

void log_link_connected(struct log_file *lf, uint32_t peer)
{
	struct log_link *l = &lf->links[peer];

	l->connecting = false;
	l->xport = &log_xport_verbs;
	l->trouble_ms = 0;
	if (lf->state == LOG_ACTIVE)
		log_step(lf);
}

void log_link_lost(struct log_file *lf, uint32_t peer, bool again,
		   const char *why)
{
	struct log_link *l = &lf->links[peer];

	if (l->trouble_ms == 0)
		l->trouble_ms = core_now_ms();
	if (again && ++l->breaks <= LOG_BREAKS_MAX) {
		diag_warn("log", "event=verbs_lost ino=%llu epoch=%llu "
			  "logd=%u why=\"%s\"",
			  (unsigned long long)lf->in->ino,
			  (unsigned long long)lf->epoch,
			  lf->w.peers[peer].id, why);
		link_again(lf, peer);
	} else {
		link_tcp(lf, peer, why);
	}
	if (lf->state == LOG_ACTIVE)
		log_step(lf);
}

/* ---- what is next ---- */

void log_step(struct log_file *lf)
{
	if (lf->c->freeing)
		return; /* its peers end, one after the other */
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		struct log_link *l = &lf->links[i];
		uint32_t below;

		if (lf->w.peers[i].state != LOG_PEER_UP && l->conn)
			link_close(l);
		if (lf->w.peers[i].state != LOG_PEER_UP || !l->dev ||
		    !l->dev->up)
			continue;
		while (log_writer_free_next(&lf->w, i, &below))
			free_send(lf, i, below);
		alloc_send(lf, i);
		if (!l->xport && !l->connecting)
			connect_send(lf, i);
		while (l->xport &&
		       lf->w.peers[i].post_count < LOG_WRITER_POST_MAX &&
		       !log_may_lag(lf, i) && l->xport->post(lf, i))
			;
	}
}

/* ---- connections ---- */

void log_link_init(struct log_file *lf, uint32_t peer)
{
	struct log_link *l = &lf->links[peer];

	link_close(l);
	l->leaves = false;
	l->breaks = 0;
	l->starved_ms = 0;
	l->trouble_ms = core_now_ms();
	l->dev = log_dev_of(lf->c, lf->w.peers[peer].id);
	l->xport = &log_xport_tcp;
	if (lf->c->opt.log_transport == CORE_LOG_VERBS ||
	    (l->dev && verbs_peer(l->dev)))
		l->xport = NULL;
	if (l->dev && l->dev->up) {
		log_writer_up(&lf->w, peer, l->dev->boot_id);
		l->trouble_ms = 0;
	}
}

void log_links_init(struct log_file *lf)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (lf->w.peers[i].state != LOG_PEER_UNUSED)
			log_link_init(lf, i);
}

static void link_up(struct log_file *lf, uint32_t peer, struct log_dev *d)
{
	log_writer_up(&lf->w, peer, d->boot_id);
	if (lf->w.peers[peer].state == LOG_PEER_FAILED)
		log_tick_want(lf->c);
	else
		lf->links[peer].trouble_ms = 0;
}

static void link_down(struct log_file *lf, uint32_t peer)
{
	struct log_link *l = &lf->links[peer];

	link_close(l);
	if (l->trouble_ms == 0)
		l->trouble_ms = core_now_ms();
	if (lf->w.peers[peer].state == LOG_PEER_UP)
		log_writer_down(&lf->w, peer);
}

static void links_each(struct log_dev *d, bool up)
{
	struct dlist *n, *save;

	dlist_for(n, save, &d->c->log->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (lf->state != LOG_ACTIVE)
			continue;
		for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
			if (lf->w.peers[i].state == LOG_PEER_UNUSED ||
			    lf->links[i].dev != d)
				continue;
			if (up)
				link_up(lf, i, d);
			else
				link_down(lf, i);
		}
		log_step(lf); /* others may be in front now */
	}
}

void log_links_up(struct log_dev *d)
{
	links_each(d, true);
}

void log_links_down(struct log_dev *d)
{
	links_each(d, false);
}
