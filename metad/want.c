/* Leases that are wanted, and who is told of it. */
#include "metad/want.h"

#include "metad/recover.h"
#include "metad/session.h"

/* A recall is told again when it was not obeyed for so long; whom a lease is
 * kept for must ask for it by then. */
#define TELL_AGAIN_MS 1000u
#define RESERVED_MS 200u
/* Names lost that a session has not fetched; beyond, all are told anew. */
#define ORPHAN_QUEUE_MAX 65536u

struct waiter {
	struct waiter *next;
	struct reply_to to;
	bool write;
};

/* An inode of which somebody waits. */
struct want {
	struct want *next;
	uint64_t ino;
	struct waiter *first, **last;
	uint64_t holder; /* as last looked at */
	uint64_t since_ms; /* it was first asked to return the lease */
	uint64_t told_ms; /* and last; 0: not yet */
	uint64_t reserved; /* session that may take the lease now; 0 */
	uint64_t reserved_ms; /* until then */
	bool log_waits; /* its log is recovered first: nothing is recalled */
};

/* A session that is to be told things. */
struct listener {
	struct listener *next;
	uint64_t session;
	bool waiting; /* an EVENTS is there to be answered */
	struct reply_to to; /* the last one */
	/* Orphans to be told: of the queue, and from the state those behind
	 * @scanned, after a new connection. */
	uint64_t *queue;
	size_t count, cap;
	bool scan;
	uint64_t scanned;
	bool tell_logs;
	uint64_t logs_told_ms; /* that there are some to recover; 0: never */
};

struct wants {
	struct metad *md;
	struct want *list;
	size_t count; /* waiters */
	struct listener *listeners;
	uint64_t idle_looked_ms;
	/* Logs that dead sessions left. */
	bool logs_left, logs_known; /* @logs_left is true */
	uint64_t heir; /* as last looked at */
	uint64_t sessions_epoch; /* the map's, likewise */
	uint64_t logs_told_ms;
};

/* ---- waiting for a lease ---- */

static struct want *want_find(struct wants *ws, uint64_t ino)
{
	struct want *w = ws->list;

	while (w && w->ino != ino)
		w = w->next;
	return w;
}

static struct want *want_get(struct wants *ws, uint64_t ino)
{
	struct want *w = want_find(ws, ino);

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->ino = ino;
	w->last = &w->first;
	w->next = ws->list;
	ws->list = w;
	return w;
}

static void waiter_answer(struct wants *ws, const struct waiter *v,
			  uint64_t ino)
{
	struct meta_want m = { .ino = ino, .write = v->write };
	uint8_t body[16];
	struct wire_out o;
	struct request r = { .md = ws->md, .to = v->to, .body = body };

	r.conn = serve_conn(ws->md, v->to.conn_id);
	if (!r.conn)
		return;
	wire_out_init(&o, body, sizeof(body));
	meta_want_encode(&o, &m);
	r.body_len = (uint32_t)o.len;
	request_attr(&r, ino);
}

static void waiter_free(struct wants *ws, struct want *w, struct waiter **at)
{
	struct waiter *v = *at;

	*at = v->next;
	if (!v->next)
		w->last = at;
	free(v);
	ws->count--;
}

/* Is the lease free for @v? */
static bool may_have(const struct want *w, const struct waiter *v, uint64_t now)
{
	if (w->holder != 0)
		return w->holder == v->to.session;
	return !v->write || w->reserved == 0 ||
	       w->reserved == v->to.session || now >= w->reserved_ms;
}

/* Answers whom it can; those who write in order. */
static void want_answer(struct wants *ws, struct want *w, uint64_t now)
{
	struct waiter **at = &w->first;
	bool writer = false; /* one waits: those behind it, too */

	w->log_waits = false;
	while (*at) {
		struct waiter *v = *at;
		enum sm_log_way way = sm_log_way(ws->md->sm, w->ino,
						 v->to.session);

		if (way == SM_LOG_LOST) {
			serve_reply(ws->md, &v->to, -EIO, NULL, 0);
			waiter_free(ws, w, at);
			continue;
		}
		w->log_waits |= way == SM_LOG_WAIT;
		if ((v->write && writer) || way == SM_LOG_WAIT ||
		    !may_have(w, v, now)) {
			writer |= v->write;
			at = &v->next;
			continue;
		}
		if (v->write && w->holder == 0) {
			w->reserved = v->to.session;
			w->reserved_ms = now + RESERVED_MS;
			writer = true;
		}
		waiter_answer(ws, v, w->ino);
		waiter_free(ws, w, at);
	}
}

static void want_look(struct wants *ws, struct want *w, uint64_t now)
{
	struct metad *md = ws->md;
	uint64_t holder = sm_lease_holder(md->sm, w->ino);

	if (holder != w->holder) {
		w->holder = holder;
		w->since_ms = now;
		w->told_ms = 0;
		w->reserved = 0;
	}
	if (w->reserved && now >= w->reserved_ms)
		w->reserved = 0;
	want_answer(ws, w, now);
	if (w->log_waits)
		w->since_ms = now;
	if (!w->first || holder == 0)
		return;
	if (session_gone(md, holder))
		recover_evict(md, holder, "not heard of");
	else if (now - w->since_ms > RECALL_MAX_MS)
		recover_evict(md, holder, "does not return a lease");
}

