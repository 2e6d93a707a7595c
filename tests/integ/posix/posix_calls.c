/* Facts about single calls, as the public suites of the Linux system calls
 * check them: what is refused, and what an answer may not leave out.
 */
#include "posix.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define USER 12345u

static void copy_file(const char *from, const char *to)
{
	char buf[65536];
	ssize_t len;
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	CHECK(in >= 0 && out >= 0);
	while ((len = read(in, buf, sizeof(buf))) > 0)
		CHECK(write(out, buf, (size_t)len) == len);
	CHECK(len == 0 && close(in) == 0 && close(out) == 0);
}

static void running_programs_cannot_be_changed(void)
{
	int fds[2], status;
	char c;
	copy_file("/bin/sleep", "prog");
	off_t size = st_of("prog").st_size;
	CHECK(pipe2(fds, O_CLOEXEC) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		execl("./prog", "prog", "60", (char *)NULL);
		_exit(99);
	}
	CHECK(pid > 0 && close(fds[1]) == 0);
	CHECK(read(fds[0], &c, 1) == 0); /* it runs: the pipe is closed */
	CHECK_ERR(open("prog", O_WRONLY), ETXTBSY);
	CHECK_ERR(open("prog", O_RDWR), ETXTBSY);
	CHECK_ERR(open("prog", O_WRONLY | O_TRUNC), ETXTBSY);
	CHECK_ERR(open("prog", O_RDONLY | O_TRUNC), ETXTBSY);
	CHECK_ERR(truncate("prog", 0), ETXTBSY);
	CHECK(st_of("prog").st_size == size);
	CHECK(waitpid(pid, &status, WNOHANG) == 0);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(open("prog", O_RDONLY | O_TRUNC) >= 0);
	CHECK(st_of("prog").st_size == 0);
}

static void seek_sees_what_is_not_written_back(void)
{
	char buf[4096] = { 1 };
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	int reader = open("f", O_RDONLY);
	CHECK(fd >= 0 && reader >= 0);
	for (off_t at = 1 << 20; at < 9 << 20; at += 4 << 20) {
		CHECK(pwrite(fd, buf, sizeof(buf), at) == sizeof(buf));
		CHECK(lseek(reader, at - 4096, SEEK_DATA) == at);
		CHECK(lseek(fd, at, SEEK_HOLE) == at + 4096);
	}
	CHECK(lseek(fd, 0, SEEK_DATA) == 1 << 20);
	CHECK(pwrite(fd, buf, sizeof(buf), 8192) == sizeof(buf));
	CHECK(lseek(reader, 0, SEEK_DATA) == 8192);
	CHECK_ERR(lseek(fd, 9 << 20, SEEK_DATA), ENXIO);
	CHECK(ftruncate(fd, 10 << 20) == 0);
	CHECK(lseek(fd, 9 << 20, SEEK_HOLE) == 9 << 20);
}

/* A working directory and an O_PATH handle are no open files: the file system
 * is not told of them, and must not forget what they show. */
static void deleted_files_are_still_described(void)
{
	char path[64];
	struct stat st;
	mk("f", "x");
	CHECK(mkdir("d", 0755) == 0);
	int top = open(".", O_RDONLY | O_DIRECTORY);
	int fd = open("f", O_PATH);
	CHECK(chmod("f", 0600) == 0 && chdir("d") == 0);
	CHECK(unlink("../f") == 0 && rmdir("../d") == 0);
	nanosleep(&(struct timespec){ 0, 400000000 }, NULL);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK((st.st_mode & 07777) == 0600);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(chmod(path, 0640) == 0 && fstat(fd, &st) == 0);
	CHECK((st.st_mode & 07777) == 0640);
	CHECK(stat(".", &st) == 0 && st.st_nlink == 0);
	CHECK(chmod(".", 0700) == 0 && utimensat(AT_FDCWD, ".", NULL, 0) == 0);
	CHECK(stat(".", &st) == 0 && (st.st_mode & 07777) == 0700);
	CHECK_ERR(mkdir("x", 0755), ENOENT);
	CHECK(syncfs(top) == 0);
	CHECK(fchdir(top) == 0);
}

