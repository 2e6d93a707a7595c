/* Inode records: compact encoding, attributes, setattr, readlink. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

/* Which fields a record has; the others have their usual value. Part of the
 * snapshot format. */
enum {
	HAS_NLINK = 1u << 0, /* else 2 for directories, 1 for others */
	HAS_UID = 1u << 1,
	HAS_GID = 1u << 2,
	HAS_SIZE = 1u << 3,
	HAS_UNITS = 1u << 4,
	HAS_ATIME = 1u << 5, /* times: difference from btime, else equal */
	HAS_MTIME = 1u << 6,
	HAS_CTIME = 1u << 7, /* difference from mtime */
	HAS_FLAGS = 1u << 8,
	HAS_CUT = 1u << 9,
	HAS_LEASE = 1u << 10,
	HAS_ORPHAN = 1u << 11,
	HAS_RDEV = 1u << 12,
	HAS_BLOCK = 1u << 13, /* else BLOCK_LOG2_DEFAULT */
	HAS_XATTR = 1u << 14,
	HAS_DIR = 1u << 15, /* parent, entries */
	HAS_LOG_DIR = 1u << 16,
	HAS_KNOWN = 0x1ffff,
};

static uint32_t usual_nlink(uint32_t mode)
{
	return S_ISDIR(mode) ? 2 : 1;
}

static uint32_t fields_of(const struct sm_inode *in)
{
	uint32_t has = 0;

	has |= in->nlink != usual_nlink(in->mode) ? HAS_NLINK : 0;
	has |= in->uid != 0 ? HAS_UID : 0;
	has |= in->gid != 0 ? HAS_GID : 0;
	has |= in->size != 0 ? HAS_SIZE : 0;
	has |= in->units != 0 ? HAS_UNITS : 0;
	has |= in->atime != in->btime ? HAS_ATIME : 0;
	has |= in->mtime != in->btime ? HAS_MTIME : 0;
	has |= in->ctime != in->mtime ? HAS_CTIME : 0;
	has |= in->flags != 0 ? HAS_FLAGS : 0;
	has |= in->cut != 0 ? HAS_CUT : 0;
	has |= in->lease != 0 ? HAS_LEASE : 0;
	has |= in->orphan != 0 ? HAS_ORPHAN : 0;
	has |= in->rdev != 0 ? HAS_RDEV : 0;
	has |= in->block_log2 != BLOCK_LOG2_DEFAULT ? HAS_BLOCK : 0;
	has |= in->xattr_list != 0 ? HAS_XATTR : 0;
	has |= S_ISDIR(in->mode) ? HAS_DIR : 0;
	has |= in->log_dir != 0 ? HAS_LOG_DIR : 0;
	return has;
}

static void put_if(struct wire_out *o, uint32_t has, uint64_t v)
{
	if (has != 0)
		sm_put_varint(o, v);
}

static void put_time(struct wire_out *o, uint32_t has, int64_t t, int64_t base)
{
	put_if(o, has, sm_zigzag((uint64_t)t - (uint64_t)base));
}

static void inode_encode(struct wire_out *o, const struct sm_inode *in)
{
	uint32_t has = fields_of(in);

	wire_put_u16(o, (uint16_t)in->mode);
	sm_put_varint(o, has);
	wire_put_i64(o, in->btime);
	put_if(o, has & HAS_NLINK, in->nlink);
	put_if(o, has & HAS_UID, in->uid);
	put_if(o, has & HAS_GID, in->gid);
	put_if(o, has & HAS_SIZE, in->size);
	put_if(o, has & HAS_UNITS, in->units);
	put_time(o, has & HAS_ATIME, in->atime, in->btime);
	put_time(o, has & HAS_MTIME, in->mtime, in->btime);
	put_time(o, has & HAS_CTIME, in->ctime, in->mtime);
	put_if(o, has & HAS_FLAGS, in->flags);
	put_if(o, has & HAS_CUT, in->cut);
	put_if(o, has & HAS_LEASE, in->lease);
	put_if(o, has & HAS_ORPHAN, in->orphan);
	put_if(o, has & HAS_RDEV, in->rdev);
	put_if(o, has & HAS_BLOCK, in->block_log2);
	put_if(o, has & HAS_XATTR, in->xattr_list);
	put_if(o, has & HAS_XATTR, in->xattr_bytes);
	put_if(o, has & HAS_DIR, in->parent);
	put_if(o, has & HAS_DIR, in->entries);
	put_if(o, has & HAS_LOG_DIR, in->log_dir);
}

