/* Names: what create, unlink, rmdir, link and rename do and refuse. Errors
 * and their order are those of Linux's VFS with ext4. */
#include "tests/lib/sm_fixture.h"

#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

/* ---- create ---- */

static void every_type_of_object_can_be_made(void **state)
{
	static const uint32_t types[] = { S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK,
					  S_IFCHR, S_IFBLK };
	struct sm_client *c = *state;

	for (size_t i = 0; i < array_count(types); i++) {
		char name[2] = { (char)('a' + i), 0 };
		uint32_t rdev = S_ISCHR(types[i]) || S_ISBLK(types[i]) ?
				0x0803 : 0;

		assert_int_equal(sm_client_mknod(c, ROOT, name,
						 types[i] | 0640, 0x0803), 0);
		assert_int_equal(c->attr.mode, types[i] | 0640);
		assert_int_equal(c->attr.rdev, rdev);
		assert_int_equal(c->attr.nlink, S_ISDIR(types[i]) ? 2 : 1);
		assert_int_equal(sm_client_lookup(c, ROOT, name), 0);
		assert_int_equal(c->attr.mode, types[i] | 0640);
	}
}

static void inode_numbers_are_never_reused(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_file(c, ROOT, "a"));
	uint64_t b;

	assert_int_equal(sm_client_unlink(c, ROOT, "a"), 0);
	assert_int_equal(sm_client_give_back(c, a, META_RETURN_ORPHAN), 0);
	b = SM_INO(c, sm_client_file(c, ROOT, "a"));
	assert_true(b > a);
}

static void a_taken_name_is_refused(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	assert_int_equal(sm_client_file(c, ROOT, "a"), -EEXIST);
	assert_int_equal(sm_client_mkdir(c, ROOT, "a"), -EEXIST);
	assert_int_equal(sm_client_symlink(c, ROOT, "a", "x"), -EEXIST);
}

static void create_with_open_finds_what_is_there(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_file(c, ROOT, "a"));
	struct meta_create p = { .parent = ROOT, .name = { "a", 1 },
				 .mode = S_IFREG | 0600,
				 .flags = META_CREATE_OPEN };

	assert_int_equal(sm_client_create(c, &p), 0);
	assert_true(c->existed);
	assert_int_equal(c->attr.ino, a);
	assert_int_equal(c->attr.mode, S_IFREG | 0644);
	p.flags |= META_CREATE_EXCL;
	assert_int_equal(sm_client_create(c, &p), -EEXIST);
	p.name = (struct wire_str){ "b", 1 };
	assert_int_equal(sm_client_create(c, &p), 0);
	assert_false(c->existed);
}

static void a_client_chooses_numbers_that_metad_would_not_have_given(void **s)
{
	struct sm_client *c = *s;
	struct meta_create p = { .parent = ROOT, .name = { "a", 1 },
				 .mode = S_IFREG | 0600 };
	uint64_t next;

	assert_int_equal(sm_client_create(c, &p), 0);
	next = c->attr.ino + 1;
	p.name = (struct wire_str){ "b", 1 };
	assert_int_equal(sm_client_create_at(c, &p, next - 1), -ESTALE);
	assert_int_equal(sm_client_create_at(c, &p, next + 5), 0);
	assert_int_equal(c->attr.ino, next + 5);
	assert_int_equal(sm_client_lookup(c, ROOT, "b"), 0);
	assert_int_equal(c->attr.ino, next + 5);
	/* One that fails has used its number. */
	assert_int_equal(sm_client_create_at(c, &p, next + 9), -EEXIST);
	p.name = (struct wire_str){ "c", 1 };
	assert_int_equal(sm_client_create_at(c, &p, next + 9), -ESTALE);
	assert_int_equal(sm_client_create(c, &p), 0);
	assert_int_equal(c->attr.ino, next + 10);
	p.name = (struct wire_str){ "d", 1 };
	assert_int_equal(sm_client_create_at(c, &p, INO_MAX), -ESTALE);
	assert_int_equal(sm_client_create(c, &p), 0);
	assert_int_equal(c->attr.ino, next + 11);
	/* O_TMPFILE has them, too. */
	p = (struct meta_create){ .parent = ROOT, .mode = S_IFREG | 0600,
				  .flags = META_CREATE_TMPFILE };
	assert_int_equal(sm_client_create_at(c, &p, next + 12), 0);
	assert_int_equal(c->attr.ino, next + 12);
}

