/* Goal: the real hail-metad starts from no data directory that is damaged or
 * another's, and stops with a reason, losing nothing, when the disk is full.
 * Method: the program as a child, bits of its files turned over, a small
 * tmpfs; TAP.
 *
 * usage: metad_data [NAME...]	(run from the top, or with BIN=)
 */
#include "tests/lib/metad_client.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/lib/tap.h"

/* The first file of the log whose name begins so. */
static bool find_raft_file(struct metad_run *x, const char *prefix,
			   const char *not_suffix, char *path, size_t size)
{
	const struct dirent *e;
	char dir[128];
	bool found = false;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/data/raft", x->child.dir);
	d = opendir(dir);
	while (d && !found && (e = readdir(d))) {
		size_t len = strlen(e->d_name), cut = strlen(not_suffix);

		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
		    (cut && len > cut &&
		     strcmp(e->d_name + len - cut, not_suffix) == 0))
			continue;
		snprintf(path, size, "%s/%s", dir, e->d_name);
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

static void a_damaged_log_is_refused(struct metad_run *x)
{
	struct metad_client c;
	struct stat st;
	char path[512], name[16];
	unsigned i;

	metad_client_begin(x, &c);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	CHECK_EQ(child_term(&x->child), 0);
	CHECK(find_raft_file(x, "0000000000000002-", "", path, sizeof(path)));
	CHECK_EQ(stat(path, &st), 0);
	child_flip(path, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "cannot be loaded"));
	/* Nothing was set aside: repaired, it is all there. */
	child_flip(path, st.st_size / 2);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "f99"), 0);
	metad_client_fini(&c);
}

/* libraft would take it for an unfinished write and forget what follows. */
static void a_damaged_open_segment_is_refused(struct metad_run *x)
{
	struct metad_client c;
	char path[512], copy[600], name[16];
	unsigned i;

	metad_client_begin(x, &c);
	for (i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
		CHECK_EQ(metad_client_sync(&c), 0);
	}
	child_kill9(&x->child);
	snprintf(path, sizeof(path), "%s/data/raft/open-1", x->child.dir);
	child_flip(path, 5000);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "is damaged near its end"));
	/* Again, and still the same: nothing was lost by trying. */
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	snprintf(copy, sizeof(copy), "%s/data/unclean/open-1", x->child.dir);
	CHECK_EQ(access(copy, R_OK), 0);
	metad_client_fini(&c);
}

/* There may be an older one, which nobody reads. */
static bool newest_snapshot(struct metad_run *x, char *path, size_t size)
{
	unsigned long index, newest = 0;
	const struct dirent *e;
	char dir[128];
	int end;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/data/raft", x->child.dir);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		end = 0;
		if (sscanf(e->d_name, "snapshot-%*u-%lu-%*u%n", &index, &end) !=
			    1 ||
		    end == 0 || e->d_name[end] || index < newest)
			continue;
		newest = index;
		snprintf(path, size, "%s/%s", dir, e->d_name);
	}
	if (d)
		closedir(d);
	return newest > 0;
}

static void a_damaged_snapshot_is_refused(struct metad_run *x)
{
	static const char *const args[] = { "--snapshot-bytes", "16k", NULL };
	struct metad_client c;
	struct stat st;
	char path[512], name[16];
	unsigned i;

	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	for (i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		c.seq_low = c.seq + 1;
		CHECK_EQ(metad_client_create(&c, ROOT_INO, name, 0), 0);
	}
	CHECK_EQ(metad_client_sync(&c), 0);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >=
		   1);
	CHECK_EQ(child_term(&x->child), 0);
	CHECK(newest_snapshot(x, path, sizeof(path)));
	CHECK_EQ(stat(path, &st), 0);
	child_flip(path, st.st_size / 2);
	CHECK_EQ(metad_run_to_end(x, args), 3);
	CHECK(child_log_has(&x->child, "are damaged"));
	metad_client_fini(&c);
}

static void data_write(struct metad_run *x, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/data/%s", x->child.dir, name);
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void foreign_data_is_refused(struct metad_run *x)
{
	char path[128];

	metad_run_start(x, NULL);
	CHECK_EQ(child_term(&x->child), 0);
	data_write(x, "metad.id",
		   "hailfs-metad 1\ncluster 0x0000000000000099\nid 1\n"
		   "state ok\n");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "belongs to metad 1 of cluster"));
	data_write(x, "metad.id", "hailfs-metad 2\nanything\n");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "by a later version of hail-metad"));
	data_write(x, "metad.id", "x");
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "metad.id is damaged"));
	/* A directory with other things in it is left alone. */
	snprintf(path, sizeof(path), "%s/data/metad.id", x->child.dir);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(metad_run_to_end(x, NULL), 3);
	CHECK(child_log_has(&x->child, "is not empty and holds no metadata"));
}

