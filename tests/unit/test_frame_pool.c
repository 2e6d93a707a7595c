/* The buffer pool: right sizes, reuse, the bound. */
#include "common/frame_pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void *get(size_t len)
{
	return frame_pool_bufs.get(&frame_pool_bufs, len);
}

static void put(void *p, size_t len)
{
	frame_pool_bufs.put(&frame_pool_bufs, p, len);
}

static void every_length_fits_and_is_aligned(void **state)
{
	(void)state;
	for (size_t len = FRAME_DATA_ALONE_MIN; len <= FRAME_DATA_MAX;
	     len += 37 * FRAME_DATA_ALIGN) {
		uint8_t *p = get(len);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % FRAME_DATA_ALIGN, 0);
		memset(p, 0xee, len);
		put(p, len);
	}
	frame_pool_trim();
	assert_int_equal(frame_pool_kept(), 0);
}

static void a_buffer_is_used_again(void **state)
{
	void *p = get(1 << 20), *q;

	(void)state;
	put(p, 1 << 20);
	assert_int_equal(frame_pool_kept(), 1 << 20);
	q = get((1 << 20) - FRAME_DATA_ALIGN);
	assert_ptr_equal(p, q);
	assert_int_equal(frame_pool_kept(), 0);
	put(q, (1 << 20) - FRAME_DATA_ALIGN);
	frame_pool_trim();
}

static void no_more_is_kept_than_the_bound(void **state)
{
	enum { COUNT = 12 };
	void *p[COUNT];

	(void)state;
	for (int i = 0; i < COUNT; i++)
		p[i] = get(FRAME_DATA_MAX);
	for (int i = 0; i < COUNT; i++)
		put(p[i], FRAME_DATA_MAX);
	assert_in_range(frame_pool_kept(), FRAME_DATA_MAX,
			FRAME_POOL_KEPT_MAX);
	frame_pool_trim();
}

static void *churn(void *arg)
{
	uint32_t x = (uint32_t)(uintptr_t)arg;

	for (int i = 0; i < 5000; i++) {
		size_t len;
		uint8_t *p;

		x = x * 1103515245u + 12345u;
		len = FRAME_DATA_ALONE_MIN +
		      (x >> 8) % 64 * FRAME_DATA_ALIGN;
		p = get(len);
		p[0] = p[len - 1] = (uint8_t)i;
		put(p, len);
	}
	return NULL;
}

static void threads_share_it(void **state)
{
	pthread_t t[4];

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	frame_pool_trim();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_length_fits_and_is_aligned),
		cmocka_unit_test(a_buffer_is_used_again),
		cmocka_unit_test(no_more_is_kept_than_the_bound),
		cmocka_unit_test(threads_share_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
