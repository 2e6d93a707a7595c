#include "tests/lib/log_fix.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static uint8_t content[3u << 20];

void log_fix_add_region(struct log_writer *w)
{
	uint8_t *base = calloc(1, 1u << w->log2);

	assert_non_null(base);
	assert_int_equal(log_writer_region_add(w, base), 0);
}

void log_fix_setup_log2(struct log_writer *w, uint8_t log2)
{
	static const struct log_writer_peer_id ids[] = { { 1, 101 },
							 { 2, 102 },
							 { 3, 103 } };

	log_writer_init(w, CLUSTER, INO, EPOCH, 1, log2, ids, 3, LENGTH);
	log_fix_add_region(w);
}

void log_fix_setup(struct log_writer *w)
{
	log_fix_setup_log2(w, LOG2);
}

void log_fix_teardown(struct log_writer *w)
{
	for (uint32_t i = 0; i < w->region_count; i++)
		free(w->regions[i].base);
	log_writer_fini(w);
}

int log_fix_append_kind(struct log_writer *w, enum log_rec_kind kind,
			uint64_t off, uint32_t len)
{
	struct log_rec r = { .kind = kind,
			     .off = off,
			     .arg = kind == LOG_REC_ZERO ? len : 0,
			     .len = kind == LOG_REC_WRITE ? len : 0,
			     .data = content };

	return log_writer_append(w, &r);
}

int log_fix_append(struct log_writer *w, uint32_t len)
{
	return log_fix_append_kind(w, LOG_REC_WRITE, w->length, len);
}

void log_fix_append_times(struct log_writer *w, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		assert_int_equal(log_fix_append(w, REC), 0);
}

void log_fix_lend_all(struct log_writer *w, uint32_t peer)
{
	uint32_t index;

	while (log_writer_alloc_next(w, peer, &index))
		log_writer_alloc_done(w, peer, index, 0);
}

void log_fix_up(struct log_writer *w, uint32_t peer)
{
	log_writer_up(w, peer, w->peers[peer].boot_id);
	log_fix_lend_all(w, peer);
}

void log_fix_up_three(struct log_writer *w)
{
	for (uint32_t i = 0; i < 3; i++)
		log_fix_up(w, i);
}

void log_fix_post(struct log_writer *w, uint32_t peer, struct log_post *p)
{
	assert_true(log_writer_post_next(w, peer, p));
	assert_int_equal(p->peer, peer);
}

void log_fix_settle(struct log_writer *w, uint32_t peer)
{
	struct log_post p;
	uint32_t below;

	for (;;) {
		while (log_writer_free_next(w, peer, &below))
			;
		log_fix_lend_all(w, peer);
		if (!log_writer_post_next(w, peer, &p))
			return;
		log_writer_acked(w, &p);
	}
}

void log_fix_slot_is(const struct log_post *p, uint32_t slot, uint64_t seq,
		     uint64_t length)
{
	struct log_slot s;

	assert_int_equal(log_slot_decode(p->slot, &s), 0);
	assert_int_equal(p->slot_due, slot != NOT_DUE);
	if (p->slot_due)
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
	assert_int_equal(s.length_first,
			 p->index == 0 ? LENGTH : LENGTH + FULL * REC);
}

void log_fix_setup_two(struct log_writer *w)
{
	log_fix_setup(w);
	log_fix_up_three(w);
	log_fix_append_times(w, FULL);
	log_fix_add_region(w);
	log_fix_append_times(w, 1);
	log_fix_lend_all(w, 0);
	log_fix_lend_all(w, 1);
	log_fix_lend_all(w, 2);
}

void log_fix_trim_one(struct log_writer *w)
{
	uint8_t *base = log_writer_trim(w, w->seq);

	assert_non_null(base);
	free(base);
}
