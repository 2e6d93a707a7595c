/* Log directories: which files are log files, through all that gives names. */
#include "tests/lib/sm_fixture.h"

#include "metad/sm_priv.h"

#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

#define ROOT ROOT_INO
#define TEXT "match=*-wal peers=5"

static int enable(struct sm_client *c, uint64_t dir, const char *text)
{
	return sm_client_setxattr(c, dir, META_XATTR_LOG, text, strlen(text),
				  0);
}

static bool is_log(struct sm_client *c, uint64_t ino)
{
	return (sm_client_stat(c, ino).flags & META_ATTR_LOG) != 0;
}

/* What META_LOG_OPTS answers; NULL: -ENODATA. */
static const char *options(struct sm_client *c, uint64_t ino)
{
	struct meta_ino q = { ino };
	static char text[LOG_OPTS_TEXT_MAX];
	struct meta_blob b;
	uint8_t buf[8];
	struct wire_out o;
	int err;

	wire_out_init(&o, buf, sizeof(buf));
	meta_ino_encode(&o, &q);
	err = sm_client_internal(c, WIRE_OP_META_LOG_OPTS, buf, o.len);
	assert_true(err == 0 || err == -ENODATA);
	if (err != 0)
		return NULL;
	assert_int_equal(meta_blob_parse(c->r.body, c->r.body_len, &b), 0);
	(void)snprintf(text, sizeof(text), "%.*s", (int)b.value.len,
		       (const char *)b.value.p);
	return text;
}

static uint64_t log_dir(struct sm_client *c, const char *name)
{
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, name));

	assert_int_equal(enable(c, d, TEXT), 0);
	assert_true((c->attr.flags & META_ATTR_LOG) != 0);
	return d;
}

static void files_whose_name_matches_are_log_files(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d")), old, f, dir;

	assert_false(is_log(c, d));
	old = SM_INO(c, sm_client_file(c, d, "old-wal"));
	assert_int_equal(enable(c, d, TEXT), 0);
	assert_true(is_log(c, d));
	assert_int_equal(sm_client_file(c, d, "db-wal"), 0);
	assert_true((c->attr.flags & META_ATTR_LOG) != 0);
	f = c->attr.ino;
	assert_true(is_log(c, f));
	assert_int_equal(sm_client_lookup(c, d, "db-wal"), 0);
	assert_true((c->attr.flags & META_ATTR_LOG) != 0);
	assert_false(is_log(c, SM_INO(c, sm_client_file(c, d, "db"))));
	assert_false(is_log(c, old));
	/* only files, and not what lies deeper */
	dir = SM_INO(c, sm_client_mkdir(c, d, "dir-wal"));
	assert_false(is_log(c, dir));
	assert_false(is_log(c, SM_INO(c, sm_client_file(c, dir, "x-wal"))));
	assert_false(is_log(c, SM_INO(c, sm_client_symlink(c, d, "l-wal",
							   "x"))));
	assert_false(is_log(c, SM_INO(c, sm_client_mknod(c, d, "p-wal",
							 S_IFIFO | 0600, 0))));
	/* what is changed counts for what comes */
	assert_int_equal(enable(c, d, "match=db"), 0);
	assert_true(is_log(c, f));
	assert_false(is_log(c, SM_INO(c, sm_client_file(c, d, "e-wal"))));
	assert_int_equal(sm_client_removexattr(c, d, META_XATTR_LOG), 0);
	assert_int_equal(c->attr.flags & META_ATTR_LOG, 0);
	assert_true(is_log(c, f));
	assert_false(is_log(c, SM_INO(c, sm_client_file(c, d, "f-wal"))));
}

