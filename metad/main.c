/* hail-metad: options, start, the loop, end. */
#include <inttypes.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/diag.h"
#include "metad/admin.h"
#include "metad/aio.h"
#include "metad/copy.h"
#include "metad/cut.h"
#include "metad/drive.h"
#include "metad/group.h"
#include "metad/log_peers.h"
#include "metad/mark.h"
#include "metad/lock.h"
#include "metad/monitor.h"
#include "metad/program.h"
#include "metad/purge.h"
#include "metad/recover.h"
#include "metad/repair.h"
#include "metad/room.h"
#include "metad/session.h"
#include "metad/want.h"

/* See hail-metad(8). */
#define EXIT_USAGE 2
#define EXIT_ERROR METARAFT_EXIT

#define STOP_WAIT_MS 10000u
/* An election takes less where a majority is there. */
#define LINGER_MS 1000u

#define FIELD(f) offsetof(struct config, f)
static const struct opt options[] = {
	DAEMON_OPTIONS_FIRST("metadata daemon"),
	{ "data", 0, OPT_STR, FIELD(data), NULL, 0, 0, NULL, "DIR",
	  "directory of the metadata; default: data= of the cluster file" },
	{ "snapshot-bytes", 0, OPT_SIZE, FIELD(snapshot_bytes), "8m",
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

static struct program prog;

/* ---- options ---- */

/* Returns 0; 1: done (help); -errno, said on stderr. */
static int configure(struct program *p, int argc, char **argv)
{
	int rv = daemon_configure(DAEMON_METAD, options, &p->cfg, argc, argv,
				  &p->conf, &p->md.self);

	if (rv != 0)
		return rv;
	return 0;
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
	rv = datadir_open(&p->dir, path, p->conf.cluster_id, p->md.self->id,
			  why, sizeof(why));
	if (rv < 0) {
		fprintf(stderr, "hail-metad: %s\n", why);
		return rv;
	}
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

static void linger_over(uv_timer_t *t)
{
	(void)t;
	close_raft(&prog);
}

/* Whose vote the next leader may need: until that one is known. */
static void linger(struct program *p)
{
	if (p->lingers)
		return;
	p->lingers = true;
	(void)uv_timer_start(&p->start_timer, linger_over, LINGER_MS, 0);
}

static void handed_over(void *arg, int status)
{
	struct program *p = arg;

	if (status == 0)
		linger(p);
	else
		close_raft(p);
}

/* Another one takes over now, where there is one, and not when it misses us. */
static void all_durable(struct durable_wait *w)
{
	(void)w;
	if (!prog.md.group || metaraft_transfer(prog.md.raft, 0, handed_over,
						&prog) < 0)
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
	if (why || !metaraft_leads(md->raft)) {
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

void program_raft_failed(void *arg, const char *why)
{
	stop(arg, why);
}

void program_deposed(void *arg)
{
	struct metad *md = arg;

	linger(&prog);
	if (md->stopping)
		return;
	md->stopping = true;
	prog.again = true;
	serve_close(md->serve);
}

/* ---- the loop ---- */

/* A member that was taken in knows of a state from now on. */
static void group_turn(struct program *p)
{
	struct metad *md = &p->md;
	int rv;

	if (p->dir.state != DATADIR_JOINED || md->leading ||
	    metaraft_leads(md->raft) || sm_pos(md->sm) == 0)
		return;
	rv = datadir_set(&p->dir, DATADIR_OK);
	if (rv < 0)
		stop(md, "its directory cannot be written");
}

static void turn(struct program *p)
{
	struct metad *md = &p->md;
	uint64_t was;

	stats_count(&md->stats.turns, 1);
	sessions_turn(md);
	if (md->leading && !md->stopping) {
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
		if (!md->stopping) {
			request_turn(md);
			serve_resume(md->serve);
		}
		/* The loop may sleep now: what was held back and is done now
		 * must not wait for it. */
	} while (md->activity != was);
	admin_stats_look(md);
	group_turn(p);
	if (p->lingers && metaraft_leader(md->raft) != 0 &&
	    metaraft_leader(md->raft) != md->self->id)
		close_raft(p);
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

/* Returns 0, or -errno: it was elected and could not lead. */
static int run(struct program *p)
{
	uint64_t was = p->md.activity;
	int rv = 0;

	while (!p->raft_closed && rv == 0) {
		/* Something happened: more may come at once. */
		while (p->md.activity != was && !p->raft_closed) {
			was = p->md.activity;
			spin(p);
		}
		if (!p->raft_closed)
			(void)uv_run(&p->md.loop, UV_RUN_ONCE);
		if (!p->md.leading && metaraft_elected(p->md.raft))
			rv = program_lead(p);
	}
	return rv;
}

/* ---- handles ---- */

int program_handles(struct program *p)
{
	uv_loop_t *loop = &p->md.loop;
	int rv = uv_prepare_init(loop, &p->prepare);

	if (rv == 0)
		rv = uv_check_init(loop, &p->check);
	if (rv == 0)
		rv = uv_timer_init(loop, &p->stop_timer);
	if (rv == 0)
		rv = uv_timer_init(loop, &p->start_timer);
	if (rv == 0)
		rv = uv_poll_init(loop, &p->stop_poll, p->stop_fd);
	if (rv < 0)
		return program_fail("event loop", rv);
	p->handles = true;
	p->prepare.data = p->check.data = p;
	(void)uv_prepare_start(&p->prepare, on_prepare);
	(void)uv_check_start(&p->check, on_check);
	(void)uv_poll_start(&p->stop_poll, UV_READABLE, on_stop_signal);
	return 0;
}

/* ---- end ---- */

static void close_handles(struct program *p)
{
	struct metad *md = &p->md;

	stats_http_stop(p->http);
	if (!copy_free(md->copy))
		p->copy_hangs = true;
	if (md->serve)
		serve_end(md->serve);
	group_stop(md->group);
	if (md->drive)
		drive_stop(md->drive);
	if (md->purge)
		purge_stop(md->purge);
	if (md->room)
		room_stop(md->room);
	if (p->handles) {
		uv_close((uv_handle_t *)&p->prepare, NULL);
		uv_close((uv_handle_t *)&p->check, NULL);
		uv_close((uv_handle_t *)&p->stop_timer, NULL);
		uv_close((uv_handle_t *)&p->start_timer, NULL);
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
	request_drop(md);
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
	group_free(md->group);
	if (!p->copy_hangs) /* or what it writes would be anything */
		sm_free(md->sm);
	mark_close(md->mark);
	stats_free(p->stats);
}

/* One life. */
static void live(struct program *p)
{
	const struct conf_daemon *self = p->md.self;
	struct metad *md = &p->md;
	int rv;

	memset(md, 0, sizeof(*md));
	md->conf = &p->conf;
	md->self = self;
	md->cluster_id = p->conf.cluster_id;
	md->dir = &p->dir;
	md->stop = stop;
	p->again = p->lingers = p->handles = false;
	p->raft_up = p->raft_closed = false;
	p->stats = NULL;
	p->http = NULL;
	p->spin_score = p->spin_skipped = 0;
	p->wait_said_ms = 0;
	rv = uv_loop_init(&md->loop);
	if (rv < 0) {
		(void)program_fail("cannot start", rv);
		p->exit_status = EXIT_ERROR;
		return;
	}
	rv = program_start(p);
	if (rv == 0) {
		diag_info("main", "event=started inodes=%" PRIu64 " pos=%"
			  PRIu64, sm_inode_count(md->sm), sm_pos(md->sm));
		rv = run(p);
		diag_info("main", "event=stopped pos=%" PRIu64,
			  metad_durable(md));
	}
	/* Who was told to stop while he waited has not failed. */
	if (rv < 0 && !p->again && !(md->stopping && p->exit_status == 0))
		p->exit_status = EXIT_ERROR;
	end(p);
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
	if (p->stop_fd < 0) {
		(void)program_fail("cannot start", p->stop_fd);
		return EXIT_ERROR;
	}
	do
		live(p);
	while (p->again && p->exit_status == 0);
	daemon_end();
	datadir_close(&p->dir);
	conf_fini(&p->conf);
	opt_fini(options, &p->cfg);
	return p->exit_status;
}
