/* One measurement of one directory; bench/run alternates it between file
 * systems. Prints "METRIC UNIT VALUE [SYNCS]" lines; SYNCS: how many fsyncs
 * that took, where they are the point.
 *
 *	micro seqwrite DIR MIB        1 MiB writes, then fsync
 *	micro seqread DIR             of the file seqwrite left (drops caches)
 *	micro prepare DIR MIB         the file of the random cases
 *	micro randread DIR DEPTH MS   4 KiB O_DIRECT, DEPTH threads
 *	micro randwrite DIR DEPTH MS
 *	micro append DIR BYTES MS [THREADS]
 *	                              append + fdatasync, with latencies; each
 *	                              thread in a file of its own
 *	micro log DIR BYTES MIB MS    MIB MiB of them, which is told; then as
 *	                              append; MS 0: holds the file until killed
 *	micro files DIR THREADS N     create+write 4 KiB+close, stat (cached),
 *	                              rename, unlink of N files in all
 *	micro spin                    SCHED_IDLE spinner a core, until killed
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUF_SIZE (1u << 20)

static const char *dir;

static void die(const char *what)
{
	fprintf(stderr, "micro: %s: %s: %s\n", dir ? dir : "", what,
		strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *buffer(void)
{
	void *p;
	if (posix_memalign(&p, 4096, BUF_SIZE))
		die("memory");
	uint64_t x = 88172645463325252u;
	for (size_t i = 0; i < BUF_SIZE / 8; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		((uint64_t *)p)[i] = x;
	}
	return p;
}

static int open_file(const char *name, int flags)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		die(path);
	return fd;
}

static void write_all(int fd, const void *buf, size_t mib)
{
	for (size_t i = 0; i < mib; i++)
		if (write(fd, buf, BUF_SIZE) != (ssize_t)BUF_SIZE)
			die("write");
	if (fsync(fd))
		die("fsync");
}

static void seqwrite(size_t mib)
{
	void *buf = buffer();
	int fd = open_file("seq", O_WRONLY | O_CREAT | O_TRUNC);
	int64_t start = now_ns();
	write_all(fd, buf, mib);
	double s = (double)(now_ns() - start) / 1e9;
	close(fd);
	printf("seqwrite MB/s %.1f 1\n", (double)mib * 1.048576 / s);
}

static void drop_caches(void)
{
	sync();
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "3", 1) != 1)
		die("drop_caches");
	close(fd);
}

static void seqread(void)
{
	void *buf = buffer();
	drop_caches();
	int fd = open_file("seq", O_RDONLY);
	int64_t start = now_ns(), bytes = 0;
	ssize_t got;
	while ((got = read(fd, buf, BUF_SIZE)) > 0)
		bytes += got;
	if (got < 0)
		die("read");
	double s = (double)(now_ns() - start) / 1e9;
	close(fd);
	printf("seqread MB/s %.1f\n", (double)bytes / 1e6 / s);
}

struct rand_thread {
	pthread_t t;
	int fd;
	bool write;
	uint64_t seed, ops;
	off_t units;
	int64_t until;
};

static void *rand_run(void *arg)
{
	struct rand_thread *r = arg;
	void *buf = buffer();
	uint64_t x = r->seed;
	while (now_ns() < r->until) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		off_t off = (off_t)(x % (uint64_t)r->units) * 4096;
		ssize_t got = r->write ? pwrite(r->fd, buf, 4096, off) :
					 pread(r->fd, buf, 4096, off);
		if (got != 4096)
			die(r->write ? "pwrite" : "pread");
		r->ops++;
	}
	free(buf);
	return NULL;
}

static void random_io(bool write, int depth, int64_t ms)
{
	struct rand_thread *t = calloc((size_t)depth, sizeof(*t));
	struct stat st;
	int fd = open_file("rand", (write ? O_RDWR : O_RDONLY) | O_DIRECT);
	if (!t || fstat(fd, &st))
		die("rand");
	uint64_t ops = 0;
	int64_t start = now_ns();
	for (int i = 0; i < depth; i++) {
		t[i] = (struct rand_thread){ .fd = fd, .write = write,
					     .seed = 1 + (uint64_t)i * 7919,
					     .units = st.st_size / 4096,
					     .until = start + ms * 1000000 };
		pthread_create(&t[i].t, NULL, rand_run, &t[i]);
	}
	for (int i = 0; i < depth; i++) {
		pthread_join(t[i].t, NULL);
		ops += t[i].ops;
	}
	double s = (double)(now_ns() - start) / 1e9;
	printf("%s-%d ops/s %.0f\n", write ? "randwrite" : "randread", depth,
	       (double)ops / s);
	free(t);
	close(fd);
}

static int cmp_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* What each took, sorted. */
struct latencies {
	int64_t *ns;
	size_t count, cap;
	double total_s;
};

