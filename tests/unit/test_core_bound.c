/* The bound of the write-back buffer, and block daemons that nobody finds:
 * neither may stop writers for ever.
 *
 * Method: a small bound, filled by what is not written back: files that are
 * open, and readers of what was buffered.
 */
#include "fuse/core/blk_priv.h"
#include "tests/lib/data_fix.h"
#include "tests/lib/fake_names.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define KIB 1024u
#define MIB (1u << 20)

/* Each has been written: what the mount keeps for the next write to it comes
 * out of the bound. */
static void test_any_number_of_files_may_be_open_for_writing(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = 8 * KIB });
	struct core_file *f[60];

	(void)state;
	for (uint32_t i = 0; i < array_count(f); i++) {
		char name[8];

		snprintf(name, sizeof(name), "f%u", i);
		f[i] = d_create(d, name);
		assert_int_equal(d_write(d, f[i], 0, name, 4, 0), 0);
	}
	assert_int_equal(d_sync(d), 0);
	for (uint32_t i = 0; i < array_count(f); i++) {
		assert_int_equal(d_write(d, f[i], 4, "new", 3, 0), 0);
		d_check_read(d, f[i], 4, "new", 3);
	}
	assert_int_equal(d_sync(d), 0);
	for (uint32_t i = 0; i < array_count(f); i++) {
		d_check_durable(d, f[i], 4, "new", 3);
		d_close(d, f[i]);
	}
	dfix_stop(d);
}

static bool all_clean(struct dfix *d)
{
	bool clean;

	core_lock(d->f.c);
	clean = wb_clean(d->f.c);
	core_unlock(d->f.c);
	return clean;
}

struct reader {
	struct fix_call *k;
	size_t len;
};

static void on_bytes_read(void *arg, int err, const struct iovec *iov,
			  int iov_count, size_t len)
{
	struct reader *r = arg;

	(void)iov;
	(void)iov_count;
	r->len = len;
	fix_call_done(r->k, err);
}

/* The reader waits for a daemon, and has a buffer that is durable already. */
static void test_a_writer_goes_on_when_a_reader_lets_go_of_memory(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = 256 * KIB });
	struct core_file *f = d_create(d, "f");
	struct reader r = { .k = fix_call_new() };
	uint32_t len = 512 * KIB;
	uint8_t *p = malloc(len);
	struct fix_call *w;

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 1);
	assert_int_equal(d_write(d, f, MIB, p, len, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	d_hold_replies(d, WIRE_OP_BLK_READ, true);
	assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
	core_read(d->f.c, f, 0, 2 * MIB, on_bytes_read, &r);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	wait_until(all_clean(d));
	w = d_write_start(d, f, 0, "new", 3, 0);
	assert_false(fix_call_wait(w, 50));
	d_hold_replies(d, WIRE_OP_BLK_READ, false);
	assert_int_equal(fix_call_end(r.k, NULL), 0);
	assert_int_equal(r.len, MIB + len);
	assert_int_equal(fix_call_end(w, NULL), 0);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

/* The map the mount has, with one more daemon that is known by name. */
static struct mini_blockd *one_more(struct dfix *d, const char *name)
{
	struct cmap *map = cmap_dup(d->f.c->blk->map);
	struct cmap_daemon more = { .id = 99, .state = CMAP_STATE_UP };
	struct mini_blockd *b;

	assert_non_null(map);
	assert_int_equal(mini_blockd_new(more.id,
					 mini_metad_cluster_id(d->f.m), &b),
			 0);
	more.port = mini_blockd_port(b);
	snprintf(more.addr, sizeof(more.addr), "%s", name);
	assert_true(cmap_add_daemon(map, &more) >= 0);
	cmap_fill_slots(map);
	assert_int_equal(blk_client_set_map(d->f.c, map), 0);
	cmap_free(map);
	return b;
}

static void test_a_daemon_whose_name_nobody_knows_is_waited_for(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct mini_blockd *b;
	uint8_t p[4] = "new";
	struct fix_call *s;

	(void)state;
	fake_names_set("blockd.test", FAKE_NAMES_UNKNOWN);
	b = one_more(d, "blockd.test");
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(d_write(d, f, i * MIB, p, 4, 0), 0);
	s = d_fsync_start(d, f);
	while (fake_names_asked() < 3)
		sched_yield();
	assert_false(fix_call_wait(s, 0));
	fake_names_set("blockd.test", "127.0.0.1");
	assert_int_equal(fix_call_end(s, NULL), 0);
	assert_true(mini_blockd_executed(b, WIRE_OP_BLK_WRITE) > 0);
	for (uint32_t i = 0; i < 16; i++)
		d_check_read(d, f, i * MIB, p, 4);
	d_close(d, f);
	dfix_stop(d);
	mini_blockd_free(b);
}

static void test_a_soft_mount_gives_an_unknown_name_up(void **state)
{
	struct dfix_options o = { .timeout_ms = 300 };
	struct dfix *d = dfix_new(&o);
	struct core_file *f = d_create(d, "f");
	struct mini_blockd *b;
	uint32_t bad = 0;
	uint8_t got[4];
	ssize_t rv;

	(void)state;
	fake_names_set("blockd.test", FAKE_NAMES_UNKNOWN);
	b = one_more(d, "blockd.test");
	assert_int_equal(d_truncate(d, f, 16 * MIB), 0);
	for (uint32_t i = 0; i < 16; i++) {
		rv = d_read(d, f, i * MIB, got, 4);
		bad += rv == -ETIMEDOUT;
		assert_true(rv == -ETIMEDOUT || rv == 4);
	}
	assert_true(bad > 0);
	fake_names_set("blockd.test", "127.0.0.1");
	while (mini_blockd_executed(b, WIRE_OP_BLK_STAT) == 0)
		sched_yield();
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(d_read(d, f, i * MIB, got, 4), 4);
	d_close(d, f);
	dfix_stop(d);
	mini_blockd_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_any_number_of_files_may_be_open_for_writing),
		cmocka_unit_test(
			test_a_writer_goes_on_when_a_reader_lets_go_of_memory),
		cmocka_unit_test(
			test_a_daemon_whose_name_nobody_knows_is_waited_for),
		cmocka_unit_test(test_a_soft_mount_gives_an_unknown_name_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