static void names_of_255_bytes_work(void **state)
{
	struct sm_client *c = *state;
	char name[257];

	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	assert_int_equal(sm_client_file(c, ROOT, name), 0);
	assert_int_equal(sm_client_lookup(c, ROOT, name), 0);
	name[255] = 'n';
	name[256] = '\0';
	assert_int_equal(sm_client_file(c, ROOT, name), -ENAMETOOLONG);
	assert_int_equal(sm_client_lookup(c, ROOT, name), -ENAMETOOLONG);
}

static void a_file_is_no_directory_to_create_in(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_file(c, ROOT, "a"));

	assert_int_equal(sm_client_file(c, a, "b"), -ENOTDIR);
	assert_int_equal(sm_client_lookup(c, a, "b"), -ENOTDIR);
	assert_int_equal(sm_client_file(c, 4711, "b"), -ENOENT);
}

static void nothing_can_be_made_in_a_removed_directory(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_rmdir(c, ROOT, "d"), 0);
	assert_int_equal(sm_client_getattr(c, d), 0);
	assert_int_equal(c->attr.nlink, 0);
	assert_int_equal(sm_client_file(c, d, "x"), -ENOENT);
	assert_int_equal(sm_client_tmpfile(c, d, 0600), -ENOENT);
	assert_int_equal(sm_client_link(c, f, d, "x"), -ENOENT);
	assert_int_equal(sm_client_rename(c, ROOT, "f", d, "x", 0, NULL),
			 -ENOENT);
	assert_int_equal(sm_client_lookup(c, d, "x"), -ENOENT);
}

static void dots_are_found(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t e = SM_INO(c, sm_client_mkdir(c, d, "e"));

	assert_int_equal(sm_client_lookup(c, e, ".."), 0);
	assert_int_equal(c->attr.ino, d);
	assert_int_equal(sm_client_lookup(c, e, "."), 0);
	assert_int_equal(c->attr.ino, e);
	assert_int_equal(sm_client_lookup(c, ROOT, ".."), 0);
	assert_int_equal(c->attr.ino, ROOT);
}

static void symlinks_keep_their_target(void **state)
{
	struct sm_client *c = *state;
	char target[SYMLINK_LEN_MAX + 2], back[SYMLINK_LEN_MAX + 1];
	uint64_t s;

	memset(target, 't', sizeof(target));
	target[SYMLINK_LEN_MAX] = '\0';
	s = SM_INO(c, sm_client_symlink(c, ROOT, "s", target));
	assert_int_equal(c->attr.mode, S_IFLNK | 0777);
	assert_int_equal(c->attr.size, SYMLINK_LEN_MAX);
	assert_int_equal(sm_client_readlink(c, s, back, sizeof(back)),
			 SYMLINK_LEN_MAX);
	assert_string_equal(back, target);
	assert_int_equal(sm_client_readlink(c, ROOT, back, sizeof(back)),
			 -EINVAL);
	target[SYMLINK_LEN_MAX] = 't';
	target[SYMLINK_LEN_MAX + 1] = '\0';
	assert_int_equal(sm_client_symlink(c, ROOT, "t", target),
			 -ENAMETOOLONG);
}

/* ---- unlink, rmdir ---- */

