/* The registry of logs: who may make, change, raise and drop an entry; that no
 * epoch is given twice; that an entry goes with its inode; that a journal (an
 * entry without peers) outlives its session. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

static const struct meta_log_peer abc[] = { { 1, 11 }, { 2, 12 }, { 3, 13 } };
static const struct meta_log_peer abd[] = { { 1, 11 }, { 2, 12 }, { 4, 14 } };

/* Four log daemons, and a file whose lease the session has. */
static uint64_t begin(struct sm_client *c)
{
	uint64_t ino;

	for (uint32_t id = 1; id <= 4; id++)
		assert_int_equal(sm_client_logd(c, id, 10 + id), 0);
	ino = SM_INO(c, sm_client_file(c, ROOT, "wal"));
	assert_int_equal(sm_client_lease(c, ino), 0);
	return ino;
}

static void assert_same(const struct sm_log *a, const struct sm_log *b)
{
	assert_true(a->ino == b->ino && a->epoch == b->epoch &&
		    a->data_epoch == b->data_epoch &&
		    a->version == b->version && a->session == b->session &&
		    a->peer_count == b->peer_count);
	for (uint32_t i = 0; i < a->peer_count; i++)
		assert_true(a->peers[i].id == b->peers[i].id &&
			    a->peers[i].boot_id == b->peers[i].boot_id);
}

static int set(struct sm_client *c, uint64_t ino, uint64_t epoch,
	       uint32_t version, const struct meta_log_peer *peers)
{
	return sm_client_log_set(c, ino, epoch, version, peers, 3);
}

static void an_entry_is_made_with_a_new_epoch(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);
	struct sm_log l;

	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(c->log.ino, ino);
	assert_int_equal(c->log.epoch, 1);
	assert_int_equal(c->log.data_epoch, 1);
	assert_int_equal(c->log.version, 1);
	assert_int_equal(c->log.session, c->session);
	assert_true(c->log_live);
	assert_int_equal(c->log.peer_count, 3);
	assert_int_equal(c->log.peers[2].id, 3);
	assert_int_equal(c->log.peers[2].boot_id, 13);
	assert_int_equal(sm_log_count(c->sm), 1);
	assert_int_equal(sm_log_epoch(c->sm), 1);
	assert_true(sm_log_find(c->sm, ino, &l));
	assert_same(&l, &c->log);
	assert_false(sm_log_find(c->sm, ino + 1, &l));
	assert_int_equal(set(c, ino, 0, 0, abc), -EEXIST);
	assert_int_equal(sm_log_epoch(c->sm), 1);
}

static void only_the_lease_holder_makes_one(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);
	uint64_t dir = SM_INO(c, sm_client_mkdir(c, ROOT, "dir"));

	sm_client_join(&d, c->sm);
	assert_int_equal(set(&d, ino, 0, 0, abc), -EPERM);
	assert_int_equal(set(c, dir, 0, 0, abc), -EPERM);
	assert_int_equal(set(c, 999, 0, 0, abc), -ENOENT);
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_LEASE), 0);
	assert_int_equal(set(c, ino, 0, 0, abc), -EPERM);
	assert_int_equal(sm_client_lease(&d, ino), 0);
	assert_int_equal(set(&d, ino, 0, 0, abc), 0);
	assert_int_equal(sm_log_count(c->sm), 1);
	sm_client_leave(&d);
}

static void peers_are_in_the_map_with_their_boot_id(void **state)
{
	const struct meta_log_peer stranger[] = { { 1, 11 }, { 9, 19 },
						  { 3, 13 } };
	const struct meta_log_peer older[] = { { 1, 11 }, { 2, 99 },
					       { 3, 13 } };
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 0, 0, stranger), -ENXIO);
	assert_int_equal(set(c, ino, 0, 0, older), -ENXIO);
	assert_int_equal(sm_log_epoch(c->sm), 0);
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(set(c, ino, 1, 1, stranger), -ENXIO);
	/* one that was there before may have restarted since */
	assert_int_equal(sm_client_logd(c, 1, 21), 0);
	assert_int_equal(set(c, ino, 1, 1, abd), 0);
	assert_int_equal(c->log.peers[0].boot_id, 11);
	assert_int_equal(c->log.peers[2].id, 4);
}

