#include "blockd/register.h"

#include "common/diag.h"
#include "common/rpc.h"
#include "common/wire_meta.h"

#define REG_TICK_MS 1000u
#define REG_TIMEOUT_MS 2000u
#define REG_BODY_MAX 1024u

/* A call to metad: one of a kind at a time. */
struct reg_call {
	struct rpc_call call;
	struct reg *r;
	/* On the loop, with @status and @frame (NULL: none). */
	void (*done)(struct reg_call *c);
	bool busy;
	bool again; /* wanted once more while busy */
	uint64_t sent_ms; /* of the leases' clock */
	int status;
	struct rpc_frame *frame;
	/* Set on the net's thread, which may do so for the next call while
	 * @done, which sent it, still looks at @frame. */
	struct rpc_frame *arrived;
	int arrived_status;
	uint8_t body[REG_BODY_MAX];
};

struct reg {
	struct reg_options o;
	struct rpc_net *net;
	struct rpc_peer *metad;
	struct ring_timer tick;
	struct reg_call beat; /* REGISTER or HEARTBEAT */
	struct reg_call map;
	bool registered;
	void (*close_cb)(void *arg);
	void *close_arg;
};

/* ---- calls ---- */

static void call_done_on_loop(void *arg)
{
	struct reg_call *c = arg;

	c->frame = c->arrived;
	c->status = c->arrived_status;
	c->arrived = NULL;
	c->busy = false;
	c->done(c);
	rpc_frame_free(c->frame);
	c->frame = NULL;
}

/* On the net's thread. */
static void call_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct reg_call *c = container_of(call, struct reg_call, call);

	c->arrived_status = status;
	c->arrived = f ? rpc_take_frame(f) : NULL;
	if (f && !c->arrived)
		c->arrived_status = -ENOMEM;
	ring_post(c->r->o.ring, call_done_on_loop, c);
}

static void call_send(struct reg_call *c, uint16_t opcode, uint32_t body_len)
{
	assert(!c->busy);
	c->busy = true;
	c->again = false;
	c->call = (struct rpc_call){
		.opcode = opcode,
		.timeout_ms = REG_TIMEOUT_MS,
		.body = c->body,
		.body_len = body_len,
		.cb = call_done,
	};
	/* The lease is counted from here, not from when metad gave it. */
	c->sent_ms = blk_serve_lease_clock_ms();
	rpc_send(c->r->metad, &c->call);
}

/* ---- the map ---- */

static void map_send(struct reg *r)
{
	call_send(&r->map, WIRE_OP_META_MAP_GET, 0);
}

static void map_done(struct reg_call *c)
{
	struct reg *r = c->r;
	struct meta_rhdr rhdr;
	struct meta_blob blob;
	struct cmap *m = NULL;
	struct wire_in in;
	int rv = c->status;

	if (r->close_cb)
		return;
	if (rv == 0) {
		wire_in_init(&in, c->frame->body, c->frame->h.body_len);
		meta_rhdr_decode(&in, &rhdr);
		meta_blob_decode(&in, &blob);
		rv = wire_in_known(&in);
	}
	if (rv == 0)
		rv = cmap_decode(blob.value.p, blob.value.len, &m);
	if (rv == 0 && m->cluster_id != r->o.conf->cluster_id) {
		cmap_free(m);
		rv = -EXDEV;
	}
	if (rv < 0) {
		/* Who waits for it asks again (serve's timer, our tick). */
		diag_warn("register", "what=map-fetch error=%s",
			  strerror(-rv));
		return;
	}
	/* NOLINTNEXTLINE: rv is 0 with a map only */
	rpc_set_epoch(r->net, m->epoch);
	blk_serve_set_map(r->o.serve, m);
	if (c->again)
		map_send(r);
}

void reg_want_map(struct reg *r)
{
	if (r->close_cb)
		return;
	if (r->map.busy)
		r->map.again = true;
	else
		map_send(r);
}

/* ---- registration and heartbeats ---- */

static uint32_t encode_register(struct reg *r)
{
	struct meta_register m = {
		.daemon_id = r->o.daemon_id,
		.boot_id = r->o.boot_id,
		.addr = { r->o.addr, (uint32_t)strlen(r->o.addr) },
		.port = r->o.port,
	};
	struct store_stat st;
	struct wire_out o;

	store_stat(r->o.store, &st);
	m.store_id_hi = st.store_id_hi;
	m.store_id_lo = st.store_id_lo;
	m.units_total = st.units_total;
	m.units_free = st.units_free;
	m.commit = st.commit;
	m.ino_max = st.ino_max;
	m.session_max = st.session_max;
	wire_out_init(&o, r->beat.body, sizeof(r->beat.body));
	meta_register_encode(&o, &m);
	assert(!o.overflow);
	return (uint32_t)o.len;
}

static uint32_t encode_heartbeat(struct reg *r)
{
	struct meta_heartbeat m = { .daemon_id = r->o.daemon_id,
				    .boot_id = r->o.boot_id };
	struct store_stat st;
	struct wire_out o;

	store_stat(r->o.store, &st);
	m.units_total = st.units_total;
	m.units_free = st.units_free;
	m.commit = st.commit;
	m.state = st.error ? BLK_STATE_READ_ONLY : BLK_STATE_OK;
	if (st.error && st.error_text)
		m.error = (struct wire_str){
			st.error_text,
			(uint32_t)u64_min(strlen(st.error_text),
					  REG_BODY_MAX / 2) };
	wire_out_init(&o, r->beat.body, sizeof(r->beat.body));
	meta_heartbeat_encode(&o, &m);
	assert(!o.overflow);
	return (uint32_t)o.len;
}

