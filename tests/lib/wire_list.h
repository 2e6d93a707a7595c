/* Every message of the protocol, for tests that hold for all of them.
 * tests/tidy.sh refuses a WIRE_MESSAGE() of common/ or metad/ that is missing
 * here.
 */
#ifndef TESTS_LIB_WIRE_LIST_H
#define TESTS_LIB_WIRE_LIST_H

#include "common/wire_admin.h"
#include "common/wire_blk.h"
#include "common/wire_log.h"
#include "common/wire_meta.h"
#include "metad/sm.h"

#define WIRE_LIST_BLK(M) \
	M(hello, HELLO_FIELDS) \
	M(hello_reply, HELLO_REPLY_FIELDS) \
	M(blk_write, BLK_WRITE_FIELDS) \
	M(blk_reply, BLK_REPLY_FIELDS) \
	M(blk_read, BLK_READ_FIELDS) \
	M(blk_read_reply, BLK_READ_REPLY_FIELDS) \
	M(blk_sync, BLK_SYNC_FIELDS) \
	M(blk_cut, BLK_CUT_FIELDS) \
	M(blk_alloc, BLK_ALLOC_FIELDS) \
	M(blk_map, BLK_MAP_FIELDS) \
	M(blk_map_reply, BLK_MAP_REPLY_FIELDS) \
	M(blk_end, BLK_END_FIELDS) \
	M(blk_end_reply, BLK_END_REPLY_FIELDS) \
	M(blk_purge, BLK_PURGE_FIELDS) \
	M(blk_stat_reply, BLK_STAT_REPLY_FIELDS) \
	M(blk_list, BLK_LIST_FIELDS) \
	M(blk_list_reply, BLK_LIST_REPLY_FIELDS) \
	M(blk_list_entry, BLK_LIST_ENTRY_FIELDS) \
	M(blk_fence, BLK_FENCE_FIELDS) \
	M(blk_scrub_reply, BLK_SCRUB_REPLY_FIELDS)

#define WIRE_LIST_ADMIN(M) \
	M(admin_text, ADMIN_TEXT_FIELDS) \
	M(admin_inodes, ADMIN_INODES_FIELDS) \
	M(admin_inodes_reply, ADMIN_INODES_REPLY_FIELDS) \
	M(admin_backup, ADMIN_BACKUP_FIELDS) \
	M(admin_backup_reply, ADMIN_BACKUP_REPLY_FIELDS) \
	M(admin_give_up, ADMIN_GIVE_UP_FIELDS) \
	M(admin_repair, ADMIN_REPAIR_FIELDS) \
	M(admin_drain, ADMIN_DRAIN_FIELDS) \
	M(admin_evict, ADMIN_EVICT_FIELDS) \
	M(admin_metad, ADMIN_METAD_FIELDS) \
	M(admin_holdings, ADMIN_HOLDINGS_FIELDS)

