/* Block images: what is encoded is decoded, any changed bit is noticed, and a
 * cut removes exactly the units it covers whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/extent.h"
#include "blockd/image.h"
#include "common/wire_blk.h"

#define UNITS_MAX BLOCK_UNITS_MAX

struct box {
	struct image m;
	uint32_t loc[UNITS_MAX];
	uint32_t crc[UNITS_MAX];
};

static uint64_t rng = 4101842887655102017u;
static struct box a, b;
static uint8_t buf[IMAGE_ENCODED_MAX];
static const struct image_key key = { 77, 5 };

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 11) % below;
}

static void box_init(struct box *x)
{
	memset(x, 0, sizeof(*x));
	x->m.loc = x->loc;
	x->m.crc = x->crc;
}

static void box_random(struct box *x, uint8_t log2)
{
	uint32_t next = 100;

	box_init(x);
	x->m.block_log2 = log2;
	x->m.end = rnd((1u << log2) + 1);
	x->m.cut = rnd(100);
	x->m.mtime_ns = -5;
	x->m.version = 1 + rnd(1000000);
	for (uint32_t u = 0; u < image_units(&x->m); u++) {
		switch (rnd(6)) {
		case 0:
			x->loc[u] = LOC_HOLE;
			break;
		case 1:
			x->loc[u] = LOC_UNWRITTEN;
			break;
		case 2:
			next = EXTENT_LOC_MIN + rnd(1u << 31);
			x->loc[u] = next++;
			x->crc[u] = (uint32_t)rng;
			break;
		default:
			x->loc[u] = next++;
			x->crc[u] = (uint32_t)rng;
			break;
		}
	}
}

static size_t encode(const struct box *x)
{
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	image_encode(&o, &key, &x->m);
	assert_false(o.overflow);
	return o.len;
}

static void what_is_encoded_is_decoded(void **state)
{
	(void)state;
	for (int i = 0; i < 300; i++) {
		struct image_head h;
		size_t len;

		box_random(&a, (uint8_t)(BLOCK_LOG2_MIN + rnd(7)));
		len = encode(&a);
		box_init(&b);
		assert_int_equal(image_peek(&key, buf, len, &h), 0);
		assert_int_equal(h.units, image_allocated(&a.m));
		assert_int_equal(image_decode(&key, buf, len, &b.m), 0);
		assert_int_equal(a.m.end, b.m.end);
		assert_int_equal(a.m.cut, b.m.cut);
		assert_int_equal(a.m.mtime_ns, b.m.mtime_ns);
		assert_int_equal(a.m.version, b.m.version);
		for (uint32_t u = 0; u < image_units(&a.m); u++) {
			assert_int_equal(a.loc[u], b.loc[u]);
			if (loc_is_disk(a.loc[u]))
				assert_int_equal(a.crc[u], b.crc[u]);
		}
	}
}

static void any_flipped_bit_and_any_cut_off_is_noticed(void **state)
{
	struct image_key other = { 77, 6 };
	size_t len;

	(void)state;
	box_random(&a, BLOCK_LOG2_MIN);
	len = encode(&a);
	box_init(&b);
	for (size_t i = 0; i < len * 8; i++) {
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		assert_int_equal(image_decode(&key, buf, len, &b.m), -EBADMSG);
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	for (size_t n = 0; n < len; n++)
		assert_int_equal(image_decode(&key, buf, n, &b.m), -EBADMSG);
	assert_int_equal(image_decode(&other, buf, len, &b.m), -EBADMSG);
	assert_int_equal(image_decode(&key, buf, len, &b.m), 0);
}

static void runs_end_at_segments(void **state)
{
	struct image_run r;

	(void)state;
	box_init(&a);
	a.m.block_log2 = BLOCK_LOG2_MIN;
	for (uint32_t u = 0; u < 16; u++)
		a.loc[u] = SEG_UNITS - 3 + u;
	r = image_run_at(&a.m, 0, 16);
	assert_int_equal(r.count, 3);
	r = image_run_at(&a.m, 3, 16);
	assert_int_equal(r.count, 13);
	r = image_run_at(&a.m, 3, 5);
	assert_int_equal(r.count, 2);
}

/* Against the plain meaning: unit u of block i is file bytes
 * [i*size+u*4096, +4096). */
static void a_cut_hits_whole_units_only(void **state)
{
	const uint32_t size = 1u << BLOCK_LOG2_MIN;

	(void)state;
	box_init(&a);
	a.m.block_log2 = BLOCK_LOG2_MIN;
	a.m.version = 5;
	a.m.cut = 2;
	for (int n = 0; n < 20000; n++) {
		struct image_cut c = {
			.cut = 3, .version = 6, .block_log2 = BLOCK_LOG2_MIN,
			.from = rnd(4 * size),
			.to = rnd(5 * size),
		};
		uint64_t index = rnd(4);
		struct image_hit hit = { 0, 0, 0 };
		bool is_hit;

		a.m.end = rnd(size + 1);
		if (rnd(4) == 0)
			c.to = BLK_CUT_TO_END;
		if (rnd(2) == 0)
			c.from = u64_round_down(c.from, UNIT_SIZE);
		is_hit = image_cut_hit(&c, index, &a.m, &hit);
		for (uint32_t u = 0; u < image_units(&a.m); u++) {
			uint64_t at = index * size + u * UNIT_SIZE;
			bool gone = is_hit && u >= hit.first && u < hit.last;

			assert_int_equal(gone, c.from <= at &&
					 at + UNIT_SIZE <= c.to);
		}
		if (is_hit && c.to == BLK_CUT_TO_END)
			assert_true(hit.end <= a.m.end &&
				    (c.from >= index * size + a.m.end ?
				     hit.end == a.m.end :
				     index * size + hit.end <=
				     u64_max(c.from, index * size)));
		else if (is_hit)
			assert_int_equal(hit.end, a.m.end);
	}
}

static void a_newer_block_is_not_cut(void **state)
{
	struct image_cut c = { .cut = 3, .version = 6, .to = BLK_CUT_TO_END,
			       .block_log2 = BLOCK_LOG2_MIN };
	struct image_hit hit;

	(void)state;
	box_init(&a);
	a.m.block_log2 = BLOCK_LOG2_MIN;
	a.m.version = 6;
	assert_false(image_cut_hit(&c, 0, &a.m, &hit));
	a.m.version = 5;
	assert_true(image_cut_hit(&c, 0, &a.m, &hit));
	a.m.cut = 3;
	assert_false(image_cut_hit(&c, 0, &a.m, &hit));
	c.cut = IMAGE_CUT_PURGE;
	assert_true(image_cut_hit(&c, 0, &a.m, &hit));
	assert_int_equal(hit.last, image_units(&a.m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_encoded_is_decoded),
		cmocka_unit_test(any_flipped_bit_and_any_cut_off_is_noticed),
		cmocka_unit_test(runs_end_at_segments),
		cmocka_unit_test(a_cut_hits_whole_units_only),
		cmocka_unit_test(a_newer_block_is_not_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
