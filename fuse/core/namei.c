/* Names: lookup, create. (unlink.c has unlink and link, rename.c rename.)
 *
 * What a change does to the attributes of its directory is known (times, link
 * count), so the cached ones follow when the answer comes: the kernel asks for
 * them after each change, and answers arrive in the order of execution.
 */
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

#include <fcntl.h>
#include <sys/stat.h>

void dir_changed(struct core *c, uint64_t dir, const struct meta_call *mc,
		 int nlink_delta)
{
	struct core_inode *in = inode_find(c, dir);
	dir_pages_changed(c, dir);
	if (!in)
		return;
	inode_mutated(in, mc->seq);
	in->listing_same = false;
	if (!in->attr_valid)
		return;
	in->attr.mtime_ns = mc->now_ns;
	in->attr.ctime_ns = mc->now_ns;
	in->attr.nlink += (uint32_t)nlink_delta;
}

/* ---- lookup ---- */

/* The request's own name: the body is kept until the end. */
static struct wire_str lookup_name(const struct meta_call *mc)
{
	struct meta_lookup l;
	struct wire_in in;
	wire_in_init(&in, mc->buf, mc->buf_len);
	meta_lookup_decode(&in, &l);
	return l.name;
}

static bool is_dot(struct wire_str s)
{
	return s.len <= 2 && memcmp(s.p, "..", s.len) == 0;
}

