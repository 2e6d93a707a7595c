/* What tools ask of what sessions hold, and that a session be ended. */
#include "common/lock_table.h"
#include "common/wire_admin.h"
#include "metad/admin.h"
#include "metad/lock.h"
#include "metad/recover.h"

void admin_evict(struct request *r)
{
	struct admin_evict m;
	int rv = admin_evict_parse(r->body, r->body_len, &m);

	if (rv == 0 && recover_session(r->md) != m.session)
		rv = cmap_session_live(sm_map(r->md->sm), m.session) ?
			     recover_evict(r->md, m.session, "asked for") :
			     -ENOENT;
	serve_reply_plain(r->md, &r->to, rv, NULL, 0);
}

/* How many may be listed; false: answered with an error. */
static bool count_max(struct request *r, uint32_t *n)
{
	struct admin_holdings m;
	int rv = admin_holdings_parse(r->body, r->body_len, &m);

	if (rv < 0)
		serve_reply_plain(r->md, &r->to, rv, NULL, 0);
	else
		*n = (uint32_t)u64_min(m.count_max, ADMIN_HOLDINGS_MAX);
	return rv == 0;
}

static json_t *lock_json(const struct sm_lock *k)
{
	/* A file's last byte, or a lock to wherever it ends. */
	json_t *end = k->l.end >= (uint64_t)INT64_MAX ?
			      json_null() :
			      json_integer((json_int_t)k->l.end);

	return json_pack("{s:I,s:s,s:s,s:I,s:o,s:I,s:I}", "inode",
			 (json_int_t)k->l.ino, "kind",
			 k->l.kind == LOCK_KIND_FLOCK ? "flock" : "posix",
			 "type",
			 k->l.type == LOCK_TYPE_READ ? "read" : "write",
			 "start", (json_int_t)k->l.start, "end", end,
			 "session", (json_int_t)k->session, "pid",
			 (json_int_t)k->l.pid);
}

struct waits_json {
	json_t *list;
	uint32_t left;
	uint64_t count;
};

static void add_wait(void *arg, const struct sm_lock *k)
{
	struct waits_json *w = arg;

	w->count++;
	if (w->left > 0) {
		w->left--;
		(void)json_array_append_new(w->list, lock_json(k));
	}
}

void admin_locks(struct request *r)
{
	struct waits_json w = { .count = 0 };
	struct sm_lock k[64];
	json_t *list;
	uint32_t max, n = 0;
	size_t got;

	if (!count_max(r, &max))
		return;
	list = json_array();
	do {
		got = sm_lock_list(r->md->sm, n > 0 ? &k[array_count(k) - 1] :
						      NULL,
				   k, u64_min(array_count(k), max - n));
		for (size_t i = 0; i < got; i++)
			(void)json_array_append_new(list, lock_json(&k[i]));
		n += (uint32_t)got;
	} while (got == array_count(k));
	w.list = json_array();
	w.left = max;
	lock_waits_each(r->md, add_wait, &w);
	admin_reply_json(r, json_pack("{s:I,s:o,s:I,s:o}", "lock_count",
				      (json_int_t)sm_lock_count(r->md->sm),
				      "locks", list, "waiting_count",
				      (json_int_t)w.count, "waiting", w.list));
}

void admin_leases(struct request *r)
{
	const struct cmap *map = sm_map(r->md->sm);
	uint64_t inos[64], after, count = 0;
	json_t *list;
	uint32_t max;
	size_t got;

	if (!count_max(r, &max))
		return;
	list = json_array();
	for (uint32_t i = 0; i < map->session_count; i++) {
		uint64_t session = map->sessions[i];

		after = 0;
		do {
			got = sm_lease_list(r->md->sm, session, after, inos,
					    array_count(inos));
			for (size_t j = 0; j < got; j++, count++)
				if (count < max)
					(void)json_array_append_new(list,
						json_pack("{s:I,s:I}", "inode",
						(json_int_t)inos[j], "session",
						(json_int_t)session));
			if (got > 0)
				after = inos[got - 1];
		} while (got == array_count(inos));
	}
	admin_reply_json(r, json_pack("{s:I,s:o}", "lease_count",
				      (json_int_t)count, "leases", list));
}
