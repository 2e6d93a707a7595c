/* What journals of destaging in order have is done again, or is not: around
 * cuts, for logs that are others now, and by mounts that die or fail at it.
 *
 * Method: as in test_core_log_journal.c.
 */
#include "tests/lib/log_scene.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NOT_MS 60u

/* ---- cuts ---- */

enum cut { TRUNCATE, PUNCH };

static struct fix_call *cut_start(struct log_scene *s, enum cut how)
{
	struct fix_call *k = fix_call_new();
	uint64_t ino = core_file_ino(s->f[0]);

	if (how == TRUNCATE)
		core_truncate(s->m->d->f.c, ino, SCENE_LEN, false, on_attr, k);
	else
		core_fallocate(s->m->d->f.c, ino,
			       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       SCENE_LEN, SCENE_BLOCKS * (uint64_t)DBLOCK,
			       false, on_err, k);
	return k;
}

/* Of the first file only its first SCENE_LEN bytes, of seed 200, are left.
 * @newer: at 3 * SCENE_LEN is what was written behind the cut. */
static void check_cut(struct log_scene *s, enum cut how, bool newer)
{
	uint64_t end = (SCENE_BLOCKS - 1) * (uint64_t)DBLOCK + SCENE_LEN;

	lm_check(s->m, s->f[0], 0, SCENE_LEN, 200);
	if (how == PUNCH)
		assert_int_equal(d_size(s->m->d, s->f[0]), end);
	else
		assert_int_equal(d_size(s->m->d, s->f[0]),
				 newer ? 4 * SCENE_LEN : SCENE_LEN);
	/* Cut bytes are not under it either. */
	if (how == TRUNCATE)
		assert_int_equal(d_truncate(s->m->d, s->f[0], end), 0);
	lm_check_zeros(s->m, s->f[0], SCENE_LEN, 2 * SCENE_LEN);
	if (newer)
		lm_check(s->m, s->f[0], 3 * SCENE_LEN, SCENE_LEN, 5);
	else
		lm_check_zeros(s->m, s->f[0], 3 * SCENE_LEN, SCENE_LEN);
	for (uint32_t i = 1; i < SCENE_BLOCKS; i++)
		lm_check_zeros(s->m, s->f[0], i * (uint64_t)DBLOCK, SCENE_LEN);
	for (uint32_t i = 0; i < SCENE_BLOCKS; i++)
		lm_check(s->m, s->f[1], i * (uint64_t)DBLOCK, SCENE_LEN,
			 201 + 2 * i);
}

/* The cut is in the journal, and metad has not heard of it. */
static struct log_scene cut_journaled(enum cut how, struct fix_call **k)
{
	struct log_scene s = scene_begun();
	uint64_t was = mini_metad_received(s.m->d->f.m, WIRE_OP_META_CUT);

	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	scene_write(&s, 200);
	*k = cut_start(&s, how);
	wait_until(d_held(s.m->d) > 0);
	assert_false(fix_call_wait(*k, NOT_MS));
	assert_int_equal(mini_metad_received(s.m->d->f.m, WIRE_OP_META_CUT),
			 was);
	lm_hold_behind_journal(s.m);
	wait_until(d_held(s.m->d) == 2 * SCENE_BLOCKS);
	assert_int_equal(mini_metad_received(s.m->d->f.m, WIRE_OP_META_CUT),
			 was);
	return s;
}

static void test_power_is_lost_between_journal_and_cut(void **state)
{
	(void)state;
	for (enum cut how = TRUNCATE; how <= PUNCH; how++) {
		struct fix_call *k;
		struct log_scene s = cut_journaled(how, &k);

		scene_power_cut(&s);
		check_cut(&s, how, false);
		(void)fix_call_end(k, NULL);
		scene_end(&s);
	}
}

/* Metad has cut, and the file is written behind that. */
static struct log_scene cut_done(enum cut how)
{
	struct fix_call *k;
	struct log_scene s = cut_journaled(how, &k);

	d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_write(s.m, s.f[0], 3 * SCENE_LEN, SCENE_LEN, 5), 0);
	wait_until(mini_metad_executed(s.m->d->f.m, WIRE_OP_META_CUT) > 0);
	return s;
}

