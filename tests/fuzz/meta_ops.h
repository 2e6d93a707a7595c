/* Sequences of metadata commands and queries as fuzz inputs, run against the
 * state machine. A record of the input: u8 number in meta_ops[], u8 session
 * (0 to 2: none, the first, one that does not exist), u16 length, body.
 */
#ifndef TESTS_FUZZ_META_OPS_H
#define TESTS_FUZZ_META_OPS_H

#include <sys/stat.h>

#include "tests/fuzz/messages.h"
#include "tests/lib/sm_client.h"

WIRE_LIST_META(FUZZ_DEFINE)
WIRE_LIST_SM(FUZZ_DEFINE)
static const struct fuzz_message messages[] = { WIRE_LIST_META(FUZZ_ENTRY)
						WIRE_LIST_SM(FUZZ_ENTRY) };

/* @message NULL: no fields. */
static const struct {
	uint16_t op;
	const char *message;
} meta_ops[] = {
	{ WIRE_OP_META_CREATE, "meta_create" },
	{ WIRE_OP_META_CREATE, "meta_create" },
	{ WIRE_OP_META_CREATE, "meta_create" },
	{ WIRE_OP_META_UNLINK, "meta_unlink" },
	{ WIRE_OP_META_RENAME, "meta_rename" },
	{ WIRE_OP_META_LINK, "meta_link" },
	{ WIRE_OP_META_SETATTR, "meta_setattr" },
	{ WIRE_OP_META_SETXATTR, "meta_setxattr" },
	{ WIRE_OP_META_REMOVEXATTR, "meta_removexattr" },
	{ WIRE_OP_META_LEASE, "meta_ino" },
	{ WIRE_OP_META_RETURN, "meta_return" },
	{ WIRE_OP_META_CUT, "meta_cut" },
	{ WIRE_OP_META_LOG_SET, "meta_log_set" },
	{ WIRE_OP_META_LOG_RAISE, "meta_ino" },
	{ WIRE_OP_META_LOG_DROP, "meta_log_drop" },
	{ WIRE_OP_META_LOG_LIST, "meta_log_list" },
	{ WIRE_OP_META_LOG_OPTS, "meta_ino" },
	{ WIRE_OP_META_LOOKUP, "meta_lookup" },
	{ WIRE_OP_META_GETATTR, "meta_ino" },
	{ WIRE_OP_META_READDIR, "meta_readdir" },
	{ WIRE_OP_META_READLINK, "meta_ino" },
	{ WIRE_OP_META_GETXATTR, "meta_getxattr" },
	{ WIRE_OP_META_LISTXATTR, "meta_ino" },
	{ WIRE_OP_META_STATFS, NULL },
	{ WIRE_OP_META_MAP_GET, NULL },
	{ WIRE_OP_SM_SESSION_OPEN, "sm_session_open" },
	{ WIRE_OP_SM_SESSION_CLOSE, "sm_session_close" },
	{ WIRE_OP_SM_DAEMON_SET, "sm_daemon_set" },
	{ WIRE_OP_SM_PURGE_DONE, "sm_purge_done" },
	{ WIRE_OP_SM_CUT_DONE, "sm_cut_done" },
	{ WIRE_OP_SM_SIZE_SET, "sm_size_set" },
	{ WIRE_OP_SM_RAISE, "sm_raise" },
	{ WIRE_OP_SM_BOOTSTRAP, "sm_bootstrap" },
	{ WIRE_OP_SM_LOGD_SET, "sm_logd_set" },
	{ WIRE_OP_META_LOG_LOSE, "meta_log_drop" },
	{ WIRE_OP_META_LOCK, "meta_lock" },
	{ WIRE_OP_META_LOCK, "meta_lock" },
	{ WIRE_OP_META_LOCK_GET, "meta_lock" },
	{ WIRE_OP_SM_LOCK, "sm_lock_grant" },
	{ WIRE_OP_META_LOG_HEIR, "meta_log_heir" },
};

static bool meta_op_internal(uint16_t op)
{
	return op >= WIRE_OP_SM_SESSION_OPEN;
}

/* Runs the records on @c's machine. */
static void meta_ops_run(struct sm_client *c, const uint8_t *data, size_t size)
{
	struct wire_in in;

	wire_in_init(&in, data, size);
	while (in.len > 0 && !in.bad) {
		uint8_t which = wire_get_u8(&in);
		uint16_t op = meta_ops[which % array_count(meta_ops)].op;
		uint64_t session = c->session + wire_get_u8(&in) % 3 - 1;
		struct wire_str body = wire_get_str(&in);
		struct sm_reply r;
		uint64_t pos = sm_pos(c->sm);

		if (in.bad || sm_validate(op, body.p, body.len) != 0)
			continue;
		if (meta_op_internal(op))
			session = 0;
		memset(&r, 0, sizeof(r));
		if (sm_is_query(op))
			sm_query(c->sm, op, session, body.p, body.len, &r);
		else
			sm_apply(c->sm, op, session, body.p, body.len, &r);
		fuzz_expect(r.status <= 0 && r.status != -ENOMEM);
		fuzz_expect(r.status == 0 || r.body_len == 0);
		fuzz_expect(sm_pos(c->sm) >= pos);
		fuzz_expect(!sm_is_query(op) || sm_pos(c->sm) == pos);
	}
}

