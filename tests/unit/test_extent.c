/* The allocator against an array of bytes: every unit is given out once, runs
 * are as long as can be had, and what is freed comes back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/extent.h"
#include "blockd/mem.h"

static uint64_t rng = 88172645463325252u;

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 11) % below;
}

static void all_is_given_out_exactly_once(void **state)
{
	struct extent_map m;
	uint8_t *seen = calloc(2 * SEG_UNITS, 1);
	uint32_t loc, n;
	uint64_t total = 0;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, SEG_UNITS), 0);
	assert_int_equal(extent_add_segment(&m, 1000), 0);
	assert_int_equal(m.unit_count, SEG_UNITS - EXTENT_LOC_MIN + 1000);
	while ((n = extent_alloc(&m, 0, 1 + rnd(700), &loc)) > 0) {
		assert_true(loc >= EXTENT_LOC_MIN);
		assert_int_equal(loc >> SEG_SHIFT, (loc + n - 1) >> SEG_SHIFT);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(seen[loc + i]++, 0);
		total += n;
	}
	assert_int_equal(total, m.unit_count);
	assert_int_equal(m.free_count, 0);
	extent_map_fini(&m);
	free(seen);
}

static void a_hint_continues_a_run(void **state)
{
	struct extent_map m;
	uint32_t a, b, c;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, 1000), 0);
	assert_int_equal(extent_alloc(&m, 0, 10, &a), 10);
	assert_int_equal(extent_alloc(&m, 500, 10, &b), 10);
	assert_int_equal(b, 500);
	assert_int_equal(extent_alloc(&m, a + 10, 10, &c), 10);
	assert_int_equal(c, a + 10);
	/* A hint that is taken is only a hint. */
	assert_int_equal(extent_alloc(&m, 500, 10, &c), 10);
	assert_int_not_equal(c, 500);
	extent_map_fini(&m);
}

static void a_whole_run_is_preferred_to_pieces(void **state)
{
	struct extent_map m;
	uint32_t loc;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, 1000), 0);
	assert_int_equal(extent_alloc(&m, 0, 1000, &loc),
			 1000 - EXTENT_LOC_MIN);
	extent_free(&m, 100, 5);
	extent_free(&m, 200, 50);
	extent_free(&m, 300, 20);
	assert_int_equal(extent_alloc(&m, 0, 30, &loc), 30);
	assert_int_equal(loc, 200);
	assert_int_equal(extent_alloc(&m, 0, 30, &loc), 20);
	extent_map_fini(&m);
}

static void what_is_marked_is_not_given_out(void **state)
{
	struct extent_map m;
	uint32_t loc, n;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, 300), 0);
	assert_int_equal(extent_mark(&m, 100, 50), 0);
	assert_int_equal(extent_mark(&m, 149, 2), -EEXIST);
	assert_false(extent_used(&m, 150));
	assert_int_equal(extent_mark(&m, 290, 11), -ERANGE);
	assert_int_equal(extent_mark(&m, 0, 1), -ERANGE);
	assert_int_equal(extent_mark(&m, SEG_UNITS, 1), -ERANGE);
	while ((n = extent_alloc(&m, 0, 7, &loc)) > 0)
		assert_true(loc + n <= 100 || loc >= 150);
	extent_map_fini(&m);
}

static void a_segment_can_be_lengthened(void **state)
{
	struct extent_map m;
	uint32_t loc;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, 100), 0);
	assert_int_equal(extent_alloc(&m, 0, 1000, &loc), 100 - EXTENT_LOC_MIN);
	extent_grow_last(&m, 150);
	assert_int_equal(extent_alloc(&m, 0, 1000, &loc), 50);
	assert_int_equal(loc, 100);
	extent_map_fini(&m);
}

static void the_lowest_segment_with_room_comes_first(void **state)
{
	struct extent_map m;
	uint32_t loc;

	(void)state;
	extent_map_init(&m);
	for (int i = 0; i < 3; i++)
		assert_int_equal(extent_add_segment(&m, 400), 0);
	while (extent_alloc(&m, 0, 100, &loc) > 0)
		;
	extent_free(&m, 50, 20);
	extent_free(&m, SEG_UNITS + 50, 20);
	extent_free(&m, 2 * SEG_UNITS + 50, 200);
	assert_int_equal(extent_alloc(&m, 2 * SEG_UNITS + 50, 10, &loc), 10);
	assert_int_equal(extent_alloc(&m, 0, 10, &loc), 10);
	assert_int_equal(loc, 2 * SEG_UNITS + 60); /* where one was */
	extent_rewind(&m); /* nothing much is free below */
	assert_int_equal(extent_alloc(&m, 0, 180, &loc), 180);
	assert_int_equal(loc, 2 * SEG_UNITS + 70);
	assert_int_equal(extent_alloc(&m, 0, 10, &loc), 10);
	assert_int_equal(loc, 50);
	extent_free(&m, SEG_UNITS + 100, 200);
	extent_free(&m, 2 * SEG_UNITS + 50, 200);
	assert_int_equal(extent_alloc(&m, 2 * SEG_UNITS + 50, 10, &loc), 10);
	extent_rewind(&m);
	assert_int_equal(extent_alloc(&m, 0, 100, &loc), 100);
	assert_int_equal(loc, SEG_UNITS + 100);
	extent_map_fini(&m);
}