/* ---- telling ---- */

static void tell(struct wire_out *o, uint32_t *count, uint8_t kind,
		 uint64_t ino)
{
	struct meta_event e = { .kind = kind, .ino = ino };

	meta_event_encode(o, &e);
	(*count)++;
}

static void tell_recalls(struct wants *ws, struct listener *l, uint64_t now,
			 struct wire_out *o, uint32_t *count)
{
	struct want *w;

	for (w = ws->list; w && *count < EVENT_COUNT_MAX; w = w->next) {
		if (!w->first || w->holder != l->session || w->log_waits ||
		    (w->told_ms && now - w->told_ms < TELL_AGAIN_MS))
			continue;
		w->told_ms = now;
		tell(o, count, META_EVENT_RECALL, w->ino);
	}
}

static void tell_orphans(struct wants *ws, struct listener *l,
			 struct wire_out *o, uint32_t *count)
{
	uint64_t inos[64];
	size_t i, n = 1;

	while (l->scan && n > 0 && *count + array_count(inos) <=
	       EVENT_COUNT_MAX) {
		n = sm_orphan_list(ws->md->sm, l->session, l->scanned, inos,
				   array_count(inos));
		for (i = 0; i < n; i++)
			tell(o, count, META_EVENT_ORPHAN, inos[i]);
		if (n > 0)
			l->scanned = inos[n - 1];
	}
	if (n == 0)
		l->scan = false;
	while (l->count > 0 && *count < EVENT_COUNT_MAX)
		tell(o, count, META_EVENT_ORPHAN, l->queue[--l->count]);
}

/* One is told, and a while later another: who comes first is the heir. */
static struct listener *logs_whom(struct wants *ws)
{
	struct listener *l, *best = NULL;

	for (l = ws->listeners; l; l = l->next)
		if (l->waiting &&
		    (!best || l->logs_told_ms < best->logs_told_ms))
			best = l;
	return best;
}

/* Sessions end with a new map, and an heir may not have had all. */
static void logs_look(struct wants *ws, uint64_t now)
{
	struct sm *sm = ws->md->sm;
	struct listener *l;

	if (ws->heir != sm_log_heir(sm) ||
	    ws->sessions_epoch != sm_map(sm)->epoch) {
		ws->heir = sm_log_heir(sm);
		ws->sessions_epoch = sm_map(sm)->epoch;
		ws->logs_known = false;
	}
	if (!ws->listeners || ws->heir ||
	    recover_session(ws->md) ||
	    (ws->logs_told_ms && now - ws->logs_told_ms < TELL_AGAIN_MS))
		return;
	if (!ws->logs_known)
		ws->logs_left = sm_log_left(sm);
	ws->logs_known = true;
	l = ws->logs_left ? logs_whom(ws) : NULL;
	if (!l)
		return;
	ws->logs_told_ms = l->logs_told_ms = now;
	l->tell_logs = true;
}

static void listener_look(struct wants *ws, struct listener *l, uint64_t now)
{
	static uint8_t events[EVENT_COUNT_MAX * 9], body[sizeof(events) + 16];
	struct meta_events_reply m = { 0 };
	struct wire_out o;
	uint64_t pos = 0;
	uint32_t recalls;

	if (!l->waiting)
		return;
	wire_out_init(&o, events, sizeof(events));
	tell_recalls(ws, l, now, &o, &m.count);
	if (l->tell_logs && m.count < EVENT_COUNT_MAX)
		tell(&o, &m.count, META_EVENT_LOGS, ROOT_INO);
	l->tell_logs = false;
	recalls = m.count;
	tell_orphans(ws, l, &o, &m.count);
	assert(!o.overflow);
	if (m.count == 0)
		return;
	/* An answer that still shows the name must not come later. */
	if (m.count > recalls)
		pos = sm_pos(ws->md->sm);
	m.events.p = events;
	m.events.len = (uint32_t)o.len;
	wire_out_init(&o, body, sizeof(body));
	meta_events_reply_encode(&o, &m);
	l->waiting = false;
	request_reply_at(ws->md, &l->to, pos, 0, body, o.len);
}

static struct listener *listener_find(struct wants *ws, uint64_t session)
{
	struct listener *l = ws->listeners;

	while (l && l->session != session)
		l = l->next;
	return l;
}

static void listeners_drop_dead(struct wants *ws)
{
	struct listener **p = &ws->listeners, *l;

	while ((l = *p)) {
		if (cmap_session_live(sm_map(ws->md->sm), l->session)) {
			p = &l->next;
			continue;
		}
		*p = l->next;
		free(l->queue);
		free(l);
	}
}

