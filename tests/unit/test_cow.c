/* The copy-on-write tree against a sorted array: every operation of random
 * sequences, with long and short keys, while snapshots are out, and with the
 * k-th page refused. SEED=n for another sequence. */
#include "metad/cow_priv.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- the model ---- */

struct pair {
	uint8_t key[COW_KEY_MAX];
	uint8_t val[COW_VALUE_MAX];
	uint32_t klen, vlen;
};

struct model {
	struct pair **pairs;
	size_t count, cap;
};

static int compare(const uint8_t *a, uint32_t alen, const uint8_t *b,
		   uint32_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c != 0 ? c : (int)alen - (int)blen;
}

/* Index of the first pair >= @key. */
static size_t model_find(const struct model *m, const void *key,
			 uint32_t klen, bool *found)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct pair *p = m->pairs[mid];

		if (compare(p->key, p->klen, key, klen) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*found = low < m->count && compare(m->pairs[low]->key,
					   m->pairs[low]->klen, key,
					   klen) == 0;
	return low;
}

static void model_put(struct model *m, const struct pair *p)
{
	bool found;
	size_t i = model_find(m, p->key, p->klen, &found);

	if (!found) {
		if (m->count == m->cap) {
			m->cap = m->cap * 2 + 16;
			m->pairs = realloc(m->pairs,
					   m->cap * sizeof(*m->pairs));
			assert_non_null(m->pairs);
		}
		memmove(&m->pairs[i + 1], &m->pairs[i],
			(m->count - i) * sizeof(*m->pairs));
		m->pairs[i] = malloc(sizeof(*p));
		assert_non_null(m->pairs[i]);
		m->count++;
	}
	*m->pairs[i] = *p;
}

static bool model_del(struct model *m, const void *key, uint32_t klen)
{
	bool found;
	size_t i = model_find(m, key, klen, &found);

	if (!found)
		return false;
	free(m->pairs[i]);
	m->count--;
	memmove(&m->pairs[i], &m->pairs[i + 1],
		(m->count - i) * sizeof(*m->pairs));
	return true;
}

static void model_clear(struct model *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->pairs[i]);
	free(m->pairs);
	memset(m, 0, sizeof(*m));
}

static void model_copy(struct model *to, const struct model *from)
{
	memset(to, 0, sizeof(*to));
	for (size_t i = 0; i < from->count; i++)
		model_put(to, from->pairs[i]);
}

/* ---- random keys ---- */

struct rng {
	uint64_t s;
};

static uint64_t next(struct rng *r) /* splitmix64 */
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint32_t below(struct rng *r, uint32_t limit)
{
	return (uint32_t)(next(r) % limit);
}

static uint64_t seed(void)
{
	const char *text = getenv("SEED");

	return text != NULL ? strtoull(text, NULL, 10) : 1;
}

/* Few bytes values, so that keys share prefixes; one in eight is long. */
static void random_key(struct rng *r, struct pair *p, uint32_t space)
{
	uint32_t id = below(r, space);
	uint32_t pad = id % 8 == 0 ? id * 37 % (COW_KEY_MAX - 8) : id % 5;

	p->klen = 0;
	for (uint32_t i = 0; i < pad; i++)
		p->key[p->klen++] = (uint8_t)('a' + id % 3);
	for (uint32_t i = 0; i < 3; i++, id /= 13)
		p->key[p->klen++] = (uint8_t)('0' + id % 13);
}

static void random_value(struct rng *r, struct pair *p)
{
	p->vlen = below(r, 8) == 0 ? below(r, COW_VALUE_MAX + 1) :
				     below(r, 40);
	memset(p->val, (int)below(r, 256), p->vlen);
}

/* ---- comparing ---- */

typedef bool (*seek_fn)(const void *of, struct cow_iter *it, const void *key,
			uint32_t klen);

static bool seek_tree(const void *of, struct cow_iter *it, const void *key,
		      uint32_t klen)
{
	return cow_seek(of, it, key, klen);
}

static bool seek_snap(const void *of, struct cow_iter *it, const void *key,
		      uint32_t klen)
{
	return cow_snap_seek(of, it, key, klen);
}

