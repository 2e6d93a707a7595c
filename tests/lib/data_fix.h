/* A mount on a mini metad and mini block daemons, and blocking forms of its
 * data operations, for cmocka tests.
 */
#ifndef TESTS_LIB_DATA_FIX_H
#define TESTS_LIB_DATA_FIX_H

#include "tests/lib/core_fix.h"
#include "tests/lib/mini_blockd.h"
#include "tests/lib/mini_logd.h"

#define DFIX_BLOCKDS 3u
#define DFIX_LOGDS_MAX 6u
#define DBLOCK (1u << BLOCK_LOG2_DEFAULT)

struct dfix {
	struct fix f; /* metad and core, for core_fix.h */
	struct mini_blockd *b[DFIX_BLOCKDS];
	struct mini_logd *l[DFIX_LOGDS_MAX]; /* ids from 1 */
	uint32_t logd_count;
	struct core_options co;
};

struct dfix_options {
	uint64_t wb_bytes_max; /* 0: 64 MiB */
	uint64_t flush_age_ms; /* 0: a minute: never by itself */
	uint64_t timeout_ms;
	uint64_t prefetch_bytes_max; /* 0: 8 MiB */
	uint32_t logd_count;
	uint64_t logd_bytes; /* 0: 4 MiB */
};

struct dfix *dfix_new(const struct dfix_options *o); /* NULL: defaults */
/* Unmounts in order; nothing may be wrong anywhere. */
void dfix_stop(struct dfix *d);
/* Without: as kill -9 of the client would. */
void dfix_kill(struct dfix *d);

/* Another mount at the same place, not started: for core_start(). */
struct core *dfix_core_new(struct dfix *d);

struct core_file *d_create(struct dfix *d, const char *name);
void d_close(struct dfix *d, struct core_file *file);

/* Starts; ends with fix_call_end(). The bytes may go away at once. */
struct fix_call *d_write_start(struct dfix *d, struct core_file *file,
			       uint64_t off, const void *p, size_t len,
			       uint32_t flags);
int d_write(struct dfix *d, struct core_file *file, uint64_t off,
	    const void *p, size_t len, uint32_t flags);
/* Returns bytes read or -errno. */
ssize_t d_read(struct dfix *d, struct core_file *file, uint64_t off, void *p,
	       size_t len);
struct fix_call *d_fsync_start(struct dfix *d, struct core_file *file);
int d_fsync(struct dfix *d, struct core_file *file);
int d_sync(struct dfix *d);
int d_truncate(struct dfix *d, struct core_file *file, uint64_t size);
int d_fallocate(struct dfix *d, struct core_file *file, int mode, uint64_t off,
		uint64_t len);
/* Returns the offset or -errno. */
int64_t d_seek(struct dfix *d, struct core_file *file, uint64_t off,
	       int whence);
uint64_t d_size(struct dfix *d, struct core_file *file);

/* Of all daemons. */
uint64_t d_executed(struct dfix *d, uint16_t op);
uint64_t d_received(struct dfix *d, uint16_t op);
uint32_t d_held(struct dfix *d);
void d_hold(struct dfix *d, uint16_t op, bool hold);
void d_hold_replies(struct dfix *d, uint16_t op, bool hold);
void d_restart(struct dfix *d, bool lose);
void d_fail(struct dfix *d, uint16_t op, int err, int count);
void d_lose_replies(struct dfix *d, uint16_t op, int count);
/* Reads [off, off+len) as the daemons have it. */
void d_peek(struct dfix *d, struct core_file *file, uint64_t off, uint32_t len,
	    bool durable, void *buf);
/* What is durable; what a read gives, or the test has failed. */
void d_check_durable(struct dfix *d, struct core_file *file, uint64_t off,
		     const void *want, uint32_t len);
void d_check_read(struct dfix *d, struct core_file *file, uint64_t off,
		  const void *want, uint32_t len);
/* Deterministic bytes. */
void d_fill(void *p, size_t len, uint64_t seed);

#endif
