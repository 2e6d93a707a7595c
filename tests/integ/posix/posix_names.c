/* Facts about names: creation, links, rename, directories. */
#include "posix.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static int rename2(const char *a, const char *b, unsigned flags)
{
	return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, flags);
}

static void excl_refuses_existing(void)
{
	mk("a", "x");
	CHECK_ERR(open("a", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST);
	CHECK(symlink("nowhere", "l") == 0);
	CHECK_ERR(open("l", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST);
}

static void missing_is_enoent(void)
{
	CHECK_ERR(open("no", O_RDONLY), ENOENT);
	CHECK_ERR(unlink("no"), ENOENT);
	CHECK_ERR(rmdir("no"), ENOENT);
	CHECK_ERR(rename("no", "b"), ENOENT);
	mk("no", "made now");
	CHECK(holds("no", "made now"));
}

static void names_of_255_bytes(void)
{
	char name[257];
	memset(name, 'n', sizeof(name));
	name[255] = 0;
	mk(name, "x");
	CHECK(holds(name, "x"));
	name[255] = 'n';
	name[256] = 0;
	CHECK_ERR(open(name, O_CREAT | O_WRONLY, 0644), ENAMETOOLONG);
	CHECK_ERR(mkdir(name, 0755), ENAMETOOLONG);
	CHECK_ERR(unlink(name), ENAMETOOLONG);
}

static void every_byte_in_a_name(void)
{
	char name[2] = { 0 };
	for (int c = 1; c < 256; c++) {
		name[0] = (char)c;
		if (c == '/' || c == '.')
			continue;
		mk(name, "x");
	}
	int count = 0;
	DIR *d = opendir(".");
	CHECK(d);
	while (readdir(d))
		count++;
	closedir(d);
	CHECK(count == 253 + 2);
}

static void special_files_keep_their_type(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX, .sun_path = "sock" };
	CHECK(mkfifo("fifo", 0600) == 0);
	CHECK(S_ISFIFO(st_of("fifo").st_mode));
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(s, (struct sockaddr *)&sun, sizeof(sun)) == 0);
	CHECK(S_ISSOCK(st_of("sock").st_mode));
	CHECK(mknod("chr", S_IFCHR | 0600, makedev(1, 3)) == 0);
	CHECK(mknod("blk", S_IFBLK | 0600, makedev(259, 300)) == 0);
	CHECK(S_ISCHR(st_of("chr").st_mode));
	CHECK(st_of("chr").st_rdev == makedev(1, 3));
	CHECK(S_ISBLK(st_of("blk").st_mode));
	CHECK(st_of("blk").st_rdev == makedev(259, 300));
	CHECK(mknod("reg", S_IFREG | 0640, 0) == 0);
	CHECK(S_ISREG(st_of("reg").st_mode));
}

static void device_nodes_work(void)
{
	char c = 1;
	CHECK(mknod("zero", S_IFCHR | 0600, makedev(1, 5)) == 0);
	int fd = open("zero", O_RDONLY);
	if (fd < 0 && errno == EACCES)
		posix_skip("mounted nodev");
	CHECK(fd >= 0 && read(fd, &c, 1) == 1 && c == 0);
}

static void symlinks(void)
{
	char target[4096], got[4200];
	memset(target, 't', sizeof(target));
	target[4095] = 0;
	CHECK(symlink("some/where", "l") == 0);
	CHECK(readlink("l", got, sizeof(got)) == 10);
	CHECK(memcmp(got, "some/where", 10) == 0);
	CHECK(st_of("l").st_size == 10);
	CHECK(symlink(target, "long") == 0 || errno == ENAMETOOLONG);
	CHECK_ERR(readlink(".", got, sizeof(got)), EINVAL);
	mk("f", "x");
	CHECK_ERR(readlink("f", got, sizeof(got)), EINVAL);
	CHECK(symlink("f", "lf") == 0 && holds("lf", "x"));
	CHECK_ERR(symlink("x", "l"), EEXIST);
}

