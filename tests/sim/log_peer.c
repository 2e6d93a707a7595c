/* Peers: what logd does around lend. */
#include "tests/sim/log_world.h"

#define MEMORY (PEER_REGIONS << LOG2)

/* lend_log.user: the connection of a log. */
static void *conn_user(uint32_t conn)
{
	return (void *)(uintptr_t)conn;
}

static int on_grant(void *arg, struct lend_log *g, struct lend_region *r)
{
	(void)arg;
	(void)g;
	r->addr = (uintptr_t)r->base;
	return 0;
}

static void on_end(void *arg, struct lend_log *g)
{
	(void)arg;
	g->user = conn_user(0);
}

void peer_start(struct world *w, struct peer *p)
{
	static const struct lend_ops ops = { .grant = on_grant, .end = on_end };
	struct lend_options o = { .pool = &p->pool,
				  .cluster_id = CLUSTER,
				  .log_max = 64,
				  .ino_max = 64,
				  .ops = &ops };

	p->boot_id = ++w->tag;
	memset(p->dead, 0, sizeof(p->dead));
	p->damaged = 0;
	p->memory = calloc(1, MEMORY);
	if (!p->memory || lend_pool_init(&p->pool, p->memory, MEMORY) < 0 ||
	    lend_new(&o, &p->lend) < 0)
		abort();
	registry_logd(w, p->id, p->boot_id);
}

void peer_stop(struct peer *p)
{
	lend_free(p->lend);
	lend_pool_fini(&p->pool);
	free(p->memory);
	msgs_clear(&p->late);
	p->asked.epoch = 0;
}

bool peer_lost(struct world *w, struct log_writer_peer_id id)
{
	struct peer *p = &w->peers[id.id];
	const struct lend_log *g;

	if (p->boot_id != id.boot_id)
		return true;
	g = lend_find(p->lend, w->reg.ino, w->reg.entry.data_epoch);
	return (g && g->given_up) || p->damaged == w->reg.entry.data_epoch;
}

void peer_damage(struct world *w, struct peer *p)
{
	struct lend_log *g =
		lend_find(p->lend, w->reg.ino, w->history.data_epoch);
	const struct lend_region *r;
	struct log_rec rec;
	uint32_t end;
	int64_t size;
	uint64_t at;

	if (!g || g->region_count == 0)
		return;
	r = lend_region_at(g, (uint32_t)world_rnd(w, g->region_count));
	end = r->end;
	while (end < 1u << LOG2 &&
	       (size = log_rec_decode(r->base + end, (1u << LOG2) - end,
				      &rec)) > 0)
		end += (uint32_t)size;
	if (end == LOG_DATA_OFF)
		return;
	at = LOG_DATA_OFF + world_rnd(w, end - LOG_DATA_OFF);
	if (world_chance(w, 2))
		at = r->newest * LOG_SLOT_SIZE + world_rnd(w, LOG_SLOT_SIZE);
	r->base[at] ^= (uint8_t)(1u << world_rnd(w, 8));
	p->damaged = g->epoch;
	w->n.damaged++;
}

void peer_reclaim(struct world *w, struct peer *p)
{
	lend_set_now(p->lend, w->now);
	lend_drain(p->lend, w->now);
	w->n.reclaims += lend_expire(p->lend) > 0;
	lend_drain_end(p->lend);
}

/* Asks metad about what it has not heard of; and, later, does what it said. */
void peer_collect(struct world *w, struct peer *p)
{
	const struct reg_entry *e = &w->reg.entry;

	lend_set_now(p->lend, w->now);
	if (p->asked.epoch) {
		lend_judge(p->lend, p->asked.ino, p->asked.epoch, p->verdict);
		p->asked.epoch = 0;
		return;
	}
	if (lend_ask(p->lend, 50, &p->asked, 1) == 0)
		return;
	p->verdict = META_LOG_UNLISTED;
	if (!e->there || e->data_epoch != p->asked.epoch)
		p->verdict = META_LOG_UNKNOWN;
	for (uint32_t i = 0; i < w->listed; i++)
		if (e->there && e->peers[i].id == p->id &&
		    e->peers[i].boot_id == p->boot_id &&
		    p->verdict == META_LOG_UNLISTED)
			p->asked.epoch = 0;
	/* What it knows of sessions is as new as the verdict. */
	for (uint64_t i = 1; i <= w->session; i++)
		p->dead[i] = !registry_live(w, i);
}

