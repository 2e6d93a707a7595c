/* Inside common/rpc: rpc.c (thread, timers, life), rpc_conn.c (connecting,
 * HELLO, receiving, losing), rpc_send.c (queues and writing), rpc_help.c
 * (receiving on callers' threads).
 *
 * Lock order: net->turn, which is held over callbacks; net->lock, then
 * peer->lock; these two are leaves for callers and are never held over a
 * callback or a system call that can block.
 */
#ifndef COMMON_RPC_PRIV_H
#define COMMON_RPC_PRIV_H

#include "common/cmap.h"
#include "common/frame_in.h"
#include "common/resolve.h"
#include "common/rpc.h"

#include <pthread.h>
#include <stdatomic.h>

#define RPC_NAME_MAX 63u
#define RPC_BACKOFF_MIN_MS 10u
#define RPC_BACKOFF_MAX_MS 500u
#define RPC_CONNECT_MS 5000u
/* Of a peer that may be at several places: the next one is worth more than
 * patience, but for who is slow everywhere. */
#define RPC_BACKOFF_ANY_MAX_MS 100u
#define RPC_CONNECT_ANY_MS 1000u
#define RPC_HELLO_ANY_MS 2000u
/* Of a look-up, before it counts as failed; it goes on, for the next try. */
#define RPC_RESOLVE_MS 2000u
/* The daemon answers HELLO only after it has finished what older connections
 * brought, so its disk may be in it. */
#define RPC_HELLO_MS 20000u
#define RPC_HASH_SIZE 1024u /* ids are sequential: chains are even */
#define RPC_FOREVER UINT64_MAX

/* What became of a call; protected by its peer's lock. */
enum call_state {
	CALL_WAITING = 1, /* in p->wait, untouched */
	CALL_SENDING = 2, /* in p->wait, a thread writes it right now */
	CALL_PARTIAL = 3, /* first in p->wait, some bytes are out */
	CALL_SENT = 4, /* in p->sent */
	CALL_DONE = 5, /* in no list; about to be called back */
	CALL_STATE_MASK = 0xff,
	CALL_FIRST = 0x100, /* flag: belongs to the connection */
	CALL_SEALED = 0x200, /* flag: has its place in the sealed stream, so
			      * it is the next to go, as it is */
};

struct call_list {
	struct rpc_call *head, *tail;
};

enum conn_state {
	CONN_DOWN, /* p->timer says when to try again */
	CONN_CONNECTING,
	CONN_GREET, /* the handshake, common/greet.h */
	CONN_HELLO, /* HELLO sent */
	CONN_UP_BEGINS, /* ops->up() runs */
	CONN_UP,
};

