/* Start-up: the journal back into memory, then the allocator.
 *
 * Replay starts at the tail the index names and takes records while their
 * numbers follow each other. The first that is missing is the end, unless a
 * record of a larger number lies anywhere: only one is ever being written, so
 * that means damage, not a torn write.
 */
#include "blockd/mem.h"
#include "blockd/store_priv.h"
#include "common/diag.h"

#define RECOVER_WINDOW (4u << 20)
/* A record is at most COMMIT_META_MAX and COMMIT_UNITS_MAX units. */
_Static_assert(RECOVER_WINDOW >= COMMIT_META_MAX +
	       (COMMIT_UNITS_MAX + 1) * UNIT_SIZE, "a record in a window");

struct replay {
	struct store *s;
	/* A window of the journal: reading record by record would wait for
	 * the disk thousands of times. */
	uint8_t *win; /* [RECOVER_WINDOW] */
	uint64_t win_off;
	uint64_t win_len;
	/* Units that records and superseded images name: not free before a
	 * checkpoint has made both obsolete. */
	struct run_list named;
	char *why;
	size_t why_size;
};

/* ---- reading records ---- */
/* The window cannot be read whole: up to the first unit that cannot. */
static int window_part(struct replay *r)
{
	struct store *s = r->s;
	uint64_t len = r->win_len;
	int err = 0;

	r->win_len = 0;
	while (r->win_len < len && err == 0) {
		err = s->dev->vt->read_now(s->dev, s->journal_file,
					   r->win_off + r->win_len,
					   r->win + r->win_len, UNIT_SIZE);
		if (err == 0)
			r->win_len += UNIT_SIZE;
	}
	/* So the kernel calls a bad sector where the file is O_DIRECT. */
	return err == -ENODATA ? -EIO : err;
}

/* Bytes [off, off+len) of the journal, which must lie in it. */
static int window(struct replay *r, uint64_t off, uint64_t len,
		  const uint8_t **ret)
{
	struct store *s = r->s;
	int err;

	if (off < r->win_off || off + len > r->win_off + r->win_len) {
		r->win_off = off;
		r->win_len = u64_min(RECOVER_WINDOW,
				     s->super.journal_bytes - off);
		err = s->dev->vt->read_now(s->dev, s->journal_file, off,
					   r->win, r->win_len);
		if (err != 0)
			err = window_part(r);
		if (r->win_len < len)
			return err != 0 ? err : -EIO;
	}
	*ret = r->win + (off - r->win_off);
	return 0;
}

/* A record of another format is no end of the journal: what it says was
 * acknowledged. A wrong format in a damaged one is. */
static int record_foreign(struct replay *r, uint64_t off,
			  const struct jrec_header *h)
{
	const uint8_t *p;
	int err = window(r, off, jrec_size(h), &p);

	if (err != 0)
		return err;
	if (jrec_check_meta(p, h) != 0)
		return 0;
	(void)snprintf(r->why, r->why_size, "%s/journal: record %llu is of "
		       "another format than this program knows; run a newer "
		       "hail-blockd", r->s->dir, (unsigned long long)h->seq);
	return -EPROTONOSUPPORT;
}

/* 1: the wanted record is at @off and @*p; 0: it is not; -errno. */
static int record_read(struct replay *r, uint64_t off, uint64_t seq,
		       struct jrec_header *h, const uint8_t **p)
{
	struct store *s = r->s;
	uint64_t left = s->super.journal_bytes - off;
	int err = window(r, off, UNIT_SIZE, p);

	if (err != 0)
		return err;
	err = jrec_peek(*p, s->super.nonce, u64_min(left, s->record_max), h);
	if (err == -EPROTONOSUPPORT && h->seq == seq)
		return record_foreign(r, off, h);
	if (err != 0 || h->seq != seq)
		return 0;
	err = window(r, off, jrec_size(h), p);
	if (err != 0)
		return err;
	return jrec_check(*p, h) == 0 ? 1 : 0;
}

