/* Goal: the real hail-metad answers fast, also while it writes snapshots.
 * Method: the program as a child, one session; figures, and only the coarsest
 * judged; TAP.
 *
 * usage: metad_speed [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/local_sock.h"
#include "tests/lib/tap.h"

#define LONG_MS 15000

static void snapshots_do_not_stop_service(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "256k", NULL };
	struct metad_client c;
	uint64_t max_us = 0, start;
	char name[32];
	unsigned i;

	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 8000; i++) {
		snprintf(name, sizeof(name), "file-%06u", i);
		start = now_us();
		c.seq_low = c.seq + 1;
		if (metad_client_create(&c, ROOT_INO, name, 0) != 0) {
			CHECK(!"create");
			break;
		}
		max_us = u64_max(max_us, now_us() - start);
	}
	CHECK_EQ(metad_client_sync(&c), 0);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >=
		   1);
	printf("# longest create %llu us with %llu snapshots\n",
	       (unsigned long long)max_us,
	       (unsigned long long)metad_admin_number(x, WIRE_OP_ADMIN_STATS,
						 "snapshots"));
	/* Generous: the machine may be busy with other tests. */
	CHECK(max_us < 200000);
	child_kill9(&x->child);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "file-007999"), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "file-000000"), 0);
	metad_client_fini(&c);
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void print_latency(const char *what, uint64_t *us, size_t count)
{
	qsort(us, count, sizeof(*us), by_number);
	printf("# %s: median %llu us, p90 %llu us, p99 %llu us\n", what,
	       (unsigned long long)us[count / 2],
	       (unsigned long long)us[count * 9 / 10],
	       (unsigned long long)us[count * 99 / 100]);
}

static void latency_and_rate(struct metad_run *x)
{
	static uint64_t us[2000];
	struct metad_client c;
	uint64_t start, sent = 0, got = 0;
	uint8_t b[128];
	char name[32];
	size_t i, len;

	metad_client_begin(x, &c);
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "a%zu", i);
		c.seq_low = c.seq + 1;
		start = now_us();
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		us[i] = now_us() - start;
	}
	print_latency("create", us, 2000);
	for (i = 0; i < 2000; i++) {
		start = now_us();
		CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "a7"), 0);
		us[i] = now_us() - start;
	}
	print_latency("lookup", us, 2000);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "b%zu", i);
		c.seq_low = c.seq + 1;
		start = now_us();
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
		us[i] = now_us() - start;
	}
	print_latency("create + sync", us, 1000);
	start = now_us();
	while (got < 50000) {
		while (sent < 50000 && sent - got < 64) {
			snprintf(name, sizeof(name), "c%llu",
				 (unsigned long long)sent++);
			c.seq_low = c.seq > 64 ? c.seq - 64 : 1;
			len = METAD_BODY(b, meta_create,
					 { .parent = ROOT_INO,
					   .name = { name,
						     (uint32_t)strlen(name) },
					   .mode = S_IFREG | 0644 });
			(void)metad_client_send(&c, WIRE_OP_META_CREATE, b,
						len);
		}
		frame_free(raw_recv(&c.r, LONG_MS));
		got++;
	}
	start = now_us() - start;
	printf("# pipelined: %llu creates/s\n",
	       (unsigned long long)(50000 * 1000000ull / start));
	metad_client_fini(&c);
}

/* As mounts connect: such a socket takes a large answer at once, and nothing
 * tells later that it has room again. */
static bool local_connect(struct metad_run *x, struct blk_raw *r)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(x->child.port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = local_sock_connect((const struct sockaddr *)&a);

	if (fd < 0 || !raw_connect(r, x->child.port, METAD_CLUSTER_ID))
		return false;
	/* its number, and no O_NONBLOCK */
	return dup2(fd, r->fd) == r->fd && close(fd) == 0 &&
	       fcntl(r->fd, F_SETFL, 0) == 0 &&
	       raw_hello(r, WIRE_ROLE_ADMIN, 0, 1, LONG_MS) == 0;
}

/* Reads the first MiB of the root @count times, so many at a time. */
static uint64_t list_us(struct blk_raw *r, unsigned count, unsigned at_a_time)
{
	uint64_t start = now_us();
	unsigned sent = 0, got;
	struct frame *f;
	uint8_t b[64];
	size_t len = METAD_BODY(b, meta_readdir,
				{ .dir = ROOT_INO,
				  .bytes_max = READDIR_BYTES_MAX,
				  .plus = 1 });

	for (got = 0; got < count; got++) {
		while (sent < count && sent - got < at_a_time) {
			(void)raw_send(r, WIRE_OP_META_READDIR, b, len, NULL,
				       0);
			sent++;
		}
		f = raw_recv(r, LONG_MS);
		CHECK(f && f->h.body_len > READDIR_BYTES_MAX * 9 / 10);
		frame_free(f);
	}
	return now_us() - start;
}

/* More than metad answers in one go: the rest does not wait until something
 * else wakes it. */
static void what_was_held_back_is_not_forgotten(struct metad_run *x)
{
	static const char *const args[] = { "--spin", "0", NULL };
	struct metad_client c;
	uint64_t one, all;
	struct blk_raw r;

	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	metad_client_create_long(&c, 'a', 5000);
	CHECK(local_connect(x, &r));
	one = list_us(&r, 200, 1);
	all = list_us(&r, 200, 200);
	printf("# 200 MiB of listings: one by one %llu us, at once %llu us\n",
	       (unsigned long long)one, (unsigned long long)all);
	CHECK(all < 2 * one + 200000);
	raw_close(&r);
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(snapshots_do_not_stop_service, 0),
		METAD_TEST(latency_and_rate, 0),
		METAD_TEST(what_was_held_back_is_not_forgotten, 0),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
