/* The real hail-blockd program as a child of a test, with a fake metad and a
 * data directory of its own. A failed step ends the test program.
 *
 * The program is $BIN/hail-blockd, $BIN by default build/bin.
 */
#ifndef TESTS_LIB_BLOCKD_RUN_H
#define TESTS_LIB_BLOCKD_RUN_H

#include "tests/lib/blk_raw.h"
#include "tests/lib/fake_metad.h"

#define RUN_CLUSTER_ID 0x4711u

struct blockd_run {
	char dir[64]; /* scratch: cluster.conf, data/, log */
	struct fake_metad *metad;
	uint16_t port;
	pid_t pid; /* 0: not running */
	bool no_io_uring; /* set before run_start(): seccomp forbids it */
};

/* Scratch directory, metad, cluster file. Live sessions: 1. */
void run_init(struct blockd_run *x);
/* Kills what runs and removes everything. */
void run_fini(struct blockd_run *x);
/* Starts the daemon with more options (NULL-ended), waits until it answers an
 * admin's HELLO and has registered. */
void run_start(struct blockd_run *x, const char *const *args);
/* Runs it until it ends by itself. Returns the exit status; what it wrote is
 * in DIR/log. */
int run_to_end(struct blockd_run *x, const char *const *args);
void run_kill9(struct blockd_run *x);
/* SIGTERM; returns the exit status. */
int run_term(struct blockd_run *x);
/* Waits for an end that was asked for by other means. */
int run_wait(struct blockd_run *x);
/* Does DIR/log contain @text? */
bool run_log_has(const struct blockd_run *x, const char *text);
/* RssAnon of the daemon in bytes; CPU time used, in microseconds. */
uint64_t run_anon_bytes(const struct blockd_run *x);
uint64_t run_cpu_us(const struct blockd_run *x);

/* A connection of session 1 (or @session) with HELLO done. */
void run_client(const struct blockd_run *x, struct blk_raw *r,
		uint64_t session, uint64_t incarnation);
void run_as(const struct blockd_run *x, struct blk_raw *r, uint8_t role);

#endif