/* The data directory is on a disk of its own, tmpfs with this option. False:
 * who is not root cannot try that. */
static bool disk_up(struct metad_run *x, char *data, size_t data_size,
		    const char *size)
{
	if (geteuid() != 0) {
		printf("# needs root\n");
		return false;
	}
	snprintf(data, data_size, "%s/data", x->child.dir);
	CHECK_EQ(mkdir(data, 0700), 0);
	CHECK_EQ(mount("none", data, "tmpfs", 0, size), 0);
	return true;
}

static void disk_down(struct metad_client *c, const char *data)
{
	metad_client_fini(c);
	child_kill9(&c->x->child);
	CHECK_EQ(umount(data), 0);
}

static void a_full_disk_stops_it_with_a_reason(struct metad_run *x)
{
	const char *args[] = { "--snapshot-bytes", "1t", NULL };
	struct metad_client c;
	char data[128], name[300], one[256], two[] = "two";
	unsigned i, made = 0, synced = 0;
	bool moved = false;
	int rv;

	if (!disk_up(x, data, sizeof(data), "size=40m"))
		return;
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	snprintf(one, sizeof(one), "%06u%0200u", 0, 0);
	for (i = 0; i < 400000; i++) {
		snprintf(name, sizeof(name), "%06u%0200u", i, i);
		c.seq_low = c.seq + 1;
		rv = metad_client_create(&c, ROOT_INO, name, 0);
		if (rv == 0) {
			made = i;
		} else if (rv == -ENOSPC) {
			/* Refused in time; what is not goes into the log. */
			rv = metad_client_rename(&c, ROOT_INO,
						 moved ? two : one, ROOT_INO,
						 moved ? one : two);
			moved = !moved;
		}
		if (rv == 0 && i % 500 == 499) {
			rv = metad_client_sync(&c);
			synced = rv == 0 ? made : synced;
		}
		if (rv < 0)
			break;
	}
	CHECK(i < 400000 && synced > 0);
	CHECK_EQ(child_wait(&x->child), 3);
	CHECK(child_log_has(&x->child, "the disk is full"));
	/* With room it goes on, and what was durable is there. */
	CHECK_EQ(mount("none", data, "tmpfs", MS_REMOUNT, "size=200m"), 0);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	snprintf(name, sizeof(name), "%06u%0200u", synced, synced);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, name), 0);
	disk_down(&c, data);
}

/* Bytes the log has on the disk in segments it writes or will write. */
static uint64_t open_segment_bytes(struct metad_run *x)
{
	const struct dirent *e;
	uint64_t bytes = 0;
	char path[400];
	struct stat st;
	DIR *d;

	snprintf(path, sizeof(path), "%s/data/raft", x->child.dir);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/data/raft/%s", x->child.dir,
			 e->d_name);
		if (strncmp(e->d_name, "open-", 5) == 0 && stat(path, &st) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
	}
	if (d)
		closedir(d);
	return bytes;
}

/* Fills the log, not the state: renames a file there and back. */
static void churn(struct metad_client *c, unsigned count)
{
	char one[256], two[256];

	snprintf(one, sizeof(one), "b%06u%0200u", 0, 0);
	snprintf(two, sizeof(two), "B%0240u", 0);
	for (unsigned i = 0; i < count; i++) {
		c->seq_low = c->seq + 1;
		CHECK_EQ(metad_client_rename(c, ROOT_INO, i % 2 ? two : one,
					     ROOT_INO, i % 2 ? one : two),
			 0);
	}
	CHECK_EQ(metad_client_sync(c), 0);
}

/* Takes all of the disk but a little. */
static int ballast_make(const char *dir, const char *name, char *path,
			size_t path_size)
{
	struct statvfs vfs;
	int fd, rv = -1;

	snprintf(path, path_size, "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	/* Somebody else takes and gives back, too. */
	for (int i = 0; i < 1000 && rv; i++) {
		CHECK_EQ(statvfs(dir, &vfs), 0);
		rv = posix_fallocate(fd, 0,
				     ((off_t)vfs.f_bavail - 64) *
					     (off_t)vfs.f_frsize);
	}
	CHECK_EQ(rv, 0);
	return fd;
}

static bool can_create(struct metad_client *c, const char *name)
{
	int rv = metad_client_mkdir(c, ROOT_INO, name);

	return rv == 0 || rv == -EEXIST;
}

static uint64_t reserve_bytes(const char *dir)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof(path), "%s/reserve", dir);
	return stat(path, &st) ? UINT64_MAX : (uint64_t)st.st_blocks * 512;
}

