#include "tests/lib/sm_client.h"

#include "common/crc32c.h"
#include "common/wire_blk.h"
#include "metad/sm_priv.h"

#include <sys/stat.h>

#define SECOND_NS 1000000000ll

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "sm_client: %s\n", what);
	abort();
}

static struct wire_str str(const char *s)
{
	return (struct wire_str){ s, s == NULL ? 0 : (uint32_t)strlen(s) };
}

static void buffers_init(struct sm_client *c)
{
	memset(c, 0, sizeof(*c));
	c->body = malloc(SM_CLIENT_BODY_MAX);
	must(c->body != NULL, "memory");
	c->seq_low = 1;
	c->now = 1700000000 * SECOND_NS;
	c->umask = 022;
}

static void bootstrap(struct sm_client *c)
{
	uint8_t *buf = malloc(SM_CLIENT_BODY_MAX);
	struct cmap_daemon d = { .id = 1, .addr = "127.0.0.1", .port = 7 };
	struct cmap *m = cmap_new();
	struct wire_out o;
	struct sm_bootstrap b;

	must(buf != NULL && m != NULL && cmap_add_daemon(m, &d) == 0,
	     "memory");
	m->cluster_id = 77;
	cmap_fill_slots(m);
	wire_out_init(&o, buf, SM_CLIENT_BODY_MAX);
	cmap_encode(&o, m);
	b = (struct sm_bootstrap){ .now_ns = c->now,
				   .mode = 0755,
				   .map = { buf, (uint32_t)o.len } };
	wire_out_init(&o, c->body, SM_CLIENT_BODY_MAX);
	sm_bootstrap_encode(&o, &b);
	must(sm_client_internal(c, WIRE_OP_SM_BOOTSTRAP, c->body, o.len) == 0,
	     "bootstrap");
	cmap_free(m);
	free(buf);
}

void sm_client_join(struct sm_client *c, struct sm *sm)
{
	uint8_t buf[256];
	struct sm_session_open q = { .client_id = 5, .host = str("host"),
				     .mountpoint = str("/mnt") };
	struct wire_out o;
	struct wire_in in;

	buffers_init(c);
	c->sm = sm;
	if (sm_map(sm)->epoch == 0)
		bootstrap(c);
	wire_out_init(&o, buf, sizeof(buf));
	sm_session_open_encode(&o, &q);
	must(sm_client_internal(c, WIRE_OP_SM_SESSION_OPEN, buf, o.len) == 0,
	     "session");
	wire_in_init(&in, c->r.body, c->r.body_len);
	c->session = wire_get_u64(&in);
}

void sm_client_init_in(struct sm_client *c, struct sm *sm)
{
	sm_client_join(c, sm);
}

void sm_client_init(struct sm_client *c)
{
	struct sm *sm = sm_new();

	must(sm != NULL, "memory");
	sm_client_init_in(c, sm);
}

void sm_client_leave(struct sm_client *c)
{
	free(c->body);
	c->body = NULL;
}

void sm_client_fini(struct sm_client *c)
{
	sm_free(c->sm);
	c->sm = NULL;
	sm_client_leave(c);
}

int sm_client_repeat_on(struct sm_client *c, struct sm *sm,
			struct sm_reply *r)
{
	int err = sm_validate(c->op, c->body, c->body_len);

	if (err != 0)
		return err;
	sm_apply(sm, c->op, c->internal ? 0 : c->session, c->body,
		 c->body_len, r);
	return r->status;
}

int sm_client_resend(struct sm_client *c)
{
	return sm_client_repeat_on(c, c->sm, &c->r);
}

int sm_client_internal(struct sm_client *c, uint16_t op, const void *body,
		       size_t len)
{
	int err = sm_validate(op, body, len);

	if (err != 0)
		return err;
	if (sm_is_query(op)) {
		sm_query(c->sm, op, c->session, body, len, &c->r);
		return c->r.status;
	}
	must(len <= SM_CLIENT_BODY_MAX, "body too long");
	memmove(c->body, body, len);
	c->body_len = len;
	c->op = op;
	c->internal = true;
	return sm_client_resend(c);
}

