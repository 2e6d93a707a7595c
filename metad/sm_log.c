/* The registry of logs: which log daemons hold each log file's log, whose it
 * is, and in which epoch. No epoch is ever given twice. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

#define PEER_SIZE 12u
/* In an entry's value its flags are above its version. */
#define KEPT_FLAGS (META_LOG_LOST | META_LOG_ORDERED)

static bool peer_listed(const struct sm_log *l, uint32_t id, uint64_t boot_id)
{
	for (uint32_t i = 0; i < l->peer_count; i++)
		if (l->peers[i].id == id && l->peers[i].boot_id == boot_id)
			return true;
	return false;
}

/* Each once, as they are in @in; none: a journal's. */
static bool peers_decode(struct wire_in *in, struct sm_log *l)
{
	l->peer_count = 0;
	while (in->len > 0) {
		struct meta_log_peer p;

		meta_log_peer_decode(in, &p);
		if (in->bad || p.id == 0 || p.boot_id == 0 ||
		    l->peer_count == LOG_PEER_COUNT_MAX)
			return false;
		for (uint32_t i = 0; i < l->peer_count; i++)
			if (l->peers[i].id == p.id)
				return false;
		l->peers[l->peer_count++] = p;
	}
	return true;
}

static struct wire_str peers_encode(const struct sm_log *l,
				    uint8_t buf[LOG_PEER_COUNT_MAX * PEER_SIZE])
{
	struct wire_out o;

	wire_out_init(&o, buf, LOG_PEER_COUNT_MAX * PEER_SIZE);
	for (uint32_t i = 0; i < l->peer_count; i++)
		meta_log_peer_encode(&o, &l->peers[i]);
	return (struct wire_str){ buf, (uint32_t)o.len };
}

bool sm_log_decode(struct sm_log *l, uint64_t ino, struct wire_in *val)
{
	uint64_t version;

	*l = (struct sm_log){ .ino = ino };
	l->epoch = sm_get_varint(val);
	l->data_epoch = sm_get_varint(val);
	version = sm_get_varint(val);
	l->version = (uint32_t)version;
	l->flags = (uint8_t)(version >> 32);
	l->session = sm_get_varint(val);
	return !val->bad && (version >> 32 & ~KEPT_FLAGS) == 0 &&
	       ino != 0 && l->data_epoch != 0 && l->data_epoch <= l->epoch &&
	       l->session != 0 && peers_decode(val, l);
}

static void log_put(struct sm *sm, const struct sm_log *l)
{
	struct sm_key k = sm_key1(SM_K_LOG, l->ino);
	uint8_t buf[4 * 10 + LOG_PEER_COUNT_MAX * PEER_SIZE];
	uint8_t peers[LOG_PEER_COUNT_MAX * PEER_SIZE];
	struct wire_str list = peers_encode(l, peers);
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, l->epoch);
	sm_put_varint(&o, l->data_epoch);
	sm_put_varint(&o, (uint64_t)l->flags << 32 | l->version);
	sm_put_varint(&o, l->session);
	wire_put_raw(&o, list.p, list.len);
	sm_put(sm, &k, &o);
}

bool sm_log_find(const struct sm *sm, uint64_t ino, struct sm_log *l)
{
	struct sm_key k = sm_key1(SM_K_LOG, ino);
	struct wire_in val;

	return sm_get(sm, &k, &val) && sm_log_decode(l, ino, &val);
}

void sm_log_forget(struct sm *sm, uint64_t ino)
{
	struct sm_key k = sm_key1(SM_K_LOG, ino);

	if (sm_del(sm, &k))
		sm->g.log_count--;
}

static void put_entry(struct sm_ctx *x, const struct sm_log *l,
		      struct wire_out *o)
{
	uint8_t peers[LOG_PEER_COUNT_MAX * PEER_SIZE];
	struct meta_log_entry e = {
		.ino = l->ino,
		.epoch = l->epoch,
		.data_epoch = l->data_epoch,
		.version = l->version,
		.session = l->session,
		.flags = l->flags,
		.peers = peers_encode(l, peers),
	};

