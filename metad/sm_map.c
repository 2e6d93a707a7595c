/* The cluster map in the state: daemons, live sessions, epoch; bootstrap. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

int sm_map_edit(struct sm_ctx *x)
{
	x->map_new = cmap_dup(x->sm->map);
	if (x->map_new == NULL)
		return -ENOMEM;
	x->map_new->epoch++;
	return 0;
}

int sm_map_add_session(struct cmap *m, uint64_t session)
{
	size_t size = (m->session_count + 1) * sizeof(*m->sessions);
	uint64_t *grown = realloc(m->sessions, size);

	if (grown == NULL)
		return -ENOMEM;
	m->sessions = grown;
	grown[m->session_count++] = session; /* ids ascend */
	return 0;
}

void sm_map_del_session(struct cmap *m, uint64_t session)
{
	uint32_t keep = 0;

	for (uint32_t i = 0; i < m->session_count; i++) {
		if (m->sessions[i] != session)
			m->sessions[keep++] = m->sessions[i];
	}
	m->session_count = keep;
}

_Static_assert(SM_BLOB_CHANGES(SLOT_COUNT * REPLICA_COUNT_MAX * 2 +
			       DAEMON_COUNT_MAX * 96 + SESSION_COUNT_MAX * 8 +
			       LOG_DAEMON_COUNT_MAX * 216 + 64) <=
		       SM_MAP_CHANGES, "a map's changes");

void sm_map_commit(struct sm_ctx *x)
{
	/* No command that changes the map has a long reply. */
	uint8_t *buf = x->sm->out + 4096;
	struct sm_key k;
	struct wire_out o;

	wire_out_init(&o, buf, SM_REPLY_MAX - 4096);
	cmap_encode(&o, x->map_new);
	assert(!o.overflow && x->out.len <= 4096);
	sm_key_init(&k, SM_K_MAP);
	sm_blob_put(x->sm, &k, buf, o.len);
	cmap_free(x->sm->map);
	x->sm->map = x->map_new;
	x->map_new = NULL;
}

static void make_root(struct sm_ctx *x, uint32_t mode)
{
	struct sm_inode root = {
		.ino = ROOT_INO,
		.mode = S_IFDIR | (mode & 07777),
		.nlink = 2,
		.parent = ROOT_INO,
		.atime = x->now,
		.mtime = x->now,
		.ctime = x->now,
		.btime = x->now,
		.block_log2 = BLOCK_LOG2_DEFAULT,
	};

	sm_inode_put(x->sm, &root);
	x->sm->g.next_ino = ROOT_INO + 1;
	x->sm->g.next_session = 1;
	x->sm->g.inode_count = 1;
}

int sm_run_bootstrap(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_bootstrap q;
	struct cmap *map;
	int err = sm_bootstrap_parse(body, len, &q);

	if (err != 0)
		return err;
	if (x->sm->g.next_ino != 0)
		return -EEXIST;
	err = cmap_decode(q.map.p, q.map.len, &map);
	if (err != 0)
		return err;
	/* Epoch 0 means "no map yet" in a frame; sessions are made here. */
	map->epoch = u64_max(map->epoch, 1);
	map->session_count = 0;
	x->map_new = map;
	x->now = q.now_ns;
	make_root(x, q.mode);
	return 0;
}

/* What is kept of a daemon beside its line in the map. */
struct daemon_record {
	uint64_t commit;
	uint32_t given_up_count;
	uint64_t given_up[SM_GIVEN_UP_MAX][2]; /* oldest first */
};

static bool record_get(const struct sm *sm, uint32_t id,
		       struct daemon_record *d)
{
	struct sm_key k = sm_key1(SM_K_DAEMON, id);
	struct wire_in val;

	*d = (struct daemon_record){ .commit = 0 };
	if (!sm_get(sm, &k, &val))
		return false;
	d->commit = sm_get_varint(&val);
	while (val.len > 0 && d->given_up_count < SM_GIVEN_UP_MAX) {
		uint64_t *to = d->given_up[d->given_up_count++];

		to[0] = wire_get_u64(&val);
		to[1] = wire_get_u64(&val);
	}
	return true;
}

static void record_put(struct sm *sm, uint32_t id,
		       const struct daemon_record *d)
{
	struct sm_key k = sm_key1(SM_K_DAEMON, id);
	uint8_t buf[16 + SM_GIVEN_UP_MAX * 16];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, d->commit);
	for (uint32_t i = 0; i < d->given_up_count; i++) {
		wire_put_u64(&o, d->given_up[i][0]);
		wire_put_u64(&o, d->given_up[i][1]);
	}
	sm_put(sm, &k, &o);
}

static void record_give_up(struct daemon_record *d, uint64_t hi, uint64_t lo)
{
	if (d->given_up_count == SM_GIVEN_UP_MAX)
		memmove(d->given_up[0], d->given_up[1],
			--d->given_up_count * sizeof(d->given_up[0]));
	d->given_up[d->given_up_count][0] = hi;
	d->given_up[d->given_up_count++][1] = lo;
}

int sm_daemon_commit(struct sm *sm, uint32_t id, uint64_t *commit)
{
	struct daemon_record d;

	if (!record_get(sm, id, &d))
		return -ENOENT;
	*commit = d.commit;
	return 0;
}

