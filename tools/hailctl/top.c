/* hailctl top: what mounts and daemons do, again and again. Rates and means are
 * differences of the counters that stats and sessions show.
 */
#include "tools/hailctl/ctl.h"

#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/json_bytes.h"

enum op { OP_READ, OP_WRITE, OP_SYNC, OP_NAMES, OP_COUNT };
static const char *const op_names[OP_COUNT] = { "read", "write", "sync",
						"names" };

struct row {
	char who[160];
	uint64_t count[OP_COUNT], sum_us[OP_COUNT];
	uint64_t bytes_in, bytes_out; /* towards the disks, and from them */
	struct row *next;
};

/* All rows of one moment. */
struct sample {
	struct row *first, **tail;
	uint64_t at_ms;
};

static void sample_free(struct sample *s)
{
	while (s->first) {
		struct row *r = s->first;

		s->first = r->next;
		free(r);
	}
}

static struct row *row_add(struct sample *s)
{
	struct row *r = calloc(1, sizeof(*r));

	if (r) {
		*s->tail = r;
		s->tail = &r->next;
	}
	return r;
}

/* Adds a histogram's {"count", @sum}; @scale: of @sum to microseconds. */
static void add_hist(struct row *r, enum op op, json_t *hist, const char *sum,
		     uint64_t scale)
{
	r->count[op] += json_u64(hist, "count");
	r->sum_us[op] += json_u64(hist, sum) / scale;
}

static void add_blockd(struct row *r, json_t *stats)
{
	json_t *ops = json_object_get(stats, "ops");

	add_hist(r, OP_READ, json_object_get(ops, "read"), "sum_us", 1);
	add_hist(r, OP_WRITE, json_object_get(ops, "write"), "sum_us", 1);
	add_hist(r, OP_WRITE, json_object_get(ops, "write_sync"), "sum_us", 1);
	add_hist(r, OP_SYNC, json_object_get(ops, "sync"), "sum_us", 1);
	r->bytes_in = json_u64(stats, "bytes_written");
	r->bytes_out = json_u64(stats, "bytes_read");
}

static void add_metad(struct row *r, json_t *stats)
{
	r->count[OP_NAMES] = json_u64(stats, "queries") +
			     json_u64(stats, "mutations");
	add_hist(r, OP_SYNC, json_object_get(stats, "raft_append_seconds"),
		 "sum_ns", 1000);
	r->bytes_in = json_u64(stats, "raft_bytes");
}

static void add_logd(struct row *r, json_t *stats)
{
	add_hist(r, OP_READ,
		 json_object_get(stats, "request_seconds{op=\"read\"}"),
		 "sum_ns", 1000);
	add_hist(r, OP_WRITE,
		 json_object_get(stats, "request_seconds{op=\"write\"}"),
		 "sum_ns", 1000);
	r->bytes_in = json_u64(stats, "write_bytes");
	r->bytes_out = json_u64(stats, "read_bytes");
}

static void add_daemon(struct row *r, enum daemon_kind kind, json_t *stats)
{
	switch (kind) {
	case DAEMON_METAD:
		add_metad(r, stats);
		break;
	case DAEMON_BLOCKD:
		add_blockd(r, stats);
		break;
	case DAEMON_LOGD:
		add_logd(r, stats);
		break;
	}
}

static void add_mount(struct row *r, json_t *status)
{
	static const char *const keys[OP_COUNT] = {
		"read_seconds", "write_seconds", "sync_seconds",
		"names_seconds",
	};
	json_t *latency = json_object_get(status, "latency");
	json_t *rpc = json_object_get(status, "rpc");

	for (int i = 0; i < OP_COUNT; i++)
		add_hist(r, (enum op)i, json_object_get(latency, keys[i]),
			 "sum_ns", 1000);
	r->bytes_in = json_u64(rpc, "bytes_out");
	r->bytes_out = json_u64(rpc, "bytes_in");
}

static void add_mounts(struct sample *s, struct link *metad)
{
	json_t *doc = NULL, *list, *o;
	size_t i;

	if (link_json(metad, WIRE_OP_ADMIN_SESSIONS, &doc) < 0)
		return;
	list = json_is_array(doc) ? doc : json_object_get(doc, "sessions");
	json_array_foreach(list, i, o) {
		struct row *r = row_add(s);

		if (!r)
			break;
		/* The session, too: one that came anew counts from 0. */
		snprintf(r->who, sizeof(r->who), "mount %llu %s:%s",
			 (unsigned long long)json_u64(o, "session"),
			 json_text(o, "host", "?"),
			 json_text(o, "mountpoint", "?"));
		add_mount(r, json_object_get(o, "status"));
	}
	json_decref(doc);
}

