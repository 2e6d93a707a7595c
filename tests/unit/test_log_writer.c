/* The writer of a log.
 *
 * Method: small stories with three peers whose events the test tells; what is
 * asked for is compared literally, and bytes of posts with records decoded from
 * the mirror. tests/sim/sim_log.c has the long ones.
 */
#include "tests/lib/log_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- the stream ---- */

static void records_are_numbered_and_lie_one_behind_the_other(void **state)
{
	struct log_writer w;
	struct log_rec r = { .kind = LOG_REC_SIZE, .off = 100 };
	uint64_t next;

	(void)state;
	log_fix_setup(&w);
	assert_int_equal(log_fix_append(&w, 10), 0);
	assert_int_equal(w.length, LENGTH + 10);
	assert_int_equal(log_writer_append(&w, &r), 0);
	assert_int_equal(r.seq, 2);
	assert_int_equal(w.length, 100);
	assert_int_equal(log_fix_append_kind(&w, LOG_REC_ZERO, 50, 1000), 0);
	assert_int_equal(w.length, 100);
	assert_int_equal(log_fix_append_kind(&w, LOG_REC_WRITE, 20, 10), 0);
	assert_int_equal(w.length, 100);
	assert_int_equal(w.seq, 4);
	assert_int_equal(log_rec_walk(w.regions[0].base, LOG_DATA_OFF,
				      w.regions[0].end, 1, NULL, NULL, &next),
			 0);
	assert_int_equal(next, 5);
	log_fix_teardown(&w);
}

static void another_region_is_wanted_when_the_last_is_half_full(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	assert_false(log_writer_region_wanted(&w));
	while (w.regions[0].end + 1000 < SIZE / 2)
		log_fix_append_times(&w, 1);
	assert_false(log_writer_region_wanted(&w));
	log_fix_append_times(&w, 1);
	assert_true(log_writer_region_wanted(&w));
	log_fix_add_region(&w);
	assert_false(log_writer_region_wanted(&w));
	log_fix_teardown(&w);
	log_writer_init(&w, 1, 1, 1, 1, LOG2,
			(struct log_writer_peer_id[]){ { 1, 1 } }, 1, 0);
	assert_true(log_writer_region_wanted(&w));
	log_writer_seal(&w);
	assert_false(log_writer_region_wanted(&w));
	log_fix_teardown(&w);
}

static void no_record_crosses_regions_or_goes_back_to_one(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_append_times(&w, FULL);
	assert_int_equal(log_fix_append(&w, REC), -ENOSPC);
	assert_int_equal(w.seq, FULL);
	log_fix_add_region(&w);
	log_fix_append_times(&w, 1);
	assert_int_equal(log_fix_append(&w, 1), 0);
	assert_int_equal(w.regions[0].seq_first, 1);
	assert_int_equal(w.regions[0].seq_last, FULL);
	assert_int_equal(w.regions[1].seq_first, FULL + 1);
	assert_int_equal(w.regions[1].seq_last, FULL + 2);
	assert_int_equal(w.regions[1].length_first, LENGTH + FULL * REC);
	log_fix_teardown(&w);
}

