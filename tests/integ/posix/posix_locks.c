/* Facts about locks: fcntl, OFD, flock. */
#include "posix.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

static int lk(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET,
			    .l_start = start, .l_len = len };
	return fcntl(fd, cmd, &fl);
}

/* Runs @fn in a child; true when it exits with 0. */
static bool child(void (*fn)(void))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		fn();
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

static int open_f(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	return fd;
}

static void conflict_body(void)
{
	int fd = open_f();
	CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, 50, 1), EAGAIN);
	CHECK_ERR(lk(fd, F_SETLK, F_RDLCK, 50, 1), EAGAIN);
	CHECK(lk(fd, F_SETLK, F_WRLCK, 100, 1) == 0);
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET,
			    .l_start = 0, .l_len = 0 };
	CHECK(fcntl(fd, F_GETLK, &fl) == 0);
	CHECK(fl.l_type == F_WRLCK && fl.l_start == 0 && fl.l_len == 100);
	CHECK(fl.l_pid == getppid());
}

static void posix_locks_conflict(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 100) == 0);
	CHECK(child(conflict_body));
	CHECK(lk(fd, F_SETLK, F_UNLCK, 40, 20) == 0); /* splits */
	struct flock fl = { .l_type = F_WRLCK };
	CHECK(fcntl(fd, F_GETLK, &fl) == 0 && fl.l_type == F_UNLCK);
}

static void closed_body(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
}

static void close_drops_posix_locks(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
	close(open_f()); /* any handle of the file */
	CHECK(child(closed_body));
}

static void last_body(void)
{
	int fd = open_f();
	CHECK_ERR(lk(fd, F_SETLK, F_WRLCK, INT64_MAX, 1), EAGAIN);
	CHECK(lk(fd, F_SETLK, F_WRLCK, INT64_MAX - 1, 1) == 0);
}

static void the_last_byte_locks(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, INT64_MAX, 1) == 0);
	CHECK(child(last_body));
}

static void wait_body(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLKW, F_WRLCK, 0, 10) == 0);
	CHECK(access("released", F_OK) == 0);
}

static void waiting_gets_the_lock(void)
{
	int fd = open_f(), status;
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 10) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		wait_body();
		_exit(0);
	}
	nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
	mk("released", "");
	CHECK(lk(fd, F_SETLK, F_UNLCK, 0, 10) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void signal_body(void)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	int fd = open_f();
	sigaction(SIGALRM, &sa, NULL);
	alarm(1);
	CHECK_ERR(lk(fd, F_SETLKW, F_WRLCK, 0, 10), EINTR);
	alarm(1);
	CHECK_ERR(flock(open_f(), LOCK_EX), EINTR);
}

static void a_signal_ends_the_wait(void)
{
	int fd = open_f(), fd2 = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 10) == 0);
	CHECK(flock(fd2, LOCK_EX) == 0);
	CHECK(child(signal_body));
}

static void killed_waiter_goes(void)
{
	int fd = open_f(), status;
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 10) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		wait_body();
		_exit(0);
	}
	nanosleep(&(struct timespec){ 0, 100000000 }, NULL);
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
	CHECK(lk(fd, F_SETLK, F_UNLCK, 0, 10) == 0);
	CHECK(child(closed_body)); /* the dead waiter did not get it */
}

static void deadlock_body(void)
{
	int fd = open_f();
	CHECK(lk(fd, F_SETLK, F_WRLCK, 20, 10) == 0);
	mk("ready", "");
	if (lk(fd, F_SETLKW, F_WRLCK, 0, 10) != 0)
		CHECK(errno == EDEADLK);
}

