/* hailctl local status: each process of a local cluster. */
#include "tools/hailctl/local.h"

#include <unistd.h>

#include "common/json_bytes.h"

static const char *const role_words[] = { "metadata", "blocks", "logs",
					  "client" };

/* What the daemon says of itself; an object in any case. */
static json_t *daemon_status(struct local *l, const struct local_proc *p,
			     bool *answers)
{
	json_t *o = NULL;
	struct link link;

	*answers = false;
	if (p->pid && link_open(l->c, local_kind(p), p->d, &link) == 0) {
		*answers = link_json(&link, WIRE_OP_ADMIN_STATUS, &o) == 0;
		link_close(&link);
	}
	return *answers ? o : json_object();
}

/* Fills what we know better than the process. Returns true when it serves. */
static bool proc_status(struct local *l, const struct local_proc *p,
			json_t **ret)
{
	enum mount_state mount;
	bool answers = false;
	char addr[CMAP_ADDR_LEN_MAX + 8];
	const char *state = "stopped";
	json_t *o;

	if (p->role == LOCAL_MOUNT) {
		mount = local_mount_state(l->mnt, p->pid);
		answers = mount == MOUNT_LIVE;
		state = mount_word(mount);
		o = json_object();
	} else {
		o = daemon_status(l, p, &answers);
		snprintf(addr, sizeof(addr), "%s:%u", p->d->addr, p->d->port);
		if (answers)
			state = json_text(o, "state", "running");
		else if (p->pid)
			state = "does not answer";
	}
	json_object_set_new(o, "name", json_string(p->name));
	json_object_set_new(o, "program", json_string(p->program));
	json_object_set_new(o, "pid", p->pid ? json_integer(p->pid) :
					       json_null());
	json_object_set_new(o, "address",
			    json_bytes(p->d ? addr : l->mnt));
	json_object_set_new(o, "role",
			    json_string(json_text(o, "role",
						  role_words[p->role])));
	json_object_set_new(o, "state", json_string(state));
	json_object_set_new(o, "log", json_bytes(p->log));
	*ret = o;
	return answers;
}

static void print_table(json_t *list)
{
	static const char *const columns[] = { "NAME", "PROGRAM", "PID",
					       "ADDRESS", "ROLE", "STATE" };
	struct table *t = table_new(columns, array_count(columns));
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o) {
		char pid[16] = "-";

		if (json_u64(o, "pid"))
			snprintf(pid, sizeof(pid), "%llu",
				 (unsigned long long)json_u64(o, "pid"));
		table_row(t, (const char *[]){
			json_text(o, "name", ""), json_text(o, "program", ""),
			pid, json_text(o, "address", ""),
			json_text(o, "role", ""), json_text(o, "state", "") });
	}
	table_print_free(t);
}

int cmd_local_status(struct ctl *c, char **args)
{
	json_t *list = json_array(), *o;
	struct local_proc *v;
	struct local l;
	uint32_t count = 0, good = 0;

	if (!local_open(c, args[0], false, &l) || !local_load(&l)) {
		json_decref(list);
		return CTL_FAILED;
	}
	v = local_procs(&l, &count);
	for (uint32_t i = 0; v && i < count; i++) {
		good += proc_status(&l, &v[i], &o);
		json_array_append_new(list, o);
	}
	free(v);
	if (c->o.json) {
		out_json(json_pack("{s:o,s:o,s:o}", "dir", json_bytes(l.dir),
				   "cluster", json_bytes(l.conf), "processes",
				   list));
	} else {
		print_table(list);
		json_decref(list);
	}
	if (good == count && count > 0)
		return CTL_OK;
	return good ? CTL_PARTLY : CTL_FAILED;
}
