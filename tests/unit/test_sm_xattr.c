/* Extended attributes and POSIX ACLs. */
#include "tests/lib/sm_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

#define ROOT ROOT_INO
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

/* ---- xattrs ---- */

static void values_of_every_size_come_back(void **state)
{
	static const size_t sizes[] = { 0, 1, 1023, 1024, 1025, 2048, 65535,
					XATTR_VALUE_MAX };
	static uint8_t value[XATTR_VALUE_MAX + 1], back[XATTR_VALUE_MAX + 1];
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	/* up and down, over the old value */
	for (size_t i = 0; i < 2 * array_count(sizes); i++) {
		size_t len = sizes[i < array_count(sizes) ? i :
				   2 * array_count(sizes) - 1 - i];

		memset(value, (int)i + 1, len);
		assert_int_equal(sm_client_setxattr(c, f, "user.v", value, len,
						    0), 0);
		assert_int_equal(sm_client_getxattr(c, f, "user.v", back,
						    sizeof(back)), len);
		assert_memory_equal(back, value, len);
	}
	assert_int_equal(sm_client_setxattr(c, f, "user.v", value,
					    XATTR_VALUE_MAX + 1, 0), -E2BIG);
}

static void create_and_replace_flags_are_kept(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_setxattr(c, f, "user.a", "1", 1,
					    XATTR_REPLACE), -ENODATA);
	assert_int_equal(sm_client_setxattr(c, f, "user.a", "1", 1,
					    XATTR_CREATE), 0);
	assert_int_equal(sm_client_setxattr(c, f, "user.a", "2", 1,
					    XATTR_CREATE), -EEXIST);
	assert_int_equal(sm_client_setxattr(c, f, "user.a", "2", 1,
					    XATTR_REPLACE), 0);
}

static void one_name_may_be_the_start_of_another(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char buf[64];

	assert_int_equal(sm_client_setxattr(c, f, "user.a", "1", 1, 0), 0);
	assert_int_equal(sm_client_setxattr(c, f, "user.ab", "22", 2, 0), 0);
	assert_int_equal(sm_client_getxattr(c, f, "user.a", buf, 64), 1);
	assert_int_equal(sm_client_getxattr(c, f, "user.ab", buf, 64), 2);
	assert_int_equal(sm_client_removexattr(c, f, "user.a"), 0);
	assert_int_equal(sm_client_getxattr(c, f, "user.a", buf, 64),
			 -ENODATA);
	assert_int_equal(sm_client_getxattr(c, f, "user.ab", buf, 64), 2);
	assert_int_equal(sm_client_removexattr(c, f, "user.a"), -ENODATA);
}

static void the_list_has_each_name_once(void **state)
{
	static uint8_t big[XATTR_VALUE_MAX];
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char buf[256];

	assert_int_equal(sm_client_listxattr(c, f, buf, sizeof(buf)), 0);
	assert_int_equal(c->attr.flags & META_ATTR_XATTR, 0);
	assert_int_equal(sm_client_setxattr(c, f, "user.b", big, sizeof(big),
					    0), 0);
	assert_int_equal(sm_client_setxattr(c, f, "trusted.a", "", 0, 0), 0);
	assert_true((c->attr.flags & META_ATTR_XATTR) != 0);
	assert_int_equal(sm_client_listxattr(c, f, buf, sizeof(buf)), 17);
	assert_memory_equal(buf, "trusted.a\0user.b\0", 17);
	assert_int_equal(sm_client_removexattr(c, f, "user.b"), 0);
	assert_int_equal(sm_client_removexattr(c, f, "trusted.a"), 0);
	assert_int_equal(c->attr.flags & META_ATTR_XATTR, 0);
}

