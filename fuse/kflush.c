/* -o writeback: what the kernel still holds of files is fetched.
 *
 * With its write-back cache the kernel alone knows bytes and holes that were
 * written lately, and SEEK_DATA asks us nevertheless: a copy made meanwhile
 * would have holes in their place. Closing any handle makes the kernel write
 * back all of the file, so one is opened by its number and closed.
 *
 * What a punch has removed after its caller was told that it failed is dropped
 * in the same way.
 *
 * Where the mount point shows something else, a file that somebody has open
 * stands for it (reach.c).
 *
 * A process of its own does it: it waits in the kernel for requests that we
 * answer, and a thread of ours that waits so would keep our /dev/fuse open,
 * and with it every caller waiting, when we are killed.
 */
#include "fuse/rim.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/diag.h"

#define FUSE_HANDLE_TYPE 0x81 /* FILEID_INO64_GEN of linux/exportfs.h */

/* What the process is told; @len 0: nothing is to be dropped. */
struct piece {
	uint64_t ino, off, len;
};

struct job {
	struct job *next;
	const struct rim *rim;
	struct piece piece;
	core_cb cb; /* NULL: nobody waits */
	void *arg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct job *head, **tail = &head;
static bool running;

static int flush_one(int dir, const struct piece *p)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + 12];
	} fh;
	uint32_t words[3] = { (uint32_t)(p->ino >> 32), (uint32_t)p->ino, 0 };

	fh.h.handle_bytes = sizeof(words);
	fh.h.handle_type = FUSE_HANDLE_TYPE;
	memcpy(fh.h.f_handle, words, sizeof(words));
	/* O_NONBLOCK: a lease of the file is not waited for. */
	int fd = open_by_handle_at(dir, &fh.h,
				   O_RDONLY | O_NONBLOCK | O_NOATIME |
					   O_CLOEXEC);
	/* One that was deleted meanwhile: nobody will ask for its bytes. */
	if (fd < 0)
		return errno == ESTALE ? 0 : -1;
	/* Whole pages: a part of one would stay. */
	uint64_t from = u64_round_down(p->off, 65536);
	if (p->len > 0)
		(void)posix_fadvise(fd, (off_t)from,
				    (off_t)(u64_round_up(p->off + p->len,
							 65536) - from),
				    POSIX_FADV_DONTNEED);
	return close(fd);
}

/* The process's whole life: numbers come on standard input. */
int kflush_main(char **argv)
{
	int dir = rim_reach(argv[1], strtoull(argv[2], NULL, 10));
	int err = dir < 0;
	struct piece p;

	while (dir >= 0 && read(0, &p, sizeof(p)) == (ssize_t)sizeof(p))
		if (flush_one(dir, &p))
			err = 1; /* the others nevertheless */
	return err;
}

static int spawn_and_wait(const struct rim *r, int in)
{
	char name[] = KFLUSH_NAME, dev[24];
	char *argv[] = { name, (char *)(uintptr_t)r->mountpoint, dev, NULL };
	posix_spawn_file_actions_t fa;
	int status;
	pid_t pid;
	int err = posix_spawn_file_actions_init(&fa);

	if (err)
		return -err;
	snprintf(dev, sizeof(dev), "%llu", (unsigned long long)r->dev);
	err = posix_spawn_file_actions_adddup2(&fa, in, 0);
	if (!err)
		err = posix_spawn(&pid, "/proc/self/exe", &fa, NULL, argv,
				  environ);
	posix_spawn_file_actions_destroy(&fa);
	if (err) {
		diag_warn("fuse", "event=kflush error=%d", err);
		return -err;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int flush_pieces(const struct rim *r, const struct piece *pieces,
			size_t count)
{
	const char *p = (const char *)pieces;
	size_t left = count * sizeof(*pieces);
	int err = 0;
	int fd = memfd_create("inos", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (!err && left > 0) {
		ssize_t n = write(fd, p, left);

		if (n < 0 && errno != EINTR)
			err = -errno;
		p += n > 0 ? n : 0;
		left -= n > 0 ? (size_t)n : 0;
	}
	if (!err && lseek(fd, 0, SEEK_SET) < 0)
		err = -errno;
	if (!err)
		err = spawn_and_wait(r, fd);
	close(fd);
	return err;
}

int kflush_written(struct rim *r)
{
	uint64_t *inos;
	size_t count;
	int err = core_inode_list(r->core, true, &inos, &count);

	if (err)
		return err;
	struct piece *p = calloc(count ? count : 1, sizeof(*p));
	for (size_t i = 0; p && i < count; i++)
		p[i].ino = inos[i];
	if (!p)
		err = -ENOMEM;
	else if (count > 0)
		err = flush_pieces(r, p, count);
	free(p);
	free(inos);
	return err;
}

/* Lives as long as the process. */
static void *run(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!head)
			pthread_cond_wait(&wake, &lock);
		struct job *j = head;
		head = j->next;
		if (!head)
			tail = &head;
		pthread_mutex_unlock(&lock);
		int err = flush_pieces(j->rim, &j->piece, 1);
		if (j->cb)
			j->cb(j->arg, err);
		free(j);
	}
	return NULL;
}

/* Lock held. */
static int worker_start(void)
{
	pthread_t t;
	int err = running ? 0 : pthread_create(&t, NULL, run, NULL);

	if (!err && !running) {
		pthread_detach(t);
		running = true;
	}
	return -err;
}

/* Returns 0, or -errno and @cb is not called. */
static int job_add(const struct rim *r, const struct piece *p, core_cb cb,
		   void *arg)
{
	struct job *j = malloc(sizeof(*j));
	int err = j ? 0 : -ENOMEM;

	if (j) {
		*j = (struct job){ .rim = r, .piece = *p,
				   .cb = cb, .arg = arg };
		pthread_mutex_lock(&lock);
		err = worker_start();
		if (!err) {
			*tail = j;
			tail = &j->next;
			pthread_cond_signal(&wake);
		}
		pthread_mutex_unlock(&lock);
	}
	if (err)
		free(j);
	return err;
}

void kflush(struct rim *r, uint64_t ino, core_cb cb, void *arg)
{
	int err = job_add(r, &(struct piece){ .ino = ino }, cb, arg);

	if (err)
		cb(arg, err);
}

void rim_content_changed(void *arg, uint64_t ino, uint64_t off, uint64_t len)
{
	const struct piece p = { .ino = ino, .off = off, .len = len };
	int err = job_add(arg, &p, NULL, NULL);

	if (err)
		diag_warn("fuse", "event=stale-pages ino=%llu error=%d",
			  (unsigned long long)ino, -err);
}