static void hard_links_share_the_inode(void)
{
	mk("a", "one");
	CHECK(link("a", "b") == 0);
	CHECK(st_of("a").st_ino == st_of("b").st_ino);
	CHECK(st_of("a").st_nlink == 2);
	mk("b", "two");
	CHECK(holds("a", "two"));
	CHECK(unlink("a") == 0);
	CHECK(st_of("b").st_nlink == 1 && holds("b", "two"));
	CHECK(mkdir("d", 0755) == 0);
	CHECK_ERR(link("d", "e"), EPERM);
	CHECK_ERR(link("b", "b"), EEXIST);
	CHECK_ERR(link("no", "x"), ENOENT);
}

static void directories_count_their_links(void)
{
	CHECK(st_of(".").st_nlink == 2);
	CHECK(mkdir("d", 0755) == 0);
	CHECK(st_of("d").st_nlink == 2);
	CHECK(st_of(".").st_nlink == 3);
	CHECK(mkdir("d/e", 0755) == 0 && st_of("d").st_nlink == 3);
	CHECK(mkdir("x", 0755) == 0 && rename("d/e", "x/e") == 0);
	CHECK(st_of("d").st_nlink == 2 && st_of("x").st_nlink == 3);
	CHECK(st_of("x/e/..").st_ino == st_of("x").st_ino);
	CHECK(rmdir("x/e") == 0 && st_of("x").st_nlink == 2);
}

static void rmdir_only_of_empty(void)
{
	CHECK(mkdir("d", 0755) == 0);
	mk("d/f", "x");
	CHECK_ERR(rmdir("d"), ENOTEMPTY);
	CHECK_ERR(unlink("d"), EISDIR);
	CHECK_ERR(rmdir("d/f"), ENOTDIR);
	CHECK(unlink("d/f") == 0);
	CHECK_ERR(rmdir("d/."), EINVAL);
	CHECK(rmdir("d") == 0);
	CHECK_ERR(rmdir("d"), ENOENT);
}

static void rename_replaces(void)
{
	mk("a", "new");
	mk("b", "old");
	ino_t ino = st_of("a").st_ino;
	CHECK(rename("a", "b") == 0);
	CHECK(holds("b", "new") && st_of("b").st_ino == ino);
	CHECK_ERR(lstat("a", &(struct stat){ 0 }), ENOENT);
	CHECK(mkdir("d", 0755) == 0 && mkdir("e", 0755) == 0);
	CHECK_ERR(rename("b", "d"), EISDIR);
	CHECK_ERR(rename("d", "b"), ENOTDIR);
	CHECK(rename("d", "e") == 0);
	mk("e/f", "x");
	CHECK(mkdir("d", 0755) == 0);
	errno = 0;
	CHECK(rename("d", "e") == -1 &&
	      (errno == ENOTEMPTY || errno == EEXIST));
	CHECK(rename("e", "d") == 0 && holds("d/f", "x"));
	CHECK_ERR(rename("d", "d/sub"), EINVAL);
}

static void rename_to_own_link_is_nothing(void)
{
	mk("a", "x");
	CHECK(link("a", "b") == 0);
	CHECK(rename("a", "b") == 0);
	CHECK(st_of("a").st_nlink == 2 && st_of("b").st_nlink == 2);
	CHECK(rename("a", "a") == 0 && holds("a", "x"));
}

static void rename_flags(void)
{
	mk("a", "A");
	mk("b", "B");
	CHECK_ERR(rename2("a", "b", RENAME_NOREPLACE), EEXIST);
	CHECK(rename2("a", "b", RENAME_EXCHANGE) == 0);
	CHECK(holds("a", "B") && holds("b", "A"));
	CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
	CHECK(rename2("a", "d/e", RENAME_EXCHANGE) == 0);
	CHECK(holds("d/e", "B") && S_ISDIR(st_of("a").st_mode));
	CHECK(st_of("d").st_nlink == 2);
	CHECK(st_of("a/..").st_ino == st_of(".").st_ino);
	CHECK_ERR(rename2("a", "none", RENAME_EXCHANGE), ENOENT);
	CHECK(rename2("b", "c", RENAME_NOREPLACE) == 0 && holds("c", "A"));
	mk("d/x", "");
	CHECK_ERR(rename2("d", "d/x", RENAME_EXCHANGE), EINVAL);
}

