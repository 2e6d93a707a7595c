/* The block store on real files with its own thread: what the fake disk cannot
 * show is that the threads agree (run it under tsan) and that an idle store
 * comes to rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "blockd/store.h"
#include "common/crc32c.h"
#include "tests/lib/file_dev.h"

#define BLOCK (1u << 20)

/* The disk has no room for the index. (Of segments it is asked otherwise.) */
static atomic_bool no_room;
static atomic_uint refused;

int fallocate(int fd, int mode, off_t off, off_t len)
{
	if (no_room && mode == FALLOC_FL_KEEP_SIZE) {
		refused++;
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

static char dir[64];
static struct file_dev *f;
static struct store *s;
static struct store_options o;
static uint8_t data[BLOCK] __attribute__((aligned(4096)));
static uint8_t got[BLOCK] __attribute__((aligned(4096)));
static uint32_t busy;

static void answered(struct store_req *r, int err)
{
	(void)r;
	assert_int_equal(err, 0);
	busy--;
}

static void closed(void *arg, int err)
{
	(void)arg;
	assert_int_equal(err, 0);
	busy--;
}

static void wait_all(void)
{
	while (busy > 0)
		(void)file_dev_run(f, 100);
}

static void open_store(void)
{
	char why[512];

	if (store_open(file_dev_dev(f), &o, &s, why, sizeof(why)) != 0)
		fail_msg("%s", why);
}

static int setup_segments(uint32_t units)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/hailfs-store-XXXXXX");
	assert_non_null(mkdtemp(dir));
	f = file_dev_new(dir, true);
	if (f == NULL)
		f = file_dev_new(dir, false);
	assert_non_null(f);
	o = (struct store_options){ .dir = dir, .cluster_id = 1,
				    .daemon_id = 1,
				    .capacity_bytes = 600u << 20,
				    .journal_bytes = 4u << 20,
				    .cache_bytes = 8u << 20,
				    .segment_units = units };
	assert_int_equal(store_format(file_dev_dev(f), &o), 0);
	open_store();
	for (uint32_t i = 0; i < BLOCK; i++)
		data[i] = (uint8_t)(i * 13 + i / 4096);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_segments(0);
}

static int setup_small_segments(void **state)
{
	(void)state;
	return setup_segments(1024);
}

static void close_store(void)
{
	busy++;
	store_close(s, closed, NULL);
	wait_all();
}

static int teardown(void **state)
{
	char cmd[128];

	(void)state;
	close_store();
	file_dev_free(f);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd);
}

static void write_start(struct store_req *r, uint8_t *sums, uint64_t ino,
			uint64_t index, uint32_t off, uint32_t len, bool sync)
{
	struct blk_write w = { .ino = ino, .index = index, .off = off,
			       .len = len, .block_log2 = 20,
			       .flags = sync ? BLK_WRITE_SYNC : 0,
			       .mtime_ns = 1,
			       .sums = { sums, crc32c_piece_count(off, len) *
					 4 } };

	crc32c_sums(off, data + off, len, sums);
	r->done = answered;
	busy++;
	store_write(s, r, &w, data + off);
}

static void read_same(uint64_t ino, uint64_t index)
{
	static uint8_t sums[1024];
	struct store_req r = { .done = answered };
	struct blk_read rd = { .ino = ino, .index = index, .len = BLOCK,
			       .block_log2 = 20 };
	struct store_read_out out = { .buf = got, .buf_cap = BLOCK,
				      .sums = sums };

	busy++;
	store_read(s, &r, &rd, &out);
	wait_all();
	assert_false(out.hole);
	assert_memory_equal(got, data, BLOCK);
}

