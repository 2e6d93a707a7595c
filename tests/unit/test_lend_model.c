/* What is lent, by chance against the simplest model there is: arrays of
 * inodes, epochs and regions, with the bytes that each should have. After each
 * step the answer is what the model says, and the table shows what the model
 * has; memory that is not lent is zeros.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "logd/lend.h"

#define CLUSTER 5u
#define INOS 3u
#define EPOCHS 6u /* 1..5 */
#define REGIONS 3u
#define LOG2 LOG_REGION_LOG2_MIN
#define SIZE (1u << LOG2)
#define RECORDS 24u /* of a region */
#define REC_LEN 200u
#define LOG_MAX 7u
#define INO_MAX_HERE 3u
#define POOL_REGIONS 16u
#define ROUNDS 500u
#define STEPS 600u
#define IDLE_MS 50u

struct mregion {
	bool there;
	uint8_t bytes[SIZE]; /* what a writer has made, sent or not */
	uint64_t first; /* number of the first record; 0: none made */
	uint32_t made, have; /* records: made, and here */
};

struct mlog {
	bool there, given_up, reclaimed, asked;
	uint64_t writer, session, heard_ms, asked_ms;
	uint64_t seq; /* last record made */
	struct mregion regions[REGIONS];
};

struct mino {
	uint64_t fence, fence_data, heard_ms, asked_ms;
	bool known, asked;
	struct mlog logs[EPOCHS];
};

static struct mino model[INOS];
static uint64_t now_ms, until_ms;
static bool draining;

static uint8_t memory[POOL_REGIONS * SIZE];
static struct lend_pool pool;
static struct lend *lend;

static uint64_t rng;

static uint32_t rnd(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 11) % below;
}

/* ---- the model ---- */

static uint32_t count_logs(void)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < INOS; i++)
		for (unsigned e = 0; e < EPOCHS; e++)
			n += model[i].logs[e].there;
	return n;
}

static uint32_t count_regions(void)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < INOS; i++)
		for (unsigned e = 0; e < EPOCHS; e++)
			for (unsigned k = 0; k < REGIONS; k++)
				n += model[i].logs[e].regions[k].there;
	return n;
}

static bool has_logs(const struct mino *i)
{
	for (unsigned e = 0; e < EPOCHS; e++)
		if (i->logs[e].there)
			return true;
	return false;
}

/* An inode is known while it has a log or a fence. */
static void forget(struct mino *i)
{
	if (has_logs(i) || i->fence)
		return;
	i->known = i->asked = false;
	i->asked_ms = i->fence_data = 0;
}

static void drop(struct mino *i, struct mlog *g)
{
	memset(g, 0, sizeof(*g));
	forget(i);
}

static void take(struct mlog *g, bool reclaimed)
{
	for (unsigned k = 0; k < REGIONS; k++)
		memset(&g->regions[k], 0, sizeof(g->regions[k]));
	g->given_up = true;
	g->reclaimed = reclaimed;
}

static void heard(struct mlog *g)
{
	g->heard_ms = now_ms;
	g->asked = false;
}

/* May @session write @g in @epoch? Takes it over if so. */
static int mine(const struct mino *i, struct mlog *g, uint64_t epoch,
		uint64_t session)
{
	if (i->fence > epoch)
		return -ESTALE;
	if (!g->there)
		return -ENOENT;
	if (g->writer > epoch || (g->writer == epoch && g->session != session))
		return -ESTALE;
	if (g->given_up)
		return -EIDRM;
	g->writer = epoch;
	g->session = session;
	return 0;
}

