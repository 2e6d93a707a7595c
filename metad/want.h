/* Several sessions: who waits for a write lease that another one holds, or for
 * the log that a dead one left, and what each session is to be told (META_WANT,
 * META_EVENTS). Volatile: who waits asks again when metad has restarted.
 *
 * A lease that is wanted is recalled from its holder; when it is free those who
 * only look are answered, then the first of those who want to write, and the
 * others wait a moment for it to take the lease: so sessions that fight for a
 * file have it in turn. Who does not return a lease in RECALL_MAX_MS is
 * fenced, and so is, while others live, who was not heard of for
 * SESSION_DEAD_MS.
 */
#ifndef METAD_WANT_H
#define METAD_WANT_H

#include "metad/request.h"

/* What a holder has to write back may take its disks so long. */
#define RECALL_MAX_MS 60000u

struct wants;

int wants_new(struct metad *md, struct wants **ret);
void wants_free(struct wants *ws); /* NULL: no-op */

/* META_WANT, META_EVENTS. */
void want_run(struct request *q);
void events_run(struct request *q);
/* With each turn of the loop, which wakes each second at least: leases may have
 * moved, time passed. */
void wants_look(struct metad *md);
/* An inode has lost its last name by @session: the others are told. */
void wants_orphan(struct metad *md, uint64_t ino, uint64_t session);
/* The connection is gone: nobody waits for its replies. */
void wants_conn_gone(struct metad *md, uint64_t conn_id);

#endif
