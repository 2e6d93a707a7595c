/* The mini metad: one thread, poll(2), the real state machine. */
#include "tests/lib/mini_metad.h"

#include "common/crc32c.h"
#include "common/frame_in.h"
#include "common/status.h"
#include "common/wire_blk.h"
#include "tests/lib/fail_malloc.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNS_MAX 64u
/* More creations than a test loses at a time. */
#define SWEEP_INODES 256u

/* For what a test cannot go on without; unlike must(), also for effects. */
static void must(bool ok)
{
	if (!ok)
		abort();
}

struct mini_conn {
	struct mini_conn *next;
	uint64_t id;
	int fd;
	bool hello, closing;
	uint64_t session;
	struct frame_in in;
};

/* A command that changed the state: what a restart replays. */
struct mini_log {
	uint16_t op;
	uint64_t session, pos;
	uint8_t *body;
	uint32_t len;
};

/* A reply that waits: for durability, or for the test. */
struct mini_held {
	struct mini_held *next;
	uint64_t conn_id;
	struct wire_header h; /* of the request */
	uint64_t pos; /* to be durable */
	uint64_t cut_ino, cut;
	bool sync;
	uint8_t *body; /* after the rhdr */
	uint32_t len;
};

struct mini_metad {
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	struct mini_metad_options o;
	struct sm *sm;
	struct mini_conn *conns;
	uint64_t next_conn, boot_id, durable;
	int listen_fd, event_fd;
	uint16_t port;
	bool stop, hold;
	struct mini_log *log;
	size_t log_len, log_cap;
	struct mini_held *waiting, *kept; /* for durability; for the test */
	struct mini_held *kept_alive; /* the same of keepalives */
	uint16_t lose_op, hold_op, fail_op;
	int lose_count, fail_err, fail_count;
	bool hold_replies, hold_keepalives;
	uint64_t executed[256], received[256];
	uint32_t purges;
	char status[16384];
	struct conf conf;
	struct conf_daemon metad, blockds[MINI_METAD_BLOCKD_MAX];
};

#define MINI_CLUSTER_ID 0x6d696e69u

/* ---- the state machine ---- */

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void log_add(struct mini_metad *m, uint16_t op, uint64_t session,
		    const void *body, uint32_t len)
{
	if (m->log_len == m->log_cap) {
		m->log_cap = m->log_cap ? 2 * m->log_cap : 1024;
		m->log = realloc(m->log, m->log_cap * sizeof(*m->log));
		must(m->log);
	}
	struct mini_log *e = &m->log[m->log_len++];
	*e = (struct mini_log){ .op = op, .session = session, .len = len };
	e->pos = sm_pos(m->sm);
	e->body = malloc(len ? len : 1);
	must(e->body);
	if (len)
		memcpy(e->body, body, len);
}

static void apply(struct mini_metad *m, uint16_t op, uint64_t session,
		  const void *body, size_t len, struct sm_reply *r)
{
	uint64_t before = sm_pos(m->sm);
	sm_apply(m->sm, op, session, body, len, r);
	if (sm_pos(m->sm) != before)
		log_add(m, op, session, body, (uint32_t)len);
}

static void bootstrap(struct mini_metad *m)
{
	struct cmap *map = cmap_new();
	struct sm_reply r;
	struct wire_out o;
	must(map);
	map->cluster_id = MINI_CLUSTER_ID;
	map->replica_count = 1;
	for (uint32_t i = 0; i < m->o.blockd_count; i++) {
		struct cmap_daemon d = {
			.id = i + 1, .port = m->o.blockd_ports[i],
			.store_id_lo = i + 1, .state = CMAP_STATE_UP,
		};
		snprintf(d.addr, sizeof(d.addr), "127.0.0.1");
		must(cmap_add_daemon(map, &d) >= 0);
	}
	if (m->o.blockd_count)
		cmap_fill_slots(map);
	size_t map_len = cmap_encoded_size(map);
	uint8_t *buf = malloc(map_len), *body;
	must(buf);
	wire_out_init(&o, buf, map_len);
	cmap_encode(&o, map);
	struct sm_bootstrap b = { .now_ns = now_ns(), .mode = 0755,
				  .map = { buf, (uint32_t)o.len } };
	size_t len = sm_bootstrap_size(&b);
	body = malloc(len);
	must(body);
	wire_out_init(&o, body, len);
	sm_bootstrap_encode(&o, &b);
	must(sm_validate(WIRE_OP_SM_BOOTSTRAP, body, len) == 0);
	apply(m, WIRE_OP_SM_BOOTSTRAP, 0, body, len, &r);
	must(r.status == 0);
	m->durable = sm_pos(m->sm);
	free(body);
	free(buf);
	cmap_free(map);
}

