/* The text of a log directory's options, and its pattern: checked against
 * fnmatch(3) for random patterns and names. */
#include "common/log_opts.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct wire_str str(const char *s)
{
	return (struct wire_str){ s, (uint32_t)strlen(s) };
}

static void nothing_said_is_all_defaults(void **state)
{
	static const char *const texts[] = { "", " ", "\n", "match=*" };
	struct log_opts o;

	(void)state;
	for (size_t i = 0; i < array_count(texts); i++) {
		memset(&o, 0xff, sizeof(o));
		assert_int_equal(log_opts_parse(str(texts[i]), &o), 0);
		assert_string_equal(o.match, "*");
		assert_int_equal(o.peers, 3);
		assert_int_equal(o.region_log2, LOG_REGION_LOG2_DEFAULT);
		assert_int_equal(o.destage, LOG_DESTAGE_AUTO);
		assert_int_equal(o.fallback, LOG_FALLBACK_BLOCKS);
	}
	assert_int_equal(log_opts_parse((struct wire_str){ NULL, 0 }, &o), 0);
}

static void every_option_is_taken(void **state)
{
	struct log_opts o;

	(void)state;
	assert_int_equal(log_opts_parse(str(" fallback=refuse\tdestage=close "
					    "region=64k peers=7  match=*-wal"),
					&o), 0);
	assert_string_equal(o.match, "*-wal");
	assert_int_equal(o.peers, 7);
	assert_int_equal(o.region_log2, 16);
	assert_int_equal(o.destage, LOG_DESTAGE_CLOSE);
	assert_int_equal(o.fallback, LOG_FALLBACK_REFUSE);
	assert_int_equal(log_opts_parse(str("destage=interval region=64M"),
					&o), 0);
	assert_int_equal(o.destage, LOG_DESTAGE_INTERVAL);
	assert_int_equal(o.region_log2, 26);
	assert_int_equal(log_opts_parse(str("destage=off region=65536"), &o),
			 0);
	assert_int_equal(o.destage, LOG_DESTAGE_OFF);
	assert_int_equal(o.region_log2, 16);
	assert_int_equal(log_opts_parse(str("peers=1 destage=auto "
					    "fallback=blocks"), &o), 0);
	assert_int_equal(o.peers, 1);
}

static void wrong_texts_are_refused(void **state)
{
	static const char *const wrong[] = {
		"x", "=", "match", "match=", "Match=*", "match=* match=*",
		"peers=0", "peers=2", "peers=9", "peers=-1", "peers=",
		"peers=a", "peers=3 peers=3", "peers=18446744073709551619",
		"peers=1k", "region=0", "region=32K", "region=128M",
		"region=65537", "region=4G", "region=M", "region=4MM",
		"region= 4M", "destage=", "destage=never", "destage=closed",
		"fallback=", "fallback=block", "match=[a", "match=a\\",
		"match=[[:alpha:]]", "match=[]", "match=[!]", "match=[a\\]",
		"match=\\\\[a", "*", "match=* ,",
	};
	char longest[NAME_LEN_MAX + 8] = "match=", text[LOG_OPTS_TEXT_MAX + 1];
	struct log_opts o;

	(void)state;
	for (size_t i = 0; i < array_count(wrong); i++)
		if (log_opts_parse(str(wrong[i]), &o) != -EINVAL)
			fail_msg("taken: %s", wrong[i]);
	assert_int_equal(log_opts_parse((struct wire_str){ "match=a\0b", 9 },
					&o), -EINVAL);
	memset(longest + 6, 'a', NAME_LEN_MAX);
	assert_int_equal(log_opts_parse((struct wire_str){
						longest, 6 + NAME_LEN_MAX },
					&o), 0);
	assert_int_equal(strlen(o.match), NAME_LEN_MAX);
	longest[6 + NAME_LEN_MAX] = 'a';
	assert_int_equal(log_opts_parse((struct wire_str){
						longest, 7 + NAME_LEN_MAX },
					&o), -EINVAL);
	memset(text, ' ', sizeof(text));
	assert_int_equal(log_opts_parse((struct wire_str){
						text, LOG_OPTS_TEXT_MAX - 1 },
					&o), 0);
	assert_int_equal(log_opts_parse((struct wire_str){
						text, LOG_OPTS_TEXT_MAX },
					&o), -EINVAL);
}

