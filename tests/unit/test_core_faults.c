/* The data half of the client core against block daemons that fail on demand
 * (tests/lib/mini_blockd.h): what a write, an fsync and a read promise when
 * daemons die between write and sync, lose replies, move, refuse, answer late
 * or wrongly.
 *
 * Method: operations through the public contract (core.h); promises are
 * checked in the daemons' memory, where what is durable is known exactly.
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

static void test_a_daemon_killed_between_write_and_sync_gets_all_again(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 4 * MIB;
	uint8_t *p = malloc(len);

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 4);
	/* Acknowledged by the daemons, durable nowhere. */
	assert_int_equal(d_write(d, f, 0, p, len, CORE_WRITE_DIRECT), 0);
	d_restart(d, true);
	d_check_read(d, f, 0, p, len);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, len);
	d_check_read(d, f, 0, p, len);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_a_restart_while_fsync_waits_makes_it_wait_for_newer_content(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t a[8192], b[4096], got[8192];
	struct fix_call *k;

	(void)state;
	d_fill(a, sizeof(a), 5);
	d_fill(b, sizeof(b), 6);
	assert_int_equal(d_write(d, f, 0, a, sizeof(a), CORE_WRITE_DIRECT), 0);
	d_hold(d, WIRE_OP_BLK_SYNC, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	/* Replaces half of what the fsync waits for, and stays here. */
	assert_int_equal(d_write(d, f, 0, b, sizeof(b), 0), 0);
	d_restart(d, true);
	d_hold(d, WIRE_OP_BLK_SYNC, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_peek(d, f, 0, 8192, true, got);
	assert_memory_equal(got, b, 4096);
	assert_memory_equal(got + 4096, a + 4096, 4096);
	d_close(d, f);
	dfix_stop(d);
}

/* The daemon that has block @index of @f, which was written. */
static struct mini_blockd *daemon_of(struct dfix *d, struct core_file *f,
				     uint64_t index)
{
	uint8_t byte;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		if (mini_blockd_peek(d->b[i], core_file_ino(f), index, 0, 1,
				     false, &byte))
			return d->b[i];
	fail();
	return NULL;
}

static void test_content_replaced_while_its_daemon_forgot_it_is_waited_for(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct mini_blockd *b;
	uint8_t p[4096];
	struct fix_call *k;

	(void)state;
	d_fill(p, sizeof(p), 60);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), CORE_WRITE_DIRECT), 0);
	assert_int_equal(d_write(d, f, MIB, p, sizeof(p), CORE_WRITE_DIRECT),
			 0);
	b = daemon_of(d, f, 0);
	d_hold(d, WIRE_OP_BLK_SYNC, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 2);
	/* All of what the fsync waits for there is replaced, and lost. */
	d_fill(p, sizeof(p), 61);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	mini_blockd_hold(b, 0, true);
	mini_blockd_restart(b, true);
	/* the SYNC again, and the newer content */
	wait_until(mini_blockd_held(b) == 2);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		if (d->b[i] != b)
			mini_blockd_hold(d->b[i], 0, false);
	assert_false(fix_call_wait(k, 100));
	mini_blockd_hold(b, 0, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_sync_covers_nothing_written_after_it(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192];
	struct fix_call *k;

	(void)state;
	d_fill(p, sizeof(p), 62);
	assert_int_equal(d_write(d, f, 0, p, 4096, CORE_WRITE_DIRECT), 0);
	d_hold_replies(d, WIRE_OP_BLK_SYNC, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	assert_int_equal(d_write(d, f, 4096, p + 4096, 4096,
				 CORE_WRITE_DIRECT), 0);
	d_hold_replies(d, WIRE_OP_BLK_SYNC, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_restart(d, true);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	/* The same with the SYNC inside of a write. */
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(d_write(d, f, 100000, p, 4096, 0), 0);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	struct fix_call *w = d_write_start(d, f, 200000, p, 4096,
					   CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 2);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(w, NULL), 0);
	d_restart(d, true);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 100000, p, 4096);
	d_check_durable(d, f, 200000, p, 4096);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_sync_of_the_old_boot_covers_nothing_of_the_new(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t a[4096];
	struct fix_call *k;

	(void)state;
	for (uint32_t round = 0; round < 20; round++) {
		d_fill(a, sizeof(a), 50 + round);
		assert_int_equal(d_write(d, f, round * 4096, a, sizeof(a),
					 CORE_WRITE_DIRECT), 0);
		d_hold(d, WIRE_OP_BLK_SYNC, true);
		k = d_fsync_start(d, f);
		wait_until(d_held(d) == 1);
		d_restart(d, true);
		if (round % 2)
			d_restart(d, true);
		d_hold(d, WIRE_OP_BLK_SYNC, false);
		assert_int_equal(fix_call_end(k, NULL), 0);
		d_check_durable(d, f, round * 4096, a, sizeof(a));
	}
	d_close(d, f);
	dfix_stop(d);
}

static void test_lost_replies_and_connections_change_nothing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 3 * MIB;
	uint8_t *p = malloc(len);

	(void)state;
	assert_non_null(p);
	for (uint32_t round = 0; round < 8; round++) {
		d_fill(p, len, 7 + round);
		assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
		d_lose_replies(d, 0, 1 + (int)round % 3);
		assert_int_equal(d_fsync(d, f), 0);
		d_check_durable(d, f, 0, p, len);
		d_lose_replies(d, WIRE_OP_BLK_READ, 1);
		d_check_read(d, f, 0, p, len);
	}
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_a_dead_daemon_is_waited_for(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 3 * MIB;
	uint8_t *p = malloc(len);
	struct fix_call *k;

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 8);
	assert_int_equal(d_write(d, f, 0, p, len, 0), 0);
	mini_blockd_down(d->b[1]);
	k = d_fsync_start(d, f);
	assert_false(fix_call_wait(k, 100));
	mini_blockd_up(d->b[1], true);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_check_durable(d, f, 0, p, len);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_a_daemon_that_moves_is_followed(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = 3 * MIB;
	uint8_t *p = malloc(len);
	struct cmap *map;
	struct fix_call *k;

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 12);
	assert_int_equal(d_write(d, f, 0, p, len, CORE_WRITE_DIRECT), 0);
	d_fill(p + 100, 5000, 13);
	assert_int_equal(d_write(d, f, 100, p + 100, 5000, 0), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) >= 1);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_move(d->b[i]);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	assert_false(fix_call_wait(k, 50));
	core_lock(d->f.c);
	map = cmap_dup(d->f.c->blk->map);
	core_unlock(d->f.c);
	assert_non_null(map);
	map->epoch++;
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		map->daemons[i].port = mini_blockd_port(d->b[i]);
	assert_int_equal(blk_client_set_map(d->f.c, map), 0);
	cmap_free(map);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_check_durable(d, f, 0, p, len);
	d_check_read(d, f, 0, p, len);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

