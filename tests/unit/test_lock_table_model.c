/* Advisory locks against a model that is one cell per byte.
 *
 * The model's file has CELLS bytes, which the table sees either at its start
 * or at the very end of the 64-bit range. All sequences of a few operations
 * are tried, then long random ones with waiters, whose grants must come in
 * the model's order.
 */
#include "common/lock_table.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define CELLS 8u
#define OWNERS 4u /* owner i + 1 of the table */
#define INODES 2u
#define WAITS 12u

/* ---- the model ---- */

struct op {
	uint32_t ino, owner, type, first, last;
	bool ofd;
};

struct model_wait {
	struct op op;
	bool waiting;
	unsigned order; /* of arrival */
};

struct model {
	/* What an owner has on a byte: LOCK_TYPE_*, UNLOCK for nothing. */
	uint8_t cell[INODES][OWNERS][CELLS];
	struct model_wait wait[WAITS];
	unsigned arrivals;
};

static void model_init(struct model *m)
{
	memset(m, 0, sizeof(*m));
	memset(m->cell, LOCK_TYPE_UNLOCK, sizeof(m->cell));
}

/* Does @owner stand in @op's way? */
static bool model_blocks(const struct model *m, uint32_t owner,
			 const struct op *op)
{
	if (owner == op->owner || op->type == LOCK_TYPE_UNLOCK)
		return false;
	for (uint32_t c = op->first; c <= op->last; c++) {
		uint8_t has = m->cell[op->ino][owner][c];

		if (has == LOCK_TYPE_WRITE ||
		    (has == LOCK_TYPE_READ && op->type == LOCK_TYPE_WRITE))
			return true;
	}
	return false;
}

static bool model_free(const struct model *m, const struct op *op)
{
	for (uint32_t owner = 0; owner < OWNERS; owner++)
		if (model_blocks(m, owner, op))
			return false;
	return true;
}

/* Returns whether a byte became less locked. */
static bool model_apply(struct model *m, const struct op *op)
{
	bool less = false;

	for (uint32_t c = op->first; c <= op->last; c++) {
		uint8_t *cell = &m->cell[op->ino][op->owner][c];

		less |= *cell != op->type && *cell != LOCK_TYPE_UNLOCK &&
			op->type != LOCK_TYPE_WRITE;
		*cell = (uint8_t)op->type;
	}
	return less;
}

/* The earliest waiter of @ino that may go on, or NULL. */
static struct model_wait *model_next(struct model *m, uint32_t ino,
				     unsigned after)
{
	struct model_wait *best = NULL;

	for (unsigned i = 0; i < WAITS; i++) {
		struct model_wait *w = &m->wait[i];

		if (w->waiting && w->op.ino == ino && w->order > after &&
		    model_free(m, &w->op) &&
		    (!best || w->order < best->order))
			best = w;
	}
	return best;
}

/* Does somebody in @op's way wait, directly or not, for its owner? By closure
 * over all owners. */
static bool model_deadlocks(const struct model *m, const struct op *op)
{
	bool waits[OWNERS][OWNERS] = { { false } };

	if (op->ofd)
		return false;
	for (uint32_t o = 0; o < OWNERS; o++)
		for (unsigned i = 0; i < WAITS; i++)
			if (m->wait[i].waiting && !m->wait[i].op.ofd)
				waits[m->wait[i].op.owner][o] |=
					model_blocks(m, o, &m->wait[i].op);
	for (uint32_t k = 0; k < OWNERS; k++)
		for (uint32_t i = 0; i < OWNERS; i++)
			for (uint32_t j = 0; j < OWNERS; j++)
				waits[i][j] |= waits[i][k] && waits[k][j];
	for (uint32_t o = 0; o < OWNERS; o++)
		if (model_blocks(m, o, op) && waits[o][op->owner])
			return true;
	return false;
}

/* Locks a table must hold for this: runs of equal bytes. */
static size_t model_count(const struct model *m)
{
	size_t count = 0;

	for (uint32_t i = 0; i < INODES; i++) {
		for (uint32_t o = 0; o < OWNERS; o++) {
			const uint8_t *cell = m->cell[i][o];

			for (uint32_t c = 0; c < CELLS; c++)
				count += cell[c] != LOCK_TYPE_UNLOCK &&
					 (c == 0 || cell[c] != cell[c - 1]);
		}
	}
	return count;
}

/* ---- the table beside the model ---- */

struct table_wait {
	struct lock_wait w;
	struct pair *pair;
};

struct pair {
	struct model m;
	struct lock_table *t;
	uint64_t base; /* offset of cell 0 */
	struct table_wait wait[WAITS];
	unsigned granted[WAITS], granted_count; /* of the last operation */
	int granted_status;
};

