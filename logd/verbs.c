#include "logd/verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/diag.h"
#include "common/stats.h"

#define TOKEN_COUNT 1024u /* the oldest goes for a new one */
#define TOKEN_MS 5000u
#define BACKLOG 64

struct vtoken {
	uint64_t token; /* 0: none */
	uint64_t ino, epoch, session;
	uint64_t until_ms;
};

/* What a log has; there is one while it has a connection or a registration. */
struct vlog {
	struct ibv_pd *pd;
	struct rdma_cm_id *id; /* with its queue pair; NULL: none */
	uint32_t mr_count;
	bool stuck; /* a key could not be taken back: no queue pair any more */
	struct lend_log *g; /* not to be looked at when stuck: it may be gone */
	struct lverbs *v;
	struct vlog *next; /* of the stuck ones */
};

struct lverbs {
	struct lverbs_options o;
	struct lverbs_stats n;
	struct rdma_event_channel *channel;
	struct loop_fd fd, async;
	struct rdma_cm_id *listener; /* NULL: the device is gone */
	struct ibv_cq *cq; /* nothing ever completes here */
	struct vlog *stuck; /* as long as the daemon runs */
	struct vtoken tokens[TOKEN_COUNT];
	uint32_t token_next;
};

/* ---- a log's connection ---- */

static void log_put_maybe(struct vlog *k)
{
	if (k->id || k->mr_count > 0)
		return;
	k->g->user = NULL;
	if (ibv_dealloc_pd(k->pd) != 0)
		stats_count(&k->v->n.errors, 1);
	free(k);
}

static int log_get(struct lverbs *v, struct lend_log *g, struct vlog **ret)
{
	struct vlog *k = g->user;

	if (!k) {
		k = calloc(1, sizeof(*k));
		if (!k)
			return -ENOMEM;
		k->v = v;
		k->g = g;
		k->pd = ibv_alloc_pd(v->listener->verbs);
		if (!k->pd) {
			stats_count(&v->n.errors, 1);
			free(k);
			return -ENOMEM;
		}
		g->user = k;
	}
	*ret = k;
	return 0;
}

static void id_destroy(struct lverbs *v, struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (rdma_destroy_id(id) < 0)
		stats_count(&v->n.errors, 1);
}

/* First nothing more is let in, then the writer is told. */
static void log_disconnect(struct vlog *k)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct rdma_cm_id *id = k->id;

	if (!id)
		return;
	k->id = NULL;
	(void)ibv_modify_qp(id->qp, &attr, IBV_QP_STATE);
	(void)rdma_disconnect(id);
	id_destroy(k->v, id);
	stats_set(&k->v->n.connections, k->v->n.connections - 1);
	stats_count(&k->v->n.ended, 1);
}

/* ---- tokens ---- */

static void tokens_drop(struct lverbs *v, const struct lend_log *g)
{
	for (uint32_t i = 0; i < TOKEN_COUNT; i++)
		if (v->tokens[i].ino == g->ino &&
		    v->tokens[i].epoch == g->epoch)
			memset(&v->tokens[i], 0, sizeof(v->tokens[i]));
}

int lverbs_token(struct lverbs *v, struct lend_log *g, uint64_t *ret)
{
	struct vlog *k = g->user;
	struct vtoken t = {
		.ino = g->ino,
		.epoch = g->epoch,
		.session = g->session,
		.until_ms = loop_now_ms(v->o.loop) + TOKEN_MS,
	};

	if (!v->listener)
		return -EOPNOTSUPP;
	if (getrandom(&t.token, sizeof(t.token), 0) != sizeof(t.token) ||
	    t.token == 0)
		return -EIO;
	/* What its writer sent over the old one and gave up does not come after
	 * what he sends over the new one. */
	if (k)
		log_disconnect(k);
	if (k)
		log_put_maybe(k);
	tokens_drop(v, g);
	v->tokens[v->token_next] = t;
	v->token_next = (v->token_next + 1) % TOKEN_COUNT;
	stats_count(&v->n.tokens, 1);
	*ret = t.token;
	return 0;
}

/* The log whose writer has been given it; it is good once. NULL: none. */
static struct lend_log *token_take(struct lverbs *v, uint64_t token)
{
	struct lend_log *g;

	for (uint32_t i = 0; i < TOKEN_COUNT; i++) {
		struct vtoken t = v->tokens[i];

		if (token == 0 || t.token != token)
			continue;
		memset(&v->tokens[i], 0, sizeof(v->tokens[i]));
		if (loop_now_ms(v->o.loop) >= t.until_ms)
			return NULL;
		return lend_writer_log(v->o.lend, t.session, t.ino, t.epoch,
				       &g) == 0 ? g : NULL;
	}
	return NULL;
}

/* ---- connections ---- */

