/* hailctl map: the cluster map, who has which share of the slots. */
#include "tools/hailctl/ctl.h"

#include "common/cmap.h"
#include "common/json_bytes.h"

static const char *state_word(uint8_t state)
{
	switch (state) {
	case CMAP_STATE_NEW:
		return "new";
	case CMAP_STATE_UP:
		return "up";
	case CMAP_STATE_LOST:
		return "lost";
	default:
		return "?";
	}
}

static void count_slots(const struct cmap *m, uint32_t *counts)
{
	for (uint32_t s = 0; s < SLOT_COUNT; s++)
		for (uint32_t r = 0; r < REPLICA_COUNT_MAX; r++)
			if (m->slots[s][r] != CMAP_SLOT_NONE)
				counts[m->slots[s][r]]++;
}

static json_t *daemon_json(const struct cmap_daemon *d, uint32_t slots)
{
	char store[40];

	snprintf(store, sizeof(store), "%016llx%016llx",
		 (unsigned long long)d->store_id_hi,
		 (unsigned long long)d->store_id_lo);
	return json_pack("{s:I,s:o,s:I,s:s,s:s,s:I}", "id", (json_int_t)d->id,
			 "addr", json_bytes(d->addr), "port",
			 (json_int_t)d->port, "state", state_word(d->state),
			 "store", store, "slots", (json_int_t)slots);
}

/* For each slot the ids of its daemons, first the one that is written to. */
static json_t *slots_json(const struct cmap *m)
{
	json_t *all = json_array();

	for (uint32_t s = 0; s < SLOT_COUNT; s++) {
		json_t *ids = json_array();

		for (uint32_t r = 0; r < REPLICA_COUNT_MAX; r++) {
			uint16_t i = m->slots[s][r];

			if (i != CMAP_SLOT_NONE)
				json_array_append_new(ids, json_integer(
					(json_int_t)m->daemons[i].id));
		}
		json_array_append_new(all, ids);
	}
	return all;
}

static void print_json(const struct cmap *m, const uint32_t *counts)
{
	json_t *daemons = json_array(), *sessions = json_array();

	for (uint32_t i = 0; i < m->daemon_count; i++)
		json_array_append_new(daemons, daemon_json(&m->daemons[i],
							   counts[i]));
	for (uint32_t i = 0; i < m->session_count; i++)
		json_array_append_new(sessions, json_integer(
			(json_int_t)m->sessions[i]));
	out_json(json_pack("{s:I,s:I,s:o,s:o,s:o}", "epoch",
			   (json_int_t)m->epoch, "replicas",
			   (json_int_t)m->replica_count, "blockds", daemons,
			   "sessions", sessions, "slots", slots_json(m)));
}

static void print_table(const struct cmap *m, const uint32_t *counts)
{
	static const char *const columns[] = { "BLOCKD", "ADDRESS", "STATE",
					       "SLOTS", "SHARE" };
	struct table *t = table_new(columns, array_count(columns));

	printf("epoch %llu, %u slots, %u %s of each block\n\n",
	       (unsigned long long)m->epoch, SLOT_COUNT, m->replica_count,
	       m->replica_count == 1 ? "copy" : "copies");
	for (uint32_t i = 0; i < m->daemon_count; i++) {
		const struct cmap_daemon *d = &m->daemons[i];
		char id[16], addr[CMAP_ADDR_LEN_MAX + 8], slots[16], share[16];

		snprintf(id, sizeof(id), "%u", d->id);
		snprintf(addr, sizeof(addr), "%s:%u", d->addr, d->port);
		snprintf(slots, sizeof(slots), "%u", counts[i]);
		snprintf(share, sizeof(share), "%.1f%%",
			 100.0 * counts[i] / SLOT_COUNT);
		table_row(t, (const char *[]){
			id, addr, state_word(d->state), slots, share });
	}
	table_print_free(t);
}

int cmd_map(struct ctl *c, char **args)
{
	struct links ls;
	struct link *metad;
	struct cmap *map = NULL;
	uint32_t *counts = NULL;
	int rv, code = CTL_FAILED;

	(void)args;
	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad) {
		rv = meta_map(metad, &map);
		if (rv < 0)
			ctl_err("%s: map: %s", link_name(metad), strerror(-rv));
	}
	links_close(&ls);
	if (!map)
		return CTL_FAILED;
	counts = calloc(map->daemon_count + 1, sizeof(*counts));
	if (counts) {
		count_slots(map, counts);
		if (c->o.json)
			print_json(map, counts);
		else
			print_table(map, counts);
		code = CTL_OK;
	}
	cmap_free(map);
	free(counts);
	return code;
}
