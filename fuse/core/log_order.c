/* Write-ahead order on disk: what is sent to the blocks after a log write was
 * acknowledged does not get there before that log write has. A power cut of
 * everything, which takes the peers' memory, takes the file system back in
 * time, but then to a state in which each data page has its log record.
 *
 * Frames of ordinary files, and what takes names or content away (unlink,
 * rename, truncate) are held here, in rounds: those that come while one
 * is under way wait for the next. A round destages every log that has records
 * which the blocks have not; when all have, its frames go. Frames of log files
 * are what destaging is, and pass. */
#include "fuse/core/log_priv.h"

static bool log_behind(const struct log_file *lf)
{
	return lf->state == LOG_ACTIVE && lf->ordered && !lf->in->bad &&
	       lf->destaged_seq < lf->w.seq;
}

static bool any_behind(const struct core *c)
{
	const struct dlist *n;

	for (n = c->log->files.next; n != &c->log->files; n = n->next)
		if (log_behind((const void *)((const char *)n -
				offsetof(struct log_file, node))))
			return true;
	return false;
}

static void held_fail(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, failed_def);
	struct wb_io *head;

	core_lock(l->c);
	head = l->failed;
	l->failed = NULL;
	core_unlock(l->c);
	wb_send_failed(head, -ETIMEDOUT);
}

/* A soft mount does not wait longer. Lock held. */
static void held_fail_later(struct core *c, struct wb_io *head)
{
	struct log_client *l = c->log;
	struct wb_io **end = &l->failed;

	if (!head)
		return;
	if (!l->failed) {
		l->failed_def.fn = held_fail;
		core_defer(c, &l->failed_def);
	}
	while (*end)
		end = &(*end)->chain;
	*end = head;
}

static void round_begin(struct core *c);

static void waiters_go(struct core_waiter *w, int err)
{
	while (w) {
		struct core_waiter *next = w->next;

		w->fn(w, err);
		w = next;
	}
}

/* Everything the frames of this round have to wait for is in the blocks, or
 * cannot get there. */
static void round_end(struct core *c, bool timed_out)
{
	struct log_client *l = c->log;
	struct wb_io *head = l->held;
	struct core_waiter *waiters = l->order_waiters;

	l->held = NULL;
	l->order_waiters = NULL;
	l->in_round = false;
	if (timed_out)
		held_fail_later(c, head);
	else if (head)
		wb_send_chain(c, head);
	waiters_go(waiters, timed_out ? -ETIMEDOUT : 0);
	if ((l->held_next || l->order_waiters_next) && !l->in_round)
		round_begin(c);
}

static void round_begin(struct core *c)
{
	struct log_client *l = c->log;
	struct dlist *n, *save;

	l->held = l->held_next;
	l->held_next = NULL;
	l->held_tail = &l->held_next;
	l->order_waiters = l->order_waiters_next;
	l->order_waiters_next = NULL;
	l->order_tail = &l->order_waiters_next;
	l->in_round = true;
	l->round_left = 0;
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		lf->order_seq = 0;
		if (!log_behind(lf))
			continue;
		lf->order_seq = lf->w.seq;
		l->round_left++;
		log_destage(lf);
	}
	c->log->n.rounds++;
	if (l->round_left == 0)
		round_end(c, false);
}

void log_order_step(struct log_file *lf, int err)
{
	struct core *c = lf->c;
	struct log_client *l = c->log;

	if (!l->in_round || lf->order_seq == 0)
		return;
	if (!err && lf->state == LOG_ACTIVE &&
	    lf->destaged_seq < lf->order_seq) {
		log_destage(lf);
		return;
	}
	/* A log that has ended is in the blocks, or lost with its session; for
	 * one that is lost nobody can wait. A soft mount tells that it waits no
	 * longer. */
	lf->order_seq = 0;
	if (err == -ETIMEDOUT || --l->round_left == 0)
		round_end(c, err == -ETIMEDOUT);
}

/* Takes the inode's frames out of a list. Returns its new end. */
static struct wb_io **take_out(struct wb_io **at, const struct core_inode *in,
			       struct wb_io ***tail)
{
	while (*at) {
		struct wb_io *io = *at;

		if (io->in != in) {
			at = &io->chain;
			continue;
		}
		*at = io->chain;
		io->chain = NULL;
		**tail = io;
		*tail = &io->chain;
	}
	return at;
}

void log_order_release(struct core *c, const struct core_inode *in)
{
	struct log_client *l = c->log;
	struct wb_io *head = NULL, **tail = &head;

	(void)take_out(&l->held, in, &tail);
	l->held_tail = take_out(&l->held_next, in, &tail);
	if (head)
		wb_send_chain(c, head);
}

bool log_order_hold(struct core *c, struct wb_io *io)
{
	struct log_client *l = c->log;

	if (!l || io->in->log || (io->in->attr.flags & META_ATTR_LOG) ||
	    !log_order_due(c))
		return false;
	io->chain = NULL;
	*l->held_tail = io;
	l->held_tail = &io->chain;
	return true;
}

static void order_begin(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, order_def);

	core_lock(l->c);
	l->order_deferred = false;
	if ((l->held_next || l->order_waiters_next) && !l->in_round)
		round_begin(l->c);
	core_unlock(l->c);
}

/* Nothing of a round runs inside its caller. */
static void order_soon(struct core *c)
{
	struct log_client *l = c->log;

	if (l->in_round || l->order_deferred)
		return;
	l->order_deferred = true;
	l->order_def.fn = order_begin;
	core_defer(c, &l->order_def);
}

void log_order_go(struct core *c)
{
	if (c->log && c->log->held_next)
		order_soon(c);
}

bool log_order_due(const struct core *c)
{
	return c->log->in_round || any_behind(c);
}

bool log_order_wait(struct core *c, struct core_waiter *w)
{
	struct log_client *l = c->log;

	if (!log_order_due(c))
		return false;
	w->next = NULL;
	*l->order_tail = w;
	l->order_tail = &w->next;
	order_soon(c);
	return true;
}
