/* Who is to lend memory: one of each failure domain, most free first. */
#include "metad/log_pick.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

/* Picks of @c at most @max, domains @used (NULL-ended) apart; the ids in order
 * must be @want (0-ended). */
static bool picked(struct log_candidate *c, size_t count,
		   const char *const *used, size_t max, const uint32_t *want)
{
	size_t used_count = 0, want_count = 0, got;
	bool shared = true;

	while (used && used[used_count])
		used_count++;
	while (want[want_count])
		want_count++;
	got = log_pick(c, count, used, used_count, max, &shared);
	assert_int_equal(got, want_count);
	for (size_t i = 0; i < got; i++)
		assert_int_equal(c[i].id, want[i]);
	return shared;
}

static void of_nobody_nobody_is_picked(void **state)
{
	(void)state;
	assert_false(picked(NULL, 0, NULL, 3, (uint32_t[]){ 0 }));
}

static void domains_take_turns(void **state)
{
	struct log_candidate c[] = {
		{ 1, 1, 9 * GIB, "a" }, { 2, 1, 8 * GIB, "a" },
		{ 3, 1, 1 * GIB, "b" }, { 4, 1, 2 * GIB, "b" },
		{ 5, 1, 1, "c" },
	};

	(void)state;
	assert_true(picked(c, 5, NULL, 9, (uint32_t[]){ 1, 4, 5, 2, 3, 0 }));
}

static void those_of_different_domains_are_not_shared(void **state)
{
	struct log_candidate c[] = {
		{ 1, 1, 9 * GIB, "a" }, { 2, 1, 8 * GIB, "a" },
		{ 3, 1, 1 * GIB, "b" }, { 5, 1, 1, "c" },
	};

	(void)state;
	assert_false(picked(c, 4, NULL, 3, (uint32_t[]){ 1, 3, 5, 0 }));
	assert_true(picked(c, 4, NULL, 4, (uint32_t[]){ 1, 3, 5, 2, 0 }));
}

static void one_domain_is_shared(void **state)
{
	struct log_candidate c[] = {
		{ 1, 1, 1, "" }, { 2, 1, 3, "" }, { 3, 1, 2, "" },
	};

	(void)state;
	assert_false(picked(c, 3, NULL, 1, (uint32_t[]){ 2, 0 }));
	assert_true(picked(c, 3, NULL, 3, (uint32_t[]){ 2, 3, 1, 0 }));
}

static void equals_come_by_their_id(void **state)
{
	struct log_candidate c[] = {
		{ 3, 1, 5, "c" }, { 1, 1, 5, "a" }, { 2, 1, 5, "b" },
	};

	(void)state;
	assert_false(picked(c, 3, NULL, 3, (uint32_t[]){ 1, 2, 3, 0 }));
}

/* A replacement: rather not beside those that stay. */
static void domains_in_use_come_last(void **state)
{
	static const char *const used[] = { "a", "b", NULL };
	struct log_candidate c[] = {
		{ 1, 1, 9 * GIB, "a" }, { 2, 1, 8 * GIB, "b" },
		{ 3, 1, 1, "c" },
	};

	(void)state;
	assert_false(picked(c, 3, used, 1, (uint32_t[]){ 3, 0 }));
	/* what is in use is not among those picked */
	assert_false(picked(c, 3, used, 3, (uint32_t[]){ 3, 1, 2, 0 }));
}

static void a_domain_in_use_twice_comes_after_one_in_use_once(void **state)
{
	static const char *const used[] = { "a", "a", "b", NULL };
	struct log_candidate c[] = {
		{ 1, 1, 9 * GIB, "a" }, { 2, 1, 1, "b" }, { 3, 1, 2, "b" },
	};

	(void)state;
	/* both have two then */
	assert_true(picked(c, 3, used, 3, (uint32_t[]){ 3, 1, 2, 0 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_nobody_nobody_is_picked),
		cmocka_unit_test(domains_take_turns),
		cmocka_unit_test(those_of_different_domains_are_not_shared),
		cmocka_unit_test(one_domain_is_shared),
		cmocka_unit_test(equals_come_by_their_id),
		cmocka_unit_test(domains_in_use_come_last),
		cmocka_unit_test(
			a_domain_in_use_twice_comes_after_one_in_use_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
