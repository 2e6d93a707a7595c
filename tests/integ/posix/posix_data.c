/* Facts about content: holes, sizes, mmap, direct I/O, append. */
#include "posix.h"

#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define MIB (1u << 20)

static int rw(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0644);
	CHECK(fd >= 0);
	return fd;
}

static void holes_read_as_zeros(void)
{
	char buf[10];
	int fd = rw("f");
	CHECK(pwrite(fd, "end", 3, 5 * MIB + 17) == 3);
	CHECK(st_of("f").st_size == 5 * MIB + 20);
	memset(buf, 1, sizeof(buf));
	CHECK(pread(fd, buf, 10, 3 * MIB) == 10);
	for (int i = 0; i < 10; i++)
		CHECK(buf[i] == 0);
	CHECK(fsync(fd) == 0);
	CHECK(st_of("f").st_blocks * 512 <= 2 * MIB);
}

static void sparse_to_the_last_byte(void)
{
	char c = 0;
	int fd = rw("f");
	off_t far = (off_t)1 << 43; /* what ext4 can */
	CHECK(pwrite(fd, "x", 1, far) == 1);
	CHECK(st_of("f").st_size == far + 1);
	CHECK(fsync(fd) == 0);
	CHECK(pread(fd, &c, 1, far) == 1 && c == 'x');
	CHECK(pread(fd, &c, 1, far - 1) == 1 && c == 0);
	CHECK(pread(fd, &c, 1, far + 1) == 0);
}

static void truncated_bytes_do_not_come_back(void)
{
	unsigned char buf[8192];
	int fd = rw("f");
	memset(buf, 'x', sizeof(buf));
	CHECK(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(fsync(fd) == 0);
	CHECK(ftruncate(fd, 100) == 0 && st_of("f").st_size == 100);
	CHECK(ftruncate(fd, 8192) == 0 && st_of("f").st_size == 8192);
	CHECK(pread(fd, buf, sizeof(buf), 0) == sizeof(buf));
	for (int i = 0; i < 8192; i++)
		CHECK(buf[i] == (i < 100 ? 'x' : 0));
	CHECK(pwrite(fd, "y", 1, 5000) == 1 && fsync(fd) == 0);
	CHECK(ftruncate(fd, 0) == 0 && pread(fd, buf, 1, 0) == 0);
	CHECK_ERR(ftruncate(fd, -1), EINVAL);
}

static void mixed_sizes_read_back(void)
{
	static unsigned char want[4 * MIB], got[4 * MIB];
	int fd = rw("f");
	uint64_t x = 12345;
	for (int i = 0; i < 400; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		size_t off = (size_t)(x >> 20) % (4 * MIB - 70000);
		size_t len = 1 + (size_t)(x >> 44) % 66000;
		if (i % 7 == 0)
			len = 1 + len % 5;
		for (size_t k = 0; k < len; k++)
			want[off + k] = (unsigned char)((size_t)i + k);
		CHECK(pwrite(fd, want + off, len, (off_t)off) ==
		      (ssize_t)len);
		if (i % 50 == 0)
			CHECK(fdatasync(fd) == 0);
	}
	off_t size = st_of("f").st_size;
	CHECK(close(fd) == 0);
	int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
	if (drop >= 0)
		CHECK(write(drop, "3", 1) == 1);
	fd = rw("f");
	CHECK(pread(fd, got, sizeof(got), 0) == size);
	CHECK(memcmp(want, got, (size_t)size) == 0);
}

static void punch_and_zero(void)
{
	static unsigned char buf[3 * MIB];
	int fd = rw("f");
	memset(buf, 'p', sizeof(buf));
	CHECK(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf) && !fsync(fd));
	blkcnt_t full = st_of("f").st_blocks;
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4000,
			2 * MIB) == 0);
	CHECK(st_of("f").st_size == 3 * MIB);
	CHECK(fsync(fd) == 0 && st_of("f").st_blocks < full);
	CHECK(pread(fd, buf, sizeof(buf), 0) == sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i += i % 4096 ? 1 : 3)
		CHECK(buf[i] == (i < 4000 || i >= 4000 + 2 * MIB ? 'p' : 0));
	if (fallocate(fd, FALLOC_FL_ZERO_RANGE, 10, 100) == 0) {
		CHECK(pread(fd, buf, 200, 0) == 200);
		CHECK(buf[9] == 'p' && buf[10] == 0 && buf[109] == 0 &&
		      buf[110] == 'p');
	} else {
		CHECK(errno == EOPNOTSUPP);
	}
	CHECK_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10), EOPNOTSUPP);
}

