/* The mini metad: requests and their answers, by the real state machine. */
#include "tests/lib/mini_metad_priv.h"

#include "common/crc32c.h"
#include "common/status.h"
#include "common/wire_blk.h"
#include "metad/log_pick.h"

#include <time.h>

/* More creations than a test loses at a time. */
#define SWEEP_INODES 256u

/* ---- the state machine ---- */

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void log_add(struct mini_metad *m, uint16_t op, uint64_t session,
		    const void *body, uint32_t len)
{
	if (m->log_len == m->log_cap) {
		m->log_cap = m->log_cap ? 2 * m->log_cap : 1024;
		m->log = realloc(m->log, m->log_cap * sizeof(*m->log));
		must(m->log);
	}
	struct mini_log *e = &m->log[m->log_len++];
	*e = (struct mini_log){ .op = op, .session = session, .len = len };
	e->pos = sm_pos(m->sm);
	e->body = malloc(len ? len : 1);
	must(e->body);
	if (len)
		memcpy(e->body, body, len);
}

void mm_apply(struct mini_metad *m, uint16_t op, uint64_t session,
		  const void *body, size_t len, struct sm_reply *r)
{
	uint64_t before = sm_pos(m->sm);
	sm_apply(m->sm, op, session, body, len, r);
	if (sm_pos(m->sm) != before)
		log_add(m, op, session, body, (uint32_t)len);
}

static void bootstrap(struct mini_metad *m)
{
	struct cmap *map = cmap_new();
	struct sm_reply r;
	struct wire_out o;
	must(map);
	map->cluster_id = MINI_CLUSTER_ID;
	map->replica_count = 1;
	for (uint32_t i = 0; i < m->o.blockd_count; i++) {
		struct cmap_daemon d = {
			.id = i + 1, .port = m->o.blockd_ports[i],
			.store_id_lo = i + 1, .state = CMAP_STATE_UP,
		};
		snprintf(d.addr, sizeof(d.addr), "127.0.0.1");
		must(cmap_add_daemon(map, &d) >= 0);
	}
	if (m->o.blockd_count)
		cmap_fill_slots(map);
	size_t map_len = cmap_encoded_size(map);
	uint8_t *buf = malloc(map_len), *body;
	must(buf);
	wire_out_init(&o, buf, map_len);
	cmap_encode(&o, map);
	struct sm_bootstrap b = { .now_ns = now_ns(), .mode = 0755,
				  .map = { buf, (uint32_t)o.len } };
	size_t len = sm_bootstrap_size(&b);
	body = malloc(len);
	must(body);
	wire_out_init(&o, body, len);
	sm_bootstrap_encode(&o, &b);
	must(sm_validate(WIRE_OP_SM_BOOTSTRAP, body, len) == 0);
	mm_apply(m, WIRE_OP_SM_BOOTSTRAP, 0, body, len, &r);
	must(r.status == 0);
	m->durable = sm_pos(m->sm);
	free(body);
	free(buf);
	cmap_free(map);
}

void mm_lose_suffix(struct mini_metad *m)
{
	size_t keep = 0;
	sm_free(m->sm);
	m->sm = sm_new();
	must(m->sm);
	while (keep < m->log_len && m->log[keep].pos <= m->durable) {
		struct mini_log *e = &m->log[keep++];
		struct sm_reply r;
		sm_apply(m->sm, e->op, e->session, e->body, e->len, &r);
		must(sm_pos(m->sm) == e->pos);
	}
	for (size_t i = keep; i < m->log_len; i++)
		free(m->log[i].body);
	m->log_len = keep;
}

/* ---- replies ---- */

