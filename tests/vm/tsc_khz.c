/* Prints the rate of this machine's time stamp counter in kHz, which is also
 * the guest's: its own measurement goes wrong where other processes compute. */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <x86intrin.h>

struct instant {
	uint64_t ns;
	uint64_t tsc;
};

/* Both clocks read at once: of some tries that which took least. */
static struct instant instant(void)
{
	struct instant best = { 0 };
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		struct timespec t;
		uint64_t from = __rdtsc(), to;

		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		to = __rdtsc();
		if (to - from < least) {
			least = to - from;
			best.ns = (uint64_t)t.tv_sec * 1000000000 +
				  (uint64_t)t.tv_nsec;
			best.tsc = from + least / 2;
		}
	}
	return best;
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	struct instant from = instant(), to;

	(void)nanosleep(&pause, NULL); /* shorter is less exact, no more */
	to = instant();
	printf("%.0f\n",
	       (double)(to.tsc - from.tsc) * 1e6 / (double)(to.ns - from.ns));
	return 0;
}
