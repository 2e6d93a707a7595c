/* What hailctl fsck --repair asks for, one inode at a time: blocks of an inode
 * that is gone are purged, the units of one that exists are counted again. Data
 * of a file that exists is not touched.
 */
#ifndef METAD_REPAIR_H
#define METAD_REPAIR_H

#include "metad/request.h"

struct repair;

/* Handler. Answers when it is done and durable:
 * -EINVAL: the inode was never given out (a mount's end sweeps those);
 * -EBUSY: it is being written, or was while the daemons were asked;
 * -EOPNOTSUPP: nothing of that kind has blocks;
 * -EAGAIN: too many under way. */
void repair_run(struct request *r);
/* Frees those under way, after drive_stop(). */
void repair_free_all(struct metad *md);

#endif
