/* How a metad comes to serve: loading, for one of a group finding the others
 * and following, and at last leading.
 */
#include <inttypes.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "common/daemon.h"
#include "common/diag.h"
#include "metad/admin.h"
#include "metad/copy.h"
#include "metad/cut.h"
#include "metad/drive.h"
#include "metad/group.h"
#include "metad/lock.h"
#include "metad/log_peers.h"
#include "metad/mark.h"
#include "metad/monitor.h"
#include "metad/program.h"
#include "metad/purge.h"
#include "metad/recover.h"
#include "metad/restore.h"
#include "metad/room.h"
#include "metad/session.h"
#include "metad/want.h"

/* Who started it in the background is not kept waiting for longer. */
#define READY_MS 3000u
/* How often it is said what is waited for. */
#define SAY_MS 10000u
#define LOOK_MS 50u

int program_fail(const char *what, int rv)
{
	fprintf(stderr, "hail-metad: %s: %s\n", what, strerror(-rv));
	return rv;
}

int program_until(struct program *p, bool (*done)(struct program *p))
{
	while (!p->raft_closed && !done(p))
		(void)uv_run(&p->md.loop, UV_RUN_ONCE);
	return p->raft_closed ? -EIO : 0;
}

static void on_look(uv_timer_t *t)
{
	(void)t; /* the loop has woken */
}

/* The same, where nothing else may wake the loop, or the end is asked for
 * before there is a log to be closed. */
static int wait_until(struct program *p, bool (*done)(struct program *p))
{
	bool ended = false;

	(void)uv_timer_start(&p->start_timer, on_look, LOOK_MS, LOOK_MS);
	while (!(ended = p->raft_closed || p->md.stopping) && !done(p))
		(void)uv_run(&p->md.loop, UV_RUN_ONCE);
	(void)uv_timer_stop(&p->start_timer);
	return ended ? -EIO : 0;
}

static void ready(struct program *p)
{
	if (!p->ready)
		daemon_ready();
	p->ready = true;
}

/* Time goes by: the log hears of it, and the parent is let go. */
static void waits(struct program *p, const char *what, uint32_t id)
{
	uint64_t now = uv_now(&p->md.loop);

	if (now - p->md.start_ms > READY_MS)
		ready(p);
	if (p->wait_said_ms && now - p->wait_said_ms < SAY_MS)
		return;
	p->wait_said_ms = now;
	diag_info("main", "event=waiting metad=%" PRIu32 " what=\"%s\"", id,
		  what);
}

/* ---- loading ---- */

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

static void on_applied(void *arg, uint64_t batch)
{
	struct metad *md = arg;

	md->activity++;
	mark_set(md->mark, batch);
}

static const struct metaraft_ops raft_ops = {
	.durable = on_durable,
	.batch = on_batch,
	.failed = program_raft_failed,
	.deposed = program_deposed,
	.applied = on_applied,
};

/* Says @why, or what @rv is. Returns @rv. */
static int fail_why(const char *why, int rv)
{
	fprintf(stderr, "hail-metad: %s\n", why[0] ? why : strerror(-rv));
	return rv;
}

/* Is the log as long as it was known to be? */
static int check_end(struct program *p)
{
	uint64_t mark = mark_get(p->md.mark);
	uint64_t have = metaraft_last_batch(p->md.raft);

	if (have >= mark) {
		mark_good(p->md.mark);
		return 0;
	}
	fprintf(stderr, "hail-metad: the log in %s is damaged near its end: it "
		"has %" PRIu64 " batches of at least %" PRIu64 "; the segments "
		"as they were are in %s/unclean\n", p->dir.raft, have, mark,
		p->dir.path);
	return -EBADMSG;
}

