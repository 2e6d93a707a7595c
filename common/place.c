/* Placement: see common/place.h and design section 4. */
#include "common/place.h"

#include <endian.h>
#include <xxhash.h>

uint32_t place_slot(uint64_t ino, uint64_t index)
{
	uint64_t le = htole64(ino);
	uint64_t hash = XXH3_64bits(&le, sizeof(le));

	/* SLOT_COUNT divides 2^64, so the sum may wrap. */
	return (uint32_t)((hash + index) % SLOT_COUNT);
}

_Static_assert((SLOT_COUNT & (SLOT_COUNT - 1)) == 0, "wrapping sum");

int place_primary(const struct cmap *m, uint64_t ino, uint64_t index)
{
	uint16_t daemon = m->slots[place_slot(ino, index)][0];

	return daemon == CMAP_SLOT_NONE ? -ENODEV : daemon;
}
