/* Truncate, fallocate and SEEK_DATA/SEEK_HOLE of the client core, against the
 * mini daemons: what is shown, what is durable, what waits for what.
 *
 * Method: operations through the public contract (core.h); promises are
 * checked in the daemons' memory.
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

static void test_truncate_and_growth_show_zeros(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[9000], zero[9000] = { 0 };

	(void)state;
	d_fill(p, sizeof(p), 43);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_truncate(d, f, 5000), 0);
	assert_int_equal(d_size(d, f), 5000);
	assert_int_equal(d_truncate(d, f, 9000), 0);
	d_check_read(d, f, 0, p, 5000);
	d_check_read(d, f, 5000, zero, 4000);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_truncate(d, f, 100), 0);
	assert_int_equal(d_write(d, f, 8000, p, 10, 0), 0);
	d_check_read(d, f, 100, zero, 7900);
	assert_int_equal(d_fsync(d, f), 0);
	d_check_read(d, f, 100, zero, 7900);
	d_check_durable(d, f, 0, p, 100);
	d_check_durable(d, f, 100, zero, 7900);
	d_close(d, f);
	dfix_stop(d);
}

/* O_TRUNC or ftruncate(0), then the new content, then close. */
static void test_replaced_content_goes_out_at_close(void **state)
{
	struct dfix *d = dfix_new(NULL); /* nothing is flushed by age */
	struct core_file *f = d_create(d, "f"), *r;
	uint8_t p[5000], got[5000];

	(void)state;
	d_fill(p, sizeof(p), 42);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_truncate(d, f, 0), 0);
	d_fill(p, sizeof(p), 43);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(op_open(&d->f, core_file_ino(f), O_RDONLY, &r), 0);
	assert_int_equal(d_received(d, WIRE_OP_BLK_WRITE), 1);
	d_close(d, f);
	wait_until(d_executed(d, WIRE_OP_BLK_WRITE) == 2);
	d_peek(d, r, 0, sizeof(p), true, got);
	assert_memory_equal(got, p, sizeof(p));
	d_close(d, r);
	dfix_stop(d);
}

static void test_a_cut_waits_for_frames_and_later_frames_for_the_cut(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192], zero[4096] = { 0 };
	struct fix_call *w, *s;

	(void)state;
	d_fill(p, sizeof(p), 44);
	d_hold(d, WIRE_OP_BLK_WRITE, true);
	w = d_write_start(d, f, 0, p, sizeof(p), CORE_WRITE_DIRECT);
	wait_until(d_held(d) == 1);
	/* Answered at once, and so is what follows. */
	assert_int_equal(d_truncate(d, f, 100), 0);
	assert_int_equal(d_size(d, f), 100);
	assert_int_equal(d_write(d, f, 4096, p, 4096, 0), 0);
	assert_int_equal(d_size(d, f), 8192);
	d_check_read(d, f, 100, zero, 3996);
	d_check_read(d, f, 4096, p, 4096);
	s = d_fsync_start(d, f);
	assert_false(fix_call_wait(s, 50));
	assert_int_equal(mini_metad_received(d->f.m, WIRE_OP_META_CUT), 0);
	assert_int_equal(d_received(d, WIRE_OP_BLK_WRITE), 1);
	d_hold(d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(w, NULL), 0);
	assert_int_equal(fix_call_end(s, NULL), 0);
	assert_int_equal(mini_metad_received(d->f.m, WIRE_OP_META_CUT), 1);
	d_check_durable(d, f, 0, p, 100);
	d_check_durable(d, f, 100, zero, 3996);
	d_check_durable(d, f, 4096, p, 4096);
	d_check_read(d, f, 0, p, 100);
	d_check_read(d, f, 100, zero, 3996);
	d_close(d, f);
	dfix_stop(d);
}

