/* The session's stream of mutations when things go wrong: lost and late
 * replies, a metad that restarts without what was not durable, a full window,
 * soft time-outs, fences; and what is given back to metad.
 *
 * Method: a mount on a mini metad (tests/lib/core_fix.h) whose durability,
 * replies and life the test holds in its hand.
 */
#include "tests/lib/core_fix.h"

#include "fuse/core/core_priv.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- lost and late replies ---- */

static void test_an_operation_whose_reply_is_lost_happens_once(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a, b, d;
	struct core_file *h;
	(void)state;
	mini_metad_lose_replies(f->m, WIRE_OP_META_CREATE, 1);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_CREATE, 2);
	assert_int_equal(op_mkfile(f, d.ino, "f", &a), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_CREATE, 1);
	assert_int_equal(op_open_new(f, d.ino, "o", O_EXCL | O_RDWR, &h, &b),
			 0);
	core_release(f->c, h);
	assert_int_equal(mini_metad_executed(f->m, WIRE_OP_META_CREATE), 3);
	mini_metad_lose_replies(f->m, WIRE_OP_META_LINK, 1);
	assert_int_equal(op_link(f, a.ino, d.ino, "l", &a), 0);
	assert_int_equal(a.nlink, 2);
	mini_metad_lose_replies(f->m, WIRE_OP_META_RENAME, 1);
	assert_int_equal(op_rename(f, d.ino, "l", d.ino, "m", 0), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_SETATTR, 1);
	assert_int_equal(op_chmod(f, a.ino, 0640), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_SETXATTR, 1);
	assert_int_equal(op_setxattr(f, a.ino, "user.x", "1", 1, 0), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_UNLINK, 1);
	assert_int_equal(op_unlink(f, d.ino, "m", false), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_LOOKUP, 1);
	assert_int_equal(op_lookup(f, d.ino, "f", &b), 0);
	assert_int_equal(b.nlink, 1);
	check_truth(f);
	fix_stop(f);
}

static void test_a_lost_error_is_told_as_it_was(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_CREATE, 1);
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), -EEXIST);
	mini_metad_lose_replies(f->m, WIRE_OP_META_UNLINK, 1);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", true), -ENOTDIR);
	check_truth(f);
	fix_stop(f);
}

/* Renames a -> b -> c ... in one burst: any change of order fails one. */
static void chain_start(struct fix *f, struct burst *b, unsigned count)
{
	burst_init(b, count);
	for (unsigned i = 0; i < count; i++) {
		char from[16], to[16];
		snprintf(from, sizeof(from), "n%u", i);
		snprintf(to, sizeof(to), "n%u", i + 1);
		core_rename(f->c,
			    &(struct core_rename){ .parent = ROOT_INO,
						   .name = from,
						   .newparent = ROOT_INO,
						   .newname = to },
			    on_burst_err, b);
	}
}

static void test_the_order_of_the_stream_survives_drops(void **state)
{
	enum { STEPS = 400 };
	struct fix *f = fix_new(0);
	struct meta_attr a, b;
	struct burst burst;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "n0", &a), 0);
	mini_metad_hold_replies(f->m, WIRE_OP_META_RENAME, true);
	chain_start(f, &burst, STEPS);
	for (int i = 0; i < 5; i++) {
		mini_metad_drop(f->m);
		pause_ms(10);
	}
	mini_metad_hold_replies(f->m, WIRE_OP_META_RENAME, false);
	mini_metad_drop(f->m); /* held ones went with their connections */
	burst_end(&burst);
	assert_int_equal(burst.first_err, 0);
	assert_int_equal(mini_metad_executed(f->m, WIRE_OP_META_RENAME), STEPS);
	assert_int_equal(mini_metad_lookup(f->m, ROOT_INO, "n400", &b), 0);
	assert_int_equal(a.ino, b.ino);
	fix_stop(f);
}

/* ---- restarts ---- */

