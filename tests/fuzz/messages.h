/* Decoders of message lists (tests/lib/wire_list.h) as tables, with encoders
 * that fill in likely and unlikely values.
 */
#ifndef TESTS_FUZZ_MESSAGES_H
#define TESTS_FUZZ_MESSAGES_H

#include "tests/lib/fuzz.h"
#include "tests/lib/wire_list.h"

struct fuzz_message {
	const char *name;
	/* Decodes; what is accepted must encode to the same bytes, but for
	 * what other minors append, or lack. */
	void (*check)(const uint8_t *p, size_t len);
	/* Encodes random fields. */
	void (*encode)(struct fuzz_rng *rng, struct wire_out *o);
};

static inline struct wire_str fuzz_str(struct fuzz_rng *rng)
{
	static const char *const words[] = { "a", "b", "..", ".", "", "a/b",
		"dir", "user.x", "system.posix_acl_access", "127.0.0.1",
		"security.capability" };
	static const uint8_t zeros[300];
	const char *word = words[fuzz_below(rng, array_count(words))];

	if (fuzz_below(rng, 8) == 0)
		return (struct wire_str){ zeros, fuzz_below(rng, 300) };
	return (struct wire_str){ word, (uint32_t)strlen(word) };
}

/* Odd numbers alone never pass a check of several fields: most are mild. */
static inline uint64_t fuzz_number(struct fuzz_rng *rng, uint32_t mild)
{
	return fuzz_below(rng, 16) == 0 ? fuzz_odd_u64(rng) :
					  fuzz_below(rng, mild);
}

/* A single byte is a block's size, more often than not, or a role. */
static inline uint8_t fuzz_u8(struct fuzz_rng *rng)
{
	return fuzz_below(rng, 3) ? BLOCK_LOG2_DEFAULT :
				    (uint8_t)fuzz_number(rng, 5);
}

/* Flags are 0, more often than not. */
static inline uint32_t fuzz_u32(struct fuzz_rng *rng)
{
	return fuzz_below(rng, 2) ? 0 : (uint32_t)fuzz_number(rng, 5000);
}

#define FUZZ_u8(rng) fuzz_u8(rng)
#define FUZZ_u16(rng) ((uint16_t)fuzz_number(rng, 3))
#define FUZZ_u32(rng) fuzz_u32(rng)
#define FUZZ_u64(rng) fuzz_number(rng, 9)
#define FUZZ_i64(rng) ((int64_t)fuzz_number(rng, 9))
#define FUZZ_str(rng) fuzz_str(rng)
#define FUZZ_blob(rng) fuzz_str(rng)
#define FUZZ_SINCE(minor, t) FUZZ_##t
#define FUZZ_FILL(t, f) m.f = FUZZ_##t(rng);

/* Of all fields that minors have appended to one message. */
#define FUZZ_APPENDED_MAX 64u

#define FUZZ_DEFINE(name, FIELDS)                                           \
	static void check_##name(const uint8_t *p, size_t len)              \
	{                                                                   \
		uint8_t *again = malloc(len + FUZZ_APPENDED_MAX);           \
		size_t known = name##_known(p, len, WIRE_MINOR);            \
		struct wire_out o;                                          \
		struct name m;                                              \
                                                                            \
		if (again && name##_parse(p, len, &m) == 0) {               \
			wire_out_init(&o, again, len + FUZZ_APPENDED_MAX);  \
			name##_encode(&o, &m);                              \
			fuzz_expect(!o.overflow && o.len >= known);         \
			fuzz_expect(name##_size(&m) == o.len);              \
			fuzz_expect(known == 0 ||                           \
				    memcmp(again, p, known) == 0);          \
			while (o.len > known)                               \
				fuzz_expect(again[--o.len] == 0);           \
		}                                                           \
		free(again);                                                \
	}                                                                   \
	static void encode_##name(struct fuzz_rng *rng, struct wire_out *o) \
	{                                                                   \
		struct name m;                                              \
                                                                            \
		FIELDS(FUZZ_FILL)                                           \
		name##_encode(o, &m);                                       \
	}

#define FUZZ_ENTRY(name, FIELDS) { #name, check_##name, encode_##name },

/* The entry of @name, which must be there. */
static inline const struct fuzz_message *
fuzz_find(const struct fuzz_message *list, const char *name)
{
	while (strcmp(list->name, name) != 0)
		list++;
	return list;
}

#endif
