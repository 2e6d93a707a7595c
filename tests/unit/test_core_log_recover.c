/* The logs of a mount that was killed are put into the blocks by the next one
 * before it serves: whatever was answered is there, in order, as long as a
 * majority of the peers has it; without one the file says so.
 *
 * Method: the client is killed with its content in the log alone; peers and
 * metad then fail, lie, or stop at the moment that matters.
 */
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define NOT_MS 60u

/* ---- a second mount that starts, aside ---- */

struct starter {
	pthread_t thread;
	struct lmount *m;
	struct core *c;
	int err;
};

static void *start_main(void *arg)
{
	struct starter *s = arg;

	s->err = core_start(s->c, WAIT_MS);
	return NULL;
}

static void start_begin(struct lmount *m, struct starter *s)
{
	*s = (struct starter){ .m = m, .c = dfix_core_new(m->d) };
	assert_int_equal(pthread_create(&s->thread, NULL, start_main, s), 0);
}

static int start_end(struct starter *s)
{
	assert_int_equal(pthread_join(s->thread, NULL), 0);
	s->m->d->f.c = s->c;
	return s->err;
}

/* ---- files ---- */

/* @count writes, each answered, each by all three peers. */
static struct lmount *killed_with(const char *opts, uint32_t count)
{
	struct lmount *m = lm_new(NULL, opts);
	struct core_file *f = lm_create(m, "f");

	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	wait_until(lm_have(m, core_file_ino(f), count) == 3);
	lm_kill(m);
	assert_int_equal(d_received(m->d, WIRE_OP_BLK_WRITE), 0);
	return m;
}

static void check_all(struct lmount *m, uint32_t count)
{
	struct core_file *f = lm_open(m, m->dir, "f");

	for (uint32_t i = 0; i < count; i++)
		lm_check(m, f, i * LEN, LEN, i);
	assert_int_equal(d_size(m->d, f), count * LEN);
	assert_false(lm_has_log(m, core_file_ino(f)));
	for (uint32_t i = 0; i < count; i++)
		lm_check_durable(m, f, i * LEN, LEN, i);
	d_close(m->d, f);
}

/* ---- a majority ---- */

static void test_a_killed_clients_log_is_applied(void **state)
{
	struct lmount *m = killed_with("destage=close", 200);

	(void)state;
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, recovered), 1);
	check_all(m, 200);
	lm_stop(m);
}

static void test_one_peer_of_three_may_be_lost(void **state)
{
	(void)state;
	for (uint32_t gone = 0; gone < 3; gone++) {
		struct lmount *m = killed_with("destage=close", 20);

		mini_logd_down(m->d->l[gone]);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 20);
		mini_logd_up(m->d->l[gone], true);
		lm_stop(m);
	}
}

static void test_one_peer_of_three_may_come_back_empty(void **state)
{
	(void)state;
	for (uint32_t gone = 0; gone < 3; gone++) {
		struct lmount *m = killed_with("destage=close", 20);

		mini_logd_restart(m->d->l[gone]);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 20);
		lm_stop(m);
	}
}

static void test_one_peer_of_three_may_have_given_it_up(void **state)
{
	struct lmount *m = killed_with("destage=close", 20);

	(void)state;
	mini_logd_reclaim(m->d->l[0]);
	assert_int_equal(lm_start(m), 0);
	check_all(m, 20);
	lm_stop(m);
}

static void test_two_peers_of_five_may_be_lost(void **state)
{
	const struct dfix_options five = { .logd_count = 5 };

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct lmount *m = lm_new(&five, "peers=5 destage=close");
		struct core_file *f = lm_create(m, "f");
		uint32_t a = i, b = (i + 1 + i % 3) % 5;

		for (uint32_t j = 0; j < 20; j++)
			assert_int_equal(lm_write(m, f, j * LEN, LEN, j), 0);
		wait_until(lm_have(m, core_file_ino(f), 20) == 5);
		lm_kill(m);
		mini_logd_restart(m->d->l[a]);
		mini_logd_down(m->d->l[b]);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 20);
		mini_logd_up(m->d->l[b], true);
		lm_stop(m);
	}
}

