/* libraft's transport over our own connections, which prove the cluster's key
 * and are sealed.
 *
 * libraft wants a stream for each direction between two members. It gets one
 * end of a pair of sockets; what it writes to the sender's is read here, goes
 * to the other metad as META_RAFT, and is written there into the receiver's.
 * A stream that breaks anywhere is closed on both sides, and libraft opens
 * another.
 */
#include <inttypes.h>
#include <raft.h>
#include <raft/uv.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/diag.h"
#include "metad/group.h"

/* Pieces of a stream under way. */
#define WINDOW 8u
/* Of one piece; the other side's loop may be loading a snapshot. */
#define PIECE_MS 5000u
#define PIECE_HEAD 20u /* of meta_raft without its bytes */

/* From libraft to another metad. */
struct out {
	struct transport *t;
	struct out *next;
	uint32_t to;
	uint64_t id;
	uint64_t seq;
	uv_pipe_t ours;
	uint32_t flying;
	bool reading, closing, closed;
};

struct piece {
	struct group_call call;
	struct out *out;
	uint8_t body[PIECE_HEAD + META_RAFT_BYTES_MAX];
};

/* From another metad to libraft. */
struct in {
	struct transport *t;
	struct in *next;
	uint64_t conn_id, id;
	uint64_t seq;
	uv_pipe_t ours;
	uint32_t writing;
	bool closing, closed;
};

/* Bytes that did not fit into the socket at once. */
struct in_write {
	uv_write_t req;
	struct in *in;
	struct reply_to to;
	uint8_t bytes[];
};

/* libraft's wish to connect; answered from the loop. */
struct pending {
	struct pending *next;
	struct raft_uv_connect *req;
	raft_uv_connect_cb cb;
	uv_stream_t *stream;
};

struct transport {
	struct group *g;
	struct raft_uv_transport raft;
	raft_uv_accept_cb take; /* NULL: libraft takes none */
	uv_timer_t timer; /* to answer the pending */
	struct pending *pending;
	struct out *outs;
	struct in *ins;
	uint64_t next_id;
	bool stopped;
};

static uv_loop_t *loop_of(struct transport *t)
{
	return &group_metad(t->g)->loop;
}

/* A pair of sockets: @ours, and libraft's, which it frees with raft_free().
 * Returns 0 or -errno. */
static int pair_make(struct transport *t, uv_pipe_t *ours,
		     uv_stream_t **theirs)
{
	uv_pipe_t *p = raft_malloc(sizeof(*p));
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
		       fds) < 0) {
		raft_free(p);
		return -errno;
	}
	/* These cannot fail: the descriptors are such that they work. */
	(void)uv_pipe_init(loop_of(t), ours, 0);
	(void)uv_pipe_init(loop_of(t), p, 0);
	(void)uv_pipe_open(ours, fds[0]);
	(void)uv_pipe_open(p, fds[1]);
	*theirs = (uv_stream_t *)p;
	return 0;
}

/* ---- out ---- */

static void out_gone(struct out *o)
{
	struct out **at = &o->t->outs;

	if (!o->closed || o->flying)
		return;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	free(o);
}

static void out_closed(uv_handle_t *h)
{
	struct out *o = h->data;

	o->closed = true;
	out_gone(o);
}

/* libraft hears of it when it writes next. */
static void out_close(struct out *o)
{
	if (o->closing)
		return;
	o->closing = true;
	o->reading = false;
	uv_close((uv_handle_t *)&o->ours, out_closed);
}

static void out_read(struct out *o);

static void piece_answered(struct group_call *c)
{
	struct piece *p = container_of(c, struct piece, call);
	struct out *o = p->out;

	rpc_frame_free(c->frame);
	o->flying--;
	if (c->status < 0) {
		if (c->status == -ETIMEDOUT)
			group_reset(o->t->g, o->to);
		out_close(o);
	} else if (!o->closing) {
		out_read(o);
	}
	free(p);
	out_gone(o);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct piece *p = malloc(sizeof(*p));

	(void)h;
	(void)suggested;
	*buf = uv_buf_init(p ? (char *)p->body + PIECE_HEAD : NULL,
			   p ? META_RAFT_BYTES_MAX : 0);
}

/* The piece whose bytes these are. */
static struct piece *piece_of(const uv_buf_t *buf)
{
	char *body = buf->base ? buf->base - PIECE_HEAD : NULL;

	return body ? (void *)(body - offsetof(struct piece, body)) : NULL;
}

