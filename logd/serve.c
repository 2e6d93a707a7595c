#include "logd/serve_priv.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/diag.h"
#include "common/status.h"
#include "logd/verbs.h"

#define BODY_MAX 128u /* of most answers */

/* ---- answers ---- */

static enum serve_class class_of(uint16_t op)
{
	switch (op) {
	case WIRE_OP_LOG_WRITE:
		return CLASS_WRITE;
	case WIRE_OP_LOG_ALLOC:
		return CLASS_ALLOC;
	case WIRE_OP_LOG_FENCE:
		return CLASS_FENCE;
	case WIRE_OP_LOG_READ:
		return CLASS_READ;
	default:
		return CLASS_OTHER;
	}
}

static void account(struct lreq *q, int err)
{
	struct lserve *s = q->s;
	enum serve_class class = class_of(q->f->h.opcode);

	if (err)
		stats_count(&s->n.errors[class], 1);
	if (s->n.latency[class])
		stats_hist_add(s->n.latency[class],
			       clock_now_ns(CLOCK_MONOTONIC) - q->start_ns);
}

void lserve_reply(struct lreq *q, int err, const void *body, size_t len,
		  const void *data, size_t data_len)
{
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = q->f->h.opcode,
		.flags = WIRE_F_REPLY,
		.status = status_to_wire(err),
		.request_id = q->f->h.request_id,
		.cluster_id = q->s->o.cluster_id,
		.epoch = lserve_epoch(q->s),
		.session = q->f->h.session,
		.body_len = (uint32_t)len,
		.data_len = (uint32_t)data_len,
		.body_crc = crc32c(0, body, len),
	};
	uint8_t *rest, *p = lconn_frame(q->c, len + data_len, &rest);

	account(q, err);
	if (!p)
		return;
	wire_header_encode(&h, p);
	if (len > 0)
		memcpy(rest, body, len);
	if (data_len > 0)
		memcpy(rest + len, data, data_len);
	lconn_frame_end(q->c, p, len + data_len);
}

static void put_reply(struct lreq *q, struct wire_out *o, uint32_t flags)
{
	struct log_reply m = { .boot_id = q->s->o.boot_id,
			       .free_bytes = lend_free_bytes(q->s->o.lend),
			       .flags = flags };

	log_reply_encode(o, &m);
}

void lserve_reply_plain(struct lreq *q, int err, uint32_t flags)
{
	uint8_t body[BODY_MAX];
	struct wire_out o;

	wire_out_init(&o, body, sizeof(body));
	put_reply(q, &o, flags);
	lserve_reply(q, err, body, o.len, NULL, 0);
}

/* ---- requests ---- */

static uint32_t wanted_flag(struct lreq *q)
{
	return lend_draining(q->s->o.lend) ? LOG_REPLY_WANTED : 0;
}

static void on_alloc(struct lreq *q)
{
	const struct log_alloc *m = &q->m.u.alloc;
	const struct lend_region *r;
	struct log_alloc_reply reply;
	uint8_t body[BODY_MAX];
	struct wire_out o;
	int rv;

	/* A log that is known goes on without metad. A new one does not begin:
	 * who asks has others to ask. */
	if (!lserve_lease_ok(q->s) &&
	    !lend_find(q->s->o.lend, m->ino, m->data_epoch)) {
		stats_count(&q->s->n.no_lease, 1);
		lserve_reply_plain(q, -EAGAIN, 0);
		return;
	}
	rv = lend_alloc(q->s->o.lend, q->f->h.session, m, &r);
	if (rv < 0) {
		lserve_reply_plain(q, rv, wanted_flag(q));
		return;
	}
	reply = (struct log_alloc_reply){ .addr = r->addr, .rkey = r->rkey };
	wire_out_init(&o, body, sizeof(body));
	put_reply(q, &o, wanted_flag(q));
	log_alloc_reply_encode(&o, &reply);
	lserve_reply(q, 0, body, o.len, NULL, 0);
}

static void on_write(struct lreq *q)
{
	int rv = lend_write(q->s->o.lend, q->f->h.session, &q->m.u.write,
			    q->f->data, q->f->h.data_len);

	lserve_reply_plain(q, rv, wanted_flag(q));
}

static void put_regions(struct wire_out *o, const struct lend_log *g,
			uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct lend_region *r = lend_region_at(g, i);
		struct log_region m = {
			.index = r->index,
			.log2 = r->log2,
			.slots = { r->base, LOG_SLOT_COUNT * LOG_SLOT_SIZE },
		};

		log_region_encode(o, &m);
	}
}

static size_t regions_size(uint32_t count)
{
	struct log_region m = { .slots.len = LOG_SLOT_COUNT * LOG_SLOT_SIZE };

	return count * log_region_size(&m);
}

