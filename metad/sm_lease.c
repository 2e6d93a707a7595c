/* Write leases and what their holders give back. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

int sm_lease_grant(struct sm_ctx *x, struct sm_inode *in)
{
	struct sm_key k = sm_key2(SM_K_LEASE, x->session, in->ino);

	if (in->lease != 0 && in->lease != x->session)
		return -EBUSY;
	/* What it has goes into the blocks before. */
	if (sm_log_others(x->sm, in->ino, x->session))
		return -EBUSY;
	/* Writing starts only when no cut of the past can hit it. */
	x->cut_job = sm_cut_last(x->sm, in->ino);
	x->cut_ino = x->cut_job != 0 ? in->ino : 0;
	in->flags |= SM_INODE_WRITTEN;
	if (in->lease == 0)
		cow_put(x->sm->tree, k.b, k.len, NULL, 0);
	in->lease = x->session;
	return 0;
}

void sm_lease_drop(struct sm *sm, struct sm_inode *in)
{
	struct sm_key k = sm_key2(SM_K_LEASE, in->lease, in->ino);

	if (in->lease != 0)
		(void)sm_del(sm, &k); /* it mirrors in->lease */
	in->lease = 0;
}

int sm_run_lease(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_ino q;
	struct sm_inode in;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	if (!S_ISREG(in.mode))
		return S_ISDIR(in.mode) ? -EISDIR : -EINVAL;
	err = sm_lease_grant(x, &in);
	if (err != 0)
		return err;
	sm_inode_put(x->sm, &in);
	sm_reply_attr(x, &in);
	return 0;
}

static void return_size(struct sm_inode *in, const struct meta_return *r)
{
	in->size = r->size;
	if (r->units_delta < 0 && in->units < 0 - (uint64_t)r->units_delta)
		in->units = 0;
	else
		in->units += (uint64_t)r->units_delta;
	in->mtime = r->mtime_ns;
	/* A chmod may have come since the write: no way back. */
	if (r->ctime_ns > in->ctime)
		in->ctime = r->ctime_ns;
	in->flags |= SM_INODE_WRITTEN;
}

static void return_one(struct sm_ctx *x, const struct meta_return *r)
{
	struct sm_inode in;
	bool mine;

	if (!sm_inode_get(x->sm, r->ino, &in))
		return;
	mine = in.lease == 0 || in.lease == x->session;
	if ((r->what & META_RETURN_SIZE) != 0 && mine && S_ISREG(in.mode))
		return_size(&in, r);
	if ((r->what & META_RETURN_ATIME) != 0)
		in.atime = r->atime_ns;
	if ((r->what & META_RETURN_LEASE) != 0 && in.lease == x->session)
		sm_lease_drop(x->sm, &in);
	sm_inode_put(x->sm, &in);
	if ((r->what & META_RETURN_ORPHAN) != 0 && in.nlink == 0 &&
	    sm_orphan_leave(x->sm, &in, x->session))
		sm_inode_destroy(x, &in);
}

int sm_run_return(struct sm_ctx *x, const void *body, size_t len)
{
	struct wire_in in;

	wire_in_init(&in, body, len);
	while (in.len > 0) {
		struct meta_return r;

		meta_return_decode(&in, &r);
		if (in.bad)
			return -EBADMSG;
		if (cow_reserve(x->sm->tree, SM_DESTROY_CHANGES + 4) != 0)
			return -ENOMEM;
		return_one(x, &r);
	}
	return 0;
}

int sm_run_size_set(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_size_set q;
	struct sm_inode in;
	int err = sm_size_set_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in) || !S_ISREG(in.mode))
		return -ENOENT;
	in.size = u64_max(in.size, q.size);
	in.units = q.units;
	if (q.mtime_ns > in.mtime) {
		in.mtime = q.mtime_ns;
		in.ctime = q.mtime_ns > in.ctime ? q.mtime_ns : in.ctime;
	}
	in.flags |= SM_INODE_WRITTEN;
	sm_inode_put(x->sm, &in);
	return 0;
}

uint64_t sm_lease_holder(const struct sm *sm, uint64_t ino)
{
	struct sm_inode in;

	return sm_inode_get(sm, ino, &in) ? in.lease : 0;
}

size_t sm_holding_list(struct sm *sm, enum sm_kind kind, uint64_t session,
		       uint64_t after, uint64_t *out, size_t max)
{
	struct sm_key k = sm_key2(kind, session, after + 1);
	uint32_t prefix_len = sm_key1(kind, session).len;
	struct cow_iter it;
	size_t count = 0;
	bool more = after != UINT64_MAX &&
		    sm_seek_prefix(sm, &it, &k, prefix_len);

	for (; more && count < max;
	     more = sm_next_prefix(&it, &k, prefix_len)) {
		struct wire_in in;

		wire_in_init(&in, it.key + prefix_len, it.klen - prefix_len);
		out[count++] = sm_get_key_u64(&in);
	}
	return count;
}

size_t sm_lease_list(struct sm *sm, uint64_t session, uint64_t after,
		     uint64_t *out, size_t max)
{
	return sm_holding_list(sm, SM_K_LEASE, session, after, out, max);
}
