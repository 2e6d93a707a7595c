/* Connections of the log daemon: accept, receive frames, gather replies and
 * send them once a turn. Knows frames, not what they mean.
 *
 * - Frames of a connection are handed over in their order; each is dealt with
 *   when the call returns, or is offered again (lconn_resume()).
 * - A closed connection hands over nothing more, whatever had come over it.
 * - A peer that does not read its replies is not read from. Before HELLO it
 *   gets a small frame and little time.
 */
#ifndef LOGD_CONN_H
#define LOGD_CONN_H

#include "common/frame_in.h"
#include "common/gate.h"
#include "logd/loop.h"

struct lconn;
struct lconn_set;

struct lconn_ops {
	/* A complete frame, the set's. False: not now; it is kept, and offered
	 * again after lconn_resume(). */
	bool (*frame)(struct lconn *c, struct frame *f);
	/* It is closed; its memory goes at the end of the turn. */
	void (*closed)(struct lconn *c);
};

struct lconn_stats {
	uint64_t accepted, closed;
	uint64_t refused; /* above the limit, or no memory */
	uint64_t frames_in, bytes_in, bytes_out;
	uint64_t bad_frames; /* checksum, magic, length: closed */
	uint64_t timeouts; /* silent before HELLO, or not reading */
	uint64_t open;
};

/* Listens at @addr:@port (0: any). @gate, @ops: borrowed. Returns
 * 0, or -errno with a sentence in @why. */
int lconn_set_new(struct loop *l, struct gate *gate, const char *addr,
		  uint16_t port, unsigned conn_max,
		  const struct lconn_ops *ops, void *arg,
		  struct lconn_set **ret, char *why, size_t why_size)
	must_check;
/* Stops accepting, closes all. */
void lconn_set_close(struct lconn_set *s);
void lconn_set_free(struct lconn_set *s); /* after _close(); NULL: no-op */
/* At each turn's end: sends what was gathered, frees what was closed. */
void lconn_set_flush(struct lconn_set *s);
uint16_t lconn_set_port(const struct lconn_set *s);
const struct lconn_stats *lconn_set_stats(const struct lconn_set *s);
/* Offers what is kept again. */
void lconn_set_resume(struct lconn_set *s);

void *lconn_arg(const struct lconn *c); /* of lconn_set_new() */
/* The owner's pointer, NULL at first. */
void *lconn_user(const struct lconn *c);
void lconn_set_user(struct lconn *c, void *user);
/* "addr:port" for diagnostics. */
const char *lconn_name(const struct lconn *c);
/* HELLO was accepted: full-size frames from now on. */
void lconn_trust(struct lconn *c);
/* ops->closed runs before return, once. */
void lconn_close(struct lconn *c);
/* Closes when what is gathered is sent; hands over nothing more. */
void lconn_close_after_send(struct lconn *c);
bool lconn_is_closed(const struct lconn *c);

/* Room for a frame behind what is gathered, which leaves with it: its header
 * goes to what is returned, its @len bytes of body and data to *rest; then
 * lconn_frame_end(). NULL: the connection is closed (now, if there is no
 * memory). */
uint8_t *lconn_frame(struct lconn *c, size_t len, uint8_t **rest);
void lconn_frame_end(struct lconn *c, uint8_t *frame, size_t len);

#endif
