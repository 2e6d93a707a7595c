/* States that no command can make, one inconsistency each: a snapshot of such
 * a state is refused. The records are damaged through the machine's own
 * functions, so that nothing else is wrong with it. */
#include "metad/sm_priv.h"
#include "tests/lib/sm_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

#define ROOT ROOT_INO

struct fixture {
	struct sm_client c;
	struct sm *sm;
	uint64_t dir, sub, file, link, orphan, wal;
	struct sm_inode in; /* being changed */
};

static int setup(void **state)
{
	static const struct meta_log_peer peers[] = { { 1, 5 }, { 2, 6 } };
	struct fixture *f = calloc(1, sizeof(*f));
	struct sm_client *c = &f->c;

	sm_client_init(c);
	f->sm = c->sm;
	assert_int_equal(sm_client_mkdir(c, ROOT, "dir"), 0);
	f->dir = c->attr.ino;
	assert_int_equal(sm_client_mkdir(c, f->dir, "sub"), 0);
	f->sub = c->attr.ino;
	assert_int_equal(sm_client_file(c, f->dir, "file"), 0);
	f->file = c->attr.ino;
	assert_int_equal(sm_client_lease(c, f->file), 0);
	assert_int_equal(sm_client_setxattr(c, f->file, "user.a", "v", 1, 0),
			 0);
	assert_int_equal(sm_client_truncate(c, f->file, 10, 0), 0);
	assert_int_equal(sm_client_symlink(c, f->dir, "link", "target"), 0);
	f->link = c->attr.ino;
	assert_int_equal(sm_client_tmpfile(c, ROOT, 0600), 0);
	f->orphan = c->attr.ino;
	assert_int_equal(sm_client_logd(c, 1, 5), 0);
	assert_int_equal(sm_client_logd(c, 2, 6), 0);
	assert_int_equal(sm_client_file(c, f->dir, "wal"), 0);
	f->wal = c->attr.ino;
	assert_int_equal(sm_client_lease(c, f->wal), 0);
	assert_int_equal(sm_client_log_set(c, f->wal, 0, 0, peers, 2), 0);
	assert_int_equal(sm_client_log_raise(c, f->wal), 0);
	assert_true(sm_verify(f->sm));
	assert_int_equal(cow_reserve(f->sm->tree, 64), 0);
	*state = f;
	return 0;
}

/* Every test ends here: the state must be refused. */
static int teardown(void **state)
{
	struct fixture *f = *state;
	struct sm *copy = sm_new();
	size_t len;
	uint8_t *snap = sm_client_snapshot(f->sm, &len);

	assert_false(sm_verify(f->sm));
	assert_int_equal(sm_restore(copy, snap, len), -EBADMSG);
	free(snap);
	sm_free(copy);
	sm_client_fini(&f->c);
	free(f);
	return 0;
}

static void load(struct fixture *f, uint64_t ino)
{
	assert_true(sm_inode_get(f->sm, ino, &f->in));
}

static void store(struct fixture *f)
{
	sm_inode_put(f->sm, &f->in);
}

static void drop(struct fixture *f, struct sm_key k)
{
	assert_true(sm_del(f->sm, &k));
}

static void put_empty(struct fixture *f, struct sm_key k)
{
	cow_put(f->sm->tree, k.b, k.len, NULL, 0);
}

static uint64_t cookie_of(struct fixture *f, const char *name)
{
	struct sm_dirent d;

	assert_true(sm_dirent_find(f->sm, f->dir, sm_str(name), &d));
	return d.cookie;
}

static void put_log(struct fixture *f, uint64_t ino, uint64_t epoch,
		    uint64_t data_epoch, uint64_t version, uint64_t session,
		    const struct meta_log_peer *peers, size_t count)
{
	struct sm_key k = sm_key1(SM_K_LOG, ino);
	uint8_t buf[256];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, epoch);
	sm_put_varint(&o, data_epoch);
	sm_put_varint(&o, version);
	sm_put_varint(&o, session);
	for (size_t i = 0; i < count; i++)
		meta_log_peer_encode(&o, &peers[i]);
	sm_put(f->sm, &k, &o);
}

