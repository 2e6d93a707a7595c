/* hailctl df: space of the block daemons, inodes of metad. */
#include "tools/hailctl/ctl.h"

#include "common/disk_share.h"

#include <inttypes.h>

struct space {
	uint64_t total, free;
};

static int stat_get(struct link *l, struct space *s, struct disk_share *share,
		    json_t **ret)
{
	struct blk_stat_reply m;
	struct rpc_frame *f;
	int rv = link_call(l, WIRE_OP_BLK_STAT, NULL, 0, l->c->o.timeout_ms,
			   &f);

	if (rv < 0)
		return rv;
	rv = blk_stat_reply_parse(f->body, f->h.body_len, &m);
	if (rv == 0) {
		s->total = m.units_total * UNIT_SIZE;
		s->free = m.units_free * UNIT_SIZE;
		*share = (struct disk_share){ m.units_total, m.units_free,
					      m.units_more, m.disk };
		*ret = json_pack("{s:I,s:I,s:I,s:s,s:s%}", "id",
				 (json_int_t)l->d->id, "bytes_total",
				 (json_int_t)s->total, "bytes_free",
				 (json_int_t)s->free, "state",
				 m.state == BLK_STATE_OK ? "ok" : "read-only",
				 "error", m.error.len ? m.error.p : "",
				 (size_t)m.error.len);
	}
	rpc_frame_free(f);
	return rv;
}

static int inodes_get(struct link *metad, struct meta_statfs_reply *m)
{
	struct rpc_frame *f;
	struct wire_in in;
	int rv = link_call(metad, WIRE_OP_META_STATFS, NULL, 0,
			   metad->c->o.timeout_ms, &f);

	if (rv < 0)
		return rv;
	rv = meta_body(f, &in);
	meta_statfs_reply_decode(&in, m);
	if (rv == 0)
		rv = wire_in_known(&in);
	rpc_frame_free(f);
	return rv;
}

static void space_row(struct table *t, const char *name, const struct space *s,
		      const char *state)
{
	char total[32], used[32], left[32], percent[16] = "-";

	if (s->total)
		snprintf(percent, sizeof(percent), "%.0f%%",
			 100 * (double)(s->total - s->free) /
			 (double)s->total);
	table_row(t, (const char *[]){
		name, out_size(s->total, total, sizeof(total)),
		out_size(s->total - s->free, used, sizeof(used)),
		out_size(s->free, left, sizeof(left)), percent, state });
}

/* All daemons; what did not answer is told on stderr. Space of a disk that
 * several have is in each one's row, and once in @all. */
static json_t *collect(struct links *ls, struct table *t, struct space *all)
{
	json_t *list = json_array(), *o = NULL;
	struct disk_share shares[DAEMON_COUNT_MAX];
	struct disk_sum sum;
	uint32_t count = 0;

	for (uint32_t i = 0; i < ls->count; i++) {
		struct link *l = &ls->v[i];
		struct space s = { 0, 0 };
		char name[32];
		int rv = l->error;

		if (l->kind != DAEMON_BLOCKD)
			continue;
		if (rv == 0) {
			rv = stat_get(l, &s, &shares[count], &o);
			if (rv < 0)
				ls->failed++;
			l->error = rv;
		}
		if (rv < 0) {
			link_complain(l);
			continue;
		}
		snprintf(name, sizeof(name), "blockd %u", l->d->id);
		space_row(t, name, &s, json_text(o, "state", ""));
		json_array_append_new(list, o);
		count++;
	}
	disk_share_sum(shares, count, &sum);
	all->total = sum.units_total * UNIT_SIZE;
	all->free = sum.units_free * UNIT_SIZE;
	return list;
}

/* null: nobody was there to tell. */
static json_t *told(const struct link *metad, uint64_t v)
{
	return metad ? json_integer((json_int_t)v) : json_null();
}

int cmd_df(struct ctl *c, char **args)
{
	static const char *const columns[] = { "DAEMON", "SIZE", "USED",
					       "FREE", "USE", "STATE" };
	struct meta_statfs_reply inodes = { .inodes = 0 };
	struct space sum = { 0, 0 };
	struct links ls;
	struct link *metad;
	struct table *t;
	json_t *list;
	int code;

	(void)args;
	if (links_open(c, &ls) < 0)
		return CTL_FAILED;
	metad = links_metad(&ls);
	if (metad && inodes_get(metad, &inodes) < 0) {
		ctl_err("%s: no answer about inodes", link_name(metad));
		metad = NULL;
		ls.failed++;
	}
	t = table_new(columns, array_count(columns));
	list = collect(&ls, t, &sum);
	space_row(t, "all", &sum, "");
	if (c->o.json) {
		out_json(json_pack("{s:o,s:I,s:I,s:o,s:o,s:o}", "blockds",
				   list, "bytes_total", (json_int_t)sum.total,
				   "bytes_free", (json_int_t)sum.free,
				   "inodes", told(metad, inodes.inodes),
				   "inodes_max",
				   told(metad, inodes.inodes_max),
				   "purge_pending",
				   told(metad, inodes.purge_pending)));
		table_free(t);
	} else {
		table_print_free(t);
		json_decref(list);
		if (metad)
			printf("\ninodes %" PRIu64 " of %" PRIu64
			       ", deleted but not yet freed %" PRIu64 "\n",
			       inodes.inodes, inodes.inodes_max,
			       inodes.purge_pending);
	}
	code = links_exit(&ls);
	links_close(&ls);
	return code;
}
