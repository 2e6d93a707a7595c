#include "tests/lib/tcp_server.h"

#include "common/crc32c.h"
#include "common/frame_out.h"
#include "common/status.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define GIVE_UP_S 20

static void noreturn_fn fail(const char *what)
{
	fprintf(stderr, "tcp_server: %s: %s\n", what, strerror(errno));
	abort();
}

static void listen_on(struct tcp_server *s)
{
	struct timeval tv = { .tv_sec = GIVE_UP_S };
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(s->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int one = 1;

	s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->listen_fd < 0)
		fail("socket");
	(void)setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one,
			 sizeof(one));
	(void)setsockopt(s->listen_fd, SOL_SOCKET, SO_RCVTIMEO, &tv,
			 sizeof(tv));
	if (bind(s->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		fail("bind");
	if (listen(s->listen_fd, 16) < 0)
		fail("listen");
	if (getsockname(s->listen_fd, (struct sockaddr *)&a, &len) < 0)
		fail("getsockname");
	s->port = ntohs(a.sin_port);
}

void tcp_server_init(struct tcp_server *s)
{
	memset(s, 0, sizeof(*s));
	s->boot_id = 0xb007;
	listen_on(s);
}

void tcp_server_stop(struct tcp_server *s)
{
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	s->listen_fd = -1;
}

void tcp_server_again(struct tcp_server *s)
{
	listen_on(s);
}

void tcp_accept(struct tcp_server *s, struct tcp_conn *c)
{
	struct timeval tv = { .tv_sec = GIVE_UP_S };
	struct greet *greet;
	int one = 1;

	memset(c, 0, sizeof(*c));
	c->s = s;
	c->fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (c->fd < 0)
		fail("accept");
	(void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	(void)setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (frame_in_init(&c->in, 0, NULL) < 0)
		fail("frame_in_init");
	if (gate_accept(s->gate, c->fd, &greet) < 0)
		fail("gate_accept");
	if (greet)
		frame_in_greet(&c->in, greet);
}

void tcp_close(struct tcp_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	frame_in_fini(&c->in);
	seal_free(c->seal);
	c->seal = NULL;
}

/* frame_in_next(), with what the handshake has to say. */
static int next(struct tcp_conn *c, struct frame **f)
{
	bool greeted = frame_in_greeted(&c->in);
	int rv = frame_in_next(&c->in, f);
	const void *out;
	size_t len;

	if (greeted)
		return rv;
	len = frame_in_out(&c->in, &out);
	if (len > 0)
		tcp_write(c, out, len);
	if (frame_in_greeted(&c->in))
		c->seal = frame_in_sealer(&c->in);
	return rv;
}

struct frame *tcp_recv_or_end(struct tcp_conn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame *f;
	ssize_t len;
	int rv;

	while ((rv = next(c, &f)) == 0) {
		len = readv(c->fd, iov, frame_in_space(&c->in, iov));
		if (len == 0 || (len < 0 && errno == ECONNRESET))
			return NULL;
		if (len < 0)
			fail("receive");
		frame_in_fed(&c->in, (size_t)len);
	}
	if (rv < 0) {
		errno = -rv;
		fail("frame");
	}
	return f;
}

struct frame *tcp_recv(struct tcp_conn *c)
{
	struct frame *f = tcp_recv_or_end(c);

	errno = 0;
	if (!f)
		fail("the peer has closed");
	return f;
}

void tcp_wait_end(struct tcp_conn *c)
{
	struct frame *f;

	while ((f = tcp_recv_or_end(c)) != NULL)
		frame_free(f);
}

uint8_t *tcp_encode(struct tcp_conn *c, const struct tcp_reply *r,
		    size_t *len)
{
	const struct tcp_server *s = c->s;
	size_t rest_len = (size_t)r->body_len + r->data_len;
	struct wire_header h = {
		.version = s->version ? s->version : WIRE_VERSION,
		.opcode = r->opcode,
		.flags = WIRE_F_REPLY,
		.status = status_to_wire(r->status),
		.request_id = r->request_id,
		.cluster_id = s->cluster_id,
		.epoch = s->epoch,
		.body_len = r->body_len,
		.data_len = r->data_len,
		.body_crc = crc32c(0, r->body, r->body_len),
	};
	uint8_t *p, *rest;

	*len = frame_out_size(c->seal, rest_len);
	p = malloc(*len);
	if (!p)
		fail("malloc");
	wire_header_encode(&h, p);
	rest = p + frame_out_rest(c->seal);
	if (r->body_len)
		memcpy(rest, r->body, r->body_len);
	if (r->data_len)
		memcpy(rest + r->body_len, r->data, r->data_len);
	frame_out_seal(c->seal, p, rest_len);
	return p;
}

void tcp_write(struct tcp_conn *c, const void *p, size_t len)
{
	const uint8_t *at = p;

	while (len > 0) {
		ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL);

		if (n < 0)
			fail("send");
		at += n;
		len -= (size_t)n;
	}
}

void tcp_reply(struct tcp_conn *c, const struct tcp_reply *r)
{
	size_t len;
	uint8_t *p = tcp_encode(c, r, &len);

	tcp_write(c, p, len);
	free(p);
}

void tcp_answer(struct tcp_conn *c, const struct frame *f, int status)
{
	struct tcp_reply r = { .opcode = f->h.opcode,
			       .request_id = f->h.request_id,
			       .status = status };

	tcp_reply(c, &r);
}

void tcp_accept_hello(struct tcp_server *s, struct tcp_conn *c, int status)
{
	struct hello_reply hr = { .version = WIRE_VERSION,
				  .role = WIRE_ROLE_BLOCKD,
				  .boot_id = s->boot_id,
				  .peer_id = 1,
				  .name = { "test", 4 } };
	uint8_t body[128];
	struct wire_out o;
	struct hello h;
	struct frame *f;
	struct tcp_reply r;

	tcp_accept(s, c);
	f = tcp_recv(c);
	errno = EPROTO;
	if (f->h.opcode != WIRE_OP_HELLO || f->h.flags != 0 ||
	    hello_parse(f->body, f->h.body_len, &h) < 0)
		fail("first frame is no HELLO");
	c->incarnation = h.incarnation;
	c->session = f->h.session;
	wire_out_init(&o, body, sizeof(body));
	hello_reply_encode(&o, &hr);
	r = (struct tcp_reply){ .opcode = WIRE_OP_HELLO,
				.request_id = f->h.request_id,
				.status = status,
				.body = body,
				.body_len = status ? 0 : (uint32_t)o.len };
	tcp_reply(c, &r);
	frame_free(f);
}