/* Starts the body of the next mutation. */
static struct wire_out begin(struct sm_client *c, uint16_t op)
{
	struct meta_mhdr h;
	struct wire_out o;

	c->op = op;
	c->internal = false;
	c->seq++;
	c->now += SECOND_NS;
	if (!c->keep_replies)
		c->seq_low = c->seq;
	h = (struct meta_mhdr){ c->seq, c->seq_low, c->now };
	wire_out_init(&o, c->body, SM_CLIENT_BODY_MAX);
	meta_mhdr_encode(&o, &h);
	return o;
}

static int finish(struct sm_client *c, const struct wire_out *o)
{
	must(!o->overflow, "body too long");
	c->body_len = o->len;
	return sm_client_resend(c);
}

int sm_client_send(struct sm_client *c, uint16_t op, const void *fields,
		   size_t len)
{
	struct wire_out o = begin(c, op);

	wire_put_raw(&o, fields, len);
	return finish(c, &o);
}

/* A mutation whose reply starts with attributes. */
static int finish_attr(struct sm_client *c, const struct wire_out *o)
{
	struct wire_in in;
	int err = finish(c, o);

	if (err != 0)
		return err;
	wire_in_init(&in, c->r.body, c->r.body_len);
	meta_attr_decode(&in, &c->attr);
	c->existed = false;
	if (c->op == WIRE_OP_META_CREATE)
		c->existed = wire_get_u8(&in) != 0;
	must(wire_in_end(&in) == 0, "attributes");
	return 0;
}

int sm_client_create(struct sm_client *c, const struct meta_create *p)
{
	struct wire_out o = begin(c, WIRE_OP_META_CREATE);

	meta_create_encode(&o, p);
	return finish_attr(c, &o);
}

int sm_client_create_at(struct sm_client *c, const struct meta_create *p,
			uint64_t ino)
{
	struct wire_out o = begin(c, WIRE_OP_META_CREATE);
	struct meta_create q = *p;

	q.ino = ino;
	meta_create_encode(&o, &q);
	return finish_attr(c, &o);
}

int sm_client_mknod(struct sm_client *c, uint64_t dir, const char *name,
		    uint32_t mode, uint32_t rdev)
{
	struct meta_create p = { .parent = dir, .name = str(name),
				 .mode = mode, .rdev = rdev, .uid = c->uid,
				 .gid = c->gid, .umask = c->umask };

	return sm_client_create(c, &p);
}

int sm_client_file(struct sm_client *c, uint64_t dir, const char *name)
{
	return sm_client_mknod(c, dir, name, S_IFREG | 0666, 0);
}

int sm_client_mkdir(struct sm_client *c, uint64_t dir, const char *name)
{
	return sm_client_mknod(c, dir, name, S_IFDIR | 0777, 0);
}

int sm_client_symlink(struct sm_client *c, uint64_t dir, const char *name,
		      const char *target)
{
	struct meta_create p = { .parent = dir, .name = str(name),
				 .mode = S_IFLNK | 0777, .uid = c->uid,
				 .gid = c->gid, .umask = c->umask,
				 .target = str(target) };

	return sm_client_create(c, &p);
}

int sm_client_tmpfile(struct sm_client *c, uint64_t dir, uint32_t mode)
{
	struct meta_create p = { .parent = dir, .mode = S_IFREG | mode,
				 .uid = c->uid, .gid = c->gid,
				 .umask = c->umask,
				 .flags = META_CREATE_TMPFILE };

	return sm_client_create(c, &p);
}

static int unlink_flags(struct sm_client *c, uint64_t dir, const char *name,
			uint32_t flags)
{
	struct meta_unlink u = { dir, str(name), flags };
	struct wire_out o = begin(c, WIRE_OP_META_UNLINK);

	meta_unlink_encode(&o, &u);
	return finish(c, &o);
}

int sm_client_unlink(struct sm_client *c, uint64_t dir, const char *name)
{
	return unlink_flags(c, dir, name, 0);
}

int sm_client_rmdir(struct sm_client *c, uint64_t dir, const char *name)
{
	return unlink_flags(c, dir, name, META_UNLINK_DIR);
}

