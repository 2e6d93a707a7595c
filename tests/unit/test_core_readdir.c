/* Listings of the client core against the real state machine behind a socket
 * (tests/lib/mini_metad.h): every name once, as it is now.
 *
 * Method: core_readdir() in pieces of all sizes while names come and go; what
 * it tells is compared with what the state machine says.
 */
#include "tests/lib/core_fix.h"

#include "fuse/core/core_priv.h"
#include "tests/lib/fail_malloc.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

struct listing {
	struct fix_call *k;
	uint64_t cookie;
	unsigned count, room, plus_known;
	uint8_t *found; /* by the number in the name */
	unsigned found_max;
	struct fix *f;
};

static bool on_dirent(void *arg, const struct meta_dirent *d,
		      const struct meta_attr *a)
{
	struct listing *l = arg;
	char name[NAME_LEN_MAX + 1];
	if (l->room == 0)
		return false;
	l->room--;
	l->count++;
	l->cookie = d->cookie;
	memcpy(name, d->name.p, d->name.len);
	name[d->name.len] = 0;
	if (a) {
		assert_int_equal(a->ino, d->ino);
		l->plus_known++;
	}
	unsigned long n = strtoul(name + 1, NULL, 10);
	if (l->found && n < l->found_max) {
		assert_int_equal(l->found[n], 0);
		l->found[n] = 1;
	}
	return true;
}

static void on_list_end(void *arg, int err)
{
	struct listing *l = arg;
	fix_call_done(l->k, err);
}

static void list_all(struct fix *f, struct listing *l, uint64_t dir,
		     unsigned room, bool plus, unsigned calls_max)
{
	unsigned before, calls = 0;
	do {
		before = l->count;
		l->room = room;
		l->k = fix_call_new();
		core_readdir(f->c, dir, l->cookie, room * 32, plus, on_dirent,
			     on_list_end, l);
		assert_int_equal(fix_call_end(l->k, NULL), 0);
	} while (l->count != before && ++calls < calls_max);
}

static void test_a_large_directory_lists_each_name_once(void **state)
{
	enum { FILES = 3000 };
	struct fix *f = fix_new(0);
	struct burst b;
	struct meta_attr d;
	uint8_t *found = calloc(1, FILES);
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	burst_start(f, &b, d.ino, FILES);
	burst_end(&b);
	assert_int_equal(b.first_err, 0);
	const unsigned rooms[] = { 1000000, 113, 32 };
	for (unsigned i = 0; i < array_count(rooms); i++) {
		for (int plus = 0; plus < 2; plus++) {
			struct listing l = { .found = found,
					     .found_max = FILES };
			memset(found, 0, FILES);
			list_all(f, &l, d.ino, rooms[i], plus != 0, 1000000);
			assert_int_equal(l.count, FILES);
			assert_int_equal(l.plus_known, plus ? FILES : 0);
		}
	}
	/* a page is asked for once, not once a call */
	uint64_t pages = mini_metad_received(f->m, WIRE_OP_META_READDIR);
	assert_true(pages < 60);
	free(found);
	fix_stop(f);
}

static void test_a_listing_begun_after_a_change_shows_it(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	for (unsigned i = 0; i < 20; i++) {
		char name[16];
		struct listing l = { 0 };
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_mkfile(f, d.ino, name, NULL), 0);
		list_all(f, &l, d.ino, 1000, true, 10);
		assert_int_equal(l.count, i + 1);
	}
	for (unsigned i = 0; i < 20; i++) {
		char name[16];
		struct listing l = { 0 };
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_unlink(f, d.ino, name, false), 0);
		list_all(f, &l, d.ino, 1000, false, 10);
		assert_int_equal(l.count, 19 - i);
	}
	fix_stop(f);
}

static void test_removing_while_listing_meets_every_name(void **state)
{
	enum { FILES = 1000 };
	struct fix *f = fix_new(0);
	struct burst b;
	struct meta_attr d;
	uint8_t *found = calloc(1, FILES);
	struct listing l = { .found = found, .found_max = FILES };
	unsigned removed = 0;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	burst_start(f, &b, d.ino, FILES);
	burst_end(&b);
	while (removed < FILES) {
		list_all(f, &l, d.ino, 50, true, 1);
		assert_true(l.count > removed);
		for (unsigned i = 0; i < FILES; i++) {
			char name[16];
			if (found[i] != 1)
				continue;
			snprintf(name, sizeof(name), "f%u", i);
			assert_int_equal(op_unlink(f, d.ino, name, false), 0);
			found[i] = 2;
			removed++;
		}
	}
	assert_int_equal(op_unlink(f, ROOT_INO, "d", true), 0);
	free(found);
	fix_stop(f);
}

static void test_listed_attributes_are_the_present_ones(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d, a;
	struct listing l = { 0 };
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_mkfile(f, d.ino, "f1", &a), 0);
	assert_int_equal(op_mkfile(f, d.ino, "f2", NULL), 0);
	list_all(f, &l, d.ino, 1, true, 1); /* the page is here now */
	assert_int_equal(op_chmod(f, a.ino, 0123), 0);
	list_all(f, &l, d.ino, 1, true, 1);
	assert_int_equal(l.count, 2);
	check_truth(f);
	fix_stop(f);
}

static void test_listing_moves_the_atime_as_relatime_does(
	void **state)
{
	struct fix *f = fix_new(0);
	struct listing l = { 0 }, again = { 0 };
	struct meta_attr d, a, b;
	(void)state;
	f->c->opt.noatime = false;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_mkfile(f, d.ino, "f", NULL), 0);
	pause_ms(20);
	list_all(f, &l, d.ino, 10, false, 10);
	assert_int_equal(op_getattr(f, d.ino, &a), 0);
	assert_true(a.atime_ns > a.mtime_ns);
	pause_ms(20);
	list_all(f, &again, d.ino, 10, false, 10);
	assert_int_equal(op_getattr(f, d.ino, &b), 0);
	assert_int_equal(a.atime_ns, b.atime_ns);
	/* and metad is told some time */
	wait_until(mini_metad_getattr(f->m, d.ino, &b) == 0 &&
		   b.atime_ns == a.atime_ns);
	fix_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_large_directory_lists_each_name_once),
		cmocka_unit_test(test_a_listing_begun_after_a_change_shows_it),
		cmocka_unit_test(test_removing_while_listing_meets_every_name),
		cmocka_unit_test(test_listed_attributes_are_the_present_ones),
		cmocka_unit_test(
			test_listing_moves_the_atime_as_relatime_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
