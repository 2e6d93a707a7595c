/* System calls on a mount while some process behind it gets no memory once, for
 * each of the allocations it makes meanwhile.
 *
 *	nomem_calls run|run-writeback DIR COUNTER KEPT [SECTION...]
 *	nomem_calls verify KEPT
 *
 * COUNTER is what preload/kthmalloc.so counts down in that process. For each
 * section of calls k grows from 1 until so many allocations are not made. A
 * call succeeds or fails as allowed[] says; none hangs; with memory again the
 * mount does all it is asked, and everything is as the calls have told. KEPT,
 * on another file system, gets what must be there later, whatever ends then.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SIZE (256u << 10)
#define SIZES_MAX 32
#define NAMES_MAX 16
#define MANY 300
#define K_MAX 1500
#define HANG_S 20 /* longer than metad's start and a lease */

static int64_t *left;
static long long file_round; /* of what is verified */
/* Where it is, also for the process that waits for this one. */
static struct {
	int64_t k; /* 0: nothing fails */
	const char *section, *call;
} *at;
static unsigned told; /* errors that were allowed */

static void die(const char *what, const char *which)
{
	fprintf(stderr, "# %s, allocation %lld: %s %s (errno %d: %s)\n",
		at->section, (long long)at->k, what, which, errno,
		strerror(errno));
	exit(1);
}

static bool writeback; /* the mount's kernel has a write-back cache */

/* Besides ENOMEM, which may come from any call: the kernel makes EIO of an
 * error of pages that it writes back, and tells it to whoever makes it do so;
 * EFAULT of one that it would map. SEEK_DATA is helped by a process. */
static const struct {
	const char *call;
	int error;
	bool writeback; /* only then */
} allowed[] = {
	{ "fsync", EIO, false },     { "msync", EIO, false },
	{ "close", EIO, false },     { "copy_file_range", EIO, false },
	{ "madvise", EFAULT, false }, { "lseek", EIO, false },
	{ "fallocate", EIO, true },  { "pwrite", EIO, true },
	{ "pread", EIO, true },	     { "ftruncate", EIO, true },
	{ "fchmod", EIO, true },     { "fchown", EIO, true },
	{ "futimens", EIO, true },
};

static bool is_allowed(const char *call)
{
	if (errno == ENOMEM)
		return true;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		if (strcmp(call, allowed[i].call) == 0 &&
		    errno == allowed[i].error &&
		    (writeback || !allowed[i].writeback))
			return true;
	return false;
}

/* Whether the last call has succeeded. */
static bool done(long rv)
{
	if (rv >= 0)
		return true;
	if (at->k == 0 || !is_allowed(at->call))
		die("may not fail so:", at->call);
	told++;
	return false;
}
#define CALL(fn, ...) (at->call = #fn, (long)fn(__VA_ARGS__))
#define DO(fn, ...) done(CALL(fn, __VA_ARGS__))

/* ---- what a file holds ---- */

/* A byte says which call wrote it: a tag of 1 to 49, and a hole is 0. For each
 * byte, and for the size, what it may be: a bit for each tag. A call that
 * failed may have done its work or not. */
#define TAGS 50
#define ANY(tag) (UINT64_C(1) << (tag))

struct sizes {
	unsigned count;
	uint64_t v[SIZES_MAX];
	uint64_t upto; /* and any up to this one */
};

struct content {
	uint64_t bytes[SIZE];
	struct sizes sizes;
};

/* @now: what is seen; @kept: and after a loss of what was not synced. The
 * kernel's write-back cache may lose that, and tells fsync. */
static struct model {
	struct content now, kept;
} model;

static const struct content *seen_of(const struct model *m)
{
	return writeback ? &m->kept : &m->now;
}

static uint8_t value_of(unsigned tag)
{
	return (uint8_t)(tag ? (unsigned)(at->k % 5) * TAGS + tag : 0);
}

static bool byte_may_be(uint64_t set, uint8_t v, int64_t round)
{
	unsigned base = (unsigned)(round % 5) * TAGS;

	if (v == 0)
		return set & ANY(0);
	return v > base && v < base + TAGS && (set & ANY(v - base));
}

static void sizes_add(struct sizes *s, uint64_t v)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->v[i] == v)
			return;
	if (s->count == SIZES_MAX)
		die("too many sizes", "");
	s->v[s->count++] = v;
}