static void malformed_peers_are_refused(void **state)
{
	const struct meta_log_peer twice[] = { { 1, 11 }, { 2, 12 },
					       { 1, 11 } };
	const struct meta_log_peer nobody[] = { { 0, 11 } };
	const struct meta_log_peer no_boot[] = { { 1, 0 } };
	struct meta_log_peer many[LOG_PEER_COUNT_MAX + 1];
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	for (uint32_t i = 0; i < array_count(many); i++)
		many[i] = (struct meta_log_peer){ i + 1, 1 };
	assert_int_equal(set(c, ino, 0, 0, twice), -EINVAL);
	assert_int_equal(sm_client_log_set(c, ino, 0, 0, nobody, 1), -EINVAL);
	assert_int_equal(sm_client_log_set(c, ino, 0, 0, no_boot, 1),
			 -EINVAL);
	assert_int_equal(sm_client_log_set(c, ino, 0, 0, many,
					   array_count(many)), -EINVAL);
	assert_int_equal(sm_client_log_set(c, ino, 0, 0, many,
					   array_count(many) - 1), -ENXIO);
	/* a version without an epoch means nothing */
	assert_int_equal(set(c, ino, 0, 1, abc), -EINVAL);
	assert_int_equal(sm_log_count(c->sm), 0);
}

static void a_change_is_compare_and_set(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 1, 1, abd), -ESTALE); /* there is none */
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(set(c, ino, 2, 1, abd), -ESTALE);
	assert_int_equal(set(c, ino, 1, 2, abd), -ESTALE);
	assert_int_equal(set(c, ino, 1, 0, abd), -ESTALE);
	sm_client_join(&d, c->sm);
	assert_int_equal(set(&d, ino, 1, 1, abd), -ESTALE);
	assert_int_equal(set(c, ino, 1, 1, abd), 0);
	assert_int_equal(c->log.version, 2);
	assert_int_equal(c->log.epoch, 1);
	assert_int_equal(c->log.data_epoch, 1);
	/* who raced and lost */
	assert_int_equal(set(c, ino, 1, 1, abc), -ESTALE);
	assert_int_equal(set(c, ino, 1, 2, abc), 0);
	assert_int_equal(c->log.version, 3);
	sm_client_leave(&d);
}

static void a_change_needs_no_lease(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_LEASE), 0);
	assert_int_equal(set(c, ino, 1, 1, abd), 0);
}

static void a_retry_is_answered_not_executed(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
	assert_int_equal(sm_log_epoch(c->sm), 1);
	assert_int_equal(sm_client_log_raise(c, ino), 0);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
	assert_int_equal(sm_log_epoch(c->sm), 2);
	assert_int_equal(sm_client_log_drop(c, ino, 2), 0);
	assert_int_equal(sm_client_resend(c), 0);
	assert_true(c->r.replayed);
}

static void one_that_is_lost_stays_lost(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);
	struct sm *copy = sm_new();
	struct sm_log l;
	uint8_t *snap;
	size_t len;

	assert_int_equal(sm_client_log_lose(c, ino, 1), -ENOENT);
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(c->log.flags, 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_log_lose(&d, ino, 1), -ESTALE);
	assert_int_equal(sm_client_log_lose(c, ino, 2), -ESTALE);
	assert_int_equal(sm_client_log_lose(c, ino, 1), 0);
	assert_int_equal(c->log.flags, META_LOG_LOST);
	assert_int_equal(c->log.version, 1);
	assert_int_equal(sm_client_log_lose(c, ino, 1), 0);
	/* whoever changes it, and through a snapshot */
	assert_int_equal(set(c, ino, 1, 1, abd), 0);
	assert_true(c->log.flags == META_LOG_LOST && c->log.version == 2);
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_true(d.log.flags == META_LOG_LOST && d.log.version == 2);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_true(sm_log_find(copy, ino, &l));
	sm_free(copy);
	assert_true(l.flags == META_LOG_LOST && l.version == 2 &&
		    l.peer_count == 3);
	assert_int_equal(sm_client_log_drop(&d, ino, 2), 0);
	sm_client_leave(&d);
}

