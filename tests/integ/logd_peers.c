/* Goal: the real hail-logd lets in whom it should, for as long as it should,
 * and nobody can hurt it.
 * Method: the program as a child, a fake metad, peers played by hand; TAP.
 *
 * usage: logd_peers [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/logd_run.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/tap.h"

#define WAIT_MS 15000

static uint8_t big[1u << 20];

static int hello(const struct logd_run *x, struct blk_raw *r, uint64_t cluster,
		 uint8_t role, uint64_t session, uint64_t incarnation)
{
	CHECK(raw_connect(r, x->child.port, cluster));
	return raw_hello(r, role, session, incarnation, WAIT_MS);
}

static int ping(struct blk_raw *r)
{
	uint32_t count;

	return lrun_ping(r, &count, NULL);
}

static void dead_sessions_are_refused(struct logd_run *x)
{
	static const uint64_t left[] = { 2 };
	struct blk_raw w, r;
	struct log_stream g;
	uint64_t seq = 0;

	lrun_start(x, NULL);
	CHECK_EQ(hello(x, &r, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 7, 1),
		 -ESTALE);
	raw_close(&r);
	CHECK_EQ(hello(x, &r, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 0, 1),
		 -EINVAL);
	raw_close(&r);
	lrun_client(x, &w, 1, 1);
	log_stream_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	/* It dies: its connection ends, what it had lent stays. */
	fake_metad_set_sessions(x->metad, left, 1);
	CHECK(raw_closed(&w, WAIT_MS));
	raw_close(&w);
	CHECK_EQ(hello(x, &w, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 1, 2),
		 -ESTALE);
	raw_close(&w);
	lrun_client(x, &r, 2, 1);
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, NULL, NULL, &seq), 0);
	CHECK_EQ(seq, 1);
	CHECK(lrun_counter(x, "hello_refused") >= 2);
	raw_close(&r);
	log_stream_fini(&g);
}

/* A session that is newer than the daemon's map is not taken for a dead one. */
static void new_sessions_are_waited_for(struct logd_run *x)
{
	static const uint64_t more[] = { 1, 2, 3 };
	struct blk_raw r;

	lrun_start(x, NULL);
	fake_metad_set_sessions(x->metad, more, 3);
	CHECK_EQ(hello(x, &r, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 3, 1), 0);
	CHECK_EQ(ping(&r), 0);
	raw_close(&r);
}

static void another_clusters_peers_are_refused(struct logd_run *x)
{
	struct blk_raw r;

	lrun_start(x, NULL);
	CHECK_EQ(hello(x, &r, 0x4712, WIRE_ROLE_CLIENT, 1, 1), -EXDEV);
	CHECK(raw_closed(&r, WAIT_MS));
	raw_close(&r);
	CHECK_EQ(hello(x, &r, 0, WIRE_ROLE_CLIENT, 1, 1), -EXDEV);
	raw_close(&r);
	CHECK_EQ(hello(x, &r, 0, WIRE_ROLE_ADMIN, 0, 1), 0); /* a tool */
	raw_close(&r);
}

static void a_new_connection_replaces_older_ones(struct logd_run *x)
{
	struct blk_raw a, b, c;
	struct log_stream g;

	lrun_start(x, NULL);
	lrun_client(x, &a, 1, 5);
	log_stream_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&a, &g), 0);
	lrun_client(x, &b, 1, 6);
	CHECK(raw_closed(&a, WAIT_MS));
	CHECK_EQ(hello(x, &c, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 1, 5),
		 -ESTALE);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&b, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_counter(x, "connections_replaced"), 1);
	raw_close(&a);
	raw_close(&b);
	raw_close(&c);
	log_stream_fini(&g);
}

