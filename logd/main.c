/* hail-logd: options, start and end of the log daemon. */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/daemon.h"
#include "common/daemon_conf.h"
#include "common/diag.h"
#include "common/stats.h"
#include "logd/memory.h"
#include "logd/register.h"
#include "logd/verbs.h"

/* Exit statuses: see hail-logd(8). */
#define EXIT_USAGE 2
#define EXIT_ERROR 3

/* While memory is wanted back: how often it looks. */
#define DRAIN_TICK_MS 50u

struct config {
	struct daemon_config d; /* first */
	uint64_t memory;
	int pin;
	char *listen, *domain, *rdma;
	uint64_t metrics_port;
	uint64_t spin_us;
	uint64_t drain_deadline_ms;
	uint64_t conn_max, log_max;
};

static const char *const pins[] = { [LEND_PIN_TRY] = "try",
				    [LEND_PIN_MUST] = "must",
				    [LEND_PIN_NO] = "no", NULL };

#define FIELD(f) offsetof(struct config, f)
static const struct opt options[] = {
	DAEMON_OPTIONS_FIRST("log daemon"),
	{ "memory", 'm', OPT_SIZE, FIELD(memory), "256m", 1u << 20,
	  UINT64_C(1) << 46, NULL, "SIZE", "memory to lend" },
	{ "pin", 0, OPT_CHOICE, FIELD(pin), "try", 0, 0, pins, "WHEN",
	  "keep it in memory: try, must or no" },
	{ "listen", 0, OPT_STR, FIELD(listen), NULL, 0, 0, NULL, "ADDR",
	  "address to listen at; default: that of the cluster file" },
	{ "rdma", 0, OPT_STR, FIELD(rdma), NULL, 0, 0, NULL, "ADDR[:PORT]",
	  "take one-sided writes on the RDMA device of this address; default "
	  "port: that of the cluster file" },
	{ "domain", 0, OPT_STR, FIELD(domain), NULL, 0, 0, NULL, "NAME",
	  "failure domain; default: domain= of the cluster file, or the "
	  "address" },
	{ "drain-deadline", 0, OPT_MS, FIELD(drain_deadline_ms), "10s", 0,
	  3600000, NULL, "TIME",
	  "how long to wait for lent memory when told to stop" },
	{ "connections", 0, OPT_U64, FIELD(conn_max), "1280", 8, 65536, NULL,
	  "N", "most connections at a time" },
	{ "logs", 0, OPT_U64, FIELD(log_max), "65536", 1, LOG_COUNT_MAX, NULL,
	  "N", "most logs at a time, those that were given up among them" },
	{ "metrics-port", 0, OPT_U64, FIELD(metrics_port), "0", 0, 65535, NULL,
	  "N", "serve OpenMetrics text over HTTP there; 0: do not" },
	{ "spin", 0, OPT_U64, FIELD(spin_us), "50", 0, 1000, NULL, "US",
	  "microseconds to stay awake for the next request when requests "
	  "have lately come that fast; 0: never" },
	DAEMON_OPTIONS_LAST,
	{ .name = NULL },
};

struct logd {
	struct config cfg;
	struct conf conf;
	const struct conf_daemon *self;
	uint64_t boot_id;
	struct loop *loop;
	struct loop_fd signals;
	struct loop_timer tick; /* while memory is wanted back */
	struct lend_memory memory;
	struct lend_pool pool;
	struct lend *lend;
	struct lverbs *verbs; /* NULL: no RDMA */
	char rdma_addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t rdma_port;
	struct lserve *serve;
	struct lreg *reg;
	struct stats *stats;
	struct stats_http *http;
	bool stopping;
};

/* ---- stopping: what was lent comes home first ---- */

static void on_tick(struct loop_timer *t)
{
	struct logd *d = container_of(t, struct logd, tick);
	uint32_t count;

	lend_set_now(d->lend, loop_now_ms(d->loop));
	count = lend_expire(d->lend);
	if (count > 0)
		diag_warn("main", "what=reclaimed logs=%u", count);
	if (d->stopping && (lend_stats(d->lend)->regions == 0 ||
			    lend_wanted_ms(d->lend) == 0)) {
		loop_stop(d->loop);
		return;
	}
	if (lend_wanted_ms(d->lend) > 0)
		loop_timer_start(d->loop, t, DRAIN_TICK_MS);
}

/* Memory is wanted back from now on, or not any more. */
static void drained(void *arg)
{
	struct logd *d = arg;

	lreg_tell(d->reg);
	on_tick(&d->tick);
}

static void stop(void *arg)
{
	struct logd *d = arg;
	const struct lend_stats *st = lend_stats(d->lend);

	if (d->stopping) {
		diag_warn("main", "what=stopping lent_bytes=%llu",
			  (unsigned long long)st->lent_bytes);
		loop_stop(d->loop);
		return;
	}
	d->stopping = true;
	diag_info("main", "what=stopping logs=%llu lent_bytes=%llu",
		  (unsigned long long)st->logs,
		  (unsigned long long)st->lent_bytes);
	lend_drain(d->lend, loop_now_ms(d->loop) + d->cfg.drain_deadline_ms);
	drained(d);
}

