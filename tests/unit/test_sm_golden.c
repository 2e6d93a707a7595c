/* The formats in which metadata lie on disks, byte for byte: old disks must
 * stay readable, so what is in tests/golden/metad-v*.hex never changes. Run
 * from the top. HAILFS_GOLDEN=write makes the newest (for a new version only):
 *	v1	before there were logs
 *	v2	with log daemons and logs
 *	v3	with journals (logs without peers)
 *
 * Method: a snapshot (a backup is one, too) with a record of every kind, and a
 * log of a continuous copy, whose frames hold batches as Raft's log has them.
 */
#include "metad/copy.h"
#include "metad/sm_priv.h"

#include "common/crc32c.h"
#include "tests/lib/golden.h"
#include "tests/lib/sm_client.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define GOLDEN_V1 "tests/golden/metad-v1.hex"
#define GOLDEN_V2 "tests/golden/metad-v2.hex"
#define GOLDEN_V3 "tests/golden/metad-v3.hex"
#define GOLDEN_MAX (32u << 10)
#define KINDS_MAX 256u

static const uint8_t kinds[] = {
	SM_K_GLOBAL, SM_K_MAP,	  SM_K_DAEMON, SM_K_SESSION, SM_K_REPLY,
	SM_K_LEASE,  SM_K_ORPHAN, SM_K_PURGE,  SM_K_CUT,     SM_K_INODE,
	SM_K_DIRENT, SM_K_XATTR,  SM_K_TARGET, SM_K_LOG,
};
#define KINDS_V1 (array_count(kinds) - 1)

/* Does the snapshot have records of the first @count kinds? */
static bool all_kinds(const uint8_t *snap, size_t snap_len, size_t count)
{
	bool seen[KINDS_MAX] = { false };
	struct wire_in in;
	size_t len;
	uint8_t *stream = sm_client_unwrap(snap, snap_len, &len);

	wire_in_init(&in, stream, len);
	while (in.len > 0) {
		uint32_t klen = wire_get_u16(&in), vlen = wire_get_u16(&in);

		if (in.bad || klen == 0 || klen + vlen > in.len)
			break;
		seen[in.p[0]] = true;
		in.p += klen + vlen;
		in.len -= klen + vlen;
	}
	free(stream);
	for (size_t i = 0; i < count; i++)
		if (!seen[kinds[i]]) {
			fprintf(stderr, "no record of kind %u\n", kinds[i]);
			return false;
		}
	return in.len == 0;
}

/* ---- the file ---- */

/* The last command of @c, as batch @number of a copy's log. */
static void put_frame(struct wire_out *o, const struct sm_client *c,
		      uint64_t number)
{
	uint8_t batch[4096] = { 0 };
	struct wire_out b;
	size_t len;

	wire_out_init(&b, batch, sizeof(batch));
	wire_put_u64(&b, number);
	wire_put_u32(&b, 1);
	wire_put_u16(&b, c->op);
	wire_put_u16(&b, 0);
	wire_put_u32(&b, (uint32_t)c->body_len);
	wire_put_u64(&b, c->session);
	wire_put_raw(&b, c->body, c->body_len);
	len = u64_round_up(b.len, METARAFT_BATCH_ALIGN);
	wire_put_u32(o, COPY_MAGIC);
	wire_put_u32(o, (uint32_t)len);
	wire_put_u32(o, crc32c(0, batch, len));
	wire_put_raw(o, batch, len);
}

/* What the file is made of can be done. */
#define DO(command) do_it(command, #command)

static void do_it(int status, const char *command)
{
	if (status == 0)
		return;
	fprintf(stderr, "%s: %s\n", command, strerror(-status));
	exit(1);
}

static int store_commit(struct sm_client *c, uint64_t commit)
{
	struct sm_daemon_set q = {
		.id = 1,
		.port = 7101,
		.state = CMAP_STATE_UP,
		.commit = commit,
		.addr = { "127.0.0.1", 9 },
	};
	uint8_t buf[256];
	struct wire_out o;

	wire_out_init(&o, buf, sizeof(buf));
	sm_daemon_set_encode(&o, &q);
	return sm_client_internal(c, WIRE_OP_SM_DAEMON_SET, buf, o.len);
}

static int create_unnamed(struct sm_client *c)
{
	struct meta_create p = { .parent = ROOT_INO, .mode = 0100600,
				 .flags = META_CREATE_TMPFILE |
					  META_CREATE_OPEN |
					  META_CREATE_LEASE };

	return sm_client_create(c, &p);
}

