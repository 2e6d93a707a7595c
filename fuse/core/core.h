/* The client core: a hailfs file system without FUSE types (libhailfs.a).
 * The mount, tools, benches and the compaction worker use it.
 *
 * Every function may be called from any thread. None blocks on network or
 * disk except those that say so. A callback runs exactly once, on any thread,
 * possibly before the call returns, with no lock held; it may call the core.
 * Errors are 0 or -errno.
 */
#ifndef FUSE_CORE_CORE_H
#define FUSE_CORE_CORE_H

#include "common/conf.h"
#include "common/lock_table.h"
#include "common/rpc.h"
#include "common/wire_meta.h"

#include <sys/statvfs.h>
#include <sys/uio.h>

struct core;
struct core_file;

/* How logs reach their peers. */
enum core_log_transport {
	CORE_LOG_AUTO, /* over RDMA where both ends can */
	CORE_LOG_VERBS, /* peers that cannot are none */
	CORE_LOG_TCP,
};

struct core_options {
	const struct conf *conf; /* borrowed for the core's life */
	const char *host, *mountpoint; /* name the session, for people */
	uint64_t client_id; /* names this mount point on its machine: a live
			     * session with the same id is taken for dead */
	uint64_t wb_bytes_max; /* write-back: dirty, in flight, unsynced */
	uint64_t prefetch_bytes_max;
	uint64_t flush_age_ms; /* dirty data is written after this */
	uint64_t timeout_ms; /* 0: hard; else soft, -ETIMEDOUT after it */
	bool early; /* names change before metad is asked; not with @shared */
	bool shared; /* beside other mounts that are; not with the next one */
	bool kernel_writeback; /* -o writeback: the kernel owns sizes, mtimes */
	int log_transport; /* enum core_log_transport */
	bool noatime; /* reads do not change atimes (else as relatime) */
	bool nodiratime, strictatime;
	/* What others were told of @ino's attributes is not true any more;
	 * called without locks. NULL: nobody keeps them. */
	void (*attr_changed)(void *arg, uint64_t ino);
	/* The same of its bytes in [@off, @off + @len); attributes, too. */
	void (*content_changed)(void *arg, uint64_t ino, uint64_t off,
				uint64_t len);
	/* The same of all names. */
	void (*names_changed)(void *arg);
	void *changed_arg;
	/* Latencies for the status, a JSON object (malloc'd; NULL: none). */
	char *(*latency)(void);
	/* Does anybody still wait for the CORE_WRITE_ASK, or copy, of @arg? */
	bool (*wanted)(void *arg);
};

typedef void (*core_cb)(void *arg, int err);
typedef void (*core_attr_cb)(void *arg, int err, const struct meta_attr *a);
/* @iov: the bytes, valid during the callback. Fewer than asked: end of file. */
typedef void (*core_data_cb)(void *arg, int err, const struct iovec *iov,
			     int iov_count, size_t len);
typedef void (*core_bytes_cb)(void *arg, int err, const void *p, size_t len);

/* ---- life (these block) ---- */
int core_new(const struct core_options *o, struct core **ret);
/* Opens the session: root's attributes are known after it. Waits for metad
 * and the map up to @timeout_ms (0: for ever). -EBUSY: another mount lives that
 * does not share, or we do not;
 * -ECONNREFUSED: nobody listens; -EXDEV, -EPROTONOSUPPORT: a metad of another
 * cluster, or release; -ETIMEDOUT: no answer. */
int core_start(struct core *c, uint64_t timeout_ms);
/* Flushes everything, gives leases back, closes the session. Returns the
 * first error (with hard mounts it waits for daemons). */
int core_stop(struct core *c, uint64_t timeout_ms);
/* Calls under way end with -ECANCELED, open files are gone. What was not
 * flushed is lost: only for a core that is stopped, or to play its death. */
void core_free(struct core *c);

/* Has another taken this mount's place? Then everything ends with -EIO. */
bool core_is_fenced(struct core *c);
/* The numbers of all inodes there are, or of those @written: open for writing;
 * malloc'd. 0 or -ENOMEM. */
int core_inode_list(struct core *c, bool written, uint64_t **ret,
		    size_t *count);

/* Status and counters of this mount as JSON (malloc'd). */
char *core_status_json(struct core *c);
/* Adds "key": "value" to the status that metad is told. */
int core_status_note(struct core *c, const char *key, const char *value);

/* ---- inodes ---- */
/* lookup, create, mknod, link, readdir-with-attributes each add one to the
 * inode's lookup count; core_forget() takes @nlookup away. An inode whose
 * count is 0 can still be found by number, but without name and handle it is
 * given up. */
void core_forget(struct core *c, uint64_t ino, uint64_t nlookup);

void core_lookup(struct core *c, uint64_t parent, const char *name,
		 core_attr_cb cb, void *arg); /* "." and ".." too */
void core_getattr(struct core *c, uint64_t ino, core_attr_cb cb, void *arg);
/* The kernel tells the times of the last write. True: they are kept here, like
 * the size, until the file is clean, and @ret is what they are part of. False:
 * this inode is not ours to answer for; use core_setattr(). */
