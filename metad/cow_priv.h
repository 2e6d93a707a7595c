/* Private to metad/cow*.c. */
#ifndef METAD_COW_PRIV_H
#define METAD_COW_PRIV_H

#include "metad/cow_page.h"

/* Singly linked pages; O(1) concatenation. */
struct cow_list {
	struct cow_page *head;
	struct cow_page *tail;
	uint64_t count;
};

struct cow_snap {
	struct cow_snap *older;
	struct cow_snap *newer;
	const struct cow_page *root;
	uint64_t gen; /* pages with birth <= gen belong to it */
	uint64_t count;
	uint64_t payload;
	uint32_t height;
	/* Pages that left the tree while this was the newest snapshot. */
	struct cow_list dead;
};

struct cow {
	struct cow_page *root;
	uint32_t height; /* levels; a lone leaf is 1 */
	uint64_t gen; /* birth of new pages */
	uint64_t frozen; /* gen of the newest snapshot; 0: none */
	uint64_t count;
	uint64_t payload;
	uint64_t page_count; /* all pages held */
	struct cow_snap *newest;
	struct cow_list pool; /* pages to be used next */
	struct cow_mem mem;
};

/* From the pool, which must not be empty. */
struct cow_page *cow_page_take(struct cow *t, uint32_t level);
/* The tree does not use @p any more. */
void cow_page_drop(struct cow *t, struct cow_page *p);
/* Gives every unused page back, so that tests meet the allocator again. */
void cow_drain(struct cow *t);
static inline bool cow_frozen(const struct cow *t, const struct cow_page *p)
{
	return p->birth <= t->frozen;
}
bool cow_root_seek(const struct cow_page *root, uint32_t height,
		   struct cow_iter *it, const void *key, uint32_t klen);

#endif
