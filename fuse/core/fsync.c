/* fsync of a file, and sync of everything: the data half waits for generations
 * of the write-back buffers (wbuf.h), the metadata half for the stream. */
#include "fuse/core/blk_priv.h"
#include "fuse/core/early.h"
#include "fuse/core/log_priv.h"

/* ---- before the fsync ----
 *
 * A log is written the same way over and over: so many small writes, then an
 * fsync. Where an inode has done so a few times in a row, the last of these
 * writes is sent at once and flagged SYNC: the disk works while the kernel
 * takes the write's answer to the program and its fsync to us, which then waits
 * for what is under way. A guess that was wrong costs one flush, and the
 * habit has to be learned again.
 */

#define USUAL_MIN 3u /* rounds */
#define USUAL_WRITES_MAX 4u
#define USUAL_BYTES_MAX (64u << 10) /* of its last write */

static void habit_fsync(struct wb_inode *wb)
{
	if (wb->writes == 0)
		return;
	if (wb->writes == wb->writes_usual)
		wb->usual_count++;
	else
		wb->usual_count = 0;
	wb->writes_usual = wb->writes;
	wb->writes = 0;
}

void sync_ahead(struct core *c, struct core_inode *in, uint32_t len)
{
	struct wb_inode *wb = in->wb;
	struct wb_send s;

	wb->writes++;
	if (wb->usual_count < USUAL_MIN || wb->writes < wb->writes_usual)
		return;
	if (wb->writes > wb->writes_usual) {
		wb->usual_count = 0;
		return;
	}
	if (wb->writes > USUAL_WRITES_MAX || len > USUAL_BYTES_MAX)
		return;
	c->blk->n.syncs_ahead++;
	wb_send_init(c, &s);
	wb_collect_all(c, in, &s);
	wb_submit(c, &s, true);
}

/* ---- fsync ---- */

struct fsync_op {
	struct core *c;
	struct core_inode *in; /* pinned; NULL: metadata only */
	struct wb_op op;
	struct core_waiter meta, cut;
	struct log_wait log;
	bool blocks; /* a log is no excuse */
	struct core_deferred done;
	int pending, err;
	core_cb cb;
	void *arg;
};

static void fsync_done(struct core_deferred *d)
{
	struct fsync_op *f = container_of(d, struct fsync_op, done);

	f->cb(f->arg, f->err);
	free(f);
}

/* One of the things waited for has come. Lock held. */
static void fsync_part(struct fsync_op *f, int err)
{
	if (err && !f->err)
		f->err = err;
	if (--f->pending > 0)
		return;
	if (!f->err)
		f->err = early_error_of(f->in);
	/* The lease may have been refused, or we fenced, meanwhile. */
	if (!f->err && (f->c->fenced || (f->in && f->in->bad)))
		f->err = -EIO;
	if (f->in)
		inode_unpin(f->c, f->in);
	f->done.fn = fsync_done;
	core_defer(f->c, &f->done);
}

static void fsync_data(struct wb_op *op, int err)
{
	fsync_part(container_of(op, struct fsync_op, op), err);
}

static void fsync_meta(struct core_waiter *w, int err)
{
	fsync_part(container_of(w, struct fsync_op, meta), err);
}

/* A truncate before the fsync has come to its end. Its place in the stream may
 * be later than what was looked at when the fsync began. */
static void fsync_cut(struct core_waiter *w, int err)
{
	struct fsync_op *f = container_of(w, struct fsync_op, cut);

	fsync_part(f, err);
}

static void fsync_log(struct log_wait *w, int err)
{
	fsync_part(container_of(w, struct fsync_op, log), err);
}

/* Lock held. */
static void fsync_start(struct fsync_op *f, bool datasync)
{
	struct core *c = f->c;
	struct core_inode *in = f->in;
	uint64_t seq = meta_last_seq(c);

	f->pending++;
	if (in && in->wb)
		habit_fsync(in->wb);
	if (in && !f->blocks && log_covers(in)) {
		if (!log_committed_all(in)) {
			f->pending++;
			f->log.fn = fsync_log;
			log_commit_wait(in, &f->log);
		}
	} else if (in && !wb_inode_clean(in)) {
		f->pending++;
		f->op.kind = WB_OP_DURABLE;
		f->op.fn = fsync_data;
		f->op.gen = wbuf_gen_close(&in->wb->buf);
		wb_op_add(in, &f->op);
		in->wb->reflush = true;
		/* What it sends now is all there is for the flusher. */
		dlist_del(&in->wb->dirty_node);
		inode_pin(in);
		wb_step(c, in, 0, 0);
		inode_unpin(c, in);
	}
	if (in && in->cut_busy) {
		f->pending++;
		f->cut.fn = fsync_cut;
		cut_wait(in, &f->cut);
	}
	f->meta.fn = fsync_meta;
	if (in)
		seq = datasync ? in->meta_need_seq : in->meta_pos_seq;
	if (!meta_durable(c, seq, &f->meta))
		f->pending++;
	fsync_part(f, 0);
}

