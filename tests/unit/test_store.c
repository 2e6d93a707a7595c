/* The block store on a fake disk: what each operation promises, one fact a
 * test. Restarts are kill -9 (store_abort) unless said otherwise.
 */
#include "tests/lib/store_fix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)
#define BLOCK STORE_FIX_BLOCK

static void a_write_is_read_back(void **state)
{
	store_fix_write(*state, 10, 0, 0, 4096);
	store_fix_read_same(*state, 10, 0, 0, 4096);
}

static void an_unaligned_write_is_read_back(void **state)
{
	store_fix_write(*state, 10, 0, 100, 9000);
	store_fix_read_same(*state, 10, 0, 100, 9000);
	store_fix_read_same(*state, 10, 0, 5000, 77);
	store_fix_read_zeros(*state, 10, 0, 0, 100);
}

static void a_large_write_goes_straight_to_its_place(void **state)
{
	struct store_box *b = *state;
	struct fake_dev_count a = fake_dev_count(b->f), z;

	store_fix_write(b, 10, 0, 0, BLOCK);
	z = fake_dev_count(b->f);
	assert_int_equal(z.write_bytes - a.write_bytes, BLOCK);
	assert_int_equal(z.dsyncs - a.dsyncs, 0);
	store_fix_read_same(b, 10, 0, 0, BLOCK);
	store_fix_read_same(b, 10, 0, 4095, 4098);
}

static void append_and_sync_is_one_journal_write(void **state)
{
	struct store_box *b = *state;
	struct fake_dev_count a, z;

	for (uint32_t off = 0; off < 8192; off += 128) {
		store_fix_write(b, 10, 0, off, 128);
		a = fake_dev_count(b->f);
		assert_int_equal(store_box_sync(b, 10), 0);
		z = fake_dev_count(b->f);
		assert_int_equal(z.dsyncs - a.dsyncs, 1);
		assert_int_equal(z.dsync_bytes - a.dsync_bytes, 8192);
		assert_int_equal(z.writes - a.writes, 0);
		assert_int_equal(z.flushes - a.flushes, 0);
		assert_int_equal(z.reads - a.reads, 0);
	}
}

static void what_was_synced_survives_a_restart(void **state)
{
	struct store_box *b = *state;

	store_fix_write(b, 10, 0, 0, 5000);
	store_fix_write(b, 10, 3, 0, BLOCK);
	assert_int_equal(store_box_sync(b, 10), 0);
	for (int i = 0; i < 3; i++) {
		store_fix_reopen(b);
		store_fix_read_same(b, 10, 0, 0, 5000);
		store_fix_read_same(b, 10, 3, 0, BLOCK);
	}
	assert_int_equal(store_box_close(b), 0);
	assert_int_equal(store_box_open(b), 0);
	store_fix_read_same(b, 10, 0, 0, 5000);
	store_fix_read_same(b, 10, 3, 0, BLOCK);
}

static int64_t delta(struct store_box *b)
{
	return b->units_delta;
}

static void a_write_says_how_many_units_it_added(void **state)
{
	struct store_box *b = *state;

	assert_int_equal(store_box_write(b, 10, 0, 0, 4000, store_fix_pattern,
					 200, false),
			 0);
	assert_int_equal(delta(b), 2);
	assert_int_equal(store_box_write(b, 10, 0, 0, 0, store_fix_pattern,
					 BLOCK, false),
			 0);
	assert_int_equal(delta(b), BLOCK / UNIT_SIZE - 2);
	assert_int_equal(store_box_alloc(b, 10, 1, 0, 5000, 5000), 0);
	assert_int_equal(delta(b), 2);
	assert_int_equal(store_box_cut(b, 10, 1, 4096, BLOCK + 8192), 0);
	assert_int_equal(delta(b), -(int64_t)(BLOCK / UNIT_SIZE - 1) - 1);
}

