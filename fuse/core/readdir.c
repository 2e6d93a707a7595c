/* Listings: pages of encoded entries from metad, kept for the listing that
 * goes on, with one page read ahead.
 *
 * A page is used for (directory, cookie). After a change of the directory its
 * pages are stale: a listing that begins (cookie 0) drops them, one that has
 * begun before may go on with them, as POSIX allows. Attributes are taken from
 * a page only when it arrives (answers come in the order of execution); what
 * the kernel gets is what the inode cache has then.
 */
#include "fuse/core/early.h"
#include "fuse/core/meta_priv.h"

#define DIR_PAGES_MAX 32u
#define DIR_PAGE_BYTES (64u << 10)
#define DIR_BATCH 32u /* entries looked up under one lock */

struct dir_page {
	struct dir_page *next; /* latest use first */
	uint64_t dir, start; /* entries after this cookie */
	uint64_t last; /* cookie of the last entry; @start when empty */
	uint32_t count, len;
	bool eof, stale, plus, dropped;
	uint32_t refs; /* being read */
	/* where the reader before stopped: most go on there */
	uint64_t hint_cookie;
	uint32_t hint_off;
	uint8_t bytes[];
};

struct readdir_op {
	struct core *c;
	struct readdir_op *next;
	uint64_t dir, cookie;
	bool plus;
	core_dirent_fn fn;
	core_cb cb;
	void *arg;
};

/* A page on its way. */
struct dir_fetch {
	struct dir_fetch *next;
	struct core *c;
	uint64_t dir, cookie;
	bool plus;
	bool stale; /* changed since it was asked for */
	bool dropped; /* and a listing has begun since */
	struct readdir_op *ops; /* waiting for it */
};

/* Protected by core->lock. */
struct dir_pages {
	struct dir_page *pages;
	struct dir_fetch *fetches;
	unsigned count;
};

