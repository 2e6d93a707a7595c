/* Which peer's log a recovery takes.
 *
 * Method: replies to LOG_FENCE are made by hand, as a log daemon sends them,
 * and then damaged in one way each; choices are among answers given literally,
 * and among all combinations of a few.
 */
#include "fuse/core/log_choose.h"

#include "tests/lib/fail_malloc.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct log_choose_what what = {
	.cluster_id = 5, .ino = 6, .data_epoch = 7, .boot_id = 8
};

#define REGIONS_MAX 4u

/* A reply; blob() makes what it says of its regions. */
struct reply {
	struct log_reply lr;
	uint8_t held;
	uint32_t count;
	uint32_t index[REGIONS_MAX];
	uint8_t log2[REGIONS_MAX];
	uint8_t slots[REGIONS_MAX][LOG_SLOT_COUNT * LOG_SLOT_SIZE];
	uint8_t bytes[1024];
};

static void set_slot(struct reply *r, uint32_t i, uint32_t slot, uint64_t seq)
{
	struct log_slot s = { .cluster_id = what.cluster_id,
			      .ino = what.ino,
			      .epoch = what.data_epoch,
			      .index = r->index[i],
			      .end = LOG_DATA_OFF + 8 * (uint32_t)seq,
			      .seq = seq,
			      .length = 1000 + seq };

	log_slot_encode(&s, r->slots[i] + slot * LOG_SLOT_SIZE);
}

/* Regions 3, 4, 5: up to record 20, up to 31, empty. */
static void setup(struct reply *r)
{
	memset(r, 0, sizeof(*r));
	r->lr.boot_id = what.boot_id;
	r->held = LOG_HELD;
	r->count = 3;
	for (uint32_t i = 0; i < REGIONS_MAX; i++) {
		r->index[i] = 3 + i;
		r->log2[i] = LOG_REGION_LOG2_MIN;
	}
	set_slot(r, 0, 0, 20);
	set_slot(r, 0, 1, 17);
	set_slot(r, 1, 0, 30);
	set_slot(r, 1, 1, 31);
}

static int take_cut(struct log_answer *a, struct reply *r, uint32_t cut)
{
	struct log_fence_reply m = { .held = r->held, .count = r->count };
	struct wire_out o;

	wire_out_init(&o, r->bytes, sizeof(r->bytes));
	for (uint32_t i = 0; i < r->count; i++) {
		struct log_region g = { .index = r->index[i],
					.log2 = r->log2[i] };

		g.slots.p = r->slots[i];
		g.slots.len = LOG_SLOT_COUNT * LOG_SLOT_SIZE;
		log_region_encode(&o, &g);
	}
	m.regions.p = r->bytes;
	m.regions.len = (uint32_t)(o.len - cut);
	return log_answer_take(a, &what, &r->lr, &m);
}

static int take(struct log_answer *a, struct reply *r)
{
	return take_cut(a, r, 0);
}

static void lost(struct reply *r)
{
	struct log_answer a = { 0 };

	assert_int_equal(take(&a, r), 0);
	assert_int_equal(a.state, LOG_ANSWER_LOST);
	assert_null(a.regions);
}

/* ---- answers ---- */

static void an_answer_tells_how_far_each_region_reaches(void **state)
{
	struct log_answer a = { 0 };
	struct reply r;

	(void)state;
	setup(&r);
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.state, LOG_ANSWER_CONFIRMED);
	assert_int_equal(a.region_count, 3);
	assert_int_equal(a.regions[0].index, 3);
	assert_int_equal(a.regions[0].seq, 20);
	assert_int_equal(a.regions[0].slot, 0);
	assert_int_equal(a.regions[0].end, LOG_DATA_OFF + 160);
	assert_int_equal(a.regions[1].seq, 31);
	assert_int_equal(a.regions[1].slot, 1);
	assert_int_equal(a.regions[1].length, 1031);
	assert_int_equal(a.regions[2].seq, 0);
	assert_int_equal(a.regions[2].end, LOG_DATA_OFF);
	assert_int_equal(a.seq, 31);
	assert_int_equal(a.length, 1031);
	assert_false(a.torn);
	r.held = LOG_HELD_TORN;
	assert_int_equal(take(&a, &r), 0);
	assert_true(a.torn);
	assert_int_equal(a.seq, 31);
	r.held = LOG_HELD;
	/* Asked again: what it says now. */
	set_slot(&r, 2, 0, 40);
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.seq, 40);
	assert_false(a.torn);
	log_answer_fini(&a);
}

