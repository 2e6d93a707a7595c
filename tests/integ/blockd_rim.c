/* Goal: the real hail-blockd keeps the rules of blockd/serve.h against peers
 * that are old, dead, wrong, silent or greedy, and over kills.
 * Method: the program as a child, a fake metad, clients played by hand. One
 * function a fact, each with a store of its own; TAP.
 *
 * usage: blockd_rim [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <semaphore.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/rpc.h"
#include "common/status.h"
#include "common/wire_admin.h"

static int failures_here;

#define CHECK(cond)                                                           \
	do {                                                                  \
		if (!(cond)) {                                                \
			printf("# %s:%d: not so: %s\n", __FILE__, __LINE__,   \
			       #cond);                                        \
			failures_here++;                                      \
		}                                                             \
	} while (0)
#define CHECK_EQ(a, b)                                                        \
	do {                                                                  \
		long long a_ = (long long)(a), b_ = (long long)(b);           \
		if (a_ != b_) {                                               \
			printf("# %s:%d: %s is %lld, not %lld\n", __FILE__,   \
			       __LINE__, #a, a_, b_);                         \
			failures_here++;                                      \
		}                                                             \
	} while (0)

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

static uint8_t pattern[BLOCK], got[BLOCK];

static void fill(uint8_t *p, size_t len, unsigned seed)
{
	uint64_t v = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < len; i++) {
		v ^= v << 13;
		v ^= v >> 7;
		v ^= v << 17;
		p[i] = (uint8_t)v;
	}
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#define CALL(r, op, type, answer, ...)                                        \
	({                                                                    \
		struct type m_ = __VA_ARGS__;                                 \
		uint8_t b_[256];                                              \
		struct wire_out o_;                                           \
		wire_out_init(&o_, b_, sizeof(b_));                           \
		type##_encode(&o_, &m_);                                      \
		raw_call(r, op, b_, o_.len, NULL, 0, answer);                 \
	})

static void check_holds(struct blk_raw *r, uint64_t ino, uint64_t index,
			uint32_t off, const uint8_t *want, uint32_t len)
{
	bool hole = false;

	memset(got, 0x55, len);
	CHECK_EQ(raw_read(r, ino, index, off, got, len, &hole), 0);
	CHECK(!hole);
	CHECK(memcmp(got, want, len) == 0);
}

/* ---- the straight path ---- */

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

		fill(pattern, len, i + 1);
		CHECK_EQ(raw_write(&r, 9 + i, i, off, pattern, len, 0), 0);
		check_holds(&r, 9 + i, i, off, pattern, len);
		CHECK_EQ(raw_sync(&r, 9 + i), 0);
		check_holds(&r, 9 + i, i, off, pattern, len);
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

	if (CALL(m, WIRE_OP_BLK_END, blk_end, &f,
		 { .ino = 9, .block_log2 = 20 }) == 0) {
		CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &end), 0);
		CHECK_EQ(end.end, 2 * BLOCK + 5000);
		CHECK_EQ(end.units, 258);
		frame_free(f);
	} else {
		CHECK(!"END");
	}
	if (CALL(r, WIRE_OP_BLK_MAP, blk_map, &f,
		 { .ino = 9, .last = UINT64_MAX, .count_max = 100,
		   .block_log2 = 20 }) == 0) {
		CHECK_EQ(blk_map_reply_parse(f->body, f->h.body_len, &map), 0);
		CHECK_EQ(map.count, 2);
		frame_free(f);
	} else {
		CHECK(!"MAP");
	}
	if (CALL(m, WIRE_OP_BLK_LIST, blk_list, &f,
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
	fill(pattern, BLOCK, 3);
	CHECK_EQ(raw_write(&r, 9, 0, 0, pattern, BLOCK, SYNC), 0);
	CHECK_EQ(r.units_delta, 256);
	CHECK_EQ(raw_write(&r, 9, 2, 0, pattern, 5000, SYNC), 0);
	check_told(&r, &m);
	/* Cut to 10000 bytes: the rest of block 0 reads as zeros. */
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
		      { .ino = 9, .cut = 1, .from = 10000,
			.to = BLK_CUT_TO_END, .block_log2 = 20 }), 0);
	memset(pattern + 10000, 0, 20000);
	CHECK_EQ(CALL(&r, WIRE_OP_BLK_SYNC, blk_sync, NULL, { .ino = 9 }), 0);
	/* Who does not know the cut is refused. */
	CHECK_EQ(raw_read(&r, 9, 0, 0, got, 30000, &hole), -ESTALE);
	CHECK_EQ(raw_write(&r, 9, 0, 0, pattern, 1, 0), -ESTALE);

	CHECK_EQ(CALL(&m, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge), 0);
	CHECK_EQ(raw_read(&r, 9, 0, 0, got, 30000, &hole), 0);
	CHECK(hole);
	/* A client may not do what is metad's. */
	CHECK_EQ(CALL(&r, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge), -EPERM);
	CHECK_EQ(CALL(&r, WIRE_OP_BLK_FENCE, blk_fence, NULL,
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
	fill(pattern, 8192, 1);
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
		check_holds(&r, 5, i / 100, (i % 100) * 8192, pattern, 8192);
	raw_close(&r);
}

/* ---- life and death ---- */

static void what_was_synced_survives_kill9(struct blockd_run *x)
{
	struct meta_register reg1, reg2;
	struct blk_raw r;
	uint64_t boot_id;

	run_start(x, NULL);
	fake_metad_registrations(x->metad, &reg1);
	run_client(x, &r, 1, 1);
	boot_id = r.boot_id;
	fill(pattern, BLOCK, 11);
	CHECK_EQ(raw_write(&r, 20, 0, 0, pattern, BLOCK, 0), 0);
	CHECK_EQ(raw_write(&r, 21, 0, 100, pattern, 777, 0), 0);
	CHECK_EQ(raw_sync(&r, 0), 0);
	CHECK_EQ(r.boot_id, boot_id);
	CHECK_EQ(raw_write(&r, 22, 0, 0, pattern, 128, SYNC), 0);
	run_kill9(x);
	raw_close(&r);

	run_start(x, NULL);
	fake_metad_registrations(x->metad, &reg2);
	CHECK(reg2.boot_id != reg1.boot_id);
	CHECK(reg2.store_id_hi == reg1.store_id_hi);
	CHECK(reg2.store_id_lo == reg1.store_id_lo);
	CHECK(reg2.commit > reg1.commit);
	CHECK(reg2.session_max == 1 && reg2.ino_max == 22);
	run_client(x, &r, 1, 2);
	CHECK(r.boot_id != boot_id);
	check_holds(&r, 20, 0, 0, pattern, BLOCK);
	check_holds(&r, 21, 0, 100, pattern, 777);
	check_holds(&r, 22, 0, 0, pattern, 128);
	raw_close(&r);
}

static void an_orderly_stop_keeps_everything(struct blockd_run *x)
{
	static const char *const check[] = { "--check", "--data-sums", NULL };
	struct blk_raw r, a;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	fill(pattern, 70000, 12);
	CHECK_EQ(raw_write(&r, 20, 0, 0, pattern, 70000, 0), 0);
	CHECK_EQ(run_term(x), 0);
	raw_close(&r);
	CHECK_EQ(run_to_end(x, check), 0);

	run_start(x, NULL);
	run_client(x, &r, 1, 2);
	check_holds(&r, 20, 0, 0, pattern, 70000);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL),
		 -EPERM);
	check_holds(&r, 20, 0, 0, pattern, 70000);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&a, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL), 0);
	CHECK_EQ(run_wait(x), 0);
	raw_close(&a);
	raw_close(&r);
}

