/* Replies: translation of the core's answers into the kernel's. */
#include "fuse/rim.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>

struct rim *rim_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

void rim_serving(struct rim *r, bool serving)
{
	pthread_rwlock_wrlock(&r->serving_lock);
	r->serving = serving;
	pthread_rwlock_unlock(&r->serving_lock);
}

void rim_attr_changed(void *arg, uint64_t ino)
{
	struct rim *r = arg;
	pthread_rwlock_rdlock(&r->serving_lock);
	if (r->serving)
		fuse_lowlevel_notify_inval_inode(r->se, ino, -1, 0);
	pthread_rwlock_unlock(&r->serving_lock);
}

void rim_names_changed(struct rim *r)
{
	pthread_rwlock_rdlock(&r->serving_lock);
	if (r->serving)
		(void)fuse_lowlevel_notify_increment_epoch(r->se);
	pthread_rwlock_unlock(&r->serving_lock);
}

struct timespec rim_timespec(int64_t ns)
{
	struct timespec t = { .tv_sec = ns / 1000000000,
			      .tv_nsec = ns % 1000000000 };
	if (t.tv_nsec < 0) { /* before 1970: the remainder is negative */
		t.tv_nsec += 1000000000;
		t.tv_sec--;
	}
	return t;
}

void rim_stat(const struct meta_attr *a, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = a->ino;
	st->st_mode = a->mode;
	st->st_nlink = a->nlink;
	st->st_uid = a->uid;
	st->st_gid = a->gid;
	st->st_rdev = a->rdev;
	st->st_size = (off_t)a->size;
	/* stdio and cp size their buffers by it */
	st->st_blksize = 65536;
	st->st_blocks = (blkcnt_t)(a->units * (UNIT_SIZE / 512));
	st->st_atim = rim_timespec(a->atime_ns);
	st->st_mtim = rim_timespec(a->mtime_ns);
	st->st_ctim = rim_timespec(a->ctime_ns);
}

void rim_entry(const struct rim *r, const struct meta_attr *a,
	       struct fuse_entry_param *e)
{
	memset(e, 0, sizeof(*e));
	e->ino = a->ino;
	e->generation = 0; /* inode numbers are never used again */
	e->attr_timeout = r->valid_s;
	e->entry_timeout = r->valid_s;
	rim_stat(a, &e->attr);
}

void rim_reply_entry(struct rim *r, fuse_req_t req, const struct meta_attr *a)
{
	struct fuse_entry_param e;
	rim_entry(r, a, &e);
	/* -ENOENT: the caller was interrupted, the kernel counts nothing. */
	if (!req || fuse_reply_entry(req, &e) == -ENOENT)
		core_forget(r->core, a->ino, 1);
}

void rim_cb_err(void *arg, int err)
{
	fuse_req_t req = rim_req_take(arg);
	if (req)
		fuse_reply_err(req, -err);
}

void rim_cb_entry(void *arg, int err, const struct meta_attr *a)
{
	struct rim *r = ((struct rim_req *)arg)->rim;
	fuse_req_t req = rim_req_take(arg);
	if (!err)
		rim_reply_entry(r, req, a);
	else if (req)
		fuse_reply_err(req, -err);
}

void rim_cb_attr(void *arg, int err, const struct meta_attr *a)
{
	struct rim *r = ((struct rim_req *)arg)->rim;
	fuse_req_t req = rim_req_take(arg);
	struct stat st;
	if (!req)
		return;
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	rim_stat(a, &st);
	fuse_reply_attr(req, &st, r->valid_s);
}

bool rim_signalled(pid_t pid, bool kill)
{
	char path[48], line[128];
	uint64_t pending = 0, blocked = 0;

	if (pid <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return !kill;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "SigPnd:", 7) == 0 ||
		    strncmp(line, "ShdPnd:", 7) == 0)
			pending |= strtoull(line + 7, NULL, 16);
		else if (strncmp(line, "SigBlk:", 7) == 0)
			blocked = strtoull(line + 7, NULL, 16);
	}
	fclose(f);
	if (kill)
		return (pending & (1ull << (SIGKILL - 1))) != 0;
	return (pending & ~blocked) != 0;
}

/* Is the process in this one's user namespace? What one may in another is
 * nothing here: everybody can make one and be root there. */
static bool in_our_user_ns(pid_t pid)
{
	char path[48];
	struct stat ours, its;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat("/proc/self/ns/user", &ours) == 0 &&
	       stat(path, &its) == 0 && its.st_ino == ours.st_ino &&
	       its.st_dev == ours.st_dev;
}

/* The caller's effective capabilities, from /proc; 0 when it is gone. */
static uint64_t caller_caps(pid_t pid)
{
	char path[48], line[128];
	uint64_t caps = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (strncmp(line, "CapEff:", 7) == 0)
			caps = strtoull(line + 7, NULL, 16);
	fclose(f);
	return caps && in_our_user_ns(pid) ? caps : 0;
}

bool rim_caller_kills_priv(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	return !(caller_caps(ctx->pid) & (1ull << CAP_FSETID));
}

/* Supplementary groups, from /proc. */
static bool caller_has_group(pid_t pid, gid_t gid)
{
	char path[48], *line = NULL, *save = NULL;
	size_t cap = 0;
	bool found = false;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (getline(&line, &cap, f) > 0) {
		if (strncmp(line, "Groups:", 7) != 0)
			continue;
		for (char *g = strtok_r(line + 7, " \t\n", &save); g;
		     g = strtok_r(NULL, " \t\n", &save))
			found |= strtoul(g, NULL, 10) == gid;
	}
	free(line);
	fclose(f);
	return found;
}

bool rim_caller_in_group(const struct fuse_ctx *caller, gid_t gid)
{
	return caller->gid == gid || caller_has_group(caller->pid, gid) ||
	       (caller_caps(caller->pid) & (1ull << CAP_FSETID)) != 0;
}

bool rim_caller_owns(const struct fuse_ctx *caller, uid_t uid)
{
	return caller->uid == uid ||
	       (caller_caps(caller->pid) & (1ull << CAP_FOWNER)) != 0;
}

bool rim_caller_is_admin(pid_t pid)
{
	return (caller_caps(pid) & (1ull << CAP_SYS_ADMIN)) != 0;
}

void rim_drop_sgid(fuse_req_t req, fuse_ino_t ino)
{
	struct core *c = rim_of(req)->core;
	uint32_t gid;

	if (core_sgid_alone(c, ino, &gid) &&
	    !rim_caller_in_group(fuse_req_ctx(req), gid))
		core_drop_sgid(c, ino);
}
