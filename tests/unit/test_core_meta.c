/* The metadata half of the client core against the real state machine behind
 * a socket (tests/lib/mini_metad.h): names, attributes, xattrs, handles.
 *
 * Method: each operation goes through the public contract (core.h); what the
 * mount then answers from its caches is compared with what the state machine
 * says.
 */
#include "tests/lib/core_fix.h"

#include "fuse/core/core_priv.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

/* ---- names ---- */

static void test_every_kind_of_object_is_made_as_asked(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &a), 0);
	assert_int_equal(a.mode, S_IFDIR | 0755);
	assert_int_equal(a.uid, 7);
	check_truth(f);
	uint64_t d = a.ino;
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(a.mode, S_IFREG | 0644);
	assert_int_equal(op_make(f, d, "p", S_IFIFO | 0600, NULL, &a), 0);
	assert_int_equal(op_make(f, d, "b", S_IFBLK | 0600, NULL, &a), 0);
	assert_int_equal(a.rdev, 0x103);
	assert_int_equal(op_make(f, d, "s", S_IFLNK | 0777, "../x", &a), 0);
	struct fix_call *k = fix_call_new();
	core_readlink(f->c, a.ino, on_bytes, k);
	assert_true(fix_call_wait(k, WAIT_MS));
	assert_int_equal(k->len, 4);
	assert_memory_equal(k->bytes, "../x", 4);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(op_mkfile(f, d, "f", NULL), -EEXIST);
	assert_int_equal(op_lookup(f, d, "nope", &a), -ENOENT);
	assert_int_equal(op_lookup(f, d, "f", &a), 0);
	assert_int_equal(op_lookup(f, d, "..", &a), 0);
	assert_int_equal(a.ino, ROOT_INO);
	assert_int_equal(op_lookup(f, d, ".", &a), 0);
	assert_int_equal(a.ino, d);
	check_truth(f);
	fix_stop(f);
}

static void test_caches_follow_unlink_link_rename(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d1, d2, a, b;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d1", &d1), 0);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d2", &d2), 0);
	assert_int_equal(op_mkfile(f, d1.ino, "a", &a), 0);
	assert_int_equal(op_mkfile(f, d1.ino, "b", &b), 0);
	assert_int_equal(op_link(f, a.ino, d2.ino, "a2", &a), 0);
	assert_int_equal(a.nlink, 2);
	check_truth(f);
	pause_ms(20); /* the coarse clock moves on: times must follow */
	assert_int_equal(op_rename(f, d1.ino, "b", d2.ino, "b2", 0), 0);
	check_truth(f);
	assert_int_equal(op_rename(f, d2.ino, "b2", d2.ino, "a2", 0), 0);
	check_truth(f);
	assert_int_equal(op_mkdir(f, d1.ino, "sub", &b), 0);
	pause_ms(20);
	assert_int_equal(op_rename(f, d1.ino, "sub", d2.ino, "sub", 0), 0);
	check_truth(f);
	assert_int_equal(op_rename(f, d2.ino, "sub", d1.ino, "a",
				   RENAME_EXCHANGE), 0);
	check_truth(f);
	assert_int_equal(op_rename(f, d1.ino, "a", d2.ino, "a2",
				   RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(op_mkdir(f, d2.ino, "empty", NULL), 0);
	assert_int_equal(op_rename(f, d1.ino, "a", d2.ino, "empty", 0), 0);
	check_truth(f);
	pause_ms(20);
	assert_int_equal(op_rename(f, d2.ino, "a2", d1.ino, "w",
				   RENAME_WHITEOUT), 0);
	check_truth(f);
	assert_int_equal(op_lookup(f, d2.ino, "a2", &a), 0);
	assert_int_equal(a.mode, S_IFCHR);
	assert_int_equal(op_unlink(f, ROOT_INO, "d2", true), -ENOTEMPTY);
	assert_int_equal(op_unlink(f, d2.ino, "a2", false), 0);
	assert_int_equal(op_unlink(f, d2.ino, "empty", true), 0);
	check_truth(f);
	fix_stop(f);
}

/* What the cache says of a log file is what metad says. */
static void check_log(struct fix *f, uint64_t ino, bool want)
{
	struct meta_attr a;
	assert_int_equal(op_getattr(f, ino, &a), 0);
	assert_int_equal((a.flags & META_ATTR_LOG) != 0, want);
	check_truth(f);
}

static void test_a_rename_makes_log_files_and_ends_them(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d, a, b;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_setxattr(f, d.ino, META_XATTR_LOG, "match=*-wal",
				     11, 0), 0);
	check_log(f, d.ino, true);
	assert_int_equal(op_mkfile(f, ROOT_INO, "a", &a), 0);
	assert_int_equal(op_mkfile(f, d.ino, "b-wal", &b), 0);
	check_log(f, a.ino, false);
	check_log(f, b.ino, true);
	assert_int_equal(op_rename(f, ROOT_INO, "a", d.ino, "a-wal", 0), 0);
	check_log(f, a.ino, true);
	assert_int_equal(op_rename(f, d.ino, "b-wal", d.ino, "b", 0), 0);
	check_log(f, b.ino, false);
	assert_int_equal(op_rename(f, d.ino, "a-wal", d.ino, "b",
				   RENAME_EXCHANGE), 0);
	check_log(f, a.ino, false);
	check_log(f, b.ino, true);
	fix_stop(f);
}

