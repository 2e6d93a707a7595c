/* The client side of the protocol against a daemon played by the test: what
 * happens to each call when connections break, are refused or get stuck, and
 * how often a daemon is asked.
 */
#include "common/rpc_priv.h"
#include "tests/lib/rpc_fix.h"

#include <sys/socket.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static void a_connection_cut_in_a_frame_resends_in_order(void **state)
{
	struct rpc_fix *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING };
	uint64_t first = x->c.incarnation;
	struct test_call t[6];
	struct frame *f;
	uint8_t *p;
	size_t len;

	for (uint64_t i = 0; i < 6; i++) {
		rpc_call_make(&t[i], i, i == 3 ? 0 : RPC_F_RETRY, 0);
		rpc_send(x->p, &t[i].rpc);
	}
	for (int i = 0; i < 6; i++) {
		f = tcp_recv(&x->c);
		if (i == 1)
			tcp_answer(&x->c, f, 0);
		r.request_id = f->h.request_id;
		frame_free(f);
	}
	rpc_log_wait('c', 1);
	/* Half of the last one's reply. */
	p = tcp_encode(&x->c, &r, &len);
	tcp_write(&x->c, p, len / 2);
	free(p);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	assert_true(x->c.incarnation > first);
	rpc_log_wait('c', 2);
	assert_int_equal(rpc_log_id('c', 1), 3);
	assert_int_equal(rpc_log_status('c', 1), -ECONNRESET);
	/* Its server may have to know. */
	f = tcp_recv(&x->c);
	assert_int_equal(f->h.flags, WIRE_F_RESENT);
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	rpc_fix_serve(&x->c, 2);
	rpc_fix_serve(&x->c, 4);
	rpc_fix_serve(&x->c, 5);
	rpc_log_wait('c', 6);
	assert_int_equal(rpc_fix_stats(x).resent, 4);
	assert_int_equal(rpc_fix_stats(x).losses, 1);
}

static void calls_wait_for_a_daemon_that_is_away(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[3];

	tcp_server_stop(&x->s);
	tcp_close(&x->c);
	rpc_log_wait('d', 1);
	rpc_call_make(&t[0], 0, 0, 0);
	rpc_call_make(&t[1], 1, RPC_F_RETRY, 0);
	rpc_call_make(&t[2], 2, 0, 30);
	for (int i = 0; i < 3; i++)
		rpc_send(x->p, &t[i].rpc);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_id('c', 0), 2);
	assert_int_equal(rpc_log_status('c', 0), -ETIMEDOUT);
	rpc_log_wait('d', 3); /* refused */
	tcp_server_again(&x->s);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_fix_serve(&x->c, 0);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 3);
	assert_int_equal(rpc_log_status('d', 2), -ECONNREFUSED);
}

static void a_corrupted_reply_breaks_the_connection(void **state)
{
	struct rpc_fix *x = *state;
	struct tcp_reply r = { .opcode = WIRE_OP_PING, .body = "abcdef",
			       .body_len = 6 };
	struct test_call t;
	struct frame *f;
	uint8_t *p;
	size_t len;

	rpc_call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	/* header, checksum of the header, body */
	for (size_t at = 10; at < 70; at += 29) {
		f = tcp_recv(&x->c);
		r.request_id = f->h.request_id;
		frame_free(f);
		p = tcp_encode(&x->c, &r, &len);
		p[at] ^= 4;
		tcp_write(&x->c, p, len);
		free(p);
		tcp_wait_end(&x->c);
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, 0);
	}
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_status('c', 0), 0);
	assert_int_equal(rpc_fix_stats(x).bad_frames, 3);
	assert_int_equal(rpc_log_status('d', 0), -EBADMSG);
}

static void answers_to_other_questions_break_the_connection(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;
	struct frame *f;

	rpc_call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	f->h.opcode = WIRE_OP_BLK_READ;
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
}

static void a_reply_of_another_cluster_breaks_the_connection(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;
	struct frame *f;

	rpc_call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	f = tcp_recv(&x->c);
	x->s.cluster_id = 78;
	tcp_answer(&x->c, f, 0);
	frame_free(f);
	tcp_wait_end(&x->c);
	rpc_log_wait('d', 1);
	assert_int_equal(rpc_log_status('d', 0), -EXDEV);
	x->s.cluster_id = 77;
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
}

