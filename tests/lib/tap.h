/* What a test program without cmocka needs: facts that are checked without
 * ending the test, one TAP line a test, and time.
 *
 *	tap_init(argc, argv);
 *	if (tap_begin("it_holds")) {
 *		it_holds();
 *		tap_end();
 *	}
 *	return tap_done();
 *
 * The program's arguments choose: tests whose names contain one of them.
 */
#ifndef TESTS_LIB_TAP_H
#define TESTS_LIB_TAP_H

#include "common/base.h"

extern int tap_failures; /* of the test that runs */

#define CHECK(cond)                                                           \
	do {                                                                  \
		if (!(cond)) {                                                \
			printf("# %s:%d: not so: %s\n", __FILE__, __LINE__,   \
			       #cond);                                        \
			tap_failures++;                                       \
		}                                                             \
	} while (0)
#define CHECK_EQ(a, b)                                                        \
	do {                                                                  \
		long long a_ = (long long)(a), b_ = (long long)(b);           \
		if (a_ != b_) {                                               \
			printf("# %s:%d: %s is %lld, not %lld\n", __FILE__,   \
			       __LINE__, #a, a_, b_);                         \
			tap_failures++;                                       \
		}                                                             \
	} while (0)
#define CHECK_TEXT(text, part)                                                \
	do {                                                                  \
		if (!strstr(text, part)) {                                    \
			printf("# %s:%d: no '%s' in: %s\n", __FILE__,         \
			       __LINE__, part, text);                         \
			tap_failures++;                                       \
		}                                                             \
	} while (0)
/* Waits up to 15 s. */
#define EVENTUALLY(cond)                                                      \
	do {                                                                  \
		uint64_t until_ = now_ms() + 15000;                           \
		while (!(cond) && now_ms() < until_)                          \
			sleep_ms(2);                                          \
		CHECK(cond);                                                  \
	} while (0)

void tap_init(int argc, char **argv);
/* False: it was not asked for. */
bool tap_begin(const char *name);
void tap_end(void);
/* Prints the plan; the program's exit status. */
int tap_done(void);

/* From $SEED, or by chance; printed at the first call. */
uint64_t tap_random(void);

void sleep_ms(long ms);
/* CLOCK_MONOTONIC */
uint64_t now_us(void);
uint64_t now_ms(void);

#endif