static void test_rename_of_unknown_directories_asks_for_counts(
	void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d1, d2, s;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d1", &d1), 0);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d2", &d2), 0);
	assert_int_equal(op_mkdir(f, d1.ino, "s", &s), 0);
	core_forget(f->c, s.ino, 1); /* no longer in the cache */
	assert_int_equal(op_rename(f, d1.ino, "s", d2.ino, "s", 0), 0);
	check_truth(f);
	fix_stop(f);
}

static void test_getattr_and_absent_xattrs_do_not_leave_the_mount(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	uint64_t before = mini_metad_received(f->m, WIRE_OP_META_GETATTR);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(op_getattr(f, ROOT_INO, &a), 0);
		assert_int_equal(op_mkfile(f, ROOT_INO, (char[]){ 'a',
				 (char)('0' + i), 0 }, &a), 0);
		assert_int_equal(op_getattr(f, a.ino, &a), 0);
		assert_int_equal(op_getxattr(f, a.ino, "security.capability",
					     NULL), -ENODATA);
		assert_int_equal(op_getxattr(f, a.ino, "user.x", NULL),
				 -ENODATA);
		assert_int_equal(
			op_getxattr(f, a.ino, "system.posix_acl_access", NULL),
			-ENODATA);
	}
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_GETATTR),
			 before);
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_GETXATTR), 0);
	fix_stop(f);
}

static void test_xattrs_are_kept_and_listed(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	char *big = malloc(XATTR_VALUE_MAX), *got = malloc(XATTR_VALUE_MAX);
	(void)state;
	assert_non_null(big);
	assert_non_null(got);
	memset(big, 'x', XATTR_VALUE_MAX);
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_setxattr(f, a.ino, "user.a", "1", 1, 0), 0);
	assert_int_equal(op_setxattr(f, a.ino, "user.a", "2", 1, XATTR_CREATE),
			 -EEXIST);
	assert_int_equal(op_getxattr(f, a.ino, "user.a", got), 1);
	assert_int_equal(got[0], '1');
	assert_int_equal(op_getxattr(f, a.ino, "user.b", got), -ENODATA);
	assert_int_equal(op_setxattr(f, a.ino, "user.big", big,
				     XATTR_VALUE_MAX, 0), 0);
	assert_int_equal(op_getxattr(f, a.ino, "user.big", got),
			 XATTR_VALUE_MAX);
	assert_memory_equal(big, got, XATTR_VALUE_MAX);
	assert_int_equal(op_setxattr(f, a.ino, "user.big", big,
				     XATTR_VALUE_MAX + 1, 0), -E2BIG);
	struct fix_call *k = fix_call_new();
	core_listxattr(f->c, a.ino, on_bytes, k);
	assert_true(fix_call_wait(k, WAIT_MS));
	assert_int_equal(k->len, strlen("user.a") + strlen("user.big") + 2);
	(void)fix_call_end(k, NULL);
	k = fix_call_new();
	core_removexattr(f->c, a.ino, "user.big", on_err, k);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_truth(f);
	free(big);
	free(got);
	fix_stop(f);
}

