/* Where our mount is reached once its mount point shows something else: what
 * umount -l took away lives on in the files that are open, and what is mounted
 * over still is below. Nobody asks the daemon anything for it: a directory kept
 * open would make every umount fail with EBUSY.
 */
#include "fuse/rim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/diag.h"

/* Of what the kernel knows; 0: not to be told. */
static dev_t dev_at(int at, const char *name, uint16_t *mode)
{
	struct statx st;

	if (statx(at, name, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE,
		  &st))
		return 0;
	*mode = st.stx_mode;
	return makedev(st.stx_dev_major, st.stx_dev_minor);
}

dev_t rim_dev(const char *mountpoint)
{
	uint16_t mode;

	return dev_at(AT_FDCWD, mountpoint, &mode);
}

/* A link of /proc, through which a file is had that has no path. */
static int reach_link(int at, const char *name, dev_t dev)
{
	uint16_t mode;

	if (dev_at(at, name, &mode) != dev ||
	    (!S_ISREG(mode) && !S_ISDIR(mode)))
		return -1;
	return openat(at, name, O_RDONLY | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
}

/* Any of the links in the directory @name. */
static int reach_links(int at, const char *name, dev_t dev)
{
	int dir_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = dir_fd < 0 ? NULL : fdopendir(dir_fd);
	struct dirent *e;
	int fd = -1;

	while (fd < 0 && dir && (e = readdir(dir)))
		fd = reach_link(dir_fd, e->d_name, dev);
	if (dir)
		closedir(dir);
	else if (dir_fd >= 0)
		close(dir_fd);
	return fd;
}

static int reach_process(int proc, const char *pid, dev_t dev)
{
	int at = openat(proc, pid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = at < 0 ? -1 : reach_links(at, "fd", dev);

	if (at >= 0 && fd < 0)
		fd = reach_links(at, "map_files", dev);
	if (at >= 0)
		close(at);
	return fd;
}

int rim_reach(const char *mountpoint, dev_t dev)
{
	int at = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	uint16_t mode;

	if (at >= 0 && (dev == 0 || dev_at(at, "", &mode) == dev))
		fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (at >= 0)
		close(at);
	if (fd >= 0 || dev == 0)
		return fd;
	DIR *proc = opendir("/proc");
	struct dirent *e;
	while (fd < 0 && proc && (e = readdir(proc)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			fd = reach_process(dirfd(proc), e->d_name, dev);
	if (proc)
		closedir(proc);
	return fd;
}

void rim_unmount(struct rim *r)
{
	int end[2];

	/* libfuse unmounts whatever lies at the mount point, but for a device
	 * that has the connection no more. Its end has callers told, and the
	 * mount goes with its last file. */
	if (r->dev != 0 && rim_dev(r->mountpoint) != r->dev &&
	    pipe2(end, O_CLOEXEC) == 0) {
		close(end[0]);
		(void)dup3(end[1], fuse_session_fd(r->se), O_CLOEXEC);
		close(end[1]);
	}
	fuse_session_unmount(r->se);
}
