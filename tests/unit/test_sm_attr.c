/* Attributes: modes, owners, times, set-id bits, as Linux and ext4 do. */
#include "tests/lib/sm_fixture.h"

#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO
#define CAPABILITY "security.capability"

/* ---- modes of new objects ---- */

static void the_umask_takes_permission_bits_only(void **state)
{
	struct sm_client *c = *state;

	c->umask = 07777;
	assert_int_equal(sm_client_mknod(c, ROOT, "a", S_IFREG | 07777, 0), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 07000);
	assert_int_equal(sm_client_symlink(c, ROOT, "s", "x"), 0);
	assert_int_equal(c->attr.mode, S_IFLNK | 0777);
}

static void a_set_gid_directory_passes_its_group_on(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(sm_client_chown(c, d, 0, 42), 0);
	assert_int_equal(sm_client_chmod(c, d, 02775), 0);
	c->gid = 7;
	assert_int_equal(sm_client_file(c, d, "f"), 0);
	assert_int_equal(c->attr.gid, 42);
	assert_int_equal(c->attr.mode, S_IFREG | 0644);
	assert_int_equal(sm_client_mkdir(c, d, "e"), 0);
	assert_int_equal(c->attr.gid, 42);
	assert_int_equal(c->attr.mode, S_IFDIR | S_ISGID | 0755);
	assert_int_equal(sm_client_symlink(c, d, "s", "x"), 0);
	assert_int_equal(c->attr.gid, 42);
	assert_int_equal(sm_client_tmpfile(c, d, 0600), 0);
	assert_int_equal(c->attr.gid, 42);
}

static void elsewhere_the_creators_group_counts(void **state)
{
	struct sm_client *c = *state;

	c->uid = 5;
	c->gid = 7;
	assert_int_equal(sm_client_mkdir(c, ROOT, "d"), 0);
	assert_int_equal(c->attr.uid, 5);
	assert_int_equal(c->attr.gid, 7);
	assert_int_equal(c->attr.mode, S_IFDIR | 0755);
}

/* ---- chmod, chown ---- */

static void chmod_sets_all_twelve_bits_and_keeps_the_type(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_chmod(c, f, S_IFDIR | 07777), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 07777);
	assert_int_equal(sm_client_chmod(c, f, 0), 0);
	assert_int_equal(c->attr.mode, S_IFREG);
}

static void chown_clears_set_id_bits_of_files(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_setxattr(c, f, CAPABILITY, "x", 1, 0), 0);
	assert_int_equal(sm_client_chmod(c, f, 06755), 0);
	assert_true((c->attr.flags & META_ATTR_CAPS) != 0);
	assert_int_equal(sm_client_chown(c, f, 3, 4), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0755);
	assert_int_equal(c->attr.uid, 3);
	assert_int_equal(c->attr.gid, 4);
	assert_true((c->attr.flags & META_ATTR_CAPS) == 0);
}

static void set_gid_without_group_exec_survives_chown(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_chmod(c, f, 06745), 0);
	assert_int_equal(sm_client_chown(c, f, 3, 4), 0);
	assert_int_equal(c->attr.mode, S_IFREG | S_ISGID | 0745);
}

static void chown_leaves_set_id_bits_of_directories(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(sm_client_chmod(c, d, 07755), 0);
	assert_int_equal(sm_client_chown(c, d, 3, 4), 0);
	assert_int_equal(c->attr.mode, S_IFDIR | 07755);
}

static void killpriv_clears_what_a_write_must_clear(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_setattr s = { .ino = f, .valid = META_SET_KILLPRIV };
	char buf[8];

	assert_int_equal(sm_client_setxattr(c, f, CAPABILITY, "x", 1, 0), 0);
	assert_int_equal(sm_client_setxattr(c, f, "user.a", "x", 1, 0), 0);
	assert_int_equal(sm_client_chmod(c, f, 07771), 0);
	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_int_equal(c->attr.mode, S_IFREG | S_ISVTX | 0771);
	assert_int_equal(c->attr.flags, META_ATTR_XATTR);
	assert_int_equal(sm_client_getxattr(c, f, CAPABILITY, buf,
					    sizeof(buf)), -ENODATA);
	assert_int_equal(sm_client_getxattr(c, f, "user.a", buf, sizeof(buf)),
			 1);
}

/* ---- size ---- */

static void setattr_only_grows_files(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t p = SM_INO(c, sm_client_mknod(c, ROOT, "p", S_IFIFO | 0600,
					       0));
	struct meta_setattr s = { .ino = f, .valid = META_SET_SIZE,
				  .size = FILE_SIZE_MAX };

	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_true(c->attr.size == FILE_SIZE_MAX);
	assert_true(c->attr.mtime_ns == c->now);
	s.size = 10;
	assert_int_equal(sm_client_setattr(c, &s), -EINVAL);
	s.size = (uint64_t)FILE_SIZE_MAX + 1;
	assert_int_equal(sm_client_setattr(c, &s), -EFBIG);
	s.size = 10;
	s.ino = d;
	assert_int_equal(sm_client_setattr(c, &s), -EISDIR);
	s.ino = p;
	assert_int_equal(sm_client_setattr(c, &s), -EINVAL);
}

static void allocated_units_never_go_below_zero(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_setattr s = { .ino = f, .valid = META_SET_UNITS_DELTA,
				  .units_delta = 5 };

	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_int_equal(c->attr.units, 5);
	s.units_delta = -3;
	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_int_equal(c->attr.units, 2);
	s.units_delta = INT64_MIN;
	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_int_equal(c->attr.units, 0);
}

/* ---- times ---- */

static void a_new_object_has_four_equal_times(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	assert_true(c->attr.atime_ns == c->now && c->attr.mtime_ns == c->now &&
		    c->attr.ctime_ns == c->now && c->attr.btime_ns == c->now);
}