void wants_orphan(struct metad *md, uint64_t ino, uint64_t session)
{
	struct listener *l;

	for (l = md->wants->listeners; l; l = l->next) {
		if (l->session == session)
			continue;
		if (l->count == l->cap) {
			size_t cap = l->cap ? 2 * l->cap : 64;
			uint64_t *q = cap <= ORPHAN_QUEUE_MAX ?
				realloc(l->queue, cap * sizeof(*q)) : NULL;

			if (!q) {
				/* They are in the state. */
				l->scan = true;
				l->scanned = 0;
				l->count = 0;
				continue;
			}
			l->queue = q;
			l->cap = cap;
		}
		l->queue[l->count++] = ino;
	}
}

/* ---- the loop ---- */

/* One that is silent may hold what nobody waits for here: names that others
 * have removed, space. */
static void idle_look(struct wants *ws, uint64_t now)
{
	const struct cmap *map = sm_map(ws->md->sm);
	uint32_t i;

	if (now - ws->idle_looked_ms < 1000)
		return;
	ws->idle_looked_ms = now;
	listeners_drop_dead(ws);
	for (i = 0; map->session_count > 1 && i < map->session_count; i++) {
		if (session_gone(ws->md, map->sessions[i])) {
			recover_evict(ws->md, map->sessions[i],
				      "not heard of");
			return; /* the map is another one now */
		}
	}
}

void wants_look(struct metad *md)
{
	struct wants *ws = md->wants;
	uint64_t now = uv_now(&md->loop);
	struct want **p = &ws->list, *w;
	struct listener *l;

	while ((w = *p)) {
		want_look(ws, w, now);
		if (w->first || w->reserved) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		free(w);
	}
	logs_look(ws, now);
	for (l = ws->listeners; l; l = l->next)
		listener_look(ws, l, now);
	idle_look(ws, now);
}

void wants_conn_gone(struct metad *md, uint64_t conn_id)
{
	struct wants *ws = md->wants;
	struct listener *l;
	struct want *w;

	for (w = ws->list; w; w = w->next) {
		struct waiter **at = &w->first;

		while (*at) {
			if ((*at)->to.conn_id == conn_id)
				waiter_free(ws, w, at);
			else
				at = &(*at)->next;
		}
	}
	for (l = ws->listeners; l; l = l->next)
		if (l->to.conn_id == conn_id)
			l->waiting = false;
}

/* ---- requests ---- */

void want_run(struct request *q)
{
	struct wants *ws = q->md->wants;
	struct meta_want m;
	struct waiter *v;
	struct want *w;

	if (meta_want_parse(q->body, q->body_len, &m) < 0 || m.write > 1 ||
	    m.ino == 0 || m.ino > INO_MAX) {
		serve_reply(q->md, &q->to, -EBADMSG, NULL, 0);
		return;
	}
	w = ws->count < WANT_COUNT_MAX ? want_get(ws, m.ino) : NULL;
	v = w ? calloc(1, sizeof(*v)) : NULL;
	if (!v) {
		serve_reply(q->md, &q->to, -EBUSY, NULL, 0);
		return;
	}
	v->to = q->to;
	v->write = m.write;
	*w->last = v;
	w->last = &v->next;
	ws->count++;
	/* Answered, or told to the holder, when the loop turns. */
	q->md->activity++;
	wants_look(q->md);
}

void events_run(struct request *q)
{
	struct wants *ws = q->md->wants;
	struct listener *l = listener_find(ws, q->to.session);
	struct want *w;

	if (q->body_len != 0) {
		serve_reply(q->md, &q->to, -EBADMSG, NULL, 0);
		return;
	}
	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l) {
			serve_reply(q->md, &q->to, -EAGAIN, NULL, 0);
			return;
		}
		l->session = q->to.session;
		l->next = ws->listeners;
		ws->listeners = l;
	}
	if (l->waiting && l->to.conn_id == q->to.conn_id) {
		serve_reply(q->md, &q->to, -EAGAIN, NULL, 0);
		return;
	}
	if (l->to.conn_id != q->to.conn_id) {
		/* What the last answer told may not have arrived. */
		l->scan = true;
		l->scanned = 0;
		for (w = ws->list; w; w = w->next)
			if (w->holder == l->session)
				w->told_ms = 0;
	}
	l->to = q->to;
	l->waiting = true;
	wants_look(q->md);
}

/* ---- life ---- */

int wants_new(struct metad *md, struct wants **ret)
{
	struct wants *ws = calloc(1, sizeof(*ws));

	if (!ws)
		return -ENOMEM;
	ws->md = md;
	*ret = ws;
	return 0;
}

void wants_free(struct wants *ws)
{
	struct listener *l, *l_next;
	struct want *w, *w_next;

	if (!ws)
		return;
	for (w = ws->list; w; w = w_next) {
		w_next = w->next;
		while (w->first)
			waiter_free(ws, w, &w->first);
		free(w);
	}
	for (l = ws->listeners; l; l = l_next) {
		l_next = l->next;
		free(l->queue);
		free(l);
	}
	free(ws);
}
