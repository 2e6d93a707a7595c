/* The journal that records go to before they go into the blocks of their files
 * (common/log_journal.h), where the blocks follow logs in order. Where it
 * cannot be had the round goes on without: then a power cut within it leaves
 * what it has done so far. */
#include "fuse/core/log_priv.h"

#include "common/crc32c.h"
#include "common/diag.h"
#include "common/log_journal.h"

#include <fcntl.h>
#include <sys/stat.h>

#define CHUNK_BYTES (1u << 20)
#define CHUNK_IOVS 64u
#define AGAIN_MS 2000u

/* Records in a mirror, which a reference keeps. */
struct piece {
	struct log_mirror *m;
	const uint8_t *p;
	uint32_t len;
	uint32_t section;
};

struct log_journal_job {
	struct core *c;
	struct core_deferred def;
	struct piece *pieces;
	uint32_t piece_count, piece_cap;
	struct log_journal_section *sections;
	uint32_t section_count, section_cap;
	uint8_t *front; /* encoded */
	uint32_t pending;
	int err;
};

/* ---- what is to be written ---- */

/* Room for twice as many. NULL: no memory, and @v stays as it is. */
static void *grown(void *v, uint32_t *cap, size_t size)
{
	uint32_t more = *cap ? 2 * *cap : 8;

	v = realloc(v, more * size);
	if (v)
		*cap = more;
	return v;
}

static bool piece_add(struct log_journal_job *j, uint8_t *base,
		      const uint8_t *p, uint32_t len)
{
	if (j->piece_count == j->piece_cap) {
		struct piece *v = grown(j->pieces, &j->piece_cap, sizeof(*v));

		if (!v)
			return false;
		j->pieces = v;
	}
	j->pieces[j->piece_count] = (struct piece){
		.m = log_mirror_of(base), .p = p, .len = len,
		.section = j->section_count,
	};
	j->pieces[j->piece_count++].m->refs++;
	return true;
}

/* Where in the region the record @seq begins. */
static uint32_t record_at(struct log_file *lf,
			  const struct log_region_mirror *m, uint64_t seq)
{
	uint32_t off = LOG_DATA_OFF;
	uint64_t at = m->seq_first;

	if (lf->jour_base == m->base && lf->jour_seq >= at &&
	    lf->jour_seq <= seq) {
		at = lf->jour_seq;
		off = lf->jour_off;
	}
	for (; at < seq; at++) {
		struct log_rec r;

		off += log_rec_peek(m->base + off, &r);
	}
	return off;
}

/* Records that are not durable in the blocks. */
static int section_add(struct log_journal_job *j, struct log_file *lf)
{
	uint64_t from = lf->destaged_seq + 1;
	struct log_journal_section *s;

	if (from > lf->w.seq)
		return 0;
	if (j->section_count == j->section_cap) {
		s = grown(j->sections, &j->section_cap, sizeof(*s));
		if (!s)
			return -ENOMEM;
		j->sections = s;
	}
	s = &j->sections[j->section_count];
	*s = (struct log_journal_section){
		.ino = lf->in->ino, .epoch = lf->epoch, .seq = from,
	};
	for (uint32_t i = 0; i < lf->w.region_count; i++) {
		const struct log_region_mirror *m = &lf->w.regions[i];
		uint32_t off;

		if (m->seq_last < m->seq_first || m->seq_last < from)
			continue;
		off = m->seq_first < from ? record_at(lf, m, from) :
					    LOG_DATA_OFF;
		if (!piece_add(j, m->base, m->base + off, m->end - off))
			return -ENOMEM;
		s->len += m->end - off;
		lf->jour_base = m->base;
		lf->jour_off = m->end;
		lf->jour_seq = m->seq_last + 1;
	}
	assert(s->len > 0);
	j->section_count++;
	return 0;
}

static void job_free(struct log_journal_job *j)
{
	for (uint32_t i = 0; i < j->piece_count; i++)
		log_mirror_put(j->pieces[i].m);
	free(j->pieces);
	free(j->sections);
	free(j->front);
	free(j);
}

struct log_journal_job *log_journal_new(struct core *c)
{
	struct log_journal_job *j = calloc(1, sizeof(*j));
	struct dlist *n, *save;

	if (!j)
		return NULL;
	j->c = c;
	dlist_for(n, save, &c->log->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (log_in_order(lf) && section_add(j, lf)) {
			job_free(j);
			return NULL;
		}
	}
	j->front = malloc(log_journal_front(j->section_count));
	if (!j->front) {
		job_free(j);
		return NULL;
	}
	return j;
}

/* ---- the file ---- */

static void release(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client,
					    jour.release);
	struct core_file *f = l->jour.gone;

	core_release(l->c, f);
	core_lock(l->c);
	l->jour.gone = NULL;
	log_stop_maybe(l->c);
	core_unlock(l->c);
}

