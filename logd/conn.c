#include "logd/conn.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/diag.h"
#include "common/frame_out.h"
#include "common/frame_pool.h"
#include "common/local_sock.h"
#include "common/proto.h"
#include "common/resolve.h"
#include "common/stats.h"

#define LISTEN_BACKLOG 256
#define ACCEPT_COUNT_MAX 16 /* a turn */
/* Out of file descriptors: try to accept again after this. */
#define ACCEPT_RETRY_MS 200u
/* A stranger's frames, and silence. */
#define HELLO_BODY_MAX 4096u
#define HELLO_MS 10000u
/* A peer that does not read, or is silent in the middle of a frame. */
#define STUCK_MS 30000u
#define SWEEP_MS 5000u
/* Sweeps without a frame after which buffers are given to the kernel. */
#define IDLE_SWEEPS 6u
/* Replies that wait; above it nothing more is read. */
#define OUT_MAX (2u << 20)
#define OUT_KEEP (64u << 10)

/* TCP, and peers on this machine (common/local_sock.h). */
#define LISTENERS 2

struct listener {
	struct loop_fd fd; /* -1: none */
	struct lconn_set *set;
	struct loop_timer retry;
	bool local;
};

struct lconn_set {
	struct loop *loop;
	struct gate *gate;
	unsigned conn_max;
	const struct lconn_ops *ops;
	void *arg;
	struct lconn_stats n;
	uint16_t port;
	struct listener listeners[LISTENERS];
	struct loop_timer sweep;
	uint64_t idle_frames;
	unsigned idle_sweeps;
	struct lconn *conns, *dirty, *gone;
};

struct lconn {
	struct lconn_set *set;
	struct loop_fd fd;
	struct lconn *next, *prev, *dirty_next;
	void *user;
	struct frame_in in;
	struct seal *seal; /* NULL: frames are not sealed */
	bool greeted; /* so @seal is known */
	struct frame *held;
	uint8_t *out;
	size_t out_off, out_len, out_cap; /* [off, len) is to be sent */
	uint32_t events; /* watched */
	bool dirty, closed, trusted, ending;
	bool stuck; /* the socket did not take all of it */
	bool full; /* frames wait until it has */
	uint64_t since_ms; /* accepted; last progress of sending */
	uint64_t recv_ms;
	char name[64];
};

static void pump(struct lconn *c);

/* ---- life ---- */

void *lconn_arg(const struct lconn *c)
{
	return c->set->arg;
}

void *lconn_user(const struct lconn *c)
{
	return c->user;
}

void lconn_set_user(struct lconn *c, void *user)
{
	c->user = user;
}

const char *lconn_name(const struct lconn *c)
{
	return c->name;
}

void lconn_trust(struct lconn *c)
{
	c->trusted = true;
}

bool lconn_is_closed(const struct lconn *c)
{
	return c->closed;
}

void lconn_close(struct lconn *c)
{
	struct lconn_set *s = c->set;

	if (c->closed)
		return;
	c->closed = true;
	stats_count(&s->n.closed, 1);
	stats_set(&s->n.open, s->n.open - 1);
	loop_del(s->loop, &c->fd);
	close(c->fd.fd);
	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	s->ops->closed(c);
	c->next = s->gone;
	s->gone = c;
}

static void mark_dirty(struct lconn *c)
{
	if (c->dirty)
		return;
	c->dirty = true;
	c->dirty_next = c->set->dirty;
	c->set->dirty = c;
}

void lconn_close_after_send(struct lconn *c)
{
	c->ending = true;
	mark_dirty(c);
}

static void conn_free(struct lconn *c)
{
	frame_free(c->held);
	frame_in_fini(&c->in);
	seal_free(c->seal);
	free(c->out);
	free(c);
}

static bool is_full(const struct lconn *c)
{
	return c->out_len - c->out_off > OUT_MAX;
}

