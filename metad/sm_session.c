/* Sessions, and the replies kept for their retries: design section 3. */
#include "metad/sm_priv.h"

bool sm_session_decode(struct sm_session *s, uint64_t id, struct wire_in *val)
{
	s->id = id;
	/* What changes with each command comes first and has a fixed size, so
	 * that it is written in place. */
	s->seq_low = wire_get_u64(val);
	s->dead = wire_get_u8(val);
	s->client_id = wire_get_u64(val);
	s->host = wire_get_str(val);
	s->mountpoint = wire_get_str(val);
	/* Not there in what was written before there were any. */
	s->flags = val->len > 0 ? wire_get_u32(val) : 0;
	return wire_in_end(val) == 0 && s->dead <= 1 &&
	       (s->flags & ~META_SESSION_KNOWN) == 0;
}

static bool session_get(const struct sm *sm, uint64_t id, struct sm_session *s)
{
	struct sm_key k = sm_key1(SM_K_SESSION, id);
	struct wire_in val;

	return id != 0 && sm_get(sm, &k, &val) &&
	       sm_session_decode(s, id, &val);
}

static void session_put(struct sm *sm, const struct sm_session *s)
{
	struct sm_key k = sm_key1(SM_K_SESSION, s->id);
	uint8_t buf[COW_VALUE_MAX];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	wire_put_u64(&o, s->seq_low);
	wire_put_u8(&o, s->dead);
	wire_put_u64(&o, s->client_id);
	wire_put_str(&o, s->host);
	wire_put_str(&o, s->mountpoint);
	if (s->flags != 0)
		wire_put_u32(&o, s->flags);
	sm_put(sm, &k, &o);
}

static struct sm_key reply_key(uint64_t session, uint64_t seq)
{
	return sm_key2(SM_K_REPLY, session, seq);
}

bool sm_reply_decode(struct sm_reply *r, uint64_t *cut_ino,
		     struct wire_in *val)
{
	uint64_t err = sm_get_varint(val);

	*r = (struct sm_reply){ .status = -(int)(err & INT16_MAX) };
	r->pos = sm_get_varint(val);
	*cut_ino = sm_get_varint(val);
	r->cut_job = sm_get_varint(val);
	r->body = val->p;
	r->body_len = (uint32_t)val->len;
	return !val->bad && err <= INT16_MAX;
}

int sm_session_enter(struct sm *sm, uint64_t session,
		     const struct meta_mhdr *h, struct sm_reply *r)
{
	struct sm_key k = reply_key(session, h->seq);
	struct sm_session s;
	struct wire_in val;
	uint64_t cut_ino;

	if (!session_get(sm, session, &s) || s.dead != 0 || h->seq < s.seq_low)
		return -ESTALE;
	if (!sm_get(sm, &k, &val) || !sm_reply_decode(r, &cut_ino, &val))
		return 0;
	r->replayed = true;
	/* The cut may have been confirmed since. */
	k = sm_key2(SM_K_CUT, cut_ino, r->cut_job);
	if (r->cut_job != 0 && !sm_get(sm, &k, &val))
		r->cut_job = 0;
	r->cut_ino = r->cut_job != 0 ? cut_ino : 0;
	return 1;
}

void sm_session_leave(struct sm_ctx *x, const struct meta_mhdr *h,
		      const struct sm_reply *r)
{
	struct sm_key k = reply_key(x->session, h->seq);
	uint8_t buf[COW_VALUE_MAX];
	struct sm_key from, to;
	struct sm_session s;
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, (uint64_t)-r->status);
	sm_put_varint(&o, r->pos);
	sm_put_varint(&o, x->cut_ino);
	sm_put_varint(&o, x->cut_job);
	wire_put_raw(&o, r->body, r->body_len);
	sm_put(x->sm, &k, &o);
	if (!session_get(x->sm, x->session, &s) || h->seq_low <= s.seq_low)
		return;
	from = reply_key(x->session, s.seq_low);
	to = reply_key(x->session, h->seq_low);
	s.seq_low = h->seq_low;
	session_put(x->sm, &s);
	(void)cow_del_range(x->sm->tree, from.b, from.len, to.b, to.len);
}

/* As much of @s as struct sm_session_info can show. */
static struct wire_str shortened(struct wire_str s, size_t size)
{
	s.len = (uint32_t)u64_min(s.len, size - 1);
	return s;
}

static bool too_many(const struct sm *sm)
{
	return sm->map->session_count >= SESSION_COUNT_MAX;
}

int sm_session_open_split(const void *body, size_t len,
			  struct sm_session_open *q, uint32_t *flags)
{
	struct wire_in in;

	wire_in_init(&in, body, len);
	sm_session_open_decode(&in, q);
	*flags = in.len > 0 ? wire_get_u32(&in) : 0;
	if (wire_in_end(&in) != 0)
		return -EBADMSG;
	return (*flags & ~META_SESSION_KNOWN) == 0 ? 0 : -EINVAL;
}

