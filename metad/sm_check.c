/* The one place where the bodies of commands and queries are checked. What
 * passes here may be applied to any state without a further look at its form.
 */
#include "metad/sm_priv.h"

#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define CREATE_FLAGS_KNOWN                                                    \
	(META_CREATE_TMPFILE | META_CREATE_LEASE | META_CREATE_OPEN |         \
	 META_CREATE_EXCL)
#define SET_KNOWN 0x1ffu
#define RETURN_KNOWN 0xfu
#define XATTR_FLAGS_KNOWN                                                     \
	(XATTR_CREATE | XATTR_REPLACE | META_XATTR_KILL_SGID)
#define COOKIE_MAX INT64_MAX
#define RAISE_MAX (UINT64_C(1) << 62)

/* A name to make or to remove; "." and ".." never are. */
static int check_name(struct wire_str s)
{
	if (s.len > NAME_LEN_MAX)
		return -ENAMETOOLONG;
	if (s.len == 0 || memchr(s.p, '/', s.len) != NULL ||
	    memchr(s.p, '\0', s.len) != NULL)
		return -EINVAL;
	return sm_str_is(s, ".") || sm_str_is(s, "..") ? -EINVAL : 0;
}

static int check_lookup_name(struct wire_str s)
{
	if (sm_str_is(s, ".") || sm_str_is(s, ".."))
		return 0;
	return check_name(s);
}

static bool has_namespace(struct wire_str s, const char *prefix)
{
	size_t len = strlen(prefix);

	return s.len >= len && memcmp(s.p, prefix, len) == 0;
}

static int check_xattr_name(struct wire_str s)
{
	static const char *const spaces[] = { "user.", "trusted.",
					      "security." };

	if (s.len > XATTR_NAME_LEN_MAX)
		return -ENAMETOOLONG;
	if (s.len == 0 || memchr(s.p, '\0', s.len) != NULL)
		return -EINVAL;
	for (size_t i = 0; i < array_count(spaces); i++) {
		if (has_namespace(s, spaces[i]))
			return s.len > strlen(spaces[i]) ? 0 : -EINVAL;
	}
	return sm_str_is(s, SM_ACL_ACCESS) || sm_str_is(s, SM_ACL_DEFAULT) ?
	       0 : -EOPNOTSUPP;
}

int sm_mhdr_split(const void **body, size_t *len, struct meta_mhdr *h)
{
	struct wire_in in;

	wire_in_init(&in, *body, *len);
	meta_mhdr_decode(&in, h);
	if (in.bad)
		return -EBADMSG;
	*body = in.p;
	*len = in.len;
	return 0;
}

int sm_check_mhdr(const struct meta_mhdr *h)
{
	return h->seq_low >= 1 && h->seq >= h->seq_low &&
	       h->seq - h->seq_low < SESSION_WINDOW_MAX ? 0 : -EINVAL;
}

int sm_check_empty(const void *body, size_t len)
{
	(void)body;
	return len == 0 ? 0 : -EBADMSG;
}

int sm_check_ino(const void *body, size_t len)
{
	struct meta_ino q;

	return meta_ino_parse(body, len, &q);
}

int sm_check_lookup(const void *body, size_t len)
{
	struct meta_lookup q;
	int err = meta_lookup_parse(body, len, &q);

	return err != 0 ? err : check_lookup_name(q.name);
}

int sm_check_readdir(const void *body, size_t len)
{
	struct meta_readdir q;
	int err = meta_readdir_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.cookie <= COOKIE_MAX && q.plus <= 1 ? 0 : -EINVAL;
}

int sm_check_getxattr(const void *body, size_t len)
{
	struct meta_getxattr q;
	int err = meta_getxattr_parse(body, len, &q);

	return err != 0 ? err : check_xattr_name(q.name);
}

