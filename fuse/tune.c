/* Settings that depend on the machine: FUSE over io_uring or not (measured),
 * read-ahead and write-back share of the mount.
 *
 * The measurement mounts an empty file system of our own twice, over the
 * classic device and over io_uring, in a private mount namespace, and times
 * small writes, each followed by an fsync: the pair that a database's log
 * makes. Which of the two is faster depends on the kernel, the number of
 * cores and how deeply they sleep, so nothing but measuring tells.
 */
#include "fuse/rim.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/diag.h"

#define PROBE_PAIRS 600
#define PROBE_WARM 100
#define PROBE_INO 2

/* ---- the empty file system ---- */
static void probe_attr(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
	st->st_nlink = 1;
}

static void probe_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = PROBE_INO, .attr_timeout = 60,
				      .entry_timeout = 60 };
	(void)parent;
	(void)name;
	probe_attr(PROBE_INO, &e.attr);
	fuse_reply_entry(req, &e);
}

static void probe_getattr(fuse_req_t req, fuse_ino_t ino,
			  struct fuse_file_info *fi)
{
	struct stat st;
	(void)fi;
	probe_attr(ino, &st);
	fuse_reply_attr(req, &st, 60);
}

static void probe_open(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	(void)ino;
	fuse_reply_open(req, fi);
}

static void probe_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
			size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	(void)buf;
	(void)off;
	(void)fi;
	fuse_reply_write(req, size);
}

/* libfuse falls back to the classic device without telling: a measurement that
 * went that way is none. (Each probe is a process of its own.) */
static bool probe_wants_uring;

static void probe_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
			struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fuse_reply_err(req, fuse_req_is_uring(req) == probe_wants_uring ? 0 :
								  EIO);
}

static const struct fuse_lowlevel_ops probe_ops = {
	.lookup = probe_lookup,
	.getattr = probe_getattr,
	.open = probe_open,
	.write = probe_write,
	.fsync = probe_fsync,
};

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* In a child of its own: times the pairs. Nanoseconds a pair, 0: failed. */
static int64_t probe_pairs(const char *dir)
{
	char path[64], buf[128] = { 0 };
	snprintf(path, sizeof(path), "%s/f", dir);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	int64_t start = 0;
	for (int i = 0; i < PROBE_WARM + PROBE_PAIRS; i++) {
		if (i == PROBE_WARM)
			start = now_ns();
		if (pwrite(fd, buf, sizeof(buf), 0) != sizeof(buf) ||
		    fdatasync(fd))
			return 0;
	}
	int64_t ns = (now_ns() - start) / PROBE_PAIRS;
	close(fd);
	return ns;
}

static void probe_serve(struct fuse_session *se)
{
	struct fuse_loop_config *lc = fuse_loop_cfg_create();
	if (!lc)
		return;
	fuse_loop_cfg_set_max_threads(lc, 2);
	fuse_session_loop_mt(se, lc);
	fuse_loop_cfg_destroy(lc);
}

