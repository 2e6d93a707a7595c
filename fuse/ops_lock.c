/* Handlers of locks: fcntl, OFD and flock, decided by the core: by a table of
 * its own, or by metad, which answers later. */
#include "fuse/rim.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <time.h>

/* A lock request that is not answered at once. Two references: the starter's,
 * while it sets up, and the outcome's. Whoever decides the outcome replies: the
 * core, or the one caller for whom core_setlk_cancel() returned true. */
struct locking {
	struct core_lock_wait w;
	fuse_req_t req;
	struct rim *rim;
	struct rim_file *f; /* open until the reply */
	pthread_mutex_t m; /* protects what follows; a leaf */
	unsigned refs;
	bool started; /* waits in the core: can be cancelled */
	bool interrupted;
	bool wait; /* asked for by the program */
	bool grace; /* would rather be refused than wait for long */
	struct rpc_timer timer; /* then; it has a reference */
	/* Over io_uring: protected by watch_lock. */
	pid_t pid; /* the waiting thread */
	bool watched;
	struct locking *watch_next;
};

/* ---- io_uring: who waits is watched ----
 *
 * libfuse hands no FUSE_INTERRUPT on for requests that came over io_uring, so
 * a thread looks every now and then whether a waiter has a signal to take (or
 * is gone), and ends its wait.
 */
#define WATCH_MS 50

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_cond = PTHREAD_COND_INITIALIZER;
static struct locking *watch_list;
static bool watch_running;

static void locking_put(struct locking *l);
static bool locking_cancel(struct locking *l);

/* Takes one signalled waiter off the list, with a reference. */
static struct locking *watch_pick(void)
{
	struct locking *l;
	pthread_mutex_lock(&watch_lock);
	for (l = watch_list; l; l = l->watch_next) {
		if (!l->watched || !rim_signalled(l->pid, false))
			continue;
		l->watched = false;
		pthread_mutex_lock(&l->m);
		l->refs++;
		pthread_mutex_unlock(&l->m);
		break;
	}
	pthread_mutex_unlock(&watch_lock);
	return l;
}

static void *watch_run(void *arg)
{
	const struct timespec nap = { 0, WATCH_MS * 1000000 };
	struct locking *l;
	(void)arg;
	for (;;) {
		nanosleep(&nap, NULL);
		while ((l = watch_pick())) {
			locking_cancel(l);
			locking_put(l);
		}
		/* It must not end: a reply over io_uring also fetches the next
		 * request, in the name of the thread that sent it, and the
		 * kernel cancels those of a thread that ends. */
		pthread_mutex_lock(&watch_lock);
		while (!watch_list)
			pthread_cond_wait(&watch_cond, &watch_lock);
		pthread_mutex_unlock(&watch_lock);
	}
	return NULL;
}

static void lock_watch_add(struct locking *l)
{
	pthread_t t;
	pthread_mutex_lock(&watch_lock);
	l->pid = fuse_req_ctx(l->req)->pid;
	l->watched = true;
	l->watch_next = watch_list;
	watch_list = l;
	pthread_cond_signal(&watch_cond);
	if (!watch_running && pthread_create(&t, NULL, watch_run, NULL) == 0) {
		pthread_detach(t);
		watch_running = true;
	}
	pthread_mutex_unlock(&watch_lock);
}

static void lock_watch_del(struct locking *l)
{
	pthread_mutex_lock(&watch_lock);
	for (struct locking **p = &watch_list; *p; p = &(*p)->watch_next) {
		if (*p == l) {
			*p = l->watch_next;
			break;
		}
	}
	pthread_mutex_unlock(&watch_lock);
}

/* ---- waiting ---- */

static void locking_put(struct locking *l)
{
	pthread_mutex_lock(&l->m);
	bool last = --l->refs == 0;
	pthread_mutex_unlock(&l->m);
	if (!last)
		return;
	pthread_mutex_destroy(&l->m);
	free(l);
}

static bool grace_begin(struct locking *l);
static bool owner_note(struct rim *r, struct rim_file *f, uint64_t ino,
		       enum lock_kind kind, uint64_t owner);

/* It took a while: another thread's close may have ended the owner meanwhile,
 * and this lock would be dropped by none. */
