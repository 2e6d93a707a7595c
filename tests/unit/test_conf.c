/* The cluster file: what is accepted, and for what is not the place and the
 * sentence that the user gets.
 */
#include "common/conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fail_malloc.h"

#define HEAD "id 1\nmetad 1 127.0.0.1:7000\n"

static void parse(const char *text, struct conf *c)
{
	struct conf_error err;

	if (conf_parse(text, strlen(text), c, &err) != 0)
		fail_msg("%u:%u: %s", err.line, err.column, err.text);
}

/* Expects @text to be refused at @line, @column with a text that has @part. */
static void refused(const char *text, unsigned line, unsigned column,
		    const char *part)
{
	struct conf_error err;
	struct conf c;

	assert_int_equal(conf_parse(text, strlen(text), &c, &err), -EINVAL);
	if (!strstr(err.text, part) || err.line != line ||
	    err.column != column)
		fail_msg("%s\n-> %u:%u: %s", text, err.line, err.column,
			 err.text);
	assert_null(c.metads);
	assert_null(c.name);
}

/* ---- accepted ---- */

static void a_whole_file_is_read(void **state)
{
	static const char text[] =
		"# a rack\n"
		"cluster rack1\n"
		"id 0x1122334455667788\n"
		"\n"
		"replicas 1  # one copy\n"
		"key \"the key\"\n"
		"wire mac\n"
		"metad  1 127.0.0.1:7000 data=/srv/meta\n"
		"blockd 1 127.0.0.1:7101 data=/srv/d1 domain=a capacity=1t\n"
		"\tblockd 2 [::1]:7102 data=/srv/d2 journal=64m cache=1g\n"
		"logd 1 host.example:7201";
	const struct conf_daemon *d;
	struct conf c;

	(void)state;
	parse(text, &c);
	assert_string_equal(c.name, "rack1");
	assert_true(c.cluster_id == 0x1122334455667788);
	assert_int_equal(c.replicas, 1);
	assert_string_equal(c.key, "the key");
	assert_int_equal(c.wire, GUARD_MAC);
	assert_int_equal(c.metad_count, 1);
	assert_int_equal(c.blockd_count, 2);
	assert_int_equal(c.logd_count, 1);
	assert_string_equal(c.metads[0].addr, "127.0.0.1");
	assert_int_equal(c.metads[0].port, 7000);
	assert_string_equal(c.metads[0].data, "/srv/meta");
	assert_null(c.metads[0].domain);
	assert_string_equal(c.blockds[0].domain, "a");
	d = conf_find(c.blockds, c.blockd_count, 2);
	assert_non_null(d);
	assert_string_equal(d->addr, "::1");
	assert_int_equal(d->opt_count, 2);
	assert_string_equal(d->opt_keys[0], "journal");
	assert_string_equal(d->opt_values[0], "64m");
	assert_string_equal(d->opt_keys[1], "cache");
	assert_string_equal(d->opt_values[1], "1g");
	assert_int_equal(d->opt_at[1].line, d->opt_at[0].line);
	assert_true(d->opt_at[1].column > d->opt_at[0].column);
	assert_string_equal(c.logds[0].addr, "host.example");
	assert_null(conf_find(c.blockds, c.blockd_count, 3));
	conf_fini(&c);
}

static void the_smallest_file_is_an_id_and_a_metad(void **state)
{
	struct conf c;

	(void)state;
	parse(HEAD, &c);
	assert_null(c.name);
	assert_int_equal(c.replicas, 1);
	assert_int_equal(c.blockd_count, 0);
	conf_fini(&c);
}

static void quotes_keep_blanks_and_escapes(void **state)
{
	struct conf c;

	(void)state;
	parse("id 1\nmetad 1 a:1 data=\"/srv/my \\\"disk\\\" \\\\ #1\"\n", &c);
	assert_string_equal(c.metads[0].data, "/srv/my \"disk\" \\ #1");
	conf_fini(&c);
}

static void a_hash_inside_a_word_is_no_comment(void **state)
{
	struct conf c;

	(void)state;
	parse("id 1\nmetad 1 a:1 data=/srv/a#b # c\n", &c);
	assert_string_equal(c.metads[0].data, "/srv/a#b");
	conf_fini(&c);
}

static void decimal_and_hex_ids_reach_the_largest(void **state)
{
	struct conf c;

	(void)state;
	parse("id 18446744073709551615\nmetad 1 a:1\n", &c);
	assert_true(c.cluster_id == UINT64_MAX);
	conf_fini(&c);
	parse("id 0XfFfFfFfFfFfFfFfF\nmetad 1 a:1\n", &c);
	assert_true(c.cluster_id == UINT64_MAX);
	conf_fini(&c);
}

