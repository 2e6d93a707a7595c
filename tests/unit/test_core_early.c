/* Names that change before metad is asked (fuse/core/early.h): what the mount
 * says meanwhile is what metad comes to, whatever happens between.
 *
 * Method: a mount on a mini metad whose replies, durability and life the test
 * holds in its hand; check_truth() compares all attributes.
 */
#include "tests/lib/core_fix.h"

#include "fuse/core/core_priv.h"
#include "fuse/core/early.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* A directory whose names the mount knows; numbers are known from then on. */
static uint64_t known_dir(struct fix *f, const char *name)
{
	struct meta_attr d;

	assert_int_equal(op_mkdir(f, ROOT_INO, name, &d), 0);
	return d.ino;
}

static uint64_t creates(struct fix *f)
{
	core_lock(f->c);
	uint64_t n = f->c->early->count.creates;
	core_unlock(f->c);
	return n;
}

static uint64_t early(struct fix *f)
{
	core_lock(f->c);
	struct early *e = f->c->early;
	uint64_t n = e->count.creates + e->count.unlinks + e->count.renames;
	core_unlock(f->c);
	return n;
}

static uint64_t refused(struct fix *f)
{
	core_lock(f->c);
	uint64_t n = f->c->early->count.refused;
	core_unlock(f->c);
	return n;
}

static int op_fsync(struct fix *f, uint64_t ino)
{
	struct fix_call *k = fix_call_new();

	core_fsync(f->c, ino, false, on_err, k);
	return fix_call_end(k, NULL);
}

static int op_sync(struct fix *f)
{
	struct fix_call *k = fix_call_new();

	core_sync_all(f->c, on_err, k);
	return fix_call_end(k, NULL);
}

static int op_times(struct fix *f, uint64_t ino, int64_t ns)
{
	struct fix_call *k = fix_call_new();
	struct meta_setattr s = { .ino = ino, .atime_ns = ns,
				  .mtime_ns = ns + 1,
				  .valid = META_SET_ATIME | META_SET_MTIME };

	core_setattr(f->c, &s, on_attr, k);
	return fix_call_end(k, NULL);
}

static int op_chown(struct fix *f, uint64_t ino, uint32_t uid, uint32_t gid)
{
	struct fix_call *k = fix_call_new();
	struct meta_setattr s = { .ino = ino, .uid = uid, .gid = gid,
				  .valid = META_SET_UID | META_SET_GID };

	core_setattr(f->c, &s, on_attr, k);
	return fix_call_end(k, NULL);
}

/* Everything is as it ends, and metad says the same. */
static void end(struct fix *f)
{
	assert_int_equal(op_sync(f), 0);
	check_truth(f);
	core_lock(f->c);
	assert_int_equal(f->c->early->count.differ, 0);
	core_unlock(f->c);
	fix_stop(f);
}

/* ---- answered at once ---- */

static void test_names_change_while_metad_says_nothing(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d"), e = known_dir(f, "e");
	struct meta_attr a, b, x;
	struct core_file *h;

	(void)state;
	mini_metad_hold_replies(f->m, 0, true);
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_open_new(f, d, "o", O_RDWR, &h, &b), 0);
	track(f, b.ino);
	assert_int_equal(op_mkdir(f, d, "s", NULL), 0);
	assert_int_equal(op_make(f, d, "l", S_IFLNK | 0777, "to/where", NULL),
			 0);
	assert_int_equal(op_make(f, d, "p", S_IFIFO | 0640, NULL, NULL), 0);
	assert_int_equal(op_make(f, d, "c", S_IFCHR | 0640, NULL, NULL), 0);
	assert_int_equal(op_rename(f, d, "f", e, "g", 0), 0);
	assert_int_equal(op_rename(f, d, "s", e, "t", RENAME_NOREPLACE), 0);
	assert_int_equal(op_times(f, a.ino, 1234567890123456789), 0);
	assert_int_equal(op_chmod(f, b.ino, 06751), 0);
	assert_int_equal(op_chown(f, b.ino, 4711, 4712), 0);
	assert_int_equal(op_getattr(f, b.ino, &x), 0);
	assert_int_equal(x.mode, S_IFREG | 0751);
	assert_int_equal(op_chmod(f, d, 02755), 0);
	assert_int_equal(op_chown(f, d, 4711, 4712), 0);
	assert_int_equal(op_unlink(f, d, "p", false), 0);
	assert_int_equal(op_unlink(f, e, "t", true), 0);
	assert_int_equal(op_getattr(f, d, &x), 0);
	assert_int_equal(x.nlink, 2);
	assert_int_equal(op_lookup(f, d, "f", &x), -ENOENT);
	assert_int_equal(early(f), 6 + 2 + 2);
	mini_metad_hold_replies(f->m, 0, false);
	assert_int_equal(op_lookup(f, e, "g", &x), 0);
	assert_int_equal(x.ino, a.ino);
	core_release(f->c, h);
	end(f);
}

