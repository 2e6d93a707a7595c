/* The write-back buffer against a model.
 *
 * Method: random operations on a file of a few tiny blocks and on a model that
 * keeps a version for each byte: written, at the daemon, durable. After every
 * step the buffer must show the newest content of all that is not durable, and
 * a generation that it calls empty must be durable in the model. Daemons
 * restart, refuse and forget.
 */
#include "fuse/core/wbuf_priv.h"
#include "tests/lib/fail_malloc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LOG2 6u
#define FILE_LEN 400u
#define IOS_MAX 64u
#define WAITS_MAX 8u
#define NO_VERSION 0u

struct model_io {
	struct wbuf_io io;
	bool used, acked;
	uint32_t version[FILE_LEN]; /* what it carries; from io.off */
};

/* Somebody who waits for generation @gen, closed when the file had @want. */
struct model_wait {
	bool used;
	uint64_t gen;
	uint32_t want[FILE_LEN];
};

struct model {
	struct wbuf_mem mem;
	struct wbuf b;
	uint64_t seed;
	uint32_t version; /* last given */
	uint32_t now[FILE_LEN], daemon[FILE_LEN], durable[FILE_LEN];
	struct model_io ios[IOS_MAX];
	struct model_wait waits[WAITS_MAX];
};

static uint32_t rnd(struct model *m, uint32_t below)
{
	m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(m->seed >> 33) % below;
}

static uint8_t byte_of(uint32_t version, uint32_t off)
{
	return (uint8_t)(version * 31 + off * 7 + (version >> 8));
}

/* ---- checks ---- */

static void check_content(struct model *m)
{
	uint64_t pos = 0;
	uint32_t count = 0;

	for (struct wbuf_ext *e = m->b.head; e; e = e->next) {
		count++;
		assert_true(e->off >= pos && e->len > 0);
		pos = e->off + e->len;
		assert_int_equal(e->off >> LOG2, (pos - 1) >> LOG2);
		assert_true(e->data_off + e->len <= e->data->used);
		assert_ptr_equal(wbuf_find(&m->b, e->off), e);
		assert_ptr_equal(wbuf_find(&m->b, pos - 1), e);
		for (uint32_t i = 0; i < e->len; i++) {
			uint32_t at = (uint32_t)e->off + i;

			assert_int_equal(e->data->bytes[e->data_off + i],
					 byte_of(m->now[at], at));
		}
	}
	assert_int_equal(count, m->b.ext_count);
	/* What is not buffered is durable as it is. */
	for (uint32_t at = 0; at < FILE_LEN; at++) {
		const struct wbuf_ext *e = wbuf_find(&m->b, at);

		if (!e || e->off > at)
			assert_int_equal(m->durable[at], m->now[at]);
	}
}

static void check_waits(struct model *m)
{
	for (uint32_t w = 0; w < WAITS_MAX; w++) {
		struct model_wait *k = &m->waits[w];
		struct wbuf_pending p;

		if (!k->used)
			continue;
		wbuf_gen_pending(&m->b, k->gen, &p);
		assert_true(p.count >= p.dirty + p.flight);
		if (p.count > 0)
			continue;
		k->used = false;
		for (uint32_t at = 0; at < FILE_LEN; at++)
			assert_true(m->durable[at] >= k->want[at]);
	}
}

static void check_flight(struct model *m)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < IOS_MAX; i++)
		for (uint32_t j = 0; j < IOS_MAX; j++) {
			const struct model_io *a = &m->ios[i], *b = &m->ios[j];

			if (!a->used || a->acked)
				continue;
			count += i == j;
			if (i == j || !b->used || b->acked)
				continue;
			assert_true(a->io.off + a->io.len <= b->io.off ||
				    b->io.off + b->io.len <= a->io.off);
		}
	assert_int_equal(count, m->b.flight_count);
}

/* ---- steps ---- */

