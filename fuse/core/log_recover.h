/* Inside the recovery of a log: what log_recover.c (metad, applying) and
 * log_fence.c (the peers) share. */
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
};

/* All block, on the thread that starts the mount. */
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

#endif
