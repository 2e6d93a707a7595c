/* Records written into a peer's memory: one reliable connection for each log
 * and peer, made with the RDMA manager. A post is one write, the records, and
 * when a slot is due another one in the same chain, of which the last is
 * signalled: the queue pair keeps their order. Over iWARP, where a completed
 * write need not have arrived, a slot is read and that is waited for.
 *
 * One thread does all that may wait: the manager's events, making and
 * destroying. It also takes completions; it stays awake for a short time while
 * posts are on their way and pays for that, and else sleeps on the devices'
 * completion channels. Posts are made by whoever holds the core's lock, who
 * looks once what is complete already (an adapter of software is done when it
 * returns) and else sees to it that the thread is woken.
 *
 * Of a connection, state, lf and posts belong to the lock, the rest to the
 * thread. A closed one keeps its mirrors until its queue pair is gone. */
#include "fuse/core/log_xport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/clock.h"
#include "common/diag.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/log_verbs_dev.h"

#define CONNECT_MS 1000u /* as long as a peer may be away */
#define ACK_TIMEOUT 14 /* 67 ms a try */
#define RETRIES 6 /* 7 is for ever */
#define WC_BATCH 16
#define SPIN_CREDIT_MAX 16u
#define SPIN_SKIP 64u
#define EVENTS_MS 10u /* the manager is asked so often at least */
#define SCRATCH_READ (LOG_WRITER_POST_MAX * LOG_SLOT_SIZE)

enum conn_state {
	CONN_NEW,
	CONN_WAITS, /* for the manager */
	CONN_UP,
	CONN_BROKEN, /* to be told */
	CONN_CLOSED, /* to be destroyed */
};

struct conn_post {
	struct log_post post;
	struct log_mirror *mirror;
};

struct log_conn {
	struct log_verbs *v;
	struct log_conn *next;
	struct log_file *lf; /* has a reference */
	uint32_t peer;
	enum conn_state state;
	bool again; /* BROKEN: another connection may do */
	const char *why;
	uint32_t place, serial; /* wr_id, see conn_of() */
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	uint64_t due_ms; /* WAITS */
	uint8_t hello[LOG_RDMA_HELLO_SIZE];
	struct rdma_cm_id *id;
	struct vdev *dev;
	uint32_t inline_max;
	struct ibv_mr *scratch_mr; /* NULL: not needed */
	/* In flight, oldest first in a ring; @posted, @done count. */
	struct conn_post posts[LOG_WRITER_POST_MAX];
	uint32_t posted, done;
	uint8_t scratch[SCRATCH_READ + LOG_SLOT_SIZE]
		__attribute__((aligned(64)));
};

struct log_verbs {
	struct core *c;
	pthread_t thread;
	int wake_fd;
	uint32_t spin_us;
	_Atomic bool kicked, stop;
	_Atomic uint32_t in_flight;
	bool none; /* no device: lock */
	struct log_conn *conns; /* lock */
	struct log_conn **places; /* lock */
	uint32_t place_count, serial;
	struct rdma_event_channel *channel;
	struct vdev *devs[LOG_VERBS_DEV_MAX];
	uint32_t dev_count;
	uint64_t waits_due_ms; /* UINT64_MAX: no connection waits */
	uint64_t events_ms;
	uint32_t credit, skipped;
};