static void step_write(struct model *m)
{
	uint32_t off = rnd(m, FILE_LEN), len = 1 + rnd(m, rnd(m, 3) ? 12 : 150);
	uint8_t bytes[FILE_LEN];

	if (rnd(m, 3) == 0 && m->b.tail)
		off = (uint32_t)(m->b.tail->off + m->b.tail->len);
	if (off >= FILE_LEN)
		return;
	len = (uint32_t)u64_min(len, FILE_LEN - off);
	m->version++;
	for (uint32_t i = 0; i < len; i++) {
		m->now[off + i] = m->version;
		bytes[i] = byte_of(m->version, off + i);
	}
	if (rnd(m, 2)) {
		assert_int_equal(wbuf_write_small(&m->b, off, bytes, len), 0);
	} else {
		struct wbuf_data *d = wbuf_data_new(len + 3);

		assert_non_null(d);
		memcpy(d->bytes + 3, bytes, len);
		d->used = len + 3;
		assert_int_equal(wbuf_write(&m->b, off, d, 3, len), 0);
		wbuf_data_put(&m->mem, d);
	}
}

static struct model_io *io_slot(struct model *m)
{
	for (uint32_t i = 0; i < IOS_MAX; i++)
		if (!m->ios[i].used)
			return &m->ios[i];
	return NULL;
}

static void io_sent(struct model *m, struct model_io *io)
{
	uint32_t at = 0;

	io->used = true;
	io->acked = false;
	for (uint32_t i = 0; i < io->io.iov_count; i++) {
		const uint8_t *p = io->io.iov[i].iov_base;

		for (size_t k = 0; k < io->io.iov[i].iov_len; k++, at++) {
			uint32_t off = (uint32_t)io->io.off + at;

			io->version[at] = m->now[off];
			assert_int_equal(p[k], byte_of(m->now[off], off));
		}
	}
	assert_int_equal(at, io->io.len);
	assert_int_equal(io->io.off >> LOG2,
			 (io->io.off + io->io.len - 1) >> LOG2);
}

static void step_send(struct model *m, bool all)
{
	struct wbuf_ext *e = wbuf_find(&m->b, all ? 0 : rnd(m, FILE_LEN));
	struct wbuf_ext *next;

	for (; e; e = next) {
		struct model_io *io = io_slot(m);
		int err;

		next = e->next;
		if (e->state != WBUF_DIRTY)
			continue;
		if (!io)
			return;
		err = wbuf_io_start(&m->b, e, &io->io, &next);
		if (err) {
			assert_int_equal(err, -EBUSY);
			assert_true(e->wanted);
			continue;
		}
		io_sent(m, io);
		if (!all)
			return;
	}
}

static struct model_io *any_io(struct model *m, bool acked)
{
	uint32_t first = rnd(m, IOS_MAX);

	for (uint32_t i = 0; i < IOS_MAX; i++) {
		struct model_io *io = &m->ios[(first + i) % IOS_MAX];

		if (io->used && io->acked == acked)
			return io;
	}
	return NULL;
}

static void step_ack(struct model *m)
{
	struct model_io *io = any_io(m, false);

	if (!io)
		return;
	for (uint32_t i = 0; i < io->io.len; i++)
		m->daemon[io->io.off + i] = io->version[i];
	wbuf_io_acked(&m->b, &io->io);
	io->acked = true;
}

/* The daemon makes all durable that it has acknowledged. */
static void step_sync(struct model *m)
{
	struct model_io *io;

	memcpy(m->durable, m->daemon, sizeof(m->durable));
	while ((io = any_io(m, true))) {
		wbuf_io_drop(&m->b, &io->io);
		io->used = false;
	}
}

static void waits_again(struct model *m)
{
	for (uint32_t w = 0; w < WAITS_MAX; w++)
		if (m->waits[w].used)
			m->waits[w].gen = wbuf_gen_close(&m->b);
}

static void step_restart(struct model *m)
{
	struct model_io *io;

	memcpy(m->daemon, m->durable, sizeof(m->durable));
	while ((io = any_io(m, true))) {
		wbuf_io_redirty(&m->b, &io->io);
		io->used = false;
	}
	waits_again(m);
}

static void step_refuse(struct model *m)
{
	struct model_io *io = any_io(m, false);

	if (!io)
		return;
	wbuf_io_redirty(&m->b, &io->io);
	io->used = false;
	/* Those who wait are told of the error. */
	for (uint32_t w = 0; w < WAITS_MAX; w++)
		m->waits[w].used = false;
}