static bool is_whiteout(const char *name)
{
	struct stat st = st_of(name);
	return (st.st_mode & (S_IFMT | 07777)) == S_IFCHR &&
	       st.st_rdev == makedev(0, 0) && st.st_nlink == 1 &&
	       st.st_uid == geteuid();
}

static void rename_whiteout(void)
{
	mk("a", "A");
	mk("b", "B");
	ino_t a = st_of("a").st_ino;
	CHECK_ERR(rename2("a", "b", RENAME_WHITEOUT | RENAME_EXCHANGE),
		  EINVAL);
	CHECK_ERR(rename2("a", "b", RENAME_WHITEOUT | RENAME_NOREPLACE),
		  EEXIST);
	CHECK(holds("a", "A") && holds("b", "B"));
	CHECK(rename2("a", "b", RENAME_WHITEOUT) == 0);
	CHECK(holds("b", "A") && st_of("b").st_ino == a && is_whiteout("a"));
	CHECK_ERR(open("a", O_RDONLY), ENXIO);
	CHECK_ERR(open("a", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST);
	CHECK(rename2("b", "c", RENAME_WHITEOUT | RENAME_NOREPLACE) == 0);
	CHECK(holds("c", "A") && is_whiteout("b"));
	CHECK(mkdir("d", 0755) == 0 && mkdir("e", 0755) == 0);
	CHECK(chown("e", 0, 77) == 0 && chmod("e", 02755) == 0);
	CHECK(mkdir("e/f", 0755) == 0);
	CHECK(rename2("e/f", "d/f", RENAME_WHITEOUT) == 0);
	CHECK(is_whiteout("e/f") && st_of("e/f").st_gid == 77);
	CHECK(st_of("e").st_nlink == 2 && st_of("d").st_nlink == 3);
	CHECK(rename2("a", "e/f", RENAME_WHITEOUT) == 0 && is_whiteout("a"));
	CHECK_ERR(rmdir("e"), ENOTEMPTY);
	CHECK(unlink("e/f") == 0 && rmdir("e") == 0 && unlink("a") == 0);
	CHECK_ERR(rename2("none", "x", RENAME_WHITEOUT), ENOENT);
	CHECK(link("c", "l") == 0);
	CHECK(rename2("c", "l", RENAME_WHITEOUT) == 0 && holds("c", "A"));
	CHECK(rename2("l", "m", RENAME_WHITEOUT) == 0 && is_whiteout("l"));
	CHECK(st_of("l").st_ino != st_of("b").st_ino);
}

static void unlinked_stays_usable(void)
{
	char buf[8] = { 0 };
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
	CHECK(unlink("f") == 0);
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 5);
	CHECK(pread(fd, buf, 5, 0) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(write(fd, " more", 5) == 5);
	CHECK(fsync(fd) == 0);
	CHECK(pread(fd, buf, 5, 5) == 5 && memcmp(buf, " more", 5) == 0);
	mk("f", "another");
	CHECK(pread(fd, buf, 5, 0) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(close(fd) == 0 && holds("f", "another"));
}

static void replaced_stays_readable(void)
{
	char buf[4] = { 0 };
	mk("f", "old");
	int fd = open("f", O_RDONLY);
	mk("g", "new");
	CHECK(rename("g", "f") == 0);
	CHECK(read(fd, buf, 3) == 3 && memcmp(buf, "old", 3) == 0);
	CHECK(holds("f", "new"));
}

static void removed_directory_is_empty(void)
{
	CHECK(mkdir("d", 0755) == 0);
	int fd = open("d", O_RDONLY | O_DIRECTORY);
	CHECK(rmdir("d") == 0);
	CHECK_ERR(openat(fd, "x", O_CREAT | O_WRONLY, 0644), ENOENT);
	CHECK_ERR(mkdirat(fd, "x", 0755), ENOENT);
}

static void tmpfile_has_no_name_until_linked(void)
{
	char path[64];
	int fd = open(".", O_TMPFILE | O_RDWR, 06640);
	CHECK(fd >= 0);
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK((st.st_mode & 07777) == 06640);
	CHECK(write(fd, "tmp", 3) == 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) ==
	      0);
	CHECK(holds("named", "tmp") && st_of("named").st_nlink == 1);
	fd = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	CHECK(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_ERR(linkat(AT_FDCWD, path, AT_FDCWD, "x", AT_SYMLINK_FOLLOW),
		  ENOENT);
}

static void listing_is_complete_and_seekable(void)
{
	char name[256];
	enum { COUNT = 3000 };
	static bool seen[COUNT];
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "file-%d", i);
		mk(name, "");
	}
	DIR *d = opendir(".");
	CHECK(d);
	int count = 0;
	long pos = 0;
	struct dirent *e;
	while ((e = readdir(d))) {
		int i;
		if (sscanf(e->d_name, "file-%d", &i) == 1) {
			CHECK(!seen[i]);
			seen[i] = true;
			count++;
			CHECK(e->d_ino == st_of(e->d_name).st_ino);
			CHECK(e->d_type == DT_REG || e->d_type == DT_UNKNOWN);
		}
		if (count == 1500 && !pos) {
			pos = telldir(d);
			e = readdir(d);
			CHECK(e);
			snprintf(name, sizeof(name), "%s", e->d_name);
			seekdir(d, pos);
		}
	}
	CHECK(count == COUNT);
	seekdir(d, pos);
	e = readdir(d);
	CHECK(e && strcmp(e->d_name, name) == 0);
	rewinddir(d);
	for (count = 0; readdir(d);)
		count++;
	CHECK(count == COUNT + 2);
}

