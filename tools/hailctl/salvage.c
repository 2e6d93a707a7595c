/* hailctl log salvage: logs that no mount could recover, and what their peers
 * still have of them. Nothing of them is changed, and what comes out is never
 * called the file: who wants it in the file's place puts it there. */
#include "tools/hailctl/salvage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

#include "common/json_bytes.h"
#include "tools/hailctl/mounts.h"

#define PAGE_COUNT 256u
#define TEXT_MAX 512u
#define SILENT_MS 10000u /* a mount that would be taken for dead */

/* ---- the registry ---- */

/* Entries after @ino. *ret: points into *frame. */
static int list_page(struct link *metad, uint64_t ino, uint32_t count,
		     struct meta_log_list_reply *ret, struct rpc_frame **frame)
{
	struct meta_log_list m = { .ino = ino, .count_max = count };
	struct rpc_frame *f;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[32];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	meta_log_list_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_META_LOG_LIST, body, o.len,
		       metad->c->o.timeout_ms, &f);
	if (rv != 0)
		return rv;
	rv = meta_body(f, &in);
	meta_log_list_reply_decode(&in, ret);
	if (rv == 0)
		rv = wire_in_known(&in);
	if (rv == 0)
		*frame = f;
	else
		rpc_frame_free(f);
	return rv;
}

/* A frame with the entry of @ino; -ENOENT. */
static int entry_of(struct link *metad, uint64_t ino,
		    struct meta_log_entry *ret, struct rpc_frame **frame)
{
	struct meta_log_list_reply r;
	struct wire_in in;
	int rv = list_page(metad, ino - 1, 1, &r, frame);

	if (rv != 0)
		return rv;
	wire_in_init(&in, r.entries.p, r.entries.len);
	if (r.count > 0)
		meta_log_entry_decode(&in, ret);
	if (r.count == 0 || in.bad || ret->ino != ino)
		rv = in.bad ? -EBADMSG : -ENOENT;
	if (rv != 0)
		rpc_frame_free(*frame);
	return rv;
}

/* Metad holds a session that is gone for live until somebody else comes. */
static bool is_silent(json_t *sessions, uint64_t session)
{
	json_t *v;
	size_t i;

	json_array_foreach(sessions, i, v)
		if (json_u64(v, "session") == session)
			return !json_is_true(json_object_get(v, "connected")) &&
			       json_u64(v, "idle_ms") >= SILENT_MS;
	return true;
}

/* A mount writes it. One that was raised has no writer: it is being recovered,
 * or could not be. */
static bool is_active(struct link *metad, const struct meta_log_entry *e)
{
	json_t *sessions = NULL;
	bool silent;

	if (!(e->flags & META_LOG_LIVE) || e->epoch != e->data_epoch)
		return false;
	silent = link_json(metad, WIRE_OP_ADMIN_SESSIONS, &sessions) == 0 &&
		 is_silent(sessions, e->session);
	json_decref(sessions);
	return !silent;
}

/* ---- showing ---- */

static const char *state_word(const struct salvage_log *g)
{
	switch (g->choice) {
	case LOG_CHOICE_LOST:
		return "lost";
	case LOG_CHOICE_WAIT:
	case LOG_CHOICE_TORN:
		return "unsure";
	case LOG_CHOICE_PEER:
	case LOG_CHOICE_STAGE:
	case LOG_CHOICE_EMPTY:
		break;
	}
	return "whole";
}

static const char *peer_word(const struct salvage_peer *p)
{
	if (p->error)
		return "no answer";
	if (p->s.last)
		return p->s.damaged ? "damaged" : "has";
	return p->answer.state == LOG_ANSWER_CONFIRMED ? "empty" : "lost";
}

static void peer_text(const struct salvage_peer *p, char *text, size_t size)
{
	char bytes[32];

	if (p->error == -ENXIO)
		snprintf(text, size, "is not in the cluster file");
	else if (p->error)
		snprintf(text, size, "no answer (%s)", strerror(-p->error));
	else if (p->s.last)
		snprintf(text, size, "records %" PRIu64 " to %" PRIu64 ", %s%s",
			 p->s.first, p->s.last,
			 out_size(p->s.bytes, bytes, sizeof(bytes)),
			 p->s.damaged ? ", and damaged ones behind" : "");
	else
		snprintf(text, size, "%s",
			 p->answer.state == LOG_ANSWER_CONFIRMED ?
				 "nothing" : "has lost it");
}

