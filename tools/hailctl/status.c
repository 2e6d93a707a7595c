/* hailctl status, stats, sessions: what daemons say of themselves. */
#include "tools/hailctl/ctl.h"

#include "common/json_bytes.h"
#include "common/proto.h"

static const char *const shown[] = { "program", "id", "name", "state", "epoch",
				     "uptime_ms", "address", "boot_id",
				     "error", NULL };

/* A store that stopped or was refused answers, but not for what it is there;
 * metadata that are older than the stores miss files. */
static bool serves(const struct link *l, json_t *doc)
{
	const char *state = json_text(doc, "state", "?");

	if (strcmp(state, "read-only") != 0 && strcmp(state, "refused") != 0 &&
	    strcmp(state, "older") != 0)
		return true;
	ctl_err("%s is %s: %s", link_name(l), state,
		json_text(doc, "error", "see its log"));
	return false;
}

/* The daemon's document, or one that says why there is none. */
static json_t *daemon_doc(struct link *l, struct links *ls)
{
	char addr[CMAP_ADDR_LEN_MAX + 8];
	json_t *o = NULL;
	int rv = l->error;

	if (rv == 0) {
		rv = link_json(l, WIRE_OP_ADMIN_STATUS, &o);
		if (rv < 0 || !serves(l, o))
			ls->failed++;
	}
	if (rv < 0)
		o = json_pack("{s:s,s:I,s:s,s:s}", "program",
			      daemon_program(l->kind),
			      "id", (json_int_t)l->d->id, "state",
			      "unreachable", "error", strerror(-rv));
	snprintf(addr, sizeof(addr), "%s:%u", l->d->addr, l->d->port);
	json_object_set_new(o, "address", json_string(addr));
	return o;
}

static void print_daemons(json_t *list)
{
	static const char *const columns[] = { "DAEMON", "ADDRESS", "STATE",
					       "EPOCH", "UPTIME", "DETAILS" };
	struct table *t = table_new(columns, array_count(columns));
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o) {
		const char *program = json_text(o, "program", "?");
		char name[64], epoch[24], up[32], details[512];
		char ours[PROTO_TEXT_SIZE];

		/* Of those that are of another release only. */
		if (strcmp(json_text(o, "protocol", ""),
			   proto_ours_text(ours)) == 0)
			json_object_del(o, "protocol");

		snprintf(name, sizeof(name), "%s %llu",
			 strncmp(program, "hail-", 5) == 0 ? program + 5 :
							     program,
			 (unsigned long long)json_u64(o, "id"));
		snprintf(epoch, sizeof(epoch), "%llu",
			 (unsigned long long)json_u64(o, "epoch"));
		if (json_object_get(o, "uptime_ms"))
			out_duration(json_u64(o, "uptime_ms"), up, sizeof(up));
		else
			snprintf(up, sizeof(up), "-");
		if (json_text(o, "error", NULL))
			snprintf(details, sizeof(details), "%s",
				 json_text(o, "error", ""));
		else
			out_details(o, shown, details, sizeof(details));
		table_row(t, (const char *[]){
			name, json_text(o, "address", ""),
			json_text(o, "state", "?"), epoch, up, details });
	}
	table_print_free(t);
}

/* Who lends memory to logs, as metad sees it; nothing when nobody does. */
static void print_logds(json_t *daemons)
{
	static const char *const columns[] = { "LENDER", "ADDRESS", "STATE",
					       "FREE", "TOTAL", "DOMAIN" };
	json_t *list = json_object_get(json_array_get(daemons, 0), "logds");
	struct table *t;
	json_t *o;
	size_t i;

	if (json_array_size(list) == 0)
		return;
	t = table_new(columns, array_count(columns));
	json_array_foreach(list, i, o) {
		bool up = json_is_true(json_object_get(o, "up"));
		char id[16], addr[CMAP_ADDR_LEN_MAX + 8], free_text[32];
		char total[32];

		snprintf(id, sizeof(id), "logd %llu",
			 (unsigned long long)json_u64(o, "id"));
		snprintf(addr, sizeof(addr), "%s:%llu",
			 json_text(o, "addr", "?"),
			 (unsigned long long)json_u64(o, "port"));
		out_size(json_u64(o, "bytes_free"), free_text,
			  sizeof(free_text));
		out_size(json_u64(o, "bytes_total"), total, sizeof(total));
		table_row(t, (const char *[]){
			id, addr, !up ? "down" :
			json_is_true(json_object_get(o, "draining")) ?
			"draining" : "up", free_text, total,
			json_text(o, "domain", "") });
	}
	putchar('\n');
	table_print_free(t);
}

/* The list inside a sessions document. */
static json_t *session_list(json_t *doc)
{
	json_t *list = json_object_get(doc, "sessions");

	return json_is_array(list) ? list : json_is_array(doc) ? doc : NULL;
}

