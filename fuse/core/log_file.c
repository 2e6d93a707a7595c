/* The life of a log: it is appended to by all writes, tells who waits when a
 * majority of its peers has a record, and ends. */
#include "fuse/core/log_priv.h"
#include "fuse/core/share.h"

#include "common/diag.h"

#include <sys/mman.h>

/* ---- memory ---- */

/* Zeroed and not touched: pages come as they are written. */
static struct log_mirror *mirror_new(struct log_file *lf)
{
	size_t bytes = sizeof(struct log_mirror) + ((size_t)1 << lf->w.log2);
	struct log_mirror *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		return NULL;
	m->refs = 1;
	m->bytes = bytes;
	return m;
}

void log_mirror_put(struct log_mirror *m)
{
	if (--m->refs > 0)
		return;
	log_verbs_mirror_end(m);
	(void)munmap(m, m->bytes);
}

void log_region_drop(struct log_file *lf, uint8_t *base)
{
	uint64_t bytes = (uint64_t)1 << lf->w.log2;

	lf->mirror_bytes -= bytes;
	lf->c->log->mirror_bytes -= bytes;
	log_mirror_put(log_mirror_of(base));
}

static int mirror_add(struct log_file *lf)
{
	uint64_t bytes = (uint64_t)1 << lf->w.log2;
	struct log_mirror *m = mirror_new(lf);
	int err = m ? log_writer_region_add(&lf->w, m->base) : -ENOMEM;

	if (err) {
		if (m)
			log_mirror_put(m);
		return err;
	}
	lf->mirror_bytes += bytes;
	lf->c->log->mirror_bytes += bytes;
	log_verbs_mirror_new(lf->c);
	return 0;
}

static void mirrors_drop(struct log_file *lf)
{
	for (uint32_t i = 0; i < lf->w.region_count; i++)
		log_region_drop(lf, lf->w.regions[i].base);
	log_writer_fini(&lf->w);
	memset(&lf->w, 0, sizeof(lf->w));
}

void log_get(struct log_file *lf)
{
	lf->refs++;
}

void log_put(struct log_file *lf)
{
	if (--lf->refs == 0)
		free(lf);
}

/* ---- who waits ---- */

void log_wait_turn(struct core_inode *in, struct core_waiter *w)
{
	struct log_file *lf = in->log;

	lf->c->log->n.waits++;
	if (!lf->waiters)
		lf->waiting_ms = core_now_ms();
	if (lf->c->opt.timeout_ms)
		log_tick_want(lf->c);
	w->next = NULL;
	*lf->waiter_tail = w;
	lf->waiter_tail = &w->next;
}

static void waiters_go(struct log_file *lf, int err)
{
	struct core_waiter *w = lf->waiters;

	lf->waiters = NULL;
	lf->waiter_tail = &lf->waiters;
	core_waiters_run(w, err);
}

/* Each looks again, in the order they came. */
void log_wake(struct log_file *lf)
{
	waiters_go(lf, 0);
}

void log_wake_late(struct log_file *lf, uint64_t now_ms)
{
	uint64_t limit = lf->c->opt.timeout_ms;

	if (lf->waiters && limit && now_ms - lf->waiting_ms >= limit)
		waiters_go(lf, -ETIMEDOUT);
}

void log_settle(struct log_file *lf, uint64_t seq, int err)
{
	while (lf->waits && lf->waits->seq <= seq) {
		struct log_wait *w = lf->waits;

		lf->waits = w->next;
		if (!lf->waits)
			lf->wait_tail = &lf->waits;
		w->fn(w, err);
	}
}

void log_commit_wait(struct core_inode *in, struct log_wait *w)
{
	struct log_file *lf = in->log;

	log_verbs_look(lf->c);
	w->seq = lf->w.seq;
	w->next = NULL;
	*lf->wait_tail = w;
	lf->wait_tail = &w->next;
	log_settle(lf, lf->w.committed, 0);
}

bool log_covers(const struct core_inode *in)
{
	return in->log && in->log->state == LOG_ACTIVE && in->log->covers;
}

bool log_committed_all(const struct core_inode *in)
{
	const struct log_writer *w = &in->log->w;

	return w->committed >= w->seq;
}

