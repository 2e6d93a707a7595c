/* Allocation failures on demand, by the linker's --wrap. */
#include "tests/lib/fail_malloc.h"

#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t len);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t len);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);

static __thread unsigned countdown;
static __thread bool hit;
static _Atomic unsigned every_count, failed_count;
static _Atomic uint64_t turn;
static _Atomic long once; /* counts down; 0: not armed */
static _Atomic bool once_hit;

void fail_malloc_at(unsigned nth)
{
	hit = false;
	countdown = nth;
}

bool fail_malloc_hit(void)
{
	countdown = 0;
	return hit;
}

void fail_malloc_once(unsigned nth)
{
	atomic_store(&once_hit, false);
	atomic_store(&once, nth);
}

bool fail_malloc_once_hit(void)
{
	atomic_store(&once, 0);
	return atomic_load(&once_hit);
}

static bool fails_once(void)
{
	if (fail_malloc_spared || atomic_load(&once) <= 0 ||
	    atomic_fetch_sub(&once, 1) != 1)
		return false;
	atomic_store(&once_hit, true);
	return true;
}

unsigned fail_malloc_all(unsigned every)
{
	atomic_store(&every_count, every);
	return atomic_exchange(&failed_count, 0);
}

static bool fails_by_chance(void)
{
	unsigned every = atomic_load(&every_count);
	uint64_t x;

	if (every == 0 || fail_malloc_spared)
		return false;
	x = (atomic_fetch_add(&turn, 1) + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	if ((x >> 32) % every != 0)
		return false;
	atomic_fetch_add(&failed_count, 1);
	return true;
}

static bool fails_now(void)
{
	if (countdown == 0 || --countdown > 0) {
		if (!fails_once() && !fails_by_chance())
			return false;
	} else {
		hit = true;
	}
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *s)
{
	return fails_now() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t len)
{
	return fails_now() ? NULL : __real_strndup(s, len);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails_now() ? NULL : __real_realloc(p, size);
}
