/* What the daemon tells about itself: JSON for hailctl, OpenMetrics text for
 * collectors. */
#include "blockd/serve_priv.h"

#include <inttypes.h>
#include <jansson.h>
#include <time.h>

#include "common/proto.h"

static const char *const class_names[CLASS_COUNT] = {
	[CLASS_READ] = "read",
	[CLASS_WRITE] = "write",
	[CLASS_WRITE_SYNC] = "write_sync",
	[CLASS_SYNC] = "sync",
	[CLASS_OTHER] = "other",
};

void hist_add(struct hist *h, uint64_t ns)
{
	uint64_t us = ns / 1000;
	unsigned i = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

	h->buckets[i < HIST_BUCKET_COUNT ? i : HIST_BUCKET_COUNT - 1]++;
	h->count++;
	h->sum_us += us;
}

/* Upper bound of the bucket that holds the @permille-th of the samples. */
static uint64_t hist_quantile_us(const struct hist *h, uint64_t permille)
{
	uint64_t seen = 0;

	for (unsigned i = 0; i < HIST_BUCKET_COUNT; i++) {
		seen += h->buckets[i];
		if (seen * 1000 >= h->count * permille && seen > 0)
			return UINT64_C(1) << i;
	}
	return 0;
}

/* One list of all counters: name, help, value. */
struct counter {
	const char *name;
	bool gauge;
	const char *help;
	uint64_t value;
};
#define COUNTER_MAX 64

static void add(struct counter *list, unsigned *count, const char *name,
		bool gauge, const char *help, uint64_t value)
{
	assert(*count < COUNTER_MAX);
	list[(*count)++] = (struct counter){ name, gauge, help, value };
}

static void collect_store(struct serve *s, struct counter *l, unsigned *n)
{
	struct store_stat st;

	store_stat(s->o.store, &st);
	add(l, n, "units_total", true, "units writers may use", st.units_total);
	add(l, n, "units_free", true, "units not promised", st.units_free);
	add(l, n, "units_dirty", true, "units only in memory and journal",
	    st.units_dirty);
	add(l, n, "commit", false, "last durable commit number", st.commit);
	add(l, n, "journal_commits", false, "journal records written",
	    st.journal_commits);
	add(l, n, "journal_bytes", false, "bytes written to the journal",
	    st.journal_bytes);
	add(l, n, "flushes", false, "segment flushes", st.flushes);
	add(l, n, "checkpoints", false, "checkpoints", st.checkpoints);
	add(l, n, "store_reads", false, "reads of the store", st.reads);
	add(l, n, "store_writes", false, "writes to the store", st.writes);
	add(l, n, "checksum_errors", false, "units whose stored sum is wrong",
	    st.checksum_errors);
	add(l, n, "store_error", true, "errno that stopped the store",
	    (uint64_t)-st.error);
}

static void collect_serve(struct serve *s, struct counter *l, unsigned *n)
{
	const struct serve_counters *c = &s->n;

	add(l, n, "bytes_read", false, "payload read", c->bytes_read);
	add(l, n, "bytes_written", false, "payload written", c->bytes_written);
	add(l, n, "invalid_requests", false, "requests refused as invalid",
	    c->invalid);
	add(l, n, "corrupt_requests", false,
	    "requests with wrong fields or sums", c->corrupt);
	add(l, n, "hello_refused", false,
	    "connections of dead sessions or older incarnations",
	    c->hello_stale);
	add(l, n, "fences", false, "sessions fenced", c->fences);
	add(l, n, "connections_replaced", false,
	    "connections closed by newer ones or dead sessions", c->replaced);
	add(l, n, "scrub_units_read", true, "by the last or present scrub",
	    s->scrub.running ? s->scrub.units_read : s->scrub.last_read);
	add(l, n, "scrub_units_bad", true, "found by the last or present scrub",
	    s->scrub.running ? s->scrub.units_bad : s->scrub.last_bad);
	add(l, n, "scrub_running", true, "a scrub is under way",
	    s->scrub.running);
	add(l, n, "scrub_last_timestamp", true,
	    "when the last scrub ended, UNIX time; 0: there was none",
	    s->scrub.last_s);
	add(l, n, "lease_waits", false, "waits for the serving lease",
	    c->waits_lease);
	add(l, n, "map_waits", false, "waits for a newer map", c->waits_map);
	add(l, n, "wait_timeouts", false, "connections closed after a wait",
	    c->wait_timeouts);
	add(l, n, "epoch", true, "cluster map epoch", blk_serve_epoch(s));
	add(l, n, "lease_ms", true, "serving lease left",
	    blk_serve_lease_ok(s) ?
		    s->lease_until_ms - blk_serve_lease_clock_ms() : 0);
}

static void collect_rim(struct serve *s, struct counter *l, unsigned *n)
{
	const struct conn_stats *c = conn_set_stats(s->conns);
	const struct ring_stats *r = ring_stats(s->o.ring);

	add(l, n, "connections", true, "open connections", c->open);
	add(l, n, "connections_accepted", false, "connections", c->accepted);
	add(l, n, "connections_refused", false, "above the limit", c->refused);
	add(l, n, "connections_no_memory", false, "refused for want of memory",
	    c->no_memory);
	add(l, n, "frames_in", false, "frames received", c->frames_in);
	add(l, n, "frames_out", false, "frames sent", c->frames_out);
	add(l, n, "net_bytes_in", false, "bytes received", c->bytes_in);
	add(l, n, "net_bytes_out", false, "bytes sent", c->bytes_out);
	add(l, n, "bad_frames", false, "frames with wrong checksum or length",
	    c->bad_frames);
	add(l, n, "connection_timeouts", false, "silent or deaf peers",
	    c->timeouts);
	add(l, n, "receive_stalls", false, "receiving stopped for memory",
	    c->stalls);
	add(l, n, "buffer_bytes", true, "memory of requests in flight",
	    s->o.pool->used_bytes);
	add(l, n, "loop_turns", false, "turns of the loop", r->turns);
	add(l, n, "loop_enters", false, "io_uring_enter calls", r->enters);
	add(l, n, "loop_sleeps", false, "turns that slept", r->blocked);
	add(l, n, "loop_spins", false, "waits begun awake", r->spins);
	add(l, n, "loop_spin_hits", false, "... that were rewarded",
	    r->spin_hits);
	add(l, n, "disk_reads", false, "reads of the disk", r->dev_reads);
	add(l, n, "disk_writes", false, "writes to the disk", r->dev_writes);
	add(l, n, "disk_flushes", false, "synced writes and flushes",
	    r->dev_flushes);
	add(l, n, "disk_errors", false, "failed disk operations",
	    r->dev_errors);
}