/* A continuous copy is there, and the directory it was of is empty. */
static int check_copy(struct program *p)
{
	int64_t newest = 0;

	if (p->dir.state == DATADIR_EMPTY && p->cfg.copy && !p->cfg.restore)
		newest = copy_newest(p->cfg.copy);
	if (newest < 0)
		return program_fail(p->cfg.copy, (int)newest);
	if (newest == 0)
		return 0;
	fprintf(stderr, "hail-metad: %s is empty, and %s has a copy of the "
		"metadata: restore it ('hailctl metad restore %s DIR'), or "
		"remove it for a new file system\n", p->dir.path, p->cfg.copy,
		p->cfg.copy);
	return -ENOTEMPTY;
}

static int open_log(struct program *p)
{
	struct group *g = p->md.group;
	struct metaraft_config c = {
		.dir = p->dir.raft,
		.id = p->md.self->id,
		.transport = g ? transport_raft(group_transport(g)) : NULL,
		.snapshot_bytes = p->cfg.snapshot_bytes,
	};
	char why[PATH_MAX + 256] = "";
	int rv = 0;

	/* libraft wants its directory before the state is known. */
	if (mkdir(p->dir.raft, 0700) < 0 && errno != EEXIST)
		return program_fail(p->dir.raft, -errno);
	rv = metaraft_new(&p->md.loop, p->md.sm, &c, &raft_ops, &p->md,
			  &p->md.raft, why, sizeof(why));
	if (rv < 0)
		return fail_why(why, rv);
	p->raft_up = true;
	return 0;
}

/* The first log of a directory: of these voters; of none where somebody else
 * takes it in. @state: durable before anything is written; @then: when it is.
 */
static int make_log(struct program *p, const uint32_t *ids, uint32_t count,
		    enum datadir_state state, enum datadir_state then)
{
	char why[PATH_MAX + 256] = "";
	int rv = datadir_set(&p->dir, state);

	if (rv == 0 && count) {
		rv = metaraft_bootstrap(p->md.raft, ids, count, why,
					sizeof(why));
		if (rv < 0)
			return fail_why(why, rv);
	}
	if (rv == 0 && then != state)
		rv = datadir_set(&p->dir, then);
	return rv < 0 ? program_fail(p->dir.path, rv) : 0;
}

/* Loads what is there. */
static int load(struct program *p)
{
	char why[PATH_MAX + 256] = "";
	int rv;

	rv = mark_open(p->dir.path, p->dir.raft, &p->md.mark);
	if (rv < 0)
		return program_fail(p->dir.path, rv);
	if (p->md.restoring)
		rv = restore_read(&p->md, p->cfg.restore, why, sizeof(why));
	if (rv == 0)
		rv = metaraft_start(p->md.raft, why, sizeof(why));
	return rv < 0 ? fail_why(why, rv) : check_end(p);
}

/* ---- a group's ---- */

static enum group_verdict verdict;
static uint32_t verdict_by;

static bool is_judged(struct program *p)
{
	verdict = group_verdict(p->md.group, &verdict_by);
	if (verdict != GROUP_WAIT)
		return true;
	waits(p, "each metad of the cluster file is to say whether there is a "
	      "file system already", verdict_by);
	return false;
}

/* The directory is empty: that of a new group, of a new member, or a disk that
 * was lost. */