static int check_type(const struct meta_create *c)
{
	bool link = S_ISLNK(c->mode);

	switch (c->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFCHR:
	case S_IFBLK:
	case S_IFIFO:
	case S_IFSOCK:
		break;
	default:
		return -EINVAL;
	}
	if (c->mode > UINT16_MAX || link != (c->target.len > 0))
		return -EINVAL;
	if (c->target.len > SYMLINK_LEN_MAX)
		return -ENAMETOOLONG;
	return link && memchr(c->target.p, '\0', c->target.len) != NULL ?
	       -EINVAL : 0;
}

int sm_check_create(const void *body, size_t len)
{
	struct meta_create c;
	int err = meta_create_parse(body, len, &c);

	if (err != 0)
		return err;
	if ((c.flags & ~CREATE_FLAGS_KNOWN) != 0)
		return -EINVAL;
	if ((c.flags & META_CREATE_TMPFILE) != 0)
		err = c.name.len == 0 && S_ISREG(c.mode) ? 0 : -EINVAL;
	else
		err = check_name(c.name);
	return err != 0 ? err : check_type(&c);
}

int sm_check_unlink(const void *body, size_t len)
{
	struct meta_unlink u;
	int err = meta_unlink_parse(body, len, &u);

	if (err != 0)
		return err;
	return (u.flags & ~META_UNLINK_DIR) != 0 ? -EINVAL :
						   check_name(u.name);
}

int sm_rename_parse(const void *body, size_t len, struct meta_rename *q)
{
	struct wire_in in;
	int err = meta_rename_parse(body, len, q);

	if (err == 0)
		return 0;
	wire_in_init(&in, body, len);
	*q = (struct meta_rename){ .parent = wire_get_u64(&in) };
	q->name = wire_get_str(&in);
	q->newparent = wire_get_u64(&in);
	q->newname = wire_get_str(&in);
	q->flags = wire_get_u32(&in);
	err = wire_in_end(&in);
	return err == 0 && (q->flags & RENAME_WHITEOUT) != 0 ? -EBADMSG : err;
}

int sm_check_rename(const void *body, size_t len)
{
	const uint32_t moves = RENAME_NOREPLACE | RENAME_WHITEOUT;
	struct meta_rename q;
	int err = sm_rename_parse(body, len, &q);

	if (err != 0)
		return err;
	if ((q.flags & ~moves) != 0 && q.flags != RENAME_EXCHANGE)
		return -EINVAL;
	err = check_name(q.name);
	return err != 0 ? err : check_name(q.newname);
}

int sm_check_link(const void *body, size_t len)
{
	struct meta_link l;
	int err = meta_link_parse(body, len, &l);

	return err != 0 ? err : check_name(l.newname);
}

int sm_check_setattr(const void *body, size_t len)
{
	struct meta_setattr s;
	int err = meta_setattr_parse(body, len, &s);

	if (err != 0)
		return err;
	if ((s.valid & ~SET_KNOWN) != 0)
		return -EINVAL;
	return (s.valid & META_SET_SIZE) != 0 && s.size > FILE_SIZE_MAX ?
	       -EFBIG : 0;
}

int sm_check_setxattr(const void *body, size_t len)
{
	struct meta_setxattr s;
	int err = meta_setxattr_parse(body, len, &s);
	struct log_opts opts;
	uint8_t log2;

	if (err != 0)
		return err;
	if (sm_str_is(s.name, META_XATTR_BLOCK_SIZE) &&
	    sm_block_size_parse(s.value, &log2) != 0)
		return -EINVAL;
	if (sm_str_is(s.name, META_XATTR_LOG) &&
	    log_opts_parse(s.value, &opts) != 0)
		return -EINVAL;
	if ((s.flags & ~XATTR_FLAGS_KNOWN) != 0)
		return -EINVAL;
	if (s.value.len > XATTR_VALUE_MAX)
		return -E2BIG;
	return check_xattr_name(s.name);
}

int sm_check_removexattr(const void *body, size_t len)
{
	struct meta_removexattr r;
	int err = meta_removexattr_parse(body, len, &r);

	return err != 0 ? err : check_xattr_name(r.name);
}