static void what_is_formatted_is_parsed_alike(void **state)
{
	static const char *const texts[] = {
		"", "match=*.log peers=5 region=1M destage=off fallback=refuse",
		"destage=close", "destage=interval region=64K",
		"match=[a-c]\\*",
	};
	char buf[LOG_OPTS_TEXT_MAX];
	struct log_opts o, back;
	size_t len;

	(void)state;
	for (size_t i = 0; i < array_count(texts); i++) {
		assert_int_equal(log_opts_parse(str(texts[i]), &o), 0);
		len = log_opts_format(&o, buf);
		assert_int_equal(len, strlen(buf));
		assert_int_equal(log_opts_parse(str(buf), &back), 0);
		assert_memory_equal(&o, &back, sizeof(o));
	}
	memset(o.match, 'm', NAME_LEN_MAX);
	o.region_log2 = LOG_REGION_LOG2_MAX;
	assert_true(log_opts_format(&o, buf) < LOG_OPTS_TEXT_MAX);
	assert_int_equal(log_opts_parse(str(buf), &back), 0);
}

static bool matches(const char *pattern, const char *name)
{
	struct log_opts o = { .peers = 3 };

	(void)snprintf(o.match, sizeof(o.match), "%s", pattern);
	assert_true(log_opts_pattern_ok(pattern, strlen(pattern)));
	return log_opts_match(&o, str(name));
}

static void names_match_patterns(void **state)
{
	(void)state;
	assert_true(matches("*", "anything"));
	assert_true(matches("*", ".hidden"));
	assert_true(matches("*-wal", "db-wal"));
	assert_true(matches("*-wal", "-wal"));
	assert_false(matches("*-wal", "db-wal2"));
	assert_true(matches("0*.log", "000123.log"));
	assert_false(matches("?.log", ".log"));
	assert_true(matches("ib_logfile[0-9]", "ib_logfile7"));
	assert_false(matches("ib_logfile[!0-9]", "ib_logfile7"));
	assert_true(matches("[]a]", "]"));
	assert_true(matches("[a-]", "-"));
	assert_true(matches("\\*", "*"));
	assert_false(matches("\\*", "a"));
	assert_true(matches("\xc3\xa9*", "\xc3\xa9t\xc3\xa9"));
	assert_false(matches("a", ""));
	assert_true(matches("**", ""));
}

/* The C library would take years for this one. */
static void no_pattern_takes_long(void **state)
{
	char pattern[NAME_LEN_MAX + 1], name[NAME_LEN_MAX + 1];

	(void)state;
	for (size_t i = 0; i < NAME_LEN_MAX; i++)
		pattern[i] = i % 2 == 0 ? '*' : 'a';
	pattern[NAME_LEN_MAX - 1] = 'b';
	pattern[NAME_LEN_MAX] = '\0';
	memset(name, 'a', NAME_LEN_MAX);
	name[NAME_LEN_MAX] = '\0';
	assert_false(matches(pattern, name));
}

static uint64_t next(uint64_t *rng) /* splitmix64 */
{
	uint64_t z = (*rng += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void random_text(uint64_t *rng, const char *letters, char *to,
			size_t len_max)
{
	size_t len = next(rng) % (len_max + 1);

	for (size_t i = 0; i < len; i++)
		to[i] = letters[next(rng) % strlen(letters)];
	to[len] = '\0';
}

static void matching_is_that_of_fnmatch(void **state)
{
	uint64_t rng = 1, patterns = 0, matched = 0;
	char pattern[16], name[8];

	(void)state;
	for (uint32_t i = 0; i < 300000; i++) {
		random_text(&rng, "**??[]!^-\\abc", pattern, 12);
		random_text(&rng, "abc-]*[\\!^", name, 5);
		if (!log_opts_pattern_ok(pattern, strlen(pattern)))
			continue;
		patterns++;
		if (matches(pattern, name) !=
		    (fnmatch(pattern, name, 0) == 0))
			fail_msg("pattern %s, name %s", pattern, name);
		matched += matches(pattern, name);
	}
	assert_true(patterns > 50000 && matched > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_is_all_defaults),
		cmocka_unit_test(every_option_is_taken),
		cmocka_unit_test(wrong_texts_are_refused),
		cmocka_unit_test(what_is_formatted_is_parsed_alike),
		cmocka_unit_test(names_match_patterns),
		cmocka_unit_test(no_pattern_takes_long),
		cmocka_unit_test(matching_is_that_of_fnmatch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
