/* Mount options: ours, the kernel's, and what mount(8) does to both. [pure]
 */
#ifndef FUSE_OPTIONS_H
#define FUSE_OPTIONS_H

#include "common/base.h"

enum uring_choice { URING_AUTO, URING_ON, URING_OFF };

struct mount_options {
	const char *source; /* cluster file */
	const char *mountpoint;
	bool foreground, debug, remount, read_only, noatime, nodiratime;
	bool strictatime;
	bool dirsync; /* or sync: of bytes the kernel takes care */
	bool shared; /* other mounts may be there */
	bool writeback, hard, fake; /* fake: -f of mount(8): check only */
	bool allow_other, quiet_unknown;
	int uring; /* enum uring_choice */
	int transport; /* enum core_log_transport */
	uint64_t wb_size, prefetch, timeo_ms, flush_age_ms, metrics_port;
	uint64_t threads, max_background;
	char *log, *pidfile, *debug_list;
	bool show_help, show_version;
	/* For the kernel's mount: "rw,dev,suid,..." built from what was given
	 * and the defaults a root mount has; allocated. */
	char *kernel_opts;
	unsigned long remount_flags; /* MS_* for -o remount */
};

/* Parses argv of hailfs, mount.hailfs and mount.fuse.hailfs.
 * Returns 0, or -EINVAL or -ENOMEM with a sentence in @why. */
int mount_options_parse(struct mount_options *o, int argc, char **argv,
			char *why, size_t why_size);
void mount_options_fini(struct mount_options *o);
void mount_options_help(FILE *out);

#endif
