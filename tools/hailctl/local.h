/* hailctl local: a whole cluster in one directory of one machine.
 *
 *	DIR/cluster.conf  cluster.key  metad1/  blockd1/ ...
 *	run/NAME.{pid,log}  mnt/
 *
 * NAME is metad1, blockd1, ..., logd1, ..., mount.
 */
#ifndef TOOLS_HAILCTL_LOCAL_H
#define TOOLS_HAILCTL_LOCAL_H

#include <limits.h>

#include "tools/hailctl/ctl.h"

struct local {
	struct ctl *c;
	char dir[PATH_MAX]; /* absolute */
	char conf[PATH_MAX + 16], run[PATH_MAX + 16], mnt[PATH_MAX + 16];
	int lock_fd;
};

enum local_role {
	LOCAL_METAD,
	LOCAL_BLOCKD,
	LOCAL_LOGD,
	LOCAL_MOUNT,
};

/* One process that belongs to the cluster, running or not. */
struct local_proc {
	enum local_role role;
	const char *program; /* "hail-metad", ... */
	char name[24];
	const struct conf_daemon *d; /* NULL: the mount */
	char pidfile[PATH_MAX + 64], log[PATH_MAX + 64];
	pid_t pid; /* 0: does not run */
	bool wanted; /* started by us now */
	pid_t child; /* the start under way */
};

/* ---- local.c: paths, processes ---- */
/* @create: make DIR and what is in it. One hailctl at a time works on a DIR
 * with @create; the others wait. Returns false after a message. */
bool local_open(struct ctl *c, const char *dir, bool create, struct local *l);
void local_close(struct local *l);
/* Is anything in this directory? False, too, when there is none. */
bool local_holds_data(const char *path);
/* Loads DIR/cluster.conf. */
bool local_load(struct local *l);
/* All processes: metads, blockds, logds, the mount last. malloc'd; NULL:
 * message. */
struct local_proc *local_procs(struct local *l, uint32_t *count);
/* What the process of a daemon is. */
enum daemon_kind local_kind(const struct local_proc *p);
/* The process that holds the pid file and is this program; 0: none. */
pid_t local_pid(const struct local_proc *p);
/* Starts a program; @argv[0] is its name, looked for next to hailctl, then in
 * PATH. Returns the pid or -errno after a message. */
pid_t local_spawn(char *const *argv);
/* Waits for a start. Returns true when it exited with 0. */
bool local_spawn_wait(pid_t child);
/* SIGTERM, without waiting. Returns a pidfd to wait on, or -errno. */
int local_term(const struct local_proc *p);
/* Makes the name @path durable. Returns 0 or -errno. */
int local_sync_parent(const char *path);
/* Waits for the end of the process. Returns false on timeout. */
bool local_wait_end(int pidfd, int timeout_ms);

/* ---- local_conf.c ---- */
/* Writes a new DIR/cluster.conf with free ports. Returns false after a
 * message. */
bool local_conf_write(struct local *l, uint32_t blockd_count);

/* ---- local_mount.c ---- */
enum mount_state { MOUNT_NONE, MOUNT_LIVE, MOUNT_DEAD, MOUNT_OTHER };
const char *mount_word(enum mount_state s);
/* @pid: of the mount's process, 0: none is known. */
enum mount_state local_mount_state(const char *mnt, pid_t pid);
/* 0 or -errno. @lazy: detach, whatever still uses it. */
int local_unmount(const char *mnt, bool lazy);

#endif
