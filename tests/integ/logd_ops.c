/* Goal: the real hail-logd lends memory, takes what belongs into it and nothing
 * else, and shows it to who fenced it.
 * Method: the program as a child, a fake metad, clients played by hand; TAP.
 *
 * usage: logd_ops [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/logd_run.h"

#include "tests/lib/tap.h"

static uint8_t got[1u << 20];

static void what_is_written_is_read_by_who_fenced(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;
	uint8_t held = 0;
	uint32_t count = 0, from;
	uint64_t seq = 0;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	lrun_client(x, &r, 2, 1);
	log_stream_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	for (unsigned i = 0; i < 20; i++) {
		from = g.end;
		log_stream_append(&g, 100 + i * 37);
		CHECK_EQ(lrun_write(&w, &g, from), 0);
	}
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, &held, &count, &seq), 0);
	CHECK_EQ(held, LOG_HELD);
	CHECK_EQ(count, 1);
	CHECK_EQ(seq, 20);
	CHECK_EQ(lrun_read(&r, &(struct log_read){ 9, 6, 5, 0, LOG_DATA_OFF,
						   g.end - LOG_DATA_OFF },
			   got), 0);
	CHECK(memcmp(got, g.mirror + LOG_DATA_OFF, g.end - LOG_DATA_OFF) == 0);
	CHECK_EQ(lrun_free(&r, 9, 6, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "lent_bytes"), 0);
	log_stream_fini(&g);
	raw_close(&w);
	raw_close(&r);
}

/* What the daemon shows of region 0 of inode 9, epoch 5, to @r, who fenced. */
static uint64_t newest(struct blk_raw *r, uint64_t epoch)
{
	uint64_t seq = UINT64_MAX;

	CHECK_EQ(lrun_fence(r, 9, epoch, 5, NULL, NULL, &seq), 0);
	return seq;
}

static void check_holds(struct blk_raw *r, uint64_t epoch,
			const struct log_stream *g)
{
	uint32_t len = (1u << g->log2) - LOG_DATA_OFF;
	struct log_read m = { 9, epoch, 5, g->index, LOG_DATA_OFF, len };

	memset(got, 0x55, len);
	CHECK_EQ(lrun_read(r, &m, got), 0);
	CHECK(memcmp(got, g->mirror + LOG_DATA_OFF, len) == 0);
}

static void begin(struct logd_run *x, struct blk_raw *w, struct blk_raw *r,
		  struct log_stream *g)
{
	lrun_start(x, NULL);
	lrun_client(x, w, 1, 1);
	lrun_client(x, r, 2, 1);
	log_stream_init(g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(w, g), 0);
}

static void end(struct blk_raw *w, struct blk_raw *r, struct log_stream *g)
{
	log_stream_fini(g);
	raw_close(w);
	raw_close(r);
}

/* A writer that lost acknowledgements sends again, in other portions too. */
static void what_comes_again_is_answered_again(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;
	uint32_t second;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 300);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_counter(x, "duplicates"), 1);
	second = g.end;
	log_stream_append(&g, 50);
	log_stream_append(&g, 60);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_counter(x, "writes"), 2);
	CHECK_EQ(newest(&r, 5), 3);
	CHECK_EQ(lrun_write(&w, &g, second), 0);
	CHECK_EQ(lrun_counter(x, "duplicates"), 2);
	CHECK_EQ(lrun_counter(x, "writes"), 2);
	CHECK_EQ(newest(&r, 6), 3);
	check_holds(&r, 6, &g);
	end(&w, &r, &g);
}

static void gaps_and_other_bytes_are_refused(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g, other;
	uint32_t second;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 300);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	second = g.end;
	log_stream_append(&g, 50);
	CHECK_EQ(lrun_write(&w, &g, second + 8), -EPROTO);
	/* The same place, another write. */
	log_stream_init(&other, 9, 5, 16);
	log_stream_append(&other, 301);
	CHECK_EQ(lrun_write(&w, &other, LOG_DATA_OFF), -EPROTO);
	CHECK_EQ(lrun_counter(x, "refused_gaps"), 2);
	CHECK_EQ(lrun_write(&w, &g, second), 0);
	CHECK_EQ(newest(&r, 6), 2);
	check_holds(&r, 6, &g);
	log_stream_fini(&other);
	end(&w, &r, &g);
}