static void pair_init(struct pair *p, bool at_end)
{
	memset(p, 0, sizeof(*p));
	model_init(&p->m);
	p->t = lock_table_new();
	assert_non_null(p->t);
	p->base = at_end ? UINT64_MAX - (CELLS - 1) : 0;
}

static struct lock_range range_of(const struct pair *p, const struct op *op)
{
	return (struct lock_range){
		.ino = op->ino + 1,
		.kind = LOCK_KIND_POSIX,
		.type = op->type,
		.start = p->base + op->first,
		.end = p->base + op->last,
		.owner = op->owner + 1,
		.pid = op->ofd ? 0 : op->owner + 1,
	};
}

static void on_granted(struct lock_wait *w, int status)
{
	struct table_wait *tw = container_of(w, struct table_wait, w);
	struct pair *p = tw->pair;

	p->granted[p->granted_count++] = (unsigned)(tw - p->wait);
	p->granted_status = status;
}

/* Every byte as each owner, and a stranger, would find it. */
static void pair_compare(const struct pair *p)
{
	for (uint32_t i = 0; i < INODES; i++) {
		for (uint32_t o = 0; o <= OWNERS; o++) {
			for (uint32_t c = 0; c < CELLS; c++) {
				struct op probe = { i, o, LOCK_TYPE_WRITE, c, c,
						    false };
				struct lock_range r = range_of(p, &probe);
				bool is_free = true;

				lock_get(p->t, &r);
				for (uint32_t q = 0; q < OWNERS; q++)
					is_free &= q == o ||
						   p->m.cell[i][q][c] ==
							   LOCK_TYPE_UNLOCK;
				if (is_free != (r.type == LOCK_TYPE_UNLOCK))
					fail_msg("ino %u owner %u cell %u", i,
						 o, c);
				if (is_free)
					continue;
				/* What it names is so. */
				assert_int_equal(
					p->m.cell[i][r.owner - 1][c], r.type);
				assert_true(r.owner != o + 1);
			}
		}
	}
	assert_int_equal(lock_count(p->t), model_count(&p->m));
}

/* The model's grants after a change, compared with the table's in order. */
static void pair_grants(struct pair *p, uint32_t ino)
{
	unsigned count = 0, after = 0;
	struct model_wait *w;

	while ((w = model_next(&p->m, ino, after))) {
		after = w->order;
		if (model_apply(&p->m, &w->op))
			after = 0;
		w->waiting = false;
		assert_true(count < p->granted_count);
		assert_int_equal(p->granted[count], w - p->m.wait);
		count++;
	}
	assert_int_equal(count, p->granted_count);
	p->granted_count = 0;
}

static void pair_set(struct pair *p, const struct op *op)
{
	struct lock_range r = range_of(p, op);
	int err = lock_set(p->t, &r);

	if (!model_free(&p->m, op)) {
		assert_int_equal(err, -EAGAIN);
		return;
	}
	assert_int_equal(err, 0);
	if (model_apply(&p->m, op))
		pair_grants(p, op->ino);
	assert_int_equal(p->granted_count, 0);
}

static void pair_set_wait(struct pair *p, const struct op *op)
{
	unsigned i = 0;
	int err;

	while (i < WAITS && p->m.wait[i].waiting)
		i++;
	if (i == WAITS)
		return;
	p->wait[i] = (struct table_wait){ .w.r = range_of(p, op),
					  .w.granted = on_granted, .pair = p };
	err = lock_set_wait(p->t, &p->wait[i].w);
	if (model_free(&p->m, op)) {
		assert_int_equal(err, 0);
		if (model_apply(&p->m, op))
			pair_grants(p, op->ino);
		return;
	}
	if (model_deadlocks(&p->m, op)) {
		assert_int_equal(err, -EDEADLK);
		return;
	}
	assert_int_equal(err, -EINPROGRESS);
	p->m.wait[i] = (struct model_wait){ .op = *op, .waiting = true,
					    .order = ++p->m.arrivals };
}

static void pair_cancel(struct pair *p, unsigned i)
{
	assert_int_equal(lock_cancel(p->t, &p->wait[i].w),
			 p->m.wait[i].waiting);
	p->m.wait[i].waiting = false;
}

static void pair_drop(struct pair *p, uint32_t ino, uint32_t owner)
{
	struct op op = { ino, owner, LOCK_TYPE_UNLOCK, 0, CELLS - 1, false };
	unsigned ended = 0;

	lock_drop_owner(p->t, ino + 1, LOCK_KIND_POSIX, owner + 1);
	for (unsigned i = 0; i < WAITS; i++) {
		struct model_wait *w = &p->m.wait[i];

		if (w->waiting && w->op.ino == ino && w->op.owner == owner) {
			w->waiting = false;
			ended++;
		}
	}
	/* Those that ended come first; their order is not compared. */
	assert_true(ended <= p->granted_count);
	memmove(p->granted, p->granted + ended,
		(p->granted_count - ended) * sizeof(p->granted[0]));
	p->granted_count -= ended;
	model_apply(&p->m, &op);
	pair_grants(p, ino);
}