static void a_truncate_zeroes_the_rest_and_shrinks_the_end(void **state)
{
	struct store_box *b = *state;
	struct blk_end_reply e;

	store_fix_write(b, 10, 0, 0, BLOCK);
	store_fix_write(b, 10, 1, 0, 9000);
	store_fix_write(b, 10, 3, 0, 9000);
	assert_int_equal(store_end(b->s, &(struct blk_end){ 10,
				   STORE_BOX_LOG2 }, &e), 0);
	assert_int_equal(e.end, 3 * BLOCK + 9000);
	assert_int_equal(store_box_cut(b, 10, 1, BLOCK + 5000,
				       BLK_CUT_TO_END), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(store_end(b->s, &(struct blk_end){ 10,
					   STORE_BOX_LOG2 }, &e), 0);
		assert_int_equal(e.end, BLOCK + 5000);
		assert_int_equal(e.units, BLOCK / UNIT_SIZE + 2);
		assert_int_equal(e.mtime_ns, 5);
		assert_int_equal(
			store_box_read(b, 10, 1, 1, 0, store_fix_got, 9000), 0);
		assert_memory_equal(store_fix_got, store_fix_pattern, 5000);
		for (int k = 5000; k < 9000; k++)
			assert_int_equal(store_fix_got[k], 0);
		store_fix_reopen(b);
	}
}

static void an_old_cut_number_is_refused(void **state)
{
	struct store_box *b = *state;

	store_fix_write(b, 10, 0, 0, 4096);
	assert_int_equal(store_box_cut(b, 10, 5, 0, BLK_CUT_TO_END), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(store_box_write(b, 10, 0, 4, 0,
						 store_fix_pattern, 10, false),
				 -ESTALE);
		assert_int_equal(store_box_alloc(b, 10, 0, 4, 0, 10), -ESTALE);
		assert_int_equal(store_box_read(b, 10, 0, 4, 0, store_fix_got,
						10),
				 -ESTALE);
		assert_int_equal(
			store_box_read(b, 10, 0, 5, 0, store_fix_got, 10), 0);
		store_fix_reopen(b);
	}
}

static void a_repeated_cut_does_nothing(void **state)
{
	struct store_box *b = *state;

	store_fix_write(b, 10, 0, 0, 8192);
	assert_int_equal(store_box_cut(b, 10, 5, 0, 4096), 0);
	assert_int_equal(store_box_write(b, 10, 0, 5, 0, store_fix_pattern,
					 4096, false),
			 0);
	assert_int_equal(store_box_cut(b, 10, 5, 0, 4096), 0);
	assert_int_equal(store_box_cut(b, 10, 4, 0, 8192), 0);
	assert_int_equal(store_box_read(b, 10, 0, 5, 0, store_fix_got, 8192),
			 0);
	assert_memory_equal(store_fix_got, store_fix_pattern, 8192);
}

static void a_purge_frees_everything(void **state)
{
	struct store_box *b = *state;
	uint64_t before, after;

	store_box_settle(b);
	before = store_box_stat(b).units_free;
	for (uint32_t i = 0; i < 20; i++)
		store_fix_write(b, 10, i, 0, BLOCK);
	assert_int_equal(store_box_cut(b, 10, 3, BLOCK, 2 * BLOCK), 0);
	assert_int_equal(store_box_sync(b, 0), 0);
	assert_int_equal(store_box_purge(b, 10), 0);
	for (int i = 0; i < 3; i++) {
		store_fix_read_zeros(b, 10, 4, 0, BLOCK);
		store_fix_reopen(b);
		store_box_settle(b);
	}
	after = store_box_stat(b).units_free;
	assert_int_equal(before, after);
}

