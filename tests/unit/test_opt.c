/* Option tables: values and their bounds, argv, help and dump. */
#include "common/opt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fail_malloc.h"

struct config {
	bool verbose, cache;
	uint64_t count, size, wait;
	char *path, *name;
	int mode;
};

static const char *const modes[] = { "auto", "on", "off", NULL };

static const struct opt table[] = {
	{ .name = "verbose", .letter = 'v', .type = OPT_FLAG,
	  .offset = offsetof(struct config, verbose), .help = "say more" },
	{ .name = "cache", .type = OPT_FLAG, .def = "yes",
	  .offset = offsetof(struct config, cache), .help = "keep data" },
	{ .name = "count", .letter = 'c', .type = OPT_U64, .def = "3",
	  .min = 1, .max = 100, .arg = "N",
	  .offset = offsetof(struct config, count), .help = "how many" },
	{ .name = "size", .type = OPT_SIZE, .def = "64m", .arg = "SIZE",
	  .offset = offsetof(struct config, size), .help = "bytes" },
	{ .name = "wait", .type = OPT_MS, .def = "10s", .min = 100,
	  .max = 3600000, .arg = "TIME",
	  .offset = offsetof(struct config, wait), .help = "time to wait" },
	{ .name = "path", .letter = 'p', .type = OPT_STR, .def = "/srv",
	  .arg = "DIR", .offset = offsetof(struct config, path),
	  .help = "where" },
	{ .name = "name", .type = OPT_STR, .arg = "NAME",
	  .offset = offsetof(struct config, name), .help = "who" },
	{ .name = "mode", .letter = 'm', .type = OPT_CHOICE, .def = "auto",
	  .choices = modes, .offset = offsetof(struct config, mode),
	  .help = "which way" },
	{ .name = NULL },
};

static struct config c;

static int set_up(void **state)
{
	(void)state;
	return opt_defaults(table, &c);
}

static int tear_down(void **state)
{
	(void)state;
	opt_fini(table, &c);
	return 0;
}

static int set(const char *name, const char *value)
{
	return opt_set(table, &c, name, value, NULL, 0);
}

static void set_refused(const char *name, const char *value, int err,
			const char *why)
{
	char text[200] = "";

	assert_int_equal(opt_set(table, &c, name, value, text, sizeof(text)),
			 err);
	assert_string_equal(text, why);
}

/* ---- values ---- */

static void defaults_are_those_of_the_table(void **state)
{
	(void)state;
	assert_false(c.verbose);
	assert_true(c.cache);
	assert_int_equal(c.count, 3);
	assert_int_equal(c.size, 64 << 20);
	assert_int_equal(c.wait, 10000);
	assert_string_equal(c.path, "/srv");
	assert_null(c.name);
	assert_int_equal(c.mode, 0);
}

static void sizes_take_suffixes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{ "0", 0 }, { "4096", 4096 }, { "1k", 1024 }, { "2K", 2048 },
		{ "3m", 3 << 20 }, { "4G", 4ull << 30 }, { "5t", 5ull << 40 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215t", 16777215ull << 40 },
	};

	(void)state;
	for (size_t i = 0; i < array_count(good); i++) {
		assert_int_equal(set("size", good[i].text), 0);
		assert_true(c.size == good[i].bytes);
	}
}

static void times_take_suffixes_and_mean_seconds_without(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = {
		{ "1", 1000 }, { "250ms", 250 }, { "2s", 2000 },
		{ "3m", 180000 }, { "1h", 3600000 },
	};

	(void)state;
	for (size_t i = 0; i < array_count(good); i++) {
		assert_int_equal(set("wait", good[i].text), 0);
		assert_int_equal(c.wait, good[i].ms);
	}
}

