/* Segments that came free go back to the disk: when, when not, and what is
 * there whenever it is cut off. Segments of 2 MiB on a fake disk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/store_priv.h"
#include "tests/lib/store_audit.h"
#include "tests/lib/store_box.h"

#define MIB (1u << 20)
#define BLOCK (1u << STORE_BOX_LOG2)
#define SEGMENT_UNITS_HERE 512u
#define SEGMENTS 6u
/* What stays of an empty store: half a segment and the reserve ahead of need,
 * and a whole one so that making and giving back do not alternate. */
#define SEGMENTS_KEPT 3u

static uint8_t pattern[BLOCK] __attribute__((aligned(4096)));
static uint8_t got[BLOCK] __attribute__((aligned(4096)));

static void init(struct store_box *b, uint64_t seed)
{
	store_box_init_empty(b, seed, SEGMENTS * SEGMENT_UNITS_HERE *
			     (uint64_t)UNIT_SIZE, MIB, MIB);
	b->o.segment_units = SEGMENT_UNITS_HERE;
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
	assert_int_equal(store_box_open(b), 0);
}

static int setup(void **state)
{
	struct store_box *b = calloc(1, sizeof(*b));

	init(b, 1);
	*state = b;
	for (uint32_t i = 0; i < BLOCK; i++)
		pattern[i] = (uint8_t)(1 + i * 7 + i / 4096);
	return 0;
}

static int teardown(void **state)
{
	store_box_fini(*state);
	free(*state);
	return 0;
}

static uint32_t segments(struct store_box *b)
{
	uint32_t count = 0;
	char name[32];

	for (uint32_t i = 0; i < 2 * SEGMENTS; i++) {
		space_segment_name(name, sizeof(name), i);
		count += fake_dev_size(b->f, name) > 0;
	}
	return count;
}

static void ckpt_start(struct store_box *b)
{
	store_enter(b->s);
	ckpt_request(b->s);
	store_leave(b->s, true);
}

static void checkpoint(struct store_box *b)
{
	ckpt_start(b);
	store_box_settle(b);
}

static uint32_t fill_up(struct store_box *b, uint64_t ino)
{
	uint32_t blocks = 0;

	while (store_box_write(b, ino, blocks, 0, 0, pattern, BLOCK, false) ==
	       0)
		blocks++;
	store_box_settle(b);
	return blocks;
}

static void read_same(struct store_box *b, uint64_t ino, uint64_t index)
{
	memset(got, 0xee, BLOCK);
	assert_int_equal(store_box_read(b, ino, index, 9, 0, got, BLOCK), 0);
	assert_memory_equal(got, pattern, BLOCK);
}

static void what_was_deleted_goes_back_to_the_disk(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = fill_up(b, 10);
	struct store_stat full = store_box_stat(b), empty;
	uint64_t disk_full, disk_empty;

	assert_int_equal(segments(b), SEGMENTS);
	assert_int_equal(fake_dev_dev(b->f)->vt->space(fake_dev_dev(b->f),
						       &disk_full), 0);
	assert_int_equal(store_box_purge(b, 10), 0);
	assert_int_equal(segments(b), SEGMENTS);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS_KEPT);
	assert_int_equal(fake_dev_dev(b->f)->vt->space(fake_dev_dev(b->f),
						       &disk_empty), 0);
	assert_int_equal(disk_empty - disk_full, (SEGMENTS - SEGMENTS_KEPT) *
			 SEGMENT_UNITS_HERE * (uint64_t)UNIT_SIZE);
	/* What one may write is what it was. */
	empty = store_box_stat(b);
	assert_int_equal(empty.units_total, full.units_total);
	assert_int_equal(empty.units_free, empty.units_total);
	assert_int_equal(store_audit(b->s, false), 0);
	assert_int_equal(fill_up(b, 11), blocks);
	assert_int_equal(segments(b), SEGMENTS);
	for (uint32_t i = 0; i < blocks; i++)
		read_same(b, 11, i);
}

/* Promised, in the index, and taken back: by one checkpoint, the last there is
 * for want of anything else to do. */
static void promises_taken_back_give_back_too(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = 0;

	while (store_box_alloc(b, 10, blocks, 0, 0, BLOCK) == 0)
		blocks++;
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS);
	assert_int_equal(store_box_purge(b, 10), 0);
	checkpoint(b);
	assert_int_equal(store_box_stat(b).units_free,
			 store_box_stat(b).units_total);
	assert_int_equal(segments(b), SEGMENTS_KEPT);
}

