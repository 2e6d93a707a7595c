/* fsync of a file and the metadata that is needed to read it: it waits until
 * metad has that durable, whatever the block daemons say.
 *
 * Method: a mini metad that holds durability back, or forgets.
 */
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define SOON_MS 200u /* the daemons answer long before */

static struct fix_call *written_and_synced(struct dfix *d,
					   struct core_file *f)
{
	struct fix_call *k;

	assert_int_equal(d_write(d, f, 0, "new", 3, 0), 0);
	k = d_fsync_start(d, f);
	assert_false(fix_call_wait(k, SOON_MS));
	return k;
}

static void test_fsync_of_a_new_file_waits_for_its_name(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f;
	struct fix_call *k;
	char got[3];

	(void)state;
	mini_metad_hold_durable(d->f.m, true);
	f = d_create(d, "f");
	k = written_and_synced(d, f);
	d_peek(d, f, 0, 3, true, got);
	assert_memory_equal(got, "new", 3);
	mini_metad_hold_durable(d->f.m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_fsync_waits_again_when_metad_forgot_the_name(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f;
	struct meta_attr a;
	struct fix_call *k;

	(void)state;
	mini_metad_hold_durable(d->f.m, true);
	f = d_create(d, "f");
	k = written_and_synced(d, f);
	mini_metad_restart(d->f.m, true);
	assert_false(fix_call_wait(k, SOON_MS));
	mini_metad_hold_durable(d->f.m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	mini_metad_restart(d->f.m, true);
	assert_int_equal(mini_metad_lookup(d->f.m, ROOT_INO, "f", &a), 0);
	d_close(d, f);
	dfix_stop(d);
}

/* Also the first bytes that the mount ever buffers. */
static void test_a_name_is_taken_over_only_by_durable_bytes(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *old = d_create(d, "f");
	struct core_file *f = d_create(d, "new");
	char got[3];

	(void)state;
	assert_int_equal(d_write(d, f, 0, "new", 3, 0), 0);
	assert_int_equal(op_rename(&d->f, ROOT_INO, "new", ROOT_INO, "f", 0),
			 0);
	d_peek(d, f, 0, 3, true, got);
	assert_memory_equal(got, "new", 3);
	d_close(d, f);
	d_close(d, old);
	dfix_stop(d);
}

/* "f" is there: opening it with O_CREAT takes the lease, no more. */
static void test_an_old_file_is_written_only_under_a_durable_lease(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f;
	struct meta_attr a;
	struct fix_call *k;

	(void)state;
	assert_int_equal(op_mkfile(&d->f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_fsync_dir(&d->f), 0);
	mini_metad_hold_durable(d->f.m, true);
	f = d_create(d, "f");
	assert_int_equal(core_file_ino(f), a.ino);
	k = d_write_start(d, f, 0, "new", 3, CORE_WRITE_DIRECT);
	assert_false(fix_call_wait(k, 100));
	assert_int_equal(d_received(d, WIRE_OP_BLK_WRITE), 0);
	mini_metad_hold_durable(d->f.m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_close(d, f);
	dfix_stop(d);
}

/* The lease that came with O_CREAT was given back, behind it in the stream,
 * before the answer: it is not ours when that comes. */
static void test_a_lease_given_back_before_its_answer_is_asked_for_again(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct core_create p = { .parent = ROOT_INO, .name = "f",
				 .mode = S_IFREG | 0644,
				 .open_flags = O_RDWR | O_CREAT };
	struct fix_call *k = fix_call_new();
	uint8_t buf[4096];

	(void)state;
	d_fill(buf, sizeof(buf), 21);
	assert_int_equal(d_write(d, f, 0, buf, sizeof(buf), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	mini_metad_hold_replies(d->f.m, 0, true);
	d_close(d, f);
	core_create_open(d->f.c, &p, &f, on_attr, k);
	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_RETURN) == 1);
	assert_int_equal(mini_metad_lease_count(d->f.m), 0);
	mini_metad_hold_replies(d->f.m, 0, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(d_write(d, f, 4096, buf, sizeof(buf), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(mini_metad_lease_count(d->f.m), 1);
	d_close(d, f);
	dfix_stop(d);
}

/* Not even sent, since metad does not say that the lease is durable. */
static void test_a_soft_fsync_does_not_wait_for_a_lease_for_ever(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.timeout_ms = 500, .flush_age_ms = 200 });
	struct core_file *f;
	struct meta_attr a;
	struct fix_call *k;

	(void)state;
	assert_int_equal(op_mkfile(&d->f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_fsync_dir(&d->f), 0);
	assert_int_equal(op_open(&d->f, a.ino, O_RDWR, &f), 0);
	mini_metad_hold_durable(d->f.m, true);
	assert_int_equal(d_write(d, f, 0, "new", 3, 0), 0);
	assert_int_equal(d_fsync(d, f), -ETIMEDOUT);
	k = d_write_start(d, f, 3, "old", 3, CORE_WRITE_DIRECT);
	assert_int_equal(fix_call_end(k, NULL), -ETIMEDOUT);
	assert_int_equal(d_received(d, WIRE_OP_BLK_WRITE), 0);
	/* Nothing is lost, and the error is told once. */
	assert_int_not_equal(core_flush_error(d->f.c, f), 0);
	mini_metad_hold_durable(d->f.m, false);
	wait_until(d_executed(d, WIRE_OP_BLK_SYNC) > 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, "new", 3);
	assert_int_equal(d_size(d, f), 3);
	d_close(d, f);
	dfix_stop(d);
}

static int64_t mtime_at_metad(struct dfix *d, uint64_t ino)
{
	struct meta_attr a;

	assert_int_equal(mini_metad_getattr(d->f.m, ino, &a), 0);
	return a.mtime_ns;
}

/* What the kernel's write-back cache tells before an fsync. */
static void test_times_of_a_written_file_are_told_later(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);
	struct meta_attr a;

	(void)state;
	assert_int_equal(d_write(d, f, 0, "new", 3, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_true(core_times_flush(d->f.c, ino, 12345, 12346, &a));
	assert_int_equal(a.mtime_ns, 12345);
	assert_int_equal(a.ctime_ns, 12346);
	assert_int_equal(a.size, 3);
	assert_int_not_equal(mtime_at_metad(d, ino), 12345);
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.mtime_ns, 12345);
	for (int i = 0; i < 1000 && mtime_at_metad(d, ino) != 12345; i++)
		usleep(10000);
	assert_int_equal(mtime_at_metad(d, ino), 12345);
	/* Not under a lease of ours: metad is asked. */
	d_close(d, f);
	for (int i = 0; i < 1000 && mini_metad_lease_count(d->f.m) > 0; i++)
		usleep(10000);
	assert_int_equal(mini_metad_lease_count(d->f.m), 0);
	assert_false(core_times_flush(d->f.c, ino, 1, 2, &a));
	assert_false(core_times_flush(d->f.c, 999999, 1, 2, &a));
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsync_of_a_new_file_waits_for_its_name),
		cmocka_unit_test(
			test_fsync_waits_again_when_metad_forgot_the_name),
		cmocka_unit_test(
			test_a_name_is_taken_over_only_by_durable_bytes),
		cmocka_unit_test(
			test_an_old_file_is_written_only_under_a_durable_lease),
		cmocka_unit_test(
			test_a_lease_given_back_before_its_answer_is_asked_for_again),
		cmocka_unit_test(
			test_a_soft_fsync_does_not_wait_for_a_lease_for_ever),
		cmocka_unit_test(test_times_of_a_written_file_are_told_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