/* Watches for what can be used. */
static void watch(struct lconn *c)
{
	uint32_t events = 0;

	if (c->closed)
		return;
	if (!c->held && !c->ending && !c->full)
		events |= EPOLLIN;
	if (c->stuck)
		events |= EPOLLOUT;
	if (events == c->events)
		return;
	c->events = events;
	loop_change(c->set->loop, &c->fd, events);
}

/* ---- sending ---- */

/* NULL: closed. */
static uint8_t *out_room(struct lconn *c, size_t len)
{
	size_t cap = c->out_cap ? c->out_cap : 4096;
	uint8_t *p;

	if (c->closed)
		return NULL;
	while (cap < c->out_len + len)
		cap *= 2;
	if (cap != c->out_cap) {
		p = realloc(c->out, cap);
		if (!p) {
			lconn_close(c);
			return NULL;
		}
		c->out = p;
		c->out_cap = cap;
	}
	p = c->out + c->out_len;
	c->out_len += len;
	mark_dirty(c);
	return p;
}

uint8_t *lconn_frame(struct lconn *c, size_t len, uint8_t **rest)
{
	uint8_t *p = out_room(c, frame_out_size(c->seal, len));

	if (p)
		*rest = p + frame_out_rest(c->seal);
	return p;
}

void lconn_frame_end(struct lconn *c, uint8_t *frame, size_t len)
{
	frame_out_seal(c->seal, frame, len);
}

static void send_some(struct lconn *c)
{
	ssize_t n;

	if (c->closed || c->out_len == c->out_off)
		return;
	n = send(c->fd.fd, c->out + c->out_off, c->out_len - c->out_off,
		 MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		lconn_close(c);
		return;
	}
	c->stuck = n <= 0;
	if (c->stuck)
		return;
	stats_count(&c->set->n.bytes_out, (uint64_t)n);
	c->out_off += (size_t)n;
	c->since_ms = loop_now_ms(c->set->loop);
	c->stuck = c->out_off < c->out_len;
	if (c->stuck)
		return;
	c->out_off = c->out_len = 0;
	if (c->out_cap > OUT_KEEP) {
		free(c->out);
		c->out = NULL;
		c->out_cap = 0;
	}
}

void lconn_set_flush(struct lconn_set *s)
{
	struct lconn *c;

	while ((c = s->dirty)) {
		s->dirty = c->dirty_next;
		c->dirty = false;
		send_some(c);
		/* Frames that had to wait may be here already: no event comes
		 * for those. */
		if (c->full && !is_full(c))
			pump(c);
		if (c->ending && c->out_len == c->out_off)
			lconn_close(c);
		watch(c);
	}
	while ((c = s->gone)) {
		s->gone = c->next;
		conn_free(c);
	}
}

/* ---- receiving ---- */

/* A stranger may send one small frame. */
static bool is_excessive(const struct lconn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);

	return !c->trusted && (h->body_len > HELLO_BODY_MAX || h->data_len > 0);
}

static const char *bad_word(int err)
{
	switch (err) {
	case 0:
		return "size";
	case -EBADMSG:
		return "checksum";
	case -EKEYREJECTED:
		return "key";
	case -EPROTONOSUPPORT:
		return "version";
	default:
		return "memory";
	}
}

/* A frame of another major: who sent it is told. */
static void other_version(struct lconn *c)
{
	const struct wire_header *h = frame_in_header(&c->in);
	struct hello_reply r = proto_reply(WIRE_ROLE_LOGD, "hail-logd");
	char theirs[PROTO_TEXT_SIZE], ours[PROTO_TEXT_SIZE];
	uint8_t frame[PROTO_REFUSAL_SIZE], *p = NULL;
	size_t len;

	diag_warn("conn", "what=other-version peer=%s theirs=%s ours=%s "
		  "action=close", c->name, proto_frame_text(h, theirs),
		  proto_ours_text(ours));
	if (!c->trusted) {
		len = proto_refusal(h, &r, c->seal, frame);
		p = out_room(c, len);
		if (p)
			memcpy(p, frame, len);
	}
	if (p)
		lconn_close_after_send(c);
	else
		lconn_close(c);
}

