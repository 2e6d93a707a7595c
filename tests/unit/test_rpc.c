/* The client side of the protocol against a daemon played by the test: what a
 * call brings, when it ends, and the timers.
 */
#include "common/rpc_priv.h"
#include "tests/lib/fail_malloc.h"
#include "tests/lib/rpc_fix.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void hello_says_who_we_are(void **state)
{
	struct rpc_fix *x = *state;

	assert_int_equal(x->c.session, 5);
	assert_true(x->c.incarnation > 1700000000000000000u);
	assert_int_equal(rpc_log_id('u', 0), x->s.boot_id);
	/* up() runs before the peer is said to be up */
	for (int i = 0; i < 1000 && !rpc_peer_is_up(x->p); i++)
		usleep(1000);
	assert_true(rpc_peer_is_up(x->p));
}

static void a_reply_brings_status_body_and_aligned_data(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;
	struct frame *f;
	uint8_t *data = malloc(1 << 20);
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .status = -ENOSPC,
			       .body = "abc", .body_len = 3, .data = data,
			       .data_len = 1 << 20 };

	for (int i = 0; i < 1 << 20; i++)
		data[i] = (uint8_t)(i * 13 >> 3);
	rpc_call_make(&t, 9, 0, 0);
	t.keep = true;
	rpc_set_epoch(x->net, 3);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	assert_int_equal(f->h.opcode, WIRE_OP_PING);
	assert_int_equal(f->h.flags, 0);
	assert_int_equal(f->h.cluster_id, 77);
	assert_int_equal(f->h.session, 5);
	assert_int_equal(f->h.epoch, 3);
	assert_int_equal(rpc_fix_number(f), 9);
	r.request_id = f->h.request_id;
	tcp_reply(&x->c, &r);
	frame_free(f);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_status('c', 0), -ENOSPC);
	assert_non_null(t.frame);
	assert_int_equal(t.frame->h.body_len, 3);
	assert_memory_equal(t.frame->body, "abc", 3);
	assert_memory_equal(t.frame->data, data, 1 << 20);
	assert_int_equal((uintptr_t)t.frame->data % FRAME_DATA_ALIGN, 0);
	rpc_frame_free(t.frame);
	free(data);
}

static void bulk_data_is_gathered(void **state)
{
	struct rpc_fix *x = *state;
	enum { PIECES = 500, PIECE = 4099 };
	struct iovec iov[PIECES];
	uint8_t *data = malloc((size_t)PIECES * PIECE);
	struct test_call t;
	struct frame *f;

	for (size_t i = 0; i < (size_t)PIECES * PIECE; i++)
		data[i] = (uint8_t)(i * 7 >> 2);
	for (size_t i = 0; i < PIECES; i++)
		iov[i] = (struct iovec){ data + i * PIECE, PIECE };
	rpc_call_make(&t, 1, 0, 0);
	t.rpc.iov = iov;
	t.rpc.iov_count = PIECES;
	t.rpc.data_len = PIECES * PIECE;
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	assert_int_equal(f->h.data_len, PIECES * PIECE);
	assert_memory_equal(f->data, data, (size_t)PIECES * PIECE);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	rpc_log_wait('c', 1);
	free(data);
}

static void replies_out_of_order_find_their_calls(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[5];
	struct frame *f[5];

	for (uint64_t i = 0; i < 5; i++) {
		rpc_call_make(&t[i], i, 0, 0);
		rpc_send(x->p, &t[i].rpc);
	}
	for (uint64_t i = 0; i < 5; i++) {
		f[i] = tcp_recv(&x->c);
		assert_int_equal(rpc_fix_number(f[i]), i);
	}
	for (int i = 4; i >= 0; i--) {
		tcp_answer(&x->c, f[i], i == 2 ? -ENOENT : 0);
		frame_free(f[i]);
	}
	rpc_log_wait('c', 5);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(rpc_log_id('c', i), 4 - i);
		assert_int_equal(rpc_log_status('c', i), i == 2 ? -ENOENT : 0);
	}
}

