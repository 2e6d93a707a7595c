/* Requests of tools. */
#include "metad/admin.h"

#include <inttypes.h>
#include <unistd.h>

#include "common/json_bytes.h"
#include "common/opt.h"
#include "common/proto.h"
#include "common/wire_admin.h"
#include "metad/copy.h"
#include "metad/cut.h"
#include "metad/drive.h"
#include "metad/group.h"
#include "metad/log_peers.h"
#include "metad/monitor.h"
#include "metad/recover.h"
#include "metad/room.h"
#include "metad/session.h"

#define PIECE_BYTES (1u << 20)
#define INODES_MAX 8192u

/* ---- JSON answers ---- */

static void reply_text(struct request *r, char *text)
{
	struct admin_text m = { .json = { text, 0 } };
	size_t len = text ? strlen(text) : 0;
	struct wire_out o;
	uint8_t *buf;

	m.json.len = (uint32_t)len;
	buf = text && len < FRAME_BODY_MAX - 16 ? malloc(len + 16) : NULL;
	if (buf) {
		wire_out_init(&o, buf, len + 16);
		admin_text_encode(&o, &m);
		serve_reply_plain(r->md, &r->to, 0, buf, o.len);
	} else {
		serve_reply_plain(r->md, &r->to, -ENOMEM, NULL, 0);
	}
	free(buf);
	free(text);
}

void admin_reply_json(struct request *r, json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	reply_text(r, text);
}

static void set_u64(json_t *j, const char *key, uint64_t v)
{
	(void)json_object_set_new(j, key, json_integer((json_int_t)v));
}

static const char *daemon_state(const struct cmap_daemon *m,
				const struct monitor_daemon *d, bool lease)
{
	if (m->state == CMAP_STATE_NEW)
		return "new";
	if (m->state == CMAP_STATE_LOST)
		return "lost";
	if (!d || !d->seen || !lease)
		return "down";
	return d->state == BLK_STATE_READ_ONLY ? "read-only" : "up";
}

static json_t *daemon_json(struct metad *md, const struct cmap_daemon *m)
{
	const struct monitor_daemon *d = monitor_find(md->monitor, m->id);
	bool lease = d && d->lease_ms > uv_now(&md->loop);
	uint64_t commit = 0;
	char id[40];
	json_t *j;

	(void)sm_daemon_commit(md->sm, m->id, &commit);
	(void)snprintf(id, sizeof(id), "%016" PRIx64 "%016" PRIx64,
		       m->store_id_hi, m->store_id_lo);
	j = json_pack("{s:I,s:s,s:I,s:s,s:s,s:b,s:b}", "id",
		      (json_int_t)m->id, "addr", m->addr, "port",
		      (json_int_t)m->port, "state",
		      daemon_state(m, d, lease), "store", id, "lease", lease,
		      "connected", drive_is_up(md->drive, m->id));
	if (!j)
		return NULL;
	set_u64(j, "commit_recorded", commit);
	if (d && d->seen) {
		set_u64(j, "commit", d->commit);
		set_u64(j, "units_total", d->units_total);
		set_u64(j, "units_free", d->units_free);
		set_u64(j, "heard_ms_ago", uv_now(&md->loop) - d->heard_ms);
		if (d->error[0])
			(void)json_object_set_new(j, "error",
						  json_string(d->error));
	}
	return j;
}

static json_t *logd_json(struct metad *md, const struct cmap_log *m)
{
	const struct log_peer *l = log_peers_find(md->log_peers, m->id);
	bool up = log_peers_is_up(md->log_peers, m->id);
	json_t *j = json_pack("{s:I,s:o,s:I,s:o,s:b,s:b}", "id",
			      (json_int_t)m->id, "addr", json_bytes(m->addr),
			      "port", (json_int_t)m->port, "domain",
			      json_bytes(m->domain), "up", up, "draining",
			      l && l->draining);

	if (j && l) {
		set_u64(j, "bytes_free", l->free_bytes);
		set_u64(j, "bytes_total", l->total_bytes);
		set_u64(j, "heard_ms_ago", uv_now(&md->loop) - l->heard_ms);
	}
	return j;
}

static json_t *logds_json(struct metad *md)
{
	const struct cmap *map = sm_map(md->sm);
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; list && i < map->log_count; i++)
		(void)json_array_append_new(list,
					    logd_json(md, &map->logs[i]));
	return list;
}

