/* Registration and heartbeats of log daemons. */
#include "metad/log_peers.h"

#include <inttypes.h>

#include "common/diag.h"

struct log_peers {
	struct metad *md;
	uint64_t start_ms;
	uint32_t count;
	struct log_peer list[LOG_DAEMON_COUNT_MAX];
};

static struct log_peer *find(struct log_peers *p, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < p->count; i++)
		if (p->list[i].id == id)
			return &p->list[i];
	return NULL;
}

const struct log_peer *log_peers_find(struct log_peers *p, uint32_t id)
{
	return find(p, id);
}

/* Its line in the cluster file; NULL: it is none of ours. */
static const struct conf_daemon *line_of(struct metad *md, uint32_t id)
{
	return conf_find(md->conf->logds, md->conf->logd_count, id);
}

bool log_peers_is_up(struct log_peers *p, uint32_t id)
{
	const struct log_peer *l = find(p, id);

	return l && l->lease_ms > uv_now(&p->md->loop);
}

static bool lease_over(struct log_peers *p, const struct log_peer *l)
{
	/* What the process before this one granted is not known. */
	uint64_t until = u64_max(l->lease_ms, p->start_ms + LEASE_MS);

	return uv_now(&p->md->loop) > until;
}

/* Writes the right to serve, or none: 0 ms. As a block daemon's (monitor.c), it
 * comes to who was without only with the present map. */
static void grant(struct request *r, struct log_peer *l, struct wire_out *o)
{
	struct metad *md = r->md;
	struct meta_lease_reply m = { .cluster_id = md->cluster_id,
				      .epoch = md->epoch };

	if (r->epoch >= md->epoch || r->epoch == 0 ||
	    !lease_over(md->log_peers, l)) {
		m.lease_ms = LEASE_MS;
		l->lease_ms = uv_now(&md->loop) + LEASE_MS;
	}
	meta_lease_reply_encode(o, &m);
}

static bool text_ok(struct wire_str s)
{
	return s.len <= CMAP_ADDR_LEN_MAX && (!s.len || !memchr(s.p, 0, s.len));
}

/* Returns 0 or what to answer. */
static int judge(const struct request *r, const struct meta_log_register *m)
{
	if (m->daemon_id != r->conn->peer_id || m->boot_id == 0 ||
	    m->addr.len == 0 || !text_ok(m->addr) || m->port == 0 ||
	    !text_ok(m->rdma_addr) || !text_ok(m->domain) ||
	    m->free_bytes > m->total_bytes)
		return -EBADMSG;
	return line_of(r->md, m->daemon_id) ? 0 : -ENOENT;
}

static struct log_peer *peer_get(struct log_peers *p, uint32_t id)
{
	struct log_peer *l = find(p, id);

	if (!l && p->count < LOG_DAEMON_COUNT_MAX) {
		l = &p->list[p->count++];
		*l = (struct log_peer){ .id = id };
	}
	return l;
}

void log_peers_register(struct request *r)
{
	struct metad *md = r->md;
	struct meta_log_register m;
	struct sm_logd_set set;
	struct log_peer *l;
	struct sm_reply sr;
	struct wire_out o;
	uint8_t buf[32];
	int rv = meta_log_register_parse(r->body, r->body_len, &m);

	if (rv == 0)
		rv = judge(r, &m);
	l = rv == 0 ? peer_get(md->log_peers, m.daemon_id) : NULL;
	if (!l) {
		serve_reply(md, &r->to, rv < 0 ? rv : -ENOSPC, NULL, 0);
		return;
	}
	set = (struct sm_logd_set){ .id = m.daemon_id,
				    .boot_id = m.boot_id,
				    .addr = m.addr,
				    .port = m.port,
				    .rdma_addr = m.rdma_addr,
				    .rdma_port = m.rdma_port,
				    .domain = m.domain.len ? m.domain :
							     m.addr };
	METAD_PROPOSE(md, WIRE_OP_SM_LOGD_SET, sm_logd_set, &set, &sr);
	if (sr.status < 0) {
		serve_reply(md, &r->to, sr.status, NULL, 0);
		return;
	}
	diag_info("log_peers", "event=registered logd=%" PRIu32
		  " addr=%s port=%u boot=%016" PRIx64 " bytes=%" PRIu64,
		  m.daemon_id, r->conn->peer, m.port, m.boot_id,
		  m.total_bytes);
	l->boot_id = m.boot_id;
	l->total_bytes = m.total_bytes;
	l->free_bytes = m.free_bytes;
	l->draining = false;
	l->heard_ms = uv_now(&md->loop);
	wire_out_init(&o, buf, sizeof(buf));
	grant(r, l, &o);
	request_reply_at(md, &r->to, sr.map_changed ? sr.pos : 0, 0, buf,
			 o.len);
}

void log_peers_heartbeat(struct request *r)
{
	struct metad *md = r->md;
	struct meta_log_heartbeat_reply reply = { .count = 0 };
	struct meta_log_heartbeat m;
	struct log_peer *l;
	struct wire_out o;
	uint8_t buf[64];

	if (meta_log_heartbeat_parse(r->body, r->body_len, &m) < 0 ||
	    m.daemon_id != r->conn->peer_id || m.free_bytes > m.total_bytes ||
	    m.draining > 1) {
		serve_reply(md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	l = find(md->log_peers, m.daemon_id);
	/* Unknown to this process: it registers first. */
	if (!l || l->boot_id != m.boot_id) {
		serve_reply(md, &r->to, -ESTALE, NULL, 0);
		return;
	}
	if (m.draining != l->draining)
		diag_info("log_peers", "event=draining logd=%" PRIu32
			  " draining=%u", m.daemon_id, m.draining);
	l->total_bytes = m.total_bytes;
	l->free_bytes = m.free_bytes;
	l->draining = m.draining;
	l->heard_ms = uv_now(&md->loop);
	wire_out_init(&o, buf, sizeof(buf));
	grant(r, l, &o);
	meta_log_heartbeat_reply_encode(&o, &reply);
	serve_reply(md, &r->to, 0, buf, o.len);
}

int log_peers_new(struct metad *md, struct log_peers **ret)
{
	struct log_peers *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->md = md;
	p->start_ms = uv_now(&md->loop);
	*ret = p;
	return 0;
}

void log_peers_free(struct log_peers *p)
{
	free(p);
}