/* Back to what was durable. */
static void lose_suffix(struct mini_metad *m)
{
	size_t keep = 0;
	sm_free(m->sm);
	m->sm = sm_new();
	must(m->sm);
	while (keep < m->log_len && m->log[keep].pos <= m->durable) {
		struct mini_log *e = &m->log[keep++];
		struct sm_reply r;
		sm_apply(m->sm, e->op, e->session, e->body, e->len, &r);
		must(sm_pos(m->sm) == e->pos);
	}
	for (size_t i = keep; i < m->log_len; i++)
		free(m->log[i].body);
	m->log_len = keep;
}

/* ---- connections ---- */

static struct mini_conn *conn_find(struct mini_metad *m, uint64_t id)
{
	for (struct mini_conn *c = m->conns; c; c = c->next)
		if (c->id == id && !c->closing)
			return c;
	return NULL;
}

static void conn_close(struct mini_conn *c)
{
	if (!c->closing)
		shutdown(c->fd, SHUT_RDWR);
	c->closing = true;
}

static void conns_reap(struct mini_metad *m)
{
	struct mini_conn **p = &m->conns;
	while (*p) {
		struct mini_conn *c = *p;
		if (!c->closing) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		close(c->fd);
		frame_in_fini(&c->in);
		free(c);
	}
}

static void conn_write(struct mini_conn *c, const uint8_t *p, size_t len)
{
	while (len > 0 && !c->closing) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			conn_close(c);
			return;
		}
		p += n;
		len -= (size_t)n;
	}
}

/* @prefix: with the rhdr of now. */
static void frame_send(struct mini_metad *m, struct mini_conn *c,
		       const struct wire_header *q, int status, bool prefix,
		       const void *body, uint32_t len)
{
	uint32_t pre = prefix && status == 0 ? 24 : 0;
	uint32_t body_len = status ? 0 : pre + len;
	uint8_t *buf = malloc(WIRE_HEADER_SIZE + body_len);
	struct wire_out o;
	must(buf);
	if (pre) {
		struct meta_rhdr r = { m->boot_id, sm_pos(m->sm), m->durable };
		wire_out_init(&o, buf + WIRE_HEADER_SIZE, pre);
		meta_rhdr_encode(&o, &r);
	}
	if (body_len > pre)
		memcpy(buf + WIRE_HEADER_SIZE + pre, body, len);
	struct wire_header h = {
		.version = WIRE_VERSION, .opcode = q->opcode,
		.flags = WIRE_F_REPLY, .status = status_to_wire(status),
		.request_id = q->request_id, .cluster_id = MINI_CLUSTER_ID,
		.epoch = sm_map(m->sm)->epoch, .session = q->session,
		.body_len = body_len,
		.body_crc = crc32c(0, buf + WIRE_HEADER_SIZE, body_len),
	};
	wire_header_encode(&h, buf);
	conn_write(c, buf, WIRE_HEADER_SIZE + body_len);
	free(buf);
}

static struct mini_held *held_new(uint64_t conn_id, const struct wire_header *h,
				  const void *body, uint32_t len)
{
	struct mini_held *w = calloc(1, sizeof(*w));
	must(w);
	w->conn_id = conn_id;
	w->h = *h;
	w->len = len;
	w->body = malloc(len ? len : 1);
	must(w->body);
	if (len)
		memcpy(w->body, body, len);
	return w;
}

static void held_add(struct mini_held **list, struct mini_held *w)
{
	while (*list)
		list = &(*list)->next;
	*list = w;
}

static bool is_service(uint16_t op)
{
	return op == WIRE_OP_HELLO || op == WIRE_OP_META_KEEPALIVE ||
	       op == WIRE_OP_META_MAP_GET || op == WIRE_OP_META_SESSION_OPEN;
}

