/* hailctl fsck: metadata against what the block daemons store.
 *
 * Both sides are read once, in inode order, while the cluster may be in use.
 * What does not agree is looked at again, alone, until it agrees or has not
 * agreed several times.
 */
#include "tools/hailctl/fsck.h"

#include <inttypes.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/place.h"

#define SUSPECTS_MAX 100000u
#define LOOKS 6
#define LOOK_PAUSE_US 500000
#define PROGRESS_EACH 1024u /* inodes */

struct fsck {
	struct ctl *c;
	struct links ls;
	struct link *metad;
	struct cmap *map;
	struct block_cursor *blocks; /* [block_count], of daemons there */
	uint32_t blockd_count;
	uint64_t inodes, stored_blocks, units, in_use;
	uint64_t *suspects;
	size_t suspect_count;
	bool suspects_full;
	/* findings are printed and counted only on the last look */
	bool telling;
	uint64_t found; /* of the look under way */
	uint64_t fixable; /* of these: blocks of no inode, wrong counts */
	uint64_t lost; /* of these: counts that say that data is gone */
	uint64_t told, repaired;
	json_t *findings;
};

/* The same inode's blocks, gathered. */
struct tally {
	uint64_t units;
	uint64_t blocks;
};

printf_like(5, 6)
static void find(struct fsck *k, const char *kind, uint64_t ino,
		 const struct blk_list_entry *b, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	k->found++;
	if (!k->telling)
		return;
	k->told++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (k->c->o.limit && k->told > k->c->o.limit)
		return;
	if (!k->c->o.json)
		printf("%s: inode %" PRIu64 ": %s\n", kind, ino, text);
	json_array_append_new(k->findings, json_pack(
		"{s:s,s:I,s:o,s:s}", "kind", kind, "inode", (json_int_t)ino,
		"index", b ? json_integer((json_int_t)b->index) : json_null(),
		"text", text));
}

static void check_place(struct fsck *k, const struct link *l,
			const struct blk_list_entry *b)
{
	int at = place_primary(k->map, b->ino, b->index);

	if (at < 0)
		find(k, "wrong place", b->ino, b, "block %" PRIu64
		     " is on blockd %u, its slot %u has no daemon", b->index,
		     l->d->id, place_slot(b->ino, b->index));
	else if (k->map->daemons[at].id != l->d->id)
		find(k, "wrong place", b->ino, b, "block %" PRIu64
		     " is on blockd %u, its slot %u belongs to blockd %u",
		     b->index, l->d->id, place_slot(b->ino, b->index),
		     k->map->daemons[at].id);
}

/* @a: the inode the block belongs to. */
static void check_block(struct fsck *k, const struct link *l,
			const struct meta_attr *a,
			const struct blk_list_entry *b)
{
	uint64_t start;

	check_place(k, l, b);
	if (!S_ISREG(a->mode)) {
		find(k, "extra", b->ino, b, "block %" PRIu64 " on blockd %u of "
		     "something that is no file", b->index, l->d->id);
		return;
	}
	if (b->block_log2 != a->block_log2) {
		find(k, "wrong", b->ino, b, "block %" PRIu64 " on blockd %u "
		     "is of %u bytes, the file's blocks are of %u", b->index,
		     l->d->id, 1u << (b->block_log2 & 31), 1u << a->block_log2);
		return;
	}
	if (b->cut > a->cut)
		find(k, "wrong", b->ino, b, "block %" PRIu64 " on blockd %u "
		     "has cut number %" PRIu64 ", metadata only %" PRIu64,
		     b->index, l->d->id, b->cut, a->cut);
	/* The holder of the lease knows of growth before metad does. */
	if ((a->flags & META_ATTR_LEASED) || b->end == 0)
		return;
	if (b->index > (uint64_t)FILE_SIZE_MAX >> b->block_log2 ||
	    b->end > 1u << b->block_log2) {
		find(k, "wrong", b->ino, b, "block %" PRIu64 " on blockd %u "
		     "lies outside of any file", b->index, l->d->id);
		return;
	}
	start = b->index << b->block_log2;
	if (start + b->end > a->size)
		find(k, "beyond the end", b->ino, b, "block %" PRIu64
		     " on blockd %u has data up to byte %" PRIu64
		     ", the file's size is %" PRIu64, b->index, l->d->id,
		     start + b->end, a->size);
}

