/* One field list a message: struct, encoded size, encoder and decoder come
 * from the same list, so they cannot drift apart (after cowsql's serialize.h).
 *
 *	#define PAIR_FIELDS(F) F(u64, ino) F(str, name)
 *	WIRE_MESSAGE(pair, PAIR_FIELDS)
 *
 * gives struct pair, pair_size(), pair_encode(), pair_decode(). Strings and
 * blobs decode to pointers borrowed from the input. Types: u8 u16 u32 u64 i64
 * str (up to 65535 bytes) blob. New fields are appended, none is reused.
 */
#ifndef COMMON_WIRE_FIELDS_H
#define COMMON_WIRE_FIELDS_H

#include "common/wire.h"

#define WIRE_CTYPE_u8 uint8_t
#define WIRE_CTYPE_u16 uint16_t
#define WIRE_CTYPE_u32 uint32_t
#define WIRE_CTYPE_u64 uint64_t
#define WIRE_CTYPE_i64 int64_t
#define WIRE_CTYPE_str struct wire_str
#define WIRE_CTYPE_blob struct wire_str

#define WIRE_SIZE_u8(v) (sizeof(v))
#define WIRE_SIZE_u16(v) (sizeof(v))
#define WIRE_SIZE_u32(v) (sizeof(v))
#define WIRE_SIZE_u64(v) (sizeof(v))
#define WIRE_SIZE_i64(v) (sizeof(v))
#define WIRE_SIZE_str(v) ((size_t)2 + (v).len)
#define WIRE_SIZE_blob(v) ((size_t)4 + (v).len)

#define WIRE_F_MEMBER(t, f) WIRE_CTYPE_##t f;
#define WIRE_F_SIZE(t, f) +WIRE_SIZE_##t(m->f)
#define WIRE_F_PUT(t, f) wire_put_##t(o, m->f);
#define WIRE_F_GET(t, f) m->f = wire_get_##t(i);

#define WIRE_MESSAGE(name, FIELDS)                                            \
	struct name {                                                         \
		FIELDS(WIRE_F_MEMBER)                                         \
	};                                                                    \
	static inline size_t name##_size(const struct name *m)                \
	{                                                                     \
		(void)m;                                                      \
		return (size_t)0 FIELDS(WIRE_F_SIZE);                         \
	}                                                                     \
	static inline void name##_encode(struct wire_out *o,                  \
					 const struct name *m)                \
	{                                                                     \
		(void)o;                                                      \
		(void)m;                                                      \
		FIELDS(WIRE_F_PUT)                                            \
	}                                                                     \
	static inline void name##_decode(struct wire_in *i, struct name *m)   \
	{                                                                     \
		(void)i;                                                      \
		(void)m;                                                      \
		FIELDS(WIRE_F_GET)                                            \
	}                                                                     \
	/* Decode a whole body; trailing bytes are an error. */               \
	static inline int name##_parse(const void *p, size_t len,             \
				       struct name *m)                        \
	{                                                                     \
		struct wire_in in;                                            \
		wire_in_init(&in, p, len);                                    \
		name##_decode(&in, m);                                        \
		return wire_in_end(&in);                                      \
	}                                                                     \
	struct name

/* A message without fields cannot be a C struct without members. */
#define WIRE_NO_FIELDS(F) F(u8, reserved)

#endif