void mm_frame_send(struct mini_metad *m, struct mini_conn *c,
		       const struct wire_header *q, int status, bool prefix,
		       const void *body, uint32_t len)
{
	uint32_t pre = prefix && status == 0 ? 24 : 0;
	uint32_t body_len = status ? 0 : pre + len;
	uint8_t *buf = malloc(WIRE_HEADER_SIZE + body_len);
	struct wire_out o;
	must(buf);
	if (pre) {
		struct meta_rhdr r = { m->boot_id, sm_pos(m->sm), m->durable };
		wire_out_init(&o, buf + WIRE_HEADER_SIZE, pre);
		meta_rhdr_encode(&o, &r);
	}
	if (body_len > pre)
		memcpy(buf + WIRE_HEADER_SIZE + pre, body, len);
	struct wire_header h = {
		.version = WIRE_VERSION, .opcode = q->opcode,
		.flags = WIRE_F_REPLY, .status = status_to_wire(status),
		.request_id = q->request_id, .cluster_id = MINI_CLUSTER_ID,
		.epoch = sm_map(m->sm)->epoch, .session = q->session,
		.body_len = body_len,
		.body_crc = crc32c(0, buf + WIRE_HEADER_SIZE, body_len),
	};
	wire_header_encode(&h, buf);
	mini_conn_write(c, buf, WIRE_HEADER_SIZE + body_len);
	free(buf);
}

static struct mini_held *held_new(uint64_t conn_id, const struct wire_header *h,
				  const void *body, uint32_t len)
{
	struct mini_held *w = calloc(1, sizeof(*w));
	must(w);
	w->conn_id = conn_id;
	w->h = *h;
	w->len = len;
	w->body = malloc(len ? len : 1);
	must(w->body);
	if (len)
		memcpy(w->body, body, len);
	return w;
}

void mm_held_free(struct mini_held *w)
{
	while (w) {
		struct mini_held *next = w->next;
		free(w->body);
		free(w);
		w = next;
	}
}

static void held_add(struct mini_held **list, struct mini_held *w)
{
	while (*list)
		list = &(*list)->next;
	*list = w;
}

static bool is_service(uint16_t op)
{
	return op == WIRE_OP_HELLO || op == WIRE_OP_META_KEEPALIVE ||
	       op == WIRE_OP_META_MAP_GET || op == WIRE_OP_META_SESSION_OPEN;
}

/* A reply, unless the test wants it lost or late. */
static void reply(struct mini_metad *m, uint64_t conn_id,
		  const struct wire_header *q, int status, const void *body,
		  uint32_t len)
{
	struct mini_conn *c = mini_conn_find(&m->s, conn_id);
	uint16_t op = q->opcode;
	if (!c)
		return;
	if (m->lose_count > 0 &&
	    (m->lose_op == op || (m->lose_op == 0 && !is_service(op)))) {
		m->lose_count--;
		mini_conn_close(c);
		return;
	}
	if (m->hold_replies &&
	    (m->hold_op == op || (m->hold_op == 0 && !is_service(op)))) {
		struct mini_held *w = held_new(conn_id, q, body, len);
		w->cut_ino = status_to_wire(status);
		held_add(&m->kept, w);
		return;
	}
	if (m->hold_keepalives && op == WIRE_OP_META_KEEPALIVE) {
		struct mini_held *w = held_new(conn_id, q, body, len);
		w->cut_ino = status_to_wire(status);
		held_add(&m->kept_alive, w);
		return;
	}
	mm_frame_send(m, c, q, status, true, body, len);
}

/* ---- durability ---- */

static void cut_finish(struct mini_metad *m, struct mini_held *w)
{
	struct sm_cut cut = { 0 };
	struct sm_cut list[16];
	size_t n = sm_cut_list(m->sm, w->cut_ino, w->cut - 1, list, 16);
	if (n > 0 && list[0].ino == w->cut_ino && list[0].cut == w->cut) {
		struct sm_cut_done d = { .ino = w->cut_ino, .cut = w->cut };
		uint8_t buf[32];
		struct wire_out o;
		struct sm_reply r;
		cut = list[0];
		if (m->o.cut)
			d.units_delta = m->o.cut(m->o.arg, &cut);
		wire_out_init(&o, buf, sizeof(buf));
		sm_cut_done_encode(&o, &d);
		mm_apply(m, WIRE_OP_SM_CUT_DONE, 0, buf, o.len, &r);
		m->durable = sm_pos(m->sm);
	}
	/* the attributes as they are now start the body */
	uint8_t q[8];
	struct wire_out o;
	struct sm_reply r;
	wire_out_init(&o, q, sizeof(q));
	wire_put_u64(&o, w->cut_ino);
	sm_query(m->sm, WIRE_OP_META_GETATTR, w->h.session, q, 8, &r);
	if (r.status == 0 && r.body_len <= w->len)
		memcpy(w->body, r.body, r.body_len);
}

