/* hail-blockd: options, start and end of the block daemon. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockd/metrics.h"
#include "blockd/register.h"
#include "common/daemon.h"
#include "common/daemon_conf.h"
#include "common/diag.h"
#include "common/disk_share.h"

/* Exit statuses: see hail-blockd(8). */
#define EXIT_DEFECTS 1
#define EXIT_USAGE 2
#define EXIT_ERROR 3

struct config {
	struct daemon_config d; /* first */
	char *data;
	uint64_t capacity, journal, cache, reserve, buffers;
	char *listen;
	uint64_t metrics_port;
	uint64_t spin_us;
	uint64_t scrub_rate, scrub_interval_ms;
	uint64_t conn_max;
	bool check, data_sums, format;
};

#define FIELD(f) offsetof(struct config, f)
static const struct opt options[] = {
	DAEMON_OPTIONS_FIRST("block daemon"),
	{ "data", 0, OPT_STR, FIELD(data), NULL, 0, 0, NULL, "DIR",
	  "directory of the store; default: data= of the cluster file" },
	{ "capacity", 0, OPT_SIZE, FIELD(capacity), "0", 0, UINT64_MAX, NULL,
	  "SIZE", "bytes to use; 0: what the file system has" },
	{ "journal", 0, OPT_SIZE, FIELD(journal), "128m", 8u << 20,
	  UINT64_C(64) << 30, NULL, "SIZE",
	  "size of the redo journal, taken when the store is made" },
	{ "cache", 0, OPT_SIZE, FIELD(cache), "64m", 4u << 20,
	  UINT64_C(1) << 40, NULL, "SIZE",
	  "memory for small writes that are not yet in segments" },
	{ "reserve", 0, OPT_SIZE, FIELD(reserve), "16m", 1u << 20,
	  UINT64_C(1) << 40, NULL, "SIZE",
	  "space kept so that deleting works on a full store" },
	{ "buffers", 0, OPT_SIZE, FIELD(buffers), "32m",
	  4 * (uint64_t)FRAME_DATA_MAX, UINT64_C(1) << 40, NULL, "SIZE",
	  "memory for requests and replies on their way" },
	{ "listen", 0, OPT_STR, FIELD(listen), NULL, 0, 0, NULL, "ADDR",
	  "address to listen at; default: that of the cluster file" },
	{ "connections", 0, OPT_U64, FIELD(conn_max), "1280", 8, 65536, NULL,
	  "N", "most connections at a time" },
	{ "metrics-port", 0, OPT_U64, FIELD(metrics_port), "0", 0, 65535, NULL,
	  "N", "serve OpenMetrics text over HTTP there; 0: do not" },
	{ "spin", 0, OPT_U64, FIELD(spin_us), "50", 0, 1000, NULL, "US",
	  "microseconds to stay awake for the next request when requests "
	  "have lately come that fast; 0: never" },
	{ "scrub-rate", 0, OPT_SIZE, FIELD(scrub_rate), "64m", 1u << 20,
	  UINT64_C(1) << 40, NULL, "SIZE",
	  "bytes a second a scrub may read" },
	{ "scrub-interval", 0, OPT_MS, FIELD(scrub_interval_ms), "30d", 0, 0,
	  NULL, "TIME", "verify all checksums that often; 0: only when asked" },
	{ "check", 0, OPT_FLAG, FIELD(check), "no", 0, 0, NULL, NULL,
	  "verify the store, which must not be in use, and exit" },
	{ "data-sums", 0, OPT_FLAG, FIELD(data_sums), "no", 0, 0, NULL, NULL,
	  "with --check: read all data and verify its checksums" },
	{ "format", 0, OPT_FLAG, FIELD(format), "no", 0, 0, NULL, NULL,
	  "make an empty store and exit; an empty data directory gets one "
	  "by itself" },
	DAEMON_OPTIONS_LAST,
	{ .name = NULL },
};