static void pair_fini(struct pair *p)
{
	for (uint32_t i = 0; i < INODES; i++)
		for (uint32_t o = 0; o < OWNERS; o++)
			pair_drop(p, i, o);
	assert_int_equal(lock_count(p->t), 0);
	for (uint32_t i = 0; i < INODES; i++)
		assert_false(lock_any(p->t, i + 1));
	lock_table_free(p->t);
}

/* ---- all short sequences ---- */

/* Operation @n of all those of two owners on a file of @cells bytes. */
static bool op_number(unsigned n, unsigned cells, struct op *op)
{
	memset(op, 0, sizeof(*op));
	op->owner = n % 2;
	n /= 2;
	op->type = n % 3;
	n /= 3;
	for (op->first = 0; op->first < cells; op->first++) {
		if (n < cells - op->first) {
			op->last = op->first + n;
			return true;
		}
		n -= cells - op->first;
	}
	return false;
}

/* @cells: 5 bytes, the last of which is the last of all with @at_end. */
static void all_of_three(bool at_end, unsigned cells)
{
	struct op a, b, c;

	for (unsigned i = 0; op_number(i, cells, &a); i++) {
		for (unsigned j = 0; op_number(j, cells, &b); j++) {
			for (unsigned k = 0; op_number(k, cells, &c); k++) {
				struct pair p;

				pair_init(&p, at_end);
				if (at_end)
					p.base = UINT64_MAX - (cells - 1);
				pair_set(&p, &a);
				pair_set(&p, &b);
				pair_set(&p, &c);
				assert_int_equal(lock_count(p.t),
						 model_count(&p.m));
				if (k % 7 == j % 7 && !at_end)
					pair_compare(&p);
				lock_table_free(p.t);
			}
		}
	}
}

static void all_triples_split_and_merge_like_bytes(void **state)
{
	(void)state;
	all_of_three(false, 4);
}

static void all_triples_at_the_last_byte_too(void **state)
{
	(void)state;
	all_of_three(true, 3);
}

static void every_lock_over_every_pattern_of_one_owner(void **state)
{
	/* All 3^6 patterns of none, read, write on six bytes, built byte by
	 * byte; then each range and type over each. */
	(void)state;
	for (unsigned pattern = 0; pattern < 729; pattern++) {
		for (unsigned n = 0;; n++) {
			unsigned rest = pattern;
			struct pair p;
			struct op op;

			if (!op_number(2 * n, 6, &op))
				break;
			pair_init(&p, pattern % 2);
			for (uint32_t c = 0; c < 6; c++, rest /= 3) {
				struct op one = { 0, 0, rest % 3, c, c, false };

				pair_set(&p, &one);
			}
			pair_set(&p, &op);
			pair_compare(&p);
			lock_table_free(p.t);
		}
	}
}

/* ---- random long sequences ---- */

static uint64_t seed_state;

static uint32_t rnd(uint32_t below)
{
	seed_state ^= seed_state << 13;
	seed_state ^= seed_state >> 7;
	seed_state ^= seed_state << 17;
	return (uint32_t)(seed_state >> 33) % below;
}

static struct op random_op(void)
{
	struct op op;

	op.ino = rnd(INODES);
	op.owner = rnd(OWNERS);
	op.type = rnd(3);
	op.first = rnd(CELLS);
	op.last = op.first + rnd(CELLS - op.first);
	/* The last owner is a handle, not a process. */
	op.ofd = op.owner == OWNERS - 1;
	return op;
}

static void run_random(uint64_t seed, unsigned steps)
{
	struct pair p;

	seed_state = seed * 0x9e3779b97f4a7c15ull + 1;
	pair_init(&p, seed % 2);
	for (unsigned step = 0; step < steps; step++) {
		struct op op = random_op();
		uint32_t what = rnd(10);

		if (what < 5 && op.type != LOCK_TYPE_UNLOCK)
			pair_set_wait(&p, &op);
		else if (what < 8)
			pair_set(&p, &op);
		else if (what < 9)
			pair_cancel(&p, rnd(WAITS));
		else if (rnd(3) == 0)
			pair_drop(&p, op.ino, op.owner);
		pair_compare(&p);
	}
	pair_fini(&p);
}

static void long_random_sequences_agree_with_the_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++)
		run_random(seed, 150);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_triples_split_and_merge_like_bytes),
		cmocka_unit_test(all_triples_at_the_last_byte_too),
		cmocka_unit_test(every_lock_over_every_pattern_of_one_owner),
		cmocka_unit_test(long_random_sequences_agree_with_the_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
