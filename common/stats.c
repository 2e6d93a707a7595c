#include "common/stats.h"

#include <jansson.h>

enum kind { KIND_COUNTER, KIND_REF, KIND_GAUGE, KIND_HIST };

struct metric {
	enum kind kind;
	const char *name, *label, *help;
	union {
		struct stats_counter counter;
		struct stats_hist hist;
		const uint64_t *ref;
		struct {
			int64_t (*get)(void *arg);
			void *arg;
		} gauge;
	} u;
	struct metric *next;
};

struct stats {
	const char *prefix;
	struct metric *first, **tail;
};

struct stats *stats_new(const char *prefix)
{
	struct stats *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->prefix = prefix;
	s->tail = &s->first;
	return s;
}

void stats_free(struct stats *s)
{
	struct metric *m, *next;

	if (!s)
		return;
	for (m = s->first; m; m = next) {
		next = m->next;
		free(m);
	}
	free(s);
}

static struct metric *metric_add(struct stats *s, enum kind kind,
				 const char *name, const char *label,
				 const char *help)
{
	struct metric *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->kind = kind;
	m->name = name;
	m->label = label;
	m->help = help;
	*s->tail = m;
	s->tail = &m->next;
	return m;
}

struct stats_counter *stats_counter(struct stats *s, const char *name,
				    const char *label, const char *help)
{
	struct metric *m = metric_add(s, KIND_COUNTER, name, label, help);

	return m ? &m->u.counter : NULL;
}

struct stats_hist *stats_hist(struct stats *s, const char *name,
			      const char *label, const char *help)
{
	struct metric *m = metric_add(s, KIND_HIST, name, label, help);

	return m ? &m->u.hist : NULL;
}

int stats_counter_ref(struct stats *s, const char *name, const char *label,
		      const char *help, const uint64_t *v)
{
	struct metric *m = metric_add(s, KIND_REF, name, label, help);

	if (!m)
		return -ENOMEM;
	m->u.ref = v;
	return 0;
}

int stats_gauge(struct stats *s, const char *name, const char *label,
		const char *help, int64_t (*get)(void *arg), void *arg)
{
	struct metric *m = metric_add(s, KIND_GAUGE, name, label, help);

	if (!m)
		return -ENOMEM;
	m->u.gauge.get = get;
	m->u.gauge.arg = arg;
	return 0;
}

/* Counters grow while they are read: buckets are copied first, so that what is
 * shown adds up. */
struct hist_copy {
	uint64_t buckets[STATS_BUCKETS];
	uint64_t count, sum_ns;
};

static void hist_read(const struct stats_hist *h, struct hist_copy *c)
{
	c->count = 0;
	for (uint32_t i = 0; i < STATS_BUCKETS; i++) {
		c->buckets[i] = atomic_load_explicit(&h->buckets[i],
						     memory_order_relaxed);
		c->count += c->buckets[i];
	}
	c->sum_ns = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
}

static uint64_t bucket_end(uint32_t i)
{
	return (uint64_t)1 << (i + 1);
}

/* Upper bound of the bucket in which the value of rank @permille lies. */
static uint64_t hist_quantile(const struct hist_copy *c, uint64_t permille)
{
	uint64_t rank = (c->count * permille + 999) / 1000, seen = 0;

	if (c->count == 0)
		return 0;
	for (uint32_t i = 0; i < STATS_BUCKETS; i++) {
		seen += c->buckets[i];
		if (seen >= rank)
			return bucket_end(i);
	}
	return bucket_end(STATS_BUCKETS - 1);
}

static uint64_t metric_value(const struct metric *m)
{
	if (m->kind == KIND_COUNTER)
		return atomic_load_explicit(&m->u.counter.v,
					    memory_order_relaxed);
	return __atomic_load_n(m->u.ref, __ATOMIC_RELAXED);
}

/* ---- JSON ---- */