static void check_units(struct fsck *k, const struct meta_attr *a,
			const struct tally *t)
{
	if (a->flags & META_ATTR_LEASED)
		return;
	if (t->units != a->units)
		k->fixable++;
	k->lost += t->units < a->units;
	if (t->units < a->units)
		find(k, "missing", a->ino, NULL, "%" PRIu64 " units of 4 KiB "
		     "counted, %" PRIu64 " stored: data is lost", a->units,
		     t->units);
	else if (t->units > a->units)
		find(k, "extra", a->ino, NULL, "%" PRIu64 " units of 4 KiB "
		     "counted, %" PRIu64 " stored", a->units, t->units);
}

/* Takes all blocks of inode @ino from the cursors. @a: NULL: there is no such
 * inode. Returns 0 or -errno. */
static int gather(struct fsck *k, struct block_cursor *v, uint64_t ino,
		  const struct meta_attr *a, struct tally *t)
{
	int rv;

	for (uint32_t i = 0; i < k->blockd_count; i++) {
		struct block_cursor *c = &v[i];

		while (c->valid && c->cur.ino == ino) {
			t->blocks++;
			t->units += c->cur.units;
			k->fixable += !a;
			if (a)
				check_block(k, c->l, a, &c->cur);
			else
				find(k, "extra", ino, &c->cur, "block %" PRIu64
				     " on blockd %u of an inode that is not",
				     c->cur.index, c->l->d->id);
			rv = block_next(c);
			if (rv < 0) {
				c->l->error = rv;
				link_complain(c->l);
				return rv;
			}
		}
	}
	return 0;
}

static void suspect(struct fsck *k, uint64_t ino)
{
	uint64_t *p;

	if (k->suspect_count == SUSPECTS_MAX) {
		k->suspects_full = true;
		return;
	}
	if (k->suspect_count % 1024 == 0) {
		p = realloc(k->suspects,
			    (k->suspect_count + 1024) * sizeof(*p));
		if (!p) {
			k->suspects_full = true;
			return;
		}
		k->suspects = p;
	}
	k->suspects[k->suspect_count++] = ino;
}

/* The smallest inode below @limit that has blocks, or @limit. */
static uint64_t lowest(const struct fsck *k, uint64_t limit)
{
	for (uint32_t i = 0; i < k->blockd_count; i++)
		if (k->blocks[i].valid && k->blocks[i].cur.ino < limit)
			limit = k->blocks[i].cur.ino;
	return limit;
}

/* Compares one inode number, @a NULL when metad does not have it. */
static int compare(struct fsck *k, struct block_cursor *v, uint64_t ino,
		   const struct meta_attr *a, struct tally *t)
{
	int rv;

	*t = (struct tally){ 0, 0 };
	k->found = k->fixable = k->lost = 0;
	rv = gather(k, v, ino, a, t);
	if (rv == 0 && a && S_ISREG(a->mode))
		check_units(k, a, t);
	return rv;
}

static int pass(struct fsck *k)
{
	struct inode_cursor in;
	struct tally t;
	uint64_t ino;
	int rv;

	rv = inode_first(&in, k->metad, 0);
	for (;;) {
		if (rv < 0) {
			ctl_err("%s: list of inodes: %s", link_name(k->metad),
				strerror(-rv));
			break;
		}
		ino = lowest(k, in.valid ? in.cur.ino : UINT64_MAX);
		if (!in.valid && ino == UINT64_MAX)
			break;
		rv = compare(k, k->blocks, ino,
			     in.valid && ino == in.cur.ino ? &in.cur : NULL,
			     &t);
		if (rv < 0)
			break;
		k->stored_blocks += t.blocks;
		k->units += t.units;
		if (k->found)
			suspect(k, ino);
		if (k->inodes % PROGRESS_EACH == 0)
			progress(k->c, "%" PRIu64 " inodes, %" PRIu64
				 " blocks compared", k->inodes,
				 k->stored_blocks);
		if (in.valid && ino == in.cur.ino) {
			k->inodes++;
			k->in_use += (in.cur.flags & META_ATTR_LEASED) != 0;
			rv = inode_next(&in);
		}
	}
	inode_end(&in);
	progress_clear();
	return rv;
}

