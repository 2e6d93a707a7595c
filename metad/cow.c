#include "metad/cow.h"

#include "metad/cow_priv.h"

/* Pages the pool keeps, and how many of the surplus one cow_trim() gives
 * back: the end of a large snapshot must not become one long pause. */
#define POOL_KEEP 1024u
#define POOL_RELEASE 16u

static void *default_alloc(void *ctx, size_t size)
{
	(void)ctx;
	return malloc(size);
}

static void default_release(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

struct cow *cow_new(const struct cow_mem *mem)
{
	static const struct cow_mem heap = { default_alloc, default_release,
					     NULL };
	struct cow *t;

	if (mem == NULL)
		mem = &heap;
	t = mem->alloc(mem->ctx, sizeof(*t));
	if (t == NULL)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->mem = *mem;
	t->gen = 1;
	t->height = 1;
	t->root = mem->alloc(mem->ctx, COW_PAGE_SIZE);
	if (t->root == NULL) {
		mem->release(mem->ctx, t);
		return NULL;
	}
	cow_page_init(t->root, 0);
	t->root->birth = t->gen;
	t->page_count = 1;
	return t;
}

static void free_subtree(struct cow *t, struct cow_page *p)
{
	for (uint32_t i = 0; p->level > 0 && i < p->count; i++)
		free_subtree(t, cow_page_child(p, i));
	t->mem.release(t->mem.ctx, p);
}

void cow_free(struct cow *t)
{
	struct cow_page *p;

	if (t == NULL)
		return;
	/* What only snapshots see lies in their dead lists, which go to the
	 * pool with them. */
	while (t->newest != NULL)
		cow_snap_end(t, t->newest);
	free_subtree(t, t->root);
	while ((p = t->pool.head) != NULL) {
		t->pool.head = p->next;
		t->mem.release(t->mem.ctx, p);
	}
	t->mem.release(t->mem.ctx, t);
}

static void list_push(struct cow_list *l, struct cow_page *p)
{
	p->next = l->head;
	l->head = p;
	if (l->tail == NULL)
		l->tail = p;
	l->count++;
}

static struct cow_page *list_pop(struct cow_list *l)
{
	struct cow_page *p = l->head;

	l->head = p->next;
	if (l->head == NULL)
		l->tail = NULL;
	l->count--;
	return p;
}

bool cow_trim(struct cow *t)
{
	for (uint32_t i = 0; i < POOL_RELEASE && t->pool.count > POOL_KEEP;
	     i++) {
		t->mem.release(t->mem.ctx, list_pop(&t->pool));
		t->page_count--;
	}
	return t->pool.count > POOL_KEEP;
}

void cow_drain(struct cow *t)
{
	while (t->pool.count > 0) {
		t->mem.release(t->mem.ctx, list_pop(&t->pool));
		t->page_count--;
	}
}

/* A put copies at most a path and splits at each level and at the root; a
 * delete copies a path. Two levels are added for growth in between. */
int cow_reserve(struct cow *t, uint32_t changes)
{
	uint32_t height = t->height + 2;
	uint32_t each = t->frozen != 0 ? 2 * height + 1 : height + 1;
	uint64_t want = (uint64_t)changes * each;

	while (t->pool.count < want) {
		struct cow_page *p = t->mem.alloc(t->mem.ctx, COW_PAGE_SIZE);

		if (p == NULL)
			return -ENOMEM;
		list_push(&t->pool, p);
		t->page_count++;
	}
	return 0;
}

struct cow_page *cow_page_take(struct cow *t, uint32_t level)
{
	struct cow_page *p;

	assert(t->pool.count > 0);
	p = list_pop(&t->pool);
	cow_page_init(p, level);
	p->birth = t->gen;
	return p;
}

void cow_page_drop(struct cow *t, struct cow_page *p)
{
	if (cow_frozen(t, p))
		list_push(&t->newest->dead, p);
	else
		list_push(&t->pool, p);
}

/* The page to write to instead of @p. */
static struct cow_page *page_thaw(struct cow *t, struct cow_page *p)
{
	struct cow_page *copy;

	if (!cow_frozen(t, p))
		return p;
	copy = cow_page_take(t, p->level);
	memcpy(copy, p, COW_PAGE_SIZE);
	copy->birth = t->gen;
	copy->next = NULL;
	list_push(&t->newest->dead, p);
	return copy;
}

struct path {
	struct cow_page *page[COW_HEIGHT_MAX]; /* by level */
	uint32_t at[COW_HEIGHT_MAX]; /* child index; in the leaf: cell */
};

/* Finds the leaf of @key, with every page on the way made writable. */
static void path_find(struct cow *t, struct path *path, const void *key,
		      uint32_t klen)
{
	struct cow_page *p;
	uint32_t level = t->height - 1;

	t->root = page_thaw(t, t->root);
	p = t->root;
	for (;;) {
		struct cow_page *child;
		struct cow_page *own;
		uint32_t i;

		path->page[level] = p;
		if (level == 0)
			return;
		i = cow_page_find_child(p, key, klen);
		child = cow_page_child(p, i);
		own = page_thaw(t, child);
		if (own != child)
			cow_page_set_child(p, i, own);
		path->at[level] = i;
		p = own;
		level--;
	}
}

/* Shortest key > the last one of @left and <= the first one of @right.
 * Returns its length. */
static uint32_t separator(const struct cow_page *left,
			  const struct cow_page *right, uint8_t *buf)
{
	struct cow_cell r = cow_page_cell(right, 0);
	uint32_t len = r.klen;

	if (right->level == 0) {
		struct cow_cell l = cow_page_cell(left, left->count - 1u);
		const uint8_t *a = l.key;
		const uint8_t *b = r.key;

		for (len = 0; len < l.klen && a[len] == b[len];)
			len++;
		len++;
	}
	memcpy(buf, r.key, len);
	return len;
}

static void grow_root(struct cow *t, const struct cow_cell *right)
{
	struct cow_page *root = cow_page_take(t, t->height);
	struct cow_cell left = { .val = &t->root, .vlen = sizeof(t->root) };

	assert(t->height < COW_HEIGHT_MAX);
	cow_page_insert(root, 0, &left);
	cow_page_insert(root, 1, right);
	t->root = root;
	t->height++;
}

/* Puts @c into the leaf of @path, splitting upwards as far as needed. */
static void path_insert(struct cow *t, const struct path *path,
			const struct cow_cell *c)
{
	uint8_t sep[2][COW_KEY_MAX];
	struct cow_page *ptr[2];
	struct cow_cell cell = *c;
	uint32_t i = path->at[0];

	for (uint32_t level = 0;; level++) {
		struct cow_page *p = path->page[level];
		struct cow_page *right;
		uint8_t *key = sep[level % 2];

		if (cow_page_fits(p, COW_CELL_SIZE(cell.klen, cell.vlen))) {
			cow_page_insert(p, i, &cell);
			return;
		}
		right = cow_page_take(t, level);
		cow_page_split(p, right, i, &cell);
		ptr[level % 2] = right;
		cell.klen = separator(p, right, key);
		cell.key = key;
		cell.val = &ptr[level % 2];
		cell.vlen = sizeof(right);
		if (level + 1 == t->height) {
			grow_root(t, &cell);
			return;
		}
		i = path->at[level + 1] + 1;
	}
}

void cow_put(struct cow *t, const void *key, uint32_t klen, const void *val,
	     uint32_t vlen)
{
	struct cow_cell c = { key, val, klen, vlen };
	struct path path;
	struct cow_page *leaf;
	bool found;

	assert(klen > 0 && klen <= COW_KEY_MAX && vlen <= COW_VALUE_MAX);
	path_find(t, &path, key, klen);
	leaf = path.page[0];
	path.at[0] = cow_page_find(leaf, key, klen, &found);
	if (found) {
		struct cow_cell old = cow_page_cell(leaf, path.at[0]);

		t->payload = t->payload - old.vlen + vlen;
		if (cow_page_overwrite(leaf, path.at[0], val, vlen))
			return;
		cow_page_remove(leaf, path.at[0]);
	} else {
		t->count++;
		t->payload += klen + vlen;
	}
	path_insert(t, &path, &c);
}

/* Joins child @i of @parent with child @i + 1 if both fit well into one. */
static bool join_children(struct cow *t, struct cow_page *parent, uint32_t i)
{
	struct cow_page *left = cow_page_child(parent, i);
	struct cow_page *right = cow_page_child(parent, i + 1);
	struct cow_cell sep = cow_page_cell(parent, i + 1);
	uint32_t used = cow_page_used(left) + cow_page_used(right) + sep.klen;
	struct cow_page *own;

	if (used > COW_PAGE_ROOM * 3 / 4)
		return false;
	own = page_thaw(t, left);
	cow_page_append(own, right, right->level > 0 ? sep.key : NULL,
			sep.klen);
	cow_page_set_child(parent, i, own);
	cow_page_remove(parent, i + 1);
	cow_page_drop(t, right);
	return true;
}

/* After a removal: takes empty pages out and joins nearly empty ones. */
static void path_shrink(struct cow *t, const struct path *path)
{
	for (uint32_t level = 0; level + 1 < t->height; level++) {
		struct cow_page *p = path->page[level];
		/* NOLINTNEXTLINE: path_find() filled the level */
		struct cow_page *parent = path->page[level + 1];
		uint32_t i = path->at[level + 1];

		if (cow_page_used(p) > COW_PAGE_ROOM / 4)
			break;
		if (p->count == 0) {
			cow_page_remove(parent, i);
			cow_page_drop(t, p);
			continue;
		}
		if (i + 1 < parent->count && join_children(t, parent, i))
			continue;
		if (i == 0 || !join_children(t, parent, i - 1))
			break;
	}
	while (t->height > 1 && t->root->count <= 1) {
		struct cow_page *old = t->root;

		if (old->count == 1) {
			t->root = cow_page_child(old, 0);
			t->height--;
		} else {
			/* The last leaf went: start anew with this page. */
			cow_page_init(old, 0);
			t->height = 1;
			return;
		}
		cow_page_drop(t, old);
	}
}

bool cow_del(struct cow *t, const void *key, uint32_t klen)
{
	const uint8_t *val;
	struct path path;
	uint32_t vlen;
	bool found;

	if (!cow_get(t, key, klen, &val, &vlen))
		return false;
	path_find(t, &path, key, klen);
	path.at[0] = cow_page_find(path.page[0], key, klen, &found);
	assert(found);
	cow_page_remove(path.page[0], path.at[0]);
	t->count--;
	t->payload -= klen + vlen;
	path_shrink(t, &path);
	return true;
}

/* A frozen page that is copied and then emptied comes back to the pool, so
 * the pages out at any time are those of one path. */
uint64_t cow_del_range(struct cow *t, const void *from, uint32_t from_len,
		       const void *to, uint32_t to_len)
{
	uint8_t key[COW_KEY_MAX];
	struct cow_iter it;
	uint64_t count = 0;

	while (cow_seek(t, &it, from, from_len)) {
		uint32_t klen = it.klen;
		uint32_t least = klen < to_len ? klen : to_len;
		int c = memcmp(it.key, to, least);

		if (c > 0 || (c == 0 && klen >= to_len))
			break;
		memcpy(key, it.key, klen);
		(void)cow_del(t, key, klen); /* it is there */
		count++;
	}
	return count;
}

bool cow_get(const struct cow *t, const void *key, uint32_t klen,
	     const uint8_t **val, uint32_t *vlen)
{
	const struct cow_page *p = t->root;
	struct cow_cell c;
	uint32_t i;
	bool found;

	while (p->level > 0)
		p = cow_page_child(p, cow_page_find_child(p, key, klen));
	i = cow_page_find(p, key, klen, &found);
	if (!found)
		return false;
	c = cow_page_cell(p, i);
	*val = c.val;
	*vlen = c.vlen;
	return true;
}

uint64_t cow_count(const struct cow *t)
{
	return t->count;
}

uint64_t cow_payload(const struct cow *t)
{
	return t->payload;
}

uint64_t cow_memory(const struct cow *t)
{
	return t->page_count * COW_PAGE_SIZE;
}
