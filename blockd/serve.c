#include "blockd/serve_priv.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/diag.h"
#include "common/status.h"

/* ---- answers ---- */

void blk_serve_body_free(struct serve_req *q)
{
	if (q->heap)
		conn_discharge(q->c, q->heap_len);
	free(q->heap);
	q->heap = NULL;
}

static void req_free(struct serve_req *q)
{
	struct conn *c = q->c;

	conn_buf_put(c, q->rd.buf, q->rd.buf_cap);
	blk_serve_body_free(q);
	free(q->inos);
	conn_frame_free(c, q->f); /* and @q with it */
	conn_put(c);
}

static void reply_sent(struct conn_out *o, bool ok)
{
	struct serve_req *q = container_of(o, struct serve_req, out);
	struct serve *s = q->s;
	bool stop = q->stop;

	(void)ok; /* the peer asks again over its next connection */
	req_free(q);
	if (stop)
		s->o.stop(s->o.arg);
}

uint8_t *blk_serve_body(struct serve_req *q, size_t cap)
{
	if (WIRE_HEADER_SIZE + cap <= sizeof(q->head))
		return q->head + WIRE_HEADER_SIZE;
	blk_serve_body_free(q);
	q->heap = malloc(WIRE_HEADER_SIZE + cap);
	if (q->heap) {
		q->heap_len = WIRE_HEADER_SIZE + cap;
		conn_charge(q->c, q->heap_len);
		return q->heap + WIRE_HEADER_SIZE;
	}
	conn_close(q->c);
	req_free(q);
	return NULL;
}

static enum serve_class class_of(const struct serve_req *q)
{
	switch (q->f->h.opcode) {
	case WIRE_OP_BLK_READ:
		return CLASS_READ;
	case WIRE_OP_BLK_WRITE:
		return q->m.u.write.flags & BLK_WRITE_SYNC ? CLASS_WRITE_SYNC :
							     CLASS_WRITE;
	case WIRE_OP_BLK_SYNC:
		return CLASS_SYNC;
	default:
		return CLASS_OTHER;
	}
}

void blk_serve_reply(struct serve_req *q, int err, size_t len, const void *data,
		 uint32_t data_len)
{
	struct serve *s = q->s;
	uint8_t *head = q->heap ? q->heap : q->head;
	enum serve_class class = class_of(q);
	struct wire_header h = {
		.version = WIRE_VERSION,
		.opcode = q->f->h.opcode,
		.flags = WIRE_F_REPLY,
		.status = status_to_wire(err),
		.request_id = q->f->h.request_id,
		.cluster_id = s->o.cluster_id,
		.epoch = blk_serve_epoch(s),
		.session = q->f->h.session,
		.body_len = (uint32_t)len,
		.data_len = data_len,
		.body_crc = crc32c(0, head + WIRE_HEADER_SIZE, len),
	};

	wire_header_encode(&h, head);
	q->out.iov[0] = (struct iovec){ head, WIRE_HEADER_SIZE + len };
	q->out.iov[1].iov_base = (void *)(uintptr_t)data;
	q->out.iov[1].iov_len = data_len;
	q->out.iov_count = data_len > 0 ? 2 : 1;
	q->out.sent = reply_sent;
	if (err)
		s->n.errors[class]++;
	hist_add(&s->n.latency[class], ring_now_ns() - q->start_ns);
	if (!conn_send(q->c, &q->out))
		reply_sent(&q->out, false);
}

void blk_serve_reply_plain(struct serve_req *q, int err)
{
	struct store_stat st;
	struct blk_reply m = { .boot_id = q->s->o.boot_id,
			       .units_delta = err ? 0 : q->store.units_delta };
	struct wire_out o;

	store_stat(q->s->o.store, &st);
	m.free_units = st.units_free;
	wire_out_init(&o, q->head + WIRE_HEADER_SIZE,
		      sizeof(q->head) - WIRE_HEADER_SIZE);
	blk_reply_encode(&o, &m);
	blk_serve_reply(q, err, o.len, NULL, 0);
}

/* ---- requests ---- */

