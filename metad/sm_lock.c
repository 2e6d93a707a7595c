/* Advisory locks: of (inode, kind) a run of records in the order of their
 * starts, in which an owner's own never overlap and equal neighbours are one;
 * as common/lock_table.c has them, but without those who wait (lock.h).
 */
#include "metad/sm_priv.h"

#include "common/lock_table.h"

/* Each lock of a command's range goes, two pieces of it and a new one come, and
 * the session's count; the kept reply. */
#define LOCK_CHANGES(count) ((uint32_t)(count) + 16u)

static struct sm_key run_prefix(uint64_t ino, uint8_t kind)
{
	struct sm_key k = sm_key1(SM_K_LOCK, ino);

	sm_key_raw(&k, &kind, 1);
	return k;
}

static struct sm_key lock_key(const struct sm_lock *k)
{
	struct sm_key key = run_prefix(k->l.ino, k->l.kind);

	sm_key_u64(&key, k->l.start);
	sm_key_u64(&key, k->session);
	sm_key_u64(&key, k->l.owner);
	return key;
}

bool sm_lock_decode(struct sm_lock *k, struct wire_in *key, struct wire_in *val)
{
	uint64_t pid;

	k->l.ino = sm_get_key_u64(key);
	k->l.kind = wire_get_u8(key);
	k->l.start = sm_get_key_u64(key);
	k->session = sm_get_key_u64(key);
	k->l.owner = sm_get_key_u64(key);
	k->l.type = wire_get_u8(val);
	k->l.end = sm_get_varint(val);
	pid = sm_get_varint(val);
	k->l.pid = (uint32_t)pid;
	return wire_in_end(key) == 0 && wire_in_end(val) == 0 &&
	       k->l.kind <= LOCK_KIND_FLOCK && k->l.type <= LOCK_TYPE_WRITE &&
	       k->l.start <= k->l.end && pid <= UINT32_MAX;
}

static bool decode_at(struct sm_lock *k, const struct cow_iter *it)
{
	struct wire_in key, val;

	wire_in_init(&key, it->key + 1, it->klen - 1);
	wire_in_init(&val, it->val, it->vlen);
	return sm_lock_decode(k, &key, &val);
}

/* ---- looking ---- */

/* A walk over one run. */
struct walk {
	struct cow_iter it;
	struct sm_key prefix;
	bool more;
};

/* From @from on; NULL: from the start. */
static void walk_begin(const struct sm *sm, struct walk *w, uint64_t ino,
		       uint8_t kind, const struct sm_lock *from)
{
	struct sm_key k;

	w->prefix = run_prefix(ino, kind);
	k = from != NULL ? lock_key(from) : w->prefix;
	w->more = sm_seek_prefix(sm, &w->it, &k, w->prefix.len);
}

/* The next one that starts at @end or before it. */
static bool walk_next(struct walk *w, uint64_t end, struct sm_lock *k)
{
	if (!w->more || !decode_at(k, &w->it) || k->l.start > end)
		return false;
	w->more = sm_next_prefix(&w->it, &w->prefix, w->prefix.len);
	return true;
}

static bool is_own(const struct sm_lock *k, uint64_t session,
		   const struct meta_lock *m)
{
	return k->session == session && k->l.owner == m->owner;
}

static bool overlaps(const struct sm_lock *k, const struct meta_lock *m)
{
	return k->l.start <= m->end && k->l.end >= m->start;
}

static bool is_in_way(const struct sm_lock *k, uint64_t session,
		      const struct meta_lock *m)
{
	return !is_own(k, session, m) && overlaps(k, m) &&
	       (k->l.type == LOCK_TYPE_WRITE || m->type == LOCK_TYPE_WRITE);
}

bool sm_lock_conflict(const struct sm *sm, uint64_t session,
		      const struct meta_lock *m, const struct sm_lock *after,
		      struct sm_lock *ret)
{
	struct sm_lock from;
	struct walk w;