static void a_cut_spares_who_knew_of_it(void **state)
{
	struct store_box *b = *state;

	assert_int_equal(store_box_write(b, 10, 0, 5, 0, store_fix_pattern,
					 8192, false), 0);
	assert_int_equal(store_box_cut(b, 10, 5, 0, BLK_CUT_TO_END), 0);
	assert_int_equal(store_box_read(b, 10, 0, 5, 0, store_fix_got, 8192),
			 0);
	assert_memory_equal(store_fix_got, store_fix_pattern, 8192);
}

/* What comes before the index knows would stay for good: nobody deletes it once
 * more. */
static void a_purged_inode_takes_nothing(void **state)
{
	struct store_box *b = *state;

	store_box_settle(b);
	store_fix_write(b, 10, 0, 0, BLOCK);
	assert_int_equal(store_box_purge(b, 10), 0);
	assert_int_equal(store_box_write(b, 10, 0, 9, 0, store_fix_pattern,
					 100, true), -ESTALE);
	assert_int_equal(store_box_alloc(b, 10, 0, 9, 0, 4096), -ESTALE);
}

static void alloc_reads_as_zeros_and_survives(void **state)
{
	struct store_box *b = *state;
	struct blk_end_reply e;

	store_fix_write(b, 10, 0, 0, 4096);
	assert_int_equal(store_box_alloc(b, 10, 0, 0, 0, 20000), 0);
	assert_int_equal(store_box_sync(b, 10), 0);
	for (int i = 0; i < 2; i++) {
		store_fix_read_same(b, 10, 0, 0, 4096);
		store_fix_read_zeros(b, 10, 0, 4096, 30000);
		assert_int_equal(store_end(b->s, &(struct blk_end){ 10,
					   STORE_BOX_LOG2 }, &e), 0);
		assert_int_equal(e.units, 5);
		store_fix_reopen(b);
	}
}

static void map_shows_data_only(void **state)
{
	struct store_box *b = *state;
	struct blk_map m = { .ino = 10, .first = 0, .last = 9, .count_max = 9,
			     .block_log2 = STORE_BOX_LOG2 };
	uint8_t buf[256];
	struct wire_out o;
	uint64_t next;

	store_fix_write(b, 10, 1, 8192, 5000);
	assert_int_equal(store_box_alloc(b, 10, 1, 0, 0, 4096), 0);
	store_fix_write(b, 10, 4, 0, BLOCK);
	store_fix_write(b, 10, 12, 0, BLOCK);
	for (int i = 0; i < 2; i++) {
		wire_out_init(&o, buf, sizeof(buf));
		assert_int_equal(store_map(b->s, &m, &o, &next), 2);
		assert_int_equal(o.len, 2 * (8 + BLOCK / UNIT_SIZE / 8));
		assert_int_equal(buf[0], 1);
		assert_int_equal(buf[8], 0x0c);
		assert_int_equal(buf[12], 4);
		assert_int_equal(buf[20], 0xff);
		assert_true(next == UINT64_MAX);
		wire_out_init(&o, buf, sizeof(buf));
		m.count_max = 1;
		assert_int_equal(store_map(b->s, &m, &o, &next), 1);
		assert_int_equal(next, 4);
		m.count_max = 9;
		assert_int_equal(store_box_sync(b, 0), 0);
		store_fix_reopen(b);
	}
}

static void list_names_every_block_once(void **state)
{
	struct store_box *b = *state;
	uint8_t buf[33 * 3];
	struct wire_out o;
	struct wire_in in;
	bool done = false;
	struct blk_list l = { .count_max = 100 };
	uint32_t total = 0;

	for (uint32_t i = 0; i < 10; i++)
		store_fix_write(b, 10 + i % 3, i, 0, BLOCK);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_reopen(b);
	store_box_settle(b);
	store_fix_write(b, 11, 100, 0, 10);
	while (!done) {
		int n;

		wire_out_init(&o, buf, sizeof(buf));
		n = store_list(b->s, &l, &o, &done);
		assert_true(n >= 0 && n <= 3);
		wire_in_init(&in, buf, o.len);
		for (int i = 0; i < n; i++) {
			struct blk_list_entry e;

			blk_list_entry_decode(&in, &e);
			assert_true(e.ino > l.ino ||
				    (e.ino == l.ino && e.index > l.index));
			l.ino = e.ino;
			l.index = e.index;
			assert_int_equal(e.block_log2, STORE_BOX_LOG2);
		}
		assert_int_equal(wire_in_end(&in), 0);
		total += (uint32_t)n;
	}
	assert_int_equal(total, 11);
}

