/* Space: promises, frees that wait for a checkpoint, making and giving back of
 * segments.
 *
 * Free units minus promised ones, above the reserve, are what new data may
 * take; overwriting may dip into the reserve, because it gives back as much.
 */
#include "blockd/mem.h"
#include "blockd/op.h"
#include "common/diag.h"

#define FS_CHECK_MS 1000u
#define RELEASE_SLICE_RUNS 8192u

void space_segment_name(char *buf, size_t size, uint32_t seg)
{
	(void)snprintf(buf, size, "seg-%06u", seg);
}

static uint32_t segment_units(const struct store *s)
{
	return s->o.segment_units != 0 ? s->o.segment_units : SEG_UNITS;
}

/* Another segment is made when fewer units are free. */
static uint64_t ahead_units(const struct store *s)
{
	return s->promised + s->reserve + segment_units(s) / 2;
}

/* Units segment @seg has when complete: the last is cut to the capacity. */
uint32_t space_segment_units(const struct store *s, uint32_t seg)
{
	uint64_t units = s->o.capacity_bytes / UNIT_SIZE;
	uint64_t before = (uint64_t)seg * segment_units(s);

	if (units == 0)
		return segment_units(s);
	if (units <= before)
		return 0;
	return (uint32_t)u64_min(units - before, segment_units(s));
}

int space_add_segment(struct store *s, int file, uint32_t units)
{
	struct segment *seg;
	uint32_t i = s->map.seg_count;

	if (i >= s->seg_cap) {
		uint32_t cap = s->seg_cap == 0 ? 16 : s->seg_cap * 2;
		void *p = mem_grow(s->segs, cap * sizeof(struct segment *));

		if (p == NULL)
			return -ENOMEM;
		s->segs = p;
		s->seg_cap = cap;
	}
	seg = mem_alloc(sizeof(*seg));
	if (seg == NULL)
		return -ENOMEM;
	if (extent_add_segment(&s->map, units) != 0) {
		mem_free(seg);
		return -ENOMEM;
	}
	seg->file = file;
	slist_init(&seg->commit_link);
	slist_init(&seg->ckpt_link);
	s->segs[i] = seg;
	return 0;
}

/* Units more that the disk could give, asked at most once a second. */
uint64_t space_growable(struct store *s)
{
	uint64_t now = s->dev->vt->now_ms(s->dev);
	uint64_t have = s->map.unit_count + EXTENT_LOC_MIN;
	uint64_t units = UINT64_MAX;
	uint64_t disk, bytes;

	if (s->fs_checked_ms == 0 || now - s->fs_checked_ms > FS_CHECK_MS) {
		s->fs_checked_ms = now + (now == 0);
		if (s->dev->vt->space(s->dev, &bytes) == 0)
			s->fs_units_free = bytes / UNIT_SIZE;
	}
	if (s->map.seg_count == 0)
		have = 0;
	if (s->o.capacity_bytes != 0)
		units = s->o.capacity_bytes / UNIT_SIZE;
	units = u64_min(units, (uint64_t)SEG_COUNT_MAX * segment_units(s));
	units = units > have ? units - have : 0;
	/* What is on its way back to the disk is as good as there. */
	disk = s->fs_units_free;
	if (s->shrink.seg != NULL)
		disk += s->shrink.unit_count;
	/* The index grows, too, out of what we leave; and room for a part of a
	 * segment makes none (grow_start()). */
	if (disk < s->reserve + units) {
		units = disk > s->reserve ? disk - s->reserve : 0;
		units -= units % segment_units(s);
	}
	return units;
}

static void grow_run(struct worker_job *j)
{
	struct grow *g = container_of(j, struct grow, job);
	struct store *s = container_of(g, struct store, grow);
	struct dev *d = s->dev;

	g->err = d->vt->resize(d, g->file, (uint64_t)g->unit_count *
			       UNIT_SIZE);
	if (g->err == 0)
		g->err = d->vt->sync_now(d, g->file);
	/* No record may map units of a file whose name is not on disk. */
	if (g->err == 0)
		g->err = d->vt->sync_dir(d);
}

static void grow_done(struct worker_job *j)
{
	struct grow *g = container_of(j, struct grow, job);
	struct store *s = container_of(g, struct store, grow);

	store_enter(s);
	g->running = false;
	s->fs_checked_ms = 0;
	if (g->err == 0)
		g->err = space_add_segment(s, g->file, g->unit_count);
	if (g->err != 0) {
		diag_warn("store", "event=no-segment error=\"%s\"",
			  strerror(-g->err));
		s->dev->vt->close(s->dev, g->file);
		g->failed = true;
		g->failed_ms = s->dev->vt->now_ms(s->dev);
	}
	space_wake(s);
	store_leave(s, false);
}

