/* Cuts and rounds of log files when something fails beside them: what a log has
 * is carried out, what it has not is not, and nothing is left waiting.
 *
 * Method: block daemons, log daemons and metad in memory that refuse or hang;
 * then the client dies, or power goes, and the next mount is looked at.
 */
#include "tests/lib/log_scene.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define NOT_MS 100u

/* ---- cuts ---- */

/* A hole that grows the file is two records: both have to find room, wherever
 * the region ends. */
static void test_holes_that_grow_a_file_fill_regions(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f;

	(void)state;
	for (uint32_t first = 8; first <= 96; first += 8) {
		uint64_t size = first;

		f = lm_create(m, "f");
		assert_int_equal(lm_write(m, f, 0, first, 1), 0);
		for (uint32_t i = 0; i < 700; i++, size += 10)
			assert_int_equal(d_fallocate(m->d, f,
						     FALLOC_FL_ZERO_RANGE, size,
						     10), 0);
		lm_remount(m);
		f = lm_open(m, m->dir, "f");
		assert_int_equal(d_size(m->d, f), size);
		lm_check(m, f, 0, first, 1);
		d_close(m->d, f);
		assert_int_equal(op_unlink(&m->d->f, m->dir, "f", false), 0);
	}
	lm_stop(m);
}

/* Neither peers nor blocks take it: it has not happened. */
static void test_a_cut_that_the_log_cannot_have_fails(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	d_fail(m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	for (uint32_t i = 0; i < 2; i++) {
		lm_tell(m, i, false);
		mini_logd_down(m->d->l[i]);
	}
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -ENOSPC);
	assert_int_equal(d_truncate(m->d, f, LEN / 2), -ENOSPC);
	assert_int_equal(d_fallocate(m->d, f,
				     FALLOC_FL_PUNCH_HOLE |
				     FALLOC_FL_KEEP_SIZE, 0, 10), -ENOSPC);
	lm_kill(m);
	d_fail(m->d, 0, 0, 0);
	for (uint32_t i = 0; i < 2; i++)
		mini_logd_up(m->d->l[i], false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* The log has it: a recovery would do it, whatever is written behind it. */
static void test_a_cut_that_came_late_is_carried_out(void **state)
{
	const struct dfix_options soft = { .logd_count = 3,
					   .timeout_ms = 300 };
	struct log_scene s = scene_begun_with(&soft);
	uint64_t size = (SCENE_BLOCKS - 1) * (uint64_t)DBLOCK + SCENE_LEN;

	(void)state;
	assert_int_equal(lm_write(s.m, s.f[0], size, LEN, 1), 0);
	/* Its round cannot begin: another log is being cut. */
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_CUT, true);
	(void)d_truncate(s.m->d, s.f[1], LEN);
	assert_int_equal(d_truncate(s.m->d, s.f[0], LEN), -ETIMEDOUT);
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_CUT, false);
	wait_until(d_size(s.m->d, s.f[0]) == LEN);
	assert_int_equal(lm_write(s.m, s.f[0], 2 * LEN, LEN, 2), 0);
	lm_remount(s.m);
	scene_open(&s);
	assert_int_equal(d_size(s.m->d, s.f[0]), 3 * LEN);
	lm_check_zeros(s.m, s.f[0], LEN, LEN);
	lm_check(s.m, s.f[0], 2 * LEN, LEN, 2);
	scene_end(&s);
}

/* ---- rounds ---- */

/* What a soft mount gives up is of the round that hangs: what came later and
 * follows a later log write does not go with it when it goes on. */
static void test_a_late_round_takes_nothing_of_the_next(void **state)
{
	const struct dfix_options soft = { .logd_count = 3,
					   .timeout_ms = 400 };
	struct log_scene s = { .m = lm_new(&soft, "destage=interval") };
	struct fix_call *k, *l;

	(void)state;
	s.f[0] = lm_create(s.m, "f0");
	s.f[1] = lm_create(s.m, "f1");
	s.g = d_create(s.m->d, "g");
	assert_int_equal(d_sync(s.m->d), 0);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 1), 0);
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_SET, true);
	l = op_unlink_start(&s.m->d->f, ROOT_INO, "none", false);
	wait_until(scene_log(s.m, round) == LOG_ROUND_JOURNAL);
	assert_int_equal(lm_write(s.m, s.f[0], SCENE_LEN, SCENE_LEN, 2), 0);
	k = scene_page_start(&s, 3);
	assert_int_equal(fix_call_end(l, NULL), -ETIMEDOUT);
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_SET, false);
	if (fix_call_end(k, NULL) == 0) {
		lm_power_cut(s.m);
		assert_int_equal(lm_start(s.m), 0);
		scene_open(&s);
		lm_check(s.m, s.g, 0, SCENE_LEN, 3);
		lm_check(s.m, s.f[0], SCENE_LEN, SCENE_LEN, 2);
	}
	scene_end(&s);
}

/* The peers have the log: it is the next mount's. */
static void test_an_unmount_ends_though_a_log_has_no_room(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t began;

	(void)state;
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 7), 0);
	assert_int_equal(lm_write(s.m, s.g, 0, SCENE_LEN, 8), 0);
	d_close(s.m->d, s.f[0]);
	d_close(s.m->d, s.f[1]);
	d_close(s.m->d, s.g);
	began = core_now_ms();
	(void)core_stop(s.m->d->f.c, WAIT_MS);
	assert_true(core_now_ms() - began < WAIT_MS / 2);
	d_fail(s.m->d, 0, 0, 0);
	lm_remount(s.m);
	scene_open(&s);
	lm_check(s.m, s.f[0], 0, SCENE_LEN, 7);
	scene_end(&s);
}