static int fence(struct world *w, struct peer *p, struct msg *m)
{
	struct log_fence f = { .ino = w->reg.ino,
			       .epoch = m->epoch,
			       .data_epoch = m->data_epoch };
	const struct lend_log *g;
	struct wire_out o;
	int err = lend_fence(p->lend, &f, &g);

	if (err < 0)
		return err;
	m->held = !g	      ? LOG_HELD_NONE :
		  g->given_up ? LOG_HELD_GIVEN_UP :
		  lend_is_torn(g) ? LOG_HELD_TORN : LOG_HELD;
	w->n.torn += m->held == LOG_HELD_TORN;
	m->count = g ? g->region_count : 0;
	m->data = malloc((size_t)(m->count + 1) * 160);
	if (!m->data)
		abort();
	wire_out_init(&o, m->data, (size_t)(m->count + 1) * 160);
	for (uint32_t i = 0; i < m->count; i++) {
		const struct lend_region *r = lend_region_at(g, i);
		struct log_region d = { .index = r->index, .log2 = r->log2 };

		d.slots.p = r->base;
		d.slots.len = LOG_SLOT_COUNT * LOG_SLOT_SIZE;
		log_region_encode(&o, &d);
	}
	m->len = (uint32_t)o.len;
	return 0;
}

static int read_region(const struct world *w, struct peer *p, struct msg *m)
{
	struct log_read r = { .ino = w->reg.ino,
			      .epoch = m->epoch,
			      .data_epoch = m->data_epoch,
			      .index = m->index,
			      .off = m->off,
			      .len = m->len };
	const uint8_t *data;
	int err = lend_read(p->lend, &r, &data);

	if (err < 0)
		return err;
	m->data = malloc(m->len);
	if (!m->data)
		abort();
	memcpy(m->data, data, m->len);
	return 0;
}

static int write_region(const struct world *w, struct peer *p, struct msg *m)
{
	struct log_write r = { .ino = w->reg.ino,
			       .epoch = m->epoch,
			       .data_epoch = m->data_epoch,
			       .index = m->index,
			       .off = m->off };

	r.slot.p = m->slot;
	r.slot.len = LOG_SLOT_SIZE;
	return lend_write(p->lend, m->session, &r, m->data, m->len);
}

static int connect_log(const struct world *w, struct peer *p,
		       const struct msg *m)
{
	struct lend_log *g;
	int err = lend_writer_log(p->lend, m->session, w->reg.ino, m->epoch,
				  &g);

	if (err == 0)
		g->user = conn_user(m->conn);
	return err;
}

/* The daemon has no part in it: a connection that was not ended has its writes
 * in order, to regions that are open; with the first that fails it is over.
 * @late: its other end is gone, and the last one may come in part. */
static int write_afar(struct world *w, struct peer *p, const struct msg *m,
		      bool late)
{
	struct lend_log *g = lend_find(p->lend, w->reg.ino, m->data_epoch);
	const struct lend_region *r = NULL;
	uint64_t len = m->len;

	if (!g || g->user != conn_user(m->conn))
		return -EPIPE;
	for (uint32_t i = 0; i < g->region_count; i++)
		if (lend_region_at(g, i)->index == m->index)
			r = lend_region_at(g, i);
	if (!r || !r->open || w->arrived[m->conn] != m->number) {
		g->user = conn_user(0);
		return -EPIPE;
	}
	w->arrived[m->conn]++;
	if (late && world_chance(w, 3)) {
		g->user = conn_user(0);
		len = world_rnd(w, len + 1);
	}
	memcpy(r->base + m->off, m->data, len);
	if (m->post.slot_due && g->user)
		memcpy(r->base + m->post.slot_off, m->slot, LOG_SLOT_SIZE);
	return 0;
}

static int alloc_region(const struct world *w, struct peer *p,
			const struct msg *m)
{
	struct log_alloc r = { .ino = w->reg.ino,
			       .epoch = m->epoch,
			       .data_epoch = m->data_epoch,
			       .index = m->index,
			       .log2 = LOG2,
			       .flags = w->afar && m->epoch == m->data_epoch ?
						LOG_ALLOC_VERBS : 0 };
	const struct lend_region *got;

	return lend_alloc(p->lend, m->session, &r, &got);
}

static int free_regions(const struct world *w, struct peer *p,
			const struct msg *m)
{
	struct log_free r = { .ino = w->reg.ino,
			      .epoch = m->epoch,
			      .data_epoch = m->data_epoch,
			      .below = m->index };

	return lend_release(p->lend, &r);
}

void peer_execute(struct world *w, struct peer *p, struct msg *m, bool late)
{
	lend_set_now(p->lend, w->now);
	m->boot_id = p->boot_id;
	if (m->kind == MSG_AFAR) {
		m->err = write_afar(w, p, m, late);
		free(m->data);
		m->data = NULL;
		return;
	}
	if (p->dead[m->session]) {
		m->err = -ESTALE;
		return;
	}
	switch (m->kind) {
	case MSG_ALLOC:
		m->err = alloc_region(w, p, m);
		break;
	case MSG_WRITE:
		m->err = write_region(w, p, m);
		free(m->data);
		m->data = NULL;
		break;
	case MSG_FENCE:
		m->err = fence(w, p, m);
		break;
	case MSG_READ:
		m->err = read_region(w, p, m);
		break;
	case MSG_FREE:
		m->err = free_regions(w, p, m);
		break;
	case MSG_CONNECT:
		m->err = connect_log(w, p, m);
		break;
	case MSG_AFAR:
		break;
	}
}
