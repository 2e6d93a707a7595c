/* Messages of the metadata daemon. The body of a mutation is also the body of
 * the replicated command: one decoder, one fuzzer.
 */
#ifndef COMMON_WIRE_META_H
#define COMMON_WIRE_META_H

#include "common/wire_fields.h"

/* Prefix of every reply body of META_* requests that succeeded.
 * @pos: stream position (count of mutations ever applied) after this request.
 * @durable: every mutation up to this position is durable.
 * A session keeps a mutation, and may send it again after a reconnect, until
 * @durable has reached its @pos. */
#define META_RHDR_FIELDS(F)                                                   \
	F(u64, boot_id)                                                       \
	F(u64, pos)                                                           \
	F(u64, durable)
WIRE_MESSAGE(meta_rhdr, META_RHDR_FIELDS);

/* Prefix of every mutation's body. @seq: 1, 2, ... within the session, in the
 * order of the session's stream. @seq_low: lowest sequence whose reply the
 * client may still ask for. A sequence below it, or of a dead session, is
 * refused with -ESTALE; one answered before is answered again, not executed.
 * @now_ns: the client's CLOCK_REALTIME_COARSE, for time stamps. */
#define META_MHDR_FIELDS(F)                                                   \
	F(u64, seq)                                                           \
	F(u64, seq_low)                                                       \
	F(i64, now_ns)
WIRE_MESSAGE(meta_mhdr, META_MHDR_FIELDS);

#define META_ATTR_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u32, mode) /* type and permission bits as in st_mode */             \
	F(u32, nlink)                                                         \
	F(u32, uid)                                                           \
	F(u32, gid)                                                           \
	F(u32, rdev) /* as in struct stat, new_encode_dev() */                \
	F(u64, size) /* bytes; a lower bound while @flags has LEASED */       \
	F(u64, units) /* allocated, 4 KiB */                                  \
	F(i64, atime_ns)                                                      \
	F(i64, mtime_ns)                                                      \
	F(i64, ctime_ns)                                                      \
	F(i64, btime_ns)                                                      \
	F(u64, cut)                                                           \
	F(u64, parent) /* directories: for ".." ; others 0 */                 \
	F(u32, flags) /* META_ATTR_* */                                       \
	F(u8, block_log2)
WIRE_MESSAGE(meta_attr, META_ATTR_FIELDS);
#define META_ATTR_LEASED 0x1u /* a session holds the write lease */
#define META_ATTR_CAPS 0x2u /* has security.capability */
#define META_ATTR_ACL 0x4u /* has a POSIX access or default ACL */
#define META_ATTR_XATTR 0x8u /* has any xattr */
#define META_ATTR_LOG 0x10u /* a log file; a directory: makes such */

/* ---- session and map ---- */
/* Opens a session. @client_id: names the mount point on its machine; a live
 * session of the same id is fenced first (its process is known to be dead).
 * After the fields may come u32 META_SESSION_*; none: 0. Another live session:
 * -EBUSY, unless both are META_SESSION_SHARED. */
#define META_SESSION_SHARED 0x1u
#define META_SESSION_KNOWN META_SESSION_SHARED
#define META_SESSION_OPEN_FIELDS(F)                                           \
	F(u64, client_id)                                                     \
	F(str, host)                                                          \
	F(str, mountpoint)
WIRE_MESSAGE(meta_session_open, META_SESSION_OPEN_FIELDS);
#define META_SESSION_OPEN_REPLY_FIELDS(F)                                     \
	F(u64, session)                                                       \
	F(u64, cluster_id)                                                    \
	F(u32, keepalive_ms)                                                  \
	F(u32, lease_ms)
WIRE_MESSAGE(meta_session_open_reply, META_SESSION_OPEN_REPLY_FIELDS);

/* @status: JSON the mount wants shown by hailctl status; may be empty. */
#define META_KEEPALIVE_FIELDS(F) F(blob, status)                              \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_keepalive, META_KEEPALIVE_FIELDS);
/* reply: meta_rhdr alone. SESSION_CLOSE: no fields, reply meta_rhdr. */

/* MAP_GET reply: meta_rhdr, then the blob of common/cmap.h. */
#define META_BLOB_FIELDS(F) F(blob, value)
WIRE_MESSAGE(meta_blob, META_BLOB_FIELDS);