static void unlink_and_rmdir_look_at_the_type(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_mkdir(c, ROOT, "d"), 0);
	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "d"), -EISDIR);
	assert_int_equal(sm_client_rmdir(c, ROOT, "f"), -ENOTDIR);
	assert_int_equal(sm_client_unlink(c, ROOT, "x"), -ENOENT);
	assert_int_equal(sm_client_rmdir(c, ROOT, "x"), -ENOENT);
	assert_int_equal(sm_client_unlink(c, ROOT, "."), -EINVAL);
	assert_int_equal(sm_client_rmdir(c, ROOT, ".."), -EINVAL);
}

static void only_empty_directories_are_removed(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(sm_client_file(c, d, "f"), 0);
	assert_int_equal(sm_client_rmdir(c, ROOT, "d"), -ENOTEMPTY);
	assert_int_equal(sm_client_unlink(c, d, "f"), 0);
	assert_int_equal(sm_client_rmdir(c, ROOT, "d"), 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "d"), -ENOENT);
}

static void an_unlinked_file_stays_until_it_is_given_back(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_unlink_reply r;

	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(meta_unlink_reply_parse(c->r.body, c->r.body_len,
						 &r), 0);
	assert_int_equal(r.ino, f);
	assert_int_equal(r.nlink, 0);
	assert_true(r.ctime_ns == c->now);
	assert_int_equal(sm_client_stat(c, f).nlink, 0);
	assert_int_equal(sm_client_chmod(c, f, 0600), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, f), -ENOENT);
	assert_int_equal(sm_inode_count(c->sm), 1);
}

static void giving_back_a_file_with_a_name_does_nothing(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, f), 0);
}

/* ---- link ---- */

static void a_second_name_is_the_same_inode(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_link(c, f, d, "g"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(c->attr.nlink, 2);
	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_lookup(c, d, "g"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(c->attr.nlink, 1);
}

static void links_to_directories_and_taken_names_are_refused(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_link(c, d, ROOT, "e"), -EPERM);
	assert_int_equal(sm_client_link(c, f, ROOT, "d"), -EEXIST);
	assert_int_equal(sm_client_link(c, f, ROOT, "f"), -EEXIST);
	assert_int_equal(sm_client_link(c, 4711, ROOT, "e"), -ENOENT);
	assert_int_equal(sm_client_link(c, f, f, "e"), -ENOTDIR);
}

static void a_file_takes_65000_links(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char name[16];

	for (uint32_t i = 1; i < LINK_COUNT_MAX; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(sm_client_link(c, f, ROOT, name), 0);
	}
	assert_int_equal(sm_client_link(c, f, ROOT, "more"), -EMLINK);
	assert_int_equal(sm_client_unlink(c, ROOT, "1"), 0);
	assert_int_equal(sm_client_link(c, f, ROOT, "more"), 0);
	assert_int_equal(c->attr.nlink, LINK_COUNT_MAX);
}

static void a_directory_takes_more_than_65000_directories(void **state)
{
	struct sm_client *c = *state;
	char name[16];

	for (uint32_t i = 0; i < 66000; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(sm_client_mkdir(c, ROOT, name), 0);
	}
	assert_int_equal(sm_client_stat(c, ROOT).nlink, 66002);
}

static void a_file_that_lost_its_last_name_gets_no_new_one(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_link(c, f, ROOT, "g"), -ENOENT);
}

/* ---- O_TMPFILE ---- */

static void a_temporary_file_has_no_name_and_all_mode_bits(void **state)
{
	struct sm_client *c = *state;
	struct meta_attr before = sm_client_stat(c, ROOT);
	uint64_t t;

	c->umask = 0;
	t = SM_INO(c, sm_client_tmpfile(c, ROOT, 07777));
	assert_int_equal(c->attr.nlink, 0);
	assert_int_equal(c->attr.mode, S_IFREG | 07777);
	assert_true(sm_client_stat(c, ROOT).mtime_ns == before.mtime_ns);
	assert_int_equal(sm_client_give_back(c, t, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, t), -ENOENT);
}