static void a_refused_hello_is_told_and_tried_again(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;
	uint64_t first = x->c.incarnation;

	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, -ESTALE);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_log_status('d', 0), -ECONNRESET);
	assert_int_equal(rpc_log_status('d', 1), -ESTALE);
	rpc_call_make(&t, 1, 0, 0);
	rpc_send(x->p, &t.rpc);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, -EXDEV);
	rpc_log_wait('d', 3);
	assert_int_equal(rpc_log_status('d', 2), -EXDEV);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	/* A session's refusal is about the session: no reason to leap. */
	assert_in_range(x->c.incarnation, first + 1, first + 60000000000u);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
	assert_int_equal(rpc_log_count('u'), 2);
}

/* It says so in its answer, or all its frames are of that major. */
static void a_daemon_of_another_major_is_asked_rarely(void **state)
{
	struct rpc_fix *x = *state;
	uint64_t begin_ms;

	for (uint16_t i = 0; i < 2; i++) {
		x->s.version = i ? WIRE_VERSION + 1 : 0;
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, i ? 0 : -EPROTONOSUPPORT);
		begin_ms = rpc_now_ms();
		rpc_log_wait('d', 2 * i + 2);
		assert_int_equal(rpc_log_status('d', 2 * i + 1),
				 -EPROTONOSUPPORT);
		x->s.version = 0;
		tcp_close(&x->c);
		tcp_accept_hello(&x->s, &x->c, 0);
		/* The clock of the test began some ms later. */
		assert_true(rpc_now_ms() - begin_ms >=
			    RPC_OTHER_MAJOR_MS - 1000);
		rpc_log_wait('u', i + 2);
		assert_int_equal(rpc_peer_proto(x->p).major, WIRE_VERSION);
		/* It does not send its own, as daemons before minor 1. */
		assert_int_equal(rpc_peer_proto(x->p).minor, 0);
	}
}

/* A daemon was restarted after its clock had been set back. */
static void a_daemon_whose_clock_went_back_catches_up(void **state)
{
	struct rpc_identity id = { .role = WIRE_ROLE_BLOCKD, .peer_id = 3,
				   .cluster_id = 77, .name = "test" };
	struct rpc_fix *x = *state;
	struct rpc_net *net;
	struct rpc_peer *p;
	uint64_t first;

	id.gate = x->gate;
	rpc_peer_close(x->p);
	tcp_close(&x->c);
	assert_int_equal(rpc_net_new(&id, &net), 0);
	assert_int_equal(rpc_peer_new(net, "127.0.0.1", x->s.port, &rpc_fix_ops,
				      x, &p),
			 0);
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
		rpc_call_make(&hooked[i], 100 + i, 0, 5000);
		rpc_send_first(p, &hooked[i].rpc);
	}
}

static void a_connection_that_answered_a_call_resets_the_delay(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	for (uint64_t i = 0; i < 5; i++) {
		rpc_call_make(&t, i, 0, 0);
		rpc_send(x->p, &t.rpc);
		rpc_fix_serve(&x->c, i);
		rpc_log_wait('c', (int)i + 1);
		tcp_close(&x->c);
		rpc_log_wait('d', (int)i + 1);
		/* The delay after the one that begins now. */
		assert_int_equal(rpc_log_id('d', (int)i),
				 2 * RPC_BACKOFF_MIN_MS);
		tcp_accept_hello(&x->s, &x->c, 0);
		rpc_log_wait('u', (int)i + 2);
	}
}

static void a_daemon_that_only_says_hello_is_asked_ever_less(void **state)
{
	struct rpc_fix *x = *state;
	uint64_t delay_ms = RPC_BACKOFF_MIN_MS;

	for (int i = 0; i < 5; i++) {
		tcp_close(&x->c);
		rpc_log_wait('d', i + 1);
		if (rpc_fix_held_ms() > 900)
			skip(); /* the machine stood still: a good connection */
		delay_ms = u64_min(2 * delay_ms, RPC_BACKOFF_MAX_MS);
		assert_int_equal(rpc_log_id('d', i), delay_ms);
		tcp_accept_hello(&x->s, &x->c, 0);
		rpc_log_wait('u', i + 2);
	}
}

static void first_calls_go_before_those_that_wait(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t[3];

	rpc_call_make(&t[0], 0, RPC_F_RETRY, 0);
	rpc_send(x->p, &t[0].rpc);
	frame_free(tcp_recv(&x->c));
	rpc_fix_up_hook = send_three_first;
	tcp_close(&x->c);
	rpc_log_wait('d', 1);
	rpc_call_make(&t[1], 1, 0, 0);
	rpc_send(x->p, &t[1].rpc);
	tcp_accept_hello(&x->s, &x->c, 0);
	for (uint64_t i = 0; i < 3; i++)
		rpc_fix_serve(&x->c, 100 + i);
	rpc_fix_serve(&x->c, 0);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 5);
}