static void fallocate_allocates(void)
{
	char buf[100];
	int fd = rw("f");
	CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB) == 0);
	CHECK(st_of("f").st_size == 0);
	CHECK(st_of("f").st_blocks * 512 >= MIB);
	CHECK(fallocate(fd, 0, 0, 2 * MIB) == 0);
	CHECK(st_of("f").st_size == 2 * MIB);
	CHECK(st_of("f").st_blocks * 512 >= 2 * MIB);
	CHECK(pread(fd, buf, 100, MIB - 50) == 100);
	for (int i = 0; i < 100; i++)
		CHECK(buf[i] == 0);
	CHECK(pwrite(fd, "x", 1, 70000) == 1 && fsync(fd) == 0);
	CHECK(pread(fd, buf, 3, 69999) == 3 && !buf[0] && buf[1] == 'x' &&
	      !buf[2]);
	CHECK_ERR(fallocate(fd, 0, 0, 0), EINVAL);
	CHECK_ERR(fallocate(fd, 0, -1, 10), EINVAL);
	/* More than there is: it takes nothing first. */
	const off_t all[] = { (off_t)1 << 50, INT64_MAX };
	for (int i = 0; i < 2; i++) {
		CHECK(fallocate(fd, 0, 0, all[i]) == -1);
		CHECK(errno == ENOSPC || errno == EFBIG);
	}
	CHECK(st_of("f").st_size == 2 * MIB);
	CHECK(st_of("f").st_blocks * 512 < 3 * MIB);
}

static void seek_finds_data_and_holes(void)
{
	static char buf[65536];
	int fd = rw("f");
	memset(buf, 'd', sizeof(buf));
	CHECK(pwrite(fd, buf, sizeof(buf), 2 * MIB) == sizeof(buf));
	CHECK(ftruncate(fd, 4 * MIB) == 0);
	CHECK(lseek(fd, 0, SEEK_DATA) == 2 * MIB);
	CHECK(lseek(fd, 0, SEEK_HOLE) == 0);
	CHECK(lseek(fd, 2 * MIB, SEEK_HOLE) == 2 * MIB + 65536);
	CHECK(lseek(fd, 2 * MIB + 5, SEEK_DATA) == 2 * MIB + 5);
	CHECK_ERR(lseek(fd, 3 * MIB, SEEK_DATA), ENXIO);
	CHECK_ERR(lseek(fd, 4 * MIB, SEEK_HOLE), ENXIO);
	CHECK_ERR(lseek(fd, -1, SEEK_DATA), ENXIO);
	CHECK(fsync(fd) == 0);
	CHECK(lseek(fd, 0, SEEK_DATA) == 2 * MIB);
	CHECK(lseek(fd, 2 * MIB, SEEK_HOLE) == 2 * MIB + 65536);
}

static void copy_range_copies(void)
{
	static unsigned char buf[2 * MIB + 5], got[2 * MIB + 5];
	pattern(buf, sizeof(buf), 0);
	int a = rw("a"), b = rw("b");
	CHECK(write(a, buf, sizeof(buf)) == sizeof(buf));
	loff_t from = 3, to = 7;
	size_t left = sizeof(buf) - 3;
	while (left) {
		ssize_t n = copy_file_range(a, &from, b, &to, left, 0);
		CHECK(n > 0);
		left -= (size_t)n;
	}
	CHECK(pread(b, got, sizeof(got), 7) == (ssize_t)sizeof(buf) - 3);
	CHECK(memcmp(got, buf + 3, sizeof(buf) - 3) == 0);
}

