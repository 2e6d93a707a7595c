/* A world of one log file: clients that write, die and recover, peers that
 * lend memory, the registry, the blocks. All messages lie in queues until the
 * seed delivers them. For tests/sim/sim_log.c.
 *
 * Real are log_writer, log_choose, lend, the records, and metad's state machine
 * for sessions, leases and the registry; the blocks are a model of what the
 * core promises, and so is what refuses a dead session's writes there.
 */
#ifndef TESTS_SIM_LOG_WORLD_H
#define TESTS_SIM_LOG_WORLD_H

#include "fuse/core/log_choose.h"
#include "fuse/core/log_net.h"
#include "fuse/core/log_writer.h"
#include "logd/lend.h"
#include "tests/lib/sm_client.h"

#define PEERS 7u
#define LISTED_MAX 5u /* peers of a log: this or 3, with the seed */
#define CLIENTS 3u
/* The file: cells, each filled by a tag, so that content is exact and cheap. */
#define CELLS 20u
#define CELL 3000u /* bytes; not a multiple of anything */
#define OPS_MAX 400u
#define CLUSTER 5u
#define LOG2 LOG_REGION_LOG2_MIN
#define PEER_REGIONS 16u /* of memory */
#define SESSIONS_MAX 4096u
#define LOGS_MAX 4096u
#define CONNS_MAX 65536u

struct world;
struct client;

/* ---- the file ---- */

struct content {
	uint32_t len; /* cells */
	uint64_t tag[CELLS];
};

struct op {
	enum log_rec_kind kind;
	uint32_t at, count; /* cells */
	uint64_t tag; /* of the first cell; one more each */
	bool acked, failed;
};

void content_apply(struct content *c, const struct op *o);
bool content_same(const struct content *a, const struct content *b);
/* Of a record that was read. */
struct op op_of(const struct log_rec *r);
/* @buf: op_bytes(o) of data. */
struct log_rec op_record(const struct op *o, uint8_t *buf);

/* ---- what was promised ---- */

/* The present log's records, and which were acknowledged. When the log goes
 * what is in the blocks has to be all that was acknowledged, and of the rest
 * the beginning. */
struct history {
	uint64_t data_epoch; /* 0: no log */
	struct content base; /* before its first record */
	struct op ops[OPS_MAX];
	uint32_t op_count, acked;
	/* How much of logs that are gone is in the blocks, by epoch. */
	uint32_t kept[LOGS_MAX];
};

void history_begin(struct world *w, uint64_t data_epoch);
void history_append(struct world *w, uint64_t data_epoch, uint64_t seq,
		    const struct op *o);
void history_ack(struct world *w, uint64_t data_epoch, uint64_t seq);
void history_fail(struct world *w, uint64_t data_epoch, uint64_t seq);
/* The log is dropped in favour of the blocks. */
void history_drop(struct world *w);
/* It was said to be lost: was it? */
void history_lost(struct world *w);
/* A write without a log. */
void history_direct(struct world *w, const struct op *o);

/* ---- the registry ---- */

enum reg_kind {
	REG_NONE,
	REG_LEASE, /* may I write this file? and the entry, if there is one */
	REG_SET,
	REG_RAISE,
	REG_DROP,
};

struct reg_entry {
	bool there;
	uint64_t epoch, data_epoch, session;
	uint32_t version;
	struct log_writer_peer_id peers[LISTED_MAX];
};

/* One request of a client, and then its reply, until it takes it. */
struct reg_call {
	enum reg_kind kind;
	bool done;
	uint64_t epoch;
	uint32_t version;
	struct log_writer_peer_id peers[LISTED_MAX];
	int err;
	struct reg_entry entry;
};

struct registry {
	struct sm_client admin; /* makes the file; ends sessions */
	uint64_t ino;
	struct reg_entry entry; /* what there is */
	bool gone[SESSIONS_MAX]; /* sessions */
	uint64_t boot_id[PEERS + 1]; /* that are registered */
};

void registry_begin(struct world *w);
void registry_end(struct world *w);
bool registry_live(struct world *w, uint64_t session);
/* First it is refused; the second time, when all know that, its lease goes. */
void registry_expire(struct world *w, uint64_t session);
/* A peer has begun. */
void registry_logd(struct world *w, uint32_t id, uint64_t boot_id);
/* What the client has asked for. */
void registry_execute(struct world *w, struct client *c);

/* ---- messages ---- */

/* AFAR: written into the peer's memory, over a connection that CONNECT made. */
enum msg_kind {
	MSG_ALLOC,
	MSG_WRITE,
	MSG_FENCE,
	MSG_READ,
	MSG_FREE,
	MSG_CONNECT,
	MSG_AFAR,
};

struct msg {
	struct msg *next;
	enum msg_kind kind;
	uint64_t session, epoch, data_epoch;
	uint32_t index, off, len; /* FREE: @index is below */
	uint8_t slot[LOG_SLOT_SIZE];
	uint8_t *data; /* of WRITE; of the reply to READ, FENCE */
	uint32_t peer; /* the writer's index of it */
	struct log_post post;
	uint64_t attempt; /* READ: of the recovery */
	uint32_t conn, number; /* CONNECT, AFAR; @number: of the write in it */
	int err;
	uint64_t boot_id;
	uint8_t held;
	uint32_t count; /* regions in @data */
};

struct msgs {
	struct msg *head;
	uint32_t count;
};

struct msg *msg_new(enum msg_kind kind);
void msg_free(struct msg *m);
void msgs_put(struct msgs *q, struct msg *m);
struct msg *msgs_take(struct msgs *q, uint32_t at);
void msgs_clear(struct msgs *q);

/* Between a client and a peer, in order; a broken one loses what is in it, but
 * for requests that the peer has received already (peer->late). */