static void linking_a_temporary_file_brings_it_to_life_once(void **state)
{
	struct sm_client *c = *state;
	uint64_t t = SM_INO(c, sm_client_tmpfile(c, ROOT, 0600));

	assert_int_equal(sm_client_link(c, t, ROOT, "t"), 0);
	assert_int_equal(c->attr.nlink, 1);
	assert_int_equal(sm_client_give_back(c, t, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "t"), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "t"), 0);
	assert_int_equal(sm_client_link(c, t, ROOT, "t"), -ENOENT);
}

/* ---- rename ---- */

static void rename_moves_a_file(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_rename_reply r;

	assert_int_equal(sm_client_rename(c, ROOT, "f", d, "g", 0, &r), 0);
	assert_int_equal(r.ino, f);
	assert_int_equal(r.replaced, 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "f"), -ENOENT);
	assert_int_equal(sm_client_lookup(c, d, "g"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(sm_client_rename(c, ROOT, "f", d, "g", 0, &r),
			 -ENOENT);
}

static void a_rename_of_an_old_log_is_understood(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_rename_v1(c, ROOT, "f", ROOT, "g", 0), 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "f"), -ENOENT);
	assert_int_equal(sm_client_lookup(c, ROOT, "g"), 0);
	assert_int_equal(sm_client_rename_v1(c, ROOT, "g", ROOT, "h",
					     RENAME_WHITEOUT), -EBADMSG);
}

static void rename_replaces_a_file(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_file(c, ROOT, "a"));
	uint64_t b = SM_INO(c, sm_client_file(c, ROOT, "b"));
	struct meta_rename_reply r;

	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "b", 0, &r), 0);
	assert_int_equal(r.ino, a);
	assert_int_equal(r.replaced, b);
	assert_int_equal(r.replaced_nlink, 0);
	assert_int_equal(sm_client_stat(c, b).nlink, 0);
	assert_int_equal(sm_client_give_back(c, b, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, b), -ENOENT);
}

static void rename_between_two_names_of_one_file_does_nothing(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_rename_reply r;
	struct meta_attr before;

	assert_int_equal(sm_client_link(c, f, ROOT, "g"), 0);
	before = c->attr;
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "g", 0, &r), 0);
	assert_int_equal(r.replaced, 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_lookup(c, ROOT, "g"), 0);
	assert_int_equal(c->attr.nlink, 2);
	assert_true(c->attr.ctime_ns == before.ctime_ns);
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "f", 0, &r), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "g",
					  RENAME_NOREPLACE, &r), -EEXIST);
}

static void a_directory_does_not_go_into_itself(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_mkdir(c, ROOT, "a"));
	uint64_t b = SM_INO(c, sm_client_mkdir(c, a, "b"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, b, "d"));

	assert_int_equal(sm_client_rename(c, ROOT, "a", a, "x", 0, NULL),
			 -EINVAL);
	assert_int_equal(sm_client_rename(c, ROOT, "a", d, "x", 0, NULL),
			 -EINVAL);
	assert_int_equal(sm_client_rename(c, b, "d", ROOT, "a", 0, NULL),
			 -ENOTEMPTY);
	assert_int_equal(sm_client_rename(c, b, "d", ROOT, "a",
					  RENAME_EXCHANGE, NULL), -EINVAL);
	assert_int_equal(sm_client_rename(c, b, "d", a, "x", 0, NULL), 0);
}

static void a_moved_directory_has_a_new_parent(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_mkdir(c, ROOT, "a"));
	uint64_t b = SM_INO(c, sm_client_mkdir(c, ROOT, "b"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, a, "d"));

	assert_int_equal(sm_client_stat(c, a).nlink, 3);
	assert_int_equal(sm_client_rename(c, a, "d", b, "e", 0, NULL), 0);
	assert_int_equal(sm_client_stat(c, a).nlink, 2);
	assert_int_equal(sm_client_stat(c, b).nlink, 3);
	assert_int_equal(sm_client_stat(c, d).parent, b);
	assert_int_equal(sm_client_lookup(c, d, ".."), 0);
	assert_int_equal(c->attr.ino, b);
}