static void as_many_daemons_as_the_limit_are_read(void **state)
{
	static char text[64 * (DAEMON_COUNT_MAX + 2)];
	size_t len = (size_t)snprintf(text, sizeof(text), HEAD);
	struct conf_error err;
	struct conf c;

	(void)state;
	for (unsigned i = 1; i <= DAEMON_COUNT_MAX; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"blockd %u b:%u\n", i, i);
	parse(text, &c);
	assert_int_equal(c.blockd_count, DAEMON_COUNT_MAX);
	conf_fini(&c);
	len += (size_t)snprintf(text + len, sizeof(text) - len,
				"blockd 999 b:999\n");
	assert_int_equal(conf_parse(text, len, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "more than 256 blockd lines"));
}

static void finishing_twice_or_after_an_error_is_harmless(void **state)
{
	struct conf_error err;
	struct conf c;

	(void)state;
	parse(HEAD, &c);
	conf_fini(&c);
	conf_fini(&c);
	assert_int_equal(conf_parse("x", 1, &c, &err), -EINVAL);
	conf_fini(&c);
}

/* ---- refused ---- */

static void an_unknown_line_is_refused(void **state)
{
	(void)state;
	refused(HEAD "  blokd 1 a:1\n", 3, 3, "\"blokd\" is unknown");
	refused(HEAD "Blockd 1 a:1\n", 3, 1, "is unknown");
}

static void what_must_be_there_is_missed(void **state)
{
	(void)state;
	refused("", 1, 1, "no id line");
	refused("# nothing\n", 1, 1, "no id line");
	refused("metad 1 a:1\n", 1, 1, "no id line");
	refused("id 1\n", 1, 1, "no metad line");
}

static void what_protects_frames_follows_the_key(void **state)
{
	struct conf c;

	(void)state;
	parse(HEAD, &c);
	assert_null(c.key);
	assert_int_equal(c.wire, GUARD_PLAIN);
	conf_fini(&c);
	parse("wire plain\n" HEAD, &c);
	assert_int_equal(c.wire, GUARD_PLAIN);
	conf_fini(&c);
	parse(HEAD "key k\n", &c);
	assert_int_equal(c.wire, GUARD_CRYPT);
	conf_fini(&c);
	parse("wire plain\n" HEAD "key k\n", &c);
	assert_int_equal(c.wire, GUARD_PLAIN);
	conf_fini(&c);
}

static void an_even_number_of_metads_is_refused(void **state)
{
	(void)state;
	refused(HEAD "metad 2 a:2\n", 3, 1, "2 metad lines; 1, 3 or 5");
	refused(HEAD "metad 2 a:2\nmetad 3 a:3\nmetad 4 a:4\nmetad 5 a:5\n"
		     "metad 6 a:6\nmetad 7 a:7\n", 8, 1, "7 metad lines");
}

static void what_is_given_twice_is_refused(void **state)
{
	(void)state;
	refused("id 1\nid 1\n", 2, 1, "id is given twice");
	refused("key a\nkey a\n", 2, 1, "key is given twice");
	refused("wire tls\nwire tls\n", 2, 1, "wire is given twice");
	refused("cluster a\ncluster b\n", 2, 1, "cluster is given twice");
	refused("replicas 1\nreplicas 1\n", 2, 1, "replicas is given twice");
	refused(HEAD "blockd 1 a:1\nblockd 1 a:2\n", 4, 8,
		"blockd 1 is given twice");
	refused(HEAD "blockd 1 a:1 data=x data=y\n", 3, 21,
		"data is given twice");
	refused(HEAD "blockd 1 a:1 domain=x domain=y\n", 3, 23,
		"domain is given twice");
	refused(HEAD "blockd 1 a:1 k=x k=y\n", 3, 18, "k is given twice");
}

static void two_daemons_cannot_share_an_address(void **state)
{
	(void)state;
	refused(HEAD "blockd 1 127.0.0.1:7000\n", 3, 10, "another daemon");
	refused(HEAD "logd 1 a:1\nblockd 1 a:1\n", 4, 10, "another daemon");
}

static void bad_ids_are_refused(void **state)
{
	static const char *const bad[] = { "0", "-1", "+1", "x", "0x", "1x",
		"0xg", "18446744073709551616", "0x10000000000000000", "\"\"" };
	char text[64];

	(void)state;
	for (size_t i = 0; i < array_count(bad); i++) {
		snprintf(text, sizeof(text), "id %s\n", bad[i]);
		refused(text, 1, 4, "is not a cluster id");
	}
}

