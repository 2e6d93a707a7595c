#include "logd/register.h"

#include "common/diag.h"
#include "common/rpc.h"
#include "common/wire_meta.h"
#include "logd/verbs.h"

#define REG_TICK_MS 1000u
#define REG_TIMEOUT_MS 2000u
/* Logs asked about in one heartbeat, and how long they were silent. */
#define REG_ASK_MAX 1024u
#define REG_ASK_IDLE_MS 10000u
/* While memory is wanted back: nobody is about to use it. */
#define REG_ASK_DRAINING_MS 1000u
#define REG_BODY_MAX (1024u + REG_ASK_MAX * sizeof(struct log_name))

/* A call to metad: one of a kind at a time. */
struct lreg_call {
	struct rpc_call call;
	struct loop_post post;
	struct lreg *r;
	/* On the loop, with @status and @frame (NULL: none). */
	void (*done)(struct lreg_call *c);
	bool busy;
	bool again; /* wanted once more while busy */
	uint64_t sent_ms; /* of the leases' clock */
	int status;
	struct rpc_frame *frame;
	uint8_t body[REG_BODY_MAX];
};

struct lreg {
	struct lreg_options o;
	struct rpc_net *net;
	struct rpc_peer *metad;
	struct loop_timer tick;
	struct loop_post up, epoch;
	struct lreg_call beat; /* REGISTER or HEARTBEAT */
	struct lreg_call map;
	struct log_name asked[REG_ASK_MAX];
	bool rdma_told; /* that there is RDMA */
	bool registered;
	bool said; /* why it is refused */
};

/* ---- calls ---- */

static void call_done_on_loop(void *arg)
{
	struct lreg_call *c = arg;
	struct rpc_frame *f = c->frame;

	/* @done may send it again. */
	c->busy = false;
	c->done(c);
	rpc_frame_free(f);
}

/* On the net's thread; the call is not sent again before the loop saw it. */
static void call_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct lreg_call *c = container_of(call, struct lreg_call, call);

	c->status = status;
	c->frame = f ? rpc_take_frame(f) : NULL;
	loop_post(c->r->o.loop, &c->post);
}

static void call_send(struct lreg_call *c, uint16_t opcode, size_t body_len)
{
	assert(!c->busy);
	c->busy = true;
	c->again = false;
	c->call = (struct rpc_call){
		.opcode = opcode,
		.timeout_ms = REG_TIMEOUT_MS,
		.body = c->body,
		.body_len = (uint32_t)body_len,
		.cb = call_done,
	};
	/* The lease is counted from here, not from when metad gave it. */
	c->sent_ms = lserve_lease_clock_ms();
	rpc_send(c->r->metad, &c->call);
}

/* ---- the map ---- */

static int map_parse(const struct lreg_call *c, struct cmap **ret)
{
	struct meta_rhdr rhdr;
	struct meta_blob blob;
	struct wire_in in;
	int rv;

	if (c->status < 0)
		return c->status;
	wire_in_init(&in, c->frame->body, c->frame->h.body_len);
	meta_rhdr_decode(&in, &rhdr);
	meta_blob_decode(&in, &blob);
	rv = wire_in_known(&in);
	if (rv == 0)
		rv = cmap_decode(blob.value.p, blob.value.len, ret);
	if (rv == 0 && (*ret)->cluster_id != c->r->o.conf->cluster_id) {
		cmap_free(*ret);
		rv = -EXDEV;
	}
	return rv;
}

static void map_done(struct lreg_call *c)
{
	struct lreg *r = c->r;
	struct cmap *m = NULL;
	int rv = map_parse(c, &m);

	if (rv < 0) {
		/* Who waits for it asks again (serve's timer, our tick). */
		diag_warn("register", "what=map-fetch error=\"%s\"",
			  strerror(-rv));
		return;
	}
	rpc_set_epoch(r->net, m->epoch);
	lserve_set_map(r->o.serve, m);
	if (c->again && !c->busy)
		call_send(c, WIRE_OP_META_MAP_GET, 0);
}

void lreg_want_map(struct lreg *r)
{
	if (r->map.busy)
		r->map.again = true;
	else
		call_send(&r->map, WIRE_OP_META_MAP_GET, 0);
}

/* ---- registration and heartbeats ---- */

static struct wire_str str_of(const char *s)
{
	return (struct wire_str){ s, (uint32_t)strlen(s) };
}

