/* Sessions: the order of their end and of their beginning. */
#include "metad/recover.h"

#include <inttypes.h>

#include "common/diag.h"
#include "metad/cut.h"
#include "metad/drive.h"
#include "metad/monitor.h"
#include "metad/session.h"
#include "metad/sweep.h"

/* Inodes asked about at a time. */
#define ENDS_MAX 64u
#define FENCE_TRY_MS 1000u
#define END_TRY_MS 5000u
#define OPENERS_MAX 64u

struct opener {
	struct opener *next;
	struct reply_to to;
	uint64_t client_id;
	uint32_t flags; /* META_SESSION_* */
	char host[64], mountpoint[256];
};

/* A session being ended. */
struct victim {
	struct recover *recover;
	uint64_t session;
	bool asked; /* by itself, all its requests answered */
	struct reply_to to; /* if asked */
	struct durable_wait durable;
	struct fan fence;
	uint8_t body[16];
	uint64_t after; /* inodes up to here were asked about */
	struct sweep *sweep;
	uint32_t end_count; /* on the way */
	struct end *ends;
	uint64_t inodes;
};

/* The end of one inode. */
struct end {
	struct victim *victim;
	struct end *next;
	struct cut_wait cut;
	struct fan fan;
	struct meta_attr attr;
	uint8_t body[16];
	uint64_t size, units;
	int64_t mtime_ns;
};

struct recover {
	struct metad *md;
	struct opener *openers;
	uint32_t opener_count;
	struct victim *victim;
	/* The session being opened for openers[0]. */
	struct durable_wait opening;
	uint64_t opened; /* its id, 0: none */
	bool ready; /* see recover_turn() */
};

static void load(struct recover *r);
static void step(struct recover *r);

/* ---- ending ---- */

static void victim_over(struct durable_wait *w)
{
	struct victim *v = container_of(w, struct victim, durable);
	struct recover *r = v->recover;

	diag_info("session", "event=closed session=%" PRIu64 " recovered=%"
		  PRIu64, v->session, v->inodes);
	if (v->asked)
		serve_reply(r->md, &v->to, 0, NULL, 0);
	session_forget(r->md, v->session);
	serve_close_session(r->md, v->session);
	r->victim = NULL;
	free(v);
	load(r);
	step(r);
}

static void victim_finish(struct victim *v)
{
	struct metad *md = v->recover->md;
	struct sm_session_close m = { .session = v->session, .dead = 2 };
	struct sm_reply rep;

	METAD_PROPOSE(md, WIRE_OP_SM_SESSION_CLOSE, sm_session_close, &m, &rep);
	v->durable.fn = victim_over;
	metad_when_durable(md, &v->durable, sm_pos(md->sm));
}

static void swept(void *arg)
{
	struct victim *v = arg;

	v->sweep = NULL;
	victim_finish(v);
}

static void ends_go_on(struct victim *v);

static int end_reply(struct fan *f, uint32_t daemon_id,
		     const struct rpc_frame *frame)
{
	struct end *e = container_of(f, struct end, fan);
	struct blk_end_reply m;

	(void)daemon_id;
	if (blk_end_reply_parse(frame->body, frame->h.body_len, &m) < 0)
		return -EBADMSG;
	/* Nobody can read what lies beyond. */
	e->size = u64_max(e->size, u64_min(m.end, FILE_SIZE_MAX));
	e->units += m.units;
	if (m.mtime_ns > e->mtime_ns)
		e->mtime_ns = m.mtime_ns;
	return 0;
}

static void end_done(struct fan *f)
{
	struct end *e = container_of(f, struct end, fan);
	struct victim *v = e->victim;
	struct end **p = &v->ends;
	struct sm_size_set m = { .ino = e->attr.ino,
				 .size = e->size,
				 .units = e->units,
				 .mtime_ns = e->mtime_ns };
	struct sm_reply r;

	if (e->size > e->attr.size || e->units != e->attr.units ||
	    e->mtime_ns > e->attr.mtime_ns)
		METAD_PROPOSE(v->recover->md, WIRE_OP_SM_SIZE_SET, sm_size_set,
			      &m, &r);
	v->inodes++;
	stats_count(&v->recover->md->stats.recovered_inodes, 1);
	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	v->end_count--;
	free(e);
	ends_go_on(v);
}