struct blockd {
	struct config cfg;
	struct conf conf;
	const struct conf_daemon *self;
	char *dir; /* of the store */
	int lock_fd;
	int stop_fd;
	struct ring_op stop_op;
	struct ring *ring;
	struct dev *dev;
	struct pool pool;
	struct store *store;
	struct serve *serve;
	struct reg *reg;
	struct metrics *metrics;
	bool stopping;
	int exit_status;
};

/* The directory of the store, made if need be, as an absolute name: going to
 * the background changes to "/". */
static int find_data(struct blockd *b)
{
	const char *dir = b->cfg.data ? b->cfg.data : b->self->data;

	if (!dir) {
		fprintf(stderr, "hail-blockd: %s: blockd %u: no data=DIR, and "
			"no --data DIR\n", b->cfg.d.cluster, b->self->id);
		return -EINVAL;
	}
	if (!b->cfg.check && mkdir(dir, 0700) < 0 && errno != EEXIST) {
		fprintf(stderr, "hail-blockd: cannot make %s: %s\n", dir,
			strerror(errno));
		return -errno;
	}
	b->dir = realpath(dir, NULL);
	if (b->dir)
		return 0;
	fprintf(stderr, "hail-blockd: %s: %s\n", dir, strerror(errno));
	return -errno;
}

static struct store_options store_options(const struct blockd *b)
{
	return (struct store_options){
		.dir = b->dir,
		.cluster_id = b->conf.cluster_id,
		.daemon_id = b->self->id,
		.capacity_bytes = b->cfg.capacity,
		.journal_bytes = b->cfg.journal,
		.cache_bytes = b->cfg.cache,
		.reserve_bytes = b->cfg.reserve,
	};
}

/* ---- the data directory ---- */

/* Two daemons on one store would destroy it. */
static int lock_data(struct blockd *b)
{
	char path[PATH_MAX];
	int rv;

	snprintf(path, sizeof(path), "%s/lock", b->dir);
	b->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b->lock_fd < 0) {
		/* A read-only disk can still be checked. */
		if (errno == EROFS && b->cfg.check)
			return 0;
		fprintf(stderr, "hail-blockd: %s: %s\n", path,
			strerror(errno));
		return -errno;
	}
	rv = daemon_lock(b->lock_fd, "hail-blockd", b->dir);
	if (rv == -EBUSY)
		fprintf(stderr, "hail-blockd: %s is in use by another "
			"hail-blockd: stop that one, or give this one its own "
			"data directory\n", b->dir);
	else if (rv < 0)
		fprintf(stderr, "hail-blockd: cannot lock %s: %s\n", b->dir,
			strerror(-rv));
	return rv;
}

/* Nothing but our lock and what mkfs leaves: a fresh disk. Or the first start
 * was cut off. */
static bool is_fresh(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	bool fresh = d != NULL;

	if (d && faccessat(dirfd(d), STORE_UNFINISHED, F_OK, 0) == 0) {
		closedir(d);
		return true;
	}
	while (d && fresh && (e = readdir(d)))
		fresh = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
			!strcmp(e->d_name, "lock") ||
			!strcmp(e->d_name, "lost+found");
	if (d)
		closedir(d);
	return fresh;
}

static int format(struct blockd *b)
{
	struct store_options o = store_options(b);
	int rv = store_format(b->dev, &o);

	if (rv == -EEXIST)
		fprintf(stderr, "hail-blockd: %s holds a store already; "
			"remove it first if its data is not needed\n", o.dir);
	else if (rv == -ENOSPC)
		fprintf(stderr, "hail-blockd: cannot make a store in %s: %s; "
			"its journal alone takes %llu MiB (--journal)\n",
			o.dir, strerror(-rv),
			(unsigned long long)(o.journal_bytes >> 20));
	else if (rv < 0)
		fprintf(stderr, "hail-blockd: cannot make a store in %s: %s\n",
			o.dir, strerror(-rv));
	else
		diag_info("main", "what=formatted dir=%s", o.dir);
	return rv;
}

