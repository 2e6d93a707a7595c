/* Sealed frames: what was sealed is what comes out, anything else is found, and
 * the format is pinned by what another implementation would make of it.
 */
#include "common/seal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct seal_secret secret = {
	.key = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
		 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
		 32 },
	.nonce = { 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44 },
};

struct pair {
	struct seal *put, *get;
};

static void pair_init(struct pair *p, enum seal_kind kind)
{
	assert_int_equal(seal_new(kind, &secret, &p->put), 0);
	assert_int_equal(seal_new(kind, &secret, &p->get), 0);
}

static void pair_fini(struct pair *p)
{
	seal_free(p->put);
	seal_free(p->get);
}

static void fill(uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + seed);
}

/* Seals @len bytes at @p, in place when they are encrypted. */
static void put(struct pair *x, uint8_t *p, size_t len, uint8_t *tag)
{
	struct iovec iov = { p, len };

	seal_put(x->put, &iov, 1, seal_kind(x->put) == SEAL_CRYPT ? p : NULL,
		 tag);
}

static int get(struct pair *x, uint8_t *p, size_t len, const uint8_t *tag)
{
	struct iovec iov = { p, len };

	return seal_get(x->get, &iov, 1, tag);
}

static void each_kind(void (*fn)(enum seal_kind))
{
	fn(SEAL_MAC);
	fn(SEAL_CRYPT);
}

static void round_trips(enum seal_kind kind)
{
	static const size_t lens[] = { 64, 0, 1, 15, 16, 17, 4096, 70001 };
	static uint8_t was[70001], p[70001];
	uint8_t tag[SEAL_TAG_SIZE];
	struct pair x;

	pair_init(&x, kind);
	for (unsigned i = 0; i < array_count(lens); i++) {
		fill(was, lens[i], i);
		memcpy(p, was, lens[i]);
		put(&x, p, lens[i], tag);
		if (lens[i] >= 16 && kind == SEAL_CRYPT)
			assert_memory_not_equal(p, was, lens[i]);
		else if (kind == SEAL_MAC)
			assert_memory_equal(p, was, lens[i]);
		assert_int_equal(get(&x, p, lens[i], tag), 0);
		assert_memory_equal(p, was, lens[i]);
	}
	pair_fini(&x);
}

static void what_goes_in_comes_out(void **state)
{
	(void)state;
	each_kind(round_trips);
}

static void in_pieces(enum seal_kind kind)
{
	uint8_t was[100], p[100], sealed[100], tag[SEAL_TAG_SIZE];
	struct iovec from[] = { { was, 30 }, { was + 30, 0 },
				{ was + 30, 70 } };
	struct iovec to[] = { { p, 1 }, { p + 1, 98 }, { p + 99, 1 } };
	struct pair x;

	pair_init(&x, kind);
	fill(was, sizeof(was), 9);
	seal_put(x.put, from, 3, kind == SEAL_CRYPT ? sealed : NULL, tag);
	memcpy(p, kind == SEAL_CRYPT ? sealed : was, sizeof(p));
	assert_int_equal(seal_get(x.get, to, 3, tag), 0);
	assert_memory_equal(p, was, sizeof(p));
	pair_fini(&x);
}

static void pieces_are_one(void **state)
{
	(void)state;
	each_kind(in_pieces);
}

/* Each bit of what was sealed, and of the tag. */
static void changed(enum seal_kind kind)
{
	uint8_t p[20], tag[SEAL_TAG_SIZE];

	for (unsigned bit = 0; bit < 8 * (sizeof(p) + sizeof(tag)); bit++) {
		struct pair x;

		pair_init(&x, kind);
		fill(p, sizeof(p), 3);
		put(&x, p, sizeof(p), tag);
		if (bit / 8 < sizeof(p))
			p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		else
			tag[bit / 8 - sizeof(p)] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(get(&x, p, sizeof(p), tag), -EBADMSG);
		pair_fini(&x);
	}
}

static void a_changed_bit_is_found(void **state)
{
	(void)state;
	each_kind(changed);
}

