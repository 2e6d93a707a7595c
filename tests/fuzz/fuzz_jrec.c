/* What blockd reads back from its disk: journal records, and block images of
 * the index.
 *
 * Input: a byte (bit 0: checksums are made right first; bit 1: an image, else
 * a record), then the bytes.
 */
#include "blockd/extent.h"
#include "blockd/jrec.h"

#include "common/crc32c.h"
#include "tests/lib/fuzz.h"

#define NONCE 0x1122334455667788ull
#define RECORD_MAX (60u << 10)

static const struct image_key key = { .ino = 5, .index = 7 };

static void put32(uint8_t *p, uint32_t v)
{
	struct wire_out o;

	wire_out_init(&o, p, 4);
	wire_put_u32(&o, v);
}

/* ---- records ---- */

static void use_runs(struct jrec_iter *it, const struct jrec_item *item,
		     const uint8_t *end)
{
	uint32_t next = 0;
	struct jrec_run r;

	while (jrec_next_run(it, &r) == 1) {
		fuzz_expect(r.run.count > 0 && r.run.first >= next);
		next = r.run.first + r.run.count;
		fuzz_expect(next <= image_units(&item->m));
		if (r.inlined)
			fuzz_expect(r.units +
				    (size_t)r.run.count * UNIT_SIZE <= end);
		if (loc_is_disk(r.run.loc))
			fuzz_expect(r.run.loc >= EXTENT_LOC_MIN);
	}
}

static void check_record(uint8_t *p, size_t len, bool resum)
{
	struct jrec_item item;
	struct jrec_iter it;
	struct jrec_header h;

	if (len < JREC_HEADER_SIZE || jrec_peek(p, NONCE, len, &h) != 0)
		return;
	fuzz_expect(jrec_size(&h) <= len);
	if (resum)
		put32(p + 4, crc32c(0, p + 8, h.meta_len - 8));
	if (jrec_check(p, &h) != 0)
		return;
	jrec_iter_init(&it, p, &h);
	while (jrec_next(&it, &item) == 1) {
		if (item.kind == JREC_BLOCK)
			use_runs(&it, &item, p + jrec_size(&h));
		else
			fuzz_expect(item.kind == JREC_CUT);
	}
	fuzz_expect(it.units_left == 0);
}

/* ---- images ---- */

static void check_image(uint8_t *p, size_t len, bool resum)
{
	static uint32_t loc[2][BLOCK_UNITS_MAX], crc[2][BLOCK_UNITS_MAX];
	static uint8_t again[IMAGE_ENCODED_MAX];
	struct image m = { .loc = loc[0], .crc = crc[0] };
	struct image back = { .loc = loc[1], .crc = crc[1] };
	struct image_head h;
	struct wire_out o;

	if (resum && len >= 4) {
		uint8_t k[16];

		wire_out_init(&o, k, sizeof(k));
		wire_put_u64(&o, key.ino);
		wire_put_u64(&o, key.index);
		put32(p + len - 4,
		      crc32c(crc32c(0, k, sizeof(k)), p, len - 4));
	}
	if (image_peek(&key, p, len, &h) != 0 ||
	    image_decode(&key, p, len, &m) != 0)
		return;
	fuzz_expect(h.units == image_allocated(&m));
	fuzz_expect(m.end <= 1u << m.block_log2);
	wire_out_init(&o, again, sizeof(again));
	image_encode(&o, &key, &m);
	fuzz_expect(!o.overflow);
	fuzz_expect(image_decode(&key, again, o.len, &back) == 0);
	fuzz_expect(memcmp(loc[0], loc[1], image_units(&m) * 4) == 0);
	for (uint32_t u = 0; u < image_units(&m); u++)
		fuzz_expect(!loc_is_disk(loc[0][u]) ||
			    crc[0][u] == crc[1][u]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);

	fuzz_expect(copy);
	memcpy(copy, data, size);
	if (size > 0 && copy[0] & 2)
		check_image(copy + 1, size - 1, copy[0] & 1);
	else if (size > 0)
		check_record(copy + 1, size - 1, copy[0] & 1);
	free(copy);
	return 0;
}

/* ---- valid inputs ---- */

/* Runs of random kinds; without LOC_MEMORY when @disk. */
static void random_image(struct fuzz_rng *rng, struct image *m, bool disk)
{
	m->block_log2 = (uint8_t)(BLOCK_LOG2_MIN + fuzz_below(rng, 3));
	m->end = fuzz_below(rng, (1u << m->block_log2) + 1);
	m->cut = fuzz_below(rng, 3);
	m->version = fuzz_u64(rng);
	for (uint32_t u = 0; u < image_units(m);) {
		uint32_t kind = fuzz_below(rng, disk ? 3 : 4);
		uint32_t count = 1 + fuzz_below(rng, 20);
		uint32_t start = EXTENT_LOC_MIN + fuzz_below(rng, 9) * 1000;

		for (; count > 0 && u < image_units(m); count--, u++) {
			m->loc[u] = kind == 2 ? start++ :
				    kind == 3 ? LOC_MEMORY : kind;
			m->crc[u] = crc32c_zero_unit();
		}
	}
}

static size_t seed_record(struct fuzz_rng *rng, uint8_t *buf)
{
	static uint32_t loc[BLOCK_UNITS_MAX], crc[BLOCK_UNITS_MAX];
	struct image m = { .loc = loc, .crc = crc };
	struct jrec_header h = { .nonce = NONCE, .seq = 9 };
	struct wire_out o;

	wire_out_init(&o, buf, UNIT_SIZE);
	jrec_begin(&o);
	if (fuzz_below(rng, 2)) {
		struct image_cut c = { .ino = 5, .cut = 2, .from = 4096,
				       .to = UINT64_MAX, .block_log2 = 20 };

		jrec_put_cut(&o, &c);
	}
	random_image(rng, &m, false);
	jrec_put_block(&o, &key, &m);
	for (uint32_t u = 0; u < image_units(&m);) {
		struct image_run r = image_run_at(&m, u, image_units(&m));
		bool inlined = r.loc == LOC_MEMORY;

		if (JREC_RUN_MAX(r.count) + 1 > o.cap - o.len ||
		    (inlined && h.unit_count + r.count > 12))
			break;
		jrec_put_run(&o, &r, inlined, crc + u);
		h.unit_count += inlined ? r.count : 0;
		u += r.count;
	}
	jrec_put_block_end(&o);
	jrec_finish(&o, &h);
	memset(buf + o.len, 0, jrec_size(&h) - o.len);
	return jrec_size(&h);
}

static size_t seed_image(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	static uint32_t loc[BLOCK_UNITS_MAX], crc[BLOCK_UNITS_MAX];
	struct image m = { .loc = loc, .crc = crc };
	struct wire_out o;

	random_image(rng, &m, true);
	wire_out_init(&o, buf, cap);
	image_encode(&o, &key, &m);
	return o.len;
}

size_t fuzz_seed(struct fuzz_rng *rng, uint8_t *buf, size_t cap)
{
	fuzz_expect(cap > RECORD_MAX);
	buf[0] = (uint8_t)fuzz_u64(rng);
	if (buf[0] & 2)
		return 1 + seed_image(rng, buf + 1, cap - 1);
	return 1 + seed_record(rng, buf + 1);
}