static void end_ask(struct end *e)
{
	struct metad *md = e->victim->recover->md;
	struct blk_end m = { .ino = e->attr.ino,
			     .block_log2 = e->attr.block_log2 };
	struct wire_out o;

	wire_out_init(&o, e->body, sizeof(e->body));
	blk_end_encode(&o, &m);
	e->fan.op = WIRE_OP_BLK_END;
	/* Tried for ever; the time-out only makes that be said. */
	e->fan.timeout_ms = END_TRY_MS;
	e->fan.body = e->body;
	e->fan.body_len = (uint32_t)o.len;
	e->fan.reply = end_reply;
	e->fan.done = end_done;
	if (fan_start(md, &e->fan) < 0)
		md->stop(md, "out of memory");
}

static bool end_attr(struct end *e, uint64_t ino)
{
	return sm_inode_list(e->victim->recover->md->sm, ino - 1, &e->attr,
			     1) == 1 && e->attr.ino == ino;
}

static void end_cut_done(struct cut_wait *w, bool dropped)
{
	struct end *e = container_of(w, struct end, cut);

	if (dropped)
		return; /* metad stops, victim_free() takes it */
	/* The cut has changed how many units there are. */
	(void)end_attr(e, e->attr.ino);
	end_ask(e);
}

/* Returns false when there is no memory. */
static bool end_start(struct victim *v, uint64_t ino)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		return false;
	e->victim = v;
	if (!end_attr(e, ino)) {
		free(e); /* cannot be: a leased inode exists */
		return true;
	}
	e->next = v->ends;
	v->ends = e;
	v->end_count++;
	/* A daemon that has yet to cut the file would tell its old end, and
	 * the size that the file was cut to would grow again. Nobody makes
	 * new cuts: the session is fenced. */
	e->cut.fn = end_cut_done;
	if (!cut_any_wait(v->recover->md, ino, &e->cut))
		end_ask(e);
	return true;
}

static void ends_go_on(struct victim *v)
{
	struct metad *md = v->recover->md;
	uint64_t inos[ENDS_MAX];
	size_t count, i;

	count = sm_lease_list(md->sm, v->session, v->after, inos,
			      ENDS_MAX - v->end_count);
	for (i = 0; i < count; i++) {
		v->after = inos[i];
		if (!end_start(v, inos[i])) {
			md->stop(md, "out of memory");
			return;
		}
	}
	if (v->end_count > 0 || v->sweep)
		return;
	/* While others live nothing is answered that is not durable, so there
	 * are no blocks of inodes that were never made; and a sweep could not
	 * tell those of one that is made meanwhile. */
	if (sm_map(md->sm)->session_count > 0) {
		victim_finish(v);
		return;
	}
	v->sweep = sweep_start(md, swept, v);
	if (!v->sweep)
		md->stop(md, "out of memory");
}

static void fence_done(struct fan *f)
{
	struct victim *v = container_of(f, struct victim, fence);

	stats_count(&v->recover->md->stats.fences, 1);
	ends_go_on(v);
}

/* A daemon that does not answer serves nobody once its lease is over, and
 * fetches the map before it serves again. It may be connected all the while:
 * the kernel of one that hangs is awake. */
static bool fence_excused(struct fan *f, uint32_t daemon_id)
{
	return monitor_lease_over(f->md->monitor, daemon_id);
}

static void fence_start(struct victim *v)
{
	struct metad *md = v->recover->md;
	struct blk_fence m = { .session = v->session, .epoch = md->epoch };
	struct wire_out o;

	wire_out_init(&o, v->body, sizeof(v->body));
	blk_fence_encode(&o, &m);
	v->fence.op = WIRE_OP_BLK_FENCE;
	v->fence.body = v->body;
	v->fence.body_len = (uint32_t)o.len;
	v->fence.timeout_ms = FENCE_TRY_MS;
	v->fence.excused = fence_excused;
	v->fence.done = fence_done;
	if (fan_start(md, &v->fence) < 0)
		md->stop(md, "out of memory");
}

static void victim_dead(struct durable_wait *w)
{
	struct victim *v = container_of(w, struct victim, durable);
	struct metad *md = v->recover->md;
	uint64_t ino;

	if (!v->asked)
		serve_close_session(md, v->session);
	/* Who says good-bye has nothing on the way; only if it kept a lease
	 * its word is not taken. */
	if (v->asked &&
	    sm_lease_list(md->sm, v->session, 0, &ino, 1) == 0)
		victim_finish(v);
	else
		fence_start(v);
}