/* As the real one before it asks for ends: no cut may be under way. */
static void cuts_finish(struct mini_metad *m)
{
	struct sm_cut cut;
	while (sm_cut_list(m->sm, 0, 0, &cut, 1) > 0) {
		struct sm_cut_done d = { .ino = cut.ino, .cut = cut.cut };
		uint8_t buf[32];
		struct wire_out o;
		struct sm_reply r;
		if (m->o.cut)
			d.units_delta = m->o.cut(m->o.arg, &cut);
		wire_out_init(&o, buf, sizeof(buf));
		sm_cut_done_encode(&o, &d);
		mm_apply(m, WIRE_OP_SM_CUT_DONE, 0, buf, o.len, &r);
	}
}

static void purge_all(struct mini_metad *m)
{
	struct sm_purge list[64];
	size_t n;
	while ((n = sm_purge_list(m->sm, 0, list, 64)) > 0) {
		uint8_t inos[64 * 8], body[64 * 8 + 4];
		struct wire_out o;
		struct sm_reply r;
		wire_out_init(&o, inos, sizeof(inos));
		for (size_t i = 0; i < n; i++) {
			if (m->o.purge)
				m->o.purge(m->o.arg, list[i].ino);
			wire_put_u64(&o, list[i].ino);
			m->purges++;
		}
		struct sm_purge_done d = { { inos, (uint32_t)o.len } };
		wire_out_init(&o, body, sizeof(body));
		sm_purge_done_encode(&o, &d);
		mm_apply(m, WIRE_OP_SM_PURGE_DONE, 0, body, o.len, &r);
		must(r.status == 0);
	}
}

void mm_commit(struct mini_metad *m)
{
	if (m->hold)
		return;
	m->durable = sm_pos(m->sm);
	purge_all(m);
	m->durable = sm_pos(m->sm);
	while (m->waiting) {
		struct mini_held *w = m->waiting;
		m->waiting = w->next;
		if (w->cut)
			cut_finish(m, w);
		reply(m, w->conn_id, &w->h, 0, w->body, w->len);
		free(w->body);
		free(w);
	}
}

/* ---- requests ---- */

void mm_session_drop(struct mini_metad *m, uint64_t session)
{
	struct sm_session_close q = { session, 2 };
	uint8_t buf[16];
	struct wire_out o;
	struct sm_reply r;
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_close_encode(&o, &q);
	mm_apply(m, WIRE_OP_SM_SESSION_CLOSE, 0, buf, o.len, &r);
}

/* What a client that is gone wrote and never reported. */
static void session_recover(struct mini_metad *m, uint64_t session)
{
	struct sm_session_close q = { session, 1 };
	uint64_t inos[64], after = 0;
	uint8_t buf[64];
	struct wire_out o;
	struct sm_reply r;
	size_t n;

	wire_out_init(&o, buf, sizeof(buf));
	sm_session_close_encode(&o, &q);
	mm_apply(m, WIRE_OP_SM_SESSION_CLOSE, 0, buf, o.len, &r);
	while ((n = sm_lease_list(m->sm, session, after, inos, 64)) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct sm_size_set e = { .ino = inos[i] };

			e.size = m->o.end(m->o.arg, inos[i], &e.units);
			wire_out_init(&o, buf, sizeof(buf));
			sm_size_set_encode(&o, &e);
			mm_apply(m, WIRE_OP_SM_SIZE_SET, 0, buf, o.len, &r);
		}
		after = inos[n - 1];
	}
	/* Blocks of files whose creation was lost: their numbers come again. */
	for (uint64_t i = 0; m->o.purge && i < SWEEP_INODES; i++)
		m->o.purge(m->o.arg, sm_next_ino(m->sm) + i);
}

static int session_open(struct mini_metad *m, const struct frame *f,
			struct meta_session_open_reply *ret)
{
	struct meta_session_open q;
	struct sm_session_info list[8];
	uint8_t buf[1024];
	struct wire_out o;
	struct sm_reply r;