static bool sizes_has(const struct sizes *s, uint64_t v)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->v[i] == v)
			return true;
	return v < s->upto;
}

static void model_begin(struct model *m)
{
	for (size_t i = 0; i < SIZE; i++)
		m->now.bytes[i] = m->kept.bytes[i] = ANY(0);
	m->now.sizes = m->kept.sizes = (struct sizes){ .count = 0 };
	sizes_add(&m->now.sizes, 0);
	sizes_add(&m->kept.sizes, 0);
}

/* Bytes were written, or perhaps. */
static void model_bytes(struct model *m, uint64_t off, uint64_t len,
			unsigned tag, bool surely)
{
	for (uint64_t i = off; i < off + len && i < SIZE; i++) {
		m->now.bytes[i] = ANY(tag) | (surely ? 0 : m->now.bytes[i]);
		m->kept.bytes[i] |= ANY(tag);
	}
}

/* The file has grown to @end if it was shorter, or perhaps. */
static void model_grow(struct model *m, uint64_t end, bool surely)
{
	struct sizes was = m->now.sizes, kept = m->kept.sizes;

	if (surely)
		m->now.sizes.count = 0;
	for (unsigned i = 0; i < was.count; i++)
		sizes_add(&m->now.sizes, was.v[i] < end ? end : was.v[i]);
	for (unsigned i = 0; i < kept.count; i++)
		sizes_add(&m->kept.sizes, kept.v[i] < end ? end : kept.v[i]);
}

static void model_truncate(struct model *m, uint64_t size, bool surely)
{
	if (surely)
		m->now.sizes = (struct sizes){ .count = 0 };
	sizes_add(&m->now.sizes, size);
	sizes_add(&m->kept.sizes, size);
	model_bytes(m, size, SIZE - size, 0, surely);
}

/* After an error of fsync it is as if there was none. The kernel takes pages
 * that it could not write back for written: the size that they would have given
 * the file may never come. */
static void model_sync(struct model *m, bool synced)
{
	struct sizes *s = &m->kept.sizes;

	if (synced) {
		m->kept = m->now;
		return;
	}
	for (unsigned i = 0; writeback && i < s->count; i++)
		s->upto = s->v[i] > s->upto ? s->v[i] : s->upto;
	m->now = m->kept;
}

static uint8_t got[SIZE];

static void content_check(const char *path, const struct content *c,
			  size_t size, int64_t round)
{
	if (!sizes_has(&c->sizes, size)) {
		fprintf(stderr, "# %zu bytes\n", size);
		die("wrong size:", path);
	}
	for (size_t i = 0; i < size; i++) {
		if (byte_may_be(c->bytes[i], got[i], round))
			continue;
		fprintf(stderr, "# byte %zu is %u (tag %d), may be of %#llx\n",
			i, got[i], got[i] - (int)(round % 5) * TAGS,
			(unsigned long long)c->bytes[i]);
		die("wrong content:", path);
	}
}

/* Reads the whole file to got[]; -1: it was told that it cannot. */
static long read_all(int fd)
{
	size_t len = 0;

	for (;;) {
		long n = CALL(pread, fd, got + len, SIZE - len, (off_t)len);

		if (!done(n))
			return -1;
		if (n == 0)
			return (long)len;
		len += (size_t)n;
	}
}

static void model_check(const struct model *m, int fd, const char *path)
{
	long len = read_all(fd);

	if (len >= 0)
		content_check(path, seen_of(m), (size_t)len, at->k);
}

/* ---- calls on a file that the model follows ---- */

static uint8_t *bytes_of(unsigned tag)
{
	static uint8_t *buf;

	if (!buf && !(buf = aligned_alloc(4096, SIZE)))
		die("no memory for", "the test");
	memset(buf, value_of(tag), SIZE);
	return buf;
}

static void write_at(struct model *m, int fd, uint64_t off, size_t len,
		     unsigned tag)
{
	long n = CALL(pwrite, fd, bytes_of(tag), len, (off_t)off);
	bool ok = done(n);
	size_t sure = ok ? (size_t)n : 0;

	model_bytes(m, off, sure, tag, true);
	if (sure)
		model_grow(m, off + sure, true);
	if (ok)
		return; /* what a short one left out is not written */
	model_bytes(m, off, len, tag, false);
	model_grow(m, off + len, false);
}

