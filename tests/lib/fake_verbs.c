#include "tests/lib/fake_verbs_priv.h"

#undef ibv_reg_mr

struct fake fake = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Lock held. */
static bool fails(int err)
{
	if (fake.fail_at == 0 || ++fake.calls != fake.fail_at)
		return false;
	fake.failed = true;
	errno = err;
	return true;
}

/* ---- events ---- */

static void event_put(struct fid *id, struct fid *listener,
		      enum rdma_cm_event_type type, const void *data,
		      size_t len)
{
	struct fevent *e = calloc(1, sizeof(*e));
	uint64_t one = 1;

	e->e.event = type;
	e->e.id = &id->id;
	e->e.listen_id = listener ? &listener->id : NULL;
	e->of = listener ? listener : id;
	if (data) {
		memcpy(e->data, data, len);
		e->e.param.conn.private_data = e->data;
		e->e.param.conn.private_data_len = (uint8_t)len;
		e->e.param.conn.responder_resources = 1;
	}
	fake.events[fake.event_tail++ % EVENTS] = e;
	if (write(fake.channel->fd, &one, sizeof(one)) < 0)
		fault("eventfd");
}

/* Those of an id that goes are not delivered. */
static void events_purge(const struct fid *id)
{
	for (uint32_t i = fake.event_head; i != fake.event_tail; i++) {
		struct fevent *e = fake.events[i % EVENTS];

		if (e && e->e.id == &id->id) {
			free(e);
			fake.events[i % EVENTS] = NULL;
		}
	}
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	struct fevent *e = NULL;
	uint64_t drop;

	take();
	while (!e && fake.event_head != fake.event_tail)
		e = fake.events[fake.event_head++ % EVENTS];
	if (e)
		e->of->events_out++;
	else if (read(channel->fd, &drop, sizeof(drop)) < 0)
		errno = EAGAIN;
	give();
	if (!e) {
		errno = EAGAIN;
		return -1;
	}
	*event = &e->e;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct fevent *e = container_of(event, struct fevent, e);

	take();
	e->of->events_out--;
	give();
	free(e);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	(void)event;
	return "event";
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *c = NULL;

	take();
	if (fake.none)
		errno = ENODEV;
	else if (!fails(ENOMEM) && (c = calloc(1, sizeof(*c)))) {
		c->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		fake.channel = c;
		fake.n.channels++;
	}
	give();
	return c;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	take();
	while (fake.event_head != fake.event_tail)
		free(fake.events[fake.event_head++ % EVENTS]);
	fake.n.channels--;
	close(channel->fd);
	free(channel);
	fake.channel = NULL;
	give();
}

/* ---- ids ---- */

static struct fid *id_new(void)
{
	for (int i = 0; i < IDS; i++) {
		if (fake.ids[i])
			continue;
		fake.ids[i] = calloc(1, sizeof(struct fid));
		fake.ids[i]->used = true;
		fake.ids[i]->dial = -1;
		fake.n.ids++;
		return fake.ids[i];
	}
	abort();
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	int rv = -1;

	(void)ps;
	take();
	if (!fails(ENOMEM)) {
		struct fid *x = id_new();

		x->id.channel = channel;
		x->id.context = context;
		*id = &x->id;
		rv = 0;
	}
	give();
	return rv;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fid *x = container_of(id, struct fid, id);

	take();
	if (x->events_out)
		fault("an id is destroyed while an event is out: hangs");
	if (id->qp)
		fault("an id is destroyed with its queue pair");
	events_purge(x);
	if (x->dial >= 0) {
		fake.dials[x->dial].id = NULL;
		if (fake.dials[x->dial].state == DIAL_UP)
			fake.dials[x->dial].state = DIAL_GONE;
	}
	for (int i = 0; i < IDS; i++)
		if (fake.ids[i] == x)
			fake.ids[i] = NULL;
	fake.n.ids--;
	give();
	free(x);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct fid *x = container_of(id, struct fid, id);
	int rv = -1;

	take();
	if (!fails(EADDRNOTAVAIL)) {
		x->port = ntohs(((struct sockaddr_in *)(void *)addr)->sin_port);
		id->verbs = &fake.ctx;
		rv = 0;
	}
	give();
	return rv;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int rv = -1;

