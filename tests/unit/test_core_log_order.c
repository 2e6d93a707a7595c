/* Write-ahead order on disk, under logs whose peers can all lose power at once:
 * nothing that was sent to the blocks after a log write was answered becomes
 * durable before that log write is, in the journal.
 *
 * Method: block daemons in memory are stopped; what they receive shows the
 * order. Then all of it loses power, and the next mount has the log write.
 */
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define NOT_MS 60u

/* A log file with an answered write that the blocks do not have, and an
 * ordinary file with content. */
static struct lmount *begun(struct core_file **f, struct core_file **g)
{
	struct lmount *m = lm_new(NULL, "destage=interval");

	*g = d_create(m->d, "g");
	assert_int_equal(lm_write(m, *g, 0, 4 * LEN, 8), 0);
	assert_int_equal(d_fsync(m->d, *g), 0);
	*f = lm_create(m, "f");
	assert_int_equal(lm_write(m, *f, 0, LEN, 1), 0);
	return m;
}

static bool is_durable(struct lmount *m, struct core_file *f, uint64_t off,
		       uint32_t len, uint64_t seed)
{
	uint8_t want[4 * LEN], got[4 * LEN];

	d_fill(want, len, seed);
	d_peek(m->d, f, off, len, true, got);
	return memcmp(got, want, len) == 0;
}

static void end(struct lmount *m, struct core_file *f, struct core_file *g)
{
	d_close(m->d, f);
	d_close(m->d, g);
	lm_stop(m);
}

/* Power is lost now: the log file has its first write. Opens it anew. */
static struct core_file *cut_has_log_write(struct lmount *m)
{
	struct core_file *f;

	lm_power_cut(m);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	assert_int_equal(lm_count(m, redone), lm_count(m, went_back));
	return f;
}

static void test_a_page_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	uint64_t was = d_received(m->d, WIRE_OP_BLK_WRITE);
	struct fix_call *k;

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	k = d_fsync_start(m->d, g);
	wait_until(d_received(m->d, WIRE_OP_BLK_WRITE) == was + 1);
	pause_ms(NOT_MS);
	/* One frame: the journal's. */
	assert_int_equal(d_received(m->d, WIRE_OP_BLK_WRITE), was + 1);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, true);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	pause_ms(NOT_MS);
	assert_int_equal(d_received(m->d, WIRE_OP_BLK_WRITE), was + 1);
	assert_false(fix_call_wait(k, 0));
	assert_false(is_durable(m, f, 0, LEN, 1));
	assert_false(is_durable(m, g, 0, LEN, 9));
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	lm_check_durable(m, g, 0, LEN, 9);
	f = cut_has_log_write(m);
	g = lm_open(m, ROOT_INO, "g");
	lm_check(m, g, 0, LEN, 9);
	end(m, f, g);
}

/* Not only by fsync: by a write that goes through, too. */
static void test_a_direct_write_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	uint8_t p[4 * LEN], got[4 * LEN];

	(void)state;
	d_fill(p, sizeof(p), 9);
	assert_int_equal(d_write(m->d, g, 0, p, sizeof(p), CORE_WRITE_DIRECT),
			 0);
	d_peek(m->d, g, 0, sizeof(got), false, got);
	assert_memory_equal(got, p, sizeof(p));
	f = cut_has_log_write(m);
	d_close(m->d, f);
	lm_stop(m);
}

/* Writes to the log while a round is under way belong to the next: rounds
 * end. */
static void test_rounds_end_under_a_busy_log(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);

	(void)state;
	for (uint32_t i = 1; i < 100; i++) {
		struct fix_call *k;
		uint64_t seq = lm_field(m, f, w.seq);

		assert_int_equal(lm_write(m, g, 0, LEN, 100 + i), 0);
		k = d_fsync_start(m->d, g);
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i + 1), 0);
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i + 2), 0);
		assert_int_equal(fix_call_end(k, NULL), 0);
		assert_true(lm_field(m, f, journaled_seq) >= seq);
		lm_check_durable(m, g, 0, LEN, 100 + i);
	}
	f = cut_has_log_write(m);
	for (uint32_t i = 1; i < 99; i++)
		lm_check(m, f, i * LEN, LEN, i + 2);
	g = lm_open(m, ROOT_INO, "g");
	lm_check(m, g, 0, LEN, 199);
	end(m, f, g);
}

