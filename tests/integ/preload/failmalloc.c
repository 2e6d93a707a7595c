/* Memory that a test takes away: preloaded into a program (LD_PRELOAD),
 * malloc() of exactly FAIL_SIZE bytes, which is what a connection's stage takes
 * (common/frame_in.c), fails while the file $FAIL_MALLOC is there.
 */
#include <stdlib.h>
#include <unistd.h>

#define FAIL_SIZE 65536u

void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
	if (size == FAIL_SIZE) {
		const char *path = getenv("FAIL_MALLOC");

		if (path && access(path, F_OK) == 0)
			return NULL;
	}
	return __libc_malloc(size);
}
