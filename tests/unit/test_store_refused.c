/* Stores that are refused, and stores that only look damaged: formats of a
 * later version, in each of the three files, and an index that lacks pages at
 * its end. What is written by the test is what another build would have left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/crc32c.h"
#include "tests/lib/store_box.h"

#define MIB (1u << 20)
#define BLOCK (1u << STORE_BOX_LOG2)
#define AT_FORMAT 8u /* in super and in a journal record */
#define AT_SUPER_CRC 68u

static uint8_t pattern[BLOCK] __attribute__((aligned(4096)));
static uint8_t got[BLOCK] __attribute__((aligned(4096)));

static int setup(void **state)
{
	struct store_box *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	store_box_init(b, 1, 64 * MIB, MIB, MIB);
	for (uint32_t i = 0; i < BLOCK; i++)
		pattern[i] = (uint8_t)(i * 7 + i / 4096);
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	store_box_fini(*state);
	free(*state);
	return 0;
}

static void write_ok(struct store_box *b, uint64_t ino)
{
	assert_int_equal(store_box_write(b, ino, 0, 0, 0, pattern, BLOCK,
					 false), 0);
}

static void restart(struct store_box *b)
{
	assert_int_equal(store_box_close(b), 0);
	assert_int_equal(store_box_open(b), 0);
}

static void read_same(struct store_box *b, uint64_t ino)
{
	memset(got, 0, sizeof(got));
	assert_int_equal(store_box_read(b, ino, 0, 0, 0, got, BLOCK), 0);
	assert_memory_equal(got, pattern, BLOCK);
}

