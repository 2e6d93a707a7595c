/* Records and slots of a log's regions. */
#include "common/log_rec.h"

#include "common/crc32c.h"
#include "common/wire.h"

#define SLOT_MAGIC 0x474f4c48u /* "HLOG" */

/* A record: u32 crc of what follows, u32 len, u64 seq, u64 off, u64 arg,
 * i64 time_ns, u32 kind, u32 0, data, zeros. */
void log_rec_encode(const struct log_rec *r, uint8_t *to)
{
	uint32_t size = log_rec_size(r->len);
	uint32_t used = LOG_REC_HEADER + r->len;
	struct wire_out o;

	wire_out_init(&o, to, LOG_REC_HEADER);
	wire_put_u32(&o, 0);
	wire_put_u32(&o, r->len);
	wire_put_u64(&o, r->seq);
	wire_put_u64(&o, r->off);
	wire_put_u64(&o, r->arg);
	wire_put_i64(&o, r->time_ns);
	wire_put_u32(&o, (uint32_t)r->kind);
	wire_put_u32(&o, 0);
	if (r->len > 0)
		memcpy(to + LOG_REC_HEADER, r->data, r->len);
	memset(to + used, 0, size - used);
	wire_out_init(&o, to, 4);
	wire_put_u32(&o, crc32c(0, to + 4, size - 4));
}

static bool rec_sane(const struct log_rec *r)
{
	uint64_t room;

	if (r->seq == 0 || r->off > FILE_SIZE_MAX)
		return false;
	room = FILE_SIZE_MAX - r->off;
	switch (r->kind) {
	case LOG_REC_WRITE:
		return r->len > 0 && r->len <= room && r->arg == 0;
	case LOG_REC_SIZE:
		return r->len == 0 && r->arg == 0;
	case LOG_REC_ZERO:
		return r->len == 0 && r->arg > 0 && r->arg <= room;
	}
	return false;
}

int64_t log_rec_decode(const uint8_t *p, size_t room, struct log_rec *r)
{
	uint32_t crc, kind, zero, size;
	struct wire_in in;

	if (room < LOG_REC_HEADER)
		return room >= 4 && (p[0] | p[1] | p[2] | p[3]) ? -EBADMSG : 0;
	wire_in_init(&in, p, LOG_REC_HEADER);
	crc = wire_get_u32(&in);
	r->len = wire_get_u32(&in);
	r->seq = wire_get_u64(&in);
	r->off = wire_get_u64(&in);
	r->arg = wire_get_u64(&in);
	r->time_ns = wire_get_i64(&in);
	kind = wire_get_u32(&in);
	zero = wire_get_u32(&in);
	if (r->seq == 0 && crc == 0)
		return 0;
	if (zero != 0 || r->len > room - LOG_REC_HEADER ||
	    log_rec_size(r->len) > room)
		return -EBADMSG;
	size = log_rec_size(r->len);
	r->kind = (enum log_rec_kind)kind;
	r->data = p + LOG_REC_HEADER;
	if (crc32c(0, p + 4, size - 4) != crc || !rec_sane(r))
		return -EBADMSG;
	return size;
}

uint32_t log_rec_peek(const uint8_t *p, struct log_rec *r)
{
	struct wire_in in;

	wire_in_init(&in, p, LOG_REC_HEADER);
	(void)wire_get_u32(&in); /* crc */
	r->len = wire_get_u32(&in);
	r->seq = wire_get_u64(&in);
	r->off = wire_get_u64(&in);
	r->arg = wire_get_u64(&in);
	r->time_ns = wire_get_i64(&in);
	r->kind = (enum log_rec_kind)wire_get_u32(&in);
	r->data = p + LOG_REC_HEADER;
	return log_rec_size(r->len);
}

/* A slot: u32 magic, u32 index, u64 cluster_id, u64 ino, u64 epoch, u64 seq,
 * u64 length, u64 length_first, u32 end, u32 crc of what is before. */
void log_slot_encode(const struct log_slot *s, uint8_t *to)
{
	struct wire_out o;

	wire_out_init(&o, to, LOG_SLOT_SIZE);
	wire_put_u32(&o, SLOT_MAGIC);
	wire_put_u32(&o, s->index);
	wire_put_u64(&o, s->cluster_id);
	wire_put_u64(&o, s->ino);
	wire_put_u64(&o, s->epoch);
	wire_put_u64(&o, s->seq);
	wire_put_u64(&o, s->length);
	wire_put_u64(&o, s->length_first);
	wire_put_u32(&o, s->end);
	wire_put_u32(&o, crc32c(0, to, LOG_SLOT_SIZE - 4));
}

static bool all_zero(const uint8_t *p, size_t len)
{
	while (len > 0 && p[len - 1] == 0)
		len--;
	return len == 0;
}

int log_slot_decode(const uint8_t *p, struct log_slot *s)
{
	uint32_t magic;
	struct wire_in in;

	if (all_zero(p, LOG_SLOT_SIZE))
		return -ENODATA;
	wire_in_init(&in, p, LOG_SLOT_SIZE);
	magic = wire_get_u32(&in);
	s->index = wire_get_u32(&in);
	s->cluster_id = wire_get_u64(&in);
	s->ino = wire_get_u64(&in);
	s->epoch = wire_get_u64(&in);
	s->seq = wire_get_u64(&in);
	s->length = wire_get_u64(&in);
	s->length_first = wire_get_u64(&in);
	s->end = wire_get_u32(&in);
	if (magic != SLOT_MAGIC ||
	    wire_get_u32(&in) != crc32c(0, p, LOG_SLOT_SIZE - 4))
		return -EBADMSG;
	if (s->seq == 0 || s->end <= LOG_DATA_OFF ||
	    s->end > 1u << LOG_REGION_LOG2_MAX || s->end % LOG_REC_ALIGN ||
	    s->length > FILE_SIZE_MAX || s->length_first > FILE_SIZE_MAX)
		return -EBADMSG;
	return 0;
}

int log_slot_newest(const uint8_t *p, struct log_slot *s)
{
	struct log_slot other;
	int a = log_slot_decode(p, s);
	int b = log_slot_decode(p + LOG_SLOT_SIZE, &other);

	if (a && b)
		return a == -ENODATA && b == -ENODATA ? -ENODATA : -EBADMSG;
	if (a || (!b && other.seq > s->seq))
		*s = other;
	return 0;
}

int log_rec_walk(const uint8_t *base, uint32_t from, uint32_t to, uint64_t seq,
		 int (*fn)(void *arg, const struct log_rec *r), void *arg,
		 uint64_t *seq_next)
{
	while (from < to) {
		struct log_rec r;
		int64_t size = log_rec_decode(base + from, to - from, &r);
		int err;

		if (size <= 0 || r.seq != seq)
			return -EBADMSG;
		err = fn ? fn(arg, &r) : 0;
		if (err)
			return err;
		from += (uint32_t)size;
		seq++;
	}
	if (seq_next)
		*seq_next = seq;
	return 0;
}