static uint64_t get_if(struct wire_in *val, uint32_t has, uint64_t usual)
{
	return has != 0 ? sm_get_varint(val) : usual;
}

static uint32_t get_u32_if(struct wire_in *val, uint32_t has, uint32_t usual)
{
	uint64_t v = get_if(val, has, usual);

	if (v > UINT32_MAX)
		val->bad = true;
	return (uint32_t)v;
}

static int64_t get_time(struct wire_in *val, uint32_t has, int64_t base)
{
	if (has == 0)
		return base;
	return (int64_t)((uint64_t)base + sm_unzigzag(sm_get_varint(val)));
}

/* Log files know what made them such; a log directory is one by itself. */
static bool log_sane(const struct sm_inode *in)
{
	bool log = (in->flags & SM_INODE_LOG) != 0;

	if (S_ISDIR(in->mode))
		return in->log_dir == 0;
	return log == (in->log_dir != 0) && (!log || S_ISREG(in->mode));
}

static bool inode_sane(const struct sm_inode *in)
{
	switch (in->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		break;
	default:
		return false;
	}
	return in->ino != 0 && in->size <= FILE_SIZE_MAX &&
	       in->block_log2 >= BLOCK_LOG2_MIN &&
	       in->block_log2 <= BLOCK_LOG2_MAX &&
	       (in->flags & ~SM_INODE_KNOWN) == 0 &&
	       in->xattr_list <= XATTR_LIST_LEN_MAX &&
	       in->xattr_bytes <= XATTR_TOTAL_MAX && log_sane(in);
}

bool sm_inode_decode(struct sm_inode *in, uint64_t ino, struct wire_in *val)
{
	uint64_t fields;
	uint32_t has;

	in->ino = ino;
	in->mode = wire_get_u16(val);
	fields = sm_get_varint(val);
	has = (uint32_t)fields & HAS_KNOWN;
	in->btime = wire_get_i64(val);
	in->nlink = get_u32_if(val, has & HAS_NLINK, usual_nlink(in->mode));
	in->uid = get_u32_if(val, has & HAS_UID, 0);
	in->gid = get_u32_if(val, has & HAS_GID, 0);
	in->size = get_if(val, has & HAS_SIZE, 0);
	in->units = get_if(val, has & HAS_UNITS, 0);
	in->atime = get_time(val, has & HAS_ATIME, in->btime);
	in->mtime = get_time(val, has & HAS_MTIME, in->btime);
	in->ctime = get_time(val, has & HAS_CTIME, in->mtime);
	in->flags = get_u32_if(val, has & HAS_FLAGS, 0);
	in->cut = get_if(val, has & HAS_CUT, 0);
	in->lease = get_if(val, has & HAS_LEASE, 0);
	in->orphan = get_if(val, has & HAS_ORPHAN, 0);
	in->rdev = get_u32_if(val, has & HAS_RDEV, 0);
	in->block_log2 = (uint8_t)u64_min(
		get_if(val, has & HAS_BLOCK, BLOCK_LOG2_DEFAULT), UINT8_MAX);
	in->xattr_list = get_u32_if(val, has & HAS_XATTR, 0);
	in->xattr_bytes = get_u32_if(val, has & HAS_XATTR, 0);
	in->parent = get_if(val, has & HAS_DIR, 0);
	in->entries = get_if(val, has & HAS_DIR, 0);
	in->log_dir = get_if(val, has & HAS_LOG_DIR, 0);
	return wire_in_end(val) == 0 && fields == has &&
	       S_ISDIR(in->mode) == ((has & HAS_DIR) != 0) && inode_sane(in);
}