	(void)backlog;
	take();
	if (!fails(EADDRINUSE)) {
		container_of(id, struct fid, id)->listens = true;
		rv = 0;
	}
	give();
	return rv;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
		      struct sockaddr *dst, int timeout_ms)
{
	int rv = -1;

	(void)src;
	(void)dst;
	(void)timeout_ms;
	take();
	if (!fails(ENODEV)) {
		id->verbs = &fake.ctx;
		if (fake.addr != FAKE_SILENCE)
			event_put(container_of(id, struct fid, id), NULL,
				  fake.addr, NULL, 0);
		rv = 0;
	}
	give();
	return rv;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int rv = -1;

	(void)timeout_ms;
	take();
	if (!fails(ENODEV)) {
		if (fake.route != FAKE_SILENCE)
			event_put(container_of(id, struct fid, id), NULL,
				  fake.route, NULL, 0);
		rv = 0;
	}
	give();
	return rv;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname,
		    void *optval, size_t optlen)
{
	(void)id;
	(void)level;
	(void)optname;
	(void)optval;
	(void)optlen;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fid *x = container_of(id, struct fid, id);
	int rv = -1;

	take();
	if (param->private_data_len > 56 || param->retry_count > 6)
		fault("parameters of a connection");
	if (!fails(ENETUNREACH)) {
		x->connected = fake.connects == RDMA_CM_EVENT_ESTABLISHED;
		if (fake.connects != FAKE_SILENCE)
			event_put(x, NULL, fake.connects, NULL, 0);
		rv = 0;
	}
	give();
	return rv;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fid *x = container_of(id, struct fid, id);
	int rv = -1;

	(void)param;
	take();
	if (!fails(ECONNABORTED)) {
		x->connected = true;
		fake.dials[x->dial].state = DIAL_UP;
		event_put(x, NULL, RDMA_CM_EVENT_ESTABLISHED, NULL, 0);
		rv = 0;
	}
	give();
	return rv;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct fid *x = container_of(id, struct fid, id);

	(void)data;
	(void)len;
	take();
	fake.dials[x->dial].state = DIAL_REFUSED;
	give();
	return 0;
}

static void qp_flush(struct fqp *q);

int rdma_disconnect(struct rdma_cm_id *id)
{
	struct fid *x = container_of(id, struct fid, id);

	take();
	if (id->qp)
		qp_flush(container_of(id->qp, struct fqp, qp));
	x->connected = false;
	if (x->dial >= 0 && fake.dials[x->dial].state == DIAL_UP)
		fake.dials[x->dial].state = DIAL_GONE;
	give();
	return 0;
}

/* ---- the device ---- */

const char *ibv_get_device_name(struct ibv_device *device)
{
	(void)device;
	return "fake0";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "failure";
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int rv = 0;

	(void)context;
	take();
	memset(attr, 0, sizeof(*attr));
	attr->max_cqe = fake.cqe_max;
	if (fails(EIO))
		rv = EIO;
	give();
	return rv;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = NULL;

	take();
	if (!fails(ENOMEM)) {
		struct fpd *p = calloc(1, sizeof(*p));

		pd = &p->pd;
		pd->context = context;
		p->next = fake.pds;
		fake.pds = p;
		fake.n.pds++;
	}
	give();
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int rv = 0;

	take();
	for (int i = 0; i < MRS; i++)
		if (fake.mrs[i].used && fake.mrs[i].mr.pd == pd)
			rv = EBUSY;
	if (rv == 0)
		fake.n.pds--;
	give();
	return rv;
}

static struct fmr *mr_new(struct ibv_pd *pd, void *addr, size_t len)
{
	for (uint32_t i = 1; i < MRS; i++) {
		struct fmr *m = &fake.mrs[i];

		if (m->used)
			continue;
		memset(m, 0, sizeof(*m));
		m->used = true;
		m->mr.context = &fake.ctx;
		m->mr.pd = pd;
		m->mr.addr = addr;
		m->mr.length = len;
		m->mr.lkey = m->mr.rkey = ++fake.next_key << 12 | i;
		return m;
	}
	abort();
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	struct fmr *m = NULL;