/* With its handle the file goes. Lock held. */
static void file_forget(struct log_client *l)
{
	struct log_journal *jf = &l->jour;

	jf->gone = jf->f;
	jf->f = NULL;
	jf->in = NULL;
	jf->epoch = 0;
	jf->state = LOG_JOURNAL_NONE;
	if (!jf->gone)
		return;
	jf->release.fn = release;
	core_defer(l->c, &jf->release);
}

/* The round goes on. */
static void job_over(struct log_journal_job *j, int err)
{
	struct core *c = j->c;

	c->log->jour.job = NULL;
	job_free(j);
	log_order_written(c, err);
}

/* The entry is gone: nobody will do again what is in the file. */
static void drop_durable(struct core_waiter *w, int err)
{
	struct log_client *l = container_of(w, struct log_client, jour.durable);
	struct log_journal_job *j = l->jour.job;

	(void)err; /* then the session has ended, or a soft mount gives up */
	file_forget(l);
	if (j)
		job_over(j, j->err);
}

static void entry_dropped(struct meta_call *mc, int err, const uint8_t *body,
			  uint32_t len)
{
	struct log_client *l = mc->arg;
	struct core *c = mc->c;

	(void)err; /* as above */
	(void)body;
	(void)len;
	core_lock(c);
	l->jour.durable.fn = drop_durable;
	if (!c->freeing && meta_durable(c, mc->seq, &l->jour.durable))
		drop_durable(&l->jour.durable, 0);
	core_unlock(c);
}

/* drop_durable() follows. Returns false without memory. Lock held. */
static bool entry_drop(struct log_client *l)
{
	struct log_journal *jf = &l->jour;
	struct meta_call *mc = log_drop_new(l->c, jf->ino, jf->epoch);

	if (!mc)
		return false;
	mc->done = entry_dropped;
	mc->arg = l;
	jf->state = LOG_JOURNAL_DROPPING;
	return true;
}

static void job_go(struct log_journal_job *j);

/* The round does without it. Older slots must not be done again over what the
 * blocks have then: first the entry goes. */
static void job_failed(struct log_journal_job *j)
{
	struct core *c = j->c;
	struct log_client *l = c->log;

	diag_warn("log", "event=journal_failed error=\"%s\" "
		  "next=\"destaged without it\"", strerror(-j->err));
	l->n.journal_failed++;
	l->jour.retry_ms = core_now_ms() + AGAIN_MS;
	if (l->jour.epoch) {
		(void)entry_drop(l); /* or with the tick */
		return;
	}
	file_forget(l);
	job_over(j, j->err);
}

void log_journal_tick(struct core *c)
{
	struct log_journal *jf = &c->log->jour;

	if (jf->job && jf->job->err && jf->job->pending == 0 && jf->epoch &&
	    jf->state != LOG_JOURNAL_DROPPING)
		(void)entry_drop(c->log);
}

static void job_end(struct log_journal_job *j)
{
	struct core *c = j->c;

	if (c->freeing) {
		/* Whether it is there or not is for the next mount to see:
		 * nothing goes without it. */
		c->log->jour.job = NULL;
		job_free(j);
	} else if (j->err) {
		job_failed(j);
	} else {
		c->log->n.journals++;
		job_over(j, 0);
	}
}

static void made(struct log_client *l, int err)
{
	struct log_journal *jf = &l->jour;
	struct log_journal_job *j = jf->job;

	if (!err) {
		jf->state = LOG_JOURNAL_READY;
		job_go(j);
		return;
	}
	j->err = err;
	job_end(j);
}

static void entry_durable(struct core_waiter *w, int err)
{
	made(container_of(w, struct log_client, jour.durable), err);
}

static void entry_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct log_client *l = mc->arg;
	struct core *c = mc->c;
	struct meta_log_entry e;

	core_lock(c);
	if (!err)
		err = log_entry_take(body, len, l->jour.ino, &e);
	if (!err) {
		l->jour.epoch = e.epoch;
		l->jour.durable.fn = entry_durable;
		if (meta_durable(c, mc->seq, &l->jour.durable))
			made(l, 0);
	} else {
		made(l, err);
	}
	core_unlock(c);
}

static int entry_set(struct log_client *l)
{
	struct meta_log_set set = { .ino = l->jour.ino };
	struct meta_call *mc = log_set_new(l->c, &set, NULL, 0);

	if (!mc)
		return -ENOMEM;
	mc->done = entry_done;
	mc->arg = l;
	return 0;
}

