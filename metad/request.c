/* Requests of clients, daemons and tools. */
#include "metad/request.h"

#include <linux/fs.h>

#include "common/diag.h"
#include "common/proto.h"
#include "metad/admin.h"
#include "metad/cut.h"
#include "metad/group.h"
#include "metad/lock.h"
#include "metad/log_peers.h"
#include "metad/monitor.h"
#include "metad/repair.h"
#include "metad/room.h"
#include "metad/session.h"
#include "metad/want.h"

/* A reply, or a request to be run again, that waits. */
struct held {
	struct durable_wait durable;
	struct cut_wait cut;
	struct metad *md;
	struct reply_to to;
	uint64_t pos; /* to wait for after the cut */
	uint64_t ino; /* attributes to read afresh; 0: none */
	int status;
	uint32_t len;
	uint8_t body[];
};

static struct held *held_new(struct metad *md, const struct reply_to *to,
			     int status, const void *body, size_t len)
{
	struct held *w = malloc(sizeof(*w) + len);
	struct conn *c = serve_conn(md, to->conn_id);

	if (!w)
		return NULL;
	memset(w, 0, sizeof(*w));
	w->md = md;
	w->to = *to;
	w->cut.conn_id = to->conn_id;
	w->status = status;
	w->len = (uint32_t)len;
	if (len)
		memcpy(w->body, body, len);
	if (c)
		c->held++;
	stats_count(&md->stats.held, 1);
	return w;
}

static void held_free(struct held *w)
{
	struct conn *c = serve_conn(w->md, w->to.conn_id);

	if (c)
		c->held--;
	free(w);
}

/* ---- replies that wait for durability ---- */

static void held_reply(struct durable_wait *d)
{
	struct held *w = container_of(d, struct held, durable);

	serve_reply(w->md, &w->to, w->status, w->body, w->len);
	held_free(w);
}

void request_reply_at(struct metad *md, const struct reply_to *to, uint64_t pos,
		      int status, const void *body, size_t len)
{
	struct held *w;

	if (pos <= metad_durable(md)) {
		serve_reply(md, to, status, body, len);
		return;
	}
	w = held_new(md, to, status, body, len);
	if (!w) {
		struct conn *c = serve_conn(md, to->conn_id);

		if (c)
			serve_conn_close(c);
		return;
	}
	w->durable.fn = held_reply;
	metad_when_durable(md, &w->durable, pos);
}

/* ---- requests that run again ---- */

static void held_run_durable(struct durable_wait *d);

static void held_run(struct held *w)
{
	struct request r = { .md = w->md,
			     .conn = serve_conn(w->md, w->to.conn_id),
			     .to = w->to,
			     .body = w->body,
			     .body_len = w->len };

	/* What was certain when it came need not be any more. */
	if (r.conn && !metaraft_confirmed(w->md->raft)) {
		w->durable.fn = held_run_durable;
		w->durable.next = w->md->unsure;
		w->md->unsure = &w->durable;
		return;
	}
	if (r.conn)
		request_run(&r);
	held_free(w);
}

void request_turn(struct metad *md)
{
	struct durable_wait *w, *list = md->unsure;

	if (!list || !metaraft_confirmed(md->raft))
		return;
	md->unsure = NULL;
	while ((w = list)) {
		list = w->next;
		md->activity++;
		w->fn(w);
	}
}

static bool is_held(const struct durable_wait *w)
{
	return w->fn == held_reply || w->fn == held_run_durable;
}

/* Others' waits are part of what they free themselves. */
static void drop(struct durable_wait *w)
{
	struct durable_wait *next;

	for (; w; w = next) {
		next = w->next;
		if (is_held(w))
			held_free(container_of(w, struct held, durable));
	}
}

void request_drop(struct metad *md)
{
	drop(md->durable_waits);
	drop(md->unsure);
	md->durable_waits = md->unsure = NULL;
}