static void the_last_segment_goes_when_it_is_free(void **state)
{
	struct extent_map m;
	uint32_t loc, n;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, 400), 0);
	assert_false(extent_last_free(&m)); /* the only one */
	assert_int_equal(extent_add_segment(&m, 300), 0);
	assert_int_equal(extent_mark(&m, SEG_UNITS + 299, 1), 0);
	assert_false(extent_last_free(&m));
	extent_free(&m, SEG_UNITS + 299, 1);
	assert_int_equal(extent_alloc(&m, SEG_UNITS + 7, 1, &loc), 1);
	extent_free(&m, loc, 1);
	assert_true(extent_last_free(&m));
	extent_drop_last(&m);
	assert_int_equal(m.seg_count, 1);
	assert_int_equal(m.free_count, 400 - EXTENT_LOC_MIN);
	assert_int_equal(m.unit_count, 400 - EXTENT_LOC_MIN);
	assert_int_equal(extent_mark(&m, SEG_UNITS, 1), -ERANGE);
	/* Cursor and hint were in it. */
	n = extent_alloc(&m, SEG_UNITS + 8, 1000, &loc);
	assert_int_equal(n, 400 - EXTENT_LOC_MIN);
	assert_int_equal(loc, EXTENT_LOC_MIN);
	assert_int_equal(extent_add_segment(&m, 300), 0);
	assert_int_equal(extent_alloc(&m, 0, 300, &loc), 300);
	assert_int_equal(loc, SEG_UNITS);
	extent_map_fini(&m);
}

static bool has_run(const uint8_t *used, uint32_t want)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < 2 * SEG_UNITS; i++) {
		run = used[i] || i == SEG_UNITS ? used[i] == 0 : run + 1;
		if (run == want)
			return true;
	}
	return false;
}

static void random_steps_agree_with_bytes(void **state)
{
	const uint32_t units = 700;
	struct extent_map m;
	uint8_t used[2 * SEG_UNITS] = { 0 };
	uint64_t free_count = 0;

	(void)state;
	extent_map_init(&m);
	assert_int_equal(extent_add_segment(&m, units), 0);
	assert_int_equal(extent_add_segment(&m, units), 0);
	memset(used, 1, sizeof(used));
	memset(used + EXTENT_LOC_MIN, 0, units - EXTENT_LOC_MIN);
	memset(used + SEG_UNITS, 0, units);
	free_count = 2 * units - EXTENT_LOC_MIN;
	for (int i = 0; i < 100000; i++) {
		uint32_t loc = rnd(2) * SEG_UNITS + rnd(units), n;

		if (rnd(2) == 0) {
			uint32_t want = 1 + rnd(40);
			uint32_t hint = rnd(3) == 0 ? loc : 0;

			n = extent_alloc(&m, hint, want, &loc);
			assert_true(n <= want && (n > 0) == (free_count > 0));
			/* No run that is long enough is missed. */
			if (n < want && i % 8 == 0)
				assert_false(has_run(used, want));
			for (uint32_t k = 0; k < n; k++)
				assert_int_equal(used[loc + k]++, 0);
			free_count -= n;
		} else if (used[loc] == 1 && loc >= EXTENT_LOC_MIN) {
			for (n = 0; n < 20 && loc % SEG_UNITS + n < units &&
			     used[loc + n] == 1; n++)
				used[loc + n] = 0;
			extent_free(&m, loc, n);
			free_count += n;
		}
		assert_int_equal(m.free_count, free_count);
	}
	extent_map_fini(&m);
}

static void no_memory_changes_nothing(void **state)
{
	struct extent_map m;

	(void)state;
	extent_map_init(&m);
	for (uint64_t k = 1; k <= 2; k++) {
		(void)mem_fail_at(k);
		assert_int_equal(extent_add_segment(&m, 100), -ENOMEM);
		assert_int_equal(m.seg_count, 0);
		assert_int_equal(m.free_count, 0);
	}
	(void)mem_fail_at(0);
	assert_int_equal(extent_add_segment(&m, 100), 0);
	extent_map_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_given_out_exactly_once),
		cmocka_unit_test(a_hint_continues_a_run),
		cmocka_unit_test(a_whole_run_is_preferred_to_pieces),
		cmocka_unit_test(what_is_marked_is_not_given_out),
		cmocka_unit_test(a_segment_can_be_lengthened),
		cmocka_unit_test(the_lowest_segment_with_room_comes_first),
		cmocka_unit_test(the_last_segment_goes_when_it_is_free),
		cmocka_unit_test(random_steps_agree_with_bytes),
		cmocka_unit_test(no_memory_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
