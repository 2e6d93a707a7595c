/* What the client core owes for content that newer content replaced, or that a
 * daemon refused, executed twice, or had to give up: an fsync answers 0 only
 * when what it promised, or newer content, is durable; what was acknowledged
 * stays readable; and metad hears the true number of units.
 *
 * Method: frames are stopped at daemons in memory (tests/lib/mini_blockd.h) at
 * the moment that matters, then fail, or lose their answers.
 */
#include "common/place.h"
#include "fuse/core/blk_priv.h"
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 8192u

static struct fix_call *sync_start(struct dfix *d, struct core_file *f,
				   bool global)
{
	struct fix_call *k;

	if (!global)
		return d_fsync_start(d, f);
	k = fix_call_new();
	core_sync_all(d->f.c, on_err, k);
	return k;
}

/* ---- content replaced in flight ---- */

/* The answer to older content is @err, when newer content, unsent, has taken
 * all its bytes: whoever waited for the older waits for the newer. */
static void replaced_in_flight(int err, bool global)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t a[LEN], b[LEN];
	struct fix_call *k;

	d_fill(a, sizeof(a), 1);
	d_fill(b, sizeof(b), 2);
	assert_int_equal(d_write(d, f, 0, a, LEN, 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, err, 1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	k = sync_start(d, f, global);
	wait_until(d_held(d) == 1);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_write(d, f, 0, b, LEN, 0), 0);
	/* The error goes out; the newer content gets no further than there. */
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	wait_until(d_received(d, WIRE_OP_BLK_WRITE) == 2);
	assert_false(fix_call_wait(k, 50));
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_check_durable(d, f, 0, b, LEN);
	d_close(d, f);
	dfix_stop(d);
}

static void test_fsync_waits_for_what_replaced_a_frame_without_memory(
	void **state)
{
	(void)state;
	replaced_in_flight(-ENOMEM, false);
	replaced_in_flight(-ENOMEM, true);
}

static void test_fsync_waits_for_what_replaced_a_frame_of_an_old_cut(
	void **state)
{
	(void)state;
	replaced_in_flight(-ESTALE, false);
	replaced_in_flight(-ESTALE, true);
}

static void test_fsync_fails_with_what_replaced_a_refused_frame(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t a[LEN], b[LEN];
	struct fix_call *k;

	(void)state;
	d_fill(a, sizeof(a), 3);
	d_fill(b, sizeof(b), 4);
	assert_int_equal(d_write(d, f, 0, a, LEN, 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	assert_int_equal(d_write(d, f, 0, b, LEN, 0), 0);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	d_check_read(d, f, 0, b, LEN);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, b, LEN);
	d_close(d, f);
	dfix_stop(d);
}

/* ---- a write-through write that is refused ---- */

/* After @p, wholly or in part acknowledged, was refused: there to be read, and
 * every fsync fails until it is durable. */
static void check_kept(struct dfix *d, struct core_file *f, const uint8_t *p)
{
	assert_int_equal(d_size(d, f), LEN);
	d_check_read(d, f, 0, p, LEN);
	assert_int_equal(d_fsync(d, f), -ENOSPC);
	d_check_read(d, f, 0, p, LEN);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 0, p, LEN);
	d_check_read(d, f, 0, p, LEN);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_refused_write_keeps_what_was_buffered_before_it(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 5);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_fill(p, sizeof(p), 6);
	assert_int_equal(d_write(d, f, 0, p, LEN, CORE_WRITE_DIRECT), -ENOSPC);
	check_kept(d, f, p);
}

static void test_a_refused_write_keeps_what_was_in_flight_before_it(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *k, *w;
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 7);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	k = d_fsync_start(d, f);
	wait_until(d_held(d) == 1);
	d_fill(p, LEN / 2, 8);
	w = d_write_start(d, f, 0, p, LEN / 2, CORE_WRITE_DIRECT);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	assert_int_equal(fix_call_end(w, NULL), -ENOSPC);
	check_kept(d, f, p);
}

/* The daemon has the older content in memory, and loses it. */
static void test_a_refused_write_keeps_what_was_not_synced_before_it(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 9);
	assert_int_equal(d_write(d, f, 0, p, LEN, CORE_WRITE_DIRECT), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_fill(p, sizeof(p), 10);
	assert_int_equal(d_write(d, f, 0, p, LEN, CORE_WRITE_DIRECT), -ENOSPC);
	d_restart(d, true);
	check_kept(d, f, p);
}

