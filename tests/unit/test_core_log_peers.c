/* Peers of a log that go, want their memory back, or talk nonsense: each is
 * replaced while writes go on, and at no moment is something answered that a
 * recovery would not find.
 *
 * Method: as in test_core_log.c; the publication of the new list is stopped,
 * refused and forgotten at metad.
 */
#include "tests/lib/log_mount.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LEN 1000u
#define NOT_MS 60u

static const struct dfix_options four = { .logd_count = 4 };

/* A log with @count records at daemons 1 to 3; the fourth is for later. */
static struct lmount *begun(uint32_t count, struct core_file **f)
{
	struct lmount *m = lm_new(&four, "destage=close");

	lm_tell(m, 3, false);
	*f = lm_create(m, "f");
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(lm_write(m, *f, i * LEN, LEN, i), 0);
	wait_until(lm_have(m, core_file_ino(*f), count) == 3);
	lm_tell(m, 3, true);
	return m;
}

static void check_all(struct lmount *m, uint32_t count)
{
	struct core_file *f = lm_open(m, m->dir, "f");

	for (uint32_t i = 0; i < count; i++)
		lm_check(m, f, i * LEN, LEN, i);
	assert_int_equal(d_size(m->d, f), count * LEN);
	d_close(m->d, f);
}

/* The client dies; @gone, too. */
static void check_after_death(struct lmount *m, uint32_t count, uint32_t gone)
{
	lm_kill(m);
	mini_logd_down(m->d->l[gone]);
	assert_int_equal(lm_start(m), 0);
	check_all(m, count);
	mini_logd_up(m->d->l[gone], true);
	lm_stop(m);
}

static bool replaced(struct lmount *m, uint64_t ino, uint32_t id)
{
	return lm_listed(m, ino, 4) && !lm_listed(m, ino, id);
}

/* ---- why ---- */

static void test_a_peer_that_is_gone_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(100, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	for (uint32_t i = 100; i < 110; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	wait_until(replaced(m, ino, 3));
	wait_until(mini_logd_seq(m->d->l[3], ino) == 110);
	assert_int_equal(lm_write(m, f, 110 * LEN, LEN, 110), 0);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m, 111, 0);
}

static void test_a_peer_that_came_back_empty_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	mini_logd_restart(m->d->l[1]);
	lm_tell(m, 1, false);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(replaced(m, ino, 2));
	assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
	check_after_death(m, 22, 0);
}

/* There is no other: it takes its own place. */
static void test_a_peer_that_came_back_empty_may_replace_itself(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	mini_logd_restart(m->d->l[1]);
	lm_tell(m, 1, true);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(mini_logd_seq(m->d->l[1], ino) == 21);
	wait_until(lm_count(m, replaced) == 1);
	check_after_death(m, 21, 0);
}

/* A machine went, another has its place, with another address. */
static void test_a_peer_may_come_back_elsewhere(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");
	uint64_t ino = core_file_ino(f);
	struct mini_logd *old = m->d->l[1];

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	mini_logd_down(old);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	m->d->l[1] = mini_logd_new(2, mini_metad_cluster_id(m->d->f.m),
				   4u << 20);
	mini_logd_restart(m->d->l[1]); /* another boot id than @old */
	lm_tell(m, 1, true);
	wait_until(mini_logd_seq(m->d->l[1], ino) == 21);
	wait_until(lm_count(m, replaced) == 1);
	assert_int_equal(mini_logd_violations(old), 0);
	mini_logd_free(old);
	check_after_death(m, 21, 0);
}

/* Over TCP, after RDMA did not work: nothing is wrong with it. */
static void test_a_peer_that_fell_back_to_tcp_stays(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	struct core *c = m->d->f.c;

	(void)state;
	core_lock(c);
	log_link_lost(f->in->log, 1, false, "the test says so");
	core_unlock(c);
	assert_int_equal(lm_field(m, f, links[1].trouble_ms), 0);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(lm_have(m, core_file_ino(f), 21) == 3);
	assert_int_equal(lm_count(m, replaced), 0);
	check_after_death(m, 21, 0);
}

