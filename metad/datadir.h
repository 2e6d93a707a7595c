/* The data directory of a metad: whose it is and in which state.
 *
 *	DIR/lock      held while a metad runs
 *	DIR/metad.id  a few lines of text: version, cluster, id, state
 *	DIR/raft/     libraft's log and snapshots
 *	DIR/mark      up to where the log was once known to go (mark.h)
 *	DIR/reserve   space for when the disk is full (room.h)
 */
#ifndef METAD_DATADIR_H
#define METAD_DATADIR_H

#include "common/base.h"

#define DATADIR_VERSION 1u

enum datadir_state {
	DATADIR_EMPTY, /* nothing is there that anybody was told of */
	DATADIR_NEW, /* made, nobody was served yet, nor did it vote */
	DATADIR_OK,
	DATADIR_RESTORING, /* a restore was cut off in the middle */
	DATADIR_RAISE, /* restored; counters are still to be raised */
	DATADIR_JOINED, /* of a group: may have voted; knows of no state yet */
};

struct datadir {
	char *path; /* absolute */
	char *raft; /* path of raft/ */
	uint64_t cluster_id;
	uint32_t id;
	enum datadir_state state;
	int lock_fd;
};

/* Makes the directory if need be, locks it, reads what it is. Returns 0 or
 * -errno with a sentence in @why (-EBUSY: in use; -EXDEV: another cluster's;
 * -EPROTONOSUPPORT: of a later version; -ENOTEMPTY: something else is there).*/
int datadir_open(struct datadir *d, const char *path, uint64_t cluster_id,
		 uint32_t id, char *why, size_t why_size);
/* Records a new state, durably; makes raft/ the first time. Returns 0 or
 * -errno. */
int datadir_set(struct datadir *d, enum datadir_state state);
void datadir_close(struct datadir *d);

#endif