static void test_setattr_changes_what_is_cached(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a, b;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	struct meta_setattr s = {
		.ino = a.ino,
		.valid = META_SET_UID | META_SET_ATIME | META_SET_MTIME,
		.uid = 99, .atime_ns = -1, .mtime_ns = 12345678901,
	};
	struct fix_call *k = fix_call_new();
	core_setattr(f->c, &s, on_attr, k);
	assert_int_equal(fix_call_end(k, &b), 0);
	assert_int_equal(b.uid, 99);
	assert_int_equal(b.atime_ns, -1);
	assert_int_equal(b.mtime_ns, 12345678901);
	assert_int_equal(op_chmod(f, a.ino, 04711), 0);
	check_truth(f);
	fix_stop(f);
}

/* ---- what is known not to exist ---- */

static void test_absent_names_of_own_directories_are_answered_here(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d, a;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	for (unsigned i = 0; i < 300; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_lookup(f, d.ino, name, &a), -ENOENT);
		assert_int_equal(op_mkfile(f, d.ino, name, &a), 0);
	}
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_LOOKUP), 0);
	for (unsigned i = 0; i < 300; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_lookup(f, d.ino, name, &a), 0);
		if (i % 3 == 0)
			assert_int_equal(op_unlink(f, d.ino, name, false), 0);
	}
	uint64_t n = mini_metad_received(f->m, WIRE_OP_META_LOOKUP);
	assert_int_equal(n, 300);
	for (unsigned i = 0; i < 300; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_lookup(f, d.ino, name, &a),
				 i % 3 == 0 ? -ENOENT : 0);
	}
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_LOOKUP),
			 n + 200);
	fix_stop(f);
}

/* Every look-up of a name, known absent or not, agrees with metad. */
static void names_agree(struct fix *f, const uint64_t *dirs, unsigned names)
{
	for (unsigned d = 0; d < 3; d++) {
		for (unsigned i = 0; i < names; i++) {
			char name[4] = { 'n', (char)('a' + i), 0 };
			struct meta_attr a, b;
			int truth = mini_metad_lookup(f->m, dirs[d], name, &a);
			assert_int_equal(op_lookup(f, dirs[d], name, &b),
					 truth);
			if (!truth)
				assert_int_equal(a.ino, b.ino);
		}
	}
}

static void test_random_names_in_own_directories_agree_with_metad(void **state)
{
	enum { NAMES = 6, STEPS = 1500 };
	static const uint32_t flags[] = {
		RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
		RENAME_WHITEOUT | RENAME_NOREPLACE };
	struct fix *f = fix_new(0);
	struct meta_attr d[3], a;
	uint64_t dirs[3];
	unsigned seed = 4711;
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char name[4] = { 'd', (char)('0' + i), 0 };
		assert_int_equal(op_mkdir(f, ROOT_INO, name, &d[i]), 0);
		dirs[i] = d[i].ino;
	}
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned r = (unsigned)rand_r(&seed);
		uint64_t from = dirs[r % 3], to = dirs[r / 3 % 3];
		char x[4] = { 'n', (char)('a' + r / 9 % NAMES), 0 };
		char y[4] = { 'n', (char)('a' + r / 60 % NAMES), 0 };
		switch (r / 400 % 6) {
		case 0:
			(void)op_make(f, from, x, S_IFREG | 0600, NULL, &a);
			break;
		case 1:
			(void)op_unlink(f, from, x, false);
			break;
		case 2:
			(void)op_rename(f, from, x, to, y, 0);
			break;
		case 3:
			(void)op_rename(f, from, x, to, y,
					flags[r % array_count(flags)]);
			break;
		case 4:
			if (op_lookup(f, from, x, &a) == 0)
				(void)op_link(f, a.ino, to, y, &a);
			break;
		default:
			(void)op_chmod(f, from, 0700 | (r & 077));
			break;
		}
		if (step % 150 == 77)
			mini_metad_lose_replies(f->m, 0, 1);
		f->seen_count = 4; /* root and the three */
		if (step % 50 == 0) {
			names_agree(f, dirs, NAMES);
			check_truth(f);
		}
	}
	mini_metad_lose_replies(f->m, 0, 0);
	names_agree(f, dirs, NAMES);
	fix_stop(f);
}

/* ---- handles ---- */

