/* The data half of the client core when all goes well: writes, reads, fsync,
 * buffering and its bound, reading ahead, copies.
 *
 * Method: operations through the public contract (core.h) against mini block
 * daemons; promises are checked in the daemons' memory, where what is durable
 * is known exactly.
 */
#include "fuse/core/blk_priv.h"
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)

/* ---- the straight path ---- */

static void test_what_was_written_is_read_and_durable_after_fsync(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 5 * MIB + 12345;
	uint8_t *p = malloc(len), more[10];

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 1);
	for (uint32_t at = 0; at < len; at += 128 << 10)
		assert_int_equal(d_write(d, f, at, p + at,
					 u64_min(128 << 10, len - at), 0), 0);
	assert_int_equal(d_size(d, f), len);
	d_check_read(d, f, 0, p, len);
	d_check_read(d, f, MIB - 3, p + MIB - 3, 7);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, len);
	d_check_read(d, f, 0, p, len);
	d_check_read(d, f, 777777, p + 777777, 2 * MIB);
	assert_int_equal(d_read(d, f, len, more, 10), 0);
	assert_int_equal(d_read(d, f, len - 4, more, 10), 4);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_append_and_fsync_is_one_frame_to_one_daemon(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[4096];
	uint64_t off = 0;

	(void)state;
	d_fill(p, sizeof(p), 2);
	for (uint32_t i = 0; i < 50; i++) {
		uint64_t writes = d_received(d, WIRE_OP_BLK_WRITE);
		uint32_t len = 1 + i * 80;

		assert_int_equal(d_write(d, f, off, p, len, 0), 0);
		assert_int_equal(d_fsync(d, f), 0);
		d_check_durable(d, f, off, p, len);
		off += len;
		assert_int_equal(d_received(d, WIRE_OP_BLK_WRITE), writes + 1);
	}
	assert_int_equal(d_received(d, WIRE_OP_BLK_SYNC), 0);
	/* Nothing to do: nothing is sent. */
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_received(d, WIRE_OP_BLK_SYNC), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_buffered_bytes_lie_over_those_of_the_daemons(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 2 * MIB;
	uint8_t *p = malloc(len);

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 3);
	assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	for (uint32_t at = 100; at + 50 < len; at += 30011) {
		d_fill(p + at, 50, at);
		assert_int_equal(d_write(d, f, at, p + at, 50, 0), 0);
	}
	d_check_read(d, f, 0, p, len);
	/* More extents than a read takes one by one. */
	for (uint32_t at = 0; at < 400; at++) {
		d_fill(p + MIB / 2 + at * 1000, 10, at);
		assert_int_equal(d_write(d, f, MIB / 2 + at * 1000,
					 p + MIB / 2 + at * 1000, 10, 0), 0);
	}
	d_check_read(d, f, 5, p + 5, len - 5);
	assert_int_equal(d_sync(d), 0);
	d_check_durable(d, f, 0, p, len);
	d_check_read(d, f, 0, p, len);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_holes_are_zeros(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t *zero = calloc(1, 3 * MIB);

	(void)state;
	assert_non_null(zero);
	assert_int_equal(d_write(d, f, 10 * (uint64_t)MIB, "x", 1, 0), 0);
	d_check_read(d, f, 0, zero, 3 * MIB);
	assert_int_equal(d_write(d, f, (uint64_t)1 << 60, "y", 1, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_read(d, f, ((uint64_t)1 << 60) - 100, zero, 100);
	d_check_read(d, f, (uint64_t)1 << 60, "y", 1);
	assert_int_equal(d_write(d, f, INT64_MAX, "z", 1, 0), -EFBIG);
	d_close(d, f);
	dfix_stop(d);
	free(zero);
}

/* ---- what is buffered ---- */

static void test_content_behind_a_frame_in_flight_follows_it(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[3][6000], got[6000];
	struct fix_call *k[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		d_fill(p[i], sizeof(p[i]), 20 + i);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < 3; i++)
		k[i] = d_write_start(d, f, 1000 * i, p[i], 6000,
				     CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 1);
	assert_false(fix_call_wait(k[1], 30));
	assert_int_equal(d_executed(d, WIRE_OP_BLK_WRITE), 1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(fix_call_end(k[i], NULL), 0);
	d_peek(d, f, 0, 6000, false, got);
	assert_memory_equal(got, p[0], 1000);
	assert_memory_equal(got + 1000, p[1], 1000);
	assert_memory_equal(got + 2000, p[2], 4000);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_content_behind_two_frames_waits_for_both(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[20000];
	struct fix_call *k[3];

	(void)state;
	d_fill(p, sizeof(p), 24);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	k[0] = d_write_start(d, f, 0, p + 1, 4096, CORE_WRITE_DIRECT);
	k[1] = d_write_start(d, f, 8192, p + 1, 4096, CORE_WRITE_DIRECT);
	k[2] = d_write_start(d, f, 100, p, sizeof(p), CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 2);
	/* One is answered after the other. */
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(fix_call_end(k[i], NULL), 0);
	assert_int_equal(d_executed(d, WIRE_OP_BLK_WRITE), 3);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 100, p, sizeof(p));
	d_close(d, f);
	dfix_stop(d);
}

static void test_fsync_returns_though_somebody_goes_on_writing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[512];
	struct fix_call *k;

	(void)state;
	for (uint32_t round = 0; round < 50; round++) {
		d_fill(p, sizeof(p), 200 + round);
		assert_int_equal(d_write(d, f, 0, p, 100, 0), 0);
		k = d_fsync_start(d, f);
		for (uint32_t i = 0; i < 40; i++)
			assert_int_equal(d_write(d, f, i % 3, p + 100, 99, 0),
					 0);
		assert_int_equal(fix_call_end(k, NULL), 0);
	}
	d_close(d, f);
	dfix_stop(d);
}

static void test_writers_over_the_bound_wait_in_order(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = 2 * MIB });
	struct core_file *f = d_create(d, "f");
	uint32_t len = 12 * MIB, step = 256 << 10;
	uint8_t *p = malloc(len);
	struct fix_call *k[48];

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 40);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < 48; i++)
		k[i] = d_write_start(d, f, i * step, p + i * step, step, 0);
	assert_true(fix_call_wait(k[0], 1000));
	assert_false(fix_call_wait(k[20], 100));
	assert_false(fix_call_wait(k[47], 1));
	/* What waits has not been read or sized yet. */
	assert_true(d_size(d, f) <= 3 * MIB);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	for (uint32_t i = 0; i < 48; i++)
		assert_int_equal(fix_call_end(k[i], NULL), 0);
	assert_int_equal(d_size(d, f), len);
	d_check_read(d, f, 0, p, len);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, len);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_scattered_bytes_over_the_bound_go_out_too(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = MIB });
	struct core_file *f = d_create(d, "f");
	uint8_t byte;

	(void)state;
	for (uint32_t i = 0; i < 20000; i++) {
		byte = (uint8_t)(i * 7);
		assert_int_equal(d_write(d, f, (uint64_t)i * 300, &byte, 1, 0),
				 0);
	}
	assert_int_equal(d_fsync(d, f), 0);
	for (uint32_t i = 0; i < 20000; i += 97) {
		byte = (uint8_t)(i * 7);
		d_check_durable(d, f, (uint64_t)i * 300, &byte, 1);
	}
	d_close(d, f);
	dfix_stop(d);
}

