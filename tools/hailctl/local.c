/* hailctl local: directory, pid files, starting and stopping programs. */
#include "tools/hailctl/local.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/daemon.h"

static bool make_dir(const char *path)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return true;
	ctl_err("cannot make directory %s: %s", path, strerror(errno));
	return false;
}

/* Names that belong into a cluster's directory: disks may be mounted there
 * before it is made. */
static bool belongs(const char *name)
{
	static const char *const ours[] = { ".", "..", "run", "mnt",
					    "cluster.conf.new", "cluster.key",
					    "lost+found" };
	size_t len = strcspn(name, "0123456789");

	for (size_t i = 0; i < array_count(ours); i++)
		if (strcmp(name, ours[i]) == 0)
			return true;
	return name[len] && !name[len + strspn(name + len, "0123456789")] &&
	       ((len == 5 && memcmp(name, "metad", len) == 0) ||
		(len == 6 && memcmp(name, "blockd", len) == 0));
}

bool local_holds_data(const char *path)
{
	const struct dirent *e;
	DIR *d = opendir(path);
	bool found = false;

	while (d && !found && (e = readdir(d)) != NULL)
		found = strcmp(e->d_name, ".") != 0 &&
			strcmp(e->d_name, "..") != 0 &&
			strcmp(e->d_name, "lost+found") != 0;
	if (d)
		closedir(d);
	return found;
}

/* Who has lost the cluster file wants that one back, not a new cluster over the
 * old one's data. */
static bool nothing_in(const struct local *l, const char *name)
{
	char path[PATH_MAX + 256 + 2];

	snprintf(path, sizeof(path), "%s/%s", l->dir, name);
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	    strcmp(name, "run") == 0 || strcmp(name, "mnt") == 0 ||
	    !local_holds_data(path))
		return true;
	ctl_err("%s holds data, and there is no cluster.conf in %s: put that "
		"file back, or give another directory", path, l->dir);
	return false;
}

/* A new cluster is not made among other things: whose "run" and "mnt" would
 * those be? */
static bool may_begin(const struct local *l)
{
	const struct dirent *e;
	bool ok = true;
	DIR *d;

	if (access(l->conf, F_OK) == 0)
		return true;
	for (const char *s = l->dir; *s; s++) {
		if ((unsigned char)*s >= ' ' && *s != 0x7f)
			continue;
		ctl_err("a cluster file cannot name a directory with control "
			"characters in it: choose another");
		return false;
	}
	d = opendir(l->dir);
	if (!d) {
		ctl_err("%s: %s", l->dir, strerror(errno));
		return false;
	}
	while (ok && (e = readdir(d)) != NULL) {
		ok = belongs(e->d_name);
		if (!ok)
			ctl_err("%s holds '%s' and no cluster: give a new "
				"directory, or an empty one", l->dir,
				e->d_name);
		else
			ok = nothing_in(l, e->d_name);
	}
	closedir(d);
	return ok;
}

