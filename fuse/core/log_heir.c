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
		in->lease_seq = mc->seq;
		inode_mutated(in, mc->seq);
		c->count.leases++;
	}
	core_unlock(c);
	waiting_end(&l->w, err);
}

/* -EBUSY: the session that died has it, as long as it is being ended. */
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

int recovery_hold(struct recovery *r)
{
	struct core *c = r->c;
	struct core_inode *in;
	bool has = false;
	int err = -EBUSY;

	if (!c->opt.shared)
		return 0;
	core_lock(c);
	in = inode_get(c, r->e.ino);
	if (in && !in->recovering) {
		inode_pin(in);
		in->recovering = true;
	}
	if (in)
		has = in->leased; /* of a run that came to nothing */
	core_unlock(c);
	if (!in)
		return -ENOMEM;
	r->in = in;
	while (!has && err == -EBUSY) {
		if (recovery_stops(c))
			return -ESTALE;
		err = lease_try(c, r->e.ino);
		if (err == -EBUSY)
			recovery_nap(LEASE_RETRY_MS);
	}
	return has ? 0 : err;
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
	struct waiting w;
	struct wire_out o;
	int err;

	mc = meta_call_new(c, WIRE_OP_META_LOG_HEIR, meta_log_heir_size(&m),
			   &o);
	if (!mc)
		return -ENOMEM;
	meta_log_heir_encode(&o, &m);
	waiting_init(&w);
	err = recovery_ask(c, mc, &o, &w);
	waiting_fini(&w);
	return err;
}

static void *heir_main(void *arg)
{
	struct core *c = arg;
	int err;

	core_lock(c);
	c->recoverer = pthread_self();
	core_unlock(c);
	err = heir_say(c, true);
	while (!err) {
		err = log_recover_left(c, core_now_ms() + LOG_RECOVER_MS);
		if (!err || recovery_stops(c))
			break;
		diag_warn("log", "event=recovery_failed error=\"%s\" "
			  "next=\"it is tried again\"", strerror(-err));
		recovery_nap(HEIR_RETRY_MS);
		err = 0;
	}
	/* Who ends its session is it no longer. */
	if (!err)
		(void)heir_say(c, false);
	core_lock(c);
	c->log->heir = HEIR_OVER;
	core_unlock(c);
	return NULL;
}

void log_heir_begin(struct core *c)
{
	struct log_client *l = c->log;

	if (l->stopping || l->heir == HEIR_RUNS)
		return;
	if (l->heir == HEIR_OVER)
		(void)pthread_join(l->heir_thread, NULL);
	l->heir = HEIR_NONE;
	if (pthread_create(&l->heir_thread, NULL, heir_main, c) == 0)
		l->heir = HEIR_RUNS; /* else it is told again */
}

void log_heir_end(struct core *c)
{
	struct log_client *l = c->log;
	bool any;

	core_lock(c);
	l->stopping = true;
	any = l->heir != HEIR_NONE;
	core_unlock(c);
	if (any)
		(void)pthread_join(l->heir_thread, NULL);
	core_lock(c);
	l->heir = HEIR_NONE;
	core_unlock(c);
}
