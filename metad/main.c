/* hail-metad: options, start, the loop, end. */
#include <inttypes.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/daemon_conf.h"
#include "common/diag.h"
#include "metad/admin.h"
#include "metad/aio.h"
#include "metad/copy.h"
#include "metad/cut.h"
#include "metad/datadir.h"
#include "metad/drive.h"
#include "metad/log_peers.h"
#include "metad/mark.h"
#include "metad/monitor.h"
#include "metad/lock.h"
#include "metad/purge.h"
#include "metad/recover.h"
#include "metad/repair.h"
#include "metad/restore.h"
#include "metad/room.h"
#include "metad/session.h"
#include "metad/want.h"

/* See hail-metad(8). */
#define EXIT_USAGE 2
#define EXIT_ERROR METARAFT_EXIT

#define STOP_WAIT_MS 10000u

struct config {
	struct daemon_config d; /* first */
	char *data, *listen;
	uint64_t snapshot_bytes;
	uint64_t metrics_port;
	uint64_t spin_us;
	char *restore, *copy;
};

#define FIELD(f) offsetof(struct config, f)
static const struct opt options[] = {
	DAEMON_OPTIONS_FIRST("metadata daemon"),
	{ "data", 0, OPT_STR, FIELD(data), NULL, 0, 0, NULL, "DIR",
	  "directory of the metadata; default: data= of the cluster file" },
	{ "snapshot-bytes", 0, OPT_SIZE, FIELD(snapshot_bytes), "64m",
	  4096, UINT64_C(1) << 40, NULL, "SIZE",
	  "how much the log grows at least before the state is saved again" },
	{ "restore", 0, OPT_STR, FIELD(restore), NULL, 0, 0, NULL, "FILE",
	  "start from this backup; the data directory must be empty" },
	{ "copy", 0, OPT_STR, FIELD(copy), NULL, 0, 0, NULL, "DIR",
	  "keep a continuous copy of the metadata there, on another disk" },
	{ "listen", 0, OPT_STR, FIELD(listen), NULL, 0, 0, NULL, "ADDR",
	  "address to listen at; default: that of the cluster file" },
	{ "metrics-port", 0, OPT_U64, FIELD(metrics_port), "0", 0, 65535, NULL,
	  "N", "serve OpenMetrics text over HTTP there; 0: do not" },
	{ "spin", 0, OPT_U64, FIELD(spin_us), "40", 0, 1000, NULL, "US",
	  "microseconds to stay awake for the next request when requests "
	  "have lately come that fast; 0: never" },
	DAEMON_OPTIONS_LAST,
	{ .name = NULL },
};

/* The one metad of this process. */
static struct program {
	struct config cfg;
	struct conf conf;
	struct datadir dir;
	struct metad md;
	struct stats *stats;
	struct stats_http *http;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_poll_t stop_poll;
	uv_timer_t stop_timer;
	int stop_fd;
	bool restoring; /* the snapshot of the restored state is on the way */
	bool raft_up, raft_closed, handles;
	bool copy_hangs; /* a thread still reads the state */
	int exit_status;
	/* How often polling before sleep has paid lately, in 1/256. */
	uint32_t spin_score;
	uint32_t spin_skipped;
} prog;

/* ---- options ---- */

/* Returns 0; 1: done (help); -errno, said on stderr. */
static int configure(struct program *p, int argc, char **argv)
{
	int rv = daemon_configure(DAEMON_METAD, options, &p->cfg, argc, argv,
				  &p->conf, &p->md.self);

	if (rv != 0)
		return rv;
	p->md.conf = &p->conf;
	p->md.cluster_id = p->conf.cluster_id;
	if (p->conf.metad_count == 1)
		return 0;
	fprintf(stderr, "hail-metad: %s names %" PRIu32 " metads; this "
		"version works with one\n", p->cfg.d.cluster,
		p->conf.metad_count);
	return -EOPNOTSUPP;
}