/* Returns whether a segment is being made. */
static bool grow_start(struct store *s)
{
	struct grow *g = &s->grow;
	uint64_t now = s->dev->vt->now_ms(s->dev);
	char name[32];

	/* One that is being given back has the next one's name. */
	if (g->running || s->shrink.seg != NULL)
		return true;
	if (s->error != 0 || s->closing ||
	    (g->failed && now - g->failed_ms < FS_CHECK_MS))
		return false;
	g->unit_count = (uint32_t)u64_min(
		space_segment_units(s, s->map.seg_count), space_growable(s));
	/* A shorter one than the capacity asks for could not be told from a
	 * damaged one. */
	if (g->unit_count == 0 ||
	    g->unit_count < space_segment_units(s, s->map.seg_count))
		return false;
	space_segment_name(name, sizeof(name), s->map.seg_count);
	g->file = s->dev->vt->open(s->dev, name, true);
	if (g->file < 0) {
		g->failed = true;
		g->failed_ms = now;
		return false;
	}
	g->failed = false;
	g->running = true;
	g->job.run = grow_run;
	g->job.done = grow_done;
	worker_submit(s->worker, &g->job);
	return true;
}

void space_ahead(struct store *s)
{
	if (s->map.free_count < ahead_units(s))
		(void)grow_start(s);
}

/* ---- giving segments back ----
 *
 * The last segment may go as soon as the allocator has all of it free: nothing
 * that a restart reads names a free unit (store_priv.h), neither the index nor
 * a record from the journal's tail on; a unit whose write failed was never
 * named at all; one that is being written, or copied by a checkpoint, is not
 * free. Only a read may still be under way, of what was deleted meanwhile: the
 * file is closed after the last one (segment_put()). A scrub reads as others
 * do, and --check has the store for itself.
 *
 * Steps: out of the allocator; unlink; sync of the directory; close. Whatever
 * a crash leaves is a store without the segment or with it, all free. Each
 * name is gone from the disk before the next one goes: a hole in the numbers
 * would hide the segments behind it. Making one waits for the same name.
 */
static void shrink_run(struct worker_job *j)
{
	struct shrink *k = container_of(j, struct shrink, job);
	struct store *s = container_of(k, struct store, shrink);
	struct dev *d = s->dev;
	char name[32];

	space_segment_name(name, sizeof(name), k->number);
	k->err = d->vt->unlink(d, name);
	k->gone = k->err == 0;
	if (k->err == 0)
		k->err = d->vt->sync_dir(d);
	/* Here, because the loop's close would pay for it. */
	if (k->err == 0)
		k->err = d->vt->resize(d, k->seg->file, 0);
}

static void shrink_done(struct worker_job *j)
{
	struct shrink *k = container_of(j, struct shrink, job);
	struct store *s = container_of(k, struct store, shrink);
	struct segment *seg = k->seg;

	store_enter(s);
	k->running = false;
	k->seg = NULL;
	s->fs_checked_ms = 0;
	if (k->err != 0) {
		k->failed = true;
		diag_warn("store", "event=segment-not-freed segment=%u "
			  "error=\"%s\"", k->number, strerror(-k->err));
	} else {
		diag_info("store", "event=segment-freed segment=%u units=%u",
			  k->number, k->unit_count);
	}
	/* Without memory for it, it is found at the next start. */
	if (k->gone || space_add_segment(s, seg->file, k->unit_count) != 0)
		s->dev->vt->close(s->dev, seg->file);
	mem_free(seg);
	space_shrink(s);
	space_wake(s); /* who waited for another segment */
	store_leave(s, false);
}

static void shrink_submit(struct store *s)
{
	struct shrink *k = &s->shrink;

	k->running = true;
	k->job.run = shrink_run;
	k->job.done = shrink_done;
	worker_submit(s->worker, &k->job);
}

void segment_put(struct store *s, struct segment *seg)
{
	assert(seg->ios > 0);
	if (--seg->ios == 0 && seg == s->shrink.seg)
		shrink_submit(s);
}

void segment_flush(struct store *s, struct segment *seg, struct seg_flush *f,
		   void (*done)(struct dev_io *io, int res), uint32_t *pending)
{
	if (seg->flushed == seg->written)
		return;
	f->covers = seg->written;
	f->io = (struct dev_io){
		.op = DEV_FLUSH,
		.file = seg->file,
		.done = done,
		.priv = { seg, s },
	};
	(*pending)++;
	segment_hold(seg);
	s->st.flushes++;
	s->dev->vt->submit(s->dev, &f->io);
}

void segment_flushed(struct store *s, struct segment *seg,
		     const struct seg_flush *f, int res)
{
	if (res != 0)
		store_fail(s, res, "flush of a segment");
	else
		seg->flushed = u64_max(seg->flushed, f->covers);
	segment_put(s, seg);
}

