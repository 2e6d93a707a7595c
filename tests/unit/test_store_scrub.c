/* A scrub reads what is overwritten, punched, purged and given to others
 * meanwhile: nothing of that is damage, and damage beside it is found. Its
 * reads are held on a fake disk, and what they read is what lies there when
 * they end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/store_priv.h"
#include "common/crc32c.h"
#include "tests/lib/store_fix.h"

#define MIB (1u << 20)
#define BLOCK STORE_FIX_BLOCK
#define UNITS (BLOCK / UNIT_SIZE)
/* More often than a read is tried again. */
#define ROUNDS (READ_RETRY_MAX + 4)
#define SEGMENT_UNITS_HERE 512u

static struct request {
	struct store_req req;
	uint8_t sums[UNITS * 4];
	int answer; /* 1: none yet */
} scrub, change;
static uint64_t units_read, units_bad;

static void answered(struct store_req *r, int err)
{
	container_of(r, struct request, req)->answer = err;
}

static struct store_req *begin(struct request *r)
{
	assert_int_not_equal(r->answer, 1);
	r->req.done = answered;
	r->answer = 1;
	return &r->req;
}

static int setup(void **state)
{
	struct store_box *b = calloc(1, sizeof(*b));

	store_box_init_empty(b, 1, 6 * SEGMENT_UNITS_HERE *
			     (uint64_t)UNIT_SIZE, MIB, MIB);
	b->o.segment_units = SEGMENT_UNITS_HERE;
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
	assert_int_equal(store_box_open(b), 0);
	*state = b;
	scrub.answer = change.answer = 0;
	store_fix_fill(1);
	return 0;
}

static void checkpoint(struct store_box *b)
{
	store_enter(b->s);
	ckpt_request(b->s);
	store_leave(b->s, true);
	store_box_settle(b);
}

/* Where unit @u of the block lies. */
static uint32_t place(struct store_box *b, uint64_t ino, uint64_t index,
		      uint32_t u)
{
	struct inode *in;
	struct block *bl;
	uint32_t loc;
	int err;

	store_enter(b->s);
	in = store_inode_get(b->s, ino, &err);
	assert_non_null(in);
	assert_int_equal(block_get(b->s, in, index, STORE_BOX_LOG2, false,
				   &bl), 0);
	loc = bl->m.loc[u];
	block_put(b->s, bl);
	inode_put(b->s, in);
	store_leave(b->s, true);
	return loc;
}

static uint32_t sum_at(struct store_box *b, uint32_t loc)
{
	uint8_t page[UNIT_SIZE];
	char name[32];

	space_segment_name(name, sizeof(name), loc >> SEG_SHIFT);
	if (!fake_dev_peek(b->f, name, (uint64_t)(loc % SEG_UNITS) *
			   UNIT_SIZE, page))
		return 0;
	return crc32c(0, page, sizeof(page));
}

/* Inode 10 has the block 0, on the disk, and a scrub reads it. */
static void scrub_reads_block(struct store_box *b)
{
	store_fix_write(b, 10, 0, 0, BLOCK);
	checkpoint(b);
	assert_true(loc_is_disk(place(b, 10, 0, 0)));
	fake_dev_hold_reads(b->f, true);
	store_scrub(b->s, begin(&scrub), 0, &units_read, &units_bad);
	store_box_settle(b);
	assert_int_equal(scrub.answer, 1);
}

/* The read that is held ends; the next one is held. */
static void one_read(struct store_box *b)
{
	fake_dev_hold_reads(b->f, false);
	assert_true(fake_dev_step(b->f));
	fake_dev_hold_reads(b->f, true);
	store_box_settle(b);
}

static void scrub_ends(struct store_box *b, uint64_t bad)
{
	fake_dev_hold_reads(b->f, false);
	store_box_settle(b);
	assert_int_equal(scrub.answer, 0);
	assert_int_equal(units_bad, bad);
	assert_int_equal(store_box_stat(b).checksum_errors > 0, bad > 0);
}

/* All that is free is given to others, and written: new data leave the reserve
 * free, overwriting takes of it. */