static void held_run_cut(struct cut_wait *c, bool dropped)
{
	struct held *w = container_of(c, struct held, cut);

	if (dropped)
		held_free(w);
	else
		held_run(w);
}

static void held_run_durable(struct durable_wait *d)
{
	held_run(container_of(d, struct held, durable));
}

/* ---- queries ---- */

/* The inode a reply shows attributes of; 0: none. */
static uint64_t shown_ino(uint16_t op, const struct sm_reply *r)
{
	struct wire_in in;

	if (r->status != 0)
		return 0;
	switch (op) {
	case WIRE_OP_META_LOOKUP:
	case WIRE_OP_META_GETATTR:
	case WIRE_OP_META_CREATE:
	case WIRE_OP_META_LINK:
	case WIRE_OP_META_SETATTR:
	case WIRE_OP_META_LEASE:
		wire_in_init(&in, r->body, r->body_len);
		return wire_get_u64(&in); /* meta_attr starts with it */
	default:
		return 0;
	}
}

/* The first inode of a directory page with attributes that is being cut by
 * another session; 0: none. The request runs again when that is done, and finds
 * the next. */
static uint64_t page_cut_ino(struct request *q, const struct sm_reply *r)
{
	struct meta_readdir_reply page;
	struct meta_dirent e;
	struct meta_attr a;
	struct meta_readdir m;
	struct wire_in in;
	uint32_t i;

	if (r->status != 0 || !cut_count(q->md) ||
	    meta_readdir_parse(q->body, q->body_len, &m) < 0 || !m.plus ||
	    meta_readdir_reply_parse(r->body, r->body_len, &page) < 0)
		return 0;
	wire_in_init(&in, page.entries.p, page.entries.len);
	for (i = 0; i < page.count && !in.bad; i++) {
		meta_dirent_decode(&in, &e);
		meta_attr_decode(&in, &a);
		if (cut_foreign(q->md, a.ino, q->to.session))
			return a.ino;
	}
	return 0;
}

/* Answers with what the query @op of @body says. */
static void query_as(struct request *q, uint16_t op, const void *body,
		     size_t len)
{
	struct metad *md = q->md;
	struct sm_reply r;
	struct held *w;
	uint64_t ino;

	stats_count(&md->stats.queries, 1);
	sm_query(md->sm, op, q->to.session, body, len, &r);
	ino = op == WIRE_OP_META_READDIR ? page_cut_ino(q, &r) :
					   shown_ino(op, &r);
	if (ino && cut_pending(md, ino)) {
		w = held_new(md, &q->to, 0, q->body, q->body_len);
		if (!w) {
			serve_reply(md, &q->to, -ENOMEM, NULL, 0);
			return;
		}
		w->cut.fn = held_run_cut;
		if (cut_foreign_wait(md, ino, q->to.session, &w->cut))
			return;
		held_free(w);
	}
	request_reply_at(md, &q->to, metad_foreign_pos(md, q->to.session),
			 r.status, r.body, r.body_len);
}

static void run_query(struct request *q)
{
	query_as(q, q->to.op, q->body, q->body_len);
}

void request_attr(struct request *q, uint64_t ino)
{
	struct meta_ino m = { .ino = ino };
	uint8_t body[8];
	struct wire_out o;

	wire_out_init(&o, body, sizeof(body));
	meta_ino_encode(&o, &m);
	query_as(q, WIRE_OP_META_GETATTR, body, o.len);
}

static void send_map(struct request *q)
{
	struct metad *md = q->md;
	const struct cmap *map = sm_map(md->sm);
	size_t len = cmap_encoded_size(map);
	struct wire_out o;
	struct held *w;
	uint8_t *buf;

	if (md->map_pos > metad_durable(md)) {
		w = held_new(md, &q->to, 0, q->body, q->body_len);
		if (w) {
			w->durable.fn = held_run_durable;
			metad_when_durable(md, &w->durable, md->map_pos);
			return;
		}
	}
	buf = malloc(len + 4);
	if (!buf) {
		serve_reply(md, &q->to, -ENOMEM, NULL, 0);
		return;
	}
	wire_out_init(&o, buf, len + 4);
	wire_put_u32(&o, (uint32_t)len);
	cmap_encode(&o, map);
	assert(!o.overflow);
	serve_reply(md, &q->to, 0, buf, o.len);
	free(buf);
}

