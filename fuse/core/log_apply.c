/* Records of a log that is recovered are put into the blocks, like a program's
 * calls, in order, and made durable. */
#include "fuse/core/log_recover.h"

#include <fcntl.h>
#include <linux/falloc.h>

#define APPLY_FLIGHT_MAX 256u

struct applying {
	struct core *c;
	struct core_file *f;
	uint64_t ino;
	struct waiting w;
	int64_t ctime_ns; /* before the first record */
	int64_t time_ns; /* of the last record */
};

static int apply(void *arg, const struct log_rec *rec)
{
	struct applying *a = arg;
	struct iovec iov;

	a->time_ns = rec->time_ns;
	switch (rec->kind) {
	case LOG_REC_WRITE:
		iov.iov_base = (void *)(uintptr_t)rec->data;
		iov.iov_len = rec->len;
		waiting_begin(&a->w);
		core_write(a->c, a->f, rec->off, &iov, 1, rec->len, 0,
			   waiting_cb, &a->w);
		return waiting_for(&a->w, APPLY_FLIGHT_MAX);
	case LOG_REC_SIZE:
		(void)waiting_for(&a->w, 0);
		waiting_begin(&a->w);
		core_truncate(a->c, a->ino, rec->off, false, waiting_attr_cb,
			      &a->w);
		return waiting_for(&a->w, 0);
	case LOG_REC_ZERO:
		(void)waiting_for(&a->w, 0);
		waiting_begin(&a->w);
		core_fallocate(a->c, a->ino,
			       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       rec->off, rec->arg, false, waiting_cb, &a->w);
		return waiting_for(&a->w, 0);
	}
	return -EBADMSG;
}

static int apply_regions(struct recovery *r, struct applying *a)
{
	const struct log_answer *an = &r->answers[r->from];
	int err = 0;

	for (uint32_t i = 0; i < an->region_count && !err; i++) {
		const struct log_answer_region *g = &an->regions[i];
		struct log_rec first;

		if (g->seq == 0)
			continue;
		(void)log_rec_peek(r->bases[i] + LOG_DATA_OFF, &first);
		err = log_rec_walk(r->bases[i], LOG_DATA_OFF, g->end,
				   first.seq, apply, a, NULL);
	}
	return err;
}

static int apply_wait(struct applying *a, int err)
{
	int late = waiting_for(&a->w, 0);

	a->w.err = 0;
	return err ? err : late;
}

static int apply_sync(struct applying *a)
{
	struct meta_setattr s = {
		.ino = a->ino,
		.valid = META_SET_MTIME | META_SET_CTIME,
		.mtime_ns = a->time_ns,
		.ctime_ns = a->ctime_ns,
	};

	/* A program may have set the mtime, or something else later. */
	if (a->time_ns > a->ctime_ns && a->time_ns <= core_now_ns())
		s.ctime_ns = a->time_ns;
	waiting_begin(&a->w);
	core_setattr(a->c, &s, waiting_attr_cb, &a->w);
	(void)waiting_for(&a->w, 0);
	waiting_begin(&a->w);
	core_fsync(a->c, a->ino, false, waiting_cb, &a->w);
	return waiting_for(&a->w, 0);
}

int recovery_apply(struct recovery *r)
{
	struct applying a = { .c = r->c, .ino = r->e.ino };
	const struct log_redo_section *s = r->section;
	int err;

	waiting_init(&a.w);
	waiting_begin(&a.w);
	core_open(r->c, r->e.ino, O_RDWR, &a.f, waiting_cb, &a.w);
	err = waiting_for(&a.w, 0);
	if (!err) {
		core_lock(r->c);
		a.ctime_ns = a.f->in->attr.ctime_ns;
		core_unlock(r->c);
		err = s ? log_rec_walk(s->p, 0, s->len, s->seq, apply, &a,
				       NULL) :
			  apply_regions(r, &a);
		err = apply_wait(&a, err);
		if (!err)
			err = apply_sync(&a);
		core_release(r->c, a.f);
	}
	waiting_fini(&a.w);
	return err == -ENOENT ? 0 : err; /* it has been deleted */
}