/* Over bytes that are cached and dirty; and what it refuses. */
static void copy_range_moves_within_a_file(void)
{
	static unsigned char buf[100000], got[100000];
	loff_t from = 100, to = 50001;
	int fd = rw("f"), app;
	pattern(buf, sizeof(buf), 0);
	CHECK(write(fd, buf, sizeof(buf)) == sizeof(buf));
	CHECK(pread(fd, got, sizeof(got), 0) == sizeof(got));
	CHECK(copy_file_range(fd, &from, fd, &to, 40000, 0) == 40000);
	CHECK(from == 40100 && to == 90001);
	memcpy(buf + 50001, buf + 100, 40000);
	CHECK(pread(fd, got, sizeof(got), 0) == sizeof(got));
	CHECK(memcmp(got, buf, sizeof(buf)) == 0);
	/* Up to the end, and beyond it. */
	from = 99990;
	to = 200000;
	CHECK(copy_file_range(fd, &from, fd, &to, 5000, 0) == 10);
	CHECK(copy_file_range(fd, &from, fd, &to, 5000, 0) > 0);
	CHECK(st_of("f").st_size > 200010);
	from = to = 1000000;
	CHECK(copy_file_range(fd, &from, fd, &to, 10, 0) == 0);
	from = 0;
	to = 10;
	CHECK_ERR(copy_file_range(fd, &from, fd, &to, 100, 0), EINVAL);
	app = open("f", O_WRONLY | O_APPEND);
	CHECK(app >= 0);
	to = 300000;
	CHECK_ERR(copy_file_range(fd, &from, app, &to, 100, 0), EBADF);
	CHECK(fsync(fd) == 0);
}

struct appender {
	pthread_t t;
	int id;
};

static void *append_run(void *arg)
{
	struct appender *a = arg;
	char line[16];
	int fd = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
	CHECK(fd >= 0);
	memset(line, 'a' + a->id, sizeof(line));
	for (int i = 0; i < 500; i++)
		CHECK(write(fd, line, sizeof(line)) == sizeof(line));
	close(fd);
	return NULL;
}