static void reuse(struct store_box *b, uint32_t loc)
{
	static uint8_t others[BLOCK] __attribute__((aligned(4096)));
	static uint64_t ino = 1000;
	uint32_t was = sum_at(b, loc);
	uint64_t count = 0, i;

	/* No unit is as one of the pattern. */
	for (i = 0; i < BLOCK; i++)
		others[i] = (uint8_t)(i * 11);
	ino++;
	checkpoint(b);
	checkpoint(b);
	while (store_box_write(b, ino, count, 0, 0, others, BLOCK, false) == 0)
		count++;
	for (i = 0; i < count && sum_at(b, loc) == was; i++)
		assert_int_equal(store_box_write(b, ino, i, 0, 0, others,
						 BLOCK, false), 0);
	assert_int_not_equal(sum_at(b, loc), was);
	assert_int_equal(store_box_purge(b, ino), 0);
}

static void overwrite(struct store_box *b, uint64_t ino, uint32_t off,
		      uint32_t len)
{
	struct blk_write w = { .ino = ino, .off = off, .len = len,
			       .block_log2 = STORE_BOX_LOG2, .mtime_ns = 5,
			       .flags = BLK_WRITE_SYNC };

	begin(&change);
	w.sums = (struct wire_str){ change.sums,
				    crc32c_piece_count(off, len) * 4 };
	crc32c_sums(off, store_fix_pattern + off, len, change.sums);
	store_write(b->s, &change.req, &w, store_fix_pattern + off);
	store_box_settle(b);
}

/* @len bytes in front are overwritten as often as @r looks; they are others'
 * when it sees them. */
static void overwritten_again_and_again(struct store_box *b, uint32_t len,
					const struct request *r)
{
	for (unsigned i = 0; i < ROUNDS && r->answer == 1; i++) {
		uint32_t loc = place(b, 10, 0, 0);

		store_fix_fill((uint8_t)(2 + i));
		overwrite(b, 10, 0, len);
		if (change.answer == 0)
			reuse(b, loc);
		one_read(b);
		assert_int_equal(change.answer, 0);
	}
	/* It ended while there were still changes. */
	assert_int_equal(r->answer, 0);
}

static void what_is_overwritten_is_not_damage(void **state)
{
	struct store_box *b = *state;

	scrub_reads_block(b);
	overwritten_again_and_again(b, BLOCK, &scrub);
	scrub_ends(b, 0);
}

static void what_is_overwritten_in_part_is_not_damage(void **state)
{
	struct store_box *b = *state;

	scrub_reads_block(b);
	overwritten_again_and_again(b, 3 * UNIT_SIZE, &scrub);
	scrub_ends(b, 0);
}

/* As a client's. */
static void no_read_meets_the_space_of_others(void **state)
{
	static uint8_t sums[UNITS * 4];
	struct blk_read rd = { .ino = 10, .len = BLOCK,
			       .block_log2 = STORE_BOX_LOG2 };
	struct store_read_out out = { .buf = store_fix_got,
				      .buf_cap = BLOCK, .sums = sums };
	struct store_box *b = *state;
	struct request r = { .answer = 0 };

	store_fix_write(b, 10, 0, 0, BLOCK);
	checkpoint(b);
	fake_dev_hold_reads(b->f, true);
	store_read(b->s, begin(&r), &rd, &out);
	store_box_settle(b);
	overwritten_again_and_again(b, BLOCK, &r);
	/* What the block was at some time: all of one write. */
	for (uint8_t seed = 1; seed < 2 + ROUNDS; seed++) {
		store_fix_fill(seed);
		if (memcmp(store_fix_got, store_fix_pattern, BLOCK) == 0)
			return;
	}
	fail_msg("no content that it had");
}