/* As often as it may: each one is lost with its first post. Lock held. */
static void lose_connections(struct core_file *f, uint32_t peer)
{
	struct log_link *l = &f->in->log->links[peer];

	for (uint32_t i = 0; i < LOG_BREAKS_MAX; i++) {
		l->xport = &log_xport_verbs;
		log_link_lost(f->in->log, peer, true, "its key is not good");
		assert_null(l->xport);
	}
	l->xport = &log_xport_verbs;
}

/* It can be reached, and what it says of its memory is never right: each time
 * a connection is made again, but not for ever. */
static void test_a_peer_whose_key_is_never_good_is_written_over_tcp(
	void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	struct core *c = m->d->f.c;

	(void)state;
	mini_logd_hold(m->d->l[1], WIRE_OP_LOG_CONNECT, true);
	core_lock(c);
	lose_connections(f, 1);
	log_link_lost(f->in->log, 1, true, "its key is not good");
	assert_ptr_equal(f->in->log->links[1].xport, &log_xport_tcp);
	core_unlock(c);
	wait_until(mini_logd_held(m->d->l[1]) == LOG_BREAKS_MAX);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(lm_have(m, core_file_ino(f), 21) == 3);
	mini_logd_hold(m->d->l[1], 0, false);
	assert_int_equal(lm_count(m, replaced), 0);
	assert_int_equal(lm_count(m, failed_peers), 0);
	check_after_death(m, 21, 0);
}

/* Where the mount's option says so, another takes its place. */
static void test_a_peer_whose_key_is_never_good_is_none_without_tcp(
	void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	struct core *c = m->d->f.c;

	(void)state;
	mini_logd_hold(m->d->l[1], WIRE_OP_LOG_CONNECT, true);
	core_lock(c);
	lose_connections(f, 1);
	c->opt.log_transport = CORE_LOG_VERBS;
	log_link_lost(f->in->log, 1, true, "its key is not good");
	c->opt.log_transport = CORE_LOG_AUTO; /* for the other */
	assert_int_equal(f->in->log->w.peers[1].state, LOG_PEER_FAILED);
	core_unlock(c);
	wait_until(replaced(m, core_file_ino(f), 2));
	mini_logd_hold(m->d->l[1], 0, false);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(mini_logd_seq(m->d->l[3], core_file_ino(f)) == 21);
	assert_int_equal(lm_count(m, failed_peers), 1);
	check_after_death(m, 21, 0);
}

/* Metad believes that it is there, and it has the most memory: the next log
 * asks for others. */
static void test_a_peer_that_was_never_reached_is_not_chosen_again(void **state)
{
	struct lmount *m = lm_new(&four, "destage=close");
	struct core_file *f, *g;

	(void)state;
	lm_tell(m, 3, false);
	mini_logd_down(m->d->l[0]);
	f = lm_create(m, "f");
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	assert_true(lm_listed(m, core_file_ino(f), 1));
	lm_tell(m, 3, true);
	wait_until(replaced(m, core_file_ino(f), 1));
	g = lm_create(m, "g");
	assert_int_equal(lm_write(m, g, 0, LEN, 0), 0);
	assert_int_equal(lm_count(m, replaced), 1);
	assert_false(lm_listed(m, core_file_ino(g), 1));
	d_close(m->d, f);
	d_close(m->d, g);
	mini_logd_up(m->d->l[0], false);
	lm_stop(m);
}

static void test_a_peer_that_hangs_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);

	(void)state;
	mini_logd_hold(m->d->l[0], 0, true);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(replaced(m, core_file_ino(f), 1));
	assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
	/* What it still answers is nobody's. */
	mini_logd_hold(m->d->l[0], 0, false);
	for (uint32_t i = 22; i < 30; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	check_after_death(m, 30, 1);
}

