/* Advisory locks: what POSIX locks, flock and open file description locks
 * promise, one fact a test; test_lock_table_model.c has all the rest.
 */
#include "common/lock_table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/lib/fail_malloc.h"

#define NOBODY_PID 0u

static struct lock_range posix(uint64_t owner, enum lock_type type,
			       uint64_t start, uint64_t end)
{
	return (struct lock_range){ .ino = 1, .kind = LOCK_KIND_POSIX,
				    .type = type, .start = start, .end = end,
				    .owner = owner, .pid = (uint32_t)owner };
}

static struct lock_range flock_of(uint64_t owner, enum lock_type type)
{
	return (struct lock_range){ .ino = 1, .kind = LOCK_KIND_FLOCK,
				    .type = type, .end = UINT64_MAX,
				    .owner = owner };
}

static int set(struct lock_table *t, struct lock_range r)
{
	return lock_set(t, &r);
}

struct single_wait {
	struct lock_wait w;
	int calls, status;
};

static void note(struct lock_wait *w, int status)
{
	struct single_wait *s = container_of(w, struct single_wait, w);

	s->calls++;
	s->status = status;
}

static int wait_for(struct lock_table *t, struct single_wait *s,
		    struct lock_range r)
{
	*s = (struct single_wait){ .w.r = r, .w.granted = note };
	return lock_set_wait(t, &s->w);
}

static void getlk_tells_range_type_and_pid(void **state)
{
	struct lock_table *t = lock_table_new();
	struct lock_range r = posix(2, LOCK_TYPE_READ, 0, 100);

	(void)state;
	set(t, posix(1, LOCK_TYPE_WRITE, 10, 20));
	set(t, posix(1, LOCK_TYPE_READ, 30, 40));
	lock_get(t, &r);
	assert_int_equal(r.type, LOCK_TYPE_WRITE);
	assert_int_equal(r.start, 10);
	assert_int_equal(r.end, 20);
	assert_int_equal(r.pid, 1);
	lock_table_free(t);
}

static void getlk_of_unlock_tells_own_locks(void **state)
{
	struct lock_table *t = lock_table_new();
	struct lock_range r = posix(1, LOCK_TYPE_UNLOCK, 0, 100);

	(void)state;
	set(t, posix(2, LOCK_TYPE_WRITE, 0, 5));
	lock_get(t, &r);
	assert_int_equal(r.type, LOCK_TYPE_UNLOCK);
	set(t, posix(1, LOCK_TYPE_READ, 30, 40));
	lock_get(t, &r);
	assert_int_equal(r.type, LOCK_TYPE_READ);
	assert_int_equal(r.start, 30);
	assert_int_equal(r.end, 40);
	lock_table_free(t);
}

static void the_whole_range_is_one_lock(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	assert_int_equal(set(t, posix(1, LOCK_TYPE_WRITE, 0, UINT64_MAX)), 0);
	assert_int_equal(set(t, posix(1, LOCK_TYPE_UNLOCK, 5, 5)), 0);
	assert_int_equal(lock_count(t), 2);
	assert_int_equal(set(t, posix(1, LOCK_TYPE_WRITE, 5, 5)), 0);
	assert_int_equal(lock_count(t), 1);
	assert_int_equal(set(t, posix(2, LOCK_TYPE_READ, UINT64_MAX,
				      UINT64_MAX)), -EAGAIN);
	lock_table_free(t);
}

static void posix_and_flock_do_not_see_each_other(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	assert_int_equal(set(t, posix(1, LOCK_TYPE_WRITE, 0, 9)), 0);
	assert_int_equal(set(t, flock_of(2, LOCK_TYPE_WRITE)), 0);
	assert_int_equal(lock_count(t), 2);
	lock_table_free(t);
}

static void inodes_do_not_see_each_other(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	for (uint64_t ino = 1; ino <= 5000; ino++) {
		struct lock_range r = posix(ino, LOCK_TYPE_WRITE, 0, 9);

		r.ino = ino;
		assert_int_equal(lock_set(t, &r), 0);
	}
	for (uint64_t ino = 1; ino <= 5000; ino++) {
		assert_true(lock_any(t, ino));
		lock_drop_owner(t, ino, LOCK_KIND_POSIX, ino);
		assert_false(lock_any(t, ino));
	}
	assert_int_equal(lock_count(t), 0);
	lock_table_free(t);
}

static void a_flock_conversion_that_fails_loses_the_old_lock(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	set(t, flock_of(1, LOCK_TYPE_READ));
	set(t, flock_of(2, LOCK_TYPE_READ));
	assert_int_equal(set(t, flock_of(1, LOCK_TYPE_WRITE)), -EAGAIN);
	assert_int_equal(lock_count(t), 1);
	assert_int_equal(set(t, flock_of(2, LOCK_TYPE_WRITE)), 0);
	lock_table_free(t);
}

