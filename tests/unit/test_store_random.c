/* The block store against a model, from seeds.
 *
 * Several requests at a time on few blocks, completions in any order, and
 * restarts: orderly, kill -9, power cut. The model keeps for each unit every
 * content it had since the last one known durable; after a restart the unit
 * must have one of them, and afterwards that one. HAILFS_SEED=n runs one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <xxhash.h>

#include "blockd/mem.h"
#include "common/crc32c.h"
#include "tests/lib/store_audit.h"
#include "tests/lib/store_box.h"

#define FILES 3u
#define BLOCKS 3u
#define BLOCK (1u << STORE_BOX_LOG2)
#define BLOCK_UNITS (BLOCK / UNIT_SIZE)
#define UNITS (BLOCKS * BLOCK_UNITS)
#define FLIGHT 8u
#define STATES 256u

struct state {
	uint64_t hash;
	uint64_t op; /* that made it */
};

struct unit {
	struct state states[STATES]; /* oldest that may come back first */
	uint32_t count;
	uint32_t floor; /* a restart brings back this one or a later one */
	bool wild; /* a failed write met another: any content */
	uint8_t now[UNIT_SIZE];
};

struct file {
	uint64_t ino;
	uint64_t cut;
	int64_t allocated; /* units, as the answers say */
	struct unit units[UNITS];
};

enum kind { WRITE, READ, SYNC, CUT, ALLOC, PURGE, KINDS };

struct flight {
	struct store_req req;
	struct world *w;
	enum kind kind;
	bool busy;
	uint64_t op;
	struct file *f;
	uint32_t first, last; /* units */
	bool sync;
	uint64_t called_at;
	uint8_t *data;
	uint8_t sums[(BLOCK_UNITS + 1) * 4];
	struct store_read_out out;
	uint32_t off, len;
	uint64_t purge_ino;
};

struct world {
	struct store_box box;
	uint64_t seed;
	uint64_t rng;
	uint64_t op; /* last number given */
	uint64_t hole_hash;
	uint64_t clock;
	uint64_t done_at[1u << 16]; /* by op; 0: not */
	struct file files[FILES];
	struct flight flights[FLIGHT];
	uint64_t ino_next;
	uint64_t purge_again[FLIGHT * 4];
	uint32_t purge_count;
	int error; /* first one answered */
	bool faults;
	bool leaks; /* memory fails: units may be lost until a restart */
};

static uint64_t rnd(struct world *w, uint64_t below)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (w->rng * 0x2545f4914f6cdd1du >> 20) % below;
}

