/* Goal: the real hail-metad knows each block daemon's store, waits for one that
 * is lost until it is given up, and repairs only what is safe.
 * Method: the program as a child, fake block daemons with the right store, an
 * old copy or another; TAP.
 *
 * usage: metad_stores [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include "common/wire_admin.h"
#include "tests/lib/tap.h"

#define SOON_MS 300 /* nothing came: it waits */

static uint64_t cuts_pending(struct metad_run *x)
{
	return metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "cuts_pending");
}

static uint64_t purge_pending(struct metad_run *x)
{
	return metad_admin_number(x, WIRE_OP_ADMIN_STATUS, "purge_pending");
}

static void another_or_older_store_is_lost(struct metad_run *x)
{
	char *text;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	CHECK_EQ(fake_blockd_lease_ms(x->blockd[0]), 6000);
	fake_blockd_set_commit(x->blockd[0], 200);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATUS,
				      "commit_recorded") == 200);
	metad_run_blockd_end(x, 0);
	child_term(&x->child);
	metad_run_start(x, NULL);
	/* an old image */
	metad_run_blockd(x, 0, 11, 199);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"lost\"");
	free(text);
	CHECK(child_log_has(&x->child, "an older copy of its store"));
	metad_run_blockd_end(x, 0);
	/* the right one again */
	metad_run_blockd(x, 0, 11, 200);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	metad_run_blockd_end(x, 0);
	/* another one */
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK(child_log_has(&x->child, "another store"));
}

/* What runs in the place of a store confirms nothing for it: the right one may
 * come back as it was. */
static void a_lost_store_is_waited_for(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t cut_ino, end_ino, gone, id;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "c", META_CREATE_LEASE), 0);
	cut_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "e", META_CREATE_LEASE), 0);
	end_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "p", META_CREATE_LEASE), 0);
	gone = c.attr.ino;
	/* One call is on the way when the wrong store comes. */
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_CUT);
	id = metad_client_cut_begin(&c, cut_ino, 70000, 4096);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	EVENTUALLY(child_log_has(&x->child, "event=store-awaited blockd=1"));
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "p"), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	EVENTUALLY(fake_blockd_purged(x->blockd[1], gone) == 1);
	CHECK_EQ(purge_pending(x), 1);
	metad_client_replace_begin(x, &d);
	/* Its lease delays the fence, then the end is asked for. */
	EVENTUALLY(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_END) == 1);
	CHECK(raw_recv(&d.r, SOON_MS) == NULL);
	CHECK_EQ(cuts_pending(x), 1);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 0);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	fake_blockd_set_end(x->blockd[0], 4000, 1, 1);
	raw_close(&d.r);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 1);
	CHECK_EQ(fake_blockd_last_cut(x->blockd[0]).ino, cut_ino);
	/* Two files, and what the cut left, which was asked for twice. */
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_END), 3);
	EVENTUALLY(fake_blockd_purged(x->blockd[0], gone) == 1);
	CHECK_EQ(metad_client_getattr(&d, end_ino), 0);
	CHECK_EQ(d.attr.size, 4000);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static int give_up(struct metad_run *x, uint32_t id)
{
	uint8_t b[8];
	size_t len = METAD_BODY(b, admin_give_up, { .daemon_id = id });

	return metad_admin_call(x, WIRE_OP_ADMIN_GIVE_UP, b, len);
}

/* Whoever waits for a store that was given up goes on; the daemon may come with
 * a new one; the old one stays out, also after a kill. */
static void a_store_that_was_given_up_is_not_waited_for(struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t cut_ino, end_ino, gone, id, until = now_ms() + 15000;
	int rv;

	metad_run_start(x, NULL);
	CHECK_EQ(give_up(x, 1), -EALREADY); /* none came yet */
	metad_run_blockd(x, 0, 11, 100);
	metad_run_blockd(x, 1, 12, 1);
	CHECK_EQ(give_up(x, 7), -ENOENT);
	CHECK_EQ(give_up(x, 1), -EBUSY);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "c", META_CREATE_LEASE), 0);
	cut_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "e", META_CREATE_LEASE), 0);
	end_ino = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "p", META_CREATE_LEASE), 0);
	gone = c.attr.ino;
	fake_blockd_set_down(x->blockd[0], true);
	fake_blockd_set_end(x->blockd[1], 4000, 1, 1);
	id = metad_client_cut_begin(&c, cut_ino, 70000, 4096);
	CHECK_EQ(metad_client_recv(&c, id, SOON_MS), -ETIMEDOUT);
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "p"), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN |
						META_RETURN_LEASE), 0);
	metad_client_replace_begin(x, &d);
	/* It is only away, and may serve for a while: nothing is lost yet. */
	CHECK_EQ(give_up(x, 1), -EBUSY);
	while ((rv = give_up(x, 1)) == -EBUSY && now_ms() < until)
		sleep_ms(100);
	CHECK_EQ(rv, 0);
	CHECK_EQ(give_up(x, 1), -EALREADY);
	raw_close(&d.r);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(metad_client_getattr(&d, end_ino), 0);
	CHECK_EQ(d.attr.size, 4000);
	EVENTUALLY(cuts_pending(x) == 0);
	CHECK_EQ(metad_client_getattr(&d, cut_ino), 0);
	CHECK_EQ(d.attr.units, 1); /* what the other one has of it */
	EVENTUALLY(purge_pending(x) == 0);
	/* The old store is found again. */
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 11, 200);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK(child_log_has(&x->child, "a store that was given up"));
	metad_run_blockd_end(x, 0);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 300);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 0);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_CUT), 0);
	/* Now it is the one that is known. */
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 98, 0);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* hail-metad was started with an empty directory, and the stores have what the
 * metadata in the right one speak of: a mount after a crash would have all of
 * it purged. */