	if (meta_session_open_parse(f->body, f->h.body_len, &q))
		return -EBADMSG;
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++) {
		if (list[i].client_id != q.client_id)
			return -EBUSY;
		if (m->o.fence)
			m->o.fence(m->o.arg, list[i].session);
		cuts_finish(m);
		if (m->o.end)
			session_recover(m, list[i].session);
		mm_session_drop(m, list[i].session);
	}
	struct sm_session_open s = { now_ns(), q.client_id, q.host,
				     q.mountpoint };
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &s);
	mm_apply(m, WIRE_OP_SM_SESSION_OPEN, 0, buf, o.len, &r);
	if (r.status)
		return r.status;
	struct wire_in in;
	wire_in_init(&in, r.body, r.body_len);
	*ret = (struct meta_session_open_reply){
		.session = wire_get_u64(&in),
		.cluster_id = MINI_CLUSTER_ID,
		.keepalive_ms = m->o.keepalive_ms ? m->o.keepalive_ms : 1000,
		.lease_ms = 10000,
	};
	m->durable = u64_max(m->durable, m->hold ? 0 : sm_pos(m->sm));
	return 0;
}

static void run_service(struct mini_metad *m, struct mini_conn *c,
			const struct frame *f)
{
	struct meta_session_open_reply so;
	struct meta_keepalive k;
	uint8_t buf[64];
	struct wire_out o;
	int err;

	wire_out_init(&o, buf, sizeof(buf));
	switch (f->h.opcode) {
	case WIRE_OP_META_SESSION_OPEN:
		err = session_open(m, f, &so);
		if (!err)
			meta_session_open_reply_encode(&o, &so);
		reply(m, c->id, &f->h, err, buf, (uint32_t)o.len);
		break;
	case WIRE_OP_META_SESSION_CLOSE:
		/* Who keeps leases leaves the counting to metad. */
		if (m->o.end)
			session_recover(m, c->session);
		mm_session_drop(m, c->session);
		reply(m, c->id, &f->h, 0, NULL, 0);
		break;
	case WIRE_OP_META_KEEPALIVE:
		err = meta_keepalive_parse(f->body, f->h.body_len, &k);
		if (!err)
			snprintf(m->status, sizeof(m->status), "%.*s",
				 (int)k.status.len,
				 (const char *)k.status.p);
		reply(m, c->id, &f->h, err, NULL, 0);
		break;
	default:
		reply(m, c->id, &f->h, -EOPNOTSUPP, NULL, 0);
	}
}

static void run_sync(struct mini_metad *m, struct mini_conn *c,
		     const struct frame *f)
{
	struct meta_sync q;
	if (meta_sync_parse(f->body, f->h.body_len, &q)) {
		reply(m, c->id, &f->h, -EBADMSG, NULL, 0);
		return;
	}
	if (u64_min(q.pos, sm_pos(m->sm)) <= m->durable) {
		reply(m, c->id, &f->h, 0, NULL, 0);
		return;
	}
	struct mini_held *w = held_new(c->id, &f->h, NULL, 0);
	w->sync = true;
	held_add(&m->waiting, w);
}

/* A client must say what it sends again: metad may refuse only what is new. A
 * frame of an older connection may come late. */
static void resent_check(struct mini_metad *m, const struct mini_conn *c,
			 const struct frame *f)
{
	struct meta_mhdr h;
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	meta_mhdr_decode(&in, &h);
	if (c->session == m->seen.session && c->id >= m->seen.conn_id &&
	    h.seq <= m->seen.seq && !(f->h.flags & WIRE_F_RESENT)) {
		fprintf(stderr, "mini_metad: sequence %llu comes again, not "
			"marked\n", (unsigned long long)h.seq);
		abort();
	}
	if (c->session != m->seen.session)
		m->seen.seq = 0;
	m->seen.session = c->session;
	m->seen.conn_id = u64_max(m->seen.conn_id, c->id);
	m->seen.seq = u64_max(m->seen.seq, h.seq);
}

/* Of the logs' registry: answered when it is durable. */
static bool is_log_change(uint16_t op)
{
	return op == WIRE_OP_META_LOG_SET || op == WIRE_OP_META_LOG_RAISE ||
	       op == WIRE_OP_META_LOG_DROP || op == WIRE_OP_META_LOG_LOSE;
}

