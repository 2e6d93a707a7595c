/* The data half of the client core against block daemons that fail on demand
 * (tests/lib/mini_blockd.h): what a write, an fsync, a read and a truncate
 * promise when daemons die between write and sync, lose replies, refuse,
 * answer late or wrongly.
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

static void check_durable(struct dfix *d, struct core_file *f, uint64_t off,
			  const void *want, uint32_t len)
{
	uint8_t *got = malloc(len);

	assert_non_null(got);
	d_peek(d, f, off, len, true, got);
	assert_memory_equal(got, want, len);
	free(got);
}

static void check_read(struct dfix *d, struct core_file *f, uint64_t off,
		       const void *want, uint32_t len)
{
	uint8_t *got = malloc(len);

	assert_non_null(got);
	assert_int_equal(d_read(d, f, off, got, len), len);
	assert_memory_equal(got, want, len);
	free(got);
}

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
	check_read(d, f, 0, p, len);
	check_read(d, f, MIB - 3, p + MIB - 3, 7);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, len);
	check_read(d, f, 0, p, len);
	check_read(d, f, 777777, p + 777777, 2 * MIB);
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
		check_durable(d, f, off, p, len);
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
	check_read(d, f, 0, p, len);
	/* More extents than a read takes one by one. */
	for (uint32_t at = 0; at < 400; at++) {
		d_fill(p + MIB / 2 + at * 1000, 10, at);
		assert_int_equal(d_write(d, f, MIB / 2 + at * 1000,
					 p + MIB / 2 + at * 1000, 10, 0), 0);
	}
	check_read(d, f, 5, p + 5, len - 5);
	assert_int_equal(d_sync(d), 0);
	check_durable(d, f, 0, p, len);
	check_read(d, f, 0, p, len);
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
	check_read(d, f, 0, zero, 3 * MIB);
	assert_int_equal(d_write(d, f, (uint64_t)1 << 60, "y", 1, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	check_read(d, f, ((uint64_t)1 << 60) - 100, zero, 100);
	check_read(d, f, (uint64_t)1 << 60, "y", 1);
	assert_int_equal(d_write(d, f, INT64_MAX, "z", 1, 0), -EFBIG);
	d_close(d, f);
	dfix_stop(d);
	free(zero);
}

/* ---- daemons that forget ---- */

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
	check_read(d, f, 0, p, len);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, len);
	check_read(d, f, 0, p, len);
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
	check_durable(d, f, 0, p, sizeof(p));
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
	check_durable(d, f, 0, p, sizeof(p));
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
	check_durable(d, f, 100000, p, 4096);
	check_durable(d, f, 200000, p, 4096);
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
		check_durable(d, f, round * 4096, a, sizeof(a));
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
		for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
			mini_blockd_lose_replies(d->b[i], 0,
						 1 + (int)round % 3);
		assert_int_equal(d_fsync(d, f), 0);
		check_durable(d, f, 0, p, len);
		for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
			mini_blockd_lose_replies(d->b[i], WIRE_OP_BLK_READ, 1);
		check_read(d, f, 0, p, len);
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
	check_durable(d, f, 0, p, len);
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
	check_durable(d, f, 0, p, len);
	check_read(d, f, 0, p, len);
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
	check_durable(d, f, 0, p, sizeof(p));
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
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], 0, -ESTALE, 3);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, sizeof(p));
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], 0, -ESTALE, 3);
	check_read(d, f, 0, p, sizeof(p));
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], 0, -ESTALE, 2);
	assert_int_equal(d_fallocate(d, f, 0, 0, 5 * MIB), 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], 0, 0, 0);
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

/* ---- overlapping writes ---- */

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
	check_durable(d, f, 100, p, sizeof(p));
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

/* ---- errors ---- */