static void piece_send(struct out *o, struct piece *p, size_t len)
{
	struct meta_raft m = { .stream = o->id, .seq = o->seq++ };
	struct wire_out w;

	memset(&p->call, 0, sizeof(p->call));
	p->out = o;
	m.bytes.p = p->body + PIECE_HEAD;
	m.bytes.len = (uint32_t)len;
	/* The bytes are in their place already. */
	wire_out_init(&w, p->body, PIECE_HEAD);
	wire_put_u64(&w, m.stream);
	wire_put_u64(&w, m.seq);
	wire_put_u32(&w, m.bytes.len);
	assert(w.len == PIECE_HEAD && !w.overflow);
	p->call.rpc.opcode = WIRE_OP_META_RAFT;
	p->call.rpc.timeout_ms = PIECE_MS;
	p->call.rpc.body = p->body;
	p->call.rpc.body_len = (uint32_t)(PIECE_HEAD + len);
	p->call.fn = piece_answered;
	o->flying++;
	if (group_send(o->t->g, o->to, &p->call) == 0)
		return;
	o->flying--;
	free(p);
	out_close(o);
}

static void on_read(uv_stream_t *s, ssize_t len, const uv_buf_t *buf)
{
	struct out *o = s->data;
	struct piece *p = piece_of(buf);

	if (len <= 0) {
		free(p);
		if (len < 0)
			out_close(o);
		return;
	}
	group_metad(o->t->g)->activity++;
	piece_send(o, p, (size_t)len);
	if (o->flying >= WINDOW && !o->closing) {
		(void)uv_read_stop(s);
		o->reading = false;
	}
}

static void out_read(struct out *o)
{
	if (o->reading || o->flying >= WINDOW)
		return;
	o->reading = uv_read_start((uv_stream_t *)&o->ours, on_alloc,
				   on_read) == 0;
	if (!o->reading)
		out_close(o);
}

static void on_timer(uv_timer_t *h)
{
	struct transport *t = h->data;
	struct pending *p;

	while ((p = t->pending)) {
		t->pending = p->next;
		p->cb(p->req, p->stream, 0);
		free(p);
	}
}

static bool is_up(struct transport *t, uint32_t id)
{
	for (uint32_t i = 0; i < group_count(t->g); i++)
		if (group_other(t->g, i)->id == id)
			return group_other(t->g, i)->up;
	return false;
}

static int raft_connect(struct raft_uv_transport *rt,
			struct raft_uv_connect *req, raft_id id,
			const char *address, raft_uv_connect_cb cb)
{
	struct transport *t = rt->impl;
	struct pending *p;
	struct out *o;
	int rv;

	(void)address;
	if (t->stopped || !is_up(t, (uint32_t)id))
		return RAFT_NOCONNECTION;
	o = calloc(1, sizeof(*o));
	p = calloc(1, sizeof(*p));
	rv = o && p ? pair_make(t, &o->ours, &p->stream) : -ENOMEM;
	if (rv < 0) {
		free(o);
		free(p);
		return RAFT_NOCONNECTION;
	}
	o->t = t;
	o->to = (uint32_t)id;
	o->id = ++t->next_id;
	o->ours.data = o;
	o->next = t->outs;
	t->outs = o;
	p->req = req;
	p->cb = cb;
	p->next = t->pending;
	t->pending = p;
	out_read(o);
	(void)uv_timer_start(&t->timer, on_timer, 0, 0);
	return 0;
}

/* ---- in ---- */

static void in_gone(struct in *s)
{
	struct in **at = &s->t->ins;

	if (!s->closed || s->writing)
		return;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}

static void in_closed(uv_handle_t *h)
{
	struct in *s = h->data;

	s->closed = true;
	in_gone(s);
}

/* libraft finds the end of the stream. */
static void in_close(struct in *s)
{
	if (s->closing)
		return;
	s->closing = true;
	uv_close((uv_handle_t *)&s->ours, in_closed);
}

static struct in *in_find(struct transport *t, uint64_t conn_id, uint64_t id)
{
	struct in *s;

	for (s = t->ins; s; s = s->next)
		if (!s->closing && s->conn_id == conn_id && s->id == id)
			return s;
	return NULL;
}

/* Returns 0 and *ret, or -errno. */
static int in_open(struct transport *t, const struct conn *c, uint64_t id,
		   struct in **ret)
{
	char address[32];
	uv_stream_t *theirs;
	struct in *s;
	int rv;

	if (!t->take)
		return -EAGAIN;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	rv = pair_make(t, &s->ours, &theirs);
	if (rv < 0) {
		free(s);
		return rv;
	}
	s->t = t;
	s->conn_id = c->id;
	s->id = id;
	s->ours.data = s;
	s->next = t->ins;
	t->ins = s;
	metaraft_address(address, c->peer_id);
	t->take(&t->raft, c->peer_id, address, theirs);
	*ret = s;
	return 0;
}

