/* Explicit changes of a file's extent: the inode's cut number grows, and a
 * job makes every block daemon drop what lies beyond. */
#include "common/wire_blk.h"
#include "metad/sm_priv.h"

#include <sys/stat.h>

static void cut_put(struct sm *sm, uint64_t ino, uint64_t cut,
		    const struct sm_cut_job *j)
{
	struct sm_key k = sm_key2(SM_K_CUT, ino, cut);
	uint8_t buf[40];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, j->from);
	sm_put_varint(&o, j->to);
	sm_put_varint(&o, j->pos);
	wire_put_u8(&o, j->block_log2);
	sm_put(sm, &k, &o);
}

bool sm_cut_decode(struct sm_cut_job *j, struct wire_in *val)
{
	j->from = sm_get_varint(val);
	j->to = sm_get_varint(val);
	j->pos = sm_get_varint(val);
	j->block_log2 = wire_get_u8(val);
	return wire_in_end(val) == 0;
}

static bool cut_key_decode(const struct cow_iter *it, uint64_t *ino,
			   uint64_t *cut)
{
	struct wire_in in;

	wire_in_init(&in, it->key + 1, it->klen - 1);
	*ino = sm_get_key_u64(&in);
	*cut = sm_get_key_u64(&in);
	return wire_in_end(&in) == 0;
}

uint64_t sm_cut_last(const struct sm *sm, uint64_t ino)
{
	struct sm_key k = sm_key1(SM_K_CUT, ino);
	struct cow_iter it;
	uint64_t last = 0, key_ino, cut;
	bool more;

	for (more = sm_seek_prefix(sm, &it, &k, k.len); more;
	     more = sm_next_prefix(&it, &k, k.len)) {
		if (cut_key_decode(&it, &key_ino, &cut))
			last = cut;
	}
	return last;
}

bool sm_cut_pending(struct sm *sm, uint64_t ino)
{
	struct sm_key k = sm_key1(SM_K_CUT, ino);

	return sm_any_prefix(sm, &k);
}

size_t sm_cut_list(struct sm *sm, uint64_t after_ino, uint64_t after_cut,
		   struct sm_cut *out, size_t max)
{
	struct sm_key k = sm_key2(SM_K_CUT, after_ino, after_cut);
	struct cow_iter it;
	size_t count = 0;
	bool more;

	for (more = sm_seek_prefix(sm, &it, &k, 1); more && count < max;
	     more = sm_next_prefix(&it, &k, 1)) {
		struct sm_cut *c = &out[count];
		struct sm_cut_job j;
		struct wire_in val;

		wire_in_init(&val, it.val, it.vlen);
		if (!cut_key_decode(&it, &c->ino, &c->cut) ||
		    !sm_cut_decode(&j, &val))
			continue;
		if (c->ino == after_ino && c->cut == after_cut)
			continue;
		c->from = j.from;
		c->to = j.to;
		c->pos = j.pos;
		c->block_log2 = j.block_log2;
		count++;
	}
	return count;
}

int sm_run_cut(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_inode in;
	struct meta_cut c;
	int err = meta_cut_parse(body, len, &c);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, c.ino, &in))
		return -ENOENT;
	if (!S_ISREG(in.mode))
		return S_ISDIR(in.mode) ? -EISDIR : -EINVAL;
	if (in.lease != 0 && in.lease != x->session)
		return -EBUSY;
	in.cut = u64_max(in.cut, x->sm->g.cut_base) + 1;
	if (c.size_now > c.from || in.size > c.from || in.units > 0) {
		struct sm_cut_job j = { .from = c.from, .to = c.to,
					.pos = x->pos,
					.block_log2 = in.block_log2 };

		cut_put(x->sm, in.ino, in.cut, &j);
		x->cut_ino = in.ino;
		x->cut_job = in.cut;
	}
	in.size = c.size;
	in.mtime = x->now;
	in.ctime = x->now;
	in.flags |= SM_INODE_WRITTEN;
	if ((c.flags & META_CUT_KILLPRIV) != 0)
		sm_kill_priv(x, &in);
	sm_inode_put(x->sm, &in);
	sm_reply_attr(x, &in);
	return 0;
}

int sm_run_cut_done(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_cut_done q;
	struct sm_inode in;
	struct sm_key k;
	int err = sm_cut_done_parse(body, len, &q);

	if (err != 0)
		return err;
	k = sm_key2(SM_K_CUT, q.ino, q.cut);
	if (!sm_del(x->sm, &k) || !sm_inode_get(x->sm, q.ino, &in))
		return 0; /* purged meanwhile, or told twice */
	if (q.units_delta < 0 && in.units < 0 - (uint64_t)q.units_delta)
		in.units = 0;
	else
		in.units += (uint64_t)q.units_delta;
	sm_inode_put(x->sm, &in);
	return 0;
}
