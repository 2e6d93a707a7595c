/* The first state of a metad: an empty file system, or one from a backup.
 *
 * After a restore the counters must be larger than anything a block daemon has
 * seen, so that no inode number, session, epoch or cut number comes twice;
 * until all daemons have told what they have seen, no client is let in.
 *
 * The same when the data directory turns out to be an older copy than the block
 * stores (files copied by hand, a virtual machine rolled back).
 */
#ifndef METAD_RESTORE_H
#define METAD_RESTORE_H

#include "metad/datadir.h"
#include "metad/metad.h"

/* Proposes the first command of a new file system: the root directory and the
 * map made of the cluster file. Returns 0 or -errno. */
int restore_bootstrap(struct metad *md);
/* Puts a backup file's state into the empty md->sm. Returns 0 or -errno with a
 * sentence in @why. */
int restore_read(struct metad *md, const char *path, char *why,
		 size_t why_size);
/* Waits for the block daemons, raises the counters, ends sessions whose end had
 * begun, lets clients in. */
void restore_wait(struct metad *md);
struct monitor_daemon;
/* The store of @d has seen what these metadata never gave out. */
void restore_older(struct metad *md, const struct monitor_daemon *d);

#endif