/* One more look at one inode, alone. */
static int look(struct fsck *k, uint64_t ino)
{
	struct block_cursor *v = calloc(k->blockd_count + 1, sizeof(*v));
	struct meta_attr a;
	struct tally t;
	int rv, has = meta_getattr(k->metad, ino, &a);

	if (!v)
		return -ENOMEM;
	rv = has == -ENOENT || has == -ESTALE ? 0 : has;
	for (uint32_t i = 0; rv == 0 && i < k->blockd_count; i++)
		rv = block_first(&v[i], k->blocks[i].l, ino);
	if (rv == 0)
		rv = compare(k, v, ino, has == 0 ? &a : NULL, &t);
	for (uint32_t i = 0; i < k->blockd_count; i++)
		block_end(&v[i]);
	free(v);
	return rv;
}

/* What the last look found of @ino, if that can be done without touching data:
 * metad purges or counts. Lost data stays a fault also when the count is right
 * again. */
static int repair(struct fsck *k, uint64_t ino)
{
	struct admin_repair m = { .ino = ino };
	uint64_t found = k->found, fixable = k->fixable, lost = k->lost;
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[8];
	int rv;

	if (fixable == 0)
		return 0;
	wire_out_init(&o, body, sizeof(body));
	admin_repair_encode(&o, &m);
	rv = link_call(k->metad, WIRE_OP_ADMIN_REPAIR, body, o.len,
		       k->c->o.timeout_ms, &f);
	if (rv < 0) {
		ctl_err("inode %" PRIu64 " cannot be repaired now: %s", ino,
			rv == -EINVAL ? "it was not given out; unmount and "
			"mount again" : strerror(-rv));
		return 0;
	}
	rpc_frame_free(f);
	k->telling = false;
	rv = look(k, ino);
	k->telling = true;
	if (rv < 0)
		return rv;
	/* What is left has been told, unless it came just now. */
	if (found > k->found + lost)
		k->repaired += found - k->found - lost;
	if (!k->c->o.json)
		printf("%s: inode %" PRIu64 "\n", k->found == 0 ? "repaired" :
		       "repaired in part", ino);
	k->found = found;
	return 0;
}

/* Purges and returned leases settle what was only on its way. */
static int look_again(struct fsck *k)
{
	size_t left = k->suspect_count, kept;
	int rv = 0;

	for (int n = 0; n < LOOKS && left > 0 && rv == 0; n++) {
		k->telling = n == LOOKS - 1;
		if (n > 0)
			usleep(LOOK_PAUSE_US);
		kept = 0;
		for (size_t i = 0; i < left && rv == 0; i++) {
			if (!k->telling)
				progress(k->c, "%zu inodes are looked at "
					 "again: %zu", left, i);
			rv = look(k, k->suspects[i]);
			if (rv == 0 && k->telling && k->c->o.repair)
				rv = repair(k, k->suspects[i]);
			if (k->found)
				k->suspects[kept++] = k->suspects[i];
		}
		left = kept;
		progress_clear();
	}
	if (rv < 0)
		ctl_err("looking again at what did not agree: %s",
			strerror(-rv));
	return rv;
}

static int scrub_all(struct fsck *k)
{
	struct blk_scrub_reply m = { .units_bad = 0 };
	int rv;

	for (uint32_t i = 0; i < k->blockd_count; i++) {
		struct link *l = k->blocks[i].l;

		assert(l); /* of all below blockd_count: open_all() */
		ctl_say(k->c, "%s: verifying all checksums", link_name(l));
		rv = link_scrub(l, &m);
		if (rv < 0) {
			ctl_err("%s: scrub: %s", link_name(l), strerror(-rv));
			return rv;
		}
		if (m.units_bad == 0)
			continue;
		k->told++;
		json_array_append_new(k->findings, json_pack(
			"{s:s,s:I,s:I}", "kind", "bad checksums", "blockd",
			(json_int_t)l->d->id, "units",
			(json_int_t)m.units_bad));
		if (!k->c->o.json)
			printf("bad checksums: %" PRIu64 " units on blockd "
			       "%u\n", m.units_bad, l->d->id);
	}
	return 0;
}