	take();
	if (access & IBV_ACCESS_REMOTE_WRITE &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		fault("remote without local");
	if (access & IBV_ACCESS_RELAXED_ORDERING)
		fault("relaxed ordering");
	if (!fails(ENOMEM)) {
		m = mr_new(pd, addr, length);
		fake.n.mrs++;
	}
	give();
	return m ? &m->mr : NULL;
}

/* What the header makes of the same where there may be optional flags. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int rv = 0;

	take();
	if (fails(EIO)) {
		rv = EIO;
	} else {
		container_of(mr, struct fmr, mr)->used = false;
		fake.n.mrs--;
	}
	give();
	return rv;
}

static struct fmr *mr_of(uint32_t key, uint64_t addr, size_t len)
{
	struct fmr *m = &fake.mrs[key % MRS];

	if (!m->used || m->mr.rkey != key || addr < (uintptr_t)m->mr.addr ||
	    addr + len > (uintptr_t)m->mr.addr + m->mr.length)
		return NULL;
	return m;
}

/* ---- completions ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fchannel *c = NULL;

	take();
	if (!fails(ENOMEM)) {
		c = calloc(1, sizeof(*c));
		c->c.context = context;
		c->c.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		fake.n.comp_channels++;
	}
	give();
	return c ? &c->c : NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	take();
	fake.n.comp_channels--;
	give();
	close(channel->fd);
	free(container_of(channel, struct fchannel, c));
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fcq *q = NULL;

	(void)cq_context;
	(void)vector;
	take();
	if (!fails(ENOMEM)) {
		q = calloc(1, sizeof(*q));
		q->cq.context = context;
		q->cq.channel = channel;
		q->cap = (uint32_t)cqe;
		if (channel)
			container_of(channel, struct fchannel, c)->of = q;
		fake.n.cqs++;
	}
	give();
	return q ? &q->cq : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fcq *q = container_of(cq, struct fcq, cq);

	take();
	fake.n.cqs--;
	if (cq->channel)
		container_of(cq->channel, struct fchannel, c)->of = NULL;
	give();
	free(q);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	struct fchannel *c = container_of(channel, struct fchannel, c);
	uint64_t drop;

	if (read(channel->fd, &drop, sizeof(drop)) < 0)
		return -1;
	*cq = &c->of->cq;
	*cq_context = NULL;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	(void)cq;
	(void)nevents;
}

/* Lock held. */
static void cq_ring(struct fcq *q)
{
	uint64_t one = 1;

	if (!q->armed || !q->cq.channel || q->head == q->tail || fake.hold)
		return;
	q->armed = false;
	if (write(q->cq.channel->fd, &one, sizeof(one)) < 0)
		fault("eventfd");
}

static void cq_put(struct fqp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	struct fcq *q = qp->cq;

	if (q->tail - q->head == q->cap)
		fault("a completion queue is full");
	q->wc[q->tail++ % WCS] = (struct ibv_wc){
		.wr_id = wr_id,
		.status = status,
		.qp_num = qp->qp.qp_num,
	};
	if (q->tail - q->head > fake.n.cq_depth_max)
		fake.n.cq_depth_max = q->tail - q->head;
	cq_ring(q);
}

static int poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	struct fcq *q = container_of(cq, struct fcq, cq);
	int n = 0;

	take();
	fake.n.polls++;
	while (!fake.hold && n < num && q->head != q->tail)
		wc[n++] = q->wc[q->head++ % WCS];
	give();
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct fcq *q = container_of(cq, struct fcq, cq);

	(void)solicited_only;
	take();
	q->armed = true;
	give();
	return 0;
}

/* ---- queue pairs ---- */

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	static uint32_t number;
	struct fqp *q;
	int rv = -1;

	take();
	if (fails(ENOMEM)) {
		give();
		return -1;
	}
	if (attr->cap.max_inline_data > fake.inline_max) {
		errno = EINVAL;
	} else {
		q = calloc(1, sizeof(*q));
		q->qp.context = pd->context;
		q->qp.pd = pd;
		q->qp.qp_context = attr->qp_context;
		q->qp.qp_num = ++number;
		q->cq = container_of(attr->send_cq, struct fcq, cq);
		q->depth_max = attr->cap.max_send_wr;
		q->inline_max = attr->cap.max_inline_data;
		id->qp = &q->qp;
		fake.n.qps++;
		rv = 0;
	}
	give();
	return rv;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	take();
	free(container_of(id->qp, struct fqp, qp));
	id->qp = NULL;
	fake.n.qps--;
	give();
}