static void kick(struct log_verbs *v)
{
	uint64_t one = 1;

	if (!atomic_exchange(&v->kicked, true) &&
	    write(v->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is awake */
}

/* ---- connections, as others see them; lock held ---- */

static int place_take(struct log_verbs *v, struct log_conn *k)
{
	struct log_conn **more;
	uint32_t i = 0;

	while (i < v->place_count && v->places[i])
		i++;
	if (i == v->place_count) {
		more = realloc(v->places, (i + 16) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		memset(more + i, 0, 16 * sizeof(*more));
		v->places = more;
		v->place_count += 16;
	}
	v->places[i] = k;
	k->place = i;
	k->serial = ++v->serial;
	return 0;
}

/* What completes may be of a connection that is not there any more. */
static struct log_conn *conn_of(struct log_verbs *v, uint64_t wr_id)
{
	uint32_t place = (uint32_t)wr_id;
	struct log_conn *k = place < v->place_count ? v->places[place] : NULL;

	return k && k->serial == wr_id >> 32 ? k : NULL;
}

static void *verbs_thread(void *arg);

static struct log_verbs *verbs_get(struct core *c)
{
	const char *spin = getenv("HAILFS_SPIN_US");
	struct log_verbs *v = c->log->verbs;

	if (v || c->freeing)
		return v;
	v = calloc(1, sizeof(*v));
	if (!v)
		return NULL;
	v->c = c;
	v->spin_us = spin && *spin ? (uint32_t)strtoul(spin, NULL, 10) :
				     RPC_SPIN_US;
	v->credit = SPIN_CREDIT_MAX;
	v->waits_due_ms = UINT64_MAX;
	v->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (v->wake_fd < 0 ||
	    pthread_create(&v->thread, NULL, verbs_thread, v) != 0) {
		if (v->wake_fd >= 0)
			close(v->wake_fd);
		free(v);
		return NULL;
	}
	c->log->verbs = v;
	return v;
}

bool log_verbs_maybe(struct core *c)
{
	return !c->log->verbs || !c->log->verbs->none;
}

struct log_conn *log_verbs_connect(struct log_file *lf, uint32_t peer,
				   const char *addr, uint16_t port,
				   uint64_t token)
{
	const struct log_rdma_hello h = {
		.magic = LOG_RDMA_MAGIC,
		.version = WIRE_VERSION,
		.cluster_id = lf->w.cluster_id,
		.token = token,
	};
	struct log_verbs *v = verbs_get(lf->c);
	struct log_conn *k;
	struct wire_out o;

	if (!v || v->none)
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k || place_take(v, k) < 0) {
		free(k);
		return NULL;
	}
	k->v = v;
	k->lf = lf;
	log_get(lf);
	k->peer = peer;
	k->port = port;
	snprintf(k->addr, sizeof(k->addr), "%s", addr);
	wire_out_init(&o, k->hello, sizeof(k->hello));
	log_rdma_hello_encode(&o, &h);
	assert(!o.overflow);
	k->next = v->conns;
	v->conns = k;
	kick(v);
	return k;
}

void log_verbs_close(struct log_conn *k)
{
	k->state = CONN_CLOSED;
	kick(k->v);
}

/* Who may be in the middle of something is told by the thread. */
static void conn_break(struct log_conn *k, bool again, const char *why)
{
	if (k->state == CONN_CLOSED || k->state == CONN_BROKEN)
		return;
	k->state = CONN_BROKEN;
	k->again = again;
	k->why = why;
	kick(k->v);
}

/* ---- posts; lock held ---- */

static struct ibv_mr *mirror_reg(struct log_mirror *m, const struct vdev *d)
{
	return ibv_reg_mr(d->pd, m->base, m->bytes - sizeof(*m),
			  IBV_ACCESS_LOCAL_WRITE);
}

/* Mostly the thread has done it. */
static struct ibv_mr *mirror_mr(struct log_mirror *m, const struct vdev *d)
{
	if (!m->mr[d->index])
		m->mr[d->index] = mirror_reg(m, d);
	return m->mr[d->index];
}

void log_verbs_mirror_new(struct core *c)
{
	if (c->log->verbs)
		kick(c->log->verbs);
}

void log_verbs_mirror_end(struct log_mirror *m)
{
	for (uint32_t i = 0; i < LOG_VERBS_DEV_MAX; i++)
		if (m->mr[i])
			(void)ibv_dereg_mr(m->mr[i]);
}

static int conn_send(struct log_conn *k, struct conn_post *p)
{
	const struct log_mirror_at *at = &p->mirror->at[k->peer];
	const struct vdev *d = k->dev;
	uint32_t ring = k->posted % LOG_WRITER_POST_MAX;
	uint8_t *slot = k->scratch + ring * LOG_SLOT_SIZE;
	struct ibv_sge sge[POST_WRS] = {
		{ (uintptr_t)p->post.data, p->post.len, 0 },
		{ (uintptr_t)slot, LOG_SLOT_SIZE, 0 },
		{ (uintptr_t)k->scratch + SCRATCH_READ, LOG_SLOT_SIZE, 0 },
	};
	struct ibv_send_wr wr[POST_WRS] = { 0 }, *bad;
	uint64_t to = at->addr + p->post.slot_off;
	struct ibv_send_wr *last = &wr[0];

	memcpy(slot, p->post.slot, LOG_SLOT_SIZE);
	for (uint32_t i = 0; i < POST_WRS; i++) {
		if ((i == 1 && !p->post.slot_due) || (i == 2 && !d->iwarp))
			continue;
		wr[i].wr_id = (uint64_t)k->serial << 32 | k->place;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = i < 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		wr[i].wr.rdma.rkey = at->rkey;
		wr[i].wr.rdma.remote_addr = to;
		if (i > 0)
			last->next = &wr[i];
		last = &wr[i];
		if (i < 2 && sge[i].length <= k->inline_max)
			wr[i].send_flags = IBV_SEND_INLINE;
		if (k->scratch_mr)
			sge[i].lkey = k->scratch_mr->lkey;
	}
	wr[0].wr.rdma.remote_addr = at->addr + p->post.off;
	last->send_flags |= IBV_SEND_SIGNALED;
	if (!(wr[0].send_flags & IBV_SEND_INLINE)) {
		const struct ibv_mr *mr = mirror_mr(p->mirror, d);

		if (!mr)
			return ENOMEM;
		sge[0].lkey = mr->lkey;
	}
	return ibv_post_send(k->id->qp, wr, &bad);
}

static void look_later(struct log_client *l);

static bool verbs_post(struct log_file *lf, uint32_t peer)
{
	struct log_link *l = &lf->links[peer];
	struct log_conn *k = l->conn;
	struct conn_post *p = &k->posts[k->posted % LOG_WRITER_POST_MAX];
	const struct log_region_mirror *m;
	int err;

	/* At most so many are on their way, whatever they count as. */
	if (k->state != CONN_UP || k->posted - k->done == LOG_WRITER_POST_MAX ||
	    !log_writer_post_next(&lf->w, peer, &p->post))
		return false;
	m = &lf->w.regions[p->post.index - lf->w.region_first];
	p->mirror = log_mirror_of(m->base);
	p->mirror->refs++;
	l->post_ms[lf->w.peers[peer].post_count - 1] = core_now_ms();
	lf->c->log->n.posts++;
	lf->c->log->n.post_bytes += p->post.len;
	err = conn_send(k, p);
	k->posted++;
	atomic_fetch_add(&k->v->in_flight, 1);
	if (err)
		conn_break(k, false, "a write could not be posted");
	look_later(lf->c->log);
	return true;
}

const struct log_xport log_xport_verbs = { "verbs", verbs_post };

/* ---- completions ---- */

static void post_forget(struct log_conn *k)
{
	struct conn_post *p = &k->posts[k->done++ % LOG_WRITER_POST_MAX];

	log_mirror_put(p->mirror);
	atomic_fetch_sub(&k->v->in_flight, 1);
}

/* Lock held. */
static void completed(struct log_verbs *v, const struct ibv_wc *wc)
{
	struct log_conn *k = conn_of(v, wc->wr_id);
	struct log_file *lf;
	uint32_t peer;

	if (!k || k->state != CONN_UP)
		return;
	if (wc->status != IBV_WC_SUCCESS || k->posted == k->done) {
		conn_break(k, true, ibv_wc_status_str(wc->status));
		return;
	}
	lf = k->lf;
	peer = k->peer;
	log_link_posted(lf, peer,
			&k->posts[k->done % LOG_WRITER_POST_MAX].post);
	post_forget(k);
	if (lf->state == LOG_ACTIVE)
		log_step(lf);
}

/* What is complete by now; lock held. */
static void look(struct log_verbs *v)
{
	struct ibv_wc wc[WC_BATCH];

	for (uint32_t i = 0; i < v->dev_count; i++) {
		struct vdev *d = v->devs[i];
		int count = d->gone ? 0 : ibv_poll_cq(d->cq, WC_BATCH, wc);

		for (int k = 0; k < count; k++)
			completed(v, &wc[k]);
	}
}

void log_verbs_look(struct core *c)
{
	struct log_verbs *v = c->log->verbs;

	if (v && atomic_load(&v->in_flight) > 0)
		look(v);
}

/* Who has posted looks himself, and has the thread woken only for what is not
 * complete by then. */
static void look_after(struct core_deferred *def)
{
	struct log_client *l = container_of(def, struct log_client,
					    verbs_look);
	struct log_verbs *v;

	core_lock(l->c);
	l->verbs_looks = false;
	log_verbs_look(l->c);
	v = l->verbs;
	if (v && atomic_load(&v->in_flight) > 0) {
		for (uint32_t i = 0; i < v->dev_count; i++)
			if (!v->devs[i]->gone)
				(void)ibv_req_notify_cq(v->devs[i]->cq, 0);
		look(v); /* what came before that tells nobody */
	}
	core_unlock(l->c);
}

static void look_later(struct log_client *l)
{
	if (l->verbs_looks)
		return;
	l->verbs_looks = true;
	l->verbs_look.fn = look_after;
	core_defer(l->c, &l->verbs_look);
}

/* Returns whether there was anything. */
static bool poll_devs(struct log_verbs *v)
{
	struct ibv_wc wc[WC_BATCH];
	bool any = false;

	for (uint32_t i = 0; i < v->dev_count; i++) {
		struct vdev *d = v->devs[i];
		int count = d->gone ? 0 : ibv_poll_cq(d->cq, WC_BATCH, wc);

		if (count <= 0)
			continue;
		any = true;
		core_lock(v->c);
		for (int j = 0; j < count; j++)
			completed(v, &wc[j]);
		core_unlock(v->c);
	}
	return any;
}

/* ---- devices; the thread ---- */

/* NULL: none, or not usable. */
static struct vdev *dev_of(struct log_verbs *v, struct ibv_context *verbs)
{
	struct vdev *d;

	for (uint32_t i = 0; i < v->dev_count; i++)
		if (v->devs[i]->verbs == verbs)
			return v->devs[i]->gone ? NULL : v->devs[i];
	if (v->dev_count == LOG_VERBS_DEV_MAX)
		return NULL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->verbs = verbs;
	d->index = v->dev_count;
	if (vdev_open(d) < 0) {
		vdev_close(d);
		free(d);
		return NULL;
	}
	core_lock(v->c);
	v->devs[v->dev_count++] = d;
	core_unlock(v->c);
	return d;
}

/* ---- making connections; the thread ---- */

static int qp_make(struct log_conn *k)
{
	static const uint32_t inlines[] = { 512, 256, 128, 64, 0 };
	struct ibv_qp_init_attr attr;
	size_t i = 0;
	int rv;

	/* What a device takes inline is found by trying. */
	do {
		attr = (struct ibv_qp_init_attr){
			.qp_context = k,
			.send_cq = k->dev->cq,
			.recv_cq = k->dev->cq,
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = CONN_WRS, .max_recv_wr = 1,
				 .max_send_sge = 1, .max_recv_sge = 1,
				 .max_inline_data = inlines[i] },
		};
		rv = rdma_create_qp(k->id, k->dev->pd, &attr) ? -errno : 0;
	} while (rv == -EINVAL && ++i < array_count(inlines));
	if (rv < 0)
		return rv;
	k->inline_max = attr.cap.max_inline_data;
	if (k->inline_max >= LOG_SLOT_SIZE && !k->dev->iwarp)
		return 0;
	/* iWARP wants a read's target to be open to the other side. */
	k->scratch_mr = ibv_reg_mr(k->dev->pd, k->scratch, sizeof(k->scratch),
				   IBV_ACCESS_LOCAL_WRITE |
				   (k->dev->iwarp ? IBV_ACCESS_REMOTE_WRITE :
						    0));
	return k->scratch_mr ? 0 : -ENOMEM;
}

static int conn_start(struct log_conn *k)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM }, *ai;
	char port[8];
	int rv = 0;

	snprintf(port, sizeof(port), "%u", k->port);
	if (getaddrinfo(k->addr, port, &hints, &ai))
		return -EINVAL;
	if (rdma_create_id(k->v->channel, &k->id, k, RDMA_PS_TCP) < 0) {
		k->id = NULL;
		rv = -errno;
	} else if (rdma_resolve_addr(k->id, NULL, ai->ai_addr,
				     CONNECT_MS) < 0) {
		rv = -errno;
	}
	freeaddrinfo(ai);
	return rv;
}

