/* Registration and heartbeats of log daemons. */
#include "metad/log_peers.h"

#include <inttypes.h>

#include "common/diag.h"
#include "common/wire_log.h"
#include "metad/log_pick.h"
#include "metad/monitor.h"

/* More logs than may have been made since a daemon told what it has seen. */
#define LOG_EPOCH_MARGIN 1000u

/* A daemon that was not heard of for so long is not offered. */
#define SILENT_MS 2500u

/* encoded */
#define PEER_SIZE 12u
#define NAME_SIZE 16u
#define GONE_SIZE 17u

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

/* May it be asked to lend? A log that begins with a dead peer has one failure
 * less to survive: its connection tells at once, its silence soon. */
static bool is_there(struct metad *md, const struct log_peer *l)
{
	return serve_conn(md, l->conn_id) &&
	       uv_now(&md->loop) - l->heard_ms <= SILENT_MS &&
	       log_peers_is_up(md->log_peers, l->id);
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

/* An epoch is durable here before any log daemon hears of it: one that has seen
 * a later one shows that these metadata are an older copy. It must not be given
 * to another log. (After a restore nothing is wrong with that, see restore.c.)
 * Returns 0 or -errno. */
static int raise_epoch(struct metad *md, const struct meta_log_register *m)
{
	struct sm_raise raise = { .log_epoch =
					  m->log_epoch + LOG_EPOCH_MARGIN };
	struct sm_reply sr;

	if (m->log_epoch <= sm_log_epoch(md->sm))
		return 0;
	diag_err("log_peers", "event=older-metadata logd=%" PRIu32
		 " log_epoch=%" PRIu64 " last=%" PRIu64, m->daemon_id,
		 m->log_epoch, sm_log_epoch(md->sm));
	METAD_PROPOSE(md, WIRE_OP_SM_RAISE, sm_raise, &raise, &sr);
	if (sr.status == 0 && md->serving)
		md->older = true;
	return sr.status;
}

/* Puts it on record. Returns 0 or -errno. */
static int record(struct metad *md, const struct meta_log_register *m)
{
	struct sm_logd_set set = { .id = m->daemon_id,
				   .boot_id = m->boot_id,
				   .addr = m->addr,
				   .port = m->port,
				   .rdma_addr = m->rdma_addr,
				   .rdma_port = m->rdma_port,
				   .domain = m->domain.len ? m->domain :
							     m->addr };
	int rv = raise_epoch(md, m);
	struct sm_reply sr;

	if (rv < 0)
		return rv;
	METAD_PROPOSE(md, WIRE_OP_SM_LOGD_SET, sm_logd_set, &set, &sr);
	return sr.status;
}

void log_peers_register(struct request *r)
{
	struct metad *md = r->md;
	struct meta_log_register m;
	struct log_peer *l = NULL;
	struct wire_out o;
	uint8_t buf[32];
	int rv = meta_log_register_parse(r->body, r->body_len, &m);

	if (rv == 0)
		rv = judge(r, &m);
	if (rv == 0) {
		l = peer_get(md->log_peers, m.daemon_id);
		rv = l ? record(md, &m) : -ENOSPC;
	}
	if (rv < 0) {
		serve_reply(md, &r->to, rv, NULL, 0);
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
	l->conn_id = r->to.conn_id;
	wire_out_init(&o, buf, sizeof(buf));
	grant(r, l, &o);
	request_reply_at(md, &r->to, sm_pos(md->sm), 0, buf, o.len);
}

/* ---- logs that nobody owns any more ---- */

/* May be told that something is not in the registry. Not before it is known
 * that this is no older copy, whose registry misses what came since. */
static bool may_judge(struct metad *md)
{
	return md->serving && !md->older && monitor_all_known(md->monitor);
}

/* What it is to do with a log; 0: keep it. */
static uint8_t verdict(struct metad *md, const struct log_peer *d,
		       const struct log_name *name)
{
	struct sm_log l;
	uint32_t i;

	if (name->epoch > sm_log_epoch(md->sm))
		return 0;
	if (!sm_log_find(md->sm, name->ino, &l) || l.data_epoch != name->epoch)
		return META_LOG_UNKNOWN;
	for (i = 0; i < l.peer_count; i++)
		if (l.peers[i].id == d->id && l.peers[i].boot_id == d->boot_id)
			return 0;
	return META_LOG_UNLISTED;
}

/* Appends a meta_log_heartbeat_reply about @logs. */
static void judge_logs(struct metad *md, const struct log_peer *d,
		       struct wire_str logs, struct wire_out *o)
{
	bool may = may_judge(md);
	struct meta_log_gone g;
	struct log_name name;
	struct wire_out count, len;
	uint32_t gone = 0;
	struct wire_in in;
	size_t at;

	wire_out_init(&count, o->p + o->len, 4);
	wire_out_init(&len, o->p + o->len + 4, 4);
	o->len += 8;
	at = o->len;
	wire_in_init(&in, logs.p, logs.len);
	while (may && in.len > 0) {
		log_name_decode(&in, &name);
		g = (struct meta_log_gone){ .ino = name.ino,
					    .epoch = name.epoch,
					    .verdict = verdict(md, d, &name) };
		if (g.verdict == 0)
			continue;
		meta_log_gone_encode(o, &g);
		gone++;
	}
	wire_put_u32(&count, gone);
	wire_put_u32(&len, (uint32_t)(o->len - at));
}

void log_peers_heartbeat(struct request *r)
{
	struct metad *md = r->md;
	struct meta_log_heartbeat m;
	struct log_peer *l;
	struct wire_out o;
	uint8_t buf[64 + LOG_LIST_COUNT_MAX * GONE_SIZE];

	if (meta_log_heartbeat_parse(r->body, r->body_len, &m) < 0 ||
	    m.daemon_id != r->conn->peer_id || m.free_bytes > m.total_bytes ||
	    m.draining > 1 || m.logs.len % NAME_SIZE != 0 ||
	    m.logs.len / NAME_SIZE > LOG_LIST_COUNT_MAX) {
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
	l->conn_id = r->to.conn_id;
	wire_out_init(&o, buf, sizeof(buf));
	grant(r, l, &o);
	judge_logs(md, l, m.logs, &o);
	assert(!o.overflow);
	/* What has been taken out must stay out: it is thrown away now. */
	request_reply_at(md, &r->to, m.logs.len > 0 ? sm_pos(md->sm) : 0, 0,
			 buf, o.len);
}

/* ---- who could lend memory ---- */

static bool is_named(struct wire_str list, uint32_t id, uint64_t boot_id)
{
	struct meta_log_peer p;
	struct wire_in in;

	wire_in_init(&in, list.p, list.len);
	while (in.len > 0) {
		meta_log_peer_decode(&in, &p);
		if (p.id == id && p.boot_id == boot_id)
			return true;
	}
	return false;
}

/* Sorts those that live into candidates and, of @q->without, domains in use. */
static void gather(struct metad *md, const struct meta_log_peers *q,
		   struct log_candidate *c, size_t *count, const char **used,
		   size_t *used_count)
{
	const struct cmap *map = sm_map(md->sm);
	uint32_t i;

	*count = *used_count = 0;
	for (i = 0; i < map->log_count; i++) {
		const struct cmap_log *d = &map->logs[i];
		const struct log_peer *l = find(md->log_peers, d->id);

		if (!l || l->boot_id != d->boot_id || l->draining ||
		    !is_there(md, l))
			continue;
		if (is_named(q->without, d->id, d->boot_id))
			used[(*used_count)++] = d->domain;
		else if (l->free_bytes >= q->bytes)
			c[(*count)++] = (struct log_candidate){
				.id = d->id, .boot_id = d->boot_id,
				.free_bytes = l->free_bytes,
				.domain = d->domain,
			};
	}
}

void log_peers_query(struct request *r)
{
	struct log_candidate c[LOG_DAEMON_COUNT_MAX];
	const char *used[LOG_DAEMON_COUNT_MAX];
	uint8_t peers[LOG_DAEMON_COUNT_MAX * PEER_SIZE];
	uint8_t buf[sizeof(peers) + 16];
	struct meta_log_peers_reply reply = { .peers = { peers, 0 } };
	struct metad *md = r->md;
	struct meta_log_peers q;
	size_t count, used_count, i;
	struct wire_out o;
	bool shared;

	if (meta_log_peers_parse(r->body, r->body_len, &q) < 0 ||
	    q.without.len % PEER_SIZE != 0) {
		serve_reply(md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	if (q.count_max == 0 || q.count_max > LOG_DAEMON_COUNT_MAX ||
	    q.without.len / PEER_SIZE > LOG_DAEMON_COUNT_MAX) {
		serve_reply(md, &r->to, -EINVAL, NULL, 0);
		return;
	}
	gather(md, &q, c, &count, used, &used_count);
	count = log_pick(c, count, used, used_count, q.count_max, &shared);
	wire_out_init(&o, peers, sizeof(peers));
	for (i = 0; i < count; i++)
		meta_log_peer_encode(&o, &(struct meta_log_peer){
						 c[i].id, c[i].boot_id });
	reply.peers.len = (uint32_t)o.len;
	reply.count = (uint32_t)count;
	reply.shared = shared;
	wire_out_init(&o, buf, sizeof(buf));
	meta_log_peers_reply_encode(&o, &reply);
	/* Their addresses are in a map that must be there, too. */
	request_reply_at(md, &r->to, md->map_pos, 0, buf, o.len);
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
