/* The same random operations on two directories; whatever a program can see
 * must agree: results, errno, contents, attributes, listings.
 *
 *	randops DIR_A DIR_B COUNT [SEED]
 *
 * $LOGS: directories become log directories of hailfs.
 * $OTHERS: where DIR_B is found on other mounts, with colons between: each
 *	operation goes to any of them; files stay open on the one where they
 *	were opened. Nothing is mapped then.
 *
 * Prints the seed; the first difference ends the run with status 1 and the
 * last operations.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define NAMES 24
#define DIRS 5
#define FDS 12
#define SIZE_MAX_FILE (6u << 20)
#define HISTORY 12

static uint64_t rng;
static int root[2], fds[2][FDS];
#define MOUNTS 8
static int mounts[MOUNTS], mount_count; /* of which root[1] is one */
static char history[HISTORY][200];
static unsigned long op_count;
static bool trace; /* $TRACE is set: every operation to stderr */

static uint64_t rnd(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng >> 11) % below;
}

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (trace) {
		va_list again;
		va_copy(again, ap);
		fprintf(stderr, "%lu: ", op_count);
		vfprintf(stderr, fmt, again);
		fputc('\n', stderr);
		va_end(again);
	}
	vsnprintf(history[op_count % HISTORY], sizeof(history[0]), fmt, ap);
	va_end(ap);
}

static void differ(const char *what, long a, long b)
{
	fprintf(stderr, "randops: %s differs: %ld (%s) and %ld (%s)\n", what,
		a, a < 0 ? strerror((int)-a) : "", b,
		b < 0 ? strerror((int)-b) : "");
	unsigned long first = op_count < HISTORY ? 0 : op_count - HISTORY + 1;
	for (unsigned long i = first;
	     i <= op_count; i++)
		fprintf(stderr, "  %lu: %s\n", i, history[i % HISTORY]);
	exit(1);
}

static long result(long r)
{
	return r == -1 ? -(long)errno : r;
}

static void same(const char *what, const long r[2])
{
	if (r[0] != r[1])
		differ(what, r[0], r[1]);
}

/* A path of up to two levels; the same set of names for everything. */
static void name_of(char *out, size_t size)
{
	uint64_t d = rnd(DIRS + 3);
	if (d < DIRS)
		snprintf(out, size, "d%d/n%d", (int)d, (int)rnd(NAMES));
	else if (d == DIRS)
		snprintf(out, size, "d%d", (int)rnd(DIRS));
	else
		snprintf(out, size, "n%d", (int)rnd(NAMES));
}

static int slot_open(void)
{
	int s = (int)rnd(FDS);
	return fds[0][s] < 0 ? -1 : s;
}

static uint64_t offset_of(void)
{
	switch (rnd(4)) {
	case 0:
		return rnd(200);
	case 1:
		return rnd(64) * 4096;
	case 2:
		return (rnd(5) << 20) + rnd(5); /* across a block border */
	default:
		return rnd(SIZE_MAX_FILE);
	}
}

static uint64_t length_of(void)
{
	switch (rnd(4)) {
	case 0:
		return 1 + rnd(100);
	case 1:
		return 4096;
	case 2:
		return 1 + rnd(20000);
	default:
		return 1 + rnd(300000);
	}
}

static void op_open(void)
{
	char n[64];
	long r[2];
	static const int extra[] = { 0, O_CREAT, O_CREAT | O_EXCL,
				     O_CREAT | O_TRUNC, O_TRUNC,
				     O_CREAT | O_APPEND };
	int s = (int)rnd(FDS), flags = O_RDWR | extra[rnd(6)];
	name_of(n, sizeof(n));
	note("open %s %#x slot %d", n, flags, s);
	for (int i = 0; i < 2; i++) {
		if (fds[i][s] >= 0)
			close(fds[i][s]);
		fds[i][s] = openat(root[i], n, flags | O_NOFOLLOW, 0644);
		r[i] = fds[i][s] < 0 ? -errno : 0;
	}
	same("open", r);
}