static void victim_start(struct recover *r, uint64_t session,
			 const struct reply_to *asked)
{
	struct metad *md = r->md;
	struct sm_session_close m = { .session = session, .dead = 1 };
	struct victim *v = calloc(1, sizeof(*v));
	struct sm_reply rep;

	if (!v) {
		md->stop(md, "out of memory");
		return;
	}
	v->recover = r;
	v->session = session;
	if (asked) {
		v->asked = true;
		v->to = *asked;
	}
	r->victim = v;
	METAD_PROPOSE(md, WIRE_OP_SM_SESSION_CLOSE, sm_session_close, &m, &rep);
	v->durable.fn = victim_dead;
	metad_when_durable(md, &v->durable, sm_pos(md->sm));
}

/* ---- beginning ---- */

static void opener_pop(struct recover *r)
{
	struct opener *o = r->openers;

	r->openers = o->next;
	r->opener_count--;
	free(o);
}

static void opener_refuse(struct recover *r, const struct sm_session_info *s)
{
	uint8_t buf[4 + sizeof(s->host) + sizeof(s->mountpoint) + 2];
	char text[sizeof(buf) - 4];
	struct meta_blob m;
	struct wire_out o;

	/* An error's body says who has it. */
	(void)snprintf(text, sizeof(text), "%s:%s", s->host, s->mountpoint);
	m.value.p = text;
	m.value.len = (uint32_t)strlen(text);
	wire_out_init(&o, buf, sizeof(buf));
	meta_blob_encode(&o, &m);
	serve_reply_plain(r->md, &r->openers->to, -EBUSY, buf, o.len);
	opener_pop(r);
}

static void opened(struct durable_wait *w)
{
	struct recover *r = container_of(w, struct recover, opening);
	struct metad *md = r->md;
	struct opener *op = r->openers;
	struct conn *c = serve_conn(md, op->to.conn_id);
	struct meta_session_open_reply m = { .session = r->opened,
					     .cluster_id = md->cluster_id,
					     .keepalive_ms = KEEPALIVE_MS,
					     .lease_ms = LEASE_MS };
	uint8_t buf[64];
	struct wire_out o;

	diag_info("session", "event=opened session=%" PRIu64
		  " host=%s mountpoint=%s", r->opened, op->host,
		  op->mountpoint);
	session_alive(md, r->opened);
	session_settle(md, r->opened);
	if (c && c->session == 0) {
		c->session = r->opened;
		(void)session_incarnation(md, WIRE_ROLE_CLIENT, 0, r->opened,
					  c->incarnation);
	}
	op->to.session = r->opened;
	wire_out_init(&o, buf, sizeof(buf));
	meta_session_open_reply_encode(&o, &m);
	serve_reply(md, &op->to, 0, buf, o.len);
	r->opened = 0;
	opener_pop(r);
	step(r);
}

static void open_now(struct recover *r)
{
	struct opener *op = r->openers;
	struct sm_session_open m = {
		.now_ns = metad_realtime_ns(),
		.client_id = op->client_id,
		.host = { op->host, (uint32_t)strlen(op->host) },
		.mountpoint = { op->mountpoint,
				(uint32_t)strlen(op->mountpoint) },
	};
	struct sm_reply rep;
	struct wire_in in;
	struct wire_out o;
	uint8_t buf[512];

	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &m);
	if (op->flags)
		wire_put_u32(&o, op->flags);
	assert(!o.overflow);
	metad_propose(r->md, WIRE_OP_SM_SESSION_OPEN, 0, buf, o.len, &rep);
	if (rep.status != 0) {
		serve_reply(r->md, &op->to, rep.status, NULL, 0);
		opener_pop(r);
		return;
	}
	wire_in_init(&in, rep.body, rep.body_len);
	r->opened = wire_get_u64(&in);
	r->opening.fn = opened;
	metad_when_durable(r->md, &r->opening, sm_pos(r->md->sm));
}

enum way {
	WAY_FREE,
	WAY_MADE, /* what stood in it is being removed, or the opener refused */
	WAY_WAITS,
};

/* What stands in the way of the first opener: dead sessions, its own earlier
 * one, those that do not share; and for a while, after a restart, one that has
 * yet to send again what was lost: it was alone, and was told of it. */