/* Does the test want it refused? */
static int fails(struct mini_metad *m, uint16_t op)
{
	if (m->fail_count <= 0 || m->fail_op != op)
		return 0;
	m->fail_count--;
	return m->fail_err;
}

static void run_sm(struct mini_metad *m, struct mini_conn *c,
		   const struct frame *f)
{
	uint16_t op = f->h.opcode;
	struct sm_reply r;
	int err = sm_validate(op, f->body, f->h.body_len);

	if (!err && sm_is_query(op))
		err = fails(m, op);
	if (err) {
		reply(m, c->id, &f->h, err, NULL, 0);
		return;
	}
	if (sm_is_query(op)) {
		sm_query(m->sm, op, c->session, f->body, f->h.body_len, &r);
		m->executed[op]++;
		reply(m, c->id, &f->h, r.status, r.body, r.body_len);
		return;
	}
	resent_check(m, c, f);
	err = fails(m, op);
	if (err && !m->fail_done) {
		reply(m, c->id, &f->h, err, NULL, 0);
		return;
	}
	mm_apply(m, op, c->session, f->body, f->h.body_len, &r);
	if (!r.replayed)
		m->executed[op]++;
	if (r.status == 0 && op == WIRE_OP_META_CUT) {
		struct mini_held *w = held_new(c->id, &f->h, r.body,
					       r.body_len);
		w->cut_ino = r.cut_ino;
		w->cut = r.cut_job;
		held_add(&m->waiting, w);
		mm_commit(m);
		return;
	}
	if (r.status == 0 && m->hold && is_log_change(op)) {
		held_add(&m->waiting, held_new(c->id, &f->h, r.body,
					       r.body_len));
		return;
	}
	if (!m->hold)
		m->durable = sm_pos(m->sm);
	if (err)
		reply(m, c->id, &f->h, err, NULL, 0);
	else
		reply(m, c->id, &f->h, r.status, r.body, r.body_len);
}

/* ---- who could lend memory ---- */

static bool is_named(struct wire_str list, const struct mini_metad_logd *l)
{
	struct meta_log_peer p;
	struct wire_in in;

	wire_in_init(&in, list.p, list.len);
	while (in.len > 0) {
		meta_log_peer_decode(&in, &p);
		if (p.id == l->id && p.boot_id == l->boot_id)
			return true;
	}
	return false;
}

/* As metad/log_peers.c. */
static void run_log_peers(struct mini_metad *m, struct mini_conn *c,
			  const struct frame *f)
{
	struct log_candidate list[MINI_METAD_LOGD_MAX];
	const char *used[MINI_METAD_LOGD_MAX];
	uint8_t peers[MINI_METAD_LOGD_MAX * 12], buf[sizeof(peers) + 16];
	struct meta_log_peers_reply r = { .peers = { peers, 0 } };
	size_t count = 0, used_count = 0;
	struct meta_log_peers q = { .count_max = 0 };
	struct wire_out o;
	bool shared;
	int err = fails(m, f->h.opcode);

	if (!err)
		err = meta_log_peers_parse(f->body, f->h.body_len, &q);
	for (uint32_t i = 0; !err && i < m->logd_count; i++) {
		const struct mini_metad_logd *l = &m->logds[i];

		if (!l->there)
			continue;
		if (is_named(q.without, l))
			used[used_count++] = l->domain;
		else if (l->free_bytes >= q.bytes)
			list[count++] = (struct log_candidate){
				l->id, l->boot_id, l->free_bytes, l->domain,
			};
	}
	if (err) {
		reply(m, c->id, &f->h, err, NULL, 0);
		return;
	}
	m->executed[f->h.opcode]++;
	count = log_pick(list, count, used, used_count, q.count_max, &shared);
	wire_out_init(&o, peers, sizeof(peers));
	for (size_t i = 0; i < count; i++)
		meta_log_peer_encode(&o, &(struct meta_log_peer){
						 list[i].id, list[i].boot_id });
	r.peers.len = (uint32_t)o.len;
	r.count = (uint32_t)count;
	r.shared = shared;
	wire_out_init(&o, buf, sizeof(buf));
	meta_log_peers_reply_encode(&o, &r);
	reply(m, c->id, &f->h, 0, buf, (uint32_t)o.len);
}

