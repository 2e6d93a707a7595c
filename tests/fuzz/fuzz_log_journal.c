/* The head and table of a journal's slot (common/log_journal.h).
 *
 * Input: a byte (bit 0: checksums are made right first), then the bytes.
 */
#include "common/log_journal.h"

#include "common/crc32c.h"
#include "common/wire.h"
#include "tests/lib/fuzz.h"

#define CLUSTER 77u
#define COUNT_MAX 64u
#define BYTES_MAX (LOG_JOURNAL_HEAD + COUNT_MAX * LOG_JOURNAL_SECTION)
#define COUNT_AT 32u
#define TABLE_CRC_AT 36u

static void put32(uint8_t *p, uint32_t v)
{
	struct wire_out o;

	wire_out_init(&o, p, 4);
	wire_put_u32(&o, v);
}

static uint32_t get32(const uint8_t *p)
{
	struct wire_in in;

	wire_in_init(&in, p, 4);
	return wire_get_u32(&in);
}

static void resum(uint8_t *p, size_t len)
{
	size_t table = (size_t)get32(p + COUNT_AT) * LOG_JOURNAL_SECTION;

	if (table <= len - LOG_JOURNAL_HEAD)
		put32(p + TABLE_CRC_AT,
		      crc32c(0, p + LOG_JOURNAL_HEAD, table));
	put32(p + LOG_JOURNAL_HEAD - 4, crc32c(0, p, LOG_JOURNAL_HEAD - 4));
}

static void check_table(const struct log_journal_head *h, const uint8_t *p)
{
	size_t size = log_journal_front(h->count);
	struct log_journal_section *s = calloc(h->count, sizeof(*s)), *t;
	struct log_journal_head again;
	uint8_t *buf = malloc(size);
	uint64_t bytes = 0;
	int err;

	t = calloc(h->count, sizeof(*t));
	fuzz_expect(s && t && buf);
	err = log_journal_sections_decode(h, p + LOG_JOURNAL_HEAD, s);
	fuzz_expect(err == 0 || err == -EBADMSG);
	if (!err) {
		for (uint32_t i = 0; i < h->count; i++) {
			fuzz_expect(s[i].seq > 0 && s[i].len > 0);
			fuzz_expect(s[i].len <= UINT32_MAX);
			bytes += s[i].len;
		}
		fuzz_expect(bytes == h->bytes);
		/* Said again it is the same. */
		log_journal_encode(h, s, buf);
		fuzz_expect(log_journal_head_decode(buf, CLUSTER, &again) ==
			    0);
		fuzz_expect(again.round == h->round &&
			    again.count == h->count &&
			    again.bytes == h->bytes);
		fuzz_expect(log_journal_sections_decode(
				    &again, buf + LOG_JOURNAL_HEAD, t) == 0);
		fuzz_expect(memcmp(s, t, h->count * sizeof(*s)) == 0);
	}
	free(s);
	free(t);
	free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log_journal_head h;
	size_t len = size - 1;
	uint8_t *p;
	int err;

	if (size < 1 || len < LOG_JOURNAL_HEAD || len > BYTES_MAX)
		return 0;
	p = malloc(len); /* exact, for the sanitizers */
	if (!p)
		return 0;
	memcpy(p, data + 1, len);
	if (data[0] & 1)
		resum(p, len);
	err = log_journal_head_decode(p, CLUSTER, &h);
	fuzz_expect(err == 0 || err == -EBADMSG || err == -ENODATA);
	if (!err) {
		fuzz_expect(h.cluster_id == CLUSTER && h.round > 0);
		fuzz_expect(h.count > 0 && h.count <= LOG_COUNT_MAX);
		fuzz_expect(h.bytes < LOG_JOURNAL_SLOT / 2);
		/* Who reads it reads so many bytes. */
		if (log_journal_front(h.count) <= len)
			check_table(&h, p);
	}
	free(p);
	return 0;
}

/* ---- seeds ---- */

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	struct log_journal_section s[COUNT_MAX];
	struct log_journal_head h = {
		.cluster_id = fuzz_below(rng, 8) ? CLUSTER : fuzz_u64(rng),
		.round = fuzz_below(rng, 8) ? 1 + fuzz_below(rng, 9) :
					      fuzz_odd_u64(rng),
		.count = 1 + fuzz_below(rng, 5),
	};

	fuzz_expect(cap > BYTES_MAX);
	for (uint32_t i = 0; i < h.count; i++) {
		s[i] = (struct log_journal_section){
			.ino = fuzz_below(rng, 9), .epoch = fuzz_below(rng, 9),
			.seq = 1 + fuzz_below(rng, 9),
			.len = fuzz_below(rng, 8) ? 1 + fuzz_below(rng, 900) :
						    fuzz_odd_u64(rng),
			.crc = (uint32_t)fuzz_u64(rng),
		};
		h.bytes += s[i].len;
	}
	buf[0] = (uint8_t)fuzz_u64(rng);
	log_journal_encode(&h, s, buf + 1);
	return 1 + log_journal_front(h.count);
}
