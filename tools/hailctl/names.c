/* hailctl: from names to inodes, and back. */
#include "tools/hailctl/ctl.h"

#include <sys/stat.h>

#define PAGE_BYTES (64u << 10)

static int lookup(struct link *metad, uint64_t parent, const char *name,
		  size_t len, struct meta_attr *a)
{
	struct meta_lookup m = { .parent = parent,
				 .name = { name, (uint32_t)len } };
	uint8_t body[NAME_LEN_MAX + 32];
	struct rpc_frame *f;
	struct wire_out o;
	struct wire_in in;
	int rv;

	if (len > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	wire_out_init(&o, body, sizeof(body));
	meta_lookup_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_META_LOOKUP, body, o.len,
		       metad->c->o.timeout_ms, &f);
	if (rv < 0)
		return rv;
	rv = meta_body(f, &in);
	meta_attr_decode(&in, a);
	if (rv == 0)
		rv = wire_in_known(&in);
	rpc_frame_free(f);
	return rv;
}

bool meta_resolve(struct link *metad, const char *path, struct meta_attr *ret)
{
	const char *s = path;
	int rv = meta_getattr(metad, ROOT_INO, ret);

	while (rv == 0) {
		size_t len;

		while (*s == '/')
			s++;
		len = strcspn(s, "/");
		if (len == 0)
			return true;
		if (S_ISLNK(ret->mode)) {
			ctl_err("%s: '%.*s' is a symbolic link; give the path "
				"it stands for", path, (int)(s - path - 1),
				path);
			return false;
		}
		rv = lookup(metad, ret->ino, s, len, ret);
		s += len;
	}
	ctl_err("%s: at '%.*s': %s", path, (int)(s - path), path,
		strerror(-rv));
	return false;
}

/* ---- back ---- */

struct dir {
	struct dir *next;
	uint64_t ino;
	char path[]; /* "" is the root */
};

struct search {
	const uint64_t *inos;
	char **paths;
	uint32_t count, left;
	struct dir *dirs; /* to be read */
};

static int dir_add(struct search *s, uint64_t ino, const char *path)
{
	size_t size = strlen(path) + 1;
	struct dir *d = malloc(sizeof(*d) + size);

	if (!d)
		return -ENOMEM;
	d->ino = ino;
	memcpy(d->path, path, size);
	d->next = s->dirs;
	s->dirs = d;
	return 0;
}

static int entry_look(struct search *s, const struct dir *d,
		      const struct meta_dirent *e)
{
	char *path = NULL;
	int rv = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		if (s->inos[i] != e->ino || s->paths[i])
			continue;
		if (asprintf(&s->paths[i], "%s/%.*s", d->path,
			     (int)e->name.len, (const char *)e->name.p) < 0) {
			s->paths[i] = NULL;
			return -ENOMEM;
		}
		s->left--;
	}
	if (!S_ISDIR(e->mode))
		return 0;
	if (asprintf(&path, "%s/%.*s", d->path, (int)e->name.len,
		     (const char *)e->name.p) < 0)
		return -ENOMEM;
	rv = dir_add(s, e->ino, path);
	free(path);
	return rv;
}

static int dir_page(struct link *metad, struct search *s, const struct dir *d,
		    uint64_t *cookie, bool *eof)
{
	struct meta_readdir m = { .dir = d->ino, .cookie = *cookie,
				  .bytes_max = PAGE_BYTES };
	struct meta_readdir_reply r;
	struct rpc_frame *f;
	struct wire_out o;
	struct wire_in in;
	uint8_t body[32];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	meta_readdir_encode(&o, &m);
	rv = link_call(metad, WIRE_OP_META_READDIR, body, o.len,
		       metad->c->o.timeout_ms, &f);
	if (rv < 0)
		return rv;
	rv = meta_body(f, &in);
	meta_readdir_reply_decode(&in, &r);
	if (rv == 0)
		rv = wire_in_known(&in);
	wire_in_init(&in, r.entries.p, rv == 0 ? r.entries.len : 0);
	for (uint32_t i = 0; rv == 0 && i < r.count; i++) {
		struct meta_dirent e;

		meta_dirent_decode(&in, &e);
		rv = in.bad ? -EBADMSG : entry_look(s, d, &e);
		*cookie = e.cookie;
	}
	*eof = r.eof || r.count == 0;
	rpc_frame_free(f);
	return rv;
}

/* One that goes while it is read has no names that matter. */
static int dir_read(struct link *metad, struct search *s, const struct dir *d)
{
	uint64_t cookie = 0;
	bool eof = false;
	int rv = 0;

	while (rv == 0 && !eof && s->left > 0)
		rv = dir_page(metad, s, d, &cookie, &eof);
	return rv == -ENOENT || rv == -ENOTDIR ? 0 : rv;
}

int meta_names(struct link *metad, const uint64_t *inos, uint32_t count,
	       char **paths)
{
	struct search s = { .inos = inos, .paths = paths, .count = count,
			    .left = count };
	struct dir *d;
	int rv = count > 0 ? dir_add(&s, ROOT_INO, "") : 0;

	memset(paths, 0, count * sizeof(*paths));
	while ((d = s.dirs)) {
		s.dirs = d->next;
		if (rv == 0 && s.left > 0)
			rv = dir_read(metad, &s, d);
		free(d);
	}
	return rv;
}
