/* POSIX ACLs (POSIX.1e draft 17, as Linux has them): the xattr format, what
 * a mode and an ACL do to each other. */
#include "metad/sm_priv.h"

#include <sys/stat.h>

#define ACL_VERSION 2u
#define ACL_ID_NONE UINT32_MAX

enum {
	ACL_USER_OBJ = 0x01,
	ACL_USER = 0x02,
	ACL_GROUP_OBJ = 0x04,
	ACL_GROUP = 0x08,
	ACL_MASK = 0x10,
	ACL_OTHER = 0x20,
};

/* Entries come in the order of their tags; the three basic ones are there
 * exactly once, the mask at most once and always when somebody is named. */
static int acl_check(struct sm_acl *acl)
{
	uint32_t seen = 0;
	uint32_t last = 0;

	for (uint32_t i = 0; i < acl->count; i++) {
		struct sm_ace *e = &acl->e[i];
		bool named = e->tag == ACL_USER || e->tag == ACL_GROUP;

		if (e->tag == 0 || (e->tag & (e->tag - 1)) != 0 ||
		    e->tag > ACL_OTHER || e->perm > 7 || e->tag < last)
			return -EINVAL;
		if (e->tag == last && !named)
			return -EINVAL;
		if (named && e->id == ACL_ID_NONE)
			return -EINVAL;
		if (!named)
			e->id = ACL_ID_NONE;
		last = e->tag;
		seen |= e->tag;
	}
	if ((seen & (ACL_USER | ACL_GROUP)) != 0 && (seen & ACL_MASK) == 0)
		return -EINVAL;
	return (seen & ACL_USER_OBJ) != 0 && (seen & ACL_GROUP_OBJ) != 0 &&
	       (seen & ACL_OTHER) != 0 ? 0 : -EINVAL;
}

int sm_acl_parse(struct wire_str value, struct sm_acl *acl)
{
	struct wire_in in;
	uint32_t count;

	acl->count = 0;
	if (value.len == 0)
		return 0;
	if (value.len < 4 || (value.len - 4) % 8 != 0)
		return -EINVAL;
	wire_in_init(&in, value.p, value.len);
	if (wire_get_u32(&in) != ACL_VERSION)
		return -EOPNOTSUPP;
	count = (value.len - 4) / 8;
	if (count == 0)
		return 0;
	if (count > ACL_ENTRY_COUNT_MAX)
		return -ENOSPC;
	for (uint32_t i = 0; i < count; i++) {
		acl->e[i].tag = wire_get_u16(&in);
		acl->e[i].perm = wire_get_u16(&in);
		acl->e[i].id = wire_get_u32(&in);
	}
	acl->count = count;
	return acl_check(acl);
}

size_t sm_acl_format(const struct sm_acl *acl, uint8_t *buf)
{
	struct wire_out o;

	wire_out_init(&o, buf, SM_ACL_ENCODED_MAX);
	wire_put_u32(&o, ACL_VERSION);
	for (uint32_t i = 0; i < acl->count; i++) {
		wire_put_u16(&o, acl->e[i].tag);
		wire_put_u16(&o, acl->e[i].perm);
		wire_put_u32(&o, acl->e[i].id);
	}
	return o.len;
}

bool sm_acl_equals_mode(const struct sm_acl *acl, uint32_t *mode)
{
	uint32_t perm = 0;
	bool equal = true;

	for (uint32_t i = 0; i < acl->count; i++) {
		const struct sm_ace *e = &acl->e[i];

		switch (e->tag) {
		case ACL_USER_OBJ:
			perm |= (uint32_t)e->perm << 6;
			break;
		case ACL_GROUP_OBJ:
			perm |= (uint32_t)e->perm << 3;
			break;
		case ACL_OTHER:
			perm |= e->perm;
			break;
		case ACL_MASK:
			/* stands in the mode's group bits */
			perm = (perm & ~(uint32_t)S_IRWXG) |
			       (uint32_t)e->perm << 3;
			equal = false;
			break;
		default:
			equal = false;
		}
	}
	*mode = (*mode & ~(uint32_t)0777) | perm;
	return equal;
}

/* The entry that the mode's group bits stand for. */
static struct sm_ace *group_class(struct sm_acl *acl)
{
	struct sm_ace *group = NULL;

	for (uint32_t i = 0; i < acl->count; i++) {
		if (acl->e[i].tag == ACL_MASK)
			return &acl->e[i];
		if (acl->e[i].tag == ACL_GROUP_OBJ)
			group = &acl->e[i];
	}
	return group;
}

static void limit(struct sm_ace *e, uint32_t *mode, uint32_t shift)
{
	uint32_t both = e->perm & *mode >> shift & 7;

	e->perm = (uint16_t)both;
	*mode = (*mode & ~(7u << shift)) | both << shift;
}

bool sm_acl_inherit(struct sm_acl *acl, uint32_t *mode)
{
	struct sm_ace *group = group_class(acl);
	bool more = false;

	for (uint32_t i = 0; i < acl->count; i++) {
		struct sm_ace *e = &acl->e[i];

		if (e->tag == ACL_USER_OBJ)
			limit(e, mode, 6);
		else if (e->tag == ACL_OTHER)
			limit(e, mode, 0);
		else if (e->tag != ACL_GROUP_OBJ)
			more = true;
	}
	if (group != NULL)
		limit(group, mode, 3);
	return more;
}

void sm_acl_chmod(struct sm_acl *acl, uint32_t mode)
{
	struct sm_ace *group = group_class(acl);

	for (uint32_t i = 0; i < acl->count; i++) {
		if (acl->e[i].tag == ACL_USER_OBJ)
			acl->e[i].perm = mode >> 6 & 7;
		else if (acl->e[i].tag == ACL_OTHER)
			acl->e[i].perm = mode & 7;
	}
	if (group != NULL)
		group->perm = mode >> 3 & 7;
}

int sm_acl_load(const struct sm *sm, uint64_t ino, const char *name,
		struct sm_acl *acl)
{
	uint8_t buf[SM_ACL_ENCODED_MAX];
	ssize_t len = sm_xattr_read(sm, ino, sm_str(name), buf, sizeof(buf));

	if (len < 0)
		return -ENODATA;
	if (sm_acl_parse((struct wire_str){ buf, (uint32_t)len }, acl) != 0)
		return -ENODATA;
	return acl->count == 0 ? -ENODATA : 0;
}

static bool has_xattr(const struct sm *sm, uint64_t ino, const char *name)
{
	uint8_t buf[SM_ACL_ENCODED_MAX];

	return sm_xattr_read(sm, ino, sm_str(name), buf, sizeof(buf)) >= 0;
}

int sm_acl_store(struct sm *sm, struct sm_inode *in, const char *name,
		 const struct sm_acl *acl)
{
	uint8_t buf[SM_ACL_ENCODED_MAX];

	if (acl->count == 0) {
		(void)sm_xattr_remove(sm, in, sm_str(name)); /* or none */
		if (!has_xattr(sm, in->ino, SM_ACL_ACCESS) &&
		    !has_xattr(sm, in->ino, SM_ACL_DEFAULT))
			in->flags &= ~SM_INODE_ACL;
		return 0;
	}
	in->flags |= SM_INODE_ACL;
	return sm_xattr_write(sm, in, sm_str(name), buf,
			      sm_acl_format(acl, buf));
}