static void rename_over_looks_at_types_and_emptiness(void **state)
{
	struct sm_client *c = *state;
	uint64_t e = SM_INO(c, sm_client_mkdir(c, ROOT, "full"));

	assert_int_equal(sm_client_file(c, e, "x"), 0);
	assert_int_equal(sm_client_mkdir(c, ROOT, "d"), 0);
	assert_int_equal(sm_client_mkdir(c, ROOT, "empty"), 0);
	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "d", 0, NULL),
			 -EISDIR);
	assert_int_equal(sm_client_rename(c, ROOT, "d", ROOT, "f", 0, NULL),
			 -ENOTDIR);
	assert_int_equal(sm_client_rename(c, ROOT, "d", ROOT, "full", 0,
					  NULL), -ENOTEMPTY);
	assert_int_equal(sm_client_rename(c, ROOT, "d", ROOT, "empty", 0,
					  NULL), 0);
	assert_int_equal(sm_client_stat(c, ROOT).nlink, 4);
}

static void noreplace_leaves_what_is_there(void **state)
{
	struct sm_client *c = *state;
	uint64_t b;

	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	b = SM_INO(c, sm_client_file(c, ROOT, "b"));
	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "b",
					  RENAME_NOREPLACE, NULL), -EEXIST);
	assert_int_equal(sm_client_lookup(c, ROOT, "b"), 0);
	assert_int_equal(c->attr.ino, b);
	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "c",
					  RENAME_NOREPLACE, NULL), 0);
}

