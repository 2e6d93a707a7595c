/* The client side of the protocol against a daemon played by the test: what
 * happens to each call when connections break, frames lie, answers come late,
 * out of order or never. */
#include "common/rpc_priv.h"
#include "tests/lib/fail_malloc.h"
#include "tests/lib/tcp_server.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
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

static void log_add(char what, uint64_t id, int status)
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

static int log_count(char what)
{
	int n = 0;

	for (int i = 0; i < L.count; i++)
		n += L.e[i].what == what;
	return n;
}

static void log_wait(char what, int count)
{
	struct timespec end;
	bool ok;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_S;
	pthread_mutex_lock(&L.lock);
	while (log_count(what) < count)
		if (pthread_cond_timedwait(&L.cond, &L.lock, &end) != 0)
			break;
	ok = log_count(what) >= count;
	pthread_mutex_unlock(&L.lock);
	assert_true(ok);
}

/* The place of the @nth event of a kind. */
static int log_find(char what, int nth)
{
	for (int i = 0; i < L.count; i++)
		if (L.e[i].what == what && nth-- == 0)
			return i;
	return LOG_MAX - 1;
}

static int log_status(char what, int nth)
{
	int status;

	pthread_mutex_lock(&L.lock);
	status = L.e[log_find(what, nth)].status;
	pthread_mutex_unlock(&L.lock);
	return status;
}

static uint64_t log_id(char what, int nth)
{
	uint64_t id;

	pthread_mutex_lock(&L.lock);
	id = L.e[log_find(what, nth)].id;
	pthread_mutex_unlock(&L.lock);
	return id;
}

/* Is it among the first @count of @what? */
static bool log_has(char what, int count, uint64_t id)
{
	for (int i = 0; i < count; i++)
		if (log_id(what, i) == id)
			return true;
	return false;
}

struct test_call {
	struct rpc_call rpc;
	uint64_t id;
	uint8_t body[8];
	struct rpc_frame *frame;
	bool keep;
};

static void call_cb(struct rpc_call *call, int status,
		    const struct rpc_frame *f)
{
	struct test_call *t = container_of(call, struct test_call, rpc);

	if (f && t->keep)
		t->frame = rpc_take_frame(f);
	log_add('c', t->id, status);
}

