/* Every interleaving of a small log: a writer with a few records, three peers
 * and a spare one, a replacement, a recovery while the writer goes on, a peer
 * that loses its memory, a connection that breaks, a recovery that dies.
 *
 * Method: depth first over the real log_writer and log_choose and the smallest
 * peers and registry that keep their promises, each state once. Checked at each
 * step: tests/sim/sim_log.c has the rules, and everything that this leaves out.
 */
#include "fuse/core/log_choose.h"
#include "fuse/core/log_writer.h"

#include <xxhash.h>

#define PEERS 4u /* the last is the spare one */
#define LISTED 3u
#define LOG2 LOG_REGION_LOG2_MIN
#define EPOCH 1u
#define SEEN_LOG2 23u

/* What may happen, how often. */
struct bounds {
	const char *name;
	uint8_t records, losses, breaks, replacements, deaths;
};

static const struct bounds runs[] = {
	{ "a recovery", 3, 0, 0, 0, 0 },
	{ "two recoveries", 2, 0, 0, 0, 1 },
	{ "two recoveries, a peer lost", 2, 1, 0, 0, 1 },
	{ "a connection lost", 2, 0, 1, 0, 0 },
	{ "a replacement", 2, 0, 0, 1, 0 },
	{ "a replacement, a peer lost", 1, 1, 0, 1, 0 },
	{ "a replacement, two recoveries", 1, 0, 0, 1, 1 },
};

struct post {
	uint8_t from, to; /* records */
};

struct peer {
	uint8_t held; /* records */
	uint8_t fence; /* epoch */
	bool lost; /* the boot that is listed */
	/* Between the writer and it; what it has received it may do later. */
	uint8_t to_count, from_count;
	struct post to[2 * LOG_WRITER_POST_MAX];
	struct post from[LOG_WRITER_POST_MAX];
};

enum phase { NOT_YET, FENCE, STAGE, APPLY, DROP, DROPPED };
enum publication { UNPUBLISHED, SENT, DONE, REFUSED };

struct state {
	struct log_writer w;
	struct log_region_mirror region;
	bool writing; /* it has not noticed that it is dead */
	struct bounds left;
	uint8_t acked; /* records: told so */
	struct peer peers[PEERS];
	/* the registry */
	uint8_t epoch;
	uint8_t list[LISTED];
	uint8_t set_list[LISTED];
	enum publication set;
	/* the recovery */
	enum phase phase;
	enum log_answer_state answers[LISTED];
	uint8_t seqs[LISTED];
	uint8_t chosen; /* records */
	uint8_t blocks; /* records that are in them, some or all */
};

static uint8_t mirror[1u << LOG2];
static uint64_t *seen;
static uint64_t states, steps, losses;
/* The way here. */
static const char *path[256];
static uint32_t depth;

static void fail(const char *why)
{
	printf("not ok - %s, after", why);
	for (uint32_t i = 0; i < depth; i++)
		printf(" %s;", path[i]);
	printf("\n");
	exit(1);
}

/* ---- states ---- */

static void key_put(uint8_t **to, uint64_t v)
{
	*(*to)++ = (uint8_t)v;
}

/* All that matters, a byte each. */
static uint64_t key(const struct state *s)
{
	uint8_t buf[512], *p = buf;

	key_put(&p, s->writing);
	key_put(&p, s->w.seq);
	key_put(&p, s->w.committed);
	key_put(&p, s->w.replacing);
	key_put(&p, s->acked);
	key_put(&p, s->left.losses);
	key_put(&p, s->left.breaks);
	key_put(&p, s->left.replacements);
	key_put(&p, s->left.deaths);
	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++) {
		const struct log_writer_peer *q = &s->w.peers[i];

		key_put(&p, q->state);
		key_put(&p, q->id);
		key_put(&p, q->in_old);
		key_put(&p, q->in_new);
		key_put(&p, q->acked.seq);
		key_put(&p, q->sent.seq);
		key_put(&p, q->post_count);
		key_put(&p, q->again_count);
		for (uint32_t j = 0; j < q->post_count + q->again_count; j++)
			key_put(&p, q->posts[j].seq);
	}
	for (uint32_t i = 0; i < PEERS; i++) {
		const struct peer *q = &s->peers[i];

		key_put(&p, q->held);
		key_put(&p, q->fence);
		key_put(&p, q->lost);
		key_put(&p, q->to_count);
		key_put(&p, q->from_count);
		for (uint32_t j = 0; j < q->to_count; j++)
			key_put(&p, q->to[j].from * 16u + q->to[j].to);
		for (uint32_t j = 0; j < q->from_count; j++)
			key_put(&p, q->from[j].to);
	}
	key_put(&p, s->epoch);
	key_put(&p, s->set);
	key_put(&p, s->phase);
	key_put(&p, s->chosen);
	key_put(&p, s->blocks);
	for (uint32_t i = 0; i < LISTED; i++) {
		key_put(&p, s->list[i]);
		key_put(&p, s->set == SENT ? s->set_list[i] : 0);
		key_put(&p, s->answers[i]);
		key_put(&p, s->seqs[i]);
	}
	return XXH3_64bits(buf, (size_t)(p - buf)) | 1;
}

