/* Purges in batches, each inode in one batch at a time.
 *
 * A daemon that does not answer, or cannot purge, keeps no space at the others:
 * what they have purged is parked, stays in the queue, and is purged everywhere
 * again later.
 */
#include "metad/purge.h"

#include "metad/cut.h"
#include "metad/drive.h"
#include "metad/monitor.h"

#define BATCH_INOS 1024u
#define BATCHES_MAX 16u
/* Pages of the queue looked at in one go. */
#define PAGES_MAX 16u
/* Deletions gather for so long. */
#define GATHER_MS 20u
#define AGAIN_MS 500u
#define TRY_MS 5000u
/* Parked until somebody is back; when one who is there did not purge it, until
 * it was started again, or for so long, twice as long each time. */
#define PARK_MS_MIN 1000u
#define PARK_MS_MAX 60000u
#define PARKED_MIN 1024u /* a power of two */

struct purge_batch {
	struct purge *purge;
	struct purge_batch *next;
	struct fan fan;
	bool skipped; /* a daemon did not purge it */
	bool again; /* one that is there */
	uint32_t len;
	uint8_t body[4 + BATCH_INOS * 8]; /* blk_purge, also sm_purge_done */
};

/* A daemon that what is parked waits for. */
struct purge_waited {
	uint32_t id;
	bool away; /* else it could not purge */
	uint64_t boot_id; /* the process that could not */
};

struct purge {
	struct metad *md;
	uv_timer_t timer;
	bool stopped;
	/* Everything up to this inode that was queued then is under way. */
	uint64_t after;
	bool at_end; /* of the queue */
	uint32_t batch_count;
	struct purge_batch *batches;
	struct {
		uint64_t *slots; /* 0: free */
		size_t cap, count; /* cap: a power of two, or 0 */
		uint64_t ms, until_ms;
		bool again; /* not only for who is away */
		struct purge_waited waited[DAEMON_COUNT_MAX];
		uint32_t waited_count;
	} parked;
};

/* ---- what is parked ---- */

static uint64_t *parked_slot(const struct purge *p, uint64_t ino)
{
	size_t mask = p->parked.cap - 1;
	size_t i = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask;

	while (p->parked.slots[i] && p->parked.slots[i] != ino)
		i = (i + 1) & mask;
	return &p->parked.slots[i];
}

static bool is_parked(const struct purge *p, uint64_t ino)
{
	return p->parked.count && *parked_slot(p, ino);
}

/* What finds no memory is purged again. */
static void park(struct purge *p, uint64_t ino)
{
	size_t cap = p->parked.cap, i;
	uint64_t *old = p->parked.slots, *slots;

	if (p->parked.count * 2 >= cap) {
		slots = calloc(cap ? cap * 2 : PARKED_MIN, sizeof(*slots));
		if (!slots)
			return;
		p->parked.slots = slots;
		p->parked.cap = cap ? cap * 2 : PARKED_MIN;
		for (i = 0; i < cap; i++)
			if (old[i])
				*parked_slot(p, old[i]) = old[i];
		free(old);
	}
	if (!is_parked(p, ino)) {
		*parked_slot(p, ino) = ino;
		p->parked.count++;
	}
}

static void unpark_all(struct purge *p)
{
	free(p->parked.slots);
	p->parked.slots = NULL;
	p->parked.cap = p->parked.count = 0;
	p->parked.again = false;
	p->parked.waited_count = 0;
}

static void waited_note(struct purge *p, uint32_t id, bool away)
{
	const struct monitor_daemon *d = monitor_find(p->md->monitor, id);
	struct purge_waited w = { .id = id, .away = away,
				  .boot_id = d ? d->boot_id : 0 };
	uint32_t i;

	for (i = 0; i < p->parked.waited_count; i++)
		if (p->parked.waited[i].id == id)
			return;
	if (i < DAEMON_COUNT_MAX)
		p->parked.waited[p->parked.waited_count++] = w;
}

/* One that was given up is not asked any more. Whatever kept a store from
 * purging, it may be mended when it is started again. */