static int open_data(struct program *p)
{
	const char *path = p->cfg.data ? p->cfg.data : p->md.self->data;
	char why[PATH_MAX + 256] = "";
	int rv;

	if (!path) {
		fprintf(stderr, "hail-metad: %s: metad %" PRIu32
			": no data=DIR, and no --data DIR\n", p->cfg.d.cluster,
			p->md.self->id);
		return -EINVAL;
	}
	rv = datadir_open(&p->dir, path, p->md.cluster_id, p->md.self->id, why,
			  sizeof(why));
	if (rv < 0) {
		fprintf(stderr, "hail-metad: %s\n", why);
		return rv;
	}
	p->md.dir = &p->dir;
	if (p->cfg.restore && p->dir.state != DATADIR_EMPTY) {
		fprintf(stderr, "hail-metad: --restore needs an empty data "
			"directory, and %s is not\n", p->dir.path);
		return -ENOTEMPTY;
	}
	if (p->dir.state == DATADIR_RESTORING) {
		fprintf(stderr, "hail-metad: a restore into %s was cut off; "
			"empty the directory and restore again\n",
			p->dir.path);
		return -EINVAL;
	}
	return 0;
}

/* ---- stopping ---- */

static void raft_closed(void *arg)
{
	struct metad *md = arg;

	prog.raft_closed = true;
	uv_stop(&md->loop);
}

/* Everything is written, or cannot be. */
static void close_raft(struct program *p)
{
	if (!p->raft_up || p->raft_closed)
		return;
	p->raft_up = false;
	metaraft_close(p->md.raft, raft_closed);
}

static void all_durable(struct durable_wait *w)
{
	(void)w;
	close_raft(&prog);
}

static void stop_late(uv_timer_t *t)
{
	(void)t;
	diag_err("main", "event=stop-timeout what=\"the log is not written\"");
	prog.exit_status = EXIT_ERROR;
	close_raft(&prog);
}

static void stop(struct metad *md, const char *why)
{
	static struct durable_wait wait = { .fn = all_durable };

	if (why) {
		diag_err("main", "event=stopping reason=\"%s\"", why);
		fprintf(stderr, "hail-metad: %s\n", why);
		prog.exit_status = EXIT_ERROR;
	}
	if (md->stopping) {
		if (why)
			close_raft(&prog);
		return;
	}
	md->stopping = true;
	if (!why)
		diag_info("main", "event=stopping reason=request");
	serve_close(md->serve);
	if (why) {
		close_raft(&prog);
		return;
	}
	(void)uv_timer_start(&prog.stop_timer, stop_late, STOP_WAIT_MS, 0);
	metad_when_durable(md, &wait, sm_pos(md->sm));
}

static void on_stop_signal(uv_poll_t *h, int status, int events)
{
	(void)h;
	(void)status;
	(void)events;
	(void)uv_poll_stop(&prog.stop_poll);
	stop(&prog.md, NULL);
}

static void on_raft_failed(void *arg, const char *why)
{
	stop(arg, why);
}

/* ---- the loop ---- */

static void turn(struct program *p)
{
	struct metad *md = &p->md;
	uint64_t was;

	stats_count(&md->stats.turns, 1);
	sessions_turn(md);
	if (!md->stopping) {
		recover_turn(md->recover);
		wants_look(md);
		lock_waits_look(md);
	}
	do {
		was = md->activity;
		/* Who waits for the disk waits longest: start it first. */
		if (metaraft_writing(md->raft)) {
			metaraft_turn(md->raft);
			serve_flush(md->serve);
		} else {
			serve_flush(md->serve);
			metaraft_turn(md->raft);
		}
		if (!md->stopping)
			serve_resume(md->serve);
		/* The loop may sleep now: what was held back and is done now
		 * must not wait for it. */
	} while (md->activity != was);
	admin_stats_look(md);
}

static void on_prepare(uv_prepare_t *h)
{
	turn(h->data);
}

static void on_check(uv_check_t *h)
{
	turn(h->data);
}