/* A reply, unless the test wants it lost or late. */
static void reply(struct mini_metad *m, uint64_t conn_id,
		  const struct wire_header *q, int status, const void *body,
		  uint32_t len)
{
	struct mini_conn *c = conn_find(m, conn_id);
	uint16_t op = q->opcode;
	if (!c)
		return;
	if (m->lose_count > 0 &&
	    (m->lose_op == op || (m->lose_op == 0 && !is_service(op)))) {
		m->lose_count--;
		conn_close(c);
		return;
	}
	if (m->hold_replies &&
	    (m->hold_op == op || (m->hold_op == 0 && !is_service(op)))) {
		struct mini_held *w = held_new(conn_id, q, body, len);
		w->cut_ino = status_to_wire(status);
		held_add(&m->kept, w);
		return;
	}
	if (m->hold_keepalives && op == WIRE_OP_META_KEEPALIVE) {
		struct mini_held *w = held_new(conn_id, q, body, len);
		w->cut_ino = status_to_wire(status);
		held_add(&m->kept_alive, w);
		return;
	}
	frame_send(m, c, q, status, true, body, len);
}

/* ---- durability ---- */

static void cut_finish(struct mini_metad *m, struct mini_held *w)
{
	struct sm_cut cut = { 0 };
	struct sm_cut list[16];
	size_t n = sm_cut_list(m->sm, w->cut_ino, w->cut - 1, list, 16);
	if (n > 0 && list[0].ino == w->cut_ino && list[0].cut == w->cut) {
		struct sm_cut_done d = { .ino = w->cut_ino, .cut = w->cut };
		uint8_t buf[32];
		struct wire_out o;
		struct sm_reply r;
		cut = list[0];
		if (m->o.cut)
			d.units_delta = m->o.cut(m->o.arg, &cut);
		wire_out_init(&o, buf, sizeof(buf));
		sm_cut_done_encode(&o, &d);
		apply(m, WIRE_OP_SM_CUT_DONE, 0, buf, o.len, &r);
		m->durable = sm_pos(m->sm);
	}
	/* the attributes as they are now start the body */
	uint8_t q[8];
	struct wire_out o;
	struct sm_reply r;
	wire_out_init(&o, q, sizeof(q));
	wire_put_u64(&o, w->cut_ino);
	sm_query(m->sm, WIRE_OP_META_GETATTR, w->h.session, q, 8, &r);
	if (r.status == 0 && r.body_len <= w->len)
		memcpy(w->body, r.body, r.body_len);
}

/* As the real one before it asks for ends: no cut may be under way. */
static void cuts_finish(struct mini_metad *m)
{
	struct sm_cut cut;
	while (sm_cut_list(m->sm, 0, 0, &cut, 1) > 0) {
		struct sm_cut_done d = { .ino = cut.ino, .cut = cut.cut };
		uint8_t buf[32];
		struct wire_out o;
		struct sm_reply r;
		if (m->o.cut)
			d.units_delta = m->o.cut(m->o.arg, &cut);
		wire_out_init(&o, buf, sizeof(buf));
		sm_cut_done_encode(&o, &d);
		apply(m, WIRE_OP_SM_CUT_DONE, 0, buf, o.len, &r);
	}
}

static void purge_all(struct mini_metad *m)
{
	struct sm_purge list[64];
	size_t n;
	while ((n = sm_purge_list(m->sm, 0, list, 64)) > 0) {
		uint8_t inos[64 * 8], body[64 * 8 + 4];
		struct wire_out o;
		struct sm_reply r;
		wire_out_init(&o, inos, sizeof(inos));
		for (size_t i = 0; i < n; i++) {
			if (m->o.purge)
				m->o.purge(m->o.arg, list[i].ino);
			wire_put_u64(&o, list[i].ino);
			m->purges++;
		}
		struct sm_purge_done d = { { inos, (uint32_t)o.len } };
		wire_out_init(&o, body, sizeof(body));
		sm_purge_done_encode(&o, &d);
		apply(m, WIRE_OP_SM_PURGE_DONE, 0, body, o.len, &r);
		must(r.status == 0);
	}
}

