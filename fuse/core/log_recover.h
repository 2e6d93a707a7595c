/* Inside the recovery of a log: what log_recover.c (metad, applying),
 * log_fence.c (the peers) and log_redo.c (journals) share. */
#ifndef FUSE_CORE_LOG_RECOVER_H
#define FUSE_CORE_LOG_RECOVER_H

#include "fuse/core/log_choose.h"
#include "fuse/core/log_priv.h"

struct recovery {
	struct core *c;
	struct meta_log_entry e;
	uint64_t epoch; /* ours */
	uint32_t count;
	struct log_writer_peer_id ids[LOG_PEER_COUNT_MAX];
	struct log_answer answers[LOG_PEER_COUNT_MAX];
	uint64_t shun_ms[LOG_PEER_COUNT_MAX]; /* not asked before this */
	/* regions of the chosen one: by its answer's; NULL: empty */
	uint8_t **bases;
	uint32_t base_count;
	uint32_t from; /* the chosen one */
	bool ordered; /* the blocks follow it in order */
	bool back; /* all peers have lost it */
	const struct log_redo_section *section; /* what is applied instead */
	int err; /* nothing is */
	struct core_inode *in; /* see recovery_take(); NULL: not held */
	struct recovery *next;
};

/* Calls under way, and the first error. */
struct waiting {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t flight;
	int err;
	uint8_t *body; /* of a reply */
	uint32_t len;
};
void waiting_init(struct waiting *w);
void waiting_fini(struct waiting *w);
void waiting_begin(struct waiting *w);
void waiting_end(struct waiting *w, int err);
/* Until at most @max are under way; returns the error. */
int waiting_for(struct waiting *w, uint32_t max);
/* A core_cb and a core_attr_cb, of arg @w. */
void waiting_cb(void *arg, int err);
void waiting_attr_cb(void *arg, int err, const struct meta_attr *a);

/* All block, on the thread that starts the mount, or the heir's. */
/* Sends @mc, of whose reply nothing but the status matters. */
int recovery_tell(struct core *c, struct meta_call *mc, struct wire_out *o);
void recovery_nap(uint32_t ms);
/* The log of r->e.ino is ours from now on: fills @r. */
int recovery_raise(struct recovery *r);
/* A journal's entry for that file, which is ours. */
int recovery_set_journal(struct recovery *r, uint64_t ino);
/* Its entry goes, durably. */
int recovery_drop(struct recovery *r);
/* Fences the peers and asks until it is known whose log it is. Returns 0 and
 * *index, or 1 where a majority has to be given what it lacks first
 * (recovery_stage()); -ESTALE: another recovery has come; -EAGAIN: too few
 * answer until @deadline_ms; -EIO: a majority has lost it; -ENODATA: it is
 * empty. */
int recovery_choose(struct recovery *r, uint64_t deadline_ms, uint32_t *index);
/* Reads all regions of that peer into r->bases. -EBADMSG: what it has is not
 * what it said. */
int recovery_read(struct recovery *r, uint32_t peer);
void recovery_forget(struct recovery *r);
/* Gives others what they lack of it, until a majority has all. -EAGAIN: no
 * majority could be had. */
int recovery_stage(struct recovery *r, uint32_t from);
/* Nothing of it is needed any more. */
void recovery_free(struct recovery *r);

/* ---- log_heir.c ---- */
/* Is there no sense in going on? */
bool recovery_stops(struct core *c);
/* recovery_raise(), and beside other mounts the file is the recovery's alone
 * then, with its lease, whatever is returned, until recovery_unhold(). -ENOENT:
 * it is gone; -ESTALE: recovery_stops(). */
int recovery_take(struct recovery *r);
/* It is everybody's again. Not called where the recovery comes again: then
 * recovery_left(). */
void recovery_unhold(struct recovery *r);
/* Is this entry of ours one that was raised and not recovered? */
bool recovery_left(struct core *c, const struct meta_log_entry *e);
/* All that dead sessions left, while this mount serves. Returns why that could
 * not be, for now. */
int log_recover_left(struct core *c, uint64_t deadline_ms);

/* ---- log_apply.c ---- */
/* What that peer has, or r->section: it is durable in the blocks then. */
int recovery_apply(struct recovery *r);

/* ---- log_redo.c ---- */
struct log_redo_section {
	uint64_t ino, epoch;
	uint64_t seq; /* of the first record */
	uint32_t len;
	const uint8_t *p; /* the records */
};
/* Reads a dead mount's journal. 0, also where there is nothing to read. */
int log_redo_load(struct core *c, uint64_t ino);
/* What was being destaged of that log; NULL: nothing is known of it. */
const struct log_redo_section *log_redo_find(struct core *c, uint64_t ino,
					     uint64_t epoch);
/* What all of @list have (but those with an error) becomes durable in a
 * journal, which the next mount has instead of those that were found if this
 * one does not come to its end. */
int log_redo_write(struct core *c, const struct recovery *list);
/* A log of the file could not be recovered: what there is of it is kept for the
 * next mount. */
void log_redo_keep(struct core *c, uint64_t ino);
/* Frees all; the journals themselves too, if they are not needed any more. */
void log_redo_end(struct core *c, bool done);

#endif
