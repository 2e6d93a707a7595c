/* Incremental frame reader without I/O: bytes go in as they come, complete
 * frames with verified header and body come out. [pure]
 *
 *	n = frame_in_space(&in, iov);          where the next bytes shall go
 *	len = readv(fd, iov, n);               (or one io_uring readv)
 *	frame_in_fed(&in, len);
 *	while ((rv = frame_in_next(&in, &f)) == 1)
 *		serve(f);                      frame_free(f) when done
 *
 * Small frames come many a read through a stage buffer. The data of large ones
 * goes straight into a FRAME_DATA_ALIGN-aligned buffer of its own, which can be
 * written with O_DIRECT or handed on as it is.
 *
 * With frame_in_greet() a handshake (common/greet.h) comes first, whose answers
 * are to be sent, and frames come sealed as it says (common/seal.h).
 */
#ifndef COMMON_FRAME_IN_H
#define COMMON_FRAME_IN_H

#include "common/greet.h"
#include "common/wire.h"

#include <sys/uio.h>

#define FRAME_DATA_ALIGN 4096u
/* Data of this length or more lies alone in an aligned buffer, which is
 * rounded up to FRAME_DATA_ALIGN. Shorter data follows the body. */
#define FRAME_DATA_ALONE_MIN 32768u
#define FRAME_IN_IOV_MAX 4

/* Where large data goes; NULL instead of one: aligned heap memory. */
struct frame_bufs {
	/* @len: rounded up to FRAME_DATA_ALIGN. Returns memory aligned to
	 * FRAME_DATA_ALIGN; NULL: none now (frame_in_next() says -EAGAIN). */
	void *(*get)(const struct frame_bufs *b, size_t len);
	void (*put)(const struct frame_bufs *b, void *p, size_t len);
};

/* A received frame: one heap object, owned by whoever got it. */
struct frame {
	struct wire_header h;
	uint8_t *body; /* h.body_len bytes, checksum verified */
	uint8_t *data; /* h.data_len bytes, NOT verified: see the sums in the
			* body; NULL when there is none, or when taken */
	void *extra; /* caller's room, zeroed, aligned for any type */
	/* private */
	const struct frame_bufs *priv_bufs;
	bool priv_alone;
};

void frame_free(struct frame *f); /* NULL: no-op */
/* Takes the data buffer away from @f (only when frame_data_alone()); it goes
 * back with frame_data_put(). */
static inline bool frame_data_alone(const struct frame *f)
{
	return f->priv_alone && f->data;
}
void *frame_data_take(struct frame *f);
/* @bufs: as given to frame_in_init(). @len: the frame's data_len. */
void frame_data_put(const struct frame_bufs *bufs, void *p, size_t len);

/* One a connection; all fields private. */
struct frame_in {
	size_t extra;
	const struct frame_bufs *bufs;
	uint8_t *stage;
	size_t rd, wr; /* stage[rd, wr) holds bytes not looked at */
	size_t stage_want; /* how much to read ahead of the next frame */
	struct frame *cur; /* header known, bytes missing */
	size_t near_len, near_got; /* body and short data */
	size_t far_len, far_got; /* data in its own buffer */
	size_t tag_len, tag_got; /* of a sealed frame */
	uint8_t tag[SEAL_TAG_SIZE];
	struct greet *greet; /* NULL: none */
	bool greeted;
	struct seal *seal; /* NULL: frames are not sealed */
	struct seal *sealer; /* the other way, until it is taken */
	int error; /* latched */
	struct wire_header h; /* last header decoded */
};

/* @extra: bytes each frame has for its receiver. @bufs: borrowed for as long
 * as frames live; may be NULL. Returns 0 or -ENOMEM. */
int frame_in_init(struct frame_in *in, size_t extra,
		  const struct frame_bufs *bufs) must_check;
void frame_in_fini(struct frame_in *in);

/* Before anything is fed: first comes the handshake @g, which goes over to
 * @in. The one who connects calls frame_in_next() once to have it begin. */
void frame_in_greet(struct frame_in *in, struct greet *g);
/* What it has to say, after each frame_in_next(), also after one that failed;
 * to be sent before anything else. As greet_out(). */
size_t frame_in_out(struct frame_in *in, const void **ret);
/* Has it ended well? (Yes, when there is none.) */
bool frame_in_greeted(const struct frame_in *in);
/* Then, once: what seals frames the other way, the caller's from now on. NULL:
 * nothing does. */
struct seal *frame_in_sealer(struct frame_in *in);

/* Where the next bytes go, in order. @iov: [FRAME_IN_IOV_MAX]. Returns how
 * many were set, > 0; using only the first is allowed (libuv). Call it when
 * frame_in_next() had no more; the memory stays until frame_in_fed(), and no
 * other call may come between (a read may be in flight). Returns 0 only after
 * an error or while frame_in_next() says -EAGAIN. */
int frame_in_space(struct frame_in *in, struct iovec *iov);
/* @len bytes were put there. */
void frame_in_fed(struct frame_in *in, size_t len);
/* The same by copy, for bytes that already lie elsewhere. Returns how many of
 * @len were taken: then call frame_in_next() until 0 and feed the rest. */
size_t frame_in_feed(struct frame_in *in, const void *p, size_t len);

/* The next complete frame. Returns 1 and *ret; 0: more bytes are needed;
 *   -EBADMSG  bad magic, checksum, flags or length: count it and close
 *   -EPROTONOSUPPORT another version (frame_in_header() tells which)
 *   what greet_feed() said
 *   -EAGAIN   bufs->get() had nothing: call again when it may have
 *   -ENOMEM
 * Errors but -EAGAIN and -ENOMEM stay. */
int frame_in_next(struct frame_in *in, struct frame **ret) must_check;
/* The header decoded last, complete frame or not. */
const struct wire_header *frame_in_header(const struct frame_in *in);
/* Was no frame asked for but a handshake? Its refusal is what has come. */
bool frame_in_key_wanted(const struct frame_in *in);
/* Is a frame begun? At end of file: the peer was cut off in the middle. */
bool frame_in_partial(const struct frame_in *in);

#endif
