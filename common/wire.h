/* The frame that every connection carries, and the bounded cursors that read
 * and write its body.
 *
 * A frame is a 64-byte little-endian header, @body_len bytes of fields and
 * @data_len bytes of bulk data. Header and body have their own CRC32C. Bulk
 * data is covered by the CRC32C of each UNIT_SIZE piece that the body lists
 * ("sums"), which travel from the writer to the disk and back unchanged.
 *
 * A length is believed only after the checksum over it was right.
 */
#ifndef COMMON_WIRE_H
#define COMMON_WIRE_H

#include "common/base.h"
#include "common/limits.h"

#define WIRE_MAGIC 0x4c494148u /* "HAIL" */
/* The protocol's version, major and minor: "Versions" in
 * hailfs-internals(7). Of tests/integ/t_versions.sh are the builds that stand
 * for later ones. */
#ifdef HAIL_NEXT_MAJOR
#define WIRE_VERSION 2u
#else
#define WIRE_VERSION 1u
#endif
#ifdef HAIL_NEXT_MINOR
#define WIRE_MINOR 2u
#else
#define WIRE_MINOR 1u
#endif
#define WIRE_HEADER_SIZE 64u

/* Frame flags; an unknown one is an error. */
#define WIRE_F_REPLY 0x1u
/* A request that was sent before, over another connection: it may have been
 * executed and answered. */
#define WIRE_F_RESENT 0x2u
#define WIRE_F_KNOWN (WIRE_F_REPLY | WIRE_F_RESENT)

/* Opcodes: append only, a number is never used again. */
enum wire_op {
	WIRE_OP_HELLO = 1,
	WIRE_OP_PING = 2,

	/* admin, every daemon: common/wire_admin.h */
	WIRE_OP_ADMIN_STATUS = 16,
	WIRE_OP_ADMIN_STATS = 17,
	WIRE_OP_ADMIN_INODES = 18, /* metad */
	WIRE_OP_ADMIN_BACKUP = 19, /* metad */
	WIRE_OP_ADMIN_SESSIONS = 20, /* metad */
	WIRE_OP_ADMIN_STOP = 21, /* orderly stop */
	WIRE_OP_ADMIN_GIVE_UP = 22, /* metad */
	WIRE_OP_ADMIN_REPAIR = 23, /* metad */
	WIRE_OP_ADMIN_DRAIN = 24, /* logd */
	WIRE_OP_ADMIN_EVICT = 25, /* metad */
	WIRE_OP_ADMIN_LOCKS = 26, /* metad */
	WIRE_OP_ADMIN_LEASES = 27, /* metad */
	WIRE_OP_ADMIN_METAD = 28, /* metad */

	/* block daemon: common/wire_blk.h */
	WIRE_OP_BLK_WRITE = 64,
	WIRE_OP_BLK_READ = 65,
	WIRE_OP_BLK_SYNC = 66,
	WIRE_OP_BLK_CUT = 67,
	WIRE_OP_BLK_ALLOC = 68,
	WIRE_OP_BLK_MAP = 69,
	WIRE_OP_BLK_END = 70,
	WIRE_OP_BLK_PURGE = 71,
	WIRE_OP_BLK_STAT = 72,
	WIRE_OP_BLK_LIST = 73,
	WIRE_OP_BLK_FENCE = 74,
	WIRE_OP_BLK_SCRUB = 75,

	/* log daemon: common/wire_log.h */
	WIRE_OP_LOG_ALLOC = 96,
	WIRE_OP_LOG_WRITE = 97,
	WIRE_OP_LOG_CONNECT = 98,
	WIRE_OP_LOG_FENCE = 99,
	WIRE_OP_LOG_READ = 100,
	WIRE_OP_LOG_FREE = 101,
	WIRE_OP_LOG_PING = 102,

	/* metadata daemon: common/wire_meta.h; reads */
	WIRE_OP_META_SESSION_OPEN = 128,
	WIRE_OP_META_SESSION_CLOSE = 129,
	WIRE_OP_META_KEEPALIVE = 130,
	WIRE_OP_META_MAP_GET = 131,
	WIRE_OP_META_LOOKUP = 132,
	WIRE_OP_META_GETATTR = 133,
	WIRE_OP_META_READDIR = 134,
	WIRE_OP_META_READLINK = 135,
	WIRE_OP_META_GETXATTR = 136,
	WIRE_OP_META_LISTXATTR = 137,
	WIRE_OP_META_STATFS = 138,
	WIRE_OP_META_SYNC = 139,
	WIRE_OP_META_REGISTER = 140, /* from a block daemon */
	WIRE_OP_META_HEARTBEAT = 141, /* from a block daemon */
	WIRE_OP_META_LOG_REGISTER = 142, /* from a log daemon */
	WIRE_OP_META_LOG_HEARTBEAT = 143, /* from a log daemon */
	WIRE_OP_META_LOG_PEERS = 144,
	WIRE_OP_META_LOG_LIST = 145,
	WIRE_OP_META_LOG_OPTS = 146,
	WIRE_OP_META_WANT = 147,
	WIRE_OP_META_EVENTS = 148,
	WIRE_OP_META_LOCK_WAIT = 149,
	WIRE_OP_META_LOCK_CANCEL = 150,
	WIRE_OP_META_LOCK_GET = 151,
	WIRE_OP_META_RAFT = 152, /* between metads */
	WIRE_OP_META_MEMBER = 153, /* between metads */

