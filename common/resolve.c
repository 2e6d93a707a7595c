/* getaddrinfo() on a detached thread for each look-up: it cannot be cancelled,
 * and who asked may be gone when it returns.
 */
#include "common/resolve.h"

#include "common/cmap.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>

struct resolve {
	atomic_uint refs; /* who asked, and the thread */
	atomic_bool done; /* list and error are the asker's to read */
	int error;
	struct resolved_list list;
	uint16_t port;
	char host[CMAP_ADDR_LEN_MAX + 1];
};

/* Returns 0 or -EHOSTUNREACH. */
static int look_up(const char *host, uint16_t port, int flags,
		   struct resolved_list *ret)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = flags | AI_NUMERICSERV };
	struct addrinfo *all, *ai;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(host, service, &hints, &all) != 0)
		return -EHOSTUNREACH;
	ret->count = 0;
	for (ai = all; ai && ret->count < RESOLVE_ADDRS_MAX; ai = ai->ai_next) {
		struct resolved *a = &ret->addrs[ret->count++];

		memcpy(&a->ss, ai->ai_addr, ai->ai_addrlen);
		a->len = ai->ai_addrlen;
	}
	freeaddrinfo(all);
	return 0;
}

bool resolve_numeric(const char *host, uint16_t port,
		     struct resolved_list *ret)
{
	return look_up(host, port, AI_NUMERICHOST, ret) == 0;
}

int resolve_wait(const char *host, uint16_t port, struct resolved_list *ret)
{
	return look_up(host, port, 0, ret);
}

static void *run(void *arg)
{
	struct resolve *r = arg;

	r->error = look_up(r->host, r->port, 0, &r->list);
	atomic_store(&r->done, true);
	resolve_free(r);
	return NULL;
}

int resolve_start(const char *host, uint16_t port, struct resolve **ret)
{
	struct resolve *r = calloc(1, sizeof(*r));
	pthread_t thread;
	int err;

	if (!r)
		return -ENOMEM;
	atomic_store(&r->refs, 2);
	r->port = port;
	snprintf(r->host, sizeof(r->host), "%s", host);
	err = pthread_create(&thread, NULL, run, r);
	if (err) {
		free(r);
		return -err;
	}
	pthread_detach(thread);
	*ret = r;
	return 0;
}

int resolve_poll(struct resolve *r, struct resolved_list *ret)
{
	if (!atomic_load(&r->done))
		return -EINPROGRESS;
	if (r->error == 0)
		*ret = r->list;
	return r->error;
}

void resolve_free(struct resolve *r)
{
	if (r && atomic_fetch_sub(&r->refs, 1) == 1)
		free(r);
}
