#include "fuse/core/wbuf.h"

#define POOLED_MIN (64u << 10)
#define EXT_FREE_MAX 1024u
/* An io that would be cut into more frames than this is left to the flusher. */
#define FULL_EXTS_MAX (4u * WBUF_IOV_MAX)

/* ---- memory ---- */

void wbuf_mem_init(struct wbuf_mem *m, uint64_t pool_bytes_max)
{
	*m = (struct wbuf_mem){ .pool_bytes_max = pool_bytes_max };
}

void wbuf_mem_fini(struct wbuf_mem *m)
{
	while (m->ext_free) {
		struct wbuf_ext *e = m->ext_free;

		m->ext_free = e->next;
		free(e);
	}
	while (m->pool) {
		struct wbuf_data *d = m->pool;

		m->pool = d->pool_next;
		free(d);
	}
}

struct wbuf_data *wbuf_data_new(uint32_t cap)
{
	struct wbuf_data *d = malloc(sizeof(*d) + cap);

	if (!d)
		return NULL;
	d->refs = 1;
	d->cap = cap;
	d->used = 0;
	d->charged = NULL;
	d->pool_next = NULL;
	return d;
}

struct wbuf_data *wbuf_data_pooled(struct wbuf_mem *m, uint32_t cap)
{
	struct wbuf_data **at = &m->pool;

	/* At most twice what was asked for, lest small ones eat big ones. */
	while (*at && ((*at)->cap < cap || (*at)->cap / 2 > cap))
		at = &(*at)->pool_next;
	if (*at) {
		struct wbuf_data *d = *at;

		*at = d->pool_next;
		m->pool_bytes -= d->cap;
		d->refs = 1;
		d->used = 0;
		return d;
	}
	return wbuf_data_new(cap);
}

void wbuf_data_get(struct wbuf_data *d)
{
	d->refs++;
}

static uint64_t data_charge(const struct wbuf_data *d)
{
	return sizeof(*d) + d->cap;
}

void wbuf_data_put(struct wbuf_mem *m, struct wbuf_data *d)
{
	assert(d->refs > 0);
	if (--d->refs > 0)
		return;
	if (d->charged) {
		assert(d->charged == m);
		m->bytes -= data_charge(d);
		d->charged = NULL;
	}
	if (d->cap >= POOLED_MIN &&
	    m->pool_bytes + d->cap <= m->pool_bytes_max) {
		d->pool_next = m->pool;
		m->pool = d;
		m->pool_bytes += d->cap;
		return;
	}
	free(d);
}

static void data_charge_once(struct wbuf_mem *m, struct wbuf_data *d)
{
	if (d->charged)
		return;
	d->charged = m;
	m->bytes += data_charge(d);
}

/* Makes sure that @count extents can be had without failing. */
static int ext_reserve(struct wbuf_mem *m, uint32_t count)
{
	while (m->ext_free_count < count) {
		struct wbuf_ext *e = malloc(sizeof(*e));

		if (!e)
			return -ENOMEM;
		e->next = m->ext_free;
		m->ext_free = e;
		m->ext_free_count++;
	}
	return 0;
}

static struct wbuf_ext *ext_new(struct wbuf *b)
{
	struct wbuf_mem *m = b->mem;
	struct wbuf_ext *e = m->ext_free;

	assert(e);
	m->ext_free = e->next;
	m->ext_free_count--;
	m->bytes += sizeof(*e);
	b->ext_count++;
	return e;
}

static void ext_release(struct wbuf *b, struct wbuf_ext *e)
{
	struct wbuf_mem *m = b->mem;

	m->bytes -= sizeof(*e);
	b->ext_count--;
	if (m->ext_free_count >= EXT_FREE_MAX) {
		free(e);
		return;
	}
	e->next = m->ext_free;
	m->ext_free = e;
	m->ext_free_count++;
}

/* ---- the ordered set: treap and list ---- */

static uint64_t ext_end(const struct wbuf_ext *e)
{
	return e->off + e->len;
}

/* xorshift; the shape of the tree needs no secret. */
static uint32_t next_prio(struct wbuf *b)
{
	b->seed ^= b->seed << 13;
	b->seed ^= b->seed >> 17;
	b->seed ^= b->seed << 5;
	return b->seed;
}

/* Splits @t into those below @off and the others. */
static void tree_split(struct wbuf_ext *t, uint64_t off, struct wbuf_ext **l,
		       struct wbuf_ext **r)
{
	while (t) {
		if (t->off < off) {
			*l = t;
			l = &t->right;
			t = *l;
		} else {
			*r = t;
			r = &t->left;
			t = *r;
		}
	}
	*l = *r = NULL;
}

