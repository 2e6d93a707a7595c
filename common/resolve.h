/* Host names to addresses, without waiting: a name service that is away answers
 * after many seconds, and no loop of ours may stand still for that.
 */
#ifndef COMMON_RESOLVE_H
#define COMMON_RESOLVE_H

#include "common/base.h"

#include <sys/socket.h>

#define RESOLVE_ADDRS_MAX 8u

struct resolved {
	struct sockaddr_storage ss;
	socklen_t len;
};

/* What a name stands for, in the order of preference (RFC 6724). */
struct resolved_list {
	struct resolved addrs[RESOLVE_ADDRS_MAX];
	uint32_t count;
};

/* One look-up; runs on a thread of its own. */
struct resolve;

/* For a numeric @host. Returns whether it is one. */
bool resolve_numeric(const char *host, uint16_t port,
		     struct resolved_list *ret);
/* For who starts and has nothing else to do: a look-up that waits. Returns 0:
 * *ret is filled, count > 0; -EHOSTUNREACH as below. */
int resolve_wait(const char *host, uint16_t port, struct resolved_list *ret);
/* Begins to look @host up. Returns 0, -ENOMEM or -EAGAIN (no thread). */
int resolve_start(const char *host, uint16_t port, struct resolve **ret);
/* Returns -EINPROGRESS; 0: *ret is filled, count > 0; -EHOSTUNREACH: nobody
 * knows the name, or nobody can be asked. Never waits. */
int resolve_poll(struct resolve *r, struct resolved_list *ret);
/* At any time: a look-up under way ends by itself, for nobody. NULL: no-op. */
void resolve_free(struct resolve *r);

#endif
