/* What records come to, against a file of which each byte is kept.
 */
#include "fuse/core/log_net.h"
#include "tests/lib/fail_malloc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SIZE 64u
#define RECS 40u
#define ROUNDS 20000u

struct file {
	uint8_t p[SIZE]; /* zeros behind the end */
	uint64_t len;
};

static uint64_t rng = 88172645463325252u;

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng % below);
}

static void put(struct file *f, const struct log_rec *r)
{
	switch (r->kind) {
	case LOG_REC_WRITE:
		memcpy(f->p + r->off, r->data, r->len);
		break;
	case LOG_REC_SIZE:
		memset(f->p + r->off, 0, SIZE - r->off);
		break;
	case LOG_REC_ZERO:
		memset(f->p + r->off, 0, r->arg);
		break;
	}
	f->len = log_rec_length(r, f->len);
}

struct recs {
	struct log_rec r[RECS];
	uint8_t data[RECS][SIZE];
	uint32_t count;
};

static void make(struct recs *s, uint32_t count, bool only_writes)
{
	memset(s, 0, sizeof(*s));
	s->count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct log_rec *r = &s->r[i];
		uint32_t what = only_writes ? 9 : rnd(10);

		r->off = rnd(SIZE);
		if (what == 0) {
			r->kind = LOG_REC_SIZE;
		} else if (what == 1) {
			r->kind = LOG_REC_ZERO;
			r->arg = 1 + rnd((uint32_t)(SIZE - r->off));
		} else {
			r->kind = LOG_REC_WRITE;
			r->len = 1 + rnd((uint32_t)(SIZE - r->off));
			for (uint32_t j = 0; j < r->len; j++)
				s->data[i][j] = (uint8_t)(1 + rnd(255));
			r->data = s->data[i];
		}
	}
}

static void net_of(struct log_net *n, const struct recs *s, uint32_t first)
{
	log_net_init(n);
	for (uint32_t i = first; i < s->count; i++)
		assert_int_equal(log_net_add(n, &s->r[i]), 0);
	assert_int_equal(log_net_end(n), 0);
}

/* At most @steps of it: the length first. Returns whether that was all. */
static bool apply(struct file *f, struct log_net *n, uint32_t steps)
{
	bool seen[SIZE] = { false };
	struct log_net_rec p;

	if (steps-- == 0)
		return false;
	if (n->sized && n->length < f->len)
		memset(f->p + n->length, 0, SIZE - n->length);
	f->len = n->sized ? n->length : u64_max(f->len, n->length);
	while (steps-- > 0) {
		if (!log_net_next(n, &p))
			return true;
		assert_true(p.off < p.end);
		for (uint64_t i = p.off; i < p.end && i < SIZE; i++) {
			assert_false(seen[i]);
			seen[i] = true;
			f->p[i] = p.data ? p.data[i - p.off] : 0;
		}
		if (p.data)
			assert_true(p.end <= f->len);
	}
	return false;
}

static void same(const struct file *a, const struct file *b)
{
	assert_int_equal(a->len, b->len);
	assert_memory_equal(a->p, b->p, SIZE);
}

static struct file random_file(void)
{
	struct file f = { .len = rnd(SIZE + 1) };

	for (uint32_t i = 0; i < f.len; i++)
		f.p[i] = (uint8_t)(1 + rnd(255));
	return f;
}

static void it_is_what_the_records_do_one_after_the_other(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct file f = random_file(), g = f;
		struct log_net n;
		struct recs s;

		make(&s, 1 + rnd(RECS), round % 2);
		for (uint32_t i = 0; i < s.count; i++)
			put(&f, &s.r[i]);
		net_of(&n, &s, 0);
		assert_true(apply(&g, &n, UINT32_MAX));
		same(&f, &g);
		assert_false(log_net_next(&n, &(struct log_net_rec){ 0 }));
		log_net_fini(&n);
	}
}

/* The blocks have the first records. Somebody begins to apply all of them and
 * dies; the next has a log that begins behind those, and may reach further. */