static void a_start_gives_back_too(void **state)
{
	struct store_box *b = *state;

	(void)fill_up(b, 10);
	fake_dev_fail_unlink(b->f, -EIO);
	assert_int_equal(store_box_purge(b, 10), 0);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS);
	fake_dev_fail_unlink(b->f, 0);
	store_box_kill(b);
	assert_int_equal(store_box_open(b), 0);
	store_box_settle(b);
	assert_int_equal(segments(b), SEGMENTS_KEPT);
}

static void a_segment_whose_name_stays_is_used_on(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = fill_up(b, 10);

	fake_dev_fail_unlink(b->f, -EIO);
	for (uint64_t ino = 10; ino < 13; ino++) {
		assert_int_equal(store_box_purge(b, ino), 0);
		checkpoint(b);
		assert_int_equal(segments(b), SEGMENTS);
		assert_int_equal(fill_up(b, ino + 1), blocks);
	}
	assert_int_equal(store_box_stat(b).error, 0);
	assert_int_equal(store_audit(b->s, false), 0);
}

static void data_in_the_last_segment_keeps_it_until_it_moves(void **state)
{
	struct store_box *b = *state;
	uint32_t last = fill_up(b, 10) - 1;

	assert_int_equal(store_box_cut(b, 10, 1, 0, (uint64_t)last * BLOCK),
			 0);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS);
	read_same(b, 10, last);
	/* What is written anew goes to the front. */
	assert_int_equal(store_box_write(b, 10, last, 1, 0, pattern, BLOCK,
					 true), 0);
	checkpoint(b);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS_KEPT);
	read_same(b, 10, last);
}

static void a_little_more_or_less_changes_nothing(void **state)
{
	struct store_box *b = *state;

	(void)fill_up(b, 10);
	assert_int_equal(store_box_purge(b, 10), 0);
	checkpoint(b);
	for (uint64_t ino = 20; ino < 60; ino++) {
		for (uint32_t i = 0; i < 8; i++)
			assert_int_equal(store_box_write(b, ino, i, 0, 0,
							 pattern, BLOCK,
							 false), 0);
		checkpoint(b);
		assert_int_equal(segments(b), SEGMENTS_KEPT);
		assert_int_equal(store_box_purge(b, ino), 0);
		checkpoint(b);
		assert_int_equal(segments(b), SEGMENTS_KEPT);
	}
}

static void promised_space_keeps_segments(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = fill_up(b, 10);

	assert_int_equal(store_box_purge(b, 10), 0);
	for (uint32_t i = 0; i < blocks; i++)
		assert_int_equal(store_box_alloc(b, 11, i, 0, 0, BLOCK), 0);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS);
	for (uint32_t i = 0; i < blocks; i++)
		assert_int_equal(store_box_write(b, 11, i, 0, 0, pattern,
						 BLOCK, false), 0);
}

/* ---- a read under way ---- */
static struct late_read {
	struct store_req req;
	struct store_read_out out;
	uint8_t sums[BLOCK / UNIT_SIZE * 4];
	int answer; /* 1: none yet */
} late;

static void answered(struct store_req *r, int err)
{
	(void)r;
	late.answer = err;
}

/* All is free but one block, which was overwritten while it is read. Returns
 * how many a full store has. */
static uint32_t last_is_read(struct store_box *b)
{
	uint32_t blocks = fill_up(b, 10), last = blocks - 1;
	struct blk_read rd = { .ino = 10, .index = last, .cut = 1,
			       .len = BLOCK, .block_log2 = STORE_BOX_LOG2 };

	assert_int_equal(store_box_cut(b, 10, 1, 0, (uint64_t)last * BLOCK),
			 0);
	checkpoint(b);
	assert_int_equal(segments(b), SEGMENTS);
	late = (struct late_read){ .req.done = answered, .answer = 1 };
	late.out = (struct store_read_out){ .buf = got, .buf_cap = BLOCK,
					    .sums = late.sums };
	fake_dev_hold_reads(b->f, true);
	store_read(b->s, &late.req, &rd, &late.out);
	assert_int_equal(store_box_write(b, 10, last, 1, 0, pattern, BLOCK,
					 true), 0);
	checkpoint(b);
	checkpoint(b);
	/* It waits, and with it all before it. */
	assert_int_equal(late.answer, 1);
	assert_non_null(b->s->shrink.seg);
	assert_int_equal(segments(b), SEGMENTS);
	return blocks;
}