static void bad_frame(struct lconn *c, int err)
{
	stats_count(&c->set->n.bad_frames, 1);
	if (err == -EPROTONOSUPPORT && c->greeted) {
		other_version(c);
		return;
	}
	diag_warn("conn", "what=bad-frame peer=%s reason=%s action=close",
		  c->name, bad_word(err));
	if (c->greeted)
		lconn_close(c);
	else
		lconn_close_after_send(c); /* it is told why */
}

/* After frame_in_next(): what the handshake says is sent; from its end on
 * frames are sealed. Returns 0, or -ENOMEM and it is closed. */
static int greet_on(struct lconn *c)
{
	const void *out;
	size_t len = frame_in_out(&c->in, &out);
	uint8_t *p = len > 0 ? out_room(c, len) : NULL;

	if (len > 0 && !p)
		return -ENOMEM;
	if (p)
		memcpy(p, out, len);
	if (!frame_in_greeted(&c->in))
		return 0;
	c->greeted = true;
	c->seal = frame_in_sealer(&c->in);
	return 0;
}

/* Takes the next frame to c->held. False: there is none now. */
static bool next_frame(struct lconn *c)
{
	int rv = frame_in_next(&c->in, &c->held);

	if (!c->greeted && greet_on(c) < 0)
		return false;
	if (rv == 1) {
		stats_count(&c->set->n.frames_in, 1);
		return true;
	}
	if (rv < 0 || is_excessive(c))
		bad_frame(c, rv);
	return false;
}

static void pump(struct lconn *c)
{
	struct frame *f;

	c->full = is_full(c);
	while (!c->closed && !c->ending && !c->full &&
	       (c->held || next_frame(c))) {
		f = c->held;
		c->held = NULL;
		if (!c->set->ops->frame(c, f)) {
			c->held = f;
			break;
		}
		frame_free(f);
		c->full = is_full(c);
	}
	watch(c);
}

static void on_readable(struct lconn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	msg.msg_iovlen = (size_t)frame_in_space(&c->in, iov);
	n = recvmsg(c->fd.fd, &msg, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lconn_close(c);
		return;
	}
	stats_count(&c->set->n.bytes_in, (uint64_t)n);
	c->recv_ms = loop_now_ms(c->set->loop);
	frame_in_fed(&c->in, (size_t)n);
	pump(c);
}

