/* The writer of one log. */
#include "fuse/core/log_writer.h"

static uint32_t region_size(const struct log_writer *w)
{
	return 1u << w->log2;
}

static bool region_empty(const struct log_region_mirror *r)
{
	return r->seq_last < r->seq_first;
}

static struct log_region_mirror *region_at(const struct log_writer *w,
					   uint32_t index)
{
	if (index < w->region_first ||
	    index - w->region_first >= w->region_count)
		return NULL;
	return &w->regions[index - w->region_first];
}

/* ---- life ---- */

static struct log_writer_peer *peer_add(struct log_writer *w,
					struct log_writer_peer_id id)
{
	struct log_writer_peer *p = w->peers;

	while (p->state != LOG_PEER_UNUSED)
		p++;
	assert(p < w->peers + LOG_WRITER_PEER_MAX);
	memset(p, 0, sizeof(*p));
	p->state = LOG_PEER_DOWN;
	p->in_new = true;
	p->id = id.id;
	p->boot_id = id.boot_id;
	p->acked.index = w->region_first;
	p->acked.off = LOG_DATA_OFF;
	p->sent = p->acked;
	return p;
}

void log_writer_init(struct log_writer *w, uint64_t cluster_id, uint64_t ino,
		     uint64_t epoch, uint32_t version, uint8_t log2,
		     const struct log_writer_peer_id *peers, uint8_t peer_count,
		     uint64_t length)
{
	assert(peer_count > 0 && peer_count <= LOG_PEER_COUNT_MAX);
	assert(log2 >= LOG_REGION_LOG2_MIN && log2 <= LOG_REGION_LOG2_MAX);
	memset(w, 0, sizeof(*w));
	w->cluster_id = cluster_id;
	w->ino = ino;
	w->epoch = epoch;
	w->version = version;
	w->log2 = log2;
	w->peer_count = peer_count;
	w->length = length;
	for (uint32_t i = 0; i < peer_count; i++)
		peer_add(w, peers[i])->in_old = true;
}

void log_writer_fini(struct log_writer *w)
{
	free(w->regions);
	w->regions = NULL;
	w->region_count = w->region_cap = 0;
}

/* ---- the stream ---- */

bool log_writer_region_wanted(const struct log_writer *w)
{
	const struct log_region_mirror *r;

	if (w->sealed || w->region_count == LOG_REGION_COUNT_MAX)
		return false;
	if (w->region_count == 0)
		return true;
	r = &w->regions[w->region_count - 1];
	return r->end >= region_size(w) / 2;
}

int log_writer_region_add(struct log_writer *w, uint8_t *base)
{
	struct log_region_mirror *r;

	if (w->region_count == LOG_REGION_COUNT_MAX)
		return -ENOSPC;
	if (w->region_count == w->region_cap) {
		uint32_t cap = w->region_cap ? 2 * w->region_cap : 4;

		r = realloc(w->regions, cap * sizeof(*r));
		if (!r)
			return -ENOMEM;
		w->regions = r;
		w->region_cap = cap;
	}
	r = &w->regions[w->region_count];
	memset(r, 0, sizeof(*r));
	r->base = base;
	r->index = w->region_first + w->region_count++;
	r->end = LOG_DATA_OFF;
	r->seq_first = 1;
	return 0;
}

/* Where a record of @size bytes goes: behind the last one, or else into the
 * region after that. NULL: neither has room. */
static struct log_region_mirror *region_for(const struct log_writer *w,
					    uint32_t size)
{
	uint32_t i = w->region_count;

	while (i > 1 && region_empty(&w->regions[i - 1]))
		i--;
	for (i = i ? i - 1 : 0; i < w->region_count; i++)
		if (region_size(w) - w->regions[i].end >= size)
			return &w->regions[i];
	return NULL;
}

int log_writer_append(struct log_writer *w, struct log_rec *r)
{
	struct log_region_mirror *m;

	if (w->sealed)
		return -EIO;
	if (r->len > log_rec_len_max(w->log2))
		return -EMSGSIZE;
	m = region_for(w, log_rec_size(r->len));
	if (!m)
		return -ENOSPC;
	r->seq = w->seq + 1;
	if (region_empty(m)) {
		m->seq_first = r->seq;
		m->length_first = w->length;
	}
	log_rec_encode(r, m->base + m->end);
	m->end += log_rec_size(r->len);
	m->seq_last = w->seq = r->seq;
	w->length = log_rec_length(r, w->length);
	return 0;
}

uint32_t log_writer_room(const struct log_writer *w)
{
	const struct log_region_mirror *m = region_for(w, LOG_REC_HEADER + 1);
	const struct log_region_mirror *last;
	uint32_t room;

	if (!m || w->sealed)
		return 0;
	/* The region behind it has nothing in it, and so no less room. */
	last = &w->regions[w->region_count - 1];
	room = region_size(w) - (uint32_t)u64_min(m->end, last->end);
	return room - LOG_REC_HEADER;
}

