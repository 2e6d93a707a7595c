/* A client that recovers a log: raise, fence, read, stage, apply, drop. */
#include "tests/sim/log_world.h"

static void answers_forget(struct recovery *r)
{
	for (uint32_t i = 0; i < LISTED_MAX; i++) {
		log_answer_fini(&r->answers[i]);
		r->answers[i].state = r->damaged[i] ? LOG_ANSWER_LOST :
						      LOG_ANSWER_NONE;
		r->asked[i] = false;
	}
}

static void net_forget(struct recovery *r)
{
	log_net_fini(&r->net);
	log_net_init(&r->net);
	r->sized = false;
	r->piece = (struct log_net_rec){ .off = 0 };
}

void recover_end(struct client *c)
{
	answers_forget(&c->r);
	log_net_fini(&c->r.net);
}

static int net_add(void *arg, const struct log_rec *rec)
{
	return log_net_add(arg, rec);
}

static void net_make(struct world *w, struct client *c)
{
	const struct log_writer *v = &c->writer;
	int err = 0;

	net_forget(&c->r);
	for (uint32_t i = 0; i < v->region_count && !err; i++) {
		const struct log_region_mirror *g = &v->regions[i];

		err = log_rec_walk(g->base, LOG_DATA_OFF, g->end, g->seq_first,
				   net_add, &c->r.net, NULL);
	}
	if (!err)
		err = log_net_end(&c->r.net);
	require(w, !err, "a log does not add up");
}

void recover_begin(struct world *w, struct client *c)
{
	for (uint32_t id = 1; id <= PEERS; id++)
		client_break(w, c, id);
	client_forget(c);
	memset(&c->r, 0, sizeof(c->r));
	c->mode = CLIENT_RECOVER;
	/* An outcome that is not known yet is of no interest any more. */
	if (c->call.kind != REG_NONE && !c->call.done)
		registry_execute(w, c);
	c->call.kind = REG_NONE;
	c->call.done = false;
}

/* From the beginning, with what is known of the registry. */
static void again(struct client *c)
{
	client_forget(c);
	answers_forget(&c->r);
	c->r.attempt++;
	c->r.phase = RECOVER_FENCE;
}

static void raise_act(struct world *w, struct client *c)
{
	if (c->call.kind == REG_NONE) {
		(void)client_call(c, REG_RAISE);
		return;
	}
	if (!c->call.done)
		return;
	c->call.kind = REG_NONE;
	c->call.done = false;
	if (c->call.err == -ENOENT) {
		c->mode = CLIENT_IDLE;
	} else if (c->call.err) {
		client_fenced(w, c);
	} else {
		c->r.entry = c->call.entry;
		c->epoch = c->r.entry.epoch;
		c->r.phase = RECOVER_FENCE;
	}
}

/* ---- fence ---- */

static void fence_one(struct world *w, struct client *c, uint32_t i)
{
	uint32_t id = c->r.entry.peers[i].id;
	struct msg *m;

	client_connect(w, c, id);
	if (!c->links[id].up || c->r.asked[i])
		return;
	c->r.asked[i] = true;
	m = msg_new(MSG_FENCE);
	m->peer = i;
	m->data_epoch = c->r.entry.data_epoch;
	client_send(c, id, m);
}

static void fence_reply(struct world *w, struct client *c, const struct msg *m)
{
	const struct reg_entry *e = &c->r.entry;
	struct log_choose_what what = {
		.cluster_id = CLUSTER,
		.ino = w->reg.ino,
		.data_epoch = e->data_epoch,
		.boot_id = e->peers[m->peer].boot_id,
	};
	struct log_reply lr = { .boot_id = m->boot_id };
	struct log_fence_reply fr = { .held = m->held, .count = m->count };

	fr.regions.p = m->data;
	fr.regions.len = m->len;
	if (log_answer_take(&c->r.answers[m->peer], &what, &lr, &fr) < 0)
		abort();
}

