/* The mini block daemon: requests and their answers. */
#include "tests/lib/mini_blockd_priv.h"

#include "common/crc32c.h"
#include "common/status.h"

/* ---- replies ---- */

struct reply {
	int status;
	uint8_t *body;
	size_t body_len;
	const void *data;
	uint32_t data_len;
};

static struct wire_out reply_room(struct reply *r, size_t cap)
{
	struct wire_out o;

	r->body = malloc(cap);
	must(r->body);
	wire_out_init(&o, r->body, cap);
	r->body_len = cap;
	return o;
}

static void reply_plain(struct mini_blockd *b, struct reply *r, int64_t delta)
{
	struct blk_reply m = { b->boot_id,
			       u64_min(b->free_units, 1u << 30), delta };
	struct wire_out o = reply_room(r, blk_reply_size(&m));

	blk_reply_encode(&o, &m);
}

static uint8_t *frame_make(struct mini_blockd *b, const struct wire_header *q,
			   const struct reply *r, size_t *len)
{
	size_t body_len = r->status ? 0 : r->body_len;
	uint32_t data_len = r->status ? 0 : r->data_len;
	uint8_t *buf = malloc(WIRE_HEADER_SIZE + body_len + data_len);
	struct wire_header h = {
		.version = WIRE_VERSION, .opcode = q->opcode,
		.flags = WIRE_F_REPLY, .status = status_to_wire(r->status),
		.request_id = q->request_id, .cluster_id = b->cluster_id,
		.session = q->session, .body_len = (uint32_t)body_len,
		.data_len = data_len,
	};

	must(buf);
	if (body_len)
		memcpy(buf + WIRE_HEADER_SIZE, r->body, body_len);
	if (data_len)
		memcpy(buf + WIRE_HEADER_SIZE + body_len, r->data, data_len);
	h.body_crc = crc32c(0, buf + WIRE_HEADER_SIZE, body_len);
	wire_header_encode(&h, buf);
	*len = WIRE_HEADER_SIZE + body_len + data_len;
	return buf;
}

static bool matches(uint16_t want, uint16_t op)
{
	return want == op ||
	       (want == 0 && op != WIRE_OP_HELLO && op != WIRE_OP_BLK_STAT);
}

static void pend_add(struct mini_blockd *b, struct mb_pend p)
{
	struct mb_pend *n = malloc(sizeof(*n));

	must(n);
	*n = p;
	n->next = NULL;
	*b->pend_tail = n;
	b->pend_tail = &n->next;
}

/* Unless the test wants it lost or late. @w: of a WRITE, or len 0. */
static void reply_send(struct mini_blockd *b, uint64_t conn_id,
		       const struct wire_header *q, const struct reply *r,
		       const struct blk_write *w)
{
	struct mini_conn *c = mini_conn_find(&b->s, conn_id);
	size_t len;
	uint8_t *buf;

	if (!c)
		return;
	if (b->lose_count > 0 && matches(b->lose_op, q->opcode)) {
		b->lose_count--;
		mini_conn_close(c);
		return;
	}
	buf = frame_make(b, q, r, &len);
	if (b->hold_replies && matches(b->hold_reply_op, q->opcode)) {
		pend_add(b, (struct mb_pend){ .conn_id = conn_id, .h = *q,
					      .w = *w, .reply = buf,
					      .reply_len = len });
		return;
	}
	mini_conn_write(c, buf, len);
	free(buf);
}

/* ---- requests; lock held ---- */

/* Is the block, when it is there, of that size? */
static bool fits(struct mini_blockd *b, uint64_t ino, uint64_t index,
		 uint8_t log2)
{
	const struct mb_block *k = mb_find(b, ino, index);

	return !k || k->log2 == log2;
}

static int do_write(struct mini_blockd *b, const struct frame *f,
		    struct blk_write *w, int64_t *delta)
{
	struct mb_block *k;