static struct wbuf_ext *tree_merge(struct wbuf_ext *l, struct wbuf_ext *r)
{
	struct wbuf_ext *root, **at = &root;

	while (l && r) {
		if (l->prio >= r->prio) {
			*at = l;
			at = &l->right;
			l = *at;
		} else {
			*at = r;
			at = &r->left;
			r = *at;
		}
	}
	*at = l ? l : r;
	return root;
}

/* Last extent that begins at or before @off, or NULL. */
static struct wbuf_ext *tree_floor(const struct wbuf *b, uint64_t off)
{
	struct wbuf_ext *e = b->root, *best = NULL;

	while (e) {
		if (e->off <= off) {
			best = e;
			e = e->right;
		} else {
			e = e->left;
		}
	}
	return best;
}

static void ext_insert(struct wbuf *b, struct wbuf_ext *e)
{
	struct wbuf_ext **at = &b->root;
	struct wbuf_ext *prev = tree_floor(b, e->off);

	e->prio = next_prio(b);
	while (*at && (*at)->prio >= e->prio)
		at = e->off < (*at)->off ? &(*at)->left : &(*at)->right;
	tree_split(*at, e->off, &e->left, &e->right);
	*at = e;
	e->prev = prev;
	e->next = prev ? prev->next : b->head;
	if (e->next)
		e->next->prev = e;
	else
		b->tail = e;
	if (prev)
		prev->next = e;
	else
		b->head = e;
}

static void ext_unlink(struct wbuf *b, struct wbuf_ext *e)
{
	struct wbuf_ext **at = &b->root;

	while (*at != e)
		at = e->off < (*at)->off ? &(*at)->left : &(*at)->right;
	*at = tree_merge(e->left, e->right);
	if (e->prev)
		e->prev->next = e->next;
	else
		b->head = e->next;
	if (e->next)
		e->next->prev = e->prev;
	else
		b->tail = e->prev;
	if (b->hint == e)
		b->hint = NULL;
}

struct wbuf_ext *wbuf_find(const struct wbuf *b, uint64_t off)
{
	struct wbuf_ext *e = tree_floor(b, off);

	if (!e)
		return b->head;
	return ext_end(e) > off ? e : e->next;
}

/* ---- generations ---- */

static struct wbuf_gen *gen_new(uint64_t number)
{
	struct wbuf_gen *g = calloc(1, sizeof(*g));

	if (g)
		g->number = number;
	return g;
}

static void gen_put(struct wbuf *b, struct wbuf_gen *g)
{
	assert(g->count > 0);
	g->count--;
	while (b->gen_first != b->gen_last && b->gen_first->count == 0) {
		g = b->gen_first;
		b->gen_first = g->next;
		free(g);
	}
}

static struct wbuf_gen *gen_older(struct wbuf_gen *a, struct wbuf_gen *b)
{
	return a->number <= b->number ? a : b;
}

uint64_t wbuf_gen_close(struct wbuf *b)
{
	struct wbuf_gen *cur = b->gen_last, *g;

	if (cur->count == 0)
		return cur->number - 1;
	g = gen_new(cur->number + 1);
	if (g) {
		cur->next = g;
		b->gen_last = g;
	}
	return cur->number;
}

void wbuf_gen_pending(const struct wbuf *b, uint64_t number,
		      struct wbuf_pending *p)
{
	*p = (struct wbuf_pending){ 0 };
	for (const struct wbuf_gen *g = b->gen_first; g && g->number <= number;
	     g = g->next) {
		p->dirty += g->dirty;
		p->flight += g->flight;
		p->count += g->count;
	}
}

/* ---- states of extents ---- */

static void dirty_enter(struct wbuf *b, struct wbuf_ext *e, struct wbuf_gen *g)
{
	e->state = WBUF_DIRTY;
	e->gen = g;
	e->io = NULL;
	g->count++;
	g->dirty++;
	b->mem->dirty_bytes += e->len;
}

static void dirty_leave(struct wbuf *b, struct wbuf_ext *e)
{
	b->mem->dirty_bytes -= e->len;
	e->gen->dirty--;
	gen_put(b, e->gen);
	e->gen = NULL;
}

static void ext_drop(struct wbuf *b, struct wbuf_ext *e)
{
	if (e->state == WBUF_DIRTY)
		dirty_leave(b, e);
	else
		e->io->ext_count--;
	ext_unlink(b, e);
	wbuf_data_put(b->mem, e->data);
	ext_release(b, e);
}

