/* What lies in a region of a log, byte for byte the same in the writer's
 * mirror, in a peer's memory however it came there, and in a salvaged file.
 * [pure]
 *
 *	0     slot A  LOG_SLOT_SIZE bytes
 *	64    slot B
 *	4096  records, one behind the other, each at a multiple of LOG_REC_ALIGN
 *
 * A record tells one change of the file; a region is only ever added to. Who
 * adds writes records first and then one of the slots, in turn, which says up
 * to where they reach: so one of the two is whole whenever the writer stops,
 * and what it covers was there before it. Who writes from afar adds a slot to
 * the first records of a region and then only now and then: those behind it
 * prove themselves, by their checksums and numbers, and the daemon makes a slot
 * for them when it has shut the writer out. Memory is zeroed before it is lent.
 *
 * Records of a log are numbered 1, 2, ... within its epoch, without a gap also
 * from region to region.
 */
#ifndef COMMON_LOG_REC_H
#define COMMON_LOG_REC_H

#include "common/limits.h"

#define LOG_SLOT_SIZE 64u
#define LOG_SLOT_COUNT 2u
#define LOG_DATA_OFF 4096u
#define LOG_REC_HEADER 48u
#define LOG_REC_ALIGN 8u

enum log_rec_kind {
	LOG_REC_WRITE = 1, /* @len bytes at @off */
	LOG_REC_SIZE = 2, /* the file ends at @off: cut, or grown by a hole */
	LOG_REC_ZERO = 3, /* [@off, @off+@arg) reads as zeros; the size stays */
};

struct log_rec {
	enum log_rec_kind kind;
	uint64_t seq; /* > 0 */
	uint64_t off; /* bytes; off + len, off + arg <= FILE_SIZE_MAX */
	uint64_t arg; /* ZERO: bytes, > 0; else 0 */
	int64_t time_ns; /* of the change: mtime, ctime */
	uint32_t len; /* WRITE: bytes of @data, > 0; else 0 */
	const uint8_t *data; /* decode: within the region */
};

/* The end of what a region holds. */
struct log_slot {
	uint64_t cluster_id;
	uint64_t ino;
	uint64_t epoch; /* the log's */
	uint64_t seq; /* of the last record in this region */
	uint64_t length; /* of the file after it */
	uint64_t length_first; /* of the file before the region's first one */
	uint32_t index; /* of the region in its log */
	uint32_t end; /* offset behind the last record, > LOG_DATA_OFF */
};

/* Bytes a record with @len bytes of data takes. */
static inline uint32_t log_rec_size(uint32_t len)
{
	return (uint32_t)u64_round_up(LOG_REC_HEADER + (uint64_t)len,
				      LOG_REC_ALIGN);
}
/* The most data a record can have in an empty region. */
static inline uint32_t log_rec_len_max(uint8_t log2)
{
	return (1u << log2) - LOG_DATA_OFF - LOG_REC_HEADER;
}

/* Writes @r, padding included; @to: log_rec_size(r->len) bytes. r->data may
 * lie anywhere but in @to. */
void log_rec_encode(const struct log_rec *r, uint8_t *to);
/* Reads the record at @p, of which @room bytes can be read. Returns the bytes
 * it takes; 0: there is none (zeros); -EBADMSG: damaged. */
int64_t log_rec_decode(const uint8_t *p, size_t room,
		       struct log_rec *r) must_check;

/* The same of a record that is known to be whole: its checksum is not looked
 * at. Returns the bytes it takes. */
uint32_t log_rec_peek(const uint8_t *p, struct log_rec *r);
/* The length of a file of @length bytes after this change. */
static inline uint64_t log_rec_length(const struct log_rec *r, uint64_t length)
{
	switch (r->kind) {
	case LOG_REC_WRITE:
		return u64_max(length, r->off + r->len);
	case LOG_REC_SIZE:
		return r->off;
	case LOG_REC_ZERO:
		break;
	}
	return length;
}

/* Writes LOG_SLOT_SIZE bytes. */
void log_slot_encode(const struct log_slot *s, uint8_t *to);
/* 0; -ENODATA: zeros; -EBADMSG: damaged. */
int log_slot_decode(const uint8_t *p, struct log_slot *s) must_check;
/* Of the LOG_SLOT_COUNT slots at @p the one that is further; a damaged one
 * counts as not there (it was being written). -ENODATA: both are zeros;
 * -EBADMSG: none is whole and not both are zeros. */
int log_slot_newest(const uint8_t *p, struct log_slot *s) must_check;

/* Walks the records of [from, to) of the region at @base: each has to be
 * whole, number @seq first and then one more each, the last to end at @to.
 * @fn may be NULL; it returns 0 or what the walk ends with. Returns 0 and
 * *seq_next (may be NULL), or -EBADMSG. */
int log_rec_walk(const uint8_t *base, uint32_t from, uint32_t to, uint64_t seq,
		 int (*fn)(void *arg, const struct log_rec *r), void *arg,
		 uint64_t *seq_next) must_check;

#endif
