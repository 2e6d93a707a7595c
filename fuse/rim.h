/* The FUSE rim: each handler decodes a request, starts one operation of the
 * client core and returns; whoever completes the operation sends the one
 * reply. No handler waits for network or disk.
 */
#ifndef FUSE_RIM_H
#define FUSE_RIM_H

#include "fuse/core/core.h"
#include "fuse/core/dlist.h"
#include "fuse/options.h"

#include <fuse_lowlevel.h>
#include <pthread.h>

struct rim {
	struct core *core;
	struct fuse_session *se;
	struct mount_options *opt;
	bool uring; /* requests come over io_uring */
	_Atomic bool writeback; /* kernel write-back cache negotiated */
	const char *mountpoint;
	dev_t dev; /* of the mount; 0: not known */
	/* May the kernel be told things? Under @serving_lock, so that nobody
	 * is doing so when the session ends. */
	pthread_rwlock_t serving_lock;
	bool serving;
	/* Validity of entries and attributes in the kernel: the lease's term.
	 * One mount holds every lease, so this is for ever in practice; beside
	 * others it holds none. */
	double valid_s;
};

/* The rim of a request. */
struct rim *rim_of(fuse_req_t req);

void rim_serving(struct rim *r, bool serving);
/* core_options.attr_changed: the kernel forgets the attributes it has. @arg:
 * the rim. Waits for nothing (dropping pages would). */
void rim_attr_changed(void *arg, uint64_t ino);
/* core_options.content_changed: ... and, some time later, its pages of that
 * range (kflush.c), but those that are mapped. Waits for nothing. */
void rim_content_changed(void *arg, uint64_t ino, uint64_t off, uint64_t len);
/* The kernel looks every name up again that it has (from 6.16 on). Waits for
 * nothing: a single name's notification would, for the directory's lock. */
void rim_names_changed(struct rim *r);
/* The same where a soft mount waited no longer for a change of names: it is
 * under way, and who asks metad from now on is answered behind it. */
static inline void rim_names_late(struct rim *r, int err)
{
	if (err == -ETIMEDOUT)
		rim_names_changed(r);
}

/* Replies with an entry (lookup, mknod, ...); a reply the kernel no longer
 * wants gives its lookup count back. */
void rim_reply_entry(struct rim *r, fuse_req_t req, const struct meta_attr *a);
void rim_entry(const struct rim *r, const struct meta_attr *a,
	       struct fuse_entry_param *e);
struct timespec rim_timespec(int64_t ns);
void rim_stat(const struct meta_attr *a, struct stat *st);

/* A request that an operation of the core will answer (inflight.c). Between
 * rim_begin() and rim_end() a killed caller may be answered by others. */
enum rim_kind { RIM_NAMES, RIM_READ, RIM_WRITE, RIM_SYNC, RIM_KIND_COUNT };
struct rim_req {
	struct rim *rim;
	fuse_req_t req; /* NULL: answered already */
	pid_t pid;
	enum rim_kind kind; /* RIM_NAMES until the handler says otherwise */
	int64_t start_ns;
	/* What it may change, for the kernel to look at again when the caller
	 * was told that nothing was done: inodes (0: none), and names. */
	uint64_t changes[2];
	bool names;
	struct rim_req *next, *prev;
};
int64_t rim_now_ms(void); /* monotonic, to a few ms: cheap */
int64_t rim_now_ns(void);
void rim_begin(struct rim_req *rr, fuse_req_t req);
/* Whom to answer; NULL: nobody any more. @rr is the caller's again. */
fuse_req_t rim_end(struct rim_req *rr);
/* Has nobody answered it yet? Without locks. */
bool rim_wanted(const struct rim_req *rr);
/* core_options.wanted */
bool rim_write_wanted(void *arg);
/* The same on the heap. NULL: no memory, the request was answered. */
struct rim_req *rim_req_new(fuse_req_t req);
fuse_req_t rim_req_take(struct rim_req *rr);
/* Before requests come; after the process went to the background. */
int rim_inflight_start(void);

/* Drops the kernel's caches once the mount is fenced (fenced.c); stopped when
 * the session is unmounted, before the core ends. */
int rim_fence_watch_start(struct rim *r);
void rim_fence_watch_stop(void);

/* Signals that end the mount (signals.c); stopped before the session is
 * destroyed. 0 or -errno. */
int rim_signals_start(struct rim *r);
void rim_signals_stop(void);

/* core callbacks that reply; @arg is a struct rim_req of rim_req_new() */
void rim_cb_err(void *arg, int err);
void rim_cb_entry(void *arg, int err, const struct meta_attr *a);
void rim_cb_attr(void *arg, int err, const struct meta_attr *a);

/* Has the thread a signal pending that it does not block, or is it gone?
 * @kill: has it been killed? One that is gone does not wait. A request without
 * a process (pid 0: the kernel's writing back, or another pid namespace's) has
 * neither. */
bool rim_signalled(pid_t pid, bool kill);

/* Does the caller lack CAP_FSETID (so that set-id bits must go)? Asks /proc
 * only for callers that are not root. */
