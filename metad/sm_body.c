/* How much of a command's body a minor of the protocol knows. */
#include "metad/sm_priv.h"

typedef size_t (*known_fn)(const void *p, size_t len, unsigned minor);

/* NULL: nothing can be appended to it, so what is behind its end is refused by
 * its check: lists that end where the body does, and bodies of two messages. */
static known_fn known_of(uint16_t op)
{
	switch (op) {
	case WIRE_OP_META_CREATE:
		return meta_create_known;
	case WIRE_OP_META_UNLINK:
		return meta_unlink_known;
	case WIRE_OP_META_RENAME:
		return meta_rename_known;
	case WIRE_OP_META_LINK:
		return meta_link_known;
	case WIRE_OP_META_SETATTR:
		return meta_setattr_known;
	case WIRE_OP_META_SETXATTR:
		return meta_setxattr_known;
	case WIRE_OP_META_REMOVEXATTR:
		return meta_removexattr_known;
	case WIRE_OP_META_LEASE:
	case WIRE_OP_META_LOG_RAISE:
		return meta_ino_known;
	case WIRE_OP_META_CUT:
		return meta_cut_known;
	case WIRE_OP_META_LOG_SET:
		return meta_log_set_known;
	case WIRE_OP_META_LOG_DROP:
	case WIRE_OP_META_LOG_LOSE:
		return meta_log_drop_known;
	case WIRE_OP_META_LOG_HEIR:
		return meta_log_heir_known;
	case WIRE_OP_META_LOCK:
		return meta_lock_known;
	case WIRE_OP_SM_SESSION_CLOSE:
		return sm_session_close_known;
	case WIRE_OP_SM_DAEMON_SET:
		return sm_daemon_set_known;
	case WIRE_OP_SM_PURGE_DONE:
		return sm_purge_done_known;
	case WIRE_OP_SM_CUT_DONE:
		return sm_cut_done_known;
	case WIRE_OP_SM_SIZE_SET:
		return sm_size_set_known;
	case WIRE_OP_SM_RAISE:
		return sm_raise_known;
	case WIRE_OP_SM_BOOTSTRAP:
		return sm_bootstrap_known;
	case WIRE_OP_SM_LOGD_SET:
		return sm_logd_set_known;
	default:
		return NULL;
	}
}

size_t sm_body_known(uint16_t op, const void *body, size_t len, unsigned minor)
{
	known_fn known = known_of(op);
	const void *fields = body;
	size_t rest = len;
	struct meta_mhdr h;

	if (known == NULL)
		return len;
	if (op < WIRE_OP_SM_SESSION_OPEN &&
	    sm_mhdr_split(&fields, &rest, &h) != 0)
		return len;
	return len - rest + known(fields, rest, minor);
}
