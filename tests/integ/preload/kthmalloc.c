/* Memory that a test takes away once: preloaded into a program (LD_PRELOAD),
 * the allocation of any thread that counts the number in the file $FAIL_AT
 * down from one to zero gets none.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

static int64_t *left;

__attribute__((constructor)) static void map_file(void)
{
	const char *path = getenv("FAIL_AT");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED :
			   mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE,
				MAP_SHARED, fd, 0);

	if (fd >= 0)
		(void)close(fd);
	if (p != MAP_FAILED)
		left = p;
}

static bool fails(void)
{
	return left && __atomic_load_n(left, __ATOMIC_RELAXED) > 0 &&
	       __atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) == 0;
}

void *malloc(size_t size)
{
	return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
	return fails() ? NULL : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	*ret = fails() ? NULL : __libc_memalign(align, size);
	return *ret ? 0 : ENOMEM;
}