static void test_groups_and_set_gid_come_from_the_directory(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct meta_attr a, s;

	(void)state;
	assert_int_equal(op_chmod(f, d, 02775), 0);
	mini_metad_hold_replies(f->m, 0, true);
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_mkdir(f, d, "s", &s), 0);
	assert_int_equal(a.mode, S_IFREG | 0644);
	assert_int_equal(s.mode, S_IFDIR | S_ISGID | 0755);
	mini_metad_hold_replies(f->m, 0, false);
	end(f);
}

static void test_block_sizes_come_from_the_directory(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct meta_attr a, s;

	(void)state;
	assert_int_equal(op_setxattr(f, d, META_XATTR_BLOCK_SIZE, "64K", 3, 0),
			 0);
	mini_metad_hold_replies(f->m, 0, true);
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_mkdir(f, d, "s", &s), 0);
	assert_int_equal(a.block_log2, 16);
	assert_int_equal(a.flags, 0);
	assert_int_equal(s.block_log2, 16);
	assert_int_equal(s.flags, META_ATTR_XATTR);
	mini_metad_hold_replies(f->m, 0, false);
	end(f);
}

/* In a directory with a default ACL only metad knows the mode. */
static void test_acls_and_unknown_names_are_metads_affair(void **state)
{
	static const uint8_t acl[] = { 2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255,
				       255, 4, 0, 5, 0, 255, 255, 255, 255, 32,
				       0, 0, 0, 255, 255, 255, 255 };
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d"), n;
	struct meta_attr a;

	(void)state;
	assert_int_equal(op_setxattr(f, d, "system.posix_acl_default", acl,
				     sizeof(acl), 0), 0);
	n = creates(f);
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(a.mode, S_IFREG | 0640);
	/* The root is not known; after a look-up the name is. */
	assert_int_equal(op_mkfile(f, ROOT_INO, "x", NULL), 0);
	assert_int_equal(creates(f), n);
	assert_int_equal(op_lookup(f, ROOT_INO, "y", NULL), -ENOENT);
	assert_int_equal(op_mkfile(f, ROOT_INO, "y", NULL), 0);
	assert_int_equal(creates(f), n + 1);
	assert_int_equal(op_mkfile(f, ROOT_INO, "y", NULL), -EEXIST);
	end(f);
}

static void test_what_cannot_be_is_refused_at_once(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d"), s;
	struct meta_attr a;

	(void)state;
	assert_int_equal(op_mkdir(f, d, "s", &a), 0);
	s = a.ino;
	assert_int_equal(op_mkfile(f, s, "f", &a), 0);
	assert_int_equal(op_unlink(f, d, "s", true), -ENOTEMPTY);
	assert_int_equal(op_unlink(f, d, "s", false), -EISDIR);
	assert_int_equal(op_unlink(f, s, "f", true), -ENOTDIR);
	assert_int_equal(op_unlink(f, d, "none", false), -ENOENT);
	assert_int_equal(op_rename(f, d, "none", d, "x", 0), -ENOENT);
	assert_int_equal(op_link(f, a.ino, d, "l", NULL), 0);
	assert_int_equal(op_rename(f, s, "f", d, "l", 0), 0); /* both stay */
	assert_int_equal(op_lookup(f, s, "f", NULL), 0);
	assert_int_equal(op_unlink(f, s, "f", false), 0);
	assert_int_equal(op_unlink(f, d, "s", true), 0);
	/* Gone: nothing is made in it. */
	assert_int_equal(op_mkfile(f, s, "f", NULL), -ENOENT);
	assert_int_equal(refused(f), 0);
	end(f);
}

/* ---- metad in trouble ---- */

