/* Room on the disk of the data directory, so that a full one does not stop
 * metad: creating ends in time, deleting goes on.
 *
 *	DIR/reserve   space kept for that; it shrinks while the disk is full
 */
#ifndef METAD_ROOM_H
#define METAD_ROOM_H

#include "metad/metad.h"

/* Before the log is opened, which may need space: a disk found full gets the
 * whole reserve back. @path: the data directory. */
void room_prepare(const char *path);
/* Watches from now on. @dir: borrowed until room_free(). Returns 0 or -errno.*/
int room_new(struct metad *md, const char *dir, struct room **ret);
/* Commands that make the state grow are to be refused (-ENOSPC). */
bool room_full(const struct room *r);
void room_stop(struct room *r); /* closes its handles */
void room_free(struct room *r);

#endif