void space_shrink(struct store *s)
{
	struct shrink *k = &s->shrink;
	uint32_t last = s->map.seg_count - 1;

	if (s->map.seg_count < 2 || k->seg != NULL || k->failed ||
	    s->grow.running || s->closing || s->error != 0)
		return;
	/* A whole segment more than makes another one: no to and fro. */
	if (s->map.free_count < ahead_units(s) + segment_units(s) +
				s->map.segs[last].unit_count)
		return;
	if (!extent_last_free(&s->map)) {
		extent_rewind(&s->map);
		return;
	}
	k->seg = s->segs[last];
	k->number = last;
	k->unit_count = s->map.segs[last].unit_count;
	extent_drop_last(&s->map);
	/* Who flushes it has units in it. */
	assert(slist_empty(&k->seg->commit_link) &&
	       slist_empty(&k->seg->ckpt_link));
	if (k->seg->ios == 0)
		shrink_submit(s);
}

static bool granted(const struct store *s, uint64_t holes, uint64_t temp)
{
	uint64_t free_units = s->map.free_count;
	uint64_t floor = holes > 0 ? s->reserve : 0;

	return s->promised + holes + temp + floor <= free_units;
}

static bool more_waits(const struct store *s)
{
	return s->free_next.count > 0 || !slist_empty(&s->cuts);
}

int space_ask(struct store *s, struct op *op, uint64_t holes, uint64_t temp)
{
	if (holes + temp == 0 || granted(s, holes, temp))
		return SPACE_OK;
	if (grow_start(s) || s->release_posted)
		return SPACE_WAIT;
	if (s->ckpt.full)
		return -ENOSPC;
	/* A whole checkpoint gives back all that is to be had, but for what
	 * waits for the next. */
	if (op->waited && s->ckpt.finished > op->wait_ckpt + more_waits(s) &&
	    s->ckpt.started == s->ckpt.finished)
		return -ENOSPC;
	if (store_clean(s) && s->free_next.count == 0)
		return -ENOSPC;
	if (!op->waited) {
		op->waited = true;
		op->wait_ckpt = s->ckpt.started;
	}
	ckpt_request(s);
	return SPACE_WAIT;
}

/* Blocks in memory pass their bound only because they are dirty. */
static bool objects_full(struct store *s)
{
	return !block_room(s) && s->dirty_blocks > DIRTY_BLOCKS_WAIT;
}

int memory_ask(struct store *s, uint32_t ubufs)
{
	if (ubuf_can(s, ubufs) && !objects_full(s))
		return SPACE_OK;
	/* An index without room on the disk holds every checkpoint up. */
	if (s->ckpt.full)
		return -ENOSPC;
	ckpt_request(s);
	return SPACE_WAIT;
}

bool run_list_add(struct run_list *l, uint32_t loc, uint32_t count)
{
	struct extent_run *last = l->count > 0 ? &l->runs[l->count - 1] : NULL;

	if (last != NULL && last->loc + last->count == loc &&
	    loc % SEG_UNITS != 0) {
		last->count += count;
		return true;
	}
	if (l->count == l->cap) {
		size_t cap = l->cap == 0 ? 256 : l->cap * 2;
		void *p = mem_grow(l->runs, cap * sizeof(*l->runs));

		if (p == NULL)
			return false;
		l->runs = p;
		l->cap = cap;
	}
	/* NOLINTNEXTLINE: grown above when full */
	l->runs[l->count++] = (struct extent_run){ loc, count };
	return true;
}

void space_freed(struct store *s, uint32_t loc, uint32_t count)
{
	/* Without memory the units are found free again at the next start. */
	(void)run_list_add(&s->free_next, loc, count);
}

static void release_more(void *arg)
{
	struct store *s = arg;

	store_enter(s);
	s->release_posted = false;
	space_release(s);
	store_leave(s, false);
}

/* A slice at a time: a purge of much may free a million runs. */
void space_release(struct store *s)
{
	struct run_list *l = &s->releasing;

	for (uint32_t n = 0; n < RELEASE_SLICE_RUNS && l->count > 0; n++) {
		struct extent_run *r = &l->runs[--l->count];

		extent_free(&s->map, r->loc, r->count);
	}
	if (l->count > 0 && !s->release_posted) {
		s->release_posted = true;
		s->dev->vt->post(s->dev, release_more, s);
	}
	if (l->count == 0)
		space_shrink(s);
	space_wake(s);
}

/* What @l names is free; the list is empty then. */
void space_take_freed(struct store *s, struct run_list *l)
{
	struct run_list old = s->releasing;

	if (old.count == 0) {
		s->releasing = *l;
		*l = old;
		return;
	}
	for (size_t i = 0; i < l->count; i++)
		(void)run_list_add(&s->releasing, l->runs[i].loc,
				   l->runs[i].count);
	l->count = 0;
}

void space_wake(struct store *s)
{
	slist_splice(&s->ready, &s->waiting);
}