void log_hold(struct core_inode *in, bool hold)
{
	in->log->held = hold;
	in->log->held_seq = in->log->w.seq;
	if (!hold)
		log_wake(in->log);
}

/* ---- the end ---- */

static void stop_tell(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, stop_tell);

	l->stopped(l->stopped_arg, 0);
}

void log_stop_maybe(struct core *c)
{
	struct log_client *l = c->log;

	if (!l->stopped || l->stop_told || !dlist_empty(&l->files) ||
	    l->round != LOG_ROUND_NONE || !log_journal_end(c))
		return;
	l->stop_told = true;
	l->stop_tell.fn = stop_tell;
	core_defer(c, &l->stop_tell);
}

void log_stop_begin(struct core *c)
{
	core_lock(c);
	c->log->stopping = true;
	core_unlock(c);
}

void log_stop(struct core *c, core_cb cb, void *arg)
{
	struct log_client *l = c->log;

	core_lock(c);
	l->stopped = cb;
	l->stopped_arg = arg;
	log_stop_maybe(c);
	log_tick_want(c);
	core_unlock(c);
}

void log_fence(struct core *c)
{
	struct dlist *n, *save;

	if (!c->log)
		return;
	dlist_for(n, save, &c->log->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (lf->fenced)
			continue;
		lf->fenced = true;
		if (lf->state == LOG_ACTIVE)
			log_writer_seal(&lf->w);
		log_end(lf);
	}
}

static void log_free_deferred(struct core_deferred *d)
{
	struct log_file *lf = container_of(d, struct log_file, def);
	struct core *c = lf->c;

	core_lock(c);
	log_put(lf);
	core_unlock(c);
}

void log_end(struct log_file *lf)
{
	struct core *c = lf->c;
	struct core_inode *in = lf->in;

	assert(lf->state != LOG_DEAD && in->log == lf);
	in->log = NULL;
	lf->state = LOG_DEAD;
	if (lf->ordered && lf->fenced && lf->destaged_seq < lf->w.seq)
		c->log->jour.kept = true;
	log_order_step(lf, 0);
	if (!lf->fenced && in->wb && !wb_inode_clean(in)) {
		wb_dirtied(c, in); /* nobody else sends it now */
		in->wb->reflush = true;
		wb_step(c, in, 0, UINT64_MAX);
	}
	dlist_del(&lf->node);
	log_settle(lf, UINT64_MAX, lf->fenced || c->fenced ? -EIO : 0);
	log_wake(lf);
	log_links_close(lf);
	if (lf->epoch)
		mirrors_drop(lf);
	lf->in = NULL;
	share_log_ended(c, in);
	inode_unpin(c, in);
	/* Those above it on the stack still look at it. */
	lf->def.fn = log_free_deferred;
	core_defer(c, &lf->def);
	log_stop_maybe(c);
}

/* ---- appending ---- */

/* Data that fits into the region, in one record. */
static uint32_t region_room(const struct log_file *lf, uint32_t end)
{
	uint32_t left = (1u << lf->w.log2) - end;

	return left > LOG_REC_HEADER + LOG_REC_ALIGN ? left - LOG_REC_HEADER :
						       0;
}

/* Room for a write of @len bytes: in the region that is being filled, or else
 * in empty ones behind it. */
static int log_reserve(struct log_file *lf, uint32_t len)
{
	uint64_t room = 0;

	for (uint32_t i = lf->w.region_count; i-- > 0;) {
		const struct log_region_mirror *m = &lf->w.regions[i];

		if (m->end == LOG_DATA_OFF) {
			room += region_room(lf, m->end);
			continue;
		}
		if (region_room(lf, m->end) >= len)
			return 0;
		break;
	}
	while (room < len) {
		int err = mirror_add(lf);

		if (err)
			return err;
		room += region_room(lf, LOG_DATA_OFF);
	}
	return 0;
}

static bool log_full(const struct log_file *lf, uint32_t share)
{
	return lf->c->log->mirror_bytes >
	       u64_min(lf->c->opt.wb_bytes_max, LOG_MIRROR_MAX) / share +
		       ((uint64_t)1 << lf->w.log2);
}