static void latencies_init(struct latencies *l, size_t cap)
{
	*l = (struct latencies){ .cap = cap };
	l->ns = malloc(cap * sizeof(*l->ns));
	if (!l->ns)
		die("memory");
}

static void append_synced(int fd, const void *buf, size_t bytes, int64_t ms,
			  struct latencies *l)
{
	latencies_init(l, 1 << 20);
	int64_t start = now_ns(), t0 = start, t1 = start;
	while (t1 - start < ms * 1000000 && l->count < l->cap) {
		t0 = t1;
		if (write(fd, buf, bytes) != (ssize_t)bytes || fdatasync(fd))
			die("append");
		t1 = now_ns();
		l->ns[l->count++] = t1 - t0;
	}
	l->total_s = (double)(t1 - start) / 1e9;
	qsort(l->ns, l->count, sizeof(*l->ns), cmp_i64);
}

struct append_thread {
	pthread_t t;
	int fd;
	const void *buf;
	size_t bytes;
	int64_t ms;
	struct latencies l;
};

static void *append_run(void *arg)
{
	struct append_thread *a = arg;
	append_synced(a->fd, a->buf, a->bytes, a->ms, &a->l);
	return NULL;
}

/* All of theirs in one; the longest's time. */
static void append_join(struct append_thread *a, int threads,
			struct latencies *all)
{
	size_t count = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(a[i].t, NULL);
		close(a[i].fd);
		count += a[i].l.count;
	}
	latencies_init(all, count);
	for (int i = 0; i < threads; i++) {
		memcpy(all->ns + all->count, a[i].l.ns,
		       a[i].l.count * sizeof(*all->ns));
		all->count += a[i].l.count;
		if (a[i].l.total_s > all->total_s)
			all->total_s = a[i].l.total_s;
		free(a[i].l.ns);
	}
	qsort(all->ns, all->count, sizeof(*all->ns), cmp_i64);
}

static void append(size_t bytes, int64_t ms, int threads)
{
	struct append_thread *a = calloc((size_t)threads, sizeof(*a));
	void *buf = buffer();
	char name[64];
	struct latencies l;
	double sum_ns = 0;
	if (!a)
		die("memory");
	for (int i = 0; i < threads; i++) {
		snprintf(name, sizeof(name), "append.%d", i);
		a[i] = (struct append_thread){ .buf = buf, .bytes = bytes,
					       .ms = ms };
		a[i].fd = open_file(name, O_WRONLY | O_CREAT | O_TRUNC |
						  O_APPEND);
	}
	for (int i = 0; i < threads; i++)
		pthread_create(&a[i].t, NULL, append_run, &a[i]);
	append_join(a, threads, &l);
	for (size_t i = 0; i < l.count; i++)
		sum_ns += (double)l.ns[i];
	snprintf(name, sizeof(name), threads > 1 ? "append-%zu-%d" :
						   "append-%zu",
		 bytes, threads);
	printf("%s ops/s %.0f %zu\n", name, (double)l.count / l.total_s,
	       l.count);
	printf("%s-mean us %.1f\n", name, sum_ns / 1000 / (double)l.count);
	printf("%s-p99 us %.1f\n", name,
	       (double)l.ns[l.count * 99 / 100] / 1000);
	free(l.ns);
	free(buf);
	free(a);
}

static void log_file(size_t bytes, size_t mib, int64_t ms)
{
	void *buf = buffer();
	int fd = open_file("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
	struct latencies l;
	for (size_t done = 0; done < mib << 20; done += bytes)
		if (write(fd, buf, bytes) != (ssize_t)bytes)
			die("write");
	puts("full");
	fflush(stdout);
	if (ms == 0)
		pause();
	append_synced(fd, buf, bytes, ms, &l);
	printf("longest us %.1f\n", (double)l.ns[l.count - 1] / 1000);
	printf("p99 us %.1f\n", (double)l.ns[l.count * 99 / 100] / 1000);
	free(l.ns);
	close(fd);
}

/* One pass over a few thousand files is over in milliseconds. */
#define STAT_PASSES 20u

enum phase { PHASE_CREATE, PHASE_STAT, PHASE_RENAME, PHASE_UNLINK, PHASES };
static const char *const phase_names[] = { "create", "stat", "rename",
					   "unlink" };

struct files_thread {
	pthread_t t;
	int id;
	size_t count, passes;
	enum phase phase;
	const void *buf;
};

static void one_file(const struct files_thread *f, size_t i)
{
	char a[512], b[520];
	struct stat st;
	snprintf(a, sizeof(a), "%s/t%d/f%zu", dir, f->id, i);
	snprintf(b, sizeof(b), "%s.r", a);
	switch (f->phase) {
	case PHASE_CREATE: {
		int fd = open(a, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, f->buf, 4096) != 4096 || close(fd))
			die(a);
		break;
	}
	case PHASE_STAT:
		if (stat(a, &st) || st.st_size != 4096)
			die(a);
		break;
	case PHASE_RENAME:
		if (rename(a, b))
			die(a);
		break;
	default:
		if (unlink(b))
			die(b);
		break;
	}
}

