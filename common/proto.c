#include "common/proto.h"

#include "common/crc32c.h"
#include "common/frame_out.h"
#include "common/status.h"

struct proto_offer proto_ours(void)
{
	return (struct proto_offer){ .major_min = WIRE_VERSION,
				     .major_max = WIRE_VERSION,
				     .minor = WIRE_MINOR,
				     .features = PROTO_FEATURES };
}

struct proto_offer proto_of_hello(const struct hello *m)
{
	return (struct proto_offer){ .major_min = m->version_min,
				     .major_max = m->version_max,
				     .minor = m->minor,
				     .features = m->features };
}

struct proto_offer proto_of_reply(const struct hello_reply *m)
{
	return (struct proto_offer){ .major_min = m->version,
				     .major_max = m->version,
				     .minor = m->minor,
				     .features = m->features };
}

static uint16_t minor_in(const struct proto_offer *o, uint16_t major)
{
	return major == o->major_max ? o->minor : UINT16_MAX;
}

int proto_agree(const struct proto_offer *a, const struct proto_offer *b,
		struct proto *ret)
{
	uint16_t major = (uint16_t)u64_min(a->major_max, b->major_max);

	if (b->major_min > b->major_max)
		return -EBADMSG;
	if (major < a->major_min || major < b->major_min)
		return -EPROTONOSUPPORT;
	*ret = (struct proto){
		.major = major,
		.minor = (uint16_t)u64_min(minor_in(a, major),
					   minor_in(b, major)),
		.features = a->features & b->features,
	};
	return 0;
}

void proto_lessen(struct proto *all, const struct proto *one)
{
	all->minor = (uint16_t)u64_min(all->minor, one->minor);
	all->features &= one->features;
}

struct hello_reply proto_reply(uint8_t role, const char *name)
{
	return (struct hello_reply){ .version = WIRE_VERSION,
				     .minor = WIRE_MINOR,
				     .role = role,
				     .features = PROTO_FEATURES,
				     .name = { name,
					       (uint32_t)strlen(name) } };
}

size_t proto_refusal(const struct wire_header *h, struct hello_reply *m,
		     struct seal *seal, uint8_t *out)
{
	struct wire_header r = { .version = WIRE_VERSION,
				 .opcode = h->opcode,
				 .flags = WIRE_F_REPLY,
				 .status = status_to_wire(-EPROTONOSUPPORT),
				 .request_id = h->request_id,
				 .session = h->session };
	uint8_t *body = out + frame_out_rest(seal);
	struct wire_out o;

	wire_out_init(&o, body, PROTO_REFUSAL_SIZE - WIRE_HEADER_SIZE -
			  2 * SEAL_TAG_SIZE);
	hello_reply_encode(&o, m);
	assert(!o.overflow);
	r.body_len = (uint32_t)o.len;
	r.body_crc = crc32c(0, body, o.len);
	wire_header_encode(&r, out);
	frame_out_seal(seal, out, o.len);
	return frame_out_size(seal, o.len);
}

const char *proto_text(const struct proto_offer *o, char *buf)
{
	if (o->major_max == o->major_min)
		(void)snprintf(buf, PROTO_TEXT_SIZE, "%u.%u", o->major_max,
			       o->minor);
	else
		(void)snprintf(buf, PROTO_TEXT_SIZE, "%u-%u.%u", o->major_min,
			       o->major_max, o->minor);
	return buf;
}

const char *proto_ours_text(char *buf)
{
	struct proto_offer o = proto_ours();

	return proto_text(&o, buf);
}

const char *proto_frame_text(const struct wire_header *h, char *buf)
{
	(void)snprintf(buf, PROTO_TEXT_SIZE, "%u", h->version);
	return buf;
}