static void a_scrub_reads_all_and_does_not_delay_a_stop(struct blockd_run *x)
{
	static const char *const slow[] = { "--scrub-rate", "1m", NULL };
	struct blk_raw r, a, b;
	struct blk_scrub_reply m;
	struct frame *f;
	uint64_t start;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	fill(pattern, BLOCK, 8);
	for (unsigned i = 0; i < 16; i++)
		CHECK_EQ(raw_write(&r, 5, i, 0, pattern, BLOCK, SYNC), 0);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&a, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0, &f), 0);
	CHECK_EQ(blk_scrub_reply_parse(f->body, f->h.body_len, &m), 0);
	CHECK_EQ(m.units_read, 16 * 256);
	CHECK_EQ(m.units_bad, 0);
	frame_free(f);
	raw_close(&a);
	raw_close(&r);
	CHECK_EQ(run_term(x), 0);

	run_start(x, slow);
	run_as(x, &a, WIRE_ROLE_ADMIN);
	run_as(x, &b, WIRE_ROLE_ADMIN);
	raw_send(&a, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0);
	CHECK(!raw_recv(&a, 300) && errno == ETIMEDOUT);
	CHECK_EQ(raw_call(&b, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0, NULL),
		 -EBUSY);
	raw_close(&a);
	start = now_ms();
	CHECK_EQ(run_term(x), 0);
	CHECK(now_ms() - start < 5000);
	raw_close(&b);
}

