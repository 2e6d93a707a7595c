/* What a peer has of a log that cannot be recovered. [pure]
 *
 * A recovery believes a peer's slots, and only as a member of a majority. Here
 * nobody is left to vote: what counts is each record by itself. The records of
 * a peer's regions are taken one behind the other for as long as each is whole
 * and the next by number; slots only tell whether there should have been more.
 */
#ifndef FUSE_CORE_LOG_SALVAGE_H
#define FUSE_CORE_LOG_SALVAGE_H

#include "common/log_rec.h"

struct log_salvage_region {
	uint32_t index;
	uint8_t log2;
	const uint8_t *base; /* 1 << log2 bytes, as the peer has them */
};

struct log_salvage_what {
	uint64_t cluster_id, ino, data_epoch;
};

struct log_salvaged {
	uint64_t first, last; /* records; 0: none */
	uint64_t bytes; /* of data in them */
	/* Behind the last one there is something that is not whole, not the
	 * next, or missing though a slot speaks of it. */
	bool damaged;
};

/* @regions: by index. @fn gets each record in order, may be NULL, and returns 0
 * or what the walk ends with. Returns 0 and *ret. */
int log_salvage_walk(const struct log_salvage_region *regions, uint32_t count,
		     const struct log_salvage_what *what,
		     int (*fn)(void *arg, const struct log_rec *r), void *arg,
		     struct log_salvaged *ret) must_check;

/* Is @a more than @b? It reaches further; of equals, nothing is wrong with
 * it. */
bool log_salvaged_better(const struct log_salvaged *a,
			 const struct log_salvaged *b);

#endif