static int conn_route(struct log_conn *k)
{
	uint8_t timeout = ACK_TIMEOUT;

	/* Where it is not known the device's own time counts. */
	(void)rdma_set_option(k->id, RDMA_OPTION_ID,
			      RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			      sizeof(timeout));
	if (!k->id->verbs)
		return -ENODEV;
	return rdma_resolve_route(k->id, CONNECT_MS) < 0 ? -errno : 0;
}

static int conn_connect(struct log_conn *k)
{
	struct rdma_conn_param param = {
		.private_data = k->hello,
		.private_data_len = sizeof(k->hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = 7,
	};
	struct vdev *d = dev_of(k->v, k->id->verbs);
	int rv;

	if (!d)
		return -ENODEV;
	if (d->conn_count == d->conn_max)
		return -ENOSPC;
	k->dev = d;
	d->conn_count++;
	kick(k->v); /* its mirrors */
	rv = qp_make(k);
	if (rv < 0)
		return rv;
	return rdma_connect(k->id, &param) < 0 ? -errno : 0;
}

static void conn_destroy(struct log_conn *k)
{
	struct log_verbs *v = k->v;

	if (k->id && k->id->qp) {
		(void)rdma_disconnect(k->id);
		rdma_destroy_qp(k->id);
	}
	if (k->id)
		(void)rdma_destroy_id(k->id);
	if (k->scratch_mr)
		(void)ibv_dereg_mr(k->scratch_mr);
	if (k->dev)
		k->dev->conn_count--;
	core_lock(v->c);
	while (k->done != k->posted)
		post_forget(k);
	v->places[k->place] = NULL;
	log_put(k->lf);
	core_unlock(v->c);
	free(k);
}

/* Lock held. */
static void conn_tell(struct log_conn *k)
{
	struct log_file *lf = k->lf;

	k->state = CONN_CLOSED;
	log_link_lost(lf, k->peer, k->again, k->why);
}

/* One that its connection's device does not know yet. Lock held. */
static struct log_mirror *mirror_unknown(struct log_verbs *v, struct vdev **d)
{
	for (struct log_conn *k = v->conns; k; k = k->next) {
		const struct log_writer *w = &k->lf->w;

		if (!k->dev || k->state == CONN_CLOSED || k->dev->gone)
			continue;
		*d = k->dev;
		for (uint32_t i = 0; i < w->region_count; i++) {
			uint8_t *base = w->regions[i].base;

			if (!log_mirror_of(base)->mr[k->dev->index])
				return log_mirror_of(base);
		}
	}
	return NULL;
}

/* To make memory known takes as long as to touch all of it: so that is done
 * here, without the lock, and before the first post from there. */
static void mirror_make_known(struct log_verbs *v)
{
	struct log_mirror *m;
	struct ibv_mr *mr;
	struct vdev *d;

	core_lock(v->c);
	m = mirror_unknown(v, &d);
	if (m)
		m->refs++;
	core_unlock(v->c);
	if (!m)
		return;
	mr = mirror_reg(m, d);
	core_lock(v->c);
	if (mr && m->mr[d->index])
		(void)ibv_dereg_mr(mr);
	else
		m->mr[d->index] = mr;
	log_mirror_put(m);
	core_unlock(v->c);
	if (mr)
		kick(v); /* there may be another */
}

/* What others have asked for, and what time brings. */
static void work(struct log_verbs *v)
{
	uint64_t now_ms = core_now_ms();
	struct log_conn **at, *k, *start = NULL, *end = NULL;

	core_lock(v->c);
	v->waits_due_ms = UINT64_MAX;
	for (k = v->conns; k; k = k->next) {
		if (k->state == CONN_WAITS && now_ms >= k->due_ms)
			conn_break(k, false, "no answer");
		if (k->state == CONN_NEW && v->none)
			conn_break(k, false, "no RDMA device");
		if (k->state == CONN_BROKEN)
			conn_tell(k);
	}
	for (at = &v->conns; (k = *at);) {
		if (k->state == CONN_CLOSED) {
			*at = k->next;
			k->next = end;
			end = k;
			continue;
		}
		if (k->state == CONN_NEW && !start) {
			k->state = CONN_WAITS;
			k->due_ms = now_ms + CONNECT_MS;
			start = k;
		} else if (k->state == CONN_NEW) {
			kick(v); /* the next time */
		}
		if (k->state == CONN_WAITS)
			v->waits_due_ms = u64_min(v->waits_due_ms, k->due_ms);
		at = &k->next;
	}
	core_unlock(v->c);
	while ((k = end)) {
		end = k->next;
		conn_destroy(k);
	}
	if (start && conn_start(start) < 0) {
		core_lock(v->c);
		conn_break(start, false, "its address cannot be resolved");
		core_unlock(v->c);
	}
	mirror_make_known(v);
}

/* ---- the manager's events; the thread ---- */

static void mirrors_release(struct log_verbs *v, const struct vdev *d)
{
	struct dlist *n, *save;

	dlist_for(n, save, &v->c->log->files) {
		const struct log_file *lf =
			dlist_entry(n, struct log_file, node);

		for (uint32_t i = 0; i < lf->w.region_count; i++) {
			struct log_mirror *m =
				log_mirror_of(lf->w.regions[i].base);

			if (m->mr[d->index])
				(void)ibv_dereg_mr(m->mr[d->index]);
			m->mr[d->index] = NULL;
		}
	}
}

static void dev_removed(struct log_verbs *v, struct vdev *d)
{
	if (d->gone)
		return;
	diag_warn("log", "event=rdma_device_removed device=%s "
		  "action=\"logs go on over TCP\"",
		  ibv_get_device_name(d->verbs->device));
	core_lock(v->c);
	d->gone = true;
	for (struct log_conn *k = v->conns; k; k = k->next)
		if (k->dev == d)
			conn_break(k, false, "its device is gone");
	core_unlock(v->c);
	work(v);
	core_lock(v->c);
	mirrors_release(v, d);
	core_unlock(v->c);
	vdev_close(d);
}

/* What is wrong with a queue pair its completions need not tell. */
static void dev_events(struct log_verbs *v, struct vdev *d)
{
	struct ibv_async_event e;
	bool removed = false;

	while (ibv_get_async_event(d->verbs, &e) == 0) {
		enum ibv_event_type type = e.event_type;

		diag_warn("log", "event=rdma_event device=%s what=\"%s\"",
			  ibv_get_device_name(d->verbs->device),
			  ibv_event_type_str(type));
		core_lock(v->c);
		if (type == IBV_EVENT_QP_FATAL ||
		    type == IBV_EVENT_QP_REQ_ERR ||
		    type == IBV_EVENT_QP_ACCESS_ERR)
			conn_break(e.element.qp->qp_context, true,
				   "its queue pair has failed");
		core_unlock(v->c);
		removed |= type == IBV_EVENT_DEVICE_FATAL ||
			   type == IBV_EVENT_CQ_ERR;
		/* Nothing is destroyed while an event of it is out. */
		ibv_ack_async_event(&e);
	}
	if (removed)
		dev_removed(v, d);
}

static void conn_event(struct log_conn *k, enum rdma_cm_event_type type)
{
	struct log_verbs *v = k->v;
	bool up = false;
	int rv = 0;

	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rv = conn_route(k);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rv = conn_connect(k);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		up = true;
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (k->dev)
			dev_removed(v, k->dev);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	default:
		rv = -ECONNREFUSED;
		break;
	}
	core_lock(v->c);
	if (rv < 0) {
		conn_break(k, k->state == CONN_UP, rdma_event_str(type));
	} else if (up && k->state == CONN_WAITS) {
		k->state = CONN_UP;
		log_link_connected(k->lf, k->peer);
	}
	core_unlock(v->c);
}