/* Polls for a while before the loop sleeps: an idle core takes longer to wake
 * than a request to be answered. Only where it has paid lately, tried again now
 * and then. */
static void spin(struct program *p)
{
	uint64_t was = p->md.activity, end;
	bool hit = false;

	if (p->cfg.spin_us == 0)
		return;
	if (p->spin_score < 64 && ++p->spin_skipped % 64 != 0)
		return;
	stats_count(&p->md.stats.spins, 1);
	end = uv_hrtime() + p->cfg.spin_us * 1000;
	do {
		(void)uv_run(&p->md.loop, UV_RUN_NOWAIT);
		hit = p->md.activity != was;
	} while (!hit && !p->raft_closed && uv_hrtime() < end);
	if (hit)
		stats_count(&p->md.stats.spin_hits, 1);
	p->spin_score = p->spin_score * 7 / 8 + (hit ? 32 : 0);
}

static void run(struct program *p)
{
	uint64_t was = p->md.activity;

	while (!p->raft_closed) {
		/* Something happened: more may come at once. */
		while (p->md.activity != was && !p->raft_closed) {
			was = p->md.activity;
			spin(p);
		}
		if (!p->raft_closed)
			(void)uv_run(&p->md.loop, UV_RUN_ONCE);
	}
}

/* ---- start ---- */

static void on_batch(void *arg, const void *buf, size_t len)
{
	struct metad *md = arg;

	copy_batch(md->copy, buf, len);
}

static void on_durable(void *arg, uint64_t pos, uint64_t batch)
{
	struct metad *md = arg;

	copy_durable(md->copy, batch);
	metad_became_durable(md, pos, batch);
}

static const struct metaraft_ops raft_ops = {
	.durable = on_durable,
	.batch = on_batch,
	.failed = on_raft_failed,
};

static int fail(const char *what, int rv)
{
	fprintf(stderr, "hail-metad: %s: %s\n", what, strerror(-rv));
	return rv;
}

static int make_parts(struct metad *md)
{
	int rv = serve_new(md, &md->serve);

	if (rv == 0)
		rv = monitor_new(md, &md->monitor);
	if (rv == 0)
		rv = log_peers_new(md, &md->log_peers);
	if (rv == 0)
		rv = recover_new(md, &md->recover);
	if (rv == 0)
		rv = wants_new(md, &md->wants);
	if (rv == 0)
		rv = lock_waits_new(md, &md->lock_waits);
	if (rv == 0)
		rv = purge_new(md, &md->purge);
	if (rv == 0)
		rv = room_new(md, md->dir->path, &md->room);
	if (rv == 0)
		rv = drive_new(md, &md->drive);
	md->sessions = sessions_new(md);
	md->cuts = cuts_new(md);
	if (rv == 0 && (!md->sessions || !md->cuts))
		rv = -ENOMEM;
	return rv < 0 ? fail("cannot start", rv) : 0;
}

static int make_handles(struct program *p)
{
	uv_loop_t *loop = &p->md.loop;
	int rv = uv_prepare_init(loop, &p->prepare);

	if (rv == 0)
		rv = uv_check_init(loop, &p->check);
	if (rv == 0)
		rv = uv_timer_init(loop, &p->stop_timer);
	if (rv == 0)
		rv = uv_poll_init(loop, &p->stop_poll, p->stop_fd);
	if (rv < 0)
		return fail("event loop", rv);
	p->handles = true;
	p->prepare.data = p->check.data = p;
	(void)uv_prepare_start(&p->prepare, on_prepare);
	(void)uv_check_start(&p->check, on_check);
	(void)uv_poll_start(&p->stop_poll, UV_READABLE, on_stop_signal);
	return 0;
}

/* Is the log as long as it was known to be? */
static int check_end(struct program *p, char *why, size_t why_size)
{
	uint64_t mark = mark_get(p->md.mark), have = sm_batch(p->md.sm);

	if (have < mark) {
		(void)snprintf(why, why_size, "the log in %s is damaged near "
			       "its end: it has %" PRIu64 " batches of at "
			       "least %" PRIu64 "; the segments as they were "
			       "are in %s/unclean", p->dir.raft, have, mark,
			       p->dir.path);
		return -EBADMSG;
	}
	mark_good(p->md.mark);
	return 0;
}