static enum way make_way(struct recover *r)
{
	const struct opener *op = r->openers;
	struct sm_session_info s;
	uint64_t after = 0;

	for (; sm_session_list(r->md->sm, after, &s, 1) == 1;
	     after = s.session) {
		if (s.dead || s.client_id == op->client_id ||
		    session_gone(r->md, s.session)) {
			diag_info("session", "event=replaced session=%" PRIu64
				  " host=%s mountpoint=%s", s.session, s.host,
				  s.mountpoint);
			victim_start(r, s.session, NULL);
			return WAY_MADE;
		}
		if (!s.shared || !(op->flags & META_SESSION_SHARED)) {
			opener_refuse(r, &s);
			return WAY_MADE;
		}
		if (!session_settled(r->md, s.session))
			return WAY_WAITS;
	}
	return WAY_FREE;
}

static void step(struct recover *r)
{
	enum way way = WAY_FREE;

	/* Without memory metad stops, and nobody makes way. */
	while (way != WAY_WAITS && r->ready && !r->victim && !r->opened &&
	       r->openers && !r->md->stopping) {
		if (!serve_conn(r->md, r->openers->to.conn_id)) {
			opener_pop(r);
			continue;
		}
		way = make_way(r);
		if (way == WAY_FREE)
			open_now(r);
	}
}

void recover_open(struct metad *md, const struct reply_to *to,
		  const struct meta_session_open *m, uint32_t flags)
{
	struct recover *r = md->recover;
	struct opener *o, **p = &r->openers;

	o = r->opener_count < OPENERS_MAX ? calloc(1, sizeof(*o)) : NULL;
	if (!o) {
		serve_reply(md, to, -EAGAIN, NULL, 0);
		return;
	}
	o->to = *to;
	o->client_id = m->client_id;
	o->flags = flags;
	(void)snprintf(o->host, sizeof(o->host), "%.*s",
		       (int)u64_min(m->host.len, sizeof(o->host)),
		       (const char *)m->host.p);
	(void)snprintf(o->mountpoint, sizeof(o->mountpoint), "%.*s",
		       (int)u64_min(m->mountpoint.len, sizeof(o->mountpoint)),
		       (const char *)m->mountpoint.p);
	while (*p)
		p = &(*p)->next;
	*p = o;
	r->opener_count++;
	step(r);
}

void recover_close(struct metad *md, const struct reply_to *to)
{
	struct recover *r = md->recover;

	if (r->victim)
		serve_reply(md, to, r->victim->session == to->session ?
					    -ESTALE : -EAGAIN, NULL, 0);
	else
		victim_start(r, to->session, to);
}

int recover_evict(struct metad *md, uint64_t session, const char *why)
{
	struct recover *r = md->recover;

	if (r->victim || !r->ready || md->stopping)
		return -EAGAIN;
	diag_warn("session", "event=evicted session=%" PRIu64 " why=\"%s\"",
		  session, why);
	victim_start(r, session, NULL);
	return 0;
}

uint64_t recover_session(const struct metad *md)
{
	return md->recover->victim ? md->recover->victim->session : 0;
}

/* ---- life ---- */

int recover_new(struct metad *md, struct recover **ret)
{
	struct recover *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->md = md;
	*ret = r;
	return 0;
}

/* Goes on with what the process before this one began. */
static void load(struct recover *r)
{
	struct sm_session_info s;
	uint64_t after = 0;

	while (!r->victim && sm_session_list(r->md->sm, after, &s, 1) == 1) {
		after = s.session;
		if (s.dead)
			victim_start(r, s.session, NULL);
	}
}

void recover_turn(struct recover *r)
{
	bool ready = r->md->serving &&
		     (r->ready || monitor_settled(r->md->monitor));

	if (ready != r->ready) {
		r->ready = ready;
		if (ready)
			load(r);
	}
	step(r); /* who waited for a session may have heard of it */
}

static void victim_free(struct victim *v)
{
	struct end *e, *next;

	for (e = v->ends; e; e = next) {
		next = e->next;
		fan_drop(&e->fan);
		free(e);
	}
	fan_drop(&v->fence);
	sweep_free(v->sweep);
	free(v);
}

void recover_free(struct recover *r)
{
	if (!r)
		return;
	while (r->openers)
		opener_pop(r);
	if (r->victim)
		victim_free(r->victim);
	free(r);
}
