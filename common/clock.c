/* Reading clocks. */
#include "common/clock.h"

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

uint64_t clock_now_ns(clockid_t clock)
{
	struct timespec t = { 0 };

	(void)clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ms(clockid_t clock)
{
	return clock_now_ns(clock) / NS_PER_MS;
}

struct timespec clock_deadline(uint64_t ms)
{
	struct timespec t = { 0 };

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000 * NS_PER_MS);
	if (t.tv_nsec >= (long)NS_PER_S) {
		t.tv_sec++;
		t.tv_nsec -= (long)NS_PER_S;
	}
	return t;
}
