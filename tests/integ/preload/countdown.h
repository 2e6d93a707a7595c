/* For what is preloaded: a number in a file counts the calls of one kind down,
 * and the one that makes it zero is meant. The test sets it while the program
 * runs; zero or less: nobody is meant.
 */
#ifndef TESTS_INTEG_PRELOAD_COUNTDOWN_H
#define TESTS_INTEG_PRELOAD_COUNTDOWN_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int64_t *countdown_left;

/* The file is the one that @env names; without, nothing is counted. */
static inline void countdown_begin(const char *env)
{
	const char *path = getenv(env);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED :
			   mmap(NULL, sizeof(*countdown_left),
				PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (fd >= 0)
		(void)close(fd);
	if (p != MAP_FAILED)
		countdown_left = p;
}

/* One call more: is it the one? */
static inline bool countdown_ends(void)
{
	return countdown_left &&
	       __atomic_load_n(countdown_left, __ATOMIC_RELAXED) > 0 &&
	       __atomic_sub_fetch(countdown_left, 1, __ATOMIC_RELAXED) == 0;
}

#endif