static void test_old_content_is_written_and_synced_without_being_asked(
	void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .flush_age_ms = 40 });
	struct core_file *f[30];
	uint8_t p[700], got[700];

	(void)state;
	d_fill(p, sizeof(p), 41);
	for (uint32_t i = 0; i < 30; i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%u", i);
		f[i] = d_create(d, name);
		assert_int_equal(d_write(d, f[i], 0, p, sizeof(p), 0), 0);
	}
	for (uint32_t i = 0; i < 30; i++) {
		wait_until((d_peek(d, f[i], 0, 700, true, got),
			    memcmp(got, p, 700) == 0));
		d_close(d, f[i]);
	}
	/* Many writes, then a SYNC of all. */
	assert_true(d_executed(d, WIRE_OP_BLK_SYNC) <= 12);
	dfix_stop(d);
}

static void on_append(void *arg, int err)
{
	int *errors = arg;

	*errors += err != 0;
}

static void test_three_million_appends_of_a_byte(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	int errors = 0;

	(void)state;
	for (uint32_t i = 0; i < 3000000; i++) {
		uint8_t byte = (uint8_t)(i * 13);
		struct iovec iov = { &byte, 1 };

		/* Answered before it returns: the bound is far. */
		core_write(d->f.c, f, i, &iov, 1, 1, 0, on_append, &errors);
	}
	assert_int_equal(errors, 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_size(d, f), 3000000);
	for (uint32_t i = 0; i < 3000000; i += 9973) {
		uint8_t byte = (uint8_t)(i * 13);

		d_check_durable(d, f, i, &byte, 1);
	}
	d_close(d, f);
	dfix_stop(d);
}

