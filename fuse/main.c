/* hailfs: mounts a cluster. Also mount.hailfs and mount.fuse.hailfs, the
 * helpers mount(8) runs.
 */
#include "fuse/rim.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <malloc.h>
#include <mntent.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/diag.h"
#include "common/gate.h"
#include "common/opt.h"
#include "common/place.h"
#include "common/stats.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

#define MAX_WRITE (1u << 20)
/* One mount has every lease for as long as it lives. */
#define VALID_S (365.0 * 86400)

static void want(struct fuse_conn_info *conn, uint64_t cap)
{
	if (!fuse_set_feature_flag(conn, cap))
		diag_info("fuse", "kernel lacks capability=%#llx",
			  (unsigned long long)cap);
}

static void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	struct rim *r = userdata;
	conn->max_write = MAX_WRITE;
	conn->max_readahead = 16u << 20;
	conn->max_background = (unsigned)r->opt->max_background;
	conn->congestion_threshold = conn->max_background * 3 / 4;
	/* Its page cache is dropped by us when it must be, never by the kernel
	 * because our own write moved the mtime. */
	fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
	want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA);
	/* Only the kernel knows that a file is being executed (ETXTBSY), and
	 * it asks after our open: that must not have truncated. */
	fuse_unset_feature_flag(conn, FUSE_CAP_ATOMIC_O_TRUNC);
	want(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
	want(conn, FUSE_CAP_POSIX_ACL);
	want(conn, FUSE_CAP_DONT_MASK);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_CACHE_SYMLINKS);
	want(conn, FUSE_CAP_EXPORT_SUPPORT);
	if (r->opt->shared) {
		/* Attributes of a listing may be what another mount is about
		 * to change. A mapping that others could store through would
		 * be a cache that nobody can make coherent: ENODEV. */
		fuse_unset_feature_flag(conn, FUSE_CAP_READDIRPLUS);
		fuse_unset_feature_flag(conn, FUSE_CAP_READDIRPLUS_AUTO);
		fuse_unset_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
	} else {
		want(conn, FUSE_CAP_READDIRPLUS);
		/* O_DIRECT handles go around the page cache in parallel; a
		 * mapping of the same file is kept coherent by the kernel's
		 * invalidation. */
		want(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
	}
	/* Data is copied once either way; splice costs two system calls. */
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_READ);
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_WRITE);
	fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_MOVE);
	if (r->opt->writeback)
		r->writeback =
			fuse_set_feature_flag(conn, FUSE_CAP_WRITEBACK_CACHE);
	if (!r->uring)
		fuse_unset_feature_flag(conn, FUSE_CAP_OVER_IO_URING);
}

/* One that was unmounted and still flushes is in the table no more. */
static bool mounted_here(const char *mountpoint)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;
	bool found = false;

	if (!f)
		return false;
	while ((m = getmntent(f)))
		found |= strcmp(m->mnt_type, "fuse.hailfs") == 0 &&
			 strcmp(m->mnt_dir, mountpoint) == 0;
	endmntent(f);
	return found;
}

/* The lock that proves the last mount on this mount point is gone: held for
 * the process's life, waited for while that one still flushes. */
static int lock_mountpoint(const char *mountpoint, uint64_t *client_id)
{
	char path[96], machine[64] = { 0 };
	uint64_t id = 1469598103934665603u; /* FNV-1a */
	FILE *f = fopen("/etc/machine-id", "re");
	if (f) {
		if (!fgets(machine, sizeof(machine), f))
			machine[0] = 0;
		fclose(f);
	}
	for (const char *s = machine; *s; s++)
		id = (id ^ (uint8_t)*s) * 1099511628211u;
	for (const char *s = mountpoint; *s; s++)
		id = (id ^ (uint8_t)*s) * 1099511628211u;
	*client_id = id;
	(void)mkdir("/run/hailfs", 0755); /* open() tells what matters */
	snprintf(path, sizeof(path), "/run/hailfs/%016llx.lock",
		 (unsigned long long)id);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		fprintf(stderr, "hailfs: %s: %s%s\n", path, strerror(errno),
			geteuid() == 0 ? "" : "; who is not root needs a "
			"/run/hailfs that they may write");
		return -errno;
	}
	/* umount(8) returns before the process it ends has flushed. That is
	 * worth a word only when it takes long. */
	for (int tries = 0; tries < 100; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0; /* the descriptor stays open */
		if (errno != EWOULDBLOCK)
			return -errno;
		nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
	}
	if (mounted_here(mountpoint)) {
		fprintf(stderr, "hailfs: %s: a mount is alive here; unmount "
			"it first\n", mountpoint);
		return -EBUSY;
	}
	fprintf(stderr, "hailfs: %s: an earlier mount is still flushing; "
		"waiting for it\n", mountpoint);
	while (flock(fd, LOCK_EX))
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* A mount whose process is gone hides what is below, and would be there again
 * once we are unmounted. Who has the mount point's lock may ask. */
