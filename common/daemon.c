/* Start and end of a daemon. State is the process's, hence static. */
#include "common/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/diag.h"

#define PIDFILE_TRIES 10
#define PIDFILE_RETRY_US 10000
#define PIDFILE_TRIES_DYING 1000 /* 10 s, as for the data directory */
#define LOCK_NAP_US 20000
/* A wait worth a word. */
#define LOCK_QUIET_US 200000

static int ready_fd = -1;
static int pid_fd = -1;
static char *pid_path, *log_path;
static bool background;

static void raise_files(void)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r); /* keeps the old one */
	}
}

/* The parent's part: waits for the child's word. */
static void noreturn_fn wait_ready(int fd, pid_t child)
{
	char c;
	ssize_t got;
	do
		got = read(fd, &c, 1);
	while (got < 0 && errno == EINTR);
	if (got == 1)
		_exit(0);
	int status = 0;
	waitpid(child, &status, 0);
	_exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) :
							 1);
}

static int go_background(void)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		close(fds[1]);
		wait_ready(fds[0], pid);
	}
	close(fds[0]);
	ready_fd = fds[1];
	setsid();
	if (chdir("/"))
		return -errno;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return -errno;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	close(null);
	return 0;
}

/* The number in pid_fd's file, as text. */
static void read_pidfile(char *text, size_t size)
{
	ssize_t len = pread(pid_fd, text, size - 1, 0);
	text[len > 0 ? len : 0] = 0;
	text[strcspn(text, "\n")] = 0;
}

/* Is who locked pid_fd's file on its way out? The kernel takes the memory of a
 * process, and with it its program, before its locks. */
static bool holder_is_dying(void)
{
	char text[24], path[64], exe[8];
	read_pidfile(text, sizeof(text));
	long pid = strtol(text, NULL, 10);
	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
	return readlink(path, exe, sizeof(exe)) < 0 && errno == ENOENT;
}

/* Opens and locks the pid file. Who asks whether we live (below) holds its lock
 * for a moment, hence the retries; who ends removes the file, so the one we
 * locked must still be the one with this name. Returns 0, or -errno (-EBUSY
 * with pid_fd open: it is locked). */
static int lock_pidfile(const char *path)
{
	struct stat ours, named;
	for (int i = 0;; i++) {
		pid_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (pid_fd < 0)
			return -errno;
		if (flock(pid_fd, LOCK_EX | LOCK_NB) == 0 &&
		    fstat(pid_fd, &ours) == 0 && stat(path, &named) == 0 &&
		    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
			return 0;
		if (i >= PIDFILE_TRIES - 1 &&
		    (i >= PIDFILE_TRIES_DYING || !holder_is_dying()))
			return -EBUSY;
		close(pid_fd);
		usleep(PIDFILE_RETRY_US);
	}
}

static int take_pidfile(const char *program, const char *path)
{
	char text[24];
	int err = lock_pidfile(path);
	if (err && err != -EBUSY) {
		fprintf(stderr, "%s: pid file %s: %s\n", program, path,
			strerror(-err));
		return err;
	}
	if (err) {
		read_pidfile(text, sizeof(text));
		fprintf(stderr, "%s: already running (pid file %s, process "
			"%.20s)\n", program, path, text);
		close(pid_fd);
		pid_fd = -1;
		return -EBUSY;
	}
	int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(pid_fd, 0) || pwrite(pid_fd, text, (size_t)len, 0) != len)
		return -EIO;
	pid_path = strdup(path);
	return 0;
}

int daemon_start(const struct daemon_options *o)
{
	background = !o->foreground;
	raise_files();
	/* Before the change to "/": names may be relative. */
	if (o->log) {
		int fd = open(o->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
			      0644);
		if (fd < 0) {
			fprintf(stderr, "%s: log file %s: %s\n", o->program,
				o->log, strerror(errno));
			return -errno;
		}
		close(fd);
		log_path = realpath(o->log, NULL);
	}
	char *pidfile = NULL;
	if (o->pidfile) {
		int fd = open(o->pidfile, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd >= 0)
			close(fd);
		pidfile = realpath(o->pidfile, NULL);
		if (!pidfile) {
			fprintf(stderr, "%s: pid file %s: %s\n", o->program,
				o->pidfile, strerror(errno));
			return -errno;
		}
	}
	int err = background ? go_background() : 0;
	if (!err && pidfile)
		err = take_pidfile(o->program, pidfile);
	free(pidfile);
	diag_init(o->program, background && !o->log);
	return err;
}

void daemon_ready(void)
{
	if (log_path) {
		int fd = open(log_path,
			      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd >= 0) {
			dup2(fd, STDERR_FILENO);
			close(fd);
		}
	} else if (background) {
		dup2(STDOUT_FILENO, STDERR_FILENO); /* the null device */
	}
	if (ready_fd >= 0) {
		/* A parent that was killed is nobody's problem. */
		(void)!write(ready_fd, "1", 1);
		close(ready_fd);
		ready_fd = -1;
	}
}

int daemon_stop_fd(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL))
		return -EINVAL;
	signal(SIGPIPE, SIG_IGN);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int daemon_lock(int fd, const char *program, const char *dir)
{
	for (unsigned us = 0; flock(fd, LOCK_EX | LOCK_NB); us += LOCK_NAP_US) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (us >= DAEMON_LOCK_WAIT_MS * 1000)
			return -EBUSY;
		if (us == LOCK_QUIET_US)
			fprintf(stderr, "%s: %s is locked by another %s; "
				"waiting up to %u s for its end\n", program,
				dir, program, DAEMON_LOCK_WAIT_MS / 1000);
		usleep(LOCK_NAP_US);
	}
	return 0;
}

int daemon_pid_alive(const char *pidfile)
{
	char text[24] = { 0 };
	int fd = open(pidfile, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int pid = 0;
	if (flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK &&
	    read(fd, text, sizeof(text) - 1) > 0)
		pid = (int)strtol(text, NULL, 10);
	close(fd);
	return pid;
}

void daemon_end(void)
{
	if (pid_path)
		(void)unlink(pid_path); /* a stale file does no harm */
	free(pid_path);
	free(log_path);
	pid_path = log_path = NULL;
	if (pid_fd >= 0)
		close(pid_fd);
	pid_fd = -1;
}

const char *daemon_listen_error(int err)
{
	switch (err) {
	case -EADDRINUSE:
		return "Address already in use; another process listens there, "
		       "this daemon perhaps: stop it, or name another port";
	case -EADDRNOTAVAIL:
		return "this machine does not have that address; correct the "
		       "cluster file, or say --listen";
	case -EHOSTUNREACH:
		return "nobody knows that name; correct the cluster file or "
		       "/etc/hosts, or say --listen";
	case -ENOKEY:
		return "that is for other machines to connect to, and the "
		       "cluster file names no key; see hailctl key new";
	default:
		return strerror(-err);
	}
}