static void test_a_truncate_is_answered_at_once_and_waited_for_by_fsync(
	void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	struct meta_attr a, b;
	uint8_t p[8192];
	struct fix_call *s, *y;

	(void)state;
	d_fill(p, sizeof(p), 46);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(op_getattr(&d->f, core_file_ino(f), &a), 0);
	assert_int_equal(a.size, 0);
	assert_int_equal(a.units, 0);
	s = d_fsync_start(d, f);
	y = fix_call_new();
	core_sync_all(d->f.c, on_err, y);
	assert_false(fix_call_wait(s, 50));
	assert_false(fix_call_wait(y, 1));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, false);
	assert_int_equal(fix_call_end(s, NULL), 0);
	assert_int_equal(fix_call_end(y, NULL), 0);
	assert_int_equal(mini_metad_getattr(d->f.m, core_file_ino(f), &a), 0);
	assert_int_equal(op_getattr(&d->f, core_file_ino(f), &b), 0);
	assert_int_equal(a.size, 0);
	assert_int_equal(a.mtime_ns, b.mtime_ns);
	assert_int_equal(a.ctime_ns, b.ctime_ns);
	assert_int_equal(a.units, b.units);
	/* One that fails later: the file is bad until truncated again. */
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	mini_metad_fail(d->f.m, WIRE_OP_META_CUT, -EIO, 1);
	assert_int_equal(d_truncate(d, f, 10), 0);
	assert_int_equal(d_fsync(d, f), -EIO);
	assert_int_equal(d_write(d, f, 0, p, 10, 0), -EIO);
	assert_int_not_equal(core_flush_error(d->f.c, f), 0);
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(d_write(d, f, 0, p, 10, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

/* Were it answered at once, the answer to the chmod, which metad gave before
 * it heard of the cut, would bring the bits back. */
static void test_a_truncate_that_clears_setid_waits_for_metad(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);
	struct fix_call *k = fix_call_new();
	struct meta_attr a;
	uint8_t p[100];

	(void)state;
	d_fill(p, sizeof(p), 47);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(op_chmod(&d->f, ino, 06777), 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	core_truncate(d->f.c, ino, 0, true, on_attr, k);
	assert_false(fix_call_wait(k, 50));
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.mode & 07777, 0777);
	assert_int_equal(a.size, 0);
	d_close(d, f);
	dfix_stop(d);
}

/* The answer to a cut comes late, with attributes of before. */
static void test_what_changes_during_a_cut_stays_changed(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f);
	struct meta_attr a, truth;
	uint8_t p[100];

	(void)state;
	d_fill(p, sizeof(p), 48);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(op_link(&d->f, ino, ROOT_INO, "g", &a), 0);
	assert_int_equal(a.nlink, 2);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	assert_int_equal(d_truncate(d, f, 0), 0);
	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_CUT) == 1);
	assert_int_equal(op_chmod(&d->f, ino, 0600), 0);
	assert_int_equal(op_unlink(&d->f, ROOT_INO, "g", false), 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, false);
	assert_int_equal(d_fsync(d, f), 0); /* waits for the cut */
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.nlink, 1);
	assert_int_equal(a.mode & 07777, 0600);
	assert_int_equal(a.size, 0);
	assert_int_equal(a.units, 0);
	assert_int_equal(mini_metad_getattr(d->f.m, ino, &truth), 0);
	assert_int_equal(a.ctime_ns, truth.ctime_ns);
	assert_int_equal(a.mtime_ns, truth.mtime_ns);
	d_close(d, f);
	dfix_stop(d);
}

static void test_fallocate_reserves_and_survives_a_restart(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f), units = 0;
	uint8_t zero[4096] = { 0 };
	struct meta_attr a;

	(void)state;
	assert_int_equal(d_fallocate(d, f, FALLOC_FL_KEEP_SIZE, 0, 3 * MIB),
			 0);
	assert_int_equal(d_size(d, f), 0);
	assert_int_equal(d_fallocate(d, f, 0, MIB, 3 * MIB), 0);
	assert_int_equal(d_size(d, f), 4 * MIB);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		units += mini_blockd_units(d->b[i], ino);
	assert_int_equal(units, 1024);
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.units, 1024);
	d_check_read(d, f, 2 * MIB, zero, 4096);
	assert_int_equal(d_seek(d, f, 0, SEEK_DATA), -ENXIO);
	assert_int_equal(d_fallocate(d, f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096),
			 -EOPNOTSUPP);
	assert_int_equal(d_fallocate(d, f, FALLOC_FL_PUNCH_HOLE, 0, 4096),
			 -EOPNOTSUPP);
	assert_int_equal(d_fallocate(d, f, 0, INT64_MAX, 4096), -EFBIG);
	assert_int_equal(d_truncate(d, f, 0), 0);
	assert_int_equal(op_getattr(&d->f, ino, &a), 0);
	assert_int_equal(a.units, 0);
	assert_int_equal(d_fsync(d, f), 0);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		assert_int_equal(mini_blockd_units(d->b[i], ino), 0);
	d_close(d, f);
	dfix_stop(d);
}

