/* The mini log daemon: requests, their answers, and what a test does to it. */
#include "tests/lib/mini_logd.h"

#include "common/crc32c.h"
#include "common/status.h"
#include "logd/validate.h"
#include "tests/lib/mini_serve.h"

#include <stdio.h>

/* A request that is not executed yet, or its reply, because the test holds
 * it. */
struct held {
	struct held *next;
	uint64_t conn_id;
	struct frame *f; /* not executed; or */
	uint8_t *reply;
	size_t reply_len;
	uint16_t op;
	bool free; /* goes with the next turn */
};

struct mini_logd {
	struct mini_serve s; /* its lock is of all below */
	uint32_t id;
	uint64_t cluster_id, boot_id, memory_bytes;
	uint8_t *memory;
	struct lend_pool pool;
	struct lend *lend;
	struct held *held, **held_tail;
	uint64_t asker; /* the connection whose request is executed */
	uint16_t hold_op, hold_reply_op, lose_op, fail_op, lie_op;
	bool hold, hold_replies;
	enum mini_logd_lie lie;
	int lose_count, fail_err, fail_count, lie_count;
	uint64_t executed[256], received[256];
	uint64_t violations;
};

/* ---- what is lent ---- */

/* Its writer is not to be heard any more. */
static void on_fenced(void *arg, struct lend_log *g)
{
	struct mini_logd *b = arg;

	for (struct mini_conn *c = b->s.conns; c; c = c->next)
		if (c->session == g->session && c->id != b->asker)
			mini_conn_close(c);
}

static void table_new(struct mini_logd *b)
{
	static const struct lend_ops ops = { .fenced = on_fenced };
	struct lend_options o = {
		.pool = &b->pool, .cluster_id = b->cluster_id,
		.log_max = 1000, .ino_max = 1000, .ops = &ops, .arg = b,
	};

	b->memory = calloc(1, b->memory_bytes);
	must(b->memory);
	must(lend_pool_init(&b->pool, b->memory, b->memory_bytes) == 0);
	must(lend_new(&o, &b->lend) == 0);
	b->boot_id += 1000;
}

static void table_free(struct mini_logd *b)
{
	lend_free(b->lend);
	lend_pool_fini(&b->pool);
	free(b->memory);
}

/* ---- replies ---- */

/* The body of an answer, from its log_reply on. */
struct answer {
	int status;
	uint8_t body[65536];
	struct wire_out o;
	const uint8_t *data;
	uint32_t data_len;
};

static bool matches(uint16_t want, uint16_t op)
{
	return want == 0 || want == op;
}

static void held_add(struct mini_logd *b, const struct held *h)
{
	struct held *n = malloc(sizeof(*n));

	must(n);
	*n = *h;
	n->next = NULL;
	*b->held_tail = n;
	b->held_tail = &n->next;
}

static void lie(struct mini_logd *b, uint16_t op, struct answer *a)
{
	if (a->status || b->lie_count == 0 || !matches(b->lie_op, op))
		return;
	b->lie_count--;
	switch (b->lie) {
	case MINI_LOGD_EMPTY:
		a->o.len = 0;
		break;
	case MINI_LOGD_SHORT:
		a->o.len -= a->o.len > 0;
		break;
	case MINI_LOGD_LONG:
		wire_put_u8(&a->o, 0);
		break;
	case MINI_LOGD_RANDOM:
		for (size_t i = 0; i < a->o.len; i++)
			a->body[i] = (uint8_t)(i * 167 + 91);
		break;
	case MINI_LOGD_DATA:
		break;
	case MINI_LOGD_NO_DATA:
		a->data_len = 0;
		break;
	}
}

