/* What is lent, exactly: who may change a log, what a fence and the end of one
 * leave, what was taken back, in which order things happen for who looks from
 * afar, and what happens without memory. (By chance against a model:
 * test_lend_model.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "logd/lend.h"
#include "tests/lib/fail_malloc.h"
#include "tests/lib/log_stream.h"

#define POOL_BYTES (4u << 20)
#define LOG2 16

struct fix {
	uint8_t *memory;
	struct lend_pool pool;
	struct lend *l;
	char events[64]; /* of the ops, in their order */
	int grant_error;
};

static struct fix fix;

static void event(char what)
{
	size_t len = strlen(fix.events);

	assert_true(len + 1 < sizeof(fix.events));
	fix.events[len] = what;
}

static int on_grant(void *arg, struct lend_log *g, struct lend_region *r)
{
	(void)arg;
	(void)g;
	event('g');
	r->addr = (uintptr_t)r->base;
	r->rkey = 77;
	return fix.grant_error;
}

static void on_revoke(void *arg, struct lend_log *g, struct lend_region *r)
{
	(void)arg;
	(void)g;
	assert_int_equal(r->rkey, 77);
	event('r');
}

static void on_end(void *arg, struct lend_log *g)
{
	(void)arg;
	(void)g;
	event('e');
}

static void on_fenced(void *arg, struct lend_log *g)
{
	(void)arg;
	(void)g;
	event('f');
}

/* Session 2 is dead. */
static bool on_hears(void *arg, const struct lend_log *g)
{
	(void)arg;
	return g->session != 2;
}

static const struct lend_ops ops = { on_grant, on_revoke, on_end, on_fenced,
				     on_hears };

static void make(const struct lend_ops *o, uint32_t log_max, uint32_t ino_max)
{
	struct lend_options opt = { .pool = &fix.pool,
				    .cluster_id = LOG_STREAM_CLUSTER_ID,
				    .log_max = log_max, .ino_max = ino_max,
				    .ops = o };

	memset(&fix, 0, sizeof(fix));
	fix.memory = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(fix.memory, MAP_FAILED);
	assert_int_equal(lend_pool_init(&fix.pool, fix.memory, POOL_BYTES), 0);
	assert_int_equal(lend_new(&opt, &fix.l), 0);
	lend_set_now(fix.l, 1000);
}

static int setup(void **state)
{
	(void)state;
	make(&ops, 100, 200);
	return 0;
}

/* What is not lent is zeros. */
static int teardown(void **state)
{
	(void)state;
	lend_free(fix.l);
	assert_int_equal(lend_pool_free(&fix.pool), POOL_BYTES);
	for (size_t i = 0; i < POOL_BYTES; i++)
		if (fix.memory[i])
			fail();
	lend_pool_fini(&fix.pool);
	munmap(fix.memory, POOL_BYTES);
	return 0;
}

/* ---- requests ---- */

static int alloc(uint64_t session, const struct log_stream *g, uint8_t flags,
		 const struct lend_region **ret)
{
	struct log_alloc m = { .ino = g->ino, .epoch = g->writer,
			       .data_epoch = g->epoch, .index = g->index,
			       .log2 = g->log2, .flags = flags };
	const struct lend_region *r;

	return lend_alloc(fix.l, session, &m, ret ? ret : &r);
}

static int put(uint64_t session, const struct log_stream *g, uint32_t from)
{
	uint8_t slot[LOG_SLOT_SIZE];
	struct log_write m = { .ino = g->ino, .epoch = g->writer,
			       .data_epoch = g->epoch, .index = g->index,
			       .off = from,
			       .slot = { slot, sizeof(slot) } };

	log_stream_slot(g, slot);
	return lend_write(fix.l, session, &m, g->mirror + from,
			  g->end - from);
}

static int fence(uint64_t ino, uint64_t epoch, uint64_t data_epoch,
		 const struct lend_log **ret)
{
	struct log_fence m = { ino, epoch, data_epoch };
	const struct lend_log *g;

	return lend_fence(fix.l, &m, ret ? ret : &g);
}