/* Is there a whole record with a number beyond @seq? */
static int later_record(struct replay *r, uint64_t seq, uint64_t *off_ret)
{
	struct store *s = r->s;
	struct jrec_header h;
	const uint8_t *p;
	int found = 0;

	for (uint64_t off = 0; off < s->super.journal_bytes && found == 0;
	     off += UNIT_SIZE) {
		found = window(r, off, UNIT_SIZE, &p);
		/* Nobody needs what lies beyond the journal's end: a bad place
		 * there is written over when its turn comes. */
		if (found == -EIO) {
			found = 0;
			continue;
		}
		if (found != 0 ||
		    jrec_peek(p, s->super.nonce, s->record_max, &h) != 0 ||
		    h.seq <= seq ||
		    off + jrec_size(&h) > s->super.journal_bytes)
			continue;
		*off_ret = off;
		found = record_read(r, off, h.seq, &h, &p);
	}
	return found;
}

/* ---- applying them ---- */
static int replay_unit(struct store *s, struct block *b,
		       const struct jrec_run *r, uint32_t i)
{
	uint32_t u = r->run.first + i;
	struct wire_in crc;
	struct ubuf *ub = NULL;

	ubuf_drop(s, b, u);
	b->m.loc[u] = loc_is_disk(r->run.loc) ? r->run.loc + i : r->run.loc;
	if (r->crcs != NULL) {
		wire_in_init(&crc, r->crcs + (size_t)i * 4, 4);
		b->m.crc[u] = wire_get_u32(&crc);
	}
	bits_put(b->cdirty, u, false);
	if (!r->inlined)
		return 0;
	ub = ubuf_get(s, true);
	if (ub == NULL)
		return -ENOMEM;
	ubuf_attach(s, b, u, ub);
	memcpy(ubuf_mem(s, ub), r->units + (size_t)i * UNIT_SIZE, UNIT_SIZE);
	ubuf_set_dirty(s, ub, true);
	ub->in_journal = true;
	return 0;
}

static int named_add(struct replay *rp, const struct image_run *r)
{
	return !loc_is_disk(r->loc) ||
	       run_list_add(&rp->named, r->loc, r->count) ? 0 : -ENOMEM;
}

/* @apply: else the runs are only taken note of. */
static int replay_runs(struct replay *rp, struct block *b,
		       struct jrec_iter *it, bool apply)
{
	struct jrec_run r;
	int n, err;

	while ((n = jrec_next_run(it, &r)) == 1) {
		err = named_add(rp, &r.run);
		for (uint32_t i = 0; apply && err == 0 && i < r.run.count; i++)
			err = replay_unit(rp->s, b, &r, i);
		if (err != 0)
			return err;
	}
	return n;
}

/* It is in the journal already: only for the checkpoint. */
static void replay_dirty(struct store *s, struct block *b, uint64_t version)
{
	block_set_version(s, b, u64_max(b->m.version, version));
	block_unlist_journal(s, b);
	b->units = image_allocated(&b->m);
}

static int replay_block(struct replay *rp, struct jrec_iter *it,
			const struct jrec_item *item)
{
	struct store *s = rp->s;
	struct inode *in;
	struct block *b;
	int err;

	in = store_inode_get(s, item->key.ino, &err);
	if (in == NULL)
		return err;
	err = block_get(s, in, item->key.index, item->m.block_log2, true, &b);
	if (err == 0) {
		/* A block in several pieces has them all in one version. */
		if (item->m.version <= b->encoded && b->encoded != 0) {
			err = replay_runs(rp, b, it, false);
		} else {
			err = replay_runs(rp, b, it, true);
			b->m.end = item->m.end;
			b->m.cut = item->m.cut;
			b->m.mtime_ns = item->m.mtime_ns;
			replay_dirty(s, b, item->m.version);
		}
		block_put(s, b);
	}
	inode_put(s, in);
	return err;
}

