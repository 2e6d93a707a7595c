/* What one block daemon costs its client: round trips over common/rpc to the
 * real hail-blockd (with a fake metad), beside the same on the file system
 * below it, alternating.
 *
 * usage: blockd [COUNT]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/rpc.h"

#define BLOCK (1u << 20)
#define DEPTH_MAX 64

static struct blockd_run x;
static struct rpc_net *net;
static struct rpc_peer *peer;
static uint8_t *data;

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static double self_cpu_us(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1e6 +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static int compare(const void *a, const void *b)
{
	const double *x1 = a, *x2 = b;

	return (*x1 > *x2) - (*x1 < *x2);
}

/* A request that can be in flight beside others. */
struct slot {
	struct rpc_call call;
	struct iovec iov;
	uint8_t body[8192];
	sem_t *done;
	int status;
};

static void on_done(struct rpc_call *call, int status,
		    const struct rpc_frame *f)
{
	struct slot *s = container_of(call, struct slot, call);

	(void)f;
	s->status = status;
	sem_post(s->done);
}

static void send_write(struct slot *s, uint64_t ino, uint64_t pos,
		       uint32_t len, uint32_t flags)
{
	uint32_t off = (uint32_t)(pos % BLOCK);
	static uint8_t sums[4 * BLOCK_UNITS_MAX];
	struct blk_write m = { .ino = ino, .index = pos / BLOCK, .off = off,
			       .len = len, .block_log2 = 20, .flags = flags,
			       .mtime_ns = 1 };
	struct wire_out o;

	crc32c_sums(off, data, len, sums);
	m.sums = (struct wire_str){ sums, 4 * crc32c_piece_count(off, len) };
	wire_out_init(&o, s->body, sizeof(s->body));
	blk_write_encode(&o, &m);
	s->iov = (struct iovec){ data, len };
	s->call = (struct rpc_call){ .opcode = WIRE_OP_BLK_WRITE,
		.body = s->body, .body_len = (uint32_t)o.len, .iov = &s->iov,
		.iov_count = 1, .data_len = len, .cb = on_done };
	rpc_send(peer, &s->call);
}

static void send_read(struct slot *s, uint64_t ino, uint64_t pos, uint32_t len)
{
	struct blk_read m = { .ino = ino, .index = pos / BLOCK,
			      .off = (uint32_t)(pos % BLOCK), .len = len,
			      .block_log2 = 20 };
	struct wire_out o;

	wire_out_init(&o, s->body, sizeof(s->body));
	blk_read_encode(&o, &m);
	s->call = (struct rpc_call){ .opcode = WIRE_OP_BLK_READ,
		.body = s->body, .body_len = (uint32_t)o.len, .cb = on_done };
	rpc_send(peer, &s->call);
}

static void send_sync(struct slot *s)
{
	struct blk_sync m = { .ino = 0 };
	struct wire_out o;

	wire_out_init(&o, s->body, sizeof(s->body));
	blk_sync_encode(&o, &m);
	s->call = (struct rpc_call){ .opcode = WIRE_OP_BLK_SYNC,
		.body = s->body, .body_len = (uint32_t)o.len, .cb = on_done };
	rpc_send(peer, &s->call);
}

static void wait_slot(struct slot *s)
{
	while (sem_wait(s->done) < 0)
		;
	if (s->status < 0) {
		fprintf(stderr, "request: %s\n", strerror(-s->status));
		abort();
	}
}

static void report(const char *what, double *us, unsigned count,
		   double client_cpu, double daemon_cpu)
{
	double sum = 0;

	for (unsigned i = 0; i < count; i++)
		sum += us[i];
	qsort(us, count, sizeof(*us), compare);
	printf("%-30s avg %7.1f  p50 %7.1f  p99 %7.1f us   cpu client %5.1f "
	       "daemon %5.1f us\n", what, sum / count, us[count / 2],
	       us[count * 99 / 100], client_cpu / count, daemon_cpu / count);
}

/* A counter of the daemon. */
static double counter(const char *name)
{
	struct blk_raw r;
	struct frame *f;
	char key[64];
	const char *at;
	double v = 0;

	run_as(&x, &r, WIRE_ROLE_ADMIN);
	if (raw_call(&r, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, &f) == 0) {
		snprintf(key, sizeof(key), "\"%s\":", name);
		at = memmem(f->body, f->h.body_len, key, strlen(key));
		v = at ? strtod(at + strlen(key), NULL) : 0;
		frame_free(f);
	}
	raw_close(&r);
	return v;
}

static const char *const loop_counters[] = {
	"loop_enters", "loop_sleeps", "loop_spins", "loop_spin_hits",
	"disk_writes",
};
#define LOOP_COUNTERS array_count(loop_counters)

static void loop_snapshot(double *v)
{
	for (size_t i = 0; i < LOOP_COUNTERS; i++)
		v[i] = counter(loop_counters[i]);
}

static void loop_report(const double *before, unsigned count)
{
	double after[LOOP_COUNTERS];

	loop_snapshot(after);
	printf("   a request:");
	for (size_t i = 0; i < LOOP_COUNTERS; i++)
		printf(" %s %.2f", loop_counters[i],
		       (after[i] - before[i]) / count);
	printf("\n");
}

/* One at a time. @mode: 0 write+sync in one, 1 write then SYNC, 2 read of
 * what is in memory, 3 write without sync. */
