/* What each request means. The one place where a frame is judged before
 * anything is done with it.
 */
#ifndef METAD_REQUEST_H
#define METAD_REQUEST_H

#include "metad/serve.h"

struct request {
	struct metad *md;
	struct conn *conn;
	struct reply_to to;
	uint64_t epoch; /* of the sender's map */
	bool resent; /* WIRE_F_RESENT */
	const uint8_t *body;
	uint32_t body_len;
};

/* Handles a frame; the reply comes now or later. Returns 0, or < 0: the
 * connection is to be closed (-EBADMSG: it speaks nonsense). */
int request_frame(struct conn *c, const struct frame *f) must_check;
/* Is @f to be kept, and handled in a later turn? It is about the state, of
 * which it is not certain that it is still the newest; see
 * metaraft_confirmed(). */
bool request_must_wait(const struct conn *c, const struct frame *f);
/* Frees what waits, at the end. */
void request_drop(struct metad *md);
/* Each turn of the loop. */
void request_turn(struct metad *md);
/* Answers with the attributes of @ino, as META_GETATTR; later, while it is
 * being cut by another session: then the request runs again. */
void request_attr(struct request *q, uint64_t ino);
/* Executes a held request, again or at last. */
void request_run(struct request *r);
/* The connection is gone: nobody waits for its replies. */
void request_conn_gone(struct conn *c);

/* Sends the reply when position @pos is durable; at once when it is. @status,
 * @body: as of serve_reply(). Without memory the connection is closed, for what
 * was asked may be done: who asks again is told. */
void request_reply_at(struct metad *md, const struct reply_to *to, uint64_t pos,
		      int status, const void *body, size_t len);

#endif
