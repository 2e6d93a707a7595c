/* The writer of a log.
 *
 * Method: small stories with three peers whose events the test tells; what is
 * asked for is compared literally, and bytes of posts with records decoded from
 * the mirror. tests/sim/sim_log.c has the long ones.
 */
#include "fuse/core/log_writer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define CLUSTER 7u
#define INO 11u
#define EPOCH 3u
#define LENGTH 500u /* of the file before */
#define REC 952u /* of data: a record of 1000 */

static uint8_t content[3u << 20];

static void add_region(struct log_writer *w)
{
	uint8_t *base = calloc(1, 1u << w->log2);

	assert_non_null(base);
	assert_int_equal(log_writer_region_add(w, base), 0);
}

static void setup_log2(struct log_writer *w, uint8_t log2)
{
	static const struct log_writer_peer_id ids[] = { { 1, 101 },
							 { 2, 102 },
							 { 3, 103 } };

	log_writer_init(w, CLUSTER, INO, EPOCH, 1, log2, ids, 3, LENGTH);
	add_region(w);
}

static void setup(struct log_writer *w)
{
	setup_log2(w, LOG2);
}

static void teardown(struct log_writer *w)
{
	for (uint32_t i = 0; i < w->region_count; i++)
		free(w->regions[i].base);
	log_writer_fini(w);
}

static int append_kind(struct log_writer *w, enum log_rec_kind kind,
		       uint64_t off, uint32_t len)
{
	struct log_rec r = { .kind = kind,
			     .off = off,
			     .arg = kind == LOG_REC_ZERO ? len : 0,
			     .len = kind == LOG_REC_WRITE ? len : 0,
			     .data = content };

	return log_writer_append(w, &r);
}

static int append(struct log_writer *w, uint32_t len)
{
	return append_kind(w, LOG_REC_WRITE, w->length, len);
}

static void append_times(struct log_writer *w, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		assert_int_equal(append(w, REC), 0);
}

/* So many records of REC fill a region; another small one finds room. */
#define FULL ((SIZE - LOG_DATA_OFF) / 1000u)

static void lend_all(struct log_writer *w, uint32_t peer)
{
	uint32_t index;

	while (log_writer_alloc_next(w, peer, &index))
		log_writer_alloc_done(w, peer, index, 0);
}

static void up(struct log_writer *w, uint32_t peer)
{
	log_writer_up(w, peer, w->peers[peer].boot_id);
	lend_all(w, peer);
}

static void up_three(struct log_writer *w)
{
	for (uint32_t i = 0; i < 3; i++)
		up(w, i);
}

static void post(struct log_writer *w, uint32_t peer, struct log_post *p)
{
	assert_true(log_writer_post_next(w, peer, p));
	assert_int_equal(p->peer, peer);
}

/* Sends all there is and has it acknowledged. */
static void settle(struct log_writer *w, uint32_t peer)
{
	struct log_post p;
	uint32_t below;

	for (;;) {
		while (log_writer_free_next(w, peer, &below))
			;
		lend_all(w, peer);
		if (!log_writer_post_next(w, peer, &p))
			return;
		log_writer_acked(w, &p);
	}
}

static void slot_is(const struct log_post *p, uint32_t slot, uint64_t seq,
		    uint64_t length)
{
	struct log_slot s;

	assert_int_equal(log_slot_decode(p->slot, &s), 0);
	assert_int_equal(p->slot_off, slot * LOG_SLOT_SIZE);
	assert_int_equal(s.cluster_id, CLUSTER);
	assert_int_equal(s.ino, INO);
	assert_int_equal(s.epoch, EPOCH);
	assert_int_equal(s.index, p->index);
	assert_int_equal(s.end, p->off + p->len);
	assert_int_equal(s.seq, seq);
	assert_int_equal(s.length, length);
	assert_int_equal(p->seq, seq);
	assert_int_equal(p->length, length);
}

/* ---- the stream ---- */