/* ---- reading ahead and copies ---- */

static void test_a_sequential_reader_finds_its_bytes_here(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 20 * MIB, step = 128 << 10;
	uint8_t *p = malloc(len);

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 42);
	assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	uint64_t before = d_received(d, WIRE_OP_BLK_READ);
	for (uint32_t at = 0; at < len; at += step)
		d_check_read(d, f, at, p + at, step);
	assert_true(d_received(d, WIRE_OP_BLK_READ) - before < 40);
	/* A write between is seen. */
	for (uint32_t at = 0; at < len; at += step) {
		d_check_read(d, f, at, p + at, step);
		if (at + 5 * step < len) {
			d_fill(p + at + 4 * step, 100, at);
			assert_int_equal(d_write(d, f, at + 4 * step,
						 p + at + 4 * step, 100, 0), 0);
			if (at % (3 * step) == 0)
				assert_int_equal(d_fsync(d, f), 0);
		}
	}
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_reading_ahead_forgets_what_nobody_takes(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.prefetch_bytes_max = 4 * MIB });
	struct core_file *f = d_create(d, "f");
	uint32_t len = 24 * MIB, step = 256 << 10;
	uint8_t *p = malloc(len);

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 45);
	assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	/* Begins five times, never takes all of what it made us fetch. */
	for (uint32_t at = 0; at < 20 * MIB; at += 4 * MIB)
		for (uint32_t i = 0; i < 5; i++)
			d_check_read(d, f, at + i * step, p + at + i * step,
				   step);
	uint64_t before = d_received(d, WIRE_OP_BLK_READ);
	for (uint32_t at = 0; at < len; at += step)
		d_check_read(d, f, at, p + at, step);
	assert_true(d_received(d, WIRE_OP_BLK_READ) - before < 48);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

struct copying {
	struct fix_call *k;
	size_t done;
};

static void on_copied(void *arg, int err, size_t done)
{
	struct copying *y = arg;

	y->done = done;
	fix_call_done(y->k, err);
}

/* Comes again until all is copied, as who copies does. */
static int copy(struct dfix *d, const struct core_copy *p, size_t *done)
{
	struct core_copy left = *p;
	struct copying y;
	int err;

	*done = 0;
	do {
		y = (struct copying){ fix_call_new(), 0 };
		core_copy(d->f.c, &left, on_copied, &y);
		err = fix_call_end(y.k, NULL);
		assert_in_range(y.done, 0, CORE_COPY_MAX);
		*done += y.done;
		left.off_in += y.done;
		left.off_out += y.done;
		left.len -= y.done;
	} while (!err && y.done > 0 && left.len > 0);
	return err;
}

static void test_a_copy_takes_buffered_and_stored_bytes(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *a = d_create(d, "a"), *b = d_create(d, "b");
	uint8_t *p = malloc(5 * MIB);
	size_t done;

	(void)state;
	assert_non_null(p);
	d_fill(p, 5 * MIB, 31);
	assert_int_equal(d_write(d, a, 0, p, 5 * MIB, 0), 0);
	assert_int_equal(d_fsync(d, a), 0);
	d_fill(p + 1000000, 2000000, 32);
	assert_int_equal(d_write(d, a, 1000000, p + 1000000, 2000000, 0), 0);
	struct core_copy y = { a, b, 77, 5, 10 * MIB, false };
	assert_int_equal(copy(d, &y, &done), 0);
	assert_int_equal(done, 5 * MIB - 77); /* the end of the file */
	assert_int_equal(d_fsync(d, b), 0);
	d_check_read(d, b, 5, p + 77, 5 * MIB - 77);
	y.off_in = 5 * MIB;
	assert_int_equal(copy(d, &y, &done), 0);
	assert_int_equal(done, 0);
	d_close(d, a);
	d_close(d, b);
	dfix_stop(d);
	free(p);
}

static void test_a_copy_tells_how_far_it_came(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *a = d_create(d, "a"), *b = d_create(d, "b");
	uint8_t *p = malloc(3 * MIB);
	size_t done;

	(void)state;
	assert_non_null(p);
	d_fill(p, 3 * MIB, 33);
	assert_int_equal(d_write(d, a, 0, p, 3 * MIB, 0), 0);
	struct core_copy y = { a, b, 0, FILE_SIZE_MAX - 2 * (uint64_t)MIB,
			       3 * MIB, false };
	assert_int_equal(copy(d, &y, &done), -EFBIG);
	assert_int_equal(done, 2 * MIB);
	d_close(d, a);
	d_close(d, b);
	dfix_kill(d);
	free(p);
}

