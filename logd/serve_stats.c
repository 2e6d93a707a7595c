/* What the daemon tells about itself: JSON for hailctl, a registry of counters
 * for both hailctl and collectors. */
#include "logd/serve_priv.h"

#include <jansson.h>

#include "common/clock.h"
#include "common/proto.h"
#include "logd/verbs.h"

/* Who is refused has no lease for that reason. */
static const char *state_word(const struct lserve *s)
{
	const struct lend *l = s->o.lend;

	if (lend_draining(l))
		return lend_stats(l)->logs > 0 ? "draining" : "drained";
	if (lserve_lease_ok(s) || strcmp(s->state, "refused") == 0)
		return s->state;
	return "no-lease";
}

char *lserve_status_json(struct lserve *s)
{
	const struct lend_stats *st = lend_stats(s->o.lend);
	uint64_t until_ms = lend_wanted_ms(s->o.lend);
	uint64_t now_ms = clock_now_ms(CLOCK_MONOTONIC);
	char *text, protocol[PROTO_TEXT_SIZE];
	json_t *j;

	j = json_pack(
		"{s:s,s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:b,s:b,"
		"s:b,s:I}",
		"program", "hail-logd",
		"protocol", proto_ours_text(protocol),
		"id", (json_int_t)s->o.daemon_id,
		"state", state_word(s),
		"epoch", (json_int_t)lserve_epoch(s),
		"total_bytes", (json_int_t)lend_total_bytes(s->o.lend),
		"free_bytes", (json_int_t)lend_free_bytes(s->o.lend),
		"lent_bytes", (json_int_t)st->lent_bytes,
		"logs", (json_int_t)st->logs,
		"regions", (json_int_t)st->regions,
		"given_up", (json_int_t)st->tombs,
		"reclaimed", (json_int_t)st->reclaimed,
		"draining", lend_draining(s->o.lend),
		"drain_ms", (json_int_t)(until_ms > now_ms ?
					 until_ms - now_ms : 0),
		"lease", lserve_lease_ok(s),
		"pinned", s->o.pinned,
		"huge_pages", s->o.huge,
		"uptime_ms", (json_int_t)(now_ms - s->start_ms));
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

struct counter {
	const char *name, *help;
	const uint64_t *v;
};

static int add_counters(struct stats *to, const struct counter *list,
			size_t count)
{
	int rv = 0;

	for (size_t i = 0; i < count && rv == 0; i++)
		rv = stats_counter_ref(to, list[i].name, NULL, list[i].help,
				       list[i].v);
	return rv;
}

static int64_t get_u64(void *arg)
{
	const uint64_t *v = arg;

	return (int64_t)__atomic_load_n(v, __ATOMIC_RELAXED);
}

static int add_gauges(struct stats *to, const struct counter *list,
		      size_t count)
{
	int rv = 0;

	for (size_t i = 0; i < count && rv == 0; i++)
		rv = stats_gauge(to, list[i].name, NULL, list[i].help, get_u64,
				 (void *)(uintptr_t)list[i].v);
	return rv;
}

static int add_lend(struct lserve *s, struct stats *to)
{
	const struct lend_stats *n = lend_stats(s->o.lend);
	const struct counter counters[] = {
		{ "allocs", "regions lent", &n->allocs },
		{ "writes", "writes applied", &n->writes },
		{ "write_bytes", "bytes of records applied", &n->bytes },
		{ "duplicates", "writes that were there already",
		  &n->duplicates },
		{ "fences", "fences of inodes", &n->fences },
		{ "logs_cut", "logs whose writer was fenced", &n->cut },
		{ "reads", "reads of regions", &n->reads },
		{ "read_bytes", "bytes of them", &n->read_bytes },
		{ "frees", "requests to free", &n->frees },
		{ "logs_given_up", "logs whose memory was taken back",
		  &n->given_up },
		{ "logs_reclaimed", "... at a drain's deadline",
		  &n->reclaimed },
		{ "logs_collected", "logs and fences that nobody owned",
		  &n->collected },
		{ "refused_no_memory", "regions not lent for want of memory",
		  &n->no_memory },
		{ "refused_full", "requests above a number of logs or inodes",
		  &n->full },
		{ "refused_stale", "requests of an older epoch or session",
		  &n->stale },
		{ "refused_gone", "requests of logs that were given up",
		  &n->gone },
		{ "refused_missing", "requests of regions that are not here",
		  &n->missing },
		{ "refused_gaps", "writes that leave a gap, or differ",
		  &n->gaps },
		{ "refused_damaged", "writes with a wrong record or slot",
		  &n->damaged },
	};
	const struct counter gauges[] = {
		{ "logs", "logs with memory", &n->logs },
		{ "tombstones", "logs remembered as given up", &n->tombs },
		{ "inodes", "inodes with a log or a fence", &n->inos },
		{ "regions", "regions lent", &n->regions },
		{ "lent_bytes", "memory lent", &n->lent_bytes },
	};
	int rv = add_counters(to, counters, array_count(counters));

	return rv ? rv : add_gauges(to, gauges, array_count(gauges));
}

static int add_rim(struct lserve *s, struct stats *to)
{
	const struct lconn_stats *c = lconn_set_stats(s->conns);
	const struct loop_stats *l = loop_stats(s->o.loop);
	const struct counter counters[] = {
		{ "invalid_requests", "requests refused as invalid",
		  &s->n.invalid },
		{ "corrupt_requests", "requests with wrong fields",
		  &s->n.corrupt },
		{ "hello_refused",
		  "connections of dead sessions or older incarnations",
		  &s->n.hello_refused },
		{ "connections_replaced",
		  "connections closed by newer ones or dead sessions",
		  &s->n.replaced },
		{ "connections_fenced", "connections closed by a fence",
		  &s->n.fenced },
		{ "lease_waits", "HELLOs that waited for the serving lease",
		  &s->n.waits_lease },
		{ "map_waits", "HELLOs that waited for a newer map",
		  &s->n.waits_map },
		{ "wait_timeouts", "connections closed after a wait",
		  &s->n.wait_timeouts },
		{ "refused_no_lease", "regions not lent without a lease",
		  &s->n.no_lease },
		{ "connections_accepted", "connections", &c->accepted },
		{ "connections_refused", "above the limit", &c->refused },
		{ "frames_in", "frames received", &c->frames_in },
		{ "net_bytes_in", "bytes received", &c->bytes_in },
		{ "net_bytes_out", "bytes sent", &c->bytes_out },
		{ "bad_frames", "frames with wrong checksum or length",
		  &c->bad_frames },
		{ "connection_timeouts", "silent or deaf peers",
		  &c->timeouts },
		{ "loop_turns", "turns of the loop", &l->turns },
		{ "loop_sleeps", "waits that slept", &l->sleeps },
		{ "loop_spins", "waits begun awake", &l->spins },
		{ "loop_spin_hits", "... that were rewarded", &l->spin_hits },
	};
	const struct counter gauges[] = {
		{ "connections", "open connections", &c->open },
	};
	int rv = add_counters(to, counters, array_count(counters));

	return rv ? rv : add_gauges(to, gauges, array_count(gauges));
}

static int add_verbs(struct lserve *s, struct stats *to)
{
	static const struct lverbs_stats none;
	const struct lverbs_stats *n = s->o.verbs ? lverbs_stats(s->o.verbs) :
						    &none;
	const struct counter counters[] = {
		{ "verbs_tokens", "allowances to connect over RDMA",
		  &n->tokens },
		{ "verbs_accepted", "RDMA connections made", &n->accepted },
		{ "verbs_refused", "... refused", &n->rejected },
		{ "verbs_ended", "... ended from here", &n->ended },
		{ "verbs_lost", "... that the writer ended or lost",
		  &n->disconnected },
		{ "verbs_events", "asynchronous events of the device",
		  &n->events },
		{ "verbs_errors", "RDMA calls that failed", &n->errors },
		{ "verbs_keys_stuck", "keys that could not be taken back",
		  &n->stuck },
	};
	const struct counter gauges[] = {
		{ "verbs_connections", "RDMA connections", &n->connections },
		{ "verbs_keys", "regions that can be written over RDMA",
		  &n->registrations },
		{ "verbs_device", "the RDMA device is there", &n->device },
	};
	int rv = add_counters(to, counters, array_count(counters));

	return rv ? rv : add_gauges(to, gauges, array_count(gauges));
}

static int add_classes(struct lserve *s, struct stats *to)
{
	static const char *const labels[CLASS_COUNT] = {
		[CLASS_WRITE] = "op=\"write\"",
		[CLASS_ALLOC] = "op=\"alloc\"",
		[CLASS_FENCE] = "op=\"fence\"",
		[CLASS_READ] = "op=\"read\"",
		[CLASS_OTHER] = "op=\"other\"",
	};
	int rv = 0;

	for (unsigned i = 0; i < CLASS_COUNT && rv == 0; i++)
		rv = stats_counter_ref(to, "request_errors", labels[i],
				       "requests answered with an error",
				       &s->n.errors[i]);
	for (unsigned i = 0; i < CLASS_COUNT && rv == 0; i++) {
		s->n.latency[i] = stats_hist(to, "request_seconds", labels[i],
					     "from a request's arrival to its "
					     "answer");
		rv = s->n.latency[i] ? 0 : -ENOMEM;
	}
	return rv;
}

int lserve_stats_fill(struct lserve *s, struct stats *to)
{
	int rv = add_lend(s, to);

	if (rv == 0)
		rv = add_rim(s, to);
	if (rv == 0)
		rv = add_verbs(s, to);
	if (rv == 0)
		rv = add_classes(s, to);
	if (rv == 0)
		s->stats = to;
	return rv;
}
