/* Clocks as one number: none loses a part of its value, and a deadline is as
 * far away as was asked for, and a time of day that the kernel takes.
 */
#include "common/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t ns_of(struct timespec t)
{
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t read_ns(clockid_t clock)
{
	struct timespec t;

	assert_int_equal(clock_gettime(clock, &t), 0);
	return ns_of(t);
}

static void a_clock_is_read_whole(void **state)
{
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME,
					    CLOCK_REALTIME_COARSE,
					    CLOCK_MONOTONIC_COARSE };

	(void)state;
	for (size_t i = 0; i < array_count(clocks); i++) {
		uint64_t before = read_ns(clocks[i]);
		uint64_t ns = clock_now_ns(clocks[i]);
		uint64_t ms = clock_now_ms(clocks[i]);
		uint64_t after = read_ns(clocks[i]);

		assert_in_range(ns, before, after);
		assert_in_range(ms, before / 1000000, after / 1000000);
	}
}

/* So many milliseconds that the nanoseconds carry for some of them. */
static void a_deadline_is_as_far_as_asked(void **state)
{
	static const uint64_t most = UINT64_C(30) * 86400 * 1000;

	(void)state;
	for (uint64_t ms = 0; ms <= 2000; ms++) {
		uint64_t away = ms < 2000 ? ms : most;
		uint64_t before = read_ns(CLOCK_MONOTONIC);
		struct timespec t = clock_deadline(away);
		uint64_t after = read_ns(CLOCK_MONOTONIC);

		assert_in_range(t.tv_nsec, 0, 999999999);
		assert_in_range(ns_of(t) - away * 1000000, before, after);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_clock_is_read_whole),
		cmocka_unit_test(a_deadline_is_as_far_as_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
