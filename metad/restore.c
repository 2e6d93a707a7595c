/* Bootstrap and restore. */
#include "metad/restore.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/diag.h"
#include "metad/copy.h"
#include "metad/monitor.h"

#define INO_MARGIN 1000000u
#define SESSION_MARGIN 1000u
#define EPOCH_MARGIN 1000u

int restore_bootstrap(struct metad *md)
{
	struct sm_bootstrap m = { .now_ns = metad_realtime_ns(),
				  .mode = 0755 };
	struct cmap *map = cmap_new();
	uint8_t *buf = NULL, *map_buf = NULL;
	struct wire_out o;
	struct sm_reply r;
	size_t len;
	uint32_t i;
	int rv = -ENOMEM;

	if (!map)
		return -ENOMEM;
	map->cluster_id = md->cluster_id;
	map->replica_count = md->conf->replicas;
	for (i = 0; i < md->conf->blockd_count; i++) {
		const struct conf_daemon *c = &md->conf->blockds[i];
		struct cmap_daemon d = { .id = c->id, .port = c->port };

		(void)snprintf(d.addr, sizeof(d.addr), "%s", c->addr);
		rv = cmap_add_daemon(map, &d);
		if (rv < 0)
			goto out;
	}
	cmap_fill_slots(map);
	len = cmap_encoded_size(map);
	map_buf = malloc(len);
	buf = malloc(len + 64);
	rv = -ENOMEM;
	if (!map_buf || !buf)
		goto out;
	wire_out_init(&o, map_buf, len);
	cmap_encode(&o, map);
	m.map.p = map_buf;
	m.map.len = (uint32_t)o.len;
	wire_out_init(&o, buf, len + 64);
	sm_bootstrap_encode(&o, &m);
	assert(!o.overflow);
	metad_propose(md, WIRE_OP_SM_BOOTSTRAP, 0, buf, o.len, &r);
	rv = r.status;
out:
	free(buf);
	free(map_buf);
	cmap_free(map);
	return rv;
}

/* ---- backup file ---- */

static int read_all(const char *path, uint8_t **ret, size_t *ret_len)
{
	struct stat st;
	size_t len = 0;
	ssize_t got;
	uint8_t *p = NULL;
	int rv = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		rv = -errno;
	else if (!S_ISREG(st.st_mode))
		rv = -EINVAL;
	else if (!(p = malloc((size_t)st.st_size + 1)))
		rv = -ENOMEM;
	while (rv == 0 && len < (size_t)st.st_size) {
		got = read(fd, p + len, (size_t)st.st_size - len);
		if (got <= 0)
			rv = got < 0 ? -errno : -EIO;
		else
			len += (size_t)got;
	}
	(void)close(fd);
	if (rv < 0) {
		free(p);
		return rv;
	}
	*ret = p;
	*ret_len = len;
	return 0;
}

/* What is to be restored: a backup, or a base and what came after it. */
struct source {
	char base[PATH_MAX], log[PATH_MAX];
	uint8_t *bytes;
	size_t len;
	FILE *f; /* the log; NULL: none */
};

/* Returns 0, or -errno of what @s->base names. */
static int source_open(struct source *s, const char *path)
{
	int64_t gen, newest = copy_newest(path);
	int rv;

	if (newest == -ENOTDIR) {
		(void)snprintf(s->base, sizeof(s->base), "%s", path);
		return read_all(path, &s->bytes, &s->len);
	}
	(void)snprintf(s->base, sizeof(s->base), "%s", path);
	/* One that is being written may go on to its next generation now, and
	 * remove these files; not both before the next base is there. */
	do {
		if (newest <= 0)
			return newest < 0 ? (int)newest : -ENODATA;
		gen = newest;
		free(s->bytes);
		s->bytes = NULL;
		if (s->f)
			fclose(s->f);
		(void)snprintf(s->base, sizeof(s->base), "%s/base-%012" PRId64,
			       path, gen);
		(void)snprintf(s->log, sizeof(s->log), "%s/log-%012" PRId64,
			       path, gen);
		rv = read_all(s->base, &s->bytes, &s->len);
		s->f = rv < 0 ? NULL : fopen(s->log, "re");
		if (rv == 0 && !s->f && errno != ENOENT) {
			rv = -errno;
			(void)snprintf(s->base, sizeof(s->base), "%s", s->log);
		}
		newest = copy_newest(path);
	} while (newest != gen);
	return rv;
}

static int source_load(struct sm *sm, const struct source *s, char *why,
		       size_t why_size)
{
	int rv = sm_restore(sm, s->bytes, s->len);

	if (rv == 0)
		return s->f ? copy_read_log(sm, s->f, s->log, why, why_size) :
			      0;
	(void)snprintf(why, why_size, "%s %s", s->base,
		       rv == -EPROTONOSUPPORT ?
			       "is of a later version of hail-metad" :
		       rv == -ENOMEM ?
			       "does not fit into memory" :
			       "is no backup of hail-metad, or damaged");
	return rv;
}