static void call_make(struct test_call *t, uint64_t id, uint32_t flags,
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

static void (*up_hook)(struct rpc_peer *p);

static void on_up(struct rpc_peer *p, const struct hello_reply *hr, void *arg)
{
	(void)arg;
	if (up_hook)
		up_hook(p);
	log_add('u', hr->boot_id, 0);
}

static _Atomic uint64_t held_ms; /* the connection that went down last */

static void on_down(struct rpc_peer *p, int err, void *arg)
{
	(void)arg;
	/* The net's thread's own, on which this runs. */
	atomic_store(&held_ms, rpc_now_ms() - p->up_since_ms);
	log_add('d', p->backoff_ms, err);
}

static void on_epoch(struct rpc_peer *p, uint64_t epoch, void *arg)
{
	(void)p;
	(void)arg;
	log_add('e', epoch, 0);
}

static const struct rpc_peer_ops ops = { on_up, on_down, on_epoch };

struct fixture {
	struct tcp_server s;
	struct tcp_conn c;
	struct rpc_net *net;
	struct rpc_peer *p;
};

static void peer_make(struct fixture *x)
{
	assert_int_equal(rpc_peer_new(x->net, "127.0.0.1", x->s.port, &ops, x,
				      &x->p), 0);
}

/* A net, a daemon, a connection between them. */
static int setup(void **state)
{
	struct rpc_identity id = { .role = WIRE_ROLE_CLIENT, .session = 5,
				   .cluster_id = 77, .name = "test" };
	struct fixture *x = calloc(1, sizeof(*x));

	L.count = 0;
	up_hook = NULL;
	*state = x;
	tcp_server_init(&x->s);
	x->s.cluster_id = 77;
	if (rpc_net_new(&id, &x->net) < 0)
		return -1;
	peer_make(x);
	tcp_accept_hello(&x->s, &x->c, 0);
	log_wait('u', 1);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *x = *state;

	rpc_net_free(x->net);
	tcp_close(&x->c);
	tcp_server_stop(&x->s);
	free(x);
	return 0;
}

static uint64_t frame_number(const struct frame *f)
{
	struct wire_in in;

	wire_in_init(&in, f->body, f->h.body_len);
	return wire_get_u64(&in);
}

/* Receives a call, checks which it is, answers it. */
static void serve(struct tcp_conn *c, uint64_t id)
{
	struct frame *f = tcp_recv(c);

	assert_int_equal(frame_number(f), id);
	tcp_answer(c, f, 0);
	frame_free(f);
}

static struct rpc_stats stats(struct fixture *x)
{
	struct rpc_stats s;

	rpc_net_stats(x->net, &s);
	return s;
}

/* ---- tests ---- */

static void hello_says_who_we_are(void **state)
{
	struct fixture *x = *state;

	assert_int_equal(x->c.session, 5);
	assert_true(x->c.incarnation > 1700000000000000000u);
	assert_int_equal(log_id('u', 0), x->s.boot_id);
	/* up() runs before the peer is said to be up */
	for (int i = 0; i < 1000 && !rpc_peer_is_up(x->p); i++)
		usleep(1000);
	assert_true(rpc_peer_is_up(x->p));
}

static void a_reply_brings_status_body_and_aligned_data(void **state)
{
	struct fixture *x = *state;
	struct test_call t;
	struct frame *f;
	uint8_t *data = malloc(1 << 20);
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .status = -ENOSPC,
			       .body = "abc", .body_len = 3, .data = data,
			       .data_len = 1 << 20 };

	for (int i = 0; i < 1 << 20; i++)
		data[i] = (uint8_t)(i * 13 >> 3);
	call_make(&t, 9, 0, 0);
	t.keep = true;
	rpc_set_epoch(x->net, 3);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	assert_int_equal(f->h.opcode, WIRE_OP_PING);
	assert_int_equal(f->h.flags, 0);
	assert_int_equal(f->h.cluster_id, 77);
	assert_int_equal(f->h.session, 5);
	assert_int_equal(f->h.epoch, 3);
	assert_int_equal(frame_number(f), 9);
	r.request_id = f->h.request_id;
	tcp_reply(&x->c, &r);
	frame_free(f);
	log_wait('c', 1);
	assert_int_equal(log_status('c', 0), -ENOSPC);
	assert_non_null(t.frame);
	assert_int_equal(t.frame->h.body_len, 3);
	assert_memory_equal(t.frame->body, "abc", 3);
	assert_memory_equal(t.frame->data, data, 1 << 20);
	assert_int_equal((uintptr_t)t.frame->data % FRAME_DATA_ALIGN, 0);
	rpc_frame_free(t.frame);
	free(data);
}

static void bulk_data_is_gathered(void **state)
{
	struct fixture *x = *state;
	enum { PIECES = 500, PIECE = 4099 };
	struct iovec iov[PIECES];
	uint8_t *data = malloc((size_t)PIECES * PIECE);
	struct test_call t;
	struct frame *f;

	for (size_t i = 0; i < (size_t)PIECES * PIECE; i++)
		data[i] = (uint8_t)(i * 7 >> 2);
	for (size_t i = 0; i < PIECES; i++)
		iov[i] = (struct iovec){ data + i * PIECE, PIECE };
	call_make(&t, 1, 0, 0);
	t.rpc.iov = iov;
	t.rpc.iov_count = PIECES;
	t.rpc.data_len = PIECES * PIECE;
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	assert_int_equal(f->h.data_len, PIECES * PIECE);
	assert_memory_equal(f->data, data, (size_t)PIECES * PIECE);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	log_wait('c', 1);
	free(data);
}

