/* Write-ahead order on disk: what is sent to the blocks after a log write was
 * acknowledged does not get there before that log write has. A power cut of
 * everything, which takes the peers' memory, takes the file system back in
 * time, but then to a state that it was in: each data page has its log record,
 * and no log has what was written after something that another has lost.
 *
 * It goes in rounds. A round takes, at one moment, what all logs have that the
 * blocks have not, as records for the journal (log_journal.c) and as frames;
 * when the journal is durable these frames go, and with them what was held
 * back: frames of ordinary files, and what takes names or content away
 * (unlink, rename, truncate). Those that come while one is under way wait for
 * the next. Frames of log files are made for rounds alone. A daemon that was
 * started anew gives frames back: then the round begins again, with all there
 * is now, in the journal's other slot. */
#include "fuse/core/log_priv.h"

bool log_in_order(const struct log_file *lf)
{
	return lf->state == LOG_ACTIVE && lf->ordered && !lf->in->bad;
}

static bool log_behind(const struct log_file *lf)
{
	return log_in_order(lf) &&
	       u64_max(lf->destaged_seq, lf->journaled_seq) < lf->w.seq;
}

/* Has it anything for a round, that can be tried now? */
static bool log_for_round(const struct log_file *lf)
{
	return log_in_order(lf) &&
	       (lf->destaging || core_now_ms() >= lf->destage_retry_ms) &&
	       (lf->destaged_seq < lf->w.seq || !lf->covers ||
		!wb_inode_clean(lf->in));
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

static void waiters_all(struct log_client *l, int err)
{
	struct core_waiter *now = l->order_waiters;
	struct core_waiter *next = l->order_waiters_next;

	l->order_waiters = NULL;
	l->order_waiters_next = NULL;
	l->order_tail = &l->order_waiters_next;
	core_waiters_run(now, err);
	core_waiters_run(next, err);
}

/* What was held back goes. */
static void held_go(struct core *c, bool timed_out)
{
	struct log_client *l = c->log;
	struct wb_io *head = l->held;
	struct core_waiter *waiters = l->order_waiters;

	l->held = NULL;
	l->order_waiters = NULL;
	if (timed_out)
		held_fail_later(c, head);
	else if (head)
		wb_send_chain(c, head);
	core_waiters_run(waiters, timed_out ? -ETIMEDOUT : 0);
}

/* Everything of this round is in the blocks, or cannot get there. */
static void round_end(struct core *c, bool timed_out)
{
	struct log_client *l = c->log;

	l->round = LOG_ROUND_NONE;
	l->round_bare = false;
	held_go(c, timed_out);
	if ((l->held_next || l->order_waiters_next || l->round_wanted) &&
	    l->round == LOG_ROUND_NONE)
		round_begin(c);
	log_stop_maybe(c);
}

/* Frames that were made before it was a log file's, and cuts, have to come to
 * their end: newer content must not get in between. */
static bool is_still(const struct core_inode *in)
{
	return !in->cut_busy && (!in->wb || in->wb->buf.flight_count == 0);
}

/* Begins to wait for what it has now. False: no memory. */
static bool snap_begin(struct log_file *lf)
{
	if (!lf->destaging && !log_destage_begin(lf))
		return false;
	if (lf->order_seq == 0)
		lf->order_seq = 1 + log_destage_end(lf);
	return true;
}

/* One moment for all logs. If it cannot be now, the tick comes again. */
static void snapshot(struct core *c)
{
	struct log_client *l = c->log;
	struct log_journal_job *j;
	struct dlist *n, *save;
	struct wb_send s;

	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (log_for_round(lf) && !is_still(lf->in))
			return;
	}
	l->round_left = 0;
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (log_for_round(lf) && !snap_begin(lf))
			return;
		lf->snap_seq = log_in_order(lf) ? lf->w.seq : 0;
		if (!log_in_order(lf) && !lf->destaging)
			lf->order_seq = 0;
		l->round_left += lf->order_seq > 0;
	}
	if (l->round_left == 0 && !any_behind(c)) {
		round_end(c, false);
		return;
	}
	j = log_journal_new(c);
	if (!j)
		return;
	l->round_wanted = false; /* what is wanted is in it */
	wb_send_init(c, &s);
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (!log_in_order(lf) || !lf->destaging || !lf->in->wb)
			continue;
		inode_pin(lf->in);
		l->snapping = true;
		wb_collect(c, lf->in, 0, UINT64_MAX, &s);
		l->snapping = false;
		inode_unpin(c, lf->in);
	}
	wb_stamp(c, &s, true);
	l->snap = s.head;
	l->round = LOG_ROUND_JOURNAL;
	log_journal_write(c, j);
}

