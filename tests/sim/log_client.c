/* Clients: connections, sessions, who may write. */
#include "tests/sim/log_world.h"

/* ---- connections ---- */

void client_send(struct client *c, uint32_t id, struct msg *m)
{
	m->session = c->session;
	m->epoch = c->epoch;
	assert(c->links[id].up);
	msgs_put(&c->links[id].to, m);
}

/* May the writer use this peer? A recovery uses those that have confirmed. */
static bool usable(const struct client *c, uint32_t peer)
{
	return c->mode != CLIENT_RECOVER ||
	       c->r.answers[peer].state == LOG_ANSWER_CONFIRMED;
}

/* A daemon ends the older connection of a session before it answers on a new
 * one. Of what came over it only this matters: the peer may be listed again. */
static void late_end(struct world *w, const struct client *c, struct peer *p)
{
	struct msgs keep = { NULL, 0 };

	while (p->late.count > 0) {
		struct msg *m = msgs_take(&p->late, 0);

		if (m->kind != MSG_FREE || m->index != LOG_FREE_ALL ||
		    m->session != c->session) {
			msgs_put(&keep, m);
			continue;
		}
		if (world_chance(w, 2))
			peer_execute(w, p, m, true);
		msg_free(m);
	}
	p->late = keep;
}

void client_connect(struct world *w, struct client *c, uint32_t id)
{
	struct link *l = &c->links[id];
	struct peer *p = &w->peers[id];

	if (l->up || p->paused || l->deaf || l->mute)
		return;
	late_end(w, c, p);
	l->up = true;
	l->conn = 0;
	l->conn_up = false;
	for (uint32_t i = 0; c->writer_there && i < LOG_WRITER_PEER_MAX; i++)
		if (c->writer.peers[i].state != LOG_PEER_UNUSED &&
		    c->writer.peers[i].id == id && usable(c, i))
			log_writer_up(&c->writer, i, p->boot_id);
}

void client_break(struct world *w, struct client *c, uint32_t id)
{
	struct link *l = &c->links[id];
	uint64_t received;

	if (!l->up)
		return;
	l->up = false;
	for (received = world_rnd(w, l->to.count + 1); received > 0; received--)
		msgs_put(&w->peers[id].late, msgs_take(&l->to, 0));
	msgs_clear(&l->to);
	msgs_clear(&l->from);
	for (uint32_t i = 0; i < w->listed; i++)
		if (c->mode == CLIENT_RECOVER && c->r.entry.peers[i].id == id)
			c->r.asked[i] = false;
	if (c->mode == CLIENT_RECOVER && c->r.phase == RECOVER_READ &&
	    c->r.entry.peers[c->r.chosen].id == id)
		c->r.phase = RECOVER_FENCE;
	for (uint32_t i = 0; c->writer_there && i < LOG_WRITER_PEER_MAX; i++)
		if (c->writer.peers[i].state != LOG_PEER_UNUSED &&
		    c->writer.peers[i].id == id)
			log_writer_down(&c->writer, i);
}

static void pump_one(struct world *w, struct client *c, uint32_t peer)
{
	struct log_writer *v = &c->writer;
	uint32_t id = v->peers[peer].id, index;
	bool afar = w->afar && c->mode != CLIENT_RECOVER;
	struct link *l = &c->links[id];
	struct log_post post;
	struct msg *m;

	while (log_writer_free_next(v, peer, &index)) {
		m = msg_new(MSG_FREE);
		m->index = index;
		m->peer = peer;
		m->data_epoch = v->epoch;
		client_send(c, id, m);
	}
	if (log_writer_alloc_next(v, peer, &index)) {
		m = msg_new(MSG_ALLOC);
		m->index = index;
		m->peer = peer;
		m->data_epoch = v->epoch;
		client_send(c, id, m);
	}
	if (afar && !l->conn && v->peers[peer].alloc_next > 0) {
		require(w, w->conn + 1 < CONNS_MAX, "a larger CONNS_MAX");
		l->conn = ++w->conn;
		l->conn_writes = 0;
		m = msg_new(MSG_CONNECT);
		m->peer = peer;
		m->conn = l->conn;
		m->data_epoch = v->epoch;
		client_send(c, id, m);
	}
	while ((!afar || l->conn_up) && log_writer_post_next(v, peer, &post)) {
		m = msg_new(afar ? MSG_AFAR : MSG_WRITE);
		m->conn = l->conn;
		m->number = afar ? l->conn_writes++ : 0;
		m->index = post.index;
		m->off = post.off;
		m->len = post.len;
		memcpy(m->slot, post.slot, sizeof(m->slot));
		m->data = malloc(post.len);
		if (!m->data)
			abort();
		memcpy(m->data, post.data, post.len);
		m->peer = peer;
		m->post = post;
		m->data_epoch = v->epoch;
		client_send(c, id, m);
	}
}

