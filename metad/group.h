/* The other metads of the group: connections to them, what they say of
 * themselves, and the transport that libraft uses to reach them (transport.c).
 *
 * All on the thread of the loop but for rpc's own.
 */
#ifndef METAD_GROUP_H
#define METAD_GROUP_H

#include "common/proto.h"
#include "common/rpc.h"
#include "metad/datadir.h"
#include "metad/request.h"

struct group;

/* A call to another metad; the caller's memory until @fn runs, on the loop.
 * As struct rpc_call, whose @opcode, @timeout_ms, @body and @body_len are the
 * caller's. */
struct group_call {
	struct rpc_call rpc;
	void (*fn)(struct group_call *c);
	/* result: 0 and @frame, to be freed with rpc_frame_free(), or -errno */
	int status;
	struct rpc_frame *frame;
	/* private */
	struct group *group;
	struct group_call *next;
};

/* What is known of another metad. */
struct group_member {
	uint32_t id;
	bool up; /* it answered lately */
	uint8_t state; /* enum datadir_state, as it said last */
	uint8_t voter; /* what it takes us for: enum meta_voter */
	uint32_t leader; /* as it said last; 0: none */
	uint64_t pos;
	uint64_t heard_ms; /* uv_now(); 0: never */
	/* What it and this one have, as of its last HELLO; minor 0 and no
	 * features: there was none. */
	struct proto proto;
};

/* What an empty directory is to be. */
enum group_verdict {
	GROUP_FORM, /* nobody has anything: make the group */
	GROUP_WAIT, /* not all have said what they are */
	GROUP_JOIN, /* there is a group, which is yet to take this one in */
	GROUP_REFUSE, /* the group counts on what this one had */
};

/* Connects to every other metad of the cluster file. Returns 0 or -errno. */
int group_new(struct metad *md, struct group **ret);
/* Calls end with -ECANCELED, streams break; nothing calls back afterwards. */
void group_stop(struct group *g);
/* After the loop has closed the handles. NULL: no-op. */
void group_free(struct group *g);

uint32_t group_count(const struct group *g); /* of others */
/* @i: 0 .. group_count() - 1. */
const struct group_member *group_other(const struct group *g, uint32_t i);
/* What all members have: only that may a command use. It stays so while one is
 * down; one of which nothing was heard yet may have nothing. NULL: what this
 * program has. */
struct proto group_proto(const struct group *g);
/* Of a directory in which nothing is. *@by: who decided, of GROUP_REFUSE and
 * GROUP_JOIN; who is waited for, of GROUP_WAIT. */
enum group_verdict group_verdict(const struct group *g, uint32_t *by);
/* Every other one may have voted, so that none will make a group anew.
 * *@by: who is waited for. */
bool group_joined(const struct group *g, uint32_t *by);

/* @to: id of another metad. -ENOTCONN: it is not connected; @fn does not run.
 * Else 0. */
int group_send(struct group *g, uint32_t to, struct group_call *c);
/* What was sent to it was not answered in time: connect again. */
void group_reset(struct group *g, uint32_t to);

/* ---- transport.c ---- */
struct raft_uv_transport;
struct transport;
int transport_new(struct group *g, struct transport **ret);
struct raft_uv_transport *transport_raft(struct transport *t);
void transport_stop(struct transport *t);
void transport_free(struct transport *t);
struct metad *group_metad(struct group *g);
struct transport *group_transport(struct group *g);
/* Streams that came over this connection break. */
void transport_conn_gone(struct transport *t, uint64_t conn_id);

/* Handlers of what other metads ask. */
void group_member_run(struct request *r);
/* member.c: WIRE_OP_ADMIN_METAD */
void member_run(struct request *r);
void transport_run(struct request *r);

#endif
