/* Does a restored state make sense? Each record by itself, then against
 * those it refers to. What is checked here is what the handlers rely on. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

struct verify {
	const struct sm *sm;
	struct sm_inode of; /* inode of the group of keys being read */
	uint64_t group; /* its number; 0: none */
	/* sums over the present group */
	uint64_t entries, subdirs;
	uint64_t xattr_list, xattr_bytes;
	uint64_t target_bytes;
	bool partial; /* the last chunk was full: one more may follow */
	uint8_t last_key[COW_KEY_MAX]; /* blob of the last chunk */
	uint32_t last_len;
	/* sums over all */
	uint64_t inodes, dirs, dir_names, file_links, file_names, purges;
	uint64_t leased, leases, orphaned, orphan_owners;
	uint64_t has_xattr, xattr_groups, links, target_groups;
	uint64_t dirs_filled, dir_groups, logs, locks, locked;
};

static bool session_known(const struct verify *v, uint64_t session)
{
	struct sm_key k = sm_key1(SM_K_SESSION, session);
	struct sm_session s;
	struct wire_in val;

	return sm_get(v->sm, &k, &val) && sm_session_decode(&s, session, &val);
}

static bool check_session(struct verify *v, struct wire_in *key,
			  struct wire_in *val)
{
	const struct sm_session_info *info = NULL;
	struct sm_session s;
	uint64_t id = sm_get_key_u64(key);

	return wire_in_end(key) == 0 && id > 0 &&
	       id < v->sm->g.next_session && sm_session_decode(&s, id, val) &&
	       s.host.len < sizeof(info->host) &&
	       s.mountpoint.len < sizeof(info->mountpoint) &&
	       cmap_session_live(v->sm->map, id) == (s.dead == 0);
}

static bool check_reply(struct verify *v, struct wire_in *key,
			struct wire_in *val)
{
	uint64_t session = sm_get_key_u64(key);
	uint64_t seq = sm_get_key_u64(key);
	struct sm_reply r;
	uint64_t cut_ino;

	return wire_in_end(key) == 0 && seq > 0 && session_known(v, session) &&
	       sm_reply_decode(&r, &cut_ino, val) && r.pos <= v->sm->g.pos;
}

static bool is_journal(const struct verify *v, uint64_t ino)
{
	struct sm_log l;

	return sm_log_find(v->sm, ino, &l) && l.peer_count == 0;
}

/* An orphan may have several sessions; its record names one of them. */
static bool holds(struct verify *v, const struct sm_inode *in,
		  uint64_t session, bool lease)
{
	if (lease)
		return in->lease == session;
	v->orphan_owners += in->orphan == session;
	return in->orphan == session ||
	       (in->orphan != 0 && in->orphan != SM_NOBODY);
}

static bool check_holding(struct verify *v, struct wire_in *key,
			  struct wire_in *val, bool lease)
{
	uint64_t session = sm_get_key_u64(key);
	uint64_t ino = sm_get_key_u64(key);
	struct sm_inode in;

	v->leases += lease;
	return wire_in_end(key) == 0 && val->len == 0 &&
	       (session_known(v, session) ||
		(!lease && session == SM_NOBODY && is_journal(v, ino))) &&
	       sm_inode_get(v->sm, ino, &in) &&
	       holds(v, &in, session, lease);
}

static bool check_purge(struct verify *v, struct wire_in *key,
			struct wire_in *val)
{
	uint64_t ino = sm_get_key_u64(key);
	struct sm_inode in;

	v->purges++;
	return wire_in_end(key) == 0 && ino < v->sm->g.next_ino &&
	       sm_get_varint(val) <= v->sm->g.pos && wire_in_end(val) == 0 &&
	       !sm_inode_get(v->sm, ino, &in);
}

static bool check_cut(struct verify *v, struct wire_in *key,
		      struct wire_in *val)
{
	uint64_t ino = sm_get_key_u64(key);
	uint64_t cut = sm_get_key_u64(key);
	struct sm_cut_job j;
	struct sm_inode in;

	return wire_in_end(key) == 0 && sm_cut_decode(&j, val) &&
	       j.pos <= v->sm->g.pos && sm_inode_get(v->sm, ino, &in) &&
	       S_ISREG(in.mode) && cut <= in.cut;
}

static bool check_log(struct verify *v, struct wire_in *key,
		      struct wire_in *val)
{
	uint64_t ino = sm_get_key_u64(key);
	struct sm_inode in;
	struct sm_log l;

	v->logs++;
	return wire_in_end(key) == 0 && sm_log_decode(&l, ino, val) &&
	       l.epoch <= v->sm->g.log_epoch &&
	       l.session < v->sm->g.next_session &&
	       sm_inode_get(v->sm, ino, &in) && S_ISREG(in.mode) &&
	       (l.peer_count != 0 || in.orphan == l.session ||
		in.orphan == SM_NOBODY);
}

