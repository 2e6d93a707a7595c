/* Start and end of a daemon, each in a forked process: what its parent
 * returns, and what the pid file proves. */
#include "common/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/hail-test-daemon-XXXXXX";
static char pidfile[64], logfile[64];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(pidfile, sizeof(pidfile), "%s/pid", dir);
	snprintf(logfile, sizeof(logfile), "%s/log", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(pidfile);
	unlink(logfile);
	return rmdir(dir);
}

/* The daemon's life: start, (die | be ready), wait for the signal, end. */
static void noreturn_fn live(bool foreground, int die_with)
{
	struct daemon_options o = { .program = "test", .pidfile = pidfile,
				    .foreground = foreground,
				    .log = logfile };
	struct pollfd pfd = { .events = POLLIN };
	/* An assertion's output would be the parent's to see. */
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	dup2(null, STDERR_FILENO);
	pfd.fd = daemon_stop_fd();
	if (pfd.fd < 0 || daemon_start(&o) < 0)
		_exit(9);
	if (die_with)
		_exit(die_with);
	daemon_ready();
	fprintf(stderr, "I serve\n");
	if (poll(&pfd, 1, 20000) != 1)
		_exit(10);
	daemon_end();
	_exit(0);
}

/* Runs it; returns the exit status of the process that was started. */
static int start(bool foreground, int die_with)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		live(foreground, die_with);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void wait_gone(pid_t pid)
{
	for (int i = 0; i < 2000 && kill(pid, 0) == 0; i++)
		usleep(1000);
}

static void the_parent_returns_when_the_service_is_up(void **state)
{
	char text[32] = { 0 };
	int pid, fd;

	(void)state;
	assert_int_equal(daemon_pid_alive(pidfile), 0);
	assert_int_equal(start(false, 0), 0);
	pid = daemon_pid_alive(pidfile);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, 0), 0);
	/* Another one is refused. */
	assert_int_equal(start(false, 0), 9);
	assert_int_equal(start(true, 0), 9);
	assert_int_equal(daemon_pid_alive(pidfile), pid);
	assert_int_equal(kill(pid, SIGTERM), 0);
	wait_gone(pid);
	assert_int_equal(daemon_pid_alive(pidfile), 0);
	assert_int_equal(access(pidfile, F_OK), -1);
	for (int i = 0; i < 1000 && !text[0]; i++) {
		fd = open(logfile, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_true(read(fd, text, sizeof(text) - 1) >= 0);
		close(fd);
		usleep(1000);
	}
	assert_string_equal(text, "I serve\n");
}

static void a_failed_start_is_the_parents_status(void **state)
{
	(void)state;
	assert_int_equal(start(false, 3), 3);
	/* The lock went with the process; its file proves nothing. */
	assert_int_equal(access(pidfile, F_OK), 0);
	assert_int_equal(daemon_pid_alive(pidfile), 0);
}

static void a_killed_daemon_does_not_block_the_next(void **state)
{
	int pid;

	(void)state;
	assert_int_equal(start(false, 0), 0);
	pid = daemon_pid_alive(pidfile);
	assert_int_equal(kill(pid, SIGKILL), 0);
	wait_gone(pid);
	assert_int_equal(daemon_pid_alive(pidfile), 0);
	assert_int_equal(start(false, 0), 0);
	pid = daemon_pid_alive(pidfile);
	assert_true(pid > 1);
	kill(pid, SIGINT);
	wait_gone(pid);
}

static void asking_does_not_disturb_a_start(void **state)
{
	pid_t asker = fork();
	int status, pid;

	(void)state;
	if (asker == 0)
		for (;;)
			(void)daemon_pid_alive(pidfile);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(start(false, 0), 0);
		while ((pid = daemon_pid_alive(pidfile)) == 0)
			usleep(100);
		kill(pid, SIGTERM);
		wait_gone(pid);
	}
	kill(asker, SIGKILL);
	waitpid(asker, &status, 0);
}

/* What a killed process leaves for a while: a lock that is held, and a number
 * nobody has. A process of ours plays the kernel that has not yet let go. */
static pid_t hold_lock(const char *path, long hold_us)
{
	pid_t dead = fork(), pid;
	int status, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (dead == 0)
		_exit(0);
	assert_int_equal(waitpid(dead, &status, 0), dead);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_true(dprintf(fd, "%d\n", (int)dead) > 0);
	pid = fork();
	if (pid == 0) {
		usleep((useconds_t)hold_us);
		_exit(0);
	}
	close(fd);
	return pid;
}

static void a_dying_daemons_pid_file_is_waited_for(void **state)
{
	pid_t holder = hold_lock(pidfile, 500000);
	int status, pid;

	(void)state;
	assert_int_equal(start(false, 0), 0);
	assert_int_equal(waitpid(holder, &status, 0), holder);
	pid = daemon_pid_alive(pidfile);
	assert_true(pid > 1);
	kill(pid, SIGINT);
	wait_gone(pid);
}

static void a_dying_daemons_data_lock_is_waited_for(void **state)
{
	pid_t holder = hold_lock(logfile, 500000);
	int status, fd = open(logfile, O_RDWR | O_CLOEXEC);
	int fds[2], saved = dup(STDERR_FILENO);
	char text[200] = { 0 };

	(void)state;
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	status = daemon_lock(fd, "test", "/some/dir");
	dup2(saved, STDERR_FILENO);
	assert_int_equal(status, 0);
	assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
	assert_non_null(strstr(text, "/some/dir is locked by another test"));
	assert_int_equal(waitpid(holder, &status, 0), holder);
	close(fd);
	close(fds[0]);
	close(fds[1]);
	close(saved);
}

static void the_file_limit_is_raised(void **state)
{
	struct rlimit r;
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		struct daemon_options o = { .program = "test",
					    .foreground = true };

		getrlimit(RLIMIT_NOFILE, &r);
		r.rlim_cur = 64;
		setrlimit(RLIMIT_NOFILE, &r);
		daemon_start(&o);
		getrlimit(RLIMIT_NOFILE, &r);
		_exit(r.rlim_cur == r.rlim_max ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_parent_returns_when_the_service_is_up),
		cmocka_unit_test(a_failed_start_is_the_parents_status),
		cmocka_unit_test(a_killed_daemon_does_not_block_the_next),
		cmocka_unit_test(asking_does_not_disturb_a_start),
		cmocka_unit_test(a_dying_daemons_pid_file_is_waited_for),
		cmocka_unit_test(a_dying_daemons_data_lock_is_waited_for),
		cmocka_unit_test(the_file_limit_is_raised),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