static void a_peer_that_never_had_any_has_an_empty_log(void **state)
{
	struct log_answer a = { 0 };
	struct reply r;

	(void)state;
	setup(&r);
	r.held = LOG_HELD_NONE;
	r.count = 0;
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.state, LOG_ANSWER_CONFIRMED);
	assert_int_equal(a.seq, 0);
	log_answer_fini(&a);
}

static void another_boot_or_one_that_gave_it_up_has_lost_it(void **state)
{
	struct log_answer a = { 0 };
	struct reply r;

	(void)state;
	setup(&r);
	r.lr.boot_id = 9;
	lost(&r);
	setup(&r);
	r.held = LOG_HELD_GIVEN_UP;
	lost(&r);
	r.count = 0;
	lost(&r);
	r.held = 77;
	lost(&r);
	setup(&r);
	r.held = LOG_HELD_NONE;
	lost(&r);
	/* For good. */
	setup(&r);
	r.lr.boot_id = 9;
	assert_int_equal(take(&a, &r), 0);
	r.lr.boot_id = what.boot_id;
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.state, LOG_ANSWER_LOST);
}

static void regions_that_cannot_be_are_lost(void **state)
{
	struct reply r;

	(void)state;
	setup(&r);
	r.index[2] = 6; /* a gap */
	lost(&r);
	setup(&r);
	r.index[1] = 3; /* twice */
	lost(&r);
	setup(&r);
	r.log2[1]++;
	lost(&r);
	setup(&r);
	r.log2[0] = r.log2[1] = r.log2[2] = LOG_REGION_LOG2_MAX + 1;
	lost(&r);
	setup(&r);
	set_slot(&r, 2, 0, 40);
	memset(r.slots[1], 0, sizeof(r.slots[1])); /* empty between full */
	lost(&r);
	setup(&r);
	set_slot(&r, 2, 0, 31); /* backwards */
	lost(&r);
	setup(&r);
	r.index[1] = 5; /* the slots are of region 4 */
	r.index[2] = 6;
	lost(&r);
}

static void a_slot_of_another_log_is_lost(void **state)
{
	struct log_slot s = { .cluster_id = what.cluster_id,
			      .ino = what.ino,
			      .epoch = what.data_epoch,
			      .index = 5,
			      .end = LOG_DATA_OFF + 48,
			      .seq = 40 };

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct log_slot t = s;
		struct reply r;

		setup(&r);
		t.cluster_id += i == 1;
		t.ino += i == 2;
		t.epoch -= i == 3;
		if (i == 4)
			t.end = (1u << LOG_REGION_LOG2_MIN) + 8;
		log_slot_encode(&t, r.slots[2]);
		if (i > 0) {
			lost(&r);
		} else {
			struct log_answer a = { 0 };

			assert_int_equal(take(&a, &r), 0);
			assert_int_equal(a.seq, 40);
			log_answer_fini(&a);
		}
	}
}

static void each_damaged_bit_of_a_slot_makes_it_lost(void **state)
{
	(void)state;
	for (uint32_t slot = 0; slot < 2; slot++)
		for (uint32_t bit = 0; bit < LOG_SLOT_SIZE * 8; bit++) {
			struct reply r;

			setup(&r);
			r.slots[1][slot * LOG_SLOT_SIZE + bit / 8] ^=
				(uint8_t)(1u << bit % 8);
			lost(&r);
		}
}

static void a_reply_that_is_cut_is_lost(void **state)
{
	struct reply r;

	(void)state;
	setup(&r);
	for (uint32_t cut = 1; cut < 3 * (128 + 9); cut++) {
		struct log_answer a = { 0 };

		assert_int_equal(take_cut(&a, &r, cut), 0);
		assert_int_equal(a.state, LOG_ANSWER_LOST);
	}
	r.count = LOG_REGION_COUNT_MAX + 1;
	for (uint32_t i = 0; i < 2; i++) {
		struct log_fence_reply m = { .held = LOG_HELD,
					     .count = r.count - i };
		struct log_answer a = { 0 };

		assert_int_equal(log_answer_take(&a, &what, &r.lr, &m), 0);
		assert_int_equal(a.state, LOG_ANSWER_LOST);
	}
}

static void without_memory_an_answer_stays(void **state)
{
	struct log_answer a = { 0 };
	struct reply r;

	(void)state;
	setup(&r);
	fail_malloc_at(1);
	assert_int_equal(take(&a, &r), -ENOMEM);
	fail_malloc_at(0);
	assert_int_equal(a.state, LOG_ANSWER_NONE);
	assert_int_equal(take(&a, &r), 0);
	set_slot(&r, 2, 0, 40);
	fail_malloc_at(1);
	assert_int_equal(take(&a, &r), -ENOMEM);
	fail_malloc_at(0);
	assert_int_equal(a.seq, 31);
	log_answer_fini(&a);
}

