/* Keys, compact numbers, and the tree seen as records. */
#include "metad/sm_priv.h"

void sm_key_init(struct sm_key *k, enum sm_kind kind)
{
	k->b[0] = (uint8_t)kind;
	k->len = 1;
}

void sm_key_raw(struct sm_key *k, const void *p, size_t len)
{
	assert(k->len + len <= sizeof(k->b));
	if (len > 0)
		memcpy(k->b + k->len, p, len);
	k->len += (uint32_t)len;
}

void sm_key_fixed_u64(struct sm_key *k, uint64_t v)
{
	uint64_t be = __builtin_bswap64(v);

	sm_key_raw(k, &be, sizeof(be));
}

void sm_key_u64(struct sm_key *k, uint64_t v)
{
	uint32_t size = v == 0 ? 0 : 8 - (uint32_t)__builtin_clzll(v) / 8;
	uint64_t be = __builtin_bswap64(v);

	k->b[k->len++] = (uint8_t)size;
	sm_key_raw(k, (const uint8_t *)&be + 8 - size, size);
}

void sm_key_after(const struct sm_key *k, struct sm_key *after)
{
	memcpy(after->b, k->b, k->len);
	after->len = k->len;
	/* The first byte is a small kind, so this ends. */
	while (after->b[after->len - 1] == UINT8_MAX)
		after->len--;
	after->b[after->len - 1]++;
}

uint64_t sm_get_key_u64(struct wire_in *in)
{
	uint32_t size = wire_get_u8(in);
	uint64_t v = 0;

	if (size > 8) {
		in->bad = true;
		return 0;
	}
	for (uint32_t i = 0; i < size; i++)
		v = v << 8 | wire_get_u8(in);
	/* One encoding a number, or order and identity would differ. */
	if (size > 0 && v >> (8 * (size - 1)) == 0)
		in->bad = true;
	return v;
}

uint64_t sm_get_key_fixed_u64(struct wire_in *in)
{
	return __builtin_bswap64(wire_get_u64(in));
}

struct sm_key sm_key1(enum sm_kind kind, uint64_t a)
{
	struct sm_key k;

	sm_key_init(&k, kind);
	sm_key_u64(&k, a);
	return k;
}

struct sm_key sm_key2(enum sm_kind kind, uint64_t a, uint64_t b)
{
	struct sm_key k = sm_key1(kind, a);

	sm_key_u64(&k, b);
	return k;
}

void sm_put_varint(struct wire_out *o, uint64_t v)
{
	while (v >= 0x80) {
		wire_put_u8(o, (uint8_t)(v | 0x80));
		v >>= 7;
	}
	wire_put_u8(o, (uint8_t)v);
}

uint64_t sm_get_varint(struct wire_in *in)
{
	uint64_t v = 0;

	for (uint32_t shift = 0; shift < 64; shift += 7) {
		uint8_t b = wire_get_u8(in);

		if (shift == 63 && b > 1)
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if ((b & 0x80) == 0)
			return v;
	}
	in->bad = true;
	return 0;
}

bool sm_get(const struct sm *sm, const struct sm_key *k, struct wire_in *val)
{
	const uint8_t *p;
	uint32_t len;

	if (!cow_get(sm->tree, k->b, k->len, &p, &len))
		return false;
	wire_in_init(val, p, len);
	return true;
}

void sm_put(struct sm *sm, const struct sm_key *k, const struct wire_out *val)
{
	assert(!val->overflow);
	cow_put(sm->tree, k->b, k->len, val->p, (uint32_t)val->len);
}

bool sm_del(struct sm *sm, const struct sm_key *k)
{
	return cow_del(sm->tree, k->b, k->len);
}

void sm_del_prefix(struct sm *sm, const struct sm_key *prefix)
{
	struct sm_key after;

	sm_key_after(prefix, &after);
	(void)cow_del_range(sm->tree, prefix->b, prefix->len, after.b,
			    after.len); /* none is fine */
}

bool sm_any_prefix(const struct sm *sm, const struct sm_key *prefix)
{
	struct cow_iter it;

	return sm_seek_prefix(sm, &it, prefix, prefix->len);
}

static bool has_prefix(const struct cow_iter *it, const struct sm_key *k,
		       uint32_t prefix_len)
{
	return it->klen >= prefix_len && memcmp(it->key, k->b, prefix_len) == 0;
}

bool sm_seek_prefix(const struct sm *sm, struct cow_iter *it,
		    const struct sm_key *k, uint32_t prefix_len)
{
	return cow_seek(sm->tree, it, k->b, k->len) &&
	       has_prefix(it, k, prefix_len);
}

bool sm_next_prefix(struct cow_iter *it, const struct sm_key *k,
		    uint32_t prefix_len)
{
	return cow_next(it) && has_prefix(it, k, prefix_len);
}

void sm_blob_put(struct sm *sm, const struct sm_key *prefix, const void *p,
		 size_t len)
{
	struct sm_key k = *prefix;
	struct sm_key after;
	const uint8_t *at = p;
	uint8_t chunk = 0;

	assert(len <= SM_BLOB_MAX);
	k.len++;
	do {
		size_t part = u64_min(len, COW_VALUE_MAX);

		k.b[prefix->len] = chunk++;
		cow_put(sm->tree, k.b, k.len, at, (uint32_t)part);
		at += part;
		len -= part;
	} while (len > 0);
	/* Chunks of a longer one that was there. */
	k.b[prefix->len] = chunk;
	sm_key_after(prefix, &after);
	(void)cow_del_range(sm->tree, k.b, k.len, after.b, after.len);
}

ssize_t sm_blob_get(const struct sm *sm, const struct sm_key *prefix,
		    void *buf, size_t cap)
{
	struct cow_iter it;
	uint8_t *to = buf;
	size_t len = 0;

	if (!sm_seek_prefix(sm, &it, prefix, prefix->len))
		return -ENOENT;
	do {
		if (len + it.vlen > cap)
			return -ERANGE;
		if (it.vlen > 0)
			memcpy(to + len, it.val, it.vlen);
		len += it.vlen;
	} while (sm_next_prefix(&it, prefix, prefix->len));
	return (ssize_t)len;
}
