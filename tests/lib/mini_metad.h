/* A metadata daemon in a thread, for tests of the client core: the real state
 * machine (metad/sm.h) behind a loopback socket, no raft. Commands are applied
 * in order of arrival; what is "durable" is a count the test may hold back, so
 * that a restart loses the suffix that was not.
 *
 * Every function may be called from any thread.
 */
#ifndef TESTS_LIB_MINI_METAD_H
#define TESTS_LIB_MINI_METAD_H

#include "common/conf.h"
#include "common/wire_meta.h"
#include "metad/sm.h"

#define MINI_METAD_BLOCKD_MAX 8
#define MINI_METAD_LOGD_MAX 8

struct mini_metad;

struct mini_metad_options {
	/* Block daemons of the map and of mini_metad_conf(); all "up". With
	 * none the map has no daemons (tests of metadata only). */
	uint32_t blockd_count;
	uint16_t blockd_ports[MINI_METAD_BLOCKD_MAX];
	uint32_t keepalive_ms; /* 0: 1000 */
	/* Cuts and purges of the state machine, on the mini metad's thread,
	 * before the client's CUT is answered. The answer of cut(): change of
	 * the inode's units. NULL: confirmed at once, 0 units. */
	int64_t (*cut)(void *arg, const struct sm_cut *cut);
	void (*purge)(void *arg, uint64_t ino);
	/* Before a session's place is another's. May be NULL. */
	void (*fence)(void *arg, uint64_t session);
	/* The size and units the daemons know of an inode that a replaced
	 * session had leased. NULL: sizes stay as they are. */
	uint64_t (*end)(void *arg, uint64_t ino, uint64_t *units);
	void *arg;
};

/* Starts the thread; @o is copied. Returns 0 or -errno. */
int mini_metad_new(const struct mini_metad_options *o,
		   struct mini_metad **ret);
void mini_metad_free(struct mini_metad *m);
uint16_t mini_metad_port(struct mini_metad *m);
uint64_t mini_metad_cluster_id(struct mini_metad *m);
/* A cluster file's content naming this metad and the block daemons; borrowed,
 * lives as long as @m. For core_options.conf. */
const struct conf *mini_metad_conf(struct mini_metad *m);

/* While held, nothing that is applied becomes durable and META_SYNC waits.
 * Letting go makes all durable and answers. */
void mini_metad_hold_durable(struct mini_metad *m, bool hold);
/* Drops every connection (they come back at once). */
void mini_metad_drop(struct mini_metad *m);
/* Dies and starts again with a new boot id; @lose: without what was not
 * durable. */
void mini_metad_restart(struct mini_metad *m, bool lose);
/* Dead (not listening) until mini_metad_up(). */
void mini_metad_down(struct mini_metad *m);
void mini_metad_up(struct mini_metad *m, bool lose);
/* The next @count replies to @op (0: any but HELLO and KEEPALIVE) are not
 * sent, though the request is executed; the connection is dropped instead. */
void mini_metad_lose_replies(struct mini_metad *m, uint16_t op, int count);
/* While held, replies to @op (0: all) are kept back; then sent in order. */
void mini_metad_hold_replies(struct mini_metad *m, uint16_t op, bool hold);
/* The same of keepalives, besides. */
void mini_metad_hold_keepalives(struct mini_metad *m, bool hold);
bool mini_metad_keepalive_held(struct mini_metad *m);
/* The next @count requests of @op, of the state machine or META_LOG_PEERS, are
 * answered with @err, not executed. */
void mini_metad_fail(struct mini_metad *m, uint16_t op, int err, int count);
/* The next mutation @op is executed, and answered with @err. */
void mini_metad_fail_done(struct mini_metad *m, uint16_t op, int err);
/* Makes every session dead, as a takeover does: they get -ESTALE. */
void mini_metad_fence(struct mini_metad *m);
/* A new epoch of the map. */
void mini_metad_bump_epoch(struct mini_metad *m);

/* A log daemon as the last heartbeat told: in the map from then on. */
struct mini_metad_logd {
	uint32_t id;
	uint64_t boot_id;
	uint16_t port;
	const char *domain; /* failure domain; lives as long as @m */
	uint64_t free_bytes;
	bool there; /* offered to logs */
};
void mini_metad_logd(struct mini_metad *m, const struct mini_metad_logd *l);
/* The registry's entry of a file; false: there is none. */
bool mini_metad_log_find(struct mini_metad *m, uint64_t ino,
			 struct sm_log *ret);

/* Requests of @op executed so far (replays answered from kept replies are not
 * counted); received counts every frame. */
uint64_t mini_metad_executed(struct mini_metad *m, uint16_t op);
uint64_t mini_metad_received(struct mini_metad *m, uint16_t op);
/* The last keepalive's status text, copied to @buf. */
void mini_metad_status(struct mini_metad *m, char *buf, size_t size);

/* The truth, asked of the state machine. */
int mini_metad_getattr(struct mini_metad *m, uint64_t ino,
		       struct meta_attr *ret);
int mini_metad_lookup(struct mini_metad *m, uint64_t parent, const char *name,
		      struct meta_attr *ret);
uint64_t mini_metad_inode_count(struct mini_metad *m);
uint32_t mini_metad_lease_count(struct mini_metad *m);
uint32_t mini_metad_purge_count(struct mini_metad *m); /* ever queued */
uint32_t mini_metad_session_count(struct mini_metad *m);

#endif