static void appends_never_overwrite(void)
{
	struct appender a[4];
	static char buf[4 * 500 * 16];
	int count[4] = { 0 };
	for (int i = 0; i < 4; i++) {
		a[i].id = i;
		CHECK(pthread_create(&a[i].t, NULL, append_run, &a[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(a[i].t, NULL);
	int fd = open("log", O_RDONLY);
	CHECK(st_of("log").st_size == sizeof(buf));
	CHECK(read(fd, buf, sizeof(buf)) == sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i += 16) {
		for (size_t k = 1; k < 16; k++)
			CHECK(buf[i + k] == buf[i]);
		count[buf[i] - 'a']++;
	}
	for (int i = 0; i < 4; i++)
		CHECK(count[i] == 500);
}

static void shared_mapping_is_the_file(void)
{
	int fd = rw("f");
	CHECK(ftruncate(fd, 65536) == 0);
	char *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m != MAP_FAILED);
	memcpy(m + 5000, "mapped", 6);
	CHECK(msync(m, 65536, MS_SYNC) == 0);
	char buf[8] = { 0 };
	CHECK(pread(fd, buf, 6, 5000) == 6 && !memcmp(buf, "mapped", 6));
	CHECK(pwrite(fd, "written", 7, 30000) == 7);
	CHECK(memcmp(m + 30000, "written", 7) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		m[100] = 'c'; /* another process, the same page */
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(m[100] == 'c' && pread(fd, buf, 1, 100) == 1 && buf[0] == 'c');
	CHECK(munmap(m, 65536) == 0 && close(fd) == 0);
	fd = rw("f");
	CHECK(pread(fd, buf, 6, 5000) == 6 && !memcmp(buf, "mapped", 6));
}

static void private_mapping_leaves_the_file(void)
{
	mk("f", "original");
	int fd = rw("f");
	char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(m != MAP_FAILED && memcmp(m, "original", 8) == 0);
	m[0] = 'X';
	CHECK(munmap(m, 4096) == 0 && holds("f", "original"));
}

static void direct_and_mapped_agree(void)
{
	void *p;
	char c = 0;
	CHECK(posix_memalign(&p, 4096, 8192) == 0);
	memset(p, 'd', 8192);
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644);
	if (fd < 0 && errno == EINVAL)
		posix_skip("no O_DIRECT");
	CHECK(fd >= 0 && pwrite(fd, p, 8192, 0) == 8192);
	int fd2 = rw("f");
	char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd2, 0);
	CHECK(m != MAP_FAILED && m[0] == 'd' && m[8191] == 'd');
	memset(p, 'e', 8192);
	CHECK(pwrite(fd, p, 4096, 4096) == 4096);
	CHECK(m[4096] == 'e' && m[0] == 'd');
	m[0] = 'm';
	CHECK(msync(m, 8192, MS_SYNC) == 0);
	CHECK(pread(fd, p, 4096, 0) == 4096 && *(char *)p == 'm');
	CHECK(pwrite(fd2, "b", 1, 1) == 1);
	CHECK(pread(fd, p, 4096, 0) == 4096 && ((char *)p)[1] == 'b');
	CHECK(pread(fd2, &c, 1, 4096) == 1 && c == 'e');
	/* The handle itself can be mapped, too. */
	char *direct = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
	CHECK(direct != MAP_FAILED && direct[1] == 'b');
	direct[2] = 'x';
	CHECK(msync(direct, 8192, MS_SYNC) == 0 && m[2] == 'x');
	CHECK(pread(fd, p, 4096, 0) == 4096 && ((char *)p)[2] == 'x');
}

static void sync_flags_work(void)
{
	int fd = open("f", O_WRONLY | O_CREAT | O_SYNC, 0644);
	CHECK(fd >= 0 && write(fd, "sync", 4) == 4 && close(fd) == 0);
	fd = open("f", O_WRONLY | O_DSYNC | O_APPEND);
	CHECK(fd >= 0 && write(fd, "ed", 2) == 2 && close(fd) == 0);
	CHECK(holds("f", "synced"));
	fd = rw("f");
	CHECK(sync_file_range(fd, 0, 4, SYNC_FILE_RANGE_WRITE) == 0);
	struct iovec v[2] = { { (void *)(uintptr_t)"ab", 2 },
			      { (void *)(uintptr_t)"cd", 2 } };
	CHECK(pwritev2(fd, v, 2, 0, RWF_DSYNC) == 4 && holds("f", "abcded"));
}

static void limits_are_errors(void)
{
	int fd = rw("f");
	CHECK_ERR(pwrite(fd, "x", 1, -1), EINVAL);
	CHECK_ERR(pread(fd, &(char){ 0 }, 1, -1), EINVAL);
	CHECK(write(fd, "x", 0) == 0 && st_of("f").st_size == 0);
	CHECK_ERR(pwrite(fd, "x", 1, INT64_MAX), EINVAL);
	int ro = open("f", O_RDONLY);
	CHECK_ERR(write(ro, "x", 1), EBADF);
	CHECK_ERR(ftruncate(ro, 1), EINVAL);
}

static void many_small_files(void)
{
	char name[32], text[32];
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		snprintf(text, sizeof(text), "text %d", i);
		mk(name, text);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		snprintf(text, sizeof(text), "text %d", i);
		CHECK(holds(name, text));
		CHECK(unlink(name) == 0);
	}
}

static void big_file_reads_back(void)
{
	static unsigned char buf[MIB], want[MIB];
	int fd = rw("f");
	for (unsigned i = 0; i < 40; i++) {
		pattern(buf, MIB, (uint64_t)i * MIB);
		CHECK(write(fd, buf, MIB) == MIB);
	}
	CHECK(fsync(fd) == 0 && close(fd) == 0);
	int drop = open("/proc/sys/vm/drop_caches", O_WRONLY);
	if (drop >= 0)
		CHECK(write(drop, "3", 1) == 1);
	fd = rw("f");
	for (unsigned i = 0; i < 40; i++) {
		pattern(want, MIB, (uint64_t)i * MIB);
		CHECK(read(fd, buf, MIB) == MIB && !memcmp(buf, want, MIB));
	}
	CHECK(read(fd, buf, 1) == 0);
	CHECK(st_of("f").st_blocks * 512 >= 40 * MIB);
}

static void direct_reads_see_the_whole_file(void)
{
	static char small[4096] = { 1 };
	void *buf;
	int fd = rw("f");
	int direct = open("f", O_RDONLY | O_DIRECT);
	if (direct < 0 && errno == EINVAL)
		posix_skip("no O_DIRECT");
	CHECK(direct >= 0 && posix_memalign(&buf, 4096, 65536) == 0);
	CHECK(pwrite(fd, small, sizeof(small), 0) == sizeof(small));
	CHECK(fsync(fd) == 0);
	/* a hole, before bytes that may be in the kernel only */
	CHECK(pwrite(fd, small, sizeof(small), MIB) == sizeof(small));
	CHECK(pread(direct, buf, 65536, 65536) == 65536);
	CHECK(pwrite(fd, small, 5, 2 * MIB) == 5);
	CHECK(pread(direct, buf, 65536, 2 * MIB - 32768) == 32768 + 5);
	CHECK(pread(direct, buf, 65536, 3 * MIB) == 0);
}

#define AIO_LEN (640 << 10)
#define AIO_PARTS 5

static void read_again_and_again(const char *name)
{
	static char buf[AIO_LEN];
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		int fd = open(name, O_RDONLY);
		CHECK(fd >= 0 && read(fd, buf, sizeof(buf)) >= 0);
		close(fd);
	}
}

