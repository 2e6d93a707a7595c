/* Writes that are remembered elsewhere once they were acknowledged, and the
 * check that nothing acknowledged is missing.
 *
 *	acked write DIR ACKS SECONDS THREADS [SEED]
 *	acked verify DIR ACKS [LIMIT]
 *
 * ACKS lies on another file system; a line is added after fsync returned.
 * Each thread works in DIR/N: appends to a log, overwrites blocks of a data
 * file, makes, renames and removes small files. Every block and file says who
 * wrote it and when (a sequence number), so that verify can tell old from new
 * and torn from whole. At most the one operation that was under way when the
 * writer was stopped may be there or not. An error of the file system ends the
 * thread (status 3: some thread saw one; what was acknowledged still counts).
 * To verify where no operation was acknowledged fails, but for LIMIT.
 *
 * $ACK_COUNTER names a file whose first 8 bytes are a clock (tests/power/recfs:
 * the number of disk writes so far): each line has its value, and LIMIT makes
 * verify stop believing what was acknowledged later.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
#define BLOCKS 512
#define BLOCK 4096
#define FILES 4096
#define REC_MIN 32

struct stamp {
	uint64_t magic, thread, seq, place; /* place: offset, block or file */
};
#define MAGIC 0x6861696c61636b64u

struct worker {
	pthread_t t;
	int id, acks, dirfd, log, data;
	uint64_t rng, seq, log_end;
	int64_t until;
	bool failed;
};

