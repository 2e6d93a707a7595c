/* A client of the block daemon that a test plays by hand: blocking, one
 * socket, any header field wrong on purpose. A failed system call ends the
 * test program.
 */
#ifndef TESTS_LIB_BLK_RAW_H
#define TESTS_LIB_BLK_RAW_H

#include "common/frame_in.h"
#include "common/wire_blk.h"

struct blk_raw {
	int fd;
	uint64_t cluster_id, epoch, session, next_id;
	uint32_t flags; /* of requests, WIRE_F_* */
	struct frame_in in;
	/* of the last answer */
	uint64_t boot_id, free_units;
	int64_t units_delta;
};

/* Connects to loopback; no HELLO yet. False: refused. */
bool raw_connect(struct blk_raw *r, uint16_t port, uint64_t cluster_id);
void raw_close(struct blk_raw *r);

/* Sends a frame; returns its id. */
uint64_t raw_send(struct blk_raw *r, uint16_t op, const void *body,
		  size_t body_len, const void *data, size_t data_len);
/* The next frame, to be freed; NULL: closed by the daemon, or nothing within
 * @timeout_ms (errno ETIMEDOUT). */
struct frame *raw_recv(struct blk_raw *r, int timeout_ms);
/* Waits for the end of the connection; false: still open after that. */
bool raw_closed(struct blk_raw *r, int timeout_ms);

/* Status of HELLO: 0 or -errno; -ECONNRESET: closed, -ETIMEDOUT: silence. */
int raw_hello(struct blk_raw *r, uint8_t role, uint64_t session,
	      uint64_t incarnation, int timeout_ms);
/* A peer of a later release, twice: the status of a HELLO that only the next
 * version may answer; and of a frame of that version, which has to be the end
 * of its connection (else -EPROTO). */
int raw_later_hello(uint16_t port, uint64_t cluster_id, int timeout_ms);
int raw_later_frame(uint16_t port, uint64_t cluster_id, int timeout_ms);
/* One request and its answer's status. @data_ret (may be NULL): @data_cap
 * bytes for the answer's data. */
int raw_call(struct blk_raw *r, uint16_t op, const void *body, size_t body_len,
	     const void *data, size_t data_len, struct frame **answer);
/* The same; the body is a struct @type of the fields that follow. */
#define RAW_CALL(r, op, type, answer, ...)                                    \
	({                                                                    \
		struct type m_ = __VA_ARGS__;                                 \
		uint8_t b_[256];                                              \
		struct wire_out o_;                                           \
		wire_out_init(&o_, b_, sizeof(b_));                           \
		type##_encode(&o_, &m_);                                      \
		raw_call(r, op, b_, o_.len, NULL, 0, answer);                 \
	})

/* The usual ones; blocks of 1 MiB. Sums of what is read are checked. */
uint64_t raw_write_begin(struct blk_raw *r, uint64_t ino, uint64_t index,
			 uint32_t off, const void *p, uint32_t len,
			 uint32_t flags);
int raw_write(struct blk_raw *r, uint64_t ino, uint64_t index, uint32_t off,
	      const void *p, uint32_t len, uint32_t flags);
/* *hole: nothing there, @p untouched. */
int raw_read(struct blk_raw *r, uint64_t ino, uint64_t index, uint32_t off,
	     void *p, uint32_t len, bool *hole);
int raw_sync(struct blk_raw *r, uint64_t ino);

#endif