/* Cuts @len bytes off one end. */
static void ext_trim(struct wbuf *b, struct wbuf_ext *e, uint32_t len,
		     bool front)
{
	assert(len < e->len);
	if (e->state == WBUF_DIRTY)
		b->mem->dirty_bytes -= len;
	e->len -= len;
	if (front) {
		e->off += len;
		e->data_off += len;
	}
}

/* Makes the bytes from file offset @at on an extent of their own. Needs one
 * reserved extent. */
static void ext_split(struct wbuf *b, struct wbuf_ext *e, uint64_t at)
{
	struct wbuf_ext *r = ext_new(b);
	uint32_t left = (uint32_t)(at - e->off);

	*r = *e;
	r->off = at;
	r->data_off += left;
	r->len -= left;
	wbuf_data_get(r->data);
	if (e->state == WBUF_DIRTY) {
		e->gen->count++;
		e->gen->dirty++;
	} else {
		e->io->ext_count++;
	}
	e->len = left;
	ext_insert(b, r);
}

/* What new content takes over from DIRTY content it replaces. */
struct carved {
	struct wbuf_gen *gen; /* counted once, lest it vanish */
	bool behind, wanted;
};

static void carved_init(struct wbuf *b, struct carved *c)
{
	*c = (struct carved){ .gen = b->gen_last };
	c->gen->count++;
}

static void carved_gen(struct wbuf *b, struct carved *c, struct wbuf_gen *g)
{
	if (g->number >= c->gen->number)
		return;
	g->count++;
	gen_put(b, c->gen);
	c->gen = g;
}

/* Takes [from, to) away from all extents. May need one reserved extent. */
static void carve(struct wbuf *b, uint64_t from, uint64_t to, struct carved *c)
{
	struct wbuf_ext *e = wbuf_find(b, from), *next;

	for (; e && e->off < to; e = next) {
		if (e->state == WBUF_DIRTY) {
			carved_gen(b, c, e->gen);
			c->behind |= e->behind;
			c->wanted |= e->wanted;
		} else if (e->state == WBUF_FLIGHT) {
			c->behind = true;
		}
		if (e->off < from && ext_end(e) > to)
			ext_split(b, e, to);
		next = e->next;
		if (e->off < from)
			ext_trim(b, e, (uint32_t)(ext_end(e) - from), false);
		else if (ext_end(e) > to)
			ext_trim(b, e, (uint32_t)(to - e->off), true);
		else
			ext_drop(b, e);
	}
}

static bool cuts_inside(const struct wbuf *b, uint64_t from, uint64_t to)
{
	const struct wbuf_ext *e = wbuf_find(b, from);

	return e && e->off < from && ext_end(e) > to;
}

/* ---- life ---- */

int wbuf_init(struct wbuf *b, struct wbuf_mem *m, uint8_t block_log2)
{
	*b = (struct wbuf){
		.mem = m,
		.seed = 0x9e3779b9u,
		.block_log2 = block_log2,
	};
	dlist_init(&b->ios);
	b->gen_first = b->gen_last = gen_new(1);
	return b->gen_first ? 0 : -ENOMEM;
}

void wbuf_fini(struct wbuf *b)
{
	assert(dlist_empty(&b->ios));
	while (b->head)
		ext_drop(b, b->head);
	while (b->gen_first) {
		struct wbuf_gen *g = b->gen_first;

		b->gen_first = g->next;
		free(g);
	}
}

bool wbuf_clean(const struct wbuf *b)
{
	return b->gen_first == b->gen_last && b->gen_last->count == 0;
}

/* ---- writing ---- */

int wbuf_write(struct wbuf *b, uint64_t off, struct wbuf_data *data,
	       uint32_t data_off, uint32_t len)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t end = off + len, first = off >> b->block_log2;
	uint32_t pieces = (uint32_t)(((end - 1) >> b->block_log2) - first + 1);
	struct carved c;

	assert(len > 0 && data_off + len <= data->used);
	if (ext_reserve(b->mem, pieces + 1))
		return -ENOMEM;
	carved_init(b, &c);
	carve(b, off, end, &c);
	data_charge_once(b->mem, data);
	while (off < end) {
		uint64_t to = u64_min(end, u64_round_down(off, block) + block);
		struct wbuf_ext *e = ext_new(b);

		*e = (struct wbuf_ext){
			.off = off,
			.len = (uint32_t)(to - off),
			.data = data,
			.data_off = data_off,
			.behind = c.behind,
			.wanted = c.wanted,
		};
		wbuf_data_get(data);
		dirty_enter(b, e, c.gen);
		ext_insert(b, e);
		data_off += e->len;
		off = to;
	}
	gen_put(b, c.gen);
	return 0;
}

