/* The memory that is lent: one mapping, in huge pages where there are some,
 * pinned where that is allowed.
 */
#ifndef LOGD_MEMORY_H
#define LOGD_MEMORY_H

#include "common/base.h"

enum lend_pin { LEND_PIN_TRY, LEND_PIN_MUST, LEND_PIN_NO };

struct lend_memory {
	void *base; /* zeros */
	uint64_t bytes; /* as asked for */
	uint64_t mapped_bytes;
	bool huge; /* reserved huge pages; else the kernel may make some */
	bool pinned;
};

/* Returns 0, or -errno with a sentence in @why: -ENOMEM: so much is not to be
 * had, -EPERM: LEND_PIN_MUST, and it may not be pinned. With LEND_PIN_TRY 0 and
 * a sentence in @why when it is not pinned, else @why is empty. */
int lend_memory_map(uint64_t bytes, enum lend_pin pin, struct lend_memory *ret,
		    char *why, size_t why_size) must_check;
void lend_memory_unmap(struct lend_memory *m);

#endif