/* serve_validate() said no. */
static bool refuse(struct serve_req *q, int err)
{
	struct conn *c = q->c;

	if (err == -EPROTONOSUPPORT)
		return peer_hello_other_version(q);
	if (err == -EBADMSG) {
		q->s->n.corrupt++;
		diag_warn("serve", "what=bad-request peer=%s op=%u "
			  "action=close", conn_name(c), q->f->h.opcode);
		conn_frame_free(c, q->f);
		conn_close(c);
		return true;
	}
	q->s->n.invalid++;
	conn_get(c);
	if (err == -EXDEV)
		diag_warn("serve", "what=other-cluster peer=%s theirs=%#llx "
			  "ours=%#llx action=refuse", conn_name(c),
			  (unsigned long long)q->f->h.cluster_id,
			  (unsigned long long)q->s->o.cluster_id);
	blk_serve_reply_plain(q, err);
	/* A refused HELLO was the connection's only chance. */
	if (err == -EXDEV || q->f->h.opcode == WIRE_OP_HELLO)
		conn_close_after_send(c);
	return true;
}

uint64_t blk_serve_lease_clock_ms(void)
{
	return clock_now_ms(CLOCK_BOOTTIME);
}

bool blk_serve_lease_ok(const struct serve *s)
{
	return blk_serve_lease_clock_ms() < s->lease_until_ms;
}

/* Does metad ask how things stand after a session that died? */
static bool settles(const struct serve_req *q)
{
	return q->m.op == WIRE_OP_BLK_END || q->m.op == WIRE_OP_BLK_LIST ||
	       q->m.op == WIRE_OP_BLK_PURGE;
}

/* May a frame be served now? */
static bool gate_open(struct serve *s, struct serve_req *q)
{
	struct serve_conn *sc = conn_user(q->c);
	bool newer = q->f->h.epoch > blk_serve_epoch(s);

	if (sc->who.role != WIRE_ROLE_CLIENT) {
		/* When its fence did not reach us only the map says who is
		 * dead. */
		if (newer && sc->who.role == WIRE_ROLE_METAD && settles(q))
			return blk_serve_wait(s, q->c, true);
		/* Else metad and tools act by their own right, and FENCE must
		 * not wait for the map that it is ahead of. */
		if (newer)
			s->o.want_map(s->o.arg);
		sc->wait_since_ms = 0;
		return true;
	}
	if (newer)
		return blk_serve_wait(s, q->c, true);
	if (!blk_serve_lease_ok(s))
		return blk_serve_wait(s, q->c, false);
	sc->wait_since_ms = 0;
	return true;
}

/* metad takes these for said by the store it knows, and for good. Returns 0; or
 * -EAGAIN: it may not be that store (it was not accepted yet), or a dead
 * session still has operations that were admitted before. */
static int judge_metad(struct serve *s, const struct serve_req *q)
{
	const struct serve_conn *sc = conn_user(q->c);

	if (sc->who.role != WIRE_ROLE_METAD ||
	    (!settles(q) && q->m.op != WIRE_OP_BLK_CUT))
		return 0;
	if (s->lease_until_ms == 0)
		return -EAGAIN;
	return settles(q) && peer_dead_busy(s) ? -EAGAIN : 0;
}

static bool on_frame(struct conn *c, struct frame *f)
{
	struct serve *s = conn_arg(c);
	struct serve_conn *sc = conn_user(c);
	struct serve_req *q = f->extra;
	int rv;

	if (!sc) {
		sc = calloc(1, sizeof(*sc));
		if (!sc) {
			conn_frame_free(c, f);
			conn_close(c);
			return true;
		}
		sc->who.cluster_id = s->o.cluster_id;
		conn_set_user(c, sc);
	}
	if (!q->checked) {
		q->checked = true;
		q->s = s;
		q->c = c;
		q->f = f;
		q->start_ns = ring_now_ns();
		rv = serve_validate(&sc->who, &f->h, f->body, f->data, &q->m);
		if (rv < 0)
			return refuse(q, rv);
	}
	if (q->m.op == WIRE_OP_HELLO)
		return peer_hello(q);
	if (!gate_open(s, q))
		return false;
	rv = judge_metad(s, q);
	if (rv < 0) {
		conn_get(c); /* as serve_dispatch() does */
		blk_serve_reply_plain(q, rv);
		return true;
	}
	return serve_dispatch(q);
}

static void on_closed(struct conn *c)
{
	/* What else it had begun ends first: on_drained(). */
	serve_scrub_forget(conn_arg(c), c);
}