static void assert_same(seek_fn seek, const void *of, const struct model *m)
{
	struct cow_iter it;
	size_t i = 0;

	for (bool more = seek(of, &it, "", 0); more; more = cow_next(&it)) {
		assert_true(i < m->count);
		assert_int_equal(it.klen, m->pairs[i]->klen);
		assert_memory_equal(it.key, m->pairs[i]->key, it.klen);
		assert_int_equal(it.vlen, m->pairs[i]->vlen);
		if (it.vlen > 0)
			assert_memory_equal(it.val, m->pairs[i]->val, it.vlen);
		i++;
	}
	assert_int_equal(i, m->count);
}

static void put(struct cow *t, const struct pair *p)
{
	assert_int_equal(cow_reserve(t, 1), 0);
	cow_put(t, p->key, p->klen, p->val, p->vlen);
}

static bool del(struct cow *t, const struct pair *p)
{
	assert_int_equal(cow_reserve(t, 1), 0);
	return cow_del(t, p->key, p->klen);
}

/* ---- facts ---- */

static void an_empty_tree_has_nothing(void **state)
{
	struct cow *t = cow_new(NULL);
	struct cow_iter it;
	const uint8_t *val;
	uint32_t vlen;

	(void)state;
	assert_non_null(t);
	assert_false(cow_seek(t, &it, "", 0));
	assert_false(cow_get(t, "a", 1, &val, &vlen));
	assert_int_equal(cow_reserve(t, 1), 0);
	assert_false(cow_del(t, "a", 1));
	assert_int_equal(cow_count(t), 0);
	assert_true(cow_check(t));
	cow_free(t);
}

static void the_largest_key_and_value_fit_many_times(void **state)
{
	struct cow *t = cow_new(NULL);
	struct model m = { 0 };
	struct pair p;

	(void)state;
	for (int i = 0; i < 200; i++) {
		memset(p.key, 'k', COW_KEY_MAX);
		p.key[COW_KEY_MAX - 1] = (uint8_t)(i * 91 % 256);
		p.klen = COW_KEY_MAX;
		memset(p.val, i, COW_VALUE_MAX);
		p.vlen = COW_VALUE_MAX;
		put(t, &p);
		model_put(&m, &p);
	}
	assert_same(seek_tree, t, &m);
	assert_true(cow_check(t));
	while (m.count > 0) {
		p = *m.pairs[m.count / 2];
		assert_true(del(t, &p));
		assert_true(model_del(&m, p.key, p.klen));
	}
	assert_true(cow_check(t));
	assert_int_equal(cow_count(t), 0);
	model_clear(&m);
	cow_free(t);
}

static void every_order_of_six_keys_gives_the_same_tree(void **state)
{
	(void)state;
	for (int order = 0; order < 720; order++) {
		struct cow *t = cow_new(NULL);
		uint8_t keys[6] = { 'a', 'b', 'c', 'd', 'e', 'f' };
		uint8_t val[900] = { 0 };
		struct cow_iter it;
		int rest = order;

		for (int i = 0; i < 6; i++) {
			int pick = rest % (6 - i);
			uint8_t key = keys[pick];

			rest /= 6 - i;
			memmove(&keys[pick], &keys[pick + 1],
				(size_t)(5 - pick));
			assert_int_equal(cow_reserve(t, 1), 0);
			cow_put(t, &key, 1, val, sizeof(val));
		}
		assert_true(cow_seek(t, &it, "", 0));
		for (int i = 0; i < 6; i++) {
			assert_int_equal(it.key[0], 'a' + i);
			assert_int_equal(cow_next(&it), i < 5);
		}
		assert_true(cow_check(t));
		cow_free(t);
	}
}

static void random_changes_agree_with_a_sorted_array(void **state)
{
	struct rng r = { seed() };
	struct cow *t = cow_new(NULL);
	struct model m = { 0 };

	(void)state;
	for (int i = 0; i < 60000; i++) {
		/* grows, then shrinks, several times */
		uint32_t put_share = i / 10000 % 2 == 0 ? 70 : 25;
		struct pair p;

		random_key(&r, &p, 2000);
		random_value(&r, &p);
		if (below(&r, 100) < put_share) {
			put(t, &p);
			model_put(&m, &p);
		} else {
			assert_int_equal(del(t, &p),
					 model_del(&m, p.key, p.klen));
		}
		assert_int_equal(cow_count(t), m.count);
		if (i % 2000 == 0) {
			assert_same(seek_tree, t, &m);
			assert_true(cow_check(t));
		}
	}
	assert_same(seek_tree, t, &m);
	model_clear(&m);
	cow_free(t);
}