static void wrong_options_are_refused(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = SM_INO(c, sm_client_mkdir(c, ROOT, "d"));
	uint64_t f = SM_INO(c, sm_client_file(c, ROOT, "f"));
	char buf[64];

	assert_int_equal(enable(c, d, "peers=2"), -EINVAL);
	assert_int_equal(enable(c, d, "yes"), -EINVAL);
	assert_false(is_log(c, d));
	assert_int_equal(enable(c, f, ""), -EINVAL);
	assert_int_equal(sm_client_removexattr(c, d, META_XATTR_LOG),
			 -ENODATA);
	/* no words: all defaults */
	assert_int_equal(enable(c, d, ""), 0);
	assert_true(is_log(c, d));
	assert_true(is_log(c, SM_INO(c, sm_client_file(c, d, "any"))));
	/* as every other attribute */
	assert_int_equal(sm_client_setxattr(c, d, META_XATTR_LOG, "", 0,
					    XATTR_CREATE), -EEXIST);
	assert_int_equal(enable(c, d, TEXT), 0);
	assert_int_equal(sm_client_getxattr(c, d, META_XATTR_LOG, buf,
					    sizeof(buf)), strlen(TEXT));
	assert_string_equal(buf, TEXT);
	assert_int_equal(sm_client_listxattr(c, d, buf, sizeof(buf)),
			 sizeof(META_XATTR_LOG));
}

static void the_options_are_those_of_the_directory_now(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d"), e = log_dir(c, "e");
	uint64_t f = SM_INO(c, sm_client_file(c, d, "f-wal"));

	assert_string_equal(options(c, f), TEXT);
	assert_string_equal(options(c, d), TEXT);
	assert_null(options(c, ROOT));
	assert_null(options(c, SM_INO(c, sm_client_file(c, d, "other"))));
	assert_int_equal(enable(c, d, "region=1M"), 0);
	assert_string_equal(options(c, f), "region=1M");
	assert_int_equal(sm_client_rename(c, d, "f-wal", e, "f-wal", 0, NULL),
			 0);
	assert_string_equal(options(c, f), TEXT);
	assert_int_equal(sm_client_rename(c, e, "f-wal", d, "f-wal", 0, NULL),
			 0);
	assert_int_equal(sm_client_removexattr(c, d, META_XATTR_LOG), 0);
	assert_string_equal(options(c, f), "");
}

/* A directory that is gone says nothing. */
static void a_file_may_outlive_its_directory(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d"), f;

	f = SM_INO(c, sm_client_file(c, d, "f-wal"));
	assert_int_equal(sm_client_unlink(c, d, "f-wal"), 0);
	assert_int_equal(sm_client_rmdir(c, ROOT, "d"), 0);
	assert_int_equal(sm_client_give_back(c, d, META_RETURN_ORPHAN), 0);
	assert_true(is_log(c, f));
	assert_string_equal(options(c, f), "");
}

static void a_tmpfile_becomes_one_when_it_is_linked(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");
	uint64_t f = SM_INO(c, sm_client_tmpfile(c, d, 0600));

	assert_false(is_log(c, f));
	assert_int_equal(sm_client_link(c, f, d, "t-wal"), 0);
	assert_true((c->attr.flags & META_ATTR_LOG) != 0);
	assert_string_equal(options(c, f), TEXT);
	/* the last name counts */
	assert_int_equal(sm_client_link(c, f, ROOT, "copy"), 0);
	assert_int_equal(c->attr.flags & META_ATTR_LOG, 0);
	assert_null(options(c, f));
	assert_int_equal(sm_client_link(c, f, d, "u-wal"), 0);
	assert_true(is_log(c, f));
	/* that a name goes changes nothing */
	assert_int_equal(sm_client_unlink(c, d, "u-wal"), 0);
	assert_true(is_log(c, f));
}

/* Renames; the reply tells what the moved inode is now. */
static void log_follows(struct sm_client *c, uint64_t dir, const char *name,
			uint64_t newdir, const char *newname, bool want)
{
	struct meta_rename_reply r;

	assert_int_equal(sm_client_rename(c, dir, name, newdir, newname, 0,
					  &r), 0);
	assert_int_equal((r.flags & META_ATTR_LOG) != 0, want);
	assert_int_equal(is_log(c, r.ino), want);
}

static void the_last_name_of_a_rename_counts(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");

	assert_int_equal(sm_client_file(c, ROOT, "f"), 0);
	log_follows(c, ROOT, "f", d, "f", false);
	log_follows(c, d, "f", d, "f-wal", true);
	log_follows(c, d, "f-wal", d, "g-wal", true);
	log_follows(c, d, "g-wal", d, "g", false);
	log_follows(c, d, "g", d, "g-wal", true);
	log_follows(c, d, "g-wal", ROOT, "g-wal", false);
	/* directories are moved as they are */
	assert_int_equal(sm_client_rename(c, ROOT, "d", ROOT, "x-wal", 0,
					  NULL), 0);
	assert_true(is_log(c, d));
	assert_int_equal(sm_client_mkdir(c, ROOT, "sub"), 0);
	log_follows(c, ROOT, "sub", d, "sub-wal", false);
}

