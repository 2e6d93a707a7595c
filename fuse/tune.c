/* Settings that depend on the machine: FUSE over io_uring or not (measured),
 * read-ahead and write-back share of the mount.
 *
 * The measurement mounts an empty file system of our own twice, over the
 * classic device and over io_uring, in a private mount namespace, and times
 * small writes, each followed by an fsync (the pair that a database's log
 * makes), small writes alone and asking for attributes. Which of the two is
 * faster depends on the kernel, the number of cores and how deeply they sleep,
 * so nothing but measuring tells. One that wins the pairs may lose the rest:
 * all three decide, each by its ratio.
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
#include <unistd.h>

#include "common/diag.h"

#define PROBE_TIMES 600
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
	struct fuse_entry_param e = { .ino = PROBE_INO, .entry_timeout = 60 };
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
	fuse_reply_attr(req, &st, 0); /* the kernel asks each time */
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

enum { PROBE_PAIR, PROBE_WRITE, PROBE_STAT, PROBE_KINDS };

struct probe_ns {
	int64_t ns[PROBE_KINDS]; /* each; [PROBE_PAIR] 0: it failed */
};

static bool probe_once(int fd, int kind)
{
	static const char buf[128];
	struct stat st;

	if (kind == PROBE_STAT)
		return fstat(fd, &st) == 0;
	return pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf) &&
	       (kind == PROBE_WRITE || fdatasync(fd) == 0);
}

static int64_t probe_kind(int fd, int kind)
{
	int64_t start = 0;
	for (int i = 0; i < PROBE_WARM + PROBE_TIMES; i++) {
		if (i == PROBE_WARM)
			start = rim_now_ns();
		if (!probe_once(fd, kind))
			return 0;
	}
	return (rim_now_ns() - start) / PROBE_TIMES;
}

/* In a child of its own. */
static void probe_time(const char *dir, struct probe_ns *p)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/f", dir);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* The pairs last: they tell whether it was what it should be. */
	for (int kind = PROBE_KINDS - 1; kind >= 0; kind--)
		p->ns[kind] = probe_kind(fd, kind);
	close(fd);
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

/* Mounts, runs probe_time() in a child, unmounts. */
static void probe_mounted(const char *dir, const char *mode,
			  struct probe_ns *p)
{
	char *argv[] = { (char *)(uintptr_t)"probe",
			 (char *)(uintptr_t)"-o",
			 (char *)(uintptr_t)mode, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se =
		fuse_session_new(&args, &probe_ops, sizeof(probe_ops), NULL);
	int fds[2];
	probe_wants_uring = strstr(mode, "io_uring") != NULL;
	fuse_opt_free_args(&args);
	if (!se)
		return;
	if (fuse_session_mount(se, dir))
		goto out_destroy;
	if (pipe2(fds, O_CLOEXEC))
		goto out_unmount;
	pid_t pid = fork();
	if (pid == 0) {
		probe_time(dir, p);
		(void)!write(fds[1], p, sizeof(*p));
		umount2(dir, MNT_DETACH); /* ends the loop */
		_exit(0);
	}
	close(fds[1]);
	if (pid > 0) {
		probe_serve(se);
		if (read(fds[0], p, sizeof(*p)) != sizeof(*p))
			p->ns[PROBE_PAIR] = 0;
		waitpid(pid, NULL, 0);
	}
	close(fds[0]);
out_unmount:
	fuse_session_unmount(se);
out_destroy:
	fuse_session_destroy(se);
}

/* Both want to be seen only here: a shared parent would propagate the mount.
 * In a plain chroot nobody can say so of what "/" lies in; then the mount is
 * at a directory that only we know. */
static const char *probe_place(const char *dir)
{
	if (unshare(CLONE_NEWNS))
		return NULL;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return errno == EINVAL && *dir ? dir : NULL;
	if (mount("none", "/tmp", "tmpfs", 0, "size=64k") ||
	    mkdir("/tmp/probe", 0700))
		return NULL;
	return "/tmp/probe";
}

/* One measurement in its own process and mount namespace, so that nothing of
 * it (threads, mounts, a hang) stays. */
static struct probe_ns probe(const char *mode)
{
	char dir[] = "/tmp/hailfs-probe-XXXXXX";
	struct probe_ns p = { 0 };
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		return p;
	if (!mkdtemp(dir))
		dir[0] = '\0'; /* only needed in a chroot */
	pid_t pid = fork();
	if (pid == 0) {
		alarm(5);
		signal(SIGALRM, SIG_DFL);
		const char *place = probe_place(dir);
		if (!place)
			_exit(1);
		probe_mounted(place, mode, &p);
		(void)!write(fds[1], &p, sizeof(p));
		_exit(0);
	}
	close(fds[1]);
	if (pid < 0 || read(fds[0], &p, sizeof(p)) != sizeof(p))
		p.ns[PROBE_PAIR] = 0;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	if (dir[0]) {
		/* What a probe that was killed has left there. */
		(void)umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW);
		(void)rmdir(dir);
	}
	return p;
}

static bool uring_better(const int64_t *classic, const int64_t *uring)
{
	double ratio = 1;
	for (int i = 0; i < PROBE_KINDS; i++) {
		if (classic[i] <= 0 || uring[i] <= 0)
			return false;
		ratio *= (double)uring[i] / (double)classic[i];
	}
	/* A tie goes to the classic device: it interrupts waiting locks. */
	return ratio < 0.9 * 0.9 * 0.9;
}

static void probe_say(char *text, size_t size, const struct probe_ns *p)
{
	snprintf(text, size, "%.1f/%.1f/%.1f us",
		 (double)p->ns[PROBE_PAIR] / 1000,
		 (double)p->ns[PROBE_WRITE] / 1000,
		 (double)p->ns[PROBE_STAT] / 1000);
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

/* Set by our own libfuse (.ci/deps.sh): its ring's thread submits under the
 * lock that the others take. Without, replies get lost now and then. */
#ifndef FUSE_URING_LOCKED
#define FUSE_URING_LOCKED 0
#endif

/* What forbids it, for a person; false: nothing does. */
static bool uring_forbidden(char *text, size_t size)
{
	struct io_uring_params p;
	memset(&p, 0, sizeof(p));
	if (!FUSE_URING_LOCKED) {
		snprintf(text, size, "off: the libfuse this was built with "
			 "loses replies over io_uring, see README");
		return true;
	}
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
	struct probe_ns c = probe("fsname=probe");
	struct probe_ns u = probe("fsname=probe,io_uring,io_uring_q_depth=8");
	bool better = uring_better(c.ns, u.ns);
	char said[2][48];
	probe_say(said[0], sizeof(said[0]), &c);
	probe_say(said[1], sizeof(said[1]), &u);
	snprintf(text, sizeof(text),
		 "%s: measured write+fsync/write/stat classic %s, io_uring %s",
		 better ? "on" : "off", said[0], said[1]);
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
	struct statx st;
	char path[96];
	/* Of what the kernel knows: nobody serves yet. */
	if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, 0, &st))
		return;
	/* Enough for a block from each of several daemons at once. */
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb",
		 st.stx_dev_major, st.stx_dev_minor);
	write_setting(path, 4096);
	if (!o->writeback)
		return;
	/* FUSE mounts get 1 % of the dirty limit: writers would stall. */
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/max_ratio",
		 st.stx_dev_major, st.stx_dev_minor);
	write_setting(path, 50);
}