bool local_open(struct ctl *c, const char *dir, bool create, struct local *l)
{
	char lock[PATH_MAX + 32];

	memset(l, 0, sizeof(*l));
	l->c = c;
	l->lock_fd = -1;
	if (create && !make_dir(dir))
		return false;
	if (!realpath(dir, l->dir)) {
		if (create)
			ctl_err("%s: %s", dir, strerror(errno));
		else
			ctl_err("%s: %s; make it with 'hailctl local up %s'",
				dir, strerror(errno), dir);
		return false;
	}
	snprintf(l->conf, sizeof(l->conf), "%s/cluster.conf", l->dir);
	snprintf(l->run, sizeof(l->run), "%s/run", l->dir);
	snprintf(l->mnt, sizeof(l->mnt), "%s/mnt", l->dir);
	if (!create)
		return true;
	if (!may_begin(l) || !make_dir(l->run))
		return false;
	snprintf(lock, sizeof(lock), "%s/lock", l->run);
	l->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (l->lock_fd < 0) {
		ctl_err("%s: %s%s", lock, strerror(errno), errno == EACCES ?
			"; do this as the user who made the cluster" : "");
		return false;
	}
	if (flock(l->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		ctl_say(c, "another hailctl works on %s; waiting for it",
			l->dir);
		while (flock(l->lock_fd, LOCK_EX) < 0 && errno == EINTR)
			;
	}
	return true;
}

void local_close(struct local *l)
{
	if (l->lock_fd >= 0)
		close(l->lock_fd);
	l->lock_fd = -1;
}

bool local_load(struct local *l)
{
	if (access(l->conf, F_OK) < 0) {
		ctl_err("%s: there is no cluster in this directory (no "
			"cluster.conf); make one with 'hailctl local up %s'",
			l->dir, l->dir);
		return false;
	}
	return ctl_load(l->c, l->conf);
}

static void proc_fill(struct local *l, struct local_proc *p,
		      enum local_role role, const struct conf_daemon *d)
{
	static const char *const programs[] = { "hail-metad", "hail-blockd",
						"hail-logd", "hailfs" };
	static const char *const words[] = { "metad", "blockd", "logd",
					     "mount" };

	p->role = role;
	p->program = programs[role];
	p->d = d;
	if (d)
		snprintf(p->name, sizeof(p->name), "%s%u", words[role], d->id);
	else
		snprintf(p->name, sizeof(p->name), "%s", words[role]);
	snprintf(p->pidfile, sizeof(p->pidfile), "%s/%s.pid", l->run, p->name);
	snprintf(p->log, sizeof(p->log), "%s/%s.log", l->run, p->name);
	p->pid = local_pid(p);
}

struct local_proc *local_procs(struct local *l, uint32_t *count)
{
	const struct conf *conf = &l->c->conf;
	struct local_proc *v;
	uint32_t n = 0, i;

	v = calloc(conf->metad_count + conf->blockd_count + conf->logd_count +
		   1, sizeof(*v));
	if (!v) {
		ctl_err("out of memory");
		return NULL;
	}
	for (i = 0; i < conf->metad_count; i++)
		proc_fill(l, &v[n++], LOCAL_METAD, &conf->metads[i]);
	for (i = 0; i < conf->blockd_count; i++)
		proc_fill(l, &v[n++], LOCAL_BLOCKD, &conf->blockds[i]);
	for (i = 0; i < conf->logd_count; i++)
		proc_fill(l, &v[n++], LOCAL_LOGD, &conf->logds[i]);
	proc_fill(l, &v[n++], LOCAL_MOUNT, NULL);
	*count = n;
	return v;
}

enum daemon_kind local_kind(const struct local_proc *p)
{
	return p->role == LOCAL_METAD ? DAEMON_METAD :
	       p->role == LOCAL_BLOCKD ? DAEMON_BLOCKD : DAEMON_LOGD;
}

/* Is this process that program? It may have been replaced on disk since. */
static bool runs_program(pid_t pid, const char *program)
{
	char path[64], exe[PATH_MAX + 16];
	size_t len = strlen(program);
	const char *base;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n < 0)
		return errno == EACCES; /* another user's: the lock must do */
	exe[n] = '\0';
	base = strrchr(exe, '/');
	base = base ? base + 1 : exe;
	return strncmp(base, program, len) == 0 &&
	       (base[len] == '\0' || base[len] == ' ');
}

pid_t local_pid(const struct local_proc *p)
{
	int pid = daemon_pid_alive(p->pidfile);

	return pid > 0 && runs_program(pid, p->program) ? pid : 0;
}

static void exec_program(char *const *argv)
{
	char exe[PATH_MAX], path[PATH_MAX * 2];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n > 0) {
		exe[n] = '\0';
		snprintf(path, sizeof(path), "%s/%s", dirname(exe), argv[0]);
		execv(path, argv);
	}
	execvp(argv[0], argv);
	ctl_err("cannot run %s: %s; it is looked for next to hailctl and in "
		"PATH", argv[0], strerror(errno));
}

pid_t local_spawn(char *const *argv)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		ctl_err("cannot start %s: %s", argv[0], strerror(errno));
		return -errno;
	}
	if (pid == 0) {
		exec_program(argv);
		_exit(127);
	}
	return pid;
}

bool local_spawn_wait(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int local_term(const struct local_proc *p)
{
	int fd = pidfd_open(p->pid, 0), err;

	if (fd < 0)
		return -errno;
	/* The number may have gone to somebody else before it was opened. */
	if (local_pid(p) != p->pid) {
		close(fd);
		return -ESRCH;
	}
	if (pidfd_send_signal(fd, SIGTERM, NULL, 0) < 0) {
		err = errno;
		close(fd);
		return -err;
	}
	return fd;
}

bool local_wait_end(int pidfd, int timeout_ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

int local_sync_parent(const char *path)
{
	char dir[PATH_MAX + 64];
	int fd, rv;

	snprintf(dir, sizeof(dir), "%s", path);
	fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Network file systems know no such thing. */
	rv = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
	close(fd);
	return rv;
}
