/* Writes of log files: answered when a majority of the peers has them, and
 * never otherwise; what peers, metad and the daemons do meanwhile. Whatever
 * was answered is there after the client was killed.
 *
 * Method: log daemons in memory (tests/lib/mini_logd.h) are stopped, or fail,
 * at the moment that matters.
 */
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define REGION ((uint64_t)64 << 10) /* lm_new()'s */
/* Shorter than anything that the log client waits for. */
#define SOON_MS 700u
/* Long enough for what must not happen to happen. */
#define NOT_MS 60u

/* ---- a majority ---- */

static void test_a_write_is_answered_when_a_majority_has_it(void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;

	(void)state;
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, 0, LEN, 1);
	wait_until(mini_logd_held(m->d->l[0]) == 1 &&
		   mini_logd_held(m->d->l[1]) == 1);
	assert_true(lm_has_log(m, ino));
	assert_false(fix_call_wait(k, NOT_MS));
	mini_logd_hold(m->d->l[0], WIRE_OP_LOG_WRITE, false);
	wait_until(lm_have(m, ino, 1) == 1);
	assert_false(fix_call_wait(k, NOT_MS));
	mini_logd_hold(m->d->l[1], WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_have(m, ino, 1), 2);
	lm_remount(m);
	assert_int_equal(lm_count(m, recovered), 1);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	assert_int_equal(d_size(m->d, f), LEN);
	d_close(m->d, f);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	lm_stop(m);
}

static void test_nothing_is_lent_before_metad_has_the_log_for_good(
	void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(op_fsync_dir(&m->d->f), 0);
	mini_metad_hold_durable(m->d->f.m, true);
	k = lm_write_start(m, f, 0, LEN, 1);
	wait_until(mini_metad_executed(m->d->f.m, WIRE_OP_META_LOG_SET) == 1);
	assert_false(fix_call_wait(k, NOT_MS));
	assert_int_equal(lm_lent_bytes(m), 0);
	mini_metad_hold_durable(m->d->f.m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_close(m->d, f);
	lm_stop(m);
}

/* A write that needs it finds it there. */
static void test_the_next_region_is_lent_ahead_of_need(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 20000, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	assert_int_equal(lm_lent_bytes(m), 3 * REGION);
	/* Past the half of the first, which has still room. */
	assert_int_equal(lm_write(m, f, 20000, 20000, 2), 0);
	wait_until(lm_lent_bytes(m) == 6 * REGION);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_fsync_of_a_log_file_needs_no_block_daemon(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	d_hold(m->d, 0, true);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	assert_int_equal(d_received(m->d, WIRE_OP_BLK_WRITE), 0);
	d_hold(m->d, 0, false);
	d_close(m->d, f);
	lm_stop(m);
}

/* fsync stands for writes that are not answered yet. */
static void test_fsync_waits_for_the_majority(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k, *s;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	s = d_fsync_start(m->d, f);
	assert_false(fix_call_wait(s, NOT_MS));
	assert_false(fix_call_wait(k, 0));
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(s, NULL), 0);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_one_peer_that_hangs_holds_nobody_up(void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f;
	struct fix_call *k;

	(void)state;
	mini_logd_hold(m->d->l[2], 0, true);
	f = lm_create(m, "f");
	k = lm_write_start(m, f, 0, LEN, 1);
	assert_true(fix_call_wait(k, SOON_MS));
	assert_int_equal(fix_call_end(k, NULL), 0);
	for (uint32_t i = 1; i < 50; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i + 1), 0);
	assert_int_equal(lm_have(m, core_file_ino(f), 50), 2);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 50; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	mini_logd_hold(m->d->l[2], 0, false);
	d_close(m->d, f);
	lm_stop(m);
}

/* ---- no majority ---- */

/* @seed's bytes were answered: by the blocks, durably, and metad knows of no
 * log that could be put over them. */
static void check_in_blocks(struct lmount *m, struct core_file *f,
			    uint64_t off, uint64_t seed)
{
	lm_check_durable(m, f, off, LEN, seed);
	assert_false(lm_has_log(m, core_file_ino(f)));
}

static void test_a_majority_that_hangs_is_given_up_for_the_blocks(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	assert_false(fix_call_wait(k, LOG_STALL_MS / 2));
	assert_false(lm_have(m, core_file_ino(f), 2) > 1);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_in_blocks(m, f, 0, 1);
	check_in_blocks(m, f, LEN, 2);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	/* The next log begins some time later, where this one ended. */
	pause_ms(LOG_FALLBACK_MS + 1);
	assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 3), 0);
	assert_true(lm_has_log(m, core_file_ino(f)));
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 3; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_majority_that_is_gone_is_given_up_for_the_blocks(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	for (uint32_t i = 1; i < 3; i++) {
		mini_logd_down(m->d->l[i]);
		lm_tell(m, i, false);
	}
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), 0);
	check_in_blocks(m, f, 0, 1);
	check_in_blocks(m, f, LEN, 2);
	/* As long as there are none: like an ordinary file. */
	assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 3), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	check_in_blocks(m, f, 2 * LEN, 3);
	for (uint32_t i = 1; i < 3; i++) {
		mini_logd_up(m->d->l[i], true);
		lm_tell(m, i, true);
	}
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 3; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	assert_int_equal(lm_write(m, f, 3 * LEN, LEN, 4), 0);
	assert_true(lm_has_log(m, core_file_ino(f)));
	d_close(m->d, f);
	lm_stop(m);
}

