/* Journal records: encode, check, decode. */
#include "blockd/jrec.h"

#include "blockd/extent.h"
#include "common/crc32c.h"

#define JREC_MAGIC 0x4c4e524au /* "JRNL" */
#define JREC_FORMAT 1u

enum jrec_run_kind {
	JREC_RUN_END = 0,
	JREC_RUN_HOLE = 1,
	JREC_RUN_UNWRITTEN = 2,
	JREC_RUN_DATA = 3,
	JREC_RUN_INLINE = 4,
};

void jrec_begin(struct wire_out *o)
{
	static const uint8_t zeros[JREC_HEADER_SIZE];

	assert(o->len == 0);
	wire_put_raw(o, zeros, sizeof(zeros));
}

void jrec_put_block(struct wire_out *o, const struct image_key *key,
		    const struct image *m)
{
	wire_put_u8(o, JREC_BLOCK);
	wire_put_u64(o, key->ino);
	wire_put_u64(o, key->index);
	wire_put_u8(o, m->block_log2);
	wire_put_u32(o, m->end);
	wire_put_u64(o, m->cut);
	wire_put_i64(o, m->mtime_ns);
	wire_put_u64(o, m->version);
}

void jrec_put_run(struct wire_out *o, const struct image_run *r, bool inlined,
		  const uint32_t *crc)
{
	uint8_t kind = JREC_RUN_DATA;

	if (r->loc == LOC_HOLE)
		kind = JREC_RUN_HOLE;
	else if (r->loc == LOC_UNWRITTEN)
		kind = JREC_RUN_UNWRITTEN;
	else if (inlined)
		kind = JREC_RUN_INLINE;
	wire_put_u8(o, kind);
	wire_put_u16(o, (uint16_t)r->first);
	wire_put_u16(o, (uint16_t)r->count);
	if (kind != JREC_RUN_DATA && kind != JREC_RUN_INLINE)
		return;
	assert(kind == JREC_RUN_INLINE || loc_is_disk(r->loc));
	wire_put_u64(o, r->loc);
	for (uint32_t i = 0; i < r->count; i++)
		wire_put_u32(o, crc[i]);
}

void jrec_put_block_end(struct wire_out *o)
{
	wire_put_u8(o, JREC_RUN_END);
}

void jrec_put_cut(struct wire_out *o, const struct image_cut *c)
{
	wire_put_u8(o, JREC_CUT);
	wire_put_u64(o, c->ino);
	wire_put_u64(o, c->cut);
	wire_put_u64(o, c->from);
	wire_put_u64(o, c->to);
	wire_put_u8(o, c->block_log2);
	wire_put_u64(o, c->version);
}

static void header_put(struct wire_out *o, const struct jrec_header *h,
		       uint32_t crc)
{
	wire_put_u32(o, JREC_MAGIC);
	wire_put_u32(o, crc);
	wire_put_u32(o, JREC_FORMAT);
	wire_put_u32(o, h->meta_len);
	wire_put_u32(o, h->unit_count);
	wire_put_u32(o, 0);
	wire_put_u64(o, h->nonce);
	wire_put_u64(o, h->seq);
	wire_put_u64(o, h->version);
	wire_put_u64(o, h->ino_max);
	wire_put_u64(o, h->session_max);
	wire_put_u64(o, 0);
	wire_put_u64(o, 0);
}

void jrec_finish(struct wire_out *o, struct jrec_header *h)
{
	struct wire_out ho;
	uint32_t crc;

	assert(!o->overflow && o->len >= JREC_HEADER_SIZE);
	h->meta_len = (uint32_t)o->len;
	wire_out_init(&ho, o->p, JREC_HEADER_SIZE);
	header_put(&ho, h, 0);
	assert(ho.len == JREC_HEADER_SIZE && !ho.overflow);
	crc = crc32c(0, o->p + 8, o->len - 8);
	wire_out_init(&ho, o->p + 4, 4);
	wire_put_u32(&ho, crc);
}

int jrec_peek(const void *p, uint64_t nonce, uint64_t max,
	      struct jrec_header *h)
{
	struct wire_in i;
	uint32_t magic, format, zero;

	wire_in_init(&i, p, JREC_HEADER_SIZE);
	magic = wire_get_u32(&i);
	(void)wire_get_u32(&i); /* checked with the items */
	format = wire_get_u32(&i);
	h->meta_len = wire_get_u32(&i);
	h->unit_count = wire_get_u32(&i);
	zero = wire_get_u32(&i);
	h->nonce = wire_get_u64(&i);
	h->seq = wire_get_u64(&i);
	h->version = wire_get_u64(&i);
	h->ino_max = wire_get_u64(&i);
	h->session_max = wire_get_u64(&i);
	if (magic != JREC_MAGIC || zero != 0 || h->nonce != nonce ||
	    h->meta_len < JREC_HEADER_SIZE || jrec_size(h) > max)
		return -EBADMSG;
	return format == JREC_FORMAT ? 0 : -EPROTONOSUPPORT;
}

