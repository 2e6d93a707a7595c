/* Connections to the block daemons and calls to all of them. */
#include "metad/drive.h"

#include <inttypes.h>
#include <pthread.h>

#include "common/diag.h"

#define RETRY_MS 500u
#define TICK_MS 100u
#define AWAITED_LOG_MS 5000u

struct fan_call {
	struct rpc_call rpc;
	struct fan *fan;
	struct drive *drive;
	uint32_t daemon_id;
	/* from rpc's thread to the loop */
	int status;
	struct rpc_frame *frame;
	struct fan_call *next;
	uint64_t due_ms; /* of the next try */
};

struct drive_peer {
	uint32_t id;
	struct rpc_peer *peer; /* NULL: no store there */
	char addr[CMAP_ADDR_LEN_MAX + 1];
	uint16_t port;
	uint64_t awaited_ms; /* when that was said last; 0: never */
};

struct drive {
	struct metad *md;
	struct rpc_net *net;
	uv_async_t async;
	uv_timer_t timer; /* runs while a call waits for its next try */
	pthread_mutex_t lock; /* protects answered */
	struct fan_call *answered;
	struct fan_call *again;
	struct drive_peer *peers;
	uint32_t peer_count;
	bool peers_missing; /* one could not be made */
};

/* ---- rpc's thread ---- */

static void call_answered(struct rpc_call *rpc, int status,
			  const struct rpc_frame *f)
{
	struct fan_call *c = container_of(rpc, struct fan_call, rpc);
	struct drive *d = c->drive;

	c->status = status;
	c->frame = status == 0 && f ? rpc_take_frame(f) : NULL;
	pthread_mutex_lock(&d->lock);
	c->next = d->answered;
	d->answered = c;
	pthread_mutex_unlock(&d->lock);
	(void)uv_async_send(&d->async);
}

/* ---- the loop ---- */

static struct drive_peer *peer_find(struct drive *d, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < d->peer_count; i++)
		if (d->peers[i].id == id)
			return &d->peers[i];
	return NULL;
}

bool drive_is_up(struct drive *d, uint32_t daemon_id)
{
	const struct drive_peer *p = peer_find(d, daemon_id);

	return p && p->peer && rpc_peer_is_up(p->peer);
}

static void on_tick(uv_timer_t *t);

static void call_again(struct fan_call *c, uint64_t delay_ms)
{
	struct drive *d = c->drive;

	/* It may have been executed, or another store answers by then. */
	c->fan->unsure = true;
	c->due_ms = uv_now(&d->md->loop) + delay_ms;
	c->next = d->again;
	d->again = c;
	if (!uv_is_active((uv_handle_t *)&d->timer))
		(void)uv_timer_start(&d->timer, on_tick, TICK_MS, TICK_MS);
}

static uint8_t daemon_state(struct drive *d, uint32_t id)
{
	const struct cmap *map = sm_map(d->md->sm);
	int i = cmap_find_daemon(map, id);

	return i < 0 ? CMAP_STATE_NEW : map->daemons[i].state;
}

static void call_send(struct fan_call *c)
{
	struct fan *f = c->fan;
	struct drive_peer *p = peer_find(c->drive, c->daemon_id);

	if (!p || !p->peer) {
		/* It could not be made, or its map is not durable yet. */
		call_again(c, RETRY_MS);
		return;
	}
	memset(&c->rpc, 0, sizeof(c->rpc));
	c->rpc.opcode = f->op;
	c->rpc.flags = RPC_F_RETRY;
	c->rpc.timeout_ms = f->timeout_ms;
	c->rpc.body = f->body;
	c->rpc.body_len = f->body_len;
	c->rpc.cb = call_answered;
	rpc_send(p->peer, &c->rpc);
}

static void call_done(struct fan_call *c)
{
	struct fan *f = c->fan;

	if (--f->pending)
		return;
	free(f->calls);
	f->calls = NULL;
	f->done(f);
}

/* Says who is waited for, unless only deleted blocks wait: they take space, and
 * keep nobody out. */