static void what_is_replaced_stays_what_it_was(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");
	uint64_t f = SM_INO(c, sm_client_file(c, d, "f-wal"));
	struct meta_rename_reply r;

	assert_int_equal(sm_client_file(c, ROOT, "g"), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "g", d, "f-wal", 0, &r), 0);
	assert_int_equal(r.replaced, f);
	assert_true((r.flags & META_ATTR_LOG) != 0);
	assert_true((r.replaced_flags & META_ATTR_LOG) != 0);
	assert_true(is_log(c, f));
}

static void an_exchange_gives_two_names(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");
	uint64_t f = SM_INO(c, sm_client_file(c, d, "f-wal"));
	uint64_t g = SM_INO(c, sm_client_file(c, ROOT, "g"));
	struct meta_rename_reply r;

	assert_int_equal(sm_client_rename(c, d, "f-wal", ROOT, "g",
					  RENAME_EXCHANGE, &r), 0);
	assert_int_equal(r.ino, f);
	assert_int_equal(r.flags & META_ATTR_LOG, 0);
	assert_int_equal(r.replaced, g);
	assert_true((r.replaced_flags & META_ATTR_LOG) != 0);
	assert_false(is_log(c, f));
	assert_true(is_log(c, g));
	assert_string_equal(options(c, g), TEXT);
	/* in one directory */
	assert_int_equal(sm_client_file(c, d, "plain"), 0);
	assert_int_equal(sm_client_rename(c, d, "plain", d, "f-wal",
					  RENAME_EXCHANGE, &r), 0);
	assert_true((r.flags & META_ATTR_LOG) != 0);
	assert_int_equal(r.replaced_flags & META_ATTR_LOG, 0);
	assert_false(is_log(c, g));
	/* two names of one file: nothing is done */
	assert_int_equal(sm_client_link(c, r.ino, ROOT, "h"), 0);
	assert_int_equal(sm_client_rename(c, ROOT, "h", d, "f-wal", 0, &r), 0);
	assert_int_equal(r.flags & META_ATTR_LOG, 0);
}

static void a_whiteout_is_none(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");
	struct meta_rename_reply r;

	assert_int_equal(sm_client_file(c, d, "f-wal"), 0);
	assert_int_equal(sm_client_rename(c, d, "f-wal", d, "g-wal",
					  RENAME_WHITEOUT, &r), 0);
	assert_true((r.flags & META_ATTR_LOG) != 0);
	assert_false(is_log(c, r.whiteout));
}

/* It is an inode's to keep over snapshots, with its directory. */
static void snapshots_keep_it(void **state)
{
	struct sm_client *c = *state;
	uint64_t d = log_dir(c, "d");
	uint64_t f = SM_INO(c, sm_client_file(c, d, "f-wal"));
	struct sm *copy = sm_new();
	struct sm_inode in;
	size_t len;
	uint8_t *snap = sm_client_snapshot(c->sm, &len);

	assert_int_equal(sm_restore(copy, snap, len), 0);
	free(snap);
	assert_true(sm_inode_get(copy, f, &in));
	assert_true((in.flags & SM_INODE_LOG) != 0 && in.log_dir == d);
	assert_true(sm_inode_get(copy, d, &in));
	assert_true((in.flags & SM_INODE_LOG) != 0 && in.log_dir == 0);
	sm_free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SM_TEST(files_whose_name_matches_are_log_files),
		SM_TEST(wrong_options_are_refused),
		SM_TEST(the_options_are_those_of_the_directory_now),
		SM_TEST(a_file_may_outlive_its_directory),
		SM_TEST(a_tmpfile_becomes_one_when_it_is_linked),
		SM_TEST(the_last_name_of_a_rename_counts),
		SM_TEST(what_is_replaced_stays_what_it_was),
		SM_TEST(an_exchange_gives_two_names),
		SM_TEST(a_whiteout_is_none),
		SM_TEST(snapshots_keep_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