/* Every inline unit against its sum. */
static int units_check(const void *p, const struct jrec_header *h)
{
	struct jrec_iter it;
	struct jrec_item item;
	struct jrec_run r;
	int n, k = 0;

	jrec_iter_init(&it, p, h);
	while ((n = jrec_next(&it, &item)) == 1) {
		if (item.kind != JREC_BLOCK)
			continue;
		while ((k = jrec_next_run(&it, &r)) == 1) {
			if (r.inlined &&
			    crc32c_check(0, r.units, r.run.count * UNIT_SIZE,
					 r.crcs, r.run.count * 4u) != 0)
				return -EBADMSG;
		}
		if (k < 0)
			return k;
	}
	if (n == 0 && it.units_left != 0)
		return -EBADMSG;
	return n;
}

int jrec_check_meta(const void *p, const struct jrec_header *h)
{
	const uint8_t *b = p;
	struct wire_in i;

	wire_in_init(&i, b + 4, 4);
	return wire_get_u32(&i) == crc32c(0, b + 8, h->meta_len - 8) ?
		       0 : -EBADMSG;
}

int jrec_check(const void *p, const struct jrec_header *h)
{
	int err = jrec_check_meta(p, h);

	return err != 0 ? err : units_check(p, h);
}

void jrec_iter_init(struct jrec_iter *it, const void *p,
		    const struct jrec_header *h)
{
	const uint8_t *b = p;

	*it = (struct jrec_iter){ 0 };
	wire_in_init(&it->in, b + JREC_HEADER_SIZE,
		     h->meta_len - JREC_HEADER_SIZE);
	it->units = b + u64_round_up(h->meta_len, UNIT_SIZE);
	it->units_left = h->unit_count;
}

static int block_get(struct jrec_iter *it, struct jrec_item *item)
{
	struct wire_in *i = &it->in;
	struct image *m = &item->m;

	item->key.ino = wire_get_u64(i);
	item->key.index = wire_get_u64(i);
	m->block_log2 = wire_get_u8(i);
	m->end = wire_get_u32(i);
	m->cut = wire_get_u64(i);
	m->mtime_ns = wire_get_i64(i);
	m->version = wire_get_u64(i);
	if (i->bad || !image_log2_ok(m->block_log2) ||
	    m->end > 1u << m->block_log2)
		return -EBADMSG;
	it->next = 0;
	it->limit = image_units(m);
	return 1;
}

static int cut_get(struct jrec_iter *it, struct image_cut *c)
{
	struct wire_in *i = &it->in;

	c->ino = wire_get_u64(i);
	c->cut = wire_get_u64(i);
	c->from = wire_get_u64(i);
	c->to = wire_get_u64(i);
	c->block_log2 = wire_get_u8(i);
	c->version = wire_get_u64(i);
	if (i->bad)
		return -EBADMSG;
	if (c->cut != IMAGE_CUT_PURGE && !image_log2_ok(c->block_log2))
		return -EBADMSG;
	return 1;
}

int jrec_next(struct jrec_iter *it, struct jrec_item *item)
{
	if (it->in.len == 0 || it->in.bad)
		return it->in.bad ? -EBADMSG : 0;
	memset(item, 0, sizeof(*item));
	item->kind = wire_get_u8(&it->in);
	if (item->kind == JREC_BLOCK)
		return block_get(it, item);
	if (item->kind == JREC_CUT)
		return cut_get(it, &item->cut);
	return -EBADMSG;
}

/* Location and sums of a data run. */
static int run_data(struct jrec_iter *it, struct jrec_run *r)
{
	uint64_t loc = wire_get_u64(&it->in);
	uint32_t count = r->run.count;

	if (it->in.bad || it->in.len < (size_t)count * 4)
		return -EBADMSG;
	if (!(r->inlined && loc == LOC_MEMORY) &&
	    (loc < EXTENT_LOC_MIN || loc + count > (uint64_t)UINT32_MAX + 1 ||
	     loc / SEG_UNITS != (loc + count - 1) / SEG_UNITS))
		return -EBADMSG;
	r->run.loc = (uint32_t)loc;
	r->crcs = it->in.p;
	it->in.p += (size_t)count * 4;
	it->in.len -= (size_t)count * 4;
	if (!r->inlined)
		return 1;
	if (count > it->units_left)
		return -EBADMSG;
	r->units = it->units;
	it->units += (size_t)count * UNIT_SIZE;
	it->units_left -= count;
	return 1;
}

int jrec_next_run(struct jrec_iter *it, struct jrec_run *r)
{
	uint8_t kind = wire_get_u8(&it->in);

	memset(r, 0, sizeof(*r));
	if (it->in.bad)
		return -EBADMSG;
	if (kind == JREC_RUN_END)
		return 0;
	r->run.first = wire_get_u16(&it->in);
	r->run.count = wire_get_u16(&it->in);
	if (it->in.bad || r->run.count == 0 || r->run.first < it->next ||
	    r->run.first + r->run.count > it->limit)
		return -EBADMSG;
	it->next = r->run.first + r->run.count;
	r->inlined = kind == JREC_RUN_INLINE;
	if (kind == JREC_RUN_DATA || kind == JREC_RUN_INLINE)
		return run_data(it, r);
	if (kind != JREC_RUN_HOLE && kind != JREC_RUN_UNWRITTEN)
		return -EBADMSG;
	r->run.loc = kind == JREC_RUN_HOLE ? LOC_HOLE : LOC_UNWRITTEN;
	return 1;
}
