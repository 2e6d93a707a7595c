/* Identity and state of a data directory. */
#include "metad/datadir.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/daemon.h"

#define ID_FILE "metad.id"

static const char *const state_names[] = {
	[DATADIR_EMPTY] = "empty",
	[DATADIR_NEW] = "new",
	[DATADIR_OK] = "ok",
	[DATADIR_RESTORING] = "restoring",
	[DATADIR_RAISE] = "raise",
	[DATADIR_JOINED] = "joined",
};

static char *join(const char *dir, const char *name)
{
	char *p;

	return asprintf(&p, "%s/%s", dir, name) < 0 ? NULL : p;
}

static int lock(struct datadir *d, char *why, size_t why_size)
{
	char *path = join(d->path, "lock");
	int rv;

	if (!path)
		return -ENOMEM;
	d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	free(path);
	if (d->lock_fd < 0) {
		int err = errno;

		(void)snprintf(why, why_size, "cannot write to %s: %s",
			       d->path, strerror(err));
		return -err;
	}
	rv = daemon_lock(d->lock_fd, "hail-metad", d->path);
	if (rv == -EBUSY)
		(void)snprintf(why, why_size, "%s is in use by another "
			       "hail-metad: stop that one, or give this one "
			       "its own data directory", d->path);
	else if (rv < 0)
		(void)snprintf(why, why_size, "cannot lock %s: %s", d->path,
			       strerror(-rv));
	return rv;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static int remove_files(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	int rv = 0;

	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while (rv == 0 && (e = readdir(dir)))
		if (!is_dots(e->d_name) &&
		    unlinkat(dirfd(dir), e->d_name, 0) < 0)
			rv = -errno;
	(void)closedir(dir);
	return rv;
}

static bool has_nothing(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	bool nothing = dir != NULL;

	while (dir && nothing && (e = readdir(dir)))
		nothing = is_dots(e->d_name);
	if (dir)
		(void)closedir(dir);
	return nothing;
}

/* Nothing but our lock, what mkfs leaves, and what there is before the
 * directory has a state. */
static bool is_empty(const struct datadir *d)
{
	DIR *dir = opendir(d->path);
	const struct dirent *e;
	bool empty = dir != NULL;

	while (dir && empty && (e = readdir(dir)))
		empty = is_dots(e->d_name) || !strcmp(e->d_name, "lock") ||
			!strcmp(e->d_name, "reserve") ||
			!strcmp(e->d_name, "lost+found") ||
			!strcmp(e->d_name, ID_FILE ".n") ||
			(!strcmp(e->d_name, "raft") && has_nothing(d->raft));
	if (dir)
		(void)closedir(dir);
	return empty;
}

/* The first start was cut off, perhaps in the middle of making the log. Nobody
 * was told of anything in it yet, so it is made anew. */
static int start_over(struct datadir *d, char *why, size_t why_size)
{
	char *mark = join(d->path, "mark");
	int rv = mark ? remove_files(d->raft) : -ENOMEM;

	if (rv == 0 && unlink(mark) < 0 && errno != ENOENT)
		rv = -errno;
	free(mark);
	if (rv < 0) {
		(void)snprintf(why, why_size, "%s: what a first start that was "
			       "cut off has left cannot be removed: %s",
			       d->path, strerror(-rv));
		return rv;
	}
	d->state = DATADIR_EMPTY;
	return 0;
}

static int parse(struct datadir *d, char *text, char *why, size_t why_size)
{
	uint64_t cluster;
	uint32_t version = 0, id;
	char state[16];
	size_t i;

	if (sscanf(text, "hailfs-metad %" SCNu32, &version) != 1) {
		(void)snprintf(why, why_size, "%s/%s is damaged", d->path,
			       ID_FILE);
		return -EBADMSG;
	}
	if (version > DATADIR_VERSION) {
		(void)snprintf(why, why_size, "%s was written by a later "
			       "version of hail-metad (format %" PRIu32
			       ", this one knows %u)", d->path, version,
			       DATADIR_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (sscanf(text, "hailfs-metad %*u\ncluster 0x%" SCNx64
		   "\nid %" SCNu32 "\nstate %15s\n", &cluster, &id,
		   state) != 3) {
		(void)snprintf(why, why_size, "%s/%s is damaged", d->path,
			       ID_FILE);
		return -EBADMSG;
	}
	if (cluster != d->cluster_id || id != d->id) {
		(void)snprintf(why, why_size, "%s belongs to metad %" PRIu32
			       " of cluster 0x%016" PRIx64 ", not to metad %"
			       PRIu32 " of cluster 0x%016" PRIx64 "; check the "
			       "cluster file or --data", d->path, id,
			       cluster, d->id, d->cluster_id);
		return -EXDEV;
	}
	for (i = DATADIR_NEW; i < array_count(state_names); i++) {
		if (strcmp(state, state_names[i]) == 0) {
			d->state = (enum datadir_state)i;
			return 0;
		}
	}
	(void)snprintf(why, why_size, "%s/%s is damaged", d->path, ID_FILE);
	return -EBADMSG;
}

static int read_id(struct datadir *d, char *why, size_t why_size)
{
	char *path = join(d->path, ID_FILE);
	char text[512];
	ssize_t len;
	int fd;

	if (!path)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	free(path);
	if (fd < 0 && errno == ENOENT) {
		d->state = DATADIR_EMPTY;
		if (is_empty(d))
			return 0;
		(void)snprintf(why, why_size, "%s is not empty and holds no "
			       "metadata of hailfs", d->path);
		return -ENOTEMPTY;
	}
	len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (len < 0) {
		int err = errno;

		(void)snprintf(why, why_size, "cannot read %s/%s: %s", d->path,
			       ID_FILE, strerror(err));
		if (fd >= 0)
			(void)close(fd);
		return -err;
	}
	(void)close(fd);
	text[len] = '\0';
	return parse(d, text, why, why_size);
}

int datadir_open(struct datadir *d, const char *path, uint64_t cluster_id,
		 uint32_t id, char *why, size_t why_size)
{
	int rv;

	memset(d, 0, sizeof(*d));
	d->lock_fd = -1;
	d->cluster_id = cluster_id;
	d->id = id;
	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		rv = -errno;
		(void)snprintf(why, why_size, "cannot make %s: %s", path,
			       strerror(-rv));
		return rv;
	}
	d->path = realpath(path, NULL);
	if (!d->path) {
		rv = -errno;
		(void)snprintf(why, why_size, "%s: %s", path, strerror(-rv));
		return rv;
	}
	d->raft = join(d->path, "raft");
	rv = d->raft ? lock(d, why, why_size) : -ENOMEM;
	if (rv == 0)
		rv = read_id(d, why, why_size);
	if (rv == 0 && d->state == DATADIR_NEW)
		rv = start_over(d, why, why_size);
	if (rv < 0)
		datadir_close(d);
	return rv;
}

static int sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rv = fd < 0 || fsync(fd) < 0 ? -errno : 0;

	if (fd >= 0)
		(void)close(fd);
	return rv;
}

static int write_file(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int rv = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len || fsync(fd) < 0)
		rv = errno ? -errno : -ENOSPC;
	if (close(fd) < 0 && rv == 0)
		rv = -errno;
	return rv;
}

int datadir_set(struct datadir *d, enum datadir_state state)
{
	char *path = join(d->path, ID_FILE), *tmp = join(d->path, ID_FILE ".n");
	char text[256];
	int len, rv = -ENOMEM;

	if (!path || !tmp)
		goto out;
	if (mkdir(d->raft, 0700) < 0 && errno != EEXIST) {
		rv = -errno;
		goto out;
	}
	len = snprintf(text, sizeof(text), "hailfs-metad %u\n"
		       "cluster 0x%016" PRIx64 "\nid %" PRIu32 "\nstate %s\n",
		       DATADIR_VERSION, d->cluster_id, d->id,
		       state_names[state]);
	errno = 0;
	rv = write_file(tmp, text, (size_t)len);
	if (rv == 0 && rename(tmp, path) < 0)
		rv = -errno;
	if (rv == 0)
		rv = sync_dir(d->path);
	if (rv == 0)
		d->state = state;
out:
	free(path);
	free(tmp);
	return rv;
}

void datadir_close(struct datadir *d)
{
	if (d->lock_fd >= 0)
		(void)close(d->lock_fd);
	free(d->path);
	free(d->raft);
	memset(d, 0, sizeof(*d));
	d->lock_fd = -1;
}