static void room_is_what_a_record_may_have(void **state)
{
	struct log_writer w;
	uint32_t room;

	(void)state;
	log_fix_setup(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	assert_int_equal(log_fix_append(&w, log_writer_room(&w) + 1),
			 -EMSGSIZE);
	log_fix_append_times(&w, 5);
	room = log_writer_room(&w);
	assert_int_equal(log_fix_append(&w, room + 1), -ENOSPC);
	assert_int_equal(log_fix_append(&w, room), 0);
	assert_int_equal(log_writer_room(&w), 0);
	log_fix_add_region(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	log_fix_append_times(&w, 1);
	log_fix_add_region(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	assert_int_equal(log_fix_append(&w, log_writer_room(&w)), 0);
	assert_int_equal(w.regions[2].end, SIZE);
	log_fix_teardown(&w);
}

static void a_sealed_log_takes_and_sends_and_commits_nothing(void **state)
{
	struct log_writer w;
	struct log_post p[2];
	uint32_t index;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 0, &p[0]);
	log_fix_post(&w, 1, &p[1]);
	log_writer_seal(&w);
	assert_int_equal(log_fix_append(&w, 1), -EIO);
	assert_int_equal(log_writer_room(&w), 0);
	log_writer_acked(&w, &p[0]);
	log_writer_acked(&w, &p[1]);
	assert_int_equal(w.committed, 0);
	assert_false(log_writer_post_next(&w, 2, &p[0]));
	log_fix_add_region(&w);
	assert_false(log_writer_alloc_next(&w, 2, &index));
	assert_int_equal(
		log_writer_replace(&w, 2, (struct log_writer_peer_id){ 4, 1 }),
		-EIO);
	log_fix_teardown(&w);
}

/* ---- posts ---- */

static void same_post(const struct log_post *a, const struct log_post *b)
{
	assert_int_equal(a->peer, b->peer);
	assert_int_equal(a->index, b->index);
	assert_int_equal(a->off, b->off);
	assert_int_equal(a->len, b->len);
	assert_int_equal(a->slot_due, b->slot_due);
	assert_int_equal(a->slot_off, b->slot_off);
	assert_memory_equal(a->slot, b->slot, sizeof(a->slot));
	assert_int_equal(a->seq, b->seq);
}

static void a_post_has_all_that_is_there_and_its_slot_says_so(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 2);
	assert_int_equal(log_fix_append_kind(&w, LOG_REC_SIZE, 77, 0), 0);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.off, LOG_DATA_OFF);
	assert_int_equal(p.len, 2000 + LOG_REC_HEADER);
	assert_ptr_equal(p.data, w.regions[0].base + LOG_DATA_OFF);
	log_fix_slot_is(&p, 0, 3, 77);
	assert_false(log_writer_post_next(&w, 0, &p));
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.off, LOG_DATA_OFF + 2000 + LOG_REC_HEADER);
	log_fix_slot_is(&p, NOT_DUE, 4, 77 + REC);
	log_fix_teardown(&w);
}

/* With the first records of a region, and then by the bytes behind it, in turn;
 * what is sent again has it again. */
static void a_slot_comes_first_and_then_now_and_then(void **state)
{
	struct log_writer w;
	struct log_post p, q;
	uint32_t slot = 0;

	(void)state;
	log_fix_setup_log2(&w, 23);
	log_fix_up_three(&w);
	for (uint32_t i = 0; i < 30; i++) {
		bool due = i % 7 == 0; /* 6 * 10288 < 64 KiB */

		assert_int_equal(log_fix_append(&w, 10240), 0);
		log_fix_post(&w, 0, &p);
		log_fix_slot_is(&p, due ? slot : NOT_DUE, i + 1,
				LENGTH + (i + 1) * 10240);
		slot ^= due;
		log_writer_down(&w, 0);
		log_writer_up(&w, 0, 101);
		log_fix_post(&w, 0, &q);
		same_post(&q, &p);
		log_writer_acked(&w, &q);
	}
	/* One that was behind begins with a slot, whatever comes at once. */
	log_fix_post(&w, 1, &p);
	log_fix_slot_is(&p, 0, 30, LENGTH + 30 * 10240);
	log_fix_teardown(&w);
}

static void two_posts_are_in_flight_and_the_rest_goes_together(void **state)
{
	struct log_writer w;
	struct log_post p, q, r;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 0, &p);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 0, &q);
	log_fix_append_times(&w, 3);
	assert_false(log_writer_post_next(&w, 0, &r));
	log_writer_acked(&w, &p);
	log_fix_post(&w, 0, &r);
	assert_int_equal(r.len, 3000);
	log_fix_slot_is(&r, NOT_DUE, 5, LENGTH + 5 * REC);
	log_writer_acked(&w, &q);
	log_writer_acked(&w, &r);
	assert_int_equal(w.peers[0].acked.seq, 5);
	log_fix_teardown(&w);
}

