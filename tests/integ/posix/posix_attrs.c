/* Facts about attributes: modes, owners, times, xattrs, ACLs. */
#include "posix.h"

#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>

#define USER 12345u

static mode_t mode_of(const char *name)
{
	return st_of(name).st_mode & 07777;
}

static void chmod_keeps_twelve_bits(void)
{
	mk("f", "");
	for (mode_t m = 0; m < 010000; m += 0111) {
		CHECK(chmod("f", m) == 0);
		CHECK(mode_of("f") == m);
	}
}

static void umask_applies(void)
{
	umask(027);
	int fd = open("f", O_CREAT | O_WRONLY, 0666);
	CHECK(fd >= 0 && mode_of("f") == 0640);
	CHECK(mkdir("d", 0777) == 0 && mode_of("d") == 0750);
}

static void chown_changes_and_clears(void)
{
	mk("f", "");
	CHECK(chmod("f", 06755) == 0);
	CHECK(chown("f", USER, USER) == 0);
	struct stat st = st_of("f");
	CHECK(st.st_uid == USER && st.st_gid == USER);
	CHECK((st.st_mode & 07777) == 0755);
	CHECK(chown("f", (uid_t)-1, 7) == 0);
	CHECK(st_of("f").st_uid == USER && st_of("f").st_gid == 7);
}

static void owner_body(void)
{
	CHECK_ERR(open("f", O_RDONLY), EACCES);
	CHECK_ERR(open("f", O_WRONLY), EACCES);
	CHECK_ERR(chmod("f", 0777), EPERM);
	CHECK_ERR(chown("f", USER, USER), EPERM);
	CHECK_ERR(open("d/x", O_CREAT | O_WRONLY, 0644), EACCES);
	CHECK_ERR(unlink("f"), EACCES);
	CHECK_ERR(access("f", R_OK), EACCES);
	CHECK_ERR(truncate("f", 0), EACCES);
}

static void permissions_bind_others(void)
{
	mk("f", "secret");
	CHECK(chmod("f", 0600) == 0 && mkdir("d", 0755) == 0);
	as_user(USER, owner_body);
}

static void sticky_body(void)
{
	CHECK_ERR(unlink("t/rootfile"), EPERM);
	CHECK_ERR(rename("t/rootfile", "t/x"), EPERM);
	mk("t/mine", "x");
	CHECK(unlink("t/mine") == 0);
}

static void sticky_protects(void)
{
	CHECK(mkdir("t", 0777) == 0 && chmod("t", 01777) == 0);
	mk("t/rootfile", "x");
	as_user(USER, sticky_body);
}

static void creator_body(void)
{
	mk("open/f", "x");
	struct stat st = st_of("open/f");
	CHECK(st.st_uid == USER && st.st_gid == USER);
	CHECK(mkdir("sg/d", 0755) == 0);
	st = st_of("sg/d");
	CHECK(st.st_uid == USER && st.st_gid == 77);
	CHECK(st.st_mode & S_ISGID);
	mk("sg/f", "x");
	st = st_of("sg/f");
	CHECK(st.st_gid == 77 && !(st.st_mode & S_ISGID));
}

static void creators_own_and_setgid_inherits(void)
{
	CHECK(mkdir("open", 0777) == 0 && chmod("open", 0777) == 0);
	CHECK(mkdir("sg", 0777) == 0 && chown("sg", 0, 77) == 0);
	CHECK(chmod("sg", 02777) == 0);
	as_user(USER, creator_body);
}

static void kill_write(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
	CHECK(mode_of("f") == 0777);
}

static void kill_truncate(void)
{
	CHECK(truncate("f", 0) == 0 && mode_of("f") == 0777);
}

static void kill_open_trunc(void)
{
	int fd = open("f", O_WRONLY | O_TRUNC);
	CHECK(fd >= 0 && close(fd) == 0 && mode_of("f") == 0777);
}

static void kill_fallocate(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && fallocate(fd, 0, 0, 8192) == 0);
	CHECK(close(fd) == 0 && mode_of("f") == 0777);
}

static void kill_punch(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, 0, 1) == 0);
	CHECK(close(fd) == 0 && mode_of("f") == 0777);
}

