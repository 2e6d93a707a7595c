/* The block store on a fake disk: what one crash leaves half done, a second one
 * must find in order.
 */
#include "tests/lib/store_fix.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "blockd/index_priv.h"
#include "blockd/store_priv.h"
#include "tests/lib/store_audit.h"

#define MIB (1u << 20)

/* ---- versions ---- */

/* Into the second part of a checkpoint, whose first is in the index. */
static void checkpoint_half(struct store_box *b)
{
	struct ckpt *c = &b->s->ckpt;
	uint64_t was = c->finished;
	bool indexed = false;

	fake_dev_advance(b->f, CKPT_AGE_MS);
	ckpt_tick(b->s);
	while (!indexed || c->state == CKPT_INDEX) {
		assert_true(fake_dev_step(b->f));
		indexed |= c->state == CKPT_INDEX;
	}
	assert_int_equal(c->finished, was);
	assert_int_equal(c->state, CKPT_FILL);
}

/* Leaves inode 10's block in memory and in the index, there in a version that
 * no record knows of. */
static void index_runs_ahead(struct store_box *b)
{
	store_box_settle(b);
	store_fix_write(b, 10, 0, 0, 4096);
	assert_int_equal(store_box_sync(b, 10), 0);
	for (uint32_t i = 0; i <= CKPT_PUTS_MAX; i++)
		assert_int_equal(store_box_alloc(b, 20, i, 0, 0, 4096), 0);
	/* The second part has something to write. */
	store_fix_write(b, 20, CKPT_PUTS_MAX, 0, 4096);
	store_fix_write(b, 10, 0, 4096, 8192);
	checkpoint_half(b);
	store_fix_reopen(b);
	store_fix_read_same(b, 10, 0, 0, 4096);
}

static void a_write_after_half_a_checkpoint_is_newer(void **state)
{
	struct store_box *b = *state;

	index_runs_ahead(b);
	store_fix_fill(77);
	store_fix_write(b, 10, 0, 4096, 4096);
	assert_int_equal(store_box_sync(b, 10), 0);
	store_fix_reopen(b);
	store_fix_read_same(b, 10, 0, 4096, 4096);
}

static void a_cut_after_half_a_checkpoint_is_newer(void **state)
{
	struct store_box *b = *state;

	index_runs_ahead(b);
	assert_int_equal(store_box_cut(b, 10, 1, 0, BLK_CUT_TO_END), 0);
	assert_int_equal(store_box_read(b, 10, 0, 1, 0, store_fix_got, 8192),
			 0);
	for (uint32_t i = 0; i < 8192; i++)
		assert_int_equal(store_fix_got[i], 0);
}

/* ---- the last record ---- */

static void ignored(struct store_req *r, int err)
{
	(void)r;
	(void)err;
}

/* A kill while the journal is written: the record may be what is read then, and
 * not be on the disk. False: it was not. */
static bool record_is_replayed(struct store_box *b)
{
	uint64_t commit, dsyncs = fake_dev_count(b->f).dsyncs;
	struct store_req r = { .done = ignored };

	store_box_settle(b);
	store_fix_write(b, 10, 0, 0, 4096);
	commit = store_box_stat(b).commit;
	store_sync(b->s, &r, 10);
	while (fake_dev_count(b->f).dsyncs == dsyncs)
		assert_true(fake_dev_step(b->f));
	store_box_kill(b);
	/* A record is done before what a checkpoint writes beside it. */
	fake_dev_in_order(b->f, true);
	assert_int_equal(store_box_open(b), 0);
	return store_box_stat(b).commit > commit;
}