static void another_block_size_is_refused(void **state)
{
	struct store_box *b = *state;
	struct blk_map m = { .ino = 10, .first = 0, .last = 9, .count_max = 9,
			     .block_log2 = STORE_BOX_LOG2 - 1 };
	uint8_t buf[256];
	struct wire_out o;
	uint64_t next;

	store_fix_write(b, 10, 1, 0, 10);
	wire_out_init(&o, buf, sizeof(buf));
	assert_int_equal(store_map(b->s, &m, &o, &next), -EINVAL);
}

/* ---- flushes: what a power cut shows ---- */

static void synced_large_writes_survive_a_power_cut(void **state)
{
	struct store_box *b = *state;

	for (uint32_t i = 0; i < 30; i++) {
		store_fix_write(b, 10, i % 4, 0, BLOCK);
		assert_int_equal(store_box_sync(b, 10), 0);
		store_box_power_cut(b);
		if (store_box_open(b) != 0)
			fail_msg("%s", b->why);
		for (uint32_t k = 0; k <= i && k < 4; k++)
			store_fix_read_same(b, 10, k, 0, BLOCK);
		store_fix_fill((uint8_t)i);
		for (uint32_t k = 0; k < 4; k++)
			store_fix_write(b, 10, k, 0, BLOCK);
		assert_int_equal(store_box_sync(b, 0), 0);
	}
}

static void a_failed_flush_stops_the_store(void **state)
{
	struct store_box *b = *state;
	struct store_stat st;

	store_fix_write(b, 10, 0, 0, BLOCK);
	store_fix_write(b, 10, 1, 0, 100);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_write(b, 10, 2, 0, BLOCK);
	fake_dev_fail_at(b->f, 1, -EIO, false);
	assert_int_equal(store_box_sync(b, 0), -EIO);
	st = store_box_stat(b);
	assert_int_equal(st.error, -EIO);
	assert_non_null(strstr(st.error_text, "flush"));
	/* Nothing more is taken, nothing is tried again; reads go on. */
	assert_int_equal(store_box_write(b, 10, 0, 0, 0, store_fix_pattern, 10,
					 false),
			 -EROFS);
	assert_int_equal(store_box_sync(b, 0), -EROFS);
	assert_int_equal(store_box_cut(b, 10, 1, 0, 10), -EROFS);
	assert_int_equal(store_box_alloc(b, 10, 0, 0, 0, 10), -EROFS);
	assert_int_equal(store_box_purge(b, 10), -EROFS);
	store_fix_read_same(b, 10, 0, 0, BLOCK);
	store_fix_read_same(b, 10, 1, 0, 100);
	assert_int_equal(store_box_close(b), -EIO);
	assert_int_equal(store_box_open(b), 0);
	store_fix_read_same(b, 10, 0, 0, BLOCK);
	store_fix_read_same(b, 10, 1, 0, 100);
}

static void a_failed_journal_write_stops_the_store(void **state)
{
	struct store_box *b = *state;

	store_fix_write(b, 10, 1, 0, 100);
	fake_dev_fail_at(b->f, 1, -EIO, false);
	assert_int_equal(store_box_sync(b, 0), -EIO);
	assert_int_equal(store_box_sync(b, 0), -EROFS);
	assert_int_equal(store_box_stat(b).error, -EIO);
}

/* ---- space ---- */