	if (blk_write_parse(f->body, f->h.body_len, w) ||
	    w->len != f->h.data_len || w->len == 0 ||
	    (uint64_t)w->off + w->len > (uint64_t)1 << w->block_log2 ||
	    crc32c_check(w->off, f->data, w->len, w->sums.p, w->sums.len)) {
		b->violations++;
		return -EBADMSG;
	}
	for (struct mb_pend *p = b->pend; p; p = p->next)
		if (mb_overlaps(&p->w, w))
			b->violations++;
	if (mb_cut_check(b, w->ino, w->cut))
		return -ESTALE;
	if (!fits(b, w->ino, w->index, w->block_log2))
		return -EINVAL;
	k = mb_get(b, w->ino, w->index, w->block_log2);
	*delta = mb_units_take(b, k, w->off, w->len, UNIT_DATA);
	if (*delta < 0)
		return -ENOSPC;
	memcpy(k->now.bytes + w->off, f->data, w->len);
	k->now.end = (uint32_t)u64_max(k->now.end, w->off + w->len);
	if (w->flags & BLK_WRITE_SYNC)
		mb_each(b, w->ino, mb_sync);
	return 0;
}

static void do_read(struct mini_blockd *b, const struct frame *f,
		    struct reply *r, uint8_t **data)
{
	struct blk_read q;
	struct mb_block *k;
	struct blk_read_reply m = { .boot_id = b->boot_id, .hole = 1 };
	uint8_t sums[4 * (BLOCK_UNITS_MAX + 1)];
	struct wire_out o;

	if (blk_read_parse(f->body, f->h.body_len, &q)) {
		b->violations++;
		r->status = -EBADMSG;
		return;
	}
	r->status = mb_cut_check(b, q.ino, q.cut);
	if (r->status)
		return;
	k = mb_find(b, q.ino, q.index);
	if (k && (uint64_t)q.off + q.len > (uint64_t)1 << k->log2) {
		r->status = -EINVAL;
		return;
	}
	for (uint32_t u = q.off / UNIT_SIZE;
	     k && u <= (q.off + q.len - 1) / UNIT_SIZE; u++)
		if (k->now.units[u] == UNIT_DATA)
			m.hole = 0;
	if (!m.hole) {
		*data = malloc(q.len);
		must(*data);
		memcpy(*data, k->now.bytes + q.off, q.len);
		crc32c_sums(q.off, *data, q.len, sums);
		m.sums = (struct wire_str){
			sums, 4 * crc32c_piece_count(q.off, q.len) };
		if (b->corrupt_count > 0) {
			b->corrupt_count--;
			(*data)[q.len / 2] ^= 0x40;
		}
		r->data = *data;
		r->data_len = q.len;
	}
	o = reply_room(r, blk_read_reply_size(&m));
	blk_read_reply_encode(&o, &m);
}

static void do_map(struct mini_blockd *b, const struct frame *f,
		   struct reply *r)
{
	struct blk_map q;
	struct blk_map_reply m = { .boot_id = b->boot_id, .next = UINT64_MAX };
	uint8_t entries[65536];
	struct wire_out e, o;
	uint64_t from;

	if (blk_map_parse(f->body, f->h.body_len, &q)) {
		b->violations++;
		r->status = -EBADMSG;
		return;
	}
	wire_out_init(&e, entries, sizeof(entries));
	from = q.first;
	for (;;) {
		struct mb_block *best = NULL;
		uint8_t bits[BLOCK_UNITS_MAX / 8] = { 0 };
		uint32_t units = (1u << q.block_log2) / UNIT_SIZE;

		for (uint32_t i = 0; i < HASH_SIZE; i++)
			for (struct mb_block *k = b->hash[i]; k; k = k->next)
				if (k->ino == q.ino && k->now.there &&
				    k->index >= from && k->index <= q.last &&
				    k->log2 == q.block_log2 &&
				    (!best || k->index < best->index))
					best = k;
		if (!best)
			break;
		if (m.count == q.count_max || m.count == 7) {
			m.next = best->index;
			break;
		}
		for (uint32_t u = 0; u < units; u++)
			if (best->now.units[u] == UNIT_DATA)
				bits[u / 8] |= (uint8_t)(1u << (u % 8));
		wire_put_u64(&e, best->index);
		wire_put_raw(&e, bits, (units + 7) / 8);
		m.count++;
		from = best->index + 1;
	}
	m.entries = (struct wire_str){ entries, (uint32_t)e.len };
	o = reply_room(r, blk_map_reply_size(&m));
	blk_map_reply_encode(&o, &m);
}

