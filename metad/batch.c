/* The form of a batch of commands in the log. */
#include "metad/raft.h"

static bool is_padding(struct wire_in *in)
{
	if (in->len >= METARAFT_BATCH_ALIGN)
		return false;
	while (in->len)
		if (wire_get_u8(in) != 0)
			return false;
	return !in->bad;
}

int metaraft_batch_apply(struct sm *sm, const void *buf, size_t len)
{
	struct wire_in in;
	struct sm_reply r;
	uint64_t number;
	uint32_t i, count;
	int rv;

	wire_in_init(&in, buf, len);
	number = wire_get_u64(&in);
	count = wire_get_u32(&in);
	if (in.bad)
		return -EBADMSG;
	if (number <= sm_batch(sm))
		return 0;
	if (number != sm_batch(sm) + 1)
		return -EBADMSG;
	for (i = 0; i < count; i++) {
		uint16_t op = wire_get_u16(&in);
		uint16_t zero = wire_get_u16(&in);
		uint32_t body_len = wire_get_u32(&in);
		uint64_t session = wire_get_u64(&in);
		const void *body = in.p;

		if (in.bad || zero != 0 || body_len > in.len)
			return -EBADMSG;
		if (!sm_is_command(op))
			return -EPROTONOSUPPORT;
		rv = sm_validate(op, body, body_len);
		if (rv < 0)
			return -EBADMSG;
		/* The others execute what we would skip. */
		if (sm_body_known(op, body, body_len, WIRE_MINOR) != body_len)
			return -EPROTONOSUPPORT;
		in.p += body_len;
		in.len -= body_len;
		sm_apply(sm, op, session, body, body_len, &r);
		/* Any other error is the command's own result. */
		if (r.status == -ENOMEM)
			return -ENOMEM;
	}
	if (!is_padding(&in))
		return -EBADMSG;
	sm_set_batch(sm, number);
	return 0;
}