int sm_check_return(const void *body, size_t len)
{
	struct wire_in in;
	uint32_t count = 0;

	wire_in_init(&in, body, len);
	while (in.len > 0) {
		struct meta_return r;

		meta_return_decode(&in, &r);
		if (in.bad)
			return -EBADMSG;
		if ((r.what & ~RETURN_KNOWN) != 0 || r.size > FILE_SIZE_MAX ||
		    ++count > RETURN_COUNT_MAX)
			return -EINVAL;
	}
	return 0;
}

int sm_check_cut(const void *body, size_t len)
{
	struct meta_cut c;
	int err = meta_cut_parse(body, len, &c);

	if (err != 0)
		return err;
	if ((c.flags & ~META_CUT_KILLPRIV) != 0 || c.to <= c.from)
		return -EINVAL;
	return c.size > FILE_SIZE_MAX || c.size_now > FILE_SIZE_MAX ||
	       c.from > FILE_SIZE_MAX ? -EFBIG : 0;
}

/* ---- metad's own commands ---- */

int sm_check_session_open(const void *body, size_t len)
{
	struct sm_session_open q;
	uint32_t flags;
	int err = sm_session_open_split(body, len, &q, &flags);

	if (err != 0)
		return err;
	return (q.host.len > 0 && memchr(q.host.p, 0, q.host.len) != NULL) ||
	       (q.mountpoint.len > 0 &&
		memchr(q.mountpoint.p, 0, q.mountpoint.len) != NULL) ?
	       -EINVAL : 0;
}

int sm_check_session_close(const void *body, size_t len)
{
	struct sm_session_close q;
	int err = sm_session_close_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.dead == 1 || q.dead == 2 ? 0 : -EINVAL;
}

/* Fits a map's daemon. */
static bool is_text(struct wire_str s)
{
	return s.len <= CMAP_ADDR_LEN_MAX &&
	       (s.len == 0 || memchr(s.p, 0, s.len) == NULL);
}

int sm_check_daemon_set(const void *body, size_t len)
{
	struct sm_daemon_set q;
	int err = sm_daemon_set_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.id != 0 && is_text(q.addr) && q.state <= CMAP_STATE_LOST ?
	       0 : -EINVAL;
}

int sm_check_logd_set(const void *body, size_t len)
{
	struct sm_logd_set q;
	int err = sm_logd_set_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.id != 0 && is_text(q.addr) && is_text(q.rdma_addr) &&
	       is_text(q.domain) ? 0 : -EINVAL;
}

int sm_check_purge_done(const void *body, size_t len)
{
	struct sm_purge_done q;
	int err = sm_purge_done_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.inos.len % 8 == 0 && q.inos.len / 8 <= PURGE_COUNT_MAX ?
	       0 : -EINVAL;
}

int sm_check_cut_done(const void *body, size_t len)
{
	struct sm_cut_done q;

	return sm_cut_done_parse(body, len, &q);
}

int sm_check_size_set(const void *body, size_t len)
{
	struct sm_size_set q;
	int err = sm_size_set_parse(body, len, &q);

	if (err != 0)
		return err;
	return q.size > FILE_SIZE_MAX ? -EINVAL : 0;
}

int sm_check_raise(const void *body, size_t len)
{
	struct sm_raise q;
	int err = sm_raise_read(body, len, &q);

	if (err != 0)
		return err;
	/* What a daemon says it has seen: from near the end of the numbers the
	 * next one would wrap, and be used again. */
	return q.ino > RAISE_MAX || q.session > RAISE_MAX ||
	       q.epoch > RAISE_MAX || q.cut > RAISE_MAX ||
	       q.log_epoch > RAISE_MAX ? -EINVAL : 0;
}

int sm_check_bootstrap(const void *body, size_t len)
{
	struct sm_bootstrap q;
	struct cmap *map;
	int err = sm_bootstrap_parse(body, len, &q);

	if (err != 0)
		return err;
	err = cmap_decode(q.map.p, q.map.len, &map);
	if (err != 0)
		return err;
	cmap_free(map);
	return 0;
}
