/* Keeps io_destroy(2) off the loop.
 *
 * libraft has a kernel AIO context for each log segment and destroys it on the
 * loop when the segment is full, or closed for a snapshot. The kernel lets that
 * wait for an RCU grace period: 35 ms without service, each time. So the
 * program has a syscall(3) of its own, which libraft finds before the C
 * library's, and which hands this one call to a thread.
 */
#ifndef METAD_AIO_H
#define METAD_AIO_H

#include "common/base.h"

/* Call at the start of main(); until then calls are made as they are. */
void aio_init(void);
/* How many calls were handed on. */
uint64_t aio_destroyed(void);

#endif