static int load(struct program *p)
{
	struct metaraft_config c = { .dir = p->dir.raft,
				     .id = p->md.self->id,
				     .snapshot_bytes = p->cfg.snapshot_bytes };
	char why[PATH_MAX + 256] = "";
	int64_t newest = 0;
	int rv = 0;

	if (p->dir.state == DATADIR_EMPTY && p->cfg.copy && !p->cfg.restore)
		newest = copy_newest(p->cfg.copy);
	if (newest < 0)
		return fail(p->cfg.copy, (int)newest);
	if (newest > 0) {
		fprintf(stderr, "hail-metad: %s is empty, and %s has a copy of "
			"the metadata: restore it ('hailctl metad restore %s "
			"DIR'), or remove it for a new file system\n",
			p->dir.path, p->cfg.copy, p->cfg.copy);
		return -ENOTEMPTY;
	}
	if (p->dir.state == DATADIR_EMPTY)
		rv = datadir_set(&p->dir, p->cfg.restore ? DATADIR_RESTORING :
							   DATADIR_NEW);
	if (rv < 0)
		return fail(p->dir.path, rv);
	room_prepare(p->dir.path);
	rv = mark_open(p->dir.path, p->dir.raft, &p->md.mark);
	if (rv < 0)
		return fail(p->dir.path, rv);
	if (p->cfg.restore)
		rv = restore_read(&p->md, p->cfg.restore, why, sizeof(why));
	if (rv == 0)
		rv = metaraft_new(&p->md.loop, p->md.sm, &c, &raft_ops, &p->md,
				  &p->md.raft, why, sizeof(why));
	p->raft_up = rv == 0;
	if (rv == 0)
		rv = metaraft_start(p->md.raft, why, sizeof(why));
	if (rv == 0)
		rv = check_end(p, why, sizeof(why));
	if (rv < 0) {
		fprintf(stderr, "hail-metad: %s\n", why[0] ? why :
							     strerror(-rv));
		return rv;
	}
	return 0;
}

/* The loop runs until @done says so or the daemon stops. */
static int run_until(struct program *p, bool (*done)(struct program *p))
{
	while (!p->raft_closed && !done(p))
		(void)uv_run(&p->md.loop, UV_RUN_ONCE);
	return p->raft_closed ? -EIO : 0;
}

static bool is_durable(struct program *p)
{
	return metad_durable(&p->md) >= sm_pos(p->md.sm);
}

static bool snapshot_tried(struct program *p)
{
	const struct metaraft_stats *s = metaraft_stats(p->md.raft);

	return s->snapshots + s->snapshots_failed > 0;
}

static int first_state(struct program *p)
{
	int rv = restore_bootstrap(&p->md);

	if (rv < 0)
		return fail("cannot make the root directory", rv);
	metaraft_want(p->md.raft, sm_pos(p->md.sm));
	rv = run_until(p, is_durable);
	if (rv == 0)
		rv = datadir_set(&p->dir, DATADIR_OK);
	return rv < 0 ? fail(p->dir.path, rv) : 0;
}

/* The restored state becomes the log's first snapshot. */
static int first_snapshot(struct program *p)
{
	struct sm_raise m = { .epoch = sm_map(p->md.sm)->epoch + 1 };
	struct sm_reply r;
	int rv;

	metaraft_snapshot_soon(p->md.raft);
	METAD_PROPOSE(&p->md, WIRE_OP_SM_RAISE, sm_raise, &m, &r);
	metaraft_want(p->md.raft, sm_pos(p->md.sm));
	rv = run_until(p, snapshot_tried);
	if (rv == 0 && metaraft_stats(p->md.raft)->snapshots == 0)
		rv = -EIO;
	if (rv == 0)
		rv = datadir_set(&p->dir, DATADIR_RAISE);
	return rv < 0 ? fail(p->dir.path, rv) : 0;
}