static void test_an_unlinked_open_file_lives_until_its_last_handle(
	void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h1, *h2;
	struct meta_attr a, b;
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_RDWR, &h1, &a), 0);
	assert_int_equal(op_open(f, a.ino, O_RDONLY, &h2), 0);
	track(f, a.ino);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", false), 0);
	check_truth(f);
	assert_int_equal(op_getattr(f, a.ino, &b), 0);
	assert_int_equal(b.nlink, 0);
	core_forget(f->c, a.ino, 1);
	core_release(f->c, h1);
	/* it became clean, or whatever else may have queued it */
	core_lock(f->c);
	ret_queue(f->c, inode_find(f->c, a.ino), 0);
	core_unlock(f->c);
	pause_ms(150);
	assert_int_equal(mini_metad_getattr(f->m, a.ino, &b), 0);
	core_release(f->c, h2);
	wait_until(mini_metad_getattr(f->m, a.ino, &b) == -ENOENT);
	wait_until(mini_metad_purge_count(f->m) == 1);
	wait_until(op_getattr(f, a.ino, &b) == -ENOENT);
	fix_stop(f);
}

static void test_an_unlinked_closed_file_is_given_back(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	(void)state;
	uint64_t count = mini_metad_inode_count(f->m);
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", false), 0);
	core_forget(f->c, a.ino, 1);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &a), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "d", true), 0);
	core_forget(f->c, a.ino, 1);
	assert_int_equal(op_mkfile(f, ROOT_INO, "x", &a), 0);
	assert_int_equal(op_mkfile(f, ROOT_INO, "y", &a), 0);
	core_forget(f->c, a.ino, 1); /* before its name goes */
	assert_int_equal(op_rename(f, ROOT_INO, "x", ROOT_INO, "y", 0), 0);
	wait_until(mini_metad_inode_count(f->m) == count + 1);
	fix_stop(f);
}

/* A working directory, O_PATH: the kernel holds it without a handle. */
static void test_what_the_kernel_holds_is_kept_without_a_name(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d, a, got;
	struct core_file *h;
	(void)state;
	uint64_t count = mini_metad_inode_count(f->m);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "d", true), 0);
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", false), 0);
	pause_ms(100); /* orphans are given back sooner */
	assert_int_equal(op_getattr(f, d.ino, &got), 0);
	assert_int_equal(got.nlink, 0);
	assert_int_equal(op_chmod(f, d.ino, 0700), 0);
	/* and may be opened (/proc/self/fd) */
	assert_int_equal(op_open(f, a.ino, O_RDONLY, &h), 0);
	core_forget(f->c, a.ino, 1);
	core_forget(f->c, d.ino, 1);
	wait_until(mini_metad_inode_count(f->m) == count + 1);
	assert_int_equal(op_getattr(f, a.ino, &got), 0);
	core_release(f->c, h);
	wait_until(mini_metad_inode_count(f->m) == count);
	fix_stop(f);
}

static void test_a_tmpfile_can_get_a_name_or_vanish(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h1, *h2;
	struct meta_attr a, b, c;
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, NULL, O_RDWR, &h1, &a), 0);
	assert_int_equal(op_open_new(f, ROOT_INO, NULL, O_RDWR, &h2, &b), 0);
	assert_int_equal(a.nlink, 0);
	assert_int_equal(op_link(f, a.ino, ROOT_INO, "named", &c), 0);
	assert_int_equal(c.nlink, 1);
	core_release(f->c, h1);
	core_release(f->c, h2);
	core_forget(f->c, b.ino, 1);
	wait_until(mini_metad_getattr(f->m, b.ino, &c) == -ENOENT);
	assert_int_equal(mini_metad_getattr(f->m, a.ino, &c), 0);
	assert_int_equal(mini_metad_lookup(f->m, ROOT_INO, "named", &c), 0);
	track(f, a.ino);
	fix_stop(f);
}

static void test_create_grants_the_lease_and_close_gives_it_back(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h, *h2;
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_WRONLY, &h, &a), 0);
	assert_int_equal(mini_metad_lease_count(f->m), 1);
	assert_int_equal(op_open_new(f, ROOT_INO, "r", O_RDONLY, &h2, &a), 0);
	assert_int_equal(mini_metad_lease_count(f->m), 1);
	core_release(f->c, h2);
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_WRONLY | O_EXCL, &h2,
				     &a), -EEXIST);
	core_release(f->c, h);
	wait_until(mini_metad_lease_count(f->m) == 0);
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_WRONLY, &h, &a), 0);
	core_release(f->c, h);
	fix_stop(f);
}

static void test_an_open_of_a_known_file_asks_nobody(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h;
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	uint64_t before = mini_metad_received(f->m, WIRE_OP_META_GETATTR);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(op_open(f, a.ino, O_RDWR, &h), 0);
		assert_int_equal(core_file_ino(h), a.ino);
		core_release(f->c, h);
	}
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_GETATTR),
			 before);
	assert_int_equal(op_open(f, 123456, O_RDONLY, &h), -ENOENT);
	fix_stop(f);
}

