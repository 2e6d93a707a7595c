/* Attributes: answered from the cache where it is right (one mount: whenever
 * they are known), changed through the stream.
 */
#include "fuse/core/early.h"
#include "fuse/core/blk_priv.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include <sys/stat.h>

bool meta_attr_sane(const struct meta_attr *a)
{
	return a->ino != 0 && a->size <= FILE_SIZE_MAX &&
	       a->block_log2 >= BLOCK_LOG2_MIN &&
	       a->block_log2 <= BLOCK_LOG2_MAX;
}

int meta_reply_attr(const uint8_t *body, uint32_t len, struct meta_attr *a,
		    struct wire_in *in)
{
	wire_in_init(in, body, len);
	meta_attr_decode(in, a);
	return in->bad || !meta_attr_sane(a) ? -EIO : 0;
}

int meta_reply_attr_of(uint64_t ino, const uint8_t *body, uint32_t len,
		       struct meta_attr *a)
{
	if (meta_attr_parse(body, len, a) != 0 || !meta_attr_sane(a))
		return -EBADMSG;
	return a->ino == ino ? 0 : -EBADMSG;
}

int meta_take_attr(const struct meta_call *mc, const uint8_t *body,
		   uint32_t len, struct meta_attr *a, struct core_inode **ret)
{
	struct wire_in in;
	struct core_inode *ci;
	int err = meta_reply_attr(body, len, a, &in);

	if (err)
		return err;
	ci = inode_get(mc->c, a->ino);
	if (!ci)
		return -ENOMEM;
	if (early_overtook(ci, mc))
		early_keep(ci, a);
	inode_merge(mc->c, ci, a, a);
	if (ret)
		*ret = ci;
	return 0;
}

void meta_attr_timed_out(struct meta_call *mc)
{
	core_attr_cb cb = mc->u.attr_cb;
	mc->u.attr_cb = NULL;
	if (cb)
		cb(mc->u_arg, -ETIMEDOUT, NULL);
}

void meta_cb_timed_out(struct meta_call *mc)
{
	core_cb cb = mc->u.cb;
	mc->u.cb = NULL;
	if (cb)
		cb(mc->u_arg, -ETIMEDOUT);
}

/* ---- getattr ---- */

/* Too many waited at metad (META_WANT). */
struct getattr_again {
	struct rpc_timer t;
	struct core *c;
	uint64_t ino;
	core_attr_cb cb;
	void *arg;
};
#define GETATTR_AGAIN_MS 50u

static void getattr_again(struct rpc_timer *t)
{
	struct getattr_again *g = container_of(t, struct getattr_again, t);

	core_getattr(g->c, g->ino, g->cb, g->arg);
	free(g);
}

static bool getattr_later(const struct meta_call *mc)
{
	struct getattr_again *g = calloc(1, sizeof(*g));

	if (!g)
		return false;
	*g = (struct getattr_again){ .t.fn = getattr_again, .c = mc->c,
				     .ino = mc->arg64, .cb = mc->u.attr_cb,
				     .arg = mc->u_arg };
	rpc_timer_start(mc->c->net, &g->t, GETATTR_AGAIN_MS);
	return true;
}