static void it_stays_in_order_or_not(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 0, META_LOG_LOST, abc), -EINVAL);
	assert_int_equal(set(c, ino, 0, META_LOG_LIVE, abc), -EINVAL);
	assert_int_equal(set(c, ino, 0, META_LOG_ORDERED, abc), 0);
	assert_int_equal(c->log.flags, META_LOG_ORDERED);
	assert_int_equal(c->log.version, 1);
	assert_int_equal(set(c, ino, 1, 1, abd), 0);
	assert_int_equal(sm_client_log_raise(c, ino), 0);
	assert_int_equal(c->log.flags, META_LOG_ORDERED);
	assert_int_equal(sm_client_log_lose(c, ino, 2), 0);
	assert_int_equal(c->log.flags, META_LOG_ORDERED | META_LOG_LOST);
	/* The next log of the file is another one. */
	assert_int_equal(sm_client_log_drop(c, ino, 2), 0);
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(c->log.flags, 0);
}

static void raising_fences_who_had_it(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);

	assert_int_equal(sm_client_log_raise(c, ino), -ENOENT);
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_log_raise(&d, ino), -EBUSY);
	/* the session's end leaves it */
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(sm_client_log_raise(c, ino), -ESTALE);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(d.log.epoch, 2);
	assert_int_equal(d.log.data_epoch, 1);
	assert_int_equal(d.log.version, 1);
	assert_int_equal(d.log.session, d.session);
	assert_int_equal(d.log.peer_count, 3);
	assert_int_equal(sm_client_close(&d, c->session, 2), 0);
	/* two recoveries of one owner: the later one has it */
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(d.log.epoch, 3);
	assert_int_equal(sm_client_log_drop(&d, ino, 2), -ESTALE);
	assert_int_equal(set(&d, ino, 2, 1, abd), -ESTALE);
	assert_int_equal(set(&d, ino, 3, 1, abd), 0);
	assert_int_equal(sm_client_log_drop(&d, ino, 3), 0);
	assert_int_equal(sm_log_count(c->sm), 0);
	sm_client_leave(&d);
}

static void an_epoch_is_never_given_twice(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);
	uint64_t other = SM_INO(c, sm_client_file(c, ROOT, "other"));

	assert_int_equal(sm_client_lease(c, other), 0);
	for (uint64_t epoch = 1; epoch < 20; epoch += 3) {
		assert_int_equal(set(c, ino, 0, 0, abc), 0);
		assert_int_equal(c->log.epoch, epoch);
		assert_int_equal(sm_client_log_raise(c, ino), 0);
		assert_int_equal(c->log.epoch, epoch + 1);
		assert_int_equal(sm_client_log_drop(c, ino, epoch + 1), 0);
		assert_int_equal(set(c, other, 0, 0, abc), 0);
		assert_int_equal(c->log.epoch, epoch + 2);
		assert_int_equal(sm_client_log_drop(c, other, epoch + 2), 0);
	}
}

static void only_the_owner_drops(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);

	assert_int_equal(sm_client_log_drop(c, ino, 7), 0); /* none */
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_log_drop(&d, ino, 1), -ESTALE);
	assert_int_equal(sm_client_log_drop(c, ino, 2), -ESTALE);
	assert_int_equal(sm_log_count(c->sm), 1);
	assert_int_equal(sm_client_log_drop(c, ino, 1), 0);
	assert_int_equal(sm_log_count(c->sm), 0);
	sm_client_leave(&d);
}

static void an_entry_goes_with_its_inode(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c);
	struct sm_log l;

	/* given back by its session */
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "wal"), 0);
	assert_true(sm_log_find(c->sm, ino, &l));
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_ORPHAN), 0);
	assert_false(sm_log_find(c->sm, ino, &l));
	assert_int_equal(sm_log_count(c->sm), 0);
	/* at its session's end */
	ino = SM_INO(c, sm_client_file(c, ROOT, "wal"));
	assert_int_equal(sm_client_lease(c, ino), 0);
	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "wal"), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(sm_log_count(c->sm), 1);
	assert_int_equal(sm_client_close(&d, c->session, 2), 0);
	assert_int_equal(sm_log_count(c->sm), 0);
	sm_client_leave(&d);
}