/* A round wants no other behind it: each is a flush of the disks. */
static void test_rounds_are_as_many_as_are_wanted(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	uint64_t was = lm_count(m, rounds);

	(void)state;
	for (uint32_t i = 1; i <= 20; i++) {
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		assert_int_equal(lm_write(m, g, 0, LEN, 100 + i), 0);
		assert_int_equal(d_fsync(m->d, g), 0);
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i + 1), 0);
		pause_ms(5);
	}
	/* And some with time. */
	assert_in_range(lm_count(m, rounds) - was, 20, 24);
	end(m, f, g);
}

/* A log write is in the journal before names go, or content. Then power is
 * lost, when the log file's blocks have nothing yet. */
static void follows(struct lmount *m, struct core_file *f, struct fix_call *k,
		    uint16_t op, uint64_t was)
{
	wait_until(d_held(m->d) > 0);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(mini_metad_received(m->d->f.m, op), was);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, true);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(mini_metad_received(m->d->f.m, op), was);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	d_hold_replies(m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	wait_until(mini_metad_executed(m->d->f.m, op) == was + 1);
	assert_false(is_durable(m, f, 0, LEN, 1));
	f = cut_has_log_write(m);
	assert_int_equal(lm_count(m, redone), 1);
	d_close(m->d, f);
}

static void test_an_unlink_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct meta_attr a;
	struct lmount *m = begun(&f, &g);
	uint64_t was = mini_metad_received(m->d->f.m, WIRE_OP_META_UNLINK);
	struct fix_call *k = fix_call_new();

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	core_unlink(m->d->f.c, ROOT_INO, "g", false, on_err, k);
	follows(m, f, k, WIRE_OP_META_UNLINK, was);
	assert_int_equal(op_lookup(&m->d->f, ROOT_INO, "g", &a), -ENOENT);
	lm_stop(m);
}

static void test_a_rename_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct meta_attr a;
	struct lmount *m = begun(&f, &g);
	uint64_t was = mini_metad_received(m->d->f.m, WIRE_OP_META_RENAME);
	struct fix_call *k = fix_call_new();
	struct core_rename p = { .parent = ROOT_INO, .name = "g",
				 .newparent = ROOT_INO, .newname = "h" };

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	core_rename(m->d->f.c, &p, on_err, k);
	follows(m, f, k, WIRE_OP_META_RENAME, was);
	assert_int_equal(op_lookup(&m->d->f, ROOT_INO, "g", &a), -ENOENT);
	assert_int_equal(op_lookup(&m->d->f, ROOT_INO, "h", &a), 0);
	lm_stop(m);
}

static void test_a_truncate_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct meta_attr a;
	struct lmount *m = begun(&f, &g);
	uint64_t was = mini_metad_received(m->d->f.m, WIRE_OP_META_CUT);
	struct fix_call *k = fix_call_new();

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	core_truncate(m->d->f.c, core_file_ino(g), 5, false, on_attr, k);
	follows(m, f, k, WIRE_OP_META_CUT, was);
	assert_int_equal(op_lookup(&m->d->f, ROOT_INO, "g", &a), 0);
	assert_int_equal(a.size, 5);
	lm_stop(m);
}

static void test_a_hole_follows_the_log_write_before_it(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	uint64_t was = mini_metad_received(m->d->f.m, WIRE_OP_META_CUT);
	struct fix_call *k = fix_call_new();

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	core_fallocate(m->d->f.c, core_file_ino(g),
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LEN,
		       false, on_err, k);
	follows(m, f, k, WIRE_OP_META_CUT, was);
	g = lm_open(m, ROOT_INO, "g");
	lm_check_zeros(m, g, 0, LEN);
	d_close(m->d, g);
	lm_stop(m);
}

/* A log of peers that do not fail together holds nothing up. */
static void test_other_logs_hold_nothing_up(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f"), *g = d_create(m->d, "g");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	assert_int_equal(d_fsync(m->d, g), 0);
	assert_int_equal(lm_count(m, rounds), 0);
	assert_false(is_durable(m, f, 0, LEN, 1));
	end(m, f, g);
}

static void test_what_is_held_goes_by_itself_with_time(void **state)
{
	const struct dfix_options o = { .logd_count = 3, .flush_age_ms = 200 };
	struct lmount *m = lm_new(&o, "destage=interval");
	struct core_file *f = lm_create(m, "f"), *g = d_create(m->d, "g");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	wait_until(is_durable(m, g, 0, LEN, 9));
	f = cut_has_log_write(m);
	g = lm_open(m, ROOT_INO, "g");
	lm_check(m, g, 0, LEN, 9);
	end(m, f, g);
}

