/* The client side of the protocol: many threads send to a daemon that keeps
 * hanging up; each call is called back once, also where the senders take in
 * answers themselves.
 */
#include "common/rpc_priv.h"
#include "tests/lib/rpc_fix.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include <cmocka.h>

#define STORM_THREADS 4
#define STORM_CALLS 1500
#define STORM_WINDOW 64

struct storm_call {
	struct rpc_call rpc;
	uint64_t body;
	struct iovec iov;
	atomic_int done;
	int status;
};

static struct storm_call storm[STORM_THREADS][STORM_CALLS];
static atomic_int storm_open[STORM_THREADS];
static atomic_bool storm_over;
static uint8_t storm_data[60000];

static void storm_cb(struct rpc_call *call, int status,
		     const struct rpc_frame *f)
{
	struct storm_call *s = container_of(call, struct storm_call, rpc);

	(void)f;
	s->status = status;
	atomic_fetch_add(&s->done, 1);
	atomic_fetch_sub(&storm_open[(s - &storm[0][0]) / STORM_CALLS], 1);
}

struct storm_arg {
	struct rpc_fix *x;
	int thread;
};

static void *storm_sender(void *arg)
{
	struct storm_arg *a = arg;
	struct storm_call *s;
	bool help;

	for (int i = 0; i < STORM_CALLS; i++) {
		while (atomic_load(&storm_open[a->thread]) >= STORM_WINDOW)
			usleep(50);
		s = &storm[a->thread][i];
		s->body = (uint64_t)a->thread << 32 | (uint64_t)i;
		s->rpc = (struct rpc_call){
			.opcode = WIRE_OP_PING,
			.flags = i % 3 ? RPC_F_RETRY : 0,
			.timeout_ms = i % 5 ? 30000 : 0,
			.body = &s->body, .body_len = 8, .cb = storm_cb };
		if (i % 7 == 0) {
			s->iov = (struct iovec){ storm_data,
						 sizeof(storm_data) };
			s->rpc.iov = &s->iov;
			s->rpc.iov_count = 1;
			s->rpc.data_len = sizeof(storm_data);
		}
		atomic_fetch_add(&storm_open[a->thread], 1);
		help = rpc_help_begin(a->x->net);
		if (i % 2) {
			rpc_send(a->x->p, &s->rpc);
		} else {
			rpc_queue(a->x->p, &s->rpc);
			rpc_kick(a->x->p);
		}
		if (help)
			rpc_help(a->x->net);
		if (i % 200 == 0) /* now and then one at a time */
			while (atomic_load(&storm_open[a->thread]) > 0)
				usleep(50);
	}
	return NULL;
}

/* Answers, and hangs up after some hundred frames, on a call that is sent again
 * if it is not answered: so another connection comes, also at the end. Checks
 * that a thread's calls come in order within a connection. */
static void *storm_daemon(void *arg)
{
	struct rpc_fix *x = arg;
	uint64_t last[STORM_THREADS], incarnation = 0;
	struct frame *f;
	uint64_t v;
	int left;

	while (!atomic_load(&storm_over)) {
		memset(last, 0xff, sizeof(last));
		for (left = 400;; left--) {
			f = tcp_recv_or_end(&x->c);
			if (!f)
				break;
			memcpy(&v, f->body, 8);
			assert(f->h.body_len == 8 && v >> 32 < STORM_THREADS);
			assert(last[v >> 32] == UINT64_MAX ||
			       last[v >> 32] < v);
			last[v >> 32] = v;
			if (left <= 0 && (uint32_t)v % 3) {
				frame_free(f);
				break;
			}
			tcp_answer(&x->c, f, 0);
			frame_free(f);
		}
		if (atomic_load(&storm_over))
			break;
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, 0);
		assert(x->c.incarnation > incarnation);
		incarnation = x->c.incarnation;
	}
	return NULL;
}

static void every_call_of_a_storm_is_called_back_once(void **state)
{
	struct rpc_fix *x = *state;
	pthread_t senders[STORM_THREADS], daemon;
	struct storm_arg args[STORM_THREADS];
	struct storm_call *s;

	memset(storm, 0, sizeof(storm));
	atomic_store(&storm_over, false);
	pthread_create(&daemon, NULL, storm_daemon, x);
	for (int i = 0; i < STORM_THREADS; i++) {
		args[i] = (struct storm_arg){ x, i };
		pthread_create(&senders[i], NULL, storm_sender, &args[i]);
	}
	for (int i = 0; i < STORM_THREADS; i++) {
		pthread_join(senders[i], NULL);
		while (atomic_load(&storm_open[i]) > 0)
			usleep(1000);
	}
	for (int i = 0; i < STORM_THREADS * STORM_CALLS; i++) {
		s = &storm[i / STORM_CALLS][i % STORM_CALLS];
		assert_int_equal(atomic_load(&s->done), 1);
		if (s->rpc.flags & RPC_F_RETRY)
			assert_int_equal(s->status, 0);
		else
			assert_true(s->status == 0 ||
				    s->status == -ECONNRESET);
	}
	atomic_store(&storm_over, true);
	rpc_peer_close(x->p);
	pthread_join(daemon, NULL);
}

#define t(fn, setup) \
	cmocka_unit_test_setup_teardown(fn, setup, rpc_fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(every_call_of_a_storm_is_called_back_once, rpc_fix_setup),
		t(every_call_of_a_storm_is_called_back_once,
		  rpc_fix_setup_helped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