/* Nothing of a write that is not right gets into the memory. */
static void wrong_slots_and_records_are_refused(struct logd_run *x)
{
	const struct log_slot right = {
		.cluster_id = LRUN_CLUSTER_ID, .ino = 9, .epoch = 5, .seq = 1,
		.length = 300, .index = 0, .end = LOG_DATA_OFF + 352,
	};
	struct log_slot s[9];
	uint8_t slot[LOG_SLOT_SIZE];
	struct log_write m = { .ino = 9, .epoch = 5, .data_epoch = 5,
			       .off = LOG_DATA_OFF,
			       .slot = { slot, sizeof(slot) } };
	struct blk_raw w, r;
	struct log_stream g;
	uint32_t len;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 300);
	len = g.end - LOG_DATA_OFF;
	for (unsigned i = 0; i < array_count(s); i++)
		s[i] = right;
	s[0].cluster_id++;
	s[1].ino++;
	s[2].epoch++;
	s[3].index++;
	s[4].seq++;
	s[5].end += 8;
	s[6].end -= 8;
	s[7].end = 1u << 17;
	for (unsigned i = 0; i < array_count(s); i++) {
		log_slot_encode(&s[i], slot);
		if (i == array_count(s) - 1)
			slot[9] ^= 1;
		CHECK_EQ(lrun_write_odd(&w, &m, g.mirror + LOG_DATA_OFF, len),
			 -EBADMSG);
	}
	log_slot_encode(&right, slot);
	m.slot.len--;
	CHECK_EQ(lrun_write_odd(&w, &m, g.mirror + LOG_DATA_OFF, len),
		 -EBADMSG);
	m.slot.len++;
	for (uint32_t i = 0; i < len; i += 41) {
		g.mirror[LOG_DATA_OFF + i] ^= 4;
		CHECK_EQ(lrun_write_odd(&w, &m, g.mirror + LOG_DATA_OFF, len),
			 -EBADMSG);
		g.mirror[LOG_DATA_OFF + i] ^= 4;
	}
	CHECK_EQ(lrun_write_odd(&w, &m, NULL, 0), -EBADMSG);
	m.off = 0;
	CHECK_EQ(lrun_write_odd(&w, &m, g.mirror + LOG_DATA_OFF, len),
		 -EBADMSG);
	m.off = LOG_DATA_OFF;
	CHECK_EQ(lrun_counter(x, "writes"), 0);
	CHECK_EQ(newest(&r, 5), 0);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	check_holds(&r, 6, &g);
	end(&w, &r, &g);
}

static void numbers_go_on_from_region_to_region(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;

	begin(x, &w, &r, &g);
	g.seq = 1; /* the first one's is 1 */
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -EBADMSG);
	log_stream_fini(&g);
	log_stream_init(&g, 9, 5, 16);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	log_stream_next(&g);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	g.seq++;
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -EBADMSG);
	g.index--;
	log_stream_next(&g);
	g.seq = 1;
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(newest(&r, 6), 2);
	end(&w, &r, &g);
}

static void a_region_is_lent_to_one(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_alloc(&w, &g), 0); /* again: the same, with what is in */
	CHECK_EQ(lrun_counter(x, "regions"), 1);
	CHECK_EQ(lrun_alloc(&r, &g), -ESTALE);
	CHECK_EQ(lrun_write(&r, &g, LOG_DATA_OFF), -ESTALE);
	g.log2++;
	CHECK_EQ(lrun_alloc(&w, &g), -EEXIST);
	g.log2 = LOG_REGION_LOG2_MIN - 1;
	CHECK_EQ(lrun_alloc(&w, &g), -EINVAL);
	g.log2 = 16;
	CHECK_EQ(newest(&w, 5), 1);
	check_holds(&w, 5, &g);
	end(&w, &r, &g);
}

static void memory_is_zeroed_before_it_is_lent(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;
	uint32_t len = 1u << 18;
	struct log_read m = { 9, 5, 5, 0, 0, len };

	begin(x, &w, &r, &g);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	log_stream_fini(&g);
	log_stream_init(&g, 9, 5, 18);
	for (unsigned i = 0; i < 64; i++) { /* all of the 16 MiB */
		g.index = i;
		CHECK_EQ(lrun_alloc(&w, &g), 0);
	}
	g.index = 0;
	while (g.end + 4096 < len)
		log_stream_append(&g, 3000);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, 1), 0);
	CHECK_EQ(lrun_read(&w, &m, got), -ENOENT);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	CHECK_EQ(lrun_read(&w, &m, got), 0);
	for (uint32_t i = 0; i < len; i++)
		if (got[i]) {
			CHECK(!"zeros");
			break;
		}
	m.off = 4096;
	CHECK_EQ(lrun_read(&w, &m, got), -EINVAL);
	m.len = 0;
	CHECK_EQ(lrun_read(&w, &m, got), -EINVAL);
	end(&w, &r, &g);
}

