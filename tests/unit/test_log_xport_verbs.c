/* Records written into a peer's memory.
 *
 * Method: the transport with its thread, over a fake of the libraries in which
 * a write is a copy to what the test lends; the link above it is played here.
 * Each story is told again with each call failing, with each way in which a
 * completion can be bad, and with the device going away; whatever happens,
 * nothing is left over, and what was acknowledged is in the peer's memory.
 */
#include "tests/lib/fake_verbs.h"

#include <sys/mman.h>
#include <poll.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "common/clock.h"
#include "fuse/core/log_priv.h"

#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define INO 11u
#define EPOCH 3u
#define CLUSTER 7u
#define RECORDS 20u
#define BIG 3000u /* every third record: never inline */

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static struct story {
	struct core c;
	struct log_client client;
	struct log_file *lf;
	struct log_mirror *m;
	uint8_t *far; /* the peer's region */
	uint32_t key;
	uint32_t refs, mirrors; /* of lf; mirrors there */
	uint32_t connected, lost, posted;
	bool again, reconnect;
} s;

/* ---- what is around it ---- */

void core_lock(struct core *c)
{
	pthread_mutex_lock(&c->lock);
}

static struct core_deferred *deferred;

void core_unlock(struct core *c)
{
	struct core_deferred *d = deferred;

	deferred = NULL;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&c->lock);
	if (d)
		d->fn(d);
}

/* There is one. */
void core_defer(struct core *c, struct core_deferred *d)
{
	(void)c;
	assert_null(deferred);
	deferred = d;
}

/* Ten times as fast: who waits for an answer waits less. */
uint64_t core_now_ms(void)
{
	return clock_now_ns(CLOCK_MONOTONIC) / 100000;
}

void log_get(struct log_file *lf)
{
	(void)lf;
	s.refs++;
}

void log_put(struct log_file *lf)
{
	(void)lf;
	s.refs--;
}

void log_mirror_put(struct log_mirror *m)
{
	if (--m->refs > 0)
		return;
	log_verbs_mirror_end(m);
	s.mirrors--;
	(void)munmap(m, m->bytes);
}

void log_step(struct log_file *lf)
{
	struct log_link *l = &lf->links[0];

	while (l->xport && l->xport->post(lf, 0))
		;
}

void log_link_connected(struct log_file *lf, uint32_t peer)
{
	assert_int_equal(peer, 0);
	lf->links[0].xport = &log_xport_verbs;
	s.connected++;
	log_step(lf);
}

void log_link_posted(struct log_file *lf, uint32_t peer,
		     const struct log_post *p)
{
	assert_int_equal(peer, 0);
	log_writer_acked(&lf->w, p);
	s.posted++;
}

static void dial(void)
{
	s.lf->links[0].conn = log_verbs_connect(s.lf, 0, "10.0.0.1", 7, 99);
	assert_non_null(s.lf->links[0].conn);
}

void log_link_lost(struct log_file *lf, uint32_t peer, bool again,
		   const char *why)
{
	assert_int_equal(peer, 0);
	assert_non_null(why);
	lf->links[0].xport = NULL;
	lf->links[0].conn = NULL;
	s.again = again;
	s.lost++;
	log_writer_up(&lf->w, 0, 1);
	if (s.reconnect && again)
		dial();
}

/* ---- the story ---- */

static void setup(void)
{
	const struct log_writer_peer_id id = { .id = 1, .boot_id = 1 };
	size_t bytes = sizeof(struct log_mirror) + SIZE;
	uint32_t index;

	memset(&s, 0, sizeof(s));
	pthread_mutex_init(&s.c.lock, NULL);
	s.c.log = &s.client;
	s.client.c = &s.c;
	dlist_init(&s.client.files);
	s.lf = calloc(1, sizeof(*s.lf));
	s.lf->c = &s.c;
	s.lf->state = LOG_ACTIVE;
	dlist_add(&s.client.files, &s.lf->node);
	log_writer_init(&s.lf->w, CLUSTER, INO, EPOCH, 1, LOG2, &id, 1, 0);
	s.m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(s.m, MAP_FAILED);
	s.m->refs = 1;
	s.m->bytes = bytes;
	s.mirrors = 1;
	assert_int_equal(log_writer_region_add(&s.lf->w, s.m->base), 0);
	log_writer_up(&s.lf->w, 0, 1);
	assert_true(log_writer_alloc_next(&s.lf->w, 0, &index));
	log_writer_alloc_done(&s.lf->w, 0, index, 0);
	s.far = calloc(1, SIZE);
	s.key = fake_verbs_lend(s.far, SIZE);
	s.m->at[0] = (struct log_mirror_at){ (uintptr_t)s.far, s.key };
}

