/* What the parts of the write-back buffer share: wbuf_mem.c has the memory,
 * wbuf_ext.c extents and generations, wbuf.c writing, wbuf_send.c sending.
 */
#ifndef FUSE_CORE_WBUF_PRIV_H
#define FUSE_CORE_WBUF_PRIV_H

#include "fuse/core/wbuf.h"

/* ---- memory ---- */
/* Counts @d as the mount's, if it is not yet. */
void wbuf_data_charge(struct wbuf_mem *m, struct wbuf_data *d);
/* Makes sure that @count extents can be had without failing. 0 or -ENOMEM. */
int wbuf_ext_reserve(struct wbuf_mem *m, uint32_t count);
/* One that was reserved; uninitialised. */
struct wbuf_ext *wbuf_ext_new(struct wbuf *b);
void wbuf_ext_release(struct wbuf *b, struct wbuf_ext *e);

/* ---- generations ---- */
struct wbuf_gen *wbuf_gen_new(uint64_t number); /* NULL: no memory */
/* One counts less; those that nothing counts in any more go. */
void wbuf_gen_put(struct wbuf *b, struct wbuf_gen *g);

static inline struct wbuf_gen *wbuf_gen_older(struct wbuf_gen *a,
					      struct wbuf_gen *b)
{
	return a->number <= b->number ? a : b;
}

/* ---- extents ---- */
static inline uint64_t wbuf_ext_end(const struct wbuf_ext *e)
{
	return e->off + e->len;
}

/* Last extent that begins at or before @off, or NULL. */
struct wbuf_ext *wbuf_ext_floor(const struct wbuf *b, uint64_t off);
/* Into the order; it overlaps none. */
void wbuf_ext_insert(struct wbuf *b, struct wbuf_ext *e);
/* Out of the order and of what counts it, with its reference. */
void wbuf_ext_drop(struct wbuf *b, struct wbuf_ext *e);
/* Cuts @len bytes off one end. */
void wbuf_ext_trim(struct wbuf *b, struct wbuf_ext *e, uint32_t len,
		   bool front);
/* Makes the bytes from file offset @at on an extent of their own. Needs one
 * reserved extent. */
void wbuf_ext_split(struct wbuf *b, struct wbuf_ext *e, uint64_t at);
/* @e becomes DIRTY and counts in @g; counts nowhere, before another state. */
void wbuf_dirty_enter(struct wbuf *b, struct wbuf_ext *e, struct wbuf_gen *g);
void wbuf_dirty_leave(struct wbuf *b, struct wbuf_ext *e);

#endif