static void op_write(void)
{
	static unsigned char buf[300001];
	long r[2];
	int s = slot_open();
	uint64_t off = offset_of(), len = length_of();
	unsigned char c = (unsigned char)rnd(255);
	bool append = rnd(3) == 0;
	if (s < 0)
		return;
	for (uint64_t i = 0; i < len; i++)
		buf[i] = (unsigned char)(c + i * 7);
	note("%s slot %d off %lu len %lu", append ? "write" : "pwrite", s,
	     (unsigned long)off, (unsigned long)len);
	for (int i = 0; i < 2; i++) {
		if (append) {
			lseek(fds[i][s], 0, SEEK_END);
			r[i] = result(write(fds[i][s], buf, len));
		} else {
			r[i] = result(pwrite(fds[i][s], buf, len, (off_t)off));
		}
	}
	same("write", r);
}

static void op_read(void)
{
	static unsigned char buf[2][300001];
	long r[2];
	int s = slot_open();
	uint64_t off = offset_of(), len = length_of();
	if (s < 0)
		return;
	note("pread slot %d off %lu len %lu", s, (unsigned long)off,
	     (unsigned long)len);
	for (int i = 0; i < 2; i++)
		r[i] = result(pread(fds[i][s], buf[i], len, (off_t)off));
	same("read", r);
	for (long k = 0; k < r[0]; k++)
		if (buf[0][k] != buf[1][k])
			differ("byte read at", (long)off + k, buf[1][k]);
}

static void op_size(void)
{
	long r[2];
	int s = slot_open();
	uint64_t off = offset_of(), len = length_of(), kind = rnd(6);
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
	};
	if (s < 0)
		return;
	note("size op %lu slot %d off %lu len %lu", (unsigned long)kind, s,
	     (unsigned long)off, (unsigned long)len);
	for (int i = 0; i < 2; i++)
		r[i] = kind == 5 ? result(ftruncate(fds[i][s], (off_t)off)) :
				   result(fallocate(fds[i][s], modes[kind],
						    (off_t)off, (off_t)len));
	same("size op", r);
}

static void op_map(void)
{
	long r[2] = { 0, 0 };
	int s = slot_open();
	uint64_t off = offset_of();
	if (s < 0 || mount_count > 1)
		return;
	note("map slot %d off %lu", s, (unsigned long)off);
	for (int i = 0; i < 2; i++) {
		struct stat st;
		fstat(fds[i][s], &st);
		if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size <= off)
			continue;
		char *m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
			       MAP_SHARED, fds[i][s], 0);
		if (m == MAP_FAILED) {
			r[i] = -errno;
			continue;
		}
		r[i] = m[off];
		m[off] = (char)(m[off] + 1);
		munmap(m, (size_t)st.st_size);
	}
	same("mapped byte", r);
}

static void log_dir(int d, const char *name)
{
	int fd = getenv("LOGS") ? openat(d, name, O_RDONLY) : -1;
	if (fd < 0)
		return;
	if (fsetxattr(fd, "user.hailfs.log", "", 0, 0))
		differ("log directory", -errno, 0);
	close(fd);
}

static long name_op(uint64_t kind, int d, const char *a, const char *b)
{
	long r;

	switch (kind) {
	case 0:
		r = mkdirat(d, a, 0755);
		if (r == 0)
			log_dir(d, a);
		break;
	case 1:
		r = unlinkat(d, a, 0);
		break;
	case 2:
		r = unlinkat(d, a, AT_REMOVEDIR);
		break;
	case 3:
		r = renameat(d, a, d, b);
		break;
	case 4:
		r = linkat(d, a, d, b, 0);
		break;
	case 5:
		r = symlinkat(b, d, a);
		break;
	case 6:
		r = syscall(SYS_renameat2, d, a, d, b, RENAME_EXCHANGE);
		break;
	case 7:
		r = syscall(SYS_renameat2, d, a, d, b, RENAME_WHITEOUT);
		break;
	default:
		r = syscall(SYS_renameat2, d, a, d, b, RENAME_NOREPLACE);
		break;
	}
	return result(r);
}

