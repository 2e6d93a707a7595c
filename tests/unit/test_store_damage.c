/* The block store on a fake disk: stores that are another's, missing or damaged
 * are not served, and what is wrong is found.
 */
#include "tests/lib/store_fix.h"

#include <lmdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "blockd/store_priv.h"

#define MIB (1u << 20)
#define BLOCK STORE_FIX_BLOCK

static int check(struct store_box *b, bool data)
{
	FILE *out = tmpfile();
	int n = store_check(fake_dev_dev(b->f), &b->o, data, out);

	(void)fclose(out);
	return n;
}

/* ---- stores that are not ours or not whole ---- */

static void refuses(struct store_box *b, int err, const char *word)
{
	assert_int_equal(store_box_open(b), err);
	if (strstr(b->why, word) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", b->why, word);
}

static void another_clusters_store_is_refused(void **state)
{
	struct store_box *b = *state;

	store_box_kill(b);
	b->o.cluster_id++;
	refuses(b, -EXDEV, "cluster");
	b->o.cluster_id--;
	b->o.daemon_id++;
	refuses(b, -EXDEV, "daemon");
	b->o.daemon_id--;
	assert_int_equal(store_box_open(b), 0);
}

static void no_store_and_an_existing_one_are_told_apart(void **state)
{
	struct store_box *b = *state;

	store_box_kill(b);
	assert_int_equal(store_format(fake_dev_dev(b->f), &b->o), -EEXIST);
	store_box_fini(b);
	store_box_init_empty(b, 1, 64 * MIB, MIB, MIB);
	refuses(b, -ENOENT, "--format");
}

static void a_damaged_superblock_is_reported(void **state)
{
	struct store_box *b = *state;

	store_box_kill(b);
	fake_dev_flip(b->f, "super", 40);
	refuses(b, -EBADMSG, "super");
}

static void a_damaged_journal_is_reported(void **state)
{
	struct store_box *b = *state;
	uint8_t page[UNIT_SIZE];

	/* Past the checkpoint at opening, so that the records count. */
	store_box_settle(b);
	for (uint32_t i = 0; i < 10; i++) {
		store_fix_write(b, 10, 0, i * 4096, 4096);
		assert_int_equal(store_box_sync(b, 0), 0);
	}
	store_box_kill(b);
	assert_true(fake_dev_peek(b->f, "journal", 4 * 8192, page));
	fake_dev_flip(b->f, "journal", 4 * 8192 + 4096 + 17);
	refuses(b, -EBADMSG, "journal");
	fake_dev_flip(b->f, "journal", 4 * 8192 + 4096 + 17);
	fake_dev_flip(b->f, "journal", 4 * 8192 + 90);
	refuses(b, -EBADMSG, "journal");
	fake_dev_flip(b->f, "journal", 4 * 8192 + 90);
	assert_int_equal(store_box_open(b), 0);
	store_fix_read_same(b, 10, 0, 0, 40960);
}

/* Of the journal only what is to be replayed must be readable. */
static void a_bad_place_beyond_the_journals_end_does_not_matter(void **state)
{
	struct store_box *b = *state;

	store_box_settle(b);
	for (uint32_t i = 0; i < 10; i++) {
		store_fix_write(b, 10, 0, i * 4096, 4096);
		assert_int_equal(store_box_sync(b, 0), 0);
	}
	store_box_kill(b);
	fake_dev_spoil(b->f, "journal", 40 * 8192);
	fake_dev_spoil(b->f, "journal", MIB - 4096);
	assert_int_equal(check(b, true), 0);
	assert_int_equal(store_box_open(b), 0);
	store_fix_read_same(b, 10, 0, 0, 40960);
	store_box_kill(b);
	fake_dev_spoil(b->f, "journal", 4 * 8192);
	refuses(b, -EIO, "journal");
}

static void flipped_data_is_never_served(void **state)
{
	struct store_box *b = *state;
	uint8_t page[UNIT_SIZE];
	uint64_t off;

	store_fix_write(b, 10, 0, 0, BLOCK);
	assert_int_equal(store_box_sync(b, 0), 0);
	for (off = 0; fake_dev_peek(b->f, "seg-000000", off, page); off += 4096)
		if (memcmp(page, store_fix_pattern + 8192, UNIT_SIZE) == 0)
			break;
	fake_dev_flip(b->f, "seg-000000", off + 5);
	assert_int_equal(store_box_read(b, 10, 0, 0, 0, store_fix_got, BLOCK),
			 -EIO);
	assert_int_equal(store_box_read(b, 10, 0, 0, 9000, store_fix_got, 10),
			 -EIO);
	store_fix_read_same(b, 10, 0, 0, 8192);
	assert_int_equal(store_box_stat(b).checksum_errors, 2);
	/* A part of a damaged unit cannot be replaced, all of it can. */
	assert_int_equal(store_box_write(b, 10, 0, 0, 9000, store_fix_pattern,
					 10, false),
			 -EIO);
	store_fix_write(b, 10, 0, 8192, 4096);
	store_fix_read_same(b, 10, 0, 0, BLOCK);
}

/* Where unit 2 of the pattern is. */
static uint64_t unit_2(struct store_box *b)
{
	uint8_t page[UNIT_SIZE];
	uint64_t off = 0;

	while (fake_dev_peek(b->f, "seg-000000", off, page) &&
	       memcmp(page, store_fix_pattern + 8192, UNIT_SIZE) != 0)
		off += 4096;
	return off;
}

/* Nor is a truncation kept waiting by it, which would keep the file waiting. */
static void a_cut_through_a_unit_that_cannot_be_read_is_made(void **state)
{
	struct store_box *b = *state;
	uint64_t cut = 0;

	for (int round = 0; round < 2; round++) {
		store_fix_write(b, 10, 0, 0, BLOCK);
		assert_int_equal(store_box_sync(b, 0), 0);
		store_box_settle(b);
		/* Damaged, or by a disk that can read it again later. */
		if (round == 0)
			fake_dev_flip(b->f, "seg-000000", unit_2(b) + 5);
		for (uint32_t end = 9300; end > 9000; end -= 100) {
			cut++;
			/* It may yet read it. */
			for (uint32_t i = 1; round == 1 && cut == 4 &&
			     i < EDGE_TRIES_MAX; i++) {
				fake_dev_fail_at(b->f, 1, -EIO, false);
				assert_int_equal(store_box_cut(b, 10, cut, end,
					BLK_CUT_TO_END), -EIO);
			}
			if (round == 1 && cut == 4)
				fake_dev_fail_at(b->f, 1, -EIO, false);
			assert_int_equal(store_box_cut(b, 10, cut, end,
						       BLK_CUT_TO_END), 0);
		}
		for (int i = 0; i < 2; i++) {
			assert_int_equal(store_box_read(b, 10, 0, cut, 8192,
							store_fix_got, 4096),
					 -EIO);
			assert_int_equal(store_box_read(b, 10, 0, cut, 12288,
							store_fix_got, 4096),
					 0);
			assert_int_equal(store_fix_got[0], 0);
			assert_int_equal(store_box_read(b, 10, 0, cut, 0,
							store_fix_got, 8192),
					 0);
			assert_memory_equal(store_fix_got, store_fix_pattern,
					    8192);
			store_fix_reopen(b);
		}
		store_box_fini(b);
		store_box_init(b, 1, 64 * MIB, MIB, MIB);
		cut = 3;
	}
}

/* However many such cuts there are at once: each is made some time. */
static void many_cuts_through_what_cannot_be_read_are_made(void **state)
{
	struct store_box *b = *state;
	uint32_t left = 3 * EDGE_TRIES_KEPT;
	bool done[3 * EDGE_TRIES_KEPT] = { false };

	for (uint32_t i = 0; i < left; i++)
		store_fix_write(b, 10 + i, 0, 0, BLOCK);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_box_settle(b);
	for (uint32_t n = 0; n < 4 * EDGE_TRIES_MAX && left > 0; n++) {
		for (uint32_t i = 0; i < array_count(done); i++) {
			int err;

			if (done[i])
				continue;
			fake_dev_fail_at(b->f, 1, -EIO, false);
			err = store_box_cut(b, 10 + i, 1, 9000,
					    BLK_CUT_TO_END);
			/* For each it was tried often enough. */
			assert_true(err == -EIO || n + 1 >= EDGE_TRIES_MAX);
			done[i] = err == 0;
			left -= err == 0;
		}
	}
	assert_int_equal(left, 0);
}

static char *index_path(struct store_box *b)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/index/data.mdb", b->dir);
	return path;
}

