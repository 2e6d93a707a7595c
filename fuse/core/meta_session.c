/* The mount's session with metad: opening, keepalives, the cluster map,
 * closing.
 */
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include "common/clock.h"
#include "common/diag.h"

#include <time.h>
#include <xxhash.h>

#define META_TICK_MS 200u /* soft time-outs are looked for */
#define META_KEEPALIVE_TIMEOUT_MS 4000u
#define META_RETRY_MS 50u
#define META_CLOSE_ATTEMPT_MS 3000u

/* Counts while the machine sleeps: metad's clock does not stop either. */
static uint64_t boot_time_ms(void)
{
	return clock_now_ms(CLOCK_BOOTTIME);
}

bool meta_may_serve(struct core *c)
{
	const struct meta_client *m = c->meta;
	return !m->fenced && boot_time_ms() - m->alive_ms < META_SERVE_MS;
}

uint64_t meta_session(struct core *c)
{
	core_lock(c);
	uint64_t session = c->meta->closed ? 0 : c->meta->session;
	core_unlock(c);
	return session;
}

/* ---- keepalive ---- */

static void keepalive_replied(struct rpc_call *rc, int status,
			      const struct rpc_frame *f)
{
	struct meta_client *m = container_of(rc, struct meta_client, keepalive);
	struct core *c = m->c;
	struct meta_call *gone = NULL;
	struct meta_rhdr rh;
	bool again;

	core_lock(c);
	free(m->keepalive_body);
	m->keepalive_body = NULL;
	m->keepalive_busy = false;
	if (f && status == 0 &&
	    meta_rhdr_parse(f->body, f->h.body_len, &rh) == 0) {
		m->alive_ms = m->keepalive_sent_ms;
		meta_note_reply(m, &rh);
		meta_progress(m, &gone);
	} else if (f && status == -ESTALE && !m->closing) {
		meta_fence(m, "metad does not know the session");
	}
	again = m->suspect && !m->fenced && !m->closing;
	core_unlock(c);
	meta_calls_free(gone);
	if (status == -ETIMEDOUT || (f && status == -EREMCHG))
		rpc_peer_next(m->peer);
	if (again)
		rpc_timer_start(c->net, &m->keepalive_timer,
				f ? 0 : META_RETRY_MS);
}

/* The mount's status travels with it, for hailctl status. */
static void keepalive_send(struct meta_client *m)
{
	char *json = core_status_json(m->c);
	struct meta_keepalive k = { .status = { json, 0 } };
	struct wire_out o;

	k.status.len = json ? (uint32_t)strlen(json) : 0;
	size_t size = meta_keepalive_size(&k);
	uint8_t *body = malloc(size);
	if (!body) {
		free(json);
		return; /* the next one may find memory */
	}
	wire_out_init(&o, body, size);
	meta_keepalive_encode(&o, &k);
	free(json);

	core_lock(m->c);
	m->keepalive_busy = true;
	m->suspect = false;
	m->keepalive_body = body;
	m->keepalive_sent_ms = boot_time_ms();
	m->count.keepalives++;
	memset(&m->keepalive, 0, sizeof(m->keepalive));
	m->keepalive.opcode = WIRE_OP_META_KEEPALIVE;
	m->keepalive.timeout_ms = META_KEEPALIVE_TIMEOUT_MS;
	m->keepalive.body = body;
	m->keepalive.body_len = (uint32_t)size;
	m->keepalive.cb = keepalive_replied;
	rpc_queue(m->peer, &m->keepalive);
	core_kick_later(m->c, m->peer);
	core_unlock(m->c);
}

static void keepalive_tick(struct rpc_timer *t)
{
	struct meta_client *m =
		container_of(t, struct meta_client, keepalive_timer);
	core_lock(m->c);
	bool stop = m->fenced || m->closing;
	bool send = !stop && !m->keepalive_busy;
	core_unlock(m->c);
	if (send)
		keepalive_send(m);
	if (!stop)
		rpc_timer_start(m->c->net, t, m->keepalive_ms);
}

void meta_suspect(struct core *c)
{
	struct meta_client *m = c->meta;
	core_lock(c);
	bool start = m->session && !m->fenced && !m->closing && !m->suspect;
	bool busy = m->keepalive_busy;
	if (start)
		m->suspect = true;
	core_unlock(c);
	if (start && !busy)
		rpc_timer_start(c->net, &m->keepalive_timer, 0);
}

static void soft_tick(struct rpc_timer *t)
{
	struct meta_client *m = container_of(t, struct meta_client, tick_timer);
	core_lock(m->c);
	meta_expire(m, core_now_ms());
	cut_expire(m->c, core_now_ms());
	core_unlock(m->c);
	rpc_timer_start(m->c->net, t, META_TICK_MS);
}

/* ---- the map ---- */