static void bad_daemon_numbers_are_refused(void **state)
{
	static const char *const bad[] = { "0", "-1", "x", "4294967296", "0x1",
					   "1.5" };
	char text[64];

	(void)state;
	for (size_t i = 0; i < array_count(bad); i++) {
		snprintf(text, sizeof(text), "blockd %s a:1\n", bad[i]);
		refused(text, 1, 8, "is not a daemon's number");
	}
}

static void more_than_one_copy_is_not_promised(void **state)
{
	(void)state;
	refused("replicas 2\n", 1, 10, "keeps one copy");
	refused("replicas 0\n", 1, 10, "keeps one copy");
	refused("replicas x\n", 1, 10, "keeps one copy");
}

static void bad_addresses_are_refused(void **state)
{
	(void)state;
	refused("metad 1 host\n", 1, 9, "has no port");
	refused("metad 1 host:\n", 1, 14, "is not a number from 1 to 65535");
	refused("metad 1 host:0\n", 1, 14, "is not a number from 1 to 65535");
	refused("metad 1 host:65536\n", 1, 14, "is not a number from");
	refused("metad 1 host:+1\n", 1, 14, "is not a number from");
	refused("metad 1 :1\n", 1, 9, "1 to 63 bytes");
	refused("metad 1 ::1:1\n", 1, 9, "[ADDRESS]:PORT");
	refused("metad 1 [zz]:1\n", 1, 9, "is not an address");
	refused("metad 1 [127.0.0.1]:1\n", 1, 9, "is not an address");
	refused("metad 1 a/b:1\n", 1, 9, "is not an address");
	refused("metad 1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaa:1\n", 1, 9, "1 to 63 bytes");
}

static void bad_keys_are_refused(void **state)
{
	(void)state;
	refused("metad 1 a:1 data\n", 1, 13, "is not KEY=VALUE");
	refused("metad 1 a:1 =x\n", 1, 13, "is not KEY=VALUE");
	refused("metad 1 a:1 Data=x\n", 1, 13, "is not KEY=VALUE");
	refused("metad 1 a:1 -d=x\n", 1, 13, "is not KEY=VALUE");
	refused("metad 1 a:1 data=\n", 1, 13, "data has no value");
	refused("metad 1 a:1 domain=a/b\n", 1, 13, "a domain's name");
}

static void missing_and_surplus_words_are_refused(void **state)
{
	(void)state;
	refused("metad\n", 1, 1, "write metad NUMBER ADDRESS:PORT");
	refused("blockd 1\n", 1, 1, "write blockd NUMBER ADDRESS:PORT");
	refused("id\n", 1, 1, "id: needs a number");
	refused("key\n", 1, 1, "key: needs a file");
	refused("key \"\"\n", 1, 5, "a file's name is missing");
	refused("wire\n", 1, 1, "wire: needs tls, mac or plain");
	refused("wire TLS\n", 1, 6, "is tls, mac or plain");
	refused("wire tls\n" HEAD, 1, 1, "a key line is missing");
	refused("cluster\n", 1, 1, "cluster: needs a name");
	refused("id 1 2\n", 1, 6, "\"2\" is one word too many");
	refused("cluster a/b\n", 1, 9, "letters, digits");
}

static void bad_quotes_are_refused(void **state)
{
	(void)state;
	refused("metad 1 a:1 data=\"/srv\n", 1, 18, "never closed");
	refused("cluster \"a", 1, 9, "never closed");
	refused("cluster \"a\\n\"", 1, 11, "after a backslash");
	refused("cluster \"a\\", 1, 11, "after a backslash");
}

static void control_bytes_are_refused(void **state)
{
	struct conf_error err;
	struct conf c;

	(void)state;
	refused("cluster a\rb\n", 1, 10, "byte 0x0d");
	refused("cluster \"a\x1b\"\n", 1, 11, "byte 0x1b");
	assert_int_equal(conf_parse("id 1\0\n", 6, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, "byte 0x00"));
}

static void long_lines_are_refused(void **state)
{
	static char text[8000];

	(void)state;
	for (unsigned i = 0; i < 65; i++)
		memcpy(text + 2 * i, "a ", 2);
	text[130] = '\0';
	refused(text, 1, 129, "more than 64 words");
	memset(text, 'a', 5000);
	text[5000] = '\0';
	refused(text, 1, 1, "more than 4096 bytes");
}