static void test_a_restart_that_forgets_gets_everything_again(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr d, a, b, c, was;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "before", NULL), 0);
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_mkfile(f, d.ino, "a", &a), 0);
	assert_int_equal(op_mkfile(f, d.ino, "a", &b), -EEXIST);
	assert_int_equal(op_mkfile(f, d.ino, "b", &b), 0);
	assert_int_equal(op_link(f, a.ino, ROOT_INO, "l", NULL), 0);
	assert_int_equal(op_unlink(f, d.ino, "nope", false), -ENOENT);
	assert_int_equal(op_rename(f, d.ino, "a", d.ino, "c", 0), 0);
	assert_int_equal(op_chmod(f, a.ino, 0604), 0);
	assert_int_equal(op_setxattr(f, b.ino, "user.x", "v", 1, 0), 0);
	assert_int_equal(op_mkfile(f, d.ino, "e", &c), 0);
	assert_int_equal(mini_metad_getattr(f->m, a.ino, &was), 0);
	uint64_t count = mini_metad_inode_count(f->m);
	for (int round = 0; round < 3; round++) {
		mini_metad_restart(f->m, true);
		/* a query is answered after the replay */
		assert_int_equal(op_lookup(f, d.ino, "c", &b), 0);
		assert_int_equal(b.ino, a.ino);
		assert_int_equal(mini_metad_inode_count(f->m), count);
		check_truth(f);
		assert_int_equal(mini_metad_getattr(f->m, a.ino, &b), 0);
		assert_int_equal(b.ctime_ns, was.ctime_ns);
		assert_int_equal(b.mode, S_IFREG | 0604);
	}
	mini_metad_hold_durable(f->m, false);
	assert_int_equal(op_fsync_dir(f), 0);
	mini_metad_restart(f->m, true);
	assert_int_equal(op_lookup(f, d.ino, "e", &b), 0);
	assert_int_equal(b.ino, c.ino);
	check_truth(f);
	fix_stop(f);
}

static void test_mutations_in_flight_survive_a_forgetting_restart(void **state)
{
	enum { FILES = 300 };
	struct fix *f = fix_new(0);
	struct burst burst;
	struct meta_attr d, a;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_fsync_dir(f), 0);
	mini_metad_hold_durable(f->m, true);
	burst_start(f, &burst, d.ino, FILES);
	for (int i = 0; i < 6; i++) {
		mini_metad_restart(f->m, i % 3 != 2);
		pause_ms(7);
	}
	mini_metad_hold_durable(f->m, false);
	burst_end(&burst);
	assert_int_equal(burst.first_err, 0);
	/* the last replay may still be on its way */
	assert_int_equal(op_fsync_dir(f), 0);
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(mini_metad_lookup(f->m, d.ino, name, &a), 0);
	}
	check_truth(f);
	fix_stop(f);
}

static void test_a_handle_outlives_restarts(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h;
	struct meta_attr a, b;
	(void)state;
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_RDWR, &h, &a), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", false), 0);
	mini_metad_restart(f->m, true);
	assert_int_equal(op_lookup(f, ROOT_INO, "f", &b), -ENOENT);
	assert_int_equal(mini_metad_getattr(f->m, a.ino, &b), 0);
	assert_int_equal(mini_metad_lease_count(f->m), 1);
	core_release(f->c, h);
	core_forget(f->c, a.ino, 1);
	mini_metad_hold_durable(f->m, false);
	wait_until(mini_metad_getattr(f->m, a.ino, &b) == -ENOENT);
	fix_stop(f);
}

/* ---- durability ---- */

