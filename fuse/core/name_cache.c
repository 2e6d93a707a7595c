/* What this mount knows of names: a small fixed table from (directory, name)
 * to an inode or to "there is none".
 *
 * Used where the kernel gives only names but we need to know what they mean: a
 * rename over an existing name must have the file's data on disk first. A
 * 64-bit hash stands for the name. A mount alone changes names itself, and
 * updates the table when it knows the outcome, so an entry is right or absent.
 */
#include "fuse/core/meta_priv.h"

#include <xxhash.h>

/* Together twice as many entries as inodes are cached: with four ways few of
 * as many names are pushed out by others. 3 MiB. */
#define NAME_SETS 32768u
#define NAME_WAYS 4u

struct name_entry {
	uint64_t dir; /* 0: free */
	uint64_t hash;
	uint64_t ino;
};

struct name_cache {
	struct name_entry e[NAME_SETS][NAME_WAYS]; /* [0]: latest */
};

int name_cache_new(struct name_cache **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void name_cache_free(struct name_cache *n)
{
	free(n);
}

static struct name_entry *name_set(struct core *c, uint64_t hash)
{
	return c->names->e[hash & (NAME_SETS - 1)];
}

/* Its way; NAME_WAYS: not there. */
static unsigned name_find(const struct name_entry *e, uint64_t dir,
			  uint64_t hash)
{
	unsigned i = 0;
	while (i < NAME_WAYS && (e[i].dir != dir || e[i].hash != hash))
		i++;
	return i;
}

/* Its room, or else that of the oldest, is the last then. */
static void name_remove(struct name_entry *e, unsigned i)
{
	for (; i + 1 < NAME_WAYS; i++)
		e[i] = e[i + 1];
	e[NAME_WAYS - 1] = (struct name_entry){ 0 };
}

void name_cache_forget(struct core *c, uint64_t dir, const char *name,
		       size_t len)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, dir);
	struct name_entry *e = name_set(c, hash);
	unsigned i = name_find(e, dir, hash);
	if (i < NAME_WAYS)
		name_remove(e, i);
}

void name_cache_set(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t ino)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, dir);
	struct name_entry *e = name_set(c, hash);
	if (c->opt.shared)
		return; /* others change names, too */
	/* That is known, and others need the room. */
	if (ino == 0 && dir_known_absent(c, dir, name, len)) {
		name_cache_forget(c, dir, name, len);
		return;
	}
	name_remove(e, name_find(e, dir, hash));
	memmove(e + 1, e, (NAME_WAYS - 1) * sizeof(*e));
	e[0] = (struct name_entry){ .dir = dir, .hash = hash, .ino = ino };
}

bool name_cache_get(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, dir);
	const struct name_entry *e = name_set(c, hash);
	unsigned i = name_find(e, dir, hash);
	*ino = i < NAME_WAYS ? e[i].ino : 0;
	return i < NAME_WAYS || dir_known_absent(c, dir, name, len);
}

void name_cache_drop_all(struct core *c)
{
	memset(c->names, 0, sizeof(*c->names));
}