static void run_hello(struct mini_metad *m, struct mini_conn *c,
		      const struct frame *f)
{
	struct hello q;
	struct hello_reply r = {
		.version = WIRE_VERSION, .role = WIRE_ROLE_METAD,
		.boot_id = m->boot_id, .peer_id = 1, .name = { "mini", 4 },
	};
	uint8_t buf[64];
	struct wire_out o;
	if (hello_parse(f->body, f->h.body_len, &q)) {
		mini_conn_close(c);
		return;
	}
	if (f->h.session && !cmap_session_live(sm_map(m->sm), f->h.session)) {
		mm_frame_send(m, c, &f->h, -ESTALE, false, NULL, 0);
		mini_conn_close(c);
		return;
	}
	c->hello = true;
	c->session = f->h.session;
	wire_out_init(&o, buf, sizeof(buf));
	hello_reply_encode(&o, &r);
	mm_frame_send(m, c, &f->h, 0, false, buf, (uint32_t)o.len);
}

static bool is_client_command(uint16_t op)
{
	return op >= WIRE_OP_META_CREATE && op <= WIRE_OP_META_LOG_LOSE;
}

static void request(struct mini_metad *m, struct mini_conn *c,
		    const struct frame *f)
{
	uint16_t op = f->h.opcode;
	m->received[op & 0xff]++;
	if (!c->hello) {
		if (op == WIRE_OP_HELLO)
			run_hello(m, c, f);
		else
			mini_conn_close(c);
		return;
	}
	if (op != WIRE_OP_META_SESSION_OPEN && op != WIRE_OP_META_MAP_GET &&
	    (f->h.session != c->session ||
	     !cmap_session_live(sm_map(m->sm), c->session))) {
		reply(m, c->id, &f->h, -ESTALE, NULL, 0);
		return;
	}
	if (op == WIRE_OP_META_SYNC)
		run_sync(m, c, f);
	else if (op == WIRE_OP_META_LOG_PEERS)
		run_log_peers(m, c, f);
	else if (sm_is_query(op) || is_client_command(op))
		run_sm(m, c, f);
	else
		run_service(m, c, f);
}

/* ---- life ---- */

static void conf_fill(struct mini_metad *m)
{
	static char name[] = "mini";
	m->metad.id = 1;
	m->metad.port = m->s.port;
	snprintf(m->metad.addr, sizeof(m->metad.addr), "127.0.0.1");
	for (uint32_t i = 0; i < m->o.blockd_count; i++) {
		m->blockds[i].id = i + 1;
		m->blockds[i].port = m->o.blockd_ports[i];
		snprintf(m->blockds[i].addr, sizeof(m->blockds[i].addr),
			 "127.0.0.1");
	}
	m->conf = (struct conf){
		.name = name, .cluster_id = MINI_CLUSTER_ID, .replicas = 1,
		.metads = &m->metad, .metad_count = 1,
		.blockds = m->blockds, .blockd_count = m->o.blockd_count,
	};
}

static struct mini_metad *of(struct mini_serve *s)
{
	return container_of(s, struct mini_metad, s);
}

static void on_frame(struct mini_serve *s, struct mini_conn *c,
		     struct frame *f)
{
	request(of(s), c, f);
	frame_free(f);
}

static void on_turn(struct mini_serve *s)
{
	mm_commit(of(s));
}

int mini_metad_new(const struct mini_metad_options *o, struct mini_metad **ret)
{
	static const struct mini_serve_ops ops = { on_frame, NULL, on_turn };
	struct mini_metad *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->o = *o;
	m->boot_id = 1000;
	m->sm = sm_new();
	must(m->sm);
	bootstrap(m);
	mini_serve_init(&m->s, &ops);
	conf_fill(m);
	mini_serve_start(&m->s);
	*ret = m;
	return 0;
}

void mini_metad_free(struct mini_metad *m)
{
	if (!m)
		return;
	mini_serve_stop(&m->s);
	mm_held_free(m->waiting);
	mm_held_free(m->kept);
	mm_held_free(m->kept_alive);
	mini_serve_fini(&m->s);
	for (size_t i = 0; i < m->log_len; i++)
		free(m->log[i].body);
	free(m->log);
	sm_free(m->sm);
	free(m);
}
