#include "blockd/serve_validate.h"

#include "common/crc32c.h"
#include "common/proto.h"

#define CLIENT (1u << WIRE_ROLE_CLIENT)
#define BLOCKD (1u << WIRE_ROLE_BLOCKD)
#define METAD (1u << WIRE_ROLE_METAD)
#define ADMIN (1u << WIRE_ROLE_ADMIN)
#define ANYBODY (CLIENT | BLOCKD | METAD | ADMIN)

/* Roles that may ask for @op; 0: unknown. */
static unsigned roles_of(uint16_t op)
{
	switch (op) {
	case WIRE_OP_PING:
	case WIRE_OP_BLK_STAT:
		return ANYBODY;
	case WIRE_OP_BLK_WRITE:
	case WIRE_OP_BLK_ALLOC:
		return CLIENT;
	case WIRE_OP_BLK_READ:
		return CLIENT | ADMIN;
	case WIRE_OP_BLK_SYNC:
	case WIRE_OP_BLK_MAP:
	case WIRE_OP_BLK_END:
		return CLIENT | METAD | ADMIN;
	case WIRE_OP_BLK_LIST:
		return METAD | ADMIN;
	/* A cut number comes from metad alone: an invented one would shut
	 * every writer of the file out. */
	case WIRE_OP_BLK_CUT:
	case WIRE_OP_BLK_PURGE:
	case WIRE_OP_BLK_FENCE:
		return METAD;
	case WIRE_OP_BLK_SCRUB:
	case WIRE_OP_ADMIN_STATUS:
	case WIRE_OP_ADMIN_STATS:
	case WIRE_OP_ADMIN_STOP:
		return ADMIN;
	default:
		return 0;
	}
}

static int check_block_log2(uint8_t block_log2)
{
	return block_log2 >= BLOCK_LOG2_MIN && block_log2 <= BLOCK_LOG2_MAX ?
		       0 : -EINVAL;
}

/* A range inside block @index of a file whose offsets are 63-bit. */
static int check_range(uint64_t ino, uint64_t index, uint32_t off,
		       uint32_t len, uint8_t block_log2)
{
	uint64_t end = (uint64_t)off + len;
	int rv = check_block_log2(block_log2);

	if (rv < 0 || ino == 0 || ino > INO_MAX || len == 0 ||
	    end > 1u << block_log2)
		return -EINVAL;
	if (index > (uint64_t)FILE_SIZE_MAX >> block_log2)
		return -EFBIG;
	return 0;
}

static int check_write(const struct wire_header *h, const uint8_t *data,
		       const struct blk_write *w)
{
	int rv;

	if (h->data_len != w->len)
		return -EBADMSG;
	rv = check_range(w->ino, w->index, w->off, w->len, w->block_log2);
	if (rv < 0)
		return rv;
	if ((w->index << w->block_log2) + w->off + w->len >
	    (uint64_t)FILE_SIZE_MAX)
		return -EFBIG;
	if (w->flags & ~BLK_WRITE_KNOWN)
		return -EINVAL;
	/* The sums are stored and sent to readers: only right ones. */
	return crc32c_check(w->off, data, w->len, w->sums.p, w->sums.len);
}

static int check_hello(const struct wire_header *h, const struct hello *m)
{
	struct proto_offer ours = proto_ours(), theirs = proto_of_hello(m);
	struct proto both;
	int rv = proto_agree(&ours, &theirs, &both);

	if (rv < 0)
		return rv;
	if (m->role < WIRE_ROLE_CLIENT || m->role > WIRE_ROLE_ADMIN)
		return -EBADMSG;
	if (m->role == WIRE_ROLE_CLIENT && h->session == 0)
		return -EINVAL;
	return 0;
}

static int check_map(struct blk_map *m)
{
	if (m->ino == 0 || m->first > m->last || m->count_max == 0)
		return -EINVAL;
	m->count_max = (uint32_t)u64_min(m->count_max, SERVE_MAP_COUNT_MAX);
	return check_block_log2(m->block_log2);
}

static int check_list(struct blk_list *m)
{
	if (m->count_max == 0)
		return -EINVAL;
	m->count_max = (uint32_t)u64_min(m->count_max, SERVE_LIST_COUNT_MAX);
	return 0;
}

static int check_cut(const struct blk_cut *c)
{
	if (c->ino == 0 || c->cut == 0 || c->from > c->to)
		return -EINVAL;
	if (c->to != BLK_CUT_TO_END && c->to > (uint64_t)FILE_SIZE_MAX)
		return -EFBIG;
	if (c->from > (uint64_t)FILE_SIZE_MAX)
		return -EFBIG;
	return check_block_log2(c->block_log2);
}

static int check_purge(const struct blk_purge *p)
{
	return p->inos.len == 0 || p->inos.len % 8 != 0 ? -EINVAL : 0;
}