#define require(w, cond)                                                      \
	do {                                                                  \
		if (!(cond)) {                                                \
			(void)fprintf(stderr, "seed %llu op %llu: %s\n",      \
				      (unsigned long long)(w)->seed,          \
				      (unsigned long long)(w)->op, #cond);    \
			abort();                                              \
		}                                                             \
	} while (0)

static uint64_t hash_of(const void *p)
{
	return XXH3_64bits(p, UNIT_SIZE);
}

/* ---- the model ---- */
static bool reads_under_way(const struct world *w)
{
	for (uint32_t i = 0; i < FLIGHT; i++) {
		if (w->flights[i].busy && w->flights[i].kind == READ)
			return true;
	}
	return false;
}

/* Reads under way may still see older states. */
static void unit_trim(struct unit *u)
{
	memmove(u->states, u->states + u->floor,
		(u->count - u->floor) * sizeof(u->states[0]));
	u->count -= u->floor;
	u->floor = 0;
}

static void unit_state(struct world *w, struct unit *u, uint64_t op)
{
	if (u->count > STATES / 2 && !reads_under_way(w))
		unit_trim(u);
	require(w, u->count < STATES);
	u->states[u->count++] = (struct state){ hash_of(u->now), op };
}

/* Everything before the newest state that was done at @time, or that @own
 * made, is gone for good. */
static void unit_durable(struct world *w, struct unit *u, uint64_t time,
			 uint64_t own)
{
	for (uint32_t i = u->floor; i < u->count; i++) {
		uint64_t op = u->states[i].op;

		if (op == own || (w->done_at[op] != 0 &&
				  w->done_at[op] <= time))
			u->floor = i;
	}
}

/* @since: a read's op; 0: after a restart. */
static bool unit_may_be(const struct unit *u, const void *p, uint64_t since)
{
	uint64_t h = hash_of(p);
	uint32_t from = since == 0 ? u->floor : 0;

	if (u->wild)
		return true;
	/* A read sees at least what was there when it was called. */
	for (uint32_t i = 0; i < u->count; i++) {
		if (u->states[i].op < since)
			from = i;
	}
	for (uint32_t i = from; i < u->count; i++) {
		if (u->states[i].hash == h)
			return true;
	}
	return false;
}

static void file_new(struct world *w, struct file *f)
{
	memset(f, 0, sizeof(*f));
	f->ino = w->ino_next++;
	for (uint32_t i = 0; i < UNITS; i++)
		unit_state(w, &f->units[i], 0);
}

/* ---- answers ---- */
static void read_check(struct world *w, struct flight *fl)
{
	static uint8_t zeros[UNIT_SIZE];
	uint32_t end = fl->off + fl->len;

	if (!fl->out.hole)
		require(w, crc32c_check(fl->off, (uint8_t *)fl->out.buf +
					fl->out.data_off, fl->len, fl->sums,
					crc32c_piece_count(fl->off, fl->len) *
					4) == 0);
	for (uint32_t u = fl->first; u < fl->last; u++) {
		uint32_t base = (u % BLOCK_UNITS) * UNIT_SIZE;
		const uint8_t *p = (uint8_t *)fl->out.buf +
				   (u - fl->first) * UNIT_SIZE;

		/* Parts of units are checked by the sums. */
		if (base < fl->off || base + UNIT_SIZE > end)
			continue;
		/* Failed writes make "at least" uncertain. */
		require(w, w->error != 0 ||
			unit_may_be(&fl->f->units[u],
				    fl->out.hole ? zeros : p,
				    w->faults ? 1 : fl->op));
	}
}

static void purged(struct world *w, uint64_t ino)
{
	for (uint32_t i = 0; i < w->purge_count; i++) {
		if (w->purge_again[i] == ino)
			w->purge_again[i] = w->purge_again[--w->purge_count];
	}
}

static bool overlaps(const struct flight *a, const struct flight *b)
{
	return a->f == b->f && b->busy && b->kind != READ &&
	       (b->kind == CUT || a->kind == CUT ||
		(a->first < b->last && b->first < a->last));
}

/* What a failed change leaves is what was there before, except where a later
 * one, computed by the model on top of it, went through. */
static void change_failed(struct world *w, struct flight *fl)
{
	bool alone = true;

	if (fl->kind == READ || fl->kind == PURGE)
		return;
	for (uint32_t i = 0; i < FLIGHT; i++)
		alone &= !overlaps(fl, &w->flights[i]);
	for (uint32_t u = 0; u < UNITS && !alone; u++) {
		if (fl->kind == CUT || (u >= fl->first && u < fl->last))
			fl->f->units[u].wild = true;
	}
}

static void answered(struct store_req *r, int err)
{
	struct flight *fl = container_of(r, struct flight, req);
	struct world *w = fl->w;

	require(w, fl->busy);
	fl->busy = false;
	if (err != 0) {
		require(w, w->faults);
		change_failed(w, fl);
		if (w->error == 0)
			w->error = err;
		return;
	}
	w->done_at[fl->op] = ++w->clock;
	if (fl->kind != PURGE)
		fl->f->allocated += r->units_delta;
	if (fl->kind == READ)
		read_check(w, fl);
	if (fl->kind == PURGE)
		purged(w, fl->purge_ino);
	for (uint32_t i = 0; i < UNITS && fl->sync && fl->kind != PURGE; i++)
		unit_durable(w, &fl->f->units[i], fl->called_at, fl->op);
}

/* ---- requests ---- */
static struct flight *flight_free(struct world *w)
{
	for (uint32_t i = 0; i < FLIGHT; i++) {
		if (!w->flights[i].busy)
			return &w->flights[i];
	}
	return NULL;
}

static void do_write(struct world *w, struct flight *fl, uint32_t index,
		     uint32_t off, uint32_t len)
{
	bool aligned = rnd(w, 2) == 0;
	uint8_t *data = fl->data + (aligned ? 0 : 3);
	struct blk_write req;

	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)(fl->op * 31 + i / 97 + 1);
	for (uint32_t u = fl->first; u < fl->last; u++) {
		struct unit *un = &fl->f->units[u];
		uint32_t base = (u % BLOCK_UNITS) * UNIT_SIZE;
		uint32_t from = off > base ? off - base : 0;
		uint32_t to = off + len - base < UNIT_SIZE ?
			      off + len - base : UNIT_SIZE;

		memcpy(un->now + from, data + base + from - off, to - from);
		unit_state(w, un, fl->op);
	}
	crc32c_sums(off, data, len, fl->sums);
	req = (struct blk_write){
		.ino = fl->f->ino,
		.index = index,
		.cut = fl->f->cut,
		.off = off,
		.len = len,
		.block_log2 = STORE_BOX_LOG2,
		.flags = fl->sync ? BLK_WRITE_SYNC : 0,
		.mtime_ns = 1,
		.sums = { fl->sums, crc32c_piece_count(off, len) * 4 },
	};
	store_write(w->box.s, &fl->req, &req, data);
}

