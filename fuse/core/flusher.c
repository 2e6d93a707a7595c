/* The thread that writes and syncs what nobody asked for: content that is old
 * enough, inodes that got memory again. */
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"

#include "common/clock.h"

/* Inodes it collects before it lets go of the lock. */
#define FLUSH_BATCH 64u

struct flusher {
	struct core *c;
	pthread_t thread;
	bool started;
	/* A leaf; the thread sleeps on it. */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool kicked, stop;
	bool idle; /* protected by core->lock: sleeps until kicked */
	bool quiet; /* the thread's: nothing was dirty in the last round */
};

void flusher_kick(struct core *c)
{
	struct flusher *f = c->flusher;

	if (!f)
		return;
	f->idle = false;
	pthread_mutex_lock(&f->lock);
	f->kicked = true;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

void flusher_note(struct core *c)
{
	if (c->flusher && c->flusher->idle)
		flusher_kick(c);
}

/* Collects up to a batch of inodes that are due. Returns false when there are
 * no more; *@soon: some are in a few milliseconds. Lock held. */
static bool flush_due(struct core *c, uint64_t now_ms, bool *soon)
{
	struct blk_client *b = c->blk;
	uint64_t age = c->opt.flush_age_ms;
	struct dlist *l, *save;
	uint32_t count = 0;
	struct wb_send s;

	wb_send_init(c, &s);
	dlist_for(l, save, &b->dirty) {
		struct wb_inode *wb = dlist_entry(l, struct wb_inode,
						  dirty_node);

		*soon |= wb->dirty_ms > now_ms && wb->reflush;
		if (wb->dirty_ms > now_ms || wb->in->cut_busy ||
		    (wb->dirty_ms > 0 && now_ms - wb->dirty_ms < age &&
		     !wb->reflush) ||
		    (log_covers(wb->in) && !wb->reflush)) /* log_tick.c */
			continue;
		if (count++ == FLUSH_BATCH)
			break;
		dlist_del(&wb->dirty_node);
		wb->reflush = false;
		wb_collect_all(c, wb->in, &s);
	}
	wb_submit(c, &s, false);
	return count > FLUSH_BATCH;
}

static void sync_due(struct core *c, uint64_t now_ms)
{
	struct blk_client *b = c->blk;

	for (uint32_t i = 0; i < b->dev_count; i++) {
		struct blk_dev *d = b->devs[i];
		struct wb_io *first;

		if (d->unsynced_count == 0 || d->sync_all ||
		    now_ms < d->sync_hold_ms)
			continue;
		first = dlist_entry(d->unsynced.next, struct wb_io, dev_node);
		if (now_ms - first->acked_ms >= c->opt.flush_age_ms / 2)
			wb_sync_all(c, d);
	}
}

/* Returns how long to sleep; 0: until kicked. */
static uint64_t flusher_round(struct flusher *f)
{
	struct core *c = f->c;
	uint64_t tick = u64_max(c->opt.flush_age_ms / 2, 5);
	bool more = true, idle = false, soon = false;

	while (more) {
		uint64_t now_ms = core_now_ms();

		core_lock(c);
		if (c->blk->wake_wanted)
			wb_wake_now(c);
		more = flush_due(c, now_ms, &soon);
		if (!more) {
			sync_due(c, now_ms);
			wb_fail_stuck(c);
			/* One quiet round before it sleeps for good: waking it
			 * costs the writer a system call. */
			idle = f->quiet && dlist_empty(&c->blk->unclean);
			f->idle = idle;
			f->quiet = dlist_empty(&c->blk->unclean);
		}
		core_unlock(c);
	}
	if (soon)
		tick = u64_min(tick, WB_NOMEM_MS);
	return idle ? 0 : tick;
}

static void flusher_sleep(struct flusher *f, uint64_t ms)
{
	struct timespec t = clock_deadline(ms);

	pthread_mutex_lock(&f->lock);
	while (!f->kicked && !f->stop) {
		if (ms == 0)
			pthread_cond_wait(&f->cond, &f->lock);
		else if (pthread_cond_timedwait(&f->cond, &f->lock, &t))
			break;
	}
	f->kicked = false;
	pthread_mutex_unlock(&f->lock);
}

static bool flusher_stopping(struct flusher *f)
{
	bool stop;

	pthread_mutex_lock(&f->lock);
	stop = f->stop;
	pthread_mutex_unlock(&f->lock);
	return stop;
}

static void *flusher_main(void *arg)
{
	struct flusher *f = arg;

	while (!flusher_stopping(f))
		flusher_sleep(f, flusher_round(f));
	return NULL;
}

int flusher_new(struct core *c, struct flusher **ret)
{
	struct flusher *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;
	int err;

	if (!f)
		return -ENOMEM;
	f->c = c;
	pthread_mutex_init(&f->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&f->cond, &attr);
	pthread_condattr_destroy(&attr);
	err = pthread_create(&f->thread, NULL, flusher_main, f);
	if (err) {
		flusher_free(f);
		return -err;
	}
	f->started = true;
	*ret = f;
	return 0;
}

void flusher_stop(struct flusher *f)
{
	if (!f || !f->started)
		return;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->started = false;
	/* Nobody else wakes them now. */
	core_lock(f->c);
	wb_fail_waiters(f->c, -EIO);
	core_unlock(f->c);
	stale_end_all(f->c);
}

void flusher_free(struct flusher *f)
{
	if (!f)
		return;
	flusher_stop(f);
	pthread_cond_destroy(&f->cond);
	pthread_mutex_destroy(&f->lock);
	free(f);
}
