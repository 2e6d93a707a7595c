/* rename(2) and renameat2(2): the order of checks is Linux's. */
#include "metad/sm_priv.h"

#include <linux/fs.h>
#include <sys/stat.h>

/* Everything a rename looks at. When both names are in one directory, only
 * @from is used for it. */
struct move {
	struct meta_rename q;
	struct sm_inode from, to; /* the directories */
	struct sm_dirent src, dst;
	struct sm_inode in; /* what is moved */
	struct sm_inode target; /* what has the new name, if @has_target */
	struct sm_inode whiteout; /* takes the old name; ino 0: nothing does */
	bool has_target;
	bool same_dir;
};

/* Is @dir @ancestor or somewhere below it? Directories have one parent, so
 * this is a walk to the root. */
static bool dir_is_below(const struct sm *sm, uint64_t dir, uint64_t ancestor)
{
	struct sm_inode in;

	/* Restored state could hold a loop; no real path is as long. */
	for (uint64_t steps = 0; steps <= sm->g.inode_count; steps++) {
		if (dir == ancestor)
			return true;
		if (dir == ROOT_INO || !sm_inode_get(sm, dir, &in))
			return false;
		dir = in.parent;
	}
	return true;
}

static int move_find(struct sm_ctx *x, struct move *m)
{
	const struct meta_rename *q = &m->q;
	int err = sm_dir_get(x->sm, q->parent, &m->from);

	m->same_dir = q->parent == q->newparent;
	if (err == 0 && !m->same_dir)
		err = sm_dir_get(x->sm, q->newparent, &m->to);
	if (err != 0)
		return err;
	if (!sm_dirent_find(x->sm, q->parent, q->name, &m->src))
		return -ENOENT;
	m->has_target = sm_dirent_find(x->sm, q->newparent, q->newname,
				       &m->dst);
	if (m->has_target && (q->flags & RENAME_NOREPLACE) != 0)
		return -EEXIST;
	if (!m->has_target && (q->flags & RENAME_EXCHANGE) != 0)
		return -ENOENT;
	if (!sm_inode_get(x->sm, m->src.ino, &m->in))
		return -EIO;
	if (m->has_target && !sm_inode_get(x->sm, m->dst.ino, &m->target))
		return -EIO;
	return 0;
}

static int move_check(struct sm_ctx *x, const struct move *m)
{
	const struct meta_rename *q = &m->q;
	bool exchange = (q->flags & RENAME_EXCHANGE) != 0;
	bool dir = S_ISDIR(m->in.mode);

	if (dir && !m->same_dir && dir_is_below(x->sm, q->newparent, m->in.ino))
		return -EINVAL;
	if (!m->has_target)
		return m->dst.free == 0 ? -ENOSPC : 0;
	if (S_ISDIR(m->target.mode) && !m->same_dir &&
	    dir_is_below(x->sm, q->parent, m->target.ino))
		return exchange ? -EINVAL : -ENOTEMPTY;
	if (exchange || m->in.ino == m->target.ino)
		return 0;
	if (dir && !S_ISDIR(m->target.mode))
		return -ENOTDIR;
	if (!dir && S_ISDIR(m->target.mode))
		return -EISDIR;
	if (m->target.nlink == 0)
		return -EIO;
	return m->target.entries != 0 ? -ENOTEMPTY : 0;
}

static struct sm_inode *move_to(struct move *m)
{
	return m->same_dir ? &m->from : &m->to;
}

/* @in, a directory, gets another parent. */
static void reparent(struct sm_inode *in, struct sm_inode *from,
		     struct sm_inode *to)
{
	if (!S_ISDIR(in->mode) || from == to)
		return;
	in->parent = to->ino;
	from->nlink--;
	to->nlink++;
}

static void write_dirs(struct sm_ctx *x, struct move *m)
{
	sm_touch_dir(x, &m->from);
	sm_inode_put(x->sm, &m->from);
	if (!m->same_dir) {
		sm_touch_dir(x, &m->to);
		sm_inode_put(x->sm, &m->to);
	}
}