static void do_read(struct world *w, struct flight *fl, uint32_t index,
		    uint32_t off, uint32_t len)
{
	struct blk_read req = {
		.ino = fl->f->ino,
		.index = index,
		.cut = fl->f->cut,
		.off = off,
		.len = len,
		.block_log2 = STORE_BOX_LOG2,
	};

	fl->sync = false;
	fl->off = off;
	fl->len = len;
	fl->out = (struct store_read_out){
		.buf = fl->data,
		.buf_cap = BLOCK + UNIT_SIZE,
		.sums = fl->sums,
	};
	store_read(w->box.s, &fl->req, &req, &fl->out);
}

static void do_cut(struct world *w, struct flight *fl)
{
	uint64_t from = rnd(w, BLOCKS * BLOCK);
	uint64_t to = from + rnd(w, BLOCKS * BLOCK - from) + 1;
	struct blk_cut req;

	if (rnd(w, 2) == 0)
		from = u64_round_down(from, UNIT_SIZE);
	if (rnd(w, 3) == 0)
		to = BLK_CUT_TO_END;
	req = (struct blk_cut){ .ino = fl->f->ino, .cut = ++fl->f->cut,
				.from = from, .to = to,
				.block_log2 = STORE_BOX_LOG2 };
	for (uint32_t u = 0; u < UNITS; u++) {
		uint64_t base = (uint64_t)u * UNIT_SIZE;
		uint64_t a = u64_max(from, base);
		uint64_t z = u64_min(to, base + UNIT_SIZE);

		if (a >= z)
			continue;
		memset(fl->f->units[u].now + (a - base), 0, z - a);
		unit_state(w, &fl->f->units[u], fl->op);
	}
	fl->sync = true;
	store_cut(w->box.s, &fl->req, &req);
}

static void do_purge(struct world *w, struct flight *fl)
{
	fl->purge_ino = fl->f->ino;
	fl->sync = false;
	w->purge_again[w->purge_count++] = fl->purge_ino;
	file_new(w, fl->f);
	store_purge(w->box.s, &fl->req, &fl->purge_ino, 1);
}

