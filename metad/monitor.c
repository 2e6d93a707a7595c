/* Registration and heartbeats of block daemons. */
#include "metad/monitor.h"

#include <inttypes.h>

#include "common/diag.h"
#include "metad/drive.h"
#include "metad/restore.h"

struct monitor {
	struct metad *md;
	uint64_t start_ms;
	uint32_t count;
	struct monitor_daemon list[DAEMON_COUNT_MAX];
	void (*on_register)(struct metad *md);
};

static struct monitor_daemon *find(struct monitor *m, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < m->count; i++)
		if (m->list[i].id == id)
			return &m->list[i];
	return NULL;
}

const struct monitor_daemon *monitor_find(struct monitor *m, uint32_t id)
{
	return find(m, id);
}

bool monitor_lease_over(struct monitor *m, uint32_t id)
{
	const struct monitor_daemon *d = find(m, id);
	uint64_t until = d && d->seen ? d->lease_ms : 0;

	/* What the process before this one granted is not known. */
	until = u64_max(until, m->start_ms + LEASE_MS);
	return uv_now(&m->md->loop) > until;
}

bool monitor_settled(struct monitor *m)
{
	const struct cmap *map = sm_map(m->md->sm);
	uint32_t i;

	for (i = 0; i < map->daemon_count; i++) {
		const struct cmap_daemon *c = &map->daemons[i];
		const struct monitor_daemon *d = find(m, c->id);

		if (c->state != CMAP_STATE_NEW && !(d && d->seen) &&
		    !monitor_lease_over(m, c->id))
			return false;
	}
	return true;
}

bool monitor_all_known(struct monitor *m)
{
	const struct cmap *map = sm_map(m->md->sm);
	uint32_t i;

	for (i = 0; i < map->daemon_count; i++) {
		const struct cmap_daemon *c = &map->daemons[i];
		const struct monitor_daemon *d = find(m, c->id);

		if (c->state != CMAP_STATE_NEW &&
		    !(c->state == CMAP_STATE_UP && d && d->seen))
			return false;
	}
	return true;
}

bool monitor_any_known(struct monitor *m)
{
	const struct cmap *map = sm_map(m->md->sm);
	bool stores = false;
	uint32_t i;

	for (i = 0; i < map->daemon_count; i++) {
		const struct cmap_daemon *c = &map->daemons[i];
		const struct monitor_daemon *d = find(m, c->id);

		if (c->state == CMAP_STATE_NEW)
			continue;
		if (d && d->seen)
			return true;
		stores = true;
	}
	return !stores;
}

void monitor_on_register(struct monitor *m, void (*fn)(struct metad *md))
{
	m->on_register = fn;
}

/* May it have the right to serve now? Not when it was without while the map
 * changed, for then nobody waited for it to take notice: it reads the map
 * first. (Epoch 0: it has none yet, and serves nobody before it has.) */
static bool may_serve(struct request *r, const struct monitor_daemon *d)
{
	return r->epoch >= r->md->epoch || r->epoch == 0 ||
	       !monitor_lease_over(r->md->monitor, d->id);
}

/* Answers with the right to serve, or with none: 0 ms. */
static void reply_lease(struct request *r, struct monitor_daemon *d,
			uint64_t pos)
{
	struct metad *md = r->md;
	struct meta_lease_reply m = { .cluster_id = md->cluster_id,
				      .epoch = md->epoch };
	uint8_t buf[32];
	struct wire_out o;

	if (may_serve(r, d)) {
		m.lease_ms = LEASE_MS;
		d->lease_ms = uv_now(&md->loop) + LEASE_MS;
	}
	wire_out_init(&o, buf, sizeof(buf));
	meta_lease_reply_encode(&o, &m);
	request_reply_at(md, &r->to, pos, 0, buf, o.len);
}

static const struct cmap_daemon *map_daemon(struct metad *md, uint32_t id)
{
	const struct cmap *map = sm_map(md->sm);
	int i = cmap_find_daemon(map, id);

	return i < 0 ? NULL : &map->daemons[i];
}

/* Records a daemon; the position is that of the command, 0: nothing to do. */
static uint64_t record(struct metad *md, const struct sm_daemon_set *m)
{
	struct sm_reply r;

	METAD_PROPOSE(md, WIRE_OP_SM_DAEMON_SET, sm_daemon_set, m, &r);
	return sm_pos(md->sm);
}

static const char foreign[] = "blocks of files that these metadata never had; "
			      "is this the data directory it had before?";

/* The first time, or after a loss that was accepted. No store is written before
 * it is on record here. So one that was has other metadata, and its blocks are
 * theirs: files made here would get their numbers, and the next sweep would
 * purge all the rest. After a restore a store may be younger than the backup.
 */
