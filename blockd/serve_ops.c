/* Handlers: what serve_validate() let through meets the store. */
#include "blockd/serve_priv.h"

#include "common/crc32c.h"
#include "common/diag.h"
#include "common/wire_admin.h"

static void plain_done(struct store_req *r, int err)
{
	blk_serve_reply_plain(container_of(r, struct serve_req, store), err);
}

/* ---- data ---- */

static void do_write(struct serve_req *q)
{
	q->s->n.bytes_written += q->m.u.write.len;
	q->store.done = plain_done;
	store_write(q->s->o.store, &q->store, &q->m.u.write, q->f->data);
}

/* What stands before the sums in the body of a read's answer. */
#define READ_REPLY_FIXED (8u + 1u + 4u)

static void read_done(struct store_req *r, int err)
{
	struct serve_req *q = container_of(r, struct serve_req, store);
	const struct blk_read *rd = &q->m.u.read;
	uint32_t sums_len = 4 * crc32c_piece_count(rd->off, rd->len);
	uint8_t *body = q->rd.sums - READ_REPLY_FIXED;
	struct wire_out o;

	if (err) {
		blk_serve_body_free(q);
		blk_serve_reply_plain(q, err);
		return;
	}
	if (q->rd.hole)
		sums_len = 0;
	wire_out_init(&o, body, READ_REPLY_FIXED);
	wire_put_u64(&o, q->s->o.boot_id);
	wire_put_u8(&o, q->rd.hole);
	wire_put_u32(&o, sums_len);
	assert(o.len == READ_REPLY_FIXED && !o.overflow);
	q->s->n.bytes_read += rd->len;
	if (q->rd.hole)
		blk_serve_reply(q, 0, o.len, NULL, 0);
	else
		blk_serve_reply(q, 0, o.len + sums_len,
			    (uint8_t *)q->rd.buf + q->rd.data_off, rd->len);
}

/* Returns false when there is no memory now. */
static bool do_read(struct serve_req *q)
{
	const struct blk_read *rd = &q->m.u.read;
	uint32_t pieces = crc32c_piece_count(rd->off, rd->len);
	uint8_t *body;

	q->rd.buf_cap = pieces * UNIT_SIZE;
	q->rd.buf = conn_buf_get(q->c, q->rd.buf_cap);
	if (!q->rd.buf)
		return false;
	conn_get(q->c);
	body = blk_serve_body(q, READ_REPLY_FIXED + 4 * (size_t)pieces);
	if (!body)
		return true;
	/* The sums go straight to their place in the answer. */
	q->rd.sums = body + READ_REPLY_FIXED;
	q->store.done = read_done;
	store_read(q->s->o.store, &q->store, rd, &q->rd);
	return true;
}

static void do_purge(struct serve_req *q)
{
	struct wire_str list = q->m.u.purge.inos;
	size_t count = list.len / sizeof(uint64_t);
	struct wire_in in;
	uint64_t *inos;

	inos = malloc(list.len);
	if (!inos) {
		blk_serve_reply_plain(q, -ENOMEM);
		return;
	}
	wire_in_init(&in, list.p, list.len);
	for (size_t i = 0; i < count; i++)
		inos[i] = wire_get_u64(&in);
	q->inos = inos;
	q->store.done = plain_done;
	store_purge(q->s->o.store, &q->store, inos, count);
}

/* ---- answers from memory ---- */

static void do_map(struct serve_req *q)
{
	size_t cap = q->m.u.map.count_max * (size_t)SERVE_MAP_ENTRY_MAX;
	struct blk_map_reply m = { .boot_id = q->s->o.boot_id };
	uint8_t *entries = malloc(cap), *body;
	struct wire_out o;
	int rv = -ENOMEM;

	if (entries) {
		wire_out_init(&o, entries, cap);
		rv = store_map(q->s->o.store, &q->m.u.map, &o, &m.next);
	}
	if (rv < 0) {
		blk_serve_reply_plain(q, rv);
		free(entries);
		return;
	}
	m.count = (uint32_t)rv;
	m.entries = (struct wire_str){ entries, (uint32_t)o.len };
	cap = blk_map_reply_size(&m);
	body = blk_serve_body(q, cap);
	if (body) {
		wire_out_init(&o, body, cap);
		blk_map_reply_encode(&o, &m);
		blk_serve_reply(q, 0, o.len, NULL, 0);
	}
	free(entries);
}

static void do_list(struct serve_req *q)
{
	size_t cap = q->m.u.list.count_max * (size_t)SERVE_LIST_ENTRY_MAX;
	struct blk_list_reply m = { .boot_id = q->s->o.boot_id };
	uint8_t *entries = malloc(cap), *body;
	struct wire_out o;
	bool done = false;
	int rv = -ENOMEM;

	if (entries) {
		wire_out_init(&o, entries, cap);
		rv = store_list(q->s->o.store, &q->m.u.list, &o, &done);
	}
	if (rv < 0) {
		blk_serve_reply_plain(q, rv);
		free(entries);
		return;
	}
	m.done = done;
	m.count = (uint32_t)rv;
	m.entries = (struct wire_str){ entries, (uint32_t)o.len };
	cap = blk_list_reply_size(&m);
	body = blk_serve_body(q, cap);
	if (body) {
		wire_out_init(&o, body, cap);
		blk_list_reply_encode(&o, &m);
		blk_serve_reply(q, 0, o.len, NULL, 0);
	}
	free(entries);
}

