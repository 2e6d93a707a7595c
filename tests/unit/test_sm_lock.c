/* Locks in the metadata state machine: against common/lock_table.c, which has a
 * model of its own, and what sessions, snapshots and retries do to them. */
#include "tests/lib/sm_fixture.h"

#include "common/lock_table.h"
#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

static struct meta_lock posix(uint64_t ino, enum lock_type type,
			      uint64_t start, uint64_t end, uint64_t owner)
{
	return (struct meta_lock){ .ino = ino, .kind = LOCK_KIND_POSIX,
				   .type = (uint8_t)type, .start = start,
				   .end = end, .owner = owner,
				   .pid = (uint32_t)owner + 1000 };
}

static struct meta_lock flock_of(uint64_t ino, enum lock_type type,
				 uint64_t owner)
{
	return (struct meta_lock){ .ino = ino, .kind = LOCK_KIND_FLOCK,
				   .type = (uint8_t)type, .end = UINT64_MAX,
				   .owner = owner };
}

/* Returns 1: taken; 0: somebody has it; or -errno. */
static int lock(struct sm_client *c, struct meta_lock m)
{
	struct meta_lock_reply got;
	uint8_t b[64];
	struct wire_out o;
	int err;

	wire_out_init(&o, b, sizeof(b));
	meta_lock_encode(&o, &m);
	err = sm_client_send(c, WIRE_OP_META_LOCK, b, o.len);
	if (err != 0)
		return err;
	assert_int_equal(meta_lock_reply_parse(c->r.body, c->r.body_len, &got),
			 0);
	return got.taken;
}

/* The same, as metad does it for who has waited. */
static int grant(struct sm_client *c, struct meta_lock m)
{
	struct meta_lock_reply got;
	uint8_t b[64];
	struct wire_out o;
	int err;

	wire_out_init(&o, b, sizeof(b));
	wire_put_u64(&o, c->session);
	meta_lock_encode(&o, &m);
	err = sm_client_internal(c, WIRE_OP_SM_LOCK, b, o.len);
	if (err != 0)
		return err;
	assert_int_equal(meta_lock_reply_parse(c->r.body, c->r.body_len, &got),
			 0);
	return got.taken;
}

static struct meta_lock get(struct sm_client *c, struct meta_lock m)
{
	uint8_t b[64];
	struct wire_out o;

	wire_out_init(&o, b, sizeof(b));
	meta_lock_encode(&o, &m);
	assert_int_equal(sm_validate(WIRE_OP_META_LOCK_GET, b, o.len), 0);
	sm_query(c->sm, WIRE_OP_META_LOCK_GET, c->session, b, o.len, &c->r);
	assert_int_equal(c->r.status, 0);
	assert_int_equal(meta_lock_parse(c->r.body, c->r.body_len, &m), 0);
	return m;
}

/* ---- the rules ---- */

struct random {
	uint64_t state;
};

static uint64_t draw(struct random *r, uint64_t n)
{
	r->state = r->state * UINT64_C(6364136223846793005) +
		   UINT64_C(1442695040888963407);
	return (r->state >> 33) % n;
}

static struct meta_lock random_lock(struct random *r, const uint64_t inos[2])
{
	struct meta_lock m = {
		.ino = inos[draw(r, 2)],
		.kind = (uint8_t)(draw(r, 4) == 0),
		.type = (uint8_t)draw(r, 3),
		.start = draw(r, 24),
		.owner = draw(r, 3),
	};

	m.end = draw(r, 6) == 0 ? UINT64_MAX : m.start + draw(r, 8);
	if (draw(r, 30) == 0)
		m.start = m.end = UINT64_MAX;
	if (m.kind == LOCK_KIND_FLOCK) {
		m.start = 0;
		m.end = UINT64_MAX;
	}
	m.pid = (uint32_t)m.owner + 1;
	return m;
}

