/* Listening and accepting; the set of all connections. */
#include "blockd/conn_priv.h"

#include <liburing.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/diag.h"
#include "common/local_sock.h"
#include "common/resolve.h"

#define LISTEN_BACKLOG 256
/* Out of file descriptors: try to accept again after this. */
#define ACCEPT_RETRY_MS 200u

static void accept_start(struct conn_listener *l)
{
	struct io_uring_sqe *sqe = ring_sqe(l->set->ring, &l->op);

	l->addr_len = sizeof(l->addr);
	l->accepting = true;
	io_uring_prep_accept(sqe, l->fd, (struct sockaddr *)&l->addr,
			     &l->addr_len, SOCK_CLOEXEC);
}

static void accept_again(struct ring_timer *t)
{
	accept_start(container_of(t, struct conn_listener, retry));
}

static void peer_name(const struct conn_listener *l, int fd, char *name,
		      size_t size)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (l->addr.ss_family == AF_UNIX &&
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
		snprintf(name, size, "pid:%d", (int)cred.pid);
	else if (getnameinfo((const struct sockaddr *)&l->addr, l->addr_len,
			     host, sizeof(host), port, sizeof(port),
			     NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(name, size, "%s:%s", host, port);
	else
		snprintf(name, size, "unknown");
}

/* Room for one more: who was accepted first and has not said who it is goes.
 * Returns false when there is none. */
static bool stranger_out(struct conn_set *s)
{
	struct conn *oldest = NULL;

	for (struct conn *c = s->conns; c; c = c->next)
		if (!c->trusted && !c->closed)
			oldest = c;
	if (!oldest)
		return false;
	s->stats.refused++;
	conn_close(oldest);
	return true;
}

static void accepted(struct conn_listener *l, int fd)
{
	struct conn_set *s = l->set;
	char name[NI_MAXHOST + NI_MAXSERV + 1];
	int rv;

	peer_name(l, fd, name, sizeof(name));
	if (l == &s->listeners[1])
		local_sock_tune(fd);
	s->stats.accepted++;
	if (s->stats.open >= s->limits.conn_max && !stranger_out(s)) {
		s->stats.refused++;
		diag_warn("conn", "what=too-many-connections peer=%s limit=%u "
			  "action=refuse", name, s->limits.conn_max);
		close(fd);
		return;
	}
	rv = conn_new(s, fd, name);
	if (rv == 0)
		return;
	if (rv == -ENOMEM)
		s->stats.no_memory++;
	else
		s->stats.refused++;
	diag_warn("conn", "what=%s peer=%s error=\"%s\" action=refuse",
		  rv == -ENOMEM ? "no-memory" : "refused", name,
		  strerror(-rv));
	close(fd);
}

static void accept_done(struct ring_op *op, int res, uint32_t flags)
{
	struct conn_listener *l = container_of(op, struct conn_listener, op);

	(void)flags;
	l->accepting = false;
	if (l->set->closing) {
		if (res >= 0)
			close(res);
		conn_set_gone(l->set);
		return;
	}
	if (res < 0 && res != -ECONNABORTED && res != -EINTR &&
	    res != -EAGAIN) {
		diag_warn("conn", "what=accept error=%s action=retry",
			  strerror(-res));
		ring_timer_start(l->set->ring, &l->retry, ACCEPT_RETRY_MS);
		return;
	}
	if (res >= 0)
		accepted(l, res);
	accept_start(l);
}

static void close_overdue(struct conn *c, void *arg)
{
	const uint64_t *now_ms = arg;

	if (!conn_is_overdue(c, *now_ms))
		return;
	c->set->stats.timeouts++;
	diag_info("conn", "what=timeout peer=%s action=close", c->name);
	conn_close(c);
}

static void sweep(struct ring_timer *t)
{
	struct conn_set *s = container_of(t, struct conn_set, sweep);
	uint64_t now_ms = ring_now_ms();

	conn_set_each(s, close_overdue, &now_ms);
	/* Idle for long: keep no memory. Any work begins the count anew. */
	if (s->stats.frames_in != s->idle_frames)
		s->idle_sweeps = 0;
	else if (++s->idle_sweeps == CONN_IDLE_SWEEPS)
		pool_trim(s->pool);
	s->idle_frames = s->stats.frames_in;
	ring_timer_start(s->ring, &s->sweep, CONN_SWEEP_MS);
}

static int listen_at(struct conn_set *s, const char *addr, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct resolved_list list;
	struct resolved *at = &list.addrs[0];
	int fd, one = 1, rv;

	rv = resolve_wait(addr, port, &list);
	if (rv == 0)
		rv = gate_listen(s->limits.gate, (struct sockaddr *)&at->ss);
	if (rv < 0)
		return rv;
	fd = socket(at->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&at->ss, at->len) < 0 ||
	    listen(fd, LISTEN_BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		rv = -errno;
	/* NOLINTNEXTLINE: getsockname() filled it */
	else if (ss.ss_family == AF_INET6)
		s->port = ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	else
		s->port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	if (rv < 0) {
		if (fd >= 0)
			close(fd);
		return rv;
	}
	s->listeners[0].fd = fd;
	s->listeners[1].fd = local_sock_listen((struct sockaddr *)&ss,
					       LISTEN_BACKLOG);
	return 0;
}

static void listeners_start(struct conn_set *s)
{
	for (unsigned i = 0; i < CONN_LISTENERS; i++) {
		struct conn_listener *l = &s->listeners[i];

		l->set = s;
		l->op.done = accept_done;
		l->retry.fn = accept_again;
		if (l->fd >= 0)
			accept_start(l);
	}
}

int conn_set_new(struct ring *r, struct pool *pool, const char *addr,
		 uint16_t port, const struct conn_limits *limits,
		 const struct conn_ops *ops, void *arg, struct conn_set **ret,
		 char *why, size_t why_size)
{
	struct conn_set *s = calloc(1, sizeof(*s));
	int rv = -ENOMEM;

	assert(limits->conn_bytes_max >= 2 * (uint64_t)FRAME_DATA_MAX);
	if (s) {
		s->limits = *limits;
		rv = listen_at(s, addr, port);
	}
	if (rv < 0) {
		snprintf(why, why_size, "cannot listen at %s:%u: %s", addr,
			 port, daemon_listen_error(rv));
		free(s);
		return rv;
	}
	s->ring = r;
	s->pool = pool;
	s->ops = ops;
	s->arg = arg;
	s->stalled_tail = &s->stalled;
	s->sweep.fn = sweep;
	s->wake.fn = conn_wake_stalled;
	listeners_start(s);
	ring_timer_start(r, &s->sweep, CONN_SWEEP_MS);
	*ret = s;
	return 0;
}

uint16_t conn_set_port(const struct conn_set *s)
{
	return s->port;
}

const struct conn_stats *conn_set_stats(const struct conn_set *s)
{
	return &s->stats;
}

void conn_set_each(struct conn_set *s, void (*fn)(struct conn *c, void *arg),
		   void *arg)
{
	struct conn *c = s->conns, *next;

	/* @fn may close this one and others: the next is held. */
	if (c)
		conn_get(c);
	for (; c; c = next) {
		if (!c->closed)
			fn(c, arg);
		next = c->next;
		if (next)
			conn_get(next);
		conn_put(c);
	}
}

static void all_gone(struct ring_timer *t)
{
	struct conn_set *s = container_of(t, struct conn_set, sweep);

	s->close_cb(s->close_arg);
}

static bool accepting(const struct conn_set *s)
{
	for (unsigned i = 0; i < CONN_LISTENERS; i++)
		if (s->listeners[i].accepting)
			return true;
	return false;
}

void conn_set_gone(struct conn_set *s)
{
	if (!s->closing || s->conns || accepting(s) || s->sweep.priv_armed)
		return;
	/* Not from inside whatever let the last connection go. */
	s->sweep.fn = all_gone;
	ring_timer_start(s->ring, &s->sweep, 0);
}

static void close_one(struct conn *c, void *arg)
{
	(void)arg;
	conn_close(c);
}

void conn_set_close(struct conn_set *s, void (*cb)(void *arg), void *arg)
{
	assert(!s->closing);
	s->closing = true;
	s->close_cb = cb;
	s->close_arg = arg;
	ring_timer_stop(s->ring, &s->sweep);
	for (unsigned i = 0; i < CONN_LISTENERS; i++) {
		ring_timer_stop(s->ring, &s->listeners[i].retry);
		/* Ends the accept in the kernel. */
		if (s->listeners[i].fd >= 0)
			(void)shutdown(s->listeners[i].fd, SHUT_RDWR);
	}
	conn_set_each(s, close_one, NULL);
	conn_set_gone(s);
}

void conn_set_free(struct conn_set *s)
{
	if (!s)
		return;
	assert(!s->conns && !accepting(s));
	for (unsigned i = 0; i < CONN_LISTENERS; i++)
		if (s->listeners[i].fd >= 0)
			close(s->listeners[i].fd);
	free(s);
}