struct rpc_place {
	char host[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
};

struct rpc_peer {
	struct rpc_net *net;
	const struct rpc_peer_ops *ops;
	void *arg;
	char host[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	bool helped; /* rpc_help.c */
	bool is_name; /* host is: looked up again for each try */
	char label[CMAP_ADDR_LEN_MAX + 8]; /* addr:port, for people */
	struct rpc_peer *next; /* net->peers; net->lock */
	atomic_bool closing, reset_wanted;
	atomic_bool next_wanted; /* with reset_wanted: not there */
	/* Where it is from the reset on; NULL: where it was. Owned by who takes
	 * it out. */
	struct rpc_place *_Atomic place;

	pthread_mutex_t lock;
	pthread_cond_t send_cond; /* somebody waits for sending to change */
	/* protected by lock */
	enum conn_state conn; /* written by the net's thread only */
	int fd; /* -1: none; written by the net's thread only */
	bool sending; /* a thread writes to fd, without the lock */
	bool send_pause; /* the writer shall stop, nobody shall start */
	bool send_full; /* the socket takes no more: wait for EPOLLOUT */
	uint32_t send_waiters; /* on send_cond */
	size_t send_off; /* bytes of wait.head that are out */
	struct call_list wait, sent; /* in order */
	struct rpc_call *first_last; /* last rpc_send_first() of this up() */
	/* Of who writes; without one, the net's thread. NULL: not sealed. */
	struct seal *seal;
	/* What is encrypted and not yet out: the bytes of all CALL_SEALED of
	 * wait, [off, len). Of who writes. */
	struct rpc_cipher {
		uint8_t *p;
		size_t off, len, cap;
	} cipher;
	uint64_t id_next;
	struct rpc_call *hash[RPC_HASH_SIZE]; /* by id */

	/* who has net->turn only */
	struct frame_in in;
	bool in_ready;
	bool readable; /* budget spent, more may be there */
	bool ended; /* the peer has closed its side */
	int bad; /* a helper found why it cannot go on; 0 */
	bool complained; /* of a bad frame, and nothing good came since */
	/* Places of this round that speak another major; said so, and none has
	 * taken our HELLO since. */
	uint32_t other_majors;
	bool other_major_said;
	struct proto proto; /* agreed on in HELLO */
	struct rpc_timer timer; /* reconnect, or give up connecting */
	struct resolved_list addrs; /* of host, or what was last known */
	bool addrs_chosen; /* this try's; addr_at is the one that is tried */
	uint32_t addr_at;
	uint32_t key_at; /* of the gate's, which is tried */
	struct resolve *lookup; /* NULL: none under way */
	uint64_t lookup_end_ms; /* this try waits no longer; 0: not yet begun */
	uint64_t lookup_poll_ms;
	uint64_t backoff_ms;
	uint64_t rest_ms; /* see rpc_peer_rest() */
	uint64_t up_since_ms;
	uint64_t hello_id;
	uint64_t epoch_told;
	/* Where it may be; the first, if it was not moved. */
	struct rpc_place *places;
	uint32_t place_count, place_at;
	uint32_t place_tried; /* in vain, in this round */
	int place_err; /* the round's most telling, 0: none yet */
	bool stay; /* the loss says nothing against this place */
	uint64_t hello_ms; /* how long HELLO may take */
};

struct rpc_counters {
	_Atomic uint64_t calls, replies, timeouts, resent, unknown_replies;
	_Atomic uint64_t bytes_out, bytes_in;
	_Atomic uint64_t connects, losses, bad_frames;
	_Atomic uint64_t spins, spin_hits, sleeps;
	_Atomic uint64_t helps, help_hits;
};

struct rpc_net {
	uint8_t role;
	uint32_t peer_id;
	char name[RPC_NAME_MAX + 1];
	struct gate *gate;
	_Atomic uint64_t session, cluster_id, epoch;
	_Atomic uint32_t spin_us;
	int epfd, wakefd;
	pthread_t thread;
	atomic_bool stopping;
	atomic_bool poked; /* a peer's closing or reset_wanted was set */
	bool more; /* a peer is readable; turn */
	uint64_t incarnation, leap_s; /* net's thread only */

	/* Held by who handles events: the net's thread, except while it waits,
	 * or a helper. */
	pthread_mutex_t turn;
	int help_epfd; /* of helped peers */
	atomic_bool quiet; /* it does not wake the loop; written with turn */
	atomic_bool helping; /* somebody polls */
	_Atomic uint64_t helped_in_flight; /* as in_flight, of helped peers */
	_Atomic uint32_t help_credit, help_skipped;

	pthread_mutex_t lock;
	struct rpc_peer *peers; /* protected by lock */
	struct rpc_timer *timers_head, *timers_tail; /* by due time; lock */