static void two_daemons_do_not_share_a_store(struct blockd_run *x)
{
	struct blockd_run second;
	pid_t pid;

	run_start(x, NULL);
	second = *x;
	pid = x->pid;
	CHECK_EQ(run_to_end(&second, NULL), 3);
	CHECK(run_log_has(x, "in use"));
	x->pid = pid;
}

/* ---- sessions ---- */

static void an_older_incarnation_is_refused(struct blockd_run *x)
{
	struct blk_raw a, b;

	run_start(x, NULL);
	run_client(x, &a, 1, 10);
	CHECK(raw_connect(&b, x->port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&b, WIRE_ROLE_CLIENT, 1, 9, 5000), -ESTALE);
	CHECK(raw_closed(&b, 5000));
	raw_close(&b);
	/* The good one goes on. */
	CHECK_EQ(raw_write(&a, 5, 0, 0, "x", 1, SYNC), 0);
	raw_close(&a);
	/* Also when it is gone: what it knew is remembered. */
	CHECK(raw_connect(&b, x->port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&b, WIRE_ROLE_CLIENT, 1, 9, 5000), -ESTALE);
	raw_close(&b);
}

static void delayed_writes_of_an_old_connection_are_discarded(
	struct blockd_run *x)
{
	struct blk_write w = { .ino = 5, .len = 4096, .block_log2 = 20,
			       .flags = SYNC };
	struct wire_header h = { .version = WIRE_VERSION,
				 .opcode = WIRE_OP_BLK_WRITE,
				 .request_id = 77, .cluster_id = RUN_CLUSTER_ID,
				 .session = 1, .data_len = 4096 };
	uint8_t frame[8192], sums[4];
	struct blk_raw a, b;
	struct wire_out o;
	size_t len;

	run_start(x, NULL);
	run_client(x, &a, 1, 1);
	/* The old connection's write is on its way: half of it arrived. */
	fill(pattern, 4096, 1);
	crc32c_sums(0, pattern, 4096, sums);
	w.sums = (struct wire_str){ sums, 4 };
	wire_out_init(&o, frame + WIRE_HEADER_SIZE, 1024);
	blk_write_encode(&o, &w);
	h.epoch = a.epoch;
	h.body_len = (uint32_t)o.len;
	h.body_crc = crc32c(0, o.p, o.len);
	wire_header_encode(&h, frame);
	len = WIRE_HEADER_SIZE + o.len;
	memcpy(frame + len, pattern, 4096);
	len += 4096;
	CHECK_EQ(write(a.fd, frame, len / 2), (ssize_t)(len / 2));

	run_client(x, &b, 1, 2);
	fill(pattern, 4096, 2);
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, SYNC), 0);
	/* Now the rest comes, to a connection that is no more. */
	(void)!send(a.fd, frame + len / 2, len - len / 2, MSG_NOSIGNAL);
	CHECK(raw_closed(&a, 5000));
	sleep_ms(50);
	check_holds(&b, 5, 0, 0, pattern, 4096);
	raw_close(&a);
	raw_close(&b);
}

