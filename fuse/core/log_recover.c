/* The logs that dead mounts left behind are put into the blocks before this one
 * serves (design section 8).
 *
 * Metad raises a log's epoch, which makes it ours; the peers of its list are
 * fenced, and only what those that confirm hold is read: of a majority, the one
 * that reaches furthest. Its records are applied in order to the file, like a
 * program's calls, and once that is durable the log is dropped. Before that a
 * majority is given what it lacks of them. Whoever stops in between leaves a
 * log that reaches as far for the next one, and to apply the records again
 * gives the same file.
 *
 * Runs on the thread that starts the mount, and blocks. */
#include "fuse/core/log_recover.h"

#include "common/diag.h"

#include <fcntl.h>
#include <linux/falloc.h>

#define APPLY_FLIGHT_MAX 256u

/* ---- waiting ---- */

void waiting_init(struct waiting *w)
{
	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->cond, NULL);
}

void waiting_fini(struct waiting *w)
{
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->mutex);
	free(w->body);
}

void waiting_begin(struct waiting *w)
{
	pthread_mutex_lock(&w->mutex);
	w->flight++;
	pthread_mutex_unlock(&w->mutex);
}

void waiting_end(struct waiting *w, int err)
{
	pthread_mutex_lock(&w->mutex);
	w->flight--;
	if (err && !w->err)
		w->err = err;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->mutex);
}

/* Until at most @max are under way. */
int waiting_for(struct waiting *w, uint32_t max)
{
	int err;

	pthread_mutex_lock(&w->mutex);
	while (w->flight > max)
		pthread_cond_wait(&w->cond, &w->mutex);
	err = w->err;
	pthread_mutex_unlock(&w->mutex);
	return err;
}

void waiting_cb(void *arg, int err)
{
	waiting_end(arg, err);
}

static void waiting_attr_cb(void *arg, int err, const struct meta_attr *a)
{
	(void)a;
	waiting_end(arg, err);
}

/* ---- metad ---- */

static void asked_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct waiting *w = mc->arg;

	if (!err && len > 0) {
		w->body = malloc(len);
		if (w->body)
			memcpy(w->body, body, len);
		w->len = len;
		err = w->body ? 0 : -ENOMEM;
	}
	waiting_end(w, err);
}

/* @w: initialised; has the reply's body on 0. */
static int ask(struct core *c, struct meta_call *mc, struct wire_out *o,
	       struct waiting *w)
{
	mc->done = asked_done;
	mc->arg = w;
	waiting_begin(w);
	core_lock(c);
	meta_call_queue(mc, o);
	core_unlock(c);
	return waiting_for(w, 0);
}

static int take_entry(struct recovery *r, const struct meta_log_entry *e)
{
	struct wire_in in;

	if (e->peers.len % 12 || e->peers.len / 12 > LOG_PEER_COUNT_MAX)
		return -EBADMSG;
	r->e = *e;
	r->e.peers.p = NULL;
	r->epoch = e->epoch;
	r->count = e->peers.len / 12;
	wire_in_init(&in, e->peers.p, e->peers.len);
	for (uint32_t i = 0; i < r->count; i++) {
		struct meta_log_peer p;

		meta_log_peer_decode(&in, &p);
		r->ids[i] = (struct log_writer_peer_id){ p.id, p.boot_id };
	}
	return wire_in_end(&in);
}

int recovery_raise(struct recovery *r, uint64_t ino)
{
	struct meta_log_entry e;
	struct meta_call *mc;
	struct waiting w;
	struct wire_out o;
	int err;

	mc = meta_call_new(r->c, WIRE_OP_META_LOG_RAISE, 8, &o);
	if (!mc)
		return -ENOMEM;
	wire_put_u64(&o, ino);
	waiting_init(&w);
	err = ask(r->c, mc, &o, &w);
	if (!err)
		err = log_entry_take(w.body, w.len, ino, &e);
	if (!err)
		err = take_entry(r, &e);
	waiting_fini(&w);
	return err;
}

static void start_sync(struct core *c, core_cb cb, void *arg)
{
	core_fsync_dir(c, ROOT_INO, cb, arg);
}

int recovery_drop(struct recovery *r)
{
	struct meta_log_drop d = { .ino = r->e.ino, .epoch = r->epoch };
	struct meta_call *mc;
	struct waiting w;
	struct wire_out o;
	int err;

	mc = meta_call_new(r->c, WIRE_OP_META_LOG_DROP, meta_log_drop_size(&d),
			   &o);
	if (!mc)
		return -ENOMEM;
	meta_log_drop_encode(&o, &d);
	waiting_init(&w);
	err = ask(r->c, mc, &o, &w);
	waiting_fini(&w);
	return err ? err : core_call_wait(r->c, start_sync, 0);
}

/* ---- applying ---- */

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