/* Which two it is does not matter: one that lags may be among them. */
static void test_a_peer_that_lags_is_not_believed(void **state)
{
	(void)state;
	for (uint32_t gone = 1; gone < 3; gone++) {
		struct lmount *m = lm_new(NULL, "destage=close");
		struct core_file *f = lm_create(m, "f");

		assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
		wait_until(lm_have(m, core_file_ino(f), 1) == 3);
		mini_logd_hold(m->d->l[0], WIRE_OP_LOG_WRITE, true);
		for (uint32_t i = 1; i < 10; i++)
			assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		lm_kill(m);
		mini_logd_hold(m->d->l[0], 0, false);
		mini_logd_down(m->d->l[gone]);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 10);
		mini_logd_up(m->d->l[gone], false);
		lm_stop(m);
	}
}

/* What was not answered may be there or not; it is not there in part, and if
 * something behind it is, then so is it. */
static void test_what_was_on_its_way_is_a_prefix(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k[8];
	uint64_t size;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	for (uint32_t i = 0; i < 8; i++)
		k[i] = lm_write_start(m, f, (i + 1) * LEN, LEN, i + 1);
	wait_until(mini_logd_held(m->d->l[0]) == 2);
	mini_logd_let(m->d->l[0], 1); /* one peer has a part of it */
	wait_until(lm_have(m, core_file_ino(f), 2) == 1);
	lm_kill(m);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_not_equal(fix_call_end(k[i], NULL), 0);
	lm_hold(m, 0, 0, false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	size = d_size(m->d, f);
	assert_true(size >= LEN && size % LEN == 0);
	for (uint32_t i = 0; i < size / LEN; i++)
		lm_check(m, f, i * LEN, LEN, i);
	d_close(m->d, f);
	lm_stop(m);
}

/* Before any of it is applied a majority has it: else the next recovery might
 * see less than the blocks have. */
static void test_what_only_one_peer_has_is_given_to_another_first(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;
	struct starter s;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 1);
	wait_until(lm_have(m, ino, 2) == 1);
	lm_kill(m);
	assert_int_not_equal(fix_call_end(k, NULL), 0);
	mini_logd_down(m->d->l[2]);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	start_begin(m, &s);
	/* Nobody takes it: nothing is applied. */
	wait_until(mini_logd_held(m->d->l[1]) > 0);
	pause_ms(NOT_MS);
	assert_int_equal(d_received(m->d, WIRE_OP_BLK_WRITE), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	wait_until(d_received(m->d, WIRE_OP_BLK_WRITE) > 0);
	assert_true(lm_have(m, ino, 2) >= 2);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(start_end(&s), 0);
	check_all(m, 2);
	mini_logd_up(m->d->l[2], false);
	lm_stop(m);
}

/* Nobody was told of it, as all peers confirm; and they may have no memory for
 * it: nobody is asked to take it. */
static void test_what_only_one_of_all_peers_has_is_left(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 1);
	wait_until(lm_have(m, ino, 2) == 1);
	lm_kill(m);
	assert_int_not_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(mini_logd_held(m->d->l[1]), 0);
	lm_hold(m, 1, 0, false);
	check_all(m, 1);
	lm_stop(m);
}

/* What was written, and cut or zeroed by a later record, shows only as a
 * length, or not at all. */
static void test_what_records_come_to_is_applied(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f"), *g = lm_create(m, "g");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 4 * LEN, 1), 0);
	assert_int_equal(d_fallocate(m->d, f, FALLOC_FL_PUNCH_HOLE |
				     FALLOC_FL_KEEP_SIZE, 3 * LEN, LEN),
			 0);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), 0);
	assert_int_equal(lm_write(m, g, 0, 4 * LEN, 3), 0);
	assert_int_equal(d_truncate(m->d, g, LEN), 0);
	assert_int_equal(lm_write(m, g, 2 * LEN, LEN, 4), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 4 * LEN);
	lm_check(m, f, LEN, LEN, 2);
	lm_check_zeros(m, f, 3 * LEN, LEN);
	g = lm_open(m, m->dir, "g");
	assert_int_equal(d_size(m->d, g), 3 * LEN);
	lm_check_zeros(m, g, LEN, LEN);
	lm_check(m, g, 2 * LEN, LEN, 4);
	d_close(m->d, f);
	d_close(m->d, g);
	lm_stop(m);
}

