/* The data half of the client core against a model: random operations while
 * daemons restart without what was not durable, lose replies and connections,
 * and answer with wrong bytes; and several threads on one file.
 *
 * Method: after each fsync the daemons' memory must hold the model's bytes.
 */
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)

/* ---- everything at once, against a model ---- */

#define MODEL_LEN (4u * MIB + 4096)

struct model {
	uint64_t seed;
	uint64_t size;
	uint8_t bytes[MODEL_LEN];
};

static uint32_t rnd(struct model *m, uint32_t below)
{
	m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((m->seed >> 33) % below);
}

static void model_write(struct dfix *d, struct core_file *f, struct model *m)
{
	static const uint32_t sizes[] = { 1, 100, 4096, 40000, MIB };
	uint32_t off = rnd(m, MODEL_LEN), len;
	uint32_t flags = rnd(m, 4) ? 0 : CORE_WRITE_DIRECT;

	len = 1 + rnd(m, sizes[rnd(m, 5)]);
	if (rnd(m, 4) == 0)
		off = (uint32_t)m->size;
	if (rnd(m, 3) == 0)
		off &= ~4095u;
	if (off >= MODEL_LEN)
		return;
	len = (uint32_t)u64_min(len, MODEL_LEN - off);
	d_fill(m->bytes + off, len, m->seed);
	assert_int_equal(d_write(d, f, off, m->bytes + off, len, flags), 0);
	m->size = u64_max(m->size, off + len);
}

static void model_read(struct dfix *d, struct core_file *f, struct model *m)
{
	uint32_t off = rnd(m, MODEL_LEN), len = 1 + rnd(m, 3 * MIB);
	uint8_t *got = malloc(len);
	size_t want = off < m->size ? u64_min(len, m->size - off) : 0;

	assert_non_null(got);
	assert_int_equal(d_read(d, f, off, got, len), want);
	assert_memory_equal(got, m->bytes + off, want);
	free(got);
}

static void model_cut(struct dfix *d, struct core_file *f, struct model *m)
{
	uint32_t off = rnd(m, MODEL_LEN), len = 1 + rnd(m, MIB);
	uint64_t end = u64_min(off + (uint64_t)len, MODEL_LEN);

	switch (rnd(m, 4)) {
	case 0:
		assert_int_equal(d_truncate(d, f, off), 0);
		if (off < m->size)
			memset(m->bytes + off, 0, m->size - off);
		m->size = off;
		break;
	case 1:
		assert_int_equal(d_fallocate(d, f, FALLOC_FL_PUNCH_HOLE |
					     FALLOC_FL_KEEP_SIZE, off,
					     end - off), 0);
		memset(m->bytes + off, 0, end - off);
		break;
	case 2:
		assert_int_equal(d_fallocate(d, f, FALLOC_FL_ZERO_RANGE, off,
					     end - off), 0);
		memset(m->bytes + off, 0, end - off);
		m->size = u64_max(m->size, end);
		break;
	default:
		assert_int_equal(d_fallocate(d, f, 0, off, end - off), 0);
		m->size = u64_max(m->size, end);
		break;
	}
}

static void model_fault(struct dfix *d, struct model *m)
{
	struct mini_blockd *b = d->b[rnd(m, DFIX_BLOCKDS)];

	switch (rnd(m, 5)) {
	case 0:
		mini_blockd_restart(b, true);
		break;
	case 1:
		mini_blockd_drop(b);
		break;
	case 2:
		mini_blockd_lose_replies(b, 0, 1);
		break;
	case 3:
		mini_blockd_corrupt(b, 1);
		break;
	default:
		d_restart(d, true);
		break;
	}
}

/* Every written unit is data for SEEK_DATA. */
static void model_seek(struct dfix *d, struct core_file *f, struct model *m)
{
	uint64_t off = rnd(m, MODEL_LEN), next = off;
	int64_t at = d_seek(d, f, off, SEEK_DATA);

	while (next < m->size && m->bytes[next] == 0)
		next++;
	if (off >= m->size)
		assert_int_equal(at, -ENXIO);
	else if (next < m->size)
		assert_true(at >= (int64_t)off && at <= (int64_t)next);
	at = d_seek(d, f, off, SEEK_HOLE);
	if (off >= m->size)
		assert_int_equal(at, -ENXIO);
	for (uint64_t i = off; at > 0 && i < (uint64_t)at && i < m->size; i++)
		if (i == m->size)
			assert_int_equal(at, i);
	if (at > 0 && (uint64_t)at < m->size)
		for (uint64_t i = (uint64_t)at;
		     i < u64_round_up((uint64_t)at + 1, 4096) && i < m->size;
		     i++)
			assert_int_equal(m->bytes[i], 0);
}