static int apply_regions(struct recovery *r, uint32_t peer,
			 struct applying *a)
{
	const struct log_answer *an = &r->answers[peer];
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

/* What that peer has, or, if there is, @s. */
static int apply_file(struct recovery *r, uint32_t peer,
		      const struct log_redo_section *s)
{
	struct applying a = { .c = r->c, .ino = r->e.ino };
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
			  apply_regions(r, peer, &a);
		err = apply_wait(&a, err);
		if (!err)
			err = apply_sync(&a);
		core_release(r->c, a.f);
	}
	waiting_fini(&a.w);
	return err == -ENOENT ? 0 : err; /* it has been deleted */
}

/* ---- one log ---- */

/* One that could not be read is not asked again for so long: a majority of the
 * others has all that was answered. */
#define SHUN_MS 1000u

/* Chooses, reads and gives a majority what it lacks. */
static int settle(struct recovery *r, uint64_t deadline_ms, uint32_t *index)
{
	int err, staged;

	for (;;) {
		staged = recovery_choose(r, deadline_ms, index);
		if (staged < 0)
			return staged;
		err = recovery_read(r, *index);
		if (!err && staged)
			err = recovery_stage(r, *index);
		if (!err || err == -ESTALE || core_is_fenced(r->c) ||
		    core_now_ms() >= deadline_ms)
			return err;
		/* It may be gone, or have lied: the others are asked again. */
		diag_warn("log", "event=recovery_retry ino=%llu logd=%u "
			  "error=\"%s\"", (unsigned long long)r->e.ino,
			  r->ids[*index].id, strerror(-err));
		r->shun_ms[*index] = core_now_ms() + SHUN_MS;
		for (uint32_t i = 0; i < r->count; i++)
			if (r->answers[i].state == LOG_ANSWER_CONFIRMED)
				r->answers[i].state = LOG_ANSWER_NONE;
		if (err == -EBADMSG)
			r->answers[*index].state = LOG_ANSWER_LOST;
	}
}

/* All its peers have lost power, or have been started anew, and the blocks
 * follow its records in order: the file is what it was when it was destaged
 * last, and so is all else, once what a journal has of it is in the blocks. */
static bool went_back(struct recovery *r)
{
	struct core *c = r->c;
	struct log_opts opts;
	struct meta_call *mc;
	struct waiting w;
	struct wire_out o;
	bool shared;
	int err;

	for (uint32_t i = 0; i < r->count; i++)
		if (r->answers[i].state != LOG_ANSWER_LOST)
			return false;
	mc = log_opts_ask(c, r->e.ino, &o);
	if (!mc)
		return false;
	waiting_init(&w);
	err = ask(c, mc, &o, &w);
	if (!err)
		err = log_opts_take(w.body, w.len, &opts);
	waiting_fini(&w);
	core_lock(c);
	shared = log_peers_shared(c, r->ids, r->count);
	core_unlock(c);
	if (err || !log_is_ordered(&opts, shared))
		return false;
	c->log->n.went_back++;
	diag_err("log", "event=went_back ino=%llu epoch=%llu what=\"all peers "
		 "of the log have lost it: the file is as it was destaged "
		 "last\"", (unsigned long long)r->e.ino,
		 (unsigned long long)r->e.data_epoch);
	return true;
}

static int recover(struct recovery *r, uint64_t ino, uint64_t deadline_ms)
{
	const struct log_redo_section *s = NULL;
	uint32_t index = 0;
	int err = recovery_raise(r, ino);

	if (err)
		return err;
	err = settle(r, deadline_ms, &index);
	if (err == -EIO && went_back(r)) {
		s = log_redo_find(r->c, ino, r->e.data_epoch);
		err = s ? 0 : r->c->log->redo_blind ? -EIO : -ENODATA;
		r->c->log->n.redone += s != NULL;
	}
	if (!err)
		err = apply_file(r, index, s);
	/* These are metad's words for a log that is not ours to recover. */
	if (err == -ENOENT || err == -EBUSY)
		err = -EREMOTEIO;
	if (err && err != -ENODATA)
		return err;
	err = recovery_drop(r);
	if (!err)
		recovery_free(r);
	return err;
}

/* "1: lost, 2: no answer, 4: up to 17" */
static void peers_text(const struct recovery *r, char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < r->count && len < size; i++) {
		const struct log_answer *a = &r->answers[i];

		len += (size_t)snprintf(text + len, size - len, "%s%u: ",
					i ? ", " : "", r->ids[i].id);
		if (len < size)
			len += (size_t)snprintf(
				text + len, size - len,
				a->state == LOG_ANSWER_LOST ? "lost it" :
				a->state == LOG_ANSWER_NONE ? "no answer" :
				"up to %llu", (unsigned long long)a->seq);
	}
}