/* ---- order ---- */

static void test_cuts_and_writes_are_applied_in_order(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	/* In the blocks, and cut in the log alone: the cut is of the blocks. */
	assert_int_equal(lm_write(m, f, 0, 10 * LEN, 7), 0);
	assert_int_equal(d_truncate(m->d, f, 2 * LEN), 0);
	assert_int_equal(lm_write(m, f, 5 * LEN, LEN, 5), 0);
	assert_int_equal(d_truncate(m->d, f, 8 * LEN), 0);
	assert_int_equal(lm_write(m, f, 100, 10, 9), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 8 * LEN);
	lm_check(m, f, 0, 100, 7);
	lm_check(m, f, 100, 10, 9);
	lm_check_zeros(m, f, 2 * LEN, 3 * LEN);
	lm_check(m, f, 5 * LEN, LEN, 5);
	lm_check_zeros(m, f, 6 * LEN, 2 * LEN);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_logs_of_several_files_are_recovered(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f;
	char name[8];

	(void)state;
	for (uint32_t i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		f = lm_create(m, name);
		assert_int_equal(lm_write(m, f, 0, LEN + i, i), 0);
		if (i % 4 == 0)
			assert_int_equal(op_unlink(&m->d->f, m->dir, name,
						   false), 0);
	}
	lm_remount(m);
	for (uint32_t i = 0; i < 12; i++) {
		struct meta_attr a;

		snprintf(name, sizeof(name), "f%u", i);
		if (i % 4 == 0) {
			assert_int_equal(op_lookup(&m->d->f, m->dir, name,
						   &a), -ENOENT);
			continue;
		}
		f = lm_open(m, m->dir, name);
		lm_check(m, f, 0, LEN + i, i);
		d_close(m->d, f);
	}
	lm_stop(m);
}

/* ---- interrupted ---- */

/* Each step of it, by what it asks of whom. */
static void interrupted_at_logd(uint16_t op)
{
	struct lmount *m = killed_with("destage=close", 60);
	struct starter s;

	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold_replies(m->d->l[i], op, true);
	start_begin(m, &s);
	wait_until(mini_logd_held(m->d->l[0]) + mini_logd_held(m->d->l[1]) +
		   mini_logd_held(m->d->l[2]) > 0);
	/* The mount before it is dead to metad: so will be this one. */
	mini_metad_fence(m->d->f.m);
	assert_int_not_equal(start_end(&s), 0);
	lm_kill(m);
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold_replies(m->d->l[i], 0, false);
	assert_int_equal(lm_start(m), 0);
	check_all(m, 60);
	lm_stop(m);
}

static void test_a_recovery_that_is_killed_is_begun_anew(void **state)
{
	(void)state;
	interrupted_at_logd(WIRE_OP_LOG_FENCE);
	interrupted_at_logd(WIRE_OP_LOG_READ);
}

/* Half of it is in the blocks; the records are put over it again. */
static void test_a_recovery_killed_while_it_applies_is_begun_anew(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct starter s;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 10 * LEN, 1), 0);
	assert_int_equal(d_truncate(m->d, f, 100), 0);
	assert_int_equal(lm_write(m, f, 0, 50, 2), 0);
	assert_int_equal(lm_write(m, f, 200, LEN, 3), 0);
	lm_kill(m);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, true);
	start_begin(m, &s);
	wait_until(d_held(m->d) > 0);
	mini_metad_fence(m->d->f.m);
	d_hold_replies(m->d, 0, false);
	(void)start_end(&s);
	lm_kill(m);
	d_restart(m->d, true);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 200 + LEN);
	lm_check(m, f, 0, 50, 2);
	lm_check_zeros(m, f, 100, 100);
	lm_check(m, f, 200, LEN, 3);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_recovery_outlives_connections(void **state)
{
	const uint16_t at_logd[] = { WIRE_OP_LOG_FENCE, WIRE_OP_LOG_READ,
				     WIRE_OP_LOG_FREE };
	const uint16_t at_metad[] = { WIRE_OP_META_LOG_LIST,
				      WIRE_OP_META_LOG_RAISE,
				      WIRE_OP_META_LOG_DROP };

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct lmount *m = killed_with("destage=close", 60);

		for (uint32_t j = 0; j < 3; j++)
			mini_logd_lose_replies(m->d->l[j], at_logd[i], 1);
		mini_metad_lose_replies(m->d->f.m, at_metad[i], 1);
		assert_int_equal(lm_start(m), 0);
		for (uint32_t j = 0; j < 3; j++)
			mini_logd_lose_replies(m->d->l[j], 0, 0);
		check_all(m, 60);
		lm_stop(m);
	}
}

