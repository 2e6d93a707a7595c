/* Connections of hail-metad. */
#include "metad/serve.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/diag.h"
#include "common/frame_out.h"
#include "common/gate.h"
#include "common/local_sock.h"
#include "common/proto.h"
#include "common/resolve.h"
#include "common/status.h"
#include "metad/request.h"

#define OUT_BYTES_MAX (4u << 20)
#define HELD_MAX 8192u
#define CONNS_MAX 4096u
#define BACKLOG 256
/* Before HELLO a peer gets little time and a small frame. */
#define HELLO_MS 10000u
#define HELLO_BODY_MAX 4096u
#define SWEEP_MS 5000u

struct refusal {
	union {
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} sock;
	uv_stream_t *listener;
	bool busy, again;
};

struct serve {
	struct metad *md;
	struct refusal refuse_tcp, refuse_local;
	uv_tcp_t listener;
	uv_pipe_t local; /* the same for peers on this machine */
	uv_timer_t sweep;
	bool listening, listening_local, sweeping, closing;
	struct conn *conns, *dirty, *stopped;
	struct conn *last; /* looked up last */
	uint32_t conn_count;
	uint64_t conn_next_id;
};

/* ---- out ---- */

static bool buf_reserve(struct conn_buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 4096;
	uint8_t *p;

	while (cap < b->len + more)
		cap *= 2;
	if (cap == b->cap)
		return true;
	p = realloc(b->p, cap);
	if (!p)
		return false;
	b->p = p;
	b->cap = cap;
	return true;
}

static void conn_dirty(struct conn *c)
{
	struct serve *s = c->md->serve;

	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = s->dirty;
	s->dirty = c;
}

static void send_frame(struct metad *md, const struct reply_to *to, int status,
		       bool prefix, const void *body, size_t len)
{
	struct conn *c = serve_conn(md, to->conn_id);
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = to->op,
				 .flags = WIRE_F_REPLY,
				 .status = status_to_wire(status),
				 .request_id = to->request_id,
				 .cluster_id = md->cluster_id,
				 .epoch = md->epoch,
				 .session = to->session };
	struct meta_rhdr r = { .boot_id = md->boot_id,
			       .pos = sm_pos(md->sm),
			       .durable = metad_durable(md) };
	size_t prefix_len = prefix ? meta_rhdr_size(&r) : 0;
	struct wire_out o;
	uint8_t *at, *rest;

	if (status != 0)
		stats_count(&md->stats.errors, 1);
	if (!c || c->closing)
		return;
	if (!buf_reserve(&c->out, frame_out_size(c->seal, prefix_len + len))) {
		serve_conn_close(c);
		return;
	}
	at = c->out.p + c->out.len;
	rest = at + frame_out_rest(c->seal);
	wire_out_init(&o, rest, prefix_len + len);
	if (prefix)
		meta_rhdr_encode(&o, &r);
	wire_put_raw(&o, body, len);
	assert(!o.overflow && o.len <= FRAME_BODY_MAX);
	h.body_len = (uint32_t)o.len;
	h.body_crc = crc32c(0, rest, o.len);
	wire_header_encode(&h, at);
	frame_out_seal(c->seal, at, o.len);
	c->out.len += frame_out_size(c->seal, o.len);
	conn_dirty(c);
}

void serve_reply_plain(struct metad *md, const struct reply_to *to, int status,
		       const void *body, size_t len)
{
	send_frame(md, to, status, false, body, len);
}

void serve_reply(struct metad *md, const struct reply_to *to, int status,
		 const void *body, size_t len)
{
	if (status != 0)
		send_frame(md, to, status, false, NULL, 0);
	else
		send_frame(md, to, 0, true, body, len);
}

/* ---- connections ---- */

struct conn *serve_conn(struct metad *md, uint64_t id)
{
	struct serve *s = md->serve;
	struct conn *c = s->last;

	if (c && c->id == id)
		return c;
	for (c = s->conns; c && c->id != id; c = c->next)
		;
	if (c)
		s->last = c;
	return c;
}

bool serve_session_connected(struct metad *md, uint64_t session)
{
	const struct conn *c;

	for (c = md->serve->conns; c; c = c->next)
		if (!c->closing && c->role == WIRE_ROLE_CLIENT &&
		    c->session == session)
			return true;
	return false;
}

