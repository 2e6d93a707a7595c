#include "logd/validate.h"

#include "common/proto.h"

#define CLIENT (1u << WIRE_ROLE_CLIENT)
#define ADMIN (1u << WIRE_ROLE_ADMIN)
#define ANYBODY                                                               \
	(CLIENT | ADMIN | 1u << WIRE_ROLE_BLOCKD | 1u << WIRE_ROLE_METAD |    \
	 1u << WIRE_ROLE_LOGD)

/* Roles that may ask for @op; 0: unknown. */
static unsigned roles_of(uint16_t op)
{
	switch (op) {
	case WIRE_OP_PING:
	case WIRE_OP_LOG_PING:
		return ANYBODY;
	case WIRE_OP_LOG_ALLOC:
	case WIRE_OP_LOG_WRITE:
	case WIRE_OP_LOG_CONNECT:
	case WIRE_OP_LOG_FREE:
		return CLIENT;
	/* Tools look at what is left of a log that cannot be recovered. */
	case WIRE_OP_LOG_FENCE:
	case WIRE_OP_LOG_READ:
		return CLIENT | ADMIN;
	case WIRE_OP_ADMIN_STATUS:
	case WIRE_OP_ADMIN_STATS:
	case WIRE_OP_ADMIN_STOP:
	case WIRE_OP_ADMIN_DRAIN:
		return ADMIN;
	default:
		return 0;
	}
}

static int check_hello(const struct wire_header *h, const struct hello *m)
{
	struct proto_offer ours = proto_ours(), theirs = proto_of_hello(m);
	struct proto both;
	int rv = proto_agree(&ours, &theirs, &both);

	if (rv < 0)
		return rv;
	if (m->role < WIRE_ROLE_CLIENT || m->role > WIRE_ROLE_LOGD)
		return -EBADMSG;
	if (m->role == WIRE_ROLE_CLIENT && h->session == 0)
		return -EINVAL;
	/* A tool may not know the cluster yet. */
	if (h->cluster_id == 0 && m->role != WIRE_ROLE_ADMIN)
		return -EXDEV;
	return 0;
}

/* Messages without fields: an empty body, or the reserved byte. */
static int check_empty(const struct wire_header *h, const uint8_t *body)
{
	if (h->body_len == 0 || (h->body_len == 1 && body[0] == 0))
		return 0;
	return -EBADMSG;
}

static int parse(const struct wire_header *h, const uint8_t *body,
		 struct lend_msg *m)
{
	size_t len = h->body_len;
	int rv;

	switch (m->op) {
	case WIRE_OP_HELLO:
		rv = hello_parse(body, len, &m->u.hello);
		return rv < 0 ? rv : check_hello(h, &m->u.hello);
	case WIRE_OP_LOG_ALLOC:
		return log_alloc_parse(body, len, &m->u.alloc);
	case WIRE_OP_LOG_WRITE:
		return log_write_parse(body, len, &m->u.write);
	case WIRE_OP_LOG_CONNECT:
		return log_connect_parse(body, len, &m->u.connect);
	case WIRE_OP_LOG_FENCE:
		return log_fence_parse(body, len, &m->u.fence);
	case WIRE_OP_LOG_READ:
		return log_read_parse(body, len, &m->u.read);
	case WIRE_OP_LOG_FREE:
		return log_free_parse(body, len, &m->u.free);
	case WIRE_OP_ADMIN_DRAIN:
		return admin_drain_parse(body, len, &m->u.drain);
	default:
		return check_empty(h, body);
	}
}

/* Who may be heard at all; before anything of the body is believed. */
static int check_sender(const struct lend_who *who,
			const struct wire_header *h)
{
	bool hello = h->opcode == WIRE_OP_HELLO;

	if (h->flags & WIRE_F_REPLY || h->status != 0)
		return -EBADMSG;
	/* HELLO comes first and once. */
	if (hello != (who->role == 0))
		return -EBADMSG;
	if (h->data_len > 0 && h->opcode != WIRE_OP_LOG_WRITE)
		return -EBADMSG;
	if (who->role == WIRE_ROLE_CLIENT && h->session != who->session)
		return -EBADMSG;
	if (h->cluster_id == 0 && (hello || who->role == WIRE_ROLE_ADMIN))
		return 0;
	return h->cluster_id == who->cluster_id ? 0 : -EXDEV;
}

int lend_validate(const struct lend_who *who, const struct wire_header *h,
		  const uint8_t *body, struct lend_msg *m)
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
	return parse(h, body, m);
}
