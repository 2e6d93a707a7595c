/* The journal of destaging in order: what a round has for the blocks is first
 * made durable there, for all logs at one moment, and done again after power
 * was lost everywhere.
 *
 * Method: block daemons in memory are stopped between the journal and the
 * blocks, or before, or in the middle; then all power goes, and the next mount
 * must find each log file as it was at that one moment. The log daemons have
 * nothing then: what is there came from blocks and journal.
 */
#include "tests/lib/log_scene.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NOT_MS 60u
#define BIG 400000u

/* ---- behind the journal ---- */

/* Those block daemons with a bit in @let take their frames. */
static void cut_behind_journal(uint32_t let)
{
	struct log_scene s = scene_begun();
	struct fix_call *k;
	uint64_t was;

	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	scene_write(&s, 200);
	k = scene_page_start(&s, 2);
	lm_hold_behind_journal(s.m);
	wait_until(d_held(s.m->d) == 2 * SCENE_BLOCKS + 1);
	was = d_executed(s.m->d, WIRE_OP_BLK_WRITE);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		if (let >> i & 1)
			mini_blockd_hold(s.m->d->b[i], WIRE_OP_BLK_WRITE,
					 false);
	wait_until(d_executed(s.m->d, WIRE_OP_BLK_WRITE) > was || !let);
	assert_true(d_held(s.m->d) > 0);
	/* These were never anywhere else. */
	scene_write(&s, 300);
	assert_int_equal(lm_write(s.m, s.f[0], SCENE_BLOCKS * (uint64_t)DBLOCK,
				  SCENE_LEN, 9), 0);
	scene_power_cut(&s);
	assert_int_equal(lm_count(s.m, went_back), 2);
	assert_int_equal(lm_count(s.m, redone), 2);
	scene_check(&s, 200);
	assert_true(fix_call_end(k, NULL) == 0 || let != 7);
	scene_end(&s);
}

static void test_nothing_is_there_but_the_journal(void **state)
{
	(void)state;
	cut_behind_journal(0);
}

static void test_half_of_it_is_in_place(void **state)
{
	(void)state;
	cut_behind_journal(1);
	cut_behind_journal(2);
	cut_behind_journal(4);
	cut_behind_journal(5);
}

/* ---- before the journal ---- */

static void test_nothing_goes_before_the_journal_is_there(void **state)
{
	struct log_scene s = scene_begun();
	struct fix_call *k;
	uint64_t was;

	(void)state;
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	was = d_received(s.m->d, WIRE_OP_BLK_WRITE);
	scene_write(&s, 200);
	k = scene_page_start(&s, 2);
	wait_until(d_held(s.m->d) > 0);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(d_received(s.m->d, WIRE_OP_BLK_WRITE), was + 1);
	scene_power_cut(&s);
	/* Once more what the other slot has. */
	assert_int_equal(lm_count(s.m, redone), 2);
	scene_check(&s, 100);
	lm_check(s.m, s.g, 0, SCENE_LEN, 1);
	(void)fix_call_end(k, NULL);
	scene_end(&s);
}

/* A journal of several blocks; the daemons of @keep have theirs. */
static void cut_in_journal(uint32_t keep)
{
	const struct dfix_options o = { .logd_count = 3,
					.logd_bytes = 16u << 20 };
	struct log_scene s = scene_begun_with(&o);
	struct fix_call *k;

	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	scene_write(&s, 200);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(lm_write(s.m, s.f[0], SCENE_LEN, BIG, i), 0);
	k = scene_page_start(&s, 2);
	wait_until(d_held(s.m->d) >= 4);
	pause_ms(NOT_MS);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		if (keep >> i & 1)
			mini_blockd_hold(s.m->d->b[i], WIRE_OP_BLK_WRITE,
					 false);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_true(d_held(s.m->d) > 0);
	lm_power_cut_keep(s.m, keep);
	assert_int_equal(lm_start(s.m), 0);
	scene_open(&s);
	scene_check(&s, 100);
	lm_check_zeros(s.m, s.f[0], SCENE_LEN, BIG);
	(void)fix_call_end(k, NULL);
	scene_end(&s);
}