static void range_pick(struct world *w, struct flight *fl, uint32_t *off,
		       uint32_t *len)
{
	switch (rnd(w, 4)) {
	case 0: /* whole units */
		*off = (uint32_t)rnd(w, BLOCK_UNITS) * UNIT_SIZE;
		*len = (uint32_t)(1 + rnd(w, 3)) * UNIT_SIZE;
		break;
	case 1: /* much */
		*off = (uint32_t)rnd(w, 4) * UNIT_SIZE;
		*len = BLOCK - (uint32_t)rnd(w, 8) * UNIT_SIZE;
		break;
	case 2: /* much, unaligned */
		*off = (uint32_t)rnd(w, 9000);
		*len = 70000 + (uint32_t)rnd(w, 40000);
		break;
	default:
		*off = (uint32_t)rnd(w, BLOCK);
		*len = 1 + (uint32_t)rnd(w, 9000);
		break;
	}
	if (*off + *len > BLOCK)
		*len = BLOCK - *off;
	fl->off = *off;
	fl->len = *len;
}

static enum kind kind_pick(struct world *w)
{
	static const uint8_t weights[KINDS] = { 50, 20, 12, 4, 4, 1 };
	uint64_t r = rnd(w, 91);
	int k = 0;

	while (r >= weights[k])
		r -= weights[k++];
	return (enum kind)k;
}

static bool file_busy(const struct world *w, const struct flight *fl)
{
	for (uint32_t i = 0; i < FLIGHT; i++) {
		if (&w->flights[i] != fl && w->flights[i].busy &&
		    w->flights[i].f == fl->f)
			return true;
	}
	return w->purge_count == array_count(w->purge_again);
}

static void act(struct world *w, struct flight *fl)
{
	uint32_t index = (uint32_t)rnd(w, BLOCKS);
	uint32_t off, len;

	fl->kind = kind_pick(w);
	fl->busy = true;
	fl->op = ++w->op;
	fl->called_at = w->clock;
	fl->f = &w->files[rnd(w, FILES)];
	/* The model would mix up what is under way for the old inode. */
	if (fl->kind == PURGE && file_busy(w, fl))
		fl->kind = SYNC;
	fl->sync = rnd(w, 8) == 0;
	fl->req.done = answered;
	range_pick(w, fl, &off, &len);
	fl->first = index * BLOCK_UNITS + off / UNIT_SIZE;
	fl->last = index * BLOCK_UNITS + (off + len - 1) / UNIT_SIZE + 1;
	switch (fl->kind) {
	case WRITE:
		do_write(w, fl, index, off, len);
		break;
	case READ:
		do_read(w, fl, index, off, len);
		break;
	case SYNC:
		fl->sync = true;
		/* What is called and done before counts, no more. */
		store_sync(w->box.s, &fl->req, rnd(w, 4) == 0 ? 0 :
			   fl->f->ino);
		break;
	case CUT:
		do_cut(w, fl);
		break;
	case ALLOC: {
		struct blk_alloc a = { fl->f->ino, index, fl->f->cut, off,
				       len, STORE_BOX_LOG2 };

		fl->sync = false;
		store_alloc(w->box.s, &fl->req, &a);
		break;
	}
	default:
		do_purge(w, fl);
		break;
	}
}

/* ---- restarts ---- */
static int64_t allocated(struct world *w, const struct file *f)
{
	struct blk_end e = { f->ino, STORE_BOX_LOG2 };
	struct blk_end_reply r;

	require(w, store_end(w->box.s, &e, &r) == 0);
	require(w, r.end <= (uint64_t)BLOCKS * BLOCK);
	return (int64_t)r.units;
}

/* A store that stopped keeps what it was about. */
static void audit(struct world *w)
{
	if (store_box_stat(&w->box).error != 0)
		return;
	require(w, store_audit(w->box.s, w->leaks) == 0);
	for (uint32_t i = 0; i < FILES && !w->faults; i++)
		require(w, allocated(w, &w->files[i]) ==
			w->files[i].allocated);
}