/* Messages without fields: an empty body, or the reserved byte. */
static int check_empty(const struct wire_header *h, const uint8_t *body)
{
	if (h->body_len == 0 || (h->body_len == 1 && body[0] == 0))
		return 0;
	return -EBADMSG;
}

/* Decodes the body by opcode; syntax only. */
static int parse(const struct wire_header *h, const uint8_t *body,
		 struct serve_msg *m)
{
	size_t len = h->body_len;

	switch (m->op) {
	case WIRE_OP_HELLO:
		return hello_parse(body, len, &m->u.hello);
	case WIRE_OP_BLK_WRITE:
		return blk_write_parse(body, len, &m->u.write);
	case WIRE_OP_BLK_READ:
		return blk_read_parse(body, len, &m->u.read);
	case WIRE_OP_BLK_SYNC:
		return blk_sync_parse(body, len, &m->u.sync);
	case WIRE_OP_BLK_CUT:
		return blk_cut_parse(body, len, &m->u.cut);
	case WIRE_OP_BLK_ALLOC:
		return blk_alloc_parse(body, len, &m->u.alloc);
	case WIRE_OP_BLK_MAP:
		return blk_map_parse(body, len, &m->u.map);
	case WIRE_OP_BLK_END:
		return blk_end_parse(body, len, &m->u.end);
	case WIRE_OP_BLK_PURGE:
		return blk_purge_parse(body, len, &m->u.purge);
	case WIRE_OP_BLK_LIST:
		return blk_list_parse(body, len, &m->u.list);
	case WIRE_OP_BLK_FENCE:
		return blk_fence_parse(body, len, &m->u.fence);
	default:
		return check_empty(h, body);
	}
}

/* Values; @m was parsed. */
static int check(const struct wire_header *h, const uint8_t *data,
		 struct serve_msg *m)
{
	switch (m->op) {
	case WIRE_OP_HELLO:
		return check_hello(h, &m->u.hello);
	case WIRE_OP_BLK_WRITE:
		return check_write(h, data, &m->u.write);
	case WIRE_OP_BLK_READ:
		if (m->u.read.flags)
			return -EINVAL;
		return check_range(m->u.read.ino, m->u.read.index,
				   m->u.read.off, m->u.read.len,
				   m->u.read.block_log2);
	case WIRE_OP_BLK_ALLOC:
		return check_range(m->u.alloc.ino, m->u.alloc.index,
				   m->u.alloc.off, m->u.alloc.len,
				   m->u.alloc.block_log2);
	case WIRE_OP_BLK_CUT:
		return check_cut(&m->u.cut);
	case WIRE_OP_BLK_MAP:
		return check_map(&m->u.map);
	case WIRE_OP_BLK_END:
		return m->u.end.ino == 0 ?
			       -EINVAL :
			       check_block_log2(m->u.end.block_log2);
	case WIRE_OP_BLK_PURGE:
		return check_purge(&m->u.purge);
	case WIRE_OP_BLK_LIST:
		return check_list(&m->u.list);
	case WIRE_OP_BLK_FENCE:
		return m->u.fence.session == 0 ? -EINVAL : 0;
	default:
		return 0;
	}
}

/* Who may be heard at all; before anything of the body is believed. */
static int check_sender(const struct serve_who *who,
			const struct wire_header *h)
{
	bool hello = h->opcode == WIRE_OP_HELLO;

	if (h->flags & WIRE_F_REPLY || h->status != 0)
		return -EBADMSG;
	/* HELLO comes first and once. */
	if (hello != (who->role == 0))
		return -EBADMSG;
	if (h->data_len > 0 && h->opcode != WIRE_OP_BLK_WRITE)
		return -EBADMSG;
	if (who->role == WIRE_ROLE_CLIENT && h->session != who->session)
		return -EBADMSG;
	/* A tool may not know the cluster yet; HELLO's role is looked at by
	 * serve_validate(). */
	if (h->cluster_id == 0 && (hello || who->role == WIRE_ROLE_ADMIN))
		return 0;
	return h->cluster_id == who->cluster_id ? 0 : -EXDEV;
}

int serve_validate(const struct serve_who *who, const struct wire_header *h,
		   const uint8_t *body, const uint8_t *data,
		   struct serve_msg *m)
{
	unsigned roles = roles_of(h->opcode);
	int rv = check_sender(who, h);

	if (rv < 0)
		return rv;
	m->op = h->opcode;
	if (h->opcode != WIRE_OP_HELLO) {
		if (roles == 0)
			return -EOPNOTSUPP;
		if (!(roles & 1u << who->role))
			return -EPERM;
	}
	rv = parse(h, body, m);
	if (rv == 0)
		rv = check(h, data, m);
	if (rv == 0 && h->opcode == WIRE_OP_HELLO && h->cluster_id == 0 &&
	    m->u.hello.role != WIRE_ROLE_ADMIN)
		rv = -EXDEV;
	return rv;
}
