/* Facts that hold for every message: what is encoded comes back, sizes are
 * right, damage is refused, other minors' are understood, and the bytes are
 * those of the golden file.
 *
 * The golden file has a line a message, "name hexbytes". HAIL_GOLDEN=update
 * writes it anew: only for messages that no release has sent.
 */
#include "common/wire_fields.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/wire_list.h"

#define GOLDEN_PATH "tests/golden/wire-v1.hex"
#define BYTES_MAX 1024

/* Distinct values for the fields of a message, in order. */
struct sampler {
	unsigned count;
	char text[64][8];
};

static uint64_t sample_u64(struct sampler *s)
{
	uint64_t n = ++s->count;

	return n * 0x0101010101010101 + 0x8070605040302010;
}

static struct wire_str sample_str(struct sampler *s)
{
	unsigned n = s->count++;
	int len = snprintf(s->text[n], sizeof(s->text[n]), "s%u", n);

	return (struct wire_str){ s->text[n], (uint32_t)len };
}

#define SAMPLE_u8(s) ((uint8_t)sample_u64(s))
#define SAMPLE_u16(s) ((uint16_t)sample_u64(s))
#define SAMPLE_u32(s) ((uint32_t)sample_u64(s))
#define SAMPLE_u64(s) sample_u64(s)
#define SAMPLE_i64(s) ((int64_t)sample_u64(s))
#define SAMPLE_str(s) sample_str(s)
#define SAMPLE_blob(s) sample_str(s)
#define SAMPLE_SINCE(minor, t) SAMPLE_##t
#define SAMPLE_FIELD(t, f) m.f = SAMPLE_##t(&s);

#define SAME_INT(a, b) assert_true((a) == (b))
#define SAME_STR(a, b)                              \
	do {                                        \
		assert_int_equal((a).len, (b).len); \
		assert_memory_equal((a).p, (b).p, (a).len); \
	} while (0)
#define SAME_u8(a, b) SAME_INT(a, b)
#define SAME_u16(a, b) SAME_INT(a, b)
#define SAME_u32(a, b) SAME_INT(a, b)
#define SAME_u64(a, b) SAME_INT(a, b)
#define SAME_i64(a, b) SAME_INT(a, b)
#define SAME_str(a, b) SAME_STR(a, b)
#define SAME_blob(a, b) SAME_STR(a, b)
#define SAME_SINCE(minor, t) SAME_##t
#define SAME_FIELD(t, f) SAME_##t(m.f, back.f);

/* What the tests need to know of one message. */
struct message {
	const char *name;
	/* Encodes a sample into at most @cap bytes; returns its true size. */
	size_t (*encode)(struct wire_out *o, uint8_t *buf, size_t cap);
	int (*parse)(const void *p, size_t len);
	void (*round_trip)(void);
	size_t (*known)(const void *p, size_t len, unsigned minor);
	/* Of @p, the sample as @minor sends it: is the rest zero? */
	void (*rest_is_zero)(const void *p, size_t len, unsigned minor);
};

#define ZERO_u8(v) assert_true((v) == 0)
#define ZERO_u16(v) ZERO_u8(v)
#define ZERO_u32(v) ZERO_u8(v)
#define ZERO_u64(v) ZERO_u8(v)
#define ZERO_i64(v) ZERO_u8(v)
#define ZERO_str(v) ZERO_u8((v).len)
#define ZERO_blob(v) ZERO_u8((v).len)
#define ZERO_SINCE(minor, t) ZERO_##t
#define ZERO_FIELD(t, f)                     \
	if (WIRE_MINOR_##t > (int)minor)     \
		ZERO_##t(back.f);            \
	else                                 \
		SAME_FIELD(t, f)

#define DEFINE_MESSAGE(name, FIELDS)                                       \
	static size_t encode_##name(struct wire_out *o, uint8_t *buf,      \
				    size_t cap)                            \
	{                                                                  \
		struct sampler s = { 0 };                                  \
		struct name m;                                             \
                                                                           \
		FIELDS(SAMPLE_FIELD)                                       \
		wire_out_init(o, buf, cap);                                \
		name##_encode(o, &m);                                      \
		return name##_size(&m);                                    \
	}                                                                  \
	static int parse_##name(const void *p, size_t len)                 \
	{                                                                  \
		struct name m;                                             \
                                                                           \
		return name##_parse(p, len, &m);                           \
	}                                                                  \
	static void round_trip_##name(void)                                \
	{                                                                  \
		struct sampler s = { 0 };                                  \
		uint8_t buf[BYTES_MAX];                                    \
		struct name m, back;                                       \
		struct wire_out o;                                         \
                                                                           \
		FIELDS(SAMPLE_FIELD)                                       \
		wire_out_init(&o, buf, sizeof(buf));                       \
		name##_encode(&o, &m);                                     \
		assert_int_equal(name##_parse(buf, o.len, &back), 0);      \
		FIELDS(SAME_FIELD)                                         \
	}                                                                  \
	static void rest_is_zero_##name(const void *p, size_t len,         \
					unsigned minor)                    \
	{                                                                  \
		struct sampler s = { 0 };                                  \
		struct name m, back;                                       \
                                                                           \
		FIELDS(SAMPLE_FIELD)                                       \
		(void)minor;                                               \
		assert_int_equal(name##_parse(p, len, &back), 0);          \
		FIELDS(ZERO_FIELD)                                         \
	}
WIRE_LIST_ALL(DEFINE_MESSAGE)

#define MESSAGE_ENTRY(name, FIELDS) \
	{ #name,        encode_##name, parse_##name, round_trip_##name, \
	  name##_known, rest_is_zero_##name },
static const struct message messages[] = { WIRE_LIST_ALL(MESSAGE_ENTRY) };

static void every_message_comes_back_as_it_was(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(messages); i++)
		messages[i].round_trip();
}

static void every_message_has_the_size_it_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(messages); i++) {
		uint8_t buf[BYTES_MAX];
		struct wire_out o;
		size_t size = messages[i].encode(&o, buf, sizeof(buf));

		assert_false(o.overflow);
		assert_int_equal(o.len, size);
	}
}

