/* rename: a file that takes the place of another has its data on disk before
 * the new name (programs replace files by write, rename, without fsync).
 */
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

#include <linux/fs.h>
#include <sys/stat.h>

struct rename_op {
	struct core *c;
	struct core_waiter order;
	struct core_deferred begin;
	int err; /* of the order */
	struct core_rename p; /* its names are those below */
	core_cb cb;
	void *arg;
	char name[NAME_LEN_MAX + 1], newname[NAME_LEN_MAX + 1];
};

static void rename_request(const struct meta_call *mc, struct meta_rename *r)
{
	struct wire_in in;
	wire_in_init(&in, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_rename_decode(&in, r);
}

/* Lock held. An inode has moved to directory @to; its name there says whether
 * it is a log file (@flags, META_ATTR_LOG). Returns 1 for a directory, 0 for
 * others, -1 when its type is not known here. */
static int inode_moved(struct core *c, uint64_t ino, uint64_t to,
		       uint32_t flags, const struct meta_call *mc)
{
	struct core_inode *in = inode_find(c, ino);
	if (!in)
		return -1;
	inode_mutated(in, mc->seq);
	if (!in->attr_valid)
		return -1;
	inode_set_ctime(in, mc->now_ns);
	in->attr.flags &= ~META_ATTR_LOG;
	in->attr.flags |= flags & META_ATTR_LOG;
	if (!S_ISDIR(in->attr.mode))
		return 0;
	in->attr.parent = to;
	return 1;
}

/* Lock held. The directories' times and link counts follow. @moved,
 * @replaced: is it a directory (1, 0, or -1: not known)? */
static void rename_dirs(struct meta_call *mc, const struct meta_rename *req,
			const struct meta_rename_reply *r, int moved,
			int replaced)
{
	struct core *c = mc->c;
	bool exchange = req->flags & RENAME_EXCHANGE;
	bool across = req->parent != req->newparent;
	int from = 0, to = 0;

	if (across && moved == 1) {
		from--;
		to++;
	}
	if (r->replaced && replaced == 1) {
		to--;
		if (exchange && across)
			from++;
		else if (exchange)
			to++;
	}
	dir_changed(c, req->parent, mc, from);
	dir_changed(c, req->newparent, mc, to);
	if (moved >= 0 && (!r->replaced || replaced >= 0))
		return;
	/* Link counts may have changed in a way we cannot tell. */
	struct core_inode *in = inode_find(c, req->parent);
	if (in)
		in->attr_valid = false;
	in = inode_find(c, req->newparent);
	if (in)
		in->attr_valid = false;
}

static void rename_take(struct meta_call *mc, const struct meta_rename *req,
			const struct meta_rename_reply *r)
{
	struct core *c = mc->c;
	bool exchange = req->flags & RENAME_EXCHANGE;
	struct core_inode *old = r->replaced ? inode_find(c, r->replaced) :
					       NULL;
	int moved, replaced = -1;
	uint64_t was;

	if (name_cache_get(c, req->newparent, req->newname.p, req->newname.len,
			   &was) && was == r->ino)
		return; /* two names of one file: nothing happened */
	moved = inode_moved(c, r->ino, req->newparent, r->flags, mc);
	if (old && old->attr_valid)
		replaced = S_ISDIR(old->attr.mode) ? 1 : 0;
	if (exchange)
		(void)inode_moved(c, r->replaced, req->parent,
				  r->replaced_flags, mc);
	rename_dirs(mc, req, r, moved, replaced);
	if (r->replaced && !exchange)
		inode_lost_name(c, r->replaced, r->replaced_nlink, mc);
	name_cache_set(c, req->parent, req->name.p, req->name.len,
		       exchange ? r->replaced : r->whiteout);
	name_cache_set(c, req->newparent, req->newname.p, req->newname.len,
		       r->ino);
}

/* Lock held. The new name was added when this was queued. @r NULL: failed. */
static void rename_known(struct core *c, const struct meta_rename *req,
			 const struct meta_rename_reply *r)
{
	const struct core_inode *in = r ? inode_find(c, r->ino) : NULL;

	if (req->flags & RENAME_EXCHANGE)
		return; /* both names stay */
	if (r && !r->replaced && !r->whiteout &&
	    (!in || in->attr.nlink != 1) && !(in && S_ISDIR(in->attr.mode))) {
		/* Were both names of one file, then nothing happened; metad
		 * does not say. */
		dir_known_gone(c, req->parent);
		dir_known_gone(c, req->newparent);
		return;
	}
	if (!r || r->replaced)
		dir_known_del(c, req->newparent, req->newname.p,
			      req->newname.len);
	if (r && !r->whiteout)
		dir_known_del(c, req->parent, req->name.p, req->name.len);
}

static void rename_done(struct meta_call *mc, int err, const uint8_t *body,
			uint32_t len)
{
	struct meta_rename req;
	struct meta_rename_reply r;

	rename_request(mc, &req);
	if (!err && meta_rename_reply_parse(body, len, &r))
		err = -EIO;
	core_lock(mc->c);
	rename_known(mc->c, &req, err ? NULL : &r);
	if (!err)
		rename_take(mc, &req, &r);
	if (req.flags & RENAME_WHITEOUT)
		early_number_told(mc->c, err ? 0 : r.whiteout);
	early_answered(mc, err);
	core_unlock(mc->c);
	if (mc->u.cb)
		mc->u.cb(mc->u_arg, err);
}

static struct meta_call *rename_call(struct core *c,
				     const struct core_rename *p,
				     struct wire_out *o)
{
	struct meta_rename r = {
		.parent = p->parent,
		.name = { p->name, (uint32_t)strlen(p->name) },
		.newparent = p->newparent,
		.newname = { p->newname, (uint32_t)strlen(p->newname) },
		.flags = p->flags,
		.uid = p->uid,
		.gid = p->gid,
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_RENAME,
					     meta_rename_size(&r), o);

	if (mc)
		meta_rename_encode(o, &r);
	return mc;
}

/* Lock held. */
static void rename_queue(struct meta_call *mc, const struct core_rename *p,
			 struct wire_out *o)
{
	if (!(p->flags & RENAME_EXCHANGE))
		dir_known_add(mc->c, p->newparent, p->newname,
			      strlen(p->newname));
	if (p->flags & RENAME_WHITEOUT)
		early_number_blind(mc->c);
	meta_call_queue(mc, o);
}

static void rename_send(struct rename_op *op)
{
	struct core *c = op->c;
	struct wire_out o;
	struct meta_call *mc = rename_call(c, &op->p, &o);

	if (!mc) {
		op->cb(op->arg, -ENOMEM);
		free(op);
		return;
	}
	mc->done = rename_done;
	mc->timed_out = meta_cb_timed_out;
	mc->u.cb = op->cb;
	mc->u_arg = op->arg;
	core_lock(c);
	rename_queue(mc, &op->p, &o);
	core_unlock(c);
	free(op);
}

/* Without waiting for metad, if that can be. */
static bool rename_early(struct core *c, const struct core_rename *p)
{
	struct wire_out o;
	struct meta_call *mc = rename_call(c, p, &o);
	struct meta_rename_reply r = { 0 };
	struct meta_rename req;
	struct core_inode *in;

	if (!mc)
		return false;
	core_lock(c);
	if (!early_rename(c, p, &in)) {
		core_unlock(c);
		meta_call_free(mc);
		return false;
	}
	c->count.renames++;
	mc->early = true;
	mc->done = early_rename_done;
	mc->arg64 = in->ino;
	rename_queue(mc, p, &o);
	rename_request(mc, &req);
	r.ino = in->ino;
	r.flags = in->attr.flags;
	rename_known(c, &req, &r);
	rename_take(mc, &req, &r);
	early_mark(in, mc, EARLY_NAME);
	early_mark(inode_find(c, p->parent), mc, EARLY_NAME | EARLY_MTIME);
	early_mark(inode_find(c, p->newparent), mc, EARLY_NAME | EARLY_MTIME);
	core_unlock(c);
	return true;
}

/* ---- the data first ---- */

static void rename_flushed(void *arg, int err)
{
	struct rename_op *op = arg;
	if (err) {
		/* The old file stays what it was: better than a new one
		 * without its content. */
		op->cb(op->arg, err);
		free(op);
		return;
	}
	rename_send(op);
}

static void rename_looked_up(void *arg, int err, const struct meta_attr *a)
{
	struct rename_op *op = arg;
	if (err || !S_ISREG(a->mode)) {
		if (!err)
			core_forget(op->c, a->ino, 1);
		rename_send(op); /* it ends as it must */
		return;
	}
	uint64_t ino = a->ino;
	core_forget(op->c, ino, 1);
	core_fsync(op->c, ino, true, rename_flushed, op);
}

enum rename_first { RENAME_NOTHING, RENAME_FLUSH, RENAME_LOOKUP };

/* Lock held. What must be done before this rename is sent? */
static enum rename_first rename_first(const struct rename_op *op,
				      uint64_t *ino)
{
	struct core *c = op->c;
	const struct core_inode *in;
	uint64_t target;

	if (wb_clean(c) ||
	    (op->p.flags & (RENAME_NOREPLACE | RENAME_EXCHANGE)))
		return RENAME_NOTHING;
	if (name_cache_get(c, op->p.newparent, op->newname,
			   strlen(op->newname), &target) && target == 0)
		return RENAME_NOTHING;
	if (!name_cache_get(c, op->p.parent, op->name, strlen(op->name), ino))
		return RENAME_LOOKUP;
	in = *ino ? inode_find(c, *ino) : NULL;
	return in && in->wb && !wb_inode_clean(in) ? RENAME_FLUSH :
						     RENAME_NOTHING;
}

static void rename_begin(struct rename_op *op)
{
	struct core *c = op->c;
	uint64_t ino = 0;

	core_lock(c);
	enum rename_first first = rename_first(op, &ino);
	core_unlock(c);
	if (first == RENAME_FLUSH)
		core_fsync(c, ino, true, rename_flushed, op);
	else if (first == RENAME_LOOKUP)
		core_lookup(c, op->p.parent, op->p.name, rename_looked_up, op);
	else
		rename_send(op);
}

static void rename_deferred(struct core_deferred *d)
{
	struct rename_op *op = container_of(d, struct rename_op, begin);

	if (!op->err) {
		rename_begin(op);
		return;
	}
	op->cb(op->arg, op->err);
	free(op);
}

/* The logs before it are in the blocks (log_order.c), or a soft mount does not
 * wait longer: then it must not overtake them. */
static void rename_ordered(struct core_waiter *w, int err)
{
	struct rename_op *op = container_of(w, struct rename_op, order);

	op->err = err;
	op->begin.fn = rename_deferred;
	core_defer(op->c, &op->begin);
}

void core_rename(struct core *c, const struct core_rename *p, core_cb cb,
		 void *arg)
{
	size_t len = strlen(p->name), newlen = strlen(p->newname);

	if (len > NAME_LEN_MAX || newlen > NAME_LEN_MAX) {
		cb(arg, -ENAMETOOLONG);
		return;
	}
	if (rename_early(c, p)) {
		cb(arg, 0);
		return;
	}
	struct rename_op *op = calloc(1, sizeof(*op));
	if (!op) {
		cb(arg, -ENOMEM);
		return;
	}
	op->c = c;
	op->p = *p;
	op->cb = cb;
	op->arg = arg;
	memcpy(op->name, p->name, len);
	memcpy(op->newname, p->newname, newlen);
	op->p.name = op->name;
	op->p.newname = op->newname;
	op->order.fn = rename_ordered;
	core_lock(c);
	c->count.renames++;
	bool later = log_order_wait(c, &op->order);
	core_unlock(c);
	if (!later)
		rename_begin(op);
}