static void test_a_refused_write_of_its_own_bytes_leaves_nothing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[2 * LEN];

	(void)state;
	d_fill(p, sizeof(p), 11);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(d_write(d, f, LEN, p + LEN, LEN, CORE_WRITE_DIRECT),
			 -ENOSPC);
	check_kept(d, f, p);
}

/* Answered before the older write is: it must not go with it. */
static void test_a_refused_write_keeps_what_was_written_after_it(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *w;
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 15);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	w = d_write_start(d, f, 0, p, LEN, CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 1);
	d_fill(p, LEN / 2, 16);
	assert_int_equal(d_write(d, f, 0, p, LEN / 2, 0), 0);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w, NULL), -ENOSPC);
	check_kept(d, f, p);
}

static void test_a_refused_write_leaves_others_alone(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *w[2];
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 23);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, 1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < 2; i++) {
		w[i] = d_write_start(d, f, i * 2 * LEN, p, LEN,
				     CORE_WRITE_DIRECT);
		wait_until(d_held(d) == i + 1);
	}
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w[0], NULL), -ENOSPC);
	assert_int_equal(fix_call_end(w[1], NULL), 0);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_size(d, f), 3 * LEN);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, 2 * LEN, p, LEN);
	memset(p, 0, LEN);
	d_check_read(d, f, 0, p, LEN);
	d_close(d, f);
	dfix_stop(d);
}

static void test_two_writes_of_one_place_are_both_refused(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct fix_call *w[2];
	uint8_t p[LEN];

	(void)state;
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	for (uint32_t i = 0; i < 2; i++) {
		d_fill(p, sizeof(p), 17 + i);
		w[i] = d_write_start(d, f, 0, p, LEN, CORE_WRITE_DIRECT);
		wait_until(d_held(d) == 1);
	}
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w[0], NULL), -ENOSPC);
	assert_int_equal(fix_call_end(w[1], NULL), -ENOSPC);
	check_kept(d, f, p);
}

/* One block is refused, the next one stored: nothing of it stays, to be found
 * when the file is made longer. */
static void test_a_write_refused_in_part_leaves_nothing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);
	uint8_t p[2 * LEN], zero[2 * LEN] = { 0 };
	int first = place_primary(d->f.c->blk->map, ino, 0);

	(void)state;
	d_fill(p, sizeof(p), 21);
	assert_true(first >= 0);
	mini_blockd_fail(d->b[first], WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	assert_int_equal(d_write(d, f, DBLOCK - LEN, p, 2 * LEN,
				 CORE_WRITE_DIRECT), -ENOSPC);
	assert_int_equal(d_size(d, f), 0);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_truncate(d, f, 2 * DBLOCK), 0);
	d_check_read(d, f, DBLOCK - LEN, zero, 2 * LEN);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_read(d, f, DBLOCK - LEN, zero, 2 * LEN);
	d_check_durable(d, f, DBLOCK - LEN, zero, 2 * LEN);
	d_close(d, f);
	dfix_stop(d);
}

/* The same with another refused behind it, which ends later: what is stored of
 * the first lies inside the file or is cut. */
static void test_two_writes_refused_leave_nothing(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f), size, last = 3;
	uint8_t p[2 * LEN], zero[2 * LEN] = { 0 };
	const struct cmap *map = d->f.c->blk->map;
	int first = place_primary(map, ino, 0);
	struct fix_call *k, *l;

	(void)state;
	d_fill(p, sizeof(p), 22);
	assert_true(first >= 0 && place_primary(map, ino, 1) != first);
	while (place_primary(map, ino, last) != first)
		last++;
	mini_blockd_hold(d->b[first], WIRE_OP_BLK_WRITE, true);
	k = d_write_start(d, f, DBLOCK - LEN, p, 2 * LEN, CORE_WRITE_DIRECT);
	l = d_write_start(d, f, last * DBLOCK, p, LEN, CORE_WRITE_DIRECT);
	wait_until(mini_blockd_held(d->b[first]) == 2);
	mini_blockd_fail(d->b[first], WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	mini_blockd_hold(d->b[first], WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), -ENOSPC);
	assert_int_equal(fix_call_end(l, NULL), -ENOSPC);
	d_fail(d, 0, 0, 0);
	size = d_size(d, f);
	assert_true(size == 0 || size == DBLOCK + LEN);
	assert_int_equal(d_truncate(d, f, (last + 1) * DBLOCK), 0);
	d_check_read(d, f, DBLOCK - LEN, zero, LEN);
	d_check_read(d, f, DBLOCK, size ? p + LEN : zero, LEN);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_durable(d, f, DBLOCK, size ? p + LEN : zero, LEN);
	d_close(d, f);
	dfix_stop(d);
}

