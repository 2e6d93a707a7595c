/* Handlers of names: lookup, create, unlink, rename, link, listing. */
#include "fuse/rim.h"

#include <linux/fuse.h>
#include <sys/stat.h>

static void dir_lookup_done(void *arg, int err, const struct meta_attr *a)
{
	if (err == -ENOENT) {
		/* A negative entry the kernel may keep: we see every create. */
		struct fuse_entry_param e = {
			.ino = 0,
			.entry_timeout = ((struct rim_req *)arg)->rim->valid_s,
		};
		fuse_req_t req = rim_req_take(arg);
		if (req)
			fuse_reply_entry(req, &e);
		return;
	}
	rim_cb_entry(arg, err, a);
}

static void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (strlen(name) > NAME_LEN_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	struct rim_req *rr = rim_req_new(req);
	if (rr)
		core_lookup(rr->rim->core, parent, name, dir_lookup_done, rr);
}

static void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	core_forget(rim_of(req)->core, ino, nlookup);
	fuse_reply_none(req);
}

static void ops_forget_multi(fuse_req_t req, size_t count,
			     struct fuse_forget_data *f)
{
	for (size_t i = 0; i < count; i++)
		core_forget(rim_of(req)->core, f[i].ino, f[i].nlookup);
	fuse_reply_none(req);
}

/* -o dirsync: a change of names is durable before it is answered. */
struct naming {
	struct rim_req *rr;
	bool entry; /* answered with @a, else with nothing */
	struct meta_attr a;
};

static void named_durably(void *arg, int err)
{
	struct naming *n = arg;
	if (err && n->entry)
		core_forget(n->rr->rim->core, n->a.ino, 1);
	if (n->entry)
		rim_cb_entry(n->rr, err, &n->a);
	else
		rim_cb_err(n->rr, err);
	free(n);
}

static void name_sync(struct rim_req *rr, const struct meta_attr *a)
{
	struct naming *n = malloc(sizeof(*n));
	if (!n) {
		if (a)
			core_forget(rr->rim->core, a->ino, 1);
		rim_cb_err(rr, -ENOMEM);
		return;
	}
	n->rr = rr;
	n->entry = a != NULL;
	if (a)
		n->a = *a;
	/* The whole stream of changes: which directory does not matter. */
	core_fsync_dir(rr->rim->core, FUSE_ROOT_ID, named_durably, n);
}

static void named(void *arg, int err)
{
	struct rim_req *rr = arg;
	rim_names_late(rr->rim, err);
	if (!err && rr->rim->opt->dirsync)
		name_sync(rr, NULL);
	else
		rim_cb_err(rr, err);
}

static void named_entry(void *arg, int err, const struct meta_attr *a)
{
	struct rim_req *rr = arg;
	rim_names_late(rr->rim, err);
	if (!err && rr->rim->opt->dirsync)
		name_sync(rr, a);
	else
		rim_cb_entry(rr, err, a);
}

/* A change of names in @dir; @ino: another inode that it changes, or 0. */
static struct rim_req *naming_new(fuse_req_t req, fuse_ino_t dir,
				  fuse_ino_t ino)
{
	struct rim_req *rr = rim_req_new(req);
	if (rr) {
		rr->names = true;
		rr->changes[0] = dir;
		rr->changes[1] = ino;
	}
	return rr;
}

static void create_any(fuse_req_t req, fuse_ino_t parent, const char *name,
		       mode_t mode, dev_t rdev, const char *target)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct core_create p = {
		.parent = parent, .name = name, .mode = mode,
		.umask = ctx->umask, .uid = ctx->uid, .gid = ctx->gid,
		.rdev = (uint32_t)rdev, .target = target,
	};
	struct rim_req *rr = naming_new(req, parent, 0);
	if (rr)
		core_create(rr->rim->core, &p, named_entry, rr);
}

static void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
		      mode_t mode, dev_t rdev)
{
	create_any(req, parent, name, mode, rdev, NULL);
}