/* ---- reads ---- */
#define META_LOOKUP_FIELDS(F) F(u64, parent) F(str, name)                     \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_lookup, META_LOOKUP_FIELDS); /* reply: rhdr, attr;
						* name ".." is understood */
#define META_INO_FIELDS(F) F(u64, ino)
WIRE_MESSAGE(meta_ino, META_INO_FIELDS); /* GETATTR: rhdr, attr; READLINK:
					  * rhdr, blob; LISTXATTR: rhdr, blob
					  * of NUL-terminated names */
#define META_GETXATTR_FIELDS(F) F(u64, ino) F(str, name)
WIRE_MESSAGE(meta_getxattr, META_GETXATTR_FIELDS); /* rhdr, blob */

/* Entries after @cookie (0: from the start; "." and ".." are not listed),
 * up to @bytes_max of encoded entries. Cookies are > 2, below 2^63, stable
 * for the life of the name. */
#define META_READDIR_FIELDS(F)                                                \
	F(u64, dir)                                                           \
	F(u64, cookie)                                                        \
	F(u32, bytes_max)                                                     \
	F(u8, plus) /* with attributes */
WIRE_MESSAGE(meta_readdir, META_READDIR_FIELDS);
#define META_READDIR_REPLY_FIELDS(F)                                          \
	F(u8, eof)                                                            \
	F(u32, count)                                                         \
	F(blob, entries) /* meta_dirent, each followed by meta_attr if plus */
WIRE_MESSAGE(meta_readdir_reply, META_READDIR_REPLY_FIELDS);
#define META_DIRENT_FIELDS(F)                                                 \
	F(u64, cookie)                                                        \
	F(u64, ino)                                                           \
	F(u32, mode) /* type bits only are certain */                         \
	F(str, name)
WIRE_MESSAGE(meta_dirent, META_DIRENT_FIELDS);

#define META_STATFS_REPLY_FIELDS(F)                                           \
	F(u64, inodes)                                                        \
	F(u64, inodes_max)                                                    \
	F(u64, purge_pending) /* inodes whose blocks are still being freed */
WIRE_MESSAGE(meta_statfs_reply, META_STATFS_REPLY_FIELDS);

/* SYNC: answered (rhdr) when position @pos is durable. */
#define META_SYNC_FIELDS(F) F(u64, pos)
WIRE_MESSAGE(meta_sync, META_SYNC_FIELDS);

/* ---- mutations: meta_mhdr first; reply: meta_rhdr, then what is said ---- */

/* Any new object. @name empty with META_CREATE_TMPFILE: nlink 0, an orphan
 * of the session. Set-gid inheritance and the parent's default ACL are
 * applied here; @umask only where there is no default ACL.
 * EEXIST when the name exists (reply to META_CREATE_OPEN without EXCL: the
 * existing object with @existed). reply: attr, u8 existed
 * @ino: the number that a mount alone answered its kernel before it asked; 0:
 * metad chooses. Not below the next one metad would give: -ESTALE; also when
 * the command fails, it is not given again. (Not in older logs.) */
#define META_CREATE_TMPFILE 0x1u
#define META_CREATE_LEASE 0x2u /* grant the write lease with it */
#define META_CREATE_OPEN 0x4u
#define META_CREATE_EXCL 0x8u
#define META_CREATE_FIELDS(F)                                                 \
	F(u64, parent)                                                        \
	F(str, name)                                                          \
	F(u32, mode)                                                          \
	F(u32, umask)                                                         \
	F(u32, uid)                                                           \
	F(u32, gid)                                                           \
	F(u32, rdev)                                                          \
	F(u32, flags)                                                         \
	F(str, target) /* symlinks */                                         \
	F(SINCE(0, u64), ino)                                                 \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_create, META_CREATE_FIELDS);
#define META_CREATE_REPLY_FIELDS(F) F(u8, existed)                            \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_create_reply, META_CREATE_REPLY_FIELDS); /* after attr */

/* An inode whose last name goes becomes an orphan of every live session and
 * lives until each has given it back (META_RETURN) or ended. */
