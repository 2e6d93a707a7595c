/* The table of inodes this mount knows: a cache of their attributes, and the
 * only place of what the mount has beyond metad (leased sizes, handles).
 *
 * Inode numbers are never used again and any inode can be asked for by its
 * number, so an entry without own state can go at any time, whatever the
 * kernel's lookup count says. Memory is therefore bounded by INODE_CACHE_MAX,
 * not by what the kernel caches; the count may be too small then, never too
 * large. It tells what is not needed soon, and it keeps an inode without a name
 * that the kernel still holds.
 */
#include "fuse/core/meta_priv.h"

#include <sys/stat.h>

/* About 24 MiB. Entries with own state (open, leased, ...) come on top. */
#define INODE_CACHE_MAX 65536u
#define INODE_HASH_SIZE 65536u /* a power of two */
#define INODE_SCAN_MAX 64u /* buckets looked at for one eviction */

int inode_table_init(struct core *c)
{
	c->inode_hash = calloc(INODE_HASH_SIZE, sizeof(*c->inode_hash));
	c->inode_hash_size = INODE_HASH_SIZE;
	return c->inode_hash ? 0 : -ENOMEM;
}

static struct core_inode **bucket(struct core *c, uint64_t ino)
{
	uint64_t h = ino * 0x9e3779b97f4a7c15u;
	return &c->inode_hash[h >> 48 & (c->inode_hash_size - 1)];
}

struct core_inode *inode_find(struct core *c, uint64_t ino)
{
	struct core_inode *in = *bucket(c, ino);
	while (in && in->ino != ino)
		in = in->hash_next;
	if (in)
		in->clock_ref = 1;
	return in;
}

/* Nothing in it that metad could not tell again. */
static bool inode_idle(const struct core_inode *in)
{
	return in->pin_count == 0 && in->open_count == 0 && !in->leased &&
	       !in->acquiring && !in->share_waiters &&
	       !in->size_dirty && !in->units_unsure && !in->atime_dirty &&
	       !in->ret_queued &&
	       in->ret_inflight == 0 && in->cut_busy == 0 &&
	       !in->cut_waiters && in->units_delta == 0 && !in->bad &&
	       in->wb_error == 0 && in->early_seq == 0 &&
	       in->early_error == 0 && (!in->orphan || in->orphan_returned) &&
	       (!in->wb || wb_inode_clean(in));
}

static void inode_free(struct core *c, struct core_inode *in)
{
	struct core_inode **p = bucket(c, in->ino);
	while (*p != in)
		p = &(*p)->hash_next;
	*p = in->hash_next;
	c->inode_count--;
	wb_inode_free(c, in); /* and what was read ahead */
	free(in);
}

/* The hand goes round the buckets; an entry used since it passed has another
 * round (CLOCK). */
static void inode_evict(struct core *c)
{
	for (unsigned i = 0; i < INODE_SCAN_MAX; i++) {
		struct core_inode *in = c->inode_hash[c->inode_hand], *next;
		c->inode_hand = (c->inode_hand + 1) & (c->inode_hash_size - 1);
		for (; in; in = next) {
			next = in->hash_next;
			if (!inode_idle(in))
				continue;
			if (in->clock_ref) {
				in->clock_ref = 0;
				continue;
			}
			inode_free(c, in);
			c->count.evicted++;
			if (c->inode_count <= INODE_CACHE_MAX)
				return;
		}
	}
}

struct core_inode *inode_get(struct core *c, uint64_t ino)
{
	struct core_inode *in = inode_find(c, ino);
	if (in)
		return in;
	if (c->inode_count >= INODE_CACHE_MAX)
		inode_evict(c);
	in = calloc(1, sizeof(*in));
	if (!in)
		return NULL;
	in->ino = ino;
	in->clock_ref = 1;
	/* What was done to it before it was forgotten is not known. */
	in->meta_pos_seq = in->meta_need_seq = meta_last_seq(c);
	struct core_inode **p = bucket(c, ino);
	in->hash_next = *p;
	*p = in;
	c->inode_count++;
	return in;
}

void inode_pin(struct core_inode *in)
{
	in->pin_count++;
}

void inode_unpin(struct core *c, struct core_inode *in)
{
	assert(in->pin_count > 0);
	in->pin_count--;
	if (!in->attr_valid)
		inode_maybe_free(c, in);
}

void inode_maybe_free(struct core *c, struct core_inode *in)
{
	if (in->ino != ROOT_INO && inode_idle(in) &&
	    (in->nlookup == 0 || !in->attr_valid))
		inode_free(c, in);
}

bool inode_owns(const struct core_inode *in)
{
	return (in->leased && !in->lease_pending) || in->size_dirty ||
	       in->ret_inflight > 0 || in->size_inflight > 0 ||
	       in->units_delta != 0;
}