bool core_times_flush(struct core *c, uint64_t ino, int64_t mtime_ns,
		      int64_t ctime_ns, struct meta_attr *ret);
/* Everything but size (META_SET_* less SIZE, UNITS). @s borrowed until
 * return. */
void core_setattr(struct core *c, const struct meta_setattr *s,
		  core_attr_cb cb, void *arg);
/* Is it known to be a set-gid file whose group may not execute it? */
bool core_sgid_alone(struct core *c, uint64_t ino, uint32_t *gid_ret);
/* Clears set-gid, in the stream and here at once. */
void core_drop_sgid(struct core *c, uint64_t ino);
void core_readlink(struct core *c, uint64_t ino, core_bytes_cb cb, void *arg);
void core_getxattr(struct core *c, uint64_t ino, const char *name,
		   core_bytes_cb cb, void *arg);
void core_listxattr(struct core *c, uint64_t ino, core_bytes_cb cb, void *arg);
void core_setxattr(struct core *c, uint64_t ino, const char *name,
		   const void *value, size_t len, uint32_t flags, core_cb cb,
		   void *arg);
void core_removexattr(struct core *c, uint64_t ino, const char *name,
		      core_cb cb, void *arg);

/* ---- names ---- */
struct core_create {
	uint64_t parent;
	const char *name; /* NULL: O_TMPFILE in @parent */
	uint32_t mode; /* with type */
	uint32_t umask;
	uint32_t uid, gid, rdev;
	const char *target; /* symlinks */
	int open_flags; /* core_create_open() */
};
/* mknod, mkdir, symlink. */
void core_create(struct core *c, const struct core_create *p, core_attr_cb cb,
		 void *arg);
/* create + open; *file is set before @cb(0). */
void core_create_open(struct core *c, const struct core_create *p,
		      struct core_file **file, core_attr_cb cb, void *arg);
void core_unlink(struct core *c, uint64_t parent, const char *name, bool dir,
		 core_cb cb, void *arg);
struct core_rename {
	uint64_t parent;
	const char *name;
	uint64_t newparent;
	const char *newname;
	uint32_t flags; /* of renameat2(2) */
	uint32_t uid, gid; /* whose a whiteout is */
};
void core_rename(struct core *c, const struct core_rename *p, core_cb cb,
		 void *arg);
void core_link(struct core *c, uint64_t ino, uint64_t newparent,
	       const char *newname, core_attr_cb cb, void *arg);

/* A listing of @dir begins. Is it known that no name changed since another
 * began? */
bool core_listing_begins(struct core *c, uint64_t dir);

/* One entry of a directory page; @a is NULL without @plus, or when the
 * attributes are not known (no lookup is counted then). Returning false
 * stops: that entry is not consumed (and its lookup not counted). */
typedef bool (*core_dirent_fn)(void *arg, const struct meta_dirent *d,
			       const struct meta_attr *a);
/* Entries after @cookie: @fn for each, then @cb. "." and ".." are the rim's.
 * Reads ahead one page by itself. @fn and @cb run on one thread in order. */
void core_readdir(struct core *c, uint64_t dir, uint64_t cookie,
		  size_t bytes_max, bool plus, core_dirent_fn fn, core_cb cb,
		  void *arg);

/* ---- open files ---- */
/* *file is set before @cb(0). O_TRUNC truncates, and clears set-id bits and
 * capability unless @flags has CORE_OPEN_KEEP_PRIV. */
#define CORE_OPEN_KEEP_PRIV 0x40000000
void core_open(struct core *c, uint64_t ino, int flags,
	       struct core_file **file, core_cb cb, void *arg);
/* The last word on a handle; never fails, never blocks. */
void core_release(struct core *c, struct core_file *f);
uint64_t core_file_ino(const struct core_file *f);
/* What the kernel may keep of a file for a handle that was opened just now and
 * is not O_DIRECT. A direct write that its program does not wait for
 * (io_submit(2), io_uring) leaves in the kernel's cache what others read into
 * it meanwhile: while only O_DIRECT handles write, who opens the file to read
 * it reads past the cache; other handles, and the first one after that, start
 * with none. */
enum core_cache { CORE_CACHE_KEEP, CORE_CACHE_DROP, CORE_CACHE_NONE };
enum core_cache core_file_cache(struct core *c, const struct core_file *f);
/* Has anybody a handle that writes? @mapped: one that a mapping can store
 * through, which has to read as well. */
bool core_open_for_write(struct core *c, uint64_t ino, bool mapped);
/* The same for one that writes through the kernel's cache. */
bool core_open_for_cached_write(struct core *c, uint64_t ino);

/* Reads [off, off+len), bounded by the file's size. */
void core_read(struct core *c, struct core_file *f, uint64_t off, size_t len,
	       core_data_cb cb, void *arg);

/* The same without a handle, which may be closed: nothing is read ahead, and no
 * time moved. */
void core_read_again(struct core *c, uint64_t ino, uint64_t off, size_t len,
		     core_data_cb cb, void *arg);