static int release(uint64_t ino, uint64_t epoch, uint64_t data_epoch,
		   uint32_t below)
{
	struct log_free m = { ino, epoch, data_epoch, below };

	return lend_release(fix.l, &m);
}

/* What is new from @from on, as one-sided writes do it. */
static void put_from_afar(const struct lend_region *r, struct log_stream *g,
			  uint32_t from, uint32_t slot)
{
	memcpy(r->base + from, g->mirror + from, g->end - from);
	log_stream_slot(g, r->base + slot * LOG_SLOT_SIZE);
}

/* A log of inode 9, epoch 5, session 1, with one record. */
static void begin(struct log_stream *g, uint8_t flags)
{
	const struct lend_region *r;

	log_stream_init(g, 9, 5, LOG2);
	assert_int_equal(alloc(1, g, flags, &r), 0);
	log_stream_append(g, 100);
	if (flags & LOG_ALLOC_VERBS)
		put_from_afar(r, g, LOG_DATA_OFF, 0);
	else
		assert_int_equal(put(1, g, LOG_DATA_OFF), 0);
}

static const uint8_t *base_of(const struct log_stream *g)
{
	const struct lend_log *log = lend_find(fix.l, g->ino, g->epoch);

	assert_non_null(log);
	for (uint32_t i = 0; i < log->region_count; i++)
		if (lend_region_at(log, i)->index == g->index)
			return lend_region_at(log, i)->base;
	fail();
	return NULL;
}

/* ---- tests ---- */

static void slots_take_turns(void **state)
{
	struct log_slot s;
	struct log_stream g;
	uint32_t from;

	(void)state;
	begin(&g, 0);
	for (unsigned i = 1; i < 8; i++) {
		const uint8_t *at = base_of(&g) + (i + 1) % 2 * LOG_SLOT_SIZE;

		assert_int_equal(log_slot_decode(at, &s), 0);
		assert_int_equal(s.seq, i);
		from = g.end;
		log_stream_append(&g, 10);
		assert_int_equal(put(1, &g, from), 0);
	}
	/* A duplicate changes neither. */
	assert_int_equal(put(1, &g, from), 0);
	assert_int_equal(log_slot_newest(base_of(&g), &s), 0);
	assert_int_equal(s.seq, 8);
	assert_int_equal(log_slot_decode(base_of(&g), &s), 0);
	assert_int_equal(s.seq, 7);
	assert_memory_equal(base_of(&g) + LOG_DATA_OFF,
			    g.mirror + LOG_DATA_OFF, g.end - LOG_DATA_OFF);
	log_stream_fini(&g);
}

/* Looks at a region's memory as who reads it from afar does: at any moment
 * the newest whole slot covers whole records. False: it did not. */
static bool look(const uint8_t *base, uint64_t until_seq)
{
	uint8_t slots[LOG_SLOT_COUNT * LOG_SLOT_SIZE];
	uint32_t from = LOG_DATA_OFF;
	struct log_slot s;
	uint64_t seq = 1;

	/* What was seen is not looked at again, to be quick. */
	while (seq <= until_seq) {
		for (unsigned i = LOG_SLOT_SIZE - 4; i < sizeof(slots);
		     i += LOG_SLOT_SIZE) /* checksums come last */
			(void)__atomic_load_n((const uint32_t *)(const void *)
					      (base + i), __ATOMIC_ACQUIRE);
		memcpy(slots, base, sizeof(slots));
		if (log_slot_newest(slots, &s) < 0 || s.seq < seq)
			continue;
		if (log_rec_walk(base, from, s.end, seq, NULL, NULL, &seq) < 0)
			return false;
		from = s.end;
	}
	return true;
}