static void test_a_metad_that_lost_all_is_told_again(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct meta_attr a, b, x;

	(void)state;
	assert_int_equal(op_sync(f), 0);
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkfile(f, d, "a", &a), 0);
	assert_int_equal(op_mkfile(f, d, "b", &b), 0);
	assert_int_equal(op_rename(f, d, "a", d, "c", 0), 0);
	assert_int_equal(op_unlink(f, d, "b", false), 0);
	wait_until(mini_metad_executed(f->m, WIRE_OP_META_UNLINK) == 1);
	mini_metad_restart(f->m, true);
	assert_int_equal(op_mkfile(f, d, "b", &x), 0);
	assert_true(x.ino > b.ino);
	mini_metad_hold_durable(f->m, false);
	assert_int_equal(op_sync(f), 0);
	assert_int_equal(op_lookup(f, d, "c", &x), 0);
	assert_int_equal(x.ino, a.ino);
	end(f);
}

static void test_lost_replies_change_nothing(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	char name[16];

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		if (i % 7 == 0)
			mini_metad_lose_replies(f->m, WIRE_OP_META_CREATE, 1);
		if (i % 11 == 0)
			mini_metad_drop(f->m);
		assert_int_equal(op_mkfile(f, d, name, NULL), 0);
		if (i % 3 == 0)
			assert_int_equal(op_unlink(f, d, name, false), 0);
	}
	assert_int_equal(op_sync(f), 0);
	assert_int_equal(mini_metad_executed(f->m, WIRE_OP_META_CREATE), 61);
	assert_int_equal(mini_metad_executed(f->m, WIRE_OP_META_UNLINK), 20);
	end(f);
}

static void test_the_window_bounds_what_is_early(void **state)
{
	enum { FILES = SESSION_WINDOW_MAX + 100 };
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct burst b;

	(void)state;
	assert_int_equal(op_sync(f), 0);
	mini_metad_hold_durable(f->m, true);
	burst_init(&b, FILES);
	burst_start(f, &b, d, FILES);
	wait_until(burst_left(&b) <= FILES - SESSION_WINDOW_MAX + 2);
	pause_ms(50);
	assert_true(burst_left(&b) > 0);
	mini_metad_hold_durable(f->m, false);
	burst_end(&b);
	assert_int_equal(b.first_err, 0);
	assert_int_equal(op_sync(f), 0);
	/* the root, d */
	assert_int_equal(mini_metad_inode_count(f->m), FILES + 2);
	end(f);
}

/* ---- refused late ---- */

static void test_a_late_refusal_is_told_by_fsync_and_sync(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d"), n;
	struct core_file *h;
	struct meta_attr a, b;

	(void)state;
	mini_metad_fail(f->m, WIRE_OP_META_CREATE, -ENOSPC, 1);
	assert_int_equal(op_open_new(f, d, "f", O_RDWR, &h, &a), 0);
	wait_until(refused(f) == 1);
	assert_int_equal(op_fsync(f, d), -ENOSPC);
	assert_int_equal(op_fsync(f, d), 0); /* told once */
	assert_int_equal(op_fsync(f, a.ino), -ENOSPC);
	assert_int_equal(op_fsync(f, a.ino), -EIO); /* it never was */
	assert_int_equal(op_sync(f), -ENOSPC);
	assert_int_equal(op_sync(f), 0);
	assert_int_equal(f->names_changed, 1);
	assert_int_equal(op_lookup(f, d, "f", NULL), -ENOENT);
	/* metad is asked first now, and the number is not used again. */
	n = creates(f);
	mini_metad_fail(f->m, WIRE_OP_META_CREATE, -ENOSPC, 1);
	assert_int_equal(op_mkfile(f, d, "g", NULL), -ENOSPC);
	assert_int_equal(op_mkfile(f, d, "g", &b), 0);
	assert_int_equal(creates(f), n);
	assert_true(b.ino > a.ino);
	/* A while later, and when it has granted one. */
	core_lock(f->c);
	f->c->early->off_ms = 1;
	core_unlock(f->c);
	mini_metad_fail(f->m, WIRE_OP_META_CREATE, -ENOSPC, 1);
	assert_int_equal(op_mkfile(f, d, "h", NULL), -ENOSPC);
	assert_int_equal(op_unlink(f, d, "g", false), 0);
	assert_int_equal(op_mkfile(f, d, "h", NULL), 0);
	assert_int_equal(creates(f), n);
	assert_int_equal(op_getattr(f, d, NULL), 0);
	assert_int_equal(op_lookup(f, d, "i", NULL), -ENOENT);
	assert_int_equal(op_mkfile(f, d, "i", NULL), 0);
	assert_int_equal(creates(f), n + 1);
	core_release(f->c, h);
	assert_int_equal(op_getattr(f, d, NULL), 0);
	end(f);
}