int sm_client_rename(struct sm_client *c, uint64_t dir, const char *name,
		     uint64_t newdir, const char *newname, uint32_t flags,
		     struct meta_rename_reply *ret)
{
	struct meta_rename q = { dir, str(name), newdir, str(newname), flags,
				 c->uid, c->gid };
	struct wire_out o = begin(c, WIRE_OP_META_RENAME);
	int err;

	meta_rename_encode(&o, &q);
	err = finish(c, &o);
	if (err == 0 && ret != NULL)
		must(meta_rename_reply_parse(c->r.body, c->r.body_len, ret) ==
		     0, "rename reply");
	return err;
}

int sm_client_rename_v1(struct sm_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname, uint32_t flags)
{
	struct meta_rename q = { dir, str(name), newdir, str(newname), flags,
				 0, 0 };
	struct wire_out o = begin(c, WIRE_OP_META_RENAME);

	meta_rename_encode(&o, &q);
	o.len -= sizeof(q.uid) + sizeof(q.gid);
	return finish(c, &o);
}

int sm_client_link(struct sm_client *c, uint64_t ino, uint64_t dir,
		   const char *name)
{
	struct meta_link l = { ino, dir, str(name) };
	struct wire_out o = begin(c, WIRE_OP_META_LINK);

	meta_link_encode(&o, &l);
	return finish_attr(c, &o);
}

int sm_client_setattr(struct sm_client *c, const struct meta_setattr *s)
{
	struct wire_out o = begin(c, WIRE_OP_META_SETATTR);

	meta_setattr_encode(&o, s);
	return finish_attr(c, &o);
}

int sm_client_chmod(struct sm_client *c, uint64_t ino, uint32_t mode)
{
	struct meta_setattr s = { .ino = ino, .valid = META_SET_MODE,
				  .mode = mode };

	return sm_client_setattr(c, &s);
}

int sm_client_chown(struct sm_client *c, uint64_t ino, uint32_t uid,
		    uint32_t gid)
{
	struct meta_setattr s = { .ino = ino,
				  .valid = META_SET_UID | META_SET_GID,
				  .uid = uid, .gid = gid };

	return sm_client_setattr(c, &s);
}

int sm_client_setxattr(struct sm_client *c, uint64_t ino, const char *name,
		       const void *value, size_t len, uint32_t flags)
{
	struct meta_setxattr s = { ino, str(name),
				   { value, (uint32_t)len }, flags };
	struct wire_out o = begin(c, WIRE_OP_META_SETXATTR);

	meta_setxattr_encode(&o, &s);
	return finish_attr(c, &o);
}

int sm_client_removexattr(struct sm_client *c, uint64_t ino, const char *name)
{
	struct meta_removexattr q = { ino, str(name) };
	struct wire_out o = begin(c, WIRE_OP_META_REMOVEXATTR);

	meta_removexattr_encode(&o, &q);
	return finish_attr(c, &o);
}

int sm_client_lease(struct sm_client *c, uint64_t ino)
{
	struct meta_ino q = { ino };
	struct wire_out o = begin(c, WIRE_OP_META_LEASE);

	meta_ino_encode(&o, &q);
	return finish_attr(c, &o);
}

int sm_client_return(struct sm_client *c, const struct meta_return *items,
		     size_t count)
{
	struct wire_out o = begin(c, WIRE_OP_META_RETURN);

	for (size_t i = 0; i < count; i++)
		meta_return_encode(&o, &items[i]);
	return finish(c, &o);
}

int sm_client_give_back(struct sm_client *c, uint64_t ino, uint32_t what)
{
	struct meta_return item = { .ino = ino, .what = what };

	return sm_client_return(c, &item, 1);
}

int sm_client_cut(struct sm_client *c, const struct meta_cut *q)
{
	struct wire_out o = begin(c, WIRE_OP_META_CUT);

	meta_cut_encode(&o, q);
	return finish_attr(c, &o);
}

int sm_client_truncate(struct sm_client *c, uint64_t ino, uint64_t size_now,
		       uint64_t size)
{
	struct meta_cut q = { .ino = ino, .from = size, .to = BLK_CUT_TO_END,
			      .size_now = size_now, .size = size };

	return sm_client_cut(c, &q);
}

