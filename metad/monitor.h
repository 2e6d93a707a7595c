/* Block daemons as metad sees them: registration, heartbeats, serving leases.
 */
#ifndef METAD_MONITOR_H
#define METAD_MONITOR_H

#include "metad/request.h"

/* Volatile; of the last registration or heartbeat. */
struct monitor_daemon {
	uint32_t id;
	bool seen; /* since metad started */
	uint64_t boot_id;
	uint64_t units_total, units_free;
	uint64_t commit;
	uint64_t ino_max, session_max, epoch_max; /* largest it knows */
	uint32_t state; /* enum blk_state */
	char error[128];
	uint64_t heard_ms; /* uv_now() */
	uint64_t lease_ms; /* it may serve until then, uv_now() */
};

int monitor_new(struct metad *md, struct monitor **ret);
void monitor_free(struct monitor *m);
/* NULL: no such daemon has ever been heard of. */
const struct monitor_daemon *monitor_find(struct monitor *m, uint32_t id);
/* Has the right to serve that it may have run out? Then what is forbidden now,
 * it has to learn before it serves again. */
bool monitor_lease_over(struct monitor *m, uint32_t id);
/* Has everybody registered who could by now? */
bool monitor_settled(struct monitor *m);
/* Has every store on record registered, and is the right one? Not before that
 * it is known that these metadata are no older copy (restore.h). */
bool monitor_all_known(struct monitor *m);
/* ... of one of them at least, or are there none? */
bool monitor_any_known(struct monitor *m);
/* Runs with each registration, see restore.c. */
void monitor_on_register(struct monitor *m, void (*fn)(struct metad *md));

/* Handlers. */
void monitor_register(struct request *r);
void monitor_heartbeat(struct request *r);

/* The store of this daemon is given up (WIRE_OP_ADMIN_GIVE_UP). Returns 0 and
 * *pos, or -errno as said there. */
int monitor_give_up(struct metad *md, uint32_t id, uint64_t *pos);

#endif
