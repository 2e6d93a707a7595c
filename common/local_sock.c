/* Unix sockets beside loopback TCP. */
#include "common/local_sock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* Room for a few large frames. A Unix socket charges the sender alone. */
#define SEND_BUFFER (4 << 20)

static bool is_loopback(const struct sockaddr *a, char *text, size_t size,
			unsigned *port)
{
	const void *p = a;

	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *in = p;

		*port = ntohs(in->sin_port);
		return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET &&
		       inet_ntop(AF_INET, &in->sin_addr, text,
				 (socklen_t)size);
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = p;

		*port = ntohs(in6->sin6_port);
		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) &&
		       inet_ntop(AF_INET6, &in6->sin6_addr, text,
				 (socklen_t)size);
	}
	return false;
}

bool sock_is_local(const struct sockaddr *a)
{
	char text[INET6_ADDRSTRLEN];
	unsigned port;

	return a->sa_family == AF_UNIX ||
	       is_loopback(a, text, sizeof(text), &port);
}

bool local_sock_addr(const struct sockaddr *tcp, struct sockaddr_un *ret,
		     socklen_t *ret_len)
{
	const char *off = getenv("HAILFS_TCP");
	char text[INET6_ADDRSTRLEN];
	unsigned port;
	int len;

	if ((off && *off == '1') ||
	    !is_loopback(tcp, text, sizeof(text), &port))
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	/* the first byte stays zero: an abstract name */
	len = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1,
		       "hailfs/%s:%u", text, port);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			       (size_t)len);
	return true;
}

void local_sock_tune(int fd)
{
	int size = SEND_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size,
		       sizeof(size)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size,
				 sizeof(size));
}

int local_sock_listen(const struct sockaddr *tcp, int backlog)
{
	struct sockaddr_un un;
	socklen_t len;
	int fd;

	if (!local_sock_addr(tcp, &un, &len))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (const struct sockaddr *)&un, len) < 0 ||
	    listen(fd, backlog) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Any user may take an abstract name, unlike a port of a running daemon. */
static bool trusted(int fd)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 &&
	       (c.uid == 0 || c.uid == geteuid());
}

int local_sock_connect(const struct sockaddr *tcp)
{
	struct sockaddr_un un;
	socklen_t len;
	int fd;

	if (!local_sock_addr(tcp, &un, &len))
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	local_sock_tune(fd);
	if (connect(fd, (const struct sockaddr *)&un, len) < 0 ||
	    !trusted(fd)) {
		close(fd);
		return -1;
	}
	return fd;
}
