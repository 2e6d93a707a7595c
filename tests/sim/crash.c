/* The client dies: what is found afterwards. */
#include "tests/sim/world.h"

#include <fcntl.h>

static void may_be(const struct data_op *o, uint64_t at, const uint8_t *got,
		   bool *ok, bool *newer)
{
	uint64_t from = u64_max(o->off, at);
	uint64_t end = u64_min(o->end, at + WINDOW);
	static uint8_t p[LEN_MAX];

	if (from >= end)
		return;
	if (!o->cut)
		content_fill(p, o->end - o->off, o->seed);
	for (uint64_t b = from; b < end; b++) {
		uint8_t is = got[b - at];

		if (o->cut && o->maybe) {
			ok[b - at] |= is == 0;
		} else if (o->cut) {
			ok[b - at] = is == 0;
			newer[b - at] = false;
		} else if (is == p[b - o->off]) {
			ok[b - at] = newer[b - at] = true;
		}
	}
}

/* One window of a file after a crash: old or new, byte by byte. */
static void check_window(struct world *w, struct file *f, uint32_t i,
			 const uint8_t *got, uint64_t size)
{
	static bool ok[WINDOW], newer[WINDOW];
	uint64_t at = content_window_off(i), bytes;

	bytes = size > at ? u64_min(size - at, WINDOW) : 0;
	for (uint32_t b = 0; b < WINDOW; b++) {
		ok[b] = got[b] == f->base[i * WINDOW + b];
		newer[b] = false;
	}
	for (uint32_t k = 0; k < f->op_count; k++)
		may_be(&f->ops[k], at, got, ok, newer);
	for (uint32_t b = 0; b < bytes; b++)
		if (!ok[b]) {
			world_say(w, "fid %u byte %llu is %02x, was %02x",
				  world_fid_of(w, f),
				  (unsigned long long)at + b, got[b],
				  f->base[i * WINDOW + b]);
			world_lost(w, "content is neither old nor new");
		}
	if (size > f->lo && !f->grown && size > at && size <= at + WINDOW)
		require(w, newer[size - 1 - at]);
}

static uint64_t real_size(struct world *w, struct file *f)
{
	struct sim_call *k = sim_call_new();
	struct meta_attr a;

	core_getattr(w->x.c, f->ino, sim_on_attr, k);
	require(w, trouble_finish(w, k, &a, false) == 0);
	return a.size;
}

/* Nothing lies behind the end of a file: a later write beyond it would show
 * bytes that nobody knows of. And metad counts what is there. */
static void check_tail(struct world *w, struct file *f, uint64_t size)
{
	uint64_t end = 0, units = 0;
	struct meta_attr a;

	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		end = u64_max(end, mini_blockd_end(w->x.b[i], f->ino, &units));
	require(w, mini_metad_getattr(w->x.m, f->ino, &a) == 0);
	if (a.units != units) {
		world_say(w, "  fid %u has %llu units, %llu are counted",
			  world_fid_of(w, f), (unsigned long long)units,
			  (unsigned long long)a.units);
		world_lost(w, "units are not counted");
	}
	if (end <= size)
		return;
	world_say(w, "  fid %u has bytes up to %llu behind its end",
		  world_fid_of(w, f), (unsigned long long)end);
	world_lost(w, "bytes behind the end of a file");
}

/* Reads the file, checks it, and takes it for the model's. */
static void adopt_content(struct world *w, struct file *f)
{
	uint8_t *got = malloc(IMAGE);
	uint64_t size = real_size(w, f);
	struct core_file *h;
	struct sim_call *k = sim_call_new();

	require(w, got);
	world_say(w, "  fid %u has %llu bytes (%llu to %llu)",
		  world_fid_of(w, f), (unsigned long long)size,
		  (unsigned long long)f->lo, (unsigned long long)f->hi);
	require(w, size >= f->lo && size <= f->hi);
	core_open(w->x.c, f->ino, O_RDONLY, &h, sim_on_err, k);
	require(w, trouble_finish(w, k, NULL, false) == 0);
	memset(got, 0, IMAGE);
	require(w, model_fs_truncate(w->model, f->model, size, 0) == 0);
	for (uint32_t i = 0; i < WINDOWS; i++) {
		uint64_t at = content_window_off(i);
		uint64_t len = size > at ? u64_min(size - at, WINDOW) : 0;

		k = sim_call_new();
		k->to = got + i * WINDOW;
		core_read(w->x.c, h, at, WINDOW, sim_on_data, k);
		require(w, sim_call_wait(k, CALL_MS));
		require(w, k->err == 0 && k->len == len);
		sim_call_free(k);
		check_window(w, f, i, got + i * WINDOW, size);
		require(w, model_fs_write(w->model, f->model, at,
					  got + i * WINDOW, len, 0) == 0);
	}
	core_release(w->x.c, h);
	free(got);
	check_tail(w, f, size);
}

void crash_check_contents(struct world *w)
{
	for (uint32_t i = 0; i < w->fid_count; i++) {
		struct file *f = &w->files[i];

		f->h = NULL;
		if (!f->base || !content_there(w, f))
			continue;
		adopt_content(w, f);
		content_settle(w, f);
	}
}

/* Leaves something under way, most times. */
static struct sim_call *last_words(struct world *w, struct file *f)
{
	struct sim_call *k = NULL;

	if (!f || world_rnd(w, 3) == 0)
		return NULL;
	if (world_rnd(w, 2))
		return content_write_start(w, f);
	k = sim_call_new();
	core_fsync(w->x.c, f->ino, false, sim_on_err, k);
	return k;
}

void crash_step(struct world *w)
{
	struct file *f = content_some_file(w);
	uint64_t writes = w->data_seed;
	struct sim_call *k;

	world_say(w, "crash");
	w->crashes++;
	if (world_rnd(w, 2))
		trouble_begin(w);
	k = last_words(w, f);
	sim_pause((unsigned)world_rnd(w, 3000));
	sim_box_abandon(&w->x);
	if (k) {
		/* also with its client dead, a call is answered once */
		require(w, k->done);
		/* A write that fails is cut off, and metad is told the size
		 * with that, ahead of what was written before. */
		if (k->err && w->data_seed != writes)
			f->grown = true;
		sim_call_free(k);
	}
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		if (world_rnd(w, 2))
			mini_blockd_restart(w->x.b[i], true);
	if (world_rnd(w, 2))
		trouble_restart_metad(w, true);
	trouble_end(w);
	sim_box_mount(&w->x);
	names_adopt(w);
	crash_check_contents(w);
	names_check(w);
}
