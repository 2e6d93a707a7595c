/* Which protocol two sides of a connection have in common. [pure]
 *
 * A major says how frames and messages look: two sides need one that both
 * have. A minor appends fields and opcodes to it: both sides may use those of
 * the smaller one. A feature is what a program can do or not, whatever its
 * minor: both may use those that both have. ("Versions" in
 * hailfs-internals(7).)
 */
#ifndef COMMON_PROTO_H
#define COMMON_PROTO_H

#include "common/seal.h"
#include "common/wire_blk.h"

/* Bits of HELLO, append only. None yet: what is optional today (RDMA, the
 * guard of frames) is agreed on where it is used. */
#define PROTO_FEATURES UINT64_C(0)

/* What a side says it has. */
struct proto_offer {
	uint16_t major_min, major_max;
	uint16_t minor; /* of major_max; of smaller majors it has them all */
	uint64_t features;
};

/* What two sides have, or several. */
struct proto {
	uint16_t major, minor;
	uint64_t features;
};

/* What this program offers. */
struct proto_offer proto_ours(void);
struct proto_offer proto_of_hello(const struct hello *m);
struct proto_offer proto_of_reply(const struct hello_reply *m);

/* Returns 0 and *ret; -EPROTONOSUPPORT: no major is both's; -EBADMSG: @b is no
 * offer. */
int proto_agree(const struct proto_offer *a, const struct proto_offer *b,
		struct proto *ret) must_check;
/* @all: what these have and @one has too; all of the same major. */
void proto_lessen(struct proto *all, const struct proto *one);

/* What a daemon answers to a HELLO; the caller fills in the rest. */
struct hello_reply proto_reply(uint8_t role, const char *name);
/* Its refusal of a frame with header @h of another major, whole and sealed.
 * Returns its length. @out: PROTO_REFUSAL_SIZE bytes. */
#define PROTO_REFUSAL_SIZE 256u
size_t proto_refusal(const struct wire_header *h, struct hello_reply *m,
		     struct seal *seal, uint8_t *out);

/* For people: "1.2", or "1-2.2" of several majors; of a frame alone "2".
 * @buf: PROTO_TEXT_SIZE bytes. Returns it. */
#define PROTO_TEXT_SIZE 24u
const char *proto_text(const struct proto_offer *o, char *buf);
const char *proto_ours_text(char *buf);
const char *proto_frame_text(const struct wire_header *h, char *buf);

#endif