	if (cmap_session_live(x->sm->map, l->session))
		e.flags |= META_LOG_LIVE;
	meta_log_entry_encode(o, &e);
}

/* ---- commands ---- */

int sm_check_log_set(const void *body, size_t len)
{
	struct meta_log_set q;
	struct sm_log l;
	struct wire_in in;
	int err = meta_log_set_parse(body, len, &q);

	if (err != 0)
		return err;
	wire_in_init(&in, q.peers.p, q.peers.len);
	if (!peers_decode(&in, &l))
		return -EINVAL;
	if (q.epoch != 0)
		return l.peer_count > 0 ? 0 : -EINVAL; /* none becomes empty */
	if (q.version == META_LOG_ORDERED && l.peer_count > 0)
		return 0;
	return q.version == 0 ? 0 : -EINVAL;
}

/* Those that are new on the list must live, as far as the map tells. */
static int check_peers(struct sm_ctx *x, const struct sm_log *was,
		       const struct sm_log *l)
{
	for (uint32_t i = 0; i < l->peer_count; i++) {
		const struct meta_log_peer *p = &l->peers[i];
		const struct cmap_log *d = cmap_find_log(x->sm->map, p->id);

		if (was && peer_listed(was, p->id, p->boot_id))
			continue;
		if (!d || d->boot_id != p->boot_id)
			return -ENXIO;
	}
	return 0;
}

static int log_make(struct sm_ctx *x, const struct meta_log_set *q,
		    struct sm_log *l)
{
	struct sm *sm = x->sm;
	struct sm_log was;
	struct sm_inode in;
	int err;

	if (!sm_inode_get(sm, l->ino, &in))
		return -ENOENT;
	if (in.lease != x->session) /* only files have one */
		return -EPERM;
	if (sm_log_find(sm, l->ino, &was))
		return -EEXIST;
	if (sm->g.log_count >= LOG_COUNT_MAX)
		return -ENOSPC;
	if (l->peer_count == 0 && (in.nlink != 0 ||
				   !sm_orphan_alone(sm, &in, x->session)))
		return -EINVAL;
	err = check_peers(x, NULL, l);
	if (err != 0)
		return err;
	if (l->peer_count == 0) {
		/* Nobody may give a journal a name. */
		in.flags &= ~SM_INODE_LINKABLE;
		sm_inode_put(sm, &in);
	}
	l->epoch = l->data_epoch = ++sm->g.log_epoch;
	l->version = 1;
	l->session = x->session;
	l->flags = (uint8_t)q->version;
	sm->g.log_count++;
	return 0;
}

/* @l has the peers alone; the rest becomes the entry's. */
static int log_change(struct sm_ctx *x, const struct meta_log_set *q,
		      struct sm_log *l)
{
	struct sm_log was;
	int err;

	if (!sm_log_find(x->sm, q->ino, &was) || was.epoch != q->epoch ||
	    was.version != q->version || was.session != x->session)
		return -ESTALE;
	if (was.peer_count == 0)
		return -EINVAL;
	err = check_peers(x, &was, l);
	if (err != 0)
		return err;
	l->epoch = was.epoch;
	l->data_epoch = was.data_epoch;
	l->version = was.version + 1;
	l->session = was.session;
	l->flags = was.flags;
	return 0;
}

int sm_run_log_set(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_log_set q;
	struct sm_log l;
	struct wire_in in;
	int err = meta_log_set_parse(body, len, &q);

	if (err != 0)
		return err;
	l.ino = q.ino;
	wire_in_init(&in, q.peers.p, q.peers.len);
	if (!peers_decode(&in, &l))
		return -EBADMSG;
	err = q.epoch == 0 ? log_make(x, &q, &l) : log_change(x, &q, &l);
	if (err != 0)
		return err;
	log_put(x->sm, &l);
	put_entry(x, &l, &x->out);
	return 0;
}

