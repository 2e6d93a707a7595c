/* One-sided writes into lent memory, from the lender's side.
 *
 * Method: the table of what is lent with the real means behind it, over a fake
 * of the libraries in which who connects, and what his adapter writes, is
 * played by the test.
 */
#include "tests/lib/fake_verbs.h"

#include <sys/epoll.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "logd/verbs.h"

#define CLUSTER 5u
#define POOL (4u << 20)
#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define PORT 7201u

static struct fix {
	struct loop_fd *fds[2]; /* what is watched */
	uint64_t now_ms;
	struct lend_pool pool;
	struct lend *lend;
	struct lverbs *v;
	uint8_t *memory;
} fix;

/* ---- a daemon ---- */

static int on_grant(void *arg, struct lend_log *g, struct lend_region *r)
{
	(void)arg;
	return lverbs_grant(fix.v, g, r);
}

static void on_revoke(void *arg, struct lend_log *g, struct lend_region *r)
{
	(void)arg;
	lverbs_revoke(fix.v, g, r);
}

static void on_end(void *arg, struct lend_log *g)
{
	(void)arg;
	lverbs_end(fix.v, g);
}

static const struct lend_ops ops = { .grant = on_grant,
				     .revoke = on_revoke,
				     .end = on_end };

/* The loop is the test's: it is told when what has come is looked at. */
uint64_t loop_now_ms(const struct loop *l)
{
	(void)l;
	return fix.now_ms;
}

int loop_add(struct loop *l, struct loop_fd *f, uint32_t events)
{
	(void)l;
	assert_int_equal(events, EPOLLIN);
	for (size_t i = 0; i < array_count(fix.fds); i++) {
		if (fix.fds[i])
			continue;
		fix.fds[i] = f;
		return 0;
	}
	return -ENOSPC;
}

void loop_del(struct loop *l, struct loop_fd *f)
{
	(void)l;
	for (size_t i = 0; i < array_count(fix.fds); i++) {
		if (fix.fds[i] != f)
			continue;
		fix.fds[i] = NULL;
		return;
	}
	fail();
}

static void turn(void)
{
	for (size_t i = 0; i < array_count(fix.fds); i++)
		if (fix.fds[i])
			fix.fds[i]->fn(fix.fds[i], EPOLLIN);
}

static int begin(void)
{
	struct lend_options o = { .pool = &fix.pool,
				  .cluster_id = CLUSTER,
				  .log_max = 8,
				  .ino_max = 8,
				  .ops = &ops };
	struct lverbs_options vo = { .addr = "10.0.0.1",
				     .port = PORT,
				     .cluster_id = CLUSTER };
	char why[200];

	memset(&fix, 0, sizeof(fix));
	fix.now_ms = 1000;
	fix.memory = aligned_alloc(4096, POOL);
	assert_non_null(fix.memory);
	memset(fix.memory, 0, POOL);
	assert_int_equal(lend_pool_init(&fix.pool, fix.memory, POOL), 0);
	assert_int_equal(lend_new(&o, &fix.lend), 0);
	vo.lend = fix.lend;
	return lverbs_new(&vo, &fix.v, why, sizeof(why));
}

/* Nothing is left over. */
static void end(void)
{
	struct fake_verbs_count n;
	bool stuck = fix.v && lverbs_stats(fix.v)->stuck > 0;

	lverbs_free(fix.v);
	fix.v = NULL;
	lend_free(fix.lend);
	lend_pool_fini(&fix.pool);
	free(fix.memory);
	n = fake_verbs_count();
	assert_int_equal(n.faults, 0);
	assert_int_equal(n.channels + n.ids + n.qps + n.cqs, 0);
	assert_int_equal(n.pds, stuck);
	assert_int_equal(n.mrs, stuck);
}

/* ---- a client ---- */

static int alloc(uint64_t ino, uint32_t index, const struct lend_region **r)
{
	const struct log_alloc m = { .ino = ino,
				     .epoch = 5,
				     .data_epoch = 5,
				     .index = index,
				     .log2 = LOG2,
				     .flags = LOG_ALLOC_VERBS };

	return lend_alloc(fix.lend, 1, &m, r);
}