static void deadlocks_are_found(void)
{
	int fd = open_f(), status, err = 0;
	CHECK(lk(fd, F_SETLK, F_WRLCK, 0, 10) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		deadlock_body();
		_exit(0);
	}
	while (access("ready", F_OK))
		nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
	nanosleep(&(struct timespec){ 0, 200000000 }, NULL);
	if (lk(fd, F_SETLKW, F_WRLCK, 20, 10) != 0)
		err = errno;
	CHECK(err == EDEADLK);
	CHECK(lk(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void ofd_locks_belong_to_the_handle(void)
{
	int a = open_f(), b = open_f();
	CHECK(lk(a, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
	CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 0, 10), EAGAIN);
	int c = dup(a);
	close(a);
	CHECK_ERR(lk(b, F_OFD_SETLK, F_WRLCK, 0, 10), EAGAIN);
	close(c);
	CHECK(lk(b, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
	CHECK_ERR(lk(open_f(), F_SETLK, F_WRLCK, 0, 10), EAGAIN);
}

/* Linux 6.5 and later. */
static void ofd_getlk_of_unlock_tells_own_locks(void)
{
	int a = open_f(), b = open_f();
	struct flock fl = { .l_type = F_UNLCK, .l_len = 100 };
	CHECK(lk(b, F_OFD_SETLK, F_WRLCK, 40, 10) == 0);
	if (fcntl(a, F_OFD_GETLK, &fl) && errno == EINVAL)
		posix_skip("the kernel does not ask for own locks");
	CHECK(fl.l_type == F_UNLCK);
	CHECK(lk(a, F_OFD_SETLK, F_RDLCK, 20, 10) == 0);
	fl = (struct flock){ .l_type = F_UNLCK, .l_len = 100 };
	CHECK(fcntl(a, F_OFD_GETLK, &fl) == 0);
	CHECK(fl.l_type == F_RDLCK && fl.l_start == 20 && fl.l_len == 10);
	CHECK(fl.l_pid == -1);
}

static void flock_is_per_handle(void)
{
	int a = open_f(), b = open_f();
	CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH) == 0);
	CHECK_ERR(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(flock(b, LOCK_UN) == 0);
	CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
	CHECK_ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	/* fcntl and flock do not see each other */
	CHECK(lk(b, F_SETLK, F_WRLCK, 0, 0) == 0);
	close(a);
	CHECK(flock(b, LOCK_EX | LOCK_NB) == 0);
}

static void read_locks_need_read_handles(void)
{
	int w = open("f", O_WRONLY | O_CREAT, 0644);
	int r = open("f", O_RDONLY);
	CHECK_ERR(lk(w, F_SETLK, F_RDLCK, 0, 1), EBADF);
	CHECK_ERR(lk(r, F_SETLK, F_WRLCK, 0, 1), EBADF);
}

/* RELEASE, which the kernel does not wait for, must not be overtaken. */
static void closing_drops_locks_for_who_comes_next(void)
{
	for (int i = 0; i < 1000; i++) {
		int first = open_f(), next = open_f();
		if (i % 2)
			CHECK(lk(first, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
		else
			CHECK(flock(first, LOCK_EX | LOCK_NB) == 0);
		close(first);
		if (i % 2)
			CHECK(lk(next, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
		else
			CHECK(flock(next, LOCK_EX | LOCK_NB) == 0);
		close(next);
	}
}

/* One handle of it was closed: the lock stays, and who may not wait is told
 * soon. */
static void a_duplicate_keeps_the_lock(void)
{
	int fd = open_f(), next = open_f();
	CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
	close(dup(fd));
	CHECK_ERR(flock(next, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(lk(fd, F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
	close(dup(fd));
	CHECK_ERR(lk(next, F_OFD_SETLK, F_WRLCK, 0, 0), EAGAIN);
}

const struct posix_case posix_locks[] = {
	{ "fcntl locks conflict, split and are told by F_GETLK",
	  posix_locks_conflict, false },
	{ "closing any handle drops the process's fcntl locks",
	  close_drops_posix_locks, false },
	{ "the last byte of a 64-bit offset can be locked",
	  the_last_byte_locks, false },
	{ "a waiting lock is granted on release", waiting_gets_the_lock,
	  false },
	{ "a signal ends a waiting lock", a_signal_ends_the_wait, false },
	{ "a killed waiter leaves no lock", killed_waiter_goes, false },
	{ "a deadlock is EDEADLK", deadlocks_are_found, false },
	{ "OFD locks belong to the open file", ofd_locks_belong_to_the_handle,
	  false },
	{ "F_OFD_GETLK with F_UNLCK tells the handle's own locks",
	  ofd_getlk_of_unlock_tells_own_locks, false },
	{ "flock belongs to the open file and is not fcntl",
	  flock_is_per_handle, false },
	{ "closing a handle drops its OFD lock or flock for who comes next",
	  closing_drops_locks_for_who_comes_next, false },
	{ "closing a duplicate leaves its flock and OFD lock",
	  a_duplicate_keeps_the_lock, false },
	{ "a lock needs a handle of its kind", read_locks_need_read_handles,
	  false },
	{ NULL, NULL, false }
};
