/* The continuous copy: what is in it is durable at home, too; what fails
 * leaves nothing about; no batch is missing when the log is begun anew.
 */
#include "metad/copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/sm_fixture.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BIG (8u << 20)

static struct fix {
	uv_loop_t loop;
	struct sm_client c;
	struct copy *copy;
	char dir[64];
	uint64_t batch;
	unsigned frozen; /* times */
} x;

/* In place of metad/raft.c. */
struct sm_snap *metaraft_freeze(struct metaraft *m)
{
	(void)m;
	x.frozen++;
	return sm_snap_begin(x.c.sm);
}

void metaraft_trim(struct metaraft *m)
{
	(void)m;
}

static bool may_begin(void *arg)
{
	(void)arg;
	return true;
}

static void start(void)
{
	struct copy_options o = { .loop = &x.loop, .sm = x.c.sm,
				  .path = x.dir, .cluster_id = 7,
				  .may_begin = may_begin };
	char why[256] = "";

	assert_int_equal(copy_new(&o, &x.copy, why, sizeof(why)), 0);
}

static void end(void)
{
	if (x.copy)
		assert_true(copy_free(x.copy));
	x.copy = NULL;
	(void)uv_run(&x.loop, UV_RUN_DEFAULT);
}

static void until_state(const char *want)
{
	char state[160];

	while (strcmp(copy_state(x.copy, state, sizeof(state)), want) != 0)
		(void)uv_run(&x.loop, UV_RUN_ONCE);
}

/* The last command of x.c becomes a batch of its own. */
static void submit(void)
{
	size_t len = METARAFT_BATCH_HEAD + METARAFT_COMMAND_HEAD +
		     x.c.body_len;
	size_t all = u64_round_up(len, METARAFT_BATCH_ALIGN);
	uint8_t *buf = calloc(1, all);
	struct wire_out o;

	assert_non_null(buf);
	wire_out_init(&o, buf, len);
	wire_put_u64(&o, ++x.batch);
	wire_put_u32(&o, 1);
	wire_put_u16(&o, x.c.op);
	wire_put_u16(&o, 0);
	wire_put_u32(&o, (uint32_t)x.c.body_len);
	wire_put_u64(&o, x.c.internal ? 0 : x.c.session);
	wire_put_raw(&o, x.c.body, x.c.body_len);
	assert_false(o.overflow);
	sm_set_batch(x.c.sm, x.batch);
	copy_batch(x.copy, buf, all);
	free(buf);
}

static void make_file(const char *name)
{
	assert_int_equal(sm_client_file(&x.c, ROOT_INO, name), 0);
	submit();
}

static void path_of(const char *name, char *buf, size_t size)
{
	snprintf(buf, size, "%s/%s", x.dir, name);
}

static bool is_there(const char *name)
{
	char path[128];

	path_of(name, path, sizeof(path));
	return access(path, F_OK) == 0;
}

static off_t size_of(const char *name)
{
	char path[128];
	struct stat st;

	path_of(name, path, sizeof(path));
	return stat(path, &st) < 0 ? 0 : st.st_size;
}

/* Number of the last batch that has a whole frame in the log. */
static uint64_t last_in(const char *name)
{
	char path[128];
	uint8_t head[20];
	uint64_t last = 0;
	struct wire_in in;

	path_of(name, path, sizeof(path));
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	while (fread(head, sizeof(head), 1, f) == 1) {
		wire_in_init(&in, head, sizeof(head));
		assert_int_equal(wire_get_u32(&in), COPY_MAGIC);
		uint32_t len = wire_get_u32(&in);
		(void)wire_get_u32(&in);
		uint64_t number = wire_get_u64(&in);
		assert_true(last == 0 || number == last + 1);
		last = number;
		assert_int_equal(fseek(f, (long)len - 8, SEEK_CUR), 0);
	}
	fclose(f);
	return last;
}

static int setup(void **state)
{
	(void)state;
	memset(&x, 0, sizeof(x));
	sm_client_init(&x.c);
	snprintf(x.dir, sizeof(x.dir), "/tmp/test_copy.XXXXXX");
	return mkdtemp(x.dir) && uv_loop_init(&x.loop) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	DIR *d = opendir(x.dir);
	const struct dirent *e;

	(void)state;
	end();
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(d), e->d_name,
				       e->d_type == DT_DIR ? AT_REMOVEDIR : 0);
	if (d)
		closedir(d);
	(void)rmdir(x.dir);
	sm_client_fini(&x.c);
	return uv_loop_close(&x.loop);
}