/* A journal; its inode. */
static uint64_t make_journal(struct sm_client *c)
{
	DO(create_unnamed(c));
	DO(sm_client_log_set(c, c->attr.ino, 0, 0, NULL, 0));
	return c->log.ino;
}

/* A state with a record of every kind. */
static void make_state(struct sm_client *c)
{
	static const struct meta_log_peer peers[] = { { 1, 101 }, { 2, 102 },
						      { 3, 103 } };
	uint64_t file;

	sm_client_init(c);
	DO(store_commit(c, 7));
	DO(sm_client_file(c, ROOT_INO, "gone"));
	file = c->attr.ino;
	DO(sm_client_lease(c, file)); /* so it may have blocks */
	DO(sm_client_unlink(c, ROOT_INO, "gone"));
	DO(sm_client_give_back(c, file, META_RETURN_ORPHAN));
	DO(sm_client_file(c, ROOT_INO, "file"));
	file = c->attr.ino;
	DO(sm_client_mkdir(c, ROOT_INO, "dir"));
	DO(sm_client_file(c, c->attr.ino, "in"));
	DO(sm_client_link(c, file, ROOT_INO, "link"));
	DO(sm_client_mknod(c, ROOT_INO, "dev", 0020600, 0x105));
	DO(sm_client_symlink(c, ROOT_INO, "sym", "dir/in"));
	DO(sm_client_tmpfile(c, ROOT_INO, 0100600));
	DO(sm_client_setxattr(c, file, "user.a", "value", 5, 0));
	DO(sm_client_chown(c, file, 1000, 1001));
	c->keep_replies = true;
	DO(sm_client_chmod(c, file, 04751));
	DO(sm_client_lease(c, file));
	DO(sm_client_truncate(c, file, 1 << 20, 4096));
	for (uint32_t id = 1; id <= 3; id++)
		DO(sm_client_logd(c, id, 100 + id));
	DO(sm_client_log_set(c, file, 0, 0, peers, 3));
	DO(sm_client_log_raise(c, file));
	DO(sm_client_mkdir(c, ROOT_INO, "logs"));
	DO(sm_client_setxattr(c, c->attr.ino, META_XATTR_LOG, "match=*", 7, 0));
	DO(sm_client_file(c, c->attr.ino, "wal"));
}

/* Adds a journal of a session that is gone, and one of @c's. */
static uint64_t make_journals(struct sm_client *c)
{
	struct sm_client d;
	uint64_t ino;

	sm_client_join(&d, c->sm);
	ino = make_journal(&d);
	DO(sm_client_close(c, d.session, 1));
	DO(sm_client_close(c, d.session, 2));
	sm_client_leave(&d);
	(void)make_journal(c);
	return ino;
}

static int write_golden(void)
{
	static uint8_t log[GOLDEN_MAX];
	struct sm_client c;
	struct wire_out o;
	uint8_t *snap;
	size_t len;
	FILE *f = fopen(GOLDEN_V3, "we");
	struct sm_log wal;
	uint64_t ino;

	if (f == NULL)
		return 1;
	make_state(&c);
	wal = c.log;
	ino = make_journals(&c);
	sm_set_batch(c.sm, 41);
	snap = sm_client_snapshot(c.sm, &len);
	golden_put(f, "snapshot", snap, len);
	free(snap);
	wire_out_init(&o, log, sizeof(log));
	DO(sm_client_file(&c, ROOT_INO, "golden"));
	put_frame(&o, &c, 42);
	DO(sm_client_chmod(&c, c.attr.ino, 0640));
	put_frame(&o, &c, 43);
	DO(sm_client_log_drop(&c, wal.ino, wal.epoch));
	put_frame(&o, &c, 44);
	DO(sm_client_log_raise(&c, ino));
	put_frame(&o, &c, 45);
	DO(sm_client_log_drop(&c, ino, c.log.epoch));
	put_frame(&o, &c, 46);
	DO(sm_client_give_back(&c, ino, META_RETURN_ORPHAN));
	put_frame(&o, &c, 47);
	DO(create_unnamed(&c));
	put_frame(&o, &c, 48);
	DO(sm_client_log_set(&c, c.attr.ino, 0, 0, NULL, 0));
	put_frame(&o, &c, 49);
	golden_put(f, "copy_log", log, o.len);
	sm_client_fini(&c);
	return fclose(f);
}

/* ---- facts ---- */

static struct sm *golden_machine(const char *path)
{
	static uint8_t old[GOLDEN_MAX];
	size_t len = golden_read(path, "snapshot", old, GOLDEN_MAX);
	struct sm *sm = sm_new();

	assert_non_null(sm);
	assert_int_equal(sm_restore(sm, old, len), 0);
	assert_true(sm_verify(sm));
	assert_int_equal(sm_batch(sm), 41);
	return sm;
}

