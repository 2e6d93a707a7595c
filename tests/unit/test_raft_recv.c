/* What libraft gets of other members' messages.
 *
 * Its vtable is played: each message goes through metaraft_recv_init()'s hook
 * to where libraft would take it, and what libraft would see then is looked at.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "metad/raft_priv.h"

#define SLOW_MS 30u

static struct metaraft m;
static raft_io_recv_cb hook;
static uint64_t seen_ms; /* libraft's time when it got the last message */

static int fake_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
		      raft_io_recv_cb recv)
{
	(void)io;
	(void)msecs;
	(void)tick;
	hook = recv;
	return 0;
}

static void fake_recv(struct raft_io *io, struct raft_message *msg)
{
	(void)io;
	(void)msg;
	seen_ms = uv_now(m.loop); /* as libraft's time() is */
}

static void a_promise_begins_when_the_message_is_taken(void **state)
{
	struct raft_message msg = { .type = RAFT_IO_APPEND_ENTRIES };
	uint64_t start_ms;
	uv_loop_t loop;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	m.loop = &loop;
	m.io.start = fake_start;
	metaraft_recv_init(&m);
	assert_int_equal(m.io.start(&m.io, 0, NULL, fake_recv), 0);
	start_ms = uv_now(&loop);
	/* Something else of this turn takes long. */
	uv_sleep(SLOW_MS);
	hook(&m.io, &msg);
	assert_true(seen_ms >= start_ms + SLOW_MS - 1);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_promise_begins_when_the_message_is_taken),
	};

	return cmocka_run_group_tests_name("raft_recv", tests, NULL, NULL);
}
