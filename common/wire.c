/* Frame header and field cursors: the only code that touches wire bytes. */
#include "common/wire.h"

#include <endian.h>

#include "common/crc32c.h"

/* Byte offsets in the header. Part of the protocol: never changed. */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 4,
	AT_OPCODE = 6,
	AT_FLAGS = 8,
	AT_STATUS = 12,
	AT_REQUEST_ID = 16,
	AT_CLUSTER_ID = 24,
	AT_EPOCH = 32,
	AT_SESSION = 40,
	AT_BODY_LEN = 48,
	AT_DATA_LEN = 52,
	AT_BODY_CRC = 56,
	AT_HEADER_CRC = 60, /* of all bytes before it */
};
_Static_assert(AT_HEADER_CRC + 4 == WIRE_HEADER_SIZE, "no padding");

static void store16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static void store32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static void store64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint16_t load16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

void wire_header_encode(const struct wire_header *h, uint8_t *out)
{
	store32(out + AT_MAGIC, WIRE_MAGIC);
	store16(out + AT_VERSION, h->version);
	store16(out + AT_OPCODE, h->opcode);
	store32(out + AT_FLAGS, h->flags);
	store32(out + AT_STATUS, h->status);
	store64(out + AT_REQUEST_ID, h->request_id);
	store64(out + AT_CLUSTER_ID, h->cluster_id);
	store64(out + AT_EPOCH, h->epoch);
	store64(out + AT_SESSION, h->session);
	store32(out + AT_BODY_LEN, h->body_len);
	store32(out + AT_DATA_LEN, h->data_len);
	store32(out + AT_BODY_CRC, h->body_crc);
	store32(out + AT_HEADER_CRC, crc32c(0, out, AT_HEADER_CRC));
}

int wire_header_decode(const uint8_t *in, struct wire_header *h)
{
	if (load32(in + AT_MAGIC) != WIRE_MAGIC)
		return -EBADMSG;
	if (load32(in + AT_HEADER_CRC) != crc32c(0, in, AT_HEADER_CRC))
		return -EBADMSG;

	h->version = load16(in + AT_VERSION);
	h->opcode = load16(in + AT_OPCODE);
	h->flags = load32(in + AT_FLAGS);
	h->status = load32(in + AT_STATUS);
	h->request_id = load64(in + AT_REQUEST_ID);
	h->cluster_id = load64(in + AT_CLUSTER_ID);
	h->epoch = load64(in + AT_EPOCH);
	h->session = load64(in + AT_SESSION);
	h->body_len = load32(in + AT_BODY_LEN);
	h->data_len = load32(in + AT_DATA_LEN);
	h->body_crc = load32(in + AT_BODY_CRC);

	/* Another version may have other flags and limits, but magic,
	 * version and checksum stay where they are, so it can be refused by
	 * name. */
	if (h->version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (h->flags & ~WIRE_F_KNOWN)
		return -EBADMSG;
	if (h->body_len > FRAME_BODY_MAX || h->data_len > FRAME_DATA_MAX)
		return -EBADMSG;
	return 0;
}

int wire_body_check(const struct wire_header *h, const uint8_t *body)
{
	return crc32c(0, body, h->body_len) == h->body_crc ? 0 : -EBADMSG;
}

/* ---- output ---- */

void wire_out_init(struct wire_out *o, void *buf, size_t cap)
{
	o->p = buf;
	o->len = 0;
	o->cap = cap;
	o->overflow = false;
}

/* Room for @len bytes, or NULL; after the first overflow always NULL, so that
 * a message is written whole or known to be broken. */
static uint8_t *out_take(struct wire_out *o, size_t len)
{
	uint8_t *p;

	if (o->overflow || len > o->cap - o->len) {
		o->overflow = true;
		return NULL;
	}
	p = o->p + o->len;
	o->len += len;
	return p;
}

void wire_put_u8(struct wire_out *o, uint8_t v)
{
	uint8_t *p = out_take(o, sizeof(v));

	if (p)
		*p = v;
}

void wire_put_u16(struct wire_out *o, uint16_t v)
{
	uint8_t *p = out_take(o, sizeof(v));

	if (p)
		store16(p, v);
}

void wire_put_u32(struct wire_out *o, uint32_t v)
{
	uint8_t *p = out_take(o, sizeof(v));

	if (p)
		store32(p, v);
}

void wire_put_u64(struct wire_out *o, uint64_t v)
{
	uint8_t *p = out_take(o, sizeof(v));

	if (p)
		store64(p, v);
}

void wire_put_i64(struct wire_out *o, int64_t v)
{
	wire_put_u64(o, (uint64_t)v);
}

void wire_put_raw(struct wire_out *o, const void *p, size_t len)
{
	uint8_t *to = out_take(o, len);

	if (to && len > 0)
		memcpy(to, p, len);
}

void wire_put_str(struct wire_out *o, struct wire_str s)
{
	if (s.len > UINT16_MAX) {
		o->overflow = true;
		return;
	}
	wire_put_u16(o, (uint16_t)s.len);
	wire_put_raw(o, s.p, s.len);
}

void wire_put_blob(struct wire_out *o, struct wire_str s)
{
	wire_put_u32(o, s.len);
	wire_put_raw(o, s.p, s.len);
}

/* ---- input ---- */

void wire_in_init(struct wire_in *i, const void *buf, size_t len)
{
	i->p = buf;
	i->len = len;
	i->bad = false;
}

/* The next @len bytes, or NULL; after the first overrun always NULL. */
static const uint8_t *in_take(struct wire_in *i, size_t len)
{
	const uint8_t *p = i->p;

	if (i->bad || len > i->len) {
		i->bad = true;
		return NULL;
	}
	if (len > 0)
		i->p += len;
	i->len -= len;
	return p;
}

uint8_t wire_get_u8(struct wire_in *i)
{
	const uint8_t *p = in_take(i, sizeof(uint8_t));

	return p ? *p : 0;
}

uint16_t wire_get_u16(struct wire_in *i)
{
	const uint8_t *p = in_take(i, sizeof(uint16_t));

	return p ? load16(p) : 0;
}

uint32_t wire_get_u32(struct wire_in *i)
{
	const uint8_t *p = in_take(i, sizeof(uint32_t));

	return p ? load32(p) : 0;
}

uint64_t wire_get_u64(struct wire_in *i)
{
	const uint8_t *p = in_take(i, sizeof(uint64_t));

	return p ? load64(p) : 0;
}

int64_t wire_get_i64(struct wire_in *i)
{
	return (int64_t)wire_get_u64(i);
}

static struct wire_str in_str(struct wire_in *i, uint32_t len)
{
	struct wire_str s = { NULL, 0 };
	const uint8_t *p = in_take(i, len);

	if (!i->bad) {
		s.p = p;
		s.len = len;
	}
	return s;
}

struct wire_str wire_get_str(struct wire_in *i)
{
	return in_str(i, wire_get_u16(i));
}

struct wire_str wire_get_blob(struct wire_in *i)
{
	return in_str(i, wire_get_u32(i));
}

int wire_in_end(const struct wire_in *i)
{
	return i->bad || i->len > 0 ? -EBADMSG : 0;
}

int wire_in_known(const struct wire_in *i)
{
	return i->bad ? -EBADMSG : 0;
}
