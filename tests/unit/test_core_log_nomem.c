/* Logs when memory is short: nothing that was answered is lost, nothing hangs
 * and nothing leaks, whichever allocation fails.
 *
 * Method: in each scenario the k-th allocation of all threads of the mount
 * fails, k from 1 until none does; then the client is killed, and the next
 * mount has everything.
 */
#include "tests/lib/fail_malloc.h"
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define TRIES 200u

/* ---- calls of the mount; the test's own allocations do not fail ---- */

static int nm_write(struct lmount *m, struct core_file *f, uint64_t off,
		    uint32_t len, uint64_t seed)
{
	uint8_t *p = malloc(len);
	struct fix_call *k = fix_call_new();
	struct iovec iov = { p, len };
	int err;

	assert_non_null(p);
	d_fill(p, len, seed);
	fail_malloc_spared = false;
	core_write(m->d->f.c, f, off, &iov, 1, len, 0, on_err, k);
	fail_malloc_spared = true;
	err = fix_call_end(k, NULL);
	free(p);
	return err;
}

static int nm_fsync(struct lmount *m, struct core_file *f)
{
	struct fix_call *k = fix_call_new();

	fail_malloc_spared = false;
	core_fsync(m->d->f.c, core_file_ino(f), true, on_err, k);
	fail_malloc_spared = true;
	return fix_call_end(k, NULL);
}

static int nm_truncate(struct lmount *m, struct core_file *f, uint64_t size)
{
	struct fix_call *k = fix_call_new();

	fail_malloc_spared = false;
	core_truncate(m->d->f.c, core_file_ino(f), size, false, on_attr, k);
	fail_malloc_spared = true;
	return fix_call_end(k, NULL);
}

static void nm_close(struct lmount *m, struct core_file *f)
{
	fail_malloc_spared = false;
	d_close(m->d, f);
	fail_malloc_spared = true;
}

static int nm_start(struct lmount *m)
{
	int err;

	fail_malloc_spared = false;
	err = core_new(&m->d->co, &m->d->f.c);
	if (err)
		m->d->f.c = NULL;
	else
		err = core_start(m->d->f.c, WAIT_MS);
	fail_malloc_spared = true;
	return err;
}

/* Tries until it succeeds: whatever fails, fails for want of memory. */
#define must_do(call)                                                         \
	do {                                                                  \
		unsigned tries_ = 0;                                          \
		int err_;                                                     \
		while ((err_ = (call)) != 0) {                                \
			assert_int_equal(err_, -ENOMEM);                      \
			assert_true(++tries_ < TRIES);                        \
		}                                                             \
	} while (0)

/* ---- what is promised ---- */

/* Five pieces, a hole between 3 and 4, 5 in another region. */
static void write_all(struct lmount *m, struct core_file *f)
{
	must_do(nm_write(m, f, 0, 3 * LEN, 1));
	must_do(nm_write(m, f, LEN, LEN, 2));
	must_do(nm_fsync(m, f));
	must_do(nm_truncate(m, f, 2 * LEN));
	must_do(nm_write(m, f, 4 * LEN, LEN, 3));
	must_do(nm_write(m, f, 10 * LEN, 100 * LEN, 4));
	must_do(nm_fsync(m, f));
}

static void check_all(struct lmount *m, struct core_file *f)
{
	lm_check(m, f, 0, LEN, 1);
	lm_check(m, f, LEN, LEN, 2);
	lm_check_zeros(m, f, 2 * LEN, 2 * LEN);
	lm_check(m, f, 4 * LEN, LEN, 3);
	lm_check(m, f, 10 * LEN, 100 * LEN, 4);
	assert_int_equal(d_size(m->d, f), 110 * LEN);
}

static void check_after_death(struct lmount *m)
{
	struct core_file *f;

	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	check_all(m, f);
	d_close(m->d, f);
	lm_stop(m);
}

static struct lmount *new_mount(const char *opts)
{
	/* A SYNC for which there was no memory is made up for by age. */
	const struct dfix_options four = { .logd_count = 4,
					   .flush_age_ms = 400 };
	struct lmount *m = lm_new(&four, opts);