static void test_metad_may_restart_during_a_recovery(void **state)
{
	(void)state;
	for (uint32_t lose = 0; lose < 2; lose++) {
		struct lmount *m = killed_with("destage=close", 60);
		struct starter s;

		for (uint32_t i = 0; i < 3; i++)
			mini_logd_hold(m->d->l[i], WIRE_OP_LOG_READ, true);
		start_begin(m, &s);
		wait_until(mini_logd_held(m->d->l[0]) +
			   mini_logd_held(m->d->l[1]) +
			   mini_logd_held(m->d->l[2]) > 0);
		mini_metad_restart(m->d->f.m, lose);
		for (uint32_t i = 0; i < 3; i++)
			mini_logd_hold(m->d->l[i], 0, false);
		assert_int_equal(start_end(&s), 0);
		check_all(m, 60);
		lm_stop(m);
	}
}

/* The one that was chosen goes while it is read: another has it, too. */
static void test_a_peer_that_goes_while_it_is_read_is_replaced(void **state)
{
	struct lmount *m = killed_with("destage=close", 60);
	uint32_t chosen = 3;
	struct starter s;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold(m->d->l[i], WIRE_OP_LOG_READ, true);
	start_begin(m, &s);
	while (chosen == 3)
		for (uint32_t i = 0; i < 3; i++)
			if (mini_logd_held(m->d->l[i]) > 0)
				chosen = i;
	mini_logd_down(m->d->l[chosen]);
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold(m->d->l[i], 0, false);
	assert_int_equal(start_end(&s), 0);
	check_all(m, 60);
	mini_logd_up(m->d->l[chosen], true);
	lm_stop(m);
}

/* It confirms what it has, and cannot be read: another has it, too. */
static void test_a_peer_that_cannot_be_read_is_replaced(void **state)
{
	const int errs[] = { 0, -ENOENT, -EIO, -EINVAL };

	(void)state;
	for (uint32_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		struct lmount *m = killed_with("destage=close", 20);
		uint64_t began = core_now_ms();

		if (errs[i])
			mini_logd_fail(m->d->l[0], WIRE_OP_LOG_READ, errs[i],
				       -1);
		else
			mini_logd_hold(m->d->l[0], WIRE_OP_LOG_READ, true);
		assert_int_equal(lm_start(m), 0);
		assert_true(core_now_ms() - began < LOG_RECOVER_MS / 2);
		check_all(m, 20);
		mini_logd_fail(m->d->l[0], 0, 0, 0);
		mini_logd_hold(m->d->l[0], 0, false);
		lm_stop(m);
	}
}

/* None of them: then the file is not served without it. */
static void test_a_log_that_cannot_be_read_is_not_forgotten(void **state)
{
	struct lmount *m = killed_with("destage=close", 20);
	struct core_file *f;
	uint8_t b[LEN];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_fail(m->d->l[i], WIRE_OP_LOG_READ, -ENOENT, -1);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_read(m->d, f, 0, b, LEN), -EIO);
	lm_kill(m);
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_fail(m->d->l[i], 0, 0, 0);
	assert_int_equal(lm_start(m), 0);
	check_all(m, 20);
	lm_stop(m);
}

