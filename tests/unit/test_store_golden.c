/* The store's disk format, byte for byte: old disks must stay readable, so
 * what is in tests/golden/store-v1.hex never changes. Run from the top.
 * HAILFS_GOLDEN=write makes the file (for a new version only).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "blockd/extent.h"
#include "blockd/index_priv.h"
#include "blockd/jrec.h"
#include "blockd/store_priv.h"
#include "common/crc32c.h"
#include "tests/lib/golden.h"

#define GOLDEN_PATH "tests/golden/store-v1.hex"
#define NONCE 0x0123456789abcdefu

static const struct image_key key = { 0x1122334455667788u, 0x99aabbccddu };
static uint32_t loc[BLOCK_UNITS_MAX], crc[BLOCK_UNITS_MAX];

static struct image image_make(void)
{
	struct image m = { .block_log2 = 16, .end = 0xfedc, .cut = 7,
			   .mtime_ns = -2, .version = 0x0102030405060708u,
			   .loc = loc, .crc = crc };

	memset(loc, 0, sizeof(loc));
	loc[1] = LOC_UNWRITTEN;
	for (uint32_t u = 3; u < 6; u++) {
		loc[u] = 70000 + u;
		crc[u] = 0x01010101u * u;
	}
	loc[15] = 0xfffffff0u;
	crc[15] = 0xdeadbeef;
	return m;
}

static size_t value_make(uint8_t *buf, size_t cap)
{
	struct image m = image_make();
	struct wire_out o;

	wire_out_init(&o, buf, cap);
	image_encode(&o, &key, &m);
	return o.len;
}

static size_t record_make(uint8_t *buf, size_t cap)
{
	struct image m = image_make();
	struct image_cut cut = { 21, 22, 4096, UINT64_MAX, 20, 25 };
	struct jrec_header h = { .nonce = NONCE, .seq = 42, .unit_count = 1,
				 .version = 50, .ino_max = 51,
				 .session_max = 52 };
	uint32_t zero = crc32c_zero_unit();
	struct wire_out o;

	memset(buf, 0, cap);
	wire_out_init(&o, buf, cap);
	jrec_begin(&o);
	jrec_put_block(&o, &key, &m);
	jrec_put_run(&o, &(struct image_run){ 0, 1, LOC_HOLE }, false, NULL);
	jrec_put_run(&o, &(struct image_run){ 1, 1, LOC_UNWRITTEN }, false,
		     NULL);
	jrec_put_run(&o, &(struct image_run){ 3, 3, 70003 }, false, &crc[3]);
	jrec_put_run(&o, &(struct image_run){ 7, 1, LOC_MEMORY }, true, &zero);
	jrec_put_block_end(&o);
	jrec_put_cut(&o, &cut);
	jrec_finish(&o, &h);
	return o.len;
}

static const struct super super = { 1, 2, NONCE, 3, 1u << 20, 4 };
static const struct index_state index_state = {
	.tail_off = 1, .tail_seq = 2, .version = 3, .ino_max = 4,
	.session_max = 5, .store_id_hi = 6, .store_id_lo = 7,
};
/* What else there is, in one line each. */
static const char *const rest_names[] = { "super", "index_state", "index_key",
					  "index_cut" };

static size_t rest_make(size_t i, uint8_t *buf)
{
	switch (i) {
	case 0:
		super_encode(buf, &super);
		return 128; /* the unit is zero behind it */
	case 1:
		return index_state_encode(buf, &index_state);
	case 2:
		index_key_put(buf, &key);
		return INDEX_KEY_SIZE;
	default:
		index_cut_put(buf, 8, 9);
		return INDEX_CUT_SIZE;
	}
}

static int write_golden(void)
{
	static uint8_t a[4096], b[4096];
	FILE *f = fopen(GOLDEN_PATH, "w");

	if (f == NULL)
		return 1;
	golden_put(f, "index_value", a, value_make(a, sizeof(a)));
	golden_put(f, "journal_record", b, record_make(b, sizeof(b)));
	for (size_t i = 0; i < array_count(rest_names); i++)
		golden_put(f, rest_names[i], a, rest_make(i, a));
	return fclose(f);
}

static void index_values_are_those_of_version_1(void **state)
{
	uint8_t made[4096], old[4096];
	uint32_t l[BLOCK_UNITS_MAX], c[BLOCK_UNITS_MAX];
	struct image m = { .loc = l, .crc = c }, want;
	size_t len = value_make(made, sizeof(made));

	(void)state;
	assert_int_equal(golden_read(GOLDEN_PATH, "index_value", old,
				     sizeof(old)), len);
	assert_memory_equal(made, old, len);
	assert_int_equal(image_decode(&key, old, len, &m), 0);
	want = image_make();
	assert_int_equal(m.version, want.version);
	for (uint32_t u = 0; u < image_units(&want); u++)
		assert_int_equal(m.loc[u], want.loc[u]);
}

static void journal_records_are_those_of_version_1(void **state)
{
	static uint8_t made[4096], old[2 * UNIT_SIZE];
	size_t len = record_make(made, sizeof(made));
	struct jrec_header h;

	(void)state;
	memset(old, 0, sizeof(old));
	assert_int_equal(golden_read(GOLDEN_PATH, "journal_record", old,
				     sizeof(old)), len);
	assert_memory_equal(made, old, len);
	assert_int_equal(jrec_peek(old, NONCE, sizeof(old), &h), 0);
	assert_int_equal(jrec_check(old, &h), 0);
	assert_int_equal(h.seq, 42);
}

static void the_rest_is_that_of_version_1(void **state)
{
	static uint8_t made[UNIT_SIZE], old[UNIT_SIZE];
	struct super sp;
	struct index_state st;
	struct image_key k;
	uint32_t format;
	uint64_t cut;
	MDB_val v;

	(void)state;
	for (size_t i = 0; i < array_count(rest_names); i++) {
		size_t len = rest_make(i, made);

		memset(old, 0, sizeof(old));
		assert_int_equal(golden_read(GOLDEN_PATH, rest_names[i], old,
					     sizeof(old)), len);
		assert_memory_equal(made, old, len);
		v = (MDB_val){ len, old };
		if (i == 0) {
			assert_int_equal(super_decode(old, &sp, &format), 0);
			assert_int_equal(sp.nonce, NONCE);
			assert_int_equal(format, 1);
		} else if (i == 1) {
			assert_int_equal(index_state_decode(&v, &st), 0);
			assert_memory_equal(&st, &index_state, sizeof(st));
		} else if (i == 2) {
			assert_int_equal(index_key_get(&v, &k), 0);
			assert_int_equal(k.index, key.index);
		} else {
			assert_int_equal(index_cut_get(&v, 8, &cut), 0);
			assert_int_equal(cut, 9);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(index_values_are_those_of_version_1),
		cmocka_unit_test(journal_records_are_those_of_version_1),
		cmocka_unit_test(the_rest_is_that_of_version_1),
	};

	if (getenv("HAILFS_GOLDEN") != NULL)
		return write_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
