/* fcntl, OFD and flock locks: a mount alone has every inode, so its own table
 * decides; beside others metad's does (lock_shared.h). The table's mutex is a
 * leaf; callbacks run after it.
 */
#include "fuse/core/lock_shared.h"

/* Granted while the table was changed by this thread; protected by
 * locks_mutex, emptied before it is released. */
static __thread struct core_lock_wait *granted_head, **granted_tail;

static void lock_granted(struct lock_wait *w, int status)
{
	struct core_lock_wait *cw = container_of(w, struct core_lock_wait, w);
	cw->priv_status = status;
	cw->priv_next = NULL;
	*granted_tail = cw;
	granted_tail = &cw->priv_next;
}

static void table_lock(struct core *c)
{
	pthread_mutex_lock(&c->locks_mutex);
	granted_head = NULL;
	granted_tail = &granted_head;
}

static void table_unlock(struct core *c)
{
	struct core_lock_wait *w = granted_head;
	pthread_mutex_unlock(&c->locks_mutex);
	while (w) {
		/* its memory is the user's again */
		struct core_lock_wait *next = w->priv_next;
		w->cb(w->arg, w->priv_status);
		w = next;
	}
}

bool core_locks_shared(const struct core *c)
{
	return c->opt.shared;
}

int core_setlk(struct core *c, struct core_lock_wait *w, bool wait)
{
	int err;
	if (c->opt.shared)
		return lock_shared_set(c, w, wait);
	table_lock(c);
	w->w.granted = lock_granted;
	err = wait ? lock_set_wait(c->locks, &w->w) :
		     lock_set(c->locks, &w->w.r);
	table_unlock(c);
	return err;
}

bool core_setlk_cancel(struct core *c, struct core_lock_wait *w)
{
	if (c->opt.shared) {
		lock_shared_cancel(c, w);
		return false;
	}
	table_lock(c);
	bool was_waiting = lock_cancel(c->locks, &w->w);
	table_unlock(c);
	return was_waiting;
}

int core_getlk(struct core *c, struct lock_range *r, core_cb cb, void *arg)
{
	if (c->opt.shared)
		return lock_shared_get(c, r, cb, arg);
	table_lock(c);
	lock_get(c->locks, r);
	table_unlock(c);
	return 0;
}

void core_timer_start(struct core *c, struct rpc_timer *t, uint64_t delay_ms)
{
	rpc_timer_start(c->net, t, delay_ms);
}

int core_lock_drop_owner(struct core *c, uint64_t ino, enum lock_kind kind,
			 uint64_t owner, core_cb cb, void *arg)
{
	if (c->opt.shared)
		return lock_shared_drop(c, ino, kind, owner, cb, arg);
	table_lock(c);
	lock_drop_owner(c->locks, ino, kind, owner);
	table_unlock(c);
	return 0;
}
