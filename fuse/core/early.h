/* Names that change before metad is asked.
 *
 * A mount alone that knows the names and attributes concerned knows what a
 * create, an unlink, a rename or new attributes come to. It then answers the
 * kernel at once, its caches follow at once, and the command goes with the
 * stream (design section 6), a few of them together. As ever the stream is sent
 * again to a metad that restarted, and fsync waits for it; a new inode has a
 * number that the mount chose (meta_create.ino).
 *
 * Invariants: nothing is answered early while a change of names is under way
 * whose outcome only metad knows (@asked), or while the window is full. An
 * inode that an early command has changed stays in the table until metad has
 * answered that (core_inode.early_seq), and an answer that was asked for before
 * does not undo the change (early_overtook()).
 *
 * What metad refuses after all is an error of the next fsync of the directory,
 * of the file that never was, and of the next sync; it is logged and counted,
 * the kernel forgets its names, and metad is asked first until it grants that.
 *
 * Everything here: core->lock held.
 */
#ifndef FUSE_CORE_EARLY_H
#define FUSE_CORE_EARLY_H

#include "fuse/core/core_priv.h"

struct early {
	struct core *c;
	uint64_t next_ino; /* of the next inode; 0: not known */
	uint32_t blind; /* under way: metad chooses a number */
	uint32_t asked; /* under way: its outcome is not known here */
	/* != 0: nothing early before this (core_now_ms()), nor before metad has
	 * granted one of what it refused, @off_op */
	uint64_t off_ms;
	uint16_t off_op;
	uint32_t logged; /* refusals since then */
	int error; /* -errno of the last refusal; told by the next sync */
	/* queued to the peer and not kicked */
	uint32_t lazy;
	struct rpc_timer timer; /* kicks them */
	struct core_deferred arm;
	bool arm_queued;
	struct {
		uint64_t creates, unlinks, renames; /* answered early */
		uint64_t refused, differ; /* by metad; another answer */
	} count;
};

int early_new(struct core *c, struct early **ret);
void early_free(struct early *e);

/* What comes of making @p? False: metad is to be asked; else @a, but for the
 * times, and the inode @ret to take it. */
bool early_create(struct core *c, const struct core_create *p,
		  struct meta_attr *a, struct core_inode **ret);
/* ... of unlink, or rmdir (@dir)? */
bool early_unlink(struct core *c, uint64_t parent, const char *name, bool dir,
		  struct core_inode **ret);
bool early_rename(struct core *c, const struct core_rename *p,
		  struct core_inode **ret);
/* May a change of @in's attributes be answered early? */
bool early_inode(struct core *c, const struct core_inode *in);
#define EARLY_NAME 0x1u /* link count, parent */
#define EARLY_MODE 0x2u
#define EARLY_OWNER 0x4u
#define EARLY_ATIME 0x8u
#define EARLY_MTIME 0x10u
/* @mc, queued, has changed @in: its ctime, and @what. NULL: no-op. */
void early_mark(struct core_inode *in, const struct meta_call *mc,
		uint32_t what);
void early_made(struct core_inode *in, struct meta_call *mc);
/* ... has been answered. @in may be NULL. */
void early_settled(struct core_inode *in, const struct meta_call *mc);
/* metad refused @mc, a change of @name in @dir (or of inode @dir). */
void early_refused(struct meta_call *mc, const char *what, uint64_t dir,
		   struct wire_str name, int err);
/* meta_call.done of those that were answered early; mc->arg64: the inode,
 * arg64b: its link count. */
void early_create_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len);
void early_unlink_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len);
void early_rename_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len);

/* The number for a new inode, 0: metad chooses one, and early_number_told()
 * follows (@ino 0: none was given). */
uint64_t early_number(struct core *c);
void early_number_blind(struct core *c); /* metad chooses one */
void early_number_told(struct core *c, uint64_t ino);
/* A call is being queued; its answer has been taken into the caches. */
void early_queued(struct meta_call *mc);
void early_answered(struct meta_call *mc, int err);
/* Was @mc asked for before an early change of @in that metad has not answered?
 * Then @in knows better. */
bool early_overtook(const struct core_inode *in, const struct meta_call *mc);
/* @a of such an answer: what the early changes made of it. */
void early_keep(const struct core_inode *in, struct meta_attr *a);

/* Instead of core_kick_later(): true if @mc may wait for more. */
bool early_may_wait(struct meta_call *mc);
void early_kick(struct core *c); /* somebody waits for the stream */
/* The error of a refusal, once: of @in; of anything. 0: none. */
int early_error_of(struct core_inode *in);
int early_error(struct core *c);

#endif