bool sm_inode_get(const struct sm *sm, uint64_t ino, struct sm_inode *in)
{
	struct sm_key k = sm_key1(SM_K_INODE, ino);
	struct wire_in val;

	return sm_get(sm, &k, &val) && sm_inode_decode(in, ino, &val);
}

void sm_inode_put(struct sm *sm, const struct sm_inode *in)
{
	struct sm_key k = sm_key1(SM_K_INODE, in->ino);
	uint8_t buf[SM_INODE_ENCODED_MAX];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	inode_encode(&o, in);
	sm_put(sm, &k, &o);
}

void sm_inode_attr(const struct sm *sm, const struct sm_inode *in,
		   struct meta_attr *a)
{
	*a = (struct meta_attr){
		.ino = in->ino,
		.mode = in->mode,
		.nlink = in->nlink,
		.uid = in->uid,
		.gid = in->gid,
		.rdev = in->rdev,
		/* as on ext4 with small directories; nothing depends on it */
		.size = S_ISDIR(in->mode) ? UNIT_SIZE : in->size,
		.units = in->units,
		.atime_ns = in->atime,
		.mtime_ns = in->mtime,
		.ctime_ns = in->ctime,
		.btime_ns = in->btime,
		.cut = u64_max(in->cut, sm->g.cut_base),
		.parent = in->parent,
		.flags = in->flags &
			 (META_ATTR_CAPS | META_ATTR_ACL | META_ATTR_XATTR),
		.block_log2 = in->block_log2,
	};
	if (in->lease != 0)
		a->flags |= META_ATTR_LEASED;
	if ((in->flags & SM_INODE_LOG) != 0)
		a->flags |= META_ATTR_LOG;
	if (sm_block_size_told(in))
		a->flags |= META_ATTR_XATTR;
}

void sm_reply_attr(struct sm_ctx *x, const struct sm_inode *in)
{
	struct meta_attr a;

	sm_inode_attr(x->sm, in, &a);
	meta_attr_encode(&x->out, &a);
}

int sm_dir_get(const struct sm *sm, uint64_t ino, struct sm_inode *in)
{
	if (!sm_inode_get(sm, ino, in))
		return -ENOENT;
	if (!S_ISDIR(in->mode))
		return -ENOTDIR;
	/* Removed, but open somewhere: nothing can be made in it. */
	return in->nlink == 0 ? -ENOENT : 0;
}

void sm_touch_dir(struct sm_ctx *x, struct sm_inode *dir)
{
	dir->mtime = x->now;
	dir->ctime = x->now;
}

void sm_kill_priv(struct sm_ctx *x, struct sm_inode *in)
{
	if (S_ISDIR(in->mode))
		return;
	in->mode &= ~(uint32_t)S_ISUID;
	/* Without group-exec the bit once meant mandatory locking and stays. */
	if ((in->mode & S_IXGRP) != 0)
		in->mode &= ~(uint32_t)S_ISGID;
	if ((in->flags & SM_INODE_CAPS) != 0)
		(void)sm_xattr_remove(x->sm, in,
				      sm_str("security.capability"));
}

static int set_mode(struct sm_ctx *x, struct sm_inode *in, uint32_t mode)
{
	struct sm_acl acl;

	in->mode = (in->mode & S_IFMT) | (mode & 07777);
	if ((in->flags & SM_INODE_ACL) == 0 ||
	    sm_acl_load(x->sm, in->ino, SM_ACL_ACCESS, &acl) != 0)
		return 0;
	sm_acl_chmod(&acl, in->mode);
	return sm_acl_store(x->sm, in, SM_ACL_ACCESS, &acl);
}

