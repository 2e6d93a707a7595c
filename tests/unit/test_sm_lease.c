/* Leases, what their holders return, cuts, purges, size recovery. */
#include "tests/lib/sm_fixture.h"

#include "common/wire_blk.h"
#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO
#define CAPABILITY "security.capability"

/* ---- leases ---- */

static void a_lease_is_exclusive_and_shown(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_setattr grow = { .ino = f, .valid = META_SET_SIZE,
				     .size = 9 };
	struct sm_client d;

	sm_client_join(&d, c->sm);
	assert_int_equal(c->attr.flags & META_ATTR_LEASED, 0);
	assert_int_equal(sm_client_lease(c, f), 0);
	assert_int_equal(c->attr.flags & META_ATTR_LEASED, META_ATTR_LEASED);
	assert_int_equal(sm_client_lease(c, f), 0); /* again: fine */
	assert_int_equal(sm_client_lease(&d, f), -EBUSY);
	assert_int_equal(sm_client_truncate(&d, f, 10, 0), -EBUSY);
	assert_int_equal(sm_client_setattr(&d, &grow), -EBUSY);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_LEASE), 0);
	assert_int_equal(sm_client_lease(&d, f), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_LEASE), 0);
	assert_int_equal(sm_client_stat(c, f).flags, META_ATTR_LEASED);
	sm_client_leave(&d);
}

static void create_can_grant_the_lease(void **state)
{
	struct sm_client *c = *state;
	struct meta_create p = {
		.parent = ROOT, .name = { "f", 1 }, .mode = S_IFREG | 0600,
		.flags = META_CREATE_OPEN | META_CREATE_LEASE,
	};
	uint64_t inos[2];

	assert_int_equal(sm_client_create(c, &p), 0);
	assert_int_equal(c->attr.flags, META_ATTR_LEASED);
	assert_int_equal(sm_lease_list(c->sm, c->session, 0, inos, 2), 1);
	assert_int_equal(inos[0], c->attr.ino);
	assert_int_equal(sm_client_give_back(c, c->attr.ino,
					     META_RETURN_LEASE), 0);
	assert_int_equal(sm_client_create(c, &p), 0); /* exists now */
	assert_true(c->existed);
	assert_int_equal(c->attr.flags, META_ATTR_LEASED);
}

static void only_files_are_leased(void **state)
{
	struct sm_client *c = *state;
	uint64_t p = SM_INO(c, sm_client_mknod(c, ROOT, "p", S_IFIFO | 0600,
					       0));

	assert_int_equal(sm_client_lease(c, ROOT), -EISDIR);
	assert_int_equal(sm_client_lease(c, p), -EINVAL);
	assert_int_equal(sm_client_lease(c, 4711), -ENOENT);
}

/* ---- returns ---- */

static void a_return_tells_size_units_and_times(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_return r = {
		.ino = f, .what = META_RETURN_SIZE | META_RETURN_ATIME,
		.size = 12345, .units_delta = 4, .atime_ns = 11,
		.mtime_ns = 22, .ctime_ns = c->now + 33,
	};
	struct meta_attr a;

	assert_int_equal(sm_client_return(c, &r, 1), 0);
	a = sm_client_stat(c, f);
	assert_true(a.size == 12345 && a.units == 4 && a.atime_ns == 11 &&
		    a.mtime_ns == 22 && a.ctime_ns == r.ctime_ns);
	r.what = META_RETURN_SIZE;
	r.size = 1;
	r.units_delta = -9;
	r.ctime_ns = 1; /* older than a change we made: stays */
	r.atime_ns = 99;
	assert_int_equal(sm_client_return(c, &r, 1), 0);
	a = sm_client_stat(c, f);
	assert_true(a.size == 1 && a.units == 0 && a.atime_ns == 11 &&
		    a.ctime_ns == c->now - 2000000000 + 33);
}

static void unknown_inodes_in_a_return_are_skipped(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_return r[3] = {
		{ .ino = 4711, .what = META_RETURN_SIZE, .size = 1 },
		{ .ino = ROOT, .what = META_RETURN_SIZE, .size = 1 },
		{ .ino = f, .what = META_RETURN_SIZE, .size = 77 },
	};

	assert_int_equal(sm_client_return(c, r, 3), 0);
	assert_int_equal(sm_client_stat(c, f).size, 77);
}

