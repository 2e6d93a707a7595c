/* One field list a message: struct, encoded size, encoder and decoder come
 * from the same list, so they cannot drift apart (after cowsql's serialize.h).
 *
 *	#define PAIR_FIELDS(F) F(u64, ino) F(str, name)
 *	WIRE_MESSAGE(pair, PAIR_FIELDS)
 *
 * gives struct pair, pair_size(), pair_encode(), pair_decode(). Strings and
 * blobs decode to pointers borrowed from the input. Types: u8 u16 u32 u64 i64
 * str (up to 65535 bytes) blob.
 *
 * New fields are appended, none is reused. F(SINCE(3, u32), size) is one that
 * minor 3 appended: who does not know it skips it, who does not send it means
 * 0 or nothing, so that has to be what was done before. Only a message with
 * which a body ends may have such.
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

/* What an appended field is as long as it is there. */
#define WIRE_CTYPE_SINCE(minor, t) WIRE_CTYPE_##t
#define WIRE_SIZE_SINCE(minor, t) WIRE_SIZE_##t
#define wire_put_SINCE(minor, t) wire_put_##t
#define wire_get_SINCE(minor, t) wire_more_##t
#define WIRE_MORE(t)                                                          \
	static inline WIRE_CTYPE_##t wire_more_##t(struct wire_in *i)         \
	{                                                                     \
		return i->len > 0 ? wire_get_##t(i) : (WIRE_CTYPE_##t){ 0 };  \
	}
WIRE_MORE(u8)
WIRE_MORE(u16)
WIRE_MORE(u32)
WIRE_MORE(u64)
WIRE_MORE(i64)
WIRE_MORE(str)
WIRE_MORE(blob)

/* The minor that brought it. */
#define WIRE_MINOR_u8 0
#define WIRE_MINOR_u16 0
#define WIRE_MINOR_u32 0
#define WIRE_MINOR_u64 0
#define WIRE_MINOR_i64 0
#define WIRE_MINOR_str 0
#define WIRE_MINOR_blob 0
#define WIRE_MINOR_SINCE(minor, t) minor

/* The build that stands for the next minor has one field more in some. */
#ifdef HAIL_NEXT_MINOR
#define WIRE_NEXT(F) F(SINCE(2, u64), next)
#else
#define WIRE_NEXT(F)
#endif

#define WIRE_F_MEMBER(t, f) WIRE_CTYPE_##t f;
#define WIRE_F_SIZE(t, f) +WIRE_SIZE_##t(m->f)
#define WIRE_F_PUT(t, f) wire_put_##t(o, m->f);
#define WIRE_F_GET(t, f) m->f = wire_get_##t(i);
#define WIRE_F_SKIP(t, f)                                                     \
	if (WIRE_MINOR_##t <= (int)minor)                                     \
		(void)wire_get_##t(&in);

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
	/* Decode a whole body; what is behind it is a later minor's. */      \
	static inline int name##_parse(const void *p, size_t len,             \
				       struct name *m)                        \
	{                                                                     \
		struct wire_in in;                                            \
		wire_in_init(&in, p, len);                                    \
		name##_decode(&in, m);                                        \
		return wire_in_known(&in);                                    \
	}                                                                     \
	/* How much of a body @minor knows; @len: it is none. */              \
	static inline size_t name##_known(const void *p, size_t len,          \
					  unsigned minor)                     \
	{                                                                     \
		struct wire_in in;                                            \
		wire_in_init(&in, p, len);                                    \
		FIELDS(WIRE_F_SKIP)                                           \
		(void)minor;                                                  \
		return in.bad ? len : len - in.len;                           \
	}                                                                     \
	struct name

/* A message without fields cannot be a C struct without members. */
#define WIRE_NO_FIELDS(F) F(u8, reserved)

#endif