static int fill_up(struct store_box *b, uint64_t ino, uint32_t *blocks)
{
	int err = 0;

	for (*blocks = 0; err == 0; (*blocks)++)
		err = store_box_write(b, ino, *blocks, 0, 0, store_fix_pattern,
				      BLOCK, false);
	(*blocks)--;
	return err;
}

static void a_full_store_says_so_and_loses_nothing(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks, again;

	assert_int_equal(fill_up(b, 10, &blocks), -ENOSPC);
	assert_true(blocks * BLOCK > 60 * MIB);
	assert_int_equal(store_box_sync(b, 0), 0);
	/* One unit more is refused, too, soon. */
	for (again = 0; store_box_write(b, 11, 0, 0, again * 4096,
					store_fix_pattern, 4096, false) == 0;
	     again++)
		assert_true(again < BLOCK / UNIT_SIZE);
	/* Overwriting what is there works, small and large, for ever. */
	for (uint32_t i = 0; i < 3 * blocks; i++) {
		store_fix_write(b, 10, i % blocks, 0, BLOCK);
		store_fix_write(b, 10, (i * 7) % blocks, 4096, 8192);
	}
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_reopen(b);
	for (uint32_t i = 0; i < blocks; i++)
		store_fix_read_same(b, 10, i, 0, BLOCK);
}

static void deleting_makes_room_at_once(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks, more;

	for (uint64_t ino = 10; ino < 14; ino++) {
		assert_int_equal(fill_up(b, ino, &blocks), -ENOSPC);
		assert_true(blocks * BLOCK > 60 * MIB);
		assert_int_equal(store_box_purge(b, ino), 0);
	}
	assert_int_equal(fill_up(b, 20, &blocks), -ENOSPC);
	assert_int_equal(store_box_cut(b, 20, 1, 0, 10 * BLOCK), 0);
	for (more = 0; more < 10; more++)
		assert_int_equal(store_box_write(b, 21, more, 0, 0,
						 store_fix_pattern, BLOCK,
						 true),
				 0);
}

static void promised_space_is_there(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = 0;

	/* Allocated but unwritten; then another takes all that is left. */
	while (store_box_alloc(b, 10, blocks, 0, 0, BLOCK) == 0)
		blocks++;
	assert_true(blocks * BLOCK > 60 * MIB);
	for (uint32_t i = 0; i < blocks; i++)
		assert_int_equal(store_box_write(b, 10, i, 0, 0,
						 store_fix_pattern, BLOCK,
						 i % 16 == 0),
				 0);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_reopen(b);
	for (uint32_t i = 0; i < blocks; i++)
		store_fix_read_same(b, 10, i, 0, BLOCK);
}

static void small_writes_fill_the_store_too(void **state)
{
	struct store_box *b = *state;
	uint32_t n = 0, max = 64 * MIB / UNIT_SIZE;
	const uint32_t per = BLOCK / UNIT_SIZE;

	/* Every second unit, so that little lies together. */
	while (n < max &&
	       store_box_write(b, 10, n / per, 0, n % per * UNIT_SIZE,
			       store_fix_pattern, UNIT_SIZE, n % 64 == 0) == 0)
		n += 2;
	n = 1;
	while (n < max &&
	       store_box_write(b, 10, n / per, 0, n % per * UNIT_SIZE,
			       store_fix_pattern, UNIT_SIZE, n % 64 == 1) == 0)
		n += 2;
	assert_true(n < max && n > max * 8 / 10);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_reopen(b);
	assert_int_equal(store_box_read(b, 10, (n - 2) / per, 0,
					(n - 2) % per * UNIT_SIZE,
					store_fix_got, UNIT_SIZE),
			 0);
	assert_memory_equal(store_fix_got, store_fix_pattern, UNIT_SIZE);
}

