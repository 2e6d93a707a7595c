/* hailctl log salvage: the file as the blocks and the records of a peer make
 * it. */
#include "tools/hailctl/salvage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "common/cmap.h"
#include "common/crc32c.h"
#include "common/place.h"

struct copy {
	struct ctl *c;
	struct links *ls;
	const struct meta_attr *a;
	struct cmap *map;
	int fd;
};

static int write_all(int fd, const uint8_t *p, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		p += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* ---- blocks ---- */

static int copy_reply(const struct copy *k, const struct rpc_frame *f,
		      uint64_t at, uint32_t len)
{
	struct blk_read_reply r;

	if (blk_read_reply_parse(f->body, f->h.body_len, &r) < 0)
		return -EBADMSG;
	if (r.hole)
		return 0;
	if (f->h.data_len != len || crc32c_check(0, f->data, len, r.sums.p,
						 r.sums.len) < 0)
		return -EBADMSG;
	return write_all(k->fd, f->data, len, at);
}

/* One block, or the part of it that the file has. */
static bool copy_block(const struct copy *k, uint64_t index, uint32_t len)
{
	int at = place_primary(k->map, k->a->ino, index);
	struct blk_read m = { .ino = k->a->ino, .index = index,
			      .cut = k->a->cut, .len = len,
			      .block_log2 = k->a->block_log2 };
	struct link *l = at < 0 ? NULL :
			 salvage_link(k->ls, DAEMON_BLOCKD,
				      k->map->daemons[at].id);
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[64];
	int rv;

	if (!l) {
		ctl_err("the cluster file does not name the block daemon of "
			"block %" PRIu64, index);
		return false;
	}
	wire_out_init(&o, body, sizeof(body));
	blk_read_encode(&o, &m);
	rv = link_call(l, WIRE_OP_BLK_READ, body, o.len, k->c->o.timeout_ms,
		       &f);
	if (rv == 0) {
		rv = copy_reply(k, f, index << k->a->block_log2, len);
		rpc_frame_free(f);
	}
	if (rv < 0)
		ctl_err("%s: block %" PRIu64 ": %s", link_name(l), index,
			strerror(-rv));
	return rv == 0;
}

static bool copy_blocks(struct copy *k)
{
	uint64_t size = k->a->size, step = UINT64_C(1) << k->a->block_log2;
	int rv = meta_map(&k->ls->v[0], &k->map);

	if (rv < 0) {
		ctl_err("%s: cluster map: %s", link_name(&k->ls->v[0]),
			strerror(-rv));
		return false;
	}
	if (ftruncate(k->fd, (off_t)size) < 0) {
		ctl_err("writing: %s", strerror(errno));
		return false;
	}
	for (uint64_t at = 0; at < size; at += step) {
		if (!copy_block(k, at / step,
				(uint32_t)u64_min(step, size - at)))
			return false;
		progress(k->c, "%" PRIu64 " of %" PRIu64 " MiB", at >> 20,
			 size >> 20);
	}
	progress_clear();
	return true;
}

/* ---- records ---- */

/* Where holes cannot be made zeros are written. */
static int zero(int fd, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[64u << 10];
	off_t end = lseek(fd, 0, SEEK_END);

	if (end < 0)
		return -errno;
	if (off >= (uint64_t)end)
		return 0;
	len = u64_min(len, (uint64_t)end - off);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)off, (off_t)len) == 0)
		return 0;
	while (len > 0) {
		size_t step = u64_min(len, sizeof(zeros));
		int rv = write_all(fd, zeros, step, off);

		if (rv < 0)
			return rv;
		off += step;
		len -= step;
	}
	return 0;
}

static int apply(void *arg, const struct log_rec *r)
{
	const struct copy *k = arg;

	switch (r->kind) {
	case LOG_REC_WRITE:
		return write_all(k->fd, r->data, r->len, r->off);
	case LOG_REC_SIZE:
		return ftruncate(k->fd, (off_t)r->off) < 0 ? -errno : 0;
	case LOG_REC_ZERO:
		return zero(k->fd, r->off, r->arg);
	}
	return -EBADMSG;
}

bool salvage_write(struct ctl *c, struct links *ls, const struct meta_attr *a,
		   const struct salvage_log *g, int fd)
{
	struct copy k = { .c = c, .ls = ls, .a = a, .fd = fd };
	const struct salvage_peer *p = g && g->best >= 0 ? &g->peers[g->best] :
							   NULL;
	bool ok = copy_blocks(&k);
	int rv = 0;

	if (ok && p) {
		const struct log_salvage_what what = salvage_what(c, g);
		struct log_salvaged s;

		rv = log_salvage_walk(p->regions, p->region_count, &what, apply,
				      &k, &s);
	}
	if (ok && rv == 0 && fsync(fd) < 0)
		rv = -errno;
	if (rv < 0)
		ctl_err("writing: %s", strerror(-rv));
	cmap_free(k.map);
	return ok && rv == 0;
}