int sm_client_cut_done(struct sm_client *c, uint64_t ino, uint64_t cut,
		       int64_t units_delta)
{
	struct sm_cut_done q = { ino, cut, units_delta };
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_cut_done_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_CUT_DONE, buf, o.len);
}

int sm_client_close(struct sm_client *c, uint64_t session, uint8_t dead)
{
	struct sm_session_close q = { session, dead };
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_session_close_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_SESSION_CLOSE, buf, o.len);
}

/* ---- queries ---- */

static int query_attr(struct sm_client *c, uint16_t op,
		      const struct wire_out *o)
{
	int err = sm_client_internal(c, op, o->p, o->len);

	if (err == 0)
		must(meta_attr_parse(c->r.body, c->r.body_len, &c->attr) == 0,
		     "attributes");
	return err;
}

int sm_client_logd(struct sm_client *c, uint32_t id, uint64_t boot_id)
{
	struct sm_logd_set q = { .id = id, .boot_id = boot_id,
				 .addr = str("::1"), .port = 7,
				 .domain = str("rack") };
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_logd_set_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_LOGD_SET, buf, o.len);
}

static void get_entry(struct wire_in *in, struct sm_log *l, bool *live)
{
	struct meta_log_entry e;
	struct wire_in peers;

	meta_log_entry_decode(in, &e);
	must(!in->bad && e.flags <= 7,
	     "log entry");
	*l = (struct sm_log){ .ino = e.ino, .epoch = e.epoch,
			      .data_epoch = e.data_epoch,
			      .version = e.version, .session = e.session };
	l->flags = (uint8_t)(e.flags & ~META_LOG_LIVE);
	*live = e.flags & META_LOG_LIVE;
	wire_in_init(&peers, e.peers.p, e.peers.len);
	while (peers.len > 0 && l->peer_count < LOG_PEER_COUNT_MAX)
		meta_log_peer_decode(&peers, &l->peers[l->peer_count++]);
	must(wire_in_end(&peers) == 0, "log entry's peers");
}

static int finish_entry(struct sm_client *c, const struct wire_out *o)
{
	struct wire_in in;
	int err = finish(c, o);

	if (err != 0)
		return err;
	wire_in_init(&in, c->r.body, c->r.body_len);
	get_entry(&in, &c->log, &c->log_live);
	must(wire_in_end(&in) == 0, "log entry's end");
	return 0;
}

int sm_client_log_set(struct sm_client *c, uint64_t ino, uint64_t epoch,
		      uint32_t version, const struct meta_log_peer *peers,
		      size_t count)
{
	struct meta_log_set q = { ino, epoch, version, { NULL, 0 } };
	struct wire_out o = begin(c, WIRE_OP_META_LOG_SET), list;
	uint8_t buf[256];

	wire_out_init(&list, buf, sizeof(buf));
	for (size_t i = 0; i < count; i++)
		meta_log_peer_encode(&list, &peers[i]);
	must(!list.overflow, "too many peers");
	q.peers = (struct wire_str){ buf, (uint32_t)list.len };
	meta_log_set_encode(&o, &q);
	return finish_entry(c, &o);
}

int sm_client_log_raise(struct sm_client *c, uint64_t ino)
{
	struct meta_ino q = { ino };
	struct wire_out o = begin(c, WIRE_OP_META_LOG_RAISE);

	meta_ino_encode(&o, &q);
	return finish_entry(c, &o);
}

int sm_client_log_drop(struct sm_client *c, uint64_t ino, uint64_t epoch)
{
	struct meta_log_drop q = { ino, epoch };
	struct wire_out o = begin(c, WIRE_OP_META_LOG_DROP);

	meta_log_drop_encode(&o, &q);
	return finish(c, &o);
}

int sm_client_log_heir(struct sm_client *c, bool on)
{
	struct meta_log_heir q = { on };
	struct wire_out o = begin(c, WIRE_OP_META_LOG_HEIR);

	meta_log_heir_encode(&o, &q);
	return finish(c, &o);
}

