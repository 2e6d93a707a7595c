/* Round trips of the client side of the protocol: PING to a running daemon.
 *
 *	rpc CLUSTERFILE [metad|blockd] [ID]
 *
 * For several depths, with and without the loop's spinning, and with pauses
 * between calls (a quiet client): time a call, CPU a call, how often spinning
 * paid.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/rpc.h"

#define RUN_MS 400u
#define DEPTH_MAX 64u

struct slot {
	struct rpc_call call;
	struct bench *b;
	uint64_t start_ns;
};

struct bench {
	struct rpc_peer *peer;
	struct slot slots[DEPTH_MAX];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop;
	uint32_t busy;
	uint64_t count, sum_ns, errors;
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void slot_send(struct slot *s)
{
	s->start_ns = now_ns(CLOCK_MONOTONIC);
	rpc_send(s->b->peer, &s->call);
}

/* Sends the next one at once (deep), or hands back to main (quiet). */
static void slot_done(struct rpc_call *call, int status,
		      const struct rpc_frame *f)
{
	struct slot *s = container_of(call, struct slot, call);
	struct bench *b = s->b;
	bool again;

	(void)f;
	pthread_mutex_lock(&b->lock);
	b->count++;
	b->errors += status != 0;
	b->sum_ns += now_ns(CLOCK_MONOTONIC) - s->start_ns;
	again = !b->stop;
	if (!again && --b->busy == 0)
		pthread_cond_signal(&b->cond);
	pthread_mutex_unlock(&b->lock);
	if (again)
		slot_send(s);
}

static void wait_idle(struct bench *b)
{
	pthread_mutex_lock(&b->lock);
	while (b->busy > 0)
		pthread_cond_wait(&b->cond, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

static void slots_start(struct bench *b, uint32_t depth)
{
	pthread_mutex_lock(&b->lock);
	b->busy = depth;
	pthread_mutex_unlock(&b->lock);
	for (uint32_t i = 0; i < depth; i++) {
		b->slots[i].b = b;
		b->slots[i].call = (struct rpc_call){
			.opcode = WIRE_OP_PING, .cb = slot_done };
		slot_send(&b->slots[i]);
	}
}

static void run(struct rpc_net *net, struct bench *b, uint32_t depth,
		uint32_t pause_us, uint32_t spin_us)
{
	uint64_t cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
	uint64_t start_ns = now_ns(CLOCK_MONOTONIC), end_ns;
	struct rpc_stats x, y;

	rpc_set_spin(net, spin_us);
	rpc_net_stats(net, &x);
	b->count = b->sum_ns = b->errors = 0;
	b->stop = pause_us > 0;
	slots_start(b, depth);
	if (pause_us == 0) {
		usleep(RUN_MS * 1000);
		pthread_mutex_lock(&b->lock);
		b->stop = true;
		pthread_mutex_unlock(&b->lock);
	}
	wait_idle(b);
	while (pause_us && now_ns(CLOCK_MONOTONIC) <
			   start_ns + RUN_MS * 1000000u) {
		usleep(pause_us);
		slots_start(b, depth);
		wait_idle(b);
	}
	end_ns = now_ns(CLOCK_MONOTONIC);
	cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	rpc_net_stats(net, &y);
	printf("%5u %8u %5u %9.0f %7.1f %7.1f %6.0f%% %8llu %8llu\n", depth,
	       pause_us, spin_us,
	       (double)b->count * 1e9 / (double)(end_ns - start_ns),
	       (double)b->sum_ns / (double)b->count / 1e3,
	       (double)cpu_ns / (double)b->count / 1e3,
	       100 * (double)cpu_ns / (double)(end_ns - start_ns),
	       (unsigned long long)(y.spins - x.spins),
	       (unsigned long long)(y.spin_hits - x.spin_hits));
	if (b->errors)
		printf("%llu errors\n", (unsigned long long)b->errors);
}

int main(int argc, char **argv)
{
	static const uint32_t depths[] = { 1, 4, 16, 64 };
	static const uint32_t spins[] = { 0, 40, 100 };
	static const struct rpc_peer_ops ops = { .up = NULL };
	static struct bench b = { .lock = PTHREAD_MUTEX_INITIALIZER,
				  .cond = PTHREAD_COND_INITIALIZER };
	struct rpc_identity id = { .role = WIRE_ROLE_ADMIN, .name = "bench" };
	const struct conf_daemon *d;
	struct rpc_net *net;
	struct conf conf;
	uint32_t number = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;

	if (argc < 2 || conf_load(argv[1], &conf) < 0)
		return 2;
	d = argc > 2 && strcmp(argv[2], "metad") == 0 ?
		    conf_find(conf.metads, conf.metad_count, number) :
		    conf_find(conf.blockds, conf.blockd_count, number);
	id.cluster_id = conf.cluster_id;
	if (!d || rpc_net_new(&id, &net) < 0 ||
	    rpc_peer_new(net, d->addr, d->port, &ops, NULL, &b.peer) < 0 ||
	    rpc_call_wait(b.peer, WIRE_OP_PING, NULL, 0, 5000, NULL) < 0) {
		fprintf(stderr, "no answer\n");
		return 1;
	}
	printf("depth pause_us  spin   calls/s us/call cpu/us     cpu    spins"
	       "     hits\n");
	for (size_t i = 0; i < array_count(depths); i++)
		for (size_t k = 0; k < array_count(spins); k++)
			run(net, &b, depths[i], 0, spins[k]);
	for (size_t k = 0; k < array_count(spins); k++)
		run(net, &b, 1, 200, spins[k]);
	for (size_t k = 0; k < array_count(spins); k++)
		run(net, &b, 1, 2000, spins[k]);
	rpc_net_free(net);
	conf_fini(&conf);
	return 0;
}
