/* One inode's write-back buffer. [pure]
 *
 * An ordered set of extents that never overlap: for each byte written and not
 * yet known durable, the newest content. An extent lies within one block.
 *
 *	DIRTY     not sent. Counts in a generation.
 *	FLIGHT    sent, not answered. Belongs to an io.
 *	UNSYNCED  acknowledged by a daemon that may still lose it. Same io.
 *
 * A newer write takes bytes away from older extents, in whatever state. The io
 * stays (its bytes are referenced) until it is answered and synced.
 *
 * Generations answer "is everything written before now durable?" in O(1): a
 * DIRTY extent counts in the oldest generation of any DIRTY content it was
 * merged with, an io in the oldest of what it carries. Content that is
 * replaced while unsent passes its generation on; content replaced while sent
 * is still counted by its io. So when all generations up to G are empty, the
 * content at the time G was closed, or newer, is durable, provided no daemon
 * lost anything meanwhile: an io that is taken back (wbuf_io_redirty) may have
 * been partly replaced by content of a later generation, so the caller must
 * then wait for the generation that is current at that moment.
 *
 * Not thread-safe: the owner's lock protects a wbuf and all that shares its
 * wbuf_mem. Only the bytes of a wbuf_data may be read without it, by whoever
 * holds a reference.
 */
#ifndef FUSE_CORE_WBUF_H
#define FUSE_CORE_WBUF_H

#include "fuse/core/dlist.h"

#include "common/limits.h"

#include <sys/uio.h>

/* Writes up to this size may be copied under the lock. */
#define WBUF_SMALL_MAX 4096u
/* A buffer that grows by appending has at most this capacity. */
#define WBUF_APPEND_MAX (64u << 10)
/* Iovecs of one io. */
#define WBUF_IOV_MAX 160u

/* Memory shared by all buffers of a mount: accounting and free lists. */
struct wbuf_mem {
	uint64_t bytes; /* charged: data and bookkeeping */
	uint64_t dirty_bytes; /* in DIRTY extents */
	struct wbuf_ext *ext_free;
	uint32_t ext_free_count;
	struct wbuf_data *pool; /* big ones, for reuse without page faults */
	uint64_t pool_bytes;
	uint64_t kept_max; /* of bytes and pool_bytes together, for the pool */
};

/* Reference-counted bytes. [0, used) never changes while more than one
 * reference exists, except that bytes beyond @used may be appended. */
struct wbuf_data {
	uint32_t refs;
	uint32_t cap, used;
	struct wbuf_mem *charged; /* NULL: not yet in a buffer */
	struct wbuf_data *pool_next;
	uint8_t bytes[];
};

enum wbuf_state { WBUF_DIRTY, WBUF_FLIGHT, WBUF_UNSYNCED };

struct wbuf_gen {
	uint64_t number;
	uint64_t count; /* DIRTY extents and ios */
	uint64_t flight; /* of them, ios not answered */
	uint64_t dirty; /* of them, DIRTY extents */
	struct wbuf_gen *next;
};

struct wbuf_io;

struct wbuf_ext {
	uint64_t off;
	uint32_t len;
	uint8_t state; /* enum wbuf_state */
	bool wanted; /* DIRTY: send it as soon as nothing blocks it */
	bool behind; /* DIRTY: may overlap an io in flight */
	uint32_t data_off;
	struct wbuf_data *data;
	struct wbuf_gen *gen; /* DIRTY */
	struct wbuf_io *io; /* FLIGHT, UNSYNCED */
	/* treap by off; list in order of off */
	struct wbuf_ext *left, *right, *prev, *next;
	uint32_t prio;
};

/* One block write; embedded in the owner's request. */
struct wbuf_io {
	uint64_t off; /* in the file; within one block */
	uint32_t len;
	bool in_flight;
	uint32_t ext_count; /* extents still pointing here */
	struct wbuf_gen *gen;
	struct dlist inode_node; /* wbuf.ios */
	/* what is sent; released when it is answered */
	uint32_t iov_count;
	struct iovec iov_one; /* iov when iov_count == 1 */
	struct wbuf_data *data_one;
	struct iovec *iov;
	struct wbuf_data **data;
};

