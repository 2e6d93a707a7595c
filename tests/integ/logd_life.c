/* Goal: the real hail-logd starts, gives back what it lent when it has to, and
 * ends; an end is the end of all it held, and is known as one.
 * Method: the program as a child, a fake metad, clients played by hand; TAP.
 *
 * usage: logd_life [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/logd_run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <unistd.h>

#include "tests/lib/tap.h"

/* A log with one record, of session 1. */
static void begin_with(struct logd_run *x, const char *const *args,
		       struct blk_raw *w, struct log_stream *g)
{
	lrun_start(x, args);
	lrun_client(x, w, 1, 1);
	log_stream_init(g, 9, 5, 16);
	CHECK_EQ(lrun_alloc(w, g), 0);
	log_stream_append(g, 100);
	CHECK_EQ(lrun_write(w, g, LOG_DATA_OFF), 0);
}

static void end(struct blk_raw *w, struct log_stream *g)
{
	raw_close(w);
	log_stream_fini(g);
}

static void it_says_what_it_has(struct logd_run *x)
{
	struct meta_log_heartbeat beat;
	struct meta_log_register reg;
	struct blk_raw w;
	struct log_stream g;

	begin_with(x, NULL, &w, &g);
	fake_metad_log_register(x->metad, &reg);
	CHECK_EQ(reg.daemon_id, 1);
	CHECK_EQ(reg.port, x->child.port);
	CHECK_EQ(reg.rdma_port, 0);
	CHECK_EQ(reg.total_bytes, 16u << 20);
	CHECK_EQ(reg.free_bytes, 16u << 20);
	CHECK_EQ(reg.boot_id, w.boot_id);
	do {
		sleep_ms(20);
		fake_metad_log_heartbeat(x->metad, &beat);
	} while (beat.free_bytes != (16u << 20) - (1u << 16) &&
		 child_runs(&x->child));
	CHECK_EQ(beat.boot_id, reg.boot_id);
	CHECK_EQ(beat.draining, 0);
	end(&w, &g);
}

static void a_restarted_one_has_nothing(struct logd_run *x)
{
	struct blk_raw w;
	struct log_stream g;
	uint64_t boot_id;
	uint8_t held = 9;

	begin_with(x, NULL, &w, &g);
	boot_id = w.boot_id;
	raw_close(&w);
	child_kill9(&x->child);
	lrun_start(x, NULL);
	lrun_client(x, &w, 1, 2);
	CHECK(w.boot_id != boot_id);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_fence(&w, 9, 6, 5, &held, NULL, NULL), 0);
	CHECK_EQ(held, LOG_HELD_NONE);
	end(&w, &g);
}

static void a_drain_asks_and_then_takes(struct logd_run *x)
{
	struct meta_log_heartbeat beat;
	struct blk_raw w, r, a;
	struct log_stream g, other;
	struct log_name name = { 0, 0 };
	uint32_t count = 9;
	uint8_t held = 9;

	begin_with(x, NULL, &w, &g);
	lrun_client(x, &r, 2, 1);
	log_stream_init(&other, 11, 8, 16);
	CHECK_EQ(lrun_alloc(&r, &other), 0);
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0);
	CHECK_EQ(count, 0);
	lrun_admin(x, &a);
	CHECK_EQ(lrun_drain(&a, true, 1500), 0);
	CHECK_EQ(lrun_ping(&w, &count, &name), 0);
	CHECK_EQ(count, 1);
	CHECK_EQ(name.ino, 9);
	CHECK_EQ(name.epoch, 5);
	/* It has heard: it comes again. */
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0);
	/* Nothing new; what is there goes on. */
	other.index = 1;
	CHECK_EQ(lrun_alloc(&r, &other), -ENOSPC);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	/* One gives it back. */
	CHECK_EQ(lrun_free(&r, 11, 8, 8, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_ping(&r, &count, NULL), 0);
	CHECK_EQ(count, 0);
	do {
		fake_metad_log_heartbeat(x->metad, &beat);
		sleep_ms(20);
	} while (!beat.draining);
	CHECK_EQ(beat.free_bytes, 0);
	/* The other does not. */
	EVENTUALLY(lrun_counter(x, "logs_given_up") == 1);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -EIDRM);
	CHECK_EQ(lrun_alloc(&w, &g), -EIDRM);
	CHECK_EQ(lrun_ping(&w, &count, &name), 0);
	CHECK_EQ(count, 1);
	CHECK_EQ(lrun_counter(x, "lent_bytes"), 0);
	CHECK_EQ(lrun_drain(&a, false, 0), 0);
	/* Never again looks it as if there had been nothing. */
	CHECK_EQ(lrun_alloc(&w, &g), -EIDRM);
	CHECK_EQ(lrun_fence(&r, 9, 6, 5, &held, &count, NULL), 0);
	CHECK_EQ(held, LOG_HELD_GIVEN_UP);
	CHECK_EQ(count, 0);
	CHECK_EQ(lrun_free(&r, 9, 6, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_counter(x, "tombstones"), 0);
	CHECK_EQ(lrun_counter(x, "inodes"), 1); /* the fence */
	other.index = 0;
	CHECK_EQ(lrun_alloc(&r, &other), 0);
	raw_close(&a);
	raw_close(&r);
	log_stream_fini(&other);
	end(&w, &g);
}