static long index_used(struct store_box *b)
{
	MDB_envinfo info;
	MDB_env *env;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, index_path(b), MDB_NOSUBDIR |
				      MDB_RDONLY | MDB_NOLOCK, 0), 0);
	assert_int_equal(mdb_env_info(env, &info), 0);
	mdb_env_close(env);
	return (long)(info.me_last_pgno + 1) * 4096;
}

static void a_damaged_index_is_reported(void **state)
{
	struct store_box *b = *state;
	long size;
	uint32_t refused = 0;
	struct stat st;

	for (uint32_t i = 0; i < 50; i++)
		store_fix_write(b, 10 + i, i, 0, BLOCK);
	assert_int_equal(store_box_close(b), 0);
	FILE *f = fopen(index_path(b), "r+b");
	assert_non_null(f);
	/* what is written of it: it ends in a hole, allocated or not */
	assert_int_equal(fstat(fileno(f), &st), 0);
	assert_true(st.st_size >= 256 << 20);
	size = index_used(b);
	/* Bytes of it, one after the other: refused, or it did not matter. */
	for (long off = 8192; off < size; off += 611) {
		int c, err;

		(void)fseek(f, off, SEEK_SET);
		c = fgetc(f);
		(void)fseek(f, off, SEEK_SET);
		(void)fputc(c ^ 0xff, f);
		(void)fflush(f);
		err = store_box_open(b);
		if (err == 0) {
			for (uint32_t i = 0; i < 50; i++)
				store_fix_read_same(b, 10 + i, i, 0, BLOCK);
			store_box_kill(b);
		} else {
			assert_int_equal(err, -EBADMSG);
			assert_non_null(strstr(b->why, "index"));
			refused++;
		}
		(void)fseek(f, off, SEEK_SET);
		(void)fputc(c, f);
		(void)fflush(f);
	}
	assert_true(refused > 3);
	(void)fclose(f);
	assert_int_equal(truncate(index_path(b), size / 2), 0);
	refuses(b, -EBADMSG, "index");
}

