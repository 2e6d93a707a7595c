/* A block's image and its value in the index. */
#include "blockd/image.h"

#include "blockd/extent.h"
#include "common/crc32c.h"
#include "common/wire_blk.h"

#define IMAGE_FORMAT 1u

enum run_kind { RUN_UNWRITTEN = 1, RUN_DATA = 2 };

_Static_assert(LOC_MEMORY < EXTENT_LOC_MIN, "special locations are no units");

uint32_t image_allocated(const struct image *m)
{
	uint32_t count = 0;

	for (uint32_t u = 0; u < image_units(m); u++)
		count += m->loc[u] != LOC_HOLE;
	return count;
}

struct image_run image_run_at(const struct image *m, uint32_t u,
			      uint32_t limit)
{
	struct image_run r = { .first = u, .count = 1, .loc = m->loc[u] };
	uint32_t step = loc_is_disk(r.loc) ? 1 : 0;

	while (u + r.count < limit && m->loc[u + r.count] ==
	       r.loc + step * r.count) {
		/* A run of locations stays in its segment. */
		if (step == 1 && (r.loc + r.count) % SEG_UNITS == 0)
			break;
		r.count++;
	}
	return r;
}

static uint32_t value_crc(const struct image_key *key, const void *p,
			  size_t len)
{
	uint8_t k[16];
	struct wire_out o;

	wire_out_init(&o, k, sizeof(k));
	wire_put_u64(&o, key->ino);
	wire_put_u64(&o, key->index);
	return crc32c(crc32c(0, k, sizeof(k)), p, len);
}

void image_encode(struct wire_out *o, const struct image_key *key,
		  const struct image *m)
{
	size_t start = o->len;
	struct image_run r;

	wire_put_u8(o, IMAGE_FORMAT);
	wire_put_u8(o, m->block_log2);
	wire_put_u32(o, m->end);
	wire_put_u32(o, image_allocated(m));
	wire_put_u64(o, m->cut);
	wire_put_i64(o, m->mtime_ns);
	wire_put_u64(o, m->version);
	for (uint32_t u = 0; u < image_units(m); u += r.count) {
		r = image_run_at(m, u, image_units(m));
		if (r.loc == LOC_HOLE)
			continue;
		assert(r.loc != LOC_MEMORY);
		wire_put_u8(o, r.loc == LOC_UNWRITTEN ? RUN_UNWRITTEN :
							RUN_DATA);
		wire_put_u16(o, (uint16_t)r.first);
		wire_put_u16(o, (uint16_t)r.count);
		if (r.loc == LOC_UNWRITTEN)
			continue;
		wire_put_u64(o, r.loc);
		for (uint32_t i = 0; i < r.count; i++)
			wire_put_u32(o, m->crc[u + i]);
	}
	if (!o->overflow)
		wire_put_u32(o, value_crc(key, o->p + start, o->len - start));
}

static int head_decode(struct wire_in *i, struct image_head *h)
{
	uint8_t format = wire_get_u8(i);

	h->block_log2 = wire_get_u8(i);
	h->end = wire_get_u32(i);
	h->units = wire_get_u32(i);
	h->cut = wire_get_u64(i);
	h->mtime_ns = wire_get_i64(i);
	h->version = wire_get_u64(i);
	if (format > IMAGE_FORMAT)
		return -EPROTONOSUPPORT;
	if (i->bad || format != IMAGE_FORMAT || !image_log2_ok(h->block_log2) ||
	    h->end > 1u << h->block_log2)
		return -EBADMSG;
	return 0;
}

/* Sets @i to what the value's checksum covers. */
static int value_open(const struct image_key *key, const void *p, size_t len,
		      struct wire_in *i, struct image_head *h)
{
	struct wire_in sum;

	if (len < 4)
		return -EBADMSG;
	wire_in_init(&sum, (const uint8_t *)p + len - 4, 4);
	if (wire_get_u32(&sum) != value_crc(key, p, len - 4))
		return -EBADMSG;
	wire_in_init(i, p, len - 4);
	return head_decode(i, h);
}