static void a_replaced_connections_work_ends_before_hello(struct blockd_run *x)
{
	struct blk_raw a, b;

	run_start(x, NULL);
	for (unsigned round = 1; round <= 40; round++) {
		run_client(x, &a, 1, 2 * round);
		/* Begun, not waited for. */
		for (unsigned i = 0; i < 20; i++) {
			fill(pattern, 4096, i);
			raw_write_begin(&a, 5, 0, 0, pattern, 4096,
					i % 3 ? 0 : SYNC);
		}
		run_client(x, &b, 1, 2 * round + 1);
		fill(pattern, 4096, 1000 + round);
		CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, 0), 0);
		check_holds(&b, 5, 0, 0, pattern, 4096);
		CHECK_EQ(raw_sync(&b, 5), 0);
		check_holds(&b, 5, 0, 0, pattern, 4096);
		raw_close(&a);
		raw_close(&b);
	}
}

static void a_fenced_session_is_refused(struct blockd_run *x)
{
	static const uint64_t both[] = { 1, 2 };
	struct blk_raw a, b, c, m;

	run_start(x, NULL);
	fake_metad_set_sessions(x->metad, both, 2);
	run_client(x, &a, 1, 1);
	run_client(x, &b, 2, 1);
	run_as(x, &m, WIRE_ROLE_METAD);
	for (unsigned i = 0; i < 50; i++)
		raw_write_begin(&a, 5, 0, 0, pattern, 4096, i % 5 ? 0 : SYNC);
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_FENCE, blk_fence, NULL,
		      { .session = 1, .epoch = 100 }), 0);
	fill(pattern, 4096, 99);
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, SYNC), 0);
	CHECK(raw_closed(&a, 5000));
	CHECK(raw_connect(&c, x->port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&c, WIRE_ROLE_CLIENT, 1, 2, 5000), -ESTALE);
	check_holds(&b, 5, 0, 0, pattern, 4096);
	/* Again is success. */
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_FENCE, blk_fence, NULL,
		      { .session = 1, .epoch = 100 }), 0);
	raw_close(&a);
	raw_close(&b);
	raw_close(&c);
	raw_close(&m);
}

static void a_new_session_makes_the_map_be_fetched(struct blockd_run *x)
{
	static const uint64_t later[] = { 1, 2 };
	struct blk_raw r;
	uint64_t start;

	run_start(x, NULL);
	sleep_ms(100);
	fake_metad_set_sessions(x->metad, later, 2);
	start = now_ms();
	run_client(x, &r, 2, 1);
	CHECK(now_ms() - start < 900); /* no waiting for a heartbeat */
	raw_close(&r);
	/* One that does not exist. */
	CHECK(raw_connect(&r, x->port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&r, WIRE_ROLE_CLIENT, 3, 1, 5000), -ESTALE);
	raw_close(&r);
}

static void a_newer_epoch_is_fetched_before_the_answer(struct blockd_run *x)
{
	static const uint64_t same[] = { 1 };
	unsigned before;
	struct blk_raw r;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	fake_metad_set_sessions(x->metad, same, 1);
	before = fake_metad_map_fetches(x->metad);
	r.epoch = fake_metad_epoch(x->metad);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, 0), 0);
	CHECK(fake_metad_map_fetches(x->metad) > before);
	raw_close(&r);
}

static void a_dead_sessions_connection_is_closed(struct blockd_run *x)
{
	static const uint64_t only2[] = { 2 };
	struct blk_raw r;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	fake_metad_set_sessions(x->metad, only2, 1);
	CHECK(raw_closed(&r, 5000)); /* by the next heartbeat */
	raw_close(&r);
}

/* What metad hears after a session died stays so, also when the fence did not
 * get through and the map is old. */
static void what_a_dead_session_began_ends_before_metad_is_told(
	struct blockd_run *x)
{
	static const uint64_t only2[] = { 2 };
	uint64_t until = now_ms() + 15000;
	struct blk_end_reply first, later;
	struct blk_raw r, m;
	struct frame *f;
	int rv;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_as(x, &m, WIRE_ROLE_METAD);
	fill(pattern, BLOCK, 8);
	for (unsigned i = 0; i < 30; i++)
		raw_write_begin(&r, 5, i, 0, pattern, BLOCK, SYNC);
	fake_metad_set_sessions(x->metad, only2, 1);
	m.epoch = fake_metad_epoch(x->metad);
	do
		rv = CALL(&m, WIRE_OP_BLK_END, blk_end, &f,
			  { .ino = 5, .block_log2 = 20 });
	while (rv == -EAGAIN && now_ms() < until);
	CHECK_EQ(rv, 0);
	if (rv < 0)
		return;
	CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &first), 0);
	frame_free(f);
	sleep_ms(1000);
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_END, blk_end, &f,
		      { .ino = 5, .block_log2 = 20 }), 0);
	CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &later), 0);
	frame_free(f);
	CHECK_EQ(later.end, first.end);
	CHECK_EQ(later.units, first.units);
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	raw_close(&m);
}