/* Whatever was, nothing is left over. */
static void teardown(void)
{
	struct fake_verbs_count n;

	core_lock(&s.c);
	if (s.lf->links[0].conn)
		log_verbs_close(s.lf->links[0].conn);
	s.lf->state = LOG_DEAD;
	dlist_del(&s.lf->node);
	log_mirror_put(s.m);
	core_unlock(&s.c);
	log_verbs_stop(&s.c);
	assert_null(s.client.verbs);
	assert_int_equal(s.refs, 0);
	assert_int_equal(s.mirrors, 0);
	n = fake_verbs_count();
	assert_int_equal(n.faults, 0);
	assert_int_equal(n.channels + n.ids + n.qps + n.cqs + n.comp_channels,
			 0);
	if (!fake_verbs_failed()) /* the call that failed may be to end one */
		assert_int_equal(n.pds + n.mrs, 0);
	log_writer_fini(&s.lf->w);
	free(s.lf);
	free(s.far);
	pthread_mutex_destroy(&s.c.lock);
}

static void append(void)
{
	static const uint8_t data[BIG] = { 1, 2, 3 };
	struct log_rec r = {
		.kind = LOG_REC_WRITE,
		.off = s.lf->w.length,
		.len = s.lf->w.seq % 3 == 2 ? BIG : 100,
		.data = data,
	};

	assert_int_equal(log_writer_append(&s.lf->w, &r), 0);
	log_step(s.lf);
}

static void let_go(void)
{
	core_unlock(&s.c);
	core_lock(&s.c);
}

/* Until it holds; lock held. False: for too long it did not. */
static bool await(const uint32_t *v, uint32_t at_least)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 20;
	let_go();
	while (*v < at_least)
		if (pthread_cond_timedwait(&changed, &s.c.lock, &t))
			return false;
	return true;
}

static bool all_acked(void)
{
	return s.lf->w.peers[0].acked.seq == s.lf->w.seq;
}

/* Until all is acknowledged, or a connection was lost for good. */
static void await_end(void)
{
	uint32_t n;

	let_go();
	for (n = 0; n < 1000 && !all_acked() && (!s.lost || s.reconnect) &&
		    (!s.lost || s.again || s.lf->links[0].conn); n++) {
		struct timespec t;

		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += 20000000;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		(void)pthread_cond_timedwait(&changed, &s.c.lock, &t);
	}
	assert_true(n < 1000);
}

/* What is acknowledged is there, with the slots that go with it. */
static void far_is_right(void)
{
	const struct log_pos *a = &s.lf->w.peers[0].acked;
	struct log_slot slot;

	if (a->seq == 0)
		return;
	assert_int_equal(log_slot_newest(s.far, &slot), 0);
	assert_true(slot.end >= a->slot_end);
	assert_memory_equal(s.far + LOG_DATA_OFF, s.m->base + LOG_DATA_OFF,
			    a->off - LOG_DATA_OFF);
}

static void tell(void)
{
	core_lock(&s.c);
	dial();
	for (uint32_t i = 0; i < RECORDS; i++) {
		append();
		if (i % 4 == 0)
			(void)await_end();
	}
	await_end();
	far_is_right();
	core_unlock(&s.c);
}

/* ---- tests ---- */

static void each_way(bool iwarp, uint32_t inline_max)
{
	struct fake_verbs_count n;

	fake_verbs_reset();
	fake_verbs_iwarp(iwarp);
	fake_verbs_inline_max(inline_max);
	setup();
	tell();
	assert_true(all_acked());
	assert_int_equal(s.lost, 0);
	n = fake_verbs_count();
	assert_int_equal(n.posts, s.posted);
	/* One of a post's requests is signalled. Only the first has a slot. */
	assert_int_equal(n.signalled, n.posts);
	assert_int_equal(n.wrs, n.posts * (iwarp ? 2 : 1) + 1);
	assert_int_equal(n.reads, iwarp ? n.posts : 0);
	if (inline_max < 64)
		assert_int_equal(n.inlines, 0);
	else
		assert_true(n.inlines > 0);
	teardown();
}