static int check_state(struct program *p)
{
	const struct cmap *map = sm_map(p->md.sm);

	if (map->cluster_id == 0) {
		fprintf(stderr, "hail-metad: the metadata in %s are missing; "
			"restore a backup (--restore)\n", p->dir.path);
		return -EBADMSG;
	}
	if (map->cluster_id == p->md.cluster_id)
		return 0;
	fprintf(stderr, "hail-metad: the metadata in %s are of cluster 0x%016"
		PRIx64 ", the cluster file says 0x%016" PRIx64 "\n",
		p->dir.path, map->cluster_id, p->md.cluster_id);
	return -EXDEV;
}

/* Of a directory that was set back the copy is the newer one; the stores tell,
 * none of which may be there yet. */
static bool is_newest(void *arg)
{
	struct metad *md = arg;

	return md->serving && !md->older && monitor_settled(md->monitor) &&
	       monitor_any_known(md->monitor);
}

static int start(struct program *p)
{
	struct metad *md = &p->md;
	char why[PATH_MAX + 256] = "";
	const char *addr = p->cfg.listen ? p->cfg.listen : md->self->addr;
	int rv;

	md->sm = sm_new();
	if (!md->sm)
		return fail("cannot start", -ENOMEM);
	md->stop = stop;
	md->start_ms = uv_now(&md->loop);
	if (getrandom(&md->boot_id, sizeof(md->boot_id), 0) < 0)
		return fail("getrandom", -errno);
	rv = load(p);
	if (rv == 0)
		rv = make_parts(md);
	if (rv == 0)
		rv = make_handles(p);
	if (rv == 0 && p->dir.state == DATADIR_NEW && sm_pos(md->sm) == 0)
		rv = first_state(p);
	if (rv == 0 && p->cfg.restore)
		rv = first_snapshot(p);
	if (rv == 0)
		rv = check_state(p);
	if (rv == 0 && p->dir.state == DATADIR_NEW)
		rv = datadir_set(&p->dir, DATADIR_OK);
	if (rv < 0)
		return rv;
	/* What is restored may be that very copy. */
	if (p->cfg.copy && !p->cfg.restore) {
		struct copy_options co = {
			.loop = &md->loop, .raft = md->raft, .sm = md->sm,
			.path = p->cfg.copy, .cluster_id = md->cluster_id,
			.may_begin = is_newest, .arg = md,
		};

		rv = copy_new(&co, &md->copy, why, sizeof(why));
		if (rv < 0) {
			fprintf(stderr, "hail-metad: %s\n",
				why[0] ? why : strerror(-rv));
			return rv;
		}
	}
	md->epoch = sm_map(md->sm)->epoch;
	md->first_session = sm_next_session(md->sm);
	drive_map_changed(md->drive);
	rv = serve_listen(md->serve, addr, md->self->port);
	if (rv < 0) {
		fprintf(stderr, "hail-metad: cannot listen at %s:%u: %s\n",
			addr, md->self->port, daemon_listen_error(rv));
		return rv;
	}
	rv = cuts_load(md->cuts);
	if (rv < 0)
		return fail("cannot start", rv);
	purge_kick(md->purge);
	md->serving = p->dir.state == DATADIR_OK;
	if (!md->serving)
		restore_wait(md);
	return 0;
}

static int start_metrics(struct program *p)
{
	int rv;

	p->stats = stats_new("hail_metad");
	if (!p->stats || admin_stats_register(&p->md, p->stats) < 0)
		return fail("statistics", -ENOMEM);
	p->md.registry = p->stats;
	if (p->cfg.metrics_port == 0)
		return 0;
	rv = stats_http_start(stats_http_text, p->stats,
			      (uint16_t)p->cfg.metrics_port, &p->http);
	return rv < 0 ? fail("--metrics-port", rv) : 0;
}

/* ---- end ---- */