static const struct meta_log_peer one[] = { { 1, 5 } };

static void a_log_with_an_epoch_not_given(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 3, 1, 1, 1, one, 1);
}

static void a_log_with_data_of_a_later_epoch(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 1, 2, 1, 1, one, 1);
}

static void a_log_without_data(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 1, 0, 1, 1, one, 1);
}

static void a_log_of_a_session_not_given(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 2, 1, 1, 99, one, 1);
}

static void a_log_with_a_version_too_large(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 2, 1, UINT64_C(1) << 32, 1, one, 1);
}

static void a_log_without_peers(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->wal, 2, 1, 1, 1, NULL, 0);
}

/* The inode and the key agree. */
static void make_nobodys(struct fixture *f)
{
	load(f, f->orphan);
	sm_orphan_move(f->sm, &f->in, SM_NOBODY);
	store(f);
}

static void nobodys_orphan_that_is_no_journal(void **state)
{
	make_nobodys(*state);
}

static void nobodys_orphan_with_a_log(void **state)
{
	struct fixture *f = *state;

	make_nobodys(f);
	put_log(f, f->orphan, 2, 1, 1, 1, one, 1);
	f->sm->g.log_count++;
}

static void nobodys_lease(void **state)
{
	struct fixture *f = *state;

	make_nobodys(f);
	put_log(f, f->orphan, 2, 1, 1, 1, NULL, 0);
	f->sm->g.log_count++;
	assert_true(sm_verify(f->sm));
	f->in.lease = SM_NOBODY;
	store(f);
	put_empty(f, sm_key2(SM_K_LEASE, SM_NOBODY, f->orphan));
}

static void a_journal_that_is_another_sessions_orphan(void **state)
{
	struct fixture *f = *state;
	struct sm_client d;

	sm_client_join(&d, f->sm);
	assert_int_equal(cow_reserve(f->sm->tree, 64), 0);
	put_log(f, f->orphan, 2, 1, 1, f->c.session, NULL, 0);
	f->sm->g.log_count++;
	assert_true(sm_verify(f->sm));
	put_log(f, f->orphan, 2, 1, 1, d.session, NULL, 0);
	sm_client_leave(&d);
}

static void a_journal_of_a_directory(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->dir, 2, 1, 1, 1, NULL, 0);
	f->sm->g.log_count++;
}

static void a_log_with_a_peer_twice(void **state)
{
	static const struct meta_log_peer twice[] = { { 1, 5 }, { 1, 6 } };
	struct fixture *f = *state;

	put_log(f, f->wal, 2, 1, 1, 1, twice, 2);
}

static void a_log_with_too_many_peers(void **state)
{
	struct meta_log_peer many[LOG_PEER_COUNT_MAX + 1];
	struct fixture *f = *state;

	for (uint32_t i = 0; i < array_count(many); i++)
		many[i] = (struct meta_log_peer){ i + 1, 5 };
	put_log(f, f->wal, 2, 1, 1, 1, many, array_count(many));
}

static void a_log_of_no_inode(void **state)
{
	struct fixture *f = *state;

	put_log(f, 99, 2, 1, 1, 1, one, 1);
	f->sm->g.log_count++;
}

static void a_log_of_a_directory(void **state)
{
	struct fixture *f = *state;

	put_log(f, f->dir, 2, 1, 1, 1, one, 1);
	f->sm->g.log_count++;
}

static void a_log_file_of_no_directory(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	f->in.flags |= SM_INODE_LOG;
	store(f);
}

static void a_directory_for_a_file_that_is_no_log_file(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	f->in.log_dir = f->dir;
	store(f);
}

static void a_link_that_is_a_log_file(void **state)
{
	struct fixture *f = *state;

	load(f, f->link);
	f->in.flags |= SM_INODE_LOG;
	f->in.log_dir = f->dir;
	store(f);
}

static void a_log_directory_without_options(void **state)
{
	struct fixture *f = *state;

	load(f, f->dir);
	f->in.flags |= SM_INODE_LOG;
	store(f);
}