static json_t *session_json(struct metad *md, const struct sm_session_info *s)
{
	struct wire_str st = session_status(md, s->session);
	json_t *status = st.len ? json_loadb(st.p, st.len, 0, NULL) : NULL;
	json_t *j = json_pack("{s:I,s:o,s:o,s:s,s:b,s:b,s:I}", "session",
			      (json_int_t)s->session, "host",
			      json_bytes(s->host), "mountpoint",
			      json_bytes(s->mountpoint), "state",
			      s->dead ? "closing" : "live", "shared",
			      s->shared, "connected",
			      serve_session_connected(md, s->session),
			      "idle_ms",
			      (json_int_t)session_idle_ms(md, s->session));

	if (j && status)
		(void)json_object_set_new(j, "status", status);
	else
		json_decref(status);
	return j;
}

static json_t *sessions_json(struct metad *md)
{
	struct sm_session_info s;
	json_t *list = json_array();
	uint64_t after = 0;

	while (list && sm_session_list(md->sm, after, &s, 1) == 1) {
		after = s.session;
		(void)json_array_append_new(list, session_json(md, &s));
	}
	return list;
}

static uint64_t purge_pending(struct metad *md)
{
	struct meta_statfs_reply m;
	struct sm_reply r;

	sm_query(md->sm, WIRE_OP_META_STATFS, 0, NULL, 0, &r);
	if (r.status != 0 ||
	    meta_statfs_reply_parse(r.body, r.body_len, &m) < 0)
		return 0;
	return m.purge_pending;
}

static const char *metad_state(struct metad *md)
{
	if (!md->leading)
		return metaraft_is_started(md->raft) ? "follower" : "waiting";
	if (!metaraft_leads(md->raft))
		return "deposed";
	if (!md->serving)
		return "waiting-for-blockds";
	if (md->older)
		return "older";
	return recover_session(md) ? "recovering" : "ok";
}

/* What the others say, and who leads. */
static json_t *group_json(struct metad *md)
{
	json_t *list = json_array();
	uint32_t i;

	for (i = 0; list && i < group_count(md->group); i++) {
		const struct group_member *m = group_other(md->group, i);
		json_t *j = json_pack("{s:I,s:b,s:b}", "id", (json_int_t)m->id,
				      "up", m->up, "voter",
				      metaraft_is_voter(md->raft, m->id));

		if (j && m->heard_ms)
			set_u64(j, "pos", m->pos);
		(void)json_array_append_new(list, j);
	}
	return list;
}

static void add_group(struct metad *md, json_t *j)
{
	if (!md->group)
		return;
	set_u64(j, "leader", metaraft_leader(md->raft));
	/* What commands are made of that it proposes. */
	set_u64(j, "minor", group_proto(md->group).minor);
	set_u64(j, "term", metaraft_term(md->raft));
	(void)json_object_set_new(j, "voter", json_boolean(
		metaraft_is_voter(md->raft, md->self->id)));
	(void)json_object_set_new(j, "others", group_json(md));
}

/* What every metad can tell. */
static json_t *status_common(struct metad *md)
{
	char cluster[24], protocol[PROTO_TEXT_SIZE];
	json_t *j;

	(void)snprintf(cluster, sizeof(cluster), "0x%016" PRIx64,
		       md->cluster_id);
	j = json_pack("{s:s,s:s,s:s,s:I,s:I,s:s,s:s}", "program", "hail-metad",
		      "version", HAILFS_VERSION, "protocol",
		      proto_ours_text(protocol), "id",
		      (json_int_t)md->self->id, "pid", (json_int_t)getpid(),
		      "cluster_id", cluster, "state", metad_state(md));
	if (!j)
		return NULL;
	set_u64(j, "uptime_ms", uv_now(&md->loop) - md->start_ms);
	set_u64(j, "pos", sm_pos(md->sm));
	set_u64(j, "inodes", sm_inode_count(md->sm));
	set_u64(j, "bytes", sm_bytes(md->sm));
	set_u64(j, "log_bytes", metaraft_stats(md->raft)->log_bytes);
	set_u64(j, "snapshot_bytes",
		metaraft_stats(md->raft)->snapshot_last_bytes);
	if (room_full(md->room))
		(void)json_object_set_new(j, "disk", json_string("full"));
	add_group(md, j);
	return j;
}

