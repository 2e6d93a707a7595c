/* hailctl: the mount table, and paths below a mount. */
#ifndef TOOLS_HAILCTL_MOUNTS_H
#define TOOLS_HAILCTL_MOUNTS_H

#include "common/base.h"

/* Calls @fn for each line of the mount table, in order. */
struct mount_line {
	const char *mountpoint, *type, *source;
};
void mounts_each(void (*fn)(const struct mount_line *m, void *arg), void *arg);
/* Makes an absolute path without ".", ".." and double slashes, by its text
 * alone: a file system that hangs is not touched. False: too long. */
bool mounts_absolute(const char *path, char *buf, size_t size);
/* The path inside the cluster of @path below a hailfs mount, by its text or
 * over symbolic links from elsewhere, or @path itself when it is below none.
 * @source: [PATH_MAX] gets the mount's source, which is its cluster file, or
 * "". False after a message. */
bool mounts_inside(const char *path, char *buf, size_t size, char *source);

#endif