static void op_names(void)
{
	char a[64], b[64];
	struct stat st;
	long r[2];
	uint64_t kind = rnd(9);

	name_of(a, sizeof(a));
	name_of(b, sizeof(b));
	note("name op %lu %s %s", (unsigned long)kind, a, b);
	for (int i = 0; i < 2; i++) {
		r[i] = name_op(kind, root[i], a, b);
		/* The kernel cannot learn within a rename that another mount
		 * has moved a directory (d_splice_alias(), as with NFS). */
		if (r[i] != -ESTALE || i == 0 || mount_count == 1)
			continue;
		(void)fstatat(root[i], a, &st, AT_SYMLINK_NOFOLLOW);
		(void)fstatat(root[i], b, &st, AT_SYMLINK_NOFOLLOW);
		r[i] = name_op(kind, root[i], a, b);
	}
	same("name op", r);
}

static void op_attrs(void)
{
	char n[64], value[2][200];
	long r[2];
	uint64_t kind = rnd(4), v = rnd(01000);
	struct timespec t[2] = { { (time_t)rnd(1u << 30), 5 },
				 { (time_t)rnd(1u << 30), 7 } };
	name_of(n, sizeof(n));
	note("attr op %lu %s %#lo", (unsigned long)kind, n, (unsigned long)v);
	memset(value, 0, sizeof(value));
	for (int i = 0; i < 2; i++) {
		int fd = openat(root[i], n, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
		r[i] = fd < 0 ? -errno : 0;
		if (fd < 0)
			continue;
		if (kind == 0)
			r[i] = result(fchmod(fd, (mode_t)(v | 0600)));
		else if (kind == 1)
			r[i] = result(futimens(fd, t));
		else if (kind == 2)
			r[i] = result(fsetxattr(fd, "user.x", n,
						1 + v % 60, 0));
		else
			r[i] = result(fgetxattr(fd, "user.x", value[i], 200));
		close(fd);
	}
	same("attr op", r);
	if (kind == 3 && memcmp(value[0], value[1], 200) != 0)
		differ("xattr", 0, 1);
}

static void compare_stat(const char *n)
{
	struct stat st[2];
	long r[2];
	for (int i = 0; i < 2; i++)
		r[i] = result(fstatat(root[i], n, &st[i],
				      AT_SYMLINK_NOFOLLOW));
	same("stat", r);
	if (r[0])
		return;
	if (st[0].st_mode != st[1].st_mode)
		differ("mode", st[0].st_mode, st[1].st_mode);
	if (st[0].st_nlink != st[1].st_nlink)
		differ("nlink", (long)st[0].st_nlink, (long)st[1].st_nlink);
	if (!S_ISDIR(st[0].st_mode) && st[0].st_size != st[1].st_size)
		differ(n, st[0].st_size, st[1].st_size);
}

static void op_stat(void)
{
	char n[64];
	int s = slot_open();
	name_of(n, sizeof(n));
	note("stat %s", n);
	compare_stat(n);
	if (s < 0)
		return;
	struct stat st[2];
	fstat(fds[0][s], &st[0]);
	fstat(fds[1][s], &st[1]);
	if (st[0].st_nlink != st[1].st_nlink)
		differ("open nlink", (long)st[0].st_nlink,
		       (long)st[1].st_nlink);
	if (S_ISREG(st[0].st_mode) && st[0].st_size != st[1].st_size)
		differ("open size", st[0].st_size, st[1].st_size);
}

static void op_sync(void)
{
	long r[2];
	int s = slot_open();
	if (s < 0)
		return;
	note("fsync slot %d", s);
	for (int i = 0; i < 2; i++)
		r[i] = result(fsync(fds[i][s]));
	same("fsync", r);
}

static void drop(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	note("drop caches");
	if (fd < 0)
		return;
	if (write(fd, "3", 1) != 1)
		note("drop caches failed");
	close(fd);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* The whole of a file that is @size bytes long in both. Appends make it as long
 * as they like. */
static void compare_content(const char *sub, off_t size)
{
	static unsigned char buf[2][1 << 20];
	int fd[2] = { openat(root[0], sub, O_RDONLY),
		      openat(root[1], sub, O_RDONLY) };
	ssize_t len[2] = { 1, 1 };
	off_t done = 0;

	while (len[0] > 0) {
		for (int i = 0; i < 2; i++)
			len[i] = pread(fd[i], buf[i], sizeof(buf[i]), done);
		if (len[0] != len[1])
			differ(sub, len[0], len[1]);
		if (len[0] > 0 && memcmp(buf[0], buf[1], (size_t)len[0]) != 0)
			differ(sub, 0, 1);
		done += len[0];
	}
	if (done != size)
		differ(sub, done, size);
	close(fd[0]);
	close(fd[1]);
}

/* The whole of both trees: names, attributes, contents. */
static void compare_tree(const char *rel)
{
	char path[2][600];
	struct dirent **list[2];
	int n[2];
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "/proc/self/fd/%d/%s",
			 root[i], rel);
		n[i] = scandir(path[i], &list[i], NULL, by_name);
	}
	if (n[0] != n[1])
		differ(rel, n[0], n[1]);
	for (int k = 0; k < n[0]; k++) {
		const char *name = list[0][k]->d_name;
		char sub[560];
		struct stat st;
		if (strcmp(name, list[1][k]->d_name) != 0)
			differ(name, k, k);
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			continue;
		snprintf(sub, sizeof(sub), "%s/%s", rel, name);
		compare_stat(sub);
		fstatat(root[0], sub, &st, AT_SYMLINK_NOFOLLOW);
		if (S_ISDIR(st.st_mode))
			compare_tree(sub);
		if (S_ISREG(st.st_mode))
			compare_content(sub, st.st_size);
	}
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < n[i]; k++)
			free(list[i][k]);
		free(list[i]);
	}
}

