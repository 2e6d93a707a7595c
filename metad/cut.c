/* Cut jobs. */
#include "metad/cut.h"

#include "metad/drive.h"

struct cut_job {
	struct cuts *cuts;
	struct cut_job *next; /* of one inode: in order of the cut number */
	uint64_t session; /* who made it; 0: before this process */
	struct sm_cut cut;
	struct durable_wait durable;
	bool is_durable, sent;
	bool unsure; /* a daemon may have cut before the answer that came */
	struct fan fan;
	uint8_t body[64];
	int64_t units_delta;
	uint64_t units; /* counted again */
	struct cut_wait *waits;
};

#define CUT_HASH 256u

struct cuts {
	struct metad *md;
	struct cut_job *hash[CUT_HASH];
	uint64_t count;
};

static struct cut_job **bucket(struct cuts *cs, uint64_t ino)
{
	return &cs->hash[ino % CUT_HASH];
}

static struct cut_job *first_of(struct cuts *cs, uint64_t ino)
{
	struct cut_job *j = *bucket(cs, ino);

	while (j && j->cut.ino != ino)
		j = j->next;
	return j;
}

static void job_done(struct fan *f);
static int job_reply(struct fan *f, uint32_t daemon_id,
		     const struct rpc_frame *frame);

/* One cut of an inode at a time: an older one that came later would be taken
 * for done already. */
static void job_start(struct cut_job *j)
{
	struct metad *md = j->cuts->md;
	struct blk_cut m = { .ino = j->cut.ino,
			     .cut = j->cut.cut,
			     .from = j->cut.from,
			     .to = j->cut.to,
			     .block_log2 = j->cut.block_log2 };
	struct wire_out o;

	if (j->sent || !j->is_durable || first_of(j->cuts, m.ino) != j)
		return;
	j->sent = true;
	wire_out_init(&o, j->body, sizeof(j->body));
	blk_cut_encode(&o, &m);
	j->fan.op = WIRE_OP_BLK_CUT;
	j->fan.body = j->body;
	j->fan.body_len = (uint32_t)o.len;
	j->fan.reply = job_reply;
	j->fan.done = job_done;
	if (fan_start(md, &j->fan) < 0)
		md->stop(md, "out of memory");
}

static int job_reply(struct fan *f, uint32_t daemon_id,
		     const struct rpc_frame *frame)
{
	struct cut_job *j = container_of(f, struct cut_job, fan);
	struct blk_reply m;

	(void)daemon_id;
	if (blk_reply_parse(frame->body, frame->h.body_len, &m) < 0)
		return -EBADMSG;
	j->units_delta += m.units_delta;
	return 0;
}

static void job_remove(struct cut_job *j)
{
	struct cut_job **p = bucket(j->cuts, j->cut.ino);

	while (*p != j)
		p = &(*p)->next;
	*p = j->next;
	j->cuts->count--;
}

static void job_finish(struct cut_job *j)
{
	struct cuts *cs = j->cuts;
	struct metad *md = cs->md;
	struct sm_cut_done m = { .ino = j->cut.ino,
				 .cut = j->cut.cut,
				 .units_delta = j->units_delta };
	struct cut_wait *w, *next;
	struct cut_job *after;
	struct sm_reply r;

	METAD_PROPOSE(md, WIRE_OP_SM_CUT_DONE, sm_cut_done, &m, &r);
	stats_count(&md->stats.cuts, 1);
	job_remove(j);
	for (w = j->waits; w; w = next) {
		next = w->next;
		w->fn(w, false);
	}
	after = first_of(cs, j->cut.ino);
	if (after)
		job_start(after);
	free(j);
}

static int count_reply(struct fan *f, uint32_t daemon_id,
		       const struct rpc_frame *frame)
{
	struct cut_job *j = container_of(f, struct cut_job, fan);
	struct blk_end_reply m;

	(void)daemon_id;
	if (blk_end_reply_parse(frame->body, frame->h.body_len, &m) < 0)
		return -EBADMSG;
	j->units += m.units;
	return 0;
}

static void count_done(struct fan *f)
{
	struct cut_job *j = container_of(f, struct cut_job, fan);
	struct meta_attr a;

	/* Else it was deleted meanwhile. */
	if (sm_inode_list(j->cuts->md->sm, j->cut.ino - 1, &a, 1) == 1 &&
	    a.ino == j->cut.ino)
		j->units_delta = (int64_t)(j->units - a.units);
	job_finish(j);
}

/* A repeated cut does nothing and says so: what the first one freed went with
 * its answer. So the daemons are asked what the file has left. Who cuts has
 * told all that it had allocated, and writes nothing before it is answered;
 * nobody else can. */
static void count_start(struct cut_job *j)
{
	struct metad *md = j->cuts->md;
	struct blk_end m = { .ino = j->cut.ino,
			     .block_log2 = j->cut.block_log2 };
	struct wire_out o;

	wire_out_init(&o, j->body, sizeof(j->body));
	blk_end_encode(&o, &m);
	j->fan = (struct fan){ .op = WIRE_OP_BLK_END,
			       .body = j->body,
			       .body_len = (uint32_t)o.len,
			       .reply = count_reply,
			       .done = count_done };
	if (fan_start(md, &j->fan) < 0)
		md->stop(md, "out of memory");
}