static void what_a_start_replays_is_durable(void **state)
{
	uint32_t replayed = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct store_box b;
		uint64_t commit;

		store_box_init(&b, seed, 64 * MIB, MIB, MIB);
		if (!record_is_replayed(&b)) {
			store_box_fini(&b);
			continue;
		}
		replayed++;
		/* Of that record, and of one behind it. */
		assert_int_equal(store_box_sync(&b, 10), 0);
		if (seed % 2 == 0) {
			store_fix_write(&b, 10, 0, 4096, 100);
			assert_int_equal(store_box_sync(&b, 10), 0);
		}
		commit = store_box_stat(&b).commit;
		store_box_power_cut(&b);
		if (store_box_open(&b) != 0)
			fail_msg("seed %u: %s", (unsigned)seed, b.why);
		assert_true(store_box_stat(&b).commit >= commit);
		store_fix_read_same(&b, 10, 0, 0, 4096);
		if (seed % 2 == 0)
			store_fix_read_same(&b, 10, 0, 4096, 100);
		store_box_fini(&b);
	}
	assert_true(replayed > 5);
}

/* ---- in place ---- */

/* A unit is overwritten in place only while the journal has it whole: after a
 * checkpoint it has not, until it is synced again. */
static bool overwritten_unsynced(uint64_t seed, uint64_t k)
{
	struct store_box b;
	bool died;

	store_box_init(&b, seed, 64 * MIB, MIB, MIB);
	store_box_settle(&b);
	for (uint8_t content = 1; content <= 2; content++) {
		store_fix_fill(content);
		store_fix_write(&b, 10, 0, 0, 8192);
		if (content == 1)
			assert_int_equal(store_box_sync(&b, 10), 0);
		else
			fake_dev_die_at(b.f, k);
		fake_dev_advance(b.f, CKPT_AGE_MS);
		ckpt_tick(b.s);
		store_box_settle(&b);
	}
	died = fake_dev_dead(b.f);
	store_box_power_cut(&b);
	assert_int_equal(store_box_open(&b), 0);
	assert_int_equal(store_box_read(&b, 10, 0, 0, 0, store_fix_got, 8192),
			 0);
	store_fix_fill(store_fix_got[0] == store_fix_pattern[0] ? 2 : 1);
	assert_memory_equal(store_fix_got, store_fix_pattern, 8192);
	store_box_fini(&b);
	return died;
}

static void what_is_not_journalled_is_not_overwritten(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		uint64_t k = 1;

		while (overwritten_unsynced(seed, k))
			k++;
		assert_true(k > 2);
	}
	store_fix_fill(1);
}

/* ---- cuts ---- */

/* A cut whose commit takes several records, cut off before the @k-th step that
 * changes the disk. False: it came to its end. */
static bool dies_cutting(struct store_box *b, uint64_t k)
{
	struct blk_cut c = { .ino = 10, .cut = 1, .from = 5000, .to = 12288,
			     .block_log2 = STORE_BOX_LOG2 };
	struct store_req r = { .done = ignored };
	bool died;

	store_box_init(b, k, 64 * MIB, MIB, MIB);
	store_fix_write(b, 10, 0, 0, 16384);
	assert_int_equal(store_box_sync(b, 10), 0);
	store_box_settle(b);
	for (uint32_t i = 0; i < 8; i++)
		store_fix_write(b, 10, 1 + i / 2, i % 2 * 15 * UNIT_SIZE,
				15 * UNIT_SIZE);
	fake_dev_die_at(b->f, k);
	store_cut(b->s, &r, &c);
	store_box_settle(b);
	died = fake_dev_dead(b->f);
	store_box_kill(b);
	return died;
}

/* metad asks again until it is answered: a cut that the store knows already
 * must have zeroed the parts of units that it concerns. */
static void a_cut_is_known_only_with_its_edges(void **state)
{
	bool died = true;
	uint64_t k;

	(void)state;
	for (k = 1; died; k++) {
		struct store_box b;

		died = dies_cutting(&b, k);
		if (store_box_open(&b) != 0)
			fail_msg("step %u: %s", (unsigned)k, b.why);
		assert_int_equal(store_box_cut(&b, 10, 1, 5000, 12288), 0);
		assert_int_equal(store_box_read(&b, 10, 0, 1, 0, store_fix_got,
						16384), 0);
		assert_memory_equal(store_fix_got, store_fix_pattern, 5000);
		for (uint32_t i = 5000; i < 12288; i++)
			assert_int_equal(store_fix_got[i], 0);
		assert_memory_equal(store_fix_got + 12288,
				    store_fix_pattern + 12288, 4096);
		store_box_fini(&b);
	}
	assert_true(k > 4);
}