static void no_slot_is_there_before_its_records(void **state)
{
	enum { ROUNDS = 30, RECORDS = 240 };
	int status;

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct log_stream g;
		const uint8_t *base;
		uint32_t from;
		pid_t child;

		log_stream_init(&g, 9, 5 + round, 20);
		assert_int_equal(alloc(1, &g, 0, NULL), 0);
		base = base_of(&g);
		child = fork();
		assert_true(child >= 0);
		if (child == 0)
			_exit(look(base, RECORDS) ? 0 : 1);
		for (unsigned i = 0; i < RECORDS; i++) {
			from = g.end;
			log_stream_append(&g, 4000);
			assert_int_equal(put(1, &g, from), 0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		assert_int_equal(release(9, 5 + round, 5 + round,
					 LOG_FREE_ALL), 0);
		log_stream_fini(&g);
	}
}

/* It would look like damage to who recovers. A region that is not here is one
 * that was freed. */
static void nothing_is_behind_an_empty_region(void **state)
{
	struct log_stream g;

	(void)state;
	begin(&g, 0);
	log_stream_next(&g);
	assert_int_equal(alloc(1, &g, 0, NULL), 0);
	log_stream_append(&g, 100);
	log_stream_next(&g);
	log_stream_append(&g, 100);
	assert_int_equal(alloc(1, &g, 0, NULL), 0);
	assert_int_equal(put(1, &g, LOG_DATA_OFF), -EBADMSG);
	assert_int_equal(release(9, 5, 5, 2), 0);
	assert_int_equal(put(1, &g, LOG_DATA_OFF), 0);
	log_stream_fini(&g);
}

/* Queue pairs end, then keys, then who asked is answered. */
static void a_fence_revokes_before_it_answers(void **state)
{
	const struct lend_log *log;
	struct log_stream g;

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	log_stream_next(&g);
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, NULL), 0);
	assert_string_equal(fix.events, "gg");
	assert_int_equal(fence(9, 6, 5, &log), 0);
	assert_string_equal(fix.events, "ggerrf");
	assert_int_equal(log->region_count, 2);
	/* Once. */
	assert_int_equal(fence(9, 7, 5, NULL), 0);
	assert_string_equal(fix.events, "ggerrf");
	assert_int_equal(release(9, 7, 5, LOG_FREE_ALL), 0);
	assert_string_equal(fix.events, "ggerrfe");
	log_stream_fini(&g);
}

/* Who recovers a log writes it under his epoch; keys are given anew. */
static void a_later_epoch_takes_over(void **state)
{
	struct log_stream g;
	uint32_t from;

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	from = g.end;
	log_stream_append(&g, 50);
	g.writer = 6;
	assert_int_equal(put(2, &g, from), 0);
	assert_string_equal(fix.events, "gerf");
	g.writer = 5;
	assert_int_equal(put(1, &g, from), -ESTALE);
	assert_int_equal(alloc(1, &g, 0, NULL), -ESTALE);
	assert_int_equal(release(9, 5, 5, 1), -ESTALE);
	assert_int_equal(release(9, 5, 5, LOG_FREE_ALL), 0);
	assert_non_null(lend_find(fix.l, 9, 5));
	g.writer = 6;
	assert_int_equal(put(1, &g, from), -ESTALE); /* not his */
	assert_int_equal(alloc(2, &g, LOG_ALLOC_VERBS, NULL), 0);
	assert_string_equal(fix.events, "gerfg");
	assert_int_equal(fence(9, 6, 5, NULL), 0);
	assert_string_equal(fix.events, "gerfg");
	assert_int_equal(fence(9, 7, 5, NULL), 0);
	assert_string_equal(fix.events, "gerfgerf");
	assert_int_equal(lend_epoch_max(fix.l), 7);
	log_stream_fini(&g);
}

/* Whoever sends records has given up writing them from afar: what is still on
 * its way from there must not come over what is sent now. */
