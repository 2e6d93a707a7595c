/* Handlers of attributes: getattr, setattr, xattrs, ACLs, statfs. */
#include "fuse/rim.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

static struct statx_timestamp statx_time(struct timespec t)
{
	return (struct statx_timestamp){ .tv_sec = t.tv_sec,
					 .tv_nsec = (uint32_t)t.tv_nsec };
}

static void statx_got(void *arg, int err, const struct meta_attr *a)
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
	struct statx x = {
		.stx_mask = STATX_BASIC_STATS | STATX_BTIME,
		.stx_blksize = (uint32_t)st.st_blksize,
		.stx_nlink = (uint32_t)st.st_nlink,
		.stx_uid = st.st_uid,
		.stx_gid = st.st_gid,
		.stx_mode = (uint16_t)st.st_mode,
		.stx_ino = st.st_ino,
		.stx_size = (uint64_t)st.st_size,
		.stx_blocks = (uint64_t)st.st_blocks,
		.stx_rdev_major = major(st.st_rdev),
		.stx_rdev_minor = minor(st.st_rdev),
		.stx_atime = statx_time(st.st_atim),
		.stx_mtime = statx_time(st.st_mtim),
		.stx_ctime = statx_time(st.st_ctim),
		.stx_btime = statx_time(rim_timespec(a->btime_ns)),
	};
	fuse_reply_statx(req, 0, &x, r->valid_s);
}

/* Asked for the birth time only: the rest the kernel knows by getattr. */
static void ops_statx(fuse_req_t req, fuse_ino_t ino, int flags, int mask,
		      struct fuse_file_info *fi)
{
	(void)flags;
	(void)mask;
	(void)fi;
	struct rim_req *rr = rim_req_new(req);
	if (rr)
		core_getattr(rr->rim->core, ino, statx_got, rr);
}

static void ops_getattr(fuse_req_t req, fuse_ino_t ino,
			struct fuse_file_info *fi)
{
	/* With a handle that writes: the kernel is about to write. */
	if (fi && rim_of(req)->writeback) {
		struct rim_file *f = file_of(fi);
		bool writes = f->writes;
		rim_file_sent(f);
		if (writes && rim_refused_take(ino)) {
			fuse_reply_err(req, ENOSPC);
			return;
		}
	}
	struct rim_req *rr = rim_req_new(req);
	if (rr)
		core_getattr(rr->rim->core, ino, rim_cb_attr, rr);
}

/* Times are kept in nanoseconds of 64 bits, 1677 to 2262: what is beyond
 * becomes the nearest, as in every file system. */
static int64_t ns_of(struct timespec t)
{
	const int64_t last = INT64_MAX / 1000000000;

	if (t.tv_sec >= last || t.tv_sec < -last)
		return (t.tv_sec < 0 ? -last : last) * 1000000000;
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t ns_now(void)
{
	struct timespec t;
	/* The clock the kernel stamps its own changes with. */
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return ns_of(t);
}

static void setattr_fill(struct meta_setattr *s, fuse_ino_t ino,
			 const struct stat *st, int to_set)
{
	memset(s, 0, sizeof(*s));
	s->ino = ino;
	if (to_set & FUSE_SET_ATTR_MODE) {
		s->valid |= META_SET_MODE;
		s->mode = st->st_mode;
	}
	if (to_set & FUSE_SET_ATTR_UID) {
		s->valid |= META_SET_UID;
		s->uid = st->st_uid;
	}
	if (to_set & FUSE_SET_ATTR_GID) {
		s->valid |= META_SET_GID;
		s->gid = st->st_gid;
	}
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW)) {
		s->valid |= META_SET_ATIME;
		s->atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ?
				      ns_now() :
				      ns_of(st->st_atim);
	}
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) {
		s->valid |= META_SET_MTIME;
		s->mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ?
				      ns_now() :
				      ns_of(st->st_mtim);
	}
	if (to_set & FUSE_SET_ATTR_CTIME) {
		s->valid |= META_SET_CTIME;
		s->ctime_ns = ns_of(st->st_ctim);
	}
	if (to_set & (FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID))
		s->valid |= META_SET_KILLPRIV;
}

/* chown(2) of neither owner nor group arrives as a change of nothing, or of the
 * ctime alone: everybody may, but only who may change the mode takes set-id
 * bits away so, and the kernel leaves that to us. A change of nothing may as
 * well be the kernel's, before a write: then somebody has the file open. */
struct set_nothing {
	struct rim_req *rr;
	struct fuse_ctx caller;
	struct meta_setattr s;
};

static bool would_lose_setid(const struct fuse_ctx *caller,
			     const struct meta_attr *a)
{
	if (S_ISDIR(a->mode))
		return false;
	return (a->mode & S_ISUID) ||
	       ((a->mode & S_ISGID) && ((a->mode & S_IXGRP) ||
					!rim_caller_in_group(caller, a->gid)));
}