static void test_late_refusals_of_others_are_undone(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct meta_attr a, x;

	(void)state;
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	mini_metad_fail(f->m, WIRE_OP_META_UNLINK, -EIO, 1);
	assert_int_equal(op_unlink(f, d, "f", false), 0);
	wait_until(refused(f) == 1);
	assert_int_equal(op_fsync(f, d), -EIO);
	assert_int_equal(op_lookup(f, d, "f", &x), 0);
	assert_int_equal(x.nlink, 1);
	wait_until(f->names_changed == 1);
	core_lock(f->c);
	f->c->early->off_ms = 0;
	core_unlock(f->c);
	mini_metad_fail(f->m, WIRE_OP_META_RENAME, -EIO, 1);
	assert_int_equal(op_lookup(f, d, "g", &x), -ENOENT);
	assert_int_equal(op_getattr(f, d, &x), 0); /* it was dropped */
	assert_int_equal(op_rename(f, d, "f", d, "g", 0), 0);
	wait_until(refused(f) == 2);
	assert_int_equal(op_lookup(f, d, "g", &x), -ENOENT);
	assert_int_equal(op_lookup(f, d, "f", &x), 0);
	assert_int_equal(op_sync(f), -EIO);
	assert_int_equal(op_fsync(f, d), -EIO);
	core_lock(f->c);
	f->c->early->off_ms = 0;
	core_unlock(f->c);
	mini_metad_fail(f->m, WIRE_OP_META_SETATTR, -EIO, 1);
	assert_int_equal(op_times(f, a.ino, 1), 0);
	wait_until(refused(f) == 3);
	assert_int_equal(op_fsync(f, a.ino), -EIO);
	assert_int_equal(op_sync(f), -EIO);
	end(f);
}

/* ---- what was asked for before ---- */

static void test_an_older_answer_undoes_nothing(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct fix_call *k = fix_call_new(), *k2 = fix_call_new();
	struct meta_attr a, x;

	(void)state;
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_sync(f), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_LOOKUP, true);
	core_lookup(f->c, ROOT_INO, "d", on_attr, k);
	core_lookup(f->c, d, "f", on_attr, k2);
	wait_until(mini_metad_executed(f->m, WIRE_OP_META_LOOKUP) == 2);
	/* Others' answers wait behind those; the mount does not. */
	assert_int_equal(op_mkdir(f, d, "s", NULL), 0);
	assert_int_equal(op_unlink(f, d, "f", false), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_LOOKUP, false);
	assert_int_equal(fix_call_end(k, &x), 0);
	assert_int_equal(x.nlink, 3);
	(void)fix_call_end(k2, &x);
	assert_int_equal(op_getattr(f, d, &x), 0);
	assert_int_equal(x.nlink, 3);
	/* nor does the table of names believe the look-up */
	assert_int_equal(op_lookup(f, d, "f", &x), -ENOENT);
	assert_int_equal(op_mkfile(f, d, "f", NULL), 0);
	core_forget(f->c, a.ino, 8);
	end(f);
}

/* The kernel's write-back tells times beside a chmod that metad has not
 * answered. */
static void test_a_change_under_way_survives_a_later_one_of_the_times(void **s)
{
	static const uint8_t acl[] = { 2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255,
				       255, 2, 0, 4, 0, 9, 0, 0, 0, 4, 0, 4, 0,
				       255, 255, 255, 255, 16, 0, 6, 0, 255,
				       255, 255, 255, 32, 0, 4, 0, 255, 255,
				       255, 255 };
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct fix_call *k;
	struct meta_attr a, x;

	(void)s;
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_setxattr(f, a.ino, "system.posix_acl_access", acl,
				     sizeof(acl), 0), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_SETATTR, true);
	struct meta_setattr m = { .ino = a.ino, .mode = 0600,
				  .valid = META_SET_MODE };
	k = fix_call_new();
	core_setattr(f->c, &m, on_attr, k);
	assert_int_equal(op_times(f, a.ino, 5), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_SETATTR, false);
	assert_int_equal(fix_call_end(k, &x), 0);
	assert_int_equal(x.mode & 07777, 0600);
	assert_int_equal(x.mtime_ns, 6);
	end(f);
}

struct names {
	struct fix_call *k;
	unsigned count;
};

static bool on_name(void *arg, const struct meta_dirent *d,
		    const struct meta_attr *a)
{
	struct names *n = arg;

	(void)d;
	(void)a;
	n->count++;
	return true;
}

static void on_names_end(void *arg, int err)
{
	struct names *n = arg;

	fix_call_done(n->k, err);
}