static void test_fsync_waits_for_the_durable_position(void **state)
{
	struct fix *f = fix_new(0);
	struct fix_call *k = fix_call_new(), *k2 = fix_call_new();
	(void)state;
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	core_fsync_dir(f->c, ROOT_INO, on_err, k);
	assert_false(fix_call_wait(k, 100));
	assert_int_equal(op_mkdir(f, ROOT_INO, "e", NULL), 0);
	core_fsync_dir(f->c, ROOT_INO, on_err, k2);
	assert_false(fix_call_wait(k2, 100));
	mini_metad_hold_durable(f->m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	assert_int_equal(fix_call_end(k2, NULL), 0);
	uint64_t syncs = mini_metad_received(f->m, WIRE_OP_META_SYNC);
	assert_int_equal(op_fsync_dir(f), 0); /* known: nobody is asked */
	assert_int_equal(mini_metad_received(f->m, WIRE_OP_META_SYNC), syncs);
	fix_stop(f);
}

static void test_fsync_waits_through_a_restart(void **state)
{
	struct fix *f = fix_new(0);
	struct fix_call *k = fix_call_new();
	struct meta_attr a;
	(void)state;
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &a), 0);
	core_fsync_dir(f->c, ROOT_INO, on_err, k);
	assert_false(fix_call_wait(k, 50));
	mini_metad_restart(f->m, true);
	assert_false(fix_call_wait(k, 100));
	mini_metad_hold_durable(f->m, false);
	assert_int_equal(fix_call_end(k, NULL), 0);
	check_truth(f);
	fix_stop(f);
}

static void test_a_failed_mutation_does_not_hold_up_fsync(void **state)
{
	struct fix *f = fix_new(0);
	(void)state;
	assert_int_equal(op_unlink(f, ROOT_INO, "nope", false), -ENOENT);
	assert_int_equal(op_fsync_dir(f), 0);
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_unlink(f, ROOT_INO, "nope", false), -ENOENT);
	assert_int_equal(op_fsync_dir(f), 0);
	mini_metad_hold_durable(f->m, false);
	fix_stop(f);
}

static void test_a_full_window_waits_and_goes_on_in_order(void **state)
{
	enum { FILES = SESSION_WINDOW_MAX + 500 };
	struct fix *f = fix_new(0);
	struct burst burst;
	struct meta_attr d, a;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	assert_int_equal(op_fsync_dir(f), 0);
	mini_metad_hold_durable(f->m, true);
	burst_start(f, &burst, d.ino, FILES);
	wait_until(burst_left(&burst) == FILES - SESSION_WINDOW_MAX);
	pause_ms(50);
	assert_int_equal(burst_left(&burst), FILES - SESSION_WINDOW_MAX);
	mini_metad_hold_durable(f->m, false);
	burst_end(&burst);
	assert_int_equal(burst.first_err, 0);
	/* in order: the numbers ascend */
	uint64_t last = 0;
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(mini_metad_lookup(f->m, d.ino, name, &a), 0);
		assert_true(a.ino > last);
		last = a.ino;
	}
	fix_stop(f);
}

/* ---- deadlines and fences ---- */

static void test_a_soft_mount_gives_up_in_time(void **state)
{
	struct fix *f = fix_new(400);
	struct meta_attr a, b;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	mini_metad_down(f->m);
	assert_int_equal(op_lookup(f, ROOT_INO, "g", &b), -ETIMEDOUT);
	assert_int_equal(op_mkfile(f, ROOT_INO, "g", NULL), -ETIMEDOUT);
	assert_int_equal(op_unlink(f, ROOT_INO, "f", false), -ETIMEDOUT);
	assert_int_equal(op_fsync_dir(f), -ETIMEDOUT);
	mini_metad_up(f->m, true);
	/* what was sent may still happen, as with any time-out */
	wait_until(mini_metad_lookup(f->m, ROOT_INO, "g", &b) == 0);
	wait_until(mini_metad_lookup(f->m, ROOT_INO, "f", &b) == -ENOENT);
	assert_int_equal(op_lookup(f, ROOT_INO, "g", &b), 0);
	assert_int_equal(op_lookup(f, ROOT_INO, "f", &b), -ENOENT);
	wait_until(op_fsync_dir(f) == 0);
	check_truth(f);
	fix_stop(f);
}

