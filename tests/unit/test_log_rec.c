/* Records and slots of a log's regions.
 *
 * Method: what was encoded is decoded; then each bit of it is turned, each
 * shorter length given, and each field set to what it cannot be.
 */
#include "common/log_rec.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/golden.h"

#define GOLDEN_PATH "tests/golden/log-v1.hex"

static const uint8_t content[64] = "what was written";

static struct log_rec record(enum log_rec_kind kind)
{
	struct log_rec r = {
		.kind = kind, .seq = 9, .off = 1000, .time_ns = -5
	};

	if (kind == LOG_REC_WRITE) {
		r.len = 21;
		r.data = content;
	} else if (kind == LOG_REC_ZERO) {
		r.arg = 300;
	}
	return r;
}

static void a_record_decodes_to_what_was_encoded(void **state)
{
	(void)state;
	for (enum log_rec_kind k = LOG_REC_WRITE; k <= LOG_REC_ZERO; k++) {
		struct log_rec r = record(k), d, peeked;
		uint8_t buf[128];
		uint32_t size = log_rec_size(r.len);

		memset(&d, 0, sizeof(d));
		memset(&peeked, 0, sizeof(peeked));
		memset(buf, 0xff, sizeof(buf));
		log_rec_encode(&r, buf);
		assert_int_equal(size % LOG_REC_ALIGN, 0);
		assert_int_equal(buf[size], 0xff);
		assert_int_equal(log_rec_decode(buf, sizeof(buf), &d), size);
		assert_int_equal(d.kind, k);
		assert_int_equal(d.seq, 9);
		assert_int_equal(d.off, 1000);
		assert_int_equal(d.arg, r.arg);
		assert_int_equal(d.time_ns, -5);
		assert_int_equal(d.len, r.len);
		assert_ptr_equal(d.data, buf + LOG_REC_HEADER);
		if (r.len > 0)
			assert_memory_equal(d.data, content, r.len);
		assert_int_equal(log_rec_peek(buf, &peeked), size);
		assert_memory_equal(&peeked, &d, sizeof(d));
		assert_int_equal(log_rec_decode(buf, size, &d), size);
		for (uint32_t room = 0; room < size; room++)
			assert_true(log_rec_decode(buf, room, &d) <= 0);
	}
}

static void each_damaged_bit_of_a_record_is_seen(void **state)
{
	struct log_rec r = record(LOG_REC_WRITE), d;
	uint8_t buf[72];

	(void)state;
	assert_int_equal(log_rec_size(r.len), sizeof(buf));
	for (uint32_t bit = 0; bit < sizeof(buf) * 8; bit++) {
		log_rec_encode(&r, buf);
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(log_rec_decode(buf, sizeof(buf), &d),
				 -EBADMSG);
	}
}

static void zeros_are_no_record(void **state)
{
	uint8_t buf[128] = { 0 };
	struct log_rec d;

	(void)state;
	for (uint32_t room = 0; room <= sizeof(buf); room++)
		assert_int_equal(log_rec_decode(buf, room, &d), 0);
}

static void a_record_that_cannot_be_is_damaged(void **state)
{
	struct log_rec bad[8], d;
	uint8_t buf[128];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		bad[i] = record(LOG_REC_WRITE);
	bad[0].seq = 0;
	bad[1].len = 0;
	bad[2].off = FILE_SIZE_MAX - 20;
	bad[3] = record(LOG_REC_SIZE);
	bad[3].arg = 1;
	bad[4] = record(LOG_REC_SIZE);
	bad[4].off = (uint64_t)FILE_SIZE_MAX + 1;
	bad[5] = record(LOG_REC_ZERO);
	bad[5].arg = 0;
	bad[6] = record(LOG_REC_ZERO);
	bad[6].arg = FILE_SIZE_MAX;
	bad[7] = record(LOG_REC_SIZE);
	bad[7].kind = (enum log_rec_kind)4;
	for (uint32_t i = 0; i < array_count(bad); i++) {
		log_rec_encode(&bad[i], buf);
		assert_int_equal(log_rec_decode(buf, sizeof(buf), &d),
				 -EBADMSG);
	}
}