static int model_alloc(unsigned ino, uint64_t epoch, uint64_t data_epoch,
		       uint32_t index, uint64_t session)
{
	struct mino *i = &model[ino];
	struct mlog *g = &i->logs[data_epoch];
	int rv = mine(i, g, epoch, session);
	bool refused;

	if (rv < 0 && rv != -ENOENT)
		return rv;
	if (g->there && g->regions[index].there) {
		heard(g);
		return 0;
	}
	/* What is recovered may be staged while memory is given back. */
	refused = draining && epoch == data_epoch;
	if (refused || (!g->there && count_logs() == LOG_MAX) ||
	    count_regions() == POOL_REGIONS) {
		/* A log without a region was of no use. */
		if (!refused && g->there) {
			for (unsigned k = 0; k < REGIONS; k++)
				if (g->regions[k].there)
					return -ENOSPC;
			drop(i, g);
		}
		return -ENOSPC;
	}
	if (!g->there) {
		g->there = true;
		g->writer = epoch;
		g->session = session;
	}
	if (!i->known)
		i->heard_ms = now_ms;
	i->known = true;
	g->regions[index].there = true;
	heard(g);
	return 0;
}

/* ---- requests ---- */

/* Who asks: more often than not the one who may. */
static void pick_writer(const struct mlog *g, uint64_t data_epoch,
			uint64_t *epoch, uint64_t *session)
{
	*session = 1 + rnd(2);
	*epoch = data_epoch + rnd(3) / 2;
	if (*epoch >= EPOCHS)
		*epoch = data_epoch;
	if (!g->there || rnd(8) == 0)
		return;
	*session = g->session;
	*epoch = g->writer;
}

static void step_alloc(void)
{
	unsigned ino = rnd(INOS);
	uint64_t data_epoch = 1 + rnd(EPOCHS - 1), session;
	struct log_alloc m = { .ino = ino + 1, .data_epoch = data_epoch,
			       .index = rnd(REGIONS), .log2 = LOG2 };
	const struct lend_region *r;
	int want;

	pick_writer(&model[ino].logs[data_epoch], data_epoch, &m.epoch,
		    &session);
	want = model_alloc(ino, m.epoch, data_epoch, m.index, session);
	assert_int_equal(lend_alloc(lend, session, &m, &r), want);
	if (want == 0)
		assert_int_equal(r->index, m.index);
}

static uint32_t place(uint32_t record)
{
	return LOG_DATA_OFF + record * log_rec_size(REC_LEN);
}

static void make_record(struct mlog *g, struct mregion *r)
{
	static uint8_t data[REC_LEN];
	struct log_rec rec = { .kind = LOG_REC_WRITE, .seq = ++g->seq,
			       .off = 0, .len = REC_LEN, .data = data };

	if (r->made == 0)
		r->first = rec.seq;
	memset(data, (int)rnd(255) + 1, sizeof(data));
	log_rec_encode(&rec, r->bytes + place(r->made));
	r->made++;
}

/* The number before has to be that of the region before, if that is here;
 * behind an empty one there is nothing yet. */
static bool number_fits(const struct mlog *g, uint32_t index)
{
	const struct mregion *r = &g->regions[index], *before = r - 1;

	if (r->have > 0)
		return true;
	if (index == 0)
		return r->first == 1;
	if (!before->there)
		return true;
	return r->first == (before->have ? before->first + before->have : 1);
}

/* @flip: something in it is wrong. */
static int model_write(struct mlog *g, uint32_t index, uint32_t from,
		       uint32_t to, bool flip)
{
	struct mregion *r = &g->regions[index];

	if (!r->there)
		return -ENOENT;
	heard(g);
	if (from > r->have)
		return -EPROTO;
	if (flip)
		return from < r->have ? -EPROTO : -EBADMSG;
	if (to <= r->have)
		return 0;
	if (!number_fits(g, index))
		return -EBADMSG;
	r->have = to;
	return 0;
}