static void test_a_torn_journal_is_none(void **state)
{
	(void)state;
	cut_in_journal(1);
	cut_in_journal(2);
	cut_in_journal(4);
	cut_in_journal(3);
	cut_in_journal(5);
	cut_in_journal(6);
}

/* ---- frames that come back ---- */

#define MANY 150u

/* So many that they are not synced one by one. */
static void write_many(struct log_scene *s, uint64_t seed)
{
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(lm_write(s->m, s->f[0], i * (uint64_t)DBLOCK,
					  20, seed + i), 0);
}

static void check_many(struct log_scene *s, uint64_t seed)
{
	for (uint32_t i = 0; i < MANY; i++)
		lm_check(s->m, s->f[0], i * (uint64_t)DBLOCK, 20, seed + i);
}

/* Acknowledged in place, lost, and newer content is there, in one frame of a
 * journal or (@big) in several: up to where the new round's journal is on its
 * way. Returns the round's number before. */
static uint64_t come_back(struct log_scene *s, bool big)
{
	uint64_t was, round;

	d_hold(s->m->d, WIRE_OP_BLK_SYNC, true);
	write_many(s, 1000);
	scene_page(s, 2);
	wait_until(d_held(s->m->d) == DFIX_BLOCKDS);
	round = scene_log(s->m, jour.round);
	write_many(s, 2000);
	for (uint32_t i = 0; i < 8 && big; i++)
		assert_int_equal(lm_write(s->m, s->f[1], SCENE_LEN, BIG, i),
				 0);
	was = d_received(s->m->d, WIRE_OP_BLK_WRITE);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_down(s->m->d->b[i]);
	d_hold(s->m->d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_up(s->m->d->b[i], true);
	wait_until(d_held(s->m->d) >= (big ? 4 : 1));
	pause_ms(NOT_MS);
	/* The journal's alone. */
	assert_true(big ||
		    d_received(s->m->d, WIRE_OP_BLK_WRITE) == was + 1);
	return round;
}

static void test_a_round_begins_again_with_what_came_back(void **state)
{
	struct log_scene s = scene_begun();
	uint64_t round = come_back(&s, false);

	(void)state;
	lm_hold_behind_journal(s.m);
	wait_until(d_held(s.m->d) == MANY);
	assert_int_equal(scene_log(s.m, jour.round), round + 1);
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
	scene_page(&s, 3);
	scene_wait_round(&s);
	check_many(&s, 2000);
	scene_power_cut(&s);
	check_many(&s, 2000);
	lm_check(s.m, s.g, 0, SCENE_LEN, 3);
	scene_end(&s);
}

static void test_power_is_lost_when_a_round_begins_again(void **state)
{
	struct log_scene s = scene_begun();

	(void)state;
	(void)come_back(&s, false);
	scene_power_cut(&s);
	check_many(&s, 1000);
	lm_check(s.m, s.g, 0, SCENE_LEN, 2);
	scene_end(&s);
}

/* The first one's journal is still there. */
static void test_power_is_lost_in_the_journal_of_that_round(
	void **state)
{
	const struct dfix_options o = { .logd_count = 3,
					.logd_bytes = 16u << 20 };

	(void)state;
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++) {
		struct log_scene s = scene_begun_with(&o);

		(void)come_back(&s, true);
		mini_blockd_hold(s.m->d->b[i], WIRE_OP_BLK_WRITE, false);
		pause_ms(NOT_MS);
		assert_true(d_held(s.m->d) > 0);
		lm_power_cut_keep(s.m, 1u << i);
		assert_int_equal(lm_start(s.m), 0);
		scene_open(&s);
		check_many(&s, 1000);
		scene_end(&s);
	}
}

