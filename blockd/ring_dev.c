/* The store's files through the ring: struct dev for real disks. */
#include "blockd/ring.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* Requests whose tracking memory is kept. */
#define DEV_IO_KEEP 256u
/* How long a file may still be locked by a killed daemon's I/O: 30 s. */
#define LOCK_TRIES 3000
#define LOCK_NAP_NS 10000000

struct dev_file {
	int fd; /* -1: free */
	bool direct;
};

struct ring_dev;

/* An I/O on its way; apart from struct dev_io so that a short count can be
 * continued without touching the caller's fields. */
struct dev_track {
	struct ring_op op;
	struct ring_dev *d;
	struct dev_io *io;
	uint32_t done_bytes;
	struct dev_track *next;
};

struct ring_dev {
	struct dev dev;
	struct ring *ring;
	int dir_fd;
	bool read_only;
	struct dev_file *files;
	int file_count;
	struct dev_track *spare;
	unsigned spare_count;
};

static struct ring_dev *ring_dev(struct dev *d)
{
	return container_of(d, struct ring_dev, dev);
}

static int file_fd(struct dev *d, int file)
{
	struct ring_dev *rd = ring_dev(d);

	assert(file >= 0 && file < rd->file_count && rd->files[file].fd >= 0);
	return rd->files[file].fd;
}

/* ---- files ---- */

static int slot_find(struct ring_dev *rd)
{
	struct dev_file *files;
	int old = rd->file_count, count = old ? 2 * old : 16;

	for (int i = 0; i < old; i++)
		if (rd->files[i].fd < 0)
			return i;
	files = realloc(rd->files, (size_t)count * sizeof(*files));
	if (!files)
		return -ENOMEM;
	for (int i = old; i < count; i++)
		files[i].fd = -1;
	rd->files = files;
	rd->file_count = count;
	return old;
}

/* A killed daemon's I/O may still be under way after its process, and with it
 * the lock of the directory, is gone: the kernel finishes what was submitted.
 * Each request holds its open file, and so the file's own lock, until then. */
static int lock_file(int fd)
{
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (tries == LOCK_TRIES)
			return -EBUSY;
		nanosleep(&(struct timespec){ 0, LOCK_NAP_NS }, NULL);
	}
	return 0;
}

static int dev_open(struct dev *d, const char *name, bool create)
{
	struct ring_dev *rd = ring_dev(d);
	int flags = (rd->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC |
		    O_NOFOLLOW | (create ? O_CREAT : 0);
	int slot = slot_find(rd);
	bool direct = true;
	int fd, rv;

	if (slot < 0)
		return slot;
	fd = openat(rd->dir_fd, name, flags | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL) {
		/* The file system has no O_DIRECT: through its page cache;
		 * DSYNC and flushes mean the same. */
		direct = false;
		fd = openat(rd->dir_fd, name, flags, 0600);
	}
	if (fd < 0)
		return -errno;
	rv = lock_file(fd);
	if (rv < 0) {
		close(fd);
		return rv;
	}
	rd->files[slot] = (struct dev_file){ .fd = fd, .direct = direct };
	return slot;
}

static void dev_close(struct dev *d, int file)
{
	close(file_fd(d, file));
	ring_dev(d)->files[file].fd = -1;
}

static int dev_size(struct dev *d, int file, uint64_t *ret)
{
	struct stat st;

	if (fstat(file_fd(d, file), &st) < 0)
		return -errno;
	*ret = (uint64_t)st.st_size;
	return 0;
}

/* What is left of a disk for others: metad cannot go on when its log has no
 * room, and may share it. */
#define LEAVE_BYTES ((uint64_t)64 << 20)
#define LEAVE_PART 8u /* and no more than this part of it */

static int dev_space(struct dev *d, uint64_t *free_bytes)
{
	uint64_t avail, leave;
	struct statvfs st;

	if (fstatvfs(ring_dev(d)->dir_fd, &st) < 0)
		return -errno;
	avail = (uint64_t)st.f_bavail * st.f_frsize;
	leave = u64_min(LEAVE_BYTES,
			(uint64_t)st.f_blocks * st.f_frsize / LEAVE_PART);
	*free_bytes = avail - u64_min(avail, leave);
	return 0;
}

static int dev_resize(struct dev *d, int file, uint64_t size)
{
	int fd = file_fd(d, file);
	uint64_t avail = 0;
	struct stat st;
	int rv;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (size <= (uint64_t)st.st_size)
		return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	rv = dev_space(d, &avail);
	if (rv < 0 || avail < size - (uint64_t)st.st_size)
		return rv < 0 ? rv : -ENOSPC;
	do
		rv = fallocate(fd, 0, st.st_size, (off_t)size - st.st_size);
	while (rv < 0 && errno == EINTR);
	if (rv < 0 && errno == EOPNOTSUPP)
		rv = ftruncate(fd, (off_t)size);
	if (rv == 0)
		return 0;
	rv = -errno;
	/* Half of a segment is of no use: give it back. */
	if (ftruncate(fd, st.st_size) < 0)
		return rv;
	return rv;
}

/* ---- blocking I/O of start-up: any alignment, so through a bounce buffer
 * where the file is O_DIRECT ---- */

#define BOUNCE_SIZE (1u << 20)

/* Returns how much was read, less than @len at the end of the file. */
static int now_read(int fd, char *buf, size_t len, uint64_t off)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pread(fd, buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
		/* An odd count is the end: O_DIRECT cannot go on there. */
		if (n == 0 || n % 512 != 0)
			break;
	}
	return (int)done;
}