static void getattr_done(struct meta_call *mc, int err, const uint8_t *body,
			 uint32_t len)
{
	struct core *c = mc->c;
	struct meta_attr a;

	if (err == -EBUSY && mc->op == WIRE_OP_META_WANT && getattr_later(mc))
		return;
	core_lock(c);
	if (!err)
		err = meta_take_attr(mc, body, len, &a, NULL);
	core_unlock(c);
	mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

void attr_get(struct core *c, uint64_t ino, bool recovery, core_attr_cb cb,
	      void *arg)
{
	struct meta_attr a;
	struct wire_out o;

	core_lock(c);
	struct core_inode *in = inode_find(c, ino);
	c->count.getattrs++;
	if (in && in->attr_valid && meta_may_serve(c) && !c->opt.shared) {
		a = in->attr;
		a.units = wb_units_tell(in);
		c->count.getattrs_local++;
		core_unlock(c);
		cb(arg, 0, &a);
		return;
	}
	/* Its size is known only when nobody else has its lease. */
	bool want = c->opt.shared && !recovery &&
		    !(in && (share_readable(c, in) || share_recovers(c, in)));
	struct meta_call *mc = meta_call_new(c, want ? WIRE_OP_META_WANT :
					     WIRE_OP_META_GETATTR, 9, &o);
	if (!mc) {
		core_unlock(c);
		cb(arg, -ENOMEM, NULL);
		return;
	}
	wire_put_u64(&o, ino);
	if (want)
		wire_put_u8(&o, 0);
	mc->done = getattr_done;
	mc->arg64 = ino;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	meta_call_queue(mc, &o);
	core_unlock(c);
}

void core_getattr(struct core *c, uint64_t ino, core_attr_cb cb, void *arg)
{
	attr_get(c, ino, false, cb, arg);
}

/* ---- setattr ---- */

static void setattr_done(struct meta_call *mc, int err, const uint8_t *body,
			 uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in;
	struct meta_attr a;

	core_lock(c);
	if (mc->arg)
		((struct core_inode *)mc->arg)->ctime_inflight--;
	if (!err)
		err = meta_take_attr(mc, body, len, &a, &in);
	if (!err && mc->arg64)
		inode_mutated(in, mc->seq);
	else if (!err)
		inode_times_mutated(in, mc->seq);
	if (!err && !mc->u.attr_cb) /* it was said to have failed */
		inode_tell_changed(c, a.ino);
	if (mc->arg)
		inode_unpin(c, mc->arg);
	core_unlock(c);
	if (mc->u.attr_cb)
		mc->u.attr_cb(mc->u_arg, err, err ? NULL : &a);
}

/* Times of a leased inode are ours; what is set now must not lose against the
 * older ones when the answer is merged. */
static void setattr_own(struct core_inode *in, const struct meta_setattr *s)
{
	if (s->valid & META_SET_ATIME)
		in->atime_dirty = false;
	if (!inode_owns(in) || !in->attr_valid)
		return;
	if (s->valid & META_SET_MTIME)
		in->attr.mtime_ns = s->mtime_ns;
	if (s->valid & META_SET_CTIME)
		in->attr.ctime_ns = s->ctime_ns;
}

bool core_sgid_alone(struct core *c, uint64_t ino, uint32_t *gid_ret)
{
	core_lock(c);
	const struct core_inode *in = inode_find(c, ino);
	bool alone = in && in->attr_valid && S_ISREG(in->attr.mode) &&
		     (in->attr.mode & (S_ISGID | S_IXGRP)) == S_ISGID;
	if (alone)
		*gid_ret = in->attr.gid;
	core_unlock(c);
	return alone;
}

static void drop_sgid_done(struct meta_call *mc, int err, const uint8_t *body,
			   uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in = mc->arg;
	struct meta_attr a;

	core_lock(c);
	in->mode_inflight--;
	if (!err)
		(void)meta_take_attr(mc, body, len, &a, NULL);
	inode_unpin(c, in);
	core_unlock(c);
}

void core_drop_sgid(struct core *c, uint64_t ino)
{
	struct meta_setattr s = { .ino = ino, .valid = META_SET_MODE };
	struct wire_out o;

	core_lock(c);
	struct core_inode *in = inode_find(c, ino);
	struct meta_call *mc = in && in->attr_valid ?
		meta_call_new(c, WIRE_OP_META_SETATTR, meta_setattr_size(&s),
			      &o) : NULL;
	if (mc) { /* without memory the next write clears it */
		in->attr.mode &= ~(uint32_t)S_ISGID;
		s.mode = in->attr.mode;
		meta_setattr_encode(&o, &s);
		mc->done = drop_sgid_done;
		mc->arg = in;
		inode_pin(in);
		in->mode_inflight++;
		meta_call_queue(mc, &o);
		inode_mutated(in, mc->seq);
		inode_tell_changed(c, ino);
	}
	core_unlock(c);
}

/* One that was answered early. */
static void early_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in = mc->arg;

	(void)body;
	(void)len;
	core_lock(c);
	early_settled(in, mc);
	if (mc->arg64)
		in->ctime_inflight--;
	/* What has no name any more may be gone. */
	if (err && !(err == -ENOENT && in->orphan))
		early_refused(mc, "setattr", in->ino,
			      (struct wire_str){ "", 0 }, err);
	inode_unpin(c, in);
	core_unlock(c);
}

