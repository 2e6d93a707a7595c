/* Which peer's log is the log: the decision of a recovery. [pure] See design
 * section 8: only peers count that are on the published list with the boot id
 * it names, have confirmed the fence, and never gave the log up. */
#ifndef FUSE_CORE_LOG_CHOOSE_H
#define FUSE_CORE_LOG_CHOOSE_H

#include "common/log_rec.h"
#include "common/wire_log.h"

enum log_answer_state {
	LOG_ANSWER_NONE = 0, /* not heard of yet */
	LOG_ANSWER_CONFIRMED, /* fenced; what it holds is known */
	LOG_ANSWER_LOST, /* another boot id, given up, or damaged: for good */
};

struct log_answer_region {
	uint32_t index;
	uint8_t log2;
	uint32_t end; /* LOG_DATA_OFF: empty */
	uint64_t seq; /* last record in it; 0: empty */
};

/* What one peer of the list said. */
struct log_answer {
	enum log_answer_state state;
	uint32_t region_count;
	struct log_answer_region *regions; /* by index; malloc'd */
	uint64_t seq; /* last of its stream; 0: empty */
	uint64_t length;
};

/* Takes the reply to LOG_FENCE. @boot_id: the listed one. Anything that cannot
 * be (a gap between regions, a slot of another log) makes it LOST. Returns 0 or
 * -ENOMEM (nothing changed). */
struct log_choose_what {
	uint64_t cluster_id, ino, data_epoch, boot_id;
};
int log_answer_take(struct log_answer *a, const struct log_choose_what *what,
		    const struct log_reply *lr,
		    const struct log_fence_reply *r) must_check;
void log_answer_fini(struct log_answer *a);

enum log_choice {
	LOG_CHOICE_WAIT, /* too few have answered */
	LOG_CHOICE_PEER, /* *index is whose log it is */
	LOG_CHOICE_EMPTY, /* there is nothing in it */
	LOG_CHOICE_LOST, /* a majority has lost it */
};
/* @answers: of the @count peers of the list. *index: the largest sequence
 * among at least a majority of confirmed ones; of equal ones the first. */
enum log_choice log_choose(const struct log_answer *answers, uint32_t count,
			   uint32_t *index);
/* The best of what there is when it is lost, to salvage. -ENOENT: nothing. */
int log_choose_salvage(const struct log_answer *answers, uint32_t count);

#endif