static void records_are_numbered_and_lie_one_behind_the_other(void **state)
{
	struct log_writer w;
	struct log_rec r = { .kind = LOG_REC_SIZE, .off = 100 };
	uint64_t next;

	(void)state;
	setup(&w);
	assert_int_equal(append(&w, 10), 0);
	assert_int_equal(w.length, LENGTH + 10);
	assert_int_equal(log_writer_append(&w, &r), 0);
	assert_int_equal(r.seq, 2);
	assert_int_equal(w.length, 100);
	assert_int_equal(append_kind(&w, LOG_REC_ZERO, 50, 1000), 0);
	assert_int_equal(w.length, 100);
	assert_int_equal(append_kind(&w, LOG_REC_WRITE, 20, 10), 0);
	assert_int_equal(w.length, 100);
	assert_int_equal(w.seq, 4);
	assert_int_equal(log_rec_walk(w.regions[0].base, LOG_DATA_OFF,
				      w.regions[0].end, 1, NULL, NULL, &next),
			 0);
	assert_int_equal(next, 5);
	teardown(&w);
}

static void another_region_is_wanted_when_the_last_is_half_full(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	assert_false(log_writer_region_wanted(&w));
	while (w.regions[0].end + 1000 < SIZE / 2)
		append_times(&w, 1);
	assert_false(log_writer_region_wanted(&w));
	append_times(&w, 1);
	assert_true(log_writer_region_wanted(&w));
	add_region(&w);
	assert_false(log_writer_region_wanted(&w));
	teardown(&w);
	log_writer_init(&w, 1, 1, 1, 1, LOG2,
			(struct log_writer_peer_id[]){ { 1, 1 } }, 1, 0);
	assert_true(log_writer_region_wanted(&w));
	log_writer_seal(&w);
	assert_false(log_writer_region_wanted(&w));
	teardown(&w);
}

static void no_record_crosses_regions_or_goes_back_to_one(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	append_times(&w, FULL);
	assert_int_equal(append(&w, REC), -ENOSPC);
	assert_int_equal(w.seq, FULL);
	add_region(&w);
	append_times(&w, 1);
	assert_int_equal(append(&w, 1), 0);
	assert_int_equal(w.regions[0].seq_first, 1);
	assert_int_equal(w.regions[0].seq_last, FULL);
	assert_int_equal(w.regions[1].seq_first, FULL + 1);
	assert_int_equal(w.regions[1].seq_last, FULL + 2);
	assert_int_equal(w.regions[1].length_first, LENGTH + FULL * REC);
	teardown(&w);
}