static void manager_events(struct log_verbs *v)
{
	struct rdma_cm_event *e;

	while (v->channel && rdma_get_cm_event(v->channel, &e) == 0) {
		struct log_conn *k = e->id->context;
		enum rdma_cm_event_type type = e->event;

		/* An id is not destroyed while an event of it is out. */
		(void)rdma_ack_cm_event(e);
		conn_event(k, type);
	}
}

/* ---- the thread ---- */

static bool spin_allowed(struct log_verbs *v)
{
	if (v->spin_us == 0 || atomic_load(&v->in_flight) == 0)
		return false;
	if (v->credit > 0)
		return true;
	if (++v->skipped < SPIN_SKIP)
		return false;
	v->skipped = 0;
	return true;
}

/* Stays awake for a short time; stops trying where that does not pay. */
static bool spin(struct log_verbs *v)
{
	uint64_t end_ns = clock_now_ns(CLOCK_MONOTONIC) + v->spin_us * 1000u;

	do {
		if (poll_devs(v)) {
			if (v->credit < SPIN_CREDIT_MAX)
				v->credit++;
			return true;
		}
		if (atomic_load(&v->kicked))
			return true;
		sched_yield();
	} while (clock_now_ns(CLOCK_MONOTONIC) < end_ns);
	if (v->credit > 0)
		v->credit--;
	return false;
}

