/* Connected sessions and incarnations of peers. */
#include "metad/session.h"

#include <inttypes.h>

#include "common/diag.h"
#include "metad/recover.h"

/* The loop wakes each second at least (room.c). When it did not for so long, it
 * was stopped or waited for a disk, and what came meanwhile is yet to be read.
 */
#define STALL_MS 3000u

/* A session, or a daemon by its role and id. */
struct seen {
	struct seen *next;
	uint8_t role;
	uint32_t peer_id;
	uint64_t session;
	uint64_t incarnation; /* largest */
	uint64_t last_ms;
	bool settled;
	uint8_t *status;
	uint32_t status_len;
};

struct sessions {
	struct metad *md;
	struct seen *list;
	uint64_t start_ms; /* nobody counts as silent since before */
	uint64_t turn_ms; /* the loop was here last */
};

static struct seen *seen_find(struct metad *md, uint8_t role, uint32_t peer_id,
			      uint64_t session)
{
	struct seen *s = md->sessions->list;

	while (s && !(s->role == role && s->peer_id == peer_id &&
		      s->session == session))
		s = s->next;
	return s;
}

static struct seen *seen_get(struct metad *md, uint8_t role, uint32_t peer_id,
			     uint64_t session)
{
	struct seen *s = seen_find(md, role, peer_id, session);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->role = role;
	s->peer_id = peer_id;
	s->session = session;
	s->last_ms = uv_now(&md->loop);
	s->next = md->sessions->list;
	md->sessions->list = s;
	return s;
}

int session_incarnation(struct metad *md, uint8_t role, uint32_t peer_id,
			uint64_t session, uint64_t incarnation)
{
	struct seen *s;

	/* Before a session is open, and for tools, nothing can be repeated. */
	if (role == WIRE_ROLE_ADMIN ||
	    (role == WIRE_ROLE_CLIENT && session == 0))
		return 0;
	s = seen_get(md, role, peer_id, session);
	if (!s)
		return -ENOMEM;
	if (incarnation < s->incarnation)
		return -ESTALE;
	s->incarnation = incarnation;
	serve_close_older(md, role, peer_id, session, incarnation);
	return 0;
}

void session_connected(struct metad *md, uint64_t session)
{
	session_alive(md, session);
}

void session_alive(struct metad *md, uint64_t session)
{
	struct seen *s = seen_get(md, WIRE_ROLE_CLIENT, 0, session);

	if (s)
		s->last_ms = uv_now(&md->loop);
}

void sessions_turn(struct metad *md)
{
	struct sessions *ss = md->sessions;
	uint64_t now = uv_now(&md->loop);

	if (!ss)
		return;
	if (now - ss->turn_ms > STALL_MS) {
		diag_warn("session", "event=stalled ms=%" PRIu64,
			  now - ss->turn_ms);
		ss->start_ms = now;
	}
	ss->turn_ms = now;
}

uint64_t session_idle_ms(struct metad *md, uint64_t session)
{
	const struct seen *s = seen_find(md, WIRE_ROLE_CLIENT, 0, session);
	uint64_t since;

	/* We may be the one who was silent, and asked before the turn ends. */
	sessions_turn(md);
	since = md->sessions->start_ms;
	return uv_now(&md->loop) - (s ? u64_max(s->last_ms, since) : since);
}

void session_settle(struct metad *md, uint64_t session)
{
	struct seen *s = seen_find(md, WIRE_ROLE_CLIENT, 0, session);

	if (s)
		s->settled = true;
}

bool session_settled(struct metad *md, uint64_t session)
{
	const struct seen *s = seen_find(md, WIRE_ROLE_CLIENT, 0, session);

	return s && s->settled;
}

bool session_gone(struct metad *md, uint64_t session)
{
	return session_idle_ms(md, session) >= SESSION_DEAD_MS;
}

struct wire_str session_status(struct metad *md, uint64_t session)
{
	const struct seen *s = seen_find(md, WIRE_ROLE_CLIENT, 0, session);
	struct wire_str v = { NULL, 0 };

	if (s) {
		v.p = s->status;
		v.len = s->status_len;
	}
	return v;
}

void session_forget(struct metad *md, uint64_t session)
{
	struct seen **p = &md->sessions->list, *s;

	while ((s = *p)) {
		if (s->role != WIRE_ROLE_CLIENT || s->session != session) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		free(s->status);
		free(s);
	}
}

/* ---- handlers ---- */

void session_open(struct request *r)
{
	struct meta_session_open m;
	uint32_t flags;
	struct wire_in in;

	wire_in_init(&in, r->body, r->body_len);
	meta_session_open_decode(&in, &m);
	flags = in.len > 0 ? wire_get_u32(&in) : 0;
	if (wire_in_known(&in) < 0)
		serve_reply(r->md, &r->to, -EBADMSG, NULL, 0);
	else if (flags & ~META_SESSION_KNOWN)
		serve_reply(r->md, &r->to, -EOPNOTSUPP, NULL, 0);
	else
		recover_open(r->md, &r->to, &m, flags);
}

void session_close(struct request *r)
{
	recover_close(r->md, &r->to);
}

void session_keepalive(struct request *r)
{
	struct meta_keepalive m;
	struct seen *s;
	uint8_t *p;

	if (meta_keepalive_parse(r->body, r->body_len, &m) < 0) {
		serve_reply(r->md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	s = seen_find(r->md, WIRE_ROLE_CLIENT, 0, r->to.session);
	if (s)
		s->settled = true;
	if (s && m.status.len <= SESSION_STATUS_MAX) {
		/* Nothing is lost when there is no memory for it. */
		p = realloc(s->status, m.status.len + 1u);
		if (p) {
			if (m.status.len)
				memcpy(p, m.status.p, m.status.len);
			s->status = p;
			s->status_len = m.status.len;
		}
	}
	serve_reply(r->md, &r->to, 0, NULL, 0);
}

/* ---- life ---- */

struct sessions *sessions_new(struct metad *md)
{
	struct sessions *ss = calloc(1, sizeof(*ss));

	if (ss) {
		ss->md = md;
		ss->start_ms = ss->turn_ms = uv_now(&md->loop);
	}
	return ss;
}

void sessions_free(struct sessions *ss)
{
	struct seen *s, *next;

	if (!ss)
		return;
	for (s = ss->list; s; s = next) {
		next = s->next;
		free(s->status);
		free(s);
	}
	free(ss);
}
