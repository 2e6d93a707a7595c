/* Handlers of open files: open, read, write, fsync, fallocate, lseek. */
#include "fuse/rim.h"

#include <fcntl.h>
#include <sys/stat.h>

static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dlist files = { &files, &files };

struct rim_file *rim_file_new(void)
{
	struct rim_file *f = calloc(1, sizeof(*f));

	if (f) {
		pthread_mutex_lock(&files_lock);
		dlist_add(&files, &f->node);
		pthread_mutex_unlock(&files_lock);
	}
	return f;
}

void rim_file_free(struct rim_file *f)
{
	pthread_mutex_lock(&files_lock);
	dlist_del(&f->node);
	pthread_mutex_unlock(&files_lock);
	free(f);
}

void rim_files_fini(void)
{
	struct dlist *l, *save;

	dlist_for(l, save, &files)
		free(dlist_entry(l, struct rim_file, node));
}

/* open, create and tmpfile: what is needed to reply. */
struct opening {
	struct rim_req rr;
	struct fuse_file_info fi;
	struct rim_file *f;
	struct meta_attr created; /* a new file's; else zeros */
};

static void opening_flags(struct rim *r, struct fuse_file_info *fi)
{
	/* One mount: nothing changes behind the kernel's back. */
	fi->keep_cache = !r->opt->shared;
	if (r->opt->shared)
		fi->direct_io = fi->parallel_direct_writes = 1;
	/* O_DIRECT by itself goes through the kernel's direct path, which
	 * takes the inode's lock exclusively; as FOPEN_DIRECT_IO files writes
	 * inside the file run in parallel. The kernel writes back and drops
	 * cached pages of the range first, and mmap of the same file stays
	 * allowed (FUSE_DIRECT_IO_ALLOW_MMAP), so the two views agree. */
	if (fi->flags & O_DIRECT) {
		fi->direct_io = 1;
		fi->parallel_direct_writes = 1;
	}
}

static struct opening *opening_new(fuse_req_t req,
				   const struct fuse_file_info *fi)
{
	struct opening *o = calloc(1, sizeof(*o));
	if (!o || !(o->f = rim_file_new())) {
		free(o);
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	rim_begin(&o->rr, req);
	o->f->writes = (fi->flags & O_ACCMODE) != O_RDONLY;
	o->fi = *fi;
	o->fi.fh = (uint64_t)(uintptr_t)o->f;
	opening_flags(rim_of(req), &o->fi);
	return o;
}

/* Nobody waits for it any more, or it is not durable. */
static void opening_undo(struct opening *o)
{
	core_release(o->rr.rim->core, o->f->file);
	if (o->created.ino)
		core_forget(o->rr.rim->core, o->created.ino, 1);
	rim_file_free(o->f);
}

static void opening_cache(struct opening *o)
{
	enum core_cache cache = core_file_cache(o->rr.rim->core, o->f->file);

	if (cache == CORE_CACHE_NONE)
		o->fi.direct_io = 1;
	else if (cache == CORE_CACHE_DROP)
		o->fi.keep_cache = 0;
}

static void opened(void *arg, int err)
{
	struct opening *o = arg;
	fuse_req_t req = rim_end(&o->rr);
	if (err) {
		if (req)
			fuse_reply_err(req, -err);
		rim_file_free(o->f);
	} else {
		if (!o->fi.direct_io)
			opening_cache(o);
		rim_file_sent(o->f);
		if (!req || fuse_reply_open(req, &o->fi) == -ENOENT)
			opening_undo(o);
	}
	free(o);
}

static void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct opening *o = opening_new(req, fi);
	int flags = fi->flags;
	if (!o)
		return;
	if (o->f->writes)
		rim_refused_forget(ino);
	if (flags & O_TRUNC)
		o->rr.changes[0] = ino;
	core_open(rim_of(req)->core, ino, flags, &o->f->file, opened, o);
}

static void create_reply(void *arg, int err)
{
	struct opening *o = arg;
	struct fuse_entry_param e;
	fuse_req_t req = rim_end(&o->rr);
	rim_entry(o->rr.rim, &o->created, &e);
	if (o->created.flags & META_ATTR_LOG)
		o->fi.direct_io = 1;
	rim_file_sent(o->f);
	if (req && err)
		fuse_reply_err(req, -err);
	if (err || !req || fuse_reply_create(req, &e, &o->fi) == -ENOENT)
		opening_undo(o);
	free(o);
}

