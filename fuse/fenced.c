/* What a fenced mount leaves in the kernel is dropped: programs that have a
 * file open or mapped would go on reading what another mount has changed.
 *
 * A thread of its own, since a notification waits in the kernel for requests
 * of that inode: once fenced they all end with EIO, so it does not wait for
 * long. (Before that they may wait for daemons for ever, and so would a
 * notification, and even the end of this process: hence not at 6 s already,
 * when metad was not heard of.)
 */
#include "fuse/rim.h"

#include "common/clock.h"
#include "common/diag.h"

#define LOOK_MS 200

static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool started, stop; /* protected by lock */
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void drop(struct rim *r)
{
	uint64_t *inos;
	size_t count;
	int err = core_inode_list(r->core, false, &inos, &count);

	if (err) {
		diag_err("fuse", "event=fenced cached=yes error=%d", -err);
		return;
	}
	/* An error: the kernel has forgotten that one already. */
	for (size_t i = 0; i < count; i++)
		(void)fuse_lowlevel_notify_inval_inode(r->se, inos[i], 0, 0);
	rim_names_changed(r);
	free(inos);
}

/* Returns false: it is time to end. */
static bool nap(void)
{
	struct timespec t = clock_deadline(LOOK_MS);
	bool stop;

	pthread_mutex_lock(&watch.lock);
	while (!watch.stop &&
	       pthread_cond_timedwait(&watch.cond, &watch.lock, &t) == 0)
		;
	stop = watch.stop;
	pthread_mutex_unlock(&watch.lock);
	return !stop;
}

static void *run(void *arg)
{
	struct rim *r = arg;

	while (nap()) {
		if (!core_is_fenced(r->core))
			continue;
		drop(r);
		break;
	}
	return NULL;
}

int rim_fence_watch_start(struct rim *r)
{
	pthread_condattr_t attr;
	int err;

	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&watch.cond, &attr);
	pthread_condattr_destroy(&attr);
	err = pthread_create(&watch.thread, NULL, run, r);
	watch.started = err == 0;
	return -err;
}

void rim_fence_watch_stop(void)
{
	if (!watch.started)
		return;
	pthread_mutex_lock(&watch.lock);
	watch.stop = true;
	pthread_cond_signal(&watch.cond);
	pthread_mutex_unlock(&watch.lock);
	pthread_join(watch.thread, NULL);
	watch.started = false;
}
