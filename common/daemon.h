/* What every daemon does at its start and end: background, pid file, limits,
 * stop signal.
 */
#ifndef COMMON_DAEMON_H
#define COMMON_DAEMON_H

#include "common/base.h"

struct daemon_options {
	const char *program;
	bool foreground;
	const char *pidfile; /* NULL: none */
	const char *log; /* NULL: syslog in the background, else stderr */
};

/* Call before any thread is started. In the background: forks; the parent
 * waits and exits 0 once daemon_ready() was called, or with 1 when the child
 * died before (what it wrote to stderr was the user's to see). Raises
 * RLIMIT_NOFILE to the hard limit. Takes the pid file: locked with flock for
 * the process's life, so that a number in it alone proves nothing.
 * Returns 0; -EBUSY: another process holds the pid file (said on stderr);
 * -errno. */
int daemon_start(const struct daemon_options *o);

/* Why nobody can listen there (-errno; -EHOSTUNREACH: a name nobody knows), and
 * what to do; goes behind "cannot listen at ADDR: ". */
const char *daemon_listen_error(int err);

/* The service is up: lets the parent go, moves stderr to the log. */
void daemon_ready(void);

/* A file descriptor that becomes readable on SIGTERM or SIGINT. SIGPIPE is
 * ignored. Call before threads, so that they inherit the mask. -errno. */
int daemon_stop_fd(void);

/* Locks @fd, a file in a data directory, for the process's life. A killed
 * process holds its locks until it has given its memory back, which can take
 * seconds: so this waits, up to DAEMON_LOCK_WAIT_MS, and says on stderr that it
 * does (@program, @dir). Returns 0; -EBUSY: it is in use; -errno. */
#define DAEMON_LOCK_WAIT_MS 10000u
int daemon_lock(int fd, const char *program, const char *dir);

/* Is a process alive that holds @pidfile? Returns its pid, 0 if none, or
 * -errno. */
int daemon_pid_alive(const char *pidfile);

/* Undoes the pid file. */
void daemon_end(void);

#endif
