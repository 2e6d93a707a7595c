/* Operations on content: what they return, and what of it must survive. */
#include "tests/sim/world.h"

#include <fcntl.h>
#include <linux/falloc.h>

#define BURST 6u

void content_fill(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)(x >> 24);
	}
}

uint64_t content_window_off(uint32_t i)
{
	return i == 0 ? 0 : ((uint64_t)i << 20) - WINDOW / 2;
}

bool content_there(struct world *w, const struct file *f)
{
	struct model_attr a;

	return f->model && model_fs_stat(w->model, f->model, &a) == 0;
}

struct file *content_some_file(struct world *w)
{
	for (uint32_t tries = 0; w->fid_count > 0 && tries < 16; tries++) {
		struct file *f = &w->files[world_rnd(w, w->fid_count)];
		struct sim_call *k;

		if (!f->base || !content_there(w, f))
			continue;
		if (f->h)
			return f;
		k = sim_call_new();
		core_open(w->x.c, f->ino, O_RDWR, &f->h, sim_on_err, k);
		require(w, trouble_finish(w, k, NULL, false) == 0);
		require(w, model_fs_hold(w->model, f->model) == 0);
		return f;
	}
	return NULL;
}

static uint64_t size_of(struct world *w, const struct file *f)
{
	struct model_attr a;

	require(w, model_fs_stat(w->model, f->model, &a) == 0);
	return a.size;
}

void content_settle(struct world *w, struct file *f)
{
	f->op_count = 0;
	f->grown = false;
	if (!f->base || !content_there(w, f))
		return;
	memset(f->base, 0, IMAGE);
	for (uint32_t i = 0; i < WINDOWS; i++)
		(void)model_fs_read(w->model, f->model, content_window_off(i),
				    f->base + i * WINDOW, WINDOW);
	f->lo = f->hi = size_of(w, f);
}

static void data_note(struct world *w, struct file *f, struct data_op o)
{
	if (f->op_count == OPS)
		world_lost(w, "more operations than the test keeps");
	f->ops[f->op_count++] = o;
}

struct sim_call *content_write_start(struct world *w, struct file *f)
{
	static uint8_t p[LEN_MAX];
	struct sim_call *k = sim_call_new();
	uint32_t len =
		(uint32_t)(1 + world_rnd(w, world_rnd(w, 3) ? 300 : LEN_MAX));
	uint64_t off = content_window_off((uint32_t)world_rnd(w, WINDOWS)) +
		       world_rnd(w, WINDOW - len);
	bool direct = world_rnd(w, 4) == 0;
	struct iovec iov = { p, len };

	if (world_rnd(w, 4) == 0 && size_of(w, f) < WINDOW - len)
		off = size_of(w, f);
	content_fill(p, len, ++w->data_seed);
	world_say(w, "write fid %u [%llu, +%u) seed %llu%s", world_fid_of(w, f),
		  (unsigned long long)off, len,
		  (unsigned long long)w->data_seed, direct ? " direct" : "");
	data_note(w, f,
		  (struct data_op){
			  .off = off, .end = off + len, .seed = w->data_seed });
	f->hi = u64_max(f->hi, off + len);
	core_write(w->x.c, f->h, off, &iov, 1, len,
		   direct ? CORE_WRITE_DIRECT : 0, sim_on_err, k);
	require(w, model_fs_write(w->model, f->model, off, p, len, 0) == 0);
	return k;
}

void content_step_write(struct world *w)
{
	struct sim_call *k[BURST];
	uint32_t count = (uint32_t)(1 + world_rnd(w, BURST)), n = 0;
	struct file *f = content_some_file(w);
	bool trouble;

	if (!f)
		return;
	trouble = trouble_maybe(w);
	while (n < count)
		k[n++] = content_write_start(w, f);
	for (uint32_t i = 0; i < n; i++)
		require(w,
			trouble_finish(w, k[i], NULL, trouble && i == 0) == 0);
}