static void many_items_in_one_return_all_count(void **state)
{
	static struct meta_return items[RETURN_COUNT_MAX + 1];
	struct sm_client *c = *state;
	char name[16];

	for (uint32_t i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name), "%u", i);
		items[i] = (struct meta_return){
			.ino = SM_INO(c, sm_client_file(c, ROOT, name)),
			.what = META_RETURN_SIZE | META_RETURN_ORPHAN,
			.size = i + 1,
		};
		if (i % 2 == 0)
			assert_int_equal(sm_client_unlink(c, ROOT, name), 0);
	}
	assert_int_equal(sm_client_return(c, items, 2000), 0);
	assert_int_equal(sm_inode_count(c->sm), 1 + 1000);
	assert_int_equal(sm_client_stat(c, items[1999].ino).size, 2000);
	assert_int_equal(sm_client_return(c, items, RETURN_COUNT_MAX + 1),
			 -EINVAL);
	assert_int_equal(sm_client_return(c, items, 0), 0);
}

/* ---- cuts ---- */

static void a_cut_raises_the_number_and_makes_a_job(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_cut job[2];

	assert_int_equal(sm_client_truncate(c, f, 10000, 5000), 0);
	assert_int_equal(c->attr.cut, 1);
	assert_int_equal(c->attr.size, 5000);
	assert_true(c->attr.mtime_ns == c->now && c->attr.ctime_ns == c->now);
	assert_true(c->r.cut_job == 1 && c->r.cut_ino == f);
	assert_true(sm_cut_pending(c->sm, f));
	assert_int_equal(sm_cut_list(c->sm, 0, 0, job, 2), 1);
	assert_true(job[0].ino == f && job[0].cut == 1 &&
		    job[0].from == 5000 && job[0].to == BLK_CUT_TO_END &&
		    job[0].block_log2 == BLOCK_LOG2_DEFAULT &&
		    job[0].pos == c->r.pos);
}

static void nothing_to_cut_makes_no_job(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));

	assert_int_equal(sm_client_truncate(c, f, 0, 0), 0);
	assert_int_equal(c->r.cut_job, 0);
	assert_false(sm_cut_pending(c->sm, f));
	assert_int_equal(c->attr.cut, 1);
}

static void preallocated_units_are_cut_too(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_setattr s = { .ino = f, .valid = META_SET_UNITS_DELTA,
				  .units_delta = 1 };

	assert_int_equal(sm_client_setattr(c, &s), 0);
	assert_int_equal(sm_client_truncate(c, f, 0, 0), 0);
	assert_int_equal(c->r.cut_job, 1);
}

static void a_confirmed_cut_adjusts_units_once(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_return r = { .ino = f, .what = META_RETURN_SIZE,
				 .size = 40960, .units_delta = 10 };

	assert_int_equal(sm_client_return(c, &r, 1), 0);
	assert_int_equal(sm_client_truncate(c, f, 40960, 4096), 0);
	assert_int_equal(c->attr.units, 10);
	assert_int_equal(sm_client_cut_done(c, f, 1, -9), 0);
	assert_int_equal(sm_client_cut_done(c, f, 1, -9), 0);
	assert_int_equal(sm_client_stat(c, f).units, 1);
	assert_false(sm_cut_pending(c->sm, f));
}

static void cuts_of_one_file_are_separate_jobs_in_order(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_cut punch = { .ino = f, .from = 100, .to = 200,
				  .size_now = 1000, .size = 1000 };
	struct sm_cut job[4];

	assert_int_equal(sm_client_truncate(c, f, 5000, 1000), 0);
	assert_int_equal(sm_client_cut(c, &punch), 0);
	assert_int_equal(c->attr.size, 1000);
	assert_int_equal(sm_cut_list(c->sm, 0, 0, job, 4), 2);
	assert_true(job[0].cut == 1 && job[1].cut == 2 &&
		    job[1].from == 100 && job[1].to == 200);
	assert_int_equal(sm_cut_list(c->sm, f, 1, job, 4), 1);
	assert_int_equal(sm_cut_list(c->sm, f, 2, job, 4), 0);
	/* a lease waits for the last of them */
	assert_int_equal(sm_client_lease(c, f), 0);
	assert_true(c->r.cut_ino == f && c->r.cut_job == 2);
}