static void set_state(struct dfix *d, int daemon, uint8_t state)
{
	struct cmap *m = cmap_dup(d->f.c->blk->map);

	assert_non_null(m);
	m->daemons[daemon].state = state;
	assert_int_equal(blk_client_set_map(d->f.c, m), 0);
	cmap_free(m);
}

/* The first and the last block are refused at once; what lies between them is
 * on its way, and the write does not end before it. */
static void test_a_write_refused_at_both_ends_waits_for_its_middle(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint32_t len = (DFIX_BLOCKDS + 1) * DBLOCK;
	uint8_t *p = malloc(len);
	int lost = place_primary(d->f.c->blk->map, core_file_ino(f), 0);
	struct fix_call *w;

	(void)state;
	assert_non_null(p);
	d_fill(p, len, 22);
	set_state(d, lost, CMAP_STATE_LOST);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	w = d_write_start(d, f, 0, p, len, CORE_WRITE_DIRECT);
	wait_until(d_held(d) == DFIX_BLOCKDS - 1);
	assert_false(fix_call_wait(w, 50));
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w, NULL), -EIO);
	assert_int_equal(d_size(d, f), 0);
	set_state(d, lost, CMAP_STATE_UP);
	assert_int_equal(d_truncate(d, f, len), 0);
	memset(p, 0, len);
	d_check_read(d, f, 0, p, len);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
	free(p);
}

/* Its end is where the file was truncated to meanwhile. */
static void test_a_refused_write_does_not_undo_a_truncate(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct meta_attr a;
	struct fix_call *w;
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 19);
	assert_int_equal(d_write(d, f, LEN, p, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_fail(d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	w = d_write_start(d, f, 0, p, LEN, CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 1);
	assert_int_equal(d_truncate(d, f, LEN), 0);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w, NULL), -ENOSPC);
	assert_int_equal(d_size(d, f), LEN);
	d_fail(d, 0, 0, 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_size(d, f), LEN);
	assert_int_equal(mini_metad_getattr(d->f.m, core_file_ino(f), &a), 0);
	assert_int_equal(a.size, LEN);
	d_close(d, f);
	dfix_stop(d);
}

/* ---- a lease that is refused ---- */

/* The answer to LEASE comes last: all else of the fsync is done. */
static void lease_refused(int err, bool global)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = NULL;
	struct meta_attr a;
	struct fix_call *k;
	uint8_t p[LEN];

	/* Not d_create(): that brings the lease with it. */
	assert_int_equal(op_mkfile(&d->f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_open(&d->f, a.ino, O_RDWR, &f), 0);
	d_fill(p, sizeof(p), 12);
	mini_metad_fail(d->f.m, WIRE_OP_META_LEASE, err, 1);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_LEASE, true);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	k = sync_start(d, f, global);
	wait_until(mini_metad_received(d->f.m, WIRE_OP_META_LEASE) == 1);
	assert_false(fix_call_wait(k, 50));
	mini_metad_hold_replies(d->f.m, 0, false);
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	assert_int_equal(d_fsync(d, f), -EIO);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), -EIO);
	d_close(d, f);
	dfix_kill(d);
}

static void test_fsync_fails_when_the_lease_is_refused_meanwhile(void **state)
{
	(void)state;
	lease_refused(-ESTALE, false);
	lease_refused(-ENOENT, false);
}

static void test_sync_fails_when_a_lease_is_refused_meanwhile(void **state)
{
	(void)state;
	lease_refused(-ESTALE, true);
}

/* ---- what is executed twice ---- */

/* The first that metad hears of the size and units is the truth already. */
static void check_units(struct dfix *d, uint64_t ino, uint64_t want)
{
	uint64_t units = 0;
	struct meta_attr a;

	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_RETURN) > 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		units += mini_blockd_units(d->b[i], ino);
	assert_int_equal(units, want);
	assert_int_equal(mini_metad_getattr(d->f.m, ino, &a), 0);
	assert_int_equal(a.units, want);
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.units, want);
}

static void test_metad_hears_the_units_of_a_write_sent_twice(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[LEN];

	(void)state;
	d_fill(p, sizeof(p), 13);
	d_lose_replies(d, WIRE_OP_BLK_WRITE, 1);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_executed(d, WIRE_OP_BLK_WRITE), 2);
	check_units(d, core_file_ino(f), LEN / UNIT_SIZE);
	d_close(d, f);
	dfix_stop(d);
}

