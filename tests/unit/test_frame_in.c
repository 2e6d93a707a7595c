/* The frame reader: every way of cutting a stream gives the same frames, and
 * nothing that is wrong passes. */
#include "common/crc32c.h"
#include "common/frame_in.h"
#include "tests/lib/fail_malloc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct stream {
	uint8_t *p;
	size_t len;
};

static void stream_add(struct stream *s, uint64_t id, uint32_t body_len,
		       uint32_t data_len)
{
	size_t size = WIRE_HEADER_SIZE + (size_t)body_len + data_len;
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = WIRE_OP_PING,
				 .request_id = id,
				 .body_len = body_len,
				 .data_len = data_len };
	uint8_t *p;

	s->p = realloc(s->p, s->len + size);
	assert_non_null(s->p);
	p = s->p + s->len;
	for (size_t i = 0; i < body_len + (size_t)data_len; i++)
		p[WIRE_HEADER_SIZE + i] = (uint8_t)(id * 31 + i * 7);
	h.body_crc = crc32c(0, p + WIRE_HEADER_SIZE, body_len);
	wire_header_encode(&h, p);
	s->len += size;
}

static void frame_check(const struct frame *f, uint64_t id)
{
	size_t body_len = f->h.body_len;

	assert_int_equal(f->h.request_id, id);
	for (size_t i = 0; i < body_len; i++)
		assert_int_equal(f->body[i], (uint8_t)(id * 31 + i * 7));
	for (size_t i = 0; i < f->h.data_len; i++)
		assert_int_equal(f->data[i],
				 (uint8_t)(id * 31 + (body_len + i) * 7));
	if (f->h.data_len >= FRAME_DATA_ALONE_MIN) {
		assert_true(frame_data_alone(f));
		assert_int_equal((uintptr_t)f->data % FRAME_DATA_ALIGN, 0);
	} else {
		assert_false(frame_data_alone(f));
	}
}

/* Takes out what is complete; the next id expected is *@id. */
static void take_all(struct frame_in *in, uint64_t *id)
{
	struct frame *f;
	int rv;

	while ((rv = frame_in_next(in, &f)) == 1) {
		frame_check(f, (*id)++);
		frame_free(f);
	}
	assert_int_equal(rv, 0);
}

/* Feeds @s in pieces of @piece bytes; expects ids 1..@count. */
static void run(const struct stream *s, size_t piece, uint64_t count)
{
	struct frame_in in;
	uint64_t id = 1;
	size_t at = 0, end;

	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	while (at < s->len) {
		end = at + piece < s->len ? at + piece : s->len;
		while (at < end) {
			size_t n = frame_in_feed(&in, s->p + at, end - at);

			assert_true(n > 0);
			at += n;
			take_all(&in, &id);
		}
	}
	assert_int_equal(id, count + 1);
	assert_false(frame_in_partial(&in));
	frame_in_fini(&in);
}

static void any_cut_gives_the_same_frames(void **state)
{
	static const uint32_t sizes[][2] = {
		{ 0, 0 }, { 1, 0 }, { 100, 0 }, { 0, 128 }, { 60, 4096 },
		{ 60, 32767 }, { 300, 32768 }, { 1100, 1 << 20 }, { 5, 5 },
		{ 70000, 100 }, { 1100, 65537 }, { 1100, 65536 }, { 0, 40000 },
		{ 10, 10 },
	};
	static const size_t pieces[] = { 1, 7, 63, 64, 65, 1000, 4096, 65536,
					 1 << 20, 16 << 20 };
	struct stream s = { NULL, 0 };

	(void)state;
	for (uint64_t i = 0; i < array_count(sizes); i++)
		stream_add(&s, i + 1, sizes[i][0], sizes[i][1]);
	for (size_t i = 0; i < array_count(pieces); i++)
		run(&s, pieces[i], array_count(sizes));
	free(s.p);
}