static int accept_one(struct lverbs *v, struct rdma_cm_id *id,
		      const struct rdma_conn_param *from,
		      const struct log_rdma_hello *h)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = v->cq,
		.recv_cq = v->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_conn_param param = {
		.responder_resources = from->responder_resources,
		.initiator_depth = from->initiator_depth,
		.rnr_retry_count = 7,
	};
	struct lend_log *g;
	struct vlog *k;
	int rv;

	if (h->magic != LOG_RDMA_MAGIC || h->version != WIRE_VERSION ||
	    h->cluster_id != v->o.cluster_id)
		return -EPROTO;
	g = token_take(v, h->token);
	if (!g)
		return -EACCES;
	if (id->verbs != v->listener->verbs)
		return -ENODEV;
	rv = log_get(v, g, &k);
	if (rv < 0)
		return rv;
	log_disconnect(k);
	attr.qp_context = k;
	rv = k->stuck ? -EBUSY : 0;
	if (rv == 0 && rdma_create_qp(id, k->pd, &attr) < 0)
		rv = -errno;
	if (rv == 0 && rdma_accept(id, &param) < 0)
		rv = -errno;
	if (rv < 0) {
		log_put_maybe(k);
		return rv;
	}
	k->id = id;
	id->context = k;
	stats_count(&v->n.accepted, 1);
	stats_count(&v->n.connections, 1);
	return 0;
}

static void on_request(struct lverbs *v, struct rdma_cm_id *id,
		       const struct rdma_conn_param *from,
		       const struct log_rdma_hello *h)
{
	int rv;

	id->context = NULL; /* as yet it is the listener's */
	rv = v->listener ? accept_one(v, id, from, h) : -ENODEV;
	if (rv == 0)
		return;
	stats_count(&v->n.rejected, 1);
	diag_warn("verbs", "what=connection-refused reason=\"%s\"",
		  strerror(-rv));
	if (id->qp)
		rdma_destroy_qp(id);
	(void)rdma_reject(id, NULL, 0);
	id_destroy(v, id);
}

static void device_gone(struct lverbs *v)
{
	if (!v->listener)
		return;
	loop_del(v->o.loop, &v->async);
	v->async.fn = NULL;
	diag_err("verbs", "what=device-removed addr=%s port=%u "
		 "action=\"logs go on over TCP until the daemon is started "
		 "again\"", v->o.addr, v->o.port);
	lend_revoke_all(v->o.lend);
	memset(v->tokens, 0, sizeof(v->tokens));
	(void)ibv_destroy_cq(v->cq);
	id_destroy(v, v->listener);
	v->listener = NULL;
	stats_set(&v->n.device, 0);
}

/* Of a queue pair that does not work the writer hears nothing by itself. */
static void on_async(struct loop_fd *f, uint32_t events)
{
	struct lverbs *v = container_of(f, struct lverbs, async);
	struct ibv_async_event e;
	bool gone = false;

	(void)events;
	while (ibv_get_async_event(v->listener->verbs, &e) == 0) {
		enum ibv_event_type type = e.event_type;
		struct vlog *k = NULL;

		if (type == IBV_EVENT_QP_FATAL ||
		    type == IBV_EVENT_QP_REQ_ERR ||
		    type == IBV_EVENT_QP_ACCESS_ERR)
			k = e.element.qp->qp_context;
		gone |= type == IBV_EVENT_DEVICE_FATAL;
		/* Nothing is destroyed while an event of it is out. */
		ibv_ack_async_event(&e);
		stats_count(&v->n.events, 1);
		diag_warn("verbs", "what=event event=\"%s\"",
			  ibv_event_type_str(type));
		if (!k)
			continue;
		log_disconnect(k);
		log_put_maybe(k);
	}
	if (gone)
		device_gone(v);
}

/* @k: the log whose connection it is; NULL: the listener's, or none's. */
static void on_event(struct lverbs *v, enum rdma_cm_event_type type,
		     struct rdma_cm_id *id)
{
	struct vlog *k = id == v->listener ? NULL : id->context;

	switch (type) {
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		device_gone(v);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
		if (!k)
			break;
		stats_count(&v->n.disconnected, 1);
		log_disconnect(k);
		log_put_maybe(k);
		break;
	default:
		break;
	}
}

static void on_channel(struct loop_fd *f, uint32_t events)
{
	struct lverbs *v = container_of(f, struct lverbs, fd);
	struct rdma_cm_event *e;

	(void)events;
	while (rdma_get_cm_event(v->channel, &e) == 0) {
		enum rdma_cm_event_type type = e->event;
		struct rdma_conn_param param = e->param.conn;
		struct log_rdma_hello h = { .magic = 0 };
		struct rdma_cm_id *id = e->id;
		struct wire_in in;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST &&
		    param.private_data) {
			wire_in_init(&in, param.private_data,
				     param.private_data_len);
			log_rdma_hello_decode(&in, &h);
			if (in.bad)
				h.magic = 0;
		}
		/* An id is not destroyed while an event of it is out. */
		(void)rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_request(v, id, &param, &h);
		else
			on_event(v, type, id);
	}
}

/* ---- lend_ops ---- */

