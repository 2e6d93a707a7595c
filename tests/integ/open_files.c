/* Very many files open at once.
 *
 *	open_files DIR COUNT PROCESSES
 *
 * Each process makes its share of COUNT files in a directory of its own, a
 * stamp in each, and keeps all open. Prints "open COUNT" and waits for a line
 * on stdin; then stamps are read back, every second file is removed while open
 * and read once more, all are closed, the rest is removed. Prints "done".
 * Status 1: something was wrong, said on stderr; 77: not allowed that many.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 64
#define CHECK_EVERY 8 /* even: of the removed and of the others */

static int count;

static bool wrong(const char *what, int i)
{
	fprintf(stderr, "open_files: process %d: %s %d: %s\n", (int)getpid(),
		what, i, strerror(errno));
	return false;
}

static bool holds(int fd, int i)
{
	int stamp = -1;

	errno = 0;
	return pread(fd, &stamp, sizeof(stamp), 0) == sizeof(stamp) &&
	       stamp == i;
}

static bool open_all(int dir, int *fds)
{
	char name[16];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		fds[i] = openat(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fds[i] < 0)
			return wrong("create", i);
		if (write(fds[i], &i, sizeof(i)) != sizeof(i))
			return wrong("write", i);
	}
	return true;
}

static bool end_all(int dir, const int *fds)
{
	char name[16];

	for (int i = 0; i < count; i++) {
		/* Each read is a trip: some must do. */
		if (i % CHECK_EVERY < 2 && !holds(fds[i], i))
			return wrong("stamp of", i);
		if (i % 2)
			continue;
		snprintf(name, sizeof(name), "f%d", i);
		if (unlinkat(dir, name, 0))
			return wrong("unlink of open", i);
	}
	for (int i = 0; i < count; i++) {
		if (i % CHECK_EVERY == 0 && !holds(fds[i], i))
			return wrong("stamp of unlinked", i);
		if (close(fds[i]))
			return wrong("close", i);
		snprintf(name, sizeof(name), "f%d", i);
		if (i % 2 && unlinkat(dir, name, 0))
			return wrong("unlink", i);
	}
	return true;
}

/* @up: told when all are open; @go: ends when it may go on. */
static int child(const char *top, int nr, int up, int go)
{
	int *fds = calloc((size_t)count, sizeof(*fds)), dir;
	char path[512], c = 1;

	snprintf(path, sizeof(path), "%s/p%d", top, nr);
	dir = mkdir(path, 0700) ? -1 : open(path, O_RDONLY | O_DIRECTORY);
	if (!fds || dir < 0)
		return !wrong(path, nr);
	if (!open_all(dir, fds) || write(up, &c, 1) != 1)
		return 1;
	if (read(go, &c, 1) < 0 || !end_all(dir, fds))
		return 1;
	return rmdir(path) ? !wrong(path, nr) : 0;
}

int main(int argc, char **argv)
{
	int processes = argc == 4 ? atoi(argv[3]) : 0, up[2], go[2], bad = 0;
	struct rlimit r;
	char line[16], c;

	if (processes < 1 || processes > PROCESSES_MAX) {
		fprintf(stderr, "usage: open_files DIR COUNT PROCESSES\n");
		return 2;
	}
	count = atoi(argv[2]) / processes;
	if (getrlimit(RLIMIT_NOFILE, &r))
		return 1;
	r.rlim_cur = (rlim_t)count + 64;
	if (r.rlim_max < r.rlim_cur)
		r.rlim_max = r.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &r)) {
		perror("RLIMIT_NOFILE");
		return 77;
	}
	if (pipe(up) || pipe(go))
		return 1;
	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();
		if (pid < 0)
			return 1;
		if (pid == 0) {
			close(up[0]);
			close(go[1]);
			_exit(child(argv[1], i, up[1], go[0]));
		}
	}
	close(up[1]);
	for (int i = 0; i < processes; i++)
		if (read(up[0], &c, 1) != 1)
			bad = 1; /* its end says so, too */
	printf("open %d\n", count * processes);
	fflush(stdout);
	if (!bad && !fgets(line, sizeof(line), stdin))
		bad = 1;
	close(go[1]); /* all may go on */
	for (int i = 0, status; i < processes; i++)
		if (wait(&status) < 0 || status != 0)
			bad = 1;
	if (!bad)
		printf("done\n");
	return bad;
}