static void run_sync(struct request *q)
{
	struct meta_sync m;

	if (meta_sync_parse(q->body, q->body_len, &m) < 0) {
		serve_reply(q->md, &q->to, -EBADMSG, NULL, 0);
		return;
	}
	stats_count(&q->md->stats.syncs, 1);
	/* A position of before a restart may be larger than what there is; all
	 * that was sent again has been executed by now. */
	request_reply_at(q->md, &q->to, u64_min(m.pos, sm_pos(q->md->sm)), 0,
			 NULL, 0);
}

/* ---- mutations ---- */

/* The cut is done: the reply may go when it is durable. */
static void held_cut_done(struct cut_wait *c, bool dropped)
{
	struct held *w = container_of(c, struct held, cut);
	struct meta_ino m = { .ino = w->ino };
	struct sm_reply r;
	struct wire_out o;
	uint8_t buf[8];

	if (!dropped && w->ino) {
		/* Only now it is known how much was freed. The attributes are
		 * of fixed size and come first. */
		wire_out_init(&o, buf, sizeof(buf));
		meta_ino_encode(&o, &m);
		sm_query(w->md->sm, WIRE_OP_META_GETATTR, w->to.session, buf,
			 o.len, &r);
		if (r.status == 0 && r.body_len <= w->len)
			memcpy(w->body, r.body, r.body_len);
		/* That it is done, too, or the next process counts the file's
		 * units (cut.c) while the client goes on to allocate. */
		if (w->to.op == WIRE_OP_META_CUT)
			w->pos = sm_pos(w->md->sm);
	}
	if (dropped) {
		held_free(w);
		return;
	}
	w->durable.fn = held_reply;
	metad_when_durable(w->md, &w->durable, w->pos);
}

/* Answers after a cut: the one that the request made, or one that must be over
 * before what it was granted may be used. */
static void reply_after_cut(struct request *q, const struct sm_reply *r,
			    uint64_t pos)
{
	struct metad *md = q->md;
	uint64_t owner = q->to.op == WIRE_OP_META_CUT ? q->to.session : 0;
	uint64_t ino = r->cut_ino, cut = r->cut_job;
	struct held *w = held_new(md, &q->to, 0, r->body, r->body_len);

	if (w) {
		w->ino = ino;
		w->pos = pos;
		w->cut.fn = held_cut_done;
		if (cut_add(md, ino, cut, owner, &w->cut) == 0)
			return;
		held_free(w);
	}
	/* It is executed; the client asks again and finds it. */
	serve_conn_close(q->conn);
}

static bool makes_whiteout(const struct request *q)
{
	struct meta_rename m;
	struct meta_mhdr h;
	struct wire_in in;

	wire_in_init(&in, q->body, q->body_len);
	meta_mhdr_decode(&in, &h);
	return !in.bad && meta_rename_parse(in.p, in.len, &m) == 0 &&
	       (m.flags & RENAME_WHITEOUT);
}

/* What was answered once must be executed again after a restart: only what is
 * sent for the first time can be refused. */
static bool no_room_for(const struct request *q)
{
	if (!room_full(q->md->room) || q->resent)
		return false;
	switch (q->to.op) {
	case WIRE_OP_META_CREATE:
	case WIRE_OP_META_LINK:
	case WIRE_OP_META_SETXATTR:
		return true;
	case WIRE_OP_META_RENAME:
		return makes_whiteout(q);
	default:
		return false;
	}
}