static void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
		      mode_t mode)
{
	create_any(req, parent, name, S_IFDIR | (mode & 07777u), 0, NULL);
}

static void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			const char *name)
{
	create_any(req, parent, name, S_IFLNK | 0777, 0, target);
}

static void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct rim_req *rr = naming_new(req, parent, 0);
	if (rr)
		core_unlink(rr->rim->core, parent, name, false, named, rr);
}

static void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct rim_req *rr = naming_new(req, parent, 0);
	if (rr)
		core_unlink(rr->rim->core, parent, name, true, named, rr);
}

static void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		       fuse_ino_t newparent, const char *newname,
		       unsigned int flags)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct core_rename p = {
		.parent = parent, .name = name,
		.newparent = newparent, .newname = newname,
		.flags = flags, .uid = ctx->uid, .gid = ctx->gid,
	};
	struct rim_req *rr = naming_new(req, parent, newparent);
	if (rr)
		core_rename(rr->rim->core, &p, named, rr);
}

static void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent,
		     const char *newname)
{
	struct rim_req *rr = naming_new(req, newparent, ino);
	if (rr)
		core_link(rr->rim->core, ino, newparent, newname, named_entry,
			  rr);
}

static void readlink_done(void *arg, int err, const void *p, size_t len)
{
	char target[SYMLINK_LEN_MAX + 1];
	fuse_req_t req = rim_req_take(arg);
	if (!req)
		return;
	if (err || len >= sizeof(target)) {
		fuse_reply_err(req, err ? -err : EIO);
		return;
	}
	memcpy(target, p, len);
	target[len] = 0;
	fuse_reply_readlink(req, target);
}

static void ops_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct rim_req *rr = rim_req_new(req);
	if (rr)
		core_readlink(rr->rim->core, ino, readlink_done, rr);
}

/* One listing request: the page under construction. */
struct listing {
	struct rim_req rr;
	struct rim *rim;
	uint64_t dir, cookie;
	size_t len, cap;
	bool plus;
	char buf[];
};

/* Cookies 1 and 2 are "." and ".."; the core's are larger. */
enum { COOKIE_DOT = 1, COOKIE_DOTDOT = 2 };

static bool listing_add(struct listing *l, const char *name,
			const struct fuse_entry_param *e, uint64_t cookie)
{
	char *p = l->buf + l->len;
	size_t room = l->cap - l->len, need;
	if (l->plus)
		need = fuse_add_direntry_plus(l->rr.req, p, room, name, e,
					      (off_t)cookie);
	else
		need = fuse_add_direntry(l->rr.req, p, room, name, &e->attr,
					 (off_t)cookie);
	if (need > room)
		return false;
	l->len += need;
	return true;
}

static bool listing_entry(void *arg, const struct meta_dirent *d,
			  const struct meta_attr *a)
{
	struct listing *l = arg;
	struct fuse_entry_param e;
	char name[NAME_LEN_MAX + 1];
	if (d->name.len > NAME_LEN_MAX)
		return true;
	memcpy(name, d->name.p, d->name.len);
	name[d->name.len] = 0;
	if (a) {
		rim_entry(l->rim, a, &e);
	} else {
		memset(&e, 0, sizeof(e));
		e.attr.st_ino = d->ino;
		e.attr.st_mode = d->mode;
	}
	return listing_add(l, name, &e, d->cookie);
}

/* Nobody took the listing: its lookups are given back. */
static void listing_forget(const struct listing *l)
{
	struct fuse_direntplus d;
	for (size_t at = 0; at < l->len; at += FUSE_DIRENTPLUS_SIZE(&d)) {
		memcpy(&d, l->buf + at, FUSE_NAME_OFFSET_DIRENTPLUS);
		if (d.entry_out.nodeid)
			core_forget(l->rim->core, d.entry_out.nodeid, 1);
	}
}

