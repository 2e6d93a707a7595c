/* Goal: the real hail-blockd comes to no harm by peers that send rubbish, too
 * much, or do not listen, and by a full disk; idle, it uses nothing.
 * Method: the program as a child, a fake metad, bad clients played by hand;
 * TAP.
 *
 * usage: blockd_peers [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <sys/socket.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "tests/lib/tap.h"

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

static uint8_t pattern[BLOCK], got[BLOCK];

static void damaged_frames_close_the_connection(struct blockd_run *x)
{
	struct blk_raw r;
	uint8_t bytes[WIRE_HEADER_SIZE] = { 0 };
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = WIRE_OP_PING,
				 .cluster_id = RUN_CLUSTER_ID, .session = 1 };
	uint64_t incarnation = 1;
	bool hole = false;

	run_start(x, NULL);
	for (unsigned bit = 0; bit < WIRE_HEADER_SIZE * 8; bit += 41) {
		run_client(x, &r, 1, incarnation++);
		wire_header_encode(&h, bytes);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK_EQ(write(r.fd, bytes, sizeof(bytes)), sizeof(bytes));
		CHECK(raw_closed(&r, 5000));
		raw_close(&r);
	}
	/* Data that does not match its sums: nothing of it is stored. */
	run_client(x, &r, 1, incarnation++);
	run_fill(pattern, 65536, 5);
	{
		uint8_t sums[64];
		struct blk_write w = { .ino = 6, .len = 65536,
				       .block_log2 = 20 };
		uint8_t body[256];
		struct wire_out o;

		crc32c_sums(0, pattern, 65536, sums);
		w.sums = (struct wire_str){ sums, 64 };
		wire_out_init(&o, body, sizeof(body));
		blk_write_encode(&o, &w);
		pattern[40000] ^= 1;
		raw_send(&r, WIRE_OP_BLK_WRITE, body, o.len, pattern, 65536);
	}
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	run_client(x, &r, 1, incarnation++);
	CHECK_EQ(raw_read(&r, 6, 0, 0, got, 65536, &hole), 0);
	CHECK(hole);
	raw_close(&r);
}

static void later_releases_are_told_apart(struct blockd_run *x)
{
	struct blk_raw r;

	run_start(x, NULL);
	CHECK_EQ(raw_later_hello(x->child.port, RUN_CLUSTER_ID, 5000),
		 -EPROTONOSUPPORT);
	CHECK_EQ(raw_later_frame(x->child.port, RUN_CLUSTER_ID, 5000),
		 -EPROTONOSUPPORT);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 6, 0, 0, pattern, 4096, SYNC), 0);
	raw_close(&r);
}

static void strangers_are_shown_the_door(struct blockd_run *x)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
		"0123456789012345678901234567890123456789012345678901234567";
	struct wire_header big = { .version = WIRE_VERSION,
				   .opcode = WIRE_OP_HELLO,
				   .cluster_id = RUN_CLUSTER_ID,
				   .body_len = FRAME_BODY_MAX };
	uint8_t bytes[4096];
	struct blk_raw r, silent[20], other;

	run_start(x, NULL);
	for (size_t i = 0; i < array_count(silent); i++)
		CHECK(raw_connect(&silent[i], x->child.port, 0));
	CHECK(raw_connect(&r, x->child.port, 0));
	CHECK_EQ(write(r.fd, http, sizeof(http)), sizeof(http));
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	for (unsigned i = 0; i < 50; i++) {
		CHECK(raw_connect(&r, x->child.port, 0));
		run_fill(bytes, sizeof(bytes), i);
		(void)!send(r.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		CHECK(raw_closed(&r, 5000));
		raw_close(&r);
	}
	/* A stranger gets no memory for a large frame. */
	CHECK(raw_connect(&r, x->child.port, 0));
	wire_header_encode(&big, bytes);
	CHECK_EQ(write(r.fd, bytes, WIRE_HEADER_SIZE), WIRE_HEADER_SIZE);
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	/* Requests before HELLO, another cluster. */
	CHECK(raw_connect(&r, x->child.port, RUN_CLUSTER_ID));
	raw_send(&r, WIRE_OP_PING, NULL, 0, NULL, 0);
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	CHECK(raw_connect(&other, x->child.port, 0x666));
	CHECK_EQ(raw_hello(&other, WIRE_ROLE_CLIENT, 1, 1, 5000), -EXDEV);
	CHECK(raw_closed(&other, 5000));
	raw_close(&other);

	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	raw_close(&r);
	for (size_t i = 0; i < array_count(silent); i++) {
		CHECK(raw_closed(&silent[i], 20000));
		raw_close(&silent[i]);
	}
}

