/* Who may lag: which peers a log's writer can do without, and how far behind
 * they are.
 *
 * Method: as test_log_writer.c.
 */
#include "tests/lib/log_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void those_behind_a_majority_are_spare(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	/* Equal: the last one. */
	assert_false(log_writer_spare(&w, 0));
	assert_false(log_writer_spare(&w, 1));
	assert_true(log_writer_spare(&w, 2));
	/* One that does not answer is overtaken. */
	log_fix_append_times(&w, 1);
	assert_int_equal(log_writer_behind(&w, 2), 1000);
	log_fix_settle(&w, 1);
	log_fix_settle(&w, 2);
	assert_int_equal(log_writer_behind(&w, 2), 0);
	assert_true(log_writer_spare(&w, 0));
	assert_false(log_writer_spare(&w, 2));
	/* What is on its way was sent. */
	log_fix_append_times(&w, 2);
	log_fix_post(&w, 1, &p);
	assert_int_equal(log_writer_behind(&w, 1), 0);
	assert_int_equal(log_writer_behind(&w, 0), 3000);
	/* Without the others nobody can be done without. */
	log_writer_down(&w, 2);
	assert_false(log_writer_spare(&w, 0));
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_spare(&w, 0));
	log_writer_fail(&w, 1);
	assert_false(log_writer_spare(&w, 0));
	assert_int_equal(log_writer_replace(
				 &w, 1, (struct log_writer_peer_id){ 4, 104 }),
			 3);
	log_fix_up(&w, 3);
	for (uint32_t i = 0; i < 4; i++)
		assert_false(log_writer_spare(&w, i));
	log_fix_teardown(&w);
}

static void who_has_not_begun_the_region_is_far_behind(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup_two(&w);
	assert_int_equal(log_writer_behind(&w, 0), UINT32_MAX);
	log_fix_settle(&w, 0);
	assert_int_equal(log_writer_behind(&w, 0), 0);
	log_fix_append_times(&w, 1);
	assert_int_equal(log_writer_behind(&w, 0), 1000);
	log_fix_teardown(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_behind_a_majority_are_spare),
		cmocka_unit_test(who_has_not_begun_the_region_is_far_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
