/* Log files under random operations and random faults, one at a time of those
 * that lose something: what was answered is there, and only that.
 *
 * Method: a model has what was answered. Peers of logs, block daemons and metad
 * are stopped, drop connections, forget; the client is killed with writes on
 * their way, and begins anew. The seed is printed when a step fails, and taken
 * from SEED.
 */
#include "tests/lib/fail_malloc.h"
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define FILES 3u /* the last is an ordinary one */
#define LEN_MAX (300u << 10)
#define STEPS 220u
#define SEEDS 6u
#define TAIL 6u /* writes on their way when the client is killed */

struct one {
	char name[8];
	uint64_t dir;
	struct core_file *f;
	uint32_t size;
	uint8_t bytes[LEN_MAX];
};

struct storm {
	struct lmount *m;
	uint64_t seed, x;
	uint32_t step;
	struct one file[FILES];
	unsigned every; /* of so many allocations one fails; 0: none */
	bool busy; /* writes are on their way */
	uint32_t held; /* whose requests are; DFIX_LOGDS_MAX: nobody's */
};

static uint32_t rnd(struct storm *s, uint32_t below)
{
	s->x = s->x * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((s->x >> 33) % below);
}

/* Until there is memory for it. */
#define must_do(call)                                                         \
	do {                                                                  \
		unsigned tries_ = 0;                                          \
		int err_;                                                     \
		while ((err_ = (call)) == -ENOMEM)                            \
			assert_true(++tries_ < 500);                          \
		assert_int_equal(err_, 0);                                    \
	} while (0)

/* ---- operations ---- */

static struct fix_call *write_start(struct storm *s, struct one *o,
				    uint32_t off, uint32_t len, uint8_t *p)
{
	d_fill(p, len, s->x);
	return d_write_start(s->m->d, o->f, off, p, len, 0);
}

static void wrote(struct one *o, uint32_t off, uint32_t len, const uint8_t *p)
{
	if (off > o->size)
		memset(o->bytes + o->size, 0, off - o->size);
	memcpy(o->bytes + off, p, len);
	o->size = (uint32_t)u64_max(o->size, off + len);
}

static void do_write(struct storm *s, struct one *o)
{
	static uint8_t p[70000];
	uint32_t len = 1 + rnd(s, rnd(s, 5) ? 2000 : 70000);
	uint32_t off = rnd(s, 2) ? o->size : rnd(s, o->size + 5000);

	if (off + len > LEN_MAX)
		off = rnd(s, LEN_MAX - len);
	must_do(fix_call_end(write_start(s, o, off, len, p), NULL));
	wrote(o, off, len, p);
}

static void do_truncate(struct storm *s, struct one *o)
{
	uint32_t size = rnd(s, 2) ? rnd(s, o->size + 1) :
				    rnd(s, LEN_MAX / 2);

	must_do(d_truncate(s->m->d, o->f, size));
	if (size > o->size)
		memset(o->bytes + o->size, 0, size - o->size);
	o->size = size;
}

static void do_zero(struct storm *s, struct one *o)
{
	uint32_t off = rnd(s, o->size + 1), len = 1 + rnd(s, 20000);
	bool punch = rnd(s, 2);

	if (off + len > LEN_MAX)
		return;
	must_do(d_fallocate(s->m->d, o->f, punch ?
			    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE :
			    FALLOC_FL_ZERO_RANGE, off, len));
	if (!punch && off + len > o->size) {
		memset(o->bytes + o->size, 0, off + len - o->size);
		o->size = off + len;
	}
	if (off < o->size)
		memset(o->bytes + off, 0, u64_min(len, o->size - off));
}

static void do_rename(struct storm *s, struct one *o)
{
	uint64_t to = o->dir == ROOT_INO ? s->m->dir : ROOT_INO;

	must_do(op_rename(&s->m->d->f, o->dir, o->name, to, o->name, 0));
	o->dir = to;
}

static void check(struct storm *s, struct one *o)
{
	assert_int_equal(d_size(s->m->d, o->f), o->size);
	if (o->size > 0)
		d_check_read(s->m->d, o->f, 0, o->bytes, o->size);
}

static void reopen(struct storm *s, struct one *o)
{
	d_close(s->m->d, o->f);
	pause_ms(rnd(s, 3) ? 0 : LOG_LINGER_MS + 100);
	o->f = lm_open(s->m, o->dir, o->name);
}

/* ---- faults ---- */

static void let_go(struct storm *s)
{
	if (s->held < DFIX_LOGDS_MAX) {
		mini_logd_hold(s->m->d->l[s->held], 0, false);
		mini_logd_hold_replies(s->m->d->l[s->held], 0, false);
	}
	s->held = DFIX_LOGDS_MAX;
}

