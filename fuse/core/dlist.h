/* Intrusive doubly linked lists with a head, for the client core. */
#ifndef FUSE_CORE_DLIST_H
#define FUSE_CORE_DLIST_H

#include "common/base.h"

struct dlist {
	struct dlist *next, *prev;
};

static inline void dlist_init(struct dlist *l)
{
	l->next = l->prev = l;
}

static inline bool dlist_empty(const struct dlist *l)
{
	return l->next == l;
}

/* At the tail of @head. */
static inline void dlist_add(struct dlist *head, struct dlist *e)
{
	e->prev = head->prev;
	e->next = head;
	head->prev->next = e;
	head->prev = e;
}

/* @e may be deleted again, and is empty afterwards. */
static inline void dlist_del(struct dlist *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	dlist_init(e);
}

#define dlist_entry(ptr, type, member) container_of(ptr, type, member)
/* Safe against deletion of the element at hand, of no other. */
#define dlist_for(e, save, head)                                              \
	for ((e) = (head)->next, (save) = (e)->next; (e) != (head);           \
	     (e) = (save), (save) = (e)->next)

#endif