static void a_post_ends_with_its_region(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	log_fix_setup(&w);
	log_fix_append_times(&w, FULL);
	log_fix_add_region(&w);
	log_fix_append_times(&w, 2);
	log_fix_up_three(&w);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.index, 0);
	log_fix_slot_is(&p, 0, FULL, LENGTH + FULL * REC);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.index, 1);
	assert_int_equal(p.off, LOG_DATA_OFF);
	log_fix_slot_is(&p, 0, FULL + 2, LENGTH + (FULL + 2) * REC);
	log_fix_teardown(&w);
}

static void a_post_is_bounded_but_for_one_record(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	log_fix_setup_log2(&w, 23);
	log_fix_up_three(&w);
	assert_int_equal(log_fix_append(&w, 2u << 20), 0);
	assert_int_equal(log_fix_append(&w, 600u << 10), 0);
	assert_int_equal(log_fix_append(&w, 300u << 10), 0);
	assert_int_equal(log_fix_append(&w, 300u << 10), 0);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.len, log_rec_size(2u << 20));
	log_writer_acked(&w, &p);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.seq, 3);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.seq, 4);
	log_fix_slot_is(&p, 0, 4, LENGTH + (3248u << 10));
	log_fix_teardown(&w);
}

/* ---- committed ---- */

static void a_record_is_committed_when_a_majority_has_its_prefix(void **state)
{
	struct log_writer w;
	struct log_post p[3];

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 0, &p[0]);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 1, &p[1]);
	log_fix_append_times(&w, 1);
	log_fix_post(&w, 2, &p[2]);
	log_writer_acked(&w, &p[2]);
	assert_int_equal(w.committed, 0);
	log_writer_acked(&w, &p[0]);
	assert_int_equal(w.committed, 1);
	log_writer_acked(&w, &p[1]);
	assert_int_equal(w.committed, 2);
	log_fix_teardown(&w);
}

static void a_failed_peer_does_not_count(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 0);
	log_writer_fail(&w, 0);
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, 0);
	log_fix_settle(&w, 2);
	assert_int_equal(w.committed, 1);
	/* What is committed stays so. */
	log_writer_fail(&w, 1);
	assert_int_equal(w.committed, 1);
	/* It does not come back. */
	log_writer_up(&w, 0, 101);
	assert_int_equal(w.peers[0].state, LOG_PEER_FAILED);
	log_fix_teardown(&w);
}

static void a_peer_that_is_down_has_what_it_acknowledged(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 0);
	log_writer_down(&w, 0);
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, 1);
	log_fix_teardown(&w);
}

static void a_majority_is_of_those_that_are_up(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up(&w, 0);
	assert_false(log_writer_majority(&w));
	log_fix_up(&w, 1);
	assert_true(log_writer_majority(&w));
	log_writer_down(&w, 0);
	assert_false(log_writer_majority(&w));
	log_fix_up(&w, 2);
	assert_true(log_writer_majority(&w));
	/* Both lists count. */
	assert_int_equal(
		log_writer_replace(&w, 1, (struct log_writer_peer_id){ 4, 1 }),
		3);
	assert_false(log_writer_majority(&w));
	log_fix_up(&w, 3);
	assert_true(log_writer_majority(&w));
	log_fix_teardown(&w);
}

/* ---- connections ---- */

static void the_same_boot_is_sent_the_same_posts_again(void **state)
{
	struct log_writer w;
	struct log_post p[3], q[3];

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	for (uint32_t i = 0; i < 3; i++) {
		log_fix_append_times(&w, 1);
		log_fix_post(&w, 0, &p[i]);
		if (i == 0)
			log_writer_acked(&w, &p[i]);
	}
	log_fix_append_times(&w, 4);
	for (uint32_t times = 0; times < 2; times++) {
		log_writer_down(&w, 0);
		assert_false(log_writer_post_next(&w, 0, &q[0]));
		log_writer_up(&w, 0, 101);
		log_fix_post(&w, 0, &q[1]);
		same_post(&q[1], &p[1]);
		/* The second is on the way, too, or not yet. */
		if (times == 1)
			log_fix_post(&w, 0, &q[2]);
	}
	same_post(&q[2], &p[2]);
	log_writer_acked(&w, &q[1]);
	log_writer_acked(&w, &q[2]);
	log_fix_post(&w, 0, &q[0]);
	assert_int_equal(q[0].len, 4000);
	log_fix_slot_is(&q[0], NOT_DUE, 7, LENGTH + 7 * REC);
	log_fix_teardown(&w);
}