static void what_is_no_number_is_refused(void **state)
{
	static const char *const bad[] = { "", " 1", "1 ", "-1", "+1", "1.5",
		"0x10", "k", "1kb", "1 k", "1x", "1s" };

	(void)state;
	for (size_t i = 0; i < array_count(bad); i++)
		assert_int_equal(set("size", bad[i]), -EINVAL);
	assert_int_equal(set("count", "1k"), -EINVAL);
	assert_int_equal(c.size, 64 << 20);
	assert_int_equal(c.count, 3);
}

static void overflows_are_out_of_range(void **state)
{
	static const char *const bad[] = { "18446744073709551616",
		"99999999999999999999999", "16777216t",
		"18446744073709551615k" };

	(void)state;
	for (size_t i = 0; i < array_count(bad); i++)
		assert_int_equal(set("size", bad[i]), -ERANGE);
}

static void bounds_are_inclusive(void **state)
{
	(void)state;
	assert_int_equal(set("count", "0"), -ERANGE);
	assert_int_equal(set("count", "1"), 0);
	assert_int_equal(set("count", "100"), 0);
	assert_int_equal(set("count", "101"), -ERANGE);
	assert_int_equal(c.count, 100);
}

static void flags_take_words_and_mean_yes_without(void **state)
{
	static const char *const yes[] = { "yes", "true", "on", "1", "" };
	static const char *const no[] = { "no", "false", "off", "0" };

	(void)state;
	for (size_t i = 0; i < array_count(yes); i++) {
		c.verbose = false;
		assert_int_equal(set("verbose", yes[i]), 0);
		assert_true(c.verbose);
	}
	for (size_t i = 0; i < array_count(no); i++) {
		c.verbose = true;
		assert_int_equal(set("verbose", no[i]), 0);
		assert_false(c.verbose);
	}
	assert_int_equal(set("verbose", NULL), 0);
	assert_true(c.verbose);
	assert_int_equal(set("verbose", "maybe"), -EINVAL);
}

static void choices_become_their_index(void **state)
{
	(void)state;
	for (int i = 0; modes[i]; i++) {
		assert_int_equal(set("mode", modes[i]), 0);
		assert_int_equal(c.mode, i);
	}
	assert_int_equal(set("mode", "of"), -EINVAL);
	assert_int_equal(set("mode", "ON"), -EINVAL);
}

static void strings_are_copied_and_replaced(void **state)
{
	char text[] = "one";

	(void)state;
	assert_int_equal(set("path", text), 0);
	text[0] = 'x';
	assert_string_equal(c.path, "one");
	assert_int_equal(set("path", "two"), 0);
	assert_string_equal(c.path, "two");
	assert_int_equal(set("path", ""), 0);
	assert_string_equal(c.path, "");
}

static void reasons_are_sentences(void **state)
{
	(void)state;
	set_refused("nosuch", "1", -ENOENT, "nosuch: there is no such option");
	set_refused("count", "x", -EINVAL,
		    "count: \"x\" is not a whole number");
	set_refused("count", "0", -ERANGE,
		    "count: 0 is out of range (1 to 100)");
	set_refused("size", "x", -EINVAL, "size: \"x\" is not a size like "
		    "4096, 64k, 16m, 2g or 1t");
	set_refused("wait", "1w", -EINVAL, "wait: \"1w\" is not a time like "
		    "500ms, 10s, 5m, 1h or 30d");
	set_refused("wait", "1d", -ERANGE,
		    "wait: 1d is out of range (100ms to 1h)");
	set_refused("wait", "2h", -ERANGE,
		    "wait: 2h is out of range (100ms to 1h)");
	set_refused("mode", "x", -EINVAL,
		    "mode: \"x\" is not auto, on or off");
	set_refused("verbose", "x", -EINVAL,
		    "verbose: \"x\" is neither yes nor no");
	set_refused("count", NULL, -EINVAL, "count: needs a value");
}

static void a_name_is_not_taken_by_a_part_of_it(void **state)
{
	(void)state;
	assert_int_equal(set("coun", "1"), -ENOENT);
	assert_int_equal(set("count1", "1"), -ENOENT);
	assert_int_equal(set("", "1"), -ENOENT);
}

/* ---- argv ---- */

