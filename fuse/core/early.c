/* See early.h. */
#include "fuse/core/early.h"

#include <linux/fs.h>
#include <sys/stat.h>

#include "common/diag.h"
#include "fuse/core/log_priv.h"
#include "fuse/core/meta_priv.h"

#define LAZY_COUNT_MAX 16u /* so many go out at once */
#define LAZY_MS 1u
#define OFF_MS 1000u /* after a refusal, at least */
#define LOGGED_MAX 16u /* refusals in a row */

static void early_timer(struct rpc_timer *t)
{
	struct early *e = container_of(t, struct early, timer);

	core_lock(e->c);
	early_kick(e->c);
	core_unlock(e->c);
}

/* The net's lock is not taken under ours. */
static void early_arm(struct core_deferred *d)
{
	struct early *e = container_of(d, struct early, arm);

	core_lock(e->c);
	e->arm_queued = false;
	bool start = e->lazy > 0 && !e->c->freeing;
	core_unlock(e->c);
	if (start)
		rpc_timer_start(e->c->net, &e->timer, LAZY_MS);
}

int early_new(struct core *c, struct early **ret)
{
	struct early *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->c = c;
	e->timer.fn = early_timer;
	e->arm.fn = early_arm;
	*ret = e;
	return 0;
}

void early_free(struct early *e)
{
	free(e);
}

/* ---- when ---- */

static bool early_may(struct core *c)
{
	const struct meta_client *m = c->meta;
	const struct early *e = c->early;

	if (!c->opt.early || c->opt.shared || c->fenced || c->stopping ||
	    !m->up || m->fenced || m->closing || !meta_may_serve(c))
		return false;
	if (e->asked > 0 || m->local ||
	    m->kept_bytes > META_KEPT_BYTES_MAX / 2 ||
	    (m->head && m->seq + 1 - m->head->seq >= SESSION_WINDOW_MAX))
		return false;
	return e->off_ms == 0;
}

/* A live directory in which names mean no more than that. */
static struct core_inode *plain_dir(struct core *c, uint64_t ino)
{
	struct core_inode *in = inode_find(c, ino);

	if (!in || !in->attr_valid || !S_ISDIR(in->attr.mode) ||
	    in->attr.nlink == 0 || in->orphan ||
	    (in->attr.flags & (META_ATTR_ACL | META_ATTR_LOG)) != 0)
		return NULL;
	return in;
}

static bool absent(struct core *c, uint64_t dir, const char *name)
{
	uint64_t ino;

	return name_cache_get(c, dir, name, strlen(name), &ino) && ino == 0;
}

static struct core_inode *present(struct core *c, uint64_t dir,
				  const char *name)
{
	struct core_inode *in;
	uint64_t ino;

	if (!name_cache_get(c, dir, name, strlen(name), &ino) || ino == 0)
		return NULL;
	in = inode_find(c, ino);
	/* A log file's name is its log's affair. */
	return in && in->attr_valid && in->attr.nlink > 0 && !in->orphan &&
			       !in->bad && !in->log &&
			       !(in->attr.flags & META_ATTR_LOG) ?
		       in : NULL;
}

/* ---- what comes of it: as metad's sm_create.c, sm_name.c, sm_rename.c ---- */

static void attr_new(const struct core_create *p, const struct core_inode *dir,
		     struct meta_attr *a)
{
	*a = (struct meta_attr){
		.ino = dir->attr.ino,
		.mode = p->mode & ~(p->umask & 0777),
		.nlink = S_ISDIR(p->mode) ? 2 : 1,
		.uid = p->uid,
		.gid = p->gid,
		.size = S_ISDIR(p->mode) ? UNIT_SIZE : 0,
		.cut = dir->attr.cut,
		.parent = S_ISDIR(p->mode) ? dir->ino : 0,
		.block_log2 = dir->attr.block_log2,
	};
	if (S_ISLNK(p->mode)) {
		a->mode = S_IFLNK | 0777;
		a->size = strlen(p->target);
	}
	if (S_ISCHR(p->mode) || S_ISBLK(p->mode))
		a->rdev = p->rdev;
	/* It tells its block size (META_XATTR_BLOCK_SIZE). */
	if (S_ISDIR(p->mode) && a->block_log2 != BLOCK_LOG2_DEFAULT)
		a->flags |= META_ATTR_XATTR;
	if ((dir->attr.mode & S_ISGID) != 0) {
		a->gid = dir->attr.gid;
		if (S_ISDIR(p->mode))
			a->mode |= S_ISGID;
	}
}

