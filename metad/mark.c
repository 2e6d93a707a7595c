/* The mark file and copies of open segments. */
#include "metad/mark.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/diag.h"

#define MARK_FILE "mark"
#define COPY_DIR "unclean"
#define MARK_MAGIC UINT64_C(0x6b72616d6c696168)

/* Two copies, the newer valid one counts: the page may reach the disk torn. */
struct mark_slot {
	uint64_t magic;
	uint64_t batch;
	uint32_t crc; /* of the two before */
	uint32_t pad;
};

struct mark {
	char dir[PATH_MAX - 64]; /* of the copies */
	struct mark_slot *slots; /* [2], mapped */
	unsigned next;
};

static uint32_t slot_crc(const struct mark_slot *s)
{
	return crc32c(0, s, offsetof(struct mark_slot, crc));
}

uint64_t mark_get(const struct mark *m)
{
	uint64_t batch = 0;
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct mark_slot s = m->slots[i];

		if (s.magic == MARK_MAGIC && s.crc == slot_crc(&s))
			batch = u64_max(batch, s.batch);
	}
	return batch;
}

void mark_set(struct mark *m, uint64_t batch)
{
	struct mark_slot s = { .magic = MARK_MAGIC, .batch = batch };

	s.crc = slot_crc(&s);
	m->slots[m->next] = s;
	m->next = !m->next;
}

/* ---- copies ---- */

static bool all_zero(const char *p, size_t len)
{
	return len == 0 || (*p == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static int copy_file(int from_dir, int to_dir, const char *name)
{
	int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC);
	int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0600);
	int rv = from < 0 || to < 0 ? -errno : 0;
	static char buf[64 << 10];
	off_t off = 0;
	ssize_t n = 1;

	/* They are mostly zeros, and the disk may be full: holes. */
	for (; rv == 0 && n > 0; off += n) {
		n = pread(from, buf, sizeof(buf), off);
		if (n < 0)
			rv = -errno;
		else if (!all_zero(buf, (size_t)n) &&
			 pwrite(to, buf, (size_t)n, off) != n)
			rv = errno ? -errno : -ENOSPC;
	}
	if (rv == 0 && ftruncate(to, off) < 0)
		rv = -errno;
	if (from >= 0)
		(void)close(from);
	if (to >= 0)
		(void)close(to);
	return rv;
}

/* Calls for each "open-" segment (@to < 0: removes it) in @dir. */
static int for_open_segments(int dir_fd, int to)
{
	int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), rv = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d) {
		rv = -errno;
		if (fd >= 0)
			(void)close(fd);
		return rv;
	}
	rewinddir(d);
	while (rv == 0 && (e = readdir(d))) {
		if (strncmp(e->d_name, "open-", 5) != 0)
			continue;
		if (to >= 0)
			rv = copy_file(dir_fd, to, e->d_name);
		else
			(void)unlinkat(dir_fd, e->d_name, 0);
	}
	(void)closedir(d);
	return rv;
}

static void remove_copies(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)for_open_segments(fd, -1);
	(void)close(fd);
	(void)rmdir(path);
}

static int copy_to(const char *raft, const char *path)
{
	int from = open(raft, O_RDONLY | O_DIRECTORY | O_CLOEXEC), to, rv;

	if (from < 0)
		return -errno;
	to = mkdir(path, 0700) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY |
					       O_CLOEXEC);
	rv = to < 0 ? -errno : for_open_segments(from, to);
	if (to >= 0)
		(void)close(to);
	(void)close(from);
	return rv;
}

/* They are there as a whole or not at all. On a full disk it starts without:
 * closing the segments is what makes room. */
static int copy_open_segments(const struct mark *m, const char *raft)
{
	char part[PATH_MAX];
	int rv;

	(void)snprintf(part, sizeof(part), "%s.part", m->dir);
	remove_copies(part);
	rv = copy_to(raft, part);
	if (rv == 0 && rename(part, m->dir) < 0)
		rv = -errno;
	if (rv < 0)
		remove_copies(part);
	if (rv == -ENOSPC) {
		diag_warn("mark", "event=no_copy path=%s error=\"%s\" "
			  "what=\"the end of the log is not kept for a look at "
			  "it, should it be damaged\"", m->dir, strerror(-rv));
		rv = 0;
	}
	return rv;
}

void mark_good(struct mark *m)
{
	remove_copies(m->dir);
}

/* ---- life ---- */

static int map_slots(struct mark *m, const char *dir)
{
	char path[PATH_MAX];
	void *p;
	int fd, rv = 0;

	(void)snprintf(path, sizeof(path), "%s/" MARK_FILE, dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Allocated: a full disk must not kill us by SIGBUS later. */
	rv = -posix_fallocate(fd, 0, 4096);
	p = rv ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_SHARED, fd, 0);
	if (rv == 0 && p == MAP_FAILED)
		rv = -errno;
	else if (rv == 0)
		m->slots = p;
	(void)close(fd);
	return rv;
}

int mark_open(const char *dir, const char *raft, struct mark **ret)
{
	struct mark *m = calloc(1, sizeof(*m));
	int rv;

	if (!m)
		return -ENOMEM;
	(void)snprintf(m->dir, sizeof(m->dir), "%s/" COPY_DIR, dir);
	rv = map_slots(m, dir);
	/* What an earlier start could not load is not copied over. */
	if (rv == 0 && access(m->dir, F_OK) < 0)
		rv = copy_open_segments(m, raft);
	if (rv < 0) {
		mark_close(m);
		return rv;
	}
	*ret = m;
	return 0;
}

void mark_close(struct mark *m)
{
	if (!m)
		return;
	if (m->slots)
		(void)munmap(m->slots, 4096);
	free(m);
}
