/* Client side of the protocol: one connection to a daemon, kept up, with
 * deadlines and retries in this one layer.
 *
 * A struct rpc_net owns one thread that runs an epoll loop: it connects,
 * receives, keeps deadlines and calls every callback, but for what a caller of
 * rpc_help() takes in; never two at a time. Any thread may send: the
 * frame is written to the socket by the caller when the socket takes it
 * (no hand-over, no wake-up), else by the loop.
 *
 * Order: frames of one peer are written in the order rpc_send() was called.
 */
#ifndef COMMON_RPC_H
#define COMMON_RPC_H

#include "common/conf.h"
#include "common/gate.h"
#include "common/proto.h"
#include "common/wire.h"
#include "common/wire_blk.h"

#include <sys/uio.h>

struct rpc_net;
struct rpc_peer;
struct rpc_call;

/* A received frame. Memory is the peer's, valid until the callback returns
 * unless taken with rpc_take_frame(). @data of FRAME_DATA_ALONE_MIN bytes or
 * more (common/frame_in.h) starts at a multiple of FRAME_DATA_ALIGN. */
struct rpc_frame {
	struct wire_header h;
	const uint8_t *body; /* h.body_len bytes, checksum verified */
	const uint8_t *data; /* h.data_len bytes, NOT verified: see sums */
	void *priv_;
};

/* @status: 0 and @f: a reply whose wire status is 0; else -errno:
 *   what the daemon answered (f is set), or with f == NULL
 *   -ETIMEDOUT  deadline passed
 *   -ECONNRESET the connection broke after sending (only without
 *               RPC_F_RETRY)
 *   -ECANCELED  peer closed by us.
 * Runs on the net's thread (or within rpc_help()) with no lock held; exactly
 * once; may call rpc_send(). @call is the caller's again when it runs. */
typedef void (*rpc_cb)(struct rpc_call *call, int status,
		       const struct rpc_frame *f);

#define RPC_F_RETRY 0x1u /* idempotent: sent again, in the order of first
			  * sending, on the next connection, until the
			  * deadline */
#define RPC_F_RESENT 0x2u /* the caller has sent it before (WIRE_F_RESENT) */

/* One request; the caller's memory from rpc_send() to its callback. */
struct rpc_call {
	/* set by the caller */
	uint16_t opcode;
	uint32_t flags; /* RPC_F_* */
	uint64_t timeout_ms; /* 0: for ever (hard mount) */
	const void *body; /* stays unchanged until the callback */
	uint32_t body_len;
	const struct iovec *iov; /* bulk data; array and bytes stay until the
				  * callback */
	int iov_count;
	uint32_t data_len; /* sum of iov */
	rpc_cb cb;
	/* result: it went out over more than one connection, so it may have
	 * been executed more than once */
	bool resent;
	/* private */
	uint64_t priv_id;
	uint64_t priv_deadline_ms;
	struct rpc_call *priv_next, *priv_prev;
	struct rpc_call *priv_hash_next;
	uint32_t priv_state;
	uint32_t priv_body_crc;
	uint8_t priv_header[WIRE_HEADER_SIZE];
	uint8_t priv_tags[2][SEAL_TAG_SIZE]; /* of a sealed connection */
};

/* What a peer is told about. Callbacks run on the net's thread; epoch() also
 * within rpc_help(). */
struct rpc_peer_ops {
	/* HELLO was answered: a new connection is up; runs before any call is
	 * sent over it. The peer's boot id is hr->boot_id. Calls made with
	 * rpc_send_first() from here go out before waiting ones. May be
	 * NULL. */
	void (*up)(struct rpc_peer *p, const struct hello_reply *hr, void *arg);
	/* Connection lost or could not be made; @err: -errno: what the daemon
	 * answered to HELLO (-ESTALE: fenced, -EXDEV: another cluster,
	 * -EPROTONOSUPPORT: of another major; it is asked again each
	 * RPC_OTHER_MAJOR_MS, and it is logged once, ...), or
	 * what gate_connect() says (-EKEYREJECTED: it takes none of our keys,
	 * too), or -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT, -EBADMSG,
	 * -EHOSTUNREACH (also when nobody knows its name). Runs before the
	 * calls of the connection get -ECONNRESET. May be NULL. */
	void (*down)(struct rpc_peer *p, int err, void *arg);
	/* A reply came with a larger epoch than rpc_set_epoch() told; once an
	 * epoch and peer, before the reply's callback. May be NULL. */
	void (*epoch)(struct rpc_peer *p, uint64_t epoch, void *arg);
};