static void list_start(struct fix *f, struct names *n, uint64_t dir)
{
	*n = (struct names){ .k = fix_call_new() };
	core_readdir(f->c, dir, 0, 65536, true, on_name, on_names_end, n);
}

static void test_a_listing_that_begins_later_has_the_name(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d");
	struct names before, after;

	(void)state;
	assert_int_equal(op_mkfile(f, d, "f", NULL), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_READDIR, true);
	list_start(f, &before, d);
	wait_until(mini_metad_executed(f->m, WIRE_OP_META_READDIR) == 1);
	assert_int_equal(op_mkfile(f, d, "g", NULL), 0);
	list_start(f, &after, d);
	mini_metad_hold_replies(f->m, WIRE_OP_META_READDIR, false);
	assert_int_equal(fix_call_end(before.k, NULL), 0);
	assert_int_equal(fix_call_end(after.k, NULL), 0);
	assert_true(before.count == 1 || before.count == 2);
	assert_int_equal(after.count, 2);
	end(f);
}

/* Its outcome is not known here, and it may be about the same name. */
static void test_nothing_is_early_beside_what_metad_decides(void **state)
{
	struct fix *f = fix_early_new();
	uint64_t d = known_dir(f, "d"), n;
	struct fix_call *k, *k2;
	struct meta_attr a;

	(void)state;
	assert_int_equal(op_mkfile(f, d, "f", &a), 0);
	assert_int_equal(op_lookup(f, ROOT_INO, "l", NULL), -ENOENT);
	mini_metad_hold_replies(f->m, WIRE_OP_META_LINK, true);
	k = fix_call_new();
	core_link(f->c, a.ino, ROOT_INO, "l", on_attr, k);
	n = creates(f);
	struct core_create p = { .parent = ROOT_INO, .name = "l",
				 .mode = S_IFREG | 0644 };
	k2 = fix_call_new();
	core_create(f->c, &p, on_attr, k2);
	assert_int_equal(creates(f), n);
	mini_metad_hold_replies(f->m, WIRE_OP_META_LINK, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(k2, NULL), -EEXIST);
	assert_int_equal(op_mkfile(f, d, "m", NULL), 0);
	assert_int_equal(creates(f), n + 1);
	end(f);
}

/* metad gives a number to the whiteout of a rename, and to what is made first
 * of all. */
static void test_numbers_of_both_sides_do_not_meet(void **state)
{
	struct fix *f = fix_early_new();
	struct fix_call *k[4];
	struct meta_attr a[4];
	char name[8];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		struct core_create p = { .parent = ROOT_INO, .name = name,
					 .mode = S_IFDIR | 0755 };
		k[i] = fix_call_new();
		core_create(f->c, &p, on_attr, k[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(fix_call_end(k[i], &a[i]), 0);
		track(f, a[i].ino);
	}
	for (unsigned i = 0; i < 4; i++) {
		uint64_t d = a[i].ino;
		struct core_rename p = { .parent = d, .name = "a",
					 .newparent = d, .newname = "b",
					 .flags = RENAME_WHITEOUT };
		struct fix_call *r = fix_call_new();

		assert_int_equal(op_mkfile(f, d, "a", NULL), 0);
		core_rename(f->c, &p, on_err, r);
		assert_int_equal(op_mkfile(f, d, "c", NULL), 0);
		assert_int_equal(op_mkfile(f, d, "e", NULL), 0);
		assert_int_equal(fix_call_end(r, NULL), 0);
	}
	end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_change_while_metad_says_nothing),
		cmocka_unit_test(test_groups_and_set_gid_come_from_the_directory),
		cmocka_unit_test(test_block_sizes_come_from_the_directory),
		cmocka_unit_test(test_acls_and_unknown_names_are_metads_affair),
		cmocka_unit_test(test_what_cannot_be_is_refused_at_once),
		cmocka_unit_test(test_a_metad_that_lost_all_is_told_again),
		cmocka_unit_test(test_lost_replies_change_nothing),
		cmocka_unit_test(test_the_window_bounds_what_is_early),
		cmocka_unit_test(test_a_late_refusal_is_told_by_fsync_and_sync),
		cmocka_unit_test(test_late_refusals_of_others_are_undone),
		cmocka_unit_test(test_an_older_answer_undoes_nothing),
		cmocka_unit_test(
			test_a_change_under_way_survives_a_later_one_of_the_times),
		cmocka_unit_test(test_a_listing_that_begins_later_has_the_name),
		cmocka_unit_test(test_nothing_is_early_beside_what_metad_decides),
		cmocka_unit_test(test_numbers_of_both_sides_do_not_meet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
