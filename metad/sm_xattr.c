/* Extended attributes: storage in chunks, and the rules of the namespaces. */
#include "metad/sm_priv.h"

#include <sys/stat.h>
#include <sys/xattr.h>

struct wire_str sm_str(const char *s)
{
	return (struct wire_str){ s, (uint32_t)strlen(s) };
}

bool sm_str_is(struct wire_str s, const char *text)
{
	return s.len == strlen(text) && memcmp(s.p, text, s.len) == 0;
}

static struct sm_key xattr_key(uint64_t ino, struct wire_str name)
{
	struct sm_key k = sm_key1(SM_K_XATTR, ino);

	sm_key_raw(&k, name.p, name.len);
	sm_key_raw(&k, "", 1); /* so that no name is the start of another */
	return k;
}

ssize_t sm_xattr_read(const struct sm *sm, uint64_t ino, struct wire_str name,
		      void *buf, size_t cap)
{
	struct sm_key k = xattr_key(ino, name);
	ssize_t len = sm_blob_get(sm, &k, buf, cap);

	return len == -ENOENT ? -ENODATA : len;
}

/* Bytes of its value, or -ENODATA. */
static ssize_t value_size(const struct sm *sm, const struct sm_key *k)
{
	struct cow_iter it;
	ssize_t size = 0;

	if (!sm_seek_prefix(sm, &it, k, k->len))
		return -ENODATA;
	do {
		size += it.vlen;
	} while (sm_next_prefix(&it, k, k->len));
	return size;
}

int sm_xattr_write(struct sm *sm, struct sm_inode *in, struct wire_str name,
		   const void *value, size_t len)
{
	struct sm_key k = xattr_key(in->ino, name);
	ssize_t old = value_size(sm, &k);
	uint64_t list = in->xattr_list;
	uint64_t bytes = in->xattr_bytes + len;

	if (old < 0) {
		list += name.len + 1;
		bytes += name.len + 1;
	} else {
		bytes -= (uint64_t)old;
	}
	/* A directory may have to list one name more. */
	if (list > XATTR_LIST_LEN_MAX - (S_ISDIR(in->mode) ?
				     sizeof(META_XATTR_BLOCK_SIZE) : 0) ||
	    bytes > XATTR_TOTAL_MAX)
		return -ENOSPC;
	in->xattr_list = (uint32_t)list;
	in->xattr_bytes = (uint32_t)bytes;
	in->flags |= SM_INODE_XATTR;
	if (sm_str_is(name, "security.capability"))
		in->flags |= SM_INODE_CAPS;
	if (sm_str_is(name, META_XATTR_LOG))
		in->flags |= SM_INODE_LOG;
	sm_blob_put(sm, &k, value, len);
	return 0;
}

bool sm_xattr_remove(struct sm *sm, struct sm_inode *in, struct wire_str name)
{
	struct sm_key k = xattr_key(in->ino, name);
	ssize_t old = value_size(sm, &k);

	if (old < 0)
		return false;
	sm_del_prefix(sm, &k);
	in->xattr_list -= name.len + 1;
	in->xattr_bytes -= (uint32_t)old + name.len + 1;
	if (in->xattr_list == 0)
		in->flags &= ~SM_INODE_XATTR;
	if (sm_str_is(name, "security.capability"))
		in->flags &= ~SM_INODE_CAPS;
	if (sm_str_is(name, META_XATTR_LOG) && S_ISDIR(in->mode))
		in->flags &= ~SM_INODE_LOG;
	return true;
}

/* ---- the block size: an attribute that is a field of the inode ---- */

int sm_block_size_parse(struct wire_str value, uint8_t *log2)
{
	const char *p = value.p;
	uint64_t size = 0;
	uint32_t i = 0;

	for (; i < value.len && p[i] >= '0' && p[i] <= '9'; i++) {
		size = size * 10 + (uint64_t)(p[i] - '0');
		if (size > 1u << BLOCK_LOG2_MAX)
			return -EINVAL;
	}
	if (i > 0 && i + 1 == value.len && (p[i] == 'K' || p[i] == 'k'))
		size <<= 10;
	else if (i > 0 && i + 1 == value.len && (p[i] == 'M' || p[i] == 'm'))
		size <<= 20;
	else if (i != value.len)
		return -EINVAL;
	if (size < 1u << BLOCK_LOG2_MIN || size > 1u << BLOCK_LOG2_MAX ||
	    (size & (size - 1)) != 0)
		return -EINVAL;
	*log2 = (uint8_t)__builtin_ctzll(size);
	return 0;
}

bool sm_block_size_told(const struct sm_inode *in)
{
	return S_ISDIR(in->mode) && in->block_log2 != BLOCK_LOG2_DEFAULT;
}

static ssize_t block_size_get(const struct sm_inode *in, void *buf)
{
	char text[16];
	int len;

	if (!sm_block_size_told(in))
		return -ENODATA;
	len = snprintf(text, sizeof(text), "%u", 1u << in->block_log2);
	memcpy(buf, text, (size_t)len);
	return len;
}

static int block_size_set(struct sm_inode *in, const struct meta_setxattr *s)
{
	bool told = sm_block_size_told(in);

	/* A file keeps the size it was made with. */
	if (!S_ISDIR(in->mode))
		return -EINVAL;
	if (told && (s->flags & XATTR_CREATE) != 0)
		return -EEXIST;
	if (!told && (s->flags & XATTR_REPLACE) != 0)
		return -ENODATA;
	return sm_block_size_parse(s->value, &in->block_log2);
}

/* ---- commands and queries ---- */

