/* The protocol of the logs under chaos, from seeds: writers that die, sleep and
 * come back; peers that restart empty, lag, are cut off in one direction, take
 * memory back; connections that break and lose or delay what is in them;
 * replacements at any time; recoveries that are killed, begin again and race.
 *
 * Method: one event a step, drawn from the seed. What was acknowledged has to
 * be in the blocks when the log goes, in order, with nothing behind it but the
 * next ones; a log is said to be lost only when a majority of its peers has
 * lost it (tests/sim/log_world.h: history). At the end faults cease, and the
 * log must come to its end in bounded time.
 *
 * HAIL_SEED=n runs one seed, LOG_SEEDS=n that many from 1.
 */
#include "tests/sim/log_world.h"

#include <time.h>

#define SEEDS 3000u
#define STEPS_MIN 1000000u
#define BUDGET_S 40 /* of what comes behind them, where machines are slow */
#define STEPS 3000u
#define CALM_STEPS 60000u

/* Seeds that find what a rule is for when it is taken out (tests/mutants), and
 * that found faults of the product and of its plan. */
static const uint64_t known[] = {
	2, 30, 32, 536, 734, 1169, 3525, 17954, 18859, 19869, 120437, 378370,
};

uint64_t world_rnd(struct world *w, uint64_t below)
{
	w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
	return (w->rng >> 33) % below;
}

bool world_chance(struct world *w, uint64_t one_of)
{
	return world_rnd(w, one_of) == 0;
}

void world_fail(struct world *w, const char *why)
{
	printf("not ok - seed %llu, step %llu: %s\n",
	       (unsigned long long)w->seed, (unsigned long long)w->now, why);
	printf("# HAIL_SEED=%llu repeats it\n", (unsigned long long)w->seed);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		const struct client *c = &w->clients[i];

		printf("# client %u: mode %d, phase %d, call %d, seq %llu, "
		       "committed %llu, answered %llu%s\n",
		       i, (int)c->mode, (int)c->r.phase, (int)c->call.kind,
		       (unsigned long long)c->writer.seq,
		       (unsigned long long)c->writer.committed,
		       (unsigned long long)c->answered,
		       registry_live(w, c->session) ? "" : ", dead");
		for (uint32_t j = 0; c->writer_there && j < LOG_WRITER_PEER_MAX;
		     j++) {
			const struct log_writer_peer *p = &c->writer.peers[j];

			printf("#   peer %u: state %d, %u%u, acked %llu, "
			       "posts %u, again %u, lent %u, region %u of "
			       "%u+%u\n",
			       p->id, (int)p->state, p->in_old, p->in_new,
			       (unsigned long long)p->acked.seq, p->post_count,
			       p->again_count, p->alloc_next, p->sent.index,
			       c->writer.region_first, c->writer.region_count);
		}
		for (uint32_t j = 0; c->mode == CLIENT_RECOVER && j < w->listed;
		     j++)
			printf("#   answer of %u: %d, seq %llu\n",
			       c->r.entry.peers[j].id,
			       (int)c->r.answers[j].state,
			       (unsigned long long)c->r.answers[j].seq);
	}
	fflush(stdout);
	exit(1);
}

/* ---- events ---- */

static struct client *any_client(struct world *w)
{
	return &w->clients[world_rnd(w, CLIENTS)];
}

/* Rather one that has something to do. */
static struct client *busy_client(struct world *w)
{
	struct client *c = any_client(w);

	for (uint32_t i = 0; i < 4 && c->mode < CLIENT_LOG; i++)
		c = any_client(w);
	return c;
}

static struct peer *any_peer(struct world *w)
{
	return &w->peers[1 + world_rnd(w, PEERS)];
}

/* What came over a connection that is gone. */
static void deliver_late(struct world *w, struct peer *p)
{
	uint64_t at = world_chance(w, 4) ? world_rnd(w, p->late.count) : 0;
	struct msg *m = msgs_take(&p->late, (uint32_t)at);

	if (!world_chance(w, 4))
		peer_execute(w, p, m, true);
	msg_free(m);
}