/* An inode that @r says has lost its last name; 0: none. */
static uint64_t nameless(uint16_t op, const struct sm_reply *r)
{
	struct meta_unlink_reply u;
	struct meta_rename_reply m;

	if (r->status != 0 || r->replayed)
		return 0;
	if (op == WIRE_OP_META_UNLINK &&
	    meta_unlink_reply_parse(r->body, r->body_len, &u) == 0)
		return u.nlink == 0 ? u.ino : 0;
	if (op == WIRE_OP_META_RENAME &&
	    meta_rename_reply_parse(r->body, r->body_len, &m) == 0)
		return m.replaced_nlink == 0 ? m.replaced : 0;
	return 0;
}

/* Must it be durable before it is told? What a cut does to blocks cannot be
 * undone; log daemons remember an epoch, which must not be given twice, and
 * free what a list does not have. */
static bool is_told_late(uint16_t op)
{
	return op == WIRE_OP_META_CUT || op == WIRE_OP_META_LOG_SET ||
	       op == WIRE_OP_META_LOG_RAISE || op == WIRE_OP_META_LOG_DROP ||
	       op == WIRE_OP_META_LOG_LOSE;
}

static void run_mutation(struct request *q)
{
	struct metad *md = q->md;
	struct sm_reply r;
	uint64_t pos = 0, ino;
	struct held *w;

	stats_count(&md->stats.mutations, 1);
	if (no_room_for(q)) {
		stats_count(&md->stats.no_room, 1);
		request_reply_at(md, &q->to, 0, -ENOSPC, NULL, 0);
		return;
	}
	metad_propose(md, q->to.op, q->to.session, q->body, q->body_len, &r);
	if (r.replayed)
		stats_count(&md->stats.replays, 1);
	pos = metad_foreign_pos(md, q->to.session);
	/* Alone, a session that was told what is lost with this process does
	 * it again; of several the order would not be the same. */
	if (r.status == 0 && (is_told_late(q->to.op) ||
			      sm_map(md->sm)->session_count > 1))
		pos = u64_max(pos, r.pos);
	ino = nameless(q->to.op, &r);
	if (ino)
		wants_orphan(md, ino, q->to.session);
	if (r.status == 0 && r.cut_job) {
		reply_after_cut(q, &r, pos);
		return;
	}
	ino = shown_ino(q->to.op, &r);
	if (ino && cut_pending(md, ino)) {
		w = held_new(md, &q->to, r.status, r.body, r.body_len);
		if (!w) {
			serve_conn_close(q->conn);
			return;
		}
		w->pos = pos;
		w->cut.fn = held_cut_done;
		if (cut_foreign_wait(md, ino, q->to.session, &w->cut))
			return;
		held_free(w);
	}
	request_reply_at(md, &q->to, pos, r.status, r.body, r.body_len);
}

/* Who waited for what it gives up is served. */
static void run_lock(struct request *q)
{
	uint64_t freed = sm_locks_freed(q->md->sm);

	run_mutation(q);
	lock_waits_changed(q->md, q, freed);
}

/* ---- the table ---- */

static void run_ping(struct request *q)
{
	serve_reply_plain(q->md, &q->to, 0, NULL, 0);
}

#define ROLE(r) (1u << (r))
#define CLIENT ROLE(WIRE_ROLE_CLIENT)
#define BLOCKD ROLE(WIRE_ROLE_BLOCKD)
#define METAD ROLE(WIRE_ROLE_METAD)
#define ADMIN ROLE(WIRE_ROLE_ADMIN)
#define LOGD ROLE(WIRE_ROLE_LOGD)
#define ANY (CLIENT | BLOCKD | METAD | ADMIN | LOGD)
/* Each metad of a group answers it, whoever leads. */
#define EACH 0x80u