static void a_failed_posix_upgrade_keeps_the_old_lock(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	set(t, posix(1, LOCK_TYPE_READ, 0, 9));
	set(t, posix(2, LOCK_TYPE_READ, 0, 9));
	assert_int_equal(set(t, posix(1, LOCK_TYPE_WRITE, 0, 9)), -EAGAIN);
	assert_int_equal(lock_count(t), 2);
	lock_table_free(t);
}

static void a_flock_conversion_lets_waiters_go_on(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a;

	(void)state;
	set(t, flock_of(1, LOCK_TYPE_WRITE));
	assert_int_equal(wait_for(t, &a, flock_of(2, LOCK_TYPE_READ)),
			 -EINPROGRESS);
	assert_int_equal(set(t, flock_of(1, LOCK_TYPE_READ)), 0);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.status, 0);
	lock_table_free(t);
}

static void flocks_deadlock_is_not_looked_for(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a, b;

	(void)state;
	set(t, flock_of(1, LOCK_TYPE_READ));
	set(t, flock_of(2, LOCK_TYPE_READ));
	/* The conversion gave its own up: the second does not block. */
	assert_int_equal(wait_for(t, &a, flock_of(1, LOCK_TYPE_WRITE)),
			 -EINPROGRESS);
	assert_int_equal(wait_for(t, &b, flock_of(2, LOCK_TYPE_WRITE)), 0);
	assert_int_equal(a.calls, 0);
	set(t, flock_of(2, LOCK_TYPE_UNLOCK));
	assert_int_equal(a.calls, 1);
	lock_table_free(t);
}

static void a_circle_of_three_processes_is_a_deadlock(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a, b, c;

	(void)state;
	for (uint64_t owner = 1; owner <= 3; owner++)
		set(t, posix(owner, LOCK_TYPE_WRITE, owner, owner));
	assert_int_equal(wait_for(t, &a, posix(1, LOCK_TYPE_WRITE, 2, 2)),
			 -EINPROGRESS);
	assert_int_equal(wait_for(t, &b, posix(2, LOCK_TYPE_WRITE, 3, 3)),
			 -EINPROGRESS);
	assert_int_equal(wait_for(t, &c, posix(3, LOCK_TYPE_WRITE, 1, 1)),
			 -EDEADLK);
	assert_int_equal(c.calls, 0);
	lock_drop_owner(t, 1, LOCK_KIND_POSIX, 3);
	assert_int_equal(b.calls, 1);
	lock_drop_owner(t, 1, LOCK_KIND_POSIX, 2);
	assert_int_equal(a.calls, 1);
	lock_table_free(t);
}

static void open_file_description_locks_may_wait_for_ever(void **state)
{
	struct lock_table *t = lock_table_new();
	struct lock_range r1 = posix(1, LOCK_TYPE_WRITE, 2, 2);
	struct lock_range r2 = posix(2, LOCK_TYPE_WRITE, 1, 1);
	struct single_wait a, b;

	(void)state;
	set(t, posix(1, LOCK_TYPE_WRITE, 1, 1));
	set(t, posix(2, LOCK_TYPE_WRITE, 2, 2));
	r1.pid = r2.pid = NOBODY_PID;
	assert_int_equal(wait_for(t, &a, r1), -EINPROGRESS);
	assert_int_equal(wait_for(t, &b, r2), -EINPROGRESS);
	assert_true(lock_cancel(t, &a.w));
	assert_true(lock_cancel(t, &b.w));
	lock_table_free(t);
}

static void dropping_an_owner_ends_its_waits(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a;

	(void)state;
	set(t, posix(1, LOCK_TYPE_WRITE, 0, 9));
	wait_for(t, &a, posix(2, LOCK_TYPE_WRITE, 0, 9));
	lock_drop_owner(t, 1, LOCK_KIND_POSIX, 2);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.status, -EINTR);
	assert_false(lock_cancel(t, &a.w));
	lock_table_free(t);
}

static void dropping_an_owner_ends_its_locks_of_that_kind(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a;

	(void)state;
	set(t, posix(1, LOCK_TYPE_WRITE, 0, 9));
	set(t, flock_of(1, LOCK_TYPE_WRITE));
	wait_for(t, &a, flock_of(2, LOCK_TYPE_WRITE));
	lock_drop_owner(t, 1, LOCK_KIND_FLOCK, 1);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.status, 0);
	assert_int_equal(set(t, posix(2, LOCK_TYPE_WRITE, 0, 9)), -EAGAIN);
	lock_drop_owner(t, 1, LOCK_KIND_POSIX, 1);
	assert_int_equal(set(t, posix(2, LOCK_TYPE_WRITE, 0, 9)), 0);
	lock_table_free(t);
}

