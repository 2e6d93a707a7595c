/* Frame header and cursors: layout by bytes, every damage refused. */
#include "common/wire.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/crc32c.h"

static const struct wire_header sample = {
	.version = WIRE_VERSION,
	.opcode = WIRE_OP_BLK_WRITE,
	.flags = WIRE_F_REPLY,
	.status = 0x01020304,
	.request_id = 0x1112131415161718,
	.cluster_id = 0x2122232425262728,
	.epoch = 0x3132333435363738,
	.session = 0x4142434445464748,
	.body_len = 0x00050607,
	.data_len = 0x00350607,
	.body_crc = 0x51525354,
};

/* Makes the checksum right again after a change of @b. */
static void resum(uint8_t *b)
{
	uint32_t crc = crc32c(0, b, 60);

	for (int i = 0; i < 4; i++)
		b[60 + i] = (uint8_t)(crc >> 8 * i);
}

/* ---- header ---- */

static void a_header_has_the_documented_bytes(void **state)
{
	static const uint8_t expected[60] = {
		'H', 'A', 'I', 'L', 1, 0, 64, 0,
		1, 0, 0, 0, 4, 3, 2, 1,
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
		0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
		0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
		0x07, 0x06, 0x05, 0x00, 0x07, 0x06, 0x35, 0x00,
		0x54, 0x53, 0x52, 0x51,
	};
	uint8_t b[WIRE_HEADER_SIZE], summed[WIRE_HEADER_SIZE];

	(void)state;
	wire_header_encode(&sample, b);
	assert_memory_equal(b, expected, sizeof(expected));
	memcpy(summed, b, sizeof(b));
	resum(summed);
	assert_memory_equal(b, summed, sizeof(b));
}

static void a_header_comes_back_as_it_was(void **state)
{
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	wire_header_encode(&sample, b);
	memset(&h, 0xff, sizeof(h));
	assert_int_equal(wire_header_decode(b, &h), 0);
	assert_int_equal(h.version, sample.version);
	assert_int_equal(h.opcode, sample.opcode);
	assert_int_equal(h.flags, sample.flags);
	assert_int_equal(h.status, sample.status);
	assert_true(h.request_id == sample.request_id);
	assert_true(h.cluster_id == sample.cluster_id);
	assert_true(h.epoch == sample.epoch);
	assert_true(h.session == sample.session);
	assert_int_equal(h.body_len, sample.body_len);
	assert_int_equal(h.data_len, sample.data_len);
	assert_int_equal(h.body_crc, sample.body_crc);
}