static void entries_are_listed_by_inode(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t inos[9];
	struct sm_log l[16];
	char name[16];
	bool done;

	(void)begin(c);
	sm_client_join(&d, c->sm);
	for (uint32_t i = 0; i < array_count(inos); i++) {
		struct sm_client *of = i % 3 == 0 ? &d : c;

		(void)snprintf(name, sizeof(name), "f%u", i);
		inos[i] = SM_INO(c, sm_client_file(c, ROOT, name));
		assert_int_equal(sm_client_lease(of, inos[i]), 0);
		assert_int_equal(set(of, inos[i], 0, 0, abc), 0);
	}
	assert_int_equal(sm_client_log_list(c, 0, 0, 16, l, &done), 9);
	assert_true(done);
	for (uint32_t i = 0; i < 9; i++)
		assert_int_equal(l[i].ino, inos[i]);
	/* in pages */
	assert_int_equal(sm_client_log_list(c, 0, 0, 4, l, &done), 4);
	assert_false(done);
	assert_int_equal(sm_client_log_list(c, l[3].ino, 0, 5, l, &done), 5);
	assert_true(done);
	assert_int_equal(l[4].ino, inos[8]);
	assert_int_equal(sm_client_log_list(c, UINT64_MAX, 0, 5, l, &done), 0);
	assert_true(done);
	/* of a session */
	assert_int_equal(sm_client_log_list(c, 0, d.session, 3, l, &done), 3);
	assert_true(done);
	assert_int_equal(l[2].ino, inos[6]);
	assert_int_equal(sm_client_log_list(c, 0, d.session, 2, l, &done), 2);
	assert_false(done);
	assert_int_equal(sm_client_log_list(c, 0, 99, 2, l, &done), 0);
	assert_true(done);
	assert_int_equal(sm_client_log_list(c, 0, 0, 0, l, &done), -EINVAL);
	sm_client_leave(&d);
}

/* An answer has room for the largest page. */
static void a_page_has_its_largest_size(void **state)
{
	struct meta_log_peer many[LOG_PEER_COUNT_MAX];
	static struct sm_log l[LOG_LIST_COUNT_MAX + 1];
	struct sm_client *c = *state;
	char name[16];
	bool done;

	for (uint32_t i = 0; i < LOG_PEER_COUNT_MAX; i++) {
		many[i] = (struct meta_log_peer){ i + 1, UINT64_MAX };
		assert_int_equal(sm_client_logd(c, i + 1, UINT64_MAX), 0);
	}
	for (uint32_t i = 0; i <= LOG_LIST_COUNT_MAX; i++) {
		uint64_t ino;

		(void)snprintf(name, sizeof(name), "%u", i);
		ino = SM_INO(c, sm_client_file(c, ROOT, name));
		assert_int_equal(sm_client_lease(c, ino), 0);
		assert_int_equal(sm_client_log_set(c, ino, 0, 0, many,
						   LOG_PEER_COUNT_MAX), 0);
	}
	assert_int_equal(sm_client_log_list(c, 0, 0, LOG_LIST_COUNT_MAX + 1, l,
					    &done), LOG_LIST_COUNT_MAX);
	assert_false(done);
	assert_int_equal(sm_client_log_list(c, l[LOG_LIST_COUNT_MAX - 1].ino,
					    0, 9, l, &done), 1);
	assert_true(done);
}

/* A dead session's entries stay, and say that it is dead; also over a
 * snapshot, with the epochs that were given. */
static void the_registry_outlives_sessions_and_snapshots(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = begin(c), len;
	struct sm *copy = sm_new();
	uint8_t *snap;
	struct sm_log l;

	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(sm_client_close(&d, c->session, 2), 0);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_int_equal(sm_log_count(copy), 1);
	assert_int_equal(sm_log_epoch(copy), 1);
	assert_true(sm_log_find(copy, ino, &l));
	assert_same(&l, &c->log);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(sm_client_log_drop(&d, ino, 2), 0);
	/* none is left, and yet the count goes on after a snapshot */
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_int_equal(sm_log_count(copy), 0);
	assert_int_equal(sm_log_epoch(copy), 2);
	sm_free(copy);
	sm_client_leave(&d);
}

