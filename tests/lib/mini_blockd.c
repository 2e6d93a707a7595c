/* The mini block daemon: one thread, poll(2), blocks in memory. */
#include "tests/lib/mini_blockd.h"

#include "common/crc32c.h"
#include "common/frame_in.h"
#include "common/status.h"
#include "tests/lib/fail_malloc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX 32u
#define HASH_SIZE 4096u
#define CUTS_MAX 256u

/* For what a test cannot go on without; unlike assert(), also for effects. */
static void must(bool ok)
{
	if (!ok)
		abort();
}

enum unit_kind { UNIT_HOLE, UNIT_UNWRITTEN, UNIT_DATA };

/* Content now, or what is safe. */
struct mb_state {
	uint8_t *bytes;
	uint8_t *units; /* enum unit_kind each */
	uint32_t end; /* of what was written */
	bool there;
};

struct mb_block {
	struct mb_block *next;
	uint64_t ino, index;
	uint8_t log2;
	struct mb_state now, safe;
};

struct mb_conn {
	struct mb_conn *next;
	uint64_t id;
	int fd;
	bool hello, closing;
	struct frame_in in;
};

/* A request that is not answered yet, because the test holds it. */
struct mb_pend {
	struct mb_pend *next;
	uint64_t conn_id;
	struct frame *f; /* not executed */
	struct wire_header h;
	struct blk_write w; /* of an executed WRITE; len 0: none */
	uint8_t *reply; /* executed: the whole frame */
	size_t reply_len;
};

struct mini_blockd {
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	uint32_t id;
	uint64_t cluster_id, boot_id, next_conn;
	int listen_fd, event_fd;
	uint16_t port;
	bool stop, fenced;
	struct mb_conn *conns;
	struct mb_block *hash[HASH_SIZE];
	struct mb_pend *pend, **pend_tail;
	struct {
		uint64_t ino, cut;
	} cuts[CUTS_MAX];
	uint32_t cut_count;
	uint64_t free_units;
	uint16_t hold_op, hold_reply_op, lose_op, fail_op;
	bool hold, hold_replies;
	int lose_count, fail_err, fail_count, corrupt_count;
	uint64_t executed[256], received[256];
	uint64_t violations;
};

/* ---- blocks ---- */

static struct mb_block *block_find(struct mini_blockd *b, uint64_t ino,
				   uint64_t index)
{
	struct mb_block *k = b->hash[(ino * 31 + index) % HASH_SIZE];

	while (k && (k->ino != ino || k->index != index))
		k = k->next;
	return k;
}

static struct mb_block *block_get(struct mini_blockd *b, uint64_t ino,
				  uint64_t index, uint8_t log2)
{
	struct mb_block **head = &b->hash[(ino * 31 + index) % HASH_SIZE];
	struct mb_block *k = block_find(b, ino, index);
	size_t size = (size_t)1 << log2;

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	must(k);
	k->ino = ino;
	k->index = index;
	k->log2 = log2;
	k->now.bytes = calloc(1, size);
	k->safe.bytes = calloc(1, size);
	k->now.units = calloc(1, size >> UNIT_SHIFT);
	k->safe.units = calloc(1, size >> UNIT_SHIFT);
	must(k->now.bytes && k->safe.bytes && k->now.units && k->safe.units);
	k->next = *head;
	*head = k;
	return k;
}

static void block_free(struct mb_block *k)
{
	free(k->now.bytes);
	free(k->safe.bytes);
	free(k->now.units);
	free(k->safe.units);
	free(k);
}

static void state_copy(struct mb_block *k, struct mb_state *to,
		       const struct mb_state *from)
{
	memcpy(to->bytes, from->bytes, (size_t)1 << k->log2);
	memcpy(to->units, from->units, ((size_t)1 << k->log2) >> UNIT_SHIFT);
	to->end = from->end;
	to->there = from->there;
}

static void each_block(struct mini_blockd *b, uint64_t ino,
		       void (*fn)(struct mini_blockd *b, struct mb_block *k))
{
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next)
			if (ino == 0 || k->ino == ino)
				fn(b, k);
}