int sm_run_session_open(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_session_info info;
	struct sm_session_open q;
	struct sm_session s;
	uint32_t flags;
	int err = sm_session_open_split(body, len, &q, &flags);

	if (err != 0)
		return err;
	if (x->sm->g.next_ino == 0)
		return -ENODEV; /* not bootstrapped */
	if (too_many(x->sm))
		return -EUSERS;
	s = (struct sm_session){
		.id = x->sm->g.next_session,
		.seq_low = 1,
		.client_id = q.client_id,
		.flags = flags,
		.host = shortened(q.host, sizeof(info.host)),
		.mountpoint = shortened(q.mountpoint, sizeof(info.mountpoint)),
	};
	err = sm_map_edit(x);
	if (err == 0)
		err = sm_map_add_session(x->map_new, s.id);
	if (err != 0)
		return err;
	x->sm->g.next_session++;
	session_put(x->sm, &s);
	wire_put_u64(&x->out, s.id);
	return 0;
}

/* First entry of @session under @kind. */
static bool first_ino(const struct sm *sm, enum sm_kind kind, uint64_t session,
		      uint64_t *ino)
{
	struct sm_key k = sm_key1(kind, session);
	struct cow_iter it;
	struct wire_in in;

	if (!sm_seek_prefix(sm, &it, &k, k.len))
		return false;
	wire_in_init(&in, it.key + k.len, it.klen - k.len);
	*ino = sm_get_key_u64(&in);
	return true;
}

/* The end of an orphan's session. What a journal says must outlive it, until
 * the next mount has done it. */
static void drop_orphan(struct sm_ctx *x, struct sm_inode *in,
			uint64_t session)
{
	struct sm_log l;

	if (!sm_orphan_leave(x->sm, in, session))
		return;
	if (sm_log_find(x->sm, in->ino, &l) && l.peer_count == 0) {
		sm_orphan_move(x->sm, in, SM_NOBODY);
		sm_inode_put(x->sm, in);
	} else {
		sm_inode_destroy(x, in);
	}
}

/* Everything the session had goes, one reservation an inode. */
static int drop_holdings(struct sm_ctx *x, uint64_t session)
{
	struct sm *sm = x->sm;
	struct sm_inode in;
	uint64_t ino;

	while (first_ino(sm, SM_K_ORPHAN, session, &ino)) {
		if (cow_reserve(sm->tree, SM_DESTROY_CHANGES + 4) != 0)
			return -ENOMEM;
		if (!sm_inode_get(sm, ino, &in) || in.orphan == 0)
			return -EIO;
		drop_orphan(x, &in, session);
	}
	while (first_ino(sm, SM_K_LEASE, session, &ino)) {
		if (cow_reserve(sm->tree, 2) != 0)
			return -ENOMEM;
		if (!sm_inode_get(sm, ino, &in) || in.lease != session)
			return -EIO;
		sm_lease_drop(sm, &in);
		sm_inode_put(sm, &in);
	}
	return sm_locks_drop(sm, session);
}

int sm_run_session_close(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm *sm = x->sm;
	struct sm_session_close q;
	struct sm_session s;
	struct sm_key replies, k;
	int err = sm_session_close_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!session_get(sm, q.session, &s))
		return -ENOENT;
	if (s.dead == 0) {
		err = sm_map_edit(x);
		if (err != 0)
			return err;
		sm_map_del_session(x->map_new, q.session);
	}
	s.dead = 1;
	session_put(sm, &s);
	if (q.dead == 1)
		return 0;
	err = drop_holdings(x, q.session);
	if (err == 0 && cow_reserve(sm->tree, 2) != 0)
		err = -ENOMEM;
	if (err != 0)
		return err;
	if (sm->g.log_heir == q.session)
		sm->g.log_heir = 0;
	k = sm_key1(SM_K_SESSION, q.session);
	replies = sm_key1(SM_K_REPLY, q.session);
	sm_del_prefix(sm, &replies);
	(void)sm_del(sm, &k); /* seen above */
	return 0;
}

static void copy_str(char *to, size_t size, struct wire_str s)
{
	s = shortened(s, size);
	if (s.len > 0)
		memcpy(to, s.p, s.len);
	to[s.len] = '\0';
}

size_t sm_session_list(struct sm *sm, uint64_t after,
		       struct sm_session_info *out, size_t max)
{
	struct sm_key k = sm_key1(SM_K_SESSION, after + 1);
	struct cow_iter it;
	size_t count = 0;
	bool more = after != UINT64_MAX && sm_seek_prefix(sm, &it, &k, 1);

	for (; more && count < max; more = sm_next_prefix(&it, &k, 1)) {
		struct sm_session s;
		struct wire_in in, val;

		wire_in_init(&in, it.key + 1, it.klen - 1);
		wire_in_init(&val, it.val, it.vlen);
		if (!sm_session_decode(&s, sm_get_key_u64(&in), &val))
			continue;
		out[count].session = s.id;
		out[count].client_id = s.client_id;
		out[count].dead = s.dead;
		out[count].shared = (s.flags & META_SESSION_SHARED) != 0;
		copy_str(out[count].host, sizeof(out->host), s.host);
		copy_str(out[count].mountpoint, sizeof(out->mountpoint),
			 s.mountpoint);
		count++;
	}
	return count;
}
