/* Every bound of the system, named once; relations proved at compile time. */
#ifndef COMMON_LIMITS_H
#define COMMON_LIMITS_H

#include "common/base.h"

/* Checksum, allocation and disk unit. */
#define UNIT_SIZE 4096u
#define UNIT_SHIFT 12u

/* Block size: a property of the file, inherited from its directory. */
#define BLOCK_LOG2_MIN 16u
#define BLOCK_LOG2_MAX 22u
#define BLOCK_LOG2_DEFAULT 20u
#define BLOCK_UNITS_MAX (1u << (BLOCK_LOG2_MAX - UNIT_SHIFT))

/* A block daemon takes room on its disk a segment at a time. */
#define SEG_SHIFT 16u
#define SEG_UNITS (1u << SEG_SHIFT) /* 256 MiB */

#define SLOT_COUNT 4096u
#define DAEMON_COUNT_MAX 256u
/* Metadata daemons: an odd number. */
#define METAD_COUNT_MAX 5u
#define REPLICA_COUNT_MAX 3u

/* Frames: one header, a body (fields), then bulk data (one block at most). */
#define FRAME_BODY_MAX (2u << 20)
#define FRAME_DATA_MAX (1u << BLOCK_LOG2_MAX)

#define NAME_LEN_MAX 255u
#define SYMLINK_LEN_MAX 4095u
#define XATTR_NAME_LEN_MAX 255u
#define XATTR_VALUE_MAX 65536u
#define XATTR_LIST_LEN_MAX 65536u
/* Names and values of all xattrs of one inode. */
#define XATTR_TOTAL_MAX (1u << 20)
#define ACL_ENTRY_COUNT_MAX 1024u
#define LINK_COUNT_MAX 65000u
#define INODE_COUNT_MAX (UINT64_C(1) << 32)
/* Numbers are given one by one, so none is ever so large; a block daemon that
 * had seen a larger one would leave metad none to go on with. */
#define INO_MAX (UINT64_C(1) << 60)
/* Items of one META_RETURN, entries of one SM_PURGE_DONE. */
#define RETURN_COUNT_MAX 4096u
#define PURGE_COUNT_MAX 65536u
/* What one READDIR page holds at most. */
#define READDIR_BYTES_MAX (1u << 20)
#define FILE_SIZE_MAX INT64_MAX

#define SESSION_COUNT_MAX 1024u
/* Who waits for other sessions' leases, and what one answer tells a session. */
#define WANT_COUNT_MAX 4096u
#define EVENT_COUNT_MAX 1024u
/* Locks of one file by one session at metad: what one close may give up. */
#define LOCK_FILE_COUNT_MAX 1024u
/* Replies metad keeps per session for retries (and mutations in flight). */
#define SESSION_WINDOW_MAX 4096u

/* A log directory's file: its log lies in regions at so many peers at most. */
#define LOG_PEER_COUNT_MAX 7u
#define LOG_REGION_LOG2_MIN 16u
#define LOG_REGION_LOG2_MAX 26u
#define LOG_REGION_LOG2_DEFAULT 18u
#define LOG_REGION_COUNT_MAX 4096u /* of one log, alive */
#define LOG_DAEMON_COUNT_MAX 256u
#define LOG_COUNT_MAX (1u << 20) /* registry entries */
#define LOG_LIST_COUNT_MAX 4096u /* of a page of them; names of a heartbeat */

#define ROOT_INO 1u

_Static_assert(UNIT_SIZE == 1u << UNIT_SHIFT, "unit");
_Static_assert((1u << BLOCK_LOG2_MIN) >= UNIT_SIZE, "a block holds a unit");
_Static_assert(FRAME_DATA_MAX >= 1u << BLOCK_LOG2_MAX, "a block is one frame");
_Static_assert(FRAME_BODY_MAX > XATTR_VALUE_MAX + 4096, "an xattr is one body");
_Static_assert(LOG_REGION_COUNT_MAX * 160 < FRAME_BODY_MAX, "a log is listed");
_Static_assert(BLOCK_UNITS_MAX * 4 < FRAME_BODY_MAX, "a block's sums fit");

#endif
