/* The logs that dead mounts left behind are put into the blocks before this one
 * serves (design section 8).
 *
 * Metad raises a log's epoch, which makes it ours; the peers of its list are
 * fenced, and only what those that confirm hold is read: of a majority, the one
 * that reaches furthest. What its records come to is put into the file
 * (log_apply.c), and once that is durable the log is dropped. Before that a
 * majority is given what it lacks of them. Whoever stops in between leaves a
 * log that reaches as far for the next one, which may begin later, though: so
 * nothing is put there that the last record that says something of it did not
 * say.
 *
 * Power may go in the middle, and the peers' memory with it. So all logs are
 * read before one is applied, those that cannot be recovered are judged by what
 * the others are, and those that the blocks follow in order go to a journal
 * together (log_redo.c).
 *
 * Runs on the thread that starts the mount, or on the heir's (log_heir.c), and
 * blocks. */
#include "fuse/core/log_recover.h"

#include "common/diag.h"

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

void waiting_attr_cb(void *arg, int err, const struct meta_attr *a)
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

int recovery_tell(struct core *c, struct meta_call *mc, struct wire_out *o)
{
	struct waiting w;
	int err;

	waiting_init(&w);
	err = ask(c, mc, o, &w);
	waiting_fini(&w);
	return err;
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

int recovery_raise(struct recovery *r)
{
	struct meta_log_entry e;
	struct meta_call *mc;
	struct waiting w;
	struct wire_out o;
	int err;

	mc = meta_call_new(r->c, WIRE_OP_META_LOG_RAISE, 8, &o);
	if (!mc)
		return -ENOMEM;
	wire_put_u64(&o, r->e.ino);
	waiting_init(&w);
	err = ask(r->c, mc, &o, &w);
	if (!err)
		err = log_entry_take(w.body, w.len, r->e.ino, &e);
	if (!err)
		err = take_entry(r, &e);
	waiting_fini(&w);
	return err;
}

static void start_sync(struct core *c, core_cb cb, void *arg)
{
	core_fsync_dir(c, ROOT_INO, cb, arg);
}

int recovery_set_journal(struct recovery *r, uint64_t ino)
{
	struct meta_log_set set = { .ino = ino };
	struct meta_log_entry e;
	struct meta_call *mc;
	struct waiting w;
	int err;

	waiting_init(&w);
	waiting_begin(&w);
	core_lock(r->c);
	mc = log_set_new(r->c, &set, NULL, 0);
	if (mc) {
		mc->done = asked_done;
		mc->arg = &w;
	}
	core_unlock(r->c);
	if (!mc)
		waiting_end(&w, -ENOMEM);
	err = waiting_for(&w, 0);
	if (!err)
		err = log_entry_take(w.body, w.len, ino, &e);
	if (!err)
		err = take_entry(r, &e);
	waiting_fini(&w);
	return err ? err : core_call_wait(r->c, start_sync, 0);
}

/* DROP or LOSE of its entry. */
static int entry_end(struct recovery *r, uint16_t op)
{
	struct meta_log_drop d = { .ino = r->e.ino, .epoch = r->epoch };
	struct meta_call *mc;
	struct wire_out o;

	mc = meta_call_new(r->c, op, meta_log_drop_size(&d), &o);
	if (!mc)
		return -ENOMEM;
	meta_log_drop_encode(&o, &d);
	return recovery_tell(r->c, mc, &o);
}

int recovery_drop(struct recovery *r)
{
	int err = entry_end(r, WIRE_OP_META_LOG_DROP);

	return err ? err : core_call_wait(r->c, start_sync, 0);
}

/* The status may be asked for meanwhile. */
static void count(struct core *c, uint64_t *n)
{
	core_lock(c);
	(*n)++;
	core_unlock(c);
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
		if (!err || err == -ESTALE || recovery_stops(r->c) ||
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

static bool all_lost(const struct recovery *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->answers[i].state != LOG_ANSWER_LOST)
			return false;
	return true;
}

/* Was power lost everywhere? */
static void note_alive(const struct recovery *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->answers[i].state == LOG_ANSWER_CONFIRMED &&
		    r->answers[i].seq > 0)
			r->c->log->redo_alive = true;
}

/* Whose it is, and what it has. */
static int recover_read(struct recovery *r, uint64_t deadline_ms)
{
	int err = recovery_take(r), settled;

	if (err)
		return err;
	r->ordered = r->e.flags & META_LOG_ORDERED;
	settled = settle(r, deadline_ms, &r->from);
	note_alive(r);
	/* These are metad's words for a log that is not ours to recover. */
	if (settled == -ENOENT || settled == -EBUSY)
		settled = -EREMOTEIO;
	if (settled == -EIO && r->ordered && all_lost(r)) {
		r->back = true;
		return 0;
	}
	return settled;
}

/* All its peers have lost power, or have been started anew, and the blocks
 * follow its records in order: the file is what it was when it was destaged
 * last, and so is all else, once what a journal has of it is in the blocks. */
static int go_back(struct recovery *r)
{
	struct core *c = r->c;

	count(c, &c->log->n.went_back);
	diag_err("log", "event=went_back ino=%llu epoch=%llu what=\"all peers "
		 "of the log have lost it: the file is as it was destaged "
		 "last\"", (unsigned long long)r->e.ino,
		 (unsigned long long)r->e.data_epoch);
	r->section = log_redo_find(c, r->e.ino, r->e.data_epoch);
	if (!r->section)
		return c->log->redo_blind ? -EIO : -ENODATA;
	count(c, &c->log->n.redone);
	return 0;
}

/* @err: of what was done before. */
static int recover_end(struct recovery *r, int err)
{
	if (!err)
		err = recovery_apply(r);
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
	count(c, &c->log->n.lost);
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

/* Frees @r. */
static int recover_done(struct recovery *r, int err)
{
	struct core *c = r->c;

	if (err && recovery_stops(c))
		err = -ESTALE; /* whatever it is, another mount does it */
	if (err && err != -ENOENT && err != -EBUSY && err != -ESTALE)
		err = mark_lost(r, err) ? -ENOMEM : -ENOENT;
	if (!err) {
		count(c, &c->log->n.recovered);
		diag_debug("log", "event=recovered ino=%llu",
			   (unsigned long long)r->e.ino);
	}
	for (uint32_t i = 0; i < r->count; i++)
		log_answer_fini(&r->answers[i]);
	recovery_forget(r);
	if (err != -ESTALE && err != -ENOMEM)
		recovery_unhold(r);
	free(r);
	return err == -ESTALE || err == -ENOMEM ? err : 0;
}

/* What is to be done with it, and with what, is put behind *@tail. */
static int recover_entry(struct core *c, const struct meta_log_entry *e,
			 uint64_t deadline_ms, struct recovery ***tail)
{
	struct recovery *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->c = c;
	r->e.ino = e->ino;
	err = recover_read(r, deadline_ms);
	if (err == -ENOENT || err == -EBUSY || err == -ESTALE ||
	    err == -ENOMEM)
		return recover_done(r, err);
	r->err = err;
	**tail = r;
	*tail = &r->next;
	return 0;
}

/* Do those that all peers have lost go back? Where another log is newer, what
 * was written after them would stay: no mount may let them go back then, also
 * when that log has been dropped. The same of those that may turn out to be
 * lost. */
static int judge(struct core *c, struct recovery *list)
{
	bool alive = c->log->redo_alive;
	int err;

	for (struct recovery *r = list; r; r = r->next) {
		if (!r->ordered || r->err == -ENODATA || (!r->back && !r->err))
			continue;
		/* What a journal has of it is not written over. */
		if (r->err)
			log_redo_keep(c, r->e.ino);
		if (alive && !(r->e.flags & META_LOG_LOST)) {
			err = entry_end(r, WIRE_OP_META_LOG_LOSE);
			if (err && err != -ENOENT)
				return err;
			if (err)
				r->err = -ENODATA; /* gone with its file */
		}
		if (r->err)
			continue;
		if (alive || (r->e.flags & META_LOG_LOST)) {
			r->err = -EIO;
			log_redo_keep(c, r->e.ino);
		} else {
			r->err = go_back(r);
		}
	}
	return 0;
}

/* Nothing is applied before all have been read; those that the blocks follow in
 * order are, all at one moment. With @err they are only freed. */
static int recover_listed(struct core *c, struct recovery *list, int err)
{
	struct recovery *r, *next;
	int failed = 0;

	if (!err)
		err = judge(c, list);
	if (list && !err)
		failed = log_redo_write(c, list);
	if (failed)
		diag_warn("log", "event=journal_failed error=\"%s\" "
			  "next=\"recovered without it\"", strerror(-failed));
	for (r = list; r; r = next) {
		next = r->next;
		if (!err && recovery_stops(c))
			err = -ESTALE;
		failed = err ? -ESTALE : recover_end(r, r->err);
		failed = recover_done(r, failed);
		err = err ? err : failed;
	}
	return err;
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

/* Of journals (without @tail), or of logs. */
static int recover_page(struct core *c, const struct meta_log_list_reply *r,
			uint64_t deadline_ms, struct recovery ***tail,
			uint64_t *last)
{
	bool journals = !tail;
	struct wire_in in;
	int err = 0;

	wire_in_init(&in, r->entries.p, r->entries.len);
	for (uint32_t i = 0; i < r->count && !err; i++) {
		struct meta_log_entry e;

		meta_log_entry_decode(&in, &e);
		if (in.bad || e.ino <= *last)
			return -EBADMSG;
		*last = e.ino;
		if (((e.flags & META_LOG_LIVE) && !recovery_left(c, &e)) ||
		    journals != (e.peers.len == 0))
			continue;
		err = journals ? log_redo_load(c, e.ino) :
				 recover_entry(c, &e, deadline_ms, tail);
	}
	return err;
}

static int recover_list(struct core *c, uint64_t deadline_ms,
			struct recovery ***tail)
{
	struct meta_log_list_reply r = { .done = 0 };
	uint64_t last = 0;
	int err = 0;

	while (!err && !r.done) {
		struct waiting w;

		waiting_init(&w);
		err = list_page(c, last, &w, &r);
		if (!err)
			err = recover_page(c, &r, deadline_ms, tail, &last);
		waiting_fini(&w);
	}
	return err;
}

int log_recover_left(struct core *c, uint64_t deadline_ms)
{
	struct recovery *listed = NULL, **tail = &listed;
	struct log_client *l = c->log;
	uint64_t began = core_now_ms();
	uint64_t recovered = l->n.recovered, lost = l->n.lost;
	uint64_t went_back = l->n.went_back, redone = l->n.redone;
	int err, late;

	l->redo_blind = false;
	l->redo_alive = false;
	err = recover_list(c, deadline_ms, NULL);
	if (!err)
		err = recover_list(c, deadline_ms, &tail);
	late = recover_listed(c, listed, err);
	err = err ? err : late;
	log_redo_end(c, !err);
	recovered = l->n.recovered - recovered;
	lost = l->n.lost - lost;
	went_back = l->n.went_back - went_back;
	/* One line: there may be as many logs as there were files. */
	if (recovered + lost + went_back > 0)
		diag_info("log", "event=recovered logs=%llu went_back=%llu "
			  "redone=%llu lost=%llu ms=%llu",
			  (unsigned long long)recovered,
			  (unsigned long long)went_back,
			  (unsigned long long)(l->n.redone - redone),
			  (unsigned long long)lost,
			  (unsigned long long)(core_now_ms() - began));
	return err;
}

int log_recover_all(struct core *c, uint64_t deadline_ms)
{
	int err;

	if (c->opt.shared)
		return 0; /* log_heir_begin() */
	core_lock(c);
	c->log->recovering = true;
	core_unlock(c);
	err = log_recover_left(c, deadline_ms);
	core_lock(c);
	c->log->recovering = false;
	core_unlock(c);
	return err;
}
