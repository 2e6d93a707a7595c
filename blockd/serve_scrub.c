/* Scrubs: when one was asked for, and by itself when the last one is long ago.
 *
 * When that was is in the file "scrub" of the store's directory, a line of text
 * that may be lost: then the interval begins anew.
 */
#include "blockd/serve_priv.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/diag.h"

#define LOOK_MS 60000u

static uint64_t unix_s(void)
{
	return (uint64_t)time(NULL);
}

static void file_name(const struct serve *s, const char *suffix, char *path)
{
	snprintf(path, PATH_MAX, "%s/scrub%s", s->o.dir, suffix);
}

static void note_write(const struct serve *s)
{
	char path[PATH_MAX], part[PATH_MAX];

	file_name(s, "", path);
	file_name(s, ".part", part);
	FILE *f = fopen(part, "we");
	bool ok = f && fprintf(f, "since %" PRIu64 " last %" PRIu64 " read %"
			       PRIu64 " bad %" PRIu64 "\n", s->scrub.since_s,
			       s->scrub.last_s, s->scrub.last_read,
			       s->scrub.last_bad) > 0;

	if (f && fclose(f) != 0)
		ok = false;
	if (!ok || rename(part, path) < 0) {
		diag_warn("serve", "what=scrub-note path=%s error=\"%s\"",
			  path, strerror(errno));
		(void)unlink(part);
	}
}

static void note_read(struct serve *s)
{
	char path[PATH_MAX];

	file_name(s, "", path);
	FILE *f = fopen(path, "re");
	int n = f ? fscanf(f, "since %" SCNu64 " last %" SCNu64 " read %" SCNu64
			   " bad %" SCNu64, &s->scrub.since_s,
			   &s->scrub.last_s, &s->scrub.last_read,
			   &s->scrub.last_bad) : 0;

	if (f)
		fclose(f);
	/* None yet, nonsense, or the clock was set back. */
	if (n != 4 || s->scrub.since_s > unix_s()) {
		if (n != 4)
			s->scrub.last_s = s->scrub.last_read =
				s->scrub.last_bad = 0;
		s->scrub.since_s = unix_s();
		note_write(s);
	}
}

static void answer(struct serve *s, int err)
{
	struct serve_req *q = s->scrub.asker;
	struct blk_scrub_reply m = { .boot_id = s->o.boot_id,
				     .units_read = s->scrub.units_read,
				     .units_bad = s->scrub.units_bad };
	struct wire_out o;

	s->scrub.asker = NULL;
	if (!q)
		return;
	wire_out_init(&o, q->head + WIRE_HEADER_SIZE,
		      sizeof(q->head) - WIRE_HEADER_SIZE);
	blk_scrub_reply_encode(&o, &m);
	blk_serve_reply(q, err, o.len, NULL, 0);
}

static void done(struct store_req *r, int err)
{
	struct serve *s = container_of(r, struct serve, scrub.store);

	s->scrub.running = false;
	diag_info("serve", "what=scrub units_read=%llu units_bad=%llu "
		  "status=%s", (unsigned long long)s->scrub.units_read,
		  (unsigned long long)s->scrub.units_bad, strerror(-err));
	if (err == 0) {
		s->scrub.since_s = s->scrub.last_s = unix_s();
		s->scrub.last_read = s->scrub.units_read;
		s->scrub.last_bad = s->scrub.units_bad;
		note_write(s);
	}
	answer(s, err);
}

static void start(struct serve *s)
{
	s->scrub.running = true;
	s->scrub.store.done = done;
	store_scrub(s->o.store, &s->scrub.store, s->o.scrub_bytes_per_s,
		    &s->scrub.units_read, &s->scrub.units_bad);
}

void serve_scrub(struct serve_req *q)
{
	struct serve *s = q->s;

	if (s->scrub.asker) {
		blk_serve_reply_plain(q, -EBUSY);
		return;
	}
	/* One that runs by itself is joined. */
	s->scrub.asker = q;
	if (!s->scrub.running)
		start(s);
}

void serve_scrub_forget(struct serve *s, const struct conn *c)
{
	if (s->scrub.asker && s->scrub.asker->c == c)
		answer(s, -ECANCELED);
}

static void look(struct ring_timer *t)
{
	struct serve *s = container_of(t, struct serve, scrub.timer);
	uint64_t now = unix_s(), interval_s = s->o.scrub_interval_ms / 1000;

	if (s->scrub.since_s > now) {
		s->scrub.since_s = now;
		note_write(s);
	}
	if (!s->scrub.running && now - s->scrub.since_s >= interval_s) {
		struct store_stat st;

		store_stat(s->o.store, &st);
		if (!st.error)
			start(s);
	}
	ring_timer_start(s->o.ring, t,
			 u64_min(s->o.scrub_interval_ms, LOOK_MS));
}

void serve_scrub_begin(struct serve *s)
{
	note_read(s);
	s->scrub.timer.fn = look;
	if (s->o.scrub_interval_ms > 0)
		ring_timer_start(s->o.ring, &s->scrub.timer,
				 u64_min(s->o.scrub_interval_ms, LOOK_MS));
}

void serve_scrub_stop(struct serve *s)
{
	ring_timer_stop(s->o.ring, &s->scrub.timer);
}