static void records_and_slots_arrive(void **state)
{
	(void)state;
	each_way(false, 512);
	each_way(false, 64);
	each_way(false, 0);
	each_way(true, 512);
	each_way(true, 0);
}

/* The k-th call fails: what is told of it is true. */
static void each_call_fails_once(void **state)
{
	static const uint32_t inlines[] = { 512, 0 };

	(void)state;
	for (unsigned v = 0; v < 2; v++) {
		for (uint64_t k = 1;; k++) {
			bool failed;

			fake_verbs_reset();
			fake_verbs_inline_max(inlines[v]);
			fake_verbs_iwarp(v == 1);
			setup();
			s.reconnect = true;
			fake_verbs_fail_at(k);
			tell();
			failed = fake_verbs_failed();
			assert_true(all_acked() || (s.lost && failed));
			teardown();
			if (!failed)
				break;
			assert_true(k < 1000);
		}
	}
}

static void a_bad_completion_ends_the_connection(void **state)
{
	(void)state;
	for (int st = IBV_WC_LOC_LEN_ERR; st <= IBV_WC_GENERAL_ERR; st++) {
		uint64_t before;

		fake_verbs_reset();
		setup();
		core_lock(&s.c);
		dial();
		append();
		assert_true(await(&s.posted, 1));
		before = s.lf->w.peers[0].acked.seq;
		fake_verbs_next_status((enum ibv_wc_status)st);
		append();
		append();
		assert_true(await(&s.lost, 1));
		assert_true(s.again);
		assert_int_equal(s.lf->w.peers[0].acked.seq, before);
		/* Over a new one the same is sent again. */
		dial();
		assert_true(await(&s.connected, 2));
		await_end();
		core_unlock(&s.c);
		teardown();
	}
}

static void a_key_that_was_taken_back_ends_the_connection(void **state)
{
	(void)state;
	fake_verbs_reset();
	setup();
	core_lock(&s.c);
	dial();
	append();
	assert_true(await(&s.posted, 1));
	fake_verbs_take_back(s.key);
	append(); /* both of its writes complete, and neither counts */
	assert_true(await(&s.lost, 1));
	assert_true(s.again);
	assert_int_equal(s.posted, 1);
	core_unlock(&s.c);
	teardown();
}

static void who_hangs_up_is_heard(void **state)
{
	static const enum rdma_cm_event_type types[] = {
		RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL,
	};

	(void)state;
	for (size_t i = 0; i < array_count(types); i++) {
		fake_verbs_reset();
		setup();
		core_lock(&s.c);
		dial();
		append();
		assert_true(await(&s.posted, 1));
		fake_verbs_hold(true);
		append();
		fake_verbs_event_all(types[i]);
		assert_true(await(&s.lost, 1));
		assert_int_equal(s.again,
				 types[i] == RDMA_CM_EVENT_DISCONNECTED);
		assert_int_equal(s.posted, 1);
		/* What completes late is of nobody. */
		fake_verbs_hold(false);
		core_unlock(&s.c);
		teardown();
	}
}

/* Who has posted need not wait for the thread. */
static void what_is_complete_is_taken_at_once(void **state)
{
	(void)state;
	fake_verbs_reset();
	setup();
	core_lock(&s.c);
	dial();
	assert_true(await(&s.connected, 1));
	log_verbs_look(&s.c);
	assert_int_equal(s.posted, 0);
	for (uint32_t i = 1; i <= 3; i++) {
		append(); /* the thread is locked out */
		log_verbs_look(&s.c);
		assert_int_equal(s.posted, i);
	}
	fake_verbs_next_status(IBV_WC_REM_ACCESS_ERR);
	append();
	log_verbs_look(&s.c);
	assert_int_equal(s.posted, 3);
	assert_true(await(&s.lost, 1));
	core_unlock(&s.c);
	teardown();
}

/* What is not complete when he looks wakes the thread, which had nothing to
 * wait for. */