static json_t *peers_json(const struct salvage_log *g)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < g->count; i++) {
		const struct salvage_peer *p = &g->peers[i];

		json_array_append_new(list, json_pack(
			"{s:I,s:s,s:I,s:I,s:I}", "id", (json_int_t)p->id.id,
			"state", peer_word(p), "first", (json_int_t)p->s.first,
			"last", (json_int_t)p->s.last,
			"bytes", (json_int_t)p->s.bytes));
	}
	return list;
}

static json_t *log_json(const struct salvage_log *g, const char *path)
{
	static const struct log_salvaged none;
	const struct log_salvaged *s = g->best < 0 ? &none :
						     &g->peers[g->best].s;

	return json_pack("{s:o,s:I,s:I,s:s,s:I,s:I,s:I,s:b,s:o}",
			 "path", path ? json_bytes(path) : json_null(),
			 "inode", (json_int_t)g->e.ino,
			 "epoch", (json_int_t)g->e.data_epoch,
			 "state", state_word(g),
			 "first", (json_int_t)s->first,
			 "last", (json_int_t)s->last,
			 "bytes", (json_int_t)s->bytes,
			 "damaged", s->damaged, "logds", peers_json(g));
}

/* Of whom it is not known that they had nothing more. */
static void print_missing(const struct salvage_log *g)
{
	uint64_t last = g->best < 0 ? 0 : g->peers[g->best].s.last;
	bool any = false;

	if (g->choice != LOG_CHOICE_LOST && g->choice != LOG_CHOICE_WAIT) {
		printf("It is whole: the next mount recovers it.\n");
		return;
	}
	if (last)
		printf("Missing is what was written behind record %" PRIu64,
		       last);
	else
		printf("Missing is what was written and not destaged");
	printf(" and was with");
	for (uint32_t i = 0; i < g->count; i++) {
		const struct salvage_peer *p = &g->peers[i];

		if (p->error || p->s.damaged ||
		    p->answer.state != LOG_ANSWER_CONFIRMED) {
			printf("%s logd %u", any ? "," : "", p->id.id);
			any = true;
		}
	}
	printf(" alone.\n");
}

static void print_log(const struct salvage_log *g, const char *path)
{
	char text[TEXT_MAX];

	printf("%s: inode %" PRIu64 ", log of epoch %" PRIu64 ": %s\n", path,
	       g->e.ino, g->e.data_epoch, state_word(g));
	for (uint32_t i = 0; i < g->count; i++) {
		peer_text(&g->peers[i], text, sizeof(text));
		printf("  logd %u: %s\n", g->peers[i].id.id, text);
	}
	print_missing(g);
}

/* ---- the list ---- */

struct list {
	struct salvage_log *v;
	uint32_t count, cap;
};