void client_pump(struct world *w, struct client *c)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &c->writer.peers[i];

		if (p->state == LOG_PEER_DOWN && !c->links[p->id].up &&
		    usable(c, i))
			client_connect(w, c, p->id);
		if (p->state == LOG_PEER_UP)
			pump_one(w, c, i);
	}
}

void client_free_one(struct client *c, uint32_t id, uint64_t data_epoch)
{
	struct msg *m;

	if (!c->links[id].up)
		return;
	m = msg_new(MSG_FREE);
	m->index = LOG_FREE_ALL;
	m->data_epoch = data_epoch;
	client_send(c, id, m);
}

void client_free_all(struct client *c, uint64_t data_epoch)
{
	for (uint32_t id = 1; id <= PEERS; id++)
		client_free_one(c, id, data_epoch);
}

void client_reply(struct world *w, struct client *c, uint32_t id, struct msg *m)
{
	if (c->mode == CLIENT_RECOVER)
		recover_reply(w, c, id, m);
	else if (c->writer_there)
		writer_reply(w, c, id, m);
	msg_free(m);
}

/* ---- life ---- */

bool client_call(struct client *c, enum reg_kind kind)
{
	if (c->call.kind != REG_NONE)
		return false;
	memset(&c->call, 0, sizeof(c->call));
	c->call.kind = kind;
	c->call.epoch = c->epoch;
	return true;
}

void client_start(struct world *w, struct client *c)
{
	memset(&c->metad, 0, sizeof(c->metad));
	sm_client_join(&c->metad, w->reg.admin.sm);
	c->session = c->metad.session;
	w->session = u64_max(w->session, c->session);
	require(w, w->session < SESSIONS_MAX, "a larger SESSIONS_MAX");
	c->mode = CLIENT_IDLE;
	c->epoch = 0;
	c->paused = false;
}

void client_forget(struct client *c)
{
	if (!c->writer_there)
		return;
	for (uint32_t i = 0; i < c->writer.region_count; i++)
		free(c->writer.regions[i].base);
	log_writer_fini(&c->writer);
	c->writer_there = false;
}

void client_kill(struct world *w, struct client *c)
{
	if (c->mode == CLIENT_DEAD)
		return;
	for (uint32_t id = 1; id <= PEERS; id++)
		client_break(w, c, id);
	/* What was under way to metad may arrive. */
	if (c->call.kind != REG_NONE && !c->call.done && world_chance(w, 2))
		registry_execute(w, c);
	c->call.kind = REG_NONE;
	client_forget(c);
	recover_end(c);
	sm_client_leave(&c->metad);
	c->mode = CLIENT_DEAD;
}

void client_fenced(struct world *w, struct client *c)
{
	w->n.zombies++;
	client_kill(w, c);
}

static void idle_act(struct world *w, struct client *c)
{
	if (!c->call.done) {
		(void)client_call(c, REG_LEASE);
		return;
	}
	c->call.kind = REG_NONE;
	c->call.done = false;
	if (c->call.err == -ESTALE)
		client_fenced(w, c);
	else if (c->call.entry.there &&
		 !registry_live(w, c->call.entry.session))
		recover_begin(w, c);
	else if (c->call.err == 0)
		c->mode = CLIENT_READY;
}

static void ready_act(struct world *w, struct client *c)
{
	struct log_writer_peer_id *ids = c->call.peers;

	if (c->call.kind == REG_NONE) {
		c->epoch = 0;
		if (w->calm || !client_call(c, REG_SET))
			return;
		for (uint32_t i = 0, id = (uint32_t)world_rnd(w, PEERS);
		     i < w->listed; i++, id++) {
			ids[i].id = id % PEERS + 1;
			ids[i].boot_id = w->reg.boot_id[ids[i].id];
		}
		return;
	}
	if (!c->call.done)
		return;
	c->call.kind = REG_NONE;
	c->call.done = false;
	if (c->call.err) {
		if (c->call.err != -ENXIO)
			client_fenced(w, c);
		return;
	}
	log_writer_init(&c->writer, CLUSTER, w->reg.ino, c->call.entry.epoch,
			c->call.entry.version, LOG2, ids, w->listed,
			(uint64_t)w->blocks.len * CELL);
	c->writer_there = true;
	c->epoch = c->call.entry.epoch;
	c->answered = c->settled = 0;
	c->image = w->blocks;
	memset(c->dirty, 0, sizeof(c->dirty));
	c->mode = CLIENT_LOG;
	for (uint32_t id = 1; id <= PEERS; id++)
		client_break(w, c, id);
}

void client_act(struct world *w, struct client *c)
{
	switch (c->mode) {
	case CLIENT_DEAD:
		break;
	case CLIENT_IDLE:
		idle_act(w, c);
		break;
	case CLIENT_READY:
		ready_act(w, c);
		break;
	case CLIENT_LOG:
	case CLIENT_END:
		writer_act(w, c);
		break;
	case CLIENT_RECOVER:
		recover_act(w, c);
		break;
	}
}
