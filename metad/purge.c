/* Purges in batches, each inode in one batch at a time. */
#include "metad/purge.h"

#include "metad/cut.h"
#include "metad/drive.h"

#define BATCH_INOS 1024u
/* With a daemon down the others are not kept waiting for long. */
#define BATCHES_MAX 16u
/* Deletions gather for so long. */
#define GATHER_MS 20u
#define AGAIN_MS 500u

struct purge_batch {
	struct purge *purge;
	struct purge_batch *next;
	struct fan fan;
	uint32_t len;
	uint8_t body[4 + BATCH_INOS * 8]; /* blk_purge, also sm_purge_done */
};

struct purge {
	struct metad *md;
	uv_timer_t timer;
	bool stopped;
	/* Everything up to this inode that was queued then is under way. */
	uint64_t after;
	uint32_t batch_count;
	struct purge_batch *batches;
};

static void batch_done(struct fan *f)
{
	struct purge_batch *b = container_of(f, struct purge_batch, fan);
	struct purge *p = b->purge;
	struct purge_batch **at = &p->batches;
	struct sm_reply r;

	metad_propose(p->md, WIRE_OP_SM_PURGE_DONE, 0, b->body, b->len, &r);
	p->md->stats.purged += (b->len - 4) / 8;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	p->batch_count--;
	free(b);
	purge_kick(p);
}

static int batch_reply(struct fan *f, uint32_t daemon_id,
		       const struct rpc_frame *frame)
{
	struct blk_reply m;

	(void)f;
	(void)daemon_id;
	return blk_reply_parse(frame->body, frame->h.body_len, &m);
}

static void batch_start(struct purge *p, const uint64_t *inos, uint32_t count)
{
	struct purge_batch *b = calloc(1, sizeof(*b));
	struct wire_out o;
	uint32_t i;

	if (!b)
		return; /* tried again with the next deletion */
	wire_out_init(&o, b->body, sizeof(b->body));
	wire_put_u32(&o, count * 8);
	for (i = 0; i < count; i++)
		wire_put_u64(&o, inos[i]);
	b->purge = p;
	b->len = (uint32_t)o.len;
	b->fan.op = WIRE_OP_BLK_PURGE;
	b->fan.body = b->body;
	b->fan.body_len = b->len;
	b->fan.reply = batch_reply;
	b->fan.done = batch_done;
	if (fan_start(p->md, &b->fan) < 0) {
		free(b);
		return;
	}
	b->next = p->batches;
	p->batches = b;
	p->batch_count++;
	p->after = inos[count - 1];
}

/* Takes one batch of what is durable. Returns whether there was any. */
static bool purge_next(struct purge *p)
{
	static struct sm_purge list[BATCH_INOS];
	uint64_t inos[BATCH_INOS], durable = metad_durable(p->md);
	size_t got, i;
	uint32_t count = 0;

	got = sm_purge_list(p->md->sm, p->after, list, BATCH_INOS);
	for (i = 0; i < got; i++) {
		if (list[i].pos > durable) {
			metaraft_want(p->md->raft, list[i].pos);
			continue; /* the next round finds it */
		}
		/* A cut that came after the purge would stay for ever. */
		if (!cut_pending(p->md, list[i].ino))
			inos[count++] = list[i].ino;
	}
	if (count)
		batch_start(p, inos, count);
	return count > 0;
}

static void on_timer(uv_timer_t *t)
{
	struct purge *p = t->data;

	/* From the start again only when nothing is under way, so that no inode
	 * is in two batches. */
	if (!p->batch_count)
		p->after = 0;
	while (p->batch_count < BATCHES_MAX && purge_next(p))
		;
	/* What was held back comes when the batches return, or later. */
	if (!p->batch_count && sm_purge_list(p->md->sm, 0,
					     &(struct sm_purge){ 0 }, 1))
		(void)uv_timer_start(&p->timer, on_timer, AGAIN_MS, 0);
}

void purge_kick(struct purge *p)
{
	if (!p->stopped && !uv_is_active((uv_handle_t *)&p->timer))
		(void)uv_timer_start(&p->timer, on_timer, GATHER_MS, 0);
}

int purge_new(struct metad *md, struct purge **ret)
{
	struct purge *p = calloc(1, sizeof(*p));
	int rv;

	if (!p)
		return -ENOMEM;
	p->md = md;
	rv = uv_timer_init(&md->loop, &p->timer);
	if (rv < 0) {
		free(p);
		return rv;
	}
	p->timer.data = p;
	*ret = p;
	return 0;
}

void purge_stop(struct purge *p)
{
	p->stopped = true;
	uv_close((uv_handle_t *)&p->timer, NULL);
}

void purge_free(struct purge *p)
{
	struct purge_batch *b, *next;

	if (!p)
		return;
	for (b = p->batches; b; b = next) {
		next = b->next;
		fan_drop(&b->fan);
		free(b);
	}
	free(p);
}