static void a_sent_record_ends_what_was_granted(void **state)
{
	struct log_stream g;
	uint32_t from;

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	from = g.end;
	log_stream_append(&g, 50);
	assert_int_equal(put(1, &g, from), 0);
	assert_string_equal(fix.events, "ger");
	from = g.end;
	log_stream_append(&g, 50);
	assert_int_equal(put(1, &g, from), 0);
	assert_string_equal(fix.events, "ger");
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, NULL), 0);
	assert_string_equal(fix.events, "gerg");
	/* The means are gone: of all logs. */
	lend_revoke_all(fix.l);
	assert_string_equal(fix.events, "gerger");
	log_stream_fini(&g);
}

static void a_log_is_found_for_its_writer_alone(void **state)
{
	struct lend_log *log;
	struct log_stream g;

	(void)state;
	begin(&g, 0);
	assert_int_equal(lend_writer_log(fix.l, 1, 9, 5, &log), 0);
	assert_int_equal(log->epoch, 5);
	assert_int_equal(lend_writer_log(fix.l, 2, 9, 5, &log), -ESTALE);
	assert_int_equal(lend_writer_log(fix.l, 1, 9, 4, &log), -ENOENT);
	assert_int_equal(lend_writer_log(fix.l, 1, 8, 5, &log), -ENOENT);
	assert_int_equal(fence(9, 6, 5, NULL), 0);
	assert_int_equal(lend_writer_log(fix.l, 1, 9, 5, &log), -ESTALE);
	log_stream_fini(&g);
}

static void what_is_freed_is_revoked_first(void **state)
{
	struct log_stream g;

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	log_stream_next(&g);
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, NULL), 0);
	assert_int_equal(release(9, 5, 5, 1), 0);
	assert_string_equal(fix.events, "ggr");
	assert_int_equal(release(9, 5, 5, LOG_FREE_ALL), 0);
	assert_string_equal(fix.events, "ggrer");
	log_stream_fini(&g);
}

static void a_grant_that_fails_lends_nothing(void **state)
{
	struct log_stream g;

	(void)state;
	log_stream_init(&g, 9, 5, LOG2);
	fix.grant_error = -EIO;
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, NULL), -EIO);
	assert_null(lend_find(fix.l, 9, 5));
	assert_int_equal(lend_pool_free(&fix.pool), POOL_BYTES);
	assert_int_equal(lend_stats(fix.l)->inos, 0);
	fix.grant_error = 0;
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, NULL), 0);
	log_stream_fini(&g);
}

/* Who wrote from afar goes on over TCP where memory says he was. */
static void what_came_from_afar_is_gone_on_from(void **state)
{
	const struct lend_region *r;
	struct log_stream g;
	uint32_t from;

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, &r), 0);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, &r), 0);
		from = g.end;
		log_stream_append(&g, 64);
		put_from_afar(r, &g, from, (i + 1) % 2);
		assert_int_equal(put(1, &g, from), 0); /* a duplicate */
		from = g.end;
		log_stream_append(&g, 64);
		assert_int_equal(put(1, &g, from), 0);
		log_stream_slot(&g, r->base + (i + 1) % 2 * LOG_SLOT_SIZE);
	}
	assert_int_equal(lend_stats(fix.l)->duplicates, 5);
	assert_memory_equal(r->base + LOG_DATA_OFF, g.mirror + LOG_DATA_OFF,
			    g.end - LOG_DATA_OFF);
	/* He may have written anywhere, which teardown() looks for. */
	r->base[(1u << LOG2) - 1] = 1;
	r->base[200] = 1;
	log_stream_fini(&g);
}

static void slot_says(const struct lend_region *r, const struct log_stream *g)
{
	uint8_t want[LOG_SLOT_SIZE];

	log_stream_slot(g, want);
	assert_memory_equal(r->base + r->newest * LOG_SLOT_SIZE, want,
			    LOG_SLOT_SIZE);
}

/* From afar only the first has a slot; whoever looks is shown all of them. One
 * that is there in part is none, wherever it breaks off. */