static void another_boot_has_failed(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t index;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_writer_down(&w, 0);
	log_writer_up(&w, 0, 999);
	assert_int_equal(w.peers[0].state, LOG_PEER_FAILED);
	assert_false(log_writer_post_next(&w, 0, &p));
	log_fix_add_region(&w);
	assert_false(log_writer_alloc_next(&w, 0, &index));
	log_fix_teardown(&w);
}

/* ---- regions at peers ---- */

static void regions_are_asked_for_in_order_one_at_a_time(void **state)
{
	struct log_writer w;
	uint32_t index;

	(void)state;
	log_fix_setup(&w);
	log_fix_add_region(&w);
	assert_false(log_writer_alloc_next(&w, 0, &index));
	log_writer_up(&w, 0, 101);
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_int_equal(index, 0);
	assert_false(log_writer_alloc_next(&w, 0, &index));
	log_writer_alloc_done(&w, 0, 0, -ETIMEDOUT);
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_int_equal(index, 0);
	/* Asked again when the answer may have been lost. */
	log_writer_down(&w, 0);
	log_writer_up(&w, 0, 101);
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_int_equal(index, 0);
	log_writer_alloc_done(&w, 0, 0, 0);
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_int_equal(index, 1);
	log_writer_alloc_done(&w, 0, 1, 0);
	assert_false(log_writer_alloc_next(&w, 0, &index));
	log_fix_teardown(&w);
}

static void nothing_is_posted_to_a_region_that_is_not_lent(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t index;

	(void)state;
	log_fix_setup(&w);
	log_fix_append_times(&w, FULL);
	log_fix_add_region(&w);
	log_fix_append_times(&w, 1);
	log_writer_up(&w, 0, 101);
	assert_false(log_writer_post_next(&w, 0, &p));
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_false(log_writer_post_next(&w, 0, &p));
	log_writer_alloc_done(&w, 0, 0, 0);
	log_fix_post(&w, 0, &p);
	assert_false(log_writer_post_next(&w, 0, &p));
	log_fix_lend_all(&w, 0);
	log_fix_post(&w, 0, &p);
	assert_int_equal(p.index, 1);
	log_fix_teardown(&w);
}

/* ---- trimming ---- */

static void what_is_not_committed_is_not_trimmed(void **state)
{
	struct log_writer w;
	uint8_t *base;

	(void)state;
	log_fix_setup_two(&w);
	log_fix_settle(&w, 0);
	assert_null(log_writer_trim(&w, w.seq));
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, FULL + 1);
	assert_null(log_writer_trim(&w, FULL - 1));
	base = log_writer_trim(&w, w.seq);
	assert_non_null(base);
	free(base);
	assert_int_equal(w.region_first, 1);
	assert_null(log_writer_trim(&w, w.seq));
	log_fix_teardown(&w);
}

/* With the next one empty nothing else would tell the end. */
static void the_last_region_with_a_record_is_not_trimmed(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, FULL);
	log_fix_add_region(&w);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, FULL);
	assert_null(log_writer_trim(&w, w.seq));
	log_fix_append_times(&w, 1);
	log_fix_trim_one(&w);
	log_fix_teardown(&w);
}

static void what_is_being_sent_is_not_trimmed(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint8_t *base;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, FULL);
	log_fix_add_region(&w);
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	log_fix_post(&w, 2, &p);
	assert_null(log_writer_trim(&w, w.seq));
	log_writer_acked(&w, &p);
	base = log_writer_trim(&w, w.seq);
	assert_non_null(base);
	free(base);
	log_fix_teardown(&w);
}