/* A block that is loaded while a checkpoint brings a cut into the index, and
 * journalled before the cut: what the cut took from it does not come back. */
static void a_block_loaded_during_its_cut_stays_cut(void **state)
{
	struct store_box *b = *state;
	struct blk_cut c = { .ino = 10, .cut = 1, .from = 4096,
			     .to = BLK_CUT_TO_END,
			     .block_log2 = STORE_BOX_LOG2 };
	struct store_req r = { .done = ignored };

	store_box_settle(b);
	store_fix_write(b, 10, 0, 0, 16384);
	assert_int_equal(store_box_close(b), 0);
	assert_int_equal(store_box_open(b), 0);
	store_box_settle(b);
	fake_dev_in_order(b->f, true);
	/* The checkpoint has something to write. */
	store_fix_write(b, 20, 0, 0, 4096);
	store_cut(b->s, &r, &c);
	fake_dev_advance(b->f, CKPT_AGE_MS);
	ckpt_tick(b->s);
	assert_int_equal(b->s->ckpt.state, CKPT_FILL);
	assert_true(b->s->cut_count == 1);
	assert_int_equal(store_box_write(b, 10, 0, 1, 0, store_fix_pattern,
					 4096, true), 0);
	assert_int_not_equal(b->s->ckpt.state, CKPT_IDLE);
	store_fix_reopen(b);
	assert_int_equal(store_box_read(b, 10, 0, 1, 0, store_fix_got, 16384),
			 0);
	assert_memory_equal(store_fix_got, store_fix_pattern, 4096);
	for (uint32_t i = 4096; i < 16384; i++)
		assert_int_equal(store_fix_got[i], 0);
}

/* ---- space ---- */

/* Units that are only in the journal have a place promised, also after a start:
 * given to others, the checkpoint would have none for them. */
static void what_is_replayed_has_its_place_promised(void **state)
{
	struct store_box *b = *state;
	uint64_t units_free;

	store_box_settle(b);
	for (uint32_t i = 0; i < 100; i++)
		store_fix_write(b, 10, i / 16, i % 16 * UNIT_SIZE, UNIT_SIZE);
	assert_int_equal(store_box_sync(b, 0), 0);
	units_free = store_box_stat(b).units_free;
	/* The checkpoint at once has not taken all. */
	b->o.slice_blocks = 1;
	store_fix_reopen(b);
	assert_int_equal(store_box_stat(b).units_free, units_free);
}

/* The power goes before the @commit_dies-th transaction of the index. */
static uint32_t commit_dies;

int mdb_txn_commit(MDB_txn *txn)
{
	static int (*real)(MDB_txn *txn);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "mdb_txn_commit");
	if (commit_dies == 0 || --commit_dies > 0)
		return real(txn);
	mdb_txn_abort(txn);
	return EIO;
}

/* A cut and a purge come into the index in several transactions, and only
 * @commits of them come about. False: there were no more. */
static bool dies_between_cuts(uint32_t commits)
{
	const uint32_t blocks = 4200; /* more than a transaction cuts */
	struct blk_cut c = { .ino = 10, .cut = 1, .to = BLK_CUT_TO_END,
			     .block_log2 = STORE_BOX_LOG2 };
	struct store_req r[2] = { { .done = ignored }, { .done = ignored } };
	uint64_t purge = 11;
	struct store_box b;
	bool died;

	store_box_init(&b, 1, 64 * MIB, MIB, MIB);
	for (uint32_t i = 0; i < blocks; i++)
		store_fix_write(&b, purge, i, 0, 4096);
	assert_int_equal(store_box_close(&b), 0);
	assert_int_equal(store_box_open(&b), 0);
	store_box_settle(&b);
	store_fix_write(&b, 10, 0, 0, 8192);
	assert_int_equal(store_box_sync(&b, 10), 0);
	store_cut(b.s, &r[0], &c);
	store_purge(b.s, &r[1], &purge, 1);
	commit_dies = commits + 1;
	/* Before there is a record of them, and after. */
	for (uint32_t i = 0; i < 2; i++) {
		fake_dev_advance(b.f, CKPT_AGE_MS);
		ckpt_tick(b.s);
		while (b.s->error == 0 && fake_dev_step(b.f))
			;
	}
	died = commit_dies == 0;
	commit_dies = 0;
	store_fix_reopen(&b);
	/* metad heard of no end, and asks again. */
	assert_int_equal(store_box_cut(&b, 10, 1, 0, BLK_CUT_TO_END), 0);
	assert_int_equal(store_box_read(&b, 10, 0, 1, 0, store_fix_got, 8192),
			 0);
	for (uint32_t i = 0; i < 8192; i++)
		assert_int_equal(store_fix_got[i], 0);
	assert_int_equal(store_box_purge(&b, purge), 0);
	assert_int_equal(store_audit(b.s, false), 0);
	store_box_fini(&b);
	return died;
}

