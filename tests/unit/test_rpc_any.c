/* A peer that is at one of several places, each played by the test: it is found
 * where it is, followed when it goes, and its user is told of nothing but what
 * counts.
 */
#include "common/rpc_priv.h"
#include "tests/lib/rpc_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PLACES 3u

static struct tcp_server places[PLACES];

static int setup(void **state)
{
	for (unsigned i = 0; i < PLACES; i++) {
		tcp_server_init(&places[i]);
		places[i].cluster_id = 77;
		places[i].boot_id = 100 + i;
	}
	return rpc_fix_setup(state);
}

static int teardown(void **state)
{
	int rv = rpc_fix_teardown(state);

	for (unsigned i = 0; i < PLACES; i++)
		tcp_server_stop(&places[i]);
	return rv;
}

/* The set-up's connection is done with; one to the places takes its place. */
static void peer_any(struct rpc_fix *x)
{
	struct rpc_at at[PLACES];

	rpc_peer_close(x->p);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	for (unsigned i = 0; i < PLACES; i++)
		at[i] = (struct rpc_at){ "127.0.0.1", places[i].port };
	assert_int_equal(rpc_peer_new_any(x->net, at, PLACES, &rpc_fix_ops, x,
					  &x->p),
			 0);
}

/* Somebody comes to place @i and is told @status. */
static void refuse_at(unsigned i, int status)
{
	struct tcp_conn c;

	tcp_accept_hello(&places[i], &c, status);
	tcp_wait_end(&c);
	tcp_close(&c);
}

/* It is up at place @i, as the @nth connection, from 1 (the set-up's is 0). */
static void up_at(struct rpc_fix *x, unsigned i, int nth)
{
	tcp_accept_hello(&places[i], &x->c, 0);
	rpc_log_wait('u', nth + 1);
	assert_int_equal(rpc_log_id('u', nth), 100 + i);
}

static void it_is_found_where_it_is(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	tcp_server_stop(&places[0]);
	peer_any(x);
	rpc_call_make(&t, 1, 0, 0);
	rpc_send(x->p, &t.rpc);
	refuse_at(1, -EREMCHG);
	up_at(x, 2, 1);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_status('c', 0), 0);
	assert_int_equal(rpc_log_count('d'), 0);
}

static void a_round_in_vain_is_told_once(void **state)
{
	struct rpc_fix *x = *state;

	tcp_server_stop(&places[0]);
	tcp_server_stop(&places[2]);
	peer_any(x);
	refuse_at(1, -EREMCHG);
	rpc_log_wait('d', 1);
	assert_int_equal(rpc_log_status('d', 0), -EREMCHG);
	refuse_at(1, -EXDEV);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 1), -EXDEV);
	refuse_at(1, -EREMCHG);
	rpc_log_wait('d', 3);
	assert_int_equal(rpc_log_status('d', 2), -EREMCHG);
	tcp_server_stop(&places[1]);
	rpc_log_wait('d', 20);
	assert_int_equal(rpc_log_status('d', 19), -ECONNREFUSED);
	assert_int_equal(rpc_log_id('d', 19), RPC_BACKOFF_ANY_MAX_MS);
	tcp_server_again(&places[2]);
	up_at(x, 2, 1);
}

static void after_a_loss_the_next_one_is_tried(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[2];

	peer_any(x);
	up_at(x, 0, 1);
	rpc_call_make(&t[0], 0, RPC_F_RETRY, 0);
	rpc_call_make(&t[1], 1, 0, 0);
	rpc_send(x->p, &t[0].rpc);
	rpc_send(x->p, &t[1].rpc);
	frame_free(tcp_recv(&x->c));
	frame_free(tcp_recv(&x->c));
	tcp_close(&x->c);
	refuse_at(1, -EREMCHG);
	up_at(x, 2, 2);
	assert_int_equal(rpc_log_count('d'), 1);
	assert_int_equal(rpc_log_status('d', 0), -ECONNRESET);
	rpc_fix_serve(&x->c, 0);
	rpc_log_wait('c', 2);
	assert_int_equal(rpc_log_id('c', 0), 1);
	assert_int_equal(rpc_log_status('c', 0), -ECONNRESET);
	assert_int_equal(rpc_log_status('c', 1), 0);
	tcp_close(&x->c);
	up_at(x, 0, 3);
}

static void a_reset_stays_and_next_moves(void **state)
{
	struct rpc_fix *x = *state;

	peer_any(x);
	up_at(x, 0, 1);
	for (int i = 0; i < 3; i++) {
		rpc_peer_reset(x->p);
		tcp_wait_end(&x->c);
		tcp_close(&x->c);
		up_at(x, 0, 2 + i);
	}
	for (int i = 0; i < 4; i++) {
		rpc_peer_next(x->p);
		tcp_wait_end(&x->c);
		tcp_close(&x->c);
		up_at(x, (unsigned)(1 + i) % PLACES, 5 + i);
	}
	assert_int_equal(rpc_log_count('d'), 7);
}

/* Who leads said so, and nobody else will say otherwise. */
static void who_is_fenced_hears_it_at_once(void **state)
{
	struct rpc_fix *x = *state;

	peer_any(x);
	refuse_at(0, -EREMCHG);
	refuse_at(1, -ESTALE);
	rpc_log_wait('d', 1);
	assert_int_equal(rpc_log_status('d', 0), -ESTALE);
	refuse_at(1, -ESTALE);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 1), -ESTALE);
}

/* It listens, but a stopped process says nothing; the more patience in the next
 * round. */
static void who_says_nothing_is_passed_by(void **state)
{
	struct rpc_fix *x = *state;
	uint64_t from_ms = rpc_now_ms();
	struct tcp_conn silent;

	peer_any(x);
	for (uint64_t round = 1; round < 3; round++) {
		tcp_accept(&places[0], &silent);
		refuse_at(1, -EREMCHG);
		assert_true(rpc_now_ms() - from_ms >= round * RPC_HELLO_ANY_MS);
		tcp_wait_end(&silent);
		tcp_close(&silent);
		refuse_at(2, -EREMCHG);
		rpc_log_wait('d', (int)round);
		from_ms = rpc_now_ms();
	}
	refuse_at(0, -EREMCHG);
	up_at(x, 1, 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_found_where_it_is),
		T(a_round_in_vain_is_told_once),
		T(after_a_loss_the_next_one_is_tried),
		T(a_reset_stays_and_next_moves),
		T(who_is_fenced_hears_it_at_once),
		T(who_says_nothing_is_passed_by),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