/* ---- rounds without a journal ---- */

/* A page of which the log record is nowhere on disk. */
static void test_a_page_waits_for_a_log_that_has_no_room(void **state)
{
	struct log_scene s = scene_begun();
	struct fix_call *k;
	uint64_t was;

	(void)state;
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 7), 0);
	k = scene_page_start(&s, 8);
	wait_until(lm_count(s.m, journal_failed) == 1);
	wait_until(lm_field(s.m, s.f[0], destage_err) != 0);
	was = lm_count(s.m, destages);
	wait_until(lm_count(s.m, destages) > was);
	assert_false(fix_call_wait(k, NOT_MS));
	/* To remove something may be what helps. */
	assert_int_equal(op_unlink(&s.m->d->f, ROOT_INO, "g", false), 0);
	assert_false(fix_call_wait(k, NOT_MS));
	d_fail(s.m->d, 0, 0, 0);
	assert_int_equal(fix_call_end(k, NULL), 0);
	scene_wait_round(&s);
	lm_check_durable(s.m, s.f[0], 0, SCENE_LEN, 7);
	scene_end(&s);
}

/* To make room of the file itself. */
static void test_a_page_that_waits_can_be_cut(void **state)
{
	struct log_scene s = scene_begun();
	struct fix_call *k;

	(void)state;
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 7), 0);
	k = scene_page_start(&s, 8);
	wait_until(lm_field(s.m, s.f[0], destage_err) != 0);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(d_truncate(s.m->d, s.g, 0), 0);
	wait_until(fix_call_wait(k, 0));
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_fail(s.m->d, 0, 0, 0);
	scene_page(&s, 9);
	lm_check_durable(s.m, s.g, 0, SCENE_LEN, 9);
	scene_end(&s);
}

/* The journal's file is let go of, and the next one wanted, in one step. */
static void test_a_journal_is_wanted_when_the_old_one_goes(void **state)
{
	struct log_scene s = scene_begun();
	struct fix_call *k, *l;

	(void)state;
	/* A log could not be destaged lately, */
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 7), 0);
	k = scene_page_start(&s, 8);
	lm_hold_behind_journal(s.m);
	wait_until(d_held(s.m->d) == 2);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
	(void)fix_call_end(k, NULL);
	wait_until(lm_field(s.m, s.f[0], destage_err) != 0);
	/* a round has nothing but it, no journal can be written, and metad
	 * takes long to forget the old one. */
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_DROP, true);
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 9), 0);
	k = op_unlink_start(&s.m->d->f, ROOT_INO, "g", false);
	wait_until(lm_count(s.m, journal_failed) == 1);
	d_fail(s.m->d, 0, 0, 0);
	/* Another round is wanted, and a journal may be tried again. */
	wait_until(core_now_ms() > scene_log(s.m, jour.retry_ms));
	l = op_unlink_start(&s.m->d->f, ROOT_INO, "none", false);
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_DROP, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(l, NULL), -ENOENT);
	scene_wait_round(&s);
	wait_until(scene_log(s.m, jour.gone) == 0);
	lm_check_durable(s.m, s.f[0], 0, SCENE_LEN, 9);
	scene_end(&s);
}

static bool majority(struct lmount *m, struct core_file *f)
{
	bool up;

	core_lock(m->d->f.c);
	up = f->in->log && log_writer_majority(&f->in->log->w);
	core_unlock(m->d->f.c);
	return up;
}

/* Nobody waits for the log, and neither peers nor blocks are to be had: when
 * its peers are back it goes on. */
static void test_an_idle_log_whose_peers_come_back_goes_on(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t opened;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	opened = lm_count(m, opened);
	d_fail(m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	for (uint32_t i = 0; i < 2; i++)
		mini_logd_down(m->d->l[i]);
	wait_until(lm_field(m, f, destage_err) == (uint64_t)-ENOSPC);
	for (uint32_t i = 0; i < 2; i++)
		mini_logd_up(m->d->l[i], false);
	wait_until(majority(m, f));
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), 0);
	assert_int_equal(lm_count(m, opened), opened);
	d_fail(m->d, WIRE_OP_BLK_WRITE, 0, 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	lm_check(m, f, LEN, LEN, 2);
	d_close(m->d, f);
	lm_stop(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_idle_log_whose_peers_come_back_goes_on),
		cmocka_unit_test(test_holes_that_grow_a_file_fill_regions),
		cmocka_unit_test(test_a_cut_that_the_log_cannot_have_fails),
		cmocka_unit_test(test_a_cut_that_came_late_is_carried_out),
		cmocka_unit_test(test_a_late_round_takes_nothing_of_the_next),
		cmocka_unit_test(test_an_unmount_ends_though_a_log_has_no_room),
		cmocka_unit_test(test_a_page_waits_for_a_log_that_has_no_room),
		cmocka_unit_test(test_a_page_that_waits_can_be_cut),
		cmocka_unit_test(
			test_a_journal_is_wanted_when_the_old_one_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