/* ---- two at a time ---- */

static void test_of_two_recoveries_one_wins(void **state)
{
	struct lmount *m = killed_with("destage=close", 60);
	struct starter a, b;
	struct core *loser;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold(m->d->l[i], WIRE_OP_LOG_READ, true);
	start_begin(m, &a);
	wait_until(mini_logd_held(m->d->l[0]) + mini_logd_held(m->d->l[1]) +
		   mini_logd_held(m->d->l[2]) > 0);
	start_begin(m, &b); /* it takes the first one's place */
	wait_until(mini_metad_executed(m->d->f.m,
				       WIRE_OP_META_LOG_RAISE) == 2);
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_hold(m->d->l[i], 0, false);
	assert_int_equal(start_end(&a), -ESTALE);
	loser = a.c;
	assert_int_equal(start_end(&b), 0);
	check_all(m, 60);
	core_free(loser);
	lm_stop(m);
}

/* The old one is not dead, only taken for it: what it still writes is not
 * answered, and is nowhere. */
static void test_a_client_that_was_taken_for_dead_writes_nothing(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct core *zombie = m->d->f.c;
	struct fix_call *k;
	struct starter s;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 66);
	wait_until(mini_logd_held(m->d->l[0]) > 0);
	start_begin(m, &s);
	assert_int_equal(start_end(&s), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	m->d->f.c = zombie;
	assert_int_equal(lm_write(m, f, LEN, LEN, 67), -EIO);
	m->d->f.c = s.c;
	check_all(m, 1);
	core_free(zombie);
	lm_stop(m);
}

/* ---- no majority ---- */

static void test_a_lost_majority_is_told_until_the_file_is_emptied(
	void **state)
{
	struct lmount *m = killed_with("destage=close", 20);
	struct core_file *f;
	uint8_t b[LEN];

	(void)state;
	mini_logd_restart(m->d->l[0]);
	mini_logd_restart(m->d->l[1]);
	lm_tell(m, 0, true);
	lm_tell(m, 1, true);
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, lost), 1);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_read(m->d, f, 0, b, LEN), -EIO);
	assert_int_equal(lm_write(m, f, 0, LEN, 0), -EIO);
	assert_int_equal(d_fsync(m->d, f), -EIO);
	assert_int_equal(d_truncate(m->d, f, 10), -EIO);
	/* For the next mount, too, and what there is stays to be salvaged. */
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_read(m->d, f, 0, b, LEN), -EIO);
	assert_true(lm_lent_bytes(m) > 0);
	assert_int_equal(d_truncate(m->d, f, 0), 0);
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	assert_int_equal(d_size(m->d, f), LEN);
	d_close(m->d, f);
	lm_stop(m);
}

/* Peers of one host lose power together: then what was destaged last is what
 * there is. */
static void test_all_peers_lost_takes_an_ordered_file_back(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=interval");
	struct core_file *f = lm_create(m, "f");
	struct core_file *g = d_create(m->d, "g");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	assert_int_equal(d_fsync(m->d, g), 0); /* it destages the log before */
	assert_int_equal(lm_write(m, f, LEN, LEN, 1), 0);
	lm_kill(m);
	for (uint32_t i = 0; i < 3; i++) {
		mini_logd_restart(m->d->l[i]);
		lm_tell(m, i, true);
	}
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, went_back), 1);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), LEN);
	lm_check(m, f, 0, LEN, 0);
	d_close(m->d, f);
	lm_stop(m);
}

/* ---- liars ---- */

static void test_a_peer_that_lies_is_not_believed(void **state)
{
	const struct {
		uint16_t op;
		enum mini_logd_lie how;
	} lies[] = {
		{ WIRE_OP_LOG_FENCE, MINI_LOGD_EMPTY },
		{ WIRE_OP_LOG_FENCE, MINI_LOGD_SHORT },
		{ WIRE_OP_LOG_FENCE, MINI_LOGD_RANDOM },
		{ WIRE_OP_LOG_READ, MINI_LOGD_EMPTY },
		{ WIRE_OP_LOG_READ, MINI_LOGD_DATA },
		{ WIRE_OP_LOG_READ, MINI_LOGD_NO_DATA },
	};

	(void)state;
	for (uint32_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct lmount *m = killed_with("destage=close", 20);

		mini_logd_lie(m->d->l[0], lies[i].op, lies[i].how, 1000000);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 20);
		mini_logd_lie(m->d->l[0], 0, MINI_LOGD_EMPTY, 0);
		lm_stop(m);
	}
}