int sm_run_getxattr(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_getxattr q;
	struct sm_inode in;
	struct wire_out head;
	ssize_t got;
	int err = meta_getxattr_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	if (sm_str_is(q.name, META_XATTR_BLOCK_SIZE))
		got = block_size_get(&in, x->out.p + 4);
	else
		got = sm_xattr_read(x->sm, q.ino, q.name, x->out.p + 4,
				    XATTR_VALUE_MAX);
	if (got < 0)
		return got == -ENODATA ? -ENODATA : -EIO;
	wire_out_init(&head, x->out.p, 4);
	wire_put_u32(&head, (uint32_t)got); /* a blob's length */
	x->out.len = 4 + (size_t)got;
	return 0;
}

int sm_run_listxattr(struct sm_ctx *x, const void *body, size_t len)
{
	struct wire_out names, head;
	struct meta_ino q;
	struct sm_inode in;
	struct cow_iter it;
	struct sm_key k;
	bool more;
	int err = meta_ino_parse(body, len, &q);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, q.ino, &in))
		return -ENOENT;
	wire_out_init(&names, x->out.p + 4, XATTR_LIST_LEN_MAX);
	k = sm_key1(SM_K_XATTR, q.ino);
	for (more = sm_seek_prefix(x->sm, &it, &k, k.len); more;
	     more = sm_next_prefix(&it, &k, k.len)) {
		/* the name's first chunk: name, NUL, 0 */
		if (it.key[it.klen - 1] == 0)
			wire_put_raw(&names, it.key + k.len,
				     it.klen - k.len - 1);
	}
	if (sm_block_size_told(&in))
		wire_put_raw(&names, META_XATTR_BLOCK_SIZE,
			     sizeof(META_XATTR_BLOCK_SIZE));
	if (names.overflow)
		return -EIO;
	wire_out_init(&head, x->out.p, 4);
	wire_put_u32(&head, (uint32_t)names.len);
	x->out.len = 4 + names.len;
	return 0;
}

static int finish(struct sm_ctx *x, struct sm_inode *in)
{
	in->ctime = x->now;
	sm_inode_put(x->sm, in);
	sm_reply_attr(x, in);
	return 0;
}

static bool is_acl(struct wire_str name, const char **ret_name)
{
	*ret_name = sm_str_is(name, SM_ACL_ACCESS) ? SM_ACL_ACCESS :
		    sm_str_is(name, SM_ACL_DEFAULT) ? SM_ACL_DEFAULT : NULL;
	return *ret_name != NULL;
}

/* An access ACL sets the mode too, and is not kept when it says no more. */
static int set_acl(struct sm_ctx *x, struct sm_inode *in, const char *name,
		   const struct meta_setxattr *s)
{
	bool access = strcmp(name, SM_ACL_ACCESS) == 0;
	struct sm_acl acl;
	uint32_t mode = in->mode;
	int err;

	if (S_ISLNK(in->mode))
		return -EOPNOTSUPP;
	err = sm_acl_parse(s->value, &acl);
	if (err != 0)
		return err;
	if (!access && !S_ISDIR(in->mode))
		return acl.count == 0 ? 0 : -EACCES;
	if (access && acl.count > 0) {
		if (sm_acl_equals_mode(&acl, &mode))
			acl.count = 0;
		if ((s->flags & META_XATTR_KILL_SGID) != 0)
			mode &= ~(uint32_t)S_ISGID;
	}
	err = sm_acl_store(x->sm, in, name, &acl);
	if (err == 0)
		in->mode = mode;
	return err;
}

int sm_run_setxattr(struct sm_ctx *x, const void *body, size_t len)
{
	struct meta_setxattr s;
	struct sm_inode in;
	struct sm_key k;
	const char *acl;
	bool exists;
	int err = meta_setxattr_parse(body, len, &s);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, s.ino, &in))
		return -ENOENT;
	if (sm_str_is(s.name, META_XATTR_BLOCK_SIZE)) {
		err = block_size_set(&in, &s);
		return err != 0 ? err : finish(x, &in);
	}
	if (sm_str_is(s.name, META_XATTR_LOG) && !S_ISDIR(in.mode))
		return -EINVAL;
	k = xattr_key(s.ino, s.name);
	exists = sm_any_prefix(x->sm, &k);
	if (exists && (s.flags & XATTR_CREATE) != 0)
		return -EEXIST;
	if (!exists && (s.flags & XATTR_REPLACE) != 0)
		return -ENODATA;
	if (is_acl(s.name, &acl))
		err = set_acl(x, &in, acl, &s);
	else
		err = sm_xattr_write(x->sm, &in, s.name, s.value.p,
				     s.value.len);
	return err != 0 ? err : finish(x, &in);
}

int sm_run_removexattr(struct sm_ctx *x, const void *body, size_t len)
{
	static const struct sm_acl none = { .count = 0 };
	struct meta_removexattr r;
	struct sm_inode in;
	const char *acl;
	struct sm_key k;
	int err = meta_removexattr_parse(body, len, &r);

	if (err != 0)
		return err;
	if (!sm_inode_get(x->sm, r.ino, &in))
		return -ENOENT;
	if (sm_str_is(r.name, META_XATTR_BLOCK_SIZE)) {
		if (!sm_block_size_told(&in))
			return -ENODATA;
		in.block_log2 = BLOCK_LOG2_DEFAULT;
		return finish(x, &in);
	}
	k = xattr_key(r.ino, r.name);
	if (!sm_any_prefix(x->sm, &k)) {
		if (!is_acl(r.name, &acl))
			return -ENODATA;
		sm_reply_attr(x, &in); /* the mode alone is an ACL too */
		return 0;
	}
	if (is_acl(r.name, &acl))
		(void)sm_acl_store(x->sm, &in, acl, &none); /* a removal */
	else
		(void)sm_xattr_remove(x->sm, &in, r.name); /* seen above */
	return finish(x, &in);
}