static void who_stops_in_the_middle_takes_nothing_back(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct file f = random_file(), g;
		struct log_net n;
		struct recs s, part;
		uint32_t have;

		make(&s, 2 + rnd(RECS - 2), round % 2);
		have = rnd(s.count);
		for (uint32_t i = 0; i < have; i++)
			put(&f, &s.r[i]);
		g = f;
		for (uint32_t i = have; i < s.count; i++)
			put(&f, &s.r[i]);
		part = s;
		part.count = have + rnd(s.count - have + 1);
		net_of(&n, &part, 0);
		(void)apply(&g, &n, rnd(RECS));
		log_net_fini(&n);
		net_of(&n, &s, have);
		(void)apply(&g, &n, UINT32_MAX);
		same(&f, &g);
		log_net_fini(&n);
	}
}

static void appends_are_left_as_they_are(void **state)
{
	static const uint8_t data[3] = { 1, 2, 3 };
	struct log_rec r = { .kind = LOG_REC_WRITE, .len = 3, .data = data };
	struct log_net_rec p;
	struct log_net n;

	(void)state;
	log_net_init(&n);
	for (uint32_t i = 0; i < 1000; i++) {
		r.off = (uint64_t)i * 3 + i / 10;
		assert_int_equal(log_net_add(&n, &r), 0);
	}
	assert_int_equal(log_net_end(&n), 0);
	assert_null(n.marks); /* nothing to sort */
	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(log_net_next(&n, &p));
		assert_int_equal(p.off, (uint64_t)i * 3 + i / 10);
		assert_int_equal(p.end, p.off + 3);
	}
	assert_false(log_net_next(&n, &p));
	log_net_fini(&n);
}

static void nothing_comes_to_nothing(void **state)
{
	struct log_net_rec p;
	struct log_net n;

	(void)state;
	log_net_init(&n);
	assert_int_equal(log_net_end(&n), 0);
	assert_false(log_net_next(&n, &p));
	log_net_fini(&n);
}

/* Of a file as large as one can be. */
static void places_may_be_far_away(void **state)
{
	static const uint8_t data[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	const struct log_rec recs[] = {
		{ .kind = LOG_REC_WRITE, .off = FILE_SIZE_MAX - 8, .len = 8,
		  .data = data },
		{ .kind = LOG_REC_ZERO, .off = FILE_SIZE_MAX - 4, .arg = 4 },
		{ .kind = LOG_REC_SIZE, .off = FILE_SIZE_MAX - 1 },
	};
	struct log_net_rec p;
	struct log_net n;

	(void)state;
	log_net_init(&n);
	for (uint32_t i = 0; i < array_count(recs); i++)
		assert_int_equal(log_net_add(&n, &recs[i]), 0);
	assert_int_equal(log_net_end(&n), 0);
	assert_true(n.sized);
	assert_int_equal(n.length, FILE_SIZE_MAX - 1);
	assert_true(log_net_next(&n, &p));
	assert_int_equal(p.off, FILE_SIZE_MAX - 8);
	assert_int_equal(p.end, FILE_SIZE_MAX - 4);
	assert_ptr_equal(p.data, data);
	assert_true(log_net_next(&n, &p));
	assert_int_equal(p.off, FILE_SIZE_MAX - 4);
	assert_int_equal(p.end, FILE_SIZE_MAX - 1);
	assert_null(p.data);
	assert_false(log_net_next(&n, &p));
	log_net_fini(&n);
}

static int run_out(void)
{
	struct log_net n;
	struct recs s;
	int err = 0;

	rng = 88172645463325252u;
	make(&s, RECS, false);
	log_net_init(&n);
	for (uint32_t i = 0; i < 3 * s.count && !err; i++)
		err = log_net_add(&n, &s.r[i % s.count]);
	if (!err)
		err = log_net_end(&n);
	log_net_fini(&n);
	return err;
}

static void memory_may_run_out(void **state)
{
	uint32_t failures = 0;

	(void)state;
	for (unsigned nth = 1;; nth++) {
		int err;

		fail_malloc_at(nth);
		err = run_out();
		if (!fail_malloc_hit())
			break;
		assert_int_equal(err, -ENOMEM);
		failures++;
	}
	assert_true(failures >= 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_what_the_records_do_one_after_the_other),
		cmocka_unit_test(who_stops_in_the_middle_takes_nothing_back),
		cmocka_unit_test(appends_are_left_as_they_are),
		cmocka_unit_test(nothing_comes_to_nothing),
		cmocka_unit_test(places_may_be_far_away),
		cmocka_unit_test(memory_may_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