static void records_behind_a_slot_are_found(void **state)
{
	const struct lend_region *r;
	const struct lend_log *log;
	struct log_stream g, whole;
	uint32_t size = LOG_REC_HEADER + 100; /* behind it are zeros */

	(void)state;
	for (uint32_t part = 0; part <= size; part++) {
		begin(&g, LOG_ALLOC_VERBS);
		assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, &r), 0);
		log_stream_append(&g, 300);
		log_stream_append(&g, 7);
		memcpy(r->base + LOG_DATA_OFF, g.mirror + LOG_DATA_OFF,
		       g.end - LOG_DATA_OFF);
		whole = g;
		log_stream_append(&g, 100);
		memcpy(r->base + whole.end, g.mirror + whole.end, part);
		if (part == size)
			whole = g;
		assert_int_equal(fence(9, 6, 5, &log), 0);
		slot_says(r, &whole);
		/* The first bytes are a checksum, which may be none yet. */
		if (part == 0 || part == size || part > 4)
			assert_int_equal(lend_is_torn(log),
					 part > 0 && part < size);
		/* Who fenced goes on there. */
		log_stream_append(&g, 50);
		g.writer = 6;
		assert_int_equal(put(2, &g, whole.end), 0);
		assert_false(lend_is_torn(log));
		slot_says(r, &g);
		log_stream_fini(&g);
		teardown(state);
		setup(state);
	}
}

/* A damaged slot stays what it is, for whoever judges. */
static void a_damaged_slot_is_not_covered_up(void **state)
{
	const struct lend_region *r;
	const struct lend_log *log;
	struct log_stream g;
	uint8_t slots[LOG_SLOT_COUNT * LOG_SLOT_SIZE];

	(void)state;
	begin(&g, LOG_ALLOC_VERBS);
	assert_int_equal(alloc(1, &g, LOG_ALLOC_VERBS, &r), 0);
	log_stream_append(&g, 300);
	memcpy(r->base + LOG_DATA_OFF, g.mirror + LOG_DATA_OFF,
	       g.end - LOG_DATA_OFF);
	r->base[LOG_SLOT_SIZE + 9] = 1;
	memcpy(slots, r->base, sizeof(slots));
	assert_int_equal(fence(9, 6, 5, &log), 0);
	assert_memory_equal(r->base, slots, sizeof(slots));
	log_stream_fini(&g);
}

/* Who is dead has not moved it, and other copies of it may be gone as well. */
static void a_drain_leaves_what_nobody_could_move(void **state)
{
	const struct lend_log *log;
	struct log_stream g;

	(void)state;
	log_stream_init(&g, 9, 5, LOG2);
	assert_int_equal(alloc(2, &g, 0, NULL), 0);
	log_stream_append(&g, 100);
	assert_int_equal(put(2, &g, LOG_DATA_OFF), 0);
	lend_drain(fix.l, 2000);
	lend_set_now(fix.l, 2000);
	assert_int_equal(lend_expire(fix.l), 0);
	assert_int_equal(fence(9, 6, 5, &log), 0);
	assert_false(log->given_up);
	assert_int_equal(log->region_count, 1);
	log_stream_fini(&g);
}

static void a_drain_takes_at_its_deadline_and_not_before(void **state)
{
	const struct lend_log *log;
	struct log_stream g;

	(void)state;
	begin(&g, 0);
	lend_drain(fix.l, 2000);
	assert_int_equal(lend_free_bytes(fix.l), 0);
	lend_set_now(fix.l, 1999);
	assert_int_equal(lend_expire(fix.l), 0);
	assert_true(lend_is_wanted(fix.l, lend_find(fix.l, 9, 5)));
	lend_set_now(fix.l, 2000);
	assert_int_equal(lend_expire(fix.l), 1);
	assert_int_equal(lend_expire(fix.l), 0);
	assert_int_equal(lend_wanted_ms(fix.l), 0);
	assert_int_equal(lend_stats(fix.l)->lent_bytes, 0);
	assert_int_equal(put(1, &g, LOG_DATA_OFF), -EIDRM);
	assert_int_equal(fence(9, 6, 5, &log), 0);
	assert_true(log->given_up);
	assert_int_equal(log->region_count, 0);
	lend_drain_end(fix.l);
	assert_int_equal(lend_free_bytes(fix.l), POOL_BYTES);
	assert_int_equal(release(9, 6, 5, LOG_FREE_ALL), 0);
	assert_null(lend_find(fix.l, 9, 5));
	log_stream_fini(&g);
}

