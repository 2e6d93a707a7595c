/* Inside the metadata state machine: records, their keys, and what the
 * sm_*.c files give each other. [pure]
 *
 * A command's changes to the tree cannot fail: sm_apply() has reserved their
 * memory before. Handlers check everything first and then change; only
 * commands over many items (bulk) reserve again for each item and are rolled
 * back as a whole when that fails.
 */
#ifndef METAD_SM_PRIV_H
#define METAD_SM_PRIV_H

#include "common/log_opts.h"
#include "metad/cow.h"
#include "metad/sm.h"

/* First byte of a key. Part of the snapshot format: never reused. */
enum sm_kind {
	SM_K_GLOBAL = 1, /* - : struct sm_globals; only in snapshots */
	SM_K_MAP = 2, /* chunk : the cluster map */
	SM_K_DAEMON = 3, /* id : last commit number, ids of stores given up */
	SM_K_SESSION = 4, /* session : struct sm_session */
	SM_K_REPLY = 5, /* session, seq : kept reply */
	SM_K_LEASE = 6, /* session, ino : - */
	SM_K_ORPHAN = 7, /* session, ino : - */
	SM_K_PURGE = 8, /* ino : position that queued it */
	SM_K_CUT = 9, /* ino, cut : pending cut job */
	SM_K_INODE = 16, /* ino : struct sm_inode */
	SM_K_DIRENT = 17, /* dir, cookie : inode, type, name */
	SM_K_XATTR = 18, /* ino, name, 0, chunk : bytes */
	SM_K_TARGET = 19, /* ino, chunk : symlink target */
	SM_K_LOG = 20, /* ino : struct sm_log */
	SM_K_LOCK = 21, /* ino, kind, start, session, owner : type, end, pid */
	SM_K_LOCKER = 22, /* session, ino : count of its SM_K_LOCKs */
};

struct sm_key {
	uint8_t b[COW_KEY_MAX];
	uint32_t len;
};

/* Everything that is not in the tree between snapshots. */
#define SM_GLOBALS_FIELDS(F)                                                  \
	F(u64, pos)                                                           \
	F(u64, batch)                                                         \
	F(u64, next_ino)     /* 0: not bootstrapped */                        \
	F(u64, next_session)                                                  \
	F(u64, cut_base)     /* every inode's cut number is at least this */  \
	F(u64, inode_count)                                                   \
	F(u64, purge_count)                                                   \
	/* not in a snapshot while there never was a log */                   \
	F(u64, log_epoch)    /* the last that was given to a log */           \
	F(u64, log_count)                                                     \
	/* not in a snapshot while there are none */                          \
	F(u64, lock_count)                                                    \
	/* not in a snapshot while there is none */                           \
	F(u64, log_heir)     /* the session that recovers logs */
WIRE_MESSAGE(sm_globals, SM_GLOBALS_FIELDS);
#define SM_GLOBALS_SIZE 88u
#define SM_GLOBALS_SIZE_NO_HEIR 80u
#define SM_GLOBALS_SIZE_NO_LOCKS 72u
#define SM_GLOBALS_SIZE_NO_LOGS 56u

struct sm {
	struct cow *tree;
	struct cmap *map;
	struct sm_globals g;
	uint8_t *out; /* reply body, SM_REPLY_MAX bytes */
	const struct cow_mem *mem; /* of the tree; NULL: malloc */
	uint32_t snap_count; /* snapshots that are out */
	uint64_t locks_freed; /* sm_locks_freed() */
	uint64_t hash_mask; /* of names; tests make names collide with it */
};
/* @mem: where the tree's pages come from (tests make it fail); borrowed for
 * the machine's life. */
struct sm *sm_new_mem(const struct cow_mem *mem);
#define SM_REPLY_MAX (READDIR_BYTES_MAX + 4096u)
_Static_assert(SM_REPLY_MAX < FRAME_BODY_MAX, "a reply is one frame");

