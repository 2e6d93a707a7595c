/* The least metad a block or log daemon can live with, in a thread: it
 * registers whoever comes, gives serving leases and a map whose sessions the
 * test chooses. Every function may be called from any thread.
 */
#ifndef TESTS_LIB_FAKE_METAD_H
#define TESTS_LIB_FAKE_METAD_H

#include "common/wire_meta.h"

struct fake_metad;

struct fake_metad *fake_metad_new(uint64_t cluster_id);
void fake_metad_free(struct fake_metad *m);
uint16_t fake_metad_port(const struct fake_metad *m);

/* The live sessions, ascending; the map's epoch grows by one. */
void fake_metad_set_sessions(struct fake_metad *m, const uint64_t *sessions,
			     unsigned count);
uint64_t fake_metad_epoch(struct fake_metad *m);
/* What heartbeats give. 0: they are not answered at all. */
void fake_metad_set_lease(struct fake_metad *m, uint32_t lease_ms);
/* How often a daemon registered, and what it said last (strings cut off). */
unsigned fake_metad_registrations(struct fake_metad *m,
				  struct meta_register *last);
unsigned fake_metad_map_fetches(struct fake_metad *m);
/* Of a log daemon: what it said last (strings cut off); how many logs it has
 * asked about. */
void fake_metad_log_register(struct fake_metad *m,
			     struct meta_log_register *last);
unsigned fake_metad_log_heartbeat(struct fake_metad *m,
				  struct meta_log_heartbeat *last);
/* What is answered from now on when it asks about this one. */
#define FAKE_GONE_MAX 16
void fake_metad_judge(struct fake_metad *m, uint64_t ino, uint64_t epoch,
		      enum meta_log_verdict verdict);
/* MAP_GET is not answered, or again. */
void fake_metad_hide_map(struct fake_metad *m, bool hide);
/* The last heartbeat. */
void fake_metad_heartbeat(struct fake_metad *m, struct meta_heartbeat *last);

#endif