static struct fix_call *fallocate_start(struct dfix *d, struct core_file *f,
					int mode, uint64_t off, uint64_t len)
{
	struct fix_call *k = fix_call_new();

	core_fallocate(d->f.c, core_file_ino(f), mode, off, len, false, on_err,
		       k);
	return k;
}

/* One that no lease came with. */
static struct core_file *open_old(struct dfix *d, const char *name)
{
	struct core_file *f = NULL;
	struct meta_attr a;

	assert_int_equal(op_mkfile(&d->f, ROOT_INO, name, &a), 0);
	assert_int_equal(op_fsync_dir(&d->f), 0);
	assert_int_equal(op_open(&d->f, a.ino, O_RDWR, &f), 0);
	return f;
}

/* What the daemons, metad and this mount say is the same. */
static bool units_agree(struct dfix *d, uint64_t ino, uint64_t *ret)
{
	struct meta_attr a, b;

	*ret = 0;
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		*ret += mini_blockd_units(d->b[i], ino);
	assert_int_equal(mini_metad_getattr(d->f.m, ino, &a), 0);
	assert_int_equal(op_getattr(&d->f, ino, &b), 0);
	return a.units == *ret && b.units == *ret;
}

static bool cutting(struct dfix *d, uint64_t ino)
{
	const struct core_inode *in;
	bool yes;

	core_lock(d->f.c);
	in = inode_find(d->f.c, ino);
	yes = in && in->cut_busy;
	core_unlock(d->f.c);
	return yes;
}

static uint64_t resent(struct dfix *d)
{
	uint64_t n;

	core_lock(d->f.c);
	n = d->f.c->blk->n.resent;
	core_unlock(d->f.c);
	return n;
}

static void test_metad_hears_of_units_allocated_in_an_old_file(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = open_old(d, "f");
	uint64_t units;

	(void)state;
	assert_int_equal(d_fallocate(d, f, FALLOC_FL_KEEP_SIZE, 0, 3 * MIB),
			 0);
	wait_until(units_agree(d, core_file_ino(f), &units));
	assert_int_equal(units, 768);
	d_close(d, f);
	dfix_stop(d);
}

/* A crash of everything must not leave units that nobody counts. */
static void test_units_are_allocated_only_under_a_durable_lease(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = open_old(d, "f");
	struct fix_call *k;

	(void)state;
	mini_metad_hold_durable(d->f.m, true);
	k = fallocate_start(d, f, 0, 0, MIB);
	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_LEASE) == 1);
	assert_false(fix_call_wait(k, 100));
	assert_int_equal(d_received(d, WIRE_OP_BLK_ALLOC), 0);
	mini_metad_hold_durable(d->f.m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_close(d, f);
	dfix_stop(d);
}

/* Zeroing cuts, then allocates, which a sync need not wait for. */
static void test_a_sync_while_zeroed_blocks_are_allocated_ends(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192], zero[8192] = { 0 };
	struct fix_call *k;

	(void)state;
	d_fill(p, sizeof(p), 48);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_hold(d, WIRE_OP_BLK_ALLOC, true);
	k = fallocate_start(d, f, FALLOC_FL_ZERO_RANGE, 0, sizeof(p));
	wait_until(d_held(d) == 1);
	assert_int_equal(d_sync(d), 0);
	assert_false(fix_call_wait(k, 1));
	d_hold(d, WIRE_OP_BLK_ALLOC, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	d_check_read(d, f, 0, zero, sizeof(zero));
	d_close(d, f);
	dfix_stop(d);
}

/* The punch is on its way when the allocation makes the file longer; and
 * nobody can say what of the units that are being allocated it takes. */