#define META_UNLINK_DIR 0x1u /* rmdir */
#define META_UNLINK_FIELDS(F) F(u64, parent) F(str, name) F(u32, flags)
WIRE_MESSAGE(meta_unlink, META_UNLINK_FIELDS);
#define META_UNLINK_REPLY_FIELDS(F)                                           \
	F(u64, ino)                                                           \
	F(u32, nlink) /* left */                                              \
	F(i64, ctime_ns)
WIRE_MESSAGE(meta_unlink_reply, META_UNLINK_REPLY_FIELDS);

/* @flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT as in linux/fs.h.
 * A whiteout, a character device 0/0 of @uid and @gid, takes the name that is
 * moved away from. */
#define META_RENAME_FIELDS(F)                                                 \
	F(u64, parent)                                                        \
	F(str, name)                                                          \
	F(u64, newparent)                                                     \
	F(str, newname)                                                       \
	F(u32, flags)                                                         \
	F(u32, uid)                                                           \
	F(u32, gid)
WIRE_MESSAGE(meta_rename, META_RENAME_FIELDS);
#define META_RENAME_REPLY_FIELDS(F)                                           \
	F(u64, ino)      /* moved */                                          \
	F(u64, replaced) /* inode that lost its name (or was exchanged); 0 */ \
	F(u32, replaced_nlink)                                                \
	F(u64, whiteout) /* inode that has the old name now; 0 */             \
	F(u32, flags) /* META_ATTR_* of what is moved */                      \
	F(u32, replaced_flags)
WIRE_MESSAGE(meta_rename_reply, META_RENAME_REPLY_FIELDS);

#define META_LINK_FIELDS(F) F(u64, ino) F(u64, newparent) F(str, newname)
WIRE_MESSAGE(meta_link, META_LINK_FIELDS); /* reply: attr */

#define META_SET_MODE 0x001u
#define META_SET_UID 0x002u
#define META_SET_GID 0x004u
#define META_SET_SIZE 0x008u /* growth only; shrinking is META_CUT */
#define META_SET_ATIME 0x010u
#define META_SET_MTIME 0x020u
#define META_SET_CTIME 0x040u
#define META_SET_KILLPRIV 0x080u /* clear set-uid, set-gid(x), capability */
#define META_SET_UNITS_DELTA 0x100u
#define META_SETATTR_FIELDS(F)                                                \
	F(u64, ino)                                                           \
	F(u32, valid) /* META_SET_* */                                        \
	F(u32, mode)                                                          \
	F(u32, uid)                                                           \
	F(u32, gid)                                                           \
	F(u64, size)                                                          \
	F(i64, atime_ns)                                                      \
	F(i64, mtime_ns)                                                      \
	F(i64, ctime_ns)                                                      \
	F(i64, units_delta)                                                   \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_setattr, META_SETATTR_FIELDS); /* reply: attr */

/* @flags: XATTR_CREATE, XATTR_REPLACE; META_XATTR_KILL_SGID with an access
 * ACL whose setter is not in the group. system.posix_acl_access and _default
 * are kept as ACLs and change the mode. reply: attr */
#define META_XATTR_KILL_SGID 0x100u
/* Of directories: bytes of the blocks of files that are made in it, and of
 * those of directories that are; decimal, with K or M if one likes. It is
 * there when it is not the default, BLOCK_LOG2_DEFAULT. */
#define META_XATTR_BLOCK_SIZE "user.hailfs.block_size"
/* Of directories: a file that gets a name in it, by creation, link or rename,
 * is a log file if the name matches (META_ATTR_LOG), and else it is none: the
 * last name that it was given counts. The value is text, words parted by blanks
 * (common/log_opts.h):
 *	match=GLOB  fnmatch(3) without flags, no character classes; default *
 *	peers=N     2f+1, LOG_PEER_COUNT_MAX at most; default 3
 *	region=SIZE power of two; default LOG_REGION_LOG2_DEFAULT
 *	destage=close|interval|off  default, auto: by the peers' failure domains
 *	fallback=blocks|refuse      without peers; default blocks
 * Not inherited by directories; files stay what they are when it changes. */
#define META_XATTR_LOG "user.hailfs.log"
#define META_SETXATTR_FIELDS(F)                                               \
	F(u64, ino)                                                           \
	F(str, name)                                                          \
	F(blob, value)                                                        \
	F(u32, flags)
