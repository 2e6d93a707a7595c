/* A mount with two log files that are destaged in order, and an ordinary file,
 * for cmocka tests of rounds and their journal.
 */
#ifndef TESTS_LIB_LOG_SCENE_H
#define TESTS_LIB_LOG_SCENE_H

#include "tests/lib/log_mount.h"

#define SCENE_LEN 1000u
#define SCENE_BLOCKS 6u

struct log_scene {
	struct lmount *m;
	struct core_file *f[2], *g; /* "f0", "f1" of the log directory; "g" */
};

/* Both log files are in the blocks, as of seed 100, and a journal has that; the
 * mount has none under way. @o NULL: lm_new()'s. */
struct log_scene scene_begun_with(const struct dfix_options *o);
struct log_scene scene_begun(void);
/* Of another mount. */
void scene_open(struct log_scene *s);
void scene_end(struct log_scene *s);
/* lm_power_cut(), and the next mount has the files open. */
void scene_power_cut(struct log_scene *s);

/* A write of SCENE_LEN to each of SCENE_BLOCKS blocks of both, from @seed on;
 * is that there, and nothing behind it? */
void scene_write(struct log_scene *s, uint64_t seed);
void scene_check(struct log_scene *s, uint64_t seed);
/* Writes and fsyncs "g". A round begins with it if there is anything in logs
 * that no journal has, and it ends when one has. */
struct fix_call *scene_page_start(struct log_scene *s, uint64_t seed);
void scene_page(struct log_scene *s, uint64_t seed);
void scene_wait_round(struct log_scene *s);

/* A field of the mount's log_client. */
#define scene_log(mount, name)                                                \
	({                                                                    \
		core_lock((mount)->d->f.c);                                   \
		uint64_t v_ = (uint64_t)(mount)->d->f.c->log->name;           \
		core_unlock((mount)->d->f.c);                                 \
		v_;                                                           \
	})

#endif