static uint64_t rnd(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Bytes that follow from the stamp, so that a torn write shows. */
static void fill(unsigned char *p, size_t len, uint64_t thread, uint64_t seq,
		 uint64_t place)
{
	struct stamp s = { MAGIC, thread, seq, place };
	memcpy(p, &s, sizeof(s));
	uint64_t x = seq * 0x9e3779b97f4a7c15u + thread + 1;
	for (size_t i = sizeof(s); i < len; i++) {
		if (i % 8 == 0)
			rnd(&x);
		p[i] = (unsigned char)(x >> (i % 8 * 8));
	}
}

static bool filled(const unsigned char *p, size_t len, uint64_t thread,
		   uint64_t seq, uint64_t place)
{
	static __thread unsigned char want[65536];
	fill(want, len, thread, seq, place);
	return memcmp(p, want, len) == 0;
}

static const uint64_t *ack_clock;

/* @op: A append, W block, C create, U unlink, B begin of a run */
static bool ack(struct worker *w, char op, uint64_t seq, uint64_t place,
		size_t size)
{
	char line[128];
	int len = snprintf(line, sizeof(line), "%c %d %lu %lu %zu %lu\n", op,
			   w->id, (unsigned long)seq, (unsigned long)place,
			   size, ack_clock ? (unsigned long)__atomic_load_n(
						     ack_clock,
						     __ATOMIC_SEQ_CST) :
					     0ul);
	return write(w->acks, line, (size_t)len) == len;
}

static bool op_append(struct worker *w)
{
	unsigned char buf[8192];
	size_t len = REC_MIN + rnd(&w->rng) % (sizeof(buf) - REC_MIN);
	if (rnd(&w->rng) % 2)
		len = REC_MIN + len % 300;
	uint64_t seq = ++w->seq;
	fill(buf, len, (uint64_t)w->id, seq, w->log_end);
	if (write(w->log, buf, len) != (ssize_t)len || fdatasync(w->log))
		return false;
	bool ok = ack(w, 'A', seq, w->log_end, len);
	w->log_end += len;
	return ok;
}

static bool op_block(struct worker *w)
{
	unsigned char buf[BLOCK];
	uint64_t b = rnd(&w->rng) % BLOCKS, seq = ++w->seq;
	fill(buf, BLOCK, (uint64_t)w->id, seq, b);
	if (pwrite(w->data, buf, BLOCK, (off_t)(b * BLOCK)) != BLOCK ||
	    fdatasync(w->data))
		return false;
	return ack(w, 'W', seq, b, BLOCK);
}

static bool op_create(struct worker *w)
{
	unsigned char buf[5000];
	char name[32];
	uint64_t f = rnd(&w->rng) % FILES, seq = ++w->seq;
	size_t len = sizeof(struct stamp) + rnd(&w->rng) % 4900;
	snprintf(name, sizeof(name), "f%lu", (unsigned long)f);
	fill(buf, len, (uint64_t)w->id, seq, f);
	/* as databases replace a file: write, fsync, rename, fsync of the
	 * directory */
	int fd = openat(w->dirfd, "tmp", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return false;
	if (write(fd, buf, len) != (ssize_t)len || fsync(fd)) {
		close(fd);
		return false;
	}
	if (close(fd) || renameat(w->dirfd, "tmp", w->dirfd, name) ||
	    fsync(w->dirfd))
		return false;
	return ack(w, 'C', seq, f, len);
}

static bool op_unlink(struct worker *w)
{
	char name[32];
	uint64_t f = rnd(&w->rng) % FILES, seq = ++w->seq;
	snprintf(name, sizeof(name), "f%lu", (unsigned long)f);
	if (unlinkat(w->dirfd, name, 0) && errno != ENOENT)
		return false;
	if (fsync(w->dirfd))
		return false;
	return ack(w, 'U', seq, f, 0);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	while (now_ms() < w->until) {
		uint64_t dice = rnd(&w->rng) % 10;
		bool ok = dice < 4 ? op_append(w) :
			  dice < 7 ? op_block(w) :
			  dice < 9 ? op_create(w) :
				     op_unlink(w);
		if (!ok) {
			fprintf(stderr, "acked: thread %d: %s\n", w->id,
				strerror(errno));
			w->failed = true;
			return NULL;
		}
	}
	return NULL;
}

static int die(const char *what)
{
	fprintf(stderr, "acked: %s: %s\n", what, strerror(errno));
	exit(2);
}

static int do_write(const char *dir, const char *acks, int seconds,
		    int threads, uint64_t seed)
{
	static struct worker w[THREADS_MAX];
	char path[600];
	int fd = open(acks, O_WRONLY | O_CREAT | O_APPEND, 0644), failed = 0;
	if (fd < 0)
		die(acks);
	for (int i = 0; i < threads; i++) {
		w[i].id = i;
		w[i].acks = fd;
		w[i].rng = seed * 1000 + (uint64_t)i + 1;
		/* sequences of a later run are larger */
		w[i].seq = (uint64_t)time(NULL) * 1000000;
		w[i].until = now_ms() + seconds * 1000;
		snprintf(path, sizeof(path), "%s/%d", dir, i);
		if (mkdir(path, 0755) && errno != EEXIST)
			die(path);
		w[i].dirfd = open(path, O_RDONLY | O_DIRECTORY);
		w[i].log = openat(w[i].dirfd, "log",
				  O_WRONLY | O_CREAT | O_APPEND, 0644);
		w[i].data = openat(w[i].dirfd, "data", O_RDWR | O_CREAT, 0644);
		struct stat st;
		if (w[i].dirfd < 0 || w[i].log < 0 || w[i].data < 0 ||
		    fstat(w[i].log, &st))
			die(path);
		w[i].log_end = (uint64_t)st.st_size;
		if (!ack(&w[i], 'B', w[i].seq, 0, 0))
			die(acks);
		if (pthread_create(&w[i].t, NULL, work, &w[i]))
			die("thread");
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(w[i].t, NULL);
		failed |= w[i].failed;
	}
	return failed ? 3 : 0;
}

/* ---- verify ---- */
struct expect {
	struct {
		uint64_t seq;
	} block[BLOCKS];
	struct {
		uint64_t seq;
		size_t len; /* 0: removed or never there */
	} file[FILES];
	/* Operations that may have happened without being acknowledged: the
	 * one under way at the end of each run. */
	unsigned in_flight;
};

static int bad;

static void wrong(const char *what, int thread, uint64_t place, uint64_t want,
		  uint64_t got)
{
	fprintf(stderr, "acked: LOST %s thread=%d place=%lu acked=%lu "
		"found=%lu\n", what, thread, (unsigned long)place,
		(unsigned long)want, (unsigned long)got);
	bad++;
}

static void verify_blocks(const char *dir, int t, const struct expect *e)
{
	char path[600];
	unsigned char buf[BLOCK];
	struct stamp s;
	snprintf(path, sizeof(path), "%s/%d/data", dir, t);
	int fd = open(path, O_RDONLY);
	for (uint64_t b = 0; b < BLOCKS; b++) {
		if (!e->block[b].seq)
			continue;
		if (fd < 0 ||
		    pread(fd, buf, BLOCK, (off_t)(b * BLOCK)) != BLOCK) {
			wrong("block", t, b, e->block[b].seq, 0);
			continue;
		}
		memcpy(&s, buf, sizeof(s));
		/* newer: the one write that was not acknowledged any more */
		if (s.magic != MAGIC || s.seq < e->block[b].seq ||
		    !filled(buf, BLOCK, (uint64_t)t, s.seq, b))
			wrong("block", t, b, e->block[b].seq, s.seq);
	}
	if (fd >= 0)
		close(fd);
}

static void verify_files(const char *dir, int t, const struct expect *e)
{
	unsigned gone = 0;
	char path[600];
	unsigned char buf[8192];
	struct stamp s;
	for (uint64_t f = 0; f < FILES; f++) {
		if (!e->file[f].seq)
			continue;
		snprintf(path, sizeof(path), "%s/%d/f%lu", dir, t,
			 (unsigned long)f);
		int fd = open(path, O_RDONLY);
		if (fd < 0) {
			if (e->file[f].len && ++gone > e->in_flight)
				wrong("file", t, f, e->file[f].seq, 0);
			continue;
		}
		ssize_t len = read(fd, buf, sizeof(buf));
		close(fd);
		memset(&s, 0, sizeof(s));
		if (len >= (ssize_t)sizeof(s))
			memcpy(&s, buf, sizeof(s));
		bool whole = len >= (ssize_t)sizeof(s) && s.magic == MAGIC &&
			     filled(buf, (size_t)len, (uint64_t)t, s.seq, f);
		if (!whole || s.seq < e->file[f].seq ||
		    (s.seq == e->file[f].seq &&
		     (size_t)len != e->file[f].len))
			wrong("file", t, f, e->file[f].seq, s.seq);
	}
}

static int do_verify(const char *dir, const char *acks, uint64_t limit)
{
	static struct expect e[THREADS_MAX];
	static unsigned char buf[8192];
	char line[128], path[600];
	FILE *in = fopen(acks, "r");
	uint64_t count = 0, begun = 0;
	if (!in)
		die(acks);
	while (fgets(line, sizeof(line), in)) {
		int t;
		unsigned long seq, place, len, clock;
		char op;
		if (!strchr(line, '\n'))
			break; /* the ack itself was cut off */
		if (sscanf(line, "%c %d %lu %lu %lu %lu", &op, &t, &seq, &place,
			   &len, &clock) != 6 || t < 0 || t >= THREADS_MAX)
			die("ack file");
		if (clock > limit)
			continue;
		count++;
		if (op == 'B') {
			e[t].in_flight++;
			begun++;
		} else if (op == 'W' && place < BLOCKS) {
			e[t].block[place].seq = seq;
		} else if ((op == 'C' || op == 'U') && place < FILES) {
			e[t].file[place].seq = seq;
			e[t].file[place].len = op == 'C' ? len : 0;
		} else if (op == 'A' && len <= sizeof(buf)) {
			snprintf(path, sizeof(path), "%s/%d/log", dir, t);
			int fd = open(path, O_RDONLY);
			ssize_t got = fd < 0 ? -1 :
				pread(fd, buf, len, (off_t)place);
			if (fd >= 0)
				close(fd);
			if (got != (ssize_t)len ||
			    !filled(buf, len, (uint64_t)t, seq, place))
				wrong("log", t, place, seq, 0);
		}
	}
	fclose(in);
	for (int t = 0; t < THREADS_MAX; t++) {
		verify_blocks(dir, t, &e[t]);
		verify_files(dir, t, &e[t]);
	}
	printf("%lu acknowledged operations, %d wrong\n",
	       (unsigned long)count, bad);
	if (count == begun && limit == UINT64_MAX) {
		fprintf(stderr, "acked: there was nothing to be lost\n");
		bad++;
	}
	return bad ? 1 : 0;
}

static void open_clock(void)
{
	const char *path = getenv("ACK_COUNTER");
	if (!path)
		return;
	int fd = open(path, O_RDONLY);
	void *p = fd < 0 ? MAP_FAILED :
			   mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(path);
	close(fd);
	ack_clock = p;
}

int main(int argc, char **argv)
{
	open_clock();
	if (argc >= 6 && strcmp(argv[1], "write") == 0) {
		int threads = (int)strtol(argv[5], NULL, 10);
		uint64_t seed = (uint64_t)getpid();

		if (argc > 6)
			seed = strtoull(argv[6], NULL, 10);
		if (threads < 1 || threads > THREADS_MAX)
			return 2;
		return do_write(argv[2], argv[3],
				(int)strtol(argv[4], NULL, 10), threads, seed);
	}
	if (argc >= 4 && strcmp(argv[1], "verify") == 0)
		return do_verify(argv[2], argv[3],
				 argc > 4 ? strtoull(argv[4], NULL, 10) :
					    UINT64_MAX);
	fprintf(stderr, "usage: acked write DIR ACKS SECONDS THREADS [SEED]\n"
			"       acked verify DIR ACKS [LIMIT]\n");
	return 2;
}