/* Was it here before? */
static bool visit(uint64_t k)
{
	uint64_t mask = (UINT64_C(1) << SEEN_LOG2) - 1, at = k & mask;

	while (seen[at] && seen[at] != k)
		at = (at + 1) & mask;
	if (seen[at])
		return false;
	seen[at] = k;
	if (++states > mask / 4 * 3)
		fail("a larger SEEN_LOG2");
	return true;
}

static void explore(const struct state *s);
static void pump(struct state *s);

/* One step further: @s has been changed. */
static void go(struct state *s, const char *what)
{
	steps++;
	pump(s);
	if (!visit(key(s)))
		return;
	if (depth == array_count(path))
		fail("a longer path");
	path[depth++] = what;
	explore(s);
	depth--;
}

static struct state copy(const struct state *s)
{
	struct state t = *s;

	return t;
}

/* The writer's own pointers lead into the state it is in. */
static void at_home(struct state *t)
{
	t->w.regions = &t->region;
}

#define TRY(s, t, what, ...)              \
	do {                              \
		struct state t = copy(s); \
                                          \
		at_home(&t);              \
		__VA_ARGS__;              \
		go(&t, what);             \
	} while (0)

/* ---- the writer ---- */

static void writer_stop(struct state *s)
{
	s->writing = false;
	for (uint32_t i = 0; i < PEERS; i++)
		s->peers[i].from_count = 0;
}

static void lend(struct state *s)
{
	uint32_t index;

	for (uint32_t i = 0; i < LOG_WRITER_PEER_MAX; i++)
		while (log_writer_alloc_next(&s->w, i, &index))
			log_writer_alloc_done(&s->w, i, index, 0);
}

static void append(struct state *s)
{
	struct log_rec r = { .kind = LOG_REC_SIZE, .off = s->w.seq };

	if (log_writer_append(&s->w, &r))
		fail("append");
	s->left.records--;
}

/* @i: of the peer; -ENOENT: the writer does not know it. */
static int slot_of(const struct state *s, uint32_t i)
{
	return log_writer_find(&s->w, i + 1);
}

static bool post(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[i];
	int slot = slot_of(s, i);
	uint64_t from;
	struct log_post q;

	if (slot < 0 || p->to_count == array_count(p->to))
		return false;
	from = s->w.peers[slot].sent.seq;
	if (!log_writer_post_next(&s->w, (uint32_t)slot, &q))
		return false;
	p->to[p->to_count++] = (struct post){ (uint8_t)from, (uint8_t)q.seq };
	return true;
}

/* What the writer does at once: that it may wait adds nothing but states. */
static void pump(struct state *s)
{
	for (uint32_t i = 0; i < PEERS && s->writing; i++)
		while (post(s, i))
			;
	if (!s->writing || s->acked == s->w.committed)
		return;
	s->acked = (uint8_t)s->w.committed;
	if (s->phase == DROPPED && s->acked > s->blocks)
		fail("acknowledged, and its log is gone without it");
}

static void receive_reply(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[i];
	struct log_post q = { .peer = (uint32_t)slot_of(s, i),
			      .seq = p->from[0].to };

	memmove(p->from, p->from + 1, --p->from_count * sizeof(p->from[0]));
	log_writer_acked(&s->w, &q);
}

static void reconnect(struct state *s, uint32_t i)
{
	int slot = slot_of(s, i);

	s->peers[i].from_count = 0;
	if (slot < 0)
		return;
	log_writer_down(&s->w, (uint32_t)slot);
	log_writer_up(&s->w, (uint32_t)slot, s->peers[i].lost ? 2 : 1);
	lend(s);
}

