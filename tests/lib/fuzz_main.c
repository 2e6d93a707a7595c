/* Main of the fuzz targets, for gcc: without arguments, a fixed number of
 * inputs, each made from the seed and the number of the run alone; with
 * arguments, the files named.
 *
 *	FUZZ_RUNS=N	inputs to try (default fuzz_runs())
 *	FUZZ_TIMES=N	or N times fuzz_runs()
 *	FUZZ_SEED=N	another series (default 1)
 *	FUZZ_ONLY=N	just run N of it
 *	FUZZ_KEEP=FILE	with FUZZ_ONLY: writes the input there
 */
#include "tests/lib/fuzz.h"

#include <signal.h>
#include <unistd.h>

#define INPUT_MAX (64u << 10)

/* Of the sanitizers, when they are there. */
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static uint64_t seed = 1, run;

__attribute__((weak)) uint32_t fuzz_runs(void)
{
	return 20000;
}

/* ---- random numbers: splitmix64 ---- */

uint64_t fuzz_u64(struct fuzz_rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t fuzz_below(struct fuzz_rng *rng, uint32_t below)
{
	return (uint32_t)(fuzz_u64(rng) % below);
}

uint64_t fuzz_odd_u64(struct fuzz_rng *rng)
{
	uint64_t bit = 1ull << fuzz_below(rng, 64);

	switch (fuzz_below(rng, 5)) {
	case 0:
		return fuzz_below(rng, 8);
	case 1:
		return bit + fuzz_below(rng, 3) - 1;
	case 2:
		return UINT64_MAX - fuzz_below(rng, 3);
	case 3:
		return fuzz_u64(rng) >> fuzz_below(rng, 64);
	default:
		return fuzz_u64(rng);
	}
}

/* ---- inputs ---- */

static void damage_once(struct fuzz_rng *rng, uint8_t *p, size_t *len)
{
	size_t at = *len > 0 ? fuzz_u64(rng) % *len : 0;
	size_t left = *len - at, other;

	if (*len == 0)
		return;
	switch (fuzz_below(rng, 7)) {
	case 0: /* a bit */
		p[at] ^= (uint8_t)(1 << fuzz_below(rng, 8));
		break;
	case 1: /* a byte */
		p[at] = (uint8_t)fuzz_u64(rng);
		break;
	case 2: /* the end is missing */
		*len = at;
		break;
	case 3: { /* a number, as lengths and counts are */
		uint64_t v = fuzz_odd_u64(rng);
		size_t width = (size_t)1 << fuzz_below(rng, 4);

		memcpy(p + at, &v, width < left ? width : left);
		break;
	}
	case 4: /* bytes are missing in the middle */
		other = 1 + fuzz_u64(rng) % left;
		memmove(p + at, p + at + other, left - other);
		*len -= other;
		break;
	case 5: /* a part comes twice */
		other = fuzz_u64(rng) % *len;
		left = left < *len - other ? left : *len - other;
		memmove(p + at, p + other, left);
		break;
	default: /* bytes too many */
		if (*len + 8 <= INPUT_MAX) {
			uint64_t v = fuzz_u64(rng);

			memmove(p + at + 8, p + at, left);
			memcpy(p + at, &v, 8);
			*len += 8;
		}
	}
}

/* Input number @n: noise, a valid one, or a valid one with some damage. */
static size_t make_input(uint64_t n, uint8_t *p)
{
	struct fuzz_rng rng = { seed * 0x2545f4914f6cdd1dull + n };
	uint32_t kind = fuzz_below(&rng, 10);
	size_t len;

	if (kind == 0) {
		len = fuzz_below(&rng, 300);
		for (size_t i = 0; i < len; i++)
			p[i] = (uint8_t)fuzz_u64(&rng);
		return len;
	}
	len = fuzz_seed(&rng, p, INPUT_MAX);
	if (kind > 1)
		for (uint32_t i = 0; i <= fuzz_below(&rng, 4); i++)
			damage_once(&rng, p, &len);
	return len;
}

/* The input lies in memory of just its size, so that the address sanitizer
 * sees a byte too many. */
static void run_one(const uint8_t *p, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);

	if (!copy)
		abort();
	if (len > 0)
		memcpy(copy, p, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

/* ---- failures ---- */

/* Async-signal-safe: the process is dying. */
static void tell_run(void)
{
	char text[80];
	int len = snprintf(text, sizeof(text),
			   "\nrepeat with FUZZ_SEED=%llu FUZZ_ONLY=%llu\n",
			   (unsigned long long)seed, (unsigned long long)run);

	if (write(STDERR_FILENO, text, (size_t)len) < 0)
		return; /* there is no other place to tell it */
}

static void on_signal(int number)
{
	tell_run();
	signal(number, SIG_DFL);
	raise(number);
}

static void watch_failures(void)
{
	signal(SIGABRT, on_signal);
	if (__sanitizer_set_death_callback) {
		__sanitizer_set_death_callback(tell_run);
		return;
	}
	signal(SIGSEGV, on_signal);
	signal(SIGBUS, on_signal);
	signal(SIGFPE, on_signal);
}

/* ---- main ---- */

static uint64_t env_number(const char *name, uint64_t def)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : def;
}

static int run_file(const char *path, uint8_t *buf)
{
	FILE *f = fopen(path, "re");
	size_t len;

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	len = fread(buf, 1, INPUT_MAX, f);
	fclose(f);
	run_one(buf, len);
	return 0;
}

static void keep(const char *path, const uint8_t *p, size_t len)
{
	FILE *f = path ? fopen(path, "we") : NULL;

	if (!f)
		return;
	if (fwrite(p, 1, len, f) != len)
		fprintf(stderr, "%s: not written whole\n", path);
	fclose(f);
}

int main(int argc, char **argv)
{
	uint64_t times = env_number("FUZZ_TIMES", 1);
	uint64_t runs = env_number("FUZZ_RUNS", times * fuzz_runs());
	uint64_t only = env_number("FUZZ_ONLY", UINT64_MAX);
	uint8_t *buf = malloc(INPUT_MAX);
	int status = 0;

	if (!buf)
		return 1;
	seed = env_number("FUZZ_SEED", 1);
	watch_failures();
	for (int i = 1; i < argc; i++)
		status |= run_file(argv[i], buf);
	if (argc == 1) {
		for (run = 0; run < runs; run++) {
			size_t len;

			if (only != UINT64_MAX && run != only)
				continue;
			len = make_input(run, buf);
			if (run == only)
				keep(getenv("FUZZ_KEEP"), buf, len);
			run_one(buf, len);
		}
	}
	free(buf);
	return status;
}
