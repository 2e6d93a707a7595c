/* Advisory locks. An inode's held locks are a list ordered by start, in which
 * an owner's locks never overlap and equal neighbours are one lock; its
 * waiters are a list in order of arrival. flock's locks are ranges over the
 * whole file in a list of their own, so that both kinds share the code.
 */
#include "common/lock_table.h"

#define BUCKET_COUNT 1024u /* a power of two */

struct held {
	struct held *next;
	uint64_t start, end; /* inclusive */
	uint64_t owner;
	uint32_t pid;
	enum lock_type type; /* never LOCK_TYPE_UNLOCK */
};

/* Locks of one inode; exists while it has a lock or a waiter. */
struct lock_inode {
	struct lock_inode *next; /* of the bucket */
	uint64_t ino;
	struct held *held[2]; /* by enum lock_kind, ascending start */
	struct lock_wait *wait_first, *wait_last;
};

struct lock_table {
	struct lock_inode *inodes[BUCKET_COUNT];
	struct lock_wait *waits[BUCKET_COUNT]; /* by owner */
	size_t held_count, wait_count;
	uint64_t search; /* number of the last deadlock search */
};

static size_t bucket_of(uint64_t key)
{
	return (size_t)(key * 0x9e3779b97f4a7c15ull >> 54);
}
_Static_assert(BUCKET_COUNT == 1u << (64 - 54), "bucket_of");

struct lock_table *lock_table_new(void)
{
	return calloc(1, sizeof(struct lock_table));
}

static void free_held(struct held *h)
{
	while (h) {
		struct held *next = h->next;

		free(h);
		h = next;
	}
}

void lock_table_free(struct lock_table *t)
{
	if (!t)
		return;
	for (size_t b = 0; b < BUCKET_COUNT; b++) {
		while (t->inodes[b]) {
			struct lock_inode *in = t->inodes[b];

			t->inodes[b] = in->next;
			free_held(in->held[LOCK_KIND_POSIX]);
			free_held(in->held[LOCK_KIND_FLOCK]);
			free(in);
		}
	}
	free(t);
}

/* ---- inodes ---- */

static struct lock_inode *inode_find(const struct lock_table *t, uint64_t ino)
{
	struct lock_inode *in = t->inodes[bucket_of(ino)];

	while (in && in->ino != ino)
		in = in->next;
	return in;
}

static struct lock_inode *inode_get(struct lock_table *t, uint64_t ino)
{
	struct lock_inode **bucket = &t->inodes[bucket_of(ino)];
	struct lock_inode *in = inode_find(t, ino);

	if (in)
		return in;
	in = calloc(1, sizeof(*in));
	if (!in)
		return NULL;
	in->ino = ino;
	in->next = *bucket;
	*bucket = in;
	return in;
}

/* Frees @in when nothing is left on it. */
static void inode_put(struct lock_table *t, struct lock_inode *in)
{
	struct lock_inode **at = &t->inodes[bucket_of(in->ino)];

	if (in->held[LOCK_KIND_POSIX] || in->held[LOCK_KIND_FLOCK] ||
	    in->wait_first)
		return;
	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	free(in);
}

/* ---- held locks ---- */

static bool conflicts(const struct held *h, const struct lock_range *r)
{
	return h->owner != r->owner && h->start <= r->end &&
	       h->end >= r->start &&
	       (h->type == LOCK_TYPE_WRITE || r->type == LOCK_TYPE_WRITE);
}

/* The first lock from @h on that conflicts with @r, or NULL. */
static struct held *next_conflict(struct held *h, const struct lock_range *r)
{
	for (; h && h->start <= r->end; h = h->next)
		if (conflicts(h, r))
			return h;
	return NULL;
}

/* Unlinks and frees *@at. */
static void held_remove(struct lock_table *t, struct held **at)
{
	struct held *h = *at;

	*at = h->next;
	free(h);
	t->held_count--;
}