/* END of inode 5; all zeros when it is refused. */
static struct blk_end_reply end_of(struct blk_raw *r)
{
	struct blk_end_reply e = { .boot_id = 0 };
	struct frame *f;
	int rv = CALL(r, WIRE_OP_BLK_END, blk_end, &f,
		      { .ino = 5, .block_log2 = 20 });

	CHECK_EQ(rv, 0);
	if (rv < 0)
		return e;
	CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &e), 0);
	frame_free(f);
	return e;
}

/* metad makes it the file's size: it must not be gone after a crash. A kill
 * shows it as well as a power cut, since what was not synced is not in the
 * journal. */
static void what_metad_is_told_of_the_end_is_durable(struct blockd_run *x)
{
	struct blk_end_reply told, later;
	struct blk_raw r, m;

	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	run_as(x, &m, WIRE_ROLE_METAD);
	fill(pattern, BLOCK, 9);
	CHECK_EQ(raw_write(&r, 5, 0, 0, pattern, BLOCK, 0), 0);
	CHECK_EQ(raw_write(&r, 5, 1, 0, pattern, 5000, 0), 0);
	/* Counted for a client, but not made durable: nobody asked for it. */
	CHECK_EQ(end_of(&r).end, BLOCK + 5000);
	raw_close(&m);
	raw_close(&r);
	run_kill9(x);
	run_start(x, NULL);
	run_client(x, &r, 1, 2);
	CHECK_EQ(end_of(&r).end, 0);
	CHECK_EQ(raw_write(&r, 5, 0, 0, pattern, BLOCK, 0), 0);
	CHECK_EQ(raw_write(&r, 5, 1, 0, pattern, 5000, 0), 0);
	run_as(x, &m, WIRE_ROLE_METAD);
	told = end_of(&m);
	CHECK_EQ(told.end, BLOCK + 5000);
	CHECK_EQ(told.units, 258);
	raw_close(&m);
	raw_close(&r);
	run_kill9(x);
	run_start(x, NULL);
	run_as(x, &m, WIRE_ROLE_METAD);
	later = end_of(&m);
	CHECK_EQ(later.end, told.end);
	CHECK_EQ(later.units, told.units);
	CHECK_EQ(later.mtime_ns, told.mtime_ns);
	run_client(x, &r, 1, 3);
	check_holds(&r, 5, 0, 0, pattern, BLOCK);
	check_holds(&r, 5, 1, 0, pattern, 5000);
	raw_close(&r);
	raw_close(&m);
}

/* It may be another store than the one metad means. */
static void before_its_store_is_accepted_nothing_is_confirmed(
	struct blockd_run *x)
{
	uint64_t until = now_ms() + 15000;
	struct blk_raw m;
	int rv;

	fake_metad_set_lease(x->metad, 0);
	run_start(x, NULL);
	run_as(x, &m, WIRE_ROLE_METAD);
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
		      { .ino = 9, .cut = 1, .to = BLK_CUT_TO_END,
			.block_log2 = 20 }), -EAGAIN);
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_END, blk_end, NULL,
		      { .ino = 9, .block_log2 = 20 }), -EAGAIN);
	fake_metad_set_lease(x->metad, 6000);
	do {
		sleep_ms(50);
		rv = CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
			  { .ino = 9, .cut = 1, .to = BLK_CUT_TO_END,
			    .block_log2 = 20 });
	} while (rv == -EAGAIN && now_ms() < until);
	CHECK_EQ(rv, 0);
	raw_close(&m);
}

