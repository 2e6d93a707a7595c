/* hailctl: what its commands share.
 *
 * A command is a pattern of words ("metad backup FILE") bound to a function
 * (main.c). Links (link.c) carry its requests to the daemons; out.c prints
 * tables or JSON.
 */
#ifndef TOOLS_HAILCTL_CTL_H
#define TOOLS_HAILCTL_CTL_H

#include <jansson.h>

#include "common/conf.h"
#include "common/rpc.h"
#include "common/wire_admin.h"
#include "common/wire_meta.h"

/* Exit codes, documented in hailctl(8). */
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,
	CTL_USAGE = 2,
	CTL_PARTLY = 3,
};

struct ctl_options {
	char *cluster;
	bool json;
	uint64_t timeout_ms; /* to reach a daemon */
	uint64_t blockds, metads, replicas; /* 0: not given */
	uint64_t logds, log_memory;
	bool mount;
	char *mount_options;
	bool scrub, repair, yes;
	bool off, wait; /* logd drain */
	uint64_t deadline_ms;
	uint64_t limit;
	uint64_t interval_ms, count; /* top */
	int wire; /* local up: of wire_words */
	char *log_match, *log_region, *log_destage, *log_fallback;
	uint64_t log_peers;
	bool destaged; /* log salvage */
};

extern const char *const wire_words[]; /* main.c; ends with NULL */

struct ctl {
	struct ctl_options o;
	char *conf_path; /* absolute, once loaded */
	struct conf conf;
	bool conf_loaded;
	struct rpc_net *net;
	struct link_wait *waits; /* link.c */
};

/* Prints "hailctl: ..." to stderr. */
void ctl_err(const char *fmt, ...) printf_like(1, 2);
/* Progress of something long, to stderr; not with --json. */
void ctl_say(const struct ctl *c, const char *fmt, ...) printf_like(2, 3);

/* main.c: loads the cluster file of -c, $HAILFS_CLUSTER or
 * /etc/hailfs/cluster.conf (or @path). Returns false after a message. */
bool ctl_load(struct ctl *c, const char *path);

/* ---- link.c ---- */
enum daemon_kind { DAEMON_METAD, DAEMON_BLOCKD, DAEMON_LOGD };

/* A connection to one daemon. */
struct link {
	struct ctl *c;
	enum daemon_kind kind;
	const struct conf_daemon *d;
	struct rpc_peer *peer;
	int error; /* 0: open; else why not, -errno */
};

const char *daemon_word(enum daemon_kind kind); /* "metad", ... */
const char *daemon_program(enum daemon_kind kind); /* "hail-metad", ... */
/* "blockd 2 (127.0.0.1:7102)"; a static buffer. */
const char *link_name(const struct link *l);
/* Connects; waits up to the timeout of the options. Returns 0 or -errno (also
 * in l->error), silently. l must be closed in any case. */
int link_open(struct ctl *c, enum daemon_kind kind,
	      const struct conf_daemon *d, struct link *l);
/* Prints what is wrong and what to do about it. */
void link_complain(const struct link *l);
void link_close(struct link *l);
void links_end(struct ctl *c); /* the program's end */
/* One request. @timeout_ms 0: for ever. Returns 0 and a taken frame, or what
 * the daemon said, silently. */
int link_call(struct link *l, uint16_t op, const void *body, size_t body_len,
	      uint64_t timeout_ms, struct rpc_frame **ret);
/* A request answered by JSON text. Returns 0 and a new reference, or -errno. */
int link_json(struct link *l, uint16_t op, json_t **ret);
int link_json_of(struct link *l, uint16_t op, const void *body, size_t body_len,
		 json_t **ret);
/* The reply's body after its meta_rhdr. Returns 0 or -EBADMSG. */
int meta_body(const struct rpc_frame *f, struct wire_in *in);

/* Daemons of the cluster, metads first (of several the one that leads before
 * the others), block daemons, log daemons. */
struct links {
	struct link *v;
	uint32_t count, failed;
	bool no_leader; /* of several metads */
};
/* Of metadata and blocks; of all. 0 or -ENOMEM. */
int links_open(struct ctl *c, struct links *ls);
int links_open_all(struct ctl *c, struct links *ls);
void links_close(struct links *ls);
/* The metad that leads; complains when there is none (then NULL). */
struct link *links_metad(struct links *ls);
/* CTL_OK, or CTL_PARTLY / CTL_FAILED when some / all did not answer. */
int links_exit(const struct links *ls);