static void remove_dead(const char *mountpoint)
{
	struct statfs st;

	while (statfs(mountpoint, &st) && errno == ENOTCONN) {
		if (umount2(mountpoint, MNT_DETACH))
			return; /* mounting will fail and say so */
		diag_info("fuse", "event=dead_mount_removed");
	}
}

static int remount(const struct mount_options *o)
{
	if (mount(o->source, o->mountpoint, NULL,
		  MS_REMOUNT | o->remount_flags, NULL)) {
		fprintf(stderr, "hailfs: remount %s: %s\n", o->mountpoint,
			strerror(errno));
		return 32; /* mount(8): mount failure */
	}
	return 0;
}

/* Buffers that are not pooled go back to the system: glibc would keep those of
 * each thread for it, up to the write-back bound for every one. */
#define MMAP_MIN (256 << 10)

/* Under memory pressure the kernel writes dirty pages through us: we must not
 * wait for memory that waits for us. */
static void for_writeback(void)
{
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0))
		diag_info("fuse", "PR_SET_IO_FLUSHER error=%d", errno);
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		diag_info("fuse", "mlockall error=%d", errno);
}

/* For libfuse's list of options, where a comma ends one. malloc'd. */
static char *escaped(const char *s)
{
	char *p = malloc(2 * strlen(s) + 1), *to = p;
	for (; p && *s; s++) {
		if (*s == ',' || *s == '\\')
			*to++ = '\\';
		*to++ = *s;
	}
	if (p)
		*to = 0;
	return p;
}

static struct fuse_session *session_new(struct rim *r, const char *fsname)
{
	static struct fuse_lowlevel_ops ops;
	char *source = escaped(fsname), *opts = NULL;
	assert(r->opt); /* mount_cluster() set it */
	if (!source ||
	    asprintf(&opts,
		     "default_permissions,subtype=hailfs,fsname=%s%s%s%s",
		     source, r->opt->kernel_opts[0] ? "," : "",
		     r->opt->kernel_opts,
		     r->uring ? ",io_uring,io_uring_q_depth=16" : "") < 0) {
		free(source);
		return NULL;
	}
	free(source);
	char name[] = "hailfs", dash_o[] = "-o", dash_d[] = "-d";
	char *argv[] = { name, dash_o, opts, dash_d, NULL };
	struct fuse_args args =
		FUSE_ARGS_INIT(r->opt->debug ? 4 : 3, argv);
	ops.init = ops_init;
	ops_dir_fill(&ops);
	ops_attr_fill(&ops);
	ops_file_fill(&ops);
	ops_lock_fill(&ops);
	struct fuse_session *se =
		fuse_session_new(&args, &ops, sizeof(ops), r);
	fuse_opt_free_args(&args);
	free(opts);
	return se;
}

/* None ever waits. More than this only pass the caches around: with two
 * processors the fourth takes 15 % off a stream of small writes. */
static unsigned receivers(const struct mount_options *o)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (o->threads)
		return (unsigned)o->threads;
	return cpus < 2 ? 2 : cpus > 7 ? 8 : (unsigned)cpus + 1;
}

