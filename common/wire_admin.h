/* Messages of tools to every daemon (HELLO with WIRE_ROLE_ADMIN). */
#ifndef COMMON_WIRE_ADMIN_H
#define COMMON_WIRE_ADMIN_H

#include "common/wire_fields.h"

/* STATUS, STATS, SESSIONS: no fields; reply: JSON text.
 * STOP: no fields; reply empty, then the daemon stops in order. */
#define ADMIN_TEXT_FIELDS(F) F(blob, json)
WIRE_MESSAGE(admin_text, ADMIN_TEXT_FIELDS);

/* INODES (metad, fsck): meta_attr of every inode after @ino, in order,
 * orphans (nlink 0) included. */
#define ADMIN_INODES_FIELDS(F) F(u64, ino) F(u32, count_max)
WIRE_MESSAGE(admin_inodes, ADMIN_INODES_FIELDS);
#define ADMIN_INODES_REPLY_FIELDS(F)                                          \
	F(u8, done)                                                           \
	F(u32, count)                                                         \
	F(blob, attrs)
WIRE_MESSAGE(admin_inodes_reply, ADMIN_INODES_REPLY_FIELDS);

/* BACKUP (metad): the state machine's snapshot in pieces. @handle 0 starts
 * one; the reply's handle and @off ask for the next piece. A handle ends with
 * its connection or its last piece. */
#define ADMIN_BACKUP_FIELDS(F) F(u64, handle) F(u64, off)
WIRE_MESSAGE(admin_backup, ADMIN_BACKUP_FIELDS);
#define ADMIN_BACKUP_REPLY_FIELDS(F)                                          \
	F(u64, handle)                                                        \
	F(u64, total)                                                         \
	F(blob, piece)
WIRE_MESSAGE(admin_backup_reply, ADMIN_BACKUP_REPLY_FIELDS);

/* GIVE_UP (metad): the store that block daemon @daemon_id had is gone for good,
 * and its data is accepted as lost: nobody waits for it any more, the daemon
 * may come with a new store, and what was on the old one reads as holes. The
 * old one is never let in again. The reply has no body and comes when that is
 * durable. -ENOENT: no such daemon; -EALREADY: it has no store; -EBUSY: it
 * serves, or may have until a moment ago. */
#define ADMIN_GIVE_UP_FIELDS(F) F(u32, daemon_id)
WIRE_MESSAGE(admin_give_up, ADMIN_GIVE_UP_FIELDS);

/* EVICT (metad): ends a session as if its mount were dead: fenced everywhere,
 * its sizes and logs recovered, then its leases and locks are free. The reply
 * has no body and comes when that has begun. -ENOENT: no such session lives;
 * -EAGAIN: another one is being ended. */
#define ADMIN_EVICT_FIELDS(F) F(u64, session)
WIRE_MESSAGE(admin_evict, ADMIN_EVICT_FIELDS);

/* METAD (metad, of a group): changes who belongs to it; one change at a time
 * (-EAGAIN). The reply has no body and comes when it is done; after TRANSFER
 * the connection may end before. -EOPNOTSUPP: it is alone.
 * ADD: a metad of the cluster file that runs becomes a voter when it has all
 * there is. -EALREADY: it is one; -ENOENT: the cluster file of the one that
 * leads does not name it; -ENOTCONN: it does not run, or has not yet found the
 * group.
 * REMOVE: -ENOENT: it is none; -EBUSY: it is the one that leads.
 * TRANSFER: it leads from now on. -ETIMEDOUT: it did not take over. */
enum admin_metad_what {
	ADMIN_METAD_ADD = 1,
	ADMIN_METAD_REMOVE,
	ADMIN_METAD_TRANSFER,
};
#define ADMIN_METAD_FIELDS(F) F(u8, what) F(u32, id)
WIRE_MESSAGE(admin_metad, ADMIN_METAD_FIELDS);

/* LOCKS, LEASES (metad): who has locks, who waits for them; who has write
 * leases. Reply: admin_text, at most @count_max of a kind, at most
 * ADMIN_HOLDINGS_MAX. */
#define ADMIN_HOLDINGS_MAX 8192u
#define ADMIN_HOLDINGS_FIELDS(F) F(u32, count_max)
WIRE_MESSAGE(admin_holdings, ADMIN_HOLDINGS_FIELDS);

/* REPAIR (metad, fsck): the blocks of an inode that is gone are purged, the
 * units of one that exists are counted again. The reply has no body; errors:
 * metad/repair.h. */
#define ADMIN_REPAIR_FIELDS(F) F(u64, ino)
WIRE_MESSAGE(admin_repair, ADMIN_REPAIR_FIELDS);

/* DRAIN (logd): lends nothing more and wants back what it has lent within
 * @deadline_ms, after which it takes it; @on 0: lends again. The reply has no
 * body and comes at once; the status tells what is still lent. */
#define ADMIN_DRAIN_FIELDS(F) F(u8, on) F(u32, deadline_ms)
WIRE_MESSAGE(admin_drain, ADMIN_DRAIN_FIELDS);

#endif
