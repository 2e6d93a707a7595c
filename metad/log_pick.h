/* Which log daemons are to lend memory to a log. [pure] */
#ifndef METAD_LOG_PICK_H
#define METAD_LOG_PICK_H

#include "common/base.h"

struct log_candidate {
	uint32_t id;
	uint64_t boot_id;
	uint64_t free_bytes;
	const char *domain; /* failure domain */
};

/* Puts the best of @c[count] first, in order: one of each failure domain, then
 * a second of each, and so on; in each the one with most free. @used: domains
 * that have one already. Returns how many are in order, @max at most; *shared:
 * two of these lie in one domain. */
size_t log_pick(struct log_candidate *c, size_t count, const char *const *used,
		size_t used_count, size_t max, bool *shared);

#endif
