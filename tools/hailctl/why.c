/* hailctl why: where a file's blocks lie, and who may write it. */
#include "tools/hailctl/ctl.h"

#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json_bytes.h"
#include "common/place.h"
#include "tools/hailctl/mounts.h"

#define MAP_COUNT 256u

struct block {
	uint64_t index;
	uint32_t blockd, units;
	bool misplaced;
};

struct why {
	struct ctl *c;
	struct links ls;
	struct link *metad;
	struct cmap *map;
	struct meta_attr a;
	char path[PATH_MAX]; /* inside the cluster, "/..." */
	struct block *blocks;
	size_t block_count, block_cap;
	uint64_t unit_count, misplaced;
	json_t *per_daemon; /* id -> blocks */
};

static int block_add(struct why *w, const struct conf_daemon *d,
		     uint64_t index, uint32_t units)
{
	int at = place_primary(w->map, w->a.ino, index);
	bool wrong = at < 0 || w->map->daemons[at].id != d->id;
	struct block *v = w->blocks;
	char id[16];
	json_t *n;

	if (w->block_count == w->block_cap) {
		w->block_cap = w->block_cap ? 2 * w->block_cap : 256;
		v = realloc(v, w->block_cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		w->blocks = v;
	}
	v[w->block_count++] = (struct block){ index, d->id, units, wrong };
	w->unit_count += units;
	w->misplaced += wrong;
	snprintf(id, sizeof(id), "%u", d->id);
	n = json_object_get(w->per_daemon, id);
	if (n)
		json_integer_set(n, json_integer_value(n) + 1);
	else
		json_object_set_new(w->per_daemon, id, json_integer(1));
	return 0;
}

static int by_index(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* How many of the blocks are shown. */
static size_t shown_count(const struct why *w)
{
	uint64_t limit = w->c->o.limit;

	return limit && limit < w->block_count ? limit : w->block_count;
}

static json_t *blocks_json(const struct why *w)
{
	json_t *list = json_array();

	for (size_t i = 0; i < shown_count(w); i++) {
		const struct block *b = &w->blocks[i];
		uint64_t off = b->index << w->a.block_log2;

		json_array_append_new(list, json_pack(
			"{s:I,s:I,s:I,s:I,s:I,s:b}",
			"index", (json_int_t)b->index,
			"offset", (json_int_t)off,
			"slot", (json_int_t)place_slot(w->a.ino, b->index),
			"blockd", (json_int_t)b->blockd,
			"units", (json_int_t)b->units,
			"misplaced", b->misplaced));
	}
	return list;
}

/* One page of what @l stores of the file; *next: where to go on. */
static int map_page(struct why *w, struct link *l, uint64_t *next)
{
	uint32_t units = 1u << (w->a.block_log2 - UNIT_SHIFT);
	struct blk_map ask = { .ino = w->a.ino, .first = *next,
			       .last = UINT64_MAX, .count_max = MAP_COUNT,
			       .block_log2 = w->a.block_log2 };
	struct blk_map_reply m;
	struct rpc_frame *f;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[64];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	blk_map_encode(&o, &ask);
	rv = link_call(l, WIRE_OP_BLK_MAP, body, o.len, w->c->o.timeout_ms,
		       &f);
	if (rv < 0)
		return rv;
	rv = blk_map_reply_parse(f->body, f->h.body_len, &m);
	wire_in_init(&in, m.entries.p, rv == 0 ? m.entries.len : 0);
	for (uint32_t i = 0; rv == 0 && i < m.count; i++) {
		uint64_t index = wire_get_u64(&in);
		uint32_t set = 0;

		for (uint32_t b = 0; b < (units + 7) / 8; b++)
			set += (uint32_t)__builtin_popcount(wire_get_u8(&in));
		rv = in.bad ? -EBADMSG : block_add(w, l->d, index, set);
	}
	if (rv == 0)
		rv = wire_in_end(&in);
	if (rv == 0 && m.next != UINT64_MAX && m.next <= *next)
		rv = -EBADMSG;
	*next = rv == 0 ? m.next : UINT64_MAX;
	rpc_frame_free(f);
	return rv;
}

static void map_all(struct why *w)
{
	for (uint32_t i = 0; i < w->ls.count; i++) {
		struct link *l = &w->ls.v[i];
		uint64_t next = 0;
		int rv = l->error;

		if (l->kind != DAEMON_BLOCKD)
			continue;
		if (rv < 0) {
			link_complain(l);
			continue;
		}
		do
			rv = map_page(w, l, &next);
		while (rv == 0 && next != UINT64_MAX);
		if (rv == 0)
			continue;
		ctl_err("%s: list of blocks: %s", link_name(l), strerror(-rv));
		w->ls.failed++;
	}
}

/* The one session, when there is exactly one: it holds all leases. */
static json_t *lease_holder(struct why *w)
{
	json_t *doc = NULL, *list, *holder = NULL;

	if (!(w->a.flags & META_ATTR_LEASED))
		return NULL;
	if (link_json(w->metad, WIRE_OP_ADMIN_SESSIONS, &doc) < 0)
		return NULL;
	list = json_object_get(doc, "sessions");
	if (!json_is_array(list))
		list = doc;
	if (json_array_size(list) == 1)
		holder = json_incref(json_array_get(list, 0));
	json_decref(doc);
	return holder;
}

static void print_blocks(const struct why *w)
{
	static const char *const columns[] = { "BLOCK", "OFFSET", "SLOT",
					       "BLOCKD", "STORED", "" };
	struct table *t = table_new(columns, array_count(columns));

	for (size_t i = 0; i < shown_count(w); i++) {
		const struct block *b = &w->blocks[i];
		char index[24], off[24], slot[16], id[16], size[32];

		snprintf(index, sizeof(index), "%" PRIu64, b->index);
		snprintf(off, sizeof(off), "%" PRIu64,
			 b->index << w->a.block_log2);
		snprintf(slot, sizeof(slot), "%u",
			 place_slot(w->a.ino, b->index));
		snprintf(id, sizeof(id), "%u", b->blockd);
		out_size((uint64_t)b->units * UNIT_SIZE, size, sizeof(size));
		table_row(t, (const char *[]){
			index, off, slot, id, size,
			b->misplaced ? "MISPLACED" : "" });
	}
	table_print_free(t);
	if (shown_count(w) < w->block_count)
		printf("... %zu more; see --limit\n",
		       w->block_count - shown_count(w));
}

static const char *type_word(uint32_t mode)
{
	if (S_ISREG(mode))
		return "file";
	if (S_ISDIR(mode))
		return "directory";
	if (S_ISLNK(mode))
		return "symbolic link";
	return "special file";
}

static void print_text(const struct why *w, json_t *holder)
{
	char stored[32];
	const char *id;
	json_t *n;

	printf("%s: %s, inode %" PRIu64 ", mode %04o, links %u\n", w->path,
	       type_word(w->a.mode), w->a.ino, w->a.mode & 07777u,
	       w->a.nlink);
	if (S_ISDIR(w->a.mode))
		printf("files made in it have blocks of %u KiB\n",
		       1u << (w->a.block_log2 - 10));
	if (!S_ISREG(w->a.mode))
		return;
	printf("size %" PRIu64 " bytes%s, stored %s, blocks of %u KiB, cut "
	       "number %" PRIu64 "\n", w->a.size,
	       w->a.flags & META_ATTR_LEASED ?
	       " or more (the lease holder knows)" : "",
	       out_size(w->unit_count * UNIT_SIZE, stored, sizeof(stored)),
	       1u << (w->a.block_log2 - 10), w->a.cut);
	if (holder)
		printf("write lease: session %" PRIu64 ", %s:%s\n",
		       json_u64(holder, "session"),
		       json_text(holder, "host", "?"),
		       json_text(holder, "mountpoint", "?"));
	else
		printf("write lease: %s\n",
		       w->a.flags & META_ATTR_LEASED ? "held" : "nobody");
	printf("%zu blocks:", w->block_count);
	json_object_foreach(w->per_daemon, id, n)
		printf(" blockd %s has %" PRIu64, id,
		       (uint64_t)json_integer_value(n));
	putchar('\n');
	if (w->block_count)
		print_blocks(w);
}

static int report(struct why *w)
{
	json_t *holder = lease_holder(w);
	int code = w->misplaced ? CTL_FAILED : links_exit(&w->ls);

	if (w->c->o.json)
		out_json(json_pack(
			"{s:o,s:I,s:s,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:I,s:O,"
			"s:o,s:O*}",
			"path", json_bytes(w->path),
			"inode", (json_int_t)w->a.ino,
			"type", type_word(w->a.mode),
			"mode", (json_int_t)w->a.mode,
			"size", (json_int_t)w->a.size,
			"block_bytes", (json_int_t)1 << w->a.block_log2,
			"cut", (json_int_t)w->a.cut,
			"leased", (w->a.flags & META_ATTR_LEASED) != 0,
			"block_count", (json_int_t)w->block_count,
			"unit_count", (json_int_t)w->unit_count,
			"misplaced", (json_int_t)w->misplaced,
			"blocks_per_blockd", w->per_daemon,
			"blocks", blocks_json(w), "lease_holder", holder));
	else
		print_text(w, holder);
	json_decref(holder);
	return code;
}

int cmd_why(struct ctl *c, char **args)
{
	struct why w = { .c = c };
	char source[PATH_MAX];
	int code = CTL_FAILED, rv;

	if (!mounts_inside(args[0], w.path, sizeof(w.path), source))
		return CTL_FAILED;
	/* A mount tells its cluster file by itself. */
	if (!ctl_load(c, !c->o.cluster && !getenv("HAILFS_CLUSTER") &&
			 source[0] ? source : NULL))
		return CTL_FAILED;
	if (links_open(c, &w.ls) < 0)
		return CTL_FAILED;
	w.per_daemon = json_object();
	w.metad = links_metad(&w.ls);
	if (!w.metad || !meta_resolve(w.metad, w.path, &w.a))
		goto out;
	rv = meta_map(w.metad, &w.map);
	if (rv < 0) {
		ctl_err("%s: cluster map: %s", link_name(w.metad),
			strerror(-rv));
		goto out;
	}
	if (S_ISREG(w.a.mode))
		map_all(&w);
	if (w.block_count)
		qsort(w.blocks, w.block_count, sizeof(*w.blocks), by_index);
	code = report(&w);
out:
	cmap_free(w.map);
	free(w.blocks);
	json_decref(w.per_daemon);
	links_close(&w.ls);
	return code;
}
