/* A store on a fake disk, synchronously. */
#include "tests/lib/store_box.h"

#include <unistd.h>

#include "common/crc32c.h"

struct wait {
	struct store_req req;
	bool done;
	int err;
};

static void wait_done(struct store_req *r, int err)
{
	struct wait *w = container_of(r, struct wait, req);

	assert(!w->done);
	w->done = true;
	w->err = err;
}

static void wait_init(struct wait *w)
{
	memset(w, 0, sizeof(*w));
	w->req.done = wait_done;
}

static int wait_for(struct store_box *b, struct wait *w)
{
	while (!w->done) {
		if (!fake_dev_step(b->f)) {
			(void)fprintf(stderr, "request lost\n");
			abort();
		}
	}
	b->units_delta = w->req.units_delta;
	return w->err;
}

void store_box_init_empty(struct store_box *b, uint64_t seed,
			  uint64_t capacity, uint64_t journal, uint64_t cache)
{
	memset(b, 0, sizeof(*b));
	/* LMDB's syncs cost nothing in memory, and mean nothing here. */
	(void)snprintf(b->dir, sizeof(b->dir), "%s/hailfs-store-XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (mkdtemp(b->dir) == NULL)
		abort();
	b->f = fake_dev_new(seed);
	b->o = (struct store_options){
		.dir = b->dir,
		.cluster_id = 77,
		.daemon_id = 3,
		.capacity_bytes = capacity,
		.journal_bytes = journal,
		.cache_bytes = cache,
		.inline_worker = true,
	};
}

void store_box_init(struct store_box *b, uint64_t seed, uint64_t capacity,
		    uint64_t journal, uint64_t cache)
{
	store_box_init_empty(b, seed, capacity, journal, cache);
	if (store_format(fake_dev_dev(b->f), &b->o) != 0 ||
	    store_box_open(b) != 0) {
		(void)fprintf(stderr, "%s\n", b->why);
		abort();
	}
}

int store_box_open(struct store_box *b)
{
	return store_open(fake_dev_dev(b->f), &b->o, &b->s, b->why,
			  sizeof(b->why));
}

static void closed(void *arg, int err)
{
	struct wait *w = arg;

	w->done = true;
	w->err = err;
}

int store_box_close(struct store_box *b)
{
	struct wait w;

	wait_init(&w);
	store_close(b->s, closed, &w);
	b->s = NULL;
	return wait_for(b, &w);
}

void store_box_kill(struct store_box *b)
{
	fake_dev_kill(b->f);
	store_abort(b->s);
	b->s = NULL;
}

void store_box_power_cut(struct store_box *b)
{
	fake_dev_power_cut(b->f);
	store_abort(b->s);
	b->s = NULL;
}

void store_box_settle(struct store_box *b)
{
	while (fake_dev_step(b->f))
		;
}

void store_box_fini(struct store_box *b)
{
	char path[128];

	if (b->s != NULL)
		store_box_kill(b);
	fake_dev_free(b->f);
	(void)snprintf(path, sizeof(path), "%s/index/data.mdb", b->dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/index/lock.mdb", b->dir);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s/index", b->dir);
	(void)rmdir(path);
	(void)rmdir(b->dir);
}

int store_box_write(struct store_box *b, uint64_t ino, uint64_t index,
		    uint64_t cut, uint32_t off, const void *data,
		    uint32_t len, bool sync)
{
	uint8_t sums[((1u << STORE_BOX_LOG2) / UNIT_SIZE + 1) * 4];
	struct blk_write w = {
		.ino = ino,
		.index = index,
		.cut = cut,
		.off = off,
		.len = len,
		.block_log2 = STORE_BOX_LOG2,
		.flags = sync ? BLK_WRITE_SYNC : 0,
		.mtime_ns = 5,
		.sums = { sums, crc32c_piece_count(off, len) * 4 },
	};
	struct wait wait;

	crc32c_sums(off, data, len, sums);
	wait_init(&wait);
	store_write(b->s, &wait.req, &w, data);
	assert(!wait.done);
	return wait_for(b, &wait);
}

int store_box_read(struct store_box *b, uint64_t ino, uint64_t index,
		   uint64_t cut, uint32_t off, void *data, uint32_t len)
{
	uint8_t sums[((1u << STORE_BOX_LOG2) / UNIT_SIZE + 1) * 4];
	struct blk_read rd = {
		.ino = ino,
		.index = index,
		.cut = cut,
		.off = off,
		.len = len,
		.block_log2 = STORE_BOX_LOG2,
	};
	uint32_t cap = (1u << STORE_BOX_LOG2) + UNIT_SIZE;
	struct store_read_out out = {
		.buf = aligned_alloc(UNIT_SIZE, cap),
		.buf_cap = cap,
		.sums = sums,
	};
	struct wait wait;
	int err;

	wait_init(&wait);
	store_read(b->s, &wait.req, &rd, &out);
	assert(!wait.done);
	err = wait_for(b, &wait);
	if (err == 0 && out.hole)
		memset(data, 0, len);
	if (err == 0 && !out.hole) {
		assert(out.data_off == off % UNIT_SIZE);
		memcpy(data, (uint8_t *)out.buf + out.data_off, len);
		if (crc32c_check(off, data, len, sums,
				 crc32c_piece_count(off, len) * 4) != 0) {
			(void)fprintf(stderr, "read's sums are wrong\n");
			abort();
		}
	}
	free(out.buf);
	return err;
}

int store_box_sync(struct store_box *b, uint64_t ino)
{
	struct wait wait;

	wait_init(&wait);
	store_sync(b->s, &wait.req, ino);
	assert(!wait.done);
	return wait_for(b, &wait);
}

int store_box_cut(struct store_box *b, uint64_t ino, uint64_t cut,
		  uint64_t from, uint64_t to)
{
	struct blk_cut c = { .ino = ino, .cut = cut, .from = from, .to = to,
			     .block_log2 = STORE_BOX_LOG2 };
	struct wait wait;

	wait_init(&wait);
	store_cut(b->s, &wait.req, &c);
	assert(!wait.done);
	return wait_for(b, &wait);
}

int store_box_alloc(struct store_box *b, uint64_t ino, uint64_t index,
		    uint64_t cut, uint32_t off, uint32_t len)
{
	struct blk_alloc a = { .ino = ino, .index = index, .cut = cut,
			       .off = off, .len = len,
			       .block_log2 = STORE_BOX_LOG2 };
	struct wait wait;

	wait_init(&wait);
	store_alloc(b->s, &wait.req, &a);
	assert(!wait.done);
	return wait_for(b, &wait);
}

int store_box_purge(struct store_box *b, uint64_t ino)
{
	struct wait wait;

	wait_init(&wait);
	store_purge(b->s, &wait.req, &ino, 1);
	assert(!wait.done);
	return wait_for(b, &wait);
}

struct store_stat store_box_stat(struct store_box *b)
{
	struct store_stat st;

	store_stat(b->s, &st);
	return st;
}
