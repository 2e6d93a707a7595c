#include "tests/lib/rpc_fix.h"

#include "common/rpc_priv.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_S 20
#define LOG_MAX 1024

/* What callbacks did, in order. */
struct log {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int count;
	struct {
		char what; /* c: call, u: up, d: down, e: epoch, t: timer */
		uint64_t id;
		int status;
	} e[LOG_MAX];
};

static struct log L = { .lock = PTHREAD_MUTEX_INITIALIZER,
			.cond = PTHREAD_COND_INITIALIZER };

void rpc_log_add(char what, uint64_t id, int status)
{
	pthread_mutex_lock(&L.lock);
	if (L.count < LOG_MAX) {
		L.e[L.count].what = what;
		L.e[L.count].id = id;
		L.e[L.count].status = status;
		L.count++;
	}
	pthread_cond_signal(&L.cond);
	pthread_mutex_unlock(&L.lock);
}

int rpc_log_count(char what)
{
	int n = 0;

	for (int i = 0; i < L.count; i++)
		n += L.e[i].what == what;
	return n;
}

void rpc_log_wait(char what, int count)
{
	struct timespec end;
	bool ok;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_S;
	pthread_mutex_lock(&L.lock);
	while (rpc_log_count(what) < count)
		if (pthread_cond_timedwait(&L.cond, &L.lock, &end) != 0)
			break;
	ok = rpc_log_count(what) >= count;
	pthread_mutex_unlock(&L.lock);
	assert_true(ok);
}

/* The place of the @nth event of a kind. */
static int rpc_log_find(char what, int nth)
{
	for (int i = 0; i < L.count; i++)
		if (L.e[i].what == what && nth-- == 0)
			return i;
	return LOG_MAX - 1;
}

int rpc_log_status(char what, int nth)
{
	int status;

	pthread_mutex_lock(&L.lock);
	status = L.e[rpc_log_find(what, nth)].status;
	pthread_mutex_unlock(&L.lock);
	return status;
}

uint64_t rpc_log_id(char what, int nth)
{
	uint64_t id;

	pthread_mutex_lock(&L.lock);
	id = L.e[rpc_log_find(what, nth)].id;
	pthread_mutex_unlock(&L.lock);
	return id;
}

bool rpc_log_has(char what, int count, uint64_t id)
{
	for (int i = 0; i < count; i++)
		if (rpc_log_id(what, i) == id)
			return true;
	return false;
}

static void call_cb(struct rpc_call *call, int status,
		    const struct rpc_frame *f)
{
	struct test_call *t = container_of(call, struct test_call, rpc);

	if (f && t->keep)
		t->frame = rpc_take_frame(f);
	rpc_log_add('c', t->id, status);
}

void rpc_call_make(struct test_call *t, uint64_t id, uint32_t flags,
		      uint64_t timeout_ms)
{
	struct wire_out o;

	memset(t, 0, sizeof(*t));
	t->id = id;
	wire_out_init(&o, t->body, sizeof(t->body));
	wire_put_u64(&o, id);
	t->rpc = (struct rpc_call){ .opcode = WIRE_OP_PING, .flags = flags,
				    .timeout_ms = timeout_ms,
				    .body = t->body, .body_len = 8,
				    .cb = call_cb };
}

void (*rpc_fix_up_hook)(struct rpc_peer *p);

static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	(void)arg;
	if (rpc_fix_up_hook)
		rpc_fix_up_hook(p);
	rpc_log_add('u', hr->boot_id, 0);
}

static _Atomic uint64_t held_ms;

static void on_down(struct rpc_peer *p, int err, void *arg)
{
	(void)arg;
	/* The net's thread's own, on which this runs. */
	atomic_store(&held_ms, rpc_now_ms() - p->up_since_ms);
	rpc_log_add('d', p->backoff_ms, err);
}

uint64_t rpc_fix_held_ms(void)
{
	return atomic_load(&held_ms);
}

static void on_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	(void)p;
	(void)arg;
	rpc_log_add('e', epoch, 0);
}

const struct rpc_peer_ops rpc_fix_ops = { on_up, on_down, on_epoch };

static void rpc_fix_peer(struct rpc_fix *x)
{
	assert_int_equal(rpc_peer_new(x->net, "127.0.0.1", x->s.port,
				      &rpc_fix_ops, x, &x->p),
			 0);
}

/* Of a new key in a file that nobody needs longer. */
static struct gate *gate_make(enum wire_guard guard)
{
	char dir[] = "/tmp/hailfs-test.XXXXXX", path[64];
	struct conf conf = { .key = path, .wire = guard };
	struct keyring ring;
	struct gate *g = NULL;

	if (!mkdtemp(dir))
		return NULL;
	snprintf(path, sizeof(path), "%s/key", dir);
	if (keyring_new(&ring) == 0 && keyring_save(path, &ring, true) == 0 &&
	    gate_new(&conf, path, &g) < 0)
		g = NULL;
	(void)unlink(path);
	(void)rmdir(dir);
	return g;
}

/* @guard: 0: no key. */
static int setup(void **state, bool helped, enum wire_guard guard)
{
	struct rpc_identity id = { .role = WIRE_ROLE_CLIENT, .session = 5,
				   .cluster_id = 77, .name = "test" };
	struct rpc_fix *x = calloc(1, sizeof(*x));

	L.count = 0;
	rpc_fix_up_hook = NULL;
	*state = x;
	tcp_server_init(&x->s);
	x->s.cluster_id = 77;
	if (guard) {
		x->gate = x->s.gate = id.gate = gate_make(guard);
		assert_non_null(x->gate);
	}
	if (rpc_net_new(&id, &x->net) < 0)
		return -1;
	rpc_fix_peer(x);
	if (helped)
		rpc_peer_helped(x->p);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_log_wait('u', 1);
	return 0;
}

int rpc_fix_setup(void **state)
{
	return setup(state, false, 0);
}

int rpc_fix_setup_mac(void **state)
{
	return setup(state, false, GUARD_MAC);
}

int rpc_fix_setup_crypt(void **state)
{
	return setup(state, true, GUARD_CRYPT);
}

int rpc_fix_setup_helped(void **state)
{
	return setup(state, true, 0);
}

int rpc_fix_teardown(void **state)
{
	struct rpc_fix *x = *state;

	rpc_net_free(x->net);
	tcp_close(&x->c);
	tcp_server_stop(&x->s);
	gate_free(x->gate);
	free(x);
	return 0;
}

uint64_t rpc_fix_number(const struct frame *f)
{
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	return wire_get_u64(&in);
}

void rpc_fix_serve(struct tcp_conn *c, uint64_t id)
{
	struct frame *f = tcp_recv(c);

	assert_int_equal(rpc_fix_number(f), id);
	tcp_answer(c, f, 0);
	frame_free(f);
}

struct rpc_stats rpc_fix_stats(struct rpc_fix *x)
{
	struct rpc_stats s;

	rpc_net_stats(x->net, &s);
	return s;
}
