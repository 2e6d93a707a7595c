/* Life cycle of the client core, its lock and what waits for the unlock. */
#include "fuse/core/blk_priv.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

void core_lock(struct core *c)
{
	pthread_mutex_lock(&c->lock);
}

void core_unlock(struct core *c)
{
	struct rpc_peer *kick[CORE_KICK_MAX];
	unsigned count = c->kick_count;
	struct core_deferred *d = c->deferred_head;

	memcpy(kick, c->kick, count * sizeof(kick[0]));
	c->kick_count = 0;
	c->deferred_head = NULL;
	c->deferred_tail = &c->deferred_head;
	pthread_mutex_unlock(&c->lock);

	for (unsigned i = 0; i < count; i++)
		rpc_kick(kick[i]);
	while (d) {
		/* it may free itself */
		struct core_deferred *next = d->next;
		d->fn(d);
		d = next;
	}
}

void core_waiters_run(struct core_waiter *w, int err)
{
	while (w) {
		struct core_waiter *next = w->next;

		w->fn(w, err);
		w = next;
	}
}

void core_defer(struct core *c, struct core_deferred *d)
{
	d->next = NULL;
	*c->deferred_tail = d;
	c->deferred_tail = &d->next;
}

void core_kick_later(struct core *c, struct rpc_peer *p)
{
	for (unsigned i = 0; i < c->kick_count; i++)
		if (c->kick[i] == p)
			return;
	if (c->kick_count < CORE_KICK_MAX)
		c->kick[c->kick_count++] = p;
	else
		rpc_kick(p);
}

bool core_is_fenced(struct core *c)
{
	core_lock(c);
	bool fenced = c->fenced;
	core_unlock(c);
	return fenced;
}

int64_t core_now_ns(void)
{
	return (int64_t)clock_now_ns(CLOCK_REALTIME_COARSE);
}

uint64_t core_now_ms(void)
{
	return clock_now_ms(CLOCK_MONOTONIC);
}

/* ---- waiting at start and stop ---- */

/* Shared by the waiting thread and the callback; the last one frees it. */
struct core_wait {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int refs;
	bool done;
	int err;
};

static struct core_wait *core_wait_new(void)
{
	pthread_condattr_t attr;
	struct core_wait *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	pthread_mutex_init(&w->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->cond, &attr);
	pthread_condattr_destroy(&attr);
	w->refs = 2;
	return w;
}

/* Mutex held. */
static void core_wait_put(struct core_wait *w)
{
	bool last = --w->refs == 0;
	pthread_mutex_unlock(&w->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->mutex);
	free(w);
}

static void core_wait_cb(void *arg, int err)
{
	struct core_wait *w = arg;
	pthread_mutex_lock(&w->mutex);
	w->done = true;
	w->err = err;
	pthread_cond_signal(&w->cond);
	core_wait_put(w);
}

/* @deadline_ms: core_now_ms(); 0: for ever. */
static int core_wait_for(struct core_wait *w, uint64_t deadline_ms)
{
	struct timespec t = {
		.tv_sec = (time_t)(deadline_ms / 1000),
		.tv_nsec = (long)(deadline_ms % 1000) * 1000000,
	};
	int err = -ETIMEDOUT;

	pthread_mutex_lock(&w->mutex);
	while (!w->done) {
		if (deadline_ms == 0)
			pthread_cond_wait(&w->cond, &w->mutex);
		else if (pthread_cond_timedwait(&w->cond, &w->mutex, &t))
			break;
	}
	if (w->done)
		err = w->err;
	core_wait_put(w);
	return err;
}

int core_call_wait(struct core *c, void (*start)(struct core *c, core_cb cb,
						 void *arg),
		   uint64_t deadline_ms)
{
	struct core_wait *w = core_wait_new();
	if (!w)
		return -ENOMEM;
	start(c, core_wait_cb, w);
	return core_wait_for(w, deadline_ms);
}

/* ---- life ---- */

