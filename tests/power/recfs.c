/* A disk that remembers: one file, "disk", to put a loop device on; every
 * write and every flush goes into a log in the order they came, so that replay
 * can make the disk as it would be after a power cut at any moment.
 *
 *	recfs LOG COUNTER SIZE_MIB MOUNTPOINT     (foreground, ends on umount)
 *
 * LOG: records of struct rec_header and data (none for zeros). COUNTER: a file
 * of 8 bytes, the number of records so far, for mapping; the disk itself is a
 * file without a name beside it.
 *
 * A disk that fails: while the file $DISK_FAULT exists, flushes (it says
 * "flush") or writes and flushes (it says "write") end with EIO and change
 * nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/power/rec.h"

#define DISK_INO 2

static int log_fd, disk_fd;
static off_t disk_size;
static uint64_t *counter;

static void r_stat(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_mode = ino == DISK_INO ? S_IFREG | 0600 : S_IFDIR | 0755;
	st->st_size = ino == DISK_INO ? disk_size : 0;
	st->st_blksize = 4096;
}

static void r_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .ino = DISK_INO, .attr_timeout = 3600,
				      .entry_timeout = 3600 };
	(void)parent;
	if (strcmp(name, "disk") != 0) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	r_stat(DISK_INO, &e.attr);
	fuse_reply_entry(req, &e);
}

static void r_getattr(fuse_req_t req, fuse_ino_t ino,
		      struct fuse_file_info *fi)
{
	struct stat st;
	(void)fi;
	r_stat(ino, &st);
	fuse_reply_attr(req, &st, 3600);
}

static void r_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		      int to_set, struct fuse_file_info *fi)
{
	(void)attr;
	(void)to_set;
	r_getattr(req, ino, fi); /* times are nobody's concern */
}

static void r_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	/* No page cache between the loop device and the log. */
	fi->direct_io = 1;
	fuse_reply_open(req, fi);
}

static void r_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	char *buf = malloc(size);
	(void)ino;
	(void)fi;
	ssize_t got = buf ? pread(disk_fd, buf, size, off) : -1;
	if (got < 0)
		fuse_reply_err(req, EIO);
	else
		fuse_reply_buf(req, buf, (size_t)got);
	free(buf);
}

static int all_zero(const char *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static int record(uint32_t type, uint64_t off, const char *data, size_t len)
{
	struct rec_header h = { REC_MAGIC, type, off, len };
	if (write(log_fd, &h, sizeof(h)) != sizeof(h))
		return -1;
	if (type == REC_WRITE && write(log_fd, data, len) != (ssize_t)len)
		return -1;
	__atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
	return 0;
}

/* @what: 'w' a write, 'f' a flush */
static int faulty(char what)
{
	const char *path = getenv("DISK_FAULT");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char is = 0;
	if (fd < 0)
		return 0;
	if (read(fd, &is, 1) != 1)
		is = 0; /* it is being written */
	close(fd);
	return is == 'w' || is == what;
}

static void r_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		    size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	uint32_t type = all_zero(buf, size) ? REC_ZERO : REC_WRITE;
	if (faulty('w') ||
	    pwrite(disk_fd, buf, size, off) != (ssize_t)size ||
	    record(type, (uint64_t)off, buf, size)) {
		fuse_reply_err(req, EIO);
		return;
	}
	fuse_reply_write(req, size);
}

static void r_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		    struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	int bad = faulty('f') || record(REC_FLUSH, 0, NULL, 0);
	fuse_reply_err(req, bad ? EIO : 0);
}

static void r_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
			off_t len, struct fuse_file_info *fi)
{
	(void)ino;
	(void)mode;
	(void)off;
	(void)len;
	(void)fi;
	fuse_reply_err(req, EOPNOTSUPP); /* discards: writes tell everything */
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = r_lookup,
	.getattr = r_getattr,
	.setattr = r_setattr,
	.open = r_open,
	.read = r_read,
	.write = r_write,
	.fsync = r_fsync,
	.fallocate = r_fallocate,
};

int main(int argc, char **argv)
{
	char name[] = "recfs", dash_o[] = "-o";
	char opts[] = "fsname=recfs,default_permissions";
	char *fargv[] = { name, dash_o, opts, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, fargv);
	if (argc != 5) {
		fprintf(stderr, "usage: recfs LOG COUNTER SIZE_MIB "
			"MOUNTPOINT\n");
		return 2;
	}
	disk_size = (off_t)strtoull(argv[3], NULL, 10) << 20;
	log_fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	int count_fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *beside = strdup(argv[2]);
	if (!beside)
		return 1;
	disk_fd = open(dirname(beside), O_RDWR | O_TMPFILE, 0600);
	free(beside);
	if (log_fd < 0 || count_fd < 0 || disk_fd < 0 ||
	    ftruncate(count_fd, 8))
		return 1;
	counter = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, count_fd,
		       0);
	if (counter == MAP_FAILED || ftruncate(disk_fd, disk_size))
		return 1;
	struct fuse_session *se =
		fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!se || fuse_session_mount(se, argv[4]))
		return 1;
	/* One thread: the log's order is the order of completion. */
	int res = fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	fuse_opt_free_args(&args);
	return res != 0;
}
