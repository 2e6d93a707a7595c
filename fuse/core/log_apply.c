/* What the records of a log that is recovered come to is put into the blocks,
 * like a program's calls, and made durable. */
#include "fuse/core/log_net.h"
#include "fuse/core/log_recover.h"

#include <fcntl.h>
#include <linux/falloc.h>

#define APPLY_FLIGHT_MAX 256u

struct applying {
	struct core *c;
	struct core_file *f;
	uint64_t ino;
	struct waiting w;
	struct log_net net;
	int64_t ctime_ns; /* before the first record */
	int64_t time_ns; /* of the last record */
};

static int add(void *arg, const struct log_rec *rec)
{
	struct applying *a = arg;

	a->time_ns = rec->time_ns;
	return log_net_add(&a->net, rec);
}

static int add_regions(struct recovery *r, struct applying *a)
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
				   first.seq, add, a, NULL);
	}
	return err;
}

static int put_size(struct applying *a)
{
	waiting_begin(&a->w);
	core_truncate(a->c, a->ino, a->net.length, false, waiting_attr_cb,
		      &a->w);
	return waiting_for(&a->w, 0);
}

static int put_zeros(struct applying *a, const struct log_net_rec *p)
{
	(void)waiting_for(&a->w, 0);
	waiting_begin(&a->w);
	core_fallocate(a->c, a->ino,
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->off,
		       p->end - p->off, false, waiting_cb, &a->w);
	return waiting_for(&a->w, 0);
}

static int put_data(struct applying *a, const struct log_net_rec *p)
{
	struct iovec iov = { (void *)(uintptr_t)p->data, p->end - p->off };

	waiting_begin(&a->w);
	core_write(a->c, a->f, p->off, &iov, 1, iov.iov_len, 0, waiting_cb,
		   &a->w);
	return waiting_for(&a->w, APPLY_FLIGHT_MAX);
}

static int apply(struct recovery *r, struct applying *a)
{
	const struct log_redo_section *s = r->section;
	static const uint8_t zero[1];
	uint64_t reached = 0;
	struct log_net_rec p;
	int err = s ? log_rec_walk(s->p, 0, s->len, s->seq, add, a, NULL) :
		      add_regions(r, a);

	if (!err)
		err = log_net_end(&a->net);
	if (!err && a->net.sized)
		err = put_size(a);
	while (!err && log_net_next(&a->net, &p)) {
		err = p.data ? put_data(a, &p) : put_zeros(a, &p);
		if (p.data)
			reached = u64_max(reached, p.end);
	}
	/* A write made it longer and was zeroed later: zeros do not. */
	if (!err && !a->net.sized && reached < a->net.length)
		err = put_data(a, &(struct log_net_rec){
					  a->net.length - 1, a->net.length,
					  zero });
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
	int err;

	waiting_init(&a.w);
	log_net_init(&a.net);
	waiting_begin(&a.w);
	core_open(r->c, r->e.ino, O_RDWR, &a.f, waiting_cb, &a.w);
	err = waiting_for(&a.w, 0);
	if (!err) {
		core_lock(r->c);
		a.ctime_ns = a.f->in->attr.ctime_ns;
		core_unlock(r->c);
		err = apply_wait(&a, apply(r, &a));
		if (!err)
			err = apply_sync(&a);
		core_release(r->c, a.f);
	}
	log_net_fini(&a.net);
	waiting_fini(&a.w);
	return err == -ENOENT ? 0 : err; /* it has been deleted */
}