static void empty_regions_before_the_first_record_are_nothing(void **state)
{
	struct log_answer a = { 0 };
	struct reply r;

	(void)state;
	setup(&r);
	memset(r.slots[0], 0, sizeof(r.slots[0]));
	r.index[0] = 1; /* nor is a gap behind them */
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.state, LOG_ANSWER_CONFIRMED);
	assert_int_equal(a.region_count, 2);
	assert_int_equal(a.regions[0].index, 4);
	memset(r.slots[1], 0, sizeof(r.slots[1]));
	assert_int_equal(take(&a, &r), 0);
	assert_int_equal(a.state, LOG_ANSWER_CONFIRMED);
	assert_int_equal(a.region_count, 0);
	assert_int_equal(a.seq, 0);
	log_answer_fini(&a);
}

/* ---- choices ---- */

#define NONE (-2)
#define LOST (-1)
#define TORN(seq) (1000 + (seq))

static enum log_choice choose(const int *seqs, uint32_t count, uint32_t *index)
{
	struct log_answer a[LOG_PEER_COUNT_MAX] = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		a[i].state = seqs[i] == NONE ? LOG_ANSWER_NONE :
			     seqs[i] == LOST ? LOG_ANSWER_LOST :
					       LOG_ANSWER_CONFIRMED;
		a[i].seq = seqs[i] > 0 ? (uint64_t)seqs[i] % 1000 : 0;
		a[i].torn = seqs[i] >= 1000;
	}
	return log_choose(a, count, index);
}

#define CHOOSE(index, ...)                   \
	choose((const int[]){ __VA_ARGS__ }, \
	       array_count(((const int[]){ __VA_ARGS__ })), (index))

static void the_largest_sequence_wins(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, 5, 7, 7), LOG_CHOICE_PEER);
	assert_int_equal(i, 1);
	assert_int_equal(CHOOSE(&i, 7, NONE, 7), LOG_CHOICE_PEER);
	assert_int_equal(i, 0);
	assert_int_equal(CHOOSE(&i, 1), LOG_CHOICE_PEER);
	assert_int_equal(CHOOSE(&i, 0, 0, 1, 1, 1), LOG_CHOICE_PEER);
	assert_int_equal(i, 2);
}

static void what_a_minority_has_is_to_be_staged(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, 7, NONE, 6), LOG_CHOICE_STAGE);
	assert_int_equal(i, 0);
	assert_int_equal(CHOOSE(&i, NONE, 0, 7), LOG_CHOICE_STAGE);
	assert_int_equal(i, 2);
	assert_int_equal(CHOOSE(&i, 7, LOST, 3), LOG_CHOICE_STAGE);
	assert_int_equal(CHOOSE(&i, 7, 7, 3, 3, NONE), LOG_CHOICE_STAGE);
}

/* When all have confirmed it is known that nobody was told of it. */
static void what_a_minority_of_all_has_is_left(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, 5, 7, 6), LOG_CHOICE_PEER);
	assert_int_equal(i, 2);
	assert_int_equal(CHOOSE(&i, 7, 0, 6), LOG_CHOICE_PEER);
	assert_int_equal(i, 2);
	assert_int_equal(CHOOSE(&i, 7, 7, 3, 4, 3), LOG_CHOICE_PEER);
	assert_int_equal(i, 3);
	assert_int_equal(CHOOSE(&i, 0, 0, 1), LOG_CHOICE_EMPTY);
	assert_int_equal(CHOOSE(&i, 7, 6, TORN(6)), LOG_CHOICE_STAGE);
	assert_int_equal(i, 0);
}

/* It may have had more: others are to be asked, as long as there are any. */
static void an_end_that_is_not_sure_is_taken_last(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, TORN(5), 4, NONE), LOG_CHOICE_TORN);
	assert_int_equal(i, 0);
	assert_int_equal(CHOOSE(&i, TORN(7), TORN(7), NONE), LOG_CHOICE_TORN);
	assert_int_equal(CHOOSE(&i, TORN(5), NONE, NONE), LOG_CHOICE_WAIT);
	assert_int_equal(CHOOSE(&i, TORN(5), 7, 7), LOG_CHOICE_PEER);
	assert_int_equal(i, 1);
	assert_int_equal(CHOOSE(&i, TORN(5), 4, 4), LOG_CHOICE_STAGE);
	assert_int_equal(i, 0);
	assert_int_equal(CHOOSE(&i, TORN(5), 4, LOST), LOG_CHOICE_STAGE);
	assert_int_equal(CHOOSE(&i, TORN(5), TORN(5), LOST), LOG_CHOICE_PEER);
	assert_int_equal(CHOOSE(&i, TORN(5), 5, 5, 5, NONE), LOG_CHOICE_PEER);
}