#define RPC_OTHER_MAJOR_MS 5000u

struct rpc_identity {
	uint8_t role; /* enum wire_role */
	uint32_t peer_id;
	uint64_t session; /* changed by rpc_set_session() */
	uint64_t cluster_id;
	const char *name;
	struct gate *gate; /* borrowed; NULL: none is asked */
};

/* Starts the thread. @id is copied. Returns 0 or -errno. */
int rpc_net_new(const struct rpc_identity *id, struct rpc_net **ret);
/* Closes every peer (calls get -ECANCELED), stops the thread. Not from a
 * callback. */
void rpc_net_free(struct rpc_net *n);
void rpc_set_session(struct rpc_net *n, uint64_t session);
void rpc_set_cluster(struct rpc_net *n, uint64_t cluster_id);
void rpc_set_epoch(struct rpc_net *n, uint64_t epoch);

/* A sleeping core takes longer to wake than a daemon to answer from memory:
 * with calls in flight the thread polls for up to @spin_us before it sleeps,
 * yielding to others, and stops trying where that does not pay. 0: never.
 * The default is RPC_SPIN_US, or $HAILFS_SPIN_US. */
#define RPC_SPIN_US 40u
void rpc_set_spin(struct rpc_net *n, uint32_t spin_us);

/* Counters since the start; relaxed reads. */
struct rpc_stats {
	uint64_t calls, replies, timeouts, resent, unknown_replies;
	uint64_t bytes_out, bytes_in;
	uint64_t connects, losses, bad_frames;
	uint64_t spins, spin_hits, sleeps;
	uint64_t helps, help_hits; /* by callers; ended by the answers */
};
void rpc_net_stats(const struct rpc_net *n, struct rpc_stats *ret);

/* A peer; it connects at once and reconnects (10 ms, doubling to 500 ms; 10 ms
 * again after a connection that worked) for as long as it lives. @addr:
 * numeric, or a name, which is looked up for each try, aside; all its addresses
 * are tried, and the last known ones when nobody answers. @ops, @arg: borrowed
 * while callbacks may run (see rpc_peer_close). Returns 0 or -ENOMEM. */
int rpc_peer_new(struct rpc_net *n, const char *addr, uint16_t port,
		 const struct rpc_peer_ops *ops, void *arg,
		 struct rpc_peer **ret);
/* The same of a peer that is at one of several places, and answers HELLO with
 * -EREMCHG where it is not: a group of which one leads. All are tried in turn,
 * from the first one on, and after a loss from the next one on; down() is told
 * of the loss, and once of each round in vain, with its most telling error.
 * There is no waiting within a round, and 100 ms at most between two; where
 * nobody answers, the next is tried after a second (connecting), or two
 * seconds (HELLO; twice as many in each further round).
 * @at: @count places, 1..RPC_PLACES_MAX; copied. */
#define RPC_PLACES_MAX 8u
struct rpc_at {
	const char *addr;
	uint16_t port;
};
int rpc_peer_new_any(struct rpc_net *n, const struct rpc_at *at, uint32_t count,
		     const struct rpc_peer_ops *ops, void *arg,
		     struct rpc_peer **ret);
/* One that is at any of the cluster file's metads. */
int rpc_peer_new_metad(struct rpc_net *n, const struct conf *conf,
		       const struct rpc_peer_ops *ops, void *arg,
		       struct rpc_peer **ret);
