/* copy_file_range within the mount: chunks are read and written here, so that
 * the bytes do not pass through the kernel. Holes become zeros, as where the
 * kernel copies through the page cache.
 */
#include "fuse/core/core_priv.h"

#include <fcntl.h>

#define COPY_CHUNK (1u << 20)

struct copy_op {
	struct core *c;
	struct core_file *in, *out;
	uint64_t off_in, off_out;
	size_t left, done, chunk;
	uint32_t flags; /* of core_write() */
	int err;
	bool eof;
	/* Steps to take. A callback that runs while copy_go() is at work adds
	 * one, which that takes: no recursion. */
	_Atomic unsigned turns;
	core_copy_cb cb;
	void *arg;
};

static void copy_go(struct copy_op *y);

static void copy_written(void *arg, int err)
{
	struct copy_op *y = arg;

	y->err = err;
	if (!err) {
		y->done += y->chunk;
		y->left -= y->chunk;
		y->off_in += y->chunk;
		y->off_out += y->chunk;
	}
	copy_go(y);
}

static void copy_read(void *arg, int err, const struct iovec *iov,
		      int iov_count, size_t len)
{
	struct copy_op *y = arg;

	y->err = err;
	y->eof = len == 0;
	y->chunk = len;
	if (err || len == 0)
		copy_go(y);
	else
		core_write(y->c, y->out, y->off_out, iov, iov_count, len,
			   y->flags, copy_written, y);
}

static void copy_go(struct copy_op *y)
{
	if (y->turns++ > 0)
		return;
	do {
		if (y->err || y->eof || y->left == 0) {
			y->cb(y->arg, y->done > 0 ? 0 : y->err, y->done);
			free(y);
			return;
		}
		core_read(y->c, y->in, y->off_in,
			  u64_min(y->left, COPY_CHUNK), copy_read, y);
	} while (--y->turns > 0);
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
		.in = p->in,
		.out = p->out,
		.off_in = p->off_in,
		.off_out = p->off_out,
		.left = p->len < CORE_COPY_MAX ? p->len : CORE_COPY_MAX,
		.flags = p->killpriv ? CORE_WRITE_KILLPRIV : 0,
		.cb = cb,
		.arg = arg,
	};
	if (p->out->flags & O_DIRECT)
		y->flags |= CORE_WRITE_DIRECT;
	copy_go(y);
}