/* What is compared when metad answers. */
static uint64_t attr_print(const struct meta_attr *a)
{
	return (uint64_t)(a->mode & 0xffff) << 48 |
	       (uint64_t)(a->flags & (META_ATTR_LOG | META_ATTR_XATTR)) << 40 |
	       (uint64_t)a->block_log2 << 32 | a->gid;
}

bool early_create(struct core *c, const struct core_create *p,
		  struct meta_attr *a, struct core_inode **ret)
{
	struct early *e = c->early;
	const struct core_inode *dir;

	if (!p->name || !early_may(c) || e->next_ino == 0 || e->blind > 0)
		return false;
	dir = plain_dir(c, p->parent);
	if (!dir || !absent(c, p->parent, p->name))
		return false;
	attr_new(p, dir, a);
	a->ino = e->next_ino;
	*ret = inode_get(c, a->ino);
	if (!*ret)
		return false;
	e->count.creates++;
	return true;
}

bool early_inode(struct core *c, const struct core_inode *in)
{
	return early_may(c) && in->attr_valid && !in->bad;
}

bool early_unlink(struct core *c, uint64_t parent, const char *name, bool dir,
		  struct core_inode **ret)
{
	struct core_inode *in;

	if (!early_may(c) || log_order_due(c) || !plain_dir(c, parent))
		return false;
	in = present(c, parent, name);
	if (!in || S_ISDIR(in->attr.mode) != dir ||
	    (dir && !dir_known_empty(c, in->ino)))
		return false;
	*ret = in;
	c->early->count.unlinks++;
	return true;
}

bool early_rename(struct core *c, const struct core_rename *p,
		  struct core_inode **ret)
{
	struct core_inode *in;

	if ((p->flags & ~(uint32_t)RENAME_NOREPLACE) != 0 || !early_may(c) ||
	    log_order_due(c) || !plain_dir(c, p->parent) ||
	    !plain_dir(c, p->newparent) ||
	    !absent(c, p->newparent, p->newname))
		return false;
	in = present(c, p->parent, p->name);
	/* With two names it matters what the others are. */
	if (!in || (!S_ISDIR(in->attr.mode) && in->attr.nlink != 1))
		return false;
	*ret = in;
	c->early->count.renames++;
	return true;
}

void early_mark(struct core_inode *in, const struct meta_call *mc,
		uint32_t what)
{
	if (!in)
		return;
	in->early_seq = mc->seq;
	in->early_what |= what;
}

void early_made(struct core_inode *in, struct meta_call *mc)
{
	mc->arg64 = in->ino;
	mc->arg64b = attr_print(&in->attr);
	early_mark(in, mc, EARLY_NAME);
}

/* ---- numbers ---- */

uint64_t early_number(struct core *c)
{
	struct early *e = c->early;

	if (c->opt.early && !c->opt.shared && e->blind == 0 &&
	    e->next_ino != 0)
		return e->next_ino++;
	e->blind++;
	return 0;
}

void early_number_blind(struct core *c)
{
	c->early->blind++;
}

void early_number_told(struct core *c, uint64_t ino)
{
	struct early *e = c->early;

	assert(e->blind > 0);
	e->blind--;
	if (ino != 0)
		e->next_ino = u64_max(e->next_ino, ino + 1);
}

/* ---- what others ask ---- */

static bool changes_names(const struct meta_call *mc)
{
	return mc->op == WIRE_OP_META_CREATE || mc->op == WIRE_OP_META_UNLINK ||
	       mc->op == WIRE_OP_META_RENAME || mc->op == WIRE_OP_META_LINK;
}

