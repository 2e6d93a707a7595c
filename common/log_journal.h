/* The journal of a mount's destaging. [pure]
 *
 * Log records reach the blocks of their files in place, many blocks at once and
 * in no order. So that a power cut in the middle of that, which takes the log
 * peers' memory too, does not leave a part of it, all records of a round are
 * first made durable in one place, the journal, and only then sent to where
 * they belong. What is found there after the cut is done again.
 *
 * The journal is a file without a name (metad: an entry of the registry of logs
 * that has no peers) with two slots, LOG_JOURNAL_SLOT bytes apart, which rounds
 * use in turn: one that is half written leaves the one before. Each has
 *
 *	0	head, LOG_JOURNAL_HEAD bytes
 *	64	sections, LOG_JOURNAL_SECTION bytes each
 *	...	the records of each section (log_rec.h), one section behind the
 *		other
 *
 * and counts only if every byte of it is what the head's and the sections'
 * checksums say. Numbers are little endian. */
#ifndef COMMON_LOG_JOURNAL_H
#define COMMON_LOG_JOURNAL_H

#include "common/limits.h"

#define LOG_JOURNAL_SLOT ((uint64_t)1 << 40)
#define LOG_JOURNAL_SLOT_COUNT 2u
#define LOG_JOURNAL_HEAD 64u
#define LOG_JOURNAL_SECTION 48u

/* Records of one log, a gapless row. */
struct log_journal_section {
	uint64_t ino;
	uint64_t epoch; /* the log's */
	uint64_t seq; /* of the first */
	uint64_t len; /* bytes, > 0, below 4 GiB */
	uint32_t crc; /* crc32c of them */
};

struct log_journal_head {
	uint64_t cluster_id;
	uint64_t round; /* > 0; the largest counts */
	uint32_t count; /* sections, > 0, at most LOG_COUNT_MAX */
	uint64_t bytes; /* of all records */
	uint32_t crc; /* crc32c of the encoded sections */
};

/* Bytes of head and sections. */
static inline size_t log_journal_front(uint32_t count)
{
	return LOG_JOURNAL_HEAD + (size_t)count * LOG_JOURNAL_SECTION;
}

/* @to: log_journal_front(h->count) bytes; h->crc is computed. */
void log_journal_encode(const struct log_journal_head *h,
			const struct log_journal_section *s, uint8_t *to);
/* @p: LOG_JOURNAL_HEAD bytes. 0, -ENODATA: none of cluster @cluster_id;
 * -EBADMSG: damaged. */
int log_journal_head_decode(const uint8_t *p, uint64_t cluster_id,
			    struct log_journal_head *h) must_check;
/* @p: the encoded sections; @s: h->count of them. 0, or -EBADMSG. */
int log_journal_sections_decode(const struct log_journal_head *h,
				const uint8_t *p,
				struct log_journal_section *s) must_check;

#endif