static void what_is_not_durable_is_not_in_the_log(void **state)
{
	(void)state;
	start();
	until_state("ok");
	make_file("a");
	make_file("b");
	make_file("c");
	copy_durable(x.copy, 2);
	end();
	assert_int_equal(last_in("log-000000000001"), 2);
}

static void a_base_waits_until_it_is_durable(void **state)
{
	(void)state;
	start();
	make_file("a");
	while (x.frozen == 0)
		(void)uv_run(&x.loop, UV_RUN_ONCE);
	end();
	assert_false(is_there("base-000000000001"));
	start();
	while (x.frozen == 1)
		(void)uv_run(&x.loop, UV_RUN_ONCE);
	copy_durable(x.copy, 1);
	until_state("ok");
	assert_true(is_there("base-000000000001"));
}

static void batches_behind_the_base_are_executed_once(void **state)
{
	struct sm *sm = sm_new();
	char path[128], why[256] = "";
	size_t len, want_len, got_len;

	(void)state;
	start();
	make_file("a");
	while (x.frozen == 0)
		(void)uv_run(&x.loop, UV_RUN_ONCE);
	make_file("b");
	make_file("c");
	copy_durable(x.copy, 3);
	until_state("ok");
	end();

	path_of("base-000000000001", path, sizeof(path));
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	len = (size_t)size_of("base-000000000001");
	uint8_t *base = malloc(len);
	assert_non_null(base);
	assert_int_equal(fread(base, 1, len, f), len);
	fclose(f);
	assert_int_equal(sm_restore(sm, base, len), 0);
	free(base);
	assert_true(sm_batch(sm) == 1);
	path_of("log-000000000001", path, sizeof(path));
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(copy_read_log(sm, f, path, why, sizeof(why)), 0);
	fclose(f);
	uint8_t *want = sm_client_snapshot(x.c.sm, &want_len);
	uint8_t *got = sm_client_snapshot(sm, &got_len);
	assert_int_equal(want_len, got_len);
	assert_memory_equal(want, got, want_len);
	free(want);
	free(got);
	sm_free(sm);
}

static void a_base_that_fails_leaves_no_log(void **state)
{
	char path[128];

	(void)state;
	path_of("base-000000000001.part", path, sizeof(path));
	assert_int_equal(mkdir(path, 0700), 0);
	start();
	until_state("Is a directory");
	assert_false(is_there("log-000000000001"));
}

/* It is the longest that is begun anew; that happens on the loop, later. */
static void a_log_goes_on_until_its_end_is_taken(void **state)
{
	uint8_t *buf = calloc(1, BIG);
	off_t size = 0;
	struct wire_out o;

	(void)state;
	assert_non_null(buf);
	start();
	until_state("ok");
	for (unsigned i = 0; i < 8; i++) {
		wire_out_init(&o, buf, BIG);
		wire_put_u64(&o, ++x.batch);
		copy_batch(x.copy, buf, BIG);
		copy_durable(x.copy, x.batch);
		/* The next is not one with it. */
		for (size += 12 + BIG; size_of("log-000000000001") < size;)
			usleep(1000);
	}
	free(buf);
	make_file("a");
	copy_durable(x.copy, x.batch);
	end();
	assert_int_equal(x.frozen, 1);
	assert_int_equal(last_in("log-000000000001"), x.batch);
}

static void a_log_that_cannot_be_read_is_no_empty_one(void **state)
{
	char why[256] = "";
	FILE *f = fopen(x.dir, "re");

	(void)state;
	assert_non_null(f);
	assert_int_equal(copy_read_log(x.c.sm, f, x.dir, why, sizeof(why)),
			 -EISDIR);
	fclose(f);
	assert_non_null(strstr(why, "cannot read"));
}

#define COPY_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		COPY_TEST(what_is_not_durable_is_not_in_the_log),
		COPY_TEST(a_base_waits_until_it_is_durable),
		COPY_TEST(batches_behind_the_base_are_executed_once),
		COPY_TEST(a_base_that_fails_leaves_no_log),
		COPY_TEST(a_log_goes_on_until_its_end_is_taken),
		COPY_TEST(a_log_that_cannot_be_read_is_no_empty_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
