/* Snapshots: freezing the tree, and streaming it out while commands go on. */
#include "common/crc32c.h"
#include "metad/sm_priv.h"

#define RECORD_HEADER 4u

struct sm_snap {
	struct cow_snap *cow;
	uint64_t size;
	uint64_t stream_left; /* bytes not yet in a chunk */
	struct cow_iter it;
	uint32_t record_at; /* bytes of the present record already out */
	uint32_t crc; /* of the last chunk */
	uint8_t *chunk; /* what goes out next: header or chunk */
	size_t chunk_len, chunk_at;
};

static int globals_put(struct sm *sm)
{
	uint8_t buf[128];
	struct wire_out o;
	struct sm_key k;

	if (cow_reserve(sm->tree, 1) != 0)
		return -ENOMEM;
	sm_key_init(&k, SM_K_GLOBAL);
	wire_out_init(&o, buf, sizeof(buf));
	sm_globals_encode(&o, &sm->g);
	assert(o.len == SM_GLOBALS_SIZE);
	if (sm->g.log_heir == 0)
		o.len = sm->g.lock_count > 0 ? SM_GLOBALS_SIZE_NO_HEIR :
			sm->g.log_epoch > 0 ? SM_GLOBALS_SIZE_NO_LOCKS :
					      SM_GLOBALS_SIZE_NO_LOGS;
	sm_put(sm, &k, &o);
	return 0;
}

static void put_header(struct sm_snap *s)
{
	struct sm_snap_header h = {
		.magic = SM_SNAP_MAGIC,
		.version = SM_SNAP_VERSION,
		.record_count = cow_snap_count(s->cow),
		.stream_len = s->stream_left,
	};
	struct wire_out o;

	wire_out_init(&o, s->chunk, SM_SNAP_HEADER_SIZE);
	sm_snap_header_encode(&o, &h);
	assert(o.len == SM_SNAP_HEADER_SIZE);
	s->crc = crc32c(0, s->chunk, SM_SNAP_HEADER_SIZE - 4);
	wire_out_init(&o, s->chunk + SM_SNAP_HEADER_SIZE - 4, 4);
	wire_put_u32(&o, s->crc);
	s->chunk_len = SM_SNAP_HEADER_SIZE;
	s->chunk_at = 0;
}

struct sm_snap *sm_snap_begin(struct sm *sm)
{
	struct sm_snap *s = calloc(1, sizeof(*s));
	uint64_t chunks;

	if (s == NULL)
		return NULL;
	s->chunk = malloc(SM_SNAP_CHUNK_HEADER + SM_SNAP_CHUNK_SIZE);
	if (s->chunk == NULL || globals_put(sm) != 0)
		goto out_free;
	s->cow = cow_snap_begin(sm->tree);
	if (s->cow == NULL)
		goto out_free;
	sm->snap_count++;
	s->stream_left = cow_snap_payload(s->cow) +
			 cow_snap_count(s->cow) * RECORD_HEADER;
	chunks = (s->stream_left + SM_SNAP_CHUNK_SIZE - 1) /
		 SM_SNAP_CHUNK_SIZE;
	s->size = SM_SNAP_HEADER_SIZE + s->stream_left +
		  chunks * SM_SNAP_CHUNK_HEADER;
	(void)cow_snap_seek(s->cow, &s->it, "", 0); /* not empty: globals */
	put_header(s);
	return s;

out_free:
	free(s->chunk);
	free(s);
	return NULL;
}

uint64_t sm_snap_size(const struct sm_snap *s)
{
	return s->size;
}

/* Copies what is left of [*at, ...) of one part of a record. */
static size_t copy_part(const void *part, uint32_t part_len, uint32_t *skip,
			uint8_t *to, size_t room)
{
	size_t len;

	if (*skip >= part_len) {
		*skip -= part_len;
		return 0;
	}
	len = u64_min(part_len - *skip, room);
	memcpy(to, (const uint8_t *)part + *skip, len);
	*skip = 0;
	return len;
}

/* Up to @room bytes of the present record, from s->record_at on. */
static size_t copy_record(struct sm_snap *s, uint8_t *to, size_t room)
{
	uint8_t head[RECORD_HEADER];
	uint32_t size = RECORD_HEADER + s->it.klen + s->it.vlen;
	uint32_t skip = s->record_at;
	struct wire_out o;
	size_t len;

	wire_out_init(&o, head, sizeof(head));
	wire_put_u16(&o, (uint16_t)s->it.klen);
	wire_put_u16(&o, (uint16_t)s->it.vlen);
	len = copy_part(head, sizeof(head), &skip, to, room);
	len += copy_part(s->it.key, s->it.klen, &skip, to + len, room - len);
	len += copy_part(s->it.val, s->it.vlen, &skip, to + len, room - len);
	s->record_at += (uint32_t)len;
	if (s->record_at == size) {
		s->record_at = 0;
		(void)cow_next(&s->it); /* stream_left tells the end */
	}
	return len;
}

static void fill_chunk(struct sm_snap *s)
{
	size_t want = u64_min(s->stream_left, SM_SNAP_CHUNK_SIZE);
	uint8_t *to = s->chunk + SM_SNAP_CHUNK_HEADER;
	struct wire_out o;
	size_t len = 0;

	while (len < want)
		len += copy_record(s, to + len, want - len);
	s->stream_left -= want;
	s->crc = crc32c(s->crc, to, want);
	wire_out_init(&o, s->chunk, SM_SNAP_CHUNK_HEADER);
	wire_put_u32(&o, (uint32_t)want);
	wire_put_u32(&o, s->crc);
	s->chunk_len = SM_SNAP_CHUNK_HEADER + want;
	s->chunk_at = 0;
}

size_t sm_snap_next(struct sm_snap *s, void *buf, size_t cap)
{
	uint8_t *to = buf;
	size_t len = 0;

	while (len < cap) {
		size_t part;

		if (s->chunk_at == s->chunk_len) {
			if (s->stream_left == 0)
				break;
			fill_chunk(s);
		}
		part = u64_min(cap - len, s->chunk_len - s->chunk_at);
		memcpy(to + len, s->chunk + s->chunk_at, part);
		s->chunk_at += part;
		len += part;
	}
	return len;
}

void sm_snap_end(struct sm *sm, struct sm_snap *s)
{
	if (s == NULL)
		return;
	sm->snap_count--;
	cow_snap_end(sm->tree, s->cow);
	free(s->chunk);
	free(s);
}
