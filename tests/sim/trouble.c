/* Faults around an operation: before it something is held or will get lost,
 * under way somebody dies or a connection breaks, then all is let go.
 */
#include "tests/sim/world.h"

void trouble_begin(struct world *w)
{
	struct mini_blockd *b = w->x.b[world_rnd(w, SIM_BLOCKDS)];
	static const uint16_t ops[] = { 0, WIRE_OP_BLK_WRITE, WIRE_OP_BLK_SYNC,
					WIRE_OP_BLK_READ };
	uint16_t op = ops[world_rnd(w, 4)];
	uint64_t what = world_rnd(w, 8);

	w->all_held = what == 7;
	world_say(w, "  trouble %u op %u", (unsigned)what, op);
	w->faults++;
	if (what == 7)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_hold(w->x.b[i], op, true);
	else if (what == 0)
		mini_blockd_hold(b, op, true);
	else if (what == 1)
		mini_blockd_hold_replies(b, op, true);
	else if (what == 2)
		mini_blockd_lose_replies(b, op, 1 + (int)world_rnd(w, 2));
	else if (what == 3)
		mini_metad_lose_replies(w->x.m, 0, 1 + (int)world_rnd(w, 2));
	else if (what == 4)
		mini_metad_hold_replies(w->x.m, 0, true);
	else
		mini_metad_hold_durable(w->x.m, true);
}

void trouble_restart_metad(struct world *w, bool lose)
{
	w->forgetful |= lose;
	mini_metad_restart(w->x.m, lose);
}

void trouble_strike(struct world *w)
{
	struct mini_blockd *b = w->x.b[world_rnd(w, SIM_BLOCKDS)];
	uint64_t what = w->all_held && world_rnd(w, 2) ? 6 : world_rnd(w, 8);

	sim_pause((unsigned)world_rnd(w, 3000));
	world_say(w, "  strike %u", (unsigned)what);
	if (what < 2)
		mini_blockd_restart(b, true);
	else if (what == 2)
		mini_blockd_drop(b);
	else if (what == 3)
		trouble_restart_metad(w, true);
	else if (what == 4)
		mini_metad_drop(w->x.m);
	else if (what == 5)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_restart(w->x.b[i], true);
	else if (what == 6)
		for (uint32_t i = 0; i < SIM_BLOCKDS; i++)
			mini_blockd_drop_late(w->x.b[i]);
	else
		return;
	sim_pause((unsigned)world_rnd(w, 2000));
}

void trouble_end(struct world *w)
{
	for (uint32_t i = 0; i < SIM_BLOCKDS; i++) {
		mini_blockd_hold(w->x.b[i], 0, false);
		mini_blockd_hold_replies(w->x.b[i], 0, false);
		mini_blockd_lose_replies(w->x.b[i], 0, 0);
	}
	mini_metad_hold_replies(w->x.m, 0, false);
	mini_metad_hold_durable(w->x.m, false);
	mini_metad_lose_replies(w->x.m, 0, 0);
}

int trouble_finish(struct world *w, struct sim_call *k, struct meta_attr *a,
		   bool trouble)
{
	int err;

	if (trouble) {
		trouble_strike(w);
		trouble_end(w);
	}
	if (!sim_call_wait(k, CALL_MS))
		world_lost(w, "an operation hangs");
	err = k->err;
	if (a)
		*a = k->attr;
	sim_call_free(k);
	return err;
}

bool trouble_maybe(struct world *w)
{
	bool yes = world_rnd(w, 4) == 0;

	if (yes)
		trouble_begin(w);
	return yes;
}