static void add_units(struct sm_inode *in, int64_t delta)
{
	if (delta < 0 && in->units < 0 - (uint64_t)delta)
		in->units = 0;
	else
		in->units += (uint64_t)delta;
}

static void set_times(struct sm_ctx *x, struct sm_inode *in,
		      const struct meta_setattr *s)
{
	if ((s->valid & META_SET_ATIME) != 0)
		in->atime = s->atime_ns;
	if ((s->valid & META_SET_MTIME) != 0)
		in->mtime = s->mtime_ns;
	else if ((s->valid & META_SET_SIZE) != 0)
		in->mtime = x->now;
	in->ctime = (s->valid & META_SET_CTIME) != 0 ? s->ctime_ns : x->now;
}

int sm_run_setattr(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_setattr s;
	struct sm_inode in;
	int err = meta_setattr_parse(body, len, &s);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, s.ino, &in))
		return -ENOENT;
	if ((s.valid & (META_SET_SIZE | META_SET_UNITS_DELTA)) != 0) {
		if (S_ISDIR(in.mode))
			return -EISDIR;
		if (!S_ISREG(in.mode))
			return -EINVAL;
		if ((s.valid & META_SET_SIZE) != 0 && s.size < in.size)
			return -EINVAL;
		/* The end of a leased file is its holder's to move. */
		if (in.lease != 0 && in.lease != x->session)
			return -EBUSY;
		in.flags |= SM_INODE_WRITTEN;
	}
	if ((s.valid & META_SET_UID) != 0)
		in.uid = s.uid;
	if ((s.valid & META_SET_GID) != 0)
		in.gid = s.gid;
	/* A new owner must not inherit the old one's powers. */
	if ((s.valid & (META_SET_UID | META_SET_GID | META_SET_KILLPRIV)) != 0)
		sm_kill_priv(x, &in);
	if ((s.valid & META_SET_MODE) != 0) {
		err = set_mode(x, &in, s.mode);
		if (err != 0)
			return err;
	}
	if ((s.valid & META_SET_SIZE) != 0)
		in.size = s.size;
	if ((s.valid & META_SET_UNITS_DELTA) != 0)
		add_units(&in, s.units_delta);
	set_times(x, &in, &s);
	sm_inode_put(x->sm, &in);
	sm_reply_attr(x, &in);
	return 0;
}

int sm_run_getattr(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_ino q;
	struct sm_inode in;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	sm_reply_attr(x, &in);
	return 0;
}

int sm_run_readlink(struct sm_ctx *x, const void *body, size_t len)
{
	uint8_t target[SYMLINK_LEN_MAX];
	struct meta_ino q;
	struct sm_inode in;
	struct sm_key k;
	ssize_t got;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	if (!S_ISLNK(in.mode))
		return -EINVAL;
	k = sm_key1(SM_K_TARGET, q.ino);
	got = sm_blob_get(x->sm, &k, target, sizeof(target));
	if (got < 0)
		return -EIO;
	wire_put_blob(&x->out, (struct wire_str){ target, (uint32_t)got });
	return 0;
}

size_t sm_inode_list(struct sm *sm, uint64_t after, struct meta_attr *out,
		     size_t max)
{
	struct sm_key k = sm_key1(SM_K_INODE, after + 1);
	struct cow_iter it;
	size_t count = 0;
	bool more = after != UINT64_MAX && sm_seek_prefix(sm, &it, &k, 1);

	for (; more && count < max; more = sm_next_prefix(&it, &k, 1)) {
		struct sm_inode in;
		struct wire_in key, val;

		wire_in_init(&key, it.key + 1, it.klen - 1);
		wire_in_init(&val, it.val, it.vlen);
		if (sm_inode_decode(&in, sm_get_key_u64(&key), &val))
			sm_inode_attr(sm, &in, &out[count++]);
	}
	return count;
}