static int rename_flags(struct metad_client *c, const char *name,
			const char *newname, uint32_t flags)
{
	uint8_t b[256];
	size_t len =
		METAD_BODY(b, meta_rename,
			   { .parent = ROOT_INO,
			     .name = { name, (uint32_t)strlen(name) },
			     .newparent = ROOT_INO,
			     .newname = { newname, (uint32_t)strlen(newname) },
			     .flags = flags });

	return metad_client_call(c, WIRE_OP_META_RENAME, b, len);
}

/* Others fill the disk: what grows is refused, the rest goes on in the space
 * kept for that; what was answered before is never refused. */
static void a_full_disk_refuses_what_grows(struct metad_run *x)
{
	const char *args[] = { "--snapshot-bytes", "1t", NULL };
	char data[128], path[160];
	struct metad_client c;
	int fd;

	if (!disk_up(x, data, sizeof(data), "size=800m"))
		return;
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	metad_client_create_long(&c, 'b', 2);
	EVENTUALLY(reserve_bytes(data) >= 24 << 20);
	fd = ballast_make(data, "ballast", path, sizeof(path));
	EVENTUALLY(metad_client_create(&c, ROOT_INO, "n", 0) == -ENOSPC);
	CHECK(child_log_has(&x->child, "event=disk_full"));
	c.r.flags = WIRE_F_RESENT;
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "again", 0), 0);
	c.r.flags = 0;
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "m"), -ENOSPC);
	CHECK_EQ(rename_flags(&c, "again", "w", RENAME_WHITEOUT), -ENOSPC);
	CHECK_EQ(rename_flags(&c, "again", "w", 0), 0);
	CHECK_EQ(rename_flags(&c, "w", "again", RENAME_NOREPLACE), 0);
	/* More than a segment of the log. */
	churn(&c, 20000);
	CHECK_EQ(metad_client_unlink(&c, ROOT_INO, "again"), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	/* It can also start so. */
	child_kill9(&x->child);
	metad_run_start(x, args);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "m"), -ENOENT);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "again"), -ENOENT);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	EVENTUALLY(can_create(&c, "m"));
	EVENTUALLY(reserve_bytes(data) >= 24 << 20);
	disk_down(&c, data);
}

/* There is no room for the copies of the log's open segments, and hardly any
 * else. */
static void no_room_for_copies_is_no_reason_not_to_start(struct metad_run *x)
{
	char data[128], path[160];
	const char *args[] = { "--snapshot-bytes", "1t", NULL };
	struct metad_client c;
	int fd;

	if (!disk_up(x, data, sizeof(data), "size=800m"))
		return;
	metad_run_start(x, args);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	metad_client_create_long(&c, 'b', 4000);
	child_kill9(&x->child);
	snprintf(path, sizeof(path), "%s/reserve", data);
	CHECK_EQ(truncate(path, 0), 0);
	fd = ballast_make(data, "ballast", path, sizeof(path));
	metad_run_start(x, args);
	CHECK(child_log_has(&x->child, "event=no_copy"));
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_lookup(&c, ROOT_INO, "f"), 0);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	EVENTUALLY(can_create(&c, "m"));
	disk_down(&c, data);
}

/* Somebody removed it to make room, and something is in its place. */
static void without_a_reserve_it_starts_and_says_so(struct metad_run *x)
{
	struct metad_client c;
	char data[128], path[160];
	int fd;

	if (!disk_up(x, data, sizeof(data), "size=800m"))
		return;
	snprintf(path, sizeof(path), "%s/reserve", data);
	metad_client_begin(x, &c);
	child_kill9(&x->child);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(mkdir(path, 0700), 0);
	metad_run_start(x, NULL);
	CHECK(child_log_has(&x->child, "event=no_reserve"));
	CHECK_EQ(metad_client_reconnect(&c), 0);
	CHECK_EQ(metad_client_create(&c, ROOT_INO, "f", 0), 0);
	/* It watches all the same. */
	fd = ballast_make(data, "ballast", path, sizeof(path));
	EVENTUALLY(metad_client_create(&c, ROOT_INO, "n", 0) == -ENOSPC);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	EVENTUALLY(can_create(&c, "m"));
	snprintf(path, sizeof(path), "%s/reserve", data);
	CHECK_EQ(rmdir(path), 0);
	EVENTUALLY(reserve_bytes(data) >= 24 << 20 &&
		   reserve_bytes(data) != UINT64_MAX);
	disk_down(&c, data);
}