/* Whoever recovers a log gives this peer what it lacks, a region more perhaps,
 * and is not taken for somebody who could move it: others are drained, too. */
static void a_drain_lets_a_log_be_recovered(void **state)
{
	const struct lend_log *log;
	struct log_stream g, begun;

	(void)state;
	begin(&g, 0);
	lend_drain(fix.l, 2000);
	log_stream_next(&g);
	assert_int_equal(alloc(1, &g, 0, NULL), -ENOSPC);
	assert_int_equal(fence(9, 6, 5, NULL), 0);
	g.writer = 6;
	assert_int_equal(alloc(3, &g, 0, NULL), 0);
	log_stream_append(&g, 50);
	assert_int_equal(put(3, &g, LOG_DATA_OFF), 0);
	lend_set_now(fix.l, 2000);
	assert_int_equal(lend_expire(fix.l), 0);
	assert_int_equal(fence(9, 6, 5, &log), 0);
	assert_int_equal(log->region_count, 2);
	log_stream_init(&begun, 10, 7, LOG2);
	assert_int_equal(alloc(3, &begun, 0, NULL), -ENOSPC);
	assert_int_equal(release(9, 6, 5, LOG_FREE_ALL), 0);
	log_stream_fini(&begun);
	log_stream_fini(&g);
}

static void a_verdict_counts_only_in_silence(void **state)
{
	struct log_name names[4];
	struct log_stream g;
	uint32_t from;

	(void)state;
	begin(&g, 0);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 0);
	lend_set_now(fix.l, 1500);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 1);
	assert_int_equal(names[0].ino, 9);
	assert_int_equal(names[0].epoch, 5);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 0);
	/* It is written to while metad is asked. */
	from = g.end;
	log_stream_append(&g, 100);
	assert_int_equal(put(1, &g, from), 0);
	lend_judge(fix.l, 9, 5, META_LOG_UNKNOWN);
	lend_judge(fix.l, 9, 5, META_LOG_UNLISTED);
	assert_int_equal(lend_stats(fix.l)->logs, 1);
	/* Never asked about, another epoch, another word. */
	lend_set_now(fix.l, 3000);
	lend_judge(fix.l, 9, 5, META_LOG_UNKNOWN);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 1);
	lend_judge(fix.l, 9, 4, META_LOG_UNKNOWN);
	lend_judge(fix.l, 10, 5, META_LOG_UNKNOWN);
	lend_judge(fix.l, 9, 5, (enum meta_log_verdict)9);
	assert_int_equal(lend_stats(fix.l)->logs, 1);
	lend_judge(fix.l, 9, 5, META_LOG_UNLISTED);
	assert_int_equal(lend_stats(fix.l)->tombs, 1);
	assert_false(lend_is_wanted(fix.l, lend_find(fix.l, 9, 5)));
	assert_int_equal(put(1, &g, from), -EIDRM);
	lend_judge(fix.l, 9, 5, META_LOG_UNLISTED); /* again */
	assert_int_equal(lend_stats(fix.l)->tombs, 1);
	lend_judge(fix.l, 9, 5, META_LOG_UNKNOWN);
	assert_int_equal(lend_stats(fix.l)->inos, 0);
	log_stream_fini(&g);
}