static bool is_back(const struct purge *p, const struct purge_waited *w)
{
	const struct cmap *map = sm_map(p->md->sm);
	const struct monitor_daemon *d = monitor_find(p->md->monitor, w->id);
	int at = cmap_find_daemon(map, w->id);

	if (at < 0 || map->daemons[at].state == CMAP_STATE_NEW)
		return true;
	if (w->away)
		return !monitor_lease_over(p->md->monitor, w->id);
	return d && d->boot_id != w->boot_id;
}

/* Of several who are waited for one may stay away for long: whoever is back has
 * space to free. */
static bool anybody_back(const struct purge *p)
{
	uint32_t i;

	for (i = 0; i < p->parked.waited_count; i++)
		if (is_back(p, &p->parked.waited[i]))
			return true;
	return false;
}

/* What is parked is tried again when it is time. */
static void unpark(struct purge *p)
{
	if (anybody_back(p))
		p->parked.ms = p->parked.until_ms = 0;
	else if (!p->parked.again ||
		 uv_now(&p->md->loop) < p->parked.until_ms)
		return;
	unpark_all(p);
}

/* ---- batches ---- */

static bool excused(struct fan *f, uint32_t daemon_id)
{
	struct purge_batch *b = container_of(f, struct purge_batch, fan);
	bool away = monitor_lease_over(f->md->monitor, daemon_id);

	b->skipped = true;
	b->again |= !away;
	waited_note(b->purge, daemon_id, away);
	return true;
}

static void batch_park(struct purge_batch *b)
{
	struct purge *p = b->purge;
	uint64_t now = uv_now(&p->md->loop);
	struct wire_in in;

	wire_in_init(&in, b->body + 4, b->len - 4);
	while (in.len)
		park(p, wire_get_u64(&in));
	p->parked.again |= b->again;
	if (!b->again || now < p->parked.until_ms)
		return;
	p->parked.ms = u64_min(u64_max(2 * p->parked.ms, PARK_MS_MIN),
			       PARK_MS_MAX);
	p->parked.until_ms = now + p->parked.ms;
}

static void batch_done(struct fan *f)
{
	struct purge_batch *b = container_of(f, struct purge_batch, fan);
	struct purge *p = b->purge;
	struct purge_batch **at = &p->batches;
	struct sm_reply r;

	if (b->skipped) {
		batch_park(b);
	} else {
		metad_propose(p->md, WIRE_OP_SM_PURGE_DONE, 0, b->body, b->len,
			      &r);
		stats_count(&p->md->stats.purged, (b->len - 4) / 8);
	}
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
	b->fan.timeout_ms = TRY_MS;
	b->fan.reply = batch_reply;
	b->fan.excused = excused;
	b->fan.done = batch_done;
	if (fan_start(p->md, &b->fan) < 0) {
		free(b);
		return;
	}
	b->next = p->batches;
	p->batches = b;
	p->batch_count++;
}

/* Takes one batch, of what is durable, from the next page of the queue. Returns
 * false at its end. */
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
		if (!cut_pending(p->md, list[i].ino) &&
		    !is_parked(p, list[i].ino))
			inos[count++] = list[i].ino;
	}
	if (count)
		batch_start(p, inos, count);
	if (got)
		p->after = list[got - 1].ino;
	return got > 0;
}

static void on_timer(uv_timer_t *t)
{
	struct purge *p = t->data;
	uint32_t pages = 0;

	/* From the start again only when nothing is under way, so that no inode
	 * is in two batches. */
	if (p->at_end && !p->batch_count) {
		p->after = 0;
		if (!p->parked.again)
			p->parked.ms = 0;
		unpark(p);
	}
	/* What is parked is in the queue: nothing else need be looked for. */
	p->at_end = p->parked.count &&
		    p->parked.count == sm_purge_count(p->md->sm);
	while (!p->at_end && p->batch_count < BATCHES_MAX &&
	       pages++ < PAGES_MAX)
		p->at_end = !purge_next(p);
	if (!p->at_end && p->batch_count < BATCHES_MAX)
		(void)uv_timer_start(&p->timer, on_timer, GATHER_MS, 0);
	/* What was held back comes when the batches return, or later. */
	else if (!p->batch_count && sm_purge_list(p->md->sm, 0,
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
	unpark_all(p);
	free(p);
}
