/* The world of sim_cluster.c: a cluster, the model of what it holds, the seed,
 * and what was done. Its parts:
 *
 *	world.c    chance, history
 *	trouble.c  faults
 *	names.c    operations on names, names after a crash
 *	content.c  operations on content
 *	crash.c    the client dies
 *
 * A function that finds what must not be tells it and ends the program.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "tests/lib/model_fs.h"
#include "tests/lib/sim_box.h"

#define DIRS 3u
#define NAMES 8u
#define FIDS 256u
#define OPS 2048u
#define WINDOWS 3u
#define WINDOW (64u << 10)
#define IMAGE (WINDOWS * WINDOW)
#define LEN_MAX 20000u
#define HISTORY 24u
#define CALL_MS 20000u

enum kind { CREATE, MKDIR, UNLINK, RMDIR, RENAME, LINK };

/* A mutation of names that succeeded, or was sent when the client died. */
struct name_op {
	enum kind kind;
	uint32_t fid, dir, name, dir2, name2, flags;
};

/* What happened to content since the last fsync. */
struct data_op {
	bool cut;
	bool maybe; /* a cut that need not have survived */
	uint64_t off, end, seed;
};

struct file {
	uint64_t ino, model; /* 0: not there */
	struct core_file *h;
	uint8_t *base; /* the windows when last durable */
	uint64_t lo, hi; /* what a crash may make of the size */
	bool grown; /* by truncate: nothing need be at the end */
	struct data_op *ops;
	uint32_t op_count;
};

struct world {
	struct sim_box x;
	struct model_fs *model;
	uint64_t seed, rng, step, data_seed;
	uint64_t dir_ino[DIRS], dir_model[DIRS];
	struct file files[FIDS];
	uint32_t fid_count;
	struct name_op ops[OPS];
	uint32_t op_count, durable; /* the first ones survive anything */
	uint64_t issued[RENAME + 2];
	bool all_held; /* the block daemons execute nothing of what comes */
	bool forgetful; /* metad has lost some, which are done again */
	char history[HISTORY][120];
	uint32_t said;
	uint32_t crashes, faults;
};

/* ---- world.c ---- */
uint64_t world_rnd(struct world *w, uint64_t below);
/* A line of history: the last ones are told when something is found. */
__attribute__((format(printf, 2, 3))) void world_say(struct world *w,
						     const char *fmt, ...);
_Noreturn void world_lost(struct world *w, const char *what);
uint32_t world_fid_of(const struct world *w, const struct file *f);

#define require(w, cond)                                                      \
	do {                                                                  \
		if (!(cond))                                                  \
			world_lost(w, #cond);                                 \
	} while (0)

/* ---- trouble.c ---- */
/* Before an operation: something will hang or get lost. */
void trouble_begin(struct world *w);
/* That, or not (false). */
bool trouble_maybe(struct world *w);
/* Under way: somebody dies, or a connection breaks. */
void trouble_strike(struct world *w);
void trouble_end(struct world *w);
void trouble_restart_metad(struct world *w, bool lose);
/* Ends what was started after trouble_begin(), if @trouble. Returns its
 * result; @a: NULL or for its attributes. */
int trouble_finish(struct world *w, struct sim_call *k, struct meta_attr *a,
		   bool trouble);

/* ---- names.c ---- */
/* With the directories alone; sets w->dir_model. */
struct model_fs *names_model_new(struct world *w);
void names_step(struct world *w);
/* They are the model's. */
void names_check(struct world *w);
/* After a crash: takes the longest prefix whose names are there. */
void names_adopt(struct world *w);

/* ---- content.c ---- */
/* Bytes of a write. */
void content_fill(uint8_t *p, size_t len, uint64_t seed);
uint64_t content_window_off(uint32_t i);
bool content_there(struct world *w, const struct file *f);
/* A file with a handle, or NULL. */
struct file *content_some_file(struct world *w);
/* The model's content becomes what a crash must leave. */
void content_settle(struct world *w, struct file *f);
struct sim_call *content_write_start(struct world *w, struct file *f);
void content_step_write(struct world *w);
void content_step_read(struct world *w);
void content_step_fsync(struct world *w);
void content_step_truncate(struct world *w);
void content_step_punch(struct world *w);
void content_step_allocate(struct world *w);
void content_step_close(struct world *w);
void content_step_stat(struct world *w);

/* ---- crash.c ---- */
/* Each file is one that a crash may have left; takes it for the model's. */
void crash_check_contents(struct world *w);
void crash_step(struct world *w);

#endif
