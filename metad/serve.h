/* Connections: accepts, reads frames, collects replies and writes them once a
 * turn of the loop. What a frame means is request.c's.
 *
 * Buffers are bounded: a peer that does not read its replies, or has too many
 * requests waiting, is not read from.
 */
#ifndef METAD_SERVE_H
#define METAD_SERVE_H

#include "common/frame_in.h"
#include "common/wire_blk.h"
#include "metad/metad.h"

struct conn {
	struct metad *md;
	uint64_t id; /* never used again: replies find their way by it */
	/* from HELLO */
	bool hello;
	uint8_t role; /* enum wire_role */
	uint32_t peer_id;
	uint64_t session; /* also set when one is opened over it */
	uint64_t incarnation;
	char name[64], peer[64];
	uint32_t held; /* replies it waits for */
	/* private to serve.c */
	union {
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe; /* a peer on this machine */
	} sock;
	struct frame_in in;
	struct frame *kept; /* until it is certain that we lead; NULL: none */
	struct seal *seal; /* NULL: frames are not sealed */
	bool greeted; /* so @seal is known */
	struct conn_buf {
		uint8_t *p;
		size_t len, cap;
	} out, flight; /* gathering; being written */
	uv_write_t write;
	bool writing, reading, stopped, closing, dirty;
	uint64_t since_ms; /* accepted */
	struct conn *next, *dirty_next;
	struct conn *stopped_next;
	struct sm_snap *backup; /* of admin.c */
	uint64_t backup_off;
};

/* Where a reply goes, also when the connection may be gone by then. */
struct reply_to {
	uint64_t conn_id;
	uint64_t request_id;
	uint64_t session;
	uint16_t op;
};

int serve_new(struct metad *md, struct serve **ret);
/* Listens. Returns 0 or -errno. */
int serve_listen(struct serve *s, const char *addr, uint16_t port);
/* Stops accepting and closes every connection after what is written, but those
 * of other metads, without which nothing becomes durable. */
void serve_close(struct serve *s);
/* Those, too. */
void serve_end(struct serve *s);
void serve_free(struct serve *s);
/* Writes the replies of this turn. */
void serve_flush(struct serve *s);
/* Reads again from connections that were held back. */
void serve_resume(struct serve *s);

/* NULL: gone. */
struct conn *serve_conn(struct metad *md, uint64_t id);
/* Any connection of that session? */
bool serve_session_connected(struct metad *md, uint64_t session);
/* After the replies that are written already. */
void serve_conn_close(struct conn *c);
/* Closes those of @role with the same session (clients) or peer id that are
 * older than @incarnation. */
void serve_close_older(struct metad *md, uint8_t role, uint32_t peer_id,
		       uint64_t session, uint64_t incarnation);
void serve_close_session(struct metad *md, uint64_t session);

/* What HELLO is answered. */
struct hello_reply serve_hello_reply(const struct metad *md);
/* Says, and counts, that @c speaks @theirs (common/proto.h). */
void serve_other_version(const struct conn *c, const char *theirs);

/* Sends an answer without prefix (errors, HELLO, tools). @status: 0 or
 * -errno. A reply to a connection that is gone is dropped. */
void serve_reply_plain(struct metad *md, const struct reply_to *to, int status,
		       const void *body, size_t len);
/* Sends an answer with meta_rhdr before @body; an error has neither. */
void serve_reply(struct metad *md, const struct reply_to *to, int status,
		 const void *body, size_t len);

#endif
