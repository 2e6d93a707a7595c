/* The journal's format (common/log_journal.h).
 *
 * Method: what was encoded is decoded; then each bit of it is turned, and each
 * field set to what it cannot be. The bytes of one are written down here: what
 * a mount of before left must be read.
 */
#include "common/log_journal.h"

#include "common/crc32c.h"
#include "common/wire.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CLUSTER 0x1122334455667788u
#define COUNT 3u
#define FRONT (LOG_JOURNAL_HEAD + COUNT * LOG_JOURNAL_SECTION)

static const struct log_journal_section sections[COUNT] = {
	{ .ino = 5, .epoch = 7, .seq = 1, .len = 40, .crc = 0xdeadbeef },
	{ .ino = 0xf1f2f3f4f5f6f7f8, .epoch = 1, .seq = 900, .len = UINT32_MAX,
	  .crc = 0 },
	{ .ino = 5, .epoch = 8, .seq = UINT64_MAX, .len = 1, .crc = 1 },
};

static struct log_journal_head head(void)
{
	struct log_journal_head h = {
		.cluster_id = CLUSTER, .round = 12, .count = COUNT,
	};

	for (uint32_t i = 0; i < COUNT; i++)
		h.bytes += sections[i].len;
	return h;
}

/* Of the whole front. */
static int decode(const uint8_t *p, struct log_journal_head *h,
		  struct log_journal_section *s)
{
	int err = log_journal_head_decode(p, CLUSTER, h);

	if (!err && h->count != COUNT)
		return -EBADMSG;
	return err ? err : log_journal_sections_decode(
				   h, p + LOG_JOURNAL_HEAD, s);
}

/* The checksums are right, whatever is in between. */
static void put32(uint8_t *p, uint32_t v)
{
	struct wire_out o;

	wire_out_init(&o, p, 4);
	wire_put_u32(&o, v);
}

static void resum(uint8_t *p)
{
	put32(p + LOG_JOURNAL_HEAD - 4, crc32c(0, p, LOG_JOURNAL_HEAD - 4));
}

static void a_front_decodes_to_what_was_encoded(void **state)
{
	struct log_journal_section s[COUNT];
	struct log_journal_head h = head(), d;
	uint8_t buf[FRONT + 1];

	(void)state;
	memset(s, 0xee, sizeof(s));
	memset(&d, 0xee, sizeof(d));
	memset(buf, 0xff, sizeof(buf));
	assert_int_equal(log_journal_front(COUNT), FRONT);
	log_journal_encode(&h, sections, buf);
	assert_int_equal(buf[FRONT], 0xff);
	assert_int_equal(decode(buf, &d, s), 0);
	assert_int_equal(d.cluster_id, CLUSTER);
	assert_int_equal(d.round, 12);
	assert_int_equal(d.count, COUNT);
	assert_int_equal(d.bytes, h.bytes);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(s[i].ino, sections[i].ino);
		assert_int_equal(s[i].epoch, sections[i].epoch);
		assert_int_equal(s[i].seq, sections[i].seq);
		assert_int_equal(s[i].len, sections[i].len);
		assert_int_equal(s[i].crc, sections[i].crc);
	}
}

static void each_damaged_bit_is_seen(void **state)
{
	struct log_journal_section s[COUNT];
	struct log_journal_head h = head(), d;
	uint8_t buf[FRONT];

	(void)state;
	for (uint32_t bit = 0; bit < FRONT * 8; bit++) {
		log_journal_encode(&h, sections, buf);
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(decode(buf, &d, s), -EBADMSG);
	}
}

static void what_is_no_journal_of_this_cluster_is_none(void **state)
{
	struct log_journal_head h = head(), d;
	uint8_t buf[FRONT];

	(void)state;
	log_journal_encode(&h, sections, buf);
	assert_int_equal(log_journal_head_decode(buf, CLUSTER + 1, &d),
			 -ENODATA);
	assert_int_equal(log_journal_head_decode(buf, 0, &d), -ENODATA);
	buf[0] ^= 1;
	resum(buf);
	assert_int_equal(log_journal_head_decode(buf, CLUSTER, &d), -ENODATA);
	/* What was never written. */
	memset(buf, 0, sizeof(buf));
	assert_true(log_journal_head_decode(buf, CLUSTER, &d) < 0);
	assert_true(log_journal_head_decode(buf, 0, &d) < 0);
}