static void test_metad_hears_the_units_of_a_reservation_sent_twice(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);

	(void)state;
	d_lose_replies(d, WIRE_OP_BLK_ALLOC, 1);
	assert_int_equal(d_fallocate(d, f, 0, 0, LEN), 0);
	assert_int_equal(d_executed(d, WIRE_OP_BLK_ALLOC), 2);
	/* Nobody was in a hurry to tell of it before. */
	d_close(d, f);
	check_units(d, ino, LEN / UNIT_SIZE);
	dfix_stop(d);
}

static void test_a_write_during_the_count_has_it_begin_again(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[2 * LEN];

	(void)state;
	d_fill(p, sizeof(p), 14);
	d_lose_replies(d, WIRE_OP_BLK_WRITE, 1);
	d_hold_replies(d, WIRE_OP_BLK_END, true);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_lose_replies(d, 0, 0);
	wait_until(d_held(d) == DFIX_BLOCKDS);
	/* What is held says nothing of this. */
	assert_int_equal(d_write(d, f, LEN, p + LEN, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(mini_metad_executed(d->f.m, WIRE_OP_META_RETURN), 0);
	d_hold_replies(d, WIRE_OP_BLK_END, false);
	check_units(d, core_file_ino(f), 2 * LEN / UNIT_SIZE);
	d_close(d, f);
	dfix_stop(d);
}

static bool recounting(struct dfix *d, uint64_t ino)
{
	const struct core_inode *in;
	bool yes;

	core_lock(d->f.c);
	in = inode_find(d->f.c, ino);
	yes = in && in->recounting;
	core_unlock(d->f.c);
	return yes;
}

/* The daemon has executed it, so it counts; the answer counts it, too. */
static void test_a_write_not_answered_during_the_count_has_it_begin_again(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *w;
	uint8_t p[2 * LEN];

	(void)state;
	d_fill(p, sizeof(p), 20);
	d_lose_replies(d, WIRE_OP_BLK_WRITE, 1);
	d_hold(d, WIRE_OP_BLK_END, true);
	assert_int_equal(d_write(d, f, 0, p, LEN, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_lose_replies(d, 0, 0);
	wait_until(d_held(d) == DFIX_BLOCKDS);
	d_hold_replies(d, WIRE_OP_BLK_WRITE, true);
	w = d_write_start(d, f, LEN, p + LEN, LEN, CORE_WRITE_DIRECT);
	wait_until(d_executed(d, WIRE_OP_BLK_WRITE) == 3);
	d_hold(d, WIRE_OP_BLK_END, false);
	wait_until(!recounting(d, ino));
	d_hold_replies(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w, NULL), 0);
	assert_int_equal(d_fsync(d, f), 0);
	check_units(d, ino, 2 * LEN / UNIT_SIZE);
	d_close(d, f);
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_fsync_waits_for_what_replaced_a_frame_without_memory),
		cmocka_unit_test(
			test_fsync_waits_for_what_replaced_a_frame_of_an_old_cut),
		cmocka_unit_test(
			test_fsync_fails_with_what_replaced_a_refused_frame),
		cmocka_unit_test(
			test_a_refused_write_keeps_what_was_buffered_before_it),
		cmocka_unit_test(
			test_a_refused_write_keeps_what_was_in_flight_before_it),
		cmocka_unit_test(
			test_a_refused_write_keeps_what_was_not_synced_before_it),
		cmocka_unit_test(
			test_a_refused_write_of_its_own_bytes_leaves_nothing),
		cmocka_unit_test(
			test_a_refused_write_keeps_what_was_written_after_it),
		cmocka_unit_test(
			test_a_refused_write_leaves_others_alone),
		cmocka_unit_test(
			test_two_writes_of_one_place_are_both_refused),
		cmocka_unit_test(
			test_a_write_refused_in_part_leaves_nothing),
		cmocka_unit_test(
			test_two_writes_refused_leave_nothing),
		cmocka_unit_test(
			test_a_write_refused_at_both_ends_waits_for_its_middle),
		cmocka_unit_test(
			test_a_refused_write_does_not_undo_a_truncate),
		cmocka_unit_test(
			test_fsync_fails_when_the_lease_is_refused_meanwhile),
		cmocka_unit_test(
			test_sync_fails_when_a_lease_is_refused_meanwhile),
		cmocka_unit_test(
			test_metad_hears_the_units_of_a_write_sent_twice),
		cmocka_unit_test(
			test_metad_hears_the_units_of_a_reservation_sent_twice),
		cmocka_unit_test(
			test_a_write_during_the_count_has_it_begin_again),
		cmocka_unit_test(
			test_a_write_not_answered_during_the_count_has_it_begin_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
