/* Sessions, incarnations and fences: who may be behind a connection
 * (design section 3). */
#include "blockd/serve_priv.h"

#include "common/diag.h"
#include "common/proto.h"

static struct peer *peer_find(struct serve *s, uint8_t role, uint64_t session,
			      uint32_t id)
{
	struct peer *p = s->peers;

	while (p && (p->role != role || p->session != session || p->id != id))
		p = p->next;
	return p;
}

static void peer_remove(struct serve *s, struct peer *p)
{
	struct peer **at = &s->peers;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

void peer_free_all(struct serve *s)
{
	while (s->peers)
		peer_remove(s, s->peers);
}

static bool is_fenced(const struct serve *s, uint64_t session)
{
	for (unsigned i = 0; i < s->fence_count; i++)
		if (s->fences[i].session == session)
			return true;
	return false;
}

static bool session_live(const struct serve *s, uint64_t session)
{
	return s->map && cmap_session_live(s->map, session) &&
	       !is_fenced(s, session);
}

bool peer_dead_busy(const struct serve *s)
{
	const struct peer *p;

	/* A connection is counted until what came over it has ended. */
	for (p = s->peers; p; p = p->next)
		if (p->role == WIRE_ROLE_CLIENT && p->conns > 0 &&
		    !session_live(s, p->session))
			return true;
	return false;
}

/* Closes the connections of @peer but @keep. */
struct closing {
	const struct peer *peer;
	const struct conn *keep;
	uint64_t count;
};

static void close_one(struct conn *c, void *arg)
{
	struct closing *x = arg;
	struct serve_conn *sc = conn_user(c);

	if (!sc || sc->peer != x->peer || c == x->keep)
		return;
	x->count++;
	conn_close(c);
}

static uint64_t close_others(struct serve *s, const struct peer *p,
			     const struct conn *keep)
{
	struct closing x = { .peer = p, .keep = keep };

	conn_set_each(s->conns, close_one, &x);
	return x.count;
}

/* ---- HELLO ---- */

static bool hello_refuse(struct serve_req *q, int err, const char *why)
{
	struct conn *c = q->c;

	q->s->n.hello_stale++;
	diag_info("serve", "what=hello-refused peer=%s session=%llu "
		  "reason=%s", conn_name(c),
		  (unsigned long long)q->f->h.session, why);
	conn_get(c);
	blk_serve_reply_plain(q, err);
	conn_close_after_send(c);
	return true;
}

static void reply_put(struct serve_req *q, struct wire_out *o)
{
	struct hello_reply m = proto_reply(WIRE_ROLE_BLOCKD, "hail-blockd");

	m.boot_id = q->s->o.boot_id;
	m.peer_id = q->s->o.daemon_id;
	wire_out_init(o, q->head + WIRE_HEADER_SIZE,
		      sizeof(q->head) - WIRE_HEADER_SIZE);
	hello_reply_encode(o, &m);
	assert(!o->overflow);
}

static void hello_accept(struct serve_req *q)
{
	struct serve *s = q->s;
	struct serve_conn *sc = conn_user(q->c);
	struct wire_out o;

	sc->who.role = q->m.u.hello.role;
	sc->who.session = q->f->h.session;
	sc->wait_since_ms = 0;
	if (sc->who.role == WIRE_ROLE_CLIENT)
		store_note_session(s->o.store, sc->who.session);
	conn_trust(q->c);
	conn_get(q->c);
	reply_put(q, &o);
	blk_serve_reply(q, 0, o.len, NULL, 0);
}

bool peer_hello_other_version(struct serve_req *q)
{
	struct proto_offer theirs = proto_of_hello(&q->m.u.hello);
	char text[PROTO_TEXT_SIZE], ours[PROTO_TEXT_SIZE];
	struct conn *c = q->c;
	struct wire_out o;

	q->s->n.invalid++;
	diag_warn("serve", "what=other-version peer=%s theirs=%s ours=%s "
		  "action=close", conn_name(c), proto_text(&theirs, text),
		  proto_ours_text(ours));
	conn_get(c);
	reply_put(q, &o);
	blk_serve_reply(q, -EPROTONOSUPPORT, o.len, NULL, 0);
	conn_close_after_send(c);
	return true;
}

/* Is the sender's session alive? Returns 1; 0: not known yet, wait; -ESTALE. */
static int hello_session(struct serve_req *q)
{
	struct serve *s = q->s;
	struct serve_conn *sc = conn_user(q->c);
	uint64_t session = q->f->h.session;

	if (is_fenced(s, session))
		return -ESTALE;
	if (session_live(s, session) && q->f->h.epoch <= blk_serve_epoch(s))
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

/* Makes @q's connection the only one of its peer. Returns 1 when everything
 * that came over older ones has ended; 0: wait for that; -errno. */
static int hello_replace(struct serve_req *q)
{
	struct serve *s = q->s;
	struct serve_conn *sc = conn_user(q->c);
	const struct hello *m = &q->m.u.hello;
	bool client = m->role == WIRE_ROLE_CLIENT;
	uint64_t session = client ? q->f->h.session : 0;
	uint32_t id = client ? 0 : m->peer_id;
	struct peer *p = sc->peer;

	if (!p) {
		p = peer_find(s, m->role, session, id);
		if (p && m->incarnation < p->incarnation)
			return -ESTALE;
		if (!p) {
			p = calloc(1, sizeof(*p));
			if (!p)
				return -ENOMEM;
			p->role = m->role;
			p->session = session;
			p->id = id;
			p->next = s->peers;
			s->peers = p;
		}
		p->incarnation = m->incarnation;
		p->conns++;
		sc->peer = p;
		s->n.replaced += close_others(s, p, q->c);
	}
	return p->conns == 1;
}

bool peer_hello(struct serve_req *q)
{
	const struct hello *m = &q->m.u.hello;
	int rv;

	if (m->role == WIRE_ROLE_ADMIN) {
		hello_accept(q);
		return true;
	}
	if (m->role == WIRE_ROLE_CLIENT) {
		rv = hello_session(q);
		if (rv < 0)
			return hello_refuse(q, rv, "dead-session");
		if (rv == 0)
			return blk_serve_wait(q->s, q->c, true);
		if (!blk_serve_lease_ok(q->s))
			return blk_serve_wait(q->s, q->c, false);
	}
	rv = hello_replace(q);
	if (rv < 0)
		return hello_refuse(q, rv, "older-incarnation");
	/* Resumed by peer_conn_drained(). */
	if (rv == 0)
		return false;
	hello_accept(q);
	return true;
}

/* ---- fence ---- */

/* Answers the fences that have nothing left to wait for. */
static void fences_answer(struct serve *s)
{
	struct serve_req **at = &s->fence_waits, *q;
	struct peer *p;

	while ((q = *at)) {
		p = peer_find(s, WIRE_ROLE_CLIENT, q->m.u.fence.session, 0);
		if (p && p->conns > 0) {
			at = &q->next;
			continue;
		}
		*at = q->next;
		blk_serve_reply_plain(q, 0);
	}
}

void peer_fence(struct serve_req *q)
{
	struct serve *s = q->s;
	const struct blk_fence *m = &q->m.u.fence;
	struct peer *p;

	if (!is_fenced(s, m->session)) {
		if (s->fence_count == SERVE_FENCE_MAX) {
			blk_serve_reply_plain(q, -EAGAIN);
			return;
		}
		s->fences[s->fence_count++] = (struct serve_fence){
			.session = m->session, .epoch = m->epoch };
	}
	s->n.fences++;
	diag_info("serve", "what=fence session=%llu epoch=%llu",
		  (unsigned long long)m->session, (unsigned long long)m->epoch);
	p = peer_find(s, WIRE_ROLE_CLIENT, m->session, 0);
	q->next = s->fence_waits;
	s->fence_waits = q;
	if (p)
		(void)close_others(s, p, NULL); /* counted as a fence */
	fences_answer(s);
}

void peer_conn_drained(struct serve *s, struct conn *c)
{
	struct serve_conn *sc = conn_user(c);
	struct peer *p = sc ? sc->peer : NULL;

	if (!p)
		return;
	sc->peer = NULL;
	assert(p->conns > 0);
	p->conns--;
	if (p->conns == 0 && (p->role != WIRE_ROLE_CLIENT ||
			      !session_live(s, p->session)))
		peer_remove(s, p);
	else
		/* The one that replaced it waits for this. */
		blk_serve_resume_all(s);
	fences_answer(s);
}

void peer_map_changed(struct serve *s)
{
	struct peer *p, *next;
	unsigned kept = 0;

	/* A map that no longer has a fenced session makes its fence needless:
	 * it comes from the epoch of the fence or after it. */
	for (unsigned i = 0; i < s->fence_count; i++)
		if (cmap_session_live(s->map, s->fences[i].session) ||
		    s->map->epoch < s->fences[i].epoch)
			s->fences[kept++] = s->fences[i];
	s->fence_count = kept;

	for (p = s->peers; p; p = next) {
		next = p->next;
		if (p->role != WIRE_ROLE_CLIENT || session_live(s, p->session))
			continue;
		if (p->conns == 0)
			peer_remove(s, p);
		else
			s->n.replaced += close_others(s, p, NULL);
	}
}