static void room_is_what_a_record_may_have(void **state)
{
	struct log_writer w;
	uint32_t room;

	(void)state;
	setup(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	assert_int_equal(append(&w, log_writer_room(&w) + 1), -EMSGSIZE);
	append_times(&w, 5);
	room = log_writer_room(&w);
	assert_int_equal(append(&w, room + 1), -ENOSPC);
	assert_int_equal(append(&w, room), 0);
	assert_int_equal(log_writer_room(&w), 0);
	add_region(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	append_times(&w, 1);
	add_region(&w);
	assert_int_equal(log_writer_room(&w), log_rec_len_max(LOG2));
	assert_int_equal(append(&w, log_writer_room(&w)), 0);
	assert_int_equal(w.regions[2].end, SIZE);
	teardown(&w);
}

static void a_sealed_log_takes_and_sends_and_commits_nothing(void **state)
{
	struct log_writer w;
	struct log_post p[2];
	uint32_t index;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	post(&w, 0, &p[0]);
	post(&w, 1, &p[1]);
	log_writer_seal(&w);
	assert_int_equal(append(&w, 1), -EIO);
	assert_int_equal(log_writer_room(&w), 0);
	log_writer_acked(&w, &p[0]);
	log_writer_acked(&w, &p[1]);
	assert_int_equal(w.committed, 0);
	assert_false(log_writer_post_next(&w, 2, &p[0]));
	add_region(&w);
	assert_false(log_writer_alloc_next(&w, 2, &index));
	assert_int_equal(
		log_writer_replace(&w, 2, (struct log_writer_peer_id){ 4, 1 }),
		-EIO);
	teardown(&w);
}

/* ---- posts ---- */

static void a_post_has_all_that_is_there_and_its_slot_says_so(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 2);
	assert_int_equal(append_kind(&w, LOG_REC_SIZE, 77, 0), 0);
	post(&w, 0, &p);
	assert_int_equal(p.off, LOG_DATA_OFF);
	assert_int_equal(p.len, 2000 + LOG_REC_HEADER);
	assert_ptr_equal(p.data, w.regions[0].base + LOG_DATA_OFF);
	slot_is(&p, 0, 3, 77);
	assert_false(log_writer_post_next(&w, 0, &p));
	append_times(&w, 1);
	post(&w, 0, &p);
	assert_int_equal(p.off, LOG_DATA_OFF + 2000 + LOG_REC_HEADER);
	slot_is(&p, 1, 4, 77 + REC);
	teardown(&w);
}

static void two_posts_are_in_flight_and_the_rest_goes_together(void **state)
{
	struct log_writer w;
	struct log_post p, q, r;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	post(&w, 0, &p);
	append_times(&w, 1);
	post(&w, 0, &q);
	append_times(&w, 3);
	assert_false(log_writer_post_next(&w, 0, &r));
	log_writer_acked(&w, &p);
	post(&w, 0, &r);
	assert_int_equal(r.len, 3000);
	slot_is(&r, 0, 5, LENGTH + 5 * REC);
	log_writer_acked(&w, &q);
	log_writer_acked(&w, &r);
	assert_int_equal(w.peers[0].acked.seq, 5);
	teardown(&w);
}

static void a_post_ends_with_its_region(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	setup(&w);
	append_times(&w, FULL);
	add_region(&w);
	append_times(&w, 2);
	up_three(&w);
	post(&w, 0, &p);
	assert_int_equal(p.index, 0);
	slot_is(&p, 0, FULL, LENGTH + FULL * REC);
	post(&w, 0, &p);
	assert_int_equal(p.index, 1);
	assert_int_equal(p.off, LOG_DATA_OFF);
	slot_is(&p, 0, FULL + 2, LENGTH + (FULL + 2) * REC);
	teardown(&w);
}

static void a_post_is_bounded_but_for_one_record(void **state)
{
	struct log_writer w;
	struct log_post p;

	(void)state;
	setup_log2(&w, 23);
	up_three(&w);
	assert_int_equal(append(&w, 2u << 20), 0);
	assert_int_equal(append(&w, 600u << 10), 0);
	assert_int_equal(append(&w, 300u << 10), 0);
	assert_int_equal(append(&w, 300u << 10), 0);
	post(&w, 0, &p);
	assert_int_equal(p.len, log_rec_size(2u << 20));
	log_writer_acked(&w, &p);
	post(&w, 0, &p);
	assert_int_equal(p.seq, 3);
	post(&w, 0, &p);
	assert_int_equal(p.seq, 4);
	slot_is(&p, 0, 4, LENGTH + (3248u << 10));
	teardown(&w);
}

/* ---- committed ---- */

static void a_record_is_committed_when_a_majority_has_its_prefix(void **state)
{
	struct log_writer w;
	struct log_post p[3];

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	post(&w, 0, &p[0]);
	append_times(&w, 1);
	post(&w, 1, &p[1]);
	append_times(&w, 1);
	post(&w, 2, &p[2]);
	log_writer_acked(&w, &p[2]);
	assert_int_equal(w.committed, 0);
	log_writer_acked(&w, &p[0]);
	assert_int_equal(w.committed, 1);
	log_writer_acked(&w, &p[1]);
	assert_int_equal(w.committed, 2);
	teardown(&w);
}

static void a_failed_peer_does_not_count(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	settle(&w, 0);
	log_writer_fail(&w, 0);
	settle(&w, 1);
	assert_int_equal(w.committed, 0);
	settle(&w, 2);
	assert_int_equal(w.committed, 1);
	/* What is committed stays so. */
	log_writer_fail(&w, 1);
	assert_int_equal(w.committed, 1);
	/* It does not come back. */
	log_writer_up(&w, 0, 101);
	assert_int_equal(w.peers[0].state, LOG_PEER_FAILED);
	teardown(&w);
}

static void a_peer_that_is_down_has_what_it_acknowledged(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	settle(&w, 0);
	log_writer_down(&w, 0);
	settle(&w, 1);
	assert_int_equal(w.committed, 1);
	teardown(&w);
}

static void a_majority_is_of_those_that_are_up(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	up(&w, 0);
	assert_false(log_writer_majority(&w));
	up(&w, 1);
	assert_true(log_writer_majority(&w));
	log_writer_down(&w, 0);
	assert_false(log_writer_majority(&w));
	up(&w, 2);
	assert_true(log_writer_majority(&w));
	/* Both lists count. */
	assert_int_equal(
		log_writer_replace(&w, 1, (struct log_writer_peer_id){ 4, 1 }),
		3);
	assert_false(log_writer_majority(&w));
	up(&w, 3);
	assert_true(log_writer_majority(&w));
	teardown(&w);
}

/* ---- connections ---- */

static void the_same_boot_is_sent_the_same_posts_again(void **state)
{
	struct log_writer w;
	struct log_post p[3], q[3];

	(void)state;
	setup(&w);
	up_three(&w);
	for (uint32_t i = 0; i < 3; i++) {
		append_times(&w, 1);
		post(&w, 0, &p[i]);
		if (i == 0)
			log_writer_acked(&w, &p[i]);
	}
	append_times(&w, 4);
	for (uint32_t times = 0; times < 2; times++) {
		log_writer_down(&w, 0);
		assert_false(log_writer_post_next(&w, 0, &q[0]));
		log_writer_up(&w, 0, 101);
		post(&w, 0, &q[1]);
		assert_memory_equal(&q[1], &p[1], sizeof(q[1]));
		/* The second is on the way, too, or not yet. */
		if (times == 1)
			post(&w, 0, &q[2]);
	}
	assert_memory_equal(&q[2], &p[2], sizeof(q[2]));
	log_writer_acked(&w, &q[1]);
	log_writer_acked(&w, &q[2]);
	post(&w, 0, &q[0]);
	assert_int_equal(q[0].len, 4000);
	slot_is(&q[0], 1, 7, LENGTH + 7 * REC);
	teardown(&w);
}

static void another_boot_has_failed(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t index;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	log_writer_down(&w, 0);
	log_writer_up(&w, 0, 999);
	assert_int_equal(w.peers[0].state, LOG_PEER_FAILED);
	assert_false(log_writer_post_next(&w, 0, &p));
	add_region(&w);
	assert_false(log_writer_alloc_next(&w, 0, &index));
	teardown(&w);
}

/* ---- regions at peers ---- */

static void regions_are_asked_for_in_order_one_at_a_time(void **state)
{
	struct log_writer w;
	uint32_t index;

	(void)state;
	setup(&w);
	add_region(&w);
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
	teardown(&w);
}

static void nothing_is_posted_to_a_region_that_is_not_lent(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t index;

	(void)state;
	setup(&w);
	append_times(&w, FULL);
	add_region(&w);
	append_times(&w, 1);
	log_writer_up(&w, 0, 101);
	assert_false(log_writer_post_next(&w, 0, &p));
	assert_true(log_writer_alloc_next(&w, 0, &index));
	assert_false(log_writer_post_next(&w, 0, &p));
	log_writer_alloc_done(&w, 0, 0, 0);
	post(&w, 0, &p);
	assert_false(log_writer_post_next(&w, 0, &p));
	lend_all(&w, 0);
	post(&w, 0, &p);
	assert_int_equal(p.index, 1);
	teardown(&w);
}

/* ---- trimming ---- */

static void what_is_not_committed_or_last_is_not_trimmed(void **state)
{
	struct log_writer w;
	uint8_t *base;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, FULL);
	add_region(&w);
	settle(&w, 0);
	assert_null(log_writer_trim(&w, w.seq));
	settle(&w, 1);
	assert_int_equal(w.committed, FULL);
	/* The next one is empty: nothing else would tell the end. */
	assert_null(log_writer_trim(&w, w.seq));
	append_times(&w, 1);
	assert_null(log_writer_trim(&w, FULL - 1));
	base = log_writer_trim(&w, w.seq);
	assert_non_null(base);
	free(base);
	assert_int_equal(w.region_first, 1);
	settle(&w, 0);
	settle(&w, 1);
	assert_null(log_writer_trim(&w, w.seq));
	teardown(&w);
}