static void fewer_than_a_majority_decide_nothing(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, NONE, NONE, NONE), LOG_CHOICE_WAIT);
	assert_int_equal(CHOOSE(&i, 7, NONE, NONE), LOG_CHOICE_WAIT);
	assert_int_equal(CHOOSE(&i, 7, NONE, LOST), LOG_CHOICE_WAIT);
	assert_int_equal(CHOOSE(&i, 7, LOST, LOST), LOG_CHOICE_LOST);
	assert_int_equal(CHOOSE(&i, NONE, LOST, LOST), LOG_CHOICE_LOST);
	assert_int_equal(CHOOSE(&i, LOST), LOG_CHOICE_LOST);
	assert_int_equal(CHOOSE(&i, 7, 7, LOST, LOST, NONE), LOG_CHOICE_WAIT);
	assert_int_equal(CHOOSE(&i, 7, 7, LOST, LOST, LOST), LOG_CHOICE_LOST);
	assert_int_equal(i, 9);
}

static void a_majority_of_empty_logs_is_an_empty_log(void **state)
{
	uint32_t i = 9;

	(void)state;
	assert_int_equal(CHOOSE(&i, 0, 0, NONE), LOG_CHOICE_EMPTY);
	assert_int_equal(CHOOSE(&i, 0, 0, LOST), LOG_CHOICE_EMPTY);
	assert_int_equal(CHOOSE(&i, 0, NONE, 1), LOG_CHOICE_STAGE);
	assert_int_equal(i, 2);
}

/* Whatever a majority of five had acknowledged, and whichever two of them (or
 * none) have lost it or are silent: what is chosen has it. */
static void what_a_majority_had_is_chosen_with_any_two_missing(void **state)
{
	(void)state;
	for (uint32_t seqs = 0; seqs < 4 * 4 * 4 * 4 * 4; seqs++)
		for (uint32_t gone = 0; gone <= 25; gone++) {
			int all[5], seen[5];
			uint32_t index = 0;

			for (uint32_t i = 0; i < 5; i++) {
				all[i] = seqs >> 2 * i & 3;
				seen[i] = gone == 25	? all[i] :
					  i == gone % 5 ? NONE :
					  i == gone / 5 ? LOST :
							  all[i];
			}
			for (int c = 1; c <= 3; c++) {
				uint32_t have = 0;
				enum log_choice k;

				for (uint32_t i = 0; i < 5; i++)
					have += all[i] >= c;
				if (have < 3)
					continue;
				k = choose(seen, 5, &index);
				assert_true(k == LOG_CHOICE_PEER ||
					    k == LOG_CHOICE_STAGE);
				assert_true(seen[index] >= c);
			}
		}
}

static void the_longest_can_be_salvaged(void **state)
{
	struct log_answer a[3] = { { .state = LOG_ANSWER_LOST },
				   { .state = LOG_ANSWER_CONFIRMED, .seq = 4 },
				   { .state = LOG_ANSWER_LOST } };

	(void)state;
	assert_int_equal(log_choose_salvage(a, 3), 1);
	a[2] = (struct log_answer){ .state = LOG_ANSWER_CONFIRMED, .seq = 5 };
	assert_int_equal(log_choose_salvage(a, 3), 2);
	a[1].seq = a[2].seq = 0;
	assert_int_equal(log_choose_salvage(a, 3), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_tells_how_far_each_region_reaches),
		cmocka_unit_test(a_peer_that_never_had_any_has_an_empty_log),
		cmocka_unit_test(
			another_boot_or_one_that_gave_it_up_has_lost_it),
		cmocka_unit_test(regions_that_cannot_be_are_lost),
		cmocka_unit_test(
			empty_regions_before_the_first_record_are_nothing),
		cmocka_unit_test(a_slot_of_another_log_is_lost),
		cmocka_unit_test(each_damaged_bit_of_a_slot_makes_it_lost),
		cmocka_unit_test(a_reply_that_is_cut_is_lost),
		cmocka_unit_test(without_memory_an_answer_stays),
		cmocka_unit_test(the_largest_sequence_wins),
		cmocka_unit_test(what_a_minority_has_is_to_be_staged),
		cmocka_unit_test(what_a_minority_of_all_has_is_left),
		cmocka_unit_test(an_end_that_is_not_sure_is_taken_last),
		cmocka_unit_test(fewer_than_a_majority_decide_nothing),
		cmocka_unit_test(a_majority_of_empty_logs_is_an_empty_log),
		cmocka_unit_test(
			what_a_majority_had_is_chosen_with_any_two_missing),
		cmocka_unit_test(the_longest_can_be_salvaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