static void test_power_is_lost_in_a_round_begun_again(void **state)
{
	struct log_scene s = scene_begun();

	(void)state;
	(void)come_back(&s, false);
	lm_hold_behind_journal(s.m);
	wait_until(d_held(s.m->d) == MANY);
	mini_blockd_hold(s.m->d->b[0], WIRE_OP_BLK_WRITE, false);
	scene_power_cut(&s);
	check_many(&s, 2000);
	scene_end(&s);
}

/* ---- no journal ---- */

/* It goes on without, and tries again later. */
static void goes_on_without(struct log_scene *s)
{
	struct meta_attr a;
	uint64_t ino = 0;

	assert_int_equal(lm_count(s->m, journal_failed), 1);
	assert_int_equal(lm_count(s->m, journals), 0);
	lm_check_durable(s->m, s->f[0], 0, SCENE_LEN, 1);
	assert_int_equal(lm_write(s->m, s->f[0], SCENE_LEN, SCENE_LEN, 2), 0);
	assert_int_equal(op_unlink(&s->m->d->f, ROOT_INO, "h", false), 0);
	if (core_now_ms() < scene_log(s->m, jour.retry_ms))
		assert_int_equal(lm_count(s->m, journals), 0);
	lm_check_durable(s->m, s->f[0], SCENE_LEN, SCENE_LEN, 2);
	ino = scene_log(s->m, jour.ino);
	wait_until(mini_metad_getattr(s->m->d->f.m, ino, &a) == -ENOENT);
	assert_false(lm_has_log(s->m, ino));
	wait_until(core_now_ms() >= scene_log(s->m, jour.retry_ms));
	assert_int_equal(lm_write(s->m, s->f[0], 2 * SCENE_LEN, SCENE_LEN, 3),
			 0);
	scene_page(s, 3);
	assert_int_equal(lm_count(s->m, journals), 1);
	assert_int_equal(lm_count(s->m, journal_failed), 1);
	scene_power_cut(s);
	for (uint32_t i = 0; i < 3; i++)
		lm_check(s->m, s->f[0], i * SCENE_LEN, SCENE_LEN, 1 + i);
	scene_end(s);
}

static struct log_scene without_with(const struct dfix_options *o)
{
	struct log_scene s = { .m = lm_new(o, "destage=interval") };

	s.f[0] = lm_create(s.m, "f0");
	s.f[1] = lm_create(s.m, "f1");
	s.g = d_create(s.m->d, "g");
	d_close(s.m->d, d_create(s.m->d, "h"));
	assert_int_equal(lm_write(s.m, s.f[0], 0, SCENE_LEN, 1), 0);
	return s;
}

static struct log_scene without(void)
{
	return without_with(NULL);
}

static void test_metad_refuses_the_journal(void **state)
{
	struct log_scene s = without();

	(void)state;
	mini_metad_fail(s.m->d->f.m, WIRE_OP_META_LOG_SET, -ENOSPC, 1);
	scene_page(&s, 2);
	goes_on_without(&s);
}