static void damage_beside_changes_is_found(void **state)
{
	struct store_box *b = *state;
	uint32_t loc;

	store_fix_write(b, 10, 0, 0, BLOCK);
	checkpoint(b);
	loc = place(b, 10, 0, UNITS - 1);
	fake_dev_flip(b->f, "seg-000000", (uint64_t)loc % SEG_UNITS *
		      UNIT_SIZE);
	assert_int_equal(loc >> SEG_SHIFT, 0);
	fake_dev_hold_reads(b->f, true);
	store_scrub(b->s, begin(&scrub), 0, &units_read, &units_bad);
	store_box_settle(b);
	for (unsigned i = 0; i < 200 && scrub.answer == 1; i++) {
		store_fix_fill((uint8_t)(2 + i));
		if (change.answer == 0)
			overwrite(b, 10, 0, BLOCK / 2);
		checkpoint(b);
		one_read(b);
	}
	assert_int_equal(scrub.answer, 0);
	scrub_ends(b, 1);
}

static void what_is_punched_is_not_damage(void **state)
{
	struct blk_cut c = { .ino = 10, .cut = 1, .from = UNIT_SIZE,
			     .to = BLOCK, .block_log2 = STORE_BOX_LOG2 };
	struct store_box *b = *state;
	uint32_t loc;

	scrub_reads_block(b);
	loc = place(b, 10, 0, 1);
	store_cut(b->s, begin(&change), &c);
	store_box_settle(b);
	one_read(b);
	assert_int_equal(change.answer, 0);
	reuse(b, loc);
	scrub_ends(b, 0);
	store_fix_fill(1);
	assert_int_equal(store_box_read(b, 10, 0, 1, 0, store_fix_got, BLOCK),
			 0);
	assert_memory_equal(store_fix_got, store_fix_pattern, UNIT_SIZE);
	for (uint32_t i = UNIT_SIZE; i < BLOCK; i++)
		assert_int_equal(store_fix_got[i], 0);
}

static void purge(struct store_box *b, const uint64_t *inos, size_t count)
{
	store_purge(b->s, begin(&change), inos, count);
	store_box_settle(b);
}

/* What it reads, and what it has listed and comes to later. */
static void what_is_purged_is_not_damage(void **state)
{
	static const uint64_t first = 10, later[] = { 11, 12, 13 };
	struct store_box *b = *state;
	uint32_t loc[2];

	for (uint64_t ino = 11; ino < 15; ino++)
		store_fix_write(b, ino, 0, 0, BLOCK);
	scrub_reads_block(b);
	loc[0] = place(b, 10, 0, 0);
	loc[1] = place(b, 12, 0, 0);
	purge(b, later, array_count(later));
	assert_int_equal(change.answer, 0);
	reuse(b, loc[1]);
	purge(b, &first, 1);
	one_read(b);
	assert_int_equal(change.answer, 0);
	reuse(b, loc[0]);
	scrub_ends(b, 0);
	assert_int_equal(units_read, 2 * UNITS); /* of 10 and 14 */
}

/* The file of the held read goes meanwhile. */
static void what_was_given_back_to_the_disk_is_not_damage(void **state)
{
	struct store_box *b = *state;
	uint64_t count = 0;
	uint32_t loc;

	while (store_box_write(b, 9, count, 0, 0, store_fix_pattern, BLOCK,
			       false) == 0)
		count++;
	store_fix_fill(2);
	assert_int_equal(store_box_cut(b, 9, 1, 0, (count - 1) * BLOCK), 0);
	checkpoint(b);
	loc = place(b, 9, count - 1, 0);
	assert_int_equal(loc >> SEG_SHIFT, b->s->map.seg_count - 1);
	fake_dev_hold_reads(b->f, true);
	store_scrub(b->s, begin(&scrub), 0, &units_read, &units_bad);
	store_box_settle(b);
	assert_int_equal(store_box_write(b, 9, count - 1, 1, 0,
					 store_fix_pattern, BLOCK, true), 0);
	checkpoint(b);
	checkpoint(b);
	assert_non_null(b->s->shrink.seg);
	scrub_ends(b, 0);
	assert_null(b->s->shrink.seg);
	assert_true(loc >> SEG_SHIFT >= b->s->map.seg_count);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, store_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_overwritten_is_not_damage),
		T(what_is_overwritten_in_part_is_not_damage),
		T(no_read_meets_the_space_of_others),
		T(damage_beside_changes_is_found),
		T(what_is_punched_is_not_damage),
		T(what_is_purged_is_not_damage),
		T(what_was_given_back_to_the_disk_is_not_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