static void step_wait(struct model *m)
{
	for (uint32_t w = 0; w < WAITS_MAX; w++) {
		struct model_wait *k = &m->waits[w];

		if (k->used)
			continue;
		k->used = true;
		k->gen = wbuf_gen_close(&m->b);
		memcpy(k->want, m->now, sizeof(k->want));
		return;
	}
}

static void step_cut(struct model *m)
{
	uint32_t from = rnd(m, FILE_LEN), to = from + rnd(m, 120);

	if (m->b.flight_count > 0)
		return;
	to = (uint32_t)u64_min(to, FILE_LEN);
	/* Ordered by metad, done by the daemon: a new durable version. */
	m->version++;
	for (uint32_t at = from; at < to; at++)
		m->now[at] = m->daemon[at] = m->durable[at] = m->version;
	assert_int_equal(wbuf_cut(&m->b, from, to == FILE_LEN && rnd(m, 2) ?
				  UINT64_MAX : to), 0);
}

static void step(struct model *m)
{
	uint32_t what = rnd(m, 100);

	if (what < 40)
		step_write(m);
	else if (what < 60)
		step_send(m, rnd(m, 2));
	else if (what < 82)
		step_ack(m);
	else if (what < 88)
		step_sync(m);
	else if (what < 92)
		step_wait(m);
	else if (what < 94)
		step_restart(m);
	else if (what < 96)
		step_refuse(m);
	else
		step_cut(m);
}

static void run(uint64_t seed)
{
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->seed = seed;
	wbuf_mem_init(&m->mem, 1 << 20);
	assert_int_equal(wbuf_init(&m->b, &m->mem, LOG2), 0);
	for (uint32_t i = 0; i < 1500; i++) {
		step(m);
		check_content(m);
		check_waits(m);
		check_flight(m);
	}
	while (!wbuf_clean(&m->b)) {
		step_send(m, true);
		while (any_io(m, false))
			step_ack(m);
		step_sync(m);
	}
	check_content(m);
	check_waits(m);
	assert_int_equal(m->b.ext_count, 0);
	assert_int_equal(m->mem.dirty_bytes, 0);
	assert_int_equal(m->mem.bytes, 0);
	wbuf_fini(&m->b);
	wbuf_mem_fini(&m->mem);
	free(m);
}

static void test_random_operations_agree_with_the_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 150; seed++)
		run(seed);
}

/* ---- single facts ---- */

struct small {
	struct wbuf_mem mem;
	struct wbuf b;
};

static struct small *small_new(uint8_t log2)
{
	struct small *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	wbuf_mem_init(&s->mem, 8 << 20);
	assert_int_equal(wbuf_init(&s->b, &s->mem, log2), 0);
	return s;
}

static void small_free(struct small *s)
{
	wbuf_fini(&s->b);
	assert_int_equal(s->mem.bytes, 0);
	wbuf_mem_fini(&s->mem);
	free(s);
}

static void test_one_byte_appends_share_extents(void **state)
{
	struct small *s = small_new(20);

	(void)state;
	for (uint32_t i = 0; i < 3000000; i++)
		assert_int_equal(wbuf_write_small(&s->b, i, &i, 1), 0);
	assert_true(s->b.ext_count < 3000000 / WBUF_APPEND_MAX + 3 * 14);
	assert_true(s->mem.bytes < 3000000 + 3 * WBUF_APPEND_MAX);
	assert_true(wbuf_block_full(&s->b, 1 << 20));
	assert_true(wbuf_block_full(&s->b, 2 << 20));
	assert_false(wbuf_block_full(&s->b, 3 << 20));
	small_free(s);
}

static void test_scattered_writes_stay_logarithmic(void **state)
{
	struct small *s = small_new(20);
	uint64_t x = 1;

	(void)state;
	for (uint32_t i = 0; i < 300000; i++) {
		x = x * 6364136223846793005u + 1;
		assert_int_equal(wbuf_write_small(&s->b, (x >> 20) * 4096, &x,
						  8), 0);
	}
	assert_true(s->b.ext_count > 290000);
	small_free(s);
}