static void step_write(void)
{
	unsigned ino = rnd(INOS);
	uint64_t data_epoch = 1 + rnd(EPOCHS - 1), session;
	struct mino *i = &model[ino];
	struct mlog *g = &i->logs[data_epoch];
	uint32_t index = rnd(REGIONS), from, to;
	struct mregion *r = &g->regions[index];
	uint8_t slot[LOG_SLOT_SIZE];
	struct log_write m = { .ino = ino + 1, .data_epoch = data_epoch,
			       .index = index,
			       .slot = { slot, sizeof(slot) } };
	struct log_slot s = { .cluster_id = CLUSTER, .ino = m.ino,
			      .epoch = data_epoch, .index = index };
	bool flip = rnd(20) == 0;
	int want;

	pick_writer(g, data_epoch, &m.epoch, &session);
	if (!r->there)
		r = &g->regions[index = m.index = s.index = 0];
	/* Numbers within a region have no gap. */
	if (r->there && r->made < RECORDS &&
	    (r->made == 0 || r->first + r->made == g->seq + 1))
		make_record(g, r);
	/* Of a region that is not there: anything. */
	from = r->made > 0 ? rnd(r->made) : 0;
	if (r->there && rnd(3) > 0 && r->have < r->made)
		from = r->have;
	to = r->made > 0 ? from + 1 + rnd(r->made - from) : 1;
	m.off = place(from);
	s.end = place(to);
	s.seq = r->made > 0 ? r->first + to - 1 : 1;
	log_slot_encode(&s, slot);
	want = mine(i, g, m.epoch, session);
	if (want == 0)
		want = model_write(g, index, from, to, flip);
	if (flip)
		r->bytes[m.off + 60] ^= 1;
	assert_int_equal(lend_write(lend, session, &m, r->bytes + m.off,
				    place(to) - m.off), want);
	if (flip)
		r->bytes[m.off + 60] ^= 1;
}

static void step_fence(void)
{
	unsigned ino = rnd(INOS);
	struct log_fence m = { .ino = ino + 1, .epoch = 1 + rnd(EPOCHS - 1),
			       .data_epoch = 1 + rnd(EPOCHS - 1) };
	struct mino *i = &model[ino];
	const struct mlog *g = &i->logs[m.data_epoch];
	const struct lend_log *log;
	int want = 0;

	if (m.data_epoch > m.epoch)
		want = -EINVAL;
	else if (m.epoch < i->fence)
		want = -ESTALE;
	assert_int_equal(lend_fence(lend, &m, &log), want);
	if (want < 0)
		return;
	i->known = true;
	i->fence = m.epoch;
	i->fence_data = m.data_epoch;
	i->heard_ms = now_ms;
	i->asked = false;
	for (unsigned e = 0; e < EPOCHS; e++)
		if (i->logs[e].there)
			heard(&i->logs[e]);
	assert_int_equal(log != NULL, g->there);
	if (log)
		assert_int_equal(log->given_up, g->given_up);
}

static void model_release(struct mino *i, const struct log_free *m)
{
	struct mlog *g = &i->logs[m->data_epoch];

	if (m->below != LOG_FREE_ALL) {
		for (unsigned k = 0; k < REGIONS && k < m->below; k++)
			memset(&g->regions[k], 0, sizeof(g->regions[k]));
		if (g->there)
			heard(g);
		return;
	}
	for (unsigned e = 0; e < EPOCHS; e++)
		if (i->logs[e].there && i->logs[e].writer <= m->epoch)
			memset(&i->logs[e], 0, sizeof(i->logs[e]));
	forget(i);
}

static void step_release(void)
{
	unsigned ino = rnd(INOS);
	struct log_free m = { .ino = ino + 1, .epoch = 1 + rnd(EPOCHS - 1),
			      .data_epoch = 1 + rnd(EPOCHS - 1),
			      .below = rnd(REGIONS + 1) };
	struct mino *i = &model[ino];
	const struct mlog *g = &i->logs[m.data_epoch];
	int want = 0;

	if (rnd(3) == 0)
		m.below = LOG_FREE_ALL;
	if (m.epoch < m.data_epoch)
		want = -EINVAL;
	else if (m.epoch < i->fence)
		want = -ESTALE;
	else if (m.below != LOG_FREE_ALL && g->there && g->writer > m.epoch)
		want = -ESTALE;
	assert_int_equal(lend_release(lend, &m), want);
	if (want == 0)
		model_release(i, &m);
}

