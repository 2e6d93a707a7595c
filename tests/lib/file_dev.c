/* Real files behind blockd/dev.h, synchronously. */
#include "tests/lib/file_dev.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES_MAX 256
#define HELD_MAX 64

struct due {
	struct due *next;
	struct dev_io *io; /* or */
	void (*fn)(void *arg);
	void *arg;
	int res;
};

struct file_dev {
	struct dev dev;
	int dir;
	bool direct;
	int fds[FILES_MAX];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct due *first; /* protected by lock, as last */
	struct due **last;
	/* the loop's */
	bool hold_reads;
	struct dev_io *held[HELD_MAX];
	unsigned held_count;
};

static struct file_dev *of(struct dev *d)
{
	return container_of(d, struct file_dev, dev);
}

static void push(struct file_dev *f, struct due due)
{
	struct due *p = malloc(sizeof(*p));

	assert(p != NULL);
	*p = due;
	p->next = NULL;
	(void)pthread_mutex_lock(&f->lock);
	*f->last = p;
	f->last = &p->next;
	(void)pthread_cond_signal(&f->cond);
	(void)pthread_mutex_unlock(&f->lock);
}

static int fd_open(struct dev *d, const char *name, bool create)
{
	struct file_dev *f = of(d);
	int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0);
	int fd, i;

	for (i = 0; i < FILES_MAX && f->fds[i] >= 0; i++)
		;
	if (i == FILES_MAX)
		return -EMFILE;
	fd = openat(f->dir, name, flags | (f->direct ? O_DIRECT : 0), 0600);
	if (fd < 0)
		return -errno;
	f->fds[i] = fd;
	return i;
}

static void fd_close(struct dev *d, int file)
{
	(void)close(of(d)->fds[file]);
	of(d)->fds[file] = -1;
}

static int fd_size(struct dev *d, int file, uint64_t *ret)
{
	struct stat st;

	if (fstat(of(d)->fds[file], &st) != 0)
		return -errno;
	*ret = (uint64_t)st.st_size;
	return 0;
}

static int fd_resize(struct dev *d, int file, uint64_t size)
{
	int fd = of(d)->fds[file];
	struct stat st;

	if (fstat(fd, &st) == 0 && size < (uint64_t)st.st_size)
		return ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
	return fallocate(fd, 0, 0, (off_t)size) == 0 ? 0 : -errno;
}

static int move(int fd, bool write, bool dsync, uint64_t off, void *buf,
		size_t len)
{
	struct iovec v = { buf, len };

	while (v.iov_len > 0) {
		ssize_t n = write ? pwritev2(fd, &v, 1, (off_t)off,
					     dsync ? RWF_DSYNC : 0) :
				    preadv(fd, &v, 1, (off_t)off);

		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		v.iov_base = (char *)v.iov_base + n;
		v.iov_len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

static int fd_write_now(struct dev *d, int file, uint64_t off,
			const void *buf, size_t len)
{
	return move(of(d)->fds[file], true, false, off,
		    (void *)(uintptr_t)buf, len);
}

static int fd_read_now(struct dev *d, int file, uint64_t off, void *buf,
		       size_t len)
{
	return move(of(d)->fds[file], false, false, off, buf, len);
}

static int fd_sync_now(struct dev *d, int file)
{
	return fdatasync(of(d)->fds[file]) == 0 ? 0 : -errno;
}

static int fd_unlink(struct dev *d, const char *name)
{
	return unlinkat(of(d)->dir, name, 0) == 0 ? 0 : -errno;
}

static int fd_sync_dir(struct dev *d)
{
	return fsync(of(d)->dir) == 0 ? 0 : -errno;
}

static int fd_space(struct dev *d, uint64_t *ret)
{
	struct statvfs st;

	if (fstatvfs(of(d)->dir, &st) != 0)
		return -errno;
	*ret = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}

static void fd_submit(struct dev *d, struct dev_io *io)
{
	struct file_dev *f = of(d);
	int fd = f->fds[io->file];
	int res = 0;

	if (io->op == DEV_READ && f->hold_reads) {
		assert(f->held_count < HELD_MAX);
		f->held[f->held_count++] = io;
		return;
	}
	if (io->op == DEV_FLUSH)
		res = fdatasync(fd) == 0 ? 0 : -errno;
	else
		res = move(fd, io->op != DEV_READ,
			   io->op == DEV_WRITE_DSYNC, io->off, io->buf,
			   io->len);
	push(f, (struct due){ .io = io, .res = res });
}

static void fd_post(struct dev *d, void (*fn)(void *arg), void *arg)
{
	push(of(d), (struct due){ .fn = fn, .arg = arg });
}

static uint64_t fd_now_ms(struct dev *d)
{
	struct timespec t;

	(void)d;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static const struct dev_vtable file_vt = {
	.open = fd_open,
	.close = fd_close,
	.size = fd_size,
	.resize = fd_resize,
	.write_now = fd_write_now,
	.read_now = fd_read_now,
	.sync_now = fd_sync_now,
	.unlink = fd_unlink,
	.sync_dir = fd_sync_dir,
	.space = fd_space,
	.submit = fd_submit,
	.post = fd_post,
	.now_ms = fd_now_ms,
};

struct file_dev *file_dev_new(const char *dir, bool direct)
{
	struct file_dev *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->dir < 0) {
		free(f);
		return NULL;
	}
	for (int i = 0; i < FILES_MAX; i++)
		f->fds[i] = -1;
	f->dev.vt = &file_vt;
	f->direct = direct;
	f->last = &f->first;
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->cond, NULL);
	return f;
}

void file_dev_free(struct file_dev *f)
{
	for (int i = 0; i < FILES_MAX; i++) {
		if (f->fds[i] >= 0)
			(void)close(f->fds[i]);
	}
	while (f->first != NULL) {
		struct due *p = f->first;

		f->first = p->next;
		free(p);
	}
	(void)close(f->dir);
	free(f);
}

struct dev *file_dev_dev(struct file_dev *f)
{
	return &f->dev;
}

unsigned file_dev_hold_reads(struct file_dev *f, bool on)
{
	unsigned count = f->held_count;

	f->hold_reads = on;
	for (unsigned i = 0; i < count && !on; i++)
		fd_submit(&f->dev, f->held[i]);
	if (!on)
		f->held_count = 0;
	return count;
}

unsigned file_dev_run(struct file_dev *f, int wait_ms)
{
	struct timespec t;
	struct due *p;
	unsigned count = 0;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += (long)wait_ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	(void)pthread_mutex_lock(&f->lock);
	while (f->first == NULL && wait_ms > 0 &&
	       pthread_cond_timedwait(&f->cond, &f->lock, &t) == 0)
		;
	p = f->first;
	f->first = NULL;
	f->last = &f->first;
	(void)pthread_mutex_unlock(&f->lock);
	while (p != NULL) {
		struct due due = *p;

		free(p);
		p = due.next;
		if (due.io != NULL)
			due.io->done(due.io, due.res);
		else
			due.fn(due.arg);
		count++;
	}
	return count;
}