static void a_head_that_cannot_be_is_damaged(void **state)
{
	struct log_journal_head bad[4], d;
	uint8_t buf[FRONT];

	(void)state;
	for (uint32_t i = 0; i < array_count(bad); i++)
		bad[i] = head();
	bad[0].round = 0;
	bad[1].bytes = LOG_JOURNAL_SLOT / 2;
	bad[2].bytes = UINT64_MAX;
	for (uint32_t i = 0; i < 3; i++) {
		log_journal_encode(&bad[i], sections, buf);
		assert_int_equal(log_journal_head_decode(buf, CLUSTER, &d),
				 -EBADMSG);
	}
	bad[3].bytes = LOG_JOURNAL_SLOT / 2 - 1;
	log_journal_encode(&bad[3], sections, buf);
	assert_int_equal(log_journal_head_decode(buf, CLUSTER, &d), 0);
	/* No section, as many as there can be, and one more. */
	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t counts[] = { 0, LOG_COUNT_MAX,
					    LOG_COUNT_MAX + 1 };

		put32(buf + 32, counts[i]);
		resum(buf);
		assert_int_equal(log_journal_head_decode(buf, CLUSTER, &d),
				 i == 1 ? 0 : -EBADMSG);
	}
}

static void sections_that_cannot_be_are_damaged(void **state)
{
	struct log_journal_section s[COUNT], d[COUNT];
	uint8_t buf[FRONT];

	(void)state;
	for (uint32_t i = 0; i < 6; i++) {
		struct log_journal_head h = head(), got;

		memcpy(s, sections, sizeof(s));
		s[2].len = 9;
		s[1].len = 50;
		h.bytes = 99;
		if (i == 1)
			s[1].seq = 0;
		else if (i == 2)
			s[2].len = 0, h.bytes = 90;
		else if (i == 3)
			s[0].len = (uint64_t)UINT32_MAX + 1,
			h.bytes = s[0].len + 59;
		else if (i == 4)
			h.bytes = 100;
		else if (i == 5)
			h.bytes = 98;
		log_journal_encode(&h, s, buf);
		assert_int_equal(log_journal_head_decode(buf, CLUSTER, &got),
				 0);
		assert_int_equal(log_journal_sections_decode(
					 &got, buf + LOG_JOURNAL_HEAD, d),
				 i == 0 ? 0 : -EBADMSG);
	}
}

static void the_bytes_are_what_they_were(void **state)
{
	static const uint8_t want[] = {
		0x48, 0x46, 0x53, 0x4a, 0x52, 0x4e, 0x31, 0x31, 0x88, 0x77,
		0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x02, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x0a, 0x5e, 0xe3, 0x77,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x05, 0x9a, 0x63, 0xec, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x28, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xef, 0xbe, 0xad, 0xde,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00,
	};
	const struct log_journal_head h = { .cluster_id = CLUSTER, .round = 2,
					    .count = 1, .bytes = 40 };
	uint8_t buf[LOG_JOURNAL_HEAD + LOG_JOURNAL_SECTION];

	(void)state;
	log_journal_encode(&h, sections, buf);
	assert_int_equal(sizeof(want), sizeof(buf));
	assert_memory_equal(buf, want, sizeof(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_front_decodes_to_what_was_encoded),
		cmocka_unit_test(each_damaged_bit_is_seen),
		cmocka_unit_test(what_is_no_journal_of_this_cluster_is_none),
		cmocka_unit_test(a_head_that_cannot_be_is_damaged),
		cmocka_unit_test(sections_that_cannot_be_are_damaged),
		cmocka_unit_test(the_bytes_are_what_they_were),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
