/* The frame reader behind a handshake: every way of cutting the stream gives
 * the same frames, whatever protects them, and nothing that is changed, left
 * out or repeated passes.
 */
#include "common/crc32c.h"
#include "common/frame_in.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GUARDS 3
static const uint32_t guards[GUARDS] = { GUARD_PLAIN, GUARD_MAC, GUARD_CRYPT };

/* Who connects, and sends. */
static struct {
	struct greet *greet;
	struct seal *in, *out;
	uint8_t *p; /* what it has sent */
	size_t len;
	uint64_t id; /* of the last frame */
} them;
static struct frame_in in;
static struct keyring ring;
static uint64_t got; /* frames */

static void put(const void *p, size_t len)
{
	if (len == 0)
		return;
	them.p = realloc(them.p, them.len + len);
	assert_non_null(them.p);
	memcpy(them.p + them.len, p, len);
	them.len += len;
}

static void put_sealed(uint8_t *p, size_t len)
{
	struct iovec iov = { p, len };
	uint8_t tag[SEAL_TAG_SIZE];

	if (them.out)
		seal_put(them.out, &iov, 1,
			 seal_kind(them.out) == SEAL_CRYPT ? p : NULL, tag);
	put(p, len);
	if (them.out)
		put(tag, sizeof(tag));
}

static void put_frame(uint32_t body_len, uint32_t data_len)
{
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = WIRE_OP_PING,
				 .request_id = ++them.id,
				 .body_len = body_len,
				 .data_len = data_len };
	size_t len = (size_t)body_len + data_len;
	uint8_t header[WIRE_HEADER_SIZE], *p = malloc(len + 1);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(them.id * 31 + i * 7);
	h.body_crc = crc32c(0, p, body_len);
	wire_header_encode(&h, header);
	put_sealed(header, sizeof(header));
	if (len > 0)
		put_sealed(p, len);
	free(p);
}

static void frame_check(const struct frame *f)
{
	assert_int_equal(f->h.request_id, got);
	for (size_t i = 0; i < f->h.body_len; i++)
		assert_int_equal(f->body[i], (uint8_t)(got * 31 + i * 7));
	for (size_t i = 0; i < f->h.data_len; i++)
		assert_int_equal(f->data[i],
				 (uint8_t)(got * 31 +
					   (f->h.body_len + i) * 7));
}

/* Returns what frame_in_next() said in the end. */
static int take_all(void)
{
	struct frame *f;
	int rv;

	while ((rv = frame_in_next(&in, &f)) == 1) {
		got++;
		frame_check(f);
		frame_free(f);
	}
	return rv;
}

/* Feeds them.p[*at, @to) in pieces. Returns 0 or the reader's error. */
static int feed(size_t *at, size_t to, size_t piece)
{
	int rv = 0;

	while (*at < to && rv == 0) {
		size_t end = u64_min(*at + piece, to);

		while (*at < end && rv == 0) {
			size_t n = frame_in_feed(&in, them.p + *at, end - *at);

			assert_true(n > 0);
			*at += n;
			rv = take_all();
		}
	}
	return rv;
}

/* What we answer reaches them. Returns what greet_feed() says. */
static int answer(void)
{
	const void *p;
	size_t used, len = frame_in_out(&in, &p);
	uint8_t copy[GREET_IN_MAX];
	int rv;

	memcpy(copy, p, len);
	rv = greet_feed(them.greet, copy, len, &used);
	assert_true(rv < 0 || used == len);
	len = greet_out(them.greet, &p);
	put(p, len);
	return rv;
}

/* The handshake, in pieces; they have its end to send yet: from *at on. */
static void begin(uint32_t guard, size_t piece, size_t *at)
{
	struct greet *g;
	const void *p;
	size_t used, len;

	memset(&them, 0, sizeof(them));
	got = 0;
	*at = 0;
	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	assert_int_equal(greet_accept(&ring, guard, &g), 0);
	frame_in_greet(&in, g);
	assert_int_equal(greet_connect(&ring.keys[0], guard, &them.greet), 0);
	assert_int_equal(greet_feed(them.greet, NULL, 0, &used), 0);
	len = greet_out(them.greet, &p);
	put(p, len);
	assert_int_equal(feed(at, them.len, piece), 0);
	assert_false(frame_in_greeted(&in));
	assert_int_equal(answer(), 1);
	assert_int_equal(greet_seals(them.greet, &them.in, &them.out), 0);
}

static void end(void)
{
	frame_in_fini(&in);
	greet_free(them.greet);
	seal_free(them.in);
	seal_free(them.out);
	free(them.p);
}