static void a_reply_byte_by_byte_arrives(void **state)
{
	struct rpc_fix *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .body = "hello",
			       .body_len = 5, .data = "world", .data_len = 5 };
	struct test_call t;
	struct frame *f;
	uint8_t *p;
	size_t len;

	rpc_call_make(&t, 1, 0, 0);
	t.keep = true;
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	r.request_id = f->h.request_id;
	frame_free(f);
	p = tcp_encode(&x->c, &r, &len);
	for (size_t i = 0; i < len; i++) {
		tcp_write(&x->c, p + i, 1);
		if (i % 8 == 0)
			usleep(200);
	}
	free(p);
	rpc_log_wait('c', 1);
	assert_memory_equal(t.frame->body, "hello", 5);
	assert_memory_equal(t.frame->data, "world", 5);
	rpc_frame_free(t.frame);
}

static void a_deadline_ends_a_call_and_its_late_reply_is_dropped(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[2];
	struct frame *f;

	rpc_call_make(&t[0], 0, RPC_F_RETRY, 20);
	rpc_send(x->p, &t[0].rpc);
	f = tcp_recv(&x->c);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_status('c', 0), -ETIMEDOUT);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	rpc_call_make(&t[1], 1, 0, 10000);
	rpc_send(x->p, &t[1].rpc);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 2);
	assert_int_equal(rpc_log_status('c', 1), 0);
	assert_int_equal(rpc_fix_stats(x).unknown_replies, 1);
	assert_int_equal(rpc_fix_stats(x).timeouts, 1);
	assert_int_equal(rpc_fix_stats(x).losses, 0);
}

static void deadlines_of_many_calls_are_kept(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[50];
	struct timespec a, b;
	int64_t ms;

	clock_gettime(CLOCK_MONOTONIC, &a);
	/* Long ones first: a sleeping loop must be told of the shorter. */
	for (uint64_t i = 0; i < 50; i++) {
		rpc_call_make(&t[i], i, 0, i == 0 ? 100000 : 300 - 5 * i);
		rpc_send(x->p, &t[i].rpc);
	}
	rpc_log_wait('c', 49);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
	assert_in_range(ms, 290, 5000);
	for (int i = 0; i < 49; i++)
		assert_int_equal(rpc_log_status('c', i), -ETIMEDOUT);
	for (uint64_t id = 1; id < 50; id++)
		assert_true(rpc_log_has('c', 49, id));
}