/* Owners of sessions are owners of their own. */
static struct lock_range as_range(const struct meta_lock *m, unsigned session)
{
	return (struct lock_range){ .ino = m->ino, .kind = m->kind,
				    .type = m->type, .start = m->start,
				    .end = m->end, .pid = m->pid,
				    .owner = session * 100 + m->owner };
}

static void compare_get(struct sm_client *c, struct lock_table *t,
			struct meta_lock m, unsigned session)
{
	struct lock_range r = as_range(&m, session);
	struct meta_lock got = get(c, m);

	lock_get(t, &r);
	assert_int_equal(got.type, r.type);
	if (r.type == LOCK_TYPE_UNLOCK)
		return;
	/* Of several that start there either is the first. */
	assert_int_equal(got.start, r.start);
	if (m.type == LOCK_TYPE_UNLOCK) {
		assert_int_equal(got.end, r.end);
		assert_int_equal(got.owner, m.owner);
	}
}

static void locks_are_those_of_a_table(void **state)
{
	struct sm_client *c = *state, d;
	struct sm_client *of[2] = { c, &d };
	uint64_t inos[2] = { SM_INO(c, sm_client_file(c, ROOT, "a")),
			     SM_INO(c, sm_client_file(c, ROOT, "b")) };
	struct lock_table *t = lock_table_new();
	struct random r = { 42 };
	unsigned taken = 0, refused = 0;

	assert_non_null(t);
	sm_client_join(&d, c->sm);
	for (int i = 0; i < 20000; i++) {
		unsigned s = (unsigned)draw(&r, 2);
		struct meta_lock m = random_lock(&r, inos);
		struct lock_range range = as_range(&m, s);
		uint64_t freed = sm_locks_freed(c->sm);
		int err;

		if (draw(&r, 3) == 0) {
			compare_get(of[s], t, m, s);
			continue;
		}
		err = lock_set(t, &range);
		assert_true(err == 0 || err == -EAGAIN);
		assert_int_equal(draw(&r, 2) || m.type == LOCK_TYPE_UNLOCK ?
					 lock(of[s], m) : grant(of[s], m),
				 err == 0);
		assert_int_equal(sm_lock_count(c->sm), lock_count(t));
		taken += err == 0 && m.type != LOCK_TYPE_UNLOCK;
		refused += err != 0;
		/* Who gives nothing up lets nobody pass. */
		if (m.type == LOCK_TYPE_WRITE && m.kind == LOCK_KIND_POSIX)
			assert_true(sm_locks_freed(c->sm) == freed);
		if (i % 500 == 0)
			assert_true(sm_verify(c->sm));
	}
	assert_true(taken > 1000 && refused > 1000);
	lock_table_free(t);
	sm_client_leave(&d);
}

static void who_waits_may_go_on_when_something_is_given_up(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f")), freed;

	assert_int_equal(lock(c, posix(f, LOCK_TYPE_WRITE, 0, 9, 1)), 1);
	freed = sm_locks_freed(c->sm);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 20, 29, 1)), 1);
	assert_true(sm_locks_freed(c->sm) == freed);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_READ, 5, 9, 1)), 1);
	assert_true(sm_locks_freed(c->sm) > freed);
	freed = sm_locks_freed(c->sm);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 0, UINT64_MAX, 1)),
			 1);
	assert_true(sm_locks_freed(c->sm) > freed);
	assert_int_equal(lock(c, flock_of(f, LOCK_TYPE_READ, 1)), 1);
	assert_int_equal(lock(c, flock_of(f, LOCK_TYPE_READ, 2)), 1);
	freed = sm_locks_freed(c->sm);
	/* refused, and the old one is gone */
	assert_int_equal(lock(c, flock_of(f, LOCK_TYPE_WRITE, 1)), 0);
	assert_true(sm_locks_freed(c->sm) > freed);
	assert_int_equal(lock(c, flock_of(f, LOCK_TYPE_WRITE, 2)), 1);
}

/* ---- sessions, retries, snapshots ---- */

