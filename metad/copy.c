/* Writing a copy: what the loop hands over, and the thread that writes it. */
#include "metad/copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/diag.h"

#define LOG_BYTES_MIN (64u << 20)
#define QUEUE_BYTES_MAX (64u << 20)
#define PIECE_BYTES (1u << 20)
#define LOOK_MS 200u
#define RETRY_MS 10000u
#define END_MS 5000
#define FRAME_HEAD 12u

struct item {
	struct item *next;
	uint64_t batch;
	size_t len;
	uint8_t bytes[];
};

struct copy {
	struct copy_options o;
	uv_timer_t timer;
	char *path;
	int dir; /* locked */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* Under the lock */
	bool stop;
	bool follows; /* batches are wanted */
	uint64_t durable; /* batches up to this one may be written */
	struct sm_snap *snap; /* to be written; the thread's while it is */
	uint64_t snap_batch; /* its last */
	bool snap_done; /* to be ended by the loop */
	bool anew; /* a generation is to begin */
	uint64_t anew_ms; /* not before */
	struct item *head, **tail; /* in order */
	uint64_t queued;
	int error;
	/* The thread's */
	uint64_t gen, base_bytes, log_bytes;
	int log; /* -1: none */
};

static void list_free(struct item *i)
{
	while (i) {
		struct item *next = i->next;

		free(i);
		i = next;
	}
}

static void queue_drop(struct copy *c)
{
	list_free(c->head);
	c->head = NULL;
	c->tail = &c->head;
	c->queued = 0;
}

/* What is durable of it. Lock held. */
static struct item *queue_take(struct copy *c)
{
	struct item *list = c->head, **end = &list;

	while (*end && (*end)->batch <= c->durable) {
		c->queued -= (*end)->len;
		end = &(*end)->next;
	}
	c->head = *end;
	if (!c->head)
		c->tail = &c->head;
	*end = NULL;
	return list;
}

/* Lock held. */
static bool base_due(const struct copy *c)
{
	return c->snap && !c->snap_done && c->snap_batch <= c->durable;
}

static bool log_due(const struct copy *c)
{
	return !(c->snap && !c->snap_done) && c->head &&
	       c->head->batch <= c->durable;
}

/* Until then the log misses what comes. Lock held. */
static void begin_anew(struct copy *c, int error, uint64_t delay_ms)
{
	if (error && error != c->error)
		diag_warn("copy", "event=failed dir=%s error=\"%s\" what=\"it "
			  "is begun anew\"", c->path, strerror(-error));
	c->error = error;
	c->follows = false;
	c->anew = true;
	c->anew_ms = clock_now_ms(CLOCK_MONOTONIC) + delay_ms;
	queue_drop(c);
}

void copy_batch(struct copy *c, const void *buf, size_t len)
{
	struct wire_in in;

	if (!c)
		return;
	wire_in_init(&in, buf, len);
	pthread_mutex_lock(&c->lock);
	if (c->follows && c->queued + len <= QUEUE_BYTES_MAX) {
		struct item *i = malloc(sizeof(*i) + len);

		if (i) {
			i->next = NULL;
			i->batch = wire_get_u64(&in);
			i->len = len;
			memcpy(i->bytes, buf, len);
			*c->tail = i;
			c->tail = &i->next;
			c->queued += len;
		} else {
			begin_anew(c, -ENOMEM, RETRY_MS);
		}
	} else if (c->follows) {
		begin_anew(c, -ENOBUFS, RETRY_MS); /* too slow for it */
	}
	pthread_mutex_unlock(&c->lock);
}

void copy_durable(struct copy *c, uint64_t batch)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->durable = batch;
	if (base_due(c) || log_due(c))
		pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ---- */