static void reply(struct mini_logd *b, uint64_t conn_id,
		  const struct wire_header *q, struct answer *a)
{
	struct mini_conn *c = mini_conn_find(&b->s, conn_id);
	bool wrong = b->lie_count > 0 && b->lie == MINI_LOGD_DATA &&
		     a->data_len > 0 && matches(b->lie_op, q->opcode);
	size_t len;
	uint8_t *buf;

	if (!c)
		return;
	if (b->lose_count > 0 && matches(b->lose_op, q->opcode)) {
		b->lose_count--;
		mini_conn_close(c);
		return;
	}
	lie(b, q->opcode, a);
	must(!a->o.overflow);
	if (a->status)
		a->data_len = 0;
	len = WIRE_HEADER_SIZE + a->o.len + a->data_len;
	buf = malloc(len);
	must(buf);
	struct wire_header h = {
		.version = WIRE_VERSION, .opcode = q->opcode,
		.flags = WIRE_F_REPLY, .status = status_to_wire(a->status),
		.request_id = q->request_id, .cluster_id = b->cluster_id,
		.session = q->session, .body_len = (uint32_t)a->o.len,
		.data_len = a->data_len,
		.body_crc = crc32c(0, a->body, a->o.len),
	};
	wire_header_encode(&h, buf);
	memcpy(buf + WIRE_HEADER_SIZE, a->body, a->o.len);
	if (a->data_len > 0)
		memcpy(buf + WIRE_HEADER_SIZE + a->o.len, a->data,
		       a->data_len);
	if (wrong)
		buf[len - a->data_len / 2 - 1] ^= 0x10;
	if (b->hold_replies && matches(b->hold_reply_op, q->opcode)) {
		held_add(b, &(struct held){ .conn_id = conn_id, .reply = buf,
					    .reply_len = len,
					    .op = q->opcode });
		return;
	}
	mini_conn_write(c, buf, len);
	free(buf);
}

static void put_reply(struct mini_logd *b, struct answer *a, bool wanted)
{
	struct log_reply m = { b->boot_id, lend_free_bytes(b->lend),
			       wanted ? LOG_REPLY_WANTED : 0 };

	log_reply_encode(&a->o, &m);
}

/* ---- requests ---- */

static void do_fence(struct mini_logd *b, const struct log_fence *m,
		     struct answer *a)
{
	const struct lend_log *g = NULL;
	uint8_t regions[32768];
	struct wire_out o;

	a->status = lend_fence(b->lend, m, &g);
	if (a->status)
		return;
	wire_out_init(&o, regions, sizeof(regions));
	for (uint32_t i = 0; g && i < g->region_count; i++) {
		const struct lend_region *r = lend_region_at(g, i);

		log_region_encode(&o, &(struct log_region){
			.index = r->index, .log2 = r->log2,
			.slots = { r->base, LOG_SLOT_COUNT * LOG_SLOT_SIZE } });
	}
	must(!o.overflow);
	struct log_fence_reply fr = {
		.held = g && g->given_up ? LOG_HELD_GIVEN_UP :
			g && g->region_count > 0 ? LOG_HELD : LOG_HELD_NONE,
		.count = g ? g->region_count : 0,
		.regions = { regions, (uint32_t)o.len },
	};
	log_fence_reply_encode(&a->o, &fr);
}

struct wanted {
	struct lend *lend;
	uint64_t session;
	struct wire_out o;
	uint32_t count;
};

static void wanted_one(void *arg, struct lend_log *g)
{
	struct wanted *w = arg;

	if (g->session != w->session || !lend_is_wanted(w->lend, g))
		return;
	w->count++;
	log_name_encode(&w->o, &(struct log_name){ g->ino, g->epoch });
}

static void do_ping(struct mini_logd *b, uint64_t session, struct answer *a)
{
	uint8_t names[4096];
	struct wanted w = { .lend = b->lend, .session = session };

	wire_out_init(&w.o, names, sizeof(names));
	lend_each(b->lend, wanted_one, &w);
	must(!w.o.overflow);
	struct log_ping_reply r = {
		.total_bytes = lend_total_bytes(b->lend),
		.deadline_ms = w.count > 0 ? 60000 : 0,
		.count = w.count,
		.wanted = { names, (uint32_t)w.o.len },
	};
	log_ping_reply_encode(&a->o, &r);
}