void early_queued(struct meta_call *mc)
{
	if (!mc->early && changes_names(mc))
		mc->c->early->asked++;
}

void early_answered(struct meta_call *mc, int err)
{
	struct early *e = mc->c->early;

	assert(changes_names(mc) && e->asked > 0);
	e->asked--;
	/* What it refused works again. */
	if (err || e->off_ms == 0 || core_now_ms() < e->off_ms ||
	    (mc->op != e->off_op && e->off_op != WIRE_OP_META_SETATTR))
		return;
	e->off_ms = 0;
	e->logged = 0;
}

bool early_overtook(const struct core_inode *in, const struct meta_call *mc)
{
	return in && in->early_seq > (mc->seq ? mc->seq : mc->after);
}

void early_keep(const struct core_inode *in, struct meta_attr *a)
{
	if (!in->attr_valid)
		return;
	a->ctime_ns = in->attr.ctime_ns;
	if (in->early_what & EARLY_NAME) {
		a->nlink = in->attr.nlink;
		a->parent = in->attr.parent;
	}
	if (in->early_what & EARLY_MODE)
		a->mode = in->attr.mode;
	if (in->early_what & EARLY_OWNER) {
		a->uid = in->attr.uid;
		a->gid = in->attr.gid;
	}
	if (in->early_what & EARLY_ATIME)
		a->atime_ns = in->attr.atime_ns;
	if (in->early_what & EARLY_MTIME)
		a->mtime_ns = in->attr.mtime_ns;
}

bool early_may_wait(struct meta_call *mc)
{
	struct core *c = mc->c;
	struct early *e = c->early;

	if (!mc->early || c->meta->waiters || e->lazy + 1 >= LAZY_COUNT_MAX) {
		e->lazy = 0;
		return false;
	}
	e->lazy++;
	if (e->lazy == 1 && !e->arm_queued) {
		e->arm_queued = true;
		core_defer(c, &e->arm);
	}
	return true;
}

void early_kick(struct core *c)
{
	if (c->early->lazy == 0)
		return;
	c->early->lazy = 0;
	core_kick_later(c, c->meta->peer);
}

int early_error_of(struct core_inode *in)
{
	int err = in ? in->early_error : 0;

	if (in)
		in->early_error = 0;
	return err;
}

int early_error(struct core *c)
{
	int err = c->early->error;

	c->early->error = 0;
	return err;
}

/* ---- metad's answers ---- */

void early_settled(struct core_inode *in, const struct meta_call *mc)
{
	if (!in || in->early_seq != mc->seq)
		return;
	in->early_seq = 0;
	in->early_what = 0;
}

struct names_changed {
	struct core_deferred def;
	struct core *c;
};

static void names_tell(struct core_deferred *d)
{
	struct names_changed *n = container_of(d, struct names_changed, def);

	n->c->opt.names_changed(n->c->opt.changed_arg);
	free(n);
}

static void tell_names(struct core *c)
{
	struct names_changed *n = c->opt.names_changed ? malloc(sizeof(*n)) :
							 NULL;

	if (!n)
		return;
	*n = (struct names_changed){ .def.fn = names_tell, .c = c };
	core_defer(c, &n->def);
}

/* What is known of @dir is not to be trusted. */
static void dir_refused(struct core *c, uint64_t dir, struct wire_str name,
			int err)
{
	struct core_inode *in = inode_find(c, dir);

	name_cache_forget(c, dir, name.p, name.len);
	dir_known_gone(c, dir);
	dir_pages_changed(c, dir);
	if (!in)
		return;
	in->listing_same = false;
	if (!inode_owns(in))
		in->attr_valid = false;
	in->early_error = err;
	inode_tell_changed(c, dir);
}

static void refused_log(const struct meta_call *mc, const char *what,
			uint64_t dir, struct wire_str name, int err)
{
	diag_err("meta",
		 "event=refused_late op=%s dir=%llu name=\"%.*s\" ino=%llu "
		 "error=\"%s\"",
		 what, (unsigned long long)dir, (int)name.len,
		 (const char *)name.p, (unsigned long long)mc->arg64,
		 strerror(-err));
}