static void say_awaited(struct fan_call *c)
{
	struct drive_peer *p = peer_find(c->drive, c->daemon_id);
	uint64_t now = uv_now(&c->drive->md->loop);

	if (!p || c->fan->excused || c->fan->op == WIRE_OP_BLK_PURGE ||
	    (p->awaited_ms && now - p->awaited_ms < AWAITED_LOG_MS))
		return;
	p->awaited_ms = now;
	diag_err("drive", "event=store-awaited blockd=%" PRIu32 " op=%u "
		 "what=\"block daemon %" PRIu32 " runs with another store or "
		 "an older copy; truncations, and a mount after a crash, wait "
		 "for the right one: start it with the data directory it had, "
		 "or, if that is gone for good, hailctl blockd give-up %" PRIu32
		 "\"", c->daemon_id, c->fan->op, c->daemon_id, c->daemon_id);
}

/* A call that is due. The store of a lost daemon may come back as it was, with
 * all that it was not told meanwhile: so what runs in its place is not asked,
 * and it is waited for. */
static void call_due(struct fan_call *c)
{
	struct fan *f = c->fan;
	uint8_t state = daemon_state(c->drive, c->daemon_id);

	if (state == CMAP_STATE_UP) {
		/* Who is known to be away need not be tried. */
		if (f->excused && !drive_is_up(c->drive, c->daemon_id) &&
		    f->excused(f, c->daemon_id))
			call_done(c);
		else
			call_send(c);
	} else if (state == CMAP_STATE_NEW) {
		f->unsure = true;
		call_done(c);
	} else if (f->excused && f->excused(f, c->daemon_id)) {
		call_done(c);
	} else {
		say_awaited(c);
		call_again(c, RETRY_MS);
	}
}

static void on_tick(uv_timer_t *t)
{
	struct drive *d = t->data;
	struct fan_call *c = d->again, *next;
	uint64_t now = uv_now(&d->md->loop);

	d->again = NULL;
	if (d->peers_missing)
		drive_map_changed(d);
	for (; c; c = next) {
		next = c->next;
		if (c->due_ms > now) {
			c->next = d->again;
			d->again = c;
		} else {
			call_due(c);
		}
	}
	if (!d->again)
		(void)uv_timer_stop(&d->timer);
}

static void call_judge(struct fan_call *c)
{
	struct fan *f = c->fan;
	int rv = c->status;

	if (c->daemon_id == 0) {
		call_done(c);
		return;
	}
	/* It may have answered when its store was the wrong one already. */
	if (rv == 0 &&
	    daemon_state(c->drive, c->daemon_id) != CMAP_STATE_UP)
		rv = -ECANCELED;
	if (rv == 0 && f->reply) {
		rv = f->reply(f, c->daemon_id, c->frame);
		if (rv < 0)
			diag_warn("drive", "event=bad-answer blockd=%" PRIu32
				  " op=%u error=%d", c->daemon_id, f->op, -rv);
	} else if (rv < 0 && rv != -ECANCELED) {
		diag_warn("drive", "event=call-failed blockd=%" PRIu32
			  " op=%u error=%d", c->daemon_id, f->op, -rv);
	}
	if (c->frame)
		rpc_frame_free(c->frame);
	c->frame = NULL;
	if (c->rpc.resent)
		f->unsure = true;
	if (rv == 0 || (f->excused && f->excused(f, c->daemon_id))) {
		call_done(c);
		return;
	}
	call_again(c, rv == -ETIMEDOUT || rv == -ECANCELED ? 0 : RETRY_MS);
}

static void on_answers(uv_async_t *a)
{
	struct drive *d = a->data;
	struct fan_call *c, *next, *list = NULL;

	pthread_mutex_lock(&d->lock);
	c = d->answered;
	d->answered = NULL;
	pthread_mutex_unlock(&d->lock);
	/* In the order of the answers. */
	for (; c; c = next) {
		next = c->next;
		c->next = list;
		list = c;
	}
	for (c = list; c; c = next) {
		next = c->next;
		d->md->activity++;
		call_judge(c);
	}
}

static struct fan_call *call_init(struct fan *f, uint32_t daemon_id)
{
	struct fan_call *c = &f->calls[f->call_count++];

	c->fan = f;
	c->drive = f->md->drive;
	c->daemon_id = daemon_id;
	f->pending++;
	return c;
}

