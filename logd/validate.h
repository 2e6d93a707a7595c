/* What a frame to the log daemon says, checked in one place before anything is
 * done. [pure]
 */
#ifndef LOGD_VALIDATE_H
#define LOGD_VALIDATE_H

#include "common/wire_admin.h"
#include "common/wire_blk.h"
#include "common/wire_log.h"

/* Whom a connection is known to belong to. */
struct lend_who {
	uint64_t cluster_id; /* ours */
	uint8_t role; /* enum wire_role; 0: HELLO has not come */
	uint64_t session; /* of HELLO */
};

/* A request, strings borrowed from its body. */
struct lend_msg {
	uint16_t op;
	union {
		struct hello hello;
		struct log_alloc alloc;
		struct log_write write;
		struct log_connect connect;
		struct log_fence fence;
		struct log_read read;
		struct log_free free;
		struct admin_drain drain;
	} u;
};

/* Returns 0, or what to answer: -EOPNOTSUPP, -EPERM (not for this role),
 * -EINVAL, -EXDEV (another cluster), -EPROTONOSUPPORT; -EBADMSG: the peer does
 * not speak the protocol: close. Values are looked at by logd/lend.h. */
int lend_validate(const struct lend_who *who, const struct wire_header *h,
		  const uint8_t *body, struct lend_msg *m) must_check;

#endif
