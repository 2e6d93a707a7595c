/* A log's writes go to stable storage before the fsync that usually follows
 * them, once that is known, and what fsync promises stays the same.
 *
 * Method: mini block daemons; nothing is old enough to be flushed by itself.
 */
#include "tests/lib/data_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define ROUNDS 5u /* enough to learn it */
#define SOON_MS 200u

struct log {
	struct dfix *d;
	struct core_file *f;
	uint64_t end;
};

static void log_open(struct log *l)
{
	l->d = dfix_new(NULL);
	l->f = d_create(l->d, "log");
	l->end = 0;
}

static void log_close(struct log *l)
{
	d_close(l->d, l->f);
	dfix_stop(l->d);
}

static void append(struct log *l)
{
	uint8_t p[100];

	d_fill(p, sizeof(p), l->end);
	assert_int_equal(d_write(l->d, l->f, l->end, p, sizeof(p), 0), 0);
	l->end += sizeof(p);
}

static void check_durable(struct log *l)
{
	uint8_t p[100];

	for (uint64_t at = 0; at < l->end; at += sizeof(p)) {
		d_fill(p, sizeof(p), at);
		d_check_durable(l->d, l->f, at, p, sizeof(p));
	}
}

static void rounds(struct log *l, unsigned count, unsigned writes)
{
	for (unsigned i = 0; i < count; i++) {
		for (unsigned k = 0; k < writes; k++)
			append(l);
		assert_int_equal(d_fsync(l->d, l->f), 0);
		check_durable(l);
	}
}

static uint64_t writes_sent(struct log *l)
{
	return d_received(l->d, WIRE_OP_BLK_WRITE);
}

static void stays_here(struct log *l)
{
	uint64_t before = writes_sent(l);

	append(l);
	pause_ms(SOON_MS);
	assert_int_equal(writes_sent(l), before);
}

static void goes_ahead(struct log *l)
{
	uint64_t before = writes_sent(l), syncs;

	append(l);
	wait_until(d_executed(l->d, WIRE_OP_BLK_WRITE) == before + 1);
	check_durable(l);
	/* Nothing is left to send for the fsync. */
	syncs = d_received(l->d, WIRE_OP_BLK_SYNC);
	assert_int_equal(d_fsync(l->d, l->f), 0);
	assert_int_equal(writes_sent(l), before + 1);
	assert_int_equal(d_received(l->d, WIRE_OP_BLK_SYNC), syncs);
}

static void test_one_write_a_sync(void **state)
{
	struct log l;

	(void)state;
	log_open(&l);
	/* Nothing is known yet. */
	stays_here(&l);
	rounds(&l, 1, 0);
	stays_here(&l);
	rounds(&l, 1, 0);
	rounds(&l, ROUNDS, 1);
	goes_ahead(&l);
	goes_ahead(&l);
	/* An fsync of nothing tells nothing. */
	rounds(&l, 2, 0);
	goes_ahead(&l);
	log_close(&l);
}

static void test_three_writes_a_sync(void **state)
{
	struct log l;

	(void)state;
	log_open(&l);
	rounds(&l, ROUNDS, 3);
	stays_here(&l);
	stays_here(&l);
	goes_ahead(&l);
	log_close(&l);
}

/* One flush too many, then it is learned again. */
static void test_a_wrong_guess_costs_one_flush(void **state)
{
	struct log l;
	uint64_t before;

	(void)state;
	log_open(&l);
	rounds(&l, ROUNDS, 1);
	before = writes_sent(&l);
	append(&l);
	wait_until(d_executed(l.d, WIRE_OP_BLK_WRITE) == before + 1);
	stays_here(&l);
	stays_here(&l);
	rounds(&l, 1, 0);
	stays_here(&l);
	rounds(&l, 1, 0);
	rounds(&l, ROUNDS, 1);
	goes_ahead(&l);
	log_close(&l);
}

static void test_many_writes_and_big_ones_wait(void **state)
{
	static uint8_t p[128 << 10];
	struct log l;
	uint64_t before;

	(void)state;
	log_open(&l);
	rounds(&l, ROUNDS, 6);
	before = writes_sent(&l);
	for (unsigned i = 0; i < 6; i++)
		append(&l);
	pause_ms(SOON_MS);
	assert_int_equal(writes_sent(&l), before);
	rounds(&l, 1, 0);
	rounds(&l, ROUNDS, 1);
	before = writes_sent(&l);
	assert_int_equal(d_write(l.d, l.f, l.end, p, sizeof(p), 0), 0);
	pause_ms(SOON_MS);
	assert_int_equal(writes_sent(&l), before);
	log_close(&l);
}

/* The daemons die with what went ahead: before they answered, and after. */
static void test_fsync_waits_for_what_went_ahead(void **state)
{
	struct fix_call *k;
	uint64_t before;
	struct log l;

	(void)state;
	log_open(&l);
	rounds(&l, ROUNDS, 1);
	before = writes_sent(&l);
	d_hold(l.d, WIRE_OP_BLK_WRITE, true);
	append(&l);
	wait_until(writes_sent(&l) == before + 1);
	k = d_fsync_start(l.d, l.f);
	assert_false(fix_call_wait(k, SOON_MS));
	d_hold(l.d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_durable(&l);

	d_hold_replies(l.d, WIRE_OP_BLK_WRITE, true);
	append(&l);
	wait_until(d_executed(l.d, WIRE_OP_BLK_WRITE) == before + 2);
	k = d_fsync_start(l.d, l.f);
	assert_false(fix_call_wait(k, SOON_MS));
	d_restart(l.d, true);
	d_hold_replies(l.d, WIRE_OP_BLK_WRITE, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_durable(&l);

	goes_ahead(&l);
	d_restart(l.d, true);
	assert_int_equal(d_fsync(l.d, l.f), 0);
	check_durable(&l);
	log_close(&l);
}

static void test_what_was_refused_ahead_fails_the_fsync(void **state)
{
	uint64_t before;
	struct log l;

	(void)state;
	log_open(&l);
	rounds(&l, ROUNDS, 1);
	before = writes_sent(&l);
	d_fail(l.d, WIRE_OP_BLK_WRITE, -ENOSPC, -1);
	append(&l);
	wait_until(writes_sent(&l) == before + 1 && d_held(l.d) == 0);
	assert_int_equal(d_fsync(l.d, l.f), -ENOSPC);
	d_fail(l.d, WIRE_OP_BLK_WRITE, -ENOSPC, 0);
	assert_int_equal(d_fsync(l.d, l.f), 0);
	check_durable(&l);
	assert_int_equal(core_flush_error(l.d->f.c, l.f), -ENOSPC);
	log_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_write_a_sync),
		cmocka_unit_test(test_three_writes_a_sync),
		cmocka_unit_test(test_a_wrong_guess_costs_one_flush),
		cmocka_unit_test(test_many_writes_and_big_ones_wait),
		cmocka_unit_test(test_fsync_waits_for_what_went_ahead),
		cmocka_unit_test(test_what_was_refused_ahead_fails_the_fsync),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