	lm_tell(m, 3, false);
	return m;
}

/* ---- scenarios; each returns whether an allocation failed ---- */

static bool when_written(unsigned nth)
{
	struct lmount *m = new_mount("destage=close");
	struct core_file *f = lm_create(m, "f");
	bool hit;

	fail_malloc_once(nth);
	write_all(m, f);
	hit = fail_malloc_once_hit();
	check_all(m, f);
	check_after_death(m);
	return hit;
}

static bool when_ended(unsigned nth)
{
	struct lmount *m = new_mount("destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	bool hit;

	write_all(m, f);
	fail_malloc_once(nth);
	nm_close(m, f);
	/* That does not take as long as to wait for another who opens it. */
	must_do(op_rename(&m->d->f, m->dir, "f", ROOT_INO, "f", 0));
	wait_until(!lm_has_log(m, ino));
	hit = fail_malloc_once_hit();
	f = lm_open(m, ROOT_INO, "f");
	check_all(m, f);
	lm_check_durable(m, f, 10 * LEN, 100 * LEN, 4);
	d_close(m->d, f);
	lm_stop(m);
	return hit;
}

/* By the order of writes: rounds, and their journal. Then power is lost. */
static bool when_ordered(unsigned nth)
{
	struct lmount *m = new_mount("destage=interval");
	struct core_file *f = lm_create(m, "f");
	struct core_file *g = d_create(m->d, "g");
	bool hit;

	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	fail_malloc_once(nth);
	must_do(nm_write(m, g, 0, LEN, 7));
	must_do(nm_fsync(m, g));
	must_do(nm_truncate(m, g, LEN / 2));
	hit = fail_malloc_once_hit();
	lm_check(m, g, 0, LEN / 2, 7);
	lm_power_cut(m);
	lm_tell(m, 3, false);
	assert_int_equal(lm_start(m), 0);
	f = lm_open(m, m->dir, "f");
	g = lm_open(m, ROOT_INO, "g");
	lm_check(m, f, 0, LEN, 1);
	lm_check(m, g, 0, LEN / 2, 7);
	d_close(m->d, f);
	d_close(m->d, g);
	lm_stop(m);
	return hit;
}

/* What the journal has is for the next mount, if not for this one. */
static bool when_redone(unsigned nth)
{
	struct lmount *m = new_mount("destage=interval");
	struct core_file *f = lm_create(m, "f");
	struct core_file *g = d_create(m->d, "g");
	struct fix_call *k;
	bool hit;
	int err;

	assert_int_equal(lm_write(m, f, 0, LEN, 1), 0);
	assert_int_equal(lm_write(m, g, 0, LEN, 7), 0);
	d_hold(m->d, WIRE_OP_BLK_WRITE, true);
	k = d_fsync_start(m->d, g);
	lm_hold_behind_journal(m);
	wait_until(d_held(m->d) == 2);
	lm_power_cut(m);
	(void)fix_call_end(k, NULL);
	fail_malloc_once(nth);
	err = nm_start(m);
	hit = fail_malloc_once_hit();
	assert_true(err == 0 || hit);
	lm_remount(m);
	f = lm_open(m, m->dir, "f");
	lm_check(m, f, 0, LEN, 1);
	d_close(m->d, f);
	lm_stop(m);
	return hit;
}

static bool when_replaced(unsigned nth)
{
	struct lmount *m = new_mount("destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	bool hit;

	write_all(m, f);
	lm_tell(m, 3, true);
	lm_tell(m, 2, false);
	fail_malloc_once(nth);
	mini_logd_down(m->d->l[2]);
	wait_until(lm_listed(m, ino, 4) && !lm_listed(m, ino, 3));
	hit = fail_malloc_once_hit();
	lm_kill(m);
	mini_logd_down(m->d->l[0]);
	assert_int_equal(lm_start(m), 0);
	mini_logd_up(m->d->l[0], true);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m);
	return hit;
}

static bool when_given_up(unsigned nth)
{
	struct lmount *m = new_mount("destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	bool hit;

	write_all(m, f);
	for (uint32_t i = 0; i < 2; i++) {
		lm_tell(m, i, false);
		mini_logd_down(m->d->l[i]);
	}
	fail_malloc_once(nth);
	must_do(nm_write(m, f, LEN, LEN, 2));
	must_do(nm_fsync(m, f));
	hit = fail_malloc_once_hit();
	assert_false(lm_has_log(m, ino));
	lm_check_durable(m, f, LEN, LEN, 2);
	for (uint32_t i = 0; i < 2; i++)
		mini_logd_up(m->d->l[i], true);
	check_after_death(m);
	return hit;
}

/* One of them lags: it is given what it lacks. */
static struct lmount *killed(void)
{
	struct lmount *m = new_mount("destage=close");
	struct core_file *f = lm_create(m, "f");

	write_all(m, f);
	wait_until(lm_have(m, core_file_ino(f), 1) == 3);
	lm_kill(m);
	return m;
}

/* What there is no memory to recover is not served, and not dropped. */
static bool when_recovered(unsigned nth)
{
	struct lmount *m = killed();
	struct core_file *f;
	uint8_t b[LEN];
	bool hit;
	int err;

	fail_malloc_once(nth);
	err = nm_start(m);
	hit = fail_malloc_once_hit();
	assert_true(err == 0 || hit);
	if (!err && lm_count(m, lost) > 0) {
		f = lm_open(m, m->dir, "f");
		assert_int_equal(d_read(m->d, f, 0, b, LEN), -EIO);
		assert_int_equal(lm_write(m, f, 0, LEN, 9), -EIO);
	} else if (!err) {
		f = lm_open(m, m->dir, "f");
		check_all(m, f);
	}
	check_after_death(m);
	return hit;
}

/* That it is lost is not forgotten, either. */
static bool when_lost(unsigned nth)
{
	struct lmount *m = killed();
	struct core_file *f;
	uint8_t b[LEN];
	bool hit;
	int err;

	for (uint32_t i = 0; i < 3; i++)
		mini_logd_restart(m->d->l[i]);
	fail_malloc_once(nth);
	err = nm_start(m);
	hit = fail_malloc_once_hit();
	assert_true(err == 0 || hit);
	if (!err) {
		f = lm_open(m, m->dir, "f");
		assert_int_equal(d_read(m->d, f, 0, b, LEN), -EIO);
	}
	lm_free(m);
	return hit;
}

static void each(bool (*scenario)(unsigned nth))
{
	unsigned nth = 1;

	fail_malloc_spared = true;
	while (scenario(nth))
		assert_true(++nth < 2000);
	print_message("# %u allocations\n", nth - 1);
}

static void test_writing_a_log(void **state)
{
	(void)state;
	each(when_written);
}

static void test_ending_a_log(void **state)
{
	(void)state;
	each(when_ended);
}

static void test_a_round_of_write_ahead_order(void **state)
{
	(void)state;
	each(when_ordered);
}

static void test_doing_a_journal_again(void **state)
{
	(void)state;
	each(when_redone);
}

static void test_replacing_a_peer(void **state)
{
	(void)state;
	each(when_replaced);
}

static void test_giving_a_log_up(void **state)
{
	(void)state;
	each(when_given_up);
}

static void test_recovering_a_log(void **state)
{
	(void)state;
	each(when_recovered);
}

static void test_a_log_that_is_lost(void **state)
{
	(void)state;
	each(when_lost);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writing_a_log),
		cmocka_unit_test(test_ending_a_log),
		cmocka_unit_test(test_a_round_of_write_ahead_order),
		cmocka_unit_test(test_doing_a_journal_again),
		cmocka_unit_test(test_replacing_a_peer),
		cmocka_unit_test(test_giving_a_log_up),
		cmocka_unit_test(test_recovering_a_log),
		cmocka_unit_test(test_a_log_that_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
