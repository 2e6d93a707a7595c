/* The mini metad: what a test does to it and asks. */
#include "tests/lib/mini_metad_priv.h"

#include "common/status.h"

uint16_t mini_metad_port(struct mini_metad *m)
{
	return m->s.port;
}

uint64_t mini_metad_cluster_id(struct mini_metad *m)
{
	(void)m;
	return MINI_CLUSTER_ID;
}

const struct conf *mini_metad_conf(struct mini_metad *m)
{
	return &m->conf;
}

/* ---- switches ---- */

void mini_metad_hold_durable(struct mini_metad *m, bool hold)
{
	mini_serve_lock(&m->s);
	m->hold = hold;
	mm_commit(m);
	mini_serve_kick(&m->s);
}

static void drop_all(struct mini_metad *m)
{
	for (struct mini_conn *c = m->s.conns; c; c = c->next)
		mini_conn_close(c);
	mm_held_free(m->waiting);
	mm_held_free(m->kept);
	mm_held_free(m->kept_alive);
	m->waiting = m->kept = m->kept_alive = NULL;
}

void mini_metad_drop(struct mini_metad *m)
{
	mini_serve_lock(&m->s);
	drop_all(m);
	mini_serve_kick(&m->s);
}

static void reborn(struct mini_metad *m, bool lose)
{
	m->boot_id++;
	if (lose)
		mm_lose_suffix(m);
	else
		m->durable = sm_pos(m->sm);
}

void mini_metad_restart(struct mini_metad *m, bool lose)
{
	mini_serve_lock(&m->s);
	drop_all(m);
	reborn(m, lose);
	mini_serve_kick(&m->s);
}

void mini_metad_down(struct mini_metad *m)
{
	mini_serve_lock(&m->s);
	drop_all(m);
	mini_serve_down(&m->s);
	mini_serve_kick(&m->s);
}

void mini_metad_up(struct mini_metad *m, bool lose)
{
	mini_serve_lock(&m->s);
	reborn(m, lose);
	mini_serve_up(&m->s);
	mini_serve_kick(&m->s);
}

void mini_metad_lose_replies(struct mini_metad *m, uint16_t op, int count)
{
	mini_serve_lock(&m->s);
	m->lose_op = op;
	m->lose_count = count;
	mini_serve_unlock(&m->s);
}

static void kept_send(struct mini_metad *m, struct mini_held **kept)
{
	while (*kept) {
		struct mini_held *w = *kept;
		struct mini_conn *c = mini_conn_find(&m->s, w->conn_id);
		*kept = w->next;
		if (c)
			mm_frame_send(m, c, &w->h,
				   status_from_wire((uint32_t)w->cut_ino), true,
				   w->body, w->len);
		free(w->body);
		free(w);
	}
}

void mini_metad_hold_replies(struct mini_metad *m, uint16_t op, bool hold)
{
	mini_serve_lock(&m->s);
	m->hold_op = op;
	m->hold_replies = hold;
	if (!hold)
		kept_send(m, &m->kept);
	mini_serve_unlock(&m->s);
}

void mini_metad_hold_keepalives(struct mini_metad *m, bool hold)
{
	mini_serve_lock(&m->s);
	m->hold_keepalives = hold;
	if (!hold)
		kept_send(m, &m->kept_alive);
	mini_serve_unlock(&m->s);
}

bool mini_metad_keepalive_held(struct mini_metad *m)
{
	bool held;

	mini_serve_lock(&m->s);
	held = m->kept_alive != NULL;
	mini_serve_unlock(&m->s);
	return held;
}

void mini_metad_fail(struct mini_metad *m, uint16_t op, int err, int count)
{
	mini_serve_lock(&m->s);
	m->fail_op = op;
	m->fail_err = err;
	m->fail_count = count;
	m->fail_done = false;
	mini_serve_unlock(&m->s);
}

void mini_metad_fail_done(struct mini_metad *m, uint16_t op, int err)
{
	mini_metad_fail(m, op, err, 1);
	mini_serve_lock(&m->s);
	m->fail_done = true;
	mini_serve_unlock(&m->s);
}

void mini_metad_fence(struct mini_metad *m)
{
	struct sm_session_info list[8];
	mini_serve_lock(&m->s);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++)
		mm_session_drop(m, list[i].session);
	mini_serve_unlock(&m->s);
}

void mini_metad_bump_epoch(struct mini_metad *m)
{
	struct sm_raise q = { 0 };
	uint8_t buf[64];
	struct wire_out o;
	struct sm_reply r;
	mini_serve_lock(&m->s);
	q.epoch = sm_map(m->sm)->epoch + 1;
	wire_out_init(&o, buf, sizeof(buf));
	sm_raise_encode(&o, &q);
	mm_apply(m, WIRE_OP_SM_RAISE, 0, buf, o.len, &r);
	mini_serve_unlock(&m->s);
}