int fan_start(struct metad *md, struct fan *f)
{
	struct drive *d = md->drive;
	const struct cmap *map = sm_map(md->sm);
	struct fan_call *c;
	uint32_t i;

	f->md = md;
	f->pending = f->call_count = 0;
	f->unsure = false;
	f->calls = calloc(map->daemon_count + 1, sizeof(*f->calls));
	if (!f->calls)
		return -ENOMEM;
	c = call_init(f, 0);
	for (i = 0; i < map->daemon_count; i++)
		if (map->daemons[i].state != CMAP_STATE_NEW)
			(void)call_init(f, map->daemons[i].id);
	/* All are counted before one is sent. */
	for (i = 1; i < f->call_count; i++)
		call_due(&f->calls[i]);
	/* Call 0 stands for the start itself: f->done does not run before
	 * return, also when nobody is to be asked. */
	pthread_mutex_lock(&d->lock);
	c->next = d->answered;
	d->answered = c;
	pthread_mutex_unlock(&d->lock);
	(void)uv_async_send(&d->async);
	return 0;
}

void fan_drop(struct fan *f)
{
	free(f->calls);
	f->calls = NULL;
}

/* ---- connections ---- */

static const struct rpc_peer_ops peer_ops = { .up = NULL };

static void peer_update(struct drive *d, struct drive_peer *p,
			const struct cmap_daemon *m)
{
	bool wanted = m->state == CMAP_STATE_UP;
	int rv;

	if (p->peer && (!wanted || p->port != m->port ||
			strcmp(p->addr, m->addr) != 0)) {
		rpc_peer_close(p->peer);
		p->peer = NULL;
	}
	if (p->peer || !wanted)
		return;
	(void)snprintf(p->addr, sizeof(p->addr), "%s", m->addr);
	p->port = m->port;
	rv = rpc_peer_new(d->net, p->addr, p->port, &peer_ops, d, &p->peer);
	if (rv < 0) {
		p->peer = NULL;
		d->peers_missing = true;
		diag_err("drive", "event=no-peer blockd=%" PRIu32
			 " addr=%s port=%u error=%d", p->id, p->addr, p->port,
			 -rv);
	}
}

void drive_map_changed(struct drive *d)
{
	const struct cmap *map = sm_map(d->md->sm);
	struct drive_peer *p, *peers;
	uint32_t i;

	d->peers_missing = false;
	rpc_set_epoch(d->net, d->md->epoch);
	for (i = 0; i < map->daemon_count; i++) {
		p = peer_find(d, map->daemons[i].id);
		if (!p) {
			peers = realloc(d->peers, (d->peer_count + 1) *
							  sizeof(*peers));
			if (!peers) {
				d->peers_missing = true;
				return;
			}
			d->peers = peers;
			p = &peers[d->peer_count++];
			memset(p, 0, sizeof(*p));
			p->id = map->daemons[i].id;
		}
		peer_update(d, p, &map->daemons[i]);
	}
}

/* ---- life ---- */

int drive_new(struct metad *md, struct drive **ret)
{
	struct rpc_identity id = { .role = WIRE_ROLE_METAD,
				   .peer_id = md->self->id,
				   .cluster_id = md->cluster_id,
				   .name = "hail-metad",
				   .gate = md->conf->gate };
	struct drive *d = calloc(1, sizeof(*d));
	int rv;

	if (!d)
		return -ENOMEM;
	d->md = md;
	pthread_mutex_init(&d->lock, NULL);
	rv = uv_async_init(&md->loop, &d->async, on_answers);
	if (rv == 0)
		rv = uv_timer_init(&md->loop, &d->timer);
	if (rv < 0) {
		free(d);
		return rv;
	}
	d->async.data = d;
	d->timer.data = d;
	rv = rpc_net_new(&id, &d->net);
	if (rv < 0)
		return rv; /* the program ends with it */
	*ret = d;
	return 0;
}

void drive_stop(struct drive *d)
{
	if (d->net)
		rpc_net_free(d->net);
	d->net = NULL;
	uv_close((uv_handle_t *)&d->async, NULL);
	uv_close((uv_handle_t *)&d->timer, NULL);
}

void drive_free(struct drive *d)
{
	if (!d)
		return;
	pthread_mutex_destroy(&d->lock);
	free(d->peers);
	free(d);
}
