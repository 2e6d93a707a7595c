#include "tests/lib/blockd_run.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS 20000
#define ARGS_MAX 24

static noreturn_fn void die(const char *what)
{
	fprintf(stderr, "blockd_run: %s: %s\n", what, strerror(errno));
	abort();
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static uint16_t free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		die("port");
	close(fd);
	return ntohs(a.sin_port);
}

static void path_of(const struct blockd_run *x, const char *name, char *path,
		    size_t size)
{
	snprintf(path, size, "%s/%s", x->dir, name);
}

void run_init(struct blockd_run *x)
{
	static const uint64_t sessions[] = { 1 };
	char path[128];
	FILE *f;

	memset(x, 0, sizeof(*x));
	/* On a real disk: a tmpfs tells nothing of O_DIRECT. */
	snprintf(x->dir, sizeof(x->dir), "/var/tmp/blockd_run.XXXXXX");
	if (!mkdtemp(x->dir))
		die("mkdtemp");
	x->metad = fake_metad_new(RUN_CLUSTER_ID);
	fake_metad_set_sessions(x->metad, sessions, 1);
	x->port = free_port();
	path_of(x, "cluster.conf", path, sizeof(path));
	f = fopen(path, "w");
	if (!f)
		die(path);
	fprintf(f, "cluster test\nid %#x\nreplicas 1\n"
		"metad 1 127.0.0.1:%u\nblockd 1 127.0.0.1:%u data=%s/data\n",
		RUN_CLUSTER_ID, fake_metad_port(x->metad), x->port, x->dir);
	if (fclose(f) != 0)
		die(path);
}

void run_fini(struct blockd_run *x)
{
	char *argv[] = { (char *)(uintptr_t)"rm", (char *)(uintptr_t)"-rf",
			 x->dir, NULL };
	pid_t pid;

	if (x->pid)
		run_kill9(x);
	fake_metad_free(x->metad);
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

/* What a container's default profile does. */
static void forbid_io_uring(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { array_count(f), f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		die("seccomp");
}

static void spawn(struct blockd_run *x, const char *const *args)
{
	const char *bin = getenv("BIN") ? getenv("BIN") : "build/bin";
	char program[256], conf[128], log[128];
	const char *argv[ARGS_MAX] = { program, "--cluster", conf, "--id", "1",
				       "--foreground", "--journal", "16m" };
	size_t n = 8;
	int fd;

	snprintf(program, sizeof(program), "%s/hail-blockd", bin);
	path_of(x, "cluster.conf", conf, sizeof(conf));
	path_of(x, "log", log, sizeof(log));
	for (; args && *args && n < ARGS_MAX - 1; args++)
		argv[n++] = *args;
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
	if (x->no_io_uring)
		forbid_io_uring();
	execv(program, (char *const *)(uintptr_t)argv);
	perror(program);
	_exit(127);
}

int run_wait(struct blockd_run *x)
{
	int status;

	if (waitpid(x->pid, &status, 0) < 0)
		die("waitpid");
	x->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int run_to_end(struct blockd_run *x, const char *const *args)
{
	spawn(x, args);
	return run_wait(x);
}

void run_start(struct blockd_run *x, const char *const *args)
{
	unsigned before = fake_metad_registrations(x->metad, NULL);
	struct blk_raw r;
	int status;

	spawn(x, args);
	for (int ms = 0; ms < START_MS; ms += 10) {
		if (waitpid(x->pid, &status, WNOHANG) == x->pid) {
			fprintf(stderr, "blockd_run: hail-blockd ended at "
				"start, see %s/log\n", x->dir);
			abort();
		}
		sleep_ms(10);
		if (fake_metad_registrations(x->metad, NULL) == before ||
		    !raw_connect(&r, x->port, RUN_CLUSTER_ID))
			continue;
		status = raw_hello(&r, WIRE_ROLE_ADMIN, 0, 1, START_MS);
		raw_close(&r);
		if (status == 0)
			return;
	}
	errno = ETIMEDOUT;
	die("start");
}

void run_kill9(struct blockd_run *x)
{
	kill(x->pid, SIGKILL);
	(void)run_wait(x); /* -SIGKILL, as asked */
}

int run_term(struct blockd_run *x)
{
	kill(x->pid, SIGTERM);
	return run_wait(x);
}

bool run_log_has(const struct blockd_run *x, const char *text)
{
	char path[128], line[1024];
	bool found = false;
	FILE *f;

	path_of(x, "log", path, sizeof(path));
	f = fopen(path, "r");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

uint64_t run_anon_bytes(const struct blockd_run *x)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)x->pid);
	f = fopen(path, "r");
	if (!f)
		die(path);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

uint64_t run_cpu_us(const struct blockd_run *x)
{
	char path[320], text[128];
	unsigned long long ns;
	uint64_t sum = 0;
	struct dirent *e;
	FILE *f;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)x->pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat",
			 (int)x->pid, e->d_name);
		f = fopen(path, "r");
		if (f && fgets(text, sizeof(text), f) &&
		    sscanf(text, "%llu", &ns) == 1)
			sum += ns / 1000;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static void say_hello(const struct blockd_run *x, struct blk_raw *r,
		      uint8_t role, uint64_t session, uint64_t incarnation)
{
	int rv;

	if (!raw_connect(r, x->port, RUN_CLUSTER_ID))
		die("connect");
	rv = raw_hello(r, role, session, incarnation, START_MS);
	if (rv < 0) {
		errno = -rv;
		die("HELLO");
	}
}

void run_client(const struct blockd_run *x, struct blk_raw *r,
		uint64_t session, uint64_t incarnation)
{
	say_hello(x, r, WIRE_ROLE_CLIENT, session, incarnation);
}

void run_as(const struct blockd_run *x, struct blk_raw *r, uint8_t role)
{
	say_hello(x, r, role, 0, 1);
}