int sm_client_log_lose(struct sm_client *c, uint64_t ino, uint64_t epoch)
{
	struct meta_log_drop q = { ino, epoch };
	struct wire_out o = begin(c, WIRE_OP_META_LOG_LOSE);

	meta_log_drop_encode(&o, &q);
	return finish_entry(c, &o);
}

int sm_client_log_list(struct sm_client *c, uint64_t ino, uint64_t session,
		       uint32_t max, struct sm_log *out, bool *done)
{
	struct meta_log_list q = { ino, session, max };
	struct meta_log_list_reply r;
	uint8_t buf[32];
	struct wire_out o;
	struct wire_in in;
	bool live;
	int err;

	wire_out_init(&o, buf, sizeof(buf));
	meta_log_list_encode(&o, &q);
	err = sm_client_internal(c, WIRE_OP_META_LOG_LIST, buf, o.len);
	if (err != 0)
		return err;
	must(meta_log_list_reply_parse(c->r.body, c->r.body_len, &r) == 0 &&
	     r.count <= max, "log list");
	wire_in_init(&in, r.entries.p, r.entries.len);
	for (uint32_t i = 0; i < r.count; i++)
		get_entry(&in, &out[i], &live);
	must(wire_in_end(&in) == 0, "log list's end");
	*done = r.done != 0;
	return (int)r.count;
}

int sm_client_lookup(struct sm_client *c, uint64_t dir, const char *name)
{
	struct meta_lookup q = { dir, str(name) };
	uint8_t buf[512];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	meta_lookup_encode(&o, &q);
	must(!o.overflow, "name");
	return query_attr(c, WIRE_OP_META_LOOKUP, &o);
}

int sm_client_getattr(struct sm_client *c, uint64_t ino)
{
	struct meta_ino q = { ino };
	uint8_t buf[8];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	meta_ino_encode(&o, &q);
	return query_attr(c, WIRE_OP_META_GETATTR, &o);
}

struct meta_attr sm_client_stat(struct sm_client *c, uint64_t ino)
{
	must(sm_client_getattr(c, ino) == 0, "no such inode");
	return c->attr;
}

static ssize_t query_blob(struct sm_client *c, uint16_t op,
			  const struct wire_out *o, void *buf, size_t cap)
{
	struct meta_blob b;
	int err = sm_client_internal(c, op, o->p, o->len);

	if (err != 0)
		return err;
	must(meta_blob_parse(c->r.body, c->r.body_len, &b) == 0, "blob");
	must(b.value.len <= cap, "blob size");
	if (b.value.len > 0)
		memcpy(buf, b.value.p, b.value.len);
	if (b.value.len < cap)
		((char *)buf)[b.value.len] = '\0';
	return b.value.len;
}

ssize_t sm_client_readlink(struct sm_client *c, uint64_t ino, char *buf,
			   size_t cap)
{
	struct meta_ino q = { ino };
	uint8_t req[8];
	struct wire_out o;

	wire_out_init(&o, req, sizeof(req));
	meta_ino_encode(&o, &q);
	return query_blob(c, WIRE_OP_META_READLINK, &o, buf, cap);
}

ssize_t sm_client_getxattr(struct sm_client *c, uint64_t ino,
			   const char *name, void *buf, size_t cap)
{
	struct meta_getxattr q = { ino, str(name) };
	uint8_t req[512];
	struct wire_out o;

	wire_out_init(&o, req, sizeof(req));
	meta_getxattr_encode(&o, &q);
	return query_blob(c, WIRE_OP_META_GETXATTR, &o, buf, cap);
}

ssize_t sm_client_listxattr(struct sm_client *c, uint64_t ino, char *buf,
			    size_t cap)
{
	struct meta_ino q = { ino };
	uint8_t req[8];
	struct wire_out o;

	wire_out_init(&o, req, sizeof(req));
	meta_ino_encode(&o, &q);
	return query_blob(c, WIRE_OP_META_LISTXATTR, &o, buf, cap);
}