static int list_add(struct ctl *c, struct links *ls, struct list *l,
		    const struct meta_log_entry *e)
{
	int rv;

	/* without peers: a journal, which has its data in the blocks */
	if (e->peers.len == 0 || is_active(&ls->v[0], e))
		return 0;
	if (l->count == l->cap) {
		uint32_t cap = l->cap ? 2 * l->cap : 16;
		struct salvage_log *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	rv = salvage_read(c, ls, e, &l->v[l->count]);
	/* What it has is counted; only of one file is it written. */
	salvage_free(&l->v[l->count]);
	l->count += rv == 0;
	return rv;
}

static int list_all(struct ctl *c, struct links *ls, struct list *l)
{
	struct meta_log_list_reply r = { .done = 0 };
	uint64_t last = 0;
	int rv = 0;

	while (rv == 0 && !r.done) {
		struct rpc_frame *f;
		struct wire_in in;

		rv = list_page(&ls->v[0], last, PAGE_COUNT, &r, &f);
		if (rv != 0)
			break;
		wire_in_init(&in, r.entries.p, r.entries.len);
		for (uint32_t i = 0; i < r.count && rv == 0; i++) {
			struct meta_log_entry e;

			meta_log_entry_decode(&in, &e);
			rv = in.bad || e.ino <= last ? -EBADMSG : 0;
			if (rv == 0)
				rv = list_add(c, ls, l, &e);
			last = e.ino;
		}
		rpc_frame_free(f);
	}
	return rv;
}

static void list_print(const struct list *l, char *const *paths)
{
	static const char *const columns[] = { "INODE", "STATE", "RECORDS",
					       "DATA", "LOGDS", "PATH" };
	struct table *t = table_new(columns, array_count(columns));

	for (uint32_t i = 0; i < l->count; i++) {
		const struct salvage_log *g = &l->v[i];
		static const struct log_salvaged none;
		const struct log_salvaged *s =
			g->best < 0 ? &none : &g->peers[g->best].s;
		char ino[24], records[48], bytes[32], logds[TEXT_MAX];
		size_t len = 0;

		snprintf(ino, sizeof(ino), "%" PRIu64, g->e.ino);
		snprintf(records, sizeof(records), "%" PRIu64 "-%" PRIu64,
			 s->first, s->last);
		for (uint32_t k = 0; k < g->count && len < sizeof(logds); k++)
			len += (size_t)snprintf(logds + len,
						sizeof(logds) - len, "%s%u %s",
						k ? ", " : "",
						g->peers[k].id.id,
						peer_word(&g->peers[k]));
		table_row(t, (const char *[]){
			ino, state_word(g), s->last ? records : "none",
			out_size(s->bytes, bytes, sizeof(bytes)), logds,
			paths[i] ? paths[i] : "(no name)" });
	}
	if (l->count)
		table_print_free(t);
	else
		table_free(t);
	if (!l->count)
		printf("every log has its mount\n");
}

static int list_show(struct ctl *c, struct links *ls, struct list *l)
{
	uint64_t *inos = calloc(l->count + 1, sizeof(*inos));
	char **paths = calloc(l->count + 1, sizeof(*paths));
	json_t *all = json_array();
	int rv = inos && paths ? 0 : -ENOMEM;

	for (uint32_t i = 0; rv == 0 && i < l->count; i++)
		inos[i] = l->v[i].e.ino;
	if (rv == 0)
		rv = meta_names(&ls->v[0], inos, l->count, paths);
	if (rv < 0)
		ctl_err("names: %s", strerror(-rv));
	else if (!c->o.json)
		list_print(l, paths);
	for (uint32_t i = 0; rv == 0 && i < l->count; i++)
		json_array_append_new(all, log_json(&l->v[i], paths[i]));
	if (rv == 0 && c->o.json)
		out_json(json_pack("{s:O}", "logs", all));
	json_decref(all);
	for (uint32_t i = 0; paths && i < l->count; i++)
		free(paths[i]);
	free(paths);
	free(inos);
	return rv < 0 ? CTL_FAILED : links_exit(ls);
}

int cmd_log_salvage_list(struct ctl *c, char **args)
{
	struct list l = { .count = 0 };
	struct links ls;
	int code = CTL_FAILED, rv;

	(void)args;
	if (links_open_all(c, &ls) < 0)
		return CTL_FAILED;
	if (links_metad(&ls)) {
		rv = list_all(c, &ls, &l);
		if (rv < 0)
			ctl_err("list of logs: %s", strerror(-rv));
		else
			code = list_show(c, &ls, &l);
	}
	free(l.v);
	links_close(&ls);
	return code;
}

/* ---- one file ---- */

struct salvage {
	struct ctl *c;
	struct links ls;
	char path[PATH_MAX]; /* inside the cluster */
	const char *out; /* NULL: only show */
	struct meta_attr a;
	struct salvage_log g;
};

/* False after a message. */
static bool find(struct salvage *s)
{
	struct link *metad = &s->ls.v[0];
	struct meta_log_entry e;
	struct rpc_frame *f;
	int rv;

	if (!meta_resolve(metad, s->path, &s->a))
		return false;
	rv = entry_of(metad, s->a.ino, &e, &f);
	if (rv == -ENOENT)
		ctl_err("%s has no log: all of it is in its blocks, or it was "
			"given up", s->path);
	else if (rv < 0)
		ctl_err("%s: its log: %s", s->path, strerror(-rv));
	if (rv < 0)
		return false;
	if (is_active(metad, &e)) {
		ctl_err("%s: session %" PRIu64 " is writing its log: nothing "
			"of it is lost", s->path, e.session);
		rv = -EBUSY;
	} else {
		rv = salvage_read(s->c, &s->ls, &e, &s->g);
		if (rv < 0)
			ctl_err("%s: its log: %s", s->path, strerror(-rv));
	}
	rpc_frame_free(f);
	return rv == 0;
}

/* Somebody may have recovered it, or begun the file anew, while we read. */
static bool still_there(struct salvage *s)
{
	struct meta_log_entry e;
	struct rpc_frame *f;
	int rv = entry_of(&s->ls.v[0], s->a.ino, &e, &f);
	bool same = rv == 0 && e.epoch == s->g.e.epoch;

	if (rv == 0)
		rpc_frame_free(f);
	if (!same)
		ctl_err("%s: a mount has dealt with its log meanwhile: look "
			"at the file", s->path);
	return same;
}

/* False after a message; then there is no new file. */
static bool write_out(struct salvage *s)
{
	int fd = open(s->out, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	bool ok;

	if (fd < 0) {
		ctl_err("%s: %s", s->out, strerror(errno));
		return false;
	}
	ok = salvage_write(s->c, &s->ls, &s->a,
			   s->c->o.destaged ? NULL : &s->g, fd) &&
	     still_there(s);
	if (close(fd) < 0 && ok) {
		ctl_err("%s: %s", s->out, strerror(errno));
		ok = false;
	}
	if (!ok)
		(void)unlink(s->out); /* it is ours, and not what was wanted */
	return ok;
}

/* Has everything that was acknowledged been had? */
static bool is_whole(const struct salvage *s)
{
	return strcmp(state_word(&s->g), "whole") == 0 && !s->c->o.destaged;
}

static int one(struct salvage *s)
{
	if (!find(s))
		return CTL_FAILED;
	if (s->out && !s->c->o.destaged && s->g.best < 0 &&
	    s->g.choice != LOG_CHOICE_EMPTY) {
		if (!s->c->o.json)
			print_log(&s->g, s->path);
		ctl_err("no log daemon that answers has anything of it; what "
			"the blocks have can be had with --destaged");
		return CTL_FAILED;
	}
	if (s->out && !write_out(s))
		return CTL_FAILED;
	if (s->c->o.json) {
		json_t *o = log_json(&s->g, s->path);

		json_object_set_new(o, "output", s->out ? json_bytes(s->out) :
							  json_null());
		json_object_set_new(o, "complete", json_boolean(is_whole(s)));
		out_json(o);
	} else {
		print_log(&s->g, s->path);
		if (s->out)
			printf("%s: %s%s\n", s->out,
			       s->c->o.destaged || s->g.best < 0 ?
				       "what the blocks have" :
				       "what the blocks have, and these "
				       "records",
			       is_whole(s) ? "" : "; NOT COMPLETE");
	}
	return s->out && !is_whole(s) ? CTL_PARTLY : CTL_OK;
}

static int salvage(struct ctl *c, const char *path, const char *out)
{
	struct salvage s = { .c = c, .out = out };
	char source[PATH_MAX];
	int code = CTL_FAILED;

	if (!mounts_inside(path, s.path, sizeof(s.path), source))
		return CTL_FAILED;
	/* A mount tells its cluster file by itself. */
	if (!ctl_load(c, !c->o.cluster && !getenv("HAILFS_CLUSTER") &&
			 source[0] ? source : NULL))
		return CTL_FAILED;
	if (links_open_all(c, &s.ls) < 0)
		return CTL_FAILED;
	if (links_metad(&s.ls))
		code = one(&s);
	salvage_free(&s.g);
	links_close(&s.ls);
	return code;
}

int cmd_log_salvage(struct ctl *c, char **args)
{
	return salvage(c, args[0], NULL);
}

int cmd_log_salvage_out(struct ctl *c, char **args)
{
	return salvage(c, args[0], args[1]);
}
