/* The registry: metad's state machine. */
#include "tests/sim/log_world.h"

void registry_begin(struct world *w)
{
	struct registry *g = &w->reg;

	sm_client_init(&g->admin);
	require(w, sm_client_file(&g->admin, ROOT_INO, "log") == 0, "a file");
	g->ino = g->admin.attr.ino;
	/* Who creates a file has its lease. */
	require(w,
		sm_client_give_back(&g->admin, g->ino, META_RETURN_LEASE) == 0,
		"its lease");
}

void registry_end(struct world *w)
{
	sm_client_fini(&w->reg.admin);
}

bool registry_live(struct world *w, uint64_t session)
{
	return cmap_session_live(sm_map(w->reg.admin.sm), session);
}

void registry_expire(struct world *w, uint64_t session)
{
	uint8_t step = registry_live(w, session) ? 1 : 2;

	if (w->reg.gone[session])
		return;
	w->reg.gone[session] = step == 2;
	require(w, sm_client_close(&w->reg.admin, session, step) == 0,
		"the end of a session");
}

void registry_logd(struct world *w, uint32_t id, uint64_t boot_id)
{
	w->reg.boot_id[id] = boot_id;
	require(w, sm_client_logd(&w->reg.admin, id, boot_id) == 0,
		"a registration");
}

/* What there is now. */
static void look(struct world *w)
{
	struct reg_entry *e = &w->reg.entry;
	struct sm_log l;

	*e = (struct reg_entry){ 0 };
	if (!sm_log_find(w->reg.admin.sm, w->reg.ino, &l))
		return;
	*e = (struct reg_entry){ .there = true,
				 .epoch = l.epoch,
				 .data_epoch = l.data_epoch,
				 .session = l.session,
				 .version = l.version };
	require(w, l.peer_count == w->listed, "peers of an entry");
	for (uint32_t i = 0; i < w->listed; i++)
		e->peers[i] = (struct log_writer_peer_id){ l.peers[i].id,
							   l.peers[i].boot_id };
}

static int set(struct world *w, struct client *c)
{
	struct reg_call *k = &c->call;
	struct meta_log_peer peers[LISTED_MAX];
	int err;

	for (uint32_t i = 0; i < w->listed; i++)
		peers[i] = (struct meta_log_peer){ k->peers[i].id,
						   k->peers[i].boot_id };
	err = sm_client_log_set(&c->metad, w->reg.ino, k->epoch, k->version,
				peers, w->listed);
	if (err == 0 && k->epoch == 0)
		history_begin(w, c->metad.log.data_epoch);
	return err;
}

static int execute(struct world *w, struct client *c)
{
	struct reg_call *k = &c->call;
	int err;

	switch (k->kind) {
	case REG_LEASE:
		return sm_client_lease(&c->metad, w->reg.ino);
	case REG_SET:
		return set(w, c);
	case REG_RAISE:
		return sm_client_log_raise(&c->metad, w->reg.ino);
	case REG_DROP:
		err = sm_client_log_drop(&c->metad, w->reg.ino, k->epoch);
		if (err == 0 && w->reg.entry.there && w->history.data_epoch)
			history_drop(w);
		return err;
	case REG_NONE:
		break;
	}
	abort();
}

void registry_execute(struct world *w, struct client *c)
{
	c->call.err = execute(w, c);
	look(w);
	c->call.entry = w->reg.entry;
	c->call.done = true;
}