/* What waits for the next round goes with this one. */
static void next_takes(struct log_client *l)
{
	l->held = l->held_next;
	l->held_next = NULL;
	l->held_tail = &l->held_next;
	l->order_waiters = l->order_waiters_next;
	l->order_waiters_next = NULL;
	l->order_tail = &l->order_waiters_next;
}

static void round_begin(struct core *c)
{
	struct log_client *l = c->log;
	struct dlist *n, *save;

	next_takes(l);
	l->round = LOG_ROUND_SNAPSHOT;
	l->round_wanted = false;
	l->round_timed_out = false;
	l->round_ms = core_now_ms();
	l->round_left = 0;
	dlist_for(n, save, &l->files)
		dlist_entry(n, struct log_file, node)->order_seq = 0;
	l->n.rounds++;
	log_tick_want(c);
	snapshot(c);
}

/* No frame of the round goes before its logs are in the blocks: also what
 * failed lately and is not tried now. But what takes names and content away
 * goes: that may be what makes room for it. */
static void bare_begin(struct core *c)
{
	struct log_client *l = c->log;
	struct dlist *n, *save;
	bool failed = false;

	l->round_bare = true;
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);
		uint64_t end = u64_min(lf->snap_seq, log_destage_end(lf));

		if (!log_in_order(lf) || lf->order_seq > 0 ||
		    lf->destaged_seq >= end)
			continue;
		lf->order_seq = 1 + end;
		l->round_left++;
		failed = true;
	}
	if (failed)
		waiters_all(l, 0);
}

void log_order_written(struct core *c, int err)
{
	struct log_client *l = c->log;
	struct dlist *n, *save;
	struct wb_io *snap = l->snap;

	l->round_bare = false;
	if (err)
		bare_begin(c);
	dlist_for(n, save, &l->files) {
		struct log_file *lf = dlist_entry(n, struct log_file, node);

		if (lf->snap_seq)
			lf->journaled_seq = err ? 0 : lf->snap_seq;
		lf->snap_seq = 0;
	}
	l->snap = NULL;
	l->round = LOG_ROUND_BLOCKS;
	if (snap)
		wb_send_chain(c, snap);
	if (!err)
		held_go(c, false);
	if (!err && !any_behind(c)) {
		next_takes(l);
		held_go(c, false);
	}
	if (l->round_left == 0 || l->round_timed_out)
		round_end(c, l->round_timed_out);
}

/* One of the round's logs has come to its end. A soft mount waits no longer
 * for the others either. */
static void round_step(struct core *c, bool timed_out)
{
	struct log_client *l = c->log;

	l->round_left--;
	l->round_timed_out |= timed_out;
	if (l->round != LOG_ROUND_BLOCKS)
		return; /* with the journal's end */
	if (l->round_left == 0 || l->round_timed_out)
		round_end(c, l->round_timed_out);
}

void log_order_step(struct log_file *lf, int err)
{
	struct log_client *l = lf->c->log;

	if (l->round == LOG_ROUND_NONE || lf->order_seq == 0)
		return;
	/* A flush of before: the tick begins the one that is wanted. */
	if (!err && lf->state == LOG_ACTIVE &&
	    lf->destaged_seq + 1 < lf->order_seq)
		return;
	/* It is tried again, and the round with it. */
	if (err && err != -ETIMEDOUT && l->round_bare && log_in_order(lf)) {
		waiters_all(l, 0);
		return;
	}
	/* A log that has ended is in the blocks, or lost with its session; for
	 * one that is lost nobody can wait. A soft mount tells that it waits no
	 * longer. */
	lf->order_seq = 0;
	round_step(lf->c, err == -ETIMEDOUT);
}

/* Somebody waits for content that is not on its way: it came back. */
static bool is_stuck(const struct log_file *lf)
{
	const struct wb_inode *wb = lf->in->wb;
	struct wbuf_pending p;
	uint64_t gen = 0;

	if (!lf->destaging)
		return true; /* it could not begin */
	if (!wb)
		return false;
	for (const struct dlist *n = wb->ops.next; n != &wb->ops; n = n->next) {
		const struct wb_op *op = (const void *)
			((const char *)n - offsetof(struct wb_op, node));

		if (op->kind == WB_OP_DURABLE)
			gen = u64_max(gen, op->gen);
	}
	wbuf_gen_pending(&wb->buf, gen, &p);
	return p.dirty > 0;
}