static void a_peer_frees_what_is_trimmed(void **state)
{
	struct log_writer w;
	uint32_t below;

	(void)state;
	log_fix_setup_two(&w);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	assert_false(log_writer_free_next(&w, 0, &below));
	log_fix_trim_one(&w);
	assert_true(log_writer_free_next(&w, 0, &below));
	assert_int_equal(below, 1);
	assert_false(log_writer_free_next(&w, 0, &below));
	/* Told again: it may not have arrived. */
	log_writer_down(&w, 0);
	assert_false(log_writer_free_next(&w, 0, &below));
	log_writer_up(&w, 0, 101);
	assert_true(log_writer_free_next(&w, 0, &below));
	assert_int_equal(below, 1);
	log_fix_teardown(&w);
}

static void a_peer_keeps_the_last_region_that_shows_its_end(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t below;

	(void)state;
	log_fix_setup_two(&w);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	/* Peer 2 has all of region 0 and nothing of region 1. */
	log_fix_post(&w, 2, &p);
	log_writer_acked(&w, &p);
	assert_int_equal(w.peers[2].acked.seq, FULL);
	log_fix_trim_one(&w);
	assert_false(log_writer_free_next(&w, 2, &below));
	assert_int_equal(w.peers[2].acked.seq, FULL);
	log_fix_post(&w, 2, &p);
	assert_int_equal(p.index, 1);
	assert_int_equal(p.off, LOG_DATA_OFF);
	assert_false(log_writer_free_next(&w, 2, &below));
	log_writer_acked(&w, &p);
	assert_true(log_writer_free_next(&w, 2, &below));
	assert_int_equal(below, 1);
	log_fix_teardown(&w);
}

static void a_peer_behind_what_is_trimmed_starts_again(void **state)
{
	struct log_writer w;
	struct log_post p, q;
	uint32_t below, index;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 3);
	log_fix_settle(&w, 2);
	log_fix_append_times(&w, FULL - 3);
	log_fix_add_region(&w);
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	log_writer_down(&w, 2);
	log_fix_trim_one(&w);
	log_writer_up(&w, 2, 103);
	/* First what it has goes, so that no gap is ever seen. */
	assert_false(log_writer_alloc_next(&w, 2, &index));
	assert_false(log_writer_post_next(&w, 2, &p));
	assert_true(log_writer_free_next(&w, 2, &below));
	assert_int_equal(below, 1);
	assert_int_equal(w.peers[2].acked.seq, 0);
	assert_true(log_writer_alloc_next(&w, 2, &index));
	assert_int_equal(index, 1);
	log_writer_alloc_done(&w, 2, 1, 0);
	log_fix_post(&w, 2, &p);
	assert_int_equal(p.index, 1);
	log_fix_slot_is(&p, 0, FULL + 1, LENGTH + (FULL + 1) * REC);
	/* Also with a post on the way that was sent before. */
	log_writer_down(&w, 2);
	log_fix_append_times(&w, 1);
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_free_next(&w, 2, &below));
	log_fix_post(&w, 2, &q);
	same_post(&p, &q);
	log_writer_acked(&w, &q);
	assert_int_equal(w.peers[2].acked.seq, FULL + 1);
	log_fix_teardown(&w);
}

static void posts_of_trimmed_regions_are_not_repeated(void **state)
{
	struct log_writer w;
	struct log_post p, q, r;
	uint32_t below;

	(void)state;
	log_fix_setup_two(&w);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	log_fix_post(&w, 2, &p);
	log_fix_post(&w, 2, &q);
	log_writer_down(&w, 2);
	log_fix_append_times(&w, 1);
	log_fix_trim_one(&w);
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_free_next(&w, 2, &below));
	log_fix_post(&w, 2, &r);
	same_post(&r, &q);
	log_fix_post(&w, 2, &r);
	log_fix_slot_is(&r, NOT_DUE, FULL + 2,
			LENGTH + (FULL + 2) * REC);
	log_fix_teardown(&w);
}

/* ---- replacing ---- */

static const struct log_writer_peer_id other = { 4, 104 };

static void while_one_is_replaced_both_lists_count(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_int_equal(log_writer_replace(&w, 1, other), -EBUSY);
	log_fix_up(&w, 3);
	/* A majority of the old list alone. */
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 2);
	assert_int_equal(w.committed, 0);
	log_fix_settle(&w, 3);
	assert_int_equal(w.committed, 1);
	log_fix_append_times(&w, 1);
	/* One of the new list alone. */
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 3);
	assert_int_equal(w.committed, 1);
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, 2);
	log_fix_teardown(&w);
}