static void lookup_done(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t len)
{
	struct core *c = mc->c;
	struct wire_str name = lookup_name(mc);
	struct core_inode *in;
	struct meta_attr a;

	core_lock(c);
	if (!err)
		err = meta_take_attr(mc, body, len, &a, &in);
	if (!err)
		in->nlookup++;
	if (!is_dot(name) && (!err || err == -ENOENT) &&
	    !early_overtook(inode_find(c, mc->arg64), mc))
		name_cache_set(c, mc->arg64, name.p, name.len,
			       err ? 0 : a.ino);
	core_unlock(c);
	mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

static void getattr_counted(struct meta_call *mc, int err, const uint8_t *body,
			    uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in;
	struct meta_attr a;

	core_lock(c);
	if (!err)
		err = meta_take_attr(mc, body, len, &a, &in);
	/* Without a name and a handle it is gone, though metad may not have
	 * been told yet. */
	if (err == -ENOENT || (!err && a.nlink == 0 && in->open_count == 0))
		err = -ESTALE;
	if (!err)
		in->nlookup++;
	core_unlock(c);
	mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

/* ".": an inode found again by its number (open_by_handle_at). */
static void lookup_self(struct core *c, uint64_t ino, core_attr_cb cb,
			void *arg)
{
	struct wire_out o;
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_GETATTR, 8, &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	wire_put_u64(&o, ino);
	mc->done = getattr_counted;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
}

/* Known without metad that there is no such name? */
static bool lookup_absent(struct core *c, uint64_t parent, const char *name,
			  size_t len)
{
	core_lock(c);
	bool absent = meta_may_serve(c) && !c->opt.shared &&
		      dir_known_absent(c, parent, name, len);
	c->count.lookups++;
	c->count.lookups_local += absent;
	if (absent)
		name_cache_set(c, parent, name, len, 0);
	core_unlock(c);
	return absent;
}

void core_lookup(struct core *c, uint64_t parent, const char *name,
		 core_attr_cb cb, void *arg)
{
	size_t len = strlen(name);
	struct wire_out o;

	if (len > NAME_LEN_MAX) {
		cb(arg, -ENAMETOOLONG, NULL);
		return;
	}
	if (strcmp(name, ".") == 0) {
		lookup_self(c, parent, cb, arg);
		return;
	}
	if (strcmp(name, "..") != 0 && lookup_absent(c, parent, name, len)) {
		cb(arg, -ENOENT, NULL);
		return;
	}
	struct meta_lookup l = {
		.parent = parent, .name = { name, (uint32_t)len },
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_LOOKUP,
					     meta_lookup_size(&l), &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	meta_lookup_encode(&o, &l);
	mc->done = lookup_done;
	mc->arg64 = parent;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
}

/* ---- create ---- */

static void create_request(const struct meta_call *mc, struct meta_create *r)
{
	struct wire_in in;
	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_create_decode(&in, r);
}

/* Lock held. The caches follow a CREATE that comes to @a. */
static int create_apply(struct meta_call *mc, struct meta_attr *a,
			bool existed, struct core_inode **ret)
{
	struct core *c = mc->c;
	struct meta_create req;
	struct core_inode *ci;

	create_request(mc, &req);
	if (existed)
		dir_known_del(c, req.parent, req.name.p, req.name.len);
	else if (S_ISDIR(a->mode))
		dir_known_made(c, a->ino);
	if (!existed && !(req.flags & META_CREATE_TMPFILE))
		dir_changed(c, req.parent, mc, S_ISDIR(a->mode) ? 1 : 0);
	if (!(req.flags & META_CREATE_TMPFILE))
		name_cache_set(c, req.parent, req.name.p, req.name.len,
			       a->ino);
	ci = inode_get(c, a->ino);
	if (!ci)
		return -ENOMEM;
	if (!existed)
		/* nothing older can have changed it */
		ci->meta_pos_seq = ci->meta_need_seq = 0;
	inode_mutated(ci, mc->seq);
	inode_merge(c, ci, a, a);
	if ((req.flags & META_CREATE_LEASE) && S_ISREG(a->mode) &&
	    !ci->leased && ci->lease_back_seq < mc->seq) {
		ci->leased = true;
		/* What is left of a new inode is swept; of an old one only the
		 * lease tells that there may be something. */
		ci->lease_seq = existed ? mc->seq : 0;
	}
	if (req.flags & META_CREATE_TMPFILE)
		ci->orphan = true;
	*ret = ci;
	return 0;
}

/* Lock held. Takes the answer of a CREATE into the caches. */
static int create_take(struct meta_call *mc, const uint8_t *body, uint32_t len,
		       struct meta_attr *a, struct core_inode **ret,
		       bool *existed)
{
	struct meta_create_reply reply;
	struct wire_in in;
	int err = meta_reply_attr(body, len, a, &in);

	meta_create_reply_decode(&in, &reply);
	if (err || wire_in_known(&in))
		return -EIO;
	*existed = reply.existed;
	return create_apply(mc, a, reply.existed, ret);
}

/* Lock held, when all else of the answer has been taken. @a NULL: it failed. */
static void create_answered(struct meta_call *mc, const struct meta_attr *a)
{
	struct meta_create req;

	create_request(mc, &req);
	if (!req.ino)
		early_number_told(mc->c, a ? a->ino : 0);
	early_answered(mc, a ? 0 : -EIO);
}

/* Lock held. */
static void create_failed(const struct meta_call *mc)
{
	struct meta_create req;
	create_request(mc, &req);
	dir_known_del(mc->c, req.parent, req.name.p, req.name.len);
}

static void create_done(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in;
	struct meta_attr a;
	bool existed;

	core_lock(c);
	if (err)
		create_failed(mc);
	else
		err = create_take(mc, body, len, &a, &in, &existed);
	if (!err && mc->u.attr_cb)
		in->nlookup++;
	create_answered(mc, err ? NULL : &a);
	core_unlock(c);
	if (mc->u.attr_cb)
		mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

static int create_check(const struct core_create *p)
{
	if (p->name && strlen(p->name) > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	if (p->target && strlen(p->target) > SYMLINK_LEN_MAX)
		return -ENAMETOOLONG;
	return 0;
}

static void create_fields(const struct core_create *p, struct meta_create *r)
{
	const char *name = p->name ? p->name : "";
	const char *target = p->target ? p->target : "";

	*r = (struct meta_create){
		.parent = p->parent,
		.name = { name, (uint32_t)strlen(name) },
		.mode = p->mode,
		.umask = p->umask,
		.uid = p->uid,
		.gid = p->gid,
		.rdev = p->rdev,
		.flags = p->name ? 0 : META_CREATE_TMPFILE,
		.target = { target, (uint32_t)strlen(target) },
	};
}

static struct meta_call *create_call(struct core *c,
				     const struct core_create *p,
				     struct wire_out *o)
{
	struct meta_create r;

	create_fields(p, &r);
	return meta_call_new(c, WIRE_OP_META_CREATE,
			     meta_create_size(&r), o);
}

/* Lock held. */
static void create_queue(struct meta_call *mc, const struct core_create *p,
			 uint32_t flags, struct wire_out *o)
{
	struct meta_create r;

	create_fields(p, &r);
	r.flags |= flags;
	r.ino = early_number(mc->c);
	meta_create_encode(o, &r);
	mc->c->count.creates++;
	if (p->name)
		dir_known_add(mc->c, p->parent, p->name, strlen(p->name));
	meta_call_queue(mc, o);
}

/* Lock held. Makes it without waiting for metad, if that can be: *@a is what
 * comes of it. Returns its inode; NULL: metad is to be asked. */
static struct core_inode *create_early(struct meta_call *mc,
				       const struct core_create *p,
				       uint32_t flags, struct wire_out *o,
				       struct meta_attr *a)
{
	struct core_inode *in;

	if (!early_create(mc->c, p, a, &in))
		return NULL;
	mc->early = true;
	mc->done = early_create_done;
	create_queue(mc, p, flags | META_CREATE_EXCL, o);
	a->atime_ns = a->mtime_ns = a->ctime_ns = a->btime_ns = mc->now_ns;
	(void)create_apply(mc, a, false, &in); /* it is in the table */
	early_made(in, mc);
	early_mark(inode_find(mc->c, p->parent), mc,
		   EARLY_NAME | EARLY_MTIME);
	in->nlookup++;
	return in;
}

void core_create(struct core *c, const struct core_create *p, core_attr_cb cb,
		 void *arg)
{
	struct meta_attr a;
	struct wire_out o;
	struct meta_call *mc;
	int err = create_check(p);

	if (err) {
		cb(arg, err, NULL);
		return;
	}
	mc = create_call(c, p, &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	core_lock(c);
	if (create_early(mc, p, 0, &o, &a)) {
		core_unlock(c);
		cb(arg, 0, &a);
		return;
	}
	mc->done = create_done;
	mc->timed_out = meta_attr_timed_out;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	create_queue(mc, p, 0, &o);
	core_unlock(c);
}

/* create + open: the handle is made before, so that nothing can fail after
 * the file exists but for the truncation of an existing one. */
struct create_open {
	struct core *c;
	struct core_file *f;
	struct core_file **ret;
	core_attr_cb cb;
	void *arg;
};

static void create_open_end(struct create_open *co, int err,
			    const struct meta_attr *a)
{
	if (co->cb) {
		if (!err)
			*co->ret = co->f;
		co->cb(co->arg, err, err ? NULL : a);
	}
	/* Nobody waits any more, or it went wrong: the handle goes. */
	if (!co->cb || err) {
		if (co->f->in)
			core_release(co->c, co->f);
		else
			free(co->f);
	}
	free(co);
}

static void create_truncated(void *arg, int err, const struct meta_attr *a)
{
	struct create_open *co = arg;
	core_lock(co->c);
	if (!err && co->cb)
		co->f->in->nlookup++;
	core_unlock(co->c);
	create_open_end(co, err, a);
}

static void create_open_done(struct meta_call *mc, int err,
			     const uint8_t *body, uint32_t len)
{
	struct core *c = mc->c;
	struct create_open *co = mc->arg;
	struct core_inode *in;
	struct meta_attr a;
	bool existed = false, truncate;

	core_lock(c);
	if (err)
		create_failed(mc);
	else
		err = create_take(mc, body, len, &a, &in, &existed);
	if (!err)
		file_attach(c, co->f, in);
	truncate = !err && existed && (co->f->flags & O_TRUNC) &&
		   S_ISREG(a.mode);
	if (!err && !truncate && co->cb)
		in->nlookup++;
	create_answered(mc, err ? NULL : &a);
	core_unlock(c);
	if (truncate)
		core_truncate(c, a.ino, 0,
			      !(co->f->flags & CORE_OPEN_KEEP_PRIV),
			      create_truncated, co);
	else
		create_open_end(co, err, &a);
}

static void create_open_timed_out(struct meta_call *mc)
{
	struct create_open *co = mc->arg;
	core_attr_cb cb = co->cb;
	co->cb = NULL;
	cb(co->arg, -ETIMEDOUT, NULL);
}

void core_create_open(struct core *c, const struct core_create *p,
		      struct core_file **file, core_attr_cb cb, void *arg)
{
	uint32_t flags = META_CREATE_OPEN;
	struct create_open *co;
	struct core_inode *in;
	struct meta_call *mc;
	struct meta_attr a;
	struct wire_out o;
	int err = create_check(p);

	if (err) {
		cb(arg, err, NULL);
		return;
	}
	if (p->open_flags & O_EXCL)
		flags |= META_CREATE_EXCL;
	/* Of an existing file another mount may have the lease. */
	if ((p->open_flags & O_ACCMODE) != O_RDONLY && !c->opt.shared)
		flags |= META_CREATE_LEASE;
	co = calloc(1, sizeof(*co));
	mc = create_call(c, p, &o);
	if (!co || !mc || !(co->f = file_new(p->open_flags))) {
		free(co);
		meta_call_free(mc);
		cb(arg, -ENOMEM, NULL);
		return;
	}
	co->c = c;
	co->ret = file;
	co->cb = cb;
	co->arg = arg;
	core_lock(c);
	in = create_early(mc, p, flags, &o, &a);
	if (in) {
		file_attach(c, co->f, in);
		core_unlock(c);
		create_open_end(co, 0, &a);
		return;
	}
	mc->done = create_open_done;
	mc->timed_out = create_open_timed_out;
	mc->arg = co;
	create_queue(mc, p, flags, &o);
	core_unlock(c);
}