static void a_session_takes_its_locks_along(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t g = SM_INO(c, sm_client_file(c, ROOT, "g")), freed;

	sm_client_join(&d, c->sm);
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(lock(&d, posix(f, LOCK_TYPE_WRITE, 10 * i,
						10 * i + 4, 1)), 1);
	assert_int_equal(lock(&d, flock_of(f, LOCK_TYPE_WRITE, 2)), 1);
	assert_int_equal(lock(&d, posix(g, LOCK_TYPE_READ, 0, 0, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_READ, 5, 9, 1)), 1);
	assert_int_equal(lock(c, posix(g, LOCK_TYPE_WRITE, 0, 0, 1)), 0);
	assert_int_equal(sm_lock_count(c->sm), 503);
	/* Until it is recovered nobody gets what it had. */
	assert_int_equal(sm_client_close(c, d.session, 1), 0);
	assert_int_equal(lock(c, posix(g, LOCK_TYPE_WRITE, 0, 0, 1)), 0);
	assert_int_equal(grant(&d, posix(g, LOCK_TYPE_WRITE, 9, 9, 1)),
			 -ESTALE);
	freed = sm_locks_freed(c->sm);
	assert_int_equal(sm_client_close(c, d.session, 2), 0);
	assert_true(sm_locks_freed(c->sm) > freed);
	assert_int_equal(sm_lock_count(c->sm), 1);
	assert_int_equal(lock(c, posix(g, LOCK_TYPE_WRITE, 0, 0, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_WRITE, 0, UINT64_MAX, 1)),
			 1);
	sm_client_leave(&d);
}

static void a_lock_sent_twice_is_taken_once(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_lock m = posix(f, LOCK_TYPE_WRITE, 0, 9, 1);

	sm_client_join(&d, c->sm);
	c->keep_replies = true;
	assert_int_equal(lock(c, m), 1);
	m.type = LOCK_TYPE_UNLOCK;
	assert_int_equal(lock(c, m), 1);
	m.type = LOCK_TYPE_WRITE;
	assert_int_equal(grant(&d, m), 1);
	/* An unlock that comes again is answered as the first time, and does
	 * nothing; a lock neither. */
	m.type = LOCK_TYPE_UNLOCK;
	assert_int_equal(lock(c, m), 1);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
	m.type = LOCK_TYPE_READ;
	assert_int_equal(lock(c, m), 0);
	m.type = LOCK_TYPE_UNLOCK;
	assert_int_equal(lock(&d, m), 1);
	m.type = LOCK_TYPE_READ;
	assert_int_equal(lock(c, m), 1);
	assert_int_equal(sm_client_resend(c), 0);
	assert_int_equal(sm_lock_count(c->sm), 1);
	sm_client_leave(&d);
}

static void numbers_of_another_machine_are_not_told(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_lock m = posix(f, LOCK_TYPE_WRITE, 3, 9, 1);
	struct meta_lock got;

	sm_client_join(&d, c->sm);
	assert_int_equal(lock(c, m), 1);
	m.owner = 2;
	got = get(c, m); /* another process here */
	assert_true(got.owner == 1 && got.pid == 1001 && got.start == 3);
	got = get(&d, m);
	assert_int_equal(got.type, LOCK_TYPE_WRITE);
	assert_true(got.owner == 0 && got.pid == 0 && got.start == 3 &&
		    got.end == 9);
	/* The same number there is another owner. */
	m.owner = 1;
	assert_int_equal(get(&d, m).type, LOCK_TYPE_WRITE);
	assert_int_equal(get(c, m).type, LOCK_TYPE_UNLOCK);
	sm_client_leave(&d);
}