static void mapped_stores_move_the_mtime(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0 && ftruncate(fd, 8192) == 0 && fsync(fd) == 0);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	struct stat a = st_of("f");
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	p[5000] = 'x';
	CHECK(msync(p, 8192, MS_SYNC) == 0);
	struct stat b = st_of("f");
	CHECK(b.st_mtim.tv_sec != a.st_mtim.tv_sec ||
	      b.st_mtim.tv_nsec != a.st_mtim.tv_nsec);
	CHECK(b.st_ctim.tv_sec != a.st_ctim.tv_sec ||
	      b.st_ctim.tv_nsec != a.st_ctim.tv_nsec);
}

static void list_body(void)
{
	char buf[64];
	CHECK(listxattr("f", NULL, 0) == 7);
	CHECK(listxattr("f", buf, sizeof(buf)) == 7 && !strcmp(buf, "user.a"));
	CHECK_ERR(getxattr("f", "trusted.t", buf, sizeof(buf)), ENODATA);
}

static void trusted_names_are_roots(void)
{
	char buf[64];
	mk("f", "x");
	CHECK(setxattr("f", "trusted.t", "1", 1, 0) == 0);
	CHECK(setxattr("f", "user.a", "1", 1, 0) == 0);
	CHECK(listxattr("f", buf, sizeof(buf)) == 17);
	as_user(USER, list_body);
}

static void xattr_names_are_checked(void)
{
	char buf[8];
	mk("f", "x");
	for (int round = 0; round < 2; round++) { /* without and with xattrs */
		CHECK_ERR(getxattr("f", "user.", buf, 8), EINVAL);
		CHECK_ERR(getxattr("f", "nonsense.a", buf, 8), EOPNOTSUPP);
		CHECK_ERR(removexattr("f", "user."), EINVAL);
		CHECK_ERR(removexattr("f", "nonsense.a"), EOPNOTSUPP);
		CHECK(removexattr("f", "system.posix_acl_access") == 0);
		CHECK(setxattr("f", "user.a", "1", 1, 0) == 0);
	}
	CHECK(removexattr(".", "system.posix_acl_default") == 0);
}

static void sgid_write(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
	CHECK((st_of("f").st_mode & 07777) == 0666);
}

static void sgid_truncate(void)
{
	CHECK(truncate("f", 100) == 0);
	CHECK((st_of("f").st_mode & 07777) == 0666);
}

static void sgid_fallocate(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && fallocate(fd, 0, 0, 8192) == 0 && close(fd) == 0);
	CHECK((st_of("f").st_mode & 07777) == 0666);
}

static void sgid_chown(void)
{
	CHECK(chown("g", USER, (gid_t)-1) == 0);
	CHECK((st_of("g").st_mode & 07777) == 0666);
}

static void sgid_insider(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
	CHECK((st_of("f").st_mode & 07777) == 02666);
}

/* The rule since Linux 6.2; the group may not execute the file here. */
static void outsiders_clear_setgid_everywhere(void)
{
	static void (*const bodies[])(void) = { sgid_write, sgid_truncate,
						sgid_fallocate };
	CHECK(chmod(".", 0755) == 0);
	mk("f", "x");
	for (int i = 0; i < 3; i++) {
		CHECK(chmod("f", 06666) == 0);
		as_user(USER, bodies[i]);
	}
	mk("g", "x");
	CHECK(chown("g", USER, 77) == 0 && chmod("g", 06666) == 0);
	as_user(USER, sgid_chown);
	CHECK(chown("f", 0, USER) == 0 && chmod("f", 06666) == 0);
	as_user(USER, sgid_insider);
}

static void far_times_are_the_nearest(void)
{
	static const time_t far[] = { 10000000000, 15032385535,
				      9223372037, INT64_MAX / 2 };
	mk("f", "x");
	for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++) {
		struct timespec t[2] = { { far[i], 5 }, { far[i], 7 } };
		CHECK(utimensat(AT_FDCWD, "f", t, 0) == 0);
		struct stat st = st_of("f");
		CHECK(st.st_atim.tv_sec > 9223372000);
		CHECK(st.st_mtim.tv_sec > 9223372000);
	}
}

