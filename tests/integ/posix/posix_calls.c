/* Facts about single calls, as the public suites of the Linux system calls
 * check them: what is refused, and what an answer may not leave out.
 */
#include "posix.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

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

const struct posix_case posix_calls[] = {
	{ "a running program cannot be written or truncated",
	  running_programs_cannot_be_changed, false },
	{ "SEEK_DATA and SEEK_HOLE see what is not written back",
	  seek_sees_what_is_not_written_back, false },
	{ "deleted files are described to those who hold them",
	  deleted_files_are_still_described, false },
	{ NULL, NULL, false }
};