/* Blocks of a daemon that is not asked would all be missing. */
static int check_conf(const struct fsck *k)
{
	const struct conf *conf = &k->c->conf;

	for (uint32_t i = 0; i < k->map->daemon_count; i++) {
		uint32_t id = k->map->daemons[i].id;

		if (conf_find(conf->blockds, conf->blockd_count, id))
			continue;
		ctl_err("%s does not name blockd %u, which is part of the "
			"cluster; give the file that hail-metad has",
			k->c->conf_path, id);
		return -ENOENT;
	}
	return 0;
}

/* Every daemon must answer, for the same reason. */
static int open_all(struct fsck *k)
{
	int rv;

	if (links_open(k->c, &k->ls) < 0)
		return -ENOMEM;
	k->metad = links_metad(&k->ls);
	if (!k->metad)
		return -ENOENT;
	rv = meta_map(k->metad, &k->map);
	if (rv < 0) {
		ctl_err("%s: cluster map: %s", link_name(k->metad),
			strerror(-rv));
		return rv;
	}
	rv = check_conf(k);
	if (rv < 0)
		return rv;
	k->blocks = calloc(k->ls.count, sizeof(*k->blocks));
	if (!k->blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < k->ls.count; i++) {
		struct link *l = &k->ls.v[i];

		if (l->kind != DAEMON_BLOCKD)
			continue;
		rv = l->error;
		if (rv == 0) {
			rv = block_first(&k->blocks[k->blockd_count], l, 0);
			l->error = rv;
		}
		if (rv < 0) {
			link_complain(l);
			return rv;
		}
		k->blockd_count++;
	}
	return 0;
}

static void report(struct fsck *k)
{
	if (k->c->o.json) {
		out_json(json_pack(
			"{s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:O}", "clean",
			k->told == 0, "inodes", (json_int_t)k->inodes,
			"blocks", (json_int_t)k->stored_blocks, "units",
			(json_int_t)k->units, "in_use", (json_int_t)k->in_use,
			"found", (json_int_t)k->told, "repaired",
			(json_int_t)k->repaired, "findings",
			k->findings));
		return;
	}
	if (k->c->o.limit && k->told > k->c->o.limit)
		printf("... %" PRIu64 " more; see --limit\n",
		       k->told - k->c->o.limit);
	printf("%" PRIu64 " inodes, %" PRIu64 " blocks, %" PRIu64
	       " units of 4 KiB: %s", k->inodes, k->stored_blocks, k->units,
	       k->told ? "" : "clean");
	if (k->told)
		printf("%" PRIu64 " faults", k->told);
	if (k->repaired)
		printf(", %" PRIu64 " of them repaired", k->repaired);
	putchar('\n');
	if (k->in_use)
		printf("%" PRIu64 " files are being written: their sizes and "
		       "counts were not checked\n", k->in_use);
	if (k->suspects_full)
		printf("more than %u inodes did not agree at first; the rest "
		       "was not looked at again\n", SUSPECTS_MAX);
}

int cmd_fsck(struct ctl *c, char **args)
{
	struct fsck k = { .c = c, .findings = json_array() };
	int rv;

	(void)args;
	rv = open_all(&k);
	if (rv == 0)
		rv = pass(&k);
	if (rv == 0)
		rv = look_again(&k);
	if (rv == 0 && c->o.scrub)
		rv = scrub_all(&k);
	if (k.suspects_full)
		k.told++;
	if (rv == 0)
		report(&k);
	for (uint32_t i = 0; i < k.blockd_count; i++)
		block_end(&k.blocks[i]);
	free(k.blocks);
	free(k.suspects);
	cmap_free(k.map);
	json_decref(k.findings);
	links_close(&k.ls);
	return rv == 0 && k.told == k.repaired ? CTL_OK : CTL_FAILED;
}
