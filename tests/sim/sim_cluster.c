/* The cluster against a model, from seeds: random operations through the
 * client core while block daemons and metad die, forget, hang, lose replies
 * and execute what came over a connection that is gone, and the client itself
 * is abandoned.
 *
 * Method: every operation's result is compared with the model's. After a
 * crash of the client the names must be those after some prefix of the
 * stream of mutations that has at least what an fsync covered, each byte is
 * the one of the last fsync or of a later write, and a size that grew does
 * not end in lost data. The seed gives operations and faults; which frames a
 * fault meets is up to the threads.
 *
 * HAIL_SEED=n runs one seed, HAIL_SEEDS=n that many from 1.
 */
#include "tests/sim/world.h"

#include <sys/stat.h>
#include <time.h>

#define SEEDS 24u
#define BUDGET_S 40 /* of the default run, on a machine that is busy */
#define STEPS 250u

static void step(struct world *w)
{
	uint64_t what = world_rnd(w, 100);

	if (what < 30)
		names_step(w);
	else if (what < 55)
		content_step_write(w);
	else if (what < 68)
		content_step_read(w);
	else if (what < 80)
		content_step_fsync(w);
	else if (what < 85)
		content_step_truncate(w);
	else if (what < 87)
		content_step_punch(w);
	else if (what < 89)
		content_step_allocate(w);
	else if (what < 92)
		content_step_close(w);
	else if (what < 95)
		content_step_stat(w);
	else if (what < 97)
		names_check(w);
	else
		crash_step(w);
}

static void world_begin(struct world *w)
{
	struct model_create p = { .parent = MODEL_FS_ROOT,
				  .mode = S_IFDIR | 0755 };

	sim_box_init(&w->x);
	sim_box_mount(&w->x);
	w->model = names_model_new(w);
	w->dir_ino[0] = ROOT_INO;
	for (uint32_t i = 1; i < DIRS; i++) {
		struct sim_call *k = sim_call_new();
		struct core_create c = { .parent = ROOT_INO,
					 .mode = S_IFDIR | 0755 };
		struct meta_attr a;

		c.name = p.name = i == 1 ? "d1" : "d2";
		core_create(w->x.c, &c, sim_on_attr, k);
		require(w, trouble_finish(w, k, &a, false) == 0);
		w->dir_ino[i] = a.ino;
	}
	struct sim_call *k = sim_call_new();
	core_sync_all(w->x.c, sim_on_err, k);
	require(w, trouble_finish(w, k, NULL, false) == 0);
}

/* Orderly: everything is durable without a word, and nothing ran twice. */
static void world_end(struct world *w)
{
	static const uint16_t ops[] = { WIRE_OP_META_CREATE, 0,
					WIRE_OP_META_UNLINK, 0,
					WIRE_OP_META_RENAME,
					WIRE_OP_META_LINK };

	w->issued[CREATE] += w->issued[MKDIR] + DIRS - 1;
	w->issued[UNLINK] += w->issued[RMDIR];
	for (uint32_t i = 0; i <= LINK && !w->forgetful; i++)
		require(w, !ops[i] || mini_metad_executed(w->x.m, ops[i]) <=
					      w->issued[i]);
	for (uint32_t i = 0; i < w->fid_count; i++) {
		struct file *f = &w->files[i];

		if (!f->h)
			continue;
		core_release(w->x.c, f->h);
		f->h = NULL;
		model_fs_drop(w->model, f->model);
	}
	sim_box_unmount(&w->x);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		mini_blockd_restart(w->x.b[i], true);
	mini_metad_restart(w->x.m, true);
	sim_box_mount(&w->x);
	names_check(w);
	for (uint32_t i = 0; i < w->fid_count; i++)
		content_settle(w, &w->files[i]);
	crash_check_contents(w);
	sim_box_unmount(&w->x);
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
		require(w, mini_blockd_violations(w->x.b[i]) == 0);
	for (uint32_t i = 0; i < w->fid_count; i++) {
		free(w->files[i].base);
		free(w->files[i].ops);
	}
	model_fs_free(w->model);
	sim_box_fini(&w->x);
}

static void run_seed(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->seed = seed;
	w->rng = seed * 0x9e3779b97f4a7c15u + 1;
	world_begin(w);
	for (w->step = 0; w->step < STEPS; w->step++)
		step(w);
	world_end(w);
	printf("ok - seed %llu: %u faults, %u crashes\n",
	       (unsigned long long)seed, w->faults, w->crashes);
	fflush(stdout);
	free(w);
}

int main(void)
{
	const char *one = getenv("HAIL_SEED"), *many = getenv("HAIL_SEEDS");
	uint64_t count = many ? strtoull(many, NULL, 10) : SEEDS;
	time_t began = time(NULL);

	if (one) {
		run_seed(strtoull(one, NULL, 10));
		return 0;
	}
	for (uint64_t seed = 1; seed <= count; seed++) {
		if (!many && time(NULL) - began > BUDGET_S)
			break;
		run_seed(seed);
	}
	return 0;
}
