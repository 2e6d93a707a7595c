/* A mount that has not heard of metad for longer than its right to serve lasts
 * answers nothing by itself any more: what it has in buffers may be old, since
 * metad may have let another in. It asks metad, and goes on with the answer.
 *
 * Method: keepalives are not answered, and the time of the last answer is put
 * back; then the answer that the operation must wait for is held.
 */
#include "fuse/core/meta_priv.h"
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define LEN 8192u

/* The right has run out, and no keepalive brings it back. */
static void lapse(struct dfix *d)
{
	struct core *c = d->f.c;

	mini_metad_hold_keepalives(d->f.m, true);
	/* The next is sent when the one before was answered. */
	wait_until(mini_metad_keepalive_held(d->f.m));
	core_lock(c);
	assert_true(c->meta->keepalive_busy);
	c->meta->alive_ms -= META_SERVE_MS;
	assert_false(meta_may_serve(c));
	core_unlock(c);
}

static bool serves(struct core *c)
{
	bool ok;

	core_lock(c);
	ok = meta_may_serve(c);
	core_unlock(c);
	return ok;
}

static void restore(struct dfix *d)
{
	mini_metad_hold_keepalives(d->f.m, false);
	wait_until(serves(d->f.c));
}

struct reading {
	struct fix_call *k;
	uint8_t got[LEN];
	size_t len;
};

static void on_read(void *arg, int err, const struct iovec *iov, int iov_count,
		    size_t len)
{
	struct reading *r = arg;

	r->len = 0;
	for (int i = 0; i < iov_count; i++) {
		memcpy(r->got + r->len, iov[i].iov_base, iov[i].iov_len);
		r->len += iov[i].iov_len;
	}
	assert_int_equal(r->len, len);
	fix_call_done(r->k, err);
}

static void read_start(struct dfix *d, struct core_file *f, uint64_t off,
		       struct reading *r)
{
	r->k = fix_call_new();
	core_read(d->f.c, f, off, LEN, on_read, r);
}

/* The read waits for metad's word, whatever is known here. */
static void check_read_waits(struct dfix *d, struct core_file *f, uint64_t off,
			     const void *want, size_t len)
{
	struct reading r;

	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, true);
	read_start(d, f, off, &r);
	assert_false(fix_call_wait(r.k, 50));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, false);
	assert_int_equal(fix_call_end(r.k, NULL), 0);
	assert_int_equal(r.len, len);
	assert_memory_equal(r.got, want, len);
}

