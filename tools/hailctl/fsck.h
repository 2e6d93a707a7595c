/* hailctl fsck: reading both sides in order. */
#ifndef TOOLS_HAILCTL_FSCK_H
#define TOOLS_HAILCTL_FSCK_H

#include "tools/hailctl/ctl.h"

/* Inodes of metad, ascending. */
struct inode_cursor {
	struct link *metad;
	struct rpc_frame *frame; /* holds the page */
	struct wire_in in;
	uint32_t left; /* in the page */
	bool last_page;
	bool valid; /* cur is one; else the end */
	struct meta_attr cur;
};

/* Blocks of one daemon, by (inode, index). */
struct block_cursor {
	struct link *l;
	struct rpc_frame *frame;
	struct wire_in in;
	uint32_t left;
	bool last_page;
	bool valid;
	struct blk_list_entry cur;
};

/* Start with the first inode after @ino. Return 0 or -errno. */
int inode_first(struct inode_cursor *c, struct link *metad, uint64_t ino);
int inode_next(struct inode_cursor *c);
void inode_end(struct inode_cursor *c);

/* Starts with the first block of an inode >= @ino. */
int block_first(struct block_cursor *c, struct link *l, uint64_t ino);
int block_next(struct block_cursor *c);
void block_end(struct block_cursor *c);

#endif
