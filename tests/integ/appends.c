/* Appends single bytes to a file, then syncs it and reads it back.
 *
 * usage: appends FILE COUNT [sync]      (sync: O_SYNC)
 *
 * Byte i is a function of i, so that one lost, doubled or moved is seen.
 * Prints the seconds of the writes and of the fsync.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint8_t byte_at(uint32_t i)
{
	return (uint8_t)(i * 2654435761u >> 24);
}

_Noreturn static void fail(const char *what, uint32_t i)
{
	printf("# FAILED: %s at %u: %s\n", what, i, strerror(errno));
	exit(1);
}

static void check(const char *path, uint32_t count)
{
	static uint8_t buf[1 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint32_t at = 0;
	struct stat st;
	ssize_t len;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail("open", 0);
	if (st.st_size != (off_t)count)
		fail("size", (uint32_t)st.st_size);
	while ((len = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t k = 0; k < len; k++, at++)
			if (buf[k] != byte_at(at))
				fail("content", at);
	if (len < 0 || at != count)
		fail("read", at);
	(void)close(fd);
}

int main(int argc, char **argv)
{
	double t[3];
	uint32_t count;
	int fd, flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;

	if (argc < 3) {
		printf("usage: appends FILE COUNT [sync]\n");
		return 2;
	}
	if (argc > 3 && strcmp(argv[3], "sync") == 0)
		flags |= O_SYNC;
	count = (uint32_t)strtoul(argv[2], NULL, 10);
	fd = open(argv[1], flags, 0644);
	if (fd < 0)
		fail("open", 0);
	t[0] = now_s();
	for (uint32_t i = 0; i < count; i++) {
		uint8_t b = byte_at(i);

		if (write(fd, &b, 1) != 1)
			fail("write", i);
	}
	t[1] = now_s();
	if (fsync(fd) < 0)
		fail("fsync", count);
	t[2] = now_s();
	if (close(fd) < 0)
		fail("close", count);
	printf("# %u one-byte appends: %.1f s, %.1f us each; fsync %.2f s\n",
	       count, t[1] - t[0], (t[1] - t[0]) * 1e6 / count, t[2] - t[1]);
	check(argv[1], count);
	return 0;
}
