/* Names that go, and further ones: unlink, rmdir, link. */
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

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

static void unlink_request(const struct meta_call *mc, struct meta_unlink *r)
{
	struct wire_in in;
	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_unlink_decode(&in, r);
}

/* Lock held. The caches follow. @nlink: left. */
static void unlink_apply(struct meta_call *mc, uint64_t ino, uint32_t nlink)
{
	struct core *c = mc->c;
	struct meta_unlink req;

	unlink_request(mc, &req);
	dir_changed(c, req.parent, mc, req.flags & META_UNLINK_DIR ? -1 : 0);
	dir_known_del(c, req.parent, req.name.p, req.name.len);
	name_cache_set(c, req.parent, req.name.p, req.name.len, 0);
	inode_lost_name(c, ino, nlink, mc);
}

static void unlink_done(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t len)
{
	struct core *c = mc->c;
	struct meta_unlink req;
	struct meta_unlink_reply r;

	unlink_request(mc, &req);
	if (!err && meta_unlink_reply_parse(body, len, &r))
		err = -EIO;
	core_lock(c);
	if (!err)
		unlink_apply(mc, r.ino, r.nlink);
	if (err == -ENOENT)
		name_cache_set(c, req.parent, req.name.p, req.name.len, 0);
	early_answered(mc, err);
	core_unlock(c);
	if (mc->u.cb)
		mc->u.cb(mc->u_arg, err);
}

/* Lock held. As create_early(). */
static bool unlink_early(struct meta_call *mc, const struct meta_unlink *u,
			 const struct wire_out *o)
{
	bool dir = u->flags & META_UNLINK_DIR;
	struct wire_out out = *o;
	struct core_inode *in;

	if (!early_unlink(mc->c, u->parent, u->name.p, dir, &in))
		return false;
	mc->early = true;
	mc->done = early_unlink_done;
	mc->arg64 = in->ino;
	mc->arg64b = dir ? 0 : in->attr.nlink - 1;
	meta_call_queue(mc, &out);
	early_mark(in, mc, EARLY_NAME);
	early_mark(inode_find(mc->c, u->parent), mc, EARLY_NAME | EARLY_MTIME);
	unlink_apply(mc, in->ino, (uint32_t)mc->arg64b);
	return true;
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
	core_lock(c);
	c->count.unlinks++;
	if (unlink_early(mc, &u, &o)) {
		core_unlock(c);
		cb(arg, 0);
		return;
	}
	mc->done = unlink_done;
	mc->timed_out = meta_cb_timed_out;
	mc->u.cb = cb;
	mc->u_arg = arg;
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
		err = meta_take_attr(mc, body, len, &a, &ci);
	}
	if (!err) {
		inode_mutated(ci, mc->seq);
		ci->nlookup += mc->u.attr_cb ? 1 : 0;
	}
	early_answered(mc, err);
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