/* One command or query being executed. */
struct sm_ctx {
	struct sm *sm;
	uint64_t session;
	uint64_t pos; /* the command's position */
	int64_t now;
	struct wire_out out; /* the reply's body */
	uint64_t cut_ino, cut_job; /* to be waited for before the answer */
	struct cmap *map_new; /* becomes sm->map if the command succeeds */
};

/* ---- sm_key.c ---- */
void sm_key_init(struct sm_key *k, enum sm_kind kind);
/* Order-preserving: length byte, then the significant bytes. */
void sm_key_u64(struct sm_key *k, uint64_t v);
void sm_key_fixed_u64(struct sm_key *k, uint64_t v); /* 8 bytes */
void sm_key_raw(struct sm_key *k, const void *p, size_t len);
/* The smallest key above every key that starts with @k. */
void sm_key_after(const struct sm_key *k, struct sm_key *after);
/* Reads what sm_key_u64() wrote; latches in->bad. */
uint64_t sm_get_key_u64(struct wire_in *in);
uint64_t sm_get_key_fixed_u64(struct wire_in *in);
struct sm_key sm_key1(enum sm_kind kind, uint64_t a);
struct sm_key sm_key2(enum sm_kind kind, uint64_t a, uint64_t b);

void sm_put_varint(struct wire_out *o, uint64_t v);
uint64_t sm_get_varint(struct wire_in *in);
static inline uint64_t sm_zigzag(uint64_t delta)
{
	return delta << 1 ^ (0 - (delta >> 63));
}
static inline uint64_t sm_unzigzag(uint64_t v)
{
	return v >> 1 ^ (0 - (v & 1));
}

bool sm_get(const struct sm *sm, const struct sm_key *k, struct wire_in *val);
void sm_put(struct sm *sm, const struct sm_key *k, const struct wire_out *val);
bool sm_del(struct sm *sm, const struct sm_key *k);
void sm_del_prefix(struct sm *sm, const struct sm_key *prefix);
bool sm_any_prefix(const struct sm *sm, const struct sm_key *prefix);
/* First entry >= @k that starts with @prefix_len bytes of @k. */
bool sm_seek_prefix(const struct sm *sm, struct cow_iter *it,
		    const struct sm_key *k, uint32_t prefix_len);
bool sm_next_prefix(struct cow_iter *it, const struct sm_key *k,
		    uint32_t prefix_len);
/* Byte strings longer than a value: chunks under @prefix. A blob of n bytes
 * takes SM_BLOB_CHANGES(n) changes. */
#define SM_BLOB_MAX (255u * COW_VALUE_MAX)
#define SM_BLOB_CHANGES(len) ((len) / COW_VALUE_MAX + 2)
void sm_blob_put(struct sm *sm, const struct sm_key *prefix, const void *p,
		 size_t len);
/* Returns its length, or -ENOENT, -ERANGE when longer than @cap. */
ssize_t sm_blob_get(const struct sm *sm, const struct sm_key *prefix,
		    void *buf, size_t cap);

/* ---- sm_inode.c ---- */
#define SM_INODE_CAPS META_ATTR_CAPS
#define SM_INODE_ACL META_ATTR_ACL
#define SM_INODE_XATTR META_ATTR_XATTR
#define SM_INODE_LINKABLE 0x10u /* O_TMPFILE that never had a name */
#define SM_INODE_WRITTEN 0x20u /* was ever leased or sized: has blocks */
#define SM_INODE_LOG 0x40u /* META_ATTR_LOG */
#define SM_INODE_KNOWN 0x7eu
/* sm_inode.orphan of a journal (struct sm_log without peers) whose session has
 * ended: it waits for the session that raises the entry. No session's number
 * comes near. */
#define SM_NOBODY UINT64_MAX

struct sm_inode {
	uint64_t ino;
	uint32_t mode;
	uint32_t nlink;
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint32_t flags; /* SM_INODE_* */
	uint64_t size;
	uint64_t units;
	int64_t atime, mtime, ctime, btime; /* ns */
	uint64_t cut;
	uint64_t parent; /* directories */
	uint64_t entries; /* directories */
	uint64_t lease; /* session that holds the write lease; 0 */
	uint64_t orphan; /* a session that keeps it alive at nlink 0; 0;
			  * SM_NOBODY. Others may, too (SM_K_ORPHAN). */
	uint32_t xattr_list; /* bytes of names with their NULs */
	uint32_t xattr_bytes; /* names and values */
	uint8_t block_log2;
	uint64_t log_dir; /* log files: the directory that made it one */
};
#define SM_INODE_ENCODED_MAX 192u

