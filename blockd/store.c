/* The store: life, entry and exit, answers, numbers. */
#include "blockd/store.h"

#include "blockd/mem.h"
#include "blockd/op.h"
#include "common/diag.h"

/* ---- answers ---- */
void store_answer(struct store *s, struct store_req *r, int err)
{
	struct req_priv *p = req_priv(r);

	p->err = err;
	slist_init(&p->link);
	slist_push(&s->done, &p->link);
}

static void run_ready(struct store *s)
{
	while (!slist_empty(&s->ready)) {
		struct op *op = container_of(s->ready.next, struct op, link);

		slist_del(&op->link);
		op->run(op);
	}
}

static void deliver_one(struct store *s)
{
	struct req_priv *p = container_of(s->done.next, struct req_priv, link);
	struct store_req *r = container_of((void *)p, struct store_req, priv);

	slist_del(&p->link);
	r->done(r, p->err);
}

static void deliver(void *arg)
{
	struct store *s = arg;

	s->deliver_posted = false;
	store_enter(s);
	store_leave(s, false);
}

static void settle(struct store *s)
{
	run_ready(s);
	/* Either may ask for the other: a record for room in the journal, a
	 * checkpoint for a gap between records. */
	commit_kick(s);
	ckpt_kick(s);
	commit_kick(s);
}

void store_enter(struct store *s)
{
	s->depth++;
}

static void close_step(struct store *s);

void store_leave(struct store *s, bool api)
{
	if (s->depth > 1) {
		s->depth--;
		return;
	}
	settle(s);
	/* A callback may call us again; what that makes ready is run here. */
	while (!api && !slist_empty(&s->done)) {
		deliver_one(s);
		settle(s);
	}
	if ((!slist_empty(&s->done) || !slist_empty(&s->ready)) &&
	    !s->deliver_posted) {
		s->deliver_posted = true;
		s->dev->vt->post(s->dev, deliver, s);
	}
	worker_tick(s->worker, !store_clean(s) && s->error == 0 &&
		    !s->closing);
	s->depth--;
	if (s->closing)
		close_step(s);
}

void store_fail(struct store *s, int err, const char *what)
{
	if (s->error != 0)
		return;
	s->error = err;
	(void)snprintf(s->error_text, sizeof(s->error_text),
		       "%s failed: %s; the store is read-only until the "
		       "daemon is restarted", what, strerror(-err));
	diag_err("store", "event=stopped reason=\"%s\"", s->error_text);
	commit_fail(s);
	space_wake(s); /* they find out */
}

/* ---- life ---- */
struct store *store_new(struct dev *d, const struct store_options *o)
{
	struct store *s = mem_alloc(sizeof(*s));

	if (s == NULL)
		return NULL;
	s->dev = d;
	s->o = *o;
	if (s->o.object_bytes == 0)
		s->o.object_bytes = OBJECT_BYTES_DEFAULT;
	if (s->o.slice_blocks == 0)
		s->o.slice_blocks = CKPT_SLICE_BLOCKS;
	if (s->o.batch_blocks == 0)
		s->o.batch_blocks = CKPT_PUTS_MAX;
	assert(s->o.batch_blocks <= CKPT_PUTS_MAX);
	s->journal_file = -1;
	slist_init(&s->ready);
	slist_init(&s->done);
	slist_init(&s->block_lru);
	slist_init(&s->dirty);
	slist_init(&s->jinodes);
	slist_init(&s->cuts);
	slist_init(&s->waiting);
	slist_init(&s->ubuf_lru);
	slist_init(&s->commit.waiting);
	slist_init(&s->commit.current);
	slist_init(&s->commit.todo);
	slist_init(&s->commit.segs);
	slist_init(&s->ckpt.todo);
	slist_init(&s->ckpt.flying);
	slist_init(&s->ckpt.segs);
	for (uint32_t i = 0; i < BLOCK_HASH_SIZE; i++)
		slist_init(&s->block_hash[i]);
	for (uint32_t i = 0; i < INODE_HASH_SIZE; i++)
		slist_init(&s->inode_hash[i]);
	extent_map_init(&s->map);
	s->dir = strdup(o->dir);
	s->o.dir = s->dir;
	return s;
}