static void a_cancelled_wait_is_never_granted(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait a;

	(void)state;
	set(t, posix(1, LOCK_TYPE_WRITE, 0, 9));
	wait_for(t, &a, posix(2, LOCK_TYPE_WRITE, 0, 9));
	assert_true(lock_cancel(t, &a.w));
	assert_false(lock_cancel(t, &a.w));
	set(t, posix(1, LOCK_TYPE_UNLOCK, 0, 9));
	assert_int_equal(a.calls, 0);
	assert_false(lock_any(t, 1));
	lock_table_free(t);
}

/* A callback that gives its lock back at once, from inside the table. */
static struct lock_table *reentered;

static void give_back(struct lock_wait *w, int status)
{
	struct lock_range r = w->r;

	note(w, status);
	r.type = LOCK_TYPE_UNLOCK;
	assert_int_equal(lock_set(reentered, &r), 0);
}

static void a_callback_may_use_the_table(void **state)
{
	struct lock_table *t = lock_table_new();
	struct single_wait w[20];

	(void)state;
	reentered = t;
	set(t, posix(100, LOCK_TYPE_WRITE, 0, 9));
	for (unsigned i = 0; i < 20; i++) {
		w[i] = (struct single_wait){
			.w.r = posix(i + 1, LOCK_TYPE_WRITE, 0, 9),
			.w.granted = give_back,
		};
		assert_int_equal(lock_set_wait(t, &w[i].w), -EINPROGRESS);
	}
	set(t, posix(100, LOCK_TYPE_UNLOCK, 0, 9));
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(w[i].calls, 1);
	assert_false(lock_any(t, 1));
	lock_table_free(t);
}

static void locks_are_bounded_but_can_always_be_dropped(void **state)
{
	struct lock_table *t = lock_table_new();

	(void)state;
	for (uint64_t i = 0; i < LOCK_COUNT_MAX; i++) {
		struct lock_range r = posix(1, LOCK_TYPE_READ, 0, 9);

		r.ino = i / 4;
		r.owner = i;
		assert_int_equal(lock_set(t, &r), 0);
	}
	assert_int_equal(set(t, posix(UINT64_MAX, LOCK_TYPE_READ, 0, 0)),
			 -ENOLCK);
	assert_int_equal(set(t, posix(4, LOCK_TYPE_UNLOCK, 5, 5)), 0);
	assert_int_equal(lock_count(t), LOCK_COUNT_MAX + 1);
	lock_table_free(t);
}

static void a_failed_allocation_changes_nothing(void **state)
{
	struct lock_table *t;

	(void)state;
	t = lock_table_new();
	set(t, posix(1, LOCK_TYPE_WRITE, 0, 9));
	for (unsigned nth = 1; nth <= 2; nth++) {
		struct lock_range r = posix(2, LOCK_TYPE_READ, 5, 5);

		fail_malloc_at(nth);
		assert_int_equal(set(t, posix(1, LOCK_TYPE_UNLOCK, 5, 5)),
				 -ENOMEM);
		assert_true(fail_malloc_hit());
		lock_get(t, &r);
		assert_int_equal(r.type, LOCK_TYPE_WRITE);
		assert_int_equal(lock_count(t), 1);
	}
	lock_table_free(t);
}

static void a_grant_without_memory_tells_its_waiter(void **state)
{
	struct single_wait a;
	struct lock_table *t;

	(void)state;
	t = lock_table_new();
	set(t, posix(1, LOCK_TYPE_WRITE, 0, 9));
	wait_for(t, &a, posix(2, LOCK_TYPE_WRITE, 0, 9));
	fail_malloc_at(1);
	lock_drop_owner(t, 1, LOCK_KIND_POSIX, 1);
	assert_true(fail_malloc_hit());
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.status, -ENOMEM);
	assert_false(lock_any(t, 1));
	lock_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(getlk_tells_range_type_and_pid),
		cmocka_unit_test(getlk_of_unlock_tells_own_locks),
		cmocka_unit_test(the_whole_range_is_one_lock),
		cmocka_unit_test(posix_and_flock_do_not_see_each_other),
		cmocka_unit_test(inodes_do_not_see_each_other),
		cmocka_unit_test(
			a_flock_conversion_that_fails_loses_the_old_lock),
		cmocka_unit_test(a_failed_posix_upgrade_keeps_the_old_lock),
		cmocka_unit_test(a_flock_conversion_lets_waiters_go_on),
		cmocka_unit_test(flocks_deadlock_is_not_looked_for),
		cmocka_unit_test(a_circle_of_three_processes_is_a_deadlock),
		cmocka_unit_test(open_file_description_locks_may_wait_for_ever),
		cmocka_unit_test(dropping_an_owner_ends_its_waits),
		cmocka_unit_test(dropping_an_owner_ends_its_locks_of_that_kind),
		cmocka_unit_test(a_cancelled_wait_is_never_granted),
		cmocka_unit_test(a_callback_may_use_the_table),
		cmocka_unit_test(locks_are_bounded_but_can_always_be_dropped),
		cmocka_unit_test(a_failed_allocation_changes_nothing),
		cmocka_unit_test(a_grant_without_memory_tells_its_waiter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
