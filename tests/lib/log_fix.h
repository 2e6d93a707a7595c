/* A log's writer with three peers whose events the test tells: for cmocka
 * tests. Contents are of no interest. */
#ifndef TESTS_LIB_LOG_FIX_H
#define TESTS_LIB_LOG_FIX_H

#include "fuse/core/log_writer.h"

#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define CLUSTER 7u
#define INO 11u
#define EPOCH 3u
#define LENGTH 500u /* of the file before */
#define REC 952u /* of data: a record of 1000 */
/* So many records of REC fill a region; another small one finds room. */
#define FULL ((SIZE - LOG_DATA_OFF) / 1000u)

/* Three peers, down, and a region. */
void log_fix_setup(struct log_writer *w);
void log_fix_setup_log2(struct log_writer *w, uint8_t log2);
/* Two regions, the second with one record; all peers up, with both lent. */
void log_fix_setup_two(struct log_writer *w);
void log_fix_teardown(struct log_writer *w);

void log_fix_add_region(struct log_writer *w);
int log_fix_append_kind(struct log_writer *w, enum log_rec_kind kind,
			uint64_t off, uint32_t len);
/* A WRITE at the end of the file. */
int log_fix_append(struct log_writer *w, uint32_t len);
/* Of REC bytes each. */
void log_fix_append_times(struct log_writer *w, uint32_t times);

void log_fix_lend_all(struct log_writer *w, uint32_t peer);
void log_fix_up(struct log_writer *w, uint32_t peer);
void log_fix_up_three(struct log_writer *w);
/* There is one. */
void log_fix_post(struct log_writer *w, uint32_t peer, struct log_post *p);
/* Sends all there is and has it acknowledged. */
void log_fix_settle(struct log_writer *w, uint32_t peer);
/* The slot of @p says this, and so does @p. @slot: where it goes, NOT_DUE: it
 * need not. */
#define NOT_DUE UINT32_MAX
void log_fix_slot_is(const struct log_post *p, uint32_t slot, uint64_t seq,
		     uint64_t length);
void log_fix_trim_one(struct log_writer *w);

#endif
