/* Journal records: the format, without I/O. Pure; part of the disk format.
 *
 * A record is a whole number of 4 KiB: a header, items, zeros up to 4 KiB,
 * then the inline units in the items' order. The header's checksum covers
 * header and items, the items hold the units' checksums, so the whole record
 * is checked. The nonce is the store's secret: user data that lies in the
 * journal cannot pass for a record.
 *
 * Records have ascending sequence numbers without gaps and lie one behind the
 * other; one that does not fit before the file's end lies at offset 0.
 */
#ifndef BLOCKD_JREC_H
#define BLOCKD_JREC_H

#include "blockd/image.h"

#define JREC_HEADER_SIZE 80u

struct jrec_header {
	uint64_t nonce;
	uint64_t seq; /* commit number */
	uint32_t meta_len; /* header and items, bytes */
	uint32_t unit_count; /* inline units */
	uint64_t version; /* largest given so far */
	uint64_t ino_max;
	uint64_t session_max;
};

enum jrec_kind {
	JREC_END = 0,
	JREC_BLOCK = 1,
	JREC_CUT = 2,
};

/* Begins a record in @o (whose buffer must be empty): room for the header. */
void jrec_begin(struct wire_out *o);
/* A block's item: header of @m, then runs, ended by jrec_block_end(). */
void jrec_put_block(struct wire_out *o, const struct image_key *key,
		    const struct image *m);
/* Units of @r; sums from @crc[0..count) for data. @inlined: their bytes are
 * in the record (then @r.loc may be LOC_MEMORY). */
void jrec_put_run(struct wire_out *o, const struct image_run *r, bool inlined,
		  const uint32_t *crc);
void jrec_put_block_end(struct wire_out *o);
void jrec_put_cut(struct wire_out *o, const struct image_cut *c);
/* Fills in the header; @h->meta_len is set from @o. */
void jrec_finish(struct wire_out *o, struct jrec_header *h);

#define JREC_RUN_MAX(count) (14u + 4u * (count))
#define JREC_BLOCK_MAX 64u
#define JREC_CUT_MAX 64u

/* Bytes of the whole record in the file. */
static inline uint64_t jrec_size(const struct jrec_header *h)
{
	return u64_round_up(h->meta_len, UNIT_SIZE) +
	       (uint64_t)h->unit_count * UNIT_SIZE;
}

/* Reads a header alone (@p: JREC_HEADER_SIZE bytes). -EBADMSG when it is
 * none of this store; -EPROTONOSUPPORT when it is of another format (magic,
 * checksum, format, lengths, nonce and number stay where they are in all of
 * them). Lengths are plausible (<= @max) else, but nothing is checked yet. */
int jrec_peek(const void *p, uint64_t nonce, uint64_t max,
	      struct jrec_header *h) must_check;
/* Checks header and items of a record of any format. 0 or -EBADMSG. */
int jrec_check_meta(const void *p, const struct jrec_header *h) must_check;
/* Checks all of a record of @h. 0 or -EBADMSG. */
int jrec_check(const void *p, const struct jrec_header *h) must_check;

/* A decoded item. Block: @m has no arrays; runs follow by jrec_next_run(). */
struct jrec_item {
	enum jrec_kind kind;
	struct image_key key;
	struct image m;
	struct image_cut cut;
};
struct jrec_run {
	struct image_run run;
	bool inlined;
	const uint8_t *crcs; /* 4 bytes a unit */
	const uint8_t *units; /* inlined: @run.count units */
};
struct jrec_iter {
	struct wire_in in;
	const uint8_t *units;
	uint32_t units_left;
	uint32_t next; /* unit of the block */
	uint32_t limit;
};
void jrec_iter_init(struct jrec_iter *it, const void *p,
		    const struct jrec_header *h);
/* 1: an item; 0: end; -EBADMSG. All runs of a block must have been taken. */
int jrec_next(struct jrec_iter *it, struct jrec_item *item) must_check;
/* 1: a run; 0: end of the block; -EBADMSG. */
int jrec_next_run(struct jrec_iter *it, struct jrec_run *r) must_check;

#endif