static void step_read(void)
{
	unsigned ino = rnd(INOS);
	struct log_read m = { .ino = ino + 1, .epoch = 1 + rnd(EPOCHS - 1),
			      .data_epoch = 1 + rnd(EPOCHS - 1),
			      .index = rnd(REGIONS), .off = LOG_DATA_OFF };
	const struct mino *i = &model[ino];
	struct mlog *g = &model[ino].logs[m.data_epoch];
	const struct mregion *r = &g->regions[m.index];
	const uint8_t *p;
	int want = 0;

	m.len = 1 + rnd(SIZE - LOG_DATA_OFF);
	if (m.epoch < i->fence)
		want = -ESTALE;
	else if (g->given_up)
		want = -EIDRM;
	else if (!r->there)
		want = -ENOENT;
	assert_int_equal(lend_read(lend, &m, &p), want);
	if (want < 0)
		return;
	heard(g);
	m.len = (uint32_t)u64_min(m.len, place(r->have) - LOG_DATA_OFF);
	assert_memory_equal(p, r->bytes + LOG_DATA_OFF, m.len);
}

static void step_drain(void)
{
	if (draining && rnd(2)) {
		lend_drain_end(lend);
		draining = false;
		until_ms = 0;
	} else if (rnd(4) == 0) {
		until_ms = now_ms + 1 + rnd(30);
		lend_drain(lend, until_ms);
		draining = true;
	}
}

static void step_expire(void)
{
	uint32_t want = 0;

	if (until_ms && now_ms >= until_ms) {
		until_ms = 0;
		for (unsigned i = 0; i < INOS; i++)
			for (unsigned e = 0; e < EPOCHS; e++) {
				struct mlog *g = &model[i].logs[e];

				/* Nothing from who is recovering it. */
				if (!g->there || g->given_up || g->writer > e)
					continue;
				take(g, true);
				want++;
			}
	}
	assert_int_equal(lend_expire(lend), want);
}

static bool is_due(uint64_t heard_ms, uint64_t asked_ms)
{
	return now_ms - heard_ms >= IDLE_MS &&
	       (asked_ms == 0 || now_ms - asked_ms >= IDLE_MS);
}

static uint32_t model_ask(void)
{
	uint32_t count = 0;

	for (unsigned k = 0; k < INOS; k++) {
		struct mino *i = &model[k];

		for (unsigned e = 0; e < EPOCHS; e++) {
			struct mlog *g = &i->logs[e];

			if (!g->there || !is_due(g->heard_ms, g->asked_ms))
				continue;
			g->asked = true;
			g->asked_ms = now_ms;
			count++;
		}
		if (i->known && !has_logs(i) &&
		    is_due(i->heard_ms, i->asked_ms)) {
			i->asked = true;
			i->asked_ms = now_ms;
			count++;
		}
	}
	return count;
}

static void step_judge(void)
{
	unsigned ino = rnd(INOS);
	uint64_t epoch = 1 + rnd(EPOCHS - 1);
	enum meta_log_verdict v = rnd(2) ? META_LOG_UNKNOWN : META_LOG_UNLISTED;
	struct mino *i = &model[ino];
	struct mlog *g = &i->logs[epoch];
	struct log_name names[INOS * EPOCHS + INOS];

	if (rnd(2)) {
		assert_int_equal(lend_ask(lend, IDLE_MS, names,
					  array_count(names)), model_ask());
		return;
	}
	lend_judge(lend, ino + 1, epoch, v);
	if (g->there && g->asked && v == META_LOG_UNLISTED) {
		if (!g->given_up)
			take(g, false);
	} else if (g->there && g->asked) {
		drop(i, g);
	} else if (!g->there && i->asked && i->fence_data == epoch &&
		   v == META_LOG_UNKNOWN) {
		i->fence = 0;
		forget(i);
	}
}

/* ---- comparing ---- */

static void check_region(const struct mregion *r, const struct lend_region *got)
{
	struct log_slot s;
	int rv = log_slot_newest(got->base, &s);

	assert_int_equal(rv, r->have ? 0 : -ENODATA);
	if (rv == 0) {
		assert_int_equal(s.seq, r->first + r->have - 1);
		assert_int_equal(s.end, place(r->have));
	}
	assert_memory_equal(got->base + LOG_DATA_OFF, r->bytes + LOG_DATA_OFF,
			    place(r->have) - LOG_DATA_OFF);
	assert_int_equal(got->base[place(r->have)], 0);
	assert_memory_equal(got->base + place(r->have),
			    got->base + place(r->have) + 1,
			    SIZE - place(r->have) - 1);
}