static const struct op_info {
	uint16_t op;
	uint8_t roles; /* ROLE()s, EACH */
	bool session; /* a client must have a live one */
	void (*run)(struct request *q);
} ops[] = {
	{ WIRE_OP_PING, ANY | EACH, false, run_ping },
	{ WIRE_OP_ADMIN_STATUS, ADMIN | EACH, false, admin_status },
	{ WIRE_OP_ADMIN_STATS, ADMIN | EACH, false, admin_stats },
	{ WIRE_OP_META_RAFT, METAD | EACH, false, transport_run },
	{ WIRE_OP_META_MEMBER, METAD | EACH, false, group_member_run },
	{ WIRE_OP_ADMIN_INODES, ADMIN, false, admin_inodes },
	{ WIRE_OP_ADMIN_BACKUP, ADMIN, false, admin_backup },
	{ WIRE_OP_ADMIN_SESSIONS, ADMIN, false, admin_sessions },
	{ WIRE_OP_ADMIN_STOP, ADMIN | EACH, false, admin_stop },
	{ WIRE_OP_ADMIN_GIVE_UP, ADMIN, false, admin_give_up },
	{ WIRE_OP_ADMIN_EVICT, ADMIN, false, admin_evict },
	{ WIRE_OP_ADMIN_LOCKS, ADMIN, false, admin_locks },
	{ WIRE_OP_ADMIN_LEASES, ADMIN, false, admin_leases },
	{ WIRE_OP_ADMIN_REPAIR, ADMIN, false, repair_run },
	{ WIRE_OP_ADMIN_METAD, ADMIN, false, member_run },
	{ WIRE_OP_META_SESSION_OPEN, CLIENT, false, session_open },
	{ WIRE_OP_META_SESSION_CLOSE, CLIENT, true, session_close },
	{ WIRE_OP_META_KEEPALIVE, CLIENT, true, session_keepalive },
	{ WIRE_OP_META_MAP_GET, ANY, false, send_map },
	{ WIRE_OP_META_LOOKUP, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_GETATTR, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_READDIR, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_READLINK, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_GETXATTR, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_LISTXATTR, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_STATFS, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_LOG_LIST, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_LOG_OPTS, CLIENT | ADMIN, true, run_query },
	{ WIRE_OP_META_LOG_PEERS, CLIENT | ADMIN, true, log_peers_query },
	{ WIRE_OP_META_WANT, CLIENT, true, want_run },
	{ WIRE_OP_META_EVENTS, CLIENT, true, events_run },
	{ WIRE_OP_META_LOCK_WAIT, CLIENT, true, lock_wait_run },
	{ WIRE_OP_META_LOCK_CANCEL, CLIENT, true, lock_cancel_run },
	{ WIRE_OP_META_LOCK_GET, CLIENT, true, run_query },
	{ WIRE_OP_META_SYNC, CLIENT | ADMIN, true, run_sync },
	{ WIRE_OP_META_REGISTER, BLOCKD, false, monitor_register },
	{ WIRE_OP_META_HEARTBEAT, BLOCKD, false, monitor_heartbeat },
	{ WIRE_OP_META_LOG_REGISTER, LOGD, false, log_peers_register },
	{ WIRE_OP_META_LOG_HEARTBEAT, LOGD, false, log_peers_heartbeat },
	{ WIRE_OP_META_CREATE, CLIENT, true, run_mutation },
	{ WIRE_OP_META_UNLINK, CLIENT, true, run_mutation },
	{ WIRE_OP_META_RENAME, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LINK, CLIENT, true, run_mutation },
	{ WIRE_OP_META_SETATTR, CLIENT, true, run_mutation },
	{ WIRE_OP_META_SETXATTR, CLIENT, true, run_mutation },
	{ WIRE_OP_META_REMOVEXATTR, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LEASE, CLIENT, true, run_mutation },
	{ WIRE_OP_META_RETURN, CLIENT, true, run_mutation },
	{ WIRE_OP_META_CUT, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOG_SET, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOG_RAISE, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOG_DROP, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOG_LOSE, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOG_HEIR, CLIENT, true, run_mutation },
	{ WIRE_OP_META_LOCK, CLIENT, true, run_lock },
};

static const struct op_info *op_find(uint16_t op)
{
	size_t i;

	for (i = 0; i < array_count(ops); i++)
		if (ops[i].op == op)
			return &ops[i];
	return NULL;
}