#define CORE_WRITE_DIRECT 0x1u /* answered when the daemons have it */
#define CORE_WRITE_KILLPRIV 0x2u /* clear set-id bits; capabilities go with
			       * every write but CORE_WRITE_CACHE */
#define CORE_WRITE_CACHE 0x4u /* from the kernel's page cache: with
			       * kernel_writeback it does not move the mtime,
			       * without it may not grow the file */
#define CORE_WRITE_ASK 0x8u /* -EINTR where it had to wait and is not wanted
			      * any more; asked under the core's lock */
#define CORE_WRITE_APPEND 0x20u /* with core_options.shared: at the end of the
				 * file, wherever that is by then */
#define CORE_WRITE_UNBOUND 0x10u /* others wait for memory until this is there:
				  * the write-back bound is not for it */
/* Copies the bytes before it returns. @cb may be delayed by the write-back
 * bound. -EFBIG, -ENOSPC, -EIO (an earlier failure not yet reported). */
void core_write(struct core *c, struct core_file *f, uint64_t off,
		const struct iovec *iov, int iov_count, size_t len,
		uint32_t flags, core_cb cb, void *arg);
/* Copies [off_in, off_in+len) of @in to @off_out of @out. Fewer bytes than
 * asked: the end of @in, or CORE_COPY_MAX. All is written or nothing, and what
 * nobody waits for (core_options.wanted of @arg) is not. Ranges of one file
 * must not overlap. */
#define CORE_COPY_MAX (1u << 20)
struct core_copy {
	struct core_file *in, *out;
	uint64_t off_in, off_out;
	size_t len;
	bool killpriv; /* clear @out's set-id bits and capability */
};
typedef void (*core_copy_cb)(void *arg, int err, size_t done);
void core_copy(struct core *c, const struct core_copy *p, core_copy_cb cb,
	       void *arg);
/* Everything written before is durable, with the metadata to read it. */
void core_fsync(struct core *c, uint64_t ino, bool datasync, core_cb cb,
		void *arg);
/* Starts nothing and waits for nothing: reports (once per handle) an error of
 * earlier background flushes. close(2)'s errno. */
int core_flush_error(struct core *c, struct core_file *f);
/* syncfs, sync: all files and all mutations. */
void core_sync_all(struct core *c, core_cb cb, void *arg);
/* fsync of a directory: every mutation so far is durable. */
void core_fsync_dir(struct core *c, uint64_t ino, core_cb cb, void *arg);

/* ftruncate, truncate. @valid, @s: further attributes of the same call. */
void core_truncate(struct core *c, uint64_t ino, uint64_t size, bool killpriv,
		   core_attr_cb cb, void *arg);
/* @mode: FALLOC_FL_KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE or 0; others:
 * -EOPNOTSUPP. */
void core_fallocate(struct core *c, uint64_t ino, int mode, uint64_t off,
		    uint64_t len, bool killpriv, core_cb cb, void *arg);
/* @whence: SEEK_DATA or SEEK_HOLE. @off_ret: set before @cb(0). */
void core_seek(struct core *c, uint64_t ino, uint64_t off, int whence,
	       uint64_t *off_ret, core_cb cb, void *arg);
void core_statfs(struct core *c, struct statvfs *st, core_cb cb, void *arg);

/* ---- locks ----
 * Of a mount alone in a table of its own (common/lock_table.h), which answers
 * at once; beside others (core_options.shared) metad's. */
struct core_lock_wait {
	struct lock_wait w; /* w.r set by the caller */
	core_cb cb;
	void *arg;
	struct core_lock_wait *priv_next;
	int priv_status;
	struct shared_lock *priv_shared;
};
/* Are locks metad's? */
bool core_locks_shared(const struct core *c);
/* Returns 0 or -errno at once, or -EINPROGRESS and @cb later, with the same:
 * with @wait, and always when locks are metad's. */
int core_setlk(struct core *c, struct core_lock_wait *w, bool wait);
/* Ends the wait of a request that is not yet answered: true: it is over, and
 * @cb does not run; false: it was, or will be, with -EINTR unless the lock was
 * granted meanwhile. */
bool core_setlk_cancel(struct core *c, struct core_lock_wait *w);
/* Fills *r, as lock_get(). Returns 0, -errno, or -EINPROGRESS and @cb later; of
 * another mount's lock the pid is 0. */
int core_getlk(struct core *c, struct lock_range *r, core_cb cb, void *arg);
/* Whatever the owner has, and, unless locks are metad's, waits for. Returns 0,
 * or, when they are metad's and @cb is not NULL, -EINPROGRESS and @cb when they
 * are gone there. */
int core_lock_drop_owner(struct core *c, uint64_t ino, enum lock_kind kind,
			 uint64_t owner, core_cb cb, void *arg);

/* Starts a timer of the core's net (common/rpc.h): t->fn runs on its thread,
 * with no lock held; never once core_stop() has ended. */
void core_timer_start(struct core *c, struct rpc_timer *t, uint64_t delay_ms);

#endif
