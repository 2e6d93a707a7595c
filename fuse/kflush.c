/* -o writeback: what the kernel still holds of a file is fetched.
 *
 * With its write-back cache the kernel alone knows bytes and holes that were
 * written lately, and SEEK_DATA asks us nevertheless: a copy made meanwhile
 * would have holes in their place. Closing any handle makes the kernel write
 * back all of the file, so one is opened by its number and closed.
 *
 * A process of its own does it: it waits in the kernel for requests that we
 * answer, and a thread of ours that waits so would keep our /dev/fuse open,
 * and with it every caller waiting, when we are killed.
 */
#include "fuse/rim.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/diag.h"

#define FUSE_HANDLE_TYPE 0x81 /* FILEID_INO64_GEN of linux/exportfs.h */

struct job {
	struct job *next;
	const char *mountpoint;
	uint64_t ino;
	core_cb cb;
	void *arg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct job *head, **tail = &head;
static bool running;

/* The process's whole life. */
int kflush_main(char **argv)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + 12];
	} fh;
	uint64_t ino = strtoull(argv[2], NULL, 10);
	uint32_t words[3] = { (uint32_t)(ino >> 32), (uint32_t)ino, 0 };
	int dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return 1;
	fh.h.handle_bytes = sizeof(words);
	fh.h.handle_type = FUSE_HANDLE_TYPE;
	memcpy(fh.h.f_handle, words, sizeof(words));
	/* O_NONBLOCK: a lease of the file is not waited for. */
	int fd = open_by_handle_at(dir, &fh.h,
				   O_RDONLY | O_NONBLOCK | O_NOATIME |
					   O_CLOEXEC);
	if (fd < 0)
		return 1;
	return close(fd) ? 1 : 0;
}

static int job_run(const struct job *j)
{
	char number[24], name[] = KFLUSH_NAME;
	char *argv[] = { name, (char *)(uintptr_t)j->mountpoint, number, NULL };
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%llu", (unsigned long long)j->ino);
	int err = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv,
			      environ);
	if (err) {
		diag_warn("fuse", "event=kflush error=%d", err);
		return -err;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EINVAL;
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
		j->cb(j->arg, job_run(j));
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

void kflush(struct rim *r, uint64_t ino, core_cb cb, void *arg)
{
	struct job *j = malloc(sizeof(*j));
	int err = j ? 0 : -ENOMEM;

	if (j) {
		*j = (struct job){ .mountpoint = r->mountpoint, .ino = ino,
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
	if (err) {
		free(j);
		cb(arg, err);
	}
}