static void test_power_is_lost_behind_the_cut(void **state)
{
	(void)state;
	for (enum cut how = TRUNCATE; how <= PUNCH; how++) {
		struct log_scene s = cut_done(how);

		scene_power_cut(&s);
		check_cut(&s, how, false);
		scene_end(&s);
	}
}

static void test_power_is_lost_when_the_next_journal_is_there(void **state)
{
	(void)state;
	for (enum cut how = TRUNCATE; how <= PUNCH; how++) {
		struct log_scene s = cut_done(how);

		scene_page(&s, 3);
		scene_power_cut(&s);
		check_cut(&s, how, true);
		scene_end(&s);
	}
}

static void test_the_client_dies_behind_the_cut(void **state)
{
	(void)state;
	for (enum cut how = TRUNCATE; how <= PUNCH; how++) {
		struct log_scene s = cut_done(how);

		lm_remount(s.m);
		scene_open(&s);
		assert_int_equal(lm_count(s.m, recovered), 2);
		check_cut(&s, how, true);
		scene_end(&s);
	}
}

static void test_the_client_dies_between_journal_and_cut(void **state)
{
	(void)state;
	for (enum cut how = TRUNCATE; how <= PUNCH; how++) {
		struct fix_call *k;
		struct log_scene s = cut_journaled(how, &k);

		lm_kill(s.m);
		d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
		assert_int_equal(lm_start(s.m), 0);
		scene_open(&s);
		check_cut(&s, how, false);
		(void)fix_call_end(k, NULL);
		scene_end(&s);
	}
}

/* ---- journals that are too old ---- */

/* The journal has the file's content of when it was a log file. */
static struct log_scene moved_out(void)
{
	struct log_scene s = scene_begun();
	uint64_t ino = core_file_ino(s.f[0]);

	assert_int_equal(op_rename(&s.m->d->f, s.m->dir, "f0", ROOT_INO, "f0",
				   0), 0);
	wait_until(!lm_has_log(s.m, ino));
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 7), 0);
	assert_int_equal(d_fsync(s.m->d, s.f[0]), 0);
	return s;
}

static void test_a_log_that_is_gone_is_not_done_again(void **state)
{
	struct log_scene s = moved_out();

	(void)state;
	lm_power_cut(s.m);
	assert_int_equal(lm_start(s.m), 0);
	s.f[0] = lm_open(s.m, ROOT_INO, "f0");
	s.f[1] = lm_open(s.m, s.m->dir, "f1");
	s.g = lm_open(s.m, ROOT_INO, "g");
	assert_int_equal(lm_count(s.m, redone), 1); /* the other */
	lm_check(s.m, s.f[0], 0, SCENE_LEN, 7);
	scene_end(&s);
}

static void test_another_log_of_the_file_is_not_done_again(void **state)
{
	struct log_scene s = moved_out();
	struct fix_call *k;

	(void)state;
	assert_int_equal(op_rename(&s.m->d->f, ROOT_INO, "f0", s.m->dir, "f0",
				   0), 0);
	assert_int_equal(lm_write(s.m, s.f[0], SCENE_LEN, SCENE_LEN, 8), 0);
	assert_true(lm_has_log(s.m, core_file_ino(s.f[0])));
	/* The slot of this log gets nowhere. */
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	k = scene_page_start(&s, 2);
	wait_until(d_held(s.m->d) > 0);
	scene_power_cut(&s);
	assert_int_equal(lm_count(s.m, went_back), 2);
	assert_int_equal(lm_count(s.m, redone), 1);
	lm_check(s.m, s.f[0], 0, SCENE_LEN, 7);
	lm_check_zeros(s.m, s.f[0], SCENE_LEN, SCENE_LEN);
	(void)fix_call_end(k, NULL);
	scene_end(&s);
}

/* A round goes without: nothing of it is in the blocks as long as what the
 * journal has of before could be done again. */
