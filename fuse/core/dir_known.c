/* Directories of which this mount knows every name: those it made itself, as
 * long as it remembers what it put in. A look-up of a name that is not there
 * is answered without metad: the kernel sends one before each create.
 *
 * Per directory a set of 64-bit name hashes, with repetition: a name is put in
 * when an operation that may make it is queued and taken out when one that
 * removed it (or failed to make it) is answered. So a name that exists always
 * has its hash in the set, in whatever order answers come; a hash more than
 * there are names only costs a request. Open addressing, linear probing.
 */
#include "fuse/core/meta_priv.h"

#include <xxhash.h>

#define KNOWN_BUCKETS 4096u /* a power of two */
#define KNOWN_DIRS_MAX 16384u
#define KNOWN_SLOTS_MAX (1u << 20) /* of all sets together: 8 MiB */
#define KNOWN_SLOTS_MIN 8u

struct known_dir {
	struct known_dir *hash_next;
	struct known_dir *next, *prev; /* use order, latest first */
	uint64_t dir;
	uint32_t count, slots; /* slots: a power of two, 0 at first */
	uint64_t *set; /* 0: free */
};

/* Protected by core->lock. */
struct dir_known {
	struct known_dir *buckets[KNOWN_BUCKETS];
	struct known_dir *first, *last;
	uint32_t dir_count, slot_count;
};

int dir_known_new(struct dir_known **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static struct known_dir **known_bucket(struct dir_known *k, uint64_t dir)
{
	return &k->buckets[(dir * 0x9e3779b97f4a7c15u) >> 52 &
			   (KNOWN_BUCKETS - 1)];
}

static void use_unlink(struct dir_known *k, struct known_dir *d)
{
	if (d->prev)
		d->prev->next = d->next;
	else
		k->first = d->next;
	if (d->next)
		d->next->prev = d->prev;
	else
		k->last = d->prev;
}

static void use_first(struct dir_known *k, struct known_dir *d)
{
	d->prev = NULL;
	d->next = k->first;
	if (k->first)
		k->first->prev = d;
	else
		k->last = d;
	k->first = d;
}

static void known_drop(struct dir_known *k, struct known_dir *d)
{
	struct known_dir **p = known_bucket(k, d->dir);
	while (*p != d)
		p = &(*p)->hash_next;
	*p = d->hash_next;
	use_unlink(k, d);
	k->dir_count--;
	k->slot_count -= d->slots;
	free(d->set);
	free(d);
}

void dir_known_drop_all(struct core *c)
{
	while (c->known->first)
		known_drop(c->known, c->known->first);
}

void dir_known_free(struct dir_known *k)
{
	if (!k)
		return;
	while (k->first)
		known_drop(k, k->first);
	free(k);
}

static struct known_dir *known_find(struct dir_known *k, uint64_t dir)
{
	struct known_dir *d = *known_bucket(k, dir);
	while (d && d->dir != dir)
		d = d->hash_next;
	if (d && d != k->first) {
		use_unlink(k, d);
		use_first(k, d);
	}
	return d;
}

void dir_known_made(struct core *c, uint64_t dir)
{
	struct dir_known *k = c->known;
	struct known_dir *d = calloc(1, sizeof(*d)), **p;
	if (!d)
		return;
	while (k->dir_count >= KNOWN_DIRS_MAX)
		known_drop(k, k->last);
	d->dir = dir;
	p = known_bucket(k, dir);
	d->hash_next = *p;
	*p = d;
	use_first(k, d);
	k->dir_count++;
}

void dir_known_gone(struct core *c, uint64_t dir)
{
	struct known_dir *d = known_find(c->known, dir);
	if (d)
		known_drop(c->known, d);
}

/* ---- sets ---- */

static uint64_t name_hash(const char *name, size_t len)
{
	uint64_t h = XXH3_64bits(name, len);
	return h ? h : 1;
}

static void set_put(uint64_t *set, uint32_t slots, uint64_t h)
{
	uint32_t i = (uint32_t)h & (slots - 1);
	while (set[i])
		i = (i + 1) & (slots - 1);
	set[i] = h;
}

/* Index of one occurrence, or -1. */
static int64_t set_find(const struct known_dir *d, uint64_t h)
{
	if (d->slots == 0)
		return -1;
	for (uint32_t i = (uint32_t)h & (d->slots - 1); d->set[i];
	     i = (i + 1) & (d->slots - 1))
		if (d->set[i] == h)
			return i;
	return -1;
}

/* At most three quarters full. Returns whether there is room for one more. */
static bool set_grow(struct dir_known *k, struct known_dir *d)
{
	uint32_t slots = d->slots ? 2 * d->slots : KNOWN_SLOTS_MIN;
	uint64_t *set;

	if ((d->count + 1) * 4 <= d->slots * 3)
		return true;
	while (k->slot_count - d->slots + slots > KNOWN_SLOTS_MAX &&
	       k->last != d)
		known_drop(k, k->last);
	if (k->slot_count - d->slots + slots > KNOWN_SLOTS_MAX)
		return false;
	set = calloc(slots, sizeof(*set));
	if (!set)
		return false;
	for (uint32_t i = 0; i < d->slots; i++)
		if (d->set[i])
			set_put(set, slots, d->set[i]);
	k->slot_count += slots - d->slots;
	free(d->set);
	d->set = set;
	d->slots = slots;
	return true;
}

void dir_known_add(struct core *c, uint64_t dir, const char *name, size_t len)
{
	struct known_dir *d = known_find(c->known, dir);
	if (!d)
		return;
	if (!set_grow(c->known, d)) {
		known_drop(c->known, d);
		return;
	}
	set_put(d->set, d->slots, name_hash(name, len));
	d->count++;
}

void dir_known_del(struct core *c, uint64_t dir, const char *name, size_t len)
{
	struct known_dir *d = known_find(c->known, dir);
	int64_t at = d ? set_find(d, name_hash(name, len)) : -1;
	uint32_t mask, hole;

	if (at < 0)
		return;
	/* What was pushed on by the one that goes moves back. */
	mask = d->slots - 1;
	hole = (uint32_t)at;
	for (uint32_t i = (hole + 1) & mask; d->set[i]; i = (i + 1) & mask) {
		uint32_t home = (uint32_t)d->set[i] & mask;
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			d->set[hole] = d->set[i];
			hole = i;
		}
	}
	d->set[hole] = 0;
	d->count--;
}

bool dir_known_absent(struct core *c, uint64_t dir, const char *name,
		      size_t len)
{
	const struct known_dir *d = known_find(c->known, dir);
	return d && set_find(d, name_hash(name, len)) < 0;
}

bool dir_known_empty(struct core *c, uint64_t dir)
{
	const struct known_dir *d = known_find(c->known, dir);
	return d && d->count == 0;
}
