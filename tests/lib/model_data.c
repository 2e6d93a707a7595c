/* Attributes, xattrs and content of the model file system. */
#include "tests/lib/model_priv.h"

#include <sys/stat.h>
#include <sys/xattr.h>

static void xattr_free(struct model_xattr *x)
{
	free(x->name);
	free(x->value);
	free(x);
}

void model_inode_free(struct model_inode *in)
{
	while (in->xattrs != NULL) {
		struct model_xattr *x = in->xattrs;

		in->xattrs = x->next;
		xattr_free(x);
	}
	while (in->pages != NULL) {
		struct model_page *p = in->pages;

		in->pages = p->next;
		free(p);
	}
	free(in->target);
	free(in);
}

int model_fs_chmod(struct model_fs *m, uint64_t ino, uint32_t mode,
		   int64_t now)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL)
		return -ENOENT;
	in->mode = (in->mode & S_IFMT) | (mode & 07777);
	in->ctime = now;
	return 0;
}

int model_fs_chown(struct model_fs *m, uint64_t ino, uint32_t uid,
		   uint32_t gid, int64_t now)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL)
		return -ENOENT;
	if (uid != UINT32_MAX)
		in->uid = uid;
	if (gid != UINT32_MAX)
		in->gid = gid;
	in->ctime = now;
	if (S_ISDIR(in->mode))
		return 0;
	in->mode &= ~(uint32_t)S_ISUID;
	if ((in->mode & S_IXGRP) != 0)
		in->mode &= ~(uint32_t)S_ISGID;
	return 0;
}

int model_fs_utimens(struct model_fs *m, uint64_t ino, int64_t atime,
		     int64_t mtime, int64_t now)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL)
		return -ENOENT;
	in->atime = atime;
	in->mtime = mtime;
	in->ctime = now;
	return 0;
}

const char *model_fs_readlink(const struct model_fs *m, uint64_t ino)
{
	struct model_inode *in = model_find(m, ino);

	return in == NULL ? NULL : in->target;
}

static struct model_xattr **xattr_find(struct model_inode *in,
				       const char *name)
{
	struct model_xattr **at = &in->xattrs;

	while (*at != NULL && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

int model_fs_setxattr(struct model_fs *m, uint64_t ino, const char *name,
		      const void *value, size_t len, uint32_t flags,
		      int64_t now)
{
	struct model_inode *in = model_find(m, ino);
	struct model_xattr **at, *x;

	if (in == NULL)
		return -ENOENT;
	at = xattr_find(in, name);
	if (*at != NULL && (flags & XATTR_CREATE) != 0)
		return -EEXIST;
	if (*at == NULL && (flags & XATTR_REPLACE) != 0)
		return -ENODATA;
	if (*at == NULL) {
		*at = model_alloc(sizeof(**at));
		(*at)->name = model_strdup(name);
	}
	x = *at;
	free(x->value);
	x->value = model_alloc(len);
	if (len > 0)
		memcpy(x->value, value, len);
	x->len = len;
	in->ctime = now;
	return 0;
}

int model_fs_removexattr(struct model_fs *m, uint64_t ino, const char *name,
			 int64_t now)
{
	struct model_inode *in = model_find(m, ino);
	struct model_xattr **at, *x;

	if (in == NULL)
		return -ENOENT;
	at = xattr_find(in, name);
	if (*at == NULL)
		return -ENODATA;
	x = *at;
	*at = x->next;
	xattr_free(x);
	in->ctime = now;
	return 0;
}

ssize_t model_fs_getxattr(const struct model_fs *m, uint64_t ino,
			  const char *name, const void **value)
{
	struct model_inode *in = model_find(m, ino);
	struct model_xattr *x;

	if (in == NULL)
		return -ENOENT;
	x = *xattr_find(in, name);
	if (x == NULL)
		return -ENODATA;
	*value = x->value;
	return (ssize_t)x->len;
}

static int find_file(const struct model_fs *m, uint64_t ino,
		     struct model_inode **ret)
{
	struct model_inode *in = model_find(m, ino);

	if (in == NULL)
		return -ENOENT;
	if (S_ISDIR(in->mode))
		return -EISDIR;
	if (!S_ISREG(in->mode))
		return -EINVAL;
	*ret = in;
	return 0;
}

static struct model_page *page_find(const struct model_inode *in,
				    uint64_t index)
{
	struct model_page *p = in->pages;

	while (p != NULL && p->index != index)
		p = p->next;
	return p;
}

static void put_bytes(struct model_inode *in, uint64_t off,
		      const uint8_t *data, uint64_t len)
{
	while (len > 0) {
		uint64_t at = off % MODEL_PAGE_SIZE;
		uint64_t part = u64_min(len, MODEL_PAGE_SIZE - at);
		struct model_page *p = page_find(in, off / MODEL_PAGE_SIZE);

		if (p == NULL) {
			p = model_alloc(sizeof(*p));
			p->index = off / MODEL_PAGE_SIZE;
			p->next = in->pages;
			in->pages = p;
		}
		memcpy(p->bytes + at, data, part);
		data += part;
		off += part;
		len -= part;
	}
}

/* Zeros what is there in [from, to), however large the range. */
static void zero_pages(struct model_inode *in, uint64_t from, uint64_t to)
{
	for (struct model_page *p = in->pages; p != NULL; p = p->next) {
		uint64_t start = p->index * MODEL_PAGE_SIZE;
		uint64_t a = u64_max(start, from);
		uint64_t b = u64_min(start + MODEL_PAGE_SIZE, to);

		if (a < b)
			memset(p->bytes + (a - start), 0, b - a);
	}
}

int model_fs_write(struct model_fs *m, uint64_t ino, uint64_t off,
		   const void *data, size_t len, int64_t now)
{
	struct model_inode *in;
	int err = find_file(m, ino, &in);

	if (err != 0 || len == 0)
		return err;
	put_bytes(in, off, data, len);
	in->size = u64_max(in->size, off + len);
	in->mtime = now;
	in->ctime = now;
	return 0;
}

ssize_t model_fs_read(const struct model_fs *m, uint64_t ino, uint64_t off,
		      void *buf, size_t len)
{
	struct model_inode *in;
	uint8_t *to = buf;
	size_t done = 0;
	int err = find_file(m, ino, &in);

	if (err != 0)
		return err;
	if (off >= in->size)
		return 0;
	len = u64_min(len, in->size - off);
	while (done < len) {
		uint64_t at = (off + done) % MODEL_PAGE_SIZE;
		size_t part = u64_min(len - done, MODEL_PAGE_SIZE - at);
		struct model_page *p =
			page_find(in, (off + done) / MODEL_PAGE_SIZE);

		if (p != NULL)
			memcpy(to + done, p->bytes + at, part);
		else
			memset(to + done, 0, part);
		done += part;
	}
	return (ssize_t)done;
}

int model_fs_truncate(struct model_fs *m, uint64_t ino, uint64_t size,
		      int64_t now)
{
	struct model_inode *in;
	int err = find_file(m, ino, &in);

	if (err != 0)
		return err;
	zero_pages(in, size, UINT64_MAX);
	in->size = size;
	in->mtime = now;
	in->ctime = now;
	return 0;
}

int model_fs_punch(struct model_fs *m, uint64_t ino, uint64_t off,
		   uint64_t len, int64_t now)
{
	struct model_inode *in;
	int err = find_file(m, ino, &in);

	if (err != 0)
		return err;
	zero_pages(in, off, len > UINT64_MAX - off ? UINT64_MAX : off + len);
	in->mtime = now;
	in->ctime = now;
	return 0;
}