static uint8_t held(const struct lend_log *g)
{
	if (!g)
		return LOG_HELD_NONE;
	if (g->given_up)
		return LOG_HELD_GIVEN_UP;
	if (g->region_count == 0)
		return LOG_HELD_NONE;
	return lend_is_torn(g) ? LOG_HELD_TORN : LOG_HELD;
}

static void fence_reply(struct lreq *q, const struct lend_log *g)
{
	uint32_t count = g ? g->region_count : 0;
	size_t size = regions_size(count), cap = size + BODY_MAX;
	struct log_fence_reply m = {
		.held = held(g),
		.count = count,
		.regions.len = (uint32_t)size,
	};
	uint8_t *body = malloc(cap);
	struct wire_out o, regions;

	if (!body) {
		lserve_reply_plain(q, -ENOMEM, 0);
		return;
	}
	/* The list is made where it goes: behind what was encoded. */
	wire_out_init(&regions, body + cap - size, size);
	put_regions(&regions, g, count);
	m.regions.p = body + cap - size;
	wire_out_init(&o, body, cap - size);
	put_reply(q, &o, wanted_flag(q));
	wire_put_u8(&o, m.held);
	wire_put_u32(&o, m.count);
	wire_put_u32(&o, m.regions.len);
	memmove(body + o.len, m.regions.p, size);
	lserve_reply(q, 0, body, o.len + size, NULL, 0);
	free(body);
}

static void on_fence(struct lreq *q)
{
	const struct lend_log *g;
	int rv;

	rv = lend_fence(q->s->o.lend, &q->m.u.fence, &g);
	if (rv < 0)
		lserve_reply_plain(q, rv, 0);
	else
		fence_reply(q, g);
}

static void on_connect(struct lreq *q)
{
	const struct log_connect *m = &q->m.u.connect;
	struct lverbs *v = q->s->o.verbs;
	struct log_connect_reply reply;
	uint8_t body[BODY_MAX];
	struct lend_log *g;
	struct wire_out o;
	int rv = -EOPNOTSUPP;

	if (v)
		rv = lend_writer_log(q->s->o.lend, q->f->h.session, m->ino,
				     m->epoch, &g);
	if (rv == 0)
		rv = lverbs_token(v, g, &reply.token);
	if (rv < 0) {
		lserve_reply_plain(q, rv, wanted_flag(q));
		return;
	}
	wire_out_init(&o, body, sizeof(body));
	put_reply(q, &o, wanted_flag(q));
	log_connect_reply_encode(&o, &reply);
	lserve_reply(q, 0, body, o.len, NULL, 0);
}

static void on_read(struct lreq *q)
{
	const struct log_read *m = &q->m.u.read;
	const uint8_t *data = NULL;
	uint8_t body[BODY_MAX];
	struct wire_out o;
	int rv = lend_read(q->s->o.lend, m, &data);

	wire_out_init(&o, body, sizeof(body));
	put_reply(q, &o, wanted_flag(q));
	lserve_reply(q, rv, body, o.len, data, rv == 0 ? m->len : 0);
}

/* What is wanted back of one session. */
struct wanted {
	struct lend *lend;
	uint64_t session;
	struct wire_out *o; /* NULL: count */
	uint32_t count;
};

static void wanted_one(void *arg, struct lend_log *g)
{
	struct wanted *w = arg;
	struct log_name m = { g->ino, g->epoch };

	if (g->session != w->session || !lend_is_wanted(w->lend, g))
		return;
	w->count++;
	if (w->o)
		log_name_encode(w->o, &m);
}

static void on_log_ping(struct lreq *q)
{
	struct lend *l = q->s->o.lend;
	struct wanted w = { .lend = l, .session = q->f->h.session };
	uint64_t until_ms = lend_wanted_ms(l), now_ms = loop_now_ms(
							q->s->o.loop);
	struct log_ping_reply m = { .total_bytes = lend_total_bytes(l) };
	struct wire_out o, names;
	uint8_t *body;
	size_t cap;

	lserve_told(q->s, lconn_user(q->c));
	if (lend_stats(l)->given_up > 0 || lend_draining(l))
		lend_each(l, wanted_one, &w);
	if (until_ms > now_ms)
		m.deadline_ms = (uint32_t)u64_min(until_ms - now_ms,
						  UINT32_MAX);
	m.count = w.count;
	cap = BODY_MAX + w.count * sizeof(struct log_name);
	body = malloc(cap);
	if (!body) {
		lserve_reply_plain(q, -ENOMEM, 0);
		return;
	}
	wire_out_init(&names, body + BODY_MAX, cap - BODY_MAX);
	w.o = &names;
	if (w.count > 0)
		lend_each(l, wanted_one, &w);
	m.wanted = (struct wire_str){ body + BODY_MAX, (uint32_t)names.len };
	wire_out_init(&o, body, BODY_MAX);
	put_reply(q, &o, m.count > 0 ? LOG_REPLY_WANTED : 0);
	wire_put_u64(&o, m.total_bytes);
	wire_put_u32(&o, m.deadline_ms);
	wire_put_u32(&o, m.count);
	wire_put_u32(&o, m.wanted.len);
	memmove(body + o.len, m.wanted.p, m.wanted.len);
	lserve_reply(q, 0, body, o.len + m.wanted.len, NULL, 0);
	free(body);
}