static void choose(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;

	switch (log_choose(r->answers, w->listed, &r->chosen)) {
	case LOG_CHOICE_WAIT:
	case LOG_CHOICE_TORN:
		break;
	case LOG_CHOICE_LOST:
		history_lost(w);
		r->phase = RECOVER_DROP;
		break;
	case LOG_CHOICE_EMPTY:
		r->phase = RECOVER_DROP;
		break;
	case LOG_CHOICE_STAGE:
		r->stage = true;
		r->phase = RECOVER_READ;
		r->read_next = r->read_done = 0;
		break;
	case LOG_CHOICE_PEER:
		r->stage = false;
		r->phase = RECOVER_READ;
		r->read_next = r->read_done = 0;
		break;
	}
}

static void fence_act(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;

	for (uint32_t i = 0; i < w->listed; i++)
		if (r->answers[i].state == LOG_ANSWER_NONE)
			fence_one(w, c, i);
	client_forget(c);
	/* Now, or with what comes later. */
	if (world_chance(w, 4) && w->reg.entry.there &&
	    w->reg.entry.epoch == c->epoch)
		choose(w, c);
}

/* ---- read ---- */

static void read_act(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;
	const struct log_answer *a = &r->answers[r->chosen];
	uint32_t id = r->entry.peers[r->chosen].id;
	struct msg *m;

	client_connect(w, c, id);
	if (r->read_next == a->region_count ||
	    a->regions[r->read_next].seq == 0 || !c->links[id].up)
		return;
	m = msg_new(MSG_READ);
	m->index = a->regions[r->read_next].index;
	m->off = LOG_DATA_OFF;
	m->len = a->regions[r->read_next].end - LOG_DATA_OFF;
	m->data_epoch = r->entry.data_epoch;
	m->peer = r->chosen;
	m->count = r->read_next++;
	m->attempt = r->attempt;
	client_send(c, id, m);
}

/* The log is read: the peers' positions, or at once the blocks. */
static void loaded(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;

	require(w,
		c->writer.seq == r->answers[r->chosen].seq &&
			c->writer.length == r->answers[r->chosen].length,
		"a log is not what its slots say");
	net_make(w, c);
	r->phase = r->stage ? RECOVER_STAGE : RECOVER_APPLY;
	for (uint32_t i = 0; r->stage && i < w->listed; i++) {
		const struct log_answer *a = &r->answers[i];

		for (uint32_t j = a->region_count; j-- > 0;) {
			const struct log_answer_region *g = &a->regions[j];

			if (g->seq == 0)
				continue;
			log_writer_load_peer(
				&c->writer, i,
				&(struct log_pos){ .index = g->index,
						   .off = g->end,
						   .seq = g->seq,
						   .length = g->length,
						   .slot = g->slot,
						   .slot_end = g->end });
			break;
		}
	}
	for (uint32_t id = 1; id <= PEERS && r->stage; id++) {
		client_break(w, c, id);
		w->n.staged += id == 1;
	}
}

static void read_reply(struct world *w, struct client *c, const struct msg *m)
{
	struct recovery *r = &c->r;
	const struct log_answer *a = &r->answers[r->chosen];
	const struct log_answer_region *g = &a->regions[m->count];
	uint8_t *base;
	int err;

	if (m->attempt != r->attempt)
		return;
	if (m->err < 0) {
		again(c);
		return;
	}
	require(w, m->peer == r->chosen && m->count == r->read_done,
		"a reply to an older question");
	if (!c->writer_there) {
		log_writer_init(&c->writer, CLUSTER, w->reg.ino,
				r->entry.data_epoch, r->entry.version, LOG2,
				r->entry.peers, w->listed, 0);
		c->writer_there = true;
	}
	base = calloc(1, 1u << LOG2);
	if (!base)
		abort();
	memcpy(base + LOG_DATA_OFF, m->data, m->len);
	err = log_writer_load_region(&c->writer, base, g->index, g->end,
				     g->length_first);
	if (err < 0) {
		require(w,
			w->peers[r->entry.peers[r->chosen].id].damaged ==
				r->entry.data_epoch,
			"a log does not read");
		free(base);
		r->damaged[r->chosen] = true;
		again(c);
		return;
	}
	r->read_done++;
	if (r->read_done == a->region_count ||
	    a->regions[r->read_done].seq == 0)
		loaded(w, c);
}