static void latency(const char *what, int mode, uint32_t len, unsigned count)
{
	static uint64_t ino = 100;
	double *us = calloc(count, sizeof(*us)), cpu = self_cpu_us();
	double daemon = (double)run_cpu_us(&x);
	double loop[LOOP_COUNTERS];
	struct slot s;
	sem_t sem;

	loop_snapshot(loop);
	sem_init(&sem, 0, 0);
	s.done = &sem;
	if (mode != 2)
		ino++;
	for (unsigned i = 0; i < count; i++) {
		double start = now_us();

		if (mode == 2)
			send_read(&s, ino, (uint64_t)i % 1000 * len, len);
		else
			send_write(&s, ino, (uint64_t)i * len, len,
				   mode == 0 ? BLK_WRITE_SYNC : 0);
		wait_slot(&s);
		if (mode == 1) {
			send_sync(&s);
			wait_slot(&s);
		}
		us[i] = now_us() - start;
	}
	report(what, us, count, self_cpu_us() - cpu,
	       (double)run_cpu_us(&x) - daemon);
	loop_report(loop, count);
	sem_destroy(&sem);
	free(us);
}

static void floor_ext4(const char *what, uint32_t len, unsigned count)
{
	double *us = calloc(count, sizeof(*us)), cpu = self_cpu_us();
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/floor", x.child.dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	for (unsigned i = 0; i < count; i++) {
		double start = now_us();

		if (pwrite(fd, data, len, (off_t)i * len) != (ssize_t)len ||
		    fdatasync(fd) < 0)
			abort();
		us[i] = now_us() - start;
	}
	report(what, us, count, self_cpu_us() - cpu, 0);
	close(fd);
	unlink(path);
}

static void stream(bool write_it, uint64_t ino, unsigned blocks,
		   unsigned depth)
{
	static struct slot slots[DEPTH_MAX];
	double start = now_us(), took, daemon = (double)run_cpu_us(&x);
	double cpu = self_cpu_us();
	sem_t sems[DEPTH_MAX];

	for (unsigned i = 0; i < depth; i++) {
		sem_init(&sems[i], 0, 0);
		slots[i].done = &sems[i];
	}
	for (unsigned i = 0; i < blocks + depth; i++) {
		struct slot *s = &slots[i % depth];

		if (i >= depth)
			wait_slot(s);
		if (i >= blocks)
			continue;
		if (write_it)
			send_write(s, ino, (uint64_t)i * BLOCK, BLOCK, 0);
		else
			send_read(s, ino, (uint64_t)i * BLOCK, BLOCK);
	}
	if (write_it) {
		send_sync(&slots[0]);
		wait_slot(&slots[0]);
	}
	took = now_us() - start;
	printf("%s %u MiB depth %2u: %7.0f MiB/s   cpu client %.0f daemon "
	       "%.0f us/MiB\n", write_it ? "write+sync" : "read      ", blocks,
	       depth, blocks / took * 1e6, (self_cpu_us() - cpu) / blocks,
	       ((double)run_cpu_us(&x) - daemon) / blocks);
}

static void stream_ext4(bool write_it, unsigned blocks)
{
	double start, took;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/stream", x.child.dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (!write_it)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start = now_us();
	for (unsigned i = 0; i < blocks; i++) {
		off_t off = (off_t)i * BLOCK;
		ssize_t n = write_it ? pwrite(fd, data, BLOCK, off) :
				       pread(fd, data, BLOCK, off);

		if (n != BLOCK)
			abort();
	}
	if (write_it && fdatasync(fd) < 0)
		abort();
	took = now_us() - start;
	printf("ext4 %s %u MiB: %.0f MiB/s\n", write_it ? "write+fdatasync" :
	       "cold read", blocks, blocks / took * 1e6);
	close(fd);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) :
				    3000;
	static const char *const args[] = { "--journal", "128m", NULL };
	struct rpc_identity id = { .role = WIRE_ROLE_CLIENT, .session = 1,
				   .cluster_id = RUN_CLUSTER_ID,
				   .name = "bench" };
	static const struct rpc_peer_ops ops;

	data = aligned_alloc(4096, BLOCK);
	for (unsigned i = 0; i < BLOCK; i++)
		data[i] = (uint8_t)(i * 7 + i / 300);
	setvbuf(stdout, NULL, _IOLBF, 0);
	run_init(&x);
	run_start(&x, getenv("NO_SPIN") ? (const char *const[]){ "--journal",
		  "128m", "--spin", "0", NULL } : args);
	if (rpc_net_new(&id, &net) < 0 ||
	    rpc_peer_new(net, "127.0.0.1", x.child.port, &ops, NULL, &peer) < 0)
		abort();
	/* BENCH_STREAM=1: only the streams, longer. */
	for (int round = 0; round < (getenv("BENCH_STREAM") ? 0 : 2);
	     round++) {
		latency("4 KiB write+sync", 0, 4096, count);
		floor_ext4("ext4 4 KiB append+fdatasync", 4096, count);
		latency("128 B write+sync", 0, 128, count);
		floor_ext4("ext4 128 B append+fdatasync", 128, count);
		latency("4 KiB write, then SYNC", 1, 4096, count);
		latency("4 KiB write", 3, 4096, count);
		latency("4 KiB read", 2, 4096, count);
	}
	for (unsigned depth = 1; depth <= 16; depth *= 4) {
		stream(true, 50 + depth, 512, depth);
		stream(false, 50 + depth, 512, depth);
	}
	stream_ext4(true, 512);
	stream_ext4(false, 512);
	printf("daemon anonymous memory: %llu MiB\n",
	       (unsigned long long)run_anon_bytes(&x) >> 20);
	rpc_peer_close(peer);
	rpc_net_free(net);
	run_fini(&x);
	free(data);
	return 0;
}