/* Unless held: everything so far is durable, and what waited for it goes. */
static void commit(struct mini_metad *m)
{
	if (m->hold)
		return;
	m->durable = sm_pos(m->sm);
	purge_all(m);
	m->durable = sm_pos(m->sm);
	while (m->waiting) {
		struct mini_held *w = m->waiting;
		m->waiting = w->next;
		if (w->cut)
			cut_finish(m, w);
		reply(m, w->conn_id, &w->h, 0, w->body, w->len);
		free(w->body);
		free(w);
	}
}

/* ---- requests ---- */

static void session_drop(struct mini_metad *m, uint64_t session)
{
	struct sm_session_close q = { session, 2 };
	uint8_t buf[16];
	struct wire_out o;
	struct sm_reply r;
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_close_encode(&o, &q);
	apply(m, WIRE_OP_SM_SESSION_CLOSE, 0, buf, o.len, &r);
}

/* What a client that is gone wrote and never reported. */
static void session_recover(struct mini_metad *m, uint64_t session)
{
	struct sm_session_close q = { session, 1 };
	uint64_t inos[64], after = 0;
	uint8_t buf[64];
	struct wire_out o;
	struct sm_reply r;
	size_t n;

	wire_out_init(&o, buf, sizeof(buf));
	sm_session_close_encode(&o, &q);
	apply(m, WIRE_OP_SM_SESSION_CLOSE, 0, buf, o.len, &r);
	while ((n = sm_lease_list(m->sm, session, after, inos, 64)) > 0) {
		for (size_t i = 0; i < n; i++) {
			struct sm_size_set e = { .ino = inos[i] };

			e.size = m->o.end(m->o.arg, inos[i], &e.units);
			wire_out_init(&o, buf, sizeof(buf));
			sm_size_set_encode(&o, &e);
			apply(m, WIRE_OP_SM_SIZE_SET, 0, buf, o.len, &r);
		}
		after = inos[n - 1];
	}
	/* Blocks of files whose creation was lost: their numbers come again. */
	for (uint64_t i = 0; m->o.purge && i < SWEEP_INODES; i++)
		m->o.purge(m->o.arg, sm_next_ino(m->sm) + i);
}

static int session_open(struct mini_metad *m, const struct frame *f,
			struct meta_session_open_reply *ret)
{
	struct meta_session_open q;
	struct sm_session_info list[8];
	uint8_t buf[1024];
	struct wire_out o;
	struct sm_reply r;

	if (meta_session_open_parse(f->body, f->h.body_len, &q))
		return -EBADMSG;
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++) {
		if (list[i].client_id != q.client_id)
			return -EBUSY;
		cuts_finish(m);
		if (m->o.end)
			session_recover(m, list[i].session);
		session_drop(m, list[i].session);
	}
	struct sm_session_open s = { now_ns(), q.client_id, q.host,
				     q.mountpoint };
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &s);
	apply(m, WIRE_OP_SM_SESSION_OPEN, 0, buf, o.len, &r);
	if (r.status)
		return r.status;
	struct wire_in in;
	wire_in_init(&in, r.body, r.body_len);
	*ret = (struct meta_session_open_reply){
		.session = wire_get_u64(&in),
		.cluster_id = MINI_CLUSTER_ID,
		.keepalive_ms = m->o.keepalive_ms ? m->o.keepalive_ms : 1000,
		.lease_ms = 10000,
	};
	m->durable = u64_max(m->durable, m->hold ? 0 : sm_pos(m->sm));
	return 0;
}

static void run_service(struct mini_metad *m, struct mini_conn *c,
			const struct frame *f)
{
	struct meta_session_open_reply so;
	struct meta_keepalive k;
	uint8_t buf[64];
	struct wire_out o;
	int err;

	wire_out_init(&o, buf, sizeof(buf));
	switch (f->h.opcode) {
	case WIRE_OP_META_SESSION_OPEN:
		err = session_open(m, f, &so);
		if (!err)
			meta_session_open_reply_encode(&o, &so);
		reply(m, c->id, &f->h, err, buf, (uint32_t)o.len);
		break;
	case WIRE_OP_META_SESSION_CLOSE:
		/* Who keeps leases leaves the counting to metad. */
		if (m->o.end)
			session_recover(m, c->session);
		session_drop(m, c->session);
		reply(m, c->id, &f->h, 0, NULL, 0);
		break;
	case WIRE_OP_META_KEEPALIVE:
		err = meta_keepalive_parse(f->body, f->h.body_len, &k);
		if (!err)
			snprintf(m->status, sizeof(m->status), "%.*s",
				 (int)k.status.len,
				 (const char *)k.status.p);
		reply(m, c->id, &f->h, err, NULL, 0);
		break;
	default:
		reply(m, c->id, &f->h, -EOPNOTSUPP, NULL, 0);
	}
}

