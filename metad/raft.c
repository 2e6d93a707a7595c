/* Batches, durability and libraft's instance. Snapshots are in fsm.c. */
#include "metad/raft_priv.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#include "common/clock.h"
#include "common/diag.h"
#include "common/stats.h"
#include "common/status.h"

/* How long commands gather while nobody waits for them to be durable. */
#define WINDOW_MS 5u
/* A batch of this size is written without gathering on. */
#define BATCH_BYTES (256u << 10)
/* libraft refuses an entry longer than one of its segments (8 MiB). */
#define BATCH_BYTES_MAX (4u << 20)
#define IN_FLIGHT_MAX 8u
#define TRIM_MS 10u
#define TRIM_STEPS 64u
#define BACKLOG_BYTES_MAX (16u << 20)
/* One voter has nobody to send heartbeats to: tick seldom. */
#define HEARTBEAT_MS 500u
#define ELECTION_MS 2500u
/* How many entries a member may lag behind before it gets a whole snapshot.
 * Nobody lags behind one voter; none at all would mean to libraft that the
 * snapshot came from a leader. */
#define TRAILING 1u
#define TRAILING_GROUP 128u
#define CONNECT_RETRY_MS 100u

_Static_assert(FRAME_BODY_MAX + METARAFT_COMMAND_HEAD + METARAFT_BATCH_HEAD <
	       BATCH_BYTES_MAX, "every command fits a batch");

/* ---- libraft's transport: one voter talks to nobody ---- */

static int transport_init(struct raft_uv_transport *t, raft_id id,
			  const char *address)
{
	(void)t;
	(void)id;
	(void)address;
	return 0;
}

static int transport_listen(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
	(void)t;
	(void)cb;
	return 0;
}

static int transport_connect(struct raft_uv_transport *t,
			     struct raft_uv_connect *req, raft_id id,
			     const char *address, raft_uv_connect_cb cb)
{
	(void)t;
	(void)req;
	(void)id;
	(void)address;
	(void)cb;
	return RAFT_NOCONNECTION;
}

static void transport_close(struct raft_uv_transport *t,
			    raft_uv_transport_close_cb cb)
{
	cb(t);
}

/* ---- batches ---- */

bool metaraft_disk_full(const struct metaraft *m)
{
	struct statvfs vfs;

	return statvfs(m->dir, &vfs) == 0 &&
	       (uint64_t)vfs.f_bavail * vfs.f_frsize < (16u << 20);
}

void metaraft_fail(struct metaraft *m, int error)
{
	const char *more = m->raft.errmsg, *hint;
	char why[512];

	if (m->failed || m->deposed || m->closing)
		return;
	if (metaraft_is_deposing(m, error)) {
		metaraft_depose(m);
		return;
	}
	m->failed = true;
	if (m->load_error == -EPROTONOSUPPORT) {
		m->ops->failed(m->arg, "a command of a later version of "
			       "hail-metad was committed; run that version");
		return;
	}
	if (error == RAFT_NOMEM) {
		more = ""; /* of something else */
		hint = "; start again";
	} else if (metaraft_disk_full(m)) {
		hint = "; the disk is full: make room and start again";
	} else {
		hint = "; look at the disk (dmesg), then start again";
	}
	(void)snprintf(why, sizeof(why),
		       "the metadata log in %s cannot be written (%s%s%s)%s",
		       m->dir, raft_strerror(error), more[0] ? ": " : "", more,
		       hint);
	m->ops->failed(m->arg, why);
}

static bool open_grow(struct metaraft *m, size_t need)
{
	size_t cap = m->open.cap ? m->open.cap : 1024;
	uint8_t *p;

	while (cap < need)
		cap *= 2;
	if (cap == m->open.cap)
		return true;
	p = raft_realloc(m->open.buf, cap);
	if (!p)
		return false;
	m->open.buf = p;
	m->open.cap = cap;
	return true;
}

