/* The purge queue: inodes that are gone for ever, whose blocks are freed at
 * every block daemon before they leave the queue.
 */
#ifndef METAD_PURGE_H
#define METAD_PURGE_H

#include "metad/metad.h"

int purge_new(struct metad *md, struct purge **ret);
/* Something may have been queued. Cheap. */
void purge_kick(struct purge *p);
void purge_stop(struct purge *p);
void purge_free(struct purge *p);

#endif
