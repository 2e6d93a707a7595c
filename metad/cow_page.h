/* One page of the copy-on-write tree: a slotted page of (key, value) cells in
 * key order. [pure] Private to metad/cow*.c.
 *
 *	header | slots[count] -> ... free ... <- cells |
 *
 * A slot is the offset of its cell: u16 key length, u16 value length, key,
 * value. A leaf's values are the tree's; an inner page's are pointers to its
 * children, and cell 0's key counts as smaller than every key.
 */
#ifndef METAD_COW_PAGE_H
#define METAD_COW_PAGE_H

#include "metad/cow.h"

struct cow_page {
	uint64_t birth; /* tree generation that made it */
	struct cow_page *next; /* in a list of free or replaced pages */
	uint16_t count; /* cells */
	uint16_t heap; /* lowest offset a cell uses */
	uint16_t garbage; /* bytes of removed cells above heap */
	uint16_t level; /* 0: leaf */
	uint16_t slots[];
};

#define COW_PAGE_ROOM (COW_PAGE_SIZE - sizeof(struct cow_page))
/* Bytes of a cell and its slot. */
#define COW_CELL_SIZE(klen, vlen) (2u + 4u + (klen) + (vlen))
#define COW_CELL_MAX COW_CELL_SIZE(COW_KEY_MAX, COW_VALUE_MAX)
/* So that a full page and any cell can be split into two pages. */
_Static_assert(COW_CELL_MAX <= COW_PAGE_ROOM / 3, "three cells fit");
_Static_assert(COW_PAGE_SIZE <= UINT16_MAX, "offsets are 16 bits");

struct cow_cell {
	const void *key;
	const void *val;
	uint32_t klen;
	uint32_t vlen;
};

void cow_page_init(struct cow_page *p, uint32_t level);
/* @i < p->count. The pointers are valid until the page changes. */
struct cow_cell cow_page_cell(const struct cow_page *p, uint32_t i);
struct cow_page *cow_page_child(const struct cow_page *p, uint32_t i);
void cow_page_set_child(struct cow_page *p, uint32_t i,
			const struct cow_page *child);
/* Index of the first cell with a key >= @key; *found: it is equal. */
uint32_t cow_page_find(const struct cow_page *p, const void *key,
		       uint32_t klen, bool *found);
/* Index of the child that covers @key (inner pages). */
uint32_t cow_page_find_child(const struct cow_page *p, const void *key,
			     uint32_t klen);
/* Bytes of slots and live cells. */
uint32_t cow_page_used(const struct cow_page *p);
bool cow_page_fits(const struct cow_page *p, uint32_t cell_size);
/* It must fit. Nothing in @c may point into @p. */
void cow_page_insert(struct cow_page *p, uint32_t i, const struct cow_cell *c);
void cow_page_remove(struct cow_page *p, uint32_t i);
/* Gives cell @i another value where the old one lies. False: too large. */
bool cow_page_overwrite(struct cow_page *p, uint32_t i, const void *val,
			uint32_t vlen);
/* @p is full: inserts @c as cell @i and moves the upper part of the cells to
 * the empty page @right. */
void cow_page_split(struct cow_page *p, struct cow_page *right, uint32_t i,
		    const struct cow_cell *c);
/* Appends all cells of @src (keys larger than those of @p); they fit.
 * @first_key replaces the key of src's cell 0 when not NULL. */
void cow_page_append(struct cow_page *p, const struct cow_page *src,
		     const void *first_key, uint32_t first_klen);

#endif
