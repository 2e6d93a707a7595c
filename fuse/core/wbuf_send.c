/* Sending what a write-back buffer holds: extents gathered into block writes,
 * and what becomes of them.
 */
#include "fuse/core/wbuf_priv.h"

static bool overlaps_flight(const struct wbuf *b, const struct wbuf_ext *e)
{
	const struct dlist *l;

	for (l = b->ios.next; l != &b->ios; l = l->next) {
		const struct wbuf_io *io =
			(const struct wbuf_io *)(const void *)(
				(const char *)l -
				offsetof(struct wbuf_io, inode_node));

		if (io->in_flight && io->off < wbuf_ext_end(e) &&
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

		if (!n || n->state != WBUF_DIRTY || n->off != wbuf_ext_end(e) ||
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
		io->gen = wbuf_gen_older(io->gen, e->gen);
		e = e->next;
	}
	io->gen->count++;
	io->gen->flight++;
	/* After the io counts, lest its generation vanish. */
	for (e = wbuf_find(b, io->off); io->ext_count < io->iov_count;
	     e = e->next) {
		wbuf_dirty_leave(b, e);
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
	wbuf_gen_put(b, io->gen);
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
			wbuf_ext_drop(b, e);
	}
	io_gone(b, io);
}

void wbuf_io_redirty(struct wbuf *b, struct wbuf_io *io)
{
	struct wbuf_ext *e = wbuf_find(b, io->off);

	for (; io->ext_count > 0; e = e->next)
		if (e->io == io) {
			e->behind = false;
			wbuf_dirty_enter(b, e, io->gen);
			io->ext_count--;
		}
	io_gone(b, io);
}
