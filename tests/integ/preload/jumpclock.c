/* A wall clock that a test sets: preloaded into a program (LD_PRELOAD), it
 * adds to CLOCK_REALTIME, gettimeofday() and time() the seconds in the first
 * 8 bytes of $JUMP_FILE, which may change at any time. The other clocks stay
 * true, as they do when an administrator or NTP sets the clock.
 *
 * With $JUMP_BOOTTIME it is CLOCK_BOOTTIME alone that is ahead, as after the
 * machine slept.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The header says that these pointers are never NULL. */
#pragma GCC diagnostic ignored "-Wnonnull-compare"

static const int64_t *jump_s;
static bool boottime;

__attribute__((constructor)) static void jump_open(void)
{
	const char *path = getenv("JUMP_FILE");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p;

	boottime = getenv("JUMP_BOOTTIME") != NULL;
	if (fd < 0)
		return;
	p = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		jump_s = p;
}

static bool jumps(clockid_t clock)
{
	if (boottime)
		return clock == CLOCK_BOOTTIME;
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	long rv = syscall(SYS_clock_gettime, clock, t);

	if (rv == 0 && jump_s && jumps(clock))
		t->tv_sec += __atomic_load_n(jump_s, __ATOMIC_RELAXED);
	return (int)rv;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;

	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &t); /* never fails */
	if (tv) {
		tv->tv_sec = t.tv_sec;
		tv->tv_usec = t.tv_nsec / 1000;
	}
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	if (ret)
		*ret = t.tv_sec;
	return t.tv_sec;
}