static void a_full_disk_under_us_is_no_space(void **state)
{
	struct store_box *b = *state;

	store_box_fini(b);
	store_box_init_empty(b, 1, 0, MIB, MIB);
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
	fake_dev_set_space(b->f, 100 * MIB);
	assert_int_equal(store_box_open(b), 0);
	assert_int_equal(store_box_write(b, 10, 0, 0, 0, store_fix_pattern,
					 BLOCK, false),
			 -ENOSPC);
	fake_dev_set_space(b->f, 300 * (uint64_t)MIB);
	fake_dev_advance(b->f, 5000);
	store_fix_write(b, 10, 0, 0, BLOCK);
}

/* ---- numbers ---- */

static void numbers_survive_and_grow(void **state)
{
	struct store_box *b = *state;
	uint64_t commit = store_box_stat(b).commit;

	for (int i = 0; i < 5; i++) {
		store_fix_write(b, 1000 + (uint64_t)i, 0, 0, 10);
		store_note_session(b->s, 40 + (uint64_t)i);
		assert_int_equal(store_box_sync(b, 0), 0);
		assert_true(store_box_stat(b).commit > commit);
		commit = store_box_stat(b).commit;
		store_fix_reopen(b);
		assert_int_equal(store_box_stat(b).commit, commit);
		assert_int_equal(store_box_stat(b).ino_max, 1000 + i);
		assert_int_equal(store_box_stat(b).session_max, 40 + i);
		if (i % 2 == 0)
			store_box_settle(b);
	}
}

static void an_orderly_stop_leaves_nothing_to_replay(void **state)
{
	struct store_box *b = *state;
	struct fake_dev_count a, z;

	store_fix_write(b, 10, 0, 0, 100);
	assert_int_equal(store_box_sync(b, 0), 0);
	assert_int_equal(store_box_close(b), 0);
	assert_int_equal(store_box_open(b), 0);
	a = fake_dev_count(b->f);
	store_box_settle(b);
	z = fake_dev_count(b->f);
	assert_int_equal(z.writes - a.writes, 0);
	store_fix_read_same(b, 10, 0, 0, 100);
}

static void a_long_run_wraps_the_journal_many_times(void **state)
{
	struct store_box *b = *state;

	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(
			store_box_write(b, 10, i % 5, 0, i % 30 * 4096,
					store_fix_pattern + i % 30 * 4096, 4096,
					true),
			0);
		if (i % 200 == 199) {
			assert_true(store_box_stat(b).checkpoints > 0);
			store_fix_reopen(b);
		}
	}
	for (uint32_t i = 0; i < 5; i++)
		for (uint32_t u = i; u < 30; u += 5)
			store_fix_read_same(b, 10, i, u * 4096, 4096);
}

#define T(f) \
	cmocka_unit_test_setup_teardown(f, store_fix_setup, store_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_write_is_read_back),
		T(an_unaligned_write_is_read_back),
		T(a_large_write_goes_straight_to_its_place),
		T(append_and_sync_is_one_journal_write),
		T(what_was_synced_survives_a_restart),
		T(a_write_says_how_many_units_it_added),
		T(a_truncate_zeroes_the_rest_and_shrinks_the_end),
		T(an_old_cut_number_is_refused),
		T(a_repeated_cut_does_nothing),
		T(a_purge_frees_everything),
		T(a_purged_inode_takes_nothing),
		T(a_cut_spares_who_knew_of_it),
		T(alloc_reads_as_zeros_and_survives),
		T(map_shows_data_only),
		T(list_names_every_block_once),
		T(another_block_size_is_refused),
		T(synced_large_writes_survive_a_power_cut),
		T(a_failed_flush_stops_the_store),
		T(a_failed_journal_write_stops_the_store),
		T(a_full_store_says_so_and_loses_nothing),
		T(deleting_makes_room_at_once),
		T(promised_space_is_there),
		T(small_writes_fill_the_store_too),
		T(a_full_disk_under_us_is_no_space),
		T(numbers_survive_and_grow),
		T(an_orderly_stop_leaves_nothing_to_replay),
		T(a_long_run_wraps_the_journal_many_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