static void test_a_punch_during_an_allocation_keeps_size_and_count(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f), units;
	struct fix_call *a, *p;

	(void)state;
	d_hold(d, WIRE_OP_BLK_SYNC, true);
	a = fallocate_start(d, f, 0, 0, 4 * MIB);
	wait_until(d_held(d) == DFIX_BLOCKDS);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	p = fallocate_start(d, f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			    MIB);
	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_CUT) == 1);
	d_hold(d, WIRE_OP_BLK_SYNC, false);
	assert_int_equal(fix_call_end(a, NULL), 0);
	assert_int_equal(d_size(d, f), 4 * MIB);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, false);
	assert_int_equal(fix_call_end(p, NULL), 0);
	assert_int_equal(d_size(d, f), 4 * MIB);
	wait_until(units_agree(d, ino, &units));
	assert_int_equal(units, 768);
	d_close(d, f);
	dfix_stop(d);
}

/* A daemon forgets what was cut before it was synced: it may be subtracted once
 * as cut, once as forgotten. @early: before the cut's answer. */
static void forgotten_after_cut(uint64_t size, bool early)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t ino = core_file_ino(f), units;
	uint8_t p[8192];

	d_fill(p, sizeof(p), 49);
	assert_int_equal(d_write(d, f, 8192, p, sizeof(p), CORE_WRITE_DIRECT),
			 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, early);
	assert_int_equal(d_truncate(d, f, size), 0);
	wait_until(mini_metad_executed(d->f.m, WIRE_OP_META_CUT) == 1);
	if (!early)
		wait_until(!cutting(d, ino));
	d_restart(d, true);
	wait_until(resent(d) > 0);
	mini_metad_hold_replies(d->f.m, 0, false);
	assert_int_equal(d_write(d, f, 0, p, 100, 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	wait_until(units_agree(d, ino, &units));
	assert_int_equal(units, 1);
	d_close(d, f);
	dfix_stop(d);
}

static void test_units_that_were_cut_are_not_forgotten_again(void **state)
{
	(void)state;
	forgotten_after_cut(0, false);
	forgotten_after_cut(0, true);
	forgotten_after_cut(8192, false);
	forgotten_after_cut(8192, true);
}

/* Neither who asked for the cut nor who waits behind it. */
static void test_a_soft_mount_does_not_wait_for_cuts_for_ever(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .timeout_ms = 500 });
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192], zero[4096] = { 0 };

	(void)state;
	d_fill(p, sizeof(p), 49);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_SETATTR, true);
	assert_int_equal(d_truncate(d, f, MIB), -ETIMEDOUT);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	assert_int_equal(d_fallocate(d, f, FALLOC_FL_PUNCH_HOLE |
				     FALLOC_FL_KEEP_SIZE, 0, 4096), -ETIMEDOUT);
	assert_int_equal(d_read(d, f, 0, p, 10), -ETIMEDOUT);
	assert_int_equal(d_write(d, f, 0, p, 10, 0), -ETIMEDOUT);
	assert_int_equal(d_fsync(d, f), -ETIMEDOUT);
	assert_int_equal(d_seek(d, f, 0, SEEK_DATA), -ETIMEDOUT);
	assert_int_equal(d_truncate(d, f, 100), -ETIMEDOUT);
	/* What was on its way arrives; the truncate behind it was not. */
	mini_metad_hold_replies(d->f.m, 0, false);
	d_check_read(d, f, 0, zero, sizeof(zero));
	d_check_read(d, f, 4096, p + 4096, 4096);
	assert_int_equal(d_size(d, f), MIB);
	assert_int_equal(d_truncate(d, f, 4096), 0);
	assert_int_equal(d_fsync(d, f), 0);
	d_close(d, f);
	dfix_stop(d);
}

/* Nor for what is written behind a truncate that was answered at once; what a
 * write has returned for stays. */
