/* A whole cluster in one process: the real client core on a mini metad and
 * mini block daemons, its operations as calls that block or are waited for
 * later. Without cmocka; what cannot be aborts.
 */
#ifndef TESTS_LIB_SIM_BOX_H
#define TESTS_LIB_SIM_BOX_H

#include "fuse/core/core.h"
#include "tests/lib/mini_blockd.h"
#include "tests/lib/mini_metad.h"

#include <pthread.h>

#define SIM_BLOCKDS 3u

struct sim_box {
	struct mini_metad *m;
	struct mini_blockd *b[SIM_BLOCKDS];
	struct core *c;
};

/* One operation. The starter passes it as @arg. */
struct sim_call {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
	int err;
	struct meta_attr attr;
	uint8_t *to; /* of a read */
	size_t len;
};

void sim_box_init(struct sim_box *x);
void sim_box_fini(struct sim_box *x); /* without a client */
/* Mounts. The client that was abandoned before, if any, is replaced. */
void sim_box_mount(struct sim_box *x);
/* Everything is flushed and given back. */
void sim_box_unmount(struct sim_box *x);
/* As kill -9 of the client: nothing is flushed; the daemons are done with its
 * connections after it. */
void sim_box_abandon(struct sim_box *x);

struct sim_call *sim_call_new(void);
/* false: not within @ms. */
bool sim_call_wait(struct sim_call *k, unsigned ms);
void sim_call_free(struct sim_call *k);
void sim_pause(unsigned us);

/* Callbacks; @arg: the call. */
void sim_on_err(void *arg, int err);
void sim_on_attr(void *arg, int err, const struct meta_attr *a);
void sim_on_data(void *arg, int err, const struct iovec *iov, int iov_count,
		 size_t len);

#endif