static void test_a_read_of_buffered_bytes_asks_metad(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t bytes[LEN];

	(void)state;
	d_fill(bytes, LEN, 1);
	assert_int_equal(d_write(d, f, 0, bytes, LEN, 0), 0);
	lapse(d);
	check_read_waits(d, f, 0, bytes, LEN);
	/* "nothing there" is an answer too */
	check_read_waits(d, f, LEN, bytes, 0);
	assert_int_equal(d_executed(d, WIRE_OP_BLK_READ), 0);
	restore(d);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_read_of_bytes_read_ahead_asks_metad(void **state)
{
	const struct dfix_options o = { .prefetch_bytes_max = 4u << 20 };
	struct dfix *d = dfix_new(&o);
	struct core_file *f = d_create(d, "f");
	uint8_t bytes[16 * LEN];
	struct reading r;
	uint64_t asked;

	(void)state;
	d_fill(bytes, sizeof(bytes), 2);
	assert_int_equal(d_write(d, f, 0, bytes, sizeof(bytes), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	for (unsigned i = 0; i < 3; i++) {
		read_start(d, f, i * LEN, &r);
		assert_int_equal(fix_call_end(r.k, NULL), 0);
	}
	asked = d_received(d, WIRE_OP_BLK_READ);
	lapse(d);
	check_read_waits(d, f, 3 * LEN, bytes + 3 * LEN, LEN);
	/* It was there. */
	assert_int_equal(d_received(d, WIRE_OP_BLK_READ), asked);
	restore(d);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_write_is_not_taken_before_metad_is_asked(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t bytes[LEN];
	struct fix_call *k;
	uint64_t at;

	(void)state;
	d_fill(bytes, LEN, 3);
	lapse(d);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, true);
	k = d_write_start(d, f, 0, bytes, LEN, 0);
	assert_false(fix_call_wait(k, 50));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	/* where the file has data is known here as well */
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, true);
	k = fix_call_new();
	core_seek(d->f.c, core_file_ino(f), 0, SEEK_DATA, &at, on_err, k);
	assert_false(fix_call_wait(k, 50));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_GETATTR, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	restore(d);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_truncate_is_not_answered_ahead_of_metad(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t bytes[LEN];
	struct fix_call *k;

	(void)state;
	d_fill(bytes, LEN, 4);
	assert_int_equal(d_write(d, f, 0, bytes, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	lapse(d);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	k = fix_call_new();
	core_truncate(d->f.c, core_file_ino(f), 100, false, on_attr, k);
	assert_false(fix_call_wait(k, 50));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(d_size(d, f), 100);
	restore(d);
	d_close(d, f);
	dfix_stop(d);
}

static bool on_entry(void *arg, const struct meta_dirent *e,
		     const struct meta_attr *a)
{
	(void)e;
	(void)a;
	*(unsigned *)arg += 1;
	return true;
}

struct listing {
	unsigned count; /* first: on_entry()'s */
	struct fix_call *k;
};

static void on_listed(void *arg, int err)
{
	fix_call_done(((struct listing *)arg)->k, err);
}

static unsigned list_root(struct dfix *d)
{
	struct listing l = { 0, fix_call_new() };

	core_readdir(d->f.c, ROOT_INO, 0, 65536, false, on_entry, on_listed,
		     &l);
	assert_int_equal(fix_call_end(l.k, NULL), 0);
	return l.count;
}

static void test_a_listing_begins_at_metad(void **state)
{
	struct dfix *d = dfix_new(NULL);
	uint64_t asked;

	(void)state;
	d_close(d, d_create(d, "f"));
	assert_int_equal(list_root(d), 1);
	asked = mini_metad_received(d->f.m, WIRE_OP_META_READDIR);
	assert_int_equal(list_root(d), 1);
	assert_int_equal(mini_metad_received(d->f.m, WIRE_OP_META_READDIR),
			 asked);
	lapse(d);
	assert_int_equal(list_root(d), 1);
	assert_int_equal(mini_metad_received(d->f.m, WIRE_OP_META_READDIR),
			 asked + 1);
	restore(d);
	dfix_stop(d);
}

/* Another took over meanwhile. */
static void test_a_fenced_mount_reads_and_takes_nothing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t bytes[LEN];
	struct reading r;

	(void)state;
	d_fill(bytes, LEN, 5);
	assert_int_equal(d_write(d, f, 0, bytes, LEN, 0), 0);
	lapse(d);
	mini_metad_fence(d->f.m);
	read_start(d, f, 0, &r);
	assert_int_equal(fix_call_end(r.k, NULL), -EIO);
	assert_int_equal(d_write(d, f, 0, bytes, LEN, 0), -EIO);
	assert_int_equal(d_seek(d, f, 0, SEEK_DATA), -EIO);
	mini_metad_hold_keepalives(d->f.m, false);
	d_close(d, f);
	dfix_kill(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_read_of_buffered_bytes_asks_metad),
		cmocka_unit_test(test_a_read_of_bytes_read_ahead_asks_metad),
		cmocka_unit_test(
			test_a_write_is_not_taken_before_metad_is_asked),
		cmocka_unit_test(
			test_a_truncate_is_not_answered_ahead_of_metad),
		cmocka_unit_test(test_a_listing_begins_at_metad),
		cmocka_unit_test(test_a_fenced_mount_reads_and_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