static void every_prefix_of_a_file_is_accepted_or_explained(void **state)
{
	static const char text[] =
		"cluster rack1\nid 0x11\nreplicas 1\n"
		"metad 1 [::1]:7000 data=\"/srv/a b\" \n"
		"blockd 1 127.0.0.1:7101 data=/srv/d1 k=v\n";

	(void)state;
	for (size_t len = 0; len < sizeof(text); len++) {
		char *copy = malloc(len + 1); /* asan sees an overread */
		struct conf_error err;
		struct conf c;

		memcpy(copy, text, len);
		copy = realloc(copy, len ? len : 1);
		if (conf_parse(copy, len, &c, &err) == 0)
			conf_fini(&c);
		else
			assert_true(err.line > 0 && err.column > 0 &&
				    *err.text);
		free(copy);
	}
}

/* ---- memory and files ---- */

static void every_failed_allocation_is_reported(void **state)
{
	static const char text[] = HEAD "cluster x\n"
		"blockd 1 b:1 data=d domain=e k=v l=w\n";

	(void)state;
	for (unsigned nth = 1;; nth++) {
		struct conf_error err;
		struct conf c;
		int status;

		fail_malloc_at(nth);
		status = conf_parse(text, sizeof(text) - 1, &c, &err);
		if (!fail_malloc_hit()) {
			assert_int_equal(status, 0);
			conf_fini(&c);
			assert_true(nth > 10);
			break;
		}
		assert_int_equal(status, -ENOMEM);
		assert_null(c.metads);
	}
}

/* Writes a file, loads it, and puts what was printed into @out. */
static int load(const char *text, char *out, size_t size)
{
	char path[] = "/tmp/test_conf.XXXXXX";
	int fd = mkstemp(path), saved = dup(STDERR_FILENO);
	FILE *err = tmpfile();
	struct conf c;
	size_t len;
	int status;

	assert_true(fd >= 0 && saved >= 0 && err);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	fflush(stderr);
	dup2(fileno(err), STDERR_FILENO);
	status = conf_load(path, &c);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	if (status == 0)
		conf_fini(&c);
	rewind(err);
	len = fread(out, 1, size - 1, err);
	out[len] = '\0';
	fclose(err);
	unlink(path);
	return status;
}

static void a_good_file_loads_silently(void **state)
{
	char out[512];

	(void)state;
	assert_int_equal(load(HEAD, out, sizeof(out)), 0);
	assert_string_equal(out, "");
}

static void a_bad_file_is_reported_with_its_place(void **state)
{
	char out[512];

	(void)state;
	assert_int_equal(load("id 1\nmetad 1 a\n", out, sizeof(out)), -EINVAL);
	assert_non_null(strstr(out, ":2:9: \"a\" has no port"));
}

static void a_missing_file_is_reported(void **state)
{
	struct conf c;

	(void)state;
	assert_int_equal(conf_load("/nonexistent/cluster.conf", &c), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_file_is_read),
		cmocka_unit_test(the_smallest_file_is_an_id_and_a_metad),
		cmocka_unit_test(quotes_keep_blanks_and_escapes),
		cmocka_unit_test(a_hash_inside_a_word_is_no_comment),
		cmocka_unit_test(decimal_and_hex_ids_reach_the_largest),
		cmocka_unit_test(as_many_daemons_as_the_limit_are_read),
		cmocka_unit_test(finishing_twice_or_after_an_error_is_harmless),
		cmocka_unit_test(an_unknown_line_is_refused),
		cmocka_unit_test(what_must_be_there_is_missed),
		cmocka_unit_test(an_even_number_of_metads_is_refused),
		cmocka_unit_test(what_protects_frames_follows_the_key),
		cmocka_unit_test(what_is_given_twice_is_refused),
		cmocka_unit_test(two_daemons_cannot_share_an_address),
		cmocka_unit_test(bad_ids_are_refused),
		cmocka_unit_test(bad_daemon_numbers_are_refused),
		cmocka_unit_test(more_than_one_copy_is_not_promised),
		cmocka_unit_test(bad_addresses_are_refused),
		cmocka_unit_test(bad_keys_are_refused),
		cmocka_unit_test(missing_and_surplus_words_are_refused),
		cmocka_unit_test(bad_quotes_are_refused),
		cmocka_unit_test(control_bytes_are_refused),
		cmocka_unit_test(long_lines_are_refused),
		cmocka_unit_test(
			every_prefix_of_a_file_is_accepted_or_explained),
		cmocka_unit_test(every_failed_allocation_is_reported),
		cmocka_unit_test(a_good_file_loads_silently),
		cmocka_unit_test(a_bad_file_is_reported_with_its_place),
		cmocka_unit_test(a_missing_file_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