WIRE_MESSAGE(meta_setxattr, META_SETXATTR_FIELDS);
#define META_REMOVEXATTR_FIELDS(F) F(u64, ino) F(str, name)
WIRE_MESSAGE(meta_removexattr, META_REMOVEXATTR_FIELDS); /* reply: attr */

/* LEASE: the session may write (grow) the file from now on. meta_ino body
 * after mhdr; reply: attr. Cut jobs of the inode are waited for. */

/* RETURN: what the session knows better, in one command. The body after mhdr:
 * up to RETURN_COUNT_MAX encoded meta_return, one after the other. reply: rhdr
 * alone. An unknown inode is skipped. */
#define META_RETURN_SIZE 0x1u /* set size (any), units (delta), mtime, ctime */
#define META_RETURN_LEASE 0x2u /* give the write lease back */
#define META_RETURN_ORPHAN 0x4u /* no handle is left on this orphan */
#define META_RETURN_ATIME 0x8u
#define META_RETURN_FIELDS(F)                                                 \
	F(u64, ino)                                                           \
	F(u32, what)                                                          \
	F(u64, size)                                                          \
	F(i64, units_delta)                                                   \
	F(i64, atime_ns)                                                      \
	F(i64, mtime_ns)                                                      \
	F(i64, ctime_ns)
WIRE_MESSAGE(meta_return, META_RETURN_FIELDS);

/* ---- several sessions ----
 * WANT (query, not from an ADMIN): answered when no other session holds the
 * write lease of @ino: its holder is asked to return it (EVENTS). @write: the
 * session is about to ask for that lease; for a moment those who come later
 * wait behind it. A file whose log a dead session has left is waited for until
 * it is recovered; -EIO: its log is another live session's that could not.
 * -EBUSY: too many wait. reply: attr */
#define META_WANT_FIELDS(F) F(u64, ino) F(u8, write)
WIRE_MESSAGE(meta_want, META_WANT_FIELDS);
/* EVENTS (query; no fields): answered when metad has something for the session,
 * however late: meta_event @count times. A recall that is not obeyed is told
 * again. -EAGAIN: another one of this session waits already.
 *	RECALL  the write lease of @ino is to be returned, with what was written
 *		durable: a session that does not is fenced
 *	ORPHAN  @ino has lost its last name by another session: to be returned
 *		(META_RETURN_ORPHAN) when no handle is left
 *	LOGS	dead sessions left logs that nobody recovers (HEIR); @ino says
 *		nothing */
enum meta_event_kind {
	META_EVENT_RECALL = 1,
	META_EVENT_ORPHAN = 2,
	META_EVENT_LOGS = 3,
};
#define META_EVENT_FIELDS(F) F(u8, kind) F(u64, ino)
WIRE_MESSAGE(meta_event, META_EVENT_FIELDS);
#define META_EVENTS_REPLY_FIELDS(F) F(u32, count) F(blob, events)
WIRE_MESSAGE(meta_events_reply, META_EVENTS_REPLY_FIELDS);

/* Advisory locks of the whole cluster. @kind, @type, the range: as in struct
 * lock_range; an owner is the session's affair, and not another one's of the
 * same number.
 * LOCK takes a lock or drops it (UNLOCK, also of what is not held). @taken 0:
 * somebody's lock is in the way; of a flock the one that was to be converted is
 * gone nevertheless, as Linux has it. -ENOLCK: there are LOCK_COUNT_MAX, or the
 * session has LOCK_FILE_COUNT_MAX of this file, also of what would split one.
 * LOCK_WAIT (query, not from an ADMIN; @id: of this wait, the session's
 * choice): answered with 0 when the session has got the lock, durably; who
 * waits is served in order of arrival. -EINTR: LOCK_CANCEL of @id; -EDEADLK:
 * of LOCK_KIND_POSIX with a pid, its owner would wait for itself; -ENOLCK: too
 * many wait. It is asked again after a reconnection, and may have been granted
 * before: a lock that is held is granted.
 * LOCK_CANCEL (query): ends that wait, if it is there (-ENOENT), and not what
 * was granted meanwhile.
 * LOCK_GET (query): meta_lock of the first lock in the way, with @type UNLOCK
 * when there is none; of another session's its @owner and @pid are 0. Asked
 * with UNLOCK: the owner's own first one. */
