/* A mount beside others (core_options.shared): what it must ask for before it
 * uses what it knows of an inode, and how it gives back what others want.
 *
 * Here and in the kernel nothing is believed without asking: names and
 * attributes are metad's each time, and bytes are read from the daemons. Only
 * the holder of an inode's write lease buffers writes and knows its size; it
 * asks metad to get the lease (META_WANT, then META_LEASE: while another has
 * it, that one is told to write back and return it), and returns it when it is
 * told that somebody else wants it (META_EVENTS).
 *
 * An inode's lease is, with core_options.shared,
 *	not held	!leased
 *	asked for	leased && lease_pending: nothing may be done under it
 *	held		leased && !lease_pending
 *	recalled	held && recalled: nothing new begins under it; it goes
 *			back when all is durable, and its log is gone
 * While a dead mount's log is put into the file (log_heir.c) the lease is held
 * and only who does that uses it (share_recovers()): all others wait, also for
 * attributes (metad lets them), as if another mount had it.
 * The lock is the core's throughout.
 */
#ifndef FUSE_CORE_SHARE_H
#define FUSE_CORE_SHARE_H

#include "fuse/core/core_priv.h"

/* Is what this mount knows of @in's size and bytes true? (Where it is alone:
 * always; metad may have been silent for too long, see meta_may_serve().) */
static inline bool share_readable(const struct core *c,
				  const struct core_inode *in)
{
	return !c->opt.shared ||
	       (in->leased && !in->lease_pending && !in->recovering);
}

/* Is the caller the thread that recovers @in? What it begins is told so, for
 * it goes on elsewhere. */
static inline bool share_recovers(const struct core *c,
				  const struct core_inode *in)
{
	return in->recovering && pthread_equal(c->recoverer, pthread_self());
}

/* May it be changed here? */
static inline bool share_writable(const struct core *c,
				  const struct core_inode *in)
{
	return share_readable(c, in) && !in->recalled;
}

/* It is not writable: @w runs as soon as it is, before anybody else can have
 * the lease, or with what it failed with. Never before return. */
void share_wait(struct core *c, struct core_inode *in, struct core_waiter *w);
/* It was given back, in this section of the lock (ret.c). */
void share_returned(struct core *c, struct core_inode *in);
/* It has no log any more that was to end before it can be. */
void share_log_ended(struct core *c, struct core_inode *in);
/* It is recovered. */
void share_recovered(struct core_inode *in);
/* The mount is fenced: whoever waits hears of it. */
void share_fence(struct core *c);

int share_new(struct core *c, struct share **ret);
/* META_EVENTS: asked for as long as the session lives. Not under the lock. */
void share_start(struct core *c);
void share_free(struct share *s); /* after the net has stopped; NULL: no-op */
void share_status(struct core *c, FILE *out); /* a JSON member */

#endif