static void names_outside_the_namespaces_are_refused(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char name[300];

	assert_int_equal(sm_client_setxattr(c, f, "plain", "", 0, 0),
			 -EOPNOTSUPP);
	assert_int_equal(sm_client_setxattr(c, f, "system.other", "", 0, 0),
			 -EOPNOTSUPP);
	assert_int_equal(sm_client_setxattr(c, f, "user.", "", 0, 0), -EINVAL);
	assert_int_equal(sm_client_setxattr(c, f, "", "", 0, 0), -EINVAL);
	memset(name, 'n', sizeof(name));
	memcpy(name, "user.", 5);
	name[XATTR_NAME_LEN_MAX] = '\0';
	assert_int_equal(sm_client_setxattr(c, f, name, "", 0, 0), 0);
	name[XATTR_NAME_LEN_MAX] = 'n';
	name[XATTR_NAME_LEN_MAX + 1] = '\0';
	assert_int_equal(sm_client_setxattr(c, f, name, "", 0, 0),
			 -ENAMETOOLONG);
}

static void an_inode_holds_a_megabyte_of_xattrs(void **state)
{
	static uint8_t value[XATTR_VALUE_MAX];
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char name[24];
	int err = 0, count = 0;

	while (err == 0) {
		(void)snprintf(name, sizeof(name), "user.%d", count++);
		err = sm_client_setxattr(c, f, name, value, sizeof(value), 0);
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(count, XATTR_TOTAL_MAX / XATTR_VALUE_MAX);
	assert_int_equal(sm_client_removexattr(c, f, "user.0"), 0);
	assert_int_equal(sm_client_setxattr(c, f, name, value, sizeof(value),
					    0), 0);
}

static void the_list_of_names_is_bounded(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char name[256], *list = malloc(XATTR_LIST_LEN_MAX + 1);
	int err = 0;

	memset(name, 'n', sizeof(name));
	for (int i = 0; err == 0; i++) {
		(void)snprintf(name, 16, "user.%09d", i);
		name[14] = 'n';
		name[255] = '\0';
		err = sm_client_setxattr(c, f, name, "", 0, 0);
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(sm_client_listxattr(c, f, list,
					     XATTR_LIST_LEN_MAX + 1),
			 XATTR_LIST_LEN_MAX);
	free(list);
}

#define BLOCKS "user.hailfs.block_size"

static uint32_t block_size(struct sm_client *c, uint64_t ino)
{
	assert_int_equal(sm_client_getattr(c, ino), 0);
	return 1u << c->attr.block_log2;
}

/* "" when there is none; lists it exactly when there is. */
static const char *block_text(struct sm_client *c, uint64_t ino)
{
	static char text[32], list[256];
	ssize_t len = sm_client_getxattr(c, ino, BLOCKS, text, 31);
	ssize_t names = sm_client_listxattr(c, ino, list, sizeof(list));
	bool listed = names > 0 && memmem(list, (size_t)names, BLOCKS,
					  sizeof(BLOCKS)) != NULL;

	assert_true(len > 0 || len == -ENODATA);
	assert_int_equal(listed, len > 0);
	text[len > 0 ? len : 0] = '\0';
	assert_int_equal(sm_client_getattr(c, ino), 0);
	assert_int_equal((c->attr.flags & META_ATTR_XATTR) != 0, names > 0);
	return text;
}

static int set_block(struct sm_client *c, uint64_t ino, const char *text,
		     uint32_t flags)
{
	return sm_client_setxattr(c, ino, BLOCKS, text, strlen(text), flags);
}

static void a_directory_gives_its_block_size_to_what_is_made_in_it(
	void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t old = SM_INO(c, sm_client_file(c, d, "old"));
	uint64_t sub, f;

	assert_string_equal(block_text(c, d), "");
	assert_int_equal(set_block(c, d, "64K", 0), 0);
	assert_string_equal(block_text(c, d), "65536");
	f = SM_INO(c, sm_client_file(c, d, "f"));
	sub = SM_INO(c, sm_client_mkdir(c, d, "sub"));
	assert_int_equal(block_size(c, f), 65536);
	assert_int_equal(block_size(c, old), 1u << 20);
	assert_string_equal(block_text(c, sub), "65536");
	/* Files tell it to nobody, so that a copy does not ask for it. */
	assert_string_equal(block_text(c, f), "");
	assert_int_equal(set_block(c, f, "65536", 0), -EINVAL);
	assert_int_equal(set_block(c, sub, "4M", 0), 0);
	assert_int_equal(block_size(c, SM_INO(c, sm_client_file(c, sub, "g"))),
			 4u << 20);
	assert_int_equal(set_block(c, sub, "1048576", 0), 0);
	assert_string_equal(block_text(c, sub), "");
	assert_int_equal(sm_client_removexattr(c, sub, BLOCKS), -ENODATA);
	assert_int_equal(sm_client_removexattr(c, d, BLOCKS), 0);
	assert_string_equal(block_text(c, d), "");
	assert_int_equal(block_size(c, SM_INO(c, sm_client_file(c, d, "h"))),
			 1u << 20);
	assert_int_equal(block_size(c, f), 65536);
}

static void wrong_block_sizes_are_refused(void **state)
{
	static const char *const wrong[] = {
		"", "0", "K", "65535", "65537", "32768", "8M", "8388608",
		"64k ", " 64k", "64kk", "-65536", "0x10000", "4096K1",
		"18446744073709617152", "99999999999999999999999999", "64G",
	};
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	for (size_t i = 0; i < array_count(wrong); i++)
		assert_int_equal(set_block(c, d, wrong[i], 0), -EINVAL);
	assert_string_equal(block_text(c, d), "");
	assert_int_equal(set_block(c, d, "128k", XATTR_REPLACE), -ENODATA);
	assert_int_equal(set_block(c, d, "128k", XATTR_CREATE), 0);
	assert_int_equal(set_block(c, d, "256k", XATTR_CREATE), -EEXIST);
	assert_int_equal(set_block(c, d, "2m", XATTR_REPLACE), 0);
	assert_string_equal(block_text(c, d), "2097152");
}

static void xattrs_go_with_their_inode(void **state)
{
	static uint8_t value[5000];
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_setxattr(c, f, "user.a", value,
					    sizeof(value), 0), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	/* the teardown's check finds what would be left */
}

static void xattrs_move_only_the_ctime(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	int64_t born = c->now;

	assert_int_equal(sm_client_setxattr(c, f, "user.a", "", 0, 0), 0);
	assert_true(c->attr.ctime_ns == c->now && c->attr.mtime_ns == born);
	assert_int_equal(sm_client_removexattr(c, f, "user.a"), 0);
	assert_true(c->attr.ctime_ns == c->now && c->attr.mtime_ns == born);
}

/* ---- ACLs ---- */

struct ace {
	uint16_t tag, perm;
	uint32_t id;
};

enum {
	USER_OBJ = 1,
	USER = 2,
	GROUP_OBJ = 4,
	GROUP = 8,
	MASK = 16,
	OTHER = 32,
};
#define NOBODY UINT32_MAX

static size_t acl_bytes(const struct ace *e, size_t count, uint8_t *buf)
{
	struct wire_out o;

	wire_out_init(&o, buf, 256);
	wire_put_u32(&o, 2);
	for (size_t i = 0; i < count; i++) {
		wire_put_u16(&o, e[i].tag);
		wire_put_u16(&o, e[i].perm);
		wire_put_u32(&o, e[i].id);
	}
	return o.len;
}

static int set_acl(struct sm_client *c, uint64_t ino, const char *name,
		   const struct ace *e, size_t count)
{
	uint8_t buf[256];

	return sm_client_setxattr(c, ino, name, buf, acl_bytes(e, count, buf),
				  0);
}

static void assert_acl(struct sm_client *c, uint64_t ino, const char *name,
		       const struct ace *e, size_t count)
{
	uint8_t want[256], got[256];
	size_t len = acl_bytes(e, count, want);

	assert_int_equal(sm_client_getxattr(c, ino, name, got, sizeof(got)),
			 len);
	assert_memory_equal(got, want, len);
}

static const struct ace full[] = {
	{ USER_OBJ, 7, NOBODY }, { USER, 6, 1000 }, { GROUP_OBJ, 5, NOBODY },
	{ GROUP, 4, 2000 }, { MASK, 6, NOBODY }, { OTHER, 1, NOBODY },
};

static void an_access_acl_sets_the_mode(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(set_acl(c, f, ACCESS, full, 6), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0761); /* group: the mask */
	assert_true((c->attr.flags & META_ATTR_ACL) != 0);
	assert_acl(c, f, ACCESS, full, 6);
}

static void an_acl_that_is_just_a_mode_is_not_kept(void **state)
{
	static const struct ace plain[] = { { USER_OBJ, 6, NOBODY },
					    { GROUP_OBJ, 2, NOBODY },
					    { OTHER, 1, NOBODY } };
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char buf[16];

	assert_int_equal(set_acl(c, f, ACCESS, full, 6), 0);
	assert_int_equal(set_acl(c, f, ACCESS, plain, 3), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0621);
	assert_int_equal(c->attr.flags, 0);
	assert_int_equal(sm_client_getxattr(c, f, ACCESS, buf, sizeof(buf)),
			 -ENODATA);
}

static void a_mask_alone_makes_an_acl_more_than_a_mode(void **state)
{
	static const struct ace masked[] = { { USER_OBJ, 7, NOBODY },
					     { GROUP_OBJ, 7, NOBODY },
					     { MASK, 5, NOBODY },
					     { OTHER, 0, NOBODY } };
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(set_acl(c, f, ACCESS, masked, 4), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0750);
	assert_acl(c, f, ACCESS, masked, 4);
	assert_int_equal(set_acl(c, d, DEFAULT, masked, 4), 0);
	assert_int_equal(sm_client_mkdir(c, d, "e"), 0);
	assert_int_equal(c->attr.mode, S_IFDIR | 0750);
	assert_acl(c, c->attr.ino, ACCESS, masked, 4);
}

static void chmod_changes_the_mask_of_an_acl(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct ace want[6];

	assert_int_equal(set_acl(c, f, ACCESS, full, 6), 0);
	assert_int_equal(sm_client_chmod(c, f, 0640), 0);
	memcpy(want, full, sizeof(want));
	want[0].perm = 6;
	want[4].perm = 4;
	want[5].perm = 0;
	assert_acl(c, f, ACCESS, want, 6);
	assert_int_equal(c->attr.mode, S_IFREG | 0640);
}

static void a_default_acl_is_for_directories(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t s = SM_INO(c, sm_client_symlink(c, ROOT, "s", "x"));

	assert_int_equal(set_acl(c, f, DEFAULT, full, 6), -EACCES);
	assert_int_equal(set_acl(c, s, ACCESS, full, 6), -EOPNOTSUPP);
	assert_int_equal(set_acl(c, d, DEFAULT, full, 6), 0);
	assert_int_equal(c->attr.mode, S_IFDIR | 0755);
	assert_acl(c, d, DEFAULT, full, 6);
}

static void children_inherit_the_default_acl(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	struct ace want[6];
	uint64_t f, e;

	assert_int_equal(set_acl(c, d, DEFAULT, full, 6), 0);
	c->umask = 077; /* does not count here */
	f = SM_INO(c, sm_client_file(c, d, "f")); /* 0666 */
	assert_int_equal(c->attr.mode, S_IFREG | 0660);
	memcpy(want, full, sizeof(want));
	want[0].perm = 6;
	want[4].perm = 6;
	want[5].perm = 0;
	assert_acl(c, f, ACCESS, want, 6);
	e = SM_INO(c, sm_client_mkdir(c, d, "e")); /* 0777 */
	assert_int_equal(c->attr.mode, S_IFDIR | 0761);
	assert_acl(c, e, ACCESS, full, 6);
	assert_acl(c, e, DEFAULT, full, 6);
	assert_int_equal(sm_client_tmpfile(c, d, 0600), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0600);
	assert_true((c->attr.flags & META_ATTR_ACL) != 0);
	assert_int_equal(sm_client_symlink(c, d, "s", "x"), 0);
	assert_int_equal(c->attr.flags, 0);
}

static void a_plain_default_acl_replaces_the_umask(void **state)
{
	static const struct ace plain[] = { { USER_OBJ, 7, NOBODY },
					    { GROUP_OBJ, 5, NOBODY },
					    { OTHER, 0, NOBODY } };
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(set_acl(c, d, DEFAULT, plain, 3), 0);
	c->umask = 0777;
	assert_int_equal(sm_client_file(c, d, "f"), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0640);
	assert_int_equal(c->attr.flags, 0); /* no ACL of its own */
}

static void removing_acls_leaves_the_mode(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));

	assert_int_equal(set_acl(c, d, ACCESS, full, 6), 0);
	assert_int_equal(set_acl(c, d, DEFAULT, full, 6), 0);
	assert_int_equal(sm_client_removexattr(c, d, ACCESS), 0);
	assert_int_equal(c->attr.mode, S_IFDIR | 0761);
	assert_true((c->attr.flags & META_ATTR_ACL) != 0);
	assert_int_equal(set_acl(c, d, DEFAULT, NULL, 0), 0);
	assert_int_equal(c->attr.flags, 0);
	assert_int_equal(sm_client_removexattr(c, d, DEFAULT), 0);
}

