/* hailctl locks, leases, evict: what mounts hold, and taking it from one. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <unistd.h>

#include "common/json_bytes.h"

#define EVICT_LOOK_US 100000u

/* Answers are of one metad, which has it all. */
static struct link *metad_open(struct ctl *c, struct links *ls)
{
	struct link *metad;

	if (links_open(c, ls) < 0)
		return NULL;
	metad = links_metad(ls);
	if (!metad)
		links_close(ls);
	return metad;
}

static json_t *holdings_get(struct ctl *c, struct link *metad, uint16_t op)
{
	struct admin_holdings m = {
		.count_max = c->o.limit && c->o.limit < ADMIN_HOLDINGS_MAX ?
				     (uint32_t)c->o.limit :
				     ADMIN_HOLDINGS_MAX,
	};
	struct wire_out o;
	uint8_t body[8];
	json_t *doc = NULL;
	int rv;

	wire_out_init(&o, body, sizeof(body));
	admin_holdings_encode(&o, &m);
	rv = link_json_of(metad, op, body, o.len, &doc);
	if (rv < 0)
		ctl_err("%s: %s", link_name(metad), strerror(-rv));
	return doc;
}

/* Adds a path to each of @list, where there is one. */
static int add_paths(struct link *metad, json_t *list)
{
	uint32_t count = (uint32_t)json_array_size(list);
	uint64_t *inos = calloc(count + 1, sizeof(*inos));
	char **paths = calloc(count + 1, sizeof(*paths));
	int rv = inos && paths ? 0 : -ENOMEM;
	json_t *o;
	size_t i;

	if (rv == 0) {
		json_array_foreach(list, i, o)
			inos[i] = json_u64(o, "inode");
		rv = meta_names(metad, inos, count, paths);
		json_array_foreach(list, i, o)
			json_object_set_new(o, "path", paths[i] ?
					    json_bytes(paths[i]) : json_null());
	}
	for (uint32_t n = 0; paths && n < count; n++)
		free(paths[n]);
	free(paths);
	free(inos);
	if (rv < 0)
		ctl_err("names: %s", strerror(-rv));
	return rv;
}

static void number(json_t *o, const char *key, char *buf, size_t size)
{
	if (json_is_integer(json_object_get(o, key)))
		snprintf(buf, size, "%" PRIu64, json_u64(o, key));
	else
		snprintf(buf, size, "-");
}

static void rows_add(struct table *t, json_t *list, const char *state)
{
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o) {
		char ino[24], start[24], end[24], session[24], pid[24];

		number(o, "inode", ino, sizeof(ino));
		number(o, "start", start, sizeof(start));
		number(o, "end", end, sizeof(end));
		number(o, "session", session, sizeof(session));
		number(o, "pid", pid, sizeof(pid));
		table_row(t, (const char *[]){
				     state, json_text(o, "kind", "?"),
				     json_text(o, "type", "?"), start, end,
				     session, pid, ino,
				     json_text(o, "path", "-") });
	}
}

static void print_more(json_t *doc, const char *count, const char *list)
{
	uint64_t n = json_array_size(json_object_get(doc, list));

	if (json_u64(doc, count) > n)
		printf("... %" PRIu64 " more %s; see --limit\n",
		       json_u64(doc, count) - n, list);
}

static void print_locks(json_t *doc)
{
	static const char *const columns[] = { "STATE", "KIND", "TYPE", "START",
					       "END", "SESSION", "PID",
					       "INODE", "PATH" };
	struct table *t = table_new(columns, array_count(columns));

	rows_add(t, json_object_get(doc, "locks"), "held");
	rows_add(t, json_object_get(doc, "waiting"), "waits");
	table_print_free(t);
	print_more(doc, "lock_count", "locks");
	print_more(doc, "waiting_count", "waiting");
}

static void print_leases(json_t *doc)
{
	static const char *const columns[] = { "SESSION", "INODE", "PATH" };
	struct table *t = table_new(columns, array_count(columns));
	json_t *o;
	size_t i;

	json_array_foreach(json_object_get(doc, "leases"), i, o) {
		char session[24], ino[24];

		number(o, "session", session, sizeof(session));
		number(o, "inode", ino, sizeof(ino));
		table_row(t, (const char *[]){ session, ino,
					       json_text(o, "path", "-") });
	}
	table_print_free(t);
	print_more(doc, "lease_count", "leases");
}