/* Mounts, runs probe_pairs() in a child, unmounts. */
static int64_t probe_mounted(const char *dir, const char *mode)
{
	char *argv[] = { (char *)(uintptr_t)"probe",
			 (char *)(uintptr_t)"-o",
			 (char *)(uintptr_t)mode, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se =
		fuse_session_new(&args, &probe_ops, sizeof(probe_ops), NULL);
	int64_t ns = 0;
	int fds[2];
	probe_wants_uring = strstr(mode, "io_uring") != NULL;
	fuse_opt_free_args(&args);
	if (!se)
		return 0;
	if (fuse_session_mount(se, dir))
		goto out_destroy;
	if (pipe2(fds, O_CLOEXEC))
		goto out_unmount;
	pid_t pid = fork();
	if (pid == 0) {
		ns = probe_pairs(dir);
		(void)!write(fds[1], &ns, sizeof(ns));
		umount2(dir, MNT_DETACH); /* ends the loop */
		_exit(0);
	}
	close(fds[1]);
	if (pid > 0) {
		probe_serve(se);
		if (read(fds[0], &ns, sizeof(ns)) != sizeof(ns))
			ns = 0;
		waitpid(pid, NULL, 0);
	}
	close(fds[0]);
out_unmount:
	fuse_session_unmount(se);
out_destroy:
	fuse_session_destroy(se);
	return ns;
}

/* One measurement in its own process and mount namespace, so that nothing of
 * it (threads, mounts, a hang) stays. */
static int64_t probe(const char *mode)
{
	int fds[2];
	int64_t ns = 0;
	if (pipe2(fds, O_CLOEXEC))
		return 0;
	pid_t pid = fork();
	if (pid == 0) {
		alarm(5);
		signal(SIGALRM, SIG_DFL);
		/* Both want to be seen only here: a shared parent would
		 * propagate the mount. */
		if (unshare(CLONE_NEWNS) ||
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", "/tmp", "tmpfs", 0, "size=64k") ||
		    mkdir("/tmp/probe", 0700))
			_exit(1);
		ns = probe_mounted("/tmp/probe", mode);
		(void)!write(fds[1], &ns, sizeof(ns));
		_exit(0);
	}
	close(fds[1]);
	if (pid < 0 || read(fds[0], &ns, sizeof(ns)) != sizeof(ns))
		ns = 0;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return ns;
}

static bool kernel_allows_uring(void)
{
	char c = 'N';
	int fd = open("/sys/module/fuse/parameters/enable_uring",
		      O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, &c, 1) != 1)
		c = 'N';
	close(fd);
	return c == 'Y';
}

/* What forbids it, for a person; false: nothing does. */
static bool uring_forbidden(char *text, size_t size)
{
	struct io_uring_params p;
	memset(&p, 0, sizeof(p));
	if (!kernel_allows_uring()) {
		snprintf(text, size, "off: the kernel parameter "
			 "fuse.enable_uring is N");
		return true;
	}
	/* libfuse would fall back in a way nobody understands. */
	int fd = (int)syscall(__NR_io_uring_setup, 1, &p);
	if (fd >= 0) {
		close(fd);
		return false;
	}
	snprintf(text, size, "off: io_uring is forbidden here (%s), by the "
		 "sysctl kernel.io_uring_disabled or a seccomp profile",
		 strerror(errno));
	return true;
}

bool tune_uring_choose(const struct mount_options *o, const char **why)
{
	static char text[160];
	*why = text;
	if (o->uring == URING_OFF) {
		snprintf(text, sizeof(text), "off: asked for");
		return false;
	}
	if (uring_forbidden(text, sizeof(text))) {
		if (o->uring == URING_ON)
			fprintf(stderr, "hailfs: io_uring=on is ignored; %s\n",
				text);
		return false;
	}
	if (o->uring == URING_ON) {
		snprintf(text, sizeof(text), "on: asked for");
		return true;
	}
	int64_t classic = probe("fsname=probe");
	int64_t uring = probe("fsname=probe,io_uring,io_uring_q_depth=8");
	/* A tie goes to the classic device: it interrupts waiting locks. */
	bool better = uring > 0 && classic > 0 && uring * 10 < classic * 9;
	snprintf(text, sizeof(text),
		 "%s: measured write+fsync classic %.1f us, io_uring %.1f us",
		 better ? "on" : "off", (double)classic / 1000,
		 (double)uring / 1000);
	return better;
}

static void write_setting(const char *path, unsigned value)
{
	char text[16];
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0) {
		diag_debug("fuse", "setting path=%s error=%d", path, errno);
		return;
	}
	int len = snprintf(text, sizeof(text), "%u", value);
	if (write(fd, text, (size_t)len) != len)
		diag_debug("fuse", "setting path=%s error=%d", path, errno);
	close(fd);
}

void tune_bdi(const char *mountpoint, const struct mount_options *o)
{
	struct stat st;
	char path[96];
	if (stat(mountpoint, &st))
		return;
	/* Enough for a block from each of several daemons at once. */
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb",
		 major(st.st_dev), minor(st.st_dev));
	write_setting(path, 4096);
	if (!o->writeback)
		return;
	/* FUSE mounts get 1 % of the dirty limit: writers would stall. */
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/max_ratio",
		 major(st.st_dev), minor(st.st_dev));
	write_setting(path, 50);
}
