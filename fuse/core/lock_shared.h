/* Locks of a mount beside others: metad's (META_LOCK and its kin).
 *
 * A lock is first asked for in the session's stream, so that it comes behind
 * every unlock of before, also over a new connection; what is in use is then
 * waited for by a query, which metad answers when it has taken the lock for us.
 * Nothing of it is kept here: who holds what is in metad's state, and lasts as
 * long as the session.
 */
#ifndef FUSE_CORE_LOCK_SHARED_H
#define FUSE_CORE_LOCK_SHARED_H

#include "fuse/core/core_priv.h"

/* As core_setlk() and the rest; -EINPROGRESS or -ENOMEM. */
int lock_shared_set(struct core *c, struct core_lock_wait *w, bool wait);
void lock_shared_cancel(struct core *c, struct core_lock_wait *w);
int lock_shared_get(struct core *c, struct lock_range *r, core_cb cb,
		    void *arg);
int lock_shared_drop(struct core *c, uint64_t ino, enum lock_kind kind,
		     uint64_t owner, core_cb cb, void *arg);

#endif