static void on_signal(struct loop_fd *f, uint32_t events)
{
	struct logd *d = container_of(f, struct logd, signals);
	struct signalfd_siginfo si;

	(void)events;
	if (read(f->fd, &si, sizeof(si)) == sizeof(si))
		stop(d);
}

/* ---- running ---- */

static void turn_end(void *arg)
{
	struct logd *d = arg;

	if (d->serve)
		lserve_flush(d->serve);
}

static void want_map(void *arg)
{
	struct logd *d = arg;

	if (d->reg)
		lreg_want_map(d->reg);
}

static void on_fenced(void *arg, struct lend_log *g)
{
	struct logd *d = arg;

	lserve_fenced(d->serve, g);
}

static int on_grant(void *arg, struct lend_log *g, struct lend_region *r)
{
	struct logd *d = arg;

	return d->verbs ? lverbs_grant(d->verbs, g, r) : -EOPNOTSUPP;
}

static void on_revoke(void *arg, struct lend_log *g, struct lend_region *r)
{
	struct logd *d = arg;

	lverbs_revoke(d->verbs, g, r);
}

static void on_end(void *arg, struct lend_log *g)
{
	struct logd *d = arg;

	if (d->verbs)
		lverbs_end(d->verbs, g);
}

static bool on_hears(void *arg, const struct lend_log *g)
{
	const struct logd *d = arg;

	return d->serve && lserve_hears(d->serve, g);
}

static const struct lend_ops lend_ops = { .grant = on_grant,
					  .revoke = on_revoke,
					  .end = on_end,
					  .fenced = on_fenced,
					  .hears = on_hears };

static int random_id(uint64_t *ret)
{
	do {
		if (getrandom(ret, sizeof(*ret), 0) != sizeof(*ret))
			return -errno;
	} while (*ret == 0);
	return 0;
}

static int make_lend(struct logd *d)
{
	struct lend_options o = {
		.pool = &d->pool,
		.cluster_id = d->conf.cluster_id,
		.log_max = (uint32_t)d->cfg.log_max,
		.ino_max = (uint32_t)d->cfg.log_max * 2,
		.ops = &lend_ops,
		.arg = d,
	};
	char why[400];
	int rv = lend_memory_map(d->cfg.memory, (enum lend_pin)d->cfg.pin,
				 &d->memory, why, sizeof(why));

	if (why[0])
		fprintf(stderr, "hail-logd: %s\n", why);
	if (rv < 0)
		return rv;
	rv = lend_pool_init(&d->pool, d->memory.base, d->memory.bytes);
	if (rv == 0)
		rv = lend_new(&o, &d->lend);
	if (rv < 0)
		fprintf(stderr, "hail-logd: %s\n", strerror(-rv));
	return rv;
}

/* ADDR, ADDR:PORT, [ADDR]:PORT; an address with colons needs its brackets. */
static int parse_rdma(struct logd *d)
{
	const char *s = d->cfg.rdma, *end = strrchr(s, ':');
	unsigned long port = d->self->port;
	size_t len;
	char *rest;

	if (end && end > s && (end[-1] == ']' || strchr(s, ':') == end)) {
		port = strtoul(end + 1, &rest, 10);
		if (!end[1] || *rest || port == 0 || port > 65535)
			return -EINVAL;
	} else {
		end = s + strlen(s);
	}
	len = (size_t)(end - s);
	if (len > 1 && s[0] == '[' && s[len - 1] == ']') {
		s++;
		len -= 2;
	}
	if (len == 0 || len > CMAP_ADDR_LEN_MAX)
		return -EINVAL;
	memcpy(d->rdma_addr, s, len);
	d->rdma_addr[len] = '\0';
	d->rdma_port = (uint16_t)port;
	return 0;
}

/* What has no RDMA serves over TCP. */
static int make_verbs(struct logd *d)
{
	struct lverbs_options o = {
		.loop = d->loop,
		.lend = d->lend,
		.addr = d->rdma_addr,
		.cluster_id = d->conf.cluster_id,
	};
	char why[256];

	if (!d->cfg.rdma)
		return 0;
	if (parse_rdma(d) < 0) {
		fprintf(stderr, "hail-logd: --rdma %s: not ADDR or ADDR:PORT\n",
			d->cfg.rdma);
		return -EINVAL;
	}
	o.port = d->rdma_port;
	if (lverbs_new(&o, &d->verbs, why, sizeof(why)) < 0) {
		fprintf(stderr, "hail-logd: %s; logs go over TCP\n", why);
		d->verbs = NULL;
		d->rdma_port = 0;
		d->rdma_addr[0] = '\0';
	}
	return 0;
}