static void open_others(void)
{
	const char *list = getenv("OTHERS");
	char *copy = strdup(list ? list : ""), *save = NULL;

	mounts[mount_count++] = root[1];
	for (char *dir = strtok_r(copy, ":", &save);
	     dir && mount_count < MOUNTS;
	     dir = strtok_r(NULL, ":", &save)) {
		mounts[mount_count] = open(dir, O_RDONLY | O_DIRECTORY);
		if (mounts[mount_count++] < 0) {
			perror(dir);
			exit(2);
		}
	}
	free(copy);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: randops DIR_A DIR_B COUNT [SEED]\n");
		return 2;
	}
	unsigned long count = strtoul(argv[3], NULL, 10);
	uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) :
				   (unsigned long long)time(NULL);
	printf("seed %lu\n", (unsigned long)seed);
	fflush(stdout);
	rng = seed * 0x9e3779b97f4a7c15u + 1;
	trace = getenv("TRACE") != NULL;
	memset(fds, -1, sizeof(fds));
	for (int i = 0; i < 2; i++) {
		root[i] = open(argv[1 + i], O_RDONLY | O_DIRECTORY);
		if (root[i] < 0) {
			perror(argv[1 + i]);
			return 2;
		}
	}
	open_others();
	static void (*const ops[])(void) = {
		op_open, op_open, op_write, op_write, op_write, op_write,
		op_read, op_read, op_size, op_size, op_map, op_names,
		op_names, op_names, op_attrs, op_stat, op_stat, op_sync,
	};
	for (op_count = 0; op_count < count; op_count++) {
		if (mount_count > 1)
			root[1] = mounts[rnd((uint64_t)mount_count)];
		if (rnd(997) == 0)
			drop();
		else
			ops[rnd(sizeof(ops) / sizeof(*ops))]();
		if (op_count % 2000 == 1999)
			compare_tree(".");
	}
	op_count--;
	drop();
	compare_tree(".");
	printf("%lu operations agree\n", count);
	return 0;
}
