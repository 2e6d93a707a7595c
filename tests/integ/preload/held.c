/* A program that is held at a call: while the file $HELD has a line "CALL
 * PATTERN", such a call on a file whose name matches makes $HELD.CALL and does
 * not begin. CALL is write, fsync, fdatasync, renameat (the new name),
 * unlinkat or exit (PATTERN is of the program's name).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool wanted(const char *held, const char *call, const char *name)
{
	char want[16] = "", pattern[64] = "";
	FILE *f = fopen(held, "re");
	bool is = false;

	while (f && !is && fscanf(f, "%15s %63s", want, pattern) == 2)
		is = strcmp(want, call) == 0 && fnmatch(pattern, name, 0) == 0;
	if (f)
		fclose(f);
	return is;
}

static void hold(const char *call, int fd, const char *name)
{
	const char *held = getenv("HELD");
	char here[4096], link[64], path[4096];
	ssize_t n;

	if (!held || access(held, F_OK) < 0)
		return;
	if (!name) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, sizeof(path) - 1);
		path[n > 0 ? n : 0] = '\0';
		name = path;
	}
	if (!wanted(held, call, name))
		return;
	snprintf(here, sizeof(here), "%s.%s", held, call);
	fd = open(here, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	while (wanted(held, call, name))
		(void)nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

#define REAL(fn) ((__typeof__(&fn))dlsym(RTLD_NEXT, #fn))

ssize_t write(int fd, const void *buf, size_t len)
{
	hold("write", fd, NULL);
	return REAL(write)(fd, buf, len);
}

int fsync(int fd)
{
	hold("fsync", fd, NULL);
	return REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	hold("fdatasync", fd, NULL);
	return REAL(fdatasync)(fd);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	hold("renameat", -1, to);
	return REAL(renameat)(from_dir, from, to_dir, to);
}

int unlinkat(int dir, const char *name, int flags)
{
	hold("unlinkat", -1, name);
	return REAL(unlinkat)(dir, name, flags);
}

__attribute__((destructor)) static void end(void)
{
	hold("exit", -1, program_invocation_short_name);
}
