/* A daemon that is known by name, under a name service that is late, away, or
 * of another opinion: the connection is made as soon as it can be, and nothing
 * else on the net's thread waits for it.
 */
#include "common/rpc_priv.h"
#include "tests/lib/fake_names.h"
#include "tests/lib/rpc_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NAME "blockd.test"

/* The set-up's connection is done with; one to NAME takes its place. */
static void peer_by_name(struct rpc_fix *x, const char *addrs)
{
	rpc_peer_close(x->p);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	fake_names_set(NAME, addrs);
	assert_int_equal(rpc_peer_new(x->net, NAME, x->s.port, &rpc_fix_ops, x,
				      &x->p),
			 0);
}

/* The @nth call of a test, from 0. */
static void ping(struct rpc_fix *x, int nth)
{
	uint64_t id = (uint64_t)nth;
	struct test_call t;

	rpc_call_make(&t, id, 0, 0);
	rpc_send(x->p, &t.rpc);
	rpc_fix_serve(&x->c, id);
	rpc_log_wait('c', nth + 1);
	assert_int_equal(rpc_log_status('c', nth), 0);
}

static void a_name_may_become_known_later(void **state)
{
	struct rpc_fix *x = *state;

	peer_by_name(x, FAKE_NAMES_UNKNOWN);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 0), -EHOSTUNREACH);
	assert_int_equal(rpc_log_status('d', 1), -EHOSTUNREACH);
	fake_names_set(NAME, "127.0.0.1");
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 0);
}

static void every_address_is_tried_before_it_is_down(void **state)
{
	struct rpc_fix *x = *state;

	peer_by_name(x, "127.77.0.1 127.77.0.2 127.0.0.1");
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_log_wait('u', 2);
	assert_int_equal(rpc_log_count('d'), 0);
	ping(x, 0);
	fake_names_set(NAME, "127.77.0.1 127.77.0.2");
	tcp_close(&x->c);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 0), -ECONNRESET);
	assert_int_equal(rpc_log_status('d', 1), -ECONNREFUSED);
	fake_names_set(NAME, "127.77.0.1 127.0.0.1");
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 1);
}

static void a_daemon_that_moved_is_found(void **state)
{
	struct rpc_fix *x = *state;

	peer_by_name(x, "127.77.0.1");
	rpc_log_wait('d', 1);
	assert_int_equal(rpc_log_status('d', 0), -ECONNREFUSED);
	fake_names_set(NAME, "127.0.0.1");
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 0);
}

static void a_known_address_outlives_the_name_service(void **state)
{
	struct rpc_fix *x = *state;

	peer_by_name(x, "127.0.0.1");
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 0);
	fake_names_set(NAME, FAKE_NAMES_UNKNOWN);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 1);
	fake_names_set(NAME, FAKE_NAMES_SILENT);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	ping(x, 2);
	fake_names_set(NAME, FAKE_NAMES_UNKNOWN);
	fake_names_idle();
}

static void a_silent_name_service_holds_nobody_up(void **state)
{
	struct rpc_fix *x = *state;
	struct rpc_peer *by_name;
	unsigned asked;

	fake_names_set(NAME, FAKE_NAMES_SILENT);
	asked = fake_names_asked();
	assert_int_equal(rpc_peer_new(x->net, NAME, x->s.port, &rpc_fix_ops, x,
				      &by_name),
			 0);
	for (int i = 0; i < 100; i++)
		ping(x, i);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 0), -EHOSTUNREACH);
	assert_int_equal(rpc_log_status('d', 1), -EHOSTUNREACH);
	/* Each try waits for the same one. */
	assert_int_equal(fake_names_asked(), asked + 1);
	ping(x, 100);
}

/* The net of the test before has gone while it was asked. */
static void who_asked_may_be_gone(void **state)
{
	(void)state;
	fake_names_set(NAME, "127.0.0.1");
	fake_names_idle();
}

#define T(f) cmocka_unit_test_setup_teardown(f, rpc_fix_setup, rpc_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_name_may_become_known_later),
		T(every_address_is_tried_before_it_is_down),
		T(a_daemon_that_moved_is_found),
		T(a_known_address_outlives_the_name_service),
		T(a_silent_name_service_holds_nobody_up),
		cmocka_unit_test(who_asked_may_be_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