static void wait_events(struct log_verbs *v, bool block)
{
	struct pollfd p[2 + 2 * LOG_VERBS_DEV_MAX];
	struct vdev *of[2 + 2 * LOG_VERBS_DEV_MAX];
	uint64_t now_ms = core_now_ms(), drop;
	nfds_t count = 2;
	int timeout_ms = -1;

	p[0] = (struct pollfd){ .fd = v->wake_fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = v->channel ? v->channel->fd : -1,
				.events = POLLIN };
	for (uint32_t i = 0; i < v->dev_count; i++) {
		if (v->devs[i]->gone)
			continue;
		/* A completion before this is found by the poll below, one
		 * after it wakes us; of later posts look_after() sees to it. */
		if (block && atomic_load(&v->in_flight) > 0)
			(void)ibv_req_notify_cq(v->devs[i]->cq, 0);
		of[count] = of[count + 1] = v->devs[i];
		p[count++] = (struct pollfd){
			.fd = v->devs[i]->channel->fd, .events = POLLIN };
		p[count++] = (struct pollfd){
			.fd = v->devs[i]->verbs->async_fd, .events = POLLIN };
	}
	if (!block || poll_devs(v) || atomic_load(&v->kicked))
		timeout_ms = 0;
	else if (v->waits_due_ms != UINT64_MAX)
		timeout_ms = now_ms >= v->waits_due_ms ?
				     0 : (int)(v->waits_due_ms - now_ms);
	v->events_ms = now_ms;
	if (poll(p, count, timeout_ms) <= 0)
		return;
	if (p[0].revents && read(v->wake_fd, &drop, sizeof(drop)) < 0)
		p[0].revents = 0; /* somebody's wake-up was merged */
	for (nfds_t i = 2; i < count; i += 2) {
		struct ibv_cq *cq;
		void *ctx;

		if (p[i].revents &&
		    ibv_get_cq_event(of[i]->channel, &cq, &ctx) == 0)
			ibv_ack_cq_events(cq, 1);
		if (p[i + 1].revents)
			dev_events(v, of[i]);
	}
	if (p[1].revents)
		manager_events(v);
}