static void many_at_once_with_checkpoints_between(void **state)
{
	static struct store_req r[16];
	static uint8_t sums[16][1024];
	const uint32_t ops = 6000;

	(void)state;
	for (uint32_t i = 0; i < ops;) {
		for (uint32_t k = 0; k < 16; k++, i++)
			write_start(&r[k], sums[k], k % 3, k, i / 16 % 250 *
				    4096, 6 * 4096, i % 7 == 0);
		wait_all();
	}
	for (uint32_t k = 0; k < 16; k++)
		write_start(&r[k], sums[k], k % 3, k, 0, BLOCK, true);
	wait_all();
	for (uint32_t k = 0; k < 16; k++)
		read_same(k % 3, k);
	close_store();
	open_store();
	for (uint32_t k = 0; k < 16; k++)
		read_same(k % 3, k);
}

/* One piece of a block of the largest size. */
static void big_write(uint8_t *p, uint32_t off, uint32_t len)
{
	static uint8_t sums[4096 + 8];
	struct store_req r = { .done = answered };
	struct blk_write w = { .ino = 9, .off = off, .len = len,
			       .block_log2 = BLOCK_LOG2_MAX, .mtime_ns = 1,
			       .sums = { sums, crc32c_piece_count(off, len) *
					 4 } };

	crc32c_sums(off, p + off, len, sums);
	busy++;
	store_write(s, &r, &w, p + off);
	wait_all();
}

static void big_same(const uint8_t *p, uint8_t *to, uint32_t off, uint32_t len)
{
	static uint8_t sums[4096 + 8];
	struct store_req r = { .done = answered };
	struct blk_read rd = { .ino = 9, .off = off, .len = len,
			       .block_log2 = BLOCK_LOG2_MAX };
	struct store_read_out out = { .buf = to, .sums = sums,
				      .buf_cap = (1u << BLOCK_LOG2_MAX) };

	busy++;
	store_read(s, &r, &rd, &out);
	wait_all();
	assert_false(out.hole);
	assert_memory_equal(to + out.data_off, p + off, len);
	assert_int_equal(crc32c_check(off, p + off, len, sums,
				      crc32c_piece_count(off, len) * 4), 0);
}

static void the_largest_blocks_work_whole_and_in_pieces(void **state)
{
	const uint32_t size = 1u << BLOCK_LOG2_MAX;
	uint8_t *p = aligned_alloc(4096, size), *to = aligned_alloc(4096, size);
	struct store_req r = { .done = answered };

	(void)state;
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < size; i++)
			p[i] = (uint8_t)(i * (round + 3) + i / 4096);
		if (round == 0)
			big_write(p, 0, size);
		/* Unaligned: small edges, a large middle from a bounce. */
		if (round == 1) {
			big_write(p, 0, 1000);
			big_write(p, 1000, size - 2017);
			big_write(p, size - 1017, 1017);
		}
		/* All small: several records, more than one arena. */
		for (uint32_t off = 0; round == 2 && off < size; off += 60000)
			big_write(p, off, size - off < 60000 ? size - off :
							       60000);
		busy++;
		store_sync(s, &r, 9);
		wait_all();
		big_same(p, to, 0, size);
		big_same(p, to, 12345, 54321);
		close_store();
		open_store();
		big_same(p, to, 0, size);
	}
	free(p);
	free(to);
}

static void an_idle_store_comes_to_rest(void **state)
{
	struct store_req r;
	struct store_stat st;
	uint8_t sums[16];

	(void)state;
	write_start(&r, sums, 1, 0, 0, 100, true);
	wait_all();
	store_stat(s, &st);
	assert_int_equal(st.units_dirty, 1);
	for (int i = 0; i < 80 && st.units_dirty > 0; i++) {
		(void)file_dev_run(f, 100);
		store_stat(s, &st);
	}
	assert_int_equal(st.units_dirty, 0);
	assert_true(st.checkpoints > 0);
	/* And stays there: nothing ticks. */
	while (file_dev_run(f, 50) > 0)
		;
	assert_int_equal(file_dev_run(f, 1500), 0);
}

static uint64_t checkpoints(void)
{
	struct store_stat st;

	store_stat(s, &st);
	assert_int_equal(st.error, 0);
	return st.checkpoints;
}

