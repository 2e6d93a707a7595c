/* SIGHUP, SIGINT and SIGTERM end the mount as unmounting does.
 *
 * With its write-back cache the kernel alone has what was written lately to
 * files that are still open, and gives it to nobody once we stop: so it is
 * asked for that first, while we still serve. (Closing a file hands over what
 * it holds, so only open ones count.)
 */
#include "fuse/rim.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "common/diag.h"

static const int ends[] = { SIGHUP, SIGINT, SIGTERM };

static struct {
	pthread_t thread;
	sem_t asked; /* by a signal, or to stop */
	atomic_bool stop;
	bool started;
} watch;

static void on_signal(int signo)
{
	int saved = errno;

	(void)signo;
	(void)sem_post(&watch.asked);
	errno = saved;
}

static bool asked_to_end(void)
{
	while (sem_wait(&watch.asked))
		;
	return !atomic_load(&watch.stop);
}

static void *run(void *arg)
{
	struct rim *r = arg;

	if (!asked_to_end())
		return NULL;
	diag_info("fuse", "event=signal end=yes");
	if (r->writeback) {
		int err = kflush_written(r);
		if (err)
			diag_err("fuse", "event=signal lost=maybe error=%d",
				 -err);
	}
	fuse_session_exit(r->se);
	return NULL;
}

static void handle(void (*handler)(int))
{
	struct sigaction sa = { .sa_handler = handler };

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		(void)sigaction(ends[i], &sa, NULL);
}

int rim_signals_start(struct rim *r)
{
	if (sem_init(&watch.asked, 0, 0))
		return -errno;
	(void)signal(SIGPIPE, SIG_IGN);
	int err = pthread_create(&watch.thread, NULL, run, r);
	if (err)
		return -err;
	watch.started = true;
	handle(on_signal);
	return 0;
}

void rim_signals_stop(void)
{
	if (!watch.started)
		return;
	handle(SIG_DFL);
	atomic_store(&watch.stop, true);
	(void)sem_post(&watch.asked);
	pthread_join(watch.thread, NULL);
	watch.started = false;
}
