/* The store's way to the disk: asynchronous I/O on numbered files, so that
 * the real thing (blockd/ring.c: io_uring) and a faulty one (tests/lib) can
 * stand behind it. All on the loop's thread.
 */
#ifndef BLOCKD_DEV_H
#define BLOCKD_DEV_H

#include "common/base.h"

enum dev_op {
	DEV_READ,
	DEV_WRITE,
	DEV_WRITE_DSYNC, /* on disk when done, with what a read of it needs */
	DEV_FLUSH, /* fdatasync */
};

/* One I/O; the caller's memory until @done. Offsets, lengths and @buf are
 * multiples of 4096 (O_DIRECT). */
struct dev_io {
	enum dev_op op;
	int file; /* from dev_open() */
	uint64_t off;
	void *buf;
	uint32_t len;
	/* @res: 0 when all was done (short counts are continued inside), or
	 * -errno. Never before dev_submit() returned. */
	void (*done)(struct dev_io *io, int res);
	void *priv[4];
};

struct dev {
	const struct dev_vtable *vt;
};

struct dev_vtable {
	/* Opens (O_DIRECT where the file system can) or creates @name under
	 * the store's directory. Returns a file number >= 0 or -errno. */
	int (*open)(struct dev *d, const char *name, bool create);
	void (*close)(struct dev *d, int file);
	int (*size)(struct dev *d, int file, uint64_t *ret);
	/* ftruncate or fallocate to @size; blocking, start-up and growth. */
	int (*resize)(struct dev *d, int file, uint64_t size);
	/* Blocking pwrite/pread of any alignment, start-up only. */
	int (*write_now)(struct dev *d, int file, uint64_t off,
			 const void *buf, size_t len);
	int (*read_now)(struct dev *d, int file, uint64_t off, void *buf,
			size_t len);
	int (*sync_now)(struct dev *d, int file);
	/* Takes the name away; an open file stays usable. Any thread. */
	int (*unlink)(struct dev *d, const char *name);
	/* fsync of the directory. */
	int (*sync_dir)(struct dev *d);
	/* Bytes free in the underlying file system (for statfs truth). */
	int (*space)(struct dev *d, uint64_t *free_bytes);
	void (*submit)(struct dev *d, struct dev_io *io);
	/* Run @fn(@arg) on the loop's thread soon; callable from any thread. */
	void (*post)(struct dev *d, void (*fn)(void *arg), void *arg);
	/* Milliseconds of CLOCK_MONOTONIC. */
	uint64_t (*now_ms)(struct dev *d);
};

#endif