int sm_run_log_raise(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_ino q;
	struct sm_inode in;
	struct sm_log l;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_log_find(x->sm, q.ino, &l))
		return -ENOENT;
	if (l.session != x->session &&
	    cmap_session_live(x->sm->map, l.session))
		return -EBUSY;
	if (x->sm->g.log_heir != 0 && x->sm->g.log_heir != x->session)
		return -EBUSY;
	l.epoch = ++x->sm->g.log_epoch;
	l.session = x->session;
	log_put(x->sm, &l);
	put_entry(x, &l, &x->out);
	/* A journal is there as long as its entry is. */
	if (l.peer_count == 0 && sm_inode_get(x->sm, q.ino, &in)) {
		sm_orphan_move(x->sm, &in, x->session);
		sm_inode_put(x->sm, &in);
	}
	return 0;
}

int sm_check_log_drop(const void *body, size_t len)
{
	struct meta_log_drop q;

	return meta_log_drop_parse(body, len, &q);
}

/* The entry that is meant, if it is the session's. */
static int log_owned(struct sm_ctx *x, const void *body, size_t len,
		     struct sm_log *l)
{
	struct meta_log_drop q;
	int err = meta_log_drop_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_log_find(x->sm, q.ino, l))
		return -ENOENT;
	return l->epoch == q.epoch && l->session == x->session ? 0 : -ESTALE;
}

int sm_run_log_drop(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_log l;
	int err = log_owned(x, body, len, &l);

	if (err == 0)
		sm_log_forget(x->sm, l.ino);
	return err == -ENOENT ? 0 : err;
}

int sm_run_log_lose(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_log l;
	int err = log_owned(x, body, len, &l);

	if (err != 0)
		return err;
	if (l.peer_count == 0)
		return -EINVAL;
	l.flags |= META_LOG_LOST;
	log_put(x->sm, &l);
	put_entry(x, &l, &x->out);
	return 0;
}

int sm_check_log_heir(const void *body, size_t len)
{
	struct meta_log_heir q;
	int err = meta_log_heir_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.on > 1 ? -EINVAL : 0;
}

int sm_run_log_heir(struct sm_ctx *x, const void *body, size_t len)
{
	uint64_t *heir = &x->sm->g.log_heir;
	struct meta_log_heir q;
	int err = meta_log_heir_parse(body, len, &q);

	if (err != 0)
		return err;
	if (*heir != 0 && *heir != x->session)
		return q.on ? -EBUSY : 0;
	*heir = q.on ? x->session : 0;
	return 0;
}

/* ---- what others may do ---- */

uint64_t sm_log_heir(const struct sm *sm)
{
	return sm->g.log_heir;
}

enum sm_log_way sm_log_way(const struct sm *sm, uint64_t ino, uint64_t session)
{
	bool recovers;
	struct sm_log l;

	if (sm->g.log_count == 0 || !sm_log_find(sm, ino, &l))
		return SM_LOG_FREE;
	/* The heir has logs of its own, too: those were not raised. */
	recovers = l.session == sm->g.log_heir && l.epoch != l.data_epoch;
	if (recovers || !cmap_session_live(sm->map, l.session))
		return SM_LOG_WAIT;
	if (l.session == session || sm_lease_holder(sm, ino) == l.session)
		return SM_LOG_FREE; /* it returns both */
	return SM_LOG_LOST;
}

bool sm_log_others(const struct sm *sm, uint64_t ino, uint64_t session)
{
	struct sm_log l;

	return sm->g.log_count > 0 && sm_log_find(sm, ino, &l) &&
	       l.session != session;
}

bool sm_log_left(struct sm *sm)
{
	struct sm_key k = sm_key1(SM_K_LOG, 0);
	struct cow_iter it;
	bool more;

	for (more = sm_seek_prefix(sm, &it, &k, 1); more;
	     more = sm_next_prefix(&it, &k, 1)) {
		struct wire_in key, val;
		struct sm_log l;

		wire_in_init(&key, it.key + 1, it.klen - 1);
		wire_in_init(&val, it.val, it.vlen);
		if (sm_log_decode(&l, sm_get_key_u64(&key), &val) &&
		    !cmap_session_live(sm->map, l.session))
			return true;
	}
	return false;
}

/* ---- queries ---- */