void metaraft_seal(struct metaraft *m)
{
	struct batch *b = m->spare;
	struct wire_out o;
	uint8_t *buf;

	if (m->open.count == 0)
		return;
	m->spare = NULL;
	b->number = ++m->batch_number;
	b->pos = m->open.pos;
	b->len = u64_round_up(m->open.len, METARAFT_BATCH_ALIGN);
	memset(m->open.buf + m->open.len, 0, b->len - m->open.len);
	b->next = NULL;
	wire_out_init(&o, m->open.buf, METARAFT_BATCH_HEAD);
	wire_put_u64(&o, b->number);
	wire_put_u32(&o, m->open.count);
	/* libraft keeps it in memory until the next snapshot. */
	buf = raft_realloc(m->open.buf, b->len);
	b->buf = buf ? buf : m->open.buf;
	memset(&m->open, 0, sizeof(m->open));
	*m->sealed_tail = b;
	m->sealed_tail = &b->next;
	/* From here on the state counts as having it, see fsm.c. */
	sm_set_batch(m->sm, b->number);
}

/* Room for one more command of @body_len bytes in the open batch. */
static bool open_reserve(struct metaraft *m, size_t body_len)
{
	size_t need = METARAFT_COMMAND_HEAD + body_len;

	if (m->open.count && m->open.len + need > BATCH_BYTES_MAX)
		metaraft_seal(m);
	if (!m->spare)
		m->spare = raft_malloc(sizeof(*m->spare));
	if (!m->spare)
		return false;
	if (m->open.len == 0)
		m->open.len = METARAFT_BATCH_HEAD;
	return open_grow(m, m->open.len + need + METARAFT_BATCH_ALIGN);
}

void metaraft_propose(struct metaraft *m, uint16_t op, uint64_t session,
		      const void *body, size_t len, struct sm_reply *r)
{
	uint64_t pos_before = sm_pos(m->sm);
	struct wire_out o;

	/* Memory first: what was executed must be appended. */
	if (m->failed || m->deposed || !open_reserve(m, len)) {
		memset(r, 0, sizeof(*r));
		r->status = m->failed || m->deposed ? -EIO : -ENOMEM;
		r->pos = pos_before;
		if (r->status == -ENOMEM)
			metaraft_fail(m, RAFT_NOMEM);
		return;
	}
	assert(m->leads);
	sm_apply(m->sm, op, session, body, len, r);
	if (r->status == -ENOMEM) {
		metaraft_fail(m, RAFT_NOMEM);
		return;
	}
	if (sm_pos(m->sm) == pos_before)
		return;
	if (m->open.count == 0)
		m->open.since_ms = uv_now(m->loop);
	wire_out_init(&o, m->open.buf + m->open.len,
		      m->open.cap - m->open.len);
	wire_put_u16(&o, op);
	wire_put_u16(&o, 0);
	wire_put_u32(&o, (uint32_t)len);
	wire_put_u64(&o, session);
	wire_put_raw(&o, body, len);
	assert(!o.overflow);
	m->open.len += o.len;
	m->open.count++;
	m->open.pos = sm_pos(m->sm);
	stats_count(&m->stats.commands, 1);
}

/* ---- writing ---- */

static void batch_done(struct raft_apply *req, int status, void *result)
{
	struct batch *b = container_of(req, struct batch, req);
	struct metaraft *m = req->data;
	uint64_t ns = clock_now_ns(CLOCK_BOOTTIME) - b->start_ns;
	uint64_t us = ns / 1000, number;

	(void)result;
	m->in_flight--;
	m->backlog -= b->len;
	if (status != 0) {
		raft_free(b);
		metaraft_fail(m, status);
		return;
	}
	/* A group may have it while our own disk has not. */
	number = m->raft.last_stored >= b->req.index ? b->number : 0;
	m->durable = b->pos;
	metaraft_heard(m, b->start_ns);
	metaraft_committed(m, b->number);
	stats_count(&m->stats.append_us_sum, us);
	m->stats.append_us_max = u64_max(m->stats.append_us_max, us);
	if (m->append_hist)
		stats_hist_add(m->append_hist, ns);
	m->stats.log_bytes += b->len;
	raft_free(b);
	metaraft_snapshot_check(m);
	m->ops->durable(m->arg, m->durable, number);
}