static int form(struct program *p)
{
	const struct conf *conf = &p->conf;
	uint32_t ids[RPC_PLACES_MAX], self = p->md.self->id;
	int rv = wait_until(p, is_judged);

	if (rv < 0)
		return rv;
	if (verdict == GROUP_REFUSE) {
		fprintf(stderr, "hail-metad: %s is empty, but metad %" PRIu32
			" says that metad %" PRIu32 " is one of the group: "
			"bring its directory back, or, if that is lost, have "
			"the others do without it ('hailctl metad remove %"
			PRIu32 "'), start it empty, and take it in again "
			"('hailctl metad add %" PRIu32 "')\n", p->dir.path,
			verdict_by, self, self, self);
		return -ENOTEMPTY;
	}
	if (p->cfg.restore && verdict == GROUP_JOIN) {
		fprintf(stderr, "hail-metad: metad %" PRIu32 " has metadata; "
			"stop it, and empty its directory, before a backup is "
			"restored here\n", verdict_by);
		return -ENOTEMPTY;
	}
	/* The others are taken in when it is restored. */
	if (p->cfg.restore)
		return make_log(p, &self, 1, DATADIR_RESTORING,
				DATADIR_RESTORING);
	if (verdict == GROUP_JOIN)
		return make_log(p, NULL, 0, DATADIR_JOINED, DATADIR_JOINED);
	assert(conf->metad_count <= array_count(ids));
	for (uint32_t i = 0; i < conf->metad_count; i++)
		ids[i] = conf->metads[i].id;
	return make_log(p, ids, conf->metad_count, DATADIR_NEW,
			DATADIR_JOINED);
}

static bool time_is_over(struct program *p)
{
	return uv_now(&p->md.loop) >= p->wait_until_ms;
}

/* What it promised a leader before it stopped holds for as long as that leader
 * counts on it. */
static int keep_promise(struct program *p)
{
	p->wait_until_ms = p->md.start_ms + METARAFT_PROMISE_MS;
	return wait_until(p, time_is_over);
}

static bool is_joined(struct program *p)
{
	uint32_t by = 0;

	if (group_joined(p->md.group, &by))
		return true;
	waits(p, "each metad of the cluster file is to be there for the first "
	      "state", by);
	return false;
}

/* ---- leading ---- */

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
	int rv = p->md.group ? wait_until(p, is_joined) : 0;

	if (rv < 0)
		return rv;
	rv = restore_bootstrap(&p->md);
	if (rv < 0)
		return program_fail("cannot make the root directory", rv);
	metaraft_want(p->md.raft, sm_pos(p->md.sm));
	return program_until(p, is_durable);
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
	rv = program_until(p, snapshot_tried);
	if (rv == 0 && metaraft_stats(p->md.raft)->snapshots == 0)
		rv = -EIO;
	if (rv == 0)
		rv = datadir_set(&p->dir, DATADIR_RAISE);
	p->md.restoring = false;
	return rv < 0 ? program_fail(p->dir.path, rv) : 0;
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

static int start_copy(struct program *p)
{
	struct metad *md = &p->md;
	struct copy_options co = {
		.loop = &md->loop, .raft = md->raft, .sm = md->sm,
		.path = p->cfg.copy, .cluster_id = md->cluster_id,
		.may_begin = is_newest, .arg = md,
	};
	char why[PATH_MAX + 256] = "";
	int rv;

	/* What is restored may be that very copy. */
	if (!p->cfg.copy || p->cfg.restore)
		return 0;
	rv = copy_new(&co, &md->copy, why, sizeof(why));
	return rv < 0 ? fail_why(why, rv) : 0;
}

static int serve_at(struct program *p)
{
	const struct conf_daemon *self = p->md.self;
	const char *addr = p->cfg.listen ? p->cfg.listen : self->addr;
	int rv = serve_listen(p->md.serve, addr, self->port);

	if (rv < 0)
		fprintf(stderr, "hail-metad: cannot listen at %s:%u: %s\n",
			addr, self->port, daemon_listen_error(rv));
	return rv;
}

/* What only a leader needs. */
static int make_parts(struct metad *md)
{
	int rv = monitor_new(md, &md->monitor);

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
		rv = drive_new(md, &md->drive);
	md->cuts = cuts_new(md);
	if (rv == 0 && !md->cuts)
		rv = -ENOMEM;
	return rv < 0 ? program_fail("cannot start", rv) : 0;
}