static FILE *captured;
static int saved_out, saved_err;

static void capture(void)
{
	fflush(stdout);
	fflush(stderr);
	captured = tmpfile();
	assert_non_null(captured);
	saved_out = dup(STDOUT_FILENO);
	saved_err = dup(STDERR_FILENO);
	dup2(fileno(captured), STDOUT_FILENO);
	dup2(fileno(captured), STDERR_FILENO);
}

static void release(char *out, size_t size)
{
	size_t len;

	fflush(stdout);
	fflush(stderr);
	dup2(saved_out, STDOUT_FILENO);
	dup2(saved_err, STDERR_FILENO);
	close(saved_out);
	close(saved_err);
	rewind(captured);
	len = fread(out, 1, size - 1, captured);
	out[len] = '\0';
	fclose(captured);
}

/* Parses up to five words; what is printed goes to @out. */
static int parse(char *out, size_t size, const char *a, const char *b,
		 const char *d, const char *e)
{
	const char *words[] = { "prog", a, b, d, e, NULL };
	char *argv[6] = { NULL };
	int argc = 0, ret;

	while (words[argc]) {
		argv[argc] = strdup(words[argc]);
		argc++;
	}
	capture();
	ret = opt_parse(table, &c, argc, argv);
	release(out, size);
	for (int i = 0; i < argc; i++)
		free(argv[i]);
	return ret;
}

static void parse_refused(const char *a, const char *b, const char *text)
{
	char out[500];

	assert_int_equal(parse(out, sizeof(out), a, b, NULL, NULL), -EINVAL);
	if (!strstr(out, text))
		fail_msg("%s: %s", a, out);
	assert_non_null(strstr(out, "--help"));
}

static void long_and_short_options_are_taken(void **state)
{
	char out[500];

	(void)state;
	assert_int_equal(parse(out, sizeof(out), "-v", "--count=7", "-pX",
			       "rest"), 4);
	assert_true(c.verbose);
	assert_int_equal(c.count, 7);
	assert_string_equal(c.path, "X");
	assert_string_equal(out, "");
	assert_int_equal(parse(out, sizeof(out), "--size", "1m", "-m", "off"),
			 5);
	assert_int_equal(c.size, 1 << 20);
	assert_int_equal(c.mode, 2);
}

static void flags_are_taken_back_with_no(void **state)
{
	char out[500];

	(void)state;
	assert_int_equal(parse(out, sizeof(out), "--no-cache", NULL, NULL,
			       NULL), 2);
	assert_false(c.cache);
	assert_int_equal(parse(out, sizeof(out), "--cache", NULL, NULL, NULL),
			 2);
	assert_true(c.cache);
}

static void two_dashes_end_the_options(void **state)
{
	char out[500];

	(void)state;
	assert_int_equal(parse(out, sizeof(out), "--", "-v", NULL, NULL), 2);
	assert_false(c.verbose);
}

static void bad_arguments_are_explained(void **state)
{
	(void)state;
	parse_refused("--nosuch", NULL, "there is no option '--nosuch'");
	parse_refused("-x", NULL, "there is no option '-x'");
	parse_refused("-vx", NULL, "there is no option '-x'");
	parse_refused("--count", NULL, "option '--count' needs a value");
	parse_refused("-c", NULL, "option '-c' needs a value");
	/* what is meant, though words came before */
	parse_refused("word", "--nosuch", "there is no option '--nosuch'");
	parse_refused("word", "--count", "option '--count' needs a value");
	parse_refused("--verbose=1", NULL,
		      "option '--verbose=1' takes no value");
	parse_refused("--count", "0", "count: 0 is out of range");
}

