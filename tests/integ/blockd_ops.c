/* Goal: the real hail-blockd does what is asked of it and counts it.
 * Method: the program as a child, a fake metad, clients played by hand; TAP.
 *
 * usage: blockd_ops [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <unistd.h>

#include "tests/lib/tap.h"

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

static uint8_t pattern[BLOCK], got[BLOCK];

static void what_is_written_is_read(struct blockd_run *x)
{
	static const uint32_t ranges[][2] = {
		{ 0, BLOCK }, { 0, 4096 }, { 5, 1 }, { 4090, 100 },
		{ 100000, 200001 }, { BLOCK - 1, 1 },
	};
	struct blk_raw r;
	bool hole = false;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_read(&r, 9, 0, 0, got, BLOCK, &hole), 0);
	CHECK(hole);
	for (unsigned i = 0; i < array_count(ranges); i++) {
		uint32_t off = ranges[i][0], len = ranges[i][1];

		run_fill(pattern, len, i + 1);
		CHECK_EQ(raw_write(&r, 9 + i, i, off, pattern, len, 0), 0);
		run_check_holds(&r, 9 + i, i, off, pattern, len);
		CHECK_EQ(raw_sync(&r, 9 + i), 0);
		run_check_holds(&r, 9 + i, i, off, pattern, len);
	}
	raw_close(&r);
}

/* Inode 9: a full block 0, 5000 bytes of block 2. */
static void check_told(struct blk_raw *r, struct blk_raw *m)
{
	struct blk_end_reply end;
	struct blk_map_reply map;
	struct blk_list_reply list;
	struct frame *f;

	if (RAW_CALL(m, WIRE_OP_BLK_END, blk_end, &f,
		 { .ino = 9, .block_log2 = 20 }) == 0) {
		CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &end), 0);
		CHECK_EQ(end.end, 2 * BLOCK + 5000);
		CHECK_EQ(end.units, 258);
		frame_free(f);
	} else {
		CHECK(!"END");
	}
	if (RAW_CALL(r, WIRE_OP_BLK_MAP, blk_map, &f,
		 { .ino = 9, .last = UINT64_MAX, .count_max = 100,
		   .block_log2 = 20 }) == 0) {
		CHECK_EQ(blk_map_reply_parse(f->body, f->h.body_len, &map), 0);
		CHECK_EQ(map.count, 2);
		frame_free(f);
	} else {
		CHECK(!"MAP");
	}
	if (RAW_CALL(m, WIRE_OP_BLK_LIST, blk_list, &f,
		 { .count_max = 100 }) == 0) {
		CHECK_EQ(blk_list_reply_parse(f->body, f->h.body_len, &list),
			 0);
		CHECK_EQ(list.count, 2);
		CHECK(list.done);
		frame_free(f);
	} else {
		CHECK(!"LIST");
	}
}

static void metads_operations_work(struct blockd_run *x)
{
	struct blk_raw r, m;
	uint8_t inos[8] = { 9 };
	struct blk_purge purge = { .inos = { inos, 8 } };
	bool hole = false;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_as(x, &m, WIRE_ROLE_METAD);
	run_fill(pattern, BLOCK, 3);
	CHECK_EQ(raw_write(&r, 9, 0, 0, pattern, BLOCK, SYNC), 0);
	CHECK_EQ(r.units_delta, 256);
	CHECK_EQ(raw_write(&r, 9, 2, 0, pattern, 5000, SYNC), 0);
	check_told(&r, &m);
	/* Cut to 10000 bytes: the rest of block 0 reads as zeros. */
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
		      { .ino = 9, .cut = 1, .from = 10000,
			.to = BLK_CUT_TO_END, .block_log2 = 20 }), 0);
	memset(pattern + 10000, 0, 20000);
	CHECK_EQ(RAW_CALL(&r, WIRE_OP_BLK_SYNC, blk_sync, NULL, { .ino = 9 }),
		 0);
	/* Who does not know the cut is refused. */
	CHECK_EQ(raw_read(&r, 9, 0, 0, got, 30000, &hole), -ESTALE);
	CHECK_EQ(raw_write(&r, 9, 0, 0, pattern, 1, 0), -ESTALE);

	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge), 0);
	CHECK_EQ(raw_read(&r, 9, 0, 0, got, 30000, &hole), 0);
	CHECK(hole);
	/* A client may not do what is metad's. */
	CHECK_EQ(RAW_CALL(&r, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge),
		 -EPERM);
	CHECK_EQ(RAW_CALL(&r, WIRE_OP_BLK_FENCE, blk_fence, NULL,
		      { .session = 1 }), -EPERM);
	raw_close(&r);
	raw_close(&m);
}

static void many_requests_fly_at_once(struct blockd_run *x)
{
	enum { COUNT = 3000 };
	struct blk_raw r;
	struct frame *f;
	unsigned answered = 0;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_fill(pattern, 8192, 1);
	for (unsigned i = 0; i < COUNT; i++)
		raw_write_begin(&r, 5, i / 100, (i % 100) * 8192, pattern, 8192,
				i % 7 == 0 ? SYNC : 0);
	while (answered < COUNT && (f = raw_recv(&r, 20000))) {
		answered++;
		CHECK_EQ(f->h.status, 0);
		frame_free(f);
	}
	CHECK_EQ(answered, COUNT);
	for (unsigned i = 0; i < COUNT; i += 301)
		run_check_holds(&r, 5, i / 100, (i % 100) * 8192, pattern,
				8192);
	raw_close(&r);
}

static void counters_are_served(struct blockd_run *x)
{
	static const char get[] = "GET /metrics HTTP/1.0\r\n\r\n";
	const char *args[] = { "--metrics-port", NULL, NULL };
	int port_fd;
	uint16_t metrics_port = child_port(&port_fd);
	char port[16], text[65536];
	struct blk_raw r, http;
	struct frame *f;
	size_t len = 0;
	ssize_t n;

	snprintf(port, sizeof(port), "%u", metrics_port);
	args[1] = port;
	run_start(x, args);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	CHECK(raw_connect(&http, metrics_port, 0));
	CHECK_EQ(write(http.fd, get, strlen(get)), (ssize_t)strlen(get));
	while ((n = read(http.fd, text + len, sizeof(text) - len - 1)) > 0)
		len += (size_t)n;
	text[len] = 0;
	CHECK(strstr(text, "200 OK"));
	CHECK(strstr(text, "hail_blockd_request_seconds_count"
		     "{op=\"write_sync\"} 1\n"));
	CHECK(strstr(text, "# EOF\n"));
	raw_close(&http);
	close(port_fd);
	raw_close(&r);
	run_as(x, &r, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, &f), 0);
	CHECK(memmem(f->body, f->h.body_len, "journal_commits", 15) != NULL);
	frame_free(f);
	CHECK_EQ(RAW_CALL(&r, WIRE_OP_BLK_STAT, blk_sync, NULL, { .ino = 1 }),
		 -ECONNRESET); /* a body where none belongs */
	raw_close(&r);
}

int main(int argc, char **argv)
{
	static const struct blockd_test tests[] = {
		BLOCKD_TEST(what_is_written_is_read),
		BLOCKD_TEST(metads_operations_work),
		BLOCKD_TEST(many_requests_fly_at_once),
		BLOCKD_TEST(counters_are_served),
	};

	return blockd_tests_run(argc, argv, tests, array_count(tests));
}
