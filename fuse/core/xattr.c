/* Extended attributes. The kernel asks for security.capability before writes
 * and for ACLs at every look-up, so "there is none" is answered from the flags
 * that come with the attributes.
 */
#include "fuse/core/early.h"
#include "fuse/core/meta_priv.h"

static void bytes_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct wire_str value = { NULL, 0 };
	struct wire_in in;

	if (!err) {
		wire_in_init(&in, body, len);
		value = wire_get_blob(&in);
		if (wire_in_known(&in))
			err = -EIO;
	}
	mc->u.bytes_cb(mc->u_arg, err, err ? NULL : value.p,
		       err ? 0 : value.len);
}

static void bytes_query(struct core *c, uint16_t op, uint64_t ino,
			const char *name, core_bytes_cb cb, void *arg)
{
	size_t len = name ? strlen(name) : 0;
	struct wire_out o;
	struct meta_call *mc = meta_call_new(c, op, 8 + 2 + len, &o);

	if (!mc) {
		cb(arg, -ENOMEM, NULL, 0);
		return;
	}
	wire_put_u64(&o, ino);
	if (name)
		wire_put_str(&o, (struct wire_str){ name, (uint32_t)len });
	mc->done = bytes_done;
	mc->u.bytes_cb = cb;
	mc->u_arg = arg;
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
}

void core_readlink(struct core *c, uint64_t ino, core_bytes_cb cb, void *arg)
{
	core_lock(c);
	struct core_inode *in = inode_find(c, ino);
	if (in)
		inode_touch_atime(c, in);
	core_unlock(c);
	bytes_query(c, WIRE_OP_META_READLINK, ino, NULL, cb, arg);
}

/* Flags of which at least one is set when @name exists. */
static uint32_t xattr_flag(const char *name)
{
	if (strcmp(name, "security.capability") == 0)
		return META_ATTR_CAPS;
	if (strncmp(name, "system.posix_acl_", 17) == 0)
		return META_ATTR_ACL;
	return META_ATTR_XATTR;
}

/* May it exist? (metad says what is wrong with it.) */
static bool xattr_name_good(const char *name)
{
	const char *dot = strchr(name, '.');

	return dot && dot[1] &&
	       (strncmp(name, "user.", 5) == 0 ||
		strncmp(name, "trusted.", 8) == 0 ||
		strncmp(name, "security.", 9) == 0 ||
		strcmp(name, "system.posix_acl_access") == 0 ||
		strcmp(name, "system.posix_acl_default") == 0);
}

/* Is it known that @ino has none of these? */
static bool xattr_absent(struct core *c, uint64_t ino, uint32_t flags)
{
	core_lock(c);
	const struct core_inode *in = inode_find(c, ino);
	bool absent = in && in->attr_valid && !(in->attr.flags & flags) &&
		      meta_may_serve(c) && !c->opt.shared;
	c->count.xattrs++;
	c->count.xattrs_local += absent;
	core_unlock(c);
	return absent;
}

void core_getxattr(struct core *c, uint64_t ino, const char *name,
		   core_bytes_cb cb, void *arg)
{
	if (strlen(name) > XATTR_NAME_LEN_MAX)
		cb(arg, -ERANGE, NULL, 0);
	else if (xattr_name_good(name) &&
		 xattr_absent(c, ino, xattr_flag(name)))
		cb(arg, -ENODATA, NULL, 0);
	else
		bytes_query(c, WIRE_OP_META_GETXATTR, ino, name, cb, arg);
}

void core_listxattr(struct core *c, uint64_t ino, core_bytes_cb cb, void *arg)
{
	if (xattr_absent(c, ino,
			 META_ATTR_XATTR | META_ATTR_ACL | META_ATTR_CAPS))
		cb(arg, 0, "", 0);
	else
		bytes_query(c, WIRE_OP_META_LISTXATTR, ino, NULL, cb, arg);
}

static void xattr_changed(struct meta_call *mc, int err, const uint8_t *body,
			  uint32_t len)
{
	struct core *c = mc->c;
	struct core_inode *in;
	struct meta_attr a;

	core_lock(c);
	if (!err)
		err = meta_take_attr(mc, body, len, &a, &in);
	if (!err)
		inode_mutated(in, mc->seq);
	if (!err && !mc->u.cb) /* it was said to have failed */
		inode_tell_changed(c, a.ino);
	core_unlock(c);
	if (mc->u.cb)
		mc->u.cb(mc->u_arg, err);
}

static void xattr_change(struct meta_call *mc, struct wire_out *o, core_cb cb,
			 void *arg)
{
	mc->done = xattr_changed;
	mc->timed_out = meta_cb_timed_out;
	mc->u.cb = cb;
	mc->u_arg = arg;
	core_lock(mc->c);
	meta_call_queue(mc, o);
	core_unlock(mc->c);
}

void core_setxattr(struct core *c, uint64_t ino, const char *name,
		   const void *value, size_t len, uint32_t flags, core_cb cb,
		   void *arg)
{
	size_t name_len = strlen(name);
	struct wire_out o;

	if (name_len > XATTR_NAME_LEN_MAX || name_len == 0) {
		cb(arg, -ERANGE);
		return;
	}
	if (len > XATTR_VALUE_MAX) {
		cb(arg, -E2BIG);
		return;
	}
	struct meta_setxattr x = {
		.ino = ino,
		.name = { name, (uint32_t)name_len },
		.value = { value, (uint32_t)len },
		.flags = flags,
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_SETXATTR,
					     meta_setxattr_size(&x), &o);
	if (!mc) {
		cb(arg, -ENOMEM);
		return;
	}
	meta_setxattr_encode(&o, &x);
	xattr_change(mc, &o, cb, arg);
}

void core_removexattr(struct core *c, uint64_t ino, const char *name,
		      core_cb cb, void *arg)
{
	size_t name_len = strlen(name);
	struct wire_out o;

	if (name_len > XATTR_NAME_LEN_MAX) {
		cb(arg, -ERANGE);
		return;
	}
	struct meta_removexattr x = {
		.ino = ino, .name = { name, (uint32_t)name_len }
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_REMOVEXATTR,
					     meta_removexattr_size(&x), &o);
	if (!mc) {
		cb(arg, -ENOMEM);
		return;
	}
	meta_removexattr_encode(&o, &x);
	xattr_change(mc, &o, cb, arg);
}