	if (after != NULL)
		from = *after;
	walk_begin(sm, &w, m->ino, m->kind, after);
	while (walk_next(&w, m->end, ret)) {
		if (after != NULL && ret->l.start == from.l.start &&
		    ret->session == from.session &&
		    ret->l.owner == from.l.owner)
			continue;
		if (is_in_way(ret, session, m))
			return true;
	}
	return false;
}

size_t sm_lock_list(struct sm *sm, const struct sm_lock *after,
		    struct sm_lock *out, size_t max)
{
	struct sm_key k, next;
	struct cow_iter it;
	size_t count = 0;
	bool more;

	sm_key_init(&k, SM_K_LOCK);
	next = k;
	if (after != NULL) {
		next = lock_key(after);
		sm_key_raw(&next, "", 1);
	}
	for (more = sm_seek_prefix(sm, &it, &next, k.len); more && count < max;
	     more = sm_next_prefix(&it, &k, k.len))
		count += decode_at(&out[count], &it);
	return count;
}

uint64_t sm_lock_count(const struct sm *sm)
{
	return sm->g.lock_count;
}

uint64_t sm_locks_freed(const struct sm *sm)
{
	return sm->locks_freed;
}

/* ---- changing ---- */

/* @session has @delta more locks on the inode. */
static void holder_count(struct sm *sm, uint64_t session, uint64_t ino,
			 int delta)
{
	struct sm_key k = sm_key2(SM_K_LOCKER, session, ino);
	uint8_t buf[16];
	struct wire_out o;
	struct wire_in val;
	uint64_t n = 0;

	if (delta == 0)
		return;
	if (sm_get(sm, &k, &val))
		n = sm_get_varint(&val);
	n += (uint64_t)(int64_t)delta;
	sm->g.lock_count += (uint64_t)(int64_t)delta;
	if (n == 0) {
		(void)sm_del(sm, &k); /* it was there: n was not 0 */
		return;
	}
	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, n);
	sm_put(sm, &k, &o);
}

static void lock_put(struct sm *sm, const struct sm_lock *k)
{
	struct sm_key key = lock_key(k);
	uint8_t buf[32];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	wire_put_u8(&o, k->l.type);
	sm_put_varint(&o, k->l.end);
	sm_put_varint(&o, k->l.pid);
	sm_put(sm, &key, &o);
}

static void lock_del(struct sm *sm, const struct sm_lock *k)
{
	struct sm_key key = lock_key(k);

	(void)sm_del(sm, &key); /* it was just read */
}

/* Do they touch, without an overflow at the last byte? */
static bool adjoins(const struct sm_lock *k, const struct meta_lock *m)
{
	return (k->l.end != UINT64_MAX && k->l.end + 1 == m->start) ||
	       (m->end != UINT64_MAX && m->end + 1 == k->l.start);
}

/* Is it changed by @m of its owner? */
static bool is_touched(const struct sm_lock *k, uint64_t session,
		       const struct meta_lock *m)
{
	return is_own(k, session, m) &&
	       (overlaps(k, m) || (k->l.type == m->type && adjoins(k, m)));
}

/* The last start that can be of interest to @m. */
static uint64_t reach(const struct meta_lock *m)
{
	return m->end == UINT64_MAX ? m->end : m->end + 1;
}

static size_t count_touched(const struct sm *sm, uint64_t session,
			    const struct meta_lock *m)
{
	struct sm_lock k;
	struct walk w;
	size_t n = 0;

	walk_begin(sm, &w, m->ino, m->kind, NULL);
	while (walk_next(&w, reach(m), &k))
		n += is_touched(&k, session, m);
	return n;
}

/* The first that @m touches, from @from on (NULL: from the start). */
static bool next_touched(const struct sm *sm, uint64_t session,
			 const struct meta_lock *m, const struct sm_lock *from,
			 struct sm_lock *k)
{
	struct walk w;

	walk_begin(sm, &w, m->ino, m->kind, from);
	while (walk_next(&w, reach(m), k))
		if (is_touched(k, session, m))
			return true;
	return false;
}

/* A lock of another type leaves what @m does not cover. Returns how many pieces
 * that is. */