static void created(void *arg, int err, const struct meta_attr *a)
{
	struct opening *o = arg;
	struct rim *r = o->rr.rim;
	rim_names_late(r, err);
	if (err) {
		fuse_req_t req = rim_end(&o->rr);
		if (req)
			fuse_reply_err(req, -err);
		rim_file_free(o->f);
		free(o);
		return;
	}
	o->created = *a;
	if (r->opt->dirsync)
		core_fsync_dir(r->core, FUSE_ROOT_ID, create_reply, o);
	else
		create_reply(o, 0);
}

static void create_open(fuse_req_t req, fuse_ino_t parent, const char *name,
			mode_t mode, struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct opening *o = opening_new(req, fi);
	if (!o)
		return;
	struct core_create p = {
		.parent = parent, .name = name,
		.mode = S_IFREG | (mode & 07777u), .umask = ctx->umask,
		.uid = ctx->uid, .gid = ctx->gid, .open_flags = fi->flags,
	};
	o->rr.changes[0] = parent;
	o->rr.names = true;
	core_create_open(rim_of(req)->core, &p, &o->f->file, created, o);
}

static void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		       mode_t mode, struct fuse_file_info *fi)
{
	create_open(req, parent, name, mode, fi);
}

static void ops_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode,
			struct fuse_file_info *fi)
{
	create_open(req, parent, NULL, mode, fi);
}

static void ops_release(fuse_req_t req, fuse_ino_t ino,
			struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	struct rim_file *f = file_of(fi);
	rim_file_locks_closed(r, f);
	if (f->writes)
		rim_refused_forget(ino);
	core_release(r->core, f->file);
	rim_file_free(f);
	fuse_reply_err(req, 0);
}

struct flushing {
	fuse_req_t req;
	struct core_file *f; /* open until the reply */
};

static void flush_done(void *arg, int err)
{
	struct flushing *g = arg;
	(void)err; /* locks that metad does not drop go with the session */
	fuse_reply_err(g->req, -core_flush_error(rim_of(g->req)->core, g->f));
	free(g);
}

/* Who is told that close() has returned may ask for its locks elsewhere. */
static void ops_flush(fuse_req_t req, fuse_ino_t ino,
		      struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	struct flushing *g = core_locks_shared(r->core) ? malloc(sizeof(*g)) :
							  NULL;
	/* Locks of our own table are gone at once; without memory nobody waits
	 * for metad. */
	if (!g) {
		rim_file_flushed(r, file_of(fi), ino, fi->lock_owner, NULL,
				 NULL);
		fuse_reply_err(req, -core_flush_error(r->core,
						      core_file_of(fi)));
		return;
	}
	*g = (struct flushing){ req, core_file_of(fi) };
	int err = rim_file_flushed(r, file_of(fi), ino, fi->lock_owner,
				   flush_done, g);
	if (err != -EINPROGRESS)
		flush_done(g, 0);
}

static void read_done(void *arg, int err, const struct iovec *iov,
		      int iov_count, size_t len)
{
	fuse_req_t req = rim_req_take(arg);
	if (!req)
		return;
	if (err)
		fuse_reply_err(req, -err);
	else if (len == 0)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_iov(req, iov, iov_count);
}

/* -o writeback: of a read past its cache the kernel hands over what it holds of
 * that range, and only then asks us; what ends here may be a hole in a file
 * that another handle has made longer. */
struct reading {
	struct rim_req *rr;
	uint64_t ino, off;
	size_t size;
};

static void read_flushed(void *arg, int err)
{
	struct reading *g = arg;
	if (err)
		read_done(g->rr, err, NULL, 0, 0);
	else
		core_read_again(g->rr->rim->core, g->ino, g->off, g->size,
				read_done, g->rr);
	free(g);
}

static void read_direct_done(void *arg, int err, const struct iovec *iov,
			     int iov_count, size_t len)
{
	struct reading *g = arg;
	struct rim *r = g->rr->rim;
	if (!err && len < g->size &&
	    core_open_for_cached_write(r->core, g->ino)) {
		kflush(r, g->ino, read_flushed, g);
		return;
	}
	read_done(g->rr, err, iov, iov_count, len);
	free(g);
}