static void give_up(bool durable)
{
	struct log_scene s = scene_begun();
	uint64_t was = d_executed(s.m->d, WIRE_OP_BLK_WRITE);
	struct fix_call *k;

	d_hold_replies(s.m->d, WIRE_OP_BLK_WRITE, true);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	scene_write(&s, 200);
	k = scene_page_start(&s, 2);
	wait_until(d_executed(s.m->d, WIRE_OP_BLK_WRITE) == was + 1);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, 0, 0);
	mini_metad_hold_durable(s.m->d->f.m, true);
	d_hold_replies(s.m->d, WIRE_OP_BLK_WRITE, false);
	wait_until(lm_count(s.m, journal_failed) == 1);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(d_executed(s.m->d, WIRE_OP_BLK_WRITE), was + 1);
	if (durable) {
		mini_metad_hold_durable(s.m->d->f.m, false);
		assert_int_equal(fix_call_end(k, NULL), 0);
	}
	lm_power_cut(s.m);
	mini_metad_hold_durable(s.m->d->f.m, false);
	assert_int_equal(lm_start(s.m), 0);
	scene_open(&s);
	assert_int_equal(lm_count(s.m, redone), durable ? 0 : 2);
	scene_check(&s, durable ? 200 : 100);
	lm_check(s.m, s.g, 0, SCENE_LEN, durable ? 2 : 1);
	if (!durable)
		(void)fix_call_end(k, NULL);
	scene_end(&s);
}

static void test_a_journal_that_was_given_up_is_not_done_again(void **state)
{
	(void)state;
	give_up(true);
}

static void test_nothing_goes_before_the_journal_is_given_up(void **state)
{
	(void)state;
	give_up(false);
}

/* ---- its end ---- */

static bool is_gone(struct log_scene *s, uint64_t ino)
{
	struct meta_attr a;

	return !lm_has_log(s->m, ino) &&
	       mini_metad_getattr(s->m->d->f.m, ino, &a) == -ENOENT;
}

static void test_an_unmount_leaves_no_journal(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t ino = scene_log(s.m, jour.ino);

	(void)state;
	assert_true(lm_has_log(s.m, ino));
	scene_write(&s, 200);
	d_close(s.m->d, s.f[0]);
	d_close(s.m->d, s.f[1]);
	d_close(s.m->d, s.g);
	assert_int_equal(core_stop(s.m->d->f.c, WAIT_MS), 0);
	wait_until(is_gone(&s, ino));
	lm_stop(s.m);
}

static void test_the_next_mount_leaves_no_journal(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t ino = scene_log(s.m, jour.ino);

	(void)state;
	scene_write(&s, 200);
	lm_kill(s.m);
	assert_true(lm_has_log(s.m, ino));
	assert_int_equal(lm_start(s.m), 0);
	/* The peers have more than it. */
	assert_int_equal(lm_count(s.m, redone), 0);
	wait_until(is_gone(&s, ino));
	scene_open(&s);
	scene_check(&s, 200);
	scene_end(&s);
}

static void *start_thread(void *arg)
{
	struct log_scene *s = arg;

	return (void *)(intptr_t)core_start(s->m->d->f.c, WAIT_MS);
}

/* What a journal has of both logs, from seed 200 on, is nowhere else. Returns
 * its inode. */
static uint64_t power_lost_behind_journal(struct log_scene *s)
{
	struct fix_call *k;
	uint64_t ino;

	d_hold(s->m->d, WIRE_OP_BLK_WRITE, true);
	scene_write(s, 200);
	k = scene_page_start(s, 2);
	lm_hold_behind_journal(s->m);
	ino = scene_log(s->m, jour.ino);
	lm_power_cut(s->m);
	(void)fix_call_end(k, NULL);
	return ino;
}

static void test_it_is_done_again_twice(void **state)
{
	struct log_scene s = scene_begun();
	pthread_t t;
	void *err;

	(void)state;
	(void)power_lost_behind_journal(&s);
	/* The next dies in the middle of its recovery. */
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	s.m->d->f.c = dfix_core_new(s.m->d);
	assert_int_equal(pthread_create(&t, NULL, start_thread, &s), 0);
	wait_until(d_held(s.m->d) > 0);
	mini_blockd_hold(s.m->d->b[1], WIRE_OP_BLK_WRITE, false);
	mini_metad_fence(s.m->d->f.m);
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
	pthread_join(t, &err);
	assert_int_not_equal((intptr_t)err, 0);
	scene_power_cut(&s);
	assert_int_equal(lm_count(s.m, redone), 2);
	scene_check(&s, 200);
	scene_end(&s);
}

/* Logs that peers have are recovered one after the other: the first one is in
 * the blocks, the other one cannot be put there, and the power goes with what
 * its peers had. */
