/* The data half of the client core when memory is short.
 *
 * Method: each operation is started with its k-th allocation failing, k from 1
 * until none fails. It answers exactly once, with success or -ENOMEM; what it
 * says is true; the same operation works afterwards. Only allocations of the
 * calling thread fail.
 */
#include "tests/lib/data_fix.h"
#include "tests/lib/fail_malloc.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define LEN (2u * MIB)

struct short_of {
	struct dfix *d;
	struct core_file *f;
	struct fix_call *k;
	uint8_t *bytes, *got;
	size_t got_len;
	uint64_t at;
	struct statvfs st;
};

static void start_small(struct short_of *s)
{
	struct iovec iov = { s->bytes + 5, 100 };

	core_write(s->d->f.c, s->f, 5, &iov, 1, 100, 0, on_err, s->k);
}

static void start_big(struct short_of *s)
{
	struct iovec iov = { s->bytes + 77, MIB + 1000 };

	core_write(s->d->f.c, s->f, 77, &iov, 1, MIB + 1000, 0, on_err, s->k);
}

static void start_direct(struct short_of *s)
{
	struct iovec iov = { s->bytes + 4096, 8192 };

	core_write(s->d->f.c, s->f, 4096, &iov, 1, 8192, CORE_WRITE_DIRECT,
		   on_err, s->k);
}

static void start_fsync(struct short_of *s)
{
	core_fsync(s->d->f.c, core_file_ino(s->f), true, on_err, s->k);
}

static void start_sync(struct short_of *s)
{
	core_sync_all(s->d->f.c, on_err, s->k);
}

static void on_got(void *arg, int err, const struct iovec *iov, int iov_count,
		   size_t len)
{
	struct short_of *s = arg;

	s->got_len = 0;
	for (int i = 0; i < iov_count; i++) {
		memcpy(s->got + s->got_len, iov[i].iov_base, iov[i].iov_len);
		s->got_len += iov[i].iov_len;
	}
	assert_int_equal(s->got_len, len);
	fix_call_done(s->k, err);
}

static void start_read(struct short_of *s)
{
	core_read(s->d->f.c, s->f, 0, LEN, on_got, s);
}

static void start_fallocate(struct short_of *s)
{
	core_fallocate(s->d->f.c, core_file_ino(s->f), FALLOC_FL_KEEP_SIZE, 0,
		       3 * MIB, false, on_err, s->k);
}

static void start_seek(struct short_of *s)
{
	core_seek(s->d->f.c, core_file_ino(s->f), 0, SEEK_DATA, &s->at, on_err,
		  s->k);
}

static void start_statfs(struct short_of *s)
{
	core_statfs(s->d->f.c, &s->st, on_err, s->k);
}

static void start_grow(struct short_of *s)
{
	core_truncate(s->d->f.c, core_file_ino(s->f), LEN, false, on_attr,
		      s->k);
}

/* Answers 0 or -ENOMEM; true when an allocation failed. */
static bool once(struct short_of *s, void (*start)(struct short_of *s),
		 unsigned nth, int *err)
{
	bool hit;

	s->k = fix_call_new();
	fail_malloc_at(nth);
	start(s);
	hit = fail_malloc_hit();
	*err = fix_call_end(s->k, NULL);
	assert_true(*err == 0 || (hit && *err == -ENOMEM));
	return hit;
}

static void each(struct short_of *s, void (*start)(struct short_of *s))
{
	int err;

	for (unsigned nth = 1; nth < 100; nth++) {
		bool hit = once(s, start, nth, &err);

		if (err)
			assert_false(once(s, start, 0, &err));
		if (start == start_read) {
			assert_int_equal(s->got_len, LEN);
			assert_memory_equal(s->got, s->bytes, LEN);
		}
		if (!hit)
			return;
		/* Something to send again for the next round. */
		d_fill(s->bytes + 9000, 50, nth);
		assert_int_equal(d_write(s->d, s->f, 9000, s->bytes + 9000, 50,
					 0), 0);
	}
	fail();
}

static void test_operations_fail_cleanly_without_memory(void **state)
{
	struct short_of s = { .d = dfix_new(NULL) };

	(void)state;
	s.f = d_create(s.d, "f");
	s.bytes = malloc(LEN);
	s.got = malloc(LEN);
	assert_non_null(s.bytes);
	assert_non_null(s.got);
	d_fill(s.bytes, LEN, 5);
	each(&s, start_small);
	each(&s, start_big);
	each(&s, start_direct);
	assert_int_equal(d_write(s.d, s.f, 0, s.bytes, LEN, 0), 0);
	each(&s, start_fsync);
	each(&s, start_read);
	each(&s, start_sync);
	each(&s, start_read);
	each(&s, start_fallocate);
	each(&s, start_seek);
	assert_int_equal(s.at, 0);
	each(&s, start_statfs);
	each(&s, start_grow);
	/* A truncate that was answered is retried by nobody: either it failed
	 * before, or it is done. */
	for (unsigned nth = 1, hit = 1; hit; nth++) {
		struct fix_call *k = fix_call_new();
		int err;

		fail_malloc_at(nth);
		core_truncate(s.d->f.c, core_file_ino(s.f), LEN - nth, false,
			      on_attr, k);
		hit = fail_malloc_hit();
		err = fix_call_end(k, NULL);
		assert_true(err == 0 || (hit && err == -ENOMEM));
		if (err)
			assert_int_equal(d_size(s.d, s.f), LEN - nth + 1);
		if (d_size(s.d, s.f) != LEN - nth)
			assert_int_equal(d_truncate(s.d, s.f, LEN - nth), 0);
	}
	assert_int_equal(d_fsync(s.d, s.f), 0);
	d_close(s.d, s.f);
	dfix_stop(s.d);
	free(s.bytes);
	free(s.got);
}

static uint64_t units_held(struct dfix *d, uint64_t ino)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		units += mini_blockd_units(d->b[i], ino);
	return units;
}

static bool units_agree(struct dfix *d, const char *name, uint64_t ino)
{
	struct meta_attr a;

	return mini_metad_lookup(d->f.m, ROOT_INO, name, &a) == 0 &&
	       a.units == units_held(d, ino);
}

/* A truncate that could not tell metad before it what the file has: metad's
 * count would stop at zero and then be too high. */
static void test_blocks_are_right_after_a_truncate_without_memory(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	unsigned hit = 1;

	(void)state;
	for (unsigned nth = 1; hit; nth++) {
		struct core_file *f;
		struct fix_call *k;
		char name[16];
		uint64_t ino;
		int err;

		snprintf(name, sizeof(name), "f%u", nth);
		f = d_create(d, name);
		ino = core_file_ino(f);
		assert_int_equal(d_fallocate(d, f, 0, 0, 3 * MIB), 0);
		assert_int_equal(units_held(d, ino), 768);
		k = fix_call_new();
		fail_malloc_at(nth);
		core_truncate(d->f.c, ino, MIB, false, on_attr, k);
		hit = fail_malloc_hit();
		err = fix_call_end(k, NULL);
		assert_true(err == 0 || (hit && err == -ENOMEM));
		assert_int_equal(d_fsync(d, f), 0);
		d_close(d, f);
		wait_until(units_agree(d, name, ino));
		assert_int_equal(units_held(d, ino), err ? 768 : 256);
	}
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations_fail_cleanly_without_memory),
		cmocka_unit_test(
			test_blocks_are_right_after_a_truncate_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