#define WIRE_LIST_META(M) \
	M(meta_rhdr, META_RHDR_FIELDS) \
	M(meta_mhdr, META_MHDR_FIELDS) \
	M(meta_attr, META_ATTR_FIELDS) \
	M(meta_session_open, META_SESSION_OPEN_FIELDS) \
	M(meta_session_open_reply, META_SESSION_OPEN_REPLY_FIELDS) \
	M(meta_keepalive, META_KEEPALIVE_FIELDS) \
	M(meta_blob, META_BLOB_FIELDS) \
	M(meta_lookup, META_LOOKUP_FIELDS) \
	M(meta_ino, META_INO_FIELDS) \
	M(meta_getxattr, META_GETXATTR_FIELDS) \
	M(meta_readdir, META_READDIR_FIELDS) \
	M(meta_readdir_reply, META_READDIR_REPLY_FIELDS) \
	M(meta_dirent, META_DIRENT_FIELDS) \
	M(meta_statfs_reply, META_STATFS_REPLY_FIELDS) \
	M(meta_sync, META_SYNC_FIELDS) \
	M(meta_create, META_CREATE_FIELDS) \
	M(meta_create_reply, META_CREATE_REPLY_FIELDS) \
	M(meta_unlink, META_UNLINK_FIELDS) \
	M(meta_unlink_reply, META_UNLINK_REPLY_FIELDS) \
	M(meta_rename, META_RENAME_FIELDS) \
	M(meta_rename_reply, META_RENAME_REPLY_FIELDS) \
	M(meta_link, META_LINK_FIELDS) \
	M(meta_setattr, META_SETATTR_FIELDS) \
	M(meta_setxattr, META_SETXATTR_FIELDS) \
	M(meta_removexattr, META_REMOVEXATTR_FIELDS) \
	M(meta_return, META_RETURN_FIELDS) \
	M(meta_want, META_WANT_FIELDS) \
	M(meta_event, META_EVENT_FIELDS) \
	M(meta_events_reply, META_EVENTS_REPLY_FIELDS) \
	M(meta_lock, META_LOCK_FIELDS) \
	M(meta_lock_reply, META_LOCK_REPLY_FIELDS) \
	M(meta_lock_wait, META_LOCK_WAIT_FIELDS) \
	M(meta_lock_cancel, META_LOCK_CANCEL_FIELDS) \
	M(meta_raft, META_RAFT_FIELDS) \
	M(meta_member_reply, META_MEMBER_REPLY_FIELDS) \
	M(meta_cut, META_CUT_FIELDS) \
	M(meta_register, META_REGISTER_FIELDS) \
	M(meta_lease_reply, META_LEASE_REPLY_FIELDS) \
	M(meta_heartbeat, META_HEARTBEAT_FIELDS) \
	M(meta_log_peer, META_LOG_PEER_FIELDS) \
	M(meta_log_entry, META_LOG_ENTRY_FIELDS) \
	M(meta_log_set, META_LOG_SET_FIELDS) \
	M(meta_log_drop, META_LOG_DROP_FIELDS) \
	M(meta_log_heir, META_LOG_HEIR_FIELDS) \
	M(meta_log_list, META_LOG_LIST_FIELDS) \
	M(meta_log_list_reply, META_LOG_LIST_REPLY_FIELDS) \
	M(meta_log_peers, META_LOG_PEERS_FIELDS) \
	M(meta_log_peers_reply, META_LOG_PEERS_REPLY_FIELDS) \
	M(meta_log_register, META_LOG_REGISTER_FIELDS) \
	M(meta_log_heartbeat, META_LOG_HEARTBEAT_FIELDS) \
	M(meta_log_gone, META_LOG_GONE_FIELDS) \
	M(meta_log_heartbeat_reply, META_LOG_HEARTBEAT_REPLY_FIELDS)

#define WIRE_LIST_SM(M) \
	M(sm_bootstrap, SM_BOOTSTRAP_FIELDS) \
	M(sm_session_open, SM_SESSION_OPEN_FIELDS) \
	M(sm_session_close, SM_SESSION_CLOSE_FIELDS) \
	M(sm_daemon_set, SM_DAEMON_SET_FIELDS) \
	M(sm_purge_done, SM_PURGE_DONE_FIELDS) \
	M(sm_cut_done, SM_CUT_DONE_FIELDS) \
	M(sm_size_set, SM_SIZE_SET_FIELDS) \
	M(sm_raise, SM_RAISE_FIELDS) \
	M(sm_logd_set, SM_LOGD_SET_FIELDS) \
	M(sm_lock_grant, SM_LOCK_FIELDS)

#define WIRE_LIST_LOG(M) \
	M(log_reply, LOG_REPLY_FIELDS) \
	M(log_alloc, LOG_ALLOC_FIELDS) \
	M(log_alloc_reply, LOG_ALLOC_REPLY_FIELDS) \
	M(log_write, LOG_WRITE_FIELDS) \
	M(log_connect, LOG_CONNECT_FIELDS) \
	M(log_connect_reply, LOG_CONNECT_REPLY_FIELDS) \
	M(log_rdma_hello, LOG_RDMA_HELLO_FIELDS) \
	M(log_fence, LOG_FENCE_FIELDS) \
	M(log_fence_reply, LOG_FENCE_REPLY_FIELDS) \
	M(log_region, LOG_REGION_FIELDS) \
	M(log_read, LOG_READ_FIELDS) \
	M(log_free, LOG_FREE_FIELDS) \
	M(log_ping_reply, LOG_PING_REPLY_FIELDS) \
	M(log_name, LOG_NAME_FIELDS)

#define WIRE_LIST_ALL(M) \
	WIRE_LIST_BLK(M) \
	WIRE_LIST_ADMIN(M) \
	WIRE_LIST_META(M) \
	WIRE_LIST_SM(M) \
	WIRE_LIST_LOG(M)

#endif