static void removing_while_listing_skips_nothing(void)
{
	char name[32];
	enum { COUNT = 2000 };
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		mk(name, "");
	}
	DIR *d = opendir(".");
	struct dirent *e;
	int removed = 0;
	while ((e = readdir(d)))
		if (e->d_name[0] == 'f') {
			CHECK(unlink(e->d_name) == 0);
			removed++;
		}
	CHECK(removed == COUNT);
	closedir(d);
	CHECK(chdir("..") == 0);
}

static void fsync_of_directories(void)
{
	CHECK(mkdir("d", 0755) == 0);
	mk("d/f", "x");
	int fd = open("d", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && fsync(fd) == 0 && fdatasync(fd) == 0);
	CHECK(rename("d/f", "d/g") == 0 && fsync(fd) == 0);
	CHECK(close(fd) == 0);
}

static void loops_and_long_paths(void)
{
	char path[5000];
	CHECK(symlink("l2", "l1") == 0 && symlink("l1", "l2") == 0);
	CHECK_ERR(open("l1", O_RDONLY), ELOOP);
	CHECK_ERR(open("l1", O_RDONLY | O_NOFOLLOW), ELOOP);
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	for (size_t i = 100; i < sizeof(path) - 1; i += 100)
		path[i] = '/';
	CHECK_ERR(open(path, O_RDONLY), ENAMETOOLONG);
	mk("file", "x");
	CHECK_ERR(open("file/x", O_RDONLY), ENOTDIR);
	CHECK_ERR(open("file", O_RDONLY | O_DIRECTORY), ENOTDIR);
	CHECK_ERR(open(".", O_WRONLY), EISDIR);
}

static void deep_trees(void)
{
	for (int i = 0; i < 200; i++) {
		CHECK(mkdir("deep", 0755) == 0);
		CHECK(chdir("deep") == 0);
	}
	mk("bottom", "here");
	CHECK(holds("bottom", "here"));
	char cwd[8192];
	CHECK(getcwd(cwd, sizeof(cwd)) != NULL);
}

static void handles_open_after_forget(void)
{
	struct {
		struct file_handle h;
		unsigned char bytes[128];
	} fh = { .h.handle_bytes = 128 };
	int mount_id;
	mk("f", "by handle");
	CHECK(mkdir("d", 0755) == 0);
	CHECK(name_to_handle_at(AT_FDCWD, "f", &fh.h, &mount_id, 0) == 0);
	int dirfd = open(".", O_RDONLY | O_DIRECTORY);
	int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
	CHECK(drop >= 0 && write(drop, "2", 1) == 1);
	int fd = open_by_handle_at(dirfd, &fh.h, O_RDONLY);
	char buf[16] = { 0 };
	CHECK(fd >= 0 && read(fd, buf, 15) == 9 && !strcmp(buf, "by handle"));
	close(fd);
	CHECK(unlink("f") == 0);
	CHECK(write(drop, "2", 1) == 1);
	CHECK_ERR(open_by_handle_at(dirfd, &fh.h, O_RDONLY), ESTALE);
}

