/* Memory an inode takes, and the speed of the pure machine, with a million
 * files in one directory (SM_FILES=n for another number). Figures are
 * printed; the memory bound is checked, speed is not. */
#include "tests/lib/sm_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

/* Of this thread alone, so that a busy machine does not count. */
static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint32_t file_count(void)
{
	const char *text = getenv("SM_FILES");

#ifdef HAIL_DEBUG
	return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 50000;
#else
	return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 1000000;
#endif
}

static void name_of(uint32_t i, char *name, size_t size)
{
	(void)snprintf(name, size, "file-%012u.dat", i);
}

struct bench {
	struct sm_client c;
	uint32_t files;
	uint32_t some; /* of them: for what is slow */
	double at;
};

static void lap(struct bench *b, const char *what, uint32_t count)
{
	double now = seconds();

	print_message("%-24s %9.0f /s\n", what, count / (now - b->at));
	b->at = seconds();
}

static void make_files(struct bench *b)
{
	char name[32];

	for (uint32_t i = 0; i < b->files; i++) {
		struct meta_create p = {
			.parent = ROOT_INO, .mode = S_IFREG | 0644,
			.uid = 1000, .gid = 1000,
			.flags = META_CREATE_LEASE | META_CREATE_OPEN,
		};

		name_of(i, name, sizeof(name));
		p.name = (struct wire_str){ name, (uint32_t)strlen(name) };
		assert_int_equal(sm_client_create(&b->c, &p), 0);
	}
	lap(b, "create with lease", b->files);
}

/* As a client does after it has written 4 KiB to each. */
static void return_sizes(struct bench *b)
{
	struct meta_return items[64];

	for (uint32_t i = 0; i < b->files;) {
		uint32_t count = 0;

		for (; count < 64 && i < b->files; count++, i++)
			items[count] = (struct meta_return){
				.ino = ROOT_INO + 1 + i,
				.what = META_RETURN_SIZE | META_RETURN_LEASE,
				.size = 4096,
				.units_delta = 1,
				.mtime_ns = b->c.now + 12345678,
				.ctime_ns = b->c.now + 12345678,
			};
		assert_int_equal(sm_client_return(&b->c, items, count), 0);
	}
	lap(b, "return size and lease", b->files);
}

static void look_up(struct bench *b)
{
	char name[32];

	for (uint32_t i = 0; i < b->files; i++) {
		name_of((uint32_t)((uint64_t)i * 7919 % b->files), name,
			sizeof(name));
		assert_int_equal(sm_client_lookup(&b->c, ROOT_INO, name), 0);
	}
	lap(b, "lookup", b->files);
}

static void list(struct bench *b, bool plus)
{
	uint64_t cookie = 0, count = 0;
	bool eof = false;

	while (!eof) {
		int got = sm_client_readdir(&b->c, ROOT_INO, &cookie, 65536,
					    plus, &eof, NULL, NULL);

		assert_true(got >= 0);
		count += (uint64_t)got;
	}
	assert_int_equal(count, b->files);
	lap(b, plus ? "readdirplus" : "readdir", b->files);
}

static void snapshot(struct bench *b)
{
	struct sm_snap *s;
	struct sm *copy = sm_new();
	uint8_t *buf;
	uint64_t size;
	double before = seconds();

	s = sm_snap_begin(b->c.sm);
	print_message("%-24s %9.3f ms\n", "snapshot begin",
		      (seconds() - before) * 1e3);
	b->at = seconds();
	size = sm_snap_size(s);
	buf = malloc(size);
	assert_int_equal(sm_snap_next(s, buf, size), size);
	lap(b, "snapshot write", b->files);
	before = seconds();
	sm_snap_end(b->c.sm, s);
	print_message("%-24s %9.3f ms\n", "snapshot end",
		      (seconds() - before) * 1e3);
	b->at = seconds();
	assert_int_equal(sm_restore(copy, buf, size), 0);
	lap(b, "restore", b->files);
	print_message("%-24s %9.1f bytes an inode\n", "snapshot",
		      (double)size / b->files);
	print_message("%-24s %9.1f bytes an inode\n", "memory when restored",
		      (double)sm_bytes(copy) / b->files);
	sm_free(copy);
	free(buf);
	b->at = seconds();
}

/* With a snapshot out that freezes all pages. */
static void rename_under_snapshot(struct bench *b)
{
	struct sm_snap *s = sm_snap_begin(b->c.sm);
	double worst = 0;
	char from[32], to[40];

	b->at = seconds();
	for (uint32_t i = 0; i < b->some; i++) {
		double start = seconds();

		name_of(i, from, sizeof(from));
		(void)snprintf(to, sizeof(to), "%s~", from);
		assert_int_equal(sm_client_rename(&b->c, ROOT_INO, from,
						  ROOT_INO, to, 0, NULL), 0);
		start = seconds() - start;
		worst = start > worst ? start : worst;
	}
	lap(b, "rename under snapshot", b->some);
	print_message("%-24s %9.3f ms\n", "longest of them", worst * 1e3);
	worst = seconds();
	sm_snap_end(b->c.sm, s);
	print_message("%-24s %9.3f ms\n", "snapshot end",
		      (seconds() - worst) * 1e3);
	b->at = seconds();
}

static void unlink_some(struct bench *b)
{
	char name[40];

	for (uint32_t i = 0; i < b->some; i++) {
		name_of(i, name, sizeof(name));
		(void)strncat(name, "~", 2);
		assert_int_equal(sm_client_unlink(&b->c, ROOT_INO, name), 0);
		assert_int_equal(sm_client_give_back(&b->c, ROOT_INO + 1 + i,
						     META_RETURN_ORPHAN), 0);
	}
	lap(b, "unlink and give back", b->some);
}

static void an_inode_takes_at_most_400_bytes(void **state)
{
	struct bench b = { .files = file_count() };
	double each;

	(void)state;
	sm_client_init(&b.c);
	b.some = b.files < 100000 ? b.files : 100000;
	b.at = seconds();
	make_files(&b);
	return_sizes(&b);
	each = (double)sm_bytes(b.c.sm) / b.files;
	print_message("%-24s %9.1f bytes an inode\n", "memory", each);
	assert_true(each <= 400);
	look_up(&b);
	list(&b, false);
	list(&b, true);
	snapshot(&b);
	rename_under_snapshot(&b);
	unlink_some(&b);
	sm_client_fini(&b.c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_inode_takes_at_most_400_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