int sm_client_readdir(struct sm_client *c, uint64_t dir, uint64_t *cookie,
		      uint32_t bytes_max, bool plus, bool *eof,
		      sm_client_dirent_fn fn, void *arg)
{
	struct meta_readdir q = { dir, *cookie, bytes_max, plus };
	struct meta_readdir_reply r;
	struct wire_out o;
	struct wire_in in;
	uint8_t req[32];
	int err;

	wire_out_init(&o, req, sizeof(req));
	meta_readdir_encode(&o, &q);
	err = sm_client_internal(c, WIRE_OP_META_READDIR, req, o.len);
	if (err != 0)
		return err;
	must(meta_readdir_reply_parse(c->r.body, c->r.body_len, &r) == 0,
	     "directory page");
	*eof = r.eof != 0;
	wire_in_init(&in, r.entries.p, r.entries.len);
	for (uint32_t i = 0; i < r.count; i++) {
		struct meta_dirent d;
		struct meta_attr a;

		meta_dirent_decode(&in, &d);
		if (plus)
			meta_attr_decode(&in, &a);
		must(!in.bad, "directory entry");
		*cookie = d.cookie;
		if (fn != NULL)
			fn(arg, &d, plus ? &a : NULL);
	}
	must(wire_in_end(&in) == 0, "directory page's end");
	return (int)r.count;
}

uint8_t *sm_client_snapshot(struct sm *sm, size_t *len)
{
	struct sm_snap *s = sm_snap_begin(sm);
	uint8_t *buf;
	size_t got;

	must(s != NULL, "snapshot");
	buf = malloc(sm_snap_size(s));
	must(buf != NULL, "memory");
	got = sm_snap_next(s, buf, sm_snap_size(s));
	must(got == sm_snap_size(s) && sm_snap_next(s, &got, 1) == 0,
	     "snapshot size");
	*len = got;
	sm_snap_end(sm, s);
	return buf;
}

uint8_t *sm_client_unwrap(const uint8_t *snap, size_t len, size_t *ret_len)
{
	uint8_t *stream = malloc(len);
	size_t at = SM_SNAP_HEADER_SIZE, done = 0;

	must(stream != NULL, "memory");
	while (at < len) {
		size_t part = u64_min(len - at - SM_SNAP_CHUNK_HEADER,
				      SM_SNAP_CHUNK_SIZE);

		at += SM_SNAP_CHUNK_HEADER;
		memcpy(stream + done, snap + at, part);
		at += part;
		done += part;
	}
	*ret_len = done;
	return stream;
}

/* As many records as the lengths in the stream say. */
static uint64_t count_records(const uint8_t *stream, size_t len)
{
	uint64_t count = 0;
	size_t at = 0;

	while (len - at >= 4) {
		size_t klen = stream[at] | (size_t)stream[at + 1] << 8;
		size_t vlen = stream[at + 2] | (size_t)stream[at + 3] << 8;

		if (4 + klen + vlen > len - at)
			break;
		at += 4 + klen + vlen;
		count++;
	}
	return count;
}

uint8_t *sm_client_wrap(const uint8_t *stream, size_t len, size_t *ret_len)
{
	size_t chunks = len / SM_SNAP_CHUNK_SIZE + 1;
	size_t cap = SM_SNAP_HEADER_SIZE + len + chunks * SM_SNAP_CHUNK_HEADER;
	uint8_t *buf = malloc(cap);
	struct sm_snap_header h = {
		.magic = SM_SNAP_MAGIC,
		.version = SM_SNAP_VERSION,
		.record_count = count_records(stream, len),
		.stream_len = len,
	};
	struct wire_out o;

	must(buf != NULL, "memory");
	wire_out_init(&o, buf, cap);
	sm_snap_header_encode(&o, &h);
	o.len -= 4;
	h.crc = crc32c(0, buf, o.len);
	wire_put_u32(&o, h.crc);
	while (len > 0) {
		size_t part = u64_min(len, SM_SNAP_CHUNK_SIZE);

		h.crc = crc32c(h.crc, stream, part);
		wire_put_u32(&o, (uint32_t)part);
		wire_put_u32(&o, h.crc);
		wire_put_raw(&o, stream, part);
		stream += part;
		len -= part;
	}
	must(!o.overflow, "wrap");
	*ret_len = o.len;
	return buf;
}