static int core_new_parts(struct core *c)
{
	struct rpc_identity id = {
		.role = WIRE_ROLE_CLIENT,
		.cluster_id = c->opt.conf->cluster_id,
		.name = c->opt.mountpoint,
		.gate = c->opt.conf->gate,
	};
	int err = rpc_net_new(&id, &c->net);
	if (err)
		return err;
	err = inode_table_init(c);
	if (!err)
		err = ret_new(c, &c->ret);
	if (!err)
		err = share_new(c, &c->share);
	if (!err)
		err = dir_pages_new(&c->dir_pages);
	if (!err)
		err = name_cache_new(&c->names);
	if (!err)
		err = dir_known_new(&c->known);
	if (!err)
		err = early_new(c, &c->early);
	if (!err)
		err = meta_client_new(c, &c->meta);
	if (!err)
		err = blk_client_new(c, &c->blk);
	if (!err)
		err = log_client_new(c, &c->log);
	if (!err)
		err = flusher_new(c, &c->flusher);
	if (!err)
		err = prefetch_new(c, &c->prefetch);
	return err;
}

int core_new(const struct core_options *o, struct core **ret)
{
	struct core *c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->opt = *o;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->locks_mutex, NULL);
	c->deferred_tail = &c->deferred_head;
	dlist_init(&c->files);
	c->locks = lock_table_new();
	int err = c->locks ? core_new_parts(c) : -ENOMEM;
	if (err) {
		core_free(c);
		return err;
	}
	*ret = c;
	return 0;
}

int core_start(struct core *c, uint64_t timeout_ms)
{
	int err = meta_client_start(c, timeout_ms ?
					       core_now_ms() + timeout_ms : 0);

	return err ? err : log_recover_all(c, core_now_ms() + LOG_RECOVER_MS);
}

int core_stop(struct core *c, uint64_t timeout_ms)
{
	uint64_t deadline = timeout_ms ? core_now_ms() + timeout_ms : 0;
	int err, err2;

	/* What follows a log that has no room in the blocks does not wait for
	 * it any more: the peers have it for the next mount. */
	log_stop_begin(c);
	log_heir_end(c);
	if (!meta_session(c))
		return 0;
	err = core_call_wait(c, core_sync_all, deadline);
	err2 = core_call_wait(c, log_stop, deadline);
	err = err ? err : err2;
	core_lock(c);
	c->stopping = true;
	ret_flush_all(c);
	core_unlock(c);
	err2 = meta_client_stop(c, deadline);
	return err ? err : err2;
}

/* Nothing comes from the network any more. */
static void answer_writers(struct core *c)
{
	core_lock(c);
	wb_fail_all(c, -ECANCELED);
	core_unlock(c);
}

static void files_free(struct core *c)
{
	struct dlist *l, *save;

	dlist_for(l, save, &c->files)
		free(dlist_entry(l, struct core_file, node));
}

void core_free(struct core *c)
{
	if (!c)
		return;
	core_lock(c);
	c->stopping = true;
	c->freeing = true;
	core_unlock(c);
	/* Every call is answered (-ECANCELED) and no thread of ours runs after
	 * this; then the parts can go in any order. */
	flusher_stop(c->flusher);
	log_verbs_stop(c); /* it queues to peers of the net */
	rpc_net_free(c->net);
	if (c->meta)
		meta_client_cancel(c->meta);
	if (c->blk)
		answer_writers(c);
	log_client_cancel(c->log);
	files_free(c);
	if (c->prefetch)
		prefetch_free(c->prefetch);
	if (c->flusher)
		flusher_free(c->flusher);
	if (c->inode_hash)
		inode_table_fini(c);
	if (c->blk)
		blk_client_free(c->blk);
	meta_client_free(c->meta);
	early_free(c->early);
	dir_known_free(c->known);
	name_cache_free(c->names);
	dir_pages_free(c->dir_pages);
	ret_free(c->ret);
	share_free(c->share);
	log_client_free(c->log);
	lock_table_free(c->locks);
	core_notes_free(c);
	pthread_mutex_destroy(&c->locks_mutex);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