/* Its inode may be gone: the locks of who closed it last may go later. */
static bool check_lock(struct verify *v, struct wire_in *key,
		       struct wire_in *val)
{
	struct wire_in count;
	struct sm_lock k;
	struct sm_key locker;

	v->locks++;
	if (!sm_lock_decode(&k, key, val) || !session_known(v, k.session))
		return false;
	locker = sm_key2(SM_K_LOCKER, k.session, k.l.ino);
	return sm_get(v->sm, &locker, &count);
}

static bool check_locker(struct verify *v, struct wire_in *key,
			 struct wire_in *val)
{
	uint64_t session = sm_get_key_u64(key);
	uint64_t ino = sm_get_key_u64(key);
	uint64_t count = sm_get_varint(val);

	v->locked += count;
	return wire_in_end(key) == 0 && wire_in_end(val) == 0 && ino != 0 &&
	       session != 0 && count != 0 && count <= v->sm->g.lock_count;
}

static bool check_inode(struct verify *v, struct wire_in *key,
			struct wire_in *val)
{
	uint64_t ino = sm_get_key_u64(key);
	struct log_opts opts;
	struct sm_inode in;

	if (wire_in_end(key) != 0 || !sm_inode_decode(&in, ino, val) ||
	    ino >= v->sm->g.next_ino)
		return false;
	v->inodes++;
	v->leased += in.lease != 0;
	v->orphaned += in.orphan != 0;
	v->has_xattr += in.xattr_list != 0;
	v->links += S_ISLNK(in.mode);
	if (S_ISDIR(in.mode)) {
		v->dirs += in.nlink != 0 && ino != ROOT_INO;
		v->dirs_filled += in.entries != 0;
		if (in.nlink != 0 && in.parent == 0)
			return false;
	} else {
		v->file_links += in.nlink;
	}
	return (in.nlink == 0) == (in.orphan != 0) &&
	       ((in.flags & SM_INODE_XATTR) != 0) == (in.xattr_list != 0) &&
	       (!S_ISDIR(in.mode) || (in.flags & SM_INODE_LOG) == 0 ||
		sm_log_options(v->sm, &in, &opts)) &&
	       (ino != ROOT_INO || (S_ISDIR(in.mode) && in.nlink != 0));
}

/* The records of one inode under one kind are next to each other: at the end
 * of each such group its sums must be what the inode says. */
static bool group_end(struct verify *v, uint8_t kind)
{
	const struct sm_inode *in = &v->of;

	if (v->group == 0)
		return true;
	v->group = 0;
	v->partial = false;
	v->last_len = 0;
	switch (kind) {
	case SM_K_DIRENT:
		v->dir_groups++;
		return v->entries == in->entries &&
		       v->subdirs + 2 == in->nlink;
	case SM_K_XATTR:
		v->xattr_groups++;
		return v->xattr_list == in->xattr_list &&
		       v->xattr_bytes == in->xattr_bytes;
	default:
		v->target_groups++;
		return v->target_bytes == in->size;
	}
}

static bool group_start(struct verify *v, uint8_t kind, uint64_t ino)
{
	if (v->group == ino)
		return true;
	if (!group_end(v, kind) || !sm_inode_get(v->sm, ino, &v->of))
		return false;
	v->group = ino;
	v->entries = 0;
	v->subdirs = 0;
	v->xattr_list = 0;
	v->xattr_bytes = 0;
	v->target_bytes = 0;
	return true;
}

static bool check_dirent(struct verify *v, struct wire_in *key,
			 struct wire_in *val)
{
	uint64_t dir = sm_get_key_u64(key);
	uint64_t cookie = sm_get_key_fixed_u64(key);
	struct wire_str name;
	struct sm_inode in;
	uint64_t ino;
	uint32_t type;

	if (wire_in_end(key) != 0 || !group_start(v, SM_K_DIRENT, dir) ||
	    !S_ISDIR(v->of.mode) ||
	    !sm_dirent_decode(val, &ino, &type, &name) ||
	    cookie >> SM_COOKIE_SLOT_BITS !=
		    sm_dirent_hash(v->sm, dir, name) >> SM_COOKIE_SLOT_BITS ||
	    !sm_inode_get(v->sm, ino, &in) || in.nlink == 0 ||
	    (in.mode & S_IFMT) != type || ino == ROOT_INO)
		return false;
	v->entries++;
	if (!S_ISDIR(type)) {
		v->file_names++;
		return true;
	}
	v->subdirs++;
	v->dir_names++;
	return in.parent == dir;
}