int image_peek(const struct image_key *key, const void *p, size_t len,
	       struct image_head *h)
{
	struct wire_in i;

	return value_open(key, p, len, &i, h);
}

static int run_decode(struct wire_in *i, struct image *m, uint32_t *next)
{
	uint8_t kind = wire_get_u8(i);
	uint32_t first = wire_get_u16(i);
	uint32_t count = wire_get_u16(i);
	uint64_t loc = kind == RUN_DATA ? wire_get_u64(i) : LOC_UNWRITTEN;

	if (i->bad || (kind != RUN_DATA && kind != RUN_UNWRITTEN) ||
	    first < *next || count == 0 || first + count > image_units(m))
		return -EBADMSG;
	if (kind == RUN_DATA &&
	    (loc < EXTENT_LOC_MIN || loc + count > (uint64_t)UINT32_MAX + 1 ||
	     loc / SEG_UNITS != (loc + count - 1) / SEG_UNITS))
		return -EBADMSG;
	for (uint32_t k = 0; k < count; k++) {
		m->loc[first + k] = kind == RUN_DATA ? (uint32_t)loc + k :
						       LOC_UNWRITTEN;
		if (kind == RUN_DATA)
			m->crc[first + k] = wire_get_u32(i);
	}
	*next = first + count;
	return i->bad ? -EBADMSG : 0;
}

int image_decode(const struct image_key *key, const void *p, size_t len,
		 struct image *m)
{
	struct image_head h;
	struct wire_in i;
	uint32_t next = 0;
	int err;

	err = value_open(key, p, len, &i, &h);
	if (err != 0)
		return err;
	m->block_log2 = h.block_log2;
	m->end = h.end;
	m->cut = h.cut;
	m->mtime_ns = h.mtime_ns;
	m->version = h.version;
	memset(m->loc, 0, image_units(m) * sizeof(*m->loc));
	while (i.len > 0 && err == 0)
		err = run_decode(&i, m, &next);
	if (err == 0 && image_allocated(m) != h.units)
		err = -EBADMSG;
	return err;
}

bool image_cut_blocks(const struct image_cut *c, uint64_t *first,
		      uint64_t *last)
{
	if (c->cut == IMAGE_CUT_PURGE) {
		*first = 0;
		*last = UINT64_MAX;
		return true;
	}
	if (c->from >= c->to)
		return false;
	*first = c->from >> c->block_log2;
	*last = c->to == BLK_CUT_TO_END ? UINT64_MAX :
					  (c->to - 1) >> c->block_log2;
	return true;
}

bool image_cut_hit(const struct image_cut *c, uint64_t index,
		   const struct image *m, struct image_hit *hit)
{
	uint64_t size = (uint64_t)1 << m->block_log2;
	uint64_t base = index << m->block_log2;
	uint64_t from, to;

	if (m->version >= c->version)
		return false;
	if (c->cut == IMAGE_CUT_PURGE) {
		*hit = (struct image_hit){ 0, image_units(m), 0 };
		return true;
	}
	if (m->block_log2 != c->block_log2 || m->cut >= c->cut ||
	    c->from >= c->to || c->to <= base)
		return false;
	if (c->from > base && c->from - base >= size)
		return false;
	from = c->from > base ? c->from - base : 0;
	to = c->to == BLK_CUT_TO_END ? size : u64_min(c->to - base, size);
	hit->first = (uint32_t)((from + UNIT_SIZE - 1) >> UNIT_SHIFT);
	hit->last = (uint32_t)(to >> UNIT_SHIFT);
	if (hit->last < hit->first)
		hit->last = hit->first;
	hit->end = m->end;
	if (c->to == BLK_CUT_TO_END)
		hit->end = (uint32_t)u64_min(m->end, from);
	return true;
}
