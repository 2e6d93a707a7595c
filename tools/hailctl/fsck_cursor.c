/* hailctl fsck: pages of inodes and blocks. */
#include "tools/hailctl/fsck.h"

#define PAGE_COUNT 2048u

void inode_end(struct inode_cursor *c)
{
	rpc_frame_free(c->frame);
	c->frame = NULL;
	c->valid = false;
}

/* After an entry was decoded: was it whole, and if @left is 0 the last? */
static bool page_is_good(struct wire_in *in, uint32_t left)
{
	return left > 0 ? !in->bad : wire_in_end(in) == 0;
}

static int inode_page(struct inode_cursor *c, uint64_t after)
{
	struct admin_inodes ask = { .ino = after, .count_max = PAGE_COUNT };
	struct admin_inodes_reply m;
	struct wire_out o;
	uint8_t body[16];
	int rv;

	rpc_frame_free(c->frame);
	c->frame = NULL;
	wire_out_init(&o, body, sizeof(body));
	admin_inodes_encode(&o, &ask);
	rv = link_call(c->metad, WIRE_OP_ADMIN_INODES, body, o.len, 0,
		       &c->frame);
	if (rv < 0)
		return rv;
	rv = admin_inodes_reply_parse(c->frame->body, c->frame->h.body_len,
				      &m);
	if (rv < 0)
		return rv;
	c->left = m.count;
	c->last_page = m.done != 0;
	wire_in_init(&c->in, m.attrs.p, m.attrs.len);
	return c->left == 0 && !c->last_page ? -EBADMSG : 0;
}

int inode_next(struct inode_cursor *c)
{
	uint64_t last = c->cur.ino;
	int rv;

	if (c->left == 0) {
		c->valid = false;
		if (c->last_page)
			return 0;
		rv = inode_page(c, last);
		if (rv < 0)
			return rv;
		if (c->left == 0)
			return 0;
	}
	c->left--;
	meta_attr_decode(&c->in, &c->cur);
	c->valid = page_is_good(&c->in, c->left) && c->cur.ino > last &&
		   c->cur.block_log2 >= BLOCK_LOG2_MIN &&
		   c->cur.block_log2 <= BLOCK_LOG2_MAX;
	return c->valid ? 0 : -EBADMSG;
}

int inode_first(struct inode_cursor *c, struct link *metad, uint64_t ino)
{
	memset(c, 0, sizeof(*c));
	c->metad = metad;
	c->cur.ino = ino;
	return inode_next(c);
}

void block_end(struct block_cursor *c)
{
	rpc_frame_free(c->frame);
	c->frame = NULL;
	c->valid = false;
}

static int block_page(struct block_cursor *c, uint64_t ino, uint64_t index)
{
	struct blk_list ask = { .ino = ino, .index = index,
				.count_max = PAGE_COUNT };
	struct blk_list_reply m;
	struct wire_out o;
	uint8_t body[32];
	int rv;

	rpc_frame_free(c->frame);
	c->frame = NULL;
	wire_out_init(&o, body, sizeof(body));
	blk_list_encode(&o, &ask);
	rv = link_call(c->l, WIRE_OP_BLK_LIST, body, o.len, 0, &c->frame);
	if (rv < 0)
		return rv;
	rv = blk_list_reply_parse(c->frame->body, c->frame->h.body_len, &m);
	if (rv < 0)
		return rv;
	c->left = m.count;
	c->last_page = m.done != 0;
	wire_in_init(&c->in, m.entries.p, m.entries.len);
	return c->left == 0 && !c->last_page ? -EBADMSG : 0;
}

int block_next(struct block_cursor *c)
{
	uint64_t ino = c->cur.ino, index = c->cur.index;
	int rv;

	if (c->left == 0) {
		c->valid = false;
		if (c->last_page)
			return 0;
		rv = block_page(c, ino, index);
		if (rv < 0)
			return rv;
		if (c->left == 0)
			return 0;
	}
	c->left--;
	blk_list_entry_decode(&c->in, &c->cur);
	c->valid = page_is_good(&c->in, c->left) &&
		   (c->cur.ino > ino ||
		    (c->cur.ino == ino && c->cur.index > index));
	return c->valid ? 0 : -EBADMSG;
}

int block_first(struct block_cursor *c, struct link *l, uint64_t ino)
{
	memset(c, 0, sizeof(*c));
	c->l = l;
	/* "after" the last possible block of the inode before; from the very
	 * start: after (0, 0), which is no block. */
	if (ino > 0) {
		c->cur.ino = ino - 1;
		c->cur.index = ino > 1 ? UINT64_MAX : 0;
	}
	return block_next(c);
}