static void do_alloc(struct mini_logd *b, uint64_t session,
		     const struct log_alloc *m, struct answer *a)
{
	const struct lend_region *r;

	a->status = lend_alloc(b->lend, session, m, &r);
	if (a->status)
		return;
	struct log_alloc_reply reply = { .addr = r->addr, .rkey = r->rkey };
	log_alloc_reply_encode(&a->o, &reply);
}

static void do_request(struct mini_logd *b, const struct frame *f,
		       const struct lend_msg *m, struct answer *a)
{
	uint64_t session = f->h.session;

	put_reply(b, a, lend_draining(b->lend));
	switch (m->op) {
	case WIRE_OP_LOG_WRITE:
		a->status = lend_write(b->lend, session, &m->u.write, f->data,
				       f->h.data_len);
		break;
	case WIRE_OP_LOG_ALLOC:
		do_alloc(b, session, &m->u.alloc, a);
		break;
	case WIRE_OP_LOG_FENCE:
		do_fence(b, &m->u.fence, a);
		break;
	case WIRE_OP_LOG_READ:
		a->status = lend_read(b->lend, &m->u.read, &a->data);
		a->data_len = m->u.read.len;
		break;
	case WIRE_OP_LOG_FREE:
		a->status = lend_release(b->lend, &m->u.free);
		break;
	case WIRE_OP_LOG_PING:
		do_ping(b, session, a);
		break;
	case WIRE_OP_PING:
		break;
	default:
		a->status = -EOPNOTSUPP;
	}
}

static void hello(struct mini_logd *b, struct mini_conn *c,
		  const struct frame *f, struct answer *a)
{
	struct hello_reply m = { .version = WIRE_VERSION,
				 .role = WIRE_ROLE_LOGD,
				 .boot_id = b->boot_id, .peer_id = b->id };

	hello_reply_encode(&a->o, &m);
	/* What had come over older connections and waits, is gone. */
	for (struct mini_conn *old = b->s.conns; old; old = old->next)
		if (old != c && old->session == f->h.session)
			mini_conn_close(old);
	c->hello = true;
	c->session = f->h.session;
}

static void execute(struct mini_logd *b, struct mini_conn *c,
		    const struct frame *f)
{
	struct lend_who who = {
		.cluster_id = b->cluster_id,
		.role = c->hello ? WIRE_ROLE_CLIENT : 0,
		.session = c->session,
	};
	struct answer *a = calloc(1, sizeof(*a));
	struct lend_msg m;

	must(a);
	wire_out_init(&a->o, a->body, sizeof(a->body));
	b->executed[f->h.opcode & 255]++;
	b->asker = c->id;
	a->status = lend_validate(&who, &f->h, f->body, &m);
	if (a->status == -EBADMSG || a->status == -EINVAL) {
		fprintf(stderr, "# mini_logd: op %u of session %lx on one of "
			"%lx: err %d\n", f->h.opcode, f->h.session,
			c->session, a->status);
		b->violations++;
		mini_conn_close(c);
	} else if (!a->status && b->fail_count != 0 &&
		   matches(b->fail_op, f->h.opcode)) {
		b->fail_count -= b->fail_count > 0;
		a->status = b->fail_err;
	} else if (!a->status && m.op == WIRE_OP_HELLO) {
		hello(b, c, f, a);
	} else if (!a->status) {
		do_request(b, f, &m, a);
	}
	b->asker = 0;
	reply(b, c->id, &f->h, a);
	free(a);
}

/* ---- holding ---- */

static bool is_held(const struct mini_logd *b, const struct held *h)
{
	if (h->free)
		return false;
	return h->f ? b->hold && matches(b->hold_op, h->op) :
		      b->hold_replies && matches(b->hold_reply_op, h->op);
}

static void held_release(struct mini_logd *b)
{
	struct held *h = b->held, *next;

	b->held = NULL;
	b->held_tail = &b->held;
	for (; h; h = next) {
		struct mini_conn *c = mini_conn_find(&b->s, h->conn_id);

		next = h->next;
		if (c && is_held(b, h)) {
			held_add(b, h);
		} else {
			if (c && h->f)
				execute(b, c, h->f);
			else if (c)
				mini_conn_write(c, h->reply, h->reply_len);
			frame_free(h->f);
			free(h->reply);
		}
		free(h);
	}
}

