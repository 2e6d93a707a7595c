/* Who waits for an advisory lock (META_LOCK_WAIT). The locks themselves are in
 * the state; who waits is not: it asks again when metad has restarted.
 *
 * Whenever something of a lock is given up those who wait are served, the
 * earliest first, each as soon as no lock that is held is in its way: in the
 * name of its session, by a command, and answered when that is durable.
 */
#ifndef METAD_LOCK_H
#define METAD_LOCK_H

#include "metad/request.h"

struct lock_waits;

int lock_waits_new(struct metad *md, struct lock_waits **ret);
void lock_waits_free(struct lock_waits *ws); /* NULL: no-op */

/* META_LOCK_WAIT, META_LOCK_CANCEL. */
void lock_wait_run(struct request *q);
void lock_cancel_run(struct request *q);
/* @q, a META_LOCK, was executed and answered; before it sm_locks_freed() was
 * @freed. */
void lock_waits_changed(struct metad *md, const struct request *q,
			uint64_t freed);
/* With each turn of the loop: sessions may have ended. */
void lock_waits_look(struct metad *md);
/* Calls @fn for each that waits, in order. */
void lock_waits_each(struct metad *md,
		     void (*fn)(void *arg, const struct sm_lock *k),
		     void *arg);
/* The connection is gone: nobody waits for its replies. */
void lock_waits_conn_gone(struct metad *md, uint64_t conn_id);

#endif