/* After the first large frame the data of the following ones is not staged. */
static void trains_of_large_frames_are_not_copied(void **state)
{
	struct stream s = { NULL, 0 };
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame_in in;
	uint64_t id = 1;
	size_t at = 0, staged = 0;

	(void)state;
	for (uint64_t i = 1; i <= 8; i++)
		stream_add(&s, i, 1100, 1 << 20);
	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	while (at < s.len) {
		int n = frame_in_space(&in, iov);
		size_t fed = 0;

		assert_true(n > 0);
		for (int i = 0; i < n && at < s.len; i++) {
			size_t part = u64_min(iov[i].iov_len, s.len - at);

			memcpy(iov[i].iov_base, s.p + at, part);
			at += part;
			fed += part;
			if (i == n - 1 && id > 1)
				staged += part;
		}
		frame_in_fed(&in, fed);
		take_all(&in, &id);
	}
	assert_int_equal(id, 9);
	assert_in_range(staged, 0, 8 * (WIRE_HEADER_SIZE + 1100));
	frame_in_fini(&in);
	free(s.p);
}

static void every_flipped_bit_of_header_and_body_is_found(void **state)
{
	struct stream s = { NULL, 0 };
	struct frame *f;
	int rv;

	(void)state;
	stream_add(&s, 1, 30, 0);
	for (size_t bit = 0; bit < s.len * 8; bit++) {
		struct frame_in in;

		assert_int_equal(frame_in_init(&in, 0, NULL), 0);
		s.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(frame_in_feed(&in, s.p, s.len), s.len);
		rv = frame_in_next(&in, &f);
		assert_int_equal(rv, -EBADMSG);
		/* and stays so */
		assert_int_equal(frame_in_next(&in, &f), -EBADMSG);
		assert_int_equal(frame_in_feed(&in, s.p, s.len), 0);
		s.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		frame_in_fini(&in);
	}
	free(s.p);
}

static void another_version_is_told_apart(void **state)
{
	struct wire_header h = { .version = 9, .opcode = WIRE_OP_HELLO,
				 .request_id = 77 };
	uint8_t p[WIRE_HEADER_SIZE];
	struct frame_in in;
	struct frame *f;

	(void)state;
	wire_header_encode(&h, p);
	assert_int_equal(frame_in_init(&in, 0, NULL), 0);
	assert_int_equal(frame_in_feed(&in, p, sizeof(p)), sizeof(p));
	assert_int_equal(frame_in_next(&in, &f), -EPROTONOSUPPORT);
	assert_int_equal(frame_in_header(&in)->version, 9);
	assert_int_equal(frame_in_header(&in)->request_id, 77);
	frame_in_fini(&in);
}

static void end_in_the_middle_shows(void **state)
{
	struct stream s = { NULL, 0 };
	struct frame *f;

	(void)state;
	stream_add(&s, 1, 10, 40000);
	for (size_t len = 0; len < s.len; len += 777) {
		struct frame_in in;

		assert_int_equal(frame_in_init(&in, 0, NULL), 0);
		for (size_t at = 0; at < len;) {
			at += frame_in_feed(&in, s.p + at, len - at);
			assert_int_equal(frame_in_next(&in, &f), 0);
		}
		assert_int_equal(frame_in_partial(&in), len > 0);
		frame_in_fini(&in);
	}
	free(s.p);
}

struct pool {
	struct frame_bufs bufs;
	int left;
	int out;
};

static void *pool_get(const struct frame_bufs *b, size_t len)
{
	struct pool *p = container_of((struct frame_bufs *)(uintptr_t)b,
				      struct pool, bufs);

	if (p->left == 0)
		return NULL;
	p->left--;
	p->out++;
	assert_int_equal(len % FRAME_DATA_ALIGN, 0);
	return aligned_alloc(FRAME_DATA_ALIGN, len);
}

static void pool_put(const struct frame_bufs *b, void *mem, size_t len)
{
	struct pool *p = container_of((struct frame_bufs *)(uintptr_t)b,
				      struct pool, bufs);

	(void)len;
	p->left++;
	p->out--;
	free(mem);
}