#define META_LOCK_FIELDS(F)                                                   \
	F(u64, ino)                                                           \
	F(u8, kind) /* enum lock_kind */                                      \
	F(u8, type) /* enum lock_type */                                      \
	F(u64, start)                                                         \
	F(u64, end) /* inclusive */                                           \
	F(u64, owner)                                                         \
	F(u32, pid) /* told by LOCK_GET; 0: of none */
WIRE_MESSAGE(meta_lock, META_LOCK_FIELDS);
#define META_LOCK_REPLY_FIELDS(F) F(u8, taken)
WIRE_MESSAGE(meta_lock_reply, META_LOCK_REPLY_FIELDS);
#define META_LOCK_WAIT_FIELDS(F) META_LOCK_FIELDS(F) F(u64, id)
WIRE_MESSAGE(meta_lock_wait, META_LOCK_WAIT_FIELDS);
#define META_LOCK_CANCEL_FIELDS(F) F(u64, id)
WIRE_MESSAGE(meta_lock_cancel, META_LOCK_CANCEL_FIELDS);

/* CUT: truncate (to == BLK_CUT_TO_END, size = from) or punch. @size_now: the
 * file's size as the lease holder knows it, @size: afterwards. Answered when
 * the command is durable and every block daemon has confirmed the cut.
 * reply: attr (with the new cut number) */
#define META_CUT_KILLPRIV 0x1u
#define META_CUT_FIELDS(F)                                                    \
	F(u64, ino)                                                           \
	F(u64, from)                                                          \
	F(u64, to)                                                            \
	F(u64, size_now)                                                      \
	F(u64, size)                                                          \
	F(u32, flags)
WIRE_MESSAGE(meta_cut, META_CUT_FIELDS);

/* ---- block daemon -> metad ---- */
#define META_REGISTER_FIELDS(F)                                               \
	F(u32, daemon_id)                                                     \
	F(u64, boot_id)                                                       \
	F(u64, store_id_hi)                                                   \
	F(u64, store_id_lo)                                                   \
	F(str, addr)                                                          \
	F(u16, port)                                                          \
	F(u64, units_total)                                                   \
	F(u64, units_free)                                                    \
	F(u64, commit)                                                        \
	F(u64, ino_max)                                                       \
	F(u64, session_max)
WIRE_MESSAGE(meta_register, META_REGISTER_FIELDS);
/* Both are answered by rhdr and this; the daemon may serve for @lease_ms. */
#define META_LEASE_REPLY_FIELDS(F)                                            \
	F(u64, cluster_id)                                                    \
	F(u64, epoch)                                                         \
	F(u32, lease_ms)
WIRE_MESSAGE(meta_lease_reply, META_LEASE_REPLY_FIELDS);
#define META_HEARTBEAT_FIELDS(F)                                              \
	F(u32, daemon_id)                                                     \
	F(u64, boot_id)                                                       \
	F(u64, units_total)                                                   \
	F(u64, units_free)                                                    \
	F(u64, commit)                                                        \
	F(u32, state) /* enum blk_state */                                    \
	F(str, error)                                                         \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_heartbeat, META_HEARTBEAT_FIELDS);

/* ---- logs: the registry ----
 * Of each log file with a log: which peers hold it. An entry has
 *	@epoch       whose owner may change it; of all logs ever, the largest
 *	@data_epoch  the epoch in which its regions were lent
 *	@version     grows with each change of @peers (compare and set)
 *	@session     the owner
 *	@peers       meta_log_peer, one after the other, LOG_PEER_COUNT_MAX at
 *	             most; one with another boot id has lost it all; none: the
 *	             file is no log file but a journal
 *	@flags       META_LOG_LIVE: @session is; META_LOG_LOST: see LOSE;
 *	             META_LOG_ORDERED: as it was made, see SET
 * A journal is a mount's own file: an orphan of the entry's session that does
 * not go with the session but stays, as nobody's, until another one raises the
 * entry and has it as its orphan. */