static void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	/* What the kernel reads into its cache has no owner, and its pages are
	 * locked till it is answered: never to be waited for. */
	bool direct = r->writeback && fi->lock_owner != 0;
	struct reading *g = direct ? malloc(sizeof(*g)) : NULL;
	if (direct && !g) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	struct rim_req *rr = rim_req_new(req);
	if (!rr) {
		free(g);
		return;
	}
	rr->kind = RIM_READ;
	if (g)
		*g = (struct reading){ .rr = rr, .ino = ino,
				       .off = (uint64_t)off, .size = size };
	core_read(r->core, core_file_of(fi), (uint64_t)off, size,
		  g ? read_direct_done : read_done, g ? (void *)g : rr);
}

struct writing {
	struct rim_req rr;
	fuse_ino_t ino;
	size_t size;
	int sync; /* O_DSYNC, O_SYNC (which has its bit): made so by us */
	bool cached; /* the kernel's page, of a write that has returned */
};

static void written(void *arg, int err)
{
	struct writing *w = arg;
	int sync = w->sync;
	if (!err && sync) {
		w->sync = 0;
		core_fsync(w->rr.rim->core, w->ino, sync == O_DSYNC, written,
			   w);
		return;
	}
	struct rim *r = w->rr.rim;
	fuse_req_t req = rim_end(&w->rr);
	if (req && err)
		fuse_reply_err(req, -err);
	else if (req)
		fuse_reply_write(req, w->size);
	if (err == -ENOSPC && w->cached)
		rim_refused(r, w->ino);
	free(w);
}

/* Of a killed program the kernel has been told that nothing was written: it
 * would never ask again for what came after all. */
bool rim_write_wanted(void *arg)
{
	/* a struct rim_req of a copy, or what begins with one */
	_Static_assert(offsetof(struct writing, rr) == 0, "of a write");
	return rim_wanted(arg);
}

static void ops_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		      size_t size, off_t off, struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	struct writing *w = malloc(sizeof(*w));
	uint32_t flags = 0;
	if (!w) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	rim_begin(&w->rr, req);
	w->rr.kind = RIM_WRITE;
	w->rr.changes[0] = ino;
	w->size = size;
	w->ino = ino;
	w->sync = 0;
	w->cached = fi->writepage && r->writeback;
	/* The kernel syncs what it writes through its cache, and leaves that
	 * to us for a handle of direct I/O. Buffered till then, the bytes and
	 * the sync are one frame. */
	flags |= CORE_WRITE_ASK;
	if (fi->writepage)
		flags |= CORE_WRITE_CACHE;
	else if ((fi->flags & O_DIRECT) || r->opt->shared)
		w->sync = fi->flags & O_SYNC; /* on a sync mount, too */
	if (!fi->writepage && (fi->flags & O_DIRECT) && !w->sync)
		flags |= CORE_WRITE_DIRECT;
	/* O_APPEND: the kernel knows the end of file, and puts appends there;
	 * and leaves them where they are with RWF_NOAPPEND. Beside other
	 * mounts it knows no end. */
	if (r->opt->shared && (fi->flags & O_APPEND))
		flags |= CORE_WRITE_APPEND;
	if (fi->kill_suidgid) {
		flags |= CORE_WRITE_KILLPRIV;
		rim_drop_sgid(req, ino);
	}
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf,
			     .iov_len = size };
	core_write(r->core, core_file_of(fi), (uint64_t)off, &iov, 1, size,
		   flags, written, w);
}

struct syncing {
	struct rim_req *rr;
	fuse_ino_t ino;
};

/* With its write-back cache the kernel never asks for st_blocks again while
 * the file is open: what it knows is dropped. (Attributes alone: that does not
 * wait for anything, pages would.) */
static void synced_writeback(void *arg, int err)
{
	struct syncing *s = arg;
	fuse_lowlevel_notify_inval_inode(s->rr->rim->se, s->ino, -1, 0);
	rim_cb_err(s->rr, err);
	free(s);
}

static void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		      struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	struct rim_req *rr = rim_req_new(req);
	struct syncing *s = r->writeback && !datasync ? malloc(sizeof(*s)) :
							NULL;
	(void)fi;
	if (!rr) {
		free(s);
		return;
	}
	rr->kind = RIM_SYNC;
	if (!s) {
		core_fsync(r->core, ino, datasync != 0, rim_cb_err, rr);
		return;
	}
	s->rr = rr;
	s->ino = ino;
	core_fsync(r->core, ino, false, synced_writeback, s);
}

