#include "tests/lib/tap.h"

#include <time.h>
#include <unistd.h>

int tap_failures;

static struct {
	int argc;
	char **argv;
	const char *name;
	uint64_t start_ms, random;
	unsigned number, failed;
} tap;

void tap_init(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	tap.argc = argc;
	tap.argv = argv;
}

bool tap_begin(const char *name)
{
	bool wanted = tap.argc < 2;

	for (int i = 1; i < tap.argc; i++)
		wanted |= strstr(name, tap.argv[i]) != NULL;
	tap.name = name;
	tap.start_ms = now_ms();
	tap_failures = 0;
	return wanted;
}

void tap_end(void)
{
	tap.failed += tap_failures > 0;
	printf("%sok %u - %s (%llu ms)\n", tap_failures ? "not " : "",
	       ++tap.number, tap.name,
	       (unsigned long long)(now_ms() - tap.start_ms));
}

int tap_done(void)
{
	printf("1..%u\n", tap.number);
	return tap.failed > 0;
}

uint64_t tap_random(void)
{
	const char *seed = getenv("SEED");

	if (tap.random == 0) {
		tap.random = seed ? strtoull(seed, NULL, 10) | 1 :
				    (uint64_t)getpid() * 2654435761u | 1;
		printf("# SEED=%llu\n", (unsigned long long)tap.random);
	}
	tap.random ^= tap.random << 13;
	tap.random ^= tap.random >> 7;
	tap.random ^= tap.random << 17;
	return tap.random;
}

void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t now_ms(void)
{
	return now_us() / 1000;
}