static void the_new_one_is_listed_when_it_has_what_is_committed(void **state)
{
	struct log_writer w;
	struct log_writer_peer_id ids[3];
	struct log_post p;
	uint32_t below;

	(void)state;
	log_fix_setup_two(&w);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 1);
	log_fix_trim_one(&w);
	log_writer_down(&w, 2);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_false(log_writer_replace_ready(&w));
	log_writer_up(&w, 3, 104);
	while (log_writer_free_next(&w, 3, &below))
		;
	log_fix_lend_all(&w, 3);
	log_fix_post(&w, 3, &p);
	/* It begins with the first region alive. */
	assert_int_equal(p.index, 1);
	assert_false(log_writer_replace_ready(&w));
	log_writer_acked(&w, &p);
	assert_true(log_writer_replace_ready(&w));
	log_writer_list_new(&w, ids);
	assert_int_equal(ids[0].id, 1);
	assert_int_equal(ids[1].id, 2);
	assert_int_equal(ids[2].id, 4);
	assert_int_equal(ids[2].boot_id, 104);
	log_writer_replace_end(&w, true, 2);
	assert_int_equal(w.version, 2);
	assert_int_equal(log_writer_find(&w, 3), -ENOENT);
	assert_int_equal(log_writer_find(&w, 4), 3);
	/* The new list alone counts. */
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 3);
	assert_int_equal(w.committed, w.seq);
	assert_int_equal(
		log_writer_replace(&w, 3, (struct log_writer_peer_id){ 3, 1 }),
		2);
	log_fix_teardown(&w);
}

static void a_replacement_that_is_given_up_leaves_the_old_list(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	log_fix_settle(&w, 0);
	log_fix_settle(&w, 2);
	log_writer_fail(&w, 3);
	assert_false(log_writer_replace_ready(&w));
	assert_int_equal(w.committed, 0);
	log_writer_replace_end(&w, false, 0);
	assert_int_equal(w.committed, 1);
	assert_int_equal(w.version, 1);
	assert_int_equal(log_writer_find(&w, 4), -ENOENT);
	assert_int_equal(log_writer_find(&w, 3), 2);
	log_fix_teardown(&w);
}

static void a_peer_that_restarted_may_replace_itself(void **state)
{
	struct log_writer w;
	struct log_writer_peer_id ids[3];

	(void)state;
	log_fix_setup(&w);
	log_fix_up_three(&w);
	log_fix_append_times(&w, 1);
	log_fix_settle(&w, 2);
	assert_int_equal(log_writer_replace(
				 &w, 2, (struct log_writer_peer_id){ 3, 103 }),
			 -EEXIST);
	assert_int_equal(log_writer_replace(
				 &w, 2, (struct log_writer_peer_id){ 1, 103 }),
			 -EEXIST);
	assert_int_equal(log_writer_replace(
				 &w, 2, (struct log_writer_peer_id){ 3, 203 }),
			 3);
	assert_int_equal(w.peers[2].state, LOG_PEER_FAILED);
	assert_int_equal(log_writer_find(&w, 3), 3);
	/* What it had counts no more. */
	log_fix_settle(&w, 0);
	assert_int_equal(w.committed, 0);
	log_fix_up(&w, 3);
	log_fix_settle(&w, 3);
	log_fix_settle(&w, 1);
	assert_int_equal(w.committed, 1);
	log_writer_list_new(&w, ids);
	assert_int_equal(ids[2].boot_id, 203);
	log_fix_teardown(&w);
}

static void a_new_peer_counts_when_it_shows_a_record(void **state)
{
	struct log_writer w;

	(void)state;
	log_fix_setup_two(&w);
	/* Committed is all of region 0; region 1 is behind that. */
	for (uint32_t i = 0; i < 2; i++) {
		struct log_post p;

		log_fix_post(&w, i, &p);
		log_writer_acked(&w, &p);
	}
	assert_int_equal(w.committed, FULL);
	log_fix_trim_one(&w);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_false(log_writer_replace_ready(&w));
	log_fix_up(&w, 3);
	log_fix_settle(&w, 3);
	assert_true(log_writer_replace_ready(&w));
	log_fix_teardown(&w);
}