static void qp_flush(struct fqp *q)
{
	q->err = true;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	take();
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		qp_flush(container_of(qp, struct fqp, qp));
	give();
	return 0;
}

static enum ibv_wc_status wr_do(struct fqp *q, const struct ibv_send_wr *w)
{
	const struct ibv_sge *s = w->sg_list;
	uint64_t to = w->wr.rdma.remote_addr;
	struct fmr *m = mr_of(w->wr.rdma.rkey, to, s->length);

	if (!(w->send_flags & IBV_SEND_INLINE) &&
	    (!mr_of(s->lkey, s->addr, s->length) ||
	     mr_of(s->lkey, s->addr, s->length)->mr.pd != q->qp.pd))
		return IBV_WC_LOC_PROT_ERR;
	if (!m)
		return IBV_WC_REM_ACCESS_ERR;
	if (w->opcode == IBV_WR_RDMA_WRITE)
		memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)s->addr,
		       s->length);
	else
		memcpy((void *)(uintptr_t)s->addr, (void *)(uintptr_t)to,
		       s->length);
	return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct fqp *q = container_of(qp, struct fqp, qp);
	int rv = 0;

	take();
	*bad = wr;
	if (fails(ENOMEM)) {
		give();
		return ENOMEM;
	}
	fake.n.posts++;
	for (; wr; wr = wr->next) {
		bool signalled = wr->send_flags & IBV_SEND_SIGNALED;
		enum ibv_wc_status st = IBV_WC_WR_FLUSH_ERR;

		*bad = wr;
		if (wr->send_flags & IBV_SEND_INLINE &&
		    wr->sg_list->length > q->inline_max) {
			fault("inline data is too long");
			rv = EINVAL;
			break;
		}
		/* A slot is free again when a later request's completion has
		 * been taken; the fake frees it when that is queued. */
		if (++q->depth > q->depth_max) {
			fault("a send queue is full");
			rv = ENOMEM;
			break;
		}
		if (q->depth > fake.n.sq_depth_max)
			fake.n.sq_depth_max = q->depth;
		if (signalled && wr->opcode != IBV_WR_RDMA_READ &&
		    fake.dev.transport_type == IBV_TRANSPORT_IWARP)
			fault("a completed write need not have arrived");
		fake.n.wrs++;
		fake.n.inlines += (wr->send_flags & IBV_SEND_INLINE) != 0;
		fake.n.reads += wr->opcode == IBV_WR_RDMA_READ;
		fake.n.signalled += signalled;
		if (!q->err) {
			st = wr_do(q, wr);
			if (signalled && st == IBV_WC_SUCCESS) {
				st = fake.next_status;
				fake.next_status = IBV_WC_SUCCESS;
			}
		}
		if (st != IBV_WC_SUCCESS)
			q->err = true;
		/* One that failed completes though it is not signalled. */
		if (signalled || st != IBV_WC_SUCCESS) {
			cq_put(q, wr->wr_id, st);
			q->depth = 0;
		}
	}
	give();
	return rv;
}

/* ---- what tests say ---- */

void fake_verbs_reset(void)
{
	struct fpd *p;

	take();
	for (int i = 0; i < MRS; i++)
		fake.mrs[i].used = false;
	while ((p = fake.pds)) {
		fake.pds = p->next;
		free(p);
	}
	fake.ctx.device = &fake.dev;
	if (fake.ctx.async_fd > 0)
		close(fake.ctx.async_fd);
	fake.ctx.async_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
	fake.async_head = fake.async_tail = 0;
	fake.ctx.ops.post_send = post_send;
	fake.ctx.ops.poll_cq = poll_cq;
	fake.ctx.ops.req_notify_cq = req_notify_cq;
	fake.dev.transport_type = IBV_TRANSPORT_IB;
	fake.none = fake.hold = fake.failed = false;
	fake.inline_max = 512;
	fake.cqe_max = 32767;
	fake.fail_at = fake.calls = 0;
	fake.addr = RDMA_CM_EVENT_ADDR_RESOLVED;
	fake.route = RDMA_CM_EVENT_ROUTE_RESOLVED;
	fake.connects = RDMA_CM_EVENT_ESTABLISHED;
	fake.next_status = IBV_WC_SUCCESS;
	fake.dial_count = 0;
	memset(&fake.n, 0, sizeof(fake.n));
	give();
}

