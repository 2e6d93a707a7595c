/* hailctl: how far a long operation is, for who watches a terminal. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#include "common/clock.h"

#define PROGRESS_MS 500

/* Also of the thread that watches a scrub. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool shown;
static uint64_t shown_ms;

void progress(const struct ctl *c, const char *fmt, ...)
{
	uint64_t now = clock_now_ms(CLOCK_MONOTONIC);
	va_list ap;

	if (c->o.json || !isatty(STDERR_FILENO))
		return;
	pthread_mutex_lock(&lock);
	if (shown_ms == 0 || now - shown_ms >= PROGRESS_MS) {
		fputs("\r\033[K", stderr);
		va_start(ap, fmt);
		vfprintf(stderr, fmt, ap);
		va_end(ap);
		fflush(stderr);
		shown = true;
		shown_ms = now;
	}
	pthread_mutex_unlock(&lock);
}

void progress_clear(void)
{
	pthread_mutex_lock(&lock);
	if (shown)
		fputs("\r\033[K", stderr);
	shown = false;
	pthread_mutex_unlock(&lock);
}

/* ---- a scrub, which is one request ---- */

struct watch {
	struct link *l;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
};

/* False: it is over. */
static bool nap(struct watch *w)
{
	struct timespec t = clock_deadline(PROGRESS_MS);
	bool done;

	pthread_mutex_lock(&w->lock);
	while (!w->done &&
	       pthread_cond_timedwait(&w->cond, &w->lock, &t) == 0)
		;
	done = w->done;
	pthread_mutex_unlock(&w->lock);
	return !done;
}

static void *watch_run(void *arg)
{
	struct watch *w = arg;
	json_t *status, *stats;
	char size[2][32];

	do {
		if (link_json(w->l, WIRE_OP_ADMIN_STATUS, &status) < 0)
			break;
		if (link_json(w->l, WIRE_OP_ADMIN_STATS, &stats) == 0) {
			uint64_t used = json_u64(status, "units_total") -
					json_u64(status, "units_free");

			progress(w->l->c, "blockd %u: %s of %s read",
				 w->l->d->id,
				 out_size(json_u64(stats, "scrub_units_read") *
					  UNIT_SIZE, size[0], sizeof(size[0])),
				 out_size(used * UNIT_SIZE, size[1],
					  sizeof(size[1])));
			json_decref(stats);
		}
		json_decref(status);
	} while (nap(w));
	return NULL;
}

int link_scrub(struct link *l, struct blk_scrub_reply *m)
{
	struct watch w = { .l = l, .lock = PTHREAD_MUTEX_INITIALIZER };
	pthread_condattr_t attr;
	struct rpc_frame *f;
	pthread_t thread;
	bool watched;
	int rv;

	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w.cond, &attr);
	pthread_condattr_destroy(&attr);
	watched = !l->c->o.json && isatty(STDERR_FILENO) &&
		  pthread_create(&thread, NULL, watch_run, &w) == 0;
	rv = link_call(l, WIRE_OP_BLK_SCRUB, NULL, 0, 0, &f);
	if (watched) {
		pthread_mutex_lock(&w.lock);
		w.done = true;
		pthread_cond_signal(&w.cond);
		pthread_mutex_unlock(&w.lock);
		pthread_join(thread, NULL);
		progress_clear();
	}
	pthread_cond_destroy(&w.cond);
	if (rv < 0)
		return rv;
	rv = blk_scrub_reply_parse(f->body, f->h.body_len, m);
	rpc_frame_free(f);
	return rv;
}