int restore_read(struct metad *md, const char *path, char *why,
		 size_t why_size)
{
	struct source s = { .f = NULL };
	int rv = source_open(&s, path);

	if (rv == -ENODATA)
		(void)snprintf(why, why_size, "%s has no copy of hail-metad",
			       path);
	else if (rv < 0)
		(void)snprintf(why, why_size, "cannot read %s: %s", s.base,
			       strerror(-rv));
	else
		rv = source_load(md->sm, &s, why, why_size);
	free(s.bytes);
	if (s.f)
		fclose(s.f);
	if (rv < 0 || sm_map(md->sm)->cluster_id == md->cluster_id)
		return rv;
	(void)snprintf(why, why_size, "%s is of cluster 0x%016" PRIx64
		       ", the cluster file says 0x%016" PRIx64, s.base,
		       sm_map(md->sm)->cluster_id, md->cluster_id);
	return -EXDEV;
}

/* ---- counters ---- */

static void raised(struct durable_wait *w)
{
	struct metad *md = container_of(w, struct metad, raise_wait);
	int rv = datadir_set(md->dir, DATADIR_OK);

	if (rv < 0) {
		md->stop(md, "the data directory cannot be written");
		return;
	}
	diag_info("restore", "event=done what=\"clients are let in\"");
	w->fn = NULL;
	monitor_on_register(md->monitor, NULL);
	/* Not before: what is of inodes that were never made is purged when a
	 * session ends, which must not be what came after the backup. */
	md->serving = true;
}

static void on_register(struct metad *md)
{
	const struct cmap *map = sm_map(md->sm);
	struct sm_raise m = { .ino = 0 };
	struct sm_reply r;
	uint32_t i;

	if (md->raise_wait.fn)
		return;
	for (i = 0; i < map->daemon_count; i++) {
		const struct monitor_daemon *d =
			monitor_find(md->monitor, map->daemons[i].id);

		/* A store that is lost has nothing to say. */
		if (map->daemons[i].state == CMAP_STATE_LOST)
			continue;
		if (!d || !d->seen) {
			diag_info("restore", "event=waiting blockd=%" PRIu32,
				  map->daemons[i].id);
			return;
		}
		m.ino = u64_max(m.ino, d->ino_max);
		m.session = u64_max(m.session, d->session_max);
		m.epoch = u64_max(m.epoch, d->epoch_max);
	}
	m.ino += INO_MARGIN;
	m.session += SESSION_MARGIN;
	m.epoch = u64_max(m.epoch, map->epoch) + EPOCH_MARGIN;
	/* Nobody tells the largest cut number, but no more cuts can have been
	 * made than microseconds have passed. */
	m.cut = (uint64_t)metad_realtime_ns() / 1000;
	/* Nor need the log daemons be there: the same holds for logs. */
	m.log_epoch = u64_max(m.cut, sm_log_epoch(md->sm) + EPOCH_MARGIN);
	METAD_PROPOSE(md, WIRE_OP_SM_RAISE, sm_raise, &m, &r);
	if (r.status < 0) {
		md->stop(md, "the counters of the backup cannot be raised");
		return;
	}
	md->raise_wait.fn = raised;
	metad_when_durable(md, &md->raise_wait, sm_pos(md->sm));
}

void restore_wait(struct metad *md)
{
	monitor_on_register(md->monitor, on_register);
	on_register(md); /* a cluster without block daemons */
}

void restore_older(struct metad *md, const struct monitor_daemon *d)
{
	struct sm_session_info s;
	uint64_t after = 0;
	int rv;

	if (!md->serving)
		return; /* the counters are to be raised already */
	md->older = true;
	diag_err("restore", "event=older-metadata blockd=%" PRIu32
		 " session=%" PRIu64 " next_session=%" PRIu64 " ino=%" PRIu64
		 " next_ino=%" PRIu64 " what=\"the data directory is an older "
		 "copy than the block stores; nothing newer is purged: put the "
		 "newer directory back, or go on, and see hailctl fsck\"",
		 d->id, d->session_max, sm_next_session(md->sm), d->ino_max,
		 sm_next_ino(md->sm));
	rv = datadir_set(md->dir, DATADIR_RAISE);
	if (rv < 0) {
		md->stop(md, "the data directory cannot be written");
		return;
	}
	md->serving = false;
	while (sm_session_list(md->sm, after, &s, 1) == 1) {
		after = s.session;
		serve_close_session(md, s.session);
	}
	restore_wait(md);
}