/* The end of one that has everything takes no more changes than reserved. */
static void destruction_has_its_reservation(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = begin(c);

	assert_int_equal(set(c, ino, 0, 0, abc), 0);
	assert_int_equal(sm_client_setxattr(c, ino, "user.a", "v", 1, 0), 0);
	assert_int_equal(sm_client_truncate(c, ino, 10, 0), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "wal"), 0);
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_ORPHAN), 0);
	assert_int_equal(sm_client_getattr(c, ino), -ENOENT);
	assert_int_equal(sm_purge_count(c->sm), 1);
}

/* ---- journals ---- */

static int set_journal(struct sm_client *c, uint64_t ino)
{
	return sm_client_log_set(c, ino, 0, 0, NULL, 0);
}

/* A file without a name whose lease the session has. */
static uint64_t leased_orphan(struct sm_client *c)
{
	struct meta_create p = { .parent = ROOT, .mode = S_IFREG | 0600,
				 .flags = META_CREATE_TMPFILE |
					  META_CREATE_OPEN |
					  META_CREATE_LEASE };

	return SM_INO(c, sm_client_create(c, &p));
}

static void end_session(struct sm_client *by, uint64_t session)
{
	assert_int_equal(sm_client_close(by, session, 1), 0);
	assert_int_equal(sm_client_close(by, session, 2), 0);
	assert_true(sm_verify(by->sm));
}

/* Whose orphan it is, as the inode and the keys say; 0: there is none. */
static uint64_t orphan_of(struct sm *sm, uint64_t ino)
{
	struct sm_inode in;
	struct wire_in val;
	struct sm_key k;

	assert_true(sm_verify(sm)); /* there are no other keys */
	if (!sm_inode_get(sm, ino, &in))
		return 0;
	k = sm_key2(SM_K_ORPHAN, in.orphan, ino);
	assert_true(sm_get(sm, &k, &val));
	return in.orphan;
}

static void a_journal_is_an_entry_without_peers(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = leased_orphan(c);
	struct sm_log l[2];
	bool done;

	assert_int_equal(set_journal(c, ino), 0);
	assert_int_equal(c->log.epoch, 1);
	assert_int_equal(c->log.data_epoch, 1);
	assert_int_equal(c->log.version, 1);
	assert_int_equal(c->log.session, c->session);
	assert_int_equal(c->log.peer_count, 0);
	assert_true(sm_log_find(c->sm, ino, &l[0]));
	assert_same(&l[0], &c->log);
	assert_int_equal(sm_client_log_list(c, 0, 0, 2, l, &done), 1);
	assert_same(&l[0], &c->log);
	assert_int_equal(set_journal(c, ino), -EEXIST);
	assert_int_equal(sm_log_count(c->sm), 1);
	assert_int_equal(orphan_of(c->sm, ino), c->session);
}

static void a_journal_is_its_sessions_leased_orphan(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t wal = begin(c);
	uint64_t ino = leased_orphan(c);
	uint64_t dir = SM_INO(c, sm_client_mkdir(c, ROOT, "dir"));

	sm_client_join(&d, c->sm);
	assert_int_equal(set_journal(c, 999), -ENOENT);
	assert_int_equal(set_journal(c, dir), -EPERM);
	assert_int_equal(set_journal(&d, ino), -EPERM);
	assert_int_equal(set_journal(c, wal), -EINVAL); /* it has a name */
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_LEASE), 0);
	assert_int_equal(set_journal(c, ino), -EPERM);
	/* the lease of another one's orphan */
	assert_int_equal(sm_client_lease(&d, ino), 0);
	assert_int_equal(set_journal(&d, ino), -EINVAL);
	assert_int_equal(sm_log_count(c->sm), 0);
	assert_int_equal(sm_log_epoch(c->sm), 0);
	/* one whose name is gone will do, when nobody else keeps it */
	assert_int_equal(sm_client_unlink(c, ROOT, "wal"), 0);
	assert_int_equal(set_journal(c, wal), -EINVAL);
	assert_int_equal(sm_client_give_back(&d, wal, META_RETURN_ORPHAN), 0);
	assert_int_equal(set_journal(c, wal), 0);
	sm_client_leave(&d);
}