/* Creates make what the other commands then meet. */
static void meta_op_create(struct fuzz_rng *rng, struct wire_out *o)
{
	static const uint32_t modes[] = { S_IFREG | 0644, S_IFREG | 06755,
		S_IFDIR | 0755, S_IFDIR | 02777, S_IFLNK | 0777,
		S_IFIFO | 0600, S_IFCHR | 0600 };
	struct meta_create m = {
		.parent = fuzz_below(rng, 3) ? ROOT_INO : fuzz_number(rng, 9),
		.name = fuzz_str(rng),
		.mode = modes[fuzz_below(rng, array_count(modes))],
		.umask = fuzz_below(rng, 2) * 022,
		.flags = fuzz_below(rng, 3) ? 0 : fuzz_below(rng, 16),
		.ino = fuzz_below(rng, 3) ? 0 : fuzz_number(rng, 60),
	};

	if (S_ISLNK(m.mode))
		m.target = fuzz_str(rng);
	meta_create_encode(o, &m);
}

/* A log of up to three daemons, which registered or did not; a journal. */
static void meta_op_log_set(struct fuzz_rng *rng, struct wire_out *o)
{
	struct meta_log_set m = { .ino = fuzz_number(rng, 9),
				  .epoch = fuzz_number(rng, 3) };
	uint8_t buf[64];
	struct wire_out list;

	if (m.epoch > 0)
		m.version = (uint32_t)fuzz_number(rng, 3);
	wire_out_init(&list, buf, sizeof(buf));
	for (uint32_t i = fuzz_below(rng, 4); i > 0; i--) {
		struct meta_log_peer p = { i, 1 + fuzz_below(rng, 2) };

		meta_log_peer_encode(&list, &p);
	}
	m.peers = (struct wire_str){ buf, (uint32_t)list.len };
	meta_log_set_encode(o, &m);
}

/* Makes log directories, so that creates and renames meet them. */
static void meta_op_setxattr(struct fuzz_rng *rng, struct wire_out *o)
{
	static const char *const texts[] = { "", "match=a*", "match=[!a-c]?",
		"peers=5 region=64k destage=off fallback=refuse", "peers=4" };
	const char *text = texts[fuzz_below(rng, array_count(texts))];
	struct meta_setxattr m = {
		.ino = fuzz_below(rng, 2) ? ROOT_INO : fuzz_number(rng, 9),
		.name = { META_XATTR_LOG, sizeof(META_XATTR_LOG) - 1 },
		.value = { text, (uint32_t)strlen(text) },
	};

	meta_setxattr_encode(o, &m);
}

static void meta_op_seed(struct fuzz_rng *rng, struct wire_out *o,
			 uint64_t *seq)
{
	uint32_t which = fuzz_below(rng, array_count(meta_ops));
	const char *message = meta_ops[which].message;
	uint16_t op = meta_ops[which].op;
	uint8_t buf[2048];
	struct wire_out body;

	wire_out_init(&body, buf, sizeof(buf));
	if (sm_is_command(op) && !meta_op_internal(op)) {
		struct meta_mhdr h = { .seq = ++*seq, .seq_low = *seq,
				       .now_ns = 1000 };

		/* Sometimes a retry, or one that comes too late. */
		if (fuzz_below(rng, 16) == 0 && h.seq > 1)
			h.seq -= fuzz_below(rng, 2) + 1;
		meta_mhdr_encode(&body, &h);
	}
	if (op == WIRE_OP_META_CREATE && fuzz_below(rng, 8))
		meta_op_create(rng, &body);
	else if (op == WIRE_OP_META_LOG_SET && fuzz_below(rng, 8))
		meta_op_log_set(rng, &body);
	else if (op == WIRE_OP_META_SETXATTR && fuzz_below(rng, 2))
		meta_op_setxattr(rng, &body);
	else if (message)
		fuzz_find(messages, message)->encode(rng, &body);
	wire_put_u8(o, (uint8_t)which);
	wire_put_u8(o, fuzz_below(rng, 20) ? 1 : (uint8_t)fuzz_u64(rng));
	wire_put_str(o, (struct wire_str){ buf, (uint32_t)body.len });
}

static void meta_ops_seed(struct fuzz_rng *rng, struct wire_out *o)
{
	uint32_t count = 1 + fuzz_below(rng, 40);
	uint64_t seq = 0;

	while (count-- > 0)
		meta_op_seed(rng, o, &seq);
}

#endif