static void any_cut_gives_the_same_frames(void **state)
{
	static const uint32_t sizes[][2] = {
		{ 0, 0 }, { 1, 0 }, { 100, 0 }, { 0, 128 }, { 60, 4096 },
		{ 60, 32767 }, { 300, 32768 }, { 1100, 1 << 20 }, { 5, 5 },
		{ 70000, 100 }, { 1100, 65537 }, { 1100, 65536 }, { 0, 40000 },
		{ 10, 10 }, { 0, 0 },
	};
	static const size_t pieces[] = { 1, 7, 63, 64, 65, 80, 1000, 4096,
					 65536, 1 << 20, 16 << 20 };
	size_t at;

	(void)state;
	for (size_t i = 0; i < GUARDS * array_count(pieces); i++) {
		size_t piece = pieces[i / GUARDS];

		begin(guards[i % GUARDS], piece, &at);
		for (size_t j = 0; j < array_count(sizes); j++)
			put_frame(sizes[j][0], sizes[j][1]);
		assert_int_equal(feed(&at, them.len, piece), 0);
		assert_int_equal(got, array_count(sizes));
		assert_false(frame_in_partial(&in));
		end();
	}
}

/* Of header, tag, body, data and tag, in the second of three frames. */
static void every_flipped_bit_is_found(void **state)
{
	size_t first, size, at;

	(void)state;
	for (size_t guard = 1; guard < GUARDS; guard++) {
		size = WIRE_HEADER_SIZE + 30 + 20 + 2 * SEAL_TAG_SIZE;
		for (size_t bit = 0; bit < 8 * size; bit++) {
			begin(guards[guard], SIZE_MAX / 2, &at);
			put_frame(1, 2);
			first = them.len;
			put_frame(30, 20);
			assert_int_equal(them.len - first, size);
			put_frame(0, 0);
			them.p[first + bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(feed(&at, them.len, SIZE_MAX / 2),
					 -EBADMSG);
			assert_int_equal(got, 1);
			end();
		}
	}
}

/* Somebody on the path leaves one of three out, repeats it, or swaps two. */
static void frames_have_their_place(void **state)
{
	enum { LEFT_OUT, REPEATED, SWAPPED, WAYS };
	size_t at, starts[4], len;
	uint8_t first[512];

	(void)state;
	for (unsigned i = 0; i < WAYS * (GUARDS - 1); i++) {
		begin(guards[1 + i / WAYS], SIZE_MAX / 2, &at);
		for (unsigned j = 0; j < 3; j++) {
			starts[j] = them.len;
			put_frame(40, 40);
		}
		starts[3] = them.len;
		len = starts[1] - starts[0];
		if (i % WAYS == LEFT_OUT) {
			memmove(them.p + starts[1], them.p + starts[2], len);
			them.len -= len;
		} else if (i % WAYS == REPEATED) {
			memcpy(them.p + starts[1], them.p + starts[0], len);
		} else {
			assert_true(len <= sizeof(first));
			memcpy(first, them.p + starts[1], len);
			put(first, len);
			memmove(them.p + starts[1], them.p + starts[2],
				2 * len);
			them.len -= len;
		}
		assert_int_equal(feed(&at, them.len, SIZE_MAX / 2), -EBADMSG);
		assert_int_equal(got, 1);
		end();
	}
}

/* A frame in the clear where a sealed one belongs. */
static void plain_frames_are_refused(void **state)
{
	size_t at;

	(void)state;
	for (size_t guard = 1; guard < GUARDS; guard++) {
		begin(guards[guard], SIZE_MAX / 2, &at);
		seal_free(them.out);
		them.out = NULL;
		put_frame(100, 100);
		assert_int_equal(feed(&at, them.len, SIZE_MAX / 2), -EBADMSG);
		assert_int_equal(got, 0);
		end();
	}
}

static void before_the_handshake_nothing_is_taken(void **state)
{
	struct greet *g;
	const void *p;
	size_t at = 0;

	(void)state;
	memset(&them, 0, sizeof(them));
	got = 0;
	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	assert_int_equal(greet_accept(&ring, GUARD_PLAIN, &g), 0);
	frame_in_greet(&in, g);
	put_frame(10, 10);
	assert_int_equal(feed(&at, them.len, SIZE_MAX / 2), -EBADMSG);
	assert_int_equal(got, 0);
	/* A refusal, or nothing. */
	assert_true(frame_in_out(&in, &p) <= 7);
	assert_int_equal(take_all(), -EBADMSG);
	end();
}

static int set_up(void **state)
{
	(void)state;
	return keyring_new(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cut_gives_the_same_frames),
		cmocka_unit_test(every_flipped_bit_is_found),
		cmocka_unit_test(frames_have_their_place),
		cmocka_unit_test(plain_frames_are_refused),
		cmocka_unit_test(before_the_handshake_nothing_is_taken),
	};

	return cmocka_run_group_tests_name("frame_sealed", tests, set_up, NULL);
}
