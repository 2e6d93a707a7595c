/* Calls to the block daemons: one message to all of them, tried until each has
 * confirmed. Calls go out over rpc's thread, results come back to the loop.
 */
#ifndef METAD_DRIVE_H
#define METAD_DRIVE_H

#include "common/rpc.h"
#include "metad/metad.h"

struct fan;

/* One daemon's answer. @f: valid until return. Returns 0: it is done; < 0: it
 * is not good enough, the call is made again after a while. */
typedef int (*fan_reply_fn)(struct fan *f, uint32_t daemon_id,
			    const struct rpc_frame *frame);

/* A message to all block daemons that ever had a store (one that never came has
 * nothing to say). One that came back with another store, or an older copy, is
 * waited for until it has the right one again, or is excused. */
struct fan {
	/* the caller's */
	uint16_t op;
	const void *body; /* stays until @done */
	uint32_t body_len;
	uint64_t timeout_ms; /* of one try; 0: until it is answered */
	fan_reply_fn reply; /* may be NULL: any success will do */
	/* After a try failed, or when none can be made now: need this daemon
	 * not be asked (again)? May be NULL: it must. */
	bool (*excused)(struct fan *f, uint32_t daemon_id);
	void (*done)(struct fan *f); /* all have; the memory is the caller's */
	/* result: the answers may not tell all: one call went out more than
	 * once, or late, so that it may have been executed before the try that
	 * was answered, or a store have been given up meanwhile. */
	bool unsure;
	/* private */
	struct metad *md;
	uint32_t pending;
	struct fan_call *calls;
	uint32_t call_count;
};

int drive_new(struct metad *md, struct drive **ret);
/* Stops rpc's thread and the handles; nothing calls back afterwards. */
void drive_stop(struct drive *d);
/* After the loop has closed the handles. NULL: no-op. */
void drive_free(struct drive *d);
/* The map has changed: connects to daemons at their new addresses. */
void drive_map_changed(struct drive *d);
bool drive_is_up(struct drive *d, uint32_t daemon_id);

/* Starts; f->done runs later, from the loop, never before return. Returns 0 or
 * -ENOMEM. */
int fan_start(struct metad *md, struct fan *f);
/* Frees what a started one holds, after drive_stop(). */
void fan_drop(struct fan *f);

#endif