static void a_full_disk_says_so_and_deletes(struct blockd_run *x)
{
	static const char *const args[] = { "--capacity", "48m", "--reserve",
					    "4m", NULL };
	uint8_t inos[8] = { 7 };
	struct blk_purge purge = { .inos = { inos, 8 } };
	struct blk_raw r, m;
	unsigned i;
	int rv = 0;

	run_start(x, args);
	run_client(x, &r, 1, 1);
	run_as(x, &m, WIRE_ROLE_METAD);
	run_fill(pattern, BLOCK, 4);
	for (i = 0; i < 100 && rv == 0; i++)
		rv = raw_write(&r, 7, i, 0, pattern, BLOCK, SYNC);
	CHECK_EQ(rv, -ENOSPC);
	CHECK(i > 20);
	/* Small ones fill the rest, then fail too. */
	rv = 0;
	for (unsigned j = 0; j < 20000 && rv == 0; j++)
		rv = raw_write(&r, 7, 1000 + j / 256, j % 256 * 4096, pattern,
			       4096, 0);
	CHECK_EQ(rv, -ENOSPC);
	CHECK_EQ(raw_sync(&r, 0), 0);
	/* What was acknowledged is there, also after a kill. */
	raw_close(&r);
	raw_close(&m);
	child_kill9(&x->child);
	run_start(x, args);
	run_client(x, &r, 1, 2);
	run_as(x, &m, WIRE_ROLE_METAD);
	for (unsigned j = 0; j + 1 < i; j++)
		run_check_holds(&r, 7, j, 0, pattern, BLOCK);
	CHECK_EQ(raw_write(&r, 8, 0, 0, pattern, BLOCK, SYNC), -ENOSPC);
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge), 0);
	CHECK_EQ(raw_write(&r, 8, 0, 0, pattern, BLOCK, SYNC), 0);
	run_check_holds(&r, 8, 0, 0, pattern, BLOCK);
	raw_close(&r);
	raw_close(&m);
}

static void a_flood_does_not_eat_memory(struct blockd_run *x)
{
	static const char *const args[] = { "--cache", "16m", "--buffers",
					    "16m", NULL };
	struct blk_raw r;
	uint64_t most = 0, anon;
	unsigned sent = 0, answered = 0;
	struct frame *f;

	run_start(x, args);
	run_client(x, &r, 1, 1);
	run_fill(pattern, BLOCK, 6);
	/* 200 MiB of unsynced small writes, 32 MiB ahead of the answers. */
	while (answered < 6400) {
		while (sent < 6400 && sent - answered < 1000) {
			raw_write_begin(&r, 3 + sent % 5, sent / 32,
					sent % 32 * 32768, pattern, 32764, 0);
			sent++;
		}
		f = raw_recv(&r, 20000);
		CHECK(f && f->h.status == 0);
		if (!f)
			break;
		frame_free(f);
		if (++answered % 256 == 0) {
			anon = run_anon_bytes(x);
			most = most > anon ? most : anon;
		}
	}
	printf("# flood: at most %llu MiB anonymous\n",
	       (unsigned long long)most >> 20);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed */
	CHECK(most < (64 + 16 + 16) << 20);
#endif
	raw_close(&r);
}

static void a_deaf_reader_does_not_eat_memory(struct blockd_run *x)
{
	static const char *const args[] = { "--buffers", "16m", NULL };
	struct blk_read rd = { .ino = 5, .len = BLOCK, .block_log2 = 20 };
	struct blk_raw r, other;
	uint8_t body[128];
	struct wire_out o;

	run_start(x, args);
	run_client(x, &r, 1, 1);
	run_fill(pattern, BLOCK, 6);
	CHECK_EQ(raw_write(&r, 5, 0, 0, pattern, BLOCK, SYNC), 0);
	wire_out_init(&o, body, sizeof(body));
	blk_read_encode(&o, &rd);
	for (unsigned i = 0; i < 500; i++)
		raw_send(&r, WIRE_OP_BLK_READ, body, o.len, NULL, 0);
	sleep_ms(500);
	CHECK(run_anon_bytes(x) < 80u << 20);
	/* Others are served meanwhile. */
	run_as(x, &other, WIRE_ROLE_ADMIN);
	run_check_holds(&other, 5, 0, 0, pattern, BLOCK);
	/* And it gets all, once it listens. */
	for (unsigned i = 0; i < 500; i++) {
		struct frame *f = raw_recv(&r, 10000);

		CHECK(f && f->h.data_len == BLOCK);
		frame_free(f);
		if (!f)
			break;
	}
	raw_close(&other);
	raw_close(&r);
}