static void move_exchange(struct sm_ctx *x, struct move *m)
{
	const struct meta_rename *q = &m->q;

	sm_log_named(x->sm, move_to(m), q->newname, &m->in);
	sm_log_named(x->sm, &m->from, q->name, &m->target);
	reparent(&m->in, &m->from, move_to(m));
	reparent(&m->target, move_to(m), &m->from);
	m->in.ctime = x->now;
	m->target.ctime = x->now;
	sm_dirent_put(x->sm, q->parent, m->src.cookie, q->name, &m->target);
	sm_dirent_put(x->sm, q->newparent, m->dst.cookie, q->newname, &m->in);
	sm_inode_put(x->sm, &m->in);
	sm_inode_put(x->sm, &m->target);
	write_dirs(x, m);
}

/* The device that overlayfs takes for "removed here". Owner, group and ACL
 * come about as with mknod(2). */
static int move_whiteout(struct sm_ctx *x, struct move *m)
{
	const struct meta_create c = {
		.mode = S_IFCHR, .uid = m->q.uid, .gid = m->q.gid,
	};

	return sm_inode_make(x, &c, &m->from, &m->whiteout);
}

/* The old name goes, or becomes the whiteout's. */
static void move_away(struct sm_ctx *x, struct move *m)
{
	if (m->whiteout.ino == 0) {
		sm_dirent_del(x->sm, m->q.parent, m->src.cookie);
		m->from.entries--;
		return;
	}
	sm_dirent_put(x->sm, m->q.parent, m->src.cookie, m->q.name,
		      &m->whiteout);
	sm_inode_put(x->sm, &m->whiteout);
}

static void move_replace(struct sm_ctx *x, struct move *m)
{
	const struct meta_rename *q = &m->q;
	struct sm_inode *to = move_to(m);

	move_away(x, m);
	if (m->has_target) {
		to->nlink -= S_ISDIR(m->target.mode) ? 1 : 0;
		sm_drop_link(x, &m->target);
	} else {
		to->entries++;
	}
	sm_dirent_put(x->sm, q->newparent,
		      m->has_target ? m->dst.cookie : m->dst.free, q->newname,
		      &m->in);
	reparent(&m->in, &m->from, to);
	m->in.ctime = x->now;
	sm_log_named(x->sm, to, q->newname, &m->in);
	sm_inode_put(x->sm, &m->in);
	write_dirs(x, m);
}

static uint32_t attr_flags(const struct sm *sm, const struct sm_inode *in)
{
	struct meta_attr a;

	sm_inode_attr(sm, in, &a);
	return a.flags;
}

int sm_run_rename(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_rename_reply r;
	struct move m = { 0 };
	bool same;
	int err = sm_rename_parse(body, len, &m.q);

	if (err == 0)
		err = move_find(x, &m);
	if (err == 0)
		err = move_check(x, &m);
	if (err != 0)
		return err;
	/* Two names of one inode: POSIX wants nothing done. */
	same = m.has_target && m.target.ino == m.in.ino;
	if (!same && (m.q.flags & RENAME_WHITEOUT) != 0)
		err = move_whiteout(x, &m);
	if (err != 0)
		return err;
	r = (struct meta_rename_reply){ .ino = m.in.ino,
					.whiteout = m.whiteout.ino };
	if (!same && (m.q.flags & RENAME_EXCHANGE) != 0)
		move_exchange(x, &m);
	else if (!same)
		move_replace(x, &m);
	r.flags = attr_flags(x->sm, &m.in);
	if (m.has_target && !same) {
		r.replaced = m.target.ino;
		r.replaced_nlink = m.target.nlink;
		r.replaced_flags = attr_flags(x->sm, &m.target);
	}
	meta_rename_reply_encode(&x->out, &r);
	return 0;
}