struct falloc {
	struct rim_req rr;
	uint64_t ino, off, len;
	int mode;
	bool kill; /* set-id bits may be gone */
};

static void fallocated(void *arg, int err)
{
	struct falloc *f = arg;
	fuse_req_t req = rim_end(&f->rr);
	if (f->kill)
		rim_attr_changed(f->rr.rim, f->ino);
	if (req)
		fuse_reply_err(req, -err);
	else if (f->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		/* The kernel, told EINTR, has kept what it had. */
		rim_content_changed(f->rr.rim, f->ino, f->off, f->len);
	free(f);
}

static void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
			  off_t len, struct fuse_file_info *fi)
{
	(void)fi;
	if (off < 0 || len <= 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	/* The kernel leaves set-id bits to us here and says nothing of who
	 * asks; only a caller without CAP_FSETID loses them. */
	bool kill = rim_caller_kills_priv(req);
	if (kill)
		rim_drop_sgid(req, ino);
	struct falloc *f = calloc(1, sizeof(*f));
	if (!f) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	f->ino = ino;
	f->off = (uint64_t)off;
	f->len = (uint64_t)len;
	f->mode = mode;
	f->kill = kill;
	rim_begin(&f->rr, req);
	f->rr.changes[0] = ino;
	core_fallocate(f->rr.rim->core, ino, mode, f->off, f->len, kill,
		       fallocated, f);
}

struct seeking {
	struct rim_req rr;
	fuse_ino_t ino;
	int whence;
	uint64_t off, from;
};

static void sought(void *arg, int err)
{
	struct seeking *s = arg;
	fuse_req_t req = rim_end(&s->rr);
	if (req && err)
		fuse_reply_err(req, -err);
	else if (req)
		fuse_reply_lseek(req, (off_t)s->off);
	free(s);
}

static void seek_go(void *arg, int err)
{
	struct seeking *s = arg;
	if (err)
		sought(s, err);
	else
		core_seek(s->rr.rim->core, s->ino, s->from, s->whence,
			  &s->off, sought, s);
}

static void ops_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		      struct fuse_file_info *fi)
{
	struct rim *r = rim_of(req);
	(void)fi;
	struct seeking *s = calloc(1, sizeof(*s));
	if (!s) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	rim_begin(&s->rr, req);
	s->ino = ino;
	s->whence = whence;
	s->from = (uint64_t)off;
	/* The last writer's close has left nothing in the kernel. Without its
	 * write-back cache that is what was stored into mappings. */
	if (off < 0)
		sought(s, -ENXIO);
	else if (core_open_for_write(r->core, ino, !r->writeback))
		kflush(r, ino, seek_go, s);
	else
		seek_go(s, 0);
}

static void copied(void *arg, int err, size_t done)
{
	fuse_req_t req = rim_req_take(arg);
	if (req && err)
		fuse_reply_err(req, -err);
	else if (req)
		fuse_reply_write(req, done);
}

/* The kernel has refused overlaps, O_APPEND and what is too long, written back
 * what it had of both ranges, and drops its pages of the second. */
static void ops_copy(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
		     struct fuse_file_info *fi_in, fuse_ino_t ino_out,
		     off_t off_out, struct fuse_file_info *fi_out, size_t len,
		     int flags)
{
	struct core_copy y = {
		.in = file_of(fi_in)->file, .out = file_of(fi_out)->file,
		.off_in = (uint64_t)off_in, .off_out = (uint64_t)off_out,
		.len = len, .killpriv = rim_caller_kills_priv(req),
	};
	(void)ino_in;
	(void)flags;
	if (y.killpriv)
		rim_drop_sgid(req, ino_out);
	struct rim_req *rr = rim_req_new(req);
	if (rr) {
		rr->changes[0] = ino_out;
		core_copy(rr->rim->core, &y, copied, rr);
	}
}

void ops_file_fill(struct fuse_lowlevel_ops *ops)
{
	ops->open = ops_open;
	ops->create = ops_create;
	ops->tmpfile = ops_tmpfile;
	ops->release = ops_release;
	ops->flush = ops_flush;
	ops->read = ops_read;
	ops->write = ops_write;
	ops->fsync = ops_fsync;
	ops->fallocate = ops_fallocate;
	ops->lseek = ops_lseek;
	ops->copy_file_range = ops_copy;
}