void fake_verbs_no_device(void)
{
	fake.none = true;
}

void fake_verbs_iwarp(bool on)
{
	fake.dev.transport_type = on ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
}

void fake_verbs_inline_max(uint32_t bytes)
{
	fake.inline_max = bytes;
}

void fake_verbs_cqe_max(int count)
{
	fake.cqe_max = count;
}

void fake_verbs_fail_at(uint64_t k)
{
	take();
	fake.fail_at = k;
	fake.calls = 0;
	fake.failed = false;
	give();
}

bool fake_verbs_failed(void)
{
	bool failed;

	take();
	failed = fake.failed;
	give();
	return failed;
}

void fake_verbs_answer(enum rdma_cm_event_type addr,
		       enum rdma_cm_event_type route)
{
	take();
	fake.addr = addr;
	fake.route = route;
	give();
}

void fake_verbs_connects(enum rdma_cm_event_type type)
{
	take();
	fake.connects = type;
	give();
}

void fake_verbs_event_all(enum rdma_cm_event_type type)
{
	take();
	for (int i = 0; i < IDS; i++)
		if (fake.ids[i] && fake.ids[i]->connected)
			event_put(fake.ids[i], NULL, type, NULL, 0);
	give();
}

void fake_verbs_hold(bool on)
{
	take();
	fake.hold = on;
	for (int i = 0; i < IDS && !on; i++)
		if (fake.ids[i] && fake.ids[i]->id.qp)
			cq_ring(container_of(fake.ids[i]->id.qp, struct fqp,
					     qp)->cq);
	give();
}

void fake_verbs_next_status(enum ibv_wc_status status)
{
	take();
	fake.next_status = status;
	give();
}

int fake_verbs_dial(const void *data, size_t len, uint16_t port)
{
	int number;

	take();
	number = fake.dial_count++;
	fake.dials[number].state = DIAL_REFUSED;
	fake.dials[number].id = NULL;
	for (int i = 0; i < IDS; i++) {
		struct fid *l = fake.ids[i], *x;

		if (!l || !l->listens || l->port != port)
			continue;
		x = id_new();
		x->id.channel = l->id.channel;
		x->id.context = l->id.context;
		x->id.verbs = &fake.ctx;
		x->dial = number;
		fake.dials[number].state = DIAL_WAITS;
		fake.dials[number].id = x;
		event_put(x, l, RDMA_CM_EVENT_CONNECT_REQUEST, data, len);
		break;
	}
	give();
	return number;
}

enum fake_dial fake_verbs_dialled(int number)
{
	enum fake_dial state;

	take();
	state = fake.dials[number].state;
	give();
	return state;
}

enum ibv_wc_status fake_verbs_write(int number, uint64_t addr, uint32_t rkey,
				    const void *data, size_t len)
{
	enum ibv_wc_status st = IBV_WC_RETRY_EXC_ERR;
	struct fid *x;

	take();
	x = fake.dials[number].id;
	if (x && x->id.qp && !container_of(x->id.qp, struct fqp, qp)->err) {
		struct fmr *m = mr_of(rkey, addr, len);

		st = IBV_WC_REM_ACCESS_ERR;
		if (m && m->mr.pd == x->id.qp->pd) {
			memcpy((void *)(uintptr_t)addr, data, len);
			st = IBV_WC_SUCCESS;
		}
	}
	give();
	return st;
}

void fake_verbs_hang_up(int number)
{
	take();
	if (fake.dials[number].id)
		event_put(fake.dials[number].id, NULL,
			  RDMA_CM_EVENT_DISCONNECTED, NULL, 0);
	give();
}

uint32_t fake_verbs_lend(void *p, size_t len)
{
	uint32_t key;

	take();
	key = mr_new(NULL, p, len)->mr.rkey;
	give();
	return key;
}

void fake_verbs_take_back(uint32_t rkey)
{
	take();
	fake.mrs[rkey % MRS].used = false;
	give();
}

struct fake_verbs_count fake_verbs_count(void)
{
	struct fake_verbs_count n;

	take();
	n = fake.n;
	give();
	return n;
}