/* ---- progress.c ---- */
/* How far it is: a line on the terminal that the next one replaces. Twice a
 * second at most; nothing without a terminal, or with --json. */
void progress(const struct ctl *c, const char *fmt, ...) printf_like(2, 3);
/* Takes it away; ctl_err() and ctl_say() do so, too. */
void progress_clear(void);
/* Has a block daemon verify all checksums, for as long as that takes, and shows
 * how far it is. Returns 0 or what the daemon said. */
struct blk_scrub_reply;
int link_scrub(struct link *l, struct blk_scrub_reply *m);

/* ---- out.c ---- */
/* Prints @o and frees it. */
void out_json(json_t *o);
/* A table: columns as wide as their widest cell. */
struct table;
struct table *table_new(const char *const *columns, uint32_t column_count);
/* Cells are copied; one per column. */
void table_row(struct table *t, const char *const *cells);
void table_free(struct table *t);
void table_print_free(struct table *t);
/* "1.5 GiB", into @buf. */
const char *out_size(uint64_t bytes, char *buf, size_t size);
/* "3d 4h", "12.3 s". */
const char *out_duration(uint64_t ms, char *buf, size_t size);
/* Scalars of @o as "key=value ..." without @skip's keys (NULL-ended). */
void out_details(json_t *o, const char *const *skip, char *buf, size_t size);
/* String member, or @def. */
const char *json_text(json_t *o, const char *key, const char *def);
uint64_t json_u64(json_t *o, const char *key);

/* ---- commands: return an exit code ---- */
int cmd_local_up(struct ctl *c, char **args);
int cmd_local_down(struct ctl *c, char **args);
int cmd_local_status(struct ctl *c, char **args);
int cmd_status(struct ctl *c, char **args);
int cmd_stats(struct ctl *c, char **args);
int cmd_sessions(struct ctl *c, char **args);
int cmd_locks(struct ctl *c, char **args);
int cmd_leases(struct ctl *c, char **args);
int cmd_evict(struct ctl *c, char **args);
int cmd_df(struct ctl *c, char **args);
int cmd_map(struct ctl *c, char **args);
int cmd_top(struct ctl *c, char **args);
int cmd_why(struct ctl *c, char **args);
int cmd_fsck(struct ctl *c, char **args);
int cmd_metad_backup(struct ctl *c, char **args);
int cmd_metad_restore(struct ctl *c, char **args);
int cmd_key_new(struct ctl *c, char **args);
int cmd_key_rotate(struct ctl *c, char **args);
int cmd_block_size(struct ctl *c, char **args);
int cmd_block_size_set(struct ctl *c, char **args);
int cmd_log_enable(struct ctl *c, char **args);
int cmd_log_disable(struct ctl *c, char **args);
int cmd_log_status(struct ctl *c, char **args);
int cmd_log_salvage_list(struct ctl *c, char **args);
int cmd_log_salvage(struct ctl *c, char **args);
int cmd_log_salvage_out(struct ctl *c, char **args);
int cmd_blockd_give_up(struct ctl *c, char **args);
int cmd_metad_add(struct ctl *c, char **args);
int cmd_metad_remove(struct ctl *c, char **args);
int cmd_metad_transfer(struct ctl *c, char **args);
int cmd_blockd_scrub(struct ctl *c, char **args);
int cmd_logd_drain(struct ctl *c, char **args);

/* ---- shared by some commands ---- */
/* Fetches the cluster map. Returns 0 or -errno. */
struct cmap;
int meta_map(struct link *metad, struct cmap **ret);
int meta_getattr(struct link *metad, uint64_t ino, struct meta_attr *ret);

/* ---- names.c ---- */
/* The inode of a path inside the cluster, "/...". False after a message. */
bool meta_resolve(struct link *metad, const char *path, struct meta_attr *ret);
/* A path of each of @count inodes, malloc'd, into @paths, NULL where there is
 * none. Reads directories until all are found. 0 or -errno (@paths as far as
 * it came). */
int meta_names(struct link *metad, const uint64_t *inos, uint32_t count,
	       char **paths);

#endif
