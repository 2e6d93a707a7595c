/* What a peer has of a log that cannot be recovered.
 *
 * Method: two regions are filled with records as a writer fills them, then
 * damaged in one way each; at each byte of them, too: what is handed out is
 * always a prefix of what was written.
 */
#include "fuse/core/log_salvage.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define FIRST 11u /* record */
#define EACH 5u /* records a region */
#define COUNT 2u

static const struct log_salvage_what what = {
	.cluster_id = 5, .ino = 6, .data_epoch = 7
};

struct log {
	uint8_t *base[COUNT + 1]; /* an empty one behind */
	struct log_salvage_region regions[COUNT + 1];
	uint32_t end[COUNT];
	uint32_t last_at; /* the last record of each */
};

/* Record n says n, at n * 100; each fifth cuts. */
static struct log_rec record(uint64_t n, uint8_t *data)
{
	struct log_rec r = { .seq = n, .off = 100 * n, .time_ns = 1 };

	r.kind = n % 5 == 0 ? LOG_REC_SIZE : LOG_REC_WRITE;
	if (r.kind == LOG_REC_WRITE) {
		r.len = (uint32_t)n;
		r.data = data;
		memset(data, (int)n, n);
	}
	return r;
}

static void slot_put(struct log *l, uint32_t i, uint64_t seq, uint64_t ino)
{
	struct log_slot s = { .cluster_id = what.cluster_id, .ino = ino,
			      .epoch = what.data_epoch, .seq = seq,
			      .index = l->regions[i].index,
			      .end = l->end[i] };

	log_slot_encode(&s, l->base[i]);
}

static void setup(struct log *l)
{
	uint64_t n = FIRST;

	for (uint32_t i = 0; i <= COUNT; i++) {
		l->base[i] = calloc(1, SIZE);
		assert_non_null(l->base[i]);
		l->regions[i] = (struct log_salvage_region){
			.index = 3 + i, .log2 = LOG2, .base = l->base[i] };
		if (i == COUNT)
			break;
		l->end[i] = LOG_DATA_OFF;
		for (uint32_t k = 0; k < EACH; k++, n++) {
			uint8_t data[64];
			struct log_rec r = record(n, data);

			l->last_at = l->end[i];
			log_rec_encode(&r, l->base[i] + l->end[i]);
			l->end[i] += log_rec_size(r.len);
		}
		slot_put(l, i, n - 1, what.ino);
	}
}

static void teardown(struct log *l)
{
	for (uint32_t i = 0; i <= COUNT; i++)
		free(l->base[i]);
}

/* Each is the one that was written. */
static int check_record(void *arg, const struct log_rec *r)
{
	uint64_t *next = arg;
	uint8_t data[64];
	struct log_rec want = record(*next, data);

	assert_int_equal(r->seq, want.seq);
	assert_int_equal(r->kind, want.kind);
	assert_int_equal(r->off, want.off);
	assert_int_equal(r->len, want.len);
	if (r->len)
		assert_memory_equal(r->data, data, r->len);
	(*next)++;
	return 0;
}

static struct log_salvaged walk(const struct log *l, uint32_t count)
{
	uint64_t next = FIRST;
	struct log_salvaged s;

	assert_int_equal(log_salvage_walk(l->regions, count, &what,
					  check_record, &next, &s), 0);
	assert_int_equal(s.last, next == FIRST ? 0 : next - 1);
	assert_int_equal(s.first, next == FIRST ? 0 : FIRST);
	return s;
}

static void all_records_of_whole_regions_come_in_order(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	s = walk(&l, COUNT + 1);
	assert_int_equal(s.last, FIRST + 2 * EACH - 1);
	assert_int_equal(s.bytes, 11 + 12 + 13 + 14 + 16 + 17 + 18 + 19);
	assert_false(s.damaged);
	teardown(&l);
}

static void a_log_without_records_has_none(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	memset(l.base[0], 0, SIZE);
	s = walk(&l, 1);
	assert_int_equal(s.last, 0);
	assert_false(s.damaged);
	s = walk(&l, 0);
	assert_int_equal(s.last, 0);
	assert_false(s.damaged);
	teardown(&l);
}

/* Sent, and the slot was still on its way. */
static void records_behind_the_slot_count(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	memset(l.base[1], 0, LOG_SLOT_COUNT * LOG_SLOT_SIZE);
	s = walk(&l, COUNT);
	assert_int_equal(s.last, FIRST + 2 * EACH - 1);
	assert_false(s.damaged);
	teardown(&l);
}

