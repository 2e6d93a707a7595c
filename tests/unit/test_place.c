/* Placement: values pinned (they are part of the disk format), spread. */
#include "common/place.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct cmap *map_of(uint32_t daemon_count)
{
	struct cmap *m = cmap_new();

	assert_non_null(m);
	for (uint32_t i = 0; i < daemon_count; i++) {
		struct cmap_daemon d = { .id = i + 1, .addr = "127.0.0.1" };

		assert_int_equal(cmap_add_daemon(m, &d), (int)i);
	}
	cmap_fill_slots(m);
	return m;
}

static void slots_are_what_they_always_were(void **state)
{
	(void)state;
	assert_int_equal(place_slot(1, 0), 2350);
	assert_int_equal(place_slot(2, 0), 579);
	assert_int_equal(place_slot(0x0123456789abcdefull, 0), 1958);
	assert_int_equal(place_slot(UINT64_MAX, 0), 1043);
}

static void consecutive_blocks_take_consecutive_slots(void **state)
{
	uint32_t first = place_slot(77, 0);

	(void)state;
	for (uint64_t i = 0; i < 3 * SLOT_COUNT; i++)
		assert_int_equal(place_slot(77, i), (first + i) % SLOT_COUNT);
}

static void the_sum_wraps_at_the_largest_index(void **state)
{
	(void)state;
	assert_int_equal((place_slot(77, UINT64_MAX) + 1) % SLOT_COUNT,
			 place_slot(77, 0));
}

static void inodes_spread_evenly_over_slots(void **state)
{
	static unsigned count[SLOT_COUNT];
	unsigned most = 0, none = 0;

	(void)state;
	for (uint64_t ino = 1; ino <= 64 * SLOT_COUNT; ino++)
		count[place_slot(ino, 0)]++;
	for (uint32_t s = 0; s < SLOT_COUNT; s++) {
		none += count[s] == 0;
		most = count[s] > most ? count[s] : most;
	}
	assert_int_equal(none, 0);
	assert_true(most < 64 * 2);
}

static void a_file_uses_every_daemon_equally(void **state)
{
	struct cmap *m = map_of(3);
	unsigned count[3] = { 0 };

	(void)state;
	for (uint64_t i = 0; i < 3 * SLOT_COUNT; i++)
		count[place_primary(m, 5, i)]++;
	for (unsigned d = 0; d < 3; d++)
		assert_in_range(count[d], SLOT_COUNT - 3, SLOT_COUNT + 3);
	cmap_free(m);
}

static void without_daemons_there_is_no_primary(void **state)
{
	struct cmap *m = map_of(0);

	(void)state;
	assert_int_equal(place_primary(m, 5, 0), -ENODEV);
	cmap_free(m);
}

static void the_primary_is_the_slots_first(void **state)
{
	struct cmap *m = map_of(4);

	(void)state;
	m->slots[place_slot(9, 3)][0] = 2;
	assert_int_equal(place_primary(m, 9, 3), 2);
	cmap_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_what_they_always_were),
		cmocka_unit_test(consecutive_blocks_take_consecutive_slots),
		cmocka_unit_test(the_sum_wraps_at_the_largest_index),
		cmocka_unit_test(inodes_spread_evenly_over_slots),
		cmocka_unit_test(a_file_uses_every_daemon_equally),
		cmocka_unit_test(without_daemons_there_is_no_primary),
		cmocka_unit_test(the_primary_is_the_slots_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