static void an_acl_can_take_the_set_gid_bit(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint8_t buf[256];
	size_t len = acl_bytes(full, 6, buf);

	assert_int_equal(sm_client_chmod(c, f, 02755), 0);
	assert_int_equal(sm_client_setxattr(c, f, ACCESS, buf, len, 0), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 02761);
	assert_int_equal(sm_client_setxattr(c, f, ACCESS, buf, len,
					    META_XATTR_KILL_SGID), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0761);
}

static void malformed_acls_are_refused(void **state)
{
	static const struct ace bad[][4] = {
		{ { USER_OBJ, 7, NOBODY }, { OTHER, 0, NOBODY } },
		{ { USER_OBJ, 7, NOBODY }, { USER_OBJ, 7, NOBODY },
		  { GROUP_OBJ, 7, NOBODY }, { OTHER, 0, NOBODY } },
		{ { USER_OBJ, 7, NOBODY }, { USER, 7, 3 },
		  { GROUP_OBJ, 7, NOBODY }, { OTHER, 0, NOBODY } },
		{ { USER_OBJ, 8, NOBODY }, { GROUP_OBJ, 7, NOBODY },
		  { OTHER, 0, NOBODY } },
		{ { GROUP_OBJ, 7, NOBODY }, { USER_OBJ, 7, NOBODY },
		  { OTHER, 0, NOBODY } },
		{ { USER_OBJ, 7, NOBODY }, { GROUP_OBJ, 7, NOBODY },
		  { 64, 0, NOBODY }, { OTHER, 0, NOBODY } },
	};
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint8_t buf[256];
	size_t len = acl_bytes(full, 6, buf);

	for (size_t i = 0; i < array_count(bad); i++) {
		size_t count = bad[i][3].tag != 0 ? 4 :
			       bad[i][2].tag != 0 ? 3 : 2;

		assert_int_equal(set_acl(c, f, ACCESS, bad[i], count),
				 -EINVAL);
	}
	assert_int_equal(sm_client_setxattr(c, f, ACCESS, buf, len - 1, 0),
			 -EINVAL);
	buf[0] = 3;
	assert_int_equal(sm_client_setxattr(c, f, ACCESS, buf, len, 0),
			 -EOPNOTSUPP);
	assert_int_equal(sm_client_stat(c, f).mode, S_IFREG | 0644);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(values_of_every_size_come_back),
		SM_TEST(create_and_replace_flags_are_kept),
		SM_TEST(one_name_may_be_the_start_of_another),
		SM_TEST(the_list_has_each_name_once),
		SM_TEST(names_outside_the_namespaces_are_refused),
		SM_TEST(an_inode_holds_a_megabyte_of_xattrs),
		SM_TEST(the_list_of_names_is_bounded),
		SM_TEST(a_directory_gives_its_block_size_to_what_is_made_in_it),
		SM_TEST(wrong_block_sizes_are_refused),
		SM_TEST(xattrs_go_with_their_inode),
		SM_TEST(xattrs_move_only_the_ctime),
		SM_TEST(an_access_acl_sets_the_mode),
		SM_TEST(an_acl_that_is_just_a_mode_is_not_kept),
		SM_TEST(a_mask_alone_makes_an_acl_more_than_a_mode),
		SM_TEST(chmod_changes_the_mask_of_an_acl),
		SM_TEST(a_default_acl_is_for_directories),
		SM_TEST(children_inherit_the_default_acl),
		SM_TEST(a_plain_default_acl_replaces_the_umask),
		SM_TEST(removing_acls_leaves_the_mode),
		SM_TEST(an_acl_can_take_the_set_gid_bit),
		SM_TEST(malformed_acls_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