static void list_remove(struct conn **p, struct conn *c, size_t next_off)
{
	while (*p && *p != c)
		p = (struct conn **)(void *)((char *)*p + next_off);
	if (*p)
		*p = *(struct conn **)(void *)((char *)c + next_off);
}

static void conn_closed(uv_handle_t *h)
{
	struct conn *c = h->data;
	struct serve *s = c->md->serve;

	if (s->last == c)
		s->last = NULL;
	list_remove(&s->conns, c, offsetof(struct conn, next));
	s->conn_count--;
	request_conn_gone(c);
	frame_free(c->kept);
	frame_in_fini(&c->in);
	seal_free(c->seal);
	free(c->out.p);
	free(c->flight.p);
	free(c);
}

/* Really closes; what is not in the kernel yet is lost. */
static void conn_shut(struct conn *c)
{
	struct serve *s = c->md->serve;

	if (uv_is_closing((uv_handle_t *)&c->sock.stream))
		return;
	c->closing = true;
	if (c->dirty)
		list_remove(&s->dirty, c, offsetof(struct conn, dirty_next));
	if (c->stopped)
		list_remove(&s->stopped, c,
			    offsetof(struct conn, stopped_next));
	c->dirty = c->stopped = false;
	uv_close((uv_handle_t *)&c->sock.stream, conn_closed);
}

void serve_conn_close(struct conn *c)
{
	if (c->closing)
		return;
	c->closing = true;
	if (c->reading)
		(void)uv_read_stop(&c->sock.stream);
	c->reading = false;
	conn_dirty(c); /* serve_flush() ends it */
}

void serve_close_older(struct metad *md, uint8_t role, uint32_t peer_id,
		       uint64_t session, uint64_t incarnation)
{
	struct conn *c;

	for (c = md->serve->conns; c; c = c->next)
		if (c->hello && !c->closing && c->role == role &&
		    c->peer_id == peer_id && c->session == session &&
		    c->incarnation < incarnation)
			serve_conn_close(c);
}

void serve_close_session(struct metad *md, uint64_t session)
{
	struct conn *c;

	for (c = md->serve->conns; c; c = c->next)
		if (c->role == WIRE_ROLE_CLIENT && c->session == session)
			serve_conn_close(c);
}

/* ---- in ---- */

static bool conn_full(const struct conn *c)
{
	if (c->out.len + c->flight.len > OUT_BYTES_MAX || c->held > HELD_MAX)
		return true;
	/* What waits to be committed waits for the other metads' answers. */
	return c->role != WIRE_ROLE_METAD && metaraft_busy(c->md->raft);
}

static void conn_stop(struct conn *c)
{
	struct serve *s = c->md->serve;

	if (c->reading)
		(void)uv_read_stop(&c->sock.stream);
	c->reading = false;
	if (c->stopped)
		return;
	c->stopped = true;
	c->stopped_next = s->stopped;
	s->stopped = c;
}

/* A stranger's frame that is larger than a HELLO. */
static bool is_excessive(const struct conn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);

	return !c->hello && (h->body_len > HELLO_BODY_MAX || h->data_len > 0);
}

/* After frame_in_next(): what the handshake says is sent; from its end on
 * frames are sealed. */
static void conn_greet(struct conn *c)
{
	const void *out;
	size_t len = frame_in_out(&c->in, &out);

	if (len > 0 && !buf_reserve(&c->out, len)) {
		serve_conn_close(c);
		return;
	}
	if (len > 0) {
		memcpy(c->out.p + c->out.len, out, len);
		c->out.len += len;
		conn_dirty(c);
	}
	if (!frame_in_greeted(&c->in))
		return;
	c->greeted = true;
	c->seal = frame_in_sealer(&c->in);
}

static void conn_bad(struct conn *c, int err)
{
	stats_count(&c->md->stats.bad_frames, 1);
	diag_warn("serve", "event=bad-frame peer=%s name=\"%s\" error=%d",
		  c->peer, c->name, -err);
}

void serve_other_version(const struct conn *c, const char *theirs)
{
	char ours[PROTO_TEXT_SIZE];

	stats_count(&c->md->stats.refused, 1);
	diag_warn("serve", "event=other-version peer=%s theirs=%s ours=%s "
		  "action=close", c->peer, theirs, proto_ours_text(ours));
}