/* ---- locks ---- */

static void test_locks_wait_are_granted_and_cancelled(void **state)
{
	struct fix *f = fix_new(0);
	struct lock_range r = { .ino = 5, .kind = LOCK_KIND_POSIX,
				.type = LOCK_TYPE_WRITE, .start = 0,
				.end = UINT64_MAX, .owner = 1, .pid = 11 };
	struct core_lock_wait a = { .w.r = r }, b = { .w.r = r },
			      c = { .w.r = r };
	(void)state;
	assert_int_equal(core_setlk(f->c, &a, false), 0);
	b.w.r.owner = 2;
	assert_int_equal(core_setlk(f->c, &b, false), -EAGAIN);
	struct fix_call *k = fix_call_new();
	b.cb = on_err;
	b.arg = k;
	assert_int_equal(core_setlk(f->c, &b, true), -EINPROGRESS);
	c.w.r.owner = 3;
	c.cb = on_err;
	assert_int_equal(core_setlk(f->c, &c, true), -EINPROGRESS);
	assert_true(core_setlk_cancel(f->c, &c));
	assert_false(core_setlk_cancel(f->c, &c));
	r.owner = 9;
	assert_int_equal(core_getlk(f->c, &r, NULL, NULL), 0);
	assert_int_equal(r.pid, 11);
	core_lock_drop_owner(f->c, 5, LOCK_KIND_POSIX, 1, NULL, NULL);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_false(core_setlk_cancel(f->c, &b));
	core_lock_drop_owner(f->c, 5, LOCK_KIND_POSIX, 2, NULL, NULL);
	fix_stop(f);
}

static void test_limits_are_errors_not_requests(void **state)
{
	struct fix *f = fix_new(0);
	char name[NAME_LEN_MAX + 2];
	struct meta_attr a;
	(void)state;
	memset(name, 'n', sizeof(name));
	name[NAME_LEN_MAX + 1] = 0;
	assert_int_equal(op_lookup(f, ROOT_INO, name, &a), -ENAMETOOLONG);
	assert_int_equal(op_mkfile(f, ROOT_INO, name, &a), -ENAMETOOLONG);
	assert_int_equal(op_mkdir(f, ROOT_INO, name, &a), -ENAMETOOLONG);
	assert_int_equal(op_unlink(f, ROOT_INO, name, false), -ENAMETOOLONG);
	assert_int_equal(op_rename(f, ROOT_INO, "a", ROOT_INO, name, 0),
			 -ENAMETOOLONG);
	assert_int_equal(op_link(f, ROOT_INO, ROOT_INO, name, &a),
			 -ENAMETOOLONG);
	name[NAME_LEN_MAX] = 0;
	assert_int_equal(op_mkfile(f, ROOT_INO, name, &a), 0);
	assert_int_equal(op_lookup(f, ROOT_INO, name, &a), 0);
	fix_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_of_object_is_made_as_asked),
		cmocka_unit_test(test_caches_follow_unlink_link_rename),
		cmocka_unit_test(
			test_a_rename_makes_log_files_and_ends_them),
		cmocka_unit_test(
			test_rename_of_unknown_directories_asks_for_counts),
		cmocka_unit_test(
			test_getattr_and_absent_xattrs_do_not_leave_the_mount),
		cmocka_unit_test(test_xattrs_are_kept_and_listed),
		cmocka_unit_test(test_setattr_changes_what_is_cached),
		cmocka_unit_test(
			test_absent_names_of_own_directories_are_answered_here),
		cmocka_unit_test(
			test_random_names_in_own_directories_agree_with_metad),
		cmocka_unit_test(
			test_an_unlinked_open_file_lives_until_its_last_handle),
		cmocka_unit_test(test_an_unlinked_closed_file_is_given_back),
		cmocka_unit_test(
			test_what_the_kernel_holds_is_kept_without_a_name),
		cmocka_unit_test(test_a_tmpfile_can_get_a_name_or_vanish),
		cmocka_unit_test(
			test_create_grants_the_lease_and_close_gives_it_back),
		cmocka_unit_test(test_an_open_of_a_known_file_asks_nobody),
		cmocka_unit_test(test_locks_wait_are_granted_and_cancelled),
		cmocka_unit_test(test_limits_are_errors_not_requests),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