static json_t *hist_json(const struct stats_hist *h)
{
	struct hist_copy c;

	hist_read(h, &c);
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I}",
			 "count", (json_int_t)c.count,
			 "sum_ns", (json_int_t)c.sum_ns,
			 "mean_ns",
			 (json_int_t)(c.count ? c.sum_ns / c.count : 0),
			 "p50_ns", (json_int_t)hist_quantile(&c, 500),
			 "p90_ns", (json_int_t)hist_quantile(&c, 900),
			 "p99_ns", (json_int_t)hist_quantile(&c, 990),
			 "max_ns", (json_int_t)hist_quantile(&c, 1000));
}

static json_t *metric_json(const struct metric *m)
{
	switch (m->kind) {
	case KIND_HIST:
		return hist_json(&m->u.hist);
	case KIND_GAUGE:
		return json_integer(m->u.gauge.get(m->u.gauge.arg));
	case KIND_COUNTER:
	case KIND_REF:
		break;
	}
	return json_integer((json_int_t)metric_value(m));
}

char *stats_json(const struct stats *s)
{
	json_t *o = json_object();
	char *text = NULL, key[256];

	for (const struct metric *m = s->first; o && m; m = m->next) {
		if (m->label)
			snprintf(key, sizeof(key), "%s{%s}", m->name,
				 m->label);
		else
			snprintf(key, sizeof(key), "%s", m->name);
		if (json_object_set_new(o, key, metric_json(m)) < 0)
			goto out;
	}
	if (o)
		text = json_dumps(o, JSON_COMPACT);
out:
	json_decref(o);
	return text;
}

/* ---- OpenMetrics ---- */

static void hist_text(FILE *f, const struct stats *s, const struct metric *m)
{
	const char *label = m->label ? m->label : "";
	const char *comma = m->label ? "," : "";
	uint64_t seen = 0;
	struct hist_copy c;
	uint32_t last = 0;

	hist_read(&m->u.hist, &c);
	for (uint32_t i = 0; i < STATS_BUCKETS - 1; i++)
		if (c.buckets[i])
			last = i + 1;
	for (uint32_t i = 0; i < last; i++) {
		seen += c.buckets[i];
		fprintf(f, "%s_%s_bucket{%s%sle=\"%.9g\"} %llu\n", s->prefix,
			m->name, label, comma, (double)bucket_end(i) / 1e9,
			(unsigned long long)seen);
	}
	fprintf(f, "%s_%s_bucket{%s%sle=\"+Inf\"} %llu\n", s->prefix, m->name,
		label, comma, (unsigned long long)c.count);
	fprintf(f, "%s_%s_count%s%s%s %llu\n", s->prefix, m->name,
		m->label ? "{" : "", label, m->label ? "}" : "",
		(unsigned long long)c.count);
	fprintf(f, "%s_%s_sum%s%s%s %.9f\n", s->prefix, m->name,
		m->label ? "{" : "", label, m->label ? "}" : "",
		(double)c.sum_ns / 1e9);
}

static void metric_text(FILE *f, const struct stats *s, const struct metric *m)
{
	const char *open = m->label ? "{" : "", *close = m->label ? "}" : "";
	const char *label = m->label ? m->label : "";

	switch (m->kind) {
	case KIND_HIST:
		hist_text(f, s, m);
		break;
	case KIND_GAUGE:
		fprintf(f, "%s_%s%s%s%s %lld\n", s->prefix, m->name, open,
			label, close,
			(long long)m->u.gauge.get(m->u.gauge.arg));
		break;
	case KIND_COUNTER:
	case KIND_REF:
		fprintf(f, "%s_%s_total%s%s%s %llu\n", s->prefix, m->name,
			open, label, close,
			(unsigned long long)metric_value(m));
		break;
	}
}

char *stats_openmetrics(const struct stats *s)
{
	static const char *const types[] = { "counter", "counter", "gauge",
					     "histogram" };
	const char *last = "";
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	for (const struct metric *m = s->first; m; m = m->next) {
		if (strcmp(last, m->name) != 0) {
			fprintf(f, "# TYPE %s_%s %s\n", s->prefix, m->name,
				types[m->kind]);
			fprintf(f, "# HELP %s_%s %s\n", s->prefix, m->name,
				m->help);
		}
		last = m->name;
		metric_text(f, s, m);
	}
	fprintf(f, "# EOF\n");
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