static void seeking_finds_the_next_larger_key(void **state)
{
	struct rng r = { seed() + 1 };
	struct cow *t = cow_new(NULL);
	struct model m = { 0 };

	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct pair p;

		random_key(&r, &p, 4000);
		random_value(&r, &p);
		put(t, &p);
		model_put(&m, &p);
	}
	for (int i = 0; i < 5000; i++) {
		struct cow_iter it;
		struct pair p;
		bool found;
		size_t at;

		random_key(&r, &p, 4000);
		at = model_find(&m, p.key, p.klen, &found);
		assert_int_equal(cow_seek(t, &it, p.key, p.klen),
				 at < m.count);
		if (at == m.count)
			continue;
		assert_int_equal(it.klen, m.pairs[at]->klen);
		assert_memory_equal(it.key, m.pairs[at]->key, it.klen);
	}
	model_clear(&m);
	cow_free(t);
}

static void ascending_keys_fill_their_pages(void **state)
{
	struct cow *t = cow_new(NULL);
	uint64_t payload;

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t key = __builtin_bswap32(i);
		uint8_t val[20] = { 0 };

		assert_int_equal(cow_reserve(t, 1), 0);
		cow_put(t, &key, sizeof(key), val, sizeof(val));
		(void)cow_trim(t); /* as between commands */
	}
	/* 6 bytes a cell are the page's own */
	payload = cow_payload(t) + 6 * cow_count(t);
	assert_true(cow_memory(t) < payload * 11 / 10);
	cow_free(t);
}

static void a_removed_range_is_exactly_that(void **state)
{
	struct rng r = { seed() + 2 };

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct cow *t = cow_new(NULL);
		struct model m = { 0 };
		struct cow_snap *s = NULL;
		struct pair a, b;
		uint64_t gone = 0;
		bool found;
		size_t at;

		for (int i = 0; i < 900; i++) {
			struct pair p;

			random_key(&r, &p, 2000);
			random_value(&r, &p);
			put(t, &p);
			model_put(&m, &p);
		}
		random_key(&r, &a, 2000);
		random_key(&r, &b, 2000);
		at = model_find(&m, a.key, a.klen, &found);
		while (at < m.count &&
		       compare(m.pairs[at]->key, m.pairs[at]->klen, b.key,
			       b.klen) < 0) {
			struct pair p = *m.pairs[at];

			model_del(&m, p.key, p.klen);
			gone++;
		}
		/* One change is enough, even when all pages are frozen. */
		if (round % 2 == 0)
			s = cow_snap_begin(t);
		cow_drain(t);
		assert_int_equal(cow_reserve(t, 1), 0);
		assert_int_equal(cow_del_range(t, a.key, a.klen, b.key,
					       b.klen), gone);
		assert_same(seek_tree, t, &m);
		assert_true(cow_check(t));
		if (s != NULL)
			cow_snap_end(t, s);
		model_clear(&m);
		cow_free(t);
	}
}

/* Several snapshots come and go in any order. */
static void snapshots_keep_what_they_saw(void **state)
{
	struct rng r = { seed() + 3 };
	struct cow *t = cow_new(NULL);
	struct model m = { 0 };
	struct cow_snap *snap[4] = { NULL };
	struct model saw[4];

	(void)state;
	for (int i = 0; i < 40000; i++) {
		struct pair p;
		uint32_t what = below(&r, 1000);

		random_key(&r, &p, 1500);
		random_value(&r, &p);
		if (what < 550) {
			put(t, &p);
			model_put(&m, &p);
		} else if (what < 994) {
			assert_int_equal(del(t, &p),
					 model_del(&m, p.key, p.klen));
		} else {
			uint32_t k = below(&r, 4);

			if (snap[k] == NULL) {
				snap[k] = cow_snap_begin(t);
				assert_non_null(snap[k]);
				model_copy(&saw[k], &m);
				continue;
			}
			assert_same(seek_snap, snap[k], &saw[k]);
			assert_int_equal(cow_snap_count(snap[k]),
					 saw[k].count);
			cow_snap_end(t, snap[k]);
			model_clear(&saw[k]);
			snap[k] = NULL;
			assert_true(cow_check(t));
		}
	}
	assert_same(seek_tree, t, &m);
	for (int k = 0; k < 4; k++) {
		if (snap[k] == NULL)
			continue;
		assert_same(seek_snap, snap[k], &saw[k]);
		model_clear(&saw[k]);
	}
	model_clear(&m);
	cow_free(t); /* ends those that are out */
}

