/* Journals that dead mounts left behind (common/log_journal.h). What they have
 * of a log that no peer has any more is put into the blocks once more: a power
 * cut may have come when half of it was there. And a recovery writes to one of
 * them what it is going to apply, since then that may be so, too. */
#include "fuse/core/log_recover.h"

#include "common/crc32c.h"
#include "common/diag.h"
#include "common/log_journal.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#define READ_BYTES (1u << 20)
#define WRITE_FLIGHT_MAX 16u

struct log_redo {
	struct log_redo *next;
	struct recovery r; /* its entry */
	struct core_file *f;
	bool kept; /* the next mount needs it, too */
	uint64_t round; /* 0: no slot is whole */
	struct log_redo_section *sections;
	uint32_t count;
	uint8_t *records;
	struct log_journal_section *wrote; /* in the other slot */
	uint32_t wrote_count;
};

/* ---- reading ---- */

struct reading {
	struct waiting w;
	uint8_t *to;
	size_t len; /* got */
};

static void read_done(void *arg, int err, const struct iovec *iov,
		      int iov_count, size_t len)
{
	struct reading *rd = arg;

	(void)len;
	for (int i = 0; !err && i < iov_count; i++) {
		memcpy(rd->to + rd->len, iov[i].iov_base, iov[i].iov_len);
		rd->len += iov[i].iov_len;
	}
	waiting_end(&rd->w, err);
}

/* Exactly so many bytes; -ENODATA: there are less. */
static int read_at(struct log_redo *d, uint64_t off, uint8_t *to, size_t len)
{
	int err = 0;

	while (len > 0 && !err) {
		struct reading rd = { .to = to };
		size_t step = len < READ_BYTES ? len : READ_BYTES;

		waiting_init(&rd.w);
		waiting_begin(&rd.w);
		core_read(d->r.c, d->f, off, step, read_done, &rd);
		err = waiting_for(&rd.w, 0);
		waiting_fini(&rd.w);
		if (!err && rd.len < step)
			err = -ENODATA;
		off += step;
		to += step;
		len -= step;
	}
	return err;
}

struct slot {
	struct log_journal_head h;
	struct log_journal_section *s;
	uint8_t *records;
};

static void slot_fini(struct slot *t)
{
	free(t->s);
	free(t->records);
	memset(t, 0, sizeof(*t));
}

static int slot_front(struct log_redo *d, uint64_t off, struct slot *t)
{
	uint8_t head[LOG_JOURNAL_HEAD], *table;
	size_t len;
	int err = read_at(d, off, head, sizeof(head));

	if (!err)
		err = log_journal_head_decode(head,
					      d->r.c->opt.conf->cluster_id,
					      &t->h);
	if (err)
		return err;
	len = (size_t)t->h.count * LOG_JOURNAL_SECTION;
	table = malloc(len);
	t->s = calloc(t->h.count, sizeof(*t->s));
	t->records = malloc(t->h.bytes);
	err = table && t->s && t->records ? 0 : -ENOMEM;
	if (!err)
		err = read_at(d, off + LOG_JOURNAL_HEAD, table, len);
	if (!err)
		err = log_journal_sections_decode(&t->h, table, t->s);
	free(table);
	return err;
}

/* The records, whole and in a row. */
static int slot_records(struct log_redo *d, uint64_t off, struct slot *t)
{
	const uint8_t *p = t->records;
	int err = read_at(d, off + log_journal_front(t->h.count), t->records,
			  t->h.bytes);

	for (uint32_t i = 0; i < t->h.count && !err; i++) {
		const struct log_journal_section *s = &t->s[i];

		if (crc32c(0, p, s->len) != s->crc)
			err = -EBADMSG;
		else
			err = log_rec_walk(p, 0, (uint32_t)s->len, s->seq,
					   NULL, NULL, NULL);
		p += s->len;
	}
	return err;
}

static int slot_take(struct log_redo *d, struct slot *t)
{
	const uint8_t *p = t->records;

	d->sections = calloc(t->h.count, sizeof(*d->sections));
	if (!d->sections)
		return -ENOMEM;
	d->count = t->h.count;
	d->round = t->h.round;
	d->records = t->records;
	t->records = NULL;
	for (uint32_t i = 0; i < d->count; i++) {
		const struct log_journal_section *s = &t->s[i];

		d->sections[i] = (struct log_redo_section){
			.ino = s->ino, .epoch = s->epoch, .seq = s->seq,
			.len = (uint32_t)s->len, .p = p,
		};
		p += s->len;
	}
	return 0;
}

/* The newest slot that is whole: the other one may have been cut short. */
static int slots_read(struct log_redo *d)
{
	struct slot best = { .h.round = 0 };
	int err = 0;

	for (uint32_t i = 0; i < LOG_JOURNAL_SLOT_COUNT; i++) {
		struct slot t = { .h.round = 0 };

		err = slot_front(d, i * LOG_JOURNAL_SLOT, &t);
		if (!err && t.h.round > best.h.round)
			err = slot_records(d, i * LOG_JOURNAL_SLOT, &t);
		if (!err && t.h.round > best.h.round) {
			struct slot swap = best;

			best = t;
			t = swap;
		}
		slot_fini(&t);
		if (err && err != -ENODATA && err != -EBADMSG)
			break;
		err = 0;
	}
	if (!err && best.h.round)
		err = slot_take(d, &best);
	slot_fini(&best);
	return err;
}

