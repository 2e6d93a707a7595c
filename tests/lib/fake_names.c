#include "tests/lib/fake_names.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>

typedef int (*getaddrinfo_fn)(const char *host, const char *service,
			      const struct addrinfo *hints,
			      struct addrinfo **ret);

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	const char *name, *addrs;
	unsigned asked, busy;
} names = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .cond = PTHREAD_COND_INITIALIZER };

static int real(const char *host, const char *service,
		const struct addrinfo *hints, struct addrinfo **ret)
{
	getaddrinfo_fn fn = (getaddrinfo_fn)dlsym(RTLD_NEXT, "getaddrinfo");

	return fn(host, service, hints, ret);
}

void fake_names_set(const char *name, const char *addrs)
{
	pthread_mutex_lock(&names.lock);
	names.name = name;
	names.addrs = addrs;
	pthread_cond_broadcast(&names.cond);
	pthread_mutex_unlock(&names.lock);
}

unsigned fake_names_asked(void)
{
	unsigned n;

	pthread_mutex_lock(&names.lock);
	n = names.asked;
	pthread_mutex_unlock(&names.lock);
	return n;
}

void fake_names_idle(void)
{
	pthread_mutex_lock(&names.lock);
	while (names.busy > 0)
		pthread_cond_wait(&names.cond, &names.lock);
	pthread_mutex_unlock(&names.lock);
}

/* What the name stands for now, NULL: it is not the one. */
static const char *look_up(const char *host)
{
	const char *addrs = NULL;

	pthread_mutex_lock(&names.lock);
	if (names.name && strcmp(host, names.name) == 0) {
		names.asked++;
		names.busy++;
		while (strcmp(names.addrs, FAKE_NAMES_SILENT) == 0)
			pthread_cond_wait(&names.cond, &names.lock);
		addrs = names.addrs;
		names.busy--;
		pthread_cond_broadcast(&names.cond);
	}
	pthread_mutex_unlock(&names.lock);
	return addrs;
}

int getaddrinfo(const char *host, const char *service,
		const struct addrinfo *hints, struct addrinfo **ret)
{
	struct addrinfo *all = NULL, **at = &all;
	const char *addrs = NULL;
	char addr[64];
	size_t len;

	if (!(hints->ai_flags & AI_NUMERICHOST))
		addrs = look_up(host);
	if (!addrs)
		return real(host, service, hints, ret);
	for (; *addrs; addrs += len + (addrs[len] == ' ')) {
		len = strcspn(addrs, " ");
		snprintf(addr, sizeof(addr), "%.*s", (int)len, addrs);
		if (real(addr, service, hints, at) != 0)
			break;
		while (*at)
			at = &(*at)->ai_next;
	}
	*ret = all;
	return all ? 0 : EAI_NONAME;
}