static void test_a_soft_mount_gives_up(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .timeout_ms = 200 });
	struct core_file *f = d_create(d, "f");
	uint8_t p[4096];

	(void)state;
	d_fill(p, sizeof(p), 9);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	d_hold(d, 0, true);
	assert_int_not_equal(d_fsync(d, f), 0);
	assert_int_equal(d_read(d, f, 0, p, 10), -EIO);
	assert_int_equal(d_write(d, f, 0, p, 10, 0), -EIO);
	assert_int_not_equal(core_flush_error(d->f.c, f), 0);
	assert_int_equal(core_flush_error(d->f.c, f), 0);
	d_hold(d, 0, false);
	/* Truncating makes it good again. */
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	d_close(d, f);
	dfix_stop(d);
}

/* Holes read as zeros. What was refused to the writer may be at a daemon, or
 * come there: nothing of it shows when the file grows over it. */
static void check_grows_with_zeros(struct dfix *d, struct core_file *f,
				   uint64_t size)
{
	uint8_t *zero = calloc(1, 2 * MIB);

	assert_non_null(zero);
	assert_int_equal(d_size(d, f), size);
	assert_int_equal(d_truncate(d, f, size + 2 * MIB), 0);
	d_check_read(d, f, size, zero, 2 * MIB);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, size, zero, 2 * MIB);
	free(zero);
}

