/* The block daemons as this mount knows them: one peer each, its boot id and
 * free space, and which of them has a block. */
#include "fuse/core/blk_priv.h"

#include "common/diag.h"
#include "common/place.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

/* Big buffers are kept for reuse within the write-back bound, since page faults
 * cost more than the copy; a little beyond it, where writers wait; and not all
 * of a very large one. */
#define KEPT_MAX (256u << 20)
#define KEPT_BEYOND (4u << 20)
/* A daemon with less than this many bounds of free space is written through. */
#define LOW_FACTOR 2u

static void dev_stat_send(struct blk_dev *d);

/* ---- what daemons tell ---- */

void blk_dev_heard(struct blk_dev *d, uint64_t boot_id, uint64_t free_units)
{
	d->units_free = free_units;
	d->free_known = true;
	if (boot_id == d->boot_id)
		return;
	if (d->boot_id != 0)
		d->boots++;
	d->boot_id = boot_id;
	wb_boot_changed(d->c, d);
}

bool blk_dev_low(const struct blk_dev *d)
{
	return d->free_known && d->units_free * UNIT_SIZE <
				LOW_FACTOR * d->c->opt.wb_bytes_max;
}

static void dev_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct blk_dev *d = arg;
	struct core *c = d->c;
	bool ask;

	(void)p;
	core_lock(c);
	d->up = true;
	d->down_err = 0;
	if (d->boot_id != hr->boot_id) {
		if (d->boot_id != 0) {
			d->boots++;
			diag_info("core", "event=blockd-restarted id=%u "
				  "resend_bytes=%llu", d->id,
				  (unsigned long long)d->unsynced_bytes);
		}
		d->boot_id = hr->boot_id;
		wb_boot_changed(c, d);
	}
	ask = !d->stat_busy && !c->stopping && !c->fenced;
	d->stat_busy |= ask;
	core_unlock(c);
	if (ask)
		dev_stat_send(d);
}

static void dev_down(struct rpc_peer *p, int err, void *arg)
{
	struct blk_dev *d = arg;
	struct core *c = d->c;
	bool told;

	(void)p;
	core_lock(c);
	told = !d->up && (err != -EHOSTUNREACH || err == d->down_err);
	d->up = false;
	d->down_err = err;
	core_unlock(c);
	if (!told)
		diag_warn("core", "event=blockd-lost id=%u addr=%s:%u err=%d",
			  d->id, d->addr, d->port, -err);
	if (err != -ESTALE)
		return;
	core_lock(c);
	if (!c->stopping)
		meta_fence(c->meta, "refused by a block daemon");
	core_unlock(c);
}

static void dev_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	struct blk_dev *d = arg;

	(void)p;
	meta_map_wanted(d->c, epoch);
}

void blk_dev_stat(struct blk_dev *d, const struct blk_stat_reply *r)
{
	d->units_total = r->units_total;
	d->units_more = r->units_more;
	d->disk = r->disk;
	blk_dev_heard(d, r->boot_id, r->units_free);
}

static void dev_stat_done(struct rpc_call *call, int status,
			  const struct rpc_frame *f)
{
	struct blk_dev *d = container_of(call, struct blk_dev, stat_call);
	struct blk_stat_reply r;
	struct core *c = d->c;

	core_lock(c);
	d->stat_busy = false;
	if (status == 0 &&
	    blk_stat_reply_parse(f->body, f->h.body_len, &r) == 0) {
		blk_dev_stat(d, &r);
	}
	core_unlock(c);
}

/* On each connection: a mount must know a full disk before it buffers. */
static void dev_stat_send(struct blk_dev *d)
{
	d->stat_call = (struct rpc_call){
		.opcode = WIRE_OP_BLK_STAT,
		.body = d->stat_body,
		.cb = dev_stat_done,
	};
	blk_send(d, &d->stat_call);
}

/* ---- sending ---- */

void blk_queue(struct blk_dev *d, struct rpc_call *call)
{
	struct blk_client *b = d->c->blk;

	pthread_rwlock_rdlock(&b->peers_lock);
	if (d->peer && !d->c->freeing) {
		rpc_queue(d->peer, call);
		pthread_rwlock_unlock(&b->peers_lock);
		return;
	}
	pthread_rwlock_unlock(&b->peers_lock);
	call->cb(call, -ECANCELED, NULL);
}

