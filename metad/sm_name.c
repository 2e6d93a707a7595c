/* Names that go and further names: unlink, rmdir, link. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

void sm_drop_link(struct sm_ctx *x, struct sm_inode *in)
{
	/* A directory has one name, and "." in itself. */
	in->nlink = S_ISDIR(in->mode) ? 0 : in->nlink - 1;
	in->ctime = x->now;
	if (in->nlink == 0)
		sm_orphan_add_all(x, in);
	sm_inode_put(x->sm, in);
}

int sm_run_unlink(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_unlink u;
	struct meta_unlink_reply r;
	struct sm_inode dir, in;
	struct sm_dirent d;
	int err = meta_unlink_parse(body, len, &u);

	if (err == 0)
		err = sm_dir_get(x->sm, u.parent, &dir);
	if (err != 0)
		return err;
	if (!sm_dirent_find(x->sm, u.parent, u.name, &d))
		return -ENOENT;
	if (!sm_inode_get(x->sm, d.ino, &in) || in.nlink == 0)
		return -EIO;
	if ((u.flags & META_UNLINK_DIR) != 0) {
		if (!S_ISDIR(in.mode))
			return -ENOTDIR;
		if (in.entries != 0)
			return -ENOTEMPTY;
		dir.nlink--;
	} else if (S_ISDIR(in.mode)) {
		return -EISDIR;
	}
	sm_dirent_del(x->sm, u.parent, d.cookie);
	dir.entries--;
	sm_touch_dir(x, &dir);
	sm_inode_put(x->sm, &dir);
	sm_drop_link(x, &in);
	r = (struct meta_unlink_reply){
		.ino = in.ino, .nlink = in.nlink, .ctime_ns = in.ctime
	};
	meta_unlink_reply_encode(&x->out, &r);
	return 0;
}

static int may_link(const struct sm_inode *in)
{
	if (S_ISDIR(in->mode))
		return -EPERM;
	/* What lost its last name stays dead; a file made by O_TMPFILE has
	 * never had one (I_LINKABLE in Linux). */
	if (in->nlink == 0 && (in->flags & SM_INODE_LINKABLE) == 0)
		return -ENOENT;
	return in->nlink >= LINK_COUNT_MAX ? -EMLINK : 0;
}

int sm_run_link(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_link l;
	struct sm_inode dir, in;
	struct sm_dirent d;
	int err = meta_link_parse(body, len, &l);

	if (err == 0)
		err = sm_dir_get(x->sm, l.newparent, &dir);
	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, l.ino, &in))
		return -ENOENT;
	if (sm_dirent_find(x->sm, l.newparent, l.newname, &d))
		return -EEXIST;
	err = may_link(&in);
	if (err != 0)
		return err;
	if (d.free == 0)
		return -ENOSPC;
	if (in.nlink == 0)
		sm_orphan_del(x->sm, &in);
	in.flags &= ~SM_INODE_LINKABLE;
	in.nlink++;
	in.ctime = x->now;
	sm_log_named(x->sm, &dir, l.newname, &in);
	sm_inode_put(x->sm, &in);
	sm_dirent_put(x->sm, l.newparent, d.free, l.newname, &in);
	dir.entries++;
	sm_touch_dir(x, &dir);
	sm_inode_put(x->sm, &dir);
	sm_reply_attr(x, &in);
	return 0;
}