static int token(uint64_t ino, uint64_t *ret)
{
	struct lend_log *g;
	int rv = lend_writer_log(fix.lend, 1, ino, 5, &g);

	return rv ? rv : lverbs_token(fix.v, g, ret);
}

/* The first @len bytes; as a rule zeros are behind it. */
static int dial_part(const struct log_rdma_hello *h, size_t len)
{
	uint8_t data[56] = { 0 };
	struct wire_out o;
	int number;

	wire_out_init(&o, data, sizeof(data));
	log_rdma_hello_encode(&o, h);
	assert_int_equal(o.len, LOG_RDMA_HELLO_SIZE);
	number = fake_verbs_dial(len > 0 ? data : NULL, len, PORT);
	turn();
	return number;
}

static int dial_as(const struct log_rdma_hello *h)
{
	return dial_part(h, 56);
}

static int dial(uint64_t tok)
{
	const struct log_rdma_hello h = { .magic = LOG_RDMA_MAGIC,
					  .version = WIRE_VERSION,
					  .cluster_id = CLUSTER,
					  .token = tok };

	return dial_as(&h);
}

static enum ibv_wc_status put(int number, const struct lend_region *r,
			      uint64_t off)
{
	return fake_verbs_write(number, r->addr + off, r->rkey, "hello", 5);
}

/* A log of @ino with a region, connected. */
static int writer(uint64_t ino, const struct lend_region **r)
{
	uint64_t tok;
	int number;

	assert_int_equal(alloc(ino, 0, r), 0);
	assert_int_equal(token(ino, &tok), 0);
	number = dial(tok);
	assert_int_equal(fake_verbs_dialled(number), DIAL_UP);
	return number;
}

/* ---- tests ---- */

static void a_write_lands_in_its_region_alone(void **state)
{
	const struct lend_region *a, *b;
	int x, y;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &a);
	y = writer(2, &b);
	assert_int_equal(put(x, a, 100), IBV_WC_SUCCESS);
	assert_memory_equal(a->base + 100, "hello", 5);
	assert_int_equal(put(y, b, 100), IBV_WC_SUCCESS);
	/* Another log's key; and behind the end. */
	assert_int_equal(put(x, b, 200), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(b->base[200], 0);
	assert_int_equal(put(x, a, SIZE - 4), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(lverbs_stats(fix.v)->connections, 2);
	end();
}

static void a_token_is_good_once_and_for_a_short_time(void **state)
{
	const struct lend_region *r;
	uint64_t tok, later;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	assert_int_equal(alloc(1, 0, &r), 0);
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(fake_verbs_dialled(dial(tok ^ 1)), DIAL_REFUSED);
	assert_int_equal(fake_verbs_dialled(dial(0)), DIAL_REFUSED);
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_UP);
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_REFUSED);
	/* The last one given counts. */
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(token(1, &later), 0);
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_REFUSED);
	assert_int_equal(fake_verbs_dialled(dial(later)), DIAL_UP);
	assert_int_equal(token(1, &tok), 0);
	fix.now_ms += 5000;
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_REFUSED);
	end();
}

static void who_greets_wrongly_is_refused(void **state)
{
	const struct log_rdma_hello good = { .magic = LOG_RDMA_MAGIC,
					     .version = WIRE_VERSION,
					     .cluster_id = CLUSTER };
	struct log_rdma_hello h = good;
	const struct lend_region *r;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	assert_int_equal(alloc(1, 0, &r), 0);
	/* What is behind one that is cut short would make it right. */
	do
		assert_int_equal(token(1, &h.token), 0);
	while (h.token >> 56);
	h.magic++;
	assert_int_equal(fake_verbs_dialled(dial_as(&h)), DIAL_REFUSED);
	h.magic--;
	h.version++;
	assert_int_equal(fake_verbs_dialled(dial_as(&h)), DIAL_REFUSED);
	h.version--;
	h.cluster_id++;
	assert_int_equal(fake_verbs_dialled(dial_as(&h)), DIAL_REFUSED);
	h.cluster_id--;
	assert_int_equal(fake_verbs_dialled(dial_part(&h, 0)), DIAL_REFUSED);
	assert_int_equal(fake_verbs_dialled(dial_part(
				 &h, LOG_RDMA_HELLO_SIZE - 1)),
			 DIAL_REFUSED);
	assert_int_equal(fake_verbs_dialled(dial_part(
				 &h, LOG_RDMA_HELLO_SIZE)),
			 DIAL_UP);
	assert_int_equal(lverbs_stats(fix.v)->rejected, 5);
	end();
}