int log_way(struct core *c, struct core_inode *in, uint32_t len)
{
	struct log_file *lf = in->log;
	int err;

	if (!lf && (!(in->attr.flags & META_ATTR_LOG) || in->recovering))
		return LOG_WAY_BLOCKS;
	if (!lf && in->log_refused && core_now_ms() < in->log_retry_ms)
		return in->log_refused;
	if (!lf && (core_now_ms() < in->log_retry_ms || in->orphan ||
		    c->log->stopping || c->log->recovering))
		return LOG_WAY_BLOCKS;
	if (!lf) {
		err = log_open(c, in);
		return err ? err : LOG_WAY_WAIT;
	}
	if (lf->fenced)
		return -EIO;
	if (lf->giving_up && lf->destage_err)
		return lf->destage_err; /* neither peers nor blocks */
	if (lf->state != LOG_ACTIVE || lf->held || lf->giving_up)
		return LOG_WAY_WAIT;
	/* Only where that gives memory back: a region always stays. */
	if (lf->w.region_count > 1 && log_full(lf, LOG_DESTAGE_SHARE) &&
	    lf->destaged_seq < lf->w.seq) {
		log_destage(lf);
		if (log_full(lf, LOG_WAIT_SHARE) &&
		    (lf->destaging || log_in_order(lf)))
			return LOG_WAY_WAIT;
	}
	err = log_reserve(lf, len ? len : 1);
	return err ? err : LOG_WAY_LOG;
}

/* Reserved: there is room, or a region behind has it. */
static void append_one(struct log_file *lf, struct log_rec *r)
{
	int err = log_writer_append(&lf->w, r);

	assert(err == 0);
}

void log_append(struct core_inode *in, uint64_t off, const void *p,
		uint32_t len)
{
	struct log_file *lf = in->log;
	const uint8_t *from = p;

	lf->c->log->n.append_bytes += len;
	while (len > 0) {
		uint32_t room = log_writer_room(&lf->w);
		uint32_t step = len < room ? len : room;
		struct log_rec r = {
			.kind = LOG_REC_WRITE,
			.off = off,
			.time_ns = in->attr.mtime_ns,
			.len = step,
			.data = from,
		};

		append_one(lf, &r);
		off += step;
		from += step;
		len -= step;
		lf->c->log->n.appends++;
	}
	if (log_writer_region_wanted(&lf->w))
		(void)mirror_add(lf); /* ahead of need: may wait */
	log_step(lf);
}

void log_append_other(struct core_inode *in, enum log_rec_kind kind,
		      uint64_t off, uint64_t arg)
{
	struct log_file *lf = in->log;
	struct log_rec r = {
		.kind = kind,
		.off = off,
		.arg = arg,
		.time_ns = core_now_ns(),
	};

	append_one(lf, &r);
	log_step(lf);
}

void log_mtime(struct core *c, struct core_inode *in, int64_t mtime_ns)
{
	struct log_file *lf = in->log;
	struct log_rec r = { .kind = LOG_REC_SIZE, .time_ns = mtime_ns };

	if (!lf || lf->state != LOG_ACTIVE || lf->w.seq == 0 ||
	    lf->w.length != in->attr.size ||
	    log_way(c, in, 0) != LOG_WAY_LOG)
		return;
	r.off = lf->w.length;
	append_one(lf, &r);
	log_step(lf);
}

/* ---- holding on ---- */

void log_unheld(struct core *c, struct core_inode *in)
{
	struct log_file *lf = in->log;

	if (!lf || lf->closed_ms)
		return;
	lf->closed_ms = core_now_ms();
	log_tick_want(c);
}

/* ---- the client's ---- */

int log_client_new(struct core *c, struct log_client **ret)
{
	struct log_client *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->c = c;
	l->held_tail = &l->held_next;
	l->order_tail = &l->order_waiters_next;
	dlist_init(&l->files);
	*ret = l;
	return 0;
}

void log_client_cancel(struct log_client *l)
{
	struct dlist *n, *save;

	if (!l)
		return;
	core_lock(l->c);
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		lf->fenced = true;
		log_end(lf);
	}
	log_order_cancel(l->c);
	core_unlock(l->c);
}

void log_client_free(struct log_client *l)
{
	if (!l)
		return;
	for (uint32_t i = 0; i < l->dev_count; i++)
		free(l->devs[i]);
	log_journal_free(l);
	free(l);
}
