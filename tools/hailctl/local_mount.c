/* hailctl local: what lies at the mount point. */
#include "tools/hailctl/local.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/hailctl/mounts.h"

/* A live file system answers within this, unless its daemons do not. */
#define ANSWER_MS 2000

const char *mount_word(enum mount_state s)
{
	switch (s) {
	case MOUNT_LIVE:
		return "mounted";
	case MOUNT_DEAD:
		return "dead";
	case MOUNT_OTHER:
		return "another file system";
	case MOUNT_NONE:
		break;
	}
	return "not mounted";
}

struct at {
	const char *mnt;
	char type[64]; /* of what is mounted last there; "": nothing */
};

static void consider(const struct mount_line *m, void *arg)
{
	struct at *at = arg;

	if (strcmp(m->mountpoint, at->mnt) == 0)
		snprintf(at->type, sizeof(at->type), "%s", m->type);
}

/* Asks in a process of its own: a file system whose daemons are away does not
 * answer. */
static bool answers_enotconn(const char *mnt)
{
	struct statfs st;
	bool dead = false;
	int fd, status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(statfs(mnt, &st) < 0 && errno == ENOTCONN ? 1 : 0);
	if (pid < 0)
		return false;
	fd = pidfd_open(pid, 0);
	if (fd < 0 || local_wait_end(fd, ANSWER_MS))
		dead = waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		       WEXITSTATUS(status) == 1;
	else
		(void)kill(pid, SIGKILL); /* ends when the daemons are back */
	if (fd >= 0)
		close(fd);
	return dead;
}

enum mount_state local_mount_state(const char *mnt, pid_t pid)
{
	struct at at = { .mnt = mnt };

	mounts_each(consider, &at);
	if (!at.type[0])
		return MOUNT_NONE;
	if (strcmp(at.type, "fuse.hailfs") != 0)
		return MOUNT_OTHER;
	return pid == 0 && answers_enotconn(mnt) ? MOUNT_DEAD : MOUNT_LIVE;
}

int local_unmount(const char *mnt, bool lazy)
{
	char program[] = "fusermount3", u[] = "-u", z[] = "-z";
	char path[PATH_MAX + 16];
	char *argv[] = { program, u, lazy ? z : path, lazy ? path : NULL,
			 NULL };
	pid_t pid;

	if (umount2(mnt, lazy ? MNT_DETACH : 0) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	/* Not root: FUSE's own helper may. */
	snprintf(path, sizeof(path), "%s", mnt);
	pid = local_spawn(argv);
	return pid > 0 && local_spawn_wait(pid) ? 0 : -EPERM;
}