void blk_kick(struct blk_dev *d)
{
	struct blk_client *b = d->c->blk;

	pthread_rwlock_rdlock(&b->peers_lock);
	if (d->peer && !d->c->freeing)
		rpc_kick(d->peer);
	pthread_rwlock_unlock(&b->peers_lock);
}

void blk_send(struct blk_dev *d, struct rpc_call *call)
{
	blk_queue(d, call);
	blk_kick(d);
}

bool blk_retry(struct core *c, int status)
{
	return status == -ECANCELED && !c->stopping && !c->fenced;
}

/* ---- the map ---- */

struct blk_dev *blk_dev_of(struct core *c, uint64_t ino, uint64_t index,
			   int *err)
{
	struct blk_client *b = c->blk;
	struct blk_dev *d;
	int i = b->map ? place_primary(b->map, ino, index) : -ENODEV;

	if (i < 0) {
		*err = -EIO;
		return NULL;
	}
	d = b->by_map[i];
	if (d->state == CMAP_STATE_LOST) {
		/* Its data is not what was acknowledged: absence there is not
		 * a hole (design section 5). */
		*err = -EIO;
		return NULL;
	}
	return d;
}

static struct blk_dev *dev_find(struct blk_client *b, uint32_t id)
{
	for (uint32_t i = 0; i < b->dev_count; i++)
		if (b->devs[i]->id == id)
			return b->devs[i];
	return NULL;
}

static int dev_connect(struct blk_dev *d, const struct cmap_daemon *m)
{
	struct blk_client *b = d->c->blk;
	struct rpc_peer *peer, *old;
	int err = rpc_peer_new(d->c->net, m->addr, m->port, &b->ops, d, &peer);

	if (err)
		return err;
	pthread_rwlock_wrlock(&b->peers_lock);
	old = d->peer;
	d->peer = peer;
	pthread_rwlock_unlock(&b->peers_lock);
	core_lock(d->c);
	memcpy(d->addr, m->addr, sizeof(d->addr));
	d->port = m->port;
	core_unlock(d->c);
	if (old)
		rpc_peer_close(old);
	return 0;
}

static int dev_new(struct blk_client *b, const struct cmap_daemon *m)
{
	struct blk_dev *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	d->c = b->c;
	d->id = m->id;
	d->index = b->dev_count;
	dlist_init(&d->unsynced);
	err = dev_connect(d, m);
	if (err) {
		free(d);
		return err;
	}
	core_lock(b->c);
	b->devs[b->dev_count++] = d;
	core_unlock(b->c);
	return 0;
}

static int devs_update(struct blk_client *b, const struct cmap *m)
{
	for (uint32_t i = 0; i < m->daemon_count; i++) {
		const struct cmap_daemon *md = &m->daemons[i];
		struct blk_dev *d = dev_find(b, md->id);
		int err = 0;

		if (!d)
			err = b->dev_count < DAEMON_COUNT_MAX ?
			      dev_new(b, md) : -ENOSPC;
		else if (d->port != md->port ||
			 memcmp(d->addr, md->addr, sizeof(d->addr)) != 0)
			err = dev_connect(d, md);
		if (err)
			return err;
	}
	return 0;
}

int blk_client_set_map(struct core *c, const struct cmap *m)
{
	struct blk_client *b = c->blk;
	struct cmap *copy, *old;
	int err;

	if (c->fenced)
		return -EIO;
	copy = cmap_dup(m);
	if (!copy)
		return -ENOMEM;
	err = devs_update(b, m);
	if (err) {
		cmap_free(copy);
		return err;
	}
	core_lock(c);
	old = b->map;
	b->map = copy;
	for (uint32_t i = 0; i < copy->daemon_count; i++) {
		struct blk_dev *d = dev_find(b, copy->daemons[i].id);

		assert(d); /* devs_update() made it */
		b->by_map[i] = d;
		d->state = copy->daemons[i].state;
	}
	core_unlock(c);
	cmap_free(old);
	return 0;
}