static void aio_write(aio_context_t ctx, int fd, char *buf)
{
	const size_t part = AIO_LEN / AIO_PARTS;
	struct iocb cb[AIO_PARTS], *list[AIO_PARTS];
	struct io_event done[AIO_PARTS];
	memset(cb, 0, sizeof(cb));
	for (size_t i = 0; i < AIO_PARTS; i++) {
		list[i] = &cb[i];
		cb[i].aio_lio_opcode = IOCB_CMD_PWRITE;
		cb[i].aio_fildes = (uint32_t)fd;
		cb[i].aio_buf = (uintptr_t)(buf + i * part);
		cb[i].aio_nbytes = part;
		cb[i].aio_offset = (int64_t)(i * part);
	}
	CHECK(syscall(SYS_io_submit, ctx, AIO_PARTS, list) == AIO_PARTS);
	CHECK(syscall(SYS_io_getevents, ctx, AIO_PARTS, AIO_PARTS, done,
		      NULL) == AIO_PARTS);
	for (int i = 0; i < AIO_PARTS; i++)
		CHECK(done[i].res == (int64_t)part);
}

static void holds_only(const char *name, char c)
{
	static char buf[AIO_LEN];
	int fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && read(fd, buf, sizeof(buf)) == sizeof(buf));
	CHECK(close(fd) == 0);
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK(buf[i] == c);
}

static void direct_writes_are_read_by_others(void)
{
	aio_context_t ctx = 0;
	pid_t readers[2];
	void *buf;
	char c = 0;
	int fd = open("f", O_RDWR | O_CREAT | O_DIRECT, 0644);
	if (fd < 0 && errno == EINVAL)
		posix_skip("no O_DIRECT");
	CHECK(fd >= 0 && posix_memalign(&buf, 4096, AIO_LEN) == 0);
	memset(buf, 0, AIO_LEN);
	CHECK(pwrite(fd, buf, AIO_LEN, 0) == AIO_LEN);
	CHECK(syscall(SYS_io_setup, AIO_PARTS, &ctx) == 0);
	for (int i = 0; i < 2; i++) {
		readers[i] = fork();
		if (readers[i] == 0)
			read_again_and_again("f");
		CHECK(readers[i] > 0);
	}
	for (int i = 0; i < 600; i++) {
		memset(buf, ++c, AIO_LEN);
		aio_write(ctx, fd, buf);
		holds_only("f", c);
	}
	CHECK(close(fd) == 0);
	holds_only("f", c);
	for (int i = 0; i < 2; i++) {
		CHECK(kill(readers[i], SIGKILL) == 0);
		CHECK(waitpid(readers[i], NULL, 0) == readers[i]);
	}
}

const struct posix_case posix_data[] = {
	{ "holes read as zeros and take no space", holes_read_as_zeros, false },
	{ "a file may be sparse up to 8 TiB", sparse_to_the_last_byte, false },
	{ "truncated bytes do not come back",
	  truncated_bytes_do_not_come_back, false },
	{ "writes of mixed sizes read back after the caches were dropped",
	  mixed_sizes_read_back, false },
	{ "punch hole and zero range, to the byte", punch_and_zero, false },
	{ "fallocate allocates, with and without KEEP_SIZE",
	  fallocate_allocates, false },
	{ "SEEK_DATA and SEEK_HOLE", seek_finds_data_and_holes, false },
	{ "copy_file_range copies", copy_range_copies, false },
	{ "copy_file_range moves within a file",
	  copy_range_moves_within_a_file, false },
	{ "O_APPEND from several handles never overwrites",
	  appends_never_overwrite, false },
	{ "a shared mapping is the file", shared_mapping_is_the_file, false },
	{ "a private mapping leaves the file alone",
	  private_mapping_leaves_the_file, false },
	{ "direct I/O and a mapping of one file agree",
	  direct_and_mapped_agree, false },
	{ "direct reads of holes see that the file is longer",
	  direct_reads_see_the_whole_file, false },
	{ "direct writes that nobody waits for are what others read",
	  direct_writes_are_read_by_others, false },
	{ "O_SYNC, O_DSYNC, RWF_DSYNC", sync_flags_work, false },
	{ "bad offsets, empty writes, wrong modes", limits_are_errors, false },
	{ "a thousand small files", many_small_files, false },
	{ "40 MiB read back", big_file_reads_back, false },
	{ NULL, NULL, false }
};