static void do_stat(struct mini_blockd *b, struct reply *r)
{
	struct blk_stat_reply m = {
		.boot_id = b->boot_id,
		.units_total = 1u << 30,
		.units_free = u64_min(b->free_units, 1u << 30),
	};
	struct wire_out o = reply_room(r, blk_stat_reply_size(&m));

	blk_stat_reply_encode(&o, &m);
}

static void do_alloc(struct mini_blockd *b, const struct frame *f,
		     struct reply *r)
{
	struct blk_alloc q;
	int64_t delta;

	if (blk_alloc_parse(f->body, f->h.body_len, &q) || q.len == 0) {
		b->violations++;
		r->status = -EBADMSG;
		return;
	}
	r->status = mb_cut_check(b, q.ino, q.cut);
	if (!r->status && !fits(b, q.ino, q.index, q.block_log2))
		r->status = -EINVAL;
	if (r->status)
		return;
	delta = mb_units_take(b, mb_get(b, q.ino, q.index, q.block_log2),
			   q.off, q.len, UNIT_UNWRITTEN);
	if (delta < 0)
		r->status = -ENOSPC;
	else
		reply_plain(b, r, delta);
}

static void do_sync(struct mini_blockd *b, const struct frame *f,
		    struct reply *r)
{
	struct blk_sync q;

	if (blk_sync_parse(f->body, f->h.body_len, &q)) {
		b->violations++;
		r->status = -EBADMSG;
		return;
	}
	mb_each(b, q.ino, mb_sync);
	reply_plain(b, r, 0);
}

static void do_end(struct mini_blockd *b, const struct frame *f,
		   struct reply *r)
{
	struct blk_end q;
	struct blk_end_reply m = { .boot_id = b->boot_id };
	struct wire_out o;

	if (blk_end_parse(f->body, f->h.body_len, &q)) {
		b->violations++;
		r->status = -EBADMSG;
		return;
	}
	m.end = mb_end(b, q.ino, &m.units);
	o = reply_room(r, blk_end_reply_size(&m));
	blk_end_reply_encode(&o, &m);
}

/* Of a session that another has taken the place of? */
static bool is_fenced(const struct mini_blockd *b, const struct frame *f)
{
	return b->fenced ||
	       (f->h.session && f->h.session <= b->fenced_session);
}

static void execute(struct mini_blockd *b, uint64_t conn_id,
		    const struct frame *f)
{
	struct reply r = { 0 };
	struct blk_write w = { 0 };
	uint8_t *data = NULL;
	int64_t delta = 0;

	if (is_fenced(b, f)) {
		r.status = -ESTALE;
		reply_send(b, conn_id, &f->h, &r, &w);
		return;
	}
	b->executed[f->h.opcode & 255]++;
	if (b->fail_count != 0 && matches(b->fail_op, f->h.opcode)) {
		if (b->fail_count > 0)
			b->fail_count--;
		r.status = b->fail_err;
	} else if (f->h.opcode == WIRE_OP_BLK_WRITE) {
		r.status = do_write(b, f, &w, &delta);
		if (r.status == 0)
			reply_plain(b, &r, delta);
		else
			w.len = 0;
	} else if (f->h.opcode == WIRE_OP_BLK_READ) {
		do_read(b, f, &r, &data);
	} else if (f->h.opcode == WIRE_OP_BLK_SYNC) {
		do_sync(b, f, &r);
	} else if (f->h.opcode == WIRE_OP_BLK_ALLOC) {
		do_alloc(b, f, &r);
	} else if (f->h.opcode == WIRE_OP_BLK_MAP) {
		do_map(b, f, &r);
	} else if (f->h.opcode == WIRE_OP_BLK_END) {
		do_end(b, f, &r);
	} else if (f->h.opcode == WIRE_OP_BLK_STAT) {
		do_stat(b, &r);
	} else {
		r.status = -ENOSYS;
	}
	reply_send(b, conn_id, &f->h, &r, &w);
	free(r.body);
	free(data);
}

void mb_late_forget(struct mini_blockd *b)
{
	for (struct mb_pend *p = b->pend; p; p = p->next)
		p->late = false;
}

void mb_late_run(struct mini_blockd *b)
{
	struct mb_pend **at = &b->pend, *p;

	while ((p = *at)) {
		if (!p->late) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		if (b->pend_tail == &p->next)
			b->pend_tail = at;
		execute(b, p->conn_id, p->f);
		frame_free(p->f);
		free(p);
	}
}