static void writer_steps(const struct state *s)
{
	if (!s->writing)
		return;
	if (s->left.records > 0)
		TRY(s, t, "append", append(&t));
	for (uint32_t i = 0; i < PEERS; i++) {
		if (s->peers[i].from_count > 0)
			TRY(s, u, "reply", receive_reply(&u, i));
		if (s->left.breaks > 0 && s->peers[i].to_count > 0)
			TRY(s, u, "break", u.left.breaks--, reconnect(&u, i));
	}
}

/* ---- replacing ---- */

static bool replace(struct state *s, uint32_t victim)
{
	struct log_writer_peer_id with = { PEERS, 1 };
	int slot = slot_of(s, victim);

	if (slot < 0 || log_writer_replace(&s->w, (uint32_t)slot, with) < 0)
		return false;
	s->left.replacements--;
	reconnect(s, PEERS - 1);
	return true;
}

static void publish(struct state *s)
{
	struct log_writer_peer_id ids[LISTED];

	log_writer_list_new(&s->w, ids);
	for (uint32_t i = 0; i < LISTED; i++)
		s->set_list[i] = (uint8_t)(ids[i].id - 1);
	s->set = SENT;
}

/* The registry: compare and set. */
static void set(struct state *s)
{
	s->set = s->epoch == EPOCH && s->phase != DROPPED ? DONE : REFUSED;
	if (s->set == DONE)
		memcpy(s->list, s->set_list, sizeof(s->list));
}

static void published(struct state *s)
{
	if (s->set == DONE)
		log_writer_replace_end(&s->w, true, 2);
	else
		writer_stop(s);
	s->set = UNPUBLISHED;
	for (uint32_t i = 0; i < PEERS; i++)
		if (slot_of(s, i) < 0)
			s->peers[i].from_count = 0;
}

static void replace_steps(const struct state *s)
{
	/* Also of a writer that is dead by now. */
	if (s->set == SENT)
		TRY(s, t, "set", set(&t));
	if (!s->writing)
		return;
	if (s->set == DONE || s->set == REFUSED)
		TRY(s, t, "published", published(&t));
	if (s->w.replacing && s->set == UNPUBLISHED &&
	    log_writer_replace_ready(&s->w))
		TRY(s, t, "publish", publish(&t));
	for (uint32_t i = 0; s->left.replacements > 0 && i < LISTED; i++) {
		struct state t = copy(s);

		at_home(&t);
		if (replace(&t, i))
			go(&t, "replace");
	}
}

/* ---- peers ---- */

static void peer_write(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[i];
	struct post q = p->to[0];

	memmove(p->to, p->to + 1, --p->to_count * sizeof(p->to[0]));
	if (p->lost)
		return;
	if (p->fence > EPOCH) {
		if (s->writing)
			writer_stop(s);
		return;
	}
	if (q.from > p->held)
		return; /* of a connection that is gone, before its turn */
	p->held = (uint8_t)u64_max(p->held, q.to);
	/* Is it still waited for? */
	if (s->writing && slot_of(s, i) >= 0) {
		const struct log_writer_peer *v = &s->w.peers[slot_of(s, i)];

		if (p->from_count < v->post_count &&
		    v->posts[p->from_count].seq == q.to)
			p->from[p->from_count++] = q;
	}
}

static void peer_lose(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[i];

	s->left.losses--;
	p->lost = true;
	p->held = 0;
	p->to_count = 0;
	if (s->writing)
		reconnect(s, i);
}

static void peer_steps(const struct state *s)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		if (s->peers[i].to_count > 0)
			TRY(s, t, "write", peer_write(&t, i));
		if (s->left.losses > 0 && !s->peers[i].lost)
			TRY(s, t, "lose", peer_lose(&t, i));
	}
}

/* ---- recovery ---- */

/* Its session is dead, for metad: the writer knows it or not. */
static void raise_epoch(struct state *s)
{
	s->epoch++;
	s->phase = FENCE;
	memset(s->answers, 0, sizeof(s->answers));
	memset(s->seqs, 0, sizeof(s->seqs));
}

static void fence(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[s->list[i]];

	p->fence = s->epoch;
	s->answers[i] = p->lost ? LOG_ANSWER_LOST : LOG_ANSWER_CONFIRMED;
	s->seqs[i] = p->held;
}

/* A majority of those that have confirmed has it all. */
static void staged(struct state *s)
{
	uint32_t have = 0;

	for (uint32_t j = 0; j < LISTED; j++)
		have += !s->peers[s->list[j]].lost &&
			s->answers[j] == LOG_ANSWER_CONFIRMED &&
			s->peers[s->list[j]].held >= s->chosen;
	if (have > LISTED / 2)
		s->phase = APPLY;
}