static void a_fence_stays(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;
	struct log_read m = { 9, 5, 5, 0, LOG_DATA_OFF, 8 };
	uint8_t held;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(newest(&r, 7), 1);
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, NULL, NULL, NULL), -ESTALE);
	CHECK_EQ(lrun_read(&r, &m, got), -ESTALE);
	CHECK_EQ(lrun_free(&r, 9, 6, 5, LOG_FREE_ALL), -ESTALE);
	CHECK_EQ(newest(&r, 7), 1); /* again */
	/* Of an inode that has nothing here it is remembered as well. */
	CHECK_EQ(lrun_fence(&r, 10, 7, 5, &held, NULL, NULL), 0);
	CHECK_EQ(held, LOG_HELD_NONE);
	g.ino = 10;
	CHECK_EQ(lrun_alloc(&r, &g), -ESTALE);
	g.epoch = g.writer = 7;
	CHECK_EQ(lrun_alloc(&r, &g), 0);
	end(&w, &r, &g);
}

/* A zombie that goes on, over its old connection and over a new one: nothing
 * of it is in memory after the fence was answered. */
static void a_fence_shuts_a_zombie_out(struct logd_run *x)
{
	static uint8_t before[1u << 16];
	struct log_read m = { 9, 6, 5, 0, 0, sizeof(before) };
	struct blk_raw w, r;
	struct log_stream g;
	uint64_t seq;
	uint32_t from;

	begin(x, &w, &r, &g);
	/* On its way while the fence comes. */
	for (unsigned i = 0; i < 300; i++) {
		from = g.end;
		log_stream_append(&g, 100);
		lrun_post(&w, &g, from);
	}
	seq = newest(&r, 6);
	CHECK_EQ(lrun_read(&r, &m, before), 0);
	for (unsigned i = 0; i < 50; i++) {
		from = g.end;
		log_stream_append(&g, 100);
		lrun_post(&w, &g, from);
	}
	CHECK(raw_closed(&w, 5000));
	raw_close(&w);
	/* Its session still lives, for all this daemon knows. */
	lrun_client(x, &w, 1, 2);
	from = LOG_DATA_OFF + (uint32_t)seq * log_rec_size(100);
	CHECK_EQ(lrun_write(&w, &g, from), -ESTALE);
	CHECK_EQ(lrun_alloc(&w, &g), -ESTALE);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), -ESTALE);
	CHECK_EQ(newest(&r, 6), seq);
	CHECK_EQ(lrun_read(&r, &m, got), 0);
	CHECK(memcmp(before, got, sizeof(before)) == 0);
	CHECK_EQ(lrun_counter(x, "connections_fenced"), 1);
	end(&w, &r, &g);
}

/* What a majority lacks, a recovery adds, under its own epoch. */
static void a_recovery_adds_what_is_missing(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;
	uint32_t from;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(newest(&r, 6), 1);
	from = g.end;
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&r, &g, from), -ESTALE);
	g.writer = 6;
	CHECK_EQ(lrun_write(&r, &g, from), 0);
	CHECK_EQ(lrun_alloc(&r, &g), 0);
	check_holds(&r, 6, &g);
	log_stream_next(&g);
	CHECK_EQ(lrun_alloc(&r, &g), 0);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&r, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(newest(&r, 6), 3);
	/* Another one, before it was done. */
	raw_close(&w);
	lrun_client(x, &w, 1, 2);
	CHECK_EQ(newest(&w, 7), 3);
	CHECK_EQ(lrun_write(&r, &g, LOG_DATA_OFF), -ECONNRESET);
	g.writer = 7;
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	end(&w, &r, &g);
}

/* A sealed log is taken over by its own session, over the same connection. */
static void an_owner_fences_himself(struct logd_run *x)
{
	struct blk_raw w, r;
	struct log_stream g;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(newest(&w, 6), 1);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ESTALE);
	check_holds(&w, 6, &g);
	CHECK_EQ(lrun_free(&w, 9, 6, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "logs"), 0);
	/* The fence is there: who was fenced may not know it. */
	CHECK_EQ(lrun_alloc(&w, &g), -ESTALE);
	CHECK_EQ(lrun_counter(x, "inodes"), 1);
	end(&w, &r, &g);
}

