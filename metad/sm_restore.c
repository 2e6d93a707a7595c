/* Reading a snapshot: checksums first, then records into a new tree, then
 * whether they make sense together (sm_verify.c). */
#include "common/crc32c.h"
#include "metad/sm_priv.h"

#define RECORD_HEADER 4u
#define RECORD_MAX (RECORD_HEADER + COW_KEY_MAX + COW_VALUE_MAX)

/* Puts a record together from pieces of chunks. */
struct loader {
	struct cow *tree;
	uint8_t rec[RECORD_MAX];
	uint32_t have;
	uint8_t last[COW_KEY_MAX];
	uint32_t last_len;
	uint64_t count;
};

static uint32_t rec_klen(const struct loader *l)
{
	return l->rec[0] | (uint32_t)l->rec[1] << 8;
}

static uint32_t rec_vlen(const struct loader *l)
{
	return l->rec[2] | (uint32_t)l->rec[3] << 8;
}

/* Bytes the present record has, as far as they are known. */
static uint32_t rec_want(const struct loader *l)
{
	return l->have < RECORD_HEADER ? RECORD_HEADER :
	       RECORD_HEADER + rec_klen(l) + rec_vlen(l);
}

static int rec_store(struct loader *l)
{
	const uint8_t *key = l->rec + RECORD_HEADER;
	uint32_t klen = rec_klen(l);
	uint32_t least = klen < l->last_len ? klen : l->last_len;
	int order = memcmp(l->last, key, least);

	if (order > 0 || (order == 0 && l->last_len >= klen))
		return -EBADMSG;
	if (cow_reserve(l->tree, 1) != 0)
		return -ENOMEM;
	cow_put(l->tree, key, klen, key + klen, rec_vlen(l));
	memcpy(l->last, key, klen);
	l->last_len = klen;
	l->have = 0;
	l->count++;
	return 0;
}

static int load_bytes(struct loader *l, const uint8_t *p, size_t len)
{
	while (len > 0) {
		uint32_t part = (uint32_t)u64_min(len, rec_want(l) - l->have);
		int err;

		memcpy(l->rec + l->have, p, part);
		l->have += part;
		p += part;
		len -= part;
		if (l->have < RECORD_HEADER)
			continue;
		if (rec_klen(l) == 0 || rec_klen(l) > COW_KEY_MAX ||
		    rec_vlen(l) > COW_VALUE_MAX)
			return -EBADMSG;
		if (l->have < rec_want(l))
			continue;
		err = rec_store(l);
		if (err != 0)
			return err;
	}
	return 0;
}

static int read_header(struct wire_in *in, struct sm_snap_header *h)
{
	uint32_t crc;

	if (in->len < SM_SNAP_HEADER_SIZE)
		return -EBADMSG;
	crc = crc32c(0, in->p, SM_SNAP_HEADER_SIZE - 4);
	sm_snap_header_decode(in, h);
	if (in->bad || h->magic != SM_SNAP_MAGIC || h->crc != crc)
		return -EBADMSG;
	return h->version == SM_SNAP_VERSION ? 0 : -EPROTONOSUPPORT;
}

static int load_chunks(struct loader *l, struct wire_in *in,
		       const struct sm_snap_header *h)
{
	uint64_t left = h->stream_len;
	uint32_t crc = h->crc;

	while (left > 0) {
		uint64_t want = u64_min(left, SM_SNAP_CHUNK_SIZE);
		uint32_t len = wire_get_u32(in);
		uint32_t sum = wire_get_u32(in);
		int err;

		if (in->bad || len != want || in->len < want)
			return -EBADMSG;
		crc = crc32c(crc, in->p, len);
		if (crc != sum)
			return -EBADMSG;
		err = load_bytes(l, in->p, len);
		if (err != 0)
			return err;
		in->p += len;
		in->len -= len;
		left -= len;
	}
	if (wire_in_end(in) != 0 || l->have != 0 ||
	    l->count != h->record_count)
		return -EBADMSG;
	return 0;
}

static bool load_globals(struct sm_globals *g, struct wire_in *val)
{
	uint8_t all[SM_GLOBALS_SIZE] = { 0 };

	if (val->len != SM_GLOBALS_SIZE &&
	    val->len != SM_GLOBALS_SIZE_NO_HEIR &&
	    val->len != SM_GLOBALS_SIZE_NO_LOCKS &&
	    val->len != SM_GLOBALS_SIZE_NO_LOGS)
		return false;
	memcpy(all, val->p, val->len);
	return sm_globals_parse(all, sizeof(all), g) == 0;
}

/* What is kept outside the tree. */
static int load_rest(struct sm *sm)
{
	struct wire_in val;
	struct sm_key k;
	ssize_t len;

	sm_key_init(&k, SM_K_GLOBAL);
	if (!sm_get(sm, &k, &val) || !load_globals(&sm->g, &val))
		return -EBADMSG;
	sm_key_init(&k, SM_K_MAP);
	len = sm_blob_get(sm, &k, sm->out, SM_REPLY_MAX);
	if (len == -ENOENT && sm->g.next_ino == 0) {
		sm->map = cmap_new();
		return sm->map == NULL ? -ENOMEM : 0;
	}
	return len < 0 ? -EBADMSG :
			 cmap_decode(sm->out, (size_t)len, &sm->map);
}

int sm_restore(struct sm *sm, const void *buf, size_t len)
{
	struct loader l = { .tree = cow_new(sm->mem) };
	struct sm fresh = { .tree = l.tree, .out = sm->out, .mem = sm->mem,
			    .hash_mask = sm->hash_mask };
	struct sm_snap_header h;
	struct wire_in in;
	int err;

	/* A snapshot that is out reads the old tree. */
	assert(sm->snap_count == 0);
	if (l.tree == NULL)
		return -ENOMEM;
	wire_in_init(&in, buf, len);
	err = read_header(&in, &h);
	if (err == 0)
		err = load_chunks(&l, &in, &h);
	if (err == 0)
		err = load_rest(&fresh);
	if (err == 0 && !sm_verify(&fresh))
		err = -EBADMSG;
	if (err != 0) {
		cow_free(fresh.tree);
		cmap_free(fresh.map);
		return err;
	}
	cow_free(sm->tree);
	cmap_free(sm->map);
	*sm = fresh;
	return 0;
}