static int last_err;

static void took(struct store_req *r, int err)
{
	(void)r;
	last_err = err;
	busy--;
}

/* A small write, synced: two units of the journal. */
static int write_small(uint64_t ino, uint32_t off)
{
	struct store_req r = { .done = took };
	uint8_t sums[4];
	struct blk_write w = { .ino = ino, .off = off, .len = 4096,
			       .block_log2 = 20, .flags = BLK_WRITE_SYNC,
			       .mtime_ns = 1, .sums = { sums, 4 } };

	crc32c_sums(off, data + off, 4096, sums);
	busy++;
	store_write(s, &r, &w, data + off);
	wait_all();
	return last_err;
}

static void a_full_disk_holds_the_index_up_and_no_more(void **state)
{
	struct store_req r = { .done = answered };
	uint64_t was, ino = 10;
	static uint8_t sums[1024];
	uint32_t count = 0;

	(void)state;
	close_store();
	no_room = true; /* also for what is taken at the start */
	refused = 0;
	open_store();
	was = checkpoints();
	write_start(&r, sums, 2, 0, 0, BLOCK, true);
	wait_all();
	/* More than half of the journal, and a checkpoint is due. */
	for (; count < 300; count++)
		assert_int_equal(write_small(ino, count % 256 * 4096), 0);
	for (int i = 0; i < 100 && refused < 6; i++)
		(void)file_dev_run(f, 100);
	assert_true(refused >= 6); /* it is tried again */
	assert_int_equal(checkpoints(), was);
	busy++;
	store_purge(s, &r, &ino, 1);
	wait_all();
	while (count < 1000 && write_small(11, count % 256 * 4096) == 0)
		count++;
	assert_int_equal(last_err, -ENOSPC); /* the journal's end */
	assert_int_equal(write_small(11, 0), -ENOSPC);
	read_same(2, 0);
	no_room = false;
	for (int i = 0; i < 100 && checkpoints() == was; i++)
		(void)file_dev_run(f, 100);
	assert_true(checkpoints() > was);
	for (count = 0; count < 600; count++)
		assert_int_equal(write_small(12, count % 256 * 4096), 0);
	read_same(12, 0);
	close_store();
	open_store();
	read_same(2, 0);
	read_same(12, 0);
}

/* What waits for buffers would wait for ever, and its connection with it. */
static void without_room_for_the_index_buffers_end_too(void **state)
{
	struct store_req r = { .done = took };
	struct blk_write w = { .ino = 10, .len = 4096, .block_log2 = 20,
			       .mtime_ns = 1 };
	struct blk_alloc a = { .ino = 10, .index = 5, .len = 4096,
			       .block_log2 = 20 };
	uint8_t sums[4];
	uint32_t count;

	(void)state;
	close_store();
	o.cache_bytes = 1u << 20;
	no_room = true;
	open_store();
	w.sums = (struct wire_str){ sums, 4 };
	for (count = 0; count < 1000; count++) {
		w.index = count / 256;
		w.off = count % 256 * 4096;
		crc32c_sums(w.off, data + w.off, 4096, sums);
		busy++;
		store_write(s, &r, &w, data + w.off);
		for (int i = 0; i < 50 && busy > 0; i++)
			(void)file_dev_run(f, 100);
		assert_int_equal(busy, 0); /* answered */
		if (last_err != 0)
			break;
	}
	assert_int_equal(last_err, -ENOSPC);
	assert_true(count >= 128 && count <= 256);
	/* Reserving needs no buffer. */
	busy++;
	store_alloc(s, &r, &a);
	wait_all();
	assert_int_equal(last_err, 0);
	no_room = false;
	for (int i = 0; i < 100 && write_small(11, 0) != 0; i++)
		(void)file_dev_run(f, 100);
	assert_int_equal(last_err, 0);
}

static bool has_segment(uint32_t i)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/seg-%06u", dir, i);
	return access(path, F_OK) == 0;
}