/* Longer than a file system may take to notice that it can free something. */
static void nap(void)
{
	usleep(300000);
}

static void removed_cwd_has_attributes(void)
{
	struct stat st;
	CHECK(mkdir("d", 0755) == 0 && chdir("d") == 0);
	CHECK(rmdir("../d") == 0);
	nap();
	CHECK(stat(".", &st) == 0 && S_ISDIR(st.st_mode) && st.st_nlink == 0);
	int fd = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK_ERR(open("new", O_CREAT | O_WRONLY, 0644), ENOENT);
	CHECK_ERR(stat("new", &st), ENOENT);
	CHECK(close(fd) == 0);
	nap();
	CHECK(stat(".", &st) == 0 && chdir("..") == 0);
	CHECK_ERR(stat("d", &st), ENOENT);
}

static void opath_keeps_an_unlinked_file(void)
{
	struct stat st;
	char path[32], buf[16] = { 0 };
	mk("f", "still here");
	mk("other", "x");
	int fd = open("f", O_PATH), fd2 = open("other", O_PATH);
	CHECK(fd >= 0 && fd2 >= 0 && unlink("f") == 0);
	mk("f2", "y");
	CHECK(rename("f2", "other") == 0);
	nap();
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 10);
	CHECK(fstat(fd2, &st) == 0 && st.st_nlink == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, O_RDWR);
	CHECK(again >= 0 && read(again, buf, 15) == 10);
	CHECK(strcmp(buf, "still here") == 0);
	CHECK(write(again, "!", 1) == 1 && fsync(again) == 0);
	CHECK(close(again) == 0);
	nap();
	CHECK(fstat(fd, &st) == 0 && st.st_size == 11);
}

const struct posix_case posix_names[] = {
	{ "O_EXCL refuses an existing name", excl_refuses_existing, false },
	{ "a missing name is ENOENT, also after it was looked up",
	  missing_is_enoent, false },
	{ "names of 255 bytes work, 256 is ENAMETOOLONG", names_of_255_bytes,
	  false },
	{ "a name may hold every byte but slash", every_byte_in_a_name, false },
	{ "FIFOs, sockets and devices keep type and number",
	  special_files_keep_their_type, true },
	{ "a device node opens its device", device_nodes_work, true },
	{ "symbolic links keep their target", symlinks, false },
	{ "hard links share one inode", hard_links_share_the_inode, false },
	{ "a directory counts its subdirectories as links",
	  directories_count_their_links, false },
	{ "only empty directories can be removed", rmdir_only_of_empty, false },
	{ "rename replaces its target atomically and checks types",
	  rename_replaces, false },
	{ "rename of one link onto another does nothing",
	  rename_to_own_link_is_nothing, false },
	{ "RENAME_NOREPLACE and RENAME_EXCHANGE", rename_flags, false },
	{ "RENAME_WHITEOUT leaves a device 0/0", rename_whiteout, true },
	{ "a removed working directory still has attributes",
	  removed_cwd_has_attributes, false },
	{ "O_PATH keeps an unlinked file", opath_keeps_an_unlinked_file,
	  false },
	{ "an unlinked open file stays readable and writable",
	  unlinked_stays_usable, false },
	{ "a replaced open file keeps its old content",
	  replaced_stays_readable, false },
	{ "nothing can be made in a removed directory",
	  removed_directory_is_empty, false },
	{ "O_TMPFILE has no name, keeps its mode and can be linked",
	  tmpfile_has_no_name_until_linked, false },
	{ "a listing has every name once and can be sought in",
	  listing_is_complete_and_seekable, false },
	{ "removing while listing skips no name",
	  removing_while_listing_skips_nothing, false },
	{ "fsync of a directory succeeds", fsync_of_directories, false },
	{ "loops, non-directories and long paths give their errors",
	  loops_and_long_paths, false },
	{ "trees of 200 levels", deep_trees, false },
	{ "a file handle opens its file after the caches were dropped",
	  handles_open_after_forget, true },
	{ NULL, NULL, false }
};
