/* Answers that a caller takes in itself, against a daemon played by the test:
 * who hears them, and that none is forgotten.
 *
 * Method: the daemon is played by the calling thread between rpc_help_begin()
 * and rpc_help(), so what it sent is in the socket when the latter looks.
 */
#include "common/rpc_priv.h"
#include "tests/lib/rpc_fix.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static pthread_t heard_by;

static void heard(struct rpc_call *call, int status, const struct rpc_frame *f)
{
	struct test_call *t = container_of(call, struct test_call, rpc);

	(void)f;
	heard_by = pthread_self();
	rpc_log_add('c', t->id, status);
}

static void make(struct test_call *t, uint64_t id, uint32_t flags)
{
	rpc_call_make(t, id, flags, 0);
	t->rpc.cb = heard;
}

/* Until the loop sleeps. */
static void loop_waits(struct rpc_fix *x)
{
	while (!rpc_peer_is_up(x->p) || atomic_load(&x->net->wake_ms) == 0)
		usleep(100);
}

static bool by_me(void)
{
	return pthread_equal(heard_by, pthread_self());
}

/* A call whose answer is there before rpc_help(). */
static void helped_call(struct rpc_fix *x, uint64_t id)
{
	struct test_call t;

	make(&t, id, 0);
	loop_waits(x);
	assert_true(rpc_help_begin(x->net));
	rpc_send(x->p, &t.rpc);
	rpc_fix_serve(&x->c, id);
	rpc_help(x->net);
	rpc_log_wait('c', (int)id);
	assert_true(by_me());
}

static void a_caller_that_helps_hears_its_answer(void **state)
{
	struct rpc_fix *x = *state;

	for (uint64_t i = 1; i <= 20; i++)
		helped_call(x, i);
	assert_int_equal(rpc_fix_stats(x).helps, 20);
	assert_int_equal(rpc_fix_stats(x).help_hits, 20);
}

/* Its core may be taken away from it meanwhile. */
static void an_answer_that_is_there_is_in_time(void **state)
{
	struct rpc_fix *x = *state;

	rpc_set_spin(x->net, 1);
	for (uint64_t i = 1; i <= 200; i++)
		helped_call(x, i);
	assert_int_equal(rpc_fix_stats(x).help_hits, 200);
}

static void without_one_the_loop_hears_it(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	helped_call(x, 1); /* the loop is not woken from here on */
	assert_true(atomic_load(&x->net->quiet));
	make(&t, 2, 0);
	rpc_send(x->p, &t.rpc);
	rpc_fix_serve(&x->c, 2);
	rpc_log_wait('c', 2);
	assert_false(by_me());
}

/* Callbacks, which hold the turn, take locks that senders may hold. */
static void a_sender_does_not_wait_for_a_callback(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	helped_call(x, 1);
	loop_waits(x);
	make(&t, 2, 0);
	pthread_mutex_lock(&x->net->turn);
	rpc_send(x->p, &t.rpc);
	pthread_mutex_unlock(&x->net->turn);
	rpc_fix_serve(&x->c, 2);
	rpc_log_wait('c', 2);
	assert_false(by_me());
}

static void one_that_waits_too_long_leaves_it_to_the_loop(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	helped_call(x, 1);
	make(&t, 2, 0);
	assert_true(rpc_help_begin(x->net));
	rpc_send(x->p, &t.rpc);
	rpc_help(x->net);
	rpc_fix_serve(&x->c, 2);
	rpc_log_wait('c', 2);
	assert_false(by_me());
	assert_int_equal(rpc_fix_stats(x).help_hits, 1);
}

static void there_is_one_at_a_time(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[2];

	loop_waits(x);
	assert_true(rpc_help_begin(x->net));
	assert_false(rpc_help_begin(x->net));
	/* It sees to the other's answer, too. */
	for (uint64_t i = 0; i < 2; i++) {
		make(&t[i], i, 0);
		rpc_send(x->p, &t[i].rpc);
		rpc_fix_serve(&x->c, i);
	}
	rpc_help(x->net);
	rpc_log_wait('c', 2);
	assert_true(by_me());
	assert_true(rpc_help_begin(x->net));
	rpc_help(x->net); /* nothing was sent */
	assert_int_equal(rpc_fix_stats(x).helps, 1);
}

static void where_it_does_not_pay_it_is_seldom_tried(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call slow;
	struct frame *f;
	int tried = 0;

	make(&slow, 0, 0);
	rpc_send(x->p, &slow.rpc);
	f = tcp_recv(&x->c);
	/* The loop, which sent it, may not have counted it yet. */
	while (atomic_load(&x->net->helped_in_flight) == 0)
		usleep(100);
	for (int i = 0; i < 1000; i++)
		if (rpc_help_begin(x->net)) {
			rpc_help(x->net);
			tried++;
		}
	assert_in_range(tried, 16, 16 + 1000 / 64 + 1);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	rpc_log_wait('c', 1);
	rpc_set_spin(x->net, 0);
	assert_false(rpc_help_begin(x->net));
}

/* What a helper finds is the loop's to mend. */
static void a_connection_that_ends_under_a_helper_is_made_anew(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t, again;

	helped_call(x, 1);
	make(&t, 2, 0);
	make(&again, 3, RPC_F_RETRY);
	assert_true(rpc_help_begin(x->net));
	rpc_send(x->p, &t.rpc);
	rpc_send(x->p, &again.rpc);
	frame_free(tcp_recv(&x->c));
	tcp_close(&x->c);
	rpc_help(x->net);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_fix_serve(&x->c, 3);
	rpc_log_wait('c', 3);
	assert_int_equal(rpc_log_status('c', 1), -ECONNRESET);
	assert_int_equal(rpc_log_status('c', 2), 0);
	assert_int_equal(rpc_log_count('d'), 1);
	helped_call(x, 4);
}

static void a_bad_frame_under_a_helper_breaks_the_connection(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;
	struct frame *f;

	helped_call(x, 1);
	make(&t, 2, RPC_F_RETRY);
	assert_true(rpc_help_begin(x->net));
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	f->h.opcode = WIRE_OP_BLK_READ;
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	rpc_help(x->net);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_fix_serve(&x->c, 2);
	rpc_log_wait('c', 2);
	assert_int_equal(rpc_log_status('d', 0), -EBADMSG);
}

#define t(fn)                                                           \
	cmocka_unit_test_setup_teardown(fn, rpc_fix_setup_helped,       \
					rpc_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(a_caller_that_helps_hears_its_answer),
		t(an_answer_that_is_there_is_in_time),
		t(without_one_the_loop_hears_it),
		t(a_sender_does_not_wait_for_a_callback),
		t(one_that_waits_too_long_leaves_it_to_the_loop),
		t(there_is_one_at_a_time),
		t(where_it_does_not_pay_it_is_seldom_tried),
		t(a_connection_that_ends_under_a_helper_is_made_anew),
		t(a_bad_frame_under_a_helper_breaks_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
