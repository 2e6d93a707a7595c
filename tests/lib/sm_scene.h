/* A random life of a state machine: every kind of command, in an order and
 * with arguments that depend on a seed and on the replies only. For tests of
 * what holds whatever happens: snapshots, determinism, memory failures.
 */
#ifndef TESTS_LIB_SM_SCENE_H
#define TESTS_LIB_SM_SCENE_H

#include "tests/lib/sm_client.h"

struct sm_scene {
	struct sm_client c;
	uint64_t rng;
	uint64_t ino_max; /* largest inode number seen */
};

/* @sm: empty; owned by the scene from here on. Other machines that shall get
 * the same commands start as a copy (sm_scene_copy). */
void sm_scene_init(struct sm_scene *s, struct sm *sm, uint64_t seed);
/* Makes the empty @sm the same as the scene's. */
void sm_scene_copy(struct sm_scene *s, struct sm *sm);
void sm_scene_fini(struct sm_scene *s);
/* One random command; s->c has it. Returns its status. */
int sm_scene_step(struct sm_scene *s);
uint32_t sm_scene_below(struct sm_scene *s, uint64_t limit);

#endif