/* Bytes that may be appended to DIRTY @e at @off without touching another
 * extent or block. */
static uint32_t append_room(const struct wbuf *b, const struct wbuf_ext *e,
			    uint64_t off)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t limit = u64_round_down(e->off, block) + block;
	const struct wbuf_data *d = e->data;

	if (e->state != WBUF_DIRTY || ext_end(e) != off ||
	    e->data_off + e->len != d->used)
		return 0;
	if (e->next)
		limit = u64_min(limit, e->next->off);
	return (uint32_t)u64_min(limit - off, d->cap - d->used);
}

/* The extent that contains the byte before @off, or NULL. */
static struct wbuf_ext *ext_before(struct wbuf *b, uint64_t off)
{
	struct wbuf_ext *e = b->hint;

	if (off == 0)
		return NULL;
	if (e && e->off < off && off <= ext_end(e))
		return e;
	e = tree_floor(b, off - 1);
	return e && off <= ext_end(e) ? e : NULL;
}

/* Overwrites inside one DIRTY extent that nobody else reads. */
static bool overwrite_in_place(struct wbuf *b, uint64_t off, const void *src,
			       uint32_t len)
{
	struct wbuf_ext *e = tree_floor(b, off);

	if (!e || e->state != WBUF_DIRTY || off + len > ext_end(e) ||
	    e->data->refs != 1)
		return false;
	memcpy(e->data->bytes + e->data_off + (off - e->off), src, len);
	return true;
}

/* Capacity for content at @off that begins a new extent behind @before. */
static uint32_t new_cap(const struct wbuf *b, const struct wbuf_ext *before,
			uint64_t off, uint32_t len)
{
	uint64_t block = (uint64_t)1 << b->block_log2;
	uint64_t cap = len;

	/* Doubling: many small appends make few extents, one makes no waste. */
	if (before && ext_end(before) == off)
		cap = u64_max(len, u64_min(WBUF_APPEND_MAX,
					   2 * (uint64_t)before->data->cap));
	cap = u64_min(cap, u64_round_down(off, block) + block - off);
	return (uint32_t)u64_round_up(u64_max(cap, len), 64);
}

int wbuf_write_small(struct wbuf *b, uint64_t off, const void *src,
		     uint32_t len)
{
	struct wbuf_ext *before = ext_before(b, off);
	struct wbuf_data *d;
	int err;

	assert(len > 0 && len <= WBUF_SMALL_MAX);
	if (before && append_room(b, before, off) >= len) {
		d = before->data;
		memcpy(d->bytes + d->used, src, len);
		d->used += len;
		before->len += len;
		b->mem->dirty_bytes += len;
		b->hint = before;
		return 0;
	}
	if (overwrite_in_place(b, off, src, len))
		return 0;
	d = wbuf_data_new(new_cap(b, before, off, len));
	if (!d)
		return -ENOMEM;
	memcpy(d->bytes, src, len);
	d->used = len;
	err = wbuf_write(b, off, d, 0, len);
	wbuf_data_put(b->mem, d);
	if (!err)
		b->hint = tree_floor(b, off + len - 1);
	return err;
}

int wbuf_cut(struct wbuf *b, uint64_t from, uint64_t to)
{
	struct carved c;

	if (from >= to)
		return 0;
	if (cuts_inside(b, from, to) && ext_reserve(b->mem, 1))
		return -ENOMEM;
	carved_init(b, &c);
	carve(b, from, to, &c);
	gen_put(b, c.gen);
	return 0;
}

/* ---- looking ---- */

bool wbuf_unacked(const struct wbuf *b, uint64_t off, uint64_t len)
{
	const struct wbuf_ext *e = wbuf_find(b, off);

	for (; e && e->off < off + len; e = e->next)
		if (e->state != WBUF_UNSYNCED)
			return true;
	return false;
}

bool wbuf_block_full(const struct wbuf *b, uint64_t end)
{
	uint64_t start = end - ((uint64_t)1 << b->block_log2);
	const struct wbuf_ext *e = tree_floor(b, end - 1);

	for (uint32_t i = 0; i < FULL_EXTS_MAX; i++) {
		if (!e || e->state != WBUF_DIRTY || ext_end(e) != end)
			return false;
		if (e->off == start)
			return true;
		end = e->off;
		e = e->prev;
	}
	return false;
}

/* ---- sending ---- */

static bool overlaps_flight(const struct wbuf *b, const struct wbuf_ext *e)
{
	const struct dlist *l;

	for (l = b->ios.next; l != &b->ios; l = l->next) {
		const struct wbuf_io *io =
			(const struct wbuf_io *)(const void *)(
				(const char *)l -
				offsetof(struct wbuf_io, inode_node));

		if (io->in_flight && io->off < ext_end(e) &&
		    e->off < io->off + io->len)
			return true;
	}
	return false;
}