/* Blocks in memory at once; those in the index when they are loaded. */
static int replay_cut(struct store *s, const struct image_cut *c)
{
	struct cut *cut;
	int err;
	struct inode *in = store_inode_get(s, c->ino, &err);

	if (in == NULL)
		return err;
	cut = cut_new(s, in, c);
	if (cut != NULL) {
		cut->journalled = true;
		cut_blocks(s, in, c);
		while (!slist_empty(&in->jblocks))
			block_unlist_journal(s, container_of(
				in->jblocks.next, struct block, jlink));
	}
	inode_put(s, in);
	return cut == NULL ? -ENOMEM : 0;
}

static int replay_record(struct replay *rp, const uint8_t *buf,
			 const struct jrec_header *h)
{
	struct store *s = rp->s;
	struct jrec_iter it;
	struct jrec_item item;
	int n, err = 0;

	jrec_iter_init(&it, buf, h);
	while (err == 0 && (n = jrec_next(&it, &item)) != 0) {
		if (n < 0)
			return n;
		if (item.kind == JREC_BLOCK)
			err = replay_block(rp, &it, &item);
		else
			err = replay_cut(s, &item.cut);
	}
	/* NOLINTNEXTLINE: errors are negative, 1 has a header */
	s->version = u64_max(s->version, h->version);
	s->ino_max = u64_max(s->ino_max, h->ino_max);
	s->session_max = u64_max(s->session_max, h->session_max);
	return err;
}

/* The record after the one that ended at @*off. */
static int record_next(struct replay *r, uint64_t *off, struct jrec_header *h,
		       const uint8_t **p)
{
	struct store *s = r->s;
	int n = 0;

	if (*off < s->super.journal_bytes)
		n = record_read(r, *off, s->seq, h, p);
	if (n == 0 && *off != 0) {
		n = record_read(r, 0, s->seq, h, p);
		if (n == 1)
			*off = 0;
	}
	return n;
}

static int replay_all(struct replay *r)
{
	struct store *s = r->s;
	struct jrec_header h;
	const uint8_t *p;
	uint64_t later = 0;
	int n, err;

	while ((n = record_next(r, &s->head, &h, &p)) == 1) {
		err = replay_record(r, p, &h);
		if (err != 0) {
			(void)snprintf(r->why, r->why_size, "%s/journal: "
				       "record %llu cannot be replayed: %s",
				       s->dir, (unsigned long long)s->seq,
				       strerror(-err));
			return err;
		}
		s->head += jrec_size(&h);
		if (s->head == s->super.journal_bytes)
			s->head = 0;
		s->seq++;
	}
	if (n == 0)
		n = later_record(r, s->seq, &later);
	if (n == 1) {
		(void)snprintf(r->why, r->why_size, "%s/journal: damaged: "
			       "record %llu is missing or wrong but a later "
			       "one is at byte %llu; restore the store from a "
			       "replica or format it anew", s->dir,
			       (unsigned long long)s->seq,
			       (unsigned long long)later);
		return -EBADMSG;
	}
	if (n < 0 && r->why[0] == '\0')
		(void)snprintf(r->why, r->why_size, "%s/journal: record %llu, "
			       "or where it would be, cannot be read: %s; see "
			       "the kernel's log", s->dir,
			       (unsigned long long)s->seq, strerror(-n));
	return n;
}

/* The last record may be one whose write, or its flush, was cut off or failed:
 * read from the disk's cache, and not on the disk. From now on it counts as
 * durable, and units are overwritten in place because of it. */
static int replayed_sync(struct replay *r)
{
	struct store *s = r->s;
	int err;

	if (s->seq == s->tail_seq || s->o.read_only)
		return 0;
	err = s->dev->vt->sync_now(s->dev, s->journal_file);
	if (err != 0)
		(void)snprintf(r->why, r->why_size, "%s/journal: cannot be "
			       "flushed: %s", s->dir, strerror(-err));
	return err;
}

