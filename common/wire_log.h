/* Messages of the log daemon (hail-logd), which lends memory for the logs of
 * log files. What lies in that memory: common/log_rec.h.
 *
 * A log is named by its inode and the epoch in which it was made. A request of
 * a session that the cluster map does not have, or with an epoch below one that
 * the daemon was told for this inode (LOG_FENCE), is refused with -ESTALE and
 * changes nothing, however late it comes.
 */
#ifndef COMMON_WIRE_LOG_H
#define COMMON_WIRE_LOG_H

#include "common/wire_fields.h"

/* Every reply of a log daemon starts with this. */
#define LOG_REPLY_WANTED 0x1u /* memory of this log is wanted back: LOG_PING */
#define LOG_REPLY_FIELDS(F)                                                   \
	F(u64, boot_id)                                                       \
	F(u64, free_bytes)                                                    \
	F(u32, flags) /* LOG_REPLY_* */
WIRE_MESSAGE(log_reply, LOG_REPLY_FIELDS);

/* ALLOC: lends region @index, of 1 << @log2 bytes, zeroed. Asked again for the
 * same region by the same session it answers the same again, with what is in
 * it. -ENOSPC: no memory, or draining; -EEXIST: another size; -ESTALE; -EIDRM:
 * this log was given up here (see LOG_FENCE). reply: log_reply and this */
#define LOG_ALLOC_VERBS 0x1u /* register it for one-sided writes */
#define LOG_ALLOC_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u64, data_epoch)                                                    \
	F(u32, index)                                                         \
	F(u8, log2)                                                           \
	F(u8, flags) /* LOG_ALLOC_* */
WIRE_MESSAGE(log_alloc, LOG_ALLOC_FIELDS);
#define LOG_ALLOC_REPLY_FIELDS(F)                                             \
	F(u64, addr) /* where a one-sided write begins */                     \
	F(u32, rkey)                                                          \
	WIRE_NEXT(F)
WIRE_MESSAGE(log_alloc_reply, LOG_ALLOC_REPLY_FIELDS);

/* WRITE (where there is no RDMA): the frame's data goes to offset @off of the
 * region, then @slot (LOG_SLOT_SIZE bytes) to its place. @off is where the last
 * one ended; an earlier one is a duplicate, which is answered and changes
 * nothing. -ENOENT: no such region; -EBADMSG: a record or the slot is damaged;
 * -EPROTO: a gap; -ESTALE, -EIDRM. It ends one-sided writing
 * of this log: what is still on its way so does not arrive. reply: log_reply */
#define LOG_WRITE_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u64, data_epoch)                                                    \
	F(u32, index)                                                         \
	F(u32, off)                                                           \
	F(blob, slot)                                                         \
	WIRE_NEXT(F)
WIRE_MESSAGE(log_write, LOG_WRITE_FIELDS);

/* CONNECT: a token, good once, by which a connection of the RDMA manager is
 * known to be this log's; the one there was has ended. -EOPNOTSUPP: there is no
 * RDMA here. reply: log_reply and this */
#define LOG_CONNECT_FIELDS(F) F(u64, ino) F(u64, epoch)
WIRE_MESSAGE(log_connect, LOG_CONNECT_FIELDS);
#define LOG_CONNECT_REPLY_FIELDS(F) F(u64, token)
WIRE_MESSAGE(log_connect_reply, LOG_CONNECT_REPLY_FIELDS);

/* What the RDMA manager carries to the daemon with such a connection, zeros
 * behind it. */
#define LOG_RDMA_MAGIC 0x676f6c68u
#define LOG_RDMA_HELLO_FIELDS(F)                                              \
	F(u32, magic) /* LOG_RDMA_MAGIC */                                    \
	F(u32, version) /* WIRE_VERSION */                                    \
	F(u64, cluster_id)                                                    \
	F(u64, token)
WIRE_MESSAGE(log_rdma_hello, LOG_RDMA_HELLO_FIELDS);
#define LOG_RDMA_HELLO_SIZE 24u

/* FENCE: from now on nobody of an epoch below @epoch changes a log of @ino
 * here: connections are closed, keys revoked, what was received and not applied
 * is discarded, and then the regions of @data_epoch are listed. It is
 * remembered also where there is none. reply: log_reply and this, with
 * log_region @count times in @regions, by index */
enum log_held {
	LOG_HELD_NONE = 0, /* never had any, or all were freed by their owner */
	LOG_HELD = 1,
	LOG_HELD_GIVEN_UP = 2, /* memory was taken back: what it had is gone */
	LOG_HELD_TORN = 3, /* something lies behind its records that is none */
};
#define LOG_FENCE_FIELDS(F) F(u64, ino) F(u64, epoch) F(u64, data_epoch)
WIRE_MESSAGE(log_fence, LOG_FENCE_FIELDS);
#define LOG_FENCE_REPLY_FIELDS(F)                                             \
	F(u8, held) /* enum log_held */                                       \
	F(u32, count)                                                         \
	F(blob, regions)
WIRE_MESSAGE(log_fence_reply, LOG_FENCE_REPLY_FIELDS);
#define LOG_REGION_FIELDS(F)                                                  \
	F(u32, index)                                                         \
	F(u8, log2)                                                           \
	F(blob, slots) /* both, as they lie in memory */
WIRE_MESSAGE(log_region, LOG_REGION_FIELDS);

/* READ: bytes [@off, @off+@len) of a region, as data. @epoch: the reader's, at
 * least that of the last fence, else -ESTALE; a tool gives UINT64_MAX. reply:
 * log_reply */
#define LOG_READ_FIELDS(F)                                                    \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u64, data_epoch)                                                    \
	F(u32, index)                                                         \
	F(u32, off)                                                           \
	F(u32, len)
WIRE_MESSAGE(log_read, LOG_READ_FIELDS);

/* FREE: regions of @data_epoch below @below are not needed any more; ALL: nor
 * are any of @ino of epochs up to @epoch (a fence stays, until metad does not
 * know the log any more). Of what is not there it is no error. reply: log_reply
 */
#define LOG_FREE_ALL UINT32_MAX
#define LOG_FREE_FIELDS(F)                                                    \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u64, data_epoch)                                                    \
	F(u32, below)
WIRE_MESSAGE(log_free, LOG_FREE_FIELDS);

/* PING (no fields), once a second: is it there, and what of the session's it
 * wants back: log_name @count times in @wanted, gone @deadline_ms from now.
 * reply: log_reply and this */
#define LOG_PING_REPLY_FIELDS(F)                                              \
	F(u64, total_bytes)                                                   \
	F(u32, deadline_ms)                                                   \
	F(u32, count)                                                         \
	F(blob, wanted)
WIRE_MESSAGE(log_ping_reply, LOG_PING_REPLY_FIELDS);
#define LOG_NAME_FIELDS(F) F(u64, ino) F(u64, epoch)
WIRE_MESSAGE(log_name, LOG_NAME_FIELDS);

#endif