static void an_empty_pool_makes_the_stream_wait(void **state)
{
	struct pool pool = { .bufs = { pool_get, pool_put }, .left = 1 };
	struct stream s = { NULL, 0 };
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame_in in;
	struct frame *a, *b;
	size_t at = 0;
	void *mem;
	int rv = 0;

	(void)state;
	stream_add(&s, 1, 10, 40000);
	stream_add(&s, 2, 10, 40000);
	assert_int_equal(frame_in_init(&in, 32, &pool.bufs), 0);
	while (rv == 0) {
		at += frame_in_feed(&in, s.p + at, s.len - at);
		rv = frame_in_next(&in, &a);
	}
	assert_int_equal(rv, 1);
	frame_check(a, 1);
	while ((rv = frame_in_next(&in, &b)) == 0)
		at += frame_in_feed(&in, s.p + at, s.len - at);
	assert_int_equal(rv, -EAGAIN);
	assert_int_equal(frame_in_space(&in, iov), 0);
	mem = frame_data_take(a);
	frame_free(a);
	assert_int_equal(frame_in_next(&in, &b), -EAGAIN);
	frame_data_put(&pool.bufs, mem, 40000);
	while ((rv = frame_in_next(&in, &b)) == 0)
		at += frame_in_feed(&in, s.p + at, s.len - at);
	assert_int_equal(rv, 1);
	frame_check(b, 2);
	frame_free(b);
	frame_in_fini(&in);
	assert_int_equal(pool.out, 0);
	free(s.p);
}

static void extra_room_is_zeroed_and_aligned(void **state)
{
	static const uint8_t zero[33];
	struct stream s = { NULL, 0 };
	struct frame_in in;
	struct frame *f;

	(void)state;
	stream_add(&s, 1, 3, 3);
	assert_int_equal(frame_in_init(&in, sizeof(zero), NULL), 0);
	assert_int_equal(frame_in_feed(&in, s.p, s.len), s.len);
	assert_int_equal(frame_in_next(&in, &f), 1);
	assert_int_equal((uintptr_t)f->extra % _Alignof(max_align_t), 0);
	assert_memory_equal(f->extra, zero, sizeof(zero));
	memset(f->extra, 0xff, sizeof(zero));
	frame_check(f, 1);
	frame_free(f);
	frame_in_fini(&in);
	free(s.p);
}

/* With the @nth allocation failing: the same frames in the end. Returns false
 * when there are not so many allocations. */
static bool run_short_of_memory(const struct stream *s, unsigned nth,
				uint64_t count)
{
	struct frame_in in;
	struct frame *f;
	uint64_t id = 1;
	size_t at = 0;
	int rv;

	fail_malloc_at(nth);
	rv = frame_in_init(&in, 0, NULL);
	if (rv < 0) {
		assert_int_equal(rv, -ENOMEM);
		assert_true(fail_malloc_hit());
		return true;
	}
	while (id <= count) {
		rv = frame_in_next(&in, &f);
		if (rv == 1) {
			frame_check(f, id++);
			frame_free(f);
		} else if (rv == 0) {
			at += frame_in_feed(&in, s->p + at, s->len - at);
		} else {
			assert_int_equal(rv, -ENOMEM); /* and try again */
		}
	}
	frame_in_fini(&in);
	return fail_malloc_hit();
}

static void no_memory_is_told_and_can_be_waited_for(void **state)
{
	struct stream s = { NULL, 0 };

	(void)state;
	stream_add(&s, 1, 10, 100);
	stream_add(&s, 2, 1100, 100000);
	for (unsigned nth = 1; run_short_of_memory(&s, nth, 2); nth++)
		;
	free(s.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cut_gives_the_same_frames),
		cmocka_unit_test(trains_of_large_frames_are_not_copied),
		cmocka_unit_test(every_flipped_bit_of_header_and_body_is_found),
		cmocka_unit_test(another_version_is_told_apart),
		cmocka_unit_test(end_in_the_middle_shows),
		cmocka_unit_test(an_empty_pool_makes_the_stream_wait),
		cmocka_unit_test(extra_room_is_zeroed_and_aligned),
		cmocka_unit_test(no_memory_is_told_and_can_be_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