static void without_the_lease_nothing_is_served(struct blockd_run *x)
{
	struct blk_raw r, a;
	struct frame *f;
	uint64_t id;

	fake_metad_set_lease(x->metad, 1500);
	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	fake_metad_set_lease(x->metad, 0); /* metad falls silent */
	sleep_ms(2500);
	id = raw_write_begin(&r, 5, 0, 0, "y", 1, SYNC);
	CHECK(!raw_recv(&r, 700) && errno == ETIMEDOUT);
	/* Tools are answered and told. */
	run_as(x, &a, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&a, WIRE_OP_ADMIN_STATUS, NULL, 0, NULL, 0, &f), 0);
	CHECK(memmem(f->body, f->h.body_len, "no-lease", 8) != NULL);
	frame_free(f);
	raw_close(&a);
	fake_metad_set_lease(x->metad, 1500);
	f = raw_recv(&r, 5000);
	CHECK(f && f->h.request_id == id && f->h.status == 0);
	frame_free(f);
	raw_close(&r);
}

/* ---- bad input ---- */

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
	fill(pattern, 65536, 5);
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
		CHECK(raw_connect(&silent[i], x->port, 0));
	CHECK(raw_connect(&r, x->port, 0));
	CHECK_EQ(write(r.fd, http, sizeof(http)), sizeof(http));
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	for (unsigned i = 0; i < 50; i++) {
		CHECK(raw_connect(&r, x->port, 0));
		fill(bytes, sizeof(bytes), i);
		(void)!send(r.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		CHECK(raw_closed(&r, 5000));
		raw_close(&r);
	}
	/* A stranger gets no memory for a large frame. */
	CHECK(raw_connect(&r, x->port, 0));
	wire_header_encode(&big, bytes);
	CHECK_EQ(write(r.fd, bytes, WIRE_HEADER_SIZE), WIRE_HEADER_SIZE);
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	/* Requests before HELLO, another cluster. */
	CHECK(raw_connect(&r, x->port, RUN_CLUSTER_ID));
	raw_send(&r, WIRE_OP_PING, NULL, 0, NULL, 0);
	CHECK(raw_closed(&r, 5000));
	raw_close(&r);
	CHECK(raw_connect(&other, x->port, 0x666));
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

static void a_missing_io_uring_is_said(struct blockd_run *x)
{
	x->no_io_uring = true;
	CHECK_EQ(run_to_end(x, NULL), 3);
	CHECK(run_log_has(x, "kernel.io_uring_disabled"));
	x->no_io_uring = false;
	run_start(x, NULL); /* nothing was harmed */
}

static void another_clusters_store_is_refused(struct blockd_run *x)
{
	char path[128];
	FILE *f;

	run_start(x, NULL);
	CHECK_EQ(run_term(x), 0);
	snprintf(path, sizeof(path), "%s/cluster.conf", x->dir);
	f = fopen(path, "w");
	if (!f)
		abort();
	fprintf(f, "cluster other\nid 0x9999\nreplicas 1\n"
		"metad 1 127.0.0.1:1\n"
		"blockd 1 127.0.0.1:%u data=%s/data\n", x->port, x->dir);
	fclose(f);
	CHECK_EQ(run_to_end(x, NULL), 3);
	CHECK(run_log_has(x, "cluster"));
}

/* ---- limits ---- */

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
	fill(pattern, BLOCK, 4);
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
	run_kill9(x);
	run_start(x, args);
	run_client(x, &r, 1, 2);
	run_as(x, &m, WIRE_ROLE_METAD);
	for (unsigned j = 0; j + 1 < i; j++)
		check_holds(&r, 7, j, 0, pattern, BLOCK);
	CHECK_EQ(raw_write(&r, 8, 0, 0, pattern, BLOCK, SYNC), -ENOSPC);
	CHECK_EQ(CALL(&m, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge), 0);
	CHECK_EQ(raw_write(&r, 8, 0, 0, pattern, BLOCK, SYNC), 0);
	check_holds(&r, 8, 0, 0, pattern, BLOCK);
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
	fill(pattern, BLOCK, 6);
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
	fill(pattern, BLOCK, 6);
	CHECK_EQ(raw_write(&r, 5, 0, 0, pattern, BLOCK, SYNC), 0);
	wire_out_init(&o, body, sizeof(body));
	blk_read_encode(&o, &rd);
	for (unsigned i = 0; i < 500; i++)
		raw_send(&r, WIRE_OP_BLK_READ, body, o.len, NULL, 0);
	sleep_ms(500);
	CHECK(run_anon_bytes(x) < 80u << 20);
	/* Others are served meanwhile. */
	run_as(x, &other, WIRE_ROLE_ADMIN);
	check_holds(&other, 5, 0, 0, pattern, BLOCK);
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

static void counters_are_served(struct blockd_run *x)
{
	static const char get[] = "GET /metrics HTTP/1.0\r\n\r\n";
	const char *args[] = { "--metrics-port", NULL, NULL };
	char port[16], text[65536];
	struct blk_raw r, http;
	struct frame *f;
	size_t len = 0;
	ssize_t n;

	snprintf(port, sizeof(port), "%u", x->port + 1u);
	args[1] = port;
	run_start(x, args);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	CHECK(raw_connect(&http, (uint16_t)(x->port + 1), 0));
	CHECK_EQ(write(http.fd, get, strlen(get)), (ssize_t)strlen(get));
	while ((n = read(http.fd, text + len, sizeof(text) - len - 1)) > 0)
		len += (size_t)n;
	text[len] = 0;
	CHECK(strstr(text, "200 OK"));
	CHECK(strstr(text, "hail_blockd_request_seconds_count"
		     "{op=\"write_sync\"} 1\n"));
	CHECK(strstr(text, "# EOF\n"));
	raw_close(&http);
	raw_close(&r);
	run_as(x, &r, WIRE_ROLE_ADMIN);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, &f), 0);
	CHECK(memmem(f->body, f->h.body_len, "journal_commits", 15) != NULL);
	frame_free(f);
	CHECK_EQ(CALL(&r, WIRE_OP_BLK_STAT, blk_sync, NULL, { .ino = 1 }),
		 -ECONNRESET); /* a body where none belongs */
	raw_close(&r);
}