static void test_a_late_create_of_a_soft_mount_leaves_no_handle(void **state)
{
	struct fix *f = fix_new(300);
	struct core_file **h = malloc(sizeof(*h));
	struct meta_attr a;
	(void)state;
	mini_metad_hold_replies(f->m, WIRE_OP_META_CREATE, true);
	assert_int_equal(op_open_new(f, ROOT_INO, NULL, O_RDWR, h, &a),
			 -ETIMEDOUT);
	assert_int_equal(op_open_new(f, ROOT_INO, "n", O_RDWR, h, &a),
			 -ETIMEDOUT);
	free(h); /* who has been told is gone */
	mini_metad_hold_replies(f->m, WIRE_OP_META_CREATE, false);
	wait_until(mini_metad_lease_count(f->m) == 0);
	wait_until(mini_metad_inode_count(f->m) == 2);
	fix_stop(f);
}

static void test_a_hard_mount_waits(void **state)
{
	struct fix *f = fix_new(0);
	struct fix_call *k = fix_call_new();
	(void)state;
	mini_metad_down(f->m);
	struct core_create p = { .parent = ROOT_INO, .name = "x",
				 .mode = S_IFREG };
	core_create(f->c, &p, on_attr, k);
	assert_false(fix_call_wait(k, 300));
	mini_metad_up(f->m, true);
	assert_int_equal(fix_call_end(k, NULL), 0);
	fix_stop(f);
}

static void test_a_fenced_session_answers_eio_to_everything(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h;
	struct meta_attr a, b;
	struct fix_call *k = fix_call_new(), *k2 = fix_call_new();
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_RDWR, &h, &a), 0);
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	core_fsync_dir(f->c, ROOT_INO, on_err, k);
	mini_metad_hold_replies(f->m, WIRE_OP_META_LOOKUP, true);
	core_lookup(f->c, ROOT_INO, "f", on_attr, k2);
	pause_ms(20);
	mini_metad_fence(f->m);
	/* the next keepalive tells */
	assert_int_equal(fix_call_end(k, NULL), -EIO);
	assert_int_equal(fix_call_end(k2, NULL), -EIO);
	assert_int_equal(op_getattr(f, a.ino, &b), -EIO);
	assert_int_equal(op_mkdir(f, ROOT_INO, "e", NULL), -EIO);
	assert_int_equal(op_lookup(f, ROOT_INO, "f", &b), -EIO);
	assert_int_equal(op_fsync_dir(f), -EIO);
	core_release(f->c, h);
	mini_metad_hold_durable(f->m, false);
	assert_int_equal(core_stop(f->c, WAIT_MS), -EIO);
	fix_free(f);
}

static void test_a_mutation_that_finds_the_session_dead_tells(
	void **state)
{
	struct fix *f = fix_new(0);
	(void)state;
	mini_metad_fence(f->m);
	(void)op_mkdir(f, ROOT_INO, "d", NULL);
	wait_until(op_mkdir(f, ROOT_INO, "e", NULL) == -EIO);
	fix_free(f);
}

/* ---- the session ---- */

static void test_keepalives_carry_the_status(void **state)
{
	struct fix *f = fix_new(0);
	char status[16384];
	(void)state;
	assert_int_equal(core_status_note(f->c, "io_uring", "on \"why\""), 0);
	assert_int_equal(core_status_note(f->c, "io_uring", "off"), 0);
	uint64_t n = mini_metad_received(f->m, WIRE_OP_META_KEEPALIVE);
	wait_until(mini_metad_received(f->m, WIRE_OP_META_KEEPALIVE) > n + 2);
	mini_metad_status(f->m, status, sizeof(status));
	assert_non_null(strstr(status, "\"mountpoint\":\"/mnt/test\""));
	assert_non_null(strstr(status, "\"io_uring\":\"off\""));
	fix_stop(f);
}

