/* Memory that a test takes away once: preloaded into a program (LD_PRELOAD),
 * the allocation of any thread that counts the number in the file $FAIL_AT
 * down from one to zero gets none.
 */
#include "countdown.h"

#include <errno.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

__attribute__((constructor)) static void begin(void)
{
	countdown_begin("FAIL_AT");
}

void *malloc(size_t size)
{
	return countdown_ends() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return countdown_ends() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return countdown_ends() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return countdown_ends() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	*ret = countdown_ends() ? NULL : __libc_memalign(align, size);
	return *ret ? 0 : ENOMEM;
}