static void test_a_soft_mounts_late_write_leaves_nothing_behind_the_end(
	void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .timeout_ms = 200 });
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 11);
	assert_int_equal(d_write(d, f, 0, p, 4096, CORE_WRITE_DIRECT), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	assert_int_equal(d_write(d, f, 4096, p + 4096, 4096,
				 CORE_WRITE_DIRECT), -ETIMEDOUT);
	assert_int_equal(d_size(d, f), 4096);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	wait_until(d_executed(d, WIRE_OP_BLK_WRITE) == 2);
	check_grows_with_zeros(d, f, 4096);
	d_check_read(d, f, 0, p, 4096);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_write_refused_when_sent_again_leaves_nothing_behind_the_end(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *k;
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 12);
	assert_int_equal(d_write(d, f, 0, p, 4096, CORE_WRITE_DIRECT), 0);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	k = d_write_start(d, f, 4096, p + 4096, 4096, CORE_WRITE_DIRECT);
	wait_until(d_executed(d, WIRE_OP_BLK_WRITE) == 2);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_drop(d->b[i]);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	d_fail(d, 0, 0, 0);
	check_grows_with_zeros(d, f, 4096);
	d_check_read(d, f, 0, p, 4096);
	d_close(d, f);
	dfix_stop(d);
}

/* One block is there, its daemon starts again and takes no more; neither does
 * that of the other. */