/* May DIRTY @e be sent now? */
static bool may_send(const struct wbuf *b, struct wbuf_ext *e)
{
	if (!e->behind)
		return true;
	if (overlaps_flight(b, e)) {
		e->wanted = true;
		return false;
	}
	e->behind = false;
	return true;
}

static uint32_t gather(const struct wbuf *b, struct wbuf_ext *e)
{
	uint64_t index = e->off >> b->block_log2;
	uint32_t count = 1;

	while (count < WBUF_IOV_MAX) {
		struct wbuf_ext *n = e->next;

		if (!n || n->state != WBUF_DIRTY || n->off != ext_end(e) ||
		    n->off >> b->block_log2 != index || !may_send(b, n))
			break;
		e = n;
		count++;
	}
	return count;
}

static int io_arrays(struct wbuf_io *io, uint32_t count)
{
	io->iov_count = count;
	io->iov = &io->iov_one;
	io->data = &io->data_one;
	if (count == 1)
		return 0;
	io->iov = malloc(count * (sizeof(*io->iov) + sizeof(*io->data)));
	if (!io->iov)
		return -ENOMEM;
	io->data = (struct wbuf_data **)(void *)(io->iov + count);
	return 0;
}

int wbuf_io_start(struct wbuf *b, struct wbuf_ext *e, struct wbuf_io *io,
		  struct wbuf_ext **next)
{
	assert(e->state == WBUF_DIRTY);
	*next = e->next;
	if (!may_send(b, e))
		return -EBUSY;
	*io = (struct wbuf_io){ .off = e->off, .in_flight = true };
	if (io_arrays(io, gather(b, e)))
		return -ENOMEM;
	io->gen = e->gen;
	for (uint32_t i = 0; i < io->iov_count; i++) {
		io->iov[i].iov_base = e->data->bytes + e->data_off;
		io->iov[i].iov_len = e->len;
		io->data[i] = e->data;
		wbuf_data_get(e->data);
		io->len += e->len;
		io->gen = gen_older(io->gen, e->gen);
		e = e->next;
	}
	io->gen->count++;
	io->gen->flight++;
	/* After the io counts, lest its generation vanish. */
	for (e = wbuf_find(b, io->off); io->ext_count < io->iov_count;
	     e = e->next) {
		dirty_leave(b, e);
		e->state = WBUF_FLIGHT;
		e->wanted = false;
		e->io = io;
		io->ext_count++;
		*next = e->next;
	}
	dlist_add(&b->ios, &io->inode_node);
	b->flight_count++;
	return 0;
}

static void io_release_data(struct wbuf *b, struct wbuf_io *io)
{
	for (uint32_t i = 0; i < io->iov_count; i++)
		wbuf_data_put(b->mem, io->data[i]);
	if (io->iov != &io->iov_one)
		free(io->iov);
	io->iov_count = 0;
	io->iov = &io->iov_one;
}

static void io_leave_flight(struct wbuf *b, struct wbuf_io *io)
{
	if (!io->in_flight)
		return;
	io->in_flight = false;
	io->gen->flight--;
	b->flight_count--;
	io_release_data(b, io);
}

static void io_gone(struct wbuf *b, struct wbuf_io *io)
{
	io_leave_flight(b, io);
	dlist_del(&io->inode_node);
	gen_put(b, io->gen);
	io->gen = NULL;
}

void wbuf_io_acked(struct wbuf *b, struct wbuf_io *io)
{
	struct wbuf_ext *e = wbuf_find(b, io->off);
	uint32_t left = io->ext_count;

	assert(io->in_flight);
	for (; left > 0; e = e->next)
		if (e->io == io) {
			e->state = WBUF_UNSYNCED;
			left--;
		}
	io_leave_flight(b, io);
}

void wbuf_io_drop(struct wbuf *b, struct wbuf_io *io)
{
	struct wbuf_ext *e = wbuf_find(b, io->off), *next;

	for (; io->ext_count > 0; e = next) {
		next = e->next;
		if (e->io == io)
			ext_drop(b, e);
	}
	io_gone(b, io);
}

void wbuf_io_redirty(struct wbuf *b, struct wbuf_io *io)
{
	struct wbuf_ext *e = wbuf_find(b, io->off);

	for (; io->ext_count > 0; e = e->next)
		if (e->io == io) {
			e->behind = false;
			dirty_enter(b, e, io->gen);
			io->ext_count--;
		}
	io_gone(b, io);
}