static struct mini_logd *of(struct mini_serve *s)
{
	return container_of(s, struct mini_logd, s);
}

/* Takes over @f. */
static void on_frame(struct mini_serve *s, struct mini_conn *c,
		     struct frame *f)
{
	struct mini_logd *b = of(s);

	b->received[f->h.opcode & 255]++;
	if (b->hold && matches(b->hold_op, f->h.opcode)) {
		held_add(b, &(struct held){ .conn_id = c->id, .f = f,
					    .op = f->h.opcode });
		return;
	}
	execute(b, c, f);
	frame_free(f);
}

static void on_bad(struct mini_serve *s)
{
	of(s)->violations++;
}

static void on_turn(struct mini_serve *s)
{
	held_release(of(s));
}

/* ---- life ---- */

struct mini_logd *mini_logd_new(uint32_t id, uint64_t cluster_id,
				uint64_t memory)
{
	static const struct mini_serve_ops ops = { on_frame, on_bad, on_turn };
	struct mini_logd *b = calloc(1, sizeof(*b));

	must(b);
	b->id = id;
	b->cluster_id = cluster_id;
	b->boot_id = id;
	b->memory_bytes = memory;
	b->held_tail = &b->held;
	table_new(b);
	mini_serve_init(&b->s, &ops);
	mini_serve_start(&b->s);
	return b;
}

void mini_logd_free(struct mini_logd *b)
{
	mini_serve_stop(&b->s);
	held_release(b); /* to nobody: the connections are gone */
	table_free(b);
	mini_serve_fini(&b->s);
	free(b);
}

uint16_t mini_logd_port(struct mini_logd *b)
{
	return b->s.port;
}

uint64_t mini_logd_boot_id(struct mini_logd *b)
{
	uint64_t id;

	mini_serve_lock(&b->s);
	id = b->boot_id;
	mini_serve_unlock(&b->s);
	return id;
}

/* ---- faults ---- */

static void reborn(struct mini_logd *b)
{
	table_free(b);
	table_new(b);
}

void mini_logd_restart(struct mini_logd *b)
{
	mini_serve_lock(&b->s);
	mini_conns_close(&b->s);
	reborn(b);
	mini_serve_kick(&b->s);
}

void mini_logd_down(struct mini_logd *b)
{
	mini_serve_lock(&b->s);
	mini_conns_close(&b->s);
	mini_serve_down(&b->s);
	mini_serve_kick(&b->s);
}

void mini_logd_up(struct mini_logd *b, bool lose)
{
	mini_serve_lock(&b->s);
	if (lose)
		reborn(b);
	mini_serve_up(&b->s);
	mini_serve_kick(&b->s);
}

void mini_logd_drop(struct mini_logd *b)
{
	mini_serve_lock(&b->s);
	mini_conns_close(&b->s);
	mini_serve_kick(&b->s);
}

void mini_logd_hold(struct mini_logd *b, uint16_t op, bool hold)
{
	mini_serve_lock(&b->s);
	b->hold_op = op;
	b->hold = hold;
	mini_serve_kick(&b->s);
}

void mini_logd_hold_replies(struct mini_logd *b, uint16_t op, bool hold)
{
	mini_serve_lock(&b->s);
	b->hold_reply_op = op;
	b->hold_replies = hold;
	mini_serve_kick(&b->s);
}

void mini_logd_let(struct mini_logd *b, uint32_t count)
{
	struct held *h;

	mini_serve_lock(&b->s);
	for (h = b->held; h && count > 0; h = h->next, count--)
		h->free = true;
	mini_serve_kick(&b->s);
}

void mini_logd_lose_replies(struct mini_logd *b, uint16_t op, int count)
{
	mini_serve_lock(&b->s);
	b->lose_op = op;
	b->lose_count = count;
	mini_serve_unlock(&b->s);
}

void mini_logd_fail(struct mini_logd *b, uint16_t op, int err, int count)
{
	mini_serve_lock(&b->s);
	b->fail_op = op;
	b->fail_err = err;
	b->fail_count = count;
	mini_serve_unlock(&b->s);
}