static void free_inodes(struct store *s)
{
	for (uint32_t i = 0; i < INODE_HASH_SIZE; i++) {
		struct slist *l = &s->inode_hash[i];

		while (!slist_empty(l)) {
			struct inode *in = container_of(l->next, struct inode,
							hash);

			slist_del(&in->hash);
			mem_free(in);
		}
	}
}

static void free_objects(struct store *s)
{
	for (uint32_t i = 0; i < BLOCK_HASH_SIZE; i++) {
		struct slist *l = &s->block_hash[i];

		while (!slist_empty(l)) {
			struct block *b = container_of(l->next, struct block,
						       hash);

			slist_del(&b->hash);
			mem_free(b);
		}
	}
	while (!slist_empty(&s->cuts)) {
		struct cut *c = container_of(s->cuts.next, struct cut,
					     in_store);

		slist_del(&c->in_store);
		mem_free(c);
	}
	free_inodes(s);
	op_free_all(s);
}

static void free_files(struct store *s)
{
	for (uint32_t i = 0; i < s->map.seg_count; i++) {
		s->dev->vt->close(s->dev, s->segs[i]->file);
		mem_free(s->segs[i]);
	}
	if (s->shrink.seg != NULL) {
		s->dev->vt->close(s->dev, s->shrink.seg->file);
		mem_free(s->shrink.seg);
	}
	if (s->journal_file >= 0)
		s->dev->vt->close(s->dev, s->journal_file);
}

void store_free(struct store *s)
{
	if (s == NULL)
		return;
	worker_free(s->worker);
	free_objects(s);
	free_files(s);
	index_close(s->index);
	ubuf_pool_fini(s);
	extent_map_fini(&s->map);
	mem_free(s->segs);
	mem_free(s->free_next.runs);
	mem_free(s->free_now.runs);
	mem_free(s->releasing.runs);
	mem_free(s->cut_buf);
	mem_free(s->commit.buf);
	mem_free(s->ckpt.arena);
	mem_free(s->ckpt.ios);
	mem_free(s->ckpt.batch.puts);
	mem_free(s->ckpt.batch.values);
	mem_free(s->ckpt.batch.freed);
	mem_free(s->ckpt.batch.cuts);
	free(s->dir); /* strdup */
	mem_free(s);
}

void store_abort(struct store *s)
{
	store_free(s);
}

/* Buffers of the paths that must not fail for want of memory. */
static int alloc_buffers(struct store *s)
{
	struct ckpt *c = &s->ckpt;
	uint64_t journal = s->super.journal_bytes;

	/* A record is small beside the journal, so that one always fits
	 * after a checkpoint. */
	s->record_max = u64_min(COMMIT_META_MAX +
				COMMIT_UNITS_MAX * UNIT_SIZE,
				u64_round_down(journal / 8, UNIT_SIZE));
	s->commit.buf = mem_alloc_io(s->record_max);
	c->arena = mem_alloc_io(CKPT_ARENA_UNITS * UNIT_SIZE);
	c->ios = mem_alloc(CKPT_ARENA_UNITS * sizeof(*c->ios));
	c->batch.puts = mem_alloc(CKPT_PUTS_MAX * sizeof(*c->batch.puts));
	c->batch.values = mem_alloc(CKPT_VALUES_MAX + IMAGE_ENCODED_MAX);
	if (s->commit.buf == NULL || c->arena == NULL || c->ios == NULL ||
	    c->batch.puts == NULL || c->batch.values == NULL)
		return -ENOMEM;
	/* Recovery may find the whole journal as units in memory. */
	s->o.cache_bytes = u64_max(s->o.cache_bytes, CACHE_BYTES_MIN);
	return ubuf_pool_init(s, s->o.cache_bytes + journal,
			      s->o.cache_bytes);
}

static int open_parts(struct store *s, char *why, size_t why_size)
{
	struct index_state st;
	int err;

	err = super_read(s->dev, &s->o, &s->super, why, why_size);
	if (err != 0)
		return err;
	err = index_probe(s->dir, store_index_bytes(&s->o), why, why_size);
	if (err == 0)
		err = index_open(s->dir, store_index_bytes(&s->o),
				 s->o.read_only, &s->index, &st, why,
				 why_size);
	if (err != 0)
		return err;
	if (st.store_id_hi != s->super.store_id_hi ||
	    st.store_id_lo != s->super.store_id_lo) {
		(void)snprintf(why, why_size, "%s/index: of another store than "
			       "super; restore both from the same time",
			       s->dir);
		return -EBADMSG;
	}
	err = alloc_buffers(s);
	if (err != 0) {
		(void)snprintf(why, why_size, "%s: out of memory; lower "
			       "--cache", s->dir);
		return err;
	}
	s->reserve = u64_max(s->o.reserve_bytes / UNIT_SIZE,
			     RESERVE_UNITS_MIN);
	return recover(s, &st, why, why_size);
}