static void cut_between_recoveries(struct log_scene *s)
{
	uint64_t drops;
	pthread_t t;
	void *err;

	scene_write(s, 200);
	lm_kill(s->m);
	drops = mini_metad_executed(s->m->d->f.m, WIRE_OP_META_LOG_DROP);
	mini_metad_hold_replies(s->m->d->f.m, WIRE_OP_META_LOG_DROP, true);
	s->m->d->f.c = dfix_core_new(s->m->d);
	assert_int_equal(pthread_create(&t, NULL, start_thread, s), 0);
	wait_until(mini_metad_executed(s->m->d->f.m, WIRE_OP_META_LOG_DROP) >
		   drops);
	d_fail(s->m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	mini_metad_hold_replies(s->m->d->f.m, WIRE_OP_META_LOG_DROP, false);
	pthread_join(t, &err);
	assert_int_equal((intptr_t)err, 0);
	assert_int_equal(lm_count(s->m, lost), 1);
	d_fail(s->m->d, WIRE_OP_BLK_WRITE, 0, 0);
	scene_power_cut(s);
	assert_int_equal(lm_count(s->m, redone), 1);
	scene_check(s, 200);
	scene_end(s);
}

static void test_power_is_lost_between_two_recoveries(void **state)
{
	struct log_scene s = scene_begun();

	(void)state;
	cut_between_recoveries(&s);
}

static void test_the_same_with_logs_that_no_journal_had(void **state)
{
	struct log_scene s = { .m = lm_new(NULL, "destage=interval") };

	(void)state;
	s.f[0] = lm_create(s.m, "f0");
	s.f[1] = lm_create(s.m, "f1");
	d_close(s.m->d, d_create(s.m->d, "g"));
	assert_int_equal(d_sync(s.m->d), 0);
	cut_between_recoveries(&s);
}

/* Not all power was lost: the log of "f0", on the first three peers, is newer,
 * so that of "f1", on the others, is lost. @away: of those one is only heard of
 * when the first log has long been in the blocks. @other: which the blocks do
 * not follow in order. */
static void one_log_is_lost(bool away, bool other)
{
	const struct dfix_options six = { .logd_count = 6 };
	struct lmount *m = lm_new(&six, other ? "destage=close" :
						"destage=interval");
	const char ordered[] = "region=64K destage=interval";
	struct core_file *f[2];
	uint8_t b[SCENE_LEN];

	for (uint32_t k = 0; k < 2; k++) {
		char name[] = { 'f', (char)('0' + k), 0 };

		for (uint32_t i = 0; i < 6; i++)
			lm_tell(m, i, i / 3 == k);
		f[k] = lm_create(m, name);
		assert_int_equal(lm_write(m, f[k], 0, SCENE_LEN, k), 0);
		wait_until(lm_have(m, core_file_ino(f[k]), 1) == 3);
		assert_int_equal(lm_field(m, f[k], ordered), k || !other);
		assert_int_equal(op_setxattr(&m->d->f, m->dir, META_XATTR_LOG,
					     ordered, strlen(ordered), 0), 0);
	}
	lm_kill(m);
	for (uint32_t i = 3; i < (away ? 5 : 6); i++)
		mini_logd_restart(m->d->l[i]);
	if (away)
		mini_logd_down(m->d->l[5]);
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, went_back), 0);
	assert_int_equal(lm_count(m, lost), 1);
	f[0] = lm_open(m, m->dir, "f0");
	f[1] = lm_open(m, m->dir, "f1");
	lm_check(m, f[0], 0, SCENE_LEN, 0);
	assert_int_equal(d_read(m->d, f[1], 0, b, sizeof(b)), -EIO);
	d_close(m->d, f[0]);
	d_close(m->d, f[1]);
	if (away)
		mini_logd_up(m->d->l[5], true);
	/* Not in the next mount either, which finds no newer log. */
	lm_remount(m);
	assert_int_equal(lm_count(m, recovered), 0);
	assert_int_equal(lm_count(m, went_back), 0);
	assert_int_equal(lm_count(m, lost), 1);
	f[1] = lm_open(m, m->dir, "f1");
	assert_int_equal(d_read(m->d, f[1], 0, b, sizeof(b)), -EIO);
	d_close(m->d, f[1]);
	lm_free(m);
}

