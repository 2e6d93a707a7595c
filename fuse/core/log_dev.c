/* Log daemons as this mount knows them: one connection each, made when the
 * first log wants it, and a ping a second: is it there, and does it want
 * memory back? */
#include "fuse/core/log_priv.h"

#include "common/diag.h"

static void dev_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct log_dev *d = arg;
	struct core *c = d->c;

	(void)p;
	core_lock(c);
	if (d->boot_id && d->boot_id != hr->boot_id)
		diag_info("log", "event=logd-restarted id=%u", d->id);
	d->up = true;
	d->away = d->ended = false;
	d->boot_id = hr->boot_id;
	log_links_up(d);
	core_unlock(c);
}

static void dev_down(struct rpc_peer *p, int err, void *arg)
{
	struct log_dev *d = arg;
	struct core *c = d->c;
	bool told;

	(void)p;
	core_lock(c);
	told = d->away;
	d->up = false;
	d->away = true;
	d->ended = err == -ECONNREFUSED;
	log_links_down(d);
	core_unlock(c);
	if (!told)
		diag_warn("log", "event=logd-lost id=%u addr=%s:%u err=%d",
			  d->id, d->addr, d->port, -err);
	if (err == -ESTALE)
		meta_suspect(c);
}

static void dev_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	struct log_dev *d = arg;

	(void)p;
	meta_map_wanted(d->c, epoch);
}

static const struct rpc_peer_ops dev_ops = {
	.up = dev_up,
	.down = dev_down,
	.epoch = dev_epoch,
};

struct log_dev *log_dev_of(struct core *c, uint32_t id)
{
	struct log_client *l = c->log;
	const struct cmap_log *m;
	struct log_dev *d;

	for (uint32_t i = 0; i < l->dev_count; i++)
		if (l->devs[i]->id == id)
			return l->devs[i];
	m = c->blk->map ? cmap_find_log(c->blk->map, id) : NULL;
	if (!m || !m->addr[0] || l->dev_count == LOG_DAEMON_COUNT_MAX)
		return NULL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->c = c;
	d->id = id;
	memcpy(d->addr, m->addr, sizeof(d->addr));
	d->port = m->port;
	if (rpc_peer_new(c->net, d->addr, d->port, &dev_ops, d, &d->peer)) {
		free(d);
		return NULL;
	}
	rpc_peer_helped(d->peer);
	l->devs[l->dev_count++] = d;
	return d;
}

static void dev_move(struct log_dev *d, const struct cmap_log *m)
{
	if (!m || !m->addr[0] ||
	    (d->port == m->port && strcmp(d->addr, m->addr) == 0))
		return;
	diag_info("log", "event=logd-moved id=%u addr=%s:%u", d->id, m->addr,
		  m->port);
	if (rpc_peer_move(d->peer, m->addr, m->port))
		return; /* with the next map */
	memcpy(d->addr, m->addr, sizeof(d->addr));
	d->port = m->port;
	d->ended = false; /* that was said of the other place */
}

void log_devs_move(struct core *c)
{
	core_lock(c);
	for (uint32_t i = 0; i < c->log->dev_count; i++)
		dev_move(c->log->devs[i],
			 cmap_find_log(c->blk->map, c->log->devs[i]->id));
	core_unlock(c);
}

uint32_t log_devs_away(struct core *c, struct log_writer_peer_id *ids)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < c->log->dev_count; i++) {
		const struct log_dev *d = c->log->devs[i];
		const struct cmap_log *m;

		if (!d->away || count == LOG_WRITER_PEER_MAX)
			continue;
		/* One that was never reached goes by what metad knows; of one
		 * that was, another boot may be reachable. */
		m = d->boot_id ? NULL : cmap_find_log(c->blk->map, d->id);
		ids[count++] = (struct log_writer_peer_id){
			d->id, m ? m->boot_id : d->boot_id,
		};
	}
	return count;
}

/* ---- ping ---- */

/* Memory of these logs is wanted back: the peer is as good as failed, but
 * counts until it is replaced. */
static void take_wanted(struct log_dev *d, const struct log_ping_reply *r)
{
	struct log_client *l = d->c->log;
	struct wire_in in;

	wire_in_init(&in, r->wanted.p, r->wanted.len);
	for (uint32_t i = 0; i < r->count && !in.bad; i++) {
		struct dlist *n, *save;
		struct log_name name;

		log_name_decode(&in, &name);
		dlist_for(n, save, &l->files) {
			struct log_file *lf =
				dlist_entry(n, struct log_file, node);

			if (lf->state == LOG_ACTIVE &&
			    lf->in->ino == name.ino &&
			    lf->epoch == name.epoch)
				log_peer_leaves(lf, d);
		}
	}
}

static void ping_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct log_dev *d = container_of(call, struct log_dev, ping);
	struct log_ping_reply r;
	struct log_reply lr;
	struct wire_in in;

	core_lock(d->c);
	d->ping_busy = false;
	if (status == 0) {
		wire_in_init(&in, f->body, f->h.body_len);
		log_reply_decode(&in, &lr);
		log_ping_reply_decode(&in, &r);
		if (wire_in_known(&in) == 0)
			take_wanted(d, &r);
	}
	core_unlock(d->c);
}

void log_dev_ping(struct log_dev *d)
{
	if (!d->up || d->ping_busy)
		return;
	d->ping_busy = true;
	d->ping_sent_ms = core_now_ms();
	d->ping = (struct rpc_call){
		.opcode = WIRE_OP_LOG_PING,
		.cb = ping_done,
	};
	rpc_queue(d->peer, &d->ping);
	core_kick_later(d->c, d->peer);
}