#define CUT UINT64_C(0x1122334455667788)

/* Where the index says that CUT is inode 10's; @fn turns the value there. */
static void with_cut_number(struct store_box *b,
			    void (*fn)(MDB_txn *txn, MDB_dbi cuts, MDB_val *k,
				       MDB_val *v))
{
	uint8_t key[8] = { [7] = 10 };
	MDB_val k = { sizeof(key), key }, v;
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi cuts;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
	assert_int_equal(mdb_env_open(env, index_path(b), MDB_NOSUBDIR |
				      MDB_NOLOCK, 0), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "cuts", 0, &cuts), 0);
	assert_int_equal(mdb_get(txn, cuts, &k, &v), 0);
	fn(txn, cuts, &k, &v);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void flip_cut(MDB_txn *txn, MDB_dbi cuts, MDB_val *k, MDB_val *v)
{
	uint8_t value[64];
	MDB_val nv = { v->mv_size, value };

	memcpy(value, v->mv_data, v->mv_size);
	value[7] ^= 0x40;
	assert_int_equal(mdb_put(txn, cuts, k, &nv, 0), 0);
}

static void shorten_cut(MDB_txn *txn, MDB_dbi cuts, MDB_val *k, MDB_val *v)
{
	uint8_t value[8];
	MDB_val nv = { sizeof(value), value };

	memcpy(value, v->mv_data, sizeof(value));
	assert_int_equal(mdb_put(txn, cuts, k, &nv, 0), 0);
}