struct link {
	bool up;
	bool deaf, mute; /* partitioned: there, and back */
	uint32_t conn; /* for writes from afar; 0: none yet */
	bool conn_up;
	uint32_t conn_writes;
	struct msgs to, from;
};

/* ---- peers ---- */

struct peer {
	uint32_t id;
	uint64_t boot_id;
	bool paused;
	uint8_t *memory;
	struct lend_pool pool;
	struct lend *lend;
	struct msgs late; /* of connections that are gone */
	/* Asked metad about this one, which has decided. */
	struct log_name asked;
	enum meta_log_verdict verdict;
	bool dead[SESSIONS_MAX]; /* sessions, as of the last verdict */
	uint64_t damaged; /* data epoch of a log */
};

void peer_start(struct world *w, struct peer *p);
void peer_stop(struct peer *p);
/* @late: its connection is gone. */
void peer_execute(struct world *w, struct peer *p, struct msg *m, bool late);
/* Has this boot of it lost the present log? */
bool peer_lost(struct world *w, struct log_writer_peer_id id);
void peer_reclaim(struct world *w, struct peer *p);
void peer_collect(struct world *w, struct peer *p);
/* Turns a bit of the present log. */
void peer_damage(struct world *w, struct peer *p);

/* ---- clients ---- */

enum client_mode {
	CLIENT_DEAD,
	CLIENT_IDLE, /* wants the lease */
	CLIENT_READY, /* has it, and no log */
	CLIENT_LOG, /* has a log */
	CLIENT_END, /* is giving its log up */
	CLIENT_RECOVER,
};

enum recover_phase {
	RECOVER_RAISE,
	RECOVER_FENCE,
	RECOVER_READ,
	RECOVER_STAGE,
	RECOVER_APPLY,
	RECOVER_DROP,
};

struct recovery {
	enum recover_phase phase;
	struct reg_entry entry; /* .epoch: ours */
	struct log_answer answers[LISTED_MAX];
	bool asked[LISTED_MAX];
	bool damaged[LISTED_MAX]; /* what it has does not read */
	uint64_t attempt;
	uint32_t chosen;
	bool stage;
	uint32_t read_next, read_done; /* regions of the chosen answer */
	/* What it comes to, and what is left of the piece under way. */
	struct log_net net;
	bool sized; /* the length is set */
	struct log_net_rec piece;
};

struct client {
	uint32_t index;
	enum client_mode mode;
	bool paused;
	struct sm_client metad; /* while it is not dead */
	uint64_t session;
	struct link links[PEERS + 1]; /* by id */
	struct reg_call call;
	bool writer_there;
	struct log_writer writer; /* of its log, or of one it recovers */
	uint64_t epoch; /* that it has: the writer's, or a recovery's */
	uint64_t answered; /* records: acknowledged */
	uint64_t settled; /* records: in @image */
	struct content image; /* what is committed */
	bool dirty[CELLS];
	struct op ops[OPS_MAX]; /* of the writer, by number */
	uint32_t victim, with; /* of the replacement: ids */
	struct recovery r;
};

void client_start(struct world *w, struct client *c);
void client_kill(struct world *w, struct client *c);
void client_act(struct world *w, struct client *c);
void client_reply(struct world *w, struct client *c, uint32_t id,
		  struct msg *m);
void client_break(struct world *w, struct client *c, uint32_t id);
/* For the rest of the client's files. */
void client_connect(struct world *w, struct client *c, uint32_t id);
void client_send(struct client *c, uint32_t id, struct msg *m);
void client_pump(struct world *w, struct client *c);
void client_forget(struct client *c); /* the writer */
bool client_call(struct client *c, enum reg_kind kind);
void client_free_all(struct client *c, uint64_t data_epoch);
void client_free_one(struct client *c, uint32_t id, uint64_t data_epoch);
/* It learns that it has been fenced, or that its session is dead. */
void client_fenced(struct world *w, struct client *c);
void writer_act(struct world *w, struct client *c);
void writer_reply(struct world *w, struct client *c, uint32_t id,
		  struct msg *m);
void recover_begin(struct world *w, struct client *c);
void recover_act(struct world *w, struct client *c);
void recover_reply(struct world *w, struct client *c, uint32_t id,
		   struct msg *m);
void recover_end(struct client *c);

/* ---- the world ---- */

struct counts {
	uint64_t steps, acked, failed, logs, recoveries, staged, trimmed;
	uint64_t damaged, torn, lost, kills, restarts, replaced, reclaims,
		fallbacks, zombies;
};

/* What there is more of than usual, with a seed. */
#define MOOD_KILLS 0x1u /* clients die */
#define MOOD_LAGS 0x2u /* peers sleep */
#define MOOD_REPLACES 0x4u
#define MOOD_EXPIRES 0x8u /* sessions end */

struct world {
	uint64_t seed, rng;
	uint32_t mood;
	uint8_t listed;
	bool calm; /* no more faults */
	uint64_t now;
	bool afar; /* writers write into peers' memory */
	uint64_t tag, session; /* last given */
	uint32_t conn;
	uint32_t arrived[CONNS_MAX]; /* writes of a connection, in order */
	struct content blocks; /* durable */
	struct registry reg;
	struct history history;
	struct peer peers[PEERS + 1]; /* by id */
	struct client clients[CLIENTS];
	struct counts n;
};

uint64_t world_rnd(struct world *w, uint64_t below);
bool world_chance(struct world *w, uint64_t one_of);
/* Ends the program with the seed, and why. */
void world_fail(struct world *w, const char *why) noreturn_fn;
static inline void require(struct world *w, bool is, const char *what)
{
	if (!is)
		world_fail(w, what);
}

#endif