int lverbs_grant(struct lverbs *v, struct lend_log *g, struct lend_region *r)
{
	struct vlog *k;
	struct ibv_mr *mr;
	int rv;

	if (!v->listener)
		return -EOPNOTSUPP;
	rv = log_get(v, g, &k);
	if (rv < 0)
		return rv;
	mr = ibv_reg_mr(k->pd, r->base, (size_t)1 << r->log2,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ);
	if (!mr) {
		stats_count(&v->n.errors, 1);
		log_put_maybe(k);
		return -EOPNOTSUPP;
	}
	k->mr_count++;
	stats_count(&v->n.registrations, 1);
	r->addr = (uintptr_t)r->base;
	r->rkey = mr->rkey;
	r->grant = mr;
	return 0;
}

void lverbs_revoke(struct lverbs *v, struct lend_log *g,
		   struct lend_region *r)
{
	struct vlog *k = g->user;
	int err = ibv_dereg_mr(r->grant);

	r->grant = NULL;
	stats_set(&v->n.registrations, v->n.registrations - 1);
	if (err) {
		/* The key may still be good: but only on queue pairs of this
		 * domain, and there will be none. */
		diag_err("verbs", "what=deregister ino=%llu error=\"%s\"",
			 (unsigned long long)g->ino, strerror(err));
		stats_count(&v->n.stuck, 1);
		log_disconnect(k);
		if (!k->stuck) {
			k->next = v->stuck;
			v->stuck = k;
		}
		k->stuck = true;
		return;
	}
	k->mr_count--;
	log_put_maybe(k);
}

void lverbs_end(struct lverbs *v, struct lend_log *g)
{
	struct vlog *k = g->user;

	tokens_drop(v, g);
	if (!k)
		return;
	log_disconnect(k);
	log_put_maybe(k);
}

/* ---- life ---- */

static int resolve(const struct lverbs_options *o, struct addrinfo **ret)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV |
					      AI_PASSIVE,
				  .ai_socktype = SOCK_STREAM };
	char port[8];

	snprintf(port, sizeof(port), "%u", o->port);
	return getaddrinfo(o->addr, port, &hints, ret) ? -EINVAL : 0;
}

static int listen_at(struct lverbs *v)
{
	struct addrinfo *ai;
	int rv = resolve(&v->o, &ai);

	if (rv < 0)
		return rv;
	if (rdma_create_id(v->channel, &v->listener, NULL, RDMA_PS_TCP) < 0) {
		v->listener = NULL;
		rv = -errno;
	} else if (rdma_bind_addr(v->listener, ai->ai_addr) < 0) {
		rv = -errno;
	} else if (!v->listener->verbs) {
		rv = -ENODEV; /* any address, or one without a device */
	} else if (rdma_listen(v->listener, BACKLOG) < 0) {
		rv = -errno;
	}
	freeaddrinfo(ai);
	if (rv < 0)
		return rv;
	v->cq = ibv_create_cq(v->listener->verbs, 1, NULL, NULL, 0);
	stats_set(&v->n.device, v->cq != NULL);
	return v->cq ? 0 : -ENOMEM;
}

/* f->fn is set where it is watched. */
static int watch(struct lverbs *v, struct loop_fd *f, int fd,
		 void (*fn)(struct loop_fd *f, uint32_t events))
{
	int flags = fcntl(fd, F_GETFL), rv;

	if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	f->fd = fd;
	f->fn = fn;
	rv = loop_add(v->o.loop, f, EPOLLIN);
	if (rv < 0)
		f->fn = NULL;
	return rv;
}

int lverbs_new(const struct lverbs_options *o, struct lverbs **ret, char *why,
	       size_t why_size)
{
	struct lverbs *v = calloc(1, sizeof(*v));
	int rv;

	if (!v) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	v->o = *o;
	v->channel = rdma_create_event_channel();
	rv = v->channel ? listen_at(v) : -errno;
	if (rv == 0)
		rv = watch(v, &v->fd, v->channel->fd, on_channel);
	if (rv == 0)
		rv = watch(v, &v->async, v->listener->verbs->async_fd,
			   on_async);
	if (rv < 0) {
		snprintf(why, why_size, "no RDMA at %s: %s", o->addr,
			 strerror(-rv));
		lverbs_free(v);
		return rv;
	}
	*ret = v;
	return 0;
}

void lverbs_free(struct lverbs *v)
{
	struct vlog *k;

	if (!v)
		return;
	if (v->fd.fn) {
		lend_revoke_all(v->o.lend);
		loop_del(v->o.loop, &v->fd);
	}
	if (v->async.fn)
		loop_del(v->o.loop, &v->async);
	while ((k = v->stuck)) {
		v->stuck = k->next;
		free(k);
	}
	if (v->cq && v->listener)
		(void)ibv_destroy_cq(v->cq);
	if (v->listener)
		id_destroy(v, v->listener);
	if (v->channel)
		rdma_destroy_event_channel(v->channel);
	free(v);
}

bool lverbs_there(const struct lverbs *v)
{
	return v->listener != NULL;
}

const struct lverbs_stats *lverbs_stats(const struct lverbs *v)
{
	return &v->n;
}
