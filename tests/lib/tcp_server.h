/* A daemon's side of the protocol over loopback, played step by step by a
 * test: blocking calls that give up after some seconds.
 *
 * A failed step ends the test program: a test cannot go on from it.
 */
#ifndef TESTS_LIB_TCP_SERVER_H
#define TESTS_LIB_TCP_SERVER_H

#include "common/frame_in.h"
#include "common/gate.h"
#include "common/wire_blk.h"

struct tcp_server {
	int listen_fd;
	uint16_t port;
	uint64_t cluster_id; /* in every header */
	uint64_t epoch; /* in every header */
	uint64_t boot_id;
	uint16_t version; /* in every header; 0: ours */
	struct gate *gate; /* borrowed; NULL: asks for no key */
};

struct tcp_conn {
	struct tcp_server *s;
	int fd;
	struct frame_in in;
	struct seal *seal; /* NULL: frames are not sealed */
	uint64_t incarnation, session; /* as HELLO said */
};

void tcp_server_init(struct tcp_server *s);
/* Nobody listens on the port after it. */
void tcp_server_stop(struct tcp_server *s);
/* Listens again on the same port. */
void tcp_server_again(struct tcp_server *s);

/* Waits for a connection; HELLO is not read yet. */
void tcp_accept(struct tcp_server *s, struct tcp_conn *c);
/* Accepts, reads HELLO and answers it with @status (0: welcome). */
void tcp_accept_hello(struct tcp_server *s, struct tcp_conn *c, int status);
void tcp_close(struct tcp_conn *c);

/* The next frame, to be freed. */
struct frame *tcp_recv(struct tcp_conn *c);
/* The same, or NULL when the peer has closed. */
struct frame *tcp_recv_or_end(struct tcp_conn *c);
/* Waits until the peer has closed; frames before are dropped. */
void tcp_wait_end(struct tcp_conn *c);

struct tcp_reply {
	uint16_t opcode;
	uint64_t request_id;
	int status; /* 0 or -errno */
	const void *body;
	uint32_t body_len;
	const void *data;
	uint32_t data_len;
};
/* Encodes to malloc'd memory what must be the next to go. */
uint8_t *tcp_encode(struct tcp_conn *c, const struct tcp_reply *r,
		    size_t *len);
void tcp_reply(struct tcp_conn *c, const struct tcp_reply *r);
/* Answers @f with an empty body. */
void tcp_answer(struct tcp_conn *c, const struct frame *f, int status);
void tcp_write(struct tcp_conn *c, const void *p, size_t len);

#endif
