/* Locks of handles whose RELEASE comes late: the kernel sends it in the
 * background, and takes what comes after it first.
 *
 * usage: late_release DIR BIG BACKGROUND PID...
 *
 * The mount takes BACKGROUND requests in the background, and the block daemons
 * PID... are stopped here: as many direct reads of DIR/BIG keep every RELEASE
 * back. Locks that are taken after the close of an earlier handle must outlive
 * that one's RELEASE.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READS_MAX 64

enum kind { POSIX, OFD, FLOCK, KINDS };
static const char *const names[KINDS] = { "posix", "ofd", "flock" };

/* Tries to be given the kernel's file of the handle just closed. */
#define TRIES 16
static int tries[KINDS]; /* of the file that is locked */

static char **pids;

static void go_on(void)
{
	for (char **p = pids; *p; p++)
		(void)kill(atoi(*p), SIGCONT);
}

_Noreturn static void fail(const char *what, const char *of)
{
	printf("# FAILED: %s %s: %s\n", what, of, strerror(errno));
	go_on();
	exit(1);
}

static bool take(int fd, enum kind kind)
{
	struct flock fl = { .l_type = F_WRLCK };

	if (kind == FLOCK)
		return flock(fd, LOCK_EX | LOCK_NB) == 0;
	return fcntl(fd, kind == OFD ? F_OFD_SETLK : F_SETLK, &fl) == 0;
}

static int open_kind(enum kind kind)
{
	char name[32];
	int fd;

	(void)snprintf(name, sizeof(name), "%s.%d", names[kind], tries[kind]);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		fail("open", name);
	return fd;
}

/* Locks, closes, and locks again by another handle, which stays open. OFD locks
 * and flock belong to the kernel's struct file: the one closed is mostly given
 * out again at once, and is then the same owner. When another program got it,
 * the lock of before is another's until its RELEASE comes, and the next file is
 * tried. */
static void relock(enum kind kind)
{
	for (; tries[kind] < TRIES; tries[kind]++) {
		int fd = open_kind(kind);

		if (!take(fd, kind))
			fail("lock", names[kind]);
		(void)close(fd);
		fd = open_kind(kind);
		if (take(fd, kind))
			return;
		if (kind == POSIX || (errno != EAGAIN && errno != EACCES))
			break;
		(void)close(fd);
	}
	fail("lock again", names[kind]);
}

static bool others_can(enum kind kind)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(take(open_kind(kind), kind) ? 1 : 0);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		fail("fork", names[kind]);
	return WEXITSTATUS(status) != 0;
}

static void read_all(aio_context_t *ctx, int fd, int count)
{
	static struct iocb cb[READS_MAX];
	void *buf;

	if (posix_memalign(&buf, 4096, (size_t)count * 4096) ||
	    syscall(SYS_io_setup, count, ctx))
		fail("io_setup", "");
	for (int i = 0; i < count; i++) {
		struct iocb *p = &cb[i];

		cb[i].aio_fildes = (unsigned)fd;
		cb[i].aio_lio_opcode = IOCB_CMD_PREAD;
		cb[i].aio_buf = (unsigned long)buf + (unsigned long)i * 4096;
		cb[i].aio_nbytes = 4096;
		cb[i].aio_offset = (long long)i * 65536;
		if (syscall(SYS_io_submit, *ctx, 1L, &p) != 1)
			fail("io_submit", "");
	}
}

int main(int argc, char **argv)
{
	struct io_event ev[READS_MAX];
	struct timespec none = { 0, 0 };
	aio_context_t ctx = 0;
	int count, fd;

	if (argc < 5)
		return 2;
	count = atoi(argv[3]);
	pids = argv + 4;
	if (chdir(argv[1]) || count < 1 || count > READS_MAX)
		return 2;
	for (enum kind k = 0; k < KINDS; k++)
		for (tries[k] = TRIES; tries[k]-- > 0;)
			(void)close(open_kind(k));
	for (enum kind k = 0; k < KINDS; k++)
		tries[k] = 0;
	fd = open(argv[2], O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		fail("open", argv[2]);
	for (char **p = pids; *p; p++)
		if (kill(atoi(*p), SIGSTOP))
			fail("stop", *p);
	read_all(&ctx, fd, count);
	for (enum kind k = 0; k < KINDS; k++)
		relock(k);
	if (syscall(SYS_io_getevents, ctx, 0L, (long)count, ev, &none) != 0)
		fail("the reads", "did not wait");
	go_on();
	if (syscall(SYS_io_getevents, ctx, (long)count, (long)count, ev,
		    NULL) != count)
		fail("io_getevents", "");
	for (int i = 0; i < 30; i++, usleep(10000))
		for (enum kind k = 0; k < KINDS; k++)
			if (others_can(k))
				fail("a lock went with an earlier handle:",
				     names[k]);
	return 0;
}
