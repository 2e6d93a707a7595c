/* The log between recfs and replay. */
#ifndef TESTS_POWER_REC_H
#define TESTS_POWER_REC_H

#include <stdint.h>

#define REC_MAGIC 0x7265636cu

enum rec_type { REC_WRITE = 1, REC_ZERO = 2, REC_FLUSH = 3 };

struct rec_header {
	uint32_t magic;
	uint32_t type; /* enum rec_type */
	uint64_t off, len; /* bytes */
};

#endif