static void held_insert(struct lock_table *t, struct held **list,
			struct held *h)
{
	while (*list && (*list)->start < h->start)
		list = &(*list)->next;
	h->next = *list;
	*list = h;
	t->held_count++;
}

/* Do [@start, @end] and @h touch, without an overflow at the last byte? */
static bool adjoins(const struct held *h, uint64_t start, uint64_t end)
{
	return (h->end != UINT64_MAX && h->end + 1 == start) ||
	       (end != UINT64_MAX && end + 1 == h->start);
}

/* Replaces what @r's owner has in the range by @r (nothing for
 * LOCK_TYPE_UNLOCK). @fresh: two locks to use, of which the used ones are set
 * to NULL: one for @r, one for the rest of a lock that ends after @r. Returns
 * whether anything was given up, that is, whether a waiter may go on. */
static bool replace(struct lock_table *t, struct held **list,
		    const struct lock_range *r, struct held *fresh[2])
{
	struct held **at = list, *tail = NULL, *mine = fresh[0];
	uint64_t start = r->start, end = r->end;
	bool gave_up = false;

	while (*at) {
		struct held *h = *at;
		bool overlaps = h->start <= r->end && h->end >= r->start;

		if (h->owner == r->owner && h->type == r->type &&
		    (overlaps || adjoins(h, r->start, r->end))) {
			start = u64_min(start, h->start);
			end = u64_max(end, h->end);
			held_remove(t, at);
		} else if (h->owner == r->owner && overlaps) {
			gave_up |= r->type != LOCK_TYPE_WRITE;
			if (h->end > r->end) {
				/* At most one lock can reach beyond. */
				tail = fresh[1];
				fresh[1] = NULL;
				/* NOLINTNEXTLINE: at most one is taken of it */
				*tail = *h;
				tail->start = r->end + 1;
			}
			if (h->start < r->start) {
				h->end = r->start - 1;
				at = &h->next;
			} else {
				held_remove(t, at);
			}
		} else {
			at = &h->next;
		}
	}
	if (tail)
		held_insert(t, list, tail);
	if (r->type != LOCK_TYPE_UNLOCK) {
		fresh[0] = NULL;
		*mine = (struct held){ .start = start, .end = end,
				       .owner = r->owner, .pid = r->pid,
				       .type = r->type };
		held_insert(t, list, mine);
	}
	return gave_up;
}

/* replace() with the memory it needs. Returns 0 or -ENOMEM, then nothing has
 * changed. */
static int apply(struct lock_table *t, struct held **list,
		 const struct lock_range *r, bool *gave_up)
{
	struct held *fresh[2] = { malloc(sizeof(struct held)),
				  malloc(sizeof(struct held)) };
	int err = -ENOMEM;

	if (fresh[0] && fresh[1]) {
		*gave_up = replace(t, list, r, fresh);
		err = 0;
	}
	free(fresh[0]);
	free(fresh[1]);
	return err;
}

/* ---- waiters ---- */

static void wait_link(struct lock_table *t, struct lock_inode *in,
		      struct lock_wait *w)
{
	struct lock_wait **bucket = &t->waits[bucket_of(w->r.owner)];

	w->priv_next = NULL;
	w->priv_prev = in->wait_last;
	if (in->wait_last)
		in->wait_last->priv_next = w;
	else
		in->wait_first = w;
	in->wait_last = w;
	w->priv_owner_next = *bucket;
	*bucket = w;
	w->priv_seen = 0;
	t->wait_count++;
}

static void wait_unlink(struct lock_table *t, struct lock_inode *in,
			struct lock_wait *w)
{
	struct lock_wait **at = &t->waits[bucket_of(w->r.owner)];

	if (w->priv_prev)
		w->priv_prev->priv_next = w->priv_next;
	else
		in->wait_first = w->priv_next;
	if (w->priv_next)
		w->priv_next->priv_prev = w->priv_prev;
	else
		in->wait_last = w->priv_prev;
	while (*at != w)
		at = &(*at)->priv_owner_next;
	*at = w->priv_owner_next;
	t->wait_count--;
}

