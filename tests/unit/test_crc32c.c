/* CRC32C against published vectors and against a bit-by-bit implementation. */
#include "common/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* RFC 3720's polynomial, one bit at a time. */
static uint32_t slow_crc(const uint8_t *p, size_t len)
{
	uint32_t crc = UINT32_MAX;

	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static void fill(uint8_t *p, size_t len)
{
	uint32_t x = 12345;

	for (size_t i = 0; i < len; i++) {
		x = x * 1103515245u + 12345u;
		p[i] = (uint8_t)(x >> 16);
	}
}

static void check_string_has_its_published_sum(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
}

static void rfc3720_vectors_hold(void **state)
{
	uint8_t b[32];

	(void)state;
	memset(b, 0, sizeof(b));
	assert_int_equal(crc32c(0, b, 32), 0x8a9136aa);
	memset(b, 0xff, sizeof(b));
	assert_int_equal(crc32c(0, b, 32), 0x62a8ab43);
	for (unsigned i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	assert_int_equal(crc32c(0, b, 32), 0x46dd794e);
	for (unsigned i = 0; i < 32; i++)
		b[i] = (uint8_t)(31 - i);
	assert_int_equal(crc32c(0, b, 32), 0x113fdb5c);
}

static void nothing_sums_to_what_came_before(void **state)
{
	(void)state;
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(crc32c(0x12345678, NULL, 0), 0x12345678);
}

static void every_short_length_equals_the_slow_sum(void **state)
{
	uint8_t b[600];

	(void)state;
	fill(b, sizeof(b));
	for (size_t len = 0; len <= sizeof(b); len++)
		assert_int_equal(crc32c(0, b, len), slow_crc(b, len));
}

static void every_alignment_equals_the_slow_sum(void **state)
{
	uint8_t b[256];

	(void)state;
	fill(b, sizeof(b));
	for (size_t at = 0; at < 64; at++)
		assert_int_equal(crc32c(0, b + at, 150), slow_crc(b + at, 150));
}

static void a_sum_continues_at_every_split(void **state)
{
	uint8_t b[300];
	uint32_t whole;

	(void)state;
	fill(b, sizeof(b));
	whole = crc32c(0, b, sizeof(b));
	for (size_t at = 0; at <= sizeof(b); at++)
		assert_int_equal(crc32c(crc32c(0, b, at), b + at,
					sizeof(b) - at), whole);
}

static void zero_unit_is_the_sum_of_zeros(void **state)
{
	static const uint8_t zeros[UNIT_SIZE];

	(void)state;
	assert_int_equal(crc32c_zero_unit(), crc32c(0, zeros, UNIT_SIZE));
}

static void pieces_are_counted_by_the_units_touched(void **state)
{
	(void)state;
	assert_int_equal(crc32c_piece_count(0, 0), 0);
	assert_int_equal(crc32c_piece_count(100, 0), 0);
	assert_int_equal(crc32c_piece_count(0, 1), 1);
	assert_int_equal(crc32c_piece_count(0, UNIT_SIZE), 1);
	assert_int_equal(crc32c_piece_count(0, UNIT_SIZE + 1), 2);
	assert_int_equal(crc32c_piece_count(UNIT_SIZE - 1, 2), 2);
	assert_int_equal(crc32c_piece_count(UNIT_SIZE - 1, 1), 1);
	assert_int_equal(crc32c_piece_count(1, 2 * UNIT_SIZE), 3);
	assert_int_equal(crc32c_piece_count(0, FRAME_DATA_MAX),
			 BLOCK_UNITS_MAX);
}

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

static void sums_are_those_of_the_pieces_between_unit_borders(void **state)
{
	static uint8_t data[3 * UNIT_SIZE];
	uint8_t sums[16];

	(void)state;
	fill(data, sizeof(data));
	/* 10 bytes, a whole unit, 20 bytes */
	crc32c_sums(UNIT_SIZE - 10, data, 10 + UNIT_SIZE + 20, sums);
	assert_int_equal(le32(sums), slow_crc(data, 10));
	assert_int_equal(le32(sums + 4), slow_crc(data + 10, UNIT_SIZE));
	assert_int_equal(le32(sums + 8), slow_crc(data + 10 + UNIT_SIZE, 20));
}

static void right_sums_pass_at_many_offsets_and_lengths(void **state)
{
	static const uint32_t offs[] = { 0, 1, 4095, 4096, 5000, 12288 };
	static const uint32_t lens[] = { 1, 2, 95, 4095, 4096, 4097, 12000 };
	static uint8_t data[12000];
	uint8_t sums[5 * 4];

	(void)state;
	fill(data, sizeof(data));
	for (size_t o = 0; o < array_count(offs); o++) {
		for (size_t l = 0; l < array_count(lens); l++) {
			uint32_t pieces = crc32c_piece_count(offs[o], lens[l]);

			crc32c_sums(offs[o], data, lens[l], sums);
			assert_int_equal(crc32c_check(offs[o], data, lens[l],
						      sums, pieces * 4), 0);
		}
	}
}

static void a_flipped_bit_of_the_data_is_found(void **state)
{
	static uint8_t data[2 * UNIT_SIZE];
	uint8_t sums[12];

	(void)state;
	fill(data, sizeof(data));
	crc32c_sums(100, data, sizeof(data), sums);
	for (size_t at = 0; at < sizeof(data); at += 61) {
		for (int bit = 0; bit < 8; bit++) {
			data[at] ^= (uint8_t)(1 << bit);
			assert_int_equal(crc32c_check(100, data, sizeof(data),
						      sums, 12), -EBADMSG);
			data[at] ^= (uint8_t)(1 << bit);
		}
	}
}

static void a_flipped_bit_of_the_sums_is_found(void **state)
{
	static uint8_t data[UNIT_SIZE + 1];
	uint8_t sums[8];

	(void)state;
	crc32c_sums(0, data, sizeof(data), sums);
	for (size_t bit = 0; bit < 64; bit++) {
		sums[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(crc32c_check(0, data, sizeof(data), sums, 8),
				 -EBADMSG);
		sums[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void a_wrong_number_of_sums_is_refused(void **state)
{
	static uint8_t data[UNIT_SIZE + 1];
	uint8_t sums[12];

	(void)state;
	crc32c_sums(0, data, sizeof(data), sums);
	for (size_t len = 0; len <= sizeof(sums); len++)
		assert_int_equal(crc32c_check(0, data, sizeof(data), sums, len),
				 len == 8 ? 0 : -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_string_has_its_published_sum),
		cmocka_unit_test(rfc3720_vectors_hold),
		cmocka_unit_test(nothing_sums_to_what_came_before),
		cmocka_unit_test(every_short_length_equals_the_slow_sum),
		cmocka_unit_test(every_alignment_equals_the_slow_sum),
		cmocka_unit_test(a_sum_continues_at_every_split),
		cmocka_unit_test(zero_unit_is_the_sum_of_zeros),
		cmocka_unit_test(pieces_are_counted_by_the_units_touched),
		cmocka_unit_test(
			sums_are_those_of_the_pieces_between_unit_borders),
		cmocka_unit_test(right_sums_pass_at_many_offsets_and_lengths),
		cmocka_unit_test(a_flipped_bit_of_the_data_is_found),
		cmocka_unit_test(a_flipped_bit_of_the_sums_is_found),
		cmocka_unit_test(a_wrong_number_of_sums_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
