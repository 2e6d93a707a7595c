/* Facts about what lasts or is seen while a file is held: times that were set,
 * bytes stored into mappings, handles, limits.
 */
#include "posix.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>

#define USER 12345u

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 30000000 }, NULL);
}

/* The kernel forgets what nobody has open. */
static void drop(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "2", 1) == 1 && close(fd) == 0);
}

static int rw(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	return fd;
}

static mode_t mode_of(const char *name)
{
	return st_of(name).st_mode & 07777;
}

static int64_t mtime_of(const char *name)
{
	struct stat st = st_of(name);
	return st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

static void tmpfiles_take_the_umask(void)
{
	struct stat st;
	umask(027);
	int fd = open(".", O_TMPFILE | O_RDWR, 0666);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	CHECK((st.st_mode & 07777) == 0640);
}

static void chown_of_nothing_clears_setid(void)
{
	mk("f", "x");
	CHECK(mkdir("d", 0755) == 0 && chmod("d", 06755) == 0);
	CHECK(chmod("f", 06755) == 0);
	CHECK(chown("f", (uid_t)-1, (gid_t)-1) == 0);
	CHECK(mode_of("f") == 0755);
	CHECK(chmod("f", 06745) == 0 && chown("f", (uid_t)-1, 7) == 0);
	CHECK(mode_of("f") == 02745);
	CHECK(chown("d", (uid_t)-1, (gid_t)-1) == 0);
	CHECK(chown("d", USER, 7) == 0 && mode_of("d") == 06755);
}

static void chown_none_body(void)
{
	CHECK_ERR(chown("suid", (uid_t)-1, (gid_t)-1), EPERM);
	CHECK_ERR(chown("sgid", (uid_t)-1, (gid_t)-1), EPERM);
	CHECK_ERR(chown("lock", (uid_t)-1, (gid_t)-1), EPERM);
	CHECK(chown("plain", (uid_t)-1, (gid_t)-1) == 0);
	CHECK(chown("dir", (uid_t)-1, (gid_t)-1) == 0);
	CHECK(chown("mine", (uid_t)-1, (gid_t)-1) == 0);
}

static void outsiders_chown_nothing(void)
{
	static const struct {
		const char *name;
		mode_t mode, after;
	} f[] = { { "suid", 04755, 04755 },  { "sgid", 02755, 02755 },
		  { "lock", 02644, 02644 },  { "plain", 0755, 0755 },
		  { "mine", 06755, 0755 },   { "dir", 06755, 06755 } };
	for (size_t i = 0; i < sizeof(f) / sizeof(*f); i++) {
		if (strcmp(f[i].name, "dir") == 0)
			CHECK(mkdir("dir", 0755) == 0);
		else
			mk(f[i].name, "x");
		if (strcmp(f[i].name, "mine") == 0)
			CHECK(chown("mine", USER, USER) == 0);
		CHECK(chmod(f[i].name, f[i].mode) == 0);
	}
	as_user(USER, chown_none_body);
	for (size_t i = 0; i < sizeof(f) / sizeof(*f); i++)
		CHECK(mode_of(f[i].name) == f[i].after);
}

/* Root of a user namespace of its own is nobody here. */
static void own_ns_body(void)
{
	loff_t from = 0, to = 2;
	char buf[64];
	if (unshare(CLONE_NEWUSER) != 0)
		posix_skip("no user namespaces");
	int fd = open("f", O_WRONLY), copy = open("g", O_RDWR);
	CHECK(fd >= 0 && copy >= 0);
	CHECK(fallocate(fd, 0, 0, 8192) == 0 && mode_of("f") == 0777);
	CHECK(copy_file_range(copy, &from, copy, &to, 2, 0) == 2);
	CHECK(mode_of("g") == 0777);
	CHECK(listxattr("f", buf, sizeof(buf)) == 0);
	CHECK_ERR(chown("h", (uid_t)-1, (gid_t)-1), EPERM);
}

static void own_namespaces_give_no_rights(void)
{
	for (const char *name = "fgh"; *name; name++) {
		char path[2] = { *name };
		mk(path, "xxxx");
		CHECK(chmod(path, 06777) == 0);
	}
	CHECK(setxattr("f", "trusted.t", "1", 1, 0) == 0);
	as_user(USER, own_ns_body);
	CHECK(mode_of("h") == 06777);
}

static void set_times_last(void)
{
	static const int64_t ns = 1000000001;
	struct timespec t[2] = { { 5, 5 }, { 1, 1 } };
	char buf[5000] = { 1 };
	for (int round = 0; round < 4; round++) {
		int fd = rw("f");
		CHECK(write(fd, buf, sizeof(buf)) == sizeof(buf));
		CHECK((round & 1 ? futimens(fd, t) :
				   utimensat(AT_FDCWD, "f", t, 0)) == 0);
		CHECK(mtime_of("f") == ns);
		CHECK(!(round & 2) || fsync(fd) == 0);
		CHECK(mtime_of("f") == ns && close(fd) == 0);
		CHECK(mtime_of("f") == ns);
		drop();
		nap();
		CHECK(mtime_of("f") == ns && st_of("f").st_atim.tv_sec == 5);
		CHECK(unlink("f") == 0);
	}
}

static void truncation_to_its_size_moves_the_mtime(void)
{
	mk("f", "xxxx");
	int fd = rw("f");
	int64_t t = mtime_of("f");
	nap();
	CHECK(ftruncate(fd, 4) == 0 && mtime_of("f") > t);
	t = mtime_of("f");
	nap();
	CHECK(open("f", O_WRONLY | O_TRUNC) >= 0 && mtime_of("f") > t);
	t = mtime_of("f");
	nap();
	CHECK(open("f", O_WRONLY | O_TRUNC) >= 0 && mtime_of("f") > t);
}

static void seek_sees_mapped_stores(void)
{
	enum { SIZE = 1 << 20, AT = 512 << 10 };
	int fd = rw("f"), reader = open("f", O_RDONLY);
	CHECK(ftruncate(fd, SIZE) == 0 && reader >= 0);
	char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m != MAP_FAILED && close(fd) == 0);
	m[AT] = 'x';
	off_t at = lseek(reader, 0, SEEK_DATA);
	CHECK(at >= 0 && at <= AT);
	CHECK(lseek(reader, AT, SEEK_HOLE) > AT);
	CHECK(munmap(m, SIZE) == 0);
}

