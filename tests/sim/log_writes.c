/* A client with a log: writes, answers, destaging, replacing, giving up. */
#include "tests/sim/log_world.h"

#define OPEN_MAX 6u /* writes that are not answered */

/* ---- replies ---- */

void writer_reply(struct world *w, struct client *c, uint32_t id, struct msg *m)
{
	struct log_writer *v = &c->writer;

	if (m->kind == MSG_AFAR && m->err < 0) {
		client_break(w, c, id);
		return;
	}
	if (m->err == -ESTALE && c->mode != CLIENT_RECOVER) {
		client_fenced(w, c);
		return;
	}
	if (v->peers[m->peer].state != LOG_PEER_UP || v->epoch != m->data_epoch)
		return;
	if (m->err < 0)
		log_writer_fail(v, m->peer);
	else if (m->kind == MSG_ALLOC)
		log_writer_alloc_done(v, m->peer, m->index, 0);
	else if (m->kind == MSG_CONNECT)
		c->links[id].conn_up = m->conn == c->links[id].conn;
	else if (m->kind == MSG_WRITE || m->kind == MSG_AFAR)
		log_writer_acked(v, &m->post);
}

/* ---- writes ---- */

static void random_op(struct world *w, const struct client *c, struct op *o)
{
	uint64_t what = world_rnd(w, 12);

	memset(o, 0, sizeof(*o));
	if (what == 0) {
		o->kind = LOG_REC_SIZE;
		o->at = (uint32_t)world_rnd(w, CELLS + 1);
		return;
	}
	o->kind = what == 1 ? LOG_REC_ZERO : LOG_REC_WRITE;
	o->count = 1 + (uint32_t)world_rnd(w, 4);
	o->at = (uint32_t)world_rnd(w, CELLS - o->count + 1);
	/* Appends, mostly, and one that ends in zeros. */
	if (what > 6 && c->writer.length / CELL + o->count <= CELLS)
		o->at = (uint32_t)(c->writer.length / CELL);
	if (what > 2) {
		o->tag = w->tag + 1;
		w->tag += o->count;
	}
}

static void write_one(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;
	uint8_t buf[4 * CELL];
	struct log_rec r;
	struct op o;
	int err;

	if (v->seq - c->answered >= OPEN_MAX || v->seq == OPS_MAX)
		return;
	if (log_writer_region_wanted(v)) {
		uint8_t *base = calloc(1, 1u << LOG2);

		if (!base || log_writer_region_add(v, base) < 0)
			abort();
	}
	random_op(w, c, &o);
	r = op_record(&o, buf);
	if (r.kind == LOG_REC_ZERO && r.off > v->length)
		return;
	err = log_writer_append(v, &r);
	if (err) {
		require(w, err == -ENOSPC || err == -EIO, "append");
		return;
	}
	c->ops[r.seq - 1] = o;
	history_append(w, v->epoch, r.seq, &o);
}

static void answer(struct world *w, struct client *c)
{
	if (c->answered < c->writer.committed)
		history_ack(w, c->writer.epoch, ++c->answered);
}

/* ---- destaging ---- */

/* The next committed record becomes part of what the blocks may have: a cut
 * goes there at once, a write when it is flushed. */
static void settle(struct world *w, struct client *c)
{
	const struct op *o;

	if (c->settled >= c->writer.committed)
		return;
	o = &c->ops[c->settled++];
	content_apply(&c->image, o);
	if (o->kind != LOG_REC_WRITE)
		content_apply(&w->blocks, o);
	for (uint32_t i = 0; i < o->count; i++)
		c->dirty[o->at + i] |= o->kind == LOG_REC_WRITE;
	for (uint32_t i = o->at; i < CELLS && o->kind == LOG_REC_SIZE; i++)
		c->dirty[i] = false;
}

static bool flush(struct world *w, struct client *c)
{
	uint32_t first = (uint32_t)world_rnd(w, CELLS);

	for (uint32_t j = 0; j < CELLS; j++) {
		uint32_t i = (first + j) % CELLS;

		if (!c->dirty[i])
			continue;
		w->blocks.tag[i] = c->image.tag[i];
		w->blocks.len = (uint32_t)u64_max(w->blocks.len, i + 1);
		c->dirty[i] = false;
		return true;
	}
	return false;
}

static void destage(struct world *w, struct client *c)
{
	uint8_t *base;

	/* The blocks refuse it, which it may take long to notice. */
	if (!registry_live(w, c->session)) {
		if (w->calm || world_chance(w, 20))
			client_fenced(w, c);
		return;
	}
	if (world_chance(w, 2)) {
		settle(w, c);
		return;
	}
	for (uint64_t times = world_rnd(w, 8); times > 0; times--)
		(void)flush(w, c);
	for (uint32_t i = 0; i < CELLS; i++)
		if (c->dirty[i])
			return;
	while ((base = log_writer_trim(&c->writer, c->settled))) {
		free(base);
		w->n.trimmed++;
	}
}