static void locks_outlive_a_snapshot(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm *copy = sm_new();
	struct sm_lock k[4];
	uint8_t *snap;
	size_t len;

	assert_non_null(copy);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_READ, 5, UINT64_MAX, 1)),
			 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_READ, 0, 9, UINT64_MAX)),
			 1);
	assert_int_equal(lock(c, flock_of(f, LOCK_TYPE_WRITE, 3)), 1);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_int_equal(sm_lock_count(copy), 3);
	assert_int_equal(sm_lock_list(copy, NULL, k, 2), 2);
	assert_true(k[0].l.start == 0 && k[0].l.owner == UINT64_MAX &&
		    k[0].session == c->session);
	assert_true(k[1].l.start == 5 && k[1].l.end == UINT64_MAX &&
		    k[1].l.pid == 1001);
	assert_int_equal(sm_lock_list(copy, &k[1], k + 2, 2), 1);
	assert_int_equal(k[2].l.kind, LOCK_KIND_FLOCK);
	sm_free(copy);
	/* Without any it is what it was before there were locks. */
	assert_int_equal(sm_client_close(c, c->session, 1), 0);
	assert_int_equal(sm_client_close(c, c->session, 2), 0);
	assert_int_equal(sm_lock_count(c->sm), 0);
}

/* What one close may have to give up is bounded; and it always may. */
static void a_file_has_so_many_of_a_session(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t g = SM_INO(c, sm_client_file(c, ROOT, "g"));
	uint64_t i;

	sm_client_join(&d, c->sm);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_WRITE, 0, 8, 1)), 1);
	for (i = 1; i < LOCK_FILE_COUNT_MAX; i++)
		assert_int_equal(lock(c, posix(f, LOCK_TYPE_WRITE, 10 * i,
					       10 * i, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_WRITE, 10 * i, 10 * i, 1)),
			 -ENOLCK);
	assert_int_equal(grant(c, posix(f, LOCK_TYPE_READ, 3, 3, 1)), -ENOLCK);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 3, 3, 1)),
			 -ENOLCK);
	assert_int_equal(sm_lock_count(c->sm), LOCK_FILE_COUNT_MAX);
	/* Others, and of another file, may. */
	assert_int_equal(lock(&d, posix(f, LOCK_TYPE_WRITE, 10 * i, 10 * i, 1)),
			 1);
	assert_int_equal(lock(c, posix(g, LOCK_TYPE_WRITE, 0, 0, 1)), 1);
	/* What makes none more: an end, a whole one. */
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 6, 9, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 10, 10, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 3, 3, 1)), 1);
	assert_int_equal(lock(c, posix(f, LOCK_TYPE_UNLOCK, 0, UINT64_MAX, 1)),
			 1);
	assert_int_equal(sm_lock_count(c->sm), 2);
	sm_client_leave(&d);
}

static void nonsense_is_refused(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_lock m = posix(f, LOCK_TYPE_READ, 5, 9, 1);

	m.start = 10;
	assert_int_equal(lock(c, m), -EINVAL);
	m.start = 5;
	m.kind = 2;
	assert_int_equal(lock(c, m), -EINVAL);
	m.kind = LOCK_KIND_FLOCK;
	assert_int_equal(lock(c, m), -EINVAL);
	m.kind = LOCK_KIND_POSIX;
	m.type = 3;
	assert_int_equal(lock(c, m), -EINVAL);
	m.type = LOCK_TYPE_UNLOCK;
	assert_int_equal(grant(c, m), -EINVAL);
	m.ino = 0;
	assert_int_equal(lock(c, m), -EINVAL);
	m.ino = 4711;
	assert_int_equal(lock(c, m), 1); /* nothing is held there */
	m.type = LOCK_TYPE_READ;
	assert_int_equal(lock(c, m), -ENOENT);
	assert_int_equal(sm_lock_count(c->sm), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(locks_are_those_of_a_table),
		SM_TEST(who_waits_may_go_on_when_something_is_given_up),
		SM_TEST(a_session_takes_its_locks_along),
		SM_TEST(a_lock_sent_twice_is_taken_once),
		SM_TEST(numbers_of_another_machine_are_not_told),
		SM_TEST(locks_outlive_a_snapshot),
		SM_TEST(a_file_has_so_many_of_a_session),
		SM_TEST(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