static void replies_out_of_order_find_their_calls(void **state)
{
	struct fixture *x = *state;
	struct test_call t[5];
	struct frame *f[5];

	for (uint64_t i = 0; i < 5; i++) {
		call_make(&t[i], i, 0, 0);
		rpc_send(x->p, &t[i].rpc);
	}
	for (uint64_t i = 0; i < 5; i++) {
		f[i] = tcp_recv(&x->c);
		assert_int_equal(frame_number(f[i]), i);
	}
	for (int i = 4; i >= 0; i--) {
		tcp_answer(&x->c, f[i], i == 2 ? -ENOENT : 0);
		frame_free(f[i]);
	}
	log_wait('c', 5);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(log_id('c', i), 4 - i);
		assert_int_equal(log_status('c', i), i == 2 ? -ENOENT : 0);
	}
}

static void a_reply_byte_by_byte_arrives(void **state)
{
	struct fixture *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .body = "hello",
			       .body_len = 5, .data = "world", .data_len = 5 };
	struct test_call t;
	struct frame *f;
	uint8_t *p;
	size_t len;

	call_make(&t, 1, 0, 0);
	t.keep = true;
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	r.request_id = f->h.request_id;
	frame_free(f);
	p = tcp_encode(&x->s, &r, &len);
	for (size_t i = 0; i < len; i++) {
		tcp_write(&x->c, p + i, 1);
		if (i % 8 == 0)
			usleep(200);
	}
	free(p);
	log_wait('c', 1);
	assert_memory_equal(t.frame->body, "hello", 5);
	assert_memory_equal(t.frame->data, "world", 5);
	rpc_frame_free(t.frame);
}

static void a_connection_cut_in_a_frame_resends_in_order(void **state)
{
	struct fixture *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING };
	uint64_t first = x->c.incarnation;
	struct test_call t[6];
	struct frame *f;
	uint8_t *p;
	size_t len;

	for (uint64_t i = 0; i < 6; i++) {
		call_make(&t[i], i, i == 3 ? 0 : RPC_F_RETRY, 0);
		rpc_send(x->p, &t[i].rpc);
	}
	for (int i = 0; i < 6; i++) {
		f = tcp_recv(&x->c);
		if (i == 1)
			tcp_answer(&x->c, f, 0);
		r.request_id = f->h.request_id;
		frame_free(f);
	}
	log_wait('c', 1);
	/* Half of the last one's reply. */
	p = tcp_encode(&x->s, &r, &len);
	tcp_write(&x->c, p, len / 2);
	free(p);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	assert_true(x->c.incarnation > first);
	log_wait('c', 2);
	assert_int_equal(log_id('c', 1), 3);
	assert_int_equal(log_status('c', 1), -ECONNRESET);
	serve(&x->c, 0);
	serve(&x->c, 2);
	serve(&x->c, 4);
	serve(&x->c, 5);
	log_wait('c', 6);
	assert_int_equal(stats(x).resent, 4);
	assert_int_equal(stats(x).losses, 1);
}

static void calls_wait_for_a_daemon_that_is_away(void **state)
{
	struct fixture *x = *state;
	struct test_call t[3];

	tcp_server_stop(&x->s);
	tcp_close(&x->c);
	log_wait('d', 1);
	call_make(&t[0], 0, 0, 0);
	call_make(&t[1], 1, RPC_F_RETRY, 0);
	call_make(&t[2], 2, 0, 30);
	for (int i = 0; i < 3; i++)
		rpc_send(x->p, &t[i].rpc);
	log_wait('c', 1);
	assert_int_equal(log_id('c', 0), 2);
	assert_int_equal(log_status('c', 0), -ETIMEDOUT);
	log_wait('d', 3); /* refused */
	tcp_server_again(&x->s);
	tcp_accept_hello(&x->s, &x->c, 0);
	serve(&x->c, 0);
	serve(&x->c, 1);
	log_wait('c', 3);
	assert_int_equal(log_status('d', 2), -ECONNREFUSED);
}

