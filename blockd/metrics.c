#include "blockd/metrics.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>

#include "common/clock.h"

/* A loop that does not answer within this is stuck: say so. */
#define METRICS_WAIT_S 2
#define METRICS_CONN_MAX 16u

struct metrics {
	struct MHD_Daemon *http;
	struct ring *ring;
	struct serve *serve; /* NULL: closing; the loop's */
	unsigned refs; /* daemon, and one a question; lock protects it */
	pthread_mutex_t lock;
};

/* A question to the loop; freed by whoever leaves last. */
struct metrics_ask {
	struct metrics *m;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	char *text;
	bool answered;
	bool abandoned;
};

static void metrics_put(struct metrics *m)
{
	bool last;

	pthread_mutex_lock(&m->lock);
	last = --m->refs == 0;
	pthread_mutex_unlock(&m->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static void ask_free(struct metrics_ask *a)
{
	pthread_cond_destroy(&a->cond);
	pthread_mutex_destroy(&a->lock);
	free(a->text);
	metrics_put(a->m);
	free(a);
}

static void ask_on_loop(void *arg)
{
	struct metrics_ask *a = arg;
	struct serve *s = a->m->serve;
	char *text = s ? blk_serve_openmetrics(s) : NULL;
	bool abandoned;

	pthread_mutex_lock(&a->lock);
	a->text = text;
	a->answered = true;
	abandoned = a->abandoned;
	pthread_cond_signal(&a->cond);
	pthread_mutex_unlock(&a->lock);
	if (abandoned)
		ask_free(a);
}

/* Returns the text, the caller's; NULL: none came. */
static char *ask(struct metrics *m)
{
	struct metrics_ask *a = calloc(1, sizeof(*a));
	pthread_condattr_t attr;
	struct timespec until;
	char *text;
	bool answered;

	if (!a)
		return NULL;
	a->m = m;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&a->cond, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&m->lock);
	m->refs++;
	pthread_mutex_unlock(&m->lock);
	until = clock_deadline(METRICS_WAIT_S * 1000);
	ring_post(m->ring, ask_on_loop, a);
	pthread_mutex_lock(&a->lock);
	while (!a->answered &&
	       pthread_cond_timedwait(&a->cond, &a->lock, &until) == 0)
		;
	answered = a->answered;
	text = a->text;
	a->text = NULL;
	a->abandoned = !answered;
	pthread_mutex_unlock(&a->lock);
	if (answered)
		ask_free(a);
	return text;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c,
			      const char *url, const char *method,
			      const char *version, const char *upload,
			      size_t *upload_size, void **state)
{
	static char unavailable[] = "the daemon does not answer\n";
	static char not_found[] = "see /metrics\n";
	struct MHD_Response *r;
	enum MHD_Result rv;
	unsigned status;
	char *text;

	(void)version;
	(void)upload;
	(void)upload_size;
	(void)state;
	if (strcmp(method, "GET") != 0 || strcmp(url, "/metrics") != 0) {
		r = MHD_create_response_from_buffer(strlen(not_found),
			not_found, MHD_RESPMEM_PERSISTENT);
		status = MHD_HTTP_NOT_FOUND;
	} else if ((text = ask(arg))) {
		r = MHD_create_response_from_buffer(strlen(text), text,
						    MHD_RESPMEM_MUST_FREE);
		status = MHD_HTTP_OK;
		if (r)
			MHD_add_response_header(r, "Content-Type",
				"application/openmetrics-text; "
				"version=1.0.0; charset=utf-8");
	} else {
		r = MHD_create_response_from_buffer(strlen(unavailable),
			unavailable, MHD_RESPMEM_PERSISTENT);
		status = MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	if (!r)
		return MHD_NO;
	rv = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rv;
}

int metrics_new(struct ring *r, struct serve *s, const char *addr,
		uint16_t port, struct metrics **ret)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons(port) };
	struct sockaddr_in a4 = { .sin_family = AF_INET,
				  .sin_port = htons(port) };
	unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
			 MHD_USE_EPOLL;
	const struct sockaddr *sa = (const struct sockaddr *)&a4;
	struct metrics *m;

	if (inet_pton(AF_INET6, addr, &a6.sin6_addr) == 1) {
		sa = (const struct sockaddr *)&a6;
		flags |= MHD_USE_IPv6;
	} else if (inet_pton(AF_INET, addr, &a4.sin_addr) != 1) {
		/* A name: metrics stay on this machine. */
		a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->ring = r;
	m->serve = s;
	m->refs = 1;
	pthread_mutex_init(&m->lock, NULL);
	errno = 0;
	m->http = MHD_start_daemon(flags, port, NULL, NULL, answer, m,
				   MHD_OPTION_SOCK_ADDR, sa,
				   MHD_OPTION_CONNECTION_LIMIT,
				   METRICS_CONN_MAX,
				   MHD_OPTION_CONNECTION_TIMEOUT, 10u,
				   MHD_OPTION_END);
	if (!m->http) {
		int rv = errno ? -errno : -EIO;

		metrics_put(m);
		return rv;
	}
	*ret = m;
	return 0;
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	m->serve = NULL;
	/* Waits for an answer being made, METRICS_WAIT_S at most: the loop,
	 * which is us, is not there to give it. */
	MHD_stop_daemon(m->http);
	metrics_put(m);
}
