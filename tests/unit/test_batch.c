/* Commands of the log: what another minor of the protocol appended to one is
 * executed by all members of a group or by none.
 */
#include "metad/raft.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/sm_fixture.h"

/* A batch of one command, with @more bytes behind its fields. */
static size_t batch_make(uint8_t *buf, size_t cap, const struct sm_client *c,
			 uint64_t number, size_t more)
{
	struct wire_out o;

	wire_out_init(&o, buf, cap);
	wire_put_u64(&o, number);
	wire_put_u32(&o, 1);
	wire_put_u16(&o, c->op);
	wire_put_u16(&o, 0);
	wire_put_u32(&o, (uint32_t)(c->body_len + more));
	wire_put_u64(&o, c->session);
	wire_put_raw(&o, c->body, c->body_len);
	while (more-- > 0)
		wire_put_u8(&o, 1);
	while (o.len % METARAFT_BATCH_ALIGN)
		wire_put_u8(&o, 0);
	assert_false(o.overflow);
	return o.len;
}

static void a_command_that_is_longer_than_this_minors_is_refused(void **state)
{
	static uint8_t buf[4096];
	struct sm_client c, twin;
	uint64_t pos, number;
	size_t len;

	(void)state;
	sm_client_init(&c);
	sm_client_init(&twin);
	/* The same that is then given to the twin. */
	assert_int_equal(sm_client_file(&c, ROOT_INO, "f"), 0);
	pos = sm_pos(twin.sm);
	number = sm_batch(twin.sm) + 1;
	len = batch_make(buf, sizeof(buf), &c, number, 8);
	assert_int_equal(metaraft_batch_apply(twin.sm, buf, len),
			 -EPROTONOSUPPORT);
	assert_int_equal(sm_pos(twin.sm), pos);
	assert_int_equal(sm_client_lookup(&twin, ROOT_INO, "f"), -ENOENT);
	len = batch_make(buf, sizeof(buf), &c, number, 0);
	assert_int_equal(metaraft_batch_apply(twin.sm, buf, len), 0);
	assert_int_equal(sm_client_lookup(&twin, ROOT_INO, "f"), 0);
	sm_client_fini(&c);
	sm_client_fini(&twin);
}

static void a_leader_cuts_off_what_it_does_not_know(void **state)
{
	uint8_t *longer;
	struct sm_client c;

	(void)state;
	sm_client_init(&c);
	assert_int_equal(sm_client_file(&c, ROOT_INO, "f"), 0);
	longer = calloc(1, c.body_len + 8);
	assert_non_null(longer);
	memcpy(longer, c.body, c.body_len);
	for (size_t more = 0; more <= 8; more++)
		assert_int_equal(sm_body_known(c.op, longer, c.body_len + more,
					       WIRE_MINOR), c.body_len);
	/* Nothing is behind nothing. */
	assert_int_equal(sm_body_known(c.op, longer, 3, WIRE_MINOR), 3);
	assert_int_equal(sm_body_known(c.op, longer, 0, WIRE_MINOR), 0);
	free(longer);
	sm_client_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_command_that_is_longer_than_this_minors_is_refused),
		cmocka_unit_test(a_leader_cuts_off_what_it_does_not_know),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
