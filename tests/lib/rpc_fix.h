/* A client of common/rpc.h and a daemon that the test plays
 * (tests/lib/tcp_server.h), for cmocka tests: what callbacks did is kept in
 * order. One at a time.
 */
#ifndef TESTS_LIB_RPC_FIX_H
#define TESTS_LIB_RPC_FIX_H

#include "common/rpc.h"
#include "tests/lib/tcp_server.h"

struct rpc_fix {
	struct tcp_server s;
	struct tcp_conn c;
	struct rpc_net *net;
	struct rpc_peer *p;
	struct gate *gate;
};

/* A net, a daemon, a connection between them, for *state. */
int rpc_fix_setup(void **state);
/* The peer is one whose answers callers may take in. */
int rpc_fix_setup_helped(void **state);
/* With the cluster's key, and frames with tags or encrypted. */
int rpc_fix_setup_mac(void **state);
int rpc_fix_setup_crypt(void **state);
int rpc_fix_teardown(void **state);

extern const struct rpc_peer_ops rpc_fix_ops;
extern void (*rpc_fix_up_hook)(struct rpc_peer *p); /* called by up() */
/* How long the connection lived that went down last. */
uint64_t rpc_fix_held_ms(void);
struct rpc_stats rpc_fix_stats(struct rpc_fix *x);

/* ---- what callbacks did: c: call, u: up, d: down, e: epoch, t: timer ---- */
void rpc_log_add(char what, uint64_t id, int status);
/* How many there are of @what; to be asked when none is on its way. */
int rpc_log_count(char what);
/* Until there are so many of @what. */
void rpc_log_wait(char what, int count);
/* Of the @nth event of a kind, from 0. */
int rpc_log_status(char what, int nth);
uint64_t rpc_log_id(char what, int nth);
/* Is it among the first @count of @what? */
bool rpc_log_has(char what, int count, uint64_t id);

struct test_call {
	struct rpc_call rpc;
	uint64_t id;
	uint8_t body[8];
	struct rpc_frame *frame; /* taken, if @keep */
	bool keep;
};

/* A PING that says @id; its callback adds to the log. */
void rpc_call_make(struct test_call *t, uint64_t id, uint32_t flags,
		   uint64_t timeout_ms);

/* What a PING said. */
uint64_t rpc_fix_number(const struct frame *f);
/* Receives a call, checks which it is, answers it. */
void rpc_fix_serve(struct tcp_conn *c, uint64_t id);

#endif
