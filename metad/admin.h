/* What tools ask: status, statistics, every inode, backup, stop. */
#ifndef METAD_ADMIN_H
#define METAD_ADMIN_H

#include <jansson.h>

#include "common/stats.h"
#include "metad/request.h"

/* Handlers. */
void admin_status(struct request *r);
void admin_stats(struct request *r);
void admin_sessions(struct request *r);
void admin_inodes(struct request *r);
void admin_backup(struct request *r);
void admin_stop(struct request *r);
void admin_give_up(struct request *r);
/* admin_hold.c */
void admin_evict(struct request *r);
void admin_locks(struct request *r);
void admin_leases(struct request *r);
void admin_conn_gone(struct conn *c);

/* Answers with JSON text, and gives @j up; NULL: -ENOMEM. */
void admin_reply_json(struct request *r, json_t *j);

/* Registers metad's counters; @s is read by other threads too. Returns 0 or
 * -ENOMEM. */
int admin_stats_register(struct metad *md, struct stats *s);
/* Takes note of what those threads may not look at themselves. */
void admin_stats_look(struct metad *md);

#endif