/* Is memory of this region being sent from? */
static bool region_busy(const struct log_writer *w, uint32_t index)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &w->peers[i];

		if (p->post_count > 0 && p->posts[0].index <= index)
			return true;
	}
	return false;
}

uint8_t *log_writer_trim(struct log_writer *w, uint64_t seq)
{
	struct log_region_mirror *r = w->regions;
	uint8_t *base;

	/* With the second one empty this is the last that shows anything. */
	if (w->region_count < 2 || region_empty(&r[1]) ||
	    r->seq_last > u64_min(seq, w->committed) ||
	    region_busy(w, r->index))
		return NULL;
	base = r->base;
	w->region_count--;
	w->region_first++;
	memmove(r, r + 1, w->region_count * sizeof(*r));
	return base;
}

void log_writer_seal(struct log_writer *w)
{
	w->sealed = true;
}

/* ---- what is committed ---- */

static bool on_list(const struct log_writer_peer *p, bool of_new)
{
	return of_new ? p->in_new : p->in_old;
}

/* The last record that a majority of a list has. */
static uint64_t list_committed(const struct log_writer *w, bool of_new)
{
	uint64_t best = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		uint64_t seq = w->peers[i].acked.seq;
		uint32_t count = 0;

		for (uint32_t j = 0; j < LOG_WRITER_PEER_MAX; j++) {
			const struct log_writer_peer *p = &w->peers[j];

			count += on_list(p, of_new) &&
				 p->state != LOG_PEER_FAILED &&
				 p->acked.seq >= seq;
		}
		if (count > w->peer_count / 2u && seq > best)
			best = seq;
	}
	return best;
}

static void commit(struct log_writer *w)
{
	uint64_t seq;

	if (w->sealed)
		return;
	seq = list_committed(w, false);
	if (w->replacing)
		seq = u64_min(seq, list_committed(w, true));
	w->committed = u64_max(w->committed, seq);
}

/* ---- peers: what happened ---- */

int log_writer_find(const struct log_writer *w, uint32_t id)
{
	int found = -ENOENT;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &w->peers[i];

		if (p->state != LOG_PEER_UNUSED && p->id == id &&
		    (found < 0 || p->in_new))
			found = (int)i;
	}
	return found;
}

void log_writer_up(struct log_writer *w, uint32_t peer, uint64_t boot_id)
{
	struct log_writer_peer *p = &w->peers[peer];

	assert(p->state != LOG_PEER_UNUSED);
	if (p->state == LOG_PEER_FAILED)
		return;
	log_writer_down(w, peer);
	if (p->boot_id == boot_id)
		p->state = LOG_PEER_UP;
	else
		log_writer_fail(w, peer);
}

void log_writer_down(struct log_writer *w, uint32_t peer)
{
	struct log_writer_peer *p = &w->peers[peer];

	assert(p->state != LOG_PEER_UNUSED);
	if (p->state != LOG_PEER_UP)
		return;
	p->state = LOG_PEER_DOWN;
	p->again_count += p->post_count;
	p->post_count = 0;
	p->sent = p->acked;
	p->alloc_busy = false;
	/* What was said last may not have arrived. */
	p->freed_below = 0;
}

void log_writer_fail(struct log_writer *w, uint32_t peer)
{
	struct log_writer_peer *p = &w->peers[peer];

	assert(p->state != LOG_PEER_UNUSED);
	p->state = LOG_PEER_FAILED;
	p->post_count = p->again_count = 0;
	p->alloc_busy = false;
}

void log_writer_alloc_done(struct log_writer *w, uint32_t peer, uint32_t index,
			   int err)
{
	struct log_writer_peer *p = &w->peers[peer];

	if (p->state != LOG_PEER_UP || !p->alloc_busy || index != p->alloc_next)
		return;
	p->alloc_busy = false;
	if (!err)
		p->alloc_next++;
}

void log_writer_acked(struct log_writer *w, const struct log_post *post)
{
	struct log_writer_peer *p = &w->peers[post->peer];
	uint32_t left = p->post_count + p->again_count - 1;

	assert(p->state == LOG_PEER_UP && p->post_count > 0);
	assert(p->posts[0].seq == post->seq);
	p->acked = p->posts[0];
	p->post_count--;
	memmove(p->posts, p->posts + 1, left * sizeof(p->posts[0]));
	commit(w);
}

/* ---- peers: what is to be done ---- */

/* A peer that has not the record before the first one alive cannot go on where
 * it is: it starts again with the first region. What it has by then is behind
 * what is committed, so nobody counts on it. */