/* What is executed but not answered is not promised. But a write is durable
 * with its end or not at all: the one that the block's end comes from is. */
static void block_sync(struct mini_blockd *b, struct mb_block *k)
{
	uint8_t *old = malloc((size_t)1 << k->log2);

	must(old);
	memcpy(old, k->safe.bytes, (size_t)1 << k->log2);
	state_copy(k, &k->safe, &k->now);
	for (struct mb_pend *p = b->pend; p; p = p->next)
		if (p->w.len && p->w.ino == k->ino && p->w.index == k->index &&
		    p->w.off + p->w.len != k->now.end)
			memcpy(k->safe.bytes + p->w.off, old + p->w.off,
			       p->w.len);
	free(old);
}

static void block_lose(struct mini_blockd *b, struct mb_block *k)
{
	(void)b;
	state_copy(k, &k->now, &k->safe);
}

/* ---- operations; lock held ---- */

static int cut_check(struct mini_blockd *b, uint64_t ino, uint64_t cut)
{
	for (uint32_t i = 0; i < b->cut_count; i++)
		if (b->cuts[i].ino == ino)
			return cut < b->cuts[i].cut ? -ESTALE : 0;
	return 0;
}

static void cut_note(struct mini_blockd *b, uint64_t ino, uint64_t cut)
{
	uint32_t i = 0;

	while (i < b->cut_count && b->cuts[i].ino != ino)
		i++;
	if (i == b->cut_count) {
		must(b->cut_count < CUTS_MAX);
		b->cuts[b->cut_count++].ino = ino;
	}
	b->cuts[i].cut = cut;
}

/* Makes the units of [off, off+len) at least @kind. Returns the delta or
 * -ENOSPC. */
static int64_t units_take(struct mini_blockd *b, struct mb_block *k,
			  uint32_t off, uint32_t len, uint8_t kind)
{
	uint32_t first = off / UNIT_SIZE, last = (off + len - 1) / UNIT_SIZE;
	int64_t need = 0;

	for (uint32_t u = first; u <= last; u++)
		need += k->now.units[u] == UNIT_HOLE;
	if (b->free_units != UINT64_MAX) {
		if ((uint64_t)need > b->free_units)
			return -ENOSPC;
		b->free_units -= (uint64_t)need;
	}
	for (uint32_t u = first; u <= last; u++)
		if (k->now.units[u] < kind)
			k->now.units[u] = kind;
	k->now.there = true;
	return need;
}

static bool overlaps(const struct blk_write *a, const struct blk_write *w)
{
	return a->len && a->ino == w->ino && a->index == w->index &&
	       a->off < w->off + w->len && w->off < a->off + a->len;
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
		if (overlaps(&p->w, w))
			b->violations++;
	if (cut_check(b, w->ino, w->cut))
		return -ESTALE;
	k = block_get(b, w->ino, w->index, w->block_log2);
	*delta = units_take(b, k, w->off, w->len, UNIT_DATA);
	if (*delta < 0)
		return -ENOSPC;
	memcpy(k->now.bytes + w->off, f->data, w->len);
	k->now.end = (uint32_t)u64_max(k->now.end, w->off + w->len);
	if (w->flags & BLK_WRITE_SYNC)
		each_block(b, w->ino, block_sync);
	return 0;
}

static int64_t block_cut(struct mb_block *k, struct mb_state *s, uint64_t from,
			 uint64_t to)
{
	uint64_t start = k->index << k->log2;
	int64_t delta = 0;

	if (s->end > 0 && from < start + s->end && to >= start + s->end)
		s->end = from > start ? (uint32_t)(from - start) : 0;
	for (uint32_t u = 0; u < (1u << k->log2) / UNIT_SIZE; u++) {
		uint64_t lo = start + (uint64_t)u * UNIT_SIZE;
		uint64_t hi = lo + UNIT_SIZE;
		uint64_t cf = u64_max(lo, from), ct = u64_min(hi, to);

		if (cf >= ct)
			continue;
		memset(s->bytes + (cf - start), 0, ct - cf);
		if (cf == lo && ct == hi && s->units[u] != UNIT_HOLE) {
			s->units[u] = UNIT_HOLE;
			delta--;
		}
	}
	return delta;
}

