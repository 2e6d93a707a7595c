/* Reading the tree: iteration, snapshots, the checker. */
#include "metad/cow_priv.h"

static void iter_load(struct cow_iter *it)
{
	struct cow_cell c = cow_page_cell(it->page[0], it->at[0]);

	it->key = c.key;
	it->val = c.val;
	it->klen = c.klen;
	it->vlen = c.vlen;
}

/* The leaf's cell index may be one past its end: goes on to the next leaf. */
static bool iter_settle(struct cow_iter *it)
{
	uint32_t level = 0;

	while (it->at[level] >= it->page[level]->count) {
		if (++level >= it->height) {
			it->height = 0;
			return false;
		}
		it->at[level]++;
	}
	while (level > 0) {
		const struct cow_page *p = it->page[level];

		it->page[level - 1] = cow_page_child(p, it->at[level]);
		level--;
		it->at[level] = 0;
	}
	iter_load(it);
	return true;
}

bool cow_root_seek(const struct cow_page *root, uint32_t height,
		   struct cow_iter *it, const void *key, uint32_t klen)
{
	const struct cow_page *p = root;
	bool found;

	it->height = height;
	while (p->level > 0) {
		uint32_t i = cow_page_find_child(p, key, klen);

		it->page[p->level] = p;
		it->at[p->level] = i;
		p = cow_page_child(p, i);
	}
	it->page[0] = p;
	it->at[0] = cow_page_find(p, key, klen, &found);
	return iter_settle(it);
}

bool cow_seek(const struct cow *t, struct cow_iter *it, const void *key,
	      uint32_t klen)
{
	return cow_root_seek(t->root, t->height, it, key, klen);
}

bool cow_next(struct cow_iter *it)
{
	if (it->height == 0)
		return false;
	it->at[0]++;
	return iter_settle(it);
}

struct cow_snap *cow_snap_begin(struct cow *t)
{
	struct cow_snap *s = t->mem.alloc(t->mem.ctx, sizeof(*s));

	if (s == NULL)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->root = t->root;
	s->height = t->height;
	s->count = t->count;
	s->payload = t->payload;
	s->gen = t->gen;
	s->older = t->newest;
	if (t->newest != NULL)
		t->newest->newer = s;
	t->newest = s;
	t->frozen = t->gen;
	t->gen++;
	return s;
}

uint64_t cow_snap_count(const struct cow_snap *s)
{
	return s->count;
}

uint64_t cow_snap_payload(const struct cow_snap *s)
{
	return s->payload;
}

bool cow_snap_seek(const struct cow_snap *s, struct cow_iter *it,
		   const void *key, uint32_t klen)
{
	return cow_root_seek(s->root, s->height, it, key, klen);
}

static void list_join(struct cow_list *to, struct cow_list *from)
{
	if (from->head == NULL)
		return;
	from->tail->next = to->head;
	if (to->tail == NULL)
		to->tail = from->tail;
	to->head = from->head;
	to->count += from->count;
}

static void snap_unlink(struct cow *t, struct cow_snap *s)
{
	if (s->newer != NULL)
		s->newer->older = s->older;
	else
		t->newest = s->older;
	if (s->older != NULL)
		s->older->newer = s->newer;
	t->frozen = t->newest != NULL ? t->newest->gen : 0;
}

void cow_snap_end(struct cow *t, struct cow_snap *s)
{
	/* An older snapshot may see some of the dead pages: it takes them all
	 * over, which costs memory for its life but no search. A newer one
	 * began after they had died. */
	list_join(s->older != NULL ? &s->older->dead : &t->pool, &s->dead);
	snap_unlink(t, s);
	t->mem.release(t->mem.ctx, s);
}

/* A page younger than the snapshot hangs only below pages that are, too. */
static void drop_younger(struct cow *t, struct cow_page *p)
{
	if (cow_frozen(t, p))
		return;
	for (uint32_t i = 0; p->level > 0 && i < p->count; i++)
		drop_younger(t, cow_page_child(p, i));
	cow_page_drop(t, p);
}

void cow_rollback(struct cow *t, struct cow_snap *s)
{
	assert(t->newest == s);
	drop_younger(t, t->root);
	/* The tree only ever writes to its own pages; the cast gives back
	 * what cow_snap_begin() made const. */
	memcpy(&t->root, &s->root, sizeof(t->root));
	t->height = s->height;
	t->count = s->count;
	t->payload = s->payload;
	snap_unlink(t, s);
	t->mem.release(t->mem.ctx, s);
}

static bool check_page(const struct cow *t, const struct cow_page *p,
		       uint32_t level)
{
	if (p->level != level || p->heap > COW_PAGE_SIZE ||
	    p->birth > t->gen || cow_page_used(p) > COW_PAGE_ROOM)
		return false;
	if (p->count == 0 && p != t->root)
		return false;
	for (uint32_t i = 0; level > 0 && i < p->count; i++) {
		const struct cow_page *child = cow_page_child(p, i);

		if (child->birth > p->birth && p->birth <= t->frozen)
			return false;
		if (!check_page(t, child, level - 1))
			return false;
	}
	return true;
}

bool cow_check(const struct cow *t)
{
	uint8_t last[COW_KEY_MAX] = { 0 };
	uint32_t last_len = 0;
	uint64_t count = 0, payload = 0;
	struct cow_iter it;

	if (!check_page(t, t->root, t->height - 1))
		return false;
	for (bool ok = cow_seek(t, &it, "", 0); ok; ok = cow_next(&it)) {
		uint32_t least = it.klen < last_len ? it.klen : last_len;
		int c = memcmp(last, it.key, least);
		const uint8_t *val;
		uint32_t vlen;

		if (c > 0 || (c == 0 && last_len >= it.klen))
			return false;
		if (!cow_get(t, it.key, it.klen, &val, &vlen) ||
		    val != it.val)
			return false;
		memcpy(last, it.key, it.klen);
		last_len = it.klen;
		count++;
		payload += it.klen + it.vlen;
	}
	return count == t->count && payload == t->payload;
}