static unsigned collect(struct serve *s, struct counter *l)
{
	unsigned n = 0;

	collect_store(s, l, &n);
	collect_serve(s, l, &n);
	collect_rim(s, l, &n);
	return n;
}

static char *dump_and_free(json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	return text;
}

/* Who is refused has no lease for that reason. */
static const char *state_word(struct serve *s, const struct store_stat *st)
{
	if (st->error)
		return "read-only";
	if (blk_serve_lease_ok(s) || strcmp(s->state, "refused") == 0)
		return s->state;
	return "no-lease";
}

static const char *scrub_time(const struct serve *s, char *buf, size_t size)
{
	time_t t = (time_t)s->scrub.last_s;
	struct tm tm;

	if (t == 0 || !gmtime_r(&t, &tm) ||
	    strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return "never";
	return buf;
}

char *blk_serve_status_json(struct serve *s)
{
	struct store_stat st;
	char scrubbed[32], protocol[PROTO_TEXT_SIZE];
	json_t *j;

	store_stat(s->o.store, &st);
	j = json_pack(
		"{s:s,s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:s,s:I,s:s?}",
		"program", "hail-blockd",
		"protocol", proto_ours_text(protocol),
		"id", (json_int_t)s->o.daemon_id,
		"state", state_word(s, &st),
		"epoch", (json_int_t)blk_serve_epoch(s),
		"units_total", (json_int_t)st.units_total,
		"units_free", (json_int_t)st.units_free,
		"units_dirty", (json_int_t)st.units_dirty,
		"commit", (json_int_t)st.commit,
		"uptime_ms", (json_int_t)(ring_now_ms() - s->start_ms),
		"lease", blk_serve_lease_ok(s),
		"last_scrub", scrub_time(s, scrubbed, sizeof(scrubbed)),
		"bad_units", (json_int_t)(s->scrub.running ?
					  s->scrub.units_bad :
					  s->scrub.last_bad),
		"error", st.error ? st.error_text : NULL);
	return dump_and_free(j);
}

char *blk_serve_stats_json(struct serve *s)
{
	struct counter list[COUNTER_MAX];
	unsigned count = collect(s, list);
	json_t *j = json_object(), *ops = json_object();

	for (unsigned i = 0; i < count; i++)
		json_object_set_new(j, list[i].name,
				    json_integer((json_int_t)list[i].value));
	for (unsigned i = 0; i < CLASS_COUNT; i++) {
		const struct hist *h = &s->n.latency[i];

		json_object_set_new(ops, class_names[i], json_pack(
			"{s:I,s:I,s:I,s:I,s:I}",
			"count", (json_int_t)h->count,
			"errors", (json_int_t)s->n.errors[i],
			"sum_us", (json_int_t)h->sum_us,
			"p50_us", (json_int_t)hist_quantile_us(h, 500),
			"p99_us", (json_int_t)hist_quantile_us(h, 990)));
	}
	json_object_set_new(j, "ops", ops);
	return dump_and_free(j);
}

static void print_hist(FILE *f, const char *name, const struct hist *h)
{
	uint64_t seen = 0;

	for (unsigned i = 0; i < HIST_BUCKET_COUNT; i++) {
		seen += h->buckets[i];
		fprintf(f, "hail_blockd_request_seconds_bucket{op=\"%s\","
			"le=\"%g\"} %" PRIu64 "\n", name,
			(double)(UINT64_C(1) << i) / 1e6, seen);
	}
	fprintf(f, "hail_blockd_request_seconds_bucket{op=\"%s\",le=\"+Inf\"} "
		"%" PRIu64 "\n", name, h->count);
	fprintf(f, "hail_blockd_request_seconds_sum{op=\"%s\"} %g\n", name,
		(double)h->sum_us / 1e6);
	fprintf(f, "hail_blockd_request_seconds_count{op=\"%s\"} %" PRIu64
		"\n", name, h->count);
}

char *blk_serve_openmetrics(struct serve *s)
{
	struct counter list[COUNTER_MAX];
	unsigned count = collect(s, list);
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (unsigned i = 0; i < count; i++) {
		const struct counter *c = &list[i];

		fprintf(f, "# TYPE hail_blockd_%s %s\n"
			"# HELP hail_blockd_%s %s\n"
			"hail_blockd_%s%s %" PRIu64 "\n",
			c->name, c->gauge ? "gauge" : "counter", c->name,
			c->help, c->name, c->gauge ? "" : "_total", c->value);
	}
	fprintf(f, "# TYPE hail_blockd_request_seconds histogram\n"
		"# HELP hail_blockd_request_seconds time from a request to "
		"its answer\n");
	for (unsigned i = 0; i < CLASS_COUNT; i++)
		print_hist(f, class_names[i], &s->n.latency[i]);
	fprintf(f, "# EOF\n");
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