static void job_done(struct fan *f)
{
	struct cut_job *j = container_of(f, struct cut_job, fan);

	if (j->unsure || f->unsure)
		count_start(j);
	else
		job_finish(j);
}

static void job_durable(struct durable_wait *w)
{
	struct cut_job *j = container_of(w, struct cut_job, durable);

	j->is_durable = true;
	job_start(j);
}

static struct cut_job *job_add(struct cuts *cs, const struct sm_cut *cut,
			       uint64_t session)
{
	struct cut_job **p = bucket(cs, cut->ino), *j;

	/* Cut numbers grow, so new ones go last. */
	for (; *p; p = &(*p)->next)
		if ((*p)->cut.ino == cut->ino && (*p)->cut.cut == cut->cut)
			return *p;
	j = calloc(1, sizeof(*j));
	if (!j)
		return NULL;
	j->cuts = cs;
	j->session = session;
	j->cut = *cut;
	*p = j;
	cs->count++;
	return j;
}

static void job_begin(struct cut_job *j)
{
	if (j->durable.fn)
		return;
	j->durable.fn = job_durable;
	metad_when_durable(j->cuts->md, &j->durable, j->cut.pos);
}

int cut_add(struct metad *md, uint64_t ino, uint64_t cut, uint64_t session,
	    struct cut_wait *w)
{
	struct sm_cut c;
	struct cut_job *j;

	if (sm_cut_list(md->sm, ino, cut - 1, &c, 1) != 1 || c.ino != ino ||
	    c.cut != cut) {
		/* A repeated request whose cut is done by now. */
		w->fn(w, false);
		return 0;
	}
	j = job_add(md->cuts, &c, session);
	if (!j)
		return -ENOMEM;
	if (session)
		j->session = session;
	w->next = j->waits;
	j->waits = w;
	job_begin(j);
	return 0;
}

static struct cut_job *foreign_last(struct metad *md, uint64_t ino,
				    uint64_t session)
{
	struct cut_job *j, *last = NULL;

	for (j = *bucket(md->cuts, ino); j; j = j->next)
		if (j->cut.ino == ino && j->session != session)
			last = j;
	return last;
}

bool cut_foreign(struct metad *md, uint64_t ino, uint64_t session)
{
	return md->cuts->count && foreign_last(md, ino, session);
}

bool cut_foreign_wait(struct metad *md, uint64_t ino, uint64_t session,
		      struct cut_wait *w)
{
	struct cut_job *last = foreign_last(md, ino, session);

	if (!last)
		return false;
	w->next = last->waits;
	last->waits = w;
	return true;
}

bool cut_any_wait(struct metad *md, uint64_t ino, struct cut_wait *w)
{
	return cut_foreign_wait(md, ino, UINT64_MAX, w);
}

bool cut_pending(const struct metad *md, uint64_t ino)
{
	return md->cuts->count && first_of(md->cuts, ino);
}

static void waits_drop(struct cut_job *j, uint64_t conn_id)
{
	struct cut_wait **p = &j->waits, *w;

	while ((w = *p)) {
		if (w->conn_id != conn_id) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->fn(w, true);
	}
}

void cut_waits_drop(struct metad *md, uint64_t conn_id)
{
	struct cut_job *j;
	uint32_t i;

	if (!md->cuts)
		return;
	for (i = 0; i < CUT_HASH && md->cuts->count; i++)
		for (j = md->cuts->hash[i]; j; j = j->next)
			waits_drop(j, conn_id);
}

uint64_t cut_count(const struct metad *md)
{
	return md->cuts->count;
}

int cuts_load(struct cuts *cs)
{
	struct sm_cut cut = { .ino = 0, .cut = 0 };
	struct cut_job *j;

	while (sm_cut_list(cs->md->sm, cut.ino, cut.cut, &cut, 1) == 1) {
		j = job_add(cs, &cut, 0);
		if (!j)
			return -ENOMEM;
		/* The process before this one may have sent it. */
		j->unsure = true;
		job_begin(j);
	}
	return 0;
}

struct cuts *cuts_new(struct metad *md)
{
	struct cuts *cs = calloc(1, sizeof(*cs));

	if (cs)
		cs->md = md;
	return cs;
}

void cuts_free(struct cuts *cs)
{
	struct cut_job *j, *next;
	struct cut_wait *w, *wnext;
	uint32_t i;

	if (!cs)
		return;
	for (i = 0; i < CUT_HASH; i++) {
		for (j = cs->hash[i]; j; j = next) {
			next = j->next;
			for (w = j->waits; w; w = wnext) {
				wnext = w->next;
				w->fn(w, true);
			}
			fan_drop(&j->fan);
			free(j);
		}
	}
	free(cs);
}