static void what_is_being_sent_is_not_trimmed(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint8_t *base;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, FULL);
	add_region(&w);
	append_times(&w, 1);
	settle(&w, 0);
	settle(&w, 1);
	post(&w, 2, &p);
	assert_null(log_writer_trim(&w, w.seq));
	log_writer_acked(&w, &p);
	base = log_writer_trim(&w, w.seq);
	assert_non_null(base);
	free(base);
	teardown(&w);
}

/* Two regions, the second with one record; all up; 0 and 1 have all. */
static void setup_two(struct log_writer *w)
{
	setup(w);
	up_three(w);
	append_times(w, FULL);
	add_region(w);
	append_times(w, 1);
	lend_all(w, 0);
	lend_all(w, 1);
	lend_all(w, 2);
}

static void trim_one(struct log_writer *w)
{
	uint8_t *base = log_writer_trim(w, w->seq);

	assert_non_null(base);
	free(base);
}

static void a_peer_frees_what_is_trimmed(void **state)
{
	struct log_writer w;
	uint32_t below;

	(void)state;
	setup_two(&w);
	settle(&w, 0);
	settle(&w, 1);
	assert_false(log_writer_free_next(&w, 0, &below));
	trim_one(&w);
	assert_true(log_writer_free_next(&w, 0, &below));
	assert_int_equal(below, 1);
	assert_false(log_writer_free_next(&w, 0, &below));
	/* Told again: it may not have arrived. */
	log_writer_down(&w, 0);
	assert_false(log_writer_free_next(&w, 0, &below));
	log_writer_up(&w, 0, 101);
	assert_true(log_writer_free_next(&w, 0, &below));
	assert_int_equal(below, 1);
	teardown(&w);
}