/* Is it known what @s comes to? Not where it changes an ACL or an xattr. */
static bool may_early(struct core *c, const struct core_inode *in,
		      const struct meta_setattr *s)
{
	const uint32_t times = META_SET_ATIME | META_SET_MTIME | META_SET_CTIME;
	const uint32_t others = META_SET_MODE | META_SET_UID | META_SET_GID |
				META_SET_KILLPRIV;

	if (!in || (s->valid & ~(times | others)) != 0 || !early_inode(c, in))
		return false;
	return (s->valid & others) == 0 ||
	       (in->mode_inflight == 0 &&
		(in->attr.flags & (META_ATTR_ACL | META_ATTR_CAPS)) == 0);
}

/* As metad's sm_run_setattr(). */
static void attr_set(struct meta_attr *a, const struct meta_setattr *s,
		     int64_t now_ns)
{
	if (s->valid & META_SET_UID)
		a->uid = s->uid;
	if (s->valid & META_SET_GID)
		a->gid = s->gid;
	if ((s->valid & (META_SET_UID | META_SET_GID | META_SET_KILLPRIV)) &&
	    !S_ISDIR(a->mode)) {
		a->mode &= ~(uint32_t)S_ISUID;
		if (a->mode & S_IXGRP)
			a->mode &= ~(uint32_t)S_ISGID;
	}
	if (s->valid & META_SET_MODE)
		a->mode = (a->mode & S_IFMT) | (s->mode & 07777);
	if (s->valid & META_SET_ATIME)
		a->atime_ns = s->atime_ns;
	if (s->valid & META_SET_MTIME)
		a->mtime_ns = s->mtime_ns;
	a->ctime_ns = s->valid & META_SET_CTIME ? s->ctime_ns : now_ns;
}

static uint32_t early_what(uint32_t valid)
{
	const uint32_t owner = META_SET_UID | META_SET_GID;
	uint32_t what = 0;

	if (valid & (META_SET_MODE | META_SET_KILLPRIV | owner))
		what |= EARLY_MODE;
	if (valid & owner)
		what |= EARLY_OWNER;
	if (valid & META_SET_ATIME)
		what |= EARLY_ATIME;
	if (valid & META_SET_MTIME)
		what |= EARLY_MTIME;
	return what;
}

/* Lock held. False: metad is to be asked. @needed: by an fdatasync. */
static bool setattr_early(struct meta_call *mc, const struct meta_setattr *s,
			  struct wire_out *o, bool needed, struct meta_attr *a)
{
	struct core_inode *in = inode_find(mc->c, s->ino);

	if (!may_early(mc->c, in, s))
		return false;
	mc->early = true;
	mc->done = early_done;
	mc->arg = in;
	mc->arg64 = s->valid & META_SET_CTIME;
	inode_pin(in);
	setattr_own(in, s);
	if (mc->arg64)
		in->ctime_inflight++;
	if (s->valid & META_SET_MTIME)
		log_mtime(mc->c, in, s->mtime_ns);
	meta_call_queue(mc, o);
	early_mark(in, mc, early_what(s->valid));
	if (needed)
		inode_mutated(in, mc->seq);
	else
		inode_times_mutated(in, mc->seq);
	attr_set(&in->attr, s, mc->now_ns);
	*a = in->attr;
	a->units = wb_units_tell(in);
	return true;
}

