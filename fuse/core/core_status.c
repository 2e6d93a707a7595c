/* What this mount says of itself: JSON for hailctl and for metad. */
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"
#include "fuse/core/share.h"

#include "common/json_bytes.h"

struct core_note {
	struct core_note *next;
	char *key, *value;
};

void core_notes_free(struct core *c)
{
	while (c->notes) {
		struct core_note *n = c->notes;
		c->notes = n->next;
		free(n->key);
		free(n->value);
		free(n);
	}
}

int core_status_note(struct core *c, const char *key, const char *value)
{
	char *copy = strdup(value);
	struct core_note *n;

	if (!copy)
		return -ENOMEM;
	core_lock(c);
	for (n = c->notes; n && strcmp(n->key, key) != 0;)
		n = n->next;
	if (n) {
		free(n->value);
		n->value = copy;
		core_unlock(c);
		return 0;
	}
	n = calloc(1, sizeof(*n));
	if (n)
		n->key = strdup(key);
	if (!n || !n->key) {
		core_unlock(c);
		free(copy);
		free(n);
		return -ENOMEM;
	}
	n->value = copy;
	n->next = c->notes;
	c->notes = n;
	core_unlock(c);
	return 0;
}

static void put_string(FILE *out, const char *s)
{
	json_t *j = json_bytes(s);
	char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;

	fputs(text ? text : "\"\"", out);
	free(text);
	json_decref(j);
}

struct status_count {
	const char *name;
	uint64_t value;
};

static void json_counts(FILE *out, const struct status_count *list,
			size_t count)
{
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s\"%s\":%llu", i ? "," : "", list[i].name,
			(unsigned long long)list[i].value);
}

void meta_client_status(struct core *c, FILE *out)
{
	core_lock(c);
	struct meta_client m = *c->meta;
	struct early early = *c->early;
	core_unlock(c);
	const struct status_count counts[] = {
		{ "session", m.session },
		{ "epoch", m.map_epoch },
		{ "sequence", m.seq },
		{ "durable_sequence", m.durable_seq },
		{ "kept", m.kept_count },
		{ "kept_bytes", m.kept_bytes },
		{ "kept_max", m.count.kept_max },
		{ "mutations", m.count.mutations },
		{ "queries", m.count.queries },
		{ "syncs", m.count.syncs },
		{ "resent", m.count.resent },
		{ "replays", m.count.replays },
		{ "replays_differ", m.count.differ },
		{ "early_creates", early.count.creates },
		{ "early_unlinks", early.count.unlinks },
		{ "early_renames", early.count.renames },
		{ "early_refused", early.count.refused },
		{ "early_differ", early.count.differ },
		{ "window_full", m.count.window_full },
		{ "timeouts", m.count.timeouts },
		{ "connects", m.count.connects },
		{ "metad_restarts", m.count.boots },
		{ "keepalives", m.count.keepalives },
	};
	if (c->opt.shared) {
		share_status(c, out);
		fputc(',', out);
	}
	fprintf(out, "\"metad\":{\"connected\":%s,\"fenced\":%s,",
		m.up ? "true" : "false", m.fenced ? "true" : "false");
	json_counts(out, counts, array_count(counts));
	fputc('}', out);
}

static void names_status(struct core *c, FILE *out)
{
	core_lock(c);
	const struct status_count counts[] = {
		{ "inodes_cached", c->inode_count },
		{ "evicted", c->count.evicted },
		{ "opens", c->count.opens },
		{ "lookups", c->count.lookups },
		{ "lookups_local", c->count.lookups_local },
		{ "getattrs", c->count.getattrs },
		{ "getattrs_local", c->count.getattrs_local },
		{ "creates", c->count.creates },
		{ "unlinks", c->count.unlinks },
		{ "renames", c->count.renames },
		{ "links", c->count.links },
		{ "setattrs", c->count.setattrs },
		{ "setattrs_local", c->count.setattrs_local },
		{ "xattrs", c->count.xattrs },
		{ "xattrs_local", c->count.xattrs_local },
		{ "readdirs", c->count.readdirs },
		{ "directory_pages", c->count.dir_pages },
		{ "leases", c->count.leases },
		{ "returns", c->count.returns },
		{ "orphans", c->count.orphans },
	};
	core_unlock(c);
	fputs("\"names\":{", out);
	json_counts(out, counts, array_count(counts));
	fputc('}', out);
}

static void rpc_status(struct core *c, FILE *out)
{
	struct rpc_stats s;
	rpc_net_stats(c->net, &s);
	const struct status_count counts[] = {
		{ "calls", s.calls },
		{ "replies", s.replies },
		{ "timeouts", s.timeouts },
		{ "resent", s.resent },
		{ "bytes_out", s.bytes_out },
		{ "bytes_in", s.bytes_in },
		{ "connects", s.connects },
		{ "losses", s.losses },
		{ "bad_frames", s.bad_frames },
		{ "spins", s.spins },
		{ "spin_hits", s.spin_hits },
		{ "sleeps", s.sleeps },
		{ "helps", s.helps },
		{ "help_hits", s.help_hits },
	};
	fputs("\"rpc\":{", out);
	json_counts(out, counts, array_count(counts));
	fputc('}', out);
}

char *core_status_json(struct core *c)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	fputs("{\"host\":", out);
	put_string(out, c->opt.host);
	fputs(",\"mountpoint\":", out);
	put_string(out, c->opt.mountpoint);
	fprintf(out,
		",\"hard\":%s,\"writeback\":%s,\"buffered_bytes_max\":%llu",
		c->opt.timeout_ms ? "false" : "true",
		c->opt.kernel_writeback ? "true" : "false",
		(unsigned long long)c->opt.wb_bytes_max);
	core_lock(c);
	for (const struct core_note *n = c->notes; n; n = n->next) {
		fputc(',', out);
		put_string(out, n->key);
		fputc(':', out);
		put_string(out, n->value);
	}
	core_unlock(c);
	fputc(',', out);
	meta_client_status(c, out);
	fputc(',', out);
	names_status(c, out);
	fputc(',', out);
	blk_client_status(c, out);
	fputc(',', out);
	log_status(c, out);
	fputc(',', out);
	rpc_status(c, out);
	char *latency = c->opt.latency ? c->opt.latency() : NULL;
	if (latency)
		fprintf(out, ",\"latency\":%s", latency);
	free(latency);
	fputc('}', out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