static void a_roll_back_undoes_everything(void **state)
{
	struct rng r = { seed() + 4 };
	struct cow *t = cow_new(NULL);
	struct model m = { 0 };

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct cow_snap *outer = NULL;
		struct cow_snap *s;
		struct model before;

		if (round % 3 == 0) /* below an older snapshot, too */
			outer = cow_snap_begin(t);
		model_copy(&before, &m);
		s = cow_snap_begin(t);
		assert_non_null(s);
		for (uint32_t i = 0; i < below(&r, 200); i++) {
			struct pair p;

			random_key(&r, &p, 900);
			random_value(&r, &p);
			if (below(&r, 2) == 0) {
				put(t, &p);
				model_put(&m, &p);
			} else {
				assert_int_equal(del(t, &p),
						 model_del(&m, p.key, p.klen));
			}
		}
		if (below(&r, 2) == 0) {
			cow_rollback(t, s);
			assert_same(seek_tree, t, &before);
			model_clear(&m);
			m = before;
		} else {
			cow_snap_end(t, s);
			assert_same(seek_tree, t, &m);
			model_clear(&before);
		}
		assert_true(cow_check(t));
		if (outer != NULL)
			cow_snap_end(t, outer);
	}
	model_clear(&m);
	cow_free(t);
}

static void pages_come_back_when_snapshots_end(void **state)
{
	struct cow *t = cow_new(NULL);
	uint64_t before = 0;

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct cow_snap *s = cow_snap_begin(t);

		for (uint32_t i = 0; i < 20000; i++) {
			uint32_t key = __builtin_bswap32(i);

			assert_int_equal(cow_reserve(t, 1), 0);
			cow_put(t, &key, sizeof(key), &round, sizeof(round));
			(void)cow_trim(t); /* now and then */
		}
		cow_snap_end(t, s);
		while (cow_trim(t))
			;
		if (round == 2)
			before = cow_memory(t);
	}
	assert_true(cow_memory(t) <= before + 16 * COW_PAGE_SIZE);
	cow_free(t);
}

/* ---- memory that runs out ---- */

struct meager {
	uint64_t left; /* allocations that succeed */
	uint64_t out; /* not yet released */
};

static void *meager_alloc(void *ctx, size_t size)
{
	struct meager *m = ctx;

	if (m->left == 0)
		return NULL;
	m->left--;
	m->out++;
	return malloc(size);
}

static void meager_release(void *ctx, void *p)
{
	struct meager *m = ctx;

	m->out--;
	free(p);
}

static void a_refused_page_changes_nothing(void **state)
{
	(void)state;
	for (uint64_t k = 0; k < 400; k++) {
		struct meager mem = { .left = k };
		struct cow_mem vt = { meager_alloc, meager_release, &mem };
		struct rng r = { 9 };
		struct model m = { 0 };
		struct cow_snap *s = NULL;
		struct cow *t = cow_new(&vt);

		for (int i = 0; t != NULL && i < 400; i++) {
			struct pair p;

			random_key(&r, &p, 300);
			random_value(&r, &p);
			if (i == 200)
				s = cow_snap_begin(t);
			if (cow_reserve(t, 2) != 0)
				break;
			cow_put(t, p.key, p.klen, p.val, p.vlen);
			model_put(&m, &p);
			random_key(&r, &p, 300);
			assert_int_equal(cow_del(t, p.key, p.klen),
					 model_del(&m, p.key, p.klen));
		}
		if (t != NULL) {
			assert_same(seek_tree, t, &m);
			assert_true(cow_check(t));
			if (s != NULL)
				cow_snap_end(t, s);
		}
		cow_free(t);
		assert_int_equal(mem.out, 0);
		model_clear(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_tree_has_nothing),
		cmocka_unit_test(the_largest_key_and_value_fit_many_times),
		cmocka_unit_test(every_order_of_six_keys_gives_the_same_tree),
		cmocka_unit_test(random_changes_agree_with_a_sorted_array),
		cmocka_unit_test(seeking_finds_the_next_larger_key),
		cmocka_unit_test(ascending_keys_fill_their_pages),
		cmocka_unit_test(a_removed_range_is_exactly_that),
		cmocka_unit_test(snapshots_keep_what_they_saw),
		cmocka_unit_test(a_roll_back_undoes_everything),
		cmocka_unit_test(pages_come_back_when_snapshots_end),
		cmocka_unit_test(a_refused_page_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