static void assert_moved(const struct meta_attr *a, int64_t mtime,
			 int64_t ctime)
{
	assert_true(a->mtime_ns == mtime);
	assert_true(a->ctime_ns == ctime);
}

static void changing_a_name_moves_times_of_directory_and_object(void **state)
{
	struct sm_client *c = *state;
	struct meta_attr a;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	int64_t born = c->now;

	a = sm_client_stat(c, ROOT);
	assert_moved(&a, c->now, c->now);
	assert_int_equal(sm_client_link(c, f, ROOT, "g"), 0);
	a = sm_client_stat(c, ROOT);
	assert_moved(&a, c->now, c->now);
	a = sm_client_stat(c, f);
	assert_moved(&a, born, c->now);
	assert_int_equal(sm_client_unlink(c, ROOT, "g"), 0);
	a = sm_client_stat(c, ROOT);
	assert_moved(&a, c->now, c->now);
	a = sm_client_stat(c, f);
	assert_moved(&a, born, c->now);
}

static void rename_moves_times_of_both_directories(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t e = SM_INO(c, sm_client_mkdir(c, ROOT, "e"));
	uint64_t f = SM_INO(c, sm_client_file(c, d, "f"));
	uint64_t g;
	int64_t born = c->now;
	struct meta_attr a;

	g = SM_INO(c, sm_client_file(c, e, "g"));
	assert_int_equal(sm_client_rename(c, d, "f", e, "g", 0, NULL), 0);
	a = sm_client_stat(c, d);
	assert_moved(&a, c->now, c->now);
	a = sm_client_stat(c, e);
	assert_moved(&a, c->now, c->now);
	a = sm_client_stat(c, f);
	assert_moved(&a, born, c->now);
	a = sm_client_stat(c, g); /* replaced: lost a link */
	assert_true(a.ctime_ns == c->now);
}

static void exchange_moves_the_ctime_of_both(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t g = SM_INO(c, sm_client_file(c, ROOT, "g"));

	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "g",
					  RENAME_EXCHANGE, NULL), 0);
	assert_true(sm_client_stat(c, f).ctime_ns == c->now);
	assert_true(sm_client_stat(c, g).ctime_ns == c->now);
	assert_true(sm_client_stat(c, ROOT).mtime_ns == c->now);
}

static void a_failed_command_moves_no_times(void **state)
{
	struct sm_client *c = *state;
	struct meta_attr before;

	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	before = sm_client_stat(c, ROOT);
	assert_int_equal(sm_client_file(c, ROOT, "f"), -EEXIST);
	assert_int_equal(sm_client_unlink(c, ROOT, "g"), -ENOENT);
	assert_int_equal(sm_client_rmdir(c, ROOT, "f"), -ENOTDIR);
	assert_true(sm_client_stat(c, ROOT).ctime_ns == before.ctime_ns);
}

static void utimens_takes_any_time_and_sets_ctime(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_setattr s = {
		.ino = f,
		.valid = META_SET_ATIME | META_SET_MTIME,
		.atime_ns = INT64_MIN,
		.mtime_ns = INT64_MAX,
	};

	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_true(c->attr.atime_ns == INT64_MIN);
	assert_true(c->attr.mtime_ns == INT64_MAX);
	assert_true(c->attr.ctime_ns == c->now);
	assert_true(sm_client_stat(c, f).atime_ns == INT64_MIN);
	s.valid = META_SET_CTIME;
	s.ctime_ns = 17;
	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_true(sm_client_stat(c, f).ctime_ns == 17);
}

static void every_attribute_survives_its_encoding(void **state)
{
	struct sm_client *c = *state;
	struct meta_create p = {
		.parent = ROOT, .name = { "dev", 3 }, .mode = S_IFCHR | 07777,
		.uid = UINT32_MAX, .gid = UINT32_MAX, .rdev = UINT32_MAX,
	};
	uint64_t ino = SM_INO(c, sm_client_create(c, &p));
	struct meta_attr a = sm_client_stat(c, ino);

	assert_true(a.uid == UINT32_MAX && a.gid == UINT32_MAX &&
		    a.rdev == UINT32_MAX);
	assert_int_equal(a.mode, S_IFCHR | 07777);
	assert_int_equal(a.block_log2, BLOCK_LOG2_DEFAULT);
}

static void attributes_of_nothing_are_refused(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_getattr(c, 0), -ENOENT);
	assert_int_equal(sm_client_getattr(c, UINT64_MAX), -ENOENT);
	assert_int_equal(sm_client_chmod(c, 4711, 0), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(the_umask_takes_permission_bits_only),
		SM_TEST(a_set_gid_directory_passes_its_group_on),
		SM_TEST(elsewhere_the_creators_group_counts),
		SM_TEST(chmod_sets_all_twelve_bits_and_keeps_the_type),
		SM_TEST(chown_clears_set_id_bits_of_files),
		SM_TEST(set_gid_without_group_exec_survives_chown),
		SM_TEST(chown_leaves_set_id_bits_of_directories),
		SM_TEST(killpriv_clears_what_a_write_must_clear),
		SM_TEST(setattr_only_grows_files),
		SM_TEST(allocated_units_never_go_below_zero),
		SM_TEST(a_new_object_has_four_equal_times),
		SM_TEST(changing_a_name_moves_times_of_directory_and_object),
		SM_TEST(rename_moves_times_of_both_directories),
		SM_TEST(exchange_moves_the_ctime_of_both),
		SM_TEST(a_failed_command_moves_no_times),
		SM_TEST(utimens_takes_any_time_and_sets_ctime),
		SM_TEST(every_attribute_survives_its_encoding),
		SM_TEST(attributes_of_nothing_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