/* Some requests to a peer, or replies from it. */
static void deliver_some(struct world *w, struct client *c, struct peer *p)
{
	struct link *l = &c->links[p->id];
	uint64_t times = 1 + world_rnd(w, 4);

	for (; times > 0 && l->to.count > 0 && !p->paused && !l->deaf;
	     times--) {
		struct msg *m = msgs_take(&l->to, 0);

		peer_execute(w, p, m, false);
		msgs_put(&l->from, m);
	}
	if (world_chance(w, 3))
		return;
	times = 1 + world_rnd(w, 4);
	for (; times > 0 && l->from.count > 0 && !l->mute && !c->paused;
	     times--)
		client_reply(w, c, p->id, msgs_take(&l->from, 0));
}

static void deliver(struct world *w)
{
	uint64_t first = world_rnd(w, CLIENTS * PEERS);
	struct peer *p = any_peer(w);

	if (p->late.count > 0 && !p->paused && world_chance(w, 8)) {
		deliver_late(w, p);
		return;
	}
	for (uint64_t i = 0; i < CLIENTS * PEERS; i++) {
		uint64_t at = (first + i) % (CLIENTS * PEERS);
		struct client *c = &w->clients[at / PEERS];
		struct link *l = &c->links[1 + at % PEERS];

		if (l->to.count + l->from.count == 0)
			continue;
		deliver_some(w, c, &w->peers[1 + at % PEERS]);
		return;
	}
}

static void peer_restart(struct world *w, struct peer *p)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_break(w, &w->clients[i], p->id);
	peer_stop(p);
	peer_start(w, p);
	w->n.restarts++;
}

/* Sessions of those who died, or who seem so. */
static void expire(struct world *w)
{
	struct client *c = any_client(w);

	if (!w->calm && c->mode != CLIENT_DEAD &&
	    (c->paused || world_chance(w, 8)))
		registry_expire(w, c->session);
	for (uint64_t s = 1; s <= w->session; s++) {
		bool dead = true;

		for (uint32_t i = 0; i < CLIENTS; i++)
			dead &= w->clients[i].session != s ||
				w->clients[i].mode == CLIENT_DEAD ||
				!registry_live(w, s);
		if (dead && s != w->reg.admin.session)
			registry_expire(w, s);
	}
}

static void client_die(struct world *w, struct client *c)
{
	client_kill(w, c);
	w->n.kills++;
}

static void fault(struct world *w)
{
	struct client *c = any_client(w);
	struct peer *p = any_peer(w);
	struct link *l = &c->links[p->id];

	switch (world_rnd(w, 40)) {
	case 0:
		if (world_chance(w, w->mood & MOOD_KILLS ? 1 : 3))
			client_die(w, c);
		break;
	case 1:
		if (world_chance(w, 8))
			peer_restart(w, p);
		break;
	case 2:
		if (world_chance(w, 20))
			peer_reclaim(w, p);
		break;
	case 3:
	case 4:
		c->paused = !c->paused && world_chance(w, 6);
		break;
	case 5:
	case 6:
		p->paused = !p->paused && world_chance(w, 6);
		break;
	case 7:
		l->deaf = !l->deaf && world_chance(w, 6);
		break;
	case 8:
		l->mute = !l->mute && world_chance(w, 6);
		break;
	case 9:
	case 10:
		client_break(w, c, p->id);
		break;
	case 11:
	case 12:
		expire(w);
		break;
	case 13:
		peer_collect(w, p);
		break;
	case 14:
	case 15:
		p->paused |= !!(w->mood & MOOD_LAGS);
		break;
	case 16:
	case 17:
		if (w->mood & MOOD_EXPIRES)
			expire(w);
		break;
	case 18:
		if (world_chance(w, 20))
			peer_damage(w, p);
		break;
	default:
		break;
	}
}

static void metad_act(struct world *w, struct client *c)
{
	if (c->call.kind != REG_NONE && !c->call.done)
		registry_execute(w, c);
}