/* Value of a counter in the answer to ADMIN_STATS; -1: not there. */
static long long counter(const struct blockd_run *x, const char *name)
{
	long long v = -1;
	struct blk_raw r;
	struct frame *f;
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":", name);
	run_as(x, &r, WIRE_ROLE_ADMIN);
	if (raw_call(&r, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, &f) == 0) {
		at = memmem(f->body, f->h.body_len, key, strlen(key));
		if (at)
			v = strtoll(at + strlen(key), NULL, 10);
		frame_free(f);
	}
	raw_close(&r);
	return v;
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
	fill(pattern, BLOCK, 7);
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
	for (unsigned i = 0; i < 100 && (counter(x, "connections") > 1 ||
					 counter(x, "buffer_bytes") > 4096);
	     i++)
		sleep_ms(50);
	/* Who asks, and the question. */
	CHECK_EQ(counter(x, "connections"), 1);
	CHECK_EQ(counter(x, "buffer_bytes") / 4096, 0);
	CHECK_EQ(run_term(x), 0);
}

/* ---- the client of common/rpc ---- */

struct waiting {
	struct rpc_call call;
	sem_t done;
	int status;
	struct iovec iov;
	uint8_t body[256], sums[128];
};

static void on_answer(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct waiting *w = container_of(call, struct waiting, call);

	(void)f;
	w->status = status;
	sem_post(&w->done);
}

static void rpc_write(struct rpc_peer *p, struct waiting *w, uint64_t index,
		      uint32_t len)
{
	struct blk_write m = { .ino = 5, .index = index, .len = len,
			       .block_log2 = 20, .flags = SYNC,
			       .sums = { w->sums,
					 4 * crc32c_piece_count(0, len) } };
	struct wire_out o;

	crc32c_sums(0, pattern, len, w->sums);
	wire_out_init(&o, w->body, sizeof(w->body));
	blk_write_encode(&o, &m);
	w->iov = (struct iovec){ pattern, len };
	sem_init(&w->done, 0, 0);
	w->call = (struct rpc_call){ .opcode = WIRE_OP_BLK_WRITE,
		.flags = RPC_F_RETRY, .timeout_ms = 20000, .body = w->body,
		.body_len = (uint32_t)o.len, .iov = &w->iov, .iov_count = 1,
		.data_len = len, .cb = on_answer };
	rpc_send(p, &w->call);
}

