/* Allocation failures on demand, by interposition of glibc's functions. */
#include "tests/lib/fail_malloc.h"

static __thread unsigned countdown;
static __thread bool hit;

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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool fail_malloc_works(void)
{
	return false;
}

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);

bool fail_malloc_works(void)
{
	return true;
}

static bool fails_now(void)
{
	if (countdown == 0 || --countdown > 0)
		return false;
	hit = true;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails_now() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails_now() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return fails_now() ? NULL : __libc_realloc(p, size);
}

#endif