static void check_log(unsigned ino, uint64_t epoch)
{
	const struct mlog *g = &model[ino].logs[epoch];
	const struct lend_log *got = lend_find(lend, ino + 1, epoch);
	uint32_t at = 0;

	assert_int_equal(got != NULL, g->there);
	if (!got)
		return;
	assert_int_equal(got->given_up, g->given_up);
	assert_int_equal(got->reclaimed, g->reclaimed);
	assert_int_equal(got->writer, g->writer);
	assert_int_equal(got->session, g->session);
	for (uint32_t k = 0; k < REGIONS; k++) {
		if (!g->regions[k].there)
			continue;
		assert_true(at < got->region_count);
		assert_int_equal(lend_region_at(got, at)->index, k);
		check_region(&g->regions[k], lend_region_at(got, at++));
	}
	assert_int_equal(at, got->region_count);
}

static void check_all(void)
{
	const struct lend_stats *n = lend_stats(lend);
	uint32_t known = 0;

	for (unsigned i = 0; i < INOS; i++) {
		known += model[i].known;
		for (unsigned e = 0; e < EPOCHS; e++)
			check_log(i, e);
	}
	assert_int_equal(n->inos, known);
	assert_int_equal(n->logs + n->tombs, count_logs());
	assert_int_equal(n->regions, count_regions());
	assert_int_equal(n->lent_bytes, (uint64_t)count_regions() << LOG2);
	assert_int_equal(lend_pool_free(&pool),
			 (uint64_t)(POOL_REGIONS - count_regions()) << LOG2);
}

static void step(void)
{
	static void (*const steps[])(void) = {
		step_alloc, step_alloc, step_alloc, step_write, step_write,
		step_write, step_write, step_write, step_write, step_write,
		step_write, step_write, step_write, step_write, step_write,
		step_fence, step_release, step_read, step_drain, step_expire,
		step_judge, step_judge,
	};

	now_ms += rnd(10) == 0 ? rnd(40) : 0;
	lend_set_now(lend, now_ms);
	steps[rnd(array_count(steps))]();
}

static struct lend_stats total;

static void begin(void)
{
	struct lend_options o = { .pool = &pool, .cluster_id = CLUSTER,
				  .log_max = LOG_MAX,
				  .ino_max = INO_MAX_HERE };

	memset(model, 0, sizeof(model));
	draining = false;
	until_ms = 0;
	assert_int_equal(lend_pool_init(&pool, memory, sizeof(memory)), 0);
	assert_int_equal(lend_new(&o, &lend), 0);
}

/* All is given back, as zeros. */
static void finish(void)
{
	const struct lend_stats *n = lend_stats(lend);

	check_all();
	total.writes += n->writes;
	total.duplicates += n->duplicates;
	total.given_up += n->given_up;
	total.collected += n->collected;
	for (unsigned i = 0; i < INOS; i++) {
		struct log_free m = { .ino = i + 1, .epoch = UINT64_MAX,
				      .data_epoch = 1, .below = LOG_FREE_ALL };

		assert_int_equal(lend_release(lend, &m), 0);
	}
	assert_int_equal(n->logs + n->tombs + n->lent_bytes, 0);
	assert_int_equal(memory[0], 0);
	assert_memory_equal(memory, memory + 1, sizeof(memory) - 1);
	lend_free(lend);
	lend_pool_fini(&pool);
}

static void it_does_what_the_model_does(void **state)
{
	const char *seed = getenv("SEED");

	(void)state;
	rng = seed ? strtoull(seed, NULL, 0) : 88172645463325252u;
	now_ms = 1000;
	/* Fences only rise: anew before all is shut. */
	for (unsigned round = 0; round < ROUNDS; round++) {
		begin();
		for (unsigned i = 0; i < STEPS; i++) {
			step();
			if (i % 50 == 0)
				check_all();
		}
		finish();
	}
	/* It was not all refused. */
	assert_true(total.writes > ROUNDS * STEPS / 100);
	assert_true(total.duplicates > ROUNDS * STEPS / 1000);
	assert_true(total.given_up > 10);
	assert_true(total.collected > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_does_what_the_model_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
