/* Connections of the block daemon, over its ring: accept, receive frames,
 * send replies. Knows frames, not what they mean.
 *
 * Invariants
 * - Frames of one connection are handed over in their order, one at a time;
 *   the next one only after the handler took the last.
 * - Memory of frames in flight (received and not freed, or waiting to be sent)
 *   is counted for each connection and in all; above either limit nothing more
 *   is received. A frame that has begun to arrive has its memory already, so
 *   it can always be completed.
 * - Before its first frame was accepted (conn_trust()) a peer gets a small
 *   frame and little time.
 */
#ifndef BLOCKD_CONN_H
#define BLOCKD_CONN_H

#include "blockd/pool.h"
#include "blockd/ring.h"
#include "common/frame_in.h"
#include "common/gate.h"

struct conn;
struct conn_set;

/* A frame to send; the caller's memory until @sent, and nobody else's: where
 * frames are encrypted, it is in place. */
struct conn_out {
	struct iovec iov[2]; /* header and body; data */
	int iov_count;
	/* @ok: handed to the kernel's socket; else the connection went. */
	void (*sent)(struct conn_out *o, bool ok);
	struct conn_out *priv_next;
	uint8_t priv_tags[2][SEAL_TAG_SIZE];
	bool priv_raw; /* no frame: of the handshake */
};

struct conn_ops {
	/* A complete frame. Returns true when taken: it goes back with
	 * conn_frame_free(). False: not now; it is kept and offered again
	 * after conn_resume(). */
	bool (*frame)(struct conn *c, struct frame *f);
	/* No more frames come and nothing can be sent. */
	void (*closed)(struct conn *c);
	/* The last reference went after closed(); @c is freed after this. */
	void (*drained)(struct conn *c);
};

struct conn_limits {
	unsigned conn_max;
	/* Of frames in flight of one connection; at least two blocks, so that
	 * a request and its answer fit. */
	uint64_t conn_bytes_max;
	size_t frame_extra; /* room for the owner in each frame */
	struct gate *gate; /* borrowed; NULL: nobody is asked for a key */
};

struct conn_stats {
	uint64_t accepted, closed;
	uint64_t refused; /* above conn_max */
	uint64_t no_memory; /* refused, too */
	uint64_t frames_in, frames_out, bytes_in, bytes_out;
	uint64_t bad_frames; /* checksum, magic, length: closed */
	uint64_t timeouts; /* silent before HELLO, or not reading */
	uint64_t stalls; /* receiving stopped for memory */
	unsigned open;
};

/* Listens at @addr:@port (0: any, see conn_set_port()). @pool, @ops: borrowed.
 * Returns 0, or -errno with a sentence in @why. */
int conn_set_new(struct ring *r, struct pool *pool, const char *addr,
		 uint16_t port, const struct conn_limits *limits,
		 const struct conn_ops *ops, void *arg, struct conn_set **ret,
		 char *why, size_t why_size) must_check;
uint16_t conn_set_port(const struct conn_set *s);
/* Stops accepting and closes every connection; @cb when the last is gone. */
void conn_set_close(struct conn_set *s, void (*cb)(void *arg), void *arg);
/* After conn_set_close()'s callback. NULL: no-op. */
void conn_set_free(struct conn_set *s);
const struct conn_stats *conn_set_stats(const struct conn_set *s);
/* Calls @fn for each open connection; @fn may close it. */
void conn_set_each(struct conn_set *s, void (*fn)(struct conn *c, void *arg),
		   void *arg);

void *conn_arg(const struct conn *c); /* of conn_set_new() */
/* The owner's pointer, NULL at first. */
void *conn_user(const struct conn *c);
void conn_set_user(struct conn *c, void *user);
/* "addr:port" for diagnostics. */
const char *conn_name(const struct conn *c);

/* A reference keeps the memory of @c and its frames, not the connection. */
void conn_get(struct conn *c);
void conn_put(struct conn *c);
bool conn_is_closed(const struct conn *c);
/* HELLO was accepted: full-size frames from now on. */
void conn_trust(struct conn *c);
void conn_resume(struct conn *c);
/* Closes; ops->closed runs before return (once). Idempotent. */
void conn_close(struct conn *c);
/* Closes when all that was given to conn_send() is sent. */
void conn_close_after_send(struct conn *c);

void conn_frame_free(struct conn *c, struct frame *f);
/* Data memory for a reply, counted as the connection's; NULL: none now, wait
 * for conn_resume() by returning false from ops->frame (the connection is
 * resumed when memory came back). @len: the same in both. */
void *conn_buf_get(struct conn *c, size_t len);
void conn_buf_put(struct conn *c, void *buf, size_t len);
/* Counts other memory of an answer as the connection's, until it is given
 * back. Never fails: nothing more is received meanwhile. */
void conn_charge(struct conn *c, size_t len);
void conn_discharge(struct conn *c, size_t len);

/* Queues @o behind what is queued; leaves at the end of the turn. Returns
 * false when the connection is closed: @o was not taken. */
bool conn_send(struct conn *c, struct conn_out *o);

#endif