/* Waiters that have been served, in order, until their callbacks run. */
struct served {
	struct lock_wait *first, **end;
};

static void served_init(struct served *s)
{
	s->first = NULL;
	s->end = &s->first;
}

static void served_add(struct lock_table *t, struct lock_inode *in,
		       struct lock_wait *w, int status, struct served *s)
{
	wait_unlink(t, in, w);
	w->priv_status = status;
	w->priv_next = NULL;
	*s->end = w;
	s->end = &w->priv_next;
}

/* Callbacks run last, because they may use the table. */
static void served_run(struct served *s)
{
	while (s->first) {
		struct lock_wait *w = s->first;

		s->first = w->priv_next;
		w->granted(w, w->priv_status);
	}
}

/* Serves every waiter of @in that nothing stands against, the earliest first.
 * A grant that gives something up itself (a write lock becomes a read lock)
 * starts over, since it may have made way for an earlier one. */
static void serve(struct lock_table *t, struct lock_inode *in,
		  struct served *s)
{
	struct lock_wait *w = in->wait_first;

	while (w) {
		struct lock_wait *next = w->priv_next;
		struct held **list = &in->held[w->r.kind];
		bool gave_up = false;

		if (!next_conflict(*list, &w->r)) {
			int err = apply(t, list, &w->r, &gave_up);

			served_add(t, in, w, err, s);
		}
		w = gave_up ? in->wait_first : next;
	}
}

/* ---- deadlock ---- */

static bool searched(const struct lock_range *r)
{
	return r->kind == LOCK_KIND_POSIX && r->pid != 0;
}

/* Queues the waits of @owner for the search, each once. */
static void queue_waits(struct lock_table *t, uint64_t owner,
			struct lock_wait **work)
{
	struct lock_wait *w = t->waits[bucket_of(owner)];

	for (; w; w = w->priv_owner_next) {
		if (w->r.owner != owner || !searched(&w->r) ||
		    w->priv_seen == t->search)
			continue;
		w->priv_seen = t->search;
		w->priv_work_next = *work;
		*work = w;
	}
}

/* Would @r's wait close a circle? Follows "waits for an owner who waits for"
 * from the locks in @r's way. An owner is a process: one of its threads
 * waiting counts, as POSIX and Linux have it. */
static bool deadlocks(struct lock_table *t, const struct lock_range *r)
{
	const struct lock_range *at = r;
	struct lock_wait *work = NULL;

	if (!searched(r))
		return false;
	t->search++;
	for (;;) {
		struct lock_inode *in = inode_find(t, at->ino);
		struct held *h;

		assert(in); /* a waiter, or the caller, keeps it */
		h = next_conflict(in->held[LOCK_KIND_POSIX], at);
		for (; h; h = next_conflict(h->next, at)) {
			if (h->owner == r->owner)
				return true;
			queue_waits(t, h->owner, &work);
		}
		if (!work)
			return false;
		at = &work->r;
		work = work->priv_work_next;
	}
}

/* ---- operations ---- */

static void check_range(const struct lock_range *r)
{
	assert(r->start <= r->end);
	assert(r->kind != LOCK_KIND_FLOCK ||
	       (r->start == 0 && r->end == UINT64_MAX));
}

/* Does a conversion of a flock's type lose the old lock? Yes, whatever
 * becomes of the new one. */
static bool flock_drop_other(struct lock_table *t, struct lock_inode *in,
			     const struct lock_range *r)
{
	struct held **at = &in->held[LOCK_KIND_FLOCK];

	for (; *at; at = &(*at)->next) {
		if ((*at)->owner == r->owner && (*at)->type != r->type) {
			held_remove(t, at);
			return true;
		}
	}
	return false;
}