static void submit(struct metaraft *m)
{
	struct batch *b = m->sealed;
	struct raft_buffer buf = { .base = b->buf, .len = b->len };
	int rv;

	m->sealed = b->next;
	if (!m->sealed)
		m->sealed_tail = &m->sealed;
	b->req.data = m;
	b->start_ns = clock_now_ns(CLOCK_BOOTTIME);
	m->submitted = b->pos;
	m->in_flight++;
	m->backlog += b->len;
	stats_count(&m->stats.batches, 1);
	stats_count(&m->stats.bytes, b->len);
	if (m->ops->batch)
		m->ops->batch(m->arg, b->buf, b->len);
	rv = raft_apply(&m->raft, &b->req, &buf, 1, batch_done);
	if (rv != 0) {
		m->in_flight--;
		m->backlog -= b->len;
		raft_free(b->buf);
		raft_free(b);
		metaraft_fail(m, rv);
	}
}

static bool open_due(const struct metaraft *m)
{
	if (m->open.count == 0)
		return false;
	if (m->open.len >= BATCH_BYTES)
		return true;
	/* While one is being written the others gather: group commit. */
	if (m->in_flight || m->sealed)
		return false;
	return m->want > m->submitted ||
	       uv_now(m->loop) - m->open.since_ms >= WINDOW_MS;
}

struct sm_snap *metaraft_freeze(struct metaraft *m)
{
	if (m->failed || m->deposed || m->closing)
		return NULL;
	if (m->leads)
		metaraft_seal(m);
	return sm_snap_begin(m->sm);
}

static void window_over(uv_timer_t *t)
{
	metaraft_turn(t->data);
}

static void on_trim(uv_timer_t *t)
{
	struct metaraft *m = t->data;
	unsigned i;

	for (i = 0; i < TRIM_STEPS; i++)
		if (!sm_trim(m->sm)) {
			(void)uv_timer_stop(t);
			return;
		}
}

void metaraft_trim(struct metaraft *m)
{
	if (m->running && !m->closing)
		(void)uv_timer_start(&m->trim, on_trim, TRIM_MS, TRIM_MS);
}

void metaraft_turn(struct metaraft *m)
{
	if (m->failed || m->deposed || m->closing || !m->running)
		return;
	metaraft_group_look(m);
	if (open_due(m))
		metaraft_seal(m);
	/* While it hands over, libraft takes none. */
	while (m->sealed && m->in_flight < IN_FLIGHT_MAX && !m->failed &&
	       !m->deposed && !m->raft.transfer)
		submit(m);
	if (m->open.count && !uv_is_active((uv_handle_t *)&m->window))
		(void)uv_timer_start(&m->window, window_over, WINDOW_MS, 0);
}

void metaraft_want(struct metaraft *m, uint64_t pos)
{
	m->want = u64_max(m->want, pos);
}

uint64_t metaraft_durable(const struct metaraft *m)
{
	return m->durable;
}

bool metaraft_busy(const struct metaraft *m)
{
	return m->backlog + m->open.len > BACKLOG_BYTES_MAX;
}

bool metaraft_writing(const struct metaraft *m)
{
	return m->in_flight > 0 || m->sealed || m->want > m->durable;
}

const struct metaraft_stats *metaraft_stats(const struct metaraft *m)
{
	return &m->stats;
}

void metaraft_time_appends(struct metaraft *m, struct stats_hist *h)
{
	m->append_hist = h;
}

/* ---- life ---- */