int store_open(struct dev *d, const struct store_options *o,
	       struct store **ret, char *why, size_t why_size)
{
	struct store *s = store_new(d, o);
	int err;

	if (why_size > 0)
		why[0] = '\0';
	if (s == NULL)
		return -ENOMEM;
	err = open_parts(s, why, why_size);
	if (err == 0 && !o->read_only) {
		s->worker = worker_new(d, o->inline_worker, ckpt_tick, s);
		err = s->worker == NULL ? -ENOMEM : 0;
	}
	if (err != 0) {
		if (why_size > 0 && why[0] == '\0')
			(void)snprintf(why, why_size, "%s: %s", o->dir,
				       strerror(-err));
		store_free(s);
		return err;
	}
	s->active_ms = d->vt->now_ms(d);
	*ret = s;
	if (o->read_only)
		return 0;
	store_enter(s);
	space_ahead(s);
	space_shrink(s);
	if (!store_clean(s) || s->free_next.count > 0)
		ckpt_request(s);
	store_leave(s, true);
	return 0;
}

/* ---- closing: sync, checkpoints until nothing is left, then free ---- */
static void close_finish(void *arg)
{
	struct store *s = arg;
	void (*cb)(void *a, int err) = s->close_cb;
	void *cb_arg = s->close_arg;
	int err = s->error;

	store_free(s);
	cb(cb_arg, err);
}

static void close_step(struct store *s)
{
	if (s->close_done || s->grow.running || s->shrink.seg != NULL ||
	    s->scrubs > 0 ||
	    worker_tick_posted(s->worker) ||
	    s->commit.state == COMMIT_FLUSH ||
	    s->commit.state == COMMIT_WRITE || s->ckpt.state != CKPT_IDLE ||
	    s->commit.posted || s->ckpt.posted || s->release_posted ||
	    !slist_empty(&s->done) || s->deliver_posted)
		return;
	if (s->error == 0 && (!store_clean(s) || s->ckpt.want ||
			      !slist_empty(&s->jinodes)))
		return;
	s->close_done = true;
	s->dev->vt->post(s->dev, close_finish, s);
}

static void close_synced(struct store_req *r, int err)
{
	struct store *s = container_of(r, struct store, close_req);

	if (err == 0 && (!store_clean(s) || s->tail_seq != s->seq))
		ckpt_request(s);
}

void store_close(struct store *s, void (*cb)(void *arg, int err), void *arg)
{
	store_enter(s);
	s->closing = true;
	if (s->ckpt.state == CKPT_FULL) {
		/* Once more, and then the next start has it to do. */
		s->ckpt.state = CKPT_INDEX;
		worker_submit(s->worker, &s->ckpt.job);
	}
	s->close_cb = cb;
	s->close_arg = arg;
	s->close_req.done = close_synced;
	commit_join(s, &s->close_req, 0);
	store_leave(s, true);
}

/* ---- numbers ---- */
void store_note_session(struct store *s, uint64_t session)
{
	s->session_max = u64_max(s->session_max, session);
}

void store_stat(struct store *s, struct store_stat *st)
{
	uint64_t more = space_growable(s);
	uint64_t taken = s->promised + s->reserve;
	uint64_t have = s->map.free_count + more;

	*st = s->st;
	st->units_total = s->map.unit_count + more > s->reserve ?
			  s->map.unit_count + more - s->reserve : 0;
	st->units_free = have > taken ? have - taken : 0;
	st->units_more = more;
	st->commit = s->seq - 1;
	st->ino_max = s->ino_max;
	st->session_max = s->session_max;
	st->store_id_hi = s->super.store_id_hi;
	st->store_id_lo = s->super.store_id_lo;
	st->error = s->error;
	st->error_text = s->error == 0 ? "" : s->error_text;
	st->units_dirty = s->ubuf_used - s->ubuf_clean;
}