static void a_peer_keeps_the_last_region_that_shows_its_end(void **state)
{
	struct log_writer w;
	struct log_post p;
	uint32_t below;

	(void)state;
	setup_two(&w);
	settle(&w, 0);
	settle(&w, 1);
	/* Peer 2 has all of region 0 and nothing of region 1. */
	post(&w, 2, &p);
	log_writer_acked(&w, &p);
	assert_int_equal(w.peers[2].acked.seq, FULL);
	trim_one(&w);
	assert_false(log_writer_free_next(&w, 2, &below));
	assert_int_equal(w.peers[2].acked.seq, FULL);
	post(&w, 2, &p);
	assert_int_equal(p.index, 1);
	assert_int_equal(p.off, LOG_DATA_OFF);
	assert_false(log_writer_free_next(&w, 2, &below));
	log_writer_acked(&w, &p);
	assert_true(log_writer_free_next(&w, 2, &below));
	assert_int_equal(below, 1);
	teardown(&w);
}

static void a_peer_behind_what_is_trimmed_starts_again(void **state)
{
	struct log_writer w;
	struct log_post p, q;
	uint32_t below, index;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 3);
	settle(&w, 2);
	append_times(&w, FULL - 3);
	add_region(&w);
	append_times(&w, 1);
	settle(&w, 0);
	settle(&w, 1);
	log_writer_down(&w, 2);
	trim_one(&w);
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
	post(&w, 2, &p);
	assert_int_equal(p.index, 1);
	slot_is(&p, 0, FULL + 1, LENGTH + (FULL + 1) * REC);
	/* Also with a post on the way that was sent before. */
	log_writer_down(&w, 2);
	append_times(&w, 1);
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_free_next(&w, 2, &below));
	post(&w, 2, &q);
	assert_memory_equal(&p, &q, sizeof(p));
	log_writer_acked(&w, &q);
	assert_int_equal(w.peers[2].acked.seq, FULL + 1);
	teardown(&w);
}