void early_refused(struct meta_call *mc, const char *what, uint64_t dir,
		   struct wire_str name, int err)
{
	struct core *c = mc->c;
	struct early *e = c->early;

	/* That is said already. */
	if (c->meta->fenced || c->meta->closed)
		return;
	e->count.refused++;
	e->error = err;
	e->off_ms = core_now_ms() + OFF_MS;
	e->off_op = mc->op;
	if (e->logged++ < LOGGED_MAX)
		refused_log(mc, what, dir, name, err);
	dir_refused(c, dir, name, err);
	tell_names(c);
}

static void differs(struct meta_call *mc, const char *what)
{
	mc->c->early->count.differ++;
	diag_err("meta", "event=early_differs op=%s ino=%llu", what,
		 (unsigned long long)mc->arg64);
}

/* The file that the kernel was told of never was. */
static void never_made(struct core *c, struct core_inode *in, int err)
{
	if (!in)
		return;
	in->bad = true;
	in->leased = false;
	in->size_dirty = false;
	in->units_delta = 0;
	in->atime_dirty = false;
	in->early_error = err;
	in->error_count++;
	if (in->wb)
		wb_inode_discard(c, in);
	inode_tell_changed(c, in->ino);
}

void early_create_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct meta_create req;
	struct core_inode *in;
	struct meta_attr a;
	struct wire_in w;

	wire_in_init(&w, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_create_decode(&w, &req);
	if (!err)
		err = meta_reply_attr(body, len, &a, &w);
	core_lock(c);
	in = inode_find(c, mc->arg64);
	early_settled(in, mc);
	early_settled(inode_find(c, req.parent), mc);
	if (err == -ESTALE)
		c->early->next_ino = 0; /* to be learned again */
	if (err) {
		early_refused(mc, "create", req.parent, req.name, err);
		if (!c->meta->fenced && !c->meta->closed)
			never_made(c, in, err);
	} else if (in && (a.ino != in->ino || attr_print(&a) != mc->arg64b)) {
		differs(mc, "create");
		if (a.ino == in->ino) {
			inode_merge(c, in, &a, NULL);
			inode_tell_changed(c, a.ino);
		}
	}
	core_unlock(c);
}

void early_unlink_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct meta_unlink req;
	struct meta_unlink_reply r = { 0 };
	struct core_inode *in;
	struct wire_in w;

	wire_in_init(&w, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_unlink_decode(&w, &req);
	if (!err && meta_unlink_reply_parse(body, len, &r))
		err = -EIO;
	core_lock(c);
	in = inode_find(c, mc->arg64);
	early_settled(in, mc);
	early_settled(inode_find(c, req.parent), mc);
	if (err) {
		early_refused(mc, "unlink", req.parent, req.name, err);
		if (in && !inode_owns(in))
			in->attr_valid = false;
	} else if (r.ino != mc->arg64 || r.nlink != mc->arg64b) {
		differs(mc, "unlink");
		if (in && r.ino == in->ino)
			in->attr.nlink = r.nlink;
	}
	core_unlock(c);
}

void early_rename_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct meta_rename req;
	struct meta_rename_reply r = { 0 };
	struct core_inode *in;
	struct wire_in w;

	wire_in_init(&w, mc->buf + META_MHDR_LEN, mc->buf_len - META_MHDR_LEN);
	meta_rename_decode(&w, &req);
	if (!err && meta_rename_reply_parse(body, len, &r))
		err = -EIO;
	core_lock(c);
	in = inode_find(c, mc->arg64);
	early_settled(in, mc);
	early_settled(inode_find(c, req.parent), mc);
	early_settled(inode_find(c, req.newparent), mc);
	if (err) {
		early_refused(mc, "rename", req.parent, req.name, err);
		if (!c->meta->fenced && !c->meta->closed)
			dir_refused(c, req.newparent, req.newname, err);
		if (in && !inode_owns(in))
			in->attr_valid = false;
	} else if (r.ino != mc->arg64 || r.replaced != 0 || r.whiteout != 0) {
		differs(mc, "rename");
	}
	core_unlock(c);
}