static int replay(struct replay *r)
{
	struct store *s = r->s;
	uint64_t size = 0;
	int err;

	s->journal_file = s->dev->vt->open(s->dev, "journal", false);
	err = s->journal_file < 0 ? s->journal_file :
	      s->dev->vt->size(s->dev, s->journal_file, &size);
	if (err != 0 || size != s->super.journal_bytes) {
		(void)snprintf(r->why, r->why_size, "%s/journal: %s; restore "
			       "the store or format it anew", s->dir,
			       err != 0 ? strerror(-err) : "wrong size");
		return err != 0 && err != -ENOENT ? err : -EBADMSG;
	}
	r->win = mem_alloc_io(RECOVER_WINDOW);
	if (r->win == NULL)
		return -ENOMEM;
	err = replay_all(r);
	mem_free(r->win);
	return err != 0 ? err : replayed_sync(r);
}

/* ---- segments and the allocator ---- */
static int segment_open(struct store *s, uint32_t i, char *why,
			size_t why_size)
{
	uint32_t want = space_segment_units(s, i);
	uint64_t size;
	char name[32];
	int err, file;

	space_segment_name(name, sizeof(name), i);
	file = s->dev->vt->open(s->dev, name, false);
	if (file < 0)
		return file;
	err = s->dev->vt->size(s->dev, file, &size);
	/* Its making was cut off, or the capacity was raised. */
	if (err == 0 && size < (uint64_t)want * UNIT_SIZE &&
	    !s->o.read_only) {
		if (s->dev->vt->resize(s->dev, file, (uint64_t)want *
				       UNIT_SIZE) == 0 &&
		    s->dev->vt->sync_now(s->dev, file) == 0)
			size = (uint64_t)want * UNIT_SIZE;
	}
	if (err == 0)
		err = space_add_segment(s, file, (uint32_t)u64_min(
			size / UNIT_SIZE, SEG_UNITS));
	if (err != 0)
		(void)snprintf(why, why_size, "%s/%s: %s", s->dir, name,
			       strerror(-err));
	return err;
}

static int segments_open(struct store *s, char *why, size_t why_size)
{
	int err = 0;

	for (uint32_t i = 0; i < SEG_COUNT_MAX && err == 0; i++)
		err = segment_open(s, i, why, why_size);
	if (err == 0 || err == -ENOENT) {
		if (s->o.read_only)
			return 0;
		/* A name that is not on disk could take its units along. */
		return s->dev->vt->sync_dir(s->dev);
	}
	if (why[0] == '\0')
		(void)snprintf(why, why_size, "%s: segments: %s", s->dir,
			       strerror(-err));
	return err;
}

static int image_take(struct store *s, const struct image_key *key,
		      const struct image *m, char *why, size_t why_size)
{
	struct image_run r;

	for (uint32_t u = 0; u < image_units(m); u += r.count) {
		int err;

		r = image_run_at(m, u, image_units(m));
		if (r.loc == LOC_UNWRITTEN)
			s->promised += r.count;
		if (!loc_is_disk(r.loc))
			continue;
		err = extent_mark(&s->map, r.loc, r.count);
		if (err == 0)
			continue;
		(void)snprintf(why, why_size, "%s: inode %llu block %llu: "
			       "units %u+%u are %s; run hail-blockd --check",
			       s->dir, (unsigned long long)key->ino,
			       (unsigned long long)key->index, r.loc, r.count,
			       err == -EEXIST ? "used twice" :
						"outside every segment");
		return -EBADMSG;
	}
	return 0;
}

static int take_memory(struct store *s, char *why, size_t why_size)
{
	int err = 0;

	for (uint32_t i = 0; i < BLOCK_HASH_SIZE && err == 0; i++) {
		struct slist *l = &s->block_hash[i];

		for (struct slist *e = l->next; e != l && err == 0;
		     e = e->next) {
			struct block *b = container_of(e, struct block, hash);
			struct image_key key = { b->in->ino, b->index };

			err = image_take(s, &key, &b->m, why, why_size);
		}
	}
	return err;
}