/* Who frees all of a log goes on over the same connection. */
static void an_owner_ends_his_log(struct logd_run *x)
{
	struct log_stream g;
	struct blk_raw w;
	uint8_t held = 9;

	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 1);
	log_stream_init(&g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_fence(&w, 9, 5, 5, &held, NULL, NULL), 0);
	CHECK_EQ(held, LOG_HELD_NONE);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "logs"), 0);
	CHECK_EQ(lrun_counter(x, "inodes"), 1); /* that fence */
	log_stream_fini(&g);
	raw_close(&w);
}

static void memory_ends_and_comes_back(struct logd_run *x)
{
	struct log_stream g;
	struct blk_raw w;

	lrun_start(x, NULL); /* of 16 MiB */
	lrun_client(x, &w, 1, 1);
	log_stream_init(&g, 9, 5, 22);
	for (unsigned i = 0; i < 4; i++) {
		CHECK_EQ(lrun_alloc(&w, &g), 0);
		log_stream_next(&g);
	}
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	/* Neither a log nor an inode stays of one that got nothing. */
	g.ino = 10;
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	CHECK_EQ(lrun_counter(x, "logs"), 1);
	CHECK_EQ(lrun_counter(x, "inodes"), 1);
	CHECK_EQ(lrun_counter(x, "refused_no_memory"), 2);
	g.ino = 9;
	CHECK_EQ(lrun_free(&w, 9, 5, 5, 1), 0);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	log_stream_fini(&g);
	raw_close(&w);
}

struct count {
	const char *name;
	long long want;
};

static void check_counts(const struct logd_run *x, const struct count *list,
			 size_t count)
{
	for (size_t i = 0; i < count; i++) {
		long long v = lrun_counter(x, list[i].name);

		if (v != list[i].want)
			printf("# counter %s:\n", list[i].name);
		CHECK_EQ(v, list[i].want);
	}
}

/* What each_request_is_counted_once() comes to. */
static const struct count of_a_life[] = {
	{ "allocs", 3 },
	{ "writes", 3 },
	{ "write_bytes", 3 * 352 },
	{ "duplicates", 1 },
	{ "fences", 2 },
	{ "logs_cut", 1 },
	{ "connections_fenced", 1 },
	{ "reads", 2 },
	{ "read_bytes", 24 },
	{ "frees", 3 },
	{ "refused_no_memory", 1 },
	{ "refused_full", 1 },
	{ "refused_stale", 4 },
	{ "refused_gone", 0 },
	{ "refused_missing", 2 },
	{ "refused_gaps", 2 },
	{ "refused_damaged", 1 },
	{ "refused_no_lease", 0 },
	{ "invalid_requests", 0 },
	{ "corrupt_requests", 0 },
	{ "hello_refused", 0 },
	{ "bad_frames", 0 },
	{ "logs_given_up", 0 },
	{ "logs_reclaimed", 0 },
	{ "logs_collected", 0 },
	{ "logs", 0 },
	{ "tombstones", 0 },
	{ "inodes", 1 }, /* the fence */
	{ "regions", 0 },
	{ "lent_bytes", 0 },
};

static void count_writes(struct blk_raw *w, struct blk_raw *r,
			 struct log_stream *g)
{
	uint32_t second;

	log_stream_append(g, 300);
	CHECK_EQ(lrun_write(w, g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_write(w, g, LOG_DATA_OFF), 0); /* again */
	second = g->end;
	log_stream_append(g, 300);
	CHECK_EQ(lrun_write(w, g, second + 8), -EPROTO);
	CHECK_EQ(lrun_write(w, g, second + 16), -EPROTO);
	g->mirror[second + 40] ^= 1;
	CHECK_EQ(lrun_write(w, g, second), -EBADMSG);
	g->mirror[second + 40] ^= 1;
	CHECK_EQ(lrun_write(w, g, second), 0);
	CHECK_EQ(lrun_alloc(r, g), -ESTALE);
	CHECK_EQ(lrun_write(r, g, second), -ESTALE);
}

/* It is fenced, read, given what it lacks, and freed. */
static void count_recovery(struct blk_raw *w, struct blk_raw *r,
			   struct log_stream *g)
{
	struct log_read m = { 9, 6, 5, 0, LOG_DATA_OFF, 16 };