/* It is not answered before metad knows for good that the log is no more: a
 * recovery would put the log's older records over it. */
static void test_the_blocks_do_not_answer_before_the_log_is_dropped(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	mini_metad_hold_replies(m->d->f.m, WIRE_OP_META_LOG_DROP, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	wait_until(mini_metad_executed(m->d->f.m, WIRE_OP_META_LOG_DROP) == 1);
	assert_false(fix_call_wait(k, NOT_MS));
	mini_metad_hold_replies(m->d->f.m, 0, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_in_blocks(m, f, LEN, 2);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	d_close(m->d, f);
	lm_stop(m);
}

/* Once it is given up no more is put into it: writes that keep coming would
 * keep it from its end. */
static void test_a_log_that_is_given_up_takes_no_more_writes(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k[2];

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	k[0] = lm_write_start(m, f, LEN, LEN, 2);
	wait_until(lm_field(m, f, giving_up) && d_held(m->d) > 0);
	k[1] = lm_write_start(m, f, 2 * LEN, LEN, 3);
	/* The peer that answers would have it at once. */
	assert_false(fix_call_wait(k[1], NOT_MS));
	assert_false(fix_call_wait(k[0], 0));
	assert_int_equal(mini_logd_seq(m->d->l[0], ino), 2);
	d_hold(m->d, 0, false);
	assert_int_equal(fix_call_end(k[0], NULL), 0);
	assert_int_equal(fix_call_end(k[1], NULL), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	for (uint32_t i = 0; i < 3; i++)
		check_in_blocks(m, f, i * LEN, i + 1);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_truncate_without_a_majority_is_made_in_the_blocks(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 4 * LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, 4 * LEN, LEN, 2);
	assert_int_equal(d_truncate(m->d, f, 2 * LEN), 0);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(d_truncate(m->d, f, 3 * LEN), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 3 * LEN);
	lm_check(m, f, 0, 2 * LEN, 1);
	lm_check_zeros(m, f, 2 * LEN, LEN);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_file_leaves_while_its_majority_hangs(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f"), *g = lm_create(m, "g");
	struct fix_call *k, *l;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_write(m, g, 0, LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	l = lm_write_start(m, g, LEN, LEN, 2);
	assert_int_equal(op_rename(&m->d->f, m->dir, "f", ROOT_INO, "f", 0),
			 0);
	assert_int_equal(op_unlink(&m->d->f, m->dir, "g", false), 0);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(l, NULL), 0);
	lm_check(m, g, LEN, LEN, 2);
	d_close(m->d, g);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_check_durable(m, f, LEN, LEN, 2);
	d_close(m->d, f);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	lm_stop(m);
}

/* A soft mount does not wait for ever, for peers and blocks that hang. */
static void test_a_soft_mount_tells_that_nobody_answers(void **state)
{
	const struct dfix_options soft = { .logd_count = 3,
					   .timeout_ms = 500 };
	struct lmount *m = lm_new(&soft, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	d_hold(m->d, 0, true);
	assert_int_not_equal(lm_write(m, f, LEN, LEN, 2), 0);
	lm_kill(m);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	d_hold(m->d, 0, false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* Metad refuses: the log's older records would be put over what is in the
 * blocks. */
static void test_a_log_that_is_not_dropped_is_not_forgotten(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	mini_metad_fail(m->d->f.m, WIRE_OP_META_LOG_DROP, -EIO, 1);
	assert_int_equal(lm_write(m, f, 0, LEN, 2), -EIO);
	assert_int_equal(lm_write(m, f, 0, LEN, 3), -EIO);
	lm_kill(m);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* Neither peers nor blocks: an error, not a wait without end. */
static void test_without_peers_and_blocks_a_write_fails(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, true);
	d_fail(m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -ENOSPC);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -ENOSPC);
	lm_check(m, f, 0, LEN, 1);
	d_fail(m->d, 0, 0, 0);
	wait_until(lm_write(m, f, LEN, LEN, 3) == 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	lm_check(m, f, LEN, LEN, 3);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_with_too_few_peers_a_file_is_an_ordinary_one(void **state)
{
	const struct dfix_options two = { .logd_count = 2 };
	struct lmount *m = lm_new(&two, NULL);
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_count(m, fallbacks), 1);
	assert_int_equal(lm_lent_bytes(m), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	check_in_blocks(m, f, 0, 1);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_with_too_few_peers_a_directory_may_refuse(void **state)
{
	const struct dfix_options three = { .logd_count = 3 };
	struct lmount *m = lm_new(&three, "fallback=refuse");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	lm_tell(m, 2, false);
	assert_int_equal(lm_write(m, f, 0, LEN, 1), -EIO);
	assert_int_equal(lm_write(m, f, 0, LEN, 1), -EIO);
	assert_int_equal(d_size(m->d, f), 0);
	lm_tell(m, 2, true);
	wait_until(lm_write(m, f, 0, LEN, 2) == 0);
	assert_int_equal(lm_have(m, core_file_ino(f), 1) >= 2, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* ---- memory at the peers ---- */

static void test_peers_without_memory_for_a_log_leave_it_to_the_blocks(
	void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f = lm_create(m, "f");

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_fail(m->d->l[i], WIRE_OP_LOG_ALLOC, -ENOSPC, -1);
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	check_in_blocks(m, f, 0, 1);
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_fail(m->d->l[i], 0, 0, 0);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_peer_that_is_not_ready_is_asked_again(void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_fail(m->d->l[i], WIRE_OP_LOG_ALLOC, -EAGAIN, 2);
	k = lm_write_start(m, f, 0, LEN, 1);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_true(lm_has_log(m, core_file_ino(f)));
	assert_true(lm_have(m, core_file_ino(f), 1) >= 2);
	d_close(m->d, f);
	lm_stop(m);
}

/* A log larger than all their memory: what is in the blocks gives it back. */
static void test_exhausted_peers_are_relieved_by_destaging(void **state)
{
	const struct dfix_options small = { .logd_count = 3,
					    .logd_bytes = 256u << 10 };
	struct lmount *m = lm_new(&small, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(lm_write(m, f, i << 15, 1u << 15, i), 0);
	assert_true(lm_count(m, destages) > 0);
	assert_int_equal(lm_count(m, fallbacks), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 64; i++)
		lm_check(m, f, i << 15, 1u << 15, i);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_memory_is_back_at_the_peers_when_a_file_is_closed(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct core_file *f = lm_create(m, i == 0 ? "a" : i == 1 ?
							    "b" : "c");
		uint64_t ino = core_file_ino(f);

		assert_int_equal(lm_write(m, f, 0, 200000, i), 0);
		assert_true(lm_lent_bytes(m) > 0);
		if (i == 2)
			assert_int_equal(op_unlink(&m->d->f, m->dir, "c",
						   false), 0);
		else
			lm_check(m, f, 0, 200000, i);
		d_close(m->d, f);
		wait_until(!lm_has_log(m, ino));
		wait_until(lm_lent_bytes(m) == 0);
	}
	lm_remount(m);
	struct core_file *f = lm_open(m, m->dir, "b");
	lm_check_durable(m, f, 0, 200000, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* ---- where the log does not have all ---- */

/* What was written before the file had a log is in no log: a fsync looks at
 * the blocks until they have it. */
static void test_a_file_that_was_dirty_when_its_log_began(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	lm_tell(m, 2, false);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_count(m, fallbacks), 1);
	lm_tell(m, 2, true);
	pause_ms(LOG_FALLBACK_MS + 1);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), 0);
	assert_int_equal(lm_count(m, opened), 1);
	k = d_fsync_start(m->d, f);
	assert_false(fix_call_wait(k, NOT_MS));
	d_hold(m->d, 0, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 3), 0);
	lm_kill(m);
	d_restart(m->d, true);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 3; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* ---- changes of another kind, while records are on their way ---- */

static void test_a_truncate_has_its_place_in_the_log(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *a, *b, *t = fix_call_new();

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 4 * LEN, 1), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	a = lm_write_start(m, f, LEN, LEN, 2);
	core_truncate(m->d->f.c, ino, LEN + 10, false, on_attr, t);
	b = lm_write_start(m, f, 3 * LEN, LEN, 3);
	assert_false(fix_call_wait(t, NOT_MS));
	assert_false(fix_call_wait(a, 0) || fix_call_wait(b, 0));
	/* The blocks must not be ahead of the log. */
	assert_int_equal(mini_metad_received(m->d->f.m, WIRE_OP_META_CUT), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(a, NULL), 0);
	assert_int_equal(fix_call_end(t, NULL), 0);
	assert_int_equal(fix_call_end(b, NULL), 0);
	lm_check_zeros(m, f, LEN + 10, 2 * LEN - 10);
	lm_check(m, f, 3 * LEN, LEN, 3);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 4 * LEN);
	lm_check_zeros(m, f, LEN + 10, 2 * LEN - 10);
	lm_check(m, f, 3 * LEN, LEN, 3);
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_hole_has_its_place_in_the_log(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *a, *z = fix_call_new(), *p = fix_call_new();
	uint64_t ino = core_file_ino(f);

	(void)state;
	assert_int_equal(lm_write(m, f, 0, 10 * LEN, 1), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	a = lm_write_start(m, f, 2 * LEN, LEN, 2);
	core_fallocate(m->d->f.c, ino, FALLOC_FL_ZERO_RANGE, 2 * LEN, LEN / 2,
		       false, on_err, z);
	core_fallocate(m->d->f.c, ino,
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * LEN,
		       LEN, false, on_err, p);
	assert_false(fix_call_wait(z, NOT_MS));
	assert_int_equal(mini_metad_received(m->d->f.m, WIRE_OP_META_CUT), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(a, NULL), 0);
	assert_int_equal(fix_call_end(z, NULL), 0);
	assert_int_equal(fix_call_end(p, NULL), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	assert_int_equal(d_size(m->d, f), 10 * LEN);
	lm_check(m, f, 0, 2 * LEN, 1);
	lm_check_zeros(m, f, 2 * LEN, LEN / 2);
	lm_check_zeros(m, f, 5 * LEN, LEN);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_file_that_leaves_the_directory_keeps_what_it_has(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	wait_until(mini_logd_held(m->d->l[0]) > 0);
	assert_int_equal(op_rename(&m->d->f, m->dir, "f", ROOT_INO, "f", 0),
			 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	wait_until(!lm_has_log(m, ino));
	lm_check_durable(m, f, 0, LEN, 1);
	lm_check_durable(m, f, LEN, LEN, 2);
	assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 3), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	assert_false(lm_has_log(m, ino));
	lm_remount(m);
	f = lm_open(m, ROOT_INO, "f");
	for (uint32_t i = 0; i < 3; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* Killed in between: the name is outside, the content in the log. */
static void test_a_file_that_left_is_recovered_where_it_is(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	d_hold(m->d, 0, true);
	assert_int_equal(op_rename(&m->d->f, m->dir, "f", ROOT_INO, "g", 0),
			 0);
	assert_int_equal(op_fsync_dir(&m->d->f), 0);
	lm_kill(m);
	d_hold(m->d, 0, false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, ROOT_INO, "g");
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_file_without_a_name_is_written_on(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	wait_until(mini_logd_held(m->d->l[0]) > 0);
	assert_int_equal(op_unlink(&m->d->f, m->dir, "f", false), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 3), 0);
	for (uint32_t i = 0; i < 3; i++)
		lm_check(m, f, i * LEN, LEN, i + 1);
	d_close(m->d, f);
	wait_until(lm_lent_bytes(m) == 0);
	lm_stop(m);
}

/* ---- connections ---- */

/* What was on its way is sent again over the next connection, and each record
 * is there once, in order. */
static void test_records_go_again_over_a_new_connection(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);

	(void)state;
	for (uint32_t i = 0; i < 30; i++) {
		struct mini_logd *l = m->d->l[i % 3];

		if (i % 2)
			mini_logd_lose_replies(l, WIRE_OP_LOG_WRITE, 1);
		else
			mini_logd_drop(l);
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	}
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_lose_replies(m->d->l[i], 0, 0);
	wait_until(lm_have(m, ino, 30) == 3);
	assert_int_equal(lm_count(m, failed_peers), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	for (uint32_t i = 0; i < 30; i++)
		lm_check(m, f, i * LEN, LEN, i);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_lost_answer_about_a_region_is_asked_for_again(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		mini_logd_lose_replies(m->d->l[i], WIRE_OP_LOG_ALLOC, 2);
	assert_int_equal(lm_write(m, f, 0, 300000, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 5) == 3);
	lm_check(m, f, 0, 300000, 1);
	d_close(m->d, f);
	lm_stop(m);
}

/* What is answered while the mount ends begins nothing anew, least of all with
 * a peer whose end has come. */
static void test_a_mount_ends_while_its_peers_are_asked(void **state)
{
	struct lmount *m = lm_new(NULL, NULL);
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	for (uint32_t i = 0; i < 3; i++) {
		mini_logd_hold(m->d->l[i], WIRE_OP_LOG_ALLOC, true);
		mini_logd_hold_replies(m->d->l[i], WIRE_OP_LOG_WRITE, true);
	}
	k = lm_write_start(m, f, LEN, 40000, 2);
	for (uint32_t i = 0; i < 3; i++)
		wait_until(mini_logd_held(m->d->l[i]) == 2);
	lm_kill(m);
	assert_int_not_equal(fix_call_end(k, NULL), 0);
	lm_free(m);
}

/* ---- another owns the log ---- */

static void fence_at(struct lmount *m, uint64_t ino, uint32_t from)
{
	struct sm_log e;

	lm_entry(m, ino, &e);
	for (uint32_t i = from; i < 3; i++)
		assert_int_equal(mini_logd_fence(m->d->l[i], ino,
						 e.epoch + 1,
						 e.data_epoch), 0);
}

static void test_nothing_is_acknowledged_once_a_peer_says_stale(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k, *s, *t = fix_call_new();

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	s = d_fsync_start(m->d, f);
	core_truncate(m->d->f.c, ino, 5, false, on_attr, t);
	wait_until(mini_logd_held(m->d->l[1]) > 0);
	fence_at(m, ino, 1);
	lm_hold(m, 1, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	assert_int_equal(fix_call_end(s, NULL), -EIO);
	assert_int_equal(fix_call_end(t, NULL), -EIO);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(lm_write(m, f, LEN, LEN, 3), -EIO);
	assert_int_equal(d_fsync(m->d, f), -EIO);
	lm_free(m);
}

/* It is not stopped by a log that it may not touch any more. */
static void test_a_mount_with_a_stale_log_stops(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t began;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	fence_at(m, core_file_ino(f), 0);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -EIO);
	d_close(m->d, f);
	began = core_now_ms();
	assert_int_equal(core_stop(m->d->f.c, WAIT_MS), -EIO);
	assert_true(core_now_ms() - began < WAIT_MS / 2);
	lm_free(m);
}

static void test_a_file_with_a_stale_log_begins_anew_when_emptied(
	void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	fence_at(m, ino, 0);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -EIO);
	assert_int_equal(d_truncate(m->d, f, 10), -EIO);
	assert_int_equal(d_truncate(m->d, f, 0), 0);
	assert_int_equal(lm_write(m, f, 0, LEN, 3), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 3);
	assert_int_equal(d_size(m->d, f), LEN);
	d_close(m->d, f);
	/* Its memory is metad's to collect: these peers know of the fence. */
	assert_int_equal(core_stop(m->d->f.c, WAIT_MS), 0);
	lm_free(m);
}

/* What the blocks do not take at the end is left to the next mount. */
static void test_a_mount_that_cannot_destage_leaves_its_log(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t began;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	d_fail(m->d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_close(m->d, f);
	began = core_now_ms();
	assert_int_equal(core_stop(m->d->f.c, WAIT_MS), -ENOSPC);
	assert_true(core_now_ms() - began < WAIT_MS / 2);
	lm_kill(m);
	d_fail(m->d, 0, 0, 0);
	assert_int_equal(lm_start(m), 0);
	assert_int_equal(lm_count(m, recovered), 1);
	f = lm_open(m, m->dir, "f");
	lm_check_durable(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
}

static void test_a_fenced_mount_acknowledges_nothing(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	struct fix_call *k;

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, LEN, LEN, 2);
	mini_metad_fence(m->d->f.m);
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	lm_hold(m, 0, WIRE_OP_LOG_WRITE, false);
	assert_int_equal(lm_write(m, f, LEN, LEN, 2), -EIO);
	lm_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_a_write_is_answered_when_a_majority_has_it),
		cmocka_unit_test(
			test_nothing_is_lent_before_metad_has_the_log_for_good),
		cmocka_unit_test(test_the_next_region_is_lent_ahead_of_need),
		cmocka_unit_test(
			test_fsync_of_a_log_file_needs_no_block_daemon),
		cmocka_unit_test(test_fsync_waits_for_the_majority),
		cmocka_unit_test(test_one_peer_that_hangs_holds_nobody_up),
		cmocka_unit_test(
			test_a_majority_that_hangs_is_given_up_for_the_blocks),
		cmocka_unit_test(
			test_a_majority_that_is_gone_is_given_up_for_the_blocks),
		cmocka_unit_test(
			test_the_blocks_do_not_answer_before_the_log_is_dropped),
		cmocka_unit_test(
			test_a_log_that_is_given_up_takes_no_more_writes),
		cmocka_unit_test(
			test_a_truncate_without_a_majority_is_made_in_the_blocks),
		cmocka_unit_test(test_a_file_leaves_while_its_majority_hangs),
		cmocka_unit_test(test_a_soft_mount_tells_that_nobody_answers),
		cmocka_unit_test(
			test_a_log_that_is_not_dropped_is_not_forgotten),
		cmocka_unit_test(test_without_peers_and_blocks_a_write_fails),
		cmocka_unit_test(
			test_with_too_few_peers_a_file_is_an_ordinary_one),
		cmocka_unit_test(
			test_with_too_few_peers_a_directory_may_refuse),
		cmocka_unit_test(
			test_peers_without_memory_for_a_log_leave_it_to_the_blocks),
		cmocka_unit_test(test_a_peer_that_is_not_ready_is_asked_again),
		cmocka_unit_test(
			test_exhausted_peers_are_relieved_by_destaging),
		cmocka_unit_test(
			test_memory_is_back_at_the_peers_when_a_file_is_closed),
		cmocka_unit_test(test_a_file_that_was_dirty_when_its_log_began),
		cmocka_unit_test(test_a_truncate_has_its_place_in_the_log),
		cmocka_unit_test(test_a_hole_has_its_place_in_the_log),
		cmocka_unit_test(
			test_a_file_that_leaves_the_directory_keeps_what_it_has),
		cmocka_unit_test(
			test_a_file_that_left_is_recovered_where_it_is),
		cmocka_unit_test(test_a_file_without_a_name_is_written_on),
		cmocka_unit_test(test_records_go_again_over_a_new_connection),
		cmocka_unit_test(
			test_a_lost_answer_about_a_region_is_asked_for_again),
		cmocka_unit_test(test_a_mount_ends_while_its_peers_are_asked),
		cmocka_unit_test(
			test_nothing_is_acknowledged_once_a_peer_says_stale),
		cmocka_unit_test(test_a_mount_with_a_stale_log_stops),
		cmocka_unit_test(
			test_a_file_with_a_stale_log_begins_anew_when_emptied),
		cmocka_unit_test(
			test_a_mount_that_cannot_destage_leaves_its_log),
		cmocka_unit_test(test_a_fenced_mount_acknowledges_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