static void what_half_a_checkpoint_cut_stays_cut(void **state)
{
	uint32_t commits = 0;

	(void)state;
	while (dies_between_cuts(commits))
		commits++;
	assert_true(commits > 2);
}

/* ---- names ---- */

/* Opens a store whose second segment is being made when it dies before the
 * @k-th step that changes the disk. False: it did not die. */
static bool dies_making_a_segment(struct store_box *b, uint64_t k)
{
	struct store_req r = { .done = ignored };
	bool died;

	store_box_init_empty(b, k, 64 * MIB, MIB, MIB);
	b->o.segment_units = 256;
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), 0);
	assert_int_equal(store_box_open(b), 0);
	store_box_settle(b);
	fake_dev_die_at(b->f, k);
	/* The first has but the reserve. */
	store_alloc(b->s, &r, &(struct blk_alloc){ .ino = 9, .len = UNIT_SIZE,
		    .block_log2 = STORE_BOX_LOG2 });
	store_box_settle(b);
	died = fake_dev_dead(b->f);
	store_box_kill(b);
	return died;
}

/* Found by a start, it may have a name that a power cut takes away again. */
static void a_segment_that_is_used_keeps_its_name(void **state)
{
	uint32_t used = 0;
	bool died = true;

	(void)state;
	for (uint64_t k = 1; died; k++) {
		struct store_box b;
		uint32_t blocks = 0;

		died = dies_making_a_segment(&b, k);
		/* The next is not made, with which all names would stay. */
		fake_dev_set_space(b.f, 0);
		assert_int_equal(store_box_open(&b), 0);
		while (store_box_write(&b, 10, blocks, 0, 0, store_fix_pattern,
				       STORE_FIX_BLOCK, true) == 0)
			blocks++;
		for (uint32_t i = 0; i < blocks; i++)
			assert_int_equal(store_box_write(&b, 10, i, 0, 0,
				store_fix_pattern, STORE_FIX_BLOCK, true), 0);
		store_box_power_cut(&b);
		if (store_box_open(&b) != 0)
			fail_msg("step %u: %s", (unsigned)k, b.why);
		for (uint32_t i = 0; i < blocks; i++)
			store_fix_read_same(&b, 10, i, 0, STORE_FIX_BLOCK);
		used += blocks > 0;
		store_box_fini(&b);
	}
	assert_true(used > 0);
}

#define T(f) \
	cmocka_unit_test_setup_teardown(f, store_fix_setup, store_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_write_after_half_a_checkpoint_is_newer),
		T(a_cut_after_half_a_checkpoint_is_newer),
		cmocka_unit_test(what_a_start_replays_is_durable),
		cmocka_unit_test(what_is_not_journalled_is_not_overwritten),
		cmocka_unit_test(a_cut_is_known_only_with_its_edges),
		T(a_block_loaded_during_its_cut_stays_cut),
		cmocka_unit_test(what_half_a_checkpoint_cut_stays_cut),
		T(what_is_replayed_has_its_place_promised),
		cmocka_unit_test(a_segment_that_is_used_keeps_its_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