static void set_nothing_checked(void *arg, int err, const struct meta_attr *a)
{
	struct set_nothing *n = arg;

	if (!err && would_lose_setid(&n->caller, a) &&
	    !rim_caller_owns(&n->caller, a->uid))
		err = -EPERM;
	if (err)
		rim_cb_attr(n->rr, err, NULL);
	else
		core_setattr(n->rr->rim->core, &n->s, rim_cb_attr, n->rr);
	free(n);
}

static void set_nothing(fuse_req_t req, struct meta_setattr *s, bool chown)
{
	struct core *c = rim_of(req)->core;
	struct rim_req *rr = rim_req_new(req);

	if (!rr)
		return;
	s->valid |= META_SET_KILLPRIV;
	if (!chown && core_open_for_write(c, s->ino, false)) {
		core_setattr(c, s, rim_cb_attr, rr);
		return;
	}
	struct set_nothing *n = malloc(sizeof(*n));
	if (!n) {
		rim_cb_attr(rr, -ENOMEM, NULL);
		return;
	}
	n->rr = rr;
	n->caller = *fuse_req_ctx(req);
	n->s = *s;
	core_getattr(c, s->ino, set_nothing_checked, n);
}

/* A truncation that came with other changes: those follow it. */
struct setattr_rest {
	struct rim_req *rr;
	struct meta_setattr s;
};

static void setattr_truncated(void *arg, int err, const struct meta_attr *a)
{
	struct setattr_rest *rest = arg;
	if (err)
		rim_cb_attr(rest->rr, err, a);
	else
		core_setattr(rest->rr->rim->core, &rest->s, rim_cb_attr,
			     rest->rr);
	free(rest);
}

static void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st,
			int to_set, struct fuse_file_info *fi)
{
	struct core *c = rim_of(req)->core;
	struct meta_setattr s;
	struct meta_attr a;

	setattr_fill(&s, ino, st, to_set);
	/* With a handle and nothing but these it is the kernel's write-back
	 * cache, which tells the times of what was written before each fsync:
	 * 250 times a second. utimensat(2) comes without a handle. */
	if (fi && to_set == (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME) &&
	    core_times_flush(c, ino, s.mtime_ns, s.ctime_ns, &a)) {
		struct stat now;

		rim_stat(&a, &now);
		fuse_reply_attr(req, &now, rim_of(req)->valid_s);
		return;
	}
	if ((to_set & ~FUSE_SET_ATTR_CTIME) == 0) {
		set_nothing(req, &s, to_set != 0);
		return;
	}
	if ((to_set & FUSE_SET_ATTR_SIZE) && st->st_size < 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	struct rim_req *rr = rim_req_new(req);
	if (!rr)
		return;
	rr->changes[0] = ino;
	if (!(to_set & FUSE_SET_ATTR_SIZE)) {
		if (s.valid & (META_SET_UID | META_SET_GID))
			rim_drop_sgid(req, ino);
		core_setattr(c, &s, rim_cb_attr, rr);
		return;
	}
	bool kill = (s.valid & META_SET_KILLPRIV) != 0;
	if (kill)
		rim_drop_sgid(req, ino);
	s.valid &= ~META_SET_KILLPRIV;
	/* The truncation moves the mtime by itself; what else comes with the
	 * size follows it. */
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		s.valid &= ~META_SET_MTIME;
	if (!(s.valid & (META_SET_MODE | META_SET_UID | META_SET_GID |
			 META_SET_ATIME | META_SET_MTIME))) {
		core_truncate(c, ino, (uint64_t)st->st_size, kill, rim_cb_attr,
			      rr);
		return;
	}
	struct setattr_rest *rest = malloc(sizeof(*rest));
	if (!rest) {
		rim_cb_attr(rr, -ENOMEM, NULL);
		return;
	}
	rest->rr = rr;
	rest->s = s;
	core_truncate(c, ino, (uint64_t)st->st_size, kill, setattr_truncated,
		      rest);
}

/* getxattr and listxattr: a size of 0 asks for the length. */
struct xattr_get {
	struct rim_req rr;
	size_t size;
};

static void xattr_send(fuse_req_t req, const void *p, size_t len, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, p, len);
}

static void xattr_got(void *arg, int err, const void *p, size_t len)
{
	struct xattr_get *g = arg;
	fuse_req_t req = rim_end(&g->rr);
	if (!req)
		; /* killed meanwhile */
	else if (err)
		fuse_reply_err(req, -err);
	else
		xattr_send(req, p, len, g->size);
	free(g);
}