bool sm_store_given_up(struct sm *sm, uint32_t id, uint64_t hi, uint64_t lo)
{
	struct daemon_record d;

	(void)record_get(sm, id, &d); /* none: nothing was */
	for (uint32_t i = 0; i < d.given_up_count; i++)
		if (d.given_up[i][0] == hi && d.given_up[i][1] == lo)
			return true;
	return false;
}

static bool daemon_equal(const struct cmap_daemon *a,
			 const struct cmap_daemon *b)
{
	return strcmp(a->addr, b->addr) == 0 && a->port == b->port &&
	       a->store_id_hi == b->store_id_hi &&
	       a->store_id_lo == b->store_id_lo && a->state == b->state;
}

int sm_run_daemon_set(struct sm_ctx *x, const void *body, size_t len)
{
	struct cmap_daemon d = { 0 };
	const struct cmap_daemon *was;
	struct daemon_record rec;
	struct sm_daemon_set q;
	int i, err = sm_daemon_set_parse(body, len, &q);

	if (err != 0)
		return err;
	d.id = q.id;
	memcpy(d.addr, q.addr.p, q.addr.len);
	d.port = q.port;
	d.store_id_hi = q.store_id_hi;
	d.store_id_lo = q.store_id_lo;
	d.state = q.state;
	i = cmap_find_daemon(x->sm->map, q.id);
	was = i < 0 ? NULL : &x->sm->map->daemons[i];
	(void)record_get(x->sm, q.id, &rec); /* none: all zeros */
	rec.commit = q.commit;
	if (was && (was->store_id_hi != 0 || was->store_id_lo != 0) &&
	    d.store_id_hi == 0 && d.store_id_lo == 0)
		record_give_up(&rec, was->store_id_hi, was->store_id_lo);
	if (!was || !daemon_equal(was, &d)) {
		err = sm_map_edit(x);
		if (err != 0)
			return err;
		if (i < 0)
			i = cmap_add_daemon(x->map_new, &d);
		if (i < 0)
			return i;
		x->map_new->daemons[i] = d;
	}
	record_put(x->sm, q.id, &rec);
	return 0;
}

static void get_text(char to[CMAP_ADDR_LEN_MAX + 1], struct wire_str s)
{
	if (s.len > 0)
		memcpy(to, s.p, s.len);
}

static bool log_equal(const struct cmap_log *a, const struct cmap_log *b)
{
	return strcmp(a->addr, b->addr) == 0 && a->port == b->port &&
	       strcmp(a->rdma_addr, b->rdma_addr) == 0 &&
	       a->rdma_port == b->rdma_port &&
	       strcmp(a->domain, b->domain) == 0 && a->boot_id == b->boot_id;
}

int sm_run_logd_set(struct sm_ctx *x, const void *body, size_t len)
{
	struct cmap_log l = { 0 };
	const struct cmap_log *was;
	struct sm_logd_set q;
	int err = sm_logd_set_parse(body, len, &q);

	if (err != 0)
		return err;
	l.id = q.id;
	get_text(l.addr, q.addr);
	l.port = q.port;
	get_text(l.rdma_addr, q.rdma_addr);
	l.rdma_port = q.rdma_port;
	get_text(l.domain, q.domain);
	l.boot_id = q.boot_id;
	was = cmap_find_log(x->sm->map, q.id);
	if (was && log_equal(was, &l))
		return 0;
	err = sm_map_edit(x);
	return err != 0 ? err : cmap_set_log(x->map_new, &l);
}

int sm_raise_read(const void *body, size_t len, struct sm_raise *q)
{
	int err = sm_raise_parse(body, len, q);
	uint8_t all[40] = { 0 };

	if (err == 0 || len != sizeof(all) - sizeof(q->log_epoch))
		return err;
	memcpy(all, body, len);
	return sm_raise_parse(all, sizeof(all), q);
}

int sm_run_raise(struct sm_ctx *x, const void *body, size_t len)
{
	struct sm_globals *g = &x->sm->g;
	struct sm_raise q;
	int err = sm_raise_read(body, len, &q);

	if (err != 0)
		return err;
	if (g->next_ino == 0)
		return -ENODEV;
	if (q.epoch > x->sm->map->epoch) {
		err = sm_map_edit(x);
		if (err != 0)
			return err;
		x->map_new->epoch = q.epoch;
	}
	g->next_ino = u64_max(g->next_ino, q.ino);
	g->next_session = u64_max(g->next_session, q.session);
	g->cut_base = u64_max(g->cut_base, q.cut);
	g->log_epoch = u64_max(g->log_epoch, q.log_epoch);
	return 0;
}

int sm_run_map_get(struct sm_ctx *x, const void *body, size_t len)
{
	struct wire_out o;

	(void)body; /* empty */
	(void)len;
	wire_out_init(&o, x->out.p + 4, SM_REPLY_MAX - 4);
	cmap_encode(&o, x->sm->map);
	if (o.overflow)
		return -EOVERFLOW;
	wire_put_u32(&x->out, (uint32_t)o.len); /* a blob's length */
	x->out.len += o.len;
	return 0;
}

int sm_run_statfs(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_statfs_reply r = {
		.inodes = x->sm->g.inode_count,
		.inodes_max = INODE_COUNT_MAX,
		.purge_pending = x->sm->g.purge_count,
	};

	(void)body; /* empty */
	(void)len;
	meta_statfs_reply_encode(&x->out, &r);
	return 0;
}