static void long_answers_to_the_deaf_do_not_eat_memory(struct blockd_run *x)
{
	static const char *const args[] = { "--cache", "16m", "--buffers",
					    "16m", NULL };
	struct blk_list l = { .count_max = 8192 };
	struct blk_list_reply m;
	struct blk_raw r, other;
	uint8_t body[128];
	struct wire_out o;
	uint64_t before, most = 0, anon;
	struct frame *f;

	run_start(x, args);
	run_client(x, &r, 1, 1);
	run_fill(pattern, BLOCK, 6);
	for (unsigned i = 0; i < 4096; i++)
		CHECK_EQ(raw_write(&r, 5 + i, 0, 0, pattern, 100, 0), 0);
	CHECK_EQ(raw_sync(&r, 0), 0);
	run_as(x, &other, WIRE_ROLE_ADMIN);
	wire_out_init(&o, body, sizeof(body));
	blk_list_encode(&o, &l);
	before = run_anon_bytes(x);
	for (unsigned i = 0; i < 400; i++)
		raw_send(&other, WIRE_OP_BLK_LIST, body, o.len, NULL, 0);
	/* All of them are read, or no more is. */
	for (unsigned i = 0; i < 40; i++) {
		anon = run_anon_bytes(x);
		most = most > anon ? most : anon;
		sleep_ms(50);
	}
	printf("# %llu MiB anonymous, %llu before\n",
	       (unsigned long long)most >> 20,
	       (unsigned long long)before >> 20);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed */
	CHECK(most < before + (24u << 20));
#endif
	CHECK_EQ(raw_write(&r, 5, 1, 0, pattern, 100, SYNC), 0);
	for (unsigned i = 0; i < 400; i++) {
		f = raw_recv(&other, 10000);
		CHECK(f && blk_list_reply_parse(f->body, f->h.body_len,
						&m) == 0 && m.count >= 4096);
		frame_free(f);
		if (!f)
			break;
	}
	raw_close(&other);
	raw_close(&r);
}

static void an_idle_daemon_uses_no_cpu(struct blockd_run *x)
{
	struct blk_raw r;
	uint64_t before, used;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	sleep_ms(1500);
	before = run_cpu_us(x);
	sleep_ms(5000);
	used = run_cpu_us(x) - before;
	printf("# idle: %llu us of CPU in 5 s\n", (unsigned long long)used);
	CHECK(used <= 10000); /* 0.2 % of a core, one tick of the clock */
	raw_close(&r);
}

static void peers_that_come_and_go_leave_nothing(struct blockd_run *x)
{
	static const uint64_t sessions[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const char *const args[] = { "--buffers", "16m", NULL };
	struct blk_read rd = { .ino = 5, .len = BLOCK, .block_log2 = 20 };
	struct blk_raw r[8];
	bool open[8] = { false };
	uint64_t incarnation = 1;
	uint8_t body[128];
	struct wire_out o;

	run_start(x, args);
	fake_metad_set_sessions(x->metad, sessions, 8);
	run_fill(pattern, BLOCK, 7);
	wire_out_init(&o, body, sizeof(body));
	blk_read_encode(&o, &rd);
	srand(1);
	for (unsigned round = 0; round < 600; round++) {
		unsigned i = (unsigned)rand() % 8;
		int what = rand() % 8;

		if (!open[i]) {
			run_client(x, &r[i], i + 1, incarnation++);
			open[i] = true;
		}
		/* Sent, never read: the daemon finds out by itself. */
		for (int n = rand() % 6; n > 0; n--)
			if (what < 3)
				raw_send(&r[i], WIRE_OP_BLK_READ, body, o.len,
					 NULL, 0);
			else if (what < 5)
				raw_write_begin(&r[i], 5, 0, 0, pattern, 65536,
						n == 1 ? SYNC : 0);
			else
				raw_write_begin(&r[i], 6, i, 4096, pattern,
						100, n == 1 ? SYNC : 0);
		if (what % 2 == 0 || what == 1) {
			raw_close(&r[i]);
			open[i] = false;
		} else if (what == 7) {
			/* In the middle of a frame. */
			(void)!send(r[i].fd, pattern, 40, MSG_NOSIGNAL);
			raw_close(&r[i]);
			open[i] = false;
		}
	}
	for (unsigned i = 0; i < 8; i++)
		if (open[i])
			raw_close(&r[i]);
	for (unsigned i = 0; i < 100 && (run_counter(x, "connections") > 1 ||
					 run_counter(x, "buffer_bytes") > 4096);
	     i++)
		sleep_ms(50);
	/* Who asks, and the question. */
	CHECK_EQ(run_counter(x, "connections"), 1);
	CHECK_EQ(run_counter(x, "buffer_bytes") / 4096, 0);
	CHECK_EQ(child_term(&x->child), 0);
}

int main(int argc, char **argv)
{
	static const struct blockd_test tests[] = {
		BLOCKD_TEST(damaged_frames_close_the_connection),
		BLOCKD_TEST(strangers_are_shown_the_door),
		BLOCKD_TEST(later_releases_are_told_apart),
		BLOCKD_TEST(a_full_disk_says_so_and_deletes),
		BLOCKD_TEST(a_flood_does_not_eat_memory),
		BLOCKD_TEST(a_deaf_reader_does_not_eat_memory),
		BLOCKD_TEST(long_answers_to_the_deaf_do_not_eat_memory),
		BLOCKD_TEST(an_idle_daemon_uses_no_cpu),
		BLOCKD_TEST(peers_that_come_and_go_leave_nothing),
	};

	return blockd_tests_run(argc, argv, tests, array_count(tests));
}
