/* Facts about attributes that a kernel may keep while the file system changes
 * them: what one process did, the next one sees, whatever it asks for.
 */
#include "posix.h"

#include <sys/statvfs.h>
#include <time.h>

#define USER 12345u

/* As stat -c %a does: the mode alone. */
static mode_t mode_alone(const char *name)
{
	struct statx stx;
	CHECK(statx(AT_FDCWD, name, 0, STATX_MODE, &stx) == 0);
	return stx.stx_mode & 07777;
}

static void by_write(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
}

static void by_fallocate(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && fallocate(fd, 0, 0, 65536) == 0 && close(fd) == 0);
}

static void by_punch(void)
{
	int fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, 0, 1) == 0);
	CHECK(close(fd) == 0);
}

static void by_truncate(void)
{
	CHECK(truncate("f", 1) == 0);
}

static void by_open_trunc(void)
{
	int fd = open("f", O_WRONLY | O_TRUNC);
	CHECK(fd >= 0 && close(fd) == 0);
}

static void by_direct_write(void)
{
	void *p;
	CHECK(posix_memalign(&p, 4096, 4096) == 0);
	memset(p, 'd', 4096);
	int fd = open("f", O_WRONLY | O_DIRECT);
	if (fd < 0 && errno == EINVAL)
		posix_skip("no O_DIRECT");
	CHECK(fd >= 0 && write(fd, p, 4096) == 4096 && close(fd) == 0);
	free(p);
}

static void (*const changes[])(void) = { by_write, by_fallocate, by_punch,
					 by_truncate, by_open_trunc,
					 by_direct_write };

/* @was becomes @is by each change, made by a user who is not the owner. */
static void set_id_goes(mode_t was, mode_t is, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		mk("f", "xxxx");
		CHECK(chmod("f", was) == 0 && mode_alone("f") == was);
		as_user(USER, changes[i]);
		CHECK(mode_alone("f") == is);
		CHECK(unlink("f") == 0);
	}
}

static void set_id_is_seen_to_go(void)
{
	set_id_goes(06777, 0777, sizeof(changes) / sizeof(*changes));
}

static void set_gid_goes_outside_the_group(void)
{
	set_id_goes(06766, 0766, 4);
	set_id_goes(02666, 0666, 4);
}

static void root_truncates_and_keeps(void)
{
	mk("f", "xxxx");
	CHECK(chmod("f", 06777) == 0);
	by_open_trunc();
	CHECK(mode_alone("f") == 06777);
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}

static void read_all(const char *name, int flags)
{
	char buf[16];
	int fd = open(name, O_RDONLY | flags);
	CHECK(fd >= 0 && read(fd, buf, sizeof(buf)) >= 0 && close(fd) == 0);
}

static int64_t atime_of(const char *name)
{
	struct statx stx;
	CHECK(statx(AT_FDCWD, name, 0, STATX_ATIME, &stx) == 0);
	return stx.stx_atime.tv_sec * 1000000000 + stx.stx_atime.tv_nsec;
}

static void reading_moves_the_atime(void)
{
	struct statvfs s;
	CHECK(statvfs(".", &s) == 0);
	if (s.f_flag & ST_NOATIME)
		posix_skip("mounted noatime");
	mk("f", "content");
	int64_t a = atime_of("f");
	nap();
	read_all("f", O_NOATIME);
	CHECK(atime_of("f") == a);
	read_all("f", 0); /* out of the kernel's cache, as it may be */
	int64_t b = atime_of("f");
	CHECK(b > a);
	nap();
	mk("f", "new content");
	nap();
	read_all("f", 0);
	CHECK(atime_of("f") > b);
}

static int64_t blocks_of(const char *name)
{
	struct statx stx;
	CHECK(statx(AT_FDCWD, name, 0, STATX_BLOCKS, &stx) == 0);
	return (int64_t)stx.stx_blocks;
}

/* An estimate becomes true by itself. */
static bool come_to_have_blocks(const char *name, int64_t blocks)
{
	for (int i = 0; i < 500 && blocks_of(name) != blocks; i++)
		nap();
	return blocks_of(name) == blocks;
}

static void unsynced_bytes_have_blocks(void)
{
	static char buf[65536];
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(pwrite(fd, buf, 4096, 1 << 20) == 4096);
	CHECK(close(fd) == 0);
	/* neither a hole nor full */
	CHECK(blocks_of("f") >= 136 && blocks_of("f") < 1000);
	fd = open("f", O_RDWR);
	CHECK(pwrite(fd, buf, 4096, 0) == 4096 && close(fd) == 0);
	CHECK(blocks_of("f") >= 136);
	CHECK(come_to_have_blocks("f", 136));
}

static void rewritten_bytes_keep_their_blocks(void)
{
	static char buf[65536];
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(ftruncate(fd, 1 << 20) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf));
		(void)blocks_of("f");
		CHECK(fsync(fd) == 0);
		CHECK(come_to_have_blocks("f", 128));
	}
	CHECK(close(fd) == 0);
}

static void what_a_truncation_leaves_has_blocks(void)
{
	static char buf[65536];
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	CHECK(write(fd, buf, sizeof(buf)) == sizeof(buf));
	CHECK(close(fd) == 0 && truncate("f", 8192) == 0);
	CHECK(blocks_of("f") == 16);
}

const struct posix_case posix_cached[] = {
	{ "who is not the owner takes set-id bits away, for all to see",
	  set_id_is_seen_to_go, true },
	{ "set-gid goes with a change from outside the group",
	  set_gid_goes_outside_the_group, true },
	{ "root keeps set-id bits when it opens with O_TRUNC",
	  root_truncates_and_keeps, true },
	{ "reading a file moves its atime, O_NOATIME does not",
	  reading_moves_the_atime, false },
	{ "bytes that are not synced have blocks",
	  unsynced_bytes_have_blocks, false },
	{ "bytes that are written again keep their blocks",
	  rewritten_bytes_keep_their_blocks, false },
	{ "what a truncation leaves has blocks before it is synced",
	  what_a_truncation_leaves_has_blocks, false },
	{ NULL, NULL, false }
};
