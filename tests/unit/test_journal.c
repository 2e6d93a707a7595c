/* Journal records: what is put is got, any changed bit is noticed; and the
 * circle: a record never covers one that is still needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/extent.h"
#include "blockd/jrec.h"
#include "blockd/store_priv.h"
#include "common/crc32c.h"

#define NONCE 0x1234567890abcdefu

static uint8_t buf[64 * UNIT_SIZE];

/* One of each kind of run, a cut, a purge. Returns the record's size. */
static size_t record(struct jrec_header *h)
{
	struct image m = { .block_log2 = 20, .end = 99, .cut = 7,
			   .mtime_ns = 8, .version = 9 };
	struct image_key key = { 11, 12 };
	struct image_cut cut = { 21, 22, 23, 24, 16, 25 };
	struct image_cut purge = { 31, IMAGE_CUT_PURGE, 0, 24, 0, 35 };
	uint32_t crcs[2];
	struct wire_out o;

	memset(buf, 0, sizeof(buf));
	memset(buf + UNIT_SIZE, 0xaa, 2 * UNIT_SIZE);
	for (uint32_t i = 0; i < 2; i++)
		crcs[i] = crc32c(0, buf + UNIT_SIZE, UNIT_SIZE);
	wire_out_init(&o, buf, UNIT_SIZE);
	jrec_begin(&o);
	jrec_put_block(&o, &key, &m);
	jrec_put_run(&o, &(struct image_run){ 0, 3, LOC_HOLE }, false, NULL);
	jrec_put_run(&o, &(struct image_run){ 4, 2, LOC_UNWRITTEN }, false,
		     NULL);
	jrec_put_run(&o, &(struct image_run){ 6, 2, 5000 }, false, crcs);
	jrec_put_run(&o, &(struct image_run){ 9, 1, 6000 }, true, crcs);
	jrec_put_run(&o, &(struct image_run){ 10, 1, LOC_MEMORY }, true, crcs);
	jrec_put_block_end(&o);
	jrec_put_cut(&o, &cut);
	jrec_put_cut(&o, &purge);
	*h = (struct jrec_header){ .nonce = NONCE, .seq = 42, .unit_count = 2,
				   .version = 50, .ino_max = 51,
				   .session_max = 52 };
	jrec_finish(&o, h);
	return jrec_size(h);
}

static void what_is_put_is_got(void **state)
{
	static const uint32_t firsts[] = { 0, 4, 6, 9, 10 };
	static const uint32_t locs[] = { LOC_HOLE, LOC_UNWRITTEN, 5000, 6000,
					 LOC_MEMORY };
	struct jrec_header h, got;
	struct jrec_iter it;
	struct jrec_item item;
	struct jrec_run r;

	(void)state;
	assert_int_equal(record(&h), 3 * UNIT_SIZE);
	assert_int_equal(jrec_peek(buf, NONCE, sizeof(buf), &got), 0);
	assert_int_equal(got.seq, 42);
	assert_int_equal(got.version, 50);
	assert_int_equal(got.ino_max, 51);
	assert_int_equal(got.session_max, 52);
	assert_int_equal(jrec_check(buf, &got), 0);
	jrec_iter_init(&it, buf, &got);
	assert_int_equal(jrec_next(&it, &item), 1);
	assert_int_equal(item.kind, JREC_BLOCK);
	assert_int_equal(item.key.ino, 11);
	assert_int_equal(item.key.index, 12);
	assert_int_equal(item.m.end, 99);
	assert_int_equal(item.m.version, 9);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(jrec_next_run(&it, &r), 1);
		assert_int_equal(r.run.first, firsts[i]);
		assert_int_equal(r.run.loc, locs[i]);
		assert_int_equal(r.inlined, i >= 3);
	}
	assert_int_equal(jrec_next_run(&it, &r), 0);
	assert_int_equal(jrec_next(&it, &item), 1);
	assert_int_equal(item.cut.cut, 22);
	assert_int_equal(item.cut.version, 25);
	assert_int_equal(jrec_next(&it, &item), 1);
	assert_true(item.cut.cut == IMAGE_CUT_PURGE);
	assert_int_equal(jrec_next(&it, &item), 0);
}

static bool good(size_t size)
{
	struct jrec_header h;

	return jrec_peek(buf, NONCE, size, &h) == 0 && h.seq == 42 &&
	       jrec_check(buf, &h) == 0;
}

static void any_flipped_bit_is_noticed(void **state)
{
	struct jrec_header h;
	size_t size = record(&h);

	(void)state;
	assert_true(good(size));
	/* Between the items and the first unit nothing is said. */
	for (size_t i = 0; i < size * 8; i++) {
		if (i / 8 >= h.meta_len && i / 8 < UNIT_SIZE)
			continue;
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		assert_false(good(size));
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		/* All of the items, every 97th of the data. */
		if (i / 8 > UNIT_SIZE)
			i += 97;
	}
	assert_true(good(size));
}

static void a_torn_record_is_noticed(void **state)
{
	struct jrec_header h;
	size_t size = record(&h);

	(void)state;
	for (size_t off = 0; off < size; off += UNIT_SIZE) {
		(void)record(&h);
		memset(buf + off, 0, UNIT_SIZE);
		assert_false(good(size));
	}
	(void)record(&h);
	assert_false(good(size - UNIT_SIZE));
}

static void a_record_of_another_store_is_none(void **state)
{
	struct jrec_header h;

	(void)state;
	(void)record(&h);
	assert_int_equal(jrec_peek(buf, NONCE + 1, sizeof(buf), &h), -EBADMSG);
}

/* The circle against a list of what must not be covered. */
static void records_never_cover_what_is_needed(void **state)
{
	struct store *s = calloc(1, sizeof(*s));
	struct { uint64_t off, len; } live[256];
	uint32_t first = 0, last = 0;
	uint64_t rng = 99, placed = 0;

	(void)state;
	s->super.journal_bytes = 64 * UNIT_SIZE;
	for (int i = 0; i < 200000; i++) {
		uint64_t len, off;

		rng = rng * 6364136223846793005u + 1442695040888963407u;
		len = (2 + (rng >> 33) % 7) * UNIT_SIZE;
		if (!journal_place(s, len, &off)) {
			/* A checkpoint frees some; all: one always fits. */
			uint32_t n = (uint32_t)((rng >> 50) %
						(last - first + 1));

			if (rng % 5 == 0)
				n = last - first;
			first += n;
			s->tail = first == last ? s->head :
				  live[first % 256].off;
			if (first == last)
				assert_true(journal_place(s, len, &off));
			continue;
		}
		assert_true(off + len <= s->super.journal_bytes);
		for (uint32_t k = first; k < last; k++)
			assert_true(off + len <= live[k % 256].off ||
				    live[k % 256].off + live[k % 256].len <=
				    off);
		live[last % 256].off = off;
		live[last++ % 256].len = len;
		assert_true(last - first < 256);
		s->head = (off + len) % s->super.journal_bytes;
		/* Full and empty look different. */
		assert_int_not_equal(s->head, s->tail);
		placed++;
	}
	assert_true(placed > 50000);
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_got),
		cmocka_unit_test(any_flipped_bit_is_noticed),
		cmocka_unit_test(a_torn_record_is_noticed),
		cmocka_unit_test(a_record_of_another_store_is_none),
		cmocka_unit_test(records_never_cover_what_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
