/* Inside of conn_set.c (listening), conn.c (life, receiving), conn_send.c. */
#ifndef BLOCKD_CONN_PRIV_H
#define BLOCKD_CONN_PRIV_H

#include <sys/socket.h>

#include "blockd/conn.h"

/* Replies that leave in one system call. */
#define CONN_SEND_IOV_MAX 64
/* Silence before HELLO, and a peer that does not read what it asked for. */
#define CONN_HELLO_MS 10000u
#define CONN_SEND_MS 30000u
/* Silence in the middle of a frame, whose memory is held. */
#define CONN_RECV_MS 30000u
#define CONN_SWEEP_MS 5000u
/* Sweeps without a frame after which buffers are given to the kernel. */
#define CONN_IDLE_SWEEPS 6u
/* A stranger's frames. */
#define CONN_HELLO_BODY_MAX 4096u

/* One for TCP, one for peers on the same machine (common/local_sock.h). */
#define CONN_LISTENERS 2

struct conn_listener {
	struct conn_set *set;
	int fd; /* -1: none */
	struct ring_op op;
	struct sockaddr_storage addr; /* of who was accepted */
	socklen_t addr_len;
	bool accepting;
	struct ring_timer retry;
};

struct conn_set {
	struct ring *ring;
	struct pool *pool;
	struct conn_limits limits;
	const struct conn_ops *ops;
	void *arg;
	struct conn_stats stats;
	uint16_t port;
	struct conn_listener listeners[CONN_LISTENERS];
	struct ring_timer sweep;
	uint64_t idle_frames; /* stats.frames_in at the last sweep */
	unsigned idle_sweeps;
	struct conn *conns; /* all that live, closed ones too */
	struct conn *stalled, **stalled_tail;
	struct ring_defer wake; /* goes through the stalled ones */
	bool no_poll_first; /* kernel before 5.19 */
	bool closing;
	void (*close_cb)(void *arg);
	void *close_arg;
};

struct conn {
	struct conn_set *set;
	struct conn *next, *prev;
	void *user;
	int fd;
	unsigned refs; /* one for being open, one an operation or request */
	bool closed;
	bool trusted;
	bool paused; /* @held waits for conn_resume() */
	bool resumed; /* conn_resume() came during ops->frame() */
	bool in_pump;
	bool stalled; /* in set->stalled */
	bool close_after_send;
	bool short_of_memory; /* conn_buf_get() failed in this hand-over */
	uint64_t bytes; /* of frames in flight */
	uint64_t since_ms; /* accepted; last progress of a send */
	uint64_t recv_ms; /* bytes came last */

	struct conn_bufs {
		struct frame_bufs base;
		struct conn *conn;
	} bufs;
	struct frame_in in;
	struct seal *seal; /* NULL: frames are not sealed */
	bool greeted; /* so @seal is known */
	struct frame *held;
	struct conn *stalled_next;
	struct ring_op recv_op;
	struct msghdr recv_msg;
	struct iovec recv_iov[FRAME_IN_IOV_MAX];
	bool more; /* the socket had more when it was read last */
	struct ring_defer again; /* pump outside of a handler */

	struct conn_out *out, **out_tail;
	struct ring_op send_op;
	struct ring_defer flush;
	struct msghdr send_msg;
	struct iovec send_iov[CONN_SEND_IOV_MAX];
	size_t sent_bytes; /* of the first of @out */
	bool sending;

	char name[64];
};

/* conn_set.c: a connection's memory went */
void conn_set_gone(struct conn_set *s);

/* conn.c: takes @fd over on success */
int conn_new(struct conn_set *s, int fd, const char *name);
void conn_wake_stalled(struct ring_defer *d);
bool conn_is_overdue(const struct conn *c, uint64_t now_ms);

/* conn_send.c */
void conn_send_init(struct conn *c);
/* Queues what the handshake says, as it is. Returns 0 or -ENOMEM. */
int conn_send_raw(struct conn *c, const void *bytes, size_t len);
/* Gives back what waits; not what the kernel works on. */
void conn_send_drop(struct conn *c);

#endif