static void a_fence_is_forgotten_by_a_verdict_alone(void **state)
{
	struct log_name names[4];

	(void)state;
	assert_int_equal(fence(9, 6, 5, NULL), 0);
	lend_set_now(fix.l, 2000);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 1);
	assert_int_equal(names[0].epoch, 5);
	lend_judge(fix.l, 9, 6, META_LOG_UNKNOWN);
	lend_judge(fix.l, 9, 5, META_LOG_UNLISTED);
	assert_int_equal(fence(9, 5, 5, NULL), -ESTALE);
	assert_int_equal(fence(9, 6, 5, NULL), 0);
	lend_judge(fix.l, 9, 5, META_LOG_UNKNOWN); /* heard of since */
	assert_int_equal(lend_stats(fix.l)->inos, 1);
	lend_set_now(fix.l, 3000);
	assert_int_equal(lend_ask(fix.l, 500, names, 4), 1);
	lend_judge(fix.l, 9, 5, META_LOG_UNKNOWN);
	assert_int_equal(lend_stats(fix.l)->inos, 0);
}

static void odd_requests_are_invalid(void **state)
{
	struct log_stream g;
	struct log_read m = { 9, 5, 5, 0, 0, 8 };
	const uint8_t *p;

	(void)state;
	begin(&g, 0);
	assert_int_equal(fence(0, 6, 5, NULL), -EINVAL);
	assert_int_equal(fence(INO_MAX + 1, 6, 5, NULL), -EINVAL);
	assert_int_equal(fence(9, 0, 0, NULL), -EINVAL);
	assert_int_equal(fence(9, 6, 0, NULL), -EINVAL);
	assert_int_equal(fence(9, 6, 7, NULL), -EINVAL);
	assert_int_equal(release(9, 4, 5, 1), -EINVAL);
	assert_int_equal(release(8, 5, 5, LOG_FREE_ALL), 0);
	m.off = (1u << LOG2) - 7;
	assert_int_equal(lend_read(fix.l, &m, &p), -EINVAL);
	m.off--;
	assert_int_equal(lend_read(fix.l, &m, &p), 0);
	m.off = UINT32_MAX;
	m.len = UINT32_MAX;
	assert_int_equal(lend_read(fix.l, &m, &p), -EINVAL);
	g.index = LOG_FREE_ALL;
	assert_int_equal(alloc(1, &g, 0, NULL), -EINVAL);
	g.index = 1;
	assert_int_equal(alloc(1, &g, 2, NULL), -EINVAL);
	g.epoch = g.writer = 0;
	assert_int_equal(alloc(1, &g, 0, NULL), -EINVAL);
	log_stream_fini(&g);
}

/* An older epoch's owner cannot free what a newer one has. */
static void freeing_all_ends_at_the_epoch(void **state)
{
	struct log_stream g;

	(void)state;
	begin(&g, 0);
	g.epoch = g.writer = 8;
	assert_int_equal(alloc(2, &g, 0, NULL), 0);
	assert_int_equal(release(9, 5, 5, LOG_FREE_ALL), 0);
	assert_null(lend_find(fix.l, 9, 5));
	assert_non_null(lend_find(fix.l, 9, 8));
	assert_int_equal(fence(9, 8, 8, NULL), 0);
	assert_int_equal(release(9, 7, 5, LOG_FREE_ALL), -ESTALE);
	assert_non_null(lend_find(fix.l, 9, 8));
	log_stream_fini(&g);
}

/* Regions come in any order, as a replacement copies them. */
static void regions_are_listed_by_index(void **state)
{
	static const uint32_t order[] = { 7, 2, 9, 0, 5, 3, 8, 1, 6, 4 };
	const struct lend_log *log;
	struct log_stream g;

	(void)state;
	log_stream_init(&g, 9, 5, LOG2);
	for (unsigned i = 0; i < array_count(order); i++) {
		g.index = order[i];
		assert_int_equal(alloc(1, &g, 0, NULL), 0);
	}
	assert_int_equal(fence(9, 5, 5, &log), 0);
	assert_int_equal(log->region_count, 10);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(lend_region_at(log, i)->index, i);
	assert_int_equal(release(9, 5, 5, 4), 0);
	assert_int_equal(log->region_count, 6);
	assert_int_equal(lend_region_at(log, 0)->index, 4);
	log_stream_fini(&g);
}