static void closing_a_peer_cancels_its_calls(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[4];

	for (uint64_t i = 0; i < 3; i++) {
		rpc_call_make(&t[i], i, i == 1 ? RPC_F_RETRY : 0, 60000);
		rpc_send(x->p, &t[i].rpc);
	}
	frame_free(tcp_recv(&x->c));
	rpc_call_make(&t[3], 3, 0, 0);
	rpc_queue(x->p, &t[3].rpc); /* never kicked */
	rpc_peer_close(x->p);
	rpc_log_wait('c', 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(rpc_log_status('c', i), -ECANCELED);
	tcp_wait_end(&x->c);
	assert_int_equal(rpc_log_count('d'), 0);
}

static void freeing_the_net_cancels_calls(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[2];

	rpc_call_make(&t[0], 0, RPC_F_RETRY, 0);
	rpc_send(x->p, &t[0].rpc);
	frame_free(tcp_recv(&x->c));
	rpc_call_make(&t[1], 1, 0, 0);
	rpc_queue(x->p, &t[1].rpc);
	rpc_net_free(x->net);
	x->net = NULL;
	assert_int_equal(rpc_log_count('c'), 2);
	assert_int_equal(rpc_log_status('c', 0), -ECANCELED);
	assert_int_equal(rpc_log_status('c', 1), -ECANCELED);
}

static void a_larger_epoch_is_told_once(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	rpc_set_epoch(x->net, 10);
	for (uint64_t i = 0; i < 4; i++) {
		x->s.epoch = 9 + i / 2 * 2; /* 9 9 11 11 */
		rpc_call_make(&t, i, 0, 0);
		rpc_send(x->p, &t.rpc);
		rpc_fix_serve(&x->c, i);
		rpc_log_wait('c', (int)i + 1);
	}
	assert_int_equal(rpc_log_count('e'), 1);
	assert_int_equal(rpc_log_id('e', 0), 11);
}

struct test_timer {
	struct rpc_timer t;
	uint64_t id;
};

static void timer_fn(struct rpc_timer *t)
{
	rpc_log_add('t', container_of(t, struct test_timer, t)->id, 0);
}

static void timers_run_in_order_unless_stopped(void **state)
{
	static const uint64_t delays_ms[] = { 60, 20, 40, 5000, 30 };
	struct rpc_fix *x = *state;
	struct test_timer t[5];

	memset(t, 0, sizeof(t));
	for (uint64_t i = 0; i < 5; i++) {
		t[i].id = i;
		t[i].t.fn = timer_fn;
		rpc_timer_start(x->net, &t[i].t, delays_ms[i]);
	}
	assert_true(rpc_timer_stop(x->net, &t[3].t));
	assert_false(rpc_timer_stop(x->net, &t[3].t));
	rpc_timer_start(x->net, &t[2].t, 1); /* moved */
	rpc_log_wait('t', 4);
	assert_int_equal(rpc_log_id('t', 0), 2);
	assert_int_equal(rpc_log_id('t', 1), 1);
	assert_int_equal(rpc_log_id('t', 2), 4);
	assert_int_equal(rpc_log_id('t', 3), 0);
	assert_false(rpc_timer_stop(x->net, &t[0].t));
}

static void *answer_one(void *arg)
{
	struct rpc_fix *x = arg;
	struct frame *f = tcp_recv(&x->c);
	struct tcp_reply r = { .opcode = f->h.opcode, .body = "xyz",
			       .request_id = f->h.request_id, .body_len = 3 };

	tcp_reply(&x->c, &r);
	frame_free(f);
	return NULL;
}

static void a_blocking_call_returns_the_frame(void **state)
{
	struct rpc_fix *x = *state;
	struct rpc_frame *f;
	pthread_t th;

	pthread_create(&th, NULL, answer_one, x);
	assert_int_equal(rpc_call_wait(x->p, WIRE_OP_ADMIN_STATS, NULL, 0,
				       5000, &f), 0);
	pthread_join(th, NULL);
	assert_int_equal(f->h.body_len, 3);
	assert_memory_equal(f->body, "xyz", 3);
	rpc_frame_free(f);
	assert_int_equal(rpc_call_wait(x->p, WIRE_OP_ADMIN_STATS, NULL, 0, 20,
				       &f), -ETIMEDOUT);
}

static void no_memory_at_the_start_is_told(void **state)
{
	struct rpc_identity id = { .role = WIRE_ROLE_ADMIN };
	struct rpc_fix *x = *state;
	struct rpc_peer *p = NULL;
	struct rpc_net *n = NULL;
	unsigned nth;
	int rv;

	for (nth = 1;; nth++) {
		fail_malloc_at(nth);
		rv = rpc_net_new(&id, &n);
		if (!fail_malloc_hit())
			break;
		assert_true(rv < 0);
	}
	assert_int_equal(rv, 0);
	for (nth = 1;; nth++) {
		fail_malloc_at(nth);
		rv = rpc_peer_new(n, "127.0.0.1", x->s.port, &rpc_fix_ops, x,
				  &p);
		if (!fail_malloc_hit())
			break;
		assert_true(rv < 0);
	}
	assert_int_equal(rv, 0);
	rpc_net_free(n);
}

#define t(fn)                                                                \
	cmocka_unit_test_setup_teardown(fn, rpc_fix_setup, rpc_fix_teardown), \
	{ #fn " (mac)", fn, rpc_fix_setup_mac, rpc_fix_teardown, NULL },     \
	{ #fn " (crypt)", fn, rpc_fix_setup_crypt, rpc_fix_teardown, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(hello_says_who_we_are),
		t(a_reply_brings_status_body_and_aligned_data),
		t(bulk_data_is_gathered),
		t(replies_out_of_order_find_their_calls),
		t(a_reply_byte_by_byte_arrives),
		t(a_deadline_ends_a_call_and_its_late_reply_is_dropped),
		t(deadlines_of_many_calls_are_kept),
		t(closing_a_peer_cancels_its_calls),
		t(freeing_the_net_cancels_calls),
		t(a_larger_epoch_is_told_once),
		t(timers_run_in_order_unless_stopped),
		t(a_blocking_call_returns_the_frame),
		t(no_memory_at_the_start_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
