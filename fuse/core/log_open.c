/* How a log begins: its directory's options, peers, and its entry at metad, one
 * after the other; or why it does not, and the file is an ordinary one. */
#include "fuse/core/log_priv.h"

#include "common/diag.h"

/* Do these peers lose power together, as far as the map tells? */
static bool peers_shared(struct core *c, const struct log_writer_peer_id *ids,
			 uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct cmap_log *a = cmap_find_log(c->blk->map,
							 ids[i].id);

		for (uint32_t j = 0; j < i; j++) {
			const struct cmap_log *b = cmap_find_log(c->blk->map,
								 ids[j].id);

			if (a && b && strcmp(a->domain, b->domain) == 0)
				return true;
		}
	}
	return count < 2;
}

/* Are block writes held behind it, as long as it lives, and does it go back
 * when all its peers have lost it? */
static bool is_ordered(const struct log_file *lf)
{
	return lf->opts.destage == LOG_DESTAGE_INTERVAL ||
	       (lf->opts.destage == LOG_DESTAGE_AUTO &&
		peers_shared(lf->c, lf->ids, lf->id_count));
}

static void log_opened(struct log_file *lf)
{
	struct core *c = lf->c;
	struct core_inode *in = lf->in;

	lf->state = LOG_ACTIVE;
	lf->covers = !in->wb || wb_inode_clean(in);
	c->log->n.opened++;
	c->log->fallback_told = false;
	log_writer_init(&lf->w, c->opt.conf->cluster_id, in->ino, lf->epoch,
			lf->version, lf->opts.region_log2, lf->ids,
			(uint8_t)lf->id_count, in->attr.size);
	log_links_init(lf);
	lf->destaged_ms = core_now_ms();
	if (!lf->covers)
		log_destage(lf);
	log_tick_want(c);
	log_wake(lf);
	log_step(lf);
}

void log_hurry(struct core *c)
{
	struct dlist *n, *save;

	dlist_for(n, save, &c->log->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (lf->in->write_open_count == 0)
			lf->closed_ms = LOG_HURRY_MS;
		if (lf->w.region_count > 1 && lf->destaged_seq < lf->w.seq)
			log_destage(lf);
	}
}

/* There is none for a while: the file is an ordinary one, or may not be
 * written. */
static void log_fall_back(struct log_file *lf, int err)
{
	struct core *c = lf->c;

	lf->in->log_refused = 0;
	if (lf->opts.fallback == LOG_FALLBACK_REFUSE)
		lf->in->log_refused = err == -ENOSPC ? -ENOSPC : -EIO;
	log_hurry(c);
	if (!c->log->fallback_told)
		diag_warn("log", "event=fallback ino=%llu error=\"%s\"",
			  (unsigned long long)lf->in->ino, strerror(-err));
	c->log->fallback_told = true;
	c->log->n.fallbacks++;
	lf->in->log_retry_ms = core_now_ms() + LOG_FALLBACK_MS;
	log_end(lf);
}

/* The entry is durable: a recovery finds whatever is put into the log. */
static void set_durable(struct core_waiter *w, int err)
{
	struct log_file *lf = container_of(w, struct log_file, durable);

	if (lf->state != LOG_OPENING)
		return;
	if (err)
		log_fall_back(lf, err);
	else
		log_opened(lf);
}

int log_entry_take(const uint8_t *body, uint32_t len, uint64_t ino,
		   struct meta_log_entry *e)
{
	int err = meta_log_entry_parse(body, len, e);

	if (err || e->ino != ino || e->epoch == 0 ||
	    e->data_epoch > e->epoch || e->data_epoch == 0)
		return -EBADMSG;
	return 0;
}

static void set_done(struct meta_call *mc, int err, const uint8_t *body,
		     uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;
	struct meta_log_entry e;

	core_lock(c);
	lf->set_busy = false;
	if (!err)
		err = log_entry_take(body, len, mc->arg64, &e);
	if (lf->state == LOG_OPENING && err) {
		log_fall_back(lf, err);
	} else if (lf->state == LOG_OPENING) {
		lf->epoch = e.epoch;
		lf->version = e.version;
		lf->durable.fn = set_durable;
		if (meta_durable(c, mc->seq, &lf->durable))
			log_opened(lf);
	}
	log_put(lf);
	core_unlock(c);
}

