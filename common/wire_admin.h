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

#endif