struct hello_reply serve_hello_reply(const struct metad *md)
{
	struct hello_reply r = proto_reply(WIRE_ROLE_METAD, "hail-metad");

	r.boot_id = md->boot_id;
	r.peer_id = md->self->id;
	return r;
}

/* A frame of another major: who sent it is told. */
static void conn_other_version(struct conn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);
	struct hello_reply r = serve_hello_reply(c->md);
	char theirs[PROTO_TEXT_SIZE];

	serve_other_version(c, proto_frame_text(h, theirs));
	if (!c->hello && buf_reserve(&c->out, PROTO_REFUSAL_SIZE))
		c->out.len += proto_refusal(h, &r, c->seal,
					    c->out.p + c->out.len);
}

/* The next frame, or what was kept: as frame_in_next(). */
static int conn_next(struct conn *c, struct frame **f)
{
	int rv;

	if (c->kept) {
		*f = c->kept;
		c->kept = NULL;
		return 1;
	}
	rv = frame_in_next(&c->in, f);
	if (!c->greeted)
		conn_greet(c);
	return rv;
}

/* Handles what has arrived whole. */
static void conn_frames(struct conn *c)
{
	struct frame *f;
	int rv = 0;

	while (!c->closing) {
		if (conn_full(c)) {
			conn_stop(c);
			return;
		}
		rv = conn_next(c, &f);
		if (rv <= 0)
			break;
		if (request_must_wait(c, f)) {
			c->kept = f;
			conn_stop(c);
			return;
		}
		c->md->activity++;
		rv = request_frame(c, f);
		frame_free(f);
		if (rv < 0)
			break;
	}
	if (rv == 0 && is_excessive(c))
		rv = -EBADMSG;
	if (c->closing || rv >= 0)
		return;
	if (rv == -EPROTONOSUPPORT && c->greeted)
		conn_other_version(c);
	else if (rv != -ENOMEM)
		conn_bad(c, rv);
	serve_conn_close(c);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
	struct conn *c = h->data;
	struct iovec iov[FRAME_IN_IOV_MAX];

	(void)suggested;
	if (frame_in_space(&c->in, iov) > 0)
		*buf = uv_buf_init(iov[0].iov_base,
				   (unsigned)u64_min(iov[0].iov_len,
						     UINT32_MAX));
	else
		*buf = uv_buf_init(NULL, 0);
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
	struct conn *c = stream->data;

	(void)buf;
	if (len < 0) {
		conn_shut(c);
		return;
	}
	frame_in_fed(&c->in, (size_t)len);
	if (len == 0)
		return;
	/* This turn's time may be of long before it was sent: a lease counted
	 * from there would be over here before it is there. */
	uv_update_time(&c->md->loop);
	conn_frames(c);
}

void serve_resume(struct serve *s)
{
	struct conn *c = s->stopped, *next;

	s->stopped = NULL;
	for (; c; c = next) {
		next = c->stopped_next;
		c->stopped = false;
		conn_frames(c);
		if (c->stopped || c->closing || c->reading)
			continue;
		if (uv_read_start(&c->sock.stream, on_alloc, on_read) <
		    0)
			conn_shut(c);
		else
			c->reading = true;
	}
}

static void tcp_name(struct conn *c)
{
	struct sockaddr_storage sa;
	int len = sizeof(sa);
	char host[48] = "?", port[8] = "?";

	if (uv_tcp_getpeername(&c->sock.tcp, (struct sockaddr *)&sa, &len) ==
	    0)
		(void)getnameinfo((struct sockaddr *)&sa, (socklen_t)len, host,
				  sizeof(host), port, sizeof(port),
				  NI_NUMERICHOST | NI_NUMERICSERV);
	(void)snprintf(c->peer, sizeof(c->peer), "%s:%s", host, port);
}

static void local_name(struct conn *c, int fd)
{
	struct ucred cred = { .pid = 0 };
	socklen_t len = sizeof(cred);

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	(void)snprintf(c->peer, sizeof(c->peer), "pid:%d", (int)cred.pid);
}

/* Of the listener's kind. */
static int sock_init(struct conn *c, const uv_stream_t *listener)
{
	if (listener == (uv_stream_t *)&c->md->serve->local)
		return uv_pipe_init(&c->md->loop, &c->sock.pipe, 0);
	return uv_tcp_init(&c->md->loop, &c->sock.tcp);
}