static void blocks_of_other_metadata_are_let_alone(struct metad_run *x)
{
	struct metad_client c, d;

	metad_run_start(x, NULL);
	x->ino_max = 1000;
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ENOTEMPTY);
	CHECK_EQ(fake_blockd_lease_ms(x->blockd[0]), 0);
	CHECK(child_log_has(&x->child, "never had; is this the data dir"));
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_FENCE), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_LIST), 0);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_PURGE), 0);
	/* One that is known, or as new as the metadata, is let in. */
	metad_run_blockd_end(x, 0);
	x->ino_max = 0;
	metad_run_blockd(x, 0, 12, 1);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	metad_run_blockd_end(x, 0);
	x->ino_max = 1000;
	metad_run_blockd(x, 0, 12, 1);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), 0);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* A session dies, hail-metad is killed and started anew: what it begins with is
 * ending that session. */
static void dies_with_a_session(struct metad_run *x)
{
	struct metad_client c;

	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	metad_client_fini(&c);
	metad_run_blockd_end(x, 0);
	metad_run_blockd_end(x, 1);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
}

/* What is of no inode is purged when a mount that died is replaced, but only
 * when every store on record has told that these metadata are no older copy. */
static void a_sweep_purges_when_all_stores_are_known(struct metad_run *x)
{
	uint64_t stray = 5000;
	struct metad_client c;

	dies_with_a_session(x);
	metad_run_blockd(x, 0, 11, 5);
	fake_blockd_set_stray(x->blockd[0], stray);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], stray), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	CHECK(c.attr.ino > stray); /* its number is not used again */
	metad_client_fini(&c);
	metad_run_blockd(x, 1, 12, 5);
	stray += c.attr.ino;
	fake_blockd_set_stray(x->blockd[0], stray);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], stray), 1);
	CHECK_EQ(fake_blockd_purged(x->blockd[1], stray), 1);
	metad_client_fini(&c);
}

/* The data directory was set back: the store of block daemon 2 has seen what it
 * never gave out, and has a block of that. */
static void older_metadata(struct metad_run *x, uint64_t session_max,
			   uint64_t ino_max)
{
	const uint64_t stray = 5000;
	struct metad_client c;
	char *text;

	dies_with_a_session(x);
	x->session_max = session_max / 2;
	x->ino_max = ino_max / 2;
	metad_run_blockd(x, 1, 12, 5);
	fake_blockd_set_stray(x->blockd[1], stray);
	CHECK(child_log_has(&x->child, "event=older-metadata blockd=2"));
	EVENTUALLY(child_log_has(&x->child, "event=waiting blockd=1"));
	CHECK_EQ(metad_client_open(x, &c, 1), -ECONNRESET);
	metad_client_fini(&c);
	/* It goes on with that after a kill, also when nobody says it again. */
	metad_run_blockd_end(x, 1);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	x->session_max = x->ino_max = 0;
	metad_run_blockd(x, 0, 11, 5);
	CHECK_EQ(metad_client_open(x, &c, 1), -ECONNRESET);
	metad_client_fini(&c);
	metad_run_blockd_end(x, 0);
	child_term(&x->child);
	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 5);
	x->session_max = session_max / 2;
	x->ino_max = ino_max / 2;
	metad_run_blockd(x, 1, 12, 5);
	fake_blockd_set_stray(x->blockd[1], stray);
	while (metad_client_open(x, &c, 1) < 0) {
		metad_client_fini(&c);
		sleep_ms(20);
	}
	CHECK(c.session >= session_max + 1000);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	CHECK(c.attr.ino >= ino_max + 1000000);
	CHECK_EQ(fake_blockd_purged(x->blockd[1], stray), 0);
	/* One that was known to be right, and comes again with more. */
	metad_run_blockd_end(x, 0);
	x->session_max = c.session + 1;
	metad_run_blockd(x, 0, 11, 5);
	EVENTUALLY(child_log_has(&x->child, "older-metadata blockd=1"));
	text = metad_admin(x, WIRE_OP_ADMIN_STATUS);
	CHECK_TEXT(text, "\"older\"");
	CHECK_TEXT(text, "put the newer directory back");
	free(text);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "g"), 0);
	metad_client_fini(&c);
}

