/* Requests whose answer is still to come.
 *
 * The kernel lets a process that was killed wait for the answer of a request
 * that the file system has already seen: with a hard mount and a dead daemon
 * that would be for ever. So who waits longer than a second is looked at every
 * half second, and a killed one gets its answer (EINTR) from here; what the
 * core says later finds nobody. Only SIGKILL counts: a signal that a program
 * handles must not end its fsync. Who waits in the kernel can be found there:
 * the kernel's own writing back (without a pid) and what a process that has
 * ended left behind are waited for by nobody who could be killed, and an error
 * would be taken for lost pages.
 */
#include "fuse/rim.h"

#include <time.h>

#include "common/clock.h"

#define LOOK_MS 500
#define STUCK_MS 1000
#define LOOK_MAX 64 /* in one round under the lock */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rim_req *head, *tail; /* oldest first */

int64_t rim_now_ms(void)
{
	return (int64_t)clock_now_ms(CLOCK_MONOTONIC_COARSE);
}

int64_t rim_now_ns(void)
{
	return (int64_t)clock_now_ns(CLOCK_MONOTONIC);
}

void rim_begin(struct rim_req *rr, fuse_req_t req)
{
	rr->rim = rim_of(req);
	rr->req = req;
	rr->pid = fuse_req_ctx(req)->pid;
	rr->kind = RIM_NAMES;
	rr->start_ns = rim_now_ns();
	rr->changes[0] = rr->changes[1] = 0;
	rr->names = false;
	rr->next = NULL;
	pthread_mutex_lock(&lock);
	rr->prev = tail;
	if (tail)
		tail->next = rr;
	else
		head = rr;
	tail = rr;
	pthread_mutex_unlock(&lock);
}

/* The kernel knows what was before. Nothing here waits for anything. */
static void unseen(const struct rim_req *rr)
{
	if (rr->names)
		rim_names_changed(rr->rim);
	for (unsigned i = 0; i < array_count(rr->changes); i++)
		if (rr->changes[i])
			rim_attr_changed(rr->rim, rr->changes[i]);
}

fuse_req_t rim_end(struct rim_req *rr)
{
	pthread_mutex_lock(&lock);
	if (rr->prev)
		rr->prev->next = rr->next;
	else
		head = rr->next;
	if (rr->next)
		rr->next->prev = rr->prev;
	else
		tail = rr->prev;
	pthread_mutex_unlock(&lock);
	rim_latency_add(rr->kind, rim_now_ns() - rr->start_ns);
	if (!rr->req)
		unseen(rr);
	return rr->req;
}

bool rim_wanted(const struct rim_req *rr)
{
	return __atomic_load_n(&rr->req, __ATOMIC_RELAXED) != NULL;
}

struct rim_req *rim_req_new(fuse_req_t req)
{
	struct rim_req *rr = malloc(sizeof(*rr));
	if (rr)
		rim_begin(rr, req);
	else
		fuse_reply_err(req, ENOMEM);
	return rr;
}

fuse_req_t rim_req_take(struct rim_req *rr)
{
	fuse_req_t req = rim_end(rr);
	free(rr);
	return req;
}

/* Takes the requests of killed processes; answers them without the lock. */
static void look(void)
{
	fuse_req_t dead[LOOK_MAX];
	size_t count = 0;
	int64_t old = rim_now_ns() - STUCK_MS * INT64_C(1000000);
	pthread_mutex_lock(&lock);
	for (struct rim_req *rr = head; rr && rr->start_ns < old;
	     rr = rr->next) {
		if (count == LOOK_MAX)
			break;
		if (!rr->req || !rim_signalled(rr->pid, true))
			continue;
		dead[count++] = rr->req;
		__atomic_store_n(&rr->req, NULL, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < count; i++)
		fuse_reply_err(dead[i], EINTR);
}

static void *run(void *arg)
{
	const struct timespec nap = { 0, LOOK_MS * 1000000 };
	(void)arg;
	/* Lives as long as the process: see ops_lock.c about replies over
	 * io_uring. */
	for (;;) {
		nanosleep(&nap, NULL);
		look();
	}
	return NULL;
}

int rim_inflight_start(void)
{
	pthread_t t;
	int err = pthread_create(&t, NULL, run, NULL);
	if (!err)
		pthread_detach(t);
	return -err;
}
