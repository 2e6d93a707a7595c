/* A naive POSIX file system in memory, to compare the real one with.
 *
 * It shares nothing with metad's state machine: the only truth is each
 * directory's list of (name, inode); link counts, parents and ancestry are
 * found by looking at all lists. Slow on purpose, obvious on purpose. No
 * permission checks, no ACLs.
 *
 * Inodes are numbered from 1 (the root) in order of creation and never
 * reused. Functions return 0 or -errno; errors are Linux's, checked in
 * Linux's order. @now: ns, the time stamp of what changes. Running out of
 * memory aborts.
 */
#ifndef TESTS_LIB_MODEL_FS_H
#define TESTS_LIB_MODEL_FS_H

#include "common/base.h"

#define MODEL_FS_ROOT 1u

struct model_fs;

struct model_attr {
	uint64_t ino;
	uint32_t mode; /* with type */
	uint32_t nlink;
	uint32_t uid, gid, rdev;
	uint64_t size; /* of files and symlinks */
	uint64_t entries; /* of directories */
	uint64_t parent; /* of directories; 0 when removed */
	int64_t atime, mtime, ctime, btime; /* ns */
};

struct model_fs *model_fs_new(uint32_t root_mode, int64_t now);
void model_fs_free(struct model_fs *m);

/* ---- names ---- */
struct model_create {
	uint64_t parent;
	const char *name; /* NULL: O_TMPFILE (regular files) */
	uint32_t mode; /* with type */
	uint32_t umask, uid, gid, rdev;
	const char *target; /* symlinks */
};
/* EEXIST when the name is taken. *ino on success. */
int model_fs_create(struct model_fs *m, const struct model_create *p,
		    int64_t now, uint64_t *ino);
/* "." and ".." too. */
int model_fs_lookup(const struct model_fs *m, uint64_t dir, const char *name,
		    uint64_t *ino);
/* From the root, "a/b/c"; symlinks are not followed. */
int model_fs_path(const struct model_fs *m, const char *path, uint64_t *ino);
/* What loses its last name lives on while it is held. */
int model_fs_unlink(struct model_fs *m, uint64_t dir, const char *name,
		    int64_t now);
int model_fs_rmdir(struct model_fs *m, uint64_t dir, const char *name,
		   int64_t now);
/* Without a name, it gets none any more. */
void model_fs_bury(struct model_fs *m, uint64_t ino);
int model_fs_link(struct model_fs *m, uint64_t ino, uint64_t dir,
		  const char *name, int64_t now);
/* @flags: of renameat2(2); a whiteout belongs to root. */
int model_fs_rename(struct model_fs *m, uint64_t dir, const char *name,
		    uint64_t newdir, const char *newname, uint32_t flags,
		    int64_t now);
/* Calls @fn for each entry, in no promised order. */
typedef void (*model_fs_entry_fn)(void *arg, const char *name, uint64_t ino);
int model_fs_list(const struct model_fs *m, uint64_t dir,
		  model_fs_entry_fn fn, void *arg);

/* ---- handles ---- */
/* An inode that is held stays. */
int model_fs_hold(struct model_fs *m, uint64_t ino);
void model_fs_drop(struct model_fs *m, uint64_t ino);

/* ---- attributes ---- */
int model_fs_stat(const struct model_fs *m, uint64_t ino,
		  struct model_attr *a);
int model_fs_chmod(struct model_fs *m, uint64_t ino, uint32_t mode,
		   int64_t now);
/* UINT32_MAX: leave it. Takes set-id bits of what is no directory. */
int model_fs_chown(struct model_fs *m, uint64_t ino, uint32_t uid,
		   uint32_t gid, int64_t now);
int model_fs_utimens(struct model_fs *m, uint64_t ino, int64_t atime,
		     int64_t mtime, int64_t now);
/* Borrowed until the inode goes. NULL: no symlink. */
const char *model_fs_readlink(const struct model_fs *m, uint64_t ino);
/* @flags: XATTR_CREATE, XATTR_REPLACE. */
int model_fs_setxattr(struct model_fs *m, uint64_t ino, const char *name,
		      const void *value, size_t len, uint32_t flags,
		      int64_t now);
int model_fs_removexattr(struct model_fs *m, uint64_t ino, const char *name,
			 int64_t now);
/* Length, or -ENODATA; *value is borrowed. */
ssize_t model_fs_getxattr(const struct model_fs *m, uint64_t ino,
			  const char *name, const void **value);

/* ---- content of regular files ---- */
int model_fs_write(struct model_fs *m, uint64_t ino, uint64_t off,
		   const void *data, size_t len, int64_t now);
/* Bytes read: fewer than @len at the end of the file. */
ssize_t model_fs_read(const struct model_fs *m, uint64_t ino, uint64_t off,
		      void *buf, size_t len);
int model_fs_truncate(struct model_fs *m, uint64_t ino, uint64_t size,
		      int64_t now);
/* Zeros [off, off+len) without moving the end. */
int model_fs_punch(struct model_fs *m, uint64_t ino, uint64_t off,
		   uint64_t len, int64_t now);

/* ---- as a whole ---- */
uint64_t model_fs_inode_count(const struct model_fs *m); /* held ones too */
uint64_t model_fs_next_ino(const struct model_fs *m);

#endif
