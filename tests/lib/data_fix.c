/* Blocking forms of the client core's data operations, for tests. */
#include "tests/lib/data_fix.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CLUSTER_ID 0x6d696e69u /* the mini metad's */

/* ---- what metad asks of the daemons ---- */

static int64_t on_cut(void *arg, const struct sm_cut *s)
{
	struct dfix *d = arg;
	struct blk_cut cut = { s->ino, s->cut, s->from, s->to, s->block_log2 };
	int64_t delta = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		delta += mini_blockd_cut(d->b[i], &cut);
	return delta;
}

static void on_purge(void *arg, uint64_t ino)
{
	struct dfix *d = arg;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_purge(d->b[i], ino);
}

static void on_fence(void *arg, uint64_t session)
{
	struct dfix *d = arg;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fence_session(d->b[i], session);
}

static uint64_t on_end(void *arg, uint64_t ino, uint64_t *units)
{
	struct dfix *d = arg;
	uint64_t end = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		end = u64_max(end, mini_blockd_end(d->b[i], ino, units));
	return end;
}

/* ---- fixture ---- */

static void logds_new(struct dfix *d, const struct dfix_options *o)
{
	static const char *const domains[DFIX_LOGDS_MAX] = { "a", "b", "c", "d",
							     "e", "f" };

	assert_true(o->logd_count <= DFIX_LOGDS_MAX);
	d->logd_count = o->logd_count;
	for (uint32_t i = 0; i < d->logd_count; i++) {
		struct mini_logd *l = mini_logd_new(i + 1, CLUSTER_ID,
						    o->logd_bytes ?
						    o->logd_bytes : 4u << 20);

		d->l[i] = l;
		mini_metad_logd(d->f.m, &(struct mini_metad_logd){
			.id = i + 1, .boot_id = mini_logd_boot_id(l),
			.port = mini_logd_port(l), .domain = domains[i],
			.free_bytes = mini_logd_free_bytes(l), .there = true });
	}
}

struct core *dfix_core_new(struct dfix *d)
{
	struct core *c;

	assert_int_equal(core_new(&d->co, &c), 0);
	return c;
}

struct dfix *dfix_new(const struct dfix_options *o)
{
	const struct dfix_options none = { 0 };
	struct dfix *d = calloc(1, sizeof(*d));
	struct mini_metad_options mo = { .blockd_count = DFIX_BLOCKDS,
					 .keepalive_ms = 200, .cut = on_cut,
					 .purge = on_purge,
					 .fence = on_fence };

	assert_non_null(d);
	o = o ? o : &none;
	mo.arg = d;
	/* Recovery of logs needs them. */
	mo.end = o->logd_count ? on_end : NULL;
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++) {
		assert_int_equal(mini_blockd_new(i + 1, CLUSTER_ID, &d->b[i]),
				 0);
		mo.blockd_ports[i] = mini_blockd_port(d->b[i]);
	}
	assert_int_equal(mini_metad_new(&mo, &d->f.m), 0);
	assert_int_equal(mini_metad_cluster_id(d->f.m), CLUSTER_ID);
	logds_new(d, o);
	d->co = (struct core_options){
		.conf = mini_metad_conf(d->f.m),
		.host = "here",
		.mountpoint = "/mnt/test",
		.wb_bytes_max = o->wb_bytes_max ? o->wb_bytes_max : 64u << 20,
		.prefetch_bytes_max = o->prefetch_bytes_max ?
				      o->prefetch_bytes_max : 8u << 20,
		.flush_age_ms = o->flush_age_ms ? o->flush_age_ms : 60000,
		.timeout_ms = o->timeout_ms,
	};
	d->f.c = dfix_core_new(d);
	assert_int_equal(core_start(d->f.c, WAIT_MS), 0);
	return d;
}

static void dfix_free(struct dfix *d)
{
	core_free(d->f.c);
	mini_metad_free(d->f.m);
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++) {
		assert_int_equal(mini_blockd_violations(d->b[i]), 0);
		mini_blockd_free(d->b[i]);
	}
	for (uint32_t i = 0; i < d->logd_count; i++) {
		assert_int_equal(mini_logd_violations(d->l[i]), 0);
		mini_logd_free(d->l[i]);
	}
	free(d);
}

void dfix_stop(struct dfix *d)
{
	assert_int_equal(core_stop(d->f.c, WAIT_MS), 0);
	assert_int_equal(mini_metad_lease_count(d->f.m), 0);
	assert_int_equal(mini_metad_session_count(d->f.m), 0);
	dfix_free(d);
}

void dfix_kill(struct dfix *d)
{
	dfix_free(d);
}

struct core_file *d_create(struct dfix *d, const char *name)
{
	struct core_file *file = NULL;
	struct meta_attr a;

	assert_int_equal(op_open_new(&d->f, ROOT_INO, name, O_RDWR, &file, &a),
			 0);
	return file;
}

void d_close(struct dfix *d, struct core_file *file)
{
	core_release(d->f.c, file);
}

/* ---- operations ---- */

struct fix_call *d_write_start(struct dfix *d, struct core_file *file,
			       uint64_t off, const void *p, size_t len,
			       uint32_t flags)
{
	struct fix_call *k = fix_call_new();
	/* In a copy that is gone at once, in two pieces. */
	uint8_t *copy = malloc(len + 1);
	size_t half = len / 3;

	assert_non_null(copy);
	memcpy(copy, p, len);
	struct iovec iov[2] = { { copy, half }, { copy + half, len - half } };
	core_write(d->f.c, file, off, half ? iov : iov + 1, half ? 2 : 1, len,
		   flags, on_err, k);
	memset(copy, 0xee, len);
	free(copy);
	return k;
}

