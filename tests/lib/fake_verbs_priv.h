/* What the files of the fake share. */
#ifndef TESTS_LIB_FAKE_VERBS_PRIV_H
#define TESTS_LIB_FAKE_VERBS_PRIV_H

#include "tests/lib/fake_verbs.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MRS 4096
#define IDS 1024
#define EVENTS 1024
#define DIALS 64
#define WCS 8192
#define ASYNCS 64

struct fqp {
	struct ibv_qp qp; /* first */
	struct fcq *cq;
	bool err;
	uint32_t depth, depth_max, inline_max; /* requests not retired */
};

struct fcq {
	struct ibv_cq cq; /* first */
	struct ibv_wc wc[WCS];
	uint32_t head, tail;
	uint32_t cap;
	bool armed;
};

struct fchannel {
	struct ibv_comp_channel c; /* first */
	struct fcq *of;
};

struct fid {
	struct rdma_cm_id id; /* first */
	bool used, listens, connected;
	uint16_t port;
	int dial; /* -1: none */
	uint32_t events_out;
};

struct fevent {
	struct rdma_cm_event e; /* first */
	struct fid *of;
	uint8_t data[64];
};

struct fpd {
	struct ibv_pd pd; /* first */
	struct fpd *next;
};

struct fmr {
	struct ibv_mr mr; /* first */
	bool used, lent;
};

struct fake {
	pthread_mutex_t lock;
	struct ibv_context ctx;
	struct ibv_device dev;
	bool none, hold;
	uint32_t inline_max;
	int cqe_max;
	uint64_t fail_at, calls;
	bool failed;
	enum rdma_cm_event_type addr, route, connects;
	enum ibv_wc_status next_status;
	struct fmr mrs[MRS];
	uint32_t next_key;
	struct fid *ids[IDS];
	struct fevent *events[EVENTS];
	uint32_t event_head, event_tail;
	struct {
		enum fake_dial state;
		struct fid *id;
	} dials[DIALS];
	int dial_count;
	struct rdma_event_channel *channel;
	struct fpd *pds; /* all that there were */
	struct ibv_async_event asyncs[ASYNCS];
	uint32_t async_head, async_tail;
	struct fake_verbs_count n;
};
extern struct fake fake;


static inline void take(void)
{
	pthread_mutex_lock(&fake.lock);
}

static inline void give(void)
{
	pthread_mutex_unlock(&fake.lock);
}

static inline void fault(const char *what)
{
	fake.n.faults++;
	fprintf(stderr, "# fake_verbs: %s\n", what);
}

#endif