static void test_a_reader_keeps_what_it_saw(void **state)
{
	struct small *s = small_new(20);
	struct wbuf_data *d;

	(void)state;
	assert_int_equal(wbuf_write_small(&s->b, 0, "old", 3), 0);
	d = wbuf_find(&s->b, 0)->data;
	wbuf_data_get(d);
	assert_int_equal(wbuf_write_small(&s->b, 0, "new", 3), 0);
	assert_memory_equal(d->bytes, "old", 3);
	assert_memory_equal(wbuf_find(&s->b, 0)->data->bytes, "new", 3);
	/* Appending is no change of what it saw. */
	wbuf_data_put(&s->mem, d);
	d = wbuf_find(&s->b, 0)->data;
	wbuf_data_get(d);
	assert_int_equal(wbuf_write_small(&s->b, 3, "er", 2), 0);
	assert_memory_equal(d->bytes, "new", 3);
	wbuf_data_put(&s->mem, d);
	small_free(s);
}

static void test_big_buffers_are_used_again(void **state)
{
	struct small *s = small_new(20);
	struct wbuf_data *d = wbuf_data_pooled(&s->mem, 1 << 20), *e;

	(void)state;
	assert_non_null(d);
	wbuf_data_put(&s->mem, d);
	e = wbuf_data_pooled(&s->mem, 1 << 20);
	assert_ptr_equal(d, e);
	wbuf_data_put(&s->mem, e);
	e = wbuf_data_pooled(&s->mem, 128 << 10);
	assert_ptr_not_equal(d, e);
	wbuf_data_put(&s->mem, e);
	small_free(s);
}

/* Of 8 MiB together; 4 buffers of 1 MiB in use and 4 free are as many. */
static void test_free_buffers_make_room_for_those_in_use(void **state)
{
	struct small *s = small_new(20);
	struct wbuf_data *d[12];

	(void)state;
	for (int i = 0; i < 12; i++)
		d[i] = wbuf_data_pooled(&s->mem, 1 << 20);
	for (int i = 0; i < 12; i++)
		wbuf_data_put(&s->mem, d[i]);
	assert_int_equal(s->mem.pool_bytes, 8 << 20);
	for (int i = 0; i < 4; i++) {
		d[i] = wbuf_data_new((1 << 20) - 64);
		wbuf_data_charge(&s->mem, d[i]);
		assert_true(s->mem.bytes + s->mem.pool_bytes <= 8 << 20);
	}
	assert_int_equal(s->mem.pool_bytes, 4 << 20);
	for (int i = 0; i < 4; i++)
		wbuf_data_put(&s->mem, d[i]);
	assert_true(s->mem.pool_bytes >= 7 << 20 &&
		    s->mem.pool_bytes <= 8 << 20);
	small_free(s);
}

static void test_nothing_changes_when_memory_is_short(void **state)
{
	(void)state;
	for (unsigned k = 1; k < 6; k++) {
		struct small *s = small_new(12);
		struct wbuf_data *d = wbuf_data_new(9000);
		int err;

		assert_non_null(d);
		memset(d->bytes, 1, 9000);
		d->used = 9000;
		fail_malloc_at(k);
		err = wbuf_write(&s->b, 100, d, 0, 9000);
		assert_int_equal(err, fail_malloc_hit() ? -ENOMEM : 0);
		assert_int_equal(err != 0, k <= 4);
		assert_int_equal(s->b.ext_count, err ? 0 : 3);
		assert_int_equal(wbuf_clean(&s->b), err != 0);
		wbuf_data_put(&s->mem, d);
		small_free(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_operations_agree_with_the_model),
		cmocka_unit_test(test_one_byte_appends_share_extents),
		cmocka_unit_test(test_scattered_writes_stay_logarithmic),
		cmocka_unit_test(test_a_reader_keeps_what_it_saw),
		cmocka_unit_test(test_big_buffers_are_used_again),
		cmocka_unit_test(test_free_buffers_make_room_for_those_in_use),
		cmocka_unit_test(test_nothing_changes_when_memory_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