/* Each allocation of @run fails in turn: it says -ENOMEM, and what there was
 * is as before. */
static void memory_fails(int (*run)(void))
{
	for (unsigned nth = 1;; nth++) {
		struct lend_stats before = *lend_stats(fix.l);
		int rv;

		fail_malloc_at(nth);
		rv = run();
		if (!fail_malloc_hit()) {
			assert_int_equal(rv, 0);
			assert_true(nth > 1);
			return;
		}
		assert_int_equal(rv, -ENOMEM);
		assert_memory_equal(&before, lend_stats(fix.l),
				    sizeof(before));
	}
}

static struct log_stream nomem_log;

static int run_alloc(void)
{
	return alloc(1, &nomem_log, 0, NULL);
}

static int run_fence(void)
{
	return fence(77, 6, 5, NULL);
}

static void without_memory_nothing_changes(void **state)
{
	(void)state;
	log_stream_init(&nomem_log, 9, 5, LOG2);
	for (uint32_t i = 0; i < 5; i++) {
		nomem_log.index = i;
		if (i == 0 || i == 4) /* the first; the list grows */
			memory_fails(run_alloc);
		else if (run_alloc() != 0)
			fail();
	}
	memory_fails(run_fence);
	log_stream_fini(&nomem_log);
}

static void at_its_bounds_it_refuses_and_goes_on(void **state)
{
	struct log_stream g;

	teardown(state);
	make(&ops, 2, 3);
	begin(&g, 0);
	g.ino = 10;
	assert_int_equal(alloc(1, &g, 0, NULL), 0);
	g.ino = 11;
	assert_int_equal(alloc(1, &g, 0, NULL), -ENOSPC);
	assert_int_equal(lend_stats(fix.l)->inos, 2);
	assert_int_equal(fence(12, 6, 5, NULL), 0);
	assert_int_equal(fence(13, 6, 5, NULL), -ENOSPC);
	/* A log that was taken back still counts. */
	lend_drain(fix.l, 1);
	assert_int_equal(lend_expire(fix.l), 2);
	lend_drain_end(fix.l);
	g.ino = 12;
	g.epoch = g.writer = 6;
	assert_int_equal(alloc(1, &g, 0, NULL), -ENOSPC);
	assert_int_equal(release(9, 5, 5, LOG_FREE_ALL), 0);
	assert_int_equal(alloc(1, &g, 0, NULL), 0);
	assert_int_equal(fence(12, 7, 6, NULL), 0);
	log_stream_fini(&g);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(slots_take_turns),
		TEST(no_slot_is_there_before_its_records),
		TEST(nothing_is_behind_an_empty_region),
		TEST(a_fence_revokes_before_it_answers),
		TEST(a_later_epoch_takes_over),
		TEST(what_is_freed_is_revoked_first),
		TEST(a_grant_that_fails_lends_nothing),
		TEST(what_came_from_afar_is_gone_on_from),
		TEST(a_sent_record_ends_what_was_granted),
		TEST(records_behind_a_slot_are_found),
		TEST(a_damaged_slot_is_not_covered_up),
		TEST(a_log_is_found_for_its_writer_alone),
		TEST(a_drain_leaves_what_nobody_could_move),
		TEST(a_drain_takes_at_its_deadline_and_not_before),
		TEST(a_drain_lets_a_log_be_recovered),
		TEST(a_verdict_counts_only_in_silence),
		TEST(a_fence_is_forgotten_by_a_verdict_alone),
		TEST(odd_requests_are_invalid),
		TEST(freeing_all_ends_at_the_epoch),
		TEST(regions_are_listed_by_index),
		TEST(without_memory_nothing_changes),
		TEST(at_its_bounds_it_refuses_and_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
