/* A program that has read a file and keeps it open: what a later read of the
 * same bytes gives it, which the kernel may answer alone.
 *
 *	cached_read FILE
 *
 * Reads the first 4 KiB, prints "ready"; for each line on stdin reads them
 * again and prints "same", "other" or the error.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char first[4096], again[4096], line[16];
	int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
	ssize_t want = fd < 0 ? -1 : pread(fd, first, sizeof(first), 0), got;

	/* Mapped and touched, the kernel keeps the page whatever others do. */
	const volatile char *p = fd < 0 ? MAP_FAILED :
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (want < 0 || p == MAP_FAILED || p[0] != first[0]) {
		perror("cached_read");
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		got = pread(fd, again, sizeof(again), 0);
		printf("%s\n", got < 0 ? strerror(errno) :
		       got == want && memcmp(first, again, (size_t)got) == 0 ?
					 "same" : "other");
	}
	return 0;
}