static void listing_done(void *arg, int err)
{
	struct listing *l = arg;
	fuse_req_t req = rim_end(&l->rr);
	/* What was added counts as looked up: it is sent even after an error,
	 * which the next request meets again. */
	bool taken = false; /* not by one who was killed, or interrupted */
	if (req && err && l->len == 0)
		fuse_reply_err(req, -err);
	else if (req)
		taken = fuse_reply_buf(req, l->buf, l->len) == 0;
	if (!taken && l->plus)
		listing_forget(l);
	free(l);
}

static bool listing_dots(struct listing *l, uint64_t parent)
{
	struct fuse_entry_param e;
	memset(&e, 0, sizeof(e));
	e.attr.st_mode = S_IFDIR;
	/* The kernel counts no lookups of these two. */
	e.attr.st_ino = l->dir;
	if (l->cookie < COOKIE_DOT) {
		if (!listing_add(l, ".", &e, COOKIE_DOT))
			return false;
		l->cookie = COOKIE_DOT;
	}
	e.attr.st_ino = parent;
	if (!listing_add(l, "..", &e, COOKIE_DOTDOT))
		return false;
	l->cookie = 0; /* the core's first */
	return true;
}

static void listing_go(struct listing *l)
{
	core_readdir(l->rim->core, l->dir, l->cookie, l->cap, l->plus,
		     listing_entry, listing_done, l);
}

/* What the directory says of its parent, mostly from the cache. */
static void listing_parent(void *arg, int err, const struct meta_attr *a)
{
	struct listing *l = arg;
	if (!listing_dots(l, err || a->parent == 0 ? l->dir : a->parent))
		listing_done(l, 0);
	else
		listing_go(l);
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		 bool plus)
{
	struct listing *l = malloc(sizeof(*l) + size);
	if (!l) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	rim_begin(&l->rr, req);
	l->rim = l->rr.rim;
	l->dir = ino;
	l->len = 0;
	l->cap = size;
	l->plus = plus;
	l->cookie = (uint64_t)off == COOKIE_DOTDOT ? 0 : (uint64_t)off;
	if ((uint64_t)off < COOKIE_DOTDOT)
		core_getattr(l->rim->core, ino, listing_parent, l);
	else
		listing_go(l);
}

static void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			struct fuse_file_info *fi)
{
	(void)fi;
	list(req, ino, size, off, false);
}

static void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size,
			    off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	list(req, ino, size, off, true);
}

static void ops_opendir(fuse_req_t req, fuse_ino_t ino,
			struct fuse_file_info *fi)
{
	/* Nothing is kept per open directory; the kernel may keep the listing:
	 * it sees every change itself. But one that is being read while names
	 * change is complete some time after, with what was read before, and
	 * who has begun in between is then given the rest of it. Without its
	 * first page the kernel asks again. */
	fi->cache_readdir = !rim_of(req)->opt->shared;
	fi->keep_cache = fi->cache_readdir &&
			 core_listing_begins(rim_of(req)->core, ino);
	fuse_reply_open(req, fi);
}

static void ops_releasedir(fuse_req_t req, fuse_ino_t ino,
			   struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

static void ops_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
			 struct fuse_file_info *fi)
{
	(void)datasync;
	(void)fi;
	struct rim_req *rr = rim_req_new(req);
	if (rr)
		core_fsync_dir(rr->rim->core, ino, rim_cb_err, rr);
}

void ops_dir_fill(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = ops_lookup;
	ops->forget = ops_forget;
	ops->forget_multi = ops_forget_multi;
	ops->mknod = ops_mknod;
	ops->mkdir = ops_mkdir;
	ops->symlink = ops_symlink;
	ops->unlink = ops_unlink;
	ops->rmdir = ops_rmdir;
	ops->rename = ops_rename;
	ops->link = ops_link;
	ops->readlink = ops_readlink;
	ops->opendir = ops_opendir;
	ops->releasedir = ops_releasedir;
	ops->readdir = ops_readdir;
	ops->readdirplus = ops_readdirplus;
	ops->fsyncdir = ops_fsyncdir;
}
