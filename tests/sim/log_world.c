/* The file, what was promised of it, and messages. */
#include "tests/sim/log_world.h"

/* ---- the file ---- */

void content_apply(struct content *c, const struct op *o)
{
	for (uint32_t i = 0; i < o->count; i++)
		c->tag[o->at + i] =
			o->kind == LOG_REC_WRITE && o->tag ? o->tag + i : 0;
	if (o->kind == LOG_REC_WRITE) {
		c->len = (uint32_t)u64_max(c->len, o->at + o->count);
	} else if (o->kind == LOG_REC_SIZE) {
		c->len = o->at;
		for (uint32_t i = o->at; i < CELLS; i++)
			c->tag[i] = 0;
	}
}

bool content_same(const struct content *a, const struct content *b)
{
	return a->len == b->len && memcmp(a->tag, b->tag, sizeof(a->tag)) == 0;
}

struct log_rec op_record(const struct op *o, uint8_t *buf)
{
	struct log_rec r = { .kind = o->kind, .off = (uint64_t)o->at * CELL };

	if (o->kind == LOG_REC_ZERO)
		r.arg = (uint64_t)o->count * CELL;
	if (o->kind != LOG_REC_WRITE)
		return r;
	r.len = o->count * CELL;
	r.data = buf;
	memset(buf, 0, r.len);
	for (uint32_t i = 0; o->tag && i < o->count; i++) {
		uint64_t tag = o->tag + i;

		memcpy(buf + i * CELL, &tag, sizeof(tag));
	}
	return r;
}

struct op op_of(const struct log_rec *r)
{
	struct op o = { .kind = r->kind, .at = (uint32_t)(r->off / CELL) };

	if (r->kind == LOG_REC_ZERO)
		o.count = (uint32_t)(r->arg / CELL);
	if (r->kind == LOG_REC_WRITE) {
		o.count = r->len / CELL;
		memcpy(&o.tag, r->data, sizeof(o.tag));
	}
	return o;
}

/* ---- what was promised ---- */

void history_begin(struct world *w, uint64_t data_epoch)
{
	struct history *h = &w->history;

	require(w, h->data_epoch == 0, "two logs at a time");
	require(w, data_epoch < LOGS_MAX, "a larger LOGS_MAX");
	h->data_epoch = data_epoch;
	h->base = w->blocks;
	h->op_count = h->acked = 0;
	w->n.logs++;
}

void history_append(struct world *w, uint64_t data_epoch, uint64_t seq,
		    const struct op *o)
{
	struct history *h = &w->history;

	/* A writer whose log is gone does not know it yet. */
	if (h->data_epoch != data_epoch)
		return;
	require(w, seq == h->op_count + 1, "a number is left out");
	h->ops[h->op_count++] = *o;
}

void history_ack(struct world *w, uint64_t data_epoch, uint64_t seq)
{
	struct history *h = &w->history;

	w->n.acked++;
	if (h->data_epoch != data_epoch) {
		require(w, seq <= h->kept[data_epoch],
			"acknowledged, and its log was dropped without it");
		return;
	}
	for (uint64_t i = 0; i < seq; i++)
		require(w, !h->ops[i].failed,
			"acknowledged behind one that has failed");
	require(w, h->ops[seq - 1].acked || seq == h->acked + 1u,
		"acknowledged out of order");
	h->ops[seq - 1].acked = true;
	h->acked = (uint32_t)u64_max(h->acked, seq);
}

void history_fail(struct world *w, uint64_t data_epoch, uint64_t seq)
{
	struct history *h = &w->history;

	w->n.failed++;
	if (h->data_epoch != data_epoch)
		return;
	require(w, !h->ops[seq - 1].acked, "has failed after all");
	h->ops[seq - 1].failed = true;
}

static uint32_t peers_lost(struct world *w)
{
	uint32_t lost = 0;

	for (uint32_t i = 0; i < w->listed; i++)
		lost += peer_lost(w, w->reg.entry.peers[i]);
	return lost;
}

void history_drop(struct world *w)
{
	struct history *h = &w->history;
	struct content c = h->base;
	uint32_t kept = UINT32_MAX;

	for (uint32_t i = 0;; i++) {
		if (i >= h->acked && content_same(&c, &w->blocks))
			kept = i;
		if (i == h->op_count)
			break;
		content_apply(&c, &h->ops[i]);
	}
	/* Damage of a log's end looks like a write that did not arrive. */
	if (kept == UINT32_MAX && w->afar && peers_lost(w) > w->listed / 2) {
		kept = h->op_count;
		w->n.lost++;
	}
	if (kept == UINT32_MAX) {
		c = h->base;
		for (uint32_t i = 0; i < h->acked; i++)
			content_apply(&c, &h->ops[i]);
		fprintf(stderr, "acknowledged: %u of %u, length %u\n", h->acked,
			h->op_count, c.len);
		for (uint32_t i = 0; i < CELLS; i++)
			fprintf(stderr, "cell %u: %llu, in the blocks %llu\n",
				i, (unsigned long long)c.tag[i],
				(unsigned long long)w->blocks.tag[i]);
		world_fail(w, "the blocks are not what was acknowledged");
	}
	h->kept[h->data_epoch] = kept;
	h->data_epoch = 0;
}

void history_lost(struct world *w)
{
	struct history *h = &w->history;

	require(w, peers_lost(w) > w->listed / 2,
		"said to be lost, and a majority has it");
	w->n.lost++;
	/* The operator takes what there is; perhaps not at the first try. */
	if (h->data_epoch == 0)
		return;
	h->kept[h->data_epoch] = h->op_count;
	h->data_epoch = 0;
}

void history_direct(struct world *w, const struct op *o)
{
	require(w, w->history.data_epoch == 0, "past the log");
	content_apply(&w->blocks, o);
	w->n.fallbacks++;
}

/* ---- messages ---- */

struct msg *msg_new(enum msg_kind kind)
{
	struct msg *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->kind = kind;
	return m;
}

void msg_free(struct msg *m)
{
	free(m->data);
	free(m);
}

void msgs_put(struct msgs *q, struct msg *m)
{
	struct msg **at = &q->head;

	while (*at)
		at = &(*at)->next;
	m->next = NULL;
	*at = m;
	q->count++;
}

struct msg *msgs_take(struct msgs *q, uint32_t i)
{
	struct msg **at = &q->head, *m;

	while (i-- > 0)
		at = &(*at)->next;
	m = *at;
	*at = m->next;
	q->count--;
	return m;
}

void msgs_clear(struct msgs *q)
{
	while (q->head)
		msg_free(msgs_take(q, 0));
}
