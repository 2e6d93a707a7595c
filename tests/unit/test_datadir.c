/* The files of metad's data directory that are its own: what is in
 * tests/golden/datadir-v1.hex is read for ever, and written alike.
 * HAILFS_GOLDEN=write makes the file (for a new version only).
 */
#include "metad/datadir.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "metad/mark.h"
#include "tests/lib/golden.h"

#define GOLDEN_PATH "tests/golden/datadir-v1.hex"
#define CLUSTER UINT64_C(0x1122334455667788)
#define MARK_BYTES 48 /* two slots; the page is zero behind them */

static char dir[64];

static const char *path_of(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static int setup(void **state)
{
	(void)state;
	(void)snprintf(dir, sizeof(dir), "/tmp/hailfs-datadir.XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static size_t file_read(const char *name, uint8_t *buf, size_t cap)
{
	FILE *f = fopen(path_of(name), "re");
	size_t len;

	assert_non_null(f);
	len = fread(buf, 1, cap, f);
	assert_int_equal(fclose(f), 0);
	return len;
}

static void file_write(const char *name, const uint8_t *p, size_t len)
{
	FILE *f = fopen(path_of(name), "we");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static size_t id_make(uint8_t *buf, size_t cap)
{
	struct datadir d;
	char why[300];

	assert_int_equal(datadir_open(&d, dir, CLUSTER, 3, why, sizeof(why)),
			 0);
	assert_int_equal(d.state, DATADIR_EMPTY);
	assert_int_equal(datadir_set(&d, DATADIR_OK), 0);
	datadir_close(&d);
	return file_read("metad.id", buf, cap);
}

static void mark_make(uint8_t *buf)
{
	struct mark *m;

	assert_int_equal(mark_open(dir, path_of("raft"), &m), 0);
	mark_set(m, 0x0102030405060708u);
	mark_set(m, 9);
	mark_close(m);
	assert_int_equal(file_read("mark", buf, MARK_BYTES), MARK_BYTES);
}

static void the_id_file_is_that_of_version_1(void **state)
{
	uint8_t made[512], old[512];
	size_t len = id_make(made, sizeof(made));
	struct datadir d;
	char why[300];

	(void)state;
	assert_int_equal(golden_read(GOLDEN_PATH, "metad.id", old,
				     sizeof(old)), len);
	assert_memory_equal(made, old, len);
	file_write("metad.id", old, len);
	assert_int_equal(datadir_open(&d, dir, CLUSTER, 3, why, sizeof(why)),
			 0);
	assert_int_equal(d.state, DATADIR_OK);
	datadir_close(&d);
	/* "hailfs-metad 1": of a later version it is refused. */
	old[strlen("hailfs-metad ")] = '2';
	file_write("metad.id", old, len);
	assert_int_equal(datadir_open(&d, dir, CLUSTER, 3, why, sizeof(why)),
			 -EPROTONOSUPPORT);
}

static void the_mark_is_that_of_version_1(void **state)
{
	uint8_t made[MARK_BYTES], old[MARK_BYTES];
	struct datadir d;
	struct mark *m;
	char why[300];

	(void)state;
	assert_int_equal(datadir_open(&d, dir, CLUSTER, 3, why, sizeof(why)),
			 0);
	assert_int_equal(datadir_set(&d, DATADIR_OK), 0);
	mark_make(made);
	assert_int_equal(golden_read(GOLDEN_PATH, "mark", old, sizeof(old)),
			 MARK_BYTES);
	assert_memory_equal(made, old, MARK_BYTES);
	file_write("mark", old, MARK_BYTES);
	assert_int_equal(mark_open(dir, d.raft, &m), 0);
	assert_int_equal(mark_get(m), 0x0102030405060708u);
	mark_close(m);
	datadir_close(&d);
}

static void golden_is_written(void **state)
{
	uint8_t buf[512];
	FILE *f = fopen(GOLDEN_PATH, "we");

	(void)state;
	assert_non_null(f);
	golden_put(f, "metad.id", buf, id_make(buf, sizeof(buf)));
	mark_make(buf);
	golden_put(f, "mark", buf, MARK_BYTES);
	assert_int_equal(fclose(f), 0);
}

#define t(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(the_id_file_is_that_of_version_1),
		t(the_mark_is_that_of_version_1),
	};
	const struct CMUnitTest writes[] = { t(golden_is_written) };

	if (getenv("HAILFS_GOLDEN") != NULL)
		return cmocka_run_group_tests(writes, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