static void read_and_write(const char *path, size_t kind_count)
{
	static uint8_t old[GOLDEN_MAX];
	size_t len, old_len = golden_read(path, "snapshot", old, GOLDEN_MAX);
	struct sm *sm = golden_machine(path);
	uint8_t *made = sm_client_snapshot(sm, &len);

	assert_true(all_kinds(old, old_len, kind_count));
	assert_int_equal(len, old_len);
	assert_memory_equal(made, old, len);
	free(made);
	sm_free(sm);
}

static void snapshots_of_all_versions_are_read_and_written_alike(void **state)
{
	(void)state;
	read_and_write(GOLDEN_V1, KINDS_V1);
	read_and_write(GOLDEN_V2, array_count(kinds));
	read_and_write(GOLDEN_V3, array_count(kinds));
}

/* What the log of a copy makes of the snapshot: c->sm. */
static void execute(struct sm_client *c, const char *path, uint64_t batches)
{
	static uint8_t old[GOLDEN_MAX];
	size_t len = golden_read(path, "copy_log", old, GOLDEN_MAX);
	struct sm *sm = golden_machine(path);
	FILE *f = fmemopen(old, len, "r");
	char why[256] = "";

	assert_non_null(f);
	assert_int_equal(copy_read_log(sm, f, "log", why, sizeof(why)), 0);
	(void)fclose(f);
	assert_int_equal(sm_batch(sm), batches);
	assert_true(sm_verify(sm));
	sm_client_join(c, sm);
	assert_int_equal(sm_client_lookup(c, ROOT_INO, "golden"), 0);
	assert_int_equal(c->attr.mode & 07777, 0640);
}

static void a_log_of_version_1_is_executed(void **state)
{
	struct sm_client c;

	(void)state;
	execute(&c, GOLDEN_V1, 43);
	assert_int_equal(sm_log_epoch(c.sm), 0);
	sm_client_fini(&c);
}

static void a_log_of_version_2_is_executed(void **state)
{
	struct sm *before = golden_machine(GOLDEN_V2);
	struct sm_client c;
	struct sm_log l;

	(void)state;
	assert_int_equal(sm_log_count(before), 1);
	assert_int_equal(sm_map(before)->log_count, 3);
	execute(&c, GOLDEN_V2, 44);
	assert_int_equal(sm_log_epoch(c.sm), 2);
	assert_int_equal(sm_log_count(c.sm), 0);
	assert_int_equal(sm_client_lookup(&c, ROOT_INO, "file"), 0);
	assert_true(sm_log_find(before, c.attr.ino, &l));
	assert_int_equal(l.epoch, 2);
	assert_int_equal(l.data_epoch, 1);
	assert_int_equal(l.peers[2].boot_id, 103);
	sm_free(before);
	sm_client_fini(&c);
}

static void a_log_of_version_3_is_executed(void **state)
{
	struct sm *before = golden_machine(GOLDEN_V3);
	struct sm_log was[4], is[4];
	struct sm_inode in;
	struct sm_client b, c;
	bool done;

	(void)state;
	sm_client_join(&b, before);
	assert_int_equal(sm_client_log_list(&b, 0, 0, 4, was, &done), 3);
	assert_int_equal(was[0].peer_count, 3);
	assert_int_equal(was[1].peer_count, 0);
	assert_int_equal(was[2].peer_count, 0);
	assert_true(sm_inode_get(before, was[1].ino, &in));
	assert_true(in.nlink == 0 && in.orphan == SM_NOBODY);
	assert_true(sm_inode_get(before, was[2].ino, &in));
	assert_true(in.nlink == 0 && in.orphan == was[2].session);
	execute(&c, GOLDEN_V3, 49);
	assert_int_equal(sm_log_epoch(c.sm), 6);
	assert_int_equal(sm_client_log_list(&c, 0, 0, 4, is, &done), 2);
	assert_int_equal(is[0].ino, was[2].ino);
	assert_int_equal(is[0].epoch, 4);
	assert_int_equal(is[1].epoch, 6);
	assert_int_equal(sm_client_getattr(&c, was[1].ino), -ENOENT);
	sm_client_fini(&b);
	sm_client_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			snapshots_of_all_versions_are_read_and_written_alike),
		cmocka_unit_test(a_log_of_version_1_is_executed),
		cmocka_unit_test(a_log_of_version_2_is_executed),
		cmocka_unit_test(a_log_of_version_3_is_executed),
	};

	if (getenv("HAILFS_GOLDEN") != NULL)
		return write_golden();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
