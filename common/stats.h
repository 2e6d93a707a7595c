/* Counters, gauges and latency histograms of a program: counted without locks
 * on the data path, shown as JSON (hailctl stats) and as OpenMetrics text over
 * HTTP.
 *
 * A registry is filled at start-up by one thread, then only read; what it holds
 * lives as long as it does. Metrics of one name that differ in their label are
 * registered one after the other.
 */
#ifndef COMMON_STATS_H
#define COMMON_STATS_H

#include <stdatomic.h>

#include "common/base.h"

/* Bucket i counts values in [2^i, 2^(i+1)); the last one all above. */
#define STATS_BUCKETS 40u

struct stats;

struct stats_counter {
	_Atomic uint64_t v;
};

struct stats_hist {
	_Atomic uint64_t buckets[STATS_BUCKETS];
	_Atomic uint64_t sum_ns;
};

static inline void stats_add(struct stats_counter *c, uint64_t v)
{
	atomic_fetch_add_explicit(&c->v, v, memory_order_relaxed);
}

static inline uint32_t stats_bucket(uint64_t ns)
{
	uint32_t log2 = ns == 0 ? 0 : 63u - (uint32_t)__builtin_clzll(ns);

	return log2 < STATS_BUCKETS ? log2 : STATS_BUCKETS - 1;
}

static inline void stats_hist_add(struct stats_hist *h, uint64_t ns)
{
	atomic_fetch_add_explicit(&h->buckets[stats_bucket(ns)], 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

/* For a number kept elsewhere: only one thread changes it, any may read. */
static inline void stats_set(uint64_t *v, uint64_t to)
{
	__atomic_store_n(v, to, __ATOMIC_RELAXED);
}

static inline void stats_count(uint64_t *v, uint64_t by)
{
	stats_set(v, *v + by);
}

/* What the registry stands for. @prefix: of every metric's name in OpenMetrics,
 * "hail_blockd"; borrowed. NULL: out of memory. */
struct stats *stats_new(const char *prefix);
void stats_free(struct stats *s);

/* Register. @name: [a-z][a-z0-9_]*, without unit suffix "_total" (counters get
 * it); @label: "op=\"write\"" or NULL; @help: a sentence. All borrowed for the
 * registry's life. NULL: out of memory. */
struct stats_counter *stats_counter(struct stats *s, const char *name,
				    const char *label, const char *help);
struct stats_hist *stats_hist(struct stats *s, const char *name,
			      const char *label, const char *help);
/* Counters kept elsewhere, by stats_count(); read with relaxed loads. Returns
 * 0 or -ENOMEM. */
int stats_counter_ref(struct stats *s, const char *name, const char *label,
		      const char *help, const uint64_t *v);
/* A value that goes up and down, asked for when it is shown, on the thread
 * that shows it (also the HTTP one). Returns 0 or -ENOMEM. */
int stats_gauge(struct stats *s, const char *name, const char *label,
		const char *help, int64_t (*get)(void *arg), void *arg);

/* JSON object: "name" or "name{label}" to a number, or for a histogram to
 * {"count", "sum_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"}
 * (percentiles: upper bound of their bucket). malloc'd; NULL: out of memory. */
char *stats_json(const struct stats *s);
/* OpenMetrics 1.0 text. malloc'd; NULL: out of memory. */
char *stats_openmetrics(const struct stats *s);

/* Serves what @text makes (malloc'd; NULL: out of memory) at
 * http://127.0.0.1:@port/metrics, from a thread of its own, on which @text
 * runs. @port 0: any, see stats_http_port(). Returns 0 or -errno. */
struct stats_http;
int stats_http_start(char *(*text)(void *arg), void *arg, uint16_t port,
		     struct stats_http **ret);
/* @text for a registry, which is @arg. */
char *stats_http_text(void *arg);
uint16_t stats_http_port(const struct stats_http *h);
void stats_http_stop(struct stats_http *h); /* NULL: no-op */

#endif