static void sync_fd(struct model *m, int fd)
{
	model_sync(m, DO(fsync, fd));
}

static void cut_to(struct model *m, int fd, uint64_t size)
{
	model_truncate(m, size, DO(ftruncate, fd, (off_t)size));
}

/* ---- rounds ---- */

static char dir[400]; /* of this round */
static bool file_made; /* f in it, which the model follows */
static FILE *kept;

static const char *in_dir(const char *name)
{
	static char path[4][1000];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
	return path[turn];
}

static int file_open(const char *name, int flags)
{
	int fd = CALL(open, in_dir(name), flags | O_CLOEXEC, 0644);

	(void)done(fd);
	return fd;
}

/* Tells KEPT, in runs of equal bytes. */
static void keep_file(const char *name, const struct model *m)
{
	const struct content *c = &m->kept;
	size_t from = 0;

	fprintf(kept, "file %s %lld %llu %u", in_dir(name), (long long)at->k,
		(unsigned long long)c->sizes.upto, c->sizes.count);
	for (unsigned i = 0; i < c->sizes.count; i++)
		fprintf(kept, " %llu", (unsigned long long)c->sizes.v[i]);
	for (size_t i = 1; i <= SIZE; i++) {
		if (i < SIZE && c->bytes[i] == c->bytes[from])
			continue;
		fprintf(kept, " %zu %llx", i,
			(unsigned long long)c->bytes[from]);
		from = i;
	}
	fprintf(kept, "\n");
}

/* ---- a file's bytes ---- */

static void punch(struct model *m, int fd, int mode, uint64_t off,
		  uint64_t len)
{
	bool ok = DO(fallocate, fd, mode, (off_t)off, (off_t)len);

	model_bytes(m, off, len, 0, ok);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		model_grow(m, off + len, ok);
}

static void preallocate(struct model *m, int fd, uint64_t end)
{
	model_grow(m, end, DO(fallocate, fd, 0, 0, (off_t)end));
}

static void mapped_write(struct model *m, int fd, uint64_t off, size_t len,
			 unsigned tag)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			  (off_t)off);

	at->call = "mmap";
	if (!done(p == MAP_FAILED ? -1 : 0))
		return;
	if (DO(madvise, p, len, MADV_POPULATE_WRITE)) {
		memset(p, value_of(tag), len);
		model_bytes(m, off, len, tag, true);
		if (!DO(msync, p, len, MS_SYNC))
			model_sync(m, false);
	}
	(void)DO(munmap, p, len);
}

/* What lseek tells, where all bytes are sure. */
static void seek_check(const struct model *m, int fd)
{
	const struct content *c = seen_of(m);
	off_t data = CALL(lseek, fd, 0, SEEK_DATA), hole;

	if (data < 0 && errno == ENXIO)
		data = SIZE;
	if (done(data))
		for (off_t i = 0; i < data && i < (off_t)SIZE; i++)
			if (!(c->bytes[i] & ANY(0)))
				die("SEEK_DATA is beyond data", "");
	hole = CALL(lseek, fd, 0, SEEK_HOLE);
	if (hole < 0 && errno == ENXIO)
		return;
	if (done(hole) && !sizes_has(&c->sizes, (uint64_t)hole) &&
	    !(c->bytes[hole] & ANY(0)))
		die("SEEK_HOLE is at data", "");
}

/* The file of a round that the model follows; -1: it could not be made. */
static int file_begin(void)
{
	int fd = file_open("f", O_RDWR | O_CREAT);

	file_made = fd >= 0;
	return fd;
}

static void file_end(struct model *m, int fd)
{
	sync_fd(m, fd);
	model_check(m, fd, "f");
	if (!DO(close, fd))
		model_sync(m, false);
}

static void bytes(void)
{
	struct model *m = &model;
	int fd = file_begin(), direct;

	if (fd < 0)
		return;
	write_at(m, fd, 0, 9000, 1);
	sync_fd(m, fd);
	write_at(m, fd, 70000, 50000, 2);
	model_check(m, fd, "f");
	direct = file_open("f", O_RDWR | O_DIRECT);
	if (direct >= 0) {
		write_at(m, direct, 16384, 8192, 3);
		model_check(m, direct, "f");
		(void)DO(close, direct);
	}
	cut_to(m, fd, 90000);
	write_at(m, fd, 20000, 100, 4);
	file_end(m, fd);
}