static void test_the_journal_cannot_be_written(void **state)
{
	struct log_scene s = without();
	uint64_t was = d_executed(s.m->d, WIRE_OP_BLK_WRITE);
	struct fix_call *k;

	(void)state;
	d_hold_replies(s.m->d, WIRE_OP_BLK_WRITE, true);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	k = scene_page_start(&s, 2);
	wait_until(d_executed(s.m->d, WIRE_OP_BLK_WRITE) == was + 1);
	d_fail(s.m->d, WIRE_OP_BLK_WRITE, 0, 0);
	d_hold_replies(s.m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	goes_on_without(&s);
}

/* Nothing overtakes it, and those who wait are told: also who comes later. */
static void test_a_soft_mount_does_not_wait_for_the_journal(void **state)
{
	const struct dfix_options soft = { .logd_count = 3,
					   .timeout_ms = 300 };
	struct log_scene s = without_with(&soft);
	uint64_t was = d_received(s.m->d, WIRE_OP_BLK_WRITE);
	struct fix_call *k;

	(void)state;
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_SET, true);
	k = scene_page_start(&s, 2);
	assert_int_equal(op_unlink(&s.m->d->f, ROOT_INO, "h", false),
			 -ETIMEDOUT);
	assert_int_equal(op_rename(&s.m->d->f, ROOT_INO, "h", ROOT_INO, "i", 0),
			 -ETIMEDOUT);
	assert_int_equal(fix_call_end(k, NULL), -ETIMEDOUT);
	assert_int_equal(d_received(s.m->d, WIRE_OP_BLK_WRITE), was);
	/* Its page is given up. */
	assert_int_equal(lm_write(s.m, s.g, 0, SCENE_LEN, 3), -EIO);
	assert_int_equal(d_truncate(s.m->d, s.g, 0), -ETIMEDOUT);
	/* A log that is there needs no metad, one that begins does. */
	assert_int_equal(lm_write(s.m, s.f[0], SCENE_LEN, SCENE_LEN, 4), 0);
	assert_int_equal(lm_write(s.m, s.f[1], 0, SCENE_LEN, 4), -ETIMEDOUT);
	mini_metad_hold_replies(s.m->d->f.m, WIRE_OP_META_LOG_SET, false);
	assert_int_equal(lm_write(s.m, s.f[1], 0, SCENE_LEN, 4), 0);
	assert_int_equal(op_unlink(&s.m->d->f, ROOT_INO, "h", false), 0);
	assert_int_equal(d_truncate(s.m->d, s.g, 0), 0);
	scene_page(&s, 5);
	scene_wait_round(&s);
	assert_true(lm_count(s.m, journals) > 0);
	scene_power_cut(&s);
	lm_check(s.m, s.f[0], 0, SCENE_LEN, 1);
	lm_check(s.m, s.f[0], SCENE_LEN, SCENE_LEN, 4);
	lm_check(s.m, s.f[1], 0, SCENE_LEN, 4);
	lm_check(s.m, s.g, 0, SCENE_LEN, 5);
	scene_end(&s);
}

/* ---- no room ---- */

static void test_a_full_buffer_and_a_journal_end(
	void **state)
{
	const struct dfix_options o = { .logd_count = 3,
					.wb_bytes_max = 1u << 20,
					.logd_bytes = 16u << 20 };
	struct log_scene s = { .m = lm_new(&o, "destage=interval") };
	struct fix_call *k[64];

	(void)state;
	s.f[0] = lm_create(s.m, "f0");
	s.f[1] = lm_create(s.m, "f1");
	s.g = d_create(s.m->d, "g");
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < 64; i++)
		k[i] = lm_write_start(s.m, i % 2 ? s.g : s.f[i % 4 / 2],
				      i * 50000ull, 50000, i);
	wait_until(d_held(s.m->d) > 0);
	pause_ms(NOT_MS);
	d_hold(s.m->d, WIRE_OP_BLK_WRITE, false);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(fix_call_end(k[i], NULL), 0);
	assert_true(lm_count(s.m, journals) > 0);
	scene_page(&s, 99);
	scene_power_cut(&s);
	for (uint32_t i = 1; i < 64; i++)
		lm_check(s.m, i % 2 ? s.g : s.f[i % 4 / 2], i * 50000ull,
			 50000, i);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_there_but_the_journal),
		cmocka_unit_test(test_half_of_it_is_in_place),
		cmocka_unit_test(test_nothing_goes_before_the_journal_is_there),
		cmocka_unit_test(test_a_torn_journal_is_none),
		cmocka_unit_test(test_a_round_begins_again_with_what_came_back),
		cmocka_unit_test(test_power_is_lost_when_a_round_begins_again),
		cmocka_unit_test(
			test_power_is_lost_in_the_journal_of_that_round),
		cmocka_unit_test(test_power_is_lost_in_a_round_begun_again),
		cmocka_unit_test(test_metad_refuses_the_journal),
		cmocka_unit_test(test_the_journal_cannot_be_written),
		cmocka_unit_test(
			test_a_soft_mount_does_not_wait_for_the_journal),
		cmocka_unit_test(
			test_a_full_buffer_and_a_journal_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
