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
	uint8_t slot; /* which one says the rest */
	uint32_t end; /* LOG_DATA_OFF: empty */
	uint64_t seq; /* last record in it; 0: empty */
	uint64_t length_first, length; /* of the file before and after it */
};

/* What one peer of the list said. */
struct log_answer {
	enum log_answer_state state;
	uint32_t region_count;
	/* By index, from the first with a record; malloc'd. */
	struct log_answer_region *regions;
	uint64_t seq; /* last of its stream; 0: empty */
	uint64_t length;
	/* Something is behind that is no record: what was under way when the
	 * writer ended, or damage, and then there were more. */
	bool torn;
};

/* Takes the reply to LOG_FENCE; what was taken before is replaced, but LOST
 * stays. @boot_id: the listed one. Anything that cannot be (a gap between
 * regions, a slot of another log) makes it LOST. So does a damaged slot beside
 * a whole one: it might be the newer one, and a log that seems shorter than it
 * was acknowledged must not count as a vote. Returns 0 or -ENOMEM (nothing
 * changed). */
struct log_choose_what {
	uint64_t cluster_id, ino, data_epoch, boot_id;
};
int log_answer_take(struct log_answer *a, const struct log_choose_what *what,
		    const struct log_reply *lr,
		    const struct log_fence_reply *r) must_check;
void log_answer_fini(struct log_answer *a);

enum log_choice {
	LOG_CHOICE_WAIT, /* too few have answered */
	LOG_CHOICE_PEER, /* *index is whose log it is; a majority has all */
	/* *index is whose log it is, and fewer than a majority have all of it.
	 * Before any of it is applied, the others are to be given what they
	 * lack, until a majority has all: else, should this recovery and then
	 * this peer die, the next one would choose a shorter log than what is
	 * in the blocks by then. */
	LOG_CHOICE_STAGE,
	/* The same, but fewer than a majority are sure that they have no more:
	 * those that have not answered are to be waited for as long as can be.
	 * It is PEER or STAGE when all have answered, and may be taken for
	 * STAGE before. */
	LOG_CHOICE_TORN,
	LOG_CHOICE_EMPTY, /* there is nothing in it */
	LOG_CHOICE_LOST, /* a majority has lost it */
};
/* @answers: of the @count peers of the list, an odd number. *index: the largest
 * sequence among at least a majority of confirmed ones; when all of them have
 * confirmed and are sure, the largest that a majority has, for what fewer have
 * was never acknowledged. Of equal ones the first. More answers may change
 * the choice later, as long as nothing was applied. */
enum log_choice log_choose(const struct log_answer *answers, uint32_t count,
			   uint32_t *index);
/* Whose is the longest of all that have confirmed, however few: what can be
 * salvaged when it is lost. -ENOENT: nothing. */
int log_choose_salvage(const struct log_answer *answers, uint32_t count);

#endif
