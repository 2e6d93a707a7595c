/* A process that is stopped between being told of input and reading it: the
 * first read() after a file of the name $SLOW_READ is there takes it away, and
 * begins three seconds later.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

ssize_t read(int fd, void *buf, size_t len)
{
	static ssize_t (*real)(int fd, void *buf, size_t len);
	static const char *path;

	if (!real) {
		path = getenv("SLOW_READ");
		*(void **)&real = dlsym(RTLD_NEXT, "read");
	}
	if (path && unlink(path) == 0)
		(void)nanosleep(&(struct timespec){ 3, 0 }, NULL);
	return real(fd, buf, len);
}