static void what_is_complete_later_is_taken_too(void **state)
{
	(void)state;
	fake_verbs_reset();
	setup();
	core_lock(&s.c);
	dial();
	append();
	assert_true(await(&s.posted, 1));
	for (uint32_t i = 2; i <= 5; i++) {
		core_unlock(&s.c);
		(void)poll(NULL, 0, 30); /* it sleeps by now */
		core_lock(&s.c);
		fake_verbs_hold(true);
		append();
		let_go();
		assert_int_equal(s.posted, i - 1);
		fake_verbs_hold(false);
		assert_true(await(&s.posted, i));
	}
	core_unlock(&s.c);
	teardown();
}

/* The process's, while the test sleeps so long; lock held. */
static uint64_t cpu_ms_over(int ms)
{
	uint64_t was_ns, is_ns;

	core_unlock(&s.c);
	was_ns = clock_now_ns(CLOCK_PROCESS_CPUTIME_ID);
	(void)poll(NULL, 0, ms);
	is_ns = clock_now_ns(CLOCK_PROCESS_CPUTIME_ID);
	core_lock(&s.c);
	return (is_ns - was_ns) / 1000000;
}

/* A post that is not complete for now, and the thread awake. */
static void append_held(void)
{
	fake_verbs_hold(true);
	append();
	log_verbs_mirror_new(&s.c);
}

static void who_waits_for_long_sleeps(void **state)
{
	(void)state;
	for (int held = 0; held < 2; held++) {
		fake_verbs_reset();
		setup();
		core_lock(&s.c);
		dial();
		append();
		append();
		await_end();
		if (held)
			append_held();
		(void)cpu_ms_over(200);
		assert_true(cpu_ms_over(1000) < 100);
		fake_verbs_hold(false);
		await_end();
		assert_true(all_acked());
		core_unlock(&s.c);
		teardown();
	}
}

/* Of 24 posts that are each complete long after the thread has gone to sleep,
 * for how many it stayed awake: looked and looked, however much of the machine
 * it was given. Lock held. */
static uint32_t late_posts_awake(void)
{
	uint32_t awake = 0;

	for (uint32_t i = 0; i < 24; i++) {
		uint32_t was;

		append_held();
		was = fake_verbs_count().polls;
		(void)cpu_ms_over(40);
		/* 4 are enough to go to sleep and be woken. */
		awake += fake_verbs_count().polls - was > 6;
		fake_verbs_hold(false);
		await_end();
	}
	return awake;
}

static void staying_awake_ends_where_it_does_not_pay(void **state)
{
	uint32_t first;

	(void)state;
	fake_verbs_reset();
	assert_int_equal(setenv("HAILFS_SPIN_US", "20000", 1), 0);
	setup();
	core_lock(&s.c);
	dial();
	assert_true(await(&s.connected, 1));
	first = late_posts_awake();
	assert_true(first >= 8); /* of 16 */
	assert_true(late_posts_awake() <= first / 2);
	core_unlock(&s.c);
	teardown();
	assert_int_equal(unsetenv("HAILFS_SPIN_US"), 0);
}

/* A region's memory is made known without the lock, before a post wants it. */
static void a_mirror_is_known_before_it_is_sent_from(void **state)
{
	uint32_t n;

	(void)state;
	fake_verbs_reset();
	setup();
	core_lock(&s.c);
	dial();
	core_unlock(&s.c);
	for (n = 0; n < 2000 && fake_verbs_count().mrs == 0; n++)
		(void)poll(NULL, 0, 10);
	assert_int_equal(fake_verbs_count().mrs, 1);
	assert_int_equal(fake_verbs_count().posts, 0);
	teardown();
}

static void what_fails_in_the_device_is_heard(void **state)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_QP_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
	};

	(void)state;
	for (size_t i = 0; i < array_count(types); i++) {
		fake_verbs_reset();
		setup();
		core_lock(&s.c);
		dial();
		append();
		assert_true(await(&s.posted, 1));
		fake_verbs_hold(true);
		append();
		fake_verbs_async(IBV_EVENT_PORT_ERR); /* means nothing */
		fake_verbs_async(types[i]);
		assert_true(await(&s.lost, 1));
		assert_int_equal(s.again, types[i] == IBV_EVENT_QP_FATAL);
		assert_int_equal(s.posted, 1);
		fake_verbs_hold(false);
		core_unlock(&s.c);
		teardown();
		assert_int_equal(fake_verbs_count().async_events, 0);
	}
}