static void run_sync(struct mini_metad *m, struct mini_conn *c,
		     const struct frame *f)
{
	struct meta_sync q;
	if (meta_sync_parse(f->body, f->h.body_len, &q)) {
		reply(m, c->id, &f->h, -EBADMSG, NULL, 0);
		return;
	}
	if (u64_min(q.pos, sm_pos(m->sm)) <= m->durable) {
		reply(m, c->id, &f->h, 0, NULL, 0);
		return;
	}
	struct mini_held *w = held_new(c->id, &f->h, NULL, 0);
	w->sync = true;
	held_add(&m->waiting, w);
}

static void run_sm(struct mini_metad *m, struct mini_conn *c,
		   const struct frame *f)
{
	uint16_t op = f->h.opcode;
	struct sm_reply r;
	int err = sm_validate(op, f->body, f->h.body_len);

	if (err) {
		reply(m, c->id, &f->h, err, NULL, 0);
		return;
	}
	if (sm_is_query(op)) {
		sm_query(m->sm, op, c->session, f->body, f->h.body_len, &r);
		m->executed[op]++;
		reply(m, c->id, &f->h, r.status, r.body, r.body_len);
		return;
	}
	if (m->fail_count > 0 && m->fail_op == op) {
		m->fail_count--;
		reply(m, c->id, &f->h, m->fail_err, NULL, 0);
		return;
	}
	apply(m, op, c->session, f->body, f->h.body_len, &r);
	if (!r.replayed)
		m->executed[op]++;
	if (r.status == 0 && op == WIRE_OP_META_CUT) {
		struct mini_held *w = held_new(c->id, &f->h, r.body,
					       r.body_len);
		w->cut_ino = r.cut_ino;
		w->cut = r.cut_job;
		held_add(&m->waiting, w);
		commit(m);
		return;
	}
	if (!m->hold)
		m->durable = sm_pos(m->sm);
	reply(m, c->id, &f->h, r.status, r.body, r.body_len);
}

static void run_hello(struct mini_metad *m, struct mini_conn *c,
		      const struct frame *f)
{
	struct hello q;
	struct hello_reply r = {
		.version = WIRE_VERSION, .role = WIRE_ROLE_METAD,
		.boot_id = m->boot_id, .peer_id = 1, .name = { "mini", 4 },
	};
	uint8_t buf[64];
	struct wire_out o;
	if (hello_parse(f->body, f->h.body_len, &q)) {
		conn_close(c);
		return;
	}
	if (f->h.session && !cmap_session_live(sm_map(m->sm), f->h.session)) {
		frame_send(m, c, &f->h, -ESTALE, false, NULL, 0);
		conn_close(c);
		return;
	}
	c->hello = true;
	c->session = f->h.session;
	wire_out_init(&o, buf, sizeof(buf));
	hello_reply_encode(&o, &r);
	frame_send(m, c, &f->h, 0, false, buf, (uint32_t)o.len);
}

static bool is_client_command(uint16_t op)
{
	return op >= WIRE_OP_META_CREATE && op <= WIRE_OP_META_CUT;
}

static void request(struct mini_metad *m, struct mini_conn *c,
		    const struct frame *f)
{
	uint16_t op = f->h.opcode;
	m->received[op & 0xff]++;
	if (!c->hello) {
		if (op == WIRE_OP_HELLO)
			run_hello(m, c, f);
		else
			conn_close(c);
		return;
	}
	if (op != WIRE_OP_META_SESSION_OPEN && op != WIRE_OP_META_MAP_GET &&
	    (f->h.session != c->session ||
	     !cmap_session_live(sm_map(m->sm), c->session))) {
		reply(m, c->id, &f->h, -ESTALE, NULL, 0);
		return;
	}
	if (op == WIRE_OP_META_SYNC)
		run_sync(m, c, f);
	else if (sm_is_query(op) || is_client_command(op))
		run_sm(m, c, f);
	else
		run_service(m, c, f);
}