static int serve(struct rim *r)
{
	struct fuse_loop_config *lc = fuse_loop_cfg_create();
	unsigned threads = receivers(r->opt);

	if (!lc)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(lc, 1);
	fuse_loop_cfg_set_max_threads(lc, threads);
	fuse_loop_cfg_set_idle_threads(lc, threads);
	int res = fuse_session_loop_mt(r->se, lc);
	fuse_loop_cfg_destroy(lc);
	return res < 0 ? res : 0;
}

/* Mounts, serves until unmounted, flushes. The session is the caller's to
 * destroy. */
static int run(struct rim *r, const char *mountpoint, const char *fsname,
	       const char *uring_why)
{
	int err;
	r->se = session_new(r, fsname);
	if (!r->se) {
		fprintf(stderr, "hailfs: %s: the mount cannot be set up\n",
			mountpoint);
		return -EINVAL;
	}
	err = rim_signals_start(r);
	if (err)
		return err;
	if (fuse_session_mount(r->se, mountpoint)) {
		err = -EIO; /* libfuse said why */
		goto out_signals;
	}
	if (rim_inflight_start())
		diag_warn("fuse", "killed waiters are not looked after");
	if (rim_fence_watch_start(r))
		diag_warn("fuse", "caches would outlive a fence");
	core_status_note(r->core, "io_uring", uring_why);
	core_status_note(r->core, "cache",
			 r->opt->shared ? "none" :
			 r->opt->writeback ? "writeback" : "writethrough");
	r->dev = rim_dev(mountpoint);
	tune_bdi(mountpoint, r->opt);
	daemon_ready();
	if (r->opt->writeback)
		for_writeback();
	/* The user's terminal had it; the log shall, too. */
	if (r->opt->uring == URING_ON && !r->uring)
		diag_warn("fuse", "io_uring=on ignored reason=\"%s\"",
			  uring_why);
	rim_serving(r, true);
	err = serve(r);
	rim_serving(r, false);
	rim_unmount(r);
	rim_fence_watch_stop();
	int stop = core_stop(r->core, r->opt->hard ? 0 : r->opt->timeo_ms);
	if (stop) {
		diag_err("fuse", "unmount lost=yes error=%d", -stop);
		err = err ? err : stop;
	}
out_signals:
	rim_signals_stop();
	return err;
}

/* Why core_start() failed, and what to do. */
static const char *start_reason(int err)
{
	switch (err) {
	case -EBUSY:
		return "another mount is alive (one of the two is not "
		       "'-o shared'); 'hailctl sessions' names it";
	case -ECONNREFUSED:
		return "it does not run; start it ('hailctl local up DIR' for "
		       "a local cluster), or correct the cluster file";
	case -EREMCHG:
		return "no metad leads: more than half of them have to run and "
		       "to reach each other; see 'hailctl status'";
	case -EXDEV:
		return "it belongs to another cluster; compare 'id' in its "
		       "cluster file with yours";
	case -EPROTONOSUPPORT:
		return "it is of another release, which speaks another "
		       "protocol; install the same one everywhere, or 'wire' "
		       "of its cluster file asks for more";
	case -EKEYREJECTED:
	case -ENOKEY:
		return gate_error(err);
	case -EHOSTUNREACH:
		return "its name is not known, or there is no way to it; "
		       "correct the cluster file, or /etc/hosts";
	case -ETIMEDOUT:
		return "no answer; 'hailctl status' tells what it waits for";
	default:
		return strerror(-err);
	}
}

static void names_changed(void *arg)
{
	rim_names_changed(arg);
}