static const char *judge_new_store(struct metad *md, uint32_t id,
				   const struct meta_register *m)
{
	if (sm_store_given_up(md->sm, id, m->store_id_hi, m->store_id_lo))
		return "a store that was given up";
	return m->ino_max != 0 && md->serving ? foreign : NULL;
}

/* What is wrong with the store that came; NULL: it is the one that left. */
static const char *judge_store(struct metad *md, const struct cmap_daemon *was,
			       const struct monitor_daemon *d,
			       const struct meta_register *m)
{
	uint64_t commit = 0;

	if (was->store_id_hi == 0 && was->store_id_lo == 0)
		return judge_new_store(md, was->id, m);
	if (was->store_id_hi != m->store_id_hi ||
	    was->store_id_lo != m->store_id_lo)
		return "another store";
	(void)sm_daemon_commit(md->sm, was->id, &commit);
	if (d && d->seen)
		commit = u64_max(commit, d->commit);
	return m->commit < commit ? "an older copy of its store" : NULL;
}

/* Has the store seen what these metadata never gave out? A session is durable
 * here before anybody hears of it, and all but some inodes are. What registers
 * for the first time has seen none of this process. */
static bool knows_more(struct metad *md, const struct monitor_daemon *d,
		       const struct meta_register *m)
{
	uint64_t session = d->seen ? sm_next_session(md->sm) :
				     md->first_session;

	return m->session_max >= session ||
	       m->ino_max >= sm_next_ino(md->sm) + CREATES_LOST_MAX;
}

static struct monitor_daemon *daemon_get(struct monitor *m, uint32_t id)
{
	struct monitor_daemon *d = find(m, id);

	if (!d && m->count < DAEMON_COUNT_MAX) {
		d = &m->list[m->count++];
		memset(d, 0, sizeof(*d));
		d->id = id;
	}
	return d;
}

/* Returns the position of what had to be recorded, or 0. */
static uint64_t register_record(struct metad *md, const struct meta_register *m,
				const struct cmap_daemon *was, bool lost)
{
	struct sm_daemon_set set = { .id = m->daemon_id,
				     .addr = m->addr,
				     .port = m->port,
				     .store_id_hi = m->store_id_hi,
				     .store_id_lo = m->store_id_lo,
				     .state = CMAP_STATE_UP,
				     .commit = m->commit };
	uint64_t commit = 0;

	(void)sm_daemon_commit(md->sm, m->daemon_id, &commit);
	if (lost) {
		/* What it should have been stays recorded: the right store may
		 * still come. */
		set.store_id_hi = was->store_id_hi;
		set.store_id_lo = was->store_id_lo;
		set.commit = commit;
		set.state = CMAP_STATE_LOST;
	}
	if (was->state == set.state && was->port == m->port &&
	    was->store_id_hi == set.store_id_hi &&
	    was->store_id_lo == set.store_id_lo && commit == set.commit &&
	    strlen(was->addr) == m->addr.len &&
	    memcmp(was->addr, m->addr.p, m->addr.len) == 0)
		return 0;
	return record(md, &set);
}