/* ---- apply ---- */

static void apply_act(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;
	struct op o = { .kind = LOG_REC_WRITE, .count = 1 };
	struct log_rec rec = { .kind = LOG_REC_WRITE, .len = CELL };

	if (!registry_live(w, c->session)) {
		client_fenced(w, c);
		return;
	}
	if (!r->sized) {
		uint32_t len = w->blocks.len;
		uint32_t net = (uint32_t)(r->net.length / CELL);

		if (r->net.sized || net > len)
			w->blocks.len = net;
		/* Cells that come back are zeros. */
		for (uint32_t i = w->blocks.len; i < CELLS; i++)
			w->blocks.tag[i] = 0;
		r->sized = true;
		return;
	}
	if (r->piece.off == r->piece.end && !log_net_next(&r->net, &r->piece)) {
		r->phase = RECOVER_DROP;
		return;
	}
	rec.off = r->piece.off;
	rec.data = r->piece.data;
	if (rec.data)
		o = op_of(&rec);
	else
		o = (struct op){ .kind = LOG_REC_ZERO,
				 .at = (uint32_t)(rec.off / CELL),
				 .count = 1 };
	content_apply(&w->blocks, &o);
	r->piece.off += CELL;
	if (r->piece.data)
		r->piece.data += CELL;
}

static void drop_act(struct world *w, struct client *c)
{
	if (c->call.kind == REG_NONE) {
		(void)client_call(c, REG_DROP);
		return;
	}
	if (!c->call.done)
		return;
	c->call.kind = REG_NONE;
	c->call.done = false;
	if (c->call.err) {
		client_fenced(w, c);
		return;
	}
	w->n.recoveries++;
	client_free_all(c, c->r.entry.data_epoch);
	client_forget(c);
	recover_end(c);
	c->mode = CLIENT_IDLE; /* its lease is free now */
}

void recover_reply(struct world *w, struct client *c, uint32_t id,
		   struct msg *m)
{
	if (m->data_epoch != c->r.entry.data_epoch)
		return;
	if (m->err == -ESTALE) {
		client_fenced(w, c);
		return;
	}
	switch (m->kind) {
	case MSG_FENCE:
		if (m->err == 0 && c->r.phase == RECOVER_FENCE)
			fence_reply(w, c, m);
		break;
	case MSG_READ:
		if (c->r.phase == RECOVER_READ)
			read_reply(w, c, m);
		break;
	default:
		if (c->r.phase == RECOVER_STAGE)
			writer_reply(w, c, id, m);
	}
}

void recover_act(struct world *w, struct client *c)
{
	struct recovery *r = &c->r;

	switch (r->phase) {
	case RECOVER_RAISE:
		raise_act(w, c);
		break;
	case RECOVER_FENCE:
		fence_act(w, c);
		break;
	case RECOVER_READ:
		read_act(w, c);
		break;
	case RECOVER_STAGE:
		client_pump(w, c);
		if (c->writer.committed == c->writer.seq)
			r->phase = RECOVER_APPLY;
		else if (world_chance(w, 200))
			again(c);
		break;
	case RECOVER_APPLY:
		for (uint64_t times = 1 + world_rnd(w, 40);
		     times > 0 && c->mode == CLIENT_RECOVER &&
		     r->phase == RECOVER_APPLY;
		     times--)
			apply_act(w, c);
		break;
	case RECOVER_DROP:
		drop_act(w, c);
		break;
	}
}