void inode_merge(struct core *c, struct core_inode *in,
		 const struct meta_attr *from_metad, struct meta_attr *out)
{
	struct meta_attr a = *from_metad;
	(void)c;
	/* in->leased is what counts, and it may be newer */
	a.flags &= ~META_ATTR_LEASED;
	if (in->attr_valid) {
		if (inode_owns(in)) {
			a.size = in->attr.size;
			a.units = in->attr.units;
			a.mtime_ns = in->attr.mtime_ns;
			/* One that was set may be older than an answer that
			 * was on its way. */
			if (in->ctime_inflight > 0 ||
			    a.ctime_ns < in->attr.ctime_ns)
				a.ctime_ns = in->attr.ctime_ns;
		}
		if (in->mode_inflight > 0) {
			a.mode = in->attr.mode;
			a.flags &= in->attr.flags | ~META_ATTR_CAPS;
		}
		if (in->atime_dirty)
			a.atime_ns = in->attr.atime_ns;
		/* a cut may be answered while an older answer is on its way */
		a.cut = u64_max(a.cut, in->attr.cut);
	}
	in->attr = a;
	in->attr_valid = true;
	if (a.nlink > 0) {
		in->orphan = false; /* an O_TMPFILE that got a name */
		in->orphan_returned = false;
		in->handles_only = false;
	}
	if (out) {
		*out = a;
		out->units = wb_units_tell(in);
	}
}

struct changed {
	struct core_deferred def;
	struct core *c;
	uint64_t ino, off, len; /* len 0: the attributes alone */
};

static void changed_tell(struct core_deferred *d)
{
	struct changed *ch = container_of(d, struct changed, def);

	const struct core_options *o = &ch->c->opt;

	if (ch->len > 0 && o->content_changed)
		o->content_changed(o->changed_arg, ch->ino, ch->off, ch->len);
	if (o->attr_changed)
		o->attr_changed(o->changed_arg, ch->ino);
	free(ch);
}

void inode_tell_content(struct core *c, uint64_t ino, uint64_t off,
			uint64_t len)
{
	struct changed *ch;

	if (!c->opt.attr_changed)
		return;
	ch = malloc(sizeof(*ch));
	if (!ch)
		return; /* told by the next change */
	ch->def.fn = changed_tell;
	ch->c = c;
	ch->ino = ino;
	ch->off = off;
	ch->len = len;
	core_defer(c, &ch->def);
}

void inode_tell_changed(struct core *c, uint64_t ino)
{
	inode_tell_content(c, ino, 0, 0);
}

void inode_times_mutated(struct core_inode *in, uint64_t seq)
{
	in->meta_pos_seq = u64_max(in->meta_pos_seq, seq);
}

void inode_mutated(struct core_inode *in, uint64_t seq)
{
	inode_times_mutated(in, seq);
	in->meta_need_seq = u64_max(in->meta_need_seq, seq);
}

bool inode_touch_atime(struct core *c, struct core_inode *in)
{
	struct meta_attr *a = &in->attr;
	const int64_t day_ns = 86400 * (int64_t)1000000000;
	int64_t now;

	if (c->opt.noatime || !in->attr_valid || in->orphan ||
	    (c->opt.nodiratime && S_ISDIR(a->mode)))
		return false;
	now = core_now_ns();
	if (!c->opt.strictatime && a->atime_ns > a->mtime_ns &&
	    a->atime_ns > a->ctime_ns && now - a->atime_ns < day_ns)
		return false;
	if (a->atime_ns == now)
		return false;
	a->atime_ns = now;
	in->atime_dirty = true;
	ret_queue(c, in, 1000);
	return true;
}

void inode_invalidate_all(struct core *c)
{
	for (size_t i = 0; i < c->inode_hash_size; i++)
		for (struct core_inode *in = c->inode_hash[i]; in;
		     in = in->hash_next)
			if (!inode_owns(in))
				in->attr_valid = false;
	dir_pages_drop_all(c);
	name_cache_drop_all(c);
	dir_known_drop_all(c);
}

int core_inode_list(struct core *c, bool written, uint64_t **ret,
		    size_t *count)
{
	size_t n = 0;

	core_lock(c);
	uint64_t *inos = malloc((c->inode_count + 1) * sizeof(*inos));
	for (size_t i = 0; inos && i < c->inode_hash_size; i++)
		for (struct core_inode *in = c->inode_hash[i]; in;
		     in = in->hash_next)
			if (!written || in->write_open_count > 0)
				inos[n++] = in->ino;
	core_unlock(c);
	if (!inos)
		return -ENOMEM;
	*ret = inos;
	*count = n;
	return 0;
}

void core_forget(struct core *c, uint64_t ino, uint64_t nlookup)
{
	core_lock(c);
	struct core_inode *in = inode_find(c, ino);
	if (in) {
		in->nlookup -= u64_min(in->nlookup, nlookup);
		if (in->nlookup == 0) {
			ret_unheld(c, in);
			inode_maybe_free(c, in);
		}
	}
	core_unlock(c);
}

void inode_table_fini(struct core *c)
{
	for (size_t i = 0; i < c->inode_hash_size; i++) {
		struct core_inode *in = c->inode_hash[i], *next;
		for (; in; in = next) {
			next = in->hash_next;
			if (in->wb) {
				if (!wb_inode_clean(in))
					wb_inode_discard(c, in);
				wb_inode_free(c, in);
			}
			free(in);
		}
	}
	free(c->inode_hash);
	c->inode_hash = NULL;
}