/* Returns an exit code: CTL_PARTLY when some did not answer. */
static int sample_take(struct ctl *c, struct sample *s)
{
	struct links ls;
	int code;

	*s = (struct sample){ .tail = &s->first };
	if (links_open_all(c, &ls) < 0)
		return CTL_FAILED;
	s->at_ms = clock_now_ms(CLOCK_MONOTONIC);
	if (ls.count > 0 && ls.v[0].error == 0 && !ls.no_leader)
		add_mounts(s, &ls.v[0]);
	for (uint32_t i = 0; i < ls.count; i++) {
		struct link *l = &ls.v[i];
		json_t *stats = NULL;
		struct row *r;

		if (l->error == 0) {
			l->error = link_json(l, WIRE_OP_ADMIN_STATS, &stats);
			if (l->error)
				ls.failed++;
		}
		if (!stats) {
			link_complain(l);
			continue;
		}
		r = row_add(s);
		if (r) {
			snprintf(r->who, sizeof(r->who), "%s %u",
				 daemon_word(l->kind), l->d->id);
			add_daemon(r, l->kind, stats);
		}
		json_decref(stats);
	}
	code = links_exit(&ls);
	links_close(&ls);
	return code;
}

static const struct row *find(const struct sample *s, const char *who)
{
	for (const struct row *r = s->first; r; r = r->next)
		if (strcmp(r->who, who) == 0)
			return r;
	return NULL;
}

/* A restarted daemon counts from 0 again. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

static double per_s(uint64_t n, uint64_t ms)
{
	return ms ? (double)n * 1000 / (double)ms : 0;
}

static void row_json(json_t *list, const struct row *now,
		     const struct row *before, uint64_t ms)
{
	json_t *o = json_pack("{s:o}", "who", json_bytes(now->who));

	for (int i = 0; i < OP_COUNT; i++) {
		uint64_t n = grown(now->count[i], before->count[i]);
		uint64_t us = grown(now->sum_us[i], before->sum_us[i]);

		json_object_set_new(o, op_names[i], json_pack(
			"{s:f,s:f}", "per_s", per_s(n, ms), "mean_us",
			n ? (double)us / (double)n : 0));
	}
	json_object_set_new(o, "bytes_in_per_s", json_real(
		per_s(grown(now->bytes_in, before->bytes_in), ms)));
	json_object_set_new(o, "bytes_out_per_s", json_real(
		per_s(grown(now->bytes_out, before->bytes_out), ms)));
	json_array_append_new(list, o);
}

static void mean_text(uint64_t n, uint64_t us, char *buf, size_t size)
{
	double mean = n ? (double)us / (double)n : 0;

	if (n == 0 || us == 0)
		snprintf(buf, size, "-");
	else if (mean < 1000)
		snprintf(buf, size, "%.0f us", mean);
	else
		snprintf(buf, size, "%.1f ms", mean / 1000);
}

static void row_text(struct table *t, const struct row *now,
		     const struct row *before, uint64_t ms)
{
	char cells[2 * OP_COUNT + 2][32];
	const char *row[2 * OP_COUNT + 3] = { now->who };
	const uint64_t bytes[2] = {
		grown(now->bytes_in, before->bytes_in),
		grown(now->bytes_out, before->bytes_out),
	};

	for (int i = 0; i < OP_COUNT; i++) {
		uint64_t n = grown(now->count[i], before->count[i]);

		snprintf(cells[2 * i], sizeof(cells[0]), "%.0f", per_s(n, ms));
		mean_text(n, grown(now->sum_us[i], before->sum_us[i]),
			  cells[2 * i + 1], sizeof(cells[0]));
	}
	for (int i = 0; i < 2; i++)
		out_size((uint64_t)per_s(bytes[i], ms),
			 cells[2 * OP_COUNT + i], sizeof(cells[0]));
	for (int i = 0; i < 2 * OP_COUNT + 2; i++)
		row[i + 1] = cells[i];
	table_row(t, row);
}

static void show(const struct ctl *c, const struct sample *now,
		 const struct sample *before)
{
	static const char *const columns[] = {
		"WHO", "READ/s", "MEAN", "WRITE/s", "MEAN", "SYNC/s", "MEAN",
		"NAMES/s", "MEAN", "IN/s", "OUT/s",
	};
	static const struct row none;
	struct table *t = c->o.json ? NULL : table_new(columns,
						       array_count(columns));
	json_t *list = c->o.json ? json_array() : NULL;
	uint64_t ms = now->at_ms - before->at_ms;

	for (const struct row *r = now->first; r; r = r->next) {
		const struct row *b = find(before, r->who);

		if (t)
			row_text(t, r, b ? b : &none, ms);
		else
			row_json(list, r, b ? b : &none, ms);
	}
	if (t) {
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[J", stdout);
		table_print_free(t);
		putchar('\n');
	} else {
		json_t *o = json_pack("{s:I,s:o}", "interval_ms",
				      (json_int_t)ms, "rows", list);

		json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(o);
	}
	fflush(stdout);
}

static void nap(uint64_t ms)
{
	struct timespec t = { .tv_sec = (time_t)(ms / 1000),
			      .tv_nsec = (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&t, NULL);
}

int cmd_top(struct ctl *c, char **args)
{
	struct sample before, now;
	int code = sample_take(c, &before);

	(void)args;
	for (uint64_t i = 0; code != CTL_FAILED &&
	     (c->o.count == 0 || i < c->o.count) && !ferror(stdout); i++) {
		nap(c->o.interval_ms);
		code = sample_take(c, &now);
		if (code != CTL_FAILED)
			show(c, &now, &before);
		sample_free(&before);
		before = now;
	}
	sample_free(&before);
	return code;
}
