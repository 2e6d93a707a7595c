#include "tests/lib/mini_serve.h"

#include "tests/lib/fail_malloc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX 64u

void must_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", file, line, what,
		errno);
	abort();
}

/* ---- connections ---- */

struct mini_conn *mini_conn_find(struct mini_serve *s, uint64_t id)
{
	for (struct mini_conn *c = s->conns; c; c = c->next)
		if (c->id == id && !c->closing)
			return c;
	return NULL;
}

void mini_conn_close(struct mini_conn *c)
{
	if (!c->closing)
		shutdown(c->fd, SHUT_RDWR);
	c->closing = true;
}

void mini_conns_close(struct mini_serve *s)
{
	for (struct mini_conn *c = s->conns; c; c = c->next)
		mini_conn_close(c);
}

void (*mini_reply_hook)(uint8_t *frame, size_t *len);

void mini_conn_write(struct mini_conn *c, uint8_t *p, size_t len)
{
	if (mini_reply_hook)
		mini_reply_hook(p, &len);
	while (len > 0 && !c->closing) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			mini_conn_close(c);
			return;
		}
		p += n;
		len -= (size_t)n;
	}
}

static void conn_read(struct mini_serve *s, struct mini_conn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame *f;
	int count = frame_in_space(&c->in, iov), rv;
	ssize_t len = readv(c->fd, iov, count);

	if (len <= 0) {
		mini_conn_close(c);
		return;
	}
	frame_in_fed(&c->in, (size_t)len);
	while (!c->closing && (rv = frame_in_next(&c->in, &f)) != 0) {
		if (rv < 0) {
			if (s->ops->on_bad) {
				fprintf(stderr, "# a bad frame: err %d\n", rv);
				s->ops->on_bad(s);
			}
			mini_conn_close(c);
			return;
		}
		s->ops->on_frame(s, c, f);
	}
}

static void conns_reap(struct mini_serve *s)
{
	struct mini_conn **at = &s->conns;

	while (*at) {
		struct mini_conn *c = *at;

		if (!c->closing) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		close(c->fd);
		frame_in_fini(&c->in);
		free(c);
	}
}

static void conn_accept(struct mini_serve *s)
{
	int one = 1, fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct mini_conn *c;

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c = calloc(1, sizeof(*c));
	must(c && frame_in_init(&c->in, 0, NULL) == 0);
	c->fd = fd;
	c->id = ++s->next_conn;
	c->next = s->conns;
	s->conns = c;
}

/* ---- the thread ---- */

static void *serve_main(void *arg)
{
	struct mini_serve *s = arg;
	struct pollfd p[CONNS_MAX + 2];
	struct mini_conn *of[CONNS_MAX];
	uint64_t v;

	fail_malloc_spared = true;
	mini_serve_lock(s);
	while (!s->stop) {
		uint32_t count = 0;

		s->ops->on_turn(s);
		conns_reap(s);
		p[0] = (struct pollfd){ s->event_fd, POLLIN, 0 };
		p[1] = (struct pollfd){ s->listen_fd, POLLIN, 0 };
		for (struct mini_conn *c = s->conns; c; c = c->next) {
			must(count < CONNS_MAX);
			of[count] = c;
			p[2 + count++] = (struct pollfd){ c->fd, POLLIN, 0 };
		}
		mini_serve_unlock(s);
		(void)poll(p, count + 2, -1);
		mini_serve_lock(s);
		if (p[0].revents)
			must(read(s->event_fd, &v, sizeof(v)) == sizeof(v));
		/* What the test let go meanwhile came before what comes now. */
		s->ops->on_turn(s);
		for (uint32_t i = 0; i < count; i++)
			if (p[2 + i].revents && !of[i]->closing)
				conn_read(s, of[i]);
		/* It may have been replaced since: it does not block. */
		if (p[1].revents && s->listen_fd >= 0)
			conn_accept(s);
	}
	mini_serve_unlock(s);
	return NULL;
}

void mini_serve_lock(struct mini_serve *s)
{
	pthread_mutex_lock(&s->lock);
}

void mini_serve_unlock(struct mini_serve *s)
{
	pthread_mutex_unlock(&s->lock);
}

void mini_serve_kick(struct mini_serve *s)
{
	uint64_t one = 1;

	mini_serve_unlock(s);
	must(write(s->event_fd, &one, sizeof(one)) == sizeof(one));
}

void mini_serve_down(struct mini_serve *s)
{
	/* Nobody accepts on a socket that is shut down. */
	shutdown(s->listen_fd, SHUT_RDWR);
	close(s->listen_fd);
	s->listen_fd = -1;
}

/* A socket on the server's port. Without one it takes any. */
static int port_socket(struct mini_serve *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(s->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	must(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	must(bind(fd, (void *)&a, sizeof(a)) == 0);
	must(getsockname(fd, (void *)&a, &len) == 0);
	s->port = ntohs(a.sin_port);
	return fd;
}

/* While it is down the port stays its own: no connection of this process, or
 * of a test beside it, is given it. */
void mini_serve_up(struct mini_serve *s)
{
	if (s->port == 0) {
		if (s->port_fd >= 0)
			close(s->port_fd);
		s->port_fd = port_socket(s);
	}
	s->listen_fd = port_socket(s);
	must(listen(s->listen_fd, 64) == 0);
}

void mini_serve_init(struct mini_serve *s, const struct mini_serve_ops *ops)
{
	memset(s, 0, sizeof(*s));
	s->ops = ops;
	pthread_mutex_init(&s->lock, NULL);
	s->event_fd = eventfd(0, EFD_CLOEXEC);
	must(s->event_fd >= 0);
	s->port_fd = -1;
	mini_serve_up(s);
}

void mini_serve_start(struct mini_serve *s)
{
	must(pthread_create(&s->thread, NULL, serve_main, s) == 0);
}

void mini_serve_stop(struct mini_serve *s)
{
	mini_serve_lock(s);
	s->stop = true;
	mini_conns_close(s);
	mini_serve_kick(s);
	pthread_join(s->thread, NULL);
	mini_conns_close(s); /* it may have accepted one more */
	conns_reap(s);
}

void mini_serve_fini(struct mini_serve *s)
{
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	close(s->port_fd);
	close(s->event_fd);
	pthread_mutex_destroy(&s->lock);
}