static void test_a_new_epoch_is_fetched(void **state)
{
	struct fix *f = fix_new(0);
	(void)state;
	uint64_t n = mini_metad_received(f->m, WIRE_OP_META_MAP_GET);
	mini_metad_bump_epoch(f->m);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	wait_until(mini_metad_received(f->m, WIRE_OP_META_MAP_GET) == n + 1);
	fix_stop(f);
}

static void test_a_second_mount_is_refused_a_dead_one_replaced(void **state)
{
	struct fix *f = fix_new(0);
	struct core *other;
	struct core_options o = {
		.conf = mini_metad_conf(f->m), .host = "elsewhere",
		.mountpoint = "/mnt/x", .wb_bytes_max = 1u << 20,
	};
	(void)state;
	assert_int_equal(core_new(&o, &other), 0);
	assert_int_equal(core_start(other, WAIT_MS), -EBUSY);
	core_free(other);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	/* the same mount point: its process must be dead */
	struct core *again = mount_new(f->m, 0);
	wait_until(op_mkdir(f, ROOT_INO, "e", NULL) == -EIO);
	core_free(f->c);
	f->c = again;
	fix_stop(f);
}

static void test_start_waits_for_metad_and_gives_up(void **state)
{
	struct mini_metad *m;
	struct mini_metad_options mo = { 0 };
	struct core *c;
	(void)state;
	assert_int_equal(mini_metad_new(&mo, &m), 0);
	mini_metad_down(m);
	struct core_options o = {
		.conf = mini_metad_conf(m), .host = "h", .mountpoint = "/m",
	};
	assert_int_equal(core_new(&o, &c), 0);
	/* it says for what it waited */
	assert_int_equal(core_start(c, 200), -ECONNREFUSED);
	core_free(c);
	mini_metad_free(m);
}

/* ---- what is given back ---- */

static void set_size(struct core *c, uint64_t ino, uint64_t size)
{
	core_lock(c);
	struct core_inode *in = inode_find(c, ino);
	assert_non_null(in);
	lease_want(c, in);
	in->attr.size = size;
	in->attr.mtime_ns = 77000000001;
	in->attr.units += 3;
	in->units_delta += 3;
	in->size_dirty = true;
	core_unlock(c);
}

static void test_leased_sizes_are_ours_and_returned_in_batches(
	void **state)
{
	enum { FILES = 100 };
	struct fix *f = fix_new(0);
	struct meta_attr a[FILES], b;
	(void)state;
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(op_mkfile(f, ROOT_INO, name, &a[i]), 0);
		set_size(f->c, a[i].ino, 1000 + i);
		/* a reply with metad's older size must not win */
		assert_int_equal(op_lookup(f, ROOT_INO, name, &b), 0);
		assert_int_equal(b.size, 1000 + i);
		assert_int_equal(b.units, 3);
	}
	uint64_t n = mini_metad_received(f->m, WIRE_OP_META_RETURN);
	core_lock(f->c);
	for (unsigned i = 0; i < FILES; i++)
		ret_queue(f->c, inode_find(f->c, a[i].ino), 20);
	core_unlock(f->c);
	wait_until(mini_metad_lease_count(f->m) == 0);
	assert_true(mini_metad_received(f->m, WIRE_OP_META_RETURN) <= n + 3);
	for (unsigned i = 0; i < FILES; i++) {
		assert_int_equal(mini_metad_getattr(f->m, a[i].ino, &b), 0);
		assert_int_equal(b.size, 1000 + i);
		assert_int_equal(b.units, 3);
		assert_int_equal(b.mtime_ns, 77000000001);
	}
	wait_until(mini_metad_received(f->m, WIRE_OP_META_RETURN) > n);
	pause_ms(20);
	check_truth(f);
	fix_stop(f);
}