/* Calls get -ECANCELED from the net's thread; the peer goes after the last.
 * From any thread, also from callbacks. A callback of @ops that is running
 * then, runs to its end; none starts later than those of the calls. */
void rpc_peer_close(struct rpc_peer *p);
bool rpc_peer_is_up(struct rpc_peer *p);
/* From up() on, and from callbacks: what it and this program have. */
struct proto rpc_peer_proto(const struct rpc_peer *p);
/* From down(): nothing is to be had there; connect again no earlier than so
 * much later, from now on. */
void rpc_peer_rest(struct rpc_peer *p, uint64_t ms);
/* Drops the connection; a new one (larger incarnation) is made at once. */
void rpc_peer_reset(struct rpc_peer *p);
/* The same, but at the next of several places: who is at this one does not
 * answer. There being but one: no-op. */
void rpc_peer_next(struct rpc_peer *p);
/* As rpc_peer_reset(), and it is at another address from now on (see
 * rpc_peer_new()); not of a peer of several places. Returns 0 or -ENOMEM. */
int rpc_peer_move(struct rpc_peer *p, const char *addr, uint16_t port);

/* Its answers may come on a caller's thread, see rpc_help(). Before anything is
 * sent to it, within the lock or thread that made it. */
void rpc_peer_helped(struct rpc_peer *p);
/* A caller that is about to send to helped peers, and then has nothing else to
 * do, may take in the answers itself, which saves the wake-up of the net's
 * thread: true: it sends (or not), and calls rpc_help(), which polls until
 * nothing is in flight to such peers, or for twice the spin; callbacks run
 * within it, still one at a time. False: somebody else does it, it does not
 * pay, or nobody shall spin. The former does not block, the latter is called
 * without locks. A net must not be freed meanwhile. */
bool rpc_help_begin(struct rpc_net *n);
void rpc_help(struct rpc_net *n);

/* Sends. Never fails: an error comes through the callback. Limit: none here;
 * callers bound their own calls in flight. */
void rpc_send(struct rpc_peer *p, struct rpc_call *c);
/* The two halves of rpc_send(): queueing fixes the order and is cheap enough
 * to do under the caller's lock; kicking writes to the socket and is done
 * without it. Whoever queues must see that somebody kicks. */
void rpc_queue(struct rpc_peer *p, struct rpc_call *c);
void rpc_kick(struct rpc_peer *p);
/* The same before all calls that wait for a connection, in the order of the
 * calls; only from up(). Such a call belongs to that connection: without
 * RPC_F_RETRY it gets -ECONNRESET when that breaks, sent or not. */
void rpc_send_first(struct rpc_peer *p, struct rpc_call *c);

/* Keeps the frame's memory after the callback; free with rpc_frame_free().
 * Returns @f. */
struct rpc_frame *rpc_take_frame(const struct rpc_frame *f);
void rpc_frame_free(struct rpc_frame *f);

/* Runs @fn on the net's thread after @delay_ms (for retries, ageing,
 * keepalives). The timer is the caller's memory, zeroed before first use, and
 * the net's from the start until @fn begins or rpc_timer_stop() returned true;
 * starting an armed one moves it. Timers of a freed net never run. */
struct rpc_timer {
	void (*fn)(struct rpc_timer *t);
	uint64_t priv_due_ms;
	struct rpc_timer *priv_next, *priv_prev;
	bool priv_armed;
};
void rpc_timer_start(struct rpc_net *n, struct rpc_timer *t, uint64_t delay_ms);
bool rpc_timer_stop(struct rpc_net *n, struct rpc_timer *t);

/* For tools and start-up: one blocking call (without RPC_F_RETRY). On 0, *ret
 * (may be NULL) is a taken frame. Not from the net's thread. */
int rpc_call_wait(struct rpc_peer *p, uint16_t opcode, const void *body,
		  uint32_t body_len, uint64_t timeout_ms,
		  struct rpc_frame **ret);

#endif