static int map_take(struct meta_client *m, const uint8_t *body, uint32_t len)
{
	struct core *c = m->c;
	struct meta_rhdr rh;
	struct wire_in in;
	struct wire_str blob;
	struct cmap *map;
	int err;

	wire_in_init(&in, body, len);
	meta_rhdr_decode(&in, &rh);
	blob = wire_get_blob(&in);
	err = wire_in_known(&in);
	if (!err)
		err = cmap_decode(blob.p, blob.len, &map);
	if (err)
		return err;
	if (map->epoch >= m->map_epoch) {
		rpc_set_epoch(c->net, map->epoch);
		err = blk_client_set_map(c, map);
		if (!err)
			log_devs_move(c);
		core_lock(c);
		if (!err)
			m->map_epoch = map->epoch;
		core_unlock(c);
	}
	cmap_free(map);
	return err;
}

static void map_replied(struct rpc_call *rc, int status,
			const struct rpc_frame *f)
{
	struct meta_client *m = container_of(rc, struct meta_client, map_call);
	int err = status;
	if (f && status == 0)
		err = map_take(m, f->body, f->h.body_len);
	if (err && err != -ECANCELED && !meta_fenced(m->c))
		diag_warn("meta", "event=map_fetch_failed error=\"%s\"",
			  strerror(-err));
	core_lock(m->c);
	m->map_busy = false;
	bool again = m->map_epoch < m->map_wanted && !m->fenced && !m->closing;
	core_unlock(m->c);
	if (again)
		rpc_timer_start(m->c->net, &m->map_timer, META_RETRY_MS);
}

static void map_fetch(struct rpc_timer *t)
{
	struct meta_client *m = container_of(t, struct meta_client, map_timer);
	core_lock(m->c);
	if (!m->map_busy && m->map_epoch < m->map_wanted) {
		m->map_busy = true;
		memset(&m->map_call, 0, sizeof(m->map_call));
		m->map_call.opcode = WIRE_OP_META_MAP_GET;
		m->map_call.flags = RPC_F_RETRY;
		m->map_call.cb = map_replied;
		rpc_queue(m->peer, &m->map_call);
		core_kick_later(m->c, m->peer);
	}
	core_unlock(m->c);
}

void meta_map_wanted(struct core *c, uint64_t epoch)
{
	struct meta_client *m = c->meta;
	core_lock(c);
	bool start = m->started && epoch > m->map_wanted;
	m->map_wanted = u64_max(m->map_wanted, epoch);
	core_unlock(c);
	if (start)
		rpc_timer_start(c->net, &m->map_timer, 0);
}

void meta_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	(void)p;
	meta_map_wanted(arg, epoch);
}

/* ---- opening ---- */

/* One blocking request, tried again while metad cannot be reached. */
static int start_call(struct meta_client *m, uint16_t op, const void *body,
		      uint32_t len, uint64_t deadline_ms,
		      struct rpc_frame **ret)
{
	bool closing = op == WIRE_OP_META_SESSION_CLOSE;

	for (;;) {
		uint64_t now = core_now_ms(), left = 0;
		if (deadline_ms) {
			if (now >= deadline_ms)
				return -ETIMEDOUT;
			left = deadline_ms - now;
		}
		if (closing)
			left = u64_min(left ? left : UINT64_MAX,
				       META_CLOSE_ATTEMPT_MS);
		/* Metad refuses a session that it has closed: our answer was
		 * lost, and no further one can come. */
		core_lock(m->c);
		bool gone = m->gone;
		core_unlock(m->c);
		if (gone)
			return -ESTALE;
		int err = rpc_call_wait(m->peer, op, body, len, left, ret);
		if (err != -ECONNRESET && err != -EAGAIN &&
		    !(closing && err == -ETIMEDOUT))
			return err;
		nanosleep(&(struct timespec){ .tv_nsec = META_RETRY_MS *
							 1000000L },
			  NULL);
	}
}

/* Names the mount point on its machine: another session of the same id is
 * that of a dead process. */
static uint64_t client_id(const struct core_options *o)
{
	XXH64_hash_t h = XXH3_64bits(o->host, strlen(o->host));
	return XXH3_64bits_withSeed(o->mountpoint, strlen(o->mountpoint), h);
}

static int session_open(struct meta_client *m, uint64_t deadline_ms)
{
	const struct core_options *o = &m->c->opt;
	struct meta_session_open req = {
		.client_id = client_id(o),
		.host = { o->host, (uint32_t)strlen(o->host) },
		.mountpoint = { o->mountpoint,
				(uint32_t)strlen(o->mountpoint) },
	};
	struct meta_session_open_reply reply;
	struct meta_rhdr rh;
	struct rpc_frame *f = NULL;
	struct wire_out out;
	struct wire_in in;
	uint64_t sent_ms = boot_time_ms();
	size_t size = meta_session_open_size(&req) + (o->shared ? 4 : 0);
	uint8_t *body = malloc(size);

	if (!body)
		return -ENOMEM;
	wire_out_init(&out, body, size);
	meta_session_open_encode(&out, &req);
	if (o->shared)
		wire_put_u32(&out, META_SESSION_SHARED);
	int err = start_call(m, WIRE_OP_META_SESSION_OPEN, body,
			     (uint32_t)size, deadline_ms, &f);
	free(body);
	if (err)
		return err;
	wire_in_init(&in, f->body, f->h.body_len);
	meta_rhdr_decode(&in, &rh);
	meta_session_open_reply_decode(&in, &reply);
	err = wire_in_known(&in);
	rpc_frame_free(f);
	if (err || reply.session == 0)
		return err ? err : -EBADMSG;

	core_lock(m->c);
	m->session = reply.session;
	m->keepalive_ms = reply.keepalive_ms ? reply.keepalive_ms : 1000;
	m->alive_ms = sent_ms;
	m->resetting = true;
	core_unlock(m->c);
	rpc_set_session(m->c->net, reply.session);
	rpc_set_cluster(m->c->net, reply.cluster_id);
	/* From now on the connection is the session's own. */
	rpc_peer_reset(m->peer);
	return 0;
}

