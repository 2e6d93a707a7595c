/* An RDMA device that log_xport_verbs.c uses. */
#ifndef FUSE_CORE_LOG_VERBS_DEV_H
#define FUSE_CORE_LOG_VERBS_DEV_H

#include "fuse/core/log_writer.h"

#include <infiniband/verbs.h>

/* Of one connection: each post is two writes and, with iWARP, a read. */
#define POST_WRS 3u
#define CONN_WRS (POST_WRS * LOG_WRITER_POST_MAX)

struct vdev {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t index; /* of log_mirror.mr */
	uint32_t conn_count, conn_max;
	bool iwarp;
	bool gone;
};

/* d->verbs is set. 0 or -errno; vdev_close() in either case. */
int vdev_open(struct vdev *d);
void vdev_close(struct vdev *d);
/* 0 or -errno. */
int vdev_nonblocking(int fd);

#endif