void mini_logd_lie(struct mini_logd *b, uint16_t op, enum mini_logd_lie how,
		   int count)
{
	mini_serve_lock(&b->s);
	b->lie_op = op;
	b->lie = how;
	b->lie_count = count;
	mini_serve_unlock(&b->s);
}

void mini_logd_drain(struct mini_logd *b, bool on)
{
	mini_serve_lock(&b->s);
	if (on)
		lend_drain(b->lend, UINT64_MAX);
	else
		lend_drain_end(b->lend);
	mini_serve_unlock(&b->s);
}

void mini_logd_reclaim(struct mini_logd *b)
{
	mini_serve_lock(&b->s);
	lend_drain(b->lend, 1);
	lend_set_now(b->lend, 2);
	(void)lend_expire(b->lend);
	mini_serve_unlock(&b->s);
}

int mini_logd_fence(struct mini_logd *b, uint64_t ino, uint64_t epoch,
		    uint64_t data_epoch)
{
	struct log_fence m = { ino, epoch, data_epoch };
	const struct lend_log *g;
	int err;

	mini_serve_lock(&b->s);
	err = lend_fence(b->lend, &m, &g);
	mini_serve_kick(&b->s);
	return err;
}

void mini_logd_collect(struct mini_logd *b,
		       bool (*known)(void *arg, uint64_t ino, uint64_t epoch),
		       void *arg)
{
	struct log_name names[64];
	uint32_t count;

	mini_serve_lock(&b->s);
	count = lend_ask(b->lend, 0, names, 64);
	for (uint32_t i = 0; i < count; i++)
		if (!known(arg, names[i].ino, names[i].epoch))
			lend_judge(b->lend, names[i].ino, names[i].epoch,
				   META_LOG_UNKNOWN);
	mini_serve_unlock(&b->s);
}

/* ---- the truth ---- */

static uint64_t read_counter(struct mini_logd *b, const uint64_t *v)
{
	uint64_t n;

	mini_serve_lock(&b->s);
	n = *v;
	mini_serve_unlock(&b->s);
	return n;
}

uint64_t mini_logd_executed(struct mini_logd *b, uint16_t op)
{
	return read_counter(b, &b->executed[op & 255]);
}

uint64_t mini_logd_received(struct mini_logd *b, uint16_t op)
{
	return read_counter(b, &b->received[op & 255]);
}

uint64_t mini_logd_violations(struct mini_logd *b)
{
	return read_counter(b, &b->violations);
}

uint32_t mini_logd_held(struct mini_logd *b)
{
	uint32_t count = 0;

	mini_serve_lock(&b->s);
	for (struct held *h = b->held; h; h = h->next)
		count++;
	mini_serve_unlock(&b->s);
	return count;
}

void mini_logd_stats(struct mini_logd *b, struct lend_stats *ret)
{
	mini_serve_lock(&b->s);
	*ret = *lend_stats(b->lend);
	mini_serve_unlock(&b->s);
}

uint64_t mini_logd_free_bytes(struct mini_logd *b)
{
	uint64_t bytes;

	mini_serve_lock(&b->s);
	bytes = lend_free_bytes(b->lend);
	mini_serve_unlock(&b->s);
	return bytes;
}

struct seq_of {
	uint64_t ino, epoch, seq;
};

static void seq_one(void *arg, struct lend_log *g)
{
	struct seq_of *s = arg;

	if (g->ino != s->ino || g->epoch < s->epoch)
		return;
	s->epoch = g->epoch;
	s->seq = 0;
	for (uint32_t i = 0; i < g->region_count; i++)
		s->seq = u64_max(s->seq, lend_region_at(g, i)->seq);
}

uint64_t mini_logd_seq(struct mini_logd *b, uint64_t ino)
{
	struct seq_of s = { .ino = ino };

	mini_serve_lock(&b->s);
	lend_each(b->lend, seq_one, &s);
	mini_serve_unlock(&b->s);
	return s.seq;
}