/* Units in memory without a place hold a promise. */
static void promise_memory(struct store *s)
{
	for (uint32_t i = 0; i < s->ubuf_next; i++) {
		struct ubuf *ub = &s->ubufs[i];

		if (ub->b == NULL || !ub->dirty ||
		    ub->b->m.loc[ub->unit] != LOC_MEMORY)
			continue;
		ub->reserved = true;
		s->promised++;
	}
}

static int image_named(struct replay *rp, const struct image *m)
{
	struct image_run r;
	int err = 0;

	for (uint32_t u = 0; u < image_units(m) && err == 0; u += r.count) {
		r = image_run_at(m, u, image_units(m));
		err = named_add(rp, &r);
	}
	return err;
}

/* Images only in the index count as they are there: what waiting cuts take
 * from them the next checkpoint gives back. */
static int take_index(struct replay *rp)
{
	struct store *s = rp->s;
	struct image_key key = { 0, 0 };
	struct image m = { .loc = s->walk_loc, .crc = s->walk_crc };
	const void *val;
	size_t len;
	int n, err = index_walk_begin(s->index, &key);

	if (err != 0)
		return err;
	while ((n = index_walk_next(s->index, &key, &val, &len)) == 1) {
		n = image_decode(&key, val, len, &m);
		if (n != 0)
			break;
		/* Of a checkpoint that was cut off, it may be newer than all
		 * that records say, of blocks in memory, too: a change that
		 * got a number below it would be taken for an old one. */
		s->version = u64_max(s->version, m.version);
		if (block_find(s, key.ino, key.index) != NULL)
			n = image_named(rp, &m);
		else
			n = image_take(s, &key, &m, rp->why, rp->why_size);
		if (n != 0)
			break;
	}
	index_walk_end(s->index);
	return n;
}

/* What is named, but not used, waits for the first checkpoint. */
static int named_wait(struct replay *rp)
{
	struct store *s = rp->s;

	for (size_t i = 0; i < rp->named.count; i++) {
		uint32_t loc = rp->named.runs[i].loc;
		uint32_t end = loc + rp->named.runs[i].count;

		for (; loc != end; loc++) {
			if (extent_used(&s->map, loc))
				continue;
			if (extent_mark(&s->map, loc, 1) != 0)
				assert(false);
			if (!run_list_add(&s->free_next, loc, 1))
				return -ENOMEM;
		}
	}
	return 0;
}

static int allocator_fill(struct replay *r)
{
	struct store *s = r->s;
	int err;

	/* Frees during replay mean nothing: the allocator comes now. */
	s->free_next.count = 0;
	s->promised = 0;
	err = segments_open(s, r->why, r->why_size);
	if (err == 0)
		err = take_memory(s, r->why, r->why_size);
	if (err == 0)
		err = take_index(r);
	if (err == 0)
		promise_memory(s);
	return err == 0 ? named_wait(r) : err;
}

int recover(struct store *s, const struct index_state *st, char *why,
	    size_t why_size)
{
	struct replay r = { .s = s, .why = why, .why_size = why_size };
	int err;

	s->head = st->tail_off;
	s->seq = st->tail_seq;
	s->tail = st->tail_off;
	s->tail_seq = st->tail_seq;
	s->version = st->version;
	s->ino_max = st->ino_max;
	s->session_max = st->session_max;
	if (s->tail >= s->super.journal_bytes || s->tail % UNIT_SIZE != 0) {
		(void)snprintf(why, why_size, "%s/index: names a place "
			       "outside the journal; restore both from the "
			       "same time", s->dir);
		return -EBADMSG;
	}
	err = replay(&r);
	if (err == 0)
		err = allocator_fill(&r);
	mem_free(r.named.runs);
	if (err == 0 && s->seq != s->tail_seq)
		diag_info("store", "event=replayed records=%llu dirty=%u",
			  (unsigned long long)(s->seq - s->tail_seq),
			  s->ubuf_used);
	return err;
}