static void exchange_swaps_a_file_and_a_directory(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = SM_INO(c, sm_client_mkdir(c, ROOT, "a"));
	uint64_t b = SM_INO(c, sm_client_mkdir(c, ROOT, "b"));
	uint64_t f = SM_INO(c, sm_client_file(c, a, "f"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, b, "d"));
	struct meta_rename_reply r;

	assert_int_equal(sm_client_rename(c, a, "f", b, "d", RENAME_EXCHANGE,
					  &r), 0);
	assert_int_equal(r.ino, f);
	assert_int_equal(r.replaced, d);
	assert_int_equal(r.replaced_nlink, 2);
	assert_int_equal(sm_client_lookup(c, a, "f"), 0);
	assert_int_equal(c->attr.ino, d);
	assert_int_equal(c->attr.parent, a);
	assert_int_equal(sm_client_lookup(c, b, "d"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(sm_client_stat(c, a).nlink, 3);
	assert_int_equal(sm_client_stat(c, b).nlink, 2);
	assert_int_equal(sm_client_rename(c, a, "f", b, "x", RENAME_EXCHANGE,
					  &r), -ENOENT);
}

static uint64_t made_dir(struct sm_client *c, const char *name)
{
	assert_int_equal(sm_client_mkdir(c, ROOT, name), 0);
	return c->attr.ino;
}

static void a_whiteout_takes_the_old_name(void **state)
{
	struct sm_client *c = *state;
	uint64_t a = made_dir(c, "a"), b = made_dir(c, "b");
	uint64_t f = sm_client_file(c, a, "f") == 0 ? c->attr.ino : 0;
	uint64_t count = sm_inode_count(c->sm);
	struct meta_rename_reply r;

	c->uid = 7;
	c->gid = 8;
	assert_int_equal(sm_client_rename(c, a, "f", b, "g", RENAME_WHITEOUT |
					  RENAME_NOREPLACE, &r), 0);
	assert_int_equal(r.ino, f);
	assert_int_equal(r.replaced, 0);
	assert_int_equal(sm_client_lookup(c, a, "f"), 0);
	assert_int_equal(c->attr.ino, r.whiteout);
	assert_int_equal(c->attr.mode, S_IFCHR);
	assert_int_equal(c->attr.rdev, 0);
	assert_int_equal(c->attr.uid, 7);
	assert_int_equal(c->attr.gid, 8);
	assert_int_equal(c->attr.nlink, 1);
	assert_int_equal(sm_client_lookup(c, b, "g"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(sm_inode_count(c->sm), count + 1);
	assert_int_equal(sm_client_rmdir(c, ROOT, "a"), -ENOTEMPTY);
	assert_int_equal(sm_client_unlink(c, a, "f"), 0);
	assert_int_equal(sm_client_rmdir(c, ROOT, "a"), 0);
}

static void no_whiteout_where_nothing_moves(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = sm_client_file(c, ROOT, "f") == 0 ? c->attr.ino : 0;
	uint64_t count = sm_inode_count(c->sm);
	struct meta_rename_reply r;

	assert_int_equal(sm_client_link(c, f, ROOT, "g"), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "g",
					  RENAME_WHITEOUT, &r), 0);
	assert_int_equal(r.whiteout, 0);
	assert_int_equal(sm_client_rename(c, ROOT, "f", ROOT, "g",
					  RENAME_WHITEOUT | RENAME_NOREPLACE,
					  &r), -EEXIST);
	assert_int_equal(sm_client_lookup(c, ROOT, "f"), 0);
	assert_int_equal(c->attr.ino, f);
	assert_int_equal(sm_inode_count(c->sm), count);
}

static void unknown_rename_flags_are_refused(void **state)
{
	struct sm_client *c = *state;

	assert_int_equal(sm_client_file(c, ROOT, "a"), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "b",
					  8, NULL), -EINVAL);
	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "b",
					  RENAME_WHITEOUT | RENAME_EXCHANGE,
					  NULL), -EINVAL);
	assert_int_equal(sm_client_rename(c, ROOT, "a", ROOT, "b",
					  RENAME_NOREPLACE | RENAME_EXCHANGE,
					  NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(every_type_of_object_can_be_made),
		SM_TEST(inode_numbers_are_never_reused),
		SM_TEST(a_taken_name_is_refused),
		SM_TEST(create_with_open_finds_what_is_there),
		SM_TEST(a_client_chooses_numbers_that_metad_would_not_have_given),
		SM_TEST(names_of_255_bytes_work),
		SM_TEST(a_file_is_no_directory_to_create_in),
		SM_TEST(nothing_can_be_made_in_a_removed_directory),
		SM_TEST(dots_are_found),
		SM_TEST(symlinks_keep_their_target),
		SM_TEST(unlink_and_rmdir_look_at_the_type),
		SM_TEST(only_empty_directories_are_removed),
		SM_TEST(an_unlinked_file_stays_until_it_is_given_back),
		SM_TEST(giving_back_a_file_with_a_name_does_nothing),
		SM_TEST(a_second_name_is_the_same_inode),
		SM_TEST(links_to_directories_and_taken_names_are_refused),
		SM_TEST(a_file_takes_65000_links),
		SM_TEST(a_directory_takes_more_than_65000_directories),
		SM_TEST(a_file_that_lost_its_last_name_gets_no_new_one),
		SM_TEST(a_temporary_file_has_no_name_and_all_mode_bits),
		SM_TEST(linking_a_temporary_file_brings_it_to_life_once),
		SM_TEST(rename_moves_a_file),
		SM_TEST(a_rename_of_an_old_log_is_understood),
		SM_TEST(rename_replaces_a_file),
		SM_TEST(rename_between_two_names_of_one_file_does_nothing),
		SM_TEST(a_directory_does_not_go_into_itself),
		SM_TEST(a_moved_directory_has_a_new_parent),
		SM_TEST(rename_over_looks_at_types_and_emptiness),
		SM_TEST(noreplace_leaves_what_is_there),
		SM_TEST(exchange_swaps_a_file_and_a_directory),
		SM_TEST(a_whiteout_takes_the_old_name),
		SM_TEST(no_whiteout_where_nothing_moves),
		SM_TEST(unknown_rename_flags_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