static int mount_cluster(struct mount_options *o, const struct conf *conf,
			 const char *mountpoint)
{
	static struct rim r = { .serving_lock = PTHREAD_RWLOCK_INITIALIZER };
	char host[64] = { 0 };
	const char *uring_why;
	uint64_t client_id;
	int err = lock_mountpoint(mountpoint, &client_id);
	if (err)
		return err;
	remove_dead(mountpoint);
	r.opt = o;
	r.mountpoint = mountpoint;
	r.valid_s = o->shared ? 0 : VALID_S;
	r.uring = tune_uring_choose(o, &uring_why);
	gethostname(host, sizeof(host) - 1);
	struct core_options co = {
		.conf = conf, .host = host, .mountpoint = mountpoint,
		.client_id = client_id,
		.wb_bytes_max = o->wb_size,
		/* What was read ahead may not be true when it is read. */
		.prefetch_bytes_max = o->shared ? 0 : o->prefetch,
		.flush_age_ms = o->flush_age_ms,
		.log_transport = o->transport,
		.timeout_ms = o->hard ? 0 : o->timeo_ms,
		.early = !o->dirsync, .names_changed = names_changed,
		.shared = o->shared, .kernel_writeback = o->writeback,
		/* A read-only mount is the kernel's affair, and may be
		 * remounted at any time without our being told. */
		.noatime = o->noatime || o->read_only,
		.nodiratime = o->nodiratime,
		.strictatime = o->strictatime,
		.attr_changed = rim_attr_changed,
		.content_changed = rim_content_changed, .changed_arg = &r,
		.wanted = rim_write_wanted,
		.latency = rim_latency_json,
	};
	err = rim_latency_init();
	if (!err)
		err = core_new(&co, &r.core);
	if (err) {
		fprintf(stderr, "hailfs: %s\n", strerror(-err));
		return err;
	}
	/* A mount that cannot reach its cluster fails: nobody waits for it. */
	err = core_start(r.core, 15000);
	if (err) {
		fprintf(stderr, "hailfs: %s: metad %u (%s:%u): %s\n",
			o->source, conf->metads[0].id, conf->metads[0].addr,
			conf->metads[0].port, start_reason(err));
		core_free(r.core);
		return err;
	}
	struct stats_http *metrics;
	err = rim_metrics_start(&r, &metrics);
	if (err)
		core_stop(r.core, 1000);
	else
		err = run(&r, mountpoint, o->source, uring_why);
	stats_http_stop(metrics);
	core_free(r.core);
	/* Who still waited, for a lock or a daemon, was answered just now. */
	if (r.se)
		fuse_session_destroy(r.se);
	rim_files_fini();
	return err;
}

int main(int argc, char **argv)
{
	static struct mount_options o;
	struct conf conf;
	char why[200] = { 0 };
	if (argc == 3 && strcmp(argv[0], KFLUSH_NAME) == 0)
		return kflush_main(argv);
	if (mount_options_parse(&o, argc, argv, why, sizeof(why))) {
		fprintf(stderr, "hailfs: %s\n", why);
		return 1;
	}
	if (o.show_help || o.show_version) {
		if (o.show_help)
			mount_options_help(stdout);
		else
			printf("hailfs %s (libfuse %s)\n", HAILFS_VERSION,
			       fuse_pkgversion());
		return 0;
	}
	if (o.remount)
		return remount(&o);
	char *mountpoint = realpath(o.mountpoint, NULL);
	char *source = NULL;
	struct stat st;
	int err = -EINVAL;
	/* libfuse would mount over a file, and hide it. */
	if (mountpoint && stat(mountpoint, &st) == 0 && !S_ISDIR(st.st_mode)) {
		fprintf(stderr, "hailfs: %s: %s\n", mountpoint,
			strerror(ENOTDIR));
		goto out_paths;
	}
	if (mountpoint)
		source = realpath(o.source, NULL);
	if (!mountpoint || !source) {
		fprintf(stderr, "hailfs: %s: %s\n",
			mountpoint ? o.source : o.mountpoint, strerror(errno));
		goto out_paths;
	}
	o.source = source;
	if (conf_load(source, &conf))
		goto out_paths; /* said where */
	if (o.fake) {
		err = 0;
		goto out_conf;
	}
	struct daemon_options d = { .program = "hailfs", .log = o.log,
				    .foreground = o.foreground,
				    .pidfile = o.pidfile };
	(void)mallopt(M_MMAP_THRESHOLD, MMAP_MIN);
	diag_init("hailfs", false);
	if (o.debug_list)
		diag_set_debug(o.debug_list);
	err = daemon_start(&d);
	if (!err)
		err = mount_cluster(&o, &conf, mountpoint);
	daemon_end();
out_conf:
	conf_fini(&conf);
out_paths:
	mount_options_fini(&o);
	free(mountpoint);
	free(source);
	return err ? 32 : 0;
}