/* ---- one journal ---- */

static int open_file(struct log_redo *d, uint64_t ino)
{
	struct waiting w;
	int err;

	waiting_init(&w);
	waiting_begin(&w);
	core_open(d->r.c, ino, O_RDWR, &d->f, waiting_cb, &w);
	err = waiting_for(&w, 0);
	waiting_fini(&w);
	return err;
}

/* @over: it is not looked at again. */
static void redo_free(struct log_redo *d, bool over)
{
	if (d->f)
		core_release(d->r.c, d->f);
	if (over)
		recovery_unhold(&d->r);
	free(d->sections);
	free(d->records);
	free(d->wrote);
	free(d);
}

int log_redo_load(struct core *c, uint64_t ino)
{
	struct log_redo *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	d->r.c = c;
	d->r.e.ino = ino;
	err = recovery_take(&d->r);
	if (!err)
		err = open_file(d, ino);
	if (!err)
		err = slots_read(d);
	if (err == -ENOENT || err == -EBUSY) {
		redo_free(d, true);
		return 0; /* another mount has done it, or does */
	}
	if (err == -ENOMEM || err == -ESTALE) {
		redo_free(d, false);
		return err;
	}
	if (err) {
		diag_err("log", "event=journal_unreadable ino=%llu "
			 "error=\"%s\"", (unsigned long long)ino,
			 strerror(-err));
		d->kept = true;
		c->log->redo_blind = true;
	}
	diag_debug("log", "event=journal ino=%llu round=%llu logs=%u",
		   (unsigned long long)ino, (unsigned long long)d->round,
		   d->count);
	d->next = c->log->redo;
	c->log->redo = d;
	return 0;
}

const struct log_redo_section *log_redo_find(struct core *c, uint64_t ino,
					     uint64_t epoch)
{
	const struct log_redo_section *best = NULL;

	for (const struct log_redo *d = c->log->redo; d; d = d->next)
		for (uint32_t i = 0; i < d->count; i++) {
			const struct log_redo_section *s = &d->sections[i];

			/* A recovery's begins with all that peers had, and it
			 * may have put the first of that in place. */
			if (s->ino == ino && s->epoch == epoch &&
			    (!best || s->seq < best->seq ||
			     (s->seq == best->seq && s->len > best->len)))
				best = s;
		}
	return best;
}

/* ---- writing ---- */

struct making {
	struct waiting w;
	uint64_t ino;
};

static void made(void *arg, int err, const struct meta_attr *a)
{
	struct making *m = arg;

	if (!err)
		m->ino = a->ino;
	waiting_end(&m->w, err);
}

/* No dead mount has left one that can be written to. */
static int redo_make(struct core *c, struct log_redo **ret)
{
	struct log_redo *d = calloc(1, sizeof(*d));
	struct making m = { .ino = 0 };
	int err;

	if (!d)
		return -ENOMEM;
	d->r.c = c;
	waiting_init(&m.w);
	waiting_begin(&m.w);
	core_create_open(c, &log_journal_create, &d->f, made, &m);
	err = waiting_for(&m.w, 0);
	waiting_fini(&m.w);
	if (!err) {
		core_forget(c, m.ino, 1); /* its handle keeps it */
		core_lock(c);
		err = lease_want(c, d->f->in);
		core_unlock(c);
	}
	if (!err)
		err = recovery_set_journal(&d->r, m.ino);
	if (err) {
		redo_free(d, true);
		return err;
	}
	core_lock(c);
	d->f->in->orphan = false; /* redo_drop() */
	core_unlock(c);
	d->next = c->log->redo;
	c->log->redo = d;
	*ret = d;
	return 0;
}

/* What one is to be written to: its newest slot stays. */
static int redo_choose(struct core *c, struct log_redo **ret)
{
	struct log_redo *best = NULL;

	for (struct log_redo *d = c->log->redo; d; d = d->next)
		if (!d->kept && (!best || d->round > best->round))
			best = d;
	*ret = best;
	return best ? 0 : redo_make(c, ret);
}

struct writing {
	struct log_redo *d;
	struct waiting w;
	uint64_t off;
	struct log_journal_head h;
	struct log_journal_section *sections;
};

static void put(struct writing *wr, const uint8_t *p, size_t len)
{
	while (len > 0) {
		size_t step = len < READ_BYTES ? len : READ_BYTES;
		struct iovec iov = { (void *)(uintptr_t)p, step };

		waiting_begin(&wr->w);
		core_write(wr->d->r.c, wr->d->f, wr->off, &iov, 1, step, 0,
			   waiting_cb, &wr->w);
		(void)waiting_for(&wr->w, WRITE_FLIGHT_MAX);
		wr->off += step;
		p += step;
		len -= step;
	}
}