int metaraft_new(uv_loop_t *loop, struct sm *sm,
		 const struct metaraft_config *config,
		 const struct metaraft_ops *ops, void *arg,
		 struct metaraft **ret, char *why, size_t why_size)
{
	struct metaraft *m = calloc(1, sizeof(*m));
	int rv;

	if (!m)
		return -ENOMEM;
	m->loop = loop;
	m->sm = sm;
	m->ops = ops;
	m->arg = arg;
	m->id = config->id;
	m->snapshot_bytes = config->snapshot_bytes;
	m->sealed_tail = &m->sealed;
	m->dir = strdup(config->dir);
	if (!m->dir) {
		free(m);
		return -ENOMEM;
	}
	m->group = config->transport != NULL;
	metaraft_address(m->address, m->id);
	m->nobody.init = transport_init;
	m->nobody.listen = transport_listen;
	m->nobody.connect = transport_connect;
	m->nobody.close = transport_close;
	rv = raft_uv_init(&m->io, loop, m->dir,
			  m->group ? config->transport : &m->nobody);
	if (rv != 0) {
		(void)snprintf(why, why_size, "cannot use %s: %s", m->dir,
			       m->io.errmsg[0] ? m->io.errmsg :
						 raft_strerror(rv));
		free(m->dir);
		free(m);
		return status_from_raft(rv);
	}
	metaraft_recv_init(m);
	/* 0.15 has async_work but calls itself version 1. */
	m->io.version = 2;
	/* A damaged closed segment is refused, not set aside with all that
	 * follows it. */
	raft_uv_set_auto_recovery(&m->io, false);
	(void)raft_uv_set_snapshot_compression(&m->io, false);
	raft_uv_set_connect_retry_delay(&m->io, CONNECT_RETRY_MS);
	(void)pthread_mutex_init(&m->lock, NULL);
	(void)pthread_cond_init(&m->cond, NULL);
	metaraft_fsm_init(m);
	*ret = m;
	return 0;
}

/* Is it a version that a later program may write? Not what zeros or other
 * files' bytes look like. */
static bool says_later(const char *errmsg)
{
	static const char what[] = "format version ";
	const char *at = strstr(errmsg, what);
	unsigned long long v = at ? strtoull(at + sizeof(what) - 1, NULL, 10) :
				    0;

	return v > 1 && v <= UINT8_MAX;
}

/* The sentence for what stopped loading. Returns its -errno. */
static int load_error(struct metaraft *m, int rv, char *why, size_t why_size)
{
	if (m->load_error == -EPROTONOSUPPORT) {
		(void)snprintf(why, why_size, "the metadata in %s were written "
			       "by a later version of hail-metad", m->dir);
		return m->load_error;
	}
	if (m->load_error == -ENOMEM) {
		(void)snprintf(why, why_size,
			       "not enough memory for the metadata in %s",
			       m->dir);
		return m->load_error;
	}
	if (m->load_error) {
		(void)snprintf(why, why_size, "the metadata in %s are damaged; "
			       "restore a backup (hail-metad --restore)",
			       m->dir);
		return m->load_error;
	}
	/* libraft names the file and the place in it. */
	(void)snprintf(why, why_size, "the metadata in %s cannot be loaded: "
		       "%s; nothing was changed: %s", m->dir,
		       m->raft.errmsg[0] ? m->raft.errmsg : raft_strerror(rv),
		       says_later(m->raft.errmsg) ?
			       "run the later hail-metad that wrote it" :
			       "bring that file back, or restore a backup");
	rv = status_from_raft(rv);
	return rv ? rv : -EIO;
}

