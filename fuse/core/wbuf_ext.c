/* The extents of one write-back buffer: their order, their states and the
 * generations that count them.
 */
#include "fuse/core/wbuf_priv.h"

/* ---- the ordered set: treap and list ---- */

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

struct wbuf_ext *wbuf_ext_floor(const struct wbuf *b, uint64_t off)
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

void wbuf_ext_insert(struct wbuf *b, struct wbuf_ext *e)
{
	struct wbuf_ext **at = &b->root;
	struct wbuf_ext *prev = wbuf_ext_floor(b, e->off);

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
	struct wbuf_ext *e = wbuf_ext_floor(b, off);

	if (!e)
		return b->head;
	return wbuf_ext_end(e) > off ? e : e->next;
}

/* ---- generations ---- */

struct wbuf_gen *wbuf_gen_new(uint64_t number)
{
	struct wbuf_gen *g = calloc(1, sizeof(*g));

	if (g)
		g->number = number;
	return g;
}

void wbuf_gen_put(struct wbuf *b, struct wbuf_gen *g)
{
	assert(g->count > 0);
	g->count--;
	while (b->gen_first != b->gen_last && b->gen_first->count == 0) {
		g = b->gen_first;
		b->gen_first = g->next;
		free(g);
	}
}

uint64_t wbuf_gen_close(struct wbuf *b)
{
	struct wbuf_gen *cur = b->gen_last, *g;

	if (cur->count == 0)
		return cur->number - 1;
	g = wbuf_gen_new(cur->number + 1);
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

void wbuf_dirty_enter(struct wbuf *b, struct wbuf_ext *e, struct wbuf_gen *g)
{
	e->state = WBUF_DIRTY;
	e->gen = g;
	e->io = NULL;
	g->count++;
	g->dirty++;
	b->mem->dirty_bytes += e->len;
}

void wbuf_dirty_leave(struct wbuf *b, struct wbuf_ext *e)
{
	b->mem->dirty_bytes -= e->len;
	e->gen->dirty--;
	wbuf_gen_put(b, e->gen);
	e->gen = NULL;
}

void wbuf_ext_drop(struct wbuf *b, struct wbuf_ext *e)
{
	if (e->state == WBUF_DIRTY)
		wbuf_dirty_leave(b, e);
	else
		e->io->ext_count--;
	ext_unlink(b, e);
	wbuf_data_put(b->mem, e->data);
	wbuf_ext_release(b, e);
}

void wbuf_ext_trim(struct wbuf *b, struct wbuf_ext *e, uint32_t len,
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

void wbuf_ext_split(struct wbuf *b, struct wbuf_ext *e, uint64_t at)
{
	struct wbuf_ext *r = wbuf_ext_new(b);
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
	wbuf_ext_insert(b, r);
}
