/* Diagnostics: one line an event, debug by subsystem, the rate limit. What is
 * written to stderr is caught in a file.
 */
#include "common/diag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <pthread.h>

#include <cmocka.h>

static FILE *captured;
static int saved_err;
static char out[1 << 20];

static void capture(void)
{
	captured = tmpfile();
	assert_non_null(captured);
	saved_err = dup(STDERR_FILENO);
	dup2(fileno(captured), STDERR_FILENO);
}

static void release(void)
{
	size_t len;

	dup2(saved_err, STDERR_FILENO);
	close(saved_err);
	rewind(captured);
	len = fread(out, 1, sizeof(out) - 1, captured);
	out[len] = '\0';
	fclose(captured);
}

static unsigned count(const char *part)
{
	unsigned n = 0;

	for (const char *p = out; (p = strstr(p, part)); p++)
		n++;
	return n;
}

/* The rate counts by the clock's seconds: waits for the next one, so that what
 * follows falls into it. */
static void next_second(void)
{
	struct timespec nap = { .tv_nsec = 2000000 }, began, now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &began);
	do {
		nanosleep(&nap, NULL);
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	} while (now.tv_sec == began.tv_sec);
}

static void a_line_has_time_program_level_and_subsystem(void **state)
{
	(void)state;
	diag_init("prog", false);
	capture();
	diag_err("store", "event=open_failed path=%s err=%d", "/x", 5);
	release();
	assert_int_equal(out[4], '-');
	assert_int_equal(out[10], 'T');
	assert_string_equal(out + 24,
		" prog err store: event=open_failed path=/x err=5\n");
}

static void levels_are_named(void **state)
{
	(void)state;
	capture();
	diag_warn("a", "x=1");
	diag_info("b", "x=2");
	release();
	assert_int_equal(count(" warn a: x=1\n"), 1);
	assert_int_equal(count(" info b: x=2\n"), 1);
}

static void errno_is_kept_and_can_be_printed(void **state)
{
	(void)state;
	capture();
	errno = ENOSPC;
	diag_err("a", "why=%m");
	release();
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(count("why=No space left on device"), 1);
}

static void control_bytes_cannot_make_a_second_line(void **state)
{
	(void)state;
	capture();
	diag_info("a", "name=%s", "x\ny\x7f\x1b[2J\xc3\xa4");
	release();
	assert_int_equal(count("\n"), 1);
	assert_int_equal(count("name=x\\x0ay\\x7f\\x1b[2J\xc3\xa4\n"), 1);
}

static void a_long_line_is_cut_but_ended(void **state)
{
	static char text[5000];

	(void)state;
	memset(text, '\n', sizeof(text) - 1);
	capture();
	diag_info("a", "t=%s", text);
	release();
	assert_int_equal(count("\n"), 1);
	assert_true(strlen(out) < 1200);
	assert_int_equal(out[strlen(out) - 1], '\n');
}

static void debug_lines_are_off_until_asked_for(void **state)
{
	(void)state;
	capture();
	diag_debug("net", "x=1");
	assert_int_equal(diag_set_debug("store,net"), 0);
	diag_debug("net", "x=2");
	diag_debug("ne", "x=3");
	diag_debug("netw", "x=4");
	assert_int_equal(diag_set_debug("none"), 0);
	diag_debug("net", "x=5");
	release();
	assert_int_equal(count("x="), 1);
	assert_int_equal(count("debug net: x=2"), 1);
}

static void all_turns_every_subsystem_on(void **state)
{
	(void)state;
	assert_int_equal(diag_set_debug("all"), 0);
	assert_true(diag_debug_on("anything"));
	assert_int_equal(diag_set_debug(""), 0);
	assert_false(diag_debug_on("anything"));
}

static void a_list_that_is_too_long_is_refused(void **state)
{
	char list[1000];

	(void)state;
	assert_int_equal(diag_set_debug("a"), 0);
	memset(list, 'x', sizeof(list) - 1);
	list[sizeof(list) - 1] = '\0';
	assert_int_equal(diag_set_debug(list), -EINVAL);
	assert_true(diag_debug_on("a"));
	assert_int_equal(diag_set_debug("none"), 0);
}

static void say_many(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		diag_info("many", "i=%u", i);
}

static void twenty_lines_a_second_come_through(void **state)
{
	(void)state;
	next_second();
	capture();
	say_many(500);
	diag_info("other", "x=1");
	release();
	assert_int_equal(count(" many: "), 20);
	assert_int_equal(count("i=19\n"), 1);
	assert_int_equal(count(" other: "), 1);
}

static void a_later_line_tells_how_many_were_held_back(void **state)
{
	(void)state;
	next_second();
	capture();
	say_many(50);
	next_second();
	say_many(1);
	release();
	assert_int_equal(count("many: held_back=30 "), 1);
	assert_int_equal(count("many: i=0\n"), 2);
}

static void *talk(void *arg)
{
	for (unsigned i = 0; i < 2000; i++)
		diag_info(arg, "thread=%s i=%u", (const char *)arg, i);
	return NULL;
}

static void threads_do_not_mix_their_lines(void **state)
{
	static char names[4][8] = { "one", "two", "three", "four" };
	pthread_t threads[4];
	char *line, *rest = out;

	(void)state;
	capture();
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, talk,
						names[i]), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	release();
	while ((line = strsep(&rest, "\n")) && *line)
		assert_int_equal(line[10], 'T');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_has_time_program_level_and_subsystem),
		cmocka_unit_test(levels_are_named),
		cmocka_unit_test(errno_is_kept_and_can_be_printed),
		cmocka_unit_test(control_bytes_cannot_make_a_second_line),
		cmocka_unit_test(a_long_line_is_cut_but_ended),
		cmocka_unit_test(debug_lines_are_off_until_asked_for),
		cmocka_unit_test(all_turns_every_subsystem_on),
		cmocka_unit_test(a_list_that_is_too_long_is_refused),
		cmocka_unit_test(twenty_lines_a_second_come_through),
		cmocka_unit_test(a_later_line_tells_how_many_were_held_back),
		cmocka_unit_test(threads_do_not_mix_their_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