static void holes(void)
{
	struct model *m = &model;
	int fd = file_begin();

	if (fd < 0)
		return;
	write_at(m, fd, 0, 120000, 5);
	preallocate(m, fd, 200000);
	(void)DO(posix_fadvise, fd, 0, 0, POSIX_FADV_DONTNEED);
	punch(m, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3000, 80000);
	punch(m, fd, FALLOC_FL_ZERO_RANGE, 100000, 110000);
	seek_check(m, fd);
	cut_to(m, fd, 90000);
	write_at(m, fd, 88000, 3, 6);
	cut_to(m, fd, 150000);
	file_end(m, fd);
}

static void maps(void)
{
	struct model *m = &model;
	int fd = file_begin(), to;
	off_t in = 0, out = 0;
	struct stat st;

	if (fd < 0)
		return;
	write_at(m, fd, 0, 100000, 7);
	sync_fd(m, fd);
	(void)DO(posix_fadvise, fd, 0, 0, POSIX_FADV_DONTNEED);
	if (fstat(fd, &st) == 0 && st.st_size == 100000)
		mapped_write(m, fd, 4096, 40000, 8);
	to = file_open("copy", O_RDWR | O_CREAT);
	if (to >= 0) {
		(void)DO(copy_file_range, fd, &in, to, &out, 100000, 0);
		(void)DO(fsync, to);
		(void)DO(close, to);
	}
	file_end(m, fd);
}

/* ---- names ---- */

#define HERE 1
#define GONE 2

static struct name {
	char name[32];
	unsigned may; /* HERE, GONE or both */
} names[NAMES_MAX];
static unsigned name_count;

static struct name *name_of(const char *text)
{
	unsigned i;

	for (i = 0; i < name_count; i++)
		if (strcmp(names[i].name, text) == 0)
			return &names[i];
	if (name_count == NAMES_MAX)
		die("too many names", text);
	snprintf(names[i].name, sizeof(names[i].name), "%s", text);
	names[i].may = GONE;
	name_count++;
	return &names[i];
}

static void name_is(const char *text, unsigned state, bool surely)
{
	struct name *n = name_of(text);

	n->may = state | (surely ? 0 : n->may);
}

static void names_check(void)
{
	struct stat st;

	for (unsigned i = 0; i < name_count; i++) {
		int rv = CALL(lstat, in_dir(names[i].name), &st);
		bool gone = rv < 0 && errno == ENOENT;

		if (!gone && !done(rv))
			continue;
		if (!(names[i].may & (gone ? GONE : HERE)))
			die(gone ? "is gone:" : "is there:", names[i].name);
	}
}

static void names_keep(void)
{
	for (unsigned i = 0; i < name_count; i++)
		fprintf(kept, "name %s %u\n", in_dir(names[i].name),
			names[i].may);
}

/* Of what is surely there. */
static bool here(const char *text)
{
	return name_of(text)->may == HERE;
}

static void rename_to(const char *from, const char *to)
{
	bool was = here(from), ok;

	if (!was)
		return;
	ok = DO(rename, in_dir(from), in_dir(to));
	name_is(from, GONE, ok);
	name_is(to, HERE, ok);
}

static void make_names(void)
{
	char text[64];
	int fd = file_open("f", O_RDWR | O_CREAT | O_EXCL);
	struct stat st;
	long n;

	name_is("f", HERE, fd >= 0);
	if (fd >= 0)
		(void)DO(close, fd);
	name_is("d", HERE, DO(mkdir, in_dir("d"), 0755));
	name_is("s", HERE, DO(symlink, "d", in_dir("s")));
	name_is("p", HERE, DO(mkfifo, in_dir("p"), 0600));
	if (here("f"))
		name_is("l", HERE, DO(link, in_dir("f"), in_dir("l")));
	if (here("s")) {
		n = CALL(readlink, in_dir("s"), text, sizeof(text));
		if (done(n) && (n != 1 || text[0] != 'd'))
			die("wrong link", "");
	}
	if (here("f") && here("l") && DO(stat, in_dir("f"), &st) &&
	    st.st_nlink != 2)
		die("wrong count of links", "");
}