void monitor_register(struct request *r)
{
	struct metad *md = r->md;
	const struct cmap_daemon *was;
	struct meta_register m;
	struct monitor_daemon *d;
	const char *wrong;
	uint64_t pos;
	bool more;

	if (meta_register_parse(r->body, r->body_len, &m) < 0 ||
	    m.daemon_id != r->conn->peer_id || m.addr.len == 0 ||
	    m.addr.len > CMAP_ADDR_LEN_MAX || m.port == 0 ||
	    memchr(m.addr.p, 0, m.addr.len)) {
		serve_reply(md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	was = map_daemon(md, m.daemon_id);
	d = daemon_get(md->monitor, m.daemon_id);
	if (!was || !d) {
		serve_reply(md, &r->to, -ENOENT, NULL, 0);
		return;
	}
	wrong = judge_store(md, was, d, &m);
	if (wrong && (was->state == CMAP_STATE_UP || !d->seen ||
		      d->boot_id != m.boot_id))
		diag_err("monitor", "event=store-lost blockd=%" PRIu32
			 " reason=\"came back with %s\" commit=%" PRIu64,
			 m.daemon_id, wrong, m.commit);
	else if (!wrong)
		diag_info("monitor", "event=registered blockd=%" PRIu32
			  " addr=%s port=%u commit=%" PRIu64, m.daemon_id,
			  r->conn->peer, m.port, m.commit);
	more = !wrong && knows_more(md, d, &m);
	/* With no store on record none is waited for: nothing changes. */
	pos = wrong && was->state == CMAP_STATE_NEW ?
	      0 : register_record(md, &m, was, wrong != NULL);
	d->seen = true;
	d->boot_id = m.boot_id;
	d->units_total = m.units_total;
	d->units_free = m.units_free;
	if (!wrong)
		d->commit = m.commit;
	d->ino_max = m.ino_max;
	d->session_max = m.session_max;
	d->epoch_max = u64_max(d->epoch_max, r->epoch);
	d->heard_ms = uv_now(&md->loop);
	/* The store's identity must be durable before it takes writes. */
	if (wrong)
		request_reply_at(md, &r->to, pos, wrong == foreign ?
				 -ENOTEMPTY : -ESTALE, NULL, 0);
	else
		reply_lease(r, d, pos);
	if (more)
		restore_older(md, d);
	if (md->monitor->on_register)
		md->monitor->on_register(md);
}

/* Keeps the last commit number on record, so that an older copy of the store is
 * known when it comes. Lazily: nobody waits for it. */
static void heartbeat_record(struct metad *md, const struct cmap_daemon *was,
			     const struct meta_heartbeat *m)
{
	struct sm_daemon_set set = { .id = was->id,
				     .addr = { was->addr,
					       (uint32_t)strlen(was->addr) },
				     .port = was->port,
				     .store_id_hi = was->store_id_hi,
				     .store_id_lo = was->store_id_lo,
				     .state = was->state,
				     .commit = m->commit };
	uint64_t commit = 0;

	(void)sm_daemon_commit(md->sm, was->id, &commit);
	if (m->commit > commit)
		(void)record(md, &set);
}

void monitor_heartbeat(struct request *r)
{
	struct metad *md = r->md;
	const struct cmap_daemon *was;
	struct meta_heartbeat m;
	struct monitor_daemon *d;

	if (meta_heartbeat_parse(r->body, r->body_len, &m) < 0 ||
	    m.daemon_id != r->conn->peer_id) {
		serve_reply(md, &r->to, -EBADMSG, NULL, 0);
		return;
	}
	was = map_daemon(md, m.daemon_id);
	d = find(md->monitor, m.daemon_id);
	/* Unknown to this process: it registers first. */
	if (!was || !d || !d->seen || d->boot_id != m.boot_id) {
		serve_reply(md, &r->to, -ESTALE, NULL, 0);
		return;
	}
	if (m.state != d->state)
		diag_warn("monitor", "event=state blockd=%" PRIu32
			  " state=%u error=\"%.*s\"", m.daemon_id, m.state,
			  (int)u64_min(m.error.len, sizeof(d->error) - 1),
			  (const char *)m.error.p);
	d->state = m.state;
	(void)snprintf(d->error, sizeof(d->error), "%.*s",
		       (int)u64_min(m.error.len, sizeof(d->error) - 1),
		       (const char *)m.error.p);
	d->units_total = m.units_total;
	d->units_free = m.units_free;
	d->epoch_max = u64_max(d->epoch_max, r->epoch);
	d->heard_ms = uv_now(&md->loop);
	if (was->state != CMAP_STATE_UP) {
		serve_reply(md, &r->to, -ESTALE, NULL, 0);
		return;
	}
	d->commit = u64_max(d->commit, m.commit);
	heartbeat_record(md, was, &m);
	reply_lease(r, d, 0);
}

int monitor_give_up(struct metad *md, uint32_t id, uint64_t *pos)
{
	const struct cmap_daemon *was = map_daemon(md, id);
	struct monitor_daemon *d = find(md->monitor, id);
	struct sm_daemon_set set = { .id = id, .state = CMAP_STATE_NEW };

	if (!was)
		return -ENOENT;
	if (was->store_id_hi == 0 && was->store_id_lo == 0)
		return -EALREADY;
	if (!monitor_lease_over(md->monitor, id) ||
	    (was->state == CMAP_STATE_UP && drive_is_up(md->drive, id)))
		return -EBUSY;
	diag_warn("monitor", "event=store-given-up blockd=%" PRIu32
		  " store=%016" PRIx64 "%016" PRIx64, id, was->store_id_hi,
		  was->store_id_lo);
	set.addr = (struct wire_str){ was->addr, (uint32_t)strlen(was->addr) };
	set.port = was->port;
	*pos = record(md, &set);
	/* What it told counts no more; what runs in its place registers. */
	if (d) {
		d->seen = false;
		d->commit = 0;
	}
	return 0;
}

int monitor_new(struct metad *md, struct monitor **ret)
{
	struct monitor *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->md = md;
	m->start_ms = uv_now(&md->loop);
	*ret = m;
	return 0;
}

void monitor_free(struct monitor *m)
{
	free(m);
}