/* A soft mount waits so long for a round to get on. */
static bool is_late(const struct core *c)
{
	return c->opt.timeout_ms > 0 &&
	       core_now_ms() - c->log->round_ms >= c->opt.timeout_ms;
}

/* The journal hangs, or a log without one, which nothing may overtake: who
 * waits for this round is told, and who waits for the next one, if it goes on
 * hanging. */
static void round_late(struct core *c)
{
	struct log_client *l = c->log;

	/* Those do not become this round's: they follow what it has not. */
	if (!l->held && !l->order_waiters)
		next_takes(l);
	held_go(c, true);
	l->round_ms = core_now_ms();
}

void log_order_tick(struct core *c)
{
	struct log_client *l = c->log;
	struct dlist *n, *save;
	bool stuck = false;

	if (l->round == LOG_ROUND_BLOCKS) {
		dlist_for(n, save, &l->files) {
			struct log_file *lf =
				dlist_entry(n, struct log_file, node);

			if (lf->order_seq == 0 || lf->state != LOG_ACTIVE)
				continue;
			if (!is_still(lf->in))
				return;
			stuck |= is_stuck(lf);
		}
		if (stuck)
			l->round = LOG_ROUND_SNAPSHOT;
	}
	if (l->round == LOG_ROUND_JOURNAL)
		log_journal_tick(c);
	if ((l->round == LOG_ROUND_JOURNAL || l->round_bare) && is_late(c))
		round_late(c);
	else if (l->round == LOG_ROUND_SNAPSHOT && is_late(c))
		round_end(c, true);
	if (l->round == LOG_ROUND_SNAPSHOT)
		snapshot(c);
}

bool log_order_hold(struct core *c, struct wb_io *io)
{
	struct log_client *l = c->log;

	if (!l || io->in == l->jour.in || !log_order_due(c))
		return false;
	io->chain = NULL;
	*l->held_tail = io;
	l->held_tail = &io->chain;
	return true;
}

void log_order_cancel(struct core *c)
{
	waiters_all(c->log, -EIO);
}

static void order_begin(struct core_deferred *d)
{
	struct log_client *l = container_of(d, struct log_client, order_def);

	core_lock(l->c);
	l->order_deferred = false;
	if (l->round == LOG_ROUND_SNAPSHOT)
		snapshot(l->c);
	else if ((l->held_next || l->order_waiters_next || l->round_wanted) &&
		 l->round == LOG_ROUND_NONE)
		round_begin(l->c);
	core_unlock(l->c);
}

/* Nothing of a round runs inside its caller. */
static void order_soon(struct core *c)
{
	struct log_client *l = c->log;

	if (l->order_deferred)
		return;
	l->order_deferred = true;
	l->order_def.fn = order_begin;
	core_defer(c, &l->order_def);
}

void log_order_again(struct core *c)
{
	if (c->log && c->log->round == LOG_ROUND_SNAPSHOT)
		order_soon(c);
}

void log_order_go(struct core *c)
{
	if (c->log && c->log->held_next)
		order_soon(c);
}

bool log_order_due(const struct core *c)
{
	return c->log->held || c->log->held_next || any_behind(c);
}

static bool has_frame_of(const struct wb_io *io, const struct core_inode *in)
{
	while (io && io->in != in)
		io = io->chain;
	return io;
}

bool log_order_holds(const struct core *c, const struct core_inode *in)
{
	return has_frame_of(c->log->held, in) ||
	       has_frame_of(c->log->held_next, in);
}

/* Returns the end of what is left of the list. */
static struct wb_io **send_back(struct core *c, struct wb_io **at,
				const struct core_inode *in)
{
	while (*at) {
		struct wb_io *io = *at;

		if (io->in != in) {
			at = &io->chain;
			continue;
		}
		*at = io->chain;
		wb_send_back(c, io);
	}
	return at;
}

void log_order_send_back(struct core *c, const struct core_inode *in)
{
	struct log_client *l = c->log;

	(void)send_back(c, &l->held, in);
	l->held_tail = send_back(c, &l->held_next, in);
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

void log_order_want(struct core *c)
{
	c->log->round_wanted = true;
	order_soon(c);
}

bool log_order_keeps(const struct core *c, const struct core_inode *in)
{
	return in->log && !c->log->snapping &&
	       (log_in_order(in->log) || in->log->state == LOG_OPENING);
}

void log_order_asked(struct core *c, const struct core_inode *in)
{
	if (log_order_keeps(c, in) && c->log->round != LOG_ROUND_SNAPSHOT)
		log_order_want(c);
}
