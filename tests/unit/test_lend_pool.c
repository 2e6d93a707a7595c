/* Regions of a log daemon's memory: they lie at multiples of their size, none
 * overlaps another, all comes back. Exact cases, and chance against an array
 * of what is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "logd/lend_pool.h"
#include "tests/lib/fail_malloc.h"

#define MIN LOG_REGION_LOG2_MIN
#define MAX LOG_REGION_LOG2_MAX

static uint8_t *const base = (uint8_t *)(uintptr_t)0x100000000; /* no memory */

static void pieces_are_of_the_size_asked_for(void **state)
{
	struct lend_pool p;
	uint8_t *a, *b;

	(void)state;
	assert_int_equal(lend_pool_init(&p, base, 1u << 20), 0);
	assert_int_equal(lend_pool_total(&p), 1u << 20);
	a = lend_pool_get(&p, MIN);
	b = lend_pool_get(&p, 19);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal((b - base) % (1 << 19), 0);
	assert_int_equal(lend_pool_free(&p), (1u << 19) - (1u << MIN));
	assert_null(lend_pool_get(&p, 19)); /* there is not so much together */
	assert_null(lend_pool_get(&p, MIN - 1));
	assert_null(lend_pool_get(&p, MAX + 1));
	lend_pool_put(&p, a);
	assert_non_null(lend_pool_get(&p, 19));
	assert_int_equal(lend_pool_free(&p), 0);
	assert_null(lend_pool_get(&p, MIN));
	lend_pool_fini(&p);
}

/* A size that is no power of two, and ends within a granule. */
static void odd_sizes_are_used_to_the_last_granule(void **state)
{
	struct lend_pool p;
	unsigned count = 0;

	(void)state;
	assert_int_equal(lend_pool_init(&p, base, (7u << MIN) + 5), 0);
	assert_int_equal(lend_pool_total(&p), 7u << MIN);
	assert_non_null(lend_pool_get(&p, MIN + 2));
	assert_null(lend_pool_get(&p, MIN + 2));
	while (lend_pool_get(&p, MIN))
		count++;
	assert_int_equal(count, 3);
	lend_pool_fini(&p);
	assert_int_equal(lend_pool_init(&p, base, (1u << MIN) - 1), -EINVAL);
	assert_int_equal(lend_pool_init(&p, base, UINT64_MAX), -EINVAL);
}

#define COUNT 1500u /* granules; the largest region has 1024 */

struct piece {
	uint8_t *at;
	uint8_t log2;
};

static uint64_t rng = 88172645463325252u;

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 11) % below;
}

static void mark(bool *taken, const struct piece *x, bool to)
{
	size_t first = (size_t)(x->at - base) >> MIN;

	assert_int_equal((x->at - base) % (INT64_C(1) << x->log2), 0);
	for (size_t i = 0; i < (size_t)1 << (x->log2 - MIN); i++) {
		assert_true(first + i < COUNT);
		assert_int_equal(taken[first + i], !to);
		taken[first + i] = to;
	}
}

/* Is there really no such piece? */
static bool has_room(const bool *taken, uint8_t log2)
{
	size_t size = (size_t)1 << (log2 - MIN), run;

	for (size_t at = 0; at + size <= COUNT; at += size) {
		for (run = 0; run < size && !taken[at + run]; run++)
			;
		if (run == size)
			return true;
	}
	return false;
}

static void nothing_overlaps_and_all_comes_back(void **state)
{
	static bool taken[COUNT];
	static struct piece v[COUNT];
	uint64_t used = 0;
	unsigned count = 0;
	struct lend_pool p;

	(void)state;
	assert_int_equal(lend_pool_init(&p, base, (uint64_t)COUNT << MIN), 0);
	for (unsigned i = 0; i < 200000; i++) {
		/* Now it fills, now it empties. */
		bool get = rnd(100) < (i / 1000 % 2 ? 70u : 30u);

		if (get) {
			uint8_t log2 = (uint8_t)(MIN + rnd(4) * rnd(4));
			struct piece x;

			if (log2 > MAX)
				log2 = MAX;
			x.log2 = log2;
			x.at = lend_pool_get(&p, log2);
			assert_int_equal(x.at != NULL, has_room(taken, log2));
			if (!x.at)
				continue;
			mark(taken, &x, true);
			used += UINT64_C(1) << log2;
			v[count++] = x;
		} else if (count > 0) {
			unsigned k = rnd(count);

			mark(taken, &v[k], false);
			used -= UINT64_C(1) << v[k].log2;
			lend_pool_put(&p, v[k].at);
			v[k] = v[--count];
		}
		assert_int_equal(lend_pool_free(&p),
				 ((uint64_t)COUNT << MIN) - used);
	}
	while (count > 0)
		lend_pool_put(&p, v[--count].at);
	/* As it was: the largest pieces that fit. */
	assert_non_null(lend_pool_get(&p, MAX));
	assert_null(lend_pool_get(&p, MAX));
	assert_non_null(lend_pool_get(&p, MAX - 2));
	lend_pool_fini(&p);
}

static void without_memory_for_itself_it_says_so(void **state)
{
	struct lend_pool p;
	unsigned nth;

	(void)state;
	for (nth = 1; nth < 10; nth++) {
		int rv;

		fail_malloc_at(nth);
		rv = lend_pool_init(&p, base, 1u << 20);
		if (!fail_malloc_hit()) {
			assert_int_equal(rv, 0);
			lend_pool_fini(&p);
			break;
		}
		assert_int_equal(rv, -ENOMEM);
	}
	assert_int_equal(nth, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_of_the_size_asked_for),
		cmocka_unit_test(odd_sizes_are_used_to_the_last_granule),
		cmocka_unit_test(nothing_overlaps_and_all_comes_back),
		cmocka_unit_test(without_memory_for_itself_it_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