static void refuses(struct store_box *b, int err, const char *object,
		    const char *step)
{
	assert_int_equal(store_box_open(b), err);
	if (strstr(b->why, object) == NULL || strstr(b->why, step) == NULL)
		fail_msg("'%s' names not '%s' and '%s'", b->why, object, step);
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static void page_put(struct store_box *b, const char *name, uint64_t off,
		     const uint8_t *page)
{
	struct dev *d = fake_dev_dev(b->f);
	uint8_t *io = aligned_alloc(UNIT_SIZE, UNIT_SIZE);
	int file = d->vt->open(d, name, false);

	assert_non_null(io);
	assert_true(file >= 0);
	memcpy(io, page, UNIT_SIZE);
	assert_int_equal(d->vt->write_now(d, file, off, io, UNIT_SIZE), 0);
	d->vt->close(d, file);
	free(io);
}

static void a_superblock_of_a_later_version(void **state)
{
	struct store_box *b = *state;
	uint8_t page[UNIT_SIZE];

	store_box_kill(b);
	assert_true(fake_dev_peek(b->f, "super", 0, page));
	put32(page + AT_FORMAT, 2);
	put32(page + AT_SUPER_CRC, crc32c(0, page, AT_SUPER_CRC));
	page_put(b, "super", 0, page);
	refuses(b, -EPROTONOSUPPORT, "super: store format 2",
		"run a newer hail-blockd");
}

/* The last record, which else would pass for one that was cut off: what it
 * says was acknowledged. */
static void a_journal_record_of_a_later_version(void **state)
{
	struct store_box *b = *state;
	uint8_t old[UNIT_SIZE], page[UNIT_SIZE];
	uint64_t off, at = 0, seq, largest = 0;

	store_box_settle(b);
	assert_int_equal(store_box_write(b, 10, 0, 0, 0, pattern, 4096,
					 false), 0);
	assert_int_equal(store_box_sync(b, 0), 0);
	store_box_kill(b);
	for (off = 0; fake_dev_peek(b->f, "journal", off, page); off += 4096) {
		memcpy(&seq, page + 32, sizeof(seq));
		if (get32(page + AT_FORMAT) != 1 || le64toh(seq) <= largest)
			continue;
		largest = le64toh(seq);
		at = off;
		memcpy(old, page, sizeof(old));
	}
	assert_true(largest > 0);
	/* header and items are in its first unit */
	assert_in_range(get32(old + 12), 80, UNIT_SIZE);
	memcpy(page, old, sizeof(page));
	put32(page + AT_FORMAT, 2);
	put32(page + 4, crc32c(0, page + 8, get32(page + 12) - 8));
	page_put(b, "journal", at, page);
	refuses(b, -EPROTONOSUPPORT, "journal: record",
		"run a newer hail-blockd");
	page_put(b, "journal", at, old);
	assert_int_equal(store_box_open(b), 0);
	assert_int_equal(store_box_read(b, 10, 0, 0, 0, got, 4096), 0);
	assert_memory_equal(got, pattern, 4096);
}

static const char *index_path(struct store_box *b, const char *name)
{
	static char path[160];

	(void)snprintf(path, sizeof(path), "%s/index%s", b->dir, name);
	return path;
}

/* Sets the format of the state, or of the first block, to @v, with the right
 * checksum behind it. */
static void index_put(struct store_box *b, const char *db, uint8_t v)
{
	uint8_t val[16384];
	MDB_env *env;
	MDB_txn *txn;
	MDB_cursor *c;
	MDB_dbi dbi;
	MDB_val k, d;
	uint32_t crc = 0;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_mapsize(env, 1u << 30), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
	assert_int_equal(mdb_env_open(env, index_path(b, ""), 0, 0600), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, db, 0, &dbi), 0);
	assert_int_equal(mdb_cursor_open(txn, dbi, &c), 0);
	assert_int_equal(mdb_cursor_get(c, &k, &d, MDB_FIRST), 0);
	assert_in_range(d.mv_size, 6, sizeof(val));
	memcpy(val, d.mv_data, d.mv_size);
	val[0] = v;
	if (strcmp(db, "blocks") == 0) { /* image.c: its key, then the value */
		uint64_t key[2];

		memcpy(key, k.mv_data, sizeof(key));
		key[0] = htole64(be64toh(key[0]));
		key[1] = htole64(be64toh(key[1]));
		crc = crc32c(0, key, sizeof(key));
	}
	put32(val + d.mv_size - 4, crc32c(crc, val, d.mv_size - 4));
	d.mv_data = val;
	assert_int_equal(mdb_cursor_put(c, &k, &d, MDB_CURRENT), 0);
	mdb_cursor_close(c);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static void an_index_of_a_later_version(void **state)
{
	struct store_box *b = *state;

	write_ok(b, 10);
	assert_int_equal(store_box_close(b), 0);
	index_put(b, "meta", 2);
	refuses(b, -EPROTONOSUPPORT, "index: of another format",
		"run a newer hail-blockd");
	index_put(b, "meta", 0);
	refuses(b, -EBADMSG, "index: damaged", "restore it");
	index_put(b, "meta", 1);
	index_put(b, "blocks", 2);
	refuses(b, -EPROTONOSUPPORT, "index: of another format",
		"run a newer hail-blockd");
	index_put(b, "blocks", 1);
	assert_int_equal(store_box_open(b), 0);
	read_same(b, 10);
}

/* ---- an index that lacks pages at its end ---- */
static uint8_t *slurp(const char *path, size_t len)
{
	uint8_t *p = malloc(len);
	FILE *f = fopen(path, "rb");

	assert_non_null(p);
	assert_non_null(f);
	assert_int_equal(fread(p, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	return p;
}

static void put_back(const char *path, const uint8_t *p, size_t len)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static size_t last_pages_end(struct store_box *b)
{
	MDB_env *env;
	MDB_envinfo info;
	MDB_stat st;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_open(env, index_path(b, ""), MDB_RDONLY,
				      0600), 0);
	assert_int_equal(mdb_env_info(env, &info), 0);
	assert_int_equal(mdb_env_stat(env, &st), 0);
	mdb_env_close(env);
	return (info.me_last_pgno + 1) * st.ms_psize;
}

static int check(struct store_box *b)
{
	FILE *out = tmpfile();
	int n = store_check(fake_dev_dev(b->f), &b->o, false, out);

	assert_non_null(out);
	(void)fclose(out);
	return n;
}

/* Many inodes, then none but a few: the index's last pages are free. Its file
 * cut off at any of its pages is taken when all that counts is still in it
 * and refused else, and neither crashes who reads it. */
static void an_index_without_the_free_pages_at_its_end(void **state)
{
	struct store_box *b = *state;
	size_t end, size, taken = 0, refused = 0;
	uint8_t *bytes;
	int err, offline;

	for (uint64_t i = 0; i < 3; i++)
		write_ok(b, 10 + i);
	for (uint64_t i = 0; i < 2000; i++)
		assert_int_equal(store_box_write(b, 100 + i, 0, 0, 0, pattern,
						 4096, false), 0);
	store_box_settle(b);
	for (uint64_t i = 0; i < 2000; i++)
		assert_int_equal(store_box_purge(b, 100 + i), 0);
	/* What is used moves to the front, page by page. */
	for (uint64_t i = 0; i < 10; i++) {
		restart(b);
		write_ok(b, 10);
	}
	assert_int_equal(store_box_close(b), 0);
	end = last_pages_end(b);
	bytes = slurp(index_path(b, "/data.mdb"), end);
	for (size = end; size >= 8192; size -= 4096) {
		put_back(index_path(b, "/data.mdb"), bytes, size);
		/* Offline, which writes nothing, it is told alike. */
		offline = check(b);
		err = store_box_open(b);
		assert_int_equal(err, offline == 0 ? 0 : -EBADMSG);
		if (err != 0) {
			assert_non_null(strstr(b->why, "index: damaged"));
			refused++;
			continue;
		}
		taken = size;
		for (uint64_t i = 0; i < 3; i++)
			read_same(b, 10 + i);
		store_box_kill(b);
	}
	assert_true(refused > 0);
	assert_in_range(taken, 8192, end - 5 * 4096);
	put_back(index_path(b, "/data.mdb"), bytes, taken);
	free(bytes);
	/* It is as good as any other. */
	assert_int_equal(store_box_open(b), 0);
	for (uint64_t i = 0; i < 2000; i++)
		assert_int_equal(store_box_write(b, 100 + i, 0, 0, 0, pattern,
						 4096, false), 0);
	store_box_settle(b);
	assert_int_equal(store_box_close(b), 0);
	assert_int_equal(check(b), 0);
	assert_int_equal(store_box_open(b), 0);
	for (uint64_t i = 0; i < 3; i++)
		read_same(b, 10 + i);
	assert_int_equal(store_box_read(b, 1500, 0, 0, 0, got, 4096), 0);
}

/* Each byte of LMDB's two meta pages, which say where everything else is: the
 * store is refused, or, by the other meta page and the journal, whole. */
static void an_index_with_damaged_meta_pages(void **state)
{
	struct store_box *b = *state;
	const char *path = index_path(b, "/data.mdb");
	unsigned refused = 0;
	int err;

	for (uint64_t i = 0; i < 3; i++) {
		restart(b);
		write_ok(b, 10 + i);
	}
	assert_int_equal(store_box_close(b), 0);
	for (off_t off = 0; off < 8192; off++) {
		FILE *f;
		int c;

		if (off % 4096 >= 160) /* its end; then zeros */
			continue;
		f = fopen(path, "r+b");
		assert_non_null(f);
		assert_int_equal(fseek(f, off, SEEK_SET), 0);
		c = fgetc(f);
		assert_int_equal(fseek(f, off, SEEK_SET), 0);
		(void)fputc(c ^ 1 << off % 8, f);
		(void)fflush(f);
		err = check(b);
		if (err != 0) {
			/* -ENOMEM: a map of so many pages */
			if (err != 1 && err != -ENOMEM)
				fail_msg("byte %d: %d", (int)off, err);
			refused++;
		}
		assert_int_equal(fseek(f, off, SEEK_SET), 0);
		(void)fputc(c, f);
		assert_int_equal(fclose(f), 0);
	}
	assert_true(refused > 20);
	assert_int_equal(store_box_open(b), 0);
	for (uint64_t i = 0; i < 3; i++)
		read_same(b, 10 + i);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_superblock_of_a_later_version),
		T(a_journal_record_of_a_later_version),
		T(an_index_of_a_later_version),
		T(an_index_without_the_free_pages_at_its_end),
		T(an_index_with_damaged_meta_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