static void a_log_directory_that_was_made_one(void **state)
{
	struct fixture *f = *state;

	load(f, f->dir);
	assert_int_equal(sm_xattr_write(f->sm, &f->in, sm_str(META_XATTR_LOG),
					"", 0), 0);
	f->in.log_dir = f->sub;
	store(f);
}

static void a_wrong_number_of_logs(void **state)
{
	struct fixture *f = *state;

	f->sm->g.log_count++;
}

static void a_directory_without_a_name(void **state)
{
	struct fixture *f = *state;

	sm_dirent_del(f->sm, f->dir, cookie_of(f, "sub"));
	load(f, f->dir);
	f->in.entries--;
	f->in.nlink--;
	store(f);
}

static void a_file_without_a_name(void **state)
{
	struct fixture *f = *state;

	sm_dirent_del(f->sm, f->dir, cookie_of(f, "file"));
	load(f, f->dir);
	f->in.entries--;
	store(f);
}

static void a_wrong_link_count(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	f->in.nlink++;
	store(f);
}

static void a_wrong_link_count_of_a_directory(void **state)
{
	struct fixture *f = *state;

	load(f, f->dir);
	f->in.nlink++;
	store(f);
}

static void a_wrong_number_of_entries(void **state)
{
	struct fixture *f = *state;

	load(f, f->sub);
	f->in.entries++;
	store(f);
}

static void a_directory_with_another_parent(void **state)
{
	struct fixture *f = *state;

	load(f, f->sub);
	f->in.parent = ROOT;
	store(f);
}

static void a_name_of_nothing(void **state)
{
	struct fixture *f = *state;

	drop(f, sm_key1(SM_K_INODE, f->file));
}

static void a_name_at_another_names_place(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	sm_dirent_put(f->sm, f->dir, cookie_of(f, "file"), sm_str("other"),
		      &f->in);
}

static void a_name_of_another_type(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	f->in.mode = S_IFIFO;
	sm_dirent_put(f->sm, f->dir, cookie_of(f, "file"), sm_str("file"),
		      &f->in);
}

static void no_root(void **state)
{
	struct fixture *f = *state;

	drop(f, sm_key1(SM_K_INODE, ROOT));
	f->sm->g.inode_count--;
}

static void a_root_that_is_no_directory(void **state)
{
	struct fixture *f = *state;

	load(f, ROOT);
	f->in.mode = S_IFREG;
	store(f);
}

static void an_inode_of_the_future(void **state)
{
	struct fixture *f = *state;

	f->sm->g.next_ino = f->file;
}

static void a_wrong_count_of_inodes(void **state)
{
	struct fixture *f = *state;

	f->sm->g.inode_count++;
}

static void a_wrong_count_of_purges(void **state)
{
	struct fixture *f = *state;

	f->sm->g.purge_count++;
}

static void a_lease_without_its_record(void **state)
{
	struct fixture *f = *state;

	drop(f, sm_key2(SM_K_LEASE, f->c.session, f->file));
}

static void a_lease_that_the_inode_denies(void **state)
{
	struct fixture *f = *state;

	put_empty(f, sm_key2(SM_K_LEASE, f->c.session, f->orphan));
}

static void a_lease_of_no_session(void **state)
{
	struct fixture *f = *state;

	load(f, f->file);
	sm_lease_drop(f->sm, &f->in);
	f->in.lease = 99;
	store(f);
	put_empty(f, sm_key2(SM_K_LEASE, 99, f->file));
}

static void an_orphan_without_its_record(void **state)
{
	struct fixture *f = *state;

	drop(f, sm_key2(SM_K_ORPHAN, f->c.session, f->orphan));
}

static void an_orphan_with_links(void **state)
{
	struct fixture *f = *state;

	load(f, f->orphan);
	f->in.nlink = 1;
	store(f);
}

static void a_session_that_the_map_does_not_know(void **state)
{
	struct fixture *f = *state;

	f->sm->map->session_count = 0;
	{
		struct sm_ctx x = { .sm = f->sm };

		assert_int_equal(sm_map_edit(&x), 0);
		wire_out_init(&x.out, f->sm->out, SM_REPLY_MAX);
		sm_map_commit(&x);
	}
}