	CHECK_EQ(lrun_fence(r, 9, 6, 5, NULL, NULL, NULL), 0);
	CHECK_EQ(lrun_fence(r, 9, 6, 5, NULL, NULL, NULL), 0); /* again */
	CHECK_EQ(lrun_fence(r, 9, 5, 5, NULL, NULL, NULL), -ESTALE);
	CHECK(raw_closed(w, 5000));
	CHECK_EQ(lrun_read(r, &m, got), 0);
	m.len = 8;
	CHECK_EQ(lrun_read(r, &m, got), 0);
	m.index = 1;
	CHECK_EQ(lrun_read(r, &m, got), -ENOENT);
	m.epoch = 5;
	CHECK_EQ(lrun_read(r, &m, got), -ESTALE);
	g->writer = 6;
	log_stream_next(g);
	log_stream_append(g, 300);
	CHECK_EQ(lrun_write(r, g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_alloc(r, g), 0);
	CHECK_EQ(lrun_write(r, g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_free(r, 9, 6, 5, 1), 0);
	CHECK_EQ(lrun_free(r, 9, 6, 5, LOG_FREE_ALL), 0);
}

/* At a daemon of 16 MiB and at most two logs. */
static void each_request_is_counted_once(struct logd_run *x)
{
	static const char *const args[] = { "--logs", "2", NULL };
	struct log_stream g, big;
	struct blk_raw w, r;

	lrun_start(x, args);
	lrun_client(x, &w, 1, 1);
	lrun_client(x, &r, 2, 1);
	log_stream_init(&g, 9, 5, 16);
	log_stream_init(&big, 10, 5, 24);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	CHECK_EQ(lrun_alloc(&w, &big), -ENOSPC); /* no memory */
	big.log2 = 16;
	CHECK_EQ(lrun_alloc(&w, &big), 0);
	big.ino = 11;
	CHECK_EQ(lrun_alloc(&w, &big), -ENOSPC); /* full */
	CHECK_EQ(lrun_free(&w, 10, 5, 5, LOG_FREE_ALL), 0);
	count_writes(&w, &r, &g);
	count_recovery(&w, &r, &g);
	check_counts(x, of_a_life, array_count(of_a_life));
	log_stream_fini(&big);
	end(&w, &r, &g);
}

/* One that a drain took back: what is asked of it is refused as gone. */
static void what_a_drain_took_is_counted(struct logd_run *x)
{
	static const struct count want[] = {
		{ "logs_given_up", 1 },
		{ "logs_reclaimed", 1 },
		{ "refused_gone", 3 },
		{ "refused_no_memory", 1 },
		{ "refused_missing", 0 },
		{ "refused_stale", 0 },
		{ "writes", 0 },
		{ "reads", 0 },
		{ "allocs", 1 },
		{ "fences", 1 },
		{ "logs_cut", 1 },
		{ "logs", 0 },
		{ "tombstones", 1 },
		{ "lent_bytes", 0 },
	};
	struct log_read m = { 9, 6, 5, 0, LOG_DATA_OFF, 8 };
	struct blk_raw w, r, a;
	struct log_stream g;
	uint32_t count = 0;

	begin(x, &w, &r, &g);
	log_stream_append(&g, 300);
	lrun_admin(x, &a);
	CHECK_EQ(lrun_drain(&a, true, 60000), 0);
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0);
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0); /* it has heard */
	CHECK_EQ(lrun_drain(&a, true, 1), 0);
	EVENTUALLY(lrun_counter(x, "tombstones") == 1);
	g.ino = 10;
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	g.ino = 9;
	CHECK_EQ(lrun_alloc(&w, &g), -EIDRM);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -EIDRM);
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, NULL, NULL, NULL), 0);
	CHECK_EQ(lrun_read(&r, &m, got), -EIDRM);
	check_counts(x, want, array_count(want));
	raw_close(&a);
	end(&w, &r, &g);
}

int main(int argc, char **argv)
{
	static const struct logd_test tests[] = {
		LOGD_TEST(what_is_written_is_read_by_who_fenced),
		LOGD_TEST(what_comes_again_is_answered_again),
		LOGD_TEST(gaps_and_other_bytes_are_refused),
		LOGD_TEST(wrong_slots_and_records_are_refused),
		LOGD_TEST(numbers_go_on_from_region_to_region),
		LOGD_TEST(a_region_is_lent_to_one),
		LOGD_TEST(memory_is_zeroed_before_it_is_lent),
		LOGD_TEST(a_fence_stays),
		LOGD_TEST(a_fence_shuts_a_zombie_out),
		LOGD_TEST(a_recovery_adds_what_is_missing),
		LOGD_TEST(an_owner_fences_himself),
		LOGD_TEST(an_owner_ends_his_log),
		LOGD_TEST(memory_ends_and_comes_back),
		LOGD_TEST(each_request_is_counted_once),
		LOGD_TEST(what_a_drain_took_is_counted),
	};

	return logd_tests_run(argc, argv, tests, array_count(tests));
}