static void a_repeated_cut_waits_only_while_it_is_pending(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_client d;

	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_truncate(c, f, 5000, 1000), 0);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed && c->r.cut_job == 1 && c->r.cut_ino == f);
	assert_int_equal(sm_client_cut_done(&d, f, 1, 0), 0);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed && c->r.cut_job == 0 && c->r.cut_ino == 0);
	sm_client_leave(&d);
}

static void a_cut_can_clear_set_id_bits(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_cut q = { .ino = f, .from = 0, .to = BLK_CUT_TO_END,
			      .size_now = 5 };

	assert_int_equal(sm_client_setxattr(c, f, CAPABILITY, "x", 1, 0), 0);
	assert_int_equal(sm_client_chmod(c, f, 06755), 0);
	assert_int_equal(sm_client_cut(c, &q), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 06755);
	q.flags = META_CUT_KILLPRIV;
	assert_int_equal(sm_client_cut(c, &q), 0);
	assert_int_equal(c->attr.mode, S_IFREG | 0755);
	assert_int_equal(c->attr.flags, 0);
}

static void only_files_are_cut_and_only_forwards(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct meta_cut q = { .ino = f, .from = 10, .to = 10 };

	assert_int_equal(sm_client_cut(c, &q), -EINVAL);
	q.to = 11;
	q.size = (uint64_t)FILE_SIZE_MAX + 1;
	assert_int_equal(sm_client_cut(c, &q), -EFBIG);
	assert_int_equal(sm_client_truncate(c, ROOT, 0, 0), -EISDIR);
}

/* ---- purges ---- */

static void what_may_have_blocks_is_purged(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_purge_done q;
	struct sm_purge p[2];
	uint8_t buf[64], inos[8];
	struct wire_out o;
	uint64_t pos;

	assert_int_equal(sm_client_lease(c, f), 0);
	assert_int_equal(sm_client_truncate(c, f, 5000, 0), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_purge_list(c->sm, 0, p, 2), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	pos = sm_pos(c->sm);
	assert_int_equal(sm_purge_list(c->sm, 0, p, 2), 1);
	assert_true(p[0].ino == f && p[0].pos == pos);
	assert_false(sm_cut_pending(c->sm, f)); /* it is all purged */
	assert_int_equal(sm_purge_list(c->sm, f, p, 2), 0);

	wire_out_init(&o, inos, sizeof(inos));
	wire_put_u64(&o, f);
	q.inos = (struct wire_str){ inos, sizeof(inos) };
	wire_out_init(&o, buf, sizeof(buf));
	sm_purge_done_encode(&o, &q);
	assert_int_equal(sm_client_internal(c, WIRE_OP_SM_PURGE_DONE, buf,
					    o.len), 0);
	assert_int_equal(sm_purge_list(c->sm, 0, p, 2), 0);
}

static void what_was_never_written_is_not_purged(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	uint64_t s = SM_INO(c, sm_client_symlink(c, ROOT, "s", "target"));
	struct sm_purge p[2];

	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "s"), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_give_back(c, s, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_purge_list(c->sm, 0, p, 2), 0);
	assert_int_equal(sm_inode_count(c->sm), 1);
}

static void only_the_orphans_session_gives_it_back(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_client d;

	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_unlink(c, ROOT, "f"), 0);
	assert_int_equal(sm_client_give_back(&d, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, f), 0);
	sm_client_leave(&d);
}

/* Whose orphans the sessions @s keep, in order, as digits of a number. */
static uint64_t keepers(struct sm *sm, uint64_t ino, struct sm_client *const *s,
			size_t count)
{
	uint64_t found = 0, inos[8];

	for (size_t i = 0; i < count; i++) {
		size_t n = sm_orphan_list(sm, s[i]->session, 0, inos, 8);

		for (size_t j = 0; j < n; j++)
			found += inos[j] == ino ? UINT64_C(1) << i : 0;
	}
	return found;
}

