/* The metrics port: one page, on loopback. */
#include "common/stats.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>

#define CONNECTIONS_MAX 8u
#define IDLE_S 10u

struct stats_http {
	char *(*text)(void *arg);
	void *arg;
	struct MHD_Daemon *mhd;
};

static enum MHD_Result reply(struct MHD_Connection *conn, unsigned code,
			     char *text, enum MHD_ResponseMemoryMode mode,
			     const char *type)
{
	struct MHD_Response *r;
	enum MHD_Result rv;

	r = MHD_create_response_from_buffer(strlen(text), text, mode);
	if (!r)
		return MHD_NO;
	(void)MHD_add_response_header(r, "Content-Type", type);
	rv = MHD_queue_response(conn, code, r);
	MHD_destroy_response(r);
	return rv;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *conn,
			      const char *url, const char *method,
			      const char *version, const char *data,
			      size_t *data_len, void **state)
{
	static char not_found[] = "The page is /metrics.\n";
	static char not_allowed[] = "GET only.\n";
	struct stats_http *h = arg;
	char *text;

	(void)version;
	(void)data;
	(void)data_len;
	(void)state;
	if (strcmp(method, "GET") != 0)
		return reply(conn, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed,
			     MHD_RESPMEM_PERSISTENT, "text/plain");
	if (strcmp(url, "/metrics") != 0)
		return reply(conn, MHD_HTTP_NOT_FOUND, not_found,
			     MHD_RESPMEM_PERSISTENT, "text/plain");
	text = h->text(h->arg);
	if (!text)
		return MHD_NO;
	return reply(conn, MHD_HTTP_OK, text, MHD_RESPMEM_MUST_FREE,
		     "application/openmetrics-text; version=1.0.0; "
		     "charset=utf-8");
}

char *stats_http_text(void *arg)
{
	return stats_openmetrics(arg);
}

int stats_http_start(char *(*text)(void *arg), void *arg, uint16_t port,
		     struct stats_http **ret)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct stats_http *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->text = text;
	h->arg = arg;
	errno = 0;
	h->mhd = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, port, NULL,
		NULL, answer, h, MHD_OPTION_SOCK_ADDR, &a,
		MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
	if (!h->mhd) {
		int err = errno;

		free(h);
		return err ? -err : -EADDRINUSE;
	}
	*ret = h;
	return 0;
}

uint16_t stats_http_port(const struct stats_http *h)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_BIND_PORT);

	return info ? info->port : 0;
}

void stats_http_stop(struct stats_http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->mhd);
	free(h);
}