static void model_run(uint64_t seed, bool faults)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = 3 * MIB, .flush_age_ms = 20 });
	struct core_file *f = d_create(d, "f");
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->seed = seed;
	for (uint32_t i = 0; i < 250; i++) {
		uint32_t what = rnd(m, 100);

		if (what < 55)
			model_write(d, f, m);
		else if (what < 75)
			model_read(d, f, m);
		else if (what < 82)
			model_cut(d, f, m);
		else if (what < 86)
			model_seek(d, f, m);
		else if (what < 94 && faults)
			model_fault(d, m);
		else {
			assert_int_equal(d_fsync(d, f), 0);
			d_check_durable(d, f, 0, m->bytes, MODEL_LEN);
		}
	}
	assert_int_equal(d_size(d, f), m->size);
	d_close(d, f);
	assert_int_equal(d_sync(d), 0);
	dfix_stop(d);
	free(m);
}

static void test_random_operations_agree_with_a_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++)
		model_run(seed, false);
}

static void test_random_operations_agree_under_faults(void **state)
{
	(void)state;
	for (uint64_t seed = 101; seed <= 108; seed++)
		model_run(seed, true);
}

/* ---- many threads ---- */

#define THREADS 4u
#define STRIPE 3000u
#define STRIPES 120u

struct worker {
	struct dfix *d;
	struct core_file *f;
	uint32_t id;
	uint64_t seed;
	uint32_t version[STRIPES]; /* of its stripes; 0: never written */
};

static uint64_t stripe_off(const struct worker *w, uint32_t i)
{
	return ((uint64_t)i * THREADS + w->id) * STRIPE;
}

static void stripe_fill(const struct worker *w, uint32_t i, uint8_t *p)
{
	if (w->version[i] == 0)
		memset(p, 0, STRIPE);
	else
		d_fill(p, STRIPE, w->id * 1000003 + i * 1009 + w->version[i]);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint8_t p[STRIPE], got[STRIPE];

	for (uint32_t n = 0; n < 400; n++) {
		uint32_t i, what;
		ssize_t len;

		w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
		what = (uint32_t)(w->seed >> 60);
		i = (uint32_t)(w->seed >> 33) % STRIPES;
		if (what < 8) {
			w->version[i]++;
			stripe_fill(w, i, p);
			assert_int_equal(d_write(w->d, w->f, stripe_off(w, i),
						 p, STRIPE, what < 3 ?
						 CORE_WRITE_DIRECT : 0), 0);
		} else if (what < 14) {
			stripe_fill(w, i, p);
			len = d_read(w->d, w->f, stripe_off(w, i), got, STRIPE);
			assert_true(len >= 0);
			assert_memory_equal(got, p, (size_t)len);
		} else {
			assert_int_equal(d_fsync(w->d, w->f), 0);
			/* Its own stripes are still while it looks. */
			stripe_fill(w, i, p);
			d_check_durable(w->d, w->f, stripe_off(w, i), p,
					STRIPE);
		}
	}
	return NULL;
}

static void test_threads_share_a_file_under_faults(void **state)
{
	struct dfix *d = dfix_new(&(struct dfix_options){
		.wb_bytes_max = MIB, .flush_age_ms = 10 });
	struct core_file *f = d_create(d, "f");
	struct worker w[THREADS];
	pthread_t t[THREADS];

	(void)state;
	for (uint32_t i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .d = d, .f = f, .id = i,
					.seed = i + 77 };
		assert_int_equal(pthread_create(&t[i], NULL, worker_main,
						&w[i]), 0);
	}
	for (uint32_t i = 0; i < 12; i++) {
		pause_ms(40);
		if (i % 3 == 2)
			mini_blockd_drop(d->b[i % DFIX_BLOCKDS]);
		else
			mini_blockd_restart(d->b[i % DFIX_BLOCKDS], true);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(d_fsync(d, f), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		for (uint32_t s = 0; s < STRIPES; s++) {
			uint8_t p[STRIPE];

			stripe_fill(&w[i], s, p);
			if (w[i].version[s])
				d_check_durable(d, f, stripe_off(&w[i], s), p,
					      STRIPE);
		}
	d_close(d, f);
	dfix_stop(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_operations_agree_with_a_model),
		cmocka_unit_test(test_random_operations_agree_under_faults),
		cmocka_unit_test(test_threads_share_a_file_under_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
