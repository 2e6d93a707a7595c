/* What lies in a log's region: records and slots (common/log_rec.h).
 *
 * Input: a byte (bit 0: checksums are made right first; bit 1: both slots, else
 * records), then the bytes.
 */
#include "common/log_rec.h"

#include "common/crc32c.h"
#include "common/wire.h"
#include "tests/lib/fuzz.h"

#define BYTES_MAX 4096u
#define SLOTS_SIZE (LOG_SLOT_COUNT * LOG_SLOT_SIZE)

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

/* ---- records ---- */

static void resum_records(uint8_t *p, size_t len)
{
	while (len >= LOG_REC_HEADER) {
		uint32_t data_len = get32(p + 4), size;

		if (data_len > len - LOG_REC_HEADER)
			return;
		size = log_rec_size(data_len);
		if (size > len)
			return;
		put32(p, crc32c(0, p + 4, size - 4));
		p += size;
		len -= size;
	}
}

static int count_one(void *arg, const struct log_rec *r)
{
	uint32_t *count = arg;

	fuzz_expect(r->seq > 0 && r->off <= FILE_SIZE_MAX);
	(*count)++;
	return 0;
}

static void check_records(const uint8_t *p, size_t len)
{
	static uint8_t again[BYTES_MAX];
	uint64_t first = 0, next = 0;
	uint32_t at = 0, count = 0, walked = 0;
	struct log_rec r;
	int64_t size;

	while ((size = log_rec_decode(p + at, len - at, &r)) > 0) {
		fuzz_expect((uint64_t)size <= len - at);
		fuzz_expect(size == log_rec_size(r.len));
		fuzz_expect(r.data == p + at + LOG_REC_HEADER);
		fuzz_expect(r.kind == LOG_REC_WRITE || r.len == 0);
		fuzz_expect(r.len <= FILE_SIZE_MAX - r.off);
		fuzz_expect(r.arg <= FILE_SIZE_MAX - r.off);
		log_rec_encode(&r, again);
		/* The padding is under the checksum, but may be anything. */
		fuzz_expect(memcmp(again + 4, p + at + 4,
				   LOG_REC_HEADER - 4 + r.len) == 0);
		if (first == 0)
			first = next = r.seq;
		if (r.seq != next)
			break;
		next++;
		count++;
		at += (uint32_t)size;
	}
	fuzz_expect(size >= 0 || size == -EBADMSG);
	if (count == 0)
		return;
	/* A walk sees the same. */
	fuzz_expect(log_rec_walk(p, 0, at, first, count_one, &walked, &next) ==
		    0);
	fuzz_expect(walked == count && next == first + count);
	fuzz_expect(log_rec_walk(p, 0, at, first + 1, NULL, NULL, NULL) ==
		    -EBADMSG);
}

/* ---- slots ---- */

static void check_slots(uint8_t *p, size_t len, bool resum)
{
	struct log_slot s[LOG_SLOT_COUNT], newest;
	uint8_t again[LOG_SLOT_SIZE];
	int rv[LOG_SLOT_COUNT], found;

	if (len < SLOTS_SIZE)
		return;
	for (unsigned i = 0; i < LOG_SLOT_COUNT; i++) {
		uint8_t *at = p + i * LOG_SLOT_SIZE;

		if (resum)
			put32(at + LOG_SLOT_SIZE - 4,
			      crc32c(0, at, LOG_SLOT_SIZE - 4));
		rv[i] = log_slot_decode(at, &s[i]);
		if (rv[i] != 0)
			continue;
		fuzz_expect(s[i].seq > 0 && s[i].end > LOG_DATA_OFF);
		fuzz_expect(s[i].end <= 1u << LOG_REGION_LOG2_MAX);
		fuzz_expect(s[i].length <= FILE_SIZE_MAX);
		log_slot_encode(&s[i], again);
		fuzz_expect(memcmp(again, at, sizeof(again)) == 0);
	}
	found = log_slot_newest(p, &newest);
	fuzz_expect((found == 0) == (rv[0] == 0 || rv[1] == 0));
	for (unsigned i = 0; i < LOG_SLOT_COUNT; i++)
		fuzz_expect(rv[i] != 0 || newest.seq >= s[i].seq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *p;
	size_t len = size - 1;

	if (size < 1 || len > BYTES_MAX)
		return 0;
	p = malloc(len + 1); /* exact, for the sanitizers */
	if (!p)
		return 0;
	memcpy(p, data + 1, len);
	if (data[0] & 2) {
		check_slots(p, len, data[0] & 1);
	} else {
		if (data[0] & 1)
			resum_records(p, len);
		check_records(p, len);
	}
	free(p);
	return 0;
}

/* ---- seeds ---- */

static size_t seed_records(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static uint8_t content[512];
	struct log_rec r = { .seq = 1 + fuzz_below(rng, 9), .data = content };
	uint32_t count = 1 + fuzz_below(rng, 5);
	size_t len = 0;

	for (uint32_t i = 0; i < count; i++, r.seq++) {
		r.kind = 1 + fuzz_below(rng, 3);
		r.off = fuzz_below(rng, 8) ? fuzz_below(rng, 9000) :
					     fuzz_odd_u64(rng);
		r.time_ns = (int64_t)fuzz_u64(rng);
		r.len = r.kind == LOG_REC_WRITE ? fuzz_below(rng, 500) : 0;
		r.arg = r.kind == LOG_REC_ZERO ? fuzz_below(rng, 9000) : 0;
		if (len + log_rec_size(r.len) > cap)
			break;
		log_rec_encode(&r, buf + len);
		len += log_rec_size(r.len);
	}
	if (fuzz_below(rng, 2) && len + 8 <= cap) {
		memset(buf + len, 0, 8);
		len += 8;
	}
	return len;
}

static size_t seed_slots(struct fuzz_rng *rng, uint8_t *buf)
{
	for (unsigned i = 0; i < LOG_SLOT_COUNT; i++) {
		struct log_slot s = {
			.cluster_id = fuzz_u64(rng),
			.ino = fuzz_below(rng, 9),
			.epoch = fuzz_below(rng, 9),
			.seq = fuzz_below(rng, 9),
			.length = fuzz_below(rng, 9000),
			.length_first = fuzz_below(rng, 9000),
			.index = fuzz_below(rng, 9),
			.end = LOG_DATA_OFF + 8 * fuzz_below(rng, 900),
		};

		if (fuzz_below(rng, 6) == 0)
			memset(buf + i * LOG_SLOT_SIZE, 0, LOG_SLOT_SIZE);
		else
			log_slot_encode(&s, buf + i * LOG_SLOT_SIZE);
	}
	return SLOTS_SIZE;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	fuzz_expect(cap > BYTES_MAX);
	buf[0] = (uint8_t)fuzz_u64(rng);
	if (buf[0] & 2)
		return 1 + seed_slots(rng, buf + 1);
	return 1 + seed_records(rng, buf + 1, BYTES_MAX);
}