static void on_drained(struct conn *c)
{
	peer_conn_drained(conn_arg(c), c);
	free(conn_user(c));
}

/* ---- waiting ---- */

static void wait_check(struct conn *c, void *arg)
{
	struct serve *s = arg;
	struct serve_conn *sc = conn_user(c);

	if (!sc || sc->wait_since_ms == 0)
		return;
	if (ring_now_ms() - sc->wait_since_ms > SERVE_WAIT_MS) {
		s->n.wait_timeouts++;
		diag_warn("serve", "what=wait-timeout peer=%s lease=%d "
			  "epoch=%llu action=close", conn_name(c),
			  blk_serve_lease_ok(s),
			  (unsigned long long)blk_serve_epoch(s));
		conn_close(c);
		return;
	}
	ring_timer_start(s->o.ring, &s->wait_timer, SERVE_MAP_AGAIN_MS);
	conn_resume(c);
}

static void wait_tick(struct ring_timer *t)
{
	struct serve *s = container_of(t, struct serve, wait_timer);

	conn_set_each(s->conns, wait_check, s);
}

bool blk_serve_wait(struct serve *s, struct conn *c, bool for_map)
{
	struct serve_conn *sc = conn_user(c);

	if (sc->wait_since_ms == 0) {
		sc->wait_since_ms = ring_now_ms();
		if (for_map)
			s->n.waits_map++;
		else
			s->n.waits_lease++;
	}
	if (for_map)
		s->o.want_map(s->o.arg);
	if (!s->wait_timer.priv_armed)
		ring_timer_start(s->o.ring, &s->wait_timer,
				 SERVE_MAP_AGAIN_MS);
	return false;
}

static void resume_one(struct conn *c, void *arg)
{
	(void)arg;
	conn_resume(c);
}

void blk_serve_resume_all(struct serve *s)
{
	conn_set_each(s->conns, resume_one, NULL);
}

/* ---- life ---- */

int blk_serve_new(const struct serve_options *o, struct serve **ret, char *why,
	      size_t why_size)
{
	static const struct conn_ops ops = {
		.frame = on_frame,
		.closed = on_closed,
		.drained = on_drained,
	};
	struct conn_limits limits = {
		.conn_max = o->conn_max,
		.conn_bytes_max = o->conn_bytes_max,
		.frame_extra = sizeof(struct serve_req),
		.gate = o->gate,
	};
	struct serve *s = calloc(1, sizeof(*s));
	int rv;

	if (!s) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	s->o = *o;
	s->state = "starting";
	s->start_ms = ring_now_ms();
	s->wait_timer.fn = wait_tick;
	rv = conn_set_new(o->ring, o->pool, o->addr, o->port, &limits, &ops, s,
			  &s->conns, why, why_size);
	if (rv < 0) {
		free(s);
		return rv;
	}
	serve_scrub_begin(s);
	*ret = s;
	return 0;
}

void blk_serve_close(struct serve *s, void (*cb)(void *arg), void *arg)
{
	ring_timer_stop(s->o.ring, &s->wait_timer);
	serve_scrub_stop(s);
	conn_set_close(s->conns, cb, arg);
}

void blk_serve_free(struct serve *s)
{
	if (!s)
		return;
	conn_set_free(s->conns);
	peer_free_all(s);
	cmap_free(s->map);
	free(s);
}

uint16_t blk_serve_port(const struct serve *s)
{
	return conn_set_port(s->conns);
}

uint64_t blk_serve_epoch(const struct serve *s)
{
	return s->map ? s->map->epoch : 0;
}

void blk_serve_set_map(struct serve *s, struct cmap *m)
{
	s->map_fetches++;
	if (s->map && m->epoch < s->map->epoch) {
		cmap_free(m);
	} else {
		cmap_free(s->map);
		s->map = m;
		peer_map_changed(s);
	}
	blk_serve_resume_all(s);
}

void blk_serve_set_lease(struct serve *s, uint64_t until_ms)
{
	bool was = blk_serve_lease_ok(s);

	s->lease_until_ms = until_ms;
	if (!was && blk_serve_lease_ok(s))
		blk_serve_resume_all(s);
}

void blk_serve_set_state(struct serve *s, const char *state)
{
	s->state = state;
}