int log_ids_put(struct wire_out *o, const struct log_writer_peer_id *ids,
		uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct meta_log_peer p = {
			.id = ids[i].id, .boot_id = ids[i].boot_id,
		};

		meta_log_peer_encode(o, &p);
	}
	return o->overflow ? -EOVERFLOW : 0;
}

struct meta_call *log_set_new(struct core *c, const struct meta_log_set *want,
			      const struct log_writer_peer_id *ids,
			      uint32_t count)
{
	uint8_t peers[12 * LOG_PEER_COUNT_MAX];
	struct meta_log_set set = *want;
	struct meta_call *mc;
	struct wire_out o;

	wire_out_init(&o, peers, sizeof(peers));
	if (log_ids_put(&o, ids, count))
		return NULL;
	set.peers = (struct wire_str){ peers, (uint32_t)o.len };
	mc = meta_call_new(c, WIRE_OP_META_LOG_SET, meta_log_set_size(&set),
			   &o);
	if (!mc)
		return NULL;
	meta_log_set_encode(&o, &set);
	meta_call_queue(mc, &o);
	return mc;
}

struct meta_call *log_drop_new(struct core *c, uint64_t ino, uint64_t epoch)
{
	struct meta_log_drop m = { .ino = ino, .epoch = epoch };
	struct meta_call *mc;
	struct wire_out o;

	mc = meta_call_new(c, WIRE_OP_META_LOG_DROP, meta_log_drop_size(&m),
			   &o);
	if (!mc)
		return NULL;
	meta_log_drop_encode(&o, &m);
	meta_call_queue(mc, &o);
	return mc;
}

static int log_set_first(struct log_file *lf)
{
	struct meta_log_set set = { .ino = lf->in->ino };
	struct meta_call *mc;
	int err = lease_want(lf->c, lf->in);

	if (err)
		return err;
	lf->ordered = is_ordered(lf);
	set.version = lf->ordered ? META_LOG_ORDERED : 0;
	mc = log_set_new(lf->c, &set, lf->ids, lf->id_count);
	if (!mc)
		return -ENOMEM;
	mc->done = set_done;
	mc->arg = lf;
	mc->arg64 = lf->in->ino;
	log_get(lf);
	lf->set_busy = true;
	return 0;
}

int log_ids_take(const uint8_t *body, uint32_t len, uint32_t max,
		 struct log_writer_peer_id *ids, uint32_t *count)
{
	struct meta_log_peers_reply r;
	struct wire_in in;

	if (meta_log_peers_reply_parse(body, len, &r) || r.count > max)
		return -EBADMSG;
	wire_in_init(&in, r.peers.p, r.peers.len);
	for (uint32_t i = 0; i < r.count; i++) {
		struct meta_log_peer p;

		meta_log_peer_decode(&in, &p);
		ids[i].id = p.id;
		ids[i].boot_id = p.boot_id;
	}
	if (wire_in_end(&in))
		return -EBADMSG;
	*count = r.count;
	return 0;
}

static int log_ask_opts(struct log_file *lf);
static void any_done(struct meta_call *mc, int err, const uint8_t *body,
		     uint32_t len);

/* Too few can lend a region. Where that shall be an error it is to be known
 * which, and memory that logs have and need no more is waited for. */
static int too_few(struct log_file *lf)
{
	if (lf->opts.fallback != LOG_FALLBACK_REFUSE)
		return -EHOSTUNREACH;
	return log_ask_peers(lf, lf->opts.peers, 0, NULL, 0, any_done);
}

/* Those that are there, with memory or without. */
static void any_done(struct meta_call *mc, int err, const uint8_t *body,
		     uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;

	core_lock(c);
	if (!err)
		err = log_ids_take(body, len, lf->opts.peers, lf->ids,
				   &lf->id_count);
	if (!err)
		err = lf->id_count < lf->opts.peers ? -EHOSTUNREACH : -ENOSPC;
	if (lf->state == LOG_OPENING && err == -ENOSPC && !lf->waited) {
		lf->waited = true;
		lf->retry_ms = core_now_ms() + LOG_RETRY_MS;
		log_hurry(c);
		log_tick_want(c);
	} else if (lf->state == LOG_OPENING) {
		log_fall_back(lf, err);
	}
	log_put(lf);
	core_unlock(c);
}

void log_open_again(struct log_file *lf)
{
	int err = log_ask_opts(lf);

	lf->retry_ms = 0;
	if (err)
		log_fall_back(lf, err);
}

