/* Who is connected, and when a session was heard of last. Volatile: after a
 * restart every session has its full time again.
 */
#ifndef METAD_SESSION_H
#define METAD_SESSION_H

#include "metad/request.h"

/* What of a mount's own status (META_KEEPALIVE) is kept for tools. */
#define SESSION_STATUS_MAX 65536u

struct sessions *sessions_new(struct metad *md);
void sessions_free(struct sessions *ss);

/* Each turn of the loop. After one that took long every session has its full
 * time again: what it sent meanwhile may not have been read yet. */
void sessions_turn(struct metad *md);

/* HELLO of a peer: closes its older connections. Returns 0, or -ESTALE: there
 * was a newer one. */
int session_incarnation(struct metad *md, uint8_t role, uint32_t peer_id,
			uint64_t session, uint64_t incarnation);
void session_connected(struct metad *md, uint64_t session);
/* A request of it came. */
void session_alive(struct metad *md, uint64_t session);
/* Nothing was heard of it for so long that another may take its place. */
bool session_gone(struct metad *md, uint64_t session);
/* What it was answered by the process before this one, and that was lost, it
 * has sent again: first of all over its new connection, so before any
 * keepalive. */
bool session_settled(struct metad *md, uint64_t session);
void session_settle(struct metad *md, uint64_t session);
/* It is over: forget it. */
void session_forget(struct metad *md, uint64_t session);
uint64_t session_idle_ms(struct metad *md, uint64_t session);
/* JSON text of its last keepalive; len 0: none. */
struct wire_str session_status(struct metad *md, uint64_t session);

/* Handlers. */
void session_open(struct request *r);
void session_close(struct request *r);
void session_keepalive(struct request *r);

#endif