static void a_buffer_one_byte_short_overflows(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(messages); i++) {
		uint8_t buf[BYTES_MAX];
		struct wire_out o;
		size_t size = messages[i].encode(&o, buf, sizeof(buf));

		messages[i].encode(&o, buf, size - 1);
		assert_true(o.overflow);
	}
}

/* Is @len where what some minor sends ends? */
static bool is_end(const struct message *m, const uint8_t *buf, size_t full,
		   size_t len)
{
	for (unsigned minor = 0; minor <= WIRE_MINOR; minor++)
		if (m->known(buf, full, minor) == len)
			return true;
	/* Before there were minors its number was appended. */
	return strcmp(m->name, "meta_create") == 0 &&
	       len == m->known(buf, full, 0) - sizeof(uint64_t);
}

static void every_truncated_message_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(messages); i++) {
		uint8_t buf[BYTES_MAX];
		struct wire_out o;

		messages[i].encode(&o, buf, sizeof(buf));
		for (size_t len = 0; len < o.len; len++)
			assert_int_equal(messages[i].parse(buf, len),
					 is_end(&messages[i], buf, o.len,
						len) ? 0 : -EBADMSG);
	}
}

static void what_an_older_minor_does_not_send_is_zero(void **state)
{
	unsigned shorter = 0;

	(void)state;
	for (size_t i = 0; i < array_count(messages); i++) {
		const struct message *m = &messages[i];
		uint8_t buf[BYTES_MAX];
		struct wire_out o;

		m->encode(&o, buf, sizeof(buf));
		for (unsigned minor = 0; minor <= WIRE_MINOR; minor++) {
			size_t len = m->known(buf, o.len, minor);

			shorter += len < o.len;
			m->rest_is_zero(buf, len, minor);
		}
	}
	assert_true(shorter > 0); /* or nothing was tried: HELLO has one */
}

static void what_a_later_minor_appends_is_skipped(void **state)
{
	(void)state;
	for (size_t i = 0; i < array_count(messages); i++) {
		const struct message *m = &messages[i];
		uint8_t buf[BYTES_MAX];
		struct wire_out o;
		size_t len;

		m->encode(&o, buf, sizeof(buf));
		len = o.len;
		for (unsigned more = 1; more <= 9; more++) {
			buf[len + more - 1] = 0xff;
			assert_int_equal(m->parse(buf, len + more), 0);
			m->rest_is_zero(buf, len + more, WIRE_MINOR);
			assert_int_equal(m->known(buf, len + more,
						  WIRE_MINOR), len);
		}
	}
}

/* ---- golden bytes ---- */

static void hex_line(const struct message *m, char *line, size_t size)
{
	uint8_t buf[BYTES_MAX];
	struct wire_out o;
	size_t len = (size_t)snprintf(line, size, "%s ", m->name);

	m->encode(&o, buf, sizeof(buf));
	for (size_t i = 0; i < o.len; i++)
		len += (size_t)snprintf(line + len, size - len, "%02x", buf[i]);
	snprintf(line + len, size - len, "\n");
}

static void write_golden(void)
{
	FILE *f = fopen(GOLDEN_PATH, "we");

	assert_non_null(f);
	for (size_t i = 0; i < array_count(messages); i++) {
		char line[2 * BYTES_MAX + 64];

		hex_line(&messages[i], line, sizeof(line));
		fputs(line, f);
	}
	assert_int_equal(fclose(f), 0);
}

static void every_message_has_its_golden_bytes(void **state)
{
	const char *mode = getenv("HAIL_GOLDEN");
	FILE *f;

	(void)state;
	if (mode && strcmp(mode, "update") == 0)
		write_golden();
	f = fopen(GOLDEN_PATH, "re");
	assert_non_null(f); /* tests run in the top folder */
	for (size_t i = 0; i < array_count(messages); i++) {
		char line[2 * BYTES_MAX + 64], golden[sizeof(line)];

		hex_line(&messages[i], line, sizeof(line));
		assert_non_null(fgets(golden, sizeof(golden), f));
		assert_string_equal(golden, line);
	}
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_back_as_it_was),
		cmocka_unit_test(every_message_has_the_size_it_says),
		cmocka_unit_test(a_buffer_one_byte_short_overflows),
		cmocka_unit_test(every_truncated_message_is_refused),
		cmocka_unit_test(what_an_older_minor_does_not_send_is_zero),
		cmocka_unit_test(what_a_later_minor_appends_is_skipped),
		cmocka_unit_test(every_message_has_its_golden_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