/* The fence: the zombie's connection and its keys are gone when it returns. */
static void a_fence_ends_queue_pair_and_keys(void **state)
{
	const struct log_fence m = { .ino = 1, .epoch = 6, .data_epoch = 5 };
	const struct lend_region *a, *b;
	const struct lend_log *g;
	uint64_t tok;
	int x, y;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &a);
	y = writer(2, &b);
	assert_int_equal(put(x, a, 100), IBV_WC_SUCCESS);
	assert_int_equal(lend_fence(fix.lend, &m, &g), 0);
	assert_int_not_equal(put(x, a, 200), IBV_WC_SUCCESS);
	assert_int_equal(a->base[200], 0);
	assert_int_equal(fake_verbs_dialled(x), DIAL_GONE);
	/* Nor over another's. */
	assert_int_equal(put(y, a, 200), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(put(y, b, 200), IBV_WC_SUCCESS);
	assert_int_equal(token(1, &tok), -ESTALE);
	assert_memory_equal(a->base + 100, "hello", 5);
	end();
}

/* A token that was given before the fence is no way in after it. */
static void a_fence_ends_tokens(void **state)
{
	const struct log_fence m = { .ino = 1, .epoch = 6, .data_epoch = 5 };
	const struct lend_region *r;
	const struct lend_log *g;
	uint64_t tok;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	assert_int_equal(alloc(1, 0, &r), 0);
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(lend_fence(fix.lend, &m, &g), 0);
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_REFUSED);
	end();
}

static void a_new_connection_ends_the_old(void **state)
{
	const struct lend_region *r;
	uint64_t tok;
	int x, y;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &r);
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(put(x, r, 100), IBV_WC_RETRY_EXC_ERR);
	y = dial(tok);
	assert_int_equal(put(y, r, 100), IBV_WC_SUCCESS);
	fake_verbs_hang_up(y);
	turn();
	assert_int_equal(put(y, r, 200), IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(lverbs_stats(fix.v)->connections, 0);
	assert_int_equal(lverbs_stats(fix.v)->disconnected, 1);
	/* The key stays good for the next one. */
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(put(dial(tok), r, 200), IBV_WC_SUCCESS);
	end();
}

static void what_is_freed_cannot_be_written(void **state)
{
	const struct log_free m = { .ino = 1, .epoch = 5, .data_epoch = 5,
				    .below = 1 };
	const struct log_free all = { .ino = 1, .epoch = 5, .data_epoch = 5,
				      .below = LOG_FREE_ALL };
	const struct lend_region *a, *b;
	struct lend_region old;
	int x;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &a);
	assert_int_equal(alloc(1, 1, &b), 0);
	old = *a;
	assert_int_equal(lend_release(fix.lend, &m), 0);
	assert_int_equal(put(x, &old, 100), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(put(x, b, 100), IBV_WC_SUCCESS);
	assert_int_equal(lend_release(fix.lend, &all), 0);
	assert_int_equal(fake_verbs_dialled(x), DIAL_GONE);
	assert_int_equal(fake_verbs_count().mrs, 0);
	assert_int_equal(fake_verbs_count().pds, 0);
	end();
}

static void without_the_device_nothing_is_granted(void **state)
{
	const struct lend_region *r;
	uint64_t tok;
	int x;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &r);
	fake_verbs_event_all(RDMA_CM_EVENT_DEVICE_REMOVAL);
	turn();
	assert_false(lverbs_there(fix.v));
	assert_int_equal(fake_verbs_dialled(x), DIAL_GONE);
	assert_int_equal(token(1, &tok), -EOPNOTSUPP);
	assert_int_equal(alloc(1, 1, &r), -EOPNOTSUPP);
	end();
	fake_verbs_reset();
	fake_verbs_no_device();
	assert_int_equal(begin(), -ENODEV);
	end();
}