bool sm_inode_get(const struct sm *sm, uint64_t ino, struct sm_inode *in);
void sm_inode_put(struct sm *sm, const struct sm_inode *in);
bool sm_inode_decode(struct sm_inode *in, uint64_t ino, struct wire_in *val);
void sm_inode_attr(const struct sm *sm, const struct sm_inode *in,
		   struct meta_attr *a);
void sm_reply_attr(struct sm_ctx *x, const struct sm_inode *in);
/* A live directory: 0, -ENOENT (none, or removed), -ENOTDIR. */
int sm_dir_get(const struct sm *sm, uint64_t ino, struct sm_inode *in);
void sm_touch_dir(struct sm_ctx *x, struct sm_inode *dir); /* times only */
/* Clears set-uid, set-gid with group-exec, security.capability. */
void sm_kill_priv(struct sm_ctx *x, struct sm_inode *in);
int sm_run_setattr(struct sm_ctx *x, const void *body, size_t len);
int sm_run_getattr(struct sm_ctx *x, const void *body, size_t len);
int sm_run_readlink(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_dir.c ---- */
struct sm_dirent {
	uint64_t cookie;
	uint64_t ino;
	uint32_t type; /* S_IFMT bits */
	uint64_t free; /* not found: cookie a new entry takes; 0: none left */
};
bool sm_dirent_find(const struct sm *sm, uint64_t dir, struct wire_str name,
		    struct sm_dirent *d);
/* Also replaces what the entry refers to. */
void sm_dirent_put(struct sm *sm, uint64_t dir, uint64_t cookie,
		   struct wire_str name, const struct sm_inode *in);
void sm_dirent_del(struct sm *sm, uint64_t dir, uint64_t cookie);
bool sm_dirent_decode(struct wire_in *val, uint64_t *ino, uint32_t *type,
		      struct wire_str *name);
uint64_t sm_dirent_hash(const struct sm *sm, uint64_t dir,
			struct wire_str name);
#define SM_COOKIE_SLOT_BITS 10u /* names of one hash value */
int sm_run_lookup(struct sm_ctx *x, const void *body, size_t len);
int sm_run_readdir(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_create.c, sm_name.c, sm_rename.c ---- */
int sm_run_create(struct sm_ctx *x, const void *body, size_t len);
/* META_RENAME's body. Logs also hold those of before there were whiteouts,
 * which end after the flags. */
int sm_rename_parse(const void *body, size_t len, struct meta_rename *q);

/* A new inode as @c says in @dir, as yet without a name and record: the caller
 * writes both. Its number is @c's, taken already; 0: the next. 0, or -errno
 * with nothing changed. */
int sm_inode_make(struct sm_ctx *x, const struct meta_create *c,
		  const struct sm_inode *dir, struct sm_inode *in);
int sm_run_unlink(struct sm_ctx *x, const void *body, size_t len);
int sm_run_link(struct sm_ctx *x, const void *body, size_t len);
int sm_run_rename(struct sm_ctx *x, const void *body, size_t len);
/* @in has lost a name (its record is written); at 0 it becomes an orphan. */
void sm_drop_link(struct sm_ctx *x, struct sm_inode *in);

/* ---- sm_acl.c ---- */
struct sm_acl {
	uint32_t count;
	struct sm_ace {
		uint16_t tag;
		uint16_t perm;
		uint32_t id;
	} e[ACL_ENTRY_COUNT_MAX];
};
#define SM_ACL_ENCODED_MAX (4u + 8u * ACL_ENTRY_COUNT_MAX)
#define SM_ACL_ACCESS "system.posix_acl_access"
#define SM_ACL_DEFAULT "system.posix_acl_default"
/* The xattr format. Returns 0, -EINVAL, -EOPNOTSUPP (version), -ENOSPC (too
 * many entries). count 0: no ACL. */
int sm_acl_parse(struct wire_str value, struct sm_acl *acl);
size_t sm_acl_format(const struct sm_acl *acl, uint8_t *buf);
/* Is it no more than a mode? Sets the permission bits of *mode either way. */
bool sm_acl_equals_mode(const struct sm_acl *acl, uint32_t *mode);
/* A new object under default ACL @acl: limits both by each other. Returns
 * whether the ACL says more than the mode. */
bool sm_acl_inherit(struct sm_acl *acl, uint32_t *mode);
void sm_acl_chmod(struct sm_acl *acl, uint32_t mode);
/* An inode's ACL: 0, or -ENODATA. */
int sm_acl_load(const struct sm *sm, uint64_t ino, const char *name,
		struct sm_acl *acl);
/* Sets or, with count 0, removes it; updates @in, does not write it. */
int sm_acl_store(struct sm *sm, struct sm_inode *in, const char *name,
		 const struct sm_acl *acl);

/* ---- sm_xattr.c ---- */
struct wire_str sm_str(const char *s);
bool sm_str_is(struct wire_str s, const char *text);
ssize_t sm_xattr_read(const struct sm *sm, uint64_t ino, struct wire_str name,
		      void *buf, size_t cap);
/* Updates @in's counters and flags, does not write it. 0 or -ENOSPC. */
int sm_xattr_write(struct sm *sm, struct sm_inode *in, struct wire_str name,
		   const void *value, size_t len);
bool sm_xattr_remove(struct sm *sm, struct sm_inode *in, struct wire_str name);
/* The value of META_XATTR_BLOCK_SIZE: 0 or -EINVAL. */
int sm_block_size_parse(struct wire_str value, uint8_t *log2);
/* Does the inode tell META_XATTR_BLOCK_SIZE? */
bool sm_block_size_told(const struct sm_inode *in);
int sm_run_getxattr(struct sm_ctx *x, const void *body, size_t len);
int sm_run_listxattr(struct sm_ctx *x, const void *body, size_t len);
int sm_run_setxattr(struct sm_ctx *x, const void *body, size_t len);
int sm_run_removexattr(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_session.c ---- */
struct sm_session {
	uint64_t id;
	uint64_t seq_low; /* replies below are forgotten */
	uint64_t client_id;
	uint8_t dead;
	uint32_t flags; /* META_SESSION_* */
	struct wire_str host; /* borrowed from the tree */
	struct wire_str mountpoint;
};
bool sm_session_decode(struct sm_session *s, uint64_t id,
		       struct wire_in *val);
/* Before a mutation. Returns 0: execute it; 1: *r has the kept reply;
 * -ESTALE. Changes nothing. */
int sm_session_enter(struct sm *sm, uint64_t session,
		     const struct meta_mhdr *h, struct sm_reply *r);
/* After it: keeps @r, forgets replies below h->seq_low. */
void sm_session_leave(struct sm_ctx *x, const struct meta_mhdr *h,
		      const struct sm_reply *r);
bool sm_reply_decode(struct sm_reply *r, uint64_t *cut_ino,
		     struct wire_in *val);
/* The body of SM_SESSION_OPEN: 0, -EBADMSG, or -EINVAL (unknown flags). */
int sm_session_open_split(const void *body, size_t len,
			  struct sm_session_open *q, uint32_t *flags);
int sm_run_session_open(struct sm_ctx *x, const void *body, size_t len);
int sm_run_session_close(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_lease.c ---- */
/* 0 or -EBUSY; writes the lease record, not @in. */
int sm_lease_grant(struct sm_ctx *x, struct sm_inode *in);
void sm_lease_drop(struct sm *sm, struct sm_inode *in);
/* Inodes of which @session has a record of @kind (SM_K_LEASE, SM_K_ORPHAN). */
size_t sm_holding_list(struct sm *sm, enum sm_kind kind, uint64_t session,
		       uint64_t after, uint64_t *out, size_t max);
int sm_run_lease(struct sm_ctx *x, const void *body, size_t len);
int sm_run_return(struct sm_ctx *x, const void *body, size_t len);
int sm_run_size_set(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_lock.c ---- */
/* A SM_K_LOCK record, its key without the kind's byte. */
bool sm_lock_decode(struct sm_lock *k, struct wire_in *key,
		    struct wire_in *val);
/* All locks of @session go; reserves for each. 0 or -ENOMEM. */
int sm_locks_drop(struct sm *sm, uint64_t session);
int sm_run_lock(struct sm_ctx *x, const void *body, size_t len);
int sm_run_lock_granted(struct sm_ctx *x, const void *body, size_t len);
int sm_run_lock_get(struct sm_ctx *x, const void *body, size_t len);
int sm_check_lock(const void *body, size_t len);
int sm_check_lock_granted(const void *body, size_t len);

/* ---- sm_log.c ---- */
/* The value of a SM_K_LOG record of @ino. */
bool sm_log_decode(struct sm_log *l, uint64_t ino, struct wire_in *val);
/* There may be none. */
void sm_log_forget(struct sm *sm, uint64_t ino);
/* Has another session a log of it, dead or alive? */
bool sm_log_others(const struct sm *sm, uint64_t ino, uint64_t session);
int sm_run_log_set(struct sm_ctx *x, const void *body, size_t len);
int sm_run_log_raise(struct sm_ctx *x, const void *body, size_t len);
int sm_run_log_drop(struct sm_ctx *x, const void *body, size_t len);
int sm_run_log_lose(struct sm_ctx *x, const void *body, size_t len);
int sm_run_log_heir(struct sm_ctx *x, const void *body, size_t len);
int sm_run_log_list(struct sm_ctx *x, const void *body, size_t len);
int sm_check_log_set(const void *body, size_t len);
int sm_check_log_drop(const void *body, size_t len);
int sm_check_log_heir(const void *body, size_t len);
int sm_check_log_list(const void *body, size_t len);

/* The options of a log directory; false: it is none. */
bool sm_log_options(const struct sm *sm, const struct sm_inode *dir,
		    struct log_opts *o);
/* @in has got @name in @dir: is it a log file now? Does not write it. */
void sm_log_named(const struct sm *sm, const struct sm_inode *dir,
		  struct wire_str name, struct sm_inode *in);
int sm_run_log_opts(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_cut.c ---- */
struct sm_cut_job {
	uint64_t from, to, pos;
	uint8_t block_log2;
};
bool sm_cut_decode(struct sm_cut_job *j, struct wire_in *val);
uint64_t sm_cut_last(const struct sm *sm, uint64_t ino); /* pending; 0 */
int sm_run_cut(struct sm_ctx *x, const void *body, size_t len);
int sm_run_cut_done(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_purge.c ---- */
/* The inode's end: all its records go, its blocks to the purge queue. Takes
 * SM_DESTROY_CHANGES changes. */
#define SM_DESTROY_CHANGES 9u
void sm_inode_destroy(struct sm_ctx *x, struct sm_inode *in);
void sm_orphan_add(struct sm_ctx *x, struct sm_inode *in);
/* The same of every live session: any may have it open. Takes
 * SM_ORPHAN_CHANGES(sm) changes. */
#define SM_ORPHAN_CHANGES(sm) ((sm)->map->session_count + 1u)
void sm_orphan_add_all(struct sm_ctx *x, struct sm_inode *in);
/* Does @session keep it, and nobody else? */
bool sm_orphan_alone(const struct sm *sm, const struct sm_inode *in,
		     uint64_t session);
/* @session does not keep it any more. Returns whether nobody does: it is for
 * the caller to destroy; else @in is written. SM_NOBODY counts as nobody. Two
 * changes. */
bool sm_orphan_leave(struct sm *sm, struct sm_inode *in, uint64_t session);
void sm_orphan_del(struct sm *sm, struct sm_inode *in);
/* @in, an orphan, is @session's now. Two changes; does not write @in. */
void sm_orphan_move(struct sm *sm, struct sm_inode *in, uint64_t session);
int sm_run_purge_done(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_map.c ---- */
/* Changes for one new map. */
#define SM_MAP_CHANGES 128u
/* Next epoch's copy of the map to change, in x->map_new. 0 or -ENOMEM. */
int sm_map_edit(struct sm_ctx *x);
int sm_map_add_session(struct cmap *m, uint64_t session);
void sm_map_del_session(struct cmap *m, uint64_t session);
/* Writes x->map_new to the tree and makes it the map. */
void sm_map_commit(struct sm_ctx *x);
int sm_run_bootstrap(struct sm_ctx *x, const void *body, size_t len);
int sm_run_daemon_set(struct sm_ctx *x, const void *body, size_t len);
int sm_run_logd_set(struct sm_ctx *x, const void *body, size_t len);
/* SM_RAISE's body. Raft's log also has those of before there were logs. */
int sm_raise_read(const void *body, size_t len, struct sm_raise *q);
int sm_run_raise(struct sm_ctx *x, const void *body, size_t len);
int sm_run_map_get(struct sm_ctx *x, const void *body, size_t len);
int sm_run_statfs(struct sm_ctx *x, const void *body, size_t len);

/* ---- sm_snap.c, sm_restore.c, sm_verify.c ----
 * A snapshot is a header, then the records of the tree in key order as one
 * stream (u16 key length, u16 value length, key, value), cut into chunks:
 * u32 length, u32 checksum, bytes. A chunk's checksum goes on from the one
 * before (the first from the header's), so that order is covered, too. */
#define SM_SNAP_MAGIC UINT64_C(0x50414e534c494148) /* "HAILSNAP" */
#define SM_SNAP_VERSION 1u
#define SM_SNAP_HEADER_FIELDS(F)                                              \
	F(u64, magic)                                                         \
	F(u32, version)                                                       \
	F(u64, record_count)                                                  \
	F(u64, stream_len)                                                    \
	F(u32, crc) /* of the fields before */
WIRE_MESSAGE(sm_snap_header, SM_SNAP_HEADER_FIELDS);
#define SM_SNAP_HEADER_SIZE 32u
#define SM_SNAP_CHUNK_SIZE 65536u
#define SM_SNAP_CHUNK_HEADER 8u
/* Are the records of @tree well-formed and do they fit together? */
bool sm_verify(struct sm *sm);

/* ---- sm_check.c: bodies after the mhdr; see sm_validate() ---- */
typedef int (*sm_check_fn)(const void *body, size_t len);
int sm_check_empty(const void *body, size_t len);
int sm_check_ino(const void *body, size_t len);
int sm_check_lookup(const void *body, size_t len);
int sm_check_readdir(const void *body, size_t len);
int sm_check_getxattr(const void *body, size_t len);
int sm_check_create(const void *body, size_t len);
int sm_check_unlink(const void *body, size_t len);
int sm_check_rename(const void *body, size_t len);
int sm_check_link(const void *body, size_t len);
int sm_check_setattr(const void *body, size_t len);
int sm_check_setxattr(const void *body, size_t len);
int sm_check_removexattr(const void *body, size_t len);
int sm_check_return(const void *body, size_t len);
int sm_check_cut(const void *body, size_t len);
int sm_check_session_open(const void *body, size_t len);
int sm_check_session_close(const void *body, size_t len);
int sm_check_daemon_set(const void *body, size_t len);
int sm_check_logd_set(const void *body, size_t len);
int sm_check_purge_done(const void *body, size_t len);
int sm_check_cut_done(const void *body, size_t len);
int sm_check_size_set(const void *body, size_t len);
int sm_check_raise(const void *body, size_t len);
int sm_check_bootstrap(const void *body, size_t len);
int sm_check_mhdr(const struct meta_mhdr *h);
/* Splits the mhdr off a mutation's body. 0 or -EBADMSG. */
int sm_mhdr_split(const void **body, size_t *len, struct meta_mhdr *h);

#endif