/* A log whose regions are given back is its writer's until it says otherwise:
 * nobody may take the daemon for one without logs. */
static void a_drained_one_has_no_log(struct logd_run *x)
{
	struct blk_raw w, a;
	struct log_stream g;

	begin_with(x, NULL, &w, &g);
	CHECK(lrun_state_is(x, "ok"));
	lrun_admin(x, &a);
	CHECK_EQ(lrun_drain(&a, true, 60000), 0);
	CHECK(lrun_state_is(x, "draining"));
	CHECK_EQ(lrun_free(&w, 9, 5, 5, 1), 0);
	CHECK_EQ(lrun_status(x, "lent_bytes"), 0);
	CHECK_EQ(lrun_status(x, "logs"), 1);
	CHECK(lrun_state_is(x, "draining"));
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_status(x, "logs"), 0);
	CHECK(lrun_state_is(x, "drained"));
	raw_close(&a);
	end(&w, &g);
}

/* A mount that is stopped has its connection, and has moved nothing: it keeps
 * what it has. */
static void a_drain_leaves_those_who_have_not_heard(struct logd_run *x)
{
	struct blk_raw w, r, old, a;
	struct log_stream g, other;
	uint32_t count = 0;

	begin_with(x, NULL, &w, &g);
	lrun_client(x, &old, 2, 1);
	log_stream_init(&other, 11, 8, 16);
	CHECK_EQ(lrun_alloc(&old, &other), 0);
	lrun_admin(x, &a);
	CHECK_EQ(lrun_drain(&a, true, 400), 0);
	/* Told, but maybe it was not read. */
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0);
	CHECK_EQ(count, 1);
	/* What was told before counts over that connection only. */
	CHECK_EQ(lrun_ping(&old, &count, NULL), 0);
	lrun_client(x, &r, 2, 2);
	CHECK_EQ(lrun_ping(&r, &count, NULL), 0);
	CHECK_EQ(count, 1);
	EVENTUALLY(lrun_status(x, "drain_ms") == 0);
	CHECK_EQ(lrun_counter(x, "logs_given_up"), 0);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	/* Both hear of it; now they have to be done by the deadline. */
	CHECK_EQ(lrun_ping(&r, &count, NULL), 0);
	CHECK_EQ(lrun_drain(&a, true, 1), 0);
	EVENTUALLY(lrun_counter(x, "logs_given_up") == 1);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_ping(&w, &count, NULL), 0);
	CHECK_EQ(lrun_drain(&a, true, 1), 0);
	EVENTUALLY(lrun_counter(x, "logs_given_up") == 2);
	raw_close(&a);
	raw_close(&r);
	raw_close(&old);
	log_stream_fini(&other);
	end(&w, &g);
}

/* Milliseconds from SIGTERM to the end, which is a good one. */
static uint64_t ended_after(struct logd_run *x, uint64_t from)
{
	int status = 0;

	CHECK(waitpid(x->child.pid, &status, 0) == x->child.pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	x->child.pid = 0;
	return now_ms() - from;
}

static void a_stop_waits_for_its_memory(struct logd_run *x)
{
	static const char *const args[] = { "--drain-deadline", "60s", NULL };
	struct blk_raw w;
	struct log_stream g;
	uint64_t from;
	uint32_t count = 0;

	begin_with(x, args, &w, &g);
	from = now_ms();
	kill(x->child.pid, SIGTERM);
	EVENTUALLY(lrun_ping(&w, &count, NULL) == 0 && count == 1);
	log_stream_append(&g, 100);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), 0);
	CHECK_EQ(lrun_free(&w, 9, 5, 5, LOG_FREE_ALL), 0);
	CHECK(ended_after(x, from) < 30000);
	end(&w, &g);
}