/* ---- log daemons ---- */

static void logd_record(struct mini_metad *m, const struct mini_metad_logd *l)
{
	struct sm_logd_set q = {
		.id = l->id,
		.boot_id = l->boot_id,
		.addr = { "127.0.0.1", 9 },
		.port = l->port,
		.domain = { l->domain, (uint32_t)strlen(l->domain) },
	};
	uint8_t buf[256];
	struct wire_out o;
	struct sm_reply r;

	wire_out_init(&o, buf, sizeof(buf));
	sm_logd_set_encode(&o, &q);
	must(!o.overflow);
	mm_apply(m, WIRE_OP_SM_LOGD_SET, 0, buf, o.len, &r);
	must(r.status == 0);
	m->durable = m->hold ? m->durable : sm_pos(m->sm);
}

void mini_metad_logd(struct mini_metad *m, const struct mini_metad_logd *l)
{
	uint32_t i = 0;

	mini_serve_lock(&m->s);
	while (i < m->logd_count && m->logds[i].id != l->id)
		i++;
	must(i < MINI_METAD_LOGD_MAX);
	if (i == m->logd_count || m->logds[i].boot_id != l->boot_id)
		logd_record(m, l);
	m->logd_count += i == m->logd_count;
	m->logds[i] = *l;
	mini_serve_unlock(&m->s);
}

bool mini_metad_log_find(struct mini_metad *m, uint64_t ino,
			 struct sm_log *ret)
{
	bool found;

	mini_serve_lock(&m->s);
	found = sm_log_find(m->sm, ino, ret);
	mini_serve_unlock(&m->s);
	return found;
}

/* ---- looking ---- */

uint64_t mini_metad_executed(struct mini_metad *m, uint16_t op)
{
	mini_serve_lock(&m->s);
	uint64_t v = m->executed[op & 0xff];
	mini_serve_unlock(&m->s);
	return v;
}

uint64_t mini_metad_received(struct mini_metad *m, uint16_t op)
{
	mini_serve_lock(&m->s);
	uint64_t v = m->received[op & 0xff];
	mini_serve_unlock(&m->s);
	return v;
}

void mini_metad_status(struct mini_metad *m, char *buf, size_t size)
{
	mini_serve_lock(&m->s);
	snprintf(buf, size, "%s", m->status);
	mini_serve_unlock(&m->s);
}

static int query_attr(struct mini_metad *m, uint16_t op, const void *body,
		      size_t len, struct meta_attr *ret)
{
	struct sm_reply r;
	struct wire_in in;
	mini_serve_lock(&m->s);
	sm_query(m->sm, op, 0, body, len, &r);
	if (r.status == 0) {
		wire_in_init(&in, r.body, r.body_len);
		meta_attr_decode(&in, ret);
	}
	mini_serve_unlock(&m->s);
	return r.status;
}

int mini_metad_getattr(struct mini_metad *m, uint64_t ino,
		       struct meta_attr *ret)
{
	uint8_t buf[8];
	struct wire_out o;
	wire_out_init(&o, buf, sizeof(buf));
	wire_put_u64(&o, ino);
	return query_attr(m, WIRE_OP_META_GETATTR, buf, o.len, ret);
}

int mini_metad_lookup(struct mini_metad *m, uint64_t parent, const char *name,
		      struct meta_attr *ret)
{
	struct meta_lookup l = { parent, { name, (uint32_t)strlen(name) } };
	uint8_t buf[512];
	struct wire_out o;
	wire_out_init(&o, buf, sizeof(buf));
	meta_lookup_encode(&o, &l);
	return query_attr(m, WIRE_OP_META_LOOKUP, buf, o.len, ret);
}

uint64_t mini_metad_inode_count(struct mini_metad *m)
{
	mini_serve_lock(&m->s);
	uint64_t v = sm_inode_count(m->sm);
	mini_serve_unlock(&m->s);
	return v;
}

uint32_t mini_metad_lease_count(struct mini_metad *m)
{
	struct sm_session_info list[8];
	uint64_t inos[256];
	size_t count = 0;
	mini_serve_lock(&m->s);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++)
		count += sm_lease_list(m->sm, list[i].session, 0, inos, 256);
	mini_serve_unlock(&m->s);
	return (uint32_t)count;
}

uint32_t mini_metad_purge_count(struct mini_metad *m)
{
	struct sm_purge list[256];
	mini_serve_lock(&m->s);
	uint32_t v = m->purges + (uint32_t)sm_purge_list(m->sm, 0, list, 256);
	mini_serve_unlock(&m->s);
	return v;
}

uint32_t mini_metad_session_count(struct mini_metad *m)
{
	struct sm_session_info list[8];
	mini_serve_lock(&m->s);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	mini_serve_unlock(&m->s);
	return (uint32_t)n;
}