/* Its answer comes after its place was taken by another. */
static void test_a_late_answer_of_a_replaced_peer_is_nobodys(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	mini_logd_hold_replies(m->d->l[0], WIRE_OP_LOG_WRITE, true);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(mini_logd_held(m->d->l[0]) > 0);
	wait_until(replaced(m, ino, 1));
	/* The next one takes the place that is free now. */
	mini_logd_down(m->d->l[1]);
	lm_tell(m, 1, false);
	assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
	mini_logd_hold_replies(m->d->l[0], 0, false);
	lm_tell(m, 0, true);
	wait_until(!lm_listed(m, ino, 2));
	assert_int_equal(lm_write(m, f, 22 * LEN, LEN, 22), 0);
	mini_logd_up(m->d->l[1], true);
	check_after_death(m, 23, 3);
}

static void test_a_late_refusal_of_a_replaced_peer_is_nobodys(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);

	(void)state;
	mini_logd_hold(m->d->l[0], WIRE_OP_LOG_WRITE, true);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(mini_logd_held(m->d->l[0]) > 0);
	mini_logd_reclaim(m->d->l[0]);
	lm_tell(m, 0, false);
	wait_until(lm_count(m, replaced) == 1);
	mini_logd_hold(m->d->l[0], 0, false);
	wait_until(mini_logd_held(m->d->l[0]) == 0);
	assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
	assert_int_equal(lm_count(m, failed_peers), 0);
	check_after_death(m, 22, 3);
}

static void test_a_peer_that_wants_its_memory_back_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	uint64_t ino = core_file_ino(f);
	struct lend_stats n;

	(void)state;
	mini_logd_drain(m->d->l[1], true);
	lm_tell(m, 1, false);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(replaced(m, ino, 2));
	/* It is not told to free what it is not listed with: it asks metad. */
	mini_logd_reclaim(m->d->l[1]);
	mini_logd_stats(m->d->l[1], &n);
	assert_int_equal(n.lent_bytes, 0);
	assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
	check_after_death(m, 22, 0);
}

/* A log that is not written hears of it by a ping. */
static void test_a_quiet_log_hears_that_memory_is_wanted_back(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);

	(void)state;
	mini_logd_drain(m->d->l[1], true);
	lm_tell(m, 1, false);
	wait_until(replaced(m, core_file_ino(f), 2));
	check_after_death(m, 20, 0);
}

static void test_a_peer_that_gave_its_memory_up_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);

	(void)state;
	mini_logd_reclaim(m->d->l[1]);
	lm_tell(m, 1, false);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(replaced(m, core_file_ino(f), 2));
	check_after_death(m, 21, 0);
}

static void test_a_peer_that_refuses_records_is_replaced(void **state)
{
	const int errs[] = { -ENOENT, -EBADMSG, -EPROTO, -EIDRM, -EIO,
			     -EPERM };

	(void)state;
	for (uint32_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		struct core_file *f;
		struct lmount *m = begun(20, &f);

		mini_logd_fail(m->d->l[1], WIRE_OP_LOG_WRITE, errs[i], -1);
		assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
		wait_until(replaced(m, core_file_ino(f), 2));
		assert_int_equal(lm_write(m, f, 21 * LEN, LEN, 21), 0);
		mini_logd_fail(m->d->l[1], 0, 0, 0);
		check_after_death(m, 22, 0);
	}
}

