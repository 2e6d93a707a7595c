#include "tests/lib/child.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MAX 24

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "child: %s: %s\n", what, strerror(errno));
	abort();
}

uint16_t child_port(int *fd)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int one = 1;

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0 ||
	    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(*fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockname(*fd, (struct sockaddr *)&a, &len) < 0)
		die("port");
	return ntohs(a.sin_port);
}

void child_init(struct child *x, const char *name)
{
	const char *base = getenv("TEST_DIR") ? getenv("TEST_DIR") : "/var/tmp";

	memset(x, 0, sizeof(*x));
	snprintf(x->dir, sizeof(x->dir), "%s/%s.XXXXXX", base, name);
	if (!mkdtemp(x->dir))
		die("mkdtemp");
	x->port = child_port(&x->port_fd);
}

void child_fini(struct child *x)
{
	char *argv[] = { (char *)(uintptr_t)"rm", (char *)(uintptr_t)"-rf",
			 x->dir, NULL };
	pid_t pid;

	if (x->pid)
		child_kill9(x);
	close(x->port_fd);
	if (getenv("KEEP")) {
		printf("# kept: %s\n", x->dir);
		return;
	}
	pid = fork();
	if (pid == 0) {
		execvp("rm", argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, NULL, 0) < 0)
		die("rm");
}

FILE *child_conf(const struct child *x)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/cluster.conf", x->dir);
	f = fopen(path, "w");
	if (!f)
		die(path);
	return f;
}

static FILE *open_log(const struct child *x)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/log", x->dir);
	return fopen(path, "r");
}

noreturn_fn void child_die(const struct child *x, const char *what)
{
	char line[2048];
	FILE *f = open_log(x);

	fprintf(stderr, "child: %s; its log:\n", what);
	while (f && fgets(line, sizeof(line), f))
		fputs(line, stderr);
	abort();
}

static void append(const char **argv, size_t *count, const char *const *more)
{
	for (; more && *more && *count < ARGS_MAX - 1; more++)
		argv[(*count)++] = *more;
}

void child_spawn(struct child *x, const char *program,
		 const char *const *options, const char *const *more)
{
	const char *bin = getenv("BIN") ? getenv("BIN") : "build/bin";
	char path[256], conf[128], log[128];
	const char *argv[ARGS_MAX] = { path, "--cluster", conf, "--id", "1",
				       "--foreground" };
	size_t count = 6;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", bin, program);
	snprintf(conf, sizeof(conf), "%s/cluster.conf", x->dir);
	snprintf(log, sizeof(log), "%s/log", x->dir);
	append(argv, &count, options);
	append(argv, &count, more);
	x->pid = fork();
	if (x->pid < 0)
		die("fork");
	if (x->pid > 0)
		return;
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0)
		die(log);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	/* Dies with the test, however that ends. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (x->before_exec)
		x->before_exec();
	execv(path, (char *const *)(uintptr_t)argv);
	perror(path);
	_exit(127);
}

void child_preload(const char *name)
{
	char exe[512], so[600];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe));

	while (len > 0 && exe[len - 1] != '/')
		len--;
	snprintf(so, sizeof(so), "%.*spreload/%s", (int)len, exe, name);
	setenv("LD_PRELOAD", so, 1);
}

bool child_runs(struct child *x)
{
	return waitpid(x->pid, NULL, WNOHANG) == 0;
}

int child_wait(struct child *x)
{
	struct timespec nap = { 0, 2000000 };
	int status, naps = CHILD_END_MS / 2;
	pid_t pid;

	while ((pid = waitpid(x->pid, &status, WNOHANG)) == 0 && naps-- > 0)
		nanosleep(&nap, NULL);
	if (pid < 0)
		die("waitpid");
	if (pid == 0)
		child_die(x, "it does not end");
	x->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
				   128 + WTERMSIG(status);
}

void child_kill9(struct child *x)
{
	if (kill(x->pid, SIGKILL) < 0)
		die("kill");
	(void)child_wait(x); /* killed, as asked */
}

int child_term(struct child *x)
{
	if (kill(x->pid, SIGTERM) < 0)
		die("kill");
	return child_wait(x);
}

bool child_log_has(const struct child *x, const char *text)
{
	char line[2048];
	bool found = false;
	FILE *f = open_log(x);

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

void child_flip(const char *path, off_t off)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t v = 0;

	if (fd < 0 || pread(fd, &v, 1, off) != 1)
		die(path);
	v ^= 0x40;
	if (pwrite(fd, &v, 1, off) != 1)
		die(path);
	close(fd);
}