int d_write(struct dfix *d, struct core_file *file, uint64_t off,
	    const void *p, size_t len, uint32_t flags)
{
	return fix_call_end(d_write_start(d, file, off, p, len, flags), NULL);
}

struct read_call {
	struct fix_call *k;
	uint8_t *to;
	size_t len;
};

static void on_data(void *arg, int err, const struct iovec *iov, int iov_count,
		    size_t len)
{
	struct read_call *r = arg;
	size_t sum = 0;

	for (int i = 0; i < iov_count; i++) {
		memcpy(r->to + sum, iov[i].iov_base, iov[i].iov_len);
		sum += iov[i].iov_len;
	}
	assert_int_equal(sum, len);
	r->len = len;
	fix_call_done(r->k, err);
}

ssize_t d_read(struct dfix *d, struct core_file *file, uint64_t off, void *p,
	       size_t len)
{
	struct read_call r = { fix_call_new(), p, 0 };
	int err;

	core_read(d->f.c, file, off, len, on_data, &r);
	err = fix_call_end(r.k, NULL);
	return err ? err : (ssize_t)r.len;
}

struct fix_call *d_fsync_start(struct dfix *d, struct core_file *file)
{
	struct fix_call *k = fix_call_new();

	core_fsync(d->f.c, core_file_ino(file), true, on_err, k);
	return k;
}

int d_fsync(struct dfix *d, struct core_file *file)
{
	return fix_call_end(d_fsync_start(d, file), NULL);
}

int d_sync(struct dfix *d)
{
	struct fix_call *k = fix_call_new();

	core_sync_all(d->f.c, on_err, k);
	return fix_call_end(k, NULL);
}

int d_truncate(struct dfix *d, struct core_file *file, uint64_t size)
{
	struct fix_call *k = fix_call_new();

	core_truncate(d->f.c, core_file_ino(file), size, false, on_attr, k);
	return fix_call_end(k, NULL);
}

int d_fallocate(struct dfix *d, struct core_file *file, int mode, uint64_t off,
		uint64_t len)
{
	struct fix_call *k = fix_call_new();

	core_fallocate(d->f.c, core_file_ino(file), mode, off, len, false,
		       on_err, k);
	return fix_call_end(k, NULL);
}

int64_t d_seek(struct dfix *d, struct core_file *file, uint64_t off,
	       int whence)
{
	struct fix_call *k = fix_call_new();
	uint64_t at = 0;
	int err;

	core_seek(d->f.c, core_file_ino(file), off, whence, &at, on_err, k);
	err = fix_call_end(k, NULL);
	return err ? err : (int64_t)at;
}

uint64_t d_size(struct dfix *d, struct core_file *file)
{
	struct meta_attr a;

	assert_int_equal(op_getattr(&d->f, core_file_ino(file), &a), 0);
	return a.size;
}

/* ---- all daemons ---- */

uint64_t d_executed(struct dfix *d, uint16_t op)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		sum += mini_blockd_executed(d->b[i], op);
	return sum;
}

uint64_t d_received(struct dfix *d, uint16_t op)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		sum += mini_blockd_received(d->b[i], op);
	return sum;
}

uint32_t d_held(struct dfix *d)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		sum += mini_blockd_held(d->b[i]);
	return sum;
}

void d_hold(struct dfix *d, uint16_t op, bool hold)
{
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_hold(d->b[i], op, hold);
}

void d_hold_replies(struct dfix *d, uint16_t op, bool hold)
{
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_hold_replies(d->b[i], op, hold);
}

void d_restart(struct dfix *d, bool lose)
{
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_restart(d->b[i], lose);
}

void d_fail(struct dfix *d, uint16_t op, int err, int count)
{
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_fail(d->b[i], op, err, count);
}

void d_lose_replies(struct dfix *d, uint16_t op, int count)
{
	for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
		mini_blockd_lose_replies(d->b[i], op, count);
}

void d_peek(struct dfix *d, struct core_file *file, uint64_t off, uint32_t len,
	    bool durable, void *buf)
{
	uint8_t *to = buf;

	while (len > 0) {
		uint32_t in = (uint32_t)(off % DBLOCK);
		uint32_t step = (uint32_t)u64_min(len, DBLOCK - in);

		memset(to, 0, step);
		for (uint32_t i = 0; i < DFIX_BLOCKDS; i++)
			if (mini_blockd_peek(d->b[i], core_file_ino(file),
					     off / DBLOCK, in, step, durable,
					     to))
				break;
		to += step;
		off += step;
		len -= step;
	}
}

void d_fill(void *p, size_t len, uint64_t seed)
{
	uint8_t *to = p;
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		to[i] = (uint8_t)(x >> 24);
	}
}

void d_check_durable(struct dfix *d, struct core_file *f, uint64_t off,
		     const void *want, uint32_t len)
{
	uint8_t *got = malloc(len);

	assert_non_null(got);
	d_peek(d, f, off, len, true, got);
	assert_memory_equal(got, want, len);
	free(got);
}

void d_check_read(struct dfix *d, struct core_file *f, uint64_t off,
		  const void *want, uint32_t len)
{
	uint8_t *got = malloc(len);

	assert_non_null(got);
	assert_int_equal(d_read(d, f, off, got, len), len);
	assert_memory_equal(got, want, len);
	free(got);
}