static void sock_tune(struct conn *c, const uv_stream_t *listener)
{
	uv_os_fd_t fd;

	if (listener == (uv_stream_t *)&c->md->serve->local) {
		if (uv_fileno((uv_handle_t *)&c->sock.pipe, &fd) == 0) {
			local_sock_tune(fd);
			local_name(c, fd);
		}
		return;
	}
	(void)uv_tcp_nodelay(&c->sock.tcp, 1);
	(void)uv_tcp_keepalive(&c->sock.tcp, 1, 30);
	tcp_name(c);
}

static void on_connection(uv_stream_t *listener, int status);

static void refused(uv_handle_t *h)
{
	struct refusal *f = h->data;
	struct serve *s = f->listener->data;
	bool again = f->again && !s->closing;

	f->busy = f->again = false;
	if (again)
		on_connection(f->listener, 0);
}

/* What was not accepted stops libuv from listening, for good. */
static void refuse(struct serve *s, uv_stream_t *listener)
{
	bool local = listener == (uv_stream_t *)&s->local;
	struct refusal *f = local ? &s->refuse_local : &s->refuse_tcp;

	f->listener = listener;
	f->again = f->busy;
	if (f->busy)
		return;
	if ((local ? uv_pipe_init(&s->md->loop, &f->sock.pipe, 0) :
		     uv_tcp_init(&s->md->loop, &f->sock.tcp)) < 0)
		return;
	f->busy = true;
	f->sock.stream.data = f;
	stats_count(&s->md->stats.refused, 1);
	diag_warn("serve", "event=refused error=\"%s\"", strerror(ENOMEM));
	(void)uv_accept(listener, &f->sock.stream);
	uv_close((uv_handle_t *)&f->sock.stream, refused);
}

static struct conn *conn_new(struct serve *s, const uv_stream_t *listener)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->md = s->md;
	if (frame_in_init(&c->in, 0, NULL) < 0 || sock_init(c, listener) < 0) {
		frame_in_fini(&c->in);
		free(c);
		return NULL;
	}
	return c;
}

/* Room for one more: who was accepted first and has not said who it is goes.
 * Returns false when there is none. */
static bool stranger_out(struct serve *s)
{
	struct conn *c, *oldest = NULL;

	for (c = s->conns; c; c = c->next)
		if (!c->hello && !c->closing)
			oldest = c;
	if (!oldest)
		return false;
	stats_count(&s->md->stats.refused, 1);
	conn_shut(oldest);
	return true;
}

/* Returns 0 or -errno: it is not let in. */
static int greet_begin(struct conn *c)
{
	struct greet *g;
	uv_os_fd_t fd;
	int rv = uv_fileno((uv_handle_t *)&c->sock.stream, &fd);

	if (rv == 0)
		rv = gate_accept(c->md->conf->gate, fd, &g);
	if (rv < 0) {
		conn_bad(c, rv);
		return rv;
	}
	if (g)
		frame_in_greet(&c->in, g);
	return 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct serve *s = listener->data;
	bool full = false;
	struct conn *c;

	if (status < 0 || s->closing)
		return;
	c = conn_new(s, listener);
	if (!c) {
		refuse(s, listener);
		return;
	}
	if (s->conn_count >= CONNS_MAX && !stranger_out(s))
		full = true;
	c->sock.stream.data = c;
	c->id = ++s->conn_next_id;
	c->since_ms = uv_now(&s->md->loop);
	c->next = s->conns;
	s->conns = c;
	s->conn_count++;
	if (uv_accept(listener, &c->sock.stream) < 0 || full) {
		conn_shut(c);
		return;
	}
	stats_count(&s->md->stats.connections, 1);
	sock_tune(c, listener);
	if (greet_begin(c) < 0) {
		conn_shut(c);
		return;
	}
	if (uv_read_start(&c->sock.stream, on_alloc, on_read) < 0)
		conn_shut(c);
	else
		c->reading = true;
}

/* ---- once a turn ---- */

static void on_written(uv_write_t *req, int status)
{
	struct conn *c = req->data;

	c->writing = false;
	c->flight.len = 0;
	if (status < 0 && status != UV_ECANCELED)
		conn_shut(c);
	else if (c->out.len && !c->closing)
		conn_dirty(c);
}

