/* librdmacm and libibverbs within the process, for tests that say
 * fake_verbs_*(): linked instead of the libraries. One device; connections are
 * made between a listener and who connects, or with nobody (the test plays the
 * other side); writes go to the memory that is registered under their key.
 *
 * Everything is counted, so that a test sees what is left over, and the k-th
 * call that can fail does, once.
 */
#ifndef TESTS_LIB_FAKE_VERBS_H
#define TESTS_LIB_FAKE_VERBS_H

#include "common/base.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Forgets everything: there is a device, nothing fails, answers come. */
void fake_verbs_reset(void);
/* No device: as where there is no RDMA. */
void fake_verbs_no_device(void);
void fake_verbs_iwarp(bool on);
/* What a queue pair takes inline at most. */
void fake_verbs_inline_max(uint32_t bytes);
void fake_verbs_cqe_max(int count);
/* The @k-th call from now on (1: the next) that can fail, does. 0: none. */
void fake_verbs_fail_at(uint64_t k);
/* Did it? */
bool fake_verbs_failed(void);
#define FAKE_SILENCE ((enum rdma_cm_event_type)99) /* nothing comes */
/* Address and route are answered so. */
void fake_verbs_answer(enum rdma_cm_event_type addr,
		       enum rdma_cm_event_type route);
/* Who connects where nobody listens is told so. */
void fake_verbs_connects(enum rdma_cm_event_type type);
/* An event of every connected id (of one with a queue pair). */
void fake_verbs_event_all(enum rdma_cm_event_type type);
/* An asynchronous event: of the queue pair of every connected id, or of the
 * device. */
void fake_verbs_async(enum ibv_event_type type);
/* Completions wait (true) until they are let go. */
void fake_verbs_hold(bool on);
/* The next post's last request ends so. */
void fake_verbs_next_status(enum ibv_wc_status status);

/* A connection from somewhere, as who connects: private data of @len bytes, 56
 * at most; NULL: none. Returns its number; state: */
int fake_verbs_dial(const void *data, size_t len, uint16_t port);
enum fake_dial { DIAL_WAITS, DIAL_UP, DIAL_REFUSED, DIAL_GONE };
enum fake_dial fake_verbs_dialled(int number);
/* Writes over it, as its adapter: a key that is not good there is refused. */
enum ibv_wc_status fake_verbs_write(int number, uint64_t addr, uint32_t rkey,
				    const void *data, size_t len);
/* He is gone. */
void fake_verbs_hang_up(int number);

/* Memory that somebody else lends: good on every connection. */
uint32_t fake_verbs_lend(void *p, size_t len);
void fake_verbs_take_back(uint32_t rkey);

struct fake_verbs_count {
	uint32_t channels, ids, qps, cqs, comp_channels, pds, mrs; /* there */
	uint32_t async_events; /* not acknowledged */
	uint64_t posts, wrs, inlines, reads, signalled; /* so far */
	uint32_t sq_depth_max, cq_depth_max; /* most at a time */
	uint32_t polls; /* of completion queues */
	uint32_t faults; /* misuse: counted and printed */
};
struct fake_verbs_count fake_verbs_count(void);

#endif