static void start_again(struct log_writer *w, struct log_writer_peer *p)
{
	if (w->region_count == 0 || p->post_count > 0 ||
	    p->sent.index >= w->region_first ||
	    p->sent.seq + 1 >= w->regions[0].seq_first)
		return;
	while (p->again_count > 0 && p->posts[0].index < w->region_first) {
		p->again_count--;
		p->posts[0] = p->posts[1];
	}
	p->acked = (struct log_pos){ .index = w->region_first,
				     .off = LOG_DATA_OFF };
	p->sent = p->acked;
}

/* Regions below this one are of no use at @p: those that are trimmed, but not
 * the last in which it shows anything. */
static uint32_t free_below(const struct log_writer *w,
			   const struct log_writer_peer *p)
{
	return (uint32_t)u64_min(w->region_first, p->acked.index);
}

static bool free_due(const struct log_writer *w,
		     const struct log_writer_peer *p)
{
	return free_below(w, p) > p->freed_below;
}

bool log_writer_free_next(struct log_writer *w, uint32_t peer, uint32_t *below)
{
	struct log_writer_peer *p = &w->peers[peer];

	if (p->state != LOG_PEER_UP || w->sealed)
		return false;
	start_again(w, p);
	if (!free_due(w, p))
		return false;
	p->freed_below = *below = free_below(w, p);
	return true;
}

bool log_writer_alloc_next(struct log_writer *w, uint32_t peer, uint32_t *index)
{
	struct log_writer_peer *p = &w->peers[peer];

	if (p->state != LOG_PEER_UP || p->alloc_busy || w->sealed)
		return false;
	start_again(w, p);
	if (free_due(w, p))
		return false;
	if (p->alloc_next < w->region_first)
		p->alloc_next = w->region_first;
	if (!region_at(w, p->alloc_next))
		return false;
	p->alloc_busy = true;
	*index = p->alloc_next;
	return true;
}

/* The region where @p goes on, with its position there. */
static const struct log_region_mirror *
post_region(const struct log_writer *w, const struct log_writer_peer *p,
	    struct log_pos *from)
{
	const struct log_region_mirror *r = region_at(w, p->sent.index);

	*from = p->sent;
	if (!r || p->sent.off == r->end) {
		/* Behind it, or behind one that is trimmed. */
		r = region_at(w, p->sent.index + 1);
		if (!r)
			return NULL;
		from->off = LOG_DATA_OFF;
	}
	if (from->off == r->end || r->index >= p->alloc_next)
		return NULL;
	from->index = r->index;
	if (from->off == LOG_DATA_OFF) {
		from->seq = r->seq_first - 1;
		from->length = r->length_first;
	}
	return r;
}

/* Moves @to over whole records, at least one, as far as a post may go. */
static void post_extend(const struct log_region_mirror *r, struct log_pos *to)
{
	uint32_t begin = to->off;

	while (to->off < r->end) {
		struct log_rec rec;
		uint32_t size = log_rec_peek(r->base + to->off, &rec);

		if (to->off > begin &&
		    to->off - begin + size > LOG_WRITER_POST_BYTES)
			break;
		to->off += size;
		to->seq = rec.seq;
		to->length = log_rec_length(&rec, to->length);
	}
}

/* The first records of a region need one, to show whose they are; those behind
 * prove themselves, and a slot now and then keeps them few. */
static void post_slot(const struct log_pos *from, struct log_pos *to)
{
	if (from->off == LOG_DATA_OFF)
		to->slot = 0;
	else if (to->off - from->slot_end >= LOG_WRITER_SLOT_BYTES)
		to->slot = !from->slot;
	else
		return;
	to->slot_end = to->off;
}

bool log_writer_post_next(struct log_writer *w, uint32_t peer,
			  struct log_post *post)
{
	struct log_writer_peer *p = &w->peers[peer];
	const struct log_region_mirror *r;
	struct log_pos from, to;
	struct log_slot slot;

	if (p->state != LOG_PEER_UP || p->post_count == LOG_WRITER_POST_MAX ||
	    w->sealed)
		return false;
	start_again(w, p);
	if (free_due(w, p))
		return false;
	r = post_region(w, p, &from);
	if (!r)
		return false;
	to = from;
	if (p->again_count > 0) {
		to = p->posts[p->post_count];
		p->again_count--;
	} else {
		post_extend(r, &to);
		post_slot(&from, &to);
	}
	p->posts[p->post_count++] = to;
	p->sent = to;
	slot = (struct log_slot){ .cluster_id = w->cluster_id,
				  .ino = w->ino,
				  .epoch = w->epoch,
				  .seq = to.seq,
				  .length = to.length,
				  .length_first = r->length_first,
				  .index = to.index,
				  .end = to.off };
	*post = (struct log_post){ .peer = peer,
				   .index = to.index,
				   .off = from.off,
				   .len = to.off - from.off,
				   .data = r->base + from.off,
				   .slot_due = to.slot_end == to.off,
				   .slot_off = to.slot * LOG_SLOT_SIZE,
				   .seq = to.seq,
				   .length = to.length };
	log_slot_encode(&slot, post->slot);
	return true;
}

