#include "fuse/core/log_verbs_dev.h"

#include <fcntl.h>

#define CQ_ENTRIES 4096

void vdev_close(struct vdev *d)
{
	if (d->cq)
		(void)ibv_destroy_cq(d->cq);
	if (d->channel)
		(void)ibv_destroy_comp_channel(d->channel);
	/* Mirrors that are still being sent from may hold it: then it stays. */
	if (d->pd)
		(void)ibv_dealloc_pd(d->pd);
	d->cq = NULL;
	d->channel = NULL;
	d->pd = NULL;
}

int vdev_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int vdev_open(struct vdev *d)
{
	struct ibv_device_attr attr;
	int cqe = CQ_ENTRIES, rv;

	if (ibv_query_device(d->verbs, &attr))
		return -EIO;
	if (attr.max_cqe < cqe)
		cqe = attr.max_cqe;
	d->conn_max = (uint32_t)cqe / CONN_WRS;
	d->iwarp = d->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	d->pd = ibv_alloc_pd(d->verbs);
	d->channel = ibv_create_comp_channel(d->verbs);
	if (!d->pd || !d->channel)
		return -ENOMEM;
	rv = vdev_nonblocking(d->channel->fd);
	if (rv == 0)
		rv = vdev_nonblocking(d->verbs->async_fd);
	if (rv < 0)
		return rv;
	d->cq = ibv_create_cq(d->verbs, cqe, NULL, d->channel, 0);
	return d->cq ? 0 : -ENOMEM;
}