static void test_a_late_reply_does_not_bring_an_old_size_back(void **state)
{
	struct fix *f = fix_new(0);
	struct fix_call *k = fix_call_new();
	struct meta_attr a, b;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	set_size(f->c, a.ino, 5000);
	mini_metad_hold_replies(f->m, 0, true);
	core_lookup(f->c, ROOT_INO, "f", on_attr, k);
	core_lock(f->c);
	ret_queue(f->c, inode_find(f->c, a.ino), 0);
	core_unlock(f->c);
	/* looked up before the size was returned, told after it */
	wait_until(mini_metad_received(f->m, WIRE_OP_META_RETURN) == 1);
	core_lock(f->c);
	assert_false(inode_find(f->c, a.ino)->leased);
	core_unlock(f->c);
	mini_metad_hold_replies(f->m, 0, false);
	assert_int_equal(fix_call_end(k, &b), 0);
	assert_int_equal(b.size, 5000);
	assert_int_equal(op_getattr(f, a.ino, &b), 0);
	assert_int_equal(b.size, 5000);
	fix_stop(f);
}

static void test_a_lost_lease_makes_the_file_bad(void **state)
{
	struct fix *f = fix_new(0);
	struct meta_attr a;
	bool bad = false;
	(void)state;
	assert_int_equal(op_mkfile(f, ROOT_INO, "f", &a), 0);
	mini_metad_fail(f->m, WIRE_OP_META_LEASE, -EBUSY, 1);
	core_lock(f->c);
	lease_want(f->c, inode_find(f->c, a.ino));
	core_unlock(f->c);
	for (int i = 0; i < 1000 && !bad; i++) {
		core_lock(f->c);
		bad = inode_find(f->c, a.ino)->bad;
		core_unlock(f->c);
		pause_ms(2);
	}
	assert_true(bad);
	fix_stop(f);
}

static void test_stop_returns_what_is_open_and_unlinked(void **state)
{
	struct fix *f = fix_new(0);
	struct core_file *h, *h2;
	struct meta_attr a, b;
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_RDWR, &h, &a), 0);
	set_size(f->c, a.ino, 42);
	assert_int_equal(op_open_new(f, ROOT_INO, "g", O_RDWR, &h2, &b), 0);
	assert_int_equal(op_unlink(f, ROOT_INO, "g", false), 0);
	assert_int_equal(core_stop(f->c, WAIT_MS), 0);
	assert_int_equal(mini_metad_getattr(f->m, b.ino, &b), -ENOENT);
	assert_int_equal(mini_metad_getattr(f->m, a.ino, &b), 0);
	assert_int_equal(b.size, 42);
	core_release(f->c, h);
	core_release(f->c, h2);
	fix_free(f);
}

static void test_stop_ends_though_the_last_reply_is_lost(void **state)
{
	struct fix *f = fix_new(0);
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	mini_metad_lose_replies(f->m, WIRE_OP_META_SESSION_CLOSE, 1);
	assert_int_equal(core_stop(f->c, 0), 0);
	assert_int_equal(mini_metad_session_count(f->m), 0);
	fix_free(f);
}

static void test_a_mount_that_is_torn_down_answers_everybody(void **state)
{
	struct fix *f = fix_new(0);
	struct fix_call *k[8];
	struct core_file *h;
	struct meta_attr a;
	(void)state;
	assert_int_equal(op_open_new(f, ROOT_INO, "f", O_RDWR, &h, &a), 0);
	core_release(f->c, h);
	mini_metad_hold_durable(f->m, true);
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", NULL), 0);
	for (unsigned i = 0; i < array_count(k); i++)
		k[i] = fix_call_new();
	core_fsync_dir(f->c, ROOT_INO, on_err, k[0]);
	mini_metad_down(f->m);
	struct core_create p = { .parent = ROOT_INO, .name = "x",
				 .mode = S_IFREG, .open_flags = O_RDWR };
	core_create(f->c, &p, on_attr, k[1]);
	p.name = "y";
	core_create_open(f->c, &p, &h, on_attr, k[2]);
	core_unlink(f->c, ROOT_INO, "f", false, on_err, k[3]);
	core_rename(f->c, &(struct core_rename){ .parent = ROOT_INO,
						 .name = "f",
						 .newparent = ROOT_INO,
						 .newname = "g" }, on_err,
		    k[4]);
	core_lookup(f->c, ROOT_INO, "z", on_attr, k[5]);
	core_readlink(f->c, a.ino, on_bytes, k[6]);
	core_fsync_dir(f->c, ROOT_INO, on_err, k[7]);
	pause_ms(30);
	core_free(f->c);
	for (unsigned i = 0; i < array_count(k); i++)
		assert_int_equal(fix_call_end(k[i], NULL), -EIO);
	mini_metad_free(f->m);
	free(f);
}