static void conn_read(struct mini_metad *m, struct mini_conn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame *f;
	int rv, count = frame_in_space(&c->in, iov);
	ssize_t n = count > 0 ? readv(c->fd, iov, count) : 0;

	if (n <= 0) {
		conn_close(c);
		return;
	}
	frame_in_fed(&c->in, (size_t)n);
	while ((rv = frame_in_next(&c->in, &f)) == 1) {
		if (!c->closing)
			request(m, c, f);
		frame_free(f);
	}
	if (rv < 0)
		conn_close(c);
}

static void conn_accept(struct mini_metad *m)
{
	int on = 1, fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct mini_conn *c;
	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	c = calloc(1, sizeof(*c));
	must(c);
	c->fd = fd;
	c->id = ++m->next_conn;
	must(frame_in_init(&c->in, 0, NULL) == 0);
	c->next = m->conns;
	m->conns = c;
}

/* ---- the thread ---- */

static void *mini_run(void *arg)
{
	struct mini_metad *m = arg;
	fail_malloc_spared = true;
	for (;;) {
		struct pollfd p[CONNS_MAX + 2];
		struct mini_conn *who[CONNS_MAX + 2] = { NULL };
		nfds_t n = 2;
		uint64_t v;
		pthread_mutex_lock(&m->lock);
		conns_reap(m);
		p[0] = (struct pollfd){ .fd = m->event_fd, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = m->listen_fd, .events = POLLIN };
		for (struct mini_conn *c = m->conns; c && n < CONNS_MAX + 2;
		     c = c->next, n++) {
			p[n] = (struct pollfd){ .fd = c->fd, .events = POLLIN };
			who[n] = c;
		}
		bool stop = m->stop;
		pthread_mutex_unlock(&m->lock);
		if (stop)
			return NULL;
		poll(p, n, -1);
		pthread_mutex_lock(&m->lock);
		if (p[0].revents && read(m->event_fd, &v, sizeof(v)) < 0)
			must(errno == EAGAIN);
		/* it may have been closed meanwhile by a test */
		if (p[1].revents & POLLIN && m->listen_fd == p[1].fd)
			conn_accept(m);
		for (nfds_t i = 2; i < n; i++)
			if (p[i].revents && !who[i]->closing)
				conn_read(m, who[i]);
		commit(m);
		pthread_mutex_unlock(&m->lock);
	}
}

static void wake(struct mini_metad *m)
{
	uint64_t one = 1;
	if (write(m->event_fd, &one, sizeof(one)) < 0)
		must(errno == EAGAIN);
}