int64_t mini_blockd_cut(struct mini_blockd *b, const struct blk_cut *cut)
{
	int64_t delta = 0;

	pthread_mutex_lock(&b->lock);
	if (cut_check(b, cut->ino, cut->cut) == 0) {
		cut_note(b, cut->ino, cut->cut);
		for (uint32_t i = 0; i < HASH_SIZE; i++)
			for (struct mb_block *k = b->hash[i]; k; k = k->next)
				if (k->ino == cut->ino) {
					delta += block_cut(k, &k->now,
							   cut->from, cut->to);
					(void)block_cut(k, &k->safe, cut->from,
							cut->to);
				}
		if (b->free_units != UINT64_MAX)
			b->free_units += (uint64_t)-delta;
	}
	pthread_mutex_unlock(&b->lock);
	return delta;
}

void mini_blockd_purge(struct mini_blockd *b, uint64_t ino)
{
	pthread_mutex_lock(&b->lock);
	for (uint32_t i = 0; i < HASH_SIZE; i++) {
		struct mb_block **at = &b->hash[i];

		while (*at) {
			struct mb_block *k = *at;

			if (k->ino != ino) {
				at = &k->next;
				continue;
			}
			if (b->free_units != UINT64_MAX)
				b->free_units += (uint64_t)-block_cut(
					k, &k->now, 0, UINT64_MAX);
			*at = k->next;
			block_free(k);
		}
	}
	pthread_mutex_unlock(&b->lock);
}

static uint64_t end_of(struct mini_blockd *b, uint64_t ino, uint64_t *units)
{
	uint64_t end = 0;

	each_block(b, ino, block_sync);
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next) {
			if (k->ino != ino)
				continue;
			if (k->now.end > 0)
				end = u64_max(end, (k->index << k->log2) +
						   k->now.end);
			for (uint32_t u = 0; u < (1u << k->log2) / UNIT_SIZE;
			     u++)
				*units += k->now.units[u] != UNIT_HOLE;
		}
	return end;
}

uint64_t mini_blockd_end(struct mini_blockd *b, uint64_t ino, uint64_t *units)
{
	uint64_t end;

	pthread_mutex_lock(&b->lock);
	end = end_of(b, ino, units);
	pthread_mutex_unlock(&b->lock);
	return end;
}

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

static struct mb_conn *conn_find(struct mini_blockd *b, uint64_t id)
{
	for (struct mb_conn *c = b->conns; c; c = c->next)
		if (c->id == id && !c->closing)
			return c;
	return NULL;
}

static void conn_close(struct mb_conn *c)
{
	if (!c->closing)
		shutdown(c->fd, SHUT_RDWR);
	c->closing = true;
}

static void conn_write(struct mb_conn *c, const uint8_t *p, size_t len)
{
	while (len > 0 && !c->closing) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			conn_close(c);
			return;
		}
		p += n;
		len -= (size_t)n;
	}
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
	struct mb_conn *c = conn_find(b, conn_id);
	size_t len;
	uint8_t *buf;

	if (!c)
		return;
	if (b->lose_count > 0 && matches(b->lose_op, q->opcode)) {
		b->lose_count--;
		conn_close(c);
		return;
	}
	buf = frame_make(b, q, r, &len);
	if (b->hold_replies && matches(b->hold_reply_op, q->opcode)) {
		pend_add(b, (struct mb_pend){ .conn_id = conn_id, .h = *q,
					      .w = *w, .reply = buf,
					      .reply_len = len });
		return;
	}
	conn_write(c, buf, len);
	free(buf);
}

/* ---- requests ---- */

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
	r->status = cut_check(b, q.ino, q.cut);
	if (r->status)
		return;
	k = block_find(b, q.ino, q.index);
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
	r->status = cut_check(b, q.ino, q.cut);
	if (r->status)
		return;
	delta = units_take(b, block_get(b, q.ino, q.index, q.block_log2),
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
	each_block(b, q.ino, block_sync);
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
	m.end = end_of(b, q.ino, &m.units);
	o = reply_room(r, blk_end_reply_size(&m));
	blk_end_reply_encode(&o, &m);
}