static void drain(struct world *w)
{
	(void)w;
	store_box_settle(&w->box);
	for (uint32_t i = 0; i < FLIGHT; i++)
		require(w, !w->flights[i].busy);
}

/* Each unit has one of its possible contents; from now on that one. */
static void verify(struct world *w)
{
	static uint8_t buf[BLOCK];

	for (uint32_t k = 0; k < FILES * BLOCKS; k++) {
		struct file *f = &w->files[k / BLOCKS];
		uint32_t first = k % BLOCKS * BLOCK_UNITS;
		int err = store_box_read(&w->box, f->ino, k % BLOCKS,
					 UINT64_MAX, 0, buf, BLOCK);

		require(w, err == 0);
		for (uint32_t u = 0; u < BLOCK_UNITS; u++) {
			struct unit *un = &f->units[first + u];

			require(w, unit_may_be(un, buf + u * UNIT_SIZE, 0));
			memcpy(un->now, buf + u * UNIT_SIZE, UNIT_SIZE);
			un->count = 0;
			un->floor = 0;
			un->wild = false;
			unit_state(w, un, 0);
		}
	}
}

static void reopen(struct world *w)
{
	int err = store_box_open(&w->box);

	if (err != 0)
		(void)fprintf(stderr, "%s\n", w->box.why);
	require(w, err == 0);
	for (uint32_t i = 0; i < FLIGHT; i++)
		w->flights[i].busy = false;
	verify(w);
	/* metad repeats what was not confirmed. */
	while (w->purge_count > 0) {
		uint64_t ino = w->purge_again[--w->purge_count];

		require(w, store_box_purge(&w->box, ino) == 0);
	}
	store_box_settle(&w->box);
	for (uint32_t i = 0; i < FILES; i++)
		w->files[i].allocated = allocated(w, &w->files[i]);
	audit(w);
}

static void restart(struct world *w)
{
	switch (rnd(w, 4)) {
	case 0:
		drain(w);
		if (w->error != 0 || store_box_stat(&w->box).error != 0) {
			store_box_kill(&w->box);
			break;
		}
		audit(w);
		/* Closing makes all durable. */
		require(w, store_box_close(&w->box) == 0);
		for (uint32_t k = 0; k < FILES * UNITS; k++)
			unit_durable(w, &w->files[k / UNITS].units[k % UNITS],
				     UINT64_MAX, 0);
		break;
	case 1:
		store_box_kill(&w->box);
		break;
	default:
		store_box_power_cut(&w->box);
		break;
	}
}

/* Lets the run go on until @ops requests were made or one failed. */
static void run(struct world *w, uint32_t ops)
{
	uint64_t last = w->op + ops;

	while (w->op < last && w->error == 0) {
		struct flight *fl = flight_free(w);

		if (fl != NULL && rnd(w, 3) == 0)
			act(w, fl);
		else if (rnd(w, 200) == 0)
			fake_dev_advance(w->box.f, 1000);
		else if (!fake_dev_step(w->box.f) && fl == NULL)
			require(w, !"stuck");
		if (rnd(w, 150) == 0 && w->error == 0) {
			drain(w);
			if (w->error == 0)
				audit(w);
		}
	}
}

static struct world *world_new(uint64_t seed, uint64_t capacity)
{
	struct world *w = calloc(1, sizeof(*w));

