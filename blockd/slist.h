/* Circular doubly linked list for the store's objects. An entry that is in no
 * list points at itself, so list_del() twice is harmless.
 */
#ifndef BLOCKD_SLIST_H
#define BLOCKD_SLIST_H

#include "common/base.h"

struct slist {
	struct slist *prev;
	struct slist *next;
};

static inline void slist_init(struct slist *l)
{
	l->prev = l;
	l->next = l;
}

static inline bool slist_empty(const struct slist *l)
{
	return l->next == l;
}

static inline void slist_del(struct slist *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	slist_init(e);
}

/* At the tail of @l. */
static inline void slist_push(struct slist *l, struct slist *e)
{
	e->prev = l->prev;
	e->next = l;
	l->prev->next = e;
	l->prev = e;
}

static inline void slist_push_front(struct slist *l, struct slist *e)
{
	slist_push(l->next, e);
}

/* Moves all of @from to the tail of @to. */
static inline void slist_splice(struct slist *to, struct slist *from)
{
	if (slist_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	slist_init(from);
}

#endif
