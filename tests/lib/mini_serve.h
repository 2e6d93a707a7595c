/* What the mini daemons share: a thread that listens on loopback and takes
 * frames apart with poll(2), and a lock for all that the daemon has.
 *
 * A failed step ends the test program.
 */
#ifndef TESTS_LIB_MINI_SERVE_H
#define TESTS_LIB_MINI_SERVE_H

#include "common/frame_in.h"

#include <pthread.h>

struct mini_serve;

struct mini_conn {
	struct mini_conn *next;
	uint64_t id;
	int fd;
	bool hello, closing; /* closing: as if it were gone */
	uint64_t session;
	struct frame_in in;
};

/* With the lock held, on the thread. */
struct mini_serve_ops {
	/* Takes over @f. */
	void (*on_frame)(struct mini_serve *s, struct mini_conn *c,
			 struct frame *f);
	/* Before a connection with a wrong frame is closed; may be NULL. */
	void (*on_bad)(struct mini_serve *s);
	/* Before it waits for more, and before it takes more. */
	void (*on_turn)(struct mini_serve *s);
};

/* To be embedded. */
struct mini_serve {
	const struct mini_serve_ops *ops;
	pthread_t thread;
	pthread_mutex_t lock; /* of all below, and of the daemon's */
	struct mini_conn *conns;
	uint64_t next_conn;
	int listen_fd, event_fd; /* listen_fd -1: down */
	int port_fd; /* keeps the port */
	uint16_t port;
	bool stop;
};

/* For what a test cannot go on without; unlike assert(), also for effects. */
#define must(ok) ((ok) ? (void)0 : must_failed(#ok, __FILE__, __LINE__))
_Noreturn void must_failed(const char *what, const char *file, int line);

/* Listens on a port of its own; the thread comes with mini_serve_start(). */
void mini_serve_init(struct mini_serve *s, const struct mini_serve_ops *ops);
void mini_serve_start(struct mini_serve *s);
/* Ends the thread; then the connections are gone. */
void mini_serve_stop(struct mini_serve *s);
void mini_serve_fini(struct mini_serve *s);

void mini_serve_lock(struct mini_serve *s);
void mini_serve_unlock(struct mini_serve *s);
/* Unlocks, and lets the thread have a turn. */
void mini_serve_kick(struct mini_serve *s);

/* ---- with the lock held ---- */
/* Nobody listens; listens again on the same port (any, if that was set to 0).
 * Connections stay. */
void mini_serve_down(struct mini_serve *s);
void mini_serve_up(struct mini_serve *s);

/* NULL: gone. */
struct mini_conn *mini_conn_find(struct mini_serve *s, uint64_t id);
void mini_conn_close(struct mini_conn *c);
void mini_conns_close(struct mini_serve *s);
/* A whole frame. */
void mini_conn_write(struct mini_conn *c, uint8_t *p, size_t len);
/* May change, and shorten, each frame that any daemon sends. NULL: none. Set
 * while nothing is under way. */
extern void (*mini_reply_hook)(uint8_t *frame, size_t *len);

#endif