/* Has each log all its peers, with everything? Then one may be lost. */
static bool is_healthy(struct storm *s)
{
	struct lmount *m = s->m;

	for (uint32_t i = 0; i < FILES; i++) {
		uint64_t ino = core_file_ino(s->file[i].f);
		uint64_t seq = 0;
		struct sm_log e;

		if (!mini_metad_log_find(m->d->f.m, ino, &e))
			continue;
		core_lock(m->d->f.c);
		if (s->file[i].f->in->log)
			seq = s->file[i].f->in->log->w.seq;
		core_unlock(m->d->f.c);
		for (uint32_t j = 0; j < e.peer_count; j++) {
			struct mini_logd *l = m->d->l[e.peers[j].id - 1];

			if (mini_logd_boot_id(l) != e.peers[j].boot_id ||
			    mini_logd_seq(l, ino) < seq)
				return false;
		}
	}
	return true;
}

static void lose_one(struct storm *s)
{
	uint32_t i = rnd(s, s->m->d->logd_count);

	let_go(s);
	wait_until(is_healthy(s));
	if (rnd(s, 3) == 0)
		mini_logd_reclaim(s->m->d->l[i]);
	else
		mini_logd_restart(s->m->d->l[i]);
	mini_logd_drain(s->m->d->l[i], false);
	lm_tell(s->m, i, true);
}

/* Two of three, so that logs are given up. */
static void hang_most(struct storm *s)
{
	uint8_t b = (uint8_t)s->x;
	struct one *o = &s->file[0];

	let_go(s);
	lm_hold(s->m, 1, WIRE_OP_LOG_WRITE, true);
	must_do(d_write(s->m->d, o->f, 3, &b, 1, 0));
	wrote(o, 3, 1, &b);
	must_do(d_fsync(s->m->d, o->f));
	lm_hold(s->m, 1, WIRE_OP_LOG_WRITE, false);
}

static void disturb(struct storm *s)
{
	struct dfix *d = s->m->d;
	uint32_t i = rnd(s, d->logd_count);
	const uint16_t ops[] = { WIRE_OP_LOG_WRITE, WIRE_OP_LOG_ALLOC,
				 WIRE_OP_LOG_FREE, WIRE_OP_LOG_PING, 0 };
	uint16_t op = ops[rnd(s, 5)];

	switch (rnd(s, 12)) {
	case 0:
		mini_logd_drop(d->l[i]);
		break;
	case 1:
		mini_logd_lose_replies(d->l[i], op, 1);
		break;
	case 2:
		let_go(s);
		s->held = i;
		mini_logd_hold(d->l[i], op, true);
		break;
	case 3:
		let_go(s);
		s->held = i;
		mini_logd_hold_replies(d->l[i], op, true);
		break;
	case 4:
		let_go(s);
		break;
	case 5:
		mini_metad_drop(d->f.m);
		break;
	case 6:
		mini_metad_restart(d->f.m, rnd(s, 2));
		break;
	case 7:
		mini_blockd_restart(d->b[rnd(s, DFIX_BLOCKDS)], rnd(s, 2));
		break;
	case 8:
		mini_logd_fail(d->l[i], WIRE_OP_LOG_ALLOC,
			       rnd(s, 2) ? -EAGAIN : -ENOSPC, 1);
		break;
	case 9:
		if (rnd(s, 5) == 0 && !s->busy)
			hang_most(s);
		break;
	default:
		lose_one(s);
	}
}

/* Several at a time, with something in between. */
static void do_burst(struct storm *s, struct one *o)
{
	static uint8_t p[TAIL][3000];
	struct fix_call *k[TAIL];
	uint32_t off = o->size, len[TAIL];

	if (off + TAIL * 3000 > LEN_MAX)
		return;
	for (uint32_t i = 0; i < TAIL; i++) {
		len[i] = 1 + rnd(s, 3000);
		k[i] = write_start(s, o, off, len[i], p[i]);
		off += len[i];
		s->busy = true;
		if (i == TAIL / 2)
			disturb(s);
		s->busy = false;
	}
	off = o->size;
	for (uint32_t i = 0; i < TAIL; i++) {
		int err = fix_call_end(k[i], NULL);

		if (err == -ENOMEM)
			must_do(d_write(s->m->d, o->f, off, p[i], len[i], 0));
		else
			assert_int_equal(err, 0);
		wrote(o, off, len[i], p[i]);
		off += len[i];
	}
}

static bool has_log(struct storm *s, const struct one *o)
{
	bool has;

	core_lock(s->m->d->f.c);
	has = o->f->in->log && o->f->in->log->state == LOG_ACTIVE;
	core_unlock(s->m->d->f.c);
	return has;
}

/* The client is only taken for dead: it may not write any more. */
static void start_another(struct storm *s)
{
	struct core *old = s->m->d->f.c;
	uint8_t b = 1;

	assert_int_equal(lm_start(s->m), 0);
	struct core *new = s->m->d->f.c;
	s->m->d->f.c = old;
	for (uint32_t i = 0; i < FILES - 1; i++)
		if (has_log(s, &s->file[i]))
			assert_int_equal(d_write(s->m->d, s->file[i].f, 0, &b,
						 1, 0), -EIO);
	/* Nor does it get there by another way. */
	for (uint32_t i = 0; i < FILES - 1; i++)
		(void)d_fsync(s->m->d, s->file[i].f);
	core_free(old);
	s->m->d->f.c = new;
}

