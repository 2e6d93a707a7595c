/* Waiting for advisory locks, in order, and finding who would wait for itself.
 */
#include "metad/lock.h"

#include "common/lock_table.h"

struct lock_waiter {
	struct lock_waiter *next;
	struct reply_to to;
	uint64_t id; /* the session's number of this wait */
	struct meta_lock m;
	/* of the search for deadlocks */
	uint64_t seen;
	struct lock_waiter *work_next;
};

struct lock_waits {
	struct metad *md;
	struct lock_waiter *first, **last; /* in order of arrival */
	size_t count;
	uint64_t freed; /* sm_locks_freed() when last looked at */
	uint64_t search; /* number of the last one */
};

static void waiter_free(struct lock_waits *ws, struct lock_waiter **at)
{
	struct lock_waiter *v = *at;

	*at = v->next;
	if (!v->next)
		ws->last = at;
	free(v);
	ws->count--;
}

/* ---- granting ---- */

static void grant(struct metad *md, const struct reply_to *to,
		  const struct meta_lock *m)
{
	uint8_t body[64];
	struct meta_lock_reply got = { .taken = 0 };
	struct sm_reply r;
	struct wire_out o;

	wire_out_init(&o, body, sizeof(body));
	wire_put_u64(&o, to->session);
	meta_lock_encode(&o, m);
	assert(!o.overflow);
	metad_propose(md, WIRE_OP_SM_LOCK, 0, body, o.len, &r);
	if (r.status == 0 &&
	    (meta_lock_reply_parse(r.body, r.body_len, &got) < 0 ||
	     got.taken != 1))
		r.status = -EIO; /* nothing was in the way just now */
	/* It is not in the session's stream: nobody would send it again. */
	request_reply_at(md, to, r.pos, r.status, NULL, 0);
}

static bool in_way(const struct lock_waits *ws, uint64_t session,
		   const struct meta_lock *m)
{
	struct sm_lock k;

	return sm_lock_conflict(ws->md->sm, session, m, NULL, &k);
}

/* Serves whom it can, of @ino (0: of all). A grant that gives up something
 * itself (a write lock becomes a read lock) may make way for an earlier one. */
static void serve_waiters(struct lock_waits *ws, uint64_t ino)
{
	struct lock_waiter **at = &ws->first;

	while (*at) {
		struct lock_waiter *v = *at;
		uint64_t freed = sm_locks_freed(ws->md->sm);

		if ((ino && v->m.ino != ino) ||
		    in_way(ws, v->to.session, &v->m)) {
			at = &v->next;
			continue;
		}
		grant(ws->md, &v->to, &v->m);
		waiter_free(ws, at);
		if (sm_locks_freed(ws->md->sm) != freed)
			at = &ws->first;
	}
}

/* Something may have been given up, since @freed only of @ino. */
static void changed(struct lock_waits *ws, uint64_t ino, uint64_t freed)
{
	if (sm_locks_freed(ws->md->sm) == ws->freed)
		return;
	serve_waiters(ws, ws->freed == freed ? ino : 0);
	ws->freed = sm_locks_freed(ws->md->sm);
}

void lock_waits_look(struct metad *md)
{
	changed(md->lock_waits, 0, 0);
}

void lock_waits_changed(struct metad *md, const struct request *q,
			uint64_t freed)
{
	struct meta_mhdr h;
	struct wire_in in;

	wire_in_init(&in, q->body, q->body_len);
	meta_mhdr_decode(&in, &h);
	changed(md->lock_waits, wire_get_u64(&in), freed);
}

/* ---- deadlock ---- */

static bool searched(const struct meta_lock *m)
{
	return m->kind == LOCK_KIND_POSIX && m->pid != 0;
}

/* Puts the waits of @k's owner on the work list, each once. */
static void queue_waits(struct lock_waits *ws, const struct sm_lock *k,
			struct lock_waiter **work)
{
	struct lock_waiter *v;

	for (v = ws->first; v; v = v->next) {
		if (v->to.session != k->session || v->m.owner != k->l.owner ||
		    !searched(&v->m) || v->seen == ws->search)
			continue;
		v->seen = ws->search;
		v->work_next = *work;
		*work = v;
	}
}

/* Would this wait close a circle? Follows "waits for an owner who waits for"
 * from the locks in its way, as common/lock_table.c does. */