static void a_deadline_ends_a_call_and_its_late_reply_is_dropped(void **state)
{
	struct fixture *x = *state;
	struct test_call t[2];
	struct frame *f;

	call_make(&t[0], 0, RPC_F_RETRY, 20);
	rpc_send(x->p, &t[0].rpc);
	f = tcp_recv(&x->c);
	log_wait('c', 1);
	assert_int_equal(log_status('c', 0), -ETIMEDOUT);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	call_make(&t[1], 1, 0, 10000);
	rpc_send(x->p, &t[1].rpc);
	serve(&x->c, 1);
	log_wait('c', 2);
	assert_int_equal(log_status('c', 1), 0);
	assert_int_equal(stats(x).unknown_replies, 1);
	assert_int_equal(stats(x).timeouts, 1);
	assert_int_equal(stats(x).losses, 0);
}

static void deadlines_of_many_calls_are_kept(void **state)
{
	struct fixture *x = *state;
	struct test_call t[50];
	struct timespec a, b;
	int64_t ms;

	clock_gettime(CLOCK_MONOTONIC, &a);
	/* Long ones first: a sleeping loop must be told of the shorter. */
	for (uint64_t i = 0; i < 50; i++) {
		call_make(&t[i], i, 0, i == 0 ? 100000 : 300 - 5 * i);
		rpc_send(x->p, &t[i].rpc);
	}
	log_wait('c', 49);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
	assert_in_range(ms, 290, 5000);
	for (int i = 0; i < 49; i++)
		assert_int_equal(log_status('c', i), -ETIMEDOUT);
	for (uint64_t id = 1; id < 50; id++)
		assert_true(log_has('c', 49, id));
}

static void closing_a_peer_cancels_its_calls(void **state)
{
	struct fixture *x = *state;
	struct test_call t[4];

	for (uint64_t i = 0; i < 3; i++) {
		call_make(&t[i], i, i == 1 ? RPC_F_RETRY : 0, 60000);
		rpc_send(x->p, &t[i].rpc);
	}
	frame_free(tcp_recv(&x->c));
	call_make(&t[3], 3, 0, 0);
	rpc_queue(x->p, &t[3].rpc); /* never kicked */
	rpc_peer_close(x->p);
	log_wait('c', 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(log_status('c', i), -ECANCELED);
	tcp_wait_end(&x->c);
	assert_int_equal(log_count('d'), 0);
}

static void freeing_the_net_cancels_calls(void **state)
{
	struct fixture *x = *state;
	struct test_call t[2];

	call_make(&t[0], 0, RPC_F_RETRY, 0);
	rpc_send(x->p, &t[0].rpc);
	frame_free(tcp_recv(&x->c));
	call_make(&t[1], 1, 0, 0);
	rpc_queue(x->p, &t[1].rpc);
	rpc_net_free(x->net);
	x->net = NULL;
	assert_int_equal(log_count('c'), 2);
	assert_int_equal(log_status('c', 0), -ECANCELED);
	assert_int_equal(log_status('c', 1), -ECANCELED);
}

static void a_corrupted_reply_breaks_the_connection(void **state)
{
	struct fixture *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .body = "abcdef",
			       .body_len = 6 };
	struct test_call t;
	struct frame *f;
	uint8_t *p;
	size_t len;

	call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	/* header, checksum of the header, body */
	for (size_t at = 10; at < 70; at += 29) {
		f = tcp_recv(&x->c);
		r.request_id = f->h.request_id;
		frame_free(f);
		p = tcp_encode(&x->s, &r, &len);
		p[at] ^= 4;
		tcp_write(&x->c, p, len);
		free(p);
		tcp_wait_end(&x->c);
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, 0);
	}
	serve(&x->c, 1);
	log_wait('c', 1);
	assert_int_equal(log_status('c', 0), 0);
	assert_int_equal(stats(x).bad_frames, 3);
	assert_int_equal(log_status('d', 0), -EBADMSG);
}

