/* What a fuzz target of tests/fuzz/ gives, and gets, from fuzz_main.c.
 *
 * A target checks more than "does not crash": what a decoder accepts must
 * encode to the same bytes again, or keep whatever else its header promises.
 */
#ifndef TESTS_LIB_FUZZ_H
#define TESTS_LIB_FUZZ_H

#include "common/base.h"

/* Given: runs the code under test over one input. Returns 0. The name and
 * type are libFuzzer's, so that a target links with clang's -fsanitize=fuzzer
 * as it is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Random numbers of the run; the same for the same seed and run. */
struct fuzz_rng {
	uint64_t state;
};
uint64_t fuzz_u64(struct fuzz_rng *rng);
uint32_t fuzz_below(struct fuzz_rng *rng, uint32_t below); /* below > 0 */
/* A number that code is likely to trip over: small, a power of two and its
 * neighbours, the largest of a width, or any. */
uint64_t fuzz_odd_u64(struct fuzz_rng *rng);

/* Given: writes a valid input, which fuzz_main.c damages, to @buf. Returns
 * its size, <= @cap. */
size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap);

/* May be given: inputs to try when nobody says how many; 20000 otherwise. For
 * targets that do much with each. */
uint32_t fuzz_runs(void);

/* A failed expectation stops the run, whose number is then printed. */
#define fuzz_expect(cond) assert(cond)

#endif