int program_lead(struct program *p)
{
	struct metad *md = &p->md;
	int rv;

	if (md->group)
		metaraft_lead(md->raft);
	rv = make_parts(md);
	if (rv == 0 && sm_pos(md->sm) == 0 &&
	    (p->dir.state == DATADIR_NEW || p->dir.state == DATADIR_JOINED))
		rv = first_state(p);
	if (rv == 0 && md->restoring)
		rv = first_snapshot(p);
	if (rv == 0)
		rv = check_state(p);
	if (rv == 0 && (p->dir.state == DATADIR_NEW ||
			p->dir.state == DATADIR_JOINED)) {
		rv = datadir_set(&p->dir, DATADIR_OK);
		if (rv < 0)
			(void)program_fail(p->dir.path, rv);
	}
	if (rv == 0)
		rv = start_copy(p);
	if (rv < 0)
		return rv;
	md->epoch = sm_map(md->sm)->epoch;
	md->first_session = sm_next_session(md->sm);
	drive_map_changed(md->drive);
	if (!md->group)
		rv = serve_at(p);
	if (rv < 0)
		return rv;
	rv = cuts_load(md->cuts);
	if (rv < 0)
		return program_fail("cannot start", rv);
	md->leading = true;
	purge_kick(md->purge);
	md->serving = p->dir.state == DATADIR_OK;
	if (!md->serving)
		restore_wait(md);
	diag_info("main", "event=leading inodes=%" PRIu64 " pos=%" PRIu64
		  " term=%" PRIu64, sm_inode_count(md->sm), sm_pos(md->sm),
		  metaraft_term(md->raft));
	return 0;
}

/* ---- start ---- */

static int start_metrics(struct program *p)
{
	int rv;

	p->stats = stats_new("hail_metad");
	if (!p->stats || admin_stats_register(&p->md, p->stats) < 0)
		return program_fail("statistics", -ENOMEM);
	p->md.registry = p->stats;
	if (p->cfg.metrics_port == 0)
		return 0;
	rv = stats_http_start(stats_http_text, p->stats,
			      (uint16_t)p->cfg.metrics_port, &p->http);
	return rv < 0 ? program_fail("--metrics-port", rv) : 0;
}

static int start_alone(struct program *p)
{
	uint32_t self = p->md.self->id;
	enum datadir_state state = p->cfg.restore ? DATADIR_RESTORING :
						    DATADIR_NEW;
	int rv = 0;

	if (p->dir.state == DATADIR_EMPTY)
		rv = make_log(p, &self, 1, state, state);
	if (rv == 0)
		rv = load(p);
	if (rv == 0)
		rv = program_lead(p);
	return rv;
}

static int start_group(struct program *p)
{
	bool empty = p->dir.state == DATADIR_EMPTY;
	int rv = serve_at(p);

	if (rv == 0)
		rv = empty ? form(p) : keep_promise(p);
	if (rv == 0)
		rv = load(p);
	return rv;
}

int program_start(struct program *p)
{
	struct metad *md = &p->md;
	int rv = check_copy(p);

	if (rv < 0)
		return rv;
	md->sm = sm_new();
	md->sessions = sessions_new(md);
	if (!md->sm || !md->sessions)
		return program_fail("cannot start", -ENOMEM);
	md->start_ms = uv_now(&md->loop);
	md->restoring = p->cfg.restore && p->dir.state == DATADIR_EMPTY;
	if (getrandom(&md->boot_id, sizeof(md->boot_id), 0) < 0)
		return program_fail("getrandom", -errno);
	room_prepare(p->dir.path);
	rv = serve_new(md, &md->serve);
	if (rv == 0)
		rv = room_new(md, md->dir->path, &md->room);
	if (rv == 0 && p->conf.metad_count > 1)
		rv = group_new(md, &md->group);
	if (rv < 0)
		return program_fail("cannot start", rv);
	rv = open_log(p);
	if (rv == 0)
		rv = program_handles(p);
	if (rv == 0)
		rv = start_metrics(p);
	if (rv == 0)
		rv = md->group ? start_group(p) : start_alone(p);
	if (rv == 0)
		ready(p);
	return rv;
}