static void a_stop_waits_no_longer_than_told(struct logd_run *x)
{
	static const char *const args[] = { "--drain-deadline", "1s", NULL };
	struct blk_raw w;
	struct log_stream g;
	uint64_t from, took;

	begin_with(x, args, &w, &g);
	from = now_ms();
	kill(x->child.pid, SIGTERM);
	took = ended_after(x, from);
	CHECK(took >= 950 && took < 30000);
	end(&w, &g);
	/* With nothing lent there is nothing to wait for. */
	lrun_start(x, args);
	from = now_ms();
	kill(x->child.pid, SIGTERM);
	CHECK(ended_after(x, from) < 900);
}

static void a_second_signal_ends_it_at_once(struct logd_run *x)
{
	static const char *const args[] = { "--drain-deadline", "60s", NULL };
	struct blk_raw w;
	struct log_stream g;
	uint64_t from;
	uint32_t count = 0;

	begin_with(x, args, &w, &g);
	from = now_ms();
	kill(x->child.pid, SIGTERM);
	EVENTUALLY(lrun_ping(&w, &count, NULL) == 0 && count == 1);
	kill(x->child.pid, SIGTERM);
	CHECK(ended_after(x, from) < 30000);
	end(&w, &g);
}

/* What nobody owns is asked about, and freed by metad's word alone. */
static void what_nobody_owns_is_collected(struct logd_run *x)
{
	struct log_stream g, unlisted, fenced;
	struct blk_raw w;
	uint8_t held = 9;

	fake_metad_judge(x->metad, 9, 5, META_LOG_UNKNOWN);
	fake_metad_judge(x->metad, 11, 6, META_LOG_UNLISTED);
	fake_metad_judge(x->metad, 12, 4, META_LOG_UNKNOWN);
	begin_with(x, NULL, &w, &g);
	log_stream_init(&unlisted, 11, 6, 16);
	CHECK_EQ(lrun_alloc(&w, &unlisted), 0);
	log_stream_init(&fenced, 13, 7, 16); /* of this one nothing is said */
	CHECK_EQ(lrun_alloc(&w, &fenced), 0);
	CHECK_EQ(lrun_fence(&w, 12, 9, 4, NULL, NULL, NULL), 0);
	CHECK_EQ(lrun_counter(x, "inodes"), 4);
	EVENTUALLY(lrun_counter(x, "logs_collected") == 2);
	EVENTUALLY(lrun_counter(x, "logs_given_up") == 1);
	CHECK(fake_metad_log_heartbeat(x->metad, NULL) >= 4);
	CHECK_EQ(lrun_counter(x, "logs"), 1);
	CHECK_EQ(lrun_counter(x, "inodes"), 2);
	CHECK_EQ(lrun_write(&w, &g, LOG_DATA_OFF), -ENOENT);
	CHECK_EQ(lrun_fence(&w, 11, 9, 6, &held, NULL, NULL), 0);
	CHECK_EQ(held, LOG_HELD_GIVEN_UP);
	log_stream_fini(&unlisted);
	log_stream_fini(&fenced);
	end(&w, &g);
}

/* A verdict may forget a fence: who was fenced has to be known as dead before,
 * which a map tells that may not be here yet. */
static void verdicts_wait_for_the_map(struct logd_run *x)
{
	static const uint64_t sessions[] = { 1, 2, 3 };
	struct log_stream g;
	struct blk_raw w, a;

	begin_with(x, NULL, &w, &g);
	fake_metad_judge(x->metad, 9, 5, META_LOG_UNKNOWN);
	fake_metad_hide_map(x->metad, true);
	fake_metad_set_sessions(x->metad, sessions, 3);
	lrun_admin(x, &a);
	CHECK_EQ(lrun_drain(&a, true, 60000), 0); /* it asks each second */
	EVENTUALLY(fake_metad_log_heartbeat(x->metad, NULL) >= 2);
	CHECK_EQ(lrun_counter(x, "logs_collected"), 0);
	fake_metad_hide_map(x->metad, false);
	EVENTUALLY(lrun_counter(x, "logs_collected") == 1);
	raw_close(&a);
	end(&w, &g);
}