static void an_inode_without_names_lives_until_all_have_returned_it(
	void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f")), late;
	struct sm_client d, e, g;
	struct sm_client *all[] = { c, &d, &e, &g };

	sm_client_join(&d, c->sm);
	sm_client_join(&e, c->sm);
	assert_int_equal(sm_client_unlink(&d, ROOT, "f"), 0);
	assert_int_equal(keepers(c->sm, f, all, 3), 7);
	/* who came later cannot have it open */
	sm_client_join(&g, c->sm);
	assert_int_equal(keepers(c->sm, f, all, 4), 7);
	assert_int_equal(sm_client_give_back(&d, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(keepers(c->sm, f, all, 4), 5);
	assert_true(sm_verify(c->sm));
	/* twice, and by one that has none */
	assert_int_equal(sm_client_give_back(&d, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_give_back(&g, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(keepers(c->sm, f, all, 4), 5);
	/* the dead keep it until they are ended */
	assert_int_equal(sm_client_close(c, e.session, 1), 0);
	assert_int_equal(sm_client_give_back(c, f, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, f), 0);
	assert_true(sm_verify(c->sm));
	assert_int_equal(sm_client_close(c, e.session, 2), 0);
	assert_int_equal(sm_client_getattr(c, f), -ENOENT);

	/* what is renamed over, and a directory */
	f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	late = SM_INO(c, sm_client_file(c, ROOT, "g"));
	assert_int_equal(sm_client_rename(c, ROOT, "g", ROOT, "f", 0, NULL),
			 0);
	assert_int_equal(keepers(c->sm, f, all, 4), 11);
	assert_int_equal(keepers(c->sm, late, all, 4), 0);
	assert_int_equal(sm_client_give_back(&d, late, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, late), 0);
	assert_true(sm_verify(c->sm));
	sm_client_leave(&d);
	sm_client_leave(&e);
	sm_client_leave(&g);
}

/* ---- size recovery ---- */

static void recovered_size_and_mtime_only_grow(void **state)
{
	struct sm_client *c = *state;
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	struct sm_size_set q = { .ino = f, .size = 9000, .units = 3,
				 .mtime_ns = c->now + 5 };
	struct meta_attr a;
	uint8_t buf[64];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_size_set_encode(&o, &q);
	assert_int_equal(sm_client_internal(c, WIRE_OP_SM_SIZE_SET, buf,
					    o.len), 0);
	a = sm_client_stat(c, f);
	assert_true(a.size == 9000 && a.units == 3 &&
		    a.mtime_ns == q.mtime_ns && a.ctime_ns == q.mtime_ns);
	q.size = 100;
	q.mtime_ns = 1;
	wire_out_init(&o, buf, sizeof(buf));
	sm_size_set_encode(&o, &q);
	assert_int_equal(sm_client_internal(c, WIRE_OP_SM_SIZE_SET, buf,
					    o.len), 0);
	a = sm_client_stat(c, f);
	assert_true(a.size == 9000 && a.mtime_ns > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(a_lease_is_exclusive_and_shown),
		SM_TEST(create_can_grant_the_lease),
		SM_TEST(only_files_are_leased),
		SM_TEST(a_return_tells_size_units_and_times),
		SM_TEST(unknown_inodes_in_a_return_are_skipped),
		SM_TEST(many_items_in_one_return_all_count),
		SM_TEST(a_cut_raises_the_number_and_makes_a_job),
		SM_TEST(nothing_to_cut_makes_no_job),
		SM_TEST(preallocated_units_are_cut_too),
		SM_TEST(a_confirmed_cut_adjusts_units_once),
		SM_TEST(cuts_of_one_file_are_separate_jobs_in_order),
		SM_TEST(a_repeated_cut_waits_only_while_it_is_pending),
		SM_TEST(a_cut_can_clear_set_id_bits),
		SM_TEST(only_files_are_cut_and_only_forwards),
		SM_TEST(what_may_have_blocks_is_purged),
		SM_TEST(what_was_never_written_is_not_purged),
		SM_TEST(only_the_orphans_session_gives_it_back),
		SM_TEST(an_inode_without_names_lives_until_all_have_returned_it),
		SM_TEST(recovered_size_and_mtime_only_grow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
