/* Sessions and incarnations: who may be behind a connection (design section
 * 3). */
#include "logd/serve_priv.h"

#include "common/diag.h"
#include "common/proto.h"

static struct lpeer *peer_find(const struct lserve *s, uint8_t role,
			       uint64_t session, uint32_t id)
{
	struct lpeer *p = s->peers;

	while (p && (p->role != role || p->session != session || p->id != id))
		p = p->next;
	return p;
}

static bool session_live(const struct lserve *s, uint64_t session)
{
	return s->map && cmap_session_live(s->map, session);
}

/* Forgets who has no connection and cannot come again. */
static void peers_trim(struct lserve *s)
{
	struct lpeer **at = &s->peers, *p;

	while ((p = *at)) {
		if (p->conn || (p->role == WIRE_ROLE_CLIENT &&
				session_live(s, p->session))) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
	}
}

void lserve_peers_free(struct lserve *s)
{
	struct lpeer *p;

	while ((p = s->peers)) {
		s->peers = p->next;
		free(p);
	}
}

static bool refuse(struct lreq *q, int err, const char *why)
{
	stats_count(&q->s->n.hello_refused, 1);
	diag_info("serve", "what=hello-refused peer=%s session=%llu "
		  "reason=%s", lconn_name(q->c),
		  (unsigned long long)q->f->h.session, why);
	lserve_reply_plain(q, err, 0);
	lconn_close_after_send(q->c);
	return true;
}

/* Of a hello_reply. */
#define REPLY_SIZE 96u

static size_t reply_put(const struct lserve *s, uint8_t *body)
{
	struct hello_reply m = proto_reply(WIRE_ROLE_LOGD, "hail-logd");
	struct wire_out o;

	m.boot_id = s->o.boot_id;
	m.peer_id = s->o.daemon_id;
	wire_out_init(&o, body, REPLY_SIZE);
	hello_reply_encode(&o, &m);
	assert(!o.overflow);
	return o.len;
}

static bool accept_hello(struct lreq *q)
{
	struct lserve_conn *sc = lconn_user(q->c);
	uint8_t body[REPLY_SIZE];

	sc->who.role = q->m.u.hello.role;
	sc->who.session = q->f->h.session;
	sc->wait_since_ms = 0;
	lconn_trust(q->c);
	lserve_reply(q, 0, body, reply_put(q->s, body), NULL, 0);
	return true;
}

bool lserve_hello_other_version(struct lreq *q)
{
	struct proto_offer theirs = proto_of_hello(&q->m.u.hello);
	char text[PROTO_TEXT_SIZE], ours[PROTO_TEXT_SIZE];
	uint8_t body[REPLY_SIZE];

	stats_count(&q->s->n.invalid, 1);
	diag_warn("serve", "what=other-version peer=%s theirs=%s ours=%s "
		  "action=close", lconn_name(q->c), proto_text(&theirs, text),
		  proto_ours_text(ours));
	lserve_reply(q, -EPROTONOSUPPORT, body, reply_put(q->s, body), NULL,
		     0);
	lconn_close_after_send(q->c);
	return true;
}

/* Is the sender's session alive? Returns 1; 0: not known yet, wait; -ESTALE. */
static int hello_session(struct lreq *q, bool known)
{
	struct lserve *s = q->s;
	struct lserve_conn *sc = lconn_user(q->c);
	uint64_t session = q->f->h.session;

	/* Who was here before goes on without metad. */
	if (session_live(s, session) &&
	    (known || q->f->h.epoch <= lserve_epoch(s)))
		return 1;
	/* A session our map does not have may be newer than the map: only one
	 * that was asked for after this HELLO came can call it dead. */
	if (!sc->map_asked) {
		sc->map_asked = true;
		sc->map_fetches = s->map_fetches;
	}
	if (s->map_fetches < sc->map_fetches + 2)
		return 0;
	return session_live(s, session) ? 1 : -ESTALE;
}