static void logs_are_bounded(struct logd_run *x)
{
	static const char *const args[] = { "--logs", "2", NULL };
	struct blk_raw w;
	struct log_stream g;

	begin_with(x, args, &w, &g);
	g.ino = 10;
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	g.ino = 11;
	CHECK_EQ(lrun_alloc(&w, &g), -ENOSPC);
	CHECK_EQ(lrun_counter(x, "inodes"), 2);
	/* Inodes with nothing but a fence: twice as many. */
	CHECK_EQ(lrun_fence(&w, 12, 5, 5, NULL, NULL, NULL), 0);
	CHECK_EQ(lrun_fence(&w, 13, 5, 5, NULL, NULL, NULL), 0);
	CHECK_EQ(lrun_fence(&w, 14, 5, 5, NULL, NULL, NULL), -ENOSPC);
	CHECK_EQ(lrun_fence(&w, 9, 5, 5, NULL, NULL, NULL), 0);
	CHECK(lrun_counter(x, "refused_full") >= 2);
	g.ino = 10;
	CHECK_EQ(lrun_free(&w, 10, 5, 5, LOG_FREE_ALL), 0);
	CHECK_EQ(lrun_alloc(&w, &g), 0);
	end(&w, &g);
}

/* It may stay awake between requests, but not between none. */
static void an_idle_one_sleeps(struct logd_run *x)
{
	static const char *const args[] = { "--spin", "1000", NULL };
	struct blk_raw w;
	struct log_stream g;
	uint64_t cpu, from, us;
	uint32_t at;

	begin_with(x, args, &w, &g);
	for (unsigned i = 0; i < 300; i++) {
		at = g.end;
		log_stream_append(&g, 100);
		CHECK_EQ(lrun_write(&w, &g, at), 0);
	}
	sleep_ms(100);
	cpu = lrun_cpu_us(x);
	from = now_us();
	sleep_ms(4000);
	us = now_us() - from;
	cpu = lrun_cpu_us(x) - cpu;
	printf("# idle: %llu us of %llu\n", (unsigned long long)cpu,
	       (unsigned long long)us);
	CHECK(cpu * 100 < us);
	end(&w, &g);
}

static void no_locked_memory(void)
{
	struct rlimit r = { 65536, 65536 };

	if (setrlimit(RLIMIT_MEMLOCK, &r) < 0 ||
	    prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) < 0)
		abort();
}

static void memory_that_cannot_be_pinned_is_told(struct logd_run *x)
{
	static const char *const must[] = { "--pin", "must", NULL };
	static const char *const no[] = { "--pin", "no", NULL };

	if (geteuid() != 0 || LRUN_SANITIZED) {
		printf("# needs root to take CAP_IPC_LOCK away, and mlock()\n");
		return;
	}
	x->child.before_exec = no_locked_memory;
	child_spawn(&x->child, "hail-logd", must, NULL);
	CHECK_EQ(child_wait(&x->child), 3);
	CHECK(child_log_has(&x->child, "cannot be pinned"));
	CHECK(child_log_has(&x->child, "limit of locked memory is 64 KiB"));
	lrun_start(x, NULL);
	CHECK(child_log_has(&x->child, "pinned=0"));
	CHECK_EQ(child_term(&x->child), 0);
	lrun_start(x, no);
	x->child.before_exec = NULL;
}

int main(int argc, char **argv)
{
	static const struct logd_test tests[] = {
		LOGD_TEST(it_says_what_it_has),
		LOGD_TEST(a_restarted_one_has_nothing),
		LOGD_TEST(a_drain_asks_and_then_takes),
		LOGD_TEST(a_drained_one_has_no_log),
		LOGD_TEST(a_drain_leaves_those_who_have_not_heard),
		LOGD_TEST(a_stop_waits_for_its_memory),
		LOGD_TEST(a_stop_waits_no_longer_than_told),
		LOGD_TEST(a_second_signal_ends_it_at_once),
		LOGD_TEST(what_nobody_owns_is_collected),
		LOGD_TEST(verdicts_wait_for_the_map),
		LOGD_TEST(logs_are_bounded),
		LOGD_TEST(an_idle_one_sleeps),
		LOGD_TEST(memory_that_cannot_be_pinned_is_told),
	};

	return logd_tests_run(argc, argv, tests, array_count(tests));
}