static void reply_text(struct lreq *q, char *text)
{
	struct admin_text m;
	size_t cap;
	uint8_t *body;
	struct wire_out o;

	if (!text) {
		lserve_reply_plain(q, -ENOMEM, 0);
		return;
	}
	m.json = (struct wire_str){ text, (uint32_t)strlen(text) };
	cap = admin_text_size(&m);
	body = malloc(cap);
	if (body) {
		wire_out_init(&o, body, cap);
		admin_text_encode(&o, &m);
		lserve_reply(q, 0, body, o.len, NULL, 0);
	} else {
		lserve_reply_plain(q, -ENOMEM, 0);
	}
	free(body);
	free(text);
}

static void on_drain(struct lreq *q)
{
	const struct admin_drain *m = &q->m.u.drain;
	struct lserve *s = q->s;

	diag_info("serve", "what=drain on=%u deadline_ms=%u lent_bytes=%llu",
		  m->on, m->deadline_ms,
		  (unsigned long long)lend_stats(s->o.lend)->lent_bytes);
	if (m->on)
		lend_drain(s->o.lend,
			   loop_now_ms(s->o.loop) + m->deadline_ms);
	else
		lend_drain_end(s->o.lend);
	s->o.drained(s->o.arg);
	lserve_reply(q, 0, NULL, 0, NULL, 0);
}

static void dispatch(struct lreq *q)
{
	struct lserve *s = q->s;

	switch (q->m.op) {
	case WIRE_OP_LOG_WRITE:
		on_write(q);
		break;
	case WIRE_OP_LOG_ALLOC:
		on_alloc(q);
		break;
	case WIRE_OP_LOG_FENCE:
		on_fence(q);
		break;
	case WIRE_OP_LOG_READ:
		on_read(q);
		break;
	case WIRE_OP_LOG_FREE:
		lserve_reply_plain(q, lend_release(s->o.lend, &q->m.u.free),
				   wanted_flag(q));
		break;
	case WIRE_OP_LOG_PING:
		on_log_ping(q);
		break;
	case WIRE_OP_PING:
		lserve_reply_plain(q, 0, 0);
		break;
	case WIRE_OP_ADMIN_STATUS:
		reply_text(q, lserve_status_json(s));
		break;
	case WIRE_OP_ADMIN_STATS:
		reply_text(q, s->stats ? stats_json(s->stats) : NULL);
		break;
	case WIRE_OP_ADMIN_DRAIN:
		on_drain(q);
		break;
	case WIRE_OP_ADMIN_STOP:
		lserve_reply(q, 0, NULL, 0, NULL, 0);
		s->o.stop(s->o.arg);
		break;
	default:
		on_connect(q);
		break;
	}
}

/* lend_validate() said no. */
static bool refuse(struct lreq *q, int err)
{
	struct lserve *s = q->s;

	if (err == -EPROTONOSUPPORT)
		return lserve_hello_other_version(q);
	if (err == -EBADMSG) {
		stats_count(&s->n.corrupt, 1);
		diag_warn("serve", "what=bad-request peer=%s op=%u "
			  "action=close", lconn_name(q->c), q->f->h.opcode);
		lconn_close(q->c);
		return true;
	}
	stats_count(&s->n.invalid, 1);
	if (err == -EXDEV)
		diag_warn("serve", "what=other-cluster peer=%s theirs=%#llx "
			  "ours=%#llx action=refuse", lconn_name(q->c),
			  (unsigned long long)q->f->h.cluster_id,
			  (unsigned long long)s->o.cluster_id);
	lserve_reply_plain(q, err, 0);
	/* A refused HELLO was the connection's only chance. */
	if (err == -EXDEV || q->f->h.opcode == WIRE_OP_HELLO)
		lconn_close_after_send(q->c);
	return true;
}

