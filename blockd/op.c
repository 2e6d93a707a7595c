/* Operations: gate, order, waiting. */
#include "blockd/op.h"

#include "blockd/mem.h"

struct op *op_new(struct store *s, struct store_req *r)
{
	struct op *op = s->op_free;

	if (op != NULL) {
		s->op_free = op->next_free;
		struct op *all = op->next_all;

		memset(op, 0, sizeof(*op));
		op->next_all = all;
	} else {
		op = mem_alloc(sizeof(*op));
		if (op == NULL) {
			if (r != NULL)
				store_answer(s, r, -ENOMEM);
			return NULL;
		}
		op->next_all = s->op_all;
		s->op_all = op;
	}
	op->s = s;
	op->req = r;
	slist_init(&op->link);
	slist_init(&op->in_block);
	return op;
}

void op_free_all(struct store *s)
{
	while (s->op_all != NULL) {
		struct op *op = s->op_all;

		s->op_all = op->next_all;
		mem_free(op->mem[0]);
		mem_free(op->mem[1]);
		mem_free(op);
	}
}

void op_ready(struct op *op, void (*run)(struct op *op))
{
	op->run = run;
	slist_del(&op->link);
	slist_push(&op->s->ready, &op->link);
}

static void posted(void *arg)
{
	struct op *op = arg;
	struct store *s = op->s;

	store_enter(s);
	op->run(op);
	store_leave(s, false);
}

void op_post(struct op *op, void (*run)(struct op *op))
{
	op->run = run;
	op->s->dev->vt->post(op->s->dev, posted, op);
}

void op_wait_space(struct op *op, void (*run)(struct op *op))
{
	op->run = run;
	slist_del(&op->link);
	slist_push(&op->s->waiting, &op->link);
}

static bool gate_open(const struct inode *in, const struct op *op)
{
	return in->excl == NULL && (!op->excl || in->running == 0);
}

static void gate_pass(struct inode *in, struct op *op)
{
	op->behind_gate = true;
	in->running++;
	if (op->excl)
		in->excl = op;
}

static void gate_drain(struct inode *in)
{
	while (!slist_empty(&in->waitq)) {
		struct op *op = container_of(in->waitq.next, struct op, link);

		if (!gate_open(in, op))
			return;
		gate_pass(in, op);
		op_ready(op, op->run);
	}
}

void op_enter(struct op *op, uint64_t ino, void (*run)(struct op *op))
{
	int err;

	op->in = store_inode_get(op->s, ino, &err);
	if (op->in == NULL) {
		op_done(op, err);
		return;
	}
	op->run = run;
	if (!slist_empty(&op->in->waitq) || !gate_open(op->in, op)) {
		slist_push(&op->in->waitq, &op->link);
		return;
	}
	gate_pass(op->in, op);
	/* Not before one that passed earlier and has not run yet. */
	if (slist_empty(&op->s->ready))
		run(op);
	else
		op_ready(op, run);
}

static bool overlaps_earlier(struct op *op)
{
	struct slist *e;

	for (e = op->in_block.prev; e != &op->b->ops; e = e->prev) {
		struct op *o = container_of(e, struct op, in_block);

		if (!o->is_read && o->first < op->last &&
		    op->first < o->last)
			return true;
	}
	return false;
}

bool op_order(struct op *op, void (*run)(struct op *op))
{
	slist_push(&op->b->ops, &op->in_block);
	op->queued = true;
	op->run = run;
	op->blocked = overlaps_earlier(op);
	return !op->blocked;
}

bool op_order_as_change(struct op *op, void (*run)(struct op *op))
{
	assert(op->is_read && op->queued);
	slist_del(&op->in_block);
	op->is_read = false;
	return op_order(op, run);
}

static void order_leave(struct op *op)
{
	struct block *b = op->b;

	slist_del(&op->in_block);
	op->queued = false;
	if (op->is_read)
		return;
	for (struct slist *e = b->ops.next; e != &b->ops; e = e->next) {
		struct op *o = container_of(e, struct op, in_block);

		if (o->blocked && !overlaps_earlier(o)) {
			o->blocked = false;
			op_ready(o, o->run);
		}
	}
}

void op_drop(struct op *op)
{
	struct inode *in = op->in;
	struct store *s = op->s;

	slist_del(&op->link);
	if (op->queued)
		order_leave(op);
	if (op->b != NULL)
		block_put(s, op->b);
	if (op->behind_gate) {
		/* NOLINTNEXTLINE: only an op of an inode is behind its gate */
		in->running--;
		if (in->excl == op)
			in->excl = NULL;
		gate_drain(in);
	}
	if (in != NULL)
		inode_put(s, in);
	op->in = NULL;
	op->b = NULL;
	mem_free(op->mem[0]);
	mem_free(op->mem[1]);
	op->mem[0] = NULL;
	op->mem[1] = NULL;
	op->next_free = s->op_free;
	s->op_free = op;
}

void op_done(struct op *op, int err)
{
	struct store *s = op->s;
	struct store_req *r = op->req;
	struct op *parent = op->parent;
	void (*finish)(struct op *op, int err) = op->finish;

	if (finish != NULL) {
		op_drop(op);
		finish(parent, err);
		return;
	}
	if (err == 0 && op->sync) {
		/* NOLINTNEXTLINE: a sync has its inode */
		commit_join(s, r, op->in->ino);
		op_drop(op);
		return;
	}
	op_drop(op);
	store_answer(s, r, err);
}

void op_io(struct op *op, struct dev_io *io)
{
	op->pending++;
	op->s->dev->vt->submit(op->s->dev, io);
}
