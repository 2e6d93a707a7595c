/* The store's own thread. */
#include "blockd/worker.h"

#include <pthread.h>

#include "blockd/mem.h"
#include "common/clock.h"

struct worker {
	struct dev *dev;
	bool inline_run;
	void (*tick)(void *arg);
	void *tick_arg;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct worker_job *first; /* protected by lock, as all below */
	struct worker_job **last;
	bool ticking;
	bool tick_posted;
	bool stop;
};

static void job_done(void *arg)
{
	struct worker_job *j = arg;

	j->done(j);
}

static void tick_arrived(void *arg)
{
	struct worker *w = arg;

	(void)pthread_mutex_lock(&w->lock);
	w->tick_posted = false;
	(void)pthread_mutex_unlock(&w->lock);
	w->tick(w->tick_arg);
}

static void wait_second(struct worker *w)
{
	struct timespec t = clock_deadline(1000);

	if (pthread_cond_timedwait(&w->cond, &w->lock, &t) == ETIMEDOUT &&
	    w->ticking && !w->stop && !w->tick_posted) {
		w->tick_posted = true;
		w->dev->vt->post(w->dev, tick_arrived, w);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	(void)pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct worker_job *j = w->first;

		if (j == NULL) {
			if (w->ticking)
				wait_second(w);
			else
				(void)pthread_cond_wait(&w->cond, &w->lock);
			continue;
		}
		w->first = j->next;
		if (w->first == NULL)
			w->last = &w->first;
		(void)pthread_mutex_unlock(&w->lock);
		j->run(j);
		w->dev->vt->post(w->dev, job_done, j);
		(void)pthread_mutex_lock(&w->lock);
	}
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct worker *worker_new(struct dev *d, bool inline_run,
			  void (*tick)(void *arg), void *arg)
{
	struct worker *w = mem_alloc(sizeof(*w));
	pthread_condattr_t attr;

	if (w == NULL)
		return NULL;
	w->dev = d;
	w->inline_run = inline_run;
	w->tick = tick;
	w->tick_arg = arg;
	w->last = &w->first;
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&w->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	if (!inline_run &&
	    pthread_create(&w->thread, NULL, worker_main, w) != 0) {
		mem_free(w);
		return NULL;
	}
	return w;
}

void worker_free(struct worker *w)
{
	if (w == NULL)
		return;
	if (!w->inline_run) {
		(void)pthread_mutex_lock(&w->lock);
		w->stop = true;
		(void)pthread_cond_signal(&w->cond);
		(void)pthread_mutex_unlock(&w->lock);
		(void)pthread_join(w->thread, NULL);
	}
	(void)pthread_cond_destroy(&w->cond);
	(void)pthread_mutex_destroy(&w->lock);
	mem_free(w);
}

void worker_submit(struct worker *w, struct worker_job *j)
{
	j->worker = w;
	j->next = NULL;
	if (w->inline_run) {
		j->run(j);
		w->dev->vt->post(w->dev, job_done, j);
		return;
	}
	(void)pthread_mutex_lock(&w->lock);
	*w->last = j;
	w->last = &j->next;
	(void)pthread_cond_signal(&w->cond);
	(void)pthread_mutex_unlock(&w->lock);
}

void worker_tick(struct worker *w, bool on)
{
	/* Only the loop changes it. */
	if (w->inline_run || w->ticking == on)
		return;
	(void)pthread_mutex_lock(&w->lock);
	w->ticking = on;
	(void)pthread_cond_signal(&w->cond);
	(void)pthread_mutex_unlock(&w->lock);
}

bool worker_tick_posted(struct worker *w)
{
	bool posted;

	(void)pthread_mutex_lock(&w->lock);
	posted = w->tick_posted;
	(void)pthread_mutex_unlock(&w->lock);
	return posted;
}