static int write_all(int fd, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		p += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static void gen_name(uint64_t gen, const char *what, char *buf, size_t size)
{
	snprintf(buf, size, "%s-%012" PRIu64, what, gen);
}

/* Also what a cut-off base left. */
static void remove_before(struct copy *c, uint64_t gen)
{
	DIR *d = fdopendir(fcntl(c->dir, F_DUPFD_CLOEXEC, 0));
	const struct dirent *e;

	if (!d)
		return;
	rewinddir(d);
	while ((e = readdir(d))) {
		uint64_t g;

		if ((sscanf(e->d_name, "base-%" SCNu64, &g) == 1 ||
		     sscanf(e->d_name, "log-%" SCNu64, &g) == 1) && g < gen)
			(void)unlinkat(c->dir, e->d_name, 0);
	}
	closedir(d);
}

static int write_base(struct copy *c, struct sm_snap *snap)
{
	char part[80], name[64];
	uint8_t *piece = malloc(PIECE_BYTES);
	size_t got;
	int rv = 0, fd;

	gen_name(c->gen, "base", name, sizeof(name));
	snprintf(part, sizeof(part), "%s.part", name);
	fd = openat(c->dir, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		    0600);
	if (!piece || fd < 0)
		rv = !piece ? -ENOMEM : -errno;
	c->base_bytes = 0;
	while (rv == 0 && (got = sm_snap_next(snap, piece, PIECE_BYTES)) > 0) {
		rv = write_all(fd, piece, got);
		c->base_bytes += got;
	}
	if (rv == 0 && fsync(fd) < 0)
		rv = -errno;
	if (fd >= 0 && close(fd) < 0 && rv == 0)
		rv = -errno;
	if (rv == 0 && renameat(c->dir, part, c->dir, name) < 0)
		rv = -errno;
	if (rv < 0)
		(void)unlinkat(c->dir, part, 0);
	free(piece);
	return rv;
}

static int write_generation(struct copy *c, struct sm_snap *snap)
{
	char name[64];
	int rv;

	if (c->log >= 0)
		close(c->log);
	c->gen++;
	c->log_bytes = 0;
	/* The log first: a base without one is a copy all the same, but a
	 * base whose log was left over from another would not be. */
	gen_name(c->gen, "log", name, sizeof(name));
	c->log = openat(c->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0600);
	if (c->log < 0 || fsync(c->dir) < 0)
		return -errno;
	rv = write_base(c, snap);
	if (rv < 0)
		(void)unlinkat(c->dir, name, 0);
	else if (fsync(c->dir) < 0)
		rv = -errno;
	if (rv < 0)
		return rv;
	remove_before(c, c->gen);
	diag_info("copy", "event=base dir=%s generation=%" PRIu64
		  " bytes=%" PRIu64, c->path, c->gen, c->base_bytes);
	return 0;
}

static int write_items(struct copy *c, const struct item *i)
{
	int rv = 0;

	for (; i && rv == 0; i = i->next) {
		uint8_t head[FRAME_HEAD];
		struct wire_out o;

		wire_out_init(&o, head, sizeof(head));
		wire_put_u32(&o, COPY_MAGIC);
		wire_put_u32(&o, (uint32_t)i->len);
		wire_put_u32(&o, crc32c(0, i->bytes, i->len));
		rv = write_all(c->log, head, sizeof(head));
		if (rv == 0)
			rv = write_all(c->log, i->bytes, i->len);
		c->log_bytes += sizeof(head) + i->len;
	}
	if (rv == 0 && fdatasync(c->log) < 0)
		rv = -errno;
	return rv;
}

/* Lock held; given up while it writes. */
static void write_some(struct copy *c)
{
	struct sm_snap *snap = base_due(c) ? c->snap : NULL;
	struct item *list = snap ? NULL : queue_take(c);
	int rv;

	pthread_mutex_unlock(&c->lock);
	rv = snap ? write_generation(c, snap) : write_items(c, list);
	list_free(list);
	pthread_mutex_lock(&c->lock);
	if (snap)
		c->snap_done = true;
	if (rv < 0) {
		begin_anew(c, rv, RETRY_MS);
	} else if (snap) {
		c->error = 0;
	} else if (!c->anew && !c->snap && c->log_bytes > LOG_BYTES_MIN &&
		   c->log_bytes > c->base_bytes) {
		/* The log goes on until the loop takes the new base. */
		c->anew = true;
		c->anew_ms = clock_now_ms(CLOCK_MONOTONIC);
	}
}

static void *run(void *arg)
{
	struct copy *c = arg;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		if (base_due(c) || log_due(c))
			write_some(c);
		else if (c->stop)
			break;
		else
			pthread_cond_wait(&c->wake, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- the loop ---- */

static void look(uv_timer_t *t)
{
	struct copy *c = t->data;
	struct sm_snap *done = NULL;
	bool begin, may = c->o.may_begin(c->o.arg);

	pthread_mutex_lock(&c->lock);
	if (c->snap_done) {
		done = c->snap;
		c->snap = NULL;
		c->snap_done = false;
	}
	begin = may && c->anew && !c->snap &&
		clock_now_ms(CLOCK_MONOTONIC) >= c->anew_ms;
	if (begin)
		c->anew = false;
	pthread_mutex_unlock(&c->lock);
	if (done) {
		sm_snap_end(c->o.sm, done);
		metaraft_trim(c->o.raft);
	}
	if (!begin)
		return;
	struct sm_snap *snap = metaraft_freeze(c->o.raft);

	pthread_mutex_lock(&c->lock);
	if (snap) {
		queue_drop(c); /* it has them */
		c->snap = snap;
		c->snap_batch = sm_batch(c->o.sm);
		c->follows = true;
		if (base_due(c))
			pthread_cond_signal(&c->wake);
	} else {
		begin_anew(c, 0, RETRY_MS);
	}
	pthread_mutex_unlock(&c->lock);
}

/* The file "cluster" says whose copies there are. */
static int check_cluster(struct copy *c, char *why, size_t why_size)
{
	char text[32] = "", ours[32];
	int len = snprintf(ours, sizeof(ours), "0x%016" PRIx64 "\n",
			   c->o.cluster_id);
	int rv = 0, fd = openat(c->dir, "cluster", O_RDWR | O_CREAT | O_CLOEXEC,
				0600);

	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text) - 1) < 0)
		rv = -errno;
	if (rv == 0 && !text[0]) {
		rv = write_all(fd, ours, (size_t)len);
		if (rv == 0 && fsync(fd) < 0)
			rv = -errno;
	} else if (rv == 0 && strcmp(text, ours) != 0) {
		(void)snprintf(why, why_size, "%s has the copy of another "
			       "cluster, %.18s; give --copy another directory",
			       c->path, text);
		rv = -EXDEV;
	}
	(void)close(fd);
	return rv;
}