/* Returns -ENOMEM when it cannot be: then nothing may be served. */
static int mark_lost(const struct recovery *r, int err)
{
	struct core *c = r->c;
	struct core_inode *in;
	uint64_t ino = r->e.ino, epoch = r->epoch;
	char peers[256];

	peers_text(r, peers, sizeof(peers));
	c->log->n.lost++;
	log_redo_keep(c, ino);
	diag_err("log", "event=not_recovered ino=%llu logds=\"%s\" "
		 "error=\"%s\" next=\"hailctl log salvage\"",
		 (unsigned long long)ino, peers,
		 err == -EAGAIN ? "too few of its log's peers answer" :
		 err == -EIO ? "a majority of its log's peers have lost it" :
			       strerror(-err));
	core_lock(c);
	in = inode_get(c, ino);
	if (in) {
		in->bad = true;
		in->log_lost = epoch;
	}
	core_unlock(c);
	return in ? 0 : -ENOMEM;
}

static int recover_entry(struct core *c, const struct meta_log_entry *e,
			 uint64_t deadline_ms)
{
	struct recovery *r = calloc(1, sizeof(*r));
	uint64_t began = core_now_ms();
	int err;

	if (!r)
		return -ENOMEM;
	r->c = c;
	r->e.ino = e->ino;
	err = recover(r, e->ino, deadline_ms);
	if (err && core_is_fenced(c))
		err = -ESTALE; /* whatever it is, another mount does it */
	if (err && err != -ENOENT && err != -EBUSY && err != -ESTALE)
		err = mark_lost(r, err) ? -ENOMEM : -ENOENT;
	for (uint32_t i = 0; i < r->count; i++)
		log_answer_fini(&r->answers[i]);
	recovery_forget(r);
	free(r);
	if (err)
		return err == -ESTALE || err == -ENOMEM ? err : 0;
	c->log->n.recovered++;
	diag_debug("log", "event=recovered ino=%llu ms=%llu",
		   (unsigned long long)e->ino,
		   (unsigned long long)(core_now_ms() - began));
	return 0;
}

/* ---- all of them ---- */

static int list_page(struct core *c, uint64_t after, struct waiting *w,
		     struct meta_log_list_reply *r)
{
	struct meta_log_list m = { .ino = after, .count_max = 256 };
	struct meta_call *mc;
	struct wire_out o;
	int err;

	mc = meta_call_new(c, WIRE_OP_META_LOG_LIST, meta_log_list_size(&m),
			   &o);
	if (!mc)
		return -ENOMEM;
	meta_log_list_encode(&o, &m);
	err = ask(c, mc, &o, w);
	return err ? err : meta_log_list_reply_parse(w->body, w->len, r);
}

/* Of journals, or of logs. */
static int recover_page(struct core *c, const struct meta_log_list_reply *r,
			uint64_t deadline_ms, bool journals, uint64_t *last)
{
	struct wire_in in;
	int err = 0;

	wire_in_init(&in, r->entries.p, r->entries.len);
	for (uint32_t i = 0; i < r->count && !err; i++) {
		struct meta_log_entry e;

		meta_log_entry_decode(&in, &e);
		if (in.bad || e.ino <= *last)
			return -EBADMSG;
		*last = e.ino;
		if (e.live || journals != (e.peers.len == 0))
			continue;
		err = journals ? log_redo_load(c, e.ino) :
				 recover_entry(c, &e, deadline_ms);
	}
	return err;
}

static int recover_list(struct core *c, uint64_t deadline_ms, bool journals)
{
	struct meta_log_list_reply r = { .done = 0 };
	uint64_t last = 0;
	int err = 0;

	while (!err && !r.done) {
		struct waiting w;

		waiting_init(&w);
		err = list_page(c, last, &w, &r);
		if (!err)
			err = recover_page(c, &r, deadline_ms, journals,
					   &last);
		waiting_fini(&w);
	}
	return err;
}

int log_recover_all(struct core *c, uint64_t deadline_ms)
{
	uint64_t began = core_now_ms();
	int err;

	core_lock(c);
	c->log->recovering = true;
	core_unlock(c);
	err = recover_list(c, deadline_ms, true);
	if (!err)
		err = recover_list(c, deadline_ms, false);
	log_redo_end(c, !err);
	core_lock(c);
	c->log->recovering = false;
	core_unlock(c);
	/* One line: there may be as many logs as there were files. */
	if (c->log->n.recovered + c->log->n.lost + c->log->n.went_back > 0)
		diag_info("log", "event=recovered logs=%llu went_back=%llu "
			  "redone=%llu lost=%llu ms=%llu",
			  (unsigned long long)c->log->n.recovered,
			  (unsigned long long)c->log->n.went_back,
			  (unsigned long long)c->log->n.redone,
			  (unsigned long long)c->log->n.lost,
			  (unsigned long long)(core_now_ms() - began));
	return err;
}