static void print_sessions(json_t *doc)
{
	static const char *const columns[] = { "SESSION", "HOST", "MOUNTPOINT",
					       "STATE", "DETAILS" };
	static const char *const skip[] = { "session", "id", "host",
					    "mountpoint", "state", "status",
					    NULL };
	static const char *const none[] = { NULL };
	struct table *t = table_new(columns, array_count(columns));
	json_t *list = session_list(doc), *o;
	size_t i;

	json_array_foreach(list, i, o) {
		char id[24], details[1024], mount[512];
		json_t *status = json_object_get(o, "status");

		snprintf(id, sizeof(id), "%llu",
			 (unsigned long long)(json_object_get(o, "session") ?
					      json_u64(o, "session") :
					      json_u64(o, "id")));
		out_details(o, skip, details, sizeof(details));
		if (json_is_object(status)) {
			size_t len = strlen(details);

			out_details(status, none, mount, sizeof(mount));
			snprintf(details + len, sizeof(details) - len, "%s%s",
				 len && *mount ? " " : "", mount);
		}
		table_row(t, (const char *[]){
			id, json_text(o, "host", "?"),
			json_text(o, "mountpoint", "?"),
			json_text(o, "state", "open"), details });
	}
	table_print_free(t);
}

/* Returns a new reference; NULL after a message. */
static json_t *sessions_get(struct link *metad)
{
	json_t *doc;
	int rv = link_json(metad, WIRE_OP_ADMIN_SESSIONS, &doc);

	if (rv == 0)
		return doc;
	ctl_err("%s: sessions: %s", link_name(metad), strerror(-rv));
	return NULL;
}

int cmd_status(struct ctl *c, char **args)
{
	json_t *list = json_array(), *sessions = NULL, *known;
	struct links ls;
	int code;

	(void)args;
	if (links_open_all(c, &ls) < 0)
		return CTL_FAILED;
	for (uint32_t i = 0; i < ls.count; i++)
		json_array_append_new(list, daemon_doc(&ls.v[i], &ls));
	if (ls.count > 0 && ls.v[0].error == 0 && !ls.no_leader)
		sessions = sessions_get(&ls.v[0]);
	known = session_list(sessions);
	if (c->o.json) {
		out_json(json_pack("{s:s,s:o,s:o,s:O}", "name",
				   c->conf.name ? c->conf.name : "",
				   "cluster_file", json_bytes(c->conf_path),
				   "daemons", list, "sessions",
				   known ? known : json_null()));
	} else {
		printf("cluster %s, id %#llx\n\n",
		       c->conf.name ? c->conf.name : "(unnamed)",
		       (unsigned long long)c->conf.cluster_id);
		print_daemons(list);
		print_logds(list);
		json_decref(list);
		if (sessions) {
			putchar('\n');
			print_sessions(sessions);
		}
	}
	json_decref(sessions);
	for (uint32_t i = 0; i < ls.count; i++)
		if (ls.v[i].error)
			link_complain(&ls.v[i]);
	if (ls.no_leader)
		ctl_err("no metad leads: more than half of them have to run "
			"and to reach each other");
	code = links_exit(&ls);
	links_close(&ls);
	return code;
}

int cmd_sessions(struct ctl *c, char **args)
{
	struct links ls;
	struct link *metad;
	json_t *doc = NULL;

	(void)args;
	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad)
		doc = sessions_get(metad);
	links_close(&ls);
	if (!doc)
		return CTL_FAILED;
	if (c->o.json) {
		out_json(doc);
	} else {
		print_sessions(doc);
		json_decref(doc);
	}
	return CTL_OK;
}

/* "a.b.c value" lines. */
static void print_flat(const char *prefix, json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach(o, key, v) {
		char name[512];
		char *text;

		snprintf(name, sizeof(name), "%s.%s", prefix, key);
		if (json_is_object(v)) {
			print_flat(name, v);
			continue;
		}
		text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		printf("%s %s\n", name, text ? text : "?");
		free(text);
	}
}

int cmd_stats(struct ctl *c, char **args)
{
	json_t *all = json_object(), *o;
	struct links ls;
	int code, rv;

	(void)args;
	if (links_open_all(c, &ls) < 0)
		return CTL_FAILED;
	for (uint32_t i = 0; i < ls.count; i++) {
		struct link *l = &ls.v[i];
		char key[32];

		if (l->error) {
			link_complain(l);
			continue;
		}
		rv = link_json(l, WIRE_OP_ADMIN_STATS, &o);
		if (rv < 0) {
			ctl_err("%s: stats: %s", link_name(l), strerror(-rv));
			ls.failed++;
			continue;
		}
		snprintf(key, sizeof(key), "%s%u", daemon_word(l->kind),
			 l->d->id);
		json_object_set_new(all, key, o);
	}
	if (c->o.json) {
		out_json(all);
	} else {
		const char *key;

		json_object_foreach(all, key, o)
			print_flat(key, o);
		json_decref(all);
	}
	code = links_exit(&ls);
	links_close(&ls);
	return code;
}