static int lock_note(struct locking *l)
{
	const struct lock_range *r = &l->w.w.r;
	if (r->type == LOCK_TYPE_UNLOCK || !core_locks_shared(l->rim->core) ||
	    owner_note(l->rim, l->f, r->ino, r->kind, r->owner))
		return 0;
	core_lock_drop_owner(l->rim->core, r->ino, r->kind, r->owner, NULL,
			     NULL);
	return -ENOMEM;
}

static void lock_done(void *arg, int err)
{
	struct locking *l = arg;
	if (err == -EAGAIN && grace_begin(l))
		return;
	if (!err)
		err = lock_note(l);
	/* Waits for an interrupt being handled; none comes after it. */
	if (l->rim->uring)
		lock_watch_del(l);
	else
		fuse_req_interrupt_func(l->req, NULL, NULL);
	if (l->grace && (err == -EDEADLK || err == -EINTR))
		err = -EAGAIN;
	fuse_reply_err(l->req, -err);
	locking_put(l);
}

/* Ends the wait of a started request; before that it leaves word. */
static bool locking_cancel(struct locking *l)
{
	pthread_mutex_lock(&l->m);
	bool started = l->started;
	l->interrupted = true;
	pthread_mutex_unlock(&l->m);
	if (!started || !core_setlk_cancel(l->rim->core, &l->w))
		return false;
	lock_done(l, -EINTR);
	return true;
}

/* FUSE_INTERRUPT: a signal came for the waiting process. libfuse holds the
 * request's mutex and, unless it calls from fuse_req_interrupt_func() itself
 * (then we have not started), a reference. */
static void lock_interrupted(fuse_req_t req, void *data)
{
	struct locking *l = data;
	pthread_mutex_lock(&l->m);
	bool started = l->started;
	l->interrupted = true;
	pthread_mutex_unlock(&l->m);
	if (started && core_setlk_cancel(l->rim->core, &l->w)) {
		fuse_reply_err(req, EINTR);
		locking_put(l);
	}
}

/* ---- owners ----
 *
 * OFD locks and flock end with the handle, by RELEASE, which the kernel sends
 * without waiting: a handle opened later may take its locks before, and under
 * the same owner, which is the address of the kernel's struct file, used again
 * at once. So each owner is the affair of the handle that used it last, and
 * only that one's end drops its locks.
 */
#define OWNER_BUCKETS 4096u

struct rim_owner {
	uint64_t ino, owner;
	enum lock_kind kind;
	struct rim_file *f;
	struct rim_owner *of_file, *next; /* of the bucket */
};

static pthread_mutex_t owners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rim_owner *owners[OWNER_BUCKETS];

/* owners_lock is held by the callers of these. */
static struct rim_owner **owner_at(uint64_t ino, enum lock_kind kind,
				   uint64_t owner)
{
	struct rim_owner **p = &owners[(ino ^ owner) % OWNER_BUCKETS];
	while (*p && ((*p)->ino != ino || (*p)->kind != kind ||
		      (*p)->owner != owner))
		p = &(*p)->next;
	return p;
}

static void owner_join(struct rim_owner *o, struct rim_file *f)
{
	o->f = f;
	o->of_file = f->owners;
	f->owners = o;
}

static void owner_leave(struct rim_owner *o)
{
	struct rim_owner **p = &o->f->owners;
	while (*p && *p != o)
		p = &(*p)->of_file;
	if (*p)
		*p = o->of_file;
}

static void owner_end(struct rim_owner *o)
{
	*owner_at(o->ino, o->kind, o->owner) = o->next;
	owner_leave(o);
	free(o);
}

/* @owner is about to lock through this handle. */
static bool owner_note(struct rim *r, struct rim_file *f, uint64_t ino,
		       enum lock_kind kind, uint64_t owner)
{
	pthread_mutex_lock(&owners_lock);
	struct rim_owner **p = owner_at(ino, kind, owner), *o = *p;
	if (!o) {
		o = malloc(sizeof(*o));
		if (o) {
			*o = (struct rim_owner){ .ino = ino, .owner = owner,
						 .kind = kind };
			*p = o;
			owner_join(o, f);
		}
	} else if (o->f != f) {
		/* Of fcntl locks the owner may be a process, which has both
		 * handles open and keeps the locks of the other one. */
		if (kind == LOCK_KIND_FLOCK)
			core_lock_drop_owner(r->core, ino, kind, owner, NULL,
					     NULL);
		owner_leave(o);
		owner_join(o, f);
	}
	pthread_mutex_unlock(&owners_lock);
	rim_file_sent(f);
	return o != NULL;
}