static void first_calls_end_with_their_connection(void **state)
{
	struct rpc_fix *x = *state;
	struct test_call t;

	rpc_fix_up_hook = send_three_first;
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_log_wait('u', 2);
	rpc_fix_up_hook = NULL;
	tcp_close(&x->c);
	rpc_log_wait('c', 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rpc_log_id('c', i), 100 + i);
		assert_int_equal(rpc_log_status('c', i), -ECONNRESET);
	}
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_call_make(&t, 1, 0, 0);
	rpc_send(x->p, &t.rpc);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 4);
}

static void a_reset_makes_a_newer_connection(void **state)
{
	struct rpc_fix *x = *state;
	uint64_t first = x->c.incarnation;
	struct test_call t;

	rpc_call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	frame_free(tcp_recv(&x->c));
	rpc_peer_reset(x->p);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	assert_true(x->c.incarnation > first);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
}

/* What it was asked is asked again there; nobody comes where it was. */
static void who_moves_is_found_where_he_is(void **state)
{
	struct rpc_fix *x = *state;
	struct tcp_server other;
	struct test_call t;

	tcp_server_init(&other);
	other.gate = x->gate;
	rpc_call_make(&t, 1, RPC_F_RETRY, 0);
	rpc_send(x->p, &t.rpc);
	frame_free(tcp_recv(&x->c));
	assert_int_equal(rpc_peer_move(x->p, "127.0.0.1", other.port), 0);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	tcp_accept_hello(&other, &x->c, 0);
	rpc_fix_serve(&x->c, 1);
	rpc_log_wait('c', 1);
	/* Also while nobody is there; of two places the last counts. */
	assert_int_equal(rpc_peer_move(x->p, "127.0.0.1", 1), 0);
	tcp_wait_end(&x->c);
	tcp_close(&x->c);
	rpc_log_wait('d', 2);
	assert_int_equal(rpc_peer_move(x->p, "192.0.2.1", 1), 0);
	assert_int_equal(rpc_peer_move(x->p, "localhost", x->s.port), 0);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_log_wait('u', 3);
	tcp_server_stop(&other);
}

/* More than the sockets hold, to a daemon that does not read yet. */
static void a_full_socket_is_continued(void **state)
{
	struct rpc_fix *x = *state;
	enum { CALLS = 24, SIZE = 1 << 20 };
	static struct test_call t[CALLS];
	struct iovec iov[CALLS];
	uint8_t *data = malloc(SIZE + CALLS);
	struct frame *f;

	for (int i = 0; i < SIZE + CALLS; i++)
		data[i] = (uint8_t)(i * 31 >> 4);
	for (uint64_t i = 0; i < CALLS; i++) {
		rpc_call_make(&t[i], i, 0, 0);
		iov[i] = (struct iovec){ data + i, SIZE };
		t[i].rpc.iov = &iov[i];
		t[i].rpc.iov_count = 1;
		t[i].rpc.data_len = SIZE;
		rpc_send(x->p, &t[i].rpc);
	}
	for (uint64_t i = 0; i < CALLS; i++) {
		f = tcp_recv(&x->c);
		assert_int_equal(rpc_fix_number(f), i);
		assert_memory_equal(f->data, data + i, SIZE);
		tcp_answer(&x->c, f, 0);
		frame_free(f);
	}
	rpc_log_wait('c', CALLS);
	free(data);
}

/* Its memory goes back to the caller, so the rest cannot be sent. */
static void a_deadline_in_the_middle_of_sending_resets(void **state)
{
	struct rpc_fix *x = *state;
	enum { CALLS = 24, SIZE = 1 << 20 };
	static struct test_call t[CALLS];
	uint8_t *data = calloc(1, SIZE);
	struct iovec iov = { data, SIZE };
	struct frame *f;
	int sent = 0;

	for (uint64_t i = 0; i < CALLS; i++) {
		rpc_call_make(&t[i], i, RPC_F_RETRY, 100);
		t[i].rpc.iov = &iov;
		t[i].rpc.iov_count = 1;
		t[i].rpc.data_len = SIZE;
		rpc_send(x->p, &t[i].rpc);
	}
	rpc_log_wait('c', CALLS);
	for (int i = 0; i < CALLS; i++)
		assert_int_equal(rpc_log_status('c', i), -ETIMEDOUT);
	while ((f = tcp_recv_or_end(&x->c)) != NULL) {
		frame_free(f);
		sent++;
	}
	assert_in_range(sent, 1, CALLS - 1);
	tcp_close(&x->c);
	tcp_accept_hello(&x->s, &x->c, 0);
	rpc_call_make(&t[0], 0, 0, 0);
	rpc_send(x->p, &t[0].rpc);
	rpc_fix_serve(&x->c, 0);
	rpc_log_wait('c', CALLS + 1);
	free(data);
}