void request_run(struct request *r)
{
	const struct op_info *info = op_find(r->to.op);

	assert(info); /* validate() found it before */
	info->run(r);
}

/* ---- judging ---- */

/* The role that a HELLO says; 0: none. */
static uint8_t hello_role(const struct frame *f)
{
	struct hello m;

	return f->h.opcode == WIRE_OP_HELLO &&
			       hello_parse(f->body, f->h.body_len, &m) == 0 ?
		       m.role :
		       0;
}

/* Is there but one metad that may answer, the one that leads? */
static bool is_leaders(const struct conn *c, const struct frame *f)
{
	const struct op_info *info;
	uint8_t role;

	if (!c->hello) {
		role = hello_role(f);
		return role == WIRE_ROLE_CLIENT || role == WIRE_ROLE_BLOCKD ||
		       role == WIRE_ROLE_LOGD;
	}
	info = op_find(f->h.opcode);
	return info && !(info->roles & EACH);
}

bool request_must_wait(const struct conn *c, const struct frame *f)
{
	return c->md->leading && is_leaders(c, f) &&
	       !metaraft_confirmed(c->md->raft);
}

/* Everything that can be told without the state. Returns 0 and *ret; else what
 * to answer. */
static int validate(const struct conn *c, const struct frame *f,
		    const struct op_info **ret)
{
	const struct op_info *info = op_find(f->h.opcode);

	if (!info)
		return -EOPNOTSUPP;
	if (!(info->roles & ROLE(c->role)))
		return -EPERM;
	if (info->run == run_query || info->run == run_mutation ||
	    info->run == run_lock) {
		int rv = sm_validate(f->h.opcode, f->body, f->h.body_len);

		if (rv < 0)
			return rv;
	}
	*ret = info;
	if (c->role != WIRE_ROLE_CLIENT || !info->session)
		return 0;
	if (f->h.session == 0 || f->h.session != c->session ||
	    !cmap_session_live(sm_map(c->md->sm), f->h.session))
		return -ESTALE;
	return 0;
}

/* Only a client has one: what is remembered of others is bounded. */
static uint64_t hello_session(const struct frame *f, const struct hello *m)
{
	return m->role == WIRE_ROLE_CLIENT ? f->h.session : 0;
}

static int hello_judge(struct conn *c, const struct frame *f,
		       const struct hello *m)
{
	struct metad *md = c->md;

	if (f->h.cluster_id != md->cluster_id &&
	    !(f->h.cluster_id == 0 && m->role == WIRE_ROLE_ADMIN))
		return -EXDEV;
	if (m->role < WIRE_ROLE_CLIENT || m->role > WIRE_ROLE_LOGD)
		return -EINVAL;
	if (m->role == WIRE_ROLE_CLIENT && f->h.session &&
	    !cmap_session_live(sm_map(md->sm), f->h.session))
		return -ESTALE;
	if (m->role == WIRE_ROLE_BLOCKD &&
	    cmap_find_daemon(sm_map(md->sm), m->peer_id) < 0)
		return -ENOENT;
	if (m->role == WIRE_ROLE_METAD &&
	    !conf_find(md->conf->metads, md->conf->metad_count, m->peer_id))
		return -ENOENT;
	if (m->role == WIRE_ROLE_LOGD &&
	    !conf_find(md->conf->logds, md->conf->logd_count, m->peer_id))
		return -ENOENT;
	return session_incarnation(md, m->role, m->peer_id,
				   hello_session(f, m), m->incarnation);
}

/* Returns 0; -EPROTONOSUPPORT, and it was said; -EBADMSG. */
static int hello_proto(const struct conn *c, const struct hello *m)
{
	struct proto_offer ours = proto_ours(), theirs = proto_of_hello(m);
	char text[PROTO_TEXT_SIZE];
	struct proto both;
	int rv = proto_agree(&ours, &theirs, &both);

	if (rv == -EPROTONOSUPPORT)
		serve_other_version(c, proto_text(&theirs, text));
	return rv;
}