static void posts_of_trimmed_regions_are_not_repeated(void **state)
{
	struct log_writer w;
	struct log_post p, q, r;
	uint32_t below;

	(void)state;
	setup_two(&w);
	settle(&w, 0);
	settle(&w, 1);
	post(&w, 2, &p);
	post(&w, 2, &q);
	log_writer_down(&w, 2);
	append_times(&w, 1);
	trim_one(&w);
	log_writer_up(&w, 2, 103);
	assert_true(log_writer_free_next(&w, 2, &below));
	post(&w, 2, &r);
	assert_memory_equal(&r, &q, sizeof(q));
	post(&w, 2, &r);
	slot_is(&r, 1, FULL + 2, LENGTH + (FULL + 2) * REC);
	teardown(&w);
}

/* ---- replacing ---- */

static const struct log_writer_peer_id other = { 4, 104 };

static void while_one_is_replaced_both_lists_count(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_int_equal(log_writer_replace(&w, 1, other), -EBUSY);
	up(&w, 3);
	/* A majority of the old list alone. */
	settle(&w, 0);
	settle(&w, 2);
	assert_int_equal(w.committed, 0);
	settle(&w, 3);
	assert_int_equal(w.committed, 1);
	append_times(&w, 1);
	/* One of the new list alone. */
	settle(&w, 0);
	settle(&w, 3);
	assert_int_equal(w.committed, 1);
	settle(&w, 1);
	assert_int_equal(w.committed, 2);
	teardown(&w);
}

static void the_new_one_is_listed_when_it_has_what_is_committed(void **state)
{
	struct log_writer w;
	struct log_writer_peer_id ids[3];
	struct log_post p;
	uint32_t below;

	(void)state;
	setup_two(&w);
	settle(&w, 0);
	settle(&w, 1);
	trim_one(&w);
	log_writer_down(&w, 2);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_false(log_writer_replace_ready(&w));
	log_writer_up(&w, 3, 104);
	while (log_writer_free_next(&w, 3, &below))
		;
	lend_all(&w, 3);
	post(&w, 3, &p);
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
	append_times(&w, 1);
	settle(&w, 0);
	settle(&w, 3);
	assert_int_equal(w.committed, w.seq);
	assert_int_equal(
		log_writer_replace(&w, 3, (struct log_writer_peer_id){ 3, 1 }),
		2);
	teardown(&w);
}

static void a_replacement_that_is_given_up_leaves_the_old_list(void **state)
{
	struct log_writer w;

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	settle(&w, 0);
	settle(&w, 2);
	log_writer_fail(&w, 3);
	assert_false(log_writer_replace_ready(&w));
	assert_int_equal(w.committed, 0);
	log_writer_replace_end(&w, false, 0);
	assert_int_equal(w.committed, 1);
	assert_int_equal(w.version, 1);
	assert_int_equal(log_writer_find(&w, 4), -ENOENT);
	assert_int_equal(log_writer_find(&w, 3), 2);
	teardown(&w);
}

static void a_peer_that_restarted_may_replace_itself(void **state)
{
	struct log_writer w;
	struct log_writer_peer_id ids[3];

	(void)state;
	setup(&w);
	up_three(&w);
	append_times(&w, 1);
	settle(&w, 2);
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
	settle(&w, 0);
	assert_int_equal(w.committed, 0);
	up(&w, 3);
	settle(&w, 3);
	settle(&w, 1);
	assert_int_equal(w.committed, 1);
	log_writer_list_new(&w, ids);
	assert_int_equal(ids[2].boot_id, 203);
	teardown(&w);
}

static void a_new_peer_counts_when_it_shows_a_record(void **state)
{
	struct log_writer w;

	(void)state;
	setup_two(&w);
	/* Committed is all of region 0; region 1 is behind that. */
	for (uint32_t i = 0; i < 2; i++) {
		struct log_post p;

		post(&w, i, &p);
		log_writer_acked(&w, &p);
	}
	assert_int_equal(w.committed, FULL);
	trim_one(&w);
	assert_int_equal(log_writer_replace(&w, 2, other), 3);
	assert_false(log_writer_replace_ready(&w));
	up(&w, 3);
	settle(&w, 3);
	assert_true(log_writer_replace_ready(&w));
	teardown(&w);
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
		cmocka_unit_test(what_is_not_committed_or_last_is_not_trimmed),
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