/* The log is given up in the middle of a round. */
static void test_a_round_ends_with_a_log_that_ends(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;
	struct sm_log e;

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	k = d_fsync_start(m->d, g);
	wait_until(d_held(m->d) > 0);
	lm_entry(m, ino, &e);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(mini_logd_fence(m->d->l[i], ino, e.epoch + 1,
						 e.data_epoch), 0);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -EIO);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	lm_free(m);
}

/* A file that becomes a log file while its frames are held: its own log would
 * wait for them, and they for it. */
static void test_held_frames_of_a_file_that_gets_a_log(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);
	struct fix_call *k;

	(void)state;
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(lm_write(m, g, 0, LEN, 9), 0);
	k = d_fsync_start(m->d, g);
	wait_until(d_held(m->d) > 0);
	struct fix_call *r = fix_call_new();
	struct core_rename p = { .parent = ROOT_INO, .name = "g",
				 .newparent = m->dir, .newname = "g" };
	core_rename(m->d->f.c, &p, on_err, r);
	d_hold(m->d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(r, NULL), 0);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_write(m, g, LEN, LEN, 10), 0);
	assert_int_equal(d_fsync(m->d, g), 0);
	lm_remount(m);
	g = lm_open(m, m->dir, "g");
	lm_check(m, g, 0, LEN, 9);
	lm_check(m, g, LEN, LEN, 10);
	d_close(m->d, g);
	lm_stop(m);
}

static void test_sync_of_all_ends(void **state)
{
	struct core_file *f, *g;
	struct lmount *m = begun(&f, &g);

	(void)state;
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(lm_write(m, g, 0, LEN, 9 + i), 0);
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		assert_int_equal(d_sync(m->d), 0);
		assert_true(is_durable(m, f, i * LEN, LEN, i));
		assert_true(is_durable(m, g, 0, LEN, 9 + i));
	}
	end(m, f, g);
}

/* Power is cut for everything, at any time: a page that is there has its log
 * record. */
static void test_a_power_cut_goes_back_in_order(void **state)
{
	(void)state;
	for (uint32_t cut = 0; cut < 8; cut++) {
		const struct dfix_options o = { .logd_count = 3,
						.flush_age_ms = 20 };
		struct lmount *m = lm_new(&o, "destage=interval");
		struct core_file *f = lm_create(m, "f");
		struct core_file *g = d_create(m->d, "g");
		uint64_t ino = core_file_ino(f);
		uint32_t log = 0, page = 0;

		/* The log's record i is always before the page's number i. */
		for (uint32_t i = 1; i < 40 + 11 * cut; i++) {
			assert_int_equal(d_write(m->d, f, 0, &i, sizeof(i), 0),
					 0);
			assert_int_equal(d_write(m->d, g, 0, &i, sizeof(i), 0),
					 0);
			pause_ms(i % 7 == 0);
		}
		lm_power_cut(m);
		assert_int_equal(lm_start(m), 0);
		f = lm_open(m, m->dir, "f");
		g = lm_open(m, ROOT_INO, "g");
		assert_int_equal(core_file_ino(f), ino);
		(void)d_read(m->d, f, 0, &log, sizeof(log));
		(void)d_read(m->d, g, 0, &page, sizeof(page));
		assert_true(log >= page);
		end(m, f, g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_page_follows_the_log_write_before_it),
		cmocka_unit_test(
			test_a_direct_write_follows_the_log_write_before_it),
		cmocka_unit_test(test_rounds_end_under_a_busy_log),
		cmocka_unit_test(test_rounds_are_as_many_as_are_wanted),
		cmocka_unit_test(
			test_an_unlink_follows_the_log_write_before_it),
		cmocka_unit_test(test_a_rename_follows_the_log_write_before_it),
		cmocka_unit_test(
			test_a_truncate_follows_the_log_write_before_it),
		cmocka_unit_test(test_a_hole_follows_the_log_write_before_it),
		cmocka_unit_test(test_other_logs_hold_nothing_up),
		cmocka_unit_test(test_what_is_held_goes_by_itself_with_time),
		cmocka_unit_test(test_a_round_ends_with_a_log_that_ends),
		cmocka_unit_test(test_held_frames_of_a_file_that_gets_a_log),
		cmocka_unit_test(test_sync_of_all_ends),
		cmocka_unit_test(test_a_power_cut_goes_back_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