static void a_device_that_is_gone_is_not_used_again(void **state)
{
	(void)state;
	fake_verbs_reset();
	setup();
	core_lock(&s.c);
	dial();
	append();
	append();
	append(); /* from registered memory */
	assert_true(await(&s.posted, 1));
	await_end();
	fake_verbs_event_all(RDMA_CM_EVENT_DEVICE_REMOVAL);
	assert_true(await(&s.lost, 1));
	dial();
	assert_true(await(&s.lost, 2));
	assert_false(s.again);
	assert_int_equal(s.connected, 1);
	core_unlock(&s.c);
	teardown();
}

static void who_does_not_connect_is_given_up(void **state)
{
	const enum rdma_cm_event_type none = FAKE_SILENCE;
	const struct {
		enum rdma_cm_event_type addr, route, connects;
	} v[] = {
		{ RDMA_CM_EVENT_ADDR_ERROR, none, none },
		{ none, none, none },
		{ RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR,
		  none },
		{ RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED,
		  RDMA_CM_EVENT_REJECTED },
		{ RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED,
		  RDMA_CM_EVENT_UNREACHABLE },
	};

	(void)state;
	for (size_t i = 0; i < array_count(v); i++) {
		fake_verbs_reset();
		fake_verbs_answer(v[i].addr, v[i].route);
		fake_verbs_connects(v[i].connects);
		setup();
		core_lock(&s.c);
		dial();
		append();
		assert_true(await(&s.lost, 1));
		assert_false(s.again);
		assert_int_equal(s.connected, 0);
		core_unlock(&s.c);
		teardown();
	}
	fake_verbs_reset();
	fake_verbs_no_device();
	setup();
	core_lock(&s.c);
	dial();
	assert_true(await(&s.lost, 1));
	assert_false(log_verbs_maybe(&s.c));
	assert_null(log_verbs_connect(s.lf, 0, "10.0.0.1", 7, 9));
	core_unlock(&s.c);
	teardown();
}

static void it_may_be_closed_at_any_time(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		struct timespec t = { .tv_nsec = i * 20000 };

		fake_verbs_reset();
		setup();
		core_lock(&s.c);
		dial();
		append();
		append();
		append();
		core_unlock(&s.c);
		if (i % 2)
			fake_verbs_hold(true);
		nanosleep(&t, NULL);
		core_lock(&s.c);
		log_verbs_close(s.lf->links[0].conn);
		s.lf->links[0].conn = NULL;
		s.lf->links[0].xport = NULL;
		core_unlock(&s.c);
		teardown();
		assert_int_equal(s.lost, 0);
	}
}

/* Two posts are on their way at most, and all their completions find room. */
static void queues_are_not_overrun(void **state)
{
	struct log_conn *first, *other;

	(void)state;
	fake_verbs_reset();
	fake_verbs_cqe_max(6);
	setup();
	core_lock(&s.c);
	dial();
	assert_true(await(&s.connected, 1));
	fake_verbs_hold(true);
	for (unsigned i = 0; i < 10; i++)
		append();
	assert_int_equal(fake_verbs_count().posts, 2);
	/* There is no room for those of another connection. */
	first = s.lf->links[0].conn;
	other = log_verbs_connect(s.lf, 0, "10.0.0.1", 7, 98);
	assert_non_null(other);
	assert_true(await(&s.lost, 1));
	assert_false(s.again);
	s.lf->links[0].conn = first;
	core_unlock(&s.c);
	teardown();
	assert_true(fake_verbs_count().cq_depth_max <= 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_and_slots_arrive),
		cmocka_unit_test(each_call_fails_once),
		cmocka_unit_test(a_bad_completion_ends_the_connection),
		cmocka_unit_test(a_key_that_was_taken_back_ends_the_connection),
		cmocka_unit_test(who_hangs_up_is_heard),
		cmocka_unit_test(what_is_complete_is_taken_at_once),
		cmocka_unit_test(what_is_complete_later_is_taken_too),
		cmocka_unit_test(who_waits_for_long_sleeps),
		cmocka_unit_test(staying_awake_ends_where_it_does_not_pay),
		cmocka_unit_test(a_mirror_is_known_before_it_is_sent_from),
		cmocka_unit_test(what_fails_in_the_device_is_heard),
		cmocka_unit_test(a_device_that_is_gone_is_not_used_again),
		cmocka_unit_test(who_does_not_connect_is_given_up),
		cmocka_unit_test(it_may_be_closed_at_any_time),
		cmocka_unit_test(queues_are_not_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