int sm_check_log_list(const void *body, size_t len)
{
	struct meta_log_list q;
	int err = meta_log_list_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.count_max == 0 ? -EINVAL : 0;
}

_Static_assert(LOG_LIST_COUNT_MAX * (45 + LOG_PEER_COUNT_MAX * PEER_SIZE) +
			       16 < SM_REPLY_MAX, "a page is a reply");

int sm_run_log_list(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_log_list_reply r = { .done = 1 };
	struct wire_out head, entries;
	struct meta_log_list q;
	struct cow_iter it;
	struct sm_key k;
	bool more;
	int err = meta_log_list_parse(body, len, &q);

	if (err != 0)
		return err;
	q.count_max = (uint32_t)u64_min(q.count_max, LOG_LIST_COUNT_MAX);
	k = sm_key1(SM_K_LOG, q.ino + 1);
	more = q.ino != UINT64_MAX && sm_seek_prefix(x->sm, &it, &k, 1);
	/* done, count, and the blob's length come before */
	wire_out_init(&entries, x->out.p + 9, SM_REPLY_MAX - 9);
	for (; more; more = sm_next_prefix(&it, &k, 1)) {
		struct sm_log l;
		struct wire_in key, val;

		wire_in_init(&key, it.key + 1, it.klen - 1);
		wire_in_init(&val, it.val, it.vlen);
		if (!sm_log_decode(&l, sm_get_key_u64(&key), &val))
			return -EIO;
		if (q.session != 0 && l.session != q.session)
			continue;
		if (r.count == q.count_max) {
			r.done = 0;
			break;
		}
		put_entry(x, &l, &entries);
		r.count++;
	}
	assert(!entries.overflow);
	wire_out_init(&head, x->out.p, 9);
	wire_put_u8(&head, r.done);
	wire_put_u32(&head, r.count);
	wire_put_u32(&head, (uint32_t)entries.len);
	x->out.len = 9 + entries.len;
	return 0;
}

/* ---- log directories ---- */

/* The text of @dir's options, or -ENODATA. */
static ssize_t options_text(const struct sm *sm, uint64_t dir, char *buf)
{
	ssize_t len = sm_xattr_read(sm, dir, sm_str(META_XATTR_LOG), buf,
				    LOG_OPTS_TEXT_MAX);

	/* Longer ones may have been made when it meant nothing. */
	return len < 0 ? -ENODATA : len;
}

bool sm_log_options(const struct sm *sm, const struct sm_inode *dir,
		    struct log_opts *o)
{
	char text[LOG_OPTS_TEXT_MAX];
	ssize_t len;

	if (!S_ISDIR(dir->mode) || (dir->flags & SM_INODE_LOG) == 0)
		return false;
	len = options_text(sm, dir->ino, text);
	return len >= 0 && log_opts_parse((struct wire_str){
						  text, (uint32_t)len },
					  o) == 0;
}

void sm_log_named(const struct sm *sm, const struct sm_inode *dir,
		  struct wire_str name, struct sm_inode *in)
{
	struct log_opts o;

	if (!S_ISREG(in->mode))
		return;
	in->flags &= ~SM_INODE_LOG;
	in->log_dir = 0;
	if (!sm_log_options(sm, dir, &o) || !log_opts_match(&o, name))
		return;
	in->flags |= SM_INODE_LOG;
	in->log_dir = dir->ino;
}

int sm_run_log_opts(struct sm_ctx *x, const void *body, size_t len)
{
	char text[LOG_OPTS_TEXT_MAX];
	struct meta_ino q;
	struct sm_inode in;
	ssize_t got;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	if ((in.flags & SM_INODE_LOG) == 0)
		return -ENODATA;
	got = options_text(x->sm, S_ISDIR(in.mode) ? in.ino : in.log_dir,
			   text);
	wire_put_blob(&x->out, (struct wire_str){
				       text, got < 0 ? 0 : (uint32_t)got });
	return 0;
}

uint64_t sm_log_epoch(const struct sm *sm)
{
	return sm->g.log_epoch;
}

uint64_t sm_log_count(const struct sm *sm)
{
	return sm->g.log_count;
}
