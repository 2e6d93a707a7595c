/* Goal: space that several daemons share is counted once.
 * Method: sums that can be made by hand.
 */
#include "common/disk_share.h"
#include "common/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define S ((uint64_t)SEG_UNITS)

#define SUM(...)                                                             \
	sum((const struct disk_share[]){ __VA_ARGS__ },                      \
	    array_count(((const struct disk_share[]){ __VA_ARGS__ })))

static struct disk_sum sum(const struct disk_share *v, uint32_t count)
{
	struct disk_sum s;

	disk_share_sum(v, count, &s);
	return s;
}

static void is(struct disk_sum s, uint64_t total, uint64_t nfree,
	       uint64_t avail)
{
	assert_int_equal(s.units_total, total);
	assert_int_equal(s.units_free, nfree);
	assert_int_equal(s.units_avail, avail);
}

static void disks_of_their_own_are_added(void **state)
{
	(void)state;
	is(SUM({ 100, 90, 80, 1 }, { 100, 90, 80, 2 }), 200, 180, 180);
	is(SUM({ 100, 90, 80, 0 }, { 100, 90, 80, 0 }), 200, 180, 180);
	/* The fullest ends it. */
	is(SUM({ 100, 10, 0, 1 }, { 100, 90, 80, 2 }), 200, 100, 20);
}

static void a_shared_disk_is_counted_once(void **state)
{
	(void)state;
	is(SUM({ 9 * S, 9 * S, 9 * S, 7 }, { 9 * S, 9 * S, 9 * S, 7 },
	       { 9 * S, 9 * S, 9 * S, 7 }),
	   9 * S, 9 * S, 9 * S);
	/* What a daemon has taken is its own. */
	is(SUM({ 6 * S + 70, 6 * S + 10, 6 * S, 7 },
	       { 6 * S, 6 * S, 6 * S, 7 }),
	   6 * S + 70, 6 * S + 10, 6 * S);
	is(SUM({ 6 * S, 6 * S, 6 * S, 7 }, { 6 * S, 6 * S, 6 * S, 7 },
	       { 5 * S, 4 * S, 4 * S, 8 }),
	   11 * S, 10 * S, 9 * S);
}

static void half_segments_do_not_count(void **state)
{
	(void)state;
	is(SUM({ 7 * S, 7 * S, 7 * S, 7 }, { 7 * S, 7 * S, 7 * S, 7 }), 6 * S,
	   6 * S, 6 * S);
	is(SUM({ S + 70, S + 50, S, 7 }, { S + 70, S + 60, S, 7 }), 140, 110,
	   100);
}

static void limits_and_reserves_count(void **state)
{
	(void)state;
	/* One may take no more than 10 of it (--capacity). */
	is(SUM({ 10, 10, 10, 7 }, { 8 * S, 8 * S, 8 * S, 7 }), 4 * S + 10,
	   4 * S + 10, 20);
	/* Less is free than the disk could give: it is promised. */
	is(SUM({ 6 * S, S, 6 * S, 7 }, { 6 * S, 6 * S, 6 * S, 7 }), 6 * S,
	   3 * S, 0);
}

static void nobody_has_nothing(void **state)
{
	(void)state;
	is(sum(NULL, 0), 0, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(disks_of_their_own_are_added),
		cmocka_unit_test(a_shared_disk_is_counted_once),
		cmocka_unit_test(half_segments_do_not_count),
		cmocka_unit_test(limits_and_reserves_count),
		cmocka_unit_test(nobody_has_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