static void answers_to_other_questions_break_the_connection(void **state)
{
	struct fixture *x = *state;
	struct test_call t;
	struct frame *f;

	call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	f->h.opcode = WIRE_OP_BLK_READ;
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	serve(&x->c, 1);
	log_wait('c', 1);
}

static void a_reply_of_another_cluster_breaks_the_connection(void **state)
{
	struct fixture *x = *state;
	struct test_call t;
	struct frame *f;

	call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	x->s.cluster_id = 78;
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	tcp_wait_end(&x->c);
	log_wait('d', 1);
	assert_int_equal(log_status('d', 0), -EXDEV);
	x->s.cluster_id = 77;
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	serve(&x->c, 1);
	log_wait('c', 1);
}

static void a_refused_hello_is_told_and_tried_again(void **state)
{
	struct fixture *x = *state;
	struct test_call t;
	uint64_t first = x->c.incarnation;

	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, -ESTALE);
	log_wait('d', 2);
	assert_int_equal(log_status('d', 0), -ECONNRESET);
	assert_int_equal(log_status('d', 1), -ESTALE);
	call_make(&t, 1, 0, 0);
	rpc_send(x->p, &t.rpc);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, -EXDEV);
	log_wait('d', 3);
	assert_int_equal(log_status('d', 2), -EXDEV);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	/* A session's refusal is about the session: no reason to leap. */
	assert_in_range(x->c.incarnation, first + 1, first + 60000000000u);
	serve(&x->c, 1);
	log_wait('c', 1);
	assert_int_equal(log_count('u'), 2);
}

/* A daemon was restarted after its clock had been set back. */
static void a_daemon_whose_clock_went_back_catches_up(void **state)
{
	struct rpc_identity id = { .role = WIRE_ROLE_BLOCKD, .peer_id = 3,
				   .cluster_id = 77, .name = "test" };
	struct fixture *x = *state;
	struct rpc_net *net;
	struct rpc_peer *p;
	uint64_t first;

	rpc_peer_close(x->p);
	tcp_close(&x->c);
	assert_int_equal(rpc_net_new(&id, &net), 0);
	assert_int_equal(rpc_peer_new(net, "127.0.0.1", x->s.port, &ops, x,
				      &p), 0);
	tcp_accept_hello(&x->s, &x->c, -ESTALE);
	first = x->c.incarnation;
	for (int i = 0; i < 7; i++) {
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, i < 6 ? -ESTALE : 0);
	}
	/* 1 + 2 + 4 + 8 + 16 + 32 + 64 minutes. */
	assert_true(x->c.incarnation > first + 127 * 60000000000u);
	rpc_net_free(net);
}

static struct test_call hooked[3];

static void send_three_first(struct rpc_peer *p)
{
	for (uint64_t i = 0; i < 3; i++) {
		call_make(&hooked[i], 100 + i, 0, 5000);
		rpc_send_first(p, &hooked[i].rpc);
	}
}

static void a_connection_that_answered_a_call_resets_the_delay(void **state)
{
	struct fixture *x = *state;
	struct test_call t;

	for (uint64_t i = 0; i < 5; i++) {
		call_make(&t, i, 0, 0);
		rpc_send(x->p, &t.rpc);
		serve(&x->c, i);
		log_wait('c', (int)i + 1);
		tcp_close(&x->c);
		log_wait('d', (int)i + 1);
		/* The delay after the one that begins now. */
		assert_int_equal(log_id('d', (int)i), 2 * RPC_BACKOFF_MIN_MS);
		tcp_accept_hello(&x->s, &x->c, 0);
		log_wait('u', (int)i + 2);
	}
}

