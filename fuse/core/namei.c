/* Names: lookup, create, unlink, link. (rename.c has rename.)
 *
 * What a change does to the attributes of its directory is known (times, link
 * count), so the cached ones follow when the answer comes: the kernel asks for
 * them after each change, and answers arrive in the order of execution.
 */
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
		err = meta_take_attr(c, body, len, &a, &in);
	if (!err)
		in->nlookup++;
	if (!is_dot(name) && (!err || err == -ENOENT))
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
		err = meta_take_attr(c, body, len, &a, &in);
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
	struct meta_lookup l = { parent, { name, (uint32_t)len } };
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

/* Lock held. Takes the answer of a CREATE into the caches. */
static int create_take(struct meta_call *mc, const uint8_t *body, uint32_t len,
		       struct meta_attr *a, struct core_inode **ret,
		       bool *existed)
{
	struct core *c = mc->c;
	struct meta_create_reply reply;
	struct meta_create req;
	struct core_inode *ci;
	struct wire_in in;
	int err = meta_reply_attr(body, len, a, &in);

	meta_create_reply_decode(&in, &reply);
	if (err || wire_in_end(&in))
		return -EIO;
	*existed = reply.existed;
	create_request(mc, &req);
	if (reply.existed)
		dir_known_del(c, req.parent, req.name.p, req.name.len);
	else if (S_ISDIR(a->mode))
		dir_known_made(c, a->ino);
	if (!reply.existed && !(req.flags & META_CREATE_TMPFILE))
		dir_changed(c, req.parent, mc, S_ISDIR(a->mode) ? 1 : 0);
	if (!(req.flags & META_CREATE_TMPFILE))
		name_cache_set(c, req.parent, req.name.p, req.name.len,
			       a->ino);
	ci = inode_get(c, a->ino);
	if (!ci)
		return -ENOMEM;
	if (!reply.existed)
		/* nothing older can have changed it */
		ci->meta_pos_seq = ci->meta_need_seq = 0;
	inode_mutated(ci, mc->seq);
	inode_merge(c, ci, a, a);
	if ((req.flags & META_CREATE_LEASE) && S_ISREG(a->mode) &&
	    !ci->leased && ci->lease_back_seq < mc->seq) {
		ci->leased = true;
		/* What is left of a new inode is swept; of an old one only the
		 * lease tells that there may be something. */
		ci->lease_seq = reply.existed ? mc->seq : 0;
	}
	if (req.flags & META_CREATE_TMPFILE)
		ci->orphan = true;
	*ret = ci;
	return 0;
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

static struct meta_call *create_call(struct core *c,
				     const struct core_create *p,
				     uint32_t flags, struct wire_out *o)
{
	const char *name = p->name ? p->name : "";
	const char *target = p->target ? p->target : "";
	struct meta_create r = {
		.parent = p->parent,
		.name = { name, (uint32_t)strlen(name) },
		.mode = p->mode,
		.umask = p->umask,
		.uid = p->uid,
		.gid = p->gid,
		.rdev = p->rdev,
		.flags = flags | (p->name ? 0 : META_CREATE_TMPFILE),
		.target = { target, (uint32_t)strlen(target) },
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_CREATE,
					     meta_create_size(&r), o);
	if (mc)
		meta_create_encode(o, &r);
	return mc;
}

/* Lock held. */
static void create_queue(struct meta_call *mc, const struct core_create *p,
			 struct wire_out *o)
{
	mc->c->count.creates++;
	if (p->name)
		dir_known_add(mc->c, p->parent, p->name, strlen(p->name));
	meta_call_queue(mc, o);
}

void core_create(struct core *c, const struct core_create *p, core_attr_cb cb,
		 void *arg)
{
	struct wire_out o;
	struct meta_call *mc;
	int err = create_check(p);

	if (err) {
		cb(arg, err, NULL);
		return;
	}
	mc = create_call(c, p, 0, &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	mc->done = create_done;
	mc->timed_out = meta_attr_timed_out;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	create_queue(mc, p, &o);
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
	struct meta_call *mc;
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
	mc = create_call(c, p, flags, &o);
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
	mc->done = create_open_done;
	mc->timed_out = create_open_timed_out;
	mc->arg = co;
	core_lock(c);
	create_queue(mc, p, &o);
	core_unlock(c);
}

/* ---- unlink ---- */

/* metad has set the ctime; a write under the lease may be later. */
void inode_set_ctime(struct core_inode *in, int64_t now_ns)
{
	if (!inode_owns(in) || in->attr.ctime_ns < now_ns)
		in->attr.ctime_ns = now_ns;
}

/* Lock held. An inode has lost a name. */
void inode_lost_name(struct core *c, uint64_t ino, uint32_t nlink,
		     const struct meta_call *mc)
{
	struct core_inode *in = inode_find(c, ino);

	if (in) {
		inode_mutated(in, mc->seq);
		if (in->attr_valid) {
			in->attr.nlink = nlink;
			inode_set_ctime(in, mc->now_ns);
		}
	}
	if (nlink == 0) {
		dir_pages_changed(c, ino);
		dir_known_gone(c, ino);
		ret_orphan(c, ino);
	}
}

static void unlink_done(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t len)
{
	struct core *c = mc->c;
	struct meta_unlink req;
	struct meta_unlink_reply r;
	struct wire_in in;

	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_unlink_decode(&in, &req);
	if (!err && meta_unlink_reply_parse(body, len, &r))
		err = -EIO;
	core_lock(c);
	if (!err) {
		dir_changed(c, req.parent, mc,
			    req.flags & META_UNLINK_DIR ? -1 : 0);
		dir_known_del(c, req.parent, req.name.p, req.name.len);
		inode_lost_name(c, r.ino, r.nlink, mc);
	}
	if (!err || err == -ENOENT)
		name_cache_set(c, req.parent, req.name.p, req.name.len, 0);
	core_unlock(c);
	if (mc->u.cb)
		mc->u.cb(mc->u_arg, err);
}

/* One that has to wait for logs (log_order.c). */
struct unlink_later {
	struct core_waiter wait;
	struct meta_call *mc;
	struct wire_out o;
};

static void unlink_late(struct core_deferred *d)
{
	struct meta_call *mc = container_of(d, struct meta_call, def);

	meta_cb_timed_out(mc);
	meta_call_free(mc);
}

/* A soft mount does not wait longer; then the name stays: it must not go
 * before the logs are in the blocks. */
static void unlink_go(struct core_waiter *w, int err)
{
	struct unlink_later *u = container_of(w, struct unlink_later, wait);

	if (err) {
		u->mc->def.fn = unlink_late;
		core_defer(u->mc->c, &u->mc->def);
	} else {
		meta_call_queue(u->mc, &u->o);
	}
	free(u);
}

/* Lock held. Returns false without memory. */
static bool unlink_later(struct meta_call *mc, const struct wire_out *o)
{
	struct unlink_later *u = malloc(sizeof(*u));

	if (!u)
		return false;
	*u = (struct unlink_later){ .wait.fn = unlink_go, .mc = mc, .o = *o };
	(void)log_order_wait(mc->c, &u->wait);
	return true;
}

void core_unlink(struct core *c, uint64_t parent, const char *name, bool dir,
		 core_cb cb, void *arg)
{
	size_t len = strlen(name);
	struct meta_unlink u = {
		.parent = parent,
		.name = { name, (uint32_t)len },
		.flags = dir ? META_UNLINK_DIR : 0,
	};
	struct wire_out o;
	struct meta_call *mc;
	int err = 0;

	if (len > NAME_LEN_MAX) {
		cb(arg, -ENAMETOOLONG);
		return;
	}
	mc = meta_call_new(c, WIRE_OP_META_UNLINK, meta_unlink_size(&u), &o);
	if (!mc) {
		cb(arg, -ENOMEM);
		return;
	}
	meta_unlink_encode(&o, &u);
	mc->done = unlink_done;
	mc->timed_out = meta_cb_timed_out;
	mc->u.cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	c->count.unlinks++;
	if (!log_order_due(c))
		meta_call_queue(mc, &o);
	else if (!unlink_later(mc, &o))
		err = -ENOMEM;
	core_unlock(c);
	if (err) {
		meta_call_free(mc);
		cb(arg, err);
	}
}

/* ---- link ---- */

static void link_done(struct meta_call *mc, int err, const uint8_t *body,
		      uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *ci;
	struct meta_attr a;
	struct meta_link req;
	struct wire_in in;

	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_link_decode(&in, &req);
	core_lock(c);
	if (err)
		dir_known_del(c, req.newparent, req.newname.p,
			      req.newname.len);
	if (!err) {
		dir_changed(c, req.newparent, mc, 0);
		name_cache_set(c, req.newparent, req.newname.p,
			       req.newname.len, req.ino);
		err = meta_take_attr(c, body, len, &a, &ci);
	}
	if (!err) {
		inode_mutated(ci, mc->seq);
		ci->nlookup += mc->u.attr_cb ? 1 : 0;
	}
	core_unlock(c);
	if (mc->u.attr_cb)
		mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

void core_link(struct core *c, uint64_t ino, uint64_t newparent,
	       const char *newname, core_attr_cb cb, void *arg)
{
	size_t len = strlen(newname);
	struct meta_link l = {
		.ino = ino,
		.newparent = newparent,
		.newname = { newname, (uint32_t)len },
	};
	struct wire_out o;
	struct meta_call *mc;

	if (len > NAME_LEN_MAX) {
		cb(arg, -ENAMETOOLONG, NULL);
		return;
	}
	mc = meta_call_new(c, WIRE_OP_META_LINK, meta_link_size(&l), &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	meta_link_encode(&o, &l);
	mc->done = link_done;
	mc->timed_out = meta_attr_timed_out;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	c->count.links++;
	dir_known_add(c, newparent, newname, len);
	meta_call_queue(mc, &o);
	core_unlock(c);
}
