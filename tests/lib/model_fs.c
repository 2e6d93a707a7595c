/* Names of the model file system; model_data.c has content and xattrs. */
#include "tests/lib/model_fs.h"

#include "tests/lib/model_priv.h"

#include <linux/fs.h>
#include <sys/stat.h>

#define LINKS_MAX 65000u

void *model_alloc(size_t size)
{
	void *p = calloc(1, size == 0 ? 1 : size);

	if (p == NULL)
		abort();
	return p;
}

char *model_strdup(const char *s)
{
	size_t size = strlen(s) + 1;

	return memcpy(model_alloc(size), s, size);
}

struct model_inode *model_find(const struct model_fs *m, uint64_t ino)
{
	struct model_inode *in = m->inodes;

	while (in != NULL && in->ino != ino)
		in = in->next;
	return in;
}

static struct model_entry *entry_find(const struct model_inode *dir,
				      const char *name)
{
	struct model_entry *e = dir->entries;

	while (e != NULL && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

static void entry_add(struct model_inode *dir, const char *name,
		      struct model_inode *in)
{
	struct model_entry *e = model_alloc(sizeof(*e));

	e->name = model_strdup(name);
	e->in = in;
	e->next = dir->entries;
	dir->entries = e;
}

static void entry_del(struct model_inode *dir, struct model_entry *gone)
{
	struct model_entry **at = &dir->entries;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	free(gone->name);
	free(gone);
}

/* How many names all directories have for it. */
static uint32_t count_names(const struct model_fs *m,
			    const struct model_inode *in)
{
	uint32_t count = 0;

	for (struct model_inode *d = m->inodes; d != NULL; d = d->next)
		for (struct model_entry *e = d->entries; e != NULL;
		     e = e->next)
			count += e->in == in;
	return count;
}

static struct model_inode *find_parent(const struct model_fs *m,
				       const struct model_inode *in)
{
	if (in == m->root)
		return m->root;
	for (struct model_inode *d = m->inodes; d != NULL; d = d->next)
		for (struct model_entry *e = d->entries; e != NULL;
		     e = e->next)
			if (e->in == in)
				return d;
	return NULL;
}

/* Is @in reachable from @top? */
static bool contains(const struct model_inode *top,
		     const struct model_inode *in)
{
	if (top == in)
		return true;
	for (struct model_entry *e = top->entries; e != NULL; e = e->next)
		if (contains(e->in, in))
			return true;
	return false;
}

static uint32_t link_count(const struct model_fs *m,
			   const struct model_inode *in)
{
	uint32_t count;

	if (!S_ISDIR(in->mode))
		return count_names(m, in);
	if (in != m->root && count_names(m, in) == 0)
		return 0;
	count = 2;
	for (struct model_entry *e = in->entries; e != NULL; e = e->next)
		count += S_ISDIR(e->in->mode);
	return count;
}

static void maybe_free(struct model_fs *m, struct model_inode *in)
{
	struct model_inode **at = &m->inodes;

	if (in->held > 0 || in == m->root || count_names(m, in) > 0)
		return;
	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	model_inode_free(in);
}

struct model_fs *model_fs_new(uint32_t root_mode, int64_t now)
{
	struct model_fs *m = model_alloc(sizeof(*m));
	struct model_inode *root = model_alloc(sizeof(*root));

	root->ino = MODEL_FS_ROOT;
	root->mode = S_IFDIR | root_mode;
	root->atime = root->mtime = root->ctime = root->btime = now;
	m->root = root;
	m->inodes = root;
	m->next_ino = MODEL_FS_ROOT + 1;
	return m;
}

void model_fs_free(struct model_fs *m)
{
	if (m == NULL)
		return;
	while (m->inodes != NULL) {
		struct model_inode *in = m->inodes;

		m->inodes = in->next;
		while (in->entries != NULL)
			entry_del(in, in->entries);
		model_inode_free(in);
	}
	free(m);
}

static int find_dir(const struct model_fs *m, uint64_t ino,
		    struct model_inode **ret)
{
	struct model_inode *dir = model_find(m, ino);

	if (dir == NULL)
		return -ENOENT;
	if (!S_ISDIR(dir->mode))
		return -ENOTDIR;
	*ret = dir;
	return 0;
}

/* One that names can be made in. */
static int find_live_dir(const struct model_fs *m, uint64_t ino,
			 struct model_inode **ret)
{
	int err = find_dir(m, ino, ret);

	return err == 0 && link_count(m, *ret) == 0 ? -ENOENT : err;
}

static void touch(struct model_inode *dir, int64_t now)
{
	dir->mtime = now;
	dir->ctime = now;
}

int model_fs_create(struct model_fs *m, const struct model_create *p,
		    int64_t now, uint64_t *ino)
{
	struct model_inode *dir, *in;
	int err = find_live_dir(m, p->parent, &dir);

	if (err != 0)
		return err;
	if (p->name != NULL && entry_find(dir, p->name) != NULL)
		return -EEXIST;
	in = model_alloc(sizeof(*in));
	in->ino = m->next_ino++;
	in->mode = p->mode & ~(p->umask & 0777);
	in->uid = p->uid;
	in->gid = p->gid;
	if (S_ISCHR(p->mode) || S_ISBLK(p->mode))
		in->rdev = p->rdev;
	if ((dir->mode & S_ISGID) != 0) {
		in->gid = dir->gid;
		in->mode |= S_ISDIR(p->mode) ? S_ISGID : 0;
	}
	if (S_ISLNK(p->mode)) {
		in->mode = S_IFLNK | 0777;
		in->target = model_strdup(p->target);
		in->size = strlen(p->target);
	}
	in->atime = in->mtime = in->ctime = in->btime = now;
	in->next = m->inodes;
	m->inodes = in;
	if (p->name != NULL) {
		entry_add(dir, p->name, in);
		touch(dir, now);
	} else {
		in->linkable = true;
		in->held = 1;
	}
	*ino = in->ino;
	return 0;
}

int model_fs_lookup(const struct model_fs *m, uint64_t dir_ino,
		    const char *name, uint64_t *ino)
{
	struct model_inode *dir, *parent;
	struct model_entry *e;
	int err = find_dir(m, dir_ino, &dir);

	if (err != 0)
		return err;
	if (strcmp(name, ".") == 0) {
		*ino = dir->ino;
		return 0;
	}
	if (strcmp(name, "..") == 0) {
		parent = find_parent(m, dir);
		if (parent == NULL)
			return -ENOENT;
		*ino = parent->ino;
		return 0;
	}
	e = entry_find(dir, name);
	if (e == NULL)
		return -ENOENT;
	*ino = e->in->ino;
	return 0;
}

int model_fs_path(const struct model_fs *m, const char *path, uint64_t *ino)
{
	uint64_t at = MODEL_FS_ROOT;

	while (*path != '\0') {
		char name[256];
		size_t len = strcspn(path, "/");
		int err;

		if (len == 0) {
			path++;
			continue;
		}
		if (len >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = '\0';
		err = model_fs_lookup(m, at, name, &at);
		if (err != 0)
			return err;
		path += len;
	}
	*ino = at;
	return 0;
}

static int remove_name(struct model_fs *m, uint64_t dir_ino, const char *name,
		       bool want_dir, int64_t now)
{
	struct model_inode *dir, *in;
	struct model_entry *e;
	int err = find_live_dir(m, dir_ino, &dir);

	if (err != 0)
		return err;
	e = entry_find(dir, name);
	if (e == NULL)
		return -ENOENT;
	in = e->in;
	if (want_dir && !S_ISDIR(in->mode))
		return -ENOTDIR;
	if (!want_dir && S_ISDIR(in->mode))
		return -EISDIR;
	if (want_dir && in->entries != NULL)
		return -ENOTEMPTY;
	entry_del(dir, e);
	touch(dir, now);
	in->ctime = now;
	maybe_free(m, in);
	return 0;
}

int model_fs_unlink(struct model_fs *m, uint64_t dir, const char *name,
		    int64_t now)
{
	return remove_name(m, dir, name, false, now);
}

int model_fs_rmdir(struct model_fs *m, uint64_t dir, const char *name,
		   int64_t now)
{
	return remove_name(m, dir, name, true, now);
}

void model_fs_bury(struct model_fs *m, uint64_t ino)
{
	struct model_inode *in = model_find(m, ino);

	if (in != NULL)
		in->linkable = false;
}

int model_fs_link(struct model_fs *m, uint64_t ino, uint64_t dir_ino,
		  const char *name, int64_t now)
{
	struct model_inode *dir, *in;
	int err = find_live_dir(m, dir_ino, &dir);

	if (err != 0)
		return err;
	in = model_find(m, ino);
	if (in == NULL)
		return -ENOENT;
	if (entry_find(dir, name) != NULL)
		return -EEXIST;
	if (S_ISDIR(in->mode))
		return -EPERM;
	if (count_names(m, in) == 0 && !in->linkable)
		return -ENOENT;
	if (count_names(m, in) >= LINKS_MAX)
		return -EMLINK;
	in->linkable = false;
	entry_add(dir, name, in);
	touch(dir, now);
	in->ctime = now;
	return 0;
}

static int exchange(struct model_inode *from, struct model_entry *src,
		    struct model_inode *to, struct model_entry *dst,
		    int64_t now)
{
	struct model_inode *in = src->in;

	src->in = dst->in;
	dst->in = in;
	touch(from, now);
	touch(to, now);
	src->in->ctime = now;
	dst->in->ctime = now;
	return 0;
}

/* What rename(2) refuses before it looks at the kinds of things. */
static int rename_refused(const struct model_inode *from,
			  const struct model_entry *src,
			  const struct model_inode *to,
			  const struct model_entry *dst, uint32_t flags)
{
	if (src == NULL)
		return -ENOENT;
	if (dst != NULL && (flags & RENAME_NOREPLACE) != 0)
		return -EEXIST;
	if (dst == NULL && (flags & RENAME_EXCHANGE) != 0)
		return -ENOENT;
	if (contains(src->in, to))
		return -EINVAL;
	if (dst != NULL && contains(dst->in, from))
		return (flags & RENAME_EXCHANGE) != 0 ? -EINVAL : -ENOTEMPTY;
	return 0;
}

static int whiteout(struct model_fs *m, uint64_t dir, const char *name,
		    int64_t now)
{
	struct model_create p = { .parent = dir, .name = name,
				  .mode = S_IFCHR };
	uint64_t ino;

	return model_fs_create(m, &p, now, &ino);
}

int model_fs_rename(struct model_fs *m, uint64_t dir, const char *name,
		    uint64_t newdir, const char *newname, uint32_t flags,
		    int64_t now)
{
	struct model_inode *from, *to, *in, *old = NULL;
	struct model_entry *src, *dst;
	int err = find_live_dir(m, dir, &from);

	if (err == 0)
		err = find_live_dir(m, newdir, &to);
	if (err != 0)
		return err;
	src = entry_find(from, name);
	dst = entry_find(to, newname);
	err = rename_refused(from, src, to, dst, flags);
	if (err != 0)
		return err;
	in = src->in;
	if (dst != NULL && dst->in == in)
		return 0;
	if ((flags & RENAME_EXCHANGE) != 0)
		return exchange(from, src, to, dst, now);
	if (dst != NULL) {
		old = dst->in;
		if (S_ISDIR(in->mode) && !S_ISDIR(old->mode))
			return -ENOTDIR;
		if (!S_ISDIR(in->mode) && S_ISDIR(old->mode))
			return -EISDIR;
		if (old->entries != NULL)
			return -ENOTEMPTY;
		old->ctime = now;
		entry_del(to, dst);
	}
	entry_del(from, src);
	entry_add(to, newname, in);
	touch(from, now);
	touch(to, now);
	in->ctime = now;
	if (old != NULL)
		maybe_free(m, old);
	return (flags & RENAME_WHITEOUT) != 0 ? whiteout(m, dir, name, now) : 0;
}

int model_fs_list(const struct model_fs *m, uint64_t ino,
		  model_fs_entry_fn fn, void *arg)
{
	struct model_inode *dir;
	int err = find_dir(m, ino, &dir);

	if (err != 0)
		return err;
	for (struct model_entry *e = dir->entries; e != NULL; e = e->next)
		fn(arg, e->name, e->in->ino);
	return 0;
}

int model_fs_hold(struct model_fs *m, uint64_t ino)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL)
		return -ENOENT;
	in->held++;
	return 0;
}

void model_fs_drop(struct model_fs *m, uint64_t ino)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL || in->held == 0)
		abort();
	in->held--;
	maybe_free(m, in);
}

int model_fs_stat(const struct model_fs *m, uint64_t ino,
		  struct model_attr *a)
{
	struct model_inode *in = model_find(m, ino);
	struct model_inode *parent;

	if (in == NULL)
		return -ENOENT;
	*a = (struct model_attr){
		.ino = in->ino, .mode = in->mode, .nlink = link_count(m, in),
		.uid = in->uid, .gid = in->gid, .rdev = in->rdev,
		.size = in->size, .atime = in->atime, .mtime = in->mtime,
		.ctime = in->ctime, .btime = in->btime,
	};
	if (!S_ISDIR(in->mode))
		return 0;
	parent = find_parent(m, in);
	a->parent = parent != NULL ? parent->ino : 0;
	for (struct model_entry *e = in->entries; e != NULL; e = e->next)
		a->entries++;
	return 0;
}

uint64_t model_fs_inode_count(const struct model_fs *m)
{
	uint64_t count = 0;

	for (struct model_inode *in = m->inodes; in != NULL; in = in->next)
		count++;
	return count;
}

uint64_t model_fs_next_ino(const struct model_fs *m)
{
	return m->next_ino;
}
