/* The mini metad inside: mini_metad.c answers requests, mini_metad_test.c is
 * what a test does to it and asks.
 */
#ifndef TESTS_LIB_MINI_METAD_PRIV_H
#define TESTS_LIB_MINI_METAD_PRIV_H

#include "tests/lib/mini_metad.h"
#include "tests/lib/mini_serve.h"

#define MINI_CLUSTER_ID 0x6d696e69u

/* A command that changed the state: what a restart replays. */
struct mini_log {
	uint16_t op;
	uint64_t session, pos;
	uint8_t *body;
	uint32_t len;
};

/* A reply that waits: for durability, or for the test. */
struct mini_held {
	struct mini_held *next;
	uint64_t conn_id;
	struct wire_header h; /* of the request */
	uint64_t pos; /* to be durable */
	uint64_t cut_ino, cut;
	bool sync;
	uint8_t *body; /* after the rhdr */
	uint32_t len;
};

struct mini_metad {
	struct mini_serve s; /* its lock is of all below */
	struct mini_metad_options o;
	struct sm *sm;
	uint64_t boot_id, durable;
	bool hold;
	struct mini_log *log;
	size_t log_len, log_cap;
	struct mini_held *waiting, *kept; /* for durability; for the test */
	struct mini_held *kept_alive; /* the same of keepalives */
	uint16_t lose_op, hold_op, fail_op;
	int lose_count, fail_err, fail_count;
	bool fail_done; /* executed all the same */
	struct {
		uint64_t session, conn_id, seq;
	} seen; /* the largest of mutations */
	bool hold_replies, hold_keepalives;
	uint64_t executed[256], received[256];
	uint32_t purges;
	struct mini_metad_logd logds[MINI_METAD_LOGD_MAX];
	uint32_t logd_count;
	char status[16384];
	struct conf conf;
	struct conf_daemon metad, blockds[MINI_METAD_BLOCKD_MAX];
};

/* ---- lock held ---- */
/* As sm_apply(); what changed the state is kept, for mm_lose_suffix(). */
void mm_apply(struct mini_metad *m, uint16_t op, uint64_t session,
	      const void *body, size_t len, struct sm_reply *r);
/* Back to what was durable. */
void mm_lose_suffix(struct mini_metad *m);
/* Unless held: everything so far is durable, and what waited for it goes. */
void mm_commit(struct mini_metad *m);
void mm_session_drop(struct mini_metad *m, uint64_t session);
/* The answer to request @q; @prefix: with the rhdr of now. */
void mm_frame_send(struct mini_metad *m, struct mini_conn *c,
		   const struct wire_header *q, int status, bool prefix,
		   const void *body, uint32_t len);
void mm_held_free(struct mini_held *w);

#endif
