/* The parts of a running metadata daemon, all on one uv loop; those behind
 * session only while it leads (metad->leading):
 *
 *	serve    connections, frames, replies
 *	request  what each request does
 *	group    the other metads, libraft's way to them
 *	room     of the disk
 *	session  who is connected; opening, replacing, closing sessions
 *	recover  fences and size recovery of a session that is gone
 *	want     leases that another session wants, what sessions are told
 *	lock     who waits for an advisory lock
 *	monitor  block daemons: registration, heartbeats, serving leases
 *	log_peers  log daemons: the same
 *	drive    calls to block daemons; cut.c and purge.c are its jobs
 *	admin    status, statistics, backup
 *
 * This file is what they share: the state, who waits for what.
 */
#ifndef METAD_METAD_H
#define METAD_METAD_H

#include <uv.h>

#include "common/conf.h"
#include "common/stats.h"
#include "metad/raft.h"

/* A daemon serves for so long after it sent the heartbeat metad answered;
 * shorter than SESSION_DEAD_MS, so that a fence never waits for longer. */
#define LEASE_MS 6000u
#define KEEPALIVE_MS 1000u
#define SESSION_DEAD_MS 10000u
_Static_assert(LEASE_MS < SESSION_DEAD_MS, "design section 3");
/* More creations than a mount may have had that were not durable. */
#define CREATES_LOST_MAX (2 * SESSION_WINDOW_MAX)

struct datadir;
struct group;
struct mark;
struct serve;
struct stats;
struct sessions;
struct recover;
struct monitor;
struct wants;
struct lock_waits;
struct log_peers;
struct drive;
struct cuts;
struct repair;
struct purge;

struct metad_stats {
	uint64_t requests, queries, mutations, replays, syncs;
	uint64_t errors; /* requests answered with one */
	uint64_t held; /* replies that waited for something */
	uint64_t bad_frames, refused; /* connections closed for it */
	uint64_t connections;
	uint64_t cuts, purged, fences, recovered_inodes;
	uint64_t no_room; /* commands refused because the disk is full */
	uint64_t turns, spins, spin_hits;
	uint64_t state_bytes, inodes; /* see admin_stats_look() */
};

/* Something that goes on when a position is durable. The caller's memory until
 * @fn runs. */
struct durable_wait {
	void (*fn)(struct durable_wait *w);
	struct durable_wait *next;
	uint64_t pos;
};

struct metad {
	uv_loop_t loop;
	const struct conf *conf;
	const struct conf_daemon *self; /* in @conf */
	uint64_t cluster_id;
	uint64_t boot_id;
	uint64_t start_ms; /* uv_now() */
	struct datadir *dir;
	struct mark *mark;
	struct durable_wait raise_wait; /* of restore.c */

	struct sm *sm;
	struct metaraft *raft;
	struct group *group; /* NULL: it is alone */
	struct serve *serve;
	struct sessions *sessions;
	struct recover *recover;
	struct wants *wants;
	struct lock_waits *lock_waits;
	struct monitor *monitor;
	struct log_peers *log_peers;
	struct drive *drive;
	struct cuts *cuts;
	struct repair *repairs;
	struct purge *purge;
	struct room *room;
	struct copy *copy; /* NULL: none is kept */

	/* Epoch of the newest map that is durable. A map that could be lost
	 * with this process is shown to nobody, or its epoch would come again
	 * with another content. */
	uint64_t epoch;
	uint64_t map_pos; /* position of the last change of the map */

	/* The last command of a session, and the last of any other one than
	 * that: what a session must not see before it is durable. */
	struct {
		uint64_t session, pos;
	} last[2];

	struct durable_wait *durable_waits, *durable_last;
	struct durable_wait *unsure; /* request.c: run when we surely lead */
	uint64_t first_session; /* the first this process may give out */
	bool leading; /* all parts are there, and nobody else executes */
	bool serving; /* clients are let in */
	bool restoring; /* it is to be started from a backup */
	bool older; /* a store knew more than these metadata, see restore.h */
	bool stopping;
	uint64_t activity; /* grows with everything the loop did */
	struct metad_stats stats;
	struct stats *registry;
	/* Stops the loop; @why NULL: on request, else the failure. */
	void (*stop)(struct metad *md, const char *why);
};

/* Executes a command of @session, which sm_validate() accepted, or of metad's
 * own (0), which is refused here if it does not; see metaraft_propose(). */
void metad_propose(struct metad *md, uint16_t op, uint64_t session,
		   const void *body, size_t len, struct sm_reply *r);
/* The same for a message struct of metad's own: returns the position. */
#define METAD_PROPOSE(md, op, name, msg, r)                          \
	do {                                                         \
		uint8_t propose_buf_[1024];                          \
		struct wire_out propose_out_;                        \
		wire_out_init(&propose_out_, propose_buf_,           \
			      sizeof(propose_buf_));                 \
		name##_encode(&propose_out_, msg);                   \
		assert(!propose_out_.overflow);                      \
		metad_propose(md, op, 0, propose_buf_,               \
			      propose_out_.len, r);                  \
	} while (0)

uint64_t metad_durable(const struct metad *md);
int64_t metad_realtime_ns(void);
/* Runs w->fn when @pos is durable: at once if it is. Asks for the write. */
void metad_when_durable(struct metad *md, struct durable_wait *w, uint64_t pos);
/* The position of the last command of a session that is not @session. */
uint64_t metad_foreign_pos(const struct metad *md, uint64_t session);
/* metaraft_ops.durable */
void metad_became_durable(void *arg, uint64_t pos, uint64_t batch);

#endif