/* Chunks of one blob count up from 0 and all but the last are full. */
static bool check_chunk(struct verify *v, const uint8_t *key, uint32_t klen,
			uint32_t vlen)
{
	uint32_t prefix = klen - 1;
	bool same = v->last_len == klen &&
		    memcmp(v->last_key, key, prefix) == 0;
	uint8_t last = same ? v->last_key[prefix] : 0;

	if (same ? !v->partial || key[prefix] != last + 1 || vlen == 0 :
		   key[prefix] != 0)
		return false;
	memcpy(v->last_key, key, klen);
	v->last_len = klen;
	v->partial = vlen == COW_VALUE_MAX;
	return true;
}

static bool check_xattr(struct verify *v, struct wire_in *key,
			struct wire_in *val, const struct cow_iter *it)
{
	uint64_t ino = sm_get_key_u64(key);
	const uint8_t *name = key->p;
	size_t len = key->len;

	if (key->bad || len < 3 || len > XATTR_NAME_LEN_MAX + 2 ||
	    memchr(name, 0, len - 2) != NULL || name[len - 2] != 0 ||
	    !group_start(v, SM_K_XATTR, ino) ||
	    !check_chunk(v, it->key, it->klen, it->vlen))
		return false;
	if (name[len - 1] == 0) {
		v->xattr_list += len - 1;
		v->xattr_bytes += len - 1;
	}
	v->xattr_bytes += val->len;
	return (uint32_t)name[len - 1] * COW_VALUE_MAX + val->len <=
	       XATTR_VALUE_MAX;
}

static bool check_target(struct verify *v, struct wire_in *key,
			 struct wire_in *val, const struct cow_iter *it)
{
	uint64_t ino = sm_get_key_u64(key);

	if (key->bad || key->len != 1 || !group_start(v, SM_K_TARGET, ino) ||
	    !S_ISLNK(v->of.mode) ||
	    !check_chunk(v, it->key, it->klen, it->vlen))
		return false;
	v->target_bytes += val->len;
	return v->target_bytes <= SYMLINK_LEN_MAX;
}

static bool check_record(struct verify *v, const struct cow_iter *it)
{
	struct wire_in key, val;

	wire_in_init(&key, it->key + 1, it->klen - 1);
	wire_in_init(&val, it->val, it->vlen);
	switch (it->key[0]) {
	case SM_K_GLOBAL:
		return key.len == 0;
	case SM_K_MAP:
		return key.len == 1 &&
		       check_chunk(v, it->key, it->klen, it->vlen);
	case SM_K_DAEMON:
		(void)sm_get_key_u64(&key);
		(void)sm_get_varint(&val);
		return wire_in_end(&key) == 0 && !val.bad &&
		       val.len % 16 == 0 && val.len / 16 <= SM_GIVEN_UP_MAX;
	case SM_K_SESSION:
		return check_session(v, &key, &val);
	case SM_K_REPLY:
		return check_reply(v, &key, &val);
	case SM_K_LEASE:
		return check_holding(v, &key, &val, true);
	case SM_K_ORPHAN:
		return check_holding(v, &key, &val, false);
	case SM_K_PURGE:
		return check_purge(v, &key, &val);
	case SM_K_CUT:
		return check_cut(v, &key, &val);
	case SM_K_INODE:
		return check_inode(v, &key, &val);
	case SM_K_DIRENT:
		return check_dirent(v, &key, &val);
	case SM_K_XATTR:
		return check_xattr(v, &key, &val, it);
	case SM_K_TARGET:
		return check_target(v, &key, &val, it);
	case SM_K_LOG:
		return check_log(v, &key, &val);
	case SM_K_LOCK:
		return check_lock(v, &key, &val);
	case SM_K_LOCKER:
		return check_locker(v, &key, &val);
	default:
		return false;
	}
}

static bool check_sums(const struct verify *v)
{
	const struct sm_globals *g = &v->sm->g;
	struct sm_inode root;

	if (g->next_ino == 0)
		return v->inodes == 0 && g->inode_count == 0;
	return sm_inode_get(v->sm, ROOT_INO, &root) &&
	       v->inodes == g->inode_count && v->purges == g->purge_count &&
	       v->dirs == v->dir_names && v->dirs_filled == v->dir_groups &&
	       v->file_links == v->file_names && v->leased == v->leases &&
	       v->orphaned == v->orphan_owners &&
	       v->has_xattr == v->xattr_groups &&
	       v->links == v->target_groups && v->logs == g->log_count &&
	       v->locks == g->lock_count && v->locked == g->lock_count &&
	       (g->log_heir == 0 || session_known(v, g->log_heir));
}

bool sm_verify(struct sm *sm)
{
	struct verify v = { .sm = sm };
	struct cow_iter it;
	uint8_t kind = 0;

	for (bool more = cow_seek(sm->tree, &it, "", 0); more;
	     more = cow_next(&it)) {
		if (it.key[0] != kind && !group_end(&v, kind))
			return false;
		kind = it.key[0];
		if (!check_record(&v, &it))
			return false;
	}
	return group_end(&v, kind) && check_sums(&v);
}