static void change_names(void)
{
	int fd;

	rename_to("l", "m");
	rename_to("s", "p"); /* over it */
	rename_to("d", "e");
	if (here("m"))
		name_is("m", GONE, DO(unlink, in_dir("m")));
	if (here("e"))
		name_is("e", GONE, DO(rmdir, in_dir("e")));
	if (here("f") && here("p") && !DO(renameat2, AT_FDCWD, in_dir("f"),
					  AT_FDCWD, in_dir("p"),
					  RENAME_EXCHANGE))
		name_is("f", HERE, true);
	names_check();
	fd = CALL(open, dir, O_RDONLY | O_CLOEXEC);
	if (!done(fd))
		return;
	(void)DO(fsync, fd);
	(void)DO(close, fd);
}

static void names_round(void)
{
	make_names();
	change_names();
}

/* ---- attributes ---- */

static void attributes(void)
{
	static char value[3000], back[4000], list[200];
	const struct timespec times[2] = { { 5, 6 }, { 7, 8 } };
	int fd = file_open("f", O_RDWR | O_CREAT);
	struct statvfs vfs;
	struct stat st;
	bool set;
	long n;

	if (fd < 0)
		return;
	memset(value, (int)(at->k % 100), sizeof(value));
	set = DO(fsetxattr, fd, "user.a", value, sizeof(value), 0);
	if (set) {
		n = CALL(fgetxattr, fd, "user.a", back, sizeof(back));
		if (done(n) &&
		    (n != sizeof(value) || memcmp(back, value, (size_t)n) != 0))
			die("wrong xattr", "");
		n = CALL(flistxattr, fd, list, sizeof(list));
		if (done(n) &&
		    (n < 7 || !memmem(list, (size_t)n, "user.a", 7)))
			die("no xattr in the list", "");
	}
	(void)DO(fsetxattr, fd, "user.b", "b", 1, 0);
	if (DO(fchmod, fd, 0600) && DO(fstat, fd, &st) &&
	    (st.st_mode & 07777) != 0600)
		die("wrong mode", "");
	(void)DO(fchown, fd, 5, 6);
	if (DO(futimens, fd, times) && DO(fstat, fd, &st) &&
	    (st.st_mtim.tv_sec != 7 || st.st_mtim.tv_nsec != 8))
		die("wrong time", "");
	if (DO(fstatvfs, fd, &vfs) && vfs.f_blocks == 0)
		die("no blocks in statvfs", "");
	if (set && DO(fremovexattr, fd, "user.a") &&
	    (fgetxattr(fd, "user.a", back, sizeof(back)) >= 0 ||
	     (errno != ENODATA && errno != ENOMEM)))
		die("an xattr stayed", "");
	(void)DO(fsync, fd);
	(void)DO(close, fd);
}

/* ---- files without a name ---- */

static void nameless(void)
{
	char proc[64];
	int fd;

	memset(got, 1, 10);
	fd = CALL(open, dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (done(fd)) {
		snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
		if (DO(pwrite, fd, "tmpfile", 7, 0) &&
		    DO(linkat, AT_FDCWD, proc, AT_FDCWD, in_dir("t"),
		       AT_SYMLINK_FOLLOW))
			name_is("t", HERE, true);
		else
			name_is("t", HERE, false);
		(void)DO(fsync, fd);
		(void)DO(close, fd);
	}
	fd = file_open("u", O_RDWR | O_CREAT);
	name_is("u", HERE, fd >= 0);
	if (fd < 0)
		return;
	if (DO(pwrite, fd, "unlinked", 8, 0) && DO(unlink, in_dir("u"))) {
		name_is("u", GONE, true);
		bool synced = DO(fsync, fd);

		(void)DO(posix_fadvise, fd, 0, 0, POSIX_FADV_DONTNEED);
		if (DO(pread, fd, got, 8, 0) && synced &&
		    memcmp(got, "unlinked", 8) != 0)
			die("wrong content without a name", "");
	} else {
		name_is("u", GONE, false);
	}
	(void)DO(close, fd);
}

/* ---- a large directory ---- */

static char many[400];

static void list_many(void)
{
	static bool seen[MANY];
	const struct dirent *e;
	char path[600];
	unsigned count = 0;
	DIR *d;

	/* Nobody knows it any more. */
	snprintf(path, sizeof(path), "%s/x-%lld", many, (long long)at->k);
	if (DO(mkdir, path, 0755))
		(void)DO(rmdir, path);
	memset(seen, 0, sizeof(seen));
	at->call = "opendir";
	d = opendir(many);
	if (!done(d ? 0 : -1))
		return;
	errno = 0;
	while ((at->call = "readdir", e = readdir(d))) {
		unsigned i;

		if (sscanf(e->d_name, "name-%u", &i) != 1)
			continue;
		if (i >= MANY || seen[i])
			die("twice in the directory:", e->d_name);
		seen[i] = true;
		count++;
	}
	if (errno)
		(void)done(-1);
	else if (count != MANY)
		die("names are missing in", "readdir");
	(void)DO(closedir, d);
}

static void make_many(const char *top)
{
	char path[600];

	snprintf(many, sizeof(many), "%.300s/many", top);
	(void)DO(mkdir, many, 0755);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "%s/name-%u", many, i);
		(void)DO(close, open(path, O_CREAT | O_WRONLY | O_CLOEXEC,
				     0644));
	}
}