	/* metadata daemon: mutations (replicated commands) */
	WIRE_OP_META_CREATE = 160,
	WIRE_OP_META_UNLINK = 161,
	WIRE_OP_META_RENAME = 162,
	WIRE_OP_META_LINK = 163,
	WIRE_OP_META_SETATTR = 164,
	WIRE_OP_META_SETXATTR = 165,
	WIRE_OP_META_REMOVEXATTR = 166,
	WIRE_OP_META_LEASE = 167,
	WIRE_OP_META_RETURN = 168,
	WIRE_OP_META_CUT = 169,
	WIRE_OP_META_LOG_SET = 170,
	WIRE_OP_META_LOG_RAISE = 171,
	WIRE_OP_META_LOG_DROP = 172,
	WIRE_OP_META_LOG_LOSE = 173,
	WIRE_OP_META_LOCK = 174,
	WIRE_OP_META_LOG_HEIR = 175,

	/* commands only metad itself proposes; refused from the network */
	WIRE_OP_SM_SESSION_OPEN = 192,
	WIRE_OP_SM_SESSION_CLOSE = 193,
	WIRE_OP_SM_DAEMON_SET = 194,
	WIRE_OP_SM_PURGE_DONE = 195,
	WIRE_OP_SM_CUT_DONE = 196,
	WIRE_OP_SM_SIZE_SET = 197,
	WIRE_OP_SM_RAISE = 198,
	WIRE_OP_SM_BOOTSTRAP = 199,
	WIRE_OP_SM_LOGD_SET = 200,
	WIRE_OP_SM_LOCK = 201,
};

/* Decoded frame header. */
struct wire_header {
	uint16_t version;
	uint16_t opcode;
	uint32_t flags; /* WIRE_F_* */
	uint32_t status; /* enum wire_status; 0 in a request */
	uint64_t request_id; /* chosen by the requester, echoed */
	uint64_t cluster_id; /* 0 only before the cluster is known */
	uint64_t epoch; /* sender's cluster map epoch */
	uint64_t session; /* requester's session; 0: none */
	uint32_t body_len; /* bytes, <= FRAME_BODY_MAX */
	uint32_t data_len; /* bytes, <= FRAME_DATA_MAX */
	uint32_t body_crc; /* CRC32C of the body */
};

/* A borrowed byte string inside a body (decode) or the caller's (encode). */
struct wire_str {
	const void *p;
	uint32_t len;
};

/* Writes the 64 bytes of @h at @out and its own checksum. */
void wire_header_encode(const struct wire_header *h, uint8_t *out);

/* Reads and checks the 64 bytes at @in.
 * Returns 0; -EBADMSG: magic, checksum, flags or a length is wrong;
 * -EPROTONOSUPPORT: right magic and checksum, another version (@h is set). */
int wire_header_decode(const uint8_t *in, struct wire_header *h) must_check;

/* Checks @body against @h. Returns 0 or -EBADMSG. */
int wire_body_check(const struct wire_header *h, const uint8_t *body)
	must_check;

/* Output cursor: writes up to @cap bytes, latches overflow. */
struct wire_out {
	uint8_t *p;
	size_t len;
	size_t cap;
	bool overflow;
};

/* Input cursor: returns zeros and latches @bad after the first overrun. */
struct wire_in {
	const uint8_t *p;
	size_t len; /* bytes left */
	bool bad;
};

void wire_out_init(struct wire_out *o, void *buf, size_t cap);
void wire_put_u8(struct wire_out *o, uint8_t v);
void wire_put_u16(struct wire_out *o, uint16_t v);
void wire_put_u32(struct wire_out *o, uint32_t v);
void wire_put_u64(struct wire_out *o, uint64_t v);
void wire_put_i64(struct wire_out *o, int64_t v);
void wire_put_raw(struct wire_out *o, const void *p, size_t len);
/* u16 length, bytes; latches overflow beyond 65535. */
void wire_put_str(struct wire_out *o, struct wire_str s);
/* u32 length, bytes. */
void wire_put_blob(struct wire_out *o, struct wire_str s);

void wire_in_init(struct wire_in *i, const void *buf, size_t len);
uint8_t wire_get_u8(struct wire_in *i);
uint16_t wire_get_u16(struct wire_in *i);
uint32_t wire_get_u32(struct wire_in *i);
uint64_t wire_get_u64(struct wire_in *i);
int64_t wire_get_i64(struct wire_in *i);
struct wire_str wire_get_str(struct wire_in *i);
struct wire_str wire_get_blob(struct wire_in *i);
/* Returns 0 when all was read and nothing is left over, else -EBADMSG. */
int wire_in_end(const struct wire_in *i) must_check;
/* Of a body: what is left over was appended by a later minor. Returns 0, or
 * -EBADMSG when something was missing. */
int wire_in_known(const struct wire_in *i) must_check;

#endif