/* ---- a log that was read ---- */

/* @w becomes what was read of @from, all of it. */
static void load(struct log_writer *w, const struct log_writer *from)
{
	static const struct log_writer_peer_id ids[] = { { 1, 101 },
							 { 2, 102 },
							 { 3, 103 } };

	log_writer_init(w, CLUSTER, INO, EPOCH, 1, LOG2, ids, 3, 0);
	for (uint32_t i = 0; i < from->region_count; i++) {
		const struct log_region_mirror *r = &from->regions[i];
		uint8_t *base = calloc(1, SIZE);

		assert_non_null(base);
		memcpy(base, r->base, r->end);
		assert_int_equal(log_writer_load_region(w, base, r->index,
							r->end,
							r->length_first),
				 0);
	}
	assert_int_equal(w->seq, from->seq);
	assert_int_equal(w->length, from->length);
}

static void what_a_minority_has_is_brought_to_a_majority(void **state)
{
	struct log_writer v, w;
	struct log_post p;
	uint32_t below, index;

	(void)state;
	log_fix_setup_two(&v);
	log_fix_append_times(&v, 2);
	assert_int_equal(log_fix_append_kind(&v, LOG_REC_SIZE, 33, 0), 0);
	log_fix_settle(&v, 0);
	log_fix_post(&v, 1, &p);
	log_writer_acked(&v, &p);
	load(&w, &v);
	log_writer_load_peer(&w, 0, &v.peers[0].acked);
	log_writer_load_peer(&w, 1, &v.peers[1].acked);
	assert_int_equal(w.committed, FULL);
	log_writer_up(&w, 1, 102);
	log_writer_up(&w, 2, 103);
	/* One goes on where it is. */
	assert_false(log_writer_free_next(&w, 1, &below));
	assert_true(log_writer_alloc_next(&w, 1, &index));
	assert_int_equal(index, 1);
	log_writer_alloc_done(&w, 1, 1, 0);
	log_fix_post(&w, 1, &p);
	log_fix_slot_is(&p, 0, FULL + 4, 33);
	assert_int_equal(p.off, LOG_DATA_OFF);
	log_writer_acked(&w, &p);
	assert_int_equal(w.committed, w.seq);
	/* One begins. */
	assert_true(log_writer_alloc_next(&w, 2, &index));
	assert_int_equal(index, 0);
	log_writer_alloc_done(&w, 2, 0, 0);
	log_fix_post(&w, 2, &p);
	log_fix_slot_is(&p, 0, FULL, LENGTH + FULL * REC);
	log_fix_teardown(&v);
	log_fix_teardown(&w);
}

static void one_that_is_behind_a_read_log_starts_again(void **state)
{
	struct log_writer v, w;
	struct log_post p;
	uint32_t below, index;

	(void)state;
	log_fix_setup_two(&v);
	log_fix_settle(&v, 0);
	log_fix_settle(&v, 1);
	log_fix_trim_one(&v);
	load(&w, &v);
	assert_int_equal(w.region_first, 1);
	log_writer_load_peer(&w, 2,
			     &(struct log_pos){ .index = 0,
						.off = LOG_DATA_OFF + 1000,
						.seq = 1,
						.length = LENGTH + REC });
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_free_next(&w, 2, &below));
	assert_int_equal(below, 1);
	assert_true(log_writer_alloc_next(&w, 2, &index));
	assert_int_equal(index, 1);
	log_writer_alloc_done(&w, 2, 1, 0);
	log_fix_post(&w, 2, &p);
	log_fix_slot_is(&p, 0, FULL + 1, LENGTH + (FULL + 1) * REC);
	log_fix_teardown(&v);
	log_fix_teardown(&w);
}