static void a_daemon_that_only_says_hello_is_asked_ever_less(void **state)
{
	struct fixture *x = *state;
	uint64_t delay_ms = RPC_BACKOFF_MIN_MS;

	for (int i = 0; i < 5; i++) {
		tcp_close(&x->c);
		log_wait('d', i + 1);
		if (atomic_load(&held_ms) > 900)
			skip(); /* the machine stood still: a good connection */
		delay_ms = u64_min(2 * delay_ms, RPC_BACKOFF_MAX_MS);
		assert_int_equal(log_id('d', i), delay_ms);
		tcp_accept_hello(&x->s, &x->c, 0);
		log_wait('u', i + 2);
	}
}

static void first_calls_go_before_those_that_wait(void **state)
{
	struct fixture *x = *state;
	struct test_call t[3];

	call_make(&t[0], 0, RPC_F_RETRY, 0);
	rpc_send(x->p, &t[0].rpc);
	frame_free(tcp_recv(&x->c));
	up_hook = send_three_first;
	tcp_close(&x->c);
	log_wait('d', 1);
	call_make(&t[1], 1, 0, 0);
	rpc_send(x->p, &t[1].rpc);
	tcp_accept_hello(&x->s, &x->c, 0);
	for (uint64_t i = 0; i < 3; i++)
		serve(&x->c, 100 + i);
	serve(&x->c, 0);
	serve(&x->c, 1);
	log_wait('c', 5);
}

static void first_calls_end_with_their_connection(void **state)
{
	struct fixture *x = *state;
	struct test_call t;

	up_hook = send_three_first;
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	log_wait('u', 2);
	up_hook = NULL;
	tcp_close(&x->c);
	log_wait('c', 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(log_id('c', i), 100 + i);
		assert_int_equal(log_status('c', i), -ECONNRESET);
	}
	tcp_accept_hello(&x->s, &x->c, 0);
	call_make(&t, 1, 0, 0);
	rpc_send(x->p, &t.rpc);
	serve(&x->c, 1);
	log_wait('c', 4);
}

static void a_larger_epoch_is_told_once(void **state)
{
	struct fixture *x = *state;
	struct test_call t;

	rpc_set_epoch(x->net, 10);
	for (uint64_t i = 0; i < 4; i++) {
		x->s.epoch = 9 + i / 2 * 2; /* 9 9 11 11 */
		call_make(&t, i, 0, 0);
		rpc_send(x->p, &t.rpc);
		serve(&x->c, i);
		log_wait('c', (int)i + 1);
	}
	assert_int_equal(log_count('e'), 1);
	assert_int_equal(log_id('e', 0), 11);
}

static void a_reset_makes_a_newer_connection(void **state)
{
	struct fixture *x = *state;
	uint64_t first = x->c.incarnation;
	struct test_call t;

	call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	frame_free(tcp_recv(&x->c));
	rpc_peer_reset(x->p);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	assert_true(x->c.incarnation > first);
	serve(&x->c, 1);
	log_wait('c', 1);
}

/* More than the sockets hold, to a daemon that does not read yet. */
static void a_full_socket_is_continued(void **state)
{
	struct fixture *x = *state;
	enum { CALLS = 24, SIZE = 1 << 20 };
	static struct test_call t[CALLS];
	struct iovec iov[CALLS];
	uint8_t *data = malloc(SIZE + CALLS);
	struct frame *f;

	for (int i = 0; i < SIZE + CALLS; i++)
		data[i] = (uint8_t)(i * 31 >> 4);
	for (uint64_t i = 0; i < CALLS; i++) {
		call_make(&t[i], i, 0, 0);
		iov[i] = (struct iovec){ data + i, SIZE };
		t[i].rpc.iov = &iov[i];
		t[i].rpc.iov_count = 1;
		t[i].rpc.data_len = SIZE;
		rpc_send(x->p, &t[i].rpc);
	}
	for (uint64_t i = 0; i < CALLS; i++) {
		f = tcp_recv(&x->c);
		assert_int_equal(frame_number(f), i);
		assert_memory_equal(f->data, data + i, SIZE);
		tcp_answer(&x->c, f, 0);
		frame_free(f);
	}
	log_wait('c', CALLS);
	free(data);
}

