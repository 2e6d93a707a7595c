/* What several block daemons can take together.
 *
 * A daemon makes room on its disk as it needs it, so it counts what the disk
 * could still give as its own. Several on one disk (a local cluster) count the
 * same bytes.
 */
#ifndef COMMON_DISK_SHARE_H
#define COMMON_DISK_SHARE_H

#include "common/base.h"

/* One daemon's answer to BLK_STAT. */
struct disk_share {
	uint64_t units_total, units_free;
	uint64_t units_more; /* counted in both: what the disk could give */
	uint64_t disk; /* identity of the disk; 0: unknown, its own */
};

struct disk_sum {
	uint64_t units_total, units_free;
	/* Until the fullest daemon is full: blocks go to all alike. */
	uint64_t units_avail;
};

/* The identity of the disk that @dir is on: of its device and of this boot of
 * this machine. 0 when it cannot be told. */
uint64_t disk_share_id(const char *dir);

void disk_share_sum(const struct disk_share *v, uint32_t count,
		    struct disk_sum *ret);

#endif