/* Metad believes that it has: it told so. */
static void test_a_peer_that_never_has_memory_is_replaced(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	uint64_t ino = core_file_ino(f);
	uint32_t i = 20;

	(void)state;
	mini_logd_fail(m->d->l[0], WIRE_OP_LOG_ALLOC, -ENOSPC, -1);
	/* The others are a majority; they need another region. */
	for (; i < 20 + 400; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	wait_until(replaced(m, ino, 1));
	wait_until(lm_have(m, ino, i) == 3);
	mini_logd_fail(m->d->l[0], 0, 0, 0);
	check_after_death(m, i, 1);
}

static void test_a_peer_that_talks_nonsense_is_replaced(void **state)
{
	const struct {
		uint16_t op;
		enum mini_logd_lie how;
	} lies[] = {
		{ WIRE_OP_LOG_WRITE, MINI_LOGD_EMPTY },
		{ WIRE_OP_LOG_WRITE, MINI_LOGD_SHORT },
		{ WIRE_OP_LOG_ALLOC, MINI_LOGD_EMPTY },
		{ WIRE_OP_LOG_ALLOC, MINI_LOGD_SHORT },
	};

	(void)state;
	for (uint32_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct core_file *f;
		struct lmount *m = begun(20, &f);

		mini_logd_lie(m->d->l[1], lies[i].op, lies[i].how, 1000000);
		/* Enough for another region. */
		for (uint32_t j = 20; j < 100; j++)
			assert_int_equal(lm_write(m, f, j * LEN, LEN, j), 0);
		wait_until(replaced(m, core_file_ino(f), 2));
		mini_logd_lie(m->d->l[1], 0, MINI_LOGD_EMPTY, 0);
		check_after_death(m, 100, 0);
	}
}

static void test_what_a_later_logd_appends_is_skipped(void **state)
{
	static const uint16_t ops[] = { WIRE_OP_LOG_WRITE, WIRE_OP_LOG_ALLOC };

	(void)state;
	for (uint32_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct core_file *f;
		struct lmount *m = begun(20, &f);
		uint64_t ino = core_file_ino(f);

		mini_logd_lie(m->d->l[1], ops[i], MINI_LOGD_LONG, 1000000);
		for (uint32_t j = 20; j < 100; j++)
			assert_int_equal(lm_write(m, f, j * LEN, LEN, j), 0);
		wait_until(lm_have(m, ino, 100) == 3);
		assert_false(replaced(m, ino, 2));
		mini_logd_lie(m->d->l[1], 0, MINI_LOGD_EMPTY, 0);
		check_after_death(m, 100, 0);
	}
}

static void test_nonsense_in_answer_to_a_ping_is_nothing(void **state)
{
	const enum mini_logd_lie lies[] = { MINI_LOGD_EMPTY, MINI_LOGD_SHORT,
					    MINI_LOGD_LONG,
					    MINI_LOGD_RANDOM };

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		struct core_file *f;
		struct lmount *m = begun(2, &f);

		for (uint32_t j = 0; j < 3; j++)
			mini_logd_lie(m->d->l[j], WIRE_OP_LOG_PING, lies[i],
				      1000);
		for (uint32_t j = 0; j < 3; j++) {
			uint64_t was = mini_logd_executed(m->d->l[j],
							  WIRE_OP_LOG_PING);

			wait_until(mini_logd_executed(m->d->l[j],
						      WIRE_OP_LOG_PING) > was);
		}
		assert_int_equal(lm_write(m, f, 2 * LEN, LEN, 2), 0);
		for (uint32_t j = 0; j < 3; j++)
			mini_logd_lie(m->d->l[j], 0, MINI_LOGD_EMPTY, 0);
		check_after_death(m, 3, 0);
	}
}

/* ---- the new one ---- */

static void test_nobody_to_replace_it_is_no_reason_to_stop(void **state)
{
	struct lmount *m = lm_new(NULL, "destage=close");
	struct core_file *f = lm_create(m, "f");

	(void)state;
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	for (uint32_t i = 1; i < 20; i++) {
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		pause_ms(100);
	}
	assert_int_equal(lm_count(m, fallbacks), 0);
	lm_remount(m);
	check_all(m, 20);
	mini_logd_up(m->d->l[2], true);
	lm_stop(m);
}

/* The one that shall replace it is no better. */
static void test_a_candidate_that_fails_is_given_up_for_another(void **state)
{
	const struct dfix_options five = { .logd_count = 5 };
	struct lmount *m = lm_new(&five, "destage=close");
	struct core_file *f;
	uint64_t ino;

	(void)state;
	lm_tell(m, 3, false);
	lm_tell(m, 4, false);
	f = lm_create(m, "f");
	ino = core_file_ino(f);
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	mini_logd_fail(m->d->l[3], WIRE_OP_LOG_WRITE, -EIO, -1);
	lm_tell(m, 3, true);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	for (uint32_t i = 1; i < 10; i++) {
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		pause_ms(150);
	}
	assert_false(lm_listed(m, ino, 4));
	lm_tell(m, 3, false);
	lm_tell(m, 4, true);
	wait_until(lm_listed(m, ino, 5) && !lm_listed(m, ino, 3));
	mini_logd_up(m->d->l[2], true);
	mini_logd_fail(m->d->l[3], 0, 0, 0);
	check_after_death(m, 10, 0);
}