/* ---- locks ---- */

static struct flock whole(short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET };
}

struct waiter {
	pthread_t thread;
	int fd;
	bool flock;
	int error;
};

static void *wait_for_lock(void *arg)
{
	struct waiter *w = arg;
	struct flock l = whole(F_WRLCK);

	if ((w->flock ? flock(w->fd, LOCK_EX) :
			fcntl(w->fd, F_OFD_SETLKW, &l)) < 0)
		w->error = errno;
	return NULL;
}

/* One holds it, another waits for it, and gets it though releasing it may have
 * failed: the holder's handle is closed then. */
static void lock_round(bool use_flock)
{
	struct waiter w = { .flock = use_flock };
	struct flock l = whole(F_WRLCK);
	int fd = file_open("f", O_RDWR | O_CREAT);

	w.fd = file_open("f", O_RDWR | O_CREAT);
	if (fd >= 0 && w.fd >= 0 &&
	    (use_flock ? DO(flock, fd, LOCK_EX) :
			 DO(fcntl, fd, F_OFD_SETLK, &l))) {
		if (pthread_create(&w.thread, NULL, wait_for_lock, &w))
			die("cannot start", "a thread");
		usleep(300); /* it may wait by then: more happens */
		l = whole(F_UNLCK);
		at->call = "locks";
		if (use_flock)
			(void)DO(flock, fd, LOCK_UN);
		else
			(void)DO(fcntl, fd, F_OFD_SETLK, &l);
		close(fd);
		fd = -1;
		pthread_join(w.thread, NULL);
		errno = w.error;
		(void)done(w.error ? -1 : 0);
	}
	if (fd >= 0)
		(void)DO(close, fd);
	if (w.fd >= 0)
		(void)DO(close, w.fd);
}

static void locks(void)
{
	lock_round(false);
	lock_round(true);
}

/* Nobody holds one any more. */
static void locks_check(void)
{
	struct flock l = whole(F_WRLCK);
	int fd = open(in_dir("f"), O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)DO(fcntl, fd, F_OFD_SETLKW, &l);
	(void)DO(flock, fd, LOCK_EX);
	(void)DO(close, fd);
}

/* ---- all of it ---- */

static const struct {
	const char *name;
	void (*round)(void);
} sections[] = {
	{ "bytes", bytes },	     { "holes", holes },
	{ "maps", maps },	     { "names", names_round },
	{ "attributes", attributes }, { "nameless", nameless },
	{ "directory", list_many },  { "locks", locks },
};