static void flush_conn(struct conn *c)
{
	struct conn_buf t;
	uv_buf_t buf;
	int n;

	if (c->writing || c->out.len == 0)
		return;
	t = c->flight;
	c->flight = c->out;
	c->out = t;
	buf = uv_buf_init((char *)c->flight.p, (unsigned)c->flight.len);
	n = uv_try_write(&c->sock.stream, &buf, 1);
	if (n == (int)c->flight.len) {
		c->flight.len = 0;
		return;
	}
	if (n < 0 && n != UV_EAGAIN) {
		c->flight.len = 0;
		conn_shut(c);
		return;
	}
	if (n > 0) {
		buf.base += n;
		buf.len -= (size_t)n;
	}
	c->write.data = c;
	c->writing = true;
	if (uv_write(&c->write, &c->sock.stream, &buf, 1, on_written) <
	    0) {
		c->writing = false;
		conn_shut(c);
	}
}

void serve_flush(struct serve *s)
{
	struct conn *c;

	while ((c = s->dirty)) {
		s->dirty = c->dirty_next;
		c->dirty = false;
		flush_conn(c);
		if (c->closing)
			conn_shut(c);
	}
}

/* ---- strangers ---- */

/* Who is silent must not keep others out. */
static void on_sweep(uv_timer_t *t)
{
	struct serve *s = t->data;
	uint64_t now = uv_now(&s->md->loop);
	struct conn *c;

	for (c = s->conns; c; c = c->next)
		if (!c->hello && now - c->since_ms > HELLO_MS)
			conn_shut(c);
}

/* ---- life ---- */

int serve_new(struct metad *md, struct serve **ret)
{
	struct serve *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->md = md;
	*ret = s;
	return 0;
}

/* TCP stays when this fails. */
static void listen_local(struct serve *s)
{
	struct sockaddr_storage ss;
	int fd, len = sizeof(ss);

	if (uv_tcp_getsockname(&s->listener, (struct sockaddr *)&ss, &len) < 0)
		return;
	fd = local_sock_listen((struct sockaddr *)&ss, BACKLOG);
	if (fd < 0)
		return;
	if (uv_pipe_init(&s->md->loop, &s->local, 0) < 0) {
		close(fd);
		return;
	}
	s->listening_local = true;
	s->local.data = s;
	if (uv_pipe_open(&s->local, fd) < 0)
		close(fd);
	else
		(void)uv_listen((uv_stream_t *)&s->local, BACKLOG,
				on_connection);
}

int serve_listen(struct serve *s, const char *addr, uint16_t port)
{
	struct resolved_list list;
	int rv = resolve_wait(addr, port, &list);

	if (rv < 0)
		return rv;
	rv = gate_listen(s->md->conf->gate, (void *)&list.addrs[0].ss);
	if (rv == 0)
		rv = uv_timer_init(&s->md->loop, &s->sweep);
	if (rv == 0) {
		s->sweeping = true;
		s->sweep.data = s;
		(void)uv_timer_start(&s->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
		rv = uv_tcp_init(&s->md->loop, &s->listener);
	}
	if (rv == 0) {
		s->listening = true;
		s->listener.data = s;
		rv = uv_tcp_bind(&s->listener, (void *)&list.addrs[0].ss, 0);
	}
	if (rv == 0)
		rv = uv_listen((uv_stream_t *)&s->listener, BACKLOG,
			       on_connection);
	if (rv == 0)
		listen_local(s);
	return rv;
}

void serve_close(struct serve *s)
{
	struct conn *c;

	if (s->closing)
		return;
	s->closing = true;
	if (s->sweeping)
		uv_close((uv_handle_t *)&s->sweep, NULL);
	if (s->listening)
		uv_close((uv_handle_t *)&s->listener, NULL);
	if (s->listening_local)
		uv_close((uv_handle_t *)&s->local, NULL);
	for (c = s->conns; c; c = c->next)
		if (c->role != WIRE_ROLE_METAD)
			serve_conn_close(c);
	serve_flush(s);
}

void serve_end(struct serve *s)
{
	struct conn *c;

	serve_close(s);
	for (c = s->conns; c; c = c->next)
		serve_conn_close(c);
	serve_flush(s);
}

void serve_free(struct serve *s)
{
	free(s);
}