static void a_length_is_what_the_change_makes_of_it(void **state)
{
	struct log_rec r = record(LOG_REC_WRITE);

	(void)state;
	assert_int_equal(log_rec_length(&r, 0), 1021);
	assert_int_equal(log_rec_length(&r, 5000), 5000);
	r = record(LOG_REC_SIZE);
	assert_int_equal(log_rec_length(&r, 0), 1000);
	assert_int_equal(log_rec_length(&r, 5000), 1000);
	r = record(LOG_REC_ZERO);
	assert_int_equal(log_rec_length(&r, 500), 500);
}

static void the_largest_record_fills_a_region(void **state)
{
	(void)state;
	for (uint8_t l = LOG_REGION_LOG2_MIN; l <= LOG_REGION_LOG2_MAX; l++)
		assert_int_equal(LOG_DATA_OFF +
					 log_rec_size(log_rec_len_max(l)),
				 1u << l);
}

static const struct log_slot slot = { .cluster_id = 1,
				      .ino = 2,
				      .epoch = 3,
				      .seq = 4,
				      .length = 5,
				      .length_first = 7,
				      .index = 6,
				      .end = LOG_DATA_OFF + 48 };

static void a_slot_decodes_to_what_was_encoded(void **state)
{
	uint8_t buf[LOG_SLOT_SIZE];
	struct log_slot d = { 0 };

	(void)state;
	log_slot_encode(&slot, buf);
	assert_int_equal(log_slot_decode(buf, &d), 0);
	assert_memory_equal(&d, &slot, sizeof(d));
	memset(buf, 0, sizeof(buf));
	assert_int_equal(log_slot_decode(buf, &d), -ENODATA);
}

static void a_slot_that_cannot_be_is_damaged(void **state)
{
	struct log_slot bad[6] = { slot, slot, slot, slot, slot, slot }, d;
	uint8_t buf[LOG_SLOT_SIZE];

	(void)state;
	for (uint32_t bit = 0; bit < LOG_SLOT_SIZE * 8; bit++) {
		log_slot_encode(&slot, buf);
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(log_slot_decode(buf, &d), -EBADMSG);
	}
	bad[0].seq = 0;
	bad[1].end = LOG_DATA_OFF;
	bad[2].end += 4;
	bad[3].end = (1u << LOG_REGION_LOG2_MAX) + 8;
	bad[4].length = (uint64_t)FILE_SIZE_MAX + 1;
	bad[5].length_first = (uint64_t)FILE_SIZE_MAX + 1;
	for (uint32_t i = 0; i < array_count(bad); i++) {
		log_slot_encode(&bad[i], buf);
		assert_int_equal(log_slot_decode(buf, &d), -EBADMSG);
	}
}

static void of_two_slots_the_whole_one_that_is_further_speaks(void **state)
{
	uint8_t two[LOG_SLOT_COUNT * LOG_SLOT_SIZE] = { 0 };
	struct log_slot later = slot, d;

	(void)state;
	later.seq = 8;
	assert_int_equal(log_slot_newest(two, &d), -ENODATA);
	two[3] = 1;
	assert_int_equal(log_slot_newest(two, &d), -EBADMSG);
	log_slot_encode(&later, two);
	assert_int_equal(log_slot_newest(two, &d), 0);
	log_slot_encode(&slot, two + LOG_SLOT_SIZE);
	assert_int_equal(log_slot_newest(two, &d), 0);
	assert_int_equal(d.seq, 8);
	later.seq = 9;
	log_slot_encode(&later, two + LOG_SLOT_SIZE);
	assert_int_equal(log_slot_newest(two, &d), 0);
	assert_int_equal(d.seq, 9);
	two[LOG_SLOT_SIZE + 20] ^= 1;
	assert_int_equal(log_slot_newest(two, &d), 0);
	assert_int_equal(d.seq, 8);
	two[20] ^= 1;
	assert_int_equal(log_slot_newest(two, &d), -EBADMSG);
}

