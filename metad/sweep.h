/* Blocks of inodes that never were.
 *
 * A mount may write the blocks of a file whose creation it was told of but
 * which is not durable yet. When the mount and metad die together the creation
 * is lost, the blocks are not, and the inode number would be given out again:
 * the next file with that number would find them. So, when a session has died
 * (it is fenced: nobody writes) and before the next begins, the block daemons
 * are asked for blocks of inodes that were not given out, these are purged,
 * and the next inode number is raised beyond them.
 *
 * A daemon that does not answer and may not serve any more is passed over
 * (design section 3: it delays by its lease at most); then the number is
 * raised beyond all that can have been lost.
 */
#ifndef METAD_SWEEP_H
#define METAD_SWEEP_H

#include "metad/metad.h"

struct sweep;

/* Starts. @done(@arg) runs later, from the loop, never before return, when
 * every block daemon has confirmed or is passed over. NULL: out of memory. */
struct sweep *sweep_start(struct metad *md, void (*done)(void *arg), void *arg);
/* Frees one that is under way, after drive_stop(). NULL: no-op. */
void sweep_free(struct sweep *s);

#endif
