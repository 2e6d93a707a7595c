/* Runs the facts of posix_*.c on a directory and prints TAP.
 *
 * usage: posix [-l] DIR [PATTERN]
 *
 * $LOGS: each case's directory is a log directory of hailfs, on a mount with
 * writeback or nowriteback, as it says.
 */
#include "posix.h"

#include <grp.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/xattr.h>

void posix_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "# %s:%d: %s (errno %d: %s)\n", file, line, what, errno,
		strerror(errno));
	_exit(1);
}

void posix_skip(const char *why)
{
	fprintf(stderr, "# skipped: %s\n", why);
	_exit(77);
}

void mk(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(close(fd) == 0);
}

bool holds(const char *name, const char *text)
{
	char buf[4096];
	int fd = open(name, O_RDONLY);
	if (fd < 0)
		return false;
	ssize_t len = read(fd, buf, sizeof(buf));
	close(fd);
	return len == (ssize_t)strlen(text) &&
	       memcmp(buf, text, (size_t)len) == 0;
}

struct stat st_of(const char *name)
{
	struct stat st;
	CHECK(lstat(name, &st) == 0);
	return st;
}

void as_user(unsigned id, void (*fn)(void))
{
	pid_t pid = fork();
	int status;
	if (pid == 0) {
		CHECK(setgroups(0, NULL) == 0);
		CHECK(setresgid(id, id, id) == 0);
		CHECK(setresuid(id, id, id) == 0);
		fn();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		_exit(77);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void pattern(unsigned char *buf, size_t len, uint64_t off)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t x = (off + i) / 8 * 0x9e3779b97f4a7c15u;
		buf[i] = (unsigned char)(x >> (8 * ((off + i) % 8)));
	}
}

static int run_case(const char *dir, const struct posix_case *c, int number)
{
	char path[512], cmd[600];
	int status;
	snprintf(path, sizeof(path), "%s/case-%d", dir, number);
	if (c->root && geteuid() != 0)
		return 77;
	if (mkdir(path, 0755) || chmod(path, 0755))
		posix_fail(__FILE__, __LINE__, path);
	if (getenv("LOGS") && setxattr(path, "user.hailfs.log", "", 0, 0))
		posix_fail(__FILE__, __LINE__, path);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		umask(022);
		CHECK(chdir(path) == 0);
		c->run();
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", path);
	if (system(cmd))
		return 1;
	if (WIFSIGNALED(status))
		fprintf(stderr, "# signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	const struct posix_case *groups[] = { posix_names, posix_attrs,
					      posix_data, posix_locks,
					      posix_calls, posix_cached,
					      posix_held };
	int number = 0, failed = 0, passed = 0, skipped = 0;
	bool list = argc > 1 && strcmp(argv[1], "-l") == 0;
	if (argc < 2) {
		fprintf(stderr, "usage: posix [-l] DIR [PATTERN]\n");
		return 2;
	}
	const char *dir = argv[list ? 2 : 1];
	const char *only = argc > (list ? 3 : 2) ? argv[list ? 3 : 2] : NULL;
	for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++) {
		for (const struct posix_case *c = groups[g]; c->name; c++) {
			if (only && !strstr(c->name, only))
				continue;
			number++;
			if (list) {
				puts(c->name);
				continue;
			}
			int res = run_case(dir, c, number);
			printf("%s %d - %s%s\n",
			       res == 0 || res == 77 ? "ok" : "not ok", number,
			       c->name, res == 77 ? " # SKIP" : "");
			failed += res != 0 && res != 77;
			skipped += res == 77;
			passed += res == 0;
		}
	}
	if (!list)
		printf("1..%d\n# %d passed, %d failed, %d skipped\n", number,
		       passed, failed, skipped);
	return failed != 0;
}