static void metadata_older_by_a_mount_purge_nothing(struct metad_run *x)
{
	older_metadata(x, 50, 0);
}

static void metadata_older_by_inodes_purge_nothing(struct metad_run *x)
{
	older_metadata(x, 0, 4000000);
}

static void a_lost_store_keeps_no_mount_out_that_owes_it_nothing(
	struct metad_run *x)
{
	struct metad_client c, d;
	uint64_t ino;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 100);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	ino = c.attr.ino;
	metad_run_blockd_end(x, 0);
	metad_run_blockd(x, 0, 99, 5000);
	CHECK_EQ(fake_blockd_registered(x->blockd[0]), -ESTALE);
	CHECK_EQ(metad_client_open(x, &d, 1), 0);
	/* It may have blocks of files whose creation was lost: their numbers
	 * are not used again. */
	CHECK_EQ(metad_client_create(&d, ROOT_INO, "g", 0), 0);
	CHECK(d.attr.ino > ino + SESSION_WINDOW_MAX);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

static int ask_repair(struct metad_run *x, uint64_t ino)
{
	uint8_t b[8];
	size_t len = METAD_BODY(b, admin_repair, { .ino = ino });

	return metad_admin_call(x, WIRE_OP_ADMIN_REPAIR, b, len);
}

/* Counts of files at rest are corrected, blocks of what is gone are purged;
 * nothing is done to what is in use or may yet be. */
static void only_what_is_safe_is_repaired(struct metad_run *x)
{
	struct metad_client c;
	uint64_t f, gone, dir;

	metad_run_start(x, NULL);
	metad_run_blockd(x, 0, 11, 1);
	metad_run_blockd(x, 1, 12, 1);
	fake_blockd_set_end(x->blockd[0], 9000, 3, 77);
	fake_blockd_set_end(x->blockd[1], 8000, 2, 99);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	f = c.attr.ino;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "g", 0), 0);
	gone = c.attr.ino;
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "d"), 0);
	dir = c.attr.ino;
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "g"), 0);
	/* open; then gone, and nobody had the right to write it */
	CHECK_EQ(ask_repair(x, gone), 0);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], gone), 0);
	CHECK_EQ(metad_client_give_back(&c, gone, META_RETURN_ORPHAN), 0);
	EVENTUALLY(purge_pending(x) == 0);
	{
		uint64_t was = fake_blockd_purged(x->blockd[0], gone);

		CHECK_EQ(ask_repair(x, gone), 0);
		CHECK_EQ(fake_blockd_purged(x->blockd[0], gone), was + 1);
		CHECK(fake_blockd_purged(x->blockd[1], gone) > 0);
	}
	CHECK_EQ(ask_repair(x, dir + 1), -EINVAL);
	CHECK_EQ(ask_repair(x, 0), -EINVAL);
	CHECK_EQ(ask_repair(x, UINT64_MAX), -EINVAL);
	CHECK_EQ(ask_repair(x, dir), -EOPNOTSUPP);
	CHECK_EQ(ask_repair(x, f), -EBUSY);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], f), 0);
	CHECK_EQ(metad_client_give_back(&c, f, META_RETURN_LEASE), 0);
	CHECK_EQ(ask_repair(x, f), 0);
	CHECK_EQ(metad_client_getattr(&c, f), 0);
	CHECK_EQ(c.attr.units, 5);
	CHECK_EQ(c.attr.size, 0);
	CHECK(c.attr.mtime_ns > 99);
	CHECK_EQ(fake_blockd_purged(x->blockd[0], f), 0);
	/* It lasts. */
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_getattr(&c, f), 0);
	CHECK_EQ(c.attr.units, 5);
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(another_or_older_store_is_lost, 1),
		METAD_TEST(a_lost_store_is_waited_for, 2),
		METAD_TEST(a_store_that_was_given_up_is_not_waited_for, 2),
		METAD_TEST(blocks_of_other_metadata_are_let_alone, 1),
		METAD_TEST(a_lost_store_keeps_no_mount_out_that_owes_it_nothing,
			   1),
		METAD_TEST(a_sweep_purges_when_all_stores_are_known, 2),
		METAD_TEST(metadata_older_by_a_mount_purge_nothing, 2),
		METAD_TEST(metadata_older_by_inodes_purge_nothing, 2),
		METAD_TEST(only_what_is_safe_is_repaired, 2),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