static void every_single_flipped_bit_is_refused(void **state)
{
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	wire_header_encode(&sample, b);
	for (unsigned bit = 0; bit < 8 * WIRE_HEADER_SIZE; bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(wire_header_decode(b, &h), -EBADMSG);
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void every_two_flipped_bits_are_refused(void **state)
{
	const unsigned bits = 8 * WIRE_HEADER_SIZE;
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	wire_header_encode(&sample, b);
	for (unsigned i = 0; i < bits; i++) {
		b[i / 8] ^= (uint8_t)(1 << i % 8);
		for (unsigned j = i + 1; j < bits; j++) {
			b[j / 8] ^= (uint8_t)(1 << j % 8);
			assert_int_equal(wire_header_decode(b, &h), -EBADMSG);
			b[j / 8] ^= (uint8_t)(1 << j % 8);
		}
		b[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

static void a_wrong_magic_is_refused_even_when_summed(void **state)
{
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	for (unsigned bit = 0; bit < 32; bit++) {
		wire_header_encode(&sample, b);
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		resum(b);
		assert_int_equal(wire_header_decode(b, &h), -EBADMSG);
	}
}

static void another_version_is_told_apart(void **state)
{
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	for (unsigned version = 0; version <= UINT16_MAX; version++) {
		struct wire_header v = sample;

		v.version = (uint16_t)version;
		wire_header_encode(&v, b);
		assert_int_equal(wire_header_decode(b, &h),
				 version == WIRE_VERSION ? 0 :
							   -EPROTONOSUPPORT);
		assert_int_equal(h.version, version);
	}
}

static void another_versions_flags_and_lengths_are_not_judged(void **state)
{
	struct wire_header v = sample, h;
	uint8_t b[WIRE_HEADER_SIZE];

	(void)state;
	v.version = WIRE_VERSION + 1;
	v.flags = UINT32_MAX;
	v.body_len = UINT32_MAX;
	wire_header_encode(&v, b);
	assert_int_equal(wire_header_decode(b, &h), -EPROTONOSUPPORT);
}

static void every_unknown_flag_is_refused(void **state)
{
	uint8_t b[WIRE_HEADER_SIZE];
	struct wire_header h;

	(void)state;
	for (unsigned bit = 0; bit < 32; bit++) {
		struct wire_header v = sample;

		v.flags = 1u << bit;
		wire_header_encode(&v, b);
		assert_int_equal(wire_header_decode(b, &h),
				 v.flags & WIRE_F_KNOWN ? 0 : -EBADMSG);
	}
}

static int decode_lengths(uint32_t body_len, uint32_t data_len)
{
	struct wire_header v = sample, h;
	uint8_t b[WIRE_HEADER_SIZE];

	v.body_len = body_len;
	v.data_len = data_len;
	wire_header_encode(&v, b);
	return wire_header_decode(b, &h);
}

static void lengths_are_bounded(void **state)
{
	(void)state;
	assert_int_equal(decode_lengths(0, 0), 0);
	assert_int_equal(decode_lengths(FRAME_BODY_MAX, FRAME_DATA_MAX), 0);
	assert_int_equal(decode_lengths(FRAME_BODY_MAX + 1, 0), -EBADMSG);
	assert_int_equal(decode_lengths(0, FRAME_DATA_MAX + 1), -EBADMSG);
	assert_int_equal(decode_lengths(UINT32_MAX, 0), -EBADMSG);
	assert_int_equal(decode_lengths(0, UINT32_MAX), -EBADMSG);
}

static void every_flipped_bit_of_a_body_is_refused(void **state)
{
	uint8_t body[100];
	struct wire_header h = sample;

	(void)state;
	memset(body, 0x5a, sizeof(body));
	h.body_len = sizeof(body);
	h.body_crc = crc32c(0, body, sizeof(body));
	assert_int_equal(wire_body_check(&h, body), 0);
	for (unsigned bit = 0; bit < 8 * sizeof(body); bit++) {
		body[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(wire_body_check(&h, body), -EBADMSG);
		body[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void an_empty_body_has_sum_zero(void **state)
{
	struct wire_header h = sample;

	(void)state;
	h.body_len = 0;
	h.body_crc = 0;
	assert_int_equal(wire_body_check(&h, NULL), 0);
	h.body_crc = 1;
	assert_int_equal(wire_body_check(&h, NULL), -EBADMSG);
}

/* ---- output cursor ---- */

static void put_one_of_each(struct wire_out *o)
{
	wire_put_u8(o, 0x01);
	wire_put_u16(o, 0x0203);
	wire_put_u32(o, 0x04050607);
	wire_put_u64(o, 0x08090a0b0c0d0e0f);
	wire_put_i64(o, -2);
	wire_put_str(o, (struct wire_str){ "abc", 3 });
	wire_put_blob(o, (struct wire_str){ "de", 2 });
	wire_put_raw(o, "fg", 2);
}

static const uint8_t one_of_each[] = {
	0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04,
	0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08,
	0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	3, 0, 'a', 'b', 'c', 2, 0, 0, 0, 'd', 'e', 'f', 'g',
};

static void fields_are_little_endian_without_padding(void **state)
{
	uint8_t b[64];
	struct wire_out o;

	(void)state;
	wire_out_init(&o, b, sizeof(b));
	put_one_of_each(&o);
	assert_false(o.overflow);
	assert_int_equal(o.len, sizeof(one_of_each));
	assert_memory_equal(b, one_of_each, sizeof(one_of_each));
}

static void a_buffer_too_small_is_never_overrun(void **state)
{
	(void)state;
	for (size_t cap = 0; cap < sizeof(one_of_each); cap++) {
		uint8_t b[sizeof(one_of_each) + 1];
		struct wire_out o;

		memset(b, 0xee, sizeof(b));
		wire_out_init(&o, b, cap);
		put_one_of_each(&o);
		assert_true(o.overflow);
		assert_true(o.len <= cap);
		for (size_t i = cap; i < sizeof(b); i++)
			assert_int_equal(b[i], 0xee);
	}
}

static void after_an_overflow_nothing_more_is_written(void **state)
{
	uint8_t b[4] = { 9, 9, 9, 9 };
	struct wire_out o;

	(void)state;
	wire_out_init(&o, b, sizeof(b));
	wire_put_u64(&o, 0);
	wire_put_u8(&o, 1);
	assert_true(o.overflow);
	assert_int_equal(o.len, 0);
	assert_int_equal(b[0], 9);
}

static void a_string_longer_than_its_length_field_overflows(void **state)
{
	static char text[65536];
	static uint8_t b[70000];
	struct wire_out o;

	(void)state;
	wire_out_init(&o, b, sizeof(b));
	wire_put_str(&o, (struct wire_str){ text, 65535 });
	assert_false(o.overflow);
	assert_int_equal(o.len, 65537);
	wire_out_init(&o, b, sizeof(b));
	wire_put_str(&o, (struct wire_str){ text, 65536 });
	assert_true(o.overflow);
	assert_int_equal(o.len, 0);
}

static void an_empty_string_needs_no_pointer(void **state)
{
	uint8_t b[6];
	struct wire_out o;

	(void)state;
	wire_out_init(&o, b, sizeof(b));
	wire_put_str(&o, (struct wire_str){ NULL, 0 });
	wire_put_blob(&o, (struct wire_str){ NULL, 0 });
	assert_false(o.overflow);
	assert_int_equal(o.len, 6);
}

/* ---- input cursor ---- */

static void fields_are_read_back(void **state)
{
	struct wire_in i;
	struct wire_str s;

	(void)state;
	wire_in_init(&i, one_of_each, sizeof(one_of_each));
	assert_int_equal(wire_get_u8(&i), 0x01);
	assert_int_equal(wire_get_u16(&i), 0x0203);
	assert_int_equal(wire_get_u32(&i), 0x04050607);
	assert_true(wire_get_u64(&i) == 0x08090a0b0c0d0e0f);
	assert_true(wire_get_i64(&i) == -2);
	s = wire_get_str(&i);
	assert_int_equal(s.len, 3);
	assert_memory_equal(s.p, "abc", 3);
	s = wire_get_blob(&i);
	assert_int_equal(s.len, 2);
	assert_memory_equal(s.p, "de", 2);
	assert_int_equal(wire_in_end(&i), -EBADMSG); /* "fg" is left */
	wire_get_u16(&i);
	assert_int_equal(wire_in_end(&i), 0);
}

static void get_one_of_each(struct wire_in *i)
{
	wire_get_u8(i);
	wire_get_u16(i);
	wire_get_u32(i);
	wire_get_u64(i);
	wire_get_i64(i);
	wire_get_str(i);
	wire_get_blob(i);
	wire_get_u16(i);
}

static void every_truncation_is_found(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof(one_of_each); len++) {
		uint8_t *copy = malloc(len + 1); /* asan sees an overread */
		struct wire_in i;

		memcpy(copy, one_of_each, len);
		copy = realloc(copy, len ? len : 1);
		wire_in_init(&i, copy, len);
		get_one_of_each(&i);
		assert_true(i.bad);
		assert_int_equal(wire_in_end(&i), -EBADMSG);
		free(copy);
	}
}

static void after_an_overrun_all_is_zero(void **state)
{
	static const uint8_t b[] = { 1, 2, 3, 4, 5 };
	struct wire_in i;
	struct wire_str s;

	(void)state;
	wire_in_init(&i, b, sizeof(b));
	assert_true(wire_get_u64(&i) == 0);
	assert_int_equal(wire_get_u8(&i), 0);
	assert_int_equal(wire_get_u32(&i), 0);
	s = wire_get_str(&i);
	assert_null(s.p);
	assert_int_equal(s.len, 0);
	assert_int_equal(wire_in_end(&i), -EBADMSG);
}

static void a_string_length_beyond_the_end_is_found(void **state)
{
	static const uint8_t b[] = { 0xff, 0xff, 0xff, 0xff, 1, 2, 3 };
	struct wire_in i;

	(void)state;
	wire_in_init(&i, b, sizeof(b));
	assert_int_equal(wire_get_blob(&i).len, 0);
	assert_true(i.bad);
	wire_in_init(&i, b, sizeof(b));
	assert_int_equal(wire_get_str(&i).len, 0);
	assert_true(i.bad);
}

static void nothing_at_all_is_a_whole_empty_body(void **state)
{
	struct wire_in i;

	(void)state;
	wire_in_init(&i, NULL, 0);
	assert_int_equal(wire_in_end(&i), 0);
	wire_get_u8(&i);
	assert_int_equal(wire_in_end(&i), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_has_the_documented_bytes),
		cmocka_unit_test(a_header_comes_back_as_it_was),
		cmocka_unit_test(every_single_flipped_bit_is_refused),
		cmocka_unit_test(every_two_flipped_bits_are_refused),
		cmocka_unit_test(a_wrong_magic_is_refused_even_when_summed),
		cmocka_unit_test(another_version_is_told_apart),
		cmocka_unit_test(
			another_versions_flags_and_lengths_are_not_judged),
		cmocka_unit_test(every_unknown_flag_is_refused),
		cmocka_unit_test(lengths_are_bounded),
		cmocka_unit_test(every_flipped_bit_of_a_body_is_refused),
		cmocka_unit_test(an_empty_body_has_sum_zero),
		cmocka_unit_test(fields_are_little_endian_without_padding),
		cmocka_unit_test(a_buffer_too_small_is_never_overrun),
		cmocka_unit_test(after_an_overflow_nothing_more_is_written),
		cmocka_unit_test(
			a_string_longer_than_its_length_field_overflows),
		cmocka_unit_test(an_empty_string_needs_no_pointer),
		cmocka_unit_test(fields_are_read_back),
		cmocka_unit_test(every_truncation_is_found),
		cmocka_unit_test(after_an_overrun_all_is_zero),
		cmocka_unit_test(a_string_length_beyond_the_end_is_found),
		cmocka_unit_test(nothing_at_all_is_a_whole_empty_body),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
