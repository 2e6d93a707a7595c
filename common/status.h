/* Translation of errors at our borders: the only place that knows both. */
#ifndef COMMON_STATUS_H
#define COMMON_STATUS_H

#include "common/base.h"

/* @err: 0 or -errno. Returns the wire's number; one that has none is EIO's. */
uint32_t status_to_wire(int err);

/* Returns 0 or -errno; an unknown number is -EIO. */
int status_from_wire(uint32_t status);

/* @raft_err: 0 or a positive RAFT_* code. Returns 0 or -errno (not leader
 * and leadership lost: -EAGAIN). */
int status_from_raft(int raft_err);

/* @mdb_err: 0, errno or MDB_* code. Returns 0 or -errno (not found -ENOENT,
 * map or disk full -ENOSPC, corrupted -EBADMSG). */
int status_from_lmdb(int mdb_err);

#endif