/* Its memory goes back to the caller, so the rest cannot be sent. */
static void a_deadline_in_the_middle_of_sending_resets(void **state)
{
	struct fixture *x = *state;
	enum { CALLS = 24, SIZE = 1 << 20 };
	static struct test_call t[CALLS];
	uint8_t *data = calloc(1, SIZE);
	struct iovec iov = { data, SIZE };
	struct frame *f;
	int sent = 0;

	for (uint64_t i = 0; i < CALLS; i++) {
		call_make(&t[i], i, RPC_F_RETRY, 100);
		t[i].rpc.iov = &iov;
		t[i].rpc.iov_count = 1;
		t[i].rpc.data_len = SIZE;
		rpc_send(x->p, &t[i].rpc);
	}
	log_wait('c', CALLS);
	for (int i = 0; i < CALLS; i++)
		assert_int_equal(log_status('c', i), -ETIMEDOUT);
	while ((f = tcp_recv_or_end(&x->c)) != NULL) {
		frame_free(f);
		sent++;
	}
	assert_in_range(sent, 1, CALLS - 1);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	call_make(&t[0], 0, 0, 0);
	rpc_send(x->p, &t[0].rpc);
	serve(&x->c, 0);
	log_wait('c', CALLS + 1);
	free(data);
}

struct test_timer {
	struct rpc_timer t;
	uint64_t id;
};

static void timer_fn(struct rpc_timer *t)
{
	log_add('t', container_of(t, struct test_timer, t)->id, 0);
}

static void timers_run_in_order_unless_stopped(void **state)
{
	static const uint64_t delays_ms[] = { 60, 20, 40, 5000, 30 };
	struct fixture *x = *state;
	struct test_timer t[5];

	memset(t, 0, sizeof(t));
	for (uint64_t i = 0; i < 5; i++) {
		t[i].id = i;
		t[i].t.fn = timer_fn;
		rpc_timer_start(x->net, &t[i].t, delays_ms[i]);
	}
	assert_true(rpc_timer_stop(x->net, &t[3].t));
	assert_false(rpc_timer_stop(x->net, &t[3].t));
	rpc_timer_start(x->net, &t[2].t, 1); /* moved */
	log_wait('t', 4);
	assert_int_equal(log_id('t', 0), 2);
	assert_int_equal(log_id('t', 1), 1);
	assert_int_equal(log_id('t', 2), 4);
	assert_int_equal(log_id('t', 3), 0);
	assert_false(rpc_timer_stop(x->net, &t[0].t));
}

static void *answer_one(void *arg)
{
	struct fixture *x = arg;
	struct frame *f = tcp_recv(&x->c);
	struct tcp_reply r = { .opcode = f->h.opcode, .body = "xyz",
			       .request_id = f->h.request_id, .body_len = 3 };

	tcp_reply(&x->c, &r);
	frame_free(f);
	return NULL;
}

static void a_blocking_call_returns_the_frame(void **state)
{
	struct fixture *x = *state;
	struct rpc_frame *f;
	pthread_t th;

	pthread_create(&th, NULL, answer_one, x);
	assert_int_equal(rpc_call_wait(x->p, WIRE_OP_ADMIN_STATS, NULL, 0,
				       5000, &f), 0);
	pthread_join(th, NULL);
	assert_int_equal(f->h.body_len, 3);
	assert_memory_equal(f->body, "xyz", 3);
	rpc_frame_free(f);
	assert_int_equal(rpc_call_wait(x->p, WIRE_OP_ADMIN_STATS, NULL, 0, 20,
				       &f), -ETIMEDOUT);
}

