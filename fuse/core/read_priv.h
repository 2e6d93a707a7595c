/* Between read.c and prefetch.c: a piece of a read, and blocks read ahead. */
#ifndef FUSE_CORE_READ_PRIV_H
#define FUSE_CORE_READ_PRIV_H

#include "fuse/core/blk_priv.h"

struct read_op;

/* Bytes of one source: buffered here, read ahead, or asked of a daemon. */
struct read_piece {
	struct read_op *op;
	uint32_t at, len; /* in the read */
	uint64_t index; /* block, and where in it */
	uint32_t off;
	uint8_t block_log2;
	uint8_t bad; /* answers with wrong checksums */
	int err; /* of planning */
	struct wbuf_data *data; /* buffered: a reference */
	struct pf_entry *pf; /* read ahead: a reference */
	const uint8_t *pf_bytes; /* it was there at once */
	uint32_t pf_off; /* in its bytes */
	struct read_piece *pf_next; /* waits for it */
	uint64_t cut;
	struct blk_dev *dev;
	struct rpc_frame *frame; /* taken */
	struct rpc_call call;
	uint8_t body[40];
};

/* The bytes are there: they stay as long as what the piece refers to. No
 * lock; may end the read. */
void read_piece_ready(struct read_piece *p, const void *bytes);
/* Asks the daemon (again). No lock. */
void read_piece_fetch(struct read_piece *p);
/* Parses and verifies a reply for [off, off+len) of a block. Returns 0 and
 * where the bytes are, or -EBADMSG. */
int read_reply_check(const struct rpc_frame *f, uint32_t off, uint32_t len,
		     const uint8_t **bytes);

/* ---- prefetch.c; lock held ---- */
/* A read of the handle. Returns what shall be read ahead of it (it is in the
 * inode's list already) for prefetch_send(), or NULL. */
struct pf_entry *prefetch_note(struct core *c, struct core_file *f,
			       uint64_t off, uint32_t len);
/* No lock. */
void prefetch_send(struct core *c, struct pf_entry *list);
/* Entry with the byte at @pos, or NULL; lowers *@end to where what was found
 * (or the gap) ends. */
struct pf_entry *pf_find(struct core_inode *in, uint64_t pos, uint64_t *end);
uint32_t pf_count(const struct core_inode *in, uint64_t from, uint64_t to);
/* Ties @p (from file offset @pos) to the entry. Either its bytes are there
 * (@p->pf_bytes), or read_piece_ready() follows from the net's thread, or
 * read_piece_fetch() when the entry failed. */
void pf_use(struct core *c, struct pf_entry *e, struct read_piece *p,
	    uint64_t pos);
/* The piece is done with it. @len: bytes it took. */
void pf_put(struct core *c, struct pf_entry *e, uint32_t len);

#endif
