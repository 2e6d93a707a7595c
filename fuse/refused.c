/* -o writeback: a full disk ends the writing.
 *
 * Into the kernel's write-back cache a program may write for ever: the pages
 * find no space later, and that is told to fsync(2) and close(2) alone. But
 * before each write the kernel wants the file's mode, and asks for it, with
 * the writer's handle, when it was told that what it knows is old. The answer
 * is the error then, once, as NFS does it.
 *
 * What is to be told is one inode a slot. An inode that has lost its slot to
 * another gets it back with its next page that finds no space.
 */
#include "fuse/rim.h"

#include <stdatomic.h>

#define REFUSED_SLOTS 1024

static _Atomic uint64_t slots[REFUSED_SLOTS]; /* inode numbers, 0: free */

static _Atomic uint64_t *slot_of(uint64_t ino)
{
	return &slots[ino % REFUSED_SLOTS];
}

void rim_refused(struct rim *r, uint64_t ino)
{
	atomic_store(slot_of(ino), ino);
	rim_attr_changed(r, ino);
}

bool rim_refused_take(uint64_t ino)
{
	uint64_t seen = ino;
	/* Most requests find nothing: no write to the shared line. */
	return atomic_load(slot_of(ino)) == ino &&
	       atomic_compare_exchange_strong(slot_of(ino), &seen, 0);
}

void rim_refused_forget(uint64_t ino)
{
	(void)rim_refused_take(ino); /* nobody is to be told */
}
