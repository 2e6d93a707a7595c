#include "common/disk_share.h"

#include "common/limits.h"

#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

uint64_t disk_share_id(const char *dir)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	struct {
		uint64_t dev;
		char boot[40];
	} id = { 0 };
	struct stat st;
	bool ok = f && fgets(id.boot, sizeof(id.boot), f) &&
		  stat(dir, &st) == 0;

	if (f)
		(void)fclose(f);
	if (!ok)
		return 0;
	id.dev = st.st_dev;
	return XXH3_64bits(&id, sizeof(id));
}

static bool same_disk(const struct disk_share *a, const struct disk_share *b)
{
	return a == b || (a->disk != 0 && a->disk == b->disk);
}

/* What each of those on the disk of @of could still take if all did. */
static uint64_t part_of(const struct disk_share *v, uint32_t count,
			const struct disk_share *of)
{
	uint64_t more = 0;
	uint32_t sharers = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!same_disk(&v[i], of))
			continue;
		sharers++;
		more = u64_max(more, v[i].units_more);
	}
	more /= sharers;
	if (of->units_more <= more)
		return of->units_more;
	return more - more % SEG_UNITS; /* no half segments */
}

void disk_share_sum(const struct disk_share *v, uint32_t count,
		    struct disk_sum *ret)
{
	uint64_t least = UINT64_MAX;

	*ret = (struct disk_sum){ 0 };
	for (uint32_t i = 0; i < count; i++) {
		uint64_t less = v[i].units_more - part_of(v, count, &v[i]);
		uint64_t nfree = v[i].units_free -
				 u64_min(v[i].units_free, less);

		ret->units_total += v[i].units_total -
				    u64_min(v[i].units_total, less);
		ret->units_free += nfree;
		least = u64_min(least, nfree);
	}
	if (count)
		ret->units_avail = u64_min(ret->units_free, least * count);
}