static int make_serve(struct logd *d)
{
	struct lserve_options o = {
		.loop = d->loop,
		.lend = d->lend,
		.gate = d->conf.gate,
		.addr = d->cfg.listen ? d->cfg.listen : d->self->addr,
		.port = d->self->port,
		.cluster_id = d->conf.cluster_id,
		.daemon_id = d->self->id,
		.boot_id = d->boot_id,
		.conn_max = (unsigned)d->cfg.conn_max,
		.huge = d->memory.huge,
		.pinned = d->memory.pinned,
		.verbs = d->verbs,
		.want_map = want_map,
		.stop = stop,
		.drained = drained,
		.arg = d,
	};
	char why[256];
	int rv = lserve_new(&o, &d->serve, why, sizeof(why));

	if (rv < 0)
		fprintf(stderr, "hail-logd: %s\n", why);
	return rv;
}

static int make_reg(struct logd *d)
{
	struct lreg_options o = {
		.loop = d->loop,
		.lend = d->lend,
		.serve = d->serve,
		.conf = &d->conf,
		.daemon_id = d->self->id,
		.boot_id = d->boot_id,
		.addr = d->self->addr,
		.port = d->self->port,
		.rdma_addr = d->rdma_addr,
		.rdma_port = d->rdma_port,
		.verbs = d->verbs,
		.domain = d->cfg.domain ? d->cfg.domain :
			  d->self->domain ? d->self->domain : d->self->addr,
	};
	int rv = lreg_new(&o, &d->reg);

	if (rv < 0)
		fprintf(stderr, "hail-logd: cannot talk to metad at %s: %s\n",
			d->conf.metad_count ? d->conf.metads[0].addr :
			"(the cluster file has none)", strerror(-rv));
	return rv;
}

static int make_metrics(struct logd *d)
{
	int rv;

	d->stats = stats_new("hail_logd");
	rv = d->stats ? lserve_stats_fill(d->serve, d->stats) : -ENOMEM;
	if (rv == 0 && d->cfg.metrics_port > 0)
		rv = stats_http_start(stats_http_text, d->stats,
				      (uint16_t)d->cfg.metrics_port, &d->http);
	if (rv < 0)
		fprintf(stderr, "hail-logd: metrics port %llu: %s\n",
			(unsigned long long)d->cfg.metrics_port,
			strerror(-rv));
	return rv;
}

static int start(struct logd *d)
{
	int rv = random_id(&d->boot_id);

	if (rv == 0)
		rv = make_lend(d);
	if (rv == 0)
		rv = loop_new((uint32_t)d->cfg.spin_us, turn_end, d, &d->loop);
	if (rv == 0)
		rv = make_verbs(d);
	if (rv == 0)
		rv = make_serve(d);
	if (rv == 0)
		rv = make_metrics(d);
	if (rv == 0)
		rv = make_reg(d);
	if (rv < 0)
		return rv;
	d->signals.fn = on_signal;
	d->tick.fn = on_tick;
	return loop_add(d->loop, &d->signals, EPOLLIN);
}

static int run(struct logd *d)
{
	int rv = start(d);

	if (rv < 0)
		return EXIT_ERROR; /* the process ends: nothing is undone */
	daemon_ready();
	diag_info("main", "what=serving daemon=%u addr=%s port=%u "
		  "memory_bytes=%llu pinned=%d huge=%d rdma=%s:%u", d->self->id,
		  d->self->addr, d->self->port,
		  (unsigned long long)lend_total_bytes(d->lend),
		  d->memory.pinned, d->memory.huge, d->rdma_addr,
		  d->rdma_port);
	rv = loop_run(d->loop);
	stats_http_stop(d->http);
	lreg_free(d->reg);
	lserve_free(d->serve);
	lverbs_free(d->verbs);
	d->verbs = NULL;
	lend_free(d->lend);
	stats_free(d->stats);
	loop_free(d->loop);
	lend_pool_fini(&d->pool);
	lend_memory_unmap(&d->memory);
	if (rv < 0)
		diag_err("main", "what=loop error=\"%s\"", strerror(-rv));
	return rv < 0 ? EXIT_ERROR : 0;
}

int main(int argc, char **argv)
{
	static struct logd d;
	struct daemon_options dopt = { .program = "hail-logd" };
	int rv;

	diag_init("hail-logd", false);
	rv = daemon_configure(DAEMON_LOGD, options, &d.cfg, argc, argv,
			      &d.conf, &d.self);
	if (rv != 0)
		return rv > 0 ? 0 : EXIT_USAGE;
	dopt.foreground = d.cfg.d.foreground;
	dopt.pidfile = d.cfg.d.pidfile;
	dopt.log = d.cfg.d.log;
	rv = daemon_start(&dopt);
	if (rv < 0)
		return EXIT_ERROR;
	d.signals.fd = daemon_stop_fd();
	if (d.signals.fd < 0)
		return EXIT_ERROR;
	rv = run(&d);
	if (rv == 0) {
		conf_fini(&d.conf);
		opt_fini(options, &d.cfg);
	}
	daemon_end();
	return rv;
}
