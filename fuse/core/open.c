/* Handles: open and release. Under the leases of one mount an open is local;
 * only a handle's end can have something to tell metad.
 */
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

#include <fcntl.h>
#include <sys/stat.h>

#define RET_LEASE_MS 500u /* a file may soon be opened again */

struct core_file *file_new(int flags)
{
	struct core_file *f = calloc(1, sizeof(*f));
	if (f)
		f->flags = flags;
	return f;
}

static bool file_writes(const struct core_file *f)
{
	return (f->flags & O_ACCMODE) != O_RDONLY;
}

static bool file_writes_direct(const struct core_file *f)
{
	return file_writes(f) && (f->flags & O_DIRECT);
}

void file_attach(struct core *c, struct core_file *f, struct core_inode *in)
{
	dlist_add(&c->files, &f->node);
	f->in = in;
	f->error_seen = in->error_count;
	in->open_count++;
	if (file_writes(f))
		in->write_open_count++;
	if ((f->flags & O_ACCMODE) == O_RDWR)
		in->rdwr_open_count++;
	if (file_writes_direct(f)) {
		in->direct_open_count++;
		in->direct_written = true;
	}
}

uint64_t core_file_ino(const struct core_file *f)
{
	return f->in->ino;
}

bool core_open_for_write(struct core *c, uint64_t ino, bool mapped)
{
	core_lock(c);
	const struct core_inode *in = inode_find(c, ino);
	bool yes = in && (mapped ? in->rdwr_open_count :
				   in->write_open_count) > 0;
	core_unlock(c);
	return yes;
}

/* Lock held. */
static bool writes_cached(const struct core_inode *in)
{
	return in->write_open_count > in->direct_open_count;
}

bool core_open_for_cached_write(struct core *c, uint64_t ino)
{
	core_lock(c);
	const struct core_inode *in = inode_find(c, ino);
	bool yes = in && writes_cached(in);
	core_unlock(c);
	return yes;
}

enum core_cache core_file_cache(struct core *c, const struct core_file *f)
{
	struct core_inode *in = f->in;
	enum core_cache cache = CORE_CACHE_KEEP;

	core_lock(c);
	/* Nothing of a log file waits in the kernel. */
	if (in->attr.flags & META_ATTR_LOG)
		cache = CORE_CACHE_NONE;
	/* What a writer through the cache has appended may not be known here:
	 * a read past the cache would have to ask for it (ops_file.c). */
	else if (in->direct_open_count > 0 && !writes_cached(in))
		cache = CORE_CACHE_NONE;
	else if (in->direct_written)
		cache = CORE_CACHE_DROP;
	in->direct_written = in->direct_open_count > 0;
	core_unlock(c);
	return cache;
}

struct open_op {
	struct core *c;
	struct core_file *f;
	struct core_file **ret;
	core_cb cb;
	void *arg;
};

static void open_end(struct open_op *op, int err)
{
	if (!err)
		*op->ret = op->f;
	else if (op->f->in)
		core_release(op->c, op->f);
	else
		free(op->f);
	op->cb(op->arg, err);
	free(op);
}

static void open_truncated(void *arg, int err, const struct meta_attr *a)
{
	(void)a;
	open_end(arg, err);
}

/* Lock held; releases it. */
static void open_attached(struct open_op *op, struct core_inode *in)
{
	uint64_t ino = in->ino;
	/* an empty file too: its times move */
	bool truncate = (op->f->flags & O_TRUNC) && S_ISREG(in->attr.mode);

	file_attach(op->c, op->f, in);
	/* Reads that the kernel answers from its cache are not seen here: who
	 * opens a file only to read it is taken to do so. */
	if ((op->f->flags & (O_ACCMODE | O_NOATIME | O_TRUNC)) == O_RDONLY &&
	    inode_touch_atime(op->c, in))
		inode_tell_changed(op->c, ino);
	core_unlock(op->c);
	if (truncate)
		core_truncate(op->c, ino, 0,
			      !(op->f->flags & CORE_OPEN_KEEP_PRIV),
			      open_truncated, op);
	else
		open_end(op, 0);
}

static void open_got(void *arg, int err, const struct meta_attr *a)
{
	struct open_op *op = arg;
	if (err) {
		open_end(op, err);
		return;
	}
	core_lock(op->c);
	struct core_inode *in = inode_get(op->c, a->ino);
	if (in && !in->attr_valid)
		inode_merge(op->c, in, a, NULL);
	if (!in) {
		core_unlock(op->c);
		open_end(op, -ENOMEM);
		return;
	}
	open_attached(op, in);
}

void core_open(struct core *c, uint64_t ino, int flags,
	       struct core_file **file, core_cb cb, void *arg)
{
	struct open_op *op = calloc(1, sizeof(*op));
	if (!op || !(op->f = file_new(flags))) {
		free(op);
		cb(arg, -ENOMEM);
		return;
	}
	op->c = c;
	op->ret = file;
	op->cb = cb;
	op->arg = arg;
	core_lock(c);
	c->count.opens++;
	struct core_inode *in = inode_find(c, ino);
	if (in && in->attr_valid && meta_may_serve(c) && !c->opt.shared) {
		open_attached(op, in);
		return;
	}
	core_unlock(c);
	core_getattr(c, ino, open_got, op);
}

static void release_flushed(void *arg, int err)
{
	(void)arg;
	(void)err; /* kept at the inode for the next fsync or close */
}

void core_release(struct core *c, struct core_file *f)
{
	struct core_inode *in = f->in;
	uint64_t ino = in->ino;
	bool flush = false;

	core_lock(c);
	dlist_del(&f->node);
	assert(in->open_count > 0);
	in->open_count--;
	if (file_writes(f))
		in->write_open_count--;
	if ((f->flags & O_ACCMODE) == O_RDWR)
		in->rdwr_open_count--;
	if (file_writes_direct(f))
		in->direct_open_count--;
	if (in->write_open_count == 0)
		log_unheld(c, in);
	if (in->orphan && in->open_count == 0) {
		ret_unheld(c, in);
	} else if (file_writes(f) && in->write_open_count == 0) {
		bool clean = !in->wb || wb_inode_clean(in);
		if (in->leased && clean)
			ret_queue(c, in, RET_LEASE_MS);
		flush = in->emptied && !clean;
		in->emptied = false;
	}
	if (in->open_count == 0)
		inode_maybe_free(c, in);
	core_unlock(c);
	free(f);
	if (flush)
		core_fsync(c, ino, true, release_flushed, NULL);
}
