/* Chance, and what is told when it found something. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <unistd.h>

uint64_t world_rnd(struct world *w, uint64_t below)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (w->rng * 0x2545f4914f6cdd1du >> 20) % below;
}

void world_say(struct world *w, const char *fmt, ...)
{
	char *to = w->history[w->said++ % HISTORY];
	int n = snprintf(to, 120, "%3llu ", (unsigned long long)w->step);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(to + n, 120 - (size_t)n, fmt, ap);
	va_end(ap);
}

_Noreturn void world_lost(struct world *w, const char *what)
{
	uint32_t from = w->said > HISTORY ? w->said - HISTORY : 0;

	for (uint32_t i = from; i < w->said; i++)
		printf("# %s\n", w->history[i % HISTORY]);
	printf("not ok - seed %llu: %s\n# HAIL_SEED=%llu repeats it\n",
	       (unsigned long long)w->seed, what, (unsigned long long)w->seed);
	fflush(stdout);
	_exit(1);
}

uint32_t world_fid_of(const struct world *w, const struct file *f)
{
	return (uint32_t)(f - w->files);
}