static void test_a_write_refused_after_a_restart_leaves_nothing_behind_the_end(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t *p = malloc(2 * MIB);
	struct fix_call *k;

	(void)state;
	assert_non_null(p);
	d_fill(p, 2 * MIB, 13);
	mini_blockd_hold(d->b[0], WIRE_OP_BLK_WRITE, true);
	k = d_write_start(d, f, 0, p, 2 * MIB, CORE_WRITE_DIRECT);
	wait_until(mini_blockd_held(d->b[0]) == 1 &&
		   mini_blockd_executed(d->b[1], WIRE_OP_BLK_WRITE) == 1);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	mini_blockd_restart(d->b[1], false);
	wait_until(mini_blockd_executed(d->b[1], WIRE_OP_BLK_WRITE) == 2);
	mini_blockd_hold(d->b[0], WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	d_fail(d, 0, 0, 0);
	check_grows_with_zeros(d, f, 0);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

/* Far behind the end: nor does it leave the file longer up to where it was to
 * begin. What others wrote meanwhile stays. */
static void test_a_refused_write_leaves_the_size_that_was(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *k, *l;
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 14);
	assert_int_equal(d_write(d, f, 0, p, 100, CORE_WRITE_DIRECT), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	/* The end of the one is below the beginning of the other. */
	k = d_write_start(d, f, MIB, p, 4096, CORE_WRITE_DIRECT);
	l = d_write_start(d, f, 3 * MIB, p, 4096, CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 2);
	assert_int_equal(d_write(d, f, 100, p + 100, 200, 0), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	assert_int_equal(fix_call_end(l, NULL), -ENOSPC);
	d_fail(d, 0, 0, 0);
	check_grows_with_zeros(d, f, 300);
	d_check_read(d, f, 0, p, 300);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_soft_mount_gives_up_what_is_not_synced(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .timeout_ms = 100 });
	struct core_file *f = d_create(d, "f");
	uint8_t p[4096];

	(void)state;
	d_fill(p, sizeof(p), 9);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), CORE_WRITE_DIRECT), 0);
	d_hold(d, WIRE_OP_BLK_SYNC, true);
	assert_int_not_equal(d_fsync(d, f), 0);
	assert_int_equal(d_read(d, f, 0, p, 10), -EIO);
	d_hold(d, WIRE_OP_BLK_SYNC, false);
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_daemon_that_knows_a_newer_cut_is_asked_again(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[4096];

	(void)state;
	d_fill(p, sizeof(p), 10);
	d_fail(d, 0, -ESTALE, 3);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	d_fail(d, 0, -ESTALE, 3);
	d_check_read(d, f, 0, p, sizeof(p));
	d_fail(d, 0, -ESTALE, 2);
	assert_int_equal(d_fallocate(d, f, 0, 0, 5 * MIB), 0);
	d_fail(d, 0, 0, 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_mount_that_dies_leaves_no_memory_behind(void **state)
{
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 11);
	for (uint32_t round = 0; round < 4; round++) {
		struct dfix *d = dfix_new(NULL);
		struct core_file *f = d_create(d, "f"), *g = d_create(d, "g");
		struct fix_call *k[3];

		assert_int_equal(d_write(d, f, 0, p, 8192, CORE_WRITE_DIRECT),
				 0);
		if (round == 1)
			d_hold(d, 0, true);
		if (round == 2)
			d_hold(d, WIRE_OP_BLK_WRITE, true);
		k[0] = d_write_start(d, f, 4096, p, 8192,
				     round ? CORE_WRITE_DIRECT : 0);
		k[1] = d_fsync_start(d, f);
		k[2] = fix_call_new();
		core_truncate(d->f.c, core_file_ino(f), 10, false, on_attr,
			      k[2]);
		assert_int_equal(d_write(d, g, 100, p, 100, 0), 0);
		if (round == 3)
			pause_ms(20);
		d_close(d, f);
		d_close(d, g);
		dfix_kill(d);
		for (uint32_t i = 0; i < 3; i++)
			(void)fix_call_end(k[i], NULL);
	}
}

static void test_every_fsync_fails_until_the_data_is_durable(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[5000];

	(void)state;
	d_fill(p, sizeof(p), 30);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	assert_int_equal(d_sync(d), -ENOSPC);
	d_check_read(d, f, 0, p, sizeof(p));
	assert_int_equal(core_flush_error(d->f.c, f), -ENOSPC);
	assert_int_equal(core_flush_error(d->f.c, f), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, 0, 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_failed_sync_fails_fsync_and_keeps_the_data(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[5000];

	(void)state;
	d_fill(p, sizeof(p), 31);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), CORE_WRITE_DIRECT), 0);
	d_fail(d, WIRE_OP_BLK_SYNC, -EIO, -1);
	assert_int_equal(d_fsync(d, f), -EIO);
	assert_int_equal(d_fsync(d, f), -EIO);
	/* The store stopped; it comes back through crash recovery. */
	d_fail(d, WIRE_OP_BLK_SYNC, 0, 0);
	d_restart(d, true);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, sizeof(p));
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_nearly_full_daemon_refuses_the_write_itself(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 32);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_set_free(d->b[i], 2);
	/* Tells the mount how little there is. */
	d_restart(d, false);
	struct statvfs st;
	struct fix_call *k = fix_call_new();
	core_statfs(d->f.c, &st, on_err, k);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(st.f_bavail, 6);
	assert_int_equal(d_write(d, f, 0, p, 8192, 0), 0);
	assert_int_equal(d_write(d, f, 8192, p, 8192, 0), -ENOSPC);
	assert_int_equal(d_size(d, f), 8192);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, 8192);
	/* Overwriting needs no space. */
	d_fill(p, sizeof(p), 33);
	assert_int_equal(d_write(d, f, 0, p, 8192, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, 8192);
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(d_write(d, f, 0, p, 4096, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

static void test_wrong_checksums_are_never_read(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[10000], got[10000];

	(void)state;
	d_fill(p, sizeof(p), 34);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_corrupt(d->b[i], 1);
	d_check_read(d, f, 0, p, sizeof(p));
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_corrupt(d->b[i], 1000);
	assert_int_equal(d_read(d, f, 0, got, sizeof(got)), -EIO);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_corrupt(d->b[i], 0);
	d_check_read(d, f, 0, p, sizeof(p));
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_fenced_mount_says_eio_to_everything(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[10000];
	struct fix_call *k;

	(void)state;
	d_fill(p, sizeof(p), 35);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fence(d->b[i]);
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	assert_int_equal(d_write(d, f, 0, p, 10, 0), -EIO);
	assert_int_equal(d_read(d, f, 0, p, 10), -EIO);
	assert_int_equal(d_fsync(d, f), -EIO);
	assert_int_equal(d_sync(d), -EIO);
	assert_int_equal(d_truncate(d, f, 0), -EIO);
	d_close(d, f);
	dfix_kill(d);
}

static bool is_clean(struct core *c, const struct core_inode *in)
{
	core_lock(c);
	bool clean = !in->wb || wb_inode_clean(in);
	core_unlock(c);
	return clean;
}

/* Dropping the bytes of a deleted file makes it clean, which queues it for
 * giving back: while it is being taken off that queue. */
static void test_a_deleted_dirty_file_in_use_is_queued_once(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core *c = d->f.c;
	struct core_file *f = d_create(d, "f");
	struct core_file *g = d_create(d, "g");
	uint64_t ino = core_file_ino(f);
	struct core_inode *in;
	static uint8_t p[DBLOCK];
	struct fix_call *k;

	(void)state;
	d_fill(p, sizeof(p), 7);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	k = d_write_start(d, f, 0, p, sizeof(p), 0);
	wait_until(d_held(d) == 1);
	core_lock(c);
	in = inode_find(c, ino);
	inode_pin(in); /* an operation of it is under way */
	core_unlock(c);
	assert_int_equal(op_unlink(&d->f, ROOT_INO, "f", false), 0);
	core_forget(c, ino, 1);
	core_release(c, f); /* what is on its way cannot be dropped */
	assert_false(is_clean(c, in));
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	d_restart(d, true);
	wait_until(is_clean(c, in));
	assert_int_equal(fix_call_end(k, NULL), 0);
	/* The next ones in the queue. */
	assert_int_equal(d_write(d, g, 0, p, 4096, 0), 0);
	assert_int_equal(d_fsync(d, g), 0);
	d_close(d, g);
	pause_ms(100);
	core_lock(c);
	inode_unpin(c, in);
	core_unlock(c);
	wait_until(mini_metad_purge_count(d->f.m) == 1);
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_a_daemon_killed_between_write_and_sync_gets_all_again),
		cmocka_unit_test(
			test_a_restart_while_fsync_waits_makes_it_wait_for_newer_content),
		cmocka_unit_test(
			test_content_replaced_while_its_daemon_forgot_it_is_waited_for),
		cmocka_unit_test(test_a_sync_covers_nothing_written_after_it),
		cmocka_unit_test(
			test_a_sync_of_the_old_boot_covers_nothing_of_the_new),
		cmocka_unit_test(
			test_lost_replies_and_connections_change_nothing),
		cmocka_unit_test(test_a_dead_daemon_is_waited_for),
		cmocka_unit_test(test_a_daemon_that_moves_is_followed),
		cmocka_unit_test(test_a_soft_mount_gives_up),
		cmocka_unit_test(test_a_soft_mount_gives_up_what_is_not_synced),
		cmocka_unit_test(
			test_a_soft_mounts_late_write_leaves_nothing_behind_the_end),
		cmocka_unit_test(
			test_a_write_refused_when_sent_again_leaves_nothing_behind_the_end),
		cmocka_unit_test(
			test_a_write_refused_after_a_restart_leaves_nothing_behind_the_end),
		cmocka_unit_test(
			test_a_refused_write_leaves_the_size_that_was),
		cmocka_unit_test(
			test_a_daemon_that_knows_a_newer_cut_is_asked_again),
		cmocka_unit_test(
			test_a_mount_that_dies_leaves_no_memory_behind),
		cmocka_unit_test(
			test_every_fsync_fails_until_the_data_is_durable),
		cmocka_unit_test(
			test_a_failed_sync_fails_fsync_and_keeps_the_data),
		cmocka_unit_test(
			test_a_nearly_full_daemon_refuses_the_write_itself),
		cmocka_unit_test(test_wrong_checksums_are_never_read),
		cmocka_unit_test(
			test_a_deleted_dirty_file_in_use_is_queued_once),
		cmocka_unit_test(test_a_fenced_mount_says_eio_to_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