static void no_memory_at_the_start_is_told(void **state)
{
	struct rpc_identity id = { .role = WIRE_ROLE_ADMIN };
	struct fixture *x = *state;
	struct rpc_peer *p = NULL;
	struct rpc_net *n = NULL;
	unsigned nth;
	int rv;

	for (nth = 1;; nth++) {
		fail_malloc_at(nth);
		rv = rpc_net_new(&id, &n);
		if (!fail_malloc_hit())
			break;
		assert_true(rv < 0);
	}
	assert_int_equal(rv, 0);
	for (nth = 1;; nth++) {
		fail_malloc_at(nth);
		rv = rpc_peer_new(n, "127.0.0.1", x->s.port, &ops, x, &p);
		if (!fail_malloc_hit())
			break;
		assert_true(rv < 0);
	}
	assert_int_equal(rv, 0);
	rpc_net_free(n);
}

static void a_name_nobody_knows_is_refused(void **state)
{
	struct fixture *x = *state;
	struct rpc_peer *p;

	assert_int_equal(rpc_peer_new(x->net, "no.such.host.invalid", 1, &ops,
				      x, &p), -EHOSTUNREACH);
}

/* ---- many threads, a daemon that keeps hanging up ---- */

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
	struct fixture *x;
	int thread;
};

static void *storm_sender(void *arg)
{
	struct storm_arg *a = arg;
	struct storm_call *s;

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
		if (i % 2) {
			rpc_send(a->x->p, &s->rpc);
		} else {
			rpc_queue(a->x->p, &s->rpc);
			rpc_kick(a->x->p);
		}
	}
	return NULL;
}

/* Answers, and hangs up after some hundred frames; checks that a thread's
 * calls come in order within a connection. */
static void *storm_daemon(void *arg)
{
	struct fixture *x = arg;
	uint64_t last[STORM_THREADS], incarnation = 0;
	struct frame *f;
	uint64_t v;
	int left;

	while (!atomic_load(&storm_over)) {
		memset(last, 0xff, sizeof(last));
		for (left = 400; left > 0; left--) {
			f = tcp_recv_or_end(&x->c);
			if (!f)
				break;
			memcpy(&v, f->body, 8);
			assert(f->h.body_len == 8 && v >> 32 < STORM_THREADS);
			assert(last[v >> 32] == UINT64_MAX ||
			       last[v >> 32] < v);
			last[v >> 32] = v;
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
	struct fixture *x = *state;
	pthread_t senders[STORM_THREADS], daemon;
	struct storm_arg args[STORM_THREADS];
	struct storm_call *s;

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

#define t(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(hello_says_who_we_are),
		t(a_reply_brings_status_body_and_aligned_data),
		t(bulk_data_is_gathered),
		t(replies_out_of_order_find_their_calls),
		t(a_reply_byte_by_byte_arrives),
		t(a_connection_cut_in_a_frame_resends_in_order),
		t(calls_wait_for_a_daemon_that_is_away),
		t(a_deadline_ends_a_call_and_its_late_reply_is_dropped),
		t(deadlines_of_many_calls_are_kept),
		t(closing_a_peer_cancels_its_calls),
		t(freeing_the_net_cancels_calls),
		t(a_corrupted_reply_breaks_the_connection),
		t(answers_to_other_questions_break_the_connection),
		t(a_reply_of_another_cluster_breaks_the_connection),
		t(a_refused_hello_is_told_and_tried_again),
		t(a_daemon_whose_clock_went_back_catches_up),
		t(a_connection_that_answered_a_call_resets_the_delay),
		t(a_daemon_that_only_says_hello_is_asked_ever_less),
		t(first_calls_go_before_those_that_wait),
		t(first_calls_end_with_their_connection),
		t(a_larger_epoch_is_told_once),
		t(a_reset_makes_a_newer_connection),
		t(a_full_socket_is_continued),
		t(a_deadline_in_the_middle_of_sending_resets),
		t(timers_run_in_order_unless_stopped),
		t(a_blocking_call_returns_the_frame),
		t(no_memory_at_the_start_is_told),
		t(a_name_nobody_knows_is_refused),
		t(every_call_of_a_storm_is_called_back_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
