/* CRC32C (Castagnoli, RFC 3720), by ISA-L. */
#ifndef COMMON_CRC32C_H
#define COMMON_CRC32C_H

#include "common/limits.h"

/* Plain CRC32C: crc32c(0, "123456789", 9) == 0xe3069283. @crc: result of the
 * bytes before, 0 at the start. */
uint32_t crc32c(uint32_t crc, const void *p, size_t len);
/* Sum of a unit of zeros. */
uint32_t crc32c_zero_unit(void);

/* Pieces that [off, off+len) of a block touches. */
static inline uint32_t crc32c_piece_count(uint32_t off, uint32_t len)
{
	return len == 0 ? 0 :
	       (off + len - 1) / UNIT_SIZE - off / UNIT_SIZE + 1;
}

/* Writes a little-endian sum for each UNIT_SIZE piece of block range
 * [off, off+len) whose bytes are at @data to @sums (4 bytes a piece). */
void crc32c_sums(uint32_t off, const void *data, uint32_t len, uint8_t *sums);
/* Compares. Returns 0 or -EBADMSG. */
int crc32c_check(uint32_t off, const void *data, uint32_t len,
		 const uint8_t *sums, size_t sums_len) must_check;

#endif