static int keep_rest(struct sm *sm, const struct sm_lock *k,
		     const struct meta_lock *m)
{
	struct sm_lock rest = *k;
	int n = 0;

	if (k->l.start < m->start) {
		rest.l.end = m->start - 1;
		lock_put(sm, &rest);
		n++;
	}
	if (k->l.end > m->end) {
		rest.l.start = m->end + 1;
		rest.l.end = k->l.end;
		lock_put(sm, &rest);
		n++;
	}
	return n;
}

/* Replaces what the owner has in the range by @m (nothing for UNLOCK). */
static void replace(struct sm *sm, uint64_t session, const struct meta_lock *m)
{
	struct sm_lock mine = { .session = session, .l = *m };
	struct sm_lock k, last;
	int delta = 0;

	for (bool more = next_touched(sm, session, m, NULL, &k); more;
	     more = next_touched(sm, session, m, &last, &k)) {
		last = k;
		lock_del(sm, &k);
		delta--;
		if (k.l.type == m->type) {
			mine.l.start = u64_min(mine.l.start, k.l.start);
			mine.l.end = u64_max(mine.l.end, k.l.end);
			continue;
		}
		sm->locks_freed += m->type != LOCK_TYPE_WRITE;
		delta += keep_rest(sm, &k, m);
	}
	if (m->type != LOCK_TYPE_UNLOCK) {
		lock_put(sm, &mine);
		delta++;
	}
	holder_count(sm, session, m->ino, delta);
}

/* A conversion loses the old flock, whatever becomes of the new one. */
static void convert_flock(struct sm *sm, uint64_t session,
			  const struct meta_lock *m)
{
	struct sm_lock k;

	if (m->kind != LOCK_KIND_FLOCK || m->type == LOCK_TYPE_UNLOCK ||
	    !next_touched(sm, session, m, NULL, &k) || k.l.type == m->type)
		return;
	lock_del(sm, &k);
	holder_count(sm, session, m->ino, -1);
	sm->locks_freed++;
}

static uint64_t held_count(const struct sm *sm, uint64_t session, uint64_t ino)
{
	struct sm_key k = sm_key2(SM_K_LOCKER, session, ino);
	struct wire_in val;

	return sm_get(sm, &k, &val) ? sm_get_varint(&val) : 0;
}

/* Would this unlock leave two pieces of a lock? */
static bool splits(const struct sm *sm, uint64_t session,
		   const struct meta_lock *m)
{
	struct sm_lock k;

	return next_touched(sm, session, m, NULL, &k) &&
	       k.l.start < m->start && k.l.end > m->end;
}

/* May there be one more? A close, which drops all, always passes. */
static bool has_room(const struct sm *sm, uint64_t session,
		     const struct meta_lock *m)
{
	bool full = held_count(sm, session, m->ino) >= LOCK_FILE_COUNT_MAX;

	if (m->type == LOCK_TYPE_UNLOCK)
		return !full || !splits(sm, session, m);
	return !full && sm->g.lock_count < LOCK_COUNT_MAX;
}

static int set_lock(struct sm_ctx *x, uint64_t session,
		    const struct meta_lock *m)
{
	struct sm *sm = x->sm;
	struct sm_inode in;
	struct sm_lock k;
	bool taken;

	if (m->type != LOCK_TYPE_UNLOCK && !sm_inode_get(sm, m->ino, &in))
		return -ENOENT;
	if (!has_room(sm, session, m))
		return -ENOLCK;
	if (cow_reserve(sm->tree,
			LOCK_CHANGES(count_touched(sm, session, m))) != 0)
		return -ENOMEM;
	convert_flock(sm, session, m);
	taken = m->type == LOCK_TYPE_UNLOCK ||
		!sm_lock_conflict(sm, session, m, NULL, &k);
	if (taken)
		replace(sm, session, m);
	wire_put_u8(&x->out, taken);
	return 0;
}

int sm_run_lock(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_lock m;
	int err = meta_lock_parse(body, len, &m);

	return err != 0 ? err : set_lock(x, x->session, &m);
}

