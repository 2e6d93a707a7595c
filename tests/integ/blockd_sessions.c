/* Goal: the real hail-blockd does nothing for who is old, fenced or dead, and
 * nothing without its lease; what it tells metad stays so.
 * Method: the program as a child, a fake metad that changes sessions, epochs
 * and leases, clients played by hand; TAP.
 *
 * usage: blockd_sessions [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "tests/lib/tap.h"

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

static uint8_t pattern[BLOCK];

static void an_older_incarnation_is_refused(struct blockd_run *x)
{
	struct blk_raw a, b;

	run_start(x, NULL);
	run_client(x, &a, 1, 10);
	CHECK(raw_connect(&b, x->child.port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&b, WIRE_ROLE_CLIENT, 1, 9, 5000), -ESTALE);
	CHECK(raw_closed(&b, 5000));
	raw_close(&b);
	/* The good one goes on. */
	CHECK_EQ(raw_write(&a, 5, 0, 0, "x", 1, SYNC), 0);
	raw_close(&a);
	/* Also when it is gone: what it knew is remembered. */
	CHECK(raw_connect(&b, x->child.port, RUN_CLUSTER_ID));
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
	run_fill(pattern, 4096, 1);
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
	run_fill(pattern, 4096, 2);
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, SYNC), 0);
	/* Now the rest comes, to a connection that is no more. */
	(void)!send(a.fd, frame + len / 2, len - len / 2, MSG_NOSIGNAL);
	CHECK(raw_closed(&a, 5000));
	sleep_ms(50);
	run_check_holds(&b, 5, 0, 0, pattern, 4096);
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
			run_fill(pattern, 4096, i);
			raw_write_begin(&a, 5, 0, 0, pattern, 4096,
					i % 3 ? 0 : SYNC);
		}
		run_client(x, &b, 1, 2 * round + 1);
		run_fill(pattern, 4096, 1000 + round);
		CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, 0), 0);
		run_check_holds(&b, 5, 0, 0, pattern, 4096);
		CHECK_EQ(raw_sync(&b, 5), 0);
		run_check_holds(&b, 5, 0, 0, pattern, 4096);
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
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_FENCE, blk_fence, NULL,
		      { .session = 1, .epoch = 100 }), 0);
	run_fill(pattern, 4096, 99);
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, SYNC), 0);
	CHECK(raw_closed(&a, 5000));
	CHECK(raw_connect(&c, x->child.port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&c, WIRE_ROLE_CLIENT, 1, 2, 5000), -ESTALE);
	run_check_holds(&b, 5, 0, 0, pattern, 4096);
	/* Again is success. */
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_FENCE, blk_fence, NULL,
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
	CHECK(raw_connect(&r, x->child.port, RUN_CLUSTER_ID));
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
	run_fill(pattern, BLOCK, 8);
	for (unsigned i = 0; i < 30; i++)
		raw_write_begin(&r, 5, i, 0, pattern, BLOCK, SYNC);
	fake_metad_set_sessions(x->metad, only2, 1);
	m.epoch = fake_metad_epoch(x->metad);
	do
		rv = RAW_CALL(&m, WIRE_OP_BLK_END, blk_end, &f,
			  { .ino = 5, .block_log2 = 20 });
	while (rv == -EAGAIN && now_ms() < until);
	CHECK_EQ(rv, 0);
	if (rv < 0)
		return;
	CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &first), 0);
	frame_free(f);
	sleep_ms(1000);
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_END, blk_end, &f,
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
	int rv = RAW_CALL(r, WIRE_OP_BLK_END, blk_end, &f,
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
	run_fill(pattern, BLOCK, 9);
	CHECK_EQ(raw_write(&r, 5, 0, 0, pattern, BLOCK, 0), 0);
	CHECK_EQ(raw_write(&r, 5, 1, 0, pattern, 5000, 0), 0);
	/* Counted for a client, but not made durable: nobody asked for it. */
	CHECK_EQ(end_of(&r).end, BLOCK + 5000);
	raw_close(&m);
	raw_close(&r);
	child_kill9(&x->child);
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
	child_kill9(&x->child);
	run_start(x, NULL);
	run_as(x, &m, WIRE_ROLE_METAD);
	later = end_of(&m);
	CHECK_EQ(later.end, told.end);
	CHECK_EQ(later.units, told.units);
	CHECK_EQ(later.mtime_ns, told.mtime_ns);
	run_client(x, &r, 1, 3);
	run_check_holds(&r, 5, 0, 0, pattern, BLOCK);
	run_check_holds(&r, 5, 1, 0, pattern, 5000);
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
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
		      { .ino = 9, .cut = 1, .to = BLK_CUT_TO_END,
			.block_log2 = 20 }), -EAGAIN);
	CHECK_EQ(RAW_CALL(&m, WIRE_OP_BLK_END, blk_end, NULL,
		      { .ino = 9, .block_log2 = 20 }), -EAGAIN);
	fake_metad_set_lease(x->metad, 6000);
	do {
		sleep_ms(50);
		rv = RAW_CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
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

#ifndef __SANITIZE_ADDRESS__ /* which wants to be preloaded first */
static const char *const small_cache[] = { "--cache", "4m", NULL };
static char held[128];

static void preload_held(void)
{
	child_preload("held.so");
	setenv("HELD", held, 1);
}

/* Session 1 writes inode 5, once all memory is taken: that write waits for a
 * checkpoint, which does not end before go_on(). */
static void write_that_waits(struct blockd_run *x, struct blk_raw *r)
{
	char reached[160];
	unsigned i = 0;
	struct frame *f;
	FILE *h;

	snprintf(held, sizeof(held), "%s/held", x->child.dir);
	snprintf(reached, sizeof(reached), "%s.fdatasync", held);
	x->child.before_exec = preload_held;
	run_start(x, small_cache);
	run_client(x, r, 1, 1);
	run_fill(pattern, BLOCK, 11);
	h = fopen(held, "we");
	CHECK(h && fputs("fdatasync */data.mdb\n", h) > 0 && fclose(h) == 0);
	do {
		raw_write_begin(r, 6, i / 32, i % 32 * 32768, pattern, 32768,
				0);
		f = raw_recv(r, 3000);
		CHECK(!f || f->h.status == 0);
		frame_free(f);
	} while (f && ++i < 1024);
	CHECK(!f && access(reached, F_OK) == 0);
	raw_write_begin(r, 5, 0, 0, pattern, 32768, 0);
	/* Frames are taken in their order: now it has been. */
	CHECK_EQ(end_of(r).end, 0);
}

static void go_on(void)
{
	CHECK_EQ(unlink(held), 0);
}

/* Who gave a write up, and connects anew, is not told an end that it changes
 * later. */
static void a_replaced_connections_waiting_write_ends_before_hello(
	struct blockd_run *x)
{
	struct blk_end_reply told = { .boot_id = 0 };
	struct blk_raw a, b;
	struct frame *f;
	int rv;

	write_that_waits(x, &a);
	CHECK(raw_connect(&b, x->child.port, RUN_CLUSTER_ID));
	rv = raw_hello(&b, WIRE_ROLE_CLIENT, 1, 2, 500);
	if (rv == 0)
		told = end_of(&b);
	go_on();
	if (rv == -ETIMEDOUT) {
		f = raw_recv(&b, 20000);
		CHECK(f && f->h.status == 0);
		frame_free(f);
		told = end_of(&b);
	}
	/* It comes after the other. */
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, 0), 0);
	CHECK_EQ(end_of(&b).end, told.end);
	CHECK_EQ(told.end, 32768);
	raw_close(&a);
	raw_close(&b);
}