static void a_read_under_way_keeps_the_file_open(void **state)
{
	struct store_box *b = *state;

	(void)last_is_read(b);
	fake_dev_hold_reads(b->f, false);
	store_box_settle(b);
	assert_int_equal(late.answer, 0);
	assert_memory_equal(got, pattern, BLOCK);
	assert_int_equal(segments(b), SEGMENTS_KEPT);
}

static void a_writer_that_needs_its_name_waits(void **state)
{
	struct store_box *b = *state;
	uint32_t blocks = last_is_read(b), done = 0;

	/* All but the last segment can be filled meanwhile. */
	while (b->s->map.free_count > b->s->reserve + BLOCK / UNIT_SIZE)
		assert_int_equal(store_box_write(b, 11, done++, 0, 0, pattern,
						 BLOCK, false), 0);
	assert_int_equal(b->s->map.seg_count, SEGMENTS - 1);
	fake_dev_hold_reads(b->f, false);
	while (store_box_write(b, 11, done, 0, 0, pattern, BLOCK, false) == 0)
		done++;
	assert_int_equal(done, blocks - 1);
	assert_int_equal(b->s->map.seg_count, SEGMENTS);
	assert_int_equal(late.answer, 0);
}

/* ---- cut off ---- */
static void check_clean(struct store_box *b)
{
	FILE *out = tmpfile();

	assert_non_null(out);
	assert_int_equal(store_check(fake_dev_dev(b->f), &b->o, true, out), 0);
	(void)fclose(out);
}

/* Purges a full store but for one block and dies before the k-th change of
 * the disk. */
static bool cut_off_at(uint64_t k, bool power)
{
	struct store_box b;
	uint32_t blocks;
	bool dead;

	init(&b, k);
	assert_int_equal(store_box_write(&b, 9, 0, 0, 0, pattern, BLOCK, true),
			 0);
	blocks = fill_up(&b, 10);
	assert_int_equal(store_box_sync(&b, 0), 0);
	assert_int_equal(store_box_purge(&b, 10), 0);
	fake_dev_die_at(b.f, k);
	checkpoint(&b);
	dead = fake_dev_dead(b.f);
	if (!dead)
		assert_int_equal(segments(&b), SEGMENTS_KEPT);
	if (power)
		store_box_power_cut(&b);
	else
		store_box_kill(&b);
	check_clean(&b);
	assert_int_equal(store_box_open(&b), 0);
	store_box_settle(&b);
	assert_int_equal(store_audit(b.s, false), 0);
	assert_int_equal(segments(&b), SEGMENTS_KEPT);
	read_same(&b, 9, 0);
	assert_int_equal(fill_up(&b, 11), blocks);
	assert_int_equal(store_box_sync(&b, 0), 0);
	store_box_power_cut(&b);
	check_clean(&b);
	assert_int_equal(store_box_open(&b), 0);
	for (uint32_t i = 0; i < blocks; i++)
		read_same(&b, 11, i);
	store_box_fini(&b);
	return dead;
}

static void every_step_may_be_the_last(void **state)
{
	(void)state;
	for (int power = 0; power < 2; power++) {
		uint64_t k = 1;

		while (cut_off_at(k, power != 0))
			k++;
		/* Three for each segment, at least. */
		assert_true(k > 3 * (SEGMENTS - SEGMENTS_KEPT));
	}
}

/* The disk has room for two and a half segments more. */
static void what_makes_no_segment_is_not_counted(void **state)
{
	struct store_box *b = *state;
	const uint64_t segment = SEGMENT_UNITS_HERE * (uint64_t)UNIT_SIZE;
	uint64_t told;

	store_box_settle(b); /* with its first segment */
	fake_dev_set_space(b->f, b->s->reserve * UNIT_SIZE + 5 * segment / 2);
	b->s->fs_checked_ms = 0; /* it looks again */
	told = store_box_stat(b).units_free;
	assert_int_equal(store_box_stat(b).units_more, 2 * SEGMENT_UNITS_HERE);
	assert_int_equal(fill_up(b, 10), told * UNIT_SIZE / BLOCK);
	assert_int_equal(store_box_stat(b).units_more, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			what_was_deleted_goes_back_to_the_disk, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			promises_taken_back_give_back_too, setup, teardown),
		cmocka_unit_test_setup_teardown(a_start_gives_back_too, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_segment_whose_name_stays_is_used_on, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			data_in_the_last_segment_keeps_it_until_it_moves,
			setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_little_more_or_less_changes_nothing, setup,
			teardown),
		cmocka_unit_test_setup_teardown(promised_space_keeps_segments,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_read_under_way_keeps_the_file_open, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_writer_that_needs_its_name_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(every_step_may_be_the_last,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			what_makes_no_segment_is_not_counted, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