#define META_LOG_PEER_FIELDS(F) F(u32, id) F(u64, boot_id)
WIRE_MESSAGE(meta_log_peer, META_LOG_PEER_FIELDS);
#define META_LOG_LIVE 0x1u
#define META_LOG_LOST 0x2u
#define META_LOG_ORDERED 0x4u
#define META_LOG_ENTRY_FIELDS(F)                                              \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u64, data_epoch)                                                    \
	F(u32, version)                                                       \
	F(u64, session)                                                       \
	F(u8, flags)                                                          \
	F(blob, peers)
WIRE_MESSAGE(meta_log_entry, META_LOG_ENTRY_FIELDS);

/* SET (mutation). @epoch 0: makes the entry, in a new epoch, of a file whose
 * write lease the session has: -EEXIST when there is one, -EPERM without the
 * lease, -ENOENT. Else changes the peers: -ESTALE unless epoch, version and
 * session are the entry's. A peer must be in the cluster map with this boot id:
 * -ENXIO, unless it is on the list already. reply: meta_log_entry, when it is
 * durable. A file that goes takes its entry along.
 * @version of what is made: META_LOG_ORDERED or 0. Block writes follow the
 * records of such a log in order: when all its peers have lost it, the file
 * system is as it was without them, and the file need not be given up.
 * No @peers and @epoch 0: a journal, of a file that is the session's orphan
 * and nobody else's:
 * else -EINVAL, also later: no list becomes empty, and a journal gets no
 * peers. It cannot get a name any more. */
#define META_LOG_SET_FIELDS(F)                                                \
	F(u64, ino)                                                           \
	F(u64, epoch)                                                         \
	F(u32, version)                                                       \
	F(blob, peers)
WIRE_MESSAGE(meta_log_set, META_LOG_SET_FIELDS);
/* RAISE (mutation; meta_ino): the caller owns the log from now on, in a new
 * epoch; its data's stays. -ENOENT: no entry; -EBUSY: its owner is another live
 * session, or another one is the heir. reply: meta_log_entry, when it is
 * durable.
 * DROP (mutation): all of it is in the blocks, durably. -ESTALE: another epoch
 * or owner; no entry is no error; a journal goes when its orphan is returned.
 * reply: rhdr, when it is durable
 * LOSE (mutation; meta_log_drop): all its peers have lost it, or may turn out
 * to have, and the file must not be served as it was before, as long as the
 * entry is there: what others wrote since then is. -ENOENT: no entry; -ESTALE:
 * another epoch or owner; -EINVAL: a journal. reply: meta_log_entry, when it is
 * durable
 * HEIR (mutation): with @on the caller alone may recover what dead sessions
 * left, logs and journals, until it says so without @on, or its session ends:
 * those of one dead session belong together. -EBUSY: another one does. Who has
 * the file system alone need not ask. reply: rhdr */
#define META_LOG_HEIR_FIELDS(F) F(u8, on)
WIRE_MESSAGE(meta_log_heir, META_LOG_HEIR_FIELDS);
#define META_LOG_DROP_FIELDS(F) F(u64, ino) F(u64, epoch)
WIRE_MESSAGE(meta_log_drop, META_LOG_DROP_FIELDS);
/* LIST (query): entries after @ino, by ino; @session 0: of all; @count_max,
 * LOG_LIST_COUNT_MAX at most. reply: rhdr, meta_log_list_reply with
 * meta_log_entry @count times; not @done: there are more */
#define META_LOG_LIST_FIELDS(F) F(u64, ino) F(u64, session) F(u32, count_max)
WIRE_MESSAGE(meta_log_list, META_LOG_LIST_FIELDS);
#define META_LOG_LIST_REPLY_FIELDS(F)                                         \
	F(u8, done)                                                           \
	F(u32, count)                                                         \
	F(blob, entries)
WIRE_MESSAGE(meta_log_list_reply, META_LOG_LIST_REPLY_FIELDS);
/* OPTS (query; meta_ino): what the directory that made a file a log file says
 * now (META_XATTR_LOG); empty: nothing, or it is gone. -ENODATA: it is none.
 * reply: rhdr, blob */