/* ---- replacing ---- */

static void replace_begin(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;
	uint32_t victim = (uint32_t)world_rnd(w, LOG_WRITER_PEER_MAX);
	struct log_writer_peer_id with;

	/* One that has failed rather than another one. */
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		if (v->peers[i].state == LOG_PEER_FAILED)
			victim = i;
	if (v->replacing || v->peers[victim].state == LOG_PEER_UNUSED)
		return;
	with.id = 1 + (uint32_t)world_rnd(w, PEERS);
	with.boot_id = w->reg.boot_id[with.id];
	c->victim = v->peers[victim].id;
	c->with = with.id;
	if (log_writer_replace(v, victim, with) < 0)
		return;
	client_break(w, c, with.id);
}

static void replace_end(struct world *w, struct client *c, bool published,
			uint32_t version)
{
	/* It is on no list: what it has may go. Not of a boot that replaces
	 * another of the same daemon. */
	if (published && c->victim != c->with)
		client_free_one(c, c->victim, c->writer.epoch);
	/* Nothing that was said to the one that goes is heard any more. */
	client_break(w, c, published ? c->victim : c->with);
	log_writer_replace_end(&c->writer, published, version);
	w->n.replaced += published;
}

static void replace_act(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;

	if (c->call.kind == REG_SET) {
		if (!c->call.done)
			return;
		c->call.kind = REG_NONE;
		c->call.done = false;
		if (c->call.err == 0)
			replace_end(w, c, true, c->call.entry.version);
		else if (c->call.err == -ENXIO)
			replace_end(w, c, false, 0);
		else
			client_fenced(w, c);
	} else if (!v->replacing) {
		replace_begin(w, c);
	} else if (log_writer_replace_ready(v)) {
		if (client_call(c, REG_SET)) {
			c->call.version = v->version;
			log_writer_list_new(v, c->call.peers);
		}
	} else if (world_chance(w, 20)) {
		replace_end(w, c, false, 0);
	}
}

/* ---- the end ---- */

/* A write has failed: so have all that are not answered, and the log is read
 * as after a crash. */
static void fail(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;

	log_writer_seal(v);
	while (c->answered < v->seq)
		history_fail(w, v->epoch, ++c->answered);
	if (world_chance(w, 2)) {
		/* What comes late must not be taken for an answer. */
		client_pump(w, c);
		return;
	}
	recover_begin(w, c);
}

/* The blocks have all that is committed: the log goes, and what is not
 * committed goes to the blocks, as if there had never been a log. */
static void end_act(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;
	uint64_t epoch = v->epoch;

	if (c->call.kind == REG_SET) {
		replace_act(w, c);
		return;
	}
	if (c->call.kind == REG_DROP) {
		if (!c->call.done)
			return;
		c->call.kind = REG_NONE;
		c->call.done = false;
		if (c->call.err || !registry_live(w, c->session)) {
			client_fenced(w, c);
			return;
		}
		for (uint64_t i = c->answered; i < v->seq; i++)
			history_direct(w, &c->ops[i]);
		client_forget(c);
		client_free_all(c, epoch);
		c->mode = CLIENT_READY;
		return;
	}
	if (c->answered < v->committed) {
		answer(w, c);
	} else if (!registry_live(w, c->session)) {
		client_fenced(w, c);
	} else if (c->settled < v->committed) {
		settle(w, c);
	} else if (!flush(w, c)) {
		(void)client_call(c, REG_DROP);
	}
}

static void end_begin(struct world *w, struct client *c)
{
	struct log_writer *v = &c->writer;

	/* Orderly, or because there is no majority. */
	if (v->committed < v->seq && !world_chance(w, 20) &&
	    (!w->calm || log_writer_majority(v)))
		return;
	log_writer_seal(v);
	c->mode = CLIENT_END;
}

void writer_act(struct world *w, struct client *c)
{
	uint64_t what = world_rnd(w, 400);

	client_pump(w, c);
	if (c->mode == CLIENT_END)
		end_act(w, c);
	else if ((w->mood & MOOD_REPLACES) && !w->calm && what % 8 == 0)
		replace_act(w, c);
	else if (w->calm && what < 100)
		end_begin(w, c);
	else if (what < 150 && !w->calm)
		write_one(w, c);
	else if (what < 290)
		answer(w, c);
	else if (what < 380)
		destage(w, c);
	else if (what < 396)
		replace_act(w, c);
	else if (what < 398)
		end_begin(w, c);
	else if (what == 398 && !w->calm)
		fail(w, c);
}