static bool nobody_waits(void *arg)
{
	(void)arg;
	return false;
}

/* Its program was killed: that it has no handle any more is in order. */
static void test_a_copy_that_nobody_waits_for_writes_nothing(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = MIB });
	struct core_file *a = d_create(d, "a"), *b = d_create(d, "b");
	struct core_file *in, *out;
	uint8_t p[4096], zero[4096] = { 0 };
	struct copying y = { fix_call_new(), 0 };

	(void)state;
	d_fill(p, sizeof(p), 34);
	assert_int_equal(d_write(d, a, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, a), 0);
	assert_int_equal(d_truncate(d, b, sizeof(p)), 0);
	assert_int_equal(op_open(&d->f, core_file_ino(a), O_RDONLY, &in), 0);
	assert_int_equal(op_open(&d->f, core_file_ino(b), O_RDWR, &out), 0);
	d->f.c->opt.wanted = nobody_waits;
	d_hold(d, WIRE_OP_BLK_READ, true);
	core_copy(d->f.c, &(struct core_copy){ in, out, 0, 0, 4096, false },
		  on_copied, &y);
	wait_until(d_held(d) == 1);
	d_close(d, in);
	d_close(d, out);
	d_hold(d, WIRE_OP_BLK_READ, false);
	assert_int_equal(fix_call_end(y.k, NULL), -EINTR);
	d_check_read(d, b, 0, zero, sizeof(zero));
	d_close(d, a);
	d_close(d, b);
	dfix_stop(d);
}

/* What the kernel may keep for a handle that is opened now. */
static enum core_cache opened_cache(struct dfix *d, uint64_t ino, int flags)
{
	struct core_file *f = NULL;
	enum core_cache cache;

	assert_int_equal(op_open(&d->f, ino, flags, &f), 0);
	cache = core_file_cache(d->f.c, f);
	d_close(d, f);
	return cache;
}

static void test_readers_go_past_the_cache_beside_direct_writers(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f"), *w[2];
	uint64_t ino = core_file_ino(f);

	(void)state;
	assert_int_equal(opened_cache(d, ino, O_RDONLY | O_DIRECT),
			 CORE_CACHE_KEEP);
	assert_int_equal(opened_cache(d, ino, O_RDONLY), CORE_CACHE_KEEP);
	for (int i = 0; i < 2; i++)
		assert_int_equal(op_open(&d->f, ino, O_RDWR | O_DIRECT, &w[i]),
				 0);
	/* beside @f, which may have more in the kernel's cache than we know */
	assert_int_equal(opened_cache(d, ino, O_RDONLY), CORE_CACHE_DROP);
	d_close(d, f);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(opened_cache(d, ino, O_RDONLY),
				 CORE_CACHE_NONE);
		assert_int_equal(opened_cache(d, ino, O_RDWR),
				 CORE_CACHE_DROP);
		d_close(d, w[i]);
	}
	assert_int_equal(opened_cache(d, ino, O_RDONLY), CORE_CACHE_DROP);
	assert_int_equal(opened_cache(d, ino, O_RDONLY), CORE_CACHE_KEEP);
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_what_was_written_is_read_and_durable_after_fsync),
		cmocka_unit_test(
			test_append_and_fsync_is_one_frame_to_one_daemon),
		cmocka_unit_test(
			test_buffered_bytes_lie_over_those_of_the_daemons),
		cmocka_unit_test(test_holes_are_zeros),
		cmocka_unit_test(
			test_content_behind_a_frame_in_flight_follows_it),
		cmocka_unit_test(test_content_behind_two_frames_waits_for_both),
		cmocka_unit_test(
			test_fsync_returns_though_somebody_goes_on_writing),
		cmocka_unit_test(test_writers_over_the_bound_wait_in_order),
		cmocka_unit_test(
			test_scattered_bytes_over_the_bound_go_out_too),
		cmocka_unit_test(
			test_old_content_is_written_and_synced_without_being_asked),
		cmocka_unit_test(test_three_million_appends_of_a_byte),
		cmocka_unit_test(test_a_sequential_reader_finds_its_bytes_here),
		cmocka_unit_test(test_reading_ahead_forgets_what_nobody_takes),
		cmocka_unit_test(test_a_copy_takes_buffered_and_stored_bytes),
		cmocka_unit_test(test_a_copy_tells_how_far_it_came),
		cmocka_unit_test(
			test_a_copy_that_nobody_waits_for_writes_nothing),
		cmocka_unit_test(
			test_readers_go_past_the_cache_beside_direct_writers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
