/* A mount with a log directory, on mini daemons of all kinds, for cmocka
 * tests: what tests/lib/data_fix.h does not have.
 */
#ifndef TESTS_LIB_LOG_MOUNT_H
#define TESTS_LIB_LOG_MOUNT_H

#include "fuse/core/log_priv.h"
#include "tests/lib/data_fix.h"

struct lmount {
	struct dfix *d;
	uint64_t dir; /* the log directory */
};

/* @opts: words of the directory, region=64K besides; three peers. @o NULL:
 * three log daemons. */
struct lmount *lm_new(const struct dfix_options *o, const char *opts);
/* As dfix_stop(); no memory may be lent any more. */
void lm_stop(struct lmount *m);
/* The client dies: its open files are gone, its calls answered. */
void lm_kill(struct lmount *m);
/* Another one takes its place, and recovers. */
int lm_start(struct lmount *m);
/* Both. */
void lm_remount(struct lmount *m);
/* Power is lost everywhere: the client is dead, and what was not durable is
 * gone, with all memory of log daemons. */
void lm_power_cut(struct lmount *m);
/* But block daemons with a bit in @keep had all they got on their disk. */
void lm_power_cut_keep(struct lmount *m, uint32_t keep);
/* A round's journal is held at the block daemons (d_hold() of BLK_WRITE): it
 * becomes durable, and all that follows it is held there. */
void lm_hold_behind_journal(struct lmount *m);
/* Everything goes, whatever it is in. */
void lm_free(struct lmount *m);

struct core_file *lm_create(struct lmount *m, const char *name);
struct core_file *lm_open(struct lmount *m, uint64_t dir, const char *name);

/* Metad hears from the log daemon @i, as it is now. */
void lm_tell(struct lmount *m, uint32_t i, bool there);
/* Of those of @from and behind it. */
void lm_hold(struct lmount *m, uint32_t from, uint16_t op, bool hold);

/* The registry's entry; fails when there is none. */
void lm_entry(struct lmount *m, uint64_t ino, struct sm_log *ret);
bool lm_has_log(struct lmount *m, uint64_t ino);
/* Is @id on the published list? */
bool lm_listed(struct lmount *m, uint64_t ino, uint32_t id);
/* How many peers have record @seq of it. */
uint32_t lm_have(struct lmount *m, uint64_t ino, uint64_t seq);
/* Of all peers. */
uint64_t lm_lent_bytes(struct lmount *m);

/* A counter of the mount's logs (log_client.n). */
#define lm_count(m, name)                                                     \
	({                                                                    \
		uint64_t v_;                                                  \
		core_lock((m)->d->f.c);                                       \
		v_ = (m)->d->f.c->log->n.name;                                \
		core_unlock((m)->d->f.c);                                     \
		v_;                                                           \
	})
/* A field of the file's log; it has one. */
#define lm_field(m, file, name)                                               \
	({                                                                    \
		core_lock((m)->d->f.c);                                       \
		assert_non_null((file)->in->log);                             \
		uint64_t v_ = (uint64_t)(file)->in->log->name;                \
		core_unlock((m)->d->f.c);                                     \
		v_;                                                           \
	})

/* Writes @len bytes of d_fill(@seed) at @off; starts it; is it there? */
int lm_write(struct lmount *m, struct core_file *f, uint64_t off, uint32_t len,
	     uint64_t seed);
struct fix_call *lm_write_start(struct lmount *m, struct core_file *f,
				uint64_t off, uint32_t len, uint64_t seed);
void lm_check(struct lmount *m, struct core_file *f, uint64_t off,
	      uint32_t len, uint64_t seed);
void lm_check_durable(struct lmount *m, struct core_file *f, uint64_t off,
		      uint32_t len, uint64_t seed);
/* Only zeros. */
void lm_check_zeros(struct lmount *m, struct core_file *f, uint64_t off,
		    uint32_t len);

#endif