static void kill_copy(void)
{
	loff_t from = 0, to = 2;
	int fd = open("f", O_RDWR);
	CHECK(fd >= 0 && copy_file_range(fd, &from, fd, &to, 2, 0) == 2);
	CHECK(close(fd) == 0 && mode_of("f") == 0777);
}

static void setid_file(void)
{
	unlink("f");
	mk("f", "xxxx");
	CHECK(chown("f", USER, USER) == 0 && chmod("f", 06777) == 0);
}

static void writes_clear_setid(void)
{
	CHECK(chmod(".", 0777) == 0);
	setid_file();
	as_user(USER, kill_write);
	setid_file();
	as_user(USER, kill_truncate);
	setid_file();
	as_user(USER, kill_open_trunc);
	setid_file();
	as_user(USER, kill_fallocate);
	setid_file();
	as_user(USER, kill_punch);
	setid_file();
	as_user(USER, kill_copy);
}

static void root_keeps_setid(void)
{
	setid_file();
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
	CHECK(mode_of("f") == 06777);
}

static void capability_goes_with_a_write(void)
{
	/* VFS_CAP_REVISION_2, cap_net_raw+ep */
	static const unsigned char cap[20] = { 1, 0, 0, 2, 0, 0x20 };
	static const int ways[] = { 0, O_APPEND, O_SYNC, O_DIRECT,
				    O_DIRECT | O_APPEND, O_DIRECT | O_SYNC };
	void *page;
	CHECK(posix_memalign(&page, 4096, 4096) == 0);
	memset(page, 'y', 4096);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		mk("f", "");
		CHECK(setxattr("f", "security.capability", cap, 20, 0) == 0);
		CHECK(setxattr("f", "user.a", "1", 1, 0) == 0);
		CHECK(chmod("f", 02755) == 0);
		int fd = open("f", O_WRONLY | ways[i]);
		CHECK(fd >= 0 && write(fd, page, 4096) == 4096);
		CHECK_ERR(getxattr("f", "security.capability", NULL, 0),
			  ENODATA);
		CHECK(close(fd) == 0);
		CHECK(getxattr("f", "user.a", NULL, 0) == 1);
		CHECK(!(ways[i] & O_DIRECT) || mode_of("f") == 02755);
		CHECK(unlink("f") == 0);
	}
	free(page);
}

static bool later(struct timespec a, struct timespec b)
{
	return b.tv_sec > a.tv_sec ||
	       (b.tv_sec == a.tv_sec && b.tv_nsec > a.tv_nsec);
}

static void tick(void)
{
	struct timespec t = { 0, 20000000 };
	nanosleep(&t, NULL);
}

static void times_move_as_they_should(void)
{
	const char *logs = getenv("LOGS");
	if (logs && strcmp(logs, "writeback") == 0)
		posix_skip("hailfs-log(7), CAVEATS");
	mk("f", "x");
	struct stat a = st_of("f"), d = st_of(".");
	tick();
	CHECK(chmod("f", 0600) == 0);
	struct stat b = st_of("f");
	CHECK(later(a.st_ctim, b.st_ctim));
	CHECK(!later(a.st_mtim, b.st_mtim));
	tick();
	int fd = open("f", O_WRONLY);
	CHECK(write(fd, "yy", 2) == 2 && close(fd) == 0);
	a = st_of("f");
	CHECK(later(b.st_mtim, a.st_mtim) && later(b.st_ctim, a.st_ctim));
	CHECK(!later(d.st_mtim, st_of(".").st_mtim));
	tick();
	CHECK(link("f", "g") == 0);
	CHECK(later(a.st_ctim, st_of("f").st_ctim));
	CHECK(later(d.st_mtim, st_of(".").st_mtim));
	d = st_of(".");
	tick();
	CHECK(unlink("g") == 0);
	CHECK(later(d.st_mtim, st_of(".").st_mtim));
	CHECK(later(d.st_ctim, st_of(".").st_ctim));
}

static void utimens_to_the_nanosecond(void)
{
	struct timespec t[2] = { { 1, 123456789 }, { -5, 987654321 } };
	mk("f", "x");
	CHECK(utimensat(AT_FDCWD, "f", t, 0) == 0);
	struct stat st = st_of("f");
	CHECK(st.st_atim.tv_sec == 1 && st.st_atim.tv_nsec == 123456789);
	CHECK(st.st_mtim.tv_sec == -5 && st.st_mtim.tv_nsec == 987654321);
	t[0].tv_nsec = UTIME_OMIT;
	t[1].tv_nsec = UTIME_NOW;
	CHECK(utimensat(AT_FDCWD, "f", t, 0) == 0);
	st = st_of("f");
	CHECK(st.st_atim.tv_nsec == 123456789 && st.st_mtim.tv_sec > 1000000);
}