/* Returns 0 or -errno with a sentence. */
static int init(struct metaraft *m, char *why, size_t why_size)
{
	int rv;

	if (m->inited)
		return 0;
	rv = raft_init(&m->raft, &m->io, &m->fsm, m->id, m->address);
	if (rv != 0)
		return load_error(m, rv, why, why_size);
	m->inited = true;
	m->raft.data = m;
	raft_set_snapshot_threshold(&m->raft, METARAFT_THRESHOLD_NEVER);
	raft_set_snapshot_trailing(&m->raft,
				   m->group ? TRAILING_GROUP : TRAILING);
	raft_set_heartbeat_timeout(&m->raft, m->group ? METARAFT_HEARTBEAT_MS :
							HEARTBEAT_MS);
	raft_set_election_timeout(&m->raft, m->group ? METARAFT_ELECTION_MS :
						       ELECTION_MS);
	raft_set_pre_vote(&m->raft, m->group);
	return 0;
}

int metaraft_bootstrap(struct metaraft *m, const uint32_t *ids, uint32_t count,
		       char *why, size_t why_size)
{
	struct raft_configuration c;
	int rv = init(m, why, why_size);

	if (rv < 0)
		return rv;
	raft_configuration_init(&c);
	for (uint32_t i = 0; rv == 0 && i < count; i++) {
		char address[METARAFT_ADDRESS_SIZE];

		metaraft_address(address, ids[i]);
		rv = raft_configuration_add(&c, ids[i], address, RAFT_VOTER);
	}
	if (rv == 0)
		rv = raft_bootstrap(&m->raft, &c);
	raft_configuration_close(&c);
	if (rv == 0 || rv == RAFT_CANTBOOTSTRAP)
		return 0;
	return load_error(m, rv, why, why_size);
}

int metaraft_start(struct metaraft *m, char *why, size_t why_size)
{
	int rv = init(m, why, why_size);

	if (rv < 0)
		return rv;
	rv = raft_start(&m->raft);
	if (rv != 0 || m->load_error)
		return load_error(m, rv, why, why_size);
	m->started = true;
	/* The only voter leads at once and has executed all it has. */
	if (!m->group && (raft_state(&m->raft) != RAFT_LEADER ||
			  raft_last_applied(&m->raft) !=
				  raft_last_index(&m->raft))) {
		(void)snprintf(why, why_size, "the metadata in %s belong to a "
			       "group of several metads or to another id",
			       m->dir);
		return -EINVAL;
	}
	rv = uv_timer_init(m->loop, &m->window);
	if (rv < 0)
		return rv;
	m->window.data = m;
	(void)uv_timer_init(m->loop, &m->trim); /* as the one before */
	m->trim.data = m;
	m->running = true;
	if (!m->group)
		metaraft_lead(m);
	return 0;
}

void metaraft_lead(struct metaraft *m)
{
	assert(m->running && !m->leads && (m->elected || !m->group));
	m->leads = true;
	m->batch_number = m->committed = sm_batch(m->sm);
	m->durable = m->submitted = sm_pos(m->sm);
}

static void raft_closed(struct raft *r)
{
	struct metaraft *m = r->data;

	raft_uv_close(&m->io);
	m->closed = true;
	m->close_cb(m->arg);
}

static void window_closed(uv_handle_t *h)
{
	struct metaraft *m = h->data;

	raft_close(&m->raft, raft_closed);
}

void metaraft_close(struct metaraft *m, void (*cb)(void *arg))
{
	assert(!m->closing);
	m->closing = true;
	m->close_cb = cb;
	metaraft_committed(m, 0);
	if (m->running) {
		uv_close((uv_handle_t *)&m->trim, NULL);
		uv_close((uv_handle_t *)&m->window, window_closed);
	} else if (m->inited) {
		raft_close(&m->raft, raft_closed);
	} else {
		raft_uv_close(&m->io);
		cb(m->arg);
	}
}

void metaraft_free(struct metaraft *m)
{
	struct batch *b, *next;

	if (!m)
		return;
	for (b = m->sealed; b; b = next) {
		next = b->next;
		raft_free(b->buf);
		raft_free(b);
	}
	raft_free(m->spare);
	raft_free(m->open.buf);
	pthread_cond_destroy(&m->cond);
	pthread_mutex_destroy(&m->lock);
	free(m->dir);
	free(m);
}
