/* Connections to the other metads, and what they say of themselves. */
#include "metad/group.h"

#include <inttypes.h>
#include <pthread.h>

#include "common/diag.h"

/* How often each is asked, and when it counts as silent. */
#define ASK_MS 200u
#define SILENT_MS 2000u

struct member {
	struct group *g;
	struct group_member m;
	struct rpc_peer *peer;
	struct group_call call;
	bool asked; /* call is under way */
	struct proto said; /* in its last HELLO; protected by g->lock */
};

struct group {
	struct metad *md;
	struct rpc_net *net;
	struct transport *transport;
	uv_async_t async;
	uv_timer_t timer;
	bool handles, stopped;
	pthread_mutex_t lock; /* protects answered, members' said */
	struct group_call *answered;
	struct member *members;
	uint32_t count;
};

struct metad *group_metad(struct group *g)
{
	return g->md;
}

struct transport *group_transport(struct group *g)
{
	return g->transport;
}

/* ---- calls ---- */

/* On rpc's thread. */
static void call_answered(struct rpc_call *rpc, int status,
			  const struct rpc_frame *f)
{
	struct group_call *c = container_of(rpc, struct group_call, rpc);
	struct group *g = c->group;

	c->status = status;
	c->frame = status == 0 && f ? rpc_take_frame(f) : NULL;
	pthread_mutex_lock(&g->lock);
	c->next = g->answered;
	g->answered = c;
	pthread_mutex_unlock(&g->lock);
	(void)uv_async_send(&g->async);
}

static void run_answered(struct group *g)
{
	struct group_call *c, *next, *list = NULL;

	pthread_mutex_lock(&g->lock);
	c = g->answered;
	g->answered = NULL;
	pthread_mutex_unlock(&g->lock);
	/* In the order of the answers. */
	for (; c; c = next) {
		next = c->next;
		c->next = list;
		list = c;
	}
	for (c = list; c; c = next) {
		next = c->next;
		c->fn(c);
	}
}

static void on_answers(uv_async_t *a)
{
	struct group *g = a->data;

	g->md->activity++;
	run_answered(g);
}

static struct member *member_find(struct group *g, uint32_t id)
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->members[i].m.id == id)
			return &g->members[i];
	return NULL;
}

int group_send(struct group *g, uint32_t to, struct group_call *c)
{
	struct member *m = member_find(g, to);

	if (!m || g->stopped || !rpc_peer_is_up(m->peer))
		return -ENOTCONN;
	c->group = g;
	c->rpc.cb = call_answered;
	c->frame = NULL;
	rpc_send(m->peer, &c->rpc);
	return 0;
}

void group_reset(struct group *g, uint32_t to)
{
	struct member *m = member_find(g, to);

	if (m && !g->stopped)
		rpc_peer_reset(m->peer);
}

/* ---- what they are ---- */

static void on_member(struct group_call *c)
{
	struct member *m = container_of(c, struct member, call);
	struct meta_member_reply r;

	m->asked = false;
	if (c->status == 0 &&
	    meta_member_reply_parse(c->frame->body, c->frame->h.body_len,
				    &r) == 0) {
		m->m.state = r.state;
		m->m.voter = r.voter;
		m->m.leader = r.leader;
		m->m.pos = r.pos;
		m->m.heard_ms = uv_now(&m->g->md->loop);
	} else if (c->status == -ETIMEDOUT) {
		group_reset(m->g, m->m.id);
	}
	rpc_frame_free(c->frame);
}

static void on_timer(uv_timer_t *t)
{
	struct group *g = t->data;
	uint64_t now = uv_now(&g->md->loop);

	for (uint32_t i = 0; i < g->count; i++) {
		struct member *m = &g->members[i];

		pthread_mutex_lock(&g->lock);
		m->m.proto = m->said;
		pthread_mutex_unlock(&g->lock);
		m->m.up = m->m.heard_ms && rpc_peer_is_up(m->peer) &&
			  now - m->m.heard_ms < SILENT_MS;
		if (m->asked)
			continue;
		memset(&m->call, 0, sizeof(m->call));
		m->call.rpc.opcode = WIRE_OP_META_MEMBER;
		m->call.rpc.timeout_ms = SILENT_MS;
		m->call.fn = on_member;
		m->asked = group_send(g, m->m.id, &m->call) == 0;
	}
}

uint32_t group_count(const struct group *g)
{
	return g->count;
}

const struct group_member *group_other(const struct group *g, uint32_t i)
{
	return &g->members[i].m;
}

struct proto group_proto(const struct group *g)
{
	struct proto all = { WIRE_VERSION, WIRE_MINOR, PROTO_FEATURES };

	for (uint32_t i = 0; g && i < g->count; i++)
		proto_lessen(&all, &g->members[i].m.proto);
	return all;
}

