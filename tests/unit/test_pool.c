/* Goal: buffers never overlap, the limit holds, and what came back can be had
 * again in any size. Method: random gets and puts against an owner map.
 */
#include "blockd/pool.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LIMIT (16u << 20)
#define UNITS (LIMIT / UNIT_SIZE)

static uint64_t seed = 88172645463325252u;

static unsigned rnd(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % below);
}

static void buffers_never_overlap(void **state)
{
	static uint16_t owner[UNITS];
	struct { uint8_t *p; size_t len; } held[200] = { { NULL, 0 } };
	struct pool p;
	unsigned refused = 0;

	(void)state;
	assert_int_equal(pool_init(&p, LIMIT), 0);
	for (unsigned round = 0; round < 200000; round++) {
		unsigned i = rnd(array_count(held));
		size_t first, units;

		if (held[i].p) {
			first = (size_t)(held[i].p - p.base) / UNIT_SIZE;
			units = (held[i].len + UNIT_SIZE - 1) / UNIT_SIZE;
			for (size_t u = first; u < first + units; u++) {
				assert_int_equal(owner[u], i + 1);
				owner[u] = 0;
			}
			pool_put(&p, held[i].p, held[i].len);
			held[i].p = NULL;
			continue;
		}
		held[i].len = 1 + rnd(1u << (8 + rnd(15)));
		held[i].p = pool_get(&p, held[i].len);
		if (!held[i].p) {
			refused++;
			continue;
		}
		assert_int_equal((uintptr_t)held[i].p % UNIT_SIZE, 0);
		first = (size_t)(held[i].p - p.base) / UNIT_SIZE;
		units = (held[i].len + UNIT_SIZE - 1) / UNIT_SIZE;
		for (size_t u = first; u < first + units; u++) {
			assert_int_equal(owner[u], 0);
			owner[u] = (uint16_t)(i + 1);
		}
	}
	assert_true(refused > 0);
	for (size_t i = 0; i < array_count(held); i++)
		pool_put(&p, held[i].p, held[i].len);
	assert_int_equal(p.used_bytes, 0);
	/* All of it in one size, and in the largest. */
	for (size_t i = 0; i < LIMIT / FRAME_DATA_MAX; i++)
		assert_non_null(pool_get(&p, FRAME_DATA_MAX));
	assert_null(pool_get(&p, 1));
	for (size_t i = 0; i < LIMIT / FRAME_DATA_MAX; i++)
		pool_put(&p, p.base + i * FRAME_DATA_MAX, FRAME_DATA_MAX);
	pool_fini(&p);
}

static void the_limit_counts_charges(void **state)
{
	struct pool p;
	void *buf;

	(void)state;
	assert_int_equal(pool_init(&p, LIMIT), 0);
	pool_charge(&p, LIMIT - UNIT_SIZE);
	assert_false(pool_is_full(&p));
	assert_null(pool_get(&p, UNIT_SIZE + 1));
	buf = pool_get(&p, UNIT_SIZE);
	assert_non_null(buf);
	assert_true(pool_is_full(&p));
	pool_discharge(&p, LIMIT - UNIT_SIZE);
	pool_put(&p, buf, UNIT_SIZE);
	pool_put(&p, NULL, 5);
	pool_fini(&p);
}

static void a_trimmed_pool_is_zero_and_usable(void **state)
{
	struct pool p;
	uint8_t *buf;

	(void)state;
	assert_int_equal(pool_init(&p, LIMIT), 0);
	buf = pool_get(&p, FRAME_DATA_MAX);
	memset(buf, 1, FRAME_DATA_MAX);
	pool_trim(&p); /* in use: nothing happens */
	assert_int_equal(buf[77], 1);
	pool_put(&p, buf, FRAME_DATA_MAX);
	pool_trim(&p);
	buf = pool_get(&p, FRAME_DATA_MAX);
	assert_int_equal(buf[77], 0);
	pool_put(&p, buf, FRAME_DATA_MAX);
	pool_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffers_never_overlap),
		cmocka_unit_test(the_limit_counts_charges),
		cmocka_unit_test(a_trimmed_pool_is_zero_and_usable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
