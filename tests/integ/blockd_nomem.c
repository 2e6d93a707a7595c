/* Goal: whichever allocation of the real hail-blockd fails, who asked is told
 * or loses its connection, nothing acknowledged is lost, and everything works
 * again afterwards.
 * Method: the program as a child with an allocator that fails at the k-th call
 * (preload/kthmalloc.c), for each k of a round of requests; a fake metad, peers
 * played by hand; TAP.
 *
 * usage: blockd_nomem [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/blockd_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/tap.h"

#define BLOCK (1u << 20)
#define SYNC BLK_WRITE_SYNC

#ifndef __SANITIZE_ADDRESS__ /* which wants to be preloaded first */
static char fail_at[128];
static int64_t *left;
static uint8_t pattern[BLOCK], got[BLOCK];

static void preload(void)
{
	child_preload("kthmalloc.so");
	setenv("FAIL_AT", fail_at, 1);
}

static void counter_make(const struct blockd_run *x)
{
	int fd;

	snprintf(fail_at, sizeof(fail_at), "%s/fail_at", x->child.dir);
	fd = open(fail_at, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && ftruncate(fd, sizeof(*left)) == 0);
	left = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	close(fd);
	if (left == MAP_FAILED)
		abort();
}

static void counter_set(int64_t k)
{
	__atomic_store_n(left, k, __ATOMIC_RELAXED);
}

static int64_t counter_get(void)
{
	return __atomic_load_n(left, __ATOMIC_RELAXED);
}

/* Answered, or told so, or the connection went, or the store stops (EIO) or has
 * stopped (EROFS); silence is none of them. */
static bool done(int status)
{
	if (status != -ENOMEM && status != -ECONNRESET && status != -EIO &&
	    status != -EROFS)
		CHECK_EQ(status, 0);
	return status == 0;
}

/* What a client does; *@acked: how far inode 20 was stored durably. */
static void clients_round(struct blockd_run *x, uint64_t incarnation,
			  uint64_t k, bool *acked)
{
	struct blk_raw r;
	bool hole = false;

	if (!raw_connect(&r, x->child.port, RUN_CLUSTER_ID))
		return;
	run_fill(pattern, BLOCK, (unsigned)k);
	if (done(raw_hello(&r, WIRE_ROLE_CLIENT, 1, incarnation, 20000)) &&
	    done(raw_write(&r, 20, 0, 0, pattern, 70000, SYNC)) &&
	    (*acked = true) && done(raw_write(&r, 21, 3, 77, pattern, 500000,
					      0)) &&
	    done(raw_write(&r, 100 + k, 0, 5, pattern, 3, 0)) &&
	    done(raw_sync(&r, 0)) &&
	    done(raw_read(&r, 20, 0, 0, got, 70000, &hole)))
		(void)done(RAW_CALL(&r, WIRE_OP_BLK_MAP, blk_map, NULL,
				    { .ino = 21, .last = UINT64_MAX,
				      .count_max = 100, .block_log2 = 20 }));
	raw_close(&r);
}

static void metads_round(struct blockd_run *x, uint64_t k)
{
	uint8_t inos[8] = { (uint8_t)(100 + k), (uint8_t)((100 + k) >> 8) };
	struct blk_purge purge = { .inos = { inos, 8 } };
	struct blk_raw m;

	if (!raw_connect(&m, x->child.port, RUN_CLUSTER_ID))
		return;
	if (done(raw_hello(&m, WIRE_ROLE_METAD, 0, 1, 20000)) &&
	    done(RAW_CALL(&m, WIRE_OP_BLK_END, blk_end, NULL,
			  { .ino = 20, .block_log2 = 20 })) &&
	    done(RAW_CALL(&m, WIRE_OP_BLK_LIST, blk_list, NULL,
			  { .count_max = 100 })) &&
	    done(RAW_CALL(&m, WIRE_OP_BLK_CUT, blk_cut, NULL,
			  { .ino = 23, .cut = k, .from = 0,
			    .to = BLK_CUT_TO_END, .block_log2 = 20 })) &&
	    done(RAW_CALL(&m, WIRE_OP_BLK_PURGE, blk_purge, NULL, purge)))
		(void)done(RAW_CALL(&m, WIRE_OP_BLK_FENCE, blk_fence, NULL,
				    { .session = 7 }));
	raw_close(&m);
}

static void admins_round(struct blockd_run *x)
{
	struct blk_raw a;

	if (!raw_connect(&a, x->child.port, RUN_CLUSTER_ID))
		return;
	if (done(raw_hello(&a, WIRE_ROLE_ADMIN, 0, 1, 20000)) &&
	    done(raw_call(&a, WIRE_OP_ADMIN_STATUS, NULL, 0, NULL, 0, NULL)) &&
	    done(raw_call(&a, WIRE_OP_ADMIN_STATS, NULL, 0, NULL, 0, NULL)))
		(void)done(raw_call(&a, WIRE_OP_BLK_SCRUB, NULL, 0, NULL, 0,
				    NULL));
	raw_close(&a);
}

static bool answers(struct blockd_run *x)
{
	struct blk_raw a;
	int status;

	if (!raw_connect(&a, x->child.port, RUN_CLUSTER_ID))
		return false;
	status = raw_hello(&a, WIRE_ROLE_ADMIN, 0, 1, 20000);
	raw_close(&a);
	return status == 0;
}

