/* Messages of the block daemon, and HELLO.
 *
 * Bulk data follows the body. For data [off, off+len) of a block the body's
 * @sums blob holds one little-endian CRC32C per UNIT_SIZE piece of the block
 * that the range touches: a unit covered whole has the sum of its UNIT_SIZE
 * bytes, a piece (first or last) the sum of just the bytes sent.
 */
#ifndef COMMON_WIRE_BLK_H
#define COMMON_WIRE_BLK_H

#include "common/wire_fields.h"

enum wire_role {
	WIRE_ROLE_CLIENT = 1, /* a mount: session != 0 */
	WIRE_ROLE_BLOCKD = 2,
	WIRE_ROLE_METAD = 3,
	WIRE_ROLE_ADMIN = 4, /* tools */
	WIRE_ROLE_LOGD = 5,
};

/* HELLO is the first frame each way; anything else before it closes the
 * connection. What both have is agreed on (common/proto.h); where that is
 * nothing the answer, -EPROTONOSUPPORT, has a hello_reply all the same, which
 * tells what the daemon has. The daemon answers after it has closed the peer's
 * connections of smaller @incarnation (same role and session) and finished
 * or discarded what came over them. A smaller incarnation than one seen:
 * -ESTALE. */
#define HELLO_FIELDS(F)                                                       \
	F(u16, version_min) /* majors */                                      \
	F(u16, version_max)                                                   \
	F(u8, role)                                                           \
	F(u64, features) /* PROTO_FEATURES */                                 \
	F(u64, incarnation) /* grows with each connection of the peer */      \
	F(u32, peer_id)     /* daemon id, 0 for clients and tools */          \
	F(str, name)        /* for diagnostics */                             \
	F(SINCE(1, u16), minor) /* of version_max */                          \
	WIRE_NEXT(F)
WIRE_MESSAGE(hello, HELLO_FIELDS);

#define HELLO_REPLY_FIELDS(F)                                                 \
	F(u16, version)                                                       \
	F(u8, role)                                                           \
	F(u64, features)                                                      \
	F(u64, boot_id) /* random, new at each start of the daemon */         \
	F(u32, peer_id)                                                       \
	F(str, name)                                                          \
	F(SINCE(1, u16), minor)                                               \
	WIRE_NEXT(F)
WIRE_MESSAGE(hello_reply, HELLO_REPLY_FIELDS);

/* ---- write: block bytes [off, off+len), data_len == len ---- */
#define BLK_WRITE_SYNC 0x1u /* answer when durable, with all before it of
			     * the same inode */
#define BLK_WRITE_KNOWN (BLK_WRITE_SYNC)
#define BLK_WRITE_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u64, index)                                                         \
	F(u64, cut)  /* the inode's cut number the writer knows */            \
	F(u32, off)  /* bytes in the block */                                 \
	F(u32, len)  /* bytes, > 0, off+len <= 1 << block_log2 */             \
	F(u8, block_log2)                                                     \
	F(u32, flags)                                                         \
	F(i64, mtime_ns) /* kept for size recovery */                         \
	F(blob, sums)
WIRE_MESSAGE(blk_write, BLK_WRITE_FIELDS);

/* Every reply of a block daemon starts with these two. */
#define BLK_REPLY_FIELDS(F)                                                   \
	F(u64, boot_id)                                                       \
	F(u64, free_units) /* unpromised space left for writers, 4 KiB units*/\
	F(i64, units_delta) /* change of the inode's allocated units */       \
	WIRE_NEXT(F)
WIRE_MESSAGE(blk_reply, BLK_REPLY_FIELDS);

/* ---- read ---- */
#define BLK_READ_FIELDS(F)                                                    \
	F(u64, ino)                                                           \
	F(u64, index)                                                         \
	F(u64, cut)                                                           \
	F(u32, off)                                                           \
	F(u32, len)                                                           \
	F(u8, block_log2)                                                     \
	F(u32, flags) /* 0 */                                                 \
	WIRE_NEXT(F)
WIRE_MESSAGE(blk_read, BLK_READ_FIELDS);

/* @hole: nothing is stored in the range; data_len 0 and no sums. Otherwise
 * data_len == len, holes inside are zeros, sums as for a write. */
#define BLK_READ_REPLY_FIELDS(F)                                              \
	F(u64, boot_id)                                                       \
	F(u8, hole)                                                           \
	F(blob, sums)
WIRE_MESSAGE(blk_read_reply, BLK_READ_REPLY_FIELDS);

/* ---- sync: answered (blk_reply) when everything acknowledged before it is
 * durable: of one inode, or of all (ino 0) ---- */
#define BLK_SYNC_FIELDS(F) F(u64, ino)
WIRE_MESSAGE(blk_sync, BLK_SYNC_FIELDS);

/* ---- cut (from metad, or a client's hole punch ordered by metad): the
 * inode's cut number becomes @cut; file bytes [from, to) become a hole (parts
 * of units: zeros); answered (blk_reply) when durable. A cut not newer than
 * the one known is answered with success and does nothing. ---- */
#define BLK_CUT_TO_END UINT64_MAX
#define BLK_CUT_FIELDS(F)                                                     \
	F(u64, ino)                                                           \
	F(u64, cut)                                                           \
	F(u64, from)                                                          \
	F(u64, to) /* BLK_CUT_TO_END: to the end of the file, and blocks'     \
		    * recorded ends shrink to @from */                        \
	F(u8, block_log2)                                                     \
	WIRE_NEXT(F)