static void noappend_writes_where_it_is_told(void)
{
	struct iovec v = { (void *)(uintptr_t)"X", 1 };
	mk("f", "abc");
	int fd = open("f", O_RDWR | O_APPEND);
	ssize_t n = syscall(SYS_pwritev2, fd, &v, 1, 1L, 0L, 0x20);
	if (n < 0 && errno == EOPNOTSUPP)
		posix_skip("no RWF_NOAPPEND");
	CHECK(n == 1 && holds("f", "aXc"));
	CHECK(write(fd, "d", 1) == 1 && holds("f", "aXcd"));
	CHECK(close(fd) == 0);
	drop();
	CHECK(holds("f", "aXcd") && st_of("f").st_size == 4);
}

static void directories_open_by_handle(void)
{
	struct {
		struct file_handle h;
		unsigned char bytes[128];
	} fh = { .h.handle_bytes = 128 };
	char path[64], want[512], got[512];
	int id;
	CHECK(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0);
	CHECK(mkdir("a/b/c", 0755) == 0);
	mk("a/b/c/f", "deep");
	CHECK(name_to_handle_at(AT_FDCWD, "a/b/c", &fh.h, &id, 0) == 0);
	CHECK(getcwd(want, 400) && strcat(want, "/a/b/c"));
	int top = open(".", O_RDONLY | O_DIRECTORY);
	drop();
	int fd = open_by_handle_at(top, &fh.h, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t len = readlink(path, got, sizeof(got) - 1);
	CHECK(len > 0);
	got[len] = 0;
	CHECK(strcmp(want, got) == 0);
	CHECK(fchdir(fd) == 0 && holds("f", "deep"));
	CHECK(st_of("..").st_ino == st_of("../../b").st_ino);
	CHECK(fchdir(top) == 0);
}

static void xattr_limits(void)
{
	static char name[300], value[70000];
	mk("f", "x");
	memset(name, 'n', 256);
	memcpy(name, "user.", 5);
	name[255] = 0;
	CHECK(setxattr("f", name, "v", 1, 0) == 0);
	CHECK(getxattr("f", name, value, 10) == 1 && value[0] == 'v');
	CHECK(listxattr("f", value, sizeof(value)) == 256);
	CHECK(removexattr("f", name) == 0);
	name[255] = 'n';
	CHECK_ERR(setxattr("f", name, "v", 1, 0), ERANGE);
	CHECK_ERR(getxattr("f", name, value, 10), ERANGE);
	CHECK_ERR(removexattr("f", name), ERANGE);
	CHECK_ERR(setxattr("f", "user.big", value, 65537, 0), E2BIG);
}

static void truncate_body(void)
{
	int fd = open("f", O_RDWR);
	CHECK(fd >= 0 && chmod("f", 0) == 0);
	CHECK(ftruncate(fd, 1) == 0 && write(fd, "y", 1) == 1);
	CHECK(fallocate(fd, 0, 0, 4096) == 0 && fsync(fd) == 0);
	CHECK_ERR(truncate("f", 0), EACCES);
	CHECK_ERR(open("f", O_RDONLY), EACCES);
	fd = open("new", O_RDWR | O_CREAT, 0);
	CHECK(fd >= 0 && write(fd, "z", 1) == 1 && ftruncate(fd, 0) == 0);
}

static void handles_keep_their_rights(void)
{
	CHECK(chmod(".", 0777) == 0);
	mk("f", "xxxx");
	CHECK(chown("f", USER, USER) == 0);
	as_user(USER, truncate_body);
}

static void times_body(void)
{
	struct timespec t[2] = { { 1, 1 }, { 1, 1 } };
	CHECK(utimensat(AT_FDCWD, "f", NULL, 0) == 0);
	CHECK_ERR(utimensat(AT_FDCWD, "f", t, 0), EPERM);
	CHECK_ERR(utimensat(AT_FDCWD, "g", NULL, 0), EACCES);
}

static void writers_may_touch(void)
{
	mk("f", "x");
	mk("g", "x");
	CHECK(chmod("f", 0666) == 0);
	int64_t t = mtime_of("f");
	nap();
	as_user(USER, times_body);
	CHECK(mtime_of("f") > t);
}

static void renaming_moves_the_ctime(void)
{
	mk("a", "x");
	CHECK(link("a", "b") == 0);
	struct stat s = st_of("a");
	nap();
	CHECK(unlink("b") == 0);
	struct stat n = st_of("a");
	CHECK(n.st_ctim.tv_sec > s.st_ctim.tv_sec ||
	      n.st_ctim.tv_nsec != s.st_ctim.tv_nsec);
	CHECK(n.st_nlink == 1);
	nap();
	CHECK(rename("a", "c") == 0);
	s = st_of("c");
	CHECK(n.st_ctim.tv_sec != s.st_ctim.tv_sec ||
	      n.st_ctim.tv_nsec != s.st_ctim.tv_nsec);
	drop();
	n = st_of("c");
	CHECK(n.st_ctim.tv_sec == s.st_ctim.tv_sec &&
	      n.st_ctim.tv_nsec == s.st_ctim.tv_nsec);
}

static void blocks_are_seen_after_fdatasync(void)
{
	static char buf[1 << 20];
	int fd = rw("f");
	CHECK(st_of("f").st_blocks == 0);
	CHECK(write(fd, buf, sizeof(buf)) == sizeof(buf));
	CHECK(fdatasync(fd) == 0);
	for (int i = 0; i < 100 && st_of("f").st_blocks < 2048; i++)
		nap();
	CHECK(st_of("f").st_blocks >= 2048);
}

static void writing_leaves_the_atime(void)
{
	static char buf[8192];
	int fd = rw("f");
	CHECK(write(fd, buf, sizeof(buf)) == sizeof(buf));
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	drop();
	struct timespec a = st_of("f").st_atim;
	nap();
	fd = open("f", O_WRONLY); /* a part of a page: the kernel reads it */
	CHECK(pwrite(fd, "x", 1, 100) == 1);
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	drop();
	struct timespec b = st_of("f").st_atim;
	CHECK(a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec);
}

/* What was told of a file stays, also when the kernel has forgotten it. */
static void allocations_ctime_stays(void)
{
	enum { COUNT = 24, SIZE = 16 << 20 };
	struct timespec was[COUNT];
	char name[16];
	for (int i = 0; i < COUNT; i++) {
		int mode = i % 2 ? FALLOC_FL_KEEP_SIZE : 0;
		snprintf(name, sizeof(name), "f%d", i);
		int fd = rw(name);
		CHECK(write(fd, "x", 1) == 1 && fsync(fd) == 0);
		CHECK(fallocate(fd, mode, 0, SIZE) == 0 && close(fd) == 0);
		was[i] = st_of(name).st_ctim;
	}
	for (int round = 0; round < 60; round++) {
		drop();
		nap();
		for (int i = 0; i < COUNT; i++) {
			snprintf(name, sizeof(name), "f%d", i);
			struct timespec t = st_of(name).st_ctim;
			CHECK(t.tv_sec == was[i].tv_sec &&
			      t.tv_nsec == was[i].tv_nsec);
		}
	}
}

const struct posix_case posix_held[] = {
	{ "O_TMPFILE takes the umask", tmpfiles_take_the_umask, false },
	{ "chown of neither owner nor group clears set-id bits, of files alone",
	  chown_of_nothing_clears_setid, true },
	{ "chown of neither owner nor group takes no outsider's set-id bits",
	  outsiders_chown_nothing, true },
	{ "a user namespace of one's own gives no rights over files",
	  own_namespaces_give_no_rights, true },
	{ "times that were set outlast fsync and close of what was written",
	  set_times_last, true },
	{ "a truncation to the size there is moves the mtime",
	  truncation_to_its_size_moves_the_mtime, false },
	{ "SEEK_DATA sees what was stored into a mapping",
	  seek_sees_mapped_stores, false },
	{ "RWF_NOAPPEND writes where it is told",
	  noappend_writes_where_it_is_told, true },
	{ "a directory opens by its handle after the caches were dropped",
	  directories_open_by_handle, true },
	{ "extended attributes have their limits", xattr_limits, false },
	{ "handles keep their rights when the mode goes",
	  handles_keep_their_rights, true },
	{ "who may write may touch, but not set times", writers_may_touch,
	  true },
	{ "unlink and rename move the ctime, and it stays",
	  renaming_moves_the_ctime, true },
	{ "blocks are seen soon after fdatasync",
	  blocks_are_seen_after_fdatasync, false },
	{ "the ctime that an allocation gave stays", allocations_ctime_stays,
	  true },
	{ "writing a part of a page leaves the atime",
	  writing_leaves_the_atime, true },
	{ NULL, NULL, false }
};