static int open_store(struct blockd *b)
{
	struct store_options o = store_options(b);
	char why[PATH_MAX + 256] = "";
	int rv;

	if (is_fresh(o.dir)) {
		rv = format(b);
		if (rv < 0)
			return rv;
	}
	rv = store_open(b->dev, &o, &b->store, why, sizeof(why));
	if (rv < 0)
		fprintf(stderr, "hail-blockd: %s\n",
			why[0] ? why : strerror(-rv));
	return rv;
}

static int check(struct blockd *b)
{
	struct store_options o = store_options(b);
	int rv = store_check(b->dev, &o, b->cfg.data_sums, stdout);

	if (rv < 0) {
		fprintf(stderr, "hail-blockd: %s cannot be checked: %s\n",
			o.dir, strerror(-rv));
		return EXIT_ERROR;
	}
	printf("%s: %d defect%s\n", o.dir, rv, rv == 1 ? "" : "s");
	return rv > 0 ? EXIT_DEFECTS : 0;
}

/* ---- stopping, in order: peers, metad, store ---- */

static void store_closed(void *arg, int err)
{
	struct blockd *b = arg;

	b->store = NULL;
	blk_serve_free(b->serve);
	b->serve = NULL;
	if (err < 0) {
		diag_err("main", "what=close-store error=%s", strerror(-err));
		b->exit_status = EXIT_ERROR;
	}
	ring_stop(b->ring);
}

static void reg_closed(void *arg)
{
	struct blockd *b = arg;

	b->reg = NULL;
	store_close(b->store, store_closed, b);
}

static void serve_closed(void *arg)
{
	struct blockd *b = arg;

	reg_close(b->reg, reg_closed, b);
}

static void stop(void *arg)
{
	struct blockd *b = arg;

	if (b->stopping)
		return;
	b->stopping = true;
	diag_info("main", "what=stopping");
	metrics_free(b->metrics);
	b->metrics = NULL;
	blk_serve_close(b->serve, serve_closed, b);
}

static void stop_signal(struct ring_op *op, int res, uint32_t flags)
{
	(void)res;
	(void)flags;
	stop(container_of(op, struct blockd, stop_op));
}

static void want_map(void *arg)
{
	struct blockd *b = arg;

	if (b->reg)
		reg_want_map(b->reg);
}

/* ---- running ---- */

static int random_id(uint64_t *ret)
{
	do {
		if (getrandom(ret, sizeof(*ret), 0) != sizeof(*ret))
			return -errno;
	} while (*ret == 0);
	return 0;
}

static int start_serving(struct blockd *b)
{
	struct serve_options so = {
		.ring = b->ring,
		.store = b->store,
		.pool = &b->pool,
		.gate = b->conf.gate,
		.addr = b->cfg.listen ? b->cfg.listen : b->self->addr,
		.port = b->self->port,
		.cluster_id = b->conf.cluster_id,
		.daemon_id = b->self->id,
		.disk = disk_share_id(b->dir),
		.conn_max = (unsigned)b->cfg.conn_max,
		.conn_bytes_max = b->cfg.buffers / 2,
		.scrub_bytes_per_s = b->cfg.scrub_rate,
		.scrub_interval_ms = b->cfg.scrub_interval_ms,
		.dir = b->dir,
		.want_map = want_map,
		.stop = stop,
		.arg = b,
	};
	struct reg_options ro = {
		.ring = b->ring,
		.store = b->store,
		.conf = &b->conf,
		.daemon_id = b->self->id,
		.addr = b->self->addr,
		.port = b->self->port,
	};
	char why[256];
	int rv = random_id(&so.boot_id);

	if (rv < 0)
		return rv;
	rv = blk_serve_new(&so, &b->serve, why, sizeof(why));
	if (rv < 0) {
		fprintf(stderr, "hail-blockd: %s\n", why);
		return rv;
	}
	ro.boot_id = so.boot_id;
	ro.serve = b->serve;
	rv = reg_new(&ro, &b->reg);
	if (rv < 0) {
		fprintf(stderr, "hail-blockd: cannot talk to metad at %s: "
			"%s\n", b->conf.metad_count ? b->conf.metads[0].addr :
			"(the cluster file has none)", strerror(-rv));
		return rv;
	}
	if (b->cfg.metrics_port == 0)
		return 0;
	rv = metrics_new(b->ring, b->serve, so.addr,
			 (uint16_t)b->cfg.metrics_port, &b->metrics);
	if (rv < 0)
		fprintf(stderr, "hail-blockd: metrics port %llu: %s\n",
			(unsigned long long)b->cfg.metrics_port,
			strerror(-rv));
	return rv;
}