static void on_event(struct loop_fd *fd, uint32_t events)
{
	struct lconn *c = container_of(fd, struct lconn, fd);

	/* Sending is the end of the turn's. */
	if (events & EPOLLOUT)
		mark_dirty(c);
	if (events & EPOLLIN && c->events & EPOLLIN)
		on_readable(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		lconn_close(c);
}

void lconn_set_resume(struct lconn_set *s)
{
	struct lconn *c = s->conns, *next;

	for (; c; c = next) {
		next = c->next;
		if (c->held)
			pump(c);
		/* It may have closed others: those are in @gone, whose next
		 * leads elsewhere. */
		if (next && next->closed)
			next = s->conns;
	}
}

/* ---- accepting ---- */

static void tune(int fd, bool local)
{
	int one = 1, idle_s = 10, interval_s = 3, probes = 3;

	if (local) {
		local_sock_tune(fd);
		return;
	}
	/* Improvements, all of which we can live without. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s,
			 sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
			 sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes,
			 sizeof(probes));
}

static void peer_name(int fd, const struct sockaddr_storage *ss, socklen_t len,
		      char *name, size_t size)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct ucred cred;
	socklen_t cred_len = sizeof(cred);

	if (ss->ss_family == AF_UNIX &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_len) == 0)
		snprintf(name, size, "pid:%d", (int)cred.pid);
	else if (getnameinfo((const struct sockaddr *)ss, len, host,
			     sizeof(host), port, sizeof(port),
			     NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(name, size, "%.48s:%.8s", host, port);
	else
		snprintf(name, size, "unknown");
}

static int conn_new(struct lconn_set *s, int fd)
{
	struct lconn *c = calloc(1, sizeof(*c));
	struct greet *greet = NULL;
	int rv;

	if (!c)
		return -ENOMEM;
	rv = gate_accept(s->gate, fd, &greet);
	if (rv == 0)
		rv = frame_in_init(&c->in, 0, &frame_pool_bufs);
	if (rv < 0) {
		greet_free(greet);
		free(c);
		return rv;
	}
	if (greet)
		frame_in_greet(&c->in, greet);
	c->set = s;
	c->fd.fn = on_event;
	c->fd.fd = fd;
	c->events = EPOLLIN;
	c->since_ms = c->recv_ms = loop_now_ms(s->loop);
	rv = loop_add(s->loop, &c->fd, EPOLLIN);
	if (rv < 0) {
		conn_free(c);
		return rv;
	}
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	stats_count(&s->n.open, 1);
	return 0;
}

/* Room for one more: who was accepted first and has not said who it is goes.
 * Returns false when there is none. */
static bool stranger_out(struct lconn_set *s)
{
	struct lconn *oldest = NULL;

	for (struct lconn *c = s->conns; c; c = c->next)
		if (!c->trusted)
			oldest = c;
	if (!oldest)
		return false;
	stats_count(&s->n.refused, 1);
	lconn_close(oldest);
	return true;
}

static void accepted(struct listener *l, int fd,
		     const struct sockaddr_storage *ss, socklen_t len)
{
	struct lconn_set *s = l->set;
	char name[64];

	peer_name(fd, ss, len, name, sizeof(name));
	stats_count(&s->n.accepted, 1);
	tune(fd, l->local);
	if ((s->n.open >= s->conn_max && !stranger_out(s)) ||
	    conn_new(s, fd) < 0) {
		stats_count(&s->n.refused, 1);
		diag_warn("conn", "what=refused peer=%s open=%llu limit=%u",
			  name, (unsigned long long)s->n.open, s->conn_max);
		close(fd);
		return;
	}
	memcpy(s->conns->name, name, sizeof(name));
}

static void accept_again(struct loop_timer *t)
{
	struct listener *l = container_of(t, struct listener, retry);

	loop_change(l->set->loop, &l->fd, EPOLLIN);
}

static void on_accept(struct loop_fd *fd, uint32_t events)
{
	struct listener *l = container_of(fd, struct listener, fd);
	struct sockaddr_storage ss;
	socklen_t len;
	int conn_fd;

	(void)events;
	for (int i = 0; i < ACCEPT_COUNT_MAX; i++) {
		len = sizeof(ss);
		conn_fd = accept4(fd->fd, (struct sockaddr *)&ss, &len,
				  SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (conn_fd >= 0) {
			accepted(l, conn_fd, &ss, len);
			continue;
		}
		if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
			return;
		diag_warn("conn", "what=accept error=\"%s\" action=retry",
			  strerror(errno));
		loop_change(l->set->loop, fd, 0);
		loop_timer_start(l->set->loop, &l->retry, ACCEPT_RETRY_MS);
		return;
	}
}

/* ---- the set ---- */

static bool is_overdue(const struct lconn *c, uint64_t now_ms)
{
	if (!c->trusted)
		return now_ms - c->since_ms > HELLO_MS;
	if (c->out_len > c->out_off && now_ms - c->since_ms > STUCK_MS)
		return true;
	return c->events & EPOLLIN && frame_in_partial(&c->in) &&
	       now_ms - c->recv_ms > STUCK_MS;
}

static void on_sweep(struct loop_timer *t)
{
	struct lconn_set *s = container_of(t, struct lconn_set, sweep);
	uint64_t now_ms = loop_now_ms(s->loop);
	struct lconn *c, *next;

	for (c = s->conns; c; c = next) {
		next = c->next;
		if (!is_overdue(c, now_ms))
			continue;
		stats_count(&s->n.timeouts, 1);
		diag_info("conn", "what=timeout peer=%s action=close",
			  c->name);
		lconn_close(c);
	}
	if (s->n.frames_in != s->idle_frames)
		s->idle_sweeps = 0;
	else if (++s->idle_sweeps == IDLE_SWEEPS)
		frame_pool_trim();
	s->idle_frames = s->n.frames_in;
	loop_timer_start(s->loop, t, SWEEP_MS);
}

static int listen_at(struct lconn_set *s, const char *addr, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct resolved_list list;
	struct resolved *at = &list.addrs[0];
	int fd, one = 1, rv;

	rv = resolve_wait(addr, port, &list);
	if (rv == 0)
		rv = gate_listen(s->gate, (struct sockaddr *)&at->ss);
	if (rv < 0)
		return rv;
	fd = socket(at->ss.ss_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&at->ss, at->len) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&ss, &len) < 0) {
		rv = -errno;
		if (fd >= 0)
			close(fd);
		return rv;
	}
	s->port = ntohs(ss.ss_family == AF_INET6 ?
			((struct sockaddr_in6 *)&ss)->sin6_port :
			((struct sockaddr_in *)&ss)->sin_port);
	s->listeners[0].fd.fd = fd;
	s->listeners[1].fd.fd = local_sock_listen((struct sockaddr *)&ss,
						  LISTEN_BACKLOG);
	if (s->listeners[1].fd.fd >= 0)
		(void)fcntl(s->listeners[1].fd.fd, F_SETFL, O_NONBLOCK);
	return 0;
}

int lconn_set_new(struct loop *l, struct gate *gate, const char *addr,
		  uint16_t port, unsigned conn_max,
		  const struct lconn_ops *ops, void *arg,
		  struct lconn_set **ret, char *why, size_t why_size)
{
	struct lconn_set *s = calloc(1, sizeof(*s));
	int rv = -ENOMEM;

	if (s) {
		s->gate = gate;
		rv = listen_at(s, addr, port);
	}
	if (rv < 0) {
		snprintf(why, why_size, "cannot listen at %s:%u: %s", addr,
			 port, daemon_listen_error(rv));
		free(s);
		return rv;
	}
	s->loop = l;
	s->conn_max = conn_max;
	s->ops = ops;
	s->arg = arg;
	for (unsigned i = 0; i < LISTENERS; i++) {
		struct listener *at = &s->listeners[i];

		at->set = s;
		at->local = i == 1;
		at->fd.fn = on_accept;
		at->retry.fn = accept_again;
		if (at->fd.fd < 0)
			continue;
		rv = loop_add(l, &at->fd, EPOLLIN);
		if (rv < 0) {
			snprintf(why, why_size, "epoll: %s", strerror(-rv));
			lconn_set_close(s);
			lconn_set_free(s);
			return rv;
		}
	}
	s->sweep.fn = on_sweep;
	loop_timer_start(l, &s->sweep, SWEEP_MS);
	*ret = s;
	return 0;
}

void lconn_set_close(struct lconn_set *s)
{
	struct lconn *c;

	loop_timer_stop(s->loop, &s->sweep);
	for (unsigned i = 0; i < LISTENERS; i++) {
		struct listener *at = &s->listeners[i];

		loop_timer_stop(s->loop, &at->retry);
		if (at->fd.fd < 0)
			continue;
		loop_del(s->loop, &at->fd);
		close(at->fd.fd);
		at->fd.fd = -1;
	}
	while ((c = s->conns)) {
		send_some(c);
		lconn_close(c);
	}
	lconn_set_flush(s);
}

void lconn_set_free(struct lconn_set *s)
{
	free(s);
}

uint16_t lconn_set_port(const struct lconn_set *s)
{
	return s->port;
}

const struct lconn_stats *lconn_set_stats(const struct lconn_set *s)
{
	return &s->n;
}