/* One that gave the log up before will not take it again, and is still the
 * best that metad knows. */
static void test_a_candidate_that_fails_is_not_tried_for_ever(void **state)
{
	const struct dfix_options five = { .logd_count = 5 };
	struct lmount *m = lm_new(&five, "destage=close");
	struct core_file *f;
	uint64_t ino;

	(void)state;
	lm_tell(m, 3, false);
	lm_tell(m, 4, false);
	f = lm_create(m, "f");
	ino = core_file_ino(f);
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	for (uint32_t i = 3; i < 5; i++) {
		mini_logd_fail(m->d->l[i], WIRE_OP_LOG_ALLOC, -EIDRM, -1);
		lm_tell(m, i, true);
	}
	mini_logd_restart(m->d->l[0]);
	/* It has the least memory, and takes its own place. */
	mini_metad_logd(m->d->f.m, &(struct mini_metad_logd){
		.id = 1, .boot_id = mini_logd_boot_id(m->d->l[0]),
		.port = mini_logd_port(m->d->l[0]), .domain = "a",
		.free_bytes = 1u << 20, .there = true });
	wait_until(mini_logd_seq(m->d->l[0], ino) == 1);
	for (uint32_t i = 3; i < 5; i++)
		mini_logd_fail(m->d->l[i], 0, 0, 0);
	wait_until(lm_count(m, replaced) == 1);
	check_after_death(m, 1, 1);
}

/* It hangs instead: it must not stop what works without it. */
static void test_a_candidate_that_hangs_holds_nobody_up(void **state)
{
	const struct dfix_options five = { .logd_count = 5 };
	struct lmount *m = lm_new(&five, "destage=close");
	struct core_file *f;
	struct fix_call *k;
	uint64_t ino;

	(void)state;
	lm_tell(m, 3, false);
	lm_tell(m, 4, false);
	f = lm_create(m, "f");
	ino = core_file_ino(f);
	assert_int_equal(lm_write(m, f, 0, LEN, 0), 0);
	wait_until(lm_have(m, ino, 1) == 3);
	mini_logd_hold(m->d->l[3], WIRE_OP_LOG_WRITE, true);
	lm_tell(m, 3, true);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	wait_until(mini_logd_held(m->d->l[3]) > 0);
	/* Majorities of the old list and the new do without it. */
	k = lm_write_start(m, f, LEN, LEN, 1);
	assert_true(fix_call_wait(k, 500));
	assert_int_equal(fix_call_end(k, NULL), 0);
	lm_tell(m, 3, false);
	lm_tell(m, 4, true);
	wait_until(lm_listed(m, ino, 5) && !lm_listed(m, ino, 3));
	mini_logd_hold(m->d->l[3], 0, false);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m, 2, 0);
}

/* ---- the publication ---- */

/* Until its outcome is known both lists count: what only a majority of one of
 * them has is not answered. */
static void test_until_the_list_is_published_both_count(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(5, &f);
	uint64_t ino = core_file_ino(f);
	struct fix_call *k;

	(void)state;
	mini_metad_hold_replies(m->d->f.m, WIRE_OP_META_LOG_SET, true);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	wait_until(mini_metad_executed(m->d->f.m, WIRE_OP_META_LOG_SET) == 2);
	/* 1, 4: a majority of the new list alone. */
	mini_logd_hold(m->d->l[1], WIRE_OP_LOG_WRITE, true);
	k = lm_write_start(m, f, 5 * LEN, LEN, 5);
	wait_until(mini_logd_seq(m->d->l[0], ino) == 6 &&
		   mini_logd_seq(m->d->l[3], ino) == 6);
	assert_false(fix_call_wait(k, NOT_MS));
	mini_metad_hold_replies(m->d->f.m, 0, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	mini_logd_hold(m->d->l[1], 0, false);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m, 6, 0);
}