int dir_pages_new(struct dir_pages **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void dir_pages_free(struct dir_pages *d)
{
	if (!d)
		return;
	while (d->pages) {
		struct dir_page *next = d->pages->next;
		free(d->pages);
		d->pages = next;
	}
	free(d);
}

/* ---- pages ---- */

static void page_put(struct dir_page *p)
{
	if (--p->refs == 0 && p->dropped)
		free(p);
}

static void page_unlink(struct dir_pages *d, struct dir_page **pp)
{
	struct dir_page *p = *pp;
	*pp = p->next;
	d->count--;
	p->dropped = true;
	if (p->refs == 0)
		free(p);
}

void dir_pages_changed(struct core *c, uint64_t dir)
{
	struct dir_pages *d = c->dir_pages;
	for (struct dir_page *p = d->pages; p; p = p->next)
		if (p->dir == dir)
			p->stale = true;
	for (struct dir_fetch *f = d->fetches; f; f = f->next)
		if (f->dir == dir)
			f->stale = true;
}

/* A listing of @dir begins. */
static void pages_begin(struct dir_pages *d, uint64_t dir)
{
	struct dir_page **pp = &d->pages;
	while (*pp) {
		if ((*pp)->dir == dir && (*pp)->stale)
			page_unlink(d, pp);
		else
			pp = &(*pp)->next;
	}
	for (struct dir_fetch *f = d->fetches; f; f = f->next)
		if (f->dir == dir && f->stale)
			f->dropped = true;
}

void dir_pages_drop_all(struct core *c)
{
	struct dir_pages *d = c->dir_pages;
	while (d->pages)
		page_unlink(d, &d->pages);
	for (struct dir_fetch *f = d->fetches; f; f = f->next)
		f->dropped = true;
}

/* Decodes the entry at @off. Returns the offset behind it, 0 at the end. */
static uint32_t page_entry(const struct dir_page *p, uint32_t off,
			   struct meta_dirent *d)
{
	struct meta_attr a;
	struct wire_in in;
	if (off >= p->len)
		return 0;
	wire_in_init(&in, p->bytes + off, p->len - off);
	meta_dirent_decode(&in, d);
	if (p->plus)
		meta_attr_decode(&in, &a);
	return p->len - (uint32_t)in.len;
}

/* Is the place after @cookie in this page? */
static bool page_find(struct dir_page *p, uint64_t cookie, uint32_t *off)
{
	struct meta_dirent d;
	uint32_t at = 0, next;

	if (p->start == cookie)
		*off = 0;
	else if (p->hint_cookie == cookie)
		*off = p->hint_off;
	else if (p->last == cookie)
		*off = p->len;
	else {
		while ((next = page_entry(p, at, &d)) && d.cookie != cookie)
			at = next;
		if (!next)
			return false;
		*off = next;
	}
	/* Its end belongs to the next page, unless there is none. */
	return *off < p->len || p->eof;
}

static struct dir_page *pages_find(struct dir_pages *d, uint64_t dir,
				   uint64_t cookie, bool plus, uint32_t *off)
{
	for (struct dir_page **pp = &d->pages; *pp; pp = &(*pp)->next) {
		struct dir_page *p = *pp;
		if (p->dir != dir || p->plus != plus ||
		    !page_find(p, cookie, off))
			continue;
		*pp = p->next;
		p->next = d->pages;
		d->pages = p;
		return p;
	}
	return NULL;
}

static void pages_add(struct dir_pages *d, struct dir_page *p)
{
	p->next = d->pages;
	d->pages = p;
	if (++d->count <= DIR_PAGES_MAX)
		return;
	struct dir_page **pp = &d->pages;
	while ((*pp)->next)
		pp = &(*pp)->next;
	page_unlink(d, pp);
}

/* ---- fetching ---- */

static void readdir_serve(struct readdir_op *op);

/* Lock held. Attributes go into the cache; a broken page is refused. */
static bool page_check(const struct meta_call *mc, struct dir_page *p)
{
	struct core *c = mc->c;
	struct wire_in in;
	wire_in_init(&in, p->bytes, p->len);
	p->last = p->start;
	for (uint32_t i = 0; i < p->count; i++) {
		struct meta_dirent d;
		struct meta_attr a;
		meta_dirent_decode(&in, &d);
		if (p->plus)
			meta_attr_decode(&in, &a);
		if (in.bad || d.name.len == 0 || d.name.len > NAME_LEN_MAX)
			return false;
		p->last = d.cookie;
		if (!p->plus)
			continue;
		if (!meta_attr_sane(&a))
			return false;
		struct core_inode *ci = inode_get(c, a.ino);
		if (ci && !early_overtook(ci, mc))
			inode_merge(c, ci, &a, NULL);
	}
	return wire_in_end(&in) == 0 && (p->eof || p->count > 0);
}

static struct dir_page *page_of_reply(struct dir_fetch *f, const uint8_t *body,
				      uint32_t len, int *err)
{
	struct meta_readdir_reply r;
	struct dir_page *p;

	*err = meta_readdir_reply_parse(body, len, &r) ? -EIO : 0;
	if (*err)
		return NULL;
	p = malloc(sizeof(*p) + r.entries.len);
	if (!p) {
		*err = -ENOMEM;
		return NULL;
	}
	*p = (struct dir_page){
		.dir = f->dir, .start = f->cookie, .hint_cookie = f->cookie,
		.count = r.count, .len = r.entries.len, .eof = r.eof != 0,
		.plus = f->plus, .stale = f->stale,
	};
	if (r.entries.len > 0)
		memcpy(p->bytes, r.entries.p, r.entries.len);
	return p;
}

static void fetch_done(struct meta_call *mc, int err, const uint8_t *body,
		       uint32_t len)
{
	struct core *c = mc->c;
	struct dir_fetch *f = mc->arg, **pf;
	struct dir_page *p = NULL;
	struct readdir_op *ops, *next;

	core_lock(c);
	for (pf = &c->dir_pages->fetches; *pf != f;)
		pf = &(*pf)->next;
	*pf = f->next;
	if (!err)
		p = page_of_reply(f, body, len, &err);
	if (p && !page_check(mc, p)) {
		free(p);
		p = NULL;
		err = -EIO;
	}
	if (p && f->dropped) {
		free(p); /* who waits asks again */
	} else if (p) {
		pages_add(c->dir_pages, p);
		c->count.dir_pages++;
	}
	ops = f->ops;
	core_unlock(c);
	free(f);
	for (; ops; ops = next) {
		next = ops->next;
		if (err) {
			ops->cb(ops->arg, err);
			free(ops);
		} else {
			readdir_serve(ops);
		}
	}
}

/* Lock held. @op (may be NULL: read-ahead) waits for the page. Returns 0 or
 * -ENOMEM. */
static int fetch_start(struct core *c, uint64_t dir, uint64_t cookie,
		       bool plus, struct readdir_op *op)
{
	struct dir_pages *d = c->dir_pages;
	struct dir_fetch *f;
	struct wire_out o;

	for (f = d->fetches; f; f = f->next)
		if (f->dir == dir && f->cookie == cookie && f->plus == plus &&
		    !f->dropped)
			break;
	if (f) {
		if (op) {
			op->next = f->ops;
			f->ops = op;
		}
		return 0;
	}
	struct meta_readdir r = {
		.dir = dir, .cookie = cookie, .bytes_max = DIR_PAGE_BYTES,
		.plus = plus,
	};
	struct meta_call *mc = meta_call_new(c, WIRE_OP_META_READDIR,
					     meta_readdir_size(&r), &o);
	f = calloc(1, sizeof(*f));
	if (!mc || !f) {
		meta_call_free(mc);
		free(f);
		return -ENOMEM;
	}
	meta_readdir_encode(&o, &r);
	f->c = c;
	f->dir = dir;
	f->cookie = cookie;
	f->plus = plus;
	f->ops = op;
	if (op)
		op->next = NULL;
	f->next = d->fetches;
	d->fetches = f;
	mc->done = fetch_done;
	mc->arg = f;
	meta_call_queue(mc, &o);
	return 0;
}

/* ---- serving ---- */

struct dir_batch {
	struct meta_dirent d[DIR_BATCH];
	struct meta_attr a[DIR_BATCH];
	bool known[DIR_BATCH];
	uint32_t next[DIR_BATCH];
	unsigned count;
};

/* Lock held. Takes entries from @off on; counts their lookups. */
static void batch_fill(struct core *c, const struct dir_page *p, uint32_t off,
		       struct dir_batch *b)
{
	b->count = 0;
	while (b->count < DIR_BATCH) {
		unsigned i = b->count;
		off = page_entry(p, off, &b->d[i]);
		if (!off)
			return;
		b->next[i] = off;
		b->known[i] = false;
		if (p->plus) {
			struct core_inode *in = inode_find(c, b->d[i].ino);
			if (in && in->attr_valid && in->attr.nlink > 0) {
				b->known[i] = true;
				b->a[i] = in->attr;
				b->a[i].units = wb_units_tell(in);
				in->nlookup++;
			}
		}
		b->count++;
	}
}

/* Lock held. The entries from @used on were not taken. */
static void batch_undo(struct core *c, const struct dir_batch *b,
		       unsigned used)
{
	for (unsigned i = used; i < b->count; i++) {
		struct core_inode *in = b->known[i] ?
						inode_find(c, b->d[i].ino) :
						NULL;
		if (in && in->nlookup > 0)
			in->nlookup--;
	}
}

/* Hands out entries until the user has enough or the page ends. Called and
 * returns with the lock held; drops it around the user's function. Returns
 * whether any was taken. */
static bool page_serve(struct readdir_op *op, struct dir_page *p, uint32_t off)
{
	struct core *c = op->c;
	struct dir_batch b;
	bool any = false, more = true;
	uint64_t cookie = op->cookie;

	while (more) {
		unsigned used = 0;
		batch_fill(c, p, off, &b);
		core_unlock(c);
		for (; used < b.count; used++) {
			if (!op->fn(op->arg, &b.d[used],
				    b.known[used] ? &b.a[used] : NULL))
				break;
			off = b.next[used];
			cookie = b.d[used].cookie;
			any = true;
		}
		more = used == b.count && b.count > 0;
		core_lock(c);
		batch_undo(c, &b, used);
	}
	p->hint_cookie = cookie;
	p->hint_off = off;
	return any;
}

static void readdir_serve(struct readdir_op *op)
{
	struct core *c = op->c;
	struct dir_page *p;
	uint32_t off;
	int err = 0;

	core_lock(c);
	p = pages_find(c->dir_pages, op->dir, op->cookie, op->plus, &off);
	if (!p) {
		err = fetch_start(c, op->dir, op->cookie, op->plus, op);
		core_unlock(c);
		if (err) {
			op->cb(op->arg, err);
			free(op);
		}
		return;
	}
	p->refs++;
	(void)page_serve(op, p, off);
	/* Read ahead when this page is half used. */
	if (!p->eof && !p->dropped && p->hint_off > p->len / 2) {
		uint32_t unused;
		if (!pages_find(c->dir_pages, p->dir, p->last, p->plus,
				&unused))
			(void)fetch_start(c, p->dir, p->last, p->plus, NULL);
	}
	page_put(p);
	core_unlock(c);
	op->cb(op->arg, 0);
	free(op);
}

bool core_listing_begins(struct core *c, uint64_t dir)
{
	struct core_inode *in;
	bool same = false;

	core_lock(c);
	in = inode_find(c, dir);
	if (in) {
		same = in->listing_same;
		in->listing_same = true;
	}
	core_unlock(c);
	return same;
}

void core_readdir(struct core *c, uint64_t dir, uint64_t cookie,
		  size_t bytes_max, bool plus, core_dirent_fn fn, core_cb cb,
		  void *arg)
{
	struct readdir_op *op = calloc(1, sizeof(*op));
	(void)bytes_max; /* @fn says when the user's page is full */
	if (!op) {
		cb(arg, -ENOMEM);
		return;
	}
	op->c = c;
	op->dir = dir;
	op->cookie = cookie;
	op->plus = plus;
	op->fn = fn;
	op->cb = cb;
	op->arg = arg;
	core_lock(c);
	c->count.readdirs++;
	if (cookie == 0) {
		struct core_inode *in = inode_find(c, dir);
		if (!meta_may_serve(c) || c->opt.shared)
			dir_pages_changed(c, dir);
		pages_begin(c->dir_pages, dir);
		if (in)
			inode_touch_atime(c, in);
	}
	core_unlock(c);
	readdir_serve(op);
}