static void peers_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;

	core_lock(c);
	if (!err)
		err = log_ids_take(body, len, lf->opts.peers, lf->ids,
				   &lf->id_count);
	/* A log that began with fewer would not survive what it promises. */
	if (lf->state == LOG_OPENING && !err)
		err = lf->id_count < lf->opts.peers ? too_few(lf) :
						      log_set_first(lf);
	if (lf->state == LOG_OPENING && err)
		log_fall_back(lf, err);
	log_put(lf);
	core_unlock(c);
}

int log_ask_peers(struct log_file *lf, uint32_t count, uint64_t bytes,
		  const struct log_writer_peer_id *without, uint32_t have,
		  void (*done)(struct meta_call *mc, int err,
			       const uint8_t *body, uint32_t len))
{
	uint8_t peers[12 * (LOG_WRITER_PEER_MAX + LOG_SHUN_MAX)];
	struct meta_log_peers q = {
		.count_max = count,
		.bytes = bytes,
	};
	struct meta_call *mc;
	struct wire_out o;

	wire_out_init(&o, peers, sizeof(peers));
	if (log_ids_put(&o, without, have))
		return -EINVAL;
	q.without = (struct wire_str){ peers, (uint32_t)o.len };
	mc = meta_call_new(lf->c, WIRE_OP_META_LOG_PEERS,
			   meta_log_peers_size(&q), &o);
	if (!mc)
		return -ENOMEM;
	meta_log_peers_encode(&o, &q);
	mc->done = done;
	mc->arg = lf;
	log_get(lf);
	meta_call_queue(mc, &o);
	return 0;
}

static int opts_take(const uint8_t *body, uint32_t len, struct log_opts *o)
{
	struct meta_blob b;

	if (meta_blob_parse(body, len, &b))
		return -EBADMSG;
	return log_opts_parse(b.value, o);
}

static void opts_done(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t len)
{
	struct log_writer_peer_id away[LOG_WRITER_PEER_MAX];
	struct log_file *lf = mc->arg;
	struct core *c = mc->c;

	core_lock(c);
	if (!err)
		err = opts_take(body, len, &lf->opts);
	if (lf->state == LOG_OPENING && !err)
		err = log_ask_peers(lf, lf->opts.peers,
				    (uint64_t)1 << lf->opts.region_log2, away,
				    log_devs_away(c, away), peers_done);
	if (lf->state == LOG_OPENING && err)
		log_fall_back(lf, err);
	log_put(lf);
	core_unlock(c);
}

static int log_ask_opts(struct log_file *lf)
{
	struct wire_out o;
	struct meta_call *mc = meta_call_new(lf->c, WIRE_OP_META_LOG_OPTS, 8,
					     &o);

	if (!mc)
		return -ENOMEM;
	wire_put_u64(&o, lf->in->ino);
	mc->done = opts_done;
	mc->arg = lf;
	log_get(lf);
	meta_call_queue(mc, &o);
	return 0;
}

static void open_ordered(struct core_waiter *w, int err)
{
	struct log_file *lf = container_of(w, struct log_file, durable);

	if (lf->state == LOG_OPENING && !err &&
	    log_order_holds(lf->c, lf->in) && log_order_wait(lf->c, w))
		return;
	if (lf->state == LOG_OPENING && !err)
		err = log_ask_opts(lf);
	if (lf->state == LOG_OPENING && err)
		log_fall_back(lf, err);
	log_put(lf);
}

int log_open(struct core *c, struct core_inode *in)
{
	struct log_file *lf = calloc(1, sizeof(*lf));
	int err = 0;

	if (!lf)
		return -ENOMEM;
	lf->c = c;
	lf->in = in;
	lf->refs = 1;
	lf->state = LOG_OPENING;
	lf->wait_tail = &lf->waits;
	lf->waiter_tail = &lf->waiters;
	dlist_init(&lf->node);
	/* Its frames as an ordinary file come to their end before. */
	lf->durable.fn = open_ordered;
	if (log_order_holds(c, in) && log_order_wait(c, &lf->durable))
		log_get(lf);
	else
		err = log_ask_opts(lf);
	if (err) {
		free(lf);
		return err;
	}
	dlist_add(&c->log->files, &lf->node);
	in->log = lf;
	inode_pin(in);
	if (c->log->mirror_bytes > c->opt.wb_bytes_max / LOG_DESTAGE_SHARE)
		log_hurry(c);
	return 0;
}