static bool deadlocks(struct lock_waits *ws, uint64_t session,
		      const struct meta_lock *m)
{
	uint64_t at_session = session;
	const struct meta_lock *at = m;
	struct lock_waiter *work = NULL;

	if (!searched(m))
		return false;
	ws->search++;
	for (;;) {
		struct sm_lock k, last;
		bool more = sm_lock_conflict(ws->md->sm, at_session, at, NULL,
					     &k);

		while (more) {
			if (k.session == session && k.l.owner == m->owner)
				return true;
			queue_waits(ws, &k, &work);
			last = k;
			more = sm_lock_conflict(ws->md->sm, at_session, at,
						&last, &k);
		}
		if (!work)
			return false;
		at = &work->m;
		at_session = work->to.session;
		work = work->work_next;
	}
}

/* ---- requests ---- */

static struct lock_waiter **waiter_find(struct lock_waits *ws, uint64_t session,
					uint64_t id)
{
	struct lock_waiter **at = &ws->first;

	while (*at && ((*at)->to.session != session || (*at)->id != id))
		at = &(*at)->next;
	return at;
}

static int wait_add(struct lock_waits *ws, const struct request *q,
		    const struct meta_lock *m, uint64_t id)
{
	struct lock_waiter *v;

	if (deadlocks(ws, q->to.session, m))
		return -EDEADLK;
	v = ws->count < WANT_COUNT_MAX ? calloc(1, sizeof(*v)) : NULL;
	if (!v)
		return -ENOLCK;
	v->to = q->to;
	v->id = id;
	v->m = *m;
	*ws->last = v;
	ws->last = &v->next;
	ws->count++;
	return 0;
}

/* META_LOCK_WAIT's body: 0, or -errno. */
static int wait_split(const struct request *q, struct meta_lock *m,
		      uint64_t *id)
{
	size_t len = q->body_len > sizeof(*id) ? q->body_len - sizeof(*id) : 0;
	struct wire_in in;
	int err = sm_validate(WIRE_OP_META_LOCK_GET, q->body, len);

	if (err < 0)
		return err;
	wire_in_init(&in, q->body, q->body_len);
	meta_lock_decode(&in, m);
	*id = wire_get_u64(&in);
	err = wire_in_known(&in);
	return err == 0 && m->type == LOCK_TYPE_UNLOCK ? -EINVAL : err;
}

void lock_wait_run(struct request *q)
{
	struct lock_waits *ws = q->md->lock_waits;
	struct lock_waiter **at;
	struct meta_lock m;
	uint64_t id;
	int err = wait_split(q, &m, &id);

	if (err == 0) {
		/* Asked again before its old connection was seen to be gone. */
		at = waiter_find(ws, q->to.session, id);
		if (*at) {
			(*at)->to = q->to;
			return;
		}
		if (!in_way(ws, q->to.session, &m)) {
			uint64_t freed = sm_locks_freed(q->md->sm);

			grant(q->md, &q->to, &m);
			changed(ws, m.ino, freed);
			return;
		}
		err = wait_add(ws, q, &m, id);
	}
	if (err < 0)
		serve_reply(q->md, &q->to, err, NULL, 0);
}

void lock_cancel_run(struct request *q)
{
	struct lock_waits *ws = q->md->lock_waits;
	struct meta_lock_cancel m;
	struct lock_waiter **at;
	int err = meta_lock_cancel_parse(q->body, q->body_len, &m);

	if (err == 0) {
		at = waiter_find(ws, q->to.session, m.id);
		err = *at ? 0 : -ENOENT;
		if (*at) {
			serve_reply(q->md, &(*at)->to, -EINTR, NULL, 0);
			waiter_free(ws, at);
		}
	}
	serve_reply(q->md, &q->to, err, NULL, 0);
}

void lock_waits_conn_gone(struct metad *md, uint64_t conn_id)
{
	struct lock_waits *ws = md->lock_waits;
	struct lock_waiter **at = &ws->first;

	while (*at) {
		if ((*at)->to.conn_id == conn_id)
			waiter_free(ws, at);
		else
			at = &(*at)->next;
	}
}

void lock_waits_each(struct metad *md,
		     void (*fn)(void *arg, const struct sm_lock *k),
		     void *arg)
{
	const struct lock_waiter *v = md->lock_waits->first;

	for (; v; v = v->next) {
		struct sm_lock k = { v->to.session, v->m };

		fn(arg, &k);
	}
}

/* ---- life ---- */

int lock_waits_new(struct metad *md, struct lock_waits **ret)
{
	struct lock_waits *ws = calloc(1, sizeof(*ws));

	if (!ws)
		return -ENOMEM;
	ws->md = md;
	ws->last = &ws->first;
	ws->freed = sm_locks_freed(md->sm);
	*ret = ws;
	return 0;
}

void lock_waits_free(struct lock_waits *ws)
{
	if (!ws)
		return;
	while (ws->first)
		waiter_free(ws, &ws->first);
	free(ws);
}