static void records_are_taken_where_slots_are_broken(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	l.base[0][20] ^= 1;
	s = walk(&l, COUNT);
	assert_int_equal(s.last, FIRST + 2 * EACH - 1);
	assert_true(s.damaged);
	teardown(&l);
}

static void records_that_a_slot_speaks_of_and_are_not_there_are_told(
	void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	slot_put(&l, 1, FIRST + 2 * EACH, what.ino);
	s = walk(&l, COUNT);
	assert_int_equal(s.last, FIRST + 2 * EACH - 1);
	assert_true(s.damaged);
	teardown(&l);
}

static void regions_of_another_log_are_not_touched(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	slot_put(&l, 1, FIRST + 2 * EACH - 1, what.ino + 1);
	s = walk(&l, COUNT);
	assert_int_equal(s.last, FIRST + EACH - 1);
	assert_true(s.damaged);
	l.regions[0].index++;
	s = walk(&l, COUNT);
	assert_int_equal(s.last, 0);
	assert_true(s.damaged);
	teardown(&l);
}

static void a_region_that_is_missing_ends_it(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	memset(l.base[0] + LOG_DATA_OFF, 0, SIZE - LOG_DATA_OFF);
	memcpy(l.base[0] + LOG_DATA_OFF, l.base[1] + l.last_at,
	       l.end[1] - l.last_at);
	/* One record, FIRST + 9, where FIRST was: none before it is missed. */
	assert_int_equal(log_salvage_walk(l.regions, COUNT, &what, NULL, NULL,
					  &s), 0);
	assert_int_equal(s.first, FIRST + 2 * EACH - 1);
	assert_int_equal(s.last, FIRST + 2 * EACH - 1);
	assert_true(s.damaged); /* what follows does not */
	teardown(&l);
}

static void whatever_byte_is_damaged_a_prefix_comes(void **state)
{
	uint64_t full = FIRST + 2 * EACH - 1;
	struct log l;

	(void)state;
	setup(&l);
	for (uint32_t i = 0; i < COUNT; i++) {
		for (uint32_t at = LOG_DATA_OFF; at < l.end[i]; at++) {
			struct log_salvaged s;

			l.base[i][at] ^= 0x40;
			s = walk(&l, COUNT);
			assert_true(s.last < full);
			assert_true(s.last >= (i ? FIRST + EACH - 1 : 0));
			assert_true(s.damaged);
			l.base[i][at] ^= 0x40;
		}
	}
	teardown(&l);
}

static int stop(void *arg, const struct log_rec *r)
{
	(void)arg;
	return r->seq == FIRST + 6 ? -ENOSPC : 0;
}

static void who_takes_records_may_end_it(void **state)
{
	struct log_salvaged s;
	struct log l;

	(void)state;
	setup(&l);
	assert_int_equal(log_salvage_walk(l.regions, COUNT, &what, stop, NULL,
					  &s), -ENOSPC);
	teardown(&l);
}

static void the_one_that_reaches_further_is_better(void **state)
{
	struct log_salvaged none = { 0 }, ten = { .first = 1, .last = 10 };
	struct log_salvaged bad = { .first = 1, .last = 10, .damaged = true };
	struct log_salvaged more = { .first = 5, .last = 11, .damaged = true };

	(void)state;
	assert_true(log_salvaged_better(&ten, &none));
	assert_false(log_salvaged_better(&none, &ten));
	assert_true(log_salvaged_better(&more, &ten));
	assert_true(log_salvaged_better(&ten, &bad));
	assert_false(log_salvaged_better(&bad, &ten));
	assert_false(log_salvaged_better(&ten, &ten));
	none.damaged = true;
	assert_false(log_salvaged_better(&none, &none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_records_of_whole_regions_come_in_order),
		cmocka_unit_test(a_log_without_records_has_none),
		cmocka_unit_test(records_behind_the_slot_count),
		cmocka_unit_test(records_are_taken_where_slots_are_broken),
		cmocka_unit_test(
			records_that_a_slot_speaks_of_and_are_not_there_are_told),
		cmocka_unit_test(regions_of_another_log_are_not_touched),
		cmocka_unit_test(a_region_that_is_missing_ends_it),
		cmocka_unit_test(whatever_byte_is_damaged_a_prefix_comes),
		cmocka_unit_test(who_takes_records_may_end_it),
		cmocka_unit_test(the_one_that_reaches_further_is_better),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