/* Appends are on their way: each that was answered is there, and behind the
 * last only those that came after it, without a gap. */
static void die(struct storm *s)
{
	static uint8_t p[TAIL][3000];
	struct fix_call *k[TAIL];
	struct one *o = &s->file[rnd(s, FILES - 1)];
	uint32_t count = o->size + TAIL * 3000 < LEN_MAX ? rnd(s, TAIL) : 0;
	uint32_t len[TAIL], off = o->size, sure = o->size, at;
	bool lossy = rnd(s, 2), zombie = rnd(s, 4) == 0;

	/* Without a log, now and then, a write is what it is elsewhere. */
	for (uint32_t i = 0; i < FILES; i++)
		must_do(d_fsync(s->m->d, s->file[i].f));
	must_do(op_fsync_dir(&s->m->d->f));
	let_go(s);
	wait_until(is_healthy(s));
	fail_malloc_all(0);
	if (!has_log(s, o))
		count = 0;
	for (uint32_t i = 0; i < count; i++) {
		len[i] = 1 + rnd(s, 3000);
		k[i] = write_start(s, o, off, len[i], p[i]);
		off += len[i];
	}
	if (zombie)
		start_another(s);
	else
		lm_kill(s->m);
	for (uint32_t i = 0, end = o->size; i < count; i++) {
		end += len[i];
		if (fix_call_end(k[i], NULL) == 0)
			sure = end;
	}
	if (lossy && !zombie) {
		uint32_t i = rnd(s, s->m->d->logd_count);

		mini_logd_restart(s->m->d->l[i]);
		lm_tell(s->m, i, true);
	}
	if (rnd(s, 2))
		mini_metad_restart(s->m->d->f.m, true);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		if (rnd(s, 2))
			mini_blockd_restart(s->m->d->b[i], true);
	if (!zombie)
		assert_int_equal(lm_start(s->m), 0);
	for (uint32_t i = 0; i < FILES; i++)
		s->file[i].f = lm_open(s->m, s->file[i].dir, s->file[i].name);
	/* How much of the tail is there? Whole writes of it. */
	at = (uint32_t)d_size(s->m->d, o->f);
	assert_true(at >= sure);
	for (uint32_t i = 0; i < count && o->size < at; i++)
		wrote(o, o->size, len[i], p[i]);
	assert_int_equal(o->size, at);
	fail_malloc_all(s->every);
}

/* ---- a run ---- */

static void step(struct storm *s)
{
	struct one *o = &s->file[rnd(s, FILES)];
	uint32_t what = rnd(s, 100);

	if (what < 45)
		do_write(s, o);
	else if (what < 55)
		do_burst(s, o);
	else if (what < 60)
		do_truncate(s, o);
	else if (what < 65)
		do_zero(s, o);
	else if (what < 70)
		must_do(d_fsync(s->m->d, o->f));
	else if (what < 73 && o != &s->file[FILES - 1])
		do_rename(s, o);
	else if (what < 76)
		reopen(s, o);
	else if (what < 80)
		check(s, o);
	else if (what < 97)
		disturb(s);
	else
		die(s);
}

static void run(uint64_t seed)
{
	const struct dfix_options o = { .logd_count = 5,
					.flush_age_ms = 300,
					.logd_bytes = 2u << 20 };
	struct storm *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->seed = s->x = seed;
	s->held = DFIX_LOGDS_MAX;
	s->m = lm_new(&o, seed % 2 ? "destage=interval" : "destage=close");
	for (uint32_t i = 0; i < FILES; i++) {
		struct one *f = &s->file[i];

		snprintf(f->name, sizeof(f->name), "f%u", i);
		f->dir = i < FILES - 1 ? s->m->dir : ROOT_INO;
		f->f = i < FILES - 1 ? lm_create(s->m, f->name) :
				       d_create(s->m->d, f->name);
	}
	assert_int_equal(op_fsync_dir(&s->m->d->f), 0);
	fail_malloc_spared = true; /* this thread's never */
	s->every = seed % 3 == 0 ? 100 : 0;
	fail_malloc_all(s->every);
	for (s->step = 0; s->step < STEPS; s->step++)
		step(s);
	fail_malloc_all(0);
	let_go(s);
	for (uint32_t i = 0; i < FILES; i++) {
		check(s, &s->file[i]);
		d_close(s->m->d, s->file[i].f);
	}
	for (uint32_t i = 0; i < s->m->d->logd_count; i++) {
		mini_logd_lose_replies(s->m->d->l[i], 0, 0);
		mini_logd_fail(s->m->d->l[i], 0, 0, 0);
	}
	lm_stop(s->m);
	free(s);
}

static void test_what_was_answered_is_there(void **state)
{
	const char *text = getenv("SEED");
	uint64_t seed = text ? strtoull(text, NULL, 10) : 1;

	(void)state;
	for (uint32_t i = 0; i < SEEDS; i++, seed++) {
		print_message("# SEED=%llu\n", (unsigned long long)seed);
		run(seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_answered_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