static void *files_run(void *arg)
{
	struct files_thread *f = arg;
	for (size_t i = 0; i < f->count * f->passes; i++)
		one_file(f, i % f->count);
	return NULL;
}

static void files(int threads, size_t count)
{
	struct files_thread *t = calloc((size_t)threads, sizeof(*t));
	void *buf = buffer();
	char path[512];
	if (!t)
		die("memory");
	for (int i = 0; i < threads; i++) {
		snprintf(path, sizeof(path), "%s/t%d", dir, i);
		if (mkdir(path, 0755) && errno != EEXIST)
			die(path);
	}
	/* Each file's attributes are asked for once before it counts: the case
	 * is the cached stat. */
	for (int i = 0; i < PHASES + 1; i++) {
		int p = i <= PHASE_STAT ? i : i - 1;
		bool warm = i == PHASE_STAT;
		int64_t start = now_ns();
		for (int k = 0; k < threads; k++) {
			t[k].id = k;
			t[k].count = count / (size_t)threads;
			t[k].passes = p == PHASE_STAT && !warm ? STAT_PASSES :
								 1;
			t[k].phase = (enum phase)p;
			t[k].buf = buf;
			pthread_create(&t[k].t, NULL, files_run, &t[k]);
		}
		for (int k = 0; k < threads; k++)
			pthread_join(t[k].t, NULL);
		double s = (double)(now_ns() - start) / 1e9;
		if (warm)
			continue;
		printf("%s-%d ops/s %.0f\n", phase_names[p], threads,
		       (double)(t[0].count * t[0].passes *
				(size_t)threads) / s);
	}
	free(t);
}

static void *spin(void *arg)
{
	volatile uint64_t *x = arg;
	for (;;)
		(*x)++;
	return NULL;
}

static void spin_all(void)
{
	struct sched_param p = { 0 };
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	static volatile uint64_t x[256];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sched_setscheduler(0, SCHED_IDLE, &p))
		die("SCHED_IDLE");
	for (long i = 0; i < cores && i < 256; i++) {
		pthread_t t;
		pthread_create(&t, NULL, spin, (void *)(uintptr_t)&x[i]);
	}
	pause();
}

int main(int argc, char **argv)
{
	const char *c = argc > 1 ? argv[1] : "";
	dir = argc > 2 ? argv[2] : ".";
	long a = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
	long b = argc > 4 ? strtol(argv[4], NULL, 10) : 0;
	if (strcmp(c, "seqwrite") == 0 && a > 0)
		seqwrite((size_t)a);
	else if (strcmp(c, "seqread") == 0)
		seqread();
	else if (strcmp(c, "prepare") == 0 && a > 0)
		write_all(open_file("rand", O_WRONLY | O_CREAT), buffer(),
			  (size_t)a);
	else if (strcmp(c, "randread") == 0 && a > 0)
		random_io(false, (int)a, b);
	else if (strcmp(c, "randwrite") == 0 && a > 0)
		random_io(true, (int)a, b);
	else if (strcmp(c, "append") == 0 && a > 0)
		append((size_t)a, b, argc > 5 ? (int)strtol(argv[5], NULL, 10) :
						1);
	else if (strcmp(c, "log") == 0 && a > 0 && argc > 5)
		log_file((size_t)a, (size_t)b, strtol(argv[5], NULL, 10));
	else if (strcmp(c, "files") == 0 && a > 0)
		files((int)a, (size_t)b);
	else if (strcmp(c, "spin") == 0)
		spin_all();
	else {
		fprintf(stderr, "micro: see the top of bench/micro.c\n");
		return 2;
	}
	return 0;
}