static bool in_front(const struct log_writer *w, uint32_t i, uint32_t j)
{
	uint64_t a = w->peers[i].acked.seq, b = w->peers[j].acked.seq;

	return w->peers[i].state == LOG_PEER_UP && (a > b || (a == b && i < j));
}

bool log_writer_spare(const struct log_writer *w, uint32_t peer)
{
	uint32_t front = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		front += i != peer && in_front(w, i, peer);
	return !w->replacing && front > w->peer_count / 2u;
}

uint32_t log_writer_behind(const struct log_writer *w, uint32_t peer)
{
	const struct log_pos *sent = &w->peers[peer].sent;
	const struct log_region_mirror *r = region_at(w, sent->index);

	return r && r->seq_last == w->seq ? r->end - sent->off : UINT32_MAX;
}

bool log_writer_majority(const struct log_writer *w)
{
	uint32_t old = 0, new = 0;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &w->peers[i];

		old += p->state == LOG_PEER_UP && p->in_old;
		new += p->state == LOG_PEER_UP && p->in_new;
	}
	return old > w->peer_count / 2u && new > w->peer_count / 2u;
}

/* ---- replacing one ---- */

int log_writer_replace(struct log_writer *w, uint32_t victim,
		       struct log_writer_peer_id with)
{
	struct log_writer_peer *v = &w->peers[victim], *p;

	assert(v->state != LOG_PEER_UNUSED && v->in_old);
	if (w->sealed)
		return -EIO;
	if (w->replacing)
		return -EBUSY;
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		p = &w->peers[i];
		if (p->state != LOG_PEER_UNUSED && p->id == with.id &&
		    (p != v || p->boot_id == with.boot_id))
			return -EEXIST;
	}
	if (v->id == with.id)
		log_writer_fail(w, victim);
	v->in_new = false;
	w->replacing = true;
	return (int)(peer_add(w, with) - w->peers);
}

bool log_writer_replace_ready(const struct log_writer *w)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &w->peers[i];

		if (p->in_new && !p->in_old)
			return p->state != LOG_PEER_FAILED &&
			       p->acked.seq >= w->committed;
	}
	return false;
}

void log_writer_list_new(const struct log_writer *w,
			 struct log_writer_peer_id *ids)
{
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *p = &w->peers[i];

		if (p->in_new)
			*ids++ = (struct log_writer_peer_id){ p->id,
							      p->boot_id };
	}
}

void log_writer_replace_end(struct log_writer *w, bool published,
			    uint32_t version)
{
	assert(w->replacing);
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		struct log_writer_peer *p = &w->peers[i];

		if (!on_list(p, published))
			memset(p, 0, sizeof(*p));
		else
			p->in_old = p->in_new = true;
	}
	w->replacing = false;
	if (published)
		w->version = version;
	commit(w);
}

/* ---- a log that was read ---- */

static int load_length(void *length, const struct log_rec *r)
{
	*(uint64_t *)length = log_rec_length(r, *(uint64_t *)length);
	return 0;
}

int log_writer_load_region(struct log_writer *w, uint8_t *base, uint32_t index,
			   uint32_t end, uint64_t length_first)
{
	struct log_region_mirror *r;
	struct log_rec rec;
	uint64_t seq;
	int err;

	if (log_rec_decode(base + LOG_DATA_OFF, end - LOG_DATA_OFF, &rec) <= 0)
		return -EBADMSG;
	if (w->region_count > 0 &&
	    (index != w->region_first + w->region_count ||
	     rec.seq != w->seq + 1))
		return -EBADMSG;
	w->length = length_first;
	err = log_rec_walk(base, LOG_DATA_OFF, end, rec.seq, load_length,
			   &w->length, &seq);
	if (err)
		return err;
	if (w->region_count == 0)
		w->region_first = index;
	err = log_writer_region_add(w, base);
	if (err)
		return err;
	r = &w->regions[w->region_count - 1];
	r->end = end;
	r->seq_first = rec.seq;
	r->seq_last = w->seq = seq - 1;
	r->length_first = length_first;
	return 0;
}

void log_writer_load_peer(struct log_writer *w, uint32_t peer,
			  const struct log_pos *at)
{
	struct log_writer_peer *p = &w->peers[peer];

	p->acked = p->sent = *at;
	p->alloc_next = at->index + 1;
	commit(w);
}