/* Roles, opcodes, order. */
static void odd_requests_are_refused(struct logd_run *x)
{
	struct blk_raw r;

	lrun_start(x, NULL);
	CHECK(raw_connect(&r, x->child.port, LRUN_CLUSTER_ID));
	raw_send(&r, WIRE_OP_LOG_PING, NULL, 0, NULL, 0); /* before HELLO */
	CHECK(raw_closed(&r, WAIT_MS));
	raw_close(&r);
	lrun_client(x, &r, 1, 1);
	CHECK_EQ(raw_call(&r, 999, NULL, 0, NULL, 0, NULL), -EOPNOTSUPP);
	CHECK_EQ(raw_call(&r, WIRE_OP_ADMIN_STOP, NULL, 0, NULL, 0, NULL),
		 -EPERM);
	CHECK_EQ(RAW_CALL(&r, WIRE_OP_LOG_CONNECT, log_connect, NULL,
			  { .ino = 9, .epoch = 5 }), -EOPNOTSUPP);
	CHECK_EQ(ping(&r), 0);
	CHECK_EQ(raw_hello(&r, WIRE_ROLE_CLIENT, 1, 1, WAIT_MS), -ECONNRESET);
	raw_close(&r);
	lrun_client(x, &r, 1, 2);
	r.session = 2; /* another's */
	CHECK_EQ(ping(&r), -ECONNRESET);
	raw_close(&r);
	lrun_client(x, &r, 1, 3);
	raw_send(&r, WIRE_OP_LOG_FREE, "short", 5, NULL, 0);
	CHECK(raw_closed(&r, WAIT_MS));
	raw_close(&r);
	lrun_client(x, &r, 1, 4);
	raw_send(&r, WIRE_OP_LOG_PING, NULL, 0, big, 100); /* with data */
	CHECK(raw_closed(&r, WAIT_MS));
	raw_close(&r);
	CHECK_EQ(raw_later_hello(x->child.port, LRUN_CLUSTER_ID, WAIT_MS),
		 -EPROTONOSUPPORT);
	CHECK_EQ(raw_later_frame(x->child.port, LRUN_CLUSTER_ID, WAIT_MS),
		 -EPROTONOSUPPORT);
	CHECK(lrun_counter(x, "corrupt_requests") >= 4);
	CHECK(lrun_counter(x, "invalid_requests") >= 3);
}

static void garbage_ends_a_connection_and_nothing_else(struct logd_run *x)
{
	uint64_t seed = tap_random();
	struct blk_raw w, r;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	for (unsigned i = 0; i < 40; i++) {
		CHECK(raw_connect(&r, x->child.port, LRUN_CLUSTER_ID));
		for (unsigned k = 0; k < 256; k++) {
			seed = seed * 6364136223846793005u + 1;
			big[k] = (uint8_t)(seed >> 56);
		}
		CHECK_EQ(send(r.fd, big, 256, MSG_NOSIGNAL), 256);
		CHECK(raw_closed(&r, WAIT_MS));
		raw_close(&r);
		CHECK_EQ(ping(&w), 0);
	}
	/* A stranger who says that much is to come. */
	CHECK(raw_connect(&r, x->child.port, LRUN_CLUSTER_ID));
	raw_send(&r, WIRE_OP_HELLO, big, 200000, NULL, 0);
	CHECK(raw_closed(&r, WAIT_MS));
	raw_close(&r);
	CHECK(lrun_counter(x, "bad_frames") >= 41);
	raw_close(&w);
}

/* Without metad what is known goes on; what is new waits. */
static void logs_go_on_without_a_lease(struct logd_run *x)
{
	struct blk_raw w, r, n;
	struct log_stream g;
	struct frame *f;
	uint32_t from;

	fake_metad_set_lease(x->metad, 500);
	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	log_stream_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	fake_metad_set_lease(x->metad, 0);
	/* One that was lent to before is known. */
	EVENTUALLY((g.ino++, lrun_alloc(&w, &g) == -EAGAIN));
	g.ino = 9;
	g.index = 1;
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	g.index = 0;
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	/* Who was here comes back. */
	raw_close(&w);
	CHECK_EQ(hello(x, &w, LRUN_CLUSTER_ID, WIRE_ROLE_CLIENT, 1, 2), 0);
	from = g.end;
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, from), 0);
	/* Who was not waits for the lease. */
	CHECK(raw_connect(&n, x->child.port, LRUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&n, WIRE_ROLE_CLIENT, 2, 1, 700), -ETIMEDOUT);
	CHECK_EQ(lrun_fence(&w, 9, 5, 5, NULL, NULL, NULL), 0);
	fake_metad_set_lease(x->metad, 5000);
	f = raw_recv(&n, WAIT_MS);
	CHECK(f && f->h.opcode == WIRE_OP_HELLO && f->h.status == 0);
	frame_free(f);
	raw_close(&n);
	lrun_client(x, &r, 2, 2);
	CHECK(lrun_counter(x, "lease_waits") >= 1);
	CHECK(lrun_counter(x, "refused_no_lease") >= 1);
	raw_close(&r);
	raw_close(&w);
	log_stream_fini(&g);
}

