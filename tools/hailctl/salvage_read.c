/* hailctl log salvage: what the peers of a log have of it.
 *
 * LOG_FENCE lists regions; with the epoch that metad has for the log it takes
 * nothing from anybody. Nothing is ever freed from here. */
#include "tools/hailctl/salvage.h"

#define PIECE (1u << 20)

struct link *salvage_link(struct links *ls, enum daemon_kind kind, uint32_t id)
{
	for (uint32_t i = 0; i < ls->count; i++)
		if (ls->v[i].kind == kind && ls->v[i].d->id == id)
			return &ls->v[i];
	return NULL;
}

static int read_piece(struct link *l, const struct salvage_log *g,
		      uint32_t index, uint32_t off, uint32_t len, uint8_t *to)
{
	struct log_read m = { .ino = g->e.ino, .epoch = UINT64_MAX,
			      .data_epoch = g->e.data_epoch, .index = index,
			      .off = off, .len = len };
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[48];
	int rv;

	wire_out_init(&o, body, sizeof(body));
	log_read_encode(&o, &m);
	rv = link_call(l, WIRE_OP_LOG_READ, body, o.len, l->c->o.timeout_ms,
		       &f);
	if (rv != 0)
		return rv;
	if (f->h.data_len == len)
		memcpy(to, f->data, len);
	else
		rv = -EBADMSG;
	rpc_frame_free(f);
	return rv;
}

static bool all_zero(const uint8_t *p, uint32_t len)
{
	return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

/* Up to where there is nothing more: memory is zeroed before it is lent. */
static int read_region(struct link *l, const struct salvage_log *g,
		       struct salvage_peer *p, const struct log_region *m)
{
	uint32_t size, step;
	uint8_t *base;
	int rv = 0;

	if (m->log2 < LOG_REGION_LOG2_MIN || m->log2 > LOG_REGION_LOG2_MAX)
		return -EBADMSG;
	size = 1u << m->log2;
	step = size < PIECE ? size : PIECE;
	base = calloc(1, size);
	if (!base)
		return -ENOMEM;
	p->regions[p->region_count++] = (struct log_salvage_region){
		.index = m->index, .log2 = m->log2, .base = base };
	for (uint32_t off = 0; rv == 0 && off < size; off += step) {
		rv = read_piece(l, g, m->index, off, step, base + off);
		if (rv == 0 && all_zero(base + off, step))
			break;
	}
	return rv;
}

static int read_regions(struct link *l, const struct salvage_log *g,
			struct salvage_peer *p,
			const struct log_fence_reply *fr)
{
	struct wire_in in;
	int rv = 0;

	if (fr->count > LOG_REGION_COUNT_MAX)
		return -EBADMSG;
	p->regions = calloc(fr->count + 1, sizeof(*p->regions));
	if (!p->regions)
		return -ENOMEM;
	wire_in_init(&in, fr->regions.p, fr->regions.len);
	for (uint32_t i = 0; rv == 0 && i < fr->count; i++) {
		struct log_region m;

		log_region_decode(&in, &m);
		rv = in.bad ? -EBADMSG : read_region(l, g, p, &m);
	}
	return rv;
}

/* What it says, and what it has. */
static int peer_take(struct link *l, const struct salvage_log *g,
		     struct salvage_peer *p, const struct rpc_frame *f)
{
	const struct log_choose_what what = {
		.cluster_id = l->c->conf.cluster_id, .ino = g->e.ino,
		.data_epoch = g->e.data_epoch, .boot_id = p->id.boot_id,
	};
	struct log_fence_reply fr;
	struct log_reply lr;
	struct wire_in in;
	int rv;

	wire_in_init(&in, f->body, f->h.body_len);
	log_reply_decode(&in, &lr);
	log_fence_reply_decode(&in, &fr);
	rv = wire_in_known(&in);
	if (rv == 0)
		rv = log_answer_take(&p->answer, &what, &lr, &fr);
	if (rv == 0 && lr.boot_id == p->id.boot_id &&
	    (fr.held == LOG_HELD || fr.held == LOG_HELD_TORN))
		rv = read_regions(l, g, p, &fr);
	return rv;
}

static int peer_read(struct ctl *c, struct links *ls,
		     const struct salvage_log *g, struct salvage_peer *p)
{
	struct log_fence m = { .ino = g->e.ino, .epoch = g->e.epoch,
			       .data_epoch = g->e.data_epoch };
	const struct log_salvage_what what = salvage_what(c, g);
	struct link *l = salvage_link(ls, DAEMON_LOGD, p->id.id);
	struct rpc_frame *f;
	struct wire_out o;
	uint8_t body[32];
	int rv;

	if (!l)
		return -ENXIO;
	wire_out_init(&o, body, sizeof(body));
	log_fence_encode(&o, &m);
	rv = link_call(l, WIRE_OP_LOG_FENCE, body, o.len, c->o.timeout_ms, &f);
	if (rv != 0)
		return rv;
	rv = peer_take(l, g, p, f);
	rpc_frame_free(f);
	if (rv != 0)
		return rv;
	return log_salvage_walk(p->regions, p->region_count, &what, NULL, NULL,
				&p->s);
}

int salvage_read(struct ctl *c, struct links *ls,
		 const struct meta_log_entry *e, struct salvage_log *ret)
{
	struct salvage_log *g = ret;
	struct log_answer answers[LOG_PEER_COUNT_MAX];
	struct wire_in in;
	uint32_t index;

	memset(g, 0, sizeof(*g));
	g->e = *e;
	g->best = -ENOENT;
	wire_in_init(&in, e->peers.p, e->peers.len);
	while (in.len > 0 && g->count < LOG_PEER_COUNT_MAX)
		meta_log_peer_decode(&in, &g->peers[g->count++].id);
	if (wire_in_end(&in) < 0)
		return -EBADMSG;
	g->e.peers = (struct wire_str){ NULL, 0 };
	for (uint32_t i = 0; i < g->count; i++) {
		struct salvage_peer *p = &g->peers[i];

		p->error = peer_read(c, ls, g, p);
		if (p->error == -ENOMEM)
			return p->error;
		/* A recovery finds it, too, and asks the others. */
		if (p->s.last < p->answer.seq)
			p->answer.state = LOG_ANSWER_LOST;
		answers[i] = p->answer;
		if (p->s.last > 0 &&
		    (g->best < 0 || log_salvaged_better(
					    &p->s, &g->peers[g->best].s)))
			g->best = (int)i;
	}
	g->choice = log_choose(answers, g->count, &index);
	return 0;
}

void salvage_free(struct salvage_log *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct salvage_peer *p = &g->peers[i];

		for (uint32_t k = 0; k < p->region_count; k++)
			free((void *)(uintptr_t)p->regions[k].base);
		free(p->regions);
		log_answer_fini(&p->answer);
	}
}