static void any_allocation_may_fail(struct blockd_run *x)
{
	uint64_t incarnation = 1;
	struct blk_raw r;
	int64_t k = 0, rest;
	unsigned stops = 0;
	int rv;

	counter_make(x);
	x->child.before_exec = preload;
	run_start(x, NULL);
	do {
		bool acked = false;

		counter_set(++k);
		clients_round(x, incarnation++, (uint64_t)k, &acked);
		metads_round(x, (uint64_t)k);
		admins_round(x);
		rest = counter_get();
		counter_set(0);
		if (!answers(x))
			child_die(&x->child, "no answer any more");
		run_fill(pattern, BLOCK, (unsigned)k);
		run_client(x, &r, 1, incarnation++);
		if (acked)
			run_check_holds(&r, 20, 0, 0, pattern, 70000);
		rv = raw_write(&r, 19, 0, 0, pattern, 70000, SYNC);
		if (rv == -EROFS) {
			/* The index could not be committed: it stops. */
			raw_close(&r);
			CHECK_EQ(child_term(&x->child), 3);
			run_start(x, NULL);
			run_client(x, &r, 1, incarnation++);
			if (acked)
				run_check_holds(&r, 20, 0, 0, pattern, 70000);
			stops++;
			rv = 0;
		}
		CHECK_EQ(rv, 0);
		raw_close(&r);
	} while (rest <= 0);
	printf("# %lld allocations, %u stops\n", (long long)k, stops);
	CHECK(stops <= (unsigned)k / 8);
	CHECK(k > 20);
	CHECK_EQ(child_term(&x->child), 0);
}

static char trigger[128];

static void preload_failing_malloc(void)
{
	child_preload("failmalloc.so");
	setenv("FAIL_MALLOC", trigger, 1);
}

/* It is not said to be one too many. */
static void without_memory_a_connection_is_refused(struct blockd_run *x)
{
	struct blk_raw r;
	int fd;

	snprintf(trigger, sizeof(trigger), "%s/no-memory", x->child.dir);
	x->child.before_exec = preload_failing_malloc;
	run_start(x, NULL);
	fd = open(trigger, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && close(fd) == 0);
	CHECK(raw_connect(&r, x->child.port, RUN_CLUSTER_ID));
	CHECK(raw_closed(&r, 20000));
	raw_close(&r);
	CHECK_EQ(unlink(trigger), 0);
	CHECK(child_log_has(&x->child, "what=no-memory"));
	CHECK(!child_log_has(&x->child, "too-many"));
	CHECK_EQ(run_counter(x, "connections_no_memory"), 1);
	CHECK_EQ(run_counter(x, "connections_refused"), 0);
}
#endif

/* The limit's least value is 8. */
static void above_the_limit_a_connection_is_refused(struct blockd_run *x)
{
	static const char *const args[] = { "--connections", "8", NULL };
	struct blk_raw r[9];

	run_start(x, args);
	for (unsigned i = 0; i < 9; i++) {
		CHECK(raw_connect(&r[i], x->child.port, RUN_CLUSTER_ID));
		if (i < 8)
			CHECK_EQ(raw_hello(&r[i], WIRE_ROLE_ADMIN, 0, 1, 20000),
				 0);
	}
	CHECK(raw_closed(&r[8], 20000));
	CHECK(child_log_has(&x->child, "what=too-many-connections"));
	CHECK(!child_log_has(&x->child, "what=no-memory"));
	CHECK_EQ(raw_call(&r[0], WIRE_OP_ADMIN_STATUS, NULL, 0, NULL, 0,
			  NULL), 0);
	for (unsigned i = 0; i < 9; i++)
		raw_close(&r[i]);
}

/* Who came first and said nothing goes; who said who it is stays. */
static void a_stranger_makes_room(struct blockd_run *x)
{
	static const char *const args[] = { "--connections", "8", NULL };
	struct blk_raw r[9];

	run_start(x, args);
	for (unsigned i = 0; i < 9; i++)
		CHECK(raw_connect(&r[i], x->child.port, RUN_CLUSTER_ID));
	CHECK_EQ(raw_hello(&r[8], WIRE_ROLE_ADMIN, 0, 1, 20000), 0);
	CHECK(raw_closed(&r[0], 20000));
	CHECK(!child_log_has(&x->child, "what=too-many-connections"));
	for (unsigned i = 1; i < 8; i++)
		CHECK_EQ(raw_hello(&r[i], WIRE_ROLE_ADMIN, 0, 1, 20000), 0);
	for (unsigned i = 0; i < 9; i++)
		raw_close(&r[i]);
}

int main(int argc, char **argv)
{
	static const struct blockd_test tests[] = {
#ifndef __SANITIZE_ADDRESS__
		BLOCKD_TEST(any_allocation_may_fail),
		BLOCKD_TEST(without_memory_a_connection_is_refused),
#endif
		BLOCKD_TEST(above_the_limit_a_connection_is_refused),
		BLOCKD_TEST(a_stranger_makes_room),
	};

	return blockd_tests_run(argc, argv, tests, array_count(tests));
}