static void test_a_soft_mount_does_not_wait_behind_a_truncate_for_ever(
	void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){ .timeout_ms = 500 });
	struct core_file *f = d_create(d, "f");
	uint8_t p[8192];

	(void)state;
	d_fill(p, sizeof(p), 50);
	assert_int_equal(d_write(d, f, 0, p, sizeof(p), 0), 0);
	assert_int_equal(d_fsync(d, f), 0);
	mini_metad_hold_replies(d->f.m, WIRE_OP_META_CUT, true);
	assert_int_equal(d_truncate(d, f, 100), 0);
	assert_int_equal(d_write(d, f, 100, p + 100, 900, 0), 0);
	assert_int_equal(d_fsync(d, f), -ETIMEDOUT);
	assert_int_equal(d_write(d, f, 1000, p + 1000, 4096,
				 CORE_WRITE_DIRECT), -ETIMEDOUT);
	assert_int_equal(d_size(d, f), 1000);
	assert_int_equal(d_sync(d), -ETIMEDOUT);
	mini_metad_hold_replies(d->f.m, 0, false);
	assert_int_equal(d_fsync(d, f), 0);
	assert_int_equal(d_size(d, f), 1000);
	d_check_durable(d, f, 0, p, 1000);
	d_close(d, f);
	dfix_stop(d);
}

static void test_seek_finds_data_and_holes_buffered_or_not(void **state)
{
	struct dfix *d = dfix_new(NULL);
	struct core_file *f = d_create(d, "f");
	uint64_t far = (uint64_t)1 << 50;

	(void)state;
	assert_int_equal(d_seek(d, f, 0, SEEK_HOLE), -ENXIO);
	assert_int_equal(d_write(d, f, 3 * MIB + 5000, "x", 1, 0), 0);
	assert_int_equal(d_write(d, f, far, "y", 1, 0), 0);
	for (uint32_t round = 0; round < 2; round++) {
		assert_int_equal(d_seek(d, f, 0, SEEK_DATA), 3 * MIB + 4096);
		assert_int_equal(d_seek(d, f, 3 * MIB + 4500, SEEK_DATA),
				 3 * MIB + 4500);
		assert_int_equal(d_seek(d, f, 3 * MIB + 8192, SEEK_DATA), far);
		assert_int_equal(d_seek(d, f, 0, SEEK_HOLE), 0);
		assert_int_equal(d_seek(d, f, 3 * MIB + 4100, SEEK_HOLE),
				 3 * MIB + 8192);
		assert_int_equal(d_seek(d, f, far, SEEK_HOLE), far + 1);
		assert_int_equal(d_seek(d, f, far + 1, SEEK_DATA), -ENXIO);
		assert_int_equal(d_fsync(d, f), 0);
	}
	assert_int_equal(d_truncate(d, f, 3 * MIB), 0);
	assert_int_equal(d_seek(d, f, 0, SEEK_DATA), -ENXIO);
	assert_int_equal(d_seek(d, f, 1, SEEK_HOLE), 1);
	d_close(d, f);
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncate_and_growth_show_zeros),
		cmocka_unit_test(test_replaced_content_goes_out_at_close),
		cmocka_unit_test(
			test_a_cut_waits_for_frames_and_later_frames_for_the_cut),
		cmocka_unit_test(
			test_a_truncate_is_answered_at_once_and_waited_for_by_fsync),
		cmocka_unit_test(
			test_a_truncate_that_clears_setid_waits_for_metad),
		cmocka_unit_test(test_what_changes_during_a_cut_stays_changed),
		cmocka_unit_test(
			test_fallocate_reserves_and_survives_a_restart),
		cmocka_unit_test(
			test_metad_hears_of_units_allocated_in_an_old_file),
		cmocka_unit_test(
			test_units_are_allocated_only_under_a_durable_lease),
		cmocka_unit_test(
			test_a_sync_while_zeroed_blocks_are_allocated_ends),
		cmocka_unit_test(
			test_a_punch_during_an_allocation_keeps_size_and_count),
		cmocka_unit_test(
			test_units_that_were_cut_are_not_forgotten_again),
		cmocka_unit_test(
			test_a_soft_mount_does_not_wait_for_cuts_for_ever),
		cmocka_unit_test(
			test_a_soft_mount_does_not_wait_behind_a_truncate_for_ever),
		cmocka_unit_test(
			test_seek_finds_data_and_holes_buffered_or_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
