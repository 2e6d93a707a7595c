/* CRC32C by ISA-L. */
#include "common/crc32c.h"

#include <endian.h>
#include <isa-l/crc.h>

/* One call of the library takes an int. */
#define CRC_CALL_MAX (1u << 30)

uint32_t crc32c(uint32_t crc, const void *p, size_t len)
{
	/* ISA-L's argument lacks a const; it only reads. */
	unsigned char *at = (unsigned char *)(uintptr_t)p;

	/* ISA-L's "iscsi" sum is the bare register: neither the initial nor
	 * the final inversion of RFC 3720 is done for us. */
	crc = ~crc;
	while (len > 0) {
		size_t step = len < CRC_CALL_MAX ? len : CRC_CALL_MAX;

		crc = crc32_iscsi(at, (int)step, crc);
		at += step;
		len -= step;
	}
	return ~crc;
}

uint32_t crc32c_zero_unit(void)
{
	return 0x98f94189u; /* of 4096 zeros; proved by test_crc32c */
}

_Static_assert(UNIT_SIZE == 4096, "crc32c_zero_unit");

/* Bytes of the first piece of block range [off, off+len). */
static uint32_t piece_len(uint32_t off, uint32_t len)
{
	uint32_t left = UNIT_SIZE - off % UNIT_SIZE;

	return len < left ? len : left;
}

void crc32c_sums(uint32_t off, const void *data, uint32_t len, uint8_t *sums)
{
	const uint8_t *p = data;

	while (len > 0) {
		uint32_t step = piece_len(off, len);
		uint32_t sum = htole32(crc32c(0, p, step));

		memcpy(sums, &sum, sizeof(sum));
		sums += sizeof(sum);
		p += step;
		off += step;
		len -= step;
	}
}

int crc32c_check(uint32_t off, const void *data, uint32_t len,
		 const uint8_t *sums, size_t sums_len)
{
	const uint8_t *p = data;

	if (sums_len != 4 * (size_t)crc32c_piece_count(off, len))
		return -EBADMSG;
	while (len > 0) {
		uint32_t step = piece_len(off, len);
		uint32_t sum;

		memcpy(&sum, sums, sizeof(sum));
		if (le32toh(sum) != crc32c(0, p, step))
			return -EBADMSG;
		sums += sizeof(sum);
		p += step;
		off += step;
		len -= step;
	}
	return 0;
}
