/* A daemon as a child of a test: a scratch directory with cluster.conf, data/
 * and log, and the program, which dies with the test. A failed step ends the
 * test program.
 *
 * Programs are $BIN/NAME, $BIN by default build/bin. Directories are made in
 * $TEST_DIR, by default /var/tmp: on a real disk, since a tmpfs tells nothing
 * of O_DIRECT. With $KEEP they stay.
 */
#ifndef TESTS_LIB_CHILD_H
#define TESTS_LIB_CHILD_H

#include <sys/types.h>

#include "common/base.h"

#define CHILD_START_MS 20000 /* for it to come up, and to answer */
#define CHILD_END_MS 60000 /* longer than any daemon's own limits */

struct child {
	char dir[64];
	uint16_t port; /* of child_port(), its own also while it is down */
	int port_fd;
	pid_t pid; /* 0: not running */
	void (*before_exec)(void); /* in the child; NULL: nothing */
};

/* @name: how the directory's name begins. */
void child_init(struct child *x, const char *name);
/* Kills what runs and removes the directory. */
void child_fini(struct child *x);
/* DIR/cluster.conf, to be written and closed. */
FILE *child_conf(const struct child *x);
/* Starts @program as daemon 1 of the cluster file in the foreground, with more
 * options (each NULL-ended, or NULL). What it writes is added to DIR/log. */
void child_spawn(struct child *x, const char *program,
		 const char *const *options, const char *const *more);
/* False: it has ended. */
bool child_runs(struct child *x);
/* Waits for its end: the exit status, or 128 + the signal. One that does not
 * come ends the test, with the daemon's log. */
int child_wait(struct child *x);
void child_kill9(struct child *x);
int child_term(struct child *x); /* SIGTERM, then as child_wait() */
/* Ends the test with @what and the daemon's log. */
noreturn_fn void child_die(const struct child *x, const char *what);
/* For before_exec: preloads the test's own preload/@name. Not under asan, which
 * wants to be the first. */
void child_preload(const char *name);
bool child_log_has(const struct child *x, const char *text);

/* On loopback, for a daemon to listen on (with SO_REUSEADDR). While *@fd is
 * open no other socket is given it, nor a connection. */
uint16_t child_port(int *fd);
/* A byte of a file as a bad disk would have it; again: as it was. */
void child_flip(const char *path, off_t off);

#endif