struct wbuf {
	struct wbuf_mem *mem;
	struct wbuf_ext *root, *head, *tail;
	struct wbuf_ext *hint; /* last one appended to, or NULL */
	struct wbuf_gen *gen_first, *gen_last; /* last: current */
	struct dlist ios; /* all, in flight or unsynced, oldest first */
	uint32_t flight_count; /* ios in flight */
	uint32_t ext_count;
	uint32_t seed; /* of treap priorities */
	uint8_t block_log2;
};

/* ---- memory ---- */
/* @kept_max: free buffers are kept only while they and what is charged do not
 * exceed it together. */
void wbuf_mem_init(struct wbuf_mem *m, uint64_t kept_max);
void wbuf_mem_fini(struct wbuf_mem *m);
/* A buffer of at least @cap bytes with one reference. NULL: no memory. The
 * pool is used (and the lock needed) only by _pooled. */
struct wbuf_data *wbuf_data_new(uint32_t cap);
struct wbuf_data *wbuf_data_pooled(struct wbuf_mem *m, uint32_t cap);
void wbuf_data_get(struct wbuf_data *d);
void wbuf_data_put(struct wbuf_mem *m, struct wbuf_data *d);

/* ---- life ---- */
/* Returns 0 or -ENOMEM. */
int wbuf_init(struct wbuf *b, struct wbuf_mem *m, uint8_t block_log2);
/* Drops all extents; no io may be left. */
void wbuf_fini(struct wbuf *b);
/* Nothing DIRTY, in flight or unsynced. */
bool wbuf_clean(const struct wbuf *b);

/* ---- writing ---- */
/* [off, off+len) now has the bytes at @data_off of @data (a reference is
 * taken for each extent). Returns 0, or -ENOMEM with nothing changed. */
int wbuf_write(struct wbuf *b, uint64_t off, struct wbuf_data *data,
	       uint32_t data_off, uint32_t len);
/* The same for at most WBUF_SMALL_MAX bytes copied from @src: into the extent
 * that ends at or contains @off where it is DIRTY and nobody else reads it. */
int wbuf_write_small(struct wbuf *b, uint64_t off, const void *src,
		     uint32_t len);
/* Removes [from, to) (to: UINT64_MAX for all behind). Returns 0 or -ENOMEM
 * (only a hole in the middle of one extent needs memory). */
int wbuf_cut(struct wbuf *b, uint64_t from, uint64_t to);

/* ---- looking ---- */
/* First extent that ends after @off, or NULL. */
struct wbuf_ext *wbuf_find(const struct wbuf *b, uint64_t off);
/* Are there DIRTY or FLIGHT bytes in [off, off+len)? */
bool wbuf_unacked(const struct wbuf *b, uint64_t off, uint64_t len);
/* Is the whole block that ends at @end DIRTY, without a gap? */
bool wbuf_block_full(const struct wbuf *b, uint64_t end);

/* ---- generations ---- */
/* Closes the current generation and returns its number: what is written later
 * counts in a later one. (Out of memory: stays open, still correct.) */
uint64_t wbuf_gen_close(struct wbuf *b);
/* Is there something in generations up to @number: DIRTY, in flight, or at
 * all? */
struct wbuf_pending {
	uint64_t dirty, flight, count;
};
void wbuf_gen_pending(const struct wbuf *b, uint64_t number,
		      struct wbuf_pending *p);

/* ---- sending ---- */
/* Takes DIRTY extents from @e on, as long as they touch, lie in one block and
 * iovecs last, into @io (uninitialised), which is in flight then. Returns the
 * extent after the last one taken via *@next.
 * Returns 0; -EBUSY: @e overlaps an io in flight (it is marked wanted);
 * -ENOMEM. */
int wbuf_io_start(struct wbuf *b, struct wbuf_ext *e, struct wbuf_io *io,
		  struct wbuf_ext **next);
/* Answered by a daemon: its extents become UNSYNCED. */
void wbuf_io_acked(struct wbuf *b, struct wbuf_io *io);
/* Durable (or not wanted any more): an acked io and what is left of its
 * extents goes. */
void wbuf_io_drop(struct wbuf *b, struct wbuf_io *io);
/* Lost or refused: what is left of its extents is DIRTY again; the io is
 * gone. */
void wbuf_io_redirty(struct wbuf *b, struct wbuf_io *io);

#endif