/* Shows what @op tells, of which @lists, ended by NULL, have inodes. */
static int show(struct ctl *c, uint16_t op, const char *const *lists,
		void (*print)(json_t *doc))
{
	struct links ls;
	struct link *metad = metad_open(c, &ls);
	json_t *doc, *all = json_array();
	int rv = -EIO;

	doc = metad ? holdings_get(c, metad, op) : NULL;
	for (; doc && *lists; lists++)
		(void)json_array_extend(all, json_object_get(doc, *lists));
	if (doc)
		rv = add_paths(metad, all);
	if (metad)
		links_close(&ls);
	json_decref(all);
	if (rv == 0 && c->o.json) {
		out_json(doc);
		return CTL_OK;
	}
	if (rv == 0)
		print(doc);
	json_decref(doc);
	return rv == 0 ? CTL_OK : CTL_FAILED;
}

int cmd_locks(struct ctl *c, char **args)
{
	static const char *const lists[] = { "locks", "waiting", NULL };

	(void)args;
	return show(c, WIRE_OP_ADMIN_LOCKS, lists, print_locks);
}

int cmd_leases(struct ctl *c, char **args)
{
	static const char *const lists[] = { "leases", NULL };

	(void)args;
	return show(c, WIRE_OP_ADMIN_LEASES, lists, print_leases);
}

/* ---- evict ---- */

static int evict_ask(struct link *metad, uint64_t session)
{
	struct admin_evict m = { .session = session };
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[8];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	admin_evict_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_ADMIN_EVICT, body, o.len,
		       metad->c->o.timeout_ms, &f);
	if (rv == 0)
		rpc_frame_free(f);
	return rv;
}

/* Is it on metad's list, alive or being ended? Or -errno. */
static int session_listed(struct link *metad, uint64_t session)
{
	json_t *doc = NULL, *list, *o;
	int found = 0, rv = link_json(metad, WIRE_OP_ADMIN_SESSIONS, &doc);
	size_t i;

	if (rv < 0)
		return rv;
	list = json_is_array(doc) ? doc : json_object_get(doc, "sessions");
	json_array_foreach(list, i, o)
		found |= json_u64(o, "session") == session;
	json_decref(doc);
	return found;
}

static int evict(struct ctl *c, struct link *metad, uint64_t session)
{
	uint64_t waited_us = 0;
	int rv, listed = 0;

	do {
		rv = evict_ask(metad, session);
		if (rv == -EAGAIN)
			usleep(EVICT_LOOK_US);
		waited_us += EVICT_LOOK_US;
	} while (rv == -EAGAIN && waited_us < c->o.timeout_ms * 1000);
	if (rv == -ENOENT) {
		ctl_err("there is no session %" PRIu64 "; see hailctl sessions",
			session);
		return CTL_FAILED;
	}
	while (rv == 0 && (listed = session_listed(metad, session)) == 1 &&
	       waited_us < c->o.timeout_ms * 1000) {
		usleep(EVICT_LOOK_US);
		waited_us += EVICT_LOOK_US;
	}
	if (rv == 0 && listed < 0)
		rv = listed;
	if (rv < 0) {
		ctl_err("%s: %s", link_name(metad), rv == -EAGAIN ?
			"another session is being ended; try again" :
			strerror(-rv));
		return CTL_FAILED;
	}
	if (c->o.json)
		out_json(json_pack("{s:I,s:b}", "session", (json_int_t)session,
				   "ended", listed == 0));
	else
		printf("session %" PRIu64 " %s\n", session, listed == 0 ?
		       "is ended; its mount answers EIO: unmount it" :
		       "is being ended: block daemons have to answer first");
	return CTL_OK;
}

int cmd_evict(struct ctl *c, char **args)
{
	struct links ls;
	struct link *metad;
	char *end;
	uint64_t session;
	int code;

	errno = 0;
	session = strtoull(args[0], &end, 10);
	if (*end || errno || args[0][0] == '-' || session == 0) {
		ctl_err("'%s' is no session (see hailctl sessions)", args[0]);
		return CTL_USAGE;
	}
	if (!c->o.yes) {
		ctl_err("this ends a mount that may live: what it has written "
			"and not synced is lost, its programs get EIO; say it "
			"with --yes");
		return CTL_USAGE;
	}
	metad = metad_open(c, &ls);
	if (!metad)
		return CTL_FAILED;
	code = evict(c, metad, session);
	links_close(&ls);
	return code;
}
