/* What dead sessions left in logs: one session at a time recovers it, and until
 * then nobody uses the files. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define ROOT ROOT_INO

static const struct meta_log_peer abc[] = { { 1, 11 }, { 2, 12 }, { 3, 13 } };

/* A file with a log of @c's. */
static uint64_t with_log(struct sm_client *c, const char *name)
{
	uint64_t ino;

	for (uint32_t id = 1; id <= 3; id++)
		assert_int_equal(sm_client_logd(c, id, 10 + id), 0);
	ino = SM_INO(c, sm_client_file(c, ROOT, name));
	assert_int_equal(sm_client_lease(c, ino), 0);
	assert_int_equal(sm_client_log_set(c, ino, 0, 0, abc, 3), 0);
	return ino;
}

static void dies(struct sm_client *by, struct sm_client *c)
{
	assert_int_equal(sm_client_close(by, c->session, 1), 0);
	assert_int_equal(sm_client_close(by, c->session, 2), 0);
}

static void there_is_one_heir(void **state)
{
	struct sm_client *c = *state, d, e;
	uint64_t ino = with_log(c, "wal");

	sm_client_join(&d, c->sm);
	sm_client_join(&e, c->sm);
	assert_false(sm_log_left(c->sm));
	dies(&d, c);
	assert_true(sm_log_left(c->sm));
	assert_int_equal(sm_log_heir(c->sm), 0);
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	assert_int_equal(sm_log_heir(c->sm), d.session);
	assert_int_equal(sm_client_log_heir(&e, true), -EBUSY);
	assert_int_equal(sm_client_log_heir(&e, false), 0);
	assert_int_equal(sm_log_heir(c->sm), d.session);
	assert_int_equal(sm_client_log_raise(&e, ino), -EBUSY);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_false(sm_log_left(c->sm));
	assert_int_equal(sm_client_log_heir(&d, false), 0);
	assert_int_equal(sm_client_log_heir(&e, true), 0);
	/* It dies over it. */
	assert_int_equal(sm_client_close(&d, e.session, 1), 0);
	assert_int_equal(sm_client_log_heir(&d, true), -EBUSY);
	assert_int_equal(sm_client_close(&d, e.session, 2), 0);
	assert_int_equal(sm_log_heir(c->sm), 0);
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	sm_client_leave(&d);
	sm_client_leave(&e);
}

static void the_heir_outlives_a_snapshot(void **state)
{
	struct sm_client *c = *state;
	struct sm *copy = sm_new();
	uint8_t *snap;
	size_t len, without;

	assert_non_null(copy);
	snap = sm_client_snapshot(c->sm, &without);
	free(snap);
	assert_int_equal(sm_client_log_heir(c, true), 0);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_int_equal(sm_log_heir(copy), c->session);
	assert_true(sm_verify(copy));
	sm_free(copy);
	assert_true(len > without); /* as before there were heirs */
	assert_int_equal(sm_client_log_heir(c, false), 0);
	assert_true(sm_verify(c->sm));
}

static void nobody_leases_what_has_anothers_log(void **state)
{
	struct sm_client *c = *state, d, e;
	uint64_t ino = with_log(c, "wal");

	sm_client_join(&d, c->sm);
	sm_client_join(&e, c->sm);
	dies(&d, c);
	assert_int_equal(sm_client_lease(&d, ino), -EBUSY);
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(sm_client_lease(&e, ino), -EBUSY);
	assert_int_equal(sm_client_lease(&d, ino), 0);
	assert_int_equal(sm_client_log_drop(&d, ino, d.log.epoch), 0);
	assert_int_equal(sm_client_give_back(&d, ino, META_RETURN_LEASE), 0);
	assert_int_equal(sm_client_lease(&e, ino), 0);
	sm_client_leave(&d);
	sm_client_leave(&e);
}

static void assert_way(const struct sm_client *of, uint64_t ino,
		       enum sm_log_way way)
{
	assert_int_equal(sm_log_way(of->sm, ino, of->session), way);
}

static void who_may_use_it(void **state)
{
	struct sm_client *c = *state, d, e;
	uint64_t ino = with_log(c, "wal");
	uint64_t other = SM_INO(c, sm_client_file(c, ROOT, "other"));

	sm_client_join(&d, c->sm);
	sm_client_join(&e, c->sm);
	/* As any file of which another has the lease. */
	assert_way(c, ino, SM_LOG_FREE);
	assert_way(&d, ino, SM_LOG_FREE);
	dies(&d, c);
	assert_way(&d, ino, SM_LOG_WAIT);
	assert_way(&d, other, SM_LOG_FREE);
	/* Also for programs of the mount that recovers it. */
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_way(&d, ino, SM_LOG_WAIT);
	assert_way(&e, ino, SM_LOG_WAIT);
	assert_int_equal(sm_client_lease(&d, ino), 0);
	assert_way(&d, ino, SM_LOG_WAIT);
	assert_int_equal(sm_client_give_back(&d, ino, META_RETURN_LEASE), 0);
	/* It could not. */
	assert_int_equal(sm_client_log_heir(&d, false), 0);
	assert_way(&e, ino, SM_LOG_LOST);
	assert_way(&d, ino, SM_LOG_FREE);
	/* What the heir logs itself is as anybody's. */
	other = with_log(&d, "third");
	assert_int_equal(sm_client_log_heir(&d, true), 0);
	assert_way(&d, other, SM_LOG_FREE);
	assert_way(&e, other, SM_LOG_FREE);
	/* The next one may. */
	dies(&e, &d);
	assert_way(&e, ino, SM_LOG_WAIT);
	assert_int_equal(sm_client_log_heir(&e, true), 0);
	assert_int_equal(sm_client_log_raise(&e, ino), 0);
	assert_int_equal(sm_client_log_drop(&e, ino, e.log.epoch), 0);
	assert_way(&e, ino, SM_LOG_FREE);
	sm_client_leave(&d);
	sm_client_leave(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(there_is_one_heir),
		SM_TEST(the_heir_outlives_a_snapshot),
		SM_TEST(nobody_leases_what_has_anothers_log),
		SM_TEST(who_may_use_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
