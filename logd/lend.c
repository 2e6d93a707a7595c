#include "logd/lend.h"

#include "common/stats.h"

#define BUCKET_COUNT 16384u
#define REGION_CAP_MIN 4u

/* What is known of an inode: there is one while it has a log or a fence. */
struct lend_ino {
	uint64_t ino;
	uint64_t fence; /* 0: none */
	uint64_t fence_data; /* data epoch that was asked for with it */
	uint64_t heard_ms, asked_ms;
	bool asked;
	struct lend_log *logs;
	struct lend_ino *next; /* of the bucket */
};

struct lend {
	struct lend_options o;
	struct lend_stats n;
	uint64_t now_ms;
	uint64_t epoch_max;
	bool draining;
	uint64_t until_ms; /* 0: what there was is taken */
	struct lend_ino *buckets[BUCKET_COUNT];
};

/* ---- inodes, logs ---- */

static struct lend_ino **bucket(struct lend *l, uint64_t ino)
{
	return &l->buckets[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 50];
}
_Static_assert(BUCKET_COUNT == 1u << (64 - 50), "shift");

static struct lend_ino *ino_find(struct lend *l, uint64_t ino)
{
	struct lend_ino *i = *bucket(l, ino);

	while (i && i->ino != ino)
		i = i->next;
	return i;
}

static int ino_get(struct lend *l, uint64_t ino, struct lend_ino **ret)
{
	struct lend_ino *i = ino_find(l, ino), **at;

	if (!i && l->n.inos >= l->o.ino_max) {
		stats_count(&l->n.full, 1);
		return -ENOSPC;
	}
	if (!i) {
		i = calloc(1, sizeof(*i));
		if (!i)
			return -ENOMEM;
		i->ino = ino;
		i->heard_ms = l->now_ms;
		at = bucket(l, ino);
		i->next = *at;
		*at = i;
		stats_count(&l->n.inos, 1);
	}
	*ret = i;
	return 0;
}

/* Forgets it when there is nothing to know. */
static void ino_put(struct lend *l, struct lend_ino *i)
{
	struct lend_ino **at = bucket(l, i->ino);

	if (i->logs || i->fence)
		return;
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	stats_set(&l->n.inos, l->n.inos - 1);
	free(i);
}

static struct lend_log *log_of(struct lend_ino *i, uint64_t epoch)
{
	struct lend_log *g = i ? i->logs : NULL;

	while (g && g->epoch != epoch)
		g = g->next;
	return g;
}

struct lend_log *lend_find(struct lend *l, uint64_t ino, uint64_t epoch)
{
	return log_of(ino_find(l, ino), epoch);
}

static void heard(struct lend *l, struct lend_log *g)
{
	g->heard_ms = l->now_ms;
	g->asked = false;
}

static int log_new(struct lend *l, struct lend_ino *i,
		   const struct log_alloc *m, uint64_t session,
		   struct lend_log **ret)
{
	struct lend_log *g;