static void in_written(uv_write_t *req, int status)
{
	struct in_write *w = req->data;
	struct in *s = w->in;

	s->writing--;
	if (status < 0)
		in_close(s);
	serve_reply_plain(group_metad(s->t->g), &w->to,
			  status < 0 ? -EPIPE : 0, NULL, 0);
	free(w);
	in_gone(s);
}

/* Replies when libraft's socket has it. Returns 0 or -errno, to be replied. */
static int in_put(struct in *s, const struct reply_to *to, const uint8_t *p,
		  size_t len)
{
	uv_buf_t buf = uv_buf_init((char *)(uintptr_t)p, (unsigned)len);
	uv_stream_t *stream = (uv_stream_t *)&s->ours;
	int n = uv_try_write(stream, &buf, 1);
	struct in_write *w;

	if (n < 0 && n != UV_EAGAIN)
		return -EPIPE;
	n = n < 0 ? 0 : n;
	if ((size_t)n == len) {
		serve_reply_plain(group_metad(s->t->g), to, 0, NULL, 0);
		return 0;
	}
	w = malloc(sizeof(*w) + len - (size_t)n);
	if (!w)
		return -EPIPE;
	w->req.data = w;
	w->in = s;
	w->to = *to;
	memcpy(w->bytes, p + n, len - (size_t)n);
	buf = uv_buf_init((char *)w->bytes, (unsigned)(len - (size_t)n));
	if (uv_write(&w->req, stream, &buf, 1, in_written) < 0) {
		free(w);
		return -EPIPE;
	}
	s->writing++;
	return 0;
}

void transport_run(struct request *r)
{
	struct group *g = r->md->group;
	struct transport *t = g ? group_transport(g) : NULL;
	struct in *s = NULL;
	struct meta_raft m;
	int rv = meta_raft_parse(r->body, r->body_len, &m);

	if (rv == 0 && (!t || t->stopped))
		rv = -EAGAIN;
	if (rv == 0)
		s = in_find(t, r->conn->id, m.stream);
	if (rv == 0 && !s)
		rv = m.seq == 0 ? in_open(t, r->conn, m.stream, &s) : -EPIPE;
	else if (rv == 0 && m.seq != s->seq)
		rv = -EPIPE;
	if (rv == 0) {
		s->seq++;
		rv = in_put(s, &r->to, m.bytes.p, m.bytes.len);
	}
	if (rv == 0)
		return;
	if (s)
		in_close(s);
	serve_reply_plain(r->md, &r->to, rv, NULL, 0);
}

void transport_conn_gone(struct transport *t, uint64_t conn_id)
{
	struct in *s;

	for (s = t->ins; s; s = s->next)
		if (s->conn_id == conn_id)
			in_close(s);
}

/* ---- life ---- */

static int raft_open(struct raft_uv_transport *rt, raft_id id,
		     const char *address)
{
	(void)rt;
	(void)id;
	(void)address;
	return 0;
}

static int raft_listen(struct raft_uv_transport *rt, raft_uv_accept_cb cb)
{
	struct transport *t = rt->impl;

	t->take = cb;
	return 0;
}

static void stream_closed(uv_handle_t *h)
{
	raft_free(h);
}

static void close_all(struct transport *t)
{
	struct pending *p;
	struct out *o;
	struct in *s;

	t->take = NULL;
	for (s = t->ins; s; s = s->next)
		in_close(s);
	for (o = t->outs; o; o = o->next)
		out_close(o);
	while ((p = t->pending)) {
		t->pending = p->next;
		uv_close((uv_handle_t *)p->stream,
			 stream_closed);
		p->cb(p->req, NULL, RAFT_CANCELED);
		free(p);
	}
}

static void raft_close_transport(struct raft_uv_transport *rt,
				 raft_uv_transport_close_cb cb)
{
	close_all(rt->impl);
	cb(rt);
}

int transport_new(struct group *g, struct transport **ret)
{
	struct transport *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->g = g;
	t->raft.impl = t;
	t->raft.init = raft_open;
	t->raft.listen = raft_listen;
	t->raft.connect = raft_connect;
	t->raft.close = raft_close_transport;
	*ret = t;
	(void)uv_timer_init(loop_of(t), &t->timer); /* cannot fail */
	t->timer.data = t;
	return 0;
}

struct raft_uv_transport *transport_raft(struct transport *t)
{
	return &t->raft;
}

void transport_stop(struct transport *t)
{
	if (!t || t->stopped)
		return;
	t->stopped = true;
	close_all(t);
	uv_close((uv_handle_t *)&t->timer, NULL);
}

void transport_free(struct transport *t)
{
	free(t);
}