static void verbs_begin(struct log_verbs *v)
{
	v->channel = rdma_create_event_channel();
	if (v->channel) {
		if (vdev_nonblocking(v->channel->fd) == 0)
			return;
		rdma_destroy_event_channel(v->channel);
		v->channel = NULL;
	}
	core_lock(v->c);
	v->none = true;
	core_unlock(v->c);
}

static void *verbs_thread(void *arg)
{
	struct log_verbs *v = arg;
	uint32_t count;

	verbs_begin(v);
	while (!atomic_load(&v->stop)) {
		bool any = poll_devs(v);

		if (atomic_exchange(&v->kicked, false) ||
		    core_now_ms() >= v->waits_due_ms)
			work(v);
		if (!any && spin_allowed(v))
			any = spin(v);
		if (!any || core_now_ms() - v->events_ms >= EVENTS_MS)
			wait_events(v, !any);
	}
	work(v);
	core_lock(v->c);
	count = v->dev_count;
	v->dev_count = 0;
	for (uint32_t i = 0; i < count; i++)
		mirrors_release(v, v->devs[i]);
	core_unlock(v->c);
	for (uint32_t i = 0; i < count; i++) {
		vdev_close(v->devs[i]);
		free(v->devs[i]);
	}
	if (v->channel)
		rdma_destroy_event_channel(v->channel);
	return NULL;
}

void log_verbs_stop(struct core *c)
{
	struct log_verbs *v = c->log ? c->log->verbs : NULL;

	if (!v)
		return;
	core_lock(c);
	v->none = true;
	for (struct log_conn *k = v->conns; k; k = k->next) {
		struct log_link *l = &k->lf->links[k->peer];

		k->state = CONN_CLOSED;
		if (l->conn != k)
			continue;
		l->conn = NULL;
		l->xport = NULL;
		l->connecting = true; /* for ever */
	}
	core_unlock(c);
	atomic_store(&v->stop, true);
	atomic_store(&v->kicked, false);
	kick(v);
	(void)pthread_join(v->thread, NULL);
	assert(!v->conns);
	close(v->wake_fd);
	free(v->places);
	free(v);
	c->log->verbs = NULL;
}