void admin_status(struct request *r)
{
	struct metad *md = r->md;
	const struct cmap *map = sm_map(md->sm);
	json_t *daemons, *j = status_common(md);
	char copy[160];
	uint32_t i;

	if (!j || !md->leading) {
		admin_reply_json(r, j);
		return;
	}
	daemons = json_array();
	for (i = 0; i < map->daemon_count; i++)
		(void)json_array_append_new(daemons,
					    daemon_json(md, &map->daemons[i]));
	(void)json_object_set_new(j, "blockds", daemons);
	(void)json_object_set_new(j, "logds", logds_json(md));
	(void)json_object_set_new(j, "sessions", sessions_json(md));
	set_u64(j, "epoch", md->epoch);
	set_u64(j, "durable", metad_durable(md));
	set_u64(j, "purge_pending", purge_pending(md));
	set_u64(j, "logs", sm_log_count(md->sm));
	if (md->older)
		(void)json_object_set_new(j, "error", json_string(
			"its directory is an older copy than the block stores; "
			"nothing newer is purged: put the newer directory "
			"back, or go on, and see hailctl fsck"));
	if (md->copy)
		(void)json_object_set_new(j, "copy", json_string(
			copy_state(md->copy, copy, sizeof(copy))));
	set_u64(j, "cuts_pending", cut_count(md));
	admin_reply_json(r, j);
}

void admin_sessions(struct request *r)
{
	admin_reply_json(r, sessions_json(r->md));
}

/* ---- statistics ---- */

/* Also on the HTTP thread. */
static int64_t get_bytes(void *arg)
{
	struct metad *md = arg;

	return (int64_t)__atomic_load_n(&md->stats.state_bytes,
					__ATOMIC_RELAXED);
}

static int64_t get_inodes(void *arg)
{
	struct metad *md = arg;

	return (int64_t)__atomic_load_n(&md->stats.inodes, __ATOMIC_RELAXED);
}

void admin_stats_look(struct metad *md)
{
	stats_set(&md->stats.state_bytes, sm_bytes(md->sm));
	stats_set(&md->stats.inodes, sm_inode_count(md->sm));
}

int admin_stats_register(struct metad *md, struct stats *s)
{
	const struct metaraft_stats *r = metaraft_stats(md->raft);
	struct stats_hist *h;
	const struct {
		const char *name, *help;
		const uint64_t *v;
	} list[] = {
		{ "requests", "Frames handled.", &md->stats.requests },
		{ "queries", "Reads of metadata.", &md->stats.queries },
		{ "mutations", "Changes of metadata asked for.",
		  &md->stats.mutations },
		{ "replays", "Requests answered from kept replies.",
		  &md->stats.replays },
		{ "syncs", "Waits for durability.", &md->stats.syncs },
		{ "errors", "Requests answered with an error.",
		  &md->stats.errors },
		{ "held", "Replies that waited.", &md->stats.held },
		{ "bad_frames", "Connections closed for garbage.",
		  &md->stats.bad_frames },
		{ "refused", "Connections refused.", &md->stats.refused },
		{ "connections", "Connections accepted.",
		  &md->stats.connections },
		{ "no_room", "Commands refused because the disk is full.",
		  &md->stats.no_room },
		{ "cuts", "Truncations confirmed by all block daemons.",
		  &md->stats.cuts },
		{ "purged", "Inodes whose blocks were freed.",
		  &md->stats.purged },
		{ "fences", "Sessions fenced.", &md->stats.fences },
		{ "recovered_inodes", "Files whose size was recovered.",
		  &md->stats.recovered_inodes },
		{ "loop_turns", "Turns of the event loop.", &md->stats.turns },
		{ "loop_spins", "Times the loop polled before it slept.",
		  &md->stats.spins },
		{ "loop_spin_hits", "Times that paid.",
		  &md->stats.spin_hits },
		{ "raft_commands", "Commands appended to the log.",
		  &r->commands },
		{ "raft_batches", "Log entries written.", &r->batches },
		{ "raft_bytes", "Bytes appended to the log.", &r->bytes },
		{ "raft_append_us", "Time spent in appends, summed.",
		  &r->append_us_sum },
		{ "snapshots", "Snapshots taken.", &r->snapshots },
		{ "snapshots_failed", "Snapshots that could not be written.",
		  &r->snapshots_failed },
	};
	size_t i;

	for (i = 0; i < array_count(list); i++)
		if (stats_counter_ref(s, list[i].name, NULL, list[i].help,
				      list[i].v) < 0)
			return -ENOMEM;
	h = stats_hist(s, "raft_append_seconds", NULL,
		       "Time from writing a log entry to its being durable.");
	if (!h)
		return -ENOMEM;
	metaraft_time_appends(md->raft, h);
	if (stats_gauge(s, "state_bytes", NULL, "Memory of the state.",
			get_bytes, md) < 0)
		return -ENOMEM;
	return stats_gauge(s, "inodes", NULL, "Inodes alive.", get_inodes, md);
}