static void help_names_every_option_and_default(void **state)
{
	char out[4000];

	(void)state;
	assert_int_equal(parse(out, sizeof(out), "--help", NULL, NULL, NULL),
			 OPT_HELP);
	for (const struct opt *o = table; o->name; o++) {
		assert_non_null(strstr(out, o->name));
		assert_non_null(strstr(out, o->help));
	}
	assert_non_null(strstr(out, "(default 64m)"));
	assert_non_null(strstr(out, "auto, on or off"));
	assert_non_null(strstr(out, "-c, --count N"));
	assert_int_equal(parse(out, sizeof(out), "-h", NULL, NULL, NULL),
			 OPT_HELP);
}

static void version_is_printed(void **state)
{
	char out[500];

	(void)state;
	assert_int_equal(parse(out, sizeof(out), "--version", NULL, NULL,
			       NULL), OPT_VERSION);
	assert_non_null(strstr(out, "(hailfs) " HAILFS_VERSION));
}

static void a_dump_is_asked_for_and_reads_back(void **state)
{
	struct config back;
	char line[200], out[500];
	FILE *f = tmpfile();

	(void)state;
	assert_non_null(f);
	assert_int_equal(parse(out, sizeof(out), "--dump-config", "--size=5k",
			       "--wait=1500ms", "-v"), OPT_DUMP);
	set("mode", "on");
	opt_dump(table, &c, f);
	rewind(f);
	assert_int_equal(opt_defaults(table, &back), 0);
	while (fgets(line, sizeof(line), f)) {
		char *eq = strchr(line, '=');

		assert_non_null(eq);
		*eq = '\0';
		eq[strcspn(eq + 1, "\n") + 1] = '\0';
		assert_int_equal(opt_set(table, &back, line, eq + 1, NULL, 0),
				 0);
	}
	fclose(f);
	assert_true(back.verbose);
	assert_int_equal(back.size, 5120);
	assert_int_equal(back.wait, 1500);
	assert_int_equal(back.count, 3);
	assert_int_equal(back.mode, 1);
	assert_string_equal(back.path, "/srv");
	assert_null(back.name);
	opt_fini(table, &back);
}

static void every_failed_allocation_is_reported(void **state)
{
	(void)state;
	opt_fini(table, &c);
	fail_malloc_at(1);
	assert_int_equal(opt_defaults(table, &c), -ENOMEM);
	assert_true(fail_malloc_hit());
	opt_fini(table, &c);
	assert_int_equal(opt_defaults(table, &c), 0);
	fail_malloc_at(1);
	assert_int_equal(set("path", "x"), -ENOMEM);
	assert_true(fail_malloc_hit());
	assert_string_equal(c.path, "/srv");
}

static void arguments_without_memory_are_refused(void **state)
{
	unsigned nth = 1;

	(void)state;
	for (;; nth++) {
		char name[] = "prog", path[] = "--path=/x", dir[] = "dir";
		char *argv[] = { name, path, dir, NULL };
		int at;

		fail_malloc_at(nth);
		at = opt_parse(table, &c, 3, argv);
		if (!fail_malloc_hit()) {
			assert_int_equal(at, 2);
			break;
		}
		assert_true(at < 0);
		assert_string_equal(c.path, "/srv");
	}
	assert_true(nth > 4);
	assert_string_equal(c.path, "/x");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(defaults_are_those_of_the_table),
		TEST(sizes_take_suffixes),
		TEST(times_take_suffixes_and_mean_seconds_without),
		TEST(what_is_no_number_is_refused),
		TEST(overflows_are_out_of_range),
		TEST(bounds_are_inclusive),
		TEST(flags_take_words_and_mean_yes_without),
		TEST(choices_become_their_index),
		TEST(strings_are_copied_and_replaced),
		TEST(reasons_are_sentences),
		TEST(a_name_is_not_taken_by_a_part_of_it),
		TEST(long_and_short_options_are_taken),
		TEST(flags_are_taken_back_with_no),
		TEST(two_dashes_end_the_options),
		TEST(bad_arguments_are_explained),
		TEST(help_names_every_option_and_default),
		TEST(version_is_printed),
		TEST(a_dump_is_asked_for_and_reads_back),
		TEST(every_failed_allocation_is_reported),
		TEST(arguments_without_memory_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