static void test_a_log_does_not_go_back_alone(void **state)
{
	(void)state;
	one_log_is_lost(false, false);
	one_log_is_lost(false, true);
}

static void test_nor_does_one_that_is_lost_later(void **state)
{
	(void)state;
	one_log_is_lost(true, false);
	one_log_is_lost(true, true);
}

/* What could not be put into the blocks is not forgotten. */
static void test_a_recovery_that_fails_leaves_the_journal(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t ino;

	(void)state;
	ino = power_lost_behind_journal(&s);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_start(s.m), 0);
	assert_int_equal(lm_count(s.m, lost), 2);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, 0, 0);
	lm_remount(s.m);
	scene_open(&s);
	assert_int_equal(lm_count(s.m, redone), 2);
	scene_check(&s, 200);
	wait_until(is_gone(&s, ino));
	scene_end(&s);
}

/* Of the first log one peer is heard of too late, of the other one in time:
 * what the journal has of the first is not written over with what is done. */
static void test_the_journal_is_kept_for_a_log_that_waits(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t raised;
	pthread_t t;
	void *err;

	(void)state;
	(void)power_lost_behind_journal(&s);
	mini_logd_down(s.m->d->l[2]);
	raised = mini_metad_executed(s.m->d->f.m, WIRE_OP_META_LOG_RAISE);
	s.m->d->f.c = dfix_core_new(s.m->d);
	assert_int_equal(pthread_create(&t, NULL, start_thread, &s), 0);
	/* the journal, the first, the second */
	wait_until(mini_metad_executed(s.m->d->f.m, WIRE_OP_META_LOG_RAISE) ==
		   raised + 3);
	mini_logd_up(s.m->d->l[2], true);
	pthread_join(t, &err);
	assert_int_equal((intptr_t)err, 0);
	assert_int_equal(lm_count(s.m, lost), 1);
	assert_int_equal(lm_count(s.m, redone), 1);
	lm_remount(s.m);
	assert_int_equal(lm_count(s.m, lost), 0);
	assert_int_equal(lm_count(s.m, redone), 1);
	scene_open(&s);
	scene_check(&s, 200);
	scene_end(&s);
}

static void test_a_recovery_needs_no_journal(void **state)
{
	struct log_scene s = scene_begun();

	(void)state;
	scene_write(&s, 200); /* in place it needs no room */
	lm_kill(s.m);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_set_free(s.m->d->b[i], 0);
	assert_int_equal(lm_start(s.m), 0);
	assert_int_equal(lm_count(s.m, recovered), 2);
	assert_int_equal(lm_count(s.m, lost), 0);
	scene_open(&s);
	scene_check(&s, 200);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_set_free(s.m->d->b[i], UINT64_MAX);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_power_is_lost_between_journal_and_cut),
		cmocka_unit_test(test_power_is_lost_behind_the_cut),
		cmocka_unit_test(
			test_power_is_lost_when_the_next_journal_is_there),
		cmocka_unit_test(test_the_client_dies_behind_the_cut),
		cmocka_unit_test(test_the_client_dies_between_journal_and_cut),
		cmocka_unit_test(test_a_log_that_is_gone_is_not_done_again),
		cmocka_unit_test(
			test_another_log_of_the_file_is_not_done_again),
		cmocka_unit_test(
			test_a_journal_that_was_given_up_is_not_done_again),
		cmocka_unit_test(
			test_nothing_goes_before_the_journal_is_given_up),
		cmocka_unit_test(test_an_unmount_leaves_no_journal),
		cmocka_unit_test(test_the_next_mount_leaves_no_journal),
		cmocka_unit_test(test_it_is_done_again_twice),
		cmocka_unit_test(test_power_is_lost_between_two_recoveries),
		cmocka_unit_test(test_the_same_with_logs_that_no_journal_had),
		cmocka_unit_test(test_a_log_does_not_go_back_alone),
		cmocka_unit_test(test_nor_does_one_that_is_lost_later),
		cmocka_unit_test(test_a_recovery_that_fails_leaves_the_journal),
		cmocka_unit_test(test_the_journal_is_kept_for_a_log_that_waits),
		cmocka_unit_test(test_a_recovery_needs_no_journal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