	/* Earliest deadline of any call, or earlier; RPC_FOREVER: none. */
	_Atomic uint64_t deadline_ms;
	/* When the loop wakes by itself. 0: it is awake and will look at
	 * everything before it sleeps. */
	_Atomic uint64_t wake_ms;
	/* Calls sent and unanswered, but for those of helped peers. */
	_Atomic uint64_t in_flight;
	uint32_t spin_credit; /* net's thread only, see wait_events() */
	uint32_t spin_skipped;
	struct rpc_counters n;
};

/* A frame's extra room: what callers see of it. */
struct rpc_held {
	struct rpc_frame f;
	/* Outside of the frame: who took it may free it, on another thread,
	 * before the callback returns. */
	bool *taken;
};

uint64_t rpc_now_ms(void); /* CLOCK_MONOTONIC */
static inline void count(_Atomic uint64_t *c, uint64_t v)
{
	atomic_fetch_add_explicit(c, v, memory_order_relaxed);
}

/* rpc.c */
/* Makes the loop look again when it would sleep beyond @due_ms (0: ever). */
void rpc_net_wake(struct rpc_net *n, uint64_t due_ms);
static inline bool net_is_self(const struct rpc_net *n)
{
	return pthread_equal(pthread_self(), n->thread);
}
/* From now on @p connects to this. The net's thread, not connected. */
void peer_place(struct rpc_peer *p, const struct rpc_place *at);
/* Has the loop look at what was set in peers. */
void rpc_net_poke(struct rpc_net *n);

/* rpc_help.c */
int help_open(struct rpc_net *n); /* 0 or -errno */
/* The connection's HELLO was answered: who helps may read from it. turn. */
void help_watch(struct rpc_peer *p);
/* Something was sent to a helped peer: somebody must hear the answer. */
void help_sent(struct rpc_net *n);
void help_loop_waits(struct rpc_net *n); /* the same; turn */
void help_look(struct rpc_net *n); /* handles what is there; turn */
/* A call of @p went out, or is not in flight any more. */
static inline void flight_add(struct rpc_peer *p, int one)
{
	if (p->helped)
		atomic_fetch_add(&p->net->helped_in_flight, (uint64_t)one);
	else
		atomic_fetch_add_explicit(&p->net->in_flight, (uint64_t)one,
					  memory_order_relaxed);
}

/* rpc_timer.c */
void rpc_timers_run(struct rpc_net *n, uint64_t now_ms); /* what is due */
uint64_t rpc_timers_due(struct rpc_net *n); /* RPC_FOREVER: none */

/* rpc_send.c; "locked": p->lock is held */
void call_list_add(struct call_list *l, struct rpc_call *c);
void call_list_del(struct call_list *l, struct rpc_call *c);
/* Writes the frame header of now: epoch, session. locked. */
void call_header_write(struct rpc_peer *p, struct rpc_call *c);
bool call_is_sent(const struct rpc_call *c); /* wholly; locked */
/* It cannot be taken back: the stream could not go on. locked. */
bool call_is_begun(const struct rpc_call *c);
/* Takes a call out of its list and the id table. locked. */
void call_unlink(struct rpc_peer *p, struct rpc_call *c);
struct rpc_call *call_find(struct rpc_peer *p, uint64_t id); /* locked */
/* Ends a call that was unlinked. No lock held. */
void call_done(struct rpc_peer *p, struct rpc_call *c, int status,
	       const struct rpc_frame *f);
/* Waits until @c is not CALL_SENDING. locked (drops and retakes it). */
void call_wait_written(struct rpc_peer *p, struct rpc_call *c);
/* No thread writes between these two. locked. */
void send_stop(struct rpc_peer *p);
void send_resume(struct rpc_peer *p);
/* The connection is gone: what was sent is either for the next one (to the
 * front of p->wait, in order) or put into @lost. locked, sends stopped. */
void send_requeue(struct rpc_peer *p, struct call_list *lost);

/* rpc_conn.c; the net's thread (conn_init(): any) */
void conn_init(struct rpc_peer *p);
void conn_start(struct rpc_peer *p);
void conn_event(struct rpc_peer *p, uint32_t events);
void conn_read(struct rpc_peer *p); /* p->readable was set */
/* Closes, tells ops->down(@err), ends calls, arranges the next try. */
void conn_lose(struct rpc_peer *p, int err);
/* Loses the connection, if there is one, and tries again at once; @next: at
 * the next place. */
void conn_reset(struct rpc_peer *p, bool next);
/* Closes for good: every call gets -ECANCELED. */
void conn_end(struct rpc_peer *p);
/* Ends calls past their deadline; lowers *earliest to the next one. */
void conn_expire(struct rpc_peer *p, uint64_t now_ms, uint64_t *earliest);

#endif