static void put_records(struct writing *wr, struct log_journal_section *s,
			const uint8_t *p, uint32_t len)
{
	s->crc = crc32c(s->crc, p, len);
	s->len += len;
	wr->h.bytes += len;
	put(wr, p, len);
}

static int put_section(struct writing *wr, const struct recovery *r)
{
	struct log_journal_section *s = &wr->sections[wr->h.count++];
	const struct log_answer *an = &r->answers[r->from];

	*s = (struct log_journal_section){
		.ino = r->e.ino, .epoch = r->e.data_epoch,
	};
	if (r->section) {
		s->seq = r->section->seq;
		put_records(wr, s, r->section->p, r->section->len);
		return 0;
	}
	for (uint32_t i = 0; i < an->region_count; i++) {
		const uint8_t *p = r->bases[i] + LOG_DATA_OFF;
		struct log_rec first;

		if (an->regions[i].seq == 0)
			continue;
		(void)log_rec_peek(p, &first);
		if (s->seq == 0)
			s->seq = first.seq;
		put_records(wr, s, p, an->regions[i].end - LOG_DATA_OFF);
	}
	return s->len > UINT32_MAX ? -EFBIG : 0;
}

static bool has_records(const struct recovery *r)
{
	const struct log_answer *an = &r->answers[r->from];

	if (r->err || !r->ordered)
		return false;
	if (r->section)
		return true;
	for (uint32_t i = 0; !r->back && i < an->region_count; i++)
		if (an->regions[i].seq)
			return true;
	return false;
}

static int redo_write(struct writing *wr, const struct recovery *list,
		      uint32_t count)
{
	struct log_redo *d = wr->d;
	size_t front_len = log_journal_front(count);
	uint8_t *front = malloc(front_len);
	int err = 0, late;
	uint64_t slot;

	if (!front)
		return -ENOMEM;
	wr->h.cluster_id = d->r.c->opt.conf->cluster_id;
	wr->h.round = d->round + 1;
	slot = wr->h.round % LOG_JOURNAL_SLOT_COUNT * LOG_JOURNAL_SLOT;
	wr->off = slot + front_len;
	for (const struct recovery *r = list; r && !err; r = r->next)
		if (has_records(r))
			err = put_section(wr, r);
	if (!err) {
		log_journal_encode(&wr->h, wr->sections, front);
		wr->off = slot;
		put(wr, front, front_len);
	}
	late = waiting_for(&wr->w, 0);
	free(front);
	if (err || late)
		return err ? err : late;
	waiting_begin(&wr->w);
	core_fsync(d->r.c, d->r.e.ino, true, waiting_cb, &wr->w);
	return waiting_for(&wr->w, 0);
}

/* What could not be written takes no room from what is applied now. */
static void redo_unwrite(struct writing *wr)
{
	struct log_redo *d = wr->d;
	uint64_t slot = wr->h.round % LOG_JOURNAL_SLOT_COUNT * LOG_JOURNAL_SLOT;

	wr->w.err = 0;
	waiting_begin(&wr->w);
	core_fallocate(d->r.c, d->r.e.ino,
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, slot,
		       LOG_JOURNAL_SLOT, false, waiting_cb, &wr->w);
	(void)waiting_for(&wr->w, 0);
}

int log_redo_write(struct core *c, const struct recovery *list)
{
	struct writing wr = { .off = 0 };
	uint32_t count = 0;
	int err;

	for (const struct recovery *r = list; r; r = r->next)
		count += has_records(r);
	if (count == 0)
		return 0;
	wr.sections = calloc(count, sizeof(*wr.sections));
	if (!wr.sections)
		return -ENOMEM;
	err = redo_choose(c, &wr.d);
	if (!err) {
		waiting_init(&wr.w);
		err = redo_write(&wr, list, count);
		if (err)
			redo_unwrite(&wr);
		waiting_fini(&wr.w);
	}
	if (err) {
		free(wr.sections);
		return err;
	}
	wr.d->wrote = wr.sections;
	wr.d->wrote_count = count;
	return 0;
}

void log_redo_keep(struct core *c, uint64_t ino)
{
	for (struct log_redo *d = c->log->redo; d; d = d->next) {
		for (uint32_t i = 0; i < d->count; i++)
			d->kept |= d->sections[i].ino == ino;
		for (uint32_t i = 0; i < d->wrote_count; i++)
			d->kept |= d->wrote[i].ino == ino;
	}
}

/* Its entry goes, and with the handle the file. */
static int redo_drop(struct log_redo *d)
{
	int err = recovery_drop(&d->r);

	if (err)
		return err;
	core_lock(d->r.c);
	d->f->in->orphan = true;
	core_unlock(d->r.c);
	return 0;
}

void log_redo_end(struct core *c, bool done)
{
	struct log_redo *d;

	while ((d = c->log->redo)) {
		int err = done && !d->kept ? redo_drop(d) : 0;

		if (err)
			diag_warn("log", "event=journal_kept ino=%llu "
				  "error=\"%s\"",
				  (unsigned long long)d->r.e.ino,
				  strerror(-err));
		c->log->redo = d->next;
		redo_free(d, done);
	}
}