uint64_t blk_client_epoch(struct core *c)
{
	uint64_t epoch;

	core_lock(c);
	epoch = c->blk->map ? c->blk->map->epoch : 0;
	core_unlock(c);
	return epoch;
}

/* ---- life ---- */

int blk_client_new(struct core *c, struct blk_client **ret)
{
	struct blk_client *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->c = c;
	b->ops.up = dev_up;
	b->ops.down = dev_down;
	b->ops.epoch = dev_epoch;
	b->wait_tail = &c->wb_waiters;
	dlist_init(&b->unclean);
	dlist_init(&b->dirty);
	dlist_init(&b->stale);
	dlist_init(&b->cuts);
	wbuf_mem_init(&b->mem, u64_min(c->opt.wb_bytes_max, KEPT_MAX) +
			       KEPT_BEYOND);
	pthread_rwlock_init(&b->peers_lock, NULL);
	*ret = b;
	return 0;
}

void blk_client_free(struct blk_client *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->dev_count; i++)
		free(b->devs[i]);
	cmap_free(b->map);
	wbuf_mem_fini(&b->mem);
	pthread_rwlock_destroy(&b->peers_lock);
	free(b);
}

static void peers_close(struct blk_client *b)
{
	for (uint32_t i = 0; i < b->dev_count; i++) {
		struct blk_dev *d = b->devs[i];
		struct rpc_peer *old;

		pthread_rwlock_wrlock(&b->peers_lock);
		old = d->peer;
		d->peer = NULL;
		pthread_rwlock_unlock(&b->peers_lock);
		if (old)
			rpc_peer_close(old);
	}
}

static void fenced_close(struct core_deferred *d)
{
	peers_close(container_of(d, struct blk_client, fenced));
}

void blk_client_fence(struct core *c)
{
	if (c->fenced)
		return;
	c->fenced = true;
	if (!c->blk)
		return;
	wb_fail_all(c, -EIO);
	log_fence(c);
	c->blk->fenced.fn = fenced_close;
	core_defer(c, &c->blk->fenced);
}

/* ---- status ---- */

static void dev_status(const struct blk_dev *d, FILE *out)
{
	fprintf(out,
		"{\"id\":%u,\"addr\":\"%s\",\"port\":%u,\"up\":%s,"
		"\"state\":%u,\"errno\":%d,\"free_bytes\":%llu,\"low\":%s,"
		"\"in_flight\":%u,\"unsynced_bytes\":%llu,\"restarts\":%llu}",
		d->id, d->addr, d->port, d->up ? "true" : "false", d->state,
		-d->down_err,
		(unsigned long long)d->units_free * UNIT_SIZE,
		blk_dev_low(d) ? "true" : "false", d->flight,
		(unsigned long long)d->unsynced_bytes,
		(unsigned long long)d->boots);
}

#define COUNTER(name)                                                         \
	fprintf(out, ",\"%s\":%llu", #name, (unsigned long long)b->n.name)

void blk_client_status(struct core *c, FILE *out)
{
	struct blk_client *b = c->blk;

	core_lock(c);
	fprintf(out, "\"wb_bytes\":%llu,\"wb_dirty_bytes\":%llu,"
		"\"wb_bytes_max\":%llu,\"fenced\":%s",
		(unsigned long long)b->mem.bytes,
		(unsigned long long)b->mem.dirty_bytes,
		(unsigned long long)c->opt.wb_bytes_max,
		c->fenced ? "true" : "false");
	COUNTER(writes);
	COUNTER(write_bytes);
	COUNTER(syncs);
	COUNTER(syncs_all);
	COUNTER(sync_flags);
	COUNTER(syncs_ahead);
	COUNTER(reads);
	COUNTER(read_bytes);
	COUNTER(resent);
	COUNTER(errors);
	COUNTER(waits);
	COUNTER(bad_sums);
	COUNTER(stale);
	COUNTER(prefetched);
	COUNTER(prefetch_hits);
	COUNTER(prefetch_dropped);
	fprintf(out, ",\"blockds\":[");
	for (uint32_t i = 0; i < b->dev_count; i++) {
		if (i > 0)
			fputc(',', out);
		dev_status(b->devs[i], out);
	}
	fprintf(out, "]");
	core_unlock(c);
}