static void file_made(void *arg, int err, const struct meta_attr *a)
{
	struct log_client *l = arg;
	struct log_journal *jf = &l->jour;

	if (!err)
		core_forget(l->c, a->ino, 1); /* its handle keeps it */
	core_lock(l->c);
	if (!err) {
		jf->ino = a->ino;
		jf->in = inode_find(l->c, a->ino);
		err = lease_want(l->c, jf->in); /* nobody else can */
	}
	if (!err)
		err = entry_set(l);
	if (err)
		made(l, err);
	core_unlock(l->c);
}

const struct core_create log_journal_create = {
	.parent = ROOT_INO,
	.mode = S_IFREG | 0600,
	.open_flags = O_RDWR,
};

static void file_make(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, jour.def);

	core_create_open(l->c, &log_journal_create, &l->jour.f, file_made, l);
}

/* ---- writing ---- */

static void fsynced(void *arg, int err)
{
	struct log_journal_job *j = arg;
	struct core *c = j->c;

	core_lock(c);
	j->err = err;
	j->pending = 0;
	job_end(j);
	core_unlock(c);
}

static void written(void *arg, int err)
{
	struct log_journal_job *j = arg;
	struct core *c = j->c;
	bool all = false;

	core_lock(c);
	if (err && !j->err)
		j->err = err;
	if (--j->pending == 0 && j->err) {
		job_end(j);
	} else if (j->pending == 0) {
		j->pending = 1;
		all = true;
	}
	core_unlock(c);
	if (all)
		core_fsync(c, c->log->jour.ino, true, fsynced, j);
}

static void chunk_write(struct log_journal_job *j, uint64_t off,
			const struct iovec *iov, int count, size_t len)
{
	core_lock(j->c);
	j->pending++;
	core_unlock(j->c);
	core_write(j->c, j->c->log->jour.f, off, iov, count, len,
		   CORE_WRITE_UNBOUND, written, j);
}

static void front_make(struct log_journal_job *j, uint64_t round)
{
	struct log_journal_head h = {
		.cluster_id = j->c->opt.conf->cluster_id,
		.round = round,
		.count = j->section_count,
	};

	for (uint32_t i = 0; i < j->piece_count; i++) {
		const struct piece *p = &j->pieces[i];
		struct log_journal_section *s = &j->sections[p->section];

		s->crc = crc32c(s->crc, p->p, p->len);
		h.bytes += p->len;
	}
	log_journal_encode(&h, j->sections, j->front);
}

/* No lock: the bytes cannot change, and nobody else writes this file. */
static void job_write(struct core_deferred *d)
{
	struct log_journal_job *j = container_of(d, struct log_journal_job,
						 def);
	struct log_journal *jf = &j->c->log->jour;
	uint64_t round = ++jf->round;
	uint64_t off = round % LOG_JOURNAL_SLOT_COUNT * LOG_JOURNAL_SLOT;
	struct iovec iov[CHUNK_IOVS];
	size_t len = log_journal_front(j->section_count);
	int count = 1;

	front_make(j, round);
	j->pending = 1;
	iov[0] = (struct iovec){ j->front, len };
	for (uint32_t i = 0; i < j->piece_count; i++) {
		const struct piece *p = &j->pieces[i];

		if (count == (int)CHUNK_IOVS || len + p->len > CHUNK_BYTES) {
			chunk_write(j, off, iov, count, len);
			off += len;
			count = 0;
			len = 0;
		}
		iov[count++] = (struct iovec){ (void *)(uintptr_t)p->p,
					       p->len };
		len += p->len;
	}
	chunk_write(j, off, iov, count, len);
	written(j, 0);
}

static void job_go(struct log_journal_job *j)
{
	j->def.fn = job_write;
	core_defer(j->c, &j->def);
}

void log_journal_write(struct core *c, struct log_journal_job *j)
{
	struct log_journal *jf = &c->log->jour;

	if (j->section_count == 0 || jf->gone ||
	    core_now_ms() < jf->retry_ms) {
		int err = j->section_count ? -EAGAIN : 0;

		job_free(j);
		log_order_written(c, err);
		return;
	}
	jf->job = j;
	if (jf->state == LOG_JOURNAL_READY) {
		job_go(j);
		return;
	}
	jf->state = LOG_JOURNAL_MAKING;
	jf->def.fn = file_make;
	core_defer(c, &jf->def);
}

bool log_journal_end(struct core *c)
{
	struct log_journal *jf = &c->log->jour;

	if (jf->job || jf->gone || jf->state == LOG_JOURNAL_DROPPING)
		return false;
	/* With a log that was not destaged the next mount has use for it. */
	if (jf->state != LOG_JOURNAL_READY || jf->kept)
		return true;
	(void)entry_drop(c->log);
	return false;
}

void log_journal_free(struct log_client *l)
{
	if (l->jour.job)
		job_free(l->jour.job);
}