WIRE_MESSAGE(blk_cut, BLK_CUT_FIELDS);

/* ---- alloc: units of the range that are holes become allocated and read as
 * zeros (unwritten); bounds go outward to units ---- */
#define BLK_ALLOC_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u64, index)                                                         \
	F(u64, cut)                                                           \
	F(u32, off)                                                           \
	F(u32, len)                                                           \
	F(u8, block_log2)
WIRE_MESSAGE(blk_alloc, BLK_ALLOC_FIELDS);

/* ---- map: which units hold data. Reply: for each stored block with index in
 * [first, first+count) in order: u64 index, then a bitmap of
 * (1 << block_log2)/UNIT_SIZE bits rounded up to bytes, bit set = written data
 * (unwritten counts as hole). At most @count_max blocks; @next: where to go
 * on, UINT64_MAX when done. ---- */
#define BLK_MAP_FIELDS(F)                                                     \
	F(u64, ino)                                                           \
	F(u64, first)                                                         \
	F(u64, last) /* inclusive */                                          \
	F(u32, count_max)                                                     \
	F(u8, block_log2)
WIRE_MESSAGE(blk_map, BLK_MAP_FIELDS);
#define BLK_MAP_REPLY_FIELDS(F)                                               \
	F(u64, boot_id)                                                       \
	F(u64, next)                                                          \
	F(u32, count)                                                         \
	F(blob, entries)
WIRE_MESSAGE(blk_map_reply, BLK_MAP_REPLY_FIELDS);

/* ---- end: end of file, units and last write time as this daemon knows
 * them (size recovery). To metad, of an inode that nobody writes, it tells
 * only what is durable. ---- */
#define BLK_END_FIELDS(F) F(u64, ino) F(u8, block_log2)
WIRE_MESSAGE(blk_end, BLK_END_FIELDS);
#define BLK_END_REPLY_FIELDS(F)                                               \
	F(u64, boot_id)                                                       \
	F(u64, end) /* bytes; 0: no block here */                             \
	F(u64, units)                                                         \
	F(i64, mtime_ns) /* 0: none known */                                  \
	WIRE_NEXT(F)
WIRE_MESSAGE(blk_end_reply, BLK_END_REPLY_FIELDS);

/* ---- purge: inodes are gone for ever. @inos: u64 each. Durable reply. ---- */
#define BLK_PURGE_FIELDS(F) F(blob, inos)
WIRE_MESSAGE(blk_purge, BLK_PURGE_FIELDS);

#define BLK_STAT_REPLY_FIELDS(F)                                              \
	F(u64, boot_id)                                                       \
	F(u64, units_total) /* what writers may use in all */                 \
	F(u64, units_free)  /* less what is promised */                       \
	F(u64, units_more)  /* common/disk_share.h */                         \
	F(u64, disk)                                                          \
	F(u64, commit)      /* last durable commit number */                  \
	F(u64, ino_max)     /* largest inode, session, cut seen */            \
	F(u64, session_max)                                                   \
	F(u64, store_id_hi)                                                   \
	F(u64, store_id_lo)                                                   \
	F(u32, state) /* enum blk_state */                                    \
	F(str, error)
WIRE_MESSAGE(blk_stat_reply, BLK_STAT_REPLY_FIELDS);
enum blk_state {
	BLK_STATE_OK = 0,
	BLK_STATE_READ_ONLY = 1, /* a flush failed or the disk is read-only */
};

/* ---- list: for fsck; entries after (ino, index), in order ---- */
#define BLK_LIST_FIELDS(F) F(u64, ino) F(u64, index) F(u32, count_max)
WIRE_MESSAGE(blk_list, BLK_LIST_FIELDS);
#define BLK_LIST_REPLY_FIELDS(F)                                              \
	F(u64, boot_id)                                                       \
	F(u8, done)                                                           \
	F(u32, count)                                                         \
	F(blob, entries) /* count of blk_list_entry */
WIRE_MESSAGE(blk_list_reply, BLK_LIST_REPLY_FIELDS);
#define BLK_LIST_ENTRY_FIELDS(F)                                              \
	F(u64, ino)                                                           \
	F(u64, index)                                                         \
	F(u32, end) /* bytes in the block */                                  \
	F(u32, units)                                                         \
	F(u64, cut)                                                           \
	F(u8, block_log2)
WIRE_MESSAGE(blk_list_entry, BLK_LIST_ENTRY_FIELDS);

/* ---- fence (from metad): from the answer on nothing of that session has
 * any effect, and its connections are closed. ---- */
#define BLK_FENCE_FIELDS(F) F(u64, session) F(u64, epoch)
WIRE_MESSAGE(blk_fence, BLK_FENCE_FIELDS);

/* ---- scrub: verify all stored checksums; runs at a bounded rate; answered
 * at the end. ---- */
#define BLK_SCRUB_REPLY_FIELDS(F)                                             \
	F(u64, boot_id)                                                       \
	F(u64, units_read)                                                    \
	F(u64, units_bad)
WIRE_MESSAGE(blk_scrub_reply, BLK_SCRUB_REPLY_FIELDS);

#endif
