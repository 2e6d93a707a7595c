/* Goal: a backup of the real hail-metad brings everything back, or is refused.
 * Method: the program as a child, the backup taken as hailctl does, restored
 * to an empty directory; TAP.
 *
 * usage: metad_backup [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <sys/stat.h>

#include "common/wire_admin.h"
#include "tests/lib/tap.h"

/* The stores have seen numbers by then. */
static void restore_start(struct metad_run *x, const char *const *args)
{
	x->ino_max = 100;
	x->session_max = 10;
	metad_run_start(x, args);
}

static void a_backup_brings_everything_back(struct metad_run *x)
{
	struct metad_client c, d;
	char backup[128], data[128], name[32], *before, *after;
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	const char *again[] = { "--data", data, NULL };
	uint64_t last;
	unsigned i;

	snprintf(backup, sizeof(backup), "%s/backup", x->child.dir);
	snprintf(data, sizeof(data), "%s/restored", x->child.dir);
	metad_client_begin(x, &c);
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "name-%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	before = metad_client_list(&c, ROOT_INO);
	metad_run_backup(x, backup);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "later", 0), 0);
	last = c.attr.ino;
	metad_run_blockd_end(x, 0);
	metad_run_blockd_end(x, 1);
	child_term(&x->child);
	/* Clients are let in when all block daemons have spoken. */
	restore_start(x, args);
	metad_run_blockd(x, 0, 11, 5);
	CHECK_EQ(metad_client_open(x, &d, 1), -ECONNRESET);
	metad_client_fini(&d);
	/* Also after another start. */
	child_kill9(&x->child);
	metad_run_start(x, again);
	CHECK_EQ(metad_client_open(x, &d, 1), -ECONNRESET);
	metad_client_fini(&d);
	metad_run_blockd(x, 1, 12, 5);
	while (metad_client_open(x, &d, 1) < 0) {
		metad_client_fini(&d);
		sleep_ms(20);
	}
	CHECK(d.session >= 20 + 1000);
	after = metad_client_list(&d, ROOT_INO);
	CHECK(strcmp(before, after) == 0);
	CHECK_EQ(metad_client_create(&d, ROOT_INO, "new", 0), 0);
	CHECK(d.attr.ino > last && d.attr.ino >= 200 + 1000000);
	CHECK_EQ(metad_client_sync(&d), 0);
	child_kill9(&x->child);
	metad_run_start(x, again);
	CHECK_EQ(metad_client_reconnect(&d), 0);
	CHECK_EQ(metad_client_lookup(&d, ROOT_INO, "new"), 0);
	/* Not over something that is there. */
	child_term(&x->child);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(child_log_has(&x->child,
			    "--restore needs an empty data directory"));
	free(before);
	free(after);
	metad_client_fini(&c);
	metad_client_fini(&d);
}

/* The end of a session, which the backup has caught, purges what is of no
 * inode: by then the files that came after it must not count as such. */
static void a_session_ends_when_counters_are_raised(struct metad_run *x)
{
	struct metad_client c, d;
	char backup[128], data[128];
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	uint64_t ino;

	snprintf(backup, sizeof(backup), "%s/backup", x->child.dir);
	snprintf(data, sizeof(data), "%s/restored", x->child.dir);
	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", META_CREATE_LEASE), 0);
	ino = c.attr.ino;
	fake_blockd_hold(x->blockd[0], WIRE_OP_BLK_FENCE);
	metad_client_replace_begin(x, &d);
	EVENTUALLY(fake_blockd_calls(x->blockd[1], WIRE_OP_BLK_FENCE) == 1);
	metad_run_backup(x, backup);
	raw_close(&d.r);
	metad_run_blockd_end(x, 0);
	metad_run_blockd_end(x, 1);
	child_term(&x->child);
	restore_start(x, args);
	metad_run_blockd(x, 0, 11, 5);
	sleep_ms(500); /* it would be asked at once */
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_FENCE), 0);
	metad_run_blockd(x, 1, 12, 5);
	EVENTUALLY(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_LIST) == 1);
	CHECK_EQ(fake_blockd_calls(x->blockd[0], WIRE_OP_BLK_FENCE), 1);
	CHECK(fake_blockd_listed_from(x->blockd[0]) > ino + 1000000);
	metad_client_fini(&c);
}

static void a_damaged_backup_is_refused(struct metad_run *x)
{
	char backup[128], data[128];
	const char *args[] = { "--restore", backup, "--data", data, NULL };
	struct metad_client c;
	struct stat st;

	snprintf(backup, sizeof(backup), "%s/backup", x->child.dir);
	snprintf(data, sizeof(data), "%s/restored", x->child.dir);
	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_run_backup(x, backup);
	child_term(&x->child);
	CHECK_EQ(stat(backup, &st), 0);
	child_flip(backup, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(child_log_has(&x->child,
			    "is no backup of hail-metad, or damaged"));
	/* It left nothing that would be taken for metadata. */
	child_flip(backup, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(child_log_has(&x->child,
			    "--restore needs an empty data directory"));
	args[0] = "--data";
	args[1] = data;
	args[2] = NULL;
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(child_log_has(&x->child, "was cut off"));
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(a_backup_brings_everything_back, 2),
		METAD_TEST(a_session_ends_when_counters_are_raised, 2),
		METAD_TEST(a_damaged_backup_is_refused, 0),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
