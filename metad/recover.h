/* Opening a session, and ending one: the change of who may write.
 *
 * A session ends in this order, each step durable before the next:
 *	it leaves the map, nothing of it is executed any more (dead 1);
 *	every block daemon has fenced it, or its serving lease has run out;
 *	the size of each file it could write is asked of the block daemons;
 *	its leases, orphans and record go (dead 2).
 * A restart takes it up where it was.
 */
#ifndef METAD_RECOVER_H
#define METAD_RECOVER_H

#include "metad/request.h"

int recover_new(struct metad *md, struct recover **ret);
/* With each turn of the loop. Sessions end and begin only when the block
 * daemons that are there have told what they have seen, and, after a restore,
 * the counters are raised. */
void recover_turn(struct recover *r);
/* META_SESSION_OPEN, META_SESSION_CLOSE: the reply comes when it is durable.*/
void recover_open(struct metad *md, const struct reply_to *to,
		  const struct meta_session_open *m, uint32_t flags);
/* Ends a live session. -EAGAIN: another one is being ended; ask again later. */
int recover_evict(struct metad *md, uint64_t session, const char *why);
void recover_close(struct metad *md, const struct reply_to *to);
/* The session being ended, 0: none. */
uint64_t recover_session(const struct metad *md);
void recover_free(struct recover *r);

#endif