static void a_journal_stays_one(void **state)
{
	struct sm_client *c = *state;
	uint64_t wal = begin(c);
	uint64_t ino = leased_orphan(c);

	assert_int_equal(set_journal(c, ino), 0);
	assert_int_equal(set(c, ino, 1, 1, abc), -EINVAL);
	assert_int_equal(set(c, ino, 1, 2, abc), -ESTALE);
	assert_int_equal(sm_client_log_set(c, ino, 1, 1, NULL, 0), -EINVAL);
	assert_int_equal(sm_client_link(c, ino, ROOT, "journal"), -ENOENT);
	assert_int_equal(set(c, wal, 0, 0, abc), 0);
	assert_int_equal(sm_client_log_set(c, wal, 2, 1, NULL, 0), -EINVAL);
	assert_int_equal(set(c, wal, 2, 1, abd), 0);
	assert_int_equal(sm_log_count(c->sm), 2);
	assert_true(sm_verify(c->sm));
}

static void a_journal_outlives_its_session_and_no_other_orphan_does(
	void **state)
{
	struct sm_client *c = *state, d;
	uint64_t inos[5], wal = begin(c);

	for (uint32_t i = 0; i < array_count(inos); i++)
		inos[i] = leased_orphan(c);
	assert_int_equal(set_journal(c, inos[1]), 0);
	assert_int_equal(set_journal(c, inos[3]), 0);
	/* the log of a file without a name */
	assert_int_equal(set(c, wal, 0, 0, abc), 0);
	assert_int_equal(sm_client_unlink(c, ROOT, "wal"), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(orphan_of(c->sm, inos[1]), c->session);
	end_session(&d, c->session);
	assert_int_equal(sm_purge_count(c->sm), 4);
	assert_int_equal(sm_log_count(c->sm), 2);
	for (uint32_t i = 0; i < array_count(inos); i++)
		assert_true(orphan_of(c->sm, inos[i]) ==
			    (i % 2 == 1 ? SM_NOBODY : 0));
	assert_false(sm_client_stat(&d, inos[1]).flags & META_ATTR_LEASED);
	/* who did not raise it has no right to it */
	assert_int_equal(sm_client_give_back(&d, inos[1], META_RETURN_ORPHAN),
			 0);
	assert_int_equal(sm_client_log_drop(&d, inos[1], 1), -ESTALE);
	assert_true(orphan_of(c->sm, inos[1]) == SM_NOBODY);
	end_session(&d, d.session);
	assert_true(orphan_of(c->sm, inos[3]) == SM_NOBODY);
	sm_client_leave(&d);
}

static void the_next_session_takes_over_a_journal(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = leased_orphan(c);

	assert_int_equal(set_journal(c, ino), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_log_raise(&d, ino), -EBUSY);
	assert_int_equal(orphan_of(c->sm, ino), c->session);
	end_session(&d, c->session);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(d.log.epoch, 2);
	assert_int_equal(d.log.data_epoch, 1);
	assert_int_equal(d.log.session, d.session);
	assert_int_equal(d.log.peer_count, 0);
	assert_int_equal(orphan_of(c->sm, ino), d.session);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(orphan_of(c->sm, ino), d.session);
	assert_int_equal(sm_client_lease(&d, ino), 0);
	/* the entry goes first: it is an orphan like others */
	assert_int_equal(sm_client_log_drop(&d, ino, 3), 0);
	assert_int_equal(sm_log_count(c->sm), 0);
	assert_int_equal(orphan_of(c->sm, ino), d.session);
	assert_int_equal(sm_client_give_back(&d, ino, META_RETURN_ORPHAN), 0);
	assert_int_equal(orphan_of(c->sm, ino), 0);
	assert_int_equal(sm_purge_count(c->sm), 1);
	sm_client_leave(&d);
}

/* Its session is dead, and not yet done with. */
static void a_dying_sessions_journal_can_be_raised(void **state)
{
	struct sm_client *c = *state, d;
	uint64_t ino = leased_orphan(c);

	assert_int_equal(set_journal(c, ino), 0);
	sm_client_join(&d, c->sm);
	assert_int_equal(sm_client_close(&d, c->session, 1), 0);
	assert_int_equal(sm_client_log_raise(&d, ino), 0);
	assert_int_equal(orphan_of(c->sm, ino), d.session);
	assert_int_equal(sm_client_close(&d, c->session, 2), 0);
	assert_int_equal(orphan_of(c->sm, ino), d.session);
	assert_int_equal(sm_client_lease(&d, ino), 0);
	sm_client_leave(&d);
}

/* Mounts crash at each step of what they do with one. */
static void a_journal_outlives_crashes_until_it_is_dropped(void **state)
{
	struct sm_client *c = *state, d[3];
	uint64_t ino = leased_orphan(c), len;
	struct sm *copy = sm_new();
	uint8_t *snap;

	assert_int_equal(set_journal(c, ino), 0);
	for (uint32_t i = 0; i < array_count(d); i++)
		sm_client_join(&d[i], c->sm);
	end_session(&d[0], c->session);
	snap = sm_client_snapshot(c->sm, &len);
	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_true(orphan_of(copy, ino) == SM_NOBODY);
	assert_int_equal(sm_log_count(copy), 1);
	sm_free(copy);
	/* before it was raised; raised; leased */
	assert_int_equal(sm_client_log_raise(&d[0], ino), 0);
	assert_int_equal(sm_client_log_raise(&d[1], ino), -EBUSY);
	end_session(&d[1], d[0].session);
	assert_true(orphan_of(c->sm, ino) == SM_NOBODY);
	assert_int_equal(sm_client_log_raise(&d[1], ino), 0);
	assert_int_equal(sm_client_lease(&d[1], ino), 0);
	end_session(&d[2], d[1].session);
	assert_true(orphan_of(c->sm, ino) == SM_NOBODY);
	assert_int_equal(sm_client_log_raise(&d[2], ino), 0);
	assert_int_equal(d[2].log.epoch, 4);
	/* dropped, and not returned */
	assert_int_equal(sm_client_log_drop(&d[2], ino, 4), 0);
	end_session(&d[2], d[2].session);
	assert_int_equal(orphan_of(c->sm, ino), 0);
	assert_int_equal(sm_purge_count(c->sm), 1);
	for (uint32_t i = 0; i < array_count(d); i++)
		sm_client_leave(&d[i]);
}

/* An entry goes with its inode, a journal's too. */
static void a_journal_can_be_returned_with_its_entry(void **state)
{
	struct sm_client *c = *state;
	uint64_t ino = leased_orphan(c);

	assert_int_equal(set_journal(c, ino), 0);
	assert_int_equal(sm_client_give_back(c, ino, META_RETURN_ORPHAN), 0);
	assert_int_equal(orphan_of(c->sm, ino), 0);
	assert_int_equal(sm_log_count(c->sm), 0);
	assert_int_equal(sm_purge_count(c->sm), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(an_entry_is_made_with_a_new_epoch),
		SM_TEST(only_the_lease_holder_makes_one),
		SM_TEST(peers_are_in_the_map_with_their_boot_id),
		SM_TEST(malformed_peers_are_refused),
		SM_TEST(a_change_is_compare_and_set),
		SM_TEST(a_change_needs_no_lease),
		SM_TEST(a_retry_is_answered_not_executed),
		SM_TEST(one_that_is_lost_stays_lost),
		SM_TEST(it_stays_in_order_or_not),
		SM_TEST(raising_fences_who_had_it),
		SM_TEST(an_epoch_is_never_given_twice),
		SM_TEST(only_the_owner_drops),
		SM_TEST(an_entry_goes_with_its_inode),
		SM_TEST(entries_are_listed_by_inode),
		SM_TEST(a_page_has_its_largest_size),
		SM_TEST(the_registry_outlives_sessions_and_snapshots),
		SM_TEST(destruction_has_its_reservation),
		SM_TEST(a_journal_is_an_entry_without_peers),
		SM_TEST(a_journal_is_its_sessions_leased_orphan),
		SM_TEST(a_journal_stays_one),
		SM_TEST(a_journal_outlives_its_session_and_no_other_orphan_does),
		SM_TEST(the_next_session_takes_over_a_journal),
		SM_TEST(a_dying_sessions_journal_can_be_raised),
		SM_TEST(a_journal_outlives_crashes_until_it_is_dropped),
		SM_TEST(a_journal_can_be_returned_with_its_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