/* A larger one would let no later cut take effect. */
static void a_damaged_cut_number_is_reported(void **state)
{
	struct store_box *b = *state;

	assert_int_equal(store_box_cut(b, 10, CUT, 0, BLK_CUT_TO_END), 0);
	assert_int_equal(store_box_close(b), 0);
	with_cut_number(b, flip_cut);
	refuses(b, -EBADMSG, "index");
	with_cut_number(b, flip_cut);
	assert_int_equal(store_box_open(b), 0);
}

static void cut_numbers_of_older_builds_are_read(void **state)
{
	struct store_box *b = *state;

	for (uint64_t cut = CUT; cut < CUT + 2; cut++) {
		assert_int_equal(store_box_cut(b, 10, cut, 0, BLK_CUT_TO_END),
				 0);
		assert_int_equal(store_box_close(b), 0);
		with_cut_number(b, shorten_cut);
		assert_int_equal(store_box_open(b), 0);
		assert_int_equal(store_box_write(b, 10, 0, cut - 1, 0,
						 store_fix_pattern, 100, true),
				 -ESTALE);
		assert_int_equal(store_box_write(b, 10, 0, cut, 0,
						 store_fix_pattern, 100, true),
				 0);
	}
}

/* ---- check and scrub ---- */

static void check_finds_what_is_wrong(void **state)
{
	struct store_box *b = *state;
	uint8_t page[UNIT_SIZE];
	uint64_t off;

	for (uint32_t i = 0; i < 20; i++)
		store_fix_write(b, 10 + i, i, 0, BLOCK);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_fix_write(b, 50, 0, 0, 100);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_box_kill(b);
	assert_int_equal(check(b, true), 0);
	for (off = 0; fake_dev_peek(b->f, "seg-000000", off, page); off += 4096)
		if (memcmp(page, store_fix_pattern + 8192, UNIT_SIZE) == 0)
			break;
	fake_dev_flip(b->f, "seg-000000", off + 5);
	assert_int_equal(check(b, false), 0);
	assert_int_equal(check(b, true), 1);
	fake_dev_flip(b->f, "super", 0);
	assert_int_equal(check(b, false), 1);
}

struct scrub_wait {
	struct store_req r;
	bool done;
	int err;
};

static void scrubbed(struct store_req *r, int err)
{
	struct scrub_wait *w = container_of(r, struct scrub_wait, r);

	w->done = true;
	w->err = err;
}

static void scrub_counts_bad_units(void **state)
{
	struct store_box *b = *state;
	struct scrub_wait w = { .r.done = scrubbed };
	uint8_t page[UNIT_SIZE];
	uint64_t off, units_read, units_bad;

	for (uint32_t i = 0; i < 20; i++)
		store_fix_write(b, 10 + i % 3, i, 0, BLOCK);
	for (off = 0; fake_dev_peek(b->f, "seg-000000", off, page); off += 4096)
		if (memcmp(page, store_fix_pattern + 8192, UNIT_SIZE) == 0)
			break;
	fake_dev_flip(b->f, "seg-000000", off + 5);
	store_scrub(b->s, &w.r, 0, &units_read, &units_bad);
	while (!w.done)
		assert_true(fake_dev_step(b->f));
	assert_int_equal(w.err, 0);
	assert_int_equal(units_bad, 1);
	assert_int_equal(units_read, 20 * BLOCK / UNIT_SIZE);
}

#define T(f) \
	cmocka_unit_test_setup_teardown(f, store_fix_setup, store_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(another_clusters_store_is_refused),
		T(no_store_and_an_existing_one_are_told_apart),
		T(a_damaged_superblock_is_reported),
		T(a_damaged_journal_is_reported),
		T(a_bad_place_beyond_the_journals_end_does_not_matter),
		T(flipped_data_is_never_served),
		T(a_cut_through_a_unit_that_cannot_be_read_is_made),
		T(many_cuts_through_what_cannot_be_read_are_made),
		T(a_damaged_index_is_reported),
		T(a_damaged_cut_number_is_reported),
		T(cut_numbers_of_older_builds_are_read),
		T(check_finds_what_is_wrong),
		T(scrub_counts_bad_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