/* The first call that is sealed, and of which nothing is out, is late now. */
static void make_late(struct rpc_peer *p)
{
	struct rpc_call *c;

	pthread_mutex_lock(&p->lock);
	for (c = p->wait.head; c; c = c->priv_next)
		if (c->priv_state == (CALL_WAITING | CALL_SEALED) &&
		    (c != p->wait.head || p->send_off == 0))
			break;
	if (c)
		c->priv_deadline_ms = rpc_now_ms();
	pthread_mutex_unlock(&p->lock);
	assert_non_null(c);
	atomic_store(&p->net->deadline_ms, 1);
	rpc_net_wake(p->net, 0);
}

static bool is_full(struct rpc_peer *p)
{
	bool full;

	pthread_mutex_lock(&p->lock);
	full = !p->sending && p->send_full;
	pthread_mutex_unlock(&p->lock);
	return full;
}

/* It has its number in the stream: the stream cannot go on without it. */
static void what_is_sealed_is_not_taken_back(void **state)
{
	enum { CALLS = 800, SIZE = 60 << 10 };
	static struct test_call t[CALLS];
	static uint8_t data[SIZE];
	struct rpc_fix *x = *state;
	static struct iovec iov = { data, SIZE };
	struct frame *f;

	for (uint64_t i = 0; i < CALLS; i++) {
		rpc_call_make(&t[i], i, 0, 0);
		t[i].rpc.iov = &iov;
		t[i].rpc.iov_count = 1;
		t[i].rpc.data_len = SIZE;
		rpc_queue(x->p, &t[i].rpc);
	}
	rpc_kick(x->p);
	while (!is_full(x->p))
		usleep(1000);
	make_late(x->p);
	rpc_log_wait('d', 1);
	assert_int_equal(rpc_log_status('d', 0), -ETIMEDOUT);
	while ((f = tcp_recv_or_end(&x->c)) != NULL)
		frame_free(f);
	tcp_close(&x->c);
	/* The others go over the next connection, or are told. */
	tcp_accept_hello(&x->s, &x->c, 0);
	f = tcp_recv(&x->c);
	frame_free(f);
}

/* Each also with a peer whose answers callers may take in, and with frames that
 * are sealed. */
#define t(fn)                                                                \
	cmocka_unit_test_setup_teardown(fn, rpc_fix_setup, rpc_fix_teardown), \
	{ #fn " (helped)", fn, rpc_fix_setup_helped, rpc_fix_teardown, NULL }, \
	sealed(fn)
#define sealed(fn)                                                           \
	{ #fn " (mac)", fn, rpc_fix_setup_mac, rpc_fix_teardown, NULL },     \
	{ #fn " (crypt)", fn, rpc_fix_setup_crypt, rpc_fix_teardown, NULL }

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(a_connection_cut_in_a_frame_resends_in_order),
		t(calls_wait_for_a_daemon_that_is_away),
		t(a_corrupted_reply_breaks_the_connection),
		t(answers_to_other_questions_break_the_connection),
		t(a_reply_of_another_cluster_breaks_the_connection),
		t(a_refused_hello_is_told_and_tried_again),
		t(a_daemon_of_another_major_is_asked_rarely),
		t(a_daemon_whose_clock_went_back_catches_up),
		t(a_connection_that_answered_a_call_resets_the_delay),
		t(a_daemon_that_only_says_hello_is_asked_ever_less),
		t(first_calls_go_before_those_that_wait),
		t(first_calls_end_with_their_connection),
		t(a_reset_makes_a_newer_connection),
		t(who_moves_is_found_where_he_is),
		t(a_full_socket_is_continued),
		t(a_deadline_in_the_middle_of_sending_resets),
		sealed(what_is_sealed_is_not_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