static void a_cut_of_no_inode(void **state)
{
	struct fixture *f = *state;
	struct sm_key from = sm_key2(SM_K_CUT, f->file, 1);
	struct sm_key to = sm_key2(SM_K_CUT, f->link, 1);
	uint8_t buf[64];
	struct wire_in val;
	struct wire_out o;

	assert_true(sm_get(f->sm, &from, &val));
	wire_out_init(&o, buf, sizeof(buf));
	wire_put_raw(&o, val.p, val.len);
	sm_put(f->sm, &to, &o);
}

static void a_purge_of_what_lives(void **state)
{
	struct fixture *f = *state;
	struct sm_key k = sm_key1(SM_K_PURGE, f->file);
	uint8_t buf[8];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_put_varint(&o, 1);
	sm_put(f->sm, &k, &o);
	f->sm->g.purge_count++;
}

static void xattrs_the_inode_does_not_count(void **state)
{
	struct fixture *f = *state;
	struct sm_key k = sm_key1(SM_K_XATTR, f->file);

	sm_key_raw(&k, "user.b", 7);
	sm_key_raw(&k, "\0", 1);
	put_empty(f, k);
}

static void xattrs_the_inode_only_thinks_it_has(void **state)
{
	struct fixture *f = *state;

	load(f, f->orphan);
	f->in.xattr_list = 7;
	f->in.xattr_bytes = 7;
	f->in.flags |= SM_INODE_XATTR;
	store(f);
}

static void a_symlink_without_target(void **state)
{
	struct fixture *f = *state;
	struct sm_key k = sm_key1(SM_K_TARGET, f->link);

	sm_del_prefix(f->sm, &k);
}

static void a_target_of_another_length(void **state)
{
	struct fixture *f = *state;

	load(f, f->link);
	f->in.size++;
	store(f);
}

static void a_record_of_unknown_kind(void **state)
{
	struct fixture *f = *state;

	put_empty(f, sm_key1((enum sm_kind)15, 1));
}

static void a_reply_from_the_future(void **state)
{
	struct fixture *f = *state;

	f->sm->g.pos = 1;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_log_with_an_epoch_not_given),
		T(a_log_with_data_of_a_later_epoch),
		T(a_log_without_data),
		T(a_log_of_a_session_not_given),
		T(a_log_with_a_version_too_large),
		T(a_log_without_peers),
		T(nobodys_orphan_that_is_no_journal),
		T(nobodys_orphan_with_a_log),
		T(nobodys_lease),
		T(a_journal_that_is_another_sessions_orphan),
		T(a_journal_of_a_directory),
		T(a_log_with_a_peer_twice),
		T(a_log_with_too_many_peers),
		T(a_log_of_no_inode),
		T(a_log_of_a_directory),
		T(a_wrong_number_of_logs),
		T(a_log_file_of_no_directory),
		T(a_directory_for_a_file_that_is_no_log_file),
		T(a_link_that_is_a_log_file),
		T(a_log_directory_without_options),
		T(a_log_directory_that_was_made_one),
		T(a_directory_without_a_name),
		T(a_file_without_a_name),
		T(a_wrong_link_count),
		T(a_wrong_link_count_of_a_directory),
		T(a_wrong_number_of_entries),
		T(a_directory_with_another_parent),
		T(a_name_of_nothing),
		T(a_name_at_another_names_place),
		T(a_name_of_another_type),
		T(no_root),
		T(a_root_that_is_no_directory),
		T(an_inode_of_the_future),
		T(a_wrong_count_of_inodes),
		T(a_wrong_count_of_purges),
		T(a_lease_without_its_record),
		T(a_lease_that_the_inode_denies),
		T(a_lease_of_no_session),
		T(an_orphan_without_its_record),
		T(an_orphan_with_links),
		T(a_session_that_the_map_does_not_know),
		T(a_cut_of_no_inode),
		T(a_purge_of_what_lives),
		T(xattrs_the_inode_does_not_count),
		T(xattrs_the_inode_only_thinks_it_has),
		T(a_symlink_without_target),
		T(a_target_of_another_length),
		T(a_record_of_unknown_kind),
		T(a_reply_from_the_future),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