static void beat_send(struct reg *r)
{
	if (r->beat.busy) {
		r->beat.again = true;
		return;
	}
	if (r->registered)
		call_send(&r->beat, WIRE_OP_META_HEARTBEAT,
			  encode_heartbeat(r));
	else
		call_send(&r->beat, WIRE_OP_META_REGISTER, encode_register(r));
}

static const char *refused_hint(int status)
{
	switch (-status) {
	case ESTALE:
	case EEXIST:
		return "the store is older than the one known, or another one: "
		       "start the right one, or, if that is gone for good, "
		       "accept the loss with hailctl blockd give-up";
	case ENOTEMPTY:
		return "the store has blocks, and hail-metad never saw it: "
		       "start hail-metad with the data directory it had, or "
		       "restore a backup";
	default:
		return "see the log of hail-metad";
	}
}

static void beat_refused(struct reg *r, const struct reg_call *c)
{
	bool heartbeat = c->call.opcode == WIRE_OP_META_HEARTBEAT;

	/* Without an answer: metad is away; the lease says how long we may go
	 * on. With one: a metad that does not know us (it restarted) wants a
	 * registration; one that refuses that says why. */
	if (c->status == -ETIMEDOUT || c->status == -EREMCHG)
		rpc_peer_next(r->metad);
	if (!c->frame || c->status == -EREMCHG)
		return;
	r->registered = false;
	if (heartbeat) {
		beat_send(r);
		return;
	}
	blk_serve_set_state(r->o.serve, "refused");
	diag_err("register", "what=refused error=%s hint=\"%s\"",
		 strerror(-c->status), refused_hint(c->status));
}

static void beat_done(struct reg_call *c)
{
	struct reg *r = c->r;
	struct meta_rhdr rhdr;
	struct meta_lease_reply m;
	struct wire_in in;

	if (r->close_cb)
		return;
	if (c->status < 0) {
		beat_refused(r, c);
		return;
	}
	wire_in_init(&in, c->frame->body, c->frame->h.body_len);
	meta_rhdr_decode(&in, &rhdr);
	meta_lease_reply_decode(&in, &m);
	if (wire_in_known(&in) < 0 || m.cluster_id != r->o.conf->cluster_id) {
		diag_err("register", "what=bad-lease-reply cluster=%#llx",
			 (unsigned long long)m.cluster_id);
		return;
	}
	if (!r->registered) {
		diag_info("register", "what=registered daemon=%u epoch=%llu "
			  "lease_ms=%u", r->o.daemon_id,
			  (unsigned long long)m.epoch, m.lease_ms);
		r->registered = true;
		blk_serve_set_state(r->o.serve, "ok");
	}
	blk_serve_set_lease(r->o.serve, c->sent_ms + m.lease_ms);
	if (m.epoch > blk_serve_epoch(r->o.serve))
		reg_want_map(r);
	if (c->again)
		beat_send(r);
}

static void tick(struct ring_timer *t)
{
	struct reg *r = container_of(t, struct reg, tick);

	ring_timer_start(r->o.ring, t, REG_TICK_MS);
	if (!rpc_peer_is_up(r->metad))
		return;
	if (!r->beat.busy)
		beat_send(r);
	if (blk_serve_epoch(r->o.serve) == 0 && !r->map.busy)
		map_send(r);
}

static void up_on_loop(void *arg)
{
	struct reg *r = arg;

	if (r->close_cb)
		return;
	/* It may be another metad, or the same with its memory lost. */
	r->registered = false;
	beat_send(r);
}

static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct reg *r = arg;

	(void)p;
	(void)hr;
	ring_post(r->o.ring, up_on_loop, r);
}

static void epoch_on_loop(void *arg)
{
	reg_want_map(arg);
}

static void on_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	struct reg *r = arg;

	(void)p;
	(void)epoch;
	ring_post(r->o.ring, epoch_on_loop, r);
}

/* ---- life ---- */

int reg_new(const struct reg_options *o, struct reg **ret)
{
	static const struct rpc_peer_ops ops = { .up = on_up,
						 .epoch = on_epoch };
	struct rpc_identity id = {
		.role = WIRE_ROLE_BLOCKD,
		.peer_id = o->daemon_id,
		.cluster_id = o->conf->cluster_id,
		.name = "hail-blockd",
		.gate = o->conf->gate,
	};
	struct reg *r;
	int rv;

	if (o->conf->metad_count == 0)
		return -ENODEV;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->o = *o;
	r->tick.fn = tick;
	r->beat.r = r->map.r = r;
	r->beat.done = beat_done;
	r->map.done = map_done;
	rv = rpc_net_new(&id, &r->net);
	if (rv < 0)
		goto out_free;
	rv = rpc_peer_new_metad(r->net, o->conf, &ops, r, &r->metad);
	if (rv < 0)
		goto out_net;
	ring_timer_start(o->ring, &r->tick, REG_TICK_MS);
	*ret = r;
	return 0;
out_net:
	rpc_net_free(r->net);
out_free:
	free(r);
	return rv;
}

static void closed_on_loop(void *arg)
{
	struct reg *r = arg;
	void (*cb)(void *arg2) = r->close_cb;
	void *cb_arg = r->close_arg;

	assert(!r->beat.busy && !r->map.busy);
	free(r);
	cb(cb_arg);
}

void reg_close(struct reg *r, void (*cb)(void *arg), void *arg)
{
	assert(!r->close_cb);
	r->close_cb = cb;
	r->close_arg = arg;
	ring_timer_stop(r->o.ring, &r->tick);
	/* Ends the thread; what its callbacks post comes before our post. */
	rpc_net_free(r->net);
	ring_post_last(r->o.ring, closed_on_loop, r);
}