static void read_check(struct world *w, struct file *f, uint64_t off,
		       size_t len, bool trouble)
{
	uint8_t *got = malloc(2 * len);
	struct sim_call *k = sim_call_new();
	ssize_t want;

	require(w, got);
	k->to = got;
	core_read(w->x.c, f->h, off, len, sim_on_data, k);
	if (trouble) {
		trouble_strike(w);
		trouble_end(w);
	}
	require(w, sim_call_wait(k, CALL_MS));
	require(w, k->err == 0);
	want = model_fs_read(w->model, f->model, off, got + len, len);
	world_say(w, "read fid %u [%llu, +%zu): %zu (%zd)", world_fid_of(w, f),
		  (unsigned long long)off, len, k->len, want);
	require(w, (ssize_t)k->len == want);
	require(w, memcmp(got, got + len, k->len) == 0);
	sim_call_free(k);
	free(got);
}

void content_step_read(struct world *w)
{
	struct file *f = content_some_file(w);

	if (f)
		read_check(w, f,
			   content_window_off((uint32_t)world_rnd(w, WINDOWS)) +
				   world_rnd(w, WINDOW),
			   1 + world_rnd(w, 3 * LEN_MAX), trouble_maybe(w));
}

/* An fsync covers what was done to the file, or in the directory (@f NULL), and
 * so all that came before; later mutations of others need not be durable. */
static void names_durable(struct world *w, const struct file *f, uint32_t dir)
{
	uint32_t n = w->op_count;

	for (; n > w->durable; n--) {
		const struct name_op *o = &w->ops[n - 1];
		bool named = o->kind == CREATE || o->kind == LINK;

		if (f ? named && o->fid == world_fid_of(w, f) :
			o->dir == dir || (o->kind == RENAME && o->dir2 == dir))
			break;
	}
	w->durable = n;
}

void content_step_fsync(struct world *w)
{
	struct file *f = content_some_file(w);
	struct sim_call *k = sim_call_new();
	uint64_t what = world_rnd(w, 8);
	bool trouble = trouble_maybe(w);
	uint32_t dir = what == 0 ? (uint32_t)world_rnd(w, DIRS) : 0;

	if (what == 0)
		core_fsync_dir(w->x.c, w->dir_ino[dir], sim_on_err, k);
	else if (what == 1 || !f)
		core_sync_all(w->x.c, sim_on_err, k);
	else
		core_fsync(w->x.c, f->ino, what < 4, sim_on_err, k);
	world_say(w, "fsync %s fid %u",
		  what == 0	  ? "dir" :
		  what == 1 || !f ? "all" :
				    "file",
		  f ? world_fid_of(w, f) : 0);
	require(w, trouble_finish(w, k, NULL, trouble) == 0);
	if (what != 0 && (what == 1 || !f))
		w->durable = w->op_count;
	else
		names_durable(w, what == 0 ? NULL : f, dir);
	if (what != 0 && (what == 1 || !f))
		for (uint32_t i = 0; i < w->fid_count; i++)
			content_settle(w, &w->files[i]);
	else if (what != 0)
		content_settle(w, f);
}

void content_step_truncate(struct world *w)
{
	struct file *f = content_some_file(w);
	struct sim_call *k;
	uint64_t size, old;
	bool trouble;

	if (!f)
		return;
	old = size_of(w, f);
	size = world_rnd(w, 4) ?
		       content_window_off((uint32_t)world_rnd(w, WINDOWS)) +
			       world_rnd(w, WINDOW) :
		       0;
	trouble = trouble_maybe(w);
	world_say(w, "truncate fid %u %llu -> %llu", world_fid_of(w, f),
		  (unsigned long long)old, (unsigned long long)size);
	k = sim_call_new();
	core_truncate(w->x.c, f->ino, size, false, sim_on_attr, k);
	require(w, trouble_finish(w, k, NULL, trouble) == 0);
	require(w, model_fs_truncate(w->model, f->model, size, 0) == 0);
	if (size > old) {
		f->hi = u64_max(f->hi, size);
		f->grown = true;
	} else if (size < old) {
		/* answered before it is durable: an fsync makes it so */
		data_note(w, f,
			  (struct data_op){ .cut = true,
					    .maybe = true,
					    .off = size,
					    .end = UINT64_MAX });
		f->lo = u64_min(f->lo, size);
		f->grown = true;
	}
}