static void do_hello(struct mini_blockd *b, struct mini_conn *c,
		     const struct frame *f)
{
	struct hello_reply m = { .version = WIRE_VERSION,
				 .role = WIRE_ROLE_BLOCKD,
				 .boot_id = b->boot_id, .peer_id = b->id };
	struct reply r = { .status = is_fenced(b, f) ? -ESTALE : 0 };
	struct wire_out o = reply_room(&r, hello_reply_size(&m));
	size_t len;
	uint8_t *buf;

	hello_reply_encode(&o, &m);
	mb_late_run(b);
	/* Older connections are finished before: requests held go. */
	for (struct mini_conn *old = b->s.conns; old; old = old->next)
		if (old != c && r.status == 0)
			mini_conn_close(old);
	buf = frame_make(b, &f->h, &r, &len);
	mini_conn_write(c, buf, len);
	c->hello = true;
	if (r.status)
		mini_conn_close(c);
	free(buf);
	free(r.body);
}

/* Takes over @f. */
static void received(struct mini_blockd *b, struct mini_conn *c,
		     struct frame *f)
{
	b->received[f->h.opcode & 255]++;
	if (f->h.opcode == WIRE_OP_HELLO) {
		do_hello(b, c, f);
	} else if (!c->hello) {
		b->violations++;
		mini_conn_close(c);
	} else if (b->hold && matches(b->hold_op, f->h.opcode)) {
		struct mb_pend p = { .conn_id = c->id, .f = f, .h = f->h };

		if (f->h.opcode == WIRE_OP_BLK_WRITE) {
			struct blk_write w;

			must(blk_write_parse(f->body, f->h.body_len, &w) == 0);
			for (struct mb_pend *o = b->pend; o; o = o->next)
				if (mini_conn_find(&b->s, o->conn_id) &&
				    mb_overlaps(&o->w, &w))
					b->violations++;
			p.w = w;
		}
		pend_add(b, p);
		return;
	} else {
		execute(b, c->id, f);
	}
	frame_free(f);
}

/* What is pending and no longer held. */
static void pend_release(struct mini_blockd *b)
{
	struct mb_pend *p = b->pend, *next;

	b->pend = NULL;
	b->pend_tail = &b->pend;
	for (; p; p = next) {
		struct mini_conn *c = mini_conn_find(&b->s, p->conn_id);

		next = p->next;
		if (p->late) {
			pend_add(b, *p);
		} else if (c && p->f && b->hold &&
			   matches(b->hold_op, p->h.opcode)) {
			pend_add(b, *p);
		} else if (c && p->reply && b->hold_replies &&
			   matches(b->hold_reply_op, p->h.opcode)) {
			pend_add(b, *p);
		} else {
			if (c && p->f)
				execute(b, p->conn_id, p->f);
			else if (c)
				mini_conn_write(c, p->reply, p->reply_len);
			frame_free(p->f);
			free(p->reply);
		}
		free(p);
	}
}

/* ---- life ---- */

static struct mini_blockd *of(struct mini_serve *s)
{
	return container_of(s, struct mini_blockd, s);
}

static void on_frame(struct mini_serve *s, struct mini_conn *c,
		     struct frame *f)
{
	received(of(s), c, f);
}

static void on_bad(struct mini_serve *s)
{
	of(s)->violations++;
}

static void on_turn(struct mini_serve *s)
{
	pend_release(of(s));
}

int mini_blockd_new(uint32_t id, uint64_t cluster_id, struct mini_blockd **ret)
{
	static const struct mini_serve_ops ops = { on_frame, on_bad, on_turn };
	struct mini_blockd *b = calloc(1, sizeof(*b));

	must(b);
	b->id = id;
	b->cluster_id = cluster_id;
	b->boot_id = 1000 + id;
	b->free_units = UINT64_MAX;
	b->pend_tail = &b->pend;
	mini_serve_init(&b->s, &ops);
	mini_serve_start(&b->s);
	*ret = b;
	return 0;
}

void mini_blockd_free(struct mini_blockd *b)
{
	mini_serve_stop(&b->s);
	mb_late_forget(b);
	pend_release(b); /* to nobody: the connections are gone */
	mb_all_free(b);
	mini_serve_fini(&b->s);
	free(b);
}