static bool on_frame(struct lconn *c, struct frame *f)
{
	struct lserve *s = lconn_arg(c);
	struct lserve_conn *sc = lconn_user(c);
	struct lreq q = { .s = s, .c = c, .f = f };
	int rv;

	if (!sc) {
		sc = calloc(1, sizeof(*sc));
		if (!sc) {
			lconn_close(c);
			return true;
		}
		sc->who.cluster_id = s->o.cluster_id;
		lconn_set_user(c, sc);
	}
	q.start_ns = loop_now_ns(s->o.loop);
	rv = lend_validate(&sc->who, &f->h, f->body, &q.m);
	if (rv < 0)
		return refuse(&q, rv);
	if (q.m.op == WIRE_OP_HELLO)
		return lserve_hello(&q);
	/* What protects a log is its epoch, not the map's. */
	if (f->h.epoch > lserve_epoch(s))
		s->o.want_map(s->o.arg);
	lend_set_now(s->o.lend, loop_now_ms(s->o.loop));
	s->asker = c;
	dispatch(&q);
	s->asker = NULL;
	return true;
}

static void on_closed(struct lconn *c)
{
	struct lserve_conn *sc = lconn_user(c);

	if (!sc)
		return;
	lconn_set_user(c, NULL);
	lserve_conn_gone(lconn_arg(c), sc);
	free(sc);
}

/* ---- waiting ---- */

bool lserve_wait(struct lserve *s, struct lconn *c, bool for_map)
{
	struct lserve_conn *sc = lconn_user(c);
	uint64_t now_ms = loop_now_ms(s->o.loop);

	if (sc->wait_since_ms == 0) {
		sc->wait_since_ms = now_ms;
		stats_count(for_map ? &s->n.waits_map : &s->n.waits_lease, 1);
	} else if (now_ms - sc->wait_since_ms > SERVE_WAIT_MS) {
		stats_count(&s->n.wait_timeouts, 1);
		diag_warn("serve", "what=wait-timeout peer=%s lease=%d "
			  "epoch=%llu action=close", lconn_name(c),
			  lserve_lease_ok(s),
			  (unsigned long long)lserve_epoch(s));
		lconn_close(c);
		return false;
	}
	if (for_map)
		s->o.want_map(s->o.arg);
	if (!s->wait_timer.priv_armed)
		loop_timer_start(s->o.loop, &s->wait_timer,
				 SERVE_MAP_AGAIN_MS);
	return false;
}

static void on_wait(struct loop_timer *t)
{
	lconn_set_resume(container_of(t, struct lserve, wait_timer)->conns);
}

/* ---- the map and the lease ---- */

uint64_t lserve_lease_clock_ms(void)
{
	return clock_now_ms(CLOCK_BOOTTIME);
}

bool lserve_lease_ok(const struct lserve *s)
{
	return lserve_lease_clock_ms() < s->lease_until_ms;
}

void lserve_set_lease(struct lserve *s, uint64_t until_ms)
{
	bool was = lserve_lease_ok(s);

	s->lease_until_ms = until_ms;
	if (!was && lserve_lease_ok(s))
		lconn_set_resume(s->conns);
}

uint64_t lserve_epoch(const struct lserve *s)
{
	return s->map ? s->map->epoch : 0;
}

void lserve_set_map(struct lserve *s, struct cmap *m)
{
	s->map_fetches++;
	if (s->map && m->epoch < s->map->epoch) {
		cmap_free(m);
	} else {
		cmap_free(s->map);
		s->map = m;
		lserve_map_changed(s);
	}
	lconn_set_resume(s->conns);
}

void lserve_set_state(struct lserve *s, const char *state)
{
	s->state = state;
}

/* ---- life ---- */

int lserve_new(const struct lserve_options *o, struct lserve **ret, char *why,
	       size_t why_size)
{
	static const struct lconn_ops ops = { .frame = on_frame,
					      .closed = on_closed };
	struct lserve *s = calloc(1, sizeof(*s));
	int rv;

	if (!s) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	s->o = *o;
	s->state = "starting";
	s->start_ms = clock_now_ms(CLOCK_MONOTONIC);
	s->wait_timer.fn = on_wait;
	rv = lconn_set_new(o->loop, o->gate, o->addr, o->port, o->conn_max,
			   &ops, s, &s->conns, why, why_size);
	if (rv < 0) {
		free(s);
		return rv;
	}
	*ret = s;
	return 0;
}

void lserve_free(struct lserve *s)
{
	if (!s)
		return;
	loop_timer_stop(s->o.loop, &s->wait_timer);
	lconn_set_close(s->conns);
	lconn_set_free(s->conns);
	lserve_peers_free(s);
	cmap_free(s->map);
	free(s);
}

void lserve_flush(struct lserve *s)
{
	lconn_set_flush(s->conns);
}