static void step(struct world *w)
{
	struct client *c = busy_client(w);
	uint64_t what = world_rnd(w, 100);

	w->now++;
	w->n.steps++;
	if (what < 40)
		deliver(w);
	else if (what < 45)
		metad_act(w, c);
	else if (what < 50 && c->mode == CLIENT_DEAD)
		client_start(w, c);
	else if (what < 94 && !c->paused)
		client_act(w, c);
	else if (!w->calm)
		fault(w);
	else if (world_chance(w, 2))
		expire(w);
	else
		peer_collect(w, any_peer(w));
}

/* ---- a run ---- */

static void world_begin(struct world *w)
{
	registry_begin(w);
	for (uint32_t id = 1; id <= PEERS; id++) {
		w->peers[id].id = id;
		peer_start(w, &w->peers[id]);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		w->clients[i].index = i;
		client_start(w, &w->clients[i]);
	}
}

/* Nothing fails any more; one client goes on. */
static void world_calm(struct world *w)
{
	w->calm = true;
	for (uint32_t id = 1; id <= PEERS; id++)
		w->peers[id].paused = false;
	for (uint32_t i = 0; i < CLIENTS; i++) {
		struct client *c = &w->clients[i];

		for (uint32_t id = 1; id <= PEERS; id++)
			c->links[id].deaf = c->links[id].mute = false;
		c->paused = false;
		if (i == 0)
			continue;
		client_kill(w, c);
	}
}

static void world_end(struct world *w)
{
	for (uint32_t i = 0; i < CLIENTS; i++)
		client_kill(w, &w->clients[i]);
	for (uint32_t id = 1; id <= PEERS; id++)
		peer_stop(&w->peers[id]);
	registry_end(w);
}

static void run_seed(uint64_t seed, struct counts *sum)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->seed = seed;
	w->rng = seed * 0x9e3779b97f4a7c15u + 1;
	w->mood = (uint32_t)world_rnd(w, 16);
	w->listed = world_chance(w, 4) ? LISTED_MAX : 3;
	w->afar = seed % 3 == 1;
	world_begin(w);
	while (w->now < STEPS)
		step(w);
	world_calm(w);
	while (w->reg.entry.there) {
		require(w, w->now < STEPS + CALM_STEPS, "comes to no end");
		step(w);
	}
	world_end(w);
	for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		((uint64_t *)sum)[i] += ((const uint64_t *)&w->n)[i];
	free(w);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : otherwise;
}

int main(void)
{
	uint64_t count = number("LOG_SEEDS", SEEDS);
	struct counts n = { 0 };
	time_t began = time(NULL);

	if (getenv("HAIL_SEED")) {
		run_seed(number("HAIL_SEED", 0), &n);
		count = 0;
	}
	for (size_t i = 0; count && i < array_count(known); i++)
		run_seed(known[i], &n);
	for (uint64_t seed = 1; seed <= count; seed++) {
		if (!getenv("LOG_SEEDS") && n.steps >= STEPS_MIN &&
		    time(NULL) - began > BUDGET_S)
			break;
		run_seed(seed, &n);
	}
	printf("ok - %llu steps: %llu acknowledged, %llu failed, %llu logs, "
	       "%llu recoveries, %llu staged, %llu lost\n",
	       (unsigned long long)n.steps, (unsigned long long)n.acked,
	       (unsigned long long)n.failed, (unsigned long long)n.logs,
	       (unsigned long long)n.recoveries, (unsigned long long)n.staged,
	       (unsigned long long)n.lost);
	printf("# %llu kills, %llu restarts, %llu replaced, %llu reclaims, "
	       "%llu past the log, %llu fenced, %llu regions trimmed, "
	       "%llu bits turned, %llu torn\n",
	       (unsigned long long)n.kills, (unsigned long long)n.restarts,
	       (unsigned long long)n.replaced, (unsigned long long)n.reclaims,
	       (unsigned long long)n.fallbacks, (unsigned long long)n.zombies,
	       (unsigned long long)n.trimmed, (unsigned long long)n.damaged,
	       (unsigned long long)n.torn);
	return 0;
}