static void close_handles(struct program *p)
{
	struct metad *md = &p->md;

	stats_http_stop(p->http);
	if (!copy_free(md->copy))
		p->copy_hangs = true;
	if (md->serve)
		serve_close(md->serve);
	if (md->drive)
		drive_stop(md->drive);
	if (md->purge)
		purge_stop(md->purge);
	room_stop(md->room);
	if (p->handles) {
		uv_close((uv_handle_t *)&p->prepare, NULL);
		uv_close((uv_handle_t *)&p->check, NULL);
		uv_close((uv_handle_t *)&p->stop_timer, NULL);
		uv_close((uv_handle_t *)&p->stop_poll, NULL);
	}
	(void)uv_run(&md->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&md->loop);
}

static void end(struct program *p)
{
	struct metad *md = &p->md;

	if (p->raft_up) {
		close_raft(p);
		while (!p->raft_closed)
			(void)uv_run(&md->loop, UV_RUN_ONCE);
	}
	close_handles(p);
	repair_free_all(md);
	cuts_free(md->cuts);
	purge_free(md->purge);
	room_free(md->room);
	recover_free(md->recover);
	wants_free(md->wants);
	lock_waits_free(md->lock_waits);
	sessions_free(md->sessions);
	monitor_free(md->monitor);
	log_peers_free(md->log_peers);
	drive_free(md->drive);
	serve_free(md->serve);
	metaraft_free(md->raft);
	if (!p->copy_hangs) /* or what it writes would be anything */
		sm_free(md->sm);
	mark_close(md->mark);
	stats_free(p->stats);
}

/* As an absolute name: going to the background changes to "/". */
static int make_copy_dir(struct program *p)
{
	char *path = mkdir(p->cfg.copy, 0700) < 0 && errno != EEXIST ?
			     NULL : realpath(p->cfg.copy, NULL);

	if (!path) {
		fprintf(stderr, "hail-metad: --copy %s: %s\n", p->cfg.copy,
			strerror(errno));
		return -errno;
	}
	free(p->cfg.copy);
	p->cfg.copy = path;
	return 0;
}

int main(int argc, char **argv)
{
	struct program *p = &prog;
	struct daemon_options o = { .program = "hail-metad" };
	int rv;

	aio_init();
	metaraft_heap_start();
	diag_init("hail-metad", false);
	rv = configure(p, argc, argv);
	if (rv != 0)
		return rv < 0 ? EXIT_USAGE : 0;
	if (open_data(p) < 0)
		return EXIT_ERROR;
	if (p->cfg.copy && !p->cfg.restore && make_copy_dir(p) < 0)
		return EXIT_ERROR;
	if (p->cfg.restore) {
		/* Going to the background changes to "/". */
		char *path = realpath(p->cfg.restore, NULL);

		if (path) {
			free(p->cfg.restore);
			p->cfg.restore = path;
		}
	}
	o.foreground = p->cfg.d.foreground;
	o.pidfile = p->cfg.d.pidfile;
	o.log = p->cfg.d.log;
	if (daemon_start(&o) < 0)
		return EXIT_ERROR;
	p->stop_fd = daemon_stop_fd();
	rv = p->stop_fd < 0 ? p->stop_fd : uv_loop_init(&p->md.loop);
	if (rv < 0) {
		(void)fail("cannot start", rv);
		return EXIT_ERROR;
	}
	rv = start(p);
	if (rv == 0)
		rv = start_metrics(p);
	if (rv == 0) {
		daemon_ready();
		diag_info("main", "event=started inodes=%" PRIu64 " pos=%"
			  PRIu64, sm_inode_count(p->md.sm), sm_pos(p->md.sm));
		run(p);
		diag_info("main", "event=stopped pos=%" PRIu64,
			  metad_durable(&p->md));
	} else {
		p->exit_status = EXIT_ERROR;
	}
	end(p);
	daemon_end();
	datadir_close(&p->dir);
	conf_fini(&p->conf);
	opt_fini(options, &p->cfg);
	return p->exit_status;
}