static int run_hello(struct conn *c, const struct frame *f,
		     const struct reply_to *to)
{
	struct metad *md = c->md;
	struct hello m;
	struct hello_reply r = serve_hello_reply(md);
	uint8_t buf[128];
	struct wire_out o;
	int rv = hello_parse(f->body, f->h.body_len, &m);

	if (rv < 0)
		return rv;
	wire_out_init(&o, buf, sizeof(buf));
	hello_reply_encode(&o, &r);
	rv = hello_proto(c, &m);
	if (rv == -EPROTONOSUPPORT) {
		serve_reply_plain(md, to, rv, buf, o.len);
		serve_conn_close(c);
		return 0;
	}
	if (rv < 0)
		return rv;
	if (!md->leading && is_leaders(c, f)) {
		serve_reply_plain(md, to, -EREMCHG, NULL, 0);
		serve_conn_close(c);
		return 0;
	}
	/* Until the counters are raised (restore) clients try again. */
	if (m.role == WIRE_ROLE_CLIENT && !md->serving)
		return -EAGAIN;
	rv = hello_judge(c, f, &m);
	if (rv < 0) {
		stats_count(&md->stats.refused, 1);
		diag_warn("serve", "event=refused peer=%s role=%u session=%llu "
			  "error=\"%s\"", c->peer, m.role,
			  (unsigned long long)f->h.session, strerror(-rv));
		serve_reply_plain(md, to, rv, NULL, 0);
		serve_conn_close(c);
		return 0;
	}
	c->hello = true;
	c->role = m.role;
	c->peer_id = m.peer_id;
	c->session = hello_session(f, &m);
	c->incarnation = m.incarnation;
	(void)snprintf(c->name, sizeof(c->name), "%.*s",
		       (int)u64_min(m.name.len, sizeof(c->name) - 1),
		       (const char *)m.name.p);
	if (m.role == WIRE_ROLE_CLIENT && c->session)
		session_connected(md, c->session);
	serve_reply_plain(md, to, 0, buf, o.len);
	return 0;
}

int request_frame(struct conn *c, const struct frame *f)
{
	struct request r = { .md = c->md,
			     .conn = c,
			     .to = { .conn_id = c->id,
				     .request_id = f->h.request_id,
				     .session = f->h.session,
				     .op = f->h.opcode },
			     .epoch = f->h.epoch,
			     .resent = (f->h.flags & WIRE_F_RESENT) != 0,
			     .body = f->body,
			     .body_len = f->h.body_len };
	const struct op_info *info = NULL;
	int rv;

	stats_count(&c->md->stats.requests, 1);
	if ((f->h.flags & WIRE_F_REPLY) || f->h.status != 0 || f->h.data_len)
		return -EBADMSG;
	if (!c->hello)
		return f->h.opcode == WIRE_OP_HELLO ?
			       run_hello(c, f, &r.to) :
			       -EBADMSG;
	if (f->h.cluster_id != c->md->cluster_id &&
	    !(f->h.cluster_id == 0 && c->role == WIRE_ROLE_ADMIN))
		return -EBADMSG;
	rv = !c->md->leading && is_leaders(c, f) ? -EREMCHG :
						   validate(c, f, &info);
	if (rv < 0) {
		serve_reply_plain(c->md, &r.to, rv, NULL, 0);
		return 0;
	}
	if (info->session && c->session)
		session_alive(c->md, c->session);
	info->run(&r);
	return 0;
}

void request_conn_gone(struct conn *c)
{
	struct metad *md = c->md;

	if (md->cuts)
		cut_waits_drop(md, c->id);
	if (md->wants)
		wants_conn_gone(md, c->id);
	if (md->lock_waits)
		lock_waits_conn_gone(md, c->id);
	if (md->group)
		transport_conn_gone(group_transport(md->group), c->id);
	admin_conn_gone(c);
}
