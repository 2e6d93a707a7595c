/* Offline verification of a store. Nothing is written.
 *
 * What store_open() would refuse is reported by its own sentence; beyond it,
 * each image is held against the segments, against all others, and, if asked,
 * against its data.
 */
#include "blockd/mem.h"
#include "blockd/store_priv.h"
#include "common/crc32c.h"

struct check {
	struct store *s;
	FILE *out;
	uint8_t *buf;
	int defects;
	uint64_t blocks;
	uint64_t units;
};

static void defect(struct check *c, const struct image_key *key, uint32_t u,
		   const char *what)
{
	c->defects++;
	(void)fprintf(c->out, "inode %llu block %llu unit %u: %s\n",
		      (unsigned long long)key->ino,
		      (unsigned long long)key->index, u, what);
}

static void check_data(struct check *c, const struct store_walk *w, uint32_t u)
{
	struct store *s = c->s;
	uint32_t loc = w->m->loc[u];
	int err = s->dev->vt->read_now(s->dev,
				       s->segs[loc >> SEG_SHIFT]->file,
				       (uint64_t)(loc % SEG_UNITS) <<
				       UNIT_SHIFT, c->buf, UNIT_SIZE);

	if (err != 0)
		defect(c, &w->key, u, "cannot be read");
	else if (crc32c(0, c->buf, UNIT_SIZE) != w->m->crc[u])
		defect(c, &w->key, u, "checksum is wrong");
}

static int check_blocks(struct check *c, bool data)
{
	struct image_key from = { 0, 0 };
	struct store_walk w;
	int n = walk_begin(c->s, &w, &from, NULL);

	while (n == 0 && (n = walk_next(&w)) == 1) {
		n = 0;
		c->blocks++;
		for (uint32_t u = 0; u < image_units(w.m); u++) {
			if (!loc_is_data(w.m->loc[u]))
				continue;
			c->units++;
			if (w.m->end <= u << UNIT_SHIFT)
				defect(c, &w.key, u, "lies beyond the "
				       "block's end");
			/* What is in memory came whole from the journal. */
			if (data && loc_is_disk(w.m->loc[u]) &&
			    (w.b == NULL || w.b->ubuf[u] == 0))
				check_data(c, &w, u);
		}
	}
	walk_end(&w);
	return n;
}

int store_check(struct dev *d, const struct store_options *o, bool data,
		FILE *out)
{
	struct store_options ro = *o;
	struct check c = { .out = out };
	char why[512];
	int err;

	ro.read_only = true;
	err = store_open(d, &ro, &c.s, why, sizeof(why));
	if (err != 0) {
		(void)fprintf(out, "%s\n", why);
		return err == -EBADMSG ? 1 : err;
	}
	c.buf = mem_alloc_io(UNIT_SIZE);
	err = c.buf == NULL ? -ENOMEM : check_blocks(&c, data);
	(void)fprintf(out, "%llu blocks, %llu units, journal %llu of %llu "
		      "bytes, %d defects\n", (unsigned long long)c.blocks,
		      (unsigned long long)c.units,
		      (unsigned long long)journal_used(c.s),
		      (unsigned long long)c.s->super.journal_bytes,
		      c.defects);
	mem_free(c.buf);
	store_free(c.s);
	return err != 0 ? err : c.defects;
}