static void execute(struct mini_blockd *b, uint64_t conn_id,
		    const struct frame *f)
{
	struct reply r = { 0 };
	struct blk_write w = { 0 };
	uint8_t *data = NULL;
	int64_t delta = 0;

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

static void do_hello(struct mini_blockd *b, struct mb_conn *c,
		     const struct frame *f)
{
	struct hello_reply m = { .version = WIRE_VERSION,
				 .role = WIRE_ROLE_BLOCKD,
				 .boot_id = b->boot_id, .peer_id = b->id };
	struct reply r = { .status = b->fenced ? -ESTALE : 0 };
	struct wire_out o = reply_room(&r, hello_reply_size(&m));
	size_t len;
	uint8_t *buf;

	hello_reply_encode(&o, &m);
	/* Older connections are finished before: requests held go. */
	for (struct mb_conn *old = b->conns; old; old = old->next)
		if (old != c)
			conn_close(old);
	buf = frame_make(b, &f->h, &r, &len);
	conn_write(c, buf, len);
	c->hello = true;
	if (b->fenced)
		conn_close(c);
	free(buf);
	free(r.body);
}

/* Takes over @f. */
static void received(struct mini_blockd *b, struct mb_conn *c, struct frame *f)
{
	b->received[f->h.opcode & 255]++;
	if (f->h.opcode == WIRE_OP_HELLO) {
		do_hello(b, c, f);
	} else if (!c->hello) {
		b->violations++;
		conn_close(c);
	} else if (b->hold && matches(b->hold_op, f->h.opcode)) {
		struct mb_pend p = { .conn_id = c->id, .f = f, .h = f->h };

		if (f->h.opcode == WIRE_OP_BLK_WRITE) {
			struct blk_write w;

			must(blk_write_parse(f->body, f->h.body_len, &w) == 0);
			for (struct mb_pend *o = b->pend; o; o = o->next)
				if (conn_find(b, o->conn_id) &&
				    overlaps(&o->w, &w))
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
		struct mb_conn *c = conn_find(b, p->conn_id);

		next = p->next;
		if (c && p->f && b->hold && matches(b->hold_op, p->h.opcode)) {
			pend_add(b, *p);
		} else if (c && p->reply && b->hold_replies &&
			   matches(b->hold_reply_op, p->h.opcode)) {
			pend_add(b, *p);
		} else {
			if (c && p->f)
				execute(b, p->conn_id, p->f);
			else if (c)
				conn_write(c, p->reply, p->reply_len);
			frame_free(p->f);
			free(p->reply);
		}
		free(p);
	}
}

/* ---- the loop ---- */

static void conn_read(struct mini_blockd *b, struct mb_conn *c)
{
	struct iovec iov[FRAME_IN_IOV_MAX];
	struct frame *f;
	int count = frame_in_space(&c->in, iov), rv;
	ssize_t len = readv(c->fd, iov, count);

	if (len <= 0) {
		conn_close(c);
		return;
	}
	frame_in_fed(&c->in, (size_t)len);
	while (!c->closing && (rv = frame_in_next(&c->in, &f)) != 0) {
		if (rv < 0) {
			b->violations++;
			conn_close(c);
			return;
		}
		received(b, c, f);
	}
}

static void conns_reap(struct mini_blockd *b)
{
	struct mb_conn **at = &b->conns;

	while (*at) {
		struct mb_conn *c = *at;

		if (!c->closing) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		close(c->fd);
		frame_in_fini(&c->in);
		free(c);
	}
}

static void conn_accept(struct mini_blockd *b)
{
	int one = 1, fd = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	struct mb_conn *c;

	if (fd < 0)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c = calloc(1, sizeof(*c));
	must(c && frame_in_init(&c->in, 0, NULL) == 0);
	c->fd = fd;
	c->id = ++b->next_conn;
	c->next = b->conns;
	b->conns = c;
}

static void *blockd_main(void *arg)
{
	struct mini_blockd *b = arg;
	struct pollfd p[CONNS_MAX + 2];
	struct mb_conn *of[CONNS_MAX];
	uint64_t v;

	fail_malloc_spared = true;
	pthread_mutex_lock(&b->lock);
	while (!b->stop) {
		uint32_t count = 0;

		pend_release(b);
		conns_reap(b);
		p[0] = (struct pollfd){ b->event_fd, POLLIN, 0 };
		p[1] = (struct pollfd){ b->listen_fd, POLLIN, 0 };
		for (struct mb_conn *c = b->conns; c; c = c->next) {
			must(count < CONNS_MAX);
			of[count] = c;
			p[2 + count++] = (struct pollfd){ c->fd, POLLIN, 0 };
		}
		pthread_mutex_unlock(&b->lock);
		(void)poll(p, count + 2, -1);
		pthread_mutex_lock(&b->lock);
		if (p[0].revents)
			must(read(b->event_fd, &v, sizeof(v)) == sizeof(v));
		for (uint32_t i = 0; i < count; i++)
			if (p[2 + i].revents && !of[i]->closing)
				conn_read(b, of[i]);
		if (p[1].revents && b->listen_fd >= 0)
			conn_accept(b);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static void kick(struct mini_blockd *b)
{
	uint64_t one = 1;

	must(write(b->event_fd, &one, sizeof(one)) == sizeof(one));
}

static void listen_open(struct mini_blockd *b)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(b->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int one = 1;

	/* It may have been replaced since poll() looked. */
	b->listen_fd = socket(AF_INET,
			      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	must(b->listen_fd >= 0);
	(void)setsockopt(b->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one,
			 sizeof(one));
	must(bind(b->listen_fd, (void *)&a, sizeof(a)) == 0);
	must(listen(b->listen_fd, 16) == 0);
	must(getsockname(b->listen_fd, (void *)&a, &len) == 0);
	b->port = ntohs(a.sin_port);
}

int mini_blockd_new(uint32_t id, uint64_t cluster_id, struct mini_blockd **ret)
{
	struct mini_blockd *b = calloc(1, sizeof(*b));

	must(b);
	b->id = id;
	b->cluster_id = cluster_id;
	b->boot_id = 1000 + id;
	b->free_units = UINT64_MAX;
	b->pend_tail = &b->pend;
	pthread_mutex_init(&b->lock, NULL);
	b->event_fd = eventfd(0, EFD_CLOEXEC);
	must(b->event_fd >= 0);
	listen_open(b);
	must(pthread_create(&b->thread, NULL, blockd_main, b) == 0);
	*ret = b;
	return 0;
}

void mini_blockd_free(struct mini_blockd *b)
{
	pthread_mutex_lock(&b->lock);
	b->stop = true;
	b->hold = b->hold_replies = false;
	for (struct mb_conn *c = b->conns; c; c = c->next)
		conn_close(c);
	pthread_mutex_unlock(&b->lock);
	kick(b);
	pthread_join(b->thread, NULL);
	pend_release(b);
	conns_reap(b);
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		while (b->hash[i]) {
			struct mb_block *k = b->hash[i];

			b->hash[i] = k->next;
			block_free(k);
		}
	if (b->listen_fd >= 0)
		close(b->listen_fd);
	close(b->event_fd);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

uint16_t mini_blockd_port(struct mini_blockd *b)
{
	return b->port;
}

/* ---- faults ---- */

static void die(struct mini_blockd *b)
{
	for (struct mb_conn *c = b->conns; c; c = c->next)
		conn_close(c);
}

static void reborn(struct mini_blockd *b, bool lose)
{
	b->boot_id += 1000;
	if (lose)
		each_block(b, 0, block_lose);
}

void mini_blockd_restart(struct mini_blockd *b, bool lose)
{
	pthread_mutex_lock(&b->lock);
	die(b);
	reborn(b, lose);
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_down(struct mini_blockd *b)
{
	pthread_mutex_lock(&b->lock);
	die(b);
	/* Nobody accepts on a socket that is shut down. */
	shutdown(b->listen_fd, SHUT_RDWR);
	close(b->listen_fd);
	b->listen_fd = -1;
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_up(struct mini_blockd *b, bool lose)
{
	pthread_mutex_lock(&b->lock);
	reborn(b, lose);
	listen_open(b);
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_move(struct mini_blockd *b)
{
	mini_blockd_down(b);
	pthread_mutex_lock(&b->lock);
	b->port = 0;
	pthread_mutex_unlock(&b->lock);
	mini_blockd_up(b, true);
}

void mini_blockd_drop(struct mini_blockd *b)
{
	pthread_mutex_lock(&b->lock);
	die(b);
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_hold(struct mini_blockd *b, uint16_t op, bool hold)
{
	pthread_mutex_lock(&b->lock);
	b->hold_op = op;
	b->hold = hold;
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_hold_replies(struct mini_blockd *b, uint16_t op, bool hold)
{
	pthread_mutex_lock(&b->lock);
	b->hold_reply_op = op;
	b->hold_replies = hold;
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

void mini_blockd_lose_replies(struct mini_blockd *b, uint16_t op, int count)
{
	pthread_mutex_lock(&b->lock);
	b->lose_op = op;
	b->lose_count = count;
	pthread_mutex_unlock(&b->lock);
}

void mini_blockd_fail(struct mini_blockd *b, uint16_t op, int err, int count)
{
	pthread_mutex_lock(&b->lock);
	b->fail_op = op;
	b->fail_err = err;
	b->fail_count = count;
	pthread_mutex_unlock(&b->lock);
}

void mini_blockd_corrupt(struct mini_blockd *b, int count)
{
	pthread_mutex_lock(&b->lock);
	b->corrupt_count = count;
	pthread_mutex_unlock(&b->lock);
}

void mini_blockd_set_free(struct mini_blockd *b, uint64_t units)
{
	pthread_mutex_lock(&b->lock);
	b->free_units = units;
	pthread_mutex_unlock(&b->lock);
}

void mini_blockd_fence(struct mini_blockd *b)
{
	pthread_mutex_lock(&b->lock);
	b->fenced = true;
	die(b);
	pthread_mutex_unlock(&b->lock);
	kick(b);
}

/* ---- the truth ---- */

static uint64_t read_counter(struct mini_blockd *b, const uint64_t *v)
{
	uint64_t n;

	pthread_mutex_lock(&b->lock);
	n = *v;
	pthread_mutex_unlock(&b->lock);
	return n;
}

uint64_t mini_blockd_executed(struct mini_blockd *b, uint16_t op)
{
	return read_counter(b, &b->executed[op & 255]);
}

uint64_t mini_blockd_received(struct mini_blockd *b, uint16_t op)
{
	return read_counter(b, &b->received[op & 255]);
}

uint64_t mini_blockd_violations(struct mini_blockd *b)
{
	return read_counter(b, &b->violations);
}

uint32_t mini_blockd_held(struct mini_blockd *b)
{
	uint32_t count = 0;

	pthread_mutex_lock(&b->lock);
	for (struct mb_pend *p = b->pend; p; p = p->next)
		count++;
	pthread_mutex_unlock(&b->lock);
	return count;
}

bool mini_blockd_peek(struct mini_blockd *b, uint64_t ino, uint64_t index,
		      uint32_t off, uint32_t len, bool durable, void *buf)
{
	struct mb_block *k;
	bool there = false;

	pthread_mutex_lock(&b->lock);
	k = block_find(b, ino, index);
	memset(buf, 0, len);
	if (k) {
		const struct mb_state *s = durable ? &k->safe : &k->now;

		memcpy(buf, s->bytes + off, len);
		there = s->there;
	}
	pthread_mutex_unlock(&b->lock);
	return there;
}

uint64_t mini_blockd_units(struct mini_blockd *b, uint64_t ino)
{
	uint64_t units = 0;

	pthread_mutex_lock(&b->lock);
	for (uint32_t i = 0; i < HASH_SIZE; i++)
		for (struct mb_block *k = b->hash[i]; k; k = k->next)
			for (uint32_t u = 0; k->ino == ino &&
			     u < (1u << k->log2) / UNIT_SIZE; u++)
				units += k->now.units[u] != UNIT_HOLE;
	pthread_mutex_unlock(&b->lock);
	return units;
}