/* Tries @r; whoever may go on because of it is added to @s. */
static int try_set(struct lock_table *t, struct lock_inode *in,
		   const struct lock_range *r, struct served *s)
{
	struct held **list = &in->held[r->kind];
	bool dropped = false, gave_up = false;
	int err;

	if (r->type == LOCK_TYPE_UNLOCK) {
		err = apply(t, list, r, &gave_up);
	} else {
		if (t->held_count + t->wait_count >= LOCK_COUNT_MAX)
			return -ENOLCK;
		if (r->kind == LOCK_KIND_FLOCK)
			dropped = flock_drop_other(t, in, r);
		err = next_conflict(*list, r) ? -EAGAIN :
						apply(t, list, r, &gave_up);
	}
	if (dropped || gave_up)
		serve(t, in, s);
	return err;
}

int lock_set(struct lock_table *t, const struct lock_range *r)
{
	struct lock_inode *in;
	struct served s;
	int err;

	check_range(r);
	if (r->type == LOCK_TYPE_UNLOCK && !inode_find(t, r->ino))
		return 0;
	in = inode_get(t, r->ino);
	if (!in)
		return -ENOMEM;
	served_init(&s);
	err = try_set(t, in, r, &s);
	inode_put(t, in);
	served_run(&s);
	return err;
}

int lock_set_wait(struct lock_table *t, struct lock_wait *w)
{
	struct lock_inode *in;
	struct served s;
	int err;

	check_range(&w->r);
	assert(w->r.type != LOCK_TYPE_UNLOCK); /* never waits: lock_set() */
	in = inode_get(t, w->r.ino);
	if (!in)
		return -ENOMEM;
	served_init(&s);
	err = try_set(t, in, &w->r, &s);
	/* Whoever was served may hold what stands in the way now, so the
	 * search comes after. */
	if (err == -EAGAIN) {
		err = -EDEADLK;
		if (!deadlocks(t, &w->r)) {
			wait_link(t, in, w);
			err = -EINPROGRESS;
		}
	}
	inode_put(t, in);
	served_run(&s);
	return err;
}

bool lock_cancel(struct lock_table *t, struct lock_wait *w)
{
	struct lock_inode *in = inode_find(t, w->r.ino);
	struct lock_wait *each = in ? in->wait_first : NULL;

	while (each && each != w)
		each = each->priv_next;
	if (!each)
		return false;
	wait_unlink(t, in, w);
	inode_put(t, in);
	return true;
}

/* The first lock from @h on that @r's own owner has in its range, or NULL. */
static struct held *next_own(struct held *h, const struct lock_range *r)
{
	for (; h && h->start <= r->end; h = h->next)
		if (h->owner == r->owner && h->end >= r->start)
			return h;
	return NULL;
}

void lock_get(struct lock_table *t, struct lock_range *r)
{
	struct lock_inode *in = inode_find(t, r->ino);
	struct held *h = in ? in->held[r->kind] : NULL;

	check_range(r);
	h = r->type == LOCK_TYPE_UNLOCK ? next_own(h, r) : next_conflict(h, r);
	if (!h) {
		r->type = LOCK_TYPE_UNLOCK;
		return;
	}
	r->type = h->type;
	r->start = h->start;
	r->end = h->end;
	r->owner = h->owner;
	r->pid = h->pid;
}

void lock_drop_owner(struct lock_table *t, uint64_t ino, enum lock_kind kind,
		     uint64_t owner)
{
	struct lock_inode *in = inode_find(t, ino);
	struct lock_wait *w, *next;
	struct held **at;
	struct served s;

	if (!in)
		return;
	served_init(&s);
	for (w = in->wait_first; w; w = next) {
		next = w->priv_next;
		if (w->r.kind == kind && w->r.owner == owner)
			served_add(t, in, w, -EINTR, &s);
	}
	at = &in->held[kind];
	while (*at) {
		if ((*at)->owner == owner)
			held_remove(t, at);
		else
			at = &(*at)->next;
	}
	serve(t, in, &s);
	inode_put(t, in);
	served_run(&s);
}

bool lock_any(const struct lock_table *t, uint64_t ino)
{
	return inode_find(t, ino) != NULL;
}

size_t lock_count(const struct lock_table *t)
{
	return t->held_count;
}
