/* Facts of POSIX and Linux file systems, checked on a directory: each case is
 * one fact, run in a process and a subdirectory of its own.
 */
#ifndef TESTS_INTEG_POSIX_H
#define TESTS_INTEG_POSIX_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct posix_case {
	const char *name; /* the fact, as a sentence */
	void (*run)(void); /* in the case's directory; fails by CHECK */
	bool root; /* needs root */
};

extern const struct posix_case posix_names[], posix_attrs[], posix_data[],
	posix_locks[], posix_calls[], posix_cached[], posix_held[];

void posix_fail(const char *file, int line, const char *what)
	__attribute__((noreturn));
/* Leaves the case as "does not apply here". */
void posix_skip(const char *why) __attribute__((noreturn));

#define CHECK(cond) \
	((cond) ? (void)0 : posix_fail(__FILE__, __LINE__, #cond))
/* The call fails with this errno. */
#define CHECK_ERR(call, err)                                               \
	do {                                                               \
		errno = 0;                                                 \
		long res_ = (long)(call);                                  \
		if (res_ != -1 || errno != (err))                          \
			posix_fail(__FILE__, __LINE__, #call " -> " #err); \
	} while (0)

/* helpers */
void mk(const char *name, const char *text); /* a file with that text */
bool holds(const char *name, const char *text);
struct stat st_of(const char *name);
/* Runs @fn as user and group @id without other groups; its failures count. */
void as_user(unsigned id, void (*fn)(void));
/* Fills @buf with bytes that tell their offset. */
void pattern(unsigned char *buf, size_t len, uint64_t off);

#endif