/* SM_LOCK's body. */
static int grant_split(const void *body, size_t len, uint64_t *session,
		       struct meta_lock *m)
{
	struct wire_in in;

	wire_in_init(&in, body, len);
	*session = wire_get_u64(&in);
	meta_lock_decode(&in, m);
	return wire_in_end(&in);
}

int sm_run_lock_granted(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_lock m;
	uint64_t session;
	int err = grant_split(body, len, &session, &m);

	if (err != 0)
		return err;
	if (!cmap_session_live(x->sm->map, session))
		return -ESTALE;
	return set_lock(x, session, &m);
}

int sm_run_lock_get(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_lock m;
	struct sm_lock k;
	struct walk w;
	bool found = false;
	int err = meta_lock_parse(body, len, &m);

	if (err != 0)
		return err;
	if (m.type != LOCK_TYPE_UNLOCK) {
		found = sm_lock_conflict(x->sm, x->session, &m, NULL, &k);
	} else {
		walk_begin(x->sm, &w, m.ino, m.kind, NULL);
		while (!found && walk_next(&w, m.end, &k))
			found = is_own(&k, x->session, &m) && overlaps(&k, &m);
	}
	if (!found) {
		m.type = LOCK_TYPE_UNLOCK;
	} else {
		m = k.l;
		/* Numbers of another machine say nothing on this one. */
		if (k.session != x->session)
			m.owner = m.pid = 0;
	}
	meta_lock_encode(&x->out, &m);
	return 0;
}

/* Those of one inode and kind, a reservation each. */
static int drop_run(struct sm *sm, uint64_t session, uint64_t ino, uint8_t kind)
{
	struct sm_lock k, last;
	struct walk w;

	walk_begin(sm, &w, ino, kind, NULL);
	while (walk_next(&w, UINT64_MAX, &k)) {
		last = k;
		if (k.session != session)
			continue;
		if (cow_reserve(sm->tree, 2) != 0)
			return -ENOMEM;
		lock_del(sm, &k);
		holder_count(sm, session, ino, -1);
		walk_begin(sm, &w, ino, kind, &last);
	}
	return 0;
}

int sm_locks_drop(struct sm *sm, uint64_t session)
{
	struct sm_key prefix = sm_key1(SM_K_LOCKER, session);
	struct cow_iter it;
	struct wire_in in;
	int err = 0;

	while (err == 0 && sm_seek_prefix(sm, &it, &prefix, prefix.len)) {
		uint64_t ino;

		wire_in_init(&in, it.key + prefix.len, it.klen - prefix.len);
		ino = sm_get_key_u64(&in);
		err = drop_run(sm, session, ino, LOCK_KIND_POSIX);
		if (err == 0)
			err = drop_run(sm, session, ino, LOCK_KIND_FLOCK);
		/* Its count is not that of its locks. */
		if (err == 0 && held_count(sm, session, ino) != 0)
			err = -EIO;
		sm->locks_freed++;
	}
	return err;
}

/* ---- bodies ---- */

static int check_lock(const struct meta_lock *m)
{
	if (m->ino == 0 || m->ino > INO_MAX || m->kind > LOCK_KIND_FLOCK ||
	    m->type > LOCK_TYPE_UNLOCK || m->start > m->end)
		return -EINVAL;
	return m->kind == LOCK_KIND_FLOCK &&
	       (m->start != 0 || m->end != UINT64_MAX) ? -EINVAL : 0;
}

int sm_check_lock(const void *body, size_t len)
{
	struct meta_lock m;
	int err = meta_lock_parse(body, len, &m);

	return err != 0 ? err : check_lock(&m);
}

int sm_check_lock_granted(const void *body, size_t len)
{
	struct meta_lock m;
	uint64_t session;
	int err = grant_split(body, len, &session, &m);

	if (err != 0)
		return err;
	return session == 0 || m.type == LOCK_TYPE_UNLOCK ? -EINVAL :
							    check_lock(&m);
}
