/* A mount (client core without FUSE) on a mini metad, and blocking forms of
 * its operations, for cmocka tests.
 */
#ifndef TESTS_LIB_CORE_FIX_H
#define TESTS_LIB_CORE_FIX_H

#include "fuse/core/core.h"
#include "tests/lib/mini_metad.h"

#include <pthread.h>

#define WAIT_MS 20000u
#define TRACK_MAX 512u

struct fix {
	struct mini_metad *m;
	struct core *c;
	uint64_t seen[TRACK_MAX]; /* inodes check_truth() compares */
	unsigned seen_count;
	_Atomic unsigned names_changed; /* calls; only of fix_early_new() */
};

/* One operation that is waited for: k = fix_call_new(); start(..., on_X, k);
 * err = fix_call_end(k, &attr). */
struct fix_call {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
	int err;
	struct meta_attr a;
	uint8_t bytes[70000];
	size_t len;
};

/* Many operations at once. */
struct burst {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	unsigned left;
	int first_err;
};

#define wait_until(cond)                                                      \
	do {                                                                  \
		unsigned tries_ = 0;                                          \
		while (!(cond) && tries_++ < WAIT_MS / 5)                     \
			pause_ms(5);                                          \
		assert_true(cond);                                            \
	} while (0)

struct fix_call *fix_call_new(void);
void fix_call_done(struct fix_call *k, int err);
bool fix_call_wait(struct fix_call *k, unsigned ms);
int fix_call_end(struct fix_call *k, struct meta_attr *a);
void pause_ms(unsigned ms);
void track(struct fix *f, uint64_t ino);
int op_lookup(struct fix *f, uint64_t dir, const char *name,
		struct meta_attr *a);
int op_getattr(struct fix *f, uint64_t ino, struct meta_attr *a);
int op_make(struct fix *f, uint64_t dir, const char *name,
		uint32_t mode, const char *target, struct meta_attr *a);
int op_mkdir(struct fix *f, uint64_t dir, const char *name,
		struct meta_attr *a);
int op_mkfile(struct fix *f, uint64_t dir, const char *name,
		struct meta_attr *a);
int op_open_new(struct fix *f, uint64_t dir, const char *name,
		int flags, struct core_file **file, struct meta_attr *a);
int op_open(struct fix *f, uint64_t ino, int flags,
		struct core_file **file);
struct fix_call *op_unlink_start(struct fix *f, uint64_t dir, const char *name,
				 bool isdir);
int op_unlink(struct fix *f, uint64_t dir, const char *name, bool isdir);
int op_rename(struct fix *f, uint64_t from, const char *name,
		uint64_t to, const char *newname, uint32_t flags);
int op_link(struct fix *f, uint64_t ino, uint64_t dir, const char *name,
		struct meta_attr *a);
int op_chmod(struct fix *f, uint64_t ino, uint32_t mode);
int op_fsync_dir(struct fix *f);
int op_setxattr(struct fix *f, uint64_t ino, const char *name,
		const void *value, size_t len, uint32_t flags);
ssize_t op_getxattr(struct fix *f, uint64_t ino, const char *name,
		void *buf);
void check_truth(struct fix *f);
struct core *mount_new(struct mini_metad *m, uint64_t soft_ms);
struct fix *fix_new(uint64_t soft_ms);
/* With core_options.early. */
struct fix *fix_early_new(void);
void fix_free(struct fix *f);
void fix_stop(struct fix *f);
void burst_init(struct burst *b, unsigned count);
unsigned burst_left(struct burst *b);
/* Waits until none is left. How long a machine takes for all is not the
 * question: fails when none has come for WAIT_MS. */
void burst_end(struct burst *b);
void burst_start(struct fix *f, struct burst *b, uint64_t dir,
			unsigned count);
/* callbacks; @arg: the call, or the burst */
void on_err(void *arg, int err);
void on_attr(void *arg, int err, const struct meta_attr *a);
void on_bytes(void *arg, int err, const void *p, size_t len);
void on_burst_err(void *arg, int err);
void on_burst(void *arg, int err, const struct meta_attr *a);

#endif