static void birth_times_stay(void)
{
	struct statx a, b;
	struct timespec old[2] = { { 1, 2 }, { 3, 4 } };
	mk("f", "x");
	CHECK(statx(AT_FDCWD, "f", 0, STATX_BTIME, &a) == 0);
	CHECK(a.stx_mask & STATX_BTIME);
	CHECK(llabs(a.stx_btime.tv_sec - time(NULL)) < 100);
	nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	mk("f", "longer");
	CHECK(rename("f", "g") == 0 && chmod("g", 0600) == 0);
	CHECK(utimensat(AT_FDCWD, "g", old, 0) == 0);
	CHECK(statx(AT_FDCWD, "g", 0, STATX_BASIC_STATS | STATX_BTIME, &b) ==
	      0);
	CHECK(a.stx_btime.tv_sec == b.stx_btime.tv_sec &&
	      a.stx_btime.tv_nsec == b.stx_btime.tv_nsec);
	CHECK(b.stx_size == 6 && b.stx_ino == a.stx_ino);
	CHECK(b.stx_mtime.tv_sec == 3 && b.stx_mode == (S_IFREG | 0600));
}

static void dots_are(const char *dir, ino_t self, ino_t parent)
{
	struct dirent *e;
	int seen = 0;
	DIR *d = opendir(dir);
	CHECK(d);
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0)
			seen += e->d_ino == self;
		if (strcmp(e->d_name, "..") == 0)
			seen += e->d_ino == parent;
	}
	CHECK(seen == 2 && closedir(d) == 0);
}

static void dots_have_their_numbers(void)
{
	CHECK(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0);
	CHECK(mkdir("a/c", 0755) == 0 && rename("a/c", "c") == 0);
	ino_t top = st_of(".").st_ino, a = st_of("a").st_ino;
	dots_are("a", a, top);
	dots_are("a/b", st_of("a/b").st_ino, a);
	dots_are("c", st_of("c").st_ino, top);
}

/* Reads @times pages of at most 128 names; counts how often @name is there. */
static int listed(int fd, const char *name, int times)
{
	char page[4096];
	int seen = 0;
	long len;
	while (times-- > 0 &&
	       (len = getdents64(fd, page, sizeof(page))) > 0)
		for (long at = 0; at < len;) {
			/* d_ino, d_off, d_reclen, d_type, d_name */
			unsigned short step;
			memcpy(&step, page + at + 16, sizeof(step));
			seen += strcmp(page + at + 19, name) == 0;
			at += step;
		}
	return seen;
}

/* One listing is under way, a name goes, another begins and the first ends:
 * what is cached of the first is not for the second. */
static void listings_show_nothing_that_went_before(void)
{
	enum { COUNT = 1000 };
	char name[32], gone[256] = "";
	struct dirent *e;
	int first, second, seen, at = 0;
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		mk(name, "");
	}
	DIR *d = opendir(".");
	CHECK(d);
	while ((e = readdir(d)) && at < COUNT / 3)
		at += e->d_name[0] == 'f';
	CHECK(e && snprintf(gone, sizeof(gone), "%s", e->d_name) > 0);
	CHECK(closedir(d) == 0);
	mk("new", "");
	CHECK(unlink("new") == 0); /* nothing that is cached holds */
	first = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(listed(first, gone, 5) == 1 && unlink(gone) == 0);
	second = open(".", O_RDONLY | O_DIRECTORY);
	seen = listed(second, gone, 1);
	(void)listed(first, gone, INT_MAX);
	seen += listed(second, gone, INT_MAX);
	CHECK(seen == 0);
	CHECK(close(first) == 0 && close(second) == 0);
}

const struct posix_case posix_calls[] = {
	{ "a running program cannot be written or truncated",
	  running_programs_cannot_be_changed, false },
	{ "SEEK_DATA and SEEK_HOLE see what is not written back",
	  seek_sees_what_is_not_written_back, false },
	{ "deleted files are described to those who hold them",
	  deleted_files_are_still_described, false },
	{ "a store into a mapping moves mtime and ctime",
	  mapped_stores_move_the_mtime, false },
	{ "trusted attributes are listed for root alone",
	  trusted_names_are_roots, true },
	{ "names of extended attributes are checked",
	  xattr_names_are_checked, false },
	{ "outsiders clear set-gid also where the group may not execute",
	  outsiders_clear_setgid_everywhere, true },
	{ "times too far away become the nearest that is kept",
	  far_times_are_the_nearest, false },
	{ "statx tells a birth time that stays", birth_times_stay, false },
	{ "a listing tells the numbers of . and ..",
	  dots_have_their_numbers, false },
	{ "a listing shows no name that went before it began",
	  listings_show_nothing_that_went_before, false },
	{ NULL, NULL, false }
};
