/* The real hail-logd program as a child of a test, with a fake metad, and
 * clients that the test plays by hand (tests/lib/blk_raw.h).
 */
#ifndef TESTS_LIB_LOGD_RUN_H
#define TESTS_LIB_LOGD_RUN_H

#include "common/wire_log.h"
#include "tests/lib/blk_raw.h"
#include "tests/lib/child.h"
#include "tests/lib/fake_metad.h"
#include "tests/lib/log_stream.h"

/* A sanitizer's daemon takes more memory, and locks none. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LRUN_SANITIZED 1
#else
#define LRUN_SANITIZED 0
#endif

#define LRUN_CLUSTER_ID LOG_STREAM_CLUSTER_ID

struct logd_run {
	struct child child;
	struct fake_metad *metad; /* live sessions: 1, 2 */
};

struct logd_test {
	const char *name;
	void (*fn)(struct logd_run *x);
};
#define LOGD_TEST(fn) { #fn, fn }

/* main() of a program of such tests: each gets a scratch directory and a metad
 * of its own, the daemon is not started. */
int logd_tests_run(int argc, char **argv, const struct logd_test *tests,
		   size_t count);
/* Starts the daemon with more options (NULL-ended), waits until it answers an
 * admin's HELLO and has registered. */
void lrun_start(struct logd_run *x, const char *const *args);
/* A connection with HELLO done. */
void lrun_client(const struct logd_run *x, struct blk_raw *r, uint64_t session,
		 uint64_t incarnation);
void lrun_admin(const struct logd_run *x, struct blk_raw *r);
/* Value of a counter in the answer to ADMIN_STATS; -1: not there. */
long long lrun_counter(const struct logd_run *x, const char *name);
/* Of a number in the answer to ADMIN_STATUS. */
long long lrun_status(const struct logd_run *x, const char *name);
bool lrun_state_is(const struct logd_run *x, const char *state);
/* CPU time of the daemon. */
uint64_t lrun_cpu_us(const struct logd_run *x);

/* ---- requests of a log's writer and of who recovers it ---- */
/* Asks for the region. 0 or -errno. */
int lrun_alloc(struct blk_raw *r, const struct log_stream *g);
/* Sends [from, end) of the mirror with the slot; the first returns the
 * request's id, the second the answer. */
uint64_t lrun_post(struct blk_raw *r, const struct log_stream *g,
		   uint32_t from);
int lrun_write(struct blk_raw *r, const struct log_stream *g, uint32_t from);
/* The same with any slot and any data. */
int lrun_write_odd(struct blk_raw *r, const struct log_write *m,
		   const void *data, uint32_t len);
/* 0 or -errno; *held, *count: what there is, *seq: of the newest slot of the
 * last region, 0: none. May be NULL. */
int lrun_fence(struct blk_raw *r, uint64_t ino, uint64_t epoch,
	       uint64_t data_epoch, uint8_t *held, uint32_t *count,
	       uint64_t *seq);
int lrun_read(struct blk_raw *r, const struct log_read *m, void *to);
int lrun_free(struct blk_raw *r, uint64_t ino, uint64_t epoch,
	      uint64_t data_epoch, uint32_t below);
/* LOG_PING; *first: what is wanted back, if *count > 0. */
int lrun_ping(struct blk_raw *r, uint32_t *count, struct log_name *first);
int lrun_drain(struct blk_raw *admin, bool on, uint32_t deadline_ms);

#endif