static int open_dir(struct copy *c, char *why, size_t why_size)
{
	int64_t newest;
	int rv;

	c->dir = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir < 0)
		goto bad;
	/* Network file systems need not have locks. */
	if (flock(c->dir, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		(void)snprintf(why, why_size, "%s is in use by another "
			       "hail-metad's --copy", c->path);
		return -EBUSY;
	}
	newest = copy_newest(c->path);
	if (newest < 0)
		return (int)newest;
	c->gen = (uint64_t)newest;
	rv = check_cluster(c, why, why_size);
	if (rv < 0 && !why[0])
		(void)snprintf(why, why_size, "--copy %s: %s", c->path,
			       strerror(-rv));
	return rv;
bad:
	(void)snprintf(why, why_size, "--copy %s: %s", c->path,
		       strerror(errno));
	return -errno;
}

int copy_new(const struct copy_options *o, struct copy **ret, char *why,
	     size_t why_size)
{
	struct copy *c = calloc(1, sizeof(*c));
	int rv;

	if (!c || !(c->path = strdup(o->path))) {
		free(c);
		return -ENOMEM;
	}
	c->o = *o;
	c->log = -1;
	c->durable = sm_batch(o->sm);
	c->tail = &c->head;
	c->anew = true;
	rv = open_dir(c, why, why_size);
	if (rv < 0) {
		if (c->dir > 0)
			close(c->dir);
		free(c->path);
		free(c);
		return rv;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake, NULL);
	rv = -pthread_create(&c->thread, NULL, run, c);
	if (rv == 0) {
		(void)uv_timer_init(o->loop, &c->timer);
		c->timer.data = c;
		(void)uv_timer_start(&c->timer, look, 0, LOOK_MS);
		*ret = c;
		return 0;
	}
	close(c->dir);
	free(c->path);
	free(c);
	return rv;
}

static void timer_closed(uv_handle_t *h)
{
	struct copy *c = h->data;

	queue_drop(c);
	if (c->log >= 0)
		close(c->log);
	close(c->dir);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->wake);
	free(c->path);
	free(c);
}

bool copy_free(struct copy *c)
{
	struct timespec until;

	if (!c)
		return true;
	(void)uv_timer_stop(&c->timer);
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_MS / 1000;
	if (pthread_timedjoin_np(c->thread, NULL, &until)) {
		/* A dead network file system: the process ends without it, and
		 * what the thread uses stays. */
		diag_warn("copy", "event=left-behind dir=%s", c->path);
		uv_close((uv_handle_t *)&c->timer, NULL);
		return false;
	}
	if (c->snap)
		sm_snap_end(c->o.sm, c->snap);
	uv_close((uv_handle_t *)&c->timer, timer_closed);
	return true;
}

const char *copy_state(struct copy *c, char *buf, size_t size)
{
	pthread_mutex_lock(&c->lock);
	if (c->error)
		snprintf(buf, size, "%s", strerror(-c->error));
	else
		snprintf(buf, size, "%s", c->follows && !c->snap ? "ok" :
							 "beginning");
	pthread_mutex_unlock(&c->lock);
	return buf;
}
