/* What a mount that died left in logs is recovered by one that lives beside it
 * (core_options.shared): metad tells one of them, which becomes the heir and
 * does what a mount that is alone does before it serves (log_recover.c), on a
 * thread of its own. Until a file is recovered nobody has it: metad lets others
 * wait, and so does this mount (share.h).
 *
 * Whoever stops in between leaves what is its own by then to the next heir.
 * What only could not go on for a moment is tried again: nothing that was
 * raised may be called lost without having been read. */
#include "fuse/core/log_recover.h"
#include "fuse/core/share.h"

#include "common/diag.h"

#define HEIR_RETRY_MS 1000u
#define LEASE_RETRY_MS 20u

bool recovery_stops(struct core *c)
{
	bool stops;

	core_lock(c);
	stops = c->fenced || c->log->stopping;
	core_unlock(c);
	return stops;
}

/* ---- the files ---- */

struct leasing {
	struct waiting w;
	uint64_t ino;
};

static void leased(struct meta_call *mc, int err, const uint8_t *body,
		   uint32_t len)
{
	struct leasing *l = mc->arg;
	struct core *c = mc->c;
	struct core_inode *in;
	struct meta_attr a;

	if (!err && meta_reply_attr_of(l->ino, body, len, &a))
		err = -EBADMSG;
	core_lock(c);
	in = err ? NULL : inode_find(c, l->ino); /* pinned */
	if (in) {
		inode_merge(c, in, &a, NULL);
		in->leased = true;
		in->lease_pending = false;
		in->lease_seq = mc->seq;
		inode_mutated(in, mc->seq);
		c->count.leases++;
	}
	core_unlock(c);
	waiting_end(&l->w, err);
}

static int lease_try(struct core *c, uint64_t ino)
{
	struct leasing l = { .ino = ino };
	struct meta_call *mc;
	struct wire_out o;
	int err;

	mc = meta_call_new(c, WIRE_OP_META_LEASE, 8, &o);
	if (!mc)
		return -ENOMEM;
	wire_put_u64(&o, ino);
	waiting_init(&l.w);
	mc->done = leased;
	mc->arg = &l;
	waiting_begin(&l.w);
	core_lock(c);
	meta_call_queue(mc, &o);
	core_unlock(c);
	err = waiting_for(&l.w, 0);
	waiting_fini(&l.w);
	return err;
}

/* The session that died has it, as long as it is being ended. */
static int lease(struct recovery *r)
{
	struct core *c = r->c;
	int err = -EBUSY;

	core_lock(c);
	if (r->in->leased && !r->in->lease_pending)
		err = 0; /* of a run that came to nothing */
	core_unlock(c);
	while (err == -EBUSY) {
		if (recovery_stops(c))
			return -ESTALE;
		err = lease_try(c, r->e.ino);
		if (err == -EBUSY)
			recovery_nap(LEASE_RETRY_MS);
	}
	return err;
}

static int hold(struct recovery *r)
{
	struct core *c = r->c;

	core_lock(c);
	r->in = inode_get(c, r->e.ino);
	if (r->in && !r->in->recovering) {
		inode_pin(r->in);
		r->in->recovering = true;
	}
	core_unlock(c);
	return r->in ? 0 : -ENOMEM;
}

int recovery_take(struct recovery *r)
{
	int err;

	if (!r->c->opt.shared)
		return recovery_raise(r);
	/* Before: what was raised is known to be ours (recovery_left()). */
	err = hold(r);
	if (!err)
		err = recovery_raise(r);
	return err ? err : lease(r);
}

void recovery_unhold(struct recovery *r)
{
	struct core_inode *in = r->in;
	struct core *c = r->c;

	if (!in)
		return;
	r->in = NULL;
	core_lock(c);
	/* What is half there is in the log, too. */
	if (in->bad && in->wb && !wb_inode_clean(in))
		wb_inode_discard(c, in);
	if (in->leased)
		ret_queue(c, in, 0); /* others may wait */
	share_recovered(in);
	inode_unpin(c, in);
	core_unlock(c);
}

bool recovery_left(struct core *c, const struct meta_log_entry *e)
{
	const struct core_inode *in;
	bool left;

	core_lock(c);
	in = e->session == c->meta->session ? inode_find(c, e->ino) : NULL;
	left = in && in->recovering;
	core_unlock(c);
	return left;
}

/* ---- the heir ---- */

static int heir_say(struct core *c, bool on)
{
	struct meta_log_heir m = { .on = on };
	struct meta_call *mc;
	struct wire_out o;

	mc = meta_call_new(c, WIRE_OP_META_LOG_HEIR, meta_log_heir_size(&m),
			   &o);
	if (!mc)
		return -ENOMEM;
	meta_log_heir_encode(&o, &m);
	return recovery_tell(c, mc, &o);
}

static int recover(struct core *c)
{
	int err;

	for (;;) {
		err = log_recover_left(c, core_now_ms() + LOG_RECOVER_MS);
		if (!err || recovery_stops(c))
			return err;
		diag_warn("log", "event=recovery_failed error=\"%s\" "
			  "next=\"it is tried again\"", strerror(-err));
		recovery_nap(HEIR_RETRY_MS);
	}
}

static void *heir_main(void *arg)
{
	struct core *c = arg;

	/* Who ends its session is it no longer. */
	if (heir_say(c, true) == 0 && recover(c) == 0)
		(void)heir_say(c, false);
	core_lock(c);
	c->log->heir = HEIR_OVER;
	core_unlock(c); /* has nothing deferred: see log_heir_begin() */
	return NULL;
}

void log_heir_begin(struct core *c)
{
	struct log_client *l = c->log;

	if (l->stopping || l->heir == HEIR_RUNS)
		return;
	/* It does not want the lock any more. */
	if (l->heir == HEIR_OVER)
		(void)pthread_join(c->recoverer, NULL);
	l->heir = HEIR_NONE;
	if (pthread_create(&c->recoverer, NULL, heir_main, c) == 0)
		l->heir = HEIR_RUNS; /* else it is told again */
}

void log_heir_end(struct core *c)
{
	bool any;

	core_lock(c);
	any = c->log->heir != HEIR_NONE;
	core_unlock(c);
	if (any)
		(void)pthread_join(c->recoverer, NULL);
	core_lock(c);
	c->log->heir = HEIR_NONE;
	core_unlock(c);
}