static void the_rpc_client_goes_on_after_a_kill(struct blockd_run *x)
{
	struct rpc_identity id = { .role = WIRE_ROLE_CLIENT, .session = 1,
				   .cluster_id = RUN_CLUSTER_ID,
				   .name = "test" };
	static const struct rpc_peer_ops ops;
	static struct waiting w[64];
	struct rpc_net *net;
	struct rpc_peer *peer;
	struct blk_raw r;

	run_start(x, NULL);
	fill(pattern, BLOCK, 9);
	CHECK_EQ(rpc_net_new(&id, &net), 0);
	CHECK_EQ(rpc_peer_new(net, "127.0.0.1", x->port, &ops, NULL, &peer), 0);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < array_count(w); i++)
			rpc_write(peer, &w[i], i, 1 + i * 1000);
		if (round > 0) {
			run_kill9(x);
			run_start(x, NULL);
		}
		for (unsigned i = 0; i < array_count(w); i++) {
			while (sem_wait(&w[i].done) < 0)
				;
			CHECK_EQ(w[i].status, 0);
			sem_destroy(&w[i].done);
		}
	}
	rpc_peer_close(peer);
	rpc_net_free(net);
	run_kill9(x);
	run_start(x, NULL);
	run_client(x, &r, 1, UINT64_MAX);
	for (unsigned i = 0; i < array_count(w); i++)
		check_holds(&r, 5, i, 0, pattern, 1 + i * 1000);
	raw_close(&r);
}

static const struct {
	const char *name;
	void (*fn)(struct blockd_run *x);
} tests[] = {
#define T(f) { #f, f }
	T(what_is_written_is_read),
	T(metads_operations_work),
	T(many_requests_fly_at_once),
	T(what_was_synced_survives_kill9),
	T(an_orderly_stop_keeps_everything),
	T(a_scrub_reads_all_and_does_not_delay_a_stop),
	T(two_daemons_do_not_share_a_store),
	T(an_older_incarnation_is_refused),
	T(delayed_writes_of_an_old_connection_are_discarded),
	T(a_replaced_connections_work_ends_before_hello),
	T(a_fenced_session_is_refused),
	T(a_new_session_makes_the_map_be_fetched),
	T(a_newer_epoch_is_fetched_before_the_answer),
	T(a_dead_sessions_connection_is_closed),
	T(what_a_dead_session_began_ends_before_metad_is_told),
	T(what_metad_is_told_of_the_end_is_durable),
	T(before_its_store_is_accepted_nothing_is_confirmed),
	T(without_the_lease_nothing_is_served),
	T(damaged_frames_close_the_connection),
	T(strangers_are_shown_the_door),
	T(a_missing_io_uring_is_said),
	T(another_clusters_store_is_refused),
	T(a_full_disk_says_so_and_deletes),
	T(a_flood_does_not_eat_memory),
	T(a_deaf_reader_does_not_eat_memory),
	T(an_idle_daemon_uses_no_cpu),
	T(counters_are_served),
	T(peers_that_come_and_go_leave_nothing),
	T(the_rpc_client_goes_on_after_a_kill),
};

static bool wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strstr(name, argv[i]))
			return true;
	return argc == 1;
}

int main(int argc, char **argv)
{
	unsigned number = 0, failed = 0;
	struct blockd_run x;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < array_count(tests); i++) {
		uint64_t start = now_ms();

		if (!wanted(tests[i].name, argc, argv))
			continue;
		failures_here = 0;
		run_init(&x);
		tests[i].fn(&x);
		run_fini(&x);
		failed += failures_here > 0;
		printf("%sok %u - %s (%llu ms)\n", failures_here ? "not " : "",
		       ++number, tests[i].name,
		       (unsigned long long)(now_ms() - start));
	}
	printf("1..%u\n", number);
	return failed > 0;
}
