/* Cut jobs: truncations and punched holes that every block daemon has yet to
 * confirm. The state machine keeps them (sm_cut_list); this drives them once
 * they are durable, and holds back whoever must not see the file before.
 */
#ifndef METAD_CUT_H
#define METAD_CUT_H

#include "metad/metad.h"

struct cuts;

/* Who waits for cuts. The caller's memory until @fn runs. */
struct cut_wait {
	/* @dropped: not done, but the connection is gone. */
	void (*fn)(struct cut_wait *w, bool dropped);
	uint64_t conn_id; /* 0: of none, it stays until the cut is done */
	struct cut_wait *next;
};

struct cuts *cuts_new(struct metad *md);
void cuts_free(struct cuts *cs);
/* After the log is loaded: takes up what the state machine has. */
int cuts_load(struct cuts *cs);
/* There is this cut, made by @session (0: by whom ever). @w runs when it is
 * done; at once when it is. Returns 0 or -ENOMEM. */
int cut_add(struct metad *md, uint64_t ino, uint64_t cut, uint64_t session,
	    struct cut_wait *w);
/* Is there a cut of @ino by another session? */
bool cut_foreign(struct metad *md, uint64_t ino, uint64_t session);
/* If so, @w runs when the last of them is done. */
bool cut_foreign_wait(struct metad *md, uint64_t ino, uint64_t session,
		      struct cut_wait *w);
/* The same with a cut of @ino by whomever. */
bool cut_any_wait(struct metad *md, uint64_t ino, struct cut_wait *w);
bool cut_pending(const struct metad *md, uint64_t ino);
void cut_waits_drop(struct metad *md, uint64_t conn_id);
uint64_t cut_count(const struct metad *md);

#endif