/* The log has room in its segments, the snapshot has none on the disk. */
static void a_snapshot_that_does_not_fit_is_tried_again(struct metad_run *x)
{
	const char *never[] = { "--snapshot-bytes", "1t", NULL };
	const char *soon[] = { "--snapshot-bytes", "24m", NULL };
	const uint64_t segment = 8 << 20; /* libraft's; it keeps two ready */
	char data[128], path[160], path2[160];
	struct metad_client c;
	int fd, more;

	if (!disk_up(x, data, sizeof(data), "size=150m"))
		return;
	metad_run_start(x, never);
	CHECK_EQ(metad_client_open(x, &c, 1), 0);
	/* Longer than what a segment that is closed gives back. */
	metad_client_create_long(&c, 'a', 60000);
	child_kill9(&x->child);
	metad_run_start(x, soon);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	metad_client_create_long(&c, 'b', 1);
	EVENTUALLY(open_segment_bytes(x) >= 3 * segment);
	fd = ballast_make(data, "ballast", path, sizeof(path));
	EVENTUALLY(reserve_bytes(data) == 0);
	more = ballast_make(data, "more", path2, sizeof(path2));
	churn(&c, 12000);
	EVENTUALLY(child_log_has(&x->child, "event=snapshot-failed"));
	CHECK(child_log_has(&x->child, "error=\"the disk is full"));
	/* Service went on; with room it is tried again. */
	churn(&c, 2);
	CHECK_EQ(close(fd), 0);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(close(more), 0);
	CHECK_EQ(unlink(path2), 0);
	EVENTUALLY(can_create(&c, "room"));
	metad_client_create_long(&c, 'e', 10000);
	EVENTUALLY(metad_admin_number(x, WIRE_OP_ADMIN_STATS, "snapshots") >=
		   1);
	disk_down(&c, data);
}

/* ---- a first start that was cut off ---- */

/* Nobody was told of its file system yet. */
static void a_cut_off_first_start_begins_anew(struct metad_run *x)
{
	static const char *const logs[] = { "0000", "open-" };
	struct metad_client c;
	char path[512], text[256];
	unsigned i;

	/* Before the directory had its name. */
	snprintf(path, sizeof(path), "%s/data", x->child.dir);
	CHECK_EQ(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/data/raft", x->child.dir);
	CHECK_EQ(mkdir(path, 0700), 0);
	data_write(x, "metad.id.n", "hailfs-metad 1\nclus");
	metad_client_begin(x, &c);
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "d"), 0);
	metad_client_fini(&c);
	CHECK_EQ(child_term(&x->child), 0);
	/* In the middle of making the log; the mark knew of a batch. */
	for (i = 0; i < array_count(logs); i++)
		while (find_raft_file(x, logs[i], "", path, sizeof(path)))
			CHECK_EQ(unlink(path), 0);
	data_write(x, "raft/tmp-0000000000000001-0000000000000001", "x");
	snprintf(text, sizeof(text),
		 "hailfs-metad 1\ncluster 0x%016x\nid 1\n"
		 "state new\n",
		 METAD_CLUSTER_ID);
	data_write(x, "metad.id", text);
	metad_client_begin(x, &c);
	metad_client_check_list(&c, ROOT_INO, "");
	CHECK_EQ(metad_client_mkdir(&c, ROOT_INO, "e"), 0);
	CHECK_EQ(metad_client_sync(&c), 0);
	child_kill9(&x->child);
	metad_run_start(x, NULL);
	CHECK_EQ(metad_client_reconnect(&c), 0);
	metad_client_check_list(&c, ROOT_INO, "e\n");
	metad_client_fini(&c);
}

int main(int argc, char **argv)
{
	static const struct metad_test tests[] = {
		METAD_TEST(a_damaged_log_is_refused, 0),
		METAD_TEST(a_damaged_open_segment_is_refused, 0),
		METAD_TEST(a_damaged_snapshot_is_refused, 0),
		METAD_TEST(foreign_data_is_refused, 0),
		METAD_TEST(a_cut_off_first_start_begins_anew, 0),
		METAD_TEST(a_full_disk_stops_it_with_a_reason, 0),
		METAD_TEST(a_full_disk_refuses_what_grows, 0),
		METAD_TEST(no_room_for_copies_is_no_reason_not_to_start, 0),
		METAD_TEST(without_a_reserve_it_starts_and_says_so, 0),
		METAD_TEST(a_snapshot_that_does_not_fit_is_tried_again, 0),
	};

	return metad_tests_run(argc, argv, tests, array_count(tests));
}
