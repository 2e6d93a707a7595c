/* The end of inodes: orphans that a session still uses, and the queue of
 * those whose blocks are still to be freed. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

void sm_orphan_add(struct sm_ctx *x, struct sm_inode *in)
{
	struct sm_key k = sm_key2(SM_K_ORPHAN, x->session, in->ino);

	in->orphan = x->session;
	cow_put(x->sm->tree, k.b, k.len, NULL, 0);
}

void sm_orphan_add_all(struct sm_ctx *x, struct sm_inode *in)
{
	const struct cmap *map = x->sm->map;
	struct sm_key k;
	uint32_t i;

	sm_orphan_add(x, in);
	for (i = 0; i < map->session_count; i++) {
		if (map->sessions[i] == x->session)
			continue;
		k = sm_key2(SM_K_ORPHAN, map->sessions[i], in->ino);
		cow_put(x->sm->tree, k.b, k.len, NULL, 0);
	}
}

/* Some session but @not that keeps @ino; 0: none. Those that are dead and have
 * not been ended yet are not in the map. */
static uint64_t keeper(const struct sm *sm, uint64_t ino, uint64_t not)
{
	struct sm_key k = sm_key1(SM_K_SESSION, 1), orphan;
	struct cow_iter it;
	struct wire_in in, val;
	bool more;

	for (more = sm_seek_prefix(sm, &it, &k, 1); more;
	     more = sm_next_prefix(&it, &k, 1)) {
		uint64_t id;

		wire_in_init(&in, it.key + 1, it.klen - 1);
		id = sm_get_key_u64(&in);
		orphan = sm_key2(SM_K_ORPHAN, id, ino);
		if (id != not && sm_get(sm, &orphan, &val))
			return id;
	}
	return 0;
}

bool sm_orphan_alone(const struct sm *sm, const struct sm_inode *in,
		     uint64_t session)
{
	return in->orphan == session && keeper(sm, in->ino, session) == 0;
}

bool sm_orphan_leave(struct sm *sm, struct sm_inode *in, uint64_t session)
{
	struct sm_key k = sm_key2(SM_K_ORPHAN, session, in->ino);

	if (!sm_del(sm, &k))
		return false; /* it has left already */
	if (in->orphan != session)
		return false;
	in->orphan = keeper(sm, in->ino, session);
	if (in->orphan == 0)
		return true;
	sm_inode_put(sm, in);
	return false;
}

size_t sm_orphan_list(struct sm *sm, uint64_t session, uint64_t after,
		      uint64_t *out, size_t max)
{
	return sm_holding_list(sm, SM_K_ORPHAN, session, after, out, max);
}

void sm_orphan_del(struct sm *sm, struct sm_inode *in)
{
	struct sm_key k = sm_key2(SM_K_ORPHAN, in->orphan, in->ino);

	(void)sm_del(sm, &k); /* it mirrors in->orphan */
	in->orphan = 0;
}

void sm_orphan_move(struct sm *sm, struct sm_inode *in, uint64_t session)
{
	struct sm_key k = sm_key2(SM_K_ORPHAN, session, in->ino);

	sm_orphan_del(sm, in);
	in->orphan = session;
	cow_put(sm->tree, k.b, k.len, NULL, 0);
}

static void purge_put(struct sm_ctx *x, uint64_t ino)
{
	struct sm_key k = sm_key1(SM_K_PURGE, ino);
	uint8_t buf[16];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, x->pos);
	sm_put(x->sm, &k, &o);
	x->sm->g.purge_count++;
}

void sm_inode_destroy(struct sm_ctx *x, struct sm_inode *in)
{
	struct sm *sm = x->sm;
	struct sm_key k = sm_key1(SM_K_INODE, in->ino);
	struct sm_key xattrs = sm_key1(SM_K_XATTR, in->ino);
	struct sm_key target = sm_key1(SM_K_TARGET, in->ino);
	struct sm_key cuts = sm_key1(SM_K_CUT, in->ino);

	sm_orphan_del(sm, in);
	sm_lease_drop(sm, in);
	sm_del_prefix(sm, &cuts); /* the purge takes all there is */
	if (in->xattr_list != 0)
		sm_del_prefix(sm, &xattrs);
	if (S_ISLNK(in->mode))
		sm_del_prefix(sm, &target);
	sm_log_forget(sm, in->ino);
	(void)sm_del(sm, &k); /* the caller read it */
	sm->g.inode_count--;
	/* Nobody ever had the right to write blocks of the others. */
	if ((in->flags & SM_INODE_WRITTEN) != 0)
		purge_put(x, in->ino);
}

int sm_run_purge_done(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_purge_done q;
	struct wire_in in;
	int err = sm_purge_done_parse(body, len, &q);

	if (err != 0)
		return err;
	wire_in_init(&in, q.inos.p, q.inos.len);
	while (in.len > 0) {
		struct sm_key k = sm_key1(SM_K_PURGE, wire_get_u64(&in));

		if (in.bad)
			return -EBADMSG;
		if (cow_reserve(x->sm->tree, 1) != 0)
			return -ENOMEM;
		if (sm_del(x->sm, &k))
			x->sm->g.purge_count--;
	}
	return 0;
}

uint64_t sm_purge_count(const struct sm *sm)
{
	return sm->g.purge_count;
}

size_t sm_purge_list(struct sm *sm, uint64_t after, struct sm_purge *out,
		     size_t max)
{
	struct sm_key k = sm_key1(SM_K_PURGE, after + 1);
	struct cow_iter it;
	size_t count = 0;
	bool more = after != UINT64_MAX && sm_seek_prefix(sm, &it, &k, 1);

	for (; more && count < max; more = sm_next_prefix(&it, &k, 1)) {
		struct wire_in in, val;

		wire_in_init(&in, it.key + 1, it.klen - 1);
		wire_in_init(&val, it.val, it.vlen);
		out[count].ino = sm_get_key_u64(&in);
		out[count].pos = sm_get_varint(&val);
		count++;
	}
	return count;
}