static void xattrs_all_round(void)
{
	char buf[256];
	mk("f", "x");
	CHECK_ERR(getxattr("f", "user.a", buf, sizeof(buf)), ENODATA);
	CHECK(setxattr("f", "user.a", "value", 5, 0) == 0);
	CHECK(getxattr("f", "user.a", buf, sizeof(buf)) == 5);
	CHECK(memcmp(buf, "value", 5) == 0);
	CHECK(getxattr("f", "user.a", NULL, 0) == 5);
	CHECK_ERR(getxattr("f", "user.a", buf, 2), ERANGE);
	CHECK_ERR(setxattr("f", "user.a", "x", 1, XATTR_CREATE), EEXIST);
	CHECK_ERR(setxattr("f", "user.b", "x", 1, XATTR_REPLACE), ENODATA);
	CHECK(setxattr("f", "user.empty", "", 0, 0) == 0);
	CHECK(getxattr("f", "user.empty", buf, sizeof(buf)) == 0);
	CHECK(setxattr("f", "trusted.t", "t", 1, 0) == 0);
	ssize_t len = listxattr("f", buf, sizeof(buf));
	CHECK(len == 7 + 11 + 10);
	CHECK(removexattr("f", "user.a") == 0);
	CHECK_ERR(removexattr("f", "user.a"), ENODATA);
	CHECK_ERR(setxattr("f", "nonsense.a", "x", 1, 0), EOPNOTSUPP);
}

static void xattrs_of_64_kib(void)
{
	static char in[65536], out[65536];
	memset(in, 'v', sizeof(in));
	mk("f", "x");
	if (setxattr("f", "user.big", in, sizeof(in), 0) != 0) {
		CHECK(errno == ENOSPC || errno == E2BIG);
		posix_skip("this file system has small xattrs");
	}
	CHECK(getxattr("f", "user.big", out, sizeof(out)) == sizeof(out));
	CHECK(memcmp(in, out, sizeof(in)) == 0);
}

static void statvfs_is_plausible(void)
{
	struct statvfs s;
	CHECK(statvfs(".", &s) == 0);
	CHECK(s.f_bsize >= 4096 && s.f_blocks > 0);
	CHECK(s.f_bfree <= s.f_blocks && s.f_bavail <= s.f_bfree);
	CHECK(s.f_namemax == 255);
	CHECK(s.f_files == 0 || s.f_ffree <= s.f_files);
}

/* ---- POSIX ACLs, in the kernel's xattr format ---- */
struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};
enum { U_OBJ = 1, U = 2, G_OBJ = 4, G = 8, MASK = 16, OTHER = 32 };

static size_t acl_make(unsigned char *out, const struct acl_entry *e, size_t n)
{
	uint32_t version = 2;
	memcpy(out, &version, 4);
	memcpy(out + 4, e, n * sizeof(*e));
	return 4 + n * sizeof(*e);
}

static const struct acl_entry acl_user_rw[] = {
	{ U_OBJ, 6, 0xffffffff }, { U, 6, USER }, { G_OBJ, 4, 0xffffffff },
	{ MASK, 6, 0xffffffff }, { OTHER, 0, 0xffffffff },
};

static void acl_read_body(void)
{
	CHECK(holds("f", "acl"));
}

static void acl_denied_body(void)
{
	CHECK_ERR(open("f", O_RDONLY), EACCES);
}

static void access_acl_grants_and_masks(void)
{
	unsigned char acl[64];
	mk("f", "acl");
	CHECK(chmod("f", 0600) == 0);
	as_user(USER, acl_denied_body);
	size_t len = acl_make(acl, acl_user_rw, 5);
	CHECK(setxattr("f", "system.posix_acl_access", acl, len, 0) == 0);
	CHECK(mode_of("f") == 0660); /* group bits show the mask */
	as_user(USER, acl_read_body);
	CHECK(chmod("f", 0600) == 0); /* chmod sets the mask */
	as_user(USER, acl_denied_body);
	CHECK(chmod("f", 0640) == 0);
	as_user(USER, acl_read_body);
	CHECK(removexattr("f", "system.posix_acl_access") == 0);
	as_user(USER, acl_denied_body);
}