static void test_every_fsync_fails_until_the_data_is_durable(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[5000];

	(void)state;
	d_fill(p, sizeof(p), 30);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	assert_int_equal(d_sync(d), -ENOSPC);
	check_read(d, f, 0, p, sizeof(p));
	assert_int_equal(core_flush_error(d->f.c, f), -ENOSPC);
	assert_int_equal(core_flush_error(d->f.c, f), 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], WIRE_OP_BLK_WRITE, 0, 0);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, sizeof(p));
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
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], WIRE_OP_BLK_SYNC, -EIO, -1);
	assert_int_equal(d_fsync(d, f), -EIO);
	assert_int_equal(d_fsync(d, f), -EIO);
	/* The store stopped; it comes back through crash recovery. */
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], WIRE_OP_BLK_SYNC, 0, 0);
	d_restart(d, true);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, sizeof(p));
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
	check_durable(d, f, 0, p, 8192);
	/* Overwriting needs no space. */
	d_fill(p, sizeof(p), 33);
	assert_int_equal(d_write(d, f, 0, p, 8192, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, 8192);
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
	check_read(d, f, 0, p, sizeof(p));
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_corrupt(d->b[i], 1000);
	assert_int_equal(d_read(d, f, 0, got, sizeof(got)), -EIO);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_corrupt(d->b[i], 0);
	check_read(d, f, 0, p, sizeof(p));
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

/* ---- memory bound and background ---- */

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
	check_read(d, f, 0, p, len);
	assert_int_equal(d_fsync(d, f), 0);
	check_durable(d, f, 0, p, len);
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
		check_durable(d, f, (uint64_t)i * 300, &byte, 1);
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
		core_write(d->f.c, f, 0, &iov, 1, 1, CORE_WRITE_APPEND,
			   on_append, &errors);
	}
	assert_int_equal(errors, 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_size(d, f), 3000000);
	for (uint32_t i = 0; i < 3000000; i += 9973) {
		uint8_t byte = (uint8_t)(i * 13);

		check_durable(d, f, i, &byte, 1);
	}
	d_close(d, f);
	dfix_stop(d);
}

/* ---- reading ahead ---- */

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
		check_read(d, f, at, p + at, step);
	assert_true(d_received(d, WIRE_OP_BLK_READ) - before < 40);
	/* A write between is seen. */
	for (uint32_t at = 0; at < len; at += step) {
		check_read(d, f, at, p + at, step);
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
			check_read(d, f, at + i * step, p + at + i * step,
				   step);
	uint64_t before = d_received(d, WIRE_OP_BLK_READ);
	for (uint32_t at = 0; at < len; at += step)
		check_read(d, f, at, p + at, step);
	assert_true(d_received(d, WIRE_OP_BLK_READ) - before < 48);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

/* ---- copies ---- */

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

static int copy(struct dfix *d, const struct core_copy *p, size_t *done)
{
	struct copying y = { fix_call_new(), 0 };
	int err;

	core_copy(d->f.c, p, on_copied, &y);
	err = fix_call_end(y.k, NULL);
	*done = y.done;
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
	check_read(d, b, 5, p + 77, 5 * MIB - 77);
	y.off_in = 5 * MIB;
	assert_int_equal(copy(d, &y, &done), 0);
	assert_int_equal(done, 0);
	/* A bounded piece: who copies more comes again. */
	assert_int_equal(d_truncate(d, a, 2 * (uint64_t)CORE_COPY_MAX), 0);
	y = (struct core_copy){ a, b, 0, 0, 2 * (size_t)CORE_COPY_MAX, false };
	assert_int_equal(copy(d, &y, &done), 0);
	assert_int_equal(done, CORE_COPY_MAX);
	assert_int_equal(d_size(d, b), CORE_COPY_MAX);
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
	assert_int_equal(copy(d, &y, &done), 0);
	assert_int_equal(done, 2 * MIB);
	y.off_in += done;
	y.off_out += done;
	assert_int_equal(copy(d, &y, &done), -EFBIG);
	d_close(d, a);
	d_close(d, b);
	dfix_kill(d);
	free(p);
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
			test_a_daemon_that_knows_a_newer_cut_is_asked_again),
		cmocka_unit_test(
			test_a_mount_that_dies_leaves_no_memory_behind),
		cmocka_unit_test(
			test_content_behind_a_frame_in_flight_follows_it),
		cmocka_unit_test(test_content_behind_two_frames_waits_for_both),
		cmocka_unit_test(
			test_fsync_returns_though_somebody_goes_on_writing),
		cmocka_unit_test(
			test_every_fsync_fails_until_the_data_is_durable),
		cmocka_unit_test(
			test_a_failed_sync_fails_fsync_and_keeps_the_data),
		cmocka_unit_test(
			test_a_nearly_full_daemon_refuses_the_write_itself),
		cmocka_unit_test(test_wrong_checksums_are_never_read),
		cmocka_unit_test(test_a_fenced_mount_says_eio_to_everything),
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