/* Killed before it heard: whichever list metad has, all is there. */
static void test_a_publication_without_an_answer(void **state)
{
	(void)state;
	for (uint32_t gone = 0; gone < 4; gone++) {
		struct core_file *f;
		struct lmount *m = begun(5, &f);

		mini_metad_hold_replies(m->d->f.m, WIRE_OP_META_LOG_SET,
					true);
		mini_logd_down(m->d->l[2]);
		lm_tell(m, 2, false);
		wait_until(mini_metad_executed(m->d->f.m,
					       WIRE_OP_META_LOG_SET) == 2);
		for (uint32_t i = 5; i < 10; i++)
			assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
		lm_kill(m);
		mini_metad_hold_replies(m->d->f.m, 0, false);
		if (gone != 2)
			mini_logd_down(m->d->l[gone]);
		assert_int_equal(lm_start(m), 0);
		check_all(m, 10);
		mini_logd_up(m->d->l[2], true);
		if (gone != 2)
			mini_logd_up(m->d->l[gone], true);
		lm_stop(m);
	}
}

/* Metad crashes and has forgotten it; it is asked again. */
static void test_a_publication_that_metad_forgets(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(5, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	assert_int_equal(op_fsync_dir(&m->d->f), 0);
	mini_metad_hold_durable(m->d->f.m, true);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	wait_until(mini_metad_executed(m->d->f.m, WIRE_OP_META_LOG_SET) == 2);
	assert_int_equal(lm_write(m, f, 5 * LEN, LEN, 5), 0);
	mini_metad_restart(m->d->f.m, true);
	assert_int_equal(lm_write(m, f, 6 * LEN, LEN, 6), 0);
	mini_metad_hold_durable(m->d->f.m, false);
	wait_until(replaced(m, ino, 3));
	assert_int_equal(lm_write(m, f, 7 * LEN, LEN, 7), 0);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m, 8, 0);
}

