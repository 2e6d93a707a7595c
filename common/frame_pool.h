/* Data buffers of received frames, kept for the next: fresh memory from the
 * system costs a page fault for each 4 KiB, which is more than receiving into
 * it. One pool a process, bounded; what is beyond goes back to the system.
 */
#ifndef COMMON_FRAME_POOL_H
#define COMMON_FRAME_POOL_H

#include "common/frame_in.h"

/* Most that the pool keeps while nobody uses it, bytes. */
#define FRAME_POOL_KEPT_MAX (24u << 20)

/* For frame_in_init(). Thread-safe; lives as long as the process. */
extern const struct frame_bufs frame_pool_bufs;

/* Gives what is kept back to the system. */
void frame_pool_trim(void);
size_t frame_pool_kept(void); /* bytes */

#endif