static void listen_start(struct mini_metad *m)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(m->port) };
	socklen_t len = sizeof(a);
	int on = 1;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	m->listen_fd = socket(AF_INET,
			      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(m->listen_fd >= 0);
	setsockopt(m->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	must(bind(m->listen_fd, (void *)&a, sizeof(a)) == 0);
	must(listen(m->listen_fd, 64) == 0);
	must(getsockname(m->listen_fd, (void *)&a, &len) == 0);
	m->port = ntohs(a.sin_port);
}

static void conf_fill(struct mini_metad *m)
{
	static char name[] = "mini";
	m->metad.id = 1;
	m->metad.port = m->port;
	snprintf(m->metad.addr, sizeof(m->metad.addr), "127.0.0.1");
	for (uint32_t i = 0; i < m->o.blockd_count; i++) {
		m->blockds[i].id = i + 1;
		m->blockds[i].port = m->o.blockd_ports[i];
		snprintf(m->blockds[i].addr, sizeof(m->blockds[i].addr),
			 "127.0.0.1");
	}
	m->conf = (struct conf){
		.name = name, .cluster_id = MINI_CLUSTER_ID, .replicas = 1,
		.metads = &m->metad, .metad_count = 1,
		.blockds = m->blockds, .blockd_count = m->o.blockd_count,
	};
}

int mini_metad_new(const struct mini_metad_options *o, struct mini_metad **ret)
{
	struct mini_metad *m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->o = *o;
	pthread_mutex_init(&m->lock, NULL);
	m->boot_id = 1000;
	m->sm = sm_new();
	m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	must(m->sm && m->event_fd >= 0);
	bootstrap(m);
	listen_start(m);
	conf_fill(m);
	if (pthread_create(&m->thread, NULL, mini_run, m)) {
		free(m);
		return -EAGAIN;
	}
	*ret = m;
	return 0;
}

static void held_free(struct mini_held *w)
{
	while (w) {
		struct mini_held *next = w->next;
		free(w->body);
		free(w);
		w = next;
	}
}

void mini_metad_free(struct mini_metad *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->stop = true;
	wake(m);
	pthread_mutex_unlock(&m->lock);
	pthread_join(m->thread, NULL);
	for (struct mini_conn *c = m->conns; c; c = c->next)
		conn_close(c);
	conns_reap(m);
	held_free(m->waiting);
	held_free(m->kept);
	held_free(m->kept_alive);
	if (m->listen_fd >= 0)
		close(m->listen_fd);
	close(m->event_fd);
	for (size_t i = 0; i < m->log_len; i++)
		free(m->log[i].body);
	free(m->log);
	sm_free(m->sm);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

uint16_t mini_metad_port(struct mini_metad *m)
{
	return m->port;
}

uint64_t mini_metad_cluster_id(struct mini_metad *m)
{
	(void)m;
	return MINI_CLUSTER_ID;
}

const struct conf *mini_metad_conf(struct mini_metad *m)
{
	return &m->conf;
}

/* ---- switches ---- */

void mini_metad_hold_durable(struct mini_metad *m, bool hold)
{
	pthread_mutex_lock(&m->lock);
	m->hold = hold;
	commit(m);
	wake(m);
	pthread_mutex_unlock(&m->lock);
}

static void drop_all(struct mini_metad *m)
{
	for (struct mini_conn *c = m->conns; c; c = c->next)
		conn_close(c);
	held_free(m->waiting);
	held_free(m->kept);
	held_free(m->kept_alive);
	m->waiting = m->kept = m->kept_alive = NULL;
	wake(m);
}

void mini_metad_drop(struct mini_metad *m)
{
	pthread_mutex_lock(&m->lock);
	drop_all(m);
	pthread_mutex_unlock(&m->lock);
}

static void reborn(struct mini_metad *m, bool lose)
{
	m->boot_id++;
	if (lose)
		lose_suffix(m);
	else
		m->durable = sm_pos(m->sm);
}

void mini_metad_restart(struct mini_metad *m, bool lose)
{
	pthread_mutex_lock(&m->lock);
	drop_all(m);
	reborn(m, lose);
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_down(struct mini_metad *m)
{
	pthread_mutex_lock(&m->lock);
	drop_all(m);
	close(m->listen_fd);
	m->listen_fd = -1;
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_up(struct mini_metad *m, bool lose)
{
	pthread_mutex_lock(&m->lock);
	reborn(m, lose);
	listen_start(m);
	wake(m);
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_lose_replies(struct mini_metad *m, uint16_t op, int count)
{
	pthread_mutex_lock(&m->lock);
	m->lose_op = op;
	m->lose_count = count;
	pthread_mutex_unlock(&m->lock);
}

static void kept_send(struct mini_metad *m, struct mini_held **kept)
{
	while (*kept) {
		struct mini_held *w = *kept;
		struct mini_conn *c = conn_find(m, w->conn_id);
		*kept = w->next;
		if (c)
			frame_send(m, c, &w->h,
				   status_from_wire((uint32_t)w->cut_ino), true,
				   w->body, w->len);
		free(w->body);
		free(w);
	}
}

void mini_metad_hold_replies(struct mini_metad *m, uint16_t op, bool hold)
{
	pthread_mutex_lock(&m->lock);
	m->hold_op = op;
	m->hold_replies = hold;
	if (!hold)
		kept_send(m, &m->kept);
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_hold_keepalives(struct mini_metad *m, bool hold)
{
	pthread_mutex_lock(&m->lock);
	m->hold_keepalives = hold;
	if (!hold)
		kept_send(m, &m->kept_alive);
	pthread_mutex_unlock(&m->lock);
}

bool mini_metad_keepalive_held(struct mini_metad *m)
{
	bool held;

	pthread_mutex_lock(&m->lock);
	held = m->kept_alive != NULL;
	pthread_mutex_unlock(&m->lock);
	return held;
}

void mini_metad_fail(struct mini_metad *m, uint16_t op, int err, int count)
{
	pthread_mutex_lock(&m->lock);
	m->fail_op = op;
	m->fail_err = err;
	m->fail_count = count;
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_fence(struct mini_metad *m)
{
	struct sm_session_info list[8];
	pthread_mutex_lock(&m->lock);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++)
		session_drop(m, list[i].session);
	pthread_mutex_unlock(&m->lock);
}

void mini_metad_bump_epoch(struct mini_metad *m)
{
	struct sm_raise q = { 0 };
	uint8_t buf[64];
	struct wire_out o;
	struct sm_reply r;
	pthread_mutex_lock(&m->lock);
	q.epoch = sm_map(m->sm)->epoch + 1;
	wire_out_init(&o, buf, sizeof(buf));
	sm_raise_encode(&o, &q);
	apply(m, WIRE_OP_SM_RAISE, 0, buf, o.len, &r);
	pthread_mutex_unlock(&m->lock);
}

/* ---- looking ---- */

uint64_t mini_metad_executed(struct mini_metad *m, uint16_t op)
{
	pthread_mutex_lock(&m->lock);
	uint64_t v = m->executed[op & 0xff];
	pthread_mutex_unlock(&m->lock);
	return v;
}

uint64_t mini_metad_received(struct mini_metad *m, uint16_t op)
{
	pthread_mutex_lock(&m->lock);
	uint64_t v = m->received[op & 0xff];
	pthread_mutex_unlock(&m->lock);
	return v;
}

void mini_metad_status(struct mini_metad *m, char *buf, size_t size)
{
	pthread_mutex_lock(&m->lock);
	snprintf(buf, size, "%s", m->status);
	pthread_mutex_unlock(&m->lock);
}

static int query_attr(struct mini_metad *m, uint16_t op, const void *body,
		      size_t len, struct meta_attr *ret)
{
	struct sm_reply r;
	struct wire_in in;
	pthread_mutex_lock(&m->lock);
	sm_query(m->sm, op, 0, body, len, &r);
	if (r.status == 0) {
		wire_in_init(&in, r.body, r.body_len);
		meta_attr_decode(&in, ret);
	}
	pthread_mutex_unlock(&m->lock);
	return r.status;
}

int mini_metad_getattr(struct mini_metad *m, uint64_t ino,
		       struct meta_attr *ret)
{
	uint8_t buf[8];
	struct wire_out o;
	wire_out_init(&o, buf, sizeof(buf));
	wire_put_u64(&o, ino);
	return query_attr(m, WIRE_OP_META_GETATTR, buf, o.len, ret);
}

int mini_metad_lookup(struct mini_metad *m, uint64_t parent, const char *name,
		      struct meta_attr *ret)
{
	struct meta_lookup l = { parent, { name, (uint32_t)strlen(name) } };
	uint8_t buf[512];
	struct wire_out o;
	wire_out_init(&o, buf, sizeof(buf));
	meta_lookup_encode(&o, &l);
	return query_attr(m, WIRE_OP_META_LOOKUP, buf, o.len, ret);
}

uint64_t mini_metad_inode_count(struct mini_metad *m)
{
	pthread_mutex_lock(&m->lock);
	uint64_t v = sm_inode_count(m->sm);
	pthread_mutex_unlock(&m->lock);
	return v;
}

uint32_t mini_metad_lease_count(struct mini_metad *m)
{
	struct sm_session_info list[8];
	uint64_t inos[256];
	size_t count = 0;
	pthread_mutex_lock(&m->lock);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	for (size_t i = 0; i < n; i++)
		count += sm_lease_list(m->sm, list[i].session, 0, inos, 256);
	pthread_mutex_unlock(&m->lock);
	return (uint32_t)count;
}

uint32_t mini_metad_purge_count(struct mini_metad *m)
{
	struct sm_purge list[256];
	pthread_mutex_lock(&m->lock);
	uint32_t v = m->purges + (uint32_t)sm_purge_list(m->sm, 0, list, 256);
	pthread_mutex_unlock(&m->lock);
	return v;
}

uint32_t mini_metad_session_count(struct mini_metad *m)
{
	struct sm_session_info list[8];
	pthread_mutex_lock(&m->lock);
	size_t n = sm_session_list(m->sm, 0, list, 8);
	pthread_mutex_unlock(&m->lock);
	return (uint32_t)n;
}