bool rim_caller_kills_priv(fuse_req_t req);
/* Is the caller @uid, or privileged (CAP_FOWNER)? Reads /proc. */
bool rim_caller_owns(const struct fuse_ctx *caller, uid_t uid);
/* Has the process CAP_SYS_ADMIN? Reads /proc. */
bool rim_caller_is_admin(pid_t pid);
/* Before a change of content by somebody whose changes clear set-id bits, or of
 * owner or group: an outsider of the file's group clears set-gid also where the
 * group may not execute, which the kernel's own flag leaves out. */
void rim_drop_sgid(fuse_req_t req, fuse_ino_t ino);
/* Is the caller in @gid's group, or privileged? Reads /proc. */
bool rim_caller_in_group(const struct fuse_ctx *caller, gid_t gid);

/* refused.c, -o writeback: pages of @ino that a program has written long ago
 * found no space. After the reply: it may wait for those pages. */
void rim_refused(struct rim *r, uint64_t ino);
/* Is its next writer still to be told? Says so once. */
bool rim_refused_take(uint64_t ino);
/* The kernel told it, or those who are to be told are gone. */
void rim_refused_forget(uint64_t ino);

/* handlers: ops_dir.c, ops_attr.c, ops_file.c, ops_lock.c */
void ops_dir_fill(struct fuse_lowlevel_ops *ops);
void ops_attr_fill(struct fuse_lowlevel_ops *ops);
void ops_file_fill(struct fuse_lowlevel_ops *ops);
void ops_lock_fill(struct fuse_lowlevel_ops *ops);

/* An open file as the kernel's handle names it. */
struct rim_file {
	struct core_file *file;
	bool writes; /* open for writing */
	struct rim_owner *owners; /* whose locks end with it: ops_lock.c */
	struct dlist node; /* of all */
};
struct rim_file *rim_file_new(void);
void rim_file_free(struct rim_file *f);
/* Those that were open when a signal ended the mount: no release comes. */
void rim_files_fini(void);
/* The kernel carries a handle from the thread that answers the open to those
 * that are asked something of it later, and from a request to the release that
 * follows its answer. ThreadSanitizer takes a read of /dev/fuse for that
 * order; of io_uring's queues it knows nothing and has to be told: _sent()
 * before the answer, file_of() when it comes back. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#else
#define __tsan_acquire(p) ((void)(p))
#define __tsan_release(p) ((void)(p))
#endif
static inline void rim_file_sent(struct rim_file *f)
{
	__tsan_release(f);
}
static inline struct rim_file *file_of(const struct fuse_file_info *fi)
{
	struct rim_file *f = (struct rim_file *)(uintptr_t)fi->fh;

	__tsan_acquire(f);
	return f;
}
/* What of it a request needs that only passes the core's file on. */
static inline struct core_file *core_file_of(const struct fuse_file_info *fi)
{
	struct rim_file *f = file_of(fi);
	struct core_file *file = f->file;

	rim_file_sent(f);
	return file;
}
/* Drops what locks the handle's close drops. */
void rim_file_locks_closed(struct rim *r, struct rim_file *f);
/* FLUSH came for it: @owner has closed it, and this may be its last close.
 * Returns as core_lock_drop_owner(). */
int rim_file_flushed(struct rim *r, struct rim_file *f, uint64_t ino,
		     uint64_t owner, core_cb cb, void *arg);

/* reach.c: the device number of what lies there, by what the kernel knows; 0:
 * not to be told. */
dev_t rim_dev(const char *mountpoint);
/* A descriptor of something on the mount of that number, wherever it is: for
 * open_by_handle_at(). Negative: nobody has anything of it open. */
int rim_reach(const char *mountpoint, dev_t dev);
/* Ends the session, and the mount where the mount point still shows it. */
void rim_unmount(struct rim *r);

/* kflush.c: the kernel writes back what it caches of @ino, then @cb(0), on
 * another thread; -EIO: it could not be made to, or -errno. */
#define KFLUSH_NAME "hailfs-kflush"
void kflush(struct rim *r, uint64_t ino, core_cb cb, void *arg);
/* The same, waited for, for every file that is open for writing. 0, -EIO: not
 * for each, or -errno. */
int kflush_written(struct rim *r);
/* The program under that name. Returns its exit status. */
int kflush_main(char **argv);

/* latency.c: histograms by kind of request. JSON, OpenMetrics: malloc'd. */
int rim_latency_init(void); /* 0 or -ENOMEM */
void rim_latency_add(enum rim_kind kind, int64_t ns);
char *rim_latency_json(void); /* core_options.latency */
char *rim_latency_openmetrics(void);

/* metrics.c: serves counters where the mount options say so; *ret NULL: they
 * do not. Returns 0, or -errno after a message. */
struct stats_http;
int rim_metrics_start(struct rim *r, struct stats_http **ret);

/* tune.c: what needs the mounted file system or the kernel's settings. */
/* Decides io_uring=auto. Returns whether to use it; *why (static) says why. */
bool tune_uring_choose(const struct mount_options *o, const char **why);
/* Read-ahead and write-back share of the mount's backing device info. */
void tune_bdi(const char *mountpoint, const struct mount_options *o);

#endif