/* ---- the blocks ---- */

/* A recovery that the blocks refuse keeps the log. */
static void test_a_full_disk_keeps_the_log(void **state)
{
	struct lmount *m = killed_with("destage=close", 20);
	struct core_file *f;

	(void)state;
	d_fail(m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, lost), 1);
	f = lm_open(m, m->dir, "f");
	assert_true(lm_has_log(m, core_file_ino(f)));
	assert_int_equal(d_fsync(m->d, f), -EIO);
	lm_kill(m);
	d_fail(m->d, 0, 0, 0);
	assert_int_equal(lm_start(m), 0);
	check_all(m, 20);
	lm_stop(m);
}

/* The blocks crash between: it is durable before the log is dropped. */
static void test_it_is_durable_before_the_log_is_dropped(void **state)
{
	struct lmount *m = killed_with("destage=close", 20);
	struct starter s;

	(void)state;
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, true);
	start_begin(m, &s);
	wait_until(d_held(m->d) > 0);
	pause_ms(NOT_MS);
	assert_int_equal(mini_metad_received(m->d->f.m,
					     WIRE_OP_META_LOG_DROP), 0);
	d_restart(m->d, true);
	d_hold_replies(m->d, 0, false);
	assert_int_equal(start_end(&s), 0);
	check_all(m, 20);
	d_restart(m->d, true);
	struct core_file *f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 20; i++)
		lm_check_durable(m, f, i * LEN, LEN, i);
	d_close(m->d, f);
	lm_stop(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_killed_clients_log_is_applied),
		cmocka_unit_test(test_one_peer_of_three_may_be_lost),
		cmocka_unit_test(test_one_peer_of_three_may_come_back_empty),
		cmocka_unit_test(test_one_peer_of_three_may_have_given_it_up),
		cmocka_unit_test(test_two_peers_of_five_may_be_lost),
		cmocka_unit_test(test_a_peer_that_lags_is_not_believed),
		cmocka_unit_test(test_what_was_on_its_way_is_a_prefix),
		cmocka_unit_test(
			test_what_only_one_peer_has_is_given_to_another_first),
		cmocka_unit_test(test_what_only_one_of_all_peers_has_is_left),
		cmocka_unit_test(test_what_records_come_to_is_applied),
		cmocka_unit_test(test_cuts_and_writes_are_applied_in_order),
		cmocka_unit_test(test_logs_of_several_files_are_recovered),
		cmocka_unit_test(test_a_recovery_that_is_killed_is_begun_anew),
		cmocka_unit_test(
			test_a_recovery_killed_while_it_applies_is_begun_anew),
		cmocka_unit_test(test_a_recovery_outlives_connections),
		cmocka_unit_test(test_metad_may_restart_during_a_recovery),
		cmocka_unit_test(
			test_a_peer_that_goes_while_it_is_read_is_replaced),
		cmocka_unit_test(test_a_peer_that_cannot_be_read_is_replaced),
		cmocka_unit_test(
			test_a_log_that_cannot_be_read_is_not_forgotten),
		cmocka_unit_test(test_of_two_recoveries_one_wins),
		cmocka_unit_test(
			test_a_client_that_was_taken_for_dead_writes_nothing),
		cmocka_unit_test(
			test_a_lost_majority_is_told_until_the_file_is_emptied),
		cmocka_unit_test(
			test_all_peers_lost_takes_an_ordered_file_back),
		cmocka_unit_test(test_a_peer_that_lies_is_not_believed),
		cmocka_unit_test(test_a_full_disk_keeps_the_log),
		cmocka_unit_test(test_it_is_durable_before_the_log_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
