/* New objects of every type, and O_TMPFILE. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

/* Mode, group and ACLs of a new object @in (its record is not written yet) in
 * @dir: inode_init_owner() and posix_acl_create() of Linux. */
static int inherit(struct sm_ctx *x, const struct sm_inode *dir,
		   struct sm_inode *in, uint32_t umask)
{
	struct sm_acl acl;
	uint32_t mode = in->mode;
	int err;

	if ((dir->mode & S_ISGID) != 0) {
		in->gid = dir->gid;
		if (S_ISDIR(mode))
			mode |= S_ISGID;
	}
	if (S_ISLNK(mode)) {
		in->mode = S_IFLNK | 0777;
		return 0;
	}
	if ((dir->flags & SM_INODE_ACL) == 0 ||
	    sm_acl_load(x->sm, dir->ino, SM_ACL_DEFAULT, &acl) != 0) {
		in->mode = mode & ~(umask & 0777);
		return 0;
	}
	if (S_ISDIR(mode)) {
		err = sm_acl_store(x->sm, in, SM_ACL_DEFAULT, &acl);
		if (err != 0)
			return err;
	}
	if (sm_acl_inherit(&acl, &mode)) {
		err = sm_acl_store(x->sm, in, SM_ACL_ACCESS, &acl);
		if (err != 0)
			return err;
	}
	in->mode = mode;
	return 0;
}

static void inode_new(struct sm_ctx *x, const struct meta_create *c,
		      const struct sm_inode *dir, struct sm_inode *in)
{
	*in = (struct sm_inode){
		.ino = c->ino != 0 ? c->ino : x->sm->g.next_ino,
		.mode = c->mode,
		.nlink = S_ISDIR(c->mode) ? 2 : 1,
		.uid = c->uid,
		.gid = c->gid,
		.atime = x->now,
		.mtime = x->now,
		.ctime = x->now,
		.btime = x->now,
		.block_log2 = dir->block_log2,
	};
	if (S_ISCHR(c->mode) || S_ISBLK(c->mode))
		in->rdev = c->rdev;
	if (S_ISDIR(c->mode))
		in->parent = dir->ino;
	if (S_ISLNK(c->mode))
		in->size = c->target.len;
}

int sm_inode_make(struct sm_ctx *x, const struct meta_create *c,
		  const struct sm_inode *dir, struct sm_inode *in)
{
	struct sm *sm = x->sm;
	int err;

	if (sm->g.inode_count >= INODE_COUNT_MAX)
		return -ENOSPC;
	inode_new(x, c, dir, in);
	err = inherit(x, dir, in, c->umask);
	if (err != 0)
		return err;
	if (c->ino == 0)
		sm->g.next_ino++;
	sm->g.inode_count++;
	return 0;
}

static int reply(struct sm_ctx *x, const struct sm_inode *in, uint8_t existed)
{
	struct meta_create_reply r = { .existed = existed };

	sm_reply_attr(x, in);
	meta_create_reply_encode(&x->out, &r);
	return 0;
}

/* The name is taken. */
static int create_existing(struct sm_ctx *x, const struct meta_create *c,
			   uint64_t ino)
{
	struct sm_inode in;
	int err;

	if ((c->flags & META_CREATE_OPEN) == 0 ||
	    (c->flags & META_CREATE_EXCL) != 0)
		return -EEXIST;
	if (!sm_inode_get(x->sm, ino, &in))
		return -EIO;
	if ((c->flags & META_CREATE_LEASE) != 0 && S_ISREG(in.mode)) {
		err = sm_lease_grant(x, &in);
		if (err != 0)
			return err;
		sm_inode_put(x->sm, &in);
	}
	return reply(x, &in, 1);
}

static void write_target(struct sm_ctx *x, uint64_t ino, struct wire_str target)
{
	struct sm_key k = sm_key1(SM_K_TARGET, ino);

	sm_blob_put(x->sm, &k, target.p, target.len);
}

/* Those of creations that were refused for want of room are passed over. */
#define NUMBERS_SKIPPED_MAX (UINT64_C(1) << 40)

/* It is gone whatever becomes of the command: the mount may have written blocks
 * under it. */
static int take_number(struct sm *sm, uint64_t ino)
{
	if (ino < sm->g.next_ino || ino > INO_MAX ||
	    ino - sm->g.next_ino > NUMBERS_SKIPPED_MAX)
		return -ESTALE;
	sm->g.next_ino = ino + 1;
	return 0;
}

int sm_run_create(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm *sm = x->sm;
	struct meta_create c;
	struct sm_inode dir, in;
	struct sm_dirent d = { 0 };
	bool named;
	int err = meta_create_parse(body, len, &c);

	if (err == 0 && c.ino != 0)
		err = take_number(sm, c.ino);
	if (err == 0)
		err = sm_dir_get(sm, c.parent, &dir);
	if (err != 0)
		return err;
	named = (c.flags & META_CREATE_TMPFILE) == 0;
	if (named && sm_dirent_find(sm, c.parent, c.name, &d))
		return create_existing(x, &c, d.ino);
	if (named && d.free == 0)
		return -ENOSPC;
	err = sm_inode_make(x, &c, &dir, &in);
	if (err != 0)
		return err;
	if ((c.flags & META_CREATE_LEASE) != 0 && S_ISREG(in.mode))
		(void)sm_lease_grant(x, &in); /* nobody can have it */
	if (S_ISLNK(in.mode))
		write_target(x, in.ino, c.target);
	if (named) {
		sm_log_named(sm, &dir, c.name, &in);
		sm_dirent_put(sm, c.parent, d.free, c.name, &in);
		dir.entries++;
		dir.nlink += S_ISDIR(in.mode) ? 1 : 0;
		sm_touch_dir(x, &dir);
		sm_inode_put(sm, &dir);
	} else {
		in.nlink = 0;
		in.flags |= SM_INODE_LINKABLE;
		sm_orphan_add(x, &in);
	}
	sm_inode_put(sm, &in);
	return reply(x, &in, 0);
}

uint64_t sm_next_ino(const struct sm *sm)
{
	return sm->g.next_ino;
}

uint64_t sm_next_session(const struct sm *sm)
{
	return sm->g.next_session;
}