static int map_first(struct meta_client *m, uint64_t deadline_ms)
{
	struct rpc_frame *f = NULL;
	int err = start_call(m, WIRE_OP_META_MAP_GET, NULL, 0, deadline_ms, &f);
	if (err)
		return err;
	err = map_take(m, f->body, f->h.body_len);
	rpc_frame_free(f);
	return err;
}

static void root_got(void *arg, int err, const struct meta_attr *a)
{
	struct meta_root_wait *w = arg;
	(void)a;
	w->cb(w->arg, err);
	free(w);
}

static void root_get(struct core *c, core_cb cb, void *arg)
{
	struct meta_root_wait *w = malloc(sizeof(*w));
	if (!w) {
		cb(arg, -ENOMEM);
		return;
	}
	w->cb = cb;
	w->arg = arg;
	core_getattr(c, ROOT_INO, root_got, w);
}

/* Who waited in vain wants to know what for. */
static int start_error(struct meta_client *m, int err)
{
	core_lock(m->c);
	if (err == -ETIMEDOUT && !m->up && m->down_err)
		err = m->down_err;
	core_unlock(m->c);
	return err;
}

int meta_client_start(struct core *c, uint64_t deadline_ms)
{
	struct meta_client *m = c->meta;
	const struct conf *conf = c->opt.conf;
	int err;

	if (conf->metad_count == 0)
		return -EINVAL;
	err = rpc_peer_new_metad(c->net, conf, &m->ops, c, &m->peer);
	if (err)
		return err;
	err = session_open(m, deadline_ms);
	if (!err)
		err = map_first(m, deadline_ms);
	if (!err)
		err = core_call_wait(c, root_get, deadline_ms);
	if (err)
		return start_error(m, err);
	m->keepalive_timer.fn = keepalive_tick;
	m->map_timer.fn = map_fetch;
	m->tick_timer.fn = soft_tick;
	core_lock(c);
	m->started = true;
	bool fetch = m->map_wanted > m->map_epoch;
	core_unlock(c);
	if (fetch)
		rpc_timer_start(c->net, &m->map_timer, 0);
	rpc_timer_start(c->net, &m->keepalive_timer, 0);
	share_start(c);
	if (c->opt.timeout_ms)
		rpc_timer_start(c->net, &m->tick_timer, META_TICK_MS);
	return 0;
}

/* ---- closing ---- */

struct stop_wait {
	struct core_waiter w;
	struct core_deferred d;
	core_cb cb;
	void *arg;
	int err;
};

static void stop_told(struct core_deferred *d)
{
	struct stop_wait *s = container_of(d, struct stop_wait, d);
	s->cb(s->arg, s->err);
	free(s);
}

static void stop_durable(struct core_waiter *w, int err)
{
	struct stop_wait *s = container_of(w, struct stop_wait, w);
	s->err = err;
	s->d.fn = stop_told;
	core_defer(s->w.c, &s->d);
}

static void stream_wait(struct core *c, core_cb cb, void *arg)
{
	struct stop_wait *s = calloc(1, sizeof(*s));
	if (!s) {
		cb(arg, -ENOMEM);
		return;
	}
	s->w.fn = stop_durable;
	s->w.c = c;
	s->cb = cb;
	s->arg = arg;
	core_lock(c);
	if (meta_durable(c, meta_last_seq(c), &s->w))
		stop_durable(&s->w, 0);
	core_unlock(c);
}

void core_fsync_dir(struct core *c, uint64_t ino, core_cb cb, void *arg)
{
	(void)ino; /* a directory's changes are spread over the stream */
	stream_wait(c, cb, arg);
}

int meta_client_stop(struct core *c, uint64_t deadline_ms)
{
	struct meta_client *m = c->meta;
	struct rpc_frame *f = NULL;
	int err = core_call_wait(c, stream_wait, deadline_ms);

	core_lock(c);
	m->closing = true;
	core_unlock(c);
	if (err == 0 || err == -ENOMEM) {
		err = start_call(m, WIRE_OP_META_SESSION_CLOSE, NULL, 0,
				 deadline_ms, &f);
		rpc_frame_free(f);
		/* A retry whose first reply was lost finds it closed. */
		if (err == -ESTALE)
			err = 0;
	}
	core_lock(c);
	m->closed = true;
	core_unlock(c);
	return err;
}