static void default_acl_is_inherited(void)
{
	unsigned char acl[64];
	CHECK(mkdir("d", 0755) == 0);
	size_t len = acl_make(acl, acl_user_rw, 5);
	CHECK(setxattr("d", "system.posix_acl_default", acl, len, 0) == 0);
	umask(077); /* has no say where there is a default ACL */
	int fd = open("d/f", O_CREAT | O_WRONLY, 0666);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(mode_of("d/f") == 0660);
	CHECK(getxattr("d/f", "system.posix_acl_access", NULL, 0) ==
	      (ssize_t)len);
	CHECK(mkdir("d/sub", 0777) == 0);
	CHECK(getxattr("d/sub", "system.posix_acl_default", NULL, 0) ==
	      (ssize_t)len);
	fd = open("d/g", O_CREAT | O_WRONLY, 0600); /* mode limits the mask */
	CHECK(fd >= 0 && close(fd) == 0 && mode_of("d/g") == 0600);
}

static void minimal_acl_becomes_the_mode(void)
{
	unsigned char acl[64];
	static const struct acl_entry e[] = { { U_OBJ, 7, 0xffffffff },
					      { G_OBJ, 5, 0xffffffff },
					      { OTHER, 1, 0xffffffff } };
	mk("f", "x");
	size_t len = acl_make(acl, e, 3);
	CHECK(setxattr("f", "system.posix_acl_access", acl, len, 0) == 0);
	CHECK(mode_of("f") == 0751);
	CHECK_ERR(getxattr("f", "system.posix_acl_access", acl, sizeof(acl)),
		  ENODATA);
}

static void acl_kill_sgid_body(void)
{
	unsigned char acl[64];
	size_t len = acl_make(acl, acl_user_rw, 5);
	CHECK(setxattr("f", "system.posix_acl_access", acl, len, 0) == 0);
	CHECK(!(st_of("f").st_mode & S_ISGID));
	CHECK(chmod("g", 02755) == 0 && !(st_of("g").st_mode & S_ISGID));
}

static void outsiders_lose_setgid(void)
{
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "g" : "f";
		mk(name, "x");
		CHECK(chown(name, USER, 77) == 0);
		CHECK(chmod(name, 02755) == 0);
	}
	as_user(USER, acl_kill_sgid_body);
}

const struct posix_case posix_attrs[] = {
	{ "chmod keeps all twelve bits", chmod_keeps_twelve_bits, true },
	{ "umask applies to files and directories", umask_applies, false },
	{ "chown changes owners and clears set-id bits",
	  chown_changes_and_clears, true },
	{ "permissions bind other users", permissions_bind_others, true },
	{ "the sticky bit protects others' files", sticky_protects, true },
	{ "creators own their files and set-gid directories are inherited",
	  creators_own_and_setgid_inherits, true },
	{ "write, truncate, O_TRUNC, fallocate and punch clear set-id bits",
	  writes_clear_setid, true },
	{ "root's write keeps set-id bits", root_keeps_setid, true },
	{ "a write takes the file capability away",
	  capability_goes_with_a_write, true },
	{ "times move with the changes they tell", times_move_as_they_should,
	  false },
	{ "utimensat keeps nanoseconds, also before 1970",
	  utimens_to_the_nanosecond, false },
	{ "extended attributes: set, get, list, remove, flags",
	  xattrs_all_round, true },
	{ "an extended attribute of 64 KiB", xattrs_of_64_kib, false },
	{ "statvfs is plausible", statvfs_is_plausible, false },
	{ "an access ACL grants, its mask limits, chmod sets the mask",
	  access_acl_grants_and_masks, true },
	{ "a default ACL is inherited and replaces the umask",
	  default_acl_is_inherited, true },
	{ "an ACL that says no more than a mode becomes the mode",
	  minimal_acl_becomes_the_mode, false },
	{ "chmod and setfacl by an outsider of the group clear set-gid",
	  outsiders_lose_setgid, true },
	{ NULL, NULL, false }
};
