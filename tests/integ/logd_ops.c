/* Goal: the real hail-logd lends memory, takes what belongs into it and nothing
 * else, and shows it to who fenced it.
 * Method: the program as a child, a fake metad, clients played by hand; TAP.
 *
 * usage: logd_ops [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/logd_run.h"

#include "tests/lib/tap.h"

static uint8_t got[1u << 20];

static void what_is_written_is_read_by_who_fenced(struct logd_run *x)
{
	struct blk_raw w, r;
	struct lrun_log g;
	uint8_t held = 0;
	uint32_t count = 0, from;
	uint64_t seq = 0;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	lrun_client(x, &r, 2, 1);
	lrun_log_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	for (unsigned i = 0; i < 20; i++) {
		from = g.end;
		lrun_append(&g, 100 + i * 37);
		CHECK_EQ(lrun_write(&w, &g, from), 0);
	}
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, &held, &count, &seq), 0);
	CHECK_EQ(held, LOG_HELD);
	CHECK_EQ(count, 1);
	CHECK_EQ(seq, 20);
	CHECK_EQ(lrun_read(&r, &(struct log_read){ 9, 6, 5, 0, LOG_DATA_OFF,
						   g.end - LOG_DATA_OFF },
			   got), 0);
	CHECK(memcmp(got, g.mirror + LOG_DATA_OFF, g.end - LOG_DATA_OFF) == 0);
	CHECK_EQ(lrun_free(&r, 9, 6, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "lent_bytes"), 0);
	lrun_log_fini(&g);
	raw_close(&w);
	raw_close(&r);
}

/* Who frees all of a log goes on over the same connection. */
static void an_owner_ends_his_log(struct logd_run *x)
{
	struct lrun_log g;
	struct blk_raw w;
	uint8_t held = 9;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	lrun_log_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	lrun_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_fence(&w, 9, 5, 5, &held, NULL, NULL), 0);
	CHECK_EQ(held, LOG_HELD_NONE);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "inodes"), 0);
	lrun_log_fini(&g);
	raw_close(&w);
}

static void memory_ends_and_comes_back(struct logd_run *x)
{
	struct lrun_log g;
	struct blk_raw w;

	lrun_start(x, NULL); /* of 16 MiB */
	lrun_client(x, &w, 1, 1);
	lrun_log_init(&g, 9, 5, 22);
	for (unsigned i = 0; i < 4; i++) {
		CHECK_EQ(lrun_alloc(&w, &g), 0);
		lrun_log_next(&g);
	}
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	/* Neither a log nor an inode stays of one that got nothing. */
	g.ino = 10;
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	CHECK_EQ(lrun_counter(x, "logs"), 1);
	CHECK_EQ(lrun_counter(x, "inodes"), 1);
	CHECK_EQ(lrun_counter(x, "refused_no_memory"), 2);
	g.ino = 9;
	CHECK_EQ(lrun_free(&w, 9, 5, 5, 1), 0);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	lrun_log_fini(&g);
	raw_close(&w);
}

int main(int argc, char **argv)
{
	static const struct logd_test tests[] = {
		LOGD_TEST(what_is_written_is_read_by_who_fenced),
		LOGD_TEST(an_owner_ends_his_log),
		LOGD_TEST(memory_ends_and_comes_back),
	};

	return logd_tests_run(argc, argv, tests, array_count(tests));
}
