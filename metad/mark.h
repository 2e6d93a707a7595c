/* A lower bound of what is durable, kept beside the log.
 *
 * libraft takes a damaged end of the log for one that was being written when
 * the power failed, and cuts it off. The mark tells the difference: it is
 * written after each batch is durable (to a mapped page, which costs nothing
 * and may be lost with the power, but is never ahead), so a log that ends
 * before it has lost something. And because libraft changes its open segments
 * when it loads them, they are copied first.
 */
#ifndef METAD_MARK_H
#define METAD_MARK_H

#include "common/base.h"

struct mark;

/* @dir: the data directory; @raft: libraft's. Copies open segments to
 * DIR/unclean, if there are any: all, or, where there is no room, none. Returns
 * 0 or -errno. */
int mark_open(const char *dir, const char *raft, struct mark **ret);
/* Batch number of the mark; 0: none. */
uint64_t mark_get(const struct mark *m);
void mark_set(struct mark *m, uint64_t batch);
/* The log was whole: the copies are not needed. */
void mark_good(struct mark *m);
void mark_close(struct mark *m); /* NULL: no-op */

#endif