static void test_a_publication_that_is_refused_is_tried_again(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(5, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	mini_metad_fail(m->d->f.m, WIRE_OP_META_LOG_SET, -ENXIO, 1);
	mini_logd_down(m->d->l[2]);
	lm_tell(m, 2, false);
	assert_int_equal(lm_write(m, f, 5 * LEN, LEN, 5), 0);
	wait_until(replaced(m, ino, 3));
	assert_int_equal(lm_write(m, f, 6 * LEN, LEN, 6), 0);
	mini_logd_up(m->d->l[2], true);
	check_after_death(m, 7, 0);
}

/* It is published, and the answer says nothing: what only a majority of the old
 * list has is not answered, since a recovery asks the new one. */
static void test_a_publication_whose_outcome_is_not_known(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(5, &f);
	struct fix_call *k;

	(void)state;
	mini_metad_fail_done(m->d->f.m, WIRE_OP_META_LOG_SET, -EIO);
	mini_logd_hold(m->d->l[2], 0, true);
	assert_int_equal(lm_write(m, f, 5 * LEN, LEN, 5), 0);
	wait_until(mini_metad_executed(m->d->f.m, WIRE_OP_META_LOG_SET) == 2);
	mini_logd_hold(m->d->l[2], 0, false);
	/* 1, 3: a majority of the old one alone. */
	mini_logd_hold(m->d->l[1], 0, true);
	mini_logd_hold(m->d->l[3], 0, true);
	k = lm_write_start(m, f, 6 * LEN, LEN, 6);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	lm_kill(m);
	mini_logd_hold(m->d->l[1], 0, false);
	mini_logd_hold(m->d->l[3], 0, false);
	mini_logd_down(m->d->l[0]);
	assert_int_equal(lm_start(m), 0);
	check_all(m, 7);
	mini_logd_up(m->d->l[0], true);
	lm_stop(m);
}

static bool has_nothing(struct lmount *m, uint32_t i)
{
	struct lend_stats s;

	mini_logd_stats(m->d->l[i], &s);
	return s.lent_bytes == 0;
}

/* Nobody asks metad for it here. Later it takes part again. */
static void test_a_replaced_peer_is_told_that_it_can_go(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(20, &f);
	uint64_t ino = core_file_ino(f);

	(void)state;
	mini_logd_drain(m->d->l[0], true);
	lm_tell(m, 0, false);
	assert_int_equal(lm_write(m, f, 20 * LEN, LEN, 20), 0);
	wait_until(replaced(m, ino, 1));
	wait_until(has_nothing(m, 0));
	mini_logd_drain(m->d->l[0], false);
	lm_tell(m, 0, true);
	mini_logd_drain(m->d->l[1], true);
	lm_tell(m, 1, false);
	for (uint32_t i = 21; i < 30; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	wait_until(lm_listed(m, ino, 1) && !lm_listed(m, ino, 2));
	wait_until(has_nothing(m, 1));
	check_after_death(m, 30, 2);
}

static void test_logs_go_on_while_metad_is_away(void **state)
{
	struct core_file *f;
	struct lmount *m = begun(5, &f);

	(void)state;
	mini_metad_down(m->d->f.m);
	for (uint32_t i = 5; i < 100; i++)
		assert_int_equal(lm_write(m, f, i * LEN, LEN, i), 0);
	assert_int_equal(d_fsync(m->d, f), 0);
	mini_metad_up(m->d->f.m, false);
	check_after_death(m, 100, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_peer_that_is_gone_is_replaced),
		cmocka_unit_test(test_a_peer_that_came_back_empty_is_replaced),
		cmocka_unit_test(
			test_a_peer_that_came_back_empty_may_replace_itself),
		cmocka_unit_test(test_a_peer_may_come_back_elsewhere),
		cmocka_unit_test(test_a_peer_that_fell_back_to_tcp_stays),
		cmocka_unit_test(
			test_a_peer_whose_key_is_never_good_is_written_over_tcp),
		cmocka_unit_test(
			test_a_peer_whose_key_is_never_good_is_none_without_tcp),
		cmocka_unit_test(
			test_a_peer_that_was_never_reached_is_not_chosen_again),
		cmocka_unit_test(test_a_peer_that_hangs_is_replaced),
		cmocka_unit_test(
			test_a_late_answer_of_a_replaced_peer_is_nobodys),
		cmocka_unit_test(
			test_a_late_refusal_of_a_replaced_peer_is_nobodys),
		cmocka_unit_test(
			test_a_peer_that_wants_its_memory_back_is_replaced),
		cmocka_unit_test(
			test_a_quiet_log_hears_that_memory_is_wanted_back),
		cmocka_unit_test(
			test_a_peer_that_gave_its_memory_up_is_replaced),
		cmocka_unit_test(test_a_peer_that_refuses_records_is_replaced),
		cmocka_unit_test(test_a_peer_that_never_has_memory_is_replaced),
		cmocka_unit_test(test_a_peer_that_talks_nonsense_is_replaced),
		cmocka_unit_test(test_what_a_later_logd_appends_is_skipped),
		cmocka_unit_test(test_nonsense_in_answer_to_a_ping_is_nothing),
		cmocka_unit_test(
			test_nobody_to_replace_it_is_no_reason_to_stop),
		cmocka_unit_test(
			test_a_candidate_that_fails_is_given_up_for_another),
		cmocka_unit_test(
			test_a_candidate_that_fails_is_not_tried_for_ever),
		cmocka_unit_test(test_a_candidate_that_hangs_holds_nobody_up),
		cmocka_unit_test(test_until_the_list_is_published_both_count),
		cmocka_unit_test(test_a_publication_without_an_answer),
		cmocka_unit_test(test_a_publication_that_metad_forgets),
		cmocka_unit_test(
			test_a_publication_that_is_refused_is_tried_again),
		cmocka_unit_test(test_a_publication_whose_outcome_is_not_known),
		cmocka_unit_test(test_a_replaced_peer_is_told_that_it_can_go),
		cmocka_unit_test(test_logs_go_on_while_metad_is_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