/* Names in trusted.* exist for privileged callers only. */
static void xattr_listed(void *arg, int err, const void *p, size_t len)
{
	struct xattr_get *g = arg;
	const char *from = p, *end = from + len;
	char *seen = err || len == 0 ? NULL : malloc(len);
	size_t seen_len = 0;

	if (!seen || !g->rr.req || !memmem(p, len, "trusted.", 8) ||
	    rim_caller_is_admin(g->rr.pid)) {
		free(seen);
		xattr_got(arg, err, p, len);
		return;
	}
	for (; from < end; from += strlen(from) + 1) {
		if (strncmp(from, "trusted.", 8) == 0)
			continue;
		memcpy(seen + seen_len, from, strlen(from) + 1);
		seen_len += strlen(from) + 1;
	}
	xattr_got(arg, 0, seen, seen_len);
	free(seen);
}

static struct xattr_get *xattr_get_new(fuse_req_t req, size_t size)
{
	struct xattr_get *g = malloc(sizeof(*g));
	if (!g) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	rim_begin(&g->rr, req);
	g->size = size;
	return g;
}

static void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			 size_t size)
{
	struct xattr_get *g = xattr_get_new(req, size);
	if (g)
		core_getxattr(rim_of(req)->core, ino, name, xattr_got, g);
}

static void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct xattr_get *g = xattr_get_new(req, size);
	if (g)
		core_listxattr(rim_of(req)->core, ino, xattr_listed, g);
}

/* setxattr of an access ACL by somebody outside the file's group clears
 * set-gid, as chmod does; libfuse does not hand the kernel's flag on. */
struct xattr_set {
	struct rim_req *rr;
	struct fuse_ctx caller;
	uint64_t ino;
	char *name;
	void *value;
	size_t size;
	uint32_t flags;
};

static void acl_set_checked(void *arg, int err, const struct meta_attr *a)
{
	struct xattr_set *x = arg;
	if (err) {
		rim_cb_err(x->rr, err);
	} else {
		if ((a->mode & S_ISGID) &&
		    !rim_caller_in_group(&x->caller, a->gid))
			x->flags |= META_XATTR_KILL_SGID;
		core_setxattr(x->rr->rim->core, x->ino, x->name, x->value,
			      x->size, x->flags, rim_cb_err, x->rr);
	}
	free(x->name);
	free(x->value);
	free(x);
}

static void set_access_acl(fuse_req_t req, fuse_ino_t ino, const char *name,
			   const char *value, size_t size, int flags)
{
	struct xattr_set *x = calloc(1, sizeof(*x));
	if (!x || !(x->name = strdup(name)) ||
	    !(x->value = malloc(size ? size : 1))) {
		if (x)
			free(x->name);
		free(x);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	memcpy(x->value, value, size);
	x->caller = *fuse_req_ctx(req);
	x->ino = ino;
	x->size = size;
	x->flags = (uint32_t)flags;
	x->rr = rim_req_new(req);
	if (x->rr) {
		x->rr->changes[0] = ino;
		core_getattr(x->rr->rim->core, ino, acl_set_checked, x);
		return;
	}
	free(x->name);
	free(x->value);
	free(x);
}

static void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			 const char *value, size_t size, int flags)
{
	if (strcmp(name, "system.posix_acl_access") == 0) {
		set_access_acl(req, ino, name, value, size, flags);
		return;
	}
	struct rim_req *rr = rim_req_new(req);
	if (!rr)
		return;
	rr->changes[0] = ino;
	core_setxattr(rr->rim->core, ino, name, value, size, (uint32_t)flags,
		      rim_cb_err, rr);
}

static void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct rim_req *rr = rim_req_new(req);
	if (!rr)
		return;
	rr->changes[0] = ino;
	core_removexattr(rr->rim->core, ino, name, rim_cb_err, rr);
}

struct statfs_get {
	struct rim_req rr;
	struct statvfs st;
};

static void statfs_got(void *arg, int err)
{
	struct statfs_get *g = arg;
	fuse_req_t req = rim_end(&g->rr);
	if (req && err)
		fuse_reply_err(req, -err);
	else if (req)
		fuse_reply_statfs(req, &g->st);
	free(g);
}

static void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	(void)ino;
	struct statfs_get *g = calloc(1, sizeof(*g));
	if (!g) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	rim_begin(&g->rr, req);
	core_statfs(rim_of(req)->core, &g->st, statfs_got, g);
}

void ops_attr_fill(struct fuse_lowlevel_ops *ops)
{
	ops->getattr = ops_getattr;
	ops->statx = ops_statx;
	ops->setattr = ops_setattr;
	ops->getxattr = ops_getxattr;
	ops->listxattr = ops_listxattr;
	ops->setxattr = ops_setxattr;
	ops->removexattr = ops_removexattr;
	ops->statfs = ops_statfs;
}