/* While segments go on the store's thread, other blocks are read, and written
 * until they must be made again. */
static void segments_go_and_come_on_their_thread(void **state)
{
	static struct store_req r[16];
	static uint8_t sums[16][1024];
	struct store_req p = { .done = answered };
	uint64_t ino = 7;

	(void)state;
	for (uint32_t k = 0; k < 16; k++)
		write_start(&r[k], sums[k], 1, k, 0, BLOCK, true);
	wait_all();
	for (uint32_t round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 64; i += 16) {
			for (uint32_t k = 0; k < 16; k++)
				write_start(&r[k], sums[k], ino, i + k, 0,
					    BLOCK, false);
			wait_all();
		}
		assert_true(has_segment(18));
		busy++;
		store_purge(s, &p, &ino, 1);
		wait_all();
		for (uint32_t i = 0; i < 100000 && has_segment(18); i++)
			read_same(1, i % 16);
		assert_false(has_segment(18));
	}
	close_store();
	open_store();
	read_same(1, 15);
}

/* Inode @ino takes all that is free, and gives it back. */
static void fill_and_purge(uint64_t ino)
{
	static struct store_req r;
	static uint8_t sums[1024];
	struct blk_write w = { .ino = ino, .len = BLOCK, .block_log2 = 20,
			       .mtime_ns = 1, .sums = { sums, sizeof(sums) } };

	r.done = took;
	crc32c_sums(0, data, BLOCK, sums);
	for (last_err = 0; last_err == 0; w.index++) {
		busy++;
		store_write(s, &r, &w, data);
		while (busy > 1)
			(void)file_dev_run(f, 100);
	}
	assert_int_equal(last_err, -ENOSPC);
	assert_true(w.index > 1);
	busy++;
	store_purge(s, &r, &ino, 1);
	while (busy > 1)
		(void)file_dev_run(f, 100);
}

/* What a scrub reads is overwritten, and others', before it reads it. */
static void a_scrub_beside_others_finds_no_damage(void **state)
{
	static struct store_req w[4], scrub;
	static uint8_t sums[4][1024];
	uint64_t units_read, units_bad;
	struct store_stat st;

	(void)state;
	close_store();
	o.capacity_bytes = 16u << 20;
	open_store();
	for (uint32_t k = 0; k < 4; k++)
		write_start(&w[k], sums[k], 1, k, 0, BLOCK, true);
	wait_all();
	for (uint32_t round = 0; round < 5; round++) {
		(void)file_dev_hold_reads(f, true);
		busy++;
		scrub.done = answered;
		store_scrub(s, &scrub, 0, &units_read, &units_bad);
		while (file_dev_run(f, 50) > 0)
			;
		for (uint32_t i = 0; i < BLOCK; i++)
			data[i] = (uint8_t)(i * (round + 3) + i / 4096);
		for (uint32_t k = 0; k < 4; k++)
			write_start(&w[k], sums[k], 1, k, 0, BLOCK, true);
		while (busy > 1)
			(void)file_dev_run(f, 100);
		fill_and_purge(100 + 2 * round);
		fill_and_purge(101 + 2 * round);
		assert_int_equal(busy, 1);
		assert_true(file_dev_hold_reads(f, false) > 0);
		wait_all();
		assert_int_equal(units_bad, 0);
		store_stat(s, &st);
		assert_int_equal(st.checksum_errors, 0);
		for (uint32_t k = 0; k < 4; k++)
			read_same(1, k);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			many_at_once_with_checkpoints_between, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			the_largest_blocks_work_whole_and_in_pieces, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			segments_go_and_come_on_their_thread,
			setup_small_segments, teardown),
		cmocka_unit_test_setup_teardown(
			a_full_disk_holds_the_index_up_and_no_more, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			without_room_for_the_index_buffers_end_too, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			a_scrub_beside_others_finds_no_damage,
			setup_small_segments, teardown),
		cmocka_unit_test_setup_teardown(an_idle_store_comes_to_rest,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