static bool choose(struct state *s)
{
	struct log_answer a[LISTED] = { 0 };
	uint32_t index, lost = 0;

	for (uint32_t i = 0; i < LISTED; i++) {
		a[i].state = s->answers[i];
		a[i].seq = s->seqs[i];
		lost += s->peers[s->list[i]].lost;
	}
	switch (log_choose(a, LISTED, &index)) {
	case LOG_CHOICE_WAIT:
	case LOG_CHOICE_TORN: /* never */
		return false;
	case LOG_CHOICE_LOST:
		if (lost <= LISTED / 2)
			fail("said to be lost, and it is not");
		losses++;
		return false;
	case LOG_CHOICE_EMPTY:
		s->chosen = 0;
		s->phase = APPLY;
		return true;
	case LOG_CHOICE_PEER:
		s->chosen = (uint8_t)a[index].seq;
		s->phase = APPLY;
		return true;
	case LOG_CHOICE_STAGE:
		s->chosen = (uint8_t)a[index].seq;
		s->phase = STAGE;
		staged(s);
		return true;
	}
	return false;
}

static void stage(struct state *s, uint32_t i)
{
	struct peer *p = &s->peers[s->list[i]];

	/* Also when it had to be read from one that is gone by now. */
	if (!p->lost && p->fence == s->epoch)
		p->held = s->chosen;
	staged(s);
}

static void apply(struct state *s)
{
	if (s->chosen < s->blocks)
		fail("the log is behind the blocks");
	s->blocks = s->chosen;
	s->phase = DROP;
}

static void drop(struct state *s)
{
	s->phase = DROPPED;
	if (s->acked > s->blocks)
		fail("acknowledged, and not recovered");
}

static void recovery_steps(const struct state *s)
{
	if (s->phase == NOT_YET)
		TRY(s, t, "raise", raise_epoch(&t));
	if (s->phase != NOT_YET && s->phase != DROPPED && s->left.deaths > 0)
		TRY(s, t, "raise again", t.left.deaths--, raise_epoch(&t));
	for (uint32_t i = 0; i < LISTED; i++) {
		if (s->phase == FENCE && s->answers[i] == LOG_ANSWER_NONE)
			TRY(s, t, "fence", fence(&t, i));
		if (s->phase == STAGE &&
		    s->answers[i] == LOG_ANSWER_CONFIRMED &&
		    s->peers[s->list[i]].held < s->chosen)
			TRY(s, t, "stage", stage(&t, i));
	}
	if (s->phase == FENCE) {
		struct state t = copy(s);

		at_home(&t);
		if (choose(&t))
			go(&t, "choose");
	}
	if (s->phase == APPLY)
		TRY(s, t, "apply", apply(&t));
	if (s->phase == DROP)
		TRY(s, t, "drop", drop(&t));
}

/* ---- all of it ---- */

static void explore(const struct state *s)
{
	writer_steps(s);
	replace_steps(s);
	peer_steps(s);
	recovery_steps(s);
}

static void run(const struct bounds *b)
{
	static const struct log_writer_peer_id ids[LISTED] = { { 1, 1 },
							       { 2, 1 },
							       { 3, 1 } };
	struct state s = { .writing = true, .left = *b, .epoch = EPOCH };

	memset(seen, 0, sizeof(*seen) << SEEN_LOG2);
	memset(mirror, 0, sizeof(mirror));
	states = steps = losses = 0;
	log_writer_init(&s.w, 1, 1, EPOCH, 1, LOG2, ids, LISTED, 0);
	if (log_writer_region_add(&s.w, mirror))
		abort();
	s.region = s.w.regions[0];
	free(s.w.regions);
	at_home(&s);
	for (uint32_t i = 0; i < LISTED; i++) {
		s.list[i] = (uint8_t)i;
		log_writer_up(&s.w, i, 1);
	}
	lend(&s);
	go(&s, b->name);
	printf("ok - %s: %llu states, %llu steps\n", b->name,
	       (unsigned long long)states, (unsigned long long)steps);
	fflush(stdout);
}

int main(void)
{
	seen = calloc((size_t)1 << SEEN_LOG2, sizeof(*seen));
	if (!seen)
		abort();
	for (size_t i = 0; i < array_count(runs); i++)
		run(&runs[i]);
	free(seen);
	return 0;
}