static bool rdma_there(const struct lreg *r)
{
	return r->o.verbs && lverbs_there(r->o.verbs);
}

static size_t encode_register(struct lreg *r)
{
	struct meta_log_register m = {
		.daemon_id = r->o.daemon_id,
		.boot_id = r->o.boot_id,
		.addr = str_of(r->o.addr),
		.port = r->o.port,
		.rdma_addr = str_of(r->o.rdma_addr),
		.rdma_port = rdma_there(r) ? r->o.rdma_port : 0,
		.domain = str_of(r->o.domain),
		.total_bytes = lend_total_bytes(r->o.lend),
		.free_bytes = lend_free_bytes(r->o.lend),
		.log_epoch = lend_epoch_max(r->o.lend),
	};
	struct wire_out o;

	r->rdma_told = m.rdma_port != 0;
	wire_out_init(&o, r->beat.body, sizeof(r->beat.body));
	meta_log_register_encode(&o, &m);
	assert(!o.overflow);
	return o.len;
}

static size_t encode_heartbeat(struct lreg *r)
{
	uint8_t names[REG_ASK_MAX * sizeof(struct log_name)];
	struct meta_log_heartbeat m = {
		.daemon_id = r->o.daemon_id,
		.boot_id = r->o.boot_id,
		.total_bytes = lend_total_bytes(r->o.lend),
		.free_bytes = lend_free_bytes(r->o.lend),
		.draining = lend_draining(r->o.lend),
	};
	struct wire_out o;
	uint64_t idle_ms = m.draining ? REG_ASK_DRAINING_MS : REG_ASK_IDLE_MS;
	uint32_t count;

	lend_set_now(r->o.lend, loop_now_ms(r->o.loop));
	count = lend_ask(r->o.lend, idle_ms, r->asked, REG_ASK_MAX);
	wire_out_init(&o, names, sizeof(names));
	for (uint32_t i = 0; i < count; i++)
		log_name_encode(&o, &r->asked[i]);
	m.logs = (struct wire_str){ names, (uint32_t)o.len };
	wire_out_init(&o, r->beat.body, sizeof(r->beat.body));
	meta_log_heartbeat_encode(&o, &m);
	assert(!o.overflow);
	return o.len;
}

static void beat_send(struct lreg *r)
{
	if (r->beat.busy)
		r->beat.again = true;
	else if (r->registered)
		call_send(&r->beat, WIRE_OP_META_LOG_HEARTBEAT,
			  encode_heartbeat(r));
	else
		call_send(&r->beat, WIRE_OP_META_LOG_REGISTER,
			  encode_register(r));
}

void lreg_tell(struct lreg *r)
{
	beat_send(r);
}

static void beat_refused(struct lreg *r, const struct lreg_call *c)
{
	bool heartbeat = c->call.opcode == WIRE_OP_META_LOG_HEARTBEAT;

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
	lserve_set_state(r->o.serve, "refused");
	if (!r->said)
		diag_err("register", "what=refused error=\"%s\" hint=\"see "
			 "the log of hail-metad\"", strerror(-c->status));
	r->said = true;
}

/* What metad says of the logs it was asked about, @epoch: of its map. */
static int judge(struct lreg *r, struct wire_in *in, uint64_t epoch)
{
	struct meta_log_heartbeat_reply m;
	struct wire_in gone;

	meta_log_heartbeat_reply_decode(in, &m);
	if (wire_in_known(in) < 0)
		return -EBADMSG;
	/* With what it says a fence may go: who was fenced has to be known as
	 * dead by then. It is asked again. */
	if (epoch > lserve_epoch(r->o.serve))
		return 0;
	wire_in_init(&gone, m.gone.p, m.gone.len);
	for (uint32_t i = 0; i < m.count && !gone.bad; i++) {
		struct meta_log_gone g;

		meta_log_gone_decode(&gone, &g);
		if (gone.bad)
			break;
		diag_info("register", "what=collect ino=%llu epoch=%llu "
			  "verdict=%u", (unsigned long long)g.ino,
			  (unsigned long long)g.epoch, g.verdict);
		lend_judge(r->o.lend, g.ino, g.epoch,
			   (enum meta_log_verdict)g.verdict);
	}
	return wire_in_end(&gone);
}

static int beat_parse(struct lreg *r, const struct lreg_call *c,
		      struct meta_lease_reply *m)
{
	struct meta_rhdr rhdr;
	struct wire_in in;