void core_fsync(struct core *c, uint64_t ino, bool datasync, core_cb cb,
		void *arg)
{
	struct fsync_op *f = calloc(1, sizeof(*f));
	int err = 0;

	if (!f) {
		cb(arg, -ENOMEM);
		return;
	}
	*f = (struct fsync_op){ .c = c, .cb = cb, .arg = arg };
	core_lock(c);
	f->in = inode_find(c, ino);
	if (c->fenced || (f->in && f->in->bad))
		err = early_error_of(f->in);
	if (!err && (c->fenced || (f->in && f->in->bad)))
		err = -EIO;
	if (!err && f->in)
		inode_pin(f->in);
	if (!err)
		fsync_start(f, datasync);
	core_unlock(c);
	if (!err)
		return;
	free(f);
	cb(arg, err);
}

int fsync_blocks(struct core *c, struct core_inode *in, core_cb cb, void *arg)
{
	struct fsync_op *f = malloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	*f = (struct fsync_op){
		.c = c, .in = in, .blocks = true, .cb = cb, .arg = arg,
	};
	inode_pin(in);
	fsync_start(f, true);
	return 0;
}

/* ---- sync ---- */

struct sync_all {
	struct core *c;
	int pending, err;
	core_cb cb;
	void *arg;
	struct core_deferred done;
};

struct sync_part {
	struct sync_all *s;
	struct core_inode *in; /* pinned */
	struct wb_op op;
	struct core_waiter meta;
};

static void sync_all_done(struct core_deferred *d)
{
	struct sync_all *s = container_of(d, struct sync_all, done);

	s->cb(s->arg, s->err);
	free(s);
}

static void sync_all_part(struct sync_all *s, int err)
{
	if (err && !s->err)
		s->err = err;
	if (--s->pending > 0)
		return;
	if (!s->err)
		s->err = early_error(s->c);
	s->done.fn = sync_all_done;
	core_defer(s->c, &s->done);
}

static void sync_part_data(struct wb_op *op, int err)
{
	struct sync_part *p = container_of(op, struct sync_part, op);

	struct core *c = p->s->c;

	if (!err && (c->fenced || p->in->bad))
		err = -EIO;
	sync_all_part(p->s, err);
	inode_unpin(c, p->in);
	free(p);
}

static void sync_part_meta(struct core_waiter *w, int err)
{
	struct sync_part *p = container_of(w, struct sync_part, meta);

	sync_all_part(p->s, err);
	free(p);
}

static void sync_part_cut(struct core_waiter *w, int err)
{
	struct sync_part *p = container_of(w, struct sync_part, meta);

	if (!err && p->in->bad)
		err = -EIO;
	sync_all_part(p->s, err);
	inode_unpin(p->s->c, p->in);
	free(p);
}

static void sync_all_cut(void *arg, struct core_inode *in)
{
	struct sync_all *s = arg;
	struct sync_part *p = calloc(1, sizeof(*p));

	if (!p) {
		s->err = -ENOMEM;
		return;
	}
	p->s = s;
	p->in = in;
	inode_pin(in);
	p->meta.fn = sync_part_cut;
	s->pending++;
	cut_wait(in, &p->meta);
}

/* Lock held. Frames of all inodes go out in one chain; a daemon's SYNC of all
 * follows when they are acknowledged. */
static void sync_all_data(struct core *c, struct sync_all *s)
{
	struct dlist *l, *save;
	struct wb_send send;

	wb_send_init(c, &send);
	dlist_for(l, save, &c->blk->unclean) {
		struct wb_inode *wb = dlist_entry(l, struct wb_inode,
						  unclean_node);
		struct sync_part *p = calloc(1, sizeof(*p));

		if (!p) {
			s->err = -ENOMEM;
			break;
		}
		p->s = s;
		p->in = wb->in;
		inode_pin(p->in);
		p->op.kind = WB_OP_DURABLE;
		p->op.global = true;
		p->op.fn = sync_part_data;
		p->op.gen = wbuf_gen_close(&wb->buf);
		s->pending++;
		wb_op_add(p->in, &p->op);
		dlist_del(&wb->dirty_node);
		wb->reflush = false;
		wb_collect(c, wb->in, 0, UINT64_MAX, &send); /* may end @p */
		if (wb->in->cut_busy)
			wb->reflush = true; /* when that is over */
	}
	wb_submit(c, &send, false);
}

/* Those with nothing to send want their SYNC now. Lock held. */
static void sync_all_step(struct core *c)
{
	struct dlist *l, *save;

	dlist_for(l, save, &c->blk->unclean) {
		struct core_inode *in = dlist_entry(l, struct wb_inode,
						    unclean_node)->in;

		inode_pin(in);
		wb_step(c, in, 0, 0);
		inode_unpin(c, in);
	}
}

void core_sync_all(struct core *c, core_cb cb, void *arg)
{
	struct sync_all *s = calloc(1, sizeof(*s));
	struct sync_part *m = calloc(1, sizeof(*m));

	if (!s || !m) {
		free(s);
		free(m);
		cb(arg, -ENOMEM);
		return;
	}
	*s = (struct sync_all){ .c = c, .cb = cb, .arg = arg, .pending = 2 };
	m->s = s;
	m->meta.fn = sync_part_meta;
	core_lock(c);
	if (c->fenced)
		s->err = -EIO;
	else {
		cut_each(c, sync_all_cut, s);
		sync_all_data(c, s);
	}
	if (meta_durable(c, meta_last_seq(c), &m->meta)) {
		s->pending--;
		free(m);
	}
	sync_all_step(c);
	sync_all_part(s, 0);
	core_unlock(c);
}