void admin_stats(struct request *r)
{
	admin_stats_look(r->md);
	reply_text(r, stats_json(r->md->registry));
}

/* ---- inodes ---- */

void admin_inodes(struct request *r)
{
	struct admin_inodes q;
	struct admin_inodes_reply m = { .done = 1 };
	size_t attr_size = meta_attr_size(&(struct meta_attr){ 0 });
	struct meta_attr *list;
	struct wire_out o;
	uint8_t *buf = NULL, *attrs = NULL;
	uint32_t max;
	size_t i, count;

	if (admin_inodes_parse(r->body, r->body_len, &q) < 0) {
		serve_reply_plain(r->md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	max = (uint32_t)u64_min(u64_max(q.count_max, 1), INODES_MAX);
	list = malloc(max * sizeof(*list));
	attrs = malloc(max * attr_size);
	buf = malloc(max * attr_size + 64);
	if (!list || !attrs || !buf) {
		serve_reply_plain(r->md, &r->to, -ENOMEM, NULL, 0);
		goto out;
	}
	count = sm_inode_list(r->md->sm, q.ino, list, max);
	wire_out_init(&o, attrs, max * attr_size);
	for (i = 0; i < count; i++)
		meta_attr_encode(&o, &list[i]);
	m.done = count < max;
	m.count = (uint32_t)count;
	m.attrs.p = attrs;
	m.attrs.len = (uint32_t)o.len;
	wire_out_init(&o, buf, max * attr_size + 64);
	admin_inodes_reply_encode(&o, &m);
	serve_reply_plain(r->md, &r->to, 0, buf, o.len);
out:
	free(list);
	free(attrs);
	free(buf);
}

/* ---- backup ---- */

static void backup_end(struct conn *c)
{
	if (c->backup)
		sm_snap_end(c->md->sm, c->backup);
	c->backup = NULL;
}

/* A handle is the connection's id: one backup a connection. */
static int backup_begin(struct conn *c, const struct admin_backup *q)
{
	if (q->handle == 0 && q->off == 0) {
		backup_end(c);
		c->backup = sm_snap_begin(c->md->sm);
		c->backup_off = 0;
		return c->backup ? 0 : -ENOMEM;
	}
	if (!c->backup || q->handle != c->id || q->off != c->backup_off)
		return -EINVAL;
	return 0;
}

void admin_backup(struct request *r)
{
	struct conn *c = r->conn;
	struct admin_backup q;
	struct admin_backup_reply m = { .handle = c->id };
	uint8_t *piece, *buf;
	struct wire_out o;
	size_t len = 0, got;
	int rv = admin_backup_parse(r->body, r->body_len, &q);

	if (rv == 0)
		rv = backup_begin(c, &q);
	piece = malloc(PIECE_BYTES);
	buf = malloc(PIECE_BYTES + 64);
	if (rv == 0 && (!piece || !buf))
		rv = -ENOMEM;
	if (rv < 0) {
		serve_reply_plain(r->md, &r->to, rv, NULL, 0);
		goto out;
	}
	while (len < PIECE_BYTES &&
	       (got = sm_snap_next(c->backup, piece + len,
				   PIECE_BYTES - len)) > 0)
		len += got;
	m.total = sm_snap_size(c->backup);
	m.piece.p = piece;
	m.piece.len = (uint32_t)len;
	c->backup_off += len;
	if (len == 0)
		backup_end(c);
	wire_out_init(&o, buf, PIECE_BYTES + 64);
	admin_backup_reply_encode(&o, &m);
	serve_reply_plain(r->md, &r->to, 0, buf, o.len);
out:
	free(piece);
	free(buf);
}

void admin_conn_gone(struct conn *c)
{
	backup_end(c);
}

void admin_give_up(struct request *r)
{
	struct admin_give_up m;
	uint64_t pos = 0;
	int rv = admin_give_up_parse(r->body, r->body_len, &m);

	if (rv == 0)
		rv = monitor_give_up(r->md, m.daemon_id, &pos);
	request_reply_at(r->md, &r->to, pos, rv, NULL, 0);
}

void admin_stop(struct request *r)
{
	serve_reply_plain(r->md, &r->to, 0, NULL, 0);
	r->md->stop(r->md, NULL);
}