	wire_in_init(&in, c->frame->body, c->frame->h.body_len);
	meta_rhdr_decode(&in, &rhdr);
	meta_lease_reply_decode(&in, m);
	if (in.bad || m->cluster_id != r->o.conf->cluster_id)
		return -EBADMSG;
	if (c->call.opcode == WIRE_OP_META_LOG_HEARTBEAT)
		return judge(r, &in, m->epoch);
	return wire_in_known(&in);
}

static void beat_done(struct lreg_call *c)
{
	struct lreg *r = c->r;
	struct meta_lease_reply m;

	if (c->status < 0) {
		beat_refused(r, c);
		return;
	}
	if (beat_parse(r, c, &m) < 0) {
		diag_err("register", "what=bad-lease-reply op=%u",
			 c->call.opcode);
		return;
	}
	if (!r->registered) {
		diag_info("register", "what=registered daemon=%u epoch=%llu "
			  "lease_ms=%u", r->o.daemon_id,
			  (unsigned long long)m.epoch, m.lease_ms);
		r->registered = true;
		r->said = false;
		lserve_set_state(r->o.serve, "ok");
	}
	lserve_set_lease(r->o.serve, c->sent_ms + m.lease_ms);
	if (m.epoch > lserve_epoch(r->o.serve))
		lreg_want_map(r);
	if (c->again && !c->busy)
		beat_send(r);
}

static void on_tick(struct loop_timer *t)
{
	struct lreg *r = container_of(t, struct lreg, tick);

	loop_timer_start(r->o.loop, t, REG_TICK_MS);
	if (!rpc_peer_is_up(r->metad))
		return;
	/* The device is gone: nobody shall try it. */
	if (r->rdma_told && !rdma_there(r))
		r->registered = false;
	if (!r->beat.busy)
		beat_send(r);
	if (lserve_epoch(r->o.serve) == 0 && !r->map.busy)
		lreg_want_map(r);
}

static void up_on_loop(void *arg)
{
	struct lreg *r = arg;

	/* It may be another metad, or the same with its memory lost. */
	r->registered = false;
	beat_send(r);
}

static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	struct lreg *r = arg;

	(void)p;
	(void)hr;
	loop_post(r->o.loop, &r->up);
}

static void epoch_on_loop(void *arg)
{
	lreg_want_map(arg);
}

static void on_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	struct lreg *r = arg;

	(void)p;
	(void)epoch;
	loop_post(r->o.loop, &r->epoch);
}

/* ---- life ---- */

static void call_init(struct lreg *r, struct lreg_call *c,
		      void (*done)(struct lreg_call *c))
{
	c->r = r;
	c->done = done;
	c->post.fn = call_done_on_loop;
	c->post.arg = c;
}

int lreg_new(const struct lreg_options *o, struct lreg **ret)
{
	static const struct rpc_peer_ops ops = { .up = on_up,
						 .epoch = on_epoch };
	struct rpc_identity id = {
		.role = WIRE_ROLE_LOGD,
		.peer_id = o->daemon_id,
		.cluster_id = o->conf->cluster_id,
		.name = "hail-logd",
		.gate = o->conf->gate,
	};
	struct lreg *r;
	int rv;

	if (o->conf->metad_count == 0)
		return -ENODEV;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->o = *o;
	r->tick.fn = on_tick;
	r->up.fn = up_on_loop;
	r->epoch.fn = epoch_on_loop;
	r->up.arg = r->epoch.arg = r;
	call_init(r, &r->beat, beat_done);
	call_init(r, &r->map, map_done);
	rv = rpc_net_new(&id, &r->net);
	if (rv < 0)
		goto out_free;
	rv = rpc_peer_new_metad(r->net, o->conf, &ops, r, &r->metad);
	if (rv < 0)
		goto out_net;
	loop_timer_start(o->loop, &r->tick, REG_TICK_MS);
	*ret = r;
	return 0;
out_net:
	rpc_net_free(r->net);
out_free:
	free(r);
	return rv;
}

void lreg_free(struct lreg *r)
{
	if (!r)
		return;
	loop_timer_stop(r->o.loop, &r->tick);
	/* Ends the thread. What its callbacks posted goes with the loop, which
	 * does not turn any more. */
	rpc_net_free(r->net);
	rpc_frame_free(r->beat.busy ? r->beat.frame : NULL);
	rpc_frame_free(r->map.busy ? r->map.frame : NULL);
	free(r);
}