static int now_write(int fd, const char *buf, size_t len, uint64_t off)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pwrite(fd, buf + done, len - done, (off_t)(off + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static bool is_aligned(uint64_t off, const void *buf, size_t len)
{
	return (off | (uintptr_t)buf | len) % UNIT_SIZE == 0;
}

static int dev_read_now(struct dev *d, int file, uint64_t off, void *buf,
			size_t len)
{
	int fd = file_fd(d, file);
	char *bounce = aligned_alloc(UNIT_SIZE, BOUNCE_SIZE);
	char *to = buf;
	int rv = 0;

	if (!bounce)
		return -ENOMEM;
	while (len > 0 && rv >= 0) {
		uint64_t start = u64_round_down(off, UNIT_SIZE);
		size_t skip = (size_t)(off - start);
		size_t n = (size_t)u64_min(len, BOUNCE_SIZE - skip);

		rv = now_read(fd, bounce,
			      (size_t)u64_round_up(skip + n, UNIT_SIZE), start);
		if (rv >= 0 && (size_t)rv < skip + n)
			rv = -EIO; /* beyond the end of the file */
		if (rv < 0)
			break;
		memcpy(to, bounce + skip, n);
		to += n;
		off += n;
		len -= n;
	}
	free(bounce);
	return rv < 0 ? rv : 0;
}

static int dev_write_now(struct dev *d, int file, uint64_t off,
			 const void *buf, size_t len)
{
	int fd = file_fd(d, file);
	bool odd = ring_dev(d)->files[file].direct &&
		   !is_aligned(off, buf, len);
	int fl = fcntl(fd, F_GETFL), rv;

	/* Odd sizes are rare and small: the page cache does what O_DIRECT
	 * cannot. sync_now() makes it durable. */
	if (fl < 0 || (odd && fcntl(fd, F_SETFL, fl & ~O_DIRECT) < 0))
		return -errno;
	rv = now_write(fd, buf, len, off);
	if (odd && fcntl(fd, F_SETFL, fl) < 0 && rv == 0)
		rv = -errno;
	return rv;
}

static int dev_sync_now(struct dev *d, int file)
{
	return fdatasync(file_fd(d, file)) < 0 ? -errno : 0;
}

static int dev_unlink(struct dev *d, const char *name)
{
	return unlinkat(ring_dev(d)->dir_fd, name, 0) < 0 ? -errno : 0;
}

static int dev_sync_dir(struct dev *d)
{
	return fsync(ring_dev(d)->dir_fd) < 0 ? -errno : 0;
}

/* ---- asynchronous I/O ---- */

static void track_put(struct ring_dev *rd, struct dev_track *t)
{
	if (rd->spare_count >= DEV_IO_KEEP) {
		free(t);
		return;
	}
	t->next = rd->spare;
	rd->spare = t;
	rd->spare_count++;
}

static struct dev_track *track_get(struct ring_dev *rd)
{
	struct dev_track *t = rd->spare;

	if (t) {
		rd->spare = t->next;
		rd->spare_count--;
		return t;
	}
	return malloc(sizeof(*t));
}

static void track_start(struct dev_track *t)
{
	struct dev_io *io = t->io;
	struct io_uring_sqe *sqe = ring_sqe(t->d->ring, &t->op);
	int fd = file_fd(&t->d->dev, io->file);
	uint32_t left = io->len - t->done_bytes;
	char *p = (char *)io->buf + t->done_bytes;
	uint64_t off = io->off + t->done_bytes;
	struct ring_stats *stats = ring_stats(t->d->ring);

	switch (io->op) {
	case DEV_READ:
		stats->dev_reads++;
		io_uring_prep_read(sqe, fd, p, left, off);
		break;
	case DEV_WRITE:
		stats->dev_writes++;
		io_uring_prep_write(sqe, fd, p, left, off);
		break;
	case DEV_WRITE_DSYNC:
		/* As pwritev2(RWF_DSYNC): complete when the bytes, and the
		 * file's metadata needed to find them, are on the disk. */
		stats->dev_writes++;
		stats->dev_flushes++;
		io_uring_prep_write(sqe, fd, p, left, off);
		sqe->rw_flags = RWF_DSYNC;
		break;
	case DEV_FLUSH:
		stats->dev_flushes++;
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		break;
	}
}

static void track_done(struct ring_op *op, int res, uint32_t flags)
{
	struct dev_track *t = container_of(op, struct dev_track, op);
	struct ring_dev *rd = t->d;
	struct dev_io *io = t->io;

	(void)flags;
	if (res == -EINTR || res == -EAGAIN) {
		/* An interrupted worker, not a failed disk. */
		track_start(t);
		return;
	}
	if (res >= 0 && io->op != DEV_FLUSH) {
		t->done_bytes += (uint32_t)res;
		if (t->done_bytes < io->len && res > 0 && res % 512 == 0) {
			track_start(t);
			return;
		}
		/* End of file: what is missing was never written. */
		res = t->done_bytes == io->len ? 0 : -EIO;
	}
	ring_stats(rd->ring)->dev_in_flight--;
	if (res < 0)
		ring_stats(rd->ring)->dev_errors++;
	track_put(rd, t);
	io->done(io, res);
}

/* No memory to track an I/O: fail it, but not before submit() returned. */
static void submit_failed(void *arg)
{
	struct dev_io *io = arg;

	io->done(io, -ENOMEM);
}

static void dev_submit(struct dev *d, struct dev_io *io)
{
	struct ring_dev *rd = ring_dev(d);
	struct dev_track *t = track_get(rd);

	if (!t) {
		ring_post(rd->ring, submit_failed, io);
		return;
	}
	*t = (struct dev_track){ .op.done = track_done, .d = rd, .io = io };
	ring_stats(rd->ring)->dev_in_flight++;
	track_start(t);
}

static void dev_post(struct dev *d, void (*fn)(void *arg), void *arg)
{
	ring_post(ring_dev(d)->ring, fn, arg);
}

static uint64_t dev_now_ms(struct dev *d)
{
	(void)d;
	return ring_now_ms();
}

static const struct dev_vtable ring_dev_vtable = {
	.open = dev_open,
	.close = dev_close,
	.size = dev_size,
	.resize = dev_resize,
	.write_now = dev_write_now,
	.read_now = dev_read_now,
	.sync_now = dev_sync_now,
	.unlink = dev_unlink,
	.sync_dir = dev_sync_dir,
	.space = dev_space,
	.submit = dev_submit,
	.post = dev_post,
	.now_ms = dev_now_ms,
};

int ring_dev_new(struct ring *r, const char *dir, bool read_only,
		 struct dev **ret)
{
	struct ring_dev *rd = calloc(1, sizeof(*rd));
	int rv;

	if (!rd)
		return -ENOMEM;
	rd->dev.vt = &ring_dev_vtable;
	rd->ring = r;
	rd->read_only = read_only;
	rd->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rd->dir_fd < 0) {
		rv = -errno;
		free(rd);
		return rv;
	}
	*ret = &rd->dev;
	return 0;
}

void ring_dev_free(struct dev *d)
{
	struct ring_dev *rd;
	struct dev_track *t;

	if (!d)
		return;
	rd = ring_dev(d);
	for (int i = 0; i < rd->file_count; i++)
		if (rd->files[i].fd >= 0)
			close(rd->files[i].fd);
	while ((t = rd->spare)) {
		rd->spare = t->next;
		free(t);
	}
	close(rd->dir_fd);
	free(rd->files);
	free(rd);
}
