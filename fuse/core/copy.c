/* copy_file_range within the mount: a chunk is read and written here, so that
 * the bytes do not pass through the kernel. Holes become zeros, as where the
 * kernel copies through the page cache.
 *
 * One chunk a request: of one whose caller is killed the kernel takes it that
 * nothing was copied, and keeps what it has of the target. So nothing is
 * written any more once nobody waits.
 */
#include "fuse/core/blk_priv.h"

#include <fcntl.h>

struct copy_op {
	struct core *c;
	/* Handles may be closed before the end when nobody waits. */
	struct core_inode *out; /* pinned */
	uint64_t off_out;
	size_t len;
	uint32_t flags; /* of a write */
	core_copy_cb cb;
	void *arg;
};

static void copy_end(struct copy_op *y, int err)
{
	core_lock(y->c);
	inode_unpin(y->c, y->out);
	core_unlock(y->c);
	y->cb(y->arg, err, err ? 0 : y->len);
	free(y);
}

static void copy_written(void *arg, int err)
{
	copy_end(arg, err);
}

static void copy_read(void *arg, int err, const struct iovec *iov,
		      int iov_count, size_t len)
{
	struct copy_op *y = arg;
	struct core *c = y->c;
	struct write_place to = {
		.in = y->out, .off = y->off_out, .flags = y->flags,
		.asker = y->arg,
	};

	if (!err && (y->flags & CORE_WRITE_ASK) && !c->opt.wanted(y->arg))
		err = -EINTR;
	y->len = len;
	if (err || len == 0)
		copy_end(y, err);
	else
		write_at(c, &to, iov, iov_count, len, copy_written, y);
}

void core_copy(struct core *c, const struct core_copy *p, core_copy_cb cb,
	       void *arg)
{
	struct copy_op *y = malloc(sizeof(*y));

	if (!y) {
		cb(arg, -ENOMEM, 0);
		return;
	}
	*y = (struct copy_op){
		.c = c,
		.out = p->out->in,
		.off_out = p->off_out,
		.flags = p->killpriv ? CORE_WRITE_KILLPRIV : 0,
		.cb = cb,
		.arg = arg,
	};
	if (p->out->flags & O_DIRECT)
		y->flags |= CORE_WRITE_DIRECT;
	if (c->opt.wanted)
		y->flags |= CORE_WRITE_ASK;
	core_lock(c);
	inode_pin(y->out);
	core_unlock(c);
	core_read(c, p->in, p->off_in, u64_min(p->len, CORE_COPY_MAX),
		  copy_read, y);
}