/* The same where the fence did not get through, and metad asks. */
static void a_dead_sessions_waiting_write_ends_before_metad_is_told(
	struct blockd_run *x)
{
	static const uint64_t only2[] = { 2 };
	uint64_t until = now_ms() + 30000;
	struct blk_end_reply told;
	struct blk_raw a, b, m;
	struct frame *f = NULL;
	bool waited = false;
	int rv;

	write_that_waits(x, &a);
	run_as(x, &m, WIRE_ROLE_METAD);
	fake_metad_set_sessions(x->metad, only2, 1);
	m.epoch = fake_metad_epoch(x->metad);
	for (;;) {
		rv = RAW_CALL(&m, WIRE_OP_BLK_END, blk_end, &f,
			  { .ino = 5, .block_log2 = 20 });
		if (rv != -EAGAIN || now_ms() > until)
			break;
		if (!waited)
			go_on();
		waited = true;
	}
	CHECK_EQ(rv, 0);
	if (rv < 0)
		return;
	CHECK_EQ(blk_end_reply_parse(f->body, f->h.body_len, &told), 0);
	frame_free(f);
	if (!waited)
		go_on();
	run_client(x, &b, 2, 1);
	CHECK_EQ(raw_write(&b, 5, 0, 0, pattern, 4096, 0), 0);
	CHECK_EQ(end_of(&m).end, told.end);
	CHECK_EQ(told.end, 32768);
	raw_close(&a);
	raw_close(&b);
	raw_close(&m);
}

