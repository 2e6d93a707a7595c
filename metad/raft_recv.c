/* What libraft 0.15 is told of a message otherwise than it came.
 *
 * Of a leader whose log begins at the first entry: a leader that does not know
 * what a member has sends everything from there on, and a member that has a
 * snapshot puts those entries, which it does not have any more, behind its log.
 * They are left out here: a snapshot has committed entries only, which the
 * leader has, too.
 *
 * Of the time: libraft takes the loop's, which is that of when its turn began.
 * The leader counts what a member promised, not to vote for a while, from when
 * it sent the message, which may be later than that, if something else of the
 * turn took long.
 */
#include "metad/raft_priv.h"

/* @a has entries from 1 on; we have none up to @snap, but their result. */
static void leave_out(struct raft_append_entries *a, raft_index snap,
		      raft_term term)
{
	unsigned n = a->n_entries > snap ? (unsigned)snap : a->n_entries;

	if (n == a->n_entries) {
		raft_free(a->entries[0].batch);
		raft_free(a->entries);
		a->entries = NULL;
	} else {
		memmove(a->entries, a->entries + n,
			(a->n_entries - n) * sizeof(*a->entries));
	}
	a->n_entries -= n;
	a->prev_log_index = snap;
	a->prev_log_term = term;
}

static void on_recv(struct raft_io *io, struct raft_message *msg)
{
	struct metaraft *m = container_of(io, struct metaraft, io);
	const struct raft_log *l = &m->raft.log;
	struct raft_append_entries *a = &msg->append_entries;

	/* While it gets a snapshot libraft takes no entries at all. */
	if (msg->type == RAFT_IO_APPEND_ENTRIES && a->prev_log_index == 0 &&
	    a->n_entries > 0 && l->offset > 0 && l->snapshot.last_index > 0 &&
	    !m->raft.snapshot.put.data)
		leave_out(a, l->snapshot.last_index, l->snapshot.last_term);
	uv_update_time(m->loop);
	m->recv(io, msg);
}

static int start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
		 raft_io_recv_cb recv)
{
	struct metaraft *m = container_of(io, struct metaraft, io);

	m->recv = recv;
	return m->io_start(io, msecs, tick, on_recv);
}

void metaraft_recv_init(struct metaraft *m)
{
	m->io_start = m->io.start;
	m->io.start = start;
}