static void misplaced(enum seal_kind kind)
{
	uint8_t a[32], b[32], tag_a[SEAL_TAG_SIZE], tag_b[SEAL_TAG_SIZE];
	struct pair x;

	/* The second before the first. */
	pair_init(&x, kind);
	fill(a, sizeof(a), 1);
	fill(b, sizeof(b), 1);
	put(&x, a, sizeof(a), tag_a);
	put(&x, b, sizeof(b), tag_b);
	assert_memory_not_equal(tag_a, tag_b, sizeof(tag_a));
	assert_int_equal(get(&x, b, sizeof(b), tag_b), -EBADMSG);
	/* It stays so: nobody finds his place again. */
	assert_int_equal(get(&x, a, sizeof(a), tag_a), -EBADMSG);
	pair_fini(&x);
	/* The first twice. */
	pair_init(&x, kind);
	fill(a, sizeof(a), 1);
	put(&x, a, sizeof(a), tag_a);
	memcpy(b, a, sizeof(a));
	assert_int_equal(get(&x, a, sizeof(a), tag_a), 0);
	assert_int_equal(get(&x, b, sizeof(b), tag_a), -EBADMSG);
	pair_fini(&x);
	/* Longer, shorter. */
	pair_init(&x, kind);
	fill(a, sizeof(a), 1);
	put(&x, a, sizeof(a), tag_a);
	assert_int_equal(get(&x, a, sizeof(a) - 1, tag_a), -EBADMSG);
	pair_fini(&x);
}

static void what_is_not_next_is_refused(void **state)
{
	(void)state;
	each_kind(misplaced);
}

static void kinds_differ(void **state)
{
	uint8_t p[4] = { 0 }, tag[SEAL_TAG_SIZE];
	struct pair mac, crypt;

	(void)state;
	pair_init(&mac, SEAL_MAC);
	pair_init(&crypt, SEAL_CRYPT);
	put(&mac, p, sizeof(p), tag);
	assert_int_equal(get(&crypt, p, sizeof(p), tag), -EBADMSG);
	pair_fini(&mac);
	pair_fini(&crypt);
}

static void many(enum seal_kind kind)
{
	uint8_t p[16] = { 0 }, old[16], tag[SEAL_TAG_SIZE];
	struct pair x, late;
	uint64_t count = (UINT64_C(2) << SEAL_KEY_LOG2) + 3;

	pair_init(&x, kind);
	for (uint64_t i = 0; i < count; i++) {
		put(&x, p, sizeof(p), tag);
		memcpy(old, p, sizeof(p));
		assert_int_equal(get(&x, p, sizeof(p), tag), 0);
		/* Not with the first key any more. */
		if (i != UINT64_C(1) << SEAL_KEY_LOG2)
			continue;
		pair_init(&late, kind);
		assert_int_equal(get(&late, old, sizeof(old), tag), -EBADMSG);
		pair_fini(&late);
	}
	pair_fini(&x);
}

static void keys_change_in_step(void **state)
{
	(void)state;
	each_kind(many);
}

/* Seals 64 known bytes; compares the first 16 of what became of them (NULL: do
 * not) and the tag with hexadecimal digits. */
static void pinned(struct pair *x, const char *bytes, const char *tag_digits)
{
	uint8_t p[64], tag[SEAL_TAG_SIZE];
	char digits[33];

	fill(p, sizeof(p), 0);
	put(x, p, sizeof(p), tag);
	for (unsigned i = 0; i < 16; i++)
		snprintf(digits + 2 * i, 3, "%02x", p[i]);
	if (bytes)
		assert_string_equal(digits, bytes);
	for (unsigned i = 0; i < 16; i++)
		snprintf(digits + 2 * i, 3, "%02x", tag[i]);
	assert_string_equal(digits, tag_digits);
}

/* As computed with another implementation (Python's cryptography, hmac). */
static void the_format_is_pinned(void **state)
{
	uint8_t none[1], tag[SEAL_TAG_SIZE];
	struct pair x;

	(void)state;
	pair_init(&x, SEAL_CRYPT);
	pinned(&x, "919a304948fb0477d5ffdceb9bfff061",
	       "1a2761d740f7e5674140ebb5d8ba7e5c");
	pinned(&x, "5497c01ff2c403a677f5da2ebf5734c4",
	       "c8db4b3932cab233ae203a0447e3caf2");
	pair_fini(&x);
	pair_init(&x, SEAL_MAC);
	pinned(&x, NULL, "dc47dc524408f840188a8eda359560d0");
	pinned(&x, NULL, "a3cfd38200583d04af82d3e6dd3f0d37");
	/* The first of the next key. */
	for (unsigned i = 2; i < 1u << SEAL_KEY_LOG2; i++)
		put(&x, none, 0, tag);
	pinned(&x, NULL, "fa07cab24fc66b280a86de28f8af83d7");
	pair_fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_goes_in_comes_out),
		cmocka_unit_test(pieces_are_one),
		cmocka_unit_test(a_changed_bit_is_found),
		cmocka_unit_test(what_is_not_next_is_refused),
		cmocka_unit_test(kinds_differ),
		cmocka_unit_test(keys_change_in_step),
		cmocka_unit_test(the_format_is_pinned),
	};

	return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
