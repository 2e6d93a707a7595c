/* The real hail-blockd program as a child of a test, with a fake metad and a
 * data directory of its own. A failed step ends the test program.
 */
#ifndef TESTS_LIB_BLOCKD_RUN_H
#define TESTS_LIB_BLOCKD_RUN_H

#include "tests/lib/blk_raw.h"
#include "tests/lib/child.h"
#include "tests/lib/fake_metad.h"

#define RUN_CLUSTER_ID 0x4711u

struct blockd_run {
	struct child child;
	struct fake_metad *metad; /* live sessions: 1 */
};

struct blockd_test {
	const char *name;
	void (*fn)(struct blockd_run *x);
};
#define BLOCKD_TEST(fn) { #fn, fn }

/* main() of a program of such tests: each gets a scratch directory and a metad
 * of its own, the daemon is not started. */
int blockd_tests_run(int argc, char **argv, const struct blockd_test *tests,
		     size_t count);

/* Scratch directory, metad, cluster file. */
void run_init(struct blockd_run *x);
/* Kills what runs and removes everything. */
void run_fini(struct blockd_run *x);
/* Starts the daemon with more options (NULL-ended), waits until it answers an
 * admin's HELLO and has registered. */
void run_start(struct blockd_run *x, const char *const *args);
/* Runs it until it ends by itself. Returns the exit status; what it wrote is
 * in DIR/log. */
int run_to_end(struct blockd_run *x, const char *const *args);
/* From now on its process may not use io_uring, or may again. */
void run_forbid_io_uring(struct blockd_run *x, bool forbid);
/* RssAnon of the daemon in bytes; CPU time used, in microseconds. */
uint64_t run_anon_bytes(const struct blockd_run *x);
uint64_t run_cpu_us(const struct blockd_run *x);

/* A connection of session 1 (or @session) with HELLO done. */
void run_client(const struct blockd_run *x, struct blk_raw *r,
		uint64_t session, uint64_t incarnation);
void run_as(const struct blockd_run *x, struct blk_raw *r, uint8_t role);

/* Value of a counter in the answer to ADMIN_STATS; -1: not there. */
long long run_counter(const struct blockd_run *x, const char *name);

/* Bytes that follow from @seed. */
void run_fill(uint8_t *p, size_t len, unsigned seed);
/* A block holds @want there, or the test that runs has failed. */
void run_check_holds(struct blk_raw *r, uint64_t ino, uint64_t index,
		     uint32_t off, const uint8_t *want, uint32_t len);

#endif