static uint64_t anon_bytes(const struct logd_run *x)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)x->child.pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

/* Asks for gigabytes and reads none of them. */
static void a_peer_that_does_not_read_is_not_read_from(struct logd_run *x)
{
	struct log_read m = { 9, 5, 5, 0, 0, 4u << 20 };
	struct blk_raw w, r;
	struct log_stream g;
	uint64_t before;
	uint8_t body[64];
	struct wire_out o;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	lrun_client(x, &r, 2, 1);
	log_stream_init(&g, 9, 5, 22);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	before = anon_bytes(x);
	wire_out_init(&o, body, sizeof(body));
	log_read_encode(&o, &m);
	for (unsigned i = 0; i < 500; i++)
		raw_send(&r, WIRE_OP_LOG_READ, body, o.len, NULL, 0);
	for (unsigned i = 0; i < 20; i++) {
		CHECK_EQ(ping(&w), 0);
		sleep_ms(5);
	}
	CHECK(LRUN_SANITIZED || anon_bytes(x) < before + (32u << 20));
	for (unsigned i = 0; i < 500; i++) {
		struct frame *f = raw_recv(&r, WAIT_MS);

		CHECK(f && f->h.data_len == m.len);
		if (!f)
			break;
		frame_free(f);
	}
	raw_close(&r);
	raw_close(&w);
	log_stream_fini(&g);
}

static void connections_are_bounded(struct logd_run *x)
{
	static const char *const args[] = { "--connections", "8", NULL };
	struct blk_raw r[12];
	unsigned open = 0, refused = 4;

	lrun_start(x, args);
	for (unsigned i = 0; i < array_count(r); i++) {
		CHECK(raw_connect(&r[i], x->child.port, LRUN_CLUSTER_ID));
		open += raw_hello(&r[i], WIRE_ROLE_ADMIN, 0, 1, WAIT_MS) == 0;
	}
	CHECK_EQ(open, 8);
	for (unsigned i = 0; i < array_count(r); i++)
		raw_close(&r[i]);
	/* Those that were in are given up when the daemon hears of it. */
	do {
		CHECK(raw_connect(&r[0], x->child.port, LRUN_CLUSTER_ID));
		open = raw_hello(&r[0], WIRE_ROLE_ADMIN, 0, 1, WAIT_MS) != 0;
		raw_close(&r[0]);
		refused += open;
	} while (open);
	EVENTUALLY(lrun_counter(x, "connections_refused") == refused);
}

int main(int argc, char **argv)
{
	static const struct logd_test tests[] = {
		LOGD_TEST(dead_sessions_are_refused),
		LOGD_TEST(new_sessions_are_waited_for),
		LOGD_TEST(another_clusters_peers_are_refused),
		LOGD_TEST(a_new_connection_replaces_older_ones),
		LOGD_TEST(odd_requests_are_refused),
		LOGD_TEST(garbage_ends_a_connection_and_nothing_else),
		LOGD_TEST(logs_go_on_without_a_lease),
		LOGD_TEST(a_peer_that_does_not_read_is_not_read_from),
		LOGD_TEST(connections_are_bounded),
	};

	return logd_tests_run(argc, argv, tests, array_count(tests));
}