/* ---- memory ---- */

static void test_the_cache_of_inodes_is_bounded(void **state)
{
	enum { FILES = 70000 };
	struct fix *f = fix_new(0);
	struct burst b;
	struct meta_attr d, a, t;
	(void)state;
	assert_int_equal(op_mkdir(f, ROOT_INO, "d", &d), 0);
	burst_start(f, &b, d.ino, FILES);
	burst_end(&b);
	core_lock(f->c);
	/* used entries have a second chance: not exact */
	assert_true(f->c->inode_count <= 65536 + 2048);
	core_unlock(f->c);
	/* what was let go is found again */
	for (uint64_t ino = d.ino + 1; ino < d.ino + FILES; ino += 997) {
		assert_int_equal(op_getattr(f, ino, &a), 0);
		assert_int_equal(mini_metad_getattr(f->m, ino, &t), 0);
		assert_int_equal(a.ctime_ns, t.ctime_ns);
	}
	fix_stop(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_operation_whose_reply_is_lost_happens_once),
		cmocka_unit_test(test_a_lost_error_is_told_as_it_was),
		cmocka_unit_test(test_the_order_of_the_stream_survives_drops),
		cmocka_unit_test(
			test_a_restart_that_forgets_gets_everything_again),
		cmocka_unit_test(
			test_mutations_in_flight_survive_a_forgetting_restart),
		cmocka_unit_test(test_a_handle_outlives_restarts),
		cmocka_unit_test(test_fsync_waits_for_the_durable_position),
		cmocka_unit_test(test_fsync_waits_through_a_restart),
		cmocka_unit_test(test_a_failed_mutation_does_not_hold_up_fsync),
		cmocka_unit_test(test_a_full_window_waits_and_goes_on_in_order),
		cmocka_unit_test(test_a_soft_mount_gives_up_in_time),
		cmocka_unit_test(
			test_a_late_create_of_a_soft_mount_leaves_no_handle),
		cmocka_unit_test(test_a_hard_mount_waits),
		cmocka_unit_test(
			test_a_fenced_session_answers_eio_to_everything),
		cmocka_unit_test(
			test_a_mutation_that_finds_the_session_dead_tells),
		cmocka_unit_test(test_keepalives_carry_the_status),
		cmocka_unit_test(test_a_new_epoch_is_fetched),
		cmocka_unit_test(
			test_a_second_mount_is_refused_a_dead_one_replaced),
		cmocka_unit_test(test_start_waits_for_metad_and_gives_up),
		cmocka_unit_test(
			test_leased_sizes_are_ours_and_returned_in_batches),
		cmocka_unit_test(
			test_a_late_reply_does_not_bring_an_old_size_back),
		cmocka_unit_test(test_a_lost_lease_makes_the_file_bad),
		cmocka_unit_test(test_stop_returns_what_is_open_and_unlinked),
		cmocka_unit_test(test_stop_ends_though_the_last_reply_is_lost),
		cmocka_unit_test(
			test_a_mount_that_is_torn_down_answers_everybody),
		cmocka_unit_test(test_the_cache_of_inodes_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
