/* What a daemon is told by its command line and its line of the cluster file,
 * and which of them wins.
 */
#include "common/daemon_conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

struct config {
	struct daemon_config d; /* first */
	uint64_t size, rate;
};

static const struct opt table[] = {
	DAEMON_OPTIONS_FIRST("block daemon"),
	{ "size", 0, OPT_SIZE, offsetof(struct config, size), "1m", 0, 0, NULL,
	  "SIZE", "how large" },
	{ "rate", 0, OPT_SIZE, offsetof(struct config, rate), "7", 0, 0, NULL,
	  "SIZE", "how fast" },
	DAEMON_OPTIONS_LAST,
	{ .name = NULL },
};

static char path[] = "/tmp/hail-test-daemon-conf-XXXXXX";

static void write_file(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	if (fd < 0)
		return -1;
	return close(fd);
}

static int teardown(void **state)
{
	(void)state;
	return unlink(path);
}

/* What daemon_configure() says to these arguments, NULL-ended. */
static int configure(enum daemon_kind kind, const char *const *args,
		     struct config *c, struct conf *conf, uint32_t *id)
{
	const struct conf_daemon *self = NULL;
	char *argv[8] = { (char *)(uintptr_t)"hail-x" };
	int argc = 1, rv;

	while (*args && argc < 7)
		argv[argc++] = (char *)(uintptr_t)*args++;
	*conf = (struct conf){ 0 };
	*c = (struct config){ 0 };
	rv = daemon_configure(kind, table, c, argc, argv, conf, &self);
	assert_int_equal(rv == 0, self != NULL);
	*id = self ? self->id : 0;
	return rv;
}

static void forget(struct config *c, struct conf *conf)
{
	conf_fini(conf);
	opt_fini(table, c);
}

#define CLUSTER "cluster x\nid 1\nmetad 3 127.0.0.1:7000\n"

static void the_command_line_wins_over_the_cluster_file(void **state)
{
	const char *plain[] = { "-c", path, "--id=2", NULL };
	const char *size[] = { "-c", path, "--id=2", "--size=3m", NULL };
	struct config c;
	struct conf conf;
	uint32_t id;

	(void)state;
	write_file(CLUSTER "blockd 1 127.0.0.1:7001 size=9m\n"
		   "blockd 2 127.0.0.1:7002 size=2m log=/l\n");
	assert_int_equal(configure(DAEMON_BLOCKD, plain, &c, &conf, &id), 0);
	assert_int_equal(id, 2);
	assert_int_equal(c.size, 2u << 20);
	assert_int_equal(c.rate, 7);
	assert_string_equal(c.d.log, "/l");
	assert_false(c.d.foreground);
	forget(&c, &conf);
	assert_int_equal(configure(DAEMON_BLOCKD, size, &c, &conf, &id), 0);
	assert_int_equal(c.size, 3u << 20);
	assert_string_equal(c.d.log, "/l");
	forget(&c, &conf);
}

static void each_kind_has_its_own_lines(void **state)
{
	const char *one[] = { "-c", path, "-i", "1", NULL };
	const char *three[] = { "-c", path, "-i", "3", "-f", NULL };
	struct config c;
	struct conf conf;
	uint32_t id;

	(void)state;
	write_file(CLUSTER "blockd 1 127.0.0.1:7001\n");
	assert_int_equal(configure(DAEMON_BLOCKD, one, &c, &conf, &id), 0);
	forget(&c, &conf);
	assert_int_equal(configure(DAEMON_METAD, three, &c, &conf, &id), 0);
	assert_true(c.d.foreground);
	forget(&c, &conf);
	assert_int_equal(configure(DAEMON_METAD, one, &c, &conf, &id),
			 -ENOENT);
	forget(&c, &conf);
	assert_int_equal(configure(DAEMON_BLOCKD, three, &c, &conf, &id),
			 -ENOENT);
	forget(&c, &conf);
}

static void what_is_wrong_is_refused(void **state)
{
	const char *good[] = { "-c", path, "-i", "1", NULL };
	const char *const bad[][6] = {
		{ "-c", path, NULL },
		{ "-i", "1", NULL },
		{ "-c", path, "-i", "1", "more", NULL },
		{ "-c", path, "-i", "1", "--size=much", NULL },
		{ "-c", path, "-i", "1", "--what", NULL },
	};
	struct config c;
	struct conf conf;
	uint32_t id;

	(void)state;
	write_file(CLUSTER "blockd 1 127.0.0.1:7001\n");
	for (size_t i = 0; i < array_count(bad); i++) {
		assert_int_equal(configure(DAEMON_BLOCKD, bad[i], &c, &conf,
					   &id), -EINVAL);
		forget(&c, &conf);
	}
	write_file(CLUSTER "blockd 1 127.0.0.1:7001 what=1\n");
	assert_int_equal(configure(DAEMON_BLOCKD, good, &c, &conf, &id),
			 -ENOENT);
	forget(&c, &conf);
	write_file(CLUSTER "blockd 1 127.0.0.1:7001 size=much\n");
	assert_int_equal(configure(DAEMON_BLOCKD, good, &c, &conf, &id),
			 -EINVAL);
	forget(&c, &conf);
}

static void help_ends_it_without_a_cluster_file(void **state)
{
	const char *help[] = { "--help", NULL };
	const char *dump[] = { "--size=2m", "--dump-config", NULL };
	struct config c;
	struct conf conf;
	uint32_t id;

	(void)state;
	assert_int_equal(configure(DAEMON_BLOCKD, help, &c, &conf, &id), 1);
	forget(&c, &conf);
	assert_int_equal(configure(DAEMON_METAD, dump, &c, &conf, &id), 1);
	forget(&c, &conf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_command_line_wins_over_the_cluster_file),
		cmocka_unit_test(each_kind_has_its_own_lines),
		cmocka_unit_test(what_is_wrong_is_refused),
		cmocka_unit_test(help_ends_it_without_a_cluster_file),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