static int run(struct blockd *b)
{
	int rv = open_store(b);

	if (rv == 0)
		rv = start_serving(b);
	if (rv < 0)
		return EXIT_ERROR; /* the process ends: nothing is undone */
	b->stop_op.done = stop_signal;
	io_uring_prep_poll_add(ring_sqe(b->ring, &b->stop_op), b->stop_fd,
			       POLLIN);
	daemon_ready();
	diag_info("main", "what=serving daemon=%u addr=%s port=%u dir=%s",
		  b->self->id, b->self->addr, b->self->port, b->dir);
	rv = ring_run(b->ring);
	if (rv < 0) {
		diag_err("main", "what=loop error=%s", strerror(-rv));
		return EXIT_ERROR;
	}
	return b->exit_status;
}

int main(int argc, char **argv)
{
	static struct blockd b;
	struct daemon_options dopt = { .program = "hail-blockd" };
	char why[400];
	int rv;

	diag_init("hail-blockd", false);
	b.lock_fd = -1;
	rv = daemon_configure(DAEMON_BLOCKD, options, &b.cfg, argc, argv,
			      &b.conf, &b.self);
	if (rv != 0)
		return rv > 0 ? 0 : EXIT_USAGE;
	if (find_data(&b) < 0)
		return EXIT_USAGE;
	dopt.foreground = b.cfg.d.foreground || b.cfg.check || b.cfg.format;
	dopt.pidfile = b.cfg.d.pidfile;
	dopt.log = b.cfg.d.log;
	rv = daemon_start(&dopt);
	if (rv < 0)
		return EXIT_ERROR;
	b.stop_fd = daemon_stop_fd();
	if (b.stop_fd < 0 || lock_data(&b) < 0)
		return EXIT_ERROR;
	if (ring_new((unsigned)b.cfg.spin_us, &b.ring, why, sizeof(why)) < 0) {
		fprintf(stderr, "hail-blockd: %s\n", why);
		return EXIT_ERROR;
	}
	rv = ring_dev_new(b.ring, b.dir, b.cfg.check, &b.dev);
	if (rv < 0) {
		fprintf(stderr, "hail-blockd: %s: %s\n", b.dir,
			strerror(-rv));
		return EXIT_ERROR;
	}
	if (pool_init(&b.pool, b.cfg.buffers) < 0) {
		fprintf(stderr, "hail-blockd: no memory for --buffers\n");
		return EXIT_ERROR;
	}
	if (b.cfg.check)
		rv = check(&b);
	else if (b.cfg.format)
		rv = format(&b) < 0 ? EXIT_ERROR : 0;
	else
		rv = run(&b);
	/* After an error threads may be about: the process's end is theirs. */
	if (rv == 0) {
		pool_fini(&b.pool);
		ring_dev_free(b.dev);
		ring_free(b.ring);
		conf_fini(&b.conf);
		opt_fini(options, &b.cfg);
		free(b.dir);
	}
	daemon_end();
	return rv;
}