/* Makes @q's connection the only one of its peer. 0 or -errno. */
static int hello_replace(struct lreq *q, struct lpeer *p)
{
	struct lserve *s = q->s;
	struct lserve_conn *sc = lconn_user(q->c);
	const struct hello *m = &q->m.u.hello;
	bool client = m->role == WIRE_ROLE_CLIENT;
	struct lconn *old;

	if (p && m->incarnation < p->incarnation)
		return -ESTALE;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->role = m->role;
		p->session = client ? q->f->h.session : 0;
		p->id = client ? 0 : m->peer_id;
		p->next = s->peers;
		s->peers = p;
	}
	p->incarnation = m->incarnation;
	old = p->conn;
	p->conn = q->c;
	p->told = false;
	p->told_ms = 0;
	sc->peer = p;
	if (!old)
		return 0;
	/* What is not dealt with of what came over it never will be. */
	stats_count(&s->n.replaced, 1);
	((struct lserve_conn *)lconn_user(old))->peer = NULL;
	lconn_close(old);
	return 0;
}

bool lserve_hello(struct lreq *q)
{
	const struct hello *m = &q->m.u.hello;
	bool client = m->role == WIRE_ROLE_CLIENT;
	struct lpeer *p;
	int rv;

	if (m->role == WIRE_ROLE_ADMIN)
		return accept_hello(q);
	p = peer_find(q->s, m->role, client ? q->f->h.session : 0,
		      client ? 0 : m->peer_id);
	if (client) {
		rv = hello_session(q, p != NULL);
		if (rv < 0)
			return refuse(q, rv, "dead-session");
		if (rv == 0)
			return lserve_wait(q->s, q->c, true);
		if (!p && !lserve_lease_ok(q->s))
			return lserve_wait(q->s, q->c, false);
	}
	rv = hello_replace(q, p);
	if (rv < 0)
		return refuse(q, rv, "older-incarnation");
	return accept_hello(q);
}

void lserve_conn_gone(struct lserve *s, struct lserve_conn *sc)
{
	if (sc->peer)
		sc->peer->conn = NULL;
	sc->peer = NULL;
	peers_trim(s);
}

void lserve_map_changed(struct lserve *s)
{
	struct lpeer *p;

	/* Closing one may take peers out of the list: from the start again. */
	do {
		p = s->peers;
		while (p && (p->role != WIRE_ROLE_CLIENT || !p->conn ||
			     session_live(s, p->session)))
			p = p->next;
		if (p) {
			stats_count(&s->n.replaced, 1);
			lconn_close(p->conn);
		}
	} while (p);
	peers_trim(s);
}

bool lserve_hears(const struct lserve *s, const struct lend_log *g)
{
	const struct lpeer *p = peer_find(s, WIRE_ROLE_CLIENT, g->session, 0);

	return p && p->conn && p->told_ms > 0 &&
	       loop_now_ms(s->o.loop) - p->told_ms < SERVE_TOLD_MS;
}

void lserve_told(struct lserve *s, const struct lserve_conn *sc)
{
	struct lpeer *p = sc->peer;

	if (!p)
		return;
	if (!lend_draining(s->o.lend))
		p->told_ms = 0;
	else if (p->told)
		p->told_ms = loop_now_ms(s->o.loop);
	p->told = lend_draining(s->o.lend);
}

void lserve_fenced(struct lserve *s, const struct lend_log *g)
{
	struct lpeer *p = peer_find(s, WIRE_ROLE_CLIENT, g->session, 0);

	/* Who fences his own log asks over that very connection. */
	if (!p || !p->conn || p->conn == s->asker)
		return;
	stats_count(&s->n.fenced, 1);
	diag_info("serve", "what=fenced ino=%llu epoch=%llu session=%llu "
		  "peer=%s action=close", (unsigned long long)g->ino,
		  (unsigned long long)g->epoch,
		  (unsigned long long)g->session, lconn_name(p->conn));
	lconn_close(p->conn);
}