static int count(void *arg, const struct log_rec *r)
{
	(void)r;
	return --*(int *)arg == 0 ? -ECANCELED : 0;
}

static void a_walk_sees_each_record_once_and_any_gap(void **state)
{
	uint8_t buf[512] = { 0 };
	uint32_t end = 0;
	uint64_t next = 0;
	int left = 100;

	(void)state;
	for (uint64_t seq = 5; seq < 8; seq++) {
		struct log_rec r = record(LOG_REC_WRITE);

		r.seq = seq;
		log_rec_encode(&r, buf + end);
		end += log_rec_size(r.len);
	}
	assert_int_equal(log_rec_walk(buf, 0, end, 5, count, &left, &next), 0);
	assert_int_equal(left, 97);
	assert_int_equal(next, 8);
	assert_int_equal(log_rec_walk(buf, 72, end, 6, NULL, NULL, NULL), 0);
	assert_int_equal(log_rec_walk(buf, 72, 72, 6, NULL, NULL, &next), 0);
	assert_int_equal(next, 6);
	left = 2;
	assert_int_equal(log_rec_walk(buf, 0, end, 5, count, &left, &next),
			 -ECANCELED);
	/* Another number, zeros, half a record, a damaged one. */
	assert_int_equal(log_rec_walk(buf, 0, end, 4, NULL, NULL, NULL),
			 -EBADMSG);
	assert_int_equal(log_rec_walk(buf, 0, end + 8, 5, NULL, NULL, NULL),
			 -EBADMSG);
	assert_int_equal(log_rec_walk(buf, 0, end - 8, 5, NULL, NULL, NULL),
			 -EBADMSG);
	buf[100] ^= 1;
	assert_int_equal(log_rec_walk(buf, 0, end, 5, NULL, NULL, NULL),
			 -EBADMSG);
}

/* ---- golden bytes: peers of all releases, and salvaged files ---- */

static const char *const golden_names[] = { "write", "size", "zero", "slot" };

/* The @i-th of those. Returns its length. */
static size_t golden_make(size_t i, uint8_t *buf)
{
	struct log_rec r;

	if (i == 3) {
		log_slot_encode(&slot, buf);
		return LOG_SLOT_SIZE;
	}
	r = record((enum log_rec_kind)(LOG_REC_WRITE + i));
	log_rec_encode(&r, buf);
	return log_rec_size(r.len);
}

static int write_golden(void)
{
	FILE *f = fopen(GOLDEN_PATH, "we");
	uint8_t buf[128];

	if (!f)
		return 1;
	for (size_t i = 0; i < array_count(golden_names); i++)
		golden_put(f, golden_names[i], buf, golden_make(i, buf));
	return fclose(f);
}

static void the_bytes_are_those_of_version_1(void **state)
{
	uint8_t buf[128], old[128];

	(void)state;
	for (size_t i = 0; i < array_count(golden_names); i++) {
		size_t len = golden_make(i, buf);

		assert_int_equal(golden_read(GOLDEN_PATH, golden_names[i], old,
					     sizeof(old)), len);
		assert_memory_equal(old, buf, len);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_decodes_to_what_was_encoded),
		cmocka_unit_test(each_damaged_bit_of_a_record_is_seen),
		cmocka_unit_test(zeros_are_no_record),
		cmocka_unit_test(a_record_that_cannot_be_is_damaged),
		cmocka_unit_test(a_length_is_what_the_change_makes_of_it),
		cmocka_unit_test(the_largest_record_fills_a_region),
		cmocka_unit_test(a_slot_decodes_to_what_was_encoded),
		cmocka_unit_test(a_slot_that_cannot_be_is_damaged),
		cmocka_unit_test(
			of_two_slots_the_whole_one_that_is_further_speaks),
		cmocka_unit_test(a_walk_sees_each_record_once_and_any_gap),
		cmocka_unit_test(the_bytes_are_those_of_version_1),
	};

	if (getenv("HAILFS_GOLDEN") != NULL)
		return write_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