static void end_answer(struct serve_req *q)
{
	struct blk_end_reply m = { .boot_id = 0 };
	struct wire_out o;
	int rv = store_end(q->s->o.store, &q->m.u.end, &m);

	if (rv < 0) {
		blk_serve_reply_plain(q, rv);
		return;
	}
	m.boot_id = q->s->o.boot_id;
	wire_out_init(&o, q->head + WIRE_HEADER_SIZE,
		      sizeof(q->head) - WIRE_HEADER_SIZE);
	blk_end_reply_encode(&o, &m);
	blk_serve_reply(q, 0, o.len, NULL, 0);
}

static void end_synced(struct store_req *r, int err)
{
	struct serve_req *q = container_of(r, struct serve_req, store);

	if (err)
		blk_serve_reply_plain(q, err);
	else
		end_answer(q);
}

/* metad publishes what it is told: that must outlive a power cut, so what a
 * dead session wrote and never synced is synced first. */
static void do_end(struct serve_req *q)
{
	const struct serve_conn *sc = conn_user(q->c);

	if (sc->who.role != WIRE_ROLE_METAD) {
		end_answer(q);
		return;
	}
	q->store.done = end_synced;
	store_sync(q->s->o.store, &q->store, q->m.u.end.ino);
}

static void do_stat(struct serve_req *q)
{
	struct blk_stat_reply m = { .boot_id = q->s->o.boot_id };
	struct store_stat st;
	struct wire_out o;
	uint8_t *body;
	size_t cap;

	store_stat(q->s->o.store, &st);
	m.units_total = st.units_total;
	m.units_free = st.units_free;
	m.units_more = st.units_more;
	m.disk = q->s->o.disk;
	m.commit = st.commit;
	m.ino_max = st.ino_max;
	m.session_max = st.session_max;
	m.store_id_hi = st.store_id_hi;
	m.store_id_lo = st.store_id_lo;
	m.state = st.error ? BLK_STATE_READ_ONLY : BLK_STATE_OK;
	if (st.error && st.error_text)
		m.error = (struct wire_str){ st.error_text,
					     (uint32_t)strlen(st.error_text) };
	cap = blk_stat_reply_size(&m);
	body = blk_serve_body(q, cap);
	if (!body)
		return;
	wire_out_init(&o, body, cap);
	blk_stat_reply_encode(&o, &m);
	blk_serve_reply(q, 0, o.len, NULL, 0);
}

static void do_text(struct serve_req *q)
{
	bool status = q->m.op == WIRE_OP_ADMIN_STATUS;
	char *text = status ? blk_serve_status_json(q->s) :
			      blk_serve_stats_json(q->s);
	struct admin_text m;
	struct wire_out o;
	uint8_t *body;
	size_t cap;

	if (!text) {
		blk_serve_reply_plain(q, -ENOMEM);
		return;
	}
	m.json = (struct wire_str){ text, (uint32_t)strlen(text) };
	cap = admin_text_size(&m);
	body = blk_serve_body(q, cap);
	if (body) {
		wire_out_init(&o, body, cap);
		admin_text_encode(&o, &m);
		blk_serve_reply(q, 0, o.len, NULL, 0);
	}
	free(text);
}

/* ---- dispatch ---- */

bool serve_dispatch(struct serve_req *q)
{
	struct store *store = q->s->o.store;

	if (q->m.op == WIRE_OP_BLK_READ)
		return do_read(q);
	conn_get(q->c); /* for the request; put by req_free() */
	q->store.done = plain_done;
	switch (q->m.op) {
	case WIRE_OP_BLK_WRITE:
		do_write(q);
		break;
	case WIRE_OP_BLK_SYNC:
		store_sync(store, &q->store, q->m.u.sync.ino);
		break;
	case WIRE_OP_BLK_CUT:
		store_cut(store, &q->store, &q->m.u.cut);
		break;
	case WIRE_OP_BLK_ALLOC:
		store_alloc(store, &q->store, &q->m.u.alloc);
		break;
	case WIRE_OP_BLK_PURGE:
		do_purge(q);
		break;
	case WIRE_OP_BLK_MAP:
		do_map(q);
		break;
	case WIRE_OP_BLK_LIST:
		do_list(q);
		break;
	case WIRE_OP_BLK_END:
		do_end(q);
		break;
	case WIRE_OP_BLK_STAT:
		do_stat(q);
		break;
	case WIRE_OP_BLK_FENCE:
		peer_fence(q);
		break;
	case WIRE_OP_BLK_SCRUB:
		serve_scrub(q);
		break;
	case WIRE_OP_ADMIN_STATUS:
	case WIRE_OP_ADMIN_STATS:
		do_text(q);
		break;
	case WIRE_OP_ADMIN_STOP:
		q->stop = true;
		blk_serve_reply(q, 0, 0, NULL, 0);
		break;
	default:
		assert(q->m.op == WIRE_OP_PING);
		blk_serve_reply_plain(q, 0);
		break;
	}
	return true;
}