static char slept[128];

static void preload_boottime(void)
{
	child_preload("jumpclock.so");
	setenv("JUMP_BOOTTIME", "1", 1);
	setenv("JUMP_FILE", slept, 1);
}

static void set_slept(int64_t seconds)
{
	int fd = open(slept, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && pwrite(fd, &seconds, 8, 0) == 8 && close(fd) == 0);
}

/* Meanwhile others may have been given what the lease was for. */
static void a_lease_runs_out_while_the_machine_sleeps(struct blockd_run *x)
{
	struct frame *f;
	struct blk_raw r;
	uint64_t id;

	snprintf(slept, sizeof(slept), "%s/slept", x->child.dir);
	set_slept(0);
	x->child.before_exec = preload_boottime;
	fake_metad_set_lease(x->metad, 60000);
	run_start(x, NULL);
	run_client(x, &r, 1, 1);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	fake_metad_set_lease(x->metad, 0); /* metad falls silent */
	sleep_ms(2500);
	CHECK_EQ(raw_write(&r, 5, 0, 0, "x", 1, SYNC), 0);
	set_slept(3600);
	id = raw_write_begin(&r, 5, 0, 0, "y", 1, SYNC);
	CHECK(!raw_recv(&r, 700) && errno == ETIMEDOUT);
	fake_metad_set_lease(x->metad, 60000);
	f = raw_recv(&r, 5000);
	CHECK(f && f->h.request_id == id && f->h.status == 0);
	frame_free(f);
	raw_close(&r);
}
#endif

int main(int argc, char **argv)
{
	static const struct blockd_test tests[] = {
		BLOCKD_TEST(an_older_incarnation_is_refused),
		BLOCKD_TEST(delayed_writes_of_an_old_connection_are_discarded),
		BLOCKD_TEST(a_replaced_connections_work_ends_before_hello),
		BLOCKD_TEST(a_fenced_session_is_refused),
		BLOCKD_TEST(a_new_session_makes_the_map_be_fetched),
		BLOCKD_TEST(a_newer_epoch_is_fetched_before_the_answer),
		BLOCKD_TEST(a_dead_sessions_connection_is_closed),
		BLOCKD_TEST(
			what_a_dead_session_began_ends_before_metad_is_told),
		BLOCKD_TEST(what_metad_is_told_of_the_end_is_durable),
		BLOCKD_TEST(before_its_store_is_accepted_nothing_is_confirmed),
		BLOCKD_TEST(without_the_lease_nothing_is_served),
#ifndef __SANITIZE_ADDRESS__
		BLOCKD_TEST(
		  a_replaced_connections_waiting_write_ends_before_hello),
		BLOCKD_TEST(
		  a_dead_sessions_waiting_write_ends_before_metad_is_told),
		BLOCKD_TEST(a_lease_runs_out_while_the_machine_sleeps),
#endif
	};

	return blockd_tests_run(argc, argv, tests, array_count(tests));
}
