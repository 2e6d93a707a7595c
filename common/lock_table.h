/* Advisory locks: POSIX (fcntl) byte ranges, OFD ranges and flock. [pure]
 *
 * The lock table of one authority: the mount while it alone has the inode,
 * later metad. Blocking requests wait in order; deadlocks of POSIX locks are
 * found. The last byte of a 64-bit offset can be locked: ranges are
 * inclusive [start, end].
 */
#ifndef COMMON_LOCK_TABLE_H
#define COMMON_LOCK_TABLE_H

#include "common/base.h"

/* Not LOCK_READ and so on: <fcntl.h> has macros of those names. */
enum lock_kind {
	LOCK_KIND_POSIX, /* OFD too, with the handle's owner and pid 0 */
	LOCK_KIND_FLOCK,
};
enum lock_type { LOCK_TYPE_READ, LOCK_TYPE_WRITE, LOCK_TYPE_UNLOCK };

struct lock_range {
	uint64_t ino;
	enum lock_kind kind;
	enum lock_type type;
	uint64_t start, end; /* inclusive; flock: 0, UINT64_MAX */
	uint64_t owner;
	uint32_t pid; /* told by F_GETLK; 0 for OFD */
};

/* A waiting request: the caller's memory until @granted ran or
 * lock_cancel(). */
struct lock_wait {
	struct lock_range r;
	/* @status 0: @w holds the lock; -EINTR: lock_drop_owner(); -ENOMEM.
	 * The table is consistent when it runs: it may use the table. */
	void (*granted)(struct lock_wait *w, int status);
	/* private */
	struct lock_wait *priv_next, *priv_prev; /* of the inode, in order */
	struct lock_wait *priv_owner_next; /* of the owner's hash bucket */
	struct lock_wait *priv_work_next;
	uint64_t priv_seen;
	int priv_status;
};

/* Locks and waiters in one table. */
#define LOCK_COUNT_MAX (1u << 20)

struct lock_table;
struct lock_table *lock_table_new(void); /* NULL: out of memory */
void lock_table_free(struct lock_table *t);

/* Takes or drops a lock. Returns 0, -EAGAIN (conflict), -ENOMEM, -ENOLCK
 * (LOCK_COUNT_MAX). Unlocking and downgrading grant waiters, the earliest
 * first (their @granted runs before return); like Linux, a request that
 * conflicts with no lock held does not queue behind those that wait. A flock
 * conversion drops the old lock first, as Linux does: it is lost even when
 * the new one conflicts. */
int lock_set(struct lock_table *t, const struct lock_range *r);
/* Like lock_set(), but waits on conflict: returns -EINPROGRESS and calls
 * w->granted later; or what lock_set() returns, or -EDEADLK
 * (LOCK_KIND_POSIX with a pid: the owner of a conflicting lock waits, through
 * any number of others, for this one); then @w is the caller's. */
int lock_set_wait(struct lock_table *t, struct lock_wait *w);
/* Takes a waiting request back (FUSE_INTERRUPT). Returns true when it was
 * still waiting. */
bool lock_cancel(struct lock_table *t, struct lock_wait *w);
/* Puts the first conflicting lock (the lowest start) in @r, or r->type =
 * LOCK_TYPE_UNLOCK. Asked with LOCK_TYPE_UNLOCK it is the first lock of the
 * owner's own, as F_OFD_GETLK with F_UNLCK is since Linux 6.5. */
void lock_get(struct lock_table *t, struct lock_range *r);
/* Drops every lock of (ino, kind, owner): close, exit. Also ends its waits
 * with -EINTR. */
void lock_drop_owner(struct lock_table *t, uint64_t ino, enum lock_kind kind,
		     uint64_t owner);
/* Any lock or waiter on the inode? */
bool lock_any(const struct lock_table *t, uint64_t ino);
/* Locks held; neighbours of one owner and type count once. */
size_t lock_count(const struct lock_table *t);

#endif