void content_step_punch(struct world *w)
{
	struct file *f = content_some_file(w);
	uint64_t off = content_window_off((uint32_t)world_rnd(w, WINDOWS)) +
		       world_rnd(w, WINDOW);
	uint64_t len = 1 + world_rnd(w, world_rnd(w, 3) ? 20000 : 1u << 20);
	struct sim_call *k;
	bool trouble;

	if (!f)
		return;
	trouble = trouble_maybe(w);
	world_say(w, "punch fid %u [%llu, +%llu)", world_fid_of(w, f),
		  (unsigned long long)off, (unsigned long long)len);
	k = sim_call_new();
	core_fallocate(w->x.c, f->ino,
		       FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len,
		       false, sim_on_err, k);
	require(w, trouble_finish(w, k, NULL, trouble) == 0);
	require(w, model_fs_punch(w->model, f->model, off, len, 0) == 0);
	data_note(
		w, f,
		(struct data_op){ .cut = true, .off = off, .end = off + len });
	f->grown = true;
}

/* Allocates, or zeroes. */
void content_step_allocate(struct world *w)
{
	struct file *f = content_some_file(w);
	uint64_t off = content_window_off((uint32_t)world_rnd(w, WINDOWS)) +
		       world_rnd(w, WINDOW);
	uint64_t len = 1 + world_rnd(w, world_rnd(w, 3) ? 20000 : 1u << 20);
	uint64_t end = off + len;
	bool zero = world_rnd(w, 2), keep = world_rnd(w, 2), trouble;
	struct sim_call *k;

	if (!f)
		return;
	trouble = trouble_maybe(w);
	world_say(w, "%s fid %u [%llu, +%llu)%s", zero ? "zero" : "allocate",
		  world_fid_of(w, f), (unsigned long long)off,
		  (unsigned long long)len, keep ? "" : " and grow");
	k = sim_call_new();
	core_fallocate(w->x.c, f->ino,
		       (zero ? FALLOC_FL_ZERO_RANGE : 0) |
			       (keep ? FALLOC_FL_KEEP_SIZE : 0),
		       off, len, false, sim_on_err, k);
	require(w, trouble_finish(w, k, NULL, trouble) == 0);
	if (zero) {
		require(w,
			model_fs_punch(w->model, f->model, off, len, 0) == 0);
		data_note(w, f,
			  (struct data_op){
				  .cut = true, .off = off, .end = end });
		f->grown = true;
	}
	if (!keep && end > size_of(w, f)) {
		require(w, model_fs_truncate(w->model, f->model, end, 0) == 0);
		f->hi = u64_max(f->hi, end);
		f->grown = true;
	}
}

void content_step_close(struct world *w)
{
	struct file *f = content_some_file(w);

	if (!f)
		return;
	world_say(w, "close fid %u", world_fid_of(w, f));
	core_release(w->x.c, f->h);
	f->h = NULL;
	model_fs_drop(w->model, f->model);
}

void content_step_stat(struct world *w)
{
	struct file *f = content_some_file(w);
	struct sim_call *k = sim_call_new();
	struct model_attr want;
	struct meta_attr a;

	if (!f) {
		sim_call_free(k);
		return;
	}
	core_getattr(w->x.c, f->ino, sim_on_attr, k);
	require(w, trouble_finish(w, k, &a, false) == 0);
	require(w, model_fs_stat(w->model, f->model, &want) == 0);
	world_say(w, "stat fid %u: size %llu (%llu) nlink %u (%u)",
		  world_fid_of(w, f), (unsigned long long)a.size,
		  (unsigned long long)want.size, a.nlink, want.nlink);
	require(w, a.size == want.size && a.nlink == want.nlink);
}