static void setattr_go(struct core *c, const struct meta_setattr *s,
		       core_attr_cb cb, void *arg)
{
	struct meta_attr a;
	struct wire_out o;
	uint32_t needed;

	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_SETATTR,
					     meta_setattr_size(s), &o);
	if (!mc) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	meta_setattr_encode(&o, s);
	/* No fdatasync needs to wait for times. */
	needed = s->valid & ~(META_SET_ATIME | META_SET_MTIME | META_SET_CTIME);
	core_lock(c);
	c->count.setattrs++;
	struct core_inode *in = inode_find(c, s->ino);
	if (setattr_early(mc, s, &o, needed != 0, &a)) {
		core_unlock(c);
		cb(arg, 0, &a);
		return;
	}
	mc->done = setattr_done;
	mc->timed_out = meta_attr_timed_out;
	mc->u.attr_cb = cb;
	mc->u_arg = arg;
	mc->arg64 = needed;
	if (in)
		setattr_own(in, s);
	if (in && (s->valid & META_SET_CTIME)) {
		mc->arg = in;
		inode_pin(in);
		in->ctime_inflight++;
	}
	if (in && (s->valid & META_SET_MTIME))
		log_mtime(c, in, s->mtime_ns);
	meta_call_queue(mc, &o);
	if (in && needed)
		inode_mutated(in, meta_last_seq(c));
	else if (in)
		inode_times_mutated(in, meta_last_seq(c));
	core_unlock(c);
}

/* Another mount's lease ends first: what it writes and returns later would take
 * the time back, and it would not know that there are set-id bits to clear. */
#define SET_UNLEASED (META_SET_MTIME | META_SET_MODE | META_SET_UID | \
		      META_SET_GID)

struct set_unleased {
	struct core *c;
	struct meta_setattr s;
	core_attr_cb cb;
	void *arg;
};

static void set_unleased_go(void *arg, int err, const struct meta_attr *a)
{
	struct set_unleased *t = arg;

	(void)a;
	if (err)
		t->cb(t->arg, err, NULL);
	else
		setattr_go(t->c, &t->s, t->cb, t->arg);
	free(t);
}

void core_setattr(struct core *c, const struct meta_setattr *s,
		  core_attr_cb cb, void *arg)
{
	struct set_unleased *t;

	assert(!(s->valid & (META_SET_SIZE | META_SET_UNITS_DELTA)));
	if (s->valid == 0) {
		core_getattr(c, s->ino, cb, arg);
		return;
	}
	if (!c->opt.shared || !(s->valid & SET_UNLEASED)) {
		setattr_go(c, s, cb, arg);
		return;
	}
	t = malloc(sizeof(*t));
	if (!t) {
		cb(arg, -ENOMEM, NULL);
		return;
	}
	*t = (struct set_unleased){ .c = c, .s = *s, .cb = cb, .arg = arg };
	core_getattr(c, s->ino, set_unleased_go, t);
}

/* Times of a written file are told like its size: with others, when it is
 * clean; after a crash the block daemons know the last write. */
bool core_times_flush(struct core *c, uint64_t ino, int64_t mtime_ns,
		      int64_t ctime_ns, struct meta_attr *ret)
{
	struct core_inode *in;
	bool ours;

	core_lock(c);
	in = inode_find(c, ino);
	ours = in && in->attr_valid && in->leased && !in->bad && !c->fenced &&
	       !c->stopping && meta_may_serve(c);
	if (ours) {
		c->count.setattrs_local++;
		in->attr.mtime_ns = mtime_ns;
		in->attr.ctime_ns = ctime_ns;
		in->size_dirty = true;
		ret_queue(c, in, RETURN_DELAY_MS);
		*ret = in->attr;
	}
	core_unlock(c);
	return ours;
}
