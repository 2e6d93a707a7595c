/* The block store on a fake disk: space that was promised is there, and memory
 * keeps its bounds, whatever comes at once.
 */
#include "tests/lib/store_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "blockd/index_priv.h"
#include "blockd/store_priv.h"
#include "common/crc32c.h"
#include "tests/lib/store_audit.h"

#define MIB (1u << 20)
#define BLOCK STORE_FIX_BLOCK
#define MANY 40u

struct call {
	struct store_req r;
	bool done;
	int err;
	uint8_t sums[BLOCK / UNIT_SIZE * 4];
};

static void called(struct store_req *r, int err)
{
	struct call *c = container_of(r, struct call, r);

	assert_false(c->done);
	c->done = true;
	c->err = err;
}

static void checkpoint(struct store_box *b)
{
	fake_dev_advance(b->f, CKPT_AGE_MS);
	ckpt_tick(b->s);
	while (!store_clean(b->s) && b->s->error == 0)
		assert_true(fake_dev_step(b->f));
}

static uint64_t index_pages(struct store_box *b)
{
	MDB_envinfo info;

	assert_int_equal(mdb_env_info(b->s->index->env, &info), 0);
	return info.me_last_pgno;
}

static void write_begin(struct store_box *b, struct call *c, uint64_t index,
			uint32_t len)
{
	struct blk_write w = { .ino = 10, .index = index, .len = len,
			       .block_log2 = STORE_BOX_LOG2, .mtime_ns = 5,
			       .sums = { c->sums,
					 crc32c_piece_count(0, len) * 4 } };

	*c = (struct call){ .r.done = called };
	crc32c_sums(0, store_fix_pattern, len, c->sums);
	store_write(b->s, &c->r, &w, store_fix_pattern);
}

