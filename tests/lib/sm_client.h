/* A session talking to a state machine directly: what a mount would send,
 * without frames. Every body goes through sm_validate() first, as in metad.
 *
 * Functions return 0 or -errno; attributes of the reply are in c->attr.
 * Failures of the machinery itself (no memory, a reply that does not decode)
 * abort.
 */
#ifndef TESTS_LIB_SM_CLIENT_H
#define TESTS_LIB_SM_CLIENT_H

#include "metad/sm.h"

#define SM_CLIENT_BODY_MAX (256u << 10)

struct sm_client {
	struct sm *sm;
	uint64_t session;
	uint64_t seq; /* last one used */
	uint64_t seq_low;
	bool keep_replies; /* else seq_low follows seq */
	int64_t now; /* ns; grows by one second with each mutation */
	uint32_t uid, gid, umask; /* of creates and whiteouts */
	struct sm_reply r; /* last reply */
	struct meta_attr attr; /* last attributes */
	bool existed; /* of the last create */
	struct sm_log log; /* of the last entry of the logs' registry */
	bool log_live; /* its session */
	/* The last command, for another machine or once more. */
	uint8_t *body;
	size_t body_len;
	uint16_t op;
	bool internal; /* metad's own: without session */
};

/* A machine with a root directory, one block daemon, and a session. */
void sm_client_init(struct sm_client *c);
/* As that, in @sm, which is empty; c->sm is borrowed. */
void sm_client_init_in(struct sm_client *c, struct sm *sm);
/* One more session of c->sm. */
void sm_client_join(struct sm_client *c, struct sm *sm);
void sm_client_fini(struct sm_client *c); /* frees the machine */
void sm_client_leave(struct sm_client *c); /* only the buffers */

/* Sends the last command again, as after a lost reply. */
int sm_client_resend(struct sm_client *c);
/* Gives the last command to another machine. Returns its status, *r. */
int sm_client_repeat_on(struct sm_client *c, struct sm *sm,
			struct sm_reply *r);
/* Sends an encoded body of fields (after the mhdr, for mutations). */
int sm_client_send(struct sm_client *c, uint16_t op, const void *fields,
		   size_t len);
/* A command of metad itself, or a query. */
int sm_client_internal(struct sm_client *c, uint16_t op, const void *body,
		       size_t len);

int sm_client_create(struct sm_client *c, const struct meta_create *p);
/* With this number. */
int sm_client_create_at(struct sm_client *c, const struct meta_create *p,
			uint64_t ino);
int sm_client_file(struct sm_client *c, uint64_t dir, const char *name);
int sm_client_mkdir(struct sm_client *c, uint64_t dir, const char *name);
int sm_client_mknod(struct sm_client *c, uint64_t dir, const char *name,
		    uint32_t mode, uint32_t rdev);
int sm_client_symlink(struct sm_client *c, uint64_t dir, const char *name,
		      const char *target);
int sm_client_tmpfile(struct sm_client *c, uint64_t dir, uint32_t mode);
int sm_client_unlink(struct sm_client *c, uint64_t dir, const char *name);
int sm_client_rmdir(struct sm_client *c, uint64_t dir, const char *name);
int sm_client_rename(struct sm_client *c, uint64_t dir, const char *name,
		     uint64_t newdir, const char *newname, uint32_t flags,
		     struct meta_rename_reply *ret);
/* As commands were before there were whiteouts. */
int sm_client_rename_v1(struct sm_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname, uint32_t flags);
int sm_client_link(struct sm_client *c, uint64_t ino, uint64_t dir,
		   const char *name);
int sm_client_setattr(struct sm_client *c, const struct meta_setattr *s);
int sm_client_chmod(struct sm_client *c, uint64_t ino, uint32_t mode);
int sm_client_chown(struct sm_client *c, uint64_t ino, uint32_t uid,
		    uint32_t gid);
int sm_client_setxattr(struct sm_client *c, uint64_t ino, const char *name,
		       const void *value, size_t len, uint32_t flags);
int sm_client_removexattr(struct sm_client *c, uint64_t ino,
			  const char *name);
int sm_client_lease(struct sm_client *c, uint64_t ino);
int sm_client_return(struct sm_client *c, const struct meta_return *items,
		     size_t count);
int sm_client_give_back(struct sm_client *c, uint64_t ino, uint32_t what);
int sm_client_cut(struct sm_client *c, const struct meta_cut *q);
int sm_client_truncate(struct sm_client *c, uint64_t ino, uint64_t size_now,
		       uint64_t size);
int sm_client_cut_done(struct sm_client *c, uint64_t ino, uint64_t cut,
		       int64_t units_delta);
int sm_client_close(struct sm_client *c, uint64_t session, uint8_t dead);
/* A log daemon registers. */
int sm_client_logd(struct sm_client *c, uint32_t id, uint64_t boot_id);
/* META_LOG_*; c->log is set by these. */
int sm_client_log_set(struct sm_client *c, uint64_t ino, uint64_t epoch,
		      uint32_t version, const struct meta_log_peer *peers,
		      size_t count);
int sm_client_log_raise(struct sm_client *c, uint64_t ino);
int sm_client_log_drop(struct sm_client *c, uint64_t ino, uint64_t epoch);
int sm_client_log_heir(struct sm_client *c, bool on);
int sm_client_log_lose(struct sm_client *c, uint64_t ino, uint64_t epoch);
/* Up to @max entries after @ino; returns how many, or -errno. */
int sm_client_log_list(struct sm_client *c, uint64_t ino, uint64_t session,
		       uint32_t max, struct sm_log *out, bool *done);

int sm_client_lookup(struct sm_client *c, uint64_t dir, const char *name);
int sm_client_getattr(struct sm_client *c, uint64_t ino);
/* Attributes of @ino; aborts when there is none. */
struct meta_attr sm_client_stat(struct sm_client *c, uint64_t ino);
/* Return the length, or -errno; NUL is appended when there is room. */
ssize_t sm_client_readlink(struct sm_client *c, uint64_t ino, char *buf,
			   size_t cap);
ssize_t sm_client_getxattr(struct sm_client *c, uint64_t ino,
			   const char *name, void *buf, size_t cap);
ssize_t sm_client_listxattr(struct sm_client *c, uint64_t ino, char *buf,
			    size_t cap);

/* One page of a directory. @fn: for each entry; @a NULL without @plus. Returns
 * the number of entries or -errno; *cookie moves on, *eof is set. */
typedef void (*sm_client_dirent_fn)(void *arg, const struct meta_dirent *d,
				    const struct meta_attr *a);
int sm_client_readdir(struct sm_client *c, uint64_t dir, uint64_t *cookie,
		      uint32_t bytes_max, bool plus, bool *eof,
		      sm_client_dirent_fn fn, void *arg);

/* The whole snapshot, malloc'd. */
uint8_t *sm_client_snapshot(struct sm *sm, size_t *len);
/* Takes a snapshot's frame off: its stream of records, malloc'd. And puts one
 * with right sums around any bytes, for damage that checksums do not see. */
uint8_t *sm_client_unwrap(const uint8_t *snap, size_t len, size_t *ret_len);
uint8_t *sm_client_wrap(const uint8_t *stream, size_t len, size_t *ret_len);

#endif
