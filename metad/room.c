/* Libraft cannot go on after a write that failed, so the disk must never be
 * quite full: block daemons leave some of a shared disk (ring_dev.c), and what
 * others take is answered with a reserve given back step by step, meanwhile
 * nothing may be created. A tool that fills a disk stops at the first error;
 * one that goes on takes the reserve, too, and then metad stops. */
#include "metad/room.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/diag.h"

#define RESERVE_MAX (64u << 20)
#define STEPS 4u
/* Less than this, and the disk counts as full: libraft prepares segments of
 * 8 MiB, two ahead. */
#define SCARCE_BYTES (32u << 20)
/* Of a small disk no more than these parts. */
#define RESERVE_PART 32u
#define SCARCE_PART 16u
#define LOOK_MS 100u
/* This much cannot be written between two looks. */
#define AMPLE_BYTES ((uint64_t)8 << 30)
#define LOOK_AMPLE_MS 1000u

struct room {
	struct metad *md;
	uv_timer_t timer;
	int dir; /* the data directory */
	int fd; /* of the reserve; < 0: there is none */
	uint64_t reserve; /* bytes allocated */
	bool full;
	bool closed;
};

struct disk {
	uint64_t avail, scarce, reserve_max; /* bytes */
};

static int disk_look(int fd, struct disk *d)
{
	struct statvfs v;
	uint64_t all;

	if (fstatvfs(fd, &v) < 0)
		return -errno;
	all = (uint64_t)v.f_blocks * v.f_frsize;
	/* What ext4 keeps for root is for us, too: else the reserve would go
	 * to a tool of root's that is still filling it. */
	d->avail = (uint64_t)(geteuid() == 0 ? v.f_bfree : v.f_bavail) *
		   v.f_frsize;
	d->scarce = u64_min(SCARCE_BYTES, all / SCARCE_PART);
	d->reserve_max = u64_round_down(u64_min(RESERVE_MAX,
						all / RESERVE_PART),
					STEPS * 4096);
	return 0;
}

static int dir_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int reserve_open(int dir)
{
	int fd = openat(dir, "reserve", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

void room_prepare(const char *path)
{
	int dir = dir_open(path);
	int fd = dir < 0 ? dir : reserve_open(dir);
	struct disk d = { .avail = 0 };

	if (dir >= 0)
		(void)close(dir);
	if (fd < 0)
		return; /* said when it is missed: room_new() */
	if (disk_look(fd, &d) == 0 && d.avail < d.scarce &&
	    ftruncate(fd, 0) < 0)
		diag_warn("room", "event=reserve_kept error=\"%s\"",
			  strerror(errno));
	(void)close(fd);
}

static void full_set(struct room *r, bool full, uint64_t avail)
{
	if (r->full == full)
		return;
	r->full = full;
	if (full)
		diag_warn("room", "event=disk_full free=%" PRIu64 " reserve=%"
			  PRIu64 " creating=refused", avail, r->reserve);
	else
		diag_info("room", "event=disk_has_room free=%" PRIu64, avail);
}

static void give_back(struct room *r, uint64_t bytes)
{
	bytes = u64_min(bytes, r->reserve);
	if (bytes == 0)
		return;
	r->reserve -= bytes;
	if (ftruncate(r->fd, (off_t)r->reserve) < 0)
		diag_warn("room", "event=reserve_kept error=\"%s\"",
			  strerror(errno));
	/* What a snapshot lets go of the log is room, too. */
	metaraft_snapshot_soon(r->md->raft);
}

/* Blocks count, not the length: a copied directory may have holes. */
static void reserve_measure(struct room *r)
{
	struct stat st;

	if (r->fd >= 0 && fstat(r->fd, &st) == 0)
		r->reserve = u64_min((uint64_t)st.st_size,
				     (uint64_t)st.st_blocks * 512);
}

static void reserve_grow(struct room *r, uint64_t step)
{
	if (r->fd < 0) {
		r->fd = reserve_open(r->dir);
		reserve_measure(r);
	}
	if (r->fd >= 0 &&
	    fallocate(r->fd, 0, (off_t)r->reserve, (off_t)step) == 0)
		r->reserve += step;
}

static void judge(struct room *r, const struct disk *d)
{
	uint64_t step = d->reserve_max / STEPS;

	if (d->avail < d->scarce) {
		full_set(r, true, d->avail);
		if (d->avail < d->scarce / 2)
			give_back(r, step);
		return;
	}
	/* What is taken must not make it scarce again. */
	if (r->reserve < d->reserve_max && d->avail >= d->scarce + 2 * step)
		reserve_grow(r, step);
	/* A part of the reserve will do, where there is no more. */
	if (d->avail >= d->scarce + step)
		full_set(r, false, d->avail);
}

static void look(struct room *r)
{
	struct disk d = { .avail = 0 };

	/* What cannot be told now may be told later. */
	if (disk_look(r->dir, &d) == 0)
		judge(r, &d);
	(void)uv_timer_start(&r->timer, r->timer.timer_cb,
			     d.avail < AMPLE_BYTES ? LOOK_MS : LOOK_AMPLE_MS,
			     0);
}

static void on_look(uv_timer_t *t)
{
	look(t->data);
}

int room_new(struct metad *md, const char *dir, struct room **ret)
{
	struct room *r = calloc(1, sizeof(*r));
	struct disk d = { .avail = 0 };
	int rv;

	if (!r)
		return -ENOMEM;
	r->md = md;
	r->closed = true;
	r->fd = -1;
	*ret = r;
	r->dir = dir_open(dir);
	if (r->dir < 0)
		return r->dir;
	r->fd = reserve_open(r->dir);
	if (r->fd < 0)
		diag_warn("room", "event=no_reserve path=%s/reserve "
			  "error=\"%s\" what=\"nothing is kept for when the "
			  "disk is full; tried again when it has room\"", dir,
			  strerror(-r->fd));
	reserve_measure(r);
	r->full = disk_look(r->dir, &d) == 0 && d.avail < d.scarce;
	rv = uv_timer_init(&md->loop, &r->timer);
	if (rv < 0)
		return rv;
	r->closed = false;
	r->timer.data = r;
	return uv_timer_start(&r->timer, on_look, 0, 0);
}

bool room_full(const struct room *r)
{
	return r->full;
}

void room_stop(struct room *r)
{
	if (r && !r->closed) {
		r->closed = true;
		uv_close((uv_handle_t *)&r->timer, NULL);
	}
}

void room_free(struct room *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		(void)close(r->fd);
	if (r->dir >= 0)
		(void)close(r->dir);
	free(r);
}