/* Of one that was heard. */
static enum group_verdict verdict_of(const struct group_member *m)
{
	switch (m->state) {
	case DATADIR_OK:
	case DATADIR_RAISE:
		if (m->voter == META_VOTER_YES)
			return GROUP_REFUSE;
		/* Without a leader it may not know the newest. */
		return m->voter == META_VOTER_NO && m->leader ? GROUP_JOIN :
								GROUP_WAIT;
	case DATADIR_RESTORING:
		return GROUP_WAIT;
	default:
		return GROUP_FORM;
	}
}

enum group_verdict group_verdict(const struct group *g, uint32_t *by)
{
	enum group_verdict v = GROUP_FORM, one;

	/* They are in the order of what counts more. */
	for (uint32_t i = 0; i < g->count; i++) {
		const struct group_member *m = &g->members[i].m;

		one = m->heard_ms ? verdict_of(m) : GROUP_WAIT;
		if (one <= v)
			continue;
		v = one;
		*by = m->id;
	}
	return v;
}

bool group_joined(const struct group *g, uint32_t *by)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct group_member *m = &g->members[i].m;

		if (m->state != DATADIR_JOINED && m->state != DATADIR_OK) {
			*by = m->id;
			return false;
		}
	}
	return true;
}

void group_member_run(struct request *r)
{
	struct metad *md = r->md;
	struct meta_member_reply m = {
		.state = (uint8_t)(md->restoring ? DATADIR_RESTORING :
						   md->dir->state),
		.voter = !metaraft_is_started(md->raft) ? META_VOTER_UNKNOWN :
			 metaraft_is_voter(md->raft, r->conn->peer_id) ?
							  META_VOTER_YES :
							  META_VOTER_NO,
		.leader = metaraft_leader(md->raft),
		.term = metaraft_term(md->raft),
		.pos = sm_pos(md->sm),
	};
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	meta_member_reply_encode(&o, &m);
	serve_reply_plain(md, &r->to, 0, buf, o.len);
}

/* ---- life ---- */

static void on_down(struct rpc_peer *p, int err, void *arg)
{
	const struct member *m = arg;

	(void)p;
	if (err != -ECONNREFUSED && err != -ECONNRESET)
		diag_warn("group", "event=no-connection metad=%" PRIu32
			  " error=\"%s\"", m->m.id, strerror(-err));
}

/* On rpc's thread. */
static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct member *m = arg;

	(void)hr;
	pthread_mutex_lock(&m->g->lock);
	m->said = rpc_peer_proto(p);
	pthread_mutex_unlock(&m->g->lock);
}

static const struct rpc_peer_ops peer_ops = { .up = on_up, .down = on_down };

static int members_new(struct group *g)
{
	const struct conf *conf = g->md->conf;
	int rv;

	g->members = calloc(conf->metad_count, sizeof(*g->members));
	if (!g->members)
		return -ENOMEM;
	for (uint32_t i = 0; i < conf->metad_count; i++) {
		const struct conf_daemon *d = &conf->metads[i];
		struct member *m = &g->members[g->count];

		if (d == g->md->self)
			continue;
		m->g = g;
		m->m.id = d->id;
		rv = rpc_peer_new(g->net, d->addr, d->port, &peer_ops, m,
				  &m->peer);
		if (rv < 0)
			return rv;
		g->count++;
	}
	return 0;
}

int group_new(struct metad *md, struct group **ret)
{
	struct rpc_identity id = { .role = WIRE_ROLE_METAD,
				   .peer_id = md->self->id,
				   .cluster_id = md->cluster_id,
				   .name = "hail-metad",
				   .gate = md->conf->gate };
	struct group *g = calloc(1, sizeof(*g));
	int rv;

	if (!g)
		return -ENOMEM;
	g->md = md;
	*ret = g;
	pthread_mutex_init(&g->lock, NULL);
	rv = uv_async_init(&md->loop, &g->async, on_answers);
	if (rv < 0)
		return rv;
	(void)uv_timer_init(&md->loop, &g->timer); /* cannot fail */
	g->handles = true;
	g->async.data = g->timer.data = g;
	rv = rpc_net_new(&id, &g->net);
	if (rv == 0)
		rv = members_new(g);
	if (rv == 0)
		rv = transport_new(g, &g->transport);
	if (rv == 0)
		rv = uv_timer_start(&g->timer, on_timer, 1, ASK_MS);
	return rv;
}

void group_stop(struct group *g)
{
	if (!g || g->stopped)
		return;
	g->stopped = true;
	rpc_net_free(g->net);
	g->net = NULL;
	run_answered(g);
	transport_stop(g->transport);
	if (!g->handles)
		return;
	uv_close((uv_handle_t *)&g->async, NULL);
	uv_close((uv_handle_t *)&g->timer, NULL);
}

void group_free(struct group *g)
{
	if (!g)
		return;
	transport_free(g->transport);
	pthread_mutex_destroy(&g->lock);
	free(g->members);
	free(g);
}