	if (l->n.logs + l->n.tombs >= l->o.log_max) {
		stats_count(&l->n.full, 1);
		return -ENOSPC;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->ino = i->ino;
	g->epoch = m->data_epoch;
	g->writer = m->epoch;
	g->session = session;
	g->next = i->logs;
	i->logs = g;
	stats_count(&l->n.logs, 1);
	heard(l, g);
	*ret = g;
	return 0;
}

/* ---- regions ---- */

/* Where @index is, or would be. */
static uint32_t region_place(const struct lend_log *g, uint32_t index)
{
	uint32_t lo = 0, hi = g->region_count, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (g->regions[mid]->index < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct lend_region *region_find(const struct lend_log *g, uint32_t index)
{
	uint32_t i = region_place(g, index);

	return i < g->region_count && g->regions[i]->index == index ?
		       g->regions[i] : NULL;
}

/* Zeroes what may have been written. */
static void region_wipe(const struct lend_region *r)
{
	if (r->granted) {
		memset(r->base, 0, (size_t)1 << r->log2);
		return;
	}
	memset(r->base, 0, (size_t)LOG_SLOT_SIZE * LOG_SLOT_COUNT);
	memset(r->base + LOG_DATA_OFF, 0, r->end - LOG_DATA_OFF);
}

static void region_revoke(struct lend *l, struct lend_log *g,
			  struct lend_region *r)
{
	if (r->open && l->o.ops && l->o.ops->revoke)
		l->o.ops->revoke(l->o.arg, g, r);
	r->open = false;
}

static void region_free(struct lend *l, struct lend_log *g,
			struct lend_region *r)
{
	region_revoke(l, g, r);
	region_wipe(r);
	lend_pool_put(l->o.pool, r->base);
	stats_set(&l->n.regions, l->n.regions - 1);
	stats_set(&l->n.lent_bytes, l->n.lent_bytes - (1u << r->log2));
	free(r);
}

/* The first @count. */
static void regions_free(struct lend *l, struct lend_log *g, uint32_t count)
{
	if (count == 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		region_free(l, g, g->regions[i]);
	g->region_count -= count;
	memmove(g->regions, g->regions + count,
		g->region_count * sizeof(g->regions[0]));
}

static int region_room(struct lend_log *g)
{
	uint32_t cap = g->region_cap ? 2 * g->region_cap : REGION_CAP_MIN;
	struct lend_region **v;

	if (g->region_count < g->region_cap)
		return 0;
	v = realloc(g->regions, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	g->regions = v;
	g->region_cap = cap;
	return 0;
}

static int region_grant(struct lend *l, struct lend_log *g,
			struct lend_region *r)
{
	int rv = l->o.ops && l->o.ops->grant ?
			 l->o.ops->grant(l->o.arg, g, r) : -EOPNOTSUPP;

	if (rv == 0)
		r->granted = r->open = g->unseen = true;
	return rv;
}

static int region_new(struct lend *l, struct lend_log *g,
		      const struct log_alloc *m, struct lend_region **ret)
{
	struct lend_region *r;
	uint32_t at;
	int rv = region_room(g);

	if (rv < 0)
		return rv;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->index = m->index;
	r->log2 = m->log2;
	r->end = LOG_DATA_OFF;
	r->newest = 1; /* so that the first is A */
	r->base = lend_pool_get(l->o.pool, m->log2);
	if (!r->base) {
		stats_count(&l->n.no_memory, 1);
		free(r);
		return -ENOSPC;
	}
	if (m->flags & LOG_ALLOC_VERBS)
		rv = region_grant(l, g, r);
	if (rv < 0) {
		lend_pool_put(l->o.pool, r->base);
		free(r);
		return rv;
	}
	at = region_place(g, m->index);
	memmove(g->regions + at + 1, g->regions + at,
		(g->region_count - at) * sizeof(g->regions[0]));
	g->regions[at] = r;
	g->region_count++;
	stats_count(&l->n.regions, 1);
	stats_count(&l->n.lent_bytes, UINT64_C(1) << r->log2);
	*ret = r;
	return 0;
}

/* Nobody writes it from afar any more. */
static void log_end(struct lend *l, struct lend_log *g)
{
	const struct lend_ops *ops = l->o.ops;

	if (ops && ops->end)
		ops->end(l->o.arg, g);
	for (uint32_t i = 0; i < g->region_count; i++)
		region_revoke(l, g, g->regions[i]);
}

static void log_free(struct lend *l, struct lend_ino *i, struct lend_log *g)
{
	struct lend_log **at = &i->logs;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	log_end(l, g);
	regions_free(l, g, g->region_count);
	stats_set(g->given_up ? &l->n.tombs : &l->n.logs,
		  (g->given_up ? l->n.tombs : l->n.logs) - 1);
	free(g->regions);
	free(g);
}

static void give_up(struct lend *l, struct lend_log *g, bool reclaimed)
{
	log_end(l, g);
	regions_free(l, g, g->region_count);
	g->given_up = true;
	g->reclaimed = reclaimed;
	stats_set(&l->n.logs, l->n.logs - 1);
	stats_count(&l->n.tombs, 1);
	stats_count(&l->n.given_up, 1);
	stats_count(&l->n.reclaimed, reclaimed);
}

/* ---- life ---- */

int lend_new(const struct lend_options *o, struct lend **ret)
{
	struct lend *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->o = *o;
	*ret = l;
	return 0;
}

void lend_free(struct lend *l)
{
	if (!l)
		return;
	l->o.ops = NULL;
	for (uint32_t b = 0; b < BUCKET_COUNT; b++) {
		while (l->buckets[b]) {
			struct lend_ino *i = l->buckets[b];

			while (i->logs)
				log_free(l, i, i->logs);
			i->fence = 0;
			ino_put(l, i);
		}
	}
	free(l);
}

void lend_set_now(struct lend *l, uint64_t now_ms)
{
	l->now_ms = now_ms;
}

const struct lend_stats *lend_stats(const struct lend *l)
{
	return &l->n;
}

uint64_t lend_free_bytes(const struct lend *l)
{
	return l->draining ? 0 : lend_pool_free(l->o.pool);
}

uint64_t lend_epoch_max(const struct lend *l)
{
	return l->epoch_max;
}

uint64_t lend_total_bytes(const struct lend *l)
{
	return lend_pool_total(l->o.pool);
}

bool lend_is_torn(const struct lend_log *g)
{
	for (uint32_t i = 0; i < g->region_count; i++)
		if (g->regions[i]->torn)
			return true;
	return false;
}

void lend_each(struct lend *l, void (*fn)(void *arg, struct lend_log *g),
	       void *arg)
{
	for (uint32_t b = 0; b < BUCKET_COUNT; b++)
		for (struct lend_ino *i = l->buckets[b]; i; i = i->next)
			for (struct lend_log *g = i->logs; g; g = g->next)
				fn(arg, g);
}

static void revoke_one(void *arg, struct lend_log *g)
{
	log_end(arg, g);
}

void lend_revoke_all(struct lend *l)
{
	lend_each(l, revoke_one, l);
}

/* ---- requests ---- */

static int refuse(uint64_t *counter, int err)
{
	stats_count(counter, 1);
	return err;
}

/* Puts it in the place of the older one, and its checksum last: somebody may
 * read this memory now. */
static void slot_put(struct lend_region *r, const struct log_slot *slot,
		     const void *slot_bytes)
{
	const size_t body = LOG_SLOT_SIZE - sizeof(uint32_t);
	uint8_t *to;
	uint32_t crc;

	r->newest ^= 1;
	to = r->base + r->newest * LOG_SLOT_SIZE;
	memcpy(to, slot_bytes, body);
	memcpy(&crc, (const uint8_t *)slot_bytes + body, sizeof(crc));
	__atomic_store_n((uint32_t *)(void *)(to + body), crc,
			 __ATOMIC_RELEASE);
	r->end = slot->end;
	r->seq = slot->seq;
}

/* *s: the newest of its slots. 0; -ENODATA: none yet; -EBADMSG: one is damaged,
 * or of another region: nothing of it is to be believed, or covered up. */
static int region_slot(struct lend_region *r, struct log_slot *s)
{
	int rv = -ENODATA;

	for (uint8_t i = 0; i < LOG_SLOT_COUNT; i++) {
		struct log_slot t;
		int err = log_slot_decode(r->base + i * LOG_SLOT_SIZE, &t);

		if (err == -ENODATA)
			continue;
		if (err < 0 || t.index != r->index || t.end > 1u << r->log2)
			return -EBADMSG;
		if (rv == 0 && t.seq < s->seq)
			continue;
		*s = t;
		r->newest = i;
		rv = 0;
	}
	return rv;
}

/* What somebody wrote from afar we did not see happen. */
static void region_look(struct lend_region *r)
{
	uint8_t bytes[LOG_SLOT_SIZE];
	struct log_slot s;
	struct log_rec rec;
	uint64_t shown;
	int64_t size;

	if (!r->granted || region_slot(r, &s) < 0)
		return;
	r->end = s.end;
	r->seq = shown = s.seq;
	for (;;) {
		size = log_rec_decode(r->base + s.end, (1u << r->log2) - s.end,
				      &rec);
		r->torn = size < 0 || (size > 0 && rec.seq != s.seq + 1);
		if (size <= 0 || r->torn)
			break;
		s.end += (uint32_t)size;
		s.seq++;
		s.length = log_rec_length(&rec, s.length);
	}
	if (s.seq == shown)
		return;
	log_slot_encode(&s, bytes);
	slot_put(r, &s, bytes);
}

static bool log_open(const struct lend_log *g)
{
	for (uint32_t i = 0; g->unseen && i < g->region_count; i++)
		if (g->regions[i]->open)
			return true;
	return false;
}

/* Once it is not open. */
static void log_look(struct lend_log *g)
{
	for (uint32_t i = 0; g->unseen && i < g->region_count; i++)
		region_look(g->regions[i]);
	g->unseen = false;
}

/* Ends what the log's writer has. */
static void log_fence(struct lend *l, struct lend_log *g)
{
	if (g->fenced)
		return;
	g->fenced = true;
	log_end(l, g);
	if (l->o.ops && l->o.ops->fenced)
		l->o.ops->fenced(l->o.arg, g);
	stats_count(&l->n.cut, 1);
}

/* The log of @data_epoch, which @session may change in @epoch: the only one who
 * may from now on. */
static int log_mine(struct lend *l, uint64_t session, uint64_t ino,
		    uint64_t epoch, uint64_t data_epoch, struct lend_log **ret)
{
	struct lend_ino *i = ino_find(l, ino);
	struct lend_log *g = log_of(i, data_epoch);

	if (i && i->fence > epoch)
		return refuse(&l->n.stale, -ESTALE);
	if (!g)
		return -ENOENT; /* for some that is no refusal */
	if (g->writer > epoch || (g->writer == epoch && g->session != session))
		return refuse(&l->n.stale, -ESTALE);
	if (g->given_up)
		return refuse(&l->n.gone, -EIDRM);
	if (g->writer < epoch) {
		log_fence(l, g);
		g->fenced = false;
		g->writer = epoch;
		g->session = session;
	}
	*ret = g;
	return 0;
}

static bool name_ok(uint64_t ino, uint64_t epoch)
{
	return ino > 0 && ino <= INO_MAX && epoch > 0;
}

/* The same region again, perhaps for another writer. */
static int alloc_again(struct lend *l, struct lend_log *g,
		       struct lend_region *r, const struct log_alloc *m)
{
	if (r->log2 != m->log2)
		return -EEXIST;
	if (m->flags & LOG_ALLOC_VERBS && !r->open)
		return region_grant(l, g, r);
	return 0;
}

int lend_alloc(struct lend *l, uint64_t session, const struct log_alloc *m,
	       const struct lend_region **ret)
{
	struct lend_region *r = NULL;
	struct lend_log *g = NULL;
	struct lend_ino *i;
	int rv;

	if (!name_ok(m->ino, m->data_epoch) || m->epoch < m->data_epoch ||
	    m->flags & ~LOG_ALLOC_VERBS || m->log2 < LOG_REGION_LOG2_MIN ||
	    m->log2 > LOG_REGION_LOG2_MAX || m->index == LOG_FREE_ALL)
		return -EINVAL;
	rv = log_mine(l, session, m->ino, m->epoch, m->data_epoch, &g);
	if (rv < 0 && rv != -ENOENT)
		return rv;
	if (rv == 0)
		r = region_find(g, m->index);
	if (r) {
		heard(l, g);
		*ret = r;
		return alloc_again(l, g, r, m);
	}
	/* Who recovers a log gives a majority what it lacks, then frees it. */
	if ((l->draining && m->epoch == m->data_epoch) ||
	    (g && g->region_count >= LOG_REGION_COUNT_MAX))
		return refuse(&l->n.no_memory, -ENOSPC);
	rv = ino_get(l, m->ino, &i);
	if (rv < 0)
		return rv;
	if (!g)
		rv = log_new(l, i, m, session, &g);
	if (rv == 0)
		rv = region_new(l, g, m, &r);
	if (rv < 0) {
		if (g && g->region_count == 0 && !g->given_up)
			log_free(l, i, g);
		ino_put(l, i);
		return rv;
	}
	heard(l, g);
	l->epoch_max = u64_max(l->epoch_max, m->epoch);
	stats_count(&l->n.allocs, 1);
	*ret = r;
	return 0;
}

/* The number its next record has to have; 0: any (its region before is not
 * here). Behind an empty region there is none: who recovers would take that for
 * damage. */
static uint64_t seq_wanted(const struct lend_log *g,
			   const struct lend_region *r)
{
	const struct lend_region *before;

	if (r->seq > 0)
		return r->seq + 1;
	if (r->index == 0)
		return 1;
	before = region_find(g, r->index - 1);
	return before ? before->seq + 1 : 0;
}

static uint64_t first_seq(const uint8_t *data, uint32_t len)
{
	struct log_rec rec;

	return log_rec_decode(data, len, &rec) > 0 ? rec.seq : 0;
}

/* Does @slot say what the data says? @data: what is new, from r->end on. */
static int check_new(const struct lend_log *g, const struct lend_region *r,
		     const struct log_slot *slot, const uint8_t *data,
		     uint32_t len)
{
	uint64_t seq = seq_wanted(g, r), next;

	if (seq == 0)
		seq = first_seq(data, len);
	if (seq == 0 || log_rec_walk(data, 0, len, seq, NULL, NULL, &next) < 0)
		return -EBADMSG;
	return slot->seq == next - 1 ? 0 : -EBADMSG;
}

static int check_slot(const struct lend *l, const struct log_write *m,
		      const struct lend_region *r, uint32_t len,
		      struct log_slot *slot)
{
	if (m->slot.len != LOG_SLOT_SIZE ||
	    log_slot_decode(m->slot.p, slot) < 0 ||
	    slot->cluster_id != l->o.cluster_id || slot->ino != m->ino ||
	    slot->epoch != m->data_epoch || slot->index != m->index)
		return -EBADMSG;
	if (len == 0 || len % LOG_REC_ALIGN || m->off < LOG_DATA_OFF ||
	    m->off % LOG_REC_ALIGN ||
	    (uint64_t)m->off + len > UINT64_C(1) << r->log2 ||
	    slot->end != m->off + len)
		return -EBADMSG;
	return 0;
}

/* First the records, then the slot that says that they are there. */
static void put(struct lend_region *r, const struct log_slot *slot,
		const void *slot_bytes, const uint8_t *data, uint32_t len)
{
	memcpy(r->base + r->end, data, len);
	slot_put(r, slot, slot_bytes);
	r->torn = false;
}

static int write_region(struct lend *l, const struct lend_log *g,
			struct lend_region *r, const struct log_write *m,
			const uint8_t *data, uint32_t len)
{
	struct log_slot slot;
	uint32_t old;
	int rv = check_slot(l, m, r, len, &slot);

	if (rv < 0)
		return refuse(&l->n.damaged, rv);
	if (m->off > r->end)
		return refuse(&l->n.gaps, -EPROTO);
	/* What is here already, whole or in part, has to be the same. */
	old = (uint32_t)u64_min(r->end - m->off, len);
	if (memcmp(r->base + m->off, data, old) != 0)
		return refuse(&l->n.gaps, -EPROTO);
	if (old == len) {
		stats_count(&l->n.duplicates, 1);
		return 0;
	}
	rv = check_new(g, r, &slot, data + old, len - old);
	if (rv < 0)
		return refuse(&l->n.damaged, rv);
	put(r, &slot, m->slot.p, data + old, len - old);
	stats_count(&l->n.writes, 1);
	stats_count(&l->n.bytes, len - old);
	return 0;
}

int lend_writer_log(struct lend *l, uint64_t session, uint64_t ino,
		    uint64_t epoch, struct lend_log **ret)
{
	int rv = log_mine(l, session, ino, epoch, epoch, ret);

	if (rv == -ENOENT)
		return refuse(&l->n.missing, rv);
	if (rv == 0)
		heard(l, *ret);
	return rv;
}

int lend_write(struct lend *l, uint64_t session, const struct log_write *m,
	       const uint8_t *data, uint32_t len)
{
	struct lend_log *g;
	struct lend_region *r;
	int rv = log_mine(l, session, m->ino, m->epoch, m->data_epoch, &g);

	if (rv < 0 && rv != -ENOENT)
		return rv;
	r = rv == 0 ? region_find(g, m->index) : NULL;
	if (!r)
		return refuse(&l->n.missing, -ENOENT);
	heard(l, g);
	if (log_open(g))
		log_end(l, g);
	log_look(g);
	return write_region(l, g, r, m, data, len);
}

int lend_fence(struct lend *l, const struct log_fence *m,
	       const struct lend_log **ret)
{
	struct lend_ino *i;
	int rv;

	if (!name_ok(m->ino, m->epoch) || m->data_epoch == 0 ||
	    m->data_epoch > m->epoch)
		return -EINVAL;
	i = ino_find(l, m->ino);
	if (i && m->epoch < i->fence)
		return refuse(&l->n.stale, -ESTALE);
	rv = ino_get(l, m->ino, &i);
	if (rv < 0)
		return rv;
	i->fence = m->epoch;
	i->fence_data = m->data_epoch;
	i->heard_ms = l->now_ms;
	i->asked = false;
	for (struct lend_log *g = i->logs; g; g = g->next) {
		heard(l, g);
		if (g->writer < m->epoch)
			log_fence(l, g);
		if (!log_open(g))
			log_look(g);
	}
	l->epoch_max = u64_max(l->epoch_max, m->epoch);
	stats_count(&l->n.fences, 1);
	*ret = log_of(i, m->data_epoch);
	return 0;
}

int lend_read(struct lend *l, const struct log_read *m, const uint8_t **ret)
{
	struct lend_ino *i = ino_find(l, m->ino);
	struct lend_log *g = log_of(i, m->data_epoch);
	const struct lend_region *r;

	if (i && m->epoch < i->fence)
		return refuse(&l->n.stale, -ESTALE);
	if (g && g->given_up)
		return refuse(&l->n.gone, -EIDRM);
	r = g ? region_find(g, m->index) : NULL;
	if (!r)
		return refuse(&l->n.missing, -ENOENT);
	if (m->len == 0 || m->len > FRAME_DATA_MAX ||
	    (uint64_t)m->off + m->len > UINT64_C(1) << r->log2)
		return -EINVAL;
	heard(l, g);
	stats_count(&l->n.reads, 1);
	stats_count(&l->n.read_bytes, m->len);
	*ret = r->base + m->off;
	return 0;
}

/* All that is known of @i up to @epoch, but its fence: a writer that does not
 * know that it is dead, nor do we, would begin anew at a majority. */
static void release_all(struct lend *l, struct lend_ino *i, uint64_t epoch)
{
	struct lend_log *g = i->logs, *next;

	for (; g; g = next) {
		next = g->next;
		if (g->writer <= epoch)
			log_free(l, i, g);
	}
	ino_put(l, i);
}

int lend_release(struct lend *l, const struct log_free *m)
{
	struct lend_ino *i = ino_find(l, m->ino);
	struct lend_log *g;

	if (m->epoch < m->data_epoch)
		return -EINVAL;
	if (i && m->epoch < i->fence)
		return refuse(&l->n.stale, -ESTALE);
	stats_count(&l->n.frees, 1);
	if (!i)
		return 0;
	if (m->below == LOG_FREE_ALL) {
		release_all(l, i, m->epoch);
		return 0;
	}
	g = log_of(i, m->data_epoch);
	if (g && m->epoch < g->writer)
		return refuse(&l->n.stale, -ESTALE);
	if (g) {
		heard(l, g);
		regions_free(l, g, region_place(g, m->below));
	}
	return 0;
}

/* ---- taking back ---- */

void lend_drain(struct lend *l, uint64_t until_ms)
{
	l->draining = true;
	l->until_ms = until_ms;
}

void lend_drain_end(struct lend *l)
{
	l->draining = false;
	l->until_ms = 0;
}

bool lend_draining(const struct lend *l)
{
	return l->draining;
}

uint64_t lend_wanted_ms(const struct lend *l)
{
	return l->until_ms;
}

bool lend_is_wanted(const struct lend *l, const struct lend_log *g)
{
	return g->given_up ? g->reclaimed : l->draining;
}

struct expiry {
	struct lend *l;
	uint32_t count;
};

static void expire_one(void *arg, struct lend_log *g)
{
	struct expiry *x = arg;
	const struct lend_options *o = &x->l->o;

	if (g->given_up)
		return;
	/* One that is being recovered has no other place, and ends soon. */
	if (g->writer > g->epoch)
		return;
	if (o->ops && o->ops->hears && !o->ops->hears(o->arg, g))
		return;
	give_up(x->l, g, true);
	x->count++;
}

uint32_t lend_expire(struct lend *l)
{
	struct expiry x = { .l = l };

	if (!l->draining || l->until_ms == 0 || l->now_ms < l->until_ms)
		return 0;
	l->until_ms = 0;
	lend_each(l, expire_one, &x);
	return x.count;
}

/* ---- collecting ---- */

static bool is_due(const struct lend *l, uint64_t heard_ms, uint64_t asked_ms,
		   uint64_t idle_ms)
{
	return l->now_ms - heard_ms >= idle_ms &&
	       (asked_ms == 0 || l->now_ms - asked_ms >= idle_ms);
}

static uint32_t ask_ino(struct lend *l, struct lend_ino *i, uint64_t idle_ms,
			struct log_name *names, uint32_t max)
{
	uint32_t count = 0;

	for (struct lend_log *g = i->logs; g && count < max; g = g->next) {
		if (!is_due(l, g->heard_ms, g->asked_ms, idle_ms))
			continue;
		g->asked = true;
		g->asked_ms = l->now_ms;
		names[count++] = (struct log_name){ i->ino, g->epoch };
	}
	if (!i->logs && count < max &&
	    is_due(l, i->heard_ms, i->asked_ms, idle_ms)) {
		i->asked = true;
		i->asked_ms = l->now_ms;
		names[count++] = (struct log_name){ i->ino, i->fence_data };
	}
	return count;
}

uint32_t lend_ask(struct lend *l, uint64_t idle_ms, struct log_name *names,
		  uint32_t max)
{
	uint32_t count = 0;

	for (uint32_t b = 0; b < BUCKET_COUNT && count < max; b++)
		for (struct lend_ino *i = l->buckets[b]; i; i = i->next)
			count += ask_ino(l, i, idle_ms, names + count,
					 max - count);
	return count;
}

void lend_judge(struct lend *l, uint64_t ino, uint64_t epoch,
		enum meta_log_verdict verdict)
{
	struct lend_ino *i = ino_find(l, ino);
	struct lend_log *g = log_of(i, epoch);

	if (g && g->asked && verdict == META_LOG_UNLISTED) {
		if (!g->given_up)
			give_up(l, g, false);
	} else if (g && g->asked && verdict == META_LOG_UNKNOWN) {
		log_free(l, i, g);
		stats_count(&l->n.collected, 1);
		ino_put(l, i);
	} else if (i && !g && i->asked && i->fence_data == epoch &&
		   verdict == META_LOG_UNKNOWN) {
		i->fence = 0;
		stats_count(&l->n.collected, 1);
		ino_put(l, i);
	}
}