/* The last descriptor of this handle is gone. Every process that locked
 * through it has closed it (and lost its locks by FLUSH); what is left are OFD
 * locks and flock, whose owner is the handle itself. */
void rim_file_locks_closed(struct rim *r, struct rim_file *f)
{
	struct rim_owner *o;
	pthread_mutex_lock(&owners_lock);
	while ((o = f->owners)) {
		core_lock_drop_owner(r->core, o->ino, o->kind, o->owner, NULL,
				     NULL);
		owner_end(o);
	}
	pthread_mutex_unlock(&owners_lock);
}

/* ---- handles that are being closed ----
 *
 * The last close of a handle drops its OFD and flock locks, but the kernel
 * sends RELEASE without waiting for it: who asks for the lock next may come
 * first. FLUSH it does wait for. So a conflict on an inode where a handle with
 * such locks was flushed a moment ago waits for a moment, too.
 */
#define GRACE_MS 50
#define CLOSING_SLOTS 256u

/* When a handle was last flushed, of inodes that share the slot: one more only
 * makes a conflict wait. */
static _Atomic int64_t closing_ms[CLOSING_SLOTS];

int rim_file_flushed(struct rim *r, struct rim_file *f, uint64_t ino,
		     uint64_t owner, core_cb cb, void *arg)
{
	pthread_mutex_lock(&owners_lock);
	struct rim_owner *o = *owner_at(ino, LOCK_KIND_POSIX, owner);
	if (o)
		owner_end(o);
	bool locks = f->owners != NULL;
	pthread_mutex_unlock(&owners_lock);
	if (locks)
		atomic_store(&closing_ms[ino % CLOSING_SLOTS], rim_now_ms());
	/* Our own table is asked in any case: it may have got a lock between
	 * the owner's note and another thread's close, and costs nothing. */
	return o || !core_locks_shared(r->core) ?
		       core_lock_drop_owner(r->core, ino, LOCK_KIND_POSIX,
					    owner, cb, arg) :
		       0;
}

static bool closing(uint64_t ino)
{
	int64_t ms = atomic_load(&closing_ms[ino % CLOSING_SLOTS]);
	return ms != 0 && rim_now_ms() - ms <= GRACE_MS;
}

static void grace_over(struct rpc_timer *t)
{
	struct locking *l = container_of(t, struct locking, timer);
	if (core_setlk_cancel(l->rim->core, &l->w))
		lock_done(l, -EAGAIN);
	locking_put(l);
}

/* Metad found the lock in use: is it to be waited for, for a moment? Then the
 * outcome comes once more. */
static bool grace_begin(struct locking *l)
{
	if (l->wait || l->grace || !closing(l->w.w.r.ino))
		return false;
	pthread_mutex_lock(&l->m);
	l->grace = true;
	l->refs++;
	pthread_mutex_unlock(&l->m);
	if (core_setlk(l->rim->core, &l->w, true) == -EINPROGRESS) {
		core_timer_start(l->rim->core, &l->timer, GRACE_MS);
		return true;
	}
	locking_put(l);
	return false;
}

/* @grace: refused, it waits for a moment. */
static void take_later(fuse_req_t req, struct rim_file *f,
		       const struct lock_range *range, bool wait, bool grace)
{
	struct locking *l = calloc(1, sizeof(*l));
	if (!l) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	pthread_mutex_init(&l->m, NULL);
	l->refs = 2;
	l->f = f;
	l->wait = wait;
	l->grace = grace;
	l->timer.fn = grace_over;
	l->req = req;
	l->rim = rim_of(req);
	l->w.w.r = *range;
	l->w.cb = lock_done;
	l->w.arg = l;
	if (l->rim->uring)
		lock_watch_add(l);
	else
		fuse_req_interrupt_func(req, lock_interrupted, l);
	int err = core_setlk(l->rim->core, &l->w, wait || grace);
	if (err != -EINPROGRESS) {
		lock_done(l, err);
		locking_put(l);
		return;
	}
	pthread_mutex_lock(&l->m);
	l->started = true;
	l->refs += grace;
	bool interrupted = l->interrupted;
	pthread_mutex_unlock(&l->m);
	if (grace)
		core_timer_start(l->rim->core, &l->timer, GRACE_MS);
	if (interrupted && core_setlk_cancel(l->rim->core, &l->w))
		lock_done(l, -EINTR);
	locking_put(l);
}