/* Fills the store but for what only overwriting may use. */
static uint32_t fill(struct store_box *b)
{
	uint32_t count = 0;
	int err = 0;

	while (err == 0) {
		err = store_box_write(b, 10, count, 0, 0, store_fix_pattern,
				      BLOCK, false);
		count += err == 0;
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_box_settle(b);
	return count;
}

/* Units in the journal may be overwritten in place; a checkpoint that takes
 * them while a write reads what else it needs ends that. */
static void a_checkpoint_under_a_write_takes_no_promise_away(void **state)
{
	struct store_box *b = *state;
	static struct call calls[MANY];
	const uint32_t len = 14 * UNIT_SIZE + 100;

	store_box_fini(b);
	store_box_init(b, 1, 16 * MIB, 16 * MIB, 16 * MIB);
	assert_true(fill(b) > MANY);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(store_box_write(b, 10, i, 0, 0,
						 store_fix_pattern,
						 14 * UNIT_SIZE, true), 0);
	fake_dev_hold_reads(b->f, true);
	for (uint32_t i = 0; i < MANY; i++)
		write_begin(b, &calls[i], i, len);
	checkpoint(b);
	fake_dev_hold_reads(b->f, false);
	store_box_settle(b);
	checkpoint(b);
	store_box_settle(b);
	assert_int_equal(store_box_stat(b).error, 0);
	for (uint32_t i = 0; i < MANY; i++) {
		assert_true(calls[i].done);
		assert_true(calls[i].err == 0 || calls[i].err == -ENOSPC);
		store_fix_read_same(b, 10, i, 0, BLOCK);
	}
	assert_int_equal(calls[0].err, 0);
	assert_int_equal(store_audit(b->s, false), 0);
}

static void a_cut_behind_more_than_the_journal_holds_is_answered(void **state)
{
	struct store_box *b = *state;
	struct blk_cut cut = { .ino = 10, .cut = 1, .from = 99 * BLOCK,
			       .to = BLK_CUT_TO_END,
			       .block_log2 = STORE_BOX_LOG2 };
	struct call c = { .r.done = called };

	store_box_fini(b);
	store_box_init(b, 1, 64 * MIB, MIB, 16 * MIB);
	store_box_settle(b);
	/* More than the journal holds, before the cut in its commit. */
	for (uint32_t i = 0; i < 60; i++)
		store_fix_write(b, 10, i / 2, i % 2 * 15 * UNIT_SIZE,
				15 * UNIT_SIZE);
	store_cut(b->s, &c.r, &cut);
	for (uint32_t i = 0; i < 5000 && fake_dev_step(b->f); i++)
		;
	assert_true(c.done);
	assert_int_equal(c.err, 0);
	assert_int_equal(b->s->commit.state, COMMIT_IDLE);
	checkpoint(b);
	assert_int_equal(b->s->commit.cuts_armed, 0);
}

/* Of two units one is in memory, and must stay while the other is read, though
 * a checkpoint takes it. */
static void a_buffer_that_a_write_will_change_stays(void **state)
{
	struct store_box *b = *state;
	struct blk_write w = { .ino = 10, .off = 100, .len = UNIT_SIZE,
			       .block_log2 = STORE_BOX_LOG2, .mtime_ns = 5 };
	struct call c = { .r.done = called };

	store_box_fini(b);
	store_box_init(b, 1, 64 * MIB, MIB, CACHE_BYTES_MIN);
	store_fix_write(b, 10, 0, 0, BLOCK);
	store_fix_write(b, 10, 0, 0, UNIT_SIZE);
	fake_dev_hold_reads(b->f, true);
	w.sums = (struct wire_str){ c.sums, crc32c_piece_count(100,
							       w.len) * 4 };
	crc32c_sums(100, store_fix_pattern + 100, w.len, c.sums);
	store_write(b->s, &c.r, &w, store_fix_pattern + 100);
	for (uint32_t i = 0; i < 2 * CACHE_BYTES_MIN / UNIT_SIZE; i++)
		store_fix_write(b, 11, i / 32, i % 32 * UNIT_SIZE, UNIT_SIZE);
	assert_false(c.done);
	fake_dev_hold_reads(b->f, false);
	store_box_settle(b);
	assert_true(c.done);
	assert_int_equal(c.err, 0);
	store_fix_read_same(b, 10, 0, 0, BLOCK);
	assert_int_equal(store_audit(b->s, false), 0);
}

static void deleting_much_begins_a_checkpoint(void **state)
{
	static uint64_t inos[1024];
	struct store_box *b = *state;

	store_box_fini(b);
	store_box_init(b, 1, 64 * MIB, 16 * MIB, 16 * MIB);
	for (uint64_t ino = 10; ino < 3 * CKPT_CUTS_MAX;) {
		struct call c = { .r.done = called };

		for (uint32_t i = 0; i < array_count(inos); i++)
			inos[i] = ino++;
		store_purge(b->s, &c.r, inos, array_count(inos));
		while (!c.done)
			assert_true(fake_dev_step(b->f));
		assert_int_equal(c.err, 0);
		assert_true(b->s->cut_count <
			    CKPT_CUTS_MAX + 4 * array_count(inos));
	}
	assert_int_equal(store_audit(b->s, false), 0);
}

/* A list is as long as a frame. */
static void a_long_purge_takes_no_stack(void **state)
{
	const size_t count = FRAME_BODY_MAX / sizeof(uint64_t);
	uint64_t *inos = calloc(count, sizeof(*inos));
	struct call c = { .r.done = called };
	struct store_box *b = *state;

	assert_non_null(inos);
	for (size_t i = 0; i < count; i++)
		inos[i] = 10 + i;
	store_fix_write(b, inos[count - 1], 0, 0, BLOCK);
	store_purge(b->s, &c.r, inos, count);
	while (!c.done)
		assert_true(fake_dev_step(b->f));
	assert_int_equal(c.err, 0);
	store_fix_read_zeros(b, inos[count - 1], 0, 0, BLOCK);
	free(inos);
	assert_int_equal(store_audit(b->s, false), 0);
}

/* Blocks and inodes that stay in memory need no read of the index, and its old
 * pages are used again all the same. */
static void an_index_that_nobody_reads_does_not_grow(void **state)
{
	struct store_box *b = *state;
	uint64_t first = 0;

	for (uint32_t i = 0; i < 600; i++) {
		store_fix_write(b, 10, 0, 0, UNIT_SIZE);
		checkpoint(b);
		if (i == 100)
			first = index_pages(b);
	}
	assert_in_range(index_pages(b), first, first + 20);
	assert_int_equal(store_audit(b->s, false), 0);
}

static void reserving_space_waits_for_memory(void **state)
{
	static struct call calls[400];
	struct store_box *b = *state;

	store_box_fini(b);
	store_box_init_empty(b, 1, 64 * MIB, MIB, MIB);
	b->o.object_bytes = 16384;
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
	assert_int_equal(store_box_open(b), 0);
	for (uint32_t i = 0; i < array_count(calls); i++) {
		struct blk_alloc a = { .ino = 10, .index = i, .len = BLOCK,
				       .block_log2 = STORE_BOX_LOG2 };

		calls[i] = (struct call){ .r.done = called };
		store_alloc(b->s, &calls[i].r, &a);
		assert_true(b->s->dirty_blocks <= DIRTY_BLOCKS_WAIT + 1);
	}
	do {
		assert_true(b->s->dirty_blocks <= DIRTY_BLOCKS_WAIT + 1);
	} while (fake_dev_step(b->f));
	for (uint32_t i = 0; i < array_count(calls); i++) {
		assert_true(calls[i].done);
		assert_int_equal(calls[i].err, 0);
	}
	assert_int_equal(store_audit(b->s, false), 0);
}

#define T(f) \
	cmocka_unit_test_setup_teardown(f, store_fix_setup, store_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_checkpoint_under_a_write_takes_no_promise_away),
		T(a_cut_behind_more_than_the_journal_holds_is_answered),
		T(a_buffer_that_a_write_will_change_stays),
		T(deleting_much_begins_a_checkpoint),
		T(a_long_purge_takes_no_stack),
		T(an_index_that_nobody_reads_does_not_grow),
		T(reserving_space_waits_for_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