	w->seed = seed;
	w->rng = seed * 0x9e3779b97f4a7c15u + 12345;
	w->ino_next = 100;
	w->clock = 1;
	w->done_at[0] = 1;
	store_box_init_empty(&w->box, seed + 7, capacity, 1u << 20,
			     600u << 10);
	/* Often nearly nothing stays in memory: the index is asked. */
	if (seed % 3 != 0)
		w->box.o.object_bytes = seed % 3 * 2048;
	/* Segments small enough to come and go. */
	w->box.o.segment_units = 256u << seed % 3;
	/* Records get between the blocks of a checkpoint. */
	w->box.o.slice_blocks = seed % 2;
	/* And a crash between its transactions. */
	w->box.o.batch_blocks = (uint32_t)(seed % 5);
	require(w, store_format(fake_dev_dev(w->box.f), &w->box.o) == 0);
	require(w, store_box_open(&w->box) == 0);
	for (uint32_t i = 0; i < FILES; i++)
		file_new(w, &w->files[i]);
	for (uint32_t i = 0; i < FLIGHT; i++) {
		w->flights[i].w = w;
		w->flights[i].data = aligned_alloc(UNIT_SIZE,
						   BLOCK + 2 * UNIT_SIZE);
	}
	return w;
}

static void world_free(struct world *w)
{
	for (uint32_t i = 0; i < FLIGHT; i++)
		free(w->flights[i].data);
	store_box_fini(&w->box);
	free(w);
}

static uint64_t seed_first(void)
{
	const char *s = getenv("HAILFS_SEED");

	return s == NULL ? 1 : strtoull(s, NULL, 10);
}

static uint64_t seed_count(uint64_t dflt)
{
	const char *s = getenv("HAILFS_SEEDS");

	if (s != NULL)
		return strtoull(s, NULL, 10);
	return getenv("HAILFS_SEED") == NULL ? dflt : 1;
}

static void restarts_lose_nothing_that_was_synced(void **state)
{
	uint64_t first = seed_first(), count = seed_count(15);

	(void)state;
	for (uint64_t seed = first; seed < first + count; seed++) {
		struct world *w = world_new(seed, 16u << 20);

		for (uint32_t round = 0; round < 8; round++) {
			run(w, 20 + (uint32_t)rnd(w, 150));
			restart(w);
			reopen(w);
		}
		world_free(w);
	}
}

static void failing_io_loses_nothing_that_was_synced(void **state)
{
	uint64_t first = seed_first(), count = seed_count(15);

	(void)state;
	for (uint64_t seed = first; seed < first + count; seed++) {
		struct world *w = world_new(seed, 16u << 20);

		w->faults = true;
		for (uint32_t round = 0; round < 8; round++) {
			fake_dev_fail_at(w->box.f, 1 + rnd(w, 120), -EIO,
					 rnd(w, 2) == 0);
			run(w, 150);
			restart(w);
			fake_dev_fail_at(w->box.f, 0, 0, false);
			w->error = 0;
			reopen(w);
		}
		world_free(w);
	}
}

static void memory_fails(uint64_t seed)
{
	struct world *w = world_new(seed, 16u << 20);

	w->faults = true;
	for (uint32_t round = 0; round < 8; round++) {
		int err;

		w->leaks = true;
		(void)mem_fail_at(1 + rnd(w, 60));
		run(w, 100);
		(void)mem_fail_at(0);
		restart(w);
		w->leaks = false;
		w->error = 0;
		(void)mem_fail_at(1 + rnd(w, 30));
		err = store_box_open(&w->box);
		(void)mem_fail_at(0);
		if (err == 0)
			store_box_kill(&w->box);
		else
			require(w, err == -ENOMEM);
		reopen(w);
	}
	world_free(w);
}

static void failing_memory_loses_nothing(void **state)
{
	uint64_t first = seed_first(), count = seed_count(15);

	(void)state;
	for (uint64_t seed = first; seed < first + count; seed++)
		memory_fails(seed);
}

/* Two cuts in one commit, of a block that a checkpoint has deleted between
 * them. */
static void what_a_seed_once_found_is_not_back(void **state)
{
	(void)state;
	memory_fails(112);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(restarts_lose_nothing_that_was_synced),
		cmocka_unit_test(failing_io_loses_nothing_that_was_synced),
		cmocka_unit_test(failing_memory_loses_nothing),
		cmocka_unit_test(what_a_seed_once_found_is_not_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