static void take(fuse_req_t req, struct rim_file *f,
		 const struct lock_range *range, bool wait)
{
	struct core *c = rim_of(req)->core;
	if (range->type == LOCK_TYPE_UNLOCK)
		wait = false;
	if (wait || core_locks_shared(c)) {
		take_later(req, f, range, wait, false);
		return;
	}
	struct core_lock_wait w = { .w.r = *range };
	int err = core_setlk(c, &w, false);
	if (err == -EAGAIN && closing(range->ino))
		take_later(req, f, range, false, true);
	else
		fuse_reply_err(req, -err);
}

static enum lock_type type_of(short l_type)
{
	return l_type == F_RDLCK ? LOCK_TYPE_READ :
	       l_type == F_WRLCK ? LOCK_TYPE_WRITE :
				   LOCK_TYPE_UNLOCK;
}

static void range_of(const struct flock *fl, fuse_ino_t ino, uint64_t owner,
		     struct lock_range *r)
{
	memset(r, 0, sizeof(*r));
	r->ino = ino;
	r->kind = LOCK_KIND_POSIX;
	r->type = type_of(fl->l_type);
	r->start = (uint64_t)fl->l_start;
	/* libfuse gives length 0 for "to the last byte there is" */
	r->end = fl->l_len == 0 ? (uint64_t)INT64_MAX :
				  r->start + (uint64_t)fl->l_len - 1;
	r->owner = owner;
	r->pid = (uint32_t)fl->l_pid;
}

static void ops_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		      struct flock *lock, int sleep)
{
	struct lock_range r;
	range_of(lock, ino, fi->lock_owner, &r);
	if (r.type != LOCK_TYPE_UNLOCK &&
	    !owner_note(rim_of(req), file_of(fi), ino, r.kind, r.owner)) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	take(req, file_of(fi), &r, sleep != 0);
}

struct getting {
	fuse_req_t req;
	struct lock_range r;
};

static void get_done(void *arg, int err)
{
	struct getting *g = arg;
	const struct lock_range *r = &g->r;
	struct flock fl = { .l_type = F_UNLCK };
	if (r->type != LOCK_TYPE_UNLOCK) {
		fl.l_type = r->type == LOCK_TYPE_READ ? F_RDLCK : F_WRLCK;
		fl.l_whence = SEEK_SET;
		fl.l_start = (off_t)r->start;
		fl.l_len = r->end >= (uint64_t)INT64_MAX ?
				   0 :
				   (off_t)(r->end - r->start + 1);
		fl.l_pid = (pid_t)r->pid;
	}
	if (err)
		fuse_reply_err(g->req, -err);
	else
		fuse_reply_lock(g->req, &fl);
	free(g);
}

static void ops_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		      struct flock *lock)
{
	struct getting *g = malloc(sizeof(*g));
	if (!g) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	g->req = req;
	range_of(lock, ino, fi->lock_owner, &g->r);
	int err = core_getlk(rim_of(req)->core, &g->r, get_done, g);
	if (err != -EINPROGRESS)
		get_done(g, err);
}

static void ops_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
		      int op)
{
	struct lock_range r = {
		.ino = ino,
		.kind = LOCK_KIND_FLOCK,
		.start = 0,
		.end = UINT64_MAX,
		.owner = fi->lock_owner,
	};
	if (!owner_note(rim_of(req), file_of(fi), ino, r.kind, r.owner)) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	switch (op & ~LOCK_NB) {
	case LOCK_SH:
		r.type = LOCK_TYPE_READ;
		break;
	case LOCK_EX:
		r.type = LOCK_TYPE_WRITE;
		break;
	default:
		r.type = LOCK_TYPE_UNLOCK;
		break;
	}
	take(req, file_of(fi), &r, !(op & LOCK_NB));
}

void ops_lock_fill(struct fuse_lowlevel_ops *ops)
{
	ops->setlk = ops_setlk;
	ops->getlk = ops_getlk;
	ops->flock = ops_flock;
}