static void a_read_log_with_a_gap_or_damage_is_refused(void **state)
{
	static const struct log_writer_peer_id id = { 1, 101 };
	const uint32_t to = LOG_DATA_OFF + 1000;
	struct log_writer v, w;
	uint8_t *a, *b;

	(void)state;
	log_fix_setup_two(&v);
	a = v.regions[0].base;
	b = v.regions[1].base;
	log_writer_init(&w, CLUSTER, INO, EPOCH, 1, LOG2, &id, 1, 0);
	assert_int_equal(log_writer_load_region(&w, a, 0, to + 8, 0), -EBADMSG);
	assert_int_equal(log_writer_load_region(&w, a, 0, LOG_DATA_OFF, 0),
			 -EBADMSG);
	a[to - 1] ^= 1;
	assert_int_equal(log_writer_load_region(&w, a, 0, to, 0), -EBADMSG);
	a[to - 1] ^= 1;
	assert_int_equal(w.region_count, 0);
	assert_int_equal(log_writer_load_region(&w, a, 0, to, 0), 0);
	assert_int_equal(log_writer_load_region(&w, b, 1, to, 0), -EBADMSG);
	assert_int_equal(w.region_count, 1);
	log_writer_fini(&w);
	log_writer_init(&w, CLUSTER, INO, EPOCH, 1, LOG2, &id, 1, 0);
	assert_int_equal(log_writer_load_region(&w, a, 0, v.regions[0].end, 0),
			 0);
	assert_int_equal(log_writer_load_region(&w, b, 2, to, 0), -EBADMSG);
	assert_int_equal(log_writer_load_region(&w, b, 1, to, 0), 0);
	log_writer_fini(&w);
	log_fix_teardown(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			records_are_numbered_and_lie_one_behind_the_other),
		cmocka_unit_test(
			another_region_is_wanted_when_the_last_is_half_full),
		cmocka_unit_test(no_record_crosses_regions_or_goes_back_to_one),
		cmocka_unit_test(room_is_what_a_record_may_have),
		cmocka_unit_test(
			a_sealed_log_takes_and_sends_and_commits_nothing),
		cmocka_unit_test(
			a_post_has_all_that_is_there_and_its_slot_says_so),
		cmocka_unit_test(a_slot_comes_first_and_then_now_and_then),
		cmocka_unit_test(
			two_posts_are_in_flight_and_the_rest_goes_together),
		cmocka_unit_test(a_post_ends_with_its_region),
		cmocka_unit_test(a_post_is_bounded_but_for_one_record),
		cmocka_unit_test(
			a_record_is_committed_when_a_majority_has_its_prefix),
		cmocka_unit_test(a_failed_peer_does_not_count),
		cmocka_unit_test(a_peer_that_is_down_has_what_it_acknowledged),
		cmocka_unit_test(a_majority_is_of_those_that_are_up),
		cmocka_unit_test(the_same_boot_is_sent_the_same_posts_again),
		cmocka_unit_test(another_boot_has_failed),
		cmocka_unit_test(regions_are_asked_for_in_order_one_at_a_time),
		cmocka_unit_test(
			nothing_is_posted_to_a_region_that_is_not_lent),
		cmocka_unit_test(what_is_not_committed_is_not_trimmed),
		cmocka_unit_test(the_last_region_with_a_record_is_not_trimmed),
		cmocka_unit_test(what_is_being_sent_is_not_trimmed),
		cmocka_unit_test(a_peer_frees_what_is_trimmed),
		cmocka_unit_test(
			a_peer_keeps_the_last_region_that_shows_its_end),
		cmocka_unit_test(a_peer_behind_what_is_trimmed_starts_again),
		cmocka_unit_test(posts_of_trimmed_regions_are_not_repeated),
		cmocka_unit_test(while_one_is_replaced_both_lists_count),
		cmocka_unit_test(
			the_new_one_is_listed_when_it_has_what_is_committed),
		cmocka_unit_test(
			a_replacement_that_is_given_up_leaves_the_old_list),
		cmocka_unit_test(a_peer_that_restarted_may_replace_itself),
		cmocka_unit_test(a_new_peer_counts_when_it_shows_a_record),
		cmocka_unit_test(what_a_minority_has_is_brought_to_a_majority),
		cmocka_unit_test(one_that_is_behind_a_read_log_starts_again),
		cmocka_unit_test(a_read_log_with_a_gap_or_damage_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
