/* A log's region as its writer has it: records that a test makes up, and the
 * slot that speaks for them.
 */
#ifndef TESTS_LIB_LOG_STREAM_H
#define TESTS_LIB_LOG_STREAM_H

#include "common/log_rec.h"

#define LOG_STREAM_CLUSTER_ID 0x4711u

struct log_stream {
	uint64_t ino, epoch;
	uint64_t writer; /* epoch of who writes; at first the log's */
	uint32_t index;
	uint8_t log2;
	uint8_t *mirror; /* 1 << log2 bytes */
	uint32_t end; /* of the records in it */
	uint64_t seq; /* of the last */
	uint64_t length; /* of the file after it */
};

/* Out of memory ends the test. */
void log_stream_init(struct log_stream *g, uint64_t ino, uint64_t epoch,
		  uint8_t log2);
void log_stream_fini(struct log_stream *g);
/* The log's next region: an empty mirror, the numbers go on. */
void log_stream_next(struct log_stream *g);
/* Adds a record of @len bytes. */
void log_stream_append(struct log_stream *g, uint32_t len);
/* The slot that speaks for all of it: LOG_SLOT_SIZE bytes. */
void log_stream_slot(const struct log_stream *g, uint8_t *to);

#endif