/* With memory again everything works, and is as the calls have told. */
static void check_round(const char *top)
{
	int64_t armed = at->k;
	char path[600];
	int fd;

	at->k = 0;
	alarm(HANG_S);
	snprintf(path, sizeof(path), "%s/probe", top);
	fd = CALL(open, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (!done(fd) || pwrite(fd, "probe", 5, 0) != 5 ||
	    fsync(fd) < 0 || close(fd) < 0 || unlink(path) < 0)
		die("nothing works afterwards:", "probe");
	names_check();
	locks_check();
	at->k = armed;
	if (!file_made)
		return;
	fd = open(in_dir("f"), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("cannot be opened:", "f");
	model_check(&model, fd, "f");
	close(fd);
	keep_file("f", &model);
}

static void section_run(size_t s, const char *top)
{
	int64_t rest, made = 0;

	at->section = sections[s].name;
	told = 0;
	do {
		made++;
		at->k = 0;
		snprintf(dir, sizeof(dir), "%.300s/%.20s-%lld", top,
			 at->section, (long long)made);
		(void)DO(mkdir, dir, 0755);
		model_begin(&model);
		file_made = false;
		name_count = 0;
		at->k = made;
		alarm(HANG_S);
		__atomic_store_n(left, at->k, __ATOMIC_RELAXED);
		sections[s].round();
		rest = __atomic_exchange_n(left, 0, __ATOMIC_RELAXED);
		check_round(top);
		names_keep();
		if (made > K_MAX)
			die("has no end:", "it");
	} while (rest <= 0);
	alarm(0);
	printf("# %s: %lld allocations, %u errors\n", at->section,
	       (long long)made - 1, told);
	fflush(stdout);
}

static int run(int argc, char **argv)
{
	int fd = open(argv[3], O_RDWR | O_CLOEXEC);

	left = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
	kept = fopen(argv[4], "a");
	if (fd < 0 || left == MAP_FAILED || !kept)
		die("cannot open", argv[3]);
	make_many(argv[2]);
	for (size_t s = 0; s < sizeof(sections) / sizeof(*sections); s++) {
		bool wanted = argc == 5;

		for (int i = 5; i < argc; i++)
			wanted |= strcmp(argv[i], sections[s].name) == 0;
		if (wanted)
			section_run(s, argv[2]);
	}
	if (fclose(kept) != 0)
		die("cannot write", argv[4]);
	return 0;
}

/* A call that hangs ends with SIGALRM; a handler would not be run. */
static int watched(int argc, char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		exit(run(argc, argv));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 2;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "# %s, allocation %lld: %s %s\n", at->section,
		(long long)at->k, at->call,
		WTERMSIG(status) == SIGALRM ? "hangs" : "has ended it");
	return 1;
}

static void verify_file(const char *path, FILE *f)
{
	unsigned sizes;
	struct content *c = &model.now;
	unsigned long long end = 0, from = 0, v;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long len;

	c->sizes.count = 0;
	if (fscanf(f, "%llu %u", &v, &sizes) != 2)
		die("unreadable:", "KEPT");
	c->sizes.upto = v;
	while (sizes--) {
		if (fscanf(f, "%llu", &v) != 1)
			die("unreadable:", "KEPT");
		sizes_add(&c->sizes, v);
	}
	while (end < SIZE) {
		if (fscanf(f, "%llu %llx", &end, &v) != 2 || end > SIZE)
			die("unreadable:", "KEPT");
		while (from < end)
			c->bytes[from++] = v;
	}
	if (fd < 0 || (len = read_all(fd)) < 0)
		die("is lost:", path);
	close(fd);
	content_check(path, c, (size_t)len, file_round);
}

static int verify(char **argv)
{
	unsigned may, files = 0, count = 0;
	char kind[16], path[600];
	struct stat st;

	at->section = "afterwards";
	kept = fopen(argv[2], "r");
	if (!kept)
		die("cannot open", argv[2]);
	while (fscanf(kept, "%15s %599s", kind, path) == 2) {
		if (strcmp(kind, "file") == 0 &&
		    fscanf(kept, "%lld", &file_round) == 1) {
			verify_file(path, kept);
			files++;
		} else if (fscanf(kept, "%u", &may) == 1) {
			if (!(may & (lstat(path, &st) ? GONE : HERE)))
				die("is not as it was:", path);
			count++;
		} else {
			die("unreadable:", argv[2]);
		}
	}
	printf("# %u files and %u names are as they were\n", files, count);
	return files || count ? 0 : 1;
}

int main(int argc, char **argv)
{
	at = mmap(NULL, sizeof(*at), PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return 2;
	at->section = "start";
	writeback = argc > 1 && strcmp(argv[1], "run-writeback") == 0;
	if (argc >= 5 && (writeback || strcmp(argv[1], "run") == 0))
		return watched(argc, argv);
	if (argc == 3 && strcmp(argv[1], "verify") == 0)
		return verify(argv);
	fprintf(stderr, "usage: nomem_calls run|run-writeback DIR COUNTER KEPT "
			"[SECTION...]\n"
			"       nomem_calls verify KEPT\n");
	return 2;
}