/* PEERS (query): who could lend memory now, best first, @count_max at most
 * (1 to LOG_DAEMON_COUNT_MAX): living, not draining, with @bytes free; failure
 * domains in turn, in each the most free first; none of @without
 * (meta_log_peer), and rather others than the domains of those that live.
 * @shared: these do not all lie in different failure domains. reply: rhdr and
 * this, with meta_log_peer @count times */
#define META_LOG_PEERS_FIELDS(F)                                              \
	F(u32, count_max)                                                     \
	F(u64, bytes)                                                         \
	F(blob, without)
WIRE_MESSAGE(meta_log_peers, META_LOG_PEERS_FIELDS);
#define META_LOG_PEERS_REPLY_FIELDS(F)                                        \
	F(u8, shared)                                                         \
	F(u32, count)                                                         \
	F(blob, peers)
WIRE_MESSAGE(meta_log_peers_reply, META_LOG_PEERS_REPLY_FIELDS);

/* ---- log daemon -> metad; answered like REGISTER ---- */
#define META_LOG_REGISTER_FIELDS(F)                                           \
	F(u32, daemon_id)                                                     \
	F(u64, boot_id)                                                       \
	F(str, addr)                                                          \
	F(u16, port)                                                          \
	F(str, rdma_addr)                                                     \
	F(u16, rdma_port) /* 0: no RDMA */                                    \
	F(str, domain) /* failure domain */                                   \
	F(u64, total_bytes)                                                   \
	F(u64, free_bytes)                                                    \
	F(u64, log_epoch) /* the largest it was told or has lent in */
WIRE_MESSAGE(meta_log_register, META_LOG_REGISTER_FIELDS);
/* @logs: log_name of logs of which nothing was heard for a while,
 * LOG_LIST_COUNT_MAX at most. After meta_lease_reply: meta_log_gone for those
 * that it need not keep. (A log that is being copied there is on no list yet:
 * it is not told while it grows.) */
#define META_LOG_HEARTBEAT_FIELDS(F)                                          \
	F(u32, daemon_id)                                                     \
	F(u64, boot_id)                                                       \
	F(u64, total_bytes)                                                   \
	F(u64, free_bytes)                                                    \
	F(u8, draining)                                                       \
	F(blob, logs)
WIRE_MESSAGE(meta_log_heartbeat, META_LOG_HEARTBEAT_FIELDS);
enum meta_log_verdict {
	META_LOG_UNKNOWN = 1, /* no entry of that data epoch: forget it */
	META_LOG_UNLISTED = 2, /* not on its list: free it, and remember that
				* it was given up */
};
#define META_LOG_GONE_FIELDS(F) F(u64, ino) F(u64, epoch) F(u8, verdict)
WIRE_MESSAGE(meta_log_gone, META_LOG_GONE_FIELDS);
#define META_LOG_HEARTBEAT_REPLY_FIELDS(F) F(u32, count) F(blob, gone)        \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_log_heartbeat_reply, META_LOG_HEARTBEAT_REPLY_FIELDS);

/* ---- between the metads of a group ---- */

/* RAFT: the next bytes of a stream of libraft's, from @seq 0 on, which opens
 * it. @stream: the sender's, never used again. Answered when libraft has taken
 * them in; -EPIPE: it has closed the stream; -EAGAIN: it takes none. */
#define META_RAFT_BYTES_MAX 65536u
#define META_RAFT_FIELDS(F)                                                   \
	F(u64, stream)                                                        \
	F(u64, seq)                                                           \
	F(blob, bytes)
WIRE_MESSAGE(meta_raft, META_RAFT_FIELDS);

/* MEMBER (no body): what the answering metad is and knows. */
enum meta_voter {
	META_VOTER_NO,
	META_VOTER_YES,
	META_VOTER_UNKNOWN, /* its log is not loaded yet */
};
#define META_MEMBER_REPLY_FIELDS(F)                                           \
	F(u8, state) /* enum datadir_state */                                 \
	F(u8, voter) /* the asking one is: enum meta_voter */                 \
	F(u32, leader) /* 0: none that is known here */                       \
	F(u64, term)                                                          \
	F(u64, pos) /* executed */                                            \
	WIRE_NEXT(F)
WIRE_MESSAGE(meta_member_reply, META_MEMBER_REPLY_FIELDS);

#endif
