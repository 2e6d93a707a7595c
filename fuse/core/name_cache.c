/* What this mount knows of names: a small fixed table from (directory, name)
 * to an inode or to "there is none".
 *
 * Used where the kernel gives only names but we need to know what they mean: a
 * rename over an existing name must have the file's data on disk first. A
 * 64-bit hash stands for the name. A mount alone changes names itself, and
 * updates the table when metad answered, so an entry is right or absent.
 */
#include "fuse/core/meta_priv.h"

#include <xxhash.h>

#define NAME_SETS 4096u
#define NAME_WAYS 2u

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

void name_cache_set(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t ino)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, dir);
	struct name_entry *e = c->names->e[hash & (NAME_SETS - 1)];
	if (c->opt.shared)
		return; /* others change names, too */
	if (e[0].dir != dir || e[0].hash != hash)
		e[1] = e[0];
	e[0] = (struct name_entry){ .dir = dir, .hash = hash, .ino = ino };
}

bool name_cache_get(struct core *c, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, dir);
	const struct name_entry *e = c->names->e[hash & (NAME_SETS - 1)];
	for (unsigned i = 0; i < NAME_WAYS; i++)
		if (e[i].dir == dir && e[i].hash == hash) {
			*ino = e[i].ino;
			return true;
		}
	return false;
}

void name_cache_drop_all(struct core *c)
{
	memset(c->names, 0, sizeof(*c->names));
}