/* A queue pair that has failed is ended, so that its writer hears of it; with
 * the device everything is. */
static void what_fails_in_the_device_is_heard(void **state)
{
	const struct lend_region *r;
	uint64_t tok;
	int x;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &r);
	fake_verbs_async(IBV_EVENT_PORT_ERR);
	turn();
	assert_int_equal(fake_verbs_dialled(x), DIAL_UP);
	fake_verbs_async(IBV_EVENT_QP_FATAL);
	turn();
	assert_int_equal(fake_verbs_dialled(x), DIAL_GONE);
	assert_int_equal(token(1, &tok), 0);
	x = dial(tok);
	assert_int_equal(put(x, r, 100), IBV_WC_SUCCESS);
	fake_verbs_async(IBV_EVENT_DEVICE_FATAL);
	turn();
	assert_int_equal(fake_verbs_dialled(x), DIAL_GONE);
	assert_false(lverbs_there(fix.v));
	assert_int_equal(lverbs_stats(fix.v)->events, 3);
	assert_int_equal(lverbs_stats(fix.v)->device, 0);
	assert_int_equal(fake_verbs_count().async_events, 0);
	end();
}

/* A key that does not end is of no use to anybody: no queue pair of its domain
 * is left, nor made. */
static void a_key_that_does_not_end_reaches_nothing(void **state)
{
	const struct log_free m = { .ino = 1, .epoch = 5, .data_epoch = 5,
				    .below = 1 };
	const struct lend_region *a, *b;
	struct lend_region old;
	uint64_t tok;
	int x;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(begin(), 0);
	x = writer(1, &a);
	assert_int_equal(alloc(1, 1, &b), 0);
	old = *a;
	fake_verbs_fail_at(1);
	assert_int_equal(lend_release(fix.lend, &m), 0);
	assert_true(fake_verbs_failed());
	assert_int_equal(lverbs_stats(fix.v)->stuck, 1);
	assert_int_not_equal(put(x, &old, 100), IBV_WC_SUCCESS);
	assert_int_equal(old.base[100], 0);
	assert_int_equal(token(1, &tok), 0);
	assert_int_equal(fake_verbs_dialled(dial(tok)), DIAL_REFUSED);
	end();
}

/* Each call of a short life fails once. */
static void each_call_fails_once(void **state)
{
	(void)state;
	for (uint64_t k = 1;; k++) {
		const struct log_fence m = { .ino = 1, .epoch = 6,
					     .data_epoch = 5 };
		const struct lend_region *r;
		const struct lend_log *g;
		uint64_t tok;
		int rv, x = -1;
		bool failed;

		fake_verbs_reset();
		fake_verbs_fail_at(k);
		rv = begin();
		failed = fake_verbs_failed();
		assert_int_equal(rv < 0, failed);
		if (rv == 0 && alloc(1, 0, &r) == 0) {
			if (token(1, &tok) == 0)
				x = dial(tok);
			if (x >= 0 && fake_verbs_dialled(x) == DIAL_UP)
				assert_int_equal(put(x, r, 100),
						 IBV_WC_SUCCESS);
			assert_int_equal(lend_fence(fix.lend, &m, &g), 0);
			if (x >= 0)
				assert_int_not_equal(put(x, r, 200),
						     IBV_WC_SUCCESS);
			assert_int_equal(r->base[200], 0);
		}
		failed = fake_verbs_failed();
		fake_verbs_fail_at(0);
		end();
		if (!failed)
			break;
		assert_true(k < 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_lands_in_its_region_alone),
		cmocka_unit_test(a_token_is_good_once_and_for_a_short_time),
		cmocka_unit_test(who_greets_wrongly_is_refused),
		cmocka_unit_test(a_fence_ends_queue_pair_and_keys),
		cmocka_unit_test(a_fence_ends_tokens),
		cmocka_unit_test(a_new_connection_ends_the_old),
		cmocka_unit_test(what_is_freed_cannot_be_written),
		cmocka_unit_test(without_the_device_nothing_is_granted),
		cmocka_unit_test(what_fails_in_the_device_is_heard),
		cmocka_unit_test(a_key_that_does_not_end_reaches_nothing),
		cmocka_unit_test(each_call_fails_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
